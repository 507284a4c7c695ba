"""Proposals for the declaration of a column, from the header of a file alone; no cell is read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpcvx.data.canonical import canonical
from dpcvx.data.schema_columns import (
    BooleanColumn,
    DateColumn,
    HashedColumn,
    IgnoredColumn,
    LevelColumn,
    NumberColumn,
    WeightColumn,
)
from dpcvx.data.variables import ASK

__all__ = ["Proposal", "propose_column", "propose_columns", "propose_model"]

BUCKETS = 32


@dataclass(frozen=True)
class Proposal:
    """Proposed declaration of a column, with a note for the person who confirms it."""

    column: Any
    note: str


COUNTS = ("children", "kids", "siblings", "visits", "count", "counts", "claims", "arrests", "admissions")
SHARES = ("share", "fraction", "proportion")
# Words in a column's name, with the usual bounds of such a column and their unit; the first match counts. The
# bounds hold for almost all people, in round numbers.
NUMBERS: dict[tuple[str, ...], tuple[tuple[float, float], str]] = {
    ("age",): ((0, 110), "years"),
    ("year", "yr"): ((1900, 2030), "calendar years; a duration in years has other bounds"),
    ("month",): ((1, 12), "months of the year"),
    ("hours", "hrs"): ((0, 100), "hours a week"),
    ("weeks", "wks"): ((0, 53), "weeks of a year"),
    ("percent", "pct", "percentage"): ((0, 100), "percent"),
    (*SHARES, "probability"): ((0, 1), "shares of 1"),
    ("latitude", "lat"): ((-90, 90), "degrees"),
    ("longitude", "lon", "long", "lng"): ((-180, 180), "degrees"),
    ("children", "kids", "siblings"): ((0, 12), "a count"),
    ("household", "hhsize"): ((1, 12), "persons"),
    ("educ", "schooling"): ((0, 22), "years of schooling"),
    ("experience", "exper", "tenure"): ((0, 60), "years"),
    ("bmi",): ((10, 70), "kg/m^2"),
}
IDENTIFIERS = (
    *(
        "id",
        "uid",
        "uuid",
        "guid",
        "key",
        "index",
        "rownames",
        "rowname",
        "name",
        "firstname",
        "lastname",
        "surname",
    ),
    *(
        "email",
        "mail",
        "phone",
        "telephone",
        "address",
        "street",
        "ssn",
        "passport",
        "iban",
        "comment",
        "note",
    ),
)
UNITS = (  # words before "id" in the name of an identifier, as in "caseid"
    "case|person|pers|patient|pat|subject|subj|participant|member|respondent|resp|customer|cust|client|user|"
    "pupil|student|stud|employee|emp|household|house|hh|family|fam|individual|indiv|ind|child|mother|record|"
    "rec|row|obs|unit|account|transaction|trip|visit|claim|order|study|school|hospital|firm|vehicle|crash|p"
)
OWN_ID = re.compile(rf"(?:{UNITS})s?id|id(?:s|no|nr|num|number|code)")
CALENDAR_YEAR = re.compile(r"year(?!s|ly)[a-z]*|[a-z]*year|yr")  # "yearacc", not "yearsmarried"
DATES = ("date", "dob", "birthday", "birthdate", "timestamp", "datetime")
MOMENTS = ("time", "day")  # alone or with a word of `EVENTS`: "lead_time" is an amount of time
EVENTS = ("start", "end", "arrival", "departure", "birth", "admission", "discharge", "event", "visit")
PLACES = ("city", "town", "zip", "zipcode", "postcode", "county", "village", "employer", "school", "hospital")
LEVELS = (
    *(
        "sex",
        "gender",
        "race",
        "ethnicity",
        "region",
        "state",
        "country",
        "religion",
        "marital",
        "occupation",
    ),
    *("industry", "job", "profession", "category", "type", "group", "status", "class", "sector", "level"),
)
PERSONS = ("person", "patient", "respondent", "customer", "client", "pupil", "student", "user", "idcode")
GROUPS = ("group", "class", "type", "category", "status", "level", "bracket")  # last word of a name of levels
WEIGHTS = ("wt", "wgt", "wght", "pweight", "pwgt", "perwt", "fnlwgt", "finalwt")
AMOUNTS_OF_TIME = ("hours", "hrs", "minutes", "mins")  # with "day" in a name: a number, no date
FLAGS = ("is", "has", "was", "any", "flag", "not")
IN_A_PLACE = ("c", "central", "in", "inner", "near", "outside", "rural", "urban")  # "c_city" is true or false
WORDS = re.compile(r"[a-z]+")


NO_SURVEY = Proposal(
    NumberColumn(ASK), 'bounds: lowest and highest, as [40, 150]; of survey weights kind = "weight"'
)


def propose_columns(
    names: Sequence[str],
    types: Mapping[str, str],
    labels: Mapping[str, Sequence[str]],
    target: str | None = None,
) -> dict[str, Proposal]:
    """Return what each column of a table may be; see `propose_column`.

    A table has one column of survey weights at most, and its target is none: "wt" is often a weight in kilos.
    """
    found = {name: propose_column(name, types.get(name), labels.get(name, ())) for name in names}
    weights = [name for name, each in found.items() if each.column.kind == WeightColumn.kind]
    unlikely = weights if len(weights) > 1 else [name for name in weights if name == target]
    return found | dict.fromkeys(unlikely, NO_SURVEY)


def propose_column(name: str, kind: str | None = None, labels: Sequence[str] = ()) -> Proposal:
    """Return what a column may be, with "?" for what its name does not tell.

    `kind`: declared type, one of "number", "text", "boolean", "date"; None if there is none; `labels`: names
    of values that the file declares.
    """
    if labels and (levels := _distinct(labels)) is not None:
        return Proposal(
            LevelColumn(levels),
            "value labels of the file. Keep those that may occur by what is publicly known; if cells are "
            'numbers of which a few have labels: kind = "number"',
        )
    # "hoursPerWeek", "hours_per_week" and "hours.per.week" have the same words.
    words = WORDS.findall(re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower())
    own_id = any(word in IDENTIFIERS or OWN_ID.fullmatch(word) for word in words)
    if own_id or "".join(words) in PERSONS:
        return Proposal(
            IgnoredColumn(),
            "an identifier or free text by its name. If it names persons and several rows are one person: "
            'kind = "person"',
        )
    if any(word in WEIGHTS for word in words):
        return Proposal(WeightColumn(ASK), "survey weights by its name. bounds: 0 and the largest, [0, 20]")
    if kind is None and len(words) == 2 and words[0] in IN_A_PLACE and words[1] in PLACES:
        return Proposal(
            BooleanColumn(),
            "whether somebody lives there, 0 or 1, by its name. If cells are names of places, write "
            f'kind = "hashed" and buckets = {BUCKETS}',
        )
    if kind == "boolean" or (kind is None and words[:1] and words[0] in FLAGS):
        return Proposal(BooleanColumn(), "true or false")
    if kind is None and "day" in words and any(word in AMOUNTS_OF_TIME for word in words):
        most = 24 if "hours" in words or "hrs" in words else 24 * 60
        return Proposal(
            NumberColumn((0, most)), "guessed from the name, for time in a day: confirm the bounds"
        )
    moment = any(word in MOMENTS for word in words) and (len(words) == 1 or any(w in EVENTS for w in words))
    if kind == "date" or (kind in (None, "text") and (moment or any(word in DATES for word in words))):
        note = "bounds: first and last date that may occur, as [2000-01-31, ...]; cells such as 31.1.2000 or "
        return Proposal(DateColumn(ASK), note + "2000/01/31 are no dates: write 2000-01-31")
    if kind == "text" or (kind is None and words[-1:] and words[-1] in GROUPS):
        return _text(words)
    words = [CALENDAR_YEAR.sub("year", word) if CALENDAR_YEAR.fullmatch(word) else word for word in words]
    for keys, (bounds, unit) in NUMBERS.items():
        if any(word in keys for word in words):
            return Proposal(NumberColumn(bounds), f"guessed from the name, for {unit}: confirm the bounds")
    if kind is None and any(word in (*PLACES, *LEVELS) for word in words):
        return _text(words)
    if "weight" in words:
        return NO_SURVEY
    others = '; if it is no number: kind = "boolean", "date", "ignored", or "levels" and levels = ["a", "b"]'
    known = "" if kind == "number" else others
    return Proposal(NumberColumn(ASK), f"bounds: lowest and highest value, as [0, 100]{known}")


def propose_model(name: str, column: Any, kind: str | None = None) -> str | None:
    """Return the model that suits the name and declaration of a target; None if it cannot be guessed.

    `kind`: declared type of the column in the file, as for `propose_column`.
    """
    if column.kind in (BooleanColumn.kind, LevelColumn.kind, HashedColumn.kind):
        return "logistic"
    words = set(WORDS.findall(re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()))
    if words & set(COUNTS):
        return "poisson"
    if words & set(SHARES):
        return "fractional"
    is_known = column.kind == NumberColumn.kind and (kind == "number" or column.bounds != ASK)
    return "linear" if is_known else None


def _distinct(labels: Sequence[str]) -> list[str] | None:
    """Return labels that are different levels, without those that stand for missing cells; None for none."""
    found = {value: label for label in labels if (value := canonical(label)) is not None}
    return [*found.values()] or None


def _text(words: list[str]) -> Proposal:
    if any(word in PLACES for word in words):
        return Proposal(
            HashedColumn(BUCKETS), "text with many levels, hashed; or declare the levels that matter"
        )
    return Proposal(LevelColumn(ASK), 'levels: all that may occur, as ["no", "yes"], spelt as in the table')
