"""Worst-case neighbours of each kind of mechanism, and what an attacker learns from its released transcript.

A case is a function that runs a private release on one of two neighbours, under `watching`, so that the
attacker's statistic, the log-likelihood ratio of all answers, follows from the answers without noise on both.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpcvx.accounting import Budget, Tight
from dpcvx.arrays import Vector
from dpcvx.audit.distinguish import (
    ErrorRates,
    best_rates,
    epsilon_of_mu,
    lower_epsilon,
    lower_mu,
    lower_range,
)
from dpcvx.audit.watch import WatchedRun, epsilon_between, mu_between, range_between, watching
from dpcvx.data.memory import source
from dpcvx.data.units import persons as find_persons
from dpcvx.domains import GroupBall, L1Ball, L2Ball
from dpcvx.events import Compose, Event, Exponential, Gaussian, PureDP, count_leaves
from dpcvx.losses import Huber, Logistic
from dpcvx.mechanisms import (
    NoisyDifference,
    NoisyGroup,
    NoisyMoments,
    NoisyPair,
    NoisyQuantile,
    NoisyTarget,
    quantile_grid,
)
from dpcvx.noise import SeededGenerator
from dpcvx.plans import Answers, Oracle, Plan
from dpcvx.problem import Bounds, Problem
from dpcvx.queries import Attribute, Counts, NoisyMarginals, Regression, Schema, Universe
from dpcvx.queries.mechanisms import NoisyHistogram
from dpcvx.queries.private_side import CellRows, PersonCells
from dpcvx.queries.sparse_vector import AboveThreshold
from dpcvx.solvers import NoisyFrankWolfe, NoisyGradientDescent, Standardised
from dpcvx.tuning.metrics import metric_of
from dpcvx.tuning.score import NoisyScore

__all__ = ["CASES", "AuditedCase", "WorstCase", "audit_case", "sparse_vector_epsilon"]

Run = Callable[[int, Answers], Any]


@dataclass(frozen=True, eq=False)
class WorstCase:
    """A private release and two neighbours between which it is worst, or nearly."""

    name: str
    words: str  # the pair of data sets
    event: Event  # claimed
    run: Run  # run(0 or 1, answers): the release on D or on D'
    delta: float = 1e-5

    @property
    def epsilon(self) -> float:
        """Claimed epsilon."""
        return Tight().epsilon(self.event, self.delta)


@dataclass(frozen=True)
class AuditedCase:
    """Claimed and audited epsilon of a case."""

    name: str
    words: str
    delta: float
    claimed: float
    replayed: float  # epsilon of the exact ratio of signal and noise in one transcript; no statistics
    audited: float  # lower confidence bound from runs
    runs: int

    @property
    def share(self) -> float:
        """Audited part of the claimed epsilon."""
        return self.audited / self.claimed

    @property
    def holds(self) -> bool:
        """Whether neither exceeds what is claimed."""
        return max(self.audited, self.replayed) <= self.claimed * (1 + 1e-6)


def audit_case(case: WorstCase, runs: int, failure: float, seed: int = 0, factor: float = 1.0) -> AuditedCase:
    """Attack a case: replay one pair of runs, then tell many runs on D from many on D'.

    `runs`: on each of both data sets; `failure`: chance that the bound is wrong; `factor`: of the noise, for
    controls.
    """
    kinds = {type(leaf) for leaf in count_leaves(case.event)}
    replayed = 0.0
    statistics: tuple[list[float], list[float]] = ([], [])
    for k in range(runs):
        for side in (0, 1):
            first, second = _pair(case, side, 2 * (seed + k) + side, factor)
            statistics[side].append(_log_ratio(first, second, factor) * (1 - 2 * side))
            if k == 0:
                replayed = max(replayed, _replayed(first, second, kinds, case.delta, factor))

    def convert(rates: ErrorRates) -> float:
        return _convert(rates, kinds, case.delta)

    audited = convert(best_rates(np.array(statistics[0]), np.array(statistics[1]), failure, convert))
    return AuditedCase(case.name, case.words, case.delta, case.epsilon, replayed, audited, runs)


def _pair(case: WorstCase, side: int, seed: int, factor: float) -> tuple[WatchedRun, WatchedRun]:
    rng = SeededGenerator(seed)
    with watching(seed, factor=factor) as first:
        case.run(side, Answers(rng))
    with watching(seed, first) as second:
        case.run(1 - side, Answers(rng))
    return first, second


def _log_ratio(first: WatchedRun, second: WatchedRun, factor: float) -> float:
    """Return log p(answers | own data) - log p(answers | other data)."""
    total = 0.0
    for one, other in zip(first.answers, second.answers, strict=True):
        if one.kind == "selection":
            chosen = int(one.numbers[0])
            total += _log_chance(one.exact / factor, chosen) - _log_chance(other.exact / factor, chosen)
        elif one.kind == "gaussian":
            own, far = ((one.numbers - each.exact) / (factor * one.deviations) for each in (one, other))
            total += float((far**2 - own**2).sum()) / 2
        elif one.kind == "laplace":
            own, far = (abs(one.numbers - each.exact) / (factor * one.deviations) for each in (one, other))
            total += float((far - own).sum())
    return total


def _log_chance(weights: Vector, chosen: int) -> float:
    largest = float(weights.max())
    return float(weights[chosen]) - largest - math.log(float(np.exp(weights - largest).sum()))


def _replayed(first: WatchedRun, second: WatchedRun, kinds: set[type], delta: float, factor: float) -> float:
    """Return epsilon of the transcript: mu from all Gaussian answers, the range of a single selection."""
    pairs = list(zip(first.answers, second.answers, strict=True))
    if kinds == {PureDP}:
        return sum(epsilon_between(a, b) / factor for a, b in pairs)
    ranges = [range_between(a, b) / factor for a, b in pairs if a.kind == "selection"]
    mu = math.sqrt(sum((mu_between(a, b) / factor) ** 2 for a, b in pairs if a.kind == "gaussian"))
    if kinds == {Exponential} and len(ranges) == 1:
        return Tight().epsilon(Exponential(ranges[0]), delta) if ranges[0] else 0.0
    parts = [Exponential(each) for each in ranges if each] + ([Gaussian(1 / mu)] if mu else [])
    return Tight().epsilon(Compose(tuple(parts)), delta) if parts else 0.0


def _convert(rates: ErrorRates, kinds: set[type], delta: float) -> float:
    if kinds == {Exponential}:
        eta = lower_range(rates)
        return Tight().epsilon(Exponential(eta), delta) if eta else 0.0
    if kinds == {PureDP}:
        return lower_epsilon(rates, 0.0)
    return epsilon_of_mu(lower_mu(rates), delta)


def _plan_run(plan: Plan, sources: tuple[Any, ...]) -> Run:
    def run(side: int, answers: Answers) -> Any:
        data = sources[side].within(plan.problem.bounds)
        return plan.solver.run(plan, Oracle(plan, data, answers.rng, answers=answers))

    return run


def _gradient() -> WorstCase:
    """n records at x, y; the last one has its label turned: both slopes are at their bound."""
    n, delta = 10, 1e-5
    problem = Problem(Huber(0.5), L2Ball(1.0), bounds=Bounds(1.0, 1.0), d=1)
    plan = NoisyGradientDescent(4, step=1e-3, momentum=0.0).plan(problem, n, Budget(8.0, delta), Tight())
    turned = np.r_[-np.ones(n - 1), 1.0]
    sources = tuple(source(np.ones((n, 1)), y, bounds=problem.bounds) for y in (-np.ones(n), turned))
    return WorstCase("gradient", _gradient.__doc__ or "", plan.event, _plan_run(plan, sources), delta)


def _selection() -> WorstCase:
    """Half of the records pull to one vertex and half to the other; one record changes sides."""
    n, delta = 10, 1e-5
    problem = Problem(Huber(0.5), L1Ball(1.0), bounds=Bounds(1.0), d=1)
    plan = NoisyFrankWolfe(1).plan(problem, n, Budget(4.0, delta), Tight())
    y = np.r_[-np.ones(n // 2), np.ones(n // 2)]
    turned = y.copy()
    turned[0] = 1.0
    sources = tuple(source(np.ones((n, 1)), each, bounds=problem.bounds) for each in (y, turned))
    return WorstCase("selection", _selection.__doc__ or "", plan.event, _plan_run(plan, sources), delta)


def _choice(case: Callable[[], WorstCase], question: Any, rows: tuple[Vector, Vector]) -> WorstCase:
    """Return the case of one draw among many, at theta = 0, where all records have the same slope."""
    n, problem = question.n, question.problem
    sources = tuple(source(X, -np.ones(n), bounds=problem.bounds) for X in rows)

    def run(side: int, answers: Answers) -> Any:
        def draw(rng: Any) -> int:
            (slopes,) = question.start(sources[side])
            return int(question(slopes, np.zeros(problem.shape), (), sources[side], rng))

        return answers.give((0,), draw)

    return WorstCase(question.traits.question, case.__doc__ or "", question.event, run)


def _group_selection() -> WorstCase:
    """All records but one raise two scores alike; one raises the first and lowers the second, or reversed."""
    n, groups = 10, ((0, 1), (2, 3))
    problem = Problem(Huber(0.5), GroupBall(groups, 1.0), bounds=Bounds(1.0), d=4)
    one, other = np.ones((n, 4)), np.ones((n, 4))
    one[0, 2:] = other[0, :2] = -1.0
    return _choice(_group_selection, NoisyGroup(problem, n, 4.0, groups), (one, other))


def _pair_selection() -> WorstCase:
    """As for groups: one record raises the score of one pair and lowers that of the other, or reversed."""
    n, pairs = 10, ((0, 1), (2, 3))
    problem = Problem(Huber(0.5), L2Ball(1.0), bounds=Bounds(1.0), d=4)
    one, other = np.ones((n, 4)), np.ones((n, 4))
    one[0, 2] = other[0, 0] = -1.0
    return _choice(_pair_selection, NoisyPair(problem, n, 4.0, pairs, 1.0), (one, other))


def _moments() -> WorstCase:
    """One row is replaced by its negative; for mean squares, a row at the centre by one at the bound."""
    n, delta = 10, 1e-5
    problem = Problem(Huber(0.5), L2Ball(1.0), bounds=Bounds(1.0), d=2)
    multiplier = 1.0
    means, squares = (NoisyMoments(problem, n, order, multiplier) for order in (1, 2))
    questions = (means, squares)
    event = Compose(tuple(each.event for each in questions))
    rows = np.zeros((n, 2))
    one, other = rows.copy(), rows.copy()
    one[0], other[0] = 1.0, -1.0
    sources = tuple(source(each, np.zeros(n), bounds=problem.bounds) for each in (one, other))

    def run(side: int, answers: Answers) -> None:
        for place, question in enumerate(questions):
            centers = None if place == 0 else np.ones(2)

            def draw(rng: Any, question: Any = question, centers: Any = centers) -> Any:
                return question(centers, data=sources[side], rng=rng)

            answers.give((place,), draw)

    return WorstCase("moments", _moments.__doc__ or "", event, run, delta)


def _quantile() -> WorstCase:
    """As many ranks above the quantile as below; one record moves from the lowest cell to the highest."""
    n, delta, eta = 40, 1e-5, 4.0
    question = NoisyQuantile(n, n // 2, eta)
    grid = quantile_grid()
    middle = float(grid[len(grid) // 2])  # 0: as many parts of the grid are below as above
    # c = rank - k below the middle, and rank + k above it, where k is the same on both sides.
    k = 2
    cells = np.r_[np.full(n // 2 - k, -np.inf), np.full(2 * k, middle), np.full(n // 2 - k, np.inf)]
    cells = np.where(
        cells == -np.inf, float(grid[0]) * 2, np.where(cells == np.inf, float(grid[-1]) * 2, cells)
    )
    moved = cells.copy()
    moved[0] = cells[-1]

    def run(side: int, answers: Answers) -> Any:
        return answers.give((0,), lambda rng: question((cells, moved)[side], rng))

    return WorstCase("quantile", _quantile.__doc__ or "", question.event, run, delta)


def _target() -> WorstCase:
    """A target at one end of its range is replaced by one at the other."""
    n, delta = 10, 1e-5
    question = NoisyTarget(n, 0.6)
    y = np.zeros(n)
    sources = tuple(source(np.zeros((n, 1)), np.r_[end, y[1:]], bounds=Bounds(1.0)) for end in (-1.0, 1.0))

    def run(side: int, answers: Answers) -> Any:
        return answers.give((0,), lambda rng: question(0.0, 1.0, data=sources[side], rng=rng))

    return WorstCase("target", _target.__doc__ or "", question.event, run, delta)


def _standardised_sources(bounds: Bounds, d: int) -> tuple[int, tuple[Any, Any]]:
    """All rows but one lie about their mean, so that the last one is as far away as rows may be."""
    n = 2000
    rng = np.random.default_rng(0)
    rows, y = 0.05 * rng.choice([-1.0, 1.0], (n, d)), rng.choice([-1.0, 1.0], n)
    found = []
    for end in (-1.0, 1.0):
        X, targets = rows.copy(), y.copy()
        X[-1], targets[-1] = end, 1.0
        found.append(source(X, targets, bounds=bounds))
    return n, (found[0], found[1])


def _standardised() -> WorstCase:
    """All rows lie about their mean but one, which stays longest when standardised and is turned around."""
    delta, d, bounds = 1e-5, 2, Bounds(1.0)
    n, sources = _standardised_sources(bounds, d)
    problem = Problem(Logistic(), L2Ball(1.0), bounds=bounds, d=d)
    inner = NoisyGradientDescent(4, step=1e-2, momentum=0.0)
    plan = Standardised(inner, intercept=False).plan(problem, n, Budget(8.0, delta), Tight())
    return WorstCase("standardised", _standardised.__doc__ or "", plan.event, _plan_run(plan, sources), delta)


def _private_bounds() -> WorstCase:
    """Ranks are as close to both quantiles as possible; one cell moves from the lowest to the highest."""
    from dpcvx.estimators import PrivateLogisticRegression

    n, delta, far = 2000, 1e-5, 1e6

    def make() -> Any:
        settings: dict[str, Any] = {"epsilon": 8.0, "delta": delta, "bounds": "private", "classes": (0, 1)}
        return PrivateLogisticRegression(**settings, n_iter=4, check=0)

    plan = make().plan(n, 1)
    quantile: Any = plan.before[0].mechanism
    rank, k = quantile.rank, 2
    body = np.zeros(n - 2 * (rank + k))
    end = np.full(rank - k, far)
    cells = np.concatenate([-end, np.full(2 * k, -1.0), body, np.full(2 * k, 1.0), end])
    moved = cells.copy()
    moved[0] = far
    y = np.tile([0, 1], n // 2)

    def run(side: int, answers: Answers) -> None:
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            make().fit((cells, moved)[side][:, None], y)

    return WorstCase("private bounds", _private_bounds.__doc__ or "", plan.event, run, delta)


def _difference() -> WorstCase:
    """A row is mirrored at the line between both points, at which its slope has opposite signs."""
    n, delta = 10, 1e-5
    problem = Problem(Huber(0.05), L2Ball(2.0), bounds=Bounds(1.0, 1.0), d=2)
    question = NoisyDifference(problem, n, 1.0, 1.2)
    rows = np.zeros((n, 2))
    ends = np.array([[0.06, 0.998], [0.06, -0.998]])
    sources = tuple(source(np.r_[rows[1:], [end]], np.zeros(n), bounds=problem.bounds) for end in ends)

    def run(side: int, answers: Answers) -> Any:
        points = np.array([2.0, 0.0]), np.array([-2.0, 0.0])
        return answers.give((0,), lambda rng: question(*points, data=sources[side], rng=rng))

    # With probability 1 every record is in the sample: the event is a Gaussian one of twice the weight.
    return WorstCase("difference", _difference.__doc__ or "", Gaussian(0.6), run, delta)


def _counts() -> WorstCase:
    """A person moves from one cell of the histogram of a query engine to another."""
    n, delta = 10, 1e-5
    universe = Universe(Schema((Attribute("a", ("x", "y"), "y"), Attribute("b", ("x", "y"), "y"))))
    question = NoisyHistogram(universe, n, 0.6)
    codes = np.zeros(n, dtype=np.int64)
    moved = codes.copy()
    moved[0] = 3
    data = tuple(Counts(universe, each) for each in (codes, moved))

    def run(side: int, answers: Answers) -> Any:
        return answers.give((0,), lambda rng: question(data[side], rng))

    return WorstCase("histogram of an engine", _counts.__doc__ or "", question.event, run, delta)


def _marginals() -> WorstCase:
    """A person moves to the cell whose marginals are furthest away, by comparison of all."""
    n, delta, sizes = 10, 1e-5, (2, 2, 2)
    universe = Universe(Schema(tuple(Attribute(name, ("x", "y"), "y") for name in "abc")))
    question = NoisyMarginals(sizes, n, 0.6)
    codes = np.zeros(n, dtype=np.int64)
    data = []
    for cell in range(8):
        codes[0] = cell
        data.append(Counts(universe, codes.copy()))

    def furthest(cell: int) -> float:
        distance = 0.0
        with watching(0) as seen:
            for each in (0, cell):
                Answers(SeededGenerator(0)).give((0,), _asking(question, data[each]))
        one, other = seen.answers
        distance = mu_between(one, other)
        return distance

    other = max(range(1, 8), key=furthest)

    def run(side: int, answers: Answers) -> Any:
        return answers.give((0,), _asking(question, data[other * side]))

    return WorstCase("marginals of an engine", _marginals.__doc__ or "", question.event, run, delta)


def _regression_of_cells(persons: bool) -> tuple[Plan, tuple[Any, Any]]:
    """Return the plan of a measured regression, and all records in one cell, or the last one in another."""
    n, levels = 10, ("x", "y")
    schema = Schema((Attribute("target", levels, "y"), Attribute("feature", levels, "y")))
    query = Regression("target", ("feature",), loss=Huber(0.5), radius=1.0, intercept=False)
    compiled: Any = query.compile(schema, n)
    units = find_persons(np.repeat(np.arange(n), 2)) if persons else None  # two rows each
    budget = Budget(8.0, 1e-5)
    if units is not None:
        budget = Budget(8.0, 1e-5, unit=units.neighbours.unit, weight=units.neighbours.weight)
    plan = NoisyGradientDescent(4, step=1e-3, momentum=0.0).plan(compiled.problem, n, budget, Tight())
    sources = []
    for last in levels:
        table = {"target": np.array(["x"] * (n - 1) + [last]), "feature": np.full(n, "y")}
        if persons:
            table = {name: np.repeat(column, 2) for name, column in table.items()}
        counts = Counts.of(Universe(schema), table, units=units)
        sources.append((PersonCells if persons else CellRows)(compiled, counts))
    return plan, (sources[0], sources[1])


def _regression() -> WorstCase:
    """A record of a query engine moves to the cell with the other target; both slopes are at their bound."""
    plan, sources = _regression_of_cells(persons=False)
    return WorstCase(
        "regression of an engine", _regression.__doc__ or "", plan.event, _plan_run(plan, sources)
    )


def _regression_of_persons() -> WorstCase:
    """Both rows of a person move to the cell with the other target; both slopes are at their bound."""
    plan, sources = _regression_of_cells(persons=True)
    words = _regression_of_persons.__doc__ or ""
    return WorstCase("regression about persons", words, plan.event, _plan_run(plan, sources))


def _asking(question: Any, data: Any) -> Callable[[Any], Vector]:
    def draw(rng: Any) -> Vector:
        weights = question.weights
        parts = question(data, rng)
        return np.concatenate([weights[len(part.attributes) - 1] * part.values.ravel() for part in parts])

    return draw


def _score() -> WorstCase:
    """A record that the model predicts well is replaced by one that it does not."""
    from dpcvx.estimators import PrivateLogisticRegression

    n = 40
    X = np.linspace(-1, 1, n)[:, None]
    y = (X[:, 0] > 0).astype(int)
    settings: dict[str, Any] = {"bounds": (-1, 1), "classes": (0, 1), "random_state": 0, "check": 0}
    model = PrivateLogisticRegression(epsilon=100.0, delta=1e-5, standardize=False, **settings).fit(X, y)
    question = NoisyScore(metric_of(model, "accuracy", None, n_classes=2), n, PureDP(2.0))
    turned = y.copy()
    turned[-1] = 1 - turned[-1]

    def run(side: int, answers: Answers) -> Any:
        return answers.give((0,), lambda rng: question(model, X, (y, turned)[side], rng))

    return WorstCase("private score", _score.__doc__ or "", question.event, run, 0.0)


def sparse_vector_epsilon(epsilon: float, below: int = 60) -> float:
    """Return the log-ratio of one run of comparisons between two neighbours, by quadrature: no statistics.

    Event: so many scores below, then one above; all scores but the last are larger on the neighbour by the
    sensitivity, and the last one is smaller.
    """
    comparison = AboveThreshold(epsilon)
    first, second = (scale * 2.0**-30 / comparison.sensitivity for scale in comparison.scales)
    t = np.linspace(-40 * first, 40 * first, 40_001)
    density = np.exp(-abs(t) / first) / (2 * first)

    def tail(x: Vector) -> Vector:
        """P(noise of a score >= x)."""
        return np.where(
            x > 0, np.exp(-np.maximum(x, 0) / second) / 2, 1 - np.exp(np.minimum(x, 0) / second) / 2
        )

    found = 0.0
    for level in np.linspace(-6 * second, 6 * second, 25):
        chances = []
        for moved in (0.0, 1.0):
            stays = np.maximum(1 - tail(t - level - moved), 1e-300)
            run = below * np.log(stays) + np.log(tail(t - level + 12 * second + moved))
            chances.append(float((density * np.exp(run)).sum()))
        if min(chances) > 0:
            found = max(found, abs(math.log(chances[0] / chances[1])))
    return found


CASES: dict[str, Callable[[], WorstCase]] = {
    "gradient": _gradient,
    "selection": _selection,
    "group": _group_selection,
    "pair": _pair_selection,
    "moments": _moments,
    "target": _target,
    "quantile": _quantile,
    "standardised": _standardised,
    "private bounds": _private_bounds,
    "difference": _difference,
    "histogram of an engine": _counts,
    "marginals of an engine": _marginals,
    "regression of an engine": _regression,
    "regression about persons": _regression_of_persons,
    "private score": _score,
}
