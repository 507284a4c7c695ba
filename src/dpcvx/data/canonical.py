"""The canonical value of a cell: a function of its own content, whatever type a reader gave to its column.

A reader infers the type of a column from all cells: one "abc" turns a column of 0 and 1 into text, one
missing cell turns integers into floats and booleans into objects, and Arrow finds dates. A person's value
must not depend on another person's cell, so all forms that readers give to one text have one canonical value.
"""

from __future__ import annotations

import datetime
import math
import numbers
import re
import sys
import warnings
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpcvx.arrays import Vector

__all__ = [
    "NUMBER_KINDS",
    "UNKNOWN",
    "Canonical",
    "canonical",
    "canonical_cells",
    "map_cells",
    "read_number",
    "read_numbers",
]

NUMBER_KINDS = "biuf"

# Marks of a missing cell: the defaults of pandas, Arrow and polars together, and how pandas prints NaT.
MISSING = frozenset(
    (
        *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA"),
        *("NULL", "NaT", "None", "n/a", "null"),
    )
)
FLAGS = {"true": 1.0, "false": 0.0}
NAN = re.compile(r"[+-]?nan\(\w*\)", re.ASCII | re.IGNORECASE)  # Arrow takes it for a number
HEXADECIMAL = re.compile(r"0[xX]([0-9a-fA-F]{1,16})")  # Arrow reads it as an integer of 64 bits
DATE = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[ T](\d\d)(?::(\d\d)(?::(\d\d)(?:\.(\d+))?)?)? ?(Z|[+-]\d\d(?::?\d\d)?)?)?",
    re.ASCII,
)
TIME = re.compile(r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d+))?)?", re.ASCII)
FRACTION = 6  # decimal digits of a second: polars stores no more


class _Unknown:
    """Canonical value of an object that is not a number, text, a date or a missing cell."""


UNKNOWN: Final = _Unknown()

Canonical = float | str | None | _Unknown
Value = TypeVar("Value")
KEPT = frozenset((str, int, bool))


def canonical(cell: Any) -> Canonical:
    """Return the value by which a cell is compared, whatever its type; no cell raises an error.

    - A number is its value as float64: 1, 1.0, True, "1", " 1", "1e0", "true" and Decimal(1) are one value,
      and so are integers beyond 2^53 that round to one float64.
    - A date or a time is its ISO text, up to microseconds; a moment at midnight without a zone is its date,
      one with a zone is the moment in UTC.
    - A missing cell is None: None, NaN, NaT, pandas.NA, "", "NA", "nan" and other marks of readers.
    - Other text is itself without white space around it; bytes are decoded.
    - Any other object is `UNKNOWN`.
    """
    try:
        return _canonical(cell)
    except Exception:  # whatever a cell's own methods raise, one record must not stop a fit
        return UNKNOWN


def canonical_cells(cells: NDArray[Any]) -> list[Canonical]:
    """Return the canonical value of each cell, in order."""
    return map_cells(cells, lambda value: value)


def map_cells(cells: NDArray[Any], function: Callable[[Canonical], Value]) -> list[Value]:
    """Apply a function to the canonical value of each cell, in order."""
    if cells.dtype.kind == "M":
        cells = _iso(cells)
    elif cells.dtype.kind == "m":  # NumPy would turn time spans into integers
        cells = np.array([UNKNOWN, None])[np.isnat(cells).astype(np.int64)]
    elif cells.dtype.kind == "V":
        return [function(UNKNOWN)] * cells.size
    known = _Known(function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a warning from a conversion would reveal the cell
        # Cached only for types whose equal objects have the same canonical value.
        return [
            known[cell] if type(cell) in KEPT else function(canonical(cell))
            for cell in cells.ravel().tolist()
        ]


class _Known(dict[Any, Any]):
    """Cache of a function of canonical values, by cell."""

    def __init__(self, function: Callable[[Canonical], Any]) -> None:
        self._function = function

    def __missing__(self, cell: Any) -> Any:
        self[cell] = value = self._function(canonical(cell))
        return value


def read_numbers(cells: NDArray[Any]) -> Vector:
    """Return cells as C-contiguous float64, NaN where the canonical value is not a number."""
    kind = cells.dtype.kind
    with np.errstate(all="ignore"):
        if kind in NUMBER_KINDS:
            return np.ascontiguousarray(cells, dtype=np.float64)
        if kind == "c":
            return np.ascontiguousarray(np.where(cells.imag == 0, cells.real, np.nan), dtype=np.float64)
    if kind in "mMV":
        return np.full(cells.shape, np.nan)
    values = map_cells(cells, lambda value: value if isinstance(value, float) else math.nan)
    return np.array(values, dtype=np.float64).reshape(cells.shape)


def read_number(text: str) -> float:
    """Return the number that a text stands for, NaN if it is not a number."""
    try:
        return float(text)  # no mark of a missing cell is a finite number
    except ValueError:
        value = canonical(text)
        return value if isinstance(value, float) else math.nan


def _canonical(cell: Any) -> Canonical:
    if isinstance(cell, float):
        return _of_number(cell)
    if cell is None or cell is np.ma.masked:
        return None
    if isinstance(cell, str):
        return _of_text(cell)
    if isinstance(cell, bytes | bytearray):
        return _of_text(cell.decode("utf-8", errors="replace"))
    if isinstance(cell, np.timedelta64 | datetime.timedelta):
        return None if cell != cell else UNKNOWN
    if isinstance(cell, numbers.Real | Decimal | np.bool_):
        return _of_number(cell)
    if isinstance(cell, datetime.date | datetime.time):
        return _of_text(cell.isoformat())
    if isinstance(cell, np.datetime64):
        return _of_text(str(_iso(np.array(cell))))
    if isinstance(cell, np.ndarray) and cell.ndim == 0:
        return canonical(cell.item())
    if isinstance(cell, numbers.Complex) and complex(cell).imag == 0:
        return _of_number(complex(cell).real)
    pandas = sys.modules.get("pandas")
    return None if pandas is not None and cell is pandas.NA else UNKNOWN


def _iso(moments: NDArray[np.datetime64]) -> NDArray[Any]:
    """Moments as text, years and months by their first day: NumPy writes them so beside a finer one."""
    texts = np.datetime_as_string(moments)
    rest = {"Y": "-01-01", "M": "-01"}.get(np.datetime_data(moments.dtype)[0])
    return texts if rest is None else np.where(np.isnat(moments), texts, np.char.add(texts, rest))


def _of_number(cell: Any) -> float | None:
    try:
        value = float(cell)
    except OverflowError:
        value = math.inf if cell > 0 else -math.inf
    return None if value != value else value


def _of_text(text: str) -> Canonical:
    text = str.strip(text)
    if text in MISSING:
        return None
    try:
        return _of_number(float(text))
    except ValueError:
        pass
    if (flag := FLAGS.get(text.lower())) is not None:
        return flag
    if NAN.fullmatch(text):
        return None
    if digits := HEXADECIMAL.fullmatch(text):
        value = int(digits[1], 16)
        return float(value - 2**64 if value >= 2**63 else value)
    if parts := DATE.fullmatch(text):
        return _of_date(text, *parts.groups())
    if parts := TIME.fullmatch(text):
        return _of_time(text, *parts.groups())
    return text


def _of_date(
    text: str,
    date: str,
    hour: str | None,
    minute: str | None,
    second: str | None,
    fraction: str | None,
    zone: str | None,
) -> str:
    try:
        moment = np.datetime64(f"{date}T{hour or '00'}:{minute or '00'}:{second or '00'}", "s")
    except ValueError:  # such as the 30th of February
        return text
    rest = _fraction(fraction)
    if zone is None:
        return f"{moment}{rest}".removesuffix("T00:00:00")
    if zone != "Z":
        ahead = 60 * int(zone[1:3]) + int(zone[3:].lstrip(":") or 0)
        moment -= np.timedelta64(ahead if zone[0] == "+" else -ahead, "m")
    return f"{moment}{rest}Z"


def _of_time(text: str, hour: str, minute: str, second: str | None, fraction: str | None) -> str:
    if int(hour) > 23 or int(minute) > 59 or int(second or 0) > 59:
        return text
    return f"{hour}:{minute}:{second or '00'}{_fraction(fraction)}"


def _fraction(digits: str | None) -> str:
    kept = (digits or "")[:FRACTION].rstrip("0")
    return f".{kept}" if kept else ""
