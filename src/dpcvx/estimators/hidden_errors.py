"""Notes on plans whose standard errors noise will hide, and the share of the budget that they need.

Both follow from simulations of the fit on records drawn from public assumptions (`power`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from dpcvx.estimators.assumptions import Assumptions
from dpcvx.estimators.hypotheses import INTERCEPT
from dpcvx.estimators.planning import MAY_HIDE, SAY_NOTHING, FitDeclaration
from dpcvx.estimators.power import (
    CAUTIOUS_RUNS,
    RUNS,
    enough_to_see,
    hidden_shares,
    simulated_sample,
    ways_to_see,
)
from dpcvx.planning.candidates import PlanKey
from dpcvx.plans import Plan
from dpcvx.solvers.defaults import default
from dpcvx.solvers.one_step import hides_errors

__all__ = ["plan_with_best_share", "with_hidden_note"]

SHARES: tuple[float, ...] = default("estimators.hidden_errors.SHARES")
RESCUE_COST: float = default("estimators.hidden_errors.RESCUE_COST")
HIDDEN_ERRORS = (
    f"the {SAY_NOTHING}: noise hides the curvature of usual records in most "
    "directions. There are too few records, or epsilon is too small, for so many columns; this follows from "
    "public numbers. Use more records, a larger epsilon or fewer columns, or give uncertainty=0, which "
    "leaves the whole budget to the model"
)
NOTE_RUNS = 2  # simulated fits for each of the two assumptions
MOST_FEATURES = 60  # of a fit that is simulated for a note
MOST_NAMES = 4  # of coefficients in a note
USUAL, CAUTIOUS = Assumptions(), Assumptions(cautious=True)


def with_hidden_note(
    model: Any,
    made: FitDeclaration,
    again: Callable[[int, float], FitDeclaration],
    assumed: Assumptions = USUAL,
) -> FitDeclaration:
    """Return a declared fit whose plan says if noise will probably hide standard errors.

    `model`: it is not changed; `again`: the fit for another number of records and epsilon; `assumed`: known
    facts of the records. All is public.
    """
    solver: Any = made.plan.solver
    if solver.hessian_share is None or getattr(solver, "basis", None) is not None:
        return made
    if made.columns.width > MOST_FEATURES:
        note = HIDDEN_ERRORS if hides_errors(made.plan) else ""
    else:
        note = _note(_Question(model, made, again, assumed))
    if not note:
        return made
    return dataclasses.replace(made, plan=dataclasses.replace(made.plan, notes=(*made.plan.notes, note)))


class _Question:
    """Hash key of a simulation: the facts that it depends on, and how a fit is declared.

    `assumed`: facts of the records that are known.
    """

    def __init__(
        self,
        model: Any,
        made: FitDeclaration,
        declare: Callable[..., FitDeclaration],
        assumed: Assumptions = USUAL,
    ) -> None:
        self.model, self.made, self.declare, self.assumed = model, made, declare, assumed
        columns = made.columns
        facts = (
            type(model),
            columns.names,
            tuple(columns.low.tolist()),
            tuple(columns.high.tolist()),
            tuple(None if each is None else each.values for each in columns.levels),
            model._several_rows,
            None if model.weight_bounds is None else tuple(np.ravel(model.weight_bounds).tolist()),
            repr(assumed),
        )
        self.key = PlanKey(made.plan, facts)

    def twin(self) -> Any:
        """Return a model that simulations may overwrite."""
        twin = clone(self.model).set_params(ledger=None, account=None)
        twin._several_rows = self.model._several_rows
        return twin

    def forget(self) -> None:
        """Drop all but the key, which is kept with the answer: a declaration holds the records of its fit."""
        del self.model, self.made, self.declare

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Question) and self.key == other.key


def _hidden(
    model: Any, made: FitDeclaration, assumed: Assumptions, runs: int = NOTE_RUNS
) -> NDArray[np.bool_]:
    """Say of each coefficient whether noise hides it in most runs, the intercept last."""
    found = simulated_sample(model, made, assumed).run(model, made, runs)
    return hidden_shares(found) > 0.5


@lru_cache(maxsize=256)
def _note(question: _Question) -> str:
    """Return the note about standard errors that noise hides; none if it hides none."""
    found = _simulated_note(question)
    question.forget()
    return found


def _simulated_note(question: _Question) -> str:
    twin, made, assumed = question.twin(), question.made, question.assumed
    records = "usual records" if assumed == USUAL else "records with the given facts"
    usual = _hidden(twin, made, assumed)
    if usual.any():
        n, epsilon = made.plan.n, made.plan.budget.epsilon

        def seen(records: int, larger: float) -> bool:
            return not _hidden(twin, question.declare(records, larger), assumed).any()

        ways = ways_to_see(enough_to_see(seen, n, epsilon), weighted=twin.weight_bounds is not None)
        return (
            f"{_count(usual)} {SAY_NOTHING}{_names(twin, usual)}: noise hides how {records} vary in some "
            "directions. This follows from a simulation with the public numbers of this fit; power() shows "
            f"what it assumes. {ways} uncertainty=0 leaves the whole budget to the model"
        )
    worse = _hidden(twin, made, dataclasses.replace(assumed, cautious=True))
    if not worse.any():
        return ""
    return (
        f"{MAY_HIDE} {_count(worse)} standard errors{_names(twin, worse)}: noise hides them in a simulation "
        f"of closely correlated columns with rare values, but not in one of {records}. power() shows both; "
        "give it the standard deviations, shares and weights that you know. More records, a larger epsilon "
        "or fewer columns help"
    )


def _count(hidden: NDArray[np.bool_]) -> str:
    return "all" if hidden.all() else f"{int(hidden.sum())} of {len(hidden)}"


def _names(model: Any, hidden: NDArray[np.bool_]) -> str:
    """Return the names of hidden coefficients in brackets; none if all are hidden."""
    if hidden.all():
        return ""
    names = [str(name) for name, each in zip((*model.coef_names_, INTERCEPT), hidden, strict=True) if each]
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f" ({', '.join(names[:MOST_NAMES])}{more})"


def plan_with_best_share(
    model: Any,
    declared: Callable[[Plan, float], FitDeclaration],
    plan_fit: Callable[[Any], tuple[Plan, float]],
) -> tuple[Plan, float]:
    """Return the plan whose share for uncertainty gives the smallest standard errors in simulations.

    `model`: it is not changed; `declared`: the fit with a plan and the value of the intercept's feature, both
    of which are returned; `plan_fit`: plans the fit of a model with another share. All is public.
    """
    twin = clone(model).set_params(ledger=None, account=None)
    twin._several_rows = model._several_rows

    def declare(share: float) -> FitDeclaration:
        return declared(*plan_fit(twin.set_params(uncertainty=share)))

    first = declare(SHARES[0])
    share = _best_share(_Question(twin, first, declare))
    return plan_fit(twin.set_params(uncertainty=share))


@lru_cache(maxsize=64)
def _best_share(question: _Question) -> float:
    """Return the share with the smallest mean logarithm of the variances of usual records, or a larger one.

    Runs in which noise hides a direction count as they are. If noise hides all coefficients of cautious
    records with the best share, the least larger share with which it does not is returned instead, unless
    the standard errors of usual records are then more than `RESCUE_COST` times as large.
    """

    def error(share: float) -> float:
        made = question.declare(share)
        runs = simulated_sample(question.model, made, USUAL).run(question.model, made, RUNS)
        variances = [np.diag(each.covariance)[:-1] for each in runs]
        return float(np.log(np.mean(variances, axis=0)).mean())

    def seen(share: float) -> bool:
        return not _hidden(question.model, question.declare(share), CAUTIOUS, CAUTIOUS_RUNS).all()

    errors = {share: error(share) for share in SHARES}
    best = min(SHARES, key=lambda share: errors[share])
    most = errors[best] + 2 * math.log(RESCUE_COST)  # of logarithms of variances
    larger = (share for share in SHARES if share >= best and errors[share] <= most)
    found = next(filter(seen, larger), best)
    question.forget()
    return found
