"""New measurements of single queries, by any solver of the library, within a fixed part of the budget."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from dpcvx.accounting import REPLACE_ONE, SAMPLER_SHARE, Budget, Neighbours, spendable
from dpcvx.accounting.gaussian import gaussian_delta, gaussian_epsilon
from dpcvx.arrays import Vector
from dpcvx.errors import Incompatible
from dpcvx.events import Event, Exponential, Gaussian, count_leaves
from dpcvx.plans import Plan, Solver
from dpcvx.problem import Problem
from dpcvx.queries.compiled import CompiledMeans, CompiledQuery, CompiledRegression
from dpcvx.queries.error_bars import MEASUREMENT_FAILURE
from dpcvx.queries.marginals import Measurement
from dpcvx.queries.mechanisms import NoisyMeans
from dpcvx.queries.private_side import PrivateSide
from dpcvx.queries.wide_regression import WideRegression

__all__ = ["GaussianEquivalent", "MeasuredAnswer", "Measurer", "zcdp"]


@dataclass(frozen=True, eq=False)
class MeasuredAnswer:
    """A new private answer, the noisy means that were measured, its predicted error and its bound.

    The error of a regression has no bound: its prediction is of the mean over the noise, and leaves out what
    clipped residuals change.
    """

    theta: Vector
    group: tuple[Measurement, ...]
    error: float  # standard deviation of means, or the solver's bound on the mean error of a regression
    deviation: float | None  # of the noise on each mean
    bound: float | None  # on the largest error of a mean, but for `MEASUREMENT_FAILURE`


@dataclass(frozen=True)
class Measurer:
    """Measures one query at a time, each for no more than the event Gaussian(noise_multiplier).

    Linear queries are means with Gaussian noise. Convex ones are planned and solved like any other problem,
    for the budget (epsilon, delta) of that event; the solver's own event must not exceed it as zCDP.
    """

    n: int  # number of units
    noise_multiplier: float  # noise of the Gaussian release that bounds the cost of one measurement
    delta: float  # delta of one measurement: its sampling may fail by a thousandth of this
    solver: Solver | None = None  # by default the better one of gradient and mirror descent for the query
    neighbours: Neighbours = REPLACE_ONE  # the data sets that must look alike
    _plans: dict[Problem, Plan] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def budget(self) -> Budget:
        """Guarantee of the event Gaussian(noise_multiplier), with a margin of 1e-9."""
        mu, unit = (1 - 1e-9) / self.noise_multiplier, self.neighbours
        epsilon = gaussian_epsilon(mu, spendable(Budget(1.0, self.delta)).delta)
        return Budget(epsilon, self.delta, unit.relation, unit.unit, unit.rows, unit.weight)

    def plan(self, query: CompiledRegression | WideRegression) -> Plan:
        """Plan the measurement of a convex query, from public facts."""
        problem = query.problem
        if problem not in self._plans:  # planning takes a second
            self._plans[problem] = self._plan(problem)
        return self._plans[problem]

    def _plan(self, problem: Problem) -> Plan:
        from dpcvx.planning.planner import plan, residual_clip
        from dpcvx.solvers import NoisyGradientDescent, NoisyMirrorDescent

        clip = residual_clip(problem)
        usual: tuple[Solver, ...] = (NoisyGradientDescent(clip=clip), NoisyMirrorDescent(clip=clip))
        solvers = usual if self.solver is None else (self.solver,)
        made = plan(problem, self.n, self.budget, solvers, accountant=GaussianEquivalent())
        asked = {stage.mechanism.traits.question for stage in made.stages}
        if self.neighbours.unit == "person" and asked != {"gradient"}:
            raise Incompatible(
                f"{type(made.solver).__name__} asks for more than gradients, which alone are measured for "
                "persons. Use NoisyGradientDescent or NoisyMirrorDescent as the oracle, or leave it out."
            )
        if "minimiser" in asked:
            raise Incompatible(
                f"The running time of {type(made.solver).__name__} depends on the records, and the time of "
                "an answer is seen by whoever asked. Use a solver that asks for gradients or vertices."
            )
        if zcdp(made.event) > 1 / (2 * self.noise_multiplier**2):
            raise Incompatible(f"{type(made.solver).__name__} costs more than the part of one measurement.")
        return made

    def measure(self, query: CompiledQuery, private_side: PrivateSide) -> MeasuredAnswer:
        """Return a new private answer to a query."""
        if isinstance(query, CompiledMeans):
            return self._means(query, private_side)
        if not isinstance(query, CompiledRegression | WideRegression):
            raise Incompatible(f"{type(query).__name__} cannot be measured.")
        plan = self.plan(query)
        group: tuple[Measurement, ...] = ()
        if isinstance(query, WideRegression):
            theta = private_side.wide_minimiser(plan, query)
        else:
            theta, group = private_side.minimiser(plan, query)
        predicted = sum(plan.solver.bound(plan.problem, self.n, self.budget))
        return MeasuredAnswer(theta, group, min(predicted, query.scale), None, None)

    def _means(self, query: CompiledMeans, private_side: PrivateSide) -> MeasuredAnswer:
        from scipy.special import ndtri

        mechanism = NoisyMeans(query, self.n, self.noise_multiplier, self.neighbours)
        if mechanism.failure > SAMPLER_SHARE / 2 * self.delta:
            raise Incompatible(
                f"{mechanism.n_draws} noise values of finite precision cannot carry so small a delta: use a "
                "larger one, or ask about fewer cells."
            )
        theta = private_side.ask(mechanism)
        bound = -float(ndtri(MEASUREMENT_FAILURE / (2 * len(theta)))) * mechanism.noise
        group = (Measurement(query.attributes, (query.values,), theta, mechanism.noise),)
        return MeasuredAnswer(theta, group, mechanism.noise, mechanism.noise, bound)


@dataclass(frozen=True)
class GaussianEquivalent:
    """Accountant that prices an event as the Gaussian release of the same zCDP; calibrates one measurement.

    The engine as a whole is accounted for by Rényi divergences, where a Gaussian release of the same zCDP is
    an upper bound on the event at every order. The result is no claim about the event by itself.
    """

    def epsilon(self, event: Event, delta: float) -> float:
        """Return the epsilon of that Gaussian release."""
        return gaussian_epsilon(math.sqrt(2 * zcdp(event)), delta)

    def delta(self, event: Event, epsilon: float) -> float:
        """Return the delta of that Gaussian release."""
        return gaussian_delta(epsilon, math.sqrt(2 * zcdp(event)))

    def supports(self, event: Event) -> bool:
        """Say whether every part is a Gaussian release or a selection."""
        return all(isinstance(leaf, Gaussian | Exponential) for leaf in count_leaves(event))


def zcdp(event: Event) -> float:
    """Return rho of Gaussian releases (1/(2 noise^2)) and selections (eta^2/8); refuse other events."""
    total = 0.0
    for leaf, count in count_leaves(event).items():
        match leaf:
            case Gaussian():
                total += count / (2 * leaf.noise_multiplier**2)
            case Exponential():
                total += count * leaf.eta**2 / 8
            case _:
                raise Incompatible(
                    f"Measurements are Gaussian releases or selections, not {type(leaf).__name__}: choose "
                    "another solver."
                )
    return total
