"""Queries by names of attributes: regressions, counts, means and marginals.

A query is public and knows names only. With a schema it is compiled to the cells of a marginal
(`dpcvx.queries.compiled`). It can be written as JSON and read back; every error follows from the query and
the schema alone.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpcvx.data.model_formula import ModelFormula
from dpcvx.domains import Box
from dpcvx.errors import WrongType, WrongValue
from dpcvx.losses import Squared
from dpcvx.problem import Bounds, Problem
from dpcvx.queries.attribute_codes import (
    at_cells,
    code_numbers,
    code_range,
    count_cells,
    has_value,
    positions,
    satisfied,
    sizes_of,
)
from dpcvx.queries.compiled import CompiledMeans, CompiledQuery, CompiledRegression, Query
from dpcvx.queries.query_fields import (
    check_condition,
    check_name,
    check_names,
    describe,
    loss_from_json,
    set_from_json,
)
from dpcvx.queries.readings import Reading, table_with_margins
from dpcvx.queries.regression import Regression
from dpcvx.queries.schema import Column, Schema

__all__ = [
    "Count",
    "Marginal",
    "Mean",
    "Query",
    "Regression",
    "parse_query",
    "query_from_json",
    "require_query",
    "stored_query",
]

LONGEST_FORMULA = 2000


@dataclass(frozen=True)
class Count:
    """Number of records whose attributes have one of the given levels.

    Parameters
    ----------
    where : mapping of str to sequence of str
        Levels (or labels of bins) that count, by attribute; attributes left out may have any.
    """

    where: Mapping[str, Sequence[str]]

    def __post_init__(self) -> None:
        object.__setattr__(self, "where", check_condition(self.where, needed=True))

    def compile(self, schema: Schema, n: int) -> CompiledQuery:
        """Compile to the mean of n 1[where]."""
        attributes = positions(schema, tuple(self.where))
        inside = satisfied(schema, attributes, self.where)
        return CompiledMeans(attributes, sizes_of(schema, attributes), ("count",), n * inside[:, None], self)

    def reading(self, schema: Schema, n: int) -> Reading:
        """Return the number of people as it is."""
        return Reading(("count",), np.eye(1), np.zeros(1), 0.0, float(n))

    def to_json(self) -> dict[str, Any]:
        """Return the query as plain types."""
        return {"kind": "count", "where": {name: list(levels) for name, levels in self.where.items()}}


@dataclass(frozen=True)
class Mean:
    """Mean of a numeric or binary attribute over the records of a condition that have a value of it.

    argmin over the attribute's range of sum_i 1[where] (v_i - theta)^2 / 2; a binary attribute counts as the
    share of its second level.

    Parameters
    ----------
    of : str
        Attribute with numbers or with two levels.
    where : mapping of str to sequence of str
        Condition, as in `Count`; empty for all records.
    """

    of: str
    where: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        check_name("of", self.of)
        object.__setattr__(self, "where", check_condition(self.where, needed=False))

    def compile(self, schema: Schema, n: int) -> CompiledQuery:
        """Compile to a mean, or with a condition or missing values to a one-dimensional regression."""
        attribute = schema.attributes[positions(schema, (self.of,))[0]]
        values, low, high = code_numbers(attribute)
        present = has_value(attribute)
        if self._is_plain(attribute):
            units = low + (values + 1) / 2 * (high - low)
            attributes = positions(schema, (self.of,))
            return CompiledMeans(attributes, (attribute.size,), (f"mean {self.of}",), units[:, None], self)
        names = (self.of, *(name for name in self.where if name != self.of))
        attributes = positions(schema, names)
        inside = satisfied(schema, attributes, self.where) * at_cells(schema, attributes, 0, present)
        if not inside.any():
            raise WrongValue(
                f"The condition leaves nobody with a value of {self.of!r}: choose other levels of it, or ask "
                "for a count."
            )
        problem = Problem(Squared(), Box(-1.0, 1.0), bounds=Bounds(1.0, 1.0), d=1)
        return CompiledRegression(
            attributes,
            sizes_of(schema, attributes),
            (f"mean {self.of}",),
            problem,
            inside[:, None],
            inside * at_cells(schema, attributes, 0, values),
            n,
            description=self,
            units=(low, high),
        )

    def reading(self, schema: Schema, n: int) -> Reading:
        """Return the mean in the attribute's units."""
        low, high = code_range(schema[self.of])
        names = (f"mean {self.of}",)
        if self._is_plain(schema[self.of]):
            return Reading(names, np.eye(1), np.zeros(1), low, high)
        return Reading(names, (high - low) / 2 * np.eye(1), np.array([(low + high) / 2]), low, high)

    def _is_plain(self, attribute: Column) -> bool:
        """Whether this is a mean over all records, which has no excess loss."""
        return not self.where and attribute.size == attribute.known

    def to_json(self) -> dict[str, Any]:
        """Return the query as plain types."""
        where = {name: list(levels) for name, levels in self.where.items()}
        return {"kind": "mean", "of": self.of, "where": where}


@dataclass(frozen=True)
class Marginal:
    """Number of records in every cell of a few attributes, with margins; measured as shares.

    Parameters
    ----------
    attributes : sequence of str
        Their names.
    """

    attributes: Sequence[str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "attributes", check_names("attributes", self.attributes))
        if not self.attributes:
            raise WrongValue("A marginal needs at least one attribute.")

    def compile(self, schema: Schema, n: int) -> CompiledQuery:
        """Compile to the shares of all cells."""
        attributes = positions(schema, self.attributes, largest=LARGEST_TABLE)
        parts = [schema.attributes[index] for index in attributes]
        places = np.unravel_index(np.arange(count_cells(schema, attributes)), sizes_of(schema, attributes))
        names = tuple(
            ", ".join(f"{part.name}={part.labels[k]}" for part, k in zip(parts, cell, strict=True))
            for cell in zip(*places, strict=True)
        )
        return CompiledMeans(attributes, sizes_of(schema, attributes), names, np.eye(len(names)), self)

    def reading(self, schema: Schema, n: int) -> Reading:
        """Return the number of people in every cell, with margins."""
        labels = tuple(schema[name].labels for name in self.attributes)
        return table_with_margins(tuple(self.attributes), labels, n)

    def to_json(self) -> dict[str, Any]:
        """Return the query as plain types."""
        return {"kind": "marginal", "attributes": list(self.attributes)}


LARGEST_TABLE = 1024  # cells of a marginal that is answered as a table


def require_query(query: Query) -> Query:
    """Return a query unchanged; refuse anything else, such as its JSON form."""
    if not hasattr(query, "compile"):
        raise WrongType(
            f"query is a {type(query).__name__}; it must be a Regression, Count, Mean or Marginal. "
            "query_from_json makes one of a dict."
        )
    return query


def parse_query(text: str | bytes) -> Any:
    """Return the JSON value of a text; refuse a name that stands twice in an object, for a query's condition.

    Python's reader keeps the last one of them and drops the others silently.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if doubled := [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]:
            raise WrongValue(
                f"The query names {describe(doubled[0])} twice in one object: list all of its levels once."
            )
        return dict(pairs)

    return json.loads(text, object_pairs_hook=unique)


def query_from_json(content: Any) -> Query:
    """Read a query from its JSON form; anything else is a ValueError.

    A regression without an intercept is refused: its predictions would be 0 at the middle of all codes, and
    not where the attributes are 0 in the table's units, which is what the formula says.

    `content`: {"kind": "regression" | "count" | "mean" | "marginal", ...}.
    """
    query = stored_query(content)
    if isinstance(query, Regression) and not query.intercept:
        raise WrongValue(
            'A regression of a query has an intercept: leave "- 1" or "+ 0" out of the formula, and '
            '"intercept": false out of the query.'
        )
    return query


def stored_query(content: Any) -> Query:
    """Read the JSON form of a query that was asked before; anything else is a ValueError."""
    if not isinstance(content, Mapping) or not all(isinstance(name, str) for name in content):
        raise WrongValue('A query is a JSON object such as {"kind": "count", "where": {"sex": ["f"]}}.')
    fields = dict(content)
    kind = fields.pop("kind", None)
    if kind == "regression" and "formula" in fields:
        fields |= _of_formula(fields.pop("formula"), fields)
    if not isinstance(kind, str) or kind not in KINDS:
        raise WrongValue(f"kind must be one of {', '.join(KINDS)}.")
    known, needed = KINDS[kind]
    unknown, absent = sorted(set(fields) - set(known)), sorted(set(needed) - set(fields))
    if unknown or absent:
        raise WrongValue(f"A {kind} has the fields {', '.join(known)}; unknown {unknown}, missing {absent}.")
    if kind == "count":
        return Count(fields["where"])
    if kind == "mean":
        return Mean(fields["of"], fields.get("where", {}))
    if kind == "marginal":
        return Marginal(fields["attributes"])
    if "loss" in fields:
        fields["loss"] = loss_from_json(fields["loss"])
    if "set" in fields:
        fields["domain"] = set_from_json(fields.pop("set"))
    return Regression(**fields)


def _of_formula(text: Any, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a regression that its formula gives in place of them."""
    if doubled := sorted({"target", "features", "interactions"} & set(fields)):
        raise WrongValue(f"The formula gives {', '.join(doubled)} too: leave that out.")
    plain = isinstance(text, str) and text.isprintable() and not set(text) & set("^/%{")
    if not plain or len(text) > LONGEST_FORMULA:
        raise WrongValue(
            f"A query's formula lists attributes and products of two, such as 'worked ~ age + group + "
            f"age:group', in {LONGEST_FORMULA} characters at most."
        )
    formula = ModelFormula(text)
    target, features, interactions = formula.attributes()
    given: dict[str, Any] = {"target": target, "features": list(features)}
    if interactions:
        given["interactions"] = interactions
    return given if formula.intercept else {**given, "intercept": False}


KINDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "regression": (
        ("target", "features", "interactions", "loss", "set", "radius", "intercept", "l2", "where"),
        ("target", "features"),
    ),
    "count": (("where",), ("where",)),
    "mean": (("of", "where"), ("of",)),
    "marginal": (("attributes",), ("attributes",)),
}
