"""Precision before paying: expected standard errors of a fit, simulated from public numbers and assumptions.

Records are drawn from a public model (`Assumptions`), and the fit's own plan runs on them, with its noise.
This is done for usual records, and for closely correlated columns with rare values, which shows how much
larger the standard errors may become. No private record is in reach, and nothing is charged.
"""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.errors import Incompatible, NotAccountable, WrongValue
from dpcvx.estimators.assumptions import Assumptions, SimulatedSample
from dpcvx.estimators.hypotheses import INTERCEPT
from dpcvx.estimators.inference import HIDDEN, MOSTLY_HIDDEN
from dpcvx.estimators.planning import FitDeclaration
from dpcvx.estimators.private_bounds import is_private
from dpcvx.estimators.tables import Column, Printable, ResultTable, number, percent
from dpcvx.planning.outlook import MOST_EPSILON, MOST_RECORDS, smallest
from dpcvx.plans.uncertainty import Uncertainty
from dpcvx.words import is_number, show

__all__ = [
    "Assumptions",
    "PowerForecast",
    "enough_to_see",
    "forecast",
    "hidden_shares",
    "simulated_sample",
    "ways_to_see",
]

RUNS = 5  # of the fit, with new noise
CAUTIOUS_RUNS = 3
MAY_BE_HIDDEN = "may be hidden"
# Multiples of the number of records and of epsilon that are tried.
MORE = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0, 50.0, 70.0, 100.0)


@dataclass(frozen=True, eq=False, repr=False)
class PowerForecast(Printable):
    """Expected standard errors of a fit, from public numbers and stated assumptions."""

    names: tuple[str, ...]  # of coefficients, the intercept first
    deviations: Vector  # expected standard error of each
    sampling: Vector  # that of a fit without privacy; NaN where coefficients cannot be told apart
    hidden: Vector  # share of the runs in which noise hid a direction that matters to the coefficient
    # the same with cautious assumptions: standard errors, and hidden directions
    cautious: tuple[Vector, Vector]
    weighted: bool  # whether rows have survey weights
    facts: tuple[tuple[str, str], ...]
    again: Callable[[int, float], PowerForecast]  # the same for another number of records and epsilon
    n: int
    epsilon: float
    level: float = 0.95
    power: float = 0.8

    @property
    def std_err(self) -> Vector:
        """Expected standard error of each coefficient, privacy noise included."""
        return self.deviations

    @property
    def up_to(self) -> Vector:
        """Standard error of each coefficient with cautious assumptions."""
        return np.maximum(self.cautious[0], self.deviations)

    @cached_property
    def seen_with(self) -> tuple[int | None, float | None]:
        """Number of records at this epsilon, and epsilon for these records, at which noise hides nothing.

        To a factor of about 1.5, for usual records; None where no reasonable one is enough.
        """

        def seen(n: int, epsilon: float) -> bool:
            return not (self.again(n, epsilon).hidden > 0.5).any()

        return enough_to_see(seen, self.n, self.epsilon, least=float(self.hidden.any()))

    @property
    def multiple(self) -> Vector:
        """Each standard error over the one of a fit without privacy."""
        with np.errstate(all="ignore"):
            found: Vector = self.deviations / self.sampling
        return found

    @property
    def width(self) -> Vector:
        """Expected width of each interval."""
        return 2 * NormalDist().inv_cdf((1 + self.level) / 2) * self.deviations

    @property
    def smallest_effect(self) -> Vector:
        """Smallest coefficient that a test finds with the wanted probability."""
        normal = NormalDist()
        return (normal.inv_cdf((1 + self.level) / 2) + normal.inv_cdf(self.power)) * self.deviations

    def needed(self, width: float, coefficient: str) -> tuple[int | None, float | None]:
        """Return the number of records, and the epsilon, at which the interval of a coefficient is narrow.

        Parameters
        ----------
        width : float
            Wanted width of the interval, in the coefficient's units.
        coefficient : str
            Its name in the table.

        Returns
        -------
        tuple of (int or None, float or None)
            The least number of records at this epsilon, and the least epsilon for these records, to two
            digits; None where no reasonable one is enough.
        """
        if coefficient not in self.names:
            raise WrongValue(f"{show(coefficient)} is no coefficient: {', '.join(self.names[:8])}.")
        if not is_number(width, 0):
            raise WrongValue(f"width must be a positive number, got {show(width)}.")
        place = self.names.index(coefficient)

        def enough(n: float, epsilon: float) -> bool:
            try:
                return bool(self.again(math.ceil(n), epsilon).width[place] <= width)
            except (Incompatible, NotAccountable):
                return False

        records = smallest(lambda value: enough(value, self.epsilon), self.n, MOST_RECORDS)
        epsilon = smallest(lambda value: enough(self.n, value), self.epsilon, MOST_EPSILON)
        return None if records is None else round(records), epsilon

    @cached_property
    def typical_error(self) -> float:
        """Geometric mean of the standard errors of all features; it has no unit that matters."""
        return float(np.exp(np.mean(np.log(self.deviations[1:]))))

    @cached_property
    def typical_sampling(self) -> float:
        """Geometric mean of the standard errors of all features in a fit without privacy."""
        return float(np.exp(np.mean(np.log(self.sampling[1:]))))

    def table(self) -> ResultTable:
        """Return the table, a row for each coefficient."""
        columns = [
            Column(""),
            Column("std err", number),
            Column("up to", number),
            Column("without privacy", number),
            Column("multiple", lambda value: f"{value:.2f}"),
            Column("smallest effect", number),
            Column("noise share", percent),
        ]
        parts = (
            self.deviations,
            self.up_to,
            self.sampling,
            self.multiple,
            self.smallest_effect,
            1 - self.multiple**-2,
        )
        rows: list[tuple[Any, ...]] = [
            (name, *(float(value) if math.isfinite(value) else None for value in row))
            for name, row in zip(self.names, zip(*parts, strict=True), strict=True)
        ]
        notes = [
            f"smallest effect: a coefficient of this size has a p-value below {1 - self.level:.3g} with a "
            f"probability of {self.power:.0%}. multiple: std err over the one of a fit without privacy.",
            "up to: std err with the cautious assumptions. Both are simulated from public numbers. Real "
            "records differ: a standard error is proportional to (standard deviation of the target's errors) "
            "/ (standard deviation of the feature). If two columns are nearly equal, their coefficients are "
            "hidden whatever this table says.",
        ]
        marks = [
            f"{HIDDEN} in {share:.0%} of runs" if share else MAY_BE_HIDDEN if maybe > 0.5 else None
            for share, maybe in zip(self.hidden, self.cautious[1], strict=True)
        ]
        if any(marks):
            columns.append(Column("note"))
            rows = [(*row, mark) for row, mark in zip(rows, marks, strict=True)]
        if (self.hidden > 0).any():
            notes.append(
                f"{HIDDEN}: noise hides how the records vary in some directions, and standard errors are as "
                "large as the set of the parameter. " + ways_to_see(self.seen_with, weighted=self.weighted)
            )
        if MAY_BE_HIDDEN in marks:
            notes.append(
                f"{MAY_BE_HIDDEN}: noise hides this coefficient with the cautious assumptions, but not with "
                "the usual ones. Give the deviations, shares and correlation that you know, or use more "
                "records, a larger epsilon or fewer columns."
            )
        return ResultTable("Expected standard errors", self.facts, tuple(columns), tuple(rows), tuple(notes))


def forecast(
    model: Any,
    declare: Callable[[int, float], FitDeclaration],
    n: int,
    epsilon: float,
    assumed: Assumptions,
    *,
    level: float,
    power: float,
    runs: tuple[int, int] = (RUNS, CAUTIOUS_RUNS),
) -> PowerForecast:
    """Return the expected standard errors of a fit.

    `model`: an estimator with the fit's parameters, to be overwritten; `declare`: the fit for a number of
    records and an epsilon, from public facts; `runs`: simulated fits to usual records, and to those of
    cautious assumptions; the second may be 0.
    """
    made = declare(n, epsilon)
    if is_private(made.stated.bounds) or is_private(made.stated.y_bounds):
        raise Incompatible(
            "Standard errors cannot be predicted for private bounds, which are not known before the fit. "
            "Give bounds and y_bounds that are likely to come out, in your units."
        )
    if getattr(made.plan.solver, "basis", None) is not None:
        raise Incompatible(
            "Standard errors are predicted for coefficients of columns, and this fit would have ramps or "
            'products of columns. Give knots=0 and interactions="none" to predict those of straight lines.'
        )
    sample = simulated_sample(model, made, assumed)
    found = sample.run(model, made, runs[0])
    deviations = np.median([np.sqrt(np.diag(each.covariance)) for each in found], axis=0)
    sampling = sample.plain_errors(model._link)
    if sampling is None:
        clear = [np.sqrt(np.diag(np.asarray(each.sampling))) for each in found if not each.weak]
        sampling = np.median(clear, axis=0) if clear else np.full(len(deviations), np.nan)
    hidden, order = hidden_shares(found), [-1, *range(len(deviations) - 1)]
    careful, cautious = dataclasses.replace(assumed, cautious=True), (deviations, hidden)
    if runs[1]:
        worse = simulated_sample(model, made, careful).run(model, made, runs[1])
        larger = np.median([np.sqrt(np.diag(each.covariance)) for each in worse], axis=0)
        cautious = larger, hidden_shares(worse)
    budget, weighted = made.plan.budget, model.weight_bounds is not None
    facts = (
        (f"{budget.neighbours.noun}s", f"{n:,}"),
        ("epsilon", f"{epsilon:g}"),
        ("delta", f"{budget.delta:.3g}"),
        ("uncertainty", f"{made.plan.solver.hessian_share:.0%} of the budget"),
        ("assumed", assumed.describe(made, model._several_rows, weighted=weighted)),
        ("cautious", careful.describe(made, model._several_rows, weighted=weighted)),
    )

    def again(records: int, larger: float) -> PowerForecast:
        return forecast(model, declare, records, larger, assumed, level=level, power=power, runs=(2, 0))

    return PowerForecast(
        (INTERCEPT, *model.coef_names_),
        deviations[order],
        sampling[order],
        hidden[order],
        (cautious[0][order], cautious[1][order]),
        weighted,
        facts,
        again,
        n,
        epsilon,
        level,
        power,
    )


def simulated_sample(model: Any, made: FitDeclaration, assumed: Assumptions) -> SimulatedSample:
    """Draw records of a declared fit of a model."""
    weighted = model.weight_bounds is not None
    return SimulatedSample.draw(made, assumed, model._several_rows, weighted=weighted)


def hidden_shares(runs: Sequence[Uncertainty]) -> Vector:
    """Return the share of runs in which a coefficient's variance comes mostly from hidden directions."""
    shares: Vector = np.mean([_mostly_hidden(each) for each in runs], axis=0)
    return shares


def _mostly_hidden(known: Uncertainty) -> Vector:
    """1 for each coefficient whose variance comes mostly from hidden directions, 0 for others."""
    if known.hidden is None:
        return np.zeros(len(known.estimate))
    whole = np.diag(known.covariance)  # 0 for an intercept that the model does not have
    share: Vector = np.diag(known.hidden) / np.where(whole > 0, whole, 1.0)
    return (share > MOSTLY_HIDDEN).astype(np.float64)


def enough_to_see(
    seen: Callable[[int, float], bool], n: int, epsilon: float, *, least: float = 0.0
) -> tuple[int | None, float | None]:
    """Return the least number of records, and the least epsilon, of a coarse list that hide nothing.

    `seen`: whether noise hides nothing, for a number of records and an epsilon; `least`: multiple of both
    that is known not to be enough.
    """
    more = [factor for factor in MORE if factor > least]

    def tried(records: int, larger: float) -> bool:
        try:
            return seen(records, larger)
        except (Incompatible, NotAccountable):
            return False

    def first(enough: Callable[[float], bool]) -> float | None:
        place = bisect_left(more, True, key=enough)
        return None if place == len(more) else more[place]

    records = first(lambda factor: tried(math.ceil(factor * n), epsilon))
    larger = first(lambda factor: tried(n, factor * epsilon))
    unit = 10 ** max(0, len(str(n)) - 2)
    return (
        None if records is None else math.ceil(records * n / unit) * unit,
        None if larger is None else float(f"{larger * epsilon:.2g}"),
    )


def ways_to_see(found: tuple[int | None, float | None], *, weighted: bool) -> str:
    """Say what to do about hidden directions; `found`: of `enough_to_see`."""
    records, epsilon = found
    ways = [] if records is None else [f"about {records:,} records at this epsilon"]
    ways += [] if epsilon is None else [f"about epsilon {epsilon:g} with these records"]
    needed = ", or ".join(ways) or "more than a hundred times the records or epsilon"
    rest = "fewer columns help too"
    if weighted:
        rest += ", and so does a smaller largest weight, because noise is in proportion to it"
    return f"With usual columns you need {needed}; {rest}."
