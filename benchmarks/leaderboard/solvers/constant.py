"""The best constant of the records, without privacy: a useful model has a higher score."""

import numpy as np

from leaderboard.objective import KINDS


class Solver:
    """Mean, quantile or most frequent class; zero coefficients for queries and without an intercept."""

    title = "constant, not private"
    kinds = KINDS
    private = False
    requirements = ()
    guarantee = "none"

    def settings(self, epsilon, kind):
        """There are none."""
        return [{}]

    def fit(self, problem, epsilon, seed):
        """Return predictions."""
        m = problem.X_test.shape[0]
        if problem.kind == "queries":
            return np.zeros(problem.X_test.shape)
        if problem.kind == "multiclass":
            return np.tile(np.bincount(problem.y.astype(int), minlength=problem.n_classes), (m, 1))
        if problem.kind == "quantile":
            return np.full(m, np.quantile(problem.y, problem.quantile))
        if problem.radius:
            return np.zeros(m)
        return np.tile(problem.y.mean(axis=0), (m, *[1] * (problem.y.ndim - 1)))
