"""Laws of a random number K >= 1 of repetitions, by their mean [PS22].

Poisson:            P(k) = e^-rate rate^k / (k! (1 - e^-rate)),          E K = rate / (1 - e^-rate)
negative binomial:  P(k) = (1-g)^k / (g^-shape - 1) prod_{l<k} (l+shape)/(l+1),
                    E K = shape (1-g) / (g (1 - g^shape))
logarithmic:        the limit at shape 0, P(k) = (1-g)^k / (k log(1/g)),  E K = (1/g - 1) / log(1/g)
"""

from __future__ import annotations

import math
from functools import lru_cache

from scipy.optimize import brentq


def _poisson_mean(rate: float) -> float:
    return rate / -math.expm1(-rate)


def _negative_binomial_mean(success: float, shape: float) -> float:
    log = math.log(success)
    # (1 - g^shape) / shape, whose limit at shape 0 is log(1/g)
    width = -math.expm1(shape * log) / shape if shape else -log
    return (1 - success) / (success * width)


@lru_cache(maxsize=256)
def poisson_rate(mean: float) -> float:
    """Return the rate of Poisson's law that has this mean once it is conditioned on K >= 1."""
    rate = brentq(lambda log: math.log(_poisson_mean(math.exp(log)) / mean), -40.0, math.log(mean) + 1e-9)
    return math.exp(float(rate))


@lru_cache(maxsize=256)
def success_probability(mean: float, shape: float) -> float:
    """Return g of the truncated negative binomial law that has this mean and shape."""
    far = -4.0
    while _negative_binomial_mean(math.exp(far), shape) < mean:
        far *= 2
    log = brentq(lambda at: math.log(_negative_binomial_mean(math.exp(at), shape) / mean), far, -1e-12)
    return math.exp(float(log))
