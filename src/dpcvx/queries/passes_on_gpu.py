"""Passes over the weights of all cells on a torch device."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray

from dpcvx.arrays import IntVector, Vector
from dpcvx.queries.cell_sums import Axes, Tables, grow, sweep

__all__ = ["DevicePasses"]


class DevicePasses:
    """Passes over torch tensors; only tables of few axes are copied to the host.

    `shape`: sizes of the axes.
    """

    def __init__(self, shape: Axes, device: torch.device) -> None:
        self.shape, self.device = shape, device

    def holds(self, weights: Any) -> bool:
        """Return whether these are weights of this kind, float64 or float32."""
        return isinstance(weights, torch.Tensor) and weights.is_floating_point()

    def keep(self, weights: NDArray[Any]) -> torch.Tensor:
        """Return a copy on the device."""
        return torch.tensor(weights, device=self.device)

    def host(self, weights: torch.Tensor) -> NDArray[Any]:
        """Return a copy on the host."""
        return np.array(weights.cpu().numpy())

    def distribution(self, weights: torch.Tensor) -> torch.Tensor | None:
        """Return the weights over their sum; None if that is no distribution."""
        total = weights.sum(dtype=torch.float64)
        if not (total > 0 and torch.isfinite(total) and weights.min() >= 0):
            return None
        return weights / total.to(weights.dtype)

    def table(self, weights: torch.Tensor, axes: Axes) -> NDArray[Any]:
        """Sum the weights of all cells by some axes: integers exactly, others in float64."""
        kind = torch.float64 if weights.is_floating_point() else torch.int64
        others = [axis for axis in range(len(self.shape)) if axis not in axes]
        cells = weights.reshape(self.shape)
        return self.host(cells.sum(dim=others, dtype=kind) if others else cells.to(kind))

    def scaled(self, weights: torch.Tensor, axes: Axes, factors: Vector) -> torch.Tensor:
        """Return weights(x) * factors(x_A)."""
        return (weights.reshape(self.shape) * self._spread(factors, axes, weights.dtype)).reshape(-1)

    def log_linear(self, tables: Tables, order: int, dtype: DTypeLike) -> torch.Tensor:
        """Return sum_A tables[A](x_A)."""
        kind = torch.float32 if np.dtype(dtype) == np.float32 else torch.float64
        flat = [table.ravel() for table in tables.values()] or [np.zeros(0)]
        sent = torch.tensor(np.concatenate(flat), dtype=kind, device=self.device)
        parts = sent.split([table.size for table in tables.values()] or [0])
        small = {axes: part for axes, part in zip(tables, parts, strict=False) if len(axes) <= order}

        def zeros(count: int) -> torch.Tensor:
            return torch.zeros(count, dtype=kind, device=self.device)

        total = grow(small, (), self.shape, order, zeros).reshape(self.shape)
        for axes, table in tables.items():
            if len(axes) > order:
                total += self._spread(table, axes, kind)
        flattened: torch.Tensor = total.reshape(-1)
        return flattened

    def marginals(self, weights: torch.Tensor, order: int, larger: Collection[Axes]) -> Tables:
        """Return the tables of all sets of up to ``order`` axes, and of the larger ones that are named."""
        swept: dict[Axes, torch.Tensor] = {}
        sweep(weights.reshape(1, -1), (), self.shape, order, torch.float64, swept)
        arrived = self.host(torch.cat([table.reshape(-1) for table in swept.values()]))
        edges = np.cumsum([table.numel() for table in swept.values()])[:-1]
        tables: Tables = {
            axes: part.reshape(tuple(swept[axes].shape))
            for axes, part in zip(swept, np.split(arrived, edges), strict=True)
        }
        for axes in larger:
            tables[axes] = self.table(weights, axes)
        return tables

    def exponentials(self, log_weights: torch.Tensor) -> tuple[float, float, torch.Tensor]:
        """Return the largest log-weight, the sum of exp(log_weight - largest), and these."""
        top = log_weights.max()
        weights = (log_weights - top).exp_()
        return float(top), float(weights.sum(dtype=torch.float64)), weights

    def quantiles(self, weights: torch.Tensor, levels: Vector) -> IntVector:
        """Return the cells where the running sum of the weights passes the levels."""
        running = weights.cumsum(0, dtype=torch.float64)
        wanted = torch.tensor(levels, device=self.device)
        return self.host(torch.searchsorted(running, wanted).clamp_(max=len(weights) - 1))

    def _spread(self, table: Vector, axes: Axes, dtype: torch.dtype) -> torch.Tensor:
        """A table of some axes with a dimension of 1 for every other axis."""
        sizes = [size if axis in axes else 1 for axis, size in enumerate(self.shape)]
        return torch.tensor(np.ascontiguousarray(table), dtype=dtype, device=self.device).reshape(sizes)
