"""Least squares from noisy second moments of features and target."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpcvx.accounting import Accountant, Budget, calibrate, gaussian_mu, spendable
from dpcvx.arrays import Vector
from dpcvx.domains import HasProjection
from dpcvx.errors import Incompatible
from dpcvx.events import Compose, Gaussian
from dpcvx.mechanisms import NoisyGradient, NoisySecondMoments
from dpcvx.plans import Asking, Plan, Solver, Stage, require
from dpcvx.problem import Problem
from dpcvx.solvers.defaults import default

__all__ = ["SufficientStatistics"]

MOMENT_SHARE: float = default("solvers.sufficient_statistics.MOMENT_SHARE")
FAILURE: float = default("solvers.sufficient_statistics.FAILURE")
LEAST_CURVATURE: float = default("solvers.sufficient_statistics.LEAST_CURVATURE")
PROJECTED_STEPS = 1000  # on a (d, d) quadratic, once, only where its minimiser is outside the set


@dataclass(frozen=True)
class SufficientStatistics(Solver):
    """Solve the normal equations with noise on both sides: two private answers, and no steps to choose.

    theta = argmin_{s in C} <s, (A + l2 I + ridge I) s>/2 - <b, s>, A and b noisy means of x x^T and y x

    Algorithm: [Wang18] Algorithm 2 (AdaSSP). The ridge is what the noise of A may take from its smallest
    eigenvalue: max(0, k - max(0, e - k) - l2) with e the smallest eigenvalue of the noisy A and k = sigma
    sqrt(d log(2 d^2/0.05)) a bound on the noise's norm, sigma its deviation off the diagonal.

    Privacy: `NoisySecondMoments` (sqrt(2) B^2/n in the Frobenius norm, replace-one) and one `NoisyGradient`
    at 0, which is -b (2 B_y B/n); event Compose(Gaussian, Gaussian), with mu^2 shared evenly
    (PRIVACY_MATH §15).

    Utility: A and b differ from the records' by noise of norm |E| and |e|, so the excess risk is at most
    (|E| + ridge) r^2 + 2 |e| r with r = max_C ||theta||_2. For a model whose scores reach as far as its
    target, r B = B_y, and 3 to 300 features the sum is smallest for 0.53 to 0.61 of mu^2 on A.

    Deviations: exact Gaussian calibration. The paper releases the smallest eigenvalue in a third question;
    here it is read off the noisy A, which is free. A minimiser outside C is replaced by the one over C.
    """

    name: ClassVar[str] = "sufficient_statistics"
    requires: ClassVar[tuple[type, ...]] = (HasProjection,)

    def plan(self, problem: Problem, n: int, budget: Budget, accountant: Accountant) -> Plan:
        """Fix the noise of both answers."""
        require(self, problem)
        if not problem.loss.affine or problem.outputs > 1:
            raise Incompatible(
                f"SufficientStatistics solves squared loss of one target; got {type(problem.loss).__name__} "
                f"with {problem.outputs} output(s). Use NoisyGradientDescent."
            )
        first, second = _weights()
        t = calibrate(
            lambda t: Compose((Gaussian(t / first), Gaussian(t / second))), spendable(budget), accountant
        )
        moments = NoisySecondMoments(problem, n, t / first, None, budget.neighbours)
        slope = NoisyGradient(problem, n, t / second, budget.neighbours, clip=problem.slope(2, 0.0))
        return Plan((Stage(moments, 1), Stage(slope, 1)), problem, n, self, budget, accountant)

    def run(self, plan: Plan, ask: Asking) -> Vector:
        """Ask for both sides of the normal equations and solve them."""
        problem, zero = plan.problem, np.zeros(plan.problem.shape)
        A = ask.second_moments(zero).hessian
        b = -ask.gradient(zero)
        k = _norm(plan.stages[0].mechanism.noise / math.sqrt(2), problem.d)
        smallest = max(0.0, float(np.linalg.eigvalsh(A)[0]) - k)
        ridge = problem.l2 + max(0.0, k - smallest - problem.l2)
        return _minimiser(A, b, ridge, problem)

    def predict(self, problem: Problem, n: int, budget: Budget) -> tuple[float, float]:
        """Bound the excess risk: (part of the ridge, part of the noise)."""
        if budget.delta == 0:
            raise Incompatible("SufficientStatistics draws Gaussian noise, which needs delta > 0.")
        first, second = _weights()
        mu, neighbours = gaussian_mu(budget.epsilon, budget.delta), budget.neighbours
        r = problem.C.norm(2, problem.size)
        entry = math.sqrt(neighbours.cone_squared / 2) * problem.row_norm**2 / (n * mu * first)
        slope = neighbours.ball * problem.slope(2, 0.0) * problem.row_norm / (n * mu * second)
        matrix = _norm(entry, problem.d)
        return matrix * r**2, matrix * r**2 + 2 * slope * math.sqrt(problem.d) * r


def _weights() -> tuple[float, float]:
    """Shares of mu, whose squares add up to 1."""
    return math.sqrt(MOMENT_SHARE), math.sqrt(1 - MOMENT_SHARE)


def _norm(deviation: float, d: int) -> float:
    """Bound on the spectral norm of symmetric noise, exceeded with a chance of 0.05."""
    return deviation * math.sqrt(d * math.log(2 * d**2 / FAILURE))


def _minimiser(A: Vector, b: Vector, ridge: float, problem: Problem) -> Vector:
    """Minimiser over C of <s, (A + ridge I) s>/2 - <b, s>, made convex where noise exceeds the ridge."""
    values, axes = np.linalg.eigh(A)
    values = np.maximum(values + ridge, LEAST_CURVATURE * problem.row_norm**2)
    theta: Vector = axes @ ((axes.T @ b) / values)
    if problem.C.contains(theta):
        return theta
    theta = point = problem.C.project(theta)
    for t in range(PROJECTED_STEPS):
        before, slope = theta, axes @ (values * (axes.T @ point)) - b
        theta = problem.C.project(point - slope / values[-1])
        point = theta + t / (t + 3) * (theta - before)
    return theta
