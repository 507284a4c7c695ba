"""Split of a budget among the parts of an engine, from public sizes, before a record is read."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from typing import Any

from dpcvx.accounting import Accountant, Budget, Tight, calibrate, spendable
from dpcvx.accounting.gaussian import gaussian_mu
from dpcvx.errors import Incompatible, WrongValue
from dpcvx.events import Compose, Event, Exponential, Gaussian, PureDP, Repeat
from dpcvx.queries.bin_means import worth_measuring
from dpcvx.queries.multiplicative_weights import updates_needed
from dpcvx.queries.sparse_vector import AboveThreshold
from dpcvx.queries.table_check import objection_to_check
from dpcvx.queries.universe import LARGEST_UNIVERSE, Universe
from dpcvx.solvers.defaults import default

__all__ = ["BIN_MEANS", "CHECK", "METHODS", "BudgetSplit", "check_choice", "choose_method", "split_budget"]

METHODS = ("composition", "histogram", "multiplicative_weights", "warm", "chosen_pairs", "offline")
# Shares of the budget in terms of zCDP: 1/(2 noise^2), epsilon^2/2, eta^2/8.
CHECKS: tuple[float, ...] = default("queries.budget_split.CHECKS")
NET: float = default("queries.budget_split.NET")
RUN_PART: float = default("queries.budget_split.RUN_PART")
CORRECTIONS: int = default("queries.budget_split.CORRECTIONS")
MOST_CORRECTIONS: int = default("queries.budget_split.MOST_CORRECTIONS")
NET_LEVEL: float = default("queries.budget_split.NET_LEVEL")
LARGEST_LEVEL: float = default("queries.budget_split.LARGEST_LEVEL")
FALSE_ALARM: float = default("queries.budget_split.FALSE_ALARM")
ROUNDS: int = default("queries.budget_split.ROUNDS")
CHECK: float = default("queries.budget_split.CHECK")
BIN_MEANS: float = default("queries.budget_split.BIN_MEANS")
CHOICES: float = default("queries.budget_split.CHOICES")
FIRST: float = default("queries.budget_split.FIRST")
CHOICE_PART: float = default("queries.budget_split.CHOICE_PART")
MOST_CELLS = 2**25  # of all pairs together, where pairs are chosen: these take about 2 GB of memory


@dataclass(frozen=True)
class BudgetSplit:
    """Costs of the parts of an engine; their composition `event` is fixed before a record is read."""

    method: str  # one of `METHODS`
    # noise multiplier of the first release (noisy marginals, or the noisy histogram); 0 for none
    start: float = 0.0
    checks: tuple[float, ...] = ()  # noise multipliers of the checks of the engine's own errors
    run: float = 0.0  # epsilon of one run of comparisons; 0 for none
    selection: float = 0.0  # eta of one selection of the worst query of a known family; 0 for none
    oracle: float = 0.0  # noise multiplier that one measurement as a whole is worth; 0 for none
    updates: int = 0  # number of runs, or selections, and of measurements
    # noise multiplier of the counts of recognised cells; 0 for none, as in splits that version 0.1 stored
    counts: float = 0.0
    means: float = 0.0  # noise multiplier of the bin means; 0 for none
    choices: int = 0  # pairs of attributes that are chosen and measured one by one; 0 if all pairs are
    choice: float = 0.0  # eta of one choice
    chosen: float = 0.0  # noise multiplier of the measurement of one chosen pair

    @property
    def event(self) -> Event:
        """Composition of everything that the engine may ever release."""
        return self.event_left(self.updates, self.updates, started=False)

    def event_left(self, runs: int, oracles: int, *, started: bool = True) -> Event:
        """Return the event of further runs and measurements, with the first releases unless ``started``."""
        parts: list[Event] = []
        if not started:
            parts += [
                Gaussian(noise) for noise in (self.start, *self.checks, self.counts, self.means) if noise
            ]
            if self.choices:
                each = (Exponential(self.choice), Gaussian(self.chosen))
                parts += [Repeat(event, self.choices) for event in each]
        for event, count in (
            (PureDP(self.run) if self.run else None, runs),
            (Exponential(self.selection) if self.selection else None, runs),
            (Gaussian(self.oracle) if self.oracle else None, oracles),
        ):
            if event is not None and count > 0:
                parts.append(Repeat(event, count))
        return Compose(tuple(parts))

    def to_json(self) -> str:
        """Return the fields as JSON text, from which numbers are read back exactly."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> BudgetSplit:
        """Read what `to_json` wrote."""
        fields = json.loads(text)
        return cls(**{**fields, "checks": tuple(fields["checks"])})

    def parts(self, first: str) -> tuple[dict[str, Any], ...]:
        """Return every part in plain types, as statements list them; ``first`` names the first release."""
        rows: list[tuple[str, int, Event, float]] = []
        if self.start:
            rows.append((first, 1, Gaussian(self.start), self.start))
        if self.choices:
            rows.append(("FarthestPair", self.choices, Exponential(self.choice), 2 / self.choice))
            rows.append(("NoisyMarginals", self.choices, Gaussian(self.chosen), self.chosen))
        rows += [("NoisyErrors", 1, Gaussian(noise), noise) for noise in self.checks]
        if self.counts:
            rows.append(("NoisyCounts", 1, Gaussian(self.counts), self.counts))
        if self.means:
            rows.append(("NoisyBinSums", 1, Gaussian(self.means), self.means))
        if self.run:
            noise = AboveThreshold(self.run).noise
            rows.append(("AboveThreshold", self.updates, PureDP(self.run), noise))
        if self.selection:
            rows.append(("WorstQuery", self.updates, Exponential(self.selection), 2 / self.selection))
        if self.oracle:
            rows.append(("measurement of one query", self.updates, Gaussian(self.oracle), self.oracle))
        return tuple(
            {
                "question": question,
                "count": count,
                "event": type(event).__name__,
                **dataclasses.asdict(event),
                "sensitivity": 1.0,  # noise is in units of the sensitivity
                "noise": noise,
            }
            for question, count, event, noise in rows
        )


def split_budget(
    method: str,
    universe: Universe,
    n: int,
    n_queries: int,
    budget: Budget,
    accountant: Accountant | None = None,
    *,
    check: float = 0.0,
    bin_means: float = 0.0,
) -> BudgetSplit:
    """Divide a budget among the parts of a method.

    `method`: one of `METHODS`; `n`: number of records; `n_queries`: number of queries that are expected;
    composition answers no more than these; `accountant`: the tightest by default; `RDP` where measurements
    are not all Gaussian releases; `check`: share for the counts of recognised cells, which is taken off all
    other parts alike, and 0 if they would show nothing; `bin_means`: likewise for the means inside bins.
    """
    if method not in METHODS:
        raise WrongValue(f"method must be one of auto, {', '.join(METHODS)}, got {method!r}.")
    if method in ("histogram", "multiplicative_weights") and not universe.listed:
        raise Incompatible(
            f"The schema has {universe.n_cells:,} cells; method {method!r} keeps a histogram of all of them, "
            f"which has at most {LARGEST_UNIVERSE:,}. Use method 'warm'."
        )
    if budget.delta == 0:
        raise Incompatible("The engine's noise is Gaussian, which needs delta > 0: use for instance 1 / n^2.")
    whole = spendable(budget)
    check = 0.0 if objection_to_check(universe, n, budget, check) else check
    bin_means = bin_means if worth_measuring(universe.schema, n, budget, bin_means) else 0.0
    rest = 1 - check - bin_means
    # Close to the noise that the calibration below finds; decides which parts there are.
    about = 1 / (math.sqrt(rest) * gaussian_mu(whole.epsilon, whole.delta))
    updates, choices = 0, 0
    if method == "chosen_pairs":
        choices = pairs_to_choose(universe)
    if method == "composition":
        updates = n_queries
    elif method == "multiplicative_weights":
        updates = _balanced_updates(universe, n, n_queries, about)
    elif method == "offline":
        updates = ROUNDS
    elif method in ("warm", "chosen_pairs"):
        updates = _affordable_corrections(n, n_queries, about)

    def at(noise: float) -> BudgetSplit:
        return dataclasses.replace(
            _split_rest(method, noise, rest, updates, choices),
            counts=noise / math.sqrt(check) if check else 0.0,
            means=noise / math.sqrt(bin_means) if bin_means else 0.0,
        )

    return at(calibrate(lambda noise: at(noise).event, whole, accountant or Tight()))


def _split_rest(method: str, noise: float, rest: float, updates: int, choices: int) -> BudgetSplit:
    """Divide the budget that the check of the data and the means of bins leave.

    `noise`: multiplier of one Gaussian release for the whole budget; `rest`: share that is left; `updates`:
    number of measurements after the start; `choices`: number of pairs that the start chooses.
    """

    def gaussian(part: float) -> float:
        return noise / math.sqrt(rest * part)

    def pure(part: float) -> float:
        return math.sqrt(rest * part) / noise

    checks = tuple(gaussian(part) for part in CHECKS)
    left = 1 - sum(CHECKS)
    if method == "composition":
        return BudgetSplit(method, oracle=gaussian(1 / updates), updates=updates)
    if method == "multiplicative_weights":
        each = 0.5 / updates
        return BudgetSplit(method, run=pure(each), oracle=gaussian(each), updates=updates)
    first = left - NET if updates else left
    start = BudgetSplit(method, gaussian(first), checks)
    if choices:
        part = first * (1 - FIRST) / choices
        start = dataclasses.replace(
            start,
            start=gaussian(first * FIRST),
            choices=choices,
            choice=2 * pure(part * CHOICE_PART),
            chosen=gaussian(part * (1 - CHOICE_PART)),
        )
    if not updates:
        return start
    each = NET / updates
    if method == "offline":
        selection, oracle = 2 * pure(each / 2), gaussian(each / 2)
        return dataclasses.replace(start, selection=selection, oracle=oracle, updates=updates)
    run, oracle = pure(each * RUN_PART), gaussian(each * (1 - RUN_PART))
    return dataclasses.replace(start, run=run, oracle=oracle, updates=updates)


def cells_of_pairs(universe: Universe) -> int:
    """Return the number of cells of all pairs of attributes together."""
    return (sum(universe.shape) ** 2 - sum(size**2 for size in universe.shape)) // 2


def can_choose_pairs(universe: Universe) -> bool:
    """Return whether pairs can be chosen, by the schema alone."""
    return not universe.listed and cells_of_pairs(universe) <= MOST_CELLS


def check_choice(universe: Universe, persons: bool) -> None:
    """Refuse method "chosen_pairs" where pairs cannot be chosen, by public facts.

    `persons`: whether the units are persons. These need a histogram; pairs are chosen only without one.
    """
    without = "Leave out method='chosen_pairs', or --choose-pairs: all pairs of attributes are then measured."
    if persons:
        raise Incompatible(f"Pairs cannot be chosen for persons, who may have several rows. {without}")
    if universe.listed:
        raise Incompatible(
            f"The schema has {universe.n_cells:,} cells, and pairs are chosen only where there are more than "
            f"{LARGEST_UNIVERSE:,}. {without}"
        )
    if (cells := cells_of_pairs(universe)) > MOST_CELLS:
        raise Incompatible(
            f"All pairs of attributes have {cells:,} cells together, and choosing compares all of them with "
            f"a model, {MOST_CELLS:,} at most. Join levels, widen bins or declare fewer columns."
        )


def pairs_to_choose(universe: Universe) -> int:
    """Return how many pairs of attributes are chosen, from public numbers."""
    d = len(universe.shape)
    return min(round(CHOICES * d), math.comb(d, 2))


def _affordable_corrections(n: int, n_queries: int, noise: float) -> int:
    """Return the number of corrections of a warm start, from public numbers; 0 for none.

    The level that comparisons detect is about sqrt(T)/(n mu) for T corrections on one share of the budget. T
    is the largest number whose level is below `NET_LEVEL` of the records, between `CORRECTIONS` and
    `MOST_CORRECTIONS`: it grows like n^2.
    """

    def level(T: int) -> float:
        run = AboveThreshold(math.sqrt(NET / T * RUN_PART) / noise)
        return run.distance(FALSE_ALARM / n_queries) / n

    if level(CORRECTIONS) > LARGEST_LEVEL:
        return 0
    T = CORRECTIONS
    while T < MOST_CORRECTIONS and level(T + 1) <= NET_LEVEL:
        T += 1
    return T


def _balanced_updates(universe: Universe, n: int, n_queries: int, noise: float) -> int:
    """Return the number of updates of [U15] Figure 3 at the level that its own noise allows, for scale 1.

    A run with T updates costs epsilon = sqrt(1/(2T))/noise and detects errors above about
    (4/n) (1/epsilon) log(n_queries); T = 64 log|X| / level^2 updates are needed for that level.
    """
    T = 1
    while n_queries > T:
        level = 4 * math.sqrt(2 * T) * noise * math.log(max(n_queries, 2)) / n
        if updates_needed(1.0, min(level, 1.0), universe.n_cells) <= T:
            break
        T *= 2
    return min(T, n_queries)


def choose_method(universe: Universe, n_queries: int) -> str:
    """Return the method with the least noise on one statistic, from public sizes.

    In units of 1/(n mu) the noise is 2 sqrt(queries) for composition, sqrt(|X|) for a noisy histogram (on the
    share of half of the cells), and about d + 1 for noisy pairs of d attributes. Multiplicative weights
    without a warm start are never chosen: they learn from far larger errors only.
    """
    d = len(universe.shape)
    noise = {
        "composition": 2 * math.sqrt(n_queries),
        "histogram": math.sqrt(universe.n_cells) if universe.listed else math.inf,
        "warm": d + 1.0,
    }
    return min(noise, key=lambda method: noise[method])
