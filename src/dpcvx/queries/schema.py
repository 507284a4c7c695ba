"""Schema of a table: declared levels or bins of each column, and the one that other values count as.

A schema comes from public knowledge, never from the table.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpcvx.arrays import IntVector, Vector
from dpcvx.data.levels import DeclaredLevels
from dpcvx.data.table_file import read_toml
from dpcvx.data.table_schema import TableSchema
from dpcvx.data.variables import Variable
from dpcvx.errors import UnrecognisedDataWarning, WrongValue
from dpcvx.queries.column_words import WORDS, check_words, declared_words, words_of
from dpcvx.words import is_number

__all__ = ["Attribute", "Binned", "Column", "Schema"]

Level: TypeAlias = str | bool | int | float
LARGEST = 2.0**52  # levels that count as numbers, and their size over the range of all
MISSING = "missing"  # label of the cell without a value, where a declaration names none


@dataclass(frozen=True)
class Attribute:
    """A column of declared levels; binary if there are two of them.

    Parameters
    ----------
    name : str
        Name of the column.
    levels : tuple
        At least two different texts, numbers or booleans, in an order of your choice.
    other : str, bool, int or float, optional
        Level that every other value counts as, a missing one included: one of the levels, or a text of its
        own, which is then a further cell without a value. By default it is such a text, "missing".
    label, unit : str
        Text that analysts see. It is no part of the declaration that an account pays for.
    value_labels : mapping from level to str
        Names of levels for people, such as ``{1: "Very liberal"}``.
    """

    name: str
    levels: tuple[Level, ...]
    other: Level | None = None
    label: str = field(default="", compare=False)
    unit: str = field(default="", compare=False)
    value_labels: Any = field(default=(), compare=False)

    def __post_init__(self) -> None:
        _require_name(self.name)
        levels = DeclaredLevels.declare(self.levels, f"levels of {self.name!r}").values
        if len(levels) < 2 or not all(math.isfinite(v) for v in levels if isinstance(v, float)):
            raise WrongValue(f"levels of {self.name!r} must be two or more, and finite; got {self.levels!r}.")
        object.__setattr__(self, "levels", levels)
        if self.other is None:
            object.__setattr__(self, "other", _missing_name(map(str, levels)))
        elif self.other not in levels and not _is_new_name(self.other, map(str, levels)):
            raise WrongValue(
                f"other of {self.name!r} is {self.other!r}; it must be one of {levels!r}, or a text of its "
                "own."
            )
        check_words(self)

    def cell(self, value: str) -> int:
        """Return the number of the cell that a value belongs to, -1 where there is none."""
        if value in self.labels:
            return self.labels.index(value)
        return int(DeclaredLevels(self.levels).codes(np.array([value], dtype=object))[0])

    @property
    def words(self) -> dict[str, Any]:
        """Label, unit and names of levels for people, as far as they are declared."""
        return words_of(self)

    def of_version_0_1(self) -> Attribute:
        """Return what a file of version 0.1 meant that names no level for other values: the last one."""
        return replace(self, other=self.levels[-1])

    @property
    def known(self) -> int:
        """Number of cells with a value: of levels."""
        return len(self.levels)

    @property
    def size(self) -> int:
        """Number of cells: of levels, and one for other values if they have a cell of their own."""
        return len(self.levels) + (self.other not in self.levels)

    @property
    def labels(self) -> tuple[str, ...]:
        """The cells as text."""
        return tuple(map(str, self.levels if self.other in self.levels else (*self.levels, self.other)))

    @property
    def numbers(self) -> Vector | None:
        """More than two levels that are numbers; None for other levels, and for two, which have a share."""
        if self.known == 2 or not all(is_number(each, -LARGEST, LARGEST) for each in self.levels):
            return None
        numbers = np.array(self.levels, dtype=np.float64)
        return numbers if np.ptp(numbers) > np.abs(numbers).max() / LARGEST else None

    @property
    def scaled(self) -> Vector:
        """One number for each level, from -1 to 1 and 0 without a value; evenly spaced if not numbers."""
        spaced, numbers = np.linspace(-1.0, 1.0, self.known), self.numbers
        if numbers is not None:
            spaced = 2 * (numbers - numbers.min()) / np.ptp(numbers) - 1
        return np.append(spaced, np.zeros(self.size - self.known))

    @property
    def units(self) -> NDArray[Any]:
        """Value of each cell in a table: the level itself, or None."""
        kinds = {type(level) for level in self.levels}
        plain = len(kinds) == 1 and kinds != {str} and self.size == self.known
        cells = [*self.levels, *([None] * (self.size - self.known))]
        return np.array(cells, dtype=None if plain else object)

    @property
    def missing_code(self) -> int:
        """Number of the cell that a missing value counts in."""
        return self.levels.index(self.other) if self.other in self.levels else self.known

    def encode(self, cells: NDArray[Any]) -> tuple[IntVector, NDArray[np.bool_]]:
        """Return the number of the level of each value, whatever it is, and whether it is declared."""
        codes = DeclaredLevels(self.levels).codes(cells)
        declared = codes >= 0
        codes[~declared] = self.missing_code
        return codes, declared

    def to_dict(self) -> dict[str, Any]:
        """Return the declaration as plain types."""
        return {**self.identity(), **self.words}

    def identity(self) -> dict[str, Any]:
        """Return the declaration without words for people."""
        return {"name": self.name, "levels": list(self.levels), "other": self.other}


@dataclass(frozen=True)
class Binned:
    """A column of numbers, cut into bins.

    Bin i holds edges[i] <= v < edges[i + 1]; numbers below the first edge count in the first bin, numbers at
    or above the last edge in the last bin.

    Parameters
    ----------
    name : str
        Name of the column.
    edges : tuple of float
        Increasing, in the table's units; one more than there are bins.
    missing : float or str, optional
        Number that a missing value, or one that is no number, counts as; or a text, the name of a further
        cell for them, which has no value. By default it is such a text, "missing".
    values : tuple of float, optional
        Number that stands for each bin, within the bin, in the table's units: for instance its mean in an
        earlier, public table. By default an engine measures the mean of each bin; elsewhere it is the middle.
    label, unit : str
        Text that analysts see. It is no part of the declaration that an account pays for.
    value_labels : mapping from number to str
        Names of codes for people, such as ``{1: "up to 10,000"}``, shown with the bin that holds the code.
    """

    name: str
    edges: tuple[float, ...]
    missing: float | str | None = None
    values: tuple[float, ...] | None = None
    label: str = field(default="", compare=False)
    unit: str = field(default="", compare=False)
    value_labels: Any = field(default=(), compare=False)

    def __post_init__(self) -> None:
        _require_name(self.name)
        try:
            edges = tuple(float(edge) for edge in self.edges)
        except (TypeError, ValueError, OverflowError):
            edges = ()
        steps = np.diff(edges)
        if len(edges) < 3 or not (np.isfinite(steps).all() and (steps > 0).all()):
            raise WrongValue(
                f"edges of {self.name!r} must be three or more finite numbers that increase, which makes two "
                f"bins or more; got {self.edges!r}."
            )
        object.__setattr__(self, "edges", edges)
        if self.missing is None:
            object.__setattr__(self, "missing", MISSING)
        elif isinstance(self.missing, str):
            if not _is_new_name(self.missing, self._bins):
                raise WrongValue(
                    f"missing of {self.name!r} must be a number, or a text that names no bin, got "
                    f"{self.missing!r}."
                )
        elif not (is_number(self.missing) and edges[0] <= self.missing <= edges[-1]):
            raise WrongValue(
                f"missing of {self.name!r} is {self.missing!r}; it must be a number from {edges[0]:g} to "
                f"{edges[-1]:g}, whose bin missing values count in, or a text, the name of their own cell."
            )
        if self.values is not None:
            object.__setattr__(self, "values", self._checked(self.values))
        check_words(self)

    def cell(self, value: str) -> int:
        """Return the number of the cell that a number, or the label of a cell, belongs to; -1 for none."""
        if value in self.labels:
            return self.labels.index(value)
        try:
            number = float(value)
        except ValueError:
            return -1
        if not self.edges[0] <= number <= self.edges[-1]:
            return -1
        return int(np.searchsorted(self.edges[1:-1], number, side="right"))

    @property
    def words(self) -> dict[str, Any]:
        """Label, unit and names of bins for people, as far as they are declared."""
        return words_of(self)

    def _checked(self, values: Any) -> tuple[float, ...]:
        """Return declared values of the bins as numbers; refuse any outside its bin."""
        try:
            numbers = tuple(float(value) for value in values)
        except (TypeError, ValueError, OverflowError):
            numbers = ()
        if len(numbers) != self.known or not all(
            low <= value <= high
            for low, value, high in zip(self.edges, numbers, self.edges[1:], strict=False)
        ):
            raise WrongValue(
                f"values of {self.name!r} must be {self.known} numbers, one within each bin; got {values!r}."
            )
        return numbers

    def of_version_0_1(self) -> Binned:
        """Return what a file of version 0.1 meant that names no bin for missing values: the middle one."""
        return replace(self, missing=float(self.midpoints[(self.known - 1) // 2]))

    @property
    def known(self) -> int:
        """Number of cells with a value: of bins."""
        return len(self.edges) - 1

    @property
    def size(self) -> int:
        """Number of cells: of bins, and one for missing values if they have a cell of their own."""
        return self.known + isinstance(self.missing, str)

    @property
    def labels(self) -> tuple[str, ...]:
        """The bins as text, in the table's units, and the name of the cell of missing values."""
        return (*self._bins, self.missing) if isinstance(self.missing, str) else self._bins

    @property
    def _bins(self) -> tuple[str, ...]:
        pairs = list(zip(self.edges, self.edges[1:], strict=False))
        return (
            *(f"[{low:g}, {high:g})" for low, high in pairs[:-1]),
            f"[{pairs[-1][0]:g}, {pairs[-1][1]:g}]",
        )

    @property
    def midpoints(self) -> Vector:
        """Middle of each bin, in the table's units."""
        edges = np.array(self.edges)
        return edges[:-1] + np.diff(edges) / 2

    @property
    def representatives(self) -> Vector:
        """Number that stands for each bin, in the table's units: its value, or its middle."""
        return self.midpoints if self.values is None else np.array(self.values)

    @property
    def scaled(self) -> Vector:
        """Number of each bin, with the first edge at -1 and the last at 1; 0 for a cell without a value."""
        low, high = self.edges[0], self.edges[-1]
        half = (high - low) / 2
        scaled: Vector = (self.representatives - (low + half)) / half
        return np.append(scaled, np.zeros(self.size - self.known))

    @property
    def units(self) -> NDArray[Any]:
        """Value of each cell in a table: the number of the bin, or NaN."""
        return np.append(self.representatives, np.full(self.size - self.known, np.nan))

    @property
    def missing_code(self) -> int:
        """Number of the bin that a missing value counts in."""
        return int(self.encode(np.full(1, np.nan))[0][0])

    def encode(self, numbers: Vector) -> tuple[IntVector, NDArray[np.bool_]]:
        """Return the number of the bin of each value, NaN being missing, and whether it is finite."""
        absent = np.isnan(numbers)
        place = self.missing if isinstance(self.missing, float | int) else self.edges[0]
        wanted = np.where(absent, place, numbers)
        codes: IntVector = np.searchsorted(self.edges[1:-1], wanted, side="right").astype(np.int64)
        if isinstance(self.missing, str):
            codes[absent] = self.known
        return codes, np.isfinite(numbers)

    def to_dict(self) -> dict[str, Any]:
        """Return the declaration as plain types."""
        return {**self.identity(), **self.words}

    def identity(self) -> dict[str, Any]:
        """Return the declaration without words for people."""
        own = {} if self.values is None else {"values": list(self.values)}
        return {"name": self.name, "edges": list(self.edges), "missing": self.missing, **own}


Column: TypeAlias = Attribute | Binned


@dataclass(frozen=True)
class Schema:
    """All attributes of a table that queries may use.

    Parameters
    ----------
    attributes : tuple of Attribute or Binned
        In the order of the universe's axes.
    """

    attributes: tuple[Column, ...]

    def __post_init__(self) -> None:
        attributes = tuple(self.attributes)
        object.__setattr__(self, "attributes", attributes)
        if not attributes or not all(isinstance(a, Attribute | Binned) for a in attributes):
            raise WrongValue(f"A schema needs one or more of Attribute and Binned, got {self.attributes!r}.")
        if len(set(self.names)) < len(attributes):
            raise WrongValue(f"A schema names a column more than once: {', '.join(self.names)}.")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(attribute.name for attribute in self.attributes)

    @property
    def levels(self) -> dict[str, tuple[Level, ...]]:
        """Levels of the columns that are not binned numbers, as `TableFile.read` takes them."""
        return {a.name: a.levels for a in self.attributes if isinstance(a, Attribute)}

    def __getitem__(self, name: str) -> Column:
        return self.attributes[self.position(name)]

    def position(self, name: str) -> int:
        """Return the position of a column; KeyError lists the columns if there is none of this name."""
        if name not in self._places:
            raise KeyError(f"The schema has no column {name!r}; it has {', '.join(self.names)}.")
        return self._places[name]

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.names)}

    def to_dict(self) -> dict[str, Any]:
        """Return the declaration as plain types."""
        return {"attributes": [attribute.to_dict() for attribute in self.attributes]}

    def identity(self) -> dict[str, Any]:
        """Return the declaration without words for people, by which an engine is known again."""
        return {"attributes": [attribute.identity() for attribute in self.attributes]}

    def to_json(self) -> str:
        """Return the declaration as JSON text."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)

    @classmethod
    def of(cls, table: TableSchema) -> Schema:
        """Return the attributes that the declaration of a table gives: levels, and numbers that have bins.

        Cells without a declared level, and missing numbers without a declared value, have a cell of their
        own, "missing".

        The engine is then given ``read_variables(people, table)``, whose columns are these attributes.

        Parameters
        ----------
        table : TableSchema
            Its numbers need ``bins``. A column that queries cannot use is refused, because the attributes of
            an engine cannot be changed once it is paid for; ``no_queries`` names those to leave out.
        """
        if words := words_about_left_out(table):
            raise WrongValue(words)
        return cls.usable(table)

    @classmethod
    def usable(cls, table: TableSchema) -> Schema:
        """Return the attributes of all columns that queries can use, and leave out the others silently.

        `table`: the declaration.
        """
        found: list[Column] = []
        for each in table.variables():
            if each.column in table.no_queries or _why_left_out(each):
                continue
            words = declared_words(table.columns.get(each.column), each)
            if (levels := each.levels or each.answers) is not None:
                found.append(Attribute(each.name, levels, _missing_name(map(str, levels)), **words))
                continue
            edges: Any = each.bins
            if isinstance(edges, int):
                low, high = each.bounds
                edges = tuple(np.linspace(low, high, edges + 1).tolist())
            missing = MISSING if each.missing is None else each.missing
            found.append(Binned(each.name, edges, missing, **words))
        if not found:
            reasons = "; ".join(columns_left_out(table)) or "no_queries names all of them"
            raise WrongValue(f"The declaration has no column that queries can use: {reasons}.")
        return cls(tuple(found))

    @classmethod
    def from_dict(cls, content: Any) -> Schema:
        """Read what `to_dict` wrote; anything else is a ValueError.

        A column that does not say where other or missing cells count has the meaning of version 0.1, the last
        level or the middle bin, and a warning names it.
        """
        listed = content.get("attributes") if isinstance(content, Mapping) else None
        if not isinstance(listed, list) or set(content) != {"attributes"}:
            raise WrongValue('A schema must be an object {"attributes": [...]} and nothing else.')
        schema = cls(tuple(_attribute(each) for each in listed))
        silent = [each["name"] for each in listed if each.get("other") is each.get("missing") is None]
        if silent:
            warnings.warn(
                f"The schema does not say where other and missing cells of {', '.join(map(repr, silent))} "
                "count. They count in the last level or the middle bin, as in version 0.1. For a level of "
                'their own declare  other = "missing"  of levels and  missing = "missing"  of numbers.',
                UnrecognisedDataWarning,
                stacklevel=2,
            )
        return schema

    @classmethod
    def from_json(cls, text: str) -> Schema:
        """Read what `to_json` wrote; anything else is a ValueError."""
        try:
            content = json.loads(text)
        except ValueError as error:
            raise WrongValue(f"The schema is not valid JSON: {error}") from None
        except RecursionError:
            raise WrongValue("The schema is nested too deeply.") from None
        return cls.from_dict(content)

    @classmethod
    def from_toml(cls, path: str | Path) -> Schema:
        """Read a schema file.

        Parameters
        ----------
        path : str or Path
            TOML with one section ``[attributes.NAME]`` for each column, as in the page on queries.
        """
        content = read_toml(Path(path))
        sections = content.get("attributes")
        if not isinstance(sections, dict) or set(content) != {"attributes"}:
            raise WrongValue(
                f"{path} must hold sections [attributes.NAME], one for each column, and no more."
            )
        wrong = [name for name, section in sections.items() if not isinstance(section, dict)]
        if wrong:
            raise WrongValue(f"{path}: {wrong[0]!r} must be a section [attributes.{wrong[0]}].")
        return cls.from_dict({"attributes": [{"name": name, **sections[name]} for name in sections]})


def _missing_name(labels: Iterable[str]) -> str:
    return MISSING if _is_new_name(MISSING, labels) else f"({MISSING})"


def _is_new_name(name: Any, labels: Iterable[str]) -> bool:
    return isinstance(name, str) and name != "" and name not in set(labels)


def columns_left_out(table: TableSchema) -> tuple[str, ...]:
    """Return the declared columns that no query can use, each with the reason; from the declaration alone.

    Columns that ``no_queries`` names are not among them.
    """
    return tuple(f"{each.name!r} ({reason})" for each, reason in _unusable(table))


def words_about_left_out(table: TableSchema) -> str:
    """Say which columns no query can use, and what to write in the schema; empty if all can be used."""
    if not (left_out := columns_left_out(table)):
        return ""
    names = ", ".join(json.dumps(name) for name in dict.fromkeys(each.column for each, _ in _unusable(table)))
    return (
        f"Queries cannot use {'; '.join(left_out)}. Add what is missing, or leave the columns out by the "
        f"line  no_queries = [{names}]  before the first section of the schema."
    )


def _unusable(table: TableSchema) -> list[tuple[Variable, str]]:
    """Variables that no query can use and no_queries does not name; queries have products of their own."""
    own = {each.name for name, column in table.columns.items() for each in column.variables(name)}
    reasons = [(each, _why_left_out(each)) for each in table.variables() if each.name in own]
    return [(each, why) for each, why in reasons if why and each.column not in table.no_queries]


def _why_left_out(variable: Variable) -> str:
    if variable.levels is not None:
        return "" if len(variable.levels) > 1 else "it has one level: add others"
    if variable.bins is None:
        return 'a number without bins: add  bins = 10  or a list of edges; to a date,  parts = ["year"]'
    if isinstance(variable.bins, int) and isinstance(variable.bounds, str):
        return "its bounds are to be released by a fit: declare bounds, or a list of edges as bins"
    return ""


def _attribute(content: Any) -> Column:
    keys = set(content) if isinstance(content, Mapping) else set()
    for kind, needed, optional in (
        (Attribute, "levels", ("other",)),
        (Binned, "edges", ("missing", "values")),
    ):
        if {"name", needed} <= keys <= {"name", needed, *optional, *WORDS}:
            if not isinstance(content[needed], list):
                raise WrongValue(f"{needed} of {content['name']!r} must be a list, got {content[needed]!r}.")
            given = [content.get(name) for name in optional]
            words = {name: content[name] for name in WORDS if name in content}
            column: Column = kind(content["name"], tuple(content[needed]), *given, **words)
            return column.of_version_0_1() if given[0] is None else column
    raise WrongValue(
        "A column needs a name and either levels (and perhaps other) or edges (and perhaps missing, values), "
        f"and perhaps {', '.join(WORDS)}; got {', '.join(sorted(map(str, keys))) or content!r}."
    )


def _require_name(name: Any) -> None:
    if not isinstance(name, str) or not name:
        raise WrongValue(f"The name of a column must be a text, got {name!r}.")
