"""What is known about the error of a public answer: from released values, their noise and public scales."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpcvx.arrays import IntVector, Vector
from dpcvx.queries.compiled import CompiledQuery, CompiledRegression
from dpcvx.queries.marginals import Measurement

__all__ = ["CONFIDENCE", "PropagatedNoise", "half_widths", "in_units", "propagate", "reach"]

CONFIDENCE = 0.95
NORMAL_97_5 = 1.959963984540054  # standard normal quantile of 0.975
SHORTEST_REACH = 0.1
MOST_CELLS, MOST_FUNCTIONS = 4096, 512  # of a regression of gradients on measured functions
FLOOR = 1e-3  # of the largest curvature: directions that the loss hardly sees


@dataclass(frozen=True, eq=False)
class PropagatedNoise:
    """Expected error of an answer by the noise of measurements alone, and the deviation of each number."""

    error: float
    deviations: Vector

    @property
    def distance(self) -> float:
        """Root mean square of the distance that noise moves the answer by."""
        return float(np.linalg.norm(self.deviations))


def propagate(
    question: CompiledQuery,
    weights: Vector,
    theta: Vector,
    measurements: Sequence[Measurement],
    cell_noise: float = 0.0,
) -> PropagatedNoise:
    """Carry the noise of measured means through to an answer, to first order.

    A change of the measured means moves the mean gradient of the loss by B^T times it, B the coefficients of
    the ridge regression of gradients on measured functions that the fit implies. Noise of variance sigma_k^2
    then has the covariance V = sum_k sigma_k^2 B_k B_k^T on the gradient, H^-1 V H^-1 on the minimiser, and
    costs tr(H^-1 V)/2. What the model itself is off by is no part of this. On marginals of many cells the
    regression is over the heaviest cells and the smallest measurements alone.

    Parameters
    ----------
    question : CompiledQuery
    weights : Vector
        The histogram's distribution over the question's cells.
    theta : Vector
        Its answer.
    measurements : sequence of Measurement
        Those about attributes of the question alone are used.
    cell_noise : float
        Deviation of the noise on the share of each of the question's cells.
    """
    values = question.gradients(theta)
    V = cell_noise**2 * (values.T @ values)
    known = set(question.attributes)
    used = sorted((m for m in measurements if known.issuperset(m.attributes)), key=lambda m: len(m.values))
    counts = np.cumsum([len(m.values) for m in used])
    used = [m for m, count in zip(used, counts, strict=True) if count <= MOST_FUNCTIONS]
    if used:
        cells = np.argsort(-weights, kind="stable")[:MOST_CELLS]
        p = weights[cells] / weights[cells].sum()
        F = np.concatenate([_over(question, m, cells) for m in used], axis=1)
        noise = np.concatenate([np.full(len(m.values), m.deviation) for m in used])
        centred = F - p @ F
        # As in the fit: what it gives up of a mean, it does not err by.
        penalty = noise * np.maximum(np.sqrt((F**2).mean(axis=0)), noise)
        covariance = (centred * p[:, None]).T @ centred + np.diag(penalty)
        B = np.linalg.solve(covariance, (centred * p[:, None]).T @ values[cells]) * noise[:, None]
        V = V + B.T @ B
    if not isinstance(question, CompiledRegression):
        deviations = np.sqrt(np.diag(V))
        return PropagatedNoise(float(deviations.max()), deviations)
    inverse = curvature(question, weights, theta)
    spread = np.diag(inverse @ V @ inverse)
    return PropagatedNoise(float(np.trace(inverse @ V)) / 2, np.sqrt(np.maximum(spread, 0.0)))


def reach(question: CompiledRegression, propagated: PropagatedNoise) -> float:
    """Return how far around an answer to look for its error, as a part of the set.

    Three times as far as noise is expected to move it, and a tenth of the way at least: errors there are the
    whole error, and depend less on each record than errors over all of the set.
    """
    size = float(question.problem.C.diameter(2, question.problem.d))
    if size == 0:  # a simplex of one dimension is a point
        return 1.0
    return min(1.0, max(SHORTEST_REACH, 3 * propagated.distance / size))


def curvature(question: CompiledRegression, weights: Vector, theta: Vector) -> Vector:
    """Return the inverse of the Hessian, directions of little curvature held to `FLOOR` of the largest."""
    sizes, directions = np.linalg.eigh(question.hessian(weights, theta))
    inverse: Vector = (directions / np.maximum(sizes, FLOOR * max(sizes[-1], 1e-12))) @ directions.T
    return inverse


def half_widths(
    question: CompiledQuery, weights: Vector, theta: Vector, propagated: PropagatedNoise, bound: float
) -> Vector:
    """Return half of the length of each number's interval.

    The larger of the propagated noise's, and of what an excess loss at the bound means for one of d
    coefficients, sqrt(2 bound (H^-1)_jj / d) normal deviations; for means the bound itself.
    """
    noise = NORMAL_97_5 * propagated.deviations
    if not isinstance(question, CompiledRegression):
        return np.maximum(noise, bound)
    spread = np.diag(curvature(question, weights, theta)) * 2 * bound / question.problem.d
    return np.maximum(noise, NORMAL_97_5 * np.sqrt(spread))


def in_units(question: CompiledQuery, weights: Vector, theta: Vector, error: float) -> float:
    """Return an error in the units of the answer, or for a regression the excess loss as it is.

    The loss of a mean over a share p of the records is p (theta - mean)^2 / 2 above the least, so an excess e
    is a deviation of sqrt(2 e / p), in units of half of the range; p is the histogram's.
    """
    if not isinstance(question, CompiledRegression) or question.units is None:
        return error
    low, high = question.units
    deviation = float(np.sqrt(2 * error * curvature(question, weights, theta)[0, 0]))
    return min(deviation / 2, 1.0) * (high - low)


def _over(question: CompiledQuery, measurement: Measurement, cells: IntVector) -> Vector:
    """The functions of a measurement at some cells of a question that has all its attributes, (m, k)."""
    digits = np.unravel_index(cells, question.sizes)
    listed = np.ones((len(cells), 1))
    for attribute, features in zip(measurement.attributes, measurement.features, strict=True):
        place = question.attributes.index(attribute)
        listed = (listed[:, :, None] * features[digits[place]][:, None, :]).reshape(len(cells), -1)
    return listed
