"""Counts of recognised cells: finite numbers, declared levels and declared labels, in raw records.

They are computed from raw records, because a quantised row does not tell every missing cell from
others. Counts are exact and private; `dpcvx.mechanisms.NoisyCounts` releases them with noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpcvx.arrays import IntVector

if TYPE_CHECKING:
    from dpcvx.data.columns import Columns
    from dpcvx.data.table import Levels, Table
    from dpcvx.data.target import Target

__all__ = ["RecognisedCells", "cells_to_count"]


@dataclass(frozen=True, eq=False)
class RecognisedCells:
    """One count for each number and each declared level, of the columns and then of the target.

    Of weighted records a cell counts as the weight of its row, and the weight of all rows is the last count.
    Sparse records leave their columns out: a cell that is not stored is the number 0, and one that is stored
    has a type of numbers.
    """

    columns: Columns | None  # None for sparse records
    target: Target

    @property
    def declared(self) -> Levels:
        """Declared levels of each column and target; None for a number."""
        return (() if self.columns is None else self.columns.levels) + self.target.levels

    @property
    def numbers(self) -> int:
        """Columns and targets that hold numbers."""
        return sum(levels is None for levels in self.declared)

    @property
    def levels(self) -> tuple[int, ...]:
        """Number of levels of each column of levels, and of classes of the target."""
        return tuple(len(levels) for levels in self.declared if levels is not None)

    def of(self, table: Table, y: Any, weights: IntVector | None = None) -> IntVector:
        """Return the exact counts in some records, a block of rows at a time.

        `weights`: integer weights of the rows, where records have weights.
        """
        parts = [total_of(self.target.recognised(y), weights)]
        if weights is not None:
            parts.append(weights.sum(keepdims=True))
        if self.columns is None:
            return np.concatenate(parts)
        counts, at = [], 0
        for seen in self.columns.recognised(table):
            counts.append(total_of(seen, None if weights is None else weights[at : at + len(seen)]))
            at += len(seen)
        return np.concatenate([sum(counts[1:], counts[0]), *parts])

    def rows(self, table: Table, y: Any) -> NDArray[np.bool_]:
        """Return the summand of every record, shape (n, counts); of few records at a time."""
        target = self.target.recognised(y)
        if self.columns is None:
            return target
        return np.hstack([np.concatenate(list(self.columns.recognised(table))), target])


def total_of(seen: NDArray[np.bool_], weights: IntVector | None) -> IntVector:
    """Return the sum of some summands, shape (n, counts), in integers."""
    total: IntVector = seen.sum(axis=0) if weights is None else weights @ seen.astype(np.int64)
    return total


def cells_to_count(table: Table, columns: Columns, target: Target) -> RecognisedCells:
    """Return the counts that the check of a table needs; no record is read."""
    return RecognisedCells(None if table.sparse else columns, target)
