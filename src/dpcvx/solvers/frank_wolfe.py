"""Noisy Frank-Wolfe over polytopes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, cast

from dpcvx.accounting import Accountant, Budget, calibrate, spendable
from dpcvx.arrays import Vector
from dpcvx.domains import HasVertices
from dpcvx.errors import Incompatible, WrongValue
from dpcvx.events import Exponential, Repeat
from dpcvx.mechanisms import NoisyVertex, weight_bits
from dpcvx.plans import Asking, Plan, Solver, Stage, check_count, require
from dpcvx.problem import Problem
from dpcvx.solvers.defaults import default
from dpcvx.solvers.descent import gradient_noise

__all__ = ["NoisyFrankWolfe"]

MOST_STEPS: int = default("solvers.frank_wolfe.MOST_STEPS")


@dataclass(frozen=True)
class NoisyFrankWolfe(Solver):
    """Frank-Wolfe with privately selected vertices: the nearly optimal private LASSO.

    theta_{t+1} = (1 - mu_t) theta_t + mu_t s_t, s_t a vertex drawn by the exponential mechanism

    Algorithm: [TTZ15] Algorithm 2 with ``steps="decaying"``, mu_t = 2/(t + 2) for t = 0, 1, ...; [TTZ14]
    Algorithm 4 with ``steps="constant"``, mu = log(T + 1)/(T + 1).

    Privacy: T questions `NoisyVertex` (score sensitivity 2 c L1/n, replace-one); event
    Repeat(Exponential(eta), T), eta calibrated as the bounded range of T adaptive selections
    (PRIVACY_MATH §2.1).

    Utility: [TTZ15] Theorem 2.5 and Corollary 2.7: excess risk of order curvature/T + (c L1/n) sqrt(T)
    log(vertices)/mu. The default T minimises that sum, so that T grows like n^(2/3) and the risk falls like
    n^(-2/3).

    Deviations: the exponential mechanism instead of Laplace report-noisy-max, whose constants in the papers
    do not cover replace-one; over compressed records residuals may be those of an earlier iterate
    (`lazy_scores`); decaying steps start at mu_0 = 1, so the first point is a vertex; the paper's constant
    step 1/(T + 2) leaves (1 - 1/(T + 2))^T > 1/e of the first excess, so a longer one is taken, which leaves
    at most excess/T + curvature log(T)/T.

    Parameters
    ----------
    n_iter : int, optional
        Number of selections T.
    steps : {"decaying", "constant"}
        Step rule.
    clip : float, optional
        Residuals phi' are clipped to this size.
    """

    n_iter: int | None = None
    steps: str = "decaying"
    clip: float | None = None

    name: ClassVar[str] = "frank_wolfe"
    requires: ClassVar[tuple[type, ...]] = (HasVertices,)

    def __post_init__(self) -> None:
        check_count("n_iter", self.n_iter)
        if self.steps not in ("decaying", "constant"):
            raise WrongValue(f'steps must be "decaying" or "constant", got {self.steps!r}.')

    def plan(self, problem: Problem, n: int, budget: Budget, accountant: Accountant) -> Plan:
        """Fix the number of selections and their range from public facts."""
        require(self, problem)
        T = self._count(problem, n, budget)
        eta = 1 / calibrate(lambda t: Repeat(Exponential(1 / t), T), spendable(budget), accountant)
        bits = weight_bits([self._step(t, T) for t in range(T)])
        mechanism = NoisyVertex(problem, n, eta, bits, budget.neighbours, self.clip)
        solver = NoisyFrankWolfe(T, self.steps, self.clip)
        return Plan((Stage(mechanism, T),), problem, n, solver, budget, accountant)

    def run(self, plan: Plan, ask: Asking) -> Vector:
        """Move towards the oracle's vertices."""
        T, theta = plan.n_calls, cast(NoisyVertex, plan.stages[0].mechanism).origin()
        for t in range(T):
            mu = self._step(t, T)
            v = ask.vertex()  # a noisy best vertex at the current point
            theta.move(mu, v)
            ask.move(mu, v)
        return theta.dense()

    def predict(self, problem: Problem, n: int, budget: Budget) -> tuple[float, float]:
        """Bound the excess risk: (optimisation part, privacy part)."""
        return self._parts(problem, n, budget, self._count(problem, n, budget))

    def _step(self, t: int, T: int) -> float:
        return 2 / (t + 2) if self.steps == "decaying" else math.log(T + 1) / (T + 1)

    def _parts(self, problem: Problem, n: int, budget: Budget, T: int) -> tuple[float, float]:
        # eta is close to 2 mu / sqrt(T) (PRIVACY_MATH §2.1)
        noise = gradient_noise(problem, n, budget, self.clip, ord=math.inf)
        scale = problem.C.norm(1, problem.size) * noise * math.sqrt(T)
        return 2 * problem.curvature / (T + 2), scale * math.log(problem.C.n_vertices(problem.size))

    def _count(self, problem: Problem, n: int, budget: Budget) -> int:
        if self.n_iter is not None:
            return self.n_iter
        if not math.isfinite(problem.curvature):
            raise Incompatible(
                f"NoisyFrankWolfe needs a smooth loss to choose n_iter; {type(problem.loss).__name__} is "
                "not. Give n_iter, or use NoisyMirrorDescent."
            )
        _, privacy = self._parts(problem, n, budget, 1)
        best: float = (4 * problem.curvature / privacy) ** (
            2 / 3
        )  # minimiser of 2 curvature/T + privacy * sqrt(T)
        return round(min(max(best, 1.0), MOST_STEPS))
