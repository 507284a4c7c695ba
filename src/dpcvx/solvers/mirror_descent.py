"""Noisy mirror descent with a constant step and averaging."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from dpcvx.accounting import Accountant, Budget
from dpcvx.arrays import Vector
from dpcvx.domains import HasMirrorMap
from dpcvx.plans import Asking, Plan, Solver, check_count, require
from dpcvx.problem import Problem
from dpcvx.solvers.defaults import default
from dpcvx.solvers.descent import gradient_noise, plan_gradients

__all__ = ["NoisyMirrorDescent"]

MOST_STEPS: int = default("solvers.mirror_descent.MOST_STEPS")


@dataclass(frozen=True)
class NoisyMirrorDescent(Solver):
    """Mirror descent on noisy (sub)gradients, constant step, averaged.

    theta_{t+1} = argmin_{s in C} <g_t, s> + B_psi(s, theta_t)/eta; the mean of all theta_t is returned

    Algorithm: [TTZ14] Algorithm 1 with the mirror map of the domain.

    Privacy: T questions `NoisyGradient` (l2 sensitivity 2 L2/n, replace-one); event Repeat(Gaussian, T), so
    sigma = 2 L2 sqrt(T)/(n mu(eps, delta)) (PRIVACY_MATH §1); at delta = 1e-6 that is 9 to 16 times less
    than the paper's formula.

    Utility: [TTZ14] Theorem 3.2. Let D = max_C B_psi(., start), m the modulus of psi, L the bound on the dual
    norm of gradients and N = E||g||_*^2 for standard normal g. The step
    eta = sqrt(2 m D/(T (L^2 + N sigma^2))) gives an expected excess risk of at most
    2.2 sqrt(D (L^2 + N sigma^2)/(m T)); for the Euclidean map it is r sqrt((L2^2 + d sigma^2)/T) with
    r = max_C ||theta - start||_2. No smoothness is needed. As sigma^2 grows like T, steps beyond the T at
    which N sigma^2 = L^2 buy little: that is the default, at most 1000.

    Deviations: noise by exact calibration; T gradients serve T + 1 points, since the paper's last gradient
    reaches no output and is not asked for.

    Parameters
    ----------
    n_iter : int, optional
        Number of steps T.
    clip : float, optional
        Residuals phi' are clipped to this size.
    """

    n_iter: int | None = None
    clip: float | None = None

    name: ClassVar[str] = "mirror_descent"
    requires: ClassVar[tuple[type, ...]] = (HasMirrorMap,)

    def __post_init__(self) -> None:
        check_count("n_iter", self.n_iter)

    def plan(self, problem: Problem, n: int, budget: Budget, accountant: Accountant) -> Plan:
        """Fix the number of steps and the noise from public facts."""
        require(self, problem)
        T = self._steps(problem, n, budget)
        return plan_gradients(NoisyMirrorDescent(T, self.clip), T, problem, n, budget, accountant)

    def run(self, plan: Plan, ask: Asking) -> Vector:
        """Descend along the oracle's gradients and average."""
        problem, (stage,) = plan.problem, plan.stages
        psi, T = problem.C.mirror_map(problem.shape), stage.n_calls
        noise = stage.mechanism.noise**2 * psi.noise_norm(problem.shape)
        G2 = problem.lipschitz_in(psi, self.clip) ** 2 + noise
        D = psi.divergence_bound(problem.shape)
        eta = math.sqrt(2 * psi.strong_convexity * D / ((T + 1) * G2))  # [TTZ14] Thm 3.2
        theta: Vector = problem.C.start(problem.shape)
        mean = theta.copy()
        for t in range(T):
            theta = psi.step(theta, ask.gradient(theta), eta)
            mean += (theta - mean) / (t + 2)
        return mean

    def predict(self, problem: Problem, n: int, budget: Budget) -> tuple[float, float]:
        """Bound the excess risk: (optimisation part, privacy part)."""
        psi, T = problem.C.mirror_map(problem.shape), self._steps(problem, n, budget)
        r = math.sqrt(2 * psi.divergence_bound(problem.shape) / psi.strong_convexity)
        noise = gradient_noise(problem, n, budget, self.clip) * math.sqrt(psi.noise_norm(problem.shape))
        return r * problem.lipschitz_in(psi, self.clip) / math.sqrt(T), r * noise

    def _steps(self, problem: Problem, n: int, budget: Budget) -> int:
        if self.n_iter is not None:
            return self.n_iter
        psi = problem.C.mirror_map(problem.shape)
        noise = gradient_noise(problem, n, budget, self.clip) ** 2 * psi.noise_norm(problem.shape)
        enough: float = problem.lipschitz_in(psi, self.clip) ** 2 / noise
        return round(min(max(enough, 2), MOST_STEPS))
