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
from dpcvx.data.levels import DeclaredLevels
from dpcvx.errors import WrongType, WrongValue
from dpcvx.words import show

__all__ = ["CLASSIFICATION", "METRICS", "REGRESSION", "UNIT", "Metric", "metric_of"]

UNIT = 2**20  # lattice steps of the largest contribution of a row to a total
# A class that was given a chance below one in a hundred counts as if it had been given that chance.
LARGEST_LOG_LOSS = math.log(100.0)
# Errors of a regressor are clipped to half the width of the target's bounds: the constant in their middle has
# no larger ones, and a quarter of the noise is needed.
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

    def totals(self, model: Any, X: Any, y: Any) -> IntVector:
        """Return the exact sums over the rows, in lattice steps; no cell can cause an error."""
        ...

    def value(self, totals: Vector, n: int) -> float:
        """Return the metric of n rows with these totals, in units of the largest contribution of a row."""
        ...


def _steps(shares: Vector) -> IntVector:
    """Sum of contributions between 0 and 1, in lattice steps; what is no number counts as the largest."""
    clipped = np.clip(np.where(np.isnan(shares), 1.0, shares), 0.0, 1.0)
    sums: IntVector = np.rint(UNIT * clipped).astype(np.int64).sum(axis=0)
    return sums


@dataclass(frozen=True)
class Accuracy:
    """Share of the rows whose label is predicted."""

    l1: ClassVar[int] = UNIT
    l2: ClassVar[float] = UNIT
    size: ClassVar[int] = 1
    range: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def totals(self, model: Any, X: Any, y: Any) -> IntVector:
        """Return the number of rows that are right."""
        return _steps((_predicted(model, X) == _labels(model, y))[:, None].astype(np.float64))

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

    def totals(self, model: Any, X: Any, y: Any) -> IntVector:
        """Return the counts: right ones by class, then wrong ones; other labels are in no cell."""
        labels = _labels(model, y)
        cells = labels + self.classes * (_predicted(model, X) != labels)
        return UNIT * np.bincount(cells[labels >= 0], minlength=self.size)

    def value(self, totals: Vector, n: int) -> float:
        """Return the mean of the shares; noise may leave a class fewer rows than one."""
        right, wrong = totals[: self.classes], totals[self.classes :]
        return float(np.clip(right / np.maximum(right + wrong, 1.0), 0.0, 1.0).mean())


@dataclass(frozen=True)
class MeanLoss:
    """Minus the mean loss of the rows, each clipped to a public bound."""

    # {"log", "brier", "squared", "root", "absolute"}: of the probabilities of a classifier (log, Brier), or
    # of the error of a regressor; "root" is the root of the mean square
    loss: str
    largest: float  # bound on one row's loss
    # bounds of a regressor's target and predictions, to which both are clipped
    target: tuple[float, float] | None = None

    l1: ClassVar[int] = UNIT
    l2: ClassVar[float] = UNIT
    size: ClassVar[int] = 1

    @property
    def range(self) -> tuple[float, float]:
        """From minus the bound to 0."""
        return -math.sqrt(self.largest) if self.loss == "root" else -self.largest, 0.0

    def totals(self, model: Any, X: Any, y: Any) -> IntVector:
        """Return the sum of the losses."""
        with np.errstate(all="ignore"):
            if self.target is not None:
                predicted, truth = _predictions(model, X, y, self.target)
                losses = abs(predicted - truth) ** (1 if self.loss == "absolute" else 2)
            else:
                losses = self._of_probabilities(model, X, y)
            return _steps((losses / self.largest)[:, None])

    def _of_probabilities(self, model: Any, X: Any, y: Any) -> Vector:
        labels = _labels(model, y)
        chances = model.predict_log_proba(X)
        if self.loss == "log":
            losses: Vector = -chances[np.arange(len(labels)), labels]
        else:
            truth = labels[:, None] == np.arange(chances.shape[1])
            losses = self.largest / 2 * ((np.exp(chances) - truth) ** 2).sum(axis=1)
        return np.where(labels < 0, self.largest, losses)

    def value(self, totals: Vector, n: int) -> float:
        """Return minus the mean, or minus its root."""
        mean = self.largest * float(totals[0]) / n
        return -math.sqrt(max(mean, 0.0)) if self.loss == "root" else -mean


@dataclass(frozen=True)
class R2:
    """Share of the variance of a target that is explained, 1 - residual squares / squares about the mean.

    Three totals: squares of residuals and of the target about the middle of its bounds, both over half the
    width of the bounds, and the place of the target between them; each contribution is in [0, 1].
    """

    target: tuple[float, float]  # bounds of target and predictions, to which both are clipped

    l1: ClassVar[int] = 3 * UNIT
    l2: ClassVar[float] = math.sqrt(3) * UNIT
    size: ClassVar[int] = 3
    range: ClassVar[tuple[float, float]] = (-math.inf, 1.0)

    def totals(self, model: Any, X: Any, y: Any) -> IntVector:
        """Return the three sums."""
        low, high = self.target
        predicted, truth = ((part - low) / (high - low) for part in _predictions(model, X, y, self.target))
        return _steps(np.column_stack([4 * (predicted - truth) ** 2, (2 * truth - 1) ** 2, truth]))

    def value(self, totals: Vector, n: int) -> float:
        """Return R^2; a variance that noise made too small counts as the least one."""
        residual, square, mean = totals / n
        variance = max(square - (2 * mean - 1) ** 2, LEAST_VARIANCE)
        return float(1 - residual / variance)


CLASSIFICATION = ("accuracy", "balanced_accuracy", "neg_log_loss", "neg_brier_score")
REGRESSION = ("r2", "neg_mean_squared_error", "neg_root_mean_squared_error", "neg_mean_absolute_error")
METRICS = (*CLASSIFICATION, *REGRESSION)


def metric_of(
    model: Any, scoring: str | None = None, bounds: tuple[float, float] | None = None, *, n_classes: int = 0
) -> Metric:
    """Return the metric with the name, for a model.

    `model`: a classifier or regressor of dpcvx. `scoring`: one of `METRICS`, which are scikit-learn's names;
    by default accuracy or R^2. `bounds`: of a regressor: bounds of the target, by default its ``y_bounds``.
    Of log loss: 0 and the largest loss of a row, by default log(100). `n_classes`: of a classifier.
    """
    regressor = hasattr(model, "y_bounds")
    known = REGRESSION if regressor else CLASSIFICATION
    name = known[0] if scoring is None else scoring
    if not isinstance(name, str) or name not in known:
        raise WrongValue(f"scoring must be one of {', '.join(known)} for this model, got {scoring!r}.")
    if name in ("neg_log_loss", "neg_brier_score") and not hasattr(model, "predict_log_proba"):
        raise WrongType(f"{name} needs probabilities, which {type(model).__name__} does not have.")
    if regressor:
        low, high = _pair(_target_bounds(model) if bounds is None else bounds)
        largest = (high - low) / 2
        match name:
            case "r2":
                return R2((low, high))
            case "neg_mean_absolute_error":
                return MeanLoss("absolute", largest, (low, high))
            case "neg_root_mean_squared_error":
                return MeanLoss("root", largest**2, (low, high))
        return MeanLoss("squared", largest**2, (low, high))
    if bounds is not None and name != "neg_log_loss":
        raise WrongValue(f"{name} is bounded as it is; leave bounds None.")
    match name:
        case "accuracy":
            return Accuracy()
        case "balanced_accuracy":
            return BalancedAccuracy(n_classes)
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
    return DeclaredLevels(tuple(model.classes_.tolist())).codes(native_array(y).reshape(-1))


def _predicted(model: Any, X: Any) -> IntVector:
    """Position of each row's predicted label."""
    scores = model.decision_function(X)
    codes: IntVector = (scores > 0).astype(np.int64) if scores.ndim == 1 else scores.argmax(axis=1)
    return codes


def _predictions(model: Any, X: Any, y: Any, bounds: tuple[float, float]) -> tuple[Vector, Vector]:
    """Predictions and targets within the bounds; what is no number is in their middle."""
    low, high = bounds
    parts = (model.predict(X), read_numbers(native_array(y).reshape(-1)))
    first, second = (
        np.clip(np.where(np.isnan(part), low + (high - low) / 2, part), low, high) for part in parts
    )
    return first, second
