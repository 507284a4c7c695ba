"""Error of a public answer, estimated from released values, their noise and public scales."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpcvx.arrays import IntVector, Vector
from dpcvx.queries.compiled import CompiledQuery, CompiledRegression
from dpcvx.queries.marginals import Measurement
from dpcvx.solvers.defaults import default

CONFIDENCE: float = default("queries.error_bars.CONFIDENCE")
NORMAL_97_5 = 1.959963984540054  # standard normal quantile of 0.975
SHORTEST_REACH: float = default("queries.error_bars.SHORTEST_REACH")
MOST_CELLS, MOST_FUNCTIONS = 4096, 512  # in the regression of gradients on measured functions
FLOOR = 1e-3  # smallest eigenvalue of a Hessian relative to its largest one


@dataclass(frozen=True, eq=False)
class PropagatedNoise:
    """Effect of the noise of measurements on an answer."""

    error: float  # expected error of the answer
    deviations: Vector  # standard deviation of each of its numbers
    inverse: Vector | None = None  # inverse Hessian of a regression at the answer; see `inverse_hessian`

    @property
    def distance(self) -> float:
        """Root mean square of the distance by which noise moves the answer."""
        return float(np.linalg.norm(self.deviations))


def propagate(
    query: CompiledQuery,
    weights: Vector,
    theta: Vector,
    measurements: Sequence[Measurement],
    cell_noise: float = 0.0,
) -> PropagatedNoise:
    """Carry the noise of measured means through to an answer, to first order.

    A change of the measured means moves the mean gradient of the loss by B^T times it, B the coefficients of
    the ridge regression of gradients on measured functions that the fit implies. Noise of variance sigma_k^2
    then has the covariance V = sum_k sigma_k^2 B_k B_k^T on the gradient, H^-1 V H^-1 on the minimiser, and
    costs tr(H^-1 V)/2. The error of the model itself is no part of this. On marginals of many cells the
    regression uses the heaviest cells and the smallest measurements only.

    `weights`: the histogram's distribution over the query's cells; `theta`: its answer; `measurements`: used
    if all their attributes are attributes of the query; `cell_noise`: standard deviation of the noise on the
    share of each of the query's cells.
    """
    values = query.gradients(theta)
    V = cell_noise**2 * (values.T @ values)
    known = set(query.attributes)
    used = sorted((m for m in measurements if known.issuperset(m.attributes)), key=lambda m: len(m.values))
    counts = np.cumsum([len(m.values) for m in used])
    used = [m for m, count in zip(used, counts, strict=True) if count <= MOST_FUNCTIONS]
    if used:
        cells = np.argsort(-weights, kind="stable")[:MOST_CELLS]
        p = weights[cells] / weights[cells].sum()
        F = np.concatenate([_over(query, m, cells) for m in used], axis=1)
        noise = np.concatenate([np.full(len(m.values), m.deviation) for m in used])
        centred = F - p @ F
        # The penalty of the fit, which shrinks a mean and its noise alike.
        penalty = noise * np.maximum(np.sqrt((F**2).mean(axis=0)), noise)
        covariance = (centred * p[:, None]).T @ centred + np.diag(penalty)
        B = np.linalg.solve(covariance, (centred * p[:, None]).T @ values[cells]) * noise[:, None]
        V = V + B.T @ B
    if not isinstance(query, CompiledRegression):
        deviations = np.sqrt(np.diag(V))
        return PropagatedNoise(float(deviations.max()), deviations)
    inverse = inverse_hessian(query, weights, theta)
    spread = np.diag(inverse @ V @ inverse)
    return PropagatedNoise(float(np.trace(inverse @ V)) / 2, np.sqrt(np.maximum(spread, 0.0)), inverse)


def reach(query: CompiledRegression, propagated: PropagatedNoise) -> float:
    """Return the size of the neighbourhood of an answer in which its error is measured, relative to the set.

    Three times the distance by which noise is expected to move the answer, and at least a tenth of the set.
    The minimiser is expected there, so that the error is the whole error; it depends less on each record than
    the error over the whole set.
    """
    size = float(query.problem.C.diameter(2, query.problem.d))
    if size == 0:  # a simplex of one dimension is a point
        return 1.0
    return min(1.0, max(SHORTEST_REACH, 3 * propagated.distance / size))


def inverse_hessian(query: CompiledRegression, weights: Vector, theta: Vector) -> Vector:
    """Return the inverse of the Hessian, its eigenvalues raised to `FLOOR` times the largest one at least."""
    sizes, directions = np.linalg.eigh(query.hessian(weights, theta))
    inverse: Vector = (directions / np.maximum(sizes, FLOOR * max(sizes[-1], 1e-12))) @ directions.T
    return inverse


def half_widths(noise: PropagatedNoise, bound: float) -> Vector:
    """Return half of the length of the interval of each number.

    The larger one of two intervals: that of the propagated noise, and that of an excess loss of ``bound``,
    whose standard deviation is sqrt(2 bound (H^-1)_jj / d) for coefficient j of d. For means the second one
    is the bound itself.
    """
    own = NORMAL_97_5 * noise.deviations
    if noise.inverse is None:
        return np.maximum(own, bound)
    spread = np.diag(noise.inverse) * 2 * bound / len(noise.inverse)
    return np.maximum(own, NORMAL_97_5 * np.sqrt(spread))


def in_units(query: CompiledQuery, inverse: Vector | None, error: float) -> float:
    """Return an error in the units of the answer; the excess loss of a regression is returned as it is.

    The loss of a mean over a share p of the records exceeds the least one by p (theta - mean)^2 / 2, so an
    excess e is a difference of sqrt(2 e / p), in units of half of the range. ``inverse`` is 1/p, with p from
    the histogram.
    """
    if not isinstance(query, CompiledRegression) or query.units is None or inverse is None:
        return error
    low, high = query.units
    deviation = float(np.sqrt(2 * error * inverse[0, 0]))
    return min(deviation / 2, 1.0) * (high - low)


def _over(query: CompiledQuery, measurement: Measurement, cells: IntVector) -> Vector:
    """Return the functions of a measurement at cells of a query that has all of its attributes, (m, k)."""
    digits = np.unravel_index(cells, query.sizes)
    listed = np.ones((len(cells), 1))
    for attribute, features in zip(measurement.attributes, measurement.features, strict=True):
        place = query.attributes.index(attribute)
        listed = (listed[:, :, None] * features[digits[place]][:, None, :]).reshape(len(cells), -1)
    return listed
