"""Tables of inference: summaries, tests of contrasts and joint tests, from released numbers alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.errors import WrongValue
from dpcvx.estimators.hypotheses import INTERCEPT, Hypotheses, ModelTerms
from dpcvx.estimators.tables import Column, Printable, ResultTable, number, percent, three_decimals
from dpcvx.plans.statement import PrivacyStatement
from dpcvx.plans.uncertainty import COVARIANCES, Uncertainty
from dpcvx.words import quantity, show

__all__ = [
    "MAPPED",
    "NO_ERRORS",
    "ContrastTests",
    "Summary",
    "WaldTest",
    "WaldTests",
    "check_adjustment",
    "covariance_fact",
    "holm",
    "interval_of",
    "statement_facts",
    "wald",
]

MOSTLY_HIDDEN = 0.5  # a row is marked if hidden directions make up a larger share of its variance
HIDDEN = "hidden by noise"
NO_BASELINE = (
    "every level or bucket has a coefficient, so that one direction is hidden whatever the records are. "
    "Declared levels in a model with an intercept have a baseline instead."
)
ADJUSTMENTS = (None, "holm")
RANK = 1e-10  # hypotheses are dependent if an eigenvalue of their covariance is smaller, beside the largest
UNSEEN = "no visible people"
NOISE_SHARE = "noise share: part of the variance that is privacy noise; the rest is sampling error."
NO_ERRORS = (
    "Standard errors, z, P>|z| and intervals were not released, because they cost a share of the budget. "
    'A fit with uncertainty="auto" (command line: --uncertainty auto) releases them; on the same people its '
    "epsilon is added to this one."
)
MAPPED = (
    "[quantiles]: the coefficient is the effect of one unit of the mapped column (dpcvx export prints the "
    "map), not of one unit of the column. Columns with long tails, or with bounds that are far too wide, "
    "may be mapped unless maps=None (command line: --maps none)."
)


@dataclass(frozen=True, eq=False, repr=False)
class Summary(Printable):
    """Table of a fitted model's coefficients, from what was released with it."""

    title: str
    facts: tuple[tuple[str, str], ...]
    terms: ModelTerms
    estimates: tuple[tuple[str, Vector, float], ...]  # output, coefficients, intercept; output "" for one
    uncertainty: Uncertainty | None
    level: float = 0.95
    adjust: str | None = None
    notes: tuple[str, ...] = ()
    # heading of a column with the exponentials of coefficients, where these are ratios; none by default
    ratio: str = ""
    intercept: str = INTERCEPT  # name of the last coefficient

    def table(self) -> ResultTable:
        """Return the table: a row for the intercept, for each feature, and for each baseline level."""
        places = self._places()
        if self.uncertainty is None:
            return self._coefficients(places)
        size = len(self.terms.names) + 1
        matrix = np.eye(size)[[j for _, j in places if j is not None]]
        none = np.zeros(len(matrix))
        found = ContrastTests(
            Hypotheses(("",) * len(matrix), matrix, none), self.uncertainty, self.level, self.adjust
        )
        columns, cells = found.columns("", "coef"), iter(found.cells())
        empty = (0.0, *(None,) * (len(columns) - 2))
        rows = [(name, *(empty if j is None else next(cells))) for name, j in places]
        notes = found.notes()
        whole = self.terms.without_baseline()
        redundant = len(whole) > 1 or (whole and any(np.any(start) for _, _, start in self.estimates))
        if any(found.hidden) and redundant:
            notes = (*notes, f"{', '.join(whole)}: {NO_BASELINE}")
        return self._with_ratios(columns, rows, (*self.notes, *notes))

    def _places(self) -> list[tuple[str, int | None]]:
        """Rows: a name, and its place among the coefficients (the intercept last).

        None is the place of a baseline, and of a level without visible people: their coefficient is 0.
        """
        rows: list[tuple[str, int | None]] = [(self.intercept, len(self.terms.names))]
        for _, features, baseline in self.terms.columns:
            if baseline:
                mark = f"baseline, {UNSEEN}" if baseline in self.terms.unseen else "baseline"
                rows.append((f"{baseline} ({mark})", None))
            for j in features:
                name = self.terms.names[j]
                rows.append((f"{name} ({UNSEEN})", None) if name in self.terms.unseen else (name, j))
        return rows

    def _coefficients(self, places: Sequence[tuple[str, int | None]]) -> ResultTable:
        """Return the table of a model without standard errors."""
        several = len(self.estimates) > 1
        rows = []
        for output, coef, intercept in self.estimates:
            both = np.append(coef, intercept)
            label = (output,) if several else ()
            rows += [(name, *label, 0.0 if j is None else float(both[j])) for name, j in places]
        columns = (Column(""), *([Column("output")] if several else []), Column("coef", number))
        return self._with_ratios(columns, rows, self.notes)

    def _with_ratios(
        self, columns: tuple[Column, ...], rows: list[tuple[Any, ...]], notes: tuple[str, ...]
    ) -> ResultTable:
        """Return the table, with the exponential of each coefficient beside it where these are ratios."""
        if self.ratio:
            place = next(j for j, column in enumerate(columns) if column.name == "coef") + 1
            columns = (*columns[:place], Column(self.ratio, number), *columns[place:])
            rows = [(*row[:place], math.exp(min(row[place - 1], 700.0)), *row[place:]) for row in rows]
        return ResultTable(self.title, self.facts, columns, tuple(rows), notes)


@dataclass(frozen=True, eq=False, repr=False)
class ContrastTests(Printable):
    """Tests of linear combinations of coefficients, one by one, against what they are said to be equal to."""

    hypotheses: Hypotheses
    uncertainty: Uncertainty  # of all coefficients, the intercept last
    level: float = 0.95
    adjust: str | None = None

    def __post_init__(self) -> None:
        if not 0 < self.level < 1:
            raise WrongValue(f"level must be between 0 and 1, got {show(self.level)}.")
        check_adjustment(self.adjust)

    @cached_property
    def combinations(self) -> Uncertainty:
        """Estimates of the combinations and their covariance."""
        return self.uncertainty.mapped(lambda theta: self.hypotheses.matrix @ theta)

    @property
    def effect(self) -> Vector:
        """Estimate of each combination, shape (q,)."""
        return self.combinations.estimate

    @property
    def std_err(self) -> Vector:
        """Standard error of each estimate, privacy noise included, shape (q,)."""
        deviations: Vector = np.sqrt(np.maximum(np.diag(self.combinations.covariance), 0.0))
        return deviations

    @property
    def statistic(self) -> Vector:
        """z: distance of each estimate from the tested value in standard errors, shape (q,)."""
        with np.errstate(all="ignore"):
            z: Vector = (self.effect - self.hypotheses.values) / self.std_err
        return z

    @property
    def pvalue(self) -> Vector:
        """Two-sided p-value of each test, shape (q,)."""
        return np.array([math.erfc(abs(z) / math.sqrt(2)) for z in self.statistic])

    @property
    def pvalue_holm(self) -> Vector:
        """P-values adjusted for their number by Holm's method, shape (q,)."""
        return holm(self.pvalue)

    @property
    def noise_share(self) -> Vector | None:
        """Share of each variance that is privacy noise, shape (q,); None for files that do not say."""
        return _share(self.combinations, self.combinations.sampling, rest=True)

    @property
    def hidden(self) -> list[bool]:
        """Whether directions that the noise hides make up most of the variance of each estimate."""
        share = _share(self.combinations, self.combinations.hidden)
        if share is None:
            return [self.combinations.weak > 0] * len(self.effect)
        return [bool(each > MOSTLY_HIDDEN) for each in share]

    def conf_int(self) -> Vector:
        """Return the lower and upper end of each interval, shape (q, 2)."""
        return interval_of(self.effect, self.std_err, self.level)

    def columns(self, first: str, second: str) -> tuple[Column, ...]:
        """Return the columns of a table of tests."""
        tail = (1 - self.level) / 2
        found = [
            Column(first),
            Column(second, number),
            Column("std err", number),
            Column("z", three_decimals),
        ]
        found.append(Column("P>|z|", three_decimals))
        if self.adjust is not None:
            found.append(Column("Holm", three_decimals))
        found += [Column(f"[{tail:.6g}", number), Column(f"{1 - tail:.6g}]", number)]
        if self.noise_share is not None:
            found.append(Column("noise share", percent))
        if self._marked:
            found.append(Column("note"))
        return tuple(found)

    def cells(self) -> list[tuple[Any, ...]]:
        """Return the cells of a table of tests, without the first column."""
        parts: list[Any] = [self.effect, self.std_err, self.statistic, self.pvalue]
        if self.adjust is not None:
            parts.append(self.pvalue_holm)
        parts += [*self.conf_int().T]
        if (share := self.noise_share) is not None:
            parts.append(share)
        rows: list[tuple[Any, ...]] = [tuple(map(_plain, row)) for row in zip(*parts, strict=True)]
        if self._marked:
            rows = [(*row, HIDDEN if each else None) for row, each in zip(rows, self.hidden, strict=True)]
        return rows

    @property
    def _marked(self) -> bool:
        return any(self.hidden)

    def notes(self) -> tuple[str, ...]:
        """Return what a reader has to know about the numbers."""
        told = [] if self.noise_share is None else [NOISE_SHARE]
        if self._marked:
            weak = quantity(self.uncertainty.weak, "direction")
            told.append(
                f"{HIDDEN}: in {weak} of {len(self.uncertainty.estimate)} the noise hides how the records "
                "vary, and intervals are as wide there as the set allows. A small p-value of a marked row "
                "counts all the same; a large one says nothing about the effect. More records, a larger "
                "epsilon or a larger share for uncertainty narrow these intervals."
            )
        return tuple(told)

    def table(self) -> ResultTable:
        """Return the table of tests."""
        names, values = self.hypotheses.names, self.hypotheses.values
        rows = [(name, *cells) for name, cells in zip(names, self.cells(), strict=True)]
        notes = self.notes()
        if values.any():
            notes = ("z and P>|z| are about the difference from the tested value.", *notes)
        return ResultTable(
            "Tests of linear combinations of coefficients",
            (),
            self.columns("hypothesis", "coef"),
            tuple(rows),
            (*notes, *_several(len(rows), self.adjust)),
        )


@dataclass(frozen=True)
class WaldTest:
    """A joint test of several hypotheses."""

    hypothesis: str
    statistic: float  # chi-squared with `df` degrees of freedom if the hypotheses hold
    df: int
    pvalue: float
    # whether noise hides every combination of them: a large p-value then says nothing about the effect
    hidden: bool = False


@dataclass(frozen=True, eq=False, repr=False)
class WaldTests(Printable):
    """Joint tests, each of several linear hypotheses about coefficients."""

    tests: tuple[WaldTest, ...]
    adjust: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def statistic(self) -> Vector:
        """Wald statistic of each test, shape (k,)."""
        return np.array([test.statistic for test in self.tests])

    @property
    def df(self) -> Vector:
        """Degrees of freedom of each test, shape (k,)."""
        return np.array([test.df for test in self.tests])

    @property
    def pvalue(self) -> Vector:
        """P-value of each test, shape (k,)."""
        return np.array([test.pvalue for test in self.tests])

    @property
    def pvalue_holm(self) -> Vector:
        """P-values adjusted for their number by Holm's method, shape (k,)."""
        return holm(self.pvalue)

    def table(self) -> ResultTable:
        """Return the table of tests."""
        columns = [Column("hypothesis"), Column("chi2", three_decimals), Column("df")]
        columns.append(Column("P>chi2", three_decimals))
        rows: list[tuple[Any, ...]] = [
            (test.hypothesis, test.statistic, test.df, test.pvalue) for test in self.tests
        ]
        if self.adjust is not None:
            columns.append(Column("Holm", three_decimals))
            rows = [(*row, float(p)) for row, p in zip(rows, self.pvalue_holm, strict=True)]
        notes = (*self.notes, *_several(len(rows), self.adjust))
        if any(test.hidden for test in self.tests):
            columns.append(Column("note"))
            marks = [HIDDEN if test.hidden else None for test in self.tests]
            rows = [(*row, mark) for row, mark in zip(rows, marks, strict=True)]
            reading = "the p-value may be large whatever the effect is; a small one counts. See summary()."
            notes = (f"{HIDDEN}: {reading}", *notes)
        return ResultTable("Wald tests", (), tuple(columns), tuple(rows), notes)


def wald(hypotheses: Hypotheses, known: Uncertainty, name: str) -> WaldTest:
    """Return the joint test of hypotheses.

    `known`: uncertainty of all coefficients, the intercept last; `name`: of the test, for people.
    """
    from scipy.special import chdtrc

    found = known.mapped(lambda theta: hypotheses.matrix @ theta)
    away, covariance = found.estimate - hypotheses.values, found.covariance
    scale = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    if not (scale > 0).all() or np.linalg.eigvalsh(covariance / np.outer(scale, scale))[0] < RANK:
        raise WrongValue(
            f"The hypotheses of {name!r} depend on each other: one of them follows from the others, or says "
            "nothing. Leave it out."
        )
    z = away / scale
    statistic = float(z @ np.linalg.solve(covariance / np.outer(scale, scale), z))
    hidden = all(ContrastTests(hypotheses, known).hidden)
    if hidden and found.hidden is not None:  # a combination of them may be seen all the same
        factor = np.linalg.inv(np.linalg.cholesky(covariance / np.outer(scale, scale)))
        shares = np.linalg.eigvalsh(factor @ (found.hidden / np.outer(scale, scale)) @ factor.T)
        hidden = bool(shares[0] > MOSTLY_HIDDEN)
    return WaldTest(name, statistic, len(z), float(chdtrc(len(z), max(statistic, 0.0))), hidden)


def interval_of(center: Vector, deviation: Vector, level: float) -> Vector:
    """Return the normal intervals of estimates, shape (..., 2)."""
    if not 0 < level < 1:
        raise WrongValue(f"level must be between 0 and 1, got {show(level)}.")
    half = NormalDist().inv_cdf((1 + level) / 2) * deviation
    return np.stack([center - half, center + half], axis=-1)


def holm(pvalues: Vector) -> Vector:
    """Return p-values adjusted for their number by Holm's method; it needs no independence."""
    order = np.argsort(pvalues, kind="stable")
    steps = np.maximum.accumulate(pvalues[order] * np.arange(len(pvalues), 0, -1))
    found = np.empty(len(pvalues))
    found[order] = np.minimum(steps, 1.0)
    return found


def statement_facts(statement: PrivacyStatement) -> list[tuple[str, str]]:
    """Return number of records or persons, epsilon and delta."""
    public = statement.public
    counted = "persons" if "persons" in public else "n"
    name = "persons" if counted == "persons" else "records"
    return [
        (name, f"{public[counted]:,}" if isinstance(public.get(counted), int) else "not stated"),
        ("epsilon", f"{statement.epsilon:g}" if statement.private else "none: NOT PRIVATE"),
        ("delta", f"{statement.delta:.3g}" if statement.private else "none"),
    ]


def covariance_fact(known: Uncertainty | None) -> tuple[str, str]:
    """Return the kind of covariance with its assumption."""
    return "covariance", "not released" if known is None else f"{known.kind}: {COVARIANCES[known.kind]}"


def check_adjustment(adjust: str | None) -> None:
    """Refuse a name that is no adjustment for several tests."""
    if adjust not in ADJUSTMENTS:
        raise WrongValue(f'adjust must be None or "holm", got {show(adjust)}.')


def _several(count: int, adjust: str | None) -> tuple[str, ...]:
    """Return the note on several tests."""
    if count < 2:
        return ()
    if adjust is not None:
        return (
            f"Holm: p-values adjusted for {count} tests; if every hypothesis holds, the probability that any "
            "adjusted value is below 0.05 is at most 0.05.",
        )
    return (
        f"{count} tests: if every hypothesis holds, the probability that some p-value is below 0.05 is up to "
        f'{min(1.0, 0.05 * count):.2g}. adjust="holm" adjusts for their number.',
    )


def _share(found: Uncertainty, part: Vector | None, *, rest: bool = False) -> Vector | None:
    """Share of each variance that a part of the covariance makes up, or that it leaves."""
    if part is None:
        return np.zeros(len(found.estimate)) if found.weak == 0 and not rest else None
    with np.errstate(all="ignore"):
        share: Vector = np.diag(part) / np.diag(found.covariance)
    share = np.clip(np.nan_to_num(share), 0.0, 1.0)
    return 1 - share if rest else share


def _plain(value: Any) -> float | None:
    """Number of a cell; None where it is not finite."""
    return float(value) if math.isfinite(value) else None
