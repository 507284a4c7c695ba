"""Noisy pairs of very many attributes, estimated together; post-processing of one release.

Where pairs are noisier than a sample of the records, each by itself says little. Together they say more:
dependences come from few common causes, and every pair also shows the means of both of its attributes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpcvx.arrays import IntVector, Vector
from dpcvx.queries.marginals import Measurement, NoisyMarginals

__all__ = ["shrink_together", "worth_shrinking"]

LARGE_NOISE = 1.5  # of a pair, in units of 1/sqrt(n), from which on pairs are estimated together
LARGEST_MATRIX = 1024  # contrasts of all attributes, up to which the eigenvectors are computed quickly
ROUNDS, SWEEPS = 4, 30  # of means and dependences in turn, and of the unknown diagonal in each of them
STILL = 1e-4  # change of a covariance at which sweeps stop
LEAST_VARIANCE = 1e-6  # of the part of a pair that common causes do not explain
CERTAIN = 1.5  # standard deviations by which such a part must exceed its noise to have its own variance


def worth_shrinking(start: NoisyMarginals) -> bool:
    """Return whether pairs are noisy enough to be estimated together, from public numbers."""
    contrasts = sum(size - 1 for size in start.sizes)
    return (
        start.order == 2
        and contrasts <= LARGEST_MATRIX
        and start.deviations[1] * math.sqrt(start.n) >= LARGE_NOISE
    )


def shrink_together(measurements: Sequence[Measurement], sizes: tuple[int, ...]) -> tuple[Measurement, ...]:
    """Return the means of contrasts of one and of two attributes with less noise.

    The released products of two attributes are M = m m^T + D + noise, m the means of all contrasts and D
    their covariance. In turn,

    - D is a matrix of low rank, the eigenvectors of M - m m^T whose eigenvalues noise alone does not reach
      (those of a symmetric matrix of P columns end at 2 sigma sqrt(P)), and a rest of each pair, shrunk by
      what all pairs and the pair itself show beyond noise;
    - m is the released mean, averaged with the one that all pairs of its attribute show, (M - D) m / |m|^2.
      The error of the latter is estimated from how far both lie apart.

    The deviations are those of the errors that are left, as estimated.

    Parameters
    ----------
    measurements : sequence of Measurement
        One of each attribute and of each pair, as `NoisyMarginals` of order 2 returns them.
    sizes : tuple of int
        Number of cells of each attribute.
    """
    released = _Released.of(measurements, sizes)
    means, error = released.means, released.mean_noise
    found = _dependences(released, means)
    for _ in range(ROUNDS - 1):
        means, error = _combined_means(released, found, means, error)
        found = _dependences(released, means)
    products = np.outer(means, means) + found.common + found.kept[released.pair] * found.rest
    shrunk = []
    for m in measurements:
        if len(m.attributes) == 1:
            shrunk.append(replace(m, values=means[released.place[m.attributes[0]]], deviation=error))
            continue
        a, b = m.attributes
        values = products[released.place[a], released.place[b]].ravel()
        left = released.noise**2 * (found.kept[a, b] + min(1.0, 2 * found.rank / len(means)))
        shrunk.append(replace(m, values=values, deviation=math.sqrt(left)))
    return tuple(shrunk)


@dataclass(frozen=True, eq=False)
class _Released:
    """The release as one vector and one matrix; blocks of an attribute with itself are 0."""

    means: Vector  # (P,)
    products: Vector  # (P, P)
    mean_noise: float  # standard deviations
    noise: float
    place: tuple[slice, ...]  # of each attribute's contrasts
    owner: IntVector  # attribute of each contrast, (P,)

    @classmethod
    def of(cls, measurements: Sequence[Measurement], sizes: tuple[int, ...]) -> _Released:
        counts = [size - 1 for size in sizes]
        ends = np.cumsum(counts)
        place = tuple(slice(end - count, end) for end, count in zip(ends.tolist(), counts, strict=True))
        means, products = np.zeros(ends[-1]), np.zeros((ends[-1], ends[-1]))
        noise = {1: 0.0, 2: 0.0}
        for m in measurements:
            noise[len(m.attributes)] = m.deviation
            if len(m.attributes) == 1:
                means[place[m.attributes[0]]] = m.values
            else:
                a, b = m.attributes
                values = m.values.reshape(counts[a], counts[b])
                products[place[a], place[b]] = values
                products[place[b], place[a]] = values.T
        return cls(means, products, noise[1], noise[2], place, np.repeat(np.arange(len(sizes)), counts))

    @property
    def own(self) -> NDArray[np.bool_]:
        """Which entries of the matrix are of an attribute with itself: these are not measured."""
        same: NDArray[np.bool_] = self.owner[:, None] == self.owner[None, :]
        return same

    @property
    def pair(self) -> tuple[IntVector, IntVector]:
        """Index that repeats a matrix of attributes into one of contrasts."""
        return self.owner[:, None], self.owner[None, :]

    def sums(self, matrix: Vector) -> Vector:
        """Sums of a matrix of contrasts over each pair of attributes."""
        starts = [place.start for place in self.place]
        found: Vector = np.add.reduceat(np.add.reduceat(matrix, starts, axis=0), starts, axis=1)
        return found


@dataclass(frozen=True, eq=False)
class _Dependences:
    """Covariances of contrasts: a common part of low rank, and the rest of each pair, a share of it kept."""

    common: Vector  # (P, P)
    rank: int
    rest: Vector  # with its noise, (P, P); 0 within an attribute
    kept: Vector  # share of the rest, (attributes, attributes)
    certain: NDArray[np.bool_]  # pairs whose rest exceeds its noise


def _dependences(released: _Released, means: Vector) -> _Dependences:
    own, noise = released.own, released.noise
    observed = np.where(own, 0.0, released.products - np.outer(means, means))
    edge = 2 * noise * math.sqrt(len(means))
    common, rank = np.zeros_like(observed), 0
    for _ in range(SWEEPS):
        values, vectors = np.linalg.eigh(np.where(own, common, observed))
        above = values > edge
        rank = int(above.sum())
        shrunk = np.sqrt(values[above] ** 2 - edge**2)  # least squared error, if the noise is normal
        following = (vectors[:, above] * shrunk) @ vectors[:, above].T
        change = float(np.abs(following - common).max())
        common = following
        if change < STILL:
            break
    rest = np.where(own, 0.0, observed - common)
    squares, entries = released.sums(rest**2), released.sums((~own).astype(np.float64))
    usual = max(float(squares.sum() / entries.sum()) - noise**2, LEAST_VARIANCE)
    chance = noise**2 * (entries + CERTAIN * np.sqrt(2 * entries))
    variance = np.maximum((squares - chance) / np.maximum(entries, 1.0), usual)
    return _Dependences(common, rank, rest, variance / (variance + noise**2), variance > usual)


def _combined_means(
    released: _Released, found: _Dependences, means: Vector, error: float
) -> tuple[Vector, float]:
    """Average the released means with those that pairs show; with the standard deviation of the result."""
    same = released.own
    explained = found.common + (found.certain * found.kept)[released.pair] * found.rest
    alone = np.where(same, 0.0, released.products - explained)
    squares = (~same) @ (means**2 - error**2)  # of the other attributes' means, without their noise
    if squares.min() <= 0:
        return released.means, released.mean_noise
    shown = alone @ means / squares
    least = float(np.mean(released.noise**2 / squares))
    direct = released.mean_noise**2
    indirect = max(float(np.mean((shown - released.means) ** 2)) - direct, least)
    combined = released.means + direct / (direct + indirect) * (shown - released.means)
    return combined, math.sqrt(direct * indirect / (direct + indirect))
