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
from dpcvx.domains import NAMED_BALLS, SETS, Box, Domain, GroupBall
from dpcvx.errors import WrongType, WrongValue
from dpcvx.losses import LOSSES, Huber, Logistic, Loss, Quantile, Squared
from dpcvx.problem import Bounds, Problem
from dpcvx.queries.compiled import CORNER, CompiledMeans, CompiledQuery, CompiledRegression, Query
from dpcvx.queries.readings import INTERCEPT, Reading, table_with_margins
from dpcvx.queries.schema import Binned, Column, Schema
from dpcvx.queries.universe import LARGEST_UNIVERSE
from dpcvx.queries.wide_regression import WideRegression
from dpcvx.vouched import is_vouched

__all__ = ["Count", "Marginal", "Mean", "Query", "Regression", "query_from_json", "require_query"]

LARGEST_RADIUS = 1000.0
LARGEST_MARGINAL = 2**16  # cells of the attributes that one query touches
LOCAL_CELLS = 2**12  # likewise of a regression, where the universe has no histogram
MOST_COEFFICIENTS = 256  # of a regression on more cells than these
LARGEST_DESIGN = 2**22  # cells times coefficients of a regression: 32 MiB, and the cost of one of its steps
# Losses by name with their parameters for targets scaled to [-1, 1]; the default one comes first.
_WITH_PARAMETERS: tuple[Loss, ...] = (Huber(0.5), Quantile(0.5))
_OTHERS = tuple(
    kind() for kind in LOSSES if is_vouched(kind, "queries") and kind not in (Huber, Logistic, Quantile)
)
QUERY_LOSSES: dict[str, Loss] = {loss.name: loss for loss in (Logistic(), *_OTHERS, *_WITH_PARAMETERS)}
# Sets with a JSON form; groups of coordinates have none.
JSON_SETS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in SETS if is_vouched(kind, "queries") and kind is not GroupBall
}

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
        _check_name("target", self.target)
        object.__setattr__(self, "where", _condition(self.where, needed=False))
        object.__setattr__(self, "features", _names("features", self.features))
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
        _check_number("radius", self.radius, low=0.0, high=LARGEST_RADIUS, open_low=True)
        _check_number("l2", self.l2, low=0.0, high=LARGEST_RADIUS)
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
        attributes = _indices(schema, (*variables, *conditions), largest=math.inf)
        loss = QUERY_LOSSES[self.loss] if isinstance(self.loss, str) else self.loss
        target = schema.attributes[attributes[0]]
        if loss.target == "labels" and target.known != 2:
            raise WrongValue(
                f"{loss.name} needs a target with two levels; {target.name!r} has {target.known} cells. "
                "Use squared, huber or quantile, or declare a binary attribute."
            )
        coded = [
            (place, _columns(schema.attributes[i]))
            for place, i in enumerate(attributes[1 : len(variables)], start=1)
        ]
        size = _cells(schema, attributes) * (self.intercept + sum(len(part) for _, part in coded))
        listed = _cells(schema, range(len(schema.attributes))) <= LARGEST_UNIVERSE
        if size > LARGEST_DESIGN or _cells(schema, attributes) > (
            LARGEST_MARGINAL if listed else LOCAL_CELLS
        ):
            if self.where:
                raise WrongValue(
                    f"These attributes have {_cells(schema, attributes)} cells together, too many for a "
                    "regression with a condition: ask about fewer of them, or leave the condition out."
                )
            return self._compile_wide(schema, n, attributes, [part for _, part in coded])
        names: list[str] = []
        columns: list[Vector] = []
        if self.intercept:
            names.append(INTERCEPT)
            columns.append(np.ones(_cells(schema, attributes)))
        for place, part in coded:
            for name, code in part:
                names.append(name)
                columns.append(_spread(schema, attributes, place, code))
        # A record without a target is left out: its loss is the same for all coefficients (PRIVACY_MATH §17).
        present = _spread(schema, attributes, 0, _has_value(target))
        present = present * _satisfied(schema, attributes, self.where)
        X = np.stack(columns, axis=1) * present[:, None]
        domain = NAMED_BALLS[self.domain](self.radius) if isinstance(self.domain, str) else self.domain
        bounds = Bounds(1.0, float(np.sqrt((X**2).sum(axis=1).max())))
        problem = Problem(loss, domain, bounds=bounds, d=X.shape[1], l2=self.l2)
        values = np.asarray(target.scaled, dtype=np.float64)
        if loss.target == "labels":
            values = np.where(_has_value(target) == 1, values, 1.0)  # a label, of a row that is 0
        y = _spread(schema, attributes, 0, values)
        compiled = CompiledRegression(
            attributes, _sizes(schema, attributes), tuple(names), problem, X, y, n, description=self
        )
        self.to_json()  # every answer repeats its query: one that cannot be written must not be measured
        return compiled

    def reading(self, schema: Schema, n: int) -> Reading:
        """Return the coefficients of levels against the first one, and of numbers for each of their units.

        Log odds stay as they are; other targets are in their own units. The intercept is the prediction for
        somebody with the first level of all attributes and with numbers that are 0.
        """
        unit, middle = 1.0, 0.0
        loss = QUERY_LOSSES[self.loss] if isinstance(self.loss, str) else self.loss
        if loss.target != "labels":
            low, high = _range(schema[self.target])
            unit, middle = (high - low) / 2, (low + high) / 2
        width = self.intercept + sum(len(_columns(schema[name])) for name in self.features)
        base, names, rows = np.zeros(width), [INTERCEPT], []
        place = int(self.intercept)
        base[:place] = 1.0
        for name in self.features:
            attribute = schema[name]
            codes = np.stack([code for _, code in _columns(attribute)], axis=1)
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
                for k in _missing_cells(attribute):  # coded as the middle of the range, and as missing
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
        loss = QUERY_LOSSES[self.loss] if isinstance(self.loss, str) else self.loss
        columns = tuple(np.stack([code for _, code in part], axis=1) for part in coded)
        longest = math.sqrt(self.intercept + sum(float((f**2).sum(axis=1).max()) for f in columns))
        domain = NAMED_BALLS[self.domain](self.radius) if isinstance(self.domain, str) else self.domain
        problem = Problem(loss, domain, bounds=Bounds(1.0, longest), d=len(names), l2=self.l2)
        target = schema.attributes[attributes[0]]
        compiled = WideRegression(
            attributes,
            _sizes(schema, attributes),
            tuple(names),
            problem,
            columns,
            np.asarray(target.scaled, dtype=np.float64),
            _has_value(target),
            n,
            description=self,
        )
        self.to_json()
        return compiled

    def to_json(self) -> dict[str, Any]:
        """Return the query as plain types."""
        return {
            "kind": "regression",
            "loss": _loss_to_json(self.loss),
            "target": self.target,
            "features": list(self.features),
            "set": _set_to_json(self.domain),
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
        object.__setattr__(self, "where", _condition(self.where, needed=True))

    def compile(self, schema: Schema, n: int) -> CompiledQuery:
        """Compile to the mean of n 1[where]."""
        attributes = _indices(schema, tuple(self.where))
        inside = _satisfied(schema, attributes, self.where)
        return CompiledMeans(attributes, _sizes(schema, attributes), ("count",), n * inside[:, None], self)

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
        _check_name("of", self.of)
        object.__setattr__(self, "where", _condition(self.where, needed=False))

    def compile(self, schema: Schema, n: int) -> CompiledQuery:
        """Compile to a mean, or with a condition or missing values to a one-dimensional regression."""
        attribute = schema.attributes[_indices(schema, (self.of,))[0]]
        values, low, high = _numbers(attribute)
        present = _has_value(attribute)
        if self._is_plain(attribute):
            units = low + (values + 1) / 2 * (high - low)
            attributes = _indices(schema, (self.of,))
            return CompiledMeans(attributes, (attribute.size,), (f"mean {self.of}",), units[:, None], self)
        names = (self.of, *(name for name in self.where if name != self.of))
        attributes = _indices(schema, names)
        inside = _satisfied(schema, attributes, self.where) * _spread(schema, attributes, 0, present)
        problem = Problem(Squared(), Box(-1.0, 1.0), bounds=Bounds(1.0, 1.0), d=1)
        return CompiledRegression(
            attributes,
            _sizes(schema, attributes),
            (f"mean {self.of}",),
            problem,
            inside[:, None],
            inside * _spread(schema, attributes, 0, values),
            n,
            description=self,
            units=(low, high),
        )

    def reading(self, schema: Schema, n: int) -> Reading:
        """Return the mean in the attribute's units."""
        low, high = _range(schema[self.of])
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
        object.__setattr__(self, "attributes", _names("attributes", self.attributes))
        if not self.attributes:
            raise WrongValue("A marginal needs at least one attribute.")

    def compile(self, schema: Schema, n: int) -> CompiledQuery:
        """Compile to the shares of all cells."""
        attributes = _indices(schema, self.attributes, largest=LARGEST_TABLE)
        parts = [schema.attributes[index] for index in attributes]
        places = np.unravel_index(np.arange(_cells(schema, attributes)), _sizes(schema, attributes))
        names = tuple(
            ", ".join(f"{part.name}={part.labels[k]}" for part, k in zip(parts, cell, strict=True))
            for cell in zip(*places, strict=True)
        )
        return CompiledMeans(attributes, _sizes(schema, attributes), names, np.eye(len(names)), self)

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
        fields["loss"] = _loss_from_json(fields["loss"])
    if "set" in fields:
        fields["domain"] = _set_from_json(fields.pop("set"))
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


def _loss_to_json(loss: str | Loss) -> Any:
    if isinstance(loss, str):
        return loss
    if loss.name not in QUERY_LOSSES or type(loss) is not type(QUERY_LOSSES[loss.name]):
        raise WrongValue(f"{type(loss).__name__} has no JSON form; use one of {', '.join(QUERY_LOSSES)}.")
    parameters = {name: getattr(loss, name) for name in _parameters(loss)}
    fields = dataclasses.fields(loss)  # type: ignore[arg-type]
    others = [each.name for each in fields if each.name not in (*parameters, "y_range")]
    if any(getattr(loss, name) is not None for name in others):
        raise WrongValue(f"{', '.join(others)} of {loss.name} are for estimators: leave them out of a query.")
    return {"name": loss.name, **parameters}


def _loss_from_json(content: Any) -> str | Loss:
    if isinstance(content, str):
        return content
    name = content.get("name") if isinstance(content, Mapping) else None
    if not isinstance(name, str) or name not in QUERY_LOSSES:
        raise WrongValue(
            f'loss must be one of {", ".join(QUERY_LOSSES)}, or {{"name": ..., parameter: number}}.'
        )
    usual = QUERY_LOSSES[name]
    rest = {name: value for name, value in content.items() if name != "name"}
    if not set(rest) <= set(_parameters(usual)):
        raise WrongValue(f"{usual.name} has the parameters {list(_parameters(usual))}, got {sorted(rest)}.")
    for name, value in rest.items():
        _check_number(name, value, low=1 / LARGEST_RADIUS**2, high=LARGEST_RADIUS)
    made: Loss = dataclasses.replace(usual, **rest)  # type: ignore[type-var]
    return made


def _parameters(loss: Loss) -> tuple[str, ...]:
    """Names of the numbers that a query may give; those that are None by default are for estimators."""
    fields = dataclasses.fields(loss)  # type: ignore[arg-type]
    return tuple(each.name for each in fields if each.name != "y_range" and each.default is not None)


def _set_to_json(domain: str | Domain) -> Any:
    if isinstance(domain, str):
        return domain
    name = type(domain).__name__
    if JSON_SETS.get(name) is not type(domain):
        raise WrongValue(f"{name} has no JSON form; use one of {', '.join((*NAMED_BALLS, *JSON_SETS))}.")
    fields: dict[str, Any] = dataclasses.asdict(domain)  # type: ignore[call-overload]
    return {"name": name, **{k: list(v) if isinstance(v, tuple) else v for k, v in fields.items()}}


def _set_from_json(content: Any) -> str | Domain:
    if isinstance(content, str):
        return content
    name = content.get("name") if isinstance(content, Mapping) else None
    if not isinstance(name, str) or name not in JSON_SETS:
        raise WrongValue(
            f'set must be one of {", ".join(NAMED_BALLS)}, or {{"name": {" | ".join(JSON_SETS)}, ...}}.'
        )
    rest = {field: value for field, value in content.items() if field != "name"}
    fields = [field.name for field in dataclasses.fields(JSON_SETS[name])]
    if set(rest) != set(fields):
        raise WrongValue(f"{name} has the fields {fields}, got {sorted(map(str, rest))}.")
    for field, value in rest.items():
        if isinstance(value, list) and name != "Box":
            raise WrongValue(f"{field} of {name} must be a number, got a list.")
        for number in value if isinstance(value, list) else [value]:
            _check_number(field, number, low=-LARGEST_RADIUS, high=LARGEST_RADIUS)
    made: Domain = JSON_SETS[name](
        **{field: tuple(value) if isinstance(value, list) else value for field, value in rest.items()}
    )
    return made


def _check_name(field: str, value: Any) -> None:
    if not isinstance(value, str) or not value:
        raise WrongValue(f"{field} must be the name of an attribute, got {_describe(value)}.")


def _names(field: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise WrongValue(f"{field} must be a list of names, got {_describe(value)}.")
    for name in value:
        _check_name(field, name)
    if len(set(value)) != len(value):
        raise WrongValue(f"{field} names an attribute twice.")
    return tuple(value)


def _condition(value: Any, *, needed: bool) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, Mapping) or (needed and not value):
        raise WrongValue(f'where must be an object such as {{"sex": ["f"]}}, got {_describe(value)}.')
    condition = {}
    for name, levels in value.items():
        _check_name("where", name)
        if isinstance(levels, str) or not isinstance(levels, Sequence) or not levels:
            raise WrongValue(f"where[{_describe(name)}] must be a list of levels with at least one.")
        if not all(isinstance(level, str) for level in levels):
            raise WrongValue(f"where[{_describe(name)}] must hold labels of the schema, as text.")
        condition[name] = tuple(levels)
    return condition


def _check_number(field: str, value: Any, *, low: float, high: float, open_low: bool = False) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)  # NaN is within no limits
    if not number or not low <= value <= high or (open_low and value == low):
        raise WrongValue(
            f"{field} must be a number {'above' if open_low else 'of at least'} {low:g} and at most "
            f"{high:g}, got {_describe(value)}."
        )


def _describe(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _indices(schema: Schema, names: Sequence[str], largest: float = LARGEST_MARGINAL) -> tuple[int, ...]:
    """Return positions of attributes; refuse unknown names and marginals that are too large."""
    known = [attribute.name for attribute in schema.attributes]
    for name in names:
        if name not in known:
            raise WrongValue(f"The schema has no attribute {_describe(name)}; it has {', '.join(known)}.")
    indices = tuple(known.index(name) for name in names)
    if _cells(schema, indices) > largest:
        raise WrongValue(
            f"These attributes have {_cells(schema, indices)} cells together, more than {largest}: ask about "
            "fewer of them, or declare coarser ones."
        )
    return indices


def _sizes(schema: Schema, attributes: Sequence[int]) -> tuple[int, ...]:
    return tuple(schema.attributes[index].size for index in attributes)


def _cells(schema: Schema, attributes: Sequence[int]) -> int:
    return math.prod(_sizes(schema, attributes))


def _spread(schema: Schema, attributes: Sequence[int], place: int, code: Vector) -> Vector:
    """Return the code of one attribute at every cell of the marginal, row-major."""
    sizes = _sizes(schema, attributes)
    shape = [1] * len(sizes)
    shape[place] = sizes[place]
    return np.ascontiguousarray(
        np.broadcast_to(np.asarray(code, dtype=np.float64).reshape(shape), sizes)
    ).ravel()


def _columns(attribute: Column) -> list[tuple[str, Vector]]:
    """Return the columns of a feature: numbers or signs, or indicators of more than two levels.

    A cell without a value is 0 in all of them and 1 in a column of its own.
    """
    cells = np.eye(attribute.size)
    missing = [(f"{attribute.name}={attribute.labels[k]}", cells[k]) for k in _missing_cells(attribute)]
    if isinstance(attribute, Binned):
        return [(attribute.name, attribute.scaled), *missing]
    if attribute.known == 2:
        return [(f"{attribute.name}={attribute.labels[1]}", attribute.scaled), *missing]
    levels = [(f"{attribute.name}={attribute.labels[k]}", cells[k]) for k in range(attribute.known)]
    return [*levels, *missing]


def _missing_cells(attribute: Column) -> range:
    return range(attribute.known, attribute.size)


def _numbers(attribute: Column) -> tuple[Vector, float, float]:
    """Return codes in [-1, 1], and the values of -1 and 1 in the units of the table."""
    if not isinstance(attribute, Binned) and attribute.known != 2:
        raise WrongValue(
            f"A mean needs numbers or two levels; {attribute.name!r} has {attribute.known} levels."
        )
    return attribute.scaled, *_range(attribute)


def _range(attribute: Column) -> tuple[float, float]:
    """Return the values that the codes -1 and 1 stand for: of two levels the shares 0 and 1 of the second.

    More levels are coded by their place alone, and their range is that of the codes.
    """
    if isinstance(attribute, Binned):
        return attribute.edges[0], attribute.edges[-1]
    return (0.0, 1.0) if attribute.known == 2 else (-1.0, 1.0)


def _has_value(attribute: Column) -> Vector:
    """Return 1 for each cell of an attribute that has a value, 0 for the cell of missing values."""
    return (np.arange(attribute.size) < attribute.known).astype(np.float64)


def _satisfied(schema: Schema, attributes: Sequence[int], where: Mapping[str, Sequence[str]]) -> Vector:
    """Return 1 at the cells of the marginal where the condition holds, else 0."""
    inside = np.ones(_cells(schema, attributes))
    for place, index in enumerate(attributes):
        attribute = schema.attributes[index]
        if attribute.name in where:
            labels = [str(label) for label in attribute.labels]
            unknown = [level for level in where[attribute.name] if level not in labels]
            if unknown:
                raise WrongValue(
                    f"{attribute.name!r} has no level {_describe(unknown[0])}; it has {_describe(labels)}."
                )
            code = np.array([float(label in where[attribute.name]) for label in labels])
            inside *= _spread(schema, attributes, place, code)
    return inside
