"""Errors of means of functions of a query's cells, predicted to first order from released numbers alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dpcvx.arrays import IntVector, Vector
from dpcvx.queries.compiled import CompiledQuery
from dpcvx.queries.histogram import Histogram
from dpcvx.queries.local_models import LocalModels
from dpcvx.queries.marginals import Measurement
from dpcvx.solvers.defaults import default

__all__ = ["MeanErrors", "Moments", "at_places", "interaction_variance"]

INTERACTIONS: tuple[float, ...] = default("queries.mean_errors.INTERACTIONS")
MOST_CELLS, MOST_FUNCTIONS = 4096, 512  # in the regression of functions on measured functions


@dataclass(frozen=True, eq=False)
class Moments:
    """Predicted errors of the means of k functions. A root R stands for the covariance R^T R."""

    noise: Vector  # root: by the noise of the measurements
    unmeasured: Vector  # root: by interactions that were not measured
    # difference from the mean that the released means give without the penalty of the fit, (k,), and the root
    # of the covariance of this difference if it is noise alone
    shrinkage: Vector
    shrinkage_noise: Vector
    released_noise: Vector  # root: of the mean that the released means give without the penalty of the fit


def interaction_variance(n: int, order: int) -> float:
    """Return the predicted variance of interactions of more attributes than were measured together.

    By chance a sample of n units has interactions of variance 1/n in every function. `INTERACTIONS` is the
    usual variance of those of a population. It does not fall with n, and is most of the error if there are
    many records.

    `order`: largest number of attributes in one statistic of the release.
    """
    return INTERACTIONS[order - 1] + 1 / n


class MeanErrors:
    """Predicts the errors of means that a histogram gives.

    A change of the measured means moves the mean of a function by B^T times it, B the coefficients of the
    ridge regression of the function on measured functions that the fit implies. A correction, the newest
    first, has its own B (`multiplicative_weights.agree`), and earlier noise acts on what its functions leave.

    The rest of the error is what the fit shrinks and what nobody measured. The first is seen in the public
    difference between fitted and released means, carried through by coefficients without the penalty. The
    second acts on r, the part of a function that no measured function explains: interactions c_j of
    variance v in orthonormal functions of the cells move its mean by a number of variance v E r^2.

    On marginals of many cells the regression uses the heaviest cells and the smallest measurements only, and
    corrections that have attributes besides those of the query are left out.

    `query`: whose cells the functions have; `measurements`: those of the first release, used if all their
    attributes are attributes of the query or of corrections that share some with it; `interactions`: variance
    of interactions that were not measured, 0 if none are left; `cell_noise`: standard deviation of the noise
    on the share of each of the query's cells.
    """

    def __init__(
        self,
        query: CompiledQuery,
        histogram: Histogram | LocalModels,
        measurements: Sequence[Measurement],
        corrections: Sequence[Sequence[Measurement]] = (),
        *,
        interactions: float,
        cell_noise: float = 0.0,
    ) -> None:
        attributes, shape = query.attributes, histogram.universe.shape
        near = {
            a
            for group in corrections
            for m in group
            for a in m.attributes
            if set(m.attributes) & set(attributes)
        }
        others = tuple(sorted(near.difference(attributes)))
        repeats = 1
        if math.prod(shape[a] for a in (*attributes, *others)) <= MOST_CELLS:
            attributes += others
            repeats = math.prod(shape[a] for a in others)
        table = histogram.marginal(attributes)
        cells = np.argsort(-table.ravel(), kind="stable")[:MOST_CELLS]
        digits = np.unravel_index(cells, table.shape)
        places = {
            attribute: (place, size)
            for attribute, place, size in zip(attributes, digits, table.shape, strict=True)
        }
        self._interactions, self._cell_noise = interactions, cell_noise
        self._cells = cells // repeats
        self._p = table.ravel()[cells] / table.ravel()[cells].sum()
        self._corrections = [
            _Group(group, places, self._p)
            for group in reversed(corrections)
            if group and set(group[0].attributes) <= set(attributes)
        ]
        used = sorted(
            (m for m in measurements if set(m.attributes) <= set(attributes)), key=lambda m: len(m.values)
        )
        counts = np.cumsum([len(m.values) for m in used])
        used = [m for m, count in zip(used, counts, strict=True) if count <= MOST_FUNCTIONS]
        self._first = _Group(used, places, self._p) if used else None

    def of(self, values: Vector) -> Moments:
        """Return the errors of the means of functions, given by their values at the query's cells, (m, k)."""
        k, left = values.shape[1], values[self._cells]
        roots = [self._cell_noise * values] if self._cell_noise else [np.zeros((0, k))]
        shrinkage, shrinkage_noise = np.zeros(k), np.zeros((0, k))
        for group in self._corrections:
            B = group.solve(group.noise**2, left)
            roots = [*roots, group.noise[:, None] * B]
            left = left - group.centred @ B
        released = roots
        if (first := self._first) is not None:
            # The penalty of the fit, which shrinks a mean and its noise alike.
            penalty = first.noise * np.maximum(first.sizes, first.noise)
            towards = first.weighted.T @ left
            B = first.solve_towards(penalty, towards)
            beta = first.solve_towards(first.noise**2, towards)
            shrinkage = (self._p @ first.F - first.released) @ beta
            lost = beta - first.solve_towards(penalty, first.moments @ beta)
            shrinkage_noise = first.noise[:, None] * lost
            roots, released = ([*roots, first.noise[:, None] * coefficients] for coefficients in (B, beta))
            left = left - first.centred @ B
        unmeasured = np.sqrt(self._interactions * self._p)[:, None] * (left - self._p @ left)
        return Moments(
            np.concatenate(roots), unmeasured, shrinkage, shrinkage_noise, np.concatenate(released)
        )


class _Group:
    """Measured functions at the cells of a regression, weighted by the distribution p."""

    def __init__(
        self, measurements: Sequence[Measurement], places: Mapping[int, tuple[IntVector, int]], p: Vector
    ) -> None:
        self.F = np.concatenate([at_places(each, places) for each in measurements], axis=1)
        self.noise = np.concatenate([np.full(len(each.values), each.deviation) for each in measurements])
        self.released = np.concatenate([each.values for each in measurements])
        self.sizes = np.sqrt((self.F**2).mean(axis=0))
        self.centred = self.F - p @ self.F
        self.weighted = self.centred * p[:, None]
        self.moments = self.weighted.T @ self.centred

    def solve(self, penalty: Vector, values: Vector) -> Vector:
        """Return the coefficients of the ridge regression of values on the functions."""
        return self.solve_towards(penalty, self.weighted.T @ values)

    def solve_towards(self, penalty: Vector, towards: Vector) -> Vector:
        """Return the coefficients for given products of values and functions."""
        coefficients: Vector = np.linalg.solve(self.moments + np.diag(penalty), towards)
        return coefficients


def at_places(measurement: Measurement, places: Mapping[int, tuple[IntVector, int]]) -> Vector:
    """Return the functions of a measurement at cells, given by place and size on each attribute, (m, k)."""
    digits, sizes = zip(*(places[attribute] for attribute in measurement.attributes), strict=True)
    return measurement.at(digits, sizes)
