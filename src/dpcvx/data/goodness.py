"""Goodness of fit: bounded sums of the errors of a model, of those of a constant, and of predicted means."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpcvx.arrays import IntVector, Vector
from dpcvx.data.lattice import fixed_point
from dpcvx.data.rows import Records, dense_block
from dpcvx.data.sums import Distance, PlainSum, RowBounds
from dpcvx.errors import WrongValue
from dpcvx.losses import BoundedInfluence, DevianceLoss

if TYPE_CHECKING:
    from dpcvx.accounting import Neighbours

__all__ = [
    "GOODNESS_BITS",
    "Deviances",
    "FitMeasure",
    "GoodnessSum",
    "LogLosses",
    "MeanTotals",
    "SquaredErrors",
    "goodness_squared",
]

GOODNESS_BITS = 18
ONE = 2**GOODNESS_BITS  # largest value of a term
CELLS_AT_ONCE = 2**19
SEEN = 3.0  # the loss of a constant must be this many standard deviations of its noise
# Largest (u/2 - v/2)^2 + (u^2 - v^2)^2 for |u|, |v| <= 1: w^2 (1/4 + (2 - w)^2), w = |u - v|, is largest at
# w = (6 - sqrt 2)/4.
PAIR = ((6 - math.sqrt(2)) / 4) ** 3 * (2 + math.sqrt(2)) / 4


@dataclass(frozen=True)
class SquaredErrors:
    """Sums of squared errors of a linear model and of its targets: R².

    Terms of a record with target y and score z: (r^2, u/2, u^2), r = (z - y)/reach and u = y/target_reach
    clipped to [-1, 1]. Two records differ by at most sqrt(1 + 1.28615) in the l2 norm, and a record without a
    target, (0, 0, 0), from another one by sqrt(1 + 1/4 + 1) at most. If a record
    was divided by its length, z and y are multiplied by that length, which is stored in the target
    (`BoundedInfluence`).
    """

    reach: float
    target_reach: float
    packed: bool = False  # whether records were divided by the lengths that their targets hold
    # part of R² that clipping may add; half of it counts as a standard deviation of R²
    lost: float = 0.0

    name: ClassVar[str] = "R²"
    size: ClassVar[int] = 3  # number of terms
    apart: ClassVar[float] = 1 + PAIR  # largest squared distance of two records
    longest: ClassVar[float] = 2.25  # largest squared length of a record

    def terms(self, z: Vector, y: Vector, last: NDArray[np.int16], base: Vector) -> NDArray[np.int64]:
        """Return the terms of records, shape (3, m); `last` and `base` are not used."""
        known = ~np.isnan(y)
        target, length = np.where(known, y, 0.0), np.ones(len(z))
        if self.packed:
            target, length = BoundedInfluence.unpack(target)
        error = np.where(known, np.clip(length * (z - target) / self.reach, -1.0, 1.0), 0.0)
        half = np.rint(np.clip(length * target / self.target_reach, -1.0, 1.0) * (ONE // 2))
        halves = half.astype(np.int64)
        return np.stack([_rounded(error**2), halves, 4 * halves**2 >> GOODNESS_BITS])

    def explained(self, sums: Vector, noise: float, present: float) -> tuple[float, float] | None:
        """Return R² and its standard deviation, of noise and clipping; None if noise hides the variance of y.

        `sums`: released sums over n; `noise`: standard deviation of the noise on each of them; `present`:
        share of the records that have a target.
        """
        errors, half, square = (float(each) for each in sums)
        total = square - 4 * max(half**2 - noise**2, 0.0) / present
        unsure = noise * math.hypot(1.0, 8 * half / present)
        ratio = (self.reach / self.target_reach) ** 2
        if total < SEEN * unsure:
            return None
        left = ratio * errors / total
        return 1 - left, math.hypot(ratio * noise / total, left * unsure / total, self.lost / 2)

    def error_variance(self, sums: Vector, noise: float, present: float) -> tuple[float, float]:
        """Return the mean squared error of the fit and its noise, in squared units of the target."""
        unit = self.reach**2 / present
        return max(unit * float(sums[0]), 0.0), unit * noise


@dataclass(frozen=True)
class LogLosses:
    """Sum of the log-losses of a classifier of two classes, and the numbers of both: McFadden's pseudo-R².

    Terms of a record: (min(log-loss, largest)/largest, 1/2 for the second class, 1/2 for the first). Two
    records differ by at most sqrt(1 + 1/4 + 1/4) in the l2 norm, and one without a label, (0, 0, 0), from
    another one by sqrt(1 + 1/4) at most.
    """

    largest: float

    name: ClassVar[str] = "pseudo-R²"
    size: ClassVar[int] = 3
    apart: ClassVar[float] = 1.5
    longest: ClassVar[float] = 1.25

    def terms(self, z: Vector, y: Vector, last: NDArray[np.int16], base: Vector) -> NDArray[np.int64]:
        """Return the terms of records, shape (3, m), of which `last` and `base` are not used.

        A label is -1 or 1, or larger where the row is shorter by as much, which leaves y z as it is.
        """
        known = np.abs(y) >= 1
        losses = np.where(known, np.logaddexp(0.0, -np.where(known, y, 0.0) * z), 0.0)
        half = ONE // 2
        scaled = np.minimum(losses / self.largest, 1.0)
        return np.stack([_rounded(scaled), half * (known & (y > 0)), half * (known & (y < 0))])

    def explained(self, sums: Vector, noise: float, present: float) -> tuple[float, float] | None:
        """Return the pseudo-R² and the standard deviation of its noise; None where noise hides a class."""
        losses, classes = self.largest * float(sums[0]), 2 * sums[1:]
        if min(classes) < SEEN * 2 * noise:
            return None
        surprise = -np.log(classes / classes.sum())
        total, unsure = float(classes @ surprise), 2 * noise * float(np.sqrt((surprise**2).sum()))
        if total < SEEN * unsure:
            return None
        left = losses / total
        return 1 - left, math.hypot(self.largest * noise, left * unsure) / total


@dataclass(frozen=True)
class Deviances:
    """Sums of the deviances of a model of means and of a constant, of targets and constant means: D².

    Terms of a record with outcome y, mean m and mean m0 of the constant: (D(y, m)/largest, D(y, m0)/largest,
    y/(2 reach), m0/(2 reach)), deviances D clipped at `largest`, the others at `reach`. They are in the box
    [0, 1]^2 x [0, 1/2]^2, which holds 0 too: two records differ by at most sqrt(5/2) in the l2 norm.
    """

    loss: DevianceLoss
    largest: float
    reach: float

    name: ClassVar[str] = "D²"
    size: ClassVar[int] = 4
    apart: ClassVar[float] = 2.5
    longest: ClassVar[float] = 2.5

    def terms(self, z: Vector, y: Vector, last: NDArray[np.int16], base: Vector) -> NDArray[np.int64]:
        """Return the terms of records, shape (4, m). `base`: scores of the constant; `last` is not used."""
        known = ~np.isnan(y)
        outcome = self.loss.outcome(np.where(known, y, 0.0))
        means = (self.loss.mean(z), self.loss.mean(base))
        deviances = (np.nan_to_num(self.loss.deviance(outcome, mean), nan=np.inf) for mean in means)
        errors = [_rounded(np.minimum(each / self.largest, 1.0)) for each in deviances]
        totals = [_rounded(np.minimum(each / self.reach, 1.0)) // 2 for each in (outcome, means[1])]
        return np.stack([*errors, *totals]) * known

    def explained(self, sums: Vector, noise: float, present: float) -> tuple[float, float] | None:
        """Return D² and the standard deviation of its noise; None where noise hides the deviance of y.

        The best constant has the mean of the targets: its deviance is that of the given one, less the
        deviance of one mean from the other.
        """
        totals = 2 * self.reach * sums[2:]
        if min(totals) < SEEN * 2 * self.reach * noise:
            return None
        mean, base = totals / present
        if self.loss.link == "logit":
            mean, base = np.clip((mean, base), 1e-3, 1 - 1e-3)
        errors, whole = self.largest * sums[:2]
        whole = float(whole) - present * float(self.loss.deviance(np.array(mean), np.array(base)))
        unsure = self.largest * noise
        if whole < SEEN * unsure:
            return None
        left = float(errors) / whole
        return 1 - left, unsure * math.hypot(1.0, left) / whole


@dataclass(frozen=True)
class MeanTotals:
    """Sums of targets and of predicted means, by which a model of means is calibrated.

    Terms of a record with outcome y and mean m: (y/reach, m/mean_reach), both clipped to [0, 1]. Two records
    differ by at most sqrt(2) in the l2 norm, and one from (0, 0) by no more.
    """

    loss: DevianceLoss
    reach: float
    mean_reach: float

    name: ClassVar[str] = "totals"
    size: ClassVar[int] = 2
    apart: ClassVar[float] = 2.0
    longest: ClassVar[float] = 2.0

    def terms(self, z: Vector, y: Vector, last: NDArray[np.int16], base: Vector) -> NDArray[np.int64]:
        """Return the terms of records, shape (2, m), of which `last` and `base` are not used."""
        known = ~np.isnan(y)
        outcome = self.loss.outcome(np.where(known, y, 0.0))
        shares = outcome / self.reach, self.loss.mean(z) / self.mean_reach
        return np.stack([_rounded(np.minimum(each, 1.0)) for each in shares]) * known

    def log_ratio(self, sums: Vector, noise: float) -> tuple[float, float] | None:
        """Return log(sum of targets/sum of means) and the standard deviation of its noise; None if hidden.

        `sums`: released sums over n; `noise`: standard deviation of the noise on each of them.
        """
        first, second = (float(each) for each in sums)
        if min(first, second) < SEEN * noise:
            return None
        ratio = self.reach * first / (self.mean_reach * second)
        return math.log(ratio), noise * math.hypot(1 / first, 1 / second)


FitMeasure = SquaredErrors | LogLosses | Deviances | MeanTotals


@dataclass(frozen=True, eq=False)
class GoodnessSum(PlainSum):
    """sum_i of the terms of a measure at a public theta, in units of 2^-18.

    Weights multiply all of them.
    """

    theta: Vector  # shape (d,)
    measure: FitMeasure
    base: Vector | None = None  # shape (d,): public theta of a constant model; by default 0

    def check(self, d: int) -> None:
        """Refuse a theta of another length."""
        if len(self.theta) != d or (self.base is not None and len(self.base) != d):
            raise WrongValue(f"theta has {len(self.theta)} rows, but the records have {d} features.")

    def among(self, start: int, stop: int) -> GoodnessSum:
        """Return the same question."""
        return self

    def of(self, records: Records) -> IntVector:
        """Return the sum over records in memory, a block of rows at a time."""
        from dpcvx.data import kernels

        self.check(records.d)
        y, rows, weights = records.y, records.whole_rows(), records.weights
        if records.outcomes != 1:
            raise WrongValue(f"One target is to be compared; these records have {records.outcomes}.")
        n, d = rows.shape
        points = [fixed_point(each) for each in (self.theta, self.base) if each is not None]
        total, step = np.zeros(self.measure.size, dtype=np.int64), max(1, CELLS_AT_ONCE // d)
        for start in range(0, n, step):
            stop = min(n, start + step)
            block = dense_block(rows, start, stop)
            scores = np.zeros((2, stop - start))
            for score, (integers, unit) in zip(scores, points, strict=False):
                margins = np.empty((1, stop - start), dtype=np.int64)
                kernels.multiply_dense(block, integers, 0, stop - start, 0, margins)
                score += margins[0] * unit
            if records.offset:
                scores += y[1, start:stop]
            with np.errstate(all="ignore"):  # the content of a record never triggers a warning
                terms = self.measure.terms(scores[0], y[0, start:stop], block[:, -1], scores[1])
            if weights is not None:
                terms = terms * weights[start:stop]
            total += terms.sum(axis=1)
        return total

    def distances(
        self, one: IntVector, other: IntVector, row: RowBounds, neighbours: Neighbours
    ) -> list[Distance]:
        """The diameter of the terms of one unit."""
        moved = sum((int(a) - int(b)) ** 2 for a, b in zip(one, other, strict=True))
        return [(moved, goodness_squared(self.measure, neighbours))]


def goodness_squared(measure: FitMeasure, neighbours: Neighbours) -> int:
    """Return the squared l2 sensitivity of a `GoodnessSum`, on the integers.

    A record without a target adds 0. Squares are rounded down after u is on the grid, which moves two records
    apart by less than one unit.
    """
    apart, longest = (
        (math.isqrt(math.ceil(square * ONE**2)) + 2) ** 2
        for square in (max(measure.apart, measure.longest), measure.longest)
    )
    return neighbours.weight**2 * neighbours.squared_diameter(apart, longest)


def _rounded(shares: Vector) -> NDArray[np.int64]:
    """Round numbers of [0, 1] to the grid; NaN becomes 0, and numbers outside are clipped."""
    found: NDArray[np.int64] = np.clip(np.rint(np.nan_to_num(shares) * ONE), 0, ONE).astype(np.int64)
    return found
