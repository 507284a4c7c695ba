"""Answers of the engine: numbers with intervals, bounds on their error with the argument for them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import NoneType
from typing import Any

from dpcvx.accounting import REPLACE_ONE, Neighbours
from dpcvx.errors import WrongValue
from dpcvx.estimators.tables import number
from dpcvx.queries.answer_summary import AnswerComparison, AnswerRows, AnswerSummary
from dpcvx.queries.attribute_codes import allowed_cells
from dpcvx.queries.compiled import Query
from dpcvx.queries.legend import read_legend
from dpcvx.queries.query import Mean, Regression
from dpcvx.queries.query_fields import QUERY_LOSSES, find_loss
from dpcvx.queries.readings import Coefficient
from dpcvx.queries.schema import Binned, Column, Schema
from dpcvx.words import is_number

__all__ = ["ARGUMENTS", "BRANCHES", "INTERVALS", "Answer", "Coefficient", "reading_note"]

SEPARATION = 4.0  # coded coefficient of a label beyond which the benchmark counts apart
BINDING = (
    "the radius of the set of coefficients is reached: they are shrunk towards 0{}. Ask again with a larger "
    "radius: radius=, --radius on the command line, or Advanced on the page"
)
UNCALIBRATED = ", and their intervals may not contain the coefficients of a larger radius"
SEPARATED = (
    "Nearly all people at some levels have the same label: the few others decide such large coefficients, "
    "and their intervals are long. Leave these attributes out, or join levels."
)
BRANCHES = ("histogram", "oracle")
# How the bound on an error is proved, in words.
ARGUMENTS = {
    "noise": "by the noise of the first release",
    "comparison": "by comparison with the records",
    "measurement": "by the noise of its own measurement",
    "none": "",
}
# Arguments for intervals, in words.
INTERVALS = {
    "prediction": "predicted from the noise of the release; measured on public tables, not proved",
    "measurement": "by the noise of the answer's own measurement",
    "bound": "by the bound on the error",
    "none": "",
}


@dataclass(frozen=True)
class Answer:
    """Answer to one query; which fields there are depends on the query alone. ``print`` shows its table.

    Parameters
    ----------
    query : dict
        The query's JSON form.
    coefficients : tuple of Coefficient
        Coefficients of a regression in the table's units and against baselines, numbers of people with
        margins, or a mean.
    coded : tuple of float
        The answer in the coding of the query's loss and set, before it was expressed in the table's units.
    branch : {"histogram", "oracle"}
        Whether the public histogram answered, or a new private measurement.
    error : float or None
        Expected error. For a regression the excess loss over the best fit on these records, for other queries
        the largest standard error of a number. For a new measurement of a regression it is what the theory
        of the solver predicts for the mean over the noise. None if not known.
    error_bound : float or None
        Upper bound on the whole error: the largest one of a number, margins left out, or excess loss. None if
        no argument proves one.
    confidence : float
        Probability with which the bound of an answer holds, however its query was chosen; and the level of
        the intervals.
    covered_by : {"noise", "comparison", "measurement", "none"}
        Argument that proves the bound: the known noise of released means that determine the numbers asked
        for; a comparison with the records by sparse vector; the noise of a new measurement of these numbers.
    interval_by : {"prediction", "measurement", "bound", "none"}
        Argument for the intervals.
    typical : float or None
        None, or, of accounts that paid for a self-check, its result in the units of this answer: 195 of 200
        queries had at most this error over sensitivity. It proves nothing about another query.
    checked : bool
        Whether the answer was compared with the records, by sparse vector or by a new measurement. False once
        that part of the budget is spent, or if there was none.
    remaining : float
        Epsilon that is left for new measurements after this answer.
    private : bool
        False if a seeded generator drew the noise.
    comparable : bool
        Whether the engine had a budget for comparisons with the records at its start.
    people : int or None
        Public number of records or persons; None in answers of earlier versions.
    unit : str
        "record" or "person".
    note : str
        How to read the numbers; a function of the query, the schema and what was released.
    data : str
        Name of the data set, that of the engine's account; "" without one and in answers of earlier versions.
    legend : mapping
        Words that the schema declares for the attributes of the query: by attribute "label", "unit", and
        "values", names of its levels and bins. Empty where none are declared.
    """

    query: dict[str, Any]
    coefficients: tuple[Coefficient, ...]
    coded: tuple[float, ...]
    branch: str
    error: float | None
    error_bound: float | None
    confidence: float
    covered_by: str
    interval_by: str
    typical: float | None
    checked: bool
    remaining: float
    private: bool
    comparable: bool
    people: int | None
    unit: str
    note: str
    data: str = ""
    legend: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the numbers."""
        return tuple(coefficient.name for coefficient in self.coefficients)

    @property
    def estimates(self) -> tuple[float, ...]:
        """The numbers."""
        return tuple(coefficient.estimate for coefficient in self.coefficients)

    def summary(self, population: bool | None = None) -> AnswerSummary:
        """Return the table of the answer.

        Parameters
        ----------
        population : bool, optional
            Whether intervals are for a population that the records are a random sample of, so that they
            include its sampling error. By default those of regressions are, where the sampling error is
            known, and those of counts, means and tables are for the records themselves.

        Returns
        -------
        AnswerSummary
            ``print`` it; a notebook shows it as HTML; ``to_markdown()``, ``to_latex()``, and as data
            ``rows(population).to_csv()``, ``to_frame()``, ``to_dict()``.
        """
        return AnswerSummary(self.rows(population))

    def rows(self, population: bool | None = None) -> AnswerRows:
        """Return one row for each number, margins included; `population` as in `summary`."""
        return AnswerRows(self, self.for_population if population is None else population)

    def compare(self, other: Answer, population: bool | None = None) -> AnswerComparison:
        """Return a table of this answer beside another one; `population` as in `summary`."""
        both = self.for_population and other.for_population
        return AnswerComparison(self, other, both if population is None else population)

    @property
    def for_population(self) -> bool:
        """Whether intervals are for a population by default: those of regressions, if there are any."""
        some_for_records = any(each.low is not None for each in self.coefficients)
        some = any(each.population_low is not None for each in self.coefficients)
        return self.is_regression and (some or not some_for_records)

    @property
    def is_regression(self) -> bool:
        """Whether the numbers are coefficients."""
        return self.query.get("kind") == "regression"

    @property
    def source(self) -> str:
        """Where the numbers come from, in words."""
        if self.branch != "histogram":
            return "a new private measurement"
        return f"the {'released tables' if OWN_FIT in self.note else 'public histogram'}, at no new cost"

    @property
    def comparison_words(self) -> str:
        """Whether the answer was compared with the records, in words."""
        if self.checked:
            return f"yes; epsilon {self.remaining:.3g} is left for new measurements"
        if not self.comparable:
            return "no: this engine makes no comparisons for it"
        if self.remaining > 0:
            return "no: this asker has no share of the comparisons left, or was given none"
        return "no: the comparisons are used up"

    @property
    def reading_notes(self) -> tuple[str, ...]:
        """How to read the numbers, one sentence each."""
        said = tuple(f"{part[0].upper()}{part[1:]}." for part in self.note.split("; ") if part)
        binds = BINDING.split("{", maxsplit=1)[0] in self.note
        return (*said, SEPARATED) if self._is_separated and not binds else said

    @property
    def _is_separated(self) -> bool:
        labels = [name for name, loss in QUERY_LOSSES.items() if loss.target == "labels"]
        return self.query.get("loss") in labels and max(map(abs, self.coded), default=0.0) > SEPARATION

    def interval_words(self, population: bool) -> str:
        """Say what the intervals are for and what they rest on."""
        if self.interval_by == "none":
            return "There are no intervals: nothing is known about the error of these numbers."
        whom = f"these {'persons' if self.unit == 'person' else 'records'}"
        if self.is_regression and not population and not self.for_population:
            whom += " alone, since the sampling error of this regression is not known"
        if population:
            whom = f"a population of which {whom} are a random sample, sampling error included"
            if all(each.population_low is None for each in self.coefficients):
                return "There are no intervals for a population: the sampling error is not known."
        return f"{self.confidence:.0%} intervals for {whom}; {INTERVALS[self.interval_by]}."

    @property
    def bound_words(self) -> str:
        """Say what is proved about the error."""
        kind = "excess loss" if self.is_regression else "error"
        if self.error_bound is None:
            return f"No bound on the {kind} is proved for this query."
        return (
            f"Proved: {kind} at most {number(self.error_bound)} with {self.confidence:.0%} confidence, "
            f"{ARGUMENTS[self.covered_by]}."
        )

    def to_json(self) -> dict[str, Any]:
        """Return every field in plain types."""
        content = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        numbers = [dataclasses.asdict(each) for each in self.coefficients]
        if not self.legend:
            del content["legend"]
        return {**content, "coefficients": numbers, "coded": list(self.coded)}

    @cached_property
    def body(self) -> bytes:
        """JSON text of `to_json`, as it is stored and sent."""
        return json.dumps(self.to_json(), allow_nan=False).encode()

    @classmethod
    def from_json(cls, content: Any) -> Answer:
        """Read what `to_json` wrote; anything else is a ValueError.

        Answers of earlier versions are in the coding of their query. Bounds and intervals of version 0.1, for
        which there is no argument, are left out.
        """
        if isinstance(content, Mapping) and "guarantee" in content and "covered_by" not in content:
            content = _without_bounds(content)
        if isinstance(content, Mapping) and "covered_by" in content and "interval_by" not in content:
            content = _of_coded_numbers(content)
        if isinstance(content, Mapping):
            content = {"data": "", "legend": {}, **content}
        kinds: dict[str, tuple[type, ...]] = {
            "query": (Mapping,),
            "coefficients": (list,),
            "coded": (list,),
            "branch": (str,),
            "covered_by": (str,),
            "interval_by": (str,),
            "checked": (bool,),
            "private": (bool,),
            "comparable": (bool,),
            "people": (int, NoneType),
            "unit": (str,),
            "note": (str,),
            "data": (str,),
            "legend": (Mapping,),
            **dict.fromkeys(("confidence", "remaining"), (float,)),
            **dict.fromkeys(("error", "error_bound", "typical"), (float, NoneType)),
        }
        if not isinstance(content, Mapping) or set(content) != set(kinds):
            raise WrongValue(f"An answer is an object with the fields {', '.join(kinds)}.")
        for name, kind in kinds.items():
            value = content[name]
            if not (isinstance(value, kind) if kind[0] is not float else _is_number(value, kind)):
                raise WrongValue(f"Field {name!r} of an answer has the wrong type: {type(value).__name__}.")
        for name, known in (("branch", BRANCHES), ("covered_by", ARGUMENTS), ("interval_by", INTERVALS)):
            if content[name] not in known:
                raise WrongValue(f"{name} must be one of {', '.join(known)}.")
        if (content["covered_by"] == "none") != (content["error_bound"] is None):
            raise WrongValue("An answer has an error_bound if and only if an argument covers it.")
        if not all(is_number(value) for value in content["coded"]):
            raise WrongValue("coded must be a list of numbers.")
        numbers = tuple(_coefficient(each) for each in content["coefficients"])
        coded = tuple(content["coded"])
        read = {"coefficients": numbers, "coded": coded, "legend": read_legend(content["legend"])}
        return cls(**{**content, "query": dict(content["query"]), **read})

    def __str__(self) -> str:
        return str(self.summary())

    def _repr_html_(self) -> str:
        return self.summary().to_html()


def _without_bounds(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer of version 0.1 in the fields of version 0.2."""
    kept = {name: value for name, value in content.items() if name != "guarantee"}
    numbers = kept.get("coefficients")
    if isinstance(numbers, list) and all(isinstance(each, Mapping) for each in numbers):
        kept["coefficients"] = [{**each, "low": None, "high": None, "noise": None} for each in numbers]
    return {**kept, "error_bound": None, "covered_by": "none", "typical": None}


def _of_coded_numbers(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer whose numbers were in the coding of its query in today's fields."""
    numbers = content.get("coefficients")
    if isinstance(numbers, list) and all(isinstance(each, Mapping) for each in numbers):
        numbers = [
            {**{field.name: None for field in dataclasses.fields(Coefficient)}, **each} for each in numbers
        ]
        for each in numbers:
            each["std_err"] = each.pop("noise", None)
    said = "none" if content["covered_by"] == "none" else "bound"
    new: dict[str, Any] = {"coded": [], "interval_by": said, "people": None, "unit": "record"}
    return {**content, "coefficients": numbers, **new}


def _is_number(value: Any, kinds: tuple[type, ...]) -> bool:
    return is_number(value) or (value is None and NoneType in kinds)


def _coefficient(content: Any) -> Coefficient:
    fields = [field.name for field in dataclasses.fields(Coefficient)]
    if not isinstance(content, Mapping) or set(content) != set(fields):
        raise WrongValue(f"A number of an answer has the fields {', '.join(fields)}.")
    optional = [content[name] for name in fields[2:]]
    if (
        not isinstance(content["name"], str)
        or not is_number(content["estimate"])
        or not all(value is None or is_number(value) for value in optional)
    ):
        raise WrongValue("A number of an answer has a name, an estimate, and errors and intervals if known.")
    return Coefficient(**content)


UNMEASURED = (
    "no table of the target with both attributes of {} was measured, and smaller tables show almost nothing "
    "about it: a coefficient near 0 does not mean that there is no interaction, and there are no intervals"
)
PERSONS = "each person counts once: several rows of a person share its weight"
HIDDEN = "too few people are visible at {}: these coefficients are mostly noise and have no intervals"
CUT = (
    "the intervals of {} end at the edge of the set of coefficients: the release says little about them. "
    "Join levels, or leave these attributes out"
)
FEW = "too few people with this condition are visible: the mean is mostly noise"
SELECTED = (
    "about {:.0%} of the people have no {}, and the model does not know which combinations of features they "
    "have: there are no intervals"
)
BLURRED = (
    "noise hides many dependences of two columns in this release: intervals of features that depend strongly "
    "on each other, or of numbers with a long tail, hold the coefficient less often than stated"
)
CHOSEN = "{} pairs of its columns {} measured"
FOLLOW = "{} from other measured pairs"
APART = "{} taken as independent, since no chain of measured pairs joins their columns"
INDEPENDENT = (
    "no two of these attributes were measured together: the answer does not show how they depend on each "
    "other"
)
BINNED = (
    "a regression does not see how numbers vary inside their bins, and its intervals do not include this "
    "error of binning"
)
OWN_FIT = "fitted to its own attributes: other answers about some of them may differ by a part of the noise"


def reading_note(
    query: Query,
    schema: Schema,
    neighbours: Neighbours = REPLACE_ONE,
    own_fit: bool = False,
    unmeasured: Sequence[str] = (),
    hidden: Sequence[str] = (),
    missing: float = 0.0,
    bins_measured: bool = False,
    shrunk: bool = False,
    intervals: bool = True,
    few: bool = False,
    cut: Sequence[str] = (),
    independent: bool = False,
    pairs: tuple[int, int, int] = (0, 0, 0),
    blurred: bool = False,
) -> str:
    """Return how attributes and units enter an answer, or "" if there is nothing to say.

    `own_fit`: whether the answer has a distribution of its own attributes, in place of one histogram;
    `unmeasured`: interactions of which no table with the target was measured; `hidden`: levels of features
    whose noisy number of people is not above the noise; `missing`: noisy share of people without the target,
    or 0 if intervals hold anyway; `bins_measured`: whether the means of bins without declared values were
    released; `shrunk`: whether the edge of the set shrinks the coefficients; `intervals`: whether there are
    intervals; `few`: whether too few people are visible who satisfy the condition of a mean;
    `cut`: coefficients whose intervals end at the edge of the set; `independent`: whether no two of the
    query's attributes were measured together; `pairs`: number of pairs of the query's attributes, of those
    that were measured, and of those taken as independent, where an engine chooses pairs; `blurred`: whether
    noise hides many of the pairs that a regression is computed from.
    """
    notes = [
        BINDING.format(UNCALIBRATED if intervals else "") if shrunk else "",
        _coding_note(query, schema, bins_measured),
        BINNED if intervals and _has_bins(query, schema) else "",
        HIDDEN.format(", ".join(hidden)) if hidden else "",
        FEW if few else "",
        CUT.format(", ".join(cut)) if cut else "",
        SELECTED.format(missing, query.target) if isinstance(query, Regression) and missing else "",
        UNMEASURED.format(", ".join(unmeasured)) if unmeasured else "",
        INDEPENDENT if independent else "",
        _pairs_note(*pairs),
        BLURRED if blurred and intervals else "",
        PERSONS if neighbours.unit == "person" else "",
        OWN_FIT if own_fit else "",
    ]
    return "; ".join(note for note in notes if note)


def _pairs_note(pairs: int, measured: int, apart: int) -> str:
    if pairs == measured:
        return ""
    if pairs == apart:
        return INDEPENDENT
    follow = pairs - measured - apart
    parts = [CHOSEN.format(f"{measured} of the {pairs}", "was" if measured == 1 else "were")]
    parts += [FOLLOW.format(f"{follow} {'follows' if follow == 1 else 'follow'}")] if follow else []
    parts += [APART.format(f"{apart} {'is' if apart == 1 else 'are'}")] if apart else []
    return " and ".join(parts)


def _coding_note(query: Query, schema: Schema, bins_measured: bool) -> str:
    if isinstance(query, Regression):
        target = schema[query.target]
        left_out = [f"people without {target.name} are left out"] if target.size > target.known else []
        bins = [name for name in query.features if _has_slope(schema[name], query)]
        levels = [name for name in query.features if name not in bins]
        parts = [_target_note(query, target)]
        if bins:
            values = _values(*(schema[name] for name in bins))
            parts.append(f"coefficients of {', '.join(bins)} are for one unit more, {values}")
        if levels:
            parts.append(f"those of {', '.join(levels)} are differences from the baseline, the first level")
        if query.interactions:
            parts.append(
                "attributes in an interaction have their own coefficient for the baseline, or for 0, of the "
                "other one"
            )
        return "; ".join(parts + left_out)
    if isinstance(query, Mean):
        attribute = schema[query.of]
        over = f"among those with a value of {query.of}, " if attribute.size > attribute.known else ""
        if isinstance(attribute, Binned):
            return f"{over}{_values(attribute)}; {_binning_note(query, bins_measured)}"
        if attribute.numbers is not None:
            return f"{over}mean of the levels, which are numbers"
        return f"{over}share of {attribute.labels[1]}"
    return ""


def _has_bins(query: Query, schema: Schema) -> bool:
    """Whether a query is a regression whose target or features include a number, known by its bin alone."""
    if not isinstance(query, Regression):
        return False
    return isinstance(schema[query.target], Binned) or any(
        _has_slope(schema[name], query) for name in query.features
    )


def _has_slope(feature: Column, query: Regression) -> bool:
    """Whether a feature is a number, of which the condition leaves more than one bin."""
    cells = allowed_cells(feature, query.where)
    return isinstance(feature, Binned) and sum(cell < feature.known for cell in cells) > 1


def _binning_note(query: Mean, measured: bool) -> str:
    if not measured:
        return "the interval does not include the error of binning"
    if set(query.where) <= {query.of}:
        return "a measured value is the noisy mean of its bin, whose noise the interval includes"
    return (
        "a measured value is the noisy mean of its bin over all people: the interval includes its noise, but "
        "not how people with this condition differ from others in the same bin"
    )


def _target_note(query: Regression, target: Column) -> str:
    loss = find_loss(query.loss)
    if loss.target == "labels":
        scale = "log odds" if loss.name == "logistic" else "score"
        return f"coefficients are on the {scale} of {target.name}={target.labels[1]}"
    if isinstance(target, Binned):
        return f"coefficients are in units of {target.name}, {_values(target)}"
    if target.known == 2:
        return f"coefficients are on the share of {target.name}={target.labels[1]}"
    return f"coefficients are in units of {target.name}, whose levels are numbers"


def _values(*numbers: Column) -> str:
    """Say which number stands for a bin: its middle, or its value, which is a measured mean or declared."""
    middle = any(isinstance(each, Binned) and each.values is None for each in numbers)
    return f"with the {'middle' if middle else 'value'} of its bin for each number"
