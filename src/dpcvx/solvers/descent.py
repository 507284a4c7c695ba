"""Planning that descents share: the noise of a gradient, and the plan of T noisy gradients."""

from __future__ import annotations

from dpcvx.accounting import Accountant, Budget, calibrate, gaussian_mu, spendable
from dpcvx.events import Gaussian, Repeat
from dpcvx.mechanisms import NoisyGradient
from dpcvx.plans import Plan, Solver, Stage
from dpcvx.problem import Problem

__all__ = ["gradient_noise", "plan_gradients"]


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
    noise_multiplier = calibrate(lambda t: Repeat(Gaussian(t), T), spendable(budget), accountant)
    mechanism = NoisyGradient(problem, n, noise_multiplier, budget.neighbours, solver.clip)
    return Plan((Stage(mechanism, T),), problem, n, solver, budget, accountant)
