"""The gradient along a few chosen features, with lattice Gaussian noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from dpcvx.accounting import REPLACE_ONE, Neighbours
from dpcvx.arrays import IntVector, Vector
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

__all__ = ["RestrictedGradient"]


@dataclass(frozen=True)
class RestrictedGradient:
    """Gradient with respect to the features of a public support, at a public theta that is 0 elsewhere.

    Question: the entries S_j(D) = sum_i rho_i k_ij, j in the support, of the gradient's exact sum; noise is
    drawn for these alone, and the rest is never released.
    Sensitivity (l2, replace-one): with k features in the support 2 R sqrt(min(K2, k K_inf^2)) on the
    integers, 2 (phi' bound) min(B_2, B_x sqrt(k))/n on the mean (PRIVACY_MATH §15); half of it under
    add/remove. The support follows from released answers, so its size may set the noise.
    Event: Gaussian(noise_multiplier), whatever the support: noise and sensitivity keep their ratio.

    Parameters
    ----------
    problem : Problem
        The whole problem, all features.
    n : int
        Public normaliser: the number of records.
    noise_multiplier : float
        Standard deviation of the noise over the sensitivity.
    largest : int
        Most features a support may have.
    neighbours : Neighbours
        The data sets that must look alike.
    clip : float, optional
        Residuals phi' are clipped to this size; None keeps the loss's own bound.
    """

    problem: Problem
    n: int
    noise_multiplier: float
    largest: int
    neighbours: Neighbours = REPLACE_ONE
    clip: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.largest <= self.problem.d:
            raise ValueError(f"largest must be between 1 and d={self.problem.d}, got {self.largest}.")
        if not math.isfinite(self.problem.slope(2, clip=self.clip)):
            raise Incompatible(
                f"{type(self.problem.loss).__name__} has unbounded slopes here: "
                "give a bounded domain or a residual clip."
            )
        check_capacity(self, self.n)

    def on(self, features: int) -> Problem:
        """The problem on a support of that many features."""
        return replace(self.problem, d=features)

    @property
    def capacity(self) -> int:
        """Most records that exact sums have room for, with their noise."""
        return room(self.problem, self.clip, self._scale(self._widest, self.largest), self.n)

    @property
    def event(self) -> Event:
        """Gaussian(noise_multiplier)."""
        return Gaussian(self.noise_multiplier)

    @property
    def sensitivity(self) -> float:
        """Largest l2 change of the mean gradient, over all theta in C and all supports."""
        return self._integer_sensitivity(self._widest, self.largest) * SUM_UNIT / self.n

    @property
    def noise(self) -> float:
        """Largest standard deviation of one coordinate of the answer."""
        return self.noise_on(self.largest)

    def noise_on(self, features: int) -> float:
        """Largest standard deviation of one coordinate of the answer on supports of that many features."""
        return self.noise_multiplier * self._integer_sensitivity(self._widest, features) * SUM_UNIT / self.n

    @property
    def evaluations(self) -> float:
        """One gradient for each record."""
        return self.n

    @property
    def n_draws(self) -> int:
        """At most one value per coordinate of the largest support."""
        return self.largest * self.problem.outputs

    @property
    def failure(self) -> float:
        """Total variation of one call's noise, at most."""
        from dpcvx.noise.gaussian import gaussian_failure

        return self.n_draws * gaussian_failure()

    @property
    def _widest(self) -> ResidualBound:
        return residual_bound(self.problem, None, self.clip)

    def _integer_sensitivity(self, bound: ResidualBound, features: int) -> int:
        _, k2 = integer_bounds(self.problem.bounds, features)
        return math.isqrt(self.neighbours.ball**2 * bound.l2**2 * k2) + 1

    def _scale(self, bound: ResidualBound, features: int) -> int:
        return math.ceil(Fraction(self.noise_multiplier) * self._integer_sensitivity(bound, features))

    def __call__(self, theta: Vector, support: IntVector, data: DataSource, rng: Generator) -> Vector:
        """Return the noisy gradient at theta along the support's features, in their order."""
        from dpcvx.noise.gaussian import lattice_gaussian

        features = len(support)
        # A negative index would be an alias, and a table of indices would draw fresh noise for each copy.
        known = np.ndim(support) == 1 and np.isin(support, np.arange(self.problem.d)).all()
        if not 1 <= features <= self.largest or len(np.unique(support)) != features or not known:
            raise Incompatible(
                f"The plan allows supports of 1 to {self.largest} distinct features of {self.problem.d}; "
                f"{features} were given, or some twice, or unknown ones."
            )
        bound = residual_bound(self.problem, self.problem.margin_bound(theta), self.clip)
        total = data.sum(GradientSum(self.problem.loss, theta, bound))[support]
        noise = lattice_gaussian(self._scale(bound, features), total.size, rng).reshape(total.shape)
        return (total + noise).astype(np.float64) * (SUM_UNIT / self.n) + self.problem.l2 * theta[support]
