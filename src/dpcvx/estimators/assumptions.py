"""A public model of the records of a fit: assumed distributions, and simulated records drawn from them.

Everything here follows from declarations, public numbers and a fixed seed. No private record is in reach.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcvx.accounting import WEIGHT
from dpcvx.arrays import IntVector, Vector
from dpcvx.data import Arrays, Quantiser
from dpcvx.data.columns import Columns
from dpcvx.data.levels import DeclaredLevels
from dpcvx.data.magnified import Magnified
from dpcvx.data.table import baseline_places
from dpcvx.data.target import Labels, Numbers, Target
from dpcvx.errors import WrongValue
from dpcvx.estimators.planning import FitDeclaration
from dpcvx.noise import SeededGenerator
from dpcvx.plans import execute
from dpcvx.plans.uncertainty import Uncertainty
from dpcvx.solvers.defaults import default
from dpcvx.words import is_number, show

__all__ = ["Assumptions", "SimulatedSample"]

SAMPLE = 4000  # records that are drawn; each counts as often as the number of records asks for
# Pairs are for usual records, and for those of a cautious forecast.
WIDTH: tuple[float, float] = default("estimators.assumptions.WIDTH")
CORRELATION: tuple[float, float] = default("estimators.assumptions.CORRELATION")
SHARE_OF_ONES: tuple[float, float] = default("estimators.assumptions.SHARE_OF_ONES")
SHARE_OF_CLASS: tuple[float, float] = default("estimators.assumptions.SHARE_OF_CLASS")
SHARE_OF_EVENTS: tuple[float, float] = default("estimators.assumptions.SHARE_OF_EVENTS")
SHARE_ABOVE: tuple[float, float] = default("estimators.assumptions.SHARE_ABOVE")
MEAN_OF_AMOUNTS: tuple[float, float] = default("estimators.assumptions.MEAN_OF_AMOUNTS")
MEAN_WEIGHT: tuple[float, float] = default("estimators.assumptions.MEAN_WEIGHT")
TARGET_WIDTH: float = default("estimators.assumptions.TARGET_WIDTH")
SCORE_DEVIATION: float = default("estimators.assumptions.SCORE_DEVIATION")
SKEWNESS: tuple[float, float] = default("estimators.assumptions.SKEWNESS")
STEPS = 1.5  # log-odds of an answer above the first of ordered levels, minus those of the middle one
LOST = 0.1  # share of records that are lost in a period
WEIGHT_SPREAD = 0.7  # standard deviation of the logarithm of weights


@dataclass(frozen=True)
class Assumptions:
    """Public model of the records of a fit; None stands for an unknown number.

    `deviations`: standard deviation of columns of numbers, by name or position, in the user's units.
    `shares`: share of ones of columns of 0 and 1, or of the last of two levels, or a mapping from levels to
    shares. `correlation`: of neighbouring columns; that of others falls as its powers. `target`: standard
    deviation of the target. `mean`: that of an amount. `r2`: share of the target's variance that features
    explain. `share`: of the second class, of events in a period, or of answers above the middle level.
    `mean_weight`: over the largest one. `cautious`: whether unknown numbers are assumed to be worse than
    usual, and columns to be correlated more closely.
    """

    deviations: Mapping[Any, float] = dataclasses.field(default_factory=dict)
    shares: Mapping[Any, Any] = dataclasses.field(default_factory=dict)
    correlation: float | None = None
    target: float | None = None
    mean: float | None = None
    r2: float = 0.3
    share: float | None = None
    mean_weight: float | None = None
    cautious: bool = False

    def __post_init__(self) -> None:
        for name in ("deviations", "shares"):
            if not isinstance(getattr(self, name), Mapping):
                raise WrongValue(f"{name} must map columns to numbers, got {show(getattr(self, name))}.")
        numbers: dict[str, Any] = {
            f"standard deviation of {name}": value for name, value in self.deviations.items()
        }
        numbers |= {"standard deviation of the target": self.target, "mean of the target": self.mean}
        for name, value in numbers.items():
            if value is not None and not is_number(value, 0):
                raise WrongValue(f"The {name} must be positive, got {show(value)}.")
        for name, low in (("r2", -1e-300), ("correlation", -1e-300), ("share", 0.0)):
            value = getattr(self, name)
            if value is not None and not is_number(value, low, 1):
                raise WrongValue(f"{name} must be between 0 and 1, got {show(value)}.")
        for name, given in self.shares.items():
            for value in given.values() if isinstance(given, Mapping) else [given]:
                if not is_number(value, 0, 1):
                    raise WrongValue(f"The share of {name} must be between 0 and 1, got {show(value)}.")
        if self.mean_weight is not None and not (is_number(self.mean_weight, 0) and self.mean_weight <= 1):
            raise WrongValue("mean_weight must be above 0 and at most the largest weight of weight_bounds.")

    @property
    def _width(self) -> float:
        """Width of bounds in standard deviations of their column."""
        return WIDTH[self.cautious]

    @property
    def neighbouring(self) -> float:
        """Correlation of neighbouring columns."""
        return CORRELATION[self.cautious] if self.correlation is None else self.correlation

    def share_of(self, rows: str) -> float:
        """Return the share of the second class; `rows`: column that tells rows of a record apart."""
        usual = {"period": SHARE_OF_EVENTS, "above": SHARE_ABOVE}.get(rows, SHARE_OF_CLASS)
        return usual[self.cautious] if self.share is None else self.share

    def draw_features(self, columns: Columns, count: int, rng: np.random.Generator) -> Vector:
        """Draw the features of records, in the user's units."""
        labels = columns.labels()
        for name in ("deviations", "shares"):
            for key in getattr(self, name):
                if str(key) not in labels and f"x{key}" not in labels:
                    known = ", ".join(labels[:8])
                    raise WrongValue(f"{name} names {show(key)}, which is no column: {known}.")
        X, z = np.empty((count, columns.width)), np.zeros(count)
        for label, span, declared in zip(labels, columns.spans(), columns.levels, strict=True):
            places, c = list(span), self.neighbouring if z.any() else 0.0
            z = c * z + math.sqrt(1 - c**2) * rng.standard_normal(count)
            if declared is not None:
                codes = self._draw_levels(label, declared, z)
                X[:, places] = codes[:, None] == np.array(declared.coded)
                continue
            low, high = columns.low[places], columns.high[places]
            drawn = z[:, None] if len(places) == 1 else rng.standard_normal((count, len(places)))
            X[:, places] = self._draw_numbers(label, drawn, low, high)
        return X

    def _draw_levels(self, label: str, declared: DeclaredLevels, z: Vector) -> NDArray[np.int64]:
        """Return levels, as positions, with the assumed shares; functions of normal variables."""
        names, given = [*map(str, declared.values)], _look_up(self.shares, label)
        shares = np.arange(1.0, len(names) + 1) ** (-2 if self.cautious else -1)
        shares /= shares.sum()
        if given is not None:
            if not isinstance(given, Mapping):
                if len(names) != 2:
                    raise WrongValue(
                        f"shares of {show(label)} must map its levels to numbers, such as "
                        f"{{{names[0]!r}: 0.5}}, got {show(given)}."
                    )
                given = {names[1]: given}
            told = {str(level): float(value) for level, value in given.items()}
            if not {*told} <= {*names} or sum(told.values()) > 1 + 1e-9:
                raise WrongValue(
                    f"shares of {show(label)} must be those of its levels, {', '.join(names[:8])}, and add "
                    f"up to at most 1, got {show(given)}."
                )
            rest = 1 - sum(told.values())
            unknown = len(names) - len(told)
            shares = np.array([told.get(name, rest / max(unknown, 1)) for name in names])
            shares = np.maximum(shares, 1e-9) / np.maximum(shares, 1e-9).sum()
        edges = [NormalDist().inv_cdf(min(each, 1 - 1e-12)) for each in np.cumsum(shares)[:-1]]
        return np.searchsorted(edges, z)

    def _draw_numbers(self, label: str, z: Vector, low: Vector, high: Vector) -> Vector:
        """Return numbers within bounds, as functions of normal variables.

        The smaller the standard deviation of a column is beside the width of its bounds, the more skewed it
        is: the bounds are taken to cover the farthest records.
        """
        share, given = _look_up(self.shares, label), _look_up(self.deviations, label)
        unit = len(low) == 1 and _is_unit(low[0], high[0])
        if share is not None and not (unit and is_number(share)):
            raise WrongValue(
                f"shares names {show(label)}, which has neither levels nor the bounds (0, 1): give its "
                "standard deviation in deviations."
            )
        if unit and given is None:
            rest = NormalDist().inv_cdf(1 - (SHARE_OF_ONES[self.cautious] if share is None else float(share)))
            return np.asarray(z > rest, dtype=np.float64)
        deviation = (high - low) / self._width if given is None else np.array([float(given)])
        spread = np.minimum(SKEWNESS[0] * (high - low) / (WIDTH[0] * deviation), SKEWNESS[1])
        skewed = np.expm1(spread * z - spread**2 / 2) / np.sqrt(np.expm1(spread**2))
        middle = np.minimum((low + high) / 2, low + WIDTH[0] / 2 * deviation)
        found: Vector = (middle + deviation * skewed).clip(low, high)
        return found

    def describe(self, made: FitDeclaration, rows: str = "", *, weighted: bool = False) -> str:
        """Return the assumptions in words; `rows`, `weighted`: as for `SimulatedSample.draw`."""
        columns, target, own = made.columns, made.target, _list_values(self.deviations)
        rest = f"a {_say_fraction(self._width)} of the width of their bounds"
        parts = [
            f"standard deviations: {own}; of other columns {rest}"
            if own
            else f"standard deviations of columns are {rest}"
        ]
        numbers = [place for place, each in enumerate(columns.levels) if each is None]
        spans = columns.spans()
        if any(_is_unit(columns.low[j], columns.high[j]) for place in numbers for j in spans[place]):
            ones = f"{SHARE_OF_ONES[self.cautious]:.0%} ones"
            parts.append(f"columns with bounds (0, 1) are 0 or 1, with {ones}")
        if len(columns.levels) - len(numbers) > bool(rows):
            parts.append(f"shares of levels are as 1, {'1/4, 1/9' if self.cautious else '1/2, 1/3'}, ...")
        if self.shares:
            parts.append(f"other shares: {_list_values(self.shares)}")
        parts.append(f"neighbouring columns have correlation {self.neighbouring:g}, others less (its powers)")
        if isinstance(target, Labels):
            of = {"period": "events come in", "above": "answers above the middle level have"}
            parts.append(f"{of.get(rows, 'the second class has')} a share of {self.share_of(rows):g}")
        else:
            whole = (
                f"a {_say_fraction(TARGET_WIDTH)} of the width of its bounds" if self.target is None else ""
            )
            parts.append(
                f"the standard deviation of the target is {whole or f'{self.target:g}'}, of whose variance "
                f"features explain {self.r2:.0%}"
            )
            if made.plan.problem.loss.link == "log":
                ratio = MEAN_OF_AMOUNTS[self.cautious]
                mean = f"{ratio:g} of its standard deviation" if self.mean is None else f"{self.mean:g}"
                parts.append(f"its mean is {mean}")
        if weighted:
            parts.append(f"the mean weight is {self._mean_weight:.2g} of the largest one")
        return "; ".join(parts)

    @property
    def _mean_weight(self) -> float:
        return MEAN_WEIGHT[self.cautious] if self.mean_weight is None else self.mean_weight

    def draw_weights(self, count: int, rng: np.random.Generator) -> Vector:
        """Draw weights over the largest one."""
        found: Vector = np.exp(WEIGHT_SPREAD * rng.standard_normal(count))
        for _ in range(20):  # a weight above 1 is 1, which lowers the mean
            found = np.minimum(found * (self._mean_weight / found.mean()), 1.0)
        return found

    def draw_amounts(self, whole: float, score: Vector, rng: np.random.Generator) -> tuple[Vector, Vector]:
        """Draw amounts with a standard deviation; return the logarithms of their means, and amounts.

        The means have the variance r2 whole^2, and gamma errors the rest.
        """
        mean = MEAN_OF_AMOUNTS[self.cautious] * whole if self.mean is None else self.mean
        squared = (whole / mean) ** 2
        width = math.sqrt(math.log1p(self.r2 * squared))
        logs = math.log(mean) - width**2 / 2 + width * score
        relative = max((1 - self.r2) * squared / (1 + self.r2 * squared), 1e-6)
        return logs, np.exp(logs) * rng.gamma(1 / relative, relative, len(score))


def _is_unit(low: float, high: float) -> bool:
    """Whether bounds are those of a column of 0 and 1."""
    return bool(low == 0 and high == 1)


def _list_values(given: Mapping[Any, Any]) -> str:
    def value(each: Any) -> str:
        return f"({_list_values(each)})" if isinstance(each, Mapping) else f"{float(each):g}"

    return ", ".join(f"{name} {value(each)}" for name, each in given.items())


def _say_fraction(number: float) -> str:
    return {6: "sixth", 10: "tenth", 12: "twelfth"}.get(int(number), f"1/{number:g}")


def _look_up(given: Mapping[Any, Any], label: str) -> Any:
    """Return what is given for a column, by its name or position; None for nothing."""
    position = label[1:] if label[:1] == "x" and label[1:].isdecimal() else None
    for key, value in given.items():
        if str(key) in (label, position):
            return value
    return None


@dataclass(frozen=True, eq=False)
class SimulatedSample:
    """Simulated records that stand for n."""

    X: Vector  # features of rows in the user's units
    baselines: list[int]  # features that have no coefficient
    odds: Vector  # log-odds of the second class of a row, or mean of the target
    y: Any  # targets of rows in the user's units, after the left side of a formula
    weights: Vector  # of rows, over the largest weight of a record
    owners: IntVector  # number of each row's record
    deviation: float  # of the errors of the target; 1 for classes
    factor: int  # how often each record counts

    @classmethod
    def draw(
        cls, made: FitDeclaration, assumed: Assumptions, rows: str = "", *, weighted: bool = False
    ) -> SimulatedSample:
        """Draw records of a declared fit.

        `rows`: column that tells the rows of a record apart, for models that make several of each;
        `weighted`: whether rows have survey weights.
        """
        columns, target, n = made.columns, made.target, made.plan.n
        factor, rng = max(1, n // SAMPLE), np.random.default_rng(0)
        count = n // factor
        X = assumed.draw_features(columns, count, rng)
        spread = X.std(axis=0)
        parts = (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
        left_out = baseline_places(columns.levels, columns.maps) if made.intercept else []
        own = [*columns.spans()[columns.labels().index(rows)]] if rows else []
        score = np.delete(parts, [*left_out, *own], axis=1).sum(axis=1)
        score /= score.std() or 1.0
        weights = assumed.draw_weights(count, rng) if weighted else np.ones(count)
        neighbours = made.plan.budget.neighbours
        owners = np.arange(count) // (1 if neighbours.unit == "row" else neighbours.rows)
        if rows:
            declared: Any = columns.levels[columns.labels().index(rows)]
            odds, labels = _draw_rows(SCORE_DEVIATION * score, assumed, len(declared), rows, rng)
            steps = odds.shape[1]
            X = np.repeat(X, steps, axis=0)
            X[:, own] = np.tile(np.arange(steps), count)[:, None] == np.array(declared.coded)
            each = np.repeat(weights / steps, steps), np.repeat(owners, steps)
            return cls(X, left_out, odds.ravel(), labels.ravel(), *each, 1.0, factor)
        error = 1.0
        if isinstance(target, Labels):
            share = assumed.share_of(rows)
            mean = math.log(share / (1 - share)) + SCORE_DEVIATION * score
            y = target.classes[(rng.uniform(size=count) < _chance(mean)).astype(int)]
            return cls(X, left_out, mean, y, weights, owners, error, factor)
        usual = 2 * float(np.max(target.scale)) / TARGET_WIDTH
        whole = usual if assumed.target is None else assumed.target
        link = made.plan.problem.loss.link
        if link == "log":
            mean, y = assumed.draw_amounts(whole, score, rng)
        elif link == "logit":
            chance, mean = _chance(score), score
            seen, rest = float(chance.var()), float((chance * (1 - chance)).mean())
            share = min(0.9, seen * (1 - assumed.r2) / (assumed.r2 * rest))  # variance over mean (1 - mean)
            sizes, error = 1 / share - 1, math.sqrt(share)
            y = rng.beta(sizes * chance, sizes * (1 - chance))
        else:
            mean = target.center + math.sqrt(assumed.r2) * whole * score
            error = math.sqrt(1 - assumed.r2) * whole
            y = mean + error * rng.standard_normal(count)
        return cls(X, left_out, mean, y, weights, owners, error, factor)

    def plain_errors(self, link: str) -> Vector | None:
        """Standard errors of least squares or maximum likelihood without privacy, the intercept last.

        None for other models, and NaN where coefficients cannot be told apart.
        """
        if link not in ("identity", "logit"):
            return None
        chance = _chance(self.odds) if link == "logit" else np.zeros(1)
        curvature = chance * (1 - chance) if link == "logit" else np.ones(len(self.X))
        if np.issubdtype(np.asarray(self.y).dtype, np.floating):
            curvature = np.where(np.isfinite(self.y), curvature, 0.0)
        weights = self.weights / self.weights.max()
        design = np.column_stack([np.delete(self.X, self.baselines, axis=1), np.ones(len(self.X))])
        scale = np.sqrt((design**2).mean(axis=0))
        scale[scale == 0] = 1.0
        design /= scale
        information = design.T @ ((weights * curvature)[:, None] * design) * self.factor
        values = np.linalg.eigvalsh(information)
        if values[0] <= 1e-9 * values[-1]:
            return np.full(design.shape[1], np.nan)
        inverse = np.linalg.inv(information)
        meat = design.T @ ((weights**2 * curvature)[:, None] * design) * self.factor
        found: Vector = self.deviation * np.sqrt(np.diag(inverse @ meat @ inverse)) / scale
        return found

    def run(self, model: Any, made: FitDeclaration, runs: int) -> list[Uncertainty]:
        """Return the uncertainties of fits to the sample; `model` is overwritten."""
        plan, columns = dataclasses.replace(made.plan, before=(), notes=()), made.columns
        stored = 0.0 if plan.solver.standardises else made.intercept
        rows = Quantiser(plan.problem.bounds, columns.center, columns.scale, stored).quantise(self.X)
        neighbours = plan.budget.neighbours
        people, weighted = neighbours.unit != "row", neighbours.weight != 1
        source = Arrays(
            rows,
            _transformed(made.target).encode(self.y),
            bounds=plan.problem.bounds,
            layout=plan.layout,
            weights=np.floor(WEIGHT * self.weights).astype(np.int64) if weighted else None,
            units=plan.n // self.factor if weighted else None,
            owners=self.owners if people else None,
            offsets=np.zeros(len(self.X)) if plan.problem.loss.offset else None,
        )
        found = []
        for seed in range(runs):
            release = execute(plan, Magnified(source, self.factor, plan.n), rng=SeededGenerator(seed))
            model._publish(release, made)
            found.append(model._uncertainty)
        return found


def _transformed(target: Target) -> Target:
    """Return a target whose raw values are those that the left side of a formula gave already."""
    if isinstance(target, Numbers):
        return dataclasses.replace(target, transform=None)
    return target


def _chance(odds: Vector) -> Vector:
    found: Vector = 1 / (1 + np.exp(-odds))
    return found


def _draw_rows(
    score: Vector, assumed: Assumptions, steps: int, rows: str, rng: np.random.Generator
) -> tuple[Vector, Vector]:
    """Return log-odds and labels of the rows of each record, shape (records, steps)."""
    share, shape = assumed.share_of(rows), (len(score), steps)
    middle = math.log(share / (1 - share)) + score[:, None]
    if rows == "above":
        odds = middle + np.linspace(STEPS, -STEPS, steps)
        return odds, (odds + rng.logistic(size=(len(score), 1)) > 0).astype(np.float64)
    odds = np.broadcast_to(middle, shape)
    came, lost = rng.uniform(size=shape) < _chance(odds), rng.uniform(size=shape) < LOST
    ended = np.cumsum(came | lost, axis=1) - (came | lost) > 0  # in an earlier period
    return odds, np.where(ended | lost, np.nan, came.astype(np.float64))
