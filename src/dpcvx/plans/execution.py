"""Charge, run, release: the one path from a plan through private answers to a published parameter."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpcvx.accounting import spendable
from dpcvx.arrays import Vector
from dpcvx.data.dataset import closing
from dpcvx.errors import BudgetExceeded, DeadKey, Incompatible, Interrupted
from dpcvx.plans.answers import PAUSE, Answers
from dpcvx.plans.oracle import Observer, Oracle, Progress
from dpcvx.plans.plan import Plan
from dpcvx.words import html_table

if TYPE_CHECKING:
    from dpcvx.data import DataSource, Region
    from dpcvx.ledger import Account, Ledger, Receipt
    from dpcvx.noise import Generator
    from dpcvx.plans.checkpoint import Checkpoint
    from dpcvx.plans.price import Price
    from dpcvx.plans.uncertainty import Uncertainty

__all__ = ["Release", "charge", "execute", "open_account"]


@dataclass(frozen=True)
class Release:
    """Published result of a run: the parameter, its plan, and the receipt if it was charged to an account.

    ``uncertainty`` holds the covariance of the error, if that was planned; ``region`` the region that rows
    were clipped to before the fit; ``caution`` a warning to the reader.
    """

    theta: Vector
    plan: Plan
    private: bool
    receipt: Receipt | None = None
    uncertainty: Uncertainty | None = None
    region: Region | None = None
    caution: str | None = None

    @property
    def n_iter(self) -> int:
        """Number of private answers that the fit itself used, without standardisation; fixed by the plan.

        A fit that asks for no gradient has the answers to its other questions.
        """
        fit = sum(stage.n_calls for stage in self.plan.stages if stage.mechanism.evaluations > 0)
        return fit or self.plan.n_calls

    @property
    def gradient_evaluations(self) -> float:
        """Gradients of single records; expected where records were sampled, never the realised number."""
        return self.plan.gradient_evaluations

    def _repr_html_(self) -> str:
        budget, receipt = self.plan.budget, self.receipt
        guarantee = f"epsilon = {budget.epsilon:g}, delta = {budget.delta:.3g}"
        facts = [
            ("guarantee", guarantee if self.private else "none: the noise came from a seed"),
            ("parameter", " x ".join(map(str, self.theta.shape)) + " numbers, in theta"),
            (
                "ledger",
                "nothing was charged"
                if receipt is None
                else f"charged to account {receipt.account!r}, entry {receipt.sequence}",
            ),
            *([] if self.caution is None else [("caution", self.caution)]),
        ]
        return html_table("Release" if self.private else "NOT PRIVATE - Release", facts) + (
            self.plan._repr_html_()
        )


def open_account(
    ledger: Ledger | str | os.PathLike[str] | None, account: str | None, *, private: bool
) -> Account | None:
    """Return the account that pays, or None if neither a ledger nor an account is given.

    `account`: name of the account; it is given if and only if a ledger is. `private`: whether the noise will
    be cryptographic. A seeded run is refused: it gives no guarantee to record.
    """
    if ledger is None and account is None:
        return None
    if ledger is None or account is None:
        given, missing = ("account", "ledger") if ledger is None else ("ledger", "account")
        raise Incompatible(f"{given} was given without {missing}: give both to charge the run, or neither.")
    if not private:
        raise Incompatible(
            "A seeded run is not private, so no ledger can vouch for it: leave the seed out, or the ledger."
        )
    from dpcvx.ledger import Account, Ledger

    return Account(ledger if isinstance(ledger, Ledger) else Ledger(ledger), account)


def charge(
    price: Price,
    ledger: Ledger | str | os.PathLike[str] | None,
    account: str | None,
    *,
    private: bool,
    purpose: str,
    key: str | None = None,
) -> Receipt | None:
    """Pay for a release from an account before anything is computed; return None where no account is given.

    `account`: name of the account; it is given if and only if a ledger is; `private`: whether the noise will
    be cryptographic; see `open_account`; `purpose`: what the history says of it; `key`: a key that was
    charged for the same release before is not charged again, and its receipt is returned.
    """
    payer = open_account(ledger, account, private=private)
    if payer is None:
        return None
    budget = spendable(price.budget)
    try:
        return payer.charge(price.event, purpose=purpose, failure=price.failure, key=key, budget=budget)
    except DeadKey:
        return payer.receipt(str(key))


def execute(
    plan: Plan,
    source: DataSource | Callable[[Answers], DataSource],
    *,
    rng: Generator | None = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    account: str | None = None,
    purpose: str | None = None,
    progress: Progress | None = None,
    observe: Observer | None = None,
    checkpoint: Checkpoint | None = None,
) -> Release:
    """Run a plan on records: the only path, for estimators, tuning, the query engine and the command line.

    Parameters
    ----------
    plan : Plan
        Stages of the run, fixed in advance.
    source : DataSource, or callable
        The quantised records; or a function that opens them, called with the run's `Answers` once the plan
        is paid for: it may ask what the plan asks before its fit, and its source is closed after the run.
    rng : Generator, optional
        Source of randomness; None draws from a cryptographic generator, a ``SeededGenerator`` marks the
        release "not private".
    ledger : Ledger, path or URL, optional
        Where the run is charged, durably, before anything is computed from the records.
    account : str, optional
        Name of the account; it is given if and only if a ledger is.
    purpose : str, optional
        Entry of the ledger's history; by default the name of the solver.
    progress : callable, optional
        Called with (answers so far, answers planned); both are public.
    observe : callable, optional
        Called with the mechanism, the public arguments and the noised answer of each call.
    checkpoint : Checkpoint, optional
        File in which answers are stored before progress, observers or the result can show them. If it exists
        the run continues after the answers that it holds, and is not charged again.

    Raises
    ------
    Interrupted
        After a Ctrl-C: it says what was charged and what was kept.
    """
    plan.price.check_budget()
    if rng is None:
        from dpcvx.noise import SecureGenerator

        rng = SecureGenerator()
    _check_slopes(plan)
    if not callable(source):
        _check_source(plan, source)
    payer = open_account(ledger, account, private=rng.private)
    file = None if checkpoint is None else checkpoint.open(plan, payer, private=rng.private)
    receipt = None
    answers = Answers(rng, file, pause=PAUSE if _is_ours(plan.solver) else 0.0)
    try:
        with answers:
            purpose = purpose or type(plan.solver).__name__
            receipt = _pay(plan, answers, ledger, account, purpose)
            answers.recall()
            if not callable(source):
                return _run(plan, source, answers, receipt, progress, observe)
            with closing(source(answers)) as records:
                _check_source(plan, records)
                return _run(plan, records, answers, receipt, progress, observe)
    except KeyboardInterrupt:
        path = None if file is None else file.path
        raise Interrupted(receipt, path, answers.count, account) from None


def _is_ours(solver: object) -> bool:
    """Whether a solver, and any solver inside it, belong to this package: these show nobody an answer.

    Such a solver may go on before an answer is stored; any other solver waits until it is.
    """
    inner = getattr(solver, "solver", None)
    return type(solver).__module__.startswith("dpcvx.") and (inner is None or _is_ours(inner))


def _pay(
    plan: Plan,
    answers: Answers,
    ledger: Ledger | str | os.PathLike[str] | None,
    account: str | None,
    purpose: str,
) -> Receipt | None:
    """Charge a run; if the charge is refused, remove the new checkpoint."""
    file, private = answers.file, answers.rng.private
    try:
        key = None if file is None else file.key
        return charge(plan.price, ledger, account, private=private, purpose=purpose, key=key)
    except (BudgetExceeded, Incompatible):
        if file is not None and file.created:
            file.discard()
        raise


def _check_slopes(plan: Plan) -> None:
    """Compile the slopes that the plan's queries need: a user's own loss may not compile."""
    from dpcvx.data import kernels

    for stage in plan.stages:
        if not (stage.mechanism.traits.measures or stage.mechanism.traits.copies):
            loss = getattr(stage.mechanism, "problem", plan.problem).loss
            kernels.residuals_of(loss.slope, loss.joint, loss.offset)


def _check_source(plan: Plan, source: DataSource) -> None:
    """Refuse a source that does not fit the plan: other sizes, or records that cannot be mapped."""
    from dpcvx.data import CanStandardise

    if any(stage.mechanism.traits.measures for stage in plan.stages) and not isinstance(
        source, CanStandardise
    ):
        raise Incompatible("Records of this source cannot be standardised: give standardize=False.")
    if plan.budget.neighbours.replaces and source.n != plan.n:
        raise Incompatible(
            f"The plan is for n={plan.n} {plan.budget.neighbours.noun}s, the source has {source.n}: plan "
            f"again with n={source.n}."
        )
    if getattr(source, "weight", 1) != plan.budget.neighbours.weight:
        raise Incompatible(
            "The plan and the source disagree on whether records have weights: plan with the unit and "
            "weight of the source."
        )
    if source.n > min(stage.mechanism.capacity for stage in plan.stages):
        raise Incompatible("The source has more records than the plan's exact sums have room for.")
    if source.d != plan.problem.d:
        raise Incompatible(f"The plan is for d={plan.problem.d} features, the source has {source.d}.")


def _run(
    plan: Plan,
    source: DataSource,
    answers: Answers,
    receipt: Receipt | None,
    progress: Progress | None,
    observe: Observer | None,
) -> Release:
    oracle = Oracle(plan, source.within(plan.problem.bounds), answers.rng, progress, observe, answers)
    theta = plan.solver.run(plan, oracle)
    if answers.waiting:
        answers.store()
        if progress is not None:
            progress(plan.n_calls, plan.n_calls)
    beside = oracle.uncertainty, oracle.region, oracle.caution
    return Release(np.asarray(theta, dtype=np.float64), plan, answers.rng.private, receipt, *beside)
