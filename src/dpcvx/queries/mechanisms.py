"""Mechanisms on the counts of a universe: means, the histogram, errors of public answers, the worst query.

Where units are persons, counts are sums of integer weights, and those of one person add up to at most
`accounting.WEIGHT`. A person's part of a sum is then in that weight times K = conv(Q and 0), Q the terms of
single records, and sensitivities are those of K (PRIVACY_MATH §16). The number of rows enters nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpcvx.accounting import REPLACE_ONE, Neighbours
from dpcvx.arrays import IntVector, Vector
from dpcvx.events import Event, Exponential
from dpcvx.mechanisms import GaussianMechanism, LatticeGaussian, Traits, check_capacity
from dpcvx.noise import Generator, exponential
from dpcvx.queries.compiled import TOLERANCE, CompiledMeans, CompiledQuery
from dpcvx.queries.histogram import Counts
from dpcvx.queries.universe import Universe

__all__ = ["NoisyErrors", "NoisyHistogram", "NoisyMeans", "PublicAnswer", "WorstQuery"]

LATTICE_BITS = 30
PERSON_BITS = 24  # of the functions of a linear query where weights take 14 bits: room for 2^23 persons


class _OnCounts(GaussianMechanism):
    """A mechanism on a public number of units."""

    @property
    def _largest(self) -> int:
        """Most lattice steps that one unit adds to a sum."""
        return 1 << LATTICE_BITS

    @property
    def capacity(self) -> int:
        """Most units whose exact sums, with their noise, stay inside 62 bits."""
        (noise,) = self.gaussians
        return noise.room(self._largest)

    @property
    def evaluations(self) -> float:
        """No gradient is computed."""
        return 0.0


@dataclass(frozen=True, eq=False)
class NoisyMeans(_OnCounts):
    """Means of the functions of a linear query, with lattice Gaussian noise.

    Question: S(D) = sum_i k(x_i) in Z^k, k = rint(2^30 q / S) the functions on a public grid, S their widest
    range; the answer is 2^-30 S (S(D) + K)/n with K = round(scale Z), Z standard normal. With persons the
    grid is 2^-24 and S(D) = sum_i w_i k(x_i).
    Sensitivity (l2, replace-one): max ||k(x) - k(x')||, bounded by the ranges, and for functions that are not
    negative also by sqrt(2) max ||k(x)||: sqrt(2)/n for the cells of a marginal. Functions are measured from
    their smallest value, so that 0 adds nothing to either bound: it is the same for persons.
    Event: Gaussian(noise_multiplier).
    """

    query: CompiledMeans
    n: int  # public normaliser: the number of units
    noise_multiplier: float  # standard deviation of the noise over the sensitivity
    neighbours: Neighbours = REPLACE_ONE  # the data sets that must look alike

    traits: ClassVar[Traits] = Traits("mean")

    def __post_init__(self) -> None:
        check_capacity(self, self.n)

    @property
    def _bits(self) -> int:
        return LATTICE_BITS if self.neighbours.weight == 1 else PERSON_BITS

    @property
    def _largest(self) -> int:
        return self.neighbours.weight << self._bits

    @property
    def integers(self) -> IntVector:
        """k(x) at every cell, measured from the smallest value of each function."""
        values = self.query.values - self.query.values.min(axis=0)
        integers: IntVector = np.rint(values * (2**self._bits / self.query.scale)).astype(np.int64)
        return integers

    @property
    def gaussians(self) -> tuple[LatticeGaussian, ...]:
        """Noise of the sums of all functions."""
        integers = self.integers.astype(object)
        ranges: int = sum(integers.max(axis=0) ** 2)  # the smallest value is 0
        longest: int = max((integers**2).sum(axis=1))
        squared = self.neighbours.squared_diameter(int(min(ranges, 2 * longest)), int(longest))
        sensitivity = self.neighbours.weight * (math.isqrt(squared) + 1)
        unit = self.query.scale / self._largest / self.n
        return (LatticeGaussian(sensitivity, self.noise_multiplier, len(self.query.names), unit),)

    def __call__(self, data: Counts, rng: Generator) -> Vector:
        """Return the noisy means."""
        total = data.marginal(self.query.attributes).ravel() @ self.integers
        (noise,) = self.gaussians
        answer: Vector = (total + noise.draw(rng)) * noise.unit + self.query.values.min(axis=0)
        return answer


@dataclass(frozen=True)
class NoisyHistogram(_OnCounts):
    """Number of units in every cell of the universe, with lattice Gaussian noise.

    Question: the counts, times 2^30, plus round(scale Z).
    Sensitivity (l2, replace-one): sqrt(2), two counts move by one. Two persons' weights are vectors that are
    not negative and at most 1 long: sqrt(2) too.
    Event: Gaussian(noise_multiplier).
    """

    universe: Universe
    n: int  # number of units
    noise_multiplier: float  # standard deviation of the noise over the sensitivity
    neighbours: Neighbours = REPLACE_ONE  # the data sets that must look alike

    traits: ClassVar[Traits] = Traits("histogram")

    def __post_init__(self) -> None:
        check_capacity(self, self.n)

    @property
    def gaussians(self) -> tuple[LatticeGaussian, ...]:
        """Noise of all counts."""
        sensitivity = math.isqrt(self.neighbours.squared_diameter(2, 1) << (2 * LATTICE_BITS)) + 1
        unit = 2.0**-LATTICE_BITS / self.n
        return (LatticeGaussian(sensitivity, self.noise_multiplier, self.universe.n_cells, unit),)

    def __call__(self, data: Counts, rng: Generator) -> Vector:
        """Return the noisy shares of all cells, flat."""
        counts = data.marginal(tuple(range(len(self.universe.shape)))).ravel()
        (noise,) = self.gaussians
        steps = 2**LATTICE_BITS // self.neighbours.weight
        shares: Vector = (counts * steps + noise.draw(rng)) * np.float64(noise.unit)
        return shares


@dataclass(frozen=True, eq=False)
class PublicAnswer:
    """A query and its public answer, whose error on the records is private."""

    query: CompiledQuery
    theta: Vector

    def score(self, data: Counts) -> float:
        """Return the error over its sensitivity; private. One unit moves it by at most 1 + 2 TOLERANCE.

        For every theta' in C the term l(theta; x) - l(theta'; x) of a record is in an interval of the length
        ``range`` which has 0 in it (PRIVACY_MATH §9.1), and the weighted mean of a person's terms too.
        """
        weights = data.shares(self.query.attributes).ravel()
        return self.query.error(weights, self.theta) * data.n / self.range

    @property
    def range(self) -> float:
        """Number of units times the sensitivity of the error."""
        return self.query.range(self.theta)


@dataclass(frozen=True, eq=False)
class NoisyErrors(_OnCounts):
    """An order statistic of the errors of a public family of answers, with lattice Gaussian noise.

    Question: the ``rank``-th smallest of err_q(D) / (range_q / n) over the family, in steps of 2^-30.
    Sensitivity (replace-one): every error moves by at most 1, plus twice the tolerance of the inner
    minimiser, so every order statistic does; one lattice step for rounding (PRIVACY_MATH §9.1, §15). The
    same for persons, see `PublicAnswer.score`.
    Event: Gaussian(noise_multiplier).
    """

    family: tuple[PublicAnswer, ...]  # public queries with their public answers
    rank: int  # from 1 to the size of the family
    noise_multiplier: float  # standard deviation of the noise over the sensitivity
    neighbours: Neighbours = REPLACE_ONE  # the data sets that must look alike

    @property
    def gaussians(self) -> tuple[LatticeGaussian, ...]:
        """Noise of one number."""
        sensitivity = math.ceil((1 + 2 * TOLERANCE) * 2.0**LATTICE_BITS) + 1
        return (LatticeGaussian(sensitivity, self.noise_multiplier, 1, 2.0**-LATTICE_BITS),)

    def __call__(self, data: Counts, rng: Generator) -> float:
        """Return the noisy order statistic, in units of the sensitivity of an error."""
        scores = sorted(checked.score(data) for checked in self.family)
        exact = round(scores[self.rank - 1] * 2.0**LATTICE_BITS)
        (noise,) = self.gaussians
        return (exact + int(noise.draw(rng)[0])) * noise.unit


@dataclass(frozen=True, eq=False)
class WorstQuery:
    """The query of a public family whose public answer is worst, by the exponential mechanism.

    Question: scores err_q(D) / (range_q / n); P(q) is proportional to exp(eta score_q / (2 Delta)).
    Sensitivity (replace-one, each score): Delta = 1 + 2 TOLERANCE.
    Event: Exponential(eta). The draw is exact; rounding of log-weights is paid out of eta (PRIVACY_MATH §11).
    """

    family: tuple[PublicAnswer, ...]
    n: int  # number of units, which bounds the scores
    eta: float  # bounded range of the selection
    neighbours: Neighbours = REPLACE_ONE  # the data sets that must look alike

    @property
    def event(self) -> Event:
        """Exponential(eta)."""
        return Exponential(self.eta)

    @property
    def sensitivity(self) -> float:
        """Largest change of a score."""
        return 1 + 2 * TOLERANCE

    @property
    def noise(self) -> float:
        """Scale of an equivalent Gumbel noise on a score."""
        return 2 * self.sensitivity / self.eta

    @property
    def capacity(self) -> int:
        """The planned number of units, by which scores are bounded."""
        return self.n

    @property
    def evaluations(self) -> float:
        """No gradient is computed."""
        return 0.0

    @property
    def n_draws(self) -> int:
        """One value per query."""
        return len(self.family)

    @property
    def failure(self) -> float:
        """Total variation of one call's noise: none, decisions are made in exact arithmetic."""
        return 0.0

    def __call__(self, data: Counts, rng: Generator) -> int:
        """Return the place of the selected query."""
        # A score is at most n: an error is at most the range of the loss differences.
        eta = max(0.0, self.eta - exponential.log_weight_error(self.eta * self.n / (2 * self.sensitivity)))
        scores = np.array([checked.score(data) for checked in self.family])
        return exponential.select(scores * (eta / (2 * self.sensitivity)), rng)
