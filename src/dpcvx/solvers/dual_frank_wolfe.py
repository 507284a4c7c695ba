"""Frank-Wolfe on the dual of a problem with a structured norm."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dpcvx.accounting import Accountant, Budget, calibrate, gaussian_mu, spendable
from dpcvx.arrays import Vector
from dpcvx.domains import HasPenalty, SubmodularBall, SubmodularPolyhedron
from dpcvx.domains.regularizers import SubmodularNorm
from dpcvx.errors import Incompatible, WrongValue
from dpcvx.events import Gaussian, Repeat
from dpcvx.mechanisms import NoisyMinimiser
from dpcvx.mechanisms.minimise import RidgeFacts
from dpcvx.plans import Asking, Plan, Solver, Stage, check_count, require
from dpcvx.problem import Problem
from dpcvx.solvers.defaults import default

__all__ = ["NoisyDualFrankWolfe"]

MOST_STEPS: int = default("solvers.dual_frank_wolfe.MOST_STEPS")
SLACK = 1 + 1e-9  # mixtures of corners of K may leave it by rounding


@dataclass(frozen=True)
class NoisyDualFrankWolfe(Solver):
    """Frank-Wolfe over the polyhedron of a submodular norm, on noisy minimisers without the norm.

    theta_t = argmin F(theta) + <s_t, theta>, plus noise; s_{t+1} = (1 - g_t) s_t + g_t argmax_K <s, theta_t>
    with K = weight |P|, g_t = 2/(t + 2); the mean of the theta_t with weights proportional to t + 1 estimates
    argmin F + weight Omega, and a last prox of the norm takes away what the noise has left

    Algorithm: [KD19] Algorithm 2, for the dual max_{s in K} min_theta F(theta) + <s, theta>.

    Privacy: T questions `NoisyMinimiser` with a public linear term (l2 sensitivity 2 L2/(n l2), replace-one,
    whatever the term, plus what the minimiser leaves open); event Repeat(Gaussian, T), so
    sigma = 2 L2 sqrt(T)/(n l2 mu(eps, delta)) (PRIVACY_MATH §5, §10). The greedy corners, the mean and the
    prox are post-processing of released points.

    Utility: let R be the l2 radius of K, G its Gaussian width and w the weights of the mean, ||w||_2^2 about
    4/(3 T). The dual objective is 1/l2-smooth and its Frank-Wolfe gap at s_t is that of primal and dual, so
    the expected excess of F + weight Omega is at most 8 R^2/(l2 (T + 1)) + (1 + ||w||_2) sigma G
    + min(L B ||w||_2 sigma, beta B^2 sigma^2/2) + l2 d sigma^2/2, and L shrink max_K |<s, x>| more for the
    prox (before the projection, where there is a set). The default T minimises 8 R^2/(l2 T) + sigma G.
    `OutputPerturbation` asks once and has no first term, but runs the norm's prox beside the records at every
    inner step, and leaves the noise in the result; here the prox runs once, in public.

    Deviations: the paper adds Laplace noise to the score of every corner (up to 2^d d! of them) with a
    sensitivity that the dual objective has not, and finds theta by a last minimisation without noise, so it
    is private for no epsilon. Here the inner minimisers are noised, the loss has a ridge that bounds their
    sensitivity, and theta comes from released points.

    Parameters
    ----------
    n_iter : int, optional
        Number of minimisers T.
    weight : float, optional
        Weight of the norm where the problem names none but has the set of one, `SubmodularBall`.
    shrink : float, optional
        Step of the last prox, 0 for none; by default the one that takes noise alone to 0 on average, the
        noise of the mean times the Gaussian width of the norm's unit ball.
    """

    n_iter: int | None = None
    weight: float | None = None
    shrink: float | None = None

    proximal: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_count("n_iter", self.n_iter)
        if self.weight is not None and not 0 < self.weight < math.inf:
            raise WrongValue(f"weight must be positive and finite, got {self.weight!r}.")
        if self.shrink is not None and not 0 <= self.shrink < math.inf:
            raise WrongValue(f"shrink must be finite, zero or more, got {self.shrink!r}.")

    def plan(self, problem: Problem, n: int, budget: Budget, accountant: Accountant) -> Plan:
        """Fix the number of minimisers, their noise and the last prox from public facts."""
        require(self, problem)
        facts, T = self._facts(problem, n), self._count(problem, n, budget)
        noise_multiplier = calibrate(lambda t: Repeat(Gaussian(t), T), spendable(budget), accountant)
        linear = SLACK * self._dual_set(problem).norm(2, problem.shape)
        mechanism = NoisyMinimiser(facts.problem, n, noise_multiplier, facts.ridge, budget.neighbours, linear)
        solver = replace(self, n_iter=T, shrink=self._shrink(problem, T, mechanism.noise))
        return Plan((Stage(mechanism, T),), problem, n, solver, budget, accountant)

    def run(self, plan: Plan, ask: Asking) -> Vector:
        """Move the linear term towards corners of K, and average the minimisers."""
        K, T = self._dual_set(plan.problem), plan.n_calls
        s, mean = np.zeros(plan.problem.shape), np.zeros(plan.problem.shape)
        for t in range(T):
            theta = ask.minimiser(s)
            g = 2 / (t + 2)
            mean = (1 - g) * mean + g * theta
            s = (1 - g) * s - g * K.lmo(theta)  # K = -K, so -lmo is the argmax
        step = self._shrink(plan.problem, T, plan.stages[0].mechanism.noise)
        shrunk = self._norm(plan.problem).prox(mean, step)
        return shrunk if plan.problem.domain is None else plan.problem.C.project(shrunk)

    def predict(self, problem: Problem, n: int, budget: Budget) -> tuple[float, float]:
        """Bound the excess risk: (optimisation part, privacy part)."""
        T, K, shape = self._count(problem, n, budget), self._dual_set(problem), problem.shape
        facts, sigma = self._facts(problem, n), math.sqrt(T) * self._noise(problem, n, budget)
        averaged, R = _averaged(T) * sigma, K.norm(2, shape)
        noise = min(facts.slope * facts.row * averaged, facts.bend * (facts.row * sigma) ** 2 / 2)
        noise += (sigma + averaged) * K.gaussian_width(shape) + problem.l2 * problem.size * sigma**2 / 2
        pull = facts.slope * min(facts.row * R, problem.bounds.x_inf * K.norm(1, shape))
        return 8 * R**2 / (problem.l2 * (T + 1)), noise + self._shrink(problem, T, sigma) * pull

    def _norm(self, problem: Problem) -> SubmodularNorm:
        """The norm to be added to F: the problem's own, or that of its set."""
        norm = problem.regularizer
        if norm is None and self.weight is not None and isinstance(problem.domain, HasPenalty):
            norm = problem.domain.penalty(self.weight)
        elif self.weight is not None:
            raise Incompatible(
                "NoisyDualFrankWolfe takes weight only beside a SubmodularBall and no regularizer: "
                "give the problem SubmodularNorm(function, weight), and leave weight None."
            )
        if not isinstance(norm, SubmodularNorm) or norm.weight == 0:
            raise Incompatible(
                "NoisyDualFrankWolfe needs a regularizer SubmodularNorm(function, weight) with weight > 0, "
                f"or a set SubmodularBall and a weight of its own; got {norm!r}. "
                "The l1 norm is that of Cardinality()."
            )
        return norm

    def _dual_set(self, problem: Problem) -> SubmodularPolyhedron:
        norm = self._norm(problem)
        return SubmodularPolyhedron(norm.function, norm.weight)

    def _shrink(self, problem: Problem, T: int, sigma: float) -> float:
        if self.shrink is not None:
            return self.shrink
        norm = self._norm(problem)
        ball = SubmodularBall(norm.function, 1.0)
        return _averaged(T) * sigma * ball.gaussian_width(problem.shape) / norm.weight

    def _facts(self, problem: Problem, n: int) -> RidgeFacts:
        if not problem.l2 > 0:
            raise Incompatible(
                "NoisyDualFrankWolfe needs l2 > 0: the ridge bounds what one record can do to a minimiser."
            )
        return RidgeFacts(replace(problem, regularizer=None), n, n, n * problem.l2)

    def _noise(self, problem: Problem, n: int, budget: Budget) -> float:
        """Standard deviation of a minimiser's coordinate, over sqrt(T)."""
        if budget.delta == 0:
            raise Incompatible("Noisy minimisers draw Gaussian noise, which needs delta > 0.")
        facts, mu = self._facts(problem, n), gaussian_mu(budget.epsilon, budget.delta)
        return budget.neighbours.ball * facts.slope * facts.row / (n * problem.l2 * mu)

    def _count(self, problem: Problem, n: int, budget: Budget) -> int:
        if self.n_iter is not None:
            return self.n_iter
        K = self._dual_set(problem)
        privacy = self._noise(problem, n, budget) * K.gaussian_width(problem.shape)
        # The minimiser of 8 R^2/(l2 T) + privacy * sqrt(T).
        best: float = (16 * K.norm(2, problem.shape) ** 2 / (problem.l2 * privacy)) ** (2 / 3)
        return round(min(max(best, 1.0), MOST_STEPS))


def _averaged(T: int) -> float:
    """||w||_2 for the T weights 2 (t + 1)/(T (T + 1)) of the mean."""
    return math.sqrt(2 * (2 * T + 1) / (3 * T * (T + 1)))
