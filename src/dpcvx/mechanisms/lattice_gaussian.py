"""Gaussian noise for exact integer sums: its scale, price and error follow from the sums' sensitivity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dpcvx.arrays import IntVector
from dpcvx.data import room
from dpcvx.events import Compose, Event, Gaussian
from dpcvx.noise import Generator, gaussian, gaussian_failure

__all__ = ["GaussianMechanism", "LatticeGaussian"]


@dataclass(frozen=True)
class LatticeGaussian:
    """Noise K = round(scale Z), Z standard normal, for integers that neighbours move by a known length.

    S + K = round(S + scale Z) is post-processing of the Gaussian mechanism, so a release is exactly
    (1/multiplier)-GDP (PRIVACY_MATH §11b).
    """

    sensitivity: int | Fraction  # largest l2 change of the integers between neighbours, in lattice steps
    multiplier: float  # standard deviation of the noise over the sensitivity
    size: int  # number of integers that get noise
    unit: float = 1.0  # a lattice step in the units of the answer

    @property
    def scale(self) -> int:
        """Standard deviation in lattice steps, rounded up."""
        return math.ceil(Fraction(self.multiplier) * self.sensitivity)

    @property
    def event(self) -> Event:
        """Gaussian(multiplier)."""
        return Gaussian(self.multiplier)

    @property
    def change(self) -> float:
        """Sensitivity in the units of the answer."""
        return float(self.sensitivity * self.unit)

    @property
    def noise(self) -> float:
        """Standard deviation of one number in the units of the answer."""
        return self.scale * self.unit

    @property
    def failure(self) -> float:
        """Total variation between the noise that is drawn and the noise that is accounted for."""
        return self.size * gaussian_failure()

    def room(self, term: int) -> int:
        """Return the largest number of records, each at most ``term``, that 62 bits hold with the noise."""
        return room(term, self.scale)

    def draw(self, rng: Generator) -> IntVector:
        """Return one draw for each integer, shape (size,)."""
        # Through the module, so that a test can replace the sampler of all mechanisms in one place.
        return gaussian.lattice_gaussian(self.scale, self.size, rng)


class GaussianMechanism:
    """Price of a mechanism that releases integer sums with lattice Gaussian noise.

    A subclass lists the noise of one call, where it is largest; price, noise and error of the sampler follow.
    """

    @property
    def gaussians(self) -> tuple[LatticeGaussian, ...]:
        """Noise of each sum that one call releases, at the public inputs where it is largest."""
        raise NotImplementedError

    @property
    def event(self) -> Event:
        """One Gaussian release for each sum."""
        events = tuple(each.event for each in self.gaussians)
        return events[0] if len(events) == 1 else Compose(events)

    @property
    def sensitivity(self) -> float:
        """Largest l2 change of the first sum, in the units of the answer."""
        return self.gaussians[0].change

    @property
    def noise(self) -> float:
        """Largest standard deviation of one number of the first sum."""
        return self.gaussians[0].noise

    @property
    def n_draws(self) -> int:
        """One value for each number that is released."""
        return sum(each.size for each in self.gaussians)

    @property
    def failure(self) -> float:
        """Total variation of one call's noise."""
        return math.fsum(each.failure for each in self.gaussians)
