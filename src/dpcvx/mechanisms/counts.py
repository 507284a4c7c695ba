"""Counts of recognised cells, with lattice Gaussian noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dpcvx.accounting import REPLACE_ONE, Neighbours
from dpcvx.arrays import IntVector, Vector
from dpcvx.data.bins import PooledCells
from dpcvx.errors import Incompatible
from dpcvx.mechanisms.lattice_gaussian import GaussianMechanism, LatticeGaussian
from dpcvx.mechanisms.mechanism import Mechanism, Traits, check_capacity

if TYPE_CHECKING:
    from dpcvx.data import Dataset, RecognisedCells
    from dpcvx.data.bins import CellsInBins
    from dpcvx.data.public_rows import RowCount
    from dpcvx.noise import Generator

__all__ = ["NoisyBinCounts", "NoisyCounts", "NoisyPooledCounts", "NoisyRowCount", "as_counts"]

LATTICE_BITS = 20  # of a count: the square root in the sensitivity is rounded up on a grid this fine


@dataclass(frozen=True)
class NoisyCounts(GaussianMechanism):
    """Numbers of recognised cells: one count for each column of numbers, one for each level of a category.

    Question: S(D) = sum_i s_i in Z^p. The summand s_i of a record holds, for each number, 1 if its cell is a
    finite number and 0 otherwise; for each category the unit vector of its level, or 0 if the cell is none of
    the declared levels. Targets count like columns, a class label as a category. The answer is
    S + 2^-20 K with K = round(scale Z), Z standard normal.

    Sensitivity (l2): two summands differ by at most 1 in the entry of a number, and by at most sqrt(2) in the
    entries of a category, which hold at most one 1 each. So it is sqrt(numbers + 2 categories) under
    replace-one. The norm of a summand is at most sqrt(numbers + categories): that is the sensitivity under
    add/remove. Where records have weights, s_i has one more entry, which is 1, and the sum has the terms
    w_i s_i. A unit whose weights add up to at most 1 adds a point of the convex hull K of all summands and 0,
    and two points of K are at most as far apart as two of these: sqrt(max(numbers + 2 categories,
    numbers + categories + 1)) (PRIVACY_MATH §16, §18).

    Event: Gaussian(noise_multiplier).
    """

    n: int  # number of records, public
    numbers: int  # columns and targets that hold numbers
    levels: tuple[int, ...]  # number of levels of each category, and of classes of the target
    noise_multiplier: float  # standard deviation of the noise over the sensitivity
    neighbours: Neighbours = REPLACE_ONE  # the data sets that must look alike

    traits: ClassVar[Traits] = Traits("count of recognised cells", measures=True)

    def __post_init__(self) -> None:
        check_capacity(self, self.n)

    @property
    def size(self) -> int:
        """Number of counts; of weighted records the weight of all is the last."""
        return self.numbers + sum(self.levels) + self._weighted

    @property
    def _weighted(self) -> bool:
        return self.neighbours.weight != 1

    @property
    def gaussians(self) -> tuple[LatticeGaussian, ...]:
        """Noise of the counts."""
        categories = len(self.levels)
        longest = self.numbers + categories + self._weighted
        squared = self.neighbours.squared_diameter(self.numbers + 2 * categories, longest)
        sensitivity = math.isqrt(squared << 2 * LATTICE_BITS) + 1
        return (LatticeGaussian(sensitivity, self.noise_multiplier, self.size, 2.0**-LATTICE_BITS),)

    @property
    def capacity(self) -> int:
        """Most records whose exact counts, with their noise, stay inside 62 bits."""
        return self.gaussians[0].room(2**LATTICE_BITS)

    @property
    def evaluations(self) -> float:
        """One pass over the raw cells, none of it a gradient."""
        return 0.0

    def __call__(
        self, question: RecognisedCells | CellsInBins | RowCount, data: Dataset, rng: Generator
    ) -> Vector:
        """Return the noisy counts of a data set's raw cells, in the order of the question."""
        if (question.numbers, question.levels) != (self.numbers, self.levels):
            raise Incompatible("The counts that are asked for are not those that were planned.")
        return self.add_noise(data.count(question), rng)

    def add_noise(self, exact: IntVector, rng: Generator) -> Vector:
        """Return exact counts, which are private, with their noise.

        `exact`: where units have weights, sums of weights: a whole unit counts ``neighbours.weight``.
        """
        if np.shape(exact) != (self.size,):
            raise Incompatible("The counts that are asked for are not those that were planned.")
        (noise,) = self.gaussians
        steps = 2**LATTICE_BITS // self.neighbours.weight
        released: Vector = (exact * steps + noise.draw(rng)) * np.float64(noise.unit)
        return released


@dataclass(frozen=True)
class NoisyBinCounts(NoisyCounts):
    """Numbers of cells in public bins, for each of some columns.

    Question: S(D) = sum_i s_i in Z^p, where the summand of a record holds for each column the unit vector of
    its cell's bin; a cell that is no finite number has a bin of its own. The answer is S + 2^-20 K with
    K = round(scale Z), Z standard normal.

    Sensitivity (l2, replace-one): the bins of a column are the levels of a category, so that it is
    sqrt(2 columns) (`NoisyCounts`, PRIVACY_MATH §18). Rows that share a person's weight sum to a point of the
    convex hull of unit vectors and 0; the weight that is missing counts in the last bin, so that it is a
    point of the simplex, with the same diameter (PRIVACY_MATH §16).

    Event: Gaussian(noise_multiplier).
    """

    traits: ClassVar[Traits] = Traits("histogram of cells", measures=True)

    def __post_init__(self) -> None:
        if self.neighbours.rows > 1 or not self.neighbours.replaces:
            raise Incompatible(
                "Histograms of cells need relation='replace', and one row of each person: leave max_rows out."
            )
        check_capacity(self, self.n)

    @property
    def _weighted(self) -> bool:
        """No: weight that no row has counts in the last bin, so that the sum is not asked for."""
        return False


@dataclass(frozen=True)
class NoisyPooledCounts(NoisyBinCounts):
    """Numbers of cells in public bins, of many columns together.

    Question: S(D) = sum_i s_i in Z^p, where s_i is the sum of the unit vectors of the bins of a record's J
    cells, one for each column; a cell that is no finite number has a bin of its own. The answer is
    S + 2^-20 K with K = round(scale Z), Z standard normal.

    Sensitivity (l2, replace-one): s_i >= 0 has sum J, so ||s - s'||^2 <= ||s||^2 + ||s'||^2 <= 2 J^2, which
    two records attain that have all cells in one bin each. It is sqrt(2) J, so that the noise on the share of
    cells in a bin, of n J, is that of one column however many there are. A person's weighted rows, with the
    weight that is missing in the last bin, are a point of J times the simplex, with the same diameter
    (docs/privacy_math.md §18).

    Event: Gaussian(noise_multiplier).
    """

    cells: int = 1  # J, the number of columns

    traits: ClassVar[Traits] = Traits("histogram of all cells", measures=True)

    @property
    def gaussians(self) -> tuple[LatticeGaussian, ...]:
        """Noise of the counts."""
        squared = self.neighbours.squared_diameter(2 * self.cells**2, self.cells**2)
        sensitivity = math.isqrt(squared << 2 * LATTICE_BITS) + 1
        return (LatticeGaussian(sensitivity, self.noise_multiplier, self.size, 2.0**-LATTICE_BITS),)

    @property
    def capacity(self) -> int:
        """Most records whose exact counts, with their noise, stay inside 62 bits."""
        return self.gaussians[0].room(self.cells * 2**LATTICE_BITS)

    def __call__(
        self, question: RecognisedCells | CellsInBins | RowCount, data: Dataset, rng: Generator
    ) -> Vector:
        """Return the noisy counts of a data set's raw cells, in the order of the bins."""
        if not isinstance(question, PooledCells) or len(question.columns) != self.cells:
            raise Incompatible("The counts that are asked for are not those that were planned.")
        return super().__call__(question, data, rng)


@dataclass(frozen=True)
class NoisyRowCount(NoisyCounts):
    """Number of rows that are like public ones, by a public test of each row alone.

    Question: S(D) = sum_i s_i with s_i = 1 if record i passes the test, and 0 otherwise. With public weights
    of columns the stored row, weighted, has norm 1 or more; with public ranges no number is beyond public
    limits. The answer is S + 2^-20 K with K = round(scale Z), Z standard normal.

    Sensitivity (l2): 1 under replace-one and under add/remove, whatever the test is, as for one number of
    `NoisyCounts`. With weights of records, their sum is a second entry, and the sensitivity is sqrt(2)
    (PRIVACY_MATH §16, §18).

    Event: Gaussian(noise_multiplier).
    """

    traits: ClassVar[Traits] = Traits("count of rows like public ones", measures=True)


def as_counts(mechanism: Mechanism) -> NoisyCounts:
    """Return a mechanism that releases counts; refuse any other."""
    if not isinstance(mechanism, NoisyCounts):
        raise Incompatible(f"Counts were expected; the stage asks {type(mechanism).__name__}.")
    return mechanism
