"""Queries of each API key, with their answers: idempotency, rate limits and history."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import sqlalchemy as sa

from dpcvx.ledger import Ledger
from dpcvx.ledger.database import entry_table
from dpcvx.service.database import ServiceDatabase, key_table, question_table
from dpcvx.service.keys import ApiKey
from dpcvx.service.refusal import Refusal
from dpcvx.words import duration, quantity

__all__ = ["REUSED", "AskedQuery", "PastQuery", "QueryHistory", "open_history"]

MINUTE, DAY = 60, 86_400
PAGE = 500  # answers that are read at once
REUSED = "This Idempotency-Key belongs to another query: use a new one for each query."


@dataclass(frozen=True)
class PastQuery:
    """A query that was answered."""

    idempotency: str  # key of the query, chosen by the analyst
    asked: float  # seconds since 1970
    query: str  # canonical JSON
    answer: bytes  # JSON of the answer, as it was sent


@dataclass(frozen=True)
class AskedQuery:
    """A query with the key that asked it, for the data owner."""

    asked: float  # seconds since 1970
    key: str  # id of the API key
    name: str  # of its holder
    purpose: str  # of the key
    query: str  # canonical JSON
    branch: str  # "histogram", or "oracle" for a new measurement


class QueryHistory:
    """Answered queries of every API key, durable. Rate limits are counted here and survive a restart.

    An answer is stored once, as a note of the ledger; a row of this table holds the name of that note. Rows
    hold the answer itself if they were written by version 0.1, or by an engine without a ledger.
    """

    def __init__(self, database: ServiceDatabase) -> None:
        self._database = database

    def find(self, key: ApiKey, idempotency: str, query: str) -> bytes | None:
        """Return the answer of a query that was answered before, or None if it may be asked now.

        Raises Refusal: if the idempotency key was used for another query, or the API key has reached a limit.
        """
        with self._database.reading() as connection:
            row = connection.execute(
                sa.select(question_table).where(*self._of(key), question_table.c.idempotency == idempotency)
            ).one_or_none()
            if row is not None and row.question != query:
                raise Refusal("key_reused", REUSED)
            if row is not None:
                return self._answers(connection, [row.answer])[0]
            now = time.time()
            for limit, span, word in ((key.per_minute, MINUTE, "minute"), (key.per_day, DAY, "day")):
                recent = (*self._of(key), *_within(now, span))
                count, first = connection.execute(
                    sa.select(sa.func.count(), sa.func.min(question_table.c.asked)).where(*recent)
                ).one()
                if count >= limit:
                    wait = int(first + span - now) + 1
                    until = datetime.fromtimestamp(now + wait, UTC).strftime("%Y-%m-%d %H:%M:%S")
                    raise Refusal(
                        "too_many_queries",
                        f"This key may ask {quantity(limit, 'query', 'queries')} a {word}: the next one is "
                        f"possible in {duration(wait)}, at {until} UTC. The data owner can allow more.",
                        retry_after=wait,
                    )
        return None

    def answer(self, key: ApiKey, idempotency: str) -> bytes | None:
        """Return the answer of a past query of a key; None if there is none."""
        chosen = sa.select(question_table.c.answer).where(
            *self._of(key), question_table.c.idempotency == idempotency
        )
        with self._database.reading() as connection:
            stored = connection.execute(chosen).scalar_one_or_none()
            return None if stored is None else self._answers(connection, [stored])[0]

    def add(self, key: ApiKey, idempotency: str, query: str, stored: bytes) -> None:
        """Add an answered query; durable when it returns, so that the answer may be sent.

        `stored`: name of the ledger's note that holds the answer, or the answer itself.
        """
        with self._database.writing() as connection:
            self.insert(connection, key, idempotency, query, stored)

    def insert(
        self, connection: sa.Connection, key: ApiKey, idempotency: str, query: str, stored: bytes
    ) -> None:
        """Add an answered query in a transaction of the ledger's database; see `add`."""
        row = {"account": self._database.account, "key": key.id, "idempotency": idempotency}
        connection.execute(
            question_table.insert(), {**row, "asked": time.time(), "question": query, "answer": stored}
        )

    def latest(
        self, key: ApiKey, limit: int, *, older_than: str | None = None, words: Sequence[str] = ()
    ) -> tuple[PastQuery, ...]:
        """Return the latest queries of a key, newest first.

        `older_than`: idempotency key of the last query of the page before; `words`: texts that all stand in
        the JSON of a query, in upper or lower case.
        """
        columns = question_table.c
        wanted = [*self._of(key), *(columns.question.icontains(word, autoescape=True) for word in words)]
        if older_than is not None:
            last = sa.select(columns.asked).where(*self._of(key), columns.idempotency == older_than)
            when = last.scalar_subquery()
            wanted.append(
                (columns.asked < when) | ((columns.asked == when) & (columns.idempotency > older_than))
            )
        chosen = (
            sa.select(columns.idempotency, columns.asked, columns.question, columns.answer)
            .where(*wanted)
            .order_by(columns.asked.desc(), columns.idempotency)
            .limit(limit)
        )
        with self._database.reading() as connection:
            rows = connection.execute(chosen).all()
            answers = self._answers(connection, [row.answer for row in rows])
        return tuple(
            PastQuery(row.idempotency, row.asked, row.question, answer)
            for row, answer in zip(rows, answers, strict=True)
        )

    def of_all(self) -> tuple[AskedQuery, ...]:
        """Return the queries of all keys, oldest first: who asked what, for which purpose."""
        keys, queries = key_table.c, question_table.c
        chosen = (
            sa.select(queries.asked, keys.id, keys.name, keys.purpose, queries.question, queries.answer)
            .join(key_table, (keys.account == queries.account) & (keys.id == queries.key))
            .where(queries.account == self._database.account)
            .order_by(queries.asked, queries.idempotency)
        )
        found: list[AskedQuery] = []
        with self._database.reading() as connection:
            rows = connection.execute(chosen).all()
            for first in range(0, len(rows), PAGE):
                page = rows[first : first + PAGE]
                answers = self._answers(connection, [row.answer for row in page])
                for row, answer in zip(page, answers, strict=True):
                    branch = json.loads(answer)["branch"]
                    found.append(
                        AskedQuery(row.asked, row.id, row.name, row.purpose or "", row.question, branch)
                    )
        return tuple(found)

    def asked_today(self, key: ApiKey) -> int:
        """Return the number of queries of a key in the last 24 hours."""
        recent = (*self._of(key), *_within(time.time(), DAY))
        with self._database.reading() as connection:
            return connection.execute(
                sa.select(sa.func.count()).select_from(question_table).where(*recent)
            ).scalar_one()

    def _answers(self, connection: sa.Connection, stored: Sequence[bytes]) -> list[bytes]:
        """Return the answers that rows hold (JSON, which begins with a brace) or point to."""
        stored = [bytes(one) for one in stored]
        names = [one.decode() for one in stored if not one.startswith(b"{")]
        columns = entry_table.c
        notes = sa.select(columns.key, columns.answer).where(
            columns.account == self._database.account, columns.kind == "note", columns.key.in_(names)
        )
        found = {row.key: bytes(row.answer) for row in connection.execute(notes)} if names else {}
        return [one if one.startswith(b"{") else found[one.decode()] for one in stored]

    def _of(self, key: ApiKey) -> tuple[sa.ColumnElement[bool], ...]:
        return question_table.c.account == self._database.account, question_table.c.key == key.id


def _within(now: float, span: float) -> tuple[sa.ColumnElement[bool], ...]:
    """Select queries within `span` seconds of now: a clock that was set back must not lock a key longer."""
    return question_table.c.asked > now - span, question_table.c.asked < now + span


def open_history(url: str | os.PathLike[str] | None, account: str) -> QueryHistory:
    """Return the queries of an account that exists."""
    Ledger(url).account(account)
    return QueryHistory(ServiceDatabase(url, account))
