"""A test of whether released gradients show more than noise; a fit of pure noise returns its start."""

from __future__ import annotations

import math

import numpy as np

from dpcvx.arrays import IntVector, Vector
from dpcvx.mechanisms import NoisyGradient
from dpcvx.plans import Asking
from dpcvx.solvers.defaults import default
from dpcvx.solvers.gradient_descent import EXACT
from dpcvx.solvers.typical_data import Harmonic

__all__ = ["NOTHING_FOUND", "Evidence"]

LEAST_SUM: float = default("solvers.evidence.LEAST_SUM")
CHANCE: float = default("solvers.evidence.CHANCE")
NOTHING_FOUND = (
    "All coefficients are 0: the released gradients show no more than noise alone may show, and a fit would "
    "have returned noise. Use more records or a larger epsilon. The budget of this fit is spent."
)


class Evidence:
    """Released gradients of a fit, which show whether the gradient at its origin is more than noise.

    If the objective is quadratic, the gradient at theta is s + H (theta - origin). With curvature h in all
    directions, the mean of g - h (theta - origin) is s plus the noise of the mean, whatever steps and
    projections the fit made. h is the curvature of the public model of typical data: if the true curvature
    is smaller, a fit that followed a signal exceeds the noise even more clearly. If it is larger, late
    gradients are near 0, and h (theta - origin) does not bring the signal back; so the means of the first
    1, 2, 4, ... answers, which were given near the origin, are tested too. Nothing is found if neither the
    sum of squares nor the largest entry of any mean exceeds the level of pure noise. The test uses only
    answers and public numbers: it is post-processing.

    Parameters
    ----------
    mechanism : NoisyGradient
        Mechanism that releases the gradients.
    origin : (k,) array
        Point to which a fit of pure noise returns; on a support, its entries there.
    clip : float or None
        Clip of the residuals in the fit.
    """

    def __init__(self, mechanism: NoisyGradient, origin: Vector, clip: float | None) -> None:
        self._mechanism, self._origin = mechanism, origin
        self._curvature = Harmonic.of(mechanism.problem, clip).curvature
        self._slopes, self._moves, self._precision = np.zeros_like(origin), np.zeros_like(origin), 0.0
        self._answers, self._early = 0, 0.0  # answers so far; largest entry of the means of the first ones

    def add(self, theta: Vector, gradient: Vector, support: IntVector | None = None) -> None:
        """Add a gradient at theta, on the features of a support if one is given."""
        features = None if support is None else len(support)
        point = theta if support is None else theta[support]
        precision = max(self._mechanism.noise_at(theta, features), EXACT) ** -2
        ridge = self._mechanism.problem.l2 * (point - self._origin)
        self._slopes += precision * (gradient - ridge)
        self._moves += precision * (point - self._origin)
        self._precision += precision
        self._answers += 1
        if self._answers.bit_count() == 1:  # 1, 2, 4, ...
            self._early = max(self._early, float(np.abs(self._units).max()))

    @property
    def _units(self) -> Vector:
        """The mean of g - h (theta - origin), in standard deviations of its noise."""
        units: Vector = (self._slopes - self._curvature * self._moves) / math.sqrt(self._precision)
        return units

    def exceeds_noise(self) -> bool:
        """Whether released gradients show more than noise."""
        count, units = self._origin.size, self._units
        means = 1 + self._answers.bit_length()  # the last one, and those of the first 1, 2, 4, ... answers
        largest = max(self._early, float(np.abs(units).max()))
        squares = float((units**2).sum())
        return squares > count + LEAST_SUM * math.sqrt(2 * count) or largest > _largest_of(means * count)

    def settle(self, theta: Vector, start: Vector, ask: Asking) -> Vector:
        """Return theta; if nothing was found, return the start, with a caution."""
        return theta if self.exceeds_noise() else ask.withdraw(theta, start, NOTHING_FOUND)


def _largest_of(count: int) -> float:
    """Return the level that the largest of `count` absolute standard normal numbers exceeds with CHANCE."""
    from scipy.special import ndtri

    return float(-ndtri(CHANCE / (2 * count)))
