"""Deterministic minimisers that run beside the records, and the public bound on how far they may be off.

    J(theta) = sum_i phi(<x_i, theta>, y_i) + (ridge/2) ||theta||^2 + <linear, theta> + n r(theta) over C

Nothing here is released: a mechanism adds noise that covers the public bound. So nothing here may fail
because of a record either; where the certificate is not reached yet, the minimiser goes on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.data import BLOCK_ROWS, FEATURE_BITS, SumOfLosses, integer_bounds
from dpcvx.domains import HasProjection
from dpcvx.domains.set_functions import LARGEST_WEIGHT_RATIO
from dpcvx.errors import Incompatible, WrongValue
from dpcvx.losses import LOSSES
from dpcvx.problem import Problem
from dpcvx.vouched import is_vouched, prox_error

__all__ = ["RidgeFacts", "minimise"]

ROUNDOFF = 2.0**-53
SLOPE_ROUNDINGS = 16  # of vectorised losses, in units of ROUNDOFF times the largest slope
NEWTON_SIZE = 500  # coordinates up to which Hessians are formed
NEWTON_STEPS = 30
CHECK_EVERY = 25  # accelerated steps between two certificates, each of which costs two gradients

Prox = Callable[[Vector, float], Vector]


@dataclass(frozen=True)
class RidgeFacts:
    """Public constants of J, a bound on its minimiser, and bounds on rounding errors."""

    # loss, set or regulariser, and bounds of a record. Its own ridge is not added: ``ridge`` is all of it.
    problem: Problem
    n: int  # public normaliser: the regulariser is multiplied by it
    records: int  # most records that the sum may have
    ridge: float  # modulus of the quadratic term, on the scale of the sum
    linear: float = 0.0  # bound on the l2 norm of the linear term

    def __post_init__(self) -> None:
        problem, name = self.problem, type(self.problem.loss).__name__
        if not (self.ridge > 0 and math.isfinite(self.ridge)):
            raise WrongValue(f"ridge is {self.ridge!r}; it must be a positive finite number.")
        if not (problem.loss.convex and math.isfinite(self.bend)):
            raise Incompatible(f"A minimiser needs a smooth convex loss; {name} is not. Use gradients.")
        if not is_vouched(type(problem.loss), "minimisers"):
            known = ", ".join(kind.__name__ for kind in LOSSES if is_vouched(kind, "minimisers"))
            raise Incompatible(
                f"Privacy of a minimiser rests on slopes and curvature that {name} declares, which nothing "
                f"enforces: use one of {known}, or gradients."
            )
        if not math.isfinite(self.slope):
            raise Incompatible(f"{name} has unbounded slopes here: give a bounded domain, or use Huber.")
        if problem.regularizer is not None and problem.domain is not None:
            raise Incompatible("A minimiser takes a domain or a regularizer, not both: leave one out.")
        if not isinstance(problem.domain, HasProjection | None):
            raise Incompatible(f"{type(problem.domain).__name__} has no projection: choose another set.")
        for part in (problem.domain, problem.regularizer):
            if part is not None and math.isinf(prox_error(part)):
                raise Incompatible(
                    "Privacy of a minimiser rests on convexity and an accurate prox, which nothing enforces "
                    f"for {part!r}: use a set or regularizer of dpcvx (overlapping groups with weights "
                    f"up to a ratio of {LARGEST_WEIGHT_RATIO:g}), or gradients."
                )

    @property
    def slope(self) -> float:
        """L: bound on the norm of phi' over C."""
        return self.problem.slope(2)

    @property
    def bend(self) -> float:
        """beta: bound on phi'' over C."""
        return self.problem.loss.smoothness(self.problem.z_max)

    @property
    def row(self) -> float:
        """B_2: bound on ||x||_2 of a stored row, rounded up."""
        _, squared = integer_bounds(self.problem.bounds, self.problem.d)
        return math.sqrt(squared) * 2.0**-FEATURE_BITS * (1 + 4 * ROUNDOFF)

    @property
    def smoothness(self) -> float:
        """Smoothness of the sum and the quadratic term."""
        return self.records * self.bend * self.row**2 + self.ridge

    @property
    def pull(self) -> float:
        """Bound on the norm of the gradient of the sum and the linear term."""
        return self.records * self.slope * self.row + self.linear

    @property
    def radius(self) -> float:
        """Bound on ||theta*||: the set's, or what J(theta*) <= J(0) and a zero gradient imply."""
        if self.problem.domain is not None:
            return self.problem.domain.norm(2, self.problem.size)
        start = 2 * self.ridge * self.records * _value_at_zero(self.problem)
        return min(self.pull, self.linear + math.sqrt(self.linear**2 + start)) / self.ridge

    @property
    def reach(self) -> float:
        """Bound on ||theta|| of a certified point."""
        return self.radius if self.problem.domain is not None else 2 * self.radius

    @property
    def rounding(self) -> float:
        """Bound on the rounding error of a certificate, in units of the gradient of J.

        A margin of d products is off by (d + 8) u B ||theta||, a residual by a few u of the target too, a
        slope by that times beta and a few roundings more, a block's sum by as many u as it has rows (in any
        order), the pairwise sum of blocks by less than 64 u; by Minkowski's inequality a sum of vectors whose
        entries are each off by e relatively is off by e times the sum of their norms. An inexact projection
        enters with the inverse step. The whole is never less than n^2 u L B, what one sum over all records
        could be off by (PRIVACY_MATH §4).
        """
        problem, M = self.problem, self.smoothness
        per_record = (BLOCK_ROWS + 64 + SLOPE_ROUNDINGS + problem.outputs) * self.slope
        target = 1 + max(abs(end) for end in problem.loss.y_range)
        per_record += self.bend * ((problem.d + 8) * self.row * self.reach + 8 * target)
        sums = math.sqrt(problem.outputs) * self.records * self.row * per_record * ROUNDOFF
        terms = self.pull + self.ridge * self.reach
        sums = max(sums + 8 * ROUNDOFF * terms, self.records**2 * ROUNDOFF * self.slope * self.row)
        if problem.domain is None and problem.regularizer is None:
            return sums
        return sums + 4 * M * (self._prox_accuracy + ROUNDOFF) * (2 * self.reach + terms / M)

    @property
    def _prox_accuracy(self) -> float:
        """Relative error of the prox: sorted sums of p terms in every one of p entries, if closed."""
        part = self.problem.domain or self.problem.regularizer
        return prox_error(part) or 4 * math.pow(self.problem.size, 1.5) * ROUNDOFF

    def steps(self, tolerance: float) -> int:
        """Public number of accelerated steps that reach a certificate of ``tolerance`` on all records.

        From a start within 3 R, ||theta_k - theta*||^2 <= 18 kappa R^2 (1 - 1/sqrt(kappa))^k, and the
        certificate is at most 4 M ||theta_k - theta*||; half of the tolerance is left to rounding.
        """
        root = math.sqrt(self.smoothness / self.ridge)
        ratio = 8 * self.smoothness * math.sqrt(18) * root * self.radius / tolerance
        return max(1, math.ceil(2 * root * math.log(max(ratio, 1.0)))) + 1


def _value_at_zero(problem: Problem) -> float:
    """Largest phi(0, y); phi is at least 0 and convex in the residual."""
    if problem.loss.joint:
        return math.log(problem.outputs)
    ends = np.array(problem.loss.y_range)
    return problem.outputs * float(problem.loss.value(np.zeros(2), ends).max())


def minimise(facts: RidgeFacts, objective: SumOfLosses, linear: Vector, tolerance: float) -> Vector:
    """Return a point whose certificate, as computed, is at most ``tolerance``.

    Its distance from argmin J is then at most (tolerance + facts.rounding) / ridge. Newton steps come first
    where Hessians are small; accelerated proximal gradient, whose number of steps is public, follows until
    the certificate is there. How many were needed is a fact about the records and is not returned.

    `objective`: the sum over the records; `linear`: the linear term, in the shape of theta; `tolerance`: at
    least twice ``facts.rounding``, so that rounding cannot keep the certificate from being reached.
    """
    if not tolerance >= 2 * facts.rounding:
        raise WrongValue(f"tolerance is {tolerance!r}; it must be at least {2 * facts.rounding!r}.")
    search = _Search(facts, objective, linear, tolerance)
    theta = search.start
    if facts.problem.outputs == 1 and facts.problem.size <= NEWTON_SIZE:
        theta = search.newton(theta)
    while (point := search.certified(theta)) is None:
        theta = search.accelerate(theta)
    return point


class _Search:
    """The state of one minimisation; it dies with the call."""

    def __init__(self, facts: RidgeFacts, objective: SumOfLosses, linear: Vector, tolerance: float) -> None:
        self._facts, self._objective, self._linear, self._tolerance = facts, objective, linear, tolerance
        self._smoothness = objective.n * facts.bend * facts.row**2 + facts.ridge
        self._prox = _prox(facts)

    @property
    def start(self) -> Vector:
        """A public point."""
        problem = self._facts.problem
        return np.zeros(problem.shape) if problem.domain is None else problem.domain.start(problem.shape)

    def gradient(self, theta: Vector) -> Vector:
        return self._objective.gradient(theta) + self._linear + self._facts.ridge * theta

    def forward(self, theta: Vector) -> Vector:
        """One proximal gradient step."""
        return self._prox(theta - self.gradient(theta) / self._smoothness, 1 / self._smoothness)

    def certificate(self, theta: Vector) -> tuple[Vector, float]:
        """The point of a step from theta, and the norm of a subgradient of J there."""
        moved = theta - self.gradient(theta) / self._smoothness
        point = self._prox(moved, 1 / self._smoothness)
        return point, float(np.linalg.norm(self.gradient(point) + self._smoothness * (moved - point)))

    def certified(self, theta: Vector) -> Vector | None:
        """The point of a step from theta if it is near the minimiser, and of a size rounding allows for."""
        point, residual = self.certificate(theta)
        largest = max(np.linalg.norm(theta), np.linalg.norm(point))
        near = residual <= self._tolerance and largest <= self._facts.reach * (1 + 1e-6)
        return point if near else None

    def newton(self, theta: Vector) -> Vector:
        """Proximal Newton steps while they shorten the residual by a tenth; the best point found."""
        _, best = self.certificate(theta)
        for _ in range(NEWTON_STEPS):
            if best <= self._tolerance / 4:
                break
            step = self._model_minimiser(theta) - theta
            for halvings in range(6):
                candidate = theta + 2.0**-halvings * step
                _, residual = self.certificate(candidate)
                if residual <= 0.9 * best:
                    theta, best = candidate, residual
                    break
            else:
                break
        inside = np.linalg.norm(theta) <= self._facts.reach
        return theta if inside else self.start

    def _model_minimiser(self, theta: Vector) -> Vector:
        """Minimiser over C of the quadratic model at theta."""
        H = self._objective.hessian(theta) + self._facts.ridge * np.eye(theta.size)
        g = self.gradient(theta)
        sizes, directions = np.linalg.eigh(H)
        free: Vector = theta - directions @ ((directions.T @ g) / np.maximum(sizes, self._facts.ridge))
        problem = self._facts.problem
        if problem.domain is None and problem.regularizer is None:
            return free
        M = float(sizes[-1])
        root = math.sqrt(M / self._facts.ridge)
        return _accelerated(
            self._prox(free, 1 / M),
            lambda s: s - (g + H @ (s - theta)) / M,
            lambda v: self._prox(v, 1 / M),
            momentum=(root - 1) / (root + 1),
            steps=math.ceil(40 * root),
            done=lambda s, previous: bool(np.abs(s - previous).max() <= 1e-13 * np.abs(s).max()),
        )

    def accelerate(self, theta: Vector) -> Vector:
        """Accelerated proximal gradient for the public number of steps, or until the certificate holds."""
        root = math.sqrt(self._smoothness / self._facts.ridge)
        count = 0

        def done(point: Vector, previous: Vector) -> bool:
            nonlocal count
            count += 1
            return count % CHECK_EVERY == 0 and self.certified(point) is not None

        return _accelerated(
            self.forward(theta),
            lambda y: y - self.gradient(y) / self._smoothness,
            lambda v: self._prox(v, 1 / self._smoothness),
            momentum=(root - 1) / (root + 1),
            steps=self._facts.steps(self._tolerance),
            done=done,
        )


def _accelerated(
    theta: Vector,
    descend: Callable[[Vector], Vector],
    prox: Callable[[Vector], Vector],
    *,
    momentum: float,
    steps: int,
    done: Callable[[Vector, Vector], bool],
) -> Vector:
    """Proximal gradient steps with constant momentum, for strongly convex functions."""
    previous = theta
    for _ in range(steps):
        theta, previous = prox(descend(theta + momentum * (theta - previous))), theta
        if done(theta, previous):
            break
    return theta


def _prox(facts: RidgeFacts) -> Prox:
    """Map (v, step) to argmin_s in C of step n r(s) + ||s - v||^2 / 2."""
    domain, regularizer = facts.problem.domain, facts.problem.regularizer
    if domain is not None:
        project = facts.problem.C.project
        return lambda v, step: project(v)
    if regularizer is not None:
        return lambda v, step: regularizer.prox(v, step * facts.n)
    return lambda v, step: v
