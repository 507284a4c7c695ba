"""Means of features and targets, and their mean squares about public centres, with lattice Gaussian noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpcvx.accounting import REPLACE_ONE, Neighbours
from dpcvx.arrays import IntVector, Vector
from dpcvx.data import FEATURE_BITS, LengthSum, MomentSum, integer_bounds, room
from dpcvx.events import Compose, Event, Gaussian
from dpcvx.mechanisms.mechanism import SPARE_RECORDS, check_capacity
from dpcvx.problem import Problem

if TYPE_CHECKING:
    from dpcvx.data import DataSource
    from dpcvx.noise import Generator

__all__ = ["NoisyLength", "NoisyMoments"]


@dataclass(frozen=True)
class NoisyMoments:
    """Mean of every stored feature and of the targets of a unitless loss, or mean squares about centres.

    Question, order 1: the sums of k_i and of t_i, k_i the stored row and t_i the targets on the same grid.
    Order 2, for public integer centres c: the sums of min(|k_ij - c_j|, K_inf)^2, and the same of t_i.
    Sensitivity (l2, replace-one), on the integers: order 1, 2 sqrt(K2) for the features and 2 T sqrt(m) for m
    targets of at most T, half of it under add/remove; order 2, K_inf^2 sqrt(d) and T^2 sqrt(m) under either
    relation, since every square lies in an interval of that length (PRIVACY_MATH §12b).
    Event: Gaussian(noise_multiplier) for the features, Gaussian(target_multiplier) for the targets.

    Parameters
    ----------
    problem : Problem
    n : int
        Public normaliser: the number of records.
    order : int
        1 or 2.
    noise_multiplier : float
        Standard deviation of the noise on the features' moments over their sensitivity.
    target_multiplier : float
        The same for the targets'.
    neighbours : Neighbours
        The data sets that must look alike.
    """

    problem: Problem
    n: int
    order: int
    noise_multiplier: float
    target_multiplier: float
    neighbours: Neighbours = REPLACE_ONE

    def __post_init__(self) -> None:
        if self.order not in (1, 2):
            raise ValueError(f"order must be 1 or 2, got {self.order!r}.")
        check_capacity(self, self.n * (1 if self.neighbours.replaces else SPARE_RECORDS))

    @property
    def targets(self) -> int:
        """Number of targets that are measured: those of losses that mean the same in any units."""
        return self.problem.outputs if self.problem.loss.unit_free else 0

    @property
    def limits(self) -> IntVector:
        """Largest absolute value of each feature and target, in units of 2^-14."""
        k_inf, _ = integer_bounds(self.problem.bounds, self.problem.d)
        target = math.floor(2**FEATURE_BITS * Fraction(float(self.problem.loss.y_range[1])))
        return np.repeat(np.array([k_inf, target]), (self.problem.d, self.targets))

    @property
    def _unit(self) -> float:
        return 2.0 ** -(self.order * FEATURE_BITS) / self.n

    @property
    def _sensitivities(self) -> tuple[int, int]:
        """Integer l2 sensitivities of the features' and of the targets' sums."""
        k_inf, k2 = integer_bounds(self.problem.bounds, self.problem.d)
        target = math.floor(2**FEATURE_BITS * Fraction(float(self.problem.loss.y_range[1])))
        if self.order == 1:
            factor, features, targets = self.neighbours.ball, k2, self.targets * target**2
        else:
            factor = self.neighbours.interval
            features, targets = self.problem.d * k_inf**4, self.targets * target**4
        return math.isqrt(factor**2 * features) + 1, math.isqrt(factor**2 * targets) + 1

    @property
    def _scales(self) -> tuple[int, int]:
        features, targets = self._sensitivities
        return (
            math.ceil(Fraction(self.noise_multiplier) * features),
            math.ceil(Fraction(self.target_multiplier) * targets),
        )

    @property
    def deviations(self) -> Vector:
        """Standard deviation of the noise on each moment."""
        return np.repeat(np.array(self._scales) * self._unit, (self.problem.d, self.targets))

    @property
    def event(self) -> Event:
        """One Gaussian question, two with targets."""
        features = Gaussian(self.noise_multiplier)
        return Compose((features, Gaussian(self.target_multiplier))) if self.targets else features

    @property
    def sensitivity(self) -> float:
        """Largest l2 change of the features' moments."""
        return self._sensitivities[0] * self._unit

    @property
    def noise(self) -> float:
        """Standard deviation of a feature's moment."""
        return self._scales[0] * self._unit

    @property
    def capacity(self) -> int:
        """Most records whose exact sums stay inside 62 bits; none where the noise does not."""
        return room(int(max(self.limits)) ** self.order, max(self._scales))

    @property
    def n_draws(self) -> int:
        """One value per feature and target."""
        return self.problem.d + self.targets

    @property
    def failure(self) -> float:
        """Total variation of one call's noise."""
        from dpcvx.noise.gaussian import gaussian_failure

        return self.n_draws * gaussian_failure()

    @property
    def evaluations(self) -> float:
        """One pass over the records, none of it a gradient."""
        return 0.0

    def __call__(self, centers: Vector | None, data: DataSource, rng: Generator) -> Vector:
        """Return the noisy moments: features first, then targets."""
        from dpcvx.noise.gaussian import lattice_gaussian

        if centers is not None and self.order == 1:
            raise ValueError("Means are taken about 0: a record's distance from a centre has no bound here.")
        limits = self.limits
        whole: NDArray[np.int64] = np.zeros_like(limits)
        if centers is not None:
            whole = np.clip(np.rint(centers * 2.0**FEATURE_BITS), -limits, limits).astype(np.int64)
        total = data.sum(MomentSum(self.order, whole, limits))
        features, targets = self._scales
        noise = np.append(
            lattice_gaussian(features, self.problem.d, rng), lattice_gaussian(targets, self.targets, rng)
        )
        released: Vector = (total + noise) * np.float64(self._unit)
        return released


@dataclass(frozen=True)
class NoisyLength:
    """Mean squared l2 norm of the stored rows, and mean square of a unitless loss's targets, clipped at 1.

    Question: the sum of ||k_i||^2, and that of min(|t_i|, 2^14)^2, t_i the targets on the features' grid.
    Sensitivity, on the integers: K2, and 2^28 sqrt(m) for m targets, under either relation, since every term
    lies in an interval of that length.
    Event: Gaussian(noise_multiplier) for the rows, Gaussian(target_multiplier) for the targets.

    Parameters
    ----------
    problem : Problem
    n : int
        Public normaliser: the number of records.
    noise_multiplier : float
        Standard deviation of the noise on the rows' answer over its sensitivity.
    target_multiplier : float
        The same for the targets'.
    neighbours : Neighbours
        The data sets that must look alike.
    """

    problem: Problem
    n: int
    noise_multiplier: float
    target_multiplier: float
    neighbours: Neighbours = REPLACE_ONE

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
    def _sensitivities(self) -> tuple[int, int]:
        """Integer sensitivities of both sums."""
        rows, targets = self._largest
        return self.neighbours.interval * rows, self.neighbours.interval * targets

    @property
    def _scales(self) -> tuple[int, int]:
        rows, targets = self._sensitivities
        return (
            math.ceil(Fraction(self.noise_multiplier) * rows),
            math.ceil(Fraction(self.target_multiplier) * targets),
        )

    @property
    def _unit(self) -> float:
        return 2.0 ** -(2 * FEATURE_BITS) / self.n

    @property
    def event(self) -> Event:
        """One Gaussian question, two with targets."""
        rows = Gaussian(self.noise_multiplier)
        return Compose((rows, Gaussian(self.target_multiplier))) if self.targets else rows

    @property
    def sensitivity(self) -> float:
        """Largest change of the rows' mean."""
        return self._sensitivities[0] * self._unit

    @property
    def noise(self) -> float:
        """Standard deviation of the rows' answer."""
        return self._scales[0] * self._unit

    @property
    def target_noise(self) -> float:
        """Standard deviation of a target's answer."""
        return self._scales[1] * self._unit

    @property
    def capacity(self) -> int:
        """Most records whose exact sums stay inside 62 bits; none where the noise does not."""
        return room(max(self._largest), max(self._scales))

    @property
    def n_draws(self) -> int:
        """One value for the rows, and one per target."""
        return 1 + self.targets

    @property
    def failure(self) -> float:
        """Total variation of one call's noise."""
        from dpcvx.noise.gaussian import gaussian_failure

        return self.n_draws * gaussian_failure()

    @property
    def evaluations(self) -> float:
        """One pass over the records, none of it a gradient."""
        return 0.0

    def __call__(self, data: DataSource, rng: Generator) -> Vector:
        """Return the noisy mean squared norm, then the targets' mean squares."""
        from dpcvx.noise.gaussian import lattice_gaussian

        d = self.problem.d
        rows, targets = self._scales
        total = data.sum(LengthSum()) + lattice_gaussian(rows, 1, rng)
        if self.targets:
            limits = np.full(d + self.targets, 2**FEATURE_BITS)
            squares = data.sum(MomentSum(2, np.zeros_like(limits), limits))[d:]
            total = np.append(total, squares + lattice_gaussian(targets, self.targets, rng))
        released: Vector = total * np.float64(self._unit)
        return released
