"""Tables of the service in the ledger's database: hashes of API keys, and queries of each key."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import sqlalchemy as sa

from dpcvx.errors import WrongValue
from dpcvx.ledger.database import address, reading, writing

__all__ = ["ServiceDatabase", "key_table", "question_table"]

metadata = sa.MetaData()
key_table = sa.Table(
    "service_keys",
    metadata,
    sa.Column("account", sa.String, primary_key=True),
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("name", sa.String, nullable=False),
    sa.Column("hash", sa.String, nullable=False),
    sa.Column("scopes", sa.String, nullable=False),
    sa.Column("per_minute", sa.Integer, nullable=False),
    sa.Column("per_day", sa.Integer, nullable=False),
    sa.Column("created", sa.BigInteger, nullable=False),
    sa.Column("revoked", sa.Boolean, nullable=False),
    # Not in version 0.1. NULL: the usual share of the measurements, and no purpose.
    sa.Column("measurements", sa.Integer),
    sa.Column("purpose", sa.String),
)
question_table = sa.Table(
    "service_questions",
    metadata,
    sa.Column("account", sa.String, primary_key=True),
    sa.Column("key", sa.String, primary_key=True),
    sa.Column("idempotency", sa.String, primary_key=True),
    sa.Column("asked", sa.Float, nullable=False),
    sa.Column("question", sa.Text, nullable=False),
    sa.Column("answer", sa.LargeBinary, nullable=False),  # name of the ledger's note, or the answer itself
    sa.Index("service_questions_by_time", "account", "key", "asked"),
)


def _add_columns(connection: sa.Connection) -> None:
    """Add the columns that a table of an earlier version lacks; they may be NULL."""
    known = {column["name"] for column in sa.inspect(connection).get_columns(key_table.name)}
    for column in key_table.columns:
        if column.name not in known:
            kind = column.type.compile(connection.dialect)
            connection.execute(sa.text(f"ALTER TABLE {key_table.name} ADD COLUMN {column.name} {kind}"))


class ServiceDatabase:
    """Tables of the service for one account, in the database of the ledger.

    The two are equally durable, and are backed up together.

    `url`: of the ledger; `account`: name of the account.
    """

    def __init__(self, url: str | os.PathLike[str] | None, account: str) -> None:
        self._url, self.account = address(url), account
        with self.writing() as connection:
            metadata.create_all(connection)
            _add_columns(connection)

    def reading(self) -> AbstractContextManager[sa.Connection]:
        """Open a transaction that changes nothing."""
        return reading(self._url)

    def writing(self) -> AbstractContextManager[sa.Connection]:
        """Open a transaction that is durable when the block ends."""
        return writing(self._url)

    def free_bytes(self) -> int | None:
        """Return the free bytes on the disk of the ledger's file; None if a server holds it."""
        if self._url.startswith("postgresql"):
            return None
        return shutil.disk_usage(Path(sa.make_url(self._url).database or ".").parent).free

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Lock the account for this server while the block runs; the lock ends with the process.

        Two servers would charge one account correctly, but each would know half of the transcript.
        """
        name = hashlib.sha256(self.account.encode()).hexdigest()[:15]
        if self._url.startswith("postgresql"):
            place, options = self._url, dict[str, float]()
            take: sa.Executable = sa.select(sa.func.pg_try_advisory_lock(int(name, 16)))
        else:  # an exclusive transaction on a file beside the ledger: the system ends it with the process
            place, options = f"{self._url}.{name}.serving", {"timeout": 0.0}
            take = sa.text("BEGIN EXCLUSIVE")
        holder = sa.create_engine(
            place, poolclass=sa.NullPool, isolation_level="AUTOCOMMIT", connect_args=options
        )
        with holder.connect() as connection:
            try:
                taken = connection.execute(take)
                free = not taken.returns_rows or taken.scalar_one()
            except sa.exc.OperationalError:
                free = False
            if not free:
                raise WrongValue(
                    f"Account {self.account!r} is being served by another process: stop that one first."
                )
            yield
