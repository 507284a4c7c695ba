"""Declared columns of dates, as a number since a date, or as parts that are levels."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.data.canonical import DATE, canonical_cells
from dpcvx.data.column_labels import check_label
from dpcvx.data.variables import (
    ASK,
    Cells,
    Level,
    Variable,
    missing_codes_of,
    no_target,
    object_cells,
    reading,
)
from dpcvx.errors import WrongValue
from dpcvx.words import show

__all__ = ["DateColumn"]

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
    label : str
        Meaning of the date, as analysts see it.
    """

    bounds: Any
    unit: str = "years"
    since: Any = None
    parts: Any = ()
    missing_codes: Any = ()
    label: str = ""
    kind: ClassVar[str] = "date"
    text: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "missing_codes", missing_codes_of(self.missing_codes))
        object.__setattr__(self, "label", check_label("label", self.label))
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
            return (Variable(name, name, reading(self.missing_codes, self.numbers), (low, high)),)
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
                reading(self.missing_codes, getattr(self, part)),
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
        return object_cells(
            [None if m is None else min(max(m.year, first.year), last.year) for m in _moments(cells)]
        )

    def month(self, cells: Cells) -> Cells:
        """Return the month of each date, from 1 to 12."""
        return object_cells([None if m is None else m.month for m in _moments(cells)])

    def weekday(self, cells: Cells) -> Cells:
        """Return the name of each date's day of the week."""
        return object_cells([None if m is None else WEEKDAYS[m.weekday()] for m in _moments(cells)])

    def target(self, name: str) -> dict[str, Any]:
        """Refuse: a date cannot be the target."""
        raise no_target(name, self.kind)


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
