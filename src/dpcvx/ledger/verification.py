"""Check of a whole ledger: the chain of hashes, every price and total, and the heads that a witness saw."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from dpcvx.accounting import Budget, budget_of
from dpcvx.errors import LedgerDamaged, WrongValue
from dpcvx.events import from_plain
from dpcvx.ledger.chain import FORMAT, STATES, canonical, digest, genesis
from dpcvx.ledger.database import account_table, entry_table, head_table, reading
from dpcvx.ledger.filters import FRESH, Spending, covers
from dpcvx.ledger.witness import witness_at

__all__ = ["Verification", "verify"]


@dataclass(frozen=True)
class Verification:
    """Result of the check of a sound ledger.

    Parameters
    ----------
    entries, accounts : int
        How many.
    head : str
        Hash of the last entry; it covers all of them.
    witnessed : int, optional
        Number of heads that a witness had seen, all of them present; None without a witness, and then an old
        copy of the ledger would not have been noticed.
    """

    entries: int
    accounts: int
    head: str
    witnessed: int | None

    def __str__(self) -> str:
        told = (
            "no witness, so an old copy would not be noticed"
            if self.witnessed is None
            else f"all {self.witnessed} witnessed heads are there"
        )
        return f"{self.entries} entries of {self.accounts} account(s) are sound; {told}; head {self.head}"


@dataclass
class _State:
    """State of an account as its entries tell it."""

    cap: Budget
    spending: Spending = FRESH
    charged: set[str] = field(default_factory=set)
    closed: bool = False


def verify(url: str, witness: str | None, name: str) -> Verification:
    """Check a ledger; see `Ledger.verify`.

    `url`: where it is stored; `witness`: where its heads were seen; `name`: how messages call it.
    """
    # First, because heads seen before the entries are read must be among them.
    seen = None if witness is None else witness_at(witness).heads()
    replayed: dict[str, _State] = {}
    with reading(url) as connection:
        heads = connection.execute(sa.select(head_table)).all()
        if len(heads) != 1 or heads[0].format != FORMAT:
            raise LedgerDamaged(f"The {name} has no head of format {FORMAT}.")
        hashes = [genesis(heads[0].identity)]
        entries = sa.select(entry_table).order_by(entry_table.c.sequence)
        with connection.execute(entries, execution_options={"yield_per": 1000}) as rows:
            for row in rows:
                try:
                    _check_entry(row, hashes, replayed)
                except (KeyError, TypeError, ValueError, RecursionError) as problem:
                    raise LedgerDamaged(f"Entry {row.sequence} of {name} was edited.") from problem
                hashes.append(row.hash)
        accounts = connection.execute(sa.select(account_table)).all()
    if (heads[0].sequence, heads[0].hash) != (len(hashes) - 1, hashes[-1]):
        raise LedgerDamaged(f"The last entries of {name} are missing, or its head was edited.")
    if {row.name for row in accounts} != set(replayed):
        raise LedgerDamaged(f"The accounts of {name} are not those that its entries made.")
    for row in accounts:
        _check_account(row, replayed[row.name])
    if seen is not None:
        # A ledger whose creation was cut off left its first head, which has no entry, and nothing else.
        seen = tuple(head for head in seen if head.sequence or head.identity == heads[0].identity)
        if not seen:
            raise LedgerDamaged(
                f"The witness has never seen {name}: it was lost, is another file, or was never begun. To "
                "begin one:  dpcvx ledger witness --ledger FILE --witness FILE --reason TEXT"
            )
    for head in seen or ():
        if head.identity != heads[0].identity:
            raise LedgerDamaged(f"The witness knows another ledger than {name}.")
        if head.sequence >= len(hashes) or hashes[head.sequence] != head.hash:
            raise LedgerDamaged(
                f"The witness saw entry {head.sequence} of {name}, which is not there: this is an old or "
                "edited copy."
            )
    witnessed = None if seen is None else len({head.sequence for head in seen} - {0})
    return Verification(len(hashes) - 1, len(accounts), hashes[-1], witnessed)


def _check_entry(row: Any, hashes: list[str], replayed: dict[str, _State]) -> None:
    """Check one entry against the chain so far and replay it; raise ValueError or KeyError if it is wrong."""
    content = json.loads(row.content)
    told = (content["sequence"], content["account"], content["kind"], content["key"])
    if told != (row.sequence, row.account, row.kind, row.key) or row.sequence != len(hashes):
        raise WrongValue("The entry is not where it says it is.")
    if digest(row.content) != row.hash or content["previous"] != hashes[-1]:
        raise WrongValue("The chain is broken.")
    if (digest(row.answer) if row.answer is not None else None) != content.get("answer"):
        raise WrongValue("The stored answer is another one.")
    if row.kind == "create":
        if row.account in replayed:
            raise WrongValue("The account was made twice.")
        replayed[row.account] = _State(budget_of(content["epsilon"], content["delta"], content["relation"]))
    elif row.kind == "charge":
        _check_charge(content, replayed[row.account])
    elif row.account not in replayed:
        raise WrongValue("The account was never made.")
    elif row.kind == "answer" and row.key not in replayed[row.account].charged:
        raise WrongValue("The answer was never charged.")
    elif row.kind == "state":
        if content["state"] not in STATES or replayed[row.account].closed:
            raise WrongValue("The account cannot have this state.")
        replayed[row.account].closed = content["state"] == "closed"
    elif row.kind not in ("answer", "note", "witness"):
        raise WrongValue("The entry is no charge, answer, note, witness, state or account.")


def _check_charge(content: Mapping[str, Any], account: _State) -> None:
    after = Spending.from_plain(content["spending"])
    priced = {"failure": content["failure"], "delta": content["planned_delta"]}
    if not covers(account.cap, account.spending, after, from_plain(content["event"]), **priced):
        raise WrongValue("The charge was priced too low.")
    account.spending = after
    if content["key"] is not None:
        account.charged.add(content["key"])


def _check_account(row: Any, told: _State) -> None:
    cap, spending = told.cap, told.spending
    stored = (row.epsilon, row.delta, row.relation, row.spending, row.used, row.failed)
    plain = canonical(spending.to_plain())
    if stored != (cap.epsilon, cap.delta, cap.relation_word, plain, spending.used(cap), spending.failed(cap)):
        raise LedgerDamaged(f"Account {row.name!r} was edited: its entries tell another total or cap.")
