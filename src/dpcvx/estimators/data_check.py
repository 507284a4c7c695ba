"""Check of the data: noisy counts of recognised cells, released before the fit, reveal wrong declarations.

No cell is ever refused, so that a wrong column, a misspelt level or labels of another coding raise no error:
such cells count as missing. The counts are one Gaussian release; every finding is computed from them alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dpcvx.accounting import Budget, gaussian_mu, spendable
from dpcvx.data import Dataset, cells_to_count
from dpcvx.data.columns import Columns
from dpcvx.data.target import Target
from dpcvx.errors import WrongValue
from dpcvx.mechanisms import NoisyCounts, as_counts
from dpcvx.plans import Answers, Stage
from dpcvx.solvers.defaults import default
from dpcvx.words import align_columns, is_number, quantity

__all__ = ["CheckedColumn", "DataCheck", "check_stages", "objection_to_noise", "release_check"]

LARGEST_NOISE: float = default("estimators.data_check.LARGEST_NOISE")
FALSE_ALARM: float = default("estimators.data_check.FALSE_ALARM")
MANY_MISSING: float = default("estimators.data_check.MANY_MISSING")
FEW_PEOPLE: float = default("estimators.data_check.FEW_PEOPLE")
LIKELY = 2.5  # standard deviations beyond which a column is likely to have unrecognised cells
LARGEST_CHECK = 0.5  # share of the budget that is proposed for a check
SHOWN = 20  # levels of a column whose counts are printed
NAMED = 3  # levels of a column that a warning names; the table has more
QUESTION = NoisyCounts.traits.question


def check_stages(
    dataset: Dataset, columns: Columns, target: Target, n: int, budget: Budget, share: float
) -> tuple[tuple[Stage, ...], str]:
    """Return the stages of the check: one, or none with the reason.

    `dataset`: only its kind is used, no record; `columns`, `target`: as declared; `n`: number of records;
    `budget`: of the whole fit; `share`: of mu^2, twice the rho of zCDP, that the check may cost.
    """
    if not share:
        return (), ""
    if budget.delta == 0:
        return (), "no check of the data: its noise is Gaussian, which needs delta > 0"
    if not dataset.countable:
        return (), "no check of the data: these shards were written without counts of their cells"
    paid = spendable(budget)
    mu = math.sqrt(share) * gaussian_mu(paid.epsilon, paid.delta)
    question = cells_to_count(dataset.table, columns, target)
    # Rows of a person share the weight of one row here, however many of them the fit uses.
    neighbours = replace(budget.neighbours, rows=1)
    units = n // budget.neighbours.rows
    counts = NoisyCounts(units, question.numbers, question.levels, 1 / mu, neighbours)
    objection = objection_to_noise(counts, share)
    return ((), objection) if objection else ((Stage(counts, 1),), "")


def objection_to_noise(counts: NoisyCounts, share: float) -> str:
    """Say why counts are too noisy to show anything, as the reason for no check; empty if they are not.

    `share`: of mu^2, that they would cost.
    """
    if counts.noise < LARGEST_NOISE * counts.n:
        return ""
    # The noise falls with the root of the share; rounded up to one digit, and strictly above.
    needed = share * (counts.noise / (LARGEST_NOISE * counts.n)) ** 2
    unit = 10.0 ** math.floor(math.log10(needed))
    needed = unit * (math.floor(needed / unit) + 1)
    remedy = (
        f"check={needed:g} would do"
        if needed <= LARGEST_CHECK
        else "more records or a larger epsilon would do"
    )
    return (
        f"no check of the data: with {share:g} of the budget the noise on a count has standard deviation "
        f"{counts.noise:.3g}, not below {LARGEST_NOISE:g} of {quantity(counts.n, counts.neighbours.noun)}; "
        f"{remedy}"
    )


def release_check(
    stages: tuple[Stage, ...], dataset: Dataset, columns: Columns, target: Target, answers: Answers
) -> DataCheck | None:
    """Release the counts that were paid for; None where none of the stages is a check.

    `dataset`: raw records; private; `columns`, `target`: as declared; `answers`: of the run.
    """
    counts = [stage.mechanism for stage in stages if stage.mechanism.traits.question == QUESTION]
    if not counts:
        return None
    mechanism = as_counts(counts[0])
    question = cells_to_count(dataset.table, columns, target)
    released = answers.give(("check",), lambda rng: mechanism(question, dataset, rng)).tolist()
    targets = ["target"] if len(target.levels) == 1 else [f"target {k}" for k in range(len(target.levels))]
    names = ([] if question.columns is None else columns.labels()) + targets
    others = {each.name: each.other for each in dataset.table.variables}
    checked = []
    for name, declared in zip(names, question.declared, strict=True):
        levels = None if declared is None else declared.values
        size = 1 if levels is None else len(levels)
        checked.append(CheckedColumn(name, levels, tuple(released[:size]), others.get(name)))
        released = released[size:]
    weight = released[0] if released else None
    return DataCheck(mechanism.n, mechanism.noise, tuple(checked), weight, mechanism.neighbours.noun)


@dataclass(frozen=True)
class CheckedColumn:
    """Noisy counts of recognised cells of a column or target: one, or one for each declared level."""

    name: str
    levels: tuple[Any, ...] | None  # None for one count: numbers
    counts: tuple[float, ...]
    other: int | None = None  # place of the level that all other cells count as, if it is declared

    @property
    def total(self) -> float:
        """Recognised cells in all."""
        return math.fsum(self.counts)


@dataclass(frozen=True)
class DataCheck:
    """Released counts of recognised cells, and what they show; print it for a table.

    A column, or target, is named if certainly more than a quarter of its cells are not recognised. A level,
    or class, is named if no people are visible in it: its count is within the error of 0. This is reported
    only if the error is below a twentieth of the records, or if the column is likely to have cells that are
    not recognised, which may be that level in another spelling. The error is the number of standard
    deviations that, with probability 99 %, no count exceeds: if every column has three quarters of its cells
    and every level has at least twice the error in people, something is named with probability 1 % at most.

    Of weighted records, such as those of persons with several rows, a cell counts as the weight of its row:
    rows of a person share the weight of one, and a survey weight is divided by its bound. Shares are then
    those of the released weight of all records.
    """

    n: int  # number of records, or of persons
    noise: float  # standard deviation of one count
    columns: tuple[CheckedColumn, ...]  # columns of X, then targets
    weight: float | None = None  # noisy weight of all records, where they have weights
    noun: str = "record"  # {"record", "person"}: what n counts

    @property
    def whole(self) -> float:
        """The number that counts are compared with: of records, or their noisy weight."""
        return float(self.n) if self.weight is None else min(max(self.weight, 1.0), self.n)

    @property
    def deviations(self) -> float:
        """Standard deviations that all counts and totals stay within, on one side, with probability 99 %."""
        from scipy.special import ndtri

        tests = sum(1 if each.levels is None else 1 + len(each.levels) for each in self.columns)
        return -float(ndtri(FALSE_ALARM / tests))

    @property
    def error(self) -> float:
        """Largest error of a count; a smaller count cannot be distinguished from 0."""
        return self.deviations * self.noise

    def unseen(self, column: CheckedColumn) -> tuple[Any, ...]:
        """Return the levels whose count is not distinguishable from 0, if the noise is small enough."""
        if column.levels is None:
            return ()
        likely = self._has_unrecognised(column) or self._may_be_misspelt(column)
        if self.error >= FEW_PEOPLE * self.whole and not likely:
            return ()
        pairs = enumerate(zip(column.levels, column.counts, strict=True))
        return tuple(level for place, (level, count) in pairs if count < self.error and place != column.other)

    def absent(self) -> list[str]:
        """Return the features "column=level" of unseen levels in columns with unrecognised cells.

        Their people may be there in another spelling. Rare levels of a recognised column are not listed.
        """
        return [
            f"{each.name}={level}"
            for each in self.columns
            if self._has_unrecognised(each)
            for level in self.unseen(each)
        ]

    def _has_unrecognised(self, column: CheckedColumn) -> bool:
        """Whether a column is likely to have unrecognised cells."""
        return self.whole - column.total > LIKELY * self.noise * self._spread(column)

    def _may_be_misspelt(self, column: CheckedColumn) -> bool:
        """Whether people of a misspelt level may be at the other one: it has people, as most levels have."""
        visible = [count > self.error for count in column.counts]
        return column.other is not None and visible[column.other] and 2 * sum(visible) > len(visible)

    @property
    def findings(self) -> tuple[str, ...]:
        """One sentence for each column that looks wrong."""
        found = []
        for each in self.columns:
            error, unseen = self._error_of_total(each), self.unseen(each)
            cells = "labels" if each.name.startswith("target") and each.levels is not None else "cells"
            if each.total < error and each.total + error < (1 - MANY_MISSING) * self.whole:
                found.append(f"{each.name}: almost none of the {cells} is recognised")
                continue
            if each.total + error < (1 - MANY_MISSING) * self.whole:
                found.append(f"{each.name}: only {self._share(each)} of the {cells} are recognised")
            if unseen:
                names = ", ".join(map(repr, unseen[:NAMED]))
                more = f" and {len(unseen) - NAMED} more" if len(unseen) > NAMED else ""
                found.append(
                    f"{each.name}: no people are visible at {names}{more} (at most about "
                    f"{self._rounded(2 * self.error)} each)"
                )
        return tuple(found)

    @property
    def warning(self) -> str:
        """The findings as a warning of three sentences; empty where there are none."""
        if not self.findings:
            return ""
        return (
            f"The check of the data found: {'; '.join(self.findings)}. These are noisy counts in "
            f"{quantity(self.n, self.noun)} (standard deviation {self._deviation}); a cell that is not "
            "recognised counts as missing. Check that these are the right columns, and that levels and "
            "labels are spelt and coded as in the data; rare levels and columns with many empty cells are "
            "listed too."
        )

    @property
    def summary(self) -> str:
        """The findings in one line, for privacy statements."""
        found = "; ".join(self.findings) or "no column, level or class looks wrong"
        return f"noisy counts of recognised cells (standard deviation {self._deviation}): {found}"

    def __str__(self) -> str:
        rows = [("column", "recognised", "levels")]
        for each in self.columns:
            pairs = list(zip(each.levels or (), each.counts, strict=False))
            shares = ", ".join(f"{level}: {self._rounded(count)}" for level, count in pairs[:SHOWN])
            if len(pairs) > SHOWN:
                shares += f" and {len(pairs) - SHOWN} more levels"
            rows.append((each.name, self._share(each), shares))
        records = quantity(self.n, self.noun)
        if self.weight is not None and self.noun == "record":  # survey weights: rows, divided by the bound
            records += f", of weight {self._rounded(self.weight)} in units of the largest weight"
        title = f"Recognised cells of {records}; noise on a count: standard deviation {self._deviation}"
        named = [f"  ! {finding}" for finding in self.findings]
        return "\n".join([title, *align_columns(rows, left=(0, 2)), *named])

    def to_plain(self) -> dict[str, Any]:
        """Return the counts as plain types that JSON can hold."""
        columns = [
            {
                "name": each.name,
                "levels": None if each.levels is None else list(each.levels),
                "counts": list(each.counts),
            }
            | ({} if each.other is None else {"other": each.other})
            for each in self.columns
        ]
        weight = {} if self.weight is None else {"weight": self.weight, "noun": self.noun}
        return {"n": self.n, "noise": self.noise, "columns": columns, **weight}

    @classmethod
    def from_plain(cls, content: Any) -> DataCheck:
        """Read what `to_plain` wrote; anything else is a ValueError."""
        if not isinstance(content, Mapping) or set(content) - {"weight", "noun"} != {"n", "noise", "columns"}:
            raise WrongValue("check must have the fields n, noise and columns.")
        weight, noun = content.get("weight"), content.get("noun", "record")
        if weight is not None and not is_number(weight, -math.inf, math.inf):
            raise WrongValue("check.weight must be a finite number.")
        if noun not in ("record", "person"):
            raise WrongValue("check.noun must be 'record' or 'person'.")
        n, noise, columns = (content[name] for name in ("n", "noise", "columns"))
        if not (isinstance(n, int) and is_number(n, 0) and is_number(noise, 0, math.inf)):
            raise WrongValue("check needs a number of records and a positive noise.")
        if not isinstance(columns, list) or not columns or not all(map(_is_column, columns)):
            raise WrongValue("check.columns must list columns with a name, levels and finite counts.")
        return cls(
            n,
            float(noise),
            tuple(
                CheckedColumn(
                    each["name"],
                    None if each["levels"] is None else tuple(each["levels"]),
                    tuple(map(float, each["counts"])),
                    each.get("other"),
                )
                for each in columns
            ),
            None if weight is None else float(weight),
            noun,
        )

    @property
    def _size(self) -> str:
        """Public size of the data."""
        return quantity(self.n, self.noun)

    @property
    def _deviation(self) -> str:
        return f"{self.noise:,.0f}" if self.noise >= 10 else f"{self.noise:.2g}"

    def _error_of_total(self, column: CheckedColumn) -> float:
        return self.error * self._spread(column)

    def _spread(self, column: CheckedColumn) -> float:
        """Standard deviation of a total beside the weight of all records, over that of one count."""
        return math.sqrt(len(column.counts) + (self.weight is not None))

    def _share(self, column: CheckedColumn) -> str:
        """Share of recognised cells in per cent, with two standard deviations."""
        share = 100 * min(max(column.total / self.whole, 0.0), 1.0)
        error = 200 * self.noise * self._spread(column) / self.whole
        digits = max(0, -math.floor(math.log10(error)))
        return f"{share:.{digits}f} % +- {error:.{digits}f} %"

    def _rounded(self, count: float) -> str:
        """A count to the digits that its noise leaves, between 0 and n."""
        step = 10 ** max(0, math.floor(math.log10(self.noise)))
        return f"{min(max(round(count / step) * step, 0), self.n):,}"


def _is_column(content: Any) -> bool:
    if not isinstance(content, Mapping) or set(content) - {"other"} != {"name", "levels", "counts"}:
        return False
    name, levels, counts = content["name"], content["levels"], content["counts"]
    if not isinstance(name, str) or not isinstance(counts, list) or not (levels is None or _plain(levels)):
        return False
    size = 1 if levels is None else len(levels)
    other = content.get("other")
    if other is not None and not (type(other) is int and 0 <= other < size and levels is not None):
        return False
    return len(counts) == size and all(is_number(count, -math.inf, math.inf) for count in counts)


def _plain(levels: Any) -> bool:
    return isinstance(levels, Sequence) and all(isinstance(each, bool | int | float | str) for each in levels)
