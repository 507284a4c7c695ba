"""Metrics of a released model on private rows, noised and charged.

The totals of a metric get noise; everything after that is arithmetic on released numbers.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from dpcvx.accounting import REPLACE_ONE, Budget, Neighbours, PureComposition
from dpcvx.arrays import IntVector, Vector
from dpcvx.data import room
from dpcvx.data.cells import native_array
from dpcvx.data.table import Table
from dpcvx.data.units import persons, take_column
from dpcvx.errors import Incompatible, WrongType, WrongValue
from dpcvx.events import Event, Gaussian, PureDP
from dpcvx.mechanisms import Traits
from dpcvx.noise import (
    MAX_SCALE,
    Generator,
    gaussian_failure,
    generator_of,
    laplace_failure,
    lattice_gaussian,
    lattice_laplace,
)
from dpcvx.plans import Price, Stage, charge
from dpcvx.plans.statement import UNIT as UNIT_IS_ROW
from dpcvx.plans.statement import PrivacyStatement
from dpcvx.tuning.metrics import METRICS, UNIT, Metric, metric_of, scorings
from dpcvx.tuning.ratios import CHANCE, Interval, TotalNoise, gaussian_width, laplace_width

if TYPE_CHECKING:
    from dpcvx.ledger import Ledger

__all__ = [
    "METRICS",
    "Measured",
    "NoisyScore",
    "ReleasedTotals",
    "Score",
    "ScorePayment",
    "interval_words",
    "private_score",
    "release_totals",
]

LARGEST_LAPLACE = 2**50  # scale of the noise; a draw then leaves 62 bits with chance e^-4096, which is 0 here


@dataclass(frozen=True)
class NoisyScore:
    """A metric of a public model on private rows.

    Question: the metric's totals T(D) in Z^k, in lattice steps of 2^-20 of a row's largest contribution; the
    answer is T + K, K lattice noise on each, and the metric is computed from it.
    Sensitivity (replace-one): the metric's l1 or l2 bound, as only one row's contributions change. Rows of a
    person share the weight of one row, so a person's contributions are in the convex hull of 0 and those of a
    row; the bounds cover two points of that too, as 0 is as near to a row as another row, or is itself the
    contribution of a row without a target (PRIVACY_MATH §16).
    Event: PureDP(epsilon) by discrete Laplace noise of scale l1 / epsilon, or Gaussian(noise_multiplier) by
    lattice Gaussian noise of deviation noise_multiplier times l2 (PRIVACY_MATH §11b).
    """

    metric: Metric
    n: int  # number of rows, or of persons, public
    law: PureDP | Gaussian  # its noise
    neighbours: Neighbours = REPLACE_ONE

    traits: ClassVar[Traits] = Traits("score")

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
    def sensitivity(self) -> float:
        """Largest change of the totals in the norm of the law, in units of a row's largest contribution."""
        return (self.metric.l1 if isinstance(self.law, PureDP) else self.metric.l2) / UNIT

    @property
    def noise(self) -> float:
        """Scale of the noise on a total, in units of a row's largest contribution."""
        return self._scale / self._unit

    @property
    def capacity(self) -> int:
        """Most rows whose exact totals, with their noise, stay inside 62 bits."""
        return room(self._unit, self._scale)

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
    def deviation(self) -> float:
        """Standard deviation of the noise on a total, in units of a row's largest contribution."""
        return self.noise * (math.sqrt(2) if isinstance(self.law, PureDP) else 1.0)

    @property
    def _unit(self) -> int:
        """Lattice steps of the largest contribution of a unit."""
        return UNIT * self.neighbours.weight

    @property
    def _scale(self) -> int:
        weight = self.neighbours.weight
        if isinstance(self.law, PureDP):
            return math.ceil(weight * self.metric.l1 / Fraction(self.law.epsilon))
        length = math.isqrt(math.ceil(self.metric.l2**2)) + 1
        return math.ceil(Fraction(self.law.noise_multiplier) * weight * length)

    def __call__(
        self, model: Any, X: Any, y: Any, rng: Generator, weights: IntVector | None = None
    ) -> Vector:
        """Return the noisy totals, in units of a row's largest contribution.

        `weights`: integer weights of rows, those of a unit adding up to at most ``neighbours.weight``.
        """
        totals = self.metric.totals(model, X, y, weights)
        draw = lattice_laplace if isinstance(self.law, PureDP) else lattice_gaussian
        return (totals + draw(self._scale, self.n_draws, rng)) / self._unit

    def value(self, totals: Vector) -> float:
        """Return the metric of noisy totals, among the values that it can have."""
        low, high = self.metric.range
        return min(max(self.metric.value(totals, self.n), low), high)

    def measured(self, totals: Vector, chance: float = CHANCE) -> Measured:
        """Return the metric of noisy totals with the interval that misses it with this chance, and more.

        A standard error is half the length of the interval over that of one standard deviation, so it is
        infinite if the noise hides the denominator of a ratio.
        """
        width = (laplace_width if isinstance(self.law, PureDP) else gaussian_width)(chance)
        low, high = interval = self.metric.interval(totals, self.n, TotalNoise(self.deviation, width))
        least, largest = self.metric.range
        clipped = tuple(min(max(end, least), largest) for end in interval)
        hidden = self.metric.hides(interval)
        return Measured(self.value(totals), (high - low) / (2 * width), (clipped[0], clipped[1]), hidden)


class Measured(NamedTuple):
    """A noisy metric: see `Score`."""

    value: float
    standard_error: float
    interval: Interval
    hidden: bool

    def of(self, name: str, statement: PrivacyStatement) -> Score:
        """Return it with the metric's name and the statement of its release."""
        return Score(name, self.value, self.standard_error, statement, self.interval, self.hidden)


@dataclass(frozen=True)
class Score:
    """A noised metric of a model on private rows.

    Parameters
    ----------
    name : str
        The metric; larger is better.
    value : float
    standard_error : float
        Of the noise alone: how much the value varies between draws of the noise. The
        sampling error of the rows is not part of it. Infinite if the metric is a ratio and the noise hides
        its denominator.
    statement : PrivacyStatement
        Privacy statement: ``print`` it, or ``to_json()``.
    interval : tuple of float
        95 % interval of the metric without noise, on these rows.
    hidden : bool
        Whether the noise hides the score: the interval is too long to say something about the model.
    """

    name: str
    value: float
    standard_error: float
    statement: PrivacyStatement
    interval: Interval
    hidden: bool

    def __float__(self) -> float:
        return self.value

    @property
    def caution(self) -> str:
        """Why the score says nothing; empty if it says something."""
        if not self.hidden:
            return ""
        return (
            "The noise hides the score. There are too few rows for this epsilon, or too few with a target "
            "that varies within its bounds, so the released value says nothing. Use a larger "
            "epsilon, more rows or narrower bounds of the target, and check that it is the column that the "
            "model predicts, coded in the same way."
        )

    def __str__(self) -> str:
        ends = interval_words(self.interval)
        if self.hidden:
            return f"{self.name}: hidden by noise (95 % interval {ends})\n{self.caution}"
        return (
            f"{self.name} = {self.value:.6g} (noise: standard error {self.standard_error:.2g}, "
            f"95 % interval {ends})"
        )


def interval_words(interval: Interval) -> str:
    """Return an interval as text: "0.1 to 0.4", "up to 1" or "of all values"."""
    low, high = interval
    if math.isinf(low):
        return "of all values" if math.isinf(high) else f"up to {high:.3g}"
    return f"{low:.3g} to {high:.3g}" if math.isfinite(high) else f"from {low:.3g}"


def private_score(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    epsilon: float,
    scoring: str | None = None,
    bounds: tuple[float, float] | None = None,
    groups: Any = None,
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
        Private rows, one per person unless there are ``groups``. A table of a model whose schema names the
        target has its own y. Missing cells count as they do in a
        prediction. A label that is none of
        the classes counts as wrong, for "balanced_accuracy" and "roc_auc" not at all. Rows without a target
        are left out of the score of a regressor.
    epsilon : float
        Privacy loss that one person may suffer; delta is 0.
    scoring : str, optional
        scikit-learn's name of a metric; by default "accuracy" or "r2", or "d2", the share of the deviance
        that is explained, for models of counts, amounts and shares. See `dpcvx.tuning.score.METRICS`.
    bounds : pair of float, optional
        Of a regressor: bounds of the target, by default the model's ``y_bounds``. Targets and predictions are
        clipped to them, so the score of a target with values beyond them is too good: give wider ones; the
        noise grows with the width, for squared errors and "r2" with its square. Of "neg_log_loss": 0 and the
        largest loss of a row, by default log(100).
    groups : array-like, shape (n,), optional
        Id of each row's person, by default the column that the model's ``person`` names. All rows of a person
        are protected together and share the weight of one row; the number of persons is public, that of rows
        is not. A model that protects persons needs it.
    ledger : Ledger, path or URL, optional
        Where the score is charged, durably, before anything is computed from the rows.
    account : str, optional
        Name of the account that pays; given together with ``ledger``.
    random_state : None or int
        None draws noise cryptographically. Anything else is for tests: the statement is stamped NOT PRIVATE.

    Returns
    -------
    Score
    """
    model = getattr(model, "best_estimator_", model)
    released = release_totals(
        model,
        (X, y, groups),
        lambda model: metric_of(model, scoring, bounds, n_classes=len(getattr(model, "classes_", ()))),
        scoring or scorings(model)[0],
        ScorePayment(epsilon, ledger, account, random_state),
    )
    question, totals = released.question, released.totals
    return question.measured(totals).of(released.name, released.statement)


@dataclass(frozen=True)
class ScorePayment:
    """Price of a score, who pays it, and its randomness; see `private_score`."""

    epsilon: float
    ledger: Ledger | str | os.PathLike[str] | None
    account: str | None
    random_state: Any


@dataclass(frozen=True)
class ReleasedTotals:
    """Noisy totals of a metric, paid for."""

    model: Any
    name: str
    question: NoisyScore
    totals: Vector
    statement: PrivacyStatement


def release_totals(
    model: Any,
    records: tuple[Any, Any, Any],
    metric_for: Callable[[Any], Metric],
    name: str,
    payment: ScorePayment,
) -> ReleasedTotals:
    """Charge for the totals of a metric, and release them.

    `model`: as of `private_score`; `records`: private rows, targets and ids of persons (None: a row is
    one); `metric_for`: returns the metric of the estimator; `name`: of the metric, for statement and ledger.
    """
    from sklearn.utils.validation import check_is_fitted

    from dpcvx.estimators import LinearModel, check_records

    model = getattr(model, "best_estimator_", model)
    if not isinstance(model, LinearModel):
        raise WrongType(
            "Private scores need an estimator of dpcvx that is fitted to single rows, got "
            f"{type(model).__name__}: with another estimator the prediction for one row could depend on "
            "other rows, or one row could make it fail. Models of ordered levels and of hazards have no "
            "private score."
        )
    check_is_fitted(model)
    X, y, groups = records
    if model.person is not None and groups is None:
        X, groups = take_column(X, model.person)
    if y is None and model.schema is not None and model.schema.target is not None:
        y = Table(X).raw(model.schema.target)
    if groups is not None and y is not None and len(native_array(y, ndim=2)) != Table(X).n:
        # Checked before a message that names the number of rows, which is private here.
        raise WrongValue("X, y and groups must have the same number of rows.")
    n = check_records(model, X, y)
    facts: Mapping[str, Any] = {}
    neighbours, weights, counted = REPLACE_ONE, None, "n"
    if groups is not None:
        units = persons(groups)
        if units.count != n:
            raise WrongValue("groups must have one id for each row.")
        neighbours, weights, facts = units.neighbours, units.shares, units.facts
        counted, n = "persons", units.n
    elif model.privacy_statement_.unit != UNIT_IS_ROW:
        raise Incompatible(
            "This model protects persons with all of their rows, and a score of single rows would not. Give "
            "groups=ids, the id of the person for each row."
        )
    metric, epsilon = metric_for(model), float(payment.epsilon)
    question = NoisyScore(metric, n, PureDP(epsilon), neighbours)
    rng = generator_of(payment.random_state)
    parts = (Stage(question, 1).description,)
    budget = Budget(epsilon, 0.0, "replace", neighbours.unit, weight=neighbours.weight)
    price = Price(question.event, parts, question.failure, budget, PureComposition())
    price.check_samplers()
    price.check_budget()
    purpose = f"{name} of {type(model).__name__} on {n} {neighbours.noun}s"
    receipt = charge(price, payment.ledger, payment.account, private=rng.private, purpose=purpose)
    totals = question(model, X, y, rng, weights)
    statement = PrivacyStatement.of(
        price,
        model=f"private_score of {type(model).__name__}",
        private=rng.private,
        bounds={
            **_facts(metric),
            "enforced": "what a row adds to a total is clipped to its largest share",
            **facts,
        },
        public={counted: n, "metric": name, "model": "released before, by a statement of its own"},
        receipt=receipt,
    )
    return ReleasedTotals(model, name, question, totals, statement)


def _facts(metric: Any) -> dict[str, Any]:
    """Public settings of a metric, as JSON has them."""
    settings = vars(metric).items()
    return {
        name: list(value) if isinstance(value, tuple) else getattr(value, "name", value)
        for name, value in settings
        if value is not None
    }
