"""The gradient of the objective, on all features or on a few, with lattice Gaussian noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dpcvx.accounting import REPLACE_ONE, Neighbours
from dpcvx.arrays import IntVector, Vector
from dpcvx.data import SUM_UNIT, GradientSum, ResidualBound, integer_bounds
from dpcvx.errors import Incompatible, WrongValue
from dpcvx.mechanisms.lattice_gaussian import GaussianMechanism, LatticeGaussian
from dpcvx.mechanisms.mechanism import Traits, check_capacity, residual_bound, room
from dpcvx.problem import Problem

if TYPE_CHECKING:
    from dpcvx.data import DataSource
    from dpcvx.noise import Generator

__all__ = ["NoisyGradient"]


@dataclass(frozen=True)
class NoisyGradient(GaussianMechanism):
    """Gradient of the objective at a public theta, with lattice Gaussian noise.

    Question: S(D) = sum_i rho_i k_i in Z^d, rho_i the clipped integer slope at <x_i, theta>, k_i the stored
    row; the answer is 2^-34 (S + K)/n + l2 theta with K = round(scale Z), Z standard normal.
    Sensitivity (l2, replace-one): 2 R sqrt(K2) on the integers, 2 L2/n on the mean; half of it under
    add/remove.
    With several outputs the summand is the outer product k_i rho_i^T (Frobenius norm).
    Event: Gaussian(noise_multiplier), exactly (1/noise_multiplier)-GDP, since S + K = round(S + scale Z).
    R is taken at the public theta, so the noise shrinks with the slope's range while the ratio, and the
    event, stay fixed.

    On a public support of k features only the entries S_j of these features are released; theta need not be
    0 elsewhere. The sensitivity is then 2 R sqrt(min(K2, k K_inf^2)) on the integers and
    2 (phi' bound) min(B_2, B_x sqrt(k))/n on the mean (PRIVACY_MATH §15). The support follows from released
    answers, so its size may set the noise.
    """

    problem: Problem  # all features, also where answers are on a support
    n: int  # public normaliser: the number of records
    noise_multiplier: float  # standard deviation of the noise over the sensitivity
    neighbours: Neighbours = REPLACE_ONE  # the data sets that must look alike
    clip: float | None = None  # residuals phi' are clipped to this size; None keeps the loss's own bound
    # most features of the support that each call names; None for the gradient on all features
    support: int | None = None

    def __post_init__(self) -> None:
        if self.support is not None and not 1 <= self.support <= self.problem.d:
            raise WrongValue(f"support must be between 1 and d={self.problem.d}, got {self.support}.")
        if not math.isfinite(self.problem.slope(2, clip=self.clip)):
            raise Incompatible(
                f"{type(self.problem.loss).__name__} has unbounded slopes here: "
                "give a bounded domain or a residual clip."
            )
        check_capacity(self, self.n)

    @property
    def _features(self) -> int:
        """Most features that one answer has."""
        return self.problem.d if self.support is None else self.support

    def _gaussian(self, bound: ResidualBound, features: int) -> LatticeGaussian:
        _, k2 = integer_bounds(self.problem.bounds, features)
        sensitivity = math.isqrt(self.neighbours.ball**2 * bound.l2**2 * k2) + 1
        unit = SUM_UNIT / self.n
        return LatticeGaussian(sensitivity, self.noise_multiplier, features * self.problem.outputs, unit)

    @property
    def gaussians(self) -> tuple[LatticeGaussian, ...]:
        """Noise of the sum, over all theta in C and all supports."""
        return (self._gaussian(residual_bound(self.problem, None, self.clip), self._features),)

    @property
    def capacity(self) -> int:
        """Most records that exact sums have room for, with their noise."""
        return room(self.problem, self.clip, self.gaussians[0].scale, self.n)

    @property
    def sensitivity(self) -> float:
        """Largest l2 change of the mean gradient, over all theta in C and all supports."""
        return int(self.gaussians[0].sensitivity) * SUM_UNIT / self.n

    @property
    def noise(self) -> float:
        """Largest standard deviation of one coordinate of the answer."""
        if self.support is not None:
            return self.noise_on(self.support)
        return self.noise_multiplier * self.sensitivity

    def noise_on(self, features: int) -> float:
        """Return the largest standard deviation of one coordinate on supports of that many features."""
        gaussian = self._gaussian(residual_bound(self.problem, None, self.clip), features)
        return self.noise_multiplier * int(gaussian.sensitivity) * SUM_UNIT / self.n

    def noise_at(self, theta: Vector, features: int | None = None) -> float:
        """Return the standard deviation of one coordinate of the answer at a public theta.

        `features`: number of features of the gradient's support; by default the largest possible number.
        """
        bound = residual_bound(self.problem, self.problem.margin_bound(theta), self.clip)
        return self._gaussian(bound, features or self._features).scale * SUM_UNIT / self.n

    def on(self, features: int) -> Problem:
        """Return the problem on a support of that many features."""
        return replace(self.problem, d=features)

    @property
    def evaluations(self) -> float:
        """One gradient for each record."""
        return self.n

    @property
    def traits(self) -> Traits:
        """A gradient on a support is another question than the whole one."""
        return Traits("gradient" if self.support is None else "gradient on a support")

    def __call__(
        self, theta: Vector, support: IntVector | None = None, *, data: DataSource, rng: Generator
    ) -> Vector:
        """Return the noisy gradient at theta, on the features of a support in their order if planned."""
        place = self._checked(support)
        bound = residual_bound(self.problem, self.problem.margin_bound(theta), self.clip)
        total = data.sum(GradientSum(self.problem.loss, theta, bound))[place]
        noise = self._gaussian(bound, len(total)).draw(rng).reshape(total.shape)
        return (total + noise).astype(np.float64) * (SUM_UNIT / self.n) + self.problem.l2 * theta[place]

    def _checked(self, support: IntVector | None) -> IntVector | slice:
        """Return the features of an answer, if they are as planned."""
        if support is None and self.support is None:
            return slice(None)
        if support is None or self.support is None:
            planned = "the whole gradient" if self.support is None else "gradients on a support"
            raise Incompatible(f"The plan is for {planned}; this question is for the other kind.")
        # A negative index would be an alias, and a table of indices would draw fresh noise for each copy.
        features = len(support)
        known = np.ndim(support) == 1 and np.isin(support, np.arange(self.problem.d)).all()
        if not 1 <= features <= self.support or len(np.unique(support)) != features or not known:
            raise Incompatible(
                f"The plan allows supports of 1 to {self.support} distinct features of {self.problem.d}; "
                f"{features} were given, or some twice, or unknown ones."
            )
        return support
