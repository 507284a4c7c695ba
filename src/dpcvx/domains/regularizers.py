"""Convex, public regularizers r(theta), used through their prox.

A matrix parameter is the sequence of its entries in row order, as for the sets of `dpcvx.domains`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.domains.set_functions import SetFunction, norm, prox
from dpcvx.errors import WrongValue
from dpcvx.vouched import ITERATIVE_ERROR, vouched

__all__ = ["L1", "ElasticNet", "GroupL2", "Regularizer", "Ridge", "SubmodularNorm"]


ABSOLUTE_NORMAL = math.sqrt(2 / math.pi)  # E |Z| of a standard normal


@runtime_checkable
class Regularizer(Protocol):
    """A convex function r of the parameter, added to the mean loss."""

    def value(self, theta: Vector) -> float:
        """Return r(theta)."""

    def prox(self, v: Vector, step: float) -> Vector:
        """Return argmin_theta ||theta - v||_2^2 / 2 + step r(theta)."""

    def growth(self, size: int) -> tuple[float, float]:
        """Return (a, b): r(s + sigma Z) is on average at most r(s) + a sigma + b size sigma^2/2, Z normal."""
        ...


def check_weight(regularizer: str, name: str, weight: float) -> None:
    """Raise ValueError unless the weight is a non-negative finite number."""
    if not 0 <= weight < math.inf:
        raise WrongValue(f"{regularizer} needs a finite {name} >= 0; got {name}={weight}.")


def soft_threshold(v: Vector, amount: float) -> Vector:
    """Return v with its entries moved towards 0 by `amount`, and no further."""
    return np.copysign(np.maximum(np.abs(v) - amount, 0.0), v)


@vouched("minimisers")
@dataclass(frozen=True)
class L1:
    """The l1 norm.

    r(theta) = weight ||theta||_1

    Parameters
    ----------
    weight : float
        Non-negative and finite.
    """

    weight: float

    def __post_init__(self) -> None:
        check_weight("L1", "weight", self.weight)

    def value(self, theta: Vector) -> float:
        """Return weight ||theta||_1."""
        return self.weight * float(np.abs(theta).sum())

    def prox(self, v: Vector, step: float) -> Vector:
        """Return the soft threshold."""
        return soft_threshold(v, step * self.weight)

    def growth(self, size: int) -> tuple[float, float]:
        """Return weight times E||Z||_1."""
        return self.weight * ABSOLUTE_NORMAL * size, 0.0


@vouched("minimisers")
@dataclass(frozen=True)
class Ridge:
    """Half the squared l2 norm.

    r(theta) = (weight / 2) ||theta||_2^2

    Parameters
    ----------
    weight : float
        Non-negative and finite.
    """

    weight: float

    def __post_init__(self) -> None:
        check_weight("Ridge", "weight", self.weight)

    def value(self, theta: Vector) -> float:
        """Return (weight / 2) ||theta||_2^2."""
        return 0.5 * self.weight * float((theta**2).sum())

    def prox(self, v: Vector, step: float) -> Vector:
        """Return v / (1 + step weight)."""
        return v / (1 + step * self.weight)

    def growth(self, size: int) -> tuple[float, float]:
        """Return the weight, as a ridge."""
        return 0.0, self.weight


@vouched("minimisers")
@dataclass(frozen=True)
class ElasticNet:
    """The l1 norm and half the squared l2 norm.

    r(theta) = l1 ||theta||_1 + (l2 / 2) ||theta||_2^2

    Parameters
    ----------
    l1, l2 : float
        Non-negative and finite.
    """

    l1: float
    l2: float

    def __post_init__(self) -> None:
        check_weight("ElasticNet", "l1", self.l1)
        check_weight("ElasticNet", "l2", self.l2)

    def value(self, theta: Vector) -> float:
        """Return l1 ||theta||_1 + (l2 / 2) ||theta||_2^2."""
        return L1(self.l1).value(theta) + Ridge(self.l2).value(theta)

    def prox(self, v: Vector, step: float) -> Vector:
        """Return the soft threshold, divided by 1 + step l2."""
        return soft_threshold(v, step * self.l1) / (1 + step * self.l2)

    def growth(self, size: int) -> tuple[float, float]:
        """Return the sum of both parts."""
        return self.l1 * ABSOLUTE_NORMAL * size, self.l2


@vouched("minimisers")
@dataclass(frozen=True)
class GroupL2:
    """The sum of the l2 norms of groups of coordinates.

    r(theta) = weight sum_g ||theta_g||_2

    Parameters
    ----------
    groups : sequence of sequences of int
        Disjoint sets of indices; coordinates in no group are not penalised.
    weight : float
        Non-negative and finite.
    """

    groups: Sequence[Sequence[int]]
    weight: float

    def __post_init__(self) -> None:
        check_weight("GroupL2", "weight", self.weight)
        # Tuples, so that equal regularizers compare and hash alike.
        groups = tuple(tuple(int(j) for j in group) for group in self.groups)
        object.__setattr__(self, "groups", groups)
        flat = [j for group in groups for j in group]
        if not all(groups) or len(set(flat)) != len(flat) or min(flat, default=0) < 0:
            raise WrongValue(
                f"GroupL2 needs disjoint groups of indices >= 0, none empty; got {groups}. "
                "For groups that overlap use SubmodularNorm(GroupCover(groups), weight)."
            )

    def value(self, theta: Vector) -> float:
        """Return weight sum_g ||theta_g||_2."""
        flat = self._flat(theta)
        return self.weight * float(sum(np.linalg.norm(flat[list(group)]) for group in self.groups))

    def prox(self, v: Vector, step: float) -> Vector:
        """Return v with each group shortened by step weight, and no further than to 0."""
        theta = self._flat(v).copy()
        for group in self.groups:
            index = list(group)
            length = float(np.linalg.norm(theta[index]))
            theta[index] *= max(1 - step * self.weight / length, 0.0) if length > 0 else 0.0
        return theta.reshape(v.shape)

    def _flat(self, theta: Vector) -> Vector:
        """Return the entries in row order, after checking that the groups hold no other index."""
        largest = max((j for group in self.groups for j in group), default=-1)
        if largest >= theta.size:
            raise WrongValue(
                f"GroupL2 has index {largest} in a group; the parameter has {theta.size} entries."
            )
        return np.ravel(theta)

    def growth(self, size: int) -> tuple[float, float]:
        """Return weight times a bound on the sum of the groups' lengths, the roots of their sizes."""
        return self.weight * sum(math.sqrt(len(group)) for group in self.groups), 0.0


@vouched("minimisers", prox_error=ITERATIVE_ERROR, parts=lambda norm: (norm.function,))
@dataclass(frozen=True)
class SubmodularNorm:
    """The norm that charges a support by a set function.

    r(theta) = weight Omega(theta), Omega(theta) = f(|theta|), f the Lovász extension of F, [KD19] §2

    Parameters
    ----------
    function : SetFunction
        F, for as many coordinates as the parameter has entries.
    weight : float
        Non-negative and finite.
    """

    function: SetFunction
    weight: float

    def __post_init__(self) -> None:
        check_weight("SubmodularNorm", "weight", self.weight)

    def value(self, theta: Vector) -> float:
        """Return weight f(|theta|)."""
        return self.weight * norm(self.function, theta)

    def prox(self, v: Vector, step: float) -> Vector:
        """Return v less the nearest point of step weight |P|(F)."""
        return prox(self.function, v, step * self.weight)

    def growth(self, size: int) -> tuple[float, float]:
        """Return a bound: f(|z|) is at most sum_j |z_j| F({j}), and at most F(V) max_j |z_j|."""
        singles = ABSOLUTE_NORMAL * sum(self.function([j]) for j in range(size))
        largest = math.sqrt(2 * math.log(2 * size)) * self.function(range(size))
        return self.weight * min(singles, largest), 0.0
