"""The public map from the columns of a table to features, with bounds, centre and scale.

Errors here speak of shapes, names and declarations. The content of a cell never causes or changes one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcvx.arrays import Vector
from dpcvx.data.column_maps import IDENTITY, ColumnMap, Maps, each_map
from dpcvx.data.lattice import FEATURE_BITS
from dpcvx.data.levels import DeclaredLevels
from dpcvx.data.quantise import Quantiser
from dpcvx.data.rows import Dense, Sparse
from dpcvx.data.table import Levels, Table, feature_counts
from dpcvx.errors import Incompatible, WrongType, WrongValue
from dpcvx.problem import Bounds
from dpcvx.words import show

__all__ = ["Columns", "bound_pair", "feature_names"]

LEAST_CELL = 2.0**-FEATURE_BITS  # of the grid that features are stored on


@dataclass(frozen=True, eq=False)
class Columns:
    """The public map from raw columns to features: 0/1 for each declared level, a column map for numbers.

    A feature of the stored row is (v - center) / scale, v clipped to [low, high] first. The features of a
    cell that is no finite number, or none of the levels, are `fill`: of L levels with a baseline, 1/L each.
    The integer 0 of a `marked` feature is a missing cell and nothing else: a number that would be 0 is stored
    as 1, so that a fit can tell them apart.
    """

    levels: Levels  # for each raw column its declared levels, or None for a number
    maps: Maps  # for each raw column the map of its numbers
    names: tuple[str, ...]  # one name per feature: the column's, "column[map]" or "column=level"
    low: Vector  # low, high: bounds of each feature, those of its column in the user's units once mapped
    high: Vector
    center: Vector  # center, scale: the map to scaled units
    scale: Vector
    fill: Vector
    marked: NDArray[np.bool_]  # single features of numbers for whose missing cells no number is declared
    flags: frozenset[int] = frozenset()  # raw columns of numbers that are declared to be 0 or 1

    @classmethod
    def declare(
        cls,
        table: Table,
        bounds: Any,
        categories: Mapping[Any, Sequence[Any]] | None,
        data_norm: float | None,
        missing: Mapping[Any, float] | None = None,
        maps: Mapping[int, ColumnMap] | None = None,
    ) -> Columns:
        """Derive the map from the columns of a table and the user's declarations.

        `missing`: numbers that cells without one count as, by column; `maps`: of numbers, by position of
        their columns, where they are not the identity.
        """
        maps = {j: each for j, each in (maps or {}).items() if each != IDENTITY}
        levels = _declared_levels(table, categories)
        raw_low, raw_high = _declared_bounds(table, bounds, levels)
        mapped = _declared_maps(table, maps, levels, data_norm)
        names = feature_names([table.label(j) for j in range(table.d)], levels, mapped)
        is_level, spans = _is_level(levels, mapped), _spans(levels, mapped)
        counts = feature_counts(levels, mapped)
        lowest = np.where(is_level, 0.0, np.repeat(raw_low, counts))
        highest = np.where(is_level, 1.0, np.repeat(raw_high, counts))
        for j, each in maps.items():
            ends = each(np.array([raw_low[j], raw_high[j]]))
            if not np.isfinite(ends).all():
                raise WrongValue(f"The map of column {table.label(j)} has no finite values at its bounds.")
            lowest[spans[j]], highest[spans[j]] = ends
        if table.sparse and not ((lowest <= 0) & (highest >= 0)).all():
            raise WrongValue(
                "Sparse records are scaled without centring, so bounds must contain 0 for every column. "
                "Widen the bounds, or pass the records dense."
            )
        if data_norm is not None:
            center, scale = np.zeros(len(names)), np.full(len(names), float(data_norm))
        elif table.sparse:
            center, scale = np.zeros(len(names)), np.maximum(abs(lowest), abs(highest))
        else:
            center, scale = _unit_map(is_level, lowest, highest)
        shares = [0.0 if each is None else each.share for each in levels]
        fill = np.where(is_level, np.repeat(shares, counts), center)
        filled = {
            j: each.missing(raw_low[j], raw_high[j]) for j, each in maps.items() if len(each.suffixes) > 1
        }
        for name, value in (missing or {}).items():
            j = table.position(name, "missing")
            filled[j] = each_map(mapped, table.d)[j](np.array([value]))[0]
        for j, values in filled.items():
            fill[spans[j]] = np.clip(values, lowest[spans[j]], highest[spans[j]])
        marked = ~is_level & ~np.repeat([j in filled for j in range(table.d)], counts)
        if table.sparse or data_norm is not None:
            marked[:] = False
        flags = frozenset(j for j, each in enumerate(table.variables) if each.is_flag)
        return cls(levels, mapped, names, lowest, highest, center, scale, fill, marked, flags)

    def unmarked(self) -> Columns:
        """Return the same columns without marks of missing cells, as version 0.1 stored them."""
        return replace(self, marked=np.zeros_like(self.marked))

    @property
    def width(self) -> int:
        """Number of features."""
        return len(self.names)

    @property
    def is_level(self) -> NDArray[np.bool_]:
        """Whether each feature stands for a level of a column."""
        return _is_level(self.levels, self.maps)

    def spans(self) -> list[range]:
        """Features of each raw column: those of a number's map, one for each level of a category."""
        return _spans(self.levels, self.maps)

    def level_spans(self) -> tuple[tuple[int, int, int], ...]:
        """Return first feature and last + 1 of each column of levels, and the integer of a cell that is none.

        The integer is that of a stored row, 0 where such a cell has no share of the levels.
        """
        stored = np.trunc(2.0**FEATURE_BITS * (self.fill - self.center) / self.scale)
        return tuple(
            (span.start, span.stop, int(stored[span.start]))
            for span, declared in zip(self.spans(), self.levels, strict=True)
            if declared is not None
        )

    def compared_spans(self) -> tuple[tuple[int, int, float], ...]:
        """Return first feature and last + 1 of each column whose levels are compared, and the stored 1."""
        return tuple(
            (span.start, span.stop, float(1 / self.scale[span.start]))
            for span, declared in zip(self.spans(), self.levels, strict=True)
            if declared is not None and declared.is_compared
        )

    def labels(self) -> list[str]:
        """Name of each raw column for people."""
        firsts = [self.names[span[0]] for span in self.spans()]
        return [
            name.removesuffix(each.suffixes[0] if declared is None else f"={declared[declared.coded[0]]}")
            for name, declared, each in zip(firsts, self.levels, self._each_map, strict=True)
        ]

    def row_norm(self) -> float:
        """Bound on the l2 norm of a centred and scaled row: 1 from a number's feature or a column of levels.

        The features of a cell that is a level are at most one 1 and otherwise 0. A cell that is none
        of L levels has features 0, or with a baseline 1/L, whose squares sum to at most 1/L.
        """
        squares = sum(
            len(each.suffixes) if declared is None else 1
            for declared, each in zip(self.levels, self._each_map, strict=True)
        )
        return math.sqrt(max(1, squares))

    @property
    def _each_map(self) -> tuple[ColumnMap, ...]:
        return each_map(self.maps, len(self.levels))

    def row_bounds(self, data_norm: float | None, intercept: float) -> Bounds:
        """Return bounds of a centred and scaled row with the intercept's feature (0 for none).

        `data_norm`: as declared; `intercept`: value of the intercept's feature.
        """
        if data_norm is not None:
            largest = float(np.max(np.maximum(abs(self.low), abs(self.high)) / self.scale))
            x_inf = 1.0 if intercept else min(1.0, max(LEAST_CELL, math.nextafter(largest, math.inf)))
            return Bounds(x_inf, math.sqrt(1 + intercept**2))
        if all(levels is None for levels in self.levels):
            return Bounds(1.0)
        # One level of a column at a time: rows are much shorter than the number of features suggests.
        return Bounds(1.0, math.nextafter(math.hypot(self.row_norm(), intercept), math.inf))

    def rows(self, table: Table, quantiser: Quantiser) -> Dense | Sparse:
        """Clip and quantise every record, a block at a time."""
        if table.sparse:
            rows = table.compressed()
            rows.data[~np.isfinite(rows.data)] = np.nan
            np.clip(rows.data, self.low[rows.indices], self.high[rows.indices], out=rows.data)
            return quantiser.quantise(rows)
        # The quantiser clips to the bounds where they became [-1, 1], and levels are 0 or 1 already.
        center, scale = _unit_map(self.is_level, self.low, self.high)
        clip = not (np.array_equal(center, self.center) and np.array_equal(scale, self.scale))
        parts = np.empty((table.n, self.width + (quantiser.intercept != 0)), dtype=np.int16)
        for start, block in table.feature_blocks(self.levels, self.maps):
            known = np.isfinite(block) & self.marked
            if not np.array_equal(self.fill, self.center):
                block = np.where(np.isfinite(block), block, self.fill)
            if clip:
                block = self.clipped(block)
            stored = quantiser.quantise(block)
            parts[start : start + len(block)] = stored.values
            parts[start : start + len(block), : self.width][known & (stored.values[:, : self.width] == 0)] = 1
        return Dense(parts)

    def clipped(self, features: Vector) -> Vector:
        """Return features (n, width) clipped to their bounds; NaN where there is no finite number."""
        found: Vector = np.where(np.isfinite(features), features, np.nan).clip(self.low, self.high)
        return found

    def recognised(self, table: Table) -> Iterator[NDArray[np.bool_]]:
        """Say of each number and level of dense records, a block at a time, whether it is recognised.

        A number is if it is finite; a level, the baseline included, is where it is the cell's own.
        """
        whole = tuple(None if each is None else DeclaredLevels(each.values) for each in self.levels)
        is_level = _is_level(whole)
        for _, block in table.feature_blocks(whole):
            known = np.isfinite(block)
            known[:, is_level] &= block[:, is_level] == 1
            yield known


def feature_names(labels: Sequence[str], levels: Levels, maps: Maps) -> tuple[str, ...]:
    """Return one name per feature: that of the column, "column[map]" or "column=level"."""
    return tuple(
        label + suffix
        for label, declared, each in zip(labels, levels, each_map(maps, len(levels)), strict=True)
        for suffix in (
            each.suffixes if declared is None else [f"={declared[code]}" for code in declared.coded]
        )
    )


def _unit_map(is_level: NDArray[np.bool_], low: Vector, high: Vector) -> tuple[Vector, Vector]:
    """Centre and scale that take numbers from their bounds to [-1, 1] and leave levels at 0 and 1.

    A feature that is the same for all cells between their bounds has scale 1.
    """
    half = (high - low) / 2
    return np.where(is_level, 0.0, low + half), np.where(is_level | (half == 0), 1.0, half)


def _spans(levels: Levels, maps: Maps) -> list[range]:
    """Features of each raw column."""
    sizes = feature_counts(levels, maps)
    return [range(end - size, end) for size, end in zip(sizes, accumulate(sizes), strict=True)]


def _is_level(levels: Levels, maps: Maps = None) -> NDArray[np.bool_]:
    """Say of each feature whether it stands for a level of a column."""
    return np.repeat([each is not None for each in levels], feature_counts(levels, maps))


def _declared_maps(
    table: Table, maps: Mapping[int, ColumnMap], levels: Levels, data_norm: float | None
) -> Maps:
    """The map of each column; maps of sparse records, of levels, or beside a norm of rows are refused."""
    for j, each in maps.items():
        if not isinstance(each, ColumnMap):
            raise Incompatible(
                f"The map of column {table.label(j)} needs private quantiles, which only a fit to dense "
                "records in memory releases: declare its numbers."
            )
        if table.sparse:
            raise WrongType("maps need dense arrays or data frames; map sparse records beforehand.")
        if levels[j] is not None:
            raise WrongValue(f"maps are for numbers, and column {table.label(j)} has declared levels.")
        if data_norm is not None:
            raise WrongValue("data_norm bounds rows without maps: leave data_norm or maps out.")
    return tuple(maps.get(j, IDENTITY) for j in range(table.d)) if maps else None


def _declared_levels(table: Table, categories: Mapping[Any, Sequence[Any]] | None) -> Levels:
    if categories is not None and not isinstance(categories, Mapping):
        raise WrongType(
            f"categories must be a mapping from column to levels, got {type(categories).__name__}."
        )
    if categories and table.sparse:
        raise WrongType("categories need dense arrays or data frames; encode sparse records beforehand.")
    declared: dict[int, DeclaredLevels] = {}
    for key, levels in (categories or {}).items():
        j = table.position(key, "categories")
        declared[j] = DeclaredLevels.declare(levels, f"categories[{key!r}]")
        if not declared[j]:
            raise WrongValue(f"categories[{key!r}] must name at least one level, got {show(levels)}.")
    return tuple(declared.get(j) for j in range(table.d))


def _declared_bounds(table: Table, bounds: Any, levels: Levels) -> tuple[Vector, Vector]:
    wanted = [j for j in range(table.d) if levels[j] is None]
    if isinstance(bounds, Mapping):
        low, high = np.zeros(table.d), np.ones(table.d)
        given = {table.position(key, "bounds"): pair for key, pair in bounds.items()}
        missing = [table.label(j) for j in wanted if j not in given]
        if missing:
            raise WrongValue(
                f"bounds are missing for column(s) {', '.join(missing)}: give a pair (low, high) for each. "
                "Of text declare the levels, in categories. Columns that are no features: leave them out of "
                "the table, or give a schema, which uses the columns that it names."
            )
        for j, pair in given.items():
            low[j], high[j] = bound_pair(pair, f"bounds of {table.label(j)}")
    else:
        parts = bound_pair(bounds, "bounds")
        for part in parts:
            if part.shape not in ((), (table.d,)):
                raise WrongValue(
                    f"bounds must be a pair (low, high) of numbers or of arrays with one entry for each "
                    f"of the {table.d} columns, got shapes {parts[0].shape} and {parts[1].shape}."
                )
        low, high = (np.array(np.broadcast_to(part, (table.d,))) for part in parts)
    wrong = [j for j in wanted if not 0 < high[j] - low[j] < math.inf]
    if wrong:
        j = wrong[0]
        raise WrongValue(
            f"bounds must be finite with low < high; column {table.label(j)} has ({low[j]:g}, {high[j]:g}). "
            "A pair of arrays holds all lows, then all highs; for one pair per column give a mapping from "
            "column to pair."
        )
    return low, high


def bound_pair(given: Any, what: str) -> tuple[Vector, Vector]:
    """Return a declared pair (low, high) of numbers or of arrays of them."""
    try:
        low, high = given
        return np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    except (TypeError, ValueError):
        from dpcvx.data.table_schema import TableSchema

        advice = " Give a schema as schema=." if isinstance(given, TableSchema) else ""
        raise WrongValue(f"{what} must be a pair (low, high), got {show(given)}.{advice}") from None
