"""The price of private tuning, written down once more from the paper's statements."""

import math

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.stats import norm

from dpcvx.accounting.repetition import poisson_rate, success_probability


def log_slope(x, mean, shape):
    """Logarithm of the derivative of E x^K."""
    if shape is None:
        rate = poisson_rate(mean)
        return math.log(rate) + rate * (x - 1) - np.log(-np.expm1(-rate))
    g = success_probability(mean, shape)
    return math.log(mean) + (1 + shape) * (math.log(g) - np.log(1 - (1 - g) * x))


def lemma_7(mu, mean, shape, delta):
    """Epsilon of the best Gaussian run: [PS22] Lemma 7 on the exact trade-off curve, by another route."""

    def epsilon(log_less):
        order = 1 + math.exp(log_less)

        def extra(t):  # q = P(below t), q' the same event under the neighbour
            q, q_other = norm.cdf(t), norm.cdf(t - mu)
            return order * log_slope(q, mean, shape) - (order - 1) * log_slope(q_other, mean, shape)

        worst = max(
            -minimize_scalar(lambda t: -extra(t), bounds=(a, a + 2), method="bounded").fun
            for a in range(-8, 8, 2)
        )
        curve = order * mu**2 / 2 + worst / (order - 1)
        return curve + math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)

    return minimize_scalar(epsilon, bounds=(-1, 7), method="bounded").fun
