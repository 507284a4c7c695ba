"""The head of a ledger's chain: read, compared with the witness, and told to it."""

from __future__ import annotations

import sqlalchemy as sa

from dpcvx.errors import LedgerDamaged
from dpcvx.ledger.chain import FORMAT, has
from dpcvx.ledger.database import head_table
from dpcvx.ledger.witness import Head, witness_at

__all__ = ["read_head", "tell_witness", "witnessed_head"]

_HEAD = sa.select(head_table).with_for_update()  # made once: building a statement costs as much as running it


def read_head(connection: sa.Connection, ledger: str) -> Head:
    """Return the head; nobody else appends before the transaction ends. `ledger`: its name in messages."""
    row = connection.execute(_HEAD).one_or_none()
    if row is None or row.format != FORMAT:
        raise LedgerDamaged(f"The {ledger} has no head of format {FORMAT}.")
    return Head(row.identity, row.sequence, row.hash)


def witnessed_head(connection: sa.Connection, witness: str | None, ledger: str) -> Head:
    """Return the head as `read_head` does; refuse one that the witness contradicts.

    `witness`: its place; `ledger`: name of the ledger in messages.
    """
    head = read_head(connection, ledger)
    if witness is None:
        return head
    seen = witness_at(witness).latest(head.identity)
    if head.sequence == 0 and (seen is None or seen.sequence == 0):
        return head  # both are new, or an earlier attempt to create the ledger was cut off
    if seen is None:
        raise LedgerDamaged(
            f"The witness of {ledger} is missing or empty, but the ledger has entries ({head.sequence} of "
            "them): an old copy could not be told from the newest. Put the witness back. If there was none "
            "so far, or it is lost, begin one:  dpcvx ledger witness --ledger FILE --witness FILE "
            "--reason TEXT  (in Python Ledger.start_witness)."
        )
    if seen.identity != head.identity:
        raise LedgerDamaged(
            f"The witness knows another ledger than {ledger}. Restore the ledger that it knows, or "
            "give this one a witness of its own."
        )
    if seen != head and not has(connection, seen):
        raise LedgerDamaged(
            f"The witness saw entry {seen.sequence} of {ledger}, which is not there: this is an old "
            "or edited copy. Nothing is charged to it; restore the newest copy."
        )
    return head


def tell_witness(witness: str | None, head: Head) -> None:
    """Tell the witness, if there is one, of a new head."""
    if witness is not None:
        witness_at(witness).append(head)
