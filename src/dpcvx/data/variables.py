"""Variables: numbers or levels that a model reads from cells of declared columns.

A variable is a function of one cell and of the declaration alone, so that nobody's value depends on another
person's record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dpcvx.data.canonical import NUMBER_KINDS, canonical_cells, read_numbers
from dpcvx.data.levels import DeclaredLevels
from dpcvx.errors import WrongValue
from dpcvx.words import is_number, show

__all__ = ["ASK", "PRIVATE", "SchemaColumn", "Variable", "blank"]

ASK = "?"  # stands for an entry that nobody has filled in yet
INDICATOR = "indicator"  # stands for a variable that says which cells are missing
PRIVATE = "private"  # stands for bounds that the fit will release
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


def reading(codes: tuple[Level, ...], read: Callable[[Cells], Cells]) -> Callable[[Cells], Cells]:
    """Return a reading of cells for which declared codes are missing."""
    return partial(_read_blanked, codes, read) if codes else read


def missing_codes_of(given: Any) -> tuple[Level, ...]:
    """Return declared codes of missing cells, checked."""
    return DeclaredLevels.declare(given, "missing_codes").values


def is_missing(cells: Cells) -> Cells:
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
    is_flag: bool = False  # of a number: whether its declaration allows two values, 0 (no) and 1 (yes)
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


def no_target(name: str, kind: str) -> WrongValue:
    """Return the refusal of a target of a kind that cannot be one."""
    return WrongValue(
        f"{name!r} is declared as {kind}, which cannot be a target: declare it as number, levels or boolean."
    )


def one_cell(value: Any) -> Cells:
    """Return one value as a cell."""
    return object_cells([value])


def object_cells(cells: list[Any]) -> Cells:
    """Return values of any types as cells."""
    return np.fromiter(cells, dtype=object, count=len(cells))
