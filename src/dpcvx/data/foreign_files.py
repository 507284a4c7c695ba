"""Tables in files of Stata, SAS, SPSS and Excel, through readers that are installed with ``dpcvx[files]``.

As in other files, a cell's value is a function of that cell and of the file's header alone. The readers'
own conversions are switched off, because one cell can stop them: text is decoded and dates are computed here,
cell by cell.
"""

from __future__ import annotations

import datetime
import importlib
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dpcvx.data.canonical import canonical, map_cells, read_numbers
from dpcvx.data.table_file import STATISTICS, FileHeader, TableFile, check_names, read_bytes
from dpcvx.errors import NotInstalled, Unreadable, WrongValue

__all__ = ["open_statistics", "open_workbook", "statistics_header", "workbook_header"]

BYTES = "iso-8859-1"  # one character for each byte, so that no cell can stop the reader
UNKNOWN_TEXT = "\ufffd"  # a cell of a kind that has no text; it matches no level
DAY, SECOND = datetime.timedelta(days=1), datetime.timedelta(seconds=1)
STATA = SAS = datetime.datetime(1960, 1, 1)
SPSS = datetime.datetime(1582, 10, 14)
# record of an SPSS file that declares its encoding: type 7, subtype 20, in either byte order
SPSS_ENCODING = re.compile(
    rb"(?:\x07\0\0\0\x14\0\0\0\x01\0\0\0.\0\0\0|\0\0\0\x07\0\0\0\x14\0\0\0\x01\0\0\0.)([\w.-]+)",
    re.DOTALL | re.ASCII,
)
SPSS_RECORDS = re.compile(rb"\xe7\x03\0{6}|\0\0\x03\xe7\0{4}")  # end of the dictionary: cells follow
RENAMED = re.compile(r".*_duplicated\d+", re.DOTALL)  # what the reader calls columns of a name that is taken
# Rows per byte of a file, at most: a row takes a byte or more, and zlib saves at most 1,032 bytes in one.
ROWS_IN_A_BYTE = {".zsav": 1032}

Moment = Callable[[float], datetime.datetime]


def _since(start: datetime.datetime, unit: datetime.timedelta) -> Moment:
    return lambda number: start + number * unit


def _month(months: int) -> Moment:
    """Months, quarters or halves since 1960, by their first day."""
    return lambda number: datetime.datetime(
        1960 + int(number) * months // 12, int(number) * months % 12 + 1, 1
    )


def _week(number: float) -> datetime.datetime:
    """Weeks of Stata since 1960, 52 a year, by their first day."""
    return datetime.datetime(1960 + int(number) // 52, 1, 1) + int(number) % 52 * 7 * DAY


# Formats of dates, by the beginning of their name; of SPSS and SAS without width.
DATES: tuple[tuple[tuple[str, ...], str, Moment], ...] = (
    ((".dta",), r"%-?t?d.*", _since(STATA, DAY)),
    ((".dta",), r"%-?tc.*", _since(STATA, SECOND / 1000)),
    ((".dta",), r"%-?tm.*", _month(1)),
    ((".dta",), r"%-?tq.*", _month(3)),
    ((".dta",), r"%-?th.*", _month(6)),
    ((".dta",), r"%-?tw.*", _week),
    (
        (".sas7bdat", ".xpt"),
        r"(?:(?:E8601|B8601|IS8601)?DA|DATE|DAY|DDMMYY[BCDNPS]?|MMDDYY[BCDNPS]?|YYMMDD[BCDNPS]?|JULIAN|MONYY"
        r"|YYMON|YYMM[CDNPS]?|MMYY[CDNPS]?|YYQ[CDNPS]?|WEEKDATE|WEEKDATX|WORDDATE|WORDDATX|NLDATE|EURDFDE)\d*",
        _since(SAS, DAY),
    ),
    (
        (".sas7bdat", ".xpt"),
        r"(?:(?:E8601|B8601|IS8601)DT|DATETIME|DATEAMPM|NLDATM|MDYAMPM)\d*",
        _since(SAS, SECOND),
    ),
    ((".sav", ".zsav"), r"(?:[AEJS]?DATE|QYR|MOYR|WKYR|DATETIME|YMDHMS)\d*", _since(SPSS, SECOND)),
)


@dataclass(frozen=True)
class _Column:
    """A column in the header of a file of Stata, SAS or SPSS."""

    place: str  # name by which the reader finds it
    text: bool
    moment: Moment | None = None  # of a column of dates
    labels: Mapping[float, str] = field(default_factory=dict)  # declared names of values


def open_statistics(path: Path) -> TableFile:
    """Open a file of Stata (.dta), SAS (.sas7bdat, .xpt) or SPSS (.sav, .zsav).

    Of a column that is read as text, labelled values are their labels, and dates are ISO text. A column that
    is read as numbers gives numbers as they are stored, but for a label that is a number: it counts in place
    of the stored one, which is a mere position where a program made the labels from cells. Missing values of
    every kind are missing.
    """
    columns, decode = _columns(path)

    def read(numeric: Sequence[str], words: Sequence[str]) -> Any:
        import pyarrow as pa

        places = {columns[name].place: name for name in (*numeric, *words)}
        with _reading(path, "pyreadstat") as package:
            raw, _ = _reader(package, path)(
                path,
                usecols=[*places],
                encoding=BYTES,
                output_format="dict",
                disable_datetime_conversion=True,
            )
        cells = {places[place]: values for place, values in raw.items()}
        if not len(next(iter(cells.values()))):
            raise Unreadable(f"{path} has no rows.")
        found = {}
        for name in numeric:
            found[name] = _numbers([_number(columns[name], cell, decode) for cell in cells[name]])
        for name in words:
            found[name] = _texts([_show(columns[name], cell, decode) for cell in cells[name]])
        return pa.table(found)

    return TableFile([*columns], read)


def statistics_header(path: Path) -> FileHeader:
    """Return names, types and value labels from the header of a file of Stata, SAS or SPSS."""
    columns, _ = _columns(path)
    types, labels = {}, {}
    for name, column in columns.items():
        types[name] = "text" if column.text else "number" if column.moment is None else "date"
        if named := tuple(dict.fromkeys(column.labels.values())):
            types[name], labels[name] = "text", named
    return FileHeader([*columns], types, labels)


def _columns(path: Path) -> tuple[dict[str, _Column], Callable[[Any], Any]]:
    """Columns by name, and the decoding of a cell."""
    read_bytes(path, limit=4)  # says what is wrong with the path
    with _reading(path, "pyreadstat") as package:
        reader = _reader(package, path)
        _, meta = reader(path, metadataonly=True, encoding=BYTES, output_format="dict")
        _require_room(path, meta)
        decode = _decoder(_encoding(package, reader, path))
        found = [(decode(_own_name(reader, path, place)), place) for place in meta.column_names]
        missing = _declared_missing(reader, path)
        columns = {
            name: _Column(
                place,
                meta.readstat_variable_types[place] == "string",
                _moment(path, meta.original_variable_types[place]),
                {
                    float(value): decode(label)
                    for value, label in meta.variable_value_labels.get(place, {}).items()
                    if not isinstance(value, str) and not missing(place, value)
                },
            )
            for name, place in found
        }
    check_names([name for name, _ in found])
    return columns, decode


def _require_room(path: Path, meta: Any) -> None:
    """Refuse a header that declares columns without a name, or more rows than the file can hold.

    The reader would allocate all rows that the header declares.
    """
    rows = ROWS_IN_A_BYTE.get(path.suffix.lower(), 1) * path.stat().st_size
    if (meta.number_rows or 0) > rows or not all(isinstance(place, str) for place in meta.column_names):
        raise Unreadable(
            f"The header of {path} is damaged: it declares more rows than the file can hold, or columns "
            "without a name. Save the table again with the program that wrote it, or as CSV."
        )


def _own_name(reader: Any, path: Path, place: str) -> str:
    """Return the name of a column in the file, where the reader renames a second one of the same name.

    The reader finds no column by a name that it made up itself.
    """
    if not RENAMED.fullmatch(place):
        return place
    raw, _ = reader(path, metadataonly=True, usecols=[place], encoding=BYTES, output_format="dict")
    return place if raw else place.rpartition("_duplicated")[0]


def _reader(package: Any, path: Path) -> Any:
    return getattr(package, STATISTICS[path.suffix.lower()])


def _declared_missing(reader: Any, path: Path) -> Callable[[str, float], bool]:
    """Whether a value of a column is declared as missing, as SPSS has it; the reader gives no such cell."""
    if path.suffix.lower() not in (".sav", ".zsav"):
        return lambda place, value: False
    _, meta = reader(path, metadataonly=True, user_missing=True, encoding=BYTES, output_format="dict")
    ranges: dict[str, list[dict[str, Any]]] = meta.missing_ranges
    return lambda place, value: any(
        not isinstance(each["lo"], str) and each["lo"] <= value <= each["hi"]
        for each in ranges.get(place, ())
    )


def _encoding(package: Any, reader: Any, path: Path) -> str | None:
    """Return the encoding that a file declares; value labels, which may be made from cells, do not change it.

    The reader refuses labels that are not in the declared encoding. Files of SPSS are then searched for the
    record that declares it; other formats have no labels, or declare no encoding.
    """
    if path.suffix.lower() == ".dta":  # Unicode since version 14, and not declared before
        return None
    try:
        _, meta = reader(path, metadataonly=True, output_format="dict")
    except package.ReadstatError:
        found = SPSS_ENCODING.search(SPSS_RECORDS.split(read_bytes(path), maxsplit=1)[0])
        return None if found is None else found[1].decode("ascii")
    declared: str | None = meta.file_encoding
    return declared


def _decoder(encoding: str | None) -> Callable[[Any], Any]:
    """Return the decoding of a cell that was read byte by byte; only text is changed."""
    try:
        "".encode(encoding or "utf-8")
    except LookupError:
        encoding = None

    def decode(cell: Any) -> Any:
        if not isinstance(cell, str):
            return cell
        content = cell.encode(BYTES, errors="replace")
        try:
            return content.decode(encoding or "utf-8")
        except UnicodeError:  # older files of Stata and SAS do not say their encoding
            return content.decode("cp1252", errors="replace")

    return decode


def _moment(path: Path, format_: str | None) -> Moment | None:
    for endings, pattern, moment in DATES:
        if path.suffix.lower() in endings and re.fullmatch(pattern, (format_ or "").partition(".")[0], re.I):
            return moment
    return None


def _number(column: _Column, cell: Any, decode: Callable[[Any], Any]) -> Any:
    if column.text or not column.labels:
        return decode(cell)
    label = canonical(column.labels.get(cell))
    return label if isinstance(label, float) else cell


def _show(column: _Column, cell: Any, decode: Callable[[Any], Any]) -> Any:
    if cell is None or column.text:
        return decode(cell)
    if column.moment is None:
        return column.labels.get(cell, cell)
    try:
        return column.moment(cell)
    except (OverflowError, ValueError):  # beyond the years 1 to 9999
        return None


def open_workbook(path: Path, sheet: str | None = None) -> TableFile:
    """Open a sheet of an Excel workbook, by default the first: its first row names the columns.

    Formulas have the values that were stored with them. Rows below the last one with content are no records.
    """
    header = workbook_header(path, sheet).names

    def read(numeric: Sequence[str], words: Sequence[str]) -> Any:
        import pyarrow as pa

        wanted = [*numeric, *words]
        places = [header.index(name) for name in wanted]
        cells: list[list[Any]] = []
        last = 0  # rows up to the last one with content
        for row in _rows(path, sheet, first=2):
            cells.append([row[place] if place < len(row) else None for place in places])
            last = len(cells) if any(cell is not None for cell in row[: len(header)]) else last
        if not last:
            raise Unreadable(f"{path} has no rows below its header.")
        columns = dict(zip(wanted, zip(*cells[:last], strict=True), strict=True))
        found = {name: _numbers(columns[name]) for name in numeric}
        return pa.table(found | {name: _texts(columns[name]) for name in words})

    return TableFile(header, read)


def workbook_header(path: Path, sheet: str | None = None) -> FileHeader:
    """Return the names in the first row of a sheet, by default the first; a workbook declares no types."""
    read_bytes(path, limit=4)  # says what is wrong with the path
    cells = [cell for row in _rows(path, sheet, first=1, last=1) for cell in row]
    while cells and cells[-1] is None:
        cells.pop()
    if not cells:
        raise Unreadable(f"{path} is empty: the first row of the sheet must name the columns.")
    if not all(isinstance(cell, str) and isinstance(canonical(cell), str) for cell in cells):
        raise Unreadable(
            f"{path} has no header: the first row of the sheet must name the columns, and numbers, dates and "
            "empty cells are no names. Move titles and notes to another sheet, or name the table's sheet."
        )
    names = [cell.strip() for cell in cells]
    check_names(names)
    return FileHeader(names)


def _rows(path: Path, sheet: str | None, first: int, last: int | None = None) -> list[tuple[Any, ...]]:
    with _reading(path, "openpyxl") as package:
        book = package.load_workbook(path, read_only=True, data_only=True)
        try:
            found = [each for each in book.worksheets if sheet in (None, each.title)]
            if found:
                found[0].reset_dimensions()  # some programs store a wrong size
                return list(found[0].iter_rows(min_row=first, max_row=last, values_only=True))
        finally:
            book.close()
    raise WrongValue(f"{path} has no sheet {sheet!r}: write the name on its tab, in upper and lower case.")


@contextmanager
def _reading(path: Path, package: str) -> Iterator[Any]:
    """Import a reader, and let neither its warnings nor its errors out: their text can hold cells."""
    try:
        found = importlib.import_module(package)
    except ModuleNotFoundError:
        raise NotInstalled(
            f'Files that end in {path.suffix} need {package}: run  pip install "dpcvx[files]"'
        ) from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield found
        except Exception:
            raise Unreadable(
                f"{path} cannot be read as {path.suffix}: it is damaged or cut short, or another kind of "
                "file. Copy or write it again."
            ) from None


def _numbers(cells: Sequence[Any]) -> Any:
    import pyarrow as pa

    return pa.array(read_numbers(_objects(cells)), pa.float64())


def _texts(cells: Sequence[Any]) -> Any:
    import pyarrow as pa

    return pa.array(map_cells(_objects(cells), _text), pa.large_string())


def _text(value: Any) -> str | None:
    """Return a text with the given canonical value."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()  # a lone surrogate cannot be stored as text
    if value is None:
        return value
    return repr(value) if isinstance(value, float) else UNKNOWN_TEXT


def _objects(cells: Sequence[Any]) -> Any:
    return np.fromiter(cells, dtype=object, count=len(cells))
