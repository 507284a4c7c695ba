"""Entries of one account in a ledger's chain, read in an open transaction."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from dpcvx.accounting import Budget
from dpcvx.errors import AccountNotOpen
from dpcvx.ledger.chain import AccountState, Entry, WitnessStart
from dpcvx.ledger.database import entry_table
from dpcvx.ledger.filters import WHOLE, Spending

__all__ = ["AccountEntries"]

# Made once: building a statement costs as much as running it.
_KEY = sa.select(entry_table).where(
    entry_table.c.account == sa.bindparam("wanted"),
    entry_table.c.kind == sa.bindparam("kind"),
    entry_table.c.key == sa.bindparam("key"),
)


@dataclass(frozen=True)
class AccountEntries:
    """Reads the entries of an account.

    `name`: of the account.
    """

    connection: sa.Connection
    name: str

    def find(self, kind: str, key: str) -> Any:
        """Return the row of the entry of a kind and a key, or None."""
        return self.connection.execute(_KEY, {"wanted": self.name, "kind": kind, "key": key}).first()

    def content(self, kind: str, key: str) -> bytes | None:
        """Return the bytes that are stored with the entry of a kind and a key, or None."""
        row = self.find(kind, key)
        return None if row is None else row.answer

    def notes(self, prefix: str) -> tuple[tuple[str, bytes], ...]:
        """Return the keys that begin with a text, with their notes, in order."""
        columns = entry_table.c
        begins = columns.key.startswith(prefix, autoescape=True)
        chosen = sa.select(columns.key, columns.answer).where(*self._of("note"), begins)
        rows = self.connection.execute(chosen.order_by(columns.sequence)).all()
        return tuple((row.key, bytes(row.answer)) for row in rows)

    def states(self) -> tuple[AccountState, ...]:
        """Return the decisions to freeze, open again or close the account, in order."""
        names = ("sequence", "time", "state", "reason")
        return tuple(AccountState(*(each[name] for name in names)) for each, _ in self._rows("state"))

    def require_open(self) -> None:
        """Refuse an account that is frozen or closed."""
        states = self.states()
        if states and states[-1].word != "open":
            now = states[-1]
            raise AccountNotOpen(
                f"The data owner has {now.word} account {self.name!r} at {now.time[:19]}: {now.reason}"
            )

    def witness_starts(self) -> tuple[WitnessStart, ...]:
        """Return the decisions to begin a new witness, in order."""
        names = ("sequence", "time", "reason")
        return tuple(WitnessStart(*(each[name] for name in names)) for each, _ in self._rows("witness"))

    def charges(self, cap: Budget) -> tuple[Entry, ...]:
        """Return every charge, in order; `cap`: of the account."""
        names = ("sequence", "time", "purpose", "event", "failure", "key")
        return tuple(
            Entry(
                **{name: each[name] for name in names},
                used=Spending.from_plain(each["spending"]).used(cap) / WHOLE,
                hash=hash,
            )
            for each, hash in self._rows("charge")
        )

    def _of(self, kind: str) -> tuple[sa.ColumnElement[bool], ...]:
        return entry_table.c.account == self.name, entry_table.c.kind == kind

    def _rows(self, kind: str) -> list[tuple[dict[str, Any], str]]:
        """Return content and hash of the entries of a kind, in order."""
        chosen = sa.select(entry_table.c.content, entry_table.c.hash).where(*self._of(kind))
        rows = self.connection.execute(chosen.order_by(entry_table.c.sequence)).all()
        return [(json.loads(row.content), row.hash) for row in rows]
