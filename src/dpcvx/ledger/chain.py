"""Entries of a ledger, each with a hash that covers all before it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from dpcvx.accounting import Budget
from dpcvx.ledger.database import entry_table, head_table
from dpcvx.ledger.witness import Head

__all__ = [
    "FORMAT",
    "STATES",
    "AccountState",
    "Entry",
    "Receipt",
    "SecretChange",
    "WitnessStart",
    "append",
    "canonical",
    "digest",
    "genesis",
    "has",
]

FORMAT = 1


def canonical(content: Mapping[str, Any]) -> str:
    """Return JSON text that depends on the content alone."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(content: str | bytes) -> str:
    """Return the SHA-256 of a text or of bytes."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def genesis(identity: str) -> str:
    """Return the hash that the first entry of a ledger follows."""
    return digest(canonical({"format": FORMAT, "identity": identity}))


@dataclass(frozen=True)
class Receipt:
    """Proof of a charge.

    Parameters
    ----------
    account : str
        Name of the account.
    budget : Budget
        Its cap: the guarantee of everything that was and will be charged to it.
    sequence : int
        Number of the entry in the ledger.
    time : str
        Of the charge, UTC.
    hash : str
        Of the entry, which covers every entry before it.
    key : str, optional
        Key of the request.
    answer : bytes, optional
        Stored answer, where the key had been charged and answered before.
    """

    account: str
    budget: Budget
    sequence: int
    time: str
    hash: str
    key: str | None = None
    answer: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Entry:
    """One charge of an account's history.

    Parameters
    ----------
    sequence : int
    time : str
        UTC.
    purpose : str
    event : dict
        The charged event, in plain types.
    failure : float
        Total-variation distance of the samplers.
    used : float
        Part of the cap that was spent after this charge.
    key : str, optional
    hash : str
    """

    sequence: int
    time: str
    purpose: str
    event: dict[str, Any]
    failure: float
    used: float
    key: str | None
    hash: str


@dataclass(frozen=True)
class WitnessStart:
    """An owner's decision to begin a new witness for a ledger that had entries.

    Parameters
    ----------
    sequence : int
        Number of the entry that records it.
    time : str
        UTC.
    reason : str
    """

    sequence: int
    time: str
    reason: str


STATES = ("open", "frozen", "closed")


@dataclass(frozen=True)
class AccountState:
    """An owner's decision to freeze, open again or close an account.

    Parameters
    ----------
    sequence : int
        Number of the entry that records it.
    time : str
        UTC.
    word : {"open", "frozen", "closed"}
    reason : str
    """

    sequence: int
    time: str
    word: str
    reason: str


@dataclass(frozen=True)
class SecretChange:
    """Replacement of a private value, which must be as its writer left it.

    Parameters
    ----------
    key : str
    before : bytes, optional
        The value that is expected; None if there must be none.
    after : bytes, optional
        The new value; None removes it.
    """

    key: str
    before: bytes | None = field(repr=False)
    after: bytes | None = field(repr=False)


_INSERT, _MOVE = entry_table.insert(), head_table.update()  # made once, like those of accounts


def append(
    connection: sa.Connection,
    head: Head,
    account: str,
    kind: str,
    key: str | None,
    details: Mapping[str, Any],
    answer: bytes | None = None,
) -> tuple[Head, str]:
    """Add a link to the chain; return the new head and the entry's time."""
    time = datetime.now(UTC).isoformat(timespec="microseconds")
    place = {"sequence": head.sequence + 1, "account": account, "kind": kind, "key": key}
    content = canonical({**details, **place, "time": time, "previous": head.hash})
    link = Head(head.identity, head.sequence + 1, digest(content))
    row = {**place, "content": content, "answer": answer, "hash": link.hash}
    connection.execute(_INSERT, row)
    connection.execute(_MOVE, {"sequence": link.sequence, "hash": link.hash})
    return link, time


def has(connection: sa.Connection, head: Head) -> bool:
    """Say whether an entry with the head's number and hash is there; every ledger has its own first head."""
    if head.sequence == 0:
        return head.hash == genesis(head.identity)
    chosen = sa.select(entry_table.c.hash).where(entry_table.c.sequence == head.sequence)
    return connection.execute(chosen).scalar() == head.hash
