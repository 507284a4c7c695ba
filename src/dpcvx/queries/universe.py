"""The universe of a schema: all possible records, as numbered cells that are never listed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcvx.arrays import IntVector, Vector
from dpcvx.data.canonical import read_numbers
from dpcvx.data.cells import native_array, open_typed, read_column
from dpcvx.errors import Incompatible, WrongType, WrongValue
from dpcvx.queries.bin_means import bin_sums
from dpcvx.queries.schema import Attribute, Binned, Column, Schema
from dpcvx.words import list_absent

__all__ = ["LARGEST_UNIVERSE", "EncodedTable", "Universe", "require_columns"]

# Cells of a universe that has a histogram, of 128 MiB in float64 and half of it in float32.
LARGEST_UNIVERSE = 2**24
LARGEST_ATTRIBUTE = 2**15  # cells of one attribute, whose codes take 16 bits


@dataclass(frozen=True)
class Universe:
    """All combinations of levels and bins.

    In a universe of at most 2^24 cells, `listed`, cell x has the number sum_a x_a prod_{b > a} size_b. In a
    larger one records are known by the codes of their attributes.

    Parameters
    ----------
    schema : Schema
        The attributes, first one slowest.
    """

    schema: Schema

    def __post_init__(self) -> None:
        if max(self.shape) > LARGEST_ATTRIBUTE:
            name = self.schema.names[self.shape.index(max(self.shape))]
            raise Incompatible(
                f"{name!r} has {max(self.shape):,} cells; at most {LARGEST_ATTRIBUTE:,} are served. Join "
                "levels or widen bins."
            )

    @property
    def listed(self) -> bool:
        """Whether cells have numbers, and a histogram may hold them all."""
        return self.n_cells <= LARGEST_UNIVERSE

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Number of levels or bins of each attribute."""
        return tuple(attribute.size for attribute in self.schema.attributes)

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return math.prod(self.shape)

    def axes(self, attributes: tuple[int, ...]) -> tuple[int, ...]:
        """Return attribute numbers unchanged; refuse unknown or repeated ones."""
        if len(set(attributes)) < len(attributes) or not all(a in range(len(self.shape)) for a in attributes):
            raise WrongValue(
                f"attributes must be different numbers from 0 to {len(self.shape) - 1}, got {attributes!r}."
            )
        return tuple(attributes)

    def encode(self, table: Any) -> IntVector:
        """Return the cell number of every record, shape (n,).

        Unknown levels, numbers out of range and missing values have declared levels or bins; no value raises.

        Parameters
        ----------
        table : pandas / polars / Arrow table, NumPy structured array, or mapping from name to column
            Columns that the schema does not name are not read.
        """
        if not self.listed:
            raise Incompatible(
                f"The {self.n_cells:,} cells of this schema have no numbers: at most {LARGEST_UNIVERSE:,} "
                "cells have."
            )
        return self.read(table).cells

    @property
    def missing_cell(self) -> int:
        """Number of the cell of a record that has no value in any column."""
        return int(np.ravel_multi_index([a.missing_code for a in self.schema.attributes], self.shape))

    def read(self, table: Any, weights: IntVector | None = None) -> EncodedTable:
        """Return the cell of every record, and how many cells of each column are recognised.

        `table`: as in `encode`; `weights`: of the records in the counts, 1 each by default.
        """
        columns = _columns(table, self.schema.names)
        read = [_codes(a, columns[a.name]) for a in self.schema.attributes]
        lengths = {len(codes) for codes, _, _ in read}
        if len(lengths) > 1:
            raise WrongValue("The columns of a table must all have the same number of rows.")
        if weights is not None and lengths != {len(weights)}:
            raise WrongValue("Every row of a table needs the id of its person: give one id for each row.")
        if self.listed:
            cells = np.zeros(len(read[0][0]), dtype=np.int64)
            for size, (codes, _, _) in zip(self.shape, read, strict=True):
                cells *= size
                cells += codes
        else:
            cells = np.stack([codes.astype(np.int16) for codes, _, _ in read])
        found = [np.where(found, codes, -1) for codes, found, _ in read]
        measured = [
            (numbers, codes)
            for a, (codes, _, numbers) in zip(self.schema.attributes, read, strict=True)
            if isinstance(a, Binned) and a.values is None
        ]
        sums = bin_sums(self.schema, [n for n, _ in measured], [c for _, c in measured], weights)
        return EncodedTable(cells, count_recognised(self.schema, found, weights), sums)

    def decode(self, cells: IntVector) -> dict[str, Any]:
        """Return the columns of cells in the units of the table: levels, and values of bins.

        `cells`: numbers of cells, (n,), or in a universe that is not listed their codes, (attributes, n).
        """
        digits = np.unravel_index(cells, self.shape) if self.listed else cells
        return {a.name: a.units[code] for a, code in zip(self.schema.attributes, digits, strict=True)}


@dataclass(frozen=True, eq=False, repr=False)
class EncodedTable:
    """Records as cells, with exact counts of recognised cells; private, for the private side."""

    cells: NDArray[Any]  # number of each record's cell, (n,); without numbers its codes, (attributes, n)
    recognised: IntVector  # as `count_recognised` returns them
    bins: IntVector  # as `bin_sums` returns them


def count_recognised(schema: Schema, codes: Sequence[IntVector], weights: IntVector | None) -> IntVector:
    """Return numbers of recognised cells, in the order of `table_check.counts_of`; private.

    First the finite numbers of each binned column, then the cells of each declared level, column by column,
    and last the weight of all records if they have weights.

    `codes`: level or bin of each record, column by column, -1 where its cell is not recognised.
    """
    pairs = list(zip(schema.attributes, codes, strict=True))
    each = np.ones(len(codes[0]), dtype=np.int64) if weights is None else weights
    numbers = [int(each[found >= 0].sum()) for column, found in pairs if isinstance(column, Binned)]
    present = [] if weights is None else [int(weights.sum())]
    levels: list[int] = []
    for column, found in pairs:
        if isinstance(column, Attribute):
            sums = np.bincount(found[found >= 0], each[found >= 0], len(column.levels))
            levels += sums.astype(np.int64).tolist()
    return np.array([*numbers, *levels, *present], dtype=np.int64)


def _columns(table: Any, names: tuple[str, ...]) -> Mapping[str, Any]:
    """Return the columns of a table by name, without reading them."""
    import narwhals as nw

    frame = open_typed(table)
    _require_names(names, _names(table))
    if isinstance(frame, nw.DataFrame):
        return {name: frame[name] for name in names}
    if isinstance(table, np.ndarray):
        return {name: table[name] for name in names}
    return {name: _open_column(table[name]) for name in names}


def require_columns(schema: Schema, table: Any) -> None:
    """Refuse a table that lacks a column of the schema, before anything is paid for; no column is read."""
    _require_names(schema.names, _names(table))


def _require_names(names: tuple[str, ...], found: Sequence[Any]) -> None:
    if absent := [name for name in names if name not in found]:
        others = [str(name) for name in found if name not in names]
        raise WrongValue(
            f"The schema declares columns that the table lacks: {list_absent(absent, others)}. Correct the "
            "names, or leave these columns out of the schema."
        )


def _names(table: Any) -> Sequence[Any]:
    """Return the names of a table's columns."""
    import narwhals as nw

    frame = open_typed(table)
    if isinstance(frame, nw.DataFrame):
        names: Sequence[Any] = frame.columns
        return names
    if isinstance(table, np.ndarray) and table.dtype.names is not None and table.ndim == 1:
        return tuple(table.dtype.names)
    if isinstance(table, Mapping):
        return list(table)
    raise WrongType(
        "A table of records must be a pandas, polars or Arrow table, a NumPy structured array, or a "
        f"mapping from name to column; got {type(table).__name__}."
    )


def _open_column(column: Any) -> Any:
    """Open a column of a mapping; cells of a list keep their types."""
    if isinstance(column, list | tuple):
        return np.fromiter(column, dtype=object, count=len(column))
    return open_typed(column)


def read_ids(table: Any, name: str) -> Any:
    """Return the column of a table that says whose record each row is."""
    import narwhals as nw

    column = _columns(table, (name,))[name]
    return column.to_native() if isinstance(column, nw.Series) else column


def _codes(attribute: Column, column: Any) -> tuple[IntVector, NDArray[np.bool_], Vector]:
    """Return the level or bin of each record, whether its cell is recognised, and its number if binned."""
    import narwhals as nw

    cells, places = (
        read_column(column) if isinstance(column, nw.Series) else (native_array(column), slice(None))
    )
    if cells.ndim != 1:
        raise WrongValue(f"Column {attribute.name!r} has {cells.ndim} dimensions; it must have one.")
    if isinstance(attribute, Attribute):
        codes, recognised = attribute.encode(cells)
        return codes[places], recognised[places], np.zeros(0)
    numbers = read_numbers(cells)
    codes, recognised = attribute.encode(numbers)
    return codes[places], recognised[places], numbers[places]
