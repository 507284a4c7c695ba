"""Errors of means due to binning: each record counts as the number that stands for its bin.

They are post-processing of released sums (PRIVACY_MATH §20).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.queries.attribute_codes import at_cells
from dpcvx.queries.bin_means import OFFSET_VARIANCE, numbers_to_measure, with_bin_means
from dpcvx.queries.compiled import CompiledQuery, CompiledRegression
from dpcvx.queries.error_bars import BIN_FAILURE
from dpcvx.queries.query import Mean
from dpcvx.queries.schema import Binned, Schema

__all__ = ["BinErrors", "MeanOfBins", "bin_errors"]


@dataclass(frozen=True, eq=False)
class BinErrors:
    """Errors of the numbers that stand for the bins of an attribute, in the table's units."""

    noise: Vector | None  # standard deviation of each as the mean of its bin; None if they were not measured
    bound: Vector  # largest error of each as that mean, for all bins of the release at once
    farthest: Vector  # distance from the farther edge of the bin
    spread: Vector  # standard deviation of numbers that are uniform in the bin


def bin_errors(schema: Schema, released: Vector | None, noise: float) -> dict[str, BinErrors]:
    """Return the errors of the numbers that stand for bins, by attribute.

    With N units in a bin, offsets of the sum S, and noise of the standard deviation s on both, the mean
    offset o has the variance 1 / (1/v + N^2 / (s^2 (1 + o^2))), v its variance before. Where no noise is
    above z s, which fails with the probability `BIN_FAILURE`, |N o - S| <= z s (1 + |o|) for the noisy N and
    S, so that S/N is at most 2 z s / N away from o.

    Parameters
    ----------
    schema : Schema
        As declared, before `with_bin_means`.
    released : Vector or None
        Released sums of `numbers_to_measure`; None if nothing was measured.
    noise : float
        Standard deviation of the noise on each.
    """
    from scipy.special import ndtri

    measured = () if released is None else numbers_to_measure(schema)
    used = schema if released is None else with_bin_means(schema, released, noise)
    z = 0.0 if released is None else -float(ndtri(BIN_FAILURE / (2 * len(released))))
    found, start = {}, 0
    for declared in schema.attributes:
        number = used[declared.name]
        if not isinstance(number, Binned) or not isinstance(declared, Binned):
            continue
        edges, values = np.array(number.edges), number.representatives
        half = np.diff(edges) / 2
        farthest = np.maximum(values - edges[:-1], edges[1:] - values)
        deviation, bound = None, farthest
        if released is not None and declared in measured:
            counts, sums = np.split(released[start : start + 2 * number.known], 2)
            start += 2 * number.known
            N, o = np.maximum(counts, 1e-9), (values - number.midpoints) / half
            deviation = half / np.sqrt(1 / OFFSET_VARIANCE + N**2 / (noise**2 * (1 + o**2)))
            off = np.abs(o - np.clip(sums / N, -1.0, 1.0)) + 2 * z * noise / N
            bound = np.minimum(half * off, farthest)
        spread = half * math.sqrt(OFFSET_VARIANCE)
        found[number.name] = BinErrors(deviation, bound, farthest, spread)
    return found


@dataclass(frozen=True, eq=False)
class MeanOfBins:
    """Error of a mean due to binning: each record counts as the number that stands for its bin.

    Parameters
    ----------
    query : CompiledQuery
        Compiled `Mean` of an attribute with bins.
    schema : Schema
    errors : BinErrors
        Of the attribute.
    """

    query: CompiledQuery
    schema: Schema
    errors: BinErrors

    @classmethod
    def of(cls, query: CompiledQuery, schema: Schema, errors: Mapping[str, BinErrors]) -> MeanOfBins | None:
        """Return the errors of a mean due to binning; None for queries that are no mean in bins."""
        mean = query.description
        found = errors.get(mean.of) if isinstance(mean, Mean) else None
        return None if found is None else cls(query, schema, found)

    @property
    def own(self) -> bool:
        """Whether all people of a bin count, or none: there is no condition on other attributes."""
        mean = self.query.description
        return isinstance(mean, Mean) and set(mean.where) <= {mean.of}

    @property
    def single(self) -> bool:
        """Whether a single number stands for all people of the condition, so that nothing was released."""
        if self.errors.noise is not None or not isinstance(self.query, CompiledRegression):
            return False
        return float(np.ptp(self.query.y[self.query.X[:, 0] > 0])) == 0

    @property
    def distances(self) -> Vector:
        """Largest difference at each of the query's cells, in the units of its coded answer."""
        each = self.errors.bound if self.own else self.errors.farthest
        size = self.query.sizes[0]
        wide = at_cells(self.schema, self.query.attributes, 0, np.append(each, np.zeros(size - len(each))))
        return wide / self._unit

    def variances(self, weights: Vector, everyone: Vector, n: int) -> tuple[float, float]:
        """Return the variances of the mean for these records and over samples, in the coded answer's units.

        For the records it is the noise of the released bin means. If a condition on other attributes chooses
        m of the N people of a bin, the mean of these m numbers also has the variance (1/m - 1/N) times that
        of a number inside its bin. A systematic difference is not included. 0 if bin means were not
        measured.

        Parameters
        ----------
        weights : Vector
            Of the histogram over the query's cells.
        everyone : Vector
            Of the histogram over the cells of the attribute.
        n : int
            Number of units.
        """
        if self.errors.noise is None:
            return 0.0, 0.0
        inside = self.query.X[:, 0] if isinstance(self.query, CompiledRegression) else 1.0
        known = len(self.errors.spread)
        shares = (weights * inside).reshape(self.query.sizes[0], -1).sum(axis=1)[:known]
        total = max(float(shares.sum()), 1e-12)
        squares, spread = (shares / total) ** 2, self.errors.spread**2
        chosen = np.clip(1 - shares / np.maximum(everyone[:known], 1e-300), 0.0, 1.0)
        sampling = spread * shares / (n * total**2)
        noise = float(squares @ self.errors.noise**2) + float((sampling * chosen).sum())
        return noise / self._unit**2, float(sampling.sum()) / self._unit**2

    @property
    def _unit(self) -> float:
        """Units of the table for one unit of the coded answer."""
        if not isinstance(self.query, CompiledRegression) or self.query.units is None:
            return 1.0
        low, high = self.query.units
        return (high - low) / 2
