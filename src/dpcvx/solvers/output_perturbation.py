"""Output perturbation: noise on the minimiser of a strongly convex objective."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpcvx.accounting import Accountant, Budget, calibrate, gaussian_mu, spendable
from dpcvx.arrays import Vector
from dpcvx.errors import Incompatible, WrongValue
from dpcvx.events import Gaussian
from dpcvx.mechanisms import NoisyMinimiser
from dpcvx.mechanisms.minimise import RidgeFacts
from dpcvx.plans import Asking, Plan, Solver, Stage, require
from dpcvx.problem import Problem

__all__ = ["OutputPerturbation"]

RIDGES = np.geomspace(1e-6, 1e2, 161)  # in units of the smoothness, among which the bound chooses


@dataclass(frozen=True)
class OutputPerturbation(Solver):
    """Minimise a strongly convex objective and add Gaussian noise to the minimiser.

    theta = Proj_C(argmin_{s in C} F(s) + ((ridge - l2)/2) ||s||^2 + sigma Z)

    Algorithm: [KD19] Section 4.1 with a quadratic term, for any convex regulariser or set.

    Privacy: one question `NoisyMinimiser` (l2 sensitivity 2 L2/(n ridge), replace-one, plus what the
    minimiser leaves open); event Gaussian, so sigma = 2 L2/(n ridge mu(eps, delta)) (PRIVACY_MATH §5).

    Utility: before the projection the noise moves a score <x, theta> by a normal of deviation ||x|| sigma,
    so the excess risk is at most (ridge - l2) R^2/2 + min(L B sigma, beta B^2 sigma^2/2) + l2 d sigma^2/2
    with R = max_C ||theta||_2, B = max ||x||_2. A regulariser r that is a norm adds E r(sigma Z) at most, by
    the triangle inequality. The default ridge, at least l2, minimises that bound.

    Deviations: the paper has a norm where the quadratic term is. A norm is not strongly convex, the minimiser
    may jump by any distance, and the algorithm with the paper's noise is not private. The norm may stay,
    as a regulariser or a set, beside a quadratic term whose modulus is public.

    Parameters
    ----------
    ridge : float, optional
        Modulus of the quadratic term of the mean objective, at least the problem's ``l2``, which it includes.
    """

    ridge: float | None = None

    proximal: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.ridge is not None and not (self.ridge > 0 and math.isfinite(self.ridge)):
            raise WrongValue(f"ridge must be positive and finite, got {self.ridge!r}.")

    def plan(self, problem: Problem, n: int, budget: Budget, accountant: Accountant) -> Plan:
        """Fix the ridge and the noise from public facts."""
        require(self, problem)
        ridge = self._modulus(problem, n, budget)
        noise_multiplier = calibrate(Gaussian, spendable(budget), accountant)
        mechanism = NoisyMinimiser(problem, n, noise_multiplier, n * ridge, budget.neighbours)
        return Plan((Stage(mechanism, 1),), problem, n, OutputPerturbation(ridge), budget, accountant)

    def run(self, plan: Plan, ask: Asking) -> Vector:
        """Ask once, and return to the set what the noise carried out of it."""
        theta = ask.minimiser()
        return theta if plan.problem.domain is None else plan.problem.C.project(theta)

    def predict(self, problem: Problem, n: int, budget: Budget) -> tuple[float, float]:
        """Bound the excess risk: (part of the ridge, part of the noise)."""
        return _parts(problem, n, budget, self._modulus(problem, n, budget), _growth(problem))

    def _modulus(self, problem: Problem, n: int, budget: Budget) -> float:
        if self.ridge is not None:
            if self.ridge < problem.l2:
                raise Incompatible(f"ridge={self.ridge:g} is below the problem's own l2={problem.l2:g}.")
            return self.ridge
        if budget.delta == 0:
            raise Incompatible("Output perturbation draws Gaussian noise, which needs delta > 0.")
        facts = RidgeFacts(problem, n, n, 1.0)
        ridges = np.maximum(RIDGES * facts.bend * facts.row**2, problem.l2)
        growth = _growth(problem)
        return float(min(ridges, key=lambda ridge: sum(_parts(problem, n, budget, float(ridge), growth))))


def _parts(
    problem: Problem, n: int, budget: Budget, ridge: float, growth: tuple[float, float]
) -> tuple[float, float]:
    facts = RidgeFacts(problem, n, n, n * ridge)
    largest = facts.slope * facts.row
    sigma = budget.neighbours.ball * largest / (n * ridge * gaussian_mu(budget.epsilon, budget.delta))
    radius = facts.radius if problem.domain is not None else RidgeFacts(problem, n, n, n * problem.l2).radius
    noise = min(largest * sigma, facts.bend * (facts.row * sigma) ** 2 / 2)
    noise += growth[0] * sigma + growth[1] * sigma**2
    return (ridge - problem.l2) * radius**2 / 2, noise


def _growth(problem: Problem) -> tuple[float, float]:
    """Return (a, b): noise sigma Z adds at most a sigma + b sigma^2 to the mean of r and of the ridge."""
    linear, curved = (0.0, 0.0) if problem.regularizer is None else problem.regularizer.growth(problem.size)
    return linear, (problem.l2 + curved) * problem.size / 2
