"""Levels compared with a baseline: the released parameter of a fit with a feature for each level, rewritten.

Such a fit is well conditioned however rare the baseline is. Features of a cell that is a level sum to 1, so
the coefficient of the baseline can move to the intercept. Predictions of rows with known levels stay the
same, unless the region of the fit shrinks the row. All of this is arithmetic on released numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcvx.arrays import Vector
from dpcvx.data import Region
from dpcvx.data.columns import Columns
from dpcvx.data.row_map import RowMap

__all__ = ["LevelComparison", "compare_levels", "faint_levels"]

FAINT = 2  # standard deviations of its noise that a share must exceed to show people


@dataclass(frozen=True, eq=False)
class ComparedColumn:
    """Levels of one column, and how the fit clipped their features."""

    places: slice  # of its features
    baseline: int  # place among its levels
    low: Vector  # low, size: a feature x was low + size x in the fit
    size: Vector
    shares: Vector  # of a cell that is no level; they sum to 1
    pooled: NDArray[np.bool_]  # levels without visible people, which count as the baseline

    def reference(self) -> Vector:
        """Weights of the levels in the effect that others are compared with: the baseline's alone.

        If nobody is visible at the baseline either, its coefficient is noise. The mean of the visible levels
        takes its place, or of all where none is visible.
        """
        weights: Vector = np.where(self.pooled, 0.0, self.shares)
        if not self.pooled[self.baseline]:
            weights = np.eye(len(weights))[self.baseline]
        elif not weights.any():
            weights = self.shares
        weights = weights / weights.sum()
        return weights


@dataclass(frozen=True, eq=False)
class LevelComparison:
    """The map from new rows to features without baselines, and from coefficients of the fit to theirs."""

    row_map: RowMap
    columns: tuple[ComparedColumn, ...]
    alone: NDArray[np.int64]  # features of levels that are not compared and have no visible people

    def published(self, weights: Vector, offset: Any) -> tuple[Vector, Any]:
        """Return coefficients and intercept for the features of the row map: a linear map.

        `weights`: coefficients of the fit's features in the user's units, or of a basis, shape (d,) or
        (d, K); it is overwritten.
        """
        region = self.row_map.region
        if region is not None and len(self.alone):  # the fit centres features
            offset = offset + region.center[self.alone] @ weights[self.alone]
        weights[self.alone] = 0.0
        for column in self.columns:
            own = weights[column.places]
            ones = (-1, *[1] * (weights.ndim - 1))
            if region is not None and region.basis is not None:  # of standardised features, not shrunk
                unit = region.scale[column.places]
                shift = column.reference() @ (own / unit.reshape(ones))
                weights[column.places] = own - unit.reshape(ones) * shift
                offset = offset + (1 - region.center[column.places].sum()) * shift
                continue
            effects = own * column.size.reshape(ones)
            shift = column.reference() @ effects
            offset = offset + column.low @ own + shift
            effects = effects - shift
            effects[column.pooled] = 0.0
            weights[column.places] = effects
        return weights[self.row_map.compared], offset


def compare_levels(
    columns: Columns, region: Region | None, pooled: NDArray[np.int64], *, intercept: bool
) -> LevelComparison:
    """Return the features of a fitted model, with levels compared if there is an intercept.

    `columns`: of the fit; `region`: released, in scaled units; `pooled`: features of levels without visible
    people. Bounds and the schema are not part of the row map yet.
    """
    levels = tuple(
        replace(each, baseline=None) if each is not None and each.is_compared and not intercept else each
        for each in columns.levels
    )
    fill, found = columns.fill.copy(), []
    if region is not None:
        region = region.in_units(columns.center, columns.scale)
        if intercept:  # the fit maps missing numbers to the centre
            fill[columns.marked] = region.center[columns.marked]
    for span, declared in zip(columns.spans(), levels, strict=True):
        if declared is None or declared.baseline is None:
            continue
        places = slice(span.start, span.stop)
        if region is not None and intercept:  # the fit maps a cell that is no level to the centre
            fill[places] = region.center[places]
        if declared.omitted is not None:
            continue
        low, size = np.zeros(len(span)), np.ones(len(span))
        total = fill[places].sum()
        fill[places] = fill[places] / total if total > 0 else 1 / len(span)
        if region is not None:
            low, size = region.clipped_levels(places)
            region = region.with_whole_levels(places)
        hidden = np.isin(np.arange(span.start, span.stop), pooled)
        found.append(ComparedColumn(places, declared.baseline, low, size, fill[places].copy(), hidden))
    row_map = RowMap(levels, columns.maps, columns.names, fill, None, region)
    within = [np.arange(each.places.start, each.places.stop) for each in found]
    alone = np.setdiff1d(pooled, np.concatenate(within)) if within else pooled
    return LevelComparison(row_map, tuple(found), alone)


def faint_levels(columns: Columns, region: Region) -> list[str]:
    """Return the levels whose released shares are within twice their noise: nobody may be there.

    `columns`: of the fit; `region`: released with an intercept, in scaled units. A cell that is no level
    counts in the shares of all levels, so a level without people is not found beside many such cells.
    """
    found = []
    for label, span, declared in zip(columns.labels(), columns.spans(), columns.levels, strict=True):
        if declared is None:
            continue
        unit = columns.scale[span.start]
        shares = unit * region.center[span.start : span.stop]
        limit = FAINT * unit * region.share_noise
        by_code = dict(zip(declared.coded, shares, strict=True))
        if declared.omitted is not None:
            by_code[declared.omitted] = 1 - shares.sum()
        found += [f"{label}={declared[code]}" for code in sorted(by_code) if by_code[code] < limit]
    return found
