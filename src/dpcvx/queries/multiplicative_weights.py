"""Multiplicative weights: updates of the public histogram by measured answers.

Everything here is post-processing of released values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.queries.compiled import CompiledQuery
from dpcvx.queries.histogram import Histogram
from dpcvx.queries.marginals import Measurement
from dpcvx.solvers.defaults import default

__all__ = ["agree", "listed_functions", "log_factor", "step_size", "updates_needed"]

SWEEPS: int = default("queries.multiplicative_weights.SWEEPS")


def updates_needed(scale: float, level: float, n_cells: int) -> int:
    """Return the number of updates after which no query can err by more than ``level``: [U15] Figure 3.

    T = 64 S^2 log|X| / level^2
    """
    return math.ceil(64 * (scale / level) ** 2 * math.log(max(n_cells, 2)))


def step_size(n_cells: int, n_updates: int) -> float:
    """Return eta = sqrt(log|X| / T), at most 1: [U15] Figure 3."""
    return min(1.0, math.sqrt(math.log(max(n_cells, 2)) / n_updates))


def log_factor(query: CompiledQuery, theta: Vector, better: Vector, *, step: float) -> Vector:
    """Return the logarithm of the factor of a histogram update, from an answer that is better than theta.

    D(x) exp(-step u(x) / S) with u(x) = <better - theta, grad l_x(theta)>: [U15] Figure 3

    `theta`: the minimiser on the histogram. `better`: a private estimate of the minimiser on the records.
    `step`: the step eta. The paper's update has the other sign and no 1/S; its Lemma 3.4 needs both
    (PRIVACY_MATH §9.3). Returns the logarithm of the factor at every cell of the query's attributes, one axis
    for each.
    """
    return (-step * query.certificate(theta, better) / query.scale).reshape(query.sizes)


def agree(histogram: Histogram, measured: Sequence[tuple[Measurement, ...]]) -> Histogram:
    """Return the histogram nearest to the given one that agrees with noisy means, one group after the other.

    For each group the distribution of least KL(p || histogram) + sum_j (E_p f_j - value_j)^2 / (2 sigma_j^2):
    the histogram times exp(<c, f>). There are `SWEEPS` passes over all groups, the newest last, so that the
    histogram keeps agreeing with older measurements.

    `measured`: groups of released means; those of a group are about the same attributes.
    """
    for _ in range(SWEEPS if len(measured) > 1 else 1):
        for group in measured:
            if group:
                histogram = _projected(histogram, group)
    return histogram


def _projected(histogram: Histogram, group: Sequence[Measurement]) -> Histogram:
    from scipy.optimize import minimize
    from scipy.special import logsumexp

    attributes = group[0].attributes
    table = histogram.marginal(attributes)
    log_weights = np.log(np.maximum(table.ravel(), np.finfo(np.float64).tiny))
    F = np.concatenate([listed_functions(m) for m in group], axis=1)
    values = np.concatenate([m.values for m in group])
    noise = np.concatenate([np.full(len(m.values), m.deviation) for m in group])
    F, values = F / noise, values / noise  # coefficients in units of the noise: the penalty is ||c||^2 / 2

    def objective(c: Vector) -> tuple[float, Vector]:
        potential = F @ c
        log_total = float(logsumexp(potential + log_weights))
        p = np.exp(potential + log_weights - log_total)
        return log_total - float(c @ values) + float(c @ c) / 2, p @ F - values + c

    found = minimize(objective, np.zeros(F.shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 500})
    return histogram.reweight(attributes, (F @ found.x).reshape(table.shape))


def listed_functions(measurement: Measurement) -> Vector:
    """Return every function of a measurement at every cell of its attributes, shape (m, k)."""
    listed: Vector = np.ones((1, 1))
    for features in measurement.features:
        listed = np.kron(listed, features).astype(np.float64)
    return listed
