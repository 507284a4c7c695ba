"""Self-contained HTML pages of released and public values."""

from __future__ import annotations

import html
import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Section", "html_report"]


@dataclass(frozen=True)
class Section:
    """One part of an HTML report; empty fields are left out."""

    title: str
    text: str = ""  # paragraphs, separated by blank lines
    rows: Sequence[Sequence[str]] = ()  # a table; the first row is its header
    png: bytes = b""  # a picture
    caption: str = ""  # says what the picture shows, to those who see it and those who do not
    verbatim: str = ""  # text in its own layout, such as a plan's table


RELEASED_ONLY = "This page holds released and public values only."
NUMBER = re.compile(r"[-+−]?[\d.,]+(e[-+]?\d+)?( ?%)?|nan|")
MANY_COLUMNS = 7  # tables with more have narrower cells
STYLE = """
:root{--ink:#1d2733;--soft:#5a6675;--line:#e1e6eb;--page:#f4f6f8;--card:#fff;--mark:#0b6e75;--tint:#e8f3f3}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);
font:16px/1.6 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
header{background:linear-gradient(120deg,#0b4a5c,#0b6e75 60%,#16897d);color:#fff;padding:3rem 1.25rem 4.5rem}
header div,main,footer{max-width:58rem;margin:0 auto}
h1{font-size:clamp(1.6rem,5vw,2.4rem);line-height:1.2;margin:0 0 .6rem;letter-spacing:-.01em}
header p{margin:0;max-width:44rem;opacity:.92;font-size:1.08rem}
main{padding:0 1rem;margin-top:-2.5rem}
section{background:var(--card);border:1px solid var(--line);border-radius:14px;padding:1.4rem 1.5rem;
margin:0 0 1.2rem;box-shadow:0 1px 3px rgba(20,40,60,.06)}
h2{font-size:1.2rem;margin:0 0 .7rem}
p{margin:.5rem 0}
figure{margin:1rem 0}
img{width:100%;max-width:44rem;height:auto;display:block;margin:0 auto;border-radius:8px}
figcaption{color:var(--soft);font-size:.9rem;margin-top:.5rem}
.scroll{overflow-x:auto;-webkit-overflow-scrolling:touch}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:.5rem .75rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
th{color:var(--soft);font-weight:600;font-size:.85rem}th,td:first-child{white-space:normal}
th:first-child,td:first-child,.words{text-align:left}
td.words{white-space:normal;overflow-wrap:break-word}
td:first-child{overflow-wrap:anywhere;min-width:7.5rem}
.wide th,.wide td{padding:.5rem .4rem}
tr:last-child td{border-bottom:0}
tbody tr:hover{background:var(--tint)}
pre{background:#f7f9fa;border:1px solid var(--line);border-radius:8px;padding:1rem;margin:1rem 0 0;
overflow-x:auto;font:12px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
footer{color:var(--soft);font-size:.88rem;padding:.5rem 1.2rem 3rem}
@media(max-width:600px){section{padding:1.1rem 1rem;border-radius:10px}header{padding:2rem 1.1rem 4rem}
pre{font-size:11px}th,td{padding:.4rem .35rem;font-size:.88rem}}
@media print{header{background:none;color:#000;padding:0 0 1rem}main{margin:0}
section{break-inside:avoid;box-shadow:none}}
"""


def html_report(title: str, summary: str, sections: Sequence[Section], note: str = RELEASED_ONLY) -> str:
    """Return one self-contained HTML page: style and pictures are inside, nothing is fetched.

    `summary`: what the reader should take away, in a sentence or two; `note`: what the page holds, for its
    last line. Returns the page.
    """
    from dpcvx import __version__

    body = "\n".join(_section(section) for section in sections)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<header><div><h1>{html.escape(title)}</h1><p>{html.escape(summary)}</p></div></header>
<main>
{body}
</main>
<footer>Made by dpcvx {__version__}. {html.escape(note)}</footer>
</body>
</html>
"""


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Table whose columns of words are left-aligned and wrap; numbers do not wrap."""
    words = [not all(NUMBER.fullmatch(row[j]) for row in rows) for j in range(len(header))]
    marks = [' class="words"' if each else "" for each in words]

    def line(cells: Sequence[str], tag: str) -> str:
        found = (f"<{tag}{mark}>{html.escape(cell)}</{tag}>" for cell, mark in zip(cells, marks, strict=True))
        return f"<tr>{''.join(found)}</tr>"

    wide = ' class="wide"' if len(header) > MANY_COLUMNS else ""
    body = "".join(line(row, "td") for row in rows)
    return f"<table{wide}><thead>{line(header, 'th')}</thead><tbody>{body}</tbody></table>"


def _section(section: Section) -> str:
    parts = [f"<h2>{html.escape(section.title)}</h2>"]
    parts += [f"<p>{html.escape(paragraph)}</p>" for paragraph in section.text.split("\n\n") if paragraph]
    if section.png:
        caption = html.escape(section.caption)
        image = f'<img alt="{caption}" src="data:image/png;base64,{b64encode(section.png).decode()}">'
        parts.append(f"<figure>{image}<figcaption>{caption}</figcaption></figure>")
    if section.rows:
        head, *rows = section.rows
        parts.append(f'<div class="scroll">{_table(head, rows)}</div>')
    if section.verbatim:
        parts.append(f"<pre>{html.escape(section.verbatim)}</pre>")
    return "<section>" + "\n".join(parts) + "</section>"
