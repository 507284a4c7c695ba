"""Intervals of metrics from noisy totals, by the known noise; a ratio has Fieller's interval."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

__all__ = ["CHANCE", "SEEN", "UNKNOWN", "Interval", "Ratio", "TotalNoise", "gaussian_width", "laplace_width"]

Interval = tuple[float, float]
CHANCE = 0.05  # that an interval does not cover
UNKNOWN: Interval = (-math.inf, math.inf)
# A denominator must be this many standard deviations of its noise; otherwise noise hides the ratio. One that
# is 0 passes by chance in 0.2 % of the releases.
SEEN = 4.0


def laplace_width(chance: float) -> float:
    """Return the x with P(|noise| > x standard deviations) = chance, for Laplace noise.

    Weighted sums of several draws have lighter tails, so the interval is then a little too wide.
    """
    return math.log(1 / chance) / math.sqrt(2)


def gaussian_width(chance: float) -> float:
    """Return the x with P(|noise| > x standard deviations) = chance, for Gaussian noise."""
    return NormalDist().inv_cdf(1 - chance / 2)


@dataclass(frozen=True)
class TotalNoise:
    """Noise on each total of a metric, and the half-width of intervals in its standard deviations."""

    deviation: float
    width: float

    def around(self, value: float, slope: float) -> Interval:
        """Return the interval of a value that moves by `slope` for each unit of one total."""
        half = self.width * self.deviation * slope
        return value - half, value + half


@dataclass(frozen=True)
class Ratio:
    """A ratio N/D of noisy numbers, whose variances and covariance are known.

    Fieller: the interval holds each r at which N - r D is within `width` of its own standard deviations
    of 0. It is valid however uncertain D is, and unbounded if D could be 0.
    """

    numerator: float
    denominator: float
    variances: tuple[float, float]
    covariance: float = 0.0

    def interval(self, width: float) -> Interval:
        """Return the interval; `UNKNOWN` if the denominator is not `SEEN`."""
        top, bottom, (first, second) = self.numerator, self.denominator, self.variances
        square = width**2
        lead = bottom**2 - square * second
        if bottom < SEEN * math.sqrt(second) or lead <= 0:
            return UNKNOWN
        middle = top * bottom - square * self.covariance
        root = math.sqrt(max(middle**2 - lead * (top**2 - square * first), 0.0))
        return (middle - root) / lead, (middle + root) / lead
