"""Exact second moments of stored rows, weighted by how fast each record's slope changes with its score.

A record's curvature phi'' is read off two of its residuals, at scores a public distance to either side, so it
is a function of that record and public numbers alone (PRIVACY_MATH §11b); it is rounded and clipped, and what
follows are sums of integers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpcvx.accounting import WEIGHT
from dpcvx.arrays import Vector
from dpcvx.data.lattice import FEATURE_BITS, RESIDUAL_BITS, ResidualBound, fixed_point
from dpcvx.data.rows import Dense, Records, Sparse, dense_block
from dpcvx.data.sums import Distance, RowBounds
from dpcvx.errors import WrongValue
from dpcvx.losses import Loss

if TYPE_CHECKING:
    from dpcvx.accounting import Neighbours

SHIFT = 2.0**-6  # half the distance of the two scores; phi'' changes little over it
SLOPE_BITS = 8  # slopes are squared on the grid 2^-8, and multiplied by ||x||^2 on the grid 2^-14
SPREAD_UNIT = 2.0 ** -(2 * SLOPE_BITS + FEATURE_BITS)
# from squares of sums rho k, in units of 2^-68, to that unit
SQUARE_BITS = 2 * (RESIDUAL_BITS + FEATURE_BITS) - (2 * SLOPE_BITS + FEATURE_BITS)
LARGEST_EXACT = 2**53  # integers up to here are exact in float64, whatever the order of a sum
CELLS_AT_ONCE = 2**19


@dataclass(frozen=True)
class CurvatureBound:
    """Bound of one record's curvature phi'', an integer in units of 2^-bits."""

    largest: int  # every curvature lies in 0..largest
    bits: int


def largest_spread(slope: ResidualBound, k2: int, neighbours: Neighbours) -> int:
    """Return the largest term of a unit whose slopes are within the bound and whose rows have ||k||^2 <= k2.

    A record adds s^2 q. A person adds the squared length of their gradient, rounded once: at most R^2 k2, or
    r^2 times as much if r rows count.
    """
    steps = -(-slope.linf // (1 << RESIDUAL_BITS - SLOPE_BITS))
    record = neighbours.interval * steps * steps * (k2 >> FEATURE_BITS)
    if neighbours.unit == "row":
        return record
    return max(record, (neighbours.rows * slope.linf) ** 2 * k2 >> SQUARE_BITS)


class PersonGradients(NamedTuple):
    """Gradients of persons, sums of rho_i k_i over their rows: private."""

    numbers: NDArray[np.int64]  # of the persons, ascending
    sums: NDArray[np.int64]  # shape (persons, d)

    def join(self, other: PersonGradients) -> PersonGradients:
        """Add gradients over other rows, perhaps of the same persons."""
        numbers = np.union1d(self.numbers, other.numbers)
        sums = np.zeros((len(numbers), self.sums.shape[1]), dtype=np.int64)
        for each in (self, other):
            sums[np.searchsorted(numbers, each.numbers)] += each.sums
        return PersonGradients(numbers, sums)

    @property
    def spread(self) -> int:
        """Sum of the squared lengths, each rounded down, in `SPREAD_UNIT`."""
        # A square may need more than 62 bits. In float64 its relative error is far below 2^-40, by which it
        # is made smaller, so that no person adds more than the bound.
        squares = (self.sums.astype(np.float64) ** 2).sum(axis=1) * (1 - 2.0**-40)
        return int(np.floor(squares * 2.0**-SQUARE_BITS).astype(np.int64).sum())


class CurvatureTotals(NamedTuple):
    """sum_i omega_i k_i k_i^T, shape (d, d), and sum_i s_i^2 q_i."""

    moments: NDArray[np.int64]
    spread: int
    persons: PersonGradients | None = None  # where the second sum is over persons


@dataclass(frozen=True, eq=False)
class CurvatureSum:
    """Second moments of rows weighted by curvature, and the squared lengths of gradients.

    omega_i is the curvature of record i at the score <x_i, theta>, s_i its slope on the grid 2^-8, and
    q_i = floor(||k_i||^2/2^14); see `CurvatureTotals`. Of weighted records omega_i is floor(w omega/2^14),
    and the second sum has the terms floor(w^2 s^2 q/2^28). Where records have persons, it is over these: the
    squared length of a person's gradient, floor(||sum_i rho_i k_i||^2/2^38), is at most that of one row.
    """

    loss: Loss  # of one score
    theta: Vector  # public point, shape (d,)
    slope: ResidualBound
    bend: CurvatureBound  # slope, bend: enforced after rounding

    def check(self, d: int) -> None:
        """Refuse a theta of another length."""
        if len(self.theta) != d:
            raise WrongValue(f"theta has {len(self.theta)} rows, but the records have {d} features.")

    def among(self, start: int, stop: int) -> CurvatureSum:
        """Return the same question."""
        return self

    def of(self, records: Records) -> CurvatureTotals:
        """Return both sums over records in memory."""
        self.check(records.d)
        y = records.targets(self.loss, 1)
        found = _totals(records.whole_rows(), y[:1], records.weights, self)
        if records.owners is None:
            return found
        persons = _gradients_of_persons(records, y, records.owners, self)
        return CurvatureTotals(found.moments, persons.spread, persons)

    def add(self, parts: Iterable[CurvatureTotals], n: int) -> CurvatureTotals:
        """Add sums over disjoint records; the mechanism's capacity keeps the first inside 62 bits."""
        total, *others = parts
        for part in others:
            moments, spread = total.moments + part.moments, total.spread + part.spread
            if total.persons is None or part.persons is None:
                total = CurvatureTotals(moments, spread)
            else:  # a person may have rows in several parts
                persons = total.persons.join(part.persons)
                total = CurvatureTotals(moments, persons.spread, persons)
        return total

    def distances(
        self, one: CurvatureTotals, other: CurvatureTotals, row: RowBounds, neighbours: Neighbours
    ) -> list[Distance]:
        """The diameters of a cone of matrices up to Omega K2 and of an interval S^2 Q (PRIVACY_MATH §15)."""
        squares = sum(int(v) ** 2 for v in (one.moments - other.moments).flat)
        spread = (one.spread - other.spread) ** 2
        return [
            (squares, neighbours.cone_squared * (self.bend.largest * row.k2) ** 2),
            (spread, largest_spread(self.slope, row.k2, neighbours) ** 2),
        ]


def _gradients_of_persons(
    records: Records, y: Vector, owners: NDArray[np.int64], question: CurvatureSum
) -> PersonGradients:
    """Gradients of the persons who have rows among the records."""
    from dpcvx.data import kernels

    loss, rows = question.loss, records.whole_rows()
    integers, unit = fixed_point(question.theta)
    n, d = rows.shape
    function = kernels.residuals_of(loss.slope, loss.joint)
    numbers = np.unique(owners[owners >= 0])
    sums = np.zeros((len(numbers), d), dtype=np.int64)
    for start in range(0, n, max(1, CELLS_AT_ONCE // d)):
        stop = min(n, start + max(1, CELLS_AT_ONCE // d))
        block, targets = dense_block(rows, start, stop), np.ascontiguousarray(y[:, start:stop])
        margins = np.empty((1, stop - start), dtype=np.int64)
        kernels.multiply_dense(block, integers, 0, stop - start, 0, margins)
        rho = np.empty(margins.shape, dtype=np.int32)
        limit = question.slope.linf
        kernels.block_residuals(
            function, margins, targets, 0, 0, stop - start, unit, loss.parameter, limit, limit, rho
        )
        owned = owners[start:stop] >= 0
        terms = (rho[0, :, None].astype(np.int64) * block)[owned]
        np.add.at(sums, np.searchsorted(numbers, owners[start:stop][owned]), terms)
    return PersonGradients(numbers, sums)


def _totals(
    rows: Dense | Sparse, y: Vector, weights: NDArray[np.int64] | None, question: CurvatureSum
) -> CurvatureTotals:
    from dpcvx.data import kernels

    loss, slope, bend = question.loss, question.slope, question.bend
    integers, unit = fixed_point(question.theta)
    shift = max(1, round(SHIFT / unit))
    # In the shift's own distance, so that a clipped slope is clipped at the same residual on average.
    wide = slope.linf + round(SHIFT * 2**RESIDUAL_BITS)
    factor = 2.0 ** (bend.bits - RESIDUAL_BITS) / (2 * shift * unit)
    function = kernels.residuals_of(loss.slope, loss.joint)
    n, d = rows.shape
    k_largest = 2 ** (FEATURE_BITS + 1)
    step = max(1, min(n, CELLS_AT_ONCE // d, LARGEST_EXACT // (max(1, bend.largest) * k_largest**2)))
    moments, spread = np.zeros((d, d), dtype=np.int64), 0

    def residuals(margins: NDArray[np.int64], targets: Vector, limit: int) -> NDArray[np.int64]:
        rho = np.empty(margins.shape, dtype=np.int32)
        kernels.block_residuals(
            function, margins, targets, 0, 0, margins.shape[1], unit, loss.parameter, limit, limit, rho
        )
        found: NDArray[np.int64] = rho[0].astype(np.int64)
        return found

    for start in range(0, n, step):
        stop = min(n, start + step)
        block, targets = dense_block(rows, start, stop), np.ascontiguousarray(y[:, start:stop])
        margins = np.empty((1, stop - start), dtype=np.int64)
        kernels.multiply_dense(block, integers, 0, stop - start, 0, margins)
        rise = residuals(margins + shift, targets, wide) - residuals(margins - shift, targets, wide)
        omega = np.clip(np.rint(rise * factor), 0, bend.largest)
        if weights is not None:
            omega = np.floor(omega * weights[start:stop] / WEIGHT)
        exact = block.astype(np.float64)
        moments += (exact.T @ (exact * omega[:, None])).astype(np.int64)
        slopes = np.rint(residuals(margins, targets, slope.linf) * 2.0 ** (SLOPE_BITS - RESIDUAL_BITS))
        squares = (exact**2).sum(axis=1) // 2**FEATURE_BITS
        terms = slopes.astype(np.int64) ** 2 * squares.astype(np.int64)
        if weights is None:
            spread += int(terms.sum())
        else:  # in Python's integers: a weighted term may need more than 62 bits
            spread += sum(
                int(t) * int(w) ** 2 // WEIGHT**2 for t, w in zip(terms, weights[start:stop], strict=True)
            )
    return CurvatureTotals(moments, spread)
