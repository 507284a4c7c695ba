"""Every solver that fits a problem, what it would cost and is predicted to give. Nothing here reads data."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from dpcvx.accounting import Neighbours, gaussian_delta, gaussian_epsilon
from dpcvx.data.memory import SHORT_ROW
from dpcvx.errors import Incompatible, NotAccountable
from dpcvx.events import Event, Poisson, count_leaves
from dpcvx.planning.rehearsal import SHARES, rehearse
from dpcvx.plans import Candidate, Plan, running_time
from dpcvx.solvers import SOLVERS, configured
from dpcvx.solvers.memo import memoised

__all__ = ["PlanKey", "list_all", "list_others", "memory", "rehearse_once", "weigh"]


def weigh(plans: tuple[Plan, ...], density: float = 1.0) -> tuple[Candidate, ...]:
    """Return plans of one problem as candidates, with predictions that can be compared, the best first.

    They are rehearsed where every one of them can be, and bounded by their solvers' formulas otherwise. The
    best has the smallest product of prediction and handicap.
    """
    typical = [rehearse_once(plan) for plan in plans]
    basis = "bound" if None in typical else "typical"
    candidates = (
        make_candidate(plan, basis, risk if basis == "typical" else None, density)
        for plan, risk in zip(plans, typical, strict=True)
    )
    return tuple(sorted(candidates, key=lambda each: each.handicap * each.predicted))


def list_others(
    first: Plan, plans: tuple[Plan, ...], *, clip: float | None = None, density: float = 1.0
) -> tuple[Candidate, ...]:
    """Return every other solver that fits the problem of some plans, with its costs and no prediction.

    `first`: problem, n, budget, accountant and coordinates; `plans`: plans of solvers that are listed
    already; `clip`: residual clip of the solvers that take one; `density`: share of cells that are not 0,
    declared public, where records are compressed.
    """
    known, others = {type(plan.solver.innermost(plan).solver) for plan in plans}, []
    for kind in SOLVERS:
        if kind in known:
            continue
        solver = first.solver.with_coordinates(configured(kind, clip=clip))
        accountant = GaussianLimit() if kind.samples else first.accountant
        try:
            plan = solver.plan(first.problem, first.n, first.budget, accountant)
            others.append(make_candidate(plan, "none", (math.nan, math.nan), density))
        except (Incompatible, NotAccountable):
            continue
    return tuple(others)


def list_all(plan: Plan, density: float = 1.0) -> Plan:
    """Return a chosen plan with every other solver that fits listed in its table."""
    plans = tuple(
        plan
        if each.solver == plan.solver
        else each.solver.plan(plan.problem, plan.n, plan.budget, plan.accountant)
        for each in plan.candidates
    )
    others = list_others(plan, plans, clip=plan.solver.clip, density=density)
    return replace(plan, candidates=(*weigh(plans, density), *others))


def make_candidate(
    plan: Plan, basis: str, risk: tuple[float, float] | None = None, density: float = 1.0
) -> Candidate:
    """Return a plan's costs with its predicted risk, as given or by the solver's own formula."""
    fit = plan.solver.innermost(plan)
    optimisation, privacy = risk or plan.solver.predict(plan.problem, plan.n, plan.budget)
    return Candidate(
        plan.solver,
        optimisation,
        privacy,
        basis=basis,
        handicap=fit.solver.handicap(plan),
        answers=plan.n_calls,
        noise=tuple(dict.fromkeys(float(stage.mechanism.noise) for stage in fit.stages)),
        gradient_evaluations=plan.gradient_evaluations,
        memory=memory(plan, density),
        seconds=running_time(plan.stages, plan.problem, density),
    )


def rehearse_once(plan: Plan) -> tuple[float, float] | None:
    """Return `rehearse` of the inner fit, memoised by the plan's facts; None for a user's own solver."""
    shares, plan = plan.solver.squares_left(plan, SHARES), plan.solver.innermost(plan)
    if type(plan.solver) not in SOLVERS:
        return None
    return _rehearse_key(PlanKey(plan, shares))


class PlanKey:
    """Hash key of a plan, used to memoise what is predicted of it.

    The key holds the stages, with their noise: plans of one solver, problem and budget differ in what they
    leave for the fit where something is asked before or after it.

    `rule`: what else an answer about the plan depends on.
    """

    plan: Plan
    rule: Any

    def __init__(self, plan: Plan, rule: Any = ()) -> None:
        self.plan, self.rule = plan, rule
        self._key = (plan.problem, plan.n, plan.solver, plan.budget, plan.questions, rule)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlanKey) and self._key == other._key


@memoised
def _rehearse_key(facts: PlanKey) -> tuple[float, float] | None:
    return rehearse(facts.plan, facts.rule)


def memory(plan: Plan, density: float = 1.0) -> float:
    """Bytes of the stored records and of the largest arrays beside them, from public sizes.

    Records are 16-bit integers, compressed ones with a 32-bit index each; vertex selection keeps them by
    columns, with a margin and a residual of every score; gradients of short dense rows keep both orders;
    minimisers work on a copy in float64.
    """
    problem = plan.problem
    cells, scores = plan.n * problem.d * density, plan.n * problem.outputs
    index = 0 if density == 1 else 4
    stored = (2 + index) * cells
    kinds = {stage.mechanism.traits for stage in plan.stages}
    total = stored + 8 * (plan.n if problem.loss.joint else scores)
    short = density == 1 and problem.d < SHORT_ROW and any("gradient" in kind.question for kind in kinds)
    total += stored * (short or len({kind.layout for kind in kinds}) > 1)
    total += (8 + index) * cells * any(kind.copies for kind in kinds)
    total += scores * sum({kind.score_bytes for kind in kinds})
    return total + 64 * problem.size  # a few iterates and answers


@dataclass(frozen=True)
class GaussianLimit:
    """Prices Poisson samples as in the limit of many: good to list a plan at once, never to run one.

    T samples are a Gaussian release with mu^2 = 4 T q^2 sinh(1/z^2) under replace-one and
    T q^2 (e^(1/z^2) - 1) under add/remove; the exact price is composed numerically and takes seconds.
    """

    def epsilon(self, event: Event, delta: float) -> float:
        """Return the epsilon of the limit."""
        return gaussian_epsilon(_limit(event), delta)

    def delta(self, event: Event, epsilon: float) -> float:
        """Return the delta of the limit."""
        return gaussian_delta(epsilon, _limit(event))

    def supports(self, event: Event) -> bool:
        """Whether there are Gaussian releases and Poisson samples only."""
        return all(hasattr(leaf, "noise_multiplier") for leaf in count_leaves(event))


def _limit(event: Event) -> float:
    total = 0.0
    for leaf, count in count_leaves(event).items():
        each = min(1 / leaf.noise_multiplier**2, 700.0)  # type: ignore[union-attr]
        if isinstance(leaf, Poisson):
            growth = 4 * math.sinh(each) if Neighbours(leaf.relation).replaces else math.expm1(each)
            each = leaf.probability**2 * growth
        total += count * each
    return math.sqrt(total)
