"""Approximate minima perturbation (Iyengar et al. 2019): a noisy objective, a rough minimiser, more noise."""

import math

import numpy as np

SHARE_OUTPUT = 0.01  # of epsilon and delta for the noise on the output
SHARE_NOISE = 0.9  # of the rest of epsilon for the noise in the objective; what is left pays for curvature
NEWTON_STEPS = 20
SMOOTHNESS = 0.25  # of the logistic loss of rows of norm 1, which is 1-Lipschitz
RANK = 2  # of the change of a Hessian when one record of a generalised linear model is replaced


class Solver:
    """Own implementation of the published algorithm, with its constants, for logistic losses.

    Its proof takes for granted that the minimiser is found to the tolerance; otherwise zero is released.
    """

    title = "AMP"
    kinds = ("binary", "text")
    private = True
    requirements = ()
    guarantee = "(ε, δ), replace-one"

    def settings(self, epsilon, kind):
        """There are none: shares of the budget are those of its authors."""
        return [{}]

    def fit(self, problem, epsilon, seed):
        """Return scores; if the gradient at the minimiser is not small enough, those of zero."""
        from scipy.optimize import minimize
        from scipy.sparse.linalg import LinearOperator, cg

        rows, new = problem.rows()
        n, d = rows.shape
        if not problem.data_norm:
            rows, new = rows / math.sqrt(d), new / math.sqrt(d)  # norm 1
        signs, rng = 2 * problem.y - 1, np.random.default_rng(seed)
        out, delta_out = SHARE_OUTPUT * epsilon, SHARE_OUTPUT * problem.delta
        inner, delta_inner = epsilon - out, problem.delta - delta_out
        share = max(SHARE_NOISE, 1 - 1 / inner + 0.001)  # curvature may cost 1 at most
        noise = 2 / n * (1 + math.sqrt(2 * math.log(1 / delta_inner))) / (share * inner)
        ridge, tolerance = RANK * SMOOTHNESS / ((1 - share) * inner), 1 / n**2
        b = noise * rng.standard_normal(d)

        def objective(theta):
            margins = signs * (rows @ theta)
            slopes = -signs / (1 + np.exp(np.clip(margins, -50, 50)))
            value = np.mean(np.logaddexp(0, -margins)) + ridge / (2 * n) * theta @ theta + b @ theta
            return value, rows.T @ slopes / n + ridge / n * theta + b

        theta = minimize(objective, np.zeros(d), jac=True, method="L-BFGS-B", options={"gtol": 1e-7}).x
        for _ in range(NEWTON_STEPS):  # the tolerance is below what differences of values can see
            gradient = objective(theta)[1]
            if np.linalg.norm(gradient) <= tolerance / 2:
                break
            weights = 1 / (4 * np.cosh(np.clip(rows @ theta, -50, 50) / 2) ** 2) / n
            hessian = LinearOperator((d, d), lambda v, w=weights: rows.T @ (w * (rows @ v)) + ridge / n * v)
            theta = theta - cg(hessian, gradient, rtol=1e-3, maxiter=200)[0]
        if np.linalg.norm(objective(theta)[1]) > tolerance:
            theta = np.zeros(d)
        spread = n * tolerance / ridge * (1 + math.sqrt(2 * math.log(1 / delta_out))) / out
        return new @ (theta + spread * rng.standard_normal(d))
