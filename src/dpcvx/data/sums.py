"""Exact sums over records: the queries that a data source answers.

A sum knows how to compute itself on records in memory, and how its answers for disjoint records add up. So a
new statistic touches no source, and a new source is a map and an addition.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpcvx.accounting import WEIGHT_BITS
from dpcvx.arrays import IntVector, Vector
from dpcvx.data.lattice import (
    FEATURE_BITS,
    LARGEST_INTEGER,
    ResidualBound,
    exact_sum,
    fixed_point,
    records_at_once,
)
from dpcvx.data.rows import Dense, Records, dense_block
from dpcvx.data.threads import SLOPE_WORK, in_threads
from dpcvx.errors import WrongValue
from dpcvx.losses import Loss

if TYPE_CHECKING:
    from dpcvx.accounting import Neighbours

__all__ = [
    "PRESENT",
    "DifferenceSum",
    "Distance",
    "GradientSum",
    "LengthSum",
    "MomentSum",
    "Points",
    "RowBounds",
    "Sum",
    "TargetSum",
    "present_squared",
    "target_squared",
]

Answer = TypeVar("Answer")
Points = tuple[Vector, Vector]
Distance = tuple[int, int]  # squared distance of two answers, and the largest that neighbours may have


class RowBounds(NamedTuple):
    """Bounds of a stored row of d features: see `integer_bounds`."""

    d: int
    k_inf: int
    k2: int


class Sum(Protocol[Answer]):
    """A question whose answers for disjoint records add up exactly.

    Its fields are public, except for a sample of records, which is a coin of the mechanism.
    """

    def check(self, d: int) -> None:
        """Refuse public arguments that do not fit records of d features."""

    def among(self, start: int, stop: int) -> Sum[Answer]:
        """Return the same question for records start..stop alone, numbered from 0."""

    def of(self, records: Records) -> Answer:
        """Return the sum over records in memory."""

    def add(self, parts: Iterable[Answer], n: int) -> Answer:
        """Return the sum over n records out of the sums over parts of them, at least one."""

    def distances(self, one: Answer, other: Answer, row: RowBounds, neighbours: Neighbours) -> list[Distance]:
        """Compare the exact answers of neighbours, for audits.

        Parameters
        ----------
        one, other
            Answers on two data sets.
        row : RowBounds
            Integer bounds of a stored row.
        neighbours : Neighbours
            Their diameters of balls, intervals and cones.
        """


@dataclass(frozen=True, eq=False)
class GradientSum:
    """sum_i rho_i k_i in units of 2^-34, in the shape of theta."""

    loss: Loss
    theta: Vector  # public point, shape (d,) or (d, K)
    bound: ResidualBound  # of every residual rho_i, enforced after rounding

    def check(self, d: int) -> None:
        """Refuse a theta of another length."""
        _check_point(self.theta, d)

    def among(self, start: int, stop: int) -> GradientSum:
        """Return the same question."""
        return self

    def of(self, records: Records) -> IntVector:
        """Return the sum over records in memory."""
        from dpcvx.data import kernels

        integers, unit = _sent(self.theta, records.d)
        y = records.targets(self.loss, len(integers))
        rows, columns = records.rows, records.columns
        function = kernels.residuals_of(self.loss.slope, self.loss.joint, self.loss.offset)
        rest = (function, unit, self.loss.parameter, self.bound.l2, self.bound.linf)

        def part(start: int, stop: int) -> IntVector:
            sums = np.zeros(integers.shape, dtype=np.int64)
            where = (start, stop, min(records.block, stop - start), records.left_out, sums)
            if columns is not None:
                kernels.gradient_columns(columns.values, y, integers, *rest, *where[:3], sums)
            elif isinstance(rows, Dense):
                kernels.gradient_dense(rows.values, y, integers, *rest, *where)
            else:
                kernels.gradient_sparse(rows.indptr, rows.indices, rows.values, y, integers, *rest, *where)
            return sums

        parts = _in_threads(part, records, records.n, _work(records, len(integers)), self.bound)
        return _whole(records, exact_sum(parts, records.n, self.bound), self.theta)

    def add(self, parts: Iterable[IntVector], n: int) -> IntVector:
        """Add sums over disjoint records."""
        return exact_sum(parts, n, self.bound)

    def distances(
        self, one: IntVector, other: IntVector, row: RowBounds, neighbours: Neighbours
    ) -> list[Distance]:
        """The diameter of a ball of radius R sqrt(K2) (PRIVACY_MATH §11b)."""
        return [(_squares(one, other), (neighbours.ball * self.bound.l2) ** 2 * row.k2)]


@dataclass(frozen=True, eq=False)
class DifferenceSum:
    """sum_i (rho_i - rho'_i) k_i over the rows of a batch, in units of 2^-34 and the shape of an iterate.

    A weight multiplies the difference once it is clipped, so that those of a person's rows add up to at most
    the bound.
    """

    loss: Loss
    points: Points  # public points at which rho_i and rho'_i are taken
    # numbers of the records that take part, ascending; of the persons, where records have persons
    batch: IntVector
    residual: ResidualBound  # of each of the two residuals
    bound: ResidualBound  # of their difference, which is clipped to it

    def check(self, d: int) -> None:
        """Refuse points of another length, or of two shapes."""
        for theta in self.points:
            _check_point(theta, d)
        first, second = (np.shape(theta) for theta in self.points)
        if first != second:
            raise WrongValue(f"The points have shapes {first} and {second}.")

    def among(self, start: int, stop: int) -> DifferenceSum:
        """Return the question for the part of the batch that lies in start..stop."""
        first, last = np.searchsorted(self.batch, (start, stop))
        return replace(self, batch=self.batch[first:last] - start)

    def of(self, records: Records) -> IntVector:
        """Return the sum over records in memory."""
        from dpcvx.data import kernels

        self.check(records.d)
        (first, first_unit), (second, second_unit) = (_sent(theta, records.d) for theta in self.points)
        y, weights = records.targets(self.loss, len(first)), np.empty(0)
        rows, batch = records.rows, self.batch
        if records.weighted:
            y, weights = np.ascontiguousarray(y[:-1]), y[-1]
        if records.owners is not None:
            batch = np.flatnonzero(np.isin(records.owners, batch))
        function = kernels.residuals_of(self.loss.slope, self.loss.joint, self.loss.offset)
        rest = (float(self.loss.parameter), self.residual.l2, self.residual.linf)
        limits = (self.bound.l2, self.bound.linf, weights)
        public = (first, second), (first_unit, second_unit), function, rest, limits

        def part(start: int, stop: int) -> IntVector:
            sums = np.zeros(first.shape, dtype=np.int64)
            where = (start, stop, min(records.block, stop - start), records.left_out, sums)
            if isinstance(rows, Dense):
                kernels.difference_dense(rows.values, y, batch, *public, *where)
            else:
                kernels.difference_sparse(rows.indptr, rows.indices, rows.values, y, batch, *public, *where)
            return sums

        work = 2 * _work(records, len(first)) * len(batch) // records.n
        parts = _in_threads(part, records, len(batch), work, self.bound)
        sums = exact_sum([np.zeros(first.shape, dtype=np.int64), *parts], len(batch), self.bound)
        return _whole(records, sums, self.points[0])

    def add(self, parts: Iterable[IntVector], n: int) -> IntVector:
        """Add sums over disjoint records; the batch says how many of them take part."""
        return exact_sum(parts, len(self.batch), self.bound)

    def distances(
        self, one: IntVector, other: IntVector, row: RowBounds, neighbours: Neighbours
    ) -> list[Distance]:
        """The diameter of a ball of radius R sqrt(K2) for the same sample (PRIVACY_MATH §11b)."""
        return [(_squares(one, other), (neighbours.ball * self.bound.l2) ** 2 * row.k2)]


class PlainSum:
    """A sum of integers that a mechanism's capacity keeps inside 62 bits."""

    def add(self, parts: Iterable[IntVector], n: int) -> IntVector:
        """Add sums over disjoint records."""
        first, *others = parts
        total: IntVector = sum(others, first)
        return total


@dataclass(frozen=True, eq=False)
class MomentSum(PlainSum):
    """sum_i (k_i - c)^order per column, |k_i - c| clipped to a limit, in units of 2^-14 to the order.

    A 0 among ``marked`` features is a missing cell, which adds nothing. Of order 1 the number of the other
    cells of each marked feature follows, in units of ``cell``; a row whose other features have squares that
    add up to more than ``room`` adds nothing to features and counts.

    Columns are the stored features and then as many targets, rounded to the same grid, as there are centres
    left; a missing target adds nothing. Where ``presence`` is not 0, as many sums follow: each adds
    ``presence`` for every record that has the target. Where ``whole`` is not 0, the sum of ``whole`` over all
    records comes after the features. Of weighted records the terms of order 1 are multiplied by integer
    weights, which makes the unit 2^-28; those of order 2 are (weight * square) >> 14, at most as much as the
    square of one row for all rows of a person.
    """

    order: int
    centers: IntVector  # centers, limits: public integers, one for each column
    limits: IntVector
    presence: int = 0
    whole: int = 0
    marked: tuple[int, ...] = ()  # places of features
    cell: int = 0
    room: int = 0

    def check(self, d: int) -> None:
        """Refuse fewer centres than there are features."""
        if len(self.centers) < d:
            raise WrongValue(f"{len(self.centers)} centres are given, but the records have {d} features.")

    def among(self, start: int, stop: int) -> MomentSum:
        """Return the same question."""
        return self

    def of(self, records: Records) -> IntVector:
        """Return the sum over records in memory, a block of rows at a time."""
        d, centers, limits = records.d, self.centers, self.limits
        self.check(d)
        measured = len(centers) - d
        y, weights = records.y[:measured], records.weights
        if records.outcomes < measured:
            raise WrongValue(f"{measured} target(s) are to be measured; these records have fewer.")
        rows = records.whole_rows()
        total = np.zeros(len(centers), dtype=np.int64)
        marked, cells = np.zeros(d, dtype=np.bool_), np.zeros(d, dtype=np.int64)
        marked[list(self.marked)] = True
        room = self.room if self.order == 1 and 0 < len(self.marked) < d else -1
        from dpcvx.data.kernels import add_moments

        for start in range(0, records.n, records.block):
            stop = min(records.n, start + records.block)
            each = np.ones(stop - start, dtype=np.int64) if weights is None else weights[start:stop]
            shift = 0 if weights is None or self.order == 1 else WEIGHT_BITS
            question = (centers[:d], limits[:d], self.order, marked, room)
            add_moments(dense_block(rows, start, stop), *question, each, shift, total[:d], cells)
            if measured:
                known = ~np.isnan(y.T[start:stop])
                targets = np.rint(np.where(known, y.T[start:stop], 0.0) * 2.0**FEATURE_BITS)
                targets = np.clip(targets, -limits[d:], limits[d:]).astype(np.int64) - centers[d:]
                powers = np.clip(targets, -limits[d:], limits[d:]) ** self.order * known
                total[d:] += (powers * each[:, None] >> shift).sum(axis=0)
        every = np.ones(records.n, dtype=np.int64) if weights is None else weights
        if self.presence:
            total = np.append(total, self.presence * (every * ~np.isnan(y)).sum(axis=1, dtype=np.int64))
        if self.marked and self.order == 1:
            total = np.insert(total, d, self.cell * cells[list(self.marked)])
        return np.insert(total, d, self.whole * every.sum()) if self.whole else total

    def distances(
        self, one: IntVector, other: IntVector, row: RowBounds, neighbours: Neighbours
    ) -> list[Distance]:
        """Features and targets apart (PRIVACY_MATH §12b, §17)."""
        d, _, k2 = row
        own, limits = ([int(limit) for limit in part] for part in (self.limits[:d], self.limits[d:]))
        if self.order == 1:
            weight = neighbours.weight**2
            counted = self.whole**2 + len(self.marked) * self.cell**2
            features = weight * present_squared(neighbours, k2, counted)
            targets = weight * sum(present_squared(neighbours, v**2, self.presence**2) for v in limits)
        else:
            share = neighbours.interval**2
            features, targets = (share * sum(v**4 for v in each) for each in (own, limits))
        last = d + (self.whole > 0) + len(self.marked) * (self.order == 1)
        return [(_squares(one[:last], other[:last]), features), (_squares(one[last:], other[last:]), targets)]


def present_squared(neighbours: Neighbours, largest: int, counted: int) -> int:
    """Return the squared l2 sensitivity of (t, P), ||t||^2 <= largest, ||P||^2 <= counted.

    A unit without t adds (0, 0). Two units with t differ by at most 2 ||t||; one with t and one without
    differ by at most sqrt(||t||^2 + ||P||^2) (PRIVACY_MATH §17). If parts of t can be missing one by one, the
    square of each part's entry in P must be at most three times the largest square of the part. A weight
    multiplies t and P, and the distance is convex in the weights, so it is largest where they are 0 or 1.
    """
    longest = largest + counted
    missing = longest if counted else 0
    return neighbours.squared_diameter(max(4 * largest, missing), longest)


@dataclass(frozen=True)
class LengthSum(PlainSum):
    """sum_i ||k_i||^2, one entry, in units of 2^-28."""

    def check(self, d: int) -> None:
        """Accept any number of features."""

    def among(self, start: int, stop: int) -> LengthSum:
        """Return the same question."""
        return self

    def of(self, records: Records) -> IntVector:
        """Return the sum over records in memory."""
        d = records.d
        squares = MomentSum(2, np.zeros(d, dtype=np.int64), np.full(d, LARGEST_INTEGER)).of(records)
        total: IntVector = squares.sum(keepdims=True)
        return total

    def distances(
        self, one: IntVector, other: IntVector, row: RowBounds, neighbours: Neighbours
    ) -> list[Distance]:
        """The diameter of an interval of length K2."""
        return [(_squares(one, other), (neighbours.interval * row.k2) ** 2)]


@dataclass(frozen=True)
class TargetSum(PlainSum):
    """sum_i (P, u_i, u_i^2), with u_i = (y_i - center)/reach clipped to [-1, 1], in units of 2^-14.

    P = floor(sqrt(2) 2^14); u_i is rounded to the grid, and its square rounded down. A missing target adds
    nothing. Weights multiply all three. Of several targets, y_i is the one at `place`.
    """

    center: float  # center, reach, place: public
    reach: float
    place: int | None = None

    def check(self, d: int) -> None:
        """Accept any number of features."""

    def among(self, start: int, stop: int) -> TargetSum:
        """Return the same question."""
        return self

    def of(self, records: Records) -> IntVector:
        """Return the sum over records in memory; rows are not read."""
        y = records.y[: records.outcomes]
        if self.place is None and len(y) != 1:
            raise WrongValue(f"One target is to be measured; these records have {len(y)}.")
        if not 0 <= (place := self.place or 0) < len(y):
            raise WrongValue(f"There is no target at place {place}; these records have {len(y)}.")
        known, low, high = ~np.isnan(y[place]), self.center - self.reach, self.center + self.reach
        # Clipped before it is divided, so that no target overflows, and again, since quotients are rounded.
        inside = np.clip(np.where(known, y[place], self.center), low, high)
        scaled = np.clip((inside - self.center) / self.reach, -1.0, 1.0)
        u = np.rint(scaled * 2**FEATURE_BITS).astype(np.int64)
        terms = np.stack([PRESENT * known, u, u**2 >> FEATURE_BITS])
        if records.weights is not None:
            terms = terms * records.weights
        total: IntVector = terms.sum(axis=1, dtype=np.int64)
        return total

    def distances(
        self, one: IntVector, other: IntVector, row: RowBounds, neighbours: Neighbours
    ) -> list[Distance]:
        """The diameter of the three terms of one unit (PRIVACY_MATH §17)."""
        return [(_squares(one, other), target_squared(neighbours))]


PRESENT = math.isqrt(2 * 4**FEATURE_BITS)  # what a present target adds to the count of such targets


def target_squared(neighbours: Neighbours) -> int:
    """Return the squared l2 sensitivity of a `TargetSum`, on the integers.

    With |u| <= 1 the points (sqrt(2), u, u^2) are at most 2 apart, and at most 2 from (0, 0, 0), where a
    target is missing: (u - u')^2 (1 + (u + u')^2) <= 4, and 2 + u^2 + u^4 <= 4 (PRIVACY_MATH §17). Rounding
    squares down moves two points apart by less than one unit of the grid.
    """
    apart = (2 * 2**FEATURE_BITS + 1) ** 2
    return neighbours.weight**2 * neighbours.squared_diameter(apart, apart)


def _sent(theta: Vector, d: int) -> tuple[NDArray[np.int32], float]:
    """An iterate in fixed point, and its unit."""
    integers, unit = fixed_point(theta)
    _check_point(theta, d)
    return integers, unit


def _check_point(theta: Vector, d: int) -> None:
    if len(theta) != d:
        raise WrongValue(f"theta has {len(theta)} rows, but the records have {d} features.")


def _work(records: Records, outputs: int) -> int:
    """Products that a pass over the rows costs; one of compressed rows is worth about four dense ones."""
    rows = records.rows
    return outputs * (rows.size * (1 if isinstance(rows, Dense) else 4) + SLOPE_WORK * records.n)


def _in_threads(part: Any, records: Records, count: int, work: int, bound: ResidualBound) -> list[Any]:
    return in_threads(part, count, work, threads=records.threads, largest=records_at_once(bound))


def _whole(records: Records, sums: IntVector, theta: Vector) -> IntVector:
    """Sums (K, d), the stored features' in units of their step until now, in the shape of theta."""
    sums[:, : records.rows.shape[1]] *= records.step
    return sums.T.copy().reshape(np.shape(theta))


def _squares(one: IntVector, other: IntVector) -> int:
    """Squared l2 distance of two answers, in Python's integers."""
    return sum((int(a) - int(b)) ** 2 for a, b in zip(one.flat, other.flat, strict=True))
