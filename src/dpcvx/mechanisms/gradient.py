"""The gradient of the objective, with lattice Gaussian noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from dpcvx.accounting import REPLACE_ONE, Neighbours
from dpcvx.arrays import Vector
from dpcvx.data import SUM_UNIT, GradientSum, ResidualBound, integer_bounds
from dpcvx.errors import Incompatible
from dpcvx.events import Event, Gaussian
from dpcvx.mechanisms.mechanism import (
    check_capacity,
    residual_bound,
    room,
)
from dpcvx.problem import Problem

if TYPE_CHECKING:
    from dpcvx.data import DataSource
    from dpcvx.noise import Generator

__all__ = ["NoisyGradient"]


@dataclass(frozen=True)
class NoisyGradient:
    """Gradient of the objective at a public theta, with lattice Gaussian noise.

    Question: S(D) = sum_i rho_i k_i in Z^d, rho_i the clipped integer slope at <x_i, theta>, k_i the stored
    row; the answer is 2^-34 (S + K)/n + l2 theta with K = round(scale Z), Z standard normal.
    Sensitivity (l2, replace-one): 2 R sqrt(K2) on the integers, 2 L2/n on the mean; half of it under
    add/remove.
    With several outputs the summand is the outer product k_i rho_i^T (Frobenius norm).
    Event: Gaussian(noise_multiplier), exactly (1/noise_multiplier)-GDP, since S + K = round(S + scale Z).
    R is taken at the public theta, so the noise shrinks with the slope's range while the ratio, and the
    event, stay fixed.

    Parameters
    ----------
    problem : Problem
    n : int
        Public normaliser: the number of records.
    noise_multiplier : float
        Standard deviation of the noise over the sensitivity.
    neighbours : Neighbours
        The data sets that must look alike.
    clip : float, optional
        Residuals phi' are clipped to this size; None keeps the loss's own bound.
    """

    problem: Problem
    n: int
    noise_multiplier: float
    neighbours: Neighbours = REPLACE_ONE
    clip: float | None = None

    def __post_init__(self) -> None:
        if not math.isfinite(self.problem.slope(2, clip=self.clip)):
            raise Incompatible(
                f"{type(self.problem.loss).__name__} has unbounded slopes here: "
                "give a bounded domain or a residual clip."
            )
        check_capacity(self, self.n)

    @property
    def capacity(self) -> int:
        """Most records that exact sums have room for, with their noise."""
        noise = self._scale(residual_bound(self.problem, None, self.clip))
        return room(self.problem, self.clip, noise, self.n)

    @property
    def event(self) -> Event:
        """Gaussian(noise_multiplier)."""
        return Gaussian(self.noise_multiplier)

    @property
    def sensitivity(self) -> float:
        """Largest l2 change of the mean gradient, over all theta in C."""
        return self._integer_sensitivity(residual_bound(self.problem, None, self.clip)) * SUM_UNIT / self.n

    @property
    def noise(self) -> float:
        """Largest standard deviation of one coordinate of the answer."""
        return self.noise_multiplier * self.sensitivity

    def noise_at(self, theta: Vector) -> float:
        """Standard deviation of one coordinate of the answer at a public theta."""
        bound = residual_bound(self.problem, self.problem.margin_bound(theta), self.clip)
        return self._scale(bound) * SUM_UNIT / self.n

    @property
    def evaluations(self) -> float:
        """One gradient for each record."""
        return self.n

    @property
    def n_draws(self) -> int:
        """One value per coordinate."""
        return self.problem.size

    @property
    def failure(self) -> float:
        """Total variation of one call's noise."""
        from dpcvx.noise.gaussian import gaussian_failure

        return self.n_draws * gaussian_failure()

    def _integer_sensitivity(self, bound: ResidualBound) -> int:
        _, k2 = integer_bounds(self.problem.bounds, self.problem.d)
        return math.isqrt(self.neighbours.ball**2 * bound.l2**2 * k2) + 1

    def _scale(self, bound: ResidualBound) -> int:
        return math.ceil(Fraction(self.noise_multiplier) * self._integer_sensitivity(bound))

    def __call__(self, theta: Vector, data: DataSource, rng: Generator) -> Vector:
        """Return the noisy gradient at theta."""
        from dpcvx.noise.gaussian import lattice_gaussian

        bound = residual_bound(self.problem, self.problem.margin_bound(theta), self.clip)
        total = data.sum(GradientSum(self.problem.loss, theta, bound))
        noise = lattice_gaussian(self._scale(bound), total.size, rng).reshape(total.shape)
        return (total + noise).astype(np.float64) * (SUM_UNIT / self.n) + self.problem.l2 * theta
