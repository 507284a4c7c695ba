"""Answers of the engine: numbers with intervals, an error with its confidence, and the budget left."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dpcvx.errors import WrongValue
from dpcvx.queries.compiled import Query
from dpcvx.queries.query import Mean, Regression
from dpcvx.queries.schema import Binned, Column, Schema
from dpcvx.words import is_number

__all__ = ["BRANCHES", "Answer", "Coefficient", "reading_note"]

BRANCHES = ("histogram", "oracle")


@dataclass(frozen=True)
class Coefficient:
    """One number of an answer and its interval."""

    name: str
    estimate: float
    low: float
    high: float


@dataclass(frozen=True)
class Answer:
    """Answer to one query; its shape depends on the query alone.

    Parameters
    ----------
    query : dict
        The query's JSON form.
    coefficients : tuple of Coefficient
        Coefficients of a regression, or counts, means or shares.
    branch : {"histogram", "oracle"}
        Whether the public histogram answered, or a new private measurement.
    error : float
        Estimate of the error. For a regression it is the excess loss over the best fit on these records; for
        counts, means and shares the largest error of a number, in its own units.
    error_bound : float
        Upper bound on the error, from released values and public scales alone.
    confidence : float
        Share of queries whose error is below the bound, for queries like those of the engine's self-check.
    guarantee : float
        Upper bound with the same confidence for every query, however it was chosen.
    checked : bool
        Whether the answer was compared with the records, by sparse vector or by a new measurement. False once
        that part of the budget is spent, or if there was none.
    remaining : float
        Epsilon that is left for new measurements after this answer.
    private : bool
        False if a seeded generator drew the noise.
    comparable : bool
        Whether the engine had a budget for comparisons with the records at its start.
    note : str
        How attributes enter the answer; a function of the query and the schema.
    """

    query: dict[str, Any]
    coefficients: tuple[Coefficient, ...]
    branch: str
    error: float
    error_bound: float
    confidence: float
    guarantee: float
    checked: bool
    remaining: float
    private: bool
    comparable: bool
    note: str

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the numbers."""
        return tuple(coefficient.name for coefficient in self.coefficients)

    @property
    def estimates(self) -> tuple[float, ...]:
        """The numbers."""
        return tuple(coefficient.estimate for coefficient in self.coefficients)

    def to_json(self) -> dict[str, Any]:
        """Return every field in plain types."""
        content = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {**content, "coefficients": [dataclasses.asdict(each) for each in self.coefficients]}

    @cached_property
    def body(self) -> bytes:
        """JSON text of `to_json`, as it is stored and sent."""
        return json.dumps(self.to_json(), allow_nan=False).encode()

    @classmethod
    def from_json(cls, content: Any) -> Answer:
        """Read what `to_json` wrote; anything else is a ValueError."""
        kinds: dict[str, Any] = {
            "query": Mapping,
            "coefficients": list,
            "branch": str,
            "checked": bool,
            "private": bool,
            "comparable": bool,
            "note": str,
            **dict.fromkeys(("error", "error_bound", "confidence", "guarantee", "remaining"), float),
        }
        if not isinstance(content, Mapping) or set(content) != set(kinds):
            raise WrongValue(f"An answer is an object with the fields {', '.join(kinds)}.")
        for name, kind in kinds.items():
            value = content[name]
            if not (is_number(value) if kind is float else isinstance(value, kind)):
                raise WrongValue(f"Field {name!r} of an answer has the wrong type: {type(value).__name__}.")
        if content["branch"] not in BRANCHES:
            raise WrongValue(f"branch must be one of {', '.join(BRANCHES)}.")
        numbers = tuple(_coefficient(each) for each in content["coefficients"])
        return cls(**{**content, "query": dict(content["query"]), "coefficients": numbers})

    def __str__(self) -> str:
        width = max(len(name) for name in ("", *self.names))
        lines = [f"{'':<{width}}  {'estimate':>12} {'low':>12} {'high':>12}"]
        for each in self.coefficients:
            numbers = " ".join(f"{value:>12.5g}" for value in (each.estimate, each.low, each.high))
            lines.append(f"{each.name:<{width}}  {numbers}")
        if self.note:
            lines.append(self.note)
        source = "the public histogram" if self.branch == "histogram" else "a new private measurement"
        kind = "excess loss" if self.query.get("kind") == "regression" else "error"
        lines.append(
            f"from {source}{self._unchecked}; {kind} about {self.error:.2g}, at most {self.error_bound:.2g} "
            f"with {self.confidence:.0%} confidence"
        )
        if self.checked or self.comparable:
            lines[-1] += f"; epsilon {self.remaining:.3g} left for new measurements"
        return "\n".join(lines)

    @property
    def _unchecked(self) -> str:
        if self.checked:
            return ""
        why = "the comparisons are used up" if self.comparable else "no comparisons at this size"
        return f", not checked: {why}"


def _coefficient(content: Any) -> Coefficient:
    fields = [field.name for field in dataclasses.fields(Coefficient)]
    if not isinstance(content, Mapping) or set(content) != set(fields):
        raise WrongValue(f"A number of an answer has the fields {', '.join(fields)}.")
    if not isinstance(content["name"], str) or not all(is_number(content[name]) for name in fields[1:]):
        raise WrongValue("A number of an answer has a name and three numbers.")
    return Coefficient(**content)


def reading_note(query: Query, schema: Schema) -> str:
    """Return one sentence on how attributes enter an answer, or "" if there is nothing to say."""
    if isinstance(query, Regression):
        return "coded as " + "; ".join(_coding(schema[name]) for name in (query.target, *query.features))
    if isinstance(query, Mean):
        attribute = schema[query.of]
        if isinstance(attribute, Binned):
            return "by bin midpoints; the interval does not cover what binning costs"
        return f"share of {attribute.labels[1]}"
    return ""


def _coding(attribute: Column) -> str:
    if isinstance(attribute, Binned):
        low, high = attribute.edges[0], attribute.edges[-1]
        return f"{attribute.name}: bin midpoints, [{low:g}, {high:g}] scaled to [-1, 1]"
    if attribute.size == 2:
        return f"{attribute.name}: {attribute.labels[0]} = -1, {attribute.labels[1]} = +1"
    return f"{attribute.name}: one 0/1 column for each of {attribute.size} levels"
