"""Totals of a metric: sums over rows of bounded integers, each computed from one row."""

from __future__ import annotations

import numpy as np

from dpcvx.arrays import IntVector, Vector

__all__ = ["UNIT", "add_up", "count_cells"]

UNIT = 2**20  # lattice steps of the largest contribution of a row to a total


def add_up(shares: Vector, weights: IntVector | None) -> IntVector:
    """Sum of contributions between -1 and 1, in lattice steps; NaN counts as 1."""
    clipped = np.clip(np.where(np.isnan(shares), 1.0, shares), -1.0, 1.0)
    steps: IntVector = np.rint(UNIT * clipped).astype(np.int64)
    sums: IntVector = steps.sum(axis=0) if weights is None else weights @ steps
    return sums


def count_cells(cells: IntVector, labels: IntVector, size: int, weights: IntVector | None) -> IntVector:
    """Weight of the rows with a declared label in each cell, in lattice steps."""
    known = labels >= 0
    counts: IntVector = np.zeros(size, dtype=np.int64)
    np.add.at(counts, cells[known], 1 if weights is None else weights[known])
    return UNIT * counts
