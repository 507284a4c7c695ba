"""Goodness of fit at a public theta, with lattice Gaussian noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dpcvx.accounting import REPLACE_ONE, Neighbours
from dpcvx.arrays import Vector
from dpcvx.data import GOODNESS_BITS, FitMeasure, GoodnessSum, goodness_squared
from dpcvx.mechanisms.lattice_gaussian import GaussianMechanism, LatticeGaussian
from dpcvx.mechanisms.mechanism import SPARE_RECORDS, Traits, check_capacity
from dpcvx.problem import Problem

if TYPE_CHECKING:
    from dpcvx.data import DataSource
    from dpcvx.noise import Generator

__all__ = ["NoisyGoodness"]


@dataclass(frozen=True)
class NoisyGoodness(GaussianMechanism):
    """Mean error of a model at a public theta, and of its targets, both bounded by clipping: for an R².

    Question: the sums of the terms of a measure, on the grid 2^-18: `SquaredErrors`, `LogLosses`, `Deviances`
    (also of a constant model at a public base), or the targets and predicted means of `MeanTotals`.
    Sensitivity (l2, replace-one): sqrt(1 + 1.28615) for squared errors, sqrt(3/2) for log-losses, sqrt(5/2)
    for deviances and sqrt(2) for totals, whatever theta and the limits; 3/2, sqrt(5/4), sqrt(5/2) and
    sqrt(2) under add/remove (PRIVACY_MATH §12c, §15, §17). Of weighted records the terms are multiplied by
    integer weights, those of a person adding up to at most 2^14, so that a person's terms are in the hull of
    those of single rows and 0 (PRIVACY_MATH §16).
    Event: Gaussian(noise_multiplier).
    """

    problem: Problem  # of one score
    n: int  # public normaliser: the number of records
    measure: FitMeasure
    noise_multiplier: float  # standard deviation of the noise over the sensitivity
    neighbours: Neighbours = REPLACE_ONE  # the data sets that must look alike

    traits: ClassVar[Traits] = Traits("goodness")

    def __post_init__(self) -> None:
        check_capacity(self, self.n * (1 if self.neighbours.replaces else SPARE_RECORDS))

    @property
    def gaussians(self) -> tuple[LatticeGaussian, ...]:
        """Noise of the sums."""
        squared = goodness_squared(self.measure, self.neighbours)
        unit = 2.0**-GOODNESS_BITS / (self.n * self.neighbours.weight)
        return (LatticeGaussian(math.isqrt(squared - 1) + 1, self.noise_multiplier, self.measure.size, unit),)

    @property
    def capacity(self) -> int:
        """Most records whose exact sums, with their noise, stay inside 62 bits."""
        return self.gaussians[0].room(self.neighbours.weight * 2**GOODNESS_BITS)

    @property
    def evaluations(self) -> float:
        """One score for each record."""
        return float(self.n)

    def __call__(
        self, theta: Vector, base: Vector | None = None, *, data: DataSource, rng: Generator
    ) -> Vector:
        """Return the noisy sums over n. `base`: public theta of a constant model; by default 0."""
        total = data.sum(GoodnessSum(theta, self.measure, base)) + self.gaussians[0].draw(rng)
        released: Vector = total * np.float64(self.gaussians[0].unit)
        return released
