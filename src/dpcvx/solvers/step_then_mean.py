"""One step along the gradient, then the mean of the residuals: a regression for few records."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpcvx.accounting import Accountant, Budget, calibrate, gaussian_mu, spendable
from dpcvx.arrays import Vector
from dpcvx.errors import Incompatible
from dpcvx.events import Compose, Gaussian, Repeat
from dpcvx.mechanisms import NoisyGradient
from dpcvx.plans import Asking, Plan, Solver, Stage
from dpcvx.problem import Problem
from dpcvx.solvers.defaults import default
from dpcvx.solvers.descent import gradient_noise
from dpcvx.solvers.typical_data import Typical, usual_norm

__all__ = ["RESIDUAL", "StepThenMean", "step_pays"]

MEAN_SHARE: float = default("solvers.step_then_mean.MEAN_SHARE")
VARIANCE: float = default("solvers.step_then_mean.VARIANCE")
NOISE_PRICE: float = default("solvers.step_then_mean.NOISE_PRICE")
LONGEST: float = default("solvers.step_then_mean.LONGEST")
RESIDUAL: float = default("solvers.step_then_mean.RESIDUAL")
ENOUGH: tuple[float, float] = default("solvers.step_then_mean.ENOUGH")
FEW: float = default("solvers.step_then_mean.FEW")
MEAN_QUERIES = 2
UNCLIPPED = math.erf(RESIDUAL / math.sqrt(2))  # share of normal residuals within the clip


def step_pays(problem: Problem, n: int, budget: Budget) -> bool:
    """Say, from n mu and d alone, whether one step is better than descent and than a constant."""
    if budget.delta == 0:
        return False
    paid = spendable(budget)
    known = n // budget.neighbours.rows * gaussian_mu(paid.epsilon, paid.delta)
    return ENOUGH[0] <= known <= min(ENOUGH[1], FEW * problem.d)


@dataclass(frozen=True)
class StepThenMean(Solver):
    """One gradient step from 0, as long as its noise allows, then an intercept from the mean residual.

    theta = -s g(0), then twice: intercept <- intercept - (mean of the clipped residuals)/c

    Algorithm: g(0) is the noisy gradient at 0. Rows are not centred, so most of the noise in predictions is
    one number for everybody, <mean row, noise>. Two queries for the intercept's entry of the gradient remove
    it; their noise is that of one feature, not of a row. The step s is public: its noise adds a tenth of the
    target's variance to predictions if columns have their usual variances, and s is at most twice the inverse
    of the sum of these. c is the share of normal residuals within the clip.

    Privacy: `NoisyGradient` once, with l2 sensitivity 2 L2/n, and twice on the support of the intercept, with
    2 (phi' bound) B_x/n at a public theta (PRIVACY_MATH §15; replace-one); event
    Compose(Gaussian, Repeat(Gaussian, 2)).

    Utility: no bound; the excess risk on typical data (`typical_data`) is predicted.

    Deviations: none, as there is no paper.
    """

    def plan(self, problem: Problem, n: int, budget: Budget, accountant: Accountant) -> Plan:
        """Fix the noise of the three queries from public facts."""
        if problem.outputs > 1 or problem.loss.target_deviation is None:
            raise Incompatible(
                "StepThenMean is for one target whose standard deviation is known, with an intercept."
            )
        step, mean = 1 / math.sqrt(1 - MEAN_SHARE), math.sqrt(MEAN_QUERIES / MEAN_SHARE)

        def event(t: float) -> Compose:
            return Compose((Gaussian(t * step), Repeat(Gaussian(t * mean), MEAN_QUERIES)))

        t = calibrate(event, spendable(budget), accountant)
        stages = (
            Stage(NoisyGradient(problem, n, t * step, budget.neighbours), 1),
            Stage(NoisyGradient(problem, n, t * mean, budget.neighbours, support=1), MEAN_QUERIES),
        )
        return Plan(stages, problem, n, self, budget, accountant)

    def run(self, plan: Plan, ask: Asking) -> Vector:
        """Step, then find the intercept."""
        problem = plan.problem
        C: Any = problem.domain
        theta: Vector = -_length(problem, plan.stages[0].mechanism.noise) * ask.gradient(np.zeros(problem.d))
        theta[-1] = 0.0
        theta = C.project(theta)
        last = np.array([problem.d - 1])
        for k in range(MEAN_QUERIES):
            theta[-1] -= float(ask.gradient(theta, last)[0]) / (UNCLIPPED * (k + 1))
            theta = C.project(theta)
        return theta

    def predict(self, problem: Problem, n: int, budget: Budget) -> tuple[float, float]:
        """Excess risk of the step on typical data whose columns have their usual variances."""
        typical, noise = Typical.of(problem), gradient_noise(problem, n, budget) / math.sqrt(1 - MEAN_SHARE)
        shorter = VARIANCE * (problem.row_norm / usual_norm(problem)) ** 2
        h, s = shorter * typical.curvatures, _length(problem, noise)
        left = typical.counts * typical.curvatures * typical.signal * (1 - s * h) ** 2
        return float(left.sum()) / 2, float((typical.counts * h).sum()) * (s * noise) ** 2 / 2


def _length(problem: Problem, noise: float) -> float:
    """Length of the step, for this standard deviation of the noise on a coordinate of the gradient."""
    variance = VARIANCE * problem.row_norm**2
    deviation = float(problem.loss.target_deviation or 0.0)
    return min(math.sqrt(NOISE_PRICE / variance) * deviation / noise, LONGEST / variance)
