"""Copies of a ledger's file, for backups: everything but secrets of open runs and fingerprints of people."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import sqlalchemy as sa

from dpcvx.errors import Incompatible, Unreadable
from dpcvx.ledger.database import PRIVATE_TABLES, file_exists
from dpcvx.whole_files import sync_folder

__all__ = ["copy_ledger"]


def copy_ledger(url: str, path: Path) -> None:
    """Copy the file of a ledger that may be in use, at one state; see `Ledger.backup`.

    `url`: of the ledger; `path`: of the copy, which must not exist.
    """
    if not url.startswith("sqlite"):
        raise Incompatible(
            "This ledger is on a server: back it up with  pg_dump --exclude-table-data=secrets "
            "--exclude-table-data='fingerprint*', which leaves out what is private."
        )
    if path.exists():
        raise Incompatible(f"{path} exists already: a backup replaces nothing. Give another name.")
    source = sa.make_url(url).database or ""
    if not file_exists(url):
        raise Unreadable(f"There is no ledger at {source}.")
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)  # of a backup that was killed
    os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        # Private tables are deleted in a database without a name, which is gone if this process is killed.
        with closing(sqlite3.connect(source, timeout=60)) as old, closing(sqlite3.connect("")) as new:
            old.backup(new)
            names = [name for (name,) in new.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            for table in PRIVATE_TABLES:
                if table.name in names:
                    new.execute(f"DELETE FROM {table.name}")
            new.commit()
            new.execute("VACUUM INTO ?", (str(part),))  # has no deleted page
        with part.open("rb+") as written:
            os.fsync(written.fileno())
        os.replace(part, path)
        sync_folder(path.parent)
    except sqlite3.Error as problem:
        raise Unreadable(f"The ledger could not be copied to {path}: {type(problem).__name__}.") from None
    finally:
        part.unlink(missing_ok=True)
