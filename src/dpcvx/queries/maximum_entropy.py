"""Maximum-entropy distribution that agrees with noisy means up to their noise; post-processing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from dpcvx.arrays import Vector
from dpcvx.queries.cell_sums import Axes, Tables
from dpcvx.queries.histogram import Histogram
from dpcvx.queries.marginals import Measurement
from dpcvx.queries.passes import HostPasses, Passes
from dpcvx.queries.universe import Universe
from dpcvx.solvers.defaults import default

__all__ = ["fit"]

AGREEMENT: float = default("queries.maximum_entropy.AGREEMENT")
ROUNDS, ROUND_STEPS = 50, 10  # most estimates of the curvature, and most steps with each of them
MEMORY = 20  # memory of the quasi-Newton method
SAMPLE = 16  # cells for each mean in an estimate of the curvature
LARGEST_MATRIX = 2048  # means up to which the curvature is estimated as a matrix
LISTED = 2**12  # entries up to which products of features are multiplied out


def fit(
    universe: Universe,
    measurements: Sequence[Measurement],
    *,
    dtype: DTypeLike = np.float64,
    passes: Passes | None = None,
) -> Histogram:
    """Return the log-linear model of noisy means.

    p(x) ~ exp(sum_j c_j f_j(x)), c = argmin log Z(c) - <c, values> + sum_j (a_j/2) c_j^2

    with a_j = max(sigma_j r_j, sigma_j^2), sigma_j the noise of mean j, r_j the root mean square of f_j over
    the universe. It is the dual of maximum entropy with means known up to their noise: at the minimum mean j
    is off by a_j c_j. For r_j = 1 and a standard normal prior of c_j, the posterior mode shrinks a direction
    of curvature h by h^2/(h^2 + sigma^2), the penalty by h/(h + a): they agree at h = sigma, where noise and
    signal balance, and at h = 1, a function that varies as over the universe, where noise drowns the signal.
    Nothing here reads a record.

    Parameters
    ----------
    universe : Universe
    measurements : sequence of Measurement
        Released means; several may be about the same attributes.
    dtype : float64 or float32
        Type of the histogram; float32 halves the memory of large universes.
    passes : Passes, optional
        Where the weights of all cells are kept; by default on the host.
    """
    passes = HostPasses(universe.shape) if passes is None else passes
    if not measurements:
        return Histogram(universe, passes=passes)
    starts = [np.zeros(len(m.values)) for m in measurements]
    for place, size in enumerate(universe.shape):  # start from each attribute by itself
        mine = [i for i, m in enumerate(measurements) if m.attributes == (place,)]
        if mine and len(universe.shape) > 1:
            mean = [replace(measurements[i], attributes=(0,)) for i in mine]
            alone = _Model((size,), mean, np.float64, HostPasses((size,)))
            for i, found in zip(mine, alone.solve([starts[i] for i in mine]), strict=True):
                starts[i] = found
    model = _Model(universe.shape, measurements, dtype, passes)
    return Histogram(universe, log_weights=model.log_weights(model.solve(starts)), passes=passes)


class _Model:
    """Log-linear models over a product of axes, and the means that are measured."""

    def __init__(
        self, shape: Axes, measurements: Sequence[Measurement], dtype: DTypeLike, passes: Passes
    ) -> None:
        self._shape, self._dtype, self._passes = shape, np.dtype(dtype), passes
        cells = [math.prod(shape[a] for a in m.attributes) for m in measurements]
        self._measurements = [
            m.listed() if size * len(m.values) <= LISTED else m
            for size, m in zip(cells, measurements, strict=True)
        ]
        # Tables of few attributes are made together where most of them are wanted, others one by one.
        keys = {_key(m) for m in measurements}
        found = Counter(map(len, keys))
        common = [r for r in found if r <= 3 and 2 * found[r] >= math.comb(len(shape), r)]
        self._order = max(common, default=1)
        self._larger = [key for key in keys if len(key) > self._order]
        self._edges = np.cumsum([len(m.values) for m in measurements])[:-1]

    def log_weights(self, coefficients: Sequence[Vector]) -> Any:
        """Log-weights of all cells, flat."""
        tables: Tables = {}
        for m, c in zip(self._measurements, coefficients, strict=True):
            key = _key(m)
            potential = m.potential(c).reshape(self._sizes(m)).transpose(np.argsort(m.attributes))
            tables[key] = tables[key] + potential if key in tables else potential
        return self._passes.log_linear(tables, self._order, self._dtype)

    def means(self, weights: Any) -> Vector:
        """Sums of the measured functions times the weights of all cells."""
        tables = self._passes.marginals(weights, self._order, self._larger)
        parts = [
            m.means(tables[_key(m)].transpose([_key(m).index(a) for a in m.attributes]))
            for m in self._measurements
        ]
        return np.concatenate(parts)

    def solve(self, starts: Sequence[Vector]) -> list[Vector]:
        """Minimise over the coefficients.

        A quasi-Newton method in coordinates in which the curvature, estimated from a sample of cells, is one;
        a round ends after a few steps, and the next has a new estimate.
        """
        from scipy.optimize import minimize

        values = np.concatenate([m.values for m in self._measurements])
        noise = np.concatenate([np.full(len(m.values), m.deviation) for m in self._measurements])
        ridge = np.maximum(noise * np.sqrt(self._mean_squares()), noise**2)

        def value_and_gradient(c: Vector) -> tuple[float, Vector]:
            top, total, weights = self._weights(c)
            value = top + math.log(total) - c @ values + 0.5 * ridge @ c**2
            return value, self.means(weights) / total - values + ridge * c

        c = np.concatenate(starts)
        for _ in range(ROUNDS):
            whiten = self._whitening(c, ridge)

            def from_here(z: Vector, c: Vector = c, whiten: Vector = whiten) -> tuple[float, Vector]:
                value, gradient = value_and_gradient(c + _times(whiten.T, z))
                return value, _times(whiten, gradient)

            steps = ROUND_STEPS if whiten.ndim == 2 else ROUNDS * ROUND_STEPS
            enough = AGREEMENT * math.sqrt(((whiten * noise) ** 2).sum() / len(c))
            found = minimize(
                from_here,
                np.zeros(len(c)),
                jac=True,
                method="L-BFGS-B",
                options={
                    "maxcor": MEMORY,
                    "maxiter": steps,
                    "maxfun": 2 * steps,
                    "ftol": 0.0,
                    "gtol": enough,
                },
            )
            c = c + _times(whiten.T, found.x)
            if whiten.ndim == 1 or found.nit == 0 or abs(found.jac).max() <= enough:
                break
        return list(np.split(c, self._edges))

    def _weights(self, c: Vector) -> tuple[float, float, Any]:
        """Largest log-weight, and the weights of all cells divided by its exp, with their sum."""
        return self._passes.exponentials(self.log_weights(np.split(c, self._edges)))

    def _sizes(self, measurement: Measurement) -> Axes:
        return tuple(self._shape[a] for a in measurement.attributes)

    def _mean_squares(self) -> Vector:
        """Mean square of every function over all cells."""
        parts = []
        for m in self._measurements:
            even = np.ones(self._sizes(m))
            parts.append(m.second_moments(even / even.size))
        return np.concatenate(parts)

    def _whitening(self, c: Vector, ridge: Vector) -> Vector:
        """W with W H W^T = 1 for the curvature H at c: a matrix, or beyond the largest one a diagonal.

        H is the covariance of the functions, here over cells at evenly spread quantiles of p, plus the ridge.
        """
        if len(c) > LARGEST_MATRIX:
            return 1 / np.sqrt(self._mean_squares() + ridge)
        _, total, weights = self._weights(c)
        size = SAMPLE * len(c)
        levels = (np.arange(size, dtype=np.float64) + 0.5) * (total / size)
        digits = np.unravel_index(self._passes.quantiles(weights, levels), self._shape)
        parts = [m.at(tuple(digits[a] for a in m.attributes), self._sizes(m)) for m in self._measurements]
        functions = np.concatenate(parts, axis=1)
        functions -= functions.mean(axis=0)
        root = np.linalg.cholesky(functions.T @ functions / size + np.diag(ridge))
        return np.linalg.inv(root)


def _times(matrix: Vector, vector: Vector) -> Vector:
    """Product with a matrix, or with the diagonal of one."""
    return matrix @ vector if matrix.ndim == 2 else matrix * vector


def _key(measurement: Measurement) -> Axes:
    return tuple(sorted(measurement.attributes))
