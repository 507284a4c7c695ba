"""Losses of labels: logistic, hinge and sigmoid of -1 and +1, softmax of class codes."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.errors import WrongValue
from dpcvx.losses import slopes
from dpcvx.losses.loss import Link, Loss, TargetKind, check_positive, checked_margin
from dpcvx.vouched import vouched

__all__ = ["BoundedLogistic", "ClippedLogistic", "Logistic", "Sigmoid", "SmoothHinge", "Softmax"]

EDGE = 1e-300  # stands for 0 in a logarithm
BINARY_LABELS = (-1.0, 1.0)
SIGMOID_INFLECTION = math.log(2 + math.sqrt(3))  # where |phi''| of the sigmoid loss peaks, at 1 / (6 sqrt 3)


@vouched("minimisers", "queries")
@dataclass(frozen=True)
class Logistic(Loss):
    """Logistic loss of a label in {-1, +1}.

    phi(z, y) = log(1 + e^(-y z))
    """

    name: ClassVar[str] = "logistic"
    target: ClassVar[TargetKind] = "labels"
    link: ClassVar[Link] = "logit"
    convex: ClassVar[bool] = True
    y_range: ClassVar[tuple[float, float]] = BINARY_LABELS
    dispersion_known: ClassVar[bool] = True
    slope = staticmethod(slopes.logistic_slope)

    def value(self, z: Vector, y: Vector) -> Vector:
        """Return phi(z, y); 0 where the label is missing."""
        return np.where(y == 0, 0.0, np.logaddexp(0.0, -y * z))

    def grad(self, z: Vector, y: Vector) -> Vector:
        """Return -y / (1 + e^(y z))."""
        return -y * _sigmoid(-y * z)

    def lipschitz(self, z_max: float, ord: float = 2) -> float:
        """Return 1 / (1 + e^(-z_max))."""
        return 1.0 / (1.0 + math.exp(-checked_margin(z_max)))

    def smoothness(self, z_max: float) -> float:
        """Return 1/4, the curvature at z = 0."""
        return 0.25

    def least_curvature(self, z_max: Vector) -> Vector:
        """Return the curvature at z_max, where it is least."""
        least: Vector = _sigmoid(z_max) * _sigmoid(-z_max)
        return least

    def clipped(self, limit: float) -> Loss:
        """Return `ClippedLogistic` with this limit."""
        return ClippedLogistic(limit)

    def with_clipped_gradients(self, threshold: float, bend: float) -> Loss:
        """Return `BoundedLogistic`."""
        return BoundedLogistic(threshold, bend * self.smoothness(0.0))


@dataclass(frozen=True)
class BoundedLogistic(Loss):
    """Logistic loss with clipped gradients, for rows x/f with labels y = f or -f, f >= 1.

    phi'(z, y) = -y / (1 + e^(y z)), clipped to [-threshold, threshold], and 0 for a missing label, |y| < 1

    With z = <x/f, theta> the gradient phi'(z, y) x/f is that of the logistic loss of the whole row x, clipped
    to the norm `threshold` where x/f has norm 1: an estimator of bounded influence, as `BoundedInfluence` is
    for squared loss. Long rows count as in logistic regression unless they also contradict the model.

    Parameters
    ----------
    threshold : float
        Largest norm of a gradient, for rows of norm 1.
    curvature_limit : float
        A record's curvature f^2 p (1 - p) is clipped at this size in a released Hessian.
    """

    threshold: float = 1.0
    curvature_limit: float = 0.25

    name: ClassVar[str] = "bounded_logistic"
    target: ClassVar[TargetKind] = "labels"
    link: ClassVar[Link] = "logit"
    convex: ClassVar[bool] = True
    y_range: ClassVar[tuple[float, float]] = BINARY_LABELS
    slope = staticmethod(slopes.bounded_logistic_slope)
    longest: ClassVar[float] = 64.0  # largest f for which the curvature is bounded

    def __post_init__(self) -> None:
        check_positive("BoundedLogistic", "threshold", self.threshold)
        check_positive("BoundedLogistic", "curvature_limit", self.curvature_limit)

    @property
    def parameter(self) -> float:
        """The threshold."""
        return self.threshold

    def value(self, z: Vector, y: Vector) -> Vector:
        """Return phi(z, y); 0 where the label is missing."""
        known, u = np.abs(y) >= 1, y * z
        size = np.where(known, np.abs(y), 1.0)
        # where the slope reaches the threshold, phi goes on as a line
        edge = np.log(np.maximum(size / self.threshold - 1, EDGE))
        inside = np.maximum(u, edge)
        line = np.where(u < edge, self.threshold / size * (edge - u), 0.0)
        return np.where(known, np.logaddexp(0.0, -inside) + line, 0.0)

    def grad(self, z: Vector, y: Vector) -> Vector:
        """Return -y / (1 + e^(y z)), clipped."""
        found = np.clip(-y * _sigmoid(-y * z), -self.threshold, self.threshold)
        return np.where(np.abs(y) >= 1, found, 0.0)

    def lipschitz(self, z_max: float, ord: float = 2) -> float:
        """Return the threshold."""
        return self.threshold

    def smoothness(self, z_max: float) -> float:
        """Return a quarter of the square of the largest f."""
        return self.longest**2 / 4

    def usual_smoothness(self, z_max: float) -> float:
        """Return 1/4: rows are divided by a little more than their root mean square length before."""
        return 0.25

    def largest_curvature(self, z_max: float) -> float:
        """Return `curvature_limit`."""
        return self.curvature_limit

    def clipped(self, limit: float) -> Loss:
        """Return the loss with the smaller threshold."""
        return replace(self, threshold=min(limit, self.threshold))


@vouched("minimisers")
@dataclass(frozen=True)
class ClippedLogistic(Loss):
    """Logistic loss that is linear where its slope would exceed a limit: no record pulls harder than that.

    phi(z, y) = log(1 + e^(-u)) for u >= -t, log(1 + e^t) - limit (u + t) below, with u = y z and
    1/(1 + e^(-t)) = limit

    Parameters
    ----------
    limit : float
        Largest slope, at least 1/2: that of u = 0.
    """

    limit: float

    name: ClassVar[str] = "clipped_logistic"
    target: ClassVar[TargetKind] = "labels"
    link: ClassVar[Link] = "logit"
    convex: ClassVar[bool] = True
    y_range: ClassVar[tuple[float, float]] = BINARY_LABELS
    slope = staticmethod(slopes.clipped_logistic_slope)

    def __post_init__(self) -> None:
        if not 0.5 <= self.limit < 1:
            raise WrongValue(f"ClippedLogistic.limit must be in [0.5, 1), got {self.limit!r}.")

    @property
    def parameter(self) -> float:
        """The limit."""
        return self.limit

    def value(self, z: Vector, y: Vector) -> Vector:
        """Return phi(z, y); 0 where the label is missing."""
        u = y * z
        inside = np.maximum(u, math.log(1 / self.limit - 1))
        return np.where(y == 0, 0.0, np.logaddexp(0.0, -inside) + self.limit * (inside - u))

    def grad(self, z: Vector, y: Vector) -> Vector:
        """Return the slope of logistic loss, at most the limit."""
        return -y * np.minimum(_sigmoid(-y * z), self.limit)

    def lipschitz(self, z_max: float, ord: float = 2) -> float:
        """Return 1 / (1 + e^(-z_max)), or the limit if that is smaller."""
        return min(self.limit, Logistic().lipschitz(z_max, ord))

    def smoothness(self, z_max: float) -> float:
        """Return 1/4, the curvature at z = 0."""
        return 0.25

    def clipped(self, limit: float) -> Loss:
        """Return the loss with the smaller limit."""
        return ClippedLogistic(min(limit, self.limit))


@vouched("minimisers", "queries")
@dataclass(frozen=True)
class SmoothHinge(Loss):
    """Hinge loss of a label in {-1, +1} with its corner replaced by a parabola.

    phi(z, y) = 0 for u <= 0, u^2 / (2 width) for u <= width, u - width / 2 beyond, with u = 1 - y z

    Parameters
    ----------
    width : float
        Width of the parabola; the smoothness is its inverse.
    """

    width: float = 0.5

    name: ClassVar[str] = "smooth_hinge"
    target: ClassVar[TargetKind] = "labels"
    link: ClassVar[Link] = "sign"
    convex: ClassVar[bool] = True
    y_range: ClassVar[tuple[float, float]] = BINARY_LABELS
    slope = staticmethod(slopes.smooth_hinge_slope)

    def __post_init__(self) -> None:
        check_positive("SmoothHinge", "width", self.width)

    @property
    def parameter(self) -> float:
        """The width."""
        return self.width

    def value(self, z: Vector, y: Vector) -> Vector:
        """Return phi(z, y); 0 where the label is missing."""
        gap = 1.0 - y * z
        bent = np.clip(gap, 0.0, self.width)
        return np.where(y == 0, 0.0, bent * (gap - 0.5 * bent) / self.width)

    def grad(self, z: Vector, y: Vector) -> Vector:
        """Return -y times the gap over the width, clipped to [0, 1]."""
        return -y * np.clip(1.0 - y * z, 0.0, self.width) / self.width

    def lipschitz(self, z_max: float, ord: float = 2) -> float:
        """Return 1, or (1 + z_max) / width where the parabola is wider than the margins."""
        return min(1.0, (1.0 + checked_margin(z_max)) / self.width)

    def smoothness(self, z_max: float) -> float:
        """Return 1 / width."""
        return 1.0 / self.width


@vouched("minimisers")
@dataclass(frozen=True)
class Softmax(Loss):
    """Joint multinomial loss of K scores and a class code in 0..K-1.

    phi(z, y) = log(sum_k e^(z_k)) - z_y
    """

    name: ClassVar[str] = "softmax"
    target: ClassVar[TargetKind] = "codes"
    link: ClassVar[Link] = "logit"
    convex: ClassVar[bool] = True
    joint: ClassVar[bool] = True
    y_range: ClassVar[tuple[float, float]] = BINARY_LABELS
    dispersion_known: ClassVar[bool] = True
    slope = staticmethod(slopes.softmax_slope)

    def value(self, z: Vector, y: Vector) -> Vector:
        """Return phi(z, y), shape (m,), for z of shape (m, K); 0 where the code names no class."""
        chosen = _one_hot(z, y)
        z = z - z.max(axis=1, keepdims=True)
        value: Vector = np.log(np.exp(z).sum(axis=1)) - (chosen * z).sum(axis=1)
        return np.where(chosen.any(axis=1), value, 0.0)

    def grad(self, z: Vector, y: Vector) -> Vector:
        """Return softmax(z) - e_y, shape (m, K)."""
        chosen = _one_hot(z, y)
        e = np.exp(z - z.max(axis=1, keepdims=True))
        p: Vector = e / e.sum(axis=1, keepdims=True)
        return (p - chosen) * chosen.any(axis=1, keepdims=True)

    def lipschitz(self, z_max: float, ord: float = 2) -> float:
        """Return 2^(1/ord): p - e_y is at most a probability vector on the other classes, minus e_y."""
        if not ord >= 1:
            raise WrongValue(f"Softmax.lipschitz needs a norm of order >= 1; got ord={ord}.")
        return math.pow(2.0, 1.0 / ord)

    def smoothness(self, z_max: float) -> float:
        """Return 1/2, the norm of diag(p) - p p^T at p = (1/2, 1/2)."""
        return 0.5


@dataclass(frozen=True)
class Sigmoid(Loss):
    """Smooth non-convex stand-in for the 0-1 loss of a label in {-1, +1}.

    phi(z, y) = 1 / (1 + e^(y z))
    """

    name: ClassVar[str] = "sigmoid"
    target: ClassVar[TargetKind] = "labels"
    link: ClassVar[Link] = "sign"
    convex: ClassVar[bool] = False
    y_range: ClassVar[tuple[float, float]] = BINARY_LABELS
    slope = staticmethod(slopes.sigmoid_slope)

    def value(self, z: Vector, y: Vector) -> Vector:
        """Return phi(z, y); 0 where the label is missing."""
        return np.where(y == 0, 0.0, _sigmoid(-y * z))

    def grad(self, z: Vector, y: Vector) -> Vector:
        """Return -y s (1 - s)."""
        return -y * _sigmoid(y * z) * _sigmoid(-y * z)

    def lipschitz(self, z_max: float, ord: float = 2) -> float:
        """Return 1/4, the slope at z = 0."""
        return 0.25

    def smoothness(self, z_max: float) -> float:
        """Return s (1 - s) (1 - 2 s) at the inflection of phi', or at z_max if that is nearer."""
        s = 1.0 / (1.0 + math.exp(min(checked_margin(z_max), SIGMOID_INFLECTION)))
        return s * (1.0 - s) * (1.0 - 2.0 * s)


def _sigmoid(u: Vector) -> Vector:
    """Return 1 / (1 + e^(-u)) without overflow."""
    value: Vector = np.exp(-np.logaddexp(0.0, -u))
    return value


def _one_hot(z: Vector, y: Vector) -> Vector:
    """Return rows e_y, and a row of zeros for a code that names none of z's columns."""
    hot: Vector = np.equal.outer(y, np.arange(z.shape[1])).astype(np.float64)
    return hot
