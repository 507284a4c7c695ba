"""One schema for SQLite and PostgreSQL, and transactions that are durable when they end."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from dpcvx.errors import LedgerDamaged, LedgerUnavailable, WrongValue
from dpcvx.ledger.filters import WHOLE

OTHER_LEDGER = "command line: --ledger FILE"
LOCK_SECONDS = 120  # how long a charge waits for others

_sequence = sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # an integer key is SQLite's own row number

metadata = sa.MetaData()
head_table = sa.Table(
    "ledger",
    metadata,
    sa.Column("id", sa.Integer, sa.CheckConstraint("id = 1"), primary_key=True, autoincrement=False),
    sa.Column("format", sa.Integer, nullable=False),
    sa.Column("identity", sa.String(32), nullable=False),
    sa.Column("sequence", sa.BigInteger, nullable=False),
    sa.Column("hash", sa.String(64), nullable=False),
)
account_table = sa.Table(
    "accounts",
    metadata,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("epsilon", sa.Double, nullable=False),
    sa.Column("delta", sa.Double, nullable=False),
    sa.Column("relation", sa.String, nullable=False),
    sa.Column("spending", sa.Text, nullable=False),
    # The store repeats the check of the filters: parts of the cap and of the samplers' reserve.
    sa.Column("used", sa.BigInteger, sa.CheckConstraint(f"used BETWEEN 0 AND {WHOLE}"), nullable=False),
    sa.Column("failed", sa.BigInteger, sa.CheckConstraint(f"failed BETWEEN 0 AND {WHOLE}"), nullable=False),
)
entry_table = sa.Table(
    "entries",
    metadata,
    sa.Column("sequence", _sequence, primary_key=True, autoincrement=False),
    sa.Column("account", sa.String, sa.ForeignKey("accounts.name"), nullable=False),
    sa.Column("kind", sa.String, nullable=False),
    sa.Column("key", sa.String),
    sa.Column("content", sa.Text, nullable=False),
    sa.Column("answer", sa.LargeBinary),
    sa.Column("hash", sa.String(64), nullable=False),
    sa.UniqueConstraint("account", "kind", "key"),
)
# Private values of running engines: replaced in place, never exported, no part of the chain.
secret_table = sa.Table(
    "secrets",
    metadata,
    sa.Column("account", sa.String, sa.ForeignKey("accounts.name"), primary_key=True),
    sa.Column("key", sa.String, primary_key=True),
    sa.Column("content", sa.LargeBinary, nullable=False),
)
# Fingerprints of people, and the key of their hashes: private, in no backup (`dpcvx.ledger.fingerprints`).
fingerprint_table = sa.Table(
    "fingerprints",
    metadata,
    sa.Column("account", sa.String, sa.ForeignKey("accounts.name"), primary_key=True),
    sa.Column("content", sa.LargeBinary, nullable=False),
)
fingerprint_key_table = sa.Table(
    "fingerprint_key",
    metadata,
    sa.Column("id", sa.Integer, sa.CheckConstraint("id = 1"), primary_key=True, autoincrement=False),
    sa.Column("key", sa.LargeBinary, nullable=False),
)
PRIVATE_TABLES = (secret_table, fingerprint_table, fingerprint_key_table)  # no backup holds them


def address(given: str | os.PathLike[str] | None) -> str:
    """Return the full URL of a store: of a path, of a URL, or of the default file.

    `given`: ``sqlite:///file.db``, ``postgresql://user@host/name``, a path, or None for ``dpcvx.db`` in the
    user's data folder.
    """
    if given is None:
        return address(_data_folder() / "dpcvx.db")
    text = os.fspath(given)
    if "://" not in text:
        return _render(sa.URL.create("sqlite", database=str(Path(text).expanduser().resolve())))
    try:
        url = sa.make_url(text)
    except (sa.exc.ArgumentError, ValueError):
        raise WrongValue(
            "The URL of the ledger cannot be read; use sqlite:///file.db or postgresql://user@host/name."
        ) from None
    kind = url.get_backend_name()
    if kind == "sqlite" and url.database not in (None, "", ":memory:") and "mode=memory" not in str(url):
        return _render(url.set(drivername="sqlite", database=str(Path(url.database or "").resolve())))
    if kind == "postgresql":
        return _render(url.set(drivername="postgresql+psycopg"))
    raise WrongValue(
        f"A ledger cannot be kept at {url.render_as_string(hide_password=True)}; it needs a file or a "
        "PostgreSQL server: sqlite:///file.db or postgresql://user@host/name."
    )


def _render(url: sa.URL) -> str:
    return url.render_as_string(hide_password=False)


def _data_folder() -> Path:
    if sys.platform == "win32":
        folder = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        folder = Path.home() / "Library" / "Application Support"
    else:
        folder = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return folder / "dpcvx"


def engine(url: str) -> sa.Engine:
    """Return the engine of a store; a process that was forked off gets one of its own."""
    return _engine(url, os.getpid())


@cache
def _engine(url: str, process: int) -> sa.Engine:
    if url.startswith("postgresql"):
        # A server that is set up to acknowledge before it has written must not do so here.
        options = {"options": f"-c synchronous_commit=on -c lock_timeout={LOCK_SECONDS}s"}
        made = sa.create_engine(url, connect_args=options, pool_pre_ping=True, pool_timeout=LOCK_SECONDS)
    else:
        made = sa.create_engine(url, connect_args={"timeout": LOCK_SECONDS}, max_overflow=-1)
        sa.event.listen(made, "connect", _prepare_sqlite)
        sa.event.listen(made, "checkout", _check_file)
        sa.event.listen(made, "begin", _begin_sqlite)
    atexit.register(_dispose, made, process)
    return made


def _dispose(made: sa.Engine, process: int) -> None:
    if os.getpid() == process:  # a child that ends must not hang up for its parent
        made.dispose()


def _prepare_sqlite(connection: Any, record: Any) -> None:
    path = connection.execute("PRAGMA database_list").fetchone()[2]
    record.info["path"], record.info["file"] = path, _file_at(path)
    connection.isolation_level = None  # BEGIN is written below, not guessed by the driver
    # A rollback journal, because write-ahead logs lost commits in SQLite before 3.51.3; EXTRA also syncs the
    # folder, so that a power cut cannot bring the journal, and with it the old state, back.
    # Deleted secrets are overwritten.
    for pragma in ("journal_mode=DELETE", "synchronous=EXTRA", "foreign_keys=ON", "secure_delete=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _file_at(path: str) -> tuple[int, int] | None:
    """Return which file lies at a path now."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _check_file(_: Any, record: Any, __: Any) -> None:
    """Open the path anew if another file was put there: from then on that is the ledger."""
    if record.info["file"] != _file_at(record.info["path"]):
        raise sa.exc.DisconnectionError


def _begin_sqlite(connection: sa.Connection) -> None:
    reads = connection.get_execution_options().get("reads", False)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")


@contextmanager
def writing(url: str) -> Iterator[sa.Connection]:
    """Open a transaction; what it wrote is durable when the block ends."""
    with _explained(url), engine(url).begin() as connection:
        yield connection


@contextmanager
def reading(url: str) -> Iterator[sa.Connection]:
    """Open a transaction that sees one state of the store and changes nothing."""
    # Every transaction of SQLite sees one state; in PostgreSQL that has a name.
    options = {"isolation_level": "REPEATABLE READ"} if url.startswith("postgresql") else {"reads": True}
    with _explained(url), engine(url).connect().execution_options(**options) as connection:
        yield connection


@contextmanager
def preparing(url: str) -> Iterator[sa.Connection]:
    """Open a transaction that may create tables, one process at a time, in a new file where need be."""
    if file := _public_address(url)[1]:
        file.parent.mkdir(parents=True, exist_ok=True)
    with _explained(url, new=True), engine(url).begin() as connection:
        if not file:
            connection.execute(sa.func.pg_advisory_xact_lock(_PREPARING).select())
        yield connection


def file_exists(url: str) -> bool:
    """Return whether a store can be opened without creating its file."""
    file = _public_address(url)[1]
    return file is None or file.is_file()


_PREPARING = 0x6470637678  # any number that is the same for all


@cache
def _public_address(url: str) -> tuple[str, Path | None]:
    """Address without its password, and the file that it names."""
    read = sa.make_url(url)
    file = Path(read.database or "") if url.startswith("sqlite") else None
    return read.render_as_string(hide_password=True), file


@contextmanager
def _explained(url: str, *, new: bool = False) -> Iterator[None]:
    place, file = _public_address(url)
    missing = (
        f"There is no ledger at {place}: make an account with Ledger.create or dpcvx ledger create, or name "
        f"another ledger ({OTHER_LEDGER})."
    )
    if not new and file is not None and not file.is_file():
        raise LedgerUnavailable(missing)  # SQLite would make an empty file
    try:
        yield
    except (sa.exc.OperationalError, sa.exc.ProgrammingError, sa.exc.TimeoutError) as problem:
        cause = getattr(problem, "orig", problem)
        text = str(cause)
        if not new and ("no such table" in text or "does not exist" in text):
            raise LedgerUnavailable(missing) from None
        raise LedgerUnavailable(
            f"The ledger at {place} does not answer ({type(cause).__name__}). A charge that had "
            "begun may or may not have been written: look at the history before you try again."
        ) from problem
    except sa.exc.DatabaseError as problem:
        if isinstance(problem, sa.exc.IntegrityError):
            raise
        raise LedgerDamaged(f"The file at {place} is no ledger, or it is damaged.") from problem
