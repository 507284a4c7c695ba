"""Answers as tables for the page, and as files to download."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

from dpcvx.queries import Answer

if TYPE_CHECKING:
    from dpcvx.estimators.tables import Printable

__all__ = ["FILES", "answer_file", "shown_table"]

FILES = {
    "json": "application/json",
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
}
TERM = "term"  # name of the first column of a file, which the printed table leaves empty


def shown_table(table: Printable) -> dict[str, Any]:
    """Return a table as the texts that Python and the command line print."""
    made = table.table()
    head, *rows = made.cells()
    return {
        "title": made.title,
        "facts": [list(fact) for fact in made.facts],
        "columns": head,
        "rows": rows,
        "notes": list(made.notes),
    }


def answer_file(answer: Answer, form: str, population: bool | None) -> bytes:
    """Return an answer as a file: JSON of the whole answer, or a row for each number, margins included.

    `form`: one of `FILES`; `population`: as in `Answer.summary`.
    """
    if form == "json":
        return json.dumps(answer.to_json(), indent=2, allow_nan=False).encode()
    rows = answer.rows(population)
    if form == "csv":
        text = rows.to_csv()
        return (TERM + text if text.startswith(",") else text).encode()
    import pyarrow as pa
    from pyarrow import parquet

    made = rows.table()
    names = [column.name or TERM for column in made.columns]
    columns = dict(zip(names, map(list, zip(*made.rows, strict=True)), strict=True))
    file = io.BytesIO()
    parquet.write_table(pa.table(columns), file)
    return file.getvalue()
