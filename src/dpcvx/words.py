"""Words and tables for people: counts, durations, sizes, aligned columns, and what a message may show."""

from __future__ import annotations

import dataclasses
import difflib
import html
import math
import numbers
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = [
    "HTML_STYLE",
    "align_columns",
    "byte_count",
    "csv_cell",
    "duration",
    "html_table",
    "is_number",
    "list_absent",
    "nearest",
    "quantity",
    "show",
    "show_fields",
]

LARGEST_SHOWN = 8  # entries of a list that a message quotes
BYTES = ("B", "kB", "MB", "GB", "TB")
DAY = 86_400.0
HTML_STYLE = """<style>.dpcvx{border-collapse:collapse;font-variant-numeric:tabular-nums}
.dpcvx th,.dpcvx td{padding:.2em .7em;text-align:right;vertical-align:top;border:0}
.dpcvx th:first-child,.dpcvx td:first-child,.dpcvx-facts td{text-align:left}
.dpcvx thead th{border-bottom:1px solid #888}.dpcvx caption{text-align:left;font-weight:bold}</style>"""
DURATIONS = {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": DAY, "year": 365.25 * DAY}


def quantity(count: int, noun: str, plural: str = "") -> str:
    """Return a number with what it counts: 1 record, 2,000 records."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def is_number(value: object, above: float = -math.inf, below: float = math.inf) -> bool:
    """Say whether a parameter is a number strictly between two others; True and False are none."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        return False
    try:
        return above < float(value) < below
    except OverflowError:  # an integer beyond all floats
        return False


def show(value: object) -> str:
    """Return a parameter as a message may show it: its value if short, its kind if it might hold records.

    A user who writes ``classes=y``, or swaps two arguments, passes private rows as a parameter.
    """
    if value is None or isinstance(value, numbers.Number | str):
        text = repr(value)
        return text if len(text) <= 60 else text[:57] + "..."
    if isinstance(value, dict) and len(value) <= LARGEST_SHOWN:
        return "{" + ", ".join(f"{show(key)}: {show(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, list | tuple) and len(value) <= LARGEST_SHOWN:
        entries = ", ".join(map(show, value))
        if isinstance(value, list):
            return f"[{entries}]"
        return f"({entries},)" if len(value) == 1 else f"({entries})"
    kind, shape = type(value).__name__, getattr(value, "shape", None)
    if shape is not None:
        return f"{kind} of shape {shape}" if shape else repr(value)
    return f"{kind} of {quantity(len(value), 'entry', 'entries')}" if hasattr(value, "__len__") else kind


def nearest(name: str, declared: Iterable[str]) -> str:
    """Return a remark with the declared name that is most like a misspelt one; empty if none is like it."""
    found = _alike(name, [each for each in declared if each != name])
    return f" (the schema declares {found!r})" if found else ""


def list_absent(absent: Iterable[str], others: Iterable[str]) -> str:
    """Return names that a table lacks, each with the one of its other columns that is most like it."""
    candidates = list(others)
    found = [(name, _alike(name, candidates)) for name in absent]
    return ", ".join(f"{name!r} (the table has {other!r})" if other else repr(name) for name, other in found)


def _alike(name: str, candidates: Sequence[str]) -> str:
    """Return the candidate that is most like a name, upper and lower case being alike; empty if none is."""
    folded = {each.casefold(): each for each in reversed(candidates)}
    found = difflib.get_close_matches(name.casefold(), folded, n=1)
    return folded[found[0]] if found else ""


def csv_cell(text: str) -> str:
    """Return a text as a cell that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def duration(seconds: float) -> str:
    """Return a time to one digit: "under a second", "about 20 seconds", "about 2 hours"."""
    if seconds < 1:
        return "under a second"
    unit = [name for name, length in DURATIONS.items() if seconds >= length][-1]
    count = float(f"{seconds / DURATIONS[unit]:.1g}")
    return f"about {count:,.0f} {unit}{'s' * (count != 1)}"


def byte_count(count: float) -> str:
    """Return a number of bytes to two digits, in the unit that fits."""
    power = min(max(0, math.floor(math.log(max(count, 1.0) * 1.0005, 1000))), len(BYTES) - 1)
    amount = count / 1000**power
    return f"{amount:.2g} {BYTES[power]}" if amount < 99.5 else f"{amount:.0f} {BYTES[power]}"


def align_columns(rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> list[str]:
    """Return columns of text under a ruled header; those in ``left`` to the left, others to the right."""
    widths = [max(len(row[j]) for row in rows) for j in range(len(rows[0]))]
    lines = [
        "  "
        + "   ".join(
            f"{cell:<{w}}" if j in left else f"{cell:>{w}}"
            for j, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return [
        lines[0].rstrip(),
        "  " + "-" * (sum(widths) + 3 * len(widths) - 3),
        *(line.rstrip() for line in lines[1:]),
    ]


def html_table(
    title: str,
    facts: Sequence[tuple[str, str]],
    rows: Sequence[Sequence[str]] = (),
    notes: Sequence[str] = (),
) -> str:
    """Return facts, a table whose first row is its header, and notes as HTML; every text is escaped.

    Parameters
    ----------
    title : str
    facts : sequence of (name, text)
    rows : sequence of sequences of str
        Header and body of a table below the facts.
    notes : sequence of str
        Paragraphs below.
    """

    def cells(row: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row) + "</tr>"

    lines = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>" for name, text in facts
    )
    caption = f"<caption>{html.escape(title)}</caption>"
    parts = [f'<table class="dpcvx dpcvx-facts">{caption}{lines}</table>']
    if rows:
        body = "".join(cells(row, "td") for row in rows[1:])
        head = f"<thead>{cells(rows[0], 'th')}</thead>"
        parts.append(f'<table class="dpcvx">{head}<tbody>{body}</tbody></table>')
    parts += [f"<p>{html.escape(note)}</p>" for note in notes]
    return f"{HTML_STYLE}\n<div>" + "\n".join(parts) + "</div>\n"


def show_fields(thing: Any, skip: Sequence[str] = ()) -> str:
    """Return the fields of a dataclass that are single numbers or words, as name=value."""
    shown = (field for field in dataclasses.fields(thing) if field.repr and field.name not in skip)
    values = {field.name: getattr(thing, field.name) for field in shown}
    plain = {name: value for name, value in values.items() if isinstance(value, int | float | str)}
    return ", ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in plain.items())
