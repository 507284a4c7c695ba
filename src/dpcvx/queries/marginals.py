"""Noisy low-order marginals, released once as the warm start of an engine."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import cache
from itertools import combinations, product
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpcvx.accounting import REPLACE_ONE, Neighbours
from dpcvx.arrays import IntVector, Vector
from dpcvx.errors import Incompatible, WrongValue
from dpcvx.mechanisms import GaussianMechanism, LatticeGaussian, Traits, check_capacity

if TYPE_CHECKING:
    from dpcvx.noise import Generator
    from dpcvx.queries.histogram import Counts

__all__ = ["Measurement", "NoisyMarginals", "marginal_order"]

CONTRAST_BITS = (20, 15, 10)  # resolution of a contrast, by the order; products have 2^30 steps at most
PERSON_CONTRAST_BITS = (20, 11, 7)  # where weights take 14 bits. The measured functions are the rounded ones.
LARGEST_ATTRIBUTE = 1024  # levels; products of two columns of contrasts are exact in float64 up to here
WEIGHT_BITS = 3  # weights of the lower orders are multiples of 1/8
LARGEST_WEIGHT = 8
MOST_PAIRS, MOST_TRIPLES = 2**16, 2**10  # statistics up to which pairs and triples are considered
# Largest noise of a triple of binary attributes, in units of 1/sqrt(n), chosen by benchmarks/triples.py: the
# largest errors of tables of three attributes fall to between 1/12 and 7/10; of regressions they mostly rise.
TRIPLE_NOISE = 1.75
MOST_LOCAL_PAIRS, MOST_LOCAL_TRIPLES = 2**22, 2**14  # the same, if no histogram is fitted to them
LARGEST_PAIR_NOISE = 3**-0.5  # of measured pairs: standard deviation of a uniform number in [-1, 1]
MOST_CHANGES = 2**14  # sets of changed attributes that are enumerated for a sensitivity


@dataclass(frozen=True, eq=False)
class Measurement:
    """Released means of public functions of some attributes.

    values_j = E f_j(x_A) + N(0, deviation^2)

    Parameters
    ----------
    attributes : tuple of int
        The attributes A.
    features : tuple of Matrix
        Either one matrix for each attribute, (size, m_a), whose products are the functions; or a single one,
        (cells of A, m), that lists them.
    values : Vector
        Noisy means, shape (m,), the first attribute's functions slowest.
    deviation : float
        Standard deviation of the noise.
    """

    attributes: tuple[int, ...]
    features: tuple[Vector, ...]
    values: Vector
    deviation: float

    def means(self, table: Vector) -> Vector:
        """Return the mean of every function under a distribution of A, shape (m,)."""
        return _contract(table, self.features)

    def second_moments(self, table: Vector) -> Vector:
        """Return the mean of every function's square, shape (m,)."""
        return _contract(table, tuple(features**2 for features in self.features))

    def potential(self, coefficients: Vector) -> Vector:
        """Return sum_j coefficients_j f_j for every cell of A, flat."""
        return _contract(coefficients, tuple(features.T for features in self.features))

    def at(self, digits: tuple[NDArray[Any], ...], sizes: tuple[int, ...]) -> Vector:
        """Return every function at some cells of A, given by their place on each attribute, (cells, m)."""
        if len(self.features) == 1:
            digits = (np.ravel_multi_index(digits, sizes),)
        values: Vector = np.ones((len(digits[0]), 1))
        for features, place in zip(self.features, digits, strict=True):
            values = (values[:, :, None] * features[place][:, None, :]).reshape(len(values), -1)
        return values

    def listed(self) -> Measurement:
        """Return the same with all functions in a single matrix."""
        joint: Vector = np.ones((1, 1))
        for features in self.features:
            joint = np.kron(joint, features).astype(np.float64, copy=False)
        return Measurement(self.attributes, (joint,), self.values, self.deviation)


def _contract(table: NDArray[Any], matrices: tuple[NDArray[Any], ...]) -> NDArray[Any]:
    """Multiply each axis of a table by a matrix (from, to); exact for integers."""
    for matrix in matrices:
        table = table.reshape(len(matrix), -1).T @ matrix  # the axis leaves in front and joins at the end
    return table.ravel()


@cache
def contrasts(size: int, bits: int) -> IntVector:
    """Helmert contrasts of a number of levels, times 2^bits and rounded, shape (size, size - 1).

    Before rounding, rows have norm 1 and <q_i, q_j> = -1/(size - 1): two levels are -1 and 1.
    """
    level, column = np.arange(size)[:, None], np.arange(1, size)[None, :]
    raw = np.where(level < column, 1.0, np.where(level == column, -column, 0.0))
    unit = raw * np.sqrt(size / (size - 1) / (column * (column + 1)))
    rounded = -np.rint(unit * 2.0**bits).astype(np.int64)
    rounded.flags.writeable = False
    return rounded


@dataclass(frozen=True)
class NoisyMarginals(GaussianMechanism):
    """Means of all contrasts of up to ``order`` attributes, with lattice Gaussian noise.

    Question: S(D) = sum_i F(x_i), integers; F(x) lists w_r prod_{a in A} q_a(x_a) over all sets A of
    r <= order attributes, q_a the contrasts of `contrasts`. The marginals of up to ``order`` attributes are
    linear functions of it.
    Sensitivity (l2, replace-one): max ||F(x) - F(x')||, bounded on the stored integers by enumeration of how
    many attributes of each size differ; exact if all are binary, where w = 1 and order 2 give
    2 sqrt(floor((d + 1)^2/4))/n (PRIVACY_MATH §9.5). Under add/remove: max ||F(x)||. With persons
    S(D) = sum_i w_i F(x_i), and a person's total weight may be below that of one row, so that it is the
    larger one of max ||F(x) - F(x')|| and max ||F(x)||, times the weight (§16).
    Event: Gaussian(noise_multiplier).

    Parameters
    ----------
    sizes : tuple of int
        Number of cells of each attribute.
    n : int
        Public normaliser: the number of units.
    noise_multiplier : float
        Standard deviation of the noise over the sensitivity.
    order : int
        Largest number of attributes in one statistic.
    neighbours : Neighbours
        The data sets that must look alike.
    attributes : tuple of int, optional
        Places of the attributes that have these sizes; None for all attributes.
    """

    sizes: tuple[int, ...]
    n: int
    noise_multiplier: float
    order: int = 2
    neighbours: Neighbours = REPLACE_ONE
    attributes: tuple[int, ...] | None = None

    traits: ClassVar[Traits] = Traits("marginal")

    def __post_init__(self) -> None:
        if not 1 <= self.order <= min(3, len(self.sizes)):
            raise WrongValue(
                f"order is {self.order}; it must be from 1 to {min(3, len(self.sizes))} for "
                f"{len(self.sizes)} attributes."
            )
        if max(self.sizes) > LARGEST_ATTRIBUTE:
            raise Incompatible(
                f"An attribute has {max(self.sizes)} cells; marginals are measured of attributes with "
                f"{LARGEST_ATTRIBUTE} at most. Join levels or widen bins."
            )
        check_capacity(self, self.n)

    @property
    def subsets(self) -> tuple[tuple[int, ...], ...]:
        """The sets of attributes that are measured."""
        places = range(len(self.sizes))
        return tuple(A for r in range(1, self.order + 1) for A in combinations(places, r))

    @property
    def weights(self) -> tuple[float, ...]:
        """Weight of the statistics of 1, 2, ... attributes; the last is 1."""
        return tuple(eighths / 2**WEIGHT_BITS for eighths in _weights(self._grouped, self.order))

    @property
    def _places(self) -> tuple[int, ...]:
        return tuple(range(len(self.sizes))) if self.attributes is None else self.attributes

    @property
    def _grouped(self) -> tuple[tuple[int, int], ...]:
        return tuple(sorted(Counter(self.sizes).items()))

    @property
    def _bits(self) -> int:
        return _contrast_bits(self.order, self.neighbours)

    def _factor(self, r: int) -> int:
        """Integer by which statistics of r attributes are multiplied: their weight, on a common lattice."""
        return _factors(_weights(self._grouped, self.order), self._bits)[r - 1]

    @property
    def _unit(self) -> float:
        return 2.0 ** -(self.order * self._bits)

    @property
    def gaussians(self) -> tuple[LatticeGaussian, ...]:
        """Noise of all weighted means."""
        weights = _weights(self._grouped, self.order)
        squared = _squared_sensitivity(self._grouped, weights, self._bits, self.neighbours)
        size = sum(math.prod(self.sizes[a] - 1 for a in A) for A in self.subsets)
        weight = self.neighbours.weight
        sensitivity = weight * (math.isqrt(squared - 1) + 1)
        return (LatticeGaussian(sensitivity, self.noise_multiplier, size, self._unit / weight / self.n),)

    @property
    def deviations(self) -> tuple[float, ...]:
        """Standard deviation of the noise on a mean of 1, 2, ... attributes."""
        return tuple(self.noise / weight for weight in self.weights)

    @property
    def capacity(self) -> int:
        """Most units whose exact sum, with its noise, stays inside 62 bits."""
        largest = max(int(abs(contrasts(size, self._bits)).max()) for size in self.sizes)
        term = max(self._factor(r) * largest**r for r in range(1, self.order + 1))
        return self.gaussians[0].room(self.neighbours.weight * term)

    @property
    def evaluations(self) -> float:
        """One look at each record for every set of attributes."""
        return float(self.n * len(self.subsets))

    def __call__(self, data: Counts, rng: Generator) -> tuple[Measurement, ...]:
        """Return the noisy means, one measurement for each set of attributes."""
        places = self._places
        shape = data.universe.shape
        if (shape if self.attributes is None else tuple(shape[a] for a in places)) != self.sizes:
            raise Incompatible(f"The marginals are of sizes {self.sizes}, the records {shape}.")
        if self.neighbours.replaces and data.n != self.n:
            raise Incompatible(f"The marginals are planned for n={self.n} records, there are {data.n}.")
        if data.weight != self.neighbours.weight:
            raise Incompatible("The marginals are planned for another unit, row or person, than the records.")
        if data.n > self.capacity:
            raise Incompatible("There are more records than the exact sums have room for.")
        factors = [self._factor(r) for r in range(1, self.order + 1)]
        exact = [
            factors[len(A) - 1]
            * _contract(data.marginal(tuple(places[a] for a in A)), tuple(map(self._contrasts, A)))
            for A in self.subsets
        ]
        (noise,) = self.gaussians
        units = [np.float64(noise.unit / weight) for weight in self.weights]
        parts = np.split(noise.draw(rng), np.cumsum([part.size for part in exact])[:-1])
        return self.read(
            np.concatenate(
                [
                    (part + extra) * units[len(A) - 1]
                    for A, part, extra in zip(self.subsets, exact, parts, strict=True)
                ]
            )
        )

    def read(self, values: Vector) -> tuple[Measurement, ...]:
        """Return released means, given one after the other, as measurements."""
        counts = [math.prod(self.sizes[a] - 1 for a in A) for A in self.subsets]
        scaled = {
            size: contrasts(size, self._bits) * np.float64(2.0**-self._bits) for size in set(self.sizes)
        }
        deviations, places = self.deviations, self._places
        return tuple(
            Measurement(
                tuple(places[a] for a in A),
                tuple(scaled[self.sizes[a]] for a in A),
                part,
                deviations[len(A) - 1],
            )
            for A, part in zip(self.subsets, np.split(values, np.cumsum(counts)[:-1]), strict=True)
        )

    def _contrasts(self, attribute: int) -> IntVector:
        return contrasts(self.sizes[attribute], self._bits)


def marginal_order(
    sizes: tuple[int, ...],
    n: int,
    noise_multiplier: float,
    neighbours: Neighbours = REPLACE_ONE,
    most_pairs: int = MOST_PAIRS,
    most_triples: int = MOST_TRIPLES,
) -> int:
    """Return the largest number of attributes in one statistic of a warm start, from public numbers.

    Pairs are measured if their noise is below `LARGEST_PAIR_NOISE`; triples if their noise is below
    `TRIPLE_NOISE`/sqrt(n), about the sampling error of all orders, times the size of their functions: a
    contrast of k levels has the mean square 1/(k - 1). Both only if they are few enough to be fitted quickly.

    Parameters
    ----------
    sizes, n, noise_multiplier, neighbours
        As in `NoisyMarginals`.
    most_pairs, most_triples : int
        Statistics up to which pairs and triples are considered.
    """
    best, d = 1, len(sizes)
    triples = max(count_statistics(sizes, 3) - count_statistics(sizes, 2), 1) / max(math.comb(d, 3), 1)
    for order, largest, most in (
        (2, LARGEST_PAIR_NOISE, most_pairs),
        (3, TRIPLE_NOISE / math.sqrt(n * triples), most_triples),
    ):
        if order > d or count_statistics(sizes, order) > most:  # before its sensitivity is bounded
            break
        if NoisyMarginals(sizes, n, noise_multiplier, order, neighbours).deviations[-1] > largest:
            break
        best = order
    return best


def count_statistics(sizes: tuple[int, ...], order: int) -> int:
    """Return the number of contrasts of up to ``order`` attributes."""
    sums = [1] + [0] * order  # elementary symmetric polynomials of the numbers of contrasts
    for size in sizes:
        for r in range(order, 0, -1):
            sums[r] += sums[r - 1] * (size - 1)
    return sum(sums[1:])


def _contrast_bits(order: int, neighbours: Neighbours) -> int:
    return (CONTRAST_BITS if neighbours.weight == 1 else PERSON_CONTRAST_BITS)[order - 1]


def _factors(weights: tuple[int, ...], bits: int) -> tuple[int, ...]:
    order = len(weights)
    shifts = [(order - r) * bits - WEIGHT_BITS for r in range(1, order)]
    return (*(w << shift for w, shift in zip(weights, shifts, strict=False)), 1)


@cache
def _squared_sensitivity(
    grouped: tuple[tuple[int, int], ...], weights: tuple[int, ...], bits: int, neighbours: Neighbours
) -> int:
    """Bound the squared sensitivity of the sum of F(x), on the stored integers.

    ||F(x) - F(x')||^2 = K(x, x) + K(x', x') - 2 K(x, x') with K = sum_r w_r^2 e_r(g), e_r the elementary
    symmetric polynomials and g_a = <q_a(x_a), q_a(x'_a)>. Where x and x' agree, g_a is a square norm; where
    they differ, a product of two levels. Both lie in intervals: points up to rounding, and exactly so for two
    levels. Where attributes have too many different sizes to enumerate, and the order is 2, see
    `_least_product`.
    """
    squares = [factor**2 for factor in _factors(weights, bits)]
    if len(weights) == 2 and math.prod(count + 1 for _, count in grouped) > MOST_CHANGES:
        same = [(_products(size, bits)[0], count) for size, count in grouped]
        norms = sum(high * count for (_, high), count in same)
        lengths = sum(low**2 * count for (low, _), count in same)
        most = squares[0] * norms + squares[1] * (norms**2 - lengths) // 2 + 1
        return neighbours.squared_diameter(2 * (most - _least_product(grouped, squares, bits)), most)
    largest, *pairs = (
        sum(square * bound for square, bound in zip(squares, bounds, strict=True))
        for bounds in _kernel_bounds(grouped, len(weights), bits)
    )
    return neighbours.squared_diameter(2 * (largest - min(pairs)), largest)


def _least_product(grouped: tuple[tuple[int, int], ...], squares: list[int], bits: int) -> int:
    """Lower bound of K(x, x') = s_1 e_1 + s_2 e_2 over all pairs of records, whatever attributes differ.

    With t = e_1 and q = sum_a g_a^2, e_2 = (t^2 - q)/2, so that K = s_1 t + s_2 t^2/2 - s_2 q/2. The first
    two terms fall up to t = -s_1/s_2 and rise from there on, so they are least there, or at the least t if
    that is larger. Each g_a^2 is at most the square of the largest product of its size.
    """
    first, second = squares
    lengths = least = 0
    for size, count in grouped:
        ends = [end for pair in _products(size, bits) for end in pair]
        least += count * min(ends)
        lengths += count * max(abs(end) for end in ends) ** 2
    twice = 2 * first * least + second * least**2 if second * least > -first else -(first**2 // second + 1)
    return (twice - second * lengths) // 2


@cache
def _kernel_bounds(grouped: tuple[tuple[int, int], ...], order: int, bits: int) -> list[list[int]]:
    """Upper bounds of e_r(g) for x = x', then lower bounds for every number of changes of each size."""
    found = []
    for changed in product(*(range(count + 1) for _, count in grouped)):
        parts = [(1, 1)] + [(0, 0)] * order  # intervals of e_0, e_1, ...
        for (size, count), number in zip(grouped, changed, strict=True):
            same, differ = _products(size, bits)
            for g in [differ] * number + [same] * (count - number):
                for r in range(order, 0, -1):
                    parts[r] = _added(parts[r], _multiplied(g, parts[r - 1]))
        found.append([part[0] if any(changed) else part[1] for part in parts[1:]])
    return found


@cache
def _products(size: int, bits: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Least and largest product of a level's contrasts with themselves, and with those of another level."""
    q = contrasts(size, bits).astype(np.float64)
    gram = q @ q.T  # exact: integers below 2^53
    apart = gram[~np.eye(size, dtype=bool)]
    same = int(gram.diagonal().min()), int(gram.diagonal().max())
    return same, (int(apart.min()), int(apart.max()))


def _added(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return one[0] + other[0], one[1] + other[1]


def _multiplied(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    ends = [a * b for a in one for b in other]
    return min(ends), max(ends)


@cache
def _weights(grouped: tuple[tuple[int, int], ...], order: int) -> tuple[int, ...]:
    """Weights of the orders in eighths, the last one 8: those of the smallest mean variance of a cell.

    A cell of the table of A has, on average, the variance sum_T (noise/w_|T|)^2 prod_{a in T} (k_a - 1)^2 /
    prod_{a in A} k_a^2, T the subsets of A; the mean is over all A of ``order`` attributes.
    """
    one = 2**WEIGHT_BITS
    if order == 1:
        return (one,)
    # Generating polynomial in t: prod_a (1 + s (1/k_a^2 + t ((k_a - 1)/k_a)^2)), the coefficient of s^order.
    shares = np.zeros((order + 1, order + 1))
    shares[0, 0] = 1.0
    for size, count in grouped:
        for _ in range(count):
            for r in range(order, 0, -1):
                shares[r] += shares[r - 1] / size**2
                shares[r, 1:] += shares[r - 1, :-1] * ((size - 1) / size) ** 2
    bits = _contrast_bits(order, REPLACE_ONE)

    def variance(weights: tuple[int, ...]) -> float:
        squared = _squared_sensitivity(grouped, weights, bits, REPLACE_ONE)
        parts = [float(shares[order, r]) / (weights[r - 1] / one) ** 2 for r in range(1, order + 1)]
        return float(squared * sum(parts))

    best = (one,) * order
    for r in range(order - 1):  # from the means upwards; each choice is exact given the others
        candidates = [(*best[:r], eighths, *best[r + 1 :]) for eighths in range(1, LARGEST_WEIGHT * one + 1)]
        best = min(candidates, key=variance)
    return best
