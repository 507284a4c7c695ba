"""Answers of the engine: numbers, bounds on their error with the argument for them, and the budget left."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import NoneType
from typing import Any

from dpcvx.accounting import REPLACE_ONE, Neighbours
from dpcvx.errors import WrongValue
from dpcvx.queries.compiled import Query
from dpcvx.queries.query import Mean, Regression
from dpcvx.queries.schema import Binned, Column, Schema
from dpcvx.words import is_number

__all__ = ["ARGUMENTS", "BRANCHES", "Answer", "Coefficient", "reading_note"]

BRANCHES = ("histogram", "oracle")
# How the bound on an error is proved, in words.
ARGUMENTS = {
    "noise": "by the noise of the first release",
    "comparison": "by comparison with the records",
    "measurement": "by the noise of its own measurement",
    "none": "",
}


@dataclass(frozen=True)
class Coefficient:
    """One number of an answer.

    Parameters
    ----------
    name : str
    estimate : float
    low, high : float or None
        Interval by the bound on the error of the answer. None without a bound, and for coefficients of
        regressions: no bound on an excess loss bounds them without knowledge of the records.
    noise : float or None
        Standard deviation that the noise of the measurements causes, to first order; None if not known. The
        error of the histogram itself, as a model of the records, is no part of it.
    """

    name: str
    estimate: float
    low: float | None
    high: float | None
    noise: float | None = None


@dataclass(frozen=True)
class Answer:
    """Answer to one query; which fields there are depends on the query alone.

    Parameters
    ----------
    query : dict
        The query's JSON form.
    coefficients : tuple of Coefficient
        Coefficients of a regression, or counts, means or shares.
    branch : {"histogram", "oracle"}
        Whether the public histogram answered, or a new private measurement.
    error : float or None
        Estimate of the error that the noise of the measurements causes, to first order. For a regression it
        is the expected excess loss over the best fit on these records; for counts, means and shares the
        largest standard deviation of a number, in its own units. The error of the histogram itself, as a
        model of the records, is no part of it. For a new measurement of a regression it is what the theory
        of the solver predicts for the mean over the noise. None if not known.
    error_bound : float or None
        Upper bound on the whole error: the largest one of a number, or excess loss. None if no argument
        proves one.
    confidence : float
        Probability with which the bound of an answer holds, however its query was chosen.
    covered_by : {"noise", "comparison", "measurement", "none"}
        Argument that proves the bound: the known noise of released means that determine the numbers asked
        for; a comparison with the records by sparse vector; the noise of a new measurement of these numbers.
    typical : float or None
        Result of the engine's self-check in the units of this answer: 195 of its 200 public random queries
        had at most this error over sensitivity. It proves nothing about another query.
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
    error: float | None
    error_bound: float | None
    confidence: float
    covered_by: str
    typical: float | None
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
        """Read what `to_json` wrote; anything else is a ValueError.

        Answers of version 0.1 have no argument for their bounds and intervals, which are left out.
        """
        if isinstance(content, Mapping) and "guarantee" in content and "covered_by" not in content:
            content = _without_bounds(content)
        kinds: dict[str, tuple[type, ...]] = {
            "query": (Mapping,),
            "coefficients": (list,),
            "branch": (str,),
            "covered_by": (str,),
            "checked": (bool,),
            "private": (bool,),
            "comparable": (bool,),
            "note": (str,),
            **dict.fromkeys(("confidence", "remaining"), (float,)),
            **dict.fromkeys(("error", "error_bound", "typical"), (float, NoneType)),
        }
        if not isinstance(content, Mapping) or set(content) != set(kinds):
            raise WrongValue(f"An answer is an object with the fields {', '.join(kinds)}.")
        for name, kind in kinds.items():
            value = content[name]
            if not (isinstance(value, kind) if kind[0] is not float else _is_number(value, kind)):
                raise WrongValue(f"Field {name!r} of an answer has the wrong type: {type(value).__name__}.")
        if content["branch"] not in BRANCHES:
            raise WrongValue(f"branch must be one of {', '.join(BRANCHES)}.")
        if content["covered_by"] not in ARGUMENTS:
            raise WrongValue(f"covered_by must be one of {', '.join(ARGUMENTS)}.")
        if (content["covered_by"] == "none") != (content["error_bound"] is None):
            raise WrongValue("An answer has an error_bound if and only if an argument covers it.")
        numbers = tuple(_coefficient(each) for each in content["coefficients"])
        return cls(**{**content, "query": dict(content["query"]), "coefficients": numbers})

    def __str__(self) -> str:
        width = max(len(name) for name in ("", *self.names))
        lines = [f"{'':<{width}}  {'estimate':>12} {'low':>12} {'high':>12} {'noise':>12}"]
        for each in self.coefficients:
            values = (each.estimate, each.low, each.high, each.noise)
            numbers = " ".join(f"{'-' if value is None else format(value, '.5g'):>12}" for value in values)
            lines.append(f"{each.name:<{width}}  {numbers}")
        if self.note:
            lines.append(self.note)
        source = "the public histogram" if self.branch == "histogram" else "a new private measurement"
        kind = "excess loss" if self.query.get("kind") == "regression" else "error"
        lines.append(f"from {source}{self._unchecked}")
        if self.error is not None:
            lines[-1] += f"; {kind} of about {self.error:.2g} by noise alone"
        if self.checked or self.comparable:
            lines[-1] += f"; epsilon {self.remaining:.3g} left for new measurements"
        if self.error_bound is None:
            lines.append(f"no bound on the {kind} is proved for this query")
        else:
            proof = ARGUMENTS[self.covered_by]
            lines.append(
                f"{kind} at most {self.error_bound:.2g} with {self.confidence:.0%} confidence, {proof}"
            )
        return "\n".join(lines)

    @property
    def _unchecked(self) -> str:
        if self.checked:
            return ""
        why = "the comparisons are used up" if self.comparable else "this engine makes no comparisons"
        return f", not checked: {why}"


def _without_bounds(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer of version 0.1 in today's fields."""
    kept = {name: value for name, value in content.items() if name != "guarantee"}
    numbers = kept.get("coefficients")
    if isinstance(numbers, list) and all(isinstance(each, Mapping) for each in numbers):
        kept["coefficients"] = [{**each, "low": None, "high": None, "noise": None} for each in numbers]
    return {**kept, "error_bound": None, "covered_by": "none", "typical": None}


def _is_number(value: Any, kinds: tuple[type, ...]) -> bool:
    return is_number(value) or (value is None and NoneType in kinds)


def _coefficient(content: Any) -> Coefficient:
    fields = [field.name for field in dataclasses.fields(Coefficient)]
    if not isinstance(content, Mapping) or set(content) != set(fields):
        raise WrongValue(f"A number of an answer has the fields {', '.join(fields)}.")
    optional = [content[name] for name in ("low", "high", "noise")]
    if (
        not isinstance(content["name"], str)
        or not is_number(content["estimate"])
        or not all(value is None or is_number(value) for value in optional)
    ):
        raise WrongValue("A number of an answer has a name, an estimate, and low, high and noise if known.")
    return Coefficient(**content)


PERSONS = "each person counts once: several rows of a person share its weight"


def reading_note(query: Query, schema: Schema, neighbours: Neighbours = REPLACE_ONE) -> str:
    """Return how attributes and units enter an answer, or "" if there is nothing to say."""
    notes = [_coding_note(query, schema), PERSONS if neighbours.unit == "person" else ""]
    return "; ".join(note for note in notes if note)


def _coding_note(query: Query, schema: Schema) -> str:
    if isinstance(query, Regression):
        target = schema[query.target]
        left_out = "; those without a target are left out" if target.size > target.known else ""
        features = [_coding(schema[name]) + _missing(schema[name]) for name in query.features]
        return "coded as " + "; ".join([_coding(target), *features]) + left_out
    if isinstance(query, Mean):
        attribute = schema[query.of]
        over = f"among those with a value of {query.of}, " if attribute.size > attribute.known else ""
        if isinstance(attribute, Binned):
            return f"{over}by {_values(attribute)}; the interval does not cover what binning costs"
        return f"{over}share of {attribute.labels[1]}"
    return ""


def _coding(attribute: Column) -> str:
    if isinstance(attribute, Binned):
        low, high = attribute.edges[0], attribute.edges[-1]
        return f"{attribute.name}: {_values(attribute)}, [{low:g}, {high:g}] scaled to [-1, 1]"
    if attribute.known == 2:
        return f"{attribute.name}: {attribute.labels[0]} = -1, {attribute.labels[1]} = +1"
    return f"{attribute.name}: one 0/1 column for each of {attribute.known} levels"


def _values(number: Binned) -> str:
    return "bin midpoints" if number.values is None else "bin means"


def _missing(attribute: Column) -> str:
    return f", {attribute.labels[-1]} = 0" if attribute.size > attribute.known else ""
