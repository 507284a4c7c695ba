"""Noisy projected gradient descent with momentum and an average of late iterates."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from dpcvx.accounting import Accountant, Budget
from dpcvx.arrays import Vector
from dpcvx.domains import HasProjection
from dpcvx.errors import Incompatible, WrongValue
from dpcvx.plans import Asking, Plan, Solver, check_count, require
from dpcvx.problem import Problem
from dpcvx.solvers.defaults import default
from dpcvx.solvers.descent import gradient_noise, plan_parts
from dpcvx.solvers.memo import memoised
from dpcvx.solvers.typical_data import Typical

__all__ = ["NoisyGradientDescent"]

HANDICAP: float = default("solvers.gradient_descent.HANDICAP")
MOST_MOMENTUM: float = default("solvers.gradient_descent.MOST_MOMENTUM")
SETTLED: float = default("solvers.gradient_descent.SETTLED")
HASTE: float = default("solvers.gradient_descent.HASTE")
LATE: int = default("solvers.gradient_descent.LATE")
SETTLE_NOISE: float = default("solvers.gradient_descent.SETTLE_NOISE")
EXACT = 1e-140  # stands for the noise of exact answers, to keep their precision finite
LATE_COST = 1.014  # mean of 1/t over the last third of a path, over 1/t at its mean
MOST_STEPS: int = default("solvers.gradient_descent.MOST_STEPS")
MOST_NOISE: float = default("solvers.gradient_descent.MOST_NOISE")
NOISE_SHARE: float = default("solvers.gradient_descent.NOISE_SHARE")
SCALED_NOISE_SHARE: float = default("solvers.gradient_descent.SCALED_NOISE_SHARE")


@dataclass(frozen=True)
class NoisyGradientDescent(Solver):
    """Full-batch projected gradient descent on noisy gradients, with momentum; late iterates are averaged.

    theta_{t+1} = Proj_C(y_t - step * g_t), y_t = theta_t + momentum * (theta_t - theta_{t-1}), g_t at y_t

    Algorithm: [WYX17] Algorithm 4 with a projection and Nesterov's extrapolation; the mean of the last third
    of the iterates is returned, or the last of them where the loss is not convex.

    Privacy: T questions `NoisyGradient` (l2 sensitivity 2 L2/n, replace-one); event Repeat(Gaussian, T), so
    sigma = 2 L2 sqrt(T)/(n mu(eps, delta)) (PRIVACY_MATH §1). Iterates are post-processing. With `phases`
    the event is a composition of one Repeat for each phase, and the sum of (2 L2/(n sigma_t))^2 is mu^2.

    Utility: let H be the length that a constant unit gradient would move the answer. The noise moves each
    coordinate by a standard deviation of about 2 L2 H/(n mu), whatever the number of steps that share H,
    hence a score <x, theta> by that times ||x||, which does not grow with d; the optimisation error of smooth
    descent is at most r^2/(2 H). In an l2 ball, for one score and rows of a declared length, the default H is
    the best for the public model of typical data (`typical_data`): bounds are for the worst records, and
    leave much to learn where features are few or records many. Elsewhere it minimises the bound r^2/(2 H) +
    (phi''/2) (2 L2 B H/(n mu))^2, with B = max ||x||_2 and r = max_C ||theta||_2; the second term counts for
    each of a record's scores, and may cost a tenth of the largest loss at theta = 0. H stops short of
    the length at which the noise alone would fill C, sqrt(d) 2 L2 H/(n mu) = r, since beyond it the
    projection shrinks the signal with the noise. Where the objective bends, the mean of late iterates has
    less noise than the last one: along a curvature h about 3/(h H) of it instead of half. If the noise
    sigma_t of step t costs A_t sigma_t^2 by the same model, sigma_t^2 proportional to A_t^(-1/2) is the best
    division of mu^2; late steps are in few of the averaged iterates, and noise of early ones has faded.

    Deviations: momentum, projection and the mean; T is fixed in advance, and no random iterate is returned.

    Parameters
    ----------
    n_iter : int, optional
        Number of steps T. By default the fewest that reach H with steps of at most 1/smoothness and a
        momentum of which nothing is felt at the end, (1 - momentum) T >= 20: about sqrt(20 H smoothness),
        and about 10,000 at most.
    step : float, optional
        Step length; by default H is shared evenly.
    momentum : float, optional
        In [0, 1). It shortens the run by about 1/(1 - momentum) at the same noise. By default the smallest
        with which the steps reach H, up to 0.99; with a ridge at most the (sqrt(k) - 1)/(sqrt(k) + 1) of the
        condition number k: more overshoots. If n_iter and step are both given, 1 - 20/T.
    clip : float, optional
        Residuals phi' are clipped to this size.
    intercept : float
        Value of the constant feature, the last one; 0 for none. Its coefficient then takes a Newton step at
        the end, by the averaged gradients, which are released already: descent along a small feature is slow,
        and would not learn that a class is rare.
    settled : float
        Least (1 - momentum) T of the default number of steps, which is proportional to its square root.
    stride : float
        Largest default step, times smoothness. Above 1 the gradient g_t is taken at theta_t (Polyak's
        momentum), with which steps up to 2 (1 + momentum)/h are stable along a curvature h, instead of about
        4/(3 h) at y_t. Rows that are shrunk to norm 1 by their released length have a mean square below 0.9,
        so that 3 leaves room.
    noise_share : float, optional
        Most that the noise may cost by default, over the loss at theta = 0: it limits H. Without it rows of a
        declared length have no such limit, and others have one of a tenth, or of a fifth for a target of
        known standard deviation.
    path : float
        Default H, over the one that is best for typical rows: less than 1 for rows of which most are shrunk
        to the largest norm, which are longer than typical ones.
    phases : tuple of float
        Ends of the phases whose steps have noise of their own, as shares of the steps, the last of them 1.
        Without any, all steps have the same noise.
    """

    n_iter: int | None = None
    step: float | None = None
    momentum: float | None = None
    clip: float | None = None
    intercept: float = field(default=0.0, repr=False)  # the statement has an entry of its own for it
    settled: float = field(default=SETTLED, repr=False)
    noise_share: float | None = field(default=None, repr=False)
    phases: tuple[float, ...] = field(default=(), repr=False)  # the statement has the noise of each
    stride: float = field(default=1.0, repr=False)
    path: float = field(default=1.0, repr=False)

    name: ClassVar[str] = "gradient_descent"
    requires: ClassVar[tuple[type, ...]] = (HasProjection,)

    def __post_init__(self) -> None:
        check_count("n_iter", self.n_iter)
        if self.step is not None and not (self.step > 0 and math.isfinite(self.step)):
            raise WrongValue(f"step must be positive and finite, got {self.step!r}.")
        if self.momentum is not None and not 0 <= self.momentum < 1:
            raise WrongValue(f"momentum must be in [0, 1), got {self.momentum!r}.")

    def plan(self, problem: Problem, n: int, budget: Budget, accountant: Accountant) -> Plan:
        """Fix the number of steps, their length, the momentum and the noise from public facts."""
        require(self, problem)
        T, step, momentum = self._schedule(problem, n, budget)
        solver = replace(self, n_iter=T, step=step, momentum=momentum)
        return plan_parts(solver, self._parts(problem, T, step, momentum), problem, n, budget, accountant)

    def with_records(self, plan: Plan, n: int) -> NoisyGradientDescent:
        """Return the solver with the step length of n records; one that was given stays."""
        free = replace(self, step=None)
        if self.step != free._schedule(plan.problem, plan.n, plan.budget)[1]:
            return self
        return replace(self, step=free._schedule(plan.problem, n, plan.budget)[1])

    @property
    def uses_log_odds(self) -> bool:
        """Whether there is an intercept whose feature is small, along which descent is slow."""
        return self.intercept > 0

    def with_log_odds(self, plan: Plan, value: float) -> NoisyGradientDescent:
        """Return the solver with the path length for log-odds of the second class at which it starts.

        Where the classes have shares p and 1 - p, the curvature of the loss is about 4 p (1 - p) times that
        of equally frequent classes. A step size that was given stays.
        """
        free = replace(self, step=None)
        T, step, momentum = free._schedule(plan.problem, plan.n, plan.budget)
        if self.step != step:
            return self
        bend = 1 / math.cosh(value / 2) ** 2
        H = free._travel(plan.problem, plan.n, plan.budget, bend)
        longest = self.stride / (bend * plan.problem.smoothness)
        return replace(self, step=min(longest, H / _unit_travel(T, momentum)))

    def with_path_of(self, plan: Plan, problem: Problem) -> NoisyGradientDescent:
        """Return the solver with the path length of another problem; a step size that was given stays."""
        free = replace(self, step=None)
        T, step, momentum = free._schedule(plan.problem, plan.n, plan.budget)
        if self.step != step:
            return self
        H, longest = free._travel(problem, plan.n, plan.budget), self.stride / problem.smoothness
        return replace(self, step=min(longest, H / _unit_travel(T, momentum)))

    def run(self, plan: Plan, ask: Asking) -> Vector:
        """Descend along the oracle's gradients."""
        C, T = plan.problem.C, plan.n_calls
        momentum, step = self.momentum or 0.0, self.step or 1 / plan.problem.smoothness
        theta: Vector = C.start(plan.problem.shape)
        previous, late, slope = theta, np.zeros_like(theta), np.zeros(plan.problem.shape[1:])
        precision = _precisions(plan)  # of the answers
        averaged = _averaged(T) if plan.problem.loss.convex else 1
        for t in range(T):
            y = theta + momentum * (theta - previous)
            g = ask.gradient(y if self.stride == 1 else theta)
            theta, previous = C.project(y - step * g), theta
            if t >= T - averaged:
                late += theta
                slope = slope + precision[t] * g[-1]
        theta = late / averaged
        known = float(precision[T - averaged :].sum())
        return self._settle(plan, theta, slope / known, 1 / math.sqrt(known)) if self.intercept else theta

    def _settle(self, plan: Plan, theta: Vector, slope: Vector, noise: float) -> Vector:
        """Return theta with the Newton step of its intercept that the last answers ask for.

        `slope`: mean of the intercept's entry of the last gradients, weighted by the inverses of their
        variances; over the value of its feature it is the mean slope of the loss with noise. `noise`: its
        standard deviation. Two of these are left out, so that noise does not move the intercept. A feature of
        small value costs little noise, but descent along it is slow.
        """
        c, problem = self.intercept, plan.problem
        slope, noise = slope / c, noise / c
        found = np.sign(slope) * np.maximum(np.abs(slope) - SETTLE_NOISE * noise, 0.0)
        moved = theta.copy()
        moved[-1] -= found / (c * problem.loss.smoothness(problem.z_max))
        settled: Vector = problem.C.project(moved)
        return settled

    def predict(self, problem: Problem, n: int, budget: Budget) -> tuple[float, float]:
        """Predict the excess risk: (optimisation part, privacy part).

        A bound; in an l2 ball what the public model of typical data says, where that is less.
        """
        stopped, noise = self.bound(problem, n, budget)
        if problem.is_round and problem.loss.convex:
            H = np.array(self._reached(problem, n, budget))
            typical = Typical.of(problem, self.clip).descent(H, gradient_noise(problem, n, budget, self.clip))
            stopped, noise = min(stopped, float(typical[0])), min(noise, float(typical[1]))
        return stopped, noise

    def handicap(self, plan: Plan) -> float:
        """Return 0.8: descent runs unless another solver is predicted at most 0.8 of its risk."""
        return HANDICAP

    @memoised
    def bound(self, problem: Problem, n: int, budget: Budget) -> tuple[float, float]:
        """Bound the excess risk on all records: (optimisation part, privacy part)."""
        H = self._reached(problem, n, budget)
        # Descent from 0 does not lose what it had there; a mean of late points is as good as they on average.
        stopped = min(LATE_COST * float(_optimisation(problem, np.array(H))), problem.loss_at_zero)
        return stopped, _privacy(problem, n, budget, self.clip, H)

    def _travel(self, problem: Problem, n: int, budget: Budget, bend: float = 1.0) -> float:
        """H: minimiser of the predicted excess risk, within limits; `bend`: factor of typical curvatures."""
        grid = np.geomspace(1e-3, 1e9, 1201) / problem.smoothness
        shift = gradient_noise(problem, n, budget, self.clip)
        longest: float = problem.C.norm(2, problem.size) / math.sqrt(problem.size) / shift
        price = _privacy(problem, n, budget, self.clip, 1.0)  # it grows like H^2
        rows = problem.bounds.x_2 is not None
        several = problem.outputs > 1 and problem.loss.target_deviation is not None
        spherical = several or (problem.is_round and problem.outputs == 1)
        if spherical and rows and problem.loss.convex:
            typical = Typical.of(problem, self.clip)
            typical = replace(typical, curvatures=bend * typical.curvatures)
            total = sum(typical.descent(grid, shift))
            limited = self.noise_share is not None
        else:
            total, limited = _optimisation(problem, grid) + price * grid**2, True
        if limited:
            longest = min(longest, math.sqrt(self._affordable(problem) / price))
        return self.path * min(float(grid[int(np.argmin(total))]), longest)

    def _affordable(self, problem: Problem) -> float:
        """Most excess risk that noise may cost by default."""
        known = problem.loss.target_deviation is not None
        share = SCALED_NOISE_SHARE if known else NOISE_SHARE
        return (share if self.noise_share is None else self.noise_share) * problem.usual_loss_at_zero

    def _reached(self, problem: Problem, n: int, budget: Budget) -> float:
        """H that the steps reach: the default one, or the one that given settings imply."""
        T, step, momentum = self._schedule(problem, n, budget)
        return step * _unit_travel(T, momentum)

    @memoised
    def _schedule(self, problem: Problem, n: int, budget: Budget) -> tuple[int, float, float]:
        """(T, step, momentum): given values, and for the others values that reach H."""
        if not math.isfinite(problem.smoothness):
            raise Incompatible(
                f"NoisyGradientDescent needs a smooth loss; {type(problem.loss).__name__} is not. "
                "Use NoisyMirrorDescent."
            )
        if self.n_iter is not None and self.step is not None:
            return self.n_iter, self.step, self._momentum(problem, self.n_iter)
        H, longest = self._travel(problem, n, budget), self.step or self.stride / problem.smoothness
        T = self.n_iter or 1
        while self.n_iter is None and longest * _unit_travel(T, self._momentum(problem, T)) < H * (1 - 1e-9):
            if (T := T + max(1, T // 64)) >= MOST_STEPS:
                break
        momentum = self.momentum
        if momentum is None:
            most = min(_most_momentum(problem), max(HASTE, 1 - self.settled / T))
            momentum = _least_momentum(T, H / longest, most)
        return T, self.step or min(longest, H / _unit_travel(T, momentum)), momentum

    def _parts(self, problem: Problem, T: int, step: float, momentum: float) -> tuple[tuple[int, float], ...]:
        """Number of steps of each phase, and the noise of one over that of the first."""
        if not (self.phases and problem.is_round and problem.loss.convex):
            return ((T, 1.0),)
        length = step * _unit_travel(T, momentum)
        costs = Typical.of(problem, self.clip).noise_weights(length, self.phases)
        counts = np.diff(np.rint(T * np.array(self.phases)), prepend=0.0).astype(int)
        kept = counts > 0
        costs = np.maximum(costs[kept], costs[kept].max() / MOST_NOISE**4)
        factors = (costs / costs[0]) ** -0.25
        return tuple(zip(counts[kept].tolist(), factors.tolist(), strict=True))

    def _momentum(self, problem: Problem, T: int) -> float:
        """The given momentum, or the largest whose transient has decayed after T steps."""
        if self.momentum is not None:
            return self.momentum
        return min(_most_momentum(problem), max(0.0, 1 - self.settled / T))


def _precisions(plan: Plan) -> Vector:
    """Inverse of the variance of the noise on a coordinate of each answer; exact answers have a huge one."""
    each = [max(float(stage.mechanism.noise), EXACT) ** -2 for stage in plan.stages]
    return np.repeat(each, [stage.n_calls for stage in plan.stages])


def _averaged(T: int) -> int:
    """Number of iterates whose mean is the answer of T steps."""
    return -(-T // LATE)


def _most_momentum(problem: Problem) -> float:
    if problem.strong_convexity == 0:
        return MOST_MOMENTUM
    root = math.sqrt(problem.smoothness / problem.strong_convexity)
    return min(MOST_MOMENTUM, (root - 1) / (root + 1))


def _least_momentum(T: int, length: float, most: float) -> float:
    """Smallest momentum with which T unit steps reach a length, ``most`` if none does."""
    low, high = 0.0, most
    if _unit_travel(T, low) >= length * (1 - 1e-9):
        return low
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if _unit_travel(T, middle) >= length else (middle, high)
    return high


def _unit_travel(T: int, momentum: float) -> float:
    """Mean distance of the averaged iterates, moved in unit steps along a constant gradient.

    t steps move by sum_{s=1..t} (1 - m^s)/(1 - m).
    """
    k, m = _averaged(T), momentum
    powers = m ** (T - k + 1) * (1 - m**k) / ((1 - m) * k)  # mean of m^t over the averaged t
    return (T - (k - 1) / 2 - m * (1 - powers) / (1 - m)) / (1 - m)


def _optimisation(problem: Problem, H: Vector) -> Vector:
    """r^2/(2 H), and less with a ridge: r^2 lam/(e^(2 lam H) - 1)."""
    r, lam = problem.C.norm(2, problem.size), problem.strong_convexity
    bound: Vector = r**2 / (2 * H)
    return bound if lam == 0 else r**2 * lam / np.expm1(np.minimum(2 * lam * H, 700.0))


def _privacy(problem: Problem, n: int, budget: Budget, clip: float | None, H: float) -> float:
    scores = 1 if problem.loss.joint else problem.outputs
    return scores * problem.smoothness / 2 * (gradient_noise(problem, n, budget, clip) * H) ** 2
