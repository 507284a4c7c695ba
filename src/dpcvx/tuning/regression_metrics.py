"""Metrics of regressors and of models of means; see `dpcvx.tuning.metrics`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpcvx.arrays import IntVector, Vector
from dpcvx.data.canonical import read_numbers
from dpcvx.data.cells import native_array
from dpcvx.errors import WrongValue
from dpcvx.losses import DevianceLoss
from dpcvx.tuning.ratios import SEEN, UNKNOWN, Interval, Ratio, TotalNoise
from dpcvx.tuning.totals import UNIT, add_up
from dpcvx.words import show

__all__ = ["D2", "R2", "MeanError"]

# A regressor's totals are sums over the rows that have a target; a share of the count of these rows keeps the
# price low (PRIVACY_MATH §17).
COUNT_SHARE = 1 / 8
LEAST_MEAN = 1e-6  # of a target >= 0, over its upper bound
LEAST_VARIANCE = 1e-6  # of a target, in squares of half the width of its bounds
# Beyond 1, an error that is all noise is seldom taken for a large one.
LEAST_ERROR = 1.5  # mean error in half-widths of its interval
MOST_UNSURE = 1.0  # an interval of an explained share that is longer says nothing


@dataclass(frozen=True)
class MeanError:
    """Minus the mean error of a regressor over the rows that have a target.

    Two totals: the errors, over their largest value, and an eighth of the number of rows with a target. A row
    that gets or loses its target changes them by at most 1 and 1/8; two rows with one, the first by 1.
    """

    error: str  # {"squared", "root", "absolute"}; "root" is the root of the mean square
    target: tuple[float, float]  # bounds of target and predictions, to which both are clipped

    l1: ClassVar[int] = UNIT + int(COUNT_SHARE * UNIT)
    l2: ClassVar[float] = math.hypot(1, COUNT_SHARE) * UNIT
    size: ClassVar[int] = 2

    def __post_init__(self) -> None:
        _require_number(self.largest, self.target)

    @property
    def largest(self) -> float:
        """Largest value of the error: the width of the bounds, or its square."""
        width = self.target[1] - self.target[0]
        return width * width if self.error == "squared" else width

    @property
    def range(self) -> tuple[float, float]:
        """From minus the bound to 0."""
        return -self.largest, 0.0

    def totals(self, model: Any, X: Any, y: Any, weights: IntVector | None = None) -> IntVector:
        """Return both sums."""
        low, high = self.target
        predicted, truth, present = _predictions(model, X, y, self.target)
        errors = (abs(predicted - truth) / (high - low)) ** (1 if self.error == "absolute" else 2)
        parts = np.column_stack([errors, np.full_like(errors, COUNT_SHARE)])
        return add_up(present[:, None] * parts, weights)

    def value(self, totals: Vector, n: int) -> float:
        """Return minus the mean, or minus its root; noise may leave fewer targets than one."""
        mean = float(totals[0]) / max(float(totals[1]) / COUNT_SHARE, 1.0)
        return -self.largest * (math.sqrt(max(mean, 0.0)) if self.error == "root" else mean)

    def interval(self, totals: Vector, n: int, noise: TotalNoise) -> Interval:
        """Return Fieller's interval; for the root, negative means have negative roots."""
        variance = noise.deviation**2
        variances = variance, variance / COUNT_SHARE**2
        low, high = Ratio(float(totals[0]), float(totals[1]) / COUNT_SHARE, variances).interval(noise.width)
        if self.error == "root":
            low, high = (math.copysign(math.sqrt(abs(end)), end) for end in (low, high))
        return -self.largest * high, -self.largest * low

    def hides(self, interval: Interval) -> bool:
        """Whether the mean error is below one and a half times the half-width of its interval."""
        if math.isinf(interval[0]):
            return True
        small, large = (-end / self.largest for end in reversed(interval))
        if self.error == "root":
            small, large = small * abs(small), large * abs(large)
        return small + large < LEAST_ERROR * (large - small)


@dataclass(frozen=True)
class R2:
    """Share of the variance of a target that is explained, 1 - residual squares / squares about the mean.

    Target and predictions are clipped to bounds, errors are not clipped further: the R^2 of a target within
    its bounds. Four totals over the rows that have a target, u in [-1, 1] being its place between the bounds:
    the squared error over the squared width, u^2/2, u/4 and 1/8. A row that gets or loses its target changes
    them by at most 1, 1/2, 1/4 and 1/8. Two rows with targets u and v change the second and third by
    |u - v| (|u + v|/2 + 1/4) <= 25/32 in all, as |u - v| + |u + v| <= 2: less than 7/8.
    """

    target: tuple[float, float]  # bounds of target and predictions, to which both are clipped

    l1: ClassVar[int] = UNIT + UNIT // 2 + UNIT // 4 + UNIT // 8
    l2: ClassVar[float] = math.hypot(1, 1 / 2, 1 / 4, 1 / 8) * UNIT
    size: ClassVar[int] = 4
    range: ClassVar[tuple[float, float]] = (-math.inf, 1.0)

    def totals(self, model: Any, X: Any, y: Any, weights: IntVector | None = None) -> IntVector:
        """Return the four sums."""
        low, high = self.target
        predicted, truth, present = _predictions(model, X, y, self.target)
        place = 2 * ((truth - low) / (high - low)) - 1
        parts = [
            ((predicted - truth) / (high - low)) ** 2,
            place**2 / 2,
            place / 4,
            np.full_like(place, 1 / 8),
        ]
        return add_up(present[:, None] * np.column_stack(parts), weights)

    def value(self, totals: Vector, n: int) -> float:
        """Return R^2; a variance that noise made too small counts as the least one."""
        error, square, place, count = totals
        present = max(8 * count, 1.0)
        variance = max(2 * square / present - (4 * place / present) ** 2, LEAST_VARIANCE)
        return float(1 - 4 * error / present / variance)

    def interval(self, totals: Vector, n: int, noise: TotalNoise) -> Interval:
        """Return Fieller's interval of residual squares / squares about the mean, taken from 1.

        The squares about the mean, 2 t2 - (4 t3)^2/(8 t4), have three noisy totals: their variance is that of
        a linear function about the released totals, and that of the squared noise on t3. The mean of this
        noise is subtracted.
        """
        error, square, place, count = (float(total) for total in totals)
        variance, present = noise.deviation**2, count / COUNT_SHARE
        if present < SEEN * noise.deviation / COUNT_SHARE:
            return UNKNOWN
        about = 2 * square - 16 * (place**2 - variance) / present
        slopes = 2, 32 * place / present, 16 * (place / present) ** 2 / COUNT_SHARE
        # The square of Laplace noise has the variance 5 sigma^4, that of Gaussian noise less.
        spread = variance * sum(slope**2 for slope in slopes) + 5 * (16 * variance / present) ** 2
        low, high = Ratio(4 * error, about, (16 * variance, spread)).interval(noise.width)
        return 1 - high, 1 - low

    def hides(self, interval: Interval) -> bool:
        """Whether the interval is longer than from 0 to 1."""
        return interval[1] - interval[0] >= MOST_UNSURE


@dataclass(frozen=True)
class D2:
    """Share of the deviance of counts, amounts or shares that is explained, beside the best constant rate.

    D(y, m) is the deviance of a target y from its mean m, and m0 a constant of an eighth of the upper bound
    of the target, in proportion to the exposures if the rows have any. Five totals over the rows that have a
    target: D(y, m) over the largest deviance D(high, high/8), and half of it for m0; y/(4 high), m0/high
    and 1/8, all clipped. A row that gets or loses its target changes them by at most 1, 1/2, 1/4,
    1/8 and 1/8, and two rows with targets by no more. The best constant rate has the mean of the targets; its
    deviance is that of m0 less n D(mean of y, mean of m0).
    """

    law: DevianceLoss
    target: tuple[float, float]  # bounds of the target, to which it is clipped

    l1: ClassVar[int] = 2 * UNIT
    l2: ClassVar[float] = math.hypot(1, 1 / 2, 1 / 4, 1 / 8, 1 / 8) * UNIT
    size: ClassVar[int] = 5
    range: ClassVar[tuple[float, float]] = (-math.inf, 1.0)

    def __post_init__(self) -> None:
        _require_number(self.largest, self.target)

    @property
    def largest(self) -> float:
        """Largest deviance of a row."""
        return self._deviance(self.target[1], self.target[1] / 8)

    def totals(self, model: Any, X: Any, y: Any, weights: IntVector | None = None) -> IntVector:
        """Return the five sums."""
        high = self.target[1]
        _, truth, present = _predictions(model, X, y, self.target)
        with np.errstate(all="ignore"):
            means, exposures = model.predict(X), np.broadcast_to(model.exposures(X), truth.shape)
            present = present * np.isfinite(means * exposures)
            largest = getattr(model, "max_exposure", None) or 1.0
            base = high / 8 * np.clip(exposures / largest, 0.0, 1.0)
            errors = (
                np.nan_to_num(self.law.deviance(truth, np.maximum(mean, high * LEAST_MEAN)), nan=np.inf)
                / self.largest
                for mean in (means, base)
            )
            first, second = (np.clip(each, 0.0, 1.0) for each in errors)
        parts = [first, second / 2, np.clip(truth / high, 0.0, 1.0) / 4, np.nan_to_num(base) / high]
        return add_up(present[:, None] * np.column_stack([*parts, np.full_like(first, 1 / 8)]), weights)

    def value(self, totals: Vector, n: int) -> float:
        """Return D^2; a deviance that noise made too small counts as the least one."""
        present = max(float(totals[4]) / COUNT_SHARE, 1.0)
        return 1 - float(totals[0]) / present / max(self._whole(totals) / present, LEAST_VARIANCE)

    def interval(self, totals: Vector, n: int, noise: TotalNoise) -> Interval:
        """Return Fieller's interval of the deviances' ratio, taken from 1.

        The variance of the constant's deviance follows from moving each total by a standard deviation. The
        mean of the target must be away from 0, as its logarithm enters.
        """
        sigma = noise.deviation
        if min(totals[2:]) < SEEN * sigma:
            return UNKNOWN
        moves = sigma * np.eye(self.size)[1:]
        halves = ((self._whole(totals + move) - self._whole(totals - move)) / 2 for move in moves)
        spread = math.fsum(half**2 for half in halves)
        ratio = Ratio(float(totals[0]), self._whole(totals), (sigma**2, spread))
        low, high = ratio.interval(noise.width)
        return 1 - high, 1 - low

    def hides(self, interval: Interval) -> bool:
        """Whether the interval is longer than from 0 to 1."""
        return interval[1] - interval[0] >= MOST_UNSURE

    def _whole(self, totals: Vector) -> float:
        """Deviance of the best constant rate, summed over the rows, over the largest deviance of a row."""
        high, present = self.target[1], max(float(totals[4]) / COUNT_SHARE, 1.0)
        mean, base = (
            min(max(float(each) * high / present, high * LEAST_MEAN), high * (1 - LEAST_MEAN))
            for each in (4 * totals[2], totals[3])
        )
        return 2 * float(totals[1]) - present * self._deviance(mean, base) / self.largest

    def _deviance(self, outcome: float, mean: float) -> float:
        with np.errstate(over="ignore"):
            return float(self.law.deviance(np.array(outcome), np.array(mean)))


def _require_number(largest: float, bounds: tuple[float, float]) -> None:
    """Refuse bounds whose largest error overflows or underflows, before a score is charged."""
    if not 0 < largest < math.inf:
        raise WrongValue(
            f"The largest error within bounds {show(bounds)} is too large or too small for a number: use "
            "another unit of the target, or another score."
        )


def _predictions(model: Any, X: Any, y: Any, bounds: tuple[float, float]) -> tuple[Vector, Vector, Vector]:
    """Predictions and targets within the bounds, and whether each target is a finite number.

    A prediction that is not a number, and a missing target, count as the middle of the bounds.
    """
    low, high = bounds
    with np.errstate(all="ignore"):
        predicted = model.predict(X)
    formula = getattr(getattr(model, "best_estimator_", model), "formula_", None)
    raw = native_array(y).reshape(-1)
    truth = read_numbers(raw) if formula is None else formula.row_map.target_numbers(raw)
    present = np.isfinite(truth)
    first, second = (
        np.clip(np.where(known, part, low + (high - low) / 2), low, high)
        for part, known in ((predicted, ~np.isnan(predicted)), (truth, present))
    )
    return first, second, present.astype(np.float64)
