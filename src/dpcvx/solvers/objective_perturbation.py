"""Objective perturbation: the minimiser of the objective with a random linear term."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dpcvx.accounting import Accountant, Budget, Neighbours, calibrate, gaussian_mu, spendable
from dpcvx.accounting.objective import OUTPUT_SHARE
from dpcvx.arrays import Vector
from dpcvx.errors import Incompatible, WrongValue
from dpcvx.events import Compose, Gaussian, PerturbedObjective
from dpcvx.mechanisms import PerturbedMinimiser, hessian_rank
from dpcvx.mechanisms.minimise import RidgeFacts
from dpcvx.plans import Asking, Plan, Solver, Stage, require
from dpcvx.problem import Problem
from dpcvx.solvers.defaults import default
from dpcvx.solvers.typical_data import Typical

__all__ = ["ObjectivePerturbation"]

PRICE: float = default("solvers.objective_perturbation.PRICE")
MOST_PRODUCTS: float = default("solvers.objective_perturbation.MOST_PRODUCTS")
UNAFFORDABLE: float = default("solvers.objective_perturbation.UNAFFORDABLE")
SHARES = np.geomspace(1e-3, 0.9, 60)  # of epsilon for the Jacobian, among which the bound chooses


@dataclass(frozen=True)
class ObjectivePerturbation(Solver):
    """Minimise the objective plus a random linear term: one private answer, no steps to choose.

    theta = argmin_{s in C} F(s) + <b, s>/n + ((Lam/n - l2)_+ / 2) ||s||^2, b ~ N(0, sigma^2 I)

    Algorithm: [TTZ14] Algorithm 2, for losses of one score per record.

    Privacy: one question `PerturbedMinimiser`; event Compose(PerturbedObjective, Gaussian) (PRIVACY_MATH §4).
    A share of epsilon pays for the Jacobian r log(1 + beta B^2/(r Lam)), r = 1 for rows and d for persons
    (§16), and fixes the ridge Lam, the rest fixes sigma; a hundredth of epsilon and of delta pays for noise
    on the outcome, which covers the inexactness of the minimiser. The ridge acts on every coordinate, the
    intercept's included. A ridge n l2 >= Lam of the problem's own is enough, and nothing is added to it.

    Utility: [TTZ14] Theorem 4.1 without its constants. The expected excess risk is at most (Lam - n l2)_+
    r^2/(2 n) + min(sigma G, d sigma^2/Lam)/n with r = max_C ||theta||_2 and G the Gaussian width of C: F and
    its perturbation differ by the ridge and by <b, s>/n, and strong convexity bounds the effect of b too.

    Deviations: the paper's sigma is too small, as are the constants it leaves out, and the algorithm with it
    is not private (at claimed (1, 1e-6) delta is 8.3e-4); here sigma is that of the theorem for losses of one
    score. The minimiser is not assumed exact.

    Parameters
    ----------
    jacobian_share : float, optional
        Share of epsilon for the Jacobian, in (0, 1); by default the one with the smallest bound.
    clip : float, optional
        Slopes are clipped to this size: squared loss becomes `Huber`, logistic loss `ClippedLogistic`.
    """

    jacobian_share: float | None = None
    clip: float | None = None

    name: ClassVar[str] = "objective_perturbation"
    proximal: ClassVar[bool] = True
    minimises: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.jacobian_share is not None and not 0 < self.jacobian_share < 1:
            raise WrongValue(f"jacobian_share must be in (0, 1), got {self.jacobian_share!r}.")

    def plan(self, problem: Problem, n: int, budget: Budget, accountant: Accountant) -> Plan:
        """Fix the ridge and the noise from public facts."""
        require(self, problem)
        share, inner = self._share(problem, n, budget), self._clipped(problem)
        paid, ridge = spendable(budget), _ridge(inner, n, budget, share)
        output = (1 + 1e-9) / gaussian_mu(OUTPUT_SHARE * paid.epsilon, OUTPUT_SHARE * paid.delta)

        def mechanism(noise_multiplier: float) -> PerturbedMinimiser:
            return PerturbedMinimiser(inner, n, noise_multiplier, ridge, output, budget.neighbours)

        jacobian = _jacobian(inner, n, ridge, budget.neighbours)
        noise_multiplier = calibrate(
            lambda t: Compose(
                (
                    PerturbedObjective(1 / t, jacobian, budget.neighbours.relation, budget.unit),
                    Gaussian(output),
                )
            ),
            paid,
            accountant,
        )
        stages = (Stage(mechanism(noise_multiplier), 1),)
        return Plan(stages, problem, n, ObjectivePerturbation(share, self.clip), budget, accountant)

    def run(self, plan: Plan, ask: Asking) -> Vector:
        """Ask once, and return to the set what the noise on the outcome carried out of it."""
        theta = ask.minimiser()
        return theta if plan.problem.domain is None else plan.problem.C.project(theta)

    def predict(self, problem: Problem, n: int, budget: Budget) -> tuple[float, float]:
        """Bound the excess risk: (part of the ridge, part of the noise)."""
        inner = self._clipped(problem)
        return _parts(inner, n, budget, self._share(problem, n, budget), _model(inner))

    def handicap(self, plan: Plan) -> float:
        """Return 1.6, twice that of descent; more than any risk where minimisation might take very long."""
        work = plan.gradient_evaluations * plan.problem.size
        return UNAFFORDABLE if work > MOST_PRODUCTS else PRICE

    def _share(self, problem: Problem, n: int, budget: Budget) -> float:
        if self.jacobian_share is not None:
            return self.jacobian_share
        if budget.delta == 0:
            raise Incompatible("Objective perturbation draws Gaussian noise, which needs delta > 0.")
        inner = self._clipped(problem)
        typical = _model(inner)
        return float(min(SHARES, key=lambda share: sum(_parts(inner, n, budget, float(share), typical))))

    def _clipped(self, problem: Problem) -> Problem:
        """The problem that is minimised: slopes must be those of a convex loss, not clipped afterwards."""
        if self.clip is None or problem.outputs > 1:  # `PerturbedMinimiser` refuses several scores
            return problem
        if (loss := problem.loss.clipped(self.clip)) is None:
            name = type(problem.loss).__name__
            raise Incompatible(f"{name} has no convex variant with clipped slopes: leave clip None.")
        return replace(problem, loss=loss)


def _curvature(problem: Problem, n: int) -> float:
    facts = RidgeFacts(problem, n, n, 1.0)
    return facts.bend * facts.row**2


def _ridge(problem: Problem, n: int, budget: Budget, share: float) -> float:
    """Lam: what the share of epsilon asks for, or the problem's own ridge if that is more."""
    # Beyond e^700 nothing is gained.
    rank = hessian_rank(problem, budget.neighbours)
    spent = rank * math.expm1(min(share * budget.epsilon / rank, 700.0))
    return max(_curvature(problem, n) / spent, n * problem.l2)


def _jacobian(problem: Problem, n: int, ridge: float, neighbours: Neighbours) -> float:
    rank = hessian_rank(problem, neighbours)
    return rank * math.log1p(_curvature(problem, n) / (rank * ridge))


def _model(problem: Problem) -> Typical | None:
    return Typical.of(problem) if problem.is_round else None


def _parts(
    problem: Problem, n: int, budget: Budget, share: float, typical: Typical | None
) -> tuple[float, float]:
    ridge, facts = _ridge(problem, n, budget, share), RidgeFacts(problem, n, n, 1.0)
    left = (1 - OUTPUT_SHARE) * budget.epsilon - _jacobian(problem, n, ridge, budget.neighbours)
    if left <= 0:
        return math.inf, math.inf
    # The closed form of calibration (PRIVACY_MATH §4): 2 delta_G(left; c a) = delta, above the condition.
    shift = gaussian_mu(left, budget.delta / 2) / budget.neighbours.ball
    if budget.neighbours.replaces:
        shift = min(shift, math.sqrt((math.sqrt(1 + left**2) - 1) / 2))
    sigma = facts.slope * facts.row / shift
    own = n * problem.l2
    if typical is not None:
        parts = typical.perturbed(np.array((ridge - own) / n), np.array(sigma / n))
        return float(parts[0]), float(parts[1])
    if problem.domain is None:
        radius, width = RidgeFacts(problem, n, n, own).radius, math.inf
    else:
        radius, width = problem.domain.norm(2, problem.size), problem.domain.gaussian_width(problem.size)
    noise = min(sigma * width, problem.size * sigma**2 / ridge)
    return (ridge - own) * radius**2 / (2 * n), noise / n
