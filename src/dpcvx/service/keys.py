"""API keys: shown once when they are created, stored as Argon2 hashes in the ledger's database."""

from __future__ import annotations

import hmac
import os
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from argon2 import PasswordHasher
from argon2.exceptions import VerifyMismatchError

from dpcvx.errors import WrongValue
from dpcvx.ledger import Ledger
from dpcvx.service.database import ServiceDatabase, key_table

__all__ = ["SCOPES", "ApiKey", "Keys", "open_keys"]

SCOPES = ("ask", "admin")
PREFIX = "dpcvx"
# A secret has 256 random bits, so the hash need not slow down guessing: these are the smallest costs that
# OWASP recommends for passwords, and the most that an unknown key costs the server.
HASHER = PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)


@dataclass(frozen=True)
class ApiKey:
    """Public record of a key, without its secret."""

    id: str  # public part of the key
    name: str  # name of its holder
    scopes: tuple[str, ...]  # "ask": queries, history and synthetic data; "admin": keys
    per_minute: int  # per_minute, per_day: limits on the number of queries
    per_day: int
    created: int  # seconds since 1970
    revoked: bool = False  # whether it is refused
    measurements: int | None = None  # new measurements that its queries may cause; None: half of all
    purpose: str = ""  # for which its holder asks, as the data owner recorded it


class Keys:
    """The API keys of one account.

    `database`: holds the hashes.
    """

    def __init__(self, database: ServiceDatabase) -> None:
        self._database = database
        # Keys that Argon2 has accepted in this process, as digests that are useless outside of it.
        self._pepper = secrets.token_bytes(32)
        self._accepted: dict[str, bytes] = {}
        self._nobody = HASHER.hash(secrets.token_urlsafe(32))

    def create(
        self,
        name: str,
        *,
        scopes: Iterable[str] = ("ask",),
        per_minute: int = 60,
        per_day: int = 5000,
        measurements: int | None = None,
        purpose: str = "",
    ) -> tuple[ApiKey, str]:
        """Create a key; return its record, and its text, which is stored nowhere.

        `name`: name of its holder; `scopes`: some of "ask" and "admin"; `per_minute`, `per_day`: limits on
        the number of queries; `measurements`: how many new measurements its queries may cause, by default
        half of all; `purpose`: of the queries, in words for the data owner.
        """
        chosen = tuple(scope for scope in SCOPES if scope in tuple(scopes))
        if not chosen or set(scopes) - set(SCOPES):
            raise WrongValue(
                f"scopes must be some of {', '.join(SCOPES)}; got {', '.join(scopes) or 'none'}."
            )
        if not 1 <= len(name) <= 100 or not name.isprintable():
            raise WrongValue("A key's name must be 1 to 100 printable characters.")
        if min(per_minute, per_day) < 1:
            raise WrongValue(f"per_minute and per_day must be at least 1; got {per_minute} and {per_day}.")
        if measurements is not None and measurements < 0:
            raise WrongValue(f"measurements must be at least 0; got {measurements}.")
        if len(purpose) > 500 or not purpose.isprintable():
            raise WrongValue("A key's purpose must be up to 500 printable characters.")
        created, limits = int(time.time()), (per_minute, per_day)
        key = ApiKey(
            secrets.token_hex(6), name, chosen, *limits, created, measurements=measurements, purpose=purpose
        )
        secret = secrets.token_urlsafe(32)
        with self._database.writing() as connection:
            connection.execute(
                key_table.insert().values(
                    account=self._database.account,
                    id=key.id,
                    name=name,
                    hash=HASHER.hash(secret),
                    scopes=" ".join(chosen),
                    per_minute=per_minute,
                    per_day=per_day,
                    created=key.created,
                    revoked=False,
                    measurements=measurements,
                    purpose=purpose,
                )
            )
        text = f"{PREFIX}-{key.id}-{secret}"
        self._accepted[key.id] = self._digest(text)
        return key, text

    def list(self) -> tuple[ApiKey, ...]:
        """Return all keys of the account, oldest first, revoked ones included."""
        chosen = sa.select(key_table).where(key_table.c.account == self._database.account)
        with self._database.reading() as connection:
            rows = connection.execute(chosen.order_by(key_table.c.created, key_table.c.id)).all()
        return tuple(_read(row) for row in rows)

    def revoke(self, id: str) -> ApiKey:
        """Revoke a key; KeyError if there is none of this id."""
        with self._database.writing() as connection:
            connection.execute(key_table.update().where(*self._is(id)).values(revoked=True))
            row = connection.execute(sa.select(key_table).where(*self._is(id))).one_or_none()
        if row is None:
            raise KeyError(id)
        return _read(row)

    def was_accepted(self, text: str) -> bool:
        """Return whether a text was accepted before in this process: no database, no Argon2.

        Digests under a secret of the process are compared, so the time says nothing about any key's secret.
        """
        return hmac.compare_digest(self._accepted.get(_parts(text)[1], b""), self._digest(text))

    def recognise(self, text: str) -> ApiKey | None:
        """Return the key of a text that was accepted before and is not revoked, or None; takes no Argon2."""
        row = self._row(_parts(text)[1]) if self.was_accepted(text) else None
        return None if row is None or row.revoked else _read(row)

    def verify(self, text: str) -> ApiKey | None:
        """Return the key of a text, or None.

        An unknown id, a wrong secret and a revoked key cost the same: one Argon2 verification.
        """
        if (known := self.recognise(text)) is not None:
            return known
        prefix, id, secret = _parts(text)
        row = self._row(id)
        key = None if row is None or row.revoked or prefix != PREFIX else _read(row)
        try:
            HASHER.verify(self._nobody if row is None else row.hash, secret)
        except VerifyMismatchError:
            return None
        if key is not None:
            self._accepted[id] = self._digest(text)
        return key

    def _row(self, id: str) -> sa.Row[Any] | None:
        with self._database.reading() as connection:
            return connection.execute(sa.select(key_table).where(*self._is(id))).one_or_none()

    def _digest(self, text: str) -> bytes:
        return hmac.digest(self._pepper, text.encode(errors="replace"), "sha256")

    def _is(self, id: str) -> tuple[sa.ColumnElement[bool], ...]:
        return key_table.c.account == self._database.account, key_table.c.id == id


def open_keys(url: str | os.PathLike[str] | None, account: str) -> Keys:
    """Return the API keys of an account that exists."""
    Ledger(url).account(account)
    return Keys(ServiceDatabase(url, account))


def _parts(text: str) -> tuple[str, str, str]:
    """Return prefix, id and secret of a key's text."""
    prefix, _, rest = text.partition("-")
    id, _, secret = rest.partition("-")
    # Anything else is no key's id, and not every database can be asked for every text.
    return prefix, id if id.isascii() and id.isalnum() else "", secret


def _read(row: sa.Row[Any]) -> ApiKey:
    return ApiKey(
        row.id,
        row.name,
        tuple(row.scopes.split()),
        row.per_minute,
        row.per_day,
        row.created,
        row.revoked,
        row.measurements,
        row.purpose or "",
    )
