"""Exact slopes of a loss along products of pairs of features."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpcvx.arrays import IntVector, Vector
from dpcvx.data.lattice import FEATURE_BITS, ResidualBound, exact_sum, fixed_point, records_at_once
from dpcvx.data.rows import Records, dense_block
from dpcvx.data.sums import Distance, RowBounds
from dpcvx.data.threads import in_threads
from dpcvx.errors import WrongValue
from dpcvx.losses import Loss

if TYPE_CHECKING:
    from dpcvx.accounting import Neighbours

__all__ = ["LARGEST_PRODUCT", "PairSum"]

LARGEST_PRODUCT: int = 2**FEATURE_BITS  # every product is clipped to it, after rounding


@dataclass(frozen=True, eq=False)
class PairSum:
    """sum_i rho_i p_i in units of 2^-34, p_i the products of pairs of features, shape (pairs, K).

    p = trunc(2^14 clip(stretch x_a x_b, -1, 1)) of the stored features x_a and x_b of a row.
    """

    loss: Loss
    theta: Vector  # public point, shape (d,) or (d, K)
    bound: ResidualBound  # of every residual rho_i, enforced after rounding
    pairs: tuple[tuple[int, int], ...]  # places a, b of features
    stretch: float

    def check(self, d: int) -> None:
        """Refuse a theta of another length, and places that are no features."""
        if len(self.theta) != d or not all(0 <= place < d for pair in self.pairs for place in pair):
            raise WrongValue(f"theta or the pairs do not fit records of {d} features.")

    def among(self, start: int, stop: int) -> PairSum:
        """Return the same question."""
        return self

    def of(self, records: Records) -> IntVector:
        """Return the sum over records in memory; products are not stored."""
        from dpcvx.data import kernels

        self.check(records.d)
        integers, unit = fixed_point(self.theta)
        outputs, loss = len(integers), self.loss
        y, rows = records.targets(loss, outputs), records.whole_rows()
        function = kernels.residuals_of(loss.slope, loss.joint, loss.offset)
        rest = (unit, loss.parameter, self.bound.l2, self.bound.linf)
        pairs, factor = np.array(self.pairs), self.stretch / LARGEST_PRODUCT

        def part(start: int, stop: int) -> IntVector:
            block = dense_block(rows, start, stop)
            margins = np.empty((outputs, len(block)), dtype=np.int64)
            rho = np.empty(margins.shape, dtype=np.int32)
            kernels.multiply_dense(block, integers, 0, len(block), 0, margins)
            kernels.block_residuals(function, margins, y, start, 0, len(block), *rest, rho)
            sums = np.zeros((outputs, len(pairs)), dtype=np.int64)
            kernels.accumulate_products(block, pairs, factor, float(LARGEST_PRODUCT), rho, sums)
            return np.ascontiguousarray(sums.T)

        work, most = outputs * records.n * len(pairs), records_at_once(self.bound)
        parts = in_threads(part, records.n, work, threads=records.threads, largest=most)
        return exact_sum(parts, records.n, self.bound)

    def add(self, parts: Iterable[IntVector], n: int) -> IntVector:
        """Add sums over disjoint records."""
        return exact_sum(parts, n, self.bound)

    def distances(
        self, one: IntVector, other: IntVector, row: RowBounds, neighbours: Neighbours
    ) -> list[Distance]:
        """The diameter of an interval, for each entry (PRIVACY_MATH §15)."""
        most = (neighbours.ball * self.bound.linf * LARGEST_PRODUCT) ** 2
        return [((int(a) - int(b)) ** 2, most) for a, b in zip(one.flat, other.flat, strict=True)]
