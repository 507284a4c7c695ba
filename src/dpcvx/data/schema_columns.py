"""Declared columns of a table: what one is, and the variables, numbers or levels, that its cells become.

A variable is a function of one cell and of the declaration alone, so that nobody's value depends on another
person's record. Each column knows its own fields in a schema file; `TableSchema` puts them together.
"""

from __future__ import annotations

import datetime
import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dpcvx.arrays import Vector
from dpcvx.data.canonical import DATE, NUMBER_KINDS, canonical_cells, map_cells, read_numbers
from dpcvx.data.column_maps import map_fields, read_map
from dpcvx.data.levels import DeclaredLevels
from dpcvx.errors import WrongValue
from dpcvx.words import is_number, show

__all__ = [
    "ASK",
    "COLUMN_KINDS",
    "PRIVATE",
    "BooleanColumn",
    "DateColumn",
    "HashedColumn",
    "IgnoredColumn",
    "LevelColumn",
    "NumberColumn",
    "PersonColumn",
    "SchemaColumn",
    "Variable",
    "WeightColumn",
    "blank",
]

ASK = "?"  # stands for an entry that nobody has filled in yet
INDICATOR = "indicator"  # stands for a variable that says which cells are missing
PRIVATE = "private"  # stands for bounds that the fit will release
MOST_BUCKETS = 2**16
Cells = NDArray[Any]
Level = str | bool | int | float


def as_is(cells: Cells) -> Cells:
    """Return cells unchanged."""
    return cells


def blank(codes: tuple[Level, ...], cells: Cells) -> Cells:
    """Return cells with those that equal one of the codes, by canonical value, replaced by missing ones."""
    found = DeclaredLevels(codes).codes(cells) >= 0
    if cells.dtype.kind in NUMBER_KINDS:
        return np.where(found, np.nan, read_numbers(cells))
    # NumPy would turn dates of some types into integers.
    dates = cells.dtype.kind in "mM"
    blanked = np.array(canonical_cells(cells) if dates else cells, dtype=object)
    blanked[found] = None
    return blanked


def _read_blanked(codes: tuple[Level, ...], read: Callable[[Cells], Cells], cells: Cells) -> Cells:
    return read(blank(codes, cells))


def _reading(codes: tuple[Level, ...], read: Callable[[Cells], Cells]) -> Callable[[Cells], Cells]:
    """Return a reading of cells for which declared codes are missing."""
    return partial(_read_blanked, codes, read) if codes else read


def _codes(given: Any) -> tuple[Level, ...]:
    """Return declared codes of missing cells, checked."""
    return DeclaredLevels.declare(given, "missing_codes").values


def _is_missing(cells: Cells) -> Cells:
    """Return 1 for a cell that is no finite number, and 0 for others."""
    return (~np.isfinite(read_numbers(cells))).astype(float)


@dataclass(frozen=True)
class Variable:
    """A number, or one of declared levels, that a model reads from the cell of a column, or of several."""

    name: str
    column: str  # column that is read
    read: Callable[..., Cells]  # cells as numbers, NaN where there is none, or as levels
    bounds: Any = None  # bounds of a number, a pair or "private"; None for levels
    levels: tuple[Level, ...] | None = None
    baseline: int | None = None  # place of the level that the others are compared with, if it is declared
    is_compared: bool = False  # whether it has a baseline by default: the first level
    other: int | None = None  # place of the level that any other cell counts as, if it is declared
    missing: float | None = None  # number that a cell without one counts as, if it is declared
    map: Any = None  # of a number: its column map, or the request for one
    bins: int | tuple[float, ...] | None = None  # of a number, for queries: how many, or their edges
    answers: tuple[Level, ...] | None = None  # of a number, for queries: its values, where they are few
    also: tuple[str, ...] = ()  # further columns whose cells are read, of a product

    @property
    def derived(self) -> bool:
        """Whether its value differs from the cell's own."""
        return self.read is not as_is


class SchemaColumn(Protocol):
    """The declaration of one column."""

    kind: ClassVar[str]  # its word in a schema file
    text: ClassVar[bool]  # whether cells of a CSV file are needed as text

    def variables(self, name: str) -> tuple[Variable, ...]:
        """Return the variables that a model reads from the column."""
        ...

    def target(self, name: str) -> dict[str, Any]:
        """Return the estimator's parameters where the column is the target."""
        ...


@dataclass(frozen=True)
class NumberColumn:
    """Numbers between declared bounds.

    Parameters
    ----------
    bounds : pair of float, or "private"
        Lowest and highest value, in the table's units; cells outside are clipped.
    missing : float or "indicator", optional
        Value that a missing cell, or one that is not a number, counts as. None is the released mean of the
        column in standardised fits, and the middle of the bounds in others. "indicator" is the same, with a
        variable "name.missing" beside the number: 1 where the cell is missing, and 0 where it is not.
    bins : int or sequence of float, optional
        For queries: number of bins of equal width, or their edges.
    map : column map, or its name or fields, optional
        Map from the number to features of a model, such as ``"log"`` or ``Ramps([20, 40, 60])``; see the page
        "Preprocessing".
    missing_codes : sequence
        Values that stand for a missing cell, such as ``[99, -9]``.
    """

    bounds: Any
    missing: float | str | None = None
    bins: Any = None
    map: Any = None
    missing_codes: Any = ()
    kind: ClassVar[str] = "number"
    text: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "missing_codes", _codes(self.missing_codes))
        if self.bounds not in (ASK, PRIVATE):
            object.__setattr__(self, "bounds", number_pair(self.bounds, "bounds"))
        if self.missing not in (None, INDICATOR) and not is_number(self.missing):
            raise WrongValue(f'missing must be a number or "{INDICATOR}", got {show(self.missing)}.')
        if self.map is not None:
            object.__setattr__(self, "map", read_map(self.map, "map"))
        if isinstance(self.bins, list | tuple) and all(map(is_number, self.bins)):
            object.__setattr__(self, "bins", tuple(map(float, self.bins)))
        elif self.bins is not None and not (type(self.bins) is int and self.bins >= 2):
            raise WrongValue(f"bins must be two or more, or a list of edges, got {show(self.bins)}.")

    def variables(self, name: str) -> tuple[Variable, ...]:
        """Return the number itself, and whether it is missing if that is declared."""
        read = _reading(self.missing_codes, as_is)
        number = Variable(name, name, read, self.bounds, bins=self.bins, map=self.map)
        if self.missing == INDICATOR:
            absent = _reading(self.missing_codes, _is_missing)
            return number, Variable(f"{name}.missing", name, absent, (0.0, 1.0), bins=2)
        value = None if self.missing is None else float(self.missing)
        return (replace(number, missing=value),)

    def target(self, name: str) -> dict[str, Any]:
        """Return the bounds of a numeric target."""
        return {"y_bounds": self.bounds}


@dataclass(frozen=True)
class LevelColumn:
    """Declared levels.

    Parameters
    ----------
    levels : sequence
        Different texts, numbers or booleans.
    missing : optional
        Level that a missing cell counts as.
    other : optional
        Level that every other cell counts as, one of the levels or a name of its own. Without it such a cell
        matches no level.
    baseline : optional
        Level that the coefficients of the others are compared with; a cell that matches no level takes shares
        of all levels. By default the first of two or more levels. In a model without an intercept every level
        has a coefficient.
    missing_codes : sequence
        Values that stand for a missing cell, such as ``[99, -9]``.
    """

    levels: Any
    missing: Level | None = None
    other: Level | None = None
    baseline: Level | None = None
    missing_codes: Any = ()
    kind: ClassVar[str] = "levels"
    text: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "missing_codes", _codes(self.missing_codes))
        if self.levels == ASK:
            return
        levels = DeclaredLevels.declare(self.levels, "levels")
        if not len(levels):
            raise WrongValue(f"levels must name at least one level, got {show(self.levels)}.")
        object.__setattr__(self, "levels", levels.values)
        if self.missing is not None and self._place(self.missing) < 0:
            raise WrongValue(f"missing must be one of the levels, got {show(self.missing)}.")
        if both := [code for code in self.missing_codes if self._place(code) >= 0]:
            raise WrongValue(
                f"missing_codes and levels both have {show(both[0])}: a cell is one or the other."
            )
        if self.baseline is not None and (self._place(self.baseline) < 0 or len(self.declared) < 2):
            raise WrongValue(
                f"baseline must be one of the levels, two or more of them; got {show(self.baseline)}."
            )

    @property
    def declared(self) -> DeclaredLevels:
        """All levels, that of other cells included."""
        extra = self.other is not None and DeclaredLevels(self.levels).codes(_cell(self.other))[0] < 0
        return DeclaredLevels((*self.levels, self.other) if extra else self.levels)

    def _place(self, level: Level) -> int:
        return int(self.declared.codes(_cell(level))[0])

    def variables(self, name: str) -> tuple[Variable, ...]:
        """Return the level itself, or the one that the cell counts as."""
        plain = self.missing is None and self.other is None
        baseline = None if self.baseline is None else self._place(self.baseline)
        read = _reading(self.missing_codes, as_is if plain else self.read)
        other = None if self.other is None else self._place(self.other)
        levels = self.declared.values
        return (Variable(name, name, read, levels=levels, baseline=baseline, is_compared=True, other=other),)

    def read(self, cells: Cells) -> Cells:
        """Return each cell's level, None where it has none."""
        declared = self.declared
        found = [declared[code] if code >= 0 else None for code in declared.codes(cells)]
        values = canonical_cells(cells)
        for place, value in enumerate(values):
            if found[place] is None:
                found[place] = self.missing if value is None else self.other
        return _objects(found)

    def target(self, name: str) -> dict[str, Any]:
        """Return the labels of a target."""
        return {"classes": list(self.levels)}


FLAGS = {"yes": 1.0, "y": 1.0, "t": 1.0, "no": 0.0, "n": 0.0, "f": 0.0}  # beside true, false, 1 and 0


@dataclass(frozen=True)
class BooleanColumn:
    """True or false, also written as 1 or 0, yes or no, y or n, t or f, in upper or lower case.

    One feature, 1 for true. Any other cell is missing, such as a code 9 for "no answer".
    """

    kind: ClassVar[str] = "boolean"
    text: ClassVar[bool] = True

    def variables(self, name: str) -> tuple[Variable, ...]:
        """Return the number 0 or 1."""
        return (Variable(name, name, self.read, (0.0, 1.0), bins=2, answers=("false", "true")),)

    def read(self, cells: Cells) -> Cells:
        """Return 1, 0, or NaN for a cell that is neither."""
        return np.array(map_cells(cells, _flag), dtype=float)

    def target(self, name: str) -> dict[str, Any]:
        """Return the labels of a target."""
        return {"classes": [False, True]}


WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
PARTS = ("year", "month", "weekday")
UNITS = {"days": 1.0, "weeks": 7.0, "months": 365.25 / 12, "years": 365.25}  # in days


@dataclass(frozen=True)
class DateColumn:
    """Dates between declared bounds, as a number since a date, or as parts that are levels.

    Dates are written as year-month-day, with or without a time, or have a type of dates.

    Parameters
    ----------
    bounds : pair of date
        First and last date, as ``datetime.date`` or text; dates outside are clipped.
    unit : {"days", "weeks", "months", "years"}
        Unit of the number; months and years have their mean length.
    since : date, optional
        Date that counts as 0; by default the first of the bounds.
    parts : sequence of {"year", "month", "weekday"}
        Parts to use in place of the number, each a variable "column.part" with levels; in a model with an
        intercept the first is the baseline: the first year, January, Monday.
    missing_codes : sequence
        Values that stand for a missing cell, such as ``["9999-12-31"]``.
    """

    bounds: Any
    unit: str = "years"
    since: Any = None
    parts: Any = ()
    missing_codes: Any = ()
    kind: ClassVar[str] = "date"
    text: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "missing_codes", _codes(self.missing_codes))
        if self.unit not in UNITS:
            raise WrongValue(f"unit must be one of {', '.join(UNITS)}, got {show(self.unit)}.")
        parts = (self.parts,) if isinstance(self.parts, str) else tuple(self.parts)
        if len(set(parts)) < len(parts) or not set(parts) <= set(PARTS):
            raise WrongValue(f"parts must be different ones of {', '.join(PARTS)}, got {show(self.parts)}.")
        object.__setattr__(self, "parts", parts)
        if self.bounds == ASK:
            return
        try:
            first, last = map(as_date, self.bounds)
        except (TypeError, ValueError):
            raise WrongValue(
                f"bounds must be two dates such as 2000-01-31, got {show(self.bounds)}."
            ) from None
        if not first < last:
            raise WrongValue(f"bounds must be two dates, the first before the last, got {first}, {last}.")
        object.__setattr__(self, "bounds", (first, last))
        object.__setattr__(self, "since", first if self.since is None else as_date(self.since))

    def variables(self, name: str) -> tuple[Variable, ...]:
        """Return the number, or one variable of levels for each part."""
        if not self.parts:
            low, high = (self._number(datetime.datetime(d.year, d.month, d.day)) for d in self.bounds)
            return (Variable(name, name, _reading(self.missing_codes, self.numbers), (low, high)),)
        first, last = self.bounds
        levels: dict[str, tuple[Level, ...]] = {
            "year": tuple(range(first.year, last.year + 1)),
            "month": tuple(range(1, 13)),
            "weekday": WEEKDAYS,
        }
        return tuple(
            Variable(
                f"{name}.{part}",
                name,
                _reading(self.missing_codes, getattr(self, part)),
                levels=levels[part],
                is_compared=True,
            )
            for part in self.parts
        )

    def _number(self, moment: datetime.datetime) -> float:
        start = datetime.datetime(self.since.year, self.since.month, self.since.day)
        return (moment - start) / datetime.timedelta(days=UNITS[self.unit])

    def numbers(self, cells: Cells) -> Vector:
        """Return the time since the declared date, NaN for a cell that is not a date."""
        return np.array([math.nan if m is None else self._number(m) for m in _moments(cells)], dtype=float)

    def year(self, cells: Cells) -> Cells:
        """Return the year of each date, clipped to the bounds."""
        first, last = self.bounds
        return _objects(
            [None if m is None else min(max(m.year, first.year), last.year) for m in _moments(cells)]
        )

    def month(self, cells: Cells) -> Cells:
        """Return the month of each date, from 1 to 12."""
        return _objects([None if m is None else m.month for m in _moments(cells)])

    def weekday(self, cells: Cells) -> Cells:
        """Return the name of each date's day of the week."""
        return _objects([None if m is None else WEEKDAYS[m.weekday()] for m in _moments(cells)])

    def target(self, name: str) -> dict[str, Any]:
        """Refuse: a date cannot be the target."""
        raise _no_target(name, self.kind)


@dataclass(frozen=True)
class HashedColumn:
    """Text with many levels, mapped to a few buckets by a public hash; a missing cell has no bucket.

    Parameters
    ----------
    buckets : int
        Number of buckets; each is a level, and texts that share one share a coefficient. None is a baseline.
    key : str
        Public key of the hash; another key maps texts to other buckets.
    missing_codes : sequence
        Values that stand for a missing cell, such as ``[99, -9]``.
    """

    buckets: Any
    key: str = ""
    missing_codes: Any = ()
    kind: ClassVar[str] = "hashed"
    text: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "missing_codes", _codes(self.missing_codes))
        if self.buckets != ASK and not (type(self.buckets) is int and 2 <= self.buckets <= MOST_BUCKETS):
            raise WrongValue(f"buckets must be from 2 to {MOST_BUCKETS}, got {show(self.buckets)}.")
        if not isinstance(self.key, str) or len(self.key.encode()) > hashlib.blake2b.MAX_KEY_SIZE:
            raise WrongValue(f"key must be a text of at most {hashlib.blake2b.MAX_KEY_SIZE} bytes.")

    def variables(self, name: str) -> tuple[Variable, ...]:
        """Return the bucket, a level."""
        read = _reading(self.missing_codes, self.read)
        return (Variable(name, name, read, levels=tuple(range(self.buckets))),)

    def read(self, cells: Cells) -> Cells:
        """Return the bucket of each cell, NaN for a missing one."""
        key, known = self.key.encode(), dict[float | str, int]()
        found = np.full(cells.size, np.nan)
        for place, value in enumerate(canonical_cells(cells)):
            if isinstance(value, float | str):
                if value not in known:
                    # The sum makes 0 of -0, which is the same key of `known`.
                    text = f"n{(value + 0.0).hex()}" if isinstance(value, float) else f"t{value}"
                    content = text.encode("utf-8", "surrogatepass")
                    digest = hashlib.blake2b(content, digest_size=8, key=key).digest()
                    known[value] = int.from_bytes(digest, "big") % self.buckets
                found[place] = known[value]
        return found

    def target(self, name: str) -> dict[str, Any]:
        """Refuse: hashed text cannot be the target."""
        raise _no_target(name, self.kind)


@dataclass(frozen=True)
class IgnoredColumn:
    """A column that is not used as a feature: an identifier, or anything else that no model should read."""

    kind: ClassVar[str] = "ignored"
    text: ClassVar[bool] = True

    def variables(self, name: str) -> tuple[Variable, ...]:
        """Return nothing."""
        return ()

    def target(self, name: str) -> dict[str, Any]:
        """Refuse: the column is not to be read."""
        raise _no_target(name, self.kind)


@dataclass(frozen=True)
class PersonColumn:
    """The column with the id of each row's person; it is not used as a feature."""

    kind: ClassVar[str] = "person"
    text: ClassVar[bool] = True

    def variables(self, name: str) -> tuple[Variable, ...]:
        """Return nothing."""
        return ()

    def target(self, name: str) -> dict[str, Any]:
        """Refuse: the id of a person cannot be the target."""
        raise _no_target(name, self.kind)


@dataclass(frozen=True)
class WeightColumn:
    """The column with the survey weight of each row; it is not used as a feature.

    Parameters
    ----------
    bounds : pair (0, V)
        V is the largest weight: a larger one counts as V, a missing or negative one as 0, and noise is made
        for a row of weight V.
    """

    bounds: Any
    kind: ClassVar[str] = "weight"
    text: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.bounds == ASK:
            return
        object.__setattr__(self, "bounds", number_pair(self.bounds, "bounds"))
        if self.bounds[0] != 0:
            raise WrongValue(f"bounds of weights must begin at 0, got {show(self.bounds)}.")

    def variables(self, name: str) -> tuple[Variable, ...]:
        """Return nothing."""
        return ()

    def target(self, name: str) -> dict[str, Any]:
        """Refuse: a weight cannot be the target."""
        raise _no_target(name, self.kind)


COLUMN_KINDS: dict[str, Any] = {
    each.kind: each
    for each in (
        NumberColumn,
        LevelColumn,
        BooleanColumn,
        DateColumn,
        HashedColumn,
        IgnoredColumn,
        PersonColumn,
        WeightColumn,
    )
}


def column_fields(column: Any) -> dict[str, Any]:
    """Return the declaration of a column as in a schema file, without fields that have their defaults."""
    stated = {
        field.name: getattr(column, field.name)
        for field in fields(column)
        if getattr(column, field.name) != field.default
    }
    if column.kind == DateColumn.kind and column.bounds != ASK and column.since == column.bounds[0]:
        del stated["since"]
    if "map" in stated:
        stated["map"] = map_fields(stated["map"])
    return {"kind": column.kind, **stated}


def read_column_fields(content: Any, where: str) -> Any:
    """Return the column that a section of a schema file declares.

    `where`: the section, for messages.
    """
    if not isinstance(content, Mapping) or content.get("kind") not in COLUMN_KINDS:
        raise WrongValue(f"{where} needs kind = one of {', '.join(map(repr, COLUMN_KINDS))}.")
    kind = COLUMN_KINDS[content["kind"]]
    known = {field.name for field in fields(kind)}
    given = {name: value for name, value in content.items() if name != "kind"}
    if unknown := sorted(set(given) - known):
        allowed = ", ".join(sorted(known)) or "no other entry"
        raise WrongValue(f"{where} has unknown entries {', '.join(unknown)}; {kind.kind} takes {allowed}.")
    try:
        return kind(**given)
    except TypeError:
        raise WrongValue(f"{where} lacks an entry: {kind.kind} takes {', '.join(sorted(known))}.") from None
    except WrongValue as error:
        raise WrongValue(f"{where}: {error}") from None


def number_pair(value: Any, what: str) -> tuple[float, float]:
    """Return a declared pair of numbers, the first below the second."""
    try:
        low, high = value
    except (TypeError, ValueError):
        low = high = None
    if not (is_number(low) and is_number(high) and low < high):
        raise WrongValue(
            f"{what} must be a pair (lowest, highest) of numbers, the lowest first; got {show(value)}."
        )
    return float(low), float(high)


def as_date(value: Any) -> datetime.date:
    """Return a declared date; anything else raises a ValueError."""
    if isinstance(value, datetime.datetime):
        return value.date()
    return value if isinstance(value, datetime.date) else datetime.date.fromisoformat(value)


def _moments(cells: Cells) -> Iterable[datetime.datetime | None]:
    """Date and time of each cell, in UTC if it has a zone; None for a cell that is not a date."""
    known: dict[str, datetime.datetime | None] = {}
    for value in canonical_cells(cells):
        if not isinstance(value, str):
            yield None
            continue
        if value not in known:
            try:
                moment = datetime.datetime.fromisoformat(value.removesuffix("Z"))
                known[value] = moment if DATE.fullmatch(value) and moment.tzinfo is None else None
            except ValueError:
                known[value] = None
        yield known[value]


def _flag(value: Any) -> float:
    if isinstance(value, str):
        return FLAGS.get(value.lower(), math.nan)
    return value if value in (0.0, 1.0) else math.nan


def _no_target(name: str, kind: str) -> WrongValue:
    return WrongValue(
        f"{name!r} is declared as {kind}, which cannot be a target: declare it as number, levels or boolean."
    )


def _cell(value: Any) -> Cells:
    return _objects([value])


def _objects(cells: list[Any]) -> Cells:
    return np.fromiter(cells, dtype=object, count=len(cells))
