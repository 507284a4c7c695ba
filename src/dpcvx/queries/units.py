"""Units of a table of records: rows, or persons with several rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dpcvx.errors import Incompatible, WrongValue
from dpcvx.queries.universe import read_ids

if TYPE_CHECKING:
    from dpcvx.accounting import Budget
    from dpcvx.data.units import Units
    from dpcvx.queries.schema import Schema

__all__ = ["find_units", "number_of_rows", "number_of_units"]


def number_of_rows(table: Any) -> int:
    """Return how many records a table has, without reading them."""
    if isinstance(table, Mapping):
        return max((len(column) for column in table.values()), default=0)
    shape = getattr(table, "shape", None)
    return int(shape[0]) if shape else len(table)


def find_units(
    schema: Schema, table: Any, budget: Budget, *, person: str | None, groups: Any, persons: int | None
) -> Units | None:
    """Return the persons of a table; None where every row is a unit of its own.

    `person`, `groups`, `persons`: as in `QueryEngine`.
    """
    from dpcvx.data.units import persons as persons_of

    if person is not None and groups is not None:
        raise Incompatible("groups and person both give the ids of persons: give one of them.")
    if person is None and groups is None:
        if persons is not None or budget.unit == "person":
            raise Incompatible(
                "To protect persons an engine needs the ids of persons: give person, the name of their "
                "column, or groups=ids."
            )
        return None
    if person in schema.names:
        raise WrongValue(
            f"{person!r} holds the ids of persons and is an attribute of the schema: leave it out there."
        )
    return persons_of(groups if person is None else read_ids(table, person), declared=persons)


def number_of_units(table: Any, person: str | None, persons: int | None) -> int:
    """Return the public number of units of a table: of rows, or of persons where a column has their ids.

    `person`, `persons`: as in `QueryEngine`.
    """
    from dpcvx.data.units import persons as persons_of

    if person is None:
        return number_of_rows(table)
    return persons_of(read_ids(table, person), declared=persons).n
