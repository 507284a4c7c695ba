"""Scores of the squared loss from products of columns, each made once.

The residual z_i - y_i is linear in theta, so sum_i (z_i - y_i) k_ij = sum_l w_l G_jl - Y_j with the exact
integers G_jl = sum_i k_ij k_il and Y_j = sum_i y_i k_ij, both over the records that have a target. A step
towards a vertex that was selected before adds a column of G that is at hand and reads no record; a new one
costs one pass. Which columns are at hand is public: they are those of the released vertices.

No residual is clipped, and none needs to be: targets are, and |z_i| is bounded by the public theta
(PRIVACY_MATH §12).
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dpcvx.arrays import Vector
from dpcvx.data.lattice import RESIDUAL_BITS, ResidualBound
from dpcvx.data.rows import Dense
from dpcvx.losses import Loss

__all__ = ["GramScores", "HasGramScores", "Linear"]

Pass = Callable[[NDArray[np.int32]], NDArray[np.int64]]


@runtime_checkable
class HasGramScores(Protocol):
    """A source of dense records that also gives scores of the squared loss from products of columns."""

    @property
    def sparse(self) -> bool:
        """Whether rows are compressed: a fact about the kind of storage, not about records."""

    def follow_products(self, loss: Loss) -> Linear:
        """Return scores made of products of columns."""


class Linear(Protocol):
    """Scores of residuals that are linear in theta and are not clipped."""

    def reset(self) -> None:
        """Set w = 0."""

    def add(self, index: int, amount: int) -> None:
        """w[index] += amount."""

    def unclipped(self, unit: float, bound: ResidualBound) -> Vector:
        """Return sum_i r_i k_ij in residual units, r_i = 2^20 (m_i * unit - y_i), up to rounding.

        The caller relies on |r_i| <= bound, which public numbers guarantee and audits check.
        """

    def scores(self, unit: float) -> list[Fraction]:
        """Return the same exactly, for audits."""


class GramScores:
    """Sums of unclipped residuals times features, for weights w that move one at a time.

    `columns`: stored integers, feature-major; `y`: ndarray of float64, shape (n,), targets, within the range
    that the loss declares, or NaN; `product`: sum_i v_i k_ij for every feature j, exactly, of 32-bit integers
    v of shape (1, n).
    """

    def __init__(self, columns: Dense, y: Vector, product: Pass) -> None:
        self._columns, self._product = columns, product
        d, n = columns.shape
        self._room = max(1, n // 4)  # columns of G that take as much memory as the records
        self._made: dict[int, NDArray[np.int64]] = {}
        self._weights: dict[int, int] = {}
        self._present = ~np.isnan(y)
        known = np.where(self._present, y, 0.0)
        self._targets = product(np.rint(known * 2.0**RESIDUAL_BITS).astype(np.int32)[None])
        self._held: Vector = np.zeros(d)

    def reset(self) -> None:
        """Set w = 0."""
        self._weights.clear()
        self._held[:] = 0.0

    def add(self, index: int, amount: int) -> None:
        """w[index] += amount."""
        if not 0 <= index < len(self._held):
            raise IndexError(f"index must be in 0..{len(self._held) - 1}, got {index}.")
        self._weights[index] = self._weights.get(index, 0) + amount
        self._held += float(amount) * self._column(index)

    def unclipped(self, unit: float, bound: ResidualBound) -> Vector:
        """Return sum_i r_i k_ij in residual units, r_i = 2^20 (m_i * unit - y_i), up to rounding.

        The bound holds for every r_i by public numbers: nothing is clipped to it.
        """
        return self._held * (unit * 2.0**RESIDUAL_BITS) - self._targets

    def scores(self, unit: float) -> list[Fraction]:
        """Return the same exactly; for audits."""
        held: Any = sum(
            (weight * self._column(index).astype(object) for index, weight in self._weights.items()),
            np.zeros(len(self._held), dtype=object),
        )
        share = Fraction(unit) * 2**RESIDUAL_BITS
        return [share * int(a) - int(b) for a, b in zip(held, self._targets, strict=True)]

    def _column(self, index: int) -> NDArray[np.int64]:
        found = self._made.get(index)
        if found is None:
            column = self._columns.values[index].astype(np.int32)
            found = self._product((column * self._present)[None])
            if len(self._made) < self._room:
                self._made[index] = found
        return found
