"""The questions of each key and their answers, as they were sent."""

from __future__ import annotations

import time
from dataclasses import dataclass

import sqlalchemy as sa

from dpcvx.service.database import ServiceDatabase, question_table
from dpcvx.service.keys import ApiKey
from dpcvx.service.refusal import Refusal

__all__ = ["REUSED", "PastQuery", "QueryHistory"]

MINUTE, DAY = 60, 86_400
REUSED = "This Idempotency-Key belongs to another question: use a new one for each question."


@dataclass(frozen=True)
class PastQuery:
    """A question that was answered.

    Parameters
    ----------
    idempotency : str
        The key that the analyst gave it.
    asked : float
        Seconds since 1970.
    question : str
        Canonical JSON.
    answer : bytes
        JSON, as it was sent.
    """

    idempotency: str
    asked: float
    question: str
    answer: bytes


class QueryHistory:
    """What each key asked, durable; the limits are counted on it, so that a restart forgets none.

    Parameters
    ----------
    store : ServiceDatabase
        Where it is kept.
    """

    def __init__(self, store: ServiceDatabase) -> None:
        self._store = store

    def find(self, key: ApiKey, idempotency: str, question: str) -> bytes | None:
        """Return the answer if the question was answered before; None if it may be asked now.

        Raises
        ------
        Refusal
            If the key was used for another question, or has asked too many.
        """
        with self._store.reading() as connection:
            row = connection.execute(
                sa.select(question_table).where(*self._of(key), question_table.c.idempotency == idempotency)
            ).one_or_none()
            if row is not None and row.question != question:
                raise Refusal("key_reused", REUSED)
            if row is not None:
                return bytes(row.answer)
            now = time.time()
            for limit, span, word in ((key.per_minute, MINUTE, "minute"), (key.per_day, DAY, "day")):
                recent = (*self._of(key), question_table.c.asked > now - span)
                count, first = connection.execute(
                    sa.select(sa.func.count(), sa.func.min(question_table.c.asked)).where(*recent)
                ).one()
                if count >= limit:
                    raise Refusal(
                        "too_many_questions",
                        f"This key may ask {limit} questions a {word}: wait, or ask the data owner for more.",
                        retry_after=int(first + span - now) + 1,
                    )
        return None

    def keep(self, key: ApiKey, idempotency: str, question: str, answer: bytes) -> None:
        """Keep a question and its answer; durable when it returns, so that the answer may be sent."""
        row = {"account": self._store.account, "key": key.id, "idempotency": idempotency}
        with self._store.writing() as connection:
            connection.execute(
                question_table.insert(), {**row, "asked": time.time(), "question": question, "answer": answer}
            )

    def latest(self, key: ApiKey, limit: int) -> tuple[PastQuery, ...]:
        """The latest questions of a key, newest first."""
        columns = question_table.c
        chosen = (
            sa.select(columns.idempotency, columns.asked, columns.question, columns.answer)
            .where(*self._of(key))
            .order_by(columns.asked.desc(), columns.idempotency)
            .limit(limit)
        )
        with self._store.reading() as connection:
            rows = connection.execute(chosen).all()
        return tuple(PastQuery(row.idempotency, row.asked, row.question, bytes(row.answer)) for row in rows)

    def asked_today(self, key: ApiKey) -> int:
        """Number of questions of a key in the last 24 hours."""
        recent = (*self._of(key), question_table.c.asked > time.time() - DAY)
        with self._store.reading() as connection:
            return connection.execute(
                sa.select(sa.func.count()).select_from(question_table).where(*recent)
            ).scalar_one()

    def _of(self, key: ApiKey) -> tuple[sa.ColumnElement[bool], ...]:
        return question_table.c.account == self._store.account, question_table.c.key == key.id
