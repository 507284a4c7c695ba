"""``dpcvx declare``: a schema file to fill in, written from the names of a table's columns."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpcvx.cli.options import DataFile, Encoding, Sep, csv_dialect
from dpcvx.cli.output import check_writable, write
from dpcvx.errors import WrongValue

__all__ = ["declare"]

HEADING = """\
# Declaration of the columns of a table, proposed from their names{types}. No cell was read.
# Check every entry and fill in each "?", from what is publicly known and never from the table: nothing here
# is protected. Delete sections of columns that no model should read. Then delete the next line.
"""
TYPES = """ and from the types that the file declares.
# If a program inferred these types from the cells, one cell may have decided a kind below: correct it, and do
# not share this file before"""


def declare(
    data: DataFile,
    out: Annotated[
        Path | None, typer.Option(help="Schema file to write. Default: the table's name with .toml.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="Column that models will predict.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
    sep: Sep = ",",
    encoding: Encoding = "utf-8",
) -> None:
    """Write a schema file to fill in, from the names of a table's columns; no cell is read."""
    from dpcvx.data.files import HEADER_HINT, read_header
    from dpcvx.data.proposals import propose_column
    from dpcvx.data.table_schema import TableSchema

    out = data.with_suffix(".toml") if out is None else out
    check_writable(out, data)
    if out.exists() and not force:
        raise WrongValue(f"{out} exists already: choose another --out, or add --force to replace it.")
    names, types = read_header(data, csv_dialect(sep, ".", encoding, False))
    if target is not None and target not in names:
        raise WrongValue(f"The table's header lacks the target {target!r}; {HEADER_HINT}")
    schema = TableSchema.from_header(names, types, target=target)
    notes = {name: propose_column(name, types.get(name)).note for name in names}
    heading = HEADING.format(types=TYPES if types else "")
    text = heading + schema.to_toml(notes=notes)
    write(out, lambda path: path.write_text(text, encoding="utf-8"))
    source = "the names and types of columns" if types else "the first line, the names of columns"
    typer.echo(
        f"Wrote {out}. Nothing was read of {data} but {source}.\n"
        "Fill in each question mark, check the rest, and delete the line  confirmed = false;  then:"
        f"  dpcvx fit {data} --bounds {out} ..."
    )
