"""Records in memory: a data source over arrays, dense or compressed.

Records are private, so these classes are no dataclasses and print nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpcvx.arrays import IntVector, Vector
from dpcvx.data.lattice import (
    FEATURE_BITS,
    LARGEST_INTEGER,
    ResidualBound,
    exact_sum,
    fixed_point,
    integer_bounds,
    records_at_once,
)
from dpcvx.data.margins import MarginsInMemory
from dpcvx.data.objective import Objective
from dpcvx.data.quantise import Quantiser, enforce, targets
from dpcvx.data.rows import Dense, Sparse, whole_rows
from dpcvx.data.source import Points
from dpcvx.data.threads import SLOPE_WORK, in_threads
from dpcvx.losses import Loss
from dpcvx.problem import Bounds
from dpcvx.words import counted

if TYPE_CHECKING:
    from dpcvx.data.curvature import CurvatureBound, Sums
    from dpcvx.data.gram_scores import Linear
    from dpcvx.data.lazy_scores import Lazy, Terms

__all__ = ["Arrays", "source"]

BLOCK_BYTES = 2**18  # rows read twice by a gradient pass; stays in a core's second-level cache


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
    return Arrays(Quantiser(bounds).quantise(X), values, bounds=bounds, layout=layout)


class Arrays:
    """Records in memory, dense or compressed.

    Parameters
    ----------
    rows : Dense or Sparse
        Stored integers, as `Quantiser.quantise` returns them.
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

    def mapped(self, door: Quantiser, center: float, scale: float) -> Arrays:
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

    def follow(self, loss: Loss, outputs: int) -> MarginsInMemory:
        """Return margins that start at w = 0."""
        y, columns = self._targets(loss, outputs), self._column_major()
        return MarginsInMemory(columns, y, loss, outputs, accumulate=self.accumulated, threads=self._threads)

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
        """Apply a function to ranges that cover 0..count, in the threads of this source."""
        return in_threads(part, count, work, threads=self._threads, largest=largest)

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
