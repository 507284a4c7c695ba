"""AdaSSP (Wang 2018): ridge regression on noisy sufficient statistics."""

import math

import numpy as np

from leaderboard.objective import REGRESSIONS
from references import adassp_fit


class Solver:
    """Own implementation, each noise calibrated exactly; `adassp_fit` of benchmarks/references.py."""

    title = "AdaSSP"
    kinds = (*REGRESSIONS, "several targets")
    private = True
    requirements = ()
    guarantee = "(ε, δ), replace-one"

    def settings(self, epsilon, kind):
        """There are none."""
        return [{}]

    def fit(self, problem, epsilon, seed):
        """Return predictions; several targets share the Gram matrix, and rows of X'Y have one noise."""
        from dpcvx.accounting import gaussian_mu

        rows, new = problem.rows()
        Y, rng = problem.scaled_target(), np.random.default_rng(seed)
        mu = gaussian_mu(epsilon, problem.delta)
        if Y.ndim == 1:
            return problem.in_units(new @ adassp_fit(rows, Y, mu, problem.delta, rng)[0])
        _, gram, third = adassp_fit(rows, Y[:, 0], mu, problem.delta, rng)
        noise = 2 * math.sqrt(rows.shape[1] * Y.shape[1]) / third  # a row has norm sqrt(d), targets sqrt(K)
        moments = rows.T @ Y + noise * rng.standard_normal((rows.shape[1], Y.shape[1]))
        return problem.in_units(new @ np.linalg.solve(gram, moments))
