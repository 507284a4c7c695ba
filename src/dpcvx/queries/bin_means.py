"""Means of numbers inside their bins, released once: a bin stands for its mean, not for its middle."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dpcvx.accounting import REPLACE_ONE, Budget, Neighbours, gaussian_mu, spendable
from dpcvx.arrays import IntVector, Vector
from dpcvx.errors import Incompatible
from dpcvx.mechanisms import GaussianMechanism, LatticeGaussian, Traits, check_capacity
from dpcvx.queries.schema import Binned, Schema

if TYPE_CHECKING:
    from dpcvx.noise import Generator

__all__ = [
    "NoisyBinSums",
    "bin_sums",
    "bin_sums_of",
    "numbers_to_measure",
    "with_bin_means",
    "worth_measuring",
]

OFFSET_BITS = 20  # an offset of 1, half of a bin's width, has 2^20 lattice steps
OFFSET_VARIANCE = 1 / 3  # of an offset before anything is known: uniform in [-1, 1]


@dataclass(frozen=True)
class NoisyBinSums(GaussianMechanism):
    """Counts of the bins of some numbers, and sums of offsets inside them, with lattice Gaussian noise.

    Question: S(D) = sum_i s(x_i) in Z^p. For each number, s(x) holds 2^20 at the bin of x, and at the same
    bin rint(2^20 o) with the offset o = (value - middle)/half-width, clipped to [-1, 1]; zeros if the number
    is missing. With persons the sum has the terms w_i s(x_i). The answer is in units of one unit.
    Sensitivity (l2, replace-one): for one number the two parts differ by at most 2: in the same bin the count
    agrees and offsets differ by 2; in different bins it is sqrt(1 + 1 + o^2 + o'^2) <= 2; against a missing
    number sqrt(1 + o^2). J numbers together: 2 sqrt(J) (PRIVACY_MATH §20). With persons both parts are in the
    convex hull of these points and 0, whose diameter is the same (§16).
    Event: Gaussian(noise_multiplier).
    """

    bins: tuple[int, ...]  # number of bins of each number
    n: int  # number of units, public
    noise_multiplier: float  # standard deviation of the noise over the sensitivity
    neighbours: Neighbours = REPLACE_ONE  # the data sets that must look alike

    traits: ClassVar[Traits] = Traits("bin mean")

    def __post_init__(self) -> None:
        check_capacity(self, self.n)

    @property
    def gaussians(self) -> tuple[LatticeGaussian, ...]:
        """Noise of all counts and sums."""
        J, weight = len(self.bins), self.neighbours.weight
        squared = self.neighbours.squared_diameter(4 * J, 2 * J) << 2 * OFFSET_BITS
        sensitivity = weight * (math.isqrt(squared - 1) + 1)
        unit = 2.0**-OFFSET_BITS / weight
        return (LatticeGaussian(sensitivity, self.noise_multiplier, 2 * sum(self.bins), unit),)

    @property
    def capacity(self) -> int:
        """Most units whose exact sums, with their noise, stay inside 62 bits."""
        return self.gaussians[0].room(self.neighbours.weight << OFFSET_BITS)

    @property
    def evaluations(self) -> float:
        """One pass over the raw cells, none of it a gradient."""
        return 0.0

    def add_noise(self, exact: IntVector, rng: Generator) -> Vector:
        """Return exact sums, as `bin_sums` gives them and private, with their noise."""
        (noise,) = self.gaussians
        if np.shape(exact) != (noise.size,):
            raise Incompatible("The bins that are asked for are not those that were planned.")
        released: Vector = (exact + noise.draw(rng)) * np.float64(noise.unit)
        return released


def numbers_to_measure(schema: Schema) -> tuple[Binned, ...]:
    """Return the binned numbers whose bins have no declared values."""
    return tuple(a for a in schema.attributes if isinstance(a, Binned) and a.values is None)


def bin_sums(
    schema: Schema, columns: Sequence[Vector], codes: Sequence[IntVector], weights: IntVector | None
) -> IntVector:
    """Return exact counts and sums of offsets of the bins of `numbers_to_measure`; private.

    `columns`: the numbers of each of these attributes, NaN where missing; `codes`: their bins; `weights`: of
    the records, 1 each by default. First the counts, times 2^20, then the offsets of each number.
    """
    parts: list[IntVector] = []
    for number, values, code in zip(numbers_to_measure(schema), columns, codes, strict=True):
        edges, inside = np.array(number.edges), code < number.known
        place = code[inside]
        half = np.maximum(np.diff(edges) / 2, np.finfo(np.float64).tiny)  # one that rounds to 0 divides none
        filled = values
        if not isinstance(number.missing, str | None):
            filled = np.where(np.isnan(values), number.missing, values)
        # Clipped before the division, so that nothing overflows.
        clipped = np.clip(np.asarray(filled[inside], dtype=np.float64), edges[place], edges[place + 1])
        offsets = np.clip((clipped - number.midpoints[place]) / half[place], -1.0, 1.0)
        steps = np.rint(offsets * 2.0**OFFSET_BITS).astype(np.int64)
        each = np.ones(len(place), dtype=np.int64) if weights is None else weights[inside]
        for term in (each << OFFSET_BITS, each * steps):
            sums = np.zeros(number.known, dtype=np.int64)
            np.add.at(sums, place, term)
            parts.append(sums)
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def bin_sums_of(
    schema: Schema, n: int, noise_multiplier: float, neighbours: Neighbours = REPLACE_ONE
) -> NoisyBinSums:
    """Return the mechanism that measures the bins of a schema's numbers."""
    bins = tuple(number.known for number in numbers_to_measure(schema))
    return NoisyBinSums(bins, n, noise_multiplier, neighbours)


def worth_measuring(schema: Schema, n: int, budget: Budget, share: float) -> bool:
    """Say whether a share of the budget for bin means tells more than noise, from public facts.

    It does if the noise on a sum is below the number of units in an average bin.
    """
    bins = [number.known for number in numbers_to_measure(schema)]
    if not share or not bins:
        return False
    whole = spendable(budget)
    mu = math.sqrt(share) * gaussian_mu(whole.epsilon, whole.delta)
    return bin_sums_of(schema, n, 1 / mu, budget.neighbours).noise < n * len(bins) / sum(bins)


def with_bin_means(schema: Schema, released: Vector, noise: float) -> Schema:
    """Return the schema with the mean of each bin as its value, from released sums alone.

    The offset of a bin with N units and the sum S of offsets is S/N, shrunk for its noise:
    o = N S / (N^2 + noise^2 / v), v the variance of an offset that is uniform in its bin.
    """
    measured, start = {}, 0
    for number in numbers_to_measure(schema):
        counts, sums = np.split(released[start : start + 2 * number.known], 2)
        start += 2 * number.known
        counts = np.maximum(counts, 0.0)
        offsets = np.clip(counts * sums / (counts**2 + noise**2 / OFFSET_VARIANCE), -1.0, 1.0)
        means = number.midpoints + offsets * np.diff(number.edges) / 2
        inside = np.clip(means, number.edges[:-1], number.edges[1:])
        measured[number.name] = replace(number, values=tuple(inside.tolist()))
    return Schema(tuple(measured.get(a.name, a) for a in schema.attributes))
