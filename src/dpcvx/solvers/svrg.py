"""Noisy variance-reduced descent: one full gradient an epoch, then small samples."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dpcvx.accounting import Accountant, Budget, calibrate, gaussian_mu, spendable
from dpcvx.arrays import Vector
from dpcvx.domains import HasEuclideanRadius, HasProjection
from dpcvx.errors import Incompatible, WrongValue
from dpcvx.events import Compose, Event, Gaussian, Poisson, Repeat
from dpcvx.mechanisms import NoisyDifference, NoisyGradient
from dpcvx.noise import LEVELS, probability_above
from dpcvx.plans import Asking, Plan, Solver, Stage, check_count, require
from dpcvx.problem import Problem
from dpcvx.solvers.defaults import default
from dpcvx.solvers.descent import gradient_noise

__all__ = ["NoisySVRG", "NoisySVRGPlusPlus"]

SHARES: tuple[float, ...] = default("solvers.svrg.SHARES")
TYPICAL_DIFFERENCE: float = default("solvers.svrg.TYPICAL_DIFFERENCE")
MOST_EPOCHS: int = default("solvers.svrg.MOST_EPOCHS")
LONGEST_EPOCH = LEVELS // 2  # with batch = n/(2 steps) a longer one would ask for samples below n/LEVELS
EPOCH_GAIN: float = default("solvers.svrg.EPOCH_GAIN")


@dataclass(frozen=True)
class NoisySVRG(Solver):
    """Proximal variance-reduced descent for strongly convex problems.

    In an epoch with anchor a, and g the noisy gradient at a, the point starts at a and moves by
    theta <- prox(theta - step * (g + d)), d the noisy change of the gradient from a to theta over a sample;
    the mean of the epoch's points is the next anchor, and the last anchor is returned

    Algorithm: [WYX17] Algorithm 1 with Poisson samples in place of single records.

    Privacy: an epoch asks `NoisyGradient` once (l2 sensitivity 2 L2/n, replace-one) and `NoisyDifference`
    n_steps - 1 times; the event is the composition of Gaussian and Poisson events (PRIVACY_MATH §6). Points,
    prox and means are post-processing. The default share of the budget for full gradients is the one of a few
    that minimises the predicted noise of a step, (z_s 2 L2/n)^2 + (z_d C/(q n))^2 with C a tenth of L2; the
    noise itself is calibrated with the accountant.

    Utility: [WYX17] Theorem 4.2. With kappa = smoothness/strong convexity, an epoch of kappa steps reduces
    the excess by a constant factor and costs n evaluations for its anchor and n for its steps, where full
    descent pays n for every step. The noise sigma of an anchor's gradient is the same in all steps of an
    epoch and leaves an excess of up to d sigma^2/(2 strong convexity).
    Defaults: n_steps is kappa, halved until noise moves the point of an epoch by no more than its own
    distance from the anchor, sqrt(n_steps d) z_d <= batch; batch is n/(2 n_steps); n_epochs minimises the
    predicted sum of what the epochs leave and what the anchors' noise adds.

    Deviations: the paper draws one record a step and adds noise as for a large sample, which is private for
    no epsilon in use (PRIVACY_MATH §6). Here samples are Poisson, the anchor's gradient and every difference
    carry noise of their own, and the first step of an epoch, whose difference is 0, asks nothing. The step is
    1/smoothness instead of 1/12 of it, as a sample's variance is that of one record over its size.

    Parameters
    ----------
    n_epochs : int, optional
        Number of anchors.
    n_steps : int, optional
        Steps of an epoch, at least 2.
    batch : int, optional
        Expected size of a sample; the probability is rounded up to a multiple of 2^-16.
    step : float, optional
        Step length; 1/smoothness by default.
    share : float, optional
        Share of the budget for full gradients, between 0 and 1.
    clip : float, optional
        Residuals phi' are clipped to this size.
    """

    n_epochs: int | None = None
    n_steps: int | None = None
    batch: int | None = None
    step: float | None = None
    share: float | None = None
    clip: float | None = None

    proximal: ClassVar[bool] = True
    samples: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check(self)
        if self.n_steps == 1:
            raise WrongValue("n_steps must be at least 2: the first step of an epoch asks for no difference.")

    def plan(self, problem: Problem, n: int, budget: Budget, accountant: Accountant) -> Plan:
        """Fix epochs, steps, samples and both noises from public facts."""
        require(self, problem)
        return self._schedule(problem, n, budget).plan(problem, n, budget, accountant)

    def run(self, plan: Plan, ask: Asking) -> Vector:
        """Descend, epoch by epoch."""
        prox, step = _prox(plan.problem), self.step or 1 / plan.problem.smoothness
        anchor = _start(plan.problem)
        for stage in plan.stages[1::2]:
            g = ask.gradient(anchor)
            theta = prox(anchor - step * g, step)  # the difference at the anchor itself is 0
            mean = theta.copy()
            for t in range(stage.n_calls):
                theta = prox(theta - step * (g + ask.difference(theta, anchor)), step)
                mean += (theta - mean) / (t + 2)
            anchor = mean
        return anchor

    def predict(self, problem: Problem, n: int, budget: Budget) -> tuple[float, float]:
        """Estimate the excess risk: (optimisation part, privacy part)."""
        schedule = self._schedule(problem, n, budget)
        S, m = len(schedule.calls), schedule.calls[0] + 1
        left = math.exp(-_gain(problem, m) * S)
        return problem.lipschitz(2, self.clip) * _width(problem, self.clip) * left, (
            S * _floor(problem, n, budget, self.clip)
        )

    def _schedule(self, problem: Problem, n: int, budget: Budget) -> _Schedule:
        _require_fit(self, problem)
        if not problem.strong_convexity > 0:
            raise Incompatible(
                "NoisySVRG needs a strongly convex problem: set l2 > 0, or use NoisySVRGPlusPlus."
            )
        kappa = problem.smoothness / problem.strong_convexity
        m = self.n_steps or min(max(2, math.ceil(kappa)), LONGEST_EPOCH)
        while True:
            S = self.n_epochs or _epochs(problem, n, budget, self.clip, m)
            batch = self.batch or max(1, n // (2 * m))
            schedule = _Schedule(replace(self, n_epochs=S, n_steps=m, batch=batch), (m - 1,) * S)
            if self.n_steps or m == 2 or schedule.steady(problem, n, budget):
                return schedule
            m = max(2, m // 2)


@dataclass(frozen=True)
class NoisySVRGPlusPlus(Solver):
    """Proximal variance-reduced descent for problems without strong convexity.

    As `NoisySVRG`, with epochs of 2 n_steps, 4 n_steps, 8 n_steps, ... steps, each of which starts at the
    last point of the one before; the anchor is still the mean

    Algorithm: [WYX17] Algorithm 2 with Poisson samples in place of single records.

    Privacy: as `NoisySVRG`; epoch s asks `NoisyGradient` once and `NoisyDifference` 2^s n_steps times
    (PRIVACY_MATH §6).

    Utility: [WYX17] Theorem 4.4. Each epoch halves the excess, at twice the steps of the one before, while
    the cost of its anchor stays n. With H the length that a constant unit gradient would move theta, the
    optimisation error is about r^2/(2 H) and the noise moves theta by H times that of an anchor's gradient.
    Defaults: the steps of all epochs together travel the H that minimises the same prediction as in
    `NoisyGradientDescent`, halved until the noise of samples is no obstacle, as in `NoisySVRG`; batch lets
    all steps together cost as much as all anchors.

    Deviations: as `NoisySVRG`; the step is 1/smoothness instead of 1/13 of it.

    Parameters
    ----------
    n_epochs : int, optional
        Number of anchors.
    n_steps : int, optional
        Half the steps of the first epoch.
    batch, step, share, clip
        As in `NoisySVRG`.
    """

    n_epochs: int | None = None
    n_steps: int | None = None
    batch: int | None = None
    step: float | None = None
    share: float | None = None
    clip: float | None = None

    proximal: ClassVar[bool] = True
    samples: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check(self)

    def plan(self, problem: Problem, n: int, budget: Budget, accountant: Accountant) -> Plan:
        """Fix epochs, steps, samples and both noises from public facts."""
        require(self, problem)
        return self._schedule(problem, n, budget).plan(problem, n, budget, accountant)

    def run(self, plan: Plan, ask: Asking) -> Vector:
        """Descend, epoch by epoch."""
        prox, step = _prox(plan.problem), self.step or 1 / plan.problem.smoothness
        theta = anchor = _start(plan.problem)
        for stage in plan.stages[1::2]:
            g = ask.gradient(anchor)
            mean = np.zeros_like(theta)
            for t in range(stage.n_calls):
                theta = prox(theta - step * (g + ask.difference(theta, anchor)), step)
                mean += (theta - mean) / (t + 1)
            anchor = mean
        return anchor

    def predict(self, problem: Problem, n: int, budget: Budget) -> tuple[float, float]:
        """Estimate the excess risk: (optimisation part, privacy part)."""
        schedule = self._schedule(problem, n, budget)
        H = sum(schedule.calls) * (self.step or 1 / problem.smoothness)
        return _width(problem, self.clip) ** 2 / (2 * H), _drift(problem, n, budget, self.clip) * H**2

    def _schedule(self, problem: Problem, n: int, budget: Budget) -> _Schedule:
        _require_fit(self, problem)
        # r^2/(2 H) + drift H^2 is least at this H
        H = (_width(problem, self.clip) ** 2 / (4 * _drift(problem, n, budget, self.clip))) ** (1 / 3)
        steps = min(max(6, math.ceil(H / (self.step or 1 / problem.smoothness))), 2 * LONGEST_EPOCH)
        while True:
            S = self.n_epochs or min(MOST_EPOCHS, int(math.log2(steps / 3 + 1)))
            m = self.n_steps or max(1, round(steps / (2 ** (S + 1) - 2)))
            calls = tuple(2**s * m for s in range(1, S + 1))
            batch = self.batch or max(1, n * S // (2 * sum(calls)))
            schedule = _Schedule(replace(self, n_epochs=S, n_steps=m, batch=batch), calls)
            if self.n_steps or steps <= 6 or schedule.steady(problem, n, budget):
                return schedule
            steps = max(6, steps // 2)


@dataclass(frozen=True)
class _Schedule:
    """Numbers of differences in the epochs, and the solver that asks them with its batch chosen."""

    solver: NoisySVRG | NoisySVRGPlusPlus
    calls: tuple[int, ...]

    def plan(self, problem: Problem, n: int, budget: Budget, accountant: Accountant) -> Plan:
        """Stages of the run: the ratio of the two noises is that of the share, their size is calibrated."""
        q, clip = self._probability(n), self.solver.clip
        share = self._share(problem, n, budget)
        full, sampled = self._multipliers(share, n, budget)
        ratio = full / sampled

        def event(noise: float) -> Event:
            anchors = Repeat(Gaussian(ratio * noise), len(self.calls))
            return Compose((anchors, Repeat(Poisson(q, noise, budget.neighbours.relation), sum(self.calls))))

        noise = calibrate(event, spendable(budget), accountant)
        gradient = NoisyGradient(problem, n, ratio * noise, budget.neighbours, clip)
        difference = NoisyDifference(problem, n, q, noise, budget.neighbours, clip)
        stages = tuple(
            stage for count in self.calls for stage in (Stage(gradient, 1), Stage(difference, count))
        )
        solver = replace(self.solver, share=share, step=self.solver.step or 1 / problem.smoothness)
        return Plan(stages, problem, n, solver, budget, accountant)

    def steady(self, problem: Problem, n: int, budget: Budget) -> bool:
        """Whether noise moves the point of the longest epoch by at most its distance from the anchor.

        A difference at distance r has noise z C/(q n) with C <= smoothness * r, and a step is 1/smoothness.
        """
        _, sampled = self._multipliers(self._share(problem, n, budget), n, budget)
        noise = budget.neighbours.rows * sampled
        return math.sqrt(max(self.calls) * problem.size) * noise <= self._probability(n) * n

    def _share(self, problem: Problem, n: int, budget: Budget) -> float:
        return self.solver.share or min(SHARES, key=lambda share: self._noise(share, problem, n, budget))

    def _probability(self, n: int) -> float:
        return probability_above((self.solver.batch or n) / n)

    def _multipliers(self, share: float, n: int, budget: Budget) -> tuple[float, float]:
        """Noise multipliers of full gradients and of differences in the limit of many steps.

        The limit of T Poisson samples is a Gaussian release with mu^2 = 4 T q^2 sinh(1/z^2) under
        replace-one and T q^2 (e^(1/z^2) - 1) under add/remove. It serves to choose, never to set noise.
        """
        mu2 = gaussian_mu(budget.epsilon, budget.delta) ** 2
        each = (1 - share) * mu2 / (sum(self.calls) * self._probability(n) ** 2)
        inverse = math.asinh(each / 4) if budget.neighbours.replaces else math.log1p(each)
        return math.sqrt(len(self.calls) / (share * mu2)), 1 / math.sqrt(inverse)

    def _noise(self, share: float, problem: Problem, n: int, budget: Budget) -> float:
        """Predicted noise of a step, squared: that of the anchor's gradient and that of a difference."""
        full, sampled = self._multipliers(share, n, budget)
        G = problem.lipschitz(2, self.solver.clip)
        anchor = full * budget.neighbours.ball * G / n
        sampled *= budget.neighbours.rows
        return anchor**2 + (sampled * TYPICAL_DIFFERENCE * G / (self._probability(n) * n)) ** 2


def _check(solver: NoisySVRG | NoisySVRGPlusPlus) -> None:
    for name in ("n_epochs", "n_steps", "batch"):
        check_count(name, getattr(solver, name))
    if solver.step is not None and not (solver.step > 0 and math.isfinite(solver.step)):
        raise WrongValue(f"step must be positive and finite, got {solver.step!r}.")
    if solver.share is not None and not 0 < solver.share < 1:
        raise WrongValue(f"share must be between 0 and 1, got {solver.share!r}.")


def _require_fit(solver: NoisySVRG | NoisySVRGPlusPlus, problem: Problem) -> None:
    name = type(solver).__name__
    if not math.isfinite(problem.smoothness):
        raise Incompatible(
            f"{name} needs a smooth loss; {type(problem.loss).__name__} is not. Use NoisyMirrorDescent."
        )
    if not math.isfinite(problem.slope(2, clip=solver.clip)):
        raise Incompatible(
            f"{type(problem.loss).__name__} has unbounded slopes here: "
            "give a bounded domain or a residual clip."
        )
    domain = problem.domain
    if domain is not None and not isinstance(domain, HasProjection):
        raise Incompatible(
            f"{name} needs a domain with HasProjection, or none; {type(domain).__name__} has none."
        )
    if problem.regularizer is not None and not isinstance(domain, HasEuclideanRadius | None):
        raise Incompatible(
            f"{name} takes a regularizer together with an L2Ball or no domain, got {type(domain).__name__}: "
            "the prox of their sum is known there only."
        )


def _prox(problem: Problem) -> Callable[[Vector, float], Vector]:
    """Prox of step * r plus the indicator of C.

    With an l2 ball it is the prox of r followed by the projection, if r is a norm plus a ridge: the ball's
    multiplier only scales the point along its ray.
    """

    def prox(v: Vector, step: float) -> Vector:
        if problem.regularizer is not None:
            v = problem.regularizer.prox(v, step)
        if problem.domain is None:
            return v
        projected: Vector = problem.C.project(v)
        return projected

    return prox


def _start(problem: Problem) -> Vector:
    return np.zeros(problem.shape) if problem.domain is None else np.asarray(problem.C.start(problem.shape))


def _width(problem: Problem, clip: float | None) -> float:
    """Bound on the distance from the start to the minimiser: of the set, or 2 G/strong convexity."""
    bounds = []
    if problem.domain is not None:
        bounds.append(problem.domain.diameter(2, problem.size))
    if problem.strong_convexity > 0:
        bounds.append(2 * problem.lipschitz(2, clip) / problem.strong_convexity)
    return min(bounds)


def _floor(problem: Problem, n: int, budget: Budget, clip: float | None) -> float:
    """Excess that one anchor's noise may leave when the whole budget is spent on it: d sigma^2/(2 lambda)."""
    return problem.size * gradient_noise(problem, n, budget, clip) ** 2 / (2 * problem.strong_convexity)


def _gain(problem: Problem, m: int) -> float:
    return EPOCH_GAIN * m * problem.strong_convexity / problem.smoothness


def _epochs(problem: Problem, n: int, budget: Budget, clip: float | None, m: int) -> int:
    """Minimiser of G D e^(-gain S) + S floor over S, at least 2."""
    gain, gap = _gain(problem, m), problem.lipschitz(2, clip) * _width(problem, clip)
    best = math.log(max(gain * gap / _floor(problem, n, budget, clip), 1.0)) / gain
    return min(max(2, round(best)), MOST_EPOCHS)


def _drift(problem: Problem, n: int, budget: Budget, clip: float | None) -> float:
    """Excess by noise for a travel of 1, as `NoisyGradientDescent` predicts it."""
    return problem.smoothness / 2 * gradient_noise(problem, n, budget, clip) ** 2
