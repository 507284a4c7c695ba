"""Noisy mirror descent for strongly convex objectives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dpcvx.accounting import Accountant, Budget, gaussian_mu
from dpcvx.arrays import Vector
from dpcvx.domains import HasProjection
from dpcvx.errors import Incompatible
from dpcvx.plans import Asking, Plan, Solver, check_count, require
from dpcvx.problem import Problem
from dpcvx.solvers.defaults import default
from dpcvx.solvers.descent import gradient_noise, plan_gradients

__all__ = ["NoisyStronglyConvexMirrorDescent"]

MOST_STEPS: int = default("solvers.strongly_convex_mirror_descent.MOST_STEPS")


@dataclass(frozen=True)
class NoisyStronglyConvexMirrorDescent(Solver):
    """Mirror descent with steps 2/(lambda (t + 1)) and an average that favours late iterates.

    theta_{t+1} = Proj_C(theta_t - eta_t g_t), eta_t = 2/(lambda (t + 1)); returns sum_t t theta_t / sum_t t

    Algorithm: [TTZ14] Algorithm 1 with the schedule of its Appendix A. lambda is the known modulus of strong
    convexity, the ridge; as it holds in the l2 norm, the mirror map is the Euclidean one.

    Privacy: T questions `NoisyGradient` (l2 sensitivity 2 L2/n, replace-one); event Repeat(Gaussian, T), so
    sigma = 2 L2 sqrt(T)/(n mu(eps, delta)) (PRIVACY_MATH §1).

    Utility: [TTZ14] Theorem A.1. The expected excess risk is at most 2 (L^2 + d sigma^2)/(lambda (T + 1)),
    with L = L2 + lambda r the Lipschitz constant, the ridge's part included; no smoothness is needed. As
    sigma^2 grows like T, the privacy part 8 d L2^2/(lambda n^2 mu^2) falls like 1/n^2, and steps beyond
    T = (n mu)^2/(4 d) buy little: that is the default, at most 1000.

    Deviations: weights proportional to t instead of a plain average, which removes the paper's log T. Its
    proof uses eta_t = 1/(lambda t) where its statement says 2/(lambda t); with the weights, the latter's
    neighbour 2/(lambda (t + 1)) is the one whose sum telescopes. Noise by exact calibration.

    Parameters
    ----------
    n_iter : int, optional
        Number of steps T.
    clip : float, optional
        Residuals phi' are clipped to this size.
    """

    n_iter: int | None = None
    clip: float | None = None

    name: ClassVar[str] = "strongly_convex_mirror_descent"
    requires: ClassVar[tuple[type, ...]] = (HasProjection,)

    def __post_init__(self) -> None:
        check_count("n_iter", self.n_iter)

    def plan(self, problem: Problem, n: int, budget: Budget, accountant: Accountant) -> Plan:
        """Fix the number of steps and the noise from public facts."""
        require(self, problem)
        if not problem.strong_convexity > 0:
            raise Incompatible(
                "NoisyStronglyConvexMirrorDescent needs a strongly convex objective: give a convex loss and "
                "a ridge l2 > 0, or use NoisyMirrorDescent."
            )
        T = self._steps(problem, n, budget)
        solver = NoisyStronglyConvexMirrorDescent(T, self.clip)
        return plan_gradients(solver, T, problem, n, budget, accountant)

    def run(self, plan: Plan, ask: Asking) -> Vector:
        """Descend along the oracle's gradients and average."""
        C, lam = plan.problem.C, plan.problem.strong_convexity
        theta: Vector = C.start(plan.problem.shape)
        mean = theta
        for t in range(1, plan.n_calls + 1):
            mean = mean + 2 / (t + 1) * (theta - mean)  # weights proportional to t
            theta = C.project(theta - 2 / (lam * (t + 1)) * ask.gradient(theta))
        return mean

    def predict(self, problem: Problem, n: int, budget: Budget) -> tuple[float, float]:
        """Bound the excess risk: (optimisation part, privacy part)."""
        T, lam = self._steps(problem, n, budget), problem.strong_convexity
        L = problem.lipschitz(2, self.clip) + lam * problem.C.norm(2, problem.size)
        noise = gradient_noise(problem, n, budget, self.clip)
        return 2 * L**2 / (lam * (T + 1)), 2 * problem.size * noise**2 * T / (lam * (T + 1))

    def _steps(self, problem: Problem, n: int, budget: Budget) -> int:
        if self.n_iter is not None:
            return self.n_iter
        mu = gaussian_mu(budget.epsilon, budget.delta)
        enough = (n * mu / budget.neighbours.ball) ** 2 / problem.size
        return round(min(max(enough, 2), MOST_STEPS))
