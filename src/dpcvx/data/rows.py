"""Stored rows of 16-bit integers, dense or compressed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Dense", "Sparse", "whole_rows"]


class Dense:
    """Stored rows as one matrix of 16-bit integers, row-major.

    Parameters
    ----------
    values : ndarray of int16, shape (n, d)
        C-contiguous.
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

    Parameters
    ----------
    indptr : ndarray of int64, shape (n + 1,)
        Row i is at positions indptr[i] to indptr[i + 1].
    indices : ndarray of int32 or int64
        Columns, ascending and unique within a row.
    values : ndarray of int16
        The integers.
    columns : int
        Number of columns.
    """

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

    Parameters
    ----------
    rows : Dense or Sparse
        What is stored, 8-bit or 16-bit integers.
    step : int
        Their unit, in units of 2^-14.
    constant : int
        Value of the last feature in every row; 0 for none.
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
