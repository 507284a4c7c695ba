"""Witnesses: the head of a ledger's chain kept elsewhere, so that an old copy of the ledger is noticed."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import sqlalchemy as sa

from dpcvx.errors import LedgerUnavailable
from dpcvx.ledger.database import file_exists, preparing, reading
from dpcvx.whole_files import sync_folder

__all__ = ["Head", "Witness", "witness_at"]

TAIL = 1 << 14  # bytes read from the end of a file: more than a hundred heads


@dataclass(frozen=True)
class Head:
    """The last link of a chain: which ledger, how many entries, and the hash of the last one."""

    identity: str
    sequence: int
    hash: str


class Witness(Protocol):
    """A place apart from the ledger that remembers its heads; it serves one ledger alone.

    The head without entries is written here before the ledger's first entry, and every later one after its
    entry. A crash in between therefore leaves a witness that knows the ledger and lags behind it, never one
    that is empty beside entries or ahead of them.
    """

    def append(self, head: Head) -> None:
        """Keep a head; durable when it returns."""
        ...

    def latest(self, identity: str) -> Head | None:
        """Return the head with the largest sequence among the last ones, of equal ones that of `identity`."""
        ...

    def heads(self) -> tuple[Head, ...]:
        """Return every head."""
        ...


@dataclass(frozen=True)
class FileWitness:
    """A text file with one head per line, only ever appended to."""

    path: Path

    def append(self, head: Head) -> None:
        """Append a line and wait until it is on the disk."""
        line = f"{head.identity} {head.sequence} {head.hash}\n".encode()
        new = not self.path.exists()
        file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            size = os.lseek(file, 0, os.SEEK_END)
            os.lseek(file, max(0, size - 1), os.SEEK_SET)
            if size and os.read(file, 1) != b"\n":
                line = b"\n" + line  # a full disk cut the last one: it must not take this one with it
            if os.write(file, line) != len(line):
                raise LedgerUnavailable(f"The witness at {self.path} has no room: nothing is released.")
            os.fsync(file)
        finally:
            os.close(file)
        if new:
            sync_folder(self.path.parent)

    def latest(self, identity: str) -> Head | None:
        """Return the largest of the last heads; processes may append a little out of order."""
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - TAIL))
                text = file.read().decode("ascii", errors="replace")
        except FileNotFoundError:
            return None
        return max(_heads(text), key=lambda head: (head.sequence, head.identity == identity), default=None)

    def heads(self) -> tuple[Head, ...]:
        """Return every head in the file."""
        if not self.path.exists():
            return ()
        return _heads(self.path.read_text(encoding="ascii", errors="replace"))


_LINE = re.compile(r"^([0-9a-f]{32}) ([0-9]+) ([0-9a-f]{64})$", re.MULTILINE)  # a line cut in two is none


def _heads(text: str) -> tuple[Head, ...]:
    return tuple(Head(found[1], int(found[2]), found[3]) for found in _LINE.finditer(text))


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
        """Insert a row, and create the table where there is none."""
        row = {"identity": head.identity, "sequence": head.sequence, "hash": head.hash}
        with preparing(self.url) as connection:
            _metadata.create_all(connection)
            known = sa.select(_table.c.sequence).filter_by(**row)
            if connection.execute(known).first() is None:  # another process may have told it
                connection.execute(_table.insert(), row)

    def latest(self, identity: str) -> Head | None:
        """Return the head with the largest sequence."""
        return next(iter(self._select(identity, limit=1)), None)

    def heads(self) -> tuple[Head, ...]:
        """Return every head, the latest first."""
        return self._select()

    def _select(self, identity: str = "", limit: int | None = None) -> tuple[Head, ...]:
        if not file_exists(self.url):
            return ()  # opening it would make one
        columns = _table.c
        chosen = sa.select(_table).order_by(columns.sequence.desc(), columns.identity != identity)
        with reading(self.url) as connection:
            if not sa.inspect(connection).has_table(_table.name):
                return ()
            return tuple(Head(*row) for row in connection.execute(chosen.limit(limit)))


def witness_at(place: str) -> Witness:
    """Return the witness at a path or URL."""
    return StoreWitness(place) if "://" in place else FileWitness(Path(place))
