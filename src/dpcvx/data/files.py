"""Tables in files and the public declaration of their columns.

Only the names and declared types of columns are public. Past them nothing raises, warns or chooses a path
because of a cell: what cannot be read as declared is a missing value, and every line of a CSV file after the
first is one record, whatever it holds.
"""

from __future__ import annotations

import csv
import math
import tomllib
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dpcvx.data.cells import column_cells, column_numbers, opened
from dpcvx.errors import DpcvxError

__all__ = ["Schema", "TableFile", "Unreadable", "csv_header", "csv_table", "open_table", "read_schema"]

Level = str | int | float
Pair = tuple[float, float]

SCHEMA_KEYS = {"bounds", "default", "categories", "groups", "target", "data_norm"}
TARGET_KEYS = {"bounds", "classes"}
# Said instead of the columns found: the first line of a file without a header is somebody's record.
HEADER_HINT = "check the names: the first line of a CSV file must be its header."

NOT_PARQUET = (
    "cannot be read as Parquet: it is damaged or cut short, as an interrupted copy is, or another kind of "
    "file. Copy or write it again."
)


class Unreadable(DpcvxError):  # noqa: N818 - the name says what happened
    """A file is missing, empty, or not what its name says."""


@dataclass(frozen=True)
class Schema:
    """What is declared about a table, in the user's units.

    Parameters
    ----------
    bounds : dict
        Lowest and highest value of numeric columns.
    default : pair of float, optional
        Bounds of every column that is not declared otherwise; without it such columns are not used.
    categories : dict
        Levels of text columns.
    groups : dict
        Columns that belong together, by the name of their group.
    target_bounds : pair of float, optional
        Lowest and highest target, for regression.
    classes : tuple, optional
        Labels, for classification.
    data_norm : float, optional
        Largest l2 norm of a row.
    """

    bounds: dict[str, Pair] = field(default_factory=dict)
    default: Pair | None = None
    categories: dict[str, tuple[Level, ...]] = field(default_factory=dict)
    groups: dict[str, tuple[Level, ...]] = field(default_factory=dict)
    target_bounds: Pair | None = None
    classes: tuple[Level, ...] | None = None
    data_norm: float | None = None

    def features(self, columns: Sequence[str], target: str, chosen: Sequence[str] = ()) -> list[str]:
        """Return the names of the features, in the table's order.

        Parameters
        ----------
        columns : sequence of str
            Columns of the table.
        target : str
            The column to predict.
        chosen : sequence of str
            Columns to use; all declared ones by default.
        """
        _require_columns([target], columns, "The table's header lacks the target")
        declared = [*self.bounds, *self.categories]
        _require_columns(declared, columns, "The bounds file declares columns that the table's header lacks:")
        grouped = [name for group in self.groups.values() for name in group]
        _require_columns(grouped, columns, "The bounds file groups columns that the table's header lacks:")
        _require_columns(chosen, columns, "--features names columns that the table's header lacks:")
        if target in declared or target in chosen:
            raise ValueError(
                f"{target!r} is the target and a feature at once; declare it under [target] only."
            )
        if chosen and self.default is None and (undeclared := [c for c in chosen if c not in declared]):
            raise ValueError(
                f"Nothing is declared for {_listed(undeclared)}: add each to [bounds] or [categories], "
                "or give a default."
            )
        wanted = set(chosen) or (set(declared) if self.default is None else set(columns) - {target})
        if not wanted:
            raise ValueError("The bounds file declares no feature: add columns to [bounds] or [categories].")
        return [name for name in columns if name in wanted]

    def column_bounds(self, features: Sequence[str]) -> dict[str, Pair]:
        """Return the bounds of the numeric features."""
        numeric = [name for name in features if name not in self.categories]
        return {name: self.bounds[name] if name in self.bounds else self._default() for name in numeric}

    def column_groups(self, features: Sequence[str]) -> dict[str, list[Level]]:
        """Return what the groups hold of the features; the others are groups of their own."""
        held = {group: [name for name in names if name in features] for group, names in self.groups.items()}
        return {group: names for group, names in held.items() if names}

    def _default(self) -> Pair:
        if self.default is None:
            raise ValueError("A column is not declared and the bounds file gives no default.")
        return self.default


def read_schema(path: Path) -> Schema:
    """Read a bounds file.

    Parameters
    ----------
    path : Path
        TOML, as in the page on bounds.toml.

    Returns
    -------
    Schema
    """
    try:
        content = tomllib.loads(_bytes(path).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid TOML: {error}") from None
    if unknown := set(content) - SCHEMA_KEYS:
        raise ValueError(f"{path} has unknown entries {_listed(unknown)}; known are {_listed(SCHEMA_KEYS)}.")
    bounds, categories, groups, target = (
        _section(content, name, path) for name in ("bounds", "categories", "groups", "target")
    )
    if unknown := set(target) - TARGET_KEYS:
        raise ValueError(
            f"[target] in {path} has unknown entries {_listed(unknown)}; known are bounds, classes."
        )
    if twice := set(bounds) & set(categories):
        raise ValueError(f"{path} declares {_listed(twice)} under [bounds] and under [categories]; keep one.")
    norm = content.get("data_norm")
    if norm is not None and not (_is_number(norm) and norm > 0):
        raise ValueError(f"data_norm in {path} must be a positive number, got {norm!r}.")
    return Schema(
        bounds={name: _pair(pair, f"[bounds] {name} in {path}") for name, pair in bounds.items()},
        default=_pair(content["default"], f"default in {path}") if "default" in content else None,
        categories={
            name: _levels(levels, f"[categories] {name} in {path}") for name, levels in categories.items()
        },
        groups={name: _levels(columns, f"[groups] {name} in {path}") for name, columns in groups.items()},
        target_bounds=_pair(target["bounds"], f"[target] bounds in {path}") if "bounds" in target else None,
        classes=_levels(target["classes"], f"[target] classes in {path}") if "classes" in target else None,
        data_norm=norm,
    )


class TableFile:
    """A CSV or Parquet file whose cells are read only on demand.

    Parameters
    ----------
    columns : list of str
        Names, in the file's order.
    read : callable
        Returns the columns of the given names: arrays of the first, which are numbers, lists of the second.
    kinds : dict, optional
        Declared type of each column, "number", "text" or another; CSV declares none.
    """

    def __init__(
        self,
        columns: list[str],
        read: Callable[[Sequence[str], Sequence[str]], dict[str, Any]],
        kinds: dict[str, str] | None = None,
    ) -> None:
        self.columns, self._read, self._kinds = columns, read, kinds
        if len(set(columns)) < len(columns):
            raise ValueError(f"The table names a column more than once; {HEADER_HINT}")

    def read(
        self,
        features: Sequence[str],
        categories: Mapping[str, Sequence[Level]],
        target: str | None = None,
        classes: Sequence[Level] | None = None,
    ) -> tuple[Any, Any]:
        """Return the features as an Arrow table, and the target as an array.

        Parameters
        ----------
        features : sequence of str
            Columns to return.
        categories : mapping
            Levels of those that are not numbers.
        target : str, optional
            Column of the target; None returns no target.
        classes : sequence, optional
            Its labels; None for a numeric target.
        """
        import pyarrow as pa

        levels = {name: categories[name] for name in features if name in categories}
        if target is not None and classes is not None:
            levels[target] = classes
        wanted = [*features] if target is None else [*features, target]
        for name in wanted:
            self._check_kind(name, levels.get(name))
        columns = self._read([name for name in wanted if name not in levels], list(levels))
        columns |= {name: _matched(columns[name], known) for name, known in levels.items()}
        # The type is stated, not found: a column without a single known level is still a column of text.
        arrays = {
            name: pa.array(columns[name], pa.string() if columns[name].dtype == object else pa.float64())
            for name in features
        }
        return pa.table(arrays), None if target is None else columns[target]

    def _check_kind(self, name: str, levels: Sequence[Level] | None) -> None:
        """Refuse a column whose declared type does not fit its use."""
        kind = "number" if self._kinds is None else self._kinds[name]
        if kind not in ("number", "text"):
            raise ValueError(f"{name!r} has type {kind} in the table; only numbers and text can be used.")
        if kind == "text" and levels is None:
            raise ValueError(
                f"{name!r} is text in the table, where numbers are needed: declare its levels in the bounds "
                "file ([categories] for a feature, classes for a target), or leave the column out."
            )
        numeric = levels is None or any(not math.isnan(_number(str(level))) for level in levels)
        if self._kinds is not None and kind == "number" and not numeric:
            raise ValueError(f"{name!r} is a number in the table, but the levels declared for it are text.")


def open_table(path: Path) -> TableFile:
    """Open a CSV or Parquet file and read its header.

    Parameters
    ----------
    path : Path
        Ends in .csv or .parquet.

    Returns
    -------
    TableFile
    """
    kind = path.suffix.lower()
    if kind == ".csv":
        return _open_csv(path)
    if kind in (".parquet", ".pq"):
        return _open_parquet(path)
    raise ValueError(f"{path} must end in .csv or .parquet, to say what it is.")


def _open_csv(path: Path) -> TableFile:
    content = _bytes(path)
    lines = content.removesuffix(b"\n").split(b"\n")
    header = csv_header(lines[0], path)
    if len(lines) == 1:
        raise Unreadable(f"{path} has no rows below its header.")
    return csv_table(header, lines[1:])


def csv_header(line: bytes, path: Path) -> list[str]:
    """Return the names of the columns from the first line of a file.

    Parameters
    ----------
    line : bytes
        Without its line feed.
    path : Path
        The file, for messages.
    """
    if b"\r" in line.removesuffix(b"\r"):
        raise Unreadable(f"{path} has a lone carriage return in its header; end lines with a line feed.")
    header = _cells(line.removeprefix(b"\xef\xbb\xbf"))
    if header in ([], [""]):
        raise Unreadable(f"{path} is empty: the first line must name the columns.")
    return header


def csv_table(header: list[str], lines: Sequence[bytes]) -> TableFile:
    """Return a table of some lines of a file, each of which is one record.

    Parameters
    ----------
    header : list of str
        Names of the columns.
    lines : sequence of bytes
        Without their line feeds.
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
        return columns | {header[place]: strings for place, strings in text}

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

    if not _bytes(path, limit=4):
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
        columns: dict[str, Any] = {name: column_numbers(opened(table[name])) for name in numeric}
        for name in words:
            column = opened(table[name])
            if kinds[name] == "text":
                columns[name] = [cell if cell is None else cell.strip() for cell in column_cells(column)]
            else:
                columns[name] = list(column_numbers(column))
        return columns

    return TableFile(list(file.schema_arrow.names), read, kinds)


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


def _bytes(path: Path, limit: int = -1) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(limit)
    except FileNotFoundError:
        raise Unreadable(f"{path} does not exist.") from None
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror}.") from None


def _section(content: dict[str, Any], name: str, path: Path) -> dict[str, Any]:
    section = content.get(name, {})
    if not isinstance(section, dict):
        raise ValueError(
            f"{name} in {path} must be a section: [{name}] followed by one line for each column."
        )
    return section


def _pair(value: Any, where: str) -> Pair:
    if not (
        isinstance(value, list) and len(value) == 2 and all(map(_is_number, value)) and value[0] < value[1]
    ):
        raise ValueError(f"{where} must be a pair [lowest, highest] of numbers, got {value!r}.")
    return float(value[0]), float(value[1])


def _levels(value: Any, where: str) -> tuple[Level, ...]:
    alike = isinstance(value, list) and (
        all(isinstance(v, str) for v in value) or all(map(_is_number, value))
    )
    if not alike or not value or len(set(value)) < len(value):
        raise ValueError(
            f"{where} must be a list of different texts, or of different numbers; got {value!r}."
        )
    return tuple(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _require_columns(names: Sequence[Level], columns: Sequence[str], complaint: str) -> None:
    if absent := [name for name in names if name not in columns]:
        raise ValueError(f"{complaint} {_listed(absent)}; {HEADER_HINT}")


def _listed(names: Any) -> str:
    names = sorted(names) if isinstance(names, set) else list(names)
    shown = ", ".join(repr(name) for name in names[:20])
    return shown + (f" and {len(names) - 20} more" if len(names) > 20 else "")
