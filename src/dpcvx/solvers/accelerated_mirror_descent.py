"""Noisy accelerated mirror descent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from dpcvx.accounting import Accountant, Budget
from dpcvx.arrays import Vector
from dpcvx.domains import HasMirrorMap
from dpcvx.errors import Incompatible
from dpcvx.plans import Asking, Plan, Solver, check_count, require
from dpcvx.problem import Problem
from dpcvx.solvers.defaults import default
from dpcvx.solvers.descent import gradient_noise, plan_gradients

__all__ = ["NoisyAcceleratedMirrorDescent"]

MOST_STEPS: int = default("solvers.accelerated_mirror_descent.MOST_STEPS")


@dataclass(frozen=True)
class NoisyAcceleratedMirrorDescent(Solver):
    """Accelerated mirror descent on noisy gradients: few steps, smooth losses, any mirror map.

    x = r_k z_k + (1 - r_k) y_k; z_{k+1} = argmin_{z in C} alpha_k <g(x), z> + B_psi(z, z_k);
    y_{k+1} = r_k z_{k+1} + (1 - r_k) y_k; r_k = 2/(k + 2), alpha_k = m (k + 2)/(4 beta)

    Algorithm: [WYX17] Algorithm 3, with beta the smoothness in the norm of psi and m the modulus of psi.

    Privacy: T questions `NoisyGradient` (l2 sensitivity 2 L2/n, replace-one), one for each k: the same noisy
    gradient serves the y- and the z-step; event Repeat(Gaussian, T), so
    sigma = 2 L2 sqrt(T)/(n mu(eps, delta)) (PRIVACY_MATH §7).

    Utility: [WYX17] Theorem 5.4. With D = max B_psi(., start) and N = E||g||_*^2 for standard normal g, the
    expected excess risk is at most 8 beta D/(m (T + 1)^2) + sigma^2 N (T + 2)^2/(6 beta (T + 1)): O(1/T^2)
    without noise. As sigma^2 grows like T, the default T balances T^-2 with T^2.

    Deviations: the paper's y-step uses the un-noised gradient and returns its result, which is not private.
    Here y_{k+1} is the point at which the paper's proof evaluates that step. It needs no gradient beyond the
    noisy one in z_{k+1}, and no minimisation in the norm of C; the noise b of step k costs at most
    r_k alpha_k ||b||_*^2/m, which the bound above sums up.

    Parameters
    ----------
    n_iter : int, optional
        Number of gradients T.
    clip : float, optional
        Residuals phi' are clipped to this size.
    """

    n_iter: int | None = None
    clip: float | None = None

    name: ClassVar[str] = "accelerated_mirror_descent"
    requires: ClassVar[tuple[type, ...]] = (HasMirrorMap,)

    def __post_init__(self) -> None:
        check_count("n_iter", self.n_iter)

    def plan(self, problem: Problem, n: int, budget: Budget, accountant: Accountant) -> Plan:
        """Fix the number of steps and the noise from public facts."""
        require(self, problem)
        if not math.isfinite(problem.smoothness):
            raise Incompatible(
                f"NoisyAcceleratedMirrorDescent needs a smooth loss; {type(problem.loss).__name__} is not. "
                "Use NoisyMirrorDescent."
            )
        T = self._steps(problem, n, budget)
        return plan_gradients(NoisyAcceleratedMirrorDescent(T, self.clip), T, problem, n, budget, accountant)

    def run(self, plan: Plan, ask: Asking) -> Vector:
        """Descend along the oracle's gradients."""
        C, shape = plan.problem.C, plan.problem.shape
        psi = C.mirror_map(shape)
        longest = psi.strong_convexity / (4 * plan.problem.smoothness_in(psi))
        y: Vector = C.start(shape)
        z = y
        for k in range(plan.n_calls):
            r, alpha = 2 / (k + 2), (k + 2) * longest  # [WYX17] Algorithm 3
            g = ask.gradient(r * z + (1 - r) * y)
            z = psi.step(z, g, alpha)
            y = r * z + (1 - r) * y
        return y

    def predict(self, problem: Problem, n: int, budget: Budget) -> tuple[float, float]:
        """Bound the excess risk: (optimisation part, privacy part)."""
        T = self._steps(problem, n, budget)
        optimisation, privacy = self._rates(problem, n, budget)
        return optimisation / (T + 1) ** 2, privacy * T * (T + 2) ** 2 / (T + 1)

    def _rates(self, problem: Problem, n: int, budget: Budget) -> tuple[float, float]:
        """Factors of 1/(T + 1)^2 and of T (T + 2)^2/(T + 1) in the bound."""
        psi = problem.C.mirror_map(problem.shape)
        beta, D = problem.smoothness_in(psi), psi.divergence_bound(problem.shape)
        noise = gradient_noise(problem, n, budget, self.clip)
        return 8 * beta * D / psi.strong_convexity, noise**2 * psi.noise_norm(problem.shape) / (6 * beta)

    def _steps(self, problem: Problem, n: int, budget: Budget) -> int:
        if self.n_iter is not None:
            return self.n_iter
        optimisation, privacy = self._rates(problem, n, budget)
        best: float = (optimisation / privacy) ** 0.25
        return round(min(max(best, 1), MOST_STEPS))
