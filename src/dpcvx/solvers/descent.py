"""Planning that descents share: the noise of a gradient, and plans of noisy gradients."""

from __future__ import annotations

from dpcvx.accounting import Accountant, Budget, calibrate, gaussian_mu, spendable
from dpcvx.events import Compose, Event, Gaussian, Repeat
from dpcvx.mechanisms import NoisyGradient
from dpcvx.plans import Plan, Solver, Stage
from dpcvx.problem import Problem

__all__ = ["gradient_noise", "plan_gradients", "plan_parts"]


def gradient_noise(
    problem: Problem, n: int, budget: Budget, clip: float | None = None, ord: float = 2
) -> float:
    """Return L/(n mu) times the diameter of neighbours: the noise of one gradient that takes all of a budget.

    It is the standard deviation of each coordinate, for planning; T gradients have sqrt(T) times as much.
    With ord=inf, L bounds single coordinates: the scale of one selection among vertices of length 1.
    """
    mu = gaussian_mu(budget.epsilon, budget.delta)
    return budget.neighbours.ball * problem.lipschitz(ord, clip) / (n * mu)


def plan_gradients(
    solver: Solver, T: int, problem: Problem, n: int, budget: Budget, accountant: Accountant
) -> Plan:
    """Return the plan of a solver, its settings fixed, that asks for T noisy gradients of all records."""
    return plan_parts(solver, ((T, 1.0),), problem, n, budget, accountant)


def plan_parts(
    solver: Solver,
    parts: tuple[tuple[int, float], ...],
    problem: Problem,
    n: int,
    budget: Budget,
    accountant: Accountant,
) -> Plan:
    """Return the plan of noisy gradients of all records in parts with different noise.

    `parts`: for each part its number of gradients, and its noise over that of a part with factor 1. The
    factors are public and fixed before the first answer; every gradient is charged with its own noise
    (PRIVACY_MATH §1, unequal steps).
    """

    def compose(t: float) -> Event:
        repeated = tuple(Repeat(Gaussian(t * factor), count) for count, factor in parts)
        return repeated[0] if len(repeated) == 1 else Compose(repeated)

    unit = calibrate(compose, spendable(budget), accountant)
    stages = tuple(
        Stage(NoisyGradient(problem, n, unit * factor, budget.neighbours, solver.clip), count)
        for count, factor in parts
    )
    return Plan(stages, problem, n, solver, budget, accountant)
