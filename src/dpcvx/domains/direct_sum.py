"""A set function made of set functions that do not interact."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dpcvx.arrays import IntVector, Vector
from dpcvx.domains.set_functions import (
    SetFunction,
    check_size,
    members_of,
    prox,
)
from dpcvx.vouched import ITERATIVE_ERROR, vouched

__all__ = ["DirectSum"]


@vouched("minimisers", prox_error=ITERATIVE_ERROR, parts=lambda total: total.parts)
@dataclass(frozen=True)
class DirectSum:
    """Set functions of consecutive blocks of coordinates, each priced on its own.

    F(A) = sum_k F_k(A within block k), so Omega(theta) = sum_k Omega_k(theta on block k)

    Parameters
    ----------
    parts : sequence of SetFunction
        F_1, F_2, ..., at least one.
    sizes : sequence of int
        Number of coordinates of each block, in order.
    """

    parts: Sequence[SetFunction]
    sizes: Sequence[int]

    def __post_init__(self) -> None:
        # Tuples, so that equal functions compare and hash alike.
        object.__setattr__(self, "parts", tuple(self.parts))
        object.__setattr__(self, "sizes", tuple(int(size) for size in self.sizes))
        if not self.parts or len(self.parts) != len(self.sizes) or min(self.sizes) < 1:
            raise ValueError(
                f"DirectSum needs a block of at least one coordinate for each part; got {len(self.parts)} "
                f"part(s) and sizes={self.sizes}."
            )
        for part, size in zip(self.parts, self.sizes, strict=True):
            check_size(part, size)

    @property
    def size(self) -> int | None:
        """Number of coordinates of all blocks."""
        return sum(self.sizes)

    def __call__(self, subset: ArrayLike) -> float:
        """Return the sum of the parts' values."""
        members = members_of(subset)
        return sum(part(members[inside] - start) for part, start, inside in self._blocks(members))

    def marginal_gains(self, order: IntVector) -> Vector:
        """Return what each coordinate adds to its own part."""
        gains = np.empty(order.size)
        for part, start, inside in self._blocks(order):
            gains[inside] = part.marginal_gains(order[inside] - start)
        return gains

    def shrink(self, magnitudes: Vector, step: float) -> Vector:
        """Return the parts' own answers, side by side."""
        u = np.empty(magnitudes.size)
        for part, _, inside in self._blocks(np.arange(magnitudes.size)):
            u[inside] = prox(part, magnitudes[inside], step)
        return u

    def _blocks(self, members: IntVector) -> Iterator[tuple[SetFunction, int, IntVector]]:
        """Yield each part, the first index of its block, and the places of its members."""
        start = 0
        for part, size in zip(self.parts, self.sizes, strict=True):
            yield part, start, np.flatnonzero((members >= start) & (members < start + size))
            start += size
