"""Regressions by names of attributes, and their compilation to the cells of a marginal or to pairs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.domains import NAMED_BALLS, Domain
from dpcvx.errors import WrongValue
from dpcvx.losses import Loss
from dpcvx.problem import Bounds, Problem
from dpcvx.queries.attribute_codes import (
    LARGEST_MARGINAL,
    allowed_cells,
    at_cells,
    code_columns,
    code_range,
    count_cells,
    has_mean,
    has_value,
    missing_cells,
    positions,
    satisfied,
    sizes_of,
)
from dpcvx.queries.compiled import CORNER, CompiledQuery, CompiledRegression
from dpcvx.queries.query_fields import (
    LARGEST_RADIUS,
    QUERY_LOSSES,
    check_condition,
    check_name,
    check_names,
    check_number,
    check_pairs,
    find_loss,
    loss_to_json,
    set_to_json,
)
from dpcvx.queries.readings import INTERCEPT, Reading
from dpcvx.queries.schema import Binned, Column, Schema
from dpcvx.queries.universe import LARGEST_UNIVERSE
from dpcvx.queries.wide_regression import WideRegression

__all__ = ["Regression"]

LOCAL_CELLS = 2**12  # of a regression that can be answered from pairs, where the universe has no histogram
MOST_COEFFICIENTS = 256  # of a regression on more cells than these
LARGEST_DESIGN = 2**22  # cells times coefficients of a regression: 32 MiB, and the cost of one of its steps


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
    interactions : sequence of pairs of str
        Pairs of features whose columns are multiplied with each other, ``age:sex`` in a formula.
    """

    target: str
    features: Sequence[str]
    loss: str | Loss = "logistic"
    domain: str | Domain = "l2"
    radius: float = 3.0
    intercept: bool = True
    l2: float = 0.0
    where: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict, hash=False)
    interactions: Sequence[tuple[str, str]] = ()

    def __post_init__(self) -> None:
        check_name("target", self.target)
        object.__setattr__(self, "where", check_condition(self.where, needed=False))
        object.__setattr__(self, "features", check_names("features", self.features))
        pairs = check_pairs("interactions", self.interactions, self.features)
        object.__setattr__(self, "interactions", pairs)
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
        _check_target(loss, target)
        self._check_levels([schema.attributes[i] for i in attributes[: len(variables)]])
        coded = [
            code_columns(each, allowed_cells(each, self.where))
            for each in (schema.attributes[i] for i in attributes[1 : len(variables)])
        ]
        cells = count_cells(schema, attributes)
        products = [tuple(self.features.index(name) for name in pair) for pair in self.interactions]
        width = sum(map(len, coded)) + sum(len(coded[a]) * len(coded[b]) for a, b in products)
        listed = count_cells(schema, range(len(schema.attributes))) <= LARGEST_UNIVERSE
        narrow = bool(self.where or self.interactions)  # pairs alone cannot answer it
        most = LARGEST_MARGINAL if listed or narrow else LOCAL_CELLS
        if cells * (self.intercept + width) > LARGEST_DESIGN or cells > most:
            if narrow:
                raise WrongValue(
                    f"These attributes have {cells} cells together, too many for a regression with "
                    f"{'interactions' if self.interactions else 'a condition'}: ask about fewer of them, or "
                    "leave that out."
                )
            return self._compile_wide(schema, n, attributes, coded)
        names = [INTERCEPT] if self.intercept else []
        columns: list[Vector] = [np.ones(cells)] if self.intercept else []
        by_feature = [
            [(name, at_cells(schema, attributes, place, code)) for name, code in part]
            for place, part in enumerate(coded, start=1)
        ]
        by_product = [
            [(f"{one}:{other}", x * y) for (one, x), (other, y) in product(by_feature[a], by_feature[b])]
            for a, b in products
        ]
        for part in (*by_feature, *by_product):
            names += [name for name, _ in part]
            columns += [column for _, column in part]
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
        self.to_json()  # answers repeat their query: refuse one that cannot be written, before it is measured
        return compiled

    def _check_levels(self, variables: Sequence[Column]) -> None:
        """Refuse a condition that leaves one level of a feature or of the target."""
        for each in variables:
            is_target, cells = each.name == self.target, allowed_cells(each, self.where)
            left = [each.labels[k] for k in cells if k < each.known or not is_target]
            if each.name not in self.where or len(left) > 1:
                continue
            if set(self.where[each.name]) <= set(each.labels):  # else the level is refused as unknown
                levels = f"one level, {left[0]!r}" if left else "no level with a value"
                kind, other = ("target", "ask for a count") if is_target else ("feature", "leave it out")
                raise WrongValue(
                    f"The condition leaves the {kind} {each.name!r} {levels}: choose more levels of it, or "
                    f"{other}."
                )

    def reading(self, schema: Schema, n: int) -> Reading:
        """Return the coefficients of levels against the first one, and of numbers for each of their units.

        Log odds stay as they are; other targets are in their own units. The intercept is the prediction for
        somebody with the first level of all attributes and with numbers that are 0. An attribute that
        interacts with another one has its own coefficient there: at the first level, or at 0, of the other.
        """
        unit, middle = 1.0, 0.0
        loss = find_loss(self.loss)
        if loss.target != "labels":
            low, high = code_range(schema[self.target])
            unit, middle = (high - low) / 2, (low + high) / 2
        terms = {
            name: _Terms.of(schema[name], allowed_cells(schema[name], self.where)) for name in self.features
        }
        sizes = [len(terms[name].base) for name in self.features]
        sizes += [len(terms[a].base) * len(terms[b].base) for a, b in self.interactions]
        starts = self.intercept + np.concatenate([[0], np.cumsum(sizes)]).astype(int)
        place = dict(zip((*self.features, *self.interactions), starts[:-1].tolist(), strict=True))

        def row(values: Iterator[tuple[Any, Vector]]) -> Vector:
            found = np.zeros(int(starts[-1]))
            for key, part in values:
                found[place[key] : place[key] + part.size] = part.ravel()
            return found

        # An attribute's columns are base + sum of u_t d_t, u_t the numbers and indicators that people read;
        # the columns of a product are the outer product of two such sums, multiplied out here.
        base = row((name, terms[name].base) for name in self.features)
        base += row(((a, b), np.outer(terms[a].base, terms[b].base)) for a, b in self.interactions)
        base[: int(self.intercept)] = 1.0
        names, rows = [INTERCEPT], [base]
        for name in self.features:
            for label, d in terms[name].steps:
                own = row(iter([(name, d)]))
                own += row(
                    ((a, b), np.outer(d if a == name else terms[a].base, d if b == name else terms[b].base))
                    for a, b in self.interactions
                    if name in (a, b)
                )
                names.append(label)
                rows.append(own)
        for a, b in self.interactions:
            for (one, d), (other, e) in product(terms[a].steps, terms[b].steps):
                if d.any() and e.any():
                    names.append(f"{one}:{other}")
                    rows.append(row(iter([((a, b), np.outer(d, e))])))
        offset = np.append(middle, np.zeros(len(rows) - 1))
        return Reading(tuple(names), unit * np.stack(rows), offset)

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
            **({"interactions": [list(pair) for pair in self.interactions]} if self.interactions else {}),
            "set": set_to_json(self.domain),
            "radius": self.radius,
            "intercept": self.intercept,
            "l2": self.l2,
            **({"where": {name: list(levels) for name, levels in self.where.items()}} if self.where else {}),
        }


def _check_target(loss: Loss, target: Column) -> None:
    """Refuse a target of which the loss makes no sense."""
    table = f"a table (Marginal) of {target.name!r} and the features"
    if loss.target == "labels" and target.known != 2:
        instead = 'loss="squared", "huber" or "quantile"' if has_mean(target) else table
        raise WrongValue(
            f"{loss.name} needs a target with two levels; {target.name!r} has {target.known} cells. Use "
            f"{instead}, or declare a binary attribute."
        )
    if loss.target != "labels" and not has_mean(target):
        raise WrongValue(
            f"{loss.name} needs a target with numbers or two levels; {target.name!r} has {target.known} "
            f"levels that are no numbers, so that it has no mean. Ask for {table}."
        )


@dataclass(frozen=True, eq=False)
class _Terms:
    """Columns of an attribute in readable terms: base + sum of u_t d_t over numbers and levels t."""

    base: Vector  # columns at the first level, or at the number 0
    steps: list[tuple[str, Vector]]  # (name, d_t): for one unit more, or the difference of a level

    @classmethod
    def of(cls, attribute: Column, cells: Sequence[int]) -> _Terms:
        """Return the terms of a feature; `cells`: those that the condition of the query allows."""
        name, labels = attribute.name, attribute.labels
        own = np.stack([code for _, code in code_columns(attribute, cells)], axis=1)
        if not isinstance(attribute, Binned) or sum(k < attribute.known for k in cells) < 2:
            first, *others = cells
            steps = [(f"{name}={labels[first]} (baseline)", np.zeros(own.shape[1]))]
            return cls(own[first], [*steps, *((f"{name}={labels[k]}", own[k] - own[first]) for k in others)])
        low, high = attribute.edges[0], attribute.edges[-1]
        slope = np.zeros(own.shape[1])
        slope[0] = 2 / (high - low)
        missing = [  # coded as the middle of the range, and as missing
            (f"{name}={labels[k]} (against {(low + high) / 2:g})", own[k])
            for k in missing_cells(attribute)
            if k in cells
        ]
        return cls(-(low + high) / 2 * slope, [(name, slope), *missing])
