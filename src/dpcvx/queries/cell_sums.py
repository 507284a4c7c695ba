"""Sums over the cells of a product: from tables of few axes to all cells, and from all cells to such tables.

Neither lists the coordinates of a cell. Axes join and leave one at a time, arrays grow and shrink by the size
of an axis, and a whole pass costs a few reads of the largest one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Axes", "Tables", "all_marginals", "grow", "outer_sum", "sweep"]

Axes: TypeAlias = tuple[int, ...]
Tables: TypeAlias = dict[Axes, NDArray[Any]]


def outer_sum(tables: Tables, shape: Axes, order: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return sum_A tables[A](x_A) for every cell x, flat.

    `tables`: by increasing axes, at most ``order`` of them; a table that is absent counts as zero; `shape`:
    sizes of all axes; `dtype`: of the result.
    """
    copies = {axes: table.astype(dtype) for axes, table in tables.items()}
    grown: NDArray[Any] = grow(copies, (), shape, order, lambda count: np.zeros(count, dtype)).ravel()
    return grown


def all_marginals(weights: NDArray[Any], shape: Axes, order: int) -> Tables:
    """Return the sums of the cells' weights over all but A, for every set A of up to ``order`` axes.

    `weights`: one for each cell, flat; `shape`: sizes of all axes.
    """
    tables: Tables = {}
    sweep(weights.reshape(1, -1), (), shape, order, np.float64, tables)
    return tables


def grow(tables: dict[Axes, Any], prefix: Axes, shape: Axes, order: int, zeros: Callable[[int], Any]) -> Any:
    """Sum the tables that begin with `prefix` over the cells of prefix times all later axes.

    Axes join from the last to the first, so that most of the work is in the last few joins. The arrays, which
    are overwritten, may be of any library with NumPy's methods; ``zeros`` makes one of them.
    """
    rows = math.prod(shape[a] for a in prefix)
    total = (tables[prefix] if prefix in tables else zeros(rows)).reshape(rows, 1)
    for axis in range(len(shape) - 1, prefix[-1] if prefix else -1, -1):
        here, size = (*prefix, axis), shape[axis]
        if len(here) < order:
            joined = grow(tables, here, shape, order, zeros).reshape(rows, size, -1)
            joined += total[:, None, :]
        else:
            table = tables[here] if here in tables else zeros(rows * size)
            joined = table.reshape(rows, size, 1) + total[:, None, :]
        total = joined.reshape(rows, -1)
    return total


def sweep(block: Any, prefix: Axes, shape: Axes, order: int, dtype: Any, tables: dict[Axes, Any]) -> None:
    """Sum out axes from the first to the last, keeping every table of up to `order` attributes.

    The block may be an array of any library with NumPy's methods; ``dtype`` is its type of the tables.
    """
    rows = block.shape[0]
    for axis in range(prefix[-1] + 1 if prefix else 0, len(shape)):
        here, size = (*prefix, axis), shape[axis]
        block = block.reshape(rows, size, -1)
        tables[here] = block.sum(axis=2, dtype=dtype).reshape([shape[a] for a in here])
        if len(here) < order:
            sweep(block.reshape(rows * size, -1), here, shape, order, dtype, tables)
        block = block.sum(axis=1)
