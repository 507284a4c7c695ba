"""A change of one line, and the tests that must notice it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Fault", "faults"]


@dataclass(frozen=True)
class Fault:
    """A change of one line."""

    name: str
    kind: str  # subject of the promise that it breaks
    file: str  # in src/dpcvx
    old: str  # text that occurs once in the file
    new: str
    tests: str  # files, or tests, in tests/; separated by blanks


def faults(kind: str, *rows: tuple[str, str, str, str, str]) -> tuple[Fault, ...]:
    """Return faults of one kind."""
    return tuple(Fault(name, kind, *rest) for name, *rest in rows)
