"""The engine's account: everything is paid for at once, before a record is read."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dpcvx.accounting import Budget
from dpcvx.errors import DeadKey, Incompatible
from dpcvx.events import Event
from dpcvx.execution import spendable
from dpcvx.queries.transcript import Kept, Transcript

if TYPE_CHECKING:
    from dpcvx.ledger import Account, Ledger

__all__ = ["open_account", "pay"]


def open_account(
    ledger: Ledger | str | os.PathLike[str] | None, account: str | None, *, private: bool
) -> Account | None:
    """Return the account to charge, or None where neither a ledger nor an account is given."""
    if ledger is None and account is None:
        return None
    if ledger is None or account is None:
        given, missing = ("account", "ledger") if ledger is None else ("ledger", "account")
        raise Incompatible(f"{given} was given without {missing}: give both to charge, or neither.")
    if not private:
        raise Incompatible(
            "A seeded engine is not private, so no ledger can vouch for it: leave out the seed or the ledger."
        )
    from dpcvx.ledger import Ledger

    return (ledger if isinstance(ledger, Ledger) else Ledger(ledger)).account(account)


def pay(
    account: Account, plan: Mapping[str, Any], event: Event, *, purpose: str, failure: float, budget: Budget
) -> Transcript:
    """Charge a plan, durably, and return its transcript; a plan that was charged before continues.

    The whole is one charge, so that an engine may take all of an account; how much of it was used is kept in
    the transcript, written before each use.

    Parameters
    ----------
    account : Account
    plan : mapping
        Public facts by which the engine is known again after a restart.
    event : Event
        Everything that it may ever ask.
    purpose : str
        What the history says of it.
    failure : float
        Total-variation distance of its samplers.
    budget : Budget
        What it was planned for.
    """
    digest = hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()
    key = f"query engine {digest}"
    try:
        receipt = account.charge(event, purpose=purpose, failure=failure, key=key, budget=spendable(budget))
        noted = receipt.answer is not None
    except DeadKey:  # charged, and stopped before that was noted: nothing had been asked yet
        noted = False
    if not noted:
        account.store(key, b"charged")
    return Kept(account, digest)
