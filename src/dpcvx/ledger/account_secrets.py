"""Private values of an account: no part of the chain, in the ledger's store alone, and only the newest."""

from __future__ import annotations

import sqlalchemy as sa

from dpcvx.errors import Incompatible
from dpcvx.ledger.chain import SecretChange
from dpcvx.ledger.database import secret_table

__all__ = ["change_secret", "read_secret"]


def read_secret(connection: sa.Connection, account: str, key: str) -> bytes | None:
    """Return the private value of a key, or None."""
    found = connection.execute(sa.select(secret_table.c.content).where(*_is(account, key))).scalar()
    return None if found is None else bytes(found)


def change_secret(connection: sa.Connection, account: str, secret: SecretChange) -> None:
    """Replace a private value; refuse if it is not the expected one."""
    if read_secret(connection, account, secret.key) != secret.before:
        raise Incompatible(
            f"Another process has continued what this one began in account {account!r}: stop one of the two."
        )
    if secret.before is not None:
        connection.execute(secret_table.delete().where(*_is(account, secret.key)))
    if secret.after is not None:
        row = {"account": account, "key": secret.key, "content": secret.after}
        connection.execute(secret_table.insert(), row)


def _is(account: str, key: str) -> tuple[sa.ColumnElement[bool], ...]:
    return secret_table.c.account == account, secret_table.c.key == key
