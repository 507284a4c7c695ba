"""Analysts and the engine: queries are read, counted, answered and recorded.

Every error of a query is found from the query and the schema, before the engine is asked. After that the
result is an answer, or one of a few refusals that say nothing about any record.
"""

from __future__ import annotations

import io
import json
import math
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpcvx.errors import AccountNotOpen, BudgetExceeded, DeadKey, KeyReused, LedgerDamaged, LedgerUnavailable
from dpcvx.queries import (
    ARGUMENTS,
    BRANCHES,
    INTERVALS,
    Answer,
    Asker,
    Query,
    parse_query,
    query_from_json,
    statement_path,
    write_synthetic,
)
from dpcvx.service.database import ServiceDatabase
from dpcvx.service.description import attributes, query_schema
from dpcvx.service.history import REUSED, QueryHistory
from dpcvx.service.keys import ApiKey, Keys
from dpcvx.service.refusal import Refusal

if TYPE_CHECKING:
    from dpcvx.ledger import Ledger
    from dpcvx.queries import QueryEngine

__all__ = ["Analysts"]

WIDEST_NUMBER = 25  # characters; -1.2345678901234567e-308 has 24
LEAST_ROOM = 2**26  # bytes on the disk of the ledger
NOT_OPEN = "The data owner has frozen or closed this data set."
BLOCK = 1024  # bytes; lengths of answers are multiples of it
NOTE_ROOM = 3000  # characters of all sentences of a note without the names in them
NAMED = 3  # times that a note may name an attribute or a level: among hidden levels, cut intervals, units


class Analysts:
    """Queries of many analysts, answered by one engine.

    `engine`: called by one thread at a time; `database`: holds keys and past queries; `ledger`: of the
    engine's account, with its witness, for checks of its state.
    """

    def __init__(self, engine: QueryEngine, database: ServiceDatabase, ledger: Ledger | None = None) -> None:
        self.engine, self._database, self._ledger = engine, database, ledger
        self.keys, self.history = Keys(database), QueryHistory(database)
        self.schema = attributes(engine.schema, database.account, engine.n, engine.noun, engine.often_missing)
        self.query_schema = query_schema(engine.schema)

    def read(self, body: bytes) -> Query:
        """Read a query from JSON; refuse anything else."""
        try:
            content = parse_query(body)
            json.dumps(content, ensure_ascii=False).encode()  # refuses half of a surrogate pair
            return query_from_json(content)
        except RecursionError:
            raise Refusal("malformed", "The query is nested too deeply.") from None
        except UnicodeError:
            raise Refusal("malformed", "The query is not valid Unicode.") from None
        except json.JSONDecodeError as error:
            raise Refusal("malformed", f"The query is not valid JSON: {error}.") from None
        except ValueError as error:
            raise Refusal("malformed", str(error)) from None

    def ask(self, key: ApiKey, idempotency: str, query: Query) -> bytes:
        """Answer a query. The answer is durable when this returns, and the same for the same key.

        `key`: key of the analyst; `idempotency`: key of the query, chosen by the analyst.
        """
        try:
            compiled = query.compile(self.engine.schema, self.engine.n)
        except ValueError as error:
            raise Refusal("malformed", str(error)) from None
        text = json.dumps(query.to_json(), sort_keys=True)
        body = self.history.find(key, idempotency, text)
        if body is None:
            name = f"{key.id}.{idempotency}"  # keys of different analysts never collide in the ledger
            place, recorded = self.engine.place(name), False

            def record(connection: Any) -> None:
                # With the answer, in one transaction: each waits for the disk, one at a time.
                nonlocal recorded
                if place is not None:
                    self.history.insert(connection, key, idempotency, text, place.encode())
                    recorded = True

            try:
                body = self.engine.answer(compiled, name, self._asker(key), record).body
            except AccountNotOpen:
                raise Refusal("account_not_open", NOT_OPEN) from None
            except BudgetExceeded:
                raise Refusal(
                    "budget_spent", "The privacy budget is spent and this query needs some of it."
                ) from None
            except KeyReused:  # answered, but the server stopped before it was recorded here
                raise Refusal("key_reused", REUSED) from None
            except DeadKey:
                raise Refusal(
                    "key_dead",
                    "The server stopped while it answered this; ask again with a new Idempotency-Key.",
                ) from None
            if not recorded:  # no ledger, or an earlier version stored the answer and stopped before this
                self.history.add(key, idempotency, text, body if place is None else place.encode())
        return pad(body)

    def past(self, key: ApiKey, idempotency: str) -> Answer:
        """Return the answer of a past query of a key; refuse where there is none."""
        body = self.history.answer(key, idempotency)
        if body is None:
            raise Refusal("not_found", "This key has no answer of that name.")
        return Answer.from_json(json.loads(body))

    def budget(self, key: ApiKey) -> dict[str, Any]:
        """Return the budget of the account, the part that is left, and the limits of a key."""
        budget = self.engine.budget
        left, total = self.engine.comparisons
        allowed = min(total, self._asker(key).measurements)
        return {
            "epsilon": budget.epsilon,
            "delta": budget.delta,
            "relation": budget.relation,
            "remaining": self.engine.remaining,
            "comparisons": total,
            "comparisons_left": left,
            "queries_per_minute": key.per_minute,
            "queries_per_day": key.per_day,
            "queries_today": self.history.asked_today(key),
            "measurements": allowed,
            "measurements_left": max(0, min(left, allowed - self.engine.measurements_by(key.id))),
        }

    def _asker(self, key: ApiKey) -> Asker:
        """Return who asks: so that no key uses up the comparisons of all, half of them is its share."""
        if key.measurements is not None:
            return Asker(key.id, key.measurements)
        return Asker(key.id, math.ceil(self.engine.comparisons[1] / 2))

    def check(self) -> dict[str, str]:
        """Return the state of disk, ledger and chain: "ok", or what is wrong; nothing about any record."""
        found = {"disk": "ok", "ledger": "ok", "chain": "ok"}
        room = self._database.free_bytes()
        if room is not None and room < LEAST_ROOM:
            found["disk"] = "less than 64 MiB are free"
        try:
            if self._ledger is not None:
                self._ledger.check()
        except LedgerDamaged:
            found["chain"] = (
                "the ledger is damaged, an old copy, or its witness is missing: run dpcvx ledger verify"
            )
        except (OSError, LedgerUnavailable):
            found["ledger"] = "it does not answer"
        return found

    def gauges(self) -> dict[str, tuple[str, float]]:
        """Return the budget for the metrics, as every answer states it."""
        left, total = self.engine.comparisons
        return {
            "dpcvx_budget_epsilon": ("Cap of the account.", self.engine.budget.epsilon),
            "dpcvx_budget_remaining_epsilon": ("Left for new measurements.", self.engine.remaining),
            "dpcvx_comparison_runs": ("Runs of comparisons that were paid for.", total),
            "dpcvx_comparison_runs_left": ("Runs of comparisons that are left.", left),
        }

    def statement(self) -> dict[str, Any]:
        """Return the privacy statement of all answers."""
        return self.engine.statement().to_dict()

    def synthetic(self, rows: int, kind: str) -> bytes:
        """Return a file of synthetic records.

        `kind`: "csv"; "parquet", which holds the privacy statement too; "zip", the CSV file and a statement.
        """
        try:
            columns = self.engine.synthetic(rows)
        except AccountNotOpen:
            raise Refusal("account_not_open", NOT_OPEN) from None
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"synthetic.{'csv' if kind == 'zip' else kind}"
            write_synthetic(path, columns, self.engine.statement())
            if kind != "zip":
                return path.read_bytes()
            whole = io.BytesIO()
            with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
                for part in (path, statement_path(path)):
                    archive.write(part, part.name)
            return whole.getvalue()


def pad(answer: bytes) -> bytes:
    """Pad an answer with blanks, which JSON ignores, to a length that depends on its public shape only.

    The length is that of the same answer with every number, truth value, branch and argument at its widest,
    and with a note that has room for every sentence, with all names of the answer in each of the lists.
    """
    content = json.loads(answer)
    widest = len(json.dumps(_widest(content)))
    if isinstance(content, dict) and isinstance(note := content.get("note"), str):
        numbers = content.get("coefficients", []) if '"features"' in json.dumps(content.get("query")) else []
        names = [content.get("query"), [each["name"] for each in numbers]]
        widest += max(0, NOTE_ROOM + NAMED * len(json.dumps(names)) - len(json.dumps(note)))
    return answer.ljust(math.ceil(widest / BLOCK) * BLOCK)


def _widest(content: Any) -> Any:
    if isinstance(content, dict):
        kinds = {"branch": BRANCHES, "covered_by": ARGUMENTS, "interval_by": INTERVALS}
        longest = {name: max(kind, key=len) for name, kind in kinds.items()}
        return {name: longest.get(name) or _widest(value) for name, value in content.items()}
    if isinstance(content, list):
        return [_widest(value) for value in content]
    return content if isinstance(content, str) else "0" * (WIDEST_NUMBER - 2)
