"""Where records live: a `DataSource` answers with exact sums over them, never with rows.

Mechanisms are its only callers. Records are private, so these classes are no dataclasses and print nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise
from threading import Thread
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dpcvx.arrays import IntVector, Vector
from dpcvx.data.quantise import (
    FEATURE_BITS,
    Dense,
    Door,
    ResidualBound,
    Sparse,
    enforce,
    fixed_point,
    integer_bounds,
    targets,
    whole_rows,
)
from dpcvx.errors import counted
from dpcvx.losses import Loss
from dpcvx.problem import Bounds

if TYPE_CHECKING:
    from dpcvx.data.curvature import CurvatureBound, Sums
    from dpcvx.data.gram_scores import Linear
    from dpcvx.data.lazy_scores import Lazy, Terms
    from dpcvx.mechanisms.minimise import Objective, SumOfLosses

__all__ = [
    "Arrays",
    "CanStandardise",
    "DataSource",
    "HasCurvatureSum",
    "Margins",
    "Points",
    "exact_sum",
    "records_at_once",
    "source",
]

BLOCK_BYTES = 2**18  # rows read twice by a gradient pass; stays in a core's second-level cache
WORK_PER_THREAD = 2**19  # below this many products a thread costs more than it saves
SLOPE_WORK = 32  # a slope costs about so many products
LARGEST_SUM = 2**62  # PRIVACY_MATH §11b (ii): a sum of 64-bit integers, and noise as large, do not overflow
LARGEST_INTEGER = 2**15  # of a stored row

Points = tuple[Vector, Vector]


class DataSource(Protocol):
    """The only door to records: exact sums come out, rows never do.

    Sums are 64-bit integers, or Python's own where public numbers say that 62 bits might not hold them: see
    `exact_sum`.
    """

    @property
    def n(self) -> int:
        """Number of records."""

    @property
    def d(self) -> int:
        """Number of stored features."""

    def within(self, bounds: Bounds) -> DataSource:
        """Return these records with every stored row inside the bounds: a longer one is shrunk."""

    def gradient_sum(self, loss: Loss, theta: Vector, bound: ResidualBound) -> IntVector:
        """Return sum_i rho_i k_i in units of 2^-34, in the shape of theta."""

    def difference_sum(
        self, loss: Loss, points: Points, batch: IntVector, residual: ResidualBound, bound: ResidualBound
    ) -> IntVector:
        """Return sum_i (rho_i - rho'_i) k_i over the rows of a batch, in the shape of an iterate.

        rho_i and rho'_i are the residuals at the two points, each within ``residual``; their difference is
        clipped to ``bound``. Units of 2^-34.
        """

    def objective(self, loss: Loss, outputs: int, z_max: float) -> SumOfLosses:
        """Return the sum of the losses in float64, for minimisers that run beside the records."""

    def follow(self, loss: Loss, outputs: int) -> Margins:
        """Return margins that are kept up to date while an iterate moves along coordinates."""


@runtime_checkable
class HasCurvatureSum(Protocol):
    """What a source may be able to do besides; a question that needs it refuses others."""

    def curvature_sum(self, loss: Loss, theta: Vector, slope: ResidualBound, bend: CurvatureBound) -> Sums:
        """Return the sums of `dpcvx.data.curvature.curvature_sum` over all records."""


@runtime_checkable
class CanStandardise(Protocol):
    """What a source may be able to do besides: measure its records, and send them through a second door."""

    def moments(self, order: int, centers: IntVector, limits: IntVector) -> IntVector:
        """Return the sums of (k - c)^order over the records, |k - c| clipped to a limit, per column.

        Columns are the stored features and then as many targets, rounded to the same grid, as there are
        centres left. In units of 2^-14 to the power of the order.
        """

    def length(self) -> IntVector:
        """Return the sum of ||k_i||^2, one entry."""

    def mapped(self, door: Door, center: float, scale: float) -> DataSource:
        """Return these records after a second, public map: the door's on rows, (y - center)/scale on y."""


class Margins(Protocol):
    """Integer margins m_i = sum_j k_ij w_j of every record, for public integer weights w.

    One weight changes at a time. The caller keeps 2^15 ||w||_1 below 2^62.
    """

    def reset(self) -> None:
        """Set w = 0."""

    def add(self, index: int, amount: int) -> None:
        """w[index] += amount, with index = j * outputs + k."""

    def scores(self, scale: float, bound: ResidualBound) -> IntVector:
        """Return sum_i rho_i k_ij, (d,) or (d, K), with rho_i the residual at z_i = m_i * scale."""


def source(X: Any, y: Any = None, *, bounds: Bounds, layout: str = "rows", missing: float = 0.0) -> Arrays:
    """Take records in scaled units through the door.

    Parameters
    ----------
    X : array-like, SciPy sparse matrix, or pandas / polars / Arrow table, shape (n, d)
        Records; they are clipped to the bounds, and cells that are no finite numbers count as 0.
    y : array-like, shape (n,) or (n, K), optional
        Targets, labels -1 and 1, or class codes 0, 1, ... for a joint loss.
    bounds : Bounds
        Public bounds of one record.
    layout : {"rows", "columns"}
        "rows" serves gradients, "columns" Frank-Wolfe; the other is made when first needed.
    missing : float
        What a target that is no finite number becomes: 0 is the middle of the bounds, or no label; among
        class codes give -1, since 0 is a class.

    Returns
    -------
    Arrays
        The data source.
    """
    values = None if y is None else targets(y, bounds.y, missing)
    return Arrays(Door(bounds).quantise(X), values, bounds=bounds, layout=layout)


class Arrays:
    """Records in memory, dense or compressed.

    Parameters
    ----------
    rows : Dense or Sparse
        Stored integers, as `Door.quantise` returns them.
    y : ndarray of float64, shape (n, K), optional
        Targets, as `targets` returns them.
    bounds : Bounds, optional
        Bounds that the door enforced on the rows; without them `within` goes over all rows.
    layout : {"rows", "columns"}
        Storage order to keep; the other is made when first needed.
    threads : int, optional
        Threads of a pass; by default one per core where the work is worth it. No answer depends on it.
    block_rows : int, optional
        Rows of a block. No answer depends on it.
    step : int
        Unit of the values of the rows, in units of 2^-14: 2^14 where they are -1, 0 and 1.
    constant : int
        Value of a last feature that is the same in every row and is not among them; 0 for none.
    """

    def __init__(
        self,
        rows: Dense | Sparse,
        y: Vector | None = None,
        *,
        bounds: Bounds | None = None,
        layout: str = "rows",
        threads: int | None = None,
        block_rows: int | None = None,
        step: int = 1,
        constant: int = 0,
    ) -> None:
        if layout not in ("rows", "columns"):
            raise ValueError(f"layout must be 'rows' or 'columns', got {layout!r}.")
        if layout == "columns":
            rows, step, constant = whole_rows(rows, step, constant), 1, 0
        self.n, self.d = rows.shape[0], rows.shape[1] + (constant > 0)
        if y is not None and y.shape[0] != self.n:
            raise ValueError(f"X has {counted(self.n, 'row')} but y has {y.shape[0]}; they must agree.")
        for name, value in (("threads", threads), ("block_rows", block_rows)):
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}.")
        self._y = None if y is None else np.ascontiguousarray(y.T, dtype=np.float64)
        self._rows = rows if layout == "rows" else None
        self._columns = rows.transpose() if layout == "columns" else None
        self._size = rows.size
        self._bounds = bounds
        self._layout, self._threads = layout, threads
        self._extra = step, constant
        row_bytes = max(1, 2 * rows.size // self.n)
        self._block_rows = block_rows or min(self.n, max(8, BLOCK_BYTES // row_bytes))

    def within(self, bounds: Bounds) -> Arrays:
        """Return these records with every stored row inside the bounds: a longer one is shrunk."""
        if self._bounds is not None:
            enforced, wanted = (integer_bounds(each, self.d) for each in (self._bounds, bounds))
            if enforced[0] <= wanted[0] and enforced[1] <= wanted[1]:
                return self
        y = None if self._y is None else self._y.T
        return Arrays(
            enforce(self._whole_rows(), bounds),
            y,
            bounds=bounds,
            layout=self._layout,
            threads=self._threads,
            block_rows=self._block_rows,
        )

    def gradient_sum(self, loss: Loss, theta: Vector, bound: ResidualBound) -> IntVector:
        """Return sum_i rho_i k_i in units of 2^-34, in the shape of theta."""
        from dpcvx.data import kernels

        integers, unit = self._sent(theta)
        outputs, d = integers.shape
        y = self._targets(loss, outputs)
        rows = self._row_major()
        residuals = kernels.residuals_of(loss.slope, loss.joint)
        rest = (residuals, unit, loss.parameter, bound.l2, bound.linf)

        def part(start: int, stop: int) -> IntVector:
            sums = np.zeros((outputs, d), dtype=np.int64)
            where = (start, stop, min(self._block_rows, stop - start), self._extra, sums)
            if isinstance(rows, Dense):
                kernels.gradient_dense(rows.values, y, integers, *rest, *where)
            else:
                kernels.gradient_sparse(rows.indptr, rows.indices, rows.values, y, integers, *rest, *where)
            return sums

        parts = self.parts(part, self.n, self._work(outputs), records_at_once(bound))
        sums = self._total(parts, self.n, bound)
        return sums.T.copy().reshape(np.shape(theta))

    def difference_sum(
        self, loss: Loss, points: Points, batch: IntVector, residual: ResidualBound, bound: ResidualBound
    ) -> IntVector:
        """Return sum_i (rho_i - rho'_i) k_i over the rows of a batch, in the shape of an iterate."""
        from dpcvx.data import kernels

        (first, first_unit), (second, second_unit) = (self._sent(theta) for theta in points)
        outputs, d = first.shape
        if second.shape != first.shape:
            raise ValueError(f"The points have shapes {np.shape(points[0])} and {np.shape(points[1])}.")
        y = self._targets(loss, outputs)
        rows = self._row_major()
        function = kernels.residuals_of(loss.slope, loss.joint)
        rest = (float(loss.parameter), residual.l2, residual.linf)
        public = (first, second), (first_unit, second_unit), function, rest, (bound.l2, bound.linf)

        def part(start: int, stop: int) -> IntVector:
            sums = np.zeros((outputs, d), dtype=np.int64)
            where = (start, stop, min(self._block_rows, stop - start), self._extra, sums)
            if isinstance(rows, Dense):
                kernels.difference_dense(rows.values, y, batch, *public, *where)
            else:
                kernels.difference_sparse(rows.indptr, rows.indices, rows.values, y, batch, *public, *where)
            return sums

        work = 2 * self._work(outputs) * len(batch) // self.n
        parts = self.parts(part, len(batch), work, records_at_once(bound))
        sums = self._total([np.zeros((outputs, d), dtype=np.int64), *parts], len(batch), bound)
        return sums.T.copy().reshape(np.shape(points[0]))

    def objective(self, loss: Loss, outputs: int, z_max: float) -> Objective:
        """Return the sum of the losses, phi continued along its tangent beyond |z| = z_max."""
        from dpcvx.mechanisms.minimise import Objective

        return Objective(self._whole_rows(), self._targets(loss, outputs), loss, z_max)

    def curvature_sum(self, loss: Loss, theta: Vector, slope: ResidualBound, bend: CurvatureBound) -> Sums:
        """Return the sums of `dpcvx.data.curvature.curvature_sum` over all records."""
        from dpcvx.data.curvature import curvature_sum

        return curvature_sum(self._whole_rows(), self._targets(loss, 1), loss, theta, (slope, bend))

    def moments(self, order: int, centers: IntVector, limits: IntVector) -> IntVector:
        """Return the sums of (k - c)^order over the records, |k - c| clipped to a limit, per column."""
        d, step = self.d, self._block_rows
        values = self._dense_rows()
        y = np.zeros((0, self.n)) if self._y is None else self._y[: len(centers) - d]
        if len(y) < len(centers) - d:
            raise ValueError(f"{len(centers) - d} target(s) are to be measured; these records have {len(y)}.")
        total = np.zeros(len(centers), dtype=np.int64)
        for start in range(0, self.n, step):
            targets = np.clip(np.rint(y.T[start : start + step] * 2.0**FEATURE_BITS), -limits[d:], limits[d:])
            block = np.hstack([values[start : start + step], targets.astype(np.int64)]) - centers
            total += (np.clip(block, -limits, limits) ** order).sum(axis=0)
        return total

    def length(self) -> IntVector:
        """Return the sum of ||k_i||^2, one entry."""
        d = self.d
        squares = self.moments(2, np.zeros(d, dtype=np.int64), np.full(d, LARGEST_INTEGER))
        total: IntVector = squares.sum(keepdims=True)
        return total

    def mapped(self, door: Door, center: float, scale: float) -> Arrays:
        """Return these records after a second, public map: the door's on rows, (y - center)/scale on y."""
        unit = 2.0**FEATURE_BITS  # stored integers are read as they are, in blocks
        door = replace(door, center=unit * door.center, scale=unit * door.scale)
        return Arrays(
            door.quantise(self._dense_rows()),
            None if self._y is None else (self._y.T - center) / scale,
            bounds=door.bounds,
            layout=self._layout,
            threads=self._threads,
        )

    def _dense_rows(self) -> NDArray[np.int16]:
        rows = self._whole_rows()
        if not isinstance(rows, Dense):
            raise ValueError("Sparse records cannot be standardised: a centre would fill them.")
        return rows.values

    def follow(self, loss: Loss, outputs: int) -> Followed:
        """Return margins that start at w = 0."""
        return Followed(self, loss, self._targets(loss, outputs), self._column_major(), outputs)

    @property
    def sparse(self) -> bool:
        """Whether rows are compressed."""
        return isinstance(self._rows or self._columns, Sparse)

    def follow_lazily(self, loss: Loss, terms: Terms) -> Lazy:
        """Return lazy scores that start at w = 0."""
        from dpcvx.data.lazy_scores import LazyScores

        rows, columns = self._whole_rows(), self._column_major()
        if not (isinstance(rows, Sparse) and isinstance(columns, Sparse)):
            raise ValueError("Lazy scores need compressed records; these are dense.")
        return LazyScores(rows, columns, self._targets(loss, 1), loss, terms)

    def follow_products(self, loss: Loss) -> Linear:
        """Return scores of unclipped residuals that start at w = 0."""
        from dpcvx.data import kernels
        from dpcvx.data.gram_scores import GramScores

        columns = self._column_major()
        if not isinstance(columns, Dense):
            raise ValueError("Products of columns need dense records; these are compressed.")

        def product(vector: NDArray[np.int32]) -> NDArray[np.int64]:
            sums = np.empty((1, self.d), dtype=np.int64)

            def part(start: int, stop: int) -> None:
                kernels.multiply_dense(columns.values, vector, start, stop, start, sums)

            self.parts(part, self.d, columns.size)
            return sums.reshape(-1)

        # No residual will be clipped, so the targets are: a source may have been made with wider bounds.
        return GramScores(columns, np.clip(self._targets(loss, 1), *loss.y_range), product)

    def accumulated(self, rho: NDArray[np.int32], bound: ResidualBound) -> IntVector:
        """Return sum_i rho_i k_i, (K, d), for any number of records: a range of rows at a time."""
        from dpcvx.data import kernels

        rows = self._whole_rows()

        def part(start: int, stop: int) -> IntVector:
            sums = np.zeros((rho.shape[0], self.d), dtype=np.int64)
            weights = np.ascontiguousarray(rho[:, start:stop])
            if isinstance(rows, Dense):
                kernels.accumulate_dense(rows.values, weights, start, stop, sums)
            else:
                kernels.accumulate_sparse(rows.indptr, rows.indices, rows.values, weights, start, stop, sums)
            return sums

        parts = self.parts(part, self.n, self._size * rho.shape[0], records_at_once(bound))
        return exact_sum(parts, self.n, bound)

    def rows(self) -> Dense | Sparse:
        """Return the stored rows, for another place that sums them."""
        return self._whole_rows()

    def residuals(
        self,
        loss: Loss,
        margins: NDArray[np.int64],
        first: int,
        unit: float,
        bound: ResidualBound,
        rho: NDArray[np.int32],
    ) -> None:
        """Write the residuals of a block of records at z_i = m_i * unit, for whoever sums their rows.

        Parameters
        ----------
        loss : Loss
        margins : ndarray of int64, shape (K, m)
            Of the m records that begin with number ``first``.
        first : int
        unit : float
        bound : ResidualBound
        rho : ndarray of int32, shape (K, m)
            Where they are written.
        """
        from dpcvx.data import kernels

        function = kernels.residuals_of(loss.slope, loss.joint)
        y = self._targets(loss, len(margins))
        rest = (unit, loss.parameter, bound.l2, bound.linf)

        def part(start: int, stop: int) -> None:
            kernels.block_residuals(function, margins, y, first, start, stop, *rest, rho)

        self.parts(part, margins.shape[1], SLOPE_WORK * margins.size)

    def parts(
        self, part: Callable[[int, int], Any], count: int, work: int, largest: int | None = None
    ) -> list[Any]:
        """Apply a function to ranges that cover 0..count, in threads: kernels release Python's lock.

        No range is longer than ``largest``.
        """
        threads = self._threads or max(1, min(cores(), work // WORK_PER_THREAD))
        threads = max(threads, 1 if largest is None else -(-count // largest))
        edges = [count * t // threads for t in range(threads + 1)]
        ranges = [(a, b) for a, b in pairwise(edges) if a < b]
        # Threads of its own for each pass, beside this one: nothing is left behind that a fork could lose.
        answers: list[Any] = [None] * len(ranges)
        failures: list[BaseException] = []

        def work_on(place: int) -> None:
            try:
                answers[place] = part(*ranges[place])
            except BaseException as failure:
                failures.append(failure)

        others = [Thread(target=work_on, args=(place,)) for place in range(1, len(ranges))]
        for other in others:
            other.start()
        if ranges:
            work_on(0)
        for other in others:
            other.join()
        if failures:
            raise failures[0]
        return answers

    def _work(self, outputs: int) -> int:
        """Products that a pass over the rows costs; one of compressed rows is worth about four dense ones."""
        return outputs * (self._size * (4 if self.sparse else 1) + SLOPE_WORK * self.n)

    def _sent(self, theta: Vector) -> tuple[NDArray[np.int32], float]:
        """An iterate in fixed point, and its unit."""
        integers, unit = fixed_point(theta)
        if integers.shape[1] != self.d:
            raise ValueError(f"theta has {integers.shape[1]} rows, but the records have {self.d} features.")
        return integers, unit

    def _targets(self, loss: Loss, outputs: int) -> Vector:
        if self._y is None:
            raise ValueError("These records have no targets; give y when the source is made.")
        width = 1 if loss.joint else outputs
        if self._y.shape[0] != width:
            raise ValueError(
                f"{type(loss).__name__} with {outputs} output(s) needs y with {width} column(s)."
            )
        return self._y

    def _total(self, parts: Iterable[IntVector], count: int, bound: ResidualBound) -> IntVector:
        """Sum of partial sums (K, d), the stored features' in units of their step until now."""
        sums = exact_sum(parts, count, bound)
        step, constant = self._extra
        sums[:, : self.d - (constant > 0)] *= step
        return sums

    def _whole_rows(self) -> Dense | Sparse:
        return whole_rows(self._row_major(), *self._extra)

    def _row_major(self) -> Dense | Sparse:
        if self._rows is None:
            self._rows = self._column_major().transpose()
        return self._rows

    def _column_major(self) -> Dense | Sparse:
        if self._columns is None:
            self._columns = self._whole_rows().transpose()
        return self._columns


class Followed:
    """Margins of the records of an `Arrays` source, moved one feature-major column at a time."""

    def __init__(self, records: Arrays, loss: Loss, y: Vector, columns: Dense | Sparse, outputs: int) -> None:
        self._records, self._loss, self._y, self._columns = records, loss, y, columns
        self._margins: NDArray[np.int64] = np.zeros((outputs, records.n), dtype=np.int64)
        self._rho: NDArray[np.int32] = np.zeros((outputs, records.n), dtype=np.int32)

    def reset(self) -> None:
        """Set w = 0."""
        self._margins[:] = 0

    def add(self, index: int, amount: int) -> None:
        """w[index] += amount, with index = j * outputs + k."""
        from dpcvx.data import kernels

        outputs = self._margins.shape[0]
        if not 0 <= index < self._records.d * outputs:
            raise IndexError(f"index must be in 0..{self._records.d * outputs - 1}, got {index}.")
        j, k = divmod(index, outputs)
        columns = self._columns
        if isinstance(columns, Dense):
            kernels.add_dense(columns.values[j], amount, self._margins[k])
        else:
            start, stop = columns.indptr[j], columns.indptr[j + 1]
            kernels.add_sparse(
                columns.indices[start:stop], columns.values[start:stop], amount, self._margins[k]
            )

    def scores(self, scale: float, bound: ResidualBound) -> IntVector:
        """Return sum_i rho_i k_ij, (d,) or (d, K), with rho_i the residual at z_i = m_i * scale."""
        from dpcvx.data import kernels

        records, columns, rho = self._records, self._columns, self._rho
        function = kernels.residuals_of(self._loss.slope, self._loss.joint)
        rest = (scale, self._loss.parameter, bound.l2, bound.linf)
        outputs = rho.shape[0]
        sums = np.empty((outputs, records.d), dtype=np.int64)

        def residuals(start: int, stop: int) -> None:
            kernels.residuals(function, self._margins, self._y, start, stop, *rest, rho)

        def products(start: int, stop: int) -> None:
            if isinstance(columns, Dense):
                kernels.multiply_dense(columns.values, rho, start, stop, start, sums)
            else:
                kernels.multiply_sparse(
                    columns.indptr, columns.indices, columns.values, rho, start, stop, start, sums
                )

        records.parts(residuals, records.n, SLOPE_WORK * records.n * outputs)
        if records.n > records_at_once(bound):
            sums = records.accumulated(rho, bound)
        else:
            records.parts(products, records.d, columns.size * outputs)
        return sums[0] if outputs == 1 else sums.T.copy()


def records_at_once(bound: ResidualBound) -> int:
    """Return how many records a sum in 64-bit integers may have; at least 2^16."""
    return (LARGEST_SUM - 1) // (max(1, bound.linf) * LARGEST_INTEGER)


def exact_sum(parts: Iterable[IntVector], count: int, bound: ResidualBound) -> IntVector:
    """Add partial sums of at most `records_at_once` records each, exactly.

    Where public numbers say that 62 bits hold the whole, it is an array of 64-bit integers. Otherwise its
    entries are Python integers, which have no limit (PRIVACY_MATH §11b (ii)); the lattice is the same.

    Parameters
    ----------
    parts : iterable of IntVector
        At least one, all of one shape.
    count : int
        Records in all of them.
    bound : ResidualBound
        Of each of their residuals.
    """
    others = iter(parts)  # one at a time: there may be as many as shards, each as long as a row
    total: IntVector = next(others).astype(np.int64 if count <= records_at_once(bound) else object)
    for other in others:
        total += other
    return total


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
