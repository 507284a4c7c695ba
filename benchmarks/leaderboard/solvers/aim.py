"""AIM: a synthetic distribution from noisy tables selected one by one; queries are fits to it."""

from types import SimpleNamespace

import numpy as np


class Solver:
    """AIM of McKenna, Mullins, Sheldon and Miklau (2022), own implementation (benchmarks/query_opponents.py).

    The workload is all tables of three attributes, the fit is one of all cells, which needs binary attributes
    and at most about 16 of them. It accounts in zCDP for one record more or less, in which a replaced record
    costs twice the rho: it is given rho = mu^2/4, which is more than its own accounting allows.
    """

    title = "AIM"
    kinds = ("queries",)
    private = True
    requirements = ()
    guarantee = "(ε, δ), replace-one, accounted in its favour"

    def settings(self, epsilon, kind):
        """Those of its authors."""
        return [{}]

    def fit(self, problem, epsilon, seed):
        """Return the coefficients of all queries, each fitted to the synthetic distribution."""
        from dpcvx.accounting import gaussian_mu
        from query_opponents import own_aim

        p = problem.X.shape[1]
        case = SimpleNamespace(
            mu=gaussian_mu(epsilon, problem.delta),
            sizes=[2] * p,
            n=problem.n,
            codes=(problem.X > 0).astype(np.int64),
        )
        shares = np.asarray(own_aim(case, seed)).reshape([2] * p)
        return [self._coefficients(shares, query) for query in problem.X_test.astype(int)]

    def _coefficients(self, shares, query):
        from scipy.optimize import minimize

        others = tuple(j for j in range(shares.ndim) if j not in query)
        kept = [j for j in range(shares.ndim) if j in query]
        weights = np.transpose(shares.sum(axis=others), [kept.index(j) for j in query]).ravel()
        signs = 2.0 * np.indices([2] * len(query)).reshape(len(query), -1).T - 1
        design = np.column_stack([np.ones(len(signs)), signs[:, 1:]]) * signs[:, :1]

        def loss(theta):
            margins = design @ theta
            slopes = -weights * np.exp(-np.logaddexp(0, margins))
            return weights @ np.logaddexp(0, -margins), design.T @ slopes

        return minimize(loss, np.zeros(len(query)), jac=True, method="BFGS", options={"gtol": 1e-6}).x
