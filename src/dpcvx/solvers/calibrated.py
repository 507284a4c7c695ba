"""A fit of means, then a released correction of their level, which clipped slopes bend down."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpcvx.accounting import Accountant, Budget, Following, gaussian_epsilon, gaussian_mu, spendable
from dpcvx.arrays import Vector
from dpcvx.data import MeanTotals
from dpcvx.errors import Incompatible
from dpcvx.mechanisms import NoisyGoodness
from dpcvx.plans import Asking, Plan, Solver, Stage
from dpcvx.problem import Problem
from dpcvx.solvers.defaults import default
from dpcvx.solvers.scaled_target import LOG_UNIT

__all__ = ["Calibrated"]

SHARE: float = default("solvers.calibrated.SHARE")
CLIPS: tuple[float, float] = default("solvers.calibrated.CLIPS")
MEAN_CLIP: float = default("solvers.calibrated.MEAN_CLIP")
USUAL: float = default("solvers.calibrated.USUAL")


@dataclass(frozen=True)
class Calibrated(Solver):
    """Fit means with another solver, and shift the intercept so that they add up to the sum of the targets.

    Algorithm: the fit is the other solver's. With the released sums Y of targets and M of predicted means the
    intercept of a model of log(mean) moves by c = log(Y/M), after which the means add up to Y. Noise on c, of
    the standard deviation s, makes small corrections useless: c is multiplied by 1 - s^2/c^2, or by
    t^2/(t^2 + s^2) if that is larger, t being the usual size of a correction.

    Privacy: one question `NoisyGoodness` about `MeanTotals` (l2 sensitivity sqrt(2) under replace-one and
    add/remove, PRIVACY_MATH §12c) takes a share of mu(eps, delta)^2; the fit is calibrated so that both
    together keep the budget. The correction is post-processing.

    Utility: slopes of the fit are clipped at a few standard deviations of the target, which bends means of
    skewed targets down by 5 to 50 %. The sum of targets is clipped much further out, since its noise does not
    grow with the number of features.

    Deviations: none, as there is no paper.

    Parameters
    ----------
    solver : Solver
        Fits the model.
    intercept : float
        Value of the constant feature, the last one.
    """

    solver: Solver
    intercept: float

    @property
    def clip(self) -> float | None:
        """Clip of the inner fit."""
        return self.solver.clip

    def innermost(self, plan: Plan) -> Plan:
        """Return the fit, without the question about the sums."""
        return self.solver.innermost(self._fit(plan))

    def _fit(self, plan: Plan) -> Plan:
        return replace(plan, stages=plan.stages[:-1], solver=self.solver, candidates=())

    def with_records(self, plan: Plan, n: int) -> Calibrated:
        """Return the fit with the step sizes of n records."""
        return replace(self, solver=self.solver.with_records(self._fit(plan), n))

    def with_redundant(self, directions: Vector) -> Calibrated:
        """Return the fit of a parameter with redundant directions."""
        return replace(self, solver=self.solver.with_redundant(directions))

    def plan(self, problem: Problem, n: int, budget: Budget, accountant: Accountant) -> Plan:
        """Give the sums their share, and the fit what is left."""
        if budget.delta == 0:
            raise Incompatible("Sums of means are measured with Gaussian noise, which needs delta > 0.")
        paid = spendable(budget)
        multiplier = 1 / (gaussian_mu(paid.epsilon, paid.delta) * math.sqrt(SHARE))
        loss: Any = problem.loss
        deviations = _clip_of_targets(n / (multiplier * budget.neighbours.rows))
        measure = MeanTotals(loss, min(1 + deviations / LOG_UNIT, loss.y_range[1]), MEAN_CLIP)
        asked = NoisyGoodness(problem, n, measure, multiplier, budget.neighbours)
        fit = self.solver.plan(problem, n, budget, Following(asked.event, accountant))
        stages = (*fit.stages, Stage(asked, 1))
        return Plan(stages, problem, n, replace(self, solver=fit.solver), budget, accountant)

    def run(self, plan: Plan, ask: Asking) -> Vector:
        """Fit, ask for the sums, and shift the intercept."""
        theta = self.solver.run(self._fit(plan), ask)
        asked: Any = plan.stages[-1].mechanism
        found = asked.measure.log_ratio(ask.goodness(theta), asked.noise)
        if found is None:
            return theta
        ratio, noise = found
        usual = USUAL**2 / (USUAL**2 + noise**2)
        shifted = theta.copy()
        shifted[-1] += ratio * max(usual, 1 - (noise / ratio) ** 2 if ratio else 0.0) / self.intercept
        return shifted

    def predict(self, problem: Problem, n: int, budget: Budget) -> tuple[float, float]:
        """The other solver's prediction for what the sums leave of the budget."""
        mu = gaussian_mu(budget.epsilon, budget.delta) * math.sqrt(1 - SHARE)
        return self.solver.predict(problem, n, replace(budget, epsilon=gaussian_epsilon(mu, budget.delta)))


def _clip_of_targets(strength: float) -> float:
    """Return the distance from their mean, in standard deviations, at which targets are clipped in a sum.

    Clipped at k standard deviations, a tail somewhat longer than an exponential one loses (1 + k) exp(-1 - k)
    of one from its mean. The smallest k is taken for which that is at most the noise of the mean,
    1.41 k/strength. `strength`: n mu of the question.
    """
    clips = np.linspace(*CLIPS, 100)
    biased = (1 + clips) * np.exp(-1 - clips) > math.sqrt(2) * clips / strength
    return float(clips[min(int(biased.sum()), len(clips) - 1)])
