"""Intervals of the numbers of an answer, from public numbers alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.queries.compiled import CompiledQuery, CompiledRegression
from dpcvx.queries.error_bars import EDGE, Bound, PropagatedNoise, in_units
from dpcvx.queries.mean_errors import Moments
from dpcvx.queries.readings import INTERCEPT, Coefficient, Reading
from dpcvx.queries.score import ScoreFunction
from dpcvx.queries.wide_regression import WideRegression
from dpcvx.solvers.defaults import default

__all__ = [
    "coefficients",
    "cut_by_set",
    "expected_error",
    "interval_argument",
    "standard_errors",
    "without_hidden",
]

SHRINKAGE: float = default("queries.answer_intervals.SHRINKAGE")
NORMAL_97_5 = 1.959963984540054  # standard normal quantile of 0.975
# Points at which a score is evaluated, in units of half of the interval to first order.
STEPS = np.array((0.25, 0.5, 0.75, 1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 14, 20, 30))


def standard_errors(reading: Reading, noise: PropagatedNoise) -> Vector | None:
    """Return the predicted standard error of each number, for the records; None if nothing is known.

    The variance is that of the noise and of interactions that were not measured, plus `SHRINKAGE` times the
    part of the squared shrinkage that noise does not explain. A whole square would be too much: it is a noisy
    estimate, and its largest values are chosen by being positive.
    """
    if noise.covariance is None:
        return None
    variances = reading.deviations(noise.covariance) ** 2
    if noise.unmeasured is not None:
        variances += reading.deviations(noise.unmeasured) ** 2
    if noise.shrinkage is not None and noise.shrinkage_noise is not None:
        seen = (reading.matrix @ noise.shrinkage) ** 2
        expected = reading.deviations(noise.shrinkage_noise) ** 2
        variances += SHRINKAGE * np.maximum(seen - expected, 0.0)
    errors: Vector = np.sqrt(variances + _by_bins(reading, noise.bins[0]))
    if noise.least is not None:
        errors = np.where(reading.single, np.maximum(errors, reading.widths(noise.least)), errors)
    return errors


def _by_bins(reading: Reading, variance: float) -> Vector:
    """Return the variances of the numbers due to binning; `variance`: that of the coded mean."""
    squares: Vector = (reading.matrix**2).sum(axis=1)
    return variance * squares


def interval_argument(noise: PropagatedNoise, bound: Bound | None, measured: bool) -> str:
    """Return what intervals rest on: one of `answer.INTERVALS`."""
    if noise.covariance is not None:
        return "measurement" if measured else "prediction"
    return "none" if bound is None or bound.is_excess else "bound"


def expected_error(query: CompiledQuery, reading: Reading, noise: PropagatedNoise) -> float | None:
    """Return the largest standard error of a number, margins left out; of coefficients the excess loss."""
    errors = standard_errors(reading, noise)
    if errors is not None and not (
        isinstance(query, CompiledRegression | WideRegression) and query.units is None
    ):
        return min(float(errors[reading.single].max()), reading.high - reading.low)
    return None if noise.error is None else in_units(query, noise.inverse, noise.error)


def coefficients(
    reading: Reading, theta: Vector, noise: PropagatedNoise, bound: Bound | None, n: int
) -> tuple[Coefficient, ...]:
    """Return the numbers of an answer with their intervals.

    An interval follows from the predicted standard errors, or from the bound where there are none.

    `theta`: the coded answer; `n`: number of units.
    """
    estimates, errors = reading.numbers(theta), standard_errors(reading, noise)
    halves, sampling = None, None
    own, own_sampling = (np.sqrt(_by_bins(reading, variance)) for variance in noise.bins)
    if errors is not None:
        halves = NORMAL_97_5 * np.sqrt(np.maximum(errors**2 - own**2, 0.0))  # without the errors of binning
        if noise.sampling is not None:
            sampling = reading.deviations(noise.sampling)
    elif bound is not None and not bound.is_excess:
        halves = reading.widths(bound.numbers)
    found = []
    for k, (name, known) in enumerate(zip(reading.names, reading.known, strict=True)):
        estimate, row = float(estimates[k]), reading.matrix[k]
        if known:
            found.append(Coefficient(name, estimate))
            continue
        ends: tuple[float | None, float | None] = (None, None)
        wide: tuple[float | None, float | None] = (None, None)
        if halves is not None:
            more = NORMAL_97_5 * float(own[k])
            below, above = _reach(noise.score, row, float(halves[k]), n, False)
            ends = reading.inside(estimate - math.hypot(below, more), estimate + math.hypot(above, more))
            if sampling is not None:
                more = math.hypot(more, NORMAL_97_5 * float(own_sampling[k]))
                half = math.hypot(halves[k], NORMAL_97_5 * sampling[k])
                below, above = _reach(noise.score, row, half, n, True)
                wide = reading.inside(estimate - math.hypot(below, more), estimate + math.hypot(above, more))
        error = None if errors is None else min(float(errors[k]), reading.high - reading.low)
        deviation = None if sampling is None else math.hypot(sampling[k], own_sampling[k])
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


def cut_by_set(reading: Reading, noise: PropagatedNoise, numbers: Sequence[Coefficient]) -> list[str]:
    """Return the names of coefficients whose interval ends at the edge of the set of coefficients."""
    found = []
    for row, each in zip(reading.matrix, numbers, strict=True):
        ends = [(each.low, each.high), (each.population_low, each.population_high)]
        if noise.score is None or each.low is None:
            continue
        below, above = noise.score.range(row)
        if any(
            (low is not None and each.estimate - low >= EDGE * below)
            or (high is not None and high - each.estimate >= EDGE * above)
            for low, high in ends
        ):
            found.append(each.name)
    return found


def without_hidden(
    numbers: Sequence[Coefficient], hidden: Sequence[tuple[str, str]]
) -> tuple[Coefficient, ...]:
    """Return coefficients, without errors and intervals for levels at which nobody is visible.

    The noise on so few people is not small beside their number, so that errors to first order are too small.
    If the baseline of an attribute is such a level, all of its coefficients and the intercept are about it.

    `hidden`: attributes and labels, as `PublicSide.hidden_levels` returns them.
    """
    names = {each.name for each in numbers}
    about: set[str] = set()
    for attribute, label in hidden:
        name = f"{attribute}={label}"
        if f"{name} (baseline)" in names:
            about |= {INTERCEPT, *(each for each in names if each.startswith(f"{attribute}="))}
        about |= {each for each in names if each == name or each.startswith(f"{name} (against ")}
    ends = tuple(about)

    def is_hidden(name: str) -> bool:
        return name in about or any(name.startswith(f"{one}:") or name.endswith(f":{one}") for one in ends)

    return tuple(Coefficient(each.name, each.estimate) if is_hidden(each.name) else each for each in numbers)


def _reach(
    score: ScoreFunction | None, row: Vector, half: float, n: int, population: bool
) -> tuple[float, float]:
    """Return how far an interval reaches below and above its estimate.

    With a score the interval is the hull of the values of the number that are compatible with the fit, and of
    those that are compatible with the released means before the fit: the slope of the loss along the line
    towards the value is at most `NORMAL_97_5` of its own standard deviations. For a ratio that is Fieller's
    interval. It is as long as the one to first order where standard deviation and curvature are constant, and
    longer where the curvature falls: towards a log odds without limit, or if the people whom the number is
    about may be few. The second part matters where the fit shrinks a strong dependence. The interval ends at
    the edge of the set of coefficients.

    `half`: half of the interval to first order.
    """
    if score is None or not half > 0:
        return half, half
    steps = [np.append(0.0, np.minimum(STEPS * half, room)) for room in score.range(row)]
    slope = score.along(row, np.concatenate([-steps[0], steps[1]]))
    moments = slope.moments
    sampling = slope.sampling / n if population else 0.0
    fitted = np.abs(slope.values) - NORMAL_97_5 * np.sqrt(_variances(moments) + sampling)
    released = _squares(moments.released_noise) + _squares(moments.unmeasured) + sampling
    before = np.abs(slope.values - moments.shrinkage) - NORMAL_97_5 * np.sqrt(released)
    below, above = np.split(np.minimum(fitted, before), 2)
    return _last_crossing(steps[0], below), _last_crossing(steps[1], above)


def _last_crossing(points: Vector, values: Vector) -> float:
    """Return the point after which a piecewise linear function stays above 0; the last one if it does not."""
    inside = np.flatnonzero(values <= 0)
    if not len(inside):
        return 0.0
    k = int(inside[-1])
    if k == len(points) - 1:
        return float(points[-1])
    part = values[k] / (values[k] - values[k + 1])
    return float(points[k] + part * (points[k + 1] - points[k]))


def _variances(moments: Moments) -> Vector:
    """Return the predicted variances of means, as `standard_errors` adds them up."""
    biases = np.maximum(moments.shrinkage**2 - _squares(moments.shrinkage_noise), 0.0)
    variances: Vector = _squares(moments.noise) + _squares(moments.unmeasured) + SHRINKAGE * biases
    return variances


def _squares(root: Vector) -> Vector:
    """Return the variances of which a matrix is the root."""
    squares: Vector = (root**2).sum(axis=0)
    return squares
