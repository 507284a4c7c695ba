"""Codes of attributes: their columns in a regression, and their values at the cells of a marginal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.errors import WrongValue
from dpcvx.queries.query_fields import MOST_LISTED, describe, list_levels
from dpcvx.queries.schema import Binned, Column, Schema
from dpcvx.words import nearest

__all__ = [
    "LARGEST_MARGINAL",
    "allowed_cells",
    "at_cells",
    "code_columns",
    "code_numbers",
    "code_range",
    "count_cells",
    "has_mean",
    "has_value",
    "missing_cells",
    "positions",
    "satisfied",
    "sizes_of",
]

LONGEST_NAME = 200  # letters of an unknown name that are compared with those of the schema
LARGEST_MARGINAL = 2**16  # cells of the attributes that one query touches


def positions(schema: Schema, names: Sequence[str], largest: float = LARGEST_MARGINAL) -> tuple[int, ...]:
    """Return positions of attributes; refuse unknown names and marginals that are too large."""
    known = [attribute.name for attribute in schema.attributes]
    for name in names:
        if name not in known:
            meant = nearest(name[:LONGEST_NAME], known)
            raise WrongValue(f"The schema has no attribute {describe(name)}{meant}; it has {_listed(known)}.")
    indices = tuple(known.index(name) for name in names)
    cells = count_cells(schema, indices)
    if cells > largest:
        raise WrongValue(
            f"These attributes have {cells} cells together, more than {largest}: ask about fewer of them, or "
            "declare coarser ones."
        )
    return indices


def _listed(names: Sequence[str]) -> str:
    """Return names of attributes as a message lists them, and how many more there are."""
    more = len(names) - MOST_LISTED
    return ", ".join(names[:MOST_LISTED]) + (f" and {more} more" if more > 0 else "")


def sizes_of(schema: Schema, attributes: Sequence[int]) -> tuple[int, ...]:
    """Return the number of cells of each attribute."""
    return tuple(schema.attributes[index].size for index in attributes)


def count_cells(schema: Schema, attributes: Sequence[int]) -> int:
    """Return the number of cells of some attributes together."""
    return math.prod(sizes_of(schema, attributes))


def at_cells(schema: Schema, attributes: Sequence[int], place: int, code: Vector) -> Vector:
    """Return the code of one attribute at every cell of the marginal, row-major."""
    sizes = sizes_of(schema, attributes)
    shape = [1] * len(sizes)
    shape[place] = sizes[place]
    return np.ascontiguousarray(
        np.broadcast_to(np.asarray(code, dtype=np.float64).reshape(shape), sizes)
    ).ravel()


def code_columns(attribute: Column, cells: Sequence[int] | None = None) -> list[tuple[str, Vector]]:
    """Return the columns of a feature: numbers or signs, or indicators of more than two levels.

    A cell without a value is 0 in all of them and 1 in a column of its own. A single level or bin beside it
    has no column: it is the baseline.

    `cells`: those that a condition allows, in order; all by default.
    """
    cells = range(attribute.size) if cells is None else cells
    known, one = [k for k in cells if k < attribute.known], np.eye(attribute.size)
    names = [f"{attribute.name}={label}" for label in attribute.labels]
    missing = [(names[k], one[k]) for k in cells if k >= attribute.known]
    if len(known) < 2:
        return missing
    if isinstance(attribute, Binned):
        return [(attribute.name, attribute.scaled), *missing]
    if len(known) == 2:
        return [(names[known[1]], one[known[1]] - one[known[0]]), *missing]
    return [*((names[k], one[k]) for k in known), *missing]


def allowed_cells(attribute: Column, where: Mapping[str, Sequence[str]]) -> list[int]:
    """Return the cells of an attribute that a condition allows."""
    allowed = where.get(attribute.name)
    return [k for k, label in enumerate(attribute.labels) if allowed is None or label in allowed]


def missing_cells(attribute: Column) -> range:
    """Return the cells of an attribute that hold missing values."""
    return range(attribute.known, attribute.size)


def code_numbers(attribute: Column) -> tuple[Vector, float, float]:
    """Return codes in [-1, 1], and the values of -1 and 1 in the units of the table."""
    if not has_mean(attribute):
        raise WrongValue(
            f"A mean needs numbers or two levels; {attribute.name!r} has {attribute.known} levels that are "
            "no numbers. Ask for a table of it, or for the number of people at some of its levels."
        )
    return attribute.scaled, *code_range(attribute)


def has_mean(attribute: Column) -> bool:
    """Whether an attribute has numbers, or two levels, of which the second has a share."""
    return isinstance(attribute, Binned) or attribute.known == 2 or attribute.numbers is not None


def code_range(attribute: Column) -> tuple[float, float]:
    """Return the values that the codes -1 and 1 stand for: of two levels the shares 0 and 1 of the second.

    `attribute`: one that `has_mean`.
    """
    if isinstance(attribute, Binned):
        return attribute.edges[0], attribute.edges[-1]
    if attribute.numbers is None:
        return 0.0, 1.0
    return float(attribute.numbers.min()), float(attribute.numbers.max())


def has_value(attribute: Column) -> Vector:
    """Return 1 for each cell of an attribute that has a value, 0 for the cell of missing values."""
    return (np.arange(attribute.size) < attribute.known).astype(np.float64)


def satisfied(schema: Schema, attributes: Sequence[int], where: Mapping[str, Sequence[str]]) -> Vector:
    """Return 1 at the cells of the marginal where the condition holds, else 0."""
    inside = np.ones(count_cells(schema, attributes))
    for place, index in enumerate(attributes):
        attribute = schema.attributes[index]
        if attribute.name in where:
            labels = [str(label) for label in attribute.labels]
            unknown = [level for level in where[attribute.name] if level not in labels]
            if unknown:
                raise WrongValue(
                    f"{attribute.name!r} has no level {describe(unknown[0])}; it has {list_levels(labels)}."
                )
            code = np.array([float(label in where[attribute.name]) for label in labels])
            inside *= at_cells(schema, attributes, place, code)
    return inside
