"""A public quadratic model of typical data, on which solvers have an excess risk in closed form.

Worst-case bounds say little about usual data. Eigenvalues h_i of the Hessian fall like 1/i or 1/i^2; their
sum is the mean squared norm of rows whose largest norm is the bound. Squared coefficients are proportional to
h_i^(-GROWTH): with 0 all are equally large, with 1 all directions are equally useful. Scores have the
variance of a useful model. No private record is read; GROWTH was chosen by measurements on public data sets
(`dpcvx.solvers.defaults`). Nothing here concerns privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.problem import Problem
from dpcvx.solvers.defaults import default
from dpcvx.solvers.memo import memoised

__all__ = ["DECAYS", "GROWTH", "UNIFORM", "Harmonic", "Typical", "inflation", "mean_curvature", "usual_norm"]

CLASSIFICATION_VARIANCE: float = default("solvers.typical_data.CLASSIFICATION_VARIANCE")
REGRESSION_VARIANCE: float = default("solvers.typical_data.REGRESSION_VARIANCE")
LOG_MEAN_VARIANCE: float = default("solvers.typical_data.LOG_MEAN_VARIANCE")
DECAYS: tuple[float, ...] = default("solvers.typical_data.DECAYS")
GROWTH: float = default("solvers.typical_data.GROWTH")
LEAST_WINDOW = 1e-4  # below it a difference of like numbers is its first term
EXPLAINED: float = default("solvers.typical_data.EXPLAINED")
DIRECTIONS: int = default("solvers.typical_data.DIRECTIONS")
POINTS = 20  # of every part of a path, over which what noise costs is averaged
UNIFORM = 1 / 3  # second moment of a feature spread evenly over its bounds


@dataclass(frozen=True)
class Typical:
    """Quadratic model of a problem."""

    curvatures: Vector  # curvatures, counts: eigenvalues of the Hessian, and how many directions have each
    counts: Vector
    signal: Vector  # squared coefficient of every direction

    @classmethod
    @memoised
    def of(cls, problem: Problem, clip: float | None = None) -> Typical:
        """Model of a problem whose residuals are clipped at ``clip``."""
        d = problem.d
        edges = np.unique(np.rint(np.geomspace(1, d + 1, min(d, DIRECTIONS) + 1)))
        counts = np.diff(edges)
        middle = np.sqrt(edges[:-1] * (edges[1:] - 1))
        falls = [middle**-power for power in DECAYS]
        eigenvalues = usual_norm(problem) ** 2 * np.concatenate([each / (each @ counts) for each in falls])
        parts = [each ** (1 - GROWTH) for each in falls]
        shares = np.concatenate([part / (part @ counts) for part in parts])  # of the variance of scores
        counts = np.tile(counts, len(DECAYS)) / len(DECAYS)
        signal = _score_variance(problem, clip) * shares / eigenvalues
        bends = mean_curvature(problem, clip) * eigenvalues
        return cls(bends + problem.l2, counts * problem.outputs, signal)

    @property
    def at_zero(self) -> float:
        """Excess risk of theta = 0, the most that a fit can gain."""
        return float(self.counts @ (self.curvatures * self.signal)) / 2

    def descent(self, length: Vector, shift: float) -> tuple[Vector, Vector]:
        """Excess risk after descending a length H: (optimisation part, privacy part).

        ``length`` is the distance that a unit gradient would move the answer; the noise moves a coordinate
        without curvature by about ``shift`` H. The answer is the mean of the last third of a path of steps
        that are short beside the curvature and share its whole length, 6/5 H, evenly. A coefficient shrinks
        by the mean of e^(-h t) over that third; what noise came before it shrinks likewise, and the noise
        within it is averaged.
        """
        h, whole = self.curvatures, np.asarray(length)[..., None] * 6 / 5
        before, window = 2 / 3 * h * whole, h * whole / 3
        faded = -np.expm1(-window)
        shrinking = faded / window
        noise = -np.expm1(-2 * before) / 2 * shrinking**2
        averaged = (window - 2 * faded - np.expm1(-2 * window) / 2) / window**2
        noise += np.where(window < LEAST_WINDOW, window / 3, averaged)
        return (
            (self.counts * h * self.signal * (np.exp(-before) * shrinking) ** 2).sum(axis=-1) / 2,
            (self.counts * shift**2 * whole * noise).sum(axis=-1) / 2,
        )

    def noise_weights(self, length: float, ends: tuple[float, ...]) -> Vector:
        """Excess risk by a unit of squared noise, on average over the steps of each part of a path.

        `length`: H, as in `descent`, whose path this is; `ends`: of the parts, as shares of the path. Noise
        before the last third shrinks like the coefficients; that within it is in the averaged iterates from
        its step on.
        """
        h, whole = self.curvatures, 6 / 5 * length
        window = whole / 3
        starts = (0.0, *ends[:-1])
        places = [
            np.linspace(first, last, 2 * POINTS + 1)[1::2] for first, last in zip(starts, ends, strict=True)
        ]
        left = (1 - np.array(places))[..., None] * whole  # of the path, after a step
        faded = np.exp(-h * np.maximum(left - window, 0.0)) * -np.expm1(-h * np.minimum(left, window))
        shares: Vector = (self.counts * h * (faded / (h * window)) ** 2).sum(axis=-1).mean(axis=-1) / 2
        return shares

    def perturbed(self, ridge: Vector, noise: Vector) -> tuple[Vector, Vector]:
        """Excess risk of a minimiser with a ridge and a linear term: (the ridge's part, the noise's part)."""
        h, weight = self.curvatures, np.asarray(ridge)[..., None]
        deviation = np.asarray(noise)[..., None]
        part = self.counts * h / (h + weight) ** 2 / 2
        return (part * self.signal * weight**2).sum(axis=-1), (part * deviation**2).sum(axis=-1)


@dataclass(frozen=True)
class Harmonic:
    """Model of a problem in which few features matter.

    Features vary independently and evenly over their bounds. Their coefficients, ordered by size, are
    theta_j = largest/j; scores have the variance of a useful model, unless the set is too small for that.
    """

    curvature: float  # of the loss in each coefficient
    largest: float
    d: int

    @classmethod
    @memoised
    def of(cls, problem: Problem, clip: float | None = None) -> Harmonic:
        """Model of a problem whose residuals are clipped at ``clip``."""
        moment = min(UNIFORM * problem.bounds.x_inf**2, problem.row_norm**2 / problem.d)
        ranks = np.arange(1, problem.size + 1)
        useful = math.sqrt(_score_variance(problem, clip) / (moment * float((1.0 / ranks**2).sum())))
        return cls(mean_curvature(problem, clip) * moment, useful, problem.size)

    @property
    def squares(self) -> float:
        """Squared norm of the coefficients."""
        return self.largest**2 * float((1.0 / np.arange(1, self.d + 1) ** 2).sum())

    def equal(self, count: int) -> float:
        """Size of ``count`` equal coefficients with which scores have the same variance."""
        return self.largest * math.sqrt(math.pi**2 / 6 / count)

    def left(self, count: float) -> float:
        """Excess risk of a model with the ``count`` largest coefficients: the others' (h/2) sum theta_j^2."""
        tail = 1 / (max(count, 0.0) + 0.5) - 1 / (self.d + 0.5)  # near sum_{j > count} 1/j^2
        return self.curvature * self.largest**2 * max(tail, 0.0) / 2


def inflation(limit: float) -> float:
    """Return the factor by which scores that minimise `ClippedLogistic` with this limit are too large.

    A score z of a record with log-odds s is right where the slopes of both labels cancel in the mean; s is as
    spread as useful scores are, and z proportional to it. For a limit of 0.6 it is 1.20, and between 1.19 and
    1.22 if s had a half or one and a half times the deviation.
    """
    s = np.linspace(0, 6, 601) * math.sqrt(CLASSIFICATION_VARIANCE)
    weights = np.exp(-(s**2) / (2 * CLASSIFICATION_VARIANCE)) * s
    odds = np.exp(-s)

    def pull(scale: float) -> float:
        right, wrong = (np.minimum(1 / (1 + np.exp(sign * scale * s)), limit) for sign in (1, -1))
        return float(weights @ ((right - odds * wrong) / (1 + odds)))

    low, high = 1.0, 4.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if pull(middle) > 0 else (low, middle)
    return low


def usual_norm(problem: Problem) -> float:
    """Root mean square of the rows' norms: of d independent features few are 1 + 1/sqrt(d) times as long."""
    return problem.row_norm / (1 + 1 / math.sqrt(problem.d))


def mean_curvature(problem: Problem, clip: float | None = None) -> float:
    """Mean of phi'' where useful scores lie."""
    if problem.loss.joint:
        return problem.loss.smoothness(problem.z_max) / 2
    z = np.linspace(-3, 3, 241)
    weights = np.exp(-(z**2) / 2)
    z, step = z * math.sqrt(_score_variance(problem, clip)), 1e-4
    y = np.full_like(z, problem.loss.usual_target)
    if problem.loss.link == "log":  # the scores of a fit are about the mean, which a fit measures
        z = z + math.log(problem.loss.usual_target)
    bend = (problem.loss.grad(z + step, y) - problem.loss.grad(z - step, y)) / (2 * step)
    return float(weights @ bend / weights.sum())


def _score_variance(problem: Problem, clip: float | None) -> float:
    if (known := problem.loss.target_deviation) is not None:
        return EXPLAINED * known**2
    if problem.loss.link == "identity":
        return REGRESSION_VARIANCE * problem.slope(2, 0.0, clip) ** 2
    about_mean = problem.loss.unit_free  # of amounts and shares
    return LOG_MEAN_VARIANCE if about_mean else CLASSIFICATION_VARIANCE
