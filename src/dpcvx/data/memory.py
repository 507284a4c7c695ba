"""Records in memory: a data source over arrays, dense or compressed.

Records are private, so these classes are no dataclasses and print nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpcvx.accounting import WEIGHT
from dpcvx.arrays import IntVector, Vector
from dpcvx.data.lattice import ResidualBound, exact_sum, integer_bounds, records_at_once
from dpcvx.data.margins import MarginsInMemory
from dpcvx.data.objective import Objective
from dpcvx.data.quantise import Quantiser, enforce, remap, targets
from dpcvx.data.rows import Dense, Records, Sparse, targets_for, whole_rows
from dpcvx.data.sums import GradientSum, Sum
from dpcvx.data.threads import in_threads
from dpcvx.errors import WrongValue
from dpcvx.losses import Loss
from dpcvx.problem import Bounds
from dpcvx.words import quantity

if TYPE_CHECKING:
    from dpcvx.data.gram_scores import Linear
    from dpcvx.data.lazy_scores import Lazy, Terms

__all__ = ["Arrays", "source"]

Answer = TypeVar("Answer")
SHORT_ROW = 64  # below this many features, gradients are summed faster feature-major; measured


def source(
    X: Any, y: Any = None, *, bounds: Bounds, layout: str = "rows", missing: float = math.nan
) -> Arrays:
    """Clip and quantise records in scaled units.

    Parameters
    ----------
    X : array-like, SciPy sparse matrix, or pandas / polars / Arrow table, shape (n, d)
        Records; they are clipped to the bounds, and cells that are not finite numbers count as 0.
    y : array-like, shape (n,) or (n, K), optional
        Targets, labels -1 and 1, or class codes 0, 1, ... for a joint loss.
    bounds : Bounds
        Public bounds of one record.
    layout : {"rows", "columns"}
        "rows" serves gradients, "columns" Frank-Wolfe; the other is made when first needed.
    missing : float
        Value of a target that is not a finite number; by default NaN: the record is left out of the loss.

    Returns
    -------
    Arrays
        The data source.
    """
    values = None if y is None else targets(y, bounds.y, missing)
    return Arrays(Quantiser(bounds).quantise(X), values, bounds=bounds, layout=layout)


class Arrays:
    """Records in memory, dense or compressed.

    `rows`: stored integers, as `Quantiser.quantise` returns them.
    `y`: ndarray of float64, shape (n, K), targets, as `targets` returns them.
    `bounds`: known bounds of the quantised rows; without them `within` goes over all rows.
    `layout`: {"rows", "columns"}, storage order to keep; the other is made when first needed.
    `threads`: threads of a pass; by default one per core where the work is worth it. No answer depends on it.
    `block_rows`: rows of a block. No answer depends on it.
    `step`: unit of the values of the rows, in units of 2^-14: 2^14 where they are -1, 0 and 1.
    `constant`: value of a last feature that is the same in every row and is not among them; 0 for none.
    `weights`: ndarray of integers, shape (n,): weights of the rows, those of a person at most 2^14 together.
    `units`: public number of persons, if rows have weights; the number of rows is then private.
    `owners`: ndarray of integers, shape (n,): number of each row's person, -1 for none.
    `offsets`: ndarray of float64, shape (n,): added to the scores of the rows; finite.
    """

    n: int
    d: int
    weighted: bool

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
        weights: IntVector | None = None,
        units: int | None = None,
        owners: IntVector | None = None,
        offsets: Vector | None = None,
    ) -> None:
        if layout not in ("rows", "columns"):
            raise WrongValue(f"layout must be 'rows' or 'columns', got {layout!r}.")
        if layout == "columns":
            rows, step, constant = whole_rows(rows, step, constant), 1, 0
        self._count, self.d = rows.shape[0], rows.shape[1] + (constant > 0)
        self.n = self._count if units is None else units
        if y is not None and y.shape[0] != self._count:
            raise WrongValue(f"X has {quantity(self._count, 'row')} but y has {y.shape[0]}; they must agree.")
        for name, value in (("threads", threads), ("block_rows", block_rows)):
            if value is not None and value < 1:
                raise WrongValue(f"{name} must be at least 1, got {value}.")
        targets = np.zeros((0, self._count)) if y is None else y.T
        self.weighted, self._owners = weights is not None, owners
        self._offset = offsets is not None
        if offsets is not None:
            targets = np.vstack([targets, offsets])
        if weights is not None:
            if weights.min() < 0 or weights.max() > WEIGHT:  # computed by the package, not by the user
                raise WrongValue(f"Weights must be integers from 0 to {WEIGHT}.")
            targets = np.vstack([targets, weights])
        self._y = np.ascontiguousarray(targets, dtype=np.float64)
        self._rows = rows if layout == "rows" else None
        self._columns = rows.transpose() if layout == "columns" else None
        self._size = rows.size
        self._bounds = bounds
        self._layout, self._threads = layout, threads
        self._extra = step, constant
        self._block_rows = block_rows

    def within(self, bounds: Bounds) -> Arrays:
        """Return these records with every stored row inside the bounds: a longer one is shrunk."""
        if self._bounds is not None:
            enforced, wanted = (integer_bounds(each, self.d) for each in (self._bounds, bounds))
            if enforced[0] <= wanted[0] and enforced[1] <= wanted[1]:
                return self
        rows = enforce(self._whole_rows(), bounds, self._extra[1])
        return self._again(replace(self.records(), rows=rows, step=1, constant=0), bounds)

    def sum(self, question: Sum[Answer]) -> Answer:
        """Return an exact sum over all records."""
        held = self.records()
        if isinstance(question, GradientSum) and self._extra == (1, 0) and self.d < SHORT_ROW:
            columns = self._column_major()
            if isinstance(columns, Dense):
                held = replace(held, columns=columns)
        return question.of(held)

    def objective(self, loss: Loss, outputs: int, z_max: float) -> Objective:
        """Return the sum of the losses, phi continued along its tangent beyond |z| = z_max."""
        held = self.records()
        y = held.targets(loss, outputs)
        weights = held.weights
        if weights is None:
            return Objective(self._whole_rows(), y, loss, z_max)
        return Objective(self._whole_rows(), y[:-1], loss, z_max, weights / WEIGHT, self.n)

    def mapped(self, quantiser: Quantiser | None, center: float | Vector, scale: float | Vector) -> Arrays:
        """Return these records with rows quantised again and targets (y - center)/scale, a public map."""
        if quantiser is None:
            again = copy(self)
            again._y = remap(self.records(), None, center, scale).y
            return again
        return self._again(remap(self.records(), quantiser, center, scale), quantiser.bounds)

    def _again(self, records: Records, bounds: Bounds) -> Arrays:
        """A source of the same records after a map, kept alike."""
        weights, targets = records.weights, records.outcomes
        return Arrays(
            records.rows,
            records.y[:targets].T,
            bounds=bounds,
            layout=self._layout,
            threads=self._threads,
            block_rows=self._block_rows,
            weights=weights,
            units=self.n if self.weighted else None,
            owners=records.owners,
            offsets=records.y[targets] if records.offset else None,
        )

    @property
    def weight(self) -> int:
        """Largest sum of the weights of a person: 1 where rows have none."""
        return WEIGHT if self.weighted else 1

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

        if self.weighted:
            raise WrongValue("Lazy scores cannot be used with weights: they are rounded row by row.")
        rows, columns = self._whole_rows(), self._column_major()
        if not (isinstance(rows, Sparse) and isinstance(columns, Sparse)):
            raise WrongValue("Lazy scores need compressed records; these are dense.")
        return LazyScores(rows, columns, self._targets(loss, 1), loss, terms)

    def follow_products(self, loss: Loss) -> Linear:
        """Return scores of unclipped residuals that start at w = 0."""
        from dpcvx.data import kernels
        from dpcvx.data.gram_scores import GramScores

        if self.weighted:
            raise WrongValue("Products of columns cannot be used with weights.")
        columns = self._column_major()
        if not isinstance(columns, Dense):
            raise WrongValue("Products of columns need dense records; these are compressed.")

        def product(vector: NDArray[np.int32]) -> NDArray[np.int64]:
            sums = np.empty((1, self.d), dtype=np.int64)

            def part(start: int, stop: int) -> None:
                kernels.multiply_dense(columns.values, vector, start, stop, start, sums)

            self.parts(part, self.d, columns.size)
            return sums.reshape(-1)

        # No residual will be clipped, so the targets are: a source may have been made with wider bounds.
        return GramScores(columns, np.clip(self._targets(loss, 1)[0], *loss.y_range), product)

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

        parts = self.parts(part, self._count, self._size * rho.shape[0], records_at_once(bound))
        return exact_sum(parts, self._count, bound)

    def records(self) -> Records:
        """Return rows and targets, for another place that sums them."""
        return Records(
            self._row_major(),
            self._y,
            *self._extra,
            self._threads,
            self._block_rows,
            self.weighted,
            self._owners,
            self._offset,
        )

    def parts(
        self, part: Callable[[int, int], Any], count: int, work: int, largest: int | None = None
    ) -> list[Any]:
        """Apply a function to ranges that cover 0..count, in the threads of this source."""
        return in_threads(part, count, work, threads=self._threads, largest=largest)

    def _targets(self, loss: Loss, outputs: int) -> Vector:
        return targets_for(loss, outputs, self._y, self.weighted, self._offset)

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
