"""Pairs of neighbouring data sets that show how much an algorithm leaks: no proof can claim less.

Each function returns (epsilon at the claimed delta, delta at the claimed epsilon).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from dpcvx.accounting import Budget, gaussian_delta, gaussian_epsilon
from dpcvx.accounting.inversion import first_passing
from dpcvx.arrays import Vector

__all__ = ["NOTHING", "gaussian", "odd_record", "repeated_selection"]

NOTHING = (math.inf, 1.0)  # of a release that is a function of the records alone
TURNED, COUNTED = 26, 36  # steps that turn the odd record's gradient, and from which on its draws are counted


def gaussian(claimed: Budget, mu: float) -> tuple[float, float]:
    """A constant shift in one direction, which attains what Gaussian noise leaks."""
    return gaussian_epsilon(mu, claimed.delta), gaussian_delta(claimed.epsilon, mu)


def repeated_selection(claimed: Budget, epsilon0: float, count: int) -> tuple[float, float]:
    """Linear losses: in every step one vertex's score falls by Delta while a few others' rise by it.

    The number of times it is chosen is binomial under both data sets (PRIVACY_MATH §2.3); the best of a few
    leads and numbers of competitors.
    """
    from scipy.stats import binom

    k, found = np.arange(count + 1), []
    for others in (2, 3, 4, 5):
        for lead in (0.0, 0.25):
            p, q = (_chance_of_selection(lead + move, others) for move in (epsilon0 / 2, -epsilon0 / 2))
            chosen, seldom = binom.pmf(k, count, p), binom.pmf(k, count, q)

            def delta_at(epsilon: float, chosen: Vector = chosen, seldom: Vector = seldom) -> float:
                return float(np.maximum(chosen - math.exp(epsilon) * seldom, 0.0).sum())

            found.append((_smallest_epsilon(delta_at, claimed.delta), delta_at(claimed.epsilon)))
    return max(epsilon for epsilon, _ in found), max(delta for _, delta in found)


def odd_record(claimed: Budget, steps: int, n: int, sigma: float) -> tuple[float, float]:
    """One epoch of variance-reduced descent on n - 1 records of constant gradient L and an odd one.

    The odd record's gradient is L at the anchor and turns to -L within 24 steps of 1/12 of its
    inverse smoothness (26 of 1/13). Drawn at step t after that, it moves the mean of the m steps, which is
    returned, by 2 (m - t + 1)/m steps of length L. The neighbour has n records of constant gradient, and the
    same gradient at the anchor. The result is above a threshold with different probabilities; draws more than
    once, and those before the turn is as good as certain, are left out on the odd side. Lengths are in
    units of a step of length L.
    """
    from scipy.special import ndtr

    t = np.arange(COUNTED, steps + 1)
    deviation = sigma * math.sqrt(float(((np.arange(steps) + 1.0) ** 2).sum())) / steps
    moved, once = 2 * (steps - t + 1) / steps, (1 - 1 / n) ** (steps - 1) / n
    not_turned = ndtr(-(COUNTED - 1 - TURNED) / (sigma * math.sqrt(COUNTED - 1)))
    thresholds = deviation * np.linspace(0.0, 12.0, 121)
    above = ndtr((moved - thresholds[:, None]) / deviation) - not_turned
    with_odd, without = (once * above).sum(axis=1), ndtr(-thresholds / deviation)

    def delta_at(epsilon: float) -> float:
        return max(0.0, float((with_odd - math.exp(epsilon) * without).max()))

    return _smallest_epsilon(delta_at, claimed.delta), delta_at(claimed.epsilon)


def _chance_of_selection(lead: float, others: int) -> float:
    """P(Lap(1) < lead + Lap(1) for each of the others)."""
    from scipy.integrate import quad

    def density(x: float) -> float:
        y = x - lead
        above = 0.5 * math.exp(-y) if y > 0 else 1 - 0.5 * math.exp(y)
        return 0.5 * math.exp(-abs(x)) * above**others

    edges = sorted({-40.0, 0.0, lead, 40.0})
    return math.fsum(quad(density, a, b, epsabs=1e-13)[0] for a, b in pairwise(edges))


def _smallest_epsilon(delta_at: Callable[[float], float], delta: float) -> float:
    """Epsilon at which a falling profile reaches delta."""
    if delta_at(0.0) <= delta:
        return 0.0
    highest = 1.0
    while delta_at(highest) > delta:
        highest *= 2
        if highest > 600:
            return highest / 2
    return first_passing(lambda epsilon: delta_at(epsilon) - delta, 0.0, highest, tolerance=1e-10)
