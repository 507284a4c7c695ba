"""Tables of results that print as text, HTML, Markdown, LaTeX, JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dpcvx.errors import NotInstalled, WrongValue
from dpcvx.words import html_table

__all__ = ["FORMATS", "Column", "Printable", "ResultTable"]

WIDTH = 96  # of notes, and least width of a rule
FEW_ROWS = 100  # rows in printed tables; data formats have all
LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{",
    "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}", "²": r"\textsuperscript{2}",
}  # fmt: skip


def number(value: float) -> str:
    """Return a number with four significant digits."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    digits = 3 - math.floor(math.log10(abs(value)))
    return f"{value:.{max(digits, 0)}f}" if -2 <= digits <= 7 else f"{value:.3e}"


def three_decimals(value: float) -> str:
    """Return a statistic or probability with three decimals; large ones with four digits."""
    return f"{value:.3f}" if abs(value) < 1e4 else f"{value:.3e}"


def percent(value: float) -> str:
    """Return a share as a whole number of per cent."""
    return f"{100 * value:.0f} %"


@dataclass(frozen=True)
class Column:
    """A column of a result table."""

    name: str
    show: Callable[[Any], str] = str  # text of a value

    def text(self, value: Any) -> str:
        """Return the text of a cell on one line, empty where there is no value."""
        return "" if value is None else _one_line(self.show(value))


@dataclass(frozen=True)
class ResultTable:
    """A titled table with facts above it and notes below."""

    title: str
    facts: tuple[tuple[str, str], ...]
    columns: tuple[Column, ...]  # the first one names the row
    rows: tuple[tuple[Any, ...], ...]  # None for an empty cell
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        facts = tuple((name, _one_line(text)) for name, text in self.facts)
        object.__setattr__(self, "facts", facts)

    def cells(self, rows: Sequence[tuple[Any, ...]] | None = None) -> list[list[str]]:
        """Return the texts of header and rows."""
        shown = self.rows if rows is None else rows
        head = [column.name for column in self.columns]
        return [head, *([c.text(v) for c, v in zip(self.columns, row, strict=True)] for row in shown)]

    def short_cells(self) -> tuple[list[list[str]], tuple[str, ...]]:
        """Return the texts of a table short enough to read, and the notes."""
        rows = self.rows
        if len(rows) <= FEW_ROWS:
            return self.cells(), self.notes
        # Of many coefficients most are 0: show those that are not.
        chosen = [row for row in rows if any(isinstance(value, float) and value for value in row)][:FEW_ROWS]
        left = f"{len(rows) - len(chosen)} of {len(rows)} rows are not shown: JSON and CSV have all."
        return self.cells(chosen), (*self.notes, left)


class Printable:
    """A result that prints as a table."""

    def table(self) -> ResultTable:
        """Return the result as a table."""
        raise NotImplementedError

    def __str__(self) -> str:
        table = self.table()
        cells, notes = table.short_cells()
        widths = [max(len(row[j]) for row in cells) for j in range(len(cells[0]))]
        lines = [
            "   ".join(
                f"{cell:<{w}}" if j == 0 else f"{cell:>{w}}"
                for j, (cell, w) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in cells
        ]
        width = max(sum(widths) + 3 * (len(widths) - 1), 40)
        facts = _in_two_columns(table.facts, max(width, 78))
        double, single = "=" * width, "-" * width
        body = [
            table.title,
            double,
            *facts,
            *([double] if facts else []),
            lines[0],
            single,
            *lines[1:],
            double,
        ]
        told = [line for note in notes for line in textwrap.wrap(note, WIDTH, subsequent_indent="  ")]
        return "\n".join([*body, *told])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return self.to_html()

    def to_html(self) -> str:
        """Return an HTML table, as notebooks show it."""
        table = self.table()
        cells, notes = table.short_cells()
        return html_table(table.title, table.facts, cells, notes)

    def to_markdown(self) -> str:
        """Return a Markdown table."""
        table = self.table()
        cells, notes = table.short_cells()

        def line(row: Sequence[str]) -> str:
            return "| " + " | ".join(re.sub(r"([|*_`<])", r"\\\1", cell) for cell in row) + " |"

        rule = "|" + "|".join("---" if j == 0 else "---:" for j in range(len(cells[0]))) + "|"
        facts = [f"- {name}: {text}" for name, text in table.facts]
        body = [line(cells[0]), rule, *map(line, cells[1:])]
        return "\n".join([f"**{table.title}**", "", *facts, "", *body, "", *(f"{n}\n" for n in notes)])

    def to_latex(self) -> str:
        """Return a LaTeX ``tabular``, with facts and notes as comments."""
        table = self.table()
        cells, notes = table.short_cells()
        rows = [" & ".join(map(_latex, row)) + r" \\" for row in cells]
        said = [f"% {table.title}", *(f"% {name}: {text}" for name, text in table.facts)]
        body = [rf"\begin{{tabular}}{{l{'r' * (len(cells[0]) - 1)}}}", r"\hline", rows[0], r"\hline"]
        end = [r"\hline", r"\end{tabular}"]
        return "\n".join([*said, *body, *rows[1:], *end, *(f"% {note}" for note in notes), ""])

    def to_dict(self) -> dict[str, Any]:
        """Return title, facts, rows (by column name, numbers in full precision) and notes."""
        table = self.table()
        names = [column.name for column in table.columns]
        rows = [dict(zip(names, row, strict=True)) for row in table.rows]
        return {"title": table.title, "facts": dict(table.facts), "rows": rows, "notes": list(table.notes)}

    def to_json(self) -> str:
        """Return the table as JSON, with numbers in full precision."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)

    def to_csv(self) -> str:
        """Return the rows as CSV, with numbers in full precision."""
        table, text = self.table(), io.StringIO()
        head = [column.name for column in table.columns]
        rows = [["" if value is None else value for value in row] for row in table.rows]
        csv.writer(text, lineterminator="\n").writerows([head, *rows])
        return text.getvalue()

    def to_frame(self) -> Any:
        """Return the rows as a pandas data frame, indexed by the first column; empty cells are NaN."""
        try:
            import pandas as pd
        except ImportError as missing:
            raise NotInstalled(
                "to_frame() needs pandas: use to_dict(), or run  pip install pandas"
            ) from missing
        table = self.table()
        names = [column.name for column in table.columns]
        frame = pd.DataFrame([list(row) for row in table.rows], columns=names).set_index(names[0])
        return frame

    def render(self, form: str) -> str:
        """Return the table in a format of `FORMATS`."""
        if form not in FORMATS:
            raise WrongValue(f"format must be one of {', '.join(FORMATS)}, got {form!r}.")
        return FORMATS[form](self)


FORMATS: dict[str, Callable[[Printable], str]] = {
    "text": lambda result: f"{result}\n",
    "html": Printable.to_html,
    "markdown": Printable.to_markdown,
    "latex": Printable.to_latex,
    "json": lambda result: f"{result.to_json()}\n",
    "csv": Printable.to_csv,
}


def _one_line(text: str) -> str:
    """Return a text without line breaks, which a level or a label may have."""
    return " ".join(text.splitlines())


def _latex(text: str) -> str:
    return "".join(LATEX.get(letter, letter) for letter in text)


def _in_two_columns(facts: Sequence[tuple[str, str]], width: int) -> list[str]:
    """Pairs of name and text, two to a line where both are short."""
    label, half = max((len(name) for name, _ in facts), default=0) + 2, width // 2
    lines: list[str] = []
    waiting = ""
    for name, text in facts:
        entry = f"{name:<{label}}{text}"
        if len(entry) > half - 2:
            lines += [waiting] if waiting else []
            lines += textwrap.wrap(entry, width, subsequent_indent=" " * label)
            waiting = ""
        elif waiting:
            lines.append(f"{waiting:<{half}}{entry}")
            waiting = ""
        else:
            waiting = entry
    return [*lines, waiting] if waiting else lines
