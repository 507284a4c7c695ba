"""Metrics of a model as functions of totals: sums over rows of bounded integers, each made from one row.

Names are scikit-learn's, and larger is better. Whatever a row holds, it adds at most one unit to each total.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from dpcvx.arrays import IntVector, Vector
from dpcvx.data.cells import native_array
from dpcvx.data.target import Labels
from dpcvx.errors import WrongType, WrongValue
from dpcvx.tuning.ratios import SEEN, UNKNOWN, Interval, Ratio, TotalNoise
from dpcvx.tuning.regression_metrics import D2, R2, MeanError
from dpcvx.tuning.totals import UNIT, add_up, count_cells
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

# Predicted probabilities below 1/100 count as 1/100.
LARGEST_LOG_LOSS = math.log(100.0)
BINS = 40  # of scores, for the area under the ROC curve and for calibration
CHANCE_SHARE = 0.5  # an interval of a share or an area of this length says nothing


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

    def interval(self, totals: Vector, n: int, noise: TotalNoise) -> Interval:
        """Return an interval of the metric without noise, not clipped; infinite where noise hides it."""
        ...

    def hides(self, interval: Interval) -> bool:
        """Whether an interval is so long that it says next to nothing about a model."""
        ...


@dataclass(frozen=True)
class Accuracy:
    """Share of the rows whose label is predicted."""

    l1: ClassVar[int] = UNIT
    l2: ClassVar[float] = UNIT
    size: ClassVar[int] = 1
    range: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def totals(self, model: Any, X: Any, y: Any, weights: IntVector | None = None) -> IntVector:
        """Return the number of rows that are right."""
        return add_up((_predicted(model, X) == _labels(model, y))[:, None].astype(np.float64), weights)

    def value(self, totals: Vector, n: int) -> float:
        """Return the share."""
        return float(totals[0] / n)

    def interval(self, totals: Vector, n: int, noise: TotalNoise) -> Interval:
        """Return the interval; the number of rows is public."""
        return noise.around(self.value(totals, n), 1 / n)

    def hides(self, interval: Interval) -> bool:
        """Whether the interval is as long as from chance to 1."""
        return interval[1] - interval[0] >= CHANCE_SHARE


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
        return count_cells(cells, labels, self.size, weights)

    def value(self, totals: Vector, n: int) -> float:
        """Return the mean of the shares; noise may leave a class fewer rows than one.

        The share of a class is clipped far beyond [0, 1] only: clipped to it, shares near 0 would be too
        large on average, and so would the mean over many classes.
        """
        right, wrong = totals[: self.classes], totals[self.classes :]
        return float(np.clip(right / np.maximum(right + wrong, 1.0), -1.0, 2.0).mean())

    def interval(self, totals: Vector, n: int, noise: TotalNoise) -> Interval:
        """Return the interval of the mean from those of the classes, by the sum of squared half-widths.

        A class has Fieller's interval of its share. If noise hides the class, its share is anywhere in
        [0, 1].
        """
        right, wrong = totals[: self.classes], totals[self.classes :]
        variance = noise.deviation**2
        middle, unseen, below, above = 0.0, 0, 0.0, 0.0
        for good, bad in zip(right.tolist(), wrong.tolist(), strict=True):
            ratio = Ratio(good, good + bad, (variance, 2 * variance), variance)
            found = ratio.interval(noise.width)
            if found == UNKNOWN:
                unseen += 1
                continue
            share = good / (good + bad)
            middle += share
            below, above = below + (share - found[0]) ** 2, above + (found[1] - share) ** 2
        low, high = middle - math.sqrt(below), middle + unseen + math.sqrt(above)
        return low / self.classes, high / self.classes

    def hides(self, interval: Interval) -> bool:
        """Whether the interval is as long as from chance to 1."""
        return interval[1] - interval[0] >= CHANCE_SHARE


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
        return add_up(shares[:, None], weights)

    def value(self, totals: Vector, n: int) -> float:
        """Return minus the mean."""
        return -self.largest * float(totals[0]) / n

    def interval(self, totals: Vector, n: int, noise: TotalNoise) -> Interval:
        """Return the interval; the number of rows is public."""
        return noise.around(self.value(totals, n), self.largest / n)

    def hides(self, interval: Interval) -> bool:
        """Whether the interval is longer than the loss of a model that gives two classes equal chances."""
        return interval[1] - interval[0] >= (math.log(2) if self.loss == "log" else self.largest / 4)


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
        return count_cells(places + self.bins * labels, labels, self.size, weights)

    def value(self, totals: Vector, n: int) -> float:
        """Return the area; noise may leave a class fewer rows than one."""
        below, above = totals.reshape(2, -1)
        ranks = np.cumsum(below) - below / 2
        return float(above @ ranks / (max(below.sum(), 1.0) * max(above.sum(), 1.0)))

    def interval(self, totals: Vector, n: int, noise: TotalNoise) -> Interval:
        """Return Fieller's interval of (pairs in order)/(pairs); both are linear in the counts of a class."""
        below, above = totals.reshape(2, -1)
        rows = float(below.sum()), float(above.sum())
        if min(rows) < SEEN * noise.deviation * math.sqrt(self.bins):
            return UNKNOWN
        ranks = np.cumsum(below) - below / 2
        slopes = np.concatenate([rows[1] - np.cumsum(above) + above / 2, ranks])
        pairs = np.repeat([rows[1], rows[0]], self.bins)
        variance = noise.deviation**2
        ratio = Ratio(
            float(above @ ranks),
            rows[0] * rows[1],
            (variance * float(slopes @ slopes), variance * float(pairs @ pairs)),
            variance * float(slopes @ pairs),
        )
        return ratio.interval(noise.width)

    def hides(self, interval: Interval) -> bool:
        """Whether the interval is as long as from chance to 1."""
        return interval[1] - interval[0] >= CHANCE_SHARE


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
