"""Whether a plan promises more than the trivial model, and how many people or how much epsilon it would take.

Everything follows from public facts, so it can be said before a record is read or a budget is charged.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import lru_cache

from dpcvx.errors import Incompatible, NotAccountable, UselessModelWarning
from dpcvx.planning.candidates import PlanKey, rehearse_once
from dpcvx.planning.rehearsal import is_modelled, risk_at_zero
from dpcvx.plans import Plan
from dpcvx.solvers import NoisyGradientDescent, configured
from dpcvx.solvers.defaults import default
from dpcvx.solvers.scaled_target import has_enough_records
from dpcvx.words import quantity

MOST_LEFT: float = default("planning.outlook.MOST_LEFT")
MOST_LEFT_OF_CLASSES: float = default("planning.outlook.MOST_LEFT_OF_CLASSES")
MOST_RECORDS, MOST_EPSILON = 10**10, 100.0
USUAL_CELLS: int = default("planning.outlook.USUAL_CELLS")
FEW_RECORDS: float = default("planning.outlook.FEW_RECORDS")
MEASURED_LOSS: float = default("planning.outlook.MEASURED_LOSS")
SHORT_ROWS = (
    " The records are sparse and data_norm is None, so the noise is calibrated to the longest row that the "
    "bounds of all columns allow. Give data_norm, a public bound on the l2 norm of a row in your units."
)

Planning = Callable[[int, float], Plan]


@dataclass(frozen=True)
class Doubt:
    """A plan whose predicted excess risk is no better than that of the model which scores everybody 0."""

    plan: Plan
    predicted: float  # predicted, trivial: predicted excess risks of the plan and of the trivial model
    trivial: float
    records: int | None  # how many records would be enough at this epsilon; None if no reasonable number is
    epsilon: float | None  # which epsilon would be enough with these records; None if no reasonable one is

    def __str__(self) -> str:
        remedies, epsilon = [], self.plan.budget.epsilon
        if self.records is not None:
            remedies.append(f"about {_units(self.plan, self.records)} at epsilon {epsilon:g}")
        if self.epsilon is not None:
            remedies.append(f"about epsilon {self.epsilon:g} with {_units(self.plan, self.plan.n)}")
        enough = " or ".join(remedies)
        advice = "More of either does not help"
        if remedies:
            advice = f"{enough[0].upper()}{enough[1:]} would be enough to do better"
        if self.plan.solver.innermost(self.plan).solver.constant:
            released = (
                "share of each class" if self.plan.problem.loss.target == "labels" else "mean of the target"
            )
            return (
                f"{_shape(self.plan)} no coefficient is predicted to be worth its noise, so that the fit "
                f"releases the {released} alone and predicts it for everybody. "
                f"{advice if remedies else 'Use fewer columns, or narrower bounds'}. "
                "This follows from public numbers."
            )
        return (
            f"{_shape(self.plan)} the model is predicted to be hardly better, if at all, than one "
            f"that gives everybody the same answer: their predicted excess risks are {self.predicted:.2g} "
            f"and {self.trivial:.2g}. {advice}. This follows from public numbers."
        )


def _units(plan: Plan, n: int) -> str:
    """A number of records, or of persons, in words."""
    neighbours = plan.budget.neighbours
    return quantity(n // neighbours.rows, neighbours.noun)


def _shape(plan: Plan) -> str:
    records, size = _units(plan, plan.n), quantity(plan.problem.size, "coefficient")
    return f"With {records}, {size} and epsilon {plan.budget.epsilon:g}"


def doubt(plan: Plan, again: Planning | None = None) -> Doubt | None:
    """Return why a plan promises nothing, and what would be enough; None if it does promise something.

    Parameters
    ----------
    plan : Plan
    again : callable, optional
        Plans the same fit for another number of records and epsilon; by default with the plan's solver and
        delta.

    Returns
    -------
    Doubt or None
    """
    if (trivial := trivial_risk(plan)) is None or is_useful(plan):
        return None
    return Doubt(plan, sum(predicted_risk(plan)), trivial, *_enough(plan, again or _default_planning(plan)))


def advice(plan: Plan) -> str:
    """Return the sentence on a plan that promises nothing; empty for others."""
    found = doubt(plan)
    return "" if found is None else str(found)


def warn_if_useless(
    plan: Plan, again: Planning, rule: Hashable, *, sparse: bool = False, stacklevel: int = 2
) -> None:
    """Warn where a plan promises nothing, with the records or the epsilon that would be enough.

    `again`: plans the same fit for another number of records and epsilon; `rule`: what these plans depend on
    beside the plan's own facts; the warning is kept for the next such fit; `sparse`: whether rows are
    compressed and their norm was not declared: short ones may drown in the noise; `stacklevel`: whose line
    the warning names.
    """
    advice = SHORT_ROWS if sparse and plan.problem.is_round else ""
    if not is_useful(plan):
        try:
            text = _memoised_text(_OutlookKey(plan, rule, again))
        except TypeError:  # a set that holds arrays has no hash
            text = str(doubt(plan, again))
    elif advice and _drowns_short_rows(plan):
        text = (
            f"{_shape(plan)} the model may be no better than one that gives everybody the same answer: the "
            f"noise exceeds the largest gradient of rows with {USUAL_CELLS} cells that are not 0. This "
            "follows from public numbers."
        )
    else:
        return
    warnings.warn(text + advice, UselessModelWarning, stacklevel=stacklevel + 1)


def _drowns_short_rows(plan: Plan) -> bool:
    """Whether the noise on the mean of all gradients is longer than that of rows with few cells can be."""
    problem = plan.problem
    share = min(1.0, math.sqrt(USUAL_CELLS) * problem.bounds.x_inf / problem.row_norm)
    stages = plan.solver.innermost(plan).stages
    gradients = [stage for stage in stages if stage.mechanism.traits.question == "gradient"]
    if not gradients:
        return False
    longest = share * gradients[0].mechanism.sensitivity * plan.n / plan.budget.neighbours.ball
    precision = sum(stage.n_calls / stage.mechanism.noise**2 for stage in gradients)
    return bool(math.sqrt(problem.size / precision) > longest)


class _OutlookKey(PlanKey):
    """Hash key of a plan, with the function that plans it again."""

    def __init__(self, plan: Plan, rule: Hashable, again: Planning) -> None:
        super().__init__(plan, rule)
        self.again = again


@lru_cache(maxsize=256)
def _memoised_text(question: _OutlookKey) -> str:
    text = str(doubt(question.plan, question.again))
    del question.again  # the key is kept with the text, and the function holds the records of its fit
    return text


def _enough(plan: Plan, again: Planning) -> tuple[int | None, float | None]:
    """Smallest number of records at the plan's epsilon, and smallest epsilon for its records."""

    def enough(records: float, epsilon: float) -> bool:
        try:
            return is_useful(again(math.ceil(records), epsilon))
        except (Incompatible, NotAccountable):  # for instance an epsilon that noise of finite precision lacks
            return False

    n, epsilon = plan.n, plan.budget.epsilon
    records = smallest(lambda value: enough(value, epsilon), n, MOST_RECORDS)
    larger = smallest(lambda value: enough(n, value), epsilon, MOST_EPSILON)
    return None if records is None else round(records), larger


def predicted_risk(plan: Plan) -> tuple[float, float]:
    """Predicted excess risk of what a plan runs: (optimisation part, privacy part)."""
    return rehearse_once(plan) or plan.solver.predict(plan.problem, plan.n, plan.budget)


def trivial_risk(plan: Plan) -> float | None:
    """Excess risk of theta = 0 where the prediction was rehearsed; None where there is no such model."""
    problem = plan.solver.innermost(plan).problem
    return risk_at_zero(problem, plan.solver.clip) if is_modelled(problem) else None


def lost_share(plan: Plan) -> str:
    """Compare the predicted excess risk with that of a constant, in a sentence; empty without a rehearsal."""
    rehearsed, trivial = rehearse_once(plan), trivial_risk(plan)
    if rehearsed is None or trivial is None or not is_useful(plan):
        return ""
    share = sum(rehearsed) / trivial
    said = (
        f"The same answer for everybody has an excess risk of {trivial:.2g} there: about {share:.1%} of what "
        "the best model gains over it is lost."
    )
    units = plan.n // plan.budget.neighbours.rows
    if plan.problem.loss.affine and units * plan.budget.epsilon < FEW_RECORDS:
        expected = MEASURED_LOSS * share
        lost = f"to lose about {expected:.0%}" if expected < 1 else "to lose all of it, and perhaps more"
        said += (
            f" That is optimistic below {FEW_RECORDS:,.0f} records times epsilon: there, regressions on real "
            f"tables lost about {MEASURED_LOSS:g} times as much. Expect {lost}."
        )
    return said


def is_useful(plan: Plan) -> bool:
    """Whether enough is learnt: the predicted excess risk is clearly below that of theta = 0."""
    if plan.solver.innermost(plan).solver.constant:
        return False
    trivial = trivial_risk(plan)
    return trivial is None or sum(predicted_risk(plan)) < most_left(plan) * trivial


def most_left(plan: Plan) -> float:
    """Largest predicted excess risk of a useful plan, over that of theta = 0."""
    classes = plan.problem.loss.target == "labels" and plan.problem.outputs == 1
    return MOST_LEFT_OF_CLASSES if classes and has_enough_records(plan.n, plan.budget) else MOST_LEFT


def _default_planning(plan: Plan) -> Planning:
    fit = plan.solver.innermost(plan).solver
    # With more records a constant model is followed by descent.
    kind = NoisyGradientDescent if fit.constant else type(fit)
    solver = plan.solver.with_coordinates(configured(kind, clip=fit.clip))

    def again(n: int, epsilon: float) -> Plan:
        budget = replace(plan.budget, epsilon=epsilon)
        if fit.constant and not has_enough_records(n, budget, outputs=plan.problem.outputs):
            return plan
        return solver.plan(plan.problem, n, budget, plan.accountant)

    return again


def smallest(enough: Callable[[float], bool], low: float, most: float) -> float | None:
    """Smallest value that is enough, to two digits and rounded up, if predictions fall with it."""
    high = low
    while not enough(high):
        low, high = high, 4 * high
        if high > most:
            return None
    while high > 1.05 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    unit = 10.0 ** (math.floor(math.log10(high)) - 1)
    return float(f"{math.ceil(high / unit) * unit:.2g}")
