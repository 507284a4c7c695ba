"""Plan, oracle and release: the one path from public choices through private answers to a published model.

A plan is public and fixed before the first record is read. The oracle is the only object that holds the
records while a solver runs; it answers each stage's question the planned number of times and no more.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from dpcvx.accounting import (
    SAMPLER_SHARE,
    Accountant,
    Budget,
    Tight,
    spendable,
)
from dpcvx.arrays import IntVector, Vector
from dpcvx.errors import Incompatible
from dpcvx.events import Compose, Event, Repeat
from dpcvx.mechanisms import (
    Combination,
    Mechanism,
    NoisyDifference,
    NoisyGradient,
    NoisyLength,
    NoisyMinimiser,
    NoisyMoments,
    NoisySecondMoments,
    NoisyVertex,
    PerturbedMinimiser,
    RestrictedGradient,
    SecondMoments,
    Vertex,
    records_changed,
)
from dpcvx.problem import Bounds, Problem

if TYPE_CHECKING:
    from dpcvx.data import DataSource, Lazy, Linear, Margins, Quantiser, Region
    from dpcvx.ledger import Ledger, Receipt
    from dpcvx.noise.samplers import Generator
    from dpcvx.plans.price import Bill
    from dpcvx.plans.uncertainty import Uncertainty

__all__ = [
    "Candidate",
    "Oracle",
    "Plan",
    "Release",
    "Solver",
    "Stage",
    "charge",
    "check_count",
    "execute",
    "records_changed",
    "require",
    "spendable",
]

Progress = Callable[[int, int], None]


def require(solver: Solver, problem: Problem) -> None:
    """Check that the problem's set has what the solver needs."""
    for ability in solver.requires:
        if not isinstance(problem.domain, ability):
            given = "no domain" if problem.domain is None else type(problem.domain).__name__
            raise Incompatible(
                f"{type(solver).__name__} needs a domain with {ability.__name__}; {given} has none. "
                'Choose another set, or leave the choice to solver="auto".'
            )
    if problem.regularizer is not None and not getattr(solver, "proximal", False):
        raise Incompatible(
            f"{type(solver).__name__} has no step for a regularizer; {type(problem.regularizer).__name__} "
            "would be ignored. Use ObjectivePerturbation or OutputPerturbation, or give a domain instead."
        )


MOST_ITERATIONS = 10**9


def check_count(name: str, value: int | None) -> None:
    """Refuse a number of iterations that is no positive integer, or more than anybody waits for."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ValueError(f"{name} must be a positive integer or None, got {value!r}.")
    if value is not None and value > MOST_ITERATIONS:
        raise ValueError(f"{name} must be at most {MOST_ITERATIONS:,}; leave it None for the default.")


class Solver(Protocol):
    """Frozen hyper-parameters of one published algorithm; asks an oracle, never sees data."""

    requires: ClassVar[tuple[type, ...]]

    def plan(self, problem: Problem, n: int, budget: Budget, accountant: Accountant) -> Plan:
        """Fix stages and noise from public facts."""
        ...

    def predict(self, problem: Problem, n: int, budget: Budget) -> tuple[float, float]:
        """Bound the excess risk: (optimisation part, privacy part)."""
        ...

    def run(self, plan: Plan, ask: Oracle) -> Vector:
        """Post-process the oracle's answers into theta."""
        ...


@dataclass(frozen=True)
class Stage:
    """A private question and the number of times it will be asked."""

    mechanism: Mechanism
    n_calls: int


@dataclass(frozen=True)
class Candidate:
    """One solver that could run: what it would cost, and its predicted excess risk in two parts.

    Parameters
    ----------
    solver : Solver
        With its settings fixed.
    optimisation, privacy : float
        What stopping early and the noise are predicted to add to the risk.
    basis : str
        What the prediction rests on: "bound" for the worst data within the bounds, "typical" for a public
        model of data.
    weighed : bool
        Whether the choice was made among it and others; else it is listed only.
    answers : int
        Private answers in all.
    noise : tuple of float
        Scale of the noise of each kind of answer of the fit.
    gradient_evaluations : float
        Gradients of single records in all.
    memory : float
        Bytes of the stored records and of the largest arrays beside them.
    seconds : float
        Running time on one core of an ordinary machine, roughly; see `dpcvx.plans.running_time`.
    """

    solver: Solver
    optimisation: float
    privacy: float
    basis: str = "bound"
    weighed: bool = True
    answers: int = 0
    noise: tuple[float, ...] = ()
    gradient_evaluations: float = 0.0
    memory: float = 0.0
    seconds: float = 0.0

    @property
    def predicted(self) -> float:
        """Predicted excess empirical risk."""
        return self.optimisation + self.privacy


@dataclass(frozen=True)
class Plan:
    """Everything about a run that is fixed before a record is read.

    Parameters
    ----------
    stages : tuple of Stage
        The private questions, in order.
    problem, n, solver, budget, accountant
        The public facts they were derived from.
    candidates : tuple of Candidate
        What was weighed, best first, when the planner chose.
    before : tuple of Stage
        Questions about raw columns that are asked before the records pass the door, such as their bounds.
    """

    stages: tuple[Stage, ...]
    problem: Problem
    n: int
    solver: Solver
    budget: Budget
    accountant: Accountant = field(default_factory=Tight)
    candidates: tuple[Candidate, ...] = ()
    before: tuple[Stage, ...] = ()

    def __post_init__(self) -> None:
        for stage in self.questions:
            if stage.mechanism.relation != self.budget.relation:
                raise Incompatible(
                    f"A stage is private under {stage.mechanism.relation!r}, the budget asks for "
                    f"{self.budget.relation!r}."
                )
        # The source is held to the plan's bounds. Later questions may be about mapped records; the oracle
        # holds these to the bounds of each question.
        for stage in self.stages[:1]:
            own: Problem = getattr(stage.mechanism, "problem", self.problem)
            if (own.bounds, own.d) != (self.problem.bounds, self.problem.d):
                raise Incompatible(
                    f"A stage was made for records of {own.d} features within {own.bounds}, the plan is for "
                    f"{self.problem.d} within {self.problem.bounds}: make plans with dpcvx.plan."
                )
        if self.sampler_delta > SAMPLER_SHARE * self.budget.delta:
            failure = self.sampler_delta / (1 + math.exp(min(self.budget.epsilon, 700.0)))
            epsilon = math.floor(math.log(max(SAMPLER_SHARE * self.budget.delta / failure - 1, 1.0)))
            delta = self.sampler_delta / SAMPLER_SHARE
            ways = [f"epsilon at most {epsilon}"] if epsilon > 0 else []
            ways += [f"delta at least {delta:.2g}"] if delta < 1 else []
            raise Incompatible(
                f"{self.n_draws:g} noise values of finite precision cannot carry epsilon="
                f"{self.budget.epsilon:g} at delta={self.budget.delta:g}: they cost "
                f"{self.sampler_delta:.2g}, more than a thousandth of delta. "
                f"Use {' or '.join(ways) or 'fewer iterations'}."
            )

    @property
    def event(self) -> Event:
        """Composition of every question asked."""
        return Compose(tuple(Repeat(stage.mechanism.event, stage.n_calls) for stage in self.questions))

    @property
    def questions(self) -> tuple[Stage, ...]:
        """Every question, those before the door included."""
        return (*self.before, *self.stages)

    @property
    def n_calls(self) -> int:
        """Private answers to the solver in all."""
        return sum(stage.n_calls for stage in self.stages)

    @property
    def gradient_evaluations(self) -> float:
        """Gradients of single records in all; expected and public where records are sampled."""
        return sum(stage.n_calls * stage.mechanism.evaluations for stage in self.stages)

    @property
    def n_draws(self) -> int:
        """Noise values in all."""
        return sum(stage.n_calls * stage.mechanism.n_draws for stage in self.questions)

    @property
    def sampler_delta(self) -> float:
        """Delta paid for noise of finite precision: (1 + e^eps) * sum of total variations."""
        return (1 + math.exp(min(self.budget.epsilon, 700.0))) * self.failure

    @property
    def failure(self) -> float:
        """Sum of the total variations between the noise that is drawn and the noise that is accounted for."""
        return math.fsum(stage.n_calls * stage.mechanism.failure for stage in self.questions)

    @property
    def epsilon(self) -> float:
        """Epsilon certified at the budget's delta, samplers included; at most the budget's."""
        return self.accountant.epsilon(self.event, spendable(self.budget).delta)

    @property
    def layout(self) -> str:
        """Storage order that serves the questions best: by columns for vertex selection, else by rows."""
        return "columns" if all(isinstance(stage.mechanism, NoisyVertex) for stage in self.stages) else "rows"

    def explain(self) -> str:
        """Say in words what will run, what it costs and what it is expected to give."""
        from dpcvx.planning.words import explain_plan

        return explain_plan(self)

    def __str__(self) -> str:
        from dpcvx.planning.words import plan_table

        return plan_table(self)


@dataclass(frozen=True)
class Release:
    """What is published: the parameter, the plan that produced it, and the receipt if it was charged.

    With it may come an estimate of the parameter with the covariance of its error, where that was planned,
    the region that rows were brought into before the fit, and what its reader should beware of.
    """

    theta: Vector
    plan: Plan
    private: bool
    receipt: Receipt | None = None
    uncertainty: Uncertainty | None = None
    trim: Region | None = None
    caution: str | None = None

    @property
    def n_iter(self) -> int:
        """Number of answers that the fit used, measures of features apart; public, fixed by the plan."""
        return sum(stage.n_calls for stage in self.plan.stages if stage.mechanism.evaluations > 0)

    @property
    def gradient_evaluations(self) -> float:
        """Gradients of single records; expected where records were sampled, never the realised number."""
        return self.plan.gradient_evaluations


class Oracle:
    """Answers the current stage's question, at most its planned number of times.

    The records are held here and never shown; what comes out has been noised by the stage's mechanism.
    """

    def __init__(
        self, plan: Plan, source: DataSource, rng: Generator, progress: Progress | None = None
    ) -> None:
        self._plan, self._source, self._rng, self._progress = plan, source, rng, progress
        self._stage, self._calls, self._total = 0, 0, 0
        self._margins: Margins | Lazy | Linear | None = None
        self._point: Combination | None = None
        self._bounds: Bounds | None = plan.problem.bounds  # of every row of the source
        self.uncertainty: Uncertainty | None = None
        self.trim: Region | None = None
        self.caution: str | None = None

    def _current(self, kind: type[Any] | tuple[type[Any], ...], question: str) -> Any:
        if self._stage < len(self._plan.stages) and self._calls == self._plan.stages[self._stage].n_calls:
            self._stage, self._calls, self._margins, self._point = self._stage + 1, 0, None, None
        if self._stage == len(self._plan.stages):
            raise Incompatible(
                f"The plan allows {self._plan.n_calls} private answers, and all of them are used."
            )
        mechanism = self._plan.stages[self._stage].mechanism
        if not isinstance(mechanism, kind):
            raise Incompatible(
                f"The plan's stage {self._stage + 1} answers {type(mechanism).__name__}, not a {question}."
            )
        # Rows keep the bounds that this very question's sensitivity is for, whatever was asked before it.
        own: Problem = getattr(mechanism, "problem", self._plan.problem)
        if own.d != self._source.d:
            raise Incompatible(f"The question is for d={own.d} features, the records have {self._source.d}.")
        if own.bounds != self._bounds:
            self._source, self._bounds = self._source.within(own.bounds), own.bounds
        self._calls += 1
        self._total += 1
        return mechanism

    def _report(self) -> None:
        if self._progress is not None:
            self._progress(self._total, self._plan.n_calls)

    def gradient(self, theta: Vector, support: IntVector | None = None) -> Vector:
        """Noisy gradient of the objective at a public theta, on the features of a support if one is given."""
        if support is None:
            mechanism: NoisyGradient = self._current(NoisyGradient, "gradient")
            answer = mechanism(theta, self._source, self._rng)
        else:
            restricted: RestrictedGradient = self._current(RestrictedGradient, "gradient on a support")
            answer = restricted(theta, support, self._source, self._rng)
        self._report()
        return answer

    def difference(self, theta: Vector, anchor: Vector) -> Vector:
        """Noisy gradient at theta minus gradient at an anchor, both public, over a sample of the records."""
        mechanism: NoisyDifference = self._current(NoisyDifference, "difference")
        answer = mechanism(theta, anchor, self._source, self._rng)
        self._report()
        return answer

    def minimiser(self, linear: Vector | None = None) -> Vector:
        """Private minimiser of the objective, plus a public linear term where the question takes one."""
        mechanism = self._current((NoisyMinimiser, PerturbedMinimiser), "minimiser")
        public = () if linear is None else (linear,)
        answer: Vector = mechanism(*public, data=self._source, rng=self._rng)
        self._report()
        return answer

    def second_moments(self, theta: Vector) -> SecondMoments:
        """Noisy Hessian of the mean loss at a public theta, and what else was planned with it."""
        mechanism: NoisySecondMoments = self._current(NoisySecondMoments, "Hessian")
        answer = mechanism(theta, self._source, self._rng)
        self._report()
        return answer

    def moments(self, centers: Vector | None = None) -> Vector:
        """Noisy means, or mean squares about public centres, of the features and of targets with a scale."""
        mechanism: NoisyMoments = self._current(NoisyMoments, "moment")
        answer = mechanism(centers, self._source, self._rng)
        self._report()
        return answer

    def length(self) -> Vector:
        """Noisy mean squared norm of the rows, then mean squares of targets with a scale."""
        mechanism: NoisyLength = self._current(NoisyLength, "length")
        answer = mechanism(self._source, self._rng)
        self._report()
        return answer

    def remap(self, door: Quantiser, center: float = 0.0, scale: float = 1.0) -> None:
        """Send every record through a second door: a public map of its row, and of its target."""
        from dpcvx.data import CanStandardise

        if not (math.isfinite(center) and 0 < scale < math.inf):  # else what happens depends on a target
            raise ValueError(f"Targets need a finite centre and a positive scale, got {center!r}, {scale!r}.")
        if not isinstance(self._source, CanStandardise):
            raise Incompatible("These records cannot be mapped again: give standardize=False.")
        self._source, self._bounds = self._source.mapped(door, center, scale), None

    def announce(self, trim: Region, caution: str | None = None) -> None:
        """Release, with the parameter, the region of the rows, and a caution: functions of answers."""
        self.trim, self.caution = trim, caution

    def publish(self, uncertainty: Uncertainty) -> None:
        """Release, with the parameter, how uncertain it is: a function of answers and public numbers."""
        self.uncertainty = uncertainty

    def vertex(self) -> Vertex:
        """Noisy best vertex at the current point."""
        mechanism: NoisyVertex = self._current(NoisyVertex, "vertex")
        if self._point is None:
            self._point, self._margins = mechanism.start(self._source)
        answer = mechanism(self._point, self._margins, self._source, self._rng)
        self._report()
        return answer

    def move(self, step: float, vertex: Vertex) -> None:
        """Announce theta <- (1 - step) theta + step * vertex."""
        if self._point is None:
            raise Incompatible("move() follows vertex(): ask for a vertex first.")
        self._point.move(step, vertex, self._margins)


def charge(
    plan: Plan | Bill,
    ledger: Ledger | str | os.PathLike[str] | None,
    account: str | None,
    *,
    private: bool,
    purpose: str,
) -> Receipt | None:
    """Pay for a plan from an account before a record is read; return None where no account is given.

    Parameters
    ----------
    plan : Plan or Bill
    ledger : Ledger, path or URL, optional
    account : str, optional
        Name of the account; it is given if and only if a ledger is.
    private : bool
        Whether the noise will be cryptographic. Nothing vouches for a seeded run, which is refused.
    purpose : str
        What the history says of it.
    """
    if ledger is None and account is None:
        return None
    if ledger is None or account is None:
        given, missing = ("account", "ledger") if ledger is None else ("ledger", "account")
        raise Incompatible(f"{given} was given without {missing}: give both to charge the run, or neither.")
    if not private:
        raise Incompatible(
            "A seeded run is not private, so no ledger can vouch for it: leave the seed out, or the ledger."
        )
    from dpcvx.ledger import Account, Ledger

    payer = Account(ledger if isinstance(ledger, Ledger) else Ledger(ledger), account)
    return payer.charge(plan.event, purpose=purpose, failure=plan.failure, budget=spendable(plan.budget))


def execute(
    plan: Plan,
    source: DataSource,
    *,
    rng: Generator | None = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    account: str | None = None,
    progress: Progress | None = None,
) -> Release:
    """Run a plan on records: the only path, used by estimators, service and command line alike.

    Parameters
    ----------
    plan : Plan
        What to ask, fixed in advance.
    source : DataSource
        The records behind their door.
    rng : Generator, optional
        Source of randomness; None draws from a cryptographic generator, a ``SeededGenerator`` marks the
        release "not private".
    ledger : Ledger, path or URL, optional
        Where the run is charged, durably, before the first question.
    account : str, optional
        Name of the account; it is given if and only if a ledger is.
    progress : callable, optional
        Called with (answers so far, answers planned); both are public.
    """
    if plan.budget.relation == "replace" and source.n != plan.n:
        raise Incompatible(
            f"The plan is for n={plan.n} records, the source has {source.n}: plan again with n={source.n}."
        )
    if source.n > min(stage.mechanism.capacity for stage in plan.stages):
        raise Incompatible("The source has more records than the plan's exact sums have room for.")
    if plan.epsilon > plan.budget.epsilon * (1 + 1e-9):
        raise Incompatible(
            f"The plan costs epsilon={plan.epsilon:g} at delta={plan.budget.delta:g}, more than its budget "
            f"of {plan.budget.epsilon:g}: make plans with dpcvx.plan."
        )
    if source.d != plan.problem.d:
        raise Incompatible(f"The plan is for d={plan.problem.d} features, the source has {source.d}.")
    if rng is None:
        from dpcvx.noise.samplers import SecureGenerator

        rng = SecureGenerator()
    receipt = charge(plan, ledger, account, private=rng.private, purpose=type(plan.solver).__name__)
    source = source.within(plan.problem.bounds)
    oracle = Oracle(plan, source, rng, progress)
    theta = plan.solver.run(plan, oracle)
    beside = oracle.uncertainty, oracle.trim, oracle.caution
    return Release(np.asarray(theta, dtype=np.float64), plan, rng.private, receipt, *beside)
