"""Tables of people: rows of any accepted kind behind one reader, with their public columns.

Errors here speak of shapes, names and declarations. The content of a cell never causes or changes one.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcvx.arrays import Vector
from dpcvx.data.canonical import read_numbers
from dpcvx.data.cells import column_codes, column_numbers, compressed_rows, native_array, open_typed
from dpcvx.data.levels import DeclaredLevels
from dpcvx.data.quantise import CELLS_AT_ONCE
from dpcvx.errors import WrongType, WrongValue

__all__ = ["Levels", "Table", "n_features"]

Levels = tuple[DeclaredLevels | None, ...]  # per raw column: its declared levels, or None for a number


def n_features(levels: Levels) -> int:
    """Return the number of features: one of a number, one for each level of a category."""
    return sum(1 if declared is None else len(declared) for declared in levels)


class Table:
    """Rows of any accepted kind behind one reader.

    `X`: array-like, SciPy sparse matrix, or pandas / polars / Arrow table, shape (n, d), raw records. `n`,
    `d`: rows and columns; `names`: column names of a data frame; `sparse`: whether the rows are compressed.
    """

    def __init__(self, X: Any) -> None:
        import narwhals as nw

        if hasattr(type(X), "labels") and hasattr(type(X), "source"):  # a `dpcvx.data.dataset.Dataset`
            raise WrongType(
                f"{type(X).__name__} is for fit alone: its records are kept rounded, for sums over them. "
                "Predictions and scores need the rows in your own units, such as an array or a table; give "
                "them a part at a time if they are many."
            )
        self.names: tuple[Any, ...] | None = None
        self.sparse = hasattr(X, "tocsr")
        self._rows: Any = X
        if not self.sparse:
            frame = open_typed(X)
            if isinstance(frame, nw.DataFrame):
                self._rows, self.names = frame, tuple(frame.columns)
            else:
                self._rows = native_array(X, ndim=2)
        if len(self._rows.shape) != 2:
            raise WrongValue(
                f"Expected 2D array, got {len(self._rows.shape)}D array instead: X needs one row per person "
                "and one column per feature. Reshape your data with X.reshape(-1, 1) for one feature or "
                "X.reshape(1, -1) for one row."
            )
        self.n, self.d = (int(length) for length in self._rows.shape)
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
        if not all(isinstance(name, str) for name in self.names):
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
        if self.names is None:
            return levels.codes(self._rows[start:stop, j])
        return column_codes(self._rows[start:stop, j], levels)

    def column_numbers(self, j: int, start: int, stop: int) -> Vector:
        """Cells of one column as numbers, NaN where one is none."""
        if self.names is None:
            return read_numbers(self._rows[start:stop, j])
        return column_numbers(self._rows[start:stop, j])

    def numbers(self, start: int, stop: int) -> Vector:
        """Every cell of rows start..stop as a number, NaN where it is none."""
        if self.names is None:
            return read_numbers(self._rows[start:stop])
        block = np.empty((stop - start, self.d))
        for j in range(self.d):
            block[:, j] = self.column_numbers(j, start, stop)
        return block

    def feature_blocks(self, levels: Levels) -> Iterator[tuple[int, Vector]]:
        """Yield all rows as features, a block at a time, each with the position of its first row."""
        step = max(1, CELLS_AT_ONCE // n_features(levels))
        for start in range(0, self.n, step):
            yield start, self.features(levels, start, min(self.n, start + step))

    def features(self, levels: Levels, start: int, stop: int) -> Vector:
        """Rows start..stop as features: a number (NaN where there is none), or a 0/1 for each level."""
        if all(declared is None for declared in levels):
            return self.numbers(start, stop)
        block = np.zeros((stop - start, n_features(levels)))
        place = 0
        for j, declared in enumerate(levels):
            if declared is None:
                block[:, place] = self.column_numbers(j, start, stop)
                place += 1
            else:
                codes = self.codes(j, start, stop, declared)
                known = np.flatnonzero(codes >= 0)
                block[known, place + codes[known]] = 1.0
                place += len(declared)
        return block

    def compressed(self, start: int = 0, stop: int | None = None) -> Any:
        """Rows start..stop as a fresh float64 CSR array, duplicates summed."""
        whole = start == 0 and stop is None
        return compressed_rows(self._rows if whole else self._rows.tocsr()[start:stop])
