"""Passes over the weights of all cells of a universe, on the host or on a GPU.

A pass reads the cells in order. Sums are in float64, of integers exact.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dpcvx.arrays import IntVector, Vector
from dpcvx.errors import WrongValue
from dpcvx.gpu import BACKENDS, find_device
from dpcvx.queries.cell_sums import Axes, Tables, all_marginals, outer_sum

__all__ = ["HostPasses", "Passes", "passes_over"]

INNER_CELLS = 2**11  # cells that a pass folds at once: 16 KiB of sums stay in the first-level cache


class Passes(Protocol):
    """Operations on the weights of all cells of a product, flat arrays of one library.

    Axes are increasing, and a table of some axes has one dimension for each of them.
    """

    def holds(self, weights: Any) -> bool:
        """Return whether these are weights of this kind, float64 or float32."""

    def keep(self, weights: NDArray[Any]) -> Any:
        """Return an array of the host as one of this kind."""

    def host(self, weights: Any) -> NDArray[Any]:
        """Return an array of this kind as one of the host."""

    def distribution(self, weights: Any) -> Any:
        """Return the weights over their sum; None if that is no distribution."""

    def table(self, weights: Any, axes: Axes) -> NDArray[Any]:
        """Sum the weights of all cells by some axes: integers exactly, others in float64."""

    def scaled(self, weights: Any, axes: Axes, factors: Vector) -> Any:
        """Return weights(x) * factors(x_A)."""

    def log_linear(self, tables: Tables, order: int, dtype: DTypeLike) -> Any:
        """Return sum_A tables[A](x_A); most sets of up to ``order`` axes are there, few larger ones."""

    def marginals(self, weights: Any, order: int, larger: Collection[Axes]) -> Tables:
        """Return the tables of all sets of up to ``order`` axes, and of the larger ones that are named."""

    def exponentials(self, log_weights: Any) -> tuple[float, float, Any]:
        """Return the largest log-weight, the sum of exp(log_weight - largest), and these; may overwrite."""

    def quantiles(self, weights: Any, levels: Vector) -> IntVector:
        """Return the cells where the running sum of the weights passes the levels."""


def passes_over(shape: Axes, backend: str = "auto") -> Passes:
    """Return the passes of a backend.

    `shape`: sizes of the axes; `backend`: {"auto", "torch"}, "torch" keeps weights on a GPU; where there is
    none, it says so and they stay on the host.
    """
    if backend not in BACKENDS:
        raise WrongValue(f"backend must be one of {', '.join(map(repr, BACKENDS))}, got {backend!r}.")
    device = find_device() if backend == "torch" else None
    if device is None:
        return HostPasses(shape)
    from dpcvx.queries.passes_on_gpu import DevicePasses

    return DevicePasses(shape, device)


class HostPasses:
    """Compiled passes over NumPy arrays.

    `shape`: sizes of the axes.
    """

    def __init__(self, shape: Axes) -> None:
        self.shape = shape
        self._splits: dict[Axes, Split] = {}

    def holds(self, weights: Any) -> bool:
        """Return whether these are weights of this kind, float64 or float32."""
        return isinstance(weights, np.ndarray) and weights.dtype in (np.float64, np.float32)

    def keep(self, weights: NDArray[Any]) -> NDArray[Any]:
        """Return the array itself."""
        return weights

    def host(self, weights: NDArray[Any]) -> NDArray[Any]:
        """Return the array itself."""
        return weights

    def distribution(self, weights: NDArray[Any]) -> NDArray[Any] | None:
        """Return the weights over their sum; None if that is no distribution."""
        total = weights.sum(dtype=np.float64)
        if not (total > 0 and math.isfinite(total) and weights.min() >= 0):
            return None
        shares: NDArray[Any] = weights / weights.dtype.type(total)
        return shares

    def table(self, weights: NDArray[Any], axes: Axes) -> NDArray[Any]:
        """Sum the weights of all cells by some axes: integers exactly, others in float64."""
        return self._split(axes).table(weights)

    def scaled(self, weights: NDArray[Any], axes: Axes, factors: Vector) -> NDArray[Any]:
        """Return weights(x) * factors(x_A)."""
        from dpcvx.queries import cell_kernels as kernels

        split = self._split(axes)
        out = np.empty_like(weights)
        kernels.scale(
            weights.reshape(-1, split.inner),
            split.rows,
            split.columns,
            factors.reshape(split.n_rows, split.n_columns).astype(out.dtype),
            out.reshape(-1, split.inner),
        )
        return out

    def log_linear(self, tables: Tables, order: int, dtype: DTypeLike) -> NDArray[Any]:
        """Return sum_A tables[A](x_A)."""
        from dpcvx.queries import cell_kernels as kernels

        total = outer_sum(tables, self.shape, order, np.dtype(dtype))
        for key in tables:
            if len(key) > order:
                split = self._split(key)
                table = tables[key].astype(total.dtype).reshape(split.n_rows, split.n_columns)
                kernels.shift(total.reshape(-1, split.inner), split.rows, split.columns, table)
        return total

    def marginals(self, weights: NDArray[Any], order: int, larger: Collection[Axes]) -> Tables:
        """Return the tables of all sets of up to ``order`` axes, and of the larger ones that are named."""
        tables = all_marginals(weights, self.shape, order)
        for key in larger:
            tables[key] = self.table(weights, key)
        return tables

    def exponentials(self, log_weights: NDArray[Any]) -> tuple[float, float, NDArray[Any]]:
        """Return the largest log-weight, the sum of exp(log_weight - largest), and these; overwrites."""
        top = log_weights.max()
        log_weights -= top
        np.exp(log_weights, out=log_weights)
        return float(top), float(log_weights.sum(dtype=np.float64)), log_weights

    def quantiles(self, weights: NDArray[Any], levels: Vector) -> IntVector:
        """Return the cells where the running sum of the weights passes the levels."""
        cells: IntVector = np.searchsorted(np.cumsum(weights, dtype=np.float64), levels)
        return cells.clip(max=weights.size - 1)

    def _split(self, axes: Axes) -> Split:
        if axes not in self._splits:
            self._splits[axes] = Split(self.shape, axes)
        return self._splits[axes]


class Split:
    """A universe as outer times inner cells, with the place of each cell in the table of some attributes.

    `sizes`: shape of the universe; `axes`: the attributes, increasing.
    """

    def __init__(self, sizes: tuple[int, ...], axes: Sequence[int]) -> None:
        first = len(sizes) - 1
        while first > 0 and math.prod(sizes[first - 1 :]) <= INNER_CELLS:
            first -= 1
        self.inner = math.prod(sizes[first:])
        self._shape = [sizes[a] for a in axes]
        self.rows, self.n_rows = _places(sizes[:first], [a for a in axes if a < first])
        self.columns, self.n_columns = _places(sizes[first:], [a - first for a in axes if a >= first])

    def table(self, weights: NDArray[Any]) -> NDArray[Any]:
        """Sum the weights of all cells by the attributes: integers exactly, others in float64."""
        from dpcvx.queries import cell_kernels as kernels

        kind = np.int64 if weights.dtype.kind == "i" else np.float64
        sums = np.zeros((self.n_rows, self.inner), dtype=kind)
        kernels.fold(weights.reshape(-1, self.inner), self.rows, sums)
        table = np.zeros((self.n_rows, self.n_columns), dtype=kind)
        kernels.gather(self.columns, sums, table)
        return table.reshape(self._shape)


def _places(sizes: tuple[int, ...], kept: list[int]) -> tuple[IntVector, int]:
    """For each cell of some axes its number among the cells of the kept ones, and how many those are."""
    places = np.zeros((1,) * len(sizes), dtype=np.int64)
    count = 1
    for axis in kept:
        shape = [1] * len(sizes)
        shape[axis] = sizes[axis]
        places = places * sizes[axis] + np.arange(sizes[axis]).reshape(shape)
        count *= sizes[axis]
    return np.ascontiguousarray(np.broadcast_to(places, sizes)).ravel(), count
