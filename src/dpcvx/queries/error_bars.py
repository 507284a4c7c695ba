"""Error of a public answer: its noise to first order, and bounds on it with the arguments that prove them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.domains import HasEuclideanRadius, HasL1Radius
from dpcvx.queries.compiled import TOLERANCE, CompiledMeans, CompiledQuery, CompiledRegression
from dpcvx.queries.histogram import Histogram
from dpcvx.queries.local_models import LocalModels
from dpcvx.queries.marginals import Measurement
from dpcvx.queries.mean_errors import MeanErrors, at_places
from dpcvx.queries.score import ScoreFunction
from dpcvx.solvers.defaults import default

if TYPE_CHECKING:
    from dpcvx.problem import Problem

CONFIDENCE: float = default("queries.error_bars.CONFIDENCE")
# Probabilities that an argument fails, 5 % in all; the last one is of the noise of bin means.
NOISE_FAILURE, COMPARISON_FAILURE, MEASUREMENT_FAILURE, BIN_FAILURE = (
    part * (1 - CONFIDENCE) for part in (0.4, 0.25, 0.25, 0.1)
)
MOST_SHARES = 256  # cells of a query up to which its shares are estimated from the first release
LEAST: float = default("queries.error_bars.LEAST")
SHORTEST_REACH: float = default("queries.error_bars.SHORTEST_REACH")
EDGE = 0.99  # of the radius of a ball: coefficients of at least this norm count as at its edge
FLAT = 1e-9  # smallest curvature relative to the largest one in a decrease
FLOOR = 1e-3  # smallest eigenvalue of a Hessian relative to its largest one


@dataclass(frozen=True, eq=False)
class PropagatedNoise:
    """Effect of the noise of measurements on an answer, and of what the histogram leaves out.

    Matrices are covariances of the numbers of the answer, (k, k).
    """

    error: float | None  # expected excess loss of a regression by noise alone, if known
    covariance: Vector | None  # by the noise of the measurements, if known
    inverse: Vector | None = None  # inverse Hessian of a regression at the answer; see `inverse_hessian`
    unmeasured: Vector | None = None  # by interactions that were not measured
    sampling: Vector | None = None  # over samples of as many units from a population
    # difference from the answer that the released means give without the penalty of the fit, to first order,
    # and the covariance of this difference if it is noise alone
    shrinkage: Vector | None = None
    shrinkage_noise: Vector | None = None
    score: ScoreFunction | None = None  # of a regression: its mean gradient at other coefficients
    # of a mean: its variances due to binning, for these records and over samples
    bins: tuple[float, float] = (0.0, 0.0)
    # (k,): least standard error of each number of an answer; see `least_errors`
    least: Vector | None = None
    shrunk: bool = False  # whether the edge of the set shrinks the answer; see `shrunk_by_set`

    @property
    def distance(self) -> float:
        """Root mean square of the distance by which noise moves the answer; infinite if not known."""
        return math.inf if self.covariance is None else math.sqrt(max(float(np.trace(self.covariance)), 0.0))


def propagate(
    query: CompiledQuery,
    histogram: Histogram | LocalModels,
    theta: Vector,
    measurements: Sequence[Measurement],
    corrections: Sequence[Sequence[Measurement]] = (),
    *,
    n: int,
    interactions: float,
    cell_noise: float = 0.0,
) -> PropagatedNoise:
    """Carry the errors of the mean gradient of a query's loss through to its answer, to first order.

    A covariance V of the mean gradient (`mean_errors.MeanErrors`) is one of H^-1 V H^-1 of the minimiser, and
    costs tr(H^-1 V)/2.

    `theta`: the histogram's answer; `n`: number of units; the others as in `MeanErrors`.
    """
    mean_errors = MeanErrors(
        query, histogram, measurements, corrections, interactions=interactions, cell_noise=cell_noise
    )
    moments = mean_errors.of(query.gradients(theta))
    roots = (moments.noise, moments.unmeasured, moments.shrinkage_noise)
    V, unmeasured, shrinkage_noise = (root.T @ root for root in roots)
    weights = histogram.marginal(query.attributes).ravel()
    inverse, sampling = curvature_and_sampling(query, weights, theta, n)
    if inverse is None or not isinstance(query, CompiledRegression):
        return PropagatedNoise(None, V, None, unmeasured, sampling, moments.shrinkage, shrinkage_noise)
    shrunk = shrunk_by_set(query, weights, theta)
    error = float(np.trace(inverse @ V)) / 2
    V, unmeasured, shrinkage_noise = (inverse @ each @ inverse for each in (V, unmeasured, shrinkage_noise))
    shrinkage = inverse @ moments.shrinkage
    score = ScoreFunction(query, weights, theta, inverse, mean_errors)
    return PropagatedNoise(
        error, V, inverse, unmeasured, sampling, shrinkage, shrinkage_noise, score, shrunk=shrunk
    )


def at_edge(problem: Problem, theta: Vector) -> bool:
    """Return whether coefficients are at the edge of a ball about 0, or almost."""
    if not isinstance(problem.C, HasEuclideanRadius | HasL1Radius):
        return False
    size = float(np.linalg.norm(theta, 1 if isinstance(problem.C, HasL1Radius) else 2))
    return size > EDGE * problem.C.radius


def shrunk_by_set(query: CompiledRegression, weights: Vector, theta: Vector) -> bool:
    """Return whether a minimiser is at the edge of its ball, and the minimum without the ball is lower.

    The decrease of Newton's step, g^T H^-1 g / 2, is compared with twice the accuracy of the minimisation.

    `weights`: a public distribution over the query's cells; `theta`: its minimiser.
    """
    if not at_edge(query.problem, theta):
        return False
    gradient = weights @ query.gradients(theta) + query.problem.l2 * theta
    sizes, directions = np.linalg.eigh(query.hessian(weights, theta))
    along = gradient @ directions
    decrease = float((along**2 / np.maximum(sizes, FLAT * max(sizes[-1], FLAT))).sum()) / 2
    return decrease > 2 * TOLERANCE * query.scale / query.records


def curvature_and_sampling(
    query: CompiledQuery, weights: Vector, theta: Vector, n: int
) -> tuple[Vector | None, Vector]:
    """Return the inverse Hessian of a regression, and the covariance of an answer over samples of n units.

    A mean gradient of the covariance G/n moves the minimiser by one of H^-1 G H^-1 / n. `weights`: a public
    distribution over the query's cells.
    """
    values = query.gradients(theta)
    around = values - weights @ values
    sampling: Vector = (around * weights[:, None]).T @ around / n
    if not isinstance(query, CompiledRegression):
        return None, sampling
    inverse = inverse_hessian(query, weights, theta)
    return inverse, inverse @ sampling @ inverse


def reach(problem: Problem, propagated: PropagatedNoise) -> float:
    """Return the size of the neighbourhood of an answer in which its error is measured, relative to the set.

    Three times the distance by which noise is expected to move the answer, and at least a tenth of the set.
    The minimiser is expected there, so that the error is the whole error; it depends less on each record than
    the error over the whole set.
    """
    size = float(problem.C.diameter(2, problem.d))
    if size == 0:  # a simplex of one dimension is a point
        return 1.0
    return min(1.0, max(SHORTEST_REACH, 3 * propagated.distance / size))


def inverse_hessian(query: CompiledRegression, weights: Vector, theta: Vector) -> Vector:
    """Return the inverse of the Hessian, its eigenvalues raised to `FLOOR` times the largest one at least."""
    sizes, directions = np.linalg.eigh(query.hessian(weights, theta))
    inverse: Vector = (directions / np.maximum(sizes, FLOOR * max(sizes[-1], 1e-12))) @ directions.T
    return inverse


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


@dataclass(frozen=True, eq=False)
class Bound:
    """Upper bound on the error of an answer, and the argument that proves it."""

    argument: str  # one of `answer.ARGUMENTS`
    numbers: Vector  # bound for each coded number of the answer, or a single one on its excess loss
    is_excess: bool = False  # whether it is a bound on the excess loss of a regression

    @property
    def error(self) -> float:
        """Bound on the error of the answer as a whole."""
        return float(self.numbers.max())


@dataclass(frozen=True, eq=False)
class TableEstimate:
    """Unbiased estimate of the shares of all cells of some attributes: the shares plus root @ Z, Z normal."""

    shares: Vector  # (m,)
    root: Vector  # (m, k)
    tables: int  # number of tables that the same release estimates
    cells: int  # number of cells of all of them together

    def bound(self, query: CompiledMeans, theta: Vector) -> Vector:
        """Bound the error of each mean, for all queries on these tables at once.

        With u the estimate of mean q, |theta - mean| <= |theta - u| + |noise of u|. As shares sum to 1, q may
        be replaced by q - c, c its median over the cells. That noise is at most z sum_x |q(x) - c| s_x, s_x
        the standard deviation of cell x, if no cell of any table is off by more than z s_x; and at most
        chi ||(q - c) @ root||, if the noise of no table is longer than chi. Each holds but for half of
        `NOISE_FAILURE`, for all tables and cells together.
        """
        from scipy.special import chdtri, ndtri

        middle = np.median(query.values, axis=0)
        centred = query.values - middle
        z = -float(ndtri(NOISE_FAILURE / (4 * self.cells)))
        chi = math.sqrt(float(chdtri(self.root.shape[1], NOISE_FAILURE / (2 * self.tables))))
        by_cells = z * (np.abs(centred).T @ np.linalg.norm(self.root, axis=1))
        by_length = chi * np.linalg.norm(centred.T @ self.root, axis=1)
        bound: Vector = np.abs(middle + self.shares @ centred - theta) + np.minimum(by_cells, by_length)
        return bound


def mean_bound(
    query: CompiledRegression,
    estimate: TableEstimate,
    weights: Vector,
    theta: Vector,
    distances: Vector | None = None,
) -> float:
    """Bound the error of a mean over the records of a condition, in units of half of its range.

    With 1[where] the condition and s its share among the records,
    mean - theta = E 1[where] (v - theta) / s. The bounds on the numerator and on s hold for all queries on
    the table at once; infinite where s may be 0.

    `weights`: of the histogram over the query's cells; `theta`: the answer; `distances`: largest difference
    between the number of a record and v at each cell, whose mean over the condition is added.
    """
    inside = query.X[:, 0]
    apart = np.zeros(len(inside)) if distances is None else inside * distances
    values = np.stack([inside * (query.y - theta[0]), inside, apart], axis=1)
    names = ("difference", "share", "distance")
    if distances is not None and np.ptp(query.y[inside > 0]) == 0:  # all in one bin
        return float(apart.max())
    means = CompiledMeans(query.attributes, query.sizes, names, values, query.description)
    share, mean_apart = float(weights @ inside), float(weights @ apart)
    difference, off, more = estimate.bound(means, np.array([0.0, share, mean_apart]))
    return float((difference + mean_apart + more) / (share - off)) if share > off else math.inf


def table_estimate(query: CompiledQuery, measurements: Sequence[Measurement]) -> TableEstimate | None:
    """Return the shares of a query's cells as the measured means give them; None if these do not.

    The functions measured on the subsets of the query's attributes and the constant span all functions of its
    cells, G C = 1; so C gives the shares from the means, and the noise on them.
    """
    known = set(query.attributes)
    m = math.prod(query.sizes)
    if m > MOST_SHARES or not any(set(each.attributes) == known for each in measurements):
        return None
    used = [each for each in measurements if known.issuperset(each.attributes)]
    digits = np.unravel_index(np.arange(m), query.sizes)
    places = {a: (place, size) for a, place, size in zip(query.attributes, digits, query.sizes, strict=True)}
    G = np.concatenate([np.ones((m, 1)), *(at_places(each, places) for each in used)], axis=1)
    C = np.linalg.pinv(G)
    if not np.allclose(G @ C, np.eye(m), atol=1e-9):
        return None
    means = np.concatenate([np.ones(1), *(each.values for each in used)])
    noise = np.concatenate([np.zeros(1), *(np.full(len(each.values), each.deviation) for each in used)])
    root = (C * noise[:, None])[1:].T
    cells = sum(math.prod(len(f) for f in each.features) for each in measurements)
    return TableEstimate(means @ C, root, len(measurements), cells)


def least_errors(query: CompiledMeans, measurements: Sequence[Measurement]) -> Vector | None:
    """Return the least standard error of counts of two attributes or more; None for other functions.

    In a log-linear model the error of a cell is proportional to the cell to first order, so that cells which
    are nearly 0 seem to be certain. A count is at least as uncertain as `LEAST` times the noise on the number
    of people in its cells of two attributes, of those two attributes for which it is smallest.
    """
    largest, k = float(query.values.max(initial=0.0)), query.values.shape[1]
    inside = query.values > 0
    if len(query.sizes) < 2 or not largest or not (query.values[inside] == largest).all():
        return None
    inside, least = inside.reshape(*query.sizes, k), np.full(k, math.inf)
    for pair in combinations(range(len(query.sizes)), 2):
        attributes, sizes = (tuple(each[i] for i in pair) for each in (query.attributes, query.sizes))
        cells = math.prod(sizes)
        both = CompiledMeans(attributes, sizes, (), np.zeros((cells, 0)), query.description)
        table = table_estimate(both, measurements)
        if table is not None:
            others = tuple(i for i in range(len(query.sizes)) if i not in pair)
            chosen = inside.any(axis=others).reshape(cells, k).astype(np.float64)
            least = np.minimum(least, np.linalg.norm(chosen.T @ table.root, axis=1))
    floor: Vector = np.where(np.isfinite(least), LEAST * largest * least, 0.0)
    return floor


def released_table(
    query: CompiledQuery, shares: Vector, shape: tuple[int, ...], noise: float
) -> TableEstimate | None:
    """Return the shares of a query's cells as sums of the noisy shares of all cells; None if these are many.

    `shares`: released shares of all cells, flat; `noise`: standard deviation of each of them.
    """
    m = math.prod(query.sizes)
    if m > MOST_SHARES:
        return None
    others = tuple(k for k in range(len(shape)) if k not in query.attributes)
    kept = sorted(query.attributes)
    table = shares.reshape(shape).sum(axis=others)
    summed = table.transpose([kept.index(attribute) for attribute in query.attributes]).ravel()
    root = noise * math.sqrt(math.prod(shape) / m) * np.eye(m)
    return TableEstimate(summed, root, 2 ** len(shape), math.prod(size + 1 for size in shape))
