"""Numbers of cells in public bins: histograms of columns, from which quantiles follow.

Edges are a function of declared bounds alone. Counts are exact and private;
`dpcvx.mechanisms.NoisyBinCounts` releases them with noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpcvx.accounting import WEIGHT
from dpcvx.arrays import IntVector, Vector

if TYPE_CHECKING:
    from dpcvx.data.table import Table
    from dpcvx.data.target import Numbers

__all__ = ["COARSE", "FINE", "POOLED", "Binning", "CellsInBins", "PooledCells", "quantiles_of"]


@dataclass(frozen=True)
class Binning:
    """A rule for the bins of a column between its bounds.

    Bins of equal width serve columns that fill their bounds. Bins that become narrower by a factor towards 0,
    or towards the bound next to 0, find columns that vary far less, and those with long tails.
    """

    equal: int  # bins of equal width
    steps: int  # edges on each side of that point
    factor: float

    @property
    def edges(self) -> int:
        """Number of edges, the same for all bounds."""
        return self.equal + 1 + 2 * self.steps

    def between(self, low: float, high: float) -> Vector:
        """Return the edges for bounds, low included and high left out, ascending.

        Points beyond the bounds become edges at low: bins between equal edges are empty.
        """
        near = min(max(0.0, low), high)
        reach = max(high - near, near - low) * self.factor ** -np.arange(1.0, self.steps + 1)
        equal = np.linspace(low, high, self.equal, endpoint=False)
        points = np.concatenate([equal, [near], near + reach, near - reach])
        edges: Vector = np.sort(np.where((points >= low) & (points < high), points, low))
        return edges


COARSE, FINE = Binning(6, 12, 4.0), Binning(16, 24, 2.0)


def _pooled_edges() -> Vector:
    """Edges in [-1, 1): 32 bins of equal width, and narrower ones towards the middle and both ends."""
    near = 2.0 ** -np.arange(5.0, 13.0)
    points = np.concatenate([np.linspace(-1, 1, 32, endpoint=False), -near, near, 1 - near, near - 1])
    edges: Vector = np.sort(points)
    return edges


POOLED = _pooled_edges()


@dataclass(frozen=True, eq=False)
class CellsInBins:
    """Number of cells of columns, and of the target, in bins; the last bin is for cells without a number.

    Bins are x <= e_1, e_1 < x <= e_2, ..., x > e_K. The counts of a column sum to n: weight that no row has
    counts as missing.
    """

    n: int  # number of records, or of persons: public
    columns: tuple[int, ...]  # positions in the table
    edges: tuple[Vector, ...]  # of each column, and of the target if it is counted
    target: Numbers | None = None  # counted last

    @property
    def numbers(self) -> int:
        """No count is of a column as a whole."""
        return 0

    @property
    def levels(self) -> tuple[int, ...]:
        """Number of bins of each column."""
        return tuple(len(edges) + 2 for edges in self.edges)

    def of(self, table: Table, y: Any, weights: IntVector | None = None) -> IntVector:
        """Return the exact counts in some records; with weights, in units of 2^-14."""
        whole = table.n if weights is None else WEIGHT * self.n
        parts = []
        cells = [partial(table.column_numbers, j, 0, table.n) for j in self.columns]
        if self.target is not None:
            cells.append(partial(self.target.numbers, y))
        for read, edges in zip(cells, self.edges, strict=True):
            bins = _bins(read(), edges)
            # Sums of integers are exact in float64 up to 2^53.
            counts = np.bincount(bins, weights, minlength=len(edges) + 2).astype(np.int64)
            counts[-1] = whole - counts[:-1].sum()
            parts.append(counts)
        return np.concatenate(parts)


@dataclass(frozen=True, eq=False)
class PooledCells(CellsInBins):
    """The number of cells in bins, added up over columns that all have the same number of bins.

    The counts sum to n times the number of columns.
    """

    @property
    def levels(self) -> tuple[int, ...]:
        """Number of bins."""
        return super().levels[:1]

    def of(self, table: Table, y: Any, weights: IntVector | None = None) -> IntVector:
        """Return the exact counts in some records; with weights, in units of 2^-14."""
        total: IntVector = super().of(table, y, weights).reshape(len(self.columns), -1).sum(axis=0)
        return total


def quantiles_of(counts: Vector, edges: Vector, high: float, ranks: tuple[float, ...]) -> Vector:
    """Return quantiles of a column from noisy counts in its bins, linear inside a bin; public.

    Counts are moved to the nearest ones that are not negative and have the same sum, so that noise in many
    empty bins does not add up; cells that are no numbers are then left out.
    """
    ends = np.append(edges, high)
    filled = np.append(True, np.diff(ends) > 0)  # other bins are empty whatever the cells are
    kept = _nearest_shares(np.append(counts[:-1][filled], counts[-1]))[:-1]
    if not kept.sum() > 0:
        kept = np.ones(len(kept))
    found: Vector = np.interp(ranks, np.cumsum(kept) / kept.sum(), ends[filled])
    return found


def _bins(cells: Vector, edges: Vector) -> NDArray[np.int64]:
    places = np.searchsorted(edges, cells, side="left")
    return np.where(np.isfinite(cells), places, len(edges) + 1)


def _nearest_shares(counts: Vector) -> Vector:
    """The nearest vector of the same sum without negative entries (projection on a simplex)."""
    total = max(float(counts.sum()), 1.0)
    ordered = np.sort(counts)[::-1]
    excess = (np.cumsum(ordered) - total) / np.arange(1, len(counts) + 1)
    level = excess[np.flatnonzero(ordered > excess)[-1]]
    nearest: Vector = np.maximum(counts - level, 0.0)
    return nearest
