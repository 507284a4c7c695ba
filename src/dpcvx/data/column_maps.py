"""Column maps: from the cells of a numeric column to features, such as logarithms, ranks and ramps.

A map is a function of one cell and of public numbers, so that nobody's features depend on another person's
record. Its features never fall as the cell grows: clipping a cell to its bounds, and clipping its features to
those of the bounds, are then the same. A request is a map whose numbers a fit releases first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.errors import WrongType, WrongValue
from dpcvx.words import is_number, show

__all__ = [
    "COLUMN_MAPS",
    "IDENTITY",
    "Clip",
    "ColumnMap",
    "Identity",
    "MapRequest",
    "Maps",
    "PrivateQuantiles",
    "PrivateRamps",
    "QuantileMap",
    "Ramps",
    "SignedLog",
    "each_map",
    "map_fields",
    "parse_map",
    "read_map",
]

MOST_KNOTS = 1000
LOWEST_SHARE = 0.05  # of the cells below the first knot that is asked for, and above the last


@runtime_checkable
class ColumnMap(Protocol):
    """The features of one numeric column."""

    kind: ClassVar[str]  # its word in files

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Endings of the names of its features, behind that of the column."""
        ...

    def __call__(self, cells: Vector) -> Vector:
        """Return the features of cells (n,), shape (n, width), none of which falls as the cell grows.

        A cell that is no finite number has features NaN.
        """
        ...

    def missing(self, low: float, high: float) -> Vector:
        """Return the features of a missing cell of a column with these bounds."""
        ...

    def formula(self) -> str:
        """Return the features as a formula of the cell x, for people."""
        ...


# One map for each raw column, the identity for columns of levels; None where all are the identity.
Maps = tuple[ColumnMap, ...] | None


@runtime_checkable
class MapRequest(Protocol):
    """A map whose numbers are private quantiles, which a fit releases before it maps its records."""

    kind: ClassVar[str]

    @property
    def ranks(self) -> tuple[float, ...]:
        """Shares of the cells below the quantiles that are asked for, ascending, each between 0 and 1."""
        ...

    def placeholder(self, low: float, high: float) -> ColumnMap:
        """Return a map with as many features, of bounds alone: plans are made with it."""
        ...

    def released(self, quantiles: Vector, low: float, high: float) -> ColumnMap:
        """Return the map of released quantiles, one for each rank, ascending and within the bounds."""
        ...


@dataclass(frozen=True)
class Identity:
    """The number itself: x."""

    kind: ClassVar[str] = "identity"
    suffixes: ClassVar[tuple[str, ...]] = ("",)

    def __call__(self, cells: Vector) -> Vector:
        """Return the cells as one feature."""
        return _finite(cells)[:, None]

    def missing(self, low: float, high: float) -> Vector:
        """Return the middle of the bounds."""
        return np.array([low + (high - low) / 2])

    def formula(self) -> str:
        """Return the formula."""
        return "x"


IDENTITY = Identity()


@dataclass(frozen=True)
class Clip:
    """The number clipped to an interval inside its bounds: clip(x, low, high).

    Parameters
    ----------
    low, high : float
        Ends of the interval.
    """

    low: float
    high: float
    kind: ClassVar[str] = "clip"
    suffixes: ClassVar[tuple[str, ...]] = ("",)

    def __post_init__(self) -> None:
        if not (is_number(self.low) and is_number(self.high) and self.low <= self.high):
            raise WrongValue(f"low and high must ascend, got {show(self.low)} and {show(self.high)}.")

    def __call__(self, cells: Vector) -> Vector:
        """Return one feature."""
        return np.clip(_finite(cells), self.low, self.high)[:, None]

    def missing(self, low: float, high: float) -> Vector:
        """Return the middle of the interval."""
        return np.array([self.low + (self.high - self.low) / 2])

    def formula(self) -> str:
        """Return the formula."""
        return f"clip(x, {self.low!r}, {self.high!r})"


@dataclass(frozen=True)
class SignedLog:
    """Logarithm of a skewed column: sign(x) log(1 + |x| / scale).

    Parameters
    ----------
    scale : float
        Cells much smaller than it are mapped almost linearly, larger ones by their order of magnitude.
    """

    scale: float = 1.0
    kind: ClassVar[str] = "log"
    suffixes: ClassVar[tuple[str, ...]] = ("[log]",)

    def __post_init__(self) -> None:
        if not is_number(self.scale, 0, math.inf):
            raise WrongValue(f"scale must be a positive number, got {show(self.scale)}.")
        object.__setattr__(self, "scale", float(self.scale))

    def __call__(self, cells: Vector) -> Vector:
        """Return one feature."""
        x = _finite(cells)
        with np.errstate(over="ignore", invalid="ignore"):
            size = np.minimum(abs(x) / self.scale, np.finfo(float).max)
            logs: Vector = np.copysign(np.log1p(size), x)
        return logs[:, None]

    def missing(self, low: float, high: float) -> Vector:
        """Return the middle of the logarithms of the bounds."""
        ends = self(np.array([low, high]))
        middle: Vector = ends[0] + (ends[1] - ends[0]) / 2
        return middle

    def formula(self) -> str:
        """Return the formula."""
        return f"sign(x) log(1 + |x| / {self.scale!r})"


@dataclass(frozen=True)
class Ramps:
    """Ramps between neighbouring knots: feature j is clip((x - k_j) / (k_(j+1) - k_j), 0, 1).

    A linear model of them is piecewise linear in x, with a slope of its own between any two knots. Between
    equal knots a ramp is a step: 1 where x > k_j, otherwise 0.

    Parameters
    ----------
    knots : sequence of float
        Two or more, ascending.
    """

    knots: Any
    kind: ClassVar[str] = "ramps"

    def __post_init__(self) -> None:
        object.__setattr__(self, "knots", _ascending(self.knots, "knots"))

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Number of each ramp."""
        return tuple(f"[{place}]" for place in range(len(self.knots) - 1))

    def __call__(self, cells: Vector) -> Vector:
        """Return one feature between 0 and 1 for each ramp."""
        x, knots = _finite(cells)[:, None], np.array(self.knots)
        start, width = knots[:-1], np.diff(knots)
        with np.errstate(over="ignore", invalid="ignore"):
            ramps = np.clip((x - start) / np.where(width > 0, width, 1.0), 0.0, 1.0)
            steps = np.where(np.isnan(x), np.nan, x > start)
        features: Vector = np.where(width > 0, ramps, steps)
        return features

    def missing(self, low: float, high: float) -> Vector:
        """Return the features of the middle knot; of two, of the point between them."""
        last = len(self.knots) - 1
        below, above = self.knots[last // 2], self.knots[(last + 1) // 2]
        features: Vector = self(np.array([below + (above - below) / 2]))[0]
        return features

    def formula(self) -> str:
        """Return the formula."""
        return f"clip((x - k_j) / (k_(j+1) - k_j), 0, 1) with knots k = {_listed(self.knots)}"


@dataclass(frozen=True)
class QuantileMap:
    """Piecewise linear map through the points (knot, value), constant beyond the first and the last.

    With knots at quantiles and their ranks as values it is a column's approximate rank.

    Parameters
    ----------
    knots : sequence of float
        Two or more, ascending. At equal knots the map jumps.
    values : sequence of float, optional
        Value at each knot, ascending; by default evenly spaced from 0 to 1.
    """

    knots: Any
    values: Any = None
    kind: ClassVar[str] = "quantiles"
    suffixes: ClassVar[tuple[str, ...]] = ("[quantiles]",)

    def __post_init__(self) -> None:
        object.__setattr__(self, "knots", _ascending(self.knots, "knots"))
        values = np.linspace(0, 1, len(self.knots)).tolist() if self.values is None else self.values
        object.__setattr__(self, "values", _ascending(values, "values"))
        if len(self.values) != len(self.knots):
            raise WrongValue(f"{len(self.knots)} knots need as many values, got {len(self.values)}.")

    def __call__(self, cells: Vector) -> Vector:
        """Return one feature: the first value, and the part of each rise that the cell has passed."""
        total = np.full(len(cells), self.values[0])
        for ramp, rise in zip(Ramps(self.knots)(cells).T, np.diff(self.values), strict=True):
            total += rise * ramp
        return total[:, None]

    def missing(self, low: float, high: float) -> Vector:
        """Return the value at the middle knot, such as the median's; of two, their mean."""
        last = len(self.values) - 1
        below, above = self.values[last // 2], self.values[(last + 1) // 2]
        return np.array([below + (above - below) / 2])

    def formula(self) -> str:
        """Return the formula."""
        return (
            f"linear between the points at x = {_listed(self.knots)} with values {_listed(self.values)}, "
            "constant beyond them"
        )


@dataclass(frozen=True)
class PrivateRamps:
    """Request for `Ramps` between private quantiles.

    Parameters
    ----------
    pieces : int
        Number of ramps; their knots are at ranks evenly spaced from 5 % to 95 %.
    """

    pieces: int = 4
    kind: ClassVar[str] = "private_ramps"

    def __post_init__(self) -> None:
        _require_knots("pieces", self.pieces, 1)

    @property
    def ranks(self) -> tuple[float, ...]:
        """Evenly spaced shares."""
        return _even_ranks(self.pieces + 1)

    def placeholder(self, low: float, high: float) -> ColumnMap:
        """Return ramps of equal width between the bounds."""
        return Ramps(np.linspace(low, high, self.pieces + 1).tolist())

    def released(self, quantiles: Vector, low: float, high: float) -> ColumnMap:
        """Return ramps between the quantiles."""
        return Ramps(quantiles.tolist())


@dataclass(frozen=True)
class PrivateQuantiles:
    """Request for a `QuantileMap` of private quantiles: a column's approximate rank.

    Parameters
    ----------
    knots : int
        Number of quantiles, at ranks evenly spaced from 5 % to 95 %, which are the values of the map.
    """

    knots: int = 3
    kind: ClassVar[str] = "private_quantiles"

    def __post_init__(self) -> None:
        _require_knots("knots", self.knots, 2)

    @property
    def ranks(self) -> tuple[float, ...]:
        """Evenly spaced shares."""
        return _even_ranks(self.knots)

    def placeholder(self, low: float, high: float) -> ColumnMap:
        """Return the map that is linear between the bounds."""
        return QuantileMap(np.linspace(low, high, self.knots).tolist(), self.ranks)

    def released(self, quantiles: Vector, low: float, high: float) -> ColumnMap:
        """Return the map from quantiles to their ranks."""
        return QuantileMap(quantiles.tolist(), self.ranks)


COLUMN_MAPS: dict[str, type[Any]] = {
    each.kind: each
    for each in (Identity, Clip, SignedLog, QuantileMap, Ramps, PrivateRamps, PrivateQuantiles)
}


def each_map(maps: Maps, columns: int) -> tuple[ColumnMap, ...]:
    """Return the map of each of some columns."""
    return (IDENTITY,) * columns if maps is None else maps


def read_map(value: Any, what: str) -> Any:
    """Return a declared map or request: an object, the name of a kind, or its fields in a mapping.

    `what`: name of the declaration, for messages.
    """
    if isinstance(value, ColumnMap | MapRequest) and not isinstance(value, type):
        return value
    content = {"kind": value} if isinstance(value, str) else value
    if not isinstance(content, Mapping) or content.get("kind") not in COLUMN_MAPS:
        known = ", ".join(map(repr, COLUMN_MAPS))
        raise WrongValue(
            f"{what} must be a map such as SignedLog(), or one of {known}, or a mapping with kind and its "
            f"fields; got {show(value)}."
        )
    kind = COLUMN_MAPS[content["kind"]]
    given = {name: entry for name, entry in content.items() if name != "kind"}
    try:
        return kind(**given)
    except TypeError:
        known = ", ".join(field.name for field in fields(kind)) or "no entry"
        raise WrongType(f"{what} of kind {kind.kind!r} takes {known}; got {', '.join(given)}.") from None
    except WrongValue as error:
        raise WrongValue(f"{what}: {error}") from None


def parse_map(text: str, what: str) -> Any:
    """Return a map or request from one word, such as log, log:100, ramps:20,40,60 or private_ramps:5.

    `what`: name of the option, for messages.
    """
    kind, _, rest = text.strip().partition(":")
    try:
        numbers = [float(each) for each in rest.split(",")] if rest else []
    except ValueError:
        raise WrongValue(f"{what} must be a map and its numbers, such as ramps:20,40,60.") from None
    whole: list[Any] = [int(each) if each == int(each) else each for each in numbers if math.isfinite(each)]
    if kind in (Ramps.kind, QuantileMap.kind) and whole:
        return read_map({"kind": kind, "knots": whole}, what)
    names = [field.name for field in fields(COLUMN_MAPS[kind])] if kind in COLUMN_MAPS else []
    if len(whole) > len(names):
        raise WrongValue(f"{what} has {len(whole)} numbers, and {kind} takes {len(names)}.")
    return read_map({"kind": kind, **dict(zip(names, whole, strict=False))}, what)


def map_fields(column_map: Any) -> Any:
    """Return a map as `read_map` reads it, in plain numbers, texts and lists."""
    stated = {
        field.name: getattr(column_map, field.name)
        for field in fields(column_map)
        if getattr(column_map, field.name) != field.default
    }
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in stated.items()}
    return {"kind": column_map.kind, **plain} if plain else column_map.kind


def _finite(cells: Vector) -> Vector:
    """Cells, NaN in the place of infinite ones."""
    return np.ascontiguousarray(np.where(np.isfinite(cells), cells, np.nan))


def _ascending(numbers: Any, what: str) -> tuple[float, ...]:
    try:
        found = tuple(numbers)
    except TypeError:
        found = ()
    if (
        isinstance(numbers, str)
        or not 2 <= len(found) <= MOST_KNOTS
        or not all(is_number(each) for each in found)
        or not np.isfinite(np.diff(found)).all()
        or (np.diff(found) < 0).any()
    ):
        raise WrongValue(
            f"{what} must be two to {MOST_KNOTS} numbers that do not descend, got {show(numbers)}."
        )
    return tuple(map(float, found))


def _even_ranks(knots: int) -> tuple[float, ...]:
    return tuple(np.linspace(LOWEST_SHARE, 1 - LOWEST_SHARE, knots).tolist())


def _require_knots(name: str, value: Any, least: int) -> None:
    if type(value) is not int or not least <= value < MOST_KNOTS:
        raise WrongValue(f"{name} must be an integer from {least} to {MOST_KNOTS - 1}, got {show(value)}.")


def _listed(numbers: tuple[float, ...]) -> str:
    return f"({', '.join(map(repr, numbers))})"
