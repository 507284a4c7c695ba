"""Declared columns of a table: what one is, and the variables, numbers or levels, that its cells become.

A variable is a function of one cell and of the declaration alone, so that nobody's value depends on another
person's record. Each column knows its own fields in a schema file; `TableSchema` puts them together.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np

from dpcvx.data.canonical import canonical_cells, map_cells
from dpcvx.data.column_labels import check_label, check_value_labels
from dpcvx.data.column_maps import map_fields, read_map
from dpcvx.data.date_column import DateColumn
from dpcvx.data.levels import BOOLEAN_WORDS, DeclaredLevels
from dpcvx.data.variables import (
    ASK,
    INDICATOR,
    PRIVATE,
    Cells,
    Level,
    Variable,
    as_is,
    is_missing,
    missing_codes_of,
    no_target,
    number_pair,
    object_cells,
    one_cell,
    reading,
)
from dpcvx.errors import WrongValue
from dpcvx.words import is_number, show

__all__ = [
    "COLUMN_KINDS",
    "BooleanColumn",
    "DateColumn",
    "HashedColumn",
    "IgnoredColumn",
    "LevelColumn",
    "NumberColumn",
    "PersonColumn",
    "WeightColumn",
]

MOST_BUCKETS = 2**16


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
    label, unit : str
        Meaning and unit of the number, as analysts see them.
    value_labels : mapping from number to str
        Names of codes, such as ``{1: "up to 10,000"}``; queries show them with the bin that holds the code.
    """

    bounds: Any
    missing: float | str | None = None
    bins: Any = None
    map: Any = None
    missing_codes: Any = ()
    label: str = ""
    unit: str = ""
    value_labels: Any = ()
    kind: ClassVar[str] = "number"
    text: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "missing_codes", missing_codes_of(self.missing_codes))
        object.__setattr__(self, "label", check_label("label", self.label))
        object.__setattr__(self, "unit", check_label("unit", self.unit))
        object.__setattr__(self, "value_labels", check_value_labels(self.value_labels, _is_finite))
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
        read = reading(self.missing_codes, as_is)
        number = Variable(name, name, read, self.bounds, bins=self.bins, map=self.map)
        if self.missing == INDICATOR:
            absent = reading(self.missing_codes, is_missing)
            return number, Variable(f"{name}.missing", name, absent, (0.0, 1.0), bins=2, is_flag=True)
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
    label : str
        Meaning of the column, as analysts see it.
    value_labels : mapping from level to str
        Names of levels for people, such as ``{1: "Very liberal"}``.
    """

    levels: Any
    missing: Level | None = None
    other: Level | None = None
    baseline: Level | None = None
    missing_codes: Any = ()
    label: str = ""
    value_labels: Any = ()
    kind: ClassVar[str] = "levels"
    text: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "missing_codes", missing_codes_of(self.missing_codes))
        object.__setattr__(self, "label", check_label("label", self.label))
        if self.levels == ASK:
            object.__setattr__(self, "value_labels", check_value_labels(self.value_labels, lambda _: True))
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
        labels = check_value_labels(self.value_labels, lambda value: self._place(value) >= 0)
        object.__setattr__(self, "value_labels", labels)

    @property
    def declared(self) -> DeclaredLevels:
        """All levels, that of other cells included."""
        extra = self.other is not None and DeclaredLevels(self.levels).codes(one_cell(self.other))[0] < 0
        return DeclaredLevels((*self.levels, self.other) if extra else self.levels)

    def _place(self, level: Level) -> int:
        return int(self.declared.codes(one_cell(level))[0])

    def variables(self, name: str) -> tuple[Variable, ...]:
        """Return the level itself, or the one that the cell counts as."""
        plain = self.missing is None and self.other is None
        baseline = None if self.baseline is None else self._place(self.baseline)
        read = reading(self.missing_codes, as_is if plain else self.read)
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
        return object_cells(found)

    def target(self, name: str) -> dict[str, Any]:
        """Return the labels of a target."""
        return {"classes": list(self.levels)}


@dataclass(frozen=True)
class BooleanColumn:
    """True or false, also written as 1 or 0, yes or no, y or n, t or f, in upper or lower case.

    One feature, 1 for true. Any other cell is missing, such as a code 9 for "no answer".

    Parameters
    ----------
    label : str
        Meaning of the column, as analysts see it.
    value_labels : mapping from value to str
        Names of true and false for people, such as ``{1: "votes", 0: "does not vote"}``.
    """

    label: str = ""
    value_labels: Any = ()
    kind: ClassVar[str] = "boolean"
    text: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "label", check_label("label", self.label))
        labels = check_value_labels(self.value_labels, lambda value: not math.isnan(self._flag(value)))
        object.__setattr__(self, "value_labels", labels)

    def _flag(self, value: str) -> float:
        return float(self.read(one_cell(value))[0])

    def variables(self, name: str) -> tuple[Variable, ...]:
        """Return the number 0 or 1."""
        answers = ("false", "true")
        return (Variable(name, name, self.read, (0.0, 1.0), bins=2, answers=answers, is_flag=True),)

    def read(self, cells: Cells) -> Cells:
        """Return 1, 0, or NaN for a cell that is neither."""
        return np.array(map_cells(cells, _flag), dtype=float)

    def target(self, name: str) -> dict[str, Any]:
        """Return the labels of a target."""
        return {"classes": [False, True]}


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
    label : str
        Meaning of the column, as analysts see it.
    """

    buckets: Any
    key: str = ""
    missing_codes: Any = ()
    label: str = ""
    kind: ClassVar[str] = "hashed"
    text: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "missing_codes", missing_codes_of(self.missing_codes))
        object.__setattr__(self, "label", check_label("label", self.label))
        if self.buckets != ASK and not (type(self.buckets) is int and 2 <= self.buckets <= MOST_BUCKETS):
            raise WrongValue(f"buckets must be from 2 to {MOST_BUCKETS}, got {show(self.buckets)}.")
        if not isinstance(self.key, str) or len(self.key.encode()) > hashlib.blake2b.MAX_KEY_SIZE:
            raise WrongValue(f"key must be a text of at most {hashlib.blake2b.MAX_KEY_SIZE} bytes.")

    def variables(self, name: str) -> tuple[Variable, ...]:
        """Return the bucket, a level."""
        read = reading(self.missing_codes, self.read)
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
        raise no_target(name, self.kind)


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
        raise no_target(name, self.kind)


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
        raise no_target(name, self.kind)


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
        raise no_target(name, self.kind)


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
    if "value_labels" in stated:
        stated["value_labels"] = dict(stated["value_labels"])
    if "map" in stated:
        stated["map"] = map_fields(stated["map"])
    return {"kind": column.kind, **stated}


def read_column_fields(content: Any, where: str) -> Any:
    """Return the column that a section of a schema file declares.

    `where`: the section, for messages.
    """
    if not isinstance(content, Mapping) or content.get("kind") not in list(COLUMN_KINDS):  # may be a list
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


def _is_finite(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _flag(value: Any) -> float:
    if isinstance(value, str):
        return BOOLEAN_WORDS.get(value.lower(), math.nan)
    return value if value in (0.0, 1.0) else math.nan
