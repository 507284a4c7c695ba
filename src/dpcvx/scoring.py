"""Metrics of a released model on private rows, noised and charged.

A metric is a function of totals: sums over the rows of small bounded integers, each made from one row and the
public model. The totals get noise, everything after that is arithmetic on released numbers.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from dpcvx.accounting import Budget, PureComposition
from dpcvx.arrays import IntVector, Vector
from dpcvx.cells import level_codes, native_array, read_numbers
from dpcvx.errors import Incompatible
from dpcvx.events import Event, Gaussian, PureDP
from dpcvx.execution import Bill, Stage, charge
from dpcvx.noise import (
    MAX_SCALE,
    Generator,
    gaussian_failure,
    laplace_failure,
    lattice_gaussian,
    lattice_laplace,
)
from dpcvx.statement import PrivacyStatement

if TYPE_CHECKING:
    from dpcvx.ledger import Ledger

__all__ = ["METRICS", "Metric", "NoisyScore", "Score", "metric_of", "private_score"]

UNIT = 2**20  # lattice steps of the largest contribution of a row to a total
LARGEST_LAPLACE = 2**50  # scale of the noise; a draw then leaves 62 bits with chance e^-4096, which is 0 here
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

    Parameters
    ----------
    classes : int
        K.
    """

    classes: int

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
    """Minus the mean loss of the rows, each clipped to a public bound.

    Parameters
    ----------
    loss : {"log", "brier", "squared", "root", "absolute"}
        Of the probabilities of a classifier (log, Brier), or of the error of a regressor; "root" is the root
        of the mean square.
    largest : float
        Bound on one row's loss.
    target : tuple of float, optional
        Bounds of a regressor's target and predictions, to which both are clipped.
    """

    loss: str
    largest: float
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

    Parameters
    ----------
    target : tuple of float
        Bounds of target and predictions, to which both are clipped.
    """

    target: tuple[float, float]

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
    model: Any,
    scoring: str | None = None,
    bounds: tuple[float, float] | None = None,
    *,
    n_classes: int = 0,
) -> Metric:
    """Return the metric with the name, for a model.

    Parameters
    ----------
    model : estimator
        A classifier or regressor of dpcvx.
    scoring : str, optional
        One of `METRICS`, which are scikit-learn's names; by default accuracy or R^2.
    bounds : pair of float, optional
        Of a regressor: bounds of the target, by default its ``y_bounds``. Of log loss: 0 and the largest loss
        of a row, by default log(100).
    n_classes : int
        Of a classifier.
    """
    regressor = hasattr(model, "y_bounds")
    known = REGRESSION if regressor else CLASSIFICATION
    name = known[0] if scoring is None else scoring
    if not isinstance(name, str) or name not in known:
        raise ValueError(f"scoring must be one of {', '.join(known)} for this model, got {scoring!r}.")
    if name in ("neg_log_loss", "neg_brier_score") and not hasattr(model, "predict_log_proba"):
        raise TypeError(f"{name} needs probabilities, which {type(model).__name__} does not have.")
    if regressor:
        low, high = _pair(model.y_bounds if bounds is None else bounds)
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
        raise ValueError(f"{name} is bounded as it is; leave bounds None.")
    match name:
        case "accuracy":
            return Accuracy()
        case "balanced_accuracy":
            return BalancedAccuracy(n_classes)
        case "neg_brier_score":
            return MeanLoss("brier", 1.0 if n_classes == 2 else 2.0)  # as scikit-learn has it
    low, high = (0.0, LARGEST_LOG_LOSS) if bounds is None else _pair(bounds)
    if low != 0:
        raise ValueError(f"bounds of log loss must be (0, largest), got {bounds!r}.")
    return MeanLoss("log", high)


def _pair(bounds: Any) -> tuple[float, float]:
    try:
        low, high = (float(bound) for bound in bounds)
    except (TypeError, ValueError):
        raise ValueError(
            f"bounds must be a pair (low, high) of numbers, got {bounds!r}. Models of several targets cannot "
            "be scored privately."
        ) from None
    if not 0 < high - low < math.inf:
        raise ValueError(f"bounds must be finite with low < high, got {bounds!r}.")
    return low, high


def _labels(model: Any, y: Any) -> IntVector:
    """Position of each label among the classes, -1 for what is none of them."""
    return level_codes(native_array(y).reshape(-1), model.classes_.tolist())


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


@dataclass(frozen=True)
class NoisyScore:
    """A metric of a public model on private rows.

    Question: the metric's totals T(D) in Z^k, in lattice steps of 2^-20 of a row's largest contribution; the
    answer is T + K, K lattice noise on each, and the metric is computed from it.
    Sensitivity (replace-one): the metric's l1 or l2 bound, as only one row's contributions change.
    Event: PureDP(epsilon) by discrete Laplace noise of scale l1 / epsilon, or Gaussian(noise_multiplier) by
    lattice Gaussian noise of deviation noise_multiplier times l2 (PRIVACY_MATH §11b).

    Parameters
    ----------
    metric : Metric
    n : int
        Number of rows, public.
    law : PureDP or Gaussian
        Its noise.
    """

    metric: Metric
    n: int
    law: PureDP | Gaussian

    def __post_init__(self) -> None:
        largest = LARGEST_LAPLACE if isinstance(self.law, PureDP) else MAX_SCALE - 1
        if self._scale > largest or self.n > self.capacity:
            raise Incompatible(
                f"{self.law} is too little budget to score {self.n} rows: no sum could carry it."
            )

    @property
    def event(self) -> Event:
        """Event of one score."""
        return self.law

    @property
    def relation(self) -> str:
        """Neighbours differ by replacing one row."""
        return "replace"

    @property
    def sensitivity(self) -> float:
        """Largest change of the totals in the norm of the law, in units of a row's largest contribution."""
        return (self.metric.l1 if isinstance(self.law, PureDP) else self.metric.l2) / UNIT

    @property
    def noise(self) -> float:
        """Scale of the noise on a total, in units of a row's largest contribution."""
        return self._scale / UNIT

    @property
    def capacity(self) -> int:
        """Most rows whose exact totals, with their noise, stay inside 62 bits."""
        return max(0, 2**62 - 1 - 16 * self._scale) // UNIT

    @property
    def n_draws(self) -> int:
        """One value per total."""
        return self.metric.size

    @property
    def failure(self) -> float:
        """Total variation of the noise of one score."""
        one = laplace_failure(self._scale) if isinstance(self.law, PureDP) else gaussian_failure()
        return self.n_draws * one

    @property
    def evaluations(self) -> float:
        """No gradient is computed."""
        return 0.0

    @property
    def _scale(self) -> int:
        if isinstance(self.law, PureDP):
            return math.ceil(self.metric.l1 / Fraction(self.law.epsilon))
        return math.ceil(Fraction(self.law.noise_multiplier) * (math.isqrt(math.ceil(self.metric.l2**2)) + 1))

    def __call__(self, model: Any, X: Any, y: Any, rng: Generator) -> Vector:
        """Return the noisy totals, in units of a row's largest contribution."""
        totals = self.metric.totals(model, X, y)
        draw = lattice_laplace if isinstance(self.law, PureDP) else lattice_gaussian
        return (totals + draw(self._scale, self.n_draws, rng)) / UNIT

    def value(self, totals: Vector) -> float:
        """Return the metric of noisy totals, among the values that it can have."""
        low, high = self.metric.range
        return min(max(self.metric.value(totals, self.n), low), high)

    def standard_error(self, totals: Vector) -> float:
        """Return how far the noise moves the metric, by moving each total by one deviation either way."""
        deviation = self.noise * (math.sqrt(2) if isinstance(self.law, PureDP) else 1.0)
        moves = deviation * np.eye(self.n_draws)
        value = self.metric.value
        return math.hypot(
            *((value(totals + move, self.n) - value(totals - move, self.n)) / 2 for move in moves)
        )


@dataclass(frozen=True)
class Score:
    """A noised metric of a model on private rows.

    Parameters
    ----------
    name : str
        The metric; larger is better.
    value : float
    standard_error : float
        Of the noise alone: how much the value varies between draws of the noise. What the rows say about
        people who are not among them varies besides.
    statement : PrivacyStatement
        What was promised: ``print`` it, or ``to_json()``.
    """

    name: str
    value: float
    standard_error: float
    statement: PrivacyStatement

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        return f"{self.name} = {self.value:.6g} (noise: standard error {self.standard_error:.2g})"


def private_score(
    model: Any,
    X: Any,
    y: Any,
    *,
    epsilon: float,
    scoring: str | None = None,
    bounds: tuple[float, float] | None = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    account: str | None = None,
    random_state: Any = None,
) -> Score:
    """Score a released model on private rows: epsilon-differentially private, and charged.

    Parameters
    ----------
    model : estimator
        A fitted estimator of dpcvx, or a `PrivateSearchCV`.
    X, y : as for ``model.predict`` and ``model.fit``
        Private rows, one per person. Missing cells count as they do in a prediction, a label that is none of
        the classes as wrong, a missing target as the middle of the bounds.
    epsilon : float
        Privacy loss that one person may suffer; delta is 0.
    scoring : str, optional
        scikit-learn's name of a metric; by default "accuracy" or "r2". See `dpcvx.scoring.METRICS`.
    bounds : pair of float, optional
        Of a regressor: bounds of the target, by default the model's ``y_bounds``; an error counts as half
        their width at most. Of "neg_log_loss": 0 and the largest loss of a row, by default log(100).
    ledger : Ledger, path or URL, optional
        Where the score is charged, durably, before a row is read.
    account : str, optional
        Name of the account that pays; given together with ``ledger``.
    random_state : None or int
        None draws noise cryptographically. Anything else is for tests: the statement is stamped NOT PRIVATE.

    Returns
    -------
    Score
    """
    from sklearn.utils.validation import check_is_fitted, validate_data

    from dpcvx.estimators.columns import Table
    from dpcvx.estimators.model import LinearModel

    model = getattr(model, "best_estimator_", model)
    if not isinstance(model, LinearModel):
        raise TypeError(
            f"private_score needs an estimator of dpcvx, got {type(model).__name__}: what another predicts "
            "for one row could depend on other rows, or fail because of one."
        )
    check_is_fitted(model)
    table = Table(X)
    validate_data(model, table.header(), reset=False, skip_check_array=True)
    model._open_target(y, table.n)
    metric = metric_of(model, scoring, bounds, n_classes=len(getattr(model, "classes_", ())))
    question = NoisyScore(metric, table.n, PureDP(float(epsilon)))
    rng = type(model)(random_state=random_state)._generator()
    name = scoring or (REGRESSION if hasattr(model, "y_bounds") else CLASSIFICATION)[0]
    stages = (Stage(question, 1),)
    bill = Bill(question.event, stages, question.failure, Budget(float(epsilon), 0.0), PureComposition())
    purpose = f"{name} of {type(model).__name__} on {table.n} records"
    receipt = charge(bill, ledger, account, private=rng.private, purpose=purpose)
    totals = question(model, X, y, rng)
    statement = PrivacyStatement.of(
        bill,
        model=f"private_score of {type(model).__name__}",
        private=rng.private,
        bounds={**_facts(metric), "enforced": "what a row adds to a total is clipped to its largest share"},
        public={"n": table.n, "metric": name, "model": "released before, by a statement of its own"},
        receipt=receipt,
    )
    return Score(name, question.value(totals), question.standard_error(totals), statement)


def _facts(metric: Any) -> dict[str, Any]:
    """Public settings of a metric, as JSON has them."""
    settings = vars(metric).items()
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in settings
        if value is not None
    }
