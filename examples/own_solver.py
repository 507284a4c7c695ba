"""A solver of your own: a baseline that takes one step along one noisy gradient."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

import dpcvx as dp
from dpcvx.accounting import Accountant, Tight, calibrate, spendable
from dpcvx.arrays import Vector
from dpcvx.domains import HasProjection
from dpcvx.events import Gaussian
from dpcvx.mechanisms import NoisyGradient
from dpcvx.plans import Asking, Plan, Solver, Stage, require
from dpcvx.solvers import NoisyGradientDescent


@dataclass(frozen=True)
class SingleStep(Solver):
    """Take one step along a noisy gradient and project.

    theta = Proj_C(start - step * g)

    Privacy: one query `NoisyGradient` (l2 sensitivity 2 L2/n, replace-one); event Gaussian.
    """

    requires: ClassVar[tuple[type, ...]] = (HasProjection,)

    def plan(self, problem: dp.Problem, n: int, budget: dp.Budget, accountant: Accountant) -> Plan:
        require(self, problem)
        noise_multiplier = calibrate(Gaussian, spendable(budget), accountant)
        mechanism = NoisyGradient(problem, n, noise_multiplier, budget.neighbours)
        return Plan((Stage(mechanism, 1),), problem, n, self, budget, accountant)

    def run(self, plan: Plan, ask: Asking) -> Vector:
        C = plan.problem.C
        theta = C.start(plan.problem.shape)
        return C.project(theta - ask.gradient(theta) / plan.problem.smoothness)

    def predict(self, problem: dp.Problem, n: int, budget: dp.Budget) -> tuple[float, float]:
        r = problem.C.norm(2, problem.size)
        return problem.smoothness * r**2 / 2, 0.0  # a bound on the optimisation error alone


rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, size=(20_000, 4))
y = np.clip(X @ [0.5, -0.4, 0.0, 0.1], -1, 1)

problem = dp.Problem(dp.Squared(), dp.L2Ball(1.0), bounds=dp.Bounds(x_inf=1.0), d=4)
plan = dp.plan(problem, len(X), dp.Budget(1.0, 1e-8), candidates=(SingleStep(), NoisyGradientDescent()))
print(plan)  # the baseline is compared, and not chosen
alone = SingleStep().plan(problem, len(X), dp.Budget(1.0, 1e-8), Tight())
print(dp.execute(alone, dp.source(X, y, bounds=problem.bounds)).theta.round(3))
