"""The protocol of a loss, and the checks that losses share."""

import math
from collections.abc import Callable
from typing import Any, Literal, Protocol

from dpcvx.arrays import Vector
from dpcvx.errors import WrongValue

# labels: -1 or +1, 0 where there is none. codes: 0..K-1. numbers: scaled to an interval about 0, y_range is
# a field. amounts: numbers >= 0 that are scaled but never centred, y_range = (0, high) is a field. shares:
# numbers in [0, 1], mapped to [-1, 1].
TargetKind = Literal["labels", "codes", "numbers", "amounts", "shares"]
# Meaning of a score: the target itself, its log-odds, its logarithm, or a number of which the sign counts.
Link = Literal["identity", "logit", "log", "sign"]


class Loss(Protocol):
    """A loss phi(z, y) of one record's score z and target y.

    Classes that inherit from it need not repeat the facts that hold for most losses.
    """

    @property
    def name(self) -> str:
        """The word that stands for the loss in plans, statements and saved models."""
        ...

    @property
    def target(self) -> TargetKind:
        """Kind of the target y: "labels", "codes", "numbers", "amounts" or "shares"."""
        ...

    @property
    def link(self) -> Link:
        """Meaning of a score: "identity", "logit", "log" or "sign"."""
        ...

    @property
    def convex(self) -> bool:
        """Whether phi(., y) is convex for every y."""
        ...

    @property
    def joint(self) -> bool:
        """Whether phi takes the K scores of a record together; otherwise outputs add up independently."""
        return False

    @property
    def affine(self) -> bool:
        """Whether phi' is z - y: the minimiser is that of a quadratic function."""
        return False

    @property
    def unit_free(self) -> bool:
        """Whether the minimiser shifts and scales with the targets, so that they may be standardised."""
        return False

    @property
    def offset(self) -> bool:
        """Whether each record has an offset, at most 0, that is added to its score."""
        return False

    @property
    def variance_power(self) -> float:
        """The variance of a target is the dispersion times this power of its mean, if the model is right."""
        return 0.0

    @property
    def usual_target(self) -> float:
        """A usual target, at which predictions of risk take the curvature."""
        return self.y_range[1] if self.target == "labels" else 0.0

    @property
    def dispersion_known(self) -> bool:
        """Whether phi is a log-likelihood without scale: the covariance of a gradient is its Hessian."""
        return False

    @property
    def y_range(self) -> tuple[float, float]:
        """The public interval that holds every target."""
        ...

    @property
    def target_deviation(self) -> float | None:
        """Standard deviation of the targets, where a fit has scaled them to one; None where unknown."""
        return None

    @property
    def threshold_deviations(self) -> float | None:
        """Threshold in standard deviations of the target, for a fit that measures these; None for none."""
        return None

    @property
    def parameter(self) -> float:
        """The number handed to `slope` as its third argument; 0 where the loss has none."""
        return 0.0

    @property
    def slope(self) -> Callable[..., Any]:
        """d phi/dz of one record: slope(z, y, a) -> float, or slope(z, y, a, out) -> None for K scores."""
        ...

    def value(self, z: Vector, y: Vector) -> Vector:
        """Return phi(z, y), shape (m,), for scores of shape (m,) or (m, K)."""
        ...

    def grad(self, z: Vector, y: Vector) -> Vector:
        """Return d phi/dz in the shape of z."""
        ...

    def lipschitz(self, z_max: float, ord: float = 2) -> float:
        """Return the supremum of the ord-norm of d phi/dz over |z| <= z_max."""
        ...

    def smoothness(self, z_max: float) -> float:
        """Return the supremum of |phi''| (for several scores, of the Hessian's norm); inf if not smooth."""
        ...

    def least_curvature(self, z_max: Vector) -> Vector:
        """Return a lower bound of phi'' over |z| <= z_max, for each entry of z_max; by default 0."""
        return 0.0 * z_max

    def largest_curvature(self, z_max: float) -> float:
        """Return the size at which curvatures are clipped in a released Hessian: by default `smoothness`.

        A smaller one makes the noise smaller, and the Hessian of records with a larger curvature too small.
        """
        return self.smoothness(z_max)

    def usual_smoothness(self, z_max: float) -> float:
        """Return a bound of the mean of phi'' over usual records, for step sizes: by default `smoothness`."""
        return self.smoothness(z_max)

    def with_clipped_gradients(self, threshold: float, bend: float) -> "Loss":
        """Return the variant that clips whole gradients; the loss itself if it has none.

        `threshold`: largest norm of a gradient; `bend`: largest curvature of a record in a released Hessian,
        over that of a record of usual length.
        """
        return self

    def clipped(self, limit: float) -> "Loss | None":
        """Return the convex loss whose slopes are those of this one clipped at ``limit``; None if unknown."""
        return None


class DevianceLoss(Loss, Protocol):
    """A loss of the mean of a target, through a link, with the deviance of the law that it comes from."""

    def mean(self, z: Vector) -> Vector:
        """Return the means that scores stand for."""
        ...

    def outcome(self, y: Vector) -> Vector:
        """Return stored targets in the units of means, within the range of targets."""
        ...

    def deviance(self, outcome: Vector, mean: Vector) -> Vector:
        """Return the deviance of each outcome from its mean, >= 0; infinite or NaN where there is none."""
        ...


def checked_margin(z_max: float) -> float:
    """Return z_max after checking that it bounds an absolute value."""
    if not z_max >= 0:
        raise WrongValue(f"z_max bounds |<x, theta>| and must be >= 0; got {z_max}.")
    return z_max


def largest_residual(z_max: float, y_range: tuple[float, float]) -> float:
    """Return max |z - y|."""
    return checked_margin(z_max) + max(abs(y_range[0]), abs(y_range[1]))


def check_positive(owner: str, field: str, value: float) -> None:
    """Refuse a parameter that is not a positive finite number."""
    if not 0 < value < math.inf:
        raise WrongValue(f"{owner} needs a finite {field} > 0; got {field}={value}.")


def check_range(y_range: tuple[float, float]) -> None:
    """Refuse a range of targets that is not a finite interval."""
    low, high = y_range
    if not -math.inf < low <= high < math.inf:
        raise WrongValue(f"y_range must be a finite pair (low, high) with low <= high; got {y_range}.")
