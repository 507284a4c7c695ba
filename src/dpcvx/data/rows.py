"""Stored rows of integers, dense or compressed, and records: rows with their targets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcvx.arrays import Vector
from dpcvx.errors import WrongValue
from dpcvx.losses import Loss

__all__ = ["Dense", "Records", "Sparse", "dense_block", "targets_for", "whole_rows"]

BLOCK_BYTES = 2**18  # rows read twice by a gradient pass; stays in a core's second-level cache


class Dense:
    """Stored rows as one matrix of 16-bit integers, row-major.

    `values`: ndarray of int16, shape (n, d), c-contiguous.
    """

    def __init__(self, values: NDArray[np.int16]) -> None:
        self.values = values

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.values.shape[0], self.values.shape[1]

    @property
    def size(self) -> int:
        """Number of stored integers."""
        return self.values.size

    def transpose(self) -> Dense:
        """Return the same integers, feature-major."""
        n, d = self.shape
        values = np.empty((d, n), dtype=self.values.dtype)
        tile = 256  # a tile of both matrices stays in cache
        for i in range(0, n, tile):
            for j in range(0, d, tile):
                values[j : j + tile, i : i + tile] = self.values[i : i + tile, j : j + tile].T
        return Dense(values)


class Sparse:
    """Stored rows in compressed form; an entry that is not stored is 0.

    `indptr`: ndarray of int64, shape (n + 1,), row i is at positions indptr[i] to indptr[i + 1]; `indices`:
    columns, ascending and unique within a row; `values`: the integers; `columns`: number of columns.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[Any]
    values: NDArray[np.int16]

    def __init__(
        self, indptr: NDArray[np.int64], indices: NDArray[Any], values: NDArray[np.int16], columns: int
    ) -> None:
        self.indptr, self.indices, self.values = indptr, indices, values
        self._columns = columns

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.indptr.shape[0] - 1, self._columns

    @property
    def size(self) -> int:
        """Number of stored integers."""
        return self.values.size

    def transpose(self) -> Sparse:
        """Return the same integers, feature-major."""
        from scipy.sparse import csr_array

        flipped = csr_array((self.values, self.indices, self.indptr), shape=self.shape).tocsc()
        return Sparse(flipped.indptr.astype(np.int64), flipped.indices, flipped.data, self.shape[0])


def whole_rows(rows: Dense | Sparse, step: int = 1, constant: int = 0) -> Dense | Sparse:
    """Return 16-bit rows of values stored in units of ``step``, with a last feature that is a constant.

    `rows`: what is stored, 8-bit or 16-bit integers; `step`: their unit, in units of 2^-14; `constant`: value
    of the last feature in every row; 0 for none.
    """
    if step == 1 and constant == 0:
        return rows
    n, d = rows.shape
    if isinstance(rows, Dense):
        values = np.full((n, d + (constant > 0)), constant, dtype=np.int16)
        values[:, :d] = rows.values
        values[:, :d] *= step
        return Dense(values)
    entries, indices, indptr = rows.values.astype(np.int16) * np.int16(step), rows.indices, rows.indptr
    if constant:
        entries = np.insert(entries, indptr[1:], constant)
        indices = np.insert(indices, indptr[1:], d)
        indptr = indptr + np.arange(n + 1)
    return Sparse(indptr, indices, entries, d + (constant > 0))


def dense_block(rows: Dense | Sparse, start: int, stop: int) -> NDArray[np.int16]:
    """Return rows start to stop with all their cells."""
    if isinstance(rows, Dense):
        return rows.values[start:stop]
    from scipy.sparse import csr_array

    part = slice(rows.indptr[start], rows.indptr[stop])
    block = csr_array(
        (rows.values[part], rows.indices[part], rows.indptr[start : stop + 1] - rows.indptr[start]),
        shape=(stop - start, rows.shape[1]),
    )
    full: NDArray[np.int16] = block.toarray()
    return full


def targets_for(loss: Loss, outputs: int, y: Vector, weighted: bool = False, offset: bool = False) -> Vector:
    """Return targets (K, n), and refuse those of another kind than the loss takes.

    `weighted`: whether a last row of y, which stays, holds weights; `offset`: whether a row before it holds
    offsets of scores.
    """
    if len(y) == weighted + offset:
        raise WrongValue("These records have no targets; give y when the source is made.")
    if offset != loss.offset:
        raise WrongValue(f"{type(loss).__name__} and its records disagree on whether scores have offsets.")
    width = 1 if loss.joint else outputs
    if y.shape[0] != width + weighted + offset:
        raise WrongValue(f"{type(loss).__name__} with {outputs} output(s) needs y with {width} column(s).")
    return y


@dataclass(frozen=True, eq=False, repr=False)
class Records:
    """Records in memory as sums read them."""

    rows: Dense | Sparse  # stored integers, row-major
    # shape (K, n): targets; K = 0 without any. Where records have offsets of scores, a row with these
    # follows, and a last row with weights where records have weights.
    y: Vector
    step: int = 1  # unit of the stored integers, in units of 2^-14: 2^14 where they are -1, 0 and 1
    constant: int = 0  # value of a last feature that is the same in every row and is not stored; 0 for none
    # threads of a pass; by default one per core where the work is worth it. No answer depends on it.
    threads: int | None = None
    block_rows: int | None = None  # rows of a block. No answer depends on it.
    # whether records have weights: integers from 0 to 2^14, and those of a person add up to at most 2^14
    weighted: bool = False
    owners: NDArray[np.int64] | None = None  # number of each record's person, -1 for none; private
    offset: bool = False  # whether scores have offsets
    # the rows feature-major, where a source keeps them and nothing is left out. No answer depends on it.
    columns: Dense | None = None

    @property
    def outcomes(self) -> int:
        """Number of rows of y that hold targets: those that a map of targets changes."""
        return len(self.y) - self.weighted - self.offset

    @property
    def weights(self) -> NDArray[np.int64] | None:
        """Weights of the records, (n,); None without."""
        return self.y[-1].astype(np.int64) if self.weighted else None

    @property
    def n(self) -> int:
        """Number of records."""
        return self.rows.shape[0]

    @property
    def d(self) -> int:
        """Number of features."""
        return self.rows.shape[1] + (self.constant > 0)

    @property
    def left_out(self) -> tuple[int, int]:
        """Step and constant."""
        return self.step, self.constant

    @property
    def block(self) -> int:
        """Rows of a block."""
        row_bytes = max(1, 2 * self.rows.size // self.n)
        return self.block_rows or min(self.n, max(8, BLOCK_BYTES // row_bytes))

    def targets(self, loss: Loss, outputs: int) -> Vector:
        """Return the targets, and refuse those of another kind than the loss takes; weights follow them."""
        known = targets_for(loss, outputs, self.y, self.weighted, self.offset)
        return np.ascontiguousarray(known, dtype=np.float64)

    def whole_rows(self) -> Dense | Sparse:
        """Return 16-bit rows with nothing left out."""
        return whole_rows(self.rows, *self.left_out)

    def part(self, start: int, stop: int | None) -> Records:
        """Return some of the records; nothing is copied."""
        rows, n = self.rows, self.n
        stop = n if stop is None else stop
        if start == 0 and stop == n:
            return self
        owners = None if self.owners is None else self.owners[start:stop]
        if isinstance(rows, Dense):
            some: Dense | Sparse = Dense(rows.values[start:stop])
        else:
            indptr = rows.indptr[start : stop + 1]
            entries = slice(indptr[0], indptr[-1])
            some = Sparse(indptr - indptr[0], rows.indices[entries], rows.values[entries], rows.shape[1])
        return replace(self, rows=some, y=self.y[:, start:stop], owners=owners, columns=None)
