"""The public plan of an engine: mechanisms, noise and price, fixed before a record is read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dpcvx.accounting import Accountant, Budget, Neighbours, Tight, sampler_delta, spendable
from dpcvx.mechanisms import NoisyCounts
from dpcvx.plans import Price, Solver
from dpcvx.queries.bin_means import NoisyBinSums, bin_sums_of
from dpcvx.queries.budget_split import (
    BIN_MEANS,
    CHECK,
    FALSE_ALARM,
    BudgetSplit,
    can_choose_pairs,
    choose_method,
    split_budget,
)
from dpcvx.queries.chosen_pairs import ChosenPairs
from dpcvx.queries.compiled import TOLERANCE
from dpcvx.queries.error_bars import COMPARISON_FAILURE
from dpcvx.queries.marginals import (
    LARGEST_PAIR_NOISE,
    MOST_LOCAL_PAIRS,
    MOST_LOCAL_TRIPLES,
    MOST_PAIRS,
    MOST_TRIPLES,
    NoisyMarginals,
    marginal_order,
)
from dpcvx.queries.measuring import Measurer
from dpcvx.queries.mechanisms import NoisyErrors, NoisyHistogram
from dpcvx.queries.schema import Schema
from dpcvx.queries.sparse_vector import AboveThreshold
from dpcvx.queries.table_check import counts_of
from dpcvx.queries.universe import Universe

__all__ = ["EnginePlan", "engine_facts", "objection_to_sizes", "usual_facts"]

EXPECTED = 5000  # queries, unless an engine is told otherwise
DIFFERENT_IDS, DECLARED = "the different ids", "declared"  # ways of counting persons


def engine_facts(
    universe: Universe,
    n: int,
    n_queries: int,
    budget: Budget,
    *,
    method: str,
    accountant: str,
    check: float,
    bin_means: float,
    persons: str | None = None,
) -> dict[str, Any]:
    """Return the public facts by which an engine is known again.

    The usual shares of the check and of bin means are left out, so that engines of earlier versions, which
    have none, are found. `persons`: how persons are counted, one of `DIFFERENT_IDS` and `DECLARED`; None if
    rows are the units.
    """
    return {
        **({} if check == CHECK else {"check": float(check)}),
        **({} if bin_means == BIN_MEANS else {"bin_means": float(bin_means)}),
        "schema": universe.schema.identity(),
        "n": n,
        "n_queries": n_queries,
        "budget": [budget.epsilon, budget.delta],
        "method": method,
        "accountant": accountant,
        **({} if persons is None else {"unit": "person", "persons": persons}),
    }


def usual_facts(
    schema: Schema,
    n: int,
    budget: Budget,
    *,
    check: float = CHECK,
    persons: str | None = None,
    method: str = "auto",
) -> dict[str, Any]:
    """Return the public facts of an engine whose other settings are the defaults, as those of a server."""
    universe = Universe(schema)
    return engine_facts(
        universe,
        n,
        EXPECTED,
        budget,
        method=choose_method(universe, EXPECTED) if method == "auto" else method,
        accountant=Tight.__name__,
        check=check,
        bin_means=BIN_MEANS,
        persons=persons,
    )


@dataclass(frozen=True, eq=False)
class EnginePlan:
    """Everything that an engine may ever ask, from public sizes and its budget split."""

    universe: Universe
    n: int  # number of units
    n_queries: int  # number of queries that are expected
    budget: Budget
    split: BudgetSplit
    accountant: Accountant
    solver: Solver | None  # of single queries; None for the default ones

    @property
    def neighbours(self) -> Neighbours:
        """Data sets that must look alike."""
        return self.budget.neighbours

    @cached_property
    def start(self) -> NoisyMarginals | NoisyHistogram | None:
        """Mechanism of the first release, if there is one."""
        noise = self.split.start
        if noise == 0:
            return None
        if self.split.method == "histogram":
            return NoisyHistogram(self.universe, self.n, noise, self.neighbours)
        shape = self.universe.shape
        listed = self.universe.listed
        most = (MOST_PAIRS, MOST_TRIPLES) if listed else (MOST_LOCAL_PAIRS, MOST_LOCAL_TRIPLES)
        order = 1 if self.split.choices else marginal_order(shape, self.n, noise, self.neighbours, *most)
        return NoisyMarginals(shape, self.n, noise, order, self.neighbours)

    @cached_property
    def choice(self) -> ChosenPairs | None:
        """Mechanism that chooses pairs and measures them, if not all pairs are measured."""
        split = self.split
        if not split.choices:
            return None
        return ChosenPairs(self.universe.shape, self.n, split.choices, split.choice, split.chosen)

    @cached_property
    def counts(self) -> NoisyCounts | None:
        """Mechanism that counts recognised cells, if it was paid for."""
        noise = self.split.counts
        return counts_of(self.universe, self.n, noise, self.neighbours) if noise else None

    @cached_property
    def bin_sums(self) -> NoisyBinSums | None:
        """Mechanism that measures the means inside bins, if it was paid for."""
        noise = self.split.means
        return bin_sums_of(self.universe.schema, self.n, noise, self.neighbours) if noise else None

    @cached_property
    def measurer(self) -> Measurer | None:
        """Measurements of single queries; they may fail to sample by half of `reserve`, all together."""
        if self.split.oracle == 0:
            return None
        # A plan may fail by a thousandth of its delta over 1 + e^0 at least.
        delta = self.budget.delta / sampler_delta(self.budget.epsilon, 1.0)
        return Measurer(self.n, self.split.oracle, delta / self.split.updates, self.solver, self.neighbours)

    @cached_property
    def comparison(self) -> AboveThreshold | None:
        """One run of comparisons, if there are any."""
        return AboveThreshold(self.split.run, self.neighbours) if self.split.run else None

    @cached_property
    def level(self) -> float:
        """Error, in units of its sensitivity, that the noise of a run hides."""
        return AboveThreshold(self.split.run).distance(FALSE_ALARM / self.n_queries)

    @cached_property
    def largest_below(self) -> float:
        """Upper bound, in the same units, on an error that was found to be below the level.

        However a query was chosen, it exceeds the bound only if the difference of its noise and the threshold
        of some run does, since its own noise is independent of all thresholds.
        """
        failure = COMPARISON_FAILURE / self.split.updates
        return self.level + AboveThreshold(self.split.run).distance(failure) + TOLERANCE

    @property
    def price(self) -> Price:
        """Price of all of it."""
        parts = self.split.parts(type(self.start).__name__)
        return Price(self.split.event, parts, self.sampler_failure, self.budget, self.accountant)

    @property
    def sampler_failure(self) -> float:
        """Total variation of all noise: the first releases', and as much as the rest may fail by.

        Measurements may fail by half of the reserve (`Measurer`). Selections are exact, and comparisons draw
        from a law that is exact up to e^-128.
        """
        own = 0.0 if self.start is None else self.start.failure
        own += sum(NoisyErrors((), 1, noise).failure for noise in self.split.checks)
        own += sum(each.failure for each in (self.choice, self.counts, self.bin_sums) if each is not None)
        return own + 0.5 * self.reserve

    @property
    def reserve(self) -> float:
        """Total variation that all samplers may have: their share of delta over 1 + e^epsilon."""
        share = self.budget.delta - spendable(self.budget).delta
        return share / sampler_delta(self.budget.epsilon, 1.0)


def objection_to_sizes(
    schema: Schema, n: int, budget: Budget, check: float = CHECK, method: str = "auto"
) -> str:
    """Say what an engine cannot measure at these sizes, before it is paid for; empty if it measures pairs.

    `schema`, `n`, `budget`, `check`, `method`: as `QueryEngine` is given them. All of it is public.
    """
    universe, accountant = Universe(schema), Tight()
    method = choose_method(universe, EXPECTED) if method == "auto" else method
    split = split_budget(method, universe, n, EXPECTED, budget, accountant, check=check, bin_means=BIN_MEANS)
    plan = EnginePlan(universe, n, EXPECTED, budget, split, accountant, None)
    if len(universe.shape) < 2 or not isinstance(plan.start, NoisyMarginals) or plan.start.order > 1:
        return ""
    if plan.choice is not None:
        if plan.choice.least_noise <= LARGEST_PAIR_NOISE:
            return ""
        return (
            f"With {n:,} people, {len(universe.shape)} columns and epsilon {budget.epsilon:g}, the noise "
            "even on chosen tables of two columns is larger than any dependence. Declare fewer columns, or a "
            "larger epsilon."
        )
    if not can_choose_pairs(universe) or objection_to_sizes(schema, n, budget, check, "chosen_pairs"):
        instead = "."
    else:
        instead = "; or choose the tables of two columns that are measured (--choose-pairs)."
    return (
        f"With {n:,} people, {len(universe.shape)} columns of {sum(universe.shape):,} levels and bins, and "
        f"epsilon {budget.epsilon:g}, the noise on tables of two columns is larger than any dependence, so "
        "each column is measured by itself: regressions and tables would show no relation between columns. "
        f"Declare fewer columns or levels, or a larger epsilon{instead}"
    )
