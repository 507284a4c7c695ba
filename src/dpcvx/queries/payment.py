"""The engine's account: everything is paid for at once, before a record is read."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dpcvx.accounting import Budget, spendable
from dpcvx.errors import BudgetExceeded, DeadKey, Incompatible
from dpcvx.events import Event
from dpcvx.queries.budget_split import BudgetSplit
from dpcvx.queries.transcript import EngineTranscript, LedgerTranscript

if TYPE_CHECKING:
    from dpcvx.ledger import Account, Ledger

__all__ = ["Payment", "open_account"]

FACTS = " facts "  # ends the key of the note that holds an engine's facts, after its digest
NAMES = {
    "schema": "schema",
    "n": "number of records",
    "n_queries": "number of expected queries",
    "budget": "budget",
    "method": "method",
    "accountant": "accountant",
}


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
        self._account, self._facts = account, facts
        self._digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
        self._key = f"query engine {self._digest}"

    @property
    def planned(self) -> BudgetSplit | None:
        """The split that was charged by an earlier start: another version may calibrate otherwise."""
        kept = self._account.answer(self._key)
        return None if kept is None else BudgetSplit.from_json(kept.decode())

    def pay(self, split: BudgetSplit, event: Event, *, failure: float, budget: Budget) -> EngineTranscript:
        """Charge what an split costs, durably, unless an earlier start did; return the transcript."""
        if self.planned is None:
            try:
                self._account.charge(
                    event,
                    purpose=f"query engine, method {split.method}",
                    failure=failure,
                    key=self._key,
                    budget=spendable(budget),
                )
            except DeadKey:
                pass  # charged, and stopped before that was noted: nothing had been asked yet
            except BudgetExceeded as refused:
                reason = " ".join(part for part in (refused.reason, self._differences()) if part)
                raise BudgetExceeded(refused.requested, refused.remaining, reason, refused.delta) from None
            place = f"{self._digest}{FACTS}"
            if self._account.noted(place) is None:
                self._account.note(place, json.dumps(self._facts).encode())
            self._account.store(self._key, split.to_json().encode())
        return LedgerTranscript(self._account, self._digest)

    def _differences(self) -> str:
        """Say in which public facts this engine differs from the ones that the account has paid for."""
        notes = self._account.notes("")
        known = [json.loads(content) for key, content in notes if key.split(" ", 1)[1:] == [FACTS[1:]]]
        wanted = json.loads(json.dumps(self._facts))
        words = []
        for name, value in wanted.items():
            if known and all(value != facts.get(name) for facts in known):
                before = known[-1].get(name)
                shown = "" if isinstance(value, dict) else f" ({before}, now {value})"
                words.append(f"{NAMES[name]}{shown}")
        return (
            f"The account has paid for an engine with another {' and another '.join(words)}." if words else ""
        )
