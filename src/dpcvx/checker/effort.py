"""Limit on the work of a check, so that no statement, however odd, keeps a reader waiting for hours."""

from __future__ import annotations

from contextvars import ContextVar

from dpcvx.errors import NotAccountable

__all__ = ["begin", "spend"]

MOST = 2 * 10**7  # operations with balls that one check may take, about a minute
_left: ContextVar[int] = ContextVar("left", default=MOST)


def begin() -> None:
    """Start a check."""
    _left.set(MOST)


def spend(operations: int) -> None:
    """Count operations; refuse the statement once they are too many."""
    left = _left.get() - operations
    if left < 0:
        raise NotAccountable("They are too many, or too much of one kind, to be checked in a minute.")
    _left.set(left)
