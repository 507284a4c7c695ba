"""Tables in files.

Only the names of columns are public: the types in a Parquet file may have been inferred from cells when it
was written. Nothing raises, warns or chooses a path because of a cell or of a column's type: what cannot be
read as declared is a missing value, and every line of a CSV file after the first is one record, whatever it
holds.
"""

from __future__ import annotations

import csv
from array import array
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from dpcvx.data.canonical import DATE, canonical, read_number
from dpcvx.errors import Unreadable, WrongValue

__all__ = [
    "HEADER_HINT",
    "NOT_PARQUET",
    "CsvDialect",
    "TableFile",
    "csv_header",
    "csv_table",
    "open_table",
    "read_bytes",
    "read_header",
]

Level = str | int | float

# Said instead of the columns found: the first line of a file without a header is somebody's record.
HEADER_HINT = (
    "check the names: the first line of a CSV file must be its header, with a comma between two names "
    "(dpcvx fit, predict and score take another separator by --sep)."
)

LONGEST_HEADER = 2**24  # bytes

NOT_PARQUET = (
    "cannot be read as Parquet: it is damaged or cut short, as an interrupted copy is, or another kind of "
    "file. Copy or write it again."
)


class TableFile:
    """A CSV or Parquet file whose cells are read only on demand.

    `columns`: names, in the file's order; `read`: returns an Arrow table of the columns of the given names:
    those of numbers, and those of levels.
    """

    def __init__(self, columns: list[str], read: Callable[[Sequence[str], Sequence[str]], Any]) -> None:
        self.columns, self._read = columns, read
        if len(set(columns)) < len(columns):
            raise WrongValue(f"The table names a column more than once; {HEADER_HINT}")

    def read(
        self,
        features: Sequence[str],
        words: Collection[str],
        target: str | None = None,
        classes: Sequence[Level] | None = None,
    ) -> tuple[Any, Any]:
        """Return the features as an Arrow table, and the target as an Arrow array.

        `features`: columns to return; `words`: those that are not numbers; `target`: column of the target;
        None returns no target; `classes`: its labels; None for a numeric target.
        """
        labelled = {*words} if classes is None else {*words, target}
        wanted = [*features] if target is None else [*features, target]
        table = self._read(
            [name for name in wanted if name not in labelled], [name for name in wanted if name in labelled]
        )
        return table.select(list(features)), None if target is None else table[target]


@dataclass(frozen=True)
class CsvDialect:
    """Separator, decimal point, encoding and quoting of a CSV file, declared by the user and never guessed.

    Without `line_breaks` every line is one record, whatever quotes it holds. This is correct for files in
    which no cell has a line break, and one person's quotes cannot affect another record. With `line_breaks` a
    line feed ends a record if the number of quotes before it in the file is even. This is correct for files
    whose writer puts cells with line breaks or quotes into quotes and doubles the quotes inside, as
    spreadsheets, databases and the csv modules of programming languages do: such a writer adds an even number
    of quotes for each cell, so that reading gives back the list of records that was written, and neighbouring
    lists are read as neighbouring lists. In any other file one person's stray quote would join the records
    after it.
    """

    sep: str = ","  # between cells
    decimal: str = "."  # in numbers
    encoding: str = "utf-8"
    line_breaks: bool = False  # whether quoted cells may contain line breaks

    def __post_init__(self) -> None:
        for name, value in (("sep", self.sep), ("decimal", self.decimal)):
            if len(value) != 1 or value in '"\r\n' or value.isalnum():
                raise WrongValue(
                    f"{name} must be one character that is not a letter, digit or quote; got {value!r}."
                )
        if self.sep == self.decimal:
            raise WrongValue(f"sep and decimal are both {self.sep!r}: give two characters.")
        try:
            plain = '\r\n"'.encode(self.encoding) == b'\r\n"'
        except (LookupError, UnicodeError):
            raise WrongValue(f"encoding {self.encoding!r} is not known: utf-8, latin-1 or cp1252?") from None
        if not plain:  # files are split into lines before decoding, so that no cell can hide a line end
            raise WrongValue(
                f"encoding {self.encoding!r} has line ends of several bytes: save the file as UTF-8."
            )
        if self.line_breaks and not _quotes_stand_alone(self.encoding):
            raise WrongValue(
                f"encoding {self.encoding!r} uses the byte of a quote in other characters too, so that "
                "quoted line breaks cannot be told: save the file as UTF-8."
            )

    def records(self, content: bytes) -> list[bytes]:
        """Return the records of a file, the header first, without their line feeds."""
        lines = content.removesuffix(b"\n").split(b"\n")
        if not self.line_breaks:
            return lines
        found, open_lines, quotes = [], [], 0
        for line in lines:
            open_lines.append(line)
            quotes += line.count(b'"')
            if quotes % 2 == 0:
                found.append(b"\n".join(open_lines))
                open_lines = []
        return found if not open_lines else [*found, b"\n".join(open_lines)]

    def cells(self, record: bytes) -> list[str]:
        """Return the cells of one record, read on its own."""
        text = record.removesuffix(b"\r").decode(self.encoding, errors="replace")
        if '"' not in text:
            return text.split(self.sep)
        try:
            return next(csv.reader([text], delimiter=self.sep), [])
        except csv.Error:
            return []

    def number(self, cell: str) -> float:
        """Return the number in a cell."""
        return read_number(cell if self.decimal == "." else cell.replace(".", "x").replace(self.decimal, "."))


def _quotes_stand_alone(encoding: str) -> bool:
    """Whether no other character has the byte of a quote in it, as some have in ISO-2022-JP."""
    others = (chr(code) for code in range(128, 2**16) if not 0xD800 <= code < 0xE000)
    return not any(b'"' in other.encode(encoding, errors="ignore") for other in others)


PLAIN = CsvDialect()


def open_table(path: Path, dialect: CsvDialect = PLAIN) -> TableFile:
    """Open a CSV or Parquet file and read its header.

    `path`: ends in .csv or .parquet; `dialect`: form of a CSV file.
    """
    kind = path.suffix.lower()
    if kind == ".csv":
        return _open_csv(path, dialect)
    if dialect != PLAIN:
        raise WrongValue(
            f"sep, decimal, encoding and line breaks are declared for CSV files, not for {path}."
        )
    if kind in (".parquet", ".pq"):
        return _open_parquet(path)
    raise WrongValue(f"{path} must end in .csv or .parquet, to say what it is.")


def read_header(path: Path, dialect: CsvDialect = PLAIN) -> tuple[list[str], dict[str, str]]:
    """Return the names of a table's columns, and the types that its format declares; no cell is read.

    Types are "number", "text", "boolean" or "date", by column; a CSV file has none. Types in a Parquet file
    may have been inferred from cells when it was written: they serve proposals that somebody confirms.

    `path`: ends in .csv or .parquet; `dialect`: form of a CSV file.
    """
    if path.suffix.lower() in (".parquet", ".pq"):
        import pyarrow as pa
        import pyarrow.parquet as pq

        read_bytes(path, limit=4)  # says what is wrong with the path
        try:
            schema = pq.read_schema(path)
        except (pa.ArrowException, OSError):
            raise Unreadable(f"{path} {NOT_PARQUET}") from None
        kinds = {field.name: _kind(field.type) for field in schema}
        return list(schema.names), {name: kind for name, kind in kinds.items() if kind is not None}
    if path.suffix.lower() != ".csv":
        raise WrongValue(f"{path} must end in .csv or .parquet, to say what it is.")
    with _open_binary(path) as file:
        line = file.readline(LONGEST_HEADER).removesuffix(b"\n")
    names = csv_header(line, path, dialect)
    if len(line) == LONGEST_HEADER or any(map(_is_value, names)):
        raise Unreadable(
            f"{path} has no header: its first line must name the columns, and numbers, dates and empty cells "
            "are no names. Add a line of names."
        )
    if len(set(names)) < len(names):
        raise WrongValue(f"The table names a column more than once; {HEADER_HINT}")
    return names, {}


def _is_value(name: str) -> bool:
    """Whether a name of a header is a number, a date or nothing, as cells are."""
    value = canonical(name)
    return not isinstance(value, str) or DATE.fullmatch(value) is not None


def _kind(type_: Any) -> str | None:
    from pyarrow import types

    if types.is_dictionary(type_):
        return _kind(type_.value_type)
    for kind, tests in (
        ("boolean", (types.is_boolean,)),
        ("number", (types.is_integer, types.is_floating, types.is_decimal)),
        ("date", (types.is_date, types.is_timestamp)),
        ("text", (types.is_string, types.is_large_string)),
    ):
        if any(test(type_) for test in tests):
            return kind
    return None


def _open_csv(path: Path, dialect: CsvDialect) -> TableFile:
    lines = dialect.records(read_bytes(path))
    header = csv_header(lines[0], path, dialect)
    if len(lines) == 1:
        raise Unreadable(f"{path} has no rows below its header.")
    return csv_table(header, lines[1:], dialect)


def csv_header(line: bytes, path: Path, dialect: CsvDialect = PLAIN) -> list[str]:
    """Return the names of the columns from the first line of a file.

    `line`: without its line feed; `path`: the file, for messages; `dialect`: form of the file.
    """
    if b"\r" in line.removesuffix(b"\r"):
        raise Unreadable(f"{path} has a lone carriage return in its header; end lines with a line feed.")
    header = dialect.cells(line.removeprefix(b"\xef\xbb\xbf"))
    if header in ([], [""]):
        raise Unreadable(f"{path} is empty: the first line must name the columns.")
    return header


def csv_table(header: list[str], lines: Sequence[bytes], dialect: CsvDialect = PLAIN) -> TableFile:
    """Return a table of some lines of a file, each of which is one record.

    `header`: names of the columns; `lines`: without their line feeds; `dialect`: form of the file.
    """

    def read(numeric: Sequence[str], words: Sequence[str]) -> Any:
        import pyarrow as pa

        numbers = [(header.index(name), array("d")) for name in numeric]
        text: list[tuple[int, list[str]]] = [(header.index(name), []) for name in words]
        missing = [""] * len(header)
        for line in lines:
            cells = dialect.cells(line)
            if len(cells) != len(header):  # a record all the same: n stays the number of lines
                cells = missing
            for place, values in numbers:
                values.append(dialect.number(cells[place]))
            for place, strings in text:
                strings.append(cells[place])
        columns = {header[place]: pa.array(np.array(values), pa.float64()) for place, values in numbers}
        columns |= {header[place]: pa.array(strings, pa.large_string()) for place, strings in text}
        return pa.table(columns)

    return TableFile(header, read)


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

    def read(numeric: Sequence[str], words: Sequence[str]) -> Any:
        try:
            return file.read(columns=[*numeric, *words])
        except (pa.ArrowException, OSError):
            raise Unreadable(f"{path} {NOT_PARQUET}") from None

    return TableFile(list(file.schema_arrow.names), read)


def read_bytes(path: Path, limit: int = -1) -> bytes:
    """Return the first bytes of a file, or all, and say in one sentence where that fails."""
    with _open_binary(path) as file:
        return file.read(limit)


@contextmanager
def _open_binary(path: Path) -> Iterator[BinaryIO]:
    try:
        with path.open("rb") as file:
            yield file
    except FileNotFoundError:
        raise Unreadable(f"{path} does not exist.") from None
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror}.") from None
