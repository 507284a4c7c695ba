"""Exports of an account: its charges as CSV, and its statement as JSON that a key signs."""

from __future__ import annotations

import csv
import hashlib
import hmac
import io
import json
from typing import Any

from dpcvx.errors import LedgerDamaged, WrongValue
from dpcvx.ledger.account_statement import AccountStatement, event_words
from dpcvx.ledger.chain import canonical
from dpcvx.words import csv_cell

__all__ = ["read_signed", "to_csv", "to_signed_json"]

ALGORITHM = "HMAC-SHA256"
SHORTEST_KEY = 16  # bytes
COLUMNS = ("entry", "time", "kind", "purpose or reason", "event", "used", "hash")


def to_csv(statement: AccountStatement) -> str:
    """Return charges, changes of state and new witnesses as CSV, in the order of the ledger."""
    rows: list[tuple[Any, ...]] = [
        (
            entry.sequence,
            entry.time,
            "charge",
            entry.purpose,
            event_words(entry.event),
            repr(entry.used),
            entry.hash,
        )
        for entry in statement.history
    ]
    rows += [(each.sequence, each.time, each.word, each.reason, "", "", "") for each in statement.states]
    rows += [
        (each.sequence, each.time, "witness", each.reason, "", "", "") for each in statement.witness_starts
    ]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in sorted(rows, key=lambda row: int(row[0])):
        writer.writerow([csv_cell(cell) if isinstance(cell, str) else cell for cell in row])
    return text.getvalue()


def to_signed_json(statement: AccountStatement, head: str, key: bytes) -> str:
    """Return a statement, the hash of the ledger's last entry, and a signature of both.

    `head`: hash that a witness can confirm; `key`: shared by those who sign and those who check.
    """
    content = {"statement": statement.to_dict(), "head": head}
    signature = {"algorithm": ALGORITHM, "value": _sign(content, key)}
    return json.dumps({**content, "signature": signature}, indent=2, ensure_ascii=False, allow_nan=False)


def read_signed(text: str, key: bytes) -> dict[str, Any]:
    """Return the content of a signed export; LedgerDamaged if it was edited or signed by another key."""
    _require_length(key)
    try:
        content = json.loads(text)
        signature = content.pop("signature")
        good = signature["algorithm"] == ALGORITHM and hmac.compare_digest(
            str(signature["value"]), _sign(content, key)
        )
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        raise WrongValue("This is no signed export of an account: dpcvx ledger export writes one.") from None
    if not good:
        raise LedgerDamaged("The export was edited, or another key signed it.")
    found: dict[str, Any] = content
    return found


def _require_length(key: bytes) -> None:
    if len(key) < SHORTEST_KEY:
        raise WrongValue(f"The key of a signature must have at least {SHORTEST_KEY} bytes, got {len(key)}.")


def _sign(content: dict[str, Any], key: bytes) -> str:
    _require_length(key)
    return hmac.new(key, canonical(content).encode(), hashlib.sha256).hexdigest()
