"""Losses of means: counts and amounts by their logarithm, and fractions by their log-odds.

They are the negative log-likelihoods of Poisson, gamma and Bernoulli laws as functions of the mean alone. If
the model of the mean is right, their minimiser is right whatever the law of the target (quasi-likelihood),
and robust standard errors hold: counts may be overdispersed, amounts need not be gamma, and fractions need
not be 0 or 1.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.errors import WrongValue
from dpcvx.losses import slopes
from dpcvx.losses.loss import (
    DevianceLoss,
    Link,
    Loss,
    TargetKind,
    check_positive,
    check_range,
    checked_margin,
)
from dpcvx.vouched import vouched

__all__ = ["FractionalLogit", "LogGamma", "LogPoisson"]

FARTHEST_SCORE = 30.0  # means beyond e^30 or e^-30 count as these in sums of deviances
SMALLEST_RATIO = 5e-324  # of a positive target and its mean


@dataclass(frozen=True)
class LogPoisson(DevianceLoss):
    """Poisson loss of a count or an amount whose mean is e^z, linear where its slope would exceed a limit.

    phi'(z, y) = min(e^z, 3) - y, clipped to [-limit, limit]; phi(z, y) = e^z - y z where nothing is clipped

    The slope rises with z, so the loss is convex. A mean above 3 counts as 3, which bounds the curvature: a
    fit scales targets so that means are seldom larger.

    Parameters
    ----------
    limit : float
        Largest slope, in the units of the scaled target.
    y_range : tuple of float
        Public interval that holds every target, its lower end 0.
    offset : bool
        Whether every record has an offset of its score, at most 0: the logarithm of its exposure over the
        largest one.
    """

    limit: float = 1.0
    y_range: tuple[float, float] = (0.0, 1.0)
    offset: bool = False

    name: ClassVar[str] = "log_poisson"
    target: ClassVar[TargetKind] = "amounts"
    link: ClassVar[Link] = "log"
    convex: ClassVar[bool] = True
    unit_free: ClassVar[bool] = True
    variance_power: ClassVar[float] = 1.0
    usual_target: ClassVar[float] = 0.4
    slope = staticmethod(slopes.log_poisson_slope)

    def __post_init__(self) -> None:
        check_positive("LogPoisson", "limit", self.limit)
        check_range(self.y_range)

    @property
    def parameter(self) -> float:
        """The limit."""
        return self.limit

    def value(self, z: Vector, y: Vector) -> Vector:
        """Return phi(z, y)."""
        highest = np.log(np.minimum(y + self.limit, slopes.LARGEST_MEAN))
        with np.errstate(divide="ignore"):
            lowest = np.minimum(np.log(np.maximum(y - self.limit, 0.0)), highest)
        inside = np.clip(z, lowest, highest)
        return np.exp(inside) - y * inside + self.grad(z, y) * (z - inside)

    def grad(self, z: Vector, y: Vector) -> Vector:
        """Return min(e^z, 3) - y, clipped."""
        mean = np.exp(np.minimum(z, math.log(slopes.LARGEST_MEAN)))
        return np.clip(mean - y, -self.limit, self.limit)

    def lipschitz(self, z_max: float, ord: float = 2) -> float:
        """Return the limit, or the larger slope of the two ends if that is smaller."""
        low, high = self.y_range
        above = min(math.exp(min(checked_margin(z_max), 2.0)), slopes.LARGEST_MEAN) - low
        return min(self.limit, max(above, high - (0.0 if self.offset else math.exp(-z_max))))

    def smoothness(self, z_max: float) -> float:
        """Return the largest mean at which a slope is not clipped: min(e^z_max, 3, y + limit)."""
        largest = min(math.exp(min(checked_margin(z_max), 2.0)), slopes.LARGEST_MEAN)
        return min(largest, self.y_range[1] + self.limit)

    def largest_curvature(self, z_max: float) -> float:
        """Return 1, if that is smaller: few means are larger in the units of a fit."""
        return min(1.0, self.smoothness(z_max))

    def clipped(self, limit: float) -> Loss:
        """Return the loss with the smaller limit."""
        return replace(self, limit=min(limit, self.limit))

    def mean(self, z: Vector) -> Vector:
        """Return e^z."""
        return np.exp(np.clip(z, -FARTHEST_SCORE, FARTHEST_SCORE))

    def outcome(self, y: Vector) -> Vector:
        """Return the amounts, within their range."""
        return np.clip(y, *self.y_range)

    def deviance(self, outcome: Vector, mean: Vector) -> Vector:
        """Return 2 (y log(y/mean) - y + mean)."""
        positive = outcome > 0
        # A quotient of the smallest numbers is 0, whose logarithm would warn.
        ratio = np.maximum(np.where(positive, outcome, mean) / mean, SMALLEST_RATIO)
        return 2 * (np.where(positive, outcome, 0.0) * np.log(ratio) - outcome + mean)


@dataclass(frozen=True)
class LogGamma(DevianceLoss):
    """Gamma loss of an amount whose mean is e^z, linear where its slope would exceed a limit.

    phi'(z, y) = 1 - y e^(-z), clipped to [-limit, limit]; phi(z, y) = z + y e^(-z) where nothing is clipped

    The slope is the error relative to the mean. It rises with z, so the loss is convex.

    Parameters
    ----------
    limit : float
        Largest slope, as a multiple of the mean; at least 1, that of the target 0.
    y_range : tuple of float
        Public interval that holds every target, its lower end 0 or more.
    """

    limit: float = 1.0
    y_range: tuple[float, float] = (0.0, 1.0)

    name: ClassVar[str] = "log_gamma"
    target: ClassVar[TargetKind] = "amounts"
    link: ClassVar[Link] = "log"
    convex: ClassVar[bool] = True
    unit_free: ClassVar[bool] = True
    variance_power: ClassVar[float] = 2.0
    usual_target: ClassVar[float] = 1.0
    slope = staticmethod(slopes.log_gamma_slope)

    def __post_init__(self) -> None:
        if not 1 <= self.limit < math.inf:
            raise WrongValue(f"LogGamma needs a finite limit >= 1; got limit={self.limit}.")
        check_range(self.y_range)

    @property
    def parameter(self) -> float:
        """The limit."""
        return self.limit

    def value(self, z: Vector, y: Vector) -> Vector:
        """Return phi(z, y)."""
        with np.errstate(divide="ignore"):
            lowest = np.log(y / (1.0 + self.limit))
        inside = np.maximum(z, lowest)
        return inside + y * np.exp(np.minimum(-inside, 700.0)) + self.grad(z, y) * (z - inside)

    def grad(self, z: Vector, y: Vector) -> Vector:
        """Return 1 - y e^(-z), clipped."""
        return np.clip(1.0 - y * np.exp(np.minimum(-z, 700.0)), -self.limit, self.limit)

    def lipschitz(self, z_max: float, ord: float = 2) -> float:
        """Return the limit, or the larger slope of the two ends if that is smaller."""
        z = min(checked_margin(z_max), 700.0)
        return min(self.limit, max(1.0 - self.y_range[0] * math.exp(-z), self.y_range[1] * math.exp(z) - 1.0))

    def smoothness(self, z_max: float) -> float:
        """Return the largest ratio of target and mean at which a slope is not clipped."""
        return min(self.y_range[1] * math.exp(min(checked_margin(z_max), 700.0)), 1.0 + self.limit)

    def largest_curvature(self, z_max: float) -> float:
        """Return 2, if that is smaller: the curvature is the target over its mean."""
        return min(2.0, self.smoothness(z_max))

    def mean(self, z: Vector) -> Vector:
        """Return e^z."""
        return np.exp(np.clip(z, -FARTHEST_SCORE, FARTHEST_SCORE))

    def outcome(self, y: Vector) -> Vector:
        """Return the amounts, within their range."""
        return np.clip(y, *self.y_range)

    def deviance(self, outcome: Vector, mean: Vector) -> Vector:
        """Return 2 (y/mean - 1 - log(y/mean)); infinite for 0."""
        ratio = outcome / mean
        with np.errstate(divide="ignore"):
            return 2 * (ratio - 1 - np.log(ratio))


@vouched("minimisers")
@dataclass(frozen=True)
class FractionalLogit(DevianceLoss):
    """Bernoulli loss of a share t = (1 + y)/2 in [0, 1], with y in [-1, 1]; logistic loss for y = -1 and 1.

    phi'(z, y) = 1 / (1 + e^(-z)) - t, clipped to [-limit, limit]; phi(z, y) = log(1 + e^z) - t z where
    nothing is clipped

    Parameters
    ----------
    limit : float
        Largest slope, in (0, 1]; 1 clips nothing.
    y_range : tuple of float
        Public interval that holds every target, inside [-1, 1].
    """

    limit: float = 1.0
    y_range: tuple[float, float] = (-1.0, 1.0)

    name: ClassVar[str] = "fractional_logit"
    target: ClassVar[TargetKind] = "shares"
    link: ClassVar[Link] = "logit"
    convex: ClassVar[bool] = True
    unit_free: ClassVar[bool] = True
    slope = staticmethod(slopes.fractional_logit_slope)

    def __post_init__(self) -> None:
        if not 0 < self.limit <= 1:
            raise WrongValue(f"FractionalLogit needs a limit in (0, 1]; got limit={self.limit}.")
        check_range(self.y_range)

    @property
    def parameter(self) -> float:
        """The limit."""
        return self.limit

    def value(self, z: Vector, y: Vector) -> Vector:
        """Return phi(z, y)."""
        t = 0.5 * (1.0 + y)
        lowest, highest = np.maximum(t - self.limit, 0.0), np.minimum(t + self.limit, 1.0)
        with np.errstate(divide="ignore"):
            inside = np.clip(z, np.log(lowest / (1.0 - lowest)), np.log(highest / (1.0 - highest)))
        return np.logaddexp(0.0, inside) - t * inside + self.grad(z, y) * (z - inside)

    def grad(self, z: Vector, y: Vector) -> Vector:
        """Return 1 / (1 + e^(-z)) - t, clipped."""
        return np.clip(np.exp(-np.logaddexp(0.0, -z)) - 0.5 * (1.0 + y), -self.limit, self.limit)

    def lipschitz(self, z_max: float, ord: float = 2) -> float:
        """Return the limit, or the larger slope of the two ends if that is smaller."""
        highest = 1.0 / (1.0 + math.exp(-min(checked_margin(z_max), 700.0)))
        low, high = ((1.0 + y) / 2.0 for y in self.y_range)
        return min(self.limit, max(highest - low, high - (1.0 - highest)))

    def smoothness(self, z_max: float) -> float:
        """Return 1/4, the curvature at z = 0."""
        return 0.25

    def clipped(self, limit: float) -> Loss:
        """Return the loss with the smaller limit."""
        return replace(self, limit=min(limit, self.limit))

    def mean(self, z: Vector) -> Vector:
        """Return 1 / (1 + e^(-z))."""
        return np.exp(-np.logaddexp(0.0, -np.clip(z, -FARTHEST_SCORE, FARTHEST_SCORE)))

    def outcome(self, y: Vector) -> Vector:
        """Return the shares."""
        return 0.5 * (1.0 + np.clip(y, *self.y_range))

    def deviance(self, outcome: Vector, mean: Vector) -> Vector:
        """Return 2 (t log(t/mean) + (1 - t) log((1 - t)/(1 - mean)))."""
        parts = ((outcome, mean), (1.0 - outcome, 1.0 - mean))
        with np.errstate(divide="ignore", invalid="ignore"):
            first, second = (np.where(t > 0, t * np.log(t / m), 0.0) for t, m in parts)
        return 2 * (first + second)
