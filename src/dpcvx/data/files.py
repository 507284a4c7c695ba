"""Tables in files.

Only the names of columns are public: the types in a Parquet file may have been inferred from cells when it
was written. Nothing raises, warns or chooses a path because of a cell or of a column's type: what cannot be
read as declared is a missing value, and every line of a CSV file after the first is one record, whatever it
holds.
"""

from __future__ import annotations

import csv
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dpcvx.data.canonical import DATE, canonical, read_number
from dpcvx.data.table_file import (
    FOREIGN,
    STATISTICS,
    WORKBOOK,
    FileHeader,
    TableFile,
    check_names,
    open_binary,
    read_bytes,
)
from dpcvx.errors import Unreadable, WrongValue

__all__ = [
    "NOT_PARQUET",
    "PLAIN",
    "USUAL",
    "CsvDialect",
    "FileForm",
    "csv_header",
    "csv_table",
    "open_table",
    "read_header",
]

LONGEST_HEADER = 2**24  # bytes

NOT_PARQUET = (
    "cannot be read as Parquet: it is damaged or cut short, as an interrupted copy is, or another kind of "
    "file. Copy or write it again."
)


@dataclass(frozen=True)
class CsvDialect:
    """Separator, decimal point, encoding and quoting of a CSV file, declared by the user and never guessed.

    Parameters
    ----------
    sep : str
        Character between two cells.
    decimal : str
        Decimal point of numbers.
    encoding : str
        Encoding in which a line feed is one byte, such as "utf-8" or "latin-1".
    line_breaks : bool
        Whether quoted cells may contain line breaks.

    Notes
    -----
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
            b"x".decode(self.encoding, errors="replace")  # not all can replace what is no character
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
        return list(self.join(content.removesuffix(b"\n").split(b"\n")))

    def join(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        """Yield records from lines without their line feeds: lines inside quotes are put together."""
        if not self.line_breaks:
            yield from lines
            return
        open_lines: list[bytes] = []
        quotes = 0
        for line in lines:
            open_lines.append(line)
            quotes += line.count(b'"')
            if quotes % 2 == 0:
                yield b"\n".join(open_lines)
                open_lines = []
        if open_lines:
            yield b"\n".join(open_lines)

    def cells(self, record: bytes) -> list[str]:
        """Return the cells of one record, read on its own."""
        text = record.removesuffix(b"\r").decode(self.encoding, errors="replace")
        if not text.isascii():  # UTF-7 and others give half a character, which no column of text can hold
            text = text.encode(errors="replace").decode()
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


@dataclass(frozen=True)
class FileForm:
    """How the files of a table are written, where a file does not say so itself.

    Parameters
    ----------
    dialect : CsvDialect
        Form of CSV files.
    sheet : str, optional
        Sheet of Excel workbooks; by default the first.
    """

    dialect: CsvDialect = PLAIN
    sheet: str | None = None

    def of(self, path: Path) -> FileForm:
        """Return the form of one file: the dialect of a CSV file, or the sheet of a workbook."""
        kind = path.suffix.lower()
        return FileForm(self.dialect if kind == ".csv" else PLAIN, self.sheet if kind == WORKBOOK else None)

    def to_plain(self) -> dict[str, Any]:
        """Return the entries of a section ``[file]`` that differ from the defaults."""
        stated = {
            name: value for name, value in asdict(self.dialect).items() if value != getattr(PLAIN, name)
        }
        return stated | ({} if self.sheet is None else {"sheet": self.sheet})

    @classmethod
    def from_plain(cls, content: Mapping[str, Any]) -> FileForm:
        """Read the entries of a section ``[file]``."""
        kinds = {**{field.name: str for field in fields(CsvDialect)}, "line_breaks": bool, "sheet": str}
        for name, value in content.items():
            if name not in kinds:
                raise WrongValue(f"unknown entry {name}; known are {', '.join(kinds)}.")
            if not isinstance(value, kinds[name]):
                wanted = "true or false" if kinds[name] is bool else "a text"
                raise WrongValue(f"{name} must be {wanted}, got {value!r}.")
        own = dict(content)
        sheet = own.pop("sheet", None)
        return cls(CsvDialect(**own), sheet)


USUAL = FileForm()


def open_table(path: Path, form: FileForm = USUAL) -> TableFile:
    """Open the file of a table and read its header.

    `path`: its ending says what it is; `form`: for CSV files and workbooks.
    """
    kind = _format(path, form)
    return _open_csv(path, form.dialect) if kind is None else kind.open(path)


def read_header(path: Path, form: FileForm = USUAL) -> FileHeader:
    """Return the header of a table; no cell is read.

    `path`: its ending says what it is; `form`: for CSV files and workbooks.
    """
    kind = _format(path, form)
    if kind is not None:
        return kind.header(path)
    with open_binary(path) as file:
        line = file.readline(LONGEST_HEADER).removesuffix(b"\n")
    names = csv_header(line, path, form.dialect)
    if len(line) == LONGEST_HEADER or any(map(_is_value, names)):
        raise Unreadable(
            f"{path} has no header: its first line must name the columns, and numbers, dates and empty cells "
            "are no names. Add a line of names."
        )
    check_names(names)
    return FileHeader(names)


@dataclass(frozen=True)
class _Format:
    """How files of one format are read, other than CSV."""

    open: Callable[[Path], TableFile]
    header: Callable[[Path], FileHeader]


def _format(path: Path, form: FileForm) -> _Format | None:
    """Return the format of a file, None for CSV; refuse a form that means nothing for it."""
    kind = path.suffix.lower()
    if kind != ".csv" and form.dialect != PLAIN:
        raise WrongValue(
            f"sep, decimal, encoding and line breaks are declared for CSV files, not for {path}."
        )
    if kind != WORKBOOK and form.sheet is not None:
        raise WrongValue(f"sheet is declared for Excel workbooks, not for {path}.")
    if kind == ".csv":
        return None
    if kind in (".parquet", ".pq"):
        return _Format(_open_parquet, _parquet_header)
    from dpcvx.data import foreign_files as foreign

    if kind in STATISTICS:
        return _Format(foreign.open_statistics, foreign.statistics_header)
    if kind == WORKBOOK:
        return _Format(
            partial(foreign.open_workbook, sheet=form.sheet),
            partial(foreign.workbook_header, sheet=form.sheet),
        )
    raise WrongValue(
        f"{path} is of no known format: its name must end in .csv, .parquet, {', '.join(FOREIGN)}."
    )


def _parquet_header(path: Path) -> FileHeader:
    import pyarrow as pa
    import pyarrow.parquet as pq

    read_bytes(path, limit=4)  # says what is wrong with the path
    try:
        schema = pq.read_schema(path)
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        raise Unreadable(f"{path} {NOT_PARQUET}") from None
    check_names(schema.names)
    kinds = {field.name: _kind(field.type) for field in schema}
    return FileHeader(list(schema.names), {name: kind for name, kind in kinds.items() if kind is not None})


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
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        raise Unreadable(f"{path} {NOT_PARQUET}") from None
    if file.metadata.num_rows == 0:
        raise Unreadable(f"{path} has no rows.")

    def read(numeric: Sequence[str], words: Sequence[str]) -> Any:
        try:
            return file.read(columns=[*numeric, *words])
        except (pa.ArrowException, OSError, UnicodeDecodeError):
            raise Unreadable(f"{path} {NOT_PARQUET}") from None

    return TableFile(list(file.schema_arrow.names), read)
