"""Exact products of stored integers on a torch device, the same on any device.

One or a few vectors are multiplied by Triton kernels in 64-bit integers. Many are multiplied as matrices in
float64, in two halves of 16 and 15 bits: then every partial sum is an integer below 2^53, so that no order
and no fused operation of a library can round it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["DenseOnDevice", "SparseOnDevice"]

FEW = 4  # up to so many vectors, one pass over the rows for each is faster
LOW_BITS = 15
LONGEST = 2**22  # products of 15 and 16 bits that a float64 adds up without rounding
ENTRIES = 2**26  # of rows that are float64 at a time
ALIGNMENT = 16  # a row starts where 16-byte loads may start
SPARE = 2**10  # entries after the last row that a tile of the kernels may reach into


class DenseOnDevice:
    """Rows of 8-bit or 16-bit integers.

    `values`: ndarray of int8 or int16, shape (n, d).
    """

    def __init__(self, values: NDArray[Any], device: torch.device) -> None:
        n, d = values.shape
        kind = torch.int8 if values.dtype == np.int8 else torch.int16
        stride = -(-d // ALIGNMENT) * ALIGNMENT
        memory = torch.empty(n * stride + SPARE, dtype=kind, device=device)
        self.rows = memory[: n * stride].view(n, stride)[:, :d]
        height = max(1, ENTRIES // d)
        for start in range(0, n, height):
            self.rows[start : start + height] = _tensor(values[start : start + height]).to(device)

    def margins(self, vectors: torch.Tensor, start: int, stop: int) -> torch.Tensor:
        """Return <row i, vectors[k]> for rows start to stop, shape (K, stop - start)."""
        rows = self.rows[start:stop]
        out = torch.zeros((len(vectors), len(rows)), dtype=torch.int64, device=rows.device)
        if _kernels_serve(rows, vectors):
            from dpcvx.gpu import product_kernels

            for vector, products in zip(vectors, out, strict=True):
                product_kernels.margins(rows, vector, products)
        else:
            for i, j in _tiles(*rows.shape):
                out[:, i] += _product(vectors[:, j], rows[i, j].T)
        return out

    def add_sums(self, vectors: torch.Tensor, start: int, stop: int, sums: torch.Tensor) -> None:
        """sums[k] += sum_i vectors[k, i - start] row_i over rows start to stop."""
        rows = self.rows[start:stop]
        if _kernels_serve(rows, vectors):
            from dpcvx.gpu import product_kernels

            for vector, total in zip(vectors, sums, strict=True):
                product_kernels.add_sums(rows, vector, total)
        else:
            for i, j in _tiles(*rows.shape):
                sums[:, j] += _product(vectors[:, i], rows[i, j])

    def column(self, j: int) -> torch.Tensor:
        """Return column j in 64 bits."""
        return self.rows[:, j].to(torch.int64)


class SparseOnDevice:
    """Compressed rows of 8-bit or 16-bit integers.

    `indptr`, `indices`, `values`: as in `dpcvx.data.Sparse`.
    """

    def __init__(
        self, indptr: NDArray[np.int64], indices: NDArray[Any], values: NDArray[Any], device: torch.device
    ) -> None:
        self._indptr = indptr
        self._indices = _tensor(indices).to(device)
        self._values = _tensor(values).to(device)

    def margins(self, vectors: torch.Tensor, start: int, stop: int) -> torch.Tensor:
        """Return <row i, vectors[k]> for rows start to stop, shape (K, stop - start)."""
        out = torch.zeros((len(vectors), stop - start), dtype=torch.int64, device=vectors.device)
        for first, last in self._blocks(start, stop):
            rows, indices, values = self._entries(first, last)
            for vector, products in zip(vectors, out[:, first - start : last - start], strict=True):
                products.index_add_(0, rows, values * vector[indices])
        return out

    def add_sums(self, vectors: torch.Tensor, start: int, stop: int, sums: torch.Tensor) -> None:
        """sums[k] += sum_i vectors[k, i - start] row_i over rows start to stop."""
        for first, last in self._blocks(start, stop):
            rows, indices, values = self._entries(first, last)
            for vector, total in zip(vectors[:, first - start : last - start], sums, strict=True):
                total.index_add_(0, indices, values * vector[rows])

    def _blocks(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Ranges of rows with about `ENTRIES` stored entries each."""
        while start < stop:
            most = self._indptr[start] + ENTRIES
            last = min(stop, max(start + 1, int(np.searchsorted(self._indptr, most, side="right")) - 1))
            yield start, last
            start = last

    def _entries(self, first: int, last: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Row, counted from the first, column and value of every entry; 64-bit values."""
        counts = torch.from_numpy(np.diff(self._indptr[first : last + 1])).to(self._values.device)
        rows = torch.repeat_interleave(counts)
        where = slice(int(self._indptr[first]), int(self._indptr[last]))
        return rows, self._indices[where], self._values[where].to(torch.int64)


def _tensor(array: NDArray[Any]) -> torch.Tensor:
    """An array as a tensor of the host; torch takes none that must not be written, such as a mapped file."""
    return torch.from_numpy(np.require(array, requirements="W"))


def _kernels_serve(rows: torch.Tensor, vectors: torch.Tensor) -> bool:
    return rows.is_cuda and len(vectors) <= FEW


def _tiles(n: int, d: int) -> Iterator[tuple[slice, slice]]:
    """Parts of a matrix with sides of at most `LONGEST` and at most `ENTRIES` entries."""
    width = min(d, LONGEST)
    height = max(1, min(n, LONGEST, ENTRIES // width))
    for top in range(0, n, height):
        for left in range(0, d, width):
            yield slice(top, top + height), slice(left, left + width)


def _product(vectors: torch.Tensor, tile: torch.Tensor) -> torch.Tensor:
    """Vectors of 32-bit integers, (K, m), times a matrix of 16-bit ones, (m, p), for m <= LONGEST."""
    matrix = tile.to(torch.float64)
    low = (vectors & (2**LOW_BITS - 1)).to(torch.float64)
    high = (vectors >> LOW_BITS).to(torch.float64)
    return ((high @ matrix).to(torch.int64) << LOW_BITS) + (low @ matrix).to(torch.int64)
