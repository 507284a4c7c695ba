"""Metrics of a model as functions of totals: sums over rows of bounded integers, each made from one row.

Names are scikit-learn's, and larger is better. Whatever a row holds, it adds at most one unit to each total.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from dpcvx.arrays import IntVector, Vector
from dpcvx.data.canonical import read_numbers
from dpcvx.data.cells import native_array
from dpcvx.data.target import Labels
from dpcvx.errors import WrongType, WrongValue
from dpcvx.losses import DevianceLoss
from dpcvx.words import show

__all__ = [
    "CLASSIFICATION",
    "METRICS",
    "REGRESSION",
    "UNIT",
    "Metric",
    "metric_of",
    "score_edges",
    "scorings",
]

UNIT = 2**20  # lattice steps of the largest contribution of a row to a total
# Predicted probabilities below 1/100 count as 1/100.
LARGEST_LOG_LOSS = math.log(100.0)
# A regressor's totals are sums over the rows that have a target; a share of the count of these rows keeps the
# price low (PRIVACY_MATH §17).
COUNT_SHARE = 1 / 8
BINS = 40  # of scores, for the area under the ROC curve and for calibration
LEAST_MEAN = 1e-6  # of a target >= 0, over its upper bound
LEAST_VARIANCE = 1e-6  # of a target, in squares of half the width of its bounds


class Metric(Protocol):
    """A metric of a model as a function of totals; larger is better."""

    @property
    def l1(self) -> int:
        """Largest l1 change of the totals if one row is replaced, in lattice steps."""
        ...

    @property
    def l2(self) -> float:
        """Largest l2 change of the totals if one row is replaced, in lattice steps."""
        ...

    @property
    def size(self) -> int:
        """Number of totals."""
        ...

    @property
    def range(self) -> tuple[float, float]:
        """Values that the metric can have."""
        ...

    def totals(self, model: Any, X: Any, y: Any, weights: IntVector | None = None) -> IntVector:
        """Return the exact sums over the rows, in lattice steps; no cell can cause an error.

        `weights`: integer weights of the rows, by default 1.
        """
        ...

    def value(self, totals: Vector, n: int) -> float:
        """Return the metric of n rows with these totals, in units of the largest contribution of a row."""
        ...


def _steps(shares: Vector, weights: IntVector | None) -> IntVector:
    """Sum of contributions between -1 and 1, in lattice steps; NaN counts as 1."""
    clipped = np.clip(np.where(np.isnan(shares), 1.0, shares), -1.0, 1.0)
    steps: IntVector = np.rint(UNIT * clipped).astype(np.int64)
    sums: IntVector = steps.sum(axis=0) if weights is None else weights @ steps
    return sums


def _counts(cells: IntVector, labels: IntVector, size: int, weights: IntVector | None) -> IntVector:
    """Weight of the rows with a declared label in each cell, in lattice steps."""
    known = labels >= 0
    counts: IntVector = np.zeros(size, dtype=np.int64)
    np.add.at(counts, cells[known], 1 if weights is None else weights[known])
    return UNIT * counts


@dataclass(frozen=True)
class Accuracy:
    """Share of the rows whose label is predicted."""

    l1: ClassVar[int] = UNIT
    l2: ClassVar[float] = UNIT
    size: ClassVar[int] = 1
    range: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def totals(self, model: Any, X: Any, y: Any, weights: IntVector | None = None) -> IntVector:
        """Return the number of rows that are right."""
        return _steps((_predicted(model, X) == _labels(model, y))[:, None].astype(np.float64), weights)

    def value(self, totals: Vector, n: int) -> float:
        """Return the share."""
        return float(totals[0] / n)


@dataclass(frozen=True)
class BalancedAccuracy:
    """Mean over the classes of the share of their rows that is predicted.

    A row is in one of 2 K cells, its class and whether it is right: replacing it changes two counts by one.
    """

    classes: int  # K

    l1: ClassVar[int] = 2 * UNIT
    l2: ClassVar[float] = math.sqrt(2) * UNIT
    range: ClassVar[tuple[float, float]] = (0.0, 1.0)

    @property
    def size(self) -> int:
        """Number of cells."""
        return 2 * self.classes

    def totals(self, model: Any, X: Any, y: Any, weights: IntVector | None = None) -> IntVector:
        """Return the counts: right ones by class, then wrong ones; other labels are in no cell."""
        labels = _labels(model, y)
        cells = labels + self.classes * (_predicted(model, X) != labels)
        return _counts(cells, labels, self.size, weights)

    def value(self, totals: Vector, n: int) -> float:
        """Return the mean of the shares; noise may leave a class fewer rows than one."""
        right, wrong = totals[: self.classes], totals[self.classes :]
        return float(np.clip(right / np.maximum(right + wrong, 1.0), 0.0, 1.0).mean())


@dataclass(frozen=True)
class MeanLoss:
    """Minus the mean loss of a classifier's probabilities over the rows, each clipped to a public bound."""

    loss: str  # {"log", "brier"}
    largest: float  # bound on one row's loss

    l1: ClassVar[int] = UNIT
    l2: ClassVar[float] = UNIT
    size: ClassVar[int] = 1

    @property
    def range(self) -> tuple[float, float]:
        """From minus the bound to 0."""
        return -self.largest, 0.0

    def totals(self, model: Any, X: Any, y: Any, weights: IntVector | None = None) -> IntVector:
        """Return the sum of the losses; a label that is none of the classes has the largest."""
        labels = _labels(model, y)
        with np.errstate(all="ignore"):
            chances = model.predict_log_proba(X)
            if self.loss == "log":
                losses = -chances[np.arange(len(labels)), labels]
            else:
                truth = labels[:, None] == np.arange(chances.shape[1])
                losses = self.largest / 2 * ((np.exp(chances) - truth) ** 2).sum(axis=1)
            shares = np.maximum(np.where(labels < 0, self.largest, losses) / self.largest, 0.0)
        return _steps(shares[:, None], weights)

    def value(self, totals: Vector, n: int) -> float:
        """Return minus the mean."""
        return -self.largest * float(totals[0]) / n


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

    @property
    def largest(self) -> float:
        """Largest error of a row: the width of the bounds, or its square."""
        width = self.target[1] - self.target[0]
        return width if self.error == "absolute" else width**2

    @property
    def range(self) -> tuple[float, float]:
        """From minus the bound to 0."""
        return -math.sqrt(self.largest) if self.error == "root" else -self.largest, 0.0

    def totals(self, model: Any, X: Any, y: Any, weights: IntVector | None = None) -> IntVector:
        """Return both sums."""
        low, high = self.target
        predicted, truth, present = _predictions(model, X, y, self.target)
        errors = (abs(predicted - truth) / (high - low)) ** (1 if self.error == "absolute" else 2)
        parts = np.column_stack([errors, np.full_like(errors, COUNT_SHARE)])
        return _steps(present[:, None] * parts, weights)

    def value(self, totals: Vector, n: int) -> float:
        """Return minus the mean, or minus its root; noise may leave fewer targets than one."""
        mean = self.largest * float(totals[0]) / max(float(totals[1]) / COUNT_SHARE, 1.0)
        return -math.sqrt(max(mean, 0.0)) if self.error == "root" else -mean


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
        return _steps(present[:, None] * np.column_stack(parts), weights)

    def value(self, totals: Vector, n: int) -> float:
        """Return R^2; a variance that noise made too small counts as the least one."""
        error, square, place, count = totals
        present = max(8 * count, 1.0)
        variance = max(2 * square / present - (4 * place / present) ** 2, LEAST_VARIANCE)
        return float(1 - 4 * error / present / variance)


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
        return _steps(present[:, None] * np.column_stack([*parts, np.full_like(first, 1 / 8)]), weights)

    def value(self, totals: Vector, n: int) -> float:
        """Return D^2; a deviance that noise made too small counts as the least one."""
        present = max(8 * float(totals[4]), 1.0)
        errors, whole = (float(each) * self.largest / present for each in (totals[0], 2 * totals[1]))
        high = self.target[1]
        most = high * (1 - LEAST_MEAN)
        mean, base = (
            min(max(float(each) * high / present, high * LEAST_MEAN), most)
            for each in (4 * totals[2], totals[3])
        )
        whole = max(whole - self._deviance(mean, base), LEAST_VARIANCE * self.largest)
        return 1 - errors / whole

    def _deviance(self, outcome: float, mean: float) -> float:
        return float(self.law.deviance(np.array(outcome), np.array(mean)))


@dataclass(frozen=True)
class AreaUnderCurve:
    """Area under the ROC curve of two classes, from histograms of the scores of either class.

    A row is in one of 2 B cells, its class and the bin of its score, or, without a declared label, in none:
    replacing it changes two counts by one (l1 2, l2 sqrt 2), as for counts of a class target. Bins are those
    of `score_edges`, made of released numbers. Two rows in the same bin count as half ordered, so
    the error of the area is at most half the probability that a row of each class share a bin.
    """

    bins: int = BINS

    l1: ClassVar[int] = 2 * UNIT
    l2: ClassVar[float] = math.sqrt(2) * UNIT
    range: ClassVar[tuple[float, float]] = (0.0, 1.0)

    @property
    def size(self) -> int:
        """Number of cells."""
        return 2 * self.bins

    def totals(self, model: Any, X: Any, y: Any, weights: IntVector | None = None) -> IntVector:
        """Return the counts: by bin of the first class, then of the second."""
        labels = _labels(model, y)
        with np.errstate(all="ignore"):
            scores = model.decision_function(X)
        places = np.searchsorted(score_edges(model, self.bins), np.where(np.isnan(scores), 0.0, scores))
        return _counts(places + self.bins * labels, labels, self.size, weights)

    def value(self, totals: Vector, n: int) -> float:
        """Return the area; noise may leave a class fewer rows than one."""
        below, above = totals.reshape(2, -1)
        ranks = np.cumsum(below) - below / 2
        return float(above @ ranks / (max(below.sum(), 1.0) * max(above.sum(), 1.0)))


def score_edges(model: Any, bins: int = BINS) -> Vector:
    """Return public edges between bins of a two-class model's scores, shape (bins - 1,).

    They are dense where scores are expected, and reach as far as scores can: about the score of the centre of
    the features, in steps that grow like sinh with the distance in standard deviations of independent
    features. Centre and deviations are those of the fit's region, or of numbers spread evenly over the bounds
    that the privacy statement lists. Every number used was released or declared.

    `model`: fitted, with two classes.
    """
    rows, coef = model.formula_.row_map, model.coef_
    region, places = rows.region, rows.compared
    if region is None:
        bounds = model.privacy_statement_.bounds["bounds"]
        low, high = np.array(bounds["low"])[places], np.array(bounds["high"])[places]
        center, scale = (low + high) / 2, (high - low) / math.sqrt(12)
        farthest = float(abs(coef) @ (high - low)) / 2
    elif region.basis is not None:  # features without units, about 0, and of at most this length
        center = np.zeros_like(coef)
        scale = np.full_like(coef, region.length / math.sqrt(len(coef)))
        farthest = float(np.linalg.norm(coef)) * region.length
    else:
        center, scale = region.center[places], region.scale[places]
        farthest = float(np.linalg.norm(coef * scale)) * region.length
    spread = float(np.linalg.norm(coef * scale)) or 1.0
    reach = math.asinh(max(farthest / spread, 1.0))
    steps = np.linspace(-reach, reach, bins + 1)[1:-1]
    edges: Vector = float(center @ coef) + model.intercept_ + spread * np.sinh(steps)
    return edges


CLASSIFICATION = ("accuracy", "balanced_accuracy", "roc_auc", "neg_log_loss", "neg_brier_score")
REGRESSION = ("r2", "neg_mean_squared_error", "neg_root_mean_squared_error", "neg_mean_absolute_error")
ERRORS = {
    "neg_mean_squared_error": "squared",
    "neg_root_mean_squared_error": "root",
    "neg_mean_absolute_error": "absolute",
}
MEANS = ("d2", *REGRESSION)  # of models of counts, amounts and shares
METRICS = (*CLASSIFICATION, *MEANS)


def scorings(model: Any) -> tuple[str, ...]:
    """Return the names of the metrics of a model, the default one first."""
    if hasattr(model, "law"):
        return MEANS
    return REGRESSION if hasattr(model, "y_bounds") else CLASSIFICATION


def metric_of(
    model: Any, scoring: str | None = None, bounds: tuple[float, float] | None = None, *, n_classes: int = 0
) -> Metric:
    """Return the metric with the name, for a model.

    `model`: a classifier or regressor of dpcvx. `scoring`: one of `METRICS`, which are scikit-learn's names;
    by default accuracy, R^2, or D^2 of a model of counts, amounts or shares. `bounds`: of a regressor: bounds
    of the target, by default its ``y_bounds``. Of log loss: 0 and the largest loss of a row, by default
    log(100). `n_classes`: of a classifier.
    """
    regressor = hasattr(model, "y_bounds")
    known = scorings(model)
    name = known[0] if scoring is None else scoring
    if not isinstance(name, str) or name not in known:
        raise WrongValue(f"scoring must be one of {', '.join(known)} for this model, got {scoring!r}.")
    if name in ("neg_log_loss", "neg_brier_score") and not hasattr(model, "predict_log_proba"):
        raise WrongType(f"{name} needs probabilities, which {type(model).__name__} does not have.")
    if regressor:
        target = _pair(_target_bounds(model) if bounds is None else bounds)
        if name == "d2":
            if bounds is not None and target[0] < 0:
                raise WrongValue(f"d2 is of targets that are not negative, got bounds {show(bounds)}.")
            return D2(model.law, (max(target[0], 0.0), target[1]))  # as the model reads targets
        return R2(target) if name == "r2" else MeanError(ERRORS[name], target)
    if bounds is not None and name != "neg_log_loss":
        raise WrongValue(f"{name} is bounded as it is; leave bounds None.")
    match name:
        case "accuracy":
            return Accuracy()
        case "balanced_accuracy":
            return BalancedAccuracy(n_classes)
        case "roc_auc":
            if n_classes != 2:
                raise WrongValue(f"roc_auc is for two classes, and this model has {n_classes}.")
            return AreaUnderCurve()
        case "neg_brier_score":
            return MeanLoss("brier", 1.0 if n_classes == 2 else 2.0)  # as scikit-learn has it
    low, high = (0.0, LARGEST_LOG_LOSS) if bounds is None else _pair(bounds)
    if low != 0:
        raise WrongValue(f"bounds of log loss must be (0, largest), got {show(bounds)}.")
    return MeanLoss("log", high)


def _target_bounds(model: Any) -> Any:
    """Declared bounds of the target, or those that the fit released."""
    statement = getattr(model, "privacy_statement_", None)
    return model.y_bounds if statement is None else statement.bounds["y_bounds"]


def _pair(bounds: Any) -> tuple[float, float]:
    try:
        low, high = (float(bound) for bound in bounds)
    except (TypeError, ValueError):
        raise WrongValue(
            f"Scores need bounds of one target, a pair (low, high) of numbers, got {show(bounds)}: "
            "declare them, since a search has none before its fits."
        ) from None
    if not 0 < high - low < math.inf:
        raise WrongValue(f"bounds must be finite with low < high, got {show(bounds)}.")
    return low, high


def _labels(model: Any, y: Any) -> IntVector:
    """Position of each label among the classes, -1 for what is none of them."""
    return Labels(model.classes_).codes(native_array(y).reshape(-1))


def _predicted(model: Any, X: Any) -> IntVector:
    """Position of each row's predicted label."""
    scores = model.decision_function(X)
    codes: IntVector = (scores > 0).astype(np.int64) if scores.ndim == 1 else scores.argmax(axis=1)
    return codes


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
