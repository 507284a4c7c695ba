"""Growth of time and memory: logistic regression with more records or more columns. No leaderboard cell."""

import numpy as np

from leaderboard.objective import Problem

SIZES = ((10_000, 20), (50_000, 20), (200_000, 20), (10_000, 100), (10_000, 500))


class Dataset:
    """Uniform columns, a logistic model with coefficients of equal size; sizes are those of `SIZES`."""

    title = "growth"
    kind = "binary"
    epsilons = (1.0,)
    solvers = ("dpcvx_default", "diffprivlib", "dp_sgd", "dp_ebm", "dp_gd", "amp")
    variants = SIZES

    def get_data(self, seed, n=10_000, p=20):
        """Draw records, and 10,000 more to test on."""
        rng = np.random.default_rng([seed, 5])
        X = rng.uniform(-1, 1, (n + 10_000, p))
        theta = rng.choice([-1.0, 1.0], p) * 4 / np.sqrt(p)
        y = (rng.random(len(X)) < 1 / (1 + np.exp(-X @ theta))).astype(float)
        bounds = np.array([-np.ones(p), np.ones(p)])
        return Problem(self.kind, X[:n], y[:n], X[n:], y[n:], bounds=bounds)
