"""Means of features and targets, and their mean squares about public centres, with lattice Gaussian noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpcvx.accounting import REPLACE_ONE, Neighbours
from dpcvx.arrays import IntVector, Vector
from dpcvx.data import FEATURE_BITS, LengthSum, MomentSum, integer_bounds, present_squared, room
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
    """Mean of every stored feature and of the targets of a unitless loss, or mean squares about centres.

    Question, order 1: the sums of k_i, of t_i and of P for each target that is there, k_i the stored row, t_i
    the targets on the same grid and P = floor(sqrt(2) T). Order 2, for public integer centres c: the sums of
    min(|k_ij - c_j|, K_inf)^2, and the same of t_i. A target that is missing adds 0 to all of its sums.
    Sensitivity (l2, replace-one), on the integers: order 1, 2 sqrt(K2) for the features, half of it under
    add/remove, and 2 T sqrt(m) for m targets of at most T: (t, P) and (t', P) are 2 T apart at most, (t, P)
    and (0, 0) sqrt(3) T, which is the sensitivity under add/remove; order 2, K_inf^2 sqrt(d) and T^2 sqrt(m)
    under either relation, since every square lies in an interval of that length that has 0 in it; d counts
    the features whose squares are asked (PRIVACY_MATH §12b, §17).
    Of weighted records each term is multiplied by its weight over 2^14, those of a person adding up to at
    most 1, so that a person's terms are in the hull of those of single rows and 0 (PRIVACY_MATH §16).
    Event: Gaussian(noise_multiplier) for the features, Gaussian(target_multiplier) for the targets.
    """

    problem: Problem
    n: int  # public normaliser: the number of records
    order: int  # 1 or 2
    noise_multiplier: float  # standard deviation of the noise on the features' moments over their sensitivity
    target_multiplier: float  # the same for the targets'
    neighbours: Neighbours = REPLACE_ONE  # the data sets that must look alike
    # features, first and last + 1 of each run, whose squares are not asked: those of 0/1 follow from means
    levels: tuple[tuple[int, int], ...] = field(default=(), repr=False)

    traits: ClassVar[Traits] = Traits("moment", measures=True)

    def __post_init__(self) -> None:
        if self.order not in (1, 2):
            raise WrongValue(f"order must be 1 or 2, got {self.order!r}.")
        check_capacity(self, self.n * (1 if self.neighbours.replaces else SPARE_RECORDS))

    @property
    def label(self) -> str:
        """Name of the question in tables, where it comes twice."""
        return f"NoisyMoments ({'means' if self.order == 1 else 'mean squares'})"

    @property
    def targets(self) -> int:
        """Number of targets that are measured: those of losses that mean the same in any units."""
        return self.problem.outputs if self.problem.loss.unit_free else 0

    @property
    def limits(self) -> IntVector:
        """Largest absolute value of each feature and target, in units of 2^-14."""
        k_inf, _ = integer_bounds(self.problem.bounds, self.problem.d)
        largest = np.repeat(np.array([k_inf, self._largest_target]), (self.problem.d, self.targets))
        if self.order == 2:
            for first, last in self.levels:
                largest[first:last] = 0
        return largest

    @property
    def _n_squares(self) -> int:
        """Number of features whose squares are asked."""
        return self.problem.d - sum(last - first for first, last in self.levels)

    @property
    def _largest_target(self) -> int:
        largest: int = math.floor(2**FEATURE_BITS * Fraction(float(self.problem.loss.y_range[1])))
        return largest

    @property
    def presence(self) -> int:
        """P: what a target that is there adds to the count of such targets; 0 where they are not counted."""
        return max(1, math.isqrt(2 * self._largest_target**2)) if self.order == 1 and self.targets else 0

    @property
    def whole(self) -> int:
        """The term of a record of whole weight in the sum of weights; 0 where records have none."""
        if self.order == 2 or self.neighbours.weight == 1:
            return 0
        return math.isqrt(2 * integer_bounds(self.problem.bounds, self.problem.d)[1])

    @property
    def _shares(self) -> Vector:
        """Factors of what is released: 1 for moments, and one for shares of weights and of targets."""
        ones = [np.ones(self.problem.d), np.ones(self.targets)]
        scale = 2.0 ** (self.order * FEATURE_BITS)
        of_weights = [scale / self.whole] if self.whole else []
        of_targets = [scale / self.presence] * self.targets if self.presence else []
        return np.concatenate([ones[0], of_weights, ones[1], of_targets])

    @property
    def _unit(self) -> float:
        return 2.0 ** -(self.order * FEATURE_BITS) / (self.n * self._weight)

    @property
    def _weight(self) -> int:
        """Whole weight of a person, by which sums of order 1 are multiplied; squares are not."""
        return self.neighbours.weight if self.order == 1 else 1

    @property
    def gaussians(self) -> tuple[LatticeGaussian, ...]:
        """Noise of the features' sums, and of the targets' where there are any."""
        k_inf, k2 = integer_bounds(self.problem.bounds, self.problem.d)
        largest, neighbours, sums = self._largest_target, self.neighbours, self.targets
        if self.order == 1:
            features = present_squared(neighbours, k2, self.whole)
            targets = self.targets * present_squared(neighbours, largest**2, self.presence)
            sums *= 2
        else:
            features = neighbours.interval**2 * self._n_squares * k_inf**4
            targets = neighbours.interval**2 * self.targets * largest**4
        return _with_targets(
            LatticeGaussian(
                math.isqrt(self._weight**2 * features) + 1,
                self.noise_multiplier,
                self.problem.d + (self.whole > 0),
                self._unit,
            ),
            LatticeGaussian(
                math.isqrt(self._weight**2 * targets) + 1, self.target_multiplier, sums, self._unit
            ),
        )

    @property
    def deviations(self) -> Vector:
        """Standard deviation of the noise on each number that is released."""
        found = np.concatenate([np.full(each.size, each.noise) for each in self.gaussians])
        return found * self._shares

    @property
    def capacity(self) -> int:
        """Most records whose exact sums stay inside 62 bits; none where the noise does not."""
        # Where every column has levels no square is asked, and sums are 0.
        largest = self._weight * max(int(max(self.limits)) ** self.order, self.presence, self.whole, 1)
        return room(largest, max(each.scale for each in self.gaussians))

    @property
    def evaluations(self) -> float:
        """One pass over the records, none of it a gradient."""
        return 0.0

    def __call__(self, centers: Vector | None, data: DataSource, rng: Generator) -> Vector:
        """Return the noisy moments: of features and of targets.

        The share of weights that is given comes after the features of weighted records, the shares of targets
        that are there after the targets, both of order 1. All are sums over n: the mean of a target is its
        moment over its share.
        """
        if centers is not None and self.order == 1:
            raise WrongValue("Means are taken about 0: a record's distance from a centre has no bound here.")
        limits = self.limits
        whole: NDArray[np.int64] = np.zeros_like(limits)
        if centers is not None:
            whole = np.clip(np.rint(centers * 2.0**FEATURE_BITS), -limits, limits).astype(np.int64)
        total = data.sum(MomentSum(self.order, whole, limits, self.presence, self.whole))
        noise = np.concatenate([each.draw(rng) for each in self.gaussians])
        released: Vector = (total + noise) * np.float64(self._unit)
        return released * self._shares


@dataclass(frozen=True)
class NoisyLength(GaussianMechanism):
    """Mean squared l2 norm of the stored rows, and mean square of a unitless loss's targets, clipped at 1.

    Question: the sum of ||k_i||^2, and that of min(|t_i|, 2^14)^2, t_i the targets on the features' grid.
    Sensitivity, on the integers: K2, and 2^28 sqrt(m) for m targets, under either relation, since every term
    lies in an interval of that length.
    Event: Gaussian(noise_multiplier) for the rows, Gaussian(target_multiplier) for the targets.
    """

    problem: Problem
    n: int  # public normaliser: the number of records
    noise_multiplier: float  # standard deviation of the noise on the rows' answer over its sensitivity
    target_multiplier: float  # the same for the targets'
    neighbours: Neighbours = REPLACE_ONE  # the data sets that must look alike

    traits: ClassVar[Traits] = Traits("length", measures=True)

    def __post_init__(self) -> None:
        check_capacity(self, self.n * (1 if self.neighbours.replaces else SPARE_RECORDS))

    @property
    def targets(self) -> int:
        """Number of targets that are measured: those of losses that mean the same in any units."""
        return self.problem.outputs if self.problem.loss.unit_free else 0

    @property
    def _largest(self) -> tuple[int, int]:
        """Largest terms of both sums: length of one row, and l2 norm of the squares of its targets."""
        rows = integer_bounds(self.problem.bounds, self.problem.d)[1]
        return rows, math.isqrt(self.targets * 2 ** (4 * FEATURE_BITS)) + 1

    @property
    def gaussians(self) -> tuple[LatticeGaussian, ...]:
        """Noise of the rows' sum, and of the targets' where there are any."""
        rows, targets = (self.neighbours.interval * largest for largest in self._largest)
        return _with_targets(
            LatticeGaussian(rows, self.noise_multiplier, 1, self._unit),
            LatticeGaussian(targets, self.target_multiplier, self.targets, self._unit),
        )

    @property
    def _unit(self) -> float:
        return 2.0 ** -(2 * FEATURE_BITS) / self.n

    @property
    def target_noise(self) -> float:
        """Standard deviation of a target's answer."""
        return self.gaussians[-1].noise if self.targets else 0.0

    @property
    def capacity(self) -> int:
        """Most records whose exact sums stay inside 62 bits; none where the noise does not."""
        return room(max(self._largest), max(each.scale for each in self.gaussians))

    @property
    def evaluations(self) -> float:
        """One pass over the records, none of it a gradient."""
        return 0.0

    def __call__(self, data: DataSource, rng: Generator) -> Vector:
        """Return the noisy mean squared norm, then the targets' mean squares."""
        d = self.problem.d
        total = data.sum(LengthSum()) + self.gaussians[0].draw(rng)
        if self.targets:
            limits = np.full(d + self.targets, 2**FEATURE_BITS)
            squares = data.sum(MomentSum(2, np.zeros_like(limits), limits))[d:]
            total = np.append(total, squares + self.gaussians[1].draw(rng))
        released: Vector = total * np.float64(self._unit)
        return released


def _with_targets(*gaussians: LatticeGaussian) -> tuple[LatticeGaussian, ...]:
    """Leave out the noise of targets where there are none."""
    return tuple(each for each in gaussians if each.size)
