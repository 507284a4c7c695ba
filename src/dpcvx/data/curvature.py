"""Exact second moments of stored rows, weighted by curvatures (the Hessian) and by squared slopes (the meat).

A record's curvature phi'' is read off two of its residuals, at scores a public distance to either side, so it
is a function of that record and public numbers alone (PRIVACY_MATH §11b); it is rounded and clipped, and what
follows are sums of integers. The meat of the sandwich formula for standard errors is the sum of the outer
products of gradients: of records, or of persons with several rows.
"""

from __future__ import annotations

import math
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
# Gradients of persons, sums rho k in units of 2^-34, are truncated to the grid of features, 2^-14.
PERSON_BITS = RESIDUAL_BITS
LARGEST_EXACT = 2**53  # integers up to here are exact in float64, whatever the order of a sum
CELLS_AT_ONCE = 2**19


@dataclass(frozen=True)
class CurvatureBound:
    """Bound of one record's curvature phi'', or of its squared slope: an integer in units of 2^-bits."""

    largest: int  # every one lies in 0..largest
    bits: int


def squared_bound(slope: ResidualBound, bits: int) -> CurvatureBound:
    """Return the bound of squares of slopes within a bound, in units of 2^-bits."""
    return CurvatureBound(max(1, math.floor(slope.linf**2 * 2.0 ** (bits - 2 * RESIDUAL_BITS))), bits)


def meat_squared(square: CurvatureBound, slope: ResidualBound, k2: int, neighbours: Neighbours) -> int:
    """Return the squared l2 sensitivity of the meat, whose rows have ||k||^2 <= k2.

    A record adds a positive semidefinite matrix of Frobenius norm up to square * k2. A person adds the outer
    product of a vector g with ||g||^2 <= (r R)^2 k2/2^40, where r rows count; two such matrices have an inner
    product of at least 0, as those of records have.
    """
    if neighbours.unit == "row":
        return neighbours.cone_squared * (square.largest * k2) ** 2
    longest = person_squared(slope, k2, neighbours)
    return (2 if neighbours.replaces else 1) * longest**2


def person_squared(slope: ResidualBound, k2: int, neighbours: Neighbours) -> int:
    """Return the largest ||g||^2 of a person's truncated gradient."""
    return (neighbours.rows * slope.linf) ** 2 * k2 >> 2 * PERSON_BITS


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
    def meat(self) -> NDArray[np.int64]:
        """Sum of the outer products of the gradients, each truncated to the grid 2^-14."""
        # Towards 0, so that no gradient is longer than before.
        cut = np.sign(self.sums) * (abs(self.sums) >> PERSON_BITS)
        found: NDArray[np.int64] = cut.T @ cut
        return found


class CurvatureTotals(NamedTuple):
    """sum_i omega_i k_i k_i^T, and the meat: sum_i s_i k_i k_i^T, both of shape (d, d)."""

    moments: NDArray[np.int64]
    meat: NDArray[np.int64] | None = None  # where it was asked for
    persons: PersonGradients | None = None  # where the meat is that of persons


@dataclass(frozen=True, eq=False)
class CurvatureSum:
    """Second moments of rows weighted by curvature, and by squared slope.

    omega_i is the curvature of record i at the score <x_i, theta>, and s_i the square of its slope, rounded;
    see `CurvatureTotals`. Of weighted records omega_i is floor(w omega/2^14), and s_i is w^2 s/2^28, rounded.
    Where records have persons, the meat is the sum over these of g g^T, g = trunc(sum_i rho_i k_i/2^20).
    """

    loss: Loss  # of one score
    theta: Vector  # public point, shape (d,)
    slope: ResidualBound
    bend: CurvatureBound  # slope, bend, square: enforced after rounding
    square: CurvatureBound | None = None  # of squared slopes; None leaves the meat out

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
        found = _totals(records.whole_rows(), y[: len(y) - records.weighted], records.weights, self)
        if records.owners is None or self.square is None:
            return found
        persons = _gradients_of_persons(records, y, records.owners, self)
        return CurvatureTotals(found.moments, persons.meat, persons)

    def add(self, parts: Iterable[CurvatureTotals], n: int) -> CurvatureTotals:
        """Add sums over disjoint records; the mechanism's capacity keeps the first inside 62 bits."""
        total, *others = parts
        for part in others:
            moments = total.moments + part.moments
            if total.meat is None or part.meat is None:
                total = CurvatureTotals(moments)
            elif total.persons is None or part.persons is None:
                total = CurvatureTotals(moments, total.meat + part.meat)
            else:  # a person may have rows in several parts
                persons = total.persons.join(part.persons)
                total = CurvatureTotals(moments, persons.meat, persons)
        return total

    def distances(
        self, one: CurvatureTotals, other: CurvatureTotals, row: RowBounds, neighbours: Neighbours
    ) -> list[Distance]:
        """The diameters of two cones of matrices (PRIVACY_MATH §15, §16)."""
        bends = neighbours.cone_squared * (self.bend.largest * row.k2) ** 2
        found = [(_squares(one.moments - other.moments), bends)]
        if self.square is not None and one.meat is not None and other.meat is not None:
            meat = _squares(one.meat - other.meat)
            found.append((meat, meat_squared(self.square, self.slope, row.k2, neighbours)))
        return found


def _squares(matrix: NDArray[np.int64]) -> int:
    """Squared Frobenius norm, exact."""
    return sum(int(v) ** 2 for v in matrix.flat)


def _gradients_of_persons(
    records: Records, y: Vector, owners: NDArray[np.int64], question: CurvatureSum
) -> PersonGradients:
    """Gradients of the persons who have rows among the records."""
    from dpcvx.data import kernels

    loss, rows = question.loss, records.whole_rows()
    integers, unit = fixed_point(question.theta)
    n, d = rows.shape
    function = kernels.residuals_of(loss.slope, loss.joint, loss.offset)
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
    function = kernels.residuals_of(loss.slope, loss.joint, loss.offset)
    n, d = rows.shape
    k_largest = 2 ** (FEATURE_BITS + 1)
    square = question.square
    most = max(1, bend.largest, 0 if square is None else square.largest)
    step = max(1, min(n, CELLS_AT_ONCE // d, LARGEST_EXACT // (most * k_largest**2)))
    moments, meat = np.zeros((d, d), dtype=np.int64), np.zeros((d, d), dtype=np.int64)

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
        if square is None:
            continue
        slopes = residuals(margins, targets, slope.linf)
        squares = slopes.astype(np.float64) ** 2 * 2.0 ** (square.bits - 2 * RESIDUAL_BITS)
        if weights is not None:
            squares = squares * (weights[start:stop] / WEIGHT) ** 2
        squares = np.clip(np.rint(squares), 0, square.largest)
        meat += (exact.T @ (exact * squares[:, None])).astype(np.int64)
    return CurvatureTotals(moments, None if square is None else meat)
