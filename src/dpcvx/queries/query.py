"""Queries by names of attributes: regressions, counts, means and marginals.

A query is public and knows names only. With a schema it is compiled to the cells of a marginal
(`dpcvx.queries.compiled`). It can be written as JSON and read back; every error follows from the query and
the schema alone.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.data.model_formula import ModelFormula
from dpcvx.domains import NAMED_BALLS, Box, Domain
from dpcvx.errors import WrongType, WrongValue
from dpcvx.losses import Loss, Squared
from dpcvx.problem import Bounds, Problem
from dpcvx.queries.attribute_codes import (
    LARGEST_MARGINAL,
    at_cells,
    code_columns,
    code_numbers,
    code_range,
    count_cells,
    has_value,
    missing_cells,
    positions,
    satisfied,
    sizes_of,
)
from dpcvx.queries.compiled import CORNER, CompiledMeans, CompiledQuery, CompiledRegression, Query
from dpcvx.queries.query_fields import (
    LARGEST_RADIUS,
    QUERY_LOSSES,
    check_condition,
    check_name,
    check_names,
    check_number,
    find_loss,
    loss_from_json,
    loss_to_json,
    set_from_json,
    set_to_json,
)
from dpcvx.queries.readings import INTERCEPT, Reading, table_with_margins
from dpcvx.queries.schema import Binned, Column, Schema
from dpcvx.queries.universe import LARGEST_UNIVERSE
from dpcvx.queries.wide_regression import WideRegression

__all__ = ["Count", "Marginal", "Mean", "Query", "Regression", "query_from_json", "require_query"]

LOCAL_CELLS = 2**12  # likewise of a regression, where the universe has no histogram
MOST_COEFFICIENTS = 256  # of a regression on more cells than these
LARGEST_DESIGN = 2**22  # cells times coefficients of a regression: 32 MiB, and the cost of one of its steps
LONGEST_FORMULA = 2000


@dataclass(frozen=True)
class Regression:
    """Linear model of one attribute on others, fitted by convex minimisation.

    argmin over C of (1/n) sum_i phi(<x_i, theta>, y_i) + (l2/2) ||theta||^2

    Parameters
    ----------
    target : str
        Attribute to explain. Losses of labels need an attribute with two levels; the second one is y = 1.
        Records in a cell without a value are left out.
    features : sequence of str
        Attributes to explain it by: two levels become -1 and 1, more become one column for each, numbers
        become the value of their bin, scaled to [-1, 1]; a cell without a value has a column of its own.
        Answers are in the table's units and against the first level.
    loss : str or Loss
        "logistic", "squared", "huber", "smooth_hinge", "quantile", or one of these losses with parameters.
    domain : str or Domain
        "l2" or "l1", a ball of the given radius, or a set whose projection is a closed form: Box, L1Ball,
        L2Ball, LinfBall, Simplex.
    radius : float
        Size of the ball, in scaled coordinates, the intercept's included.
    intercept : bool
        Whether a column of ones is added.
    l2 : float
        Ridge on the mean objective.
    where : mapping of str to sequence of str
        Condition, as in `Count`; other records are left out. The objective is still a mean over all records.
    """

    target: str
    features: Sequence[str]
    loss: str | Loss = "logistic"
    domain: str | Domain = "l2"
    radius: float = 3.0
    intercept: bool = True
    l2: float = 0.0
    where: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        check_name("target", self.target)
        object.__setattr__(self, "where", check_condition(self.where, needed=False))
        object.__setattr__(self, "features", check_names("features", self.features))
        if isinstance(self.loss, str) and self.loss not in QUERY_LOSSES:
            raise WrongValue(f"loss is {self.loss!r}; use one of {', '.join(QUERY_LOSSES)}, or a Loss.")
        if not isinstance(self.loss, str) and (not self.loss.convex or self.loss.joint):
            raise WrongValue(f"A query needs a convex loss of one score; {self.loss.name} is not.")
        bend = 0.0 if isinstance(self.loss, str) else self.loss.smoothness(0.0)
        if 1 / CORNER < bend < math.inf:  # one that is not smooth is rounded
            raise WrongValue(
                f"{self.loss!r} bends over a width of {1 / bend:g}; a corner sharper than {CORNER:g} takes "
                "for ever to minimise."
            )
        if isinstance(self.domain, str) and self.domain not in NAMED_BALLS:
            raise WrongValue(f"domain is {self.domain!r}; use one of {', '.join(NAMED_BALLS)}, or a Domain.")
        check_number("radius", self.radius, low=0.0, high=LARGEST_RADIUS, open_low=True)
        check_number("l2", self.l2, low=0.0, high=LARGEST_RADIUS)
        if not isinstance(self.intercept, bool):
            raise WrongValue(f"intercept is {self.intercept!r}; it must be true or false.")
        if self.target in self.features:
            raise WrongValue(f"{self.target!r} is the target and a feature; leave it out of the features.")
        if not self.features and not self.intercept:
            raise WrongValue("A regression without features needs an intercept.")

    def compile(self, schema: Schema, n: int) -> CompiledQuery:
        """Compile to a convex query on the marginal of target and features."""
        variables = (self.target, *self.features)
        conditions = tuple(name for name in self.where if name not in variables)
        attributes = positions(schema, (*variables, *conditions), largest=math.inf)
        loss = find_loss(self.loss)
        target = schema.attributes[attributes[0]]
        if loss.target == "labels" and target.known != 2:
            raise WrongValue(
                f"{loss.name} needs a target with two levels; {target.name!r} has {target.known} cells. "
                'Use loss="squared", "huber" or "quantile", or declare a binary attribute.'
            )
        coded = [code_columns(schema.attributes[i]) for i in attributes[1 : len(variables)]]
        cells = count_cells(schema, attributes)
        size = cells * (self.intercept + sum(map(len, coded)))
        listed = count_cells(schema, range(len(schema.attributes))) <= LARGEST_UNIVERSE
        if size > LARGEST_DESIGN or cells > (LARGEST_MARGINAL if listed else LOCAL_CELLS):
            if self.where:
                raise WrongValue(
                    f"These attributes have {cells} cells together, too many for a regression with a "
                    "condition: ask about fewer of them, or leave the condition out."
                )
            return self._compile_wide(schema, n, attributes, coded)
        names = [INTERCEPT] if self.intercept else []
        columns: list[Vector] = [np.ones(cells)] if self.intercept else []
        for place, part in enumerate(coded, start=1):
            for name, code in part:
                names.append(name)
                columns.append(at_cells(schema, attributes, place, code))
        # A record without a target is left out: its loss is the same for all coefficients (PRIVACY_MATH §17).
        present = at_cells(schema, attributes, 0, has_value(target))
        present = present * satisfied(schema, attributes, self.where)
        X = np.stack(columns, axis=1) * present[:, None]
        domain = NAMED_BALLS[self.domain](self.radius) if isinstance(self.domain, str) else self.domain
        bounds = Bounds(1.0, float(np.sqrt((X**2).sum(axis=1).max())))
        problem = Problem(loss, domain, bounds=bounds, d=X.shape[1], l2=self.l2)
        values = np.asarray(target.scaled, dtype=np.float64)
        if loss.target == "labels":
            values = np.where(has_value(target) == 1, values, 1.0)  # a label, of a row that is 0
        y = at_cells(schema, attributes, 0, values)
        compiled = CompiledRegression(
            attributes, sizes_of(schema, attributes), tuple(names), problem, X, y, n, description=self
        )
        self.to_json()  # every answer repeats its query: one that cannot be written must not be measured
        return compiled

    def reading(self, schema: Schema, n: int) -> Reading:
        """Return the coefficients of levels against the first one, and of numbers for each of their units.

        Log odds stay as they are; other targets are in their own units. The intercept is the prediction for
        somebody with the first level of all attributes and with numbers that are 0.
        """
        unit, middle = 1.0, 0.0
        loss = find_loss(self.loss)
        if loss.target != "labels":
            low, high = code_range(schema[self.target])
            unit, middle = (high - low) / 2, (low + high) / 2
        width = self.intercept + sum(len(code_columns(schema[name])) for name in self.features)
        base, names, rows = np.zeros(width), [INTERCEPT], []
        place = int(self.intercept)
        base[:place] = 1.0
        for name in self.features:
            attribute = schema[name]
            codes = np.stack([code for _, code in code_columns(attribute)], axis=1)
            own = np.zeros((attribute.size, width))
            own[:, place : place + codes.shape[1]] = codes
            place += codes.shape[1]
            if isinstance(attribute, Binned):
                low, high = attribute.edges[0], attribute.edges[-1]
                slope = np.zeros(width)
                slope[place - codes.shape[1]] = 2 / (high - low)
                base -= (low + high) / 2 * slope
                names.append(name)
                rows.append(slope)
                for k in missing_cells(attribute):  # coded as the middle of the range, and as missing
                    names.append(f"{name}={attribute.labels[k]} (against {(low + high) / 2:g})")
                    rows.append(own[k])
                continue
            base += own[0]
            names.append(f"{name}={attribute.labels[0]} (baseline)")
            names += [f"{name}={label}" for label in attribute.labels[1:]]
            rows += [level - own[0] for level in own]
        offset = np.append(middle, np.zeros(len(rows)))
        return Reading(tuple(names), unit * np.stack([base, *rows]), offset)

    def _compile_wide(
        self,
        schema: Schema,
        n: int,
        attributes: tuple[int, ...],
        coded: Sequence[Sequence[tuple[str, Vector]]],
    ) -> WideRegression:
        """Compile to a query on released pairs, which lists no cells."""
        names = [*([INTERCEPT] if self.intercept else []), *(name for part in coded for name, _ in part)]
        if len(names) > MOST_COEFFICIENTS:
            raise WrongValue(
                f"This regression has {len(names)} coefficients, more than {MOST_COEFFICIENTS}: ask about "
                "fewer attributes, or declare coarser ones."
            )
        loss = find_loss(self.loss)
        columns = tuple(np.stack([code for _, code in part], axis=1) for part in coded)
        longest = math.sqrt(self.intercept + sum(float((f**2).sum(axis=1).max()) for f in columns))
        domain = NAMED_BALLS[self.domain](self.radius) if isinstance(self.domain, str) else self.domain
        problem = Problem(loss, domain, bounds=Bounds(1.0, longest), d=len(names), l2=self.l2)
        target = schema.attributes[attributes[0]]
        compiled = WideRegression(
            attributes,
            sizes_of(schema, attributes),
            tuple(names),
            problem,
            columns,
            np.asarray(target.scaled, dtype=np.float64),
            has_value(target),
            n,
            description=self,
        )
        self.to_json()
        return compiled

    def to_json(self) -> dict[str, Any]:
        """Return the query as plain types."""
        return {
            "kind": "regression",
            "loss": loss_to_json(self.loss),
            "target": self.target,
            "features": list(self.features),
            "set": set_to_json(self.domain),
            "radius": self.radius,
            "intercept": self.intercept,
            "l2": self.l2,
            **({"where": {name: list(levels) for name, levels in self.where.items()}} if self.where else {}),
        }


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


def query_from_json(content: Any) -> Query:
    """Read a query from its JSON form; anything else is a ValueError.

    `content`: {"kind": "regression" | "count" | "mean" | "marginal", ...}.
    """
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
    if doubled := sorted({"target", "features"} & set(fields)):
        raise WrongValue(f"The formula gives {', '.join(doubled)} too: leave that out.")
    plain = isinstance(text, str) and text.isprintable() and not set(text) & set("*^/%{:")
    if not plain or len(text) > LONGEST_FORMULA:
        raise WrongValue(  # before it is parsed: a power or product of sums can have millions of terms
            f"A query's formula lists attributes, such as 'worked ~ age + group', in {LONGEST_FORMULA} "
            "characters at most."
        )
    formula = ModelFormula(text)
    target, features = formula.attributes()
    given = {"target": target, "features": list(features)}
    return given if formula.intercept else {**given, "intercept": False}


KINDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "regression": (
        ("target", "features", "loss", "set", "radius", "intercept", "l2", "where"),
        ("target", "features"),
    ),
    "count": (("where",), ("where",)),
    "mean": (("of", "where"), ("of",)),
    "marginal": (("attributes",), ("attributes",)),
}
