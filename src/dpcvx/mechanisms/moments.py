"""Means of features and their mean squares about public centres, with lattice Gaussian noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpcvx.accounting import REPLACE_ONE, Neighbours
from dpcvx.arrays import IntVector, Vector
from dpcvx.data import FEATURE_BITS, LengthSum, MomentSum, integer_bounds, present_squared
from dpcvx.errors import WrongValue
from dpcvx.mechanisms.lattice_gaussian import GaussianMechanism, LatticeGaussian
from dpcvx.mechanisms.mechanism import SPARE_RECORDS, Traits, check_capacity
from dpcvx.problem import Problem

if TYPE_CHECKING:
    from dpcvx.data import DataSource
    from dpcvx.noise import Generator

__all__ = ["NoisyLength", "NoisyMoments"]


@dataclass(frozen=True)
class NoisyMoments(GaussianMechanism):
    """Mean of every stored feature, or mean squares about centres.

    Question, order 1: the sum of the stored rows k_i, and for each marked feature, whose 0 is a missing cell,
    the number of its other cells, in units of P. Order 2, for public integer centres c: the sums of
    min(|k_ij - c_j|, K_inf)^2, missing cells left out.
    Sensitivity (l2, replace-one), on the integers: order 1, 2 sqrt(K2); under add/remove half of it, and with
    counts the root of K2 and the squares of their units. Order 2, K_inf^2 sqrt(d) under either relation,
    since every square lies in an interval of that length that has 0 in it; d counts the features whose
    squares are asked (PRIVACY_MATH §12b). The counts do not add to that under replace-one: of a marked
    feature two numbers are at most 2 K_inf apart, and a number is at most sqrt(K_inf^2 + P^2) from a missing
    cell, with P^2 <= 3 K_inf^2; rows whose other features are longer than K2 leaves room for add nothing
    (PRIVACY_MATH §17).
    Of weighted records each term is multiplied by its weight over 2^14, those of a person adding up to at
    most 1, so that a person's terms are in the hull of those of single rows and 0 (PRIVACY_MATH §16).
    Event: Gaussian(noise_multiplier).
    """

    problem: Problem
    n: int  # public normaliser: the number of records
    order: int  # 1 or 2
    noise_multiplier: float  # standard deviation of the noise over the sensitivity
    neighbours: Neighbours = REPLACE_ONE  # the data sets that must look alike
    # features, first and last + 1 of each run, whose squares are not asked: those of 0/1 follow from means
    levels: tuple[tuple[int, int], ...] = field(default=(), repr=False)
    marked: tuple[int, ...] = field(default=(), repr=False)  # features whose 0 is a missing cell

    traits: ClassVar[Traits] = Traits("moment", measures=True)

    def __post_init__(self) -> None:
        if self.order not in (1, 2):
            raise WrongValue(f"order must be 1 or 2, got {self.order!r}.")
        if self.marked and self._room < 0:
            raise WrongValue("Missing cells are counted in rows that have no bound on their norm.")
        check_capacity(self, self.n * (1 if self.neighbours.replaces else SPARE_RECORDS))

    @property
    def label(self) -> str:
        """Name of the question in tables, where it comes twice."""
        return f"NoisyMoments ({'means' if self.order == 1 else 'mean squares'})"

    @property
    def limits(self) -> IntVector:
        """Largest absolute value of each feature, in units of 2^-14."""
        k_inf, _ = integer_bounds(self.problem.bounds, self.problem.d)
        largest = np.full(self.problem.d, k_inf)
        if self.order == 2:
            for first, last in self.levels:
                largest[first:last] = 0
        return largest

    @property
    def _n_squares(self) -> int:
        """Number of features whose squares are asked."""
        return self.problem.d - sum(last - first for first, last in self.levels)

    @property
    def whole(self) -> int:
        """The term of a record of whole weight in the sum of weights; 0 where records have none."""
        if self.order == 2 or self.neighbours.weight == 1:
            return 0
        return math.isqrt(2 * integer_bounds(self.problem.bounds, self.problem.d)[1])

    @property
    def cell(self) -> int:
        """The term of a cell that is there in the number of these; 0 where missing cells are not marked.

        Beside a sum of weights, whose term takes 2 K2 of the 4 K2 that two rows may be apart, it is smaller.
        """
        if self.order == 2 or not self.marked:
            return 0
        k_inf, _ = integer_bounds(self.problem.bounds, self.problem.d)
        return k_inf if self.whole else math.isqrt(3 * k_inf**2)

    @property
    def _room(self) -> int:
        """Largest sum of squares of the features that are not marked."""
        k_inf, k2 = integer_bounds(self.problem.bounds, self.problem.d)
        return k2 - len(self.marked) * k_inf**2

    @property
    def _counts(self) -> list[int]:
        """Terms of the numbers that follow the moments: of weights that are given, and of cells."""
        return [self.whole] * (self.whole > 0) + [self.cell] * (len(self.marked) if self.cell else 0)

    @property
    def _shares(self) -> Vector:
        """Factors of the released sums: 1 for moments, others for shares of weights and of cells."""
        counts = 2.0 ** (self.order * FEATURE_BITS) / np.array(self._counts, dtype=np.float64)
        return np.concatenate([np.ones(self.problem.d), counts])

    @property
    def _unit(self) -> float:
        return 2.0 ** -(self.order * FEATURE_BITS) / (self.n * self._weight)

    @property
    def _weight(self) -> int:
        """Whole weight of a person, by which sums of order 1 are multiplied; squares are not."""
        return self.neighbours.weight if self.order == 1 else 1

    @property
    def gaussians(self) -> tuple[LatticeGaussian, ...]:
        """Noise of the sums."""
        k_inf, k2 = integer_bounds(self.problem.bounds, self.problem.d)
        if self.order == 1:
            squared = present_squared(self.neighbours, k2, sum(term**2 for term in self._counts))
        else:
            squared = self.neighbours.interval**2 * self._n_squares * k_inf**4
        sensitivity = math.isqrt(self._weight**2 * squared) + 1
        size = self.problem.d + len(self._counts)
        return (LatticeGaussian(sensitivity, self.noise_multiplier, size, self._unit),)

    @property
    def deviations(self) -> Vector:
        """Standard deviation of the noise on each number that is released."""
        return self.gaussians[0].noise * self._shares

    @property
    def capacity(self) -> int:
        """Most records whose exact sums stay inside 62 bits; none where the noise does not."""
        return self.gaussians[0].room(
            self._weight * max(int(max(self.limits)) ** self.order, *self._counts, 1)
        )

    @property
    def evaluations(self) -> float:
        """One pass over the records, none of it a gradient."""
        return 0.0

    def __call__(self, centers: Vector | None, data: DataSource, rng: Generator) -> Vector:
        """Return the noisy moments. Of order 1 shares follow them: of weights, and of cells that are there.

        All are sums over n.
        """
        if centers is not None and self.order == 1:
            raise WrongValue("Means are taken about 0: a record's distance from a centre has no bound here.")
        limits = self.limits
        whole: NDArray[np.int64] = np.zeros_like(limits)
        if centers is not None:
            whole = np.clip(np.rint(centers * 2.0**FEATURE_BITS), -limits, limits).astype(np.int64)
        question = MomentSum(
            self.order, whole, limits, 0, self.whole, self.marked, self.cell, max(0, self._room)
        )
        total = data.sum(question)
        released: Vector = (total + self.gaussians[0].draw(rng)) * np.float64(self._unit)
        return released * self._shares


@dataclass(frozen=True)
class NoisyLength(GaussianMechanism):
    """Mean squared l2 norm of the stored rows.

    Question: the sum of ||k_i||^2.
    Sensitivity, on the integers: K2 under either relation, since every term lies in [0, K2].
    Event: Gaussian(noise_multiplier).
    """

    problem: Problem
    n: int  # public normaliser: the number of records
    noise_multiplier: float  # standard deviation of the noise over the sensitivity
    neighbours: Neighbours = REPLACE_ONE  # the data sets that must look alike

    traits: ClassVar[Traits] = Traits("length", measures=True)

    def __post_init__(self) -> None:
        check_capacity(self, self.n * (1 if self.neighbours.replaces else SPARE_RECORDS))

    @property
    def _longest(self) -> int:
        return integer_bounds(self.problem.bounds, self.problem.d)[1]

    @property
    def gaussians(self) -> tuple[LatticeGaussian, ...]:
        """Noise of the sum."""
        unit = 2.0 ** -(2 * FEATURE_BITS) / self.n
        return (LatticeGaussian(self.neighbours.interval * self._longest, self.noise_multiplier, 1, unit),)

    @property
    def capacity(self) -> int:
        """Most records whose exact sums stay inside 62 bits; none where the noise does not."""
        return self.gaussians[0].room(self._longest)

    @property
    def evaluations(self) -> float:
        """One pass over the records, none of it a gradient."""
        return 0.0

    def __call__(self, data: DataSource, rng: Generator) -> float:
        """Return the noisy mean squared norm."""
        total = data.sum(LengthSum()) + self.gaussians[0].draw(rng)
        return float(total[0] * self.gaussians[0].unit)
