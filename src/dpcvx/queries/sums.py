"""Sums over the cells of a product: from tables of few axes to all cells, and from all cells to such tables.

Neither lists the coordinates of a cell. Axes join and leave one at a time, arrays grow and shrink by the size
of an axis, and a whole pass costs a few reads of the largest one.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Axes", "Tables", "all_marginals", "outer_sum"]

Axes: TypeAlias = tuple[int, ...]
Tables: TypeAlias = dict[Axes, NDArray[Any]]


def outer_sum(tables: Tables, shape: Axes, order: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return sum_A tables[A](x_A) for every cell x, flat.

    Parameters
    ----------
    tables : dict
        By increasing axes, at most ``order`` of them; a table that is absent counts as zero.
    shape : tuple of int
        Sizes of all axes.
    order : int
    dtype : dtype
        Of the result.
    """
    return _grow(tables, (), shape, order, dtype).ravel()


def all_marginals(weights: NDArray[Any], shape: Axes, order: int) -> Tables:
    """Return the sums of the cells' weights over all but A, for every set A of up to ``order`` axes.

    Parameters
    ----------
    weights : array
        One for each cell, flat.
    shape : tuple of int
        Sizes of all axes.
    order : int
    """
    tables: Tables = {}
    _sweep(weights.reshape(1, -1), (), shape, order, tables)
    return tables


def _grow(tables: Tables, prefix: Axes, shape: Axes, order: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Sum the tables that begin with `prefix` over the cells of prefix times all later axes.

    Axes join from the last to the first, so that most of the work is in the last few joins.
    """
    rows = math.prod(shape[a] for a in prefix)
    total: NDArray[Any] = tables.get(prefix, np.zeros(rows)).reshape(rows, 1).astype(dtype)
    for axis in range(len(shape) - 1, prefix[-1] if prefix else -1, -1):
        here, size = (*prefix, axis), shape[axis]
        if len(here) < order:
            joined = _grow(tables, here, shape, order, dtype).reshape(rows, size, -1)
            joined += total[:, None, :]
        else:
            table = tables.get(here, np.zeros(rows * size)).reshape(rows, size, 1).astype(dtype)
            joined = table + total[:, None, :]
        total = joined.reshape(rows, -1)
    return total


def _sweep(block: NDArray[Any], prefix: Axes, shape: Axes, order: int, tables: Tables) -> None:
    """Sum out axes from the first to the last, keeping every table of up to `order` attributes on the way."""
    rows = block.shape[0]
    for axis in range(prefix[-1] + 1 if prefix else 0, len(shape)):
        here, size = (*prefix, axis), shape[axis]
        block = block.reshape(rows, size, -1)
        tables[here] = np.add.reduce(block, axis=2, dtype=np.float64).reshape([shape[a] for a in here])
        if len(here) < order:
            _sweep(block.reshape(rows * size, -1), here, shape, order, tables)
        block = np.add.reduce(block, axis=1)
