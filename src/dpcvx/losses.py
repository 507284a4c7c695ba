"""Losses phi(z, y) of the score z = <x, theta>, with their derivative and its public constants.

Every loss carries its derivative twice: `grad` for whole arrays, and `slope` for one record. Slopes are plain
functions of +, -, *, / and comparisons, because those are the operations that every compiler and every device
rounds alike; the data plane compiles them, with the `exp_basic` they call, and gives the same bits on all.

A record whose label is missing or undeclared has y = 0 under a binary loss, and a code outside 0..K-1 under
softmax. It has value 0 and slope exactly 0. The constants are suprema over |z| <= z_max and y in `y_range`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from dpcvx.arrays import Vector

BINARY_LABELS = (-1.0, 1.0)
SIGMOID_INFLECTION = math.log(2 + math.sqrt(3))  # where |phi''| of the sigmoid loss peaks, at 1 / (6 sqrt 3)


class Loss(Protocol):
    """A loss phi(z, y) of one record's score z and target y."""

    @property
    def name(self) -> str:
        """The word that stands for the loss in plans, statements and saved models."""

    @property
    def convex(self) -> bool:
        """Whether phi(., y) is convex for every y."""

    @property
    def joint(self) -> bool:
        """Whether phi takes the K scores of a record together; otherwise outputs add up independently."""

    @property
    def y_range(self) -> tuple[float, float]:
        """The public interval that holds every target."""

    @property
    def parameter(self) -> float:
        """The number handed to `slope` as its third argument; 0 where the loss has none."""

    @property
    def slope(self) -> Callable[..., Any]:
        """d phi/dz of one record: slope(z, y, a) -> float, or slope(z, y, a, out) -> None for K scores."""

    def value(self, z: Vector, y: Vector) -> Vector:
        """Return phi(z, y), shape (m,), for scores of shape (m,) or (m, K)."""

    def grad(self, z: Vector, y: Vector) -> Vector:
        """Return d phi/dz in the shape of z."""

    def lipschitz(self, z_max: float, ord: float = 2) -> float:
        """Return the supremum of the ord-norm of d phi/dz over |z| <= z_max."""

    def smoothness(self, z_max: float) -> float:
        """Return the supremum of |phi''| (for several scores, of the Hessian's norm); inf if not smooth."""


def exp_basic(x: float) -> float:
    """Return e^x for x clamped to [-40, 40], within 1e-12 relatively, from basic operations only.

    e^x = (e^(x/1024))^1024: a Taylor polynomial of degree 7 where |x/1024| <= 0.04, then ten squarings.
    """
    if x > 40.0:
        x = 40.0
    if x < -40.0:
        x = -40.0
    t = x / 1024.0
    p = 1.0 + t / 7.0
    p = 1.0 + p * t / 6.0
    p = 1.0 + p * t / 5.0
    p = 1.0 + p * t / 4.0
    p = 1.0 + p * t / 3.0
    p = 1.0 + p * t / 2.0
    p = 1.0 + p * t
    for _ in range(10):
        p = p * p
    return p


def squared_slope(z: float, y: float, a: float) -> float:
    """Return z - y."""
    return z - y


def logistic_slope(z: float, y: float, a: float) -> float:
    """Return -y / (1 + e^(y z))."""
    return -y / (1.0 + exp_basic(y * z))


def clipped_logistic_slope(z: float, y: float, a: float) -> float:
    """Return -y times 1 / (1 + e^(y z)), at most a."""
    s = 1.0 / (1.0 + exp_basic(y * z))
    if s > a:
        return -y * a
    return -y * s


def huber_slope(z: float, y: float, a: float) -> float:
    """Return z - y clipped to [-a, a]."""
    r = z - y
    if r > a:
        return a
    if r < -a:
        return -a
    return r


def smooth_hinge_slope(z: float, y: float, a: float) -> float:
    """Return -y times (1 - y z) / a clipped to [0, 1]."""
    gap = 1.0 - y * z
    if gap <= 0.0:
        return 0.0
    if gap >= a:
        return -y
    return -y * gap / a


def quantile_slope(z: float, y: float, a: float) -> float:
    """Return -a below the target, 1 - a above it, and 0 on it."""
    if z < y:
        return -a
    if z > y:
        return 1.0 - a
    return 0.0


def softmax_slope(z: Vector, y: float, a: float, out: Vector) -> None:
    """Write softmax(z) - e_y into `out`, or zeros when no class has the code y."""
    outputs = z.shape[0]
    known = False
    top = z[0]
    for k in range(outputs):
        if z[k] > top:
            top = z[k]
        if y == k:
            known = True
    total = 0.0
    for k in range(outputs):
        out[k] = exp_basic(z[k] - top)
        total += out[k]
    for k in range(outputs):
        if not known:
            out[k] = 0.0
        elif y == k:
            # 1 - p_k from the other terms would be closer to the truth; the residual's grid is far coarser.
            out[k] = out[k] / total - 1.0
        else:
            out[k] = out[k] / total


def sigmoid_slope(z: float, y: float, a: float) -> float:
    """Return -y s (1 - s) with s = 1 / (1 + e^(y z))."""
    e = exp_basic(y * z)
    return -y * e / ((1.0 + e) * (1.0 + e))


def welsch_slope(z: float, y: float, a: float) -> float:
    """Return r e^(-r^2 / a^2) with r = z - y."""
    r = z - y
    return r * exp_basic(-(r / a) * (r / a))


@dataclass(frozen=True)
class Squared:
    """Half the squared residual, for regression.

    phi(z, y) = (z - y)^2 / 2

    Parameters
    ----------
    y_range : tuple of float
        Public interval that holds every target.
    """

    y_range: tuple[float, float] = (-1.0, 1.0)

    name: ClassVar[str] = "squared"
    convex: ClassVar[bool] = True
    joint: ClassVar[bool] = False
    parameter: ClassVar[float] = 0.0
    slope = staticmethod(squared_slope)

    def __post_init__(self) -> None:
        _check_range(self.y_range)

    def value(self, z: Vector, y: Vector) -> Vector:
        """Return phi(z, y)."""
        return 0.5 * (z - y) ** 2

    def grad(self, z: Vector, y: Vector) -> Vector:
        """Return z - y."""
        return z - y

    def lipschitz(self, z_max: float, ord: float = 2) -> float:
        """Return the largest residual, z_max + max |y|."""
        return _largest_residual(z_max, self.y_range)

    def smoothness(self, z_max: float) -> float:
        """Return 1."""
        return 1.0


@dataclass(frozen=True)
class Logistic:
    """Logistic loss of a label in {-1, +1}.

    phi(z, y) = log(1 + e^(-y z))
    """

    name: ClassVar[str] = "logistic"
    convex: ClassVar[bool] = True
    joint: ClassVar[bool] = False
    y_range: ClassVar[tuple[float, float]] = BINARY_LABELS
    parameter: ClassVar[float] = 0.0
    slope = staticmethod(logistic_slope)

    def value(self, z: Vector, y: Vector) -> Vector:
        """Return phi(z, y); 0 where the label is missing."""
        return np.where(y == 0, 0.0, np.logaddexp(0.0, -y * z))

    def grad(self, z: Vector, y: Vector) -> Vector:
        """Return -y / (1 + e^(y z))."""
        return -y * _sigmoid(-y * z)

    def lipschitz(self, z_max: float, ord: float = 2) -> float:
        """Return 1 / (1 + e^(-z_max))."""
        return 1.0 / (1.0 + math.exp(-_margin(z_max)))

    def smoothness(self, z_max: float) -> float:
        """Return 1/4, the curvature at z = 0."""
        return 0.25


@dataclass(frozen=True)
class ClippedLogistic:
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
    convex: ClassVar[bool] = True
    joint: ClassVar[bool] = False
    y_range: ClassVar[tuple[float, float]] = BINARY_LABELS
    slope = staticmethod(clipped_logistic_slope)

    def __post_init__(self) -> None:
        if not 0.5 <= self.limit < 1:
            raise ValueError(f"ClippedLogistic.limit must be in [0.5, 1), got {self.limit!r}.")

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


@dataclass(frozen=True)
class Huber:
    """Squared near the target, linear beyond the threshold: regression that outliers cannot pull far.

    phi(z, y) = r^2 / 2 for |r| <= threshold, threshold (|r| - threshold / 2) beyond, with r = z - y

    Parameters
    ----------
    threshold : float
        Residual at which the loss becomes linear, in the units of the scaled target.
    y_range : tuple of float
        Public interval that holds every target.
    """

    threshold: float
    y_range: tuple[float, float] = (-1.0, 1.0)

    name: ClassVar[str] = "huber"
    convex: ClassVar[bool] = True
    joint: ClassVar[bool] = False
    slope = staticmethod(huber_slope)

    def __post_init__(self) -> None:
        _check_positive("Huber", "threshold", self.threshold)
        _check_range(self.y_range)

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
        return min(self.threshold, _largest_residual(z_max, self.y_range))

    def smoothness(self, z_max: float) -> float:
        """Return 1."""
        return 1.0


@dataclass(frozen=True)
class SmoothHinge:
    """Hinge loss of a label in {-1, +1} with its corner replaced by a parabola.

    phi(z, y) = 0 for u <= 0, u^2 / (2 width) for u <= width, u - width / 2 beyond, with u = 1 - y z

    Parameters
    ----------
    width : float
        Width of the parabola; the smoothness is its inverse.
    """

    width: float = 0.5

    name: ClassVar[str] = "smooth_hinge"
    convex: ClassVar[bool] = True
    joint: ClassVar[bool] = False
    y_range: ClassVar[tuple[float, float]] = BINARY_LABELS
    slope = staticmethod(smooth_hinge_slope)

    def __post_init__(self) -> None:
        _check_positive("SmoothHinge", "width", self.width)

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
        return min(1.0, (1.0 + _margin(z_max)) / self.width)

    def smoothness(self, z_max: float) -> float:
        """Return 1 / width."""
        return 1.0 / self.width


@dataclass(frozen=True)
class Quantile:
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
    convex: ClassVar[bool] = True
    joint: ClassVar[bool] = False
    slope = staticmethod(quantile_slope)

    def __post_init__(self) -> None:
        if not 0 < self.quantile < 1:
            raise ValueError(f"Quantile needs 0 < quantile < 1; got {self.quantile}. Use 0.5 for the median.")
        _check_range(self.y_range)

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
class Softmax:
    """Joint multinomial loss of K scores and a class code in 0..K-1.

    phi(z, y) = log(sum_k e^(z_k)) - z_y
    """

    name: ClassVar[str] = "softmax"
    convex: ClassVar[bool] = True
    joint: ClassVar[bool] = True
    y_range: ClassVar[tuple[float, float]] = BINARY_LABELS
    parameter: ClassVar[float] = 0.0
    slope = staticmethod(softmax_slope)

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
            raise ValueError(f"Softmax.lipschitz needs a norm of order >= 1; got ord={ord}.")
        return math.pow(2.0, 1.0 / ord)

    def smoothness(self, z_max: float) -> float:
        """Return 1/2, the norm of diag(p) - p p^T at p = (1/2, 1/2)."""
        return 0.5


@dataclass(frozen=True)
class Sigmoid:
    """Smooth non-convex stand-in for the 0-1 loss of a label in {-1, +1}.

    phi(z, y) = 1 / (1 + e^(y z))
    """

    name: ClassVar[str] = "sigmoid"
    convex: ClassVar[bool] = False
    joint: ClassVar[bool] = False
    y_range: ClassVar[tuple[float, float]] = BINARY_LABELS
    parameter: ClassVar[float] = 0.0
    slope = staticmethod(sigmoid_slope)

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
        s = 1.0 / (1.0 + math.exp(min(_margin(z_max), SIGMOID_INFLECTION)))
        return s * (1.0 - s) * (1.0 - 2.0 * s)


@dataclass(frozen=True)
class Welsch:
    """Smooth non-convex regression loss that forgets far outliers.

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
    convex: ClassVar[bool] = False
    joint: ClassVar[bool] = False
    slope = staticmethod(welsch_slope)

    def __post_init__(self) -> None:
        _check_positive("Welsch", "scale", self.scale)
        _check_range(self.y_range)

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
        r = min(_largest_residual(z_max, self.y_range), self.scale / math.sqrt(2))
        return r * math.exp(-((r / self.scale) ** 2))

    def smoothness(self, z_max: float) -> float:
        """Return 1, the curvature at r = 0; the most negative one is -2 e^(-3/2)."""
        return 1.0


def _sigmoid(u: Vector) -> Vector:
    """Return 1 / (1 + e^(-u)) without overflow."""
    value: Vector = np.exp(-np.logaddexp(0.0, -u))
    return value


def _one_hot(z: Vector, y: Vector) -> Vector:
    """Return rows e_y, and a row of zeros for a code that names none of z's columns."""
    hot: Vector = np.equal.outer(y, np.arange(z.shape[1])).astype(np.float64)
    return hot


def _margin(z_max: float) -> float:
    """Return z_max after checking that it bounds an absolute value."""
    if not z_max >= 0:
        raise ValueError(f"z_max bounds |<x, theta>| and must be >= 0; got {z_max}.")
    return z_max


def _largest_residual(z_max: float, y_range: tuple[float, float]) -> float:
    """Return max |z - y|."""
    return _margin(z_max) + max(abs(y_range[0]), abs(y_range[1]))


def _check_positive(owner: str, field: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ValueError(f"{owner} needs a finite {field} > 0; got {field}={value}.")


def _check_range(y_range: tuple[float, float]) -> None:
    low, high = y_range
    if not -math.inf < low <= high < math.inf:
        raise ValueError(f"y_range must be a finite pair (low, high) with low <= high; got {y_range}.")
