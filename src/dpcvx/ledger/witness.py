"""Witnesses: the head of a ledger's chain kept elsewhere, so that an old copy of the ledger is noticed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import sqlalchemy as sa

from dpcvx.ledger.store import preparing, reading, writing

__all__ = ["Head", "Witness", "witness_at"]

TAIL = 1 << 14  # bytes read from the end of a file: more than a hundred heads


@dataclass(frozen=True)
class Head:
    """The last link of a chain: which ledger, how many entries, and the hash of the last one."""

    identity: str
    sequence: int
    hash: str


class Witness(Protocol):
    """A place apart from the ledger that remembers heads."""

    def append(self, head: Head) -> None:
        """Keep a head; durable when it returns."""
        ...

    def latest(self, identity: str) -> Head | None:
        """Return the head with the largest sequence among the last ones of a ledger."""
        ...

    def heads(self, identity: str) -> tuple[Head, ...]:
        """Return every head of a ledger."""
        ...


@dataclass(frozen=True)
class FileWitness:
    """A text file with one head per line, only ever appended to."""

    path: Path

    def append(self, head: Head) -> None:
        """Append a line and wait until it is on the disk."""
        line = f"{head.identity} {head.sequence} {head.hash}\n".encode()
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, line)
            os.fsync(file)
        finally:
            os.close(file)

    def latest(self, identity: str) -> Head | None:
        """Return the largest of the last heads; processes may append a little out of order."""
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - TAIL))
                # A line that was cut off at the start has no identity that is known.
                text = file.read().decode("ascii", errors="replace")
        except FileNotFoundError:
            return None
        last = _heads(text, identity) or self.heads(identity)  # another ledger may have filled the end
        return max(last, key=lambda head: head.sequence, default=None)

    def heads(self, identity: str) -> tuple[Head, ...]:
        """Return every head in the file."""
        if not self.path.exists():
            return ()
        return _heads(self.path.read_text(encoding="ascii", errors="replace"), identity)


def _heads(text: str, identity: str) -> tuple[Head, ...]:
    parts = (line.split(" ") for line in text.splitlines())
    return tuple(
        Head(part[0], int(part[1]), part[2])
        for part in parts
        if len(part) == 3 and part[0] == identity and part[1].isdecimal()
    )


_metadata = sa.MetaData()
_table = sa.Table(
    "witness",
    _metadata,
    sa.Column("identity", sa.String(32), primary_key=True),
    sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("hash", sa.String(64), primary_key=True),
)


@dataclass(frozen=True)
class StoreWitness:
    """A table in a second store."""

    url: str

    def append(self, head: Head) -> None:
        """Insert a row."""
        _prepare(self.url)
        row = {"identity": head.identity, "sequence": head.sequence, "hash": head.hash}
        with writing(self.url) as connection:
            connection.execute(_table.insert(), row)

    def latest(self, identity: str) -> Head | None:
        """Return the head with the largest sequence."""
        return next(iter(self._select(identity, limit=1)), None)

    def heads(self, identity: str) -> tuple[Head, ...]:
        """Return every head of a ledger, the latest first."""
        return self._select(identity)

    def _select(self, identity: str, limit: int | None = None) -> tuple[Head, ...]:
        _prepare(self.url)
        chosen = sa.select(_table).where(_table.c.identity == identity)
        with reading(self.url) as connection:
            rows = connection.execute(chosen.order_by(_table.c.sequence.desc()).limit(limit))
            return tuple(Head(*row) for row in rows)


@lru_cache(maxsize=64)
def _prepare(url: str) -> None:
    with preparing(url) as connection:
        _metadata.create_all(connection)


def witness_at(place: str) -> Witness:
    """Return the witness at a path or URL."""
    return StoreWitness(place) if "://" in place else FileWitness(Path(place))
