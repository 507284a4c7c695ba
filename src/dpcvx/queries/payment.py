"""The charge of an engine: all that it may ever release is paid for before a record is read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dpcvx.accounting import spendable
from dpcvx.errors import BudgetExceeded, DeadKey
from dpcvx.plans import Price
from dpcvx.queries.budget_split import BudgetSplit
from dpcvx.queries.transcript import EngineTranscript, LedgerTranscript

if TYPE_CHECKING:
    from dpcvx.ledger import Account

__all__ = ["Payment", "differences_from_paid"]

FACTS = " facts "  # ends the key of the note that holds an engine's facts, after its digest
USUAL = "the usual"  # value of a fact that is left out
NAMES = {
    "schema": "schema",
    "n": "number of people",
    "n_queries": "number of expected queries",
    "budget": "budget",
    "method": "method",
    "accountant": "accountant",
    "check": "share of the check of the data",
    "bin_means": "share of the bin means",
    "unit": "unit, row or person",
    "persons": "way of counting persons",
}


class Payment:
    """The single charge of an engine, with the budget split that was charged.

    A run of one plan is charged by `dpcvx.plans.charge`. An engine is charged under a
    key, because a restarted engine continues from its transcript and must not pay again, and the budget split
    is stored with the charge. The transcript records how much of the charge was used, before each use.

    `facts`: public facts that identify the engine after a restart.
    """

    def __init__(self, account: Account, facts: Mapping[str, Any]) -> None:
        self._account, self._facts = account, facts
        self._digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
        self._key = f"query engine {self._digest}"

    @property
    def paid_split(self) -> BudgetSplit | None:
        """The budget split that an earlier start was charged for; another version may calibrate otherwise."""
        stored = self._account.answer(self._key)
        return None if stored is None else BudgetSplit.from_json(stored.decode())

    def pay(self, split: BudgetSplit, price: Price) -> EngineTranscript:
        """Charge a budget split, durably, unless an earlier start did; return the transcript."""
        if self.paid_split is None:
            try:
                self._account.charge(
                    price.event,
                    purpose=f"query engine, method {split.method}",
                    failure=price.failure,
                    key=self._key,
                    budget=spendable(price.budget),
                )
            except DeadKey:
                pass  # charged, but the process stopped before it noted that: nothing was released yet
            except BudgetExceeded as refused:
                words = self.differences()
                said = f"The account has paid for an engine with another {words}." if words else ""
                reason = " ".join(part for part in (refused.reason, said) if part)
                raise BudgetExceeded(refused.requested, refused.remaining, reason, refused.delta) from None
            place = f"{self._digest}{FACTS}"
            if self._account.read_note(place) is None:
                self._account.note(place, json.dumps(self._facts).encode())
            self._account.store(self._key, split.to_json().encode())
        return LedgerTranscript(self._account, self._digest)

    def differences(self) -> str:
        """Say in which public facts this engine differs from every one that the account has paid for.

        Empty if the account has paid for this engine, or for none whose facts are known.
        """
        known, wanted = _paid_facts(self._account), json.loads(json.dumps(self._facts))
        if not known or wanted in known or self.paid_split is not None:
            return ""
        changed = [
            name
            for name in NAMES
            if all(wanted.get(name, USUAL) != facts.get(name, USUAL) for facts in known)
        ]
        words = [
            f"{NAMES[name]} ({_change(name, known[-1].get(name, USUAL), wanted.get(name, USUAL))})"
            for name in changed
        ]
        return " and another ".join(words) or "combination of settings"


def differences_from_paid(account: Account, facts: Mapping[str, Any]) -> str:
    """Say in which public facts an engine differs from every one that an account has paid for.

    Empty if it continues one of them, or if the account has paid for none whose facts are known.
    """
    return Payment(account, facts).differences()


def _change(name: str, before: Any, now: Any) -> str:
    """Return a fact of an earlier engine and of this one, as a message shows them."""
    if name == "schema":
        return _different_columns(before, now)
    return f"{_text(name, before)}, now {_text(name, now)}"


def _text(name: str, value: Any) -> str:
    if name == "budget":
        epsilon, delta = value
        return f"epsilon {epsilon:g}, delta {delta:.3g}"
    return f"{value:,}" if name == "n" else str(value)


def _different_columns(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Say in which columns two schemas differ; both are the plain types of `Schema.to_dict`."""
    old, new = ({each["name"]: each for each in schema["attributes"]} for schema in (before, now))
    parts = {
        "not there any more": [name for name in old if name not in new],
        "not there before": [name for name in new if name not in old],
        "declared otherwise": [name for name in new if name in old and new[name] != old[name]],
    }
    words = [f"{', '.join(map(repr, names))} {what}" for what, names in parts.items() if names]
    return "; ".join(words) or "the same columns in another order"


def _paid_facts(account: Account) -> list[dict[str, Any]]:
    """Return the public facts of the engines that an account has paid for, oldest first."""
    notes = account.notes("")
    return [json.loads(content) for key, content in notes if key.split(" ", 1)[1:] == [FACTS[1:]]]
