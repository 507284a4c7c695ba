"""Noisy Frank-Wolfe over general convex sets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from dpcvx.accounting import Accountant, Budget
from dpcvx.arrays import Vector
from dpcvx.domains import HasLMO
from dpcvx.errors import Incompatible, WrongValue
from dpcvx.plans import Asking, Plan, Solver, check_count, require
from dpcvx.problem import Problem
from dpcvx.solvers.defaults import default
from dpcvx.solvers.descent import gradient_noise, plan_gradients

__all__ = ["NoisyGeneralFrankWolfe"]

MOST_STEPS: int = default("solvers.general_frank_wolfe.MOST_STEPS")


@dataclass(frozen=True)
class NoisyGeneralFrankWolfe(Solver):
    """Frank-Wolfe on noisy gradients, for any set with a linear minimisation oracle.

    theta_{t+1} = (1 - mu_t) theta_t + mu_t argmin_{s in C} <g_t, s>

    Algorithm: [TTZ14] Algorithm 5 with ``steps="constant"``, mu = log(T + 1)/(T + 1), or with
    ``steps="decaying"``, mu_t = 2/(t + 2) for t = 0, 1, ....

    Privacy: T questions `NoisyGradient` (l2 sensitivity 2 L2/n, replace-one); event Repeat(Gaussian, T), so
    sigma = 2 L2 sqrt(T)/(n mu(eps, delta)) (PRIVACY_MATH §1, §3). The minimisation over C, exact or not, is
    post-processing: its error costs accuracy, never privacy.

    Utility: [TTZ14] Theorem B.2, [TTZ15] Theorem 2.6. With decaying steps the expected excess risk is at most
    2 curvature/(T + 2) + sigma G_C, with G_C the Gaussian width of C: E<b, theta* - s_t> <= E max_s <-b, s> =
    sigma G_C at each step. The default T minimises that sum.

    Deviations: noise by exact calibration (the paper's has L2 to the first power); decaying steps by default;
    the paper's constant step 1/(T + 2) leaves more than 1/e of the first excess, so a longer one is taken.

    Parameters
    ----------
    n_iter : int, optional
        Number of gradients T.
    steps : {"decaying", "constant"}
        Step rule.
    clip : float, optional
        Residuals phi' are clipped to this size.
    """

    n_iter: int | None = None
    steps: str = "decaying"
    clip: float | None = None

    name: ClassVar[str] = "general_frank_wolfe"
    requires: ClassVar[tuple[type, ...]] = (HasLMO,)

    def __post_init__(self) -> None:
        check_count("n_iter", self.n_iter)
        if self.steps not in ("decaying", "constant"):
            raise WrongValue(f'steps must be "decaying" or "constant", got {self.steps!r}.')

    def plan(self, problem: Problem, n: int, budget: Budget, accountant: Accountant) -> Plan:
        """Fix the number of steps and the noise from public facts."""
        require(self, problem)
        T = self._count(problem, n, budget)
        solver = NoisyGeneralFrankWolfe(T, self.steps, self.clip)
        return plan_gradients(solver, T, problem, n, budget, accountant)

    def run(self, plan: Plan, ask: Asking) -> Vector:
        """Move towards the minimisers of the oracle's gradients."""
        C, T = plan.problem.C, plan.n_calls
        theta: Vector = C.start(plan.problem.shape)
        for t in range(T):
            mu = 2 / (t + 2) if self.steps == "decaying" else math.log(T + 1) / (T + 1)
            theta = (1 - mu) * theta + mu * C.lmo(ask.gradient(theta))
        return theta

    def predict(self, problem: Problem, n: int, budget: Budget) -> tuple[float, float]:
        """Bound the excess risk: (optimisation part, privacy part)."""
        return self._parts(problem, n, budget, self._count(problem, n, budget))

    def _parts(self, problem: Problem, n: int, budget: Budget, T: int) -> tuple[float, float]:
        sigma = math.sqrt(T) * gradient_noise(problem, n, budget, self.clip)
        return 2 * problem.curvature / (T + 2), sigma * problem.C.gaussian_width(problem.shape)

    def _count(self, problem: Problem, n: int, budget: Budget) -> int:
        if self.n_iter is not None:
            return self.n_iter
        if not math.isfinite(problem.curvature):
            raise Incompatible(
                f"NoisyGeneralFrankWolfe needs a smooth loss to choose n_iter; {type(problem.loss).__name__} "
                "is not. Give n_iter, or use NoisyMirrorDescent."
            )
        _, privacy = self._parts(problem, n, budget, 1)
        # The minimiser of 2 curvature/T + privacy * sqrt(T).
        best: float = (4 * problem.curvature / privacy) ** (2 / 3)
        return round(min(max(best, 1.0), MOST_STEPS))
