"""Mean and mean square of the target about a public centre, with lattice Gaussian noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dpcvx.accounting import REPLACE_ONE, Neighbours
from dpcvx.arrays import Vector
from dpcvx.data import FEATURE_BITS, PRESENT, TargetSum, target_squared
from dpcvx.errors import WrongValue
from dpcvx.mechanisms.lattice_gaussian import GaussianMechanism, LatticeGaussian
from dpcvx.mechanisms.mechanism import SPARE_RECORDS, Traits, check_capacity

if TYPE_CHECKING:
    from dpcvx.data import DataSource
    from dpcvx.noise import Generator

__all__ = ["NoisyTarget"]


@dataclass(frozen=True)
class NoisyTarget(GaussianMechanism):
    """Share of the targets that are present, mean and mean square of u = (y - center)/reach, clipped at 1.

    Question, for a public centre and reach: the sums of (P, u_i, u_i^2) on the grid 2^-14, P = sqrt(2) for
    each target that is present; a missing one adds nothing. Of several targets a question is about one, at a
    public place.
    Sensitivity (l2): 2 under replace-one and under add/remove, whatever centre and reach, and one unit of the
    grid for the rounding of squares (PRIVACY_MATH §17). Of weighted records the terms are multiplied by
    integer weights, those of a person adding up to at most 2^14, so that a person's terms are in the hull of
    those of single rows and 0 (PRIVACY_MATH §16).
    Event: Gaussian(noise_multiplier).
    """

    n: int  # public normaliser: the number of records
    noise_multiplier: float  # standard deviation of the noise over the sensitivity
    neighbours: Neighbours = REPLACE_ONE  # the data sets that must look alike

    traits: ClassVar[Traits] = Traits("target", measures=True)

    def __post_init__(self) -> None:
        check_capacity(self, self.n * (1 if self.neighbours.replaces else SPARE_RECORDS))

    @property
    def gaussians(self) -> tuple[LatticeGaussian, ...]:
        """Noise of the three sums."""
        squared, unit = (
            target_squared(self.neighbours),
            2.0**-FEATURE_BITS / (self.n * self.neighbours.weight),
        )
        return (LatticeGaussian(math.isqrt(squared - 1) + 1, self.noise_multiplier, 3, unit),)

    @property
    def share_noise(self) -> float:
        """Standard deviation of the noise on the share of targets that are present."""
        return self.noise * 2.0**FEATURE_BITS / PRESENT

    @property
    def capacity(self) -> int:
        """Most records whose exact sums stay inside 62 bits; none where the noise does not."""
        return self.gaussians[0].room(self.neighbours.weight * PRESENT)

    @property
    def evaluations(self) -> float:
        """One pass over the targets, none of it a gradient."""
        return 0.0

    def __call__(
        self, center: float, reach: float, place: int | None = None, *, data: DataSource, rng: Generator
    ) -> Vector:
        """Return share, mean and mean square, all of them sums over n."""
        if not (math.isfinite(center) and 0 < reach < math.inf):
            raise WrongValue(f"A finite centre and a positive reach are needed, got {center!r}, {reach!r}.")
        total = data.sum(TargetSum(center, reach, place)) + self.gaussians[0].draw(rng)
        factors = np.array([2.0**FEATURE_BITS / PRESENT, 1.0, 1.0])
        released: Vector = total * np.float64(self.gaussians[0].unit) * factors
        return released
