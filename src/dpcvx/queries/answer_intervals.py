"""Intervals of the numbers of an answer, from public numbers alone."""

from __future__ import annotations

import math

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.queries.compiled import CompiledQuery, CompiledRegression
from dpcvx.queries.error_bars import Bound, PropagatedNoise, in_units
from dpcvx.queries.readings import Coefficient, Reading
from dpcvx.queries.wide_regression import WideRegression
from dpcvx.solvers.defaults import default

__all__ = ["coefficients", "expected_error", "interval_argument", "standard_errors"]

UNMEASURED: float = default("queries.answer_intervals.UNMEASURED")
SHRINKAGE: float = default("queries.answer_intervals.SHRINKAGE")
NORMAL_97_5 = 1.959963984540054  # standard normal quantile of 0.975


def standard_errors(reading: Reading, noise: PropagatedNoise, n: int) -> Vector | None:
    """Return the predicted standard error of each number, for the records; None if nothing is known.

    The variance is that of the noise, plus `UNMEASURED`/n times the effect of interactions of variance 1, as
    a sample has them in every function that was not measured; plus `SHRINKAGE` times the part of the squared
    shrinkage that noise does not explain. A whole square would be too much: it is a noisy estimate, and its
    largest values are chosen by being positive.
    """
    if noise.covariance is None:
        return None
    variances = reading.deviations(noise.covariance) ** 2
    if noise.unmeasured is not None:
        variances += UNMEASURED / n * reading.deviations(noise.unmeasured) ** 2
    if noise.shrinkage is not None and noise.shrinkage_noise is not None:
        seen = (reading.matrix @ noise.shrinkage) ** 2
        expected = reading.deviations(noise.shrinkage_noise) ** 2
        variances += SHRINKAGE * np.maximum(seen - expected, 0.0)
    errors: Vector = np.sqrt(variances)
    return errors


def interval_argument(noise: PropagatedNoise, bound: Bound | None, measured: bool) -> str:
    """Return what intervals rest on: one of `answer.INTERVALS`."""
    if noise.covariance is not None:
        return "measurement" if measured else "prediction"
    return "none" if bound is None or bound.is_excess else "bound"


def expected_error(query: CompiledQuery, reading: Reading, noise: PropagatedNoise, n: int) -> float | None:
    """Return the largest standard error of a number, margins left out; of coefficients the excess loss."""
    errors = standard_errors(reading, noise, n)
    if errors is not None and not (
        isinstance(query, CompiledRegression | WideRegression) and query.units is None
    ):
        return float(errors[reading.single].max())
    return None if noise.error is None else in_units(query, noise.inverse, noise.error)


def coefficients(
    reading: Reading, theta: Vector, noise: PropagatedNoise, bound: Bound | None, n: int
) -> tuple[Coefficient, ...]:
    """Return the numbers of an answer with their intervals.

    An interval follows from the predicted standard errors, or from the bound where there are none.

    `theta`: the coded answer; `n`: number of units.
    """
    estimates, errors = reading.numbers(theta), standard_errors(reading, noise, n)
    halves, sampling = None, None
    if errors is not None:
        halves = NORMAL_97_5 * errors
        if noise.sampling is not None:
            sampling = reading.deviations(noise.sampling)
    elif bound is not None and not bound.is_excess:
        halves = reading.widths(bound.numbers)
    found = []
    for k, (name, known) in enumerate(zip(reading.names, reading.known, strict=True)):
        estimate = float(estimates[k])
        if known:
            found.append(Coefficient(name, estimate))
            continue
        ends = (None, None) if halves is None else _ends(reading, estimate, float(halves[k]))
        wide: tuple[float | None, float | None] = (None, None)
        if halves is not None and sampling is not None:
            wide = _ends(reading, estimate, math.hypot(halves[k], NORMAL_97_5 * sampling[k]))
        error = None if errors is None else float(errors[k])
        deviation = None if sampling is None else float(sampling[k])
        found.append(
            Coefficient(
                name,
                estimate,
                std_err=error,
                low=ends[0],
                high=ends[1],
                sampling=deviation,
                population_low=wide[0],
                population_high=wide[1],
            )
        )
    return tuple(found)


def _ends(reading: Reading, estimate: float, half: float) -> tuple[float, float]:
    return max(estimate - half, reading.low), min(estimate + half, reading.high)
