"""An algorithm as printed in a paper: claimed and true guarantee, and a run that states the true one."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from dpcvx.accounting import Accountant, Budget, Tight, gaussian_mu, spendable
from dpcvx.accounting.objective import OUTPUT_SHARE
from dpcvx.arrays import Vector
from dpcvx.errors import Incompatible, WrongValue
from dpcvx.events import Compose, Event, PerturbedObjective, Repeat, count_leaves
from dpcvx.mechanisms import PerturbedMinimiser
from dpcvx.mechanisms.minimise import RidgeFacts
from dpcvx.plans import Asking, Plan, Solver, Stage
from dpcvx.problem import Problem

__all__ = ["AsPrinted", "Reproduction", "table"]


@dataclass(frozen=True)
class AsPrinted(Solver):
    """A solver with the noise that a paper prints, as `Reproduction.plan` makes it.

    Parameters
    ----------
    source : str
        Paper and algorithm.
    claimed : Budget
        Guarantee that the paper claims. The plan's own budget is the true one.
    solver : Solver
        The loop.
    """

    source: str
    claimed: Budget
    solver: Solver

    def plan(self, problem: Problem, n: int, budget: Budget, accountant: Accountant) -> Plan:
        """Refuse: this noise is not calibrated to a budget."""
        raise Incompatible(
            f"The noise of {self.source} is what the paper prints, not what a budget needs: "
            f"plan with {type(self.solver).__name__}, or compare with Reproduction.plan."
        )

    def predict(self, problem: Problem, n: int, budget: Budget) -> tuple[float, float]:
        """Bound the excess risk as the solver does."""
        return self.solver.predict(problem, n, budget)

    def run(self, plan: Plan, ask: Asking) -> Vector:
        """Run the loop."""
        return self.solver.run(plan, ask)


@dataclass(frozen=True)
class Reproduction:
    """An algorithm with the constants of its paper: the claim, and what is proved about it.

    Parameters
    ----------
    paper, algorithm : str
        The paper's key and its name for the algorithm.
    claimed : Budget
        The guarantee that the paper states.
    noise : str
        The formula that the paper prints.
    event : Event or None
        Event of the algorithm, as far as a theorem covers it; None if no theorem does.
    least : tuple of float
        (epsilon at the claimed delta, delta at the claimed epsilon) that one pair of data sets shows: no
        proof can claim less.
    why : str
        Where the claim and the truth part.
    argued : float, optional
        Epsilon by the paper's own composition theorem, where that is not the claim.
    solver : Solver, optional
        The loop that runs it, where dpcvx has one.
    size : tuple of int and float, optional
        n and L, where the printed noise is not a fixed multiple of the sensitivity.
    """

    paper: str
    algorithm: str
    claimed: Budget
    noise: str
    event: Event | None
    least: tuple[float, float]
    why: str
    argued: float | None = None
    solver: Solver | None = None
    size: tuple[int, float] | None = None

    def __post_init__(self) -> None:
        if not self.claimed.neighbours.replaces or not self.claimed.delta > 0:
            raise WrongValue(
                f"claimed is {self.claimed!r}; the papers' neighbours differ by a replaced record, and their "
                'noise needs delta > 0: use Budget(epsilon, delta) with relation "replace".'
            )

    @property
    def epsilon(self) -> float:
        """Epsilon that is proved at the claimed delta; infinite without a theorem."""
        return math.inf if self.event is None else Tight().epsilon(self.event, self.claimed.delta)

    @property
    def delta(self) -> float:
        """Delta that is proved at the claimed epsilon; 1 without a theorem."""
        return 1.0 if self.event is None else Tight().delta(self.event, self.claimed.epsilon)

    @property
    def verdict(self) -> str:
        """Whether the claim "holds", is "false", or is "not proved" and not refuted."""
        if self.least[0] > self.claimed.epsilon * (1 + 1e-9):
            return "false"
        return "holds" if self.epsilon <= self.claimed.epsilon * (1 + 1e-9) else "not proved"

    def plan(self, problem: Problem, n: int) -> Plan:
        """Plan a run with the printed noise whose budget is the guarantee that holds.

        Parameters
        ----------
        problem : Problem
        n : int
            Number of records.
        """
        name = f"{self.paper} {self.algorithm}"
        if self.event is None:
            raise Incompatible(f"{name} as printed has no guarantee, so it is not run: {self.why}.")
        if self.solver is None:
            raise Incompatible(f"{name} as printed draws noise that dpcvx has no sampler for; it is not run.")
        if self.size is not None and not (
            n == self.size[0] and math.isclose(problem.lipschitz(2), self.size[1])
        ):
            raise Incompatible(
                f"The noise of {name} was computed for n={self.size[0]} and L={self.size[1]:g}; this is "
                f"n={n} and L={problem.lipschitz(2):g}: compute it again."
            )
        plan = self.solver.plan(problem, n, Budget(self.epsilon, self.claimed.delta), Tight())
        stages = tuple(
            replace(stage, mechanism=self._printed(stage, self.event, problem, n)) for stage in plan.stages
        )
        event = Compose(tuple(Repeat(stage.mechanism.event, stage.n_calls) for stage in stages))
        holds = Budget(Tight().epsilon(event, spendable(self.claimed).delta), self.claimed.delta)
        return replace(plan, stages=stages, budget=holds, solver=AsPrinted(name, self.claimed, plan.solver))

    def _printed(self, stage: Stage, event: Event, problem: Problem, n: int) -> Any:
        """The stage's question with the printed noise, and for Algorithm 2 the printed ridge."""
        if isinstance(event, PerturbedObjective):
            facts = RidgeFacts(problem, n, n, 1.0)
            ridge = max(2 * facts.bend * facts.row**2 / self.claimed.epsilon, n * problem.l2)
            output = 1 / gaussian_mu(OUTPUT_SHARE * self.claimed.epsilon, OUTPUT_SHARE * self.claimed.delta)
            return PerturbedMinimiser(problem, n, 1 / event.shift, ridge, output)
        question: Any = stage.mechanism
        gaussian: Any = next(iter(count_leaves(event)))
        return replace(question, noise_multiplier=gaussian.noise_multiplier)

    def __str__(self) -> str:
        claimed = self.claimed
        return (
            f"{self.paper} {self.algorithm}, claimed ({claimed.epsilon:g}, {claimed.delta:g}): "
            f"{self.verdict}. Epsilon at delta {claimed.delta:g} is "
            f"{_between(self.least[0], self.epsilon, math.inf)}, delta at epsilon {claimed.epsilon:g} is "
            f"{_between(self.least[1], self.delta, 1.0)}. Why: {self.why}."
        )


def table(reproductions: Iterable[Reproduction]) -> str:
    """Return claimed and true guarantees as a Markdown table.

    Parameters
    ----------
    reproductions : iterable of Reproduction
    """
    head = ("algorithm", "claimed ε, δ", "the claim", "ε at this δ", "δ at this ε", "why")
    rows = [
        (
            item.algorithm,
            f"{item.claimed.epsilon:g}, {item.claimed.delta:g}",
            item.verdict,
            _between(item.least[0], item.epsilon, math.inf)
            + (f" ({item.argued:.4f} by its own argument)" if item.argued is not None else ""),
            _between(item.least[1], item.delta, 1.0),
            item.why,
        )
        for item in reproductions
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows))


def _between(least: float, most: float, trivial: float) -> str:
    """An interval in four digits; no bound is named that any release has."""
    if math.isclose(least, most, rel_tol=1e-6):
        return "infinite" if math.isinf(least) else f"{least:.4g}" if least > 0 else "below 1e-300"
    low = [f"at least {least:.4g}"] if least > 0 else []
    high = [f"at most {most:.4g}"] if most < trivial else []
    return " and ".join(low + high) or "unknown"
