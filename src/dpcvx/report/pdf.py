"""PDF documents of the sections of a report."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from dpcvx.errors import NotInstalled
from dpcvx.report.html import Section

__all__ = ["pdf_report"]

FONT, FIXED = "DejaVu", "DejaVuMono"
INK, SOFT, MARK = (29, 39, 51), (90, 102, 117), (11, 110, 117)


def pdf_report(title: str, summary: str, sections: Sequence[Section]) -> bytes:
    """Return a PDF document of the same sections as an HTML page; it needs ``dpcvx[report]``.

    `summary`: what the reader should take away, in a sentence or two.
    """
    from dpcvx import __version__

    document = _document()
    document.set_title(title)
    document.add_page()
    _write(document, title, 20, INK, "B")
    _write(document, summary, 11, SOFT)
    for section in sections:
        document.ln(4)
        _write(document, section.title, 13, MARK, "B")
        for paragraph in filter(None, section.text.split("\n\n")):
            _write(document, paragraph, 9, INK)
        if section.png:
            document.image(BytesIO(section.png), w=document.epw)
            _write(document, section.caption, 8, SOFT)
        if section.rows:
            _table(document, section.rows)
        if section.verbatim:
            document.set_font(FIXED, size=6.2)
            document.multi_cell(0, 3, section.verbatim, new_x="LMARGIN", new_y="NEXT")
    document.ln(6)
    footer = f"Made by dpcvx {__version__}. This document holds released and public values only."
    _write(document, footer, 8, SOFT)
    return bytes(document.output())


def _document() -> Any:
    try:
        import matplotlib
        from fpdf import FPDF
    except ModuleNotFoundError as missing:
        raise NotInstalled('Reports in PDF need fpdf2: run  pip install "dpcvx[report]"') from missing
    fonts = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    document = FPDF(format="A4")
    document.set_margins(18, 16)
    document.set_auto_page_break(True, 16)
    document.add_font(FONT, "", fonts / "DejaVuSans.ttf")
    document.add_font(FONT, "B", fonts / "DejaVuSans-Bold.ttf")
    document.add_font(FIXED, "", fonts / "DejaVuSansMono.ttf")
    return document


def _write(document: Any, text: str, size: float, color: tuple[int, int, int], style: str = "") -> None:
    document.set_font(FONT, style, size)
    document.set_text_color(*color)
    document.multi_cell(0, size / 2, text, new_x="LMARGIN", new_y="NEXT", align="L")
    document.ln(1)


def _table(document: Any, rows: Sequence[Sequence[str]]) -> None:
    """Draw a table whose columns are as wide as their longest cell asks for, within the page."""
    document.set_font(FONT, size=6.5 if len(rows[0]) > 5 else 7.5)
    document.set_text_color(*INK)
    longest = [max(max(len(row[j]), 4) for row in rows) for j in range(len(rows[0]))]
    widths = [max(8, min(length, 60)) ** 0.8 for length in longest]
    align = ["LEFT", *["LEFT" if length > 24 else "RIGHT" for length in longest[1:]]]
    with document.table(
        col_widths=widths, text_align=align, line_height=3.6, borders_layout="HORIZONTAL_LINES"
    ) as table:
        for row in rows:
            cells = table.row()
            for cell in row:
                cells.cell(cell)
