"""Solvers, candidates and plans: everything about a run that is public and fixed before a record is read."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from textwrap import fill
from typing import Any, ClassVar, Protocol

from dpcvx.accounting import Accountant, Budget, Tight, explain_size
from dpcvx.arrays import Vector
from dpcvx.errors import Incompatible, WrongValue
from dpcvx.events import Compose, Event, Repeat
from dpcvx.plans.asking import Asking
from dpcvx.plans.price import Price
from dpcvx.plans.stage import Stage, running_time, time_in_words
from dpcvx.problem import Problem
from dpcvx.words import align_columns, byte_count, html_table, quantity, show_fields

__all__ = ["Candidate", "Plan", "Solver", "check_count", "require", "solver_name"]

TITLE = "Plan, fixed from public facts alone"
HEADER = (
    "candidate",
    "answers",
    "noise",
    "gradients",
    "memory",
    "basis",
    "optimisation",
    "privacy",
    "predicted",
)
WORST_CASE = (
    "The prediction is the solver's theory at the worst data within the bounds; practice is usually better."
)
TYPICAL = (
    "The prediction comes from rehearsing the run on public synthetic problems of this shape, the worst of a "
    "few, not from your data: it shows what more records or a larger epsilon would bring."
)


def require(solver: Solver, problem: Problem) -> None:
    """Check that the problem's set has what the solver needs."""
    for ability in solver.requires:
        if not isinstance(problem.domain, ability):
            given = "no domain" if problem.domain is None else type(problem.domain).__name__
            raise Incompatible(
                f"{type(solver).__name__} needs a domain with {ability.__name__}; {given} has none. "
                'Choose another set, or leave the choice to solver="auto".'
            )
    if problem.regularizer is not None and not solver.proximal:
        raise Incompatible(
            f"{type(solver).__name__} has no step for a regularizer; {type(problem.regularizer).__name__} "
            "would be ignored. Use ObjectivePerturbation or OutputPerturbation, or give a domain instead."
        )


MOST_ITERATIONS = 10**9


def check_count(name: str, value: int | None) -> None:
    """Refuse a number of iterations that is no positive integer, or more than anybody waits for."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise WrongValue(f"{name} must be a positive integer or None, got {value!r}.")
    if value is not None and value > MOST_ITERATIONS:
        raise WrongValue(f"{name} must be at most {MOST_ITERATIONS:,}; leave it None for the default.")


class Solver(Protocol):
    """Frozen hyper-parameters of one published algorithm; asks an oracle, never sees data.

    Classes that inherit from it need not repeat what holds for most solvers. A solver may be a stage around
    another one: it then says which part of a plan is the inner fit.
    """

    name: ClassVar[str] = ""
    """The word by which estimators and the command line know it; empty if it is given as an object only."""
    requires: ClassVar[tuple[type, ...]] = ()
    """Abilities that the set must have."""
    proximal: ClassVar[bool] = False
    """Whether it has a step for a regularizer."""
    samples: ClassVar[bool] = False
    """Whether it asks about random samples of the records, whose exact price takes seconds to compute."""
    minimises: ClassVar[bool] = False
    """Whether it releases the minimiser of a perturbed loss."""
    constant: ClassVar[bool] = False
    """Whether its model predicts the same for everybody."""
    standardises: ClassVar[bool] = False
    """Whether it maps the records first, and makes the intercept's feature itself."""

    @property
    def clip(self) -> float | None:
        """Largest residual that is not clipped; None for no clipping."""
        return None

    @property
    def hessian_share(self) -> float | None:
        """Share of mu^2 for the Hessian that standard errors need; None if none is released."""
        return None

    def innermost(self, plan: Plan) -> Plan:
        """Return the part of a plan that fits, without stages around it and in its own coordinates."""
        return plan

    def with_coordinates(self, solver: Solver) -> Solver:
        """Return another solver as it would be run in the coordinates of this one."""
        return solver

    def squares_left(self, plan: Plan, shares: tuple[float, ...]) -> tuple[float, ...]:
        """Return mean squares after standardisation of columns that use only a share of their bound."""
        return ()

    def handicap(self, plan: Plan) -> float:
        """Return the factor by which a predicted risk is multiplied before solvers are compared."""
        return 1.0

    def withdraws(self, problem: Problem) -> bool:
        """Whether a fit returns zero coefficients if its released gradients show only noise."""
        return False

    def bound(self, problem: Problem, n: int, budget: Budget) -> tuple[float, float]:
        """Bound the excess risk on any records, where `predict` may be for typical ones."""
        return self.predict(problem, n, budget)

    def with_records(self, plan: Plan, n: int) -> Solver:
        """Return the solver with step sizes for n records, a released number of those that have a target.

        `plan`: the solver's own; its queries are not changed.
        """
        return self

    @property
    def uses_log_odds(self) -> bool:
        """Whether a fit for two classes is better if their shares are known."""
        return False

    def with_log_odds(self, plan: Plan, value: float) -> Solver:
        """Return the solver for two classes whose shares have these log-odds, a released number.

        `plan`: the solver's own; its queries are not changed.
        """
        return self

    def with_path_of(self, plan: Plan, problem: Problem) -> Solver:
        """Return the solver with step sizes for a problem of fewer features, where the others are all 0.

        `plan`: the solver's own, with the same queries; `problem`: the smaller one.
        """
        return self

    def with_redundant(self, directions: Vector) -> Solver:
        """Return the solver for a parameter with redundant directions, along which no score changes.

        `directions`: shape (q, d).
        """
        return self

    def with_squares(self, squares: Vector) -> Solver:
        """Return the solver for rows whose features have these released mean squares, 0 for unknown ones."""
        return self

    def plan(self, problem: Problem, n: int, budget: Budget, accountant: Accountant) -> Plan:
        """Fix stages and noise from public facts."""
        ...

    def predict(self, problem: Problem, n: int, budget: Budget) -> tuple[float, float]:
        """Bound the excess risk: (optimisation part, privacy part)."""
        ...

    def run(self, plan: Plan, ask: Asking) -> Vector:
        """Post-process the oracle's answers into theta."""
        ...


@dataclass(frozen=True)
class Candidate:
    """One solver that could run: what it would cost, and its predicted excess risk in two parts.

    Parameters
    ----------
    solver : Solver
        With its settings fixed.
    optimisation, privacy : float
        Parts of the predicted excess risk: stopping early, and noise. NaN for a solver that is listed only.
    basis : str
        "typical" for a simulation on a public model of data, "bound" for the worst data within the bounds,
        "none" for a solver that is listed only. The solvers that are weighed all have the same basis.
    handicap : float
        Factor of the prediction where solvers are compared: the smallest product is chosen.
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
    handicap: float = 1.0
    answers: int = 0
    noise: tuple[float, ...] = ()
    gradient_evaluations: float = 0.0
    memory: float = 0.0
    seconds: float = 0.0

    @property
    def predicted(self) -> float:
        """Predicted excess empirical risk."""
        return self.optimisation + self.privacy

    @property
    def weighed(self) -> bool:
        """Whether the choice was made among this candidate and others; else it is listed only."""
        return self.basis != "none"

    def row(self, *, chosen: bool) -> tuple[str, ...]:
        """Return the candidate's row of a plan's table, under `HEADER`."""
        mark = " (chosen)" if chosen else "" if self.weighed else " (not weighed)"
        return (
            solver_name(self.solver) + mark,
            f"{self.answers:,}",
            ", ".join(f"{noise:.2g}" for noise in self.noise),
            f"{self.gradient_evaluations:.2g}",
            byte_count(self.memory),
            self.basis if self.weighed else "-",
            *(
                f"{risk:.3g}" if self.weighed else "-"
                for risk in (self.optimisation, self.privacy, self.predicted)
            ),
        )

    def to_plain(self, *, chosen: bool) -> dict[str, Any]:
        """Return the candidate as plain types that JSON can hold."""
        return {
            "solver": type(self.solver).__name__,
            "n_iter": getattr(self.solver, "n_iter", None),
            "optimisation": self.optimisation if self.weighed else None,
            "privacy": self.privacy if self.weighed else None,
            "predicted": self.predicted if self.weighed else None,
            "basis": self.basis,
            "handicap": self.handicap,
            "weighed": self.weighed,
            "chosen": chosen,
            "answers": self.answers,
            "noise": list(self.noise),
            "gradient_evaluations": self.gradient_evaluations,
            "memory": self.memory,
            "seconds": self.seconds,
        }


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
        Candidates of the planner, best first; empty for a plan that was not chosen.
    before : tuple of Stage
        Queries about raw columns, such as their bounds, that are asked before the records are quantised.
    notes : tuple of str
        Remarks for the reader, such as why no check of the data is made.
    advise : callable, optional
        Returns a sentence on whether the plan is expected to be useful, or nothing; planners set it.
    """

    stages: tuple[Stage, ...]
    problem: Problem
    n: int
    solver: Solver
    budget: Budget
    accountant: Accountant = field(default_factory=Tight)
    candidates: tuple[Candidate, ...] = ()
    before: tuple[Stage, ...] = ()
    notes: tuple[str, ...] = ()
    advise: Callable[[Plan], str] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Rows of a person share the weight of one row in queries about raw columns, whatever rows are kept.
        own = self.budget.neighbours
        asked = [(stage, own) for stage in self.stages]
        for stage, wanted in asked + [(stage, replace(own, rows=1)) for stage in self.before]:
            if stage.mechanism.neighbours != wanted:
                raise Incompatible(
                    f"A stage is private under {stage.mechanism.neighbours}, the budget asks for {wanted}."
                )
        # The source is held to the plan's bounds. Later questions may be about mapped records; the oracle
        # holds these to the bounds of each question.
        for stage in self.stages[:1]:
            task: Problem = getattr(stage.mechanism, "problem", self.problem)
            if (task.bounds, task.d) != (self.problem.bounds, self.problem.d):
                raise Incompatible(
                    f"A stage was made for records of {task.d} features within {task.bounds}, the plan is "
                    f"for {self.problem.d} within {self.problem.bounds}: make plans with dpcvx.plan."
                )
        self.price.check_samplers()

    @property
    def event(self) -> Event:
        """Composition of every question asked."""
        return Compose(tuple(Repeat(stage.mechanism.event, stage.n_calls) for stage in self.questions))

    @property
    def price(self) -> Price:
        """Price of the run: event, error of its samplers, budget and certified epsilon."""
        parts = tuple(stage.description for stage in self.questions)
        failure = math.fsum(stage.n_calls * stage.mechanism.failure for stage in self.questions)
        return Price(self.event, parts, failure, self.budget, self.accountant)

    @property
    def questions(self) -> tuple[Stage, ...]:
        """All stages, those before quantisation included."""
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
    def layout(self) -> str:
        """Storage order that serves the questions best: by columns for vertex selection, else by rows."""
        layouts = {stage.mechanism.traits.layout for stage in self.stages}
        return "columns" if layouts == {"columns"} else "rows"

    @property
    def chosen(self) -> Candidate | None:
        """The candidate that runs; None for a plan that was not chosen from any."""
        return next((each for each in self.candidates if each.solver == self.solver), None)

    @property
    def seconds(self) -> float:
        """Running time on one core, roughly; from the plan's row of the table, which knows the density."""
        chosen = self.chosen
        return running_time(self.stages, self.problem) if chosen is None else chosen.seconds

    def explain(self) -> str:
        """Say in words what will run, what it costs and what it is expected to give."""
        sentences = []
        for stage in self.questions:
            often = "once" if stage.n_calls == 1 else f"{stage.n_calls:,} times"
            sentences.append(
                f"It asks {stage.label} {often}. One person can change the exact answer by at most "
                f"{stage.mechanism.sensitivity:.3g}; the noise has scale {stage.mechanism.noise:.3g}."
            )
        first, *rest = self.paragraphs
        return " ".join([first, *sentences, *rest])

    @property
    def paragraphs(self) -> list[str]:
        """The explanation in short paragraphs, without the questions."""
        loss, budget = self.problem.loss.name, self.budget
        problem = (
            f"The fit minimises the {loss} loss over {_set(self.problem.domain)} ({self._shape}) "
            f"from {self._size}."
        )
        guarantee = (
            f"All answers together are (epsilon = {budget.epsilon:g}, delta = {budget.delta:.3g})-"
            f"differentially private, where {self._neighbours}; the accountant certifies epsilon = "
            f"{self.price.epsilon:.6g}."
        )
        running_time = (
            f"Once the records are loaded this takes {self._time}, and less on more cores or with compressed "
            "records."
        )
        found = [" ".join([problem, *self._choice()]), f"{guarantee} {running_time}"]
        if (chosen := self.chosen) is not None:
            larger = "stopping early" if chosen.optimisation > chosen.privacy else "the noise"
            found.append(
                f"Of the predicted excess risk, {chosen.optimisation:.3g} comes from stopping early and "
                f"{chosen.privacy:.3g} from the noise, so {larger} dominates. "
                + (TYPICAL if chosen.basis == "typical" else WORST_CASE)
            )
        found += [f"{note[0].upper()}{note[1:]}." for note in self.notes]
        if self.advise is not None and (advice := self.advise(self)):
            found.append(advice)
        return found

    @property
    def _facts(self) -> list[tuple[str, str]]:
        """Lines that describe the plan, as pairs (name, text)."""
        budget = self.budget
        facts = [
            ("problem", f"{self.problem.loss.name} loss over {_set(self.problem.domain)}, {self._shape}"),
            (self._noun, f"{self._number}, {self._neighbours}"),
            ("budget", f"epsilon = {budget.epsilon:g}, delta = {budget.delta:.3g}"),
            (
                "certified",
                f"epsilon {self.price.epsilon:.6g} at that delta, by {type(self.accountant).__name__}",
            ),
            ("solver", _solver(self.solver)),
            ("time", self._time),
        ]
        for stage in self.questions:
            mechanism = stage.mechanism
            facts.append(("question", f"{stage.n_calls} x {stage.label}, {stage.price}"))
            facts.append(("", f"sensitivity {mechanism.sensitivity:.4g}, noise {mechanism.noise:.4g}"))
        return facts + [("note", note) for note in self.notes]

    @property
    def _table(self) -> list[Sequence[str]]:
        """Header and rows of the table of candidates; empty for a plan that was not chosen from any."""
        rows = [each.row(chosen=each is self.chosen) for each in self.candidates]
        return [HEADER, *rows] if rows else []

    @property
    def _remarks(self) -> list[str]:
        return [text for text in (self._explain_handicap(), explain_size(self.budget.epsilon)) if text]

    def _repr_html_(self) -> str:
        return html_table(TITLE, self._facts, self._table, self._remarks)

    def __str__(self) -> str:
        lines = [TITLE, *(f"  {name:<10} {value}" for name, value in self._facts)]
        if table := self._table:
            lines += ["", *align_columns(table)]
        for note in self._remarks:
            lines += ["", fill(note, 100, initial_indent="  ", subsequent_indent="  ")]
        return "\n".join(lines)

    def to_plain(self) -> dict[str, Any]:
        """Return the plan as plain types that JSON can hold."""
        return {
            "loss": self.problem.loss.name,
            "domain": _set(self.problem.domain),
            "d": self.problem.d,
            "outputs": self.problem.outputs,
            "n": self.n,
            "unit": self.budget.unit,
            "relation": self.budget.relation,
            "epsilon": self.budget.epsilon,
            "delta": self.budget.delta,
            "certified_epsilon": self.price.epsilon,
            "solver": type(self.solver).__name__,
            "stages": [stage.to_plain() for stage in self.questions],
            "notes": list(self.notes),
            "candidates": [each.to_plain(chosen=each is self.chosen) for each in self.candidates],
        }

    def _choice(self) -> list[str]:
        """Why this solver runs, and why others do not."""
        chosen = self.chosen
        weighed = [candidate for candidate in self.candidates if candidate.weighed]
        if chosen is None or len(self.candidates) == 1:
            return []
        name = solver_name(self.solver)
        sentences = []
        if len(weighed) > 1:
            second = next(candidate for candidate in weighed if candidate is not chosen)
            other = solver_name(second.solver)
            sentences.append(
                f"{name} was chosen from {len(weighed)} solvers: its predicted excess risk is "
                f"{chosen.predicted:.3g} for {chosen.gradient_evaluations:.2g} gradients of single records; "
                f"{other} has {second.predicted:.3g} for {second.gradient_evaluations:.2g}."
            )
        if listed := [candidate for candidate in self.candidates if not candidate.weighed]:
            names = ", ".join(solver_name(each.solver) for each in listed)
            sentences.append(f"Others that fit can be asked for by name: {names}.")
        return [*sentences, *filter(None, [self._explain_handicap()])]

    def _explain_handicap(self) -> str:
        """Why a candidate with a smaller prediction was not chosen; empty where there is none."""
        chosen = self.chosen
        if chosen is None:
            return ""
        first = min(chosen, *self.candidates, key=lambda each: each.handicap * each.predicted)
        if first is not chosen and first.weighed:
            return (
                f"No solver is predicted to be better than a constant. {solver_name(self.solver)} was "
                "chosen, since it returns zero coefficients, and says so, if its released gradients show "
                "only noise."
            )
        smaller = [each for each in self.candidates if each.predicted < chosen.predicted]
        others = " and ".join(f"{each.handicap:g} for {solver_name(each.solver)}" for each in smaller)
        return (
            f"Before the comparison predictions are multiplied by {others}, and by {chosen.handicap:g} for "
            f"{solver_name(self.solver)}: measured risks exceed the former more often."
            if smaller
            else ""
        )

    @property
    def _shape(self) -> str:
        outputs = self.problem.outputs
        return f"d = {self.problem.d:,}" + (f" x {outputs}" if outputs > 1 else "")

    @property
    def _noun(self) -> str:
        return f"{self.budget.neighbours.noun}s"

    @property
    def _number(self) -> str:
        """The public number of units, and the rows used of each."""
        neighbours = self.budget.neighbours
        if neighbours.rows > 1:
            return f"{self.n // neighbours.rows:,} with {neighbours.rows} rows each at most"
        if neighbours.unit == "person":
            return f"{self.n:,}, whose rows share the weight of one row"
        weighted = ", weighted, with noise for a row of the largest weight" * (neighbours.weight > 1)
        return f"n = {self.n:,}{weighted}"

    @property
    def _size(self) -> str:
        neighbours = self.budget.neighbours
        return quantity(self.n // neighbours.rows, neighbours.noun)

    @property
    def _neighbours(self) -> str:
        return f"neighbours differ by {self.budget.neighbours.change}"

    @property
    def _time(self) -> str:
        return f"{time_in_words(self.stages, self.seconds)} on one core of an ordinary machine"


def _set(domain: object) -> str:
    return "the whole space" if domain is None else f"{type(domain).__name__}({show_fields(domain)})"


def _solver(solver: object) -> str:
    settings = show_fields(getattr(solver, "solver", solver), skip=("n_iter",))
    return solver_name(solver) + (f" ({settings})" if settings else "")


def solver_name(solver: object) -> str:
    """Return the class of a solver; one that works around another names both."""
    inner = getattr(solver, "solver", None)
    return type(solver).__name__ + ("" if inner is None else f"({solver_name(inner)})")
