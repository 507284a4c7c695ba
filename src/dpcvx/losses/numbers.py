"""Losses of numbers: squared, Huber's, pinball and Welsch's."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.errors import WrongValue
from dpcvx.losses import slopes
from dpcvx.losses.loss import Link, Loss, TargetKind, check_positive, check_range, largest_residual
from dpcvx.vouched import vouched

__all__ = ["BoundedInfluence", "Huber", "Quantile", "Squared", "Welsch"]


@vouched("minimisers", "queries")
@dataclass(frozen=True)
class Squared(Loss):
    """Half the squared residual, for regression.

    phi(z, y) = (z - y)^2 / 2

    Parameters
    ----------
    y_range : tuple of float
        Public interval that holds every target.
    """

    y_range: tuple[float, float] = (-1.0, 1.0)

    name: ClassVar[str] = "squared"
    target: ClassVar[TargetKind] = "numbers"
    link: ClassVar[Link] = "identity"
    convex: ClassVar[bool] = True
    affine: ClassVar[bool] = True
    unit_free: ClassVar[bool] = True
    slope = staticmethod(slopes.squared_slope)

    def __post_init__(self) -> None:
        check_range(self.y_range)

    def value(self, z: Vector, y: Vector) -> Vector:
        """Return phi(z, y)."""
        return 0.5 * (z - y) ** 2

    def grad(self, z: Vector, y: Vector) -> Vector:
        """Return z - y."""
        return z - y

    def lipschitz(self, z_max: float, ord: float = 2) -> float:
        """Return the largest residual, z_max + max |y|."""
        return largest_residual(z_max, self.y_range)

    def smoothness(self, z_max: float) -> float:
        """Return 1."""
        return 1.0

    def least_curvature(self, z_max: Vector) -> Vector:
        """Return 1."""
        return 1.0 + 0.0 * z_max

    def clipped(self, limit: float) -> Loss:
        """Return Huber's loss with this threshold."""
        return Huber(limit, self.y_range)


@vouched("minimisers", "queries")
@dataclass(frozen=True)
class Huber(Loss):
    """Squared near the target, linear beyond the threshold: regression that outliers cannot pull far.

    phi(z, y) = r^2 / 2 for |r| <= threshold, threshold (|r| - threshold / 2) beyond, with r = z - y

    Parameters
    ----------
    threshold : float
        Residual at which the loss becomes linear, in the units of the scaled target.
    y_range : tuple of float
        Public interval that holds every target.
    target_deviation : float, optional
        Standard deviation of the targets, where they have been scaled to one. Predictions use it.
    threshold_deviations : float, optional
        Threshold in standard deviations of the target. A fit that measures these takes it in the place of
        ``threshold``.
    """

    threshold: float
    y_range: tuple[float, float] = (-1.0, 1.0)
    target_deviation: float | None = None
    threshold_deviations: float | None = None

    name: ClassVar[str] = "huber"
    target: ClassVar[TargetKind] = "numbers"
    link: ClassVar[Link] = "identity"
    convex: ClassVar[bool] = True
    slope = staticmethod(slopes.huber_slope)

    def __post_init__(self) -> None:
        check_positive("Huber", "threshold", self.threshold)
        check_range(self.y_range)

    @property
    def unit_free(self) -> bool:
        """Whether the threshold is relative to the target's standard deviation."""
        return self.threshold_deviations is not None

    @property
    def parameter(self) -> float:
        """The threshold."""
        return self.threshold

    def value(self, z: Vector, y: Vector) -> Vector:
        """Return phi(z, y)."""
        # With c the clipped residual both branches read c (r - c / 2).
        c = self.grad(z, y)
        return c * (z - y - 0.5 * c)

    def grad(self, z: Vector, y: Vector) -> Vector:
        """Return the clipped residual."""
        return np.clip(z - y, -self.threshold, self.threshold)

    def lipschitz(self, z_max: float, ord: float = 2) -> float:
        """Return the threshold, or the largest residual if that is smaller."""
        return min(self.threshold, largest_residual(z_max, self.y_range))

    def smoothness(self, z_max: float) -> float:
        """Return 1."""
        return 1.0

    def with_clipped_gradients(self, threshold: float, bend: float) -> Loss:
        """Return the loss that clips gradients, not residuals, at the smaller threshold."""
        least = min(threshold, self.threshold)
        return BoundedInfluence(least, self.y_range, self.target_deviation, bend)

    def clipped(self, limit: float) -> Loss:
        """Return the loss with the smaller threshold."""
        return replace(self, threshold=min(limit, self.threshold))


@dataclass(frozen=True)
class BoundedInfluence(Loss):
    """Squared loss with clipped gradients, not residuals, for rows and targets that are divided by f.

    phi'(z, y) = clip(f^2 (z - t), -threshold, threshold), y = t + 4096 k, f = 1 + k/16

    Let a record with features x and target s be stored as x/f, of norm 1, and t = s/f. Its gradient
    f^2 (<x/f, theta> - t) x/f is that of the squared loss of (x, s), clipped to the norm `threshold`: an
    estimator of bounded influence (Krasker and Welsch 1982). Far records count as in least squares unless
    their residuals are large too, and residuals of records near the mean of the features are clipped at a
    larger size. `pack` stores f, on a grid, and the target in one number; a target without a code has f = 1,
    and the loss is Huber's.

    Parameters
    ----------
    threshold : float
        Largest norm of a gradient, for rows of norm 1.
    y_range : tuple of float
        Public interval of the targets; slopes are bounded outside of it too.
    target_deviation : float, optional
        Standard deviation of the targets, where they have been scaled to one. Predictions use it.
    curvature_limit : float
        A record's curvature f^2 is clipped at this size in a released Hessian.
    """

    threshold: float
    y_range: tuple[float, float] = (-1.0, 1.0)
    target_deviation: float | None = None
    curvature_limit: float = 1.0

    name: ClassVar[str] = "bounded_influence"
    target: ClassVar[TargetKind] = "numbers"
    link: ClassVar[Link] = "identity"
    convex: ClassVar[bool] = True
    slope = staticmethod(slopes.bounded_influence_slope)
    shortest: ClassVar[float] = 0.25  # smallest f
    longest: ClassVar[float] = 64.0  # largest f

    def __post_init__(self) -> None:
        check_positive("BoundedInfluence", "threshold", self.threshold)
        check_positive("BoundedInfluence", "curvature_limit", self.curvature_limit)
        check_range(self.y_range)

    @property
    def parameter(self) -> float:
        """The threshold."""
        return self.threshold

    @classmethod
    def lengths(cls, norms: Vector) -> Vector:
        """Return for each norm the smallest f on the grid that is at least as large, or the largest f."""
        found: Vector = np.clip(np.ceil(slopes.LENGTHS * norms) / slopes.LENGTHS, cls.shortest, cls.longest)
        return found

    @staticmethod
    def pack(targets: Vector, f: Vector) -> Vector:
        """Return one number for each target and f; targets beyond a quarter of 4096 are clipped."""
        largest = slopes.PACKING / 4
        packed: Vector = np.clip(targets, -largest, largest) + slopes.PACKING * slopes.LENGTHS * (f - 1)
        return packed

    @staticmethod
    def unpack(y: Vector) -> tuple[Vector, Vector]:
        """Return the targets and f of packed numbers."""
        k = np.rint(y / slopes.PACKING)
        return y - slopes.PACKING * k, 1 + k / slopes.LENGTHS

    def value(self, z: Vector, y: Vector) -> Vector:
        """Return phi(z, y)."""
        t, f = self.unpack(y)
        c = self.grad(z, y)
        return c * (z - t - 0.5 * c / f**2)

    def grad(self, z: Vector, y: Vector) -> Vector:
        """Return the clipped slope."""
        t, f = self.unpack(y)
        return np.clip(f**2 * (z - t), -self.threshold, self.threshold)

    def lipschitz(self, z_max: float, ord: float = 2) -> float:
        """Return the threshold."""
        return self.threshold

    def smoothness(self, z_max: float) -> float:
        """Return the square of the largest f."""
        return self.longest**2

    def usual_smoothness(self, z_max: float) -> float:
        """Return 1: rows are first divided by a little more than their root mean square length, then by f."""
        return 1.0

    def largest_curvature(self, z_max: float) -> float:
        """Return `curvature_limit`."""
        return self.curvature_limit

    def clipped(self, limit: float) -> Loss:
        """Return the loss with the smaller threshold."""
        return replace(self, threshold=min(limit, self.threshold))


@vouched("queries")
@dataclass(frozen=True)
class Quantile(Loss):
    """Pinball loss, whose minimiser is a conditional quantile.

    phi(z, y) = q max(y - z, 0) + (1 - q) max(z - y, 0), with subgradient 0 at z = y

    Parameters
    ----------
    quantile : float
        The quantile q, strictly between 0 and 1.
    y_range : tuple of float
        Public interval that holds every target.
    """

    quantile: float
    y_range: tuple[float, float] = (-1.0, 1.0)

    name: ClassVar[str] = "quantile"
    target: ClassVar[TargetKind] = "numbers"
    link: ClassVar[Link] = "identity"
    convex: ClassVar[bool] = True
    unit_free: ClassVar[bool] = True
    slope = staticmethod(slopes.quantile_slope)

    def __post_init__(self) -> None:
        if not 0 < self.quantile < 1:
            raise WrongValue(f"Quantile needs 0 < quantile < 1; got {self.quantile}. Use 0.5 for the median.")
        check_range(self.y_range)

    @property
    def parameter(self) -> float:
        """The quantile."""
        return self.quantile

    def value(self, z: Vector, y: Vector) -> Vector:
        """Return phi(z, y)."""
        return np.maximum(self.quantile * (y - z), (1.0 - self.quantile) * (z - y))

    def grad(self, z: Vector, y: Vector) -> Vector:
        """Return -q below the target, 1 - q above it, and 0 on it."""
        return np.where(z < y, -self.quantile, np.where(z > y, 1.0 - self.quantile, 0.0))

    def lipschitz(self, z_max: float, ord: float = 2) -> float:
        """Return max(q, 1 - q)."""
        return max(self.quantile, 1.0 - self.quantile)

    def smoothness(self, z_max: float) -> float:
        """Return infinity: the loss has a corner."""
        return math.inf


@dataclass(frozen=True)
class Welsch(Loss):
    """Smooth non-convex regression loss that ignores far outliers.

    phi(z, y) = (scale^2 / 2) (1 - e^(-(z - y)^2 / scale^2))

    Parameters
    ----------
    scale : float
        Residual at which the loss starts to level off.
    y_range : tuple of float
        Public interval that holds every target.
    """

    scale: float
    y_range: tuple[float, float] = (-1.0, 1.0)

    name: ClassVar[str] = "welsch"
    target: ClassVar[TargetKind] = "numbers"
    link: ClassVar[Link] = "identity"
    convex: ClassVar[bool] = False
    slope = staticmethod(slopes.welsch_slope)

    def __post_init__(self) -> None:
        check_positive("Welsch", "scale", self.scale)
        check_range(self.y_range)

    @property
    def parameter(self) -> float:
        """The scale."""
        return self.scale

    def value(self, z: Vector, y: Vector) -> Vector:
        """Return phi(z, y)."""
        return -0.5 * self.scale**2 * np.expm1(-(((z - y) / self.scale) ** 2))

    def grad(self, z: Vector, y: Vector) -> Vector:
        """Return r e^(-r^2 / scale^2)."""
        return (z - y) * np.exp(-(((z - y) / self.scale) ** 2))

    def lipschitz(self, z_max: float, ord: float = 2) -> float:
        """Return the slope at r = scale / sqrt 2, its peak, or at the largest residual if that is smaller."""
        r = min(largest_residual(z_max, self.y_range), self.scale / math.sqrt(2))
        return r * math.exp(-((r / self.scale) ** 2))

    def smoothness(self, z_max: float) -> float:
        """Return 1, the curvature at r = 0; the most negative one is -2 e^(-3/2)."""
        return 1.0
