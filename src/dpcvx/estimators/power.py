"""Precision before paying: expected standard errors of a fit, simulated from public numbers and assumptions.

Records are drawn from a public model: normal features, levels with equal shares, a linear target. The fit's
own plan runs on them, with its noise. No private record is in reach, and nothing is charged.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np
from sklearn.base import clone

from dpcvx.arrays import Vector
from dpcvx.data import Arrays, Quantiser
from dpcvx.data.columns import Columns
from dpcvx.data.magnified import Magnified
from dpcvx.data.table import baseline_places
from dpcvx.data.target import Labels
from dpcvx.errors import Incompatible, NotAccountable, WrongValue
from dpcvx.estimators.hypotheses import INTERCEPT
from dpcvx.estimators.inference import HIDDEN, MOSTLY_HIDDEN
from dpcvx.estimators.planning import HIDDEN_ERRORS, FitDeclaration
from dpcvx.estimators.private_bounds import is_private
from dpcvx.estimators.tables import Column, Printable, ResultTable, number, percent
from dpcvx.noise import SeededGenerator
from dpcvx.planning.candidates import PlanKey
from dpcvx.planning.outlook import MOST_EPSILON, MOST_RECORDS, smallest
from dpcvx.plans import Plan, execute
from dpcvx.plans.uncertainty import Uncertainty
from dpcvx.solvers.defaults import default
from dpcvx.words import is_number, show

__all__ = ["HIDDEN_IF_WIDE", "Assumptions", "PowerForecast", "forecast", "plan_with_best_share"]

SAMPLE = 4000  # records that are drawn; each counts as often as the number of records asks for
RUNS = 5  # of the fit, with new noise
WIDTH_IN_DEVIATIONS = 6.0  # of bounds, where no standard deviation is given
SHARES: tuple[float, ...] = default("estimators.power.SHARES")
SCORE_DEVIATION = 1.5  # of the log-odds of a classifier


@dataclass(frozen=True)
class Assumptions:
    """Public model of the records of a fit.

    `deviations`: standard deviation of columns of numbers, by name or position, in the user's units; of
    others a sixth of the width of their bounds. `target`: that of the target, or None for a sixth. `r2`:
    share of the target's variance that the features explain. `correlation`: of every pair of numbers.
    `share`: of the second class.
    """

    deviations: Mapping[Any, float] = dataclasses.field(default_factory=dict)
    target: float | None = None
    r2: float = 0.3
    correlation: float = 0.0
    share: float = 0.5
    width: float = WIDTH_IN_DEVIATIONS  # of bounds, in standard deviations of their column

    def __post_init__(self) -> None:
        if not isinstance(self.deviations, Mapping):
            raise WrongValue(f"deviations must map columns to numbers, got {show(self.deviations)}.")
        for name, value in (*self.deviations.items(), ("target", self.target)):
            if value is not None and not is_number(value, 0):
                raise WrongValue(f"The standard deviation of {name} must be positive, got {show(value)}.")
        for name, low in (("r2", -1e-300), ("correlation", -1e-300), ("share", 0.0)):
            if not is_number(getattr(self, name), low, 1):
                raise WrongValue(f"{name} must be between 0 and 1, got {show(getattr(self, name))}.")

    def features(self, columns: Columns, count: int, rng: np.random.Generator) -> tuple[Vector, Vector]:
        """Draw the features of records, in the user's units; and their standard deviations."""
        X = np.empty((count, columns.width))
        common = rng.standard_normal((count, 1))
        labels = columns.labels()
        for key in self.deviations:
            if str(key) not in labels and f"x{key}" not in labels:
                raise WrongValue(
                    f"deviations names {show(key)}, which is no column: {', '.join(labels[:8])}."
                )
        for label, span, declared in zip(labels, columns.spans(), columns.levels, strict=True):
            places = list(span)
            if declared is not None:
                codes = rng.integers(len(declared), size=count)
                X[:, places] = codes[:, None] == np.array(declared.coded)
                continue
            low, high = columns.low[places], columns.high[places]
            spread = (high - low) / self.width
            if len(places) == 1:
                spread = np.array([self._deviation(label, float(spread[0]))])
            own = rng.standard_normal((count, len(places)))
            mixed = math.sqrt(self.correlation) * common + math.sqrt(1 - self.correlation) * own
            X[:, places] = ((low + high) / 2 + spread * mixed).clip(low, high)
        return X, X.std(axis=0)

    def _deviation(self, label: str, usual: float) -> float:
        position = label[1:] if label[:1] == "x" and label[1:].isdecimal() else None
        for key, value in self.deviations.items():
            if str(key) in (label, position):
                return float(value)
        return usual

    def words(self, *, labels: bool, weighted: bool = False) -> str:
        """Return the assumptions in words; `labels`: a target has classes; `weighted`: rows have weights."""
        given = ", ".join(f"{name} {value:g}" for name, value in self.deviations.items())
        rest = "a sixth of the width of its bounds"
        parts = [
            f"standard deviations: {given}; of every other column {rest}"
            if given
            else f"the standard deviation of each column is {rest}",
            f"numbers have correlation {self.correlation:g}, levels equal shares",
        ]
        if labels:
            parts.append(f"the second class has a share of about {self.share:g}")
        else:
            target = rest if self.target is None else f"{self.target:g}"
            parts.append(f"that of the target is {target}, of whose variance features explain {self.r2:.0%}")
        if weighted:
            parts.append(
                "all rows have the largest weight, and errors are larger where most have smaller ones"
            )
        return "; ".join(parts)


@dataclass(frozen=True, eq=False)
class _Sample:
    """Simulated records that stand for n."""

    X: Vector  # features in the user's units
    baselines: list[int]  # features that have no coefficient
    odds: Vector  # log-odds of the second class, or mean of the target
    y: Any  # targets in the user's units
    deviation: float  # of the errors of the target; 1 for classes
    factor: int  # how often each record counts

    @classmethod
    def draw(cls, made: FitDeclaration, assumed: Assumptions) -> _Sample:
        """Draw records of a declared fit."""
        columns, target, n = made.columns, made.target, made.plan.n
        factor, rng = max(1, n // SAMPLE), np.random.default_rng(0)
        X, spread = assumed.features(columns, n // factor, rng)
        parts = (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
        left_out = baseline_places(columns.levels, columns.maps) if made.intercept else []
        score = np.delete(parts, left_out, axis=1).sum(axis=1)
        score /= score.std() or 1.0
        if isinstance(target, Labels):
            odds = math.log(assumed.share / (1 - assumed.share)) + SCORE_DEVIATION * score
            second = rng.uniform(size=len(odds)) < 1 / (1 + np.exp(-odds))
            return cls(X, left_out, odds, target.classes[second.astype(int)], 1.0, factor)
        usual = 2 * float(np.max(target.scale)) / WIDTH_IN_DEVIATIONS
        whole = usual if assumed.target is None else assumed.target
        link = made.plan.problem.loss.link
        if link == "log":
            # The mean is one standard deviation. E mu^2 = (1 + r2) whole^2, so that relative errors with the
            # variance (1 - r2)/(1 + r2) leave r2 of the target's variance to the features.
            width, share = math.sqrt(math.log1p(assumed.r2)), (1 - assumed.r2) / (1 + assumed.r2)
            logs = math.log(whole) - width**2 / 2 + width * score
            return cls(X, left_out, logs, np.exp(logs) * rng.gamma(1 / share, share, len(logs)), 1.0, factor)
        if link == "logit":
            chance = 1 / (1 + np.exp(-score))
            seen, rest = float(chance.var()), float((chance * (1 - chance)).mean())
            share = min(0.9, seen * (1 - assumed.r2) / (assumed.r2 * rest))  # variance over mean (1 - mean)
            sizes = 1 / share - 1
            y = rng.beta(sizes * chance, sizes * (1 - chance))
            return cls(X, left_out, score, y, math.sqrt(share), factor)
        mean, error = target.center + math.sqrt(assumed.r2) * whole * score, math.sqrt(1 - assumed.r2) * whole
        return cls(X, left_out, mean, mean + error * rng.standard_normal(len(mean)), error, factor)

    def plain_errors(self, link: str) -> Vector | None:
        """Standard errors of least squares or maximum likelihood without privacy, the intercept last.

        None for other models, and NaN where coefficients cannot be told apart.
        """
        if link not in ("identity", "logit"):
            return None
        chance = 1 / (1 + np.exp(-self.odds)) if link == "logit" else np.zeros(1)
        weights = chance * (1 - chance) if link == "logit" else np.ones(len(self.X))
        design = np.column_stack([np.delete(self.X, self.baselines, axis=1), np.ones(len(self.X))])
        scale = np.sqrt((design**2).mean(axis=0))
        scale[scale == 0] = 1.0
        information = (design / scale).T @ (weights[:, None] * design / scale) * self.factor
        values = np.linalg.eigvalsh(information)
        if values[0] <= 1e-9 * values[-1]:
            return np.full(design.shape[1], np.nan)
        found: Vector = self.deviation * np.sqrt(np.diag(np.linalg.inv(information))) / scale
        return found

    def run(self, model: Any, made: FitDeclaration, runs: int) -> list[Uncertainty]:
        """Return the uncertainties of fits to the sample; `model` is overwritten."""
        plan, columns = dataclasses.replace(made.plan, before=(), notes=()), made.columns
        stored = 0.0 if plan.solver.standardises else made.intercept
        rows = Quantiser(plan.problem.bounds, columns.center, columns.scale, stored).quantise(self.X)
        neighbours = plan.budget.neighbours
        weight, people = neighbours.weight, neighbours.unit != "row"
        source = Arrays(
            rows,
            made.target.encode(self.y),
            bounds=plan.problem.bounds,
            layout=plan.layout,
            weights=None if weight == 1 else np.full(len(self.X), weight),
            units=None if weight == 1 else len(self.X),
            owners=np.arange(len(self.X)) // neighbours.rows if people else None,
            offsets=np.zeros(len(self.X)) if plan.problem.loss.offset else None,
        )
        found = []
        for seed in range(runs):
            release = execute(plan, Magnified(source, self.factor, plan.n), rng=SeededGenerator(seed))
            model._publish(release, made)
            found.append(model._uncertainty)
        return found


@dataclass(frozen=True, eq=False, repr=False)
class PowerForecast(Printable):
    """Expected standard errors of a fit, from public numbers and stated assumptions."""

    names: tuple[str, ...]  # of coefficients, the intercept first
    deviations: Vector  # expected standard error of each
    sampling: Vector  # that of a fit without privacy; NaN where coefficients cannot be told apart
    hidden: Vector  # share of the runs in which noise hid a direction that matters to the coefficient
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
            Column("without privacy", number),
            Column("multiple", lambda value: f"{value:.2f}"),
            Column("smallest effect", number),
            Column("noise share", percent),
        ]
        parts = (self.deviations, self.sampling, self.multiple, self.smallest_effect, 1 - self.multiple**-2)
        rows: list[tuple[Any, ...]] = [
            (name, *(float(value) if math.isfinite(value) else None for value in row))
            for name, row in zip(self.names, zip(*parts, strict=True), strict=True)
        ]
        notes = [
            f"smallest effect: a coefficient of this size has a p-value below {1 - self.level:.3g} with a "
            f"probability of {self.power:.0%}. multiple: std err over the one of a fit without privacy.",
            "Simulated from public numbers; real records differ from the assumptions, and standard errors in "
            "proportion to (deviation of the errors) / (deviation of the feature).",
        ]
        if (self.hidden > 0).any():
            columns.append(Column("note"))
            marks = [f"{HIDDEN} in {share:.0%} of runs" if share else None for share in self.hidden]
            rows = [(*row, mark) for row, mark in zip(rows, marks, strict=True)]
            notes.append(
                f"{HIDDEN}: the number of records or epsilon is too small for some directions; standard "
                "errors are then as large as the set of the parameter."
            )
        return ResultTable("Expected standard errors", self.facts, tuple(columns), tuple(rows), tuple(notes))


# Real features are correlated, and a hidden direction costs far more than a share that is too large.
CAUTIOUS = Assumptions(correlation=0.3)
WIDE = Assumptions(correlation=0.3, width=20.0)  # bounds are often far wider than the data
HIDDEN_IF_WIDE = (
    "the standard errors will say nothing if bounds are far wider than the data: where the standard "
    "deviation of columns is a twentieth of the width of their bounds, noise hides every coefficient in most "
    "simulations of this fit. Use bounds about six standard deviations wide, more records or a larger epsilon"
)


def plan_with_best_share(
    model: Any,
    declared: Callable[[Plan, float], FitDeclaration],
    plan_fit: Callable[[Any], tuple[Plan, float]],
) -> tuple[Plan, float]:
    """Return the plan whose share for uncertainty gives the smallest standard errors in a simulation.

    A note of the plan says if noise will probably hide them all. `model`: it is not changed; `declared`: the
    fit with a plan and the value of the intercept's feature, both of which are returned; `plan_fit`: plans
    the fit of a model with another share. All is public.
    """
    twin = clone(model).set_params(ledger=None, account=None)
    share, *hidden = _choose_share(twin, declared, plan_fit)
    plan, intercept = plan_fit(twin.set_params(uncertainty=share))
    told = (HIDDEN_ERRORS, HIDDEN_IF_WIDE)
    notes = [note for note, often in zip(told, hidden, strict=True) if often > 0.5][:1]
    others = [note for note in plan.notes if note != HIDDEN_ERRORS]
    return dataclasses.replace(plan, notes=(*others, *notes)), intercept


def _choose_share(
    twin: Any,
    declared: Callable[[Plan, float], FitDeclaration],
    plan_fit: Callable[[Any], tuple[Plan, float]],
) -> tuple[float, float, float]:
    """Return the best share for uncertainty, and how often noise hides even the clearest coefficient.

    That is the one which noise hides in the smallest share of runs: of usual records, and of records within
    wide bounds. `twin`: a model to be overwritten.
    """

    def make(share: float) -> tuple[Plan, float]:
        return plan_fit(twin.set_params(uncertainty=share))

    def simulate(share: float, assumed: Assumptions) -> tuple[float, float]:
        """Mean logarithm of the standard errors; runs in which noise hides a direction count as they are."""
        plan, intercept = make(share)
        made = declared(plan, intercept)
        runs = _Sample.draw(made, assumed).run(twin, made, RUNS)
        variances = [np.diag(each.covariance)[:-1] for each in runs]
        hidden = np.mean([_mostly_hidden(each)[:-1] for each in runs], axis=0)
        return float(np.log(np.mean(variances, axis=0)).mean()), float(hidden.min())

    first = declared(*make(SHARES[0]))
    key = PlanKey(first.plan, (type(twin), first.columns.names))
    return _best_share(_ShareKey(key, simulate))


class _ShareKey:
    """Hash key of a choice of a share, with the function that simulates one."""

    def __init__(self, key: PlanKey, simulate: Callable[[float, Assumptions], tuple[float, float]]) -> None:
        self.key, self.simulate = key, simulate

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ShareKey) and self.key == other.key


@lru_cache(maxsize=64)
def _best_share(question: _ShareKey) -> tuple[float, float, float]:
    found = {share: question.simulate(share, CAUTIOUS) for share in SHARES}
    best = min(SHARES, key=lambda share: found[share][0])
    return best, found[best][1], question.simulate(best, WIDE)[1]


def _mostly_hidden(known: Uncertainty) -> Vector:
    """1 for each coefficient whose variance comes mostly from hidden directions, 0 for others."""
    if known.hidden is None:
        return np.zeros(len(known.estimate))
    share: Vector = np.diag(known.hidden) / np.diag(known.covariance)
    return (share > MOSTLY_HIDDEN).astype(np.float64)


def forecast(
    model: Any,
    declare: Callable[[int, float], FitDeclaration],
    n: int,
    epsilon: float,
    assumed: Assumptions,
    *,
    level: float,
    power: float,
    runs: int = RUNS,
) -> PowerForecast:
    """Return the expected standard errors of a fit.

    `model`: an estimator with the fit's parameters, to be overwritten; `declare`: the fit for a number of
    records and an epsilon, from public facts.
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
    sample = _Sample.draw(made, assumed)
    found = sample.run(model, made, runs)
    deviations = np.median([np.sqrt(np.diag(each.covariance)) for each in found], axis=0)
    sampling = sample.plain_errors(model._link)
    if sampling is None:
        clear = [np.sqrt(np.diag(np.asarray(each.sampling))) for each in found if not each.weak]
        sampling = np.median(clear, axis=0) if clear else np.full(len(deviations), np.nan)
    hidden = np.mean([_mostly_hidden(each) for each in found], axis=0)
    order = [-1, *range(len(deviations) - 1)]
    budget, weighted = made.plan.budget, model.weight_bounds is not None
    facts = (
        (f"{budget.neighbours.noun}s", f"{n:,}"),
        ("epsilon", f"{epsilon:g}"),
        ("delta", f"{budget.delta:.3g}"),
        ("uncertainty", f"{made.plan.solver.hessian_share:.0%} of the budget"),
        ("assumed", assumed.words(labels=isinstance(made.target, Labels), weighted=weighted)),
    )

    def again(records: int, larger: float) -> PowerForecast:
        return forecast(model, declare, records, larger, assumed, level=level, power=power, runs=2)

    return PowerForecast(
        (INTERCEPT, *model.coef_names_),
        deviations[order],
        sampling[order],
        hidden[order],
        facts,
        again,
        n,
        epsilon,
        level,
        power,
    )
