"""Posterior of a target's centre and standard deviation, given noisy clipped means and mean squares."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.solvers.defaults import default

__all__ = ["TargetAnswer", "TargetPosterior", "clipped_moments", "log_likelihood", "target_posterior"]

MISFIT: float = default("solvers.target_posterior.MISFIT")
MEAN_MISFIT = 0.3  # error of a clipped mean as a model of other targets, over that of a mean square
SMALLEST = 1 / 300  # standard deviation of a target, over half the width of its bounds
CENTERS, DEVIATIONS = 81, 60  # points of the grid
REFINED = 4.0  # posterior standard deviations on either side of the centre that a finer grid covers
MOST_GRIDS = 6  # each is up to ten times finer than the last one


@dataclass(frozen=True)
class TargetAnswer:
    """A released mean and mean square of targets, about a centre and clipped within a reach."""

    center: float
    reach: float
    mean: float
    square: float


@dataclass(frozen=True)
class TargetPosterior:
    """Posterior means and standard deviations of a target's centre and of the logarithm of its deviation.

    `deviation` is the exponential of the posterior mean of log s, which large implausible s hardly move.
    """

    center: float
    center_error: float
    deviation: float
    log_error: float  # posterior standard deviation of log s

    @property
    def reach(self) -> float:
        """Range of the next question about the target."""
        return self.center_error + self.deviation


def target_posterior(
    answers: Sequence[TargetAnswer], noise: float, limit: float, *, centred: bool
) -> TargetPosterior:
    """Return the posterior of a normal target's centre m and standard deviation s on a grid.

    The prior of m is uniform on [-limit, limit], that of log s on [log(limit/300), log(limit)]. The grid of
    m is made finer around the posterior until it resolves it.

    `noise`: standard deviation of the noise on either number of an answer; `limit`: largest absolute target;
    `centred`: whether the centre is free; it is 0 otherwise.
    """
    deviations = limit * np.geomspace(SMALLEST, 1.0, DEVIATIONS)
    logs = np.log(deviations)
    centers = np.linspace(-limit, limit, CENTERS) if centred else np.zeros(1)
    for _ in range(MOST_GRIDS):
        fit = log_likelihood(answers, noise, centers[:, None], deviations, centred=centred)
        weights = np.exp(fit - fit.max())
        weights /= weights.sum()
        of_center, of_deviation = weights.sum(axis=1), weights.sum(axis=0)
        center = float(of_center @ centers)
        error = math.sqrt(float(of_center @ (centers - center) ** 2))
        if not centred:
            break
        step = centers[1] - centers[0]
        half = REFINED * max(error, step / 2)
        if half > (centers[-1] - centers[0]) / 4:
            break
        centers = np.linspace(max(center - half, -limit), min(center + half, limit), CENTERS)
    middle = float(of_deviation @ logs)
    log_error = math.sqrt(float(of_deviation @ (logs - middle) ** 2))
    return TargetPosterior(center, error, math.exp(middle), log_error)


def log_likelihood(
    answers: Sequence[TargetAnswer], noise: float, center: Any, s: Vector, *, centred: bool
) -> Any:
    """Return the logarithm of the likelihood of answers about a normal target.

    Targets are not normal: the model of a mean square is taken to be wrong by a fifth. `center`, `s`: of the
    target, broadcast against each other; `centred`: whether the means of answers are used.
    """
    fit = np.zeros(np.broadcast_shapes(np.shape(center), np.shape(s)))
    for each in answers:
        first, second = clipped_moments((center - each.center) / each.reach, s / each.reach)
        fit -= (each.mean - first) ** 2 / (noise**2 + (MEAN_MISFIT * MISFIT) ** 2) * centred
        fit -= (each.square - second) ** 2 / (noise**2 + (MISFIT * np.maximum(second, 0.02)) ** 2)
    return fit / 2


def clipped_moments(m: Any, s: Any) -> tuple[Any, Any]:
    """Return mean and mean square of a normal variable that is clipped to [-1, 1]: E clip(m + s z)^k."""
    from scipy.special import ndtr

    low, high = (-1 - m) / s, (1 - m) / s
    below, above = ndtr(low), ndtr(-high)
    left, right = (np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) for z in (low, high))
    inside = 1 - below - above
    first = m * inside + s * (left - right) - below + above
    second = (
        m**2 * inside
        + 2 * m * s * (left - right)
        + s**2 * (inside + low * left - high * right)
        + below
        + above
    )
    return first, second
