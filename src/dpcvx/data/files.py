"""Tables in files.

Only the names and declared types of columns are public. Past them nothing raises, warns or chooses a path
because of a cell: what cannot be read as declared is a missing value, and every line of a CSV file after the
first is one record, whatever it holds.
"""

from __future__ import annotations

import csv
import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpcvx.data.cells import column_numbers, distinct_cells, open_typed
from dpcvx.errors import Unreadable, WrongValue

__all__ = ["HEADER_HINT", "NOT_PARQUET", "TableFile", "csv_header", "csv_table", "open_table", "read_bytes"]

Level = str | int | float

# Said instead of the columns found: the first line of a file without a header is somebody's record.
HEADER_HINT = "check the names: the first line of a CSV file must be its header."

NOT_PARQUET = (
    "cannot be read as Parquet: it is damaged or cut short, as an interrupted copy is, or another kind of "
    "file. Copy or write it again."
)


class TableFile:
    """A CSV or Parquet file whose cells are read only on demand.

    `columns`: names, in the file's order; `read`: returns the columns of the given names: numbers of the
    first, as NumPy or Arrow arrays; of the second a list of cells, and the place of every record's cell in
    it; `kinds`: declared type of each column, "number", "text" or another; CSV declares none.
    """

    def __init__(
        self,
        columns: list[str],
        read: Callable[[Sequence[str], Sequence[str]], dict[str, Any]],
        kinds: dict[str, str] | None = None,
    ) -> None:
        self.columns, self._read, self._kinds = columns, read, kinds
        if len(set(columns)) < len(columns):
            raise WrongValue(f"The table names a column more than once; {HEADER_HINT}")

    def read(
        self,
        features: Sequence[str],
        categories: Mapping[str, Sequence[Level]],
        target: str | None = None,
        classes: Sequence[Level] | None = None,
    ) -> tuple[Any, Any]:
        """Return the features as an Arrow table, and the target as an array.

        `features`: columns to return; `categories`: levels of those that are not numbers; `target`: column of
        the target; None returns no target; `classes`: its labels; None for a numeric target.
        """
        import pyarrow as pa

        levels = {name: categories[name] for name in features if name in categories}
        if target is not None and classes is not None:
            levels[target] = classes
        wanted = [*features] if target is None else [*features, target]
        for name in wanted:
            self._check_kind(name, levels.get(name))
        columns = self._read([name for name in wanted if name not in levels], list(levels))
        for name, known in levels.items():
            cells, places = columns[name]
            columns[name] = _matched(cells, known)[places]
        y = None if target is None else columns[target]
        return pa.table({name: _arrow(columns[name]) for name in features}), _array(y)

    def _check_kind(self, name: str, levels: Sequence[Level] | None) -> None:
        """Refuse a column whose declared type does not fit its use."""
        kind = "number" if self._kinds is None else self._kinds[name]
        if kind not in ("number", "text"):
            raise WrongValue(f"{name!r} has type {kind} in the table; only numbers and text can be used.")
        if kind == "text" and levels is None:
            raise WrongValue(
                f"{name!r} is text in the table, where numbers are needed: declare its levels in the bounds "
                "file ([categories] for a feature, classes for a target), or leave the column out."
            )
        numeric = levels is None or any(not math.isnan(_number(str(level))) for level in levels)
        if self._kinds is not None and kind == "number" and not numeric:
            raise WrongValue(f"{name!r} is a number in the table, but the levels declared for it are text.")


def open_table(path: Path) -> TableFile:
    """Open a CSV or Parquet file and read its header.

    `path`: ends in .csv or .parquet.
    """
    kind = path.suffix.lower()
    if kind == ".csv":
        return _open_csv(path)
    if kind in (".parquet", ".pq"):
        return _open_parquet(path)
    raise WrongValue(f"{path} must end in .csv or .parquet, to say what it is.")


def _open_csv(path: Path) -> TableFile:
    content = read_bytes(path)
    lines = content.removesuffix(b"\n").split(b"\n")
    header = csv_header(lines[0], path)
    if len(lines) == 1:
        raise Unreadable(f"{path} has no rows below its header.")
    return csv_table(header, lines[1:])


def csv_header(line: bytes, path: Path) -> list[str]:
    """Return the names of the columns from the first line of a file.

    `line`: without its line feed; `path`: the file, for messages.
    """
    if b"\r" in line.removesuffix(b"\r"):
        raise Unreadable(f"{path} has a lone carriage return in its header; end lines with a line feed.")
    header = _cells(line.removeprefix(b"\xef\xbb\xbf"))
    if header in ([], [""]):
        raise Unreadable(f"{path} is empty: the first line must name the columns.")
    return header


def csv_table(header: list[str], lines: Sequence[bytes]) -> TableFile:
    """Return a table of some lines of a file, each of which is one record.

    `header`: names of the columns; `lines`: without their line feeds.
    """

    def read(numeric: Sequence[str], words: Sequence[str]) -> dict[str, Any]:
        numbers = [(header.index(name), array("d")) for name in numeric]
        text: list[tuple[int, list[str]]] = [(header.index(name), []) for name in words]
        missing = [""] * len(header)
        for line in lines:
            cells = _cells(line)
            if len(cells) != len(header):  # a record all the same: n stays the number of lines
                cells = missing
            for place, values in numbers:
                values.append(_number(cells[place]))
            for place, strings in text:
                strings.append(cells[place].strip())
        columns: dict[str, Any] = {header[place]: np.array(values) for place, values in numbers}
        return columns | {header[place]: (strings, slice(None)) for place, strings in text}

    return TableFile(header, read)


def _cells(line: bytes) -> list[str]:
    """The cells of one line, read on its own so that no quote can swallow the next record."""
    text = line.removesuffix(b"\r").decode("utf-8", errors="replace")
    if '"' not in text:
        return text.split(",")
    try:
        return next(csv.reader([text]), [])
    except csv.Error:
        return []


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return math.nan


def _open_parquet(path: Path) -> TableFile:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not read_bytes(path, limit=4):
        raise Unreadable(f"{path} is empty.")
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError):
        raise Unreadable(f"{path} {NOT_PARQUET}") from None
    if file.metadata.num_rows == 0:
        raise Unreadable(f"{path} has no rows.")
    kinds = {column.name: _kind(column.type) for column in file.schema_arrow}

    def read(numeric: Sequence[str], words: Sequence[str]) -> dict[str, Any]:
        try:
            table = file.read(columns=[*numeric, *words])
        except (pa.ArrowException, OSError):
            raise Unreadable(f"{path} {NOT_PARQUET}") from None
        columns: dict[str, Any] = {name: table[name] for name in numeric}
        return columns | {name: _words(table[name], kinds[name]) for name in words}

    return TableFile(list(file.schema_arrow.names), read, kinds)


def _words(column: Any, kind: str) -> tuple[list[Any], Any]:
    """Cells of a column with levels, each different text once, and the place of every record's cell."""
    series = open_typed(column)
    found = distinct_cells(series) if kind == "text" else None
    if found is None:
        return list(column_numbers(series)), slice(None)
    cells, places = found
    return [cell if cell is None else cell.strip() for cell in cells], places


def _arrow(column: Any) -> Any:
    """A column as Arrow has it: that of a file as it lies there, if its type says that it holds numbers."""
    import pyarrow as pa
    from pyarrow import types

    if not isinstance(column, pa.ChunkedArray):
        # The type is stated, not found: a column without a single known level is still a column of text.
        return pa.array(column, pa.string() if column.dtype == object else pa.float64())
    plain = (types.is_integer, types.is_float32, types.is_float64)
    return column if any(test(column.type) for test in plain) else pa.array(_array(column))


def _array(column: Any) -> Any:
    """A column as NumPy has it; numbers of a file as float64."""
    return column if column is None or isinstance(column, np.ndarray) else column_numbers(open_typed(column))


def _kind(declared: Any) -> str:
    """Say "number", "text", or the name of another Arrow type."""
    from pyarrow import types

    if types.is_dictionary(declared):
        return _kind(declared.value_type)
    if types.is_string(declared) or types.is_large_string(declared):
        return "text"
    numeric = (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean)
    return "number" if any(test(declared) for test in numeric) else str(declared)


def _matched(cells: list[Any], levels: Sequence[Level]) -> Any:
    """Each cell as the level it equals, in the levels' own type; missing where it equals none."""
    if isinstance(levels[0], str):
        known: dict[Any, Level] = {level: level for level in levels}
        known |= {number: level for level in levels if not math.isnan(number := _number(str(level)))}
        return np.array([known.get(cell) for cell in cells], dtype=object)
    numbers = {float(level) for level in levels}
    found = (_number(cell) if isinstance(cell, str) else cell for cell in cells)
    return np.array([cell if cell in numbers else math.nan for cell in found], dtype=np.float64)


def read_bytes(path: Path, limit: int = -1) -> bytes:
    """Return the first bytes of a file, or all, and say in one sentence where that fails."""
    try:
        with path.open("rb") as file:
            return file.read(limit)
    except FileNotFoundError:
        raise Unreadable(f"{path} does not exist.") from None
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror}.") from None
