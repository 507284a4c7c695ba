"""The engine's account: everything is paid for at once, before a record is read."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dpcvx.accounting import Budget
from dpcvx.errors import DeadKey, Incompatible
from dpcvx.events import Event
from dpcvx.execution import spendable
from dpcvx.queries.allotment import Allotment
from dpcvx.queries.transcript import Kept, Transcript

if TYPE_CHECKING:
    from dpcvx.ledger import Account, Ledger

__all__ = ["Payment", "open_account"]


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


class Payment:
    """The one charge of an engine, and what was planned when it was made.

    The whole is one charge, so that an engine may take all of an account; how much of it was used is kept in
    the transcript, written before each use.

    Parameters
    ----------
    account : Account
    facts : mapping
        Public facts by which the engine is known again after a restart.
    """

    def __init__(self, account: Account, facts: Mapping[str, Any]) -> None:
        self._account = account
        self._digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
        self._key = f"query engine {self._digest}"

    @property
    def planned(self) -> Allotment | None:
        """The allotment that was charged by an earlier start: another version may calibrate otherwise."""
        kept = self._account.answer(self._key)
        return None if kept is None else Allotment.from_json(kept.decode())

    def pay(self, allotment: Allotment, event: Event, *, failure: float, budget: Budget) -> Transcript:
        """Charge what an allotment costs, durably, unless an earlier start did; return the transcript."""
        if self.planned is None:
            with suppress(DeadKey):  # charged, and stopped before that was noted: nothing had been asked yet
                self._account.charge(
                    event,
                    purpose=f"query engine, method {allotment.method}",
                    failure=failure,
                    key=self._key,
                    budget=spendable(budget),
                )
            self._account.store(self._key, allotment.to_json().encode())
        return Kept(self._account, self._digest)
