"""Tables of people: rows of any accepted kind behind one reader, with their public columns.

Errors here speak of shapes, names and declarations. The content of a cell never causes or changes one.
"""

from __future__ import annotations

import itertools
import numbers
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpcvx.arrays import Vector
from dpcvx.data.canonical import read_numbers
from dpcvx.data.cells import (
    ALL,
    Places,
    column_cells,
    column_codes,
    column_numbers,
    compressed_rows,
    native_array,
    open_typed,
    read_column,
    without_column,
)
from dpcvx.data.column_maps import Maps, each_map
from dpcvx.data.levels import DeclaredLevels
from dpcvx.data.quantise import CELLS_AT_ONCE
from dpcvx.errors import WrongType, WrongValue

if TYPE_CHECKING:
    from dpcvx.data.table_schema import TableSchema
    from dpcvx.data.variables import Variable

__all__ = ["Levels", "Table", "baseline_places", "feature_counts", "open_declared", "read_variables"]

Levels = tuple[DeclaredLevels | None, ...]  # per raw column: its declared levels, or None for a number


def feature_counts(levels: Levels, maps: Maps = None) -> list[int]:
    """Return the number of features of each column: of a number's map, or one for each level of a category.

    `maps`: None for numbers as they are.
    """
    return [
        len(each.suffixes) if declared is None else len(declared.coded)
        for declared, each in zip(levels, each_map(maps, len(levels)), strict=True)
    ]


def baseline_places(levels: Levels, maps: Maps = None) -> list[int]:
    """Return the places of the features of baselines, among those of all columns."""
    firsts = itertools.accumulate(feature_counts(levels, maps), initial=0)
    return [
        first + declared.baseline
        for first, declared in zip(firsts, levels, strict=False)
        if declared is not None and declared.baseline is not None and declared.is_compared
    ]


class Table:
    """Rows of any accepted kind behind one reader.

    `X`: array-like, SciPy sparse matrix, or pandas / polars / Arrow table, shape (n, d), raw records;
    `schema`: of this table, whose variables then take the place of its columns. `n`, `d`: rows and columns;
    `names`: column names of a data frame; `sparse`: whether the rows are compressed.
    """

    n: int
    d: int
    sparse: bool
    variables: tuple[Variable, ...]

    def __init__(self, X: Any, schema: TableSchema | None = None) -> None:
        import narwhals as nw

        if hasattr(type(X), "labels") and hasattr(type(X), "source"):  # a `dpcvx.data.dataset.Dataset`
            raise WrongType(
                f"{type(X).__name__} is for fit alone: its records are kept rounded, for sums over them. "
                "Predictions and scores need the rows in your own units, such as an array or a table; give "
                "them a part at a time if they are many."
            )
        self.names: tuple[Any, ...] | None = None
        self.schema = schema
        self.sparse = hasattr(X, "tocsr")
        self._rows: Any = X
        if not self.sparse:
            frame = open_typed(X)
            if isinstance(frame, nw.DataFrame):
                self._rows, self.names = frame, tuple(frame.columns)
            elif isinstance(nw.from_native(X, allow_series=True, pass_through=True), nw.LazyFrame):
                # As an array a Dask frame would lose the names of its columns.
                raise WrongType(
                    f"X is a lazy table ({type(X).__module__.split('.')[0]}): its rows are not in memory. To "
                    'fit a Dask frame where its rows are, give backend="dask", or from_dask(frame, '
                    'target="column"). To predict, give the rows part by part, as in '
                    "X.map_partitions(model.predict). Otherwise load them first: X.compute() or X.collect()."
                )
            else:
                self._rows = native_array(X, ndim=2)
        if len(self._rows.shape) != 2:
            raise WrongValue(
                f"Expected 2D array, got {len(self._rows.shape)}D array instead: X needs one row per person "
                "and one column per feature. Reshape your data with X.reshape(-1, 1) for one feature or "
                "X.reshape(1, -1) for one row."
            )
        self.n, self.d = (int(length) for length in self._rows.shape)
        self.variables = () if schema is None else schema.variables()
        if schema is not None:
            self._require_columns([name for each in self.variables for name in (each.column, *each.also)])
            self.names = tuple(each.name for each in self.variables)
            self.d = len(self.names)
        for length, what in ((self.n, "sample"), (self.d, "feature")):
            if length == 0:
                raise WrongValue(
                    f"Found array with 0 {what}(s) (shape=({self.n}, {self.d})) while a minimum of 1 is "
                    "required."
                )

    def header(self) -> Any:
        """A table without rows that has the same columns, in a form whose names every scikit-learn reads."""
        if self.names is None:
            return np.empty((0, self.d))
        if self.schema is None and not all(isinstance(name, str) for name in self.names):
            return self._rows.head(0).to_native()
        import pyarrow

        return pyarrow.schema([(name, pyarrow.float64()) for name in self.names]).empty_table()

    def label(self, j: int) -> str:
        """Name of a column for people."""
        return f"x{j}" if self.names is None else str(self.names[j])

    def position(self, key: Any, parameter: str) -> int:
        """Return the position of a declared column: named, or numbered where the table has no names."""
        if self.names is not None and key in self.names:
            return self.names.index(key)
        if self.names is None and isinstance(key, numbers.Integral) and int(key) in range(self.d):
            return int(key)
        known = f"0..{self.d - 1}" if self.names is None else ", ".join(map(str, self.names))
        raise WrongValue(f"{parameter} names a column {key!r} that X does not have. Columns of X: {known}.")

    def codes(self, j: int, start: int, stop: int, levels: DeclaredLevels) -> NDArray[np.int64]:
        """Places of one column's cells among levels, -1 for a cell that is none of them."""
        if self.variables:
            cells, places = self._variable(j, start, stop)
            return levels.codes(cells)[places]
        if self.names is None:
            return levels.codes(self._rows[start:stop, j])
        return column_codes(self._rows[start:stop, j], levels)

    def column_numbers(self, j: int, start: int, stop: int) -> Vector:
        """Cells of one column as numbers, NaN where one is none."""
        if self.variables:
            cells, places = self._variable(j, start, stop)
            return read_numbers(cells)[places]
        if self.names is None:
            return read_numbers(self._rows[start:stop, j])
        return column_numbers(self._rows[start:stop, j])

    def only(self, names: tuple[Any, ...]) -> Any:
        """Return some columns of a data frame, in this order, as a data frame."""
        return self._rows.select(list(names)).to_native()

    def raw(self, name: str) -> Any:
        """Return a raw column of a data frame as it is, such as the target."""
        self._require_columns([name])
        return self._rows[name].to_native()

    def _variable(self, j: int, start: int, stop: int) -> tuple[NDArray[Any], Places]:
        """Different cells of a variable, and the place of every record's among them."""
        variable = self.variables[j]
        cells, places = read_column(self._rows[variable.column][start:stop])
        if variable.also:
            others = (column_cells(self._rows[name][start:stop]) for name in variable.also)
            return variable.read(cells[places], *others), ALL
        return variable.read(cells), places

    def _require_columns(self, wanted: list[str]) -> None:
        known = getattr(self._rows, "columns", None)
        if known is None:
            raise WrongType(
                "A schema names columns: give a pandas, polars or Arrow table, whose columns have names."
            )
        if absent := [name for name in wanted if name not in known]:
            raise WrongValue(f"The table lacks column(s) {', '.join(absent)}, which the model reads.")

    def numbers(self, start: int, stop: int) -> Vector:
        """Every cell of rows start..stop as a number, NaN where it is none."""
        if self.names is None:
            return read_numbers(self._rows[start:stop])
        block = np.empty((stop - start, self.d))
        for j in range(self.d):
            block[:, j] = self.column_numbers(j, start, stop)
        return block

    def feature_blocks(self, levels: Levels, maps: Maps = None) -> Iterator[tuple[int, Vector]]:
        """Yield all rows as features, a block at a time, each with the position of its first row."""
        step = max(1, CELLS_AT_ONCE // sum(feature_counts(levels, maps)))
        for start in range(0, self.n, step):
            yield start, self.features(levels, maps, start, min(self.n, start + step))

    def features(self, levels: Levels, maps: Maps, start: int, stop: int) -> Vector:
        """Rows start..stop as features: a mapped number, or a 0/1 for each level; NaN for any other cell.

        `maps`: None for numbers as they are.
        """
        if maps is None and all(declared is None for declared in levels):
            return self.numbers(start, stop)
        counts = feature_counts(levels, maps)
        block = np.zeros((stop - start, sum(counts)))
        end = 0
        for j, (declared, count) in enumerate(zip(levels, counts, strict=True)):
            end += count
            part = block[:, end - count : end]
            if declared is None:
                numbers = self.column_numbers(j, start, stop)
                part[:] = numbers[:, None] if maps is None else maps[j](numbers)
            else:
                codes = self.codes(j, start, stop, declared)
                part[:] = codes[:, None] == np.array(declared.coded)
                part[codes < 0] = np.nan
        return block

    def compressed(self, start: int = 0, stop: int | None = None) -> Any:
        """Rows start..stop as a fresh float64 CSR array, duplicates summed."""
        whole = start == 0 and stop is None
        return compressed_rows(self._rows if whole else self._rows.tocsr()[start:stop])


def open_declared(X: Any, schema: TableSchema, target: str | None = None) -> Table:
    """Open a table with a schema, which may name columns that the table does not have.

    `target`: column that is not used as a feature, by default the schema's target.
    """
    names = Table(X).names
    if names is None:
        raise WrongType(
            "A schema names columns: give a pandas, polars or Arrow table, whose columns have names."
        )
    return Table(X, schema.for_table(names, target))


def read_variables(X: Any, schema: TableSchema, *, person: str | None = None) -> Any:
    """Return the variables of every record as an Arrow table: numbers, and levels as text.

    A variable is a function of its own record and of the schema alone, so that this
    costs no budget. A cell that is not a number, or none of the levels, is missing.

    Parameters
    ----------
    X : pandas / polars / Arrow table
        Columns that the schema does not name are left out.
    schema : TableSchema
        Its target is a variable like the others.
    person : str, optional
        Column with the ids of persons, if X has one, which is no variable: give it to the engine as
        ``groups``, so that all rows of a person are protected together.
    """
    import pyarrow as pa

    X = without_column(X, person)
    rows = open_declared(X, replace(schema, target=None, formula=None))
    columns = {}
    for j, each in enumerate(rows.variables):
        if each.levels is None:
            columns[each.name] = pa.array(rows.column_numbers(j, 0, rows.n), from_pandas=True)
        else:
            labels = [*map(str, each.levels), None]
            codes = rows.codes(j, 0, rows.n, DeclaredLevels(each.levels))
            columns[each.name] = pa.array([labels[code] for code in codes], pa.large_string())
    return pa.table(columns)
