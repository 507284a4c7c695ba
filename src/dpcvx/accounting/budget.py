"""Privacy budgets, and the calibration of noise to a budget."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

from dpcvx.accounting.accountant import Accountant, require_delta
from dpcvx.accounting.inversion import first_passing
from dpcvx.accounting.neighbours import Neighbours
from dpcvx.errors import NotAccountable, PrivacyLeakWarning, WrongValue
from dpcvx.events import RELATIONS, Event
from dpcvx.words import quantity

LARGE_EPSILON = 10.0  # above it one person may make a conclusion more than e^10 = 22,000 times as likely


def explain_size(epsilon: float) -> str:
    """Return a sentence about the weak guarantee of a large epsilon; empty for a small one."""
    if epsilon <= LARGE_EPSILON:
        return ""
    return f"An epsilon above {LARGE_EPSILON:g} promises little by itself: e^{LARGE_EPSILON:g} is 22,000."


def explain_delta(delta: float, n: int, noun: str = "record") -> str:
    """Return a sentence about the weak guarantee of a delta of 1/n or more; empty for a smaller one.

    `n`: public number of records or persons.
    """
    if delta * n < 1:
        return ""
    return (
        f"A delta of {delta:.3g} is not below 1/n ({1 / n:.2g} for {quantity(n, noun)}) and promises little: "
        f"publishing each {noun} in full with probability {delta:.3g} would satisfy it, about "
        f"{quantity(round(delta * n), noun)} in all."
    )


def warn_of_delta(delta: float, n: int, noun: str = "record", *, stacklevel: int = 1) -> None:
    """Warn of a delta of 1/n or more, from public facts, before anything is charged."""
    if text := explain_delta(delta, n, noun):
        advice = " Give a delta far below 1/n; the default is min(1/n^2, 1e-5)."
        warnings.warn(text + advice, PrivacyLeakWarning, stacklevel=stacklevel + 1)


@dataclass(frozen=True)
class Budget:
    """(epsilon, delta)-differential privacy under a neighbouring relation.

    Parameters
    ----------
    epsilon : float
    delta : float
        At least 0 and less than 1.
    relation : {"replace", "add_remove"}
        Neighbours differ by replacing one record (their number is public), or by adding or removing one.
    unit : {"row", "person"}
        Unit that is protected: a row, or all rows of a person together.
    rows, weight : int
        Rows of a person that count, and the whole weight of a unit whose rows are weighted; see `Neighbours`.
    """

    epsilon: float
    delta: float
    relation: str = "replace"
    unit: str = "row"
    rows: int = 1
    weight: int = 1

    def __post_init__(self) -> None:
        if not (self.epsilon > 0 and math.isfinite(self.epsilon)):
            raise WrongValue(f"epsilon is {self.epsilon!r}; it must be a positive finite number.")
        require_delta(self.delta)
        if self.relation not in RELATIONS:
            raise WrongValue(f"relation is {self.relation!r}; use one of {', '.join(RELATIONS)}.")
        _ = self.neighbours  # refuses another unit

    @property
    def neighbours(self) -> Neighbours:
        """Data sets that must look alike: those that differ in one unit."""
        return Neighbours(self.relation, self.unit, self.rows, self.weight)

    @property
    def relation_word(self) -> str:
        """Relation and unit in one word, as ledgers store them: "replace", or "replace/person"."""
        return self.relation if self.unit == "row" else f"{self.relation}/{self.unit}"


def budget_of(epsilon: float, delta: float, relation_word: str) -> Budget:
    """Return the budget with a relation and a unit that were stored as `Budget.relation_word`."""
    relation, _, unit = relation_word.partition("/")
    return Budget(epsilon, delta, relation, unit or "row")


LARGEST_DELTA = 1e-5


def default_delta(n: int) -> float:
    """Return the delta of n records where none is given: min(1/n^2, 1e-5)."""
    return min(1 / n**2, LARGEST_DELTA)


SAMPLER_SHARE = 1e-3  # PRIVACY_MATH §11b, rule for every sampler: at most delta/1000 for inexact sampling


def sampler_delta(epsilon: float, failure: float) -> float:
    """Return the delta paid for noise that is not exactly the ideal one: (1 + e^epsilon) * failure.

    `epsilon`: of the release; beyond 700 the answer is a bound in name only, and far above 1; `failure`: sum
    of the total variations between the noise that is drawn and the noise that is accounted for.
    """
    return (1 + math.exp(min(epsilon, 700.0))) * failure


def spendable(budget: Budget) -> Budget:
    """Budget left for the mechanisms once the samplers' share of delta is set aside."""
    return replace(budget, delta=budget.delta * (1 - SAMPLER_SHARE))


_LARGEST_EXPONENT = 255  # noise is searched for between 2^-255 and 2^255


def calibrate(make_event: Callable[[float], Event], budget: Budget, accountant: Accountant) -> float:
    """Return the smallest noise that keeps an event within the budget.

    Parameters
    ----------
    make_event : callable
        Makes the event of a noise level; more noise must be more private.
    budget : Budget
    accountant : Accountant

    Returns
    -------
    float
        A noise t with ``accountant.epsilon(make_event(t), budget.delta) <= budget.epsilon``, the smallest
        one up to a relative 1e-9, rounded towards more noise.

    Raises
    ------
    NotAccountable
        If no amount of noise is enough, or if none is needed.
    """

    def excess(log_noise: float) -> float:
        epsilon = accountant.epsilon(make_event(math.exp(log_noise)), budget.delta)
        return math.log(epsilon / budget.epsilon) if epsilon > 0 else -math.inf

    private_at_one = excess(0.0) <= 0
    direction = -1 if private_at_one else 1
    near, exponent = 0.0, 1
    while (excess(far := direction * exponent * math.log(2)) <= 0) == private_at_one:
        near, exponent = far, 2 * exponent + 1
        if exponent > _LARGEST_EXPONENT:
            raise NotAccountable(
                f"epsilon {budget.epsilon:g} at delta {budget.delta:g} "
                + ("needs no noise at all." if private_at_one else "is out of reach whatever the noise.")
                + " Check that the event depends on the noise; Gaussian noise needs delta > 0."
            )
    fails, passes = (far, near) if private_at_one else (near, far)
    return math.exp(first_passing(excess, fails, passes, tolerance=1e-10))
