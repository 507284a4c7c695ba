"""Public text about a column that analysts see: its label, its unit, and names of its levels or codes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dpcvx.errors import WrongValue
from dpcvx.words import show

__all__ = ["LONGEST_LABEL", "check_label", "check_value_labels"]

LONGEST_LABEL = 200  # characters


def check_label(name: str, value: Any) -> str:
    """Return a label, or the name of a unit; refuse anything that is no line of text."""
    if not isinstance(value, str) or len(value) > LONGEST_LABEL or not (value == "" or value.isprintable()):
        raise WrongValue(f"{name} must be a text of at most {LONGEST_LABEL} characters, got {show(value)}.")
    return value.strip()


def check_value_labels(given: Any, is_known: Callable[[str], bool]) -> tuple[tuple[str, str], ...]:
    """Return names of values as pairs of a value, as text, and its name.

    `given`: a mapping, or what this function returned; `is_known`: whether a text is a value of the column.
    """
    if not isinstance(given, Mapping | tuple):
        raise WrongValue(f'value_labels must name values, as in {{1 = "yes", 2 = "no"}}, got {show(given)}.')
    found = []
    for value, name in dict(given).items():
        if not is_known(str(value)):
            raise WrongValue(f"value_labels names {show(value)}, which is no value of the column.")
        if label := check_label("a name in value_labels", name):
            found.append((str(value), label))
    return tuple(found)
