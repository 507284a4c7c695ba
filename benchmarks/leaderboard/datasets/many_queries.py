"""Many queries: 200 logistic regressions on one table and one budget."""

import numpy as np
from scipy.optimize import minimize

from leaderboard.objective import Problem, query_loss
from queries import synthetic

QUERIES = 200


class Dataset:
    """20,000 records of twelve signs (`synthetic` of benchmarks/queries.py); each query has six features."""

    title = "200 queries"
    kind = "queries"

    def get_data(self, seed, n=20_000, bits=12):
        """Draw queries; the table is the same."""
        table = synthetic(bits, n)[1]
        signs = 2.0 * np.column_stack(list(table.values())) - 1
        rng = np.random.default_rng([seed, 4])
        asked = np.array([rng.choice(bits, 7, replace=False) for _ in range(QUERIES)])
        least = [self._least(signs, query) for query in asked]
        return Problem(self.kind, signs, np.zeros(n), asked, np.array(least))

    def _least(self, signs, query):
        """Least loss of a query without privacy."""
        rows, counts = np.unique(signs[:, query], axis=0, return_counts=True)
        design = np.column_stack([np.ones(len(rows)), rows[:, 1:]]) * rows[:, :1]

        def loss(theta):
            margins = design @ theta
            slopes = -counts / (1 + np.exp(margins)) / len(signs)
            return counts @ np.logaddexp(0, -margins) / len(signs), design.T @ slopes

        theta = minimize(loss, np.zeros(7), jac=True, method="BFGS", options={"gtol": 1e-7}).x
        return query_loss(signs, query, theta)
