"""A public model of the data nobody has looked at: what fits leave and cost on it, in closed form.

Worst-case bounds say little about data as people have them. The model is quadratic: the
Hessian's eigenvalues fall like 1/i or like 1/i^2, their sum is that of rows as long as their bound allows,
and every direction's coefficient is equally large, such that scores vary as much as those of useful models.
Nothing here is fitted to data, and nothing here concerns privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.domains import L2Ball
from dpcvx.problem import Problem, is_regression

__all__ = ["Typical", "is_round"]

# Variance of a useful model's scores: a classifier's log-odds; a regression's, which explains half of a
# target whose deviation is 0.4 of the largest residual.
CLASSIFICATION_VARIANCE = 4.0
REGRESSION_VARIANCE = 0.5 * 0.4**2
DECAYS = (1.0, 2.0)  # powers of the rank that eigenvalues fall with; equally likely
DIRECTIONS = 128  # eigenvalues that are told apart; more are taken together in groups


def is_round(problem: Problem) -> bool:
    """Whether the set is a Euclidean ball, which favours no direction: the model is for these."""
    return isinstance(problem.domain, L2Ball)


@dataclass(frozen=True)
class Typical:
    """Quadratic model of a problem.

    Parameters
    ----------
    curvatures, counts : Vector
        Eigenvalues of the Hessian, and how many directions have each.
    signal : float
        Squared coefficient of every direction.
    """

    curvatures: Vector
    counts: Vector
    signal: float

    @classmethod
    def of(cls, problem: Problem, clip: float | None = None) -> Typical:
        """Model of a problem whose residuals are clipped at ``clip``."""
        d = problem.d
        edges = np.unique(np.rint(np.geomspace(1, d + 1, min(d, DIRECTIONS) + 1)))
        counts = np.diff(edges)
        middle = np.sqrt(edges[:-1] * (edges[1:] - 1))
        falls = [middle**-power for power in DECAYS]
        eigenvalues = problem.row_norm**2 * np.concatenate([each / (each @ counts) for each in falls])
        counts = np.tile(counts, len(DECAYS)) / len(DECAYS)
        regression = is_regression(problem.loss)
        variance = CLASSIFICATION_VARIANCE
        if regression:
            variance = REGRESSION_VARIANCE * problem.slope(2, 0.0, clip) ** 2
        curvature = _mean_curvature(problem, variance)
        scale = variance / problem.row_norm**2
        return cls(curvature * eigenvalues + problem.l2, counts * problem.outputs, scale)

    @property
    def at_zero(self) -> float:
        """Excess risk of theta = 0: what there is to learn."""
        return float(self.counts @ self.curvatures) * self.signal / 2

    def descent(self, length: Vector, shift: float) -> tuple[Vector, Vector]:
        """Excess risk after descending a length H: (optimisation part, privacy part).

        ``length`` is the distance that a unit gradient would move theta; the noise moves a coordinate without
        curvature by ``shift`` H. Steps short beside the curvature, shared evenly: a coefficient shrinks by
        e^(-h H), and the noise leaves the variance shift^2 H (1 - e^(-2 h H))/(2 h).
        """
        h, H = self.curvatures, np.asarray(length)[..., None]
        left = -np.expm1(-2 * h * H)
        return (
            (self.counts * h * self.signal * (1 - left)).sum(axis=-1) / 2,
            (self.counts * shift**2 * H * left).sum(axis=-1) / 4,
        )

    def perturbed(self, ridge: Vector, noise: Vector) -> tuple[Vector, Vector]:
        """Excess risk of a minimiser with a ridge and a linear term: (the ridge's part, the noise's part)."""
        h, weight = self.curvatures, np.asarray(ridge)[..., None]
        deviation = np.asarray(noise)[..., None]
        part = self.counts * h / (h + weight) ** 2 / 2
        return (part * self.signal * weight**2).sum(axis=-1), (part * deviation**2).sum(axis=-1)


def _mean_curvature(problem: Problem, variance: float) -> float:
    """Mean of phi'' where useful scores lie."""
    if problem.loss.joint:
        return problem.loss.smoothness(problem.z_max) / 2
    z = np.linspace(-3, 3, 241)
    weights = np.exp(-(z**2) / 2)
    z, step = z * math.sqrt(variance), 1e-4
    y = np.full_like(z, problem.loss.y_range[1] if not is_regression(problem.loss) else 0.0)
    bend = (problem.loss.grad(z + step, y) - problem.loss.grad(z - step, y)) / (2 * step)
    return float(weights @ bend / weights.sum())
