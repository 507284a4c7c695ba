"""Tables of answers: the same rows in Python, on the command line and in downloads."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from dpcvx.estimators.inference import NOISE_SHARE
from dpcvx.estimators.tables import Column, Printable, ResultTable, number, percent, three_decimals
from dpcvx.queries.legend import attribute_facts, level_words, with_words
from dpcvx.queries.readings import TOTAL, Coefficient
from dpcvx.words import quantity

__all__ = ["AnswerComparison", "AnswerRows", "AnswerSummary", "title_of"]

WIDEST = 12  # levels of the last attribute of a table up to which it is shown across


class ReadableAnswer(Protocol):
    """The parts of an `Answer` that its tables show."""

    @property
    def query(self) -> dict[str, Any]: ...
    @property
    def coefficients(self) -> tuple[Coefficient, ...]: ...
    @property
    def confidence(self) -> float: ...
    @property
    def private(self) -> bool: ...
    @property
    def people(self) -> int | None: ...
    @property
    def unit(self) -> str: ...
    @property
    def data(self) -> str: ...
    @property
    def legend(self) -> Mapping[str, Mapping[str, Any]]: ...
    @property
    def source(self) -> str: ...
    @property
    def comparison_words(self) -> str: ...
    @property
    def reading_notes(self) -> tuple[str, ...]: ...
    @property
    def bound_words(self) -> str: ...
    def interval_words(self, population: bool) -> str: ...


class Faint(float):
    """An estimate that is mostly noise."""


def shown_number(value: float) -> str:
    """Return a number with four significant digits, in brackets if it is mostly noise."""
    return f"({number(value)})" if isinstance(value, Faint) else number(value)


@dataclass(frozen=True, eq=False, repr=False)
class AnswerRows(Printable):
    """One row for each number of an answer, margins included."""

    answer: ReadableAnswer
    population: bool

    def table(self) -> ResultTable:
        """Return the rows named by codes, with the declared text of the codes in columns of their own."""
        table, legend = self.coded(), self.answer.legend
        names: list[str] = self.answer.query["attributes"] if _is_table(self.answer) else []
        columns, rows = list(table.columns), [list(row) for row in table.rows]
        if names:
            places = [k for k, name in enumerate(names) if legend.get(name, {}).get("values")]
            words = [[level_words(names[k], row[k], legend) for k in places] for row in rows]
            heads = [f"{names[k]} label" for k in places]
        else:
            shown = [with_words(row[0], legend) for row in rows]
            changed = any(text != row[0] for text, row in zip(shown, rows, strict=True))
            words, heads = [[text] if changed else [] for text in shown], ["label"] * changed
        columns += map(Column, heads)
        cells = tuple((*row, *more) for row, more in zip(rows, words, strict=True))
        return replace(table, columns=tuple(columns), rows=cells)

    def worded(self) -> ResultTable:
        """Return the rows with the declared text of levels beside their codes."""
        table, legend = self.coded(), self.answer.legend
        names: list[str] = self.answer.query["attributes"] if _is_table(self.answer) else []
        rows = [
            (
                *(_level(name, cell, legend) for name, cell in zip(names, row, strict=False)),
                *row[len(names) :],
            )
            if names
            else (with_words(row[0], legend), *row[1:])
            for row in table.rows
        ]
        return replace(table, rows=tuple(rows))

    def coded(self) -> ResultTable:
        """Return the rows, with what they are about above and how to read them below."""
        answer, rows = self.answer, []
        show = people if _counts(answer) else number
        tail = (1 - answer.confidence) / 2
        names: list[str] = answer.query["attributes"] if _is_table(answer) else []
        first = Column(_heading(answer), people if _counts(answer) else shown_number)
        columns = [*map(Column, names or [""]), first, Column("std err", show)]
        if self._tests:
            columns += [Column("z", three_decimals), Column("P>|z|", three_decimals)]
        columns += [Column(f"[{tail:.6g}", show), Column(f"{1 - tail:.6g}]", show)]
        if self._tests:
            columns.append(Column("noise share", percent))
        if _counts(answer):
            columns.append(Column("share", lambda share: f"{100 * share:.2f} %"))
        for each in answer.coefficients:
            low, high = each.interval(self.population)
            error = each.error(self.population)
            labels = levels_of(each.name, names) if names else (each.name,)
            row: list[Any] = [*labels, _estimate(answer, each), error]
            if self._tests:
                row += _test(each.estimate, error, low, high)
            row += [low, high]
            if self._tests:
                row.append(_noise_share(each))
            if _counts(answer):
                row.append(each.estimate / answer.people if answer.people else None)
            rows.append(tuple(row))
        title = title_of(answer.query, answer.legend)
        return ResultTable(title, _facts(answer), tuple(columns), tuple(rows), self._notes())

    @property
    def _tests(self) -> bool:
        return self.population and self.answer.query.get("kind") == "regression"

    def _notes(self) -> tuple[str, ...]:
        notes = [*self.answer.reading_notes, self.answer.interval_words(self.population)]
        if self._tests and any(self._lacks_test(each) for each in self.answer.coefficients):
            notes.append(NO_TEST)
        if any(_is_faint(self.answer, each) for each in self.answer.coefficients):
            notes.append(FAINT)
        if self._tests and any(_noise_share(each) is not None for each in self.answer.coefficients):
            notes.append(f"{NOISE_SHARE[0].upper()}{NOISE_SHARE[1:]}")
        return tuple(note for note in (*notes, self.answer.bound_words) if note)

    def _lacks_test(self, each: Coefficient) -> bool:
        """Whether there is a standard error and an interval, but no test beside them."""
        error, (low, high) = each.error(self.population), each.interval(self.population)
        return bool(error) and low is not None and _test(each.estimate, error, low, high)[0] is None


@dataclass(frozen=True, eq=False, repr=False)
class AnswerSummary(Printable):
    """Table of an answer as people read it: a table of several attributes has the last one across."""

    rows: AnswerRows

    def table(self) -> ResultTable:
        """Return the table; that of several attributes shows estimates with half of their interval."""
        long, legend = self.rows.worded(), self.rows.answer.legend
        query = self.rows.answer.query
        if not _is_table(self.rows.answer) or len(query["attributes"]) < 2:
            return _without_empty(long)
        names: list[str] = query["attributes"]
        lines = _across(self.rows.answer, self.rows.population)
        levels = list(next(iter(lines.values())))
        if len(levels) > WIDEST + 1:
            return long
        heads = (with_words(f"{names[-1]}={level}", legend) for level in levels)
        columns = (Column(", ".join(names[:-1])), *map(Column, heads))
        cells = tuple((row, *(line[level] for level in levels)) for row, line in lines.items())
        return ResultTable(long.title, long.facts, columns, cells, (PLUS_MINUS, *long.notes))


def _without_empty(table: ResultTable) -> ResultTable:
    """Return a table without the columns of errors and intervals if no row has any."""
    used = [k for k in range(len(table.columns)) if k < 2 or any(row[k] is not None for row in table.rows)]
    columns = tuple(table.columns[k] for k in used)
    return replace(table, columns=columns, rows=tuple(tuple(row[k] for k in used) for row in table.rows))


FAINT = "Coefficients in brackets are mostly noise: their errors are not known."
LEVEL = 0.05  # of a test that agrees with a 95 % interval
NO_TEST = (
    "z and P>|z| are left out where a test by the standard error alone would be significant although the "
    "interval contains 0. Use the interval, which also allows for errors that are not normal."
)
PLUS_MINUS = (
    "Numbers of people, each with half of the length of its interval, or with both ends of an interval that "
    "is not symmetric."
)


@dataclass(frozen=True, eq=False, repr=False)
class AnswerComparison(Printable):
    """Two answers beside each other, number by number."""

    one: ReadableAnswer
    other: ReadableAnswer
    population: bool

    def table(self) -> ResultTable:
        """Return the numbers of both answers by name, their differences, and whether intervals overlap.

        Answers whose numbers are on different scales follow each other, without differences.
        """
        if apart := _scales_apart(self.one.query, self.other.query):
            return self._listed(apart)
        left, right = ({each.name: each for each in answer.coefficients} for answer in (self.one, self.other))
        rows = []
        for name in dict.fromkeys((*left, *right)):
            a, b = left.get(name), right.get(name)
            both = a is not None and b is not None
            rows.append(
                (
                    with_words(name, self._legend),
                    *_ends(self.one, a, self.population),
                    *_ends(self.other, b, self.population),
                    _difference(self, a, b),
                    _meet(a, b, self.population) if both else None,
                )
            )
        heads = ("first", "low", "high", "second", "low of second", "high of second", "difference")
        columns = (Column(""), *(Column(head, shown_number) for head in heads), Column("intervals"))
        note = (
            "Both answers may rest on the same released numbers. Their errors may then be correlated, and "
            "the error of a difference is not known. Intervals that do not meet show a difference."
        )
        return ResultTable(COMPARISON, self._facts(), columns, tuple(rows), (note, *self._notes()))

    def _listed(self, apart: str) -> ResultTable:
        """Return all numbers of both answers below each other."""
        pairs = (("first", self.one), ("second", self.other))
        rows = [
            (with_words(each.name, answer.legend), which, *_ends(answer, each, self.population))
            for which, answer in pairs
            for each in answer.coefficients
        ]
        heads = (Column("estimate", shown_number), Column("low", number), Column("high", number))
        note = (
            f"The answers have {apart}: their numbers are on different scales, so no differences are shown."
        )
        return ResultTable(
            COMPARISON,
            self._facts(),
            (Column(""), Column("answer"), *heads),
            tuple(rows),
            (note, *self._notes()),
        )

    def _notes(self) -> tuple[str, ...]:
        """Say what the intervals of both answers are, and which numbers are mostly noise."""
        words = [answer.interval_words(self.population) for answer in (self.one, self.other)]
        named = zip(("First", "Second"), words, strict=True)
        said = words[:1] if words[0] == words[1] else [f"{which}: {each}" for which, each in named]
        pairs = ((answer, each) for answer in (self.one, self.other) for each in answer.coefficients)
        return (*said, *([FAINT] if any(_is_faint(*pair) for pair in pairs) else ()))

    @property
    def _legend(self) -> Mapping[str, Mapping[str, Any]]:
        return {**self.one.legend, **self.other.legend}

    def _facts(self) -> tuple[tuple[str, str], ...]:
        titles = (title_of(answer.query, answer.legend) for answer in (self.one, self.other))
        return (*zip(("first", "second"), titles, strict=True), *attribute_facts(self._legend))


COMPARISON = "Comparison of two answers"


def _scales_apart(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Say why numbers of two queries are on different scales; empty if they are on the same."""
    for words, name in (("another kind", "kind"), ("another target", "target"), ("another loss", "loss")):
        if one.get(name) != other.get(name):
            return words
    if one.get("of") != other.get("of"):
        return "means of other attributes"
    return ""


def people(value: float) -> str:
    """Return a number of people, rounded."""
    return f"{value:,.0f}"


def title_of(query: Mapping[str, Any], legend: Mapping[str, Mapping[str, Any]] | None = None) -> str:
    """Return a query in words.

    `legend`: words of its attributes, where declared.
    """
    shown = {
        name: [_level(name, level, legend or {}) for level in levels]
        for name, levels in query.get("where", {}).items()
    }
    where = " and ".join(
        f"{name} in {{{', '.join(levels)}}}" if len(levels) > 1 else f"{name} = {levels[0]}"
        for name, levels in shown.items()
    )
    kind = query.get("kind")
    if kind == "count":
        return f"Number of people with {where}"
    if kind == "mean":
        return f"Mean of {query['of']}" + (f" among people with {where}" if where else "")
    if kind == "marginal":
        return f"Table of {', '.join(query['attributes'])}"
    if kind != "regression":
        return "Answer"
    loss = query["loss"] if isinstance(query["loss"], str) else query["loss"]["name"]
    terms = [*query["features"], *(":".join(pair) for pair in query.get("interactions", ()))]
    right = " + ".join(terms) or "1"
    if query.get("intercept") is False:
        right += ", no intercept in the coding"
    model = f"{query['target']} ~ {right} ({loss.replace('_', ' ')})"
    return model + (f" among people with {where}" if where else "")


def _counts(answer: ReadableAnswer) -> bool:
    return answer.query.get("kind") in ("count", "marginal") and answer.people is not None


def _is_table(answer: ReadableAnswer) -> bool:
    return answer.query.get("kind") == "marginal" and answer.people is not None


def _heading(answer: ReadableAnswer) -> str:
    if _counts(answer):
        return "people"
    return "coef" if answer.query.get("kind") == "regression" else "estimate"


def _facts(answer: ReadableAnswer) -> tuple[tuple[str, str], ...]:
    facts = [("data", answer.data)] if answer.data else []
    if answer.people is not None:
        facts.append(("people", quantity(answer.people, answer.unit)))
    facts += attribute_facts(answer.legend)
    facts.append(("answered from", answer.source))
    facts.append(("compared with the records", answer.comparison_words))
    if not answer.private:
        facts.insert(0, ("NOT PRIVATE", "the noise came from a seed"))
    return tuple(facts)


def _test(estimate: float, error: float | None, low: float | None, high: float | None) -> list[float | None]:
    """Return z and P of a test against 0, and nothing where its result would contradict the interval.

    Where few people may be meant, the interval is longer than the standard error suggests.
    """
    if not error or low is None or high is None:
        return [None, None]
    z = estimate / error
    significant = math.erfc(abs(z) / math.sqrt(2))
    return [None, None] if significant < LEVEL and low < 0 < high else [z, significant]


def _noise_share(each: Coefficient) -> float | None:
    if each.std_err is None or each.sampling is None:
        return None
    total = each.std_err**2 + each.sampling**2
    return each.std_err**2 / total if total else None


def levels_of(name: str, attributes: Sequence[str]) -> tuple[str, ...]:
    """Return the levels in the name of a cell of a table; labels of bins have commas too."""
    levels = []
    for attribute in reversed(attributes):
        name, _, level = name.rpartition(f"{attribute}=")
        levels.append(level)
        name = name.removesuffix(", ")
    return tuple(reversed(levels))


def _across(answer: ReadableAnswer, population: bool) -> dict[str, dict[str, str]]:
    """Return texts of numbers by row and by level of the last attribute, totals last."""
    lines: dict[str, dict[str, str]] = {}
    for each in answer.coefficients:
        cells = levels_of(each.name, answer.query["attributes"])
        shown = [
            _level(attribute, level, answer.legend)
            for attribute, level in zip(answer.query["attributes"], cells, strict=True)
        ]
        row = TOTAL if set(cells[:-1]) == {TOTAL} else ", ".join(shown[:-1])
        low, high = each.interval(population)
        lines.setdefault(row, {})[cells[-1]] = f"{each.estimate:,.0f}{_around(each.estimate, low, high)}"
    return lines


def _around(estimate: float, low: float | None, high: float | None) -> str:
    """Return an interval beside its number: its ends where it is not symmetric, as where it stops at 0."""
    if low is None or high is None:
        return ""
    below, above = round(estimate - low), round(high - estimate)
    return f" ±{above:,}" if abs(below - above) <= 1 else f" [{low:,.0f}, {high:,.0f}]"


def _level(attribute: str, level: str, legend: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a level with its words, if it has any."""
    words = level_words(attribute, level, legend)
    return f"{level} ({words})" if words else level


def _is_faint(answer: ReadableAnswer, each: Coefficient) -> bool:
    """Whether a coefficient has no interval although the answer has intervals."""
    if answer.query.get("kind") != "regression" or each.low is not None:
        return False
    others = any(other.low is not None for other in answer.coefficients)
    return others and not each.name.endswith(" (baseline)")


def _estimate(answer: ReadableAnswer, each: Coefficient) -> float:
    """Return an estimate, which is shown in brackets if it is mostly noise."""
    return Faint(each.estimate) if _is_faint(answer, each) else each.estimate


def _difference(both: AnswerComparison, a: Coefficient | None, b: Coefficient | None) -> float | None:
    if a is None or b is None:
        return None
    faint = _is_faint(both.one, a) or _is_faint(both.other, b)
    return Faint(b.estimate - a.estimate) if faint else b.estimate - a.estimate


def _ends(answer: ReadableAnswer, a: Coefficient | None, population: bool) -> tuple[float | None, ...]:
    return (None, None, None) if a is None else (_estimate(answer, a), *a.interval(population))


def _meet(a: Coefficient | None, b: Coefficient | None, population: bool) -> str | None:
    ends = [end for each in (a, b) if each is not None for end in each.interval(population)]
    if len(ends) < 4 or any(end is None for end in ends):
        return None
    low, high, other_low, other_high = (float(end) for end in ends if end is not None)
    return "apart" if high < other_low or other_high < low else "overlap"
