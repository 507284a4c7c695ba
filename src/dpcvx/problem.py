"""The optimisation problem (loss, set, bounds), and its Lipschitz and smoothness constants.

The objective is F(theta) = (1/n) sum_i phi(<x_i, theta>, y_i) + (l2/2) ||theta||^2 + r(theta), theta in C.
`Problem` turns the loss, the bounds of a record and the set C into Lipschitz, smoothness and curvature
constants. Nobody else multiplies constants.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.domains import Domain, HasEuclideanRadius
from dpcvx.domains.mirror import MirrorMap
from dpcvx.errors import Incompatible, WrongValue
from dpcvx.losses import Loss

if TYPE_CHECKING:
    from dpcvx.domains.regularizers import Regularizer

__all__ = ["Bounds", "Problem"]


@dataclass(frozen=True)
class Bounds:
    """Public bounds of one record in scaled units, enforced when records are quantised.

    ||x||_inf <= x_inf, ||x||_2 <= x_2, |y| <= y, the intercept's constant feature included.

    Parameters
    ----------
    x_inf : float
        Largest absolute value of a feature; below 2, because features are stored as 16-bit integers on a
        2^-14 grid.
    x_2 : float, optional
        Largest l2 norm of a row; without it sqrt(d) * x_inf is used.
    y : float, optional
        Largest absolute target of a regression loss; without it the loss's own range (±1) holds.
    """

    x_inf: float
    x_2: float | None = None
    y: float | None = None

    def __post_init__(self) -> None:
        if not 2**-14 <= self.x_inf < 2:
            raise WrongValue(
                f"x_inf must be in [2^-14, 2), got {self.x_inf!r}: rescale the features, e.g. to [-1, 1]."
            )
        for name in ("x_2", "y"):
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise WrongValue(f"{name} must be positive and finite, got {value!r}.")

    def row_norm(self, d: int) -> float:
        """Bound on ||x||_2 for rows of d features."""
        largest = math.sqrt(d) * self.x_inf
        return largest if self.x_2 is None else min(self.x_2, largest)


@dataclass(frozen=True)
class Problem:
    """Empirical risk minimisation over a convex set, with public constants only.

    min_{theta in C} (1/n) sum_i phi(<x_i, theta>, y_i) + (l2/2) ||theta||^2 + r(theta)

    Parameters
    ----------
    loss : Loss
        phi(z, y) of the score z = <x, theta>.
    domain : Domain, optional
        The set C; None leaves theta free, which needs ``l2 > 0``.
    bounds : Bounds
        Bounds of one record, in scaled units.
    d : int
        Number of features, the intercept's included.
    outputs : int
        Number of columns K of a matrix parameter (d, K); 1 for a vector.
    l2 : float
        Ridge on the mean objective, every coordinate included.
    regularizer : Regularizer, optional
        Convex r >= 0 with r(0) = 0 and a prox, independent of the records. A solver that has no use for it
        refuses the problem.
    """

    loss: Loss
    domain: Domain | None = None
    bounds: Bounds = dataclasses.field(kw_only=True)
    d: int = dataclasses.field(kw_only=True)
    outputs: int = dataclasses.field(default=1, kw_only=True)
    l2: float = dataclasses.field(default=0.0, kw_only=True)
    regularizer: Regularizer | None = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.d < 1 or self.outputs < 1:
            raise WrongValue(f"d and outputs must be at least 1, got d={self.d}, outputs={self.outputs}.")
        if not (self.l2 >= 0 and math.isfinite(self.l2)):
            raise WrongValue(f"l2 must be non-negative and finite, got {self.l2!r}.")
        if self.domain is None and self.l2 == 0:
            raise Incompatible(
                "A problem without a domain needs l2 > 0: give a set such as L2Ball(10.0), or a ridge."
            )
        y = self.bounds.y
        ends = None if y is None else (0.0 if self.loss.target == "amounts" else -y, y)
        if ends is not None and ends != self.loss.y_range:
            if self.loss.target not in ("numbers", "amounts"):
                raise Incompatible(
                    f"{type(self.loss).__name__} has labels in {self.loss.y_range}; bounds.y={y} is no fit."
                )
            object.__setattr__(self, "loss", dataclasses.replace(self.loss, y_range=ends))  # type: ignore[type-var]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of theta."""
        return (self.d,) if self.outputs == 1 else (self.d, self.outputs)

    @property
    def size(self) -> int:
        """Number of coordinates of theta."""
        return self.d * self.outputs

    @property
    def is_round(self) -> bool:
        """Whether the set is a Euclidean ball, which favours no direction."""
        return isinstance(self.domain, HasEuclideanRadius)

    @property
    def row_norm(self) -> float:
        """Bound on ||x||_2."""
        return self.bounds.row_norm(self.d)

    @property
    def C(self) -> Any:  # noqa: N802
        """The domain, for a solver that has checked its abilities with `require`."""
        if self.domain is None:
            raise Incompatible("This problem has no domain: give a set such as L2Ball(10.0).")
        return self.domain

    @cached_property
    def z_max(self) -> float:
        """Bound on |<x, theta>| over C (inf without a domain)."""
        if self.domain is None:
            return math.inf
        return min(
            self.bounds.x_inf * self.domain.norm(1, self.size), self.row_norm * self.domain.norm(2, self.size)
        )

    def margin_bound(self, theta: Vector) -> float:
        """Bound on |<x, theta>| at one public theta, never above `z_max`.

        Slopes are clipped to what the bound implies, so a theta outside C costs accuracy, not privacy.
        """
        return min(
            self.z_max,
            self.bounds.x_inf * float(abs(theta).sum()),
            self.row_norm * math.sqrt(float((theta**2).sum())),
        )

    def slope(self, ord: float = 2, z_max: float | None = None, clip: float | None = None) -> float:
        """Bound on the norm of phi' for |z| <= z_max (by default all of C), after clipping at ``clip``."""
        largest = self.loss.lipschitz(self.z_max if z_max is None else z_max, ord)
        if self.outputs > 1 and not self.loss.joint:
            largest *= self.outputs ** (1 / ord)
        return largest if clip is None else min(largest, clip)

    def slope_change(self, theta: Vector, other: Vector, ord: float = 2, clip: float | None = None) -> float:
        """Bound on the norm of phi' at <x, theta> minus phi' at <x, other>, both clipped at ``clip``.

        Clipping never moves two slopes apart, so the smoothness of phi bounds the change as it stands.
        """
        step = theta - other
        moved = min(
            self.row_norm * math.sqrt(float((step**2).sum())), self.bounds.x_inf * float(abs(step).sum())
        )
        return min(2 * self.slope(ord, clip=clip), self.loss.smoothness(self.z_max) * moved if moved else 0.0)

    def lipschitz(self, ord: float = 2, clip: float | None = None) -> float:
        """Bound on the norm of one record's gradient: L2 for ord=2, L1 (the l_inf norm) for ord=inf."""
        return self.slope(ord, clip=clip) * (self.row_norm if ord == 2 else self.bounds.x_inf)

    @property
    def loss_at_zero(self) -> float:
        """Largest loss of a record at theta = 0, the model that scores everybody 0."""
        if self.loss.joint:
            return float(self.loss.value(np.zeros((1, self.outputs)), np.zeros(1))[0])
        ends = np.array(self.loss.y_range)
        return self.outputs * float(self.loss.value(np.zeros(2), ends).max())

    @property
    def usual_loss_at_zero(self) -> float:
        """Mean loss at theta = 0 where the targets' standard deviation is known, else the largest loss."""
        deviation = self.loss.target_deviation
        if deviation is None:
            return self.loss_at_zero
        return min(self.outputs * deviation**2 / 2, self.loss_at_zero)

    @property
    def smoothness(self) -> float:
        """Smoothness of F in the l2 norm, for usual records where the loss says so."""
        return self.loss.usual_smoothness(self.z_max) * self.row_norm**2 + self.l2

    def lipschitz_in(self, psi: MirrorMap, clip: float | None = None) -> float:
        """Bound on the dual norm of the gradient of F, the ridge's included, in the geometry of psi."""
        wide, narrow = psi.radius(1, self.shape), psi.radius(2, self.shape)
        record = min(narrow * self.lipschitz(2, clip), wide * self.lipschitz(math.inf, clip))
        return record + (self.l2 * narrow * self.C.norm(2, self.size) if self.l2 else 0.0)

    def smoothness_in(self, psi: MirrorMap) -> float:
        """Smoothness of F in the norm of psi."""
        wide, narrow = psi.radius(1, self.shape), psi.radius(2, self.shape)
        row = min(narrow * self.row_norm, wide * self.bounds.x_inf)
        return self.loss.smoothness(self.z_max) * row**2 + self.l2 * narrow**2

    @property
    def strong_convexity(self) -> float:
        """Known modulus of strong convexity of F in the l2 norm: the ridge alone."""
        return self.l2 if self.loss.convex else 0.0

    @property
    def curvature(self) -> float:
        """Frank-Wolfe's curvature constant of F over C: phi'' (range of <x, s - s'>)^2 + l2 diameter^2."""
        if self.domain is None:
            return math.inf
        l1, l2 = self.domain.diameter(1, self.size), self.domain.diameter(2, self.size)
        margin = min(self.bounds.x_inf * l1, self.row_norm * l2)
        return self.loss.smoothness(self.z_max) * margin**2 + self.l2 * l2**2
