"""The change of the gradient between two public points, over a Poisson sample of the records."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dpcvx.accounting import REPLACE_ONE, Neighbours
from dpcvx.arrays import Vector
from dpcvx.data import LARGEST_RESIDUAL, RESIDUAL_BITS, SUM_UNIT, DifferenceSum, ResidualBound, integer_bounds
from dpcvx.errors import Incompatible, WrongValue
from dpcvx.events import Event, Poisson
from dpcvx.mechanisms.lattice_gaussian import GaussianMechanism, LatticeGaussian
from dpcvx.mechanisms.mechanism import Traits, check_capacity, residual_bound, room
from dpcvx.noise import Generator, poisson_sample, probability_above
from dpcvx.problem import Problem

if TYPE_CHECKING:
    from dpcvx.data import DataSource

__all__ = ["NoisyDifference"]


@dataclass(frozen=True)
class NoisyDifference(GaussianMechanism):
    """Gradient at theta minus gradient at an anchor, over a Poisson sample, with lattice Gaussian noise.

    Question: S(D) = sum_{i in B} (rho_i - rho'_i) k_i in Z^d, where B holds each record with probability q,
    rho_i and rho'_i are the integer slopes at theta and at the anchor, their difference is clipped to R, and
    k_i is the stored row. The answer is 2^-34 (S + K)/(q n) + l2 (theta - anchor) with K = round(scale Z);
    the normaliser q n is public and never the size of B.
    One record weighs at most C = R sqrt(K2) on the integers. R is the largest possible difference at the two
    public points, so nothing is cut off: min(2 L2, smoothness * ||theta - anchor||) on the scale of
    gradients.
    Persons with several rows are sampled whole. Their rows' differences share the weight of one row; where r
    rows of a person count, C is r times as large.
    Sensitivity for the same sample (l2, replace-one): 2 C; C under add/remove.
    Event: Poisson(q, noise_multiplier, relation) with scale = noise_multiplier * C (PRIVACY_MATH §6, §8). R
    follows the public points while the ratio, and the event, stay fixed.
    """

    problem: Problem
    n: int  # public normaliser: the number of records
    probability: float  # chance q of each record to be in a sample; a multiple of 2^-16
    noise_multiplier: float  # standard deviation of the noise over C, the weight of one unit
    neighbours: Neighbours = REPLACE_ONE  # the data sets that must look alike
    # residuals phi' are clipped to this size before they are subtracted; None keeps the loss's own bound
    clip: float | None = None

    traits: ClassVar[Traits] = Traits("difference")

    def __post_init__(self) -> None:
        if probability_above(self.probability) != self.probability:
            raise WrongValue(
                f"probability is {self.probability!r}; it must be a multiple of 2^-16 in (0, 1]: "
                "use dpcvx.noise.probability_above."
            )
        if not math.isfinite(self.problem.slope(2, clip=self.clip)):
            raise Incompatible(
                f"{type(self.problem.loss).__name__} has unbounded slopes here: "
                "give a bounded domain or a residual clip."
            )
        check_capacity(self, self.n)

    @property
    def capacity(self) -> int:
        """Most records that exact sums have room for, with their noise; all may be in a sample."""
        # A difference is up to two residuals.
        return room(self.problem, self.clip, self.gaussians[0].scale, 2 * self.n) // 2

    @property
    def event(self) -> Event:
        """Poisson(probability, noise_multiplier, relation)."""
        return Poisson(self.probability, self.noise_multiplier, self.neighbours.relation)

    @property
    def sensitivity(self) -> float:
        """Largest l2 change of the un-noised answer for the same sample, over all pairs of points."""
        ends = 2 if self.neighbours.replaces else 1
        return ends * int(self.gaussians[0].sensitivity) * self._unit

    @property
    def evaluations(self) -> float:
        """Gradients of single records in one call, expected: two for each record of a sample."""
        return 2 * self.probability * self.n

    @property
    def _unit(self) -> float:
        return SUM_UNIT / (self.probability * self.n)

    @property
    def _residual(self) -> ResidualBound:
        return residual_bound(self.problem, None, self.clip)

    @property
    def _largest(self) -> ResidualBound:
        return ResidualBound(
            *(min(LARGEST_RESIDUAL, 2 * r) for r in (self._residual.l2, self._residual.linf))
        )

    def bound(self, theta: Vector, anchor: Vector) -> ResidualBound:
        """Integer bounds of one record's difference between two public points.

        Rounding adds at most 1 to each coordinate of a difference, so there is always noise.
        """
        largest, spread = self._largest, (math.ceil(math.sqrt(self.problem.outputs)), 1)
        l2, linf = (
            math.floor(2**RESIDUAL_BITS * self.problem.slope_change(theta, anchor, ord, self.clip)) + extra
            for ord, extra in zip((2, math.inf), spread, strict=True)
        )
        return ResidualBound(min(largest.l2, l2), min(largest.linf, linf))

    def _gaussian(self, bound: ResidualBound) -> LatticeGaussian:
        """Noise in proportion to C of PRIVACY_MATH §6 and §8, the weight of one unit; rounded up."""
        _, k2 = integer_bounds(self.problem.bounds, self.problem.d)
        weight = math.isqrt((self.neighbours.rows * bound.l2) ** 2 * k2) + 1
        return LatticeGaussian(weight, self.noise_multiplier, self.problem.size, self._unit)

    @property
    def gaussians(self) -> tuple[LatticeGaussian, ...]:
        """Noise of the sum, over all pairs of points; the sample has exactly its law."""
        return (self._gaussian(self._largest),)

    def __call__(self, theta: Vector, anchor: Vector, data: DataSource, rng: Generator) -> Vector:
        """Return the noisy difference of the gradients at theta and at the anchor."""
        bound = self.bound(theta, anchor)
        sample = poisson_sample(self.probability, data.n // self.neighbours.rows, rng)
        total = data.sum(DifferenceSum(self.problem.loss, (theta, anchor), sample, self._residual, bound))
        noise = self._gaussian(bound).draw(rng).reshape(total.shape)
        return (total + noise).astype(np.float64) * self._unit + self.problem.l2 * (theta - anchor)
