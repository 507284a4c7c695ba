"""``dpcvx declare``: a schema file to fill in, written from the names of a table's columns."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from dpcvx.cli.options import DataFile, Encoding, Sep, csv_dialect
from dpcvx.cli.output import check_writable, write
from dpcvx.errors import WrongValue

__all__ = ["declare"]

HEADING = """\
# Declaration of the columns of a table, proposed from their names{more}. No cell was read.
# Check every entry and fill in each "?", from what is publicly known and never from the table: nothing here
# is protected. Delete sections of columns that no model should read. A missing number counts as the middle of
# its bounds: where that is far from a usual value, add  missing = NUMBER. Then delete the next line.
"""
MORE = """ and from the {kind} that the file declares.
# If a program made these from the cells, one cell may have decided an entry below: correct it, and do not
# share this file before"""
SEPARATORS = {";": '";"', "\t": "tab", "|": '"|"', ",": '","'}  # of CSV files, as they are typed


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
    from dpcvx.data.files import read_header
    from dpcvx.data.proposals import propose_column
    from dpcvx.data.table_file import HEADER_HINT
    from dpcvx.data.table_schema import TableSchema

    out = data.with_suffix(".toml") if out is None else out
    check_writable(out, data)
    if out.exists() and not force:
        raise WrongValue(f"{out} exists already: choose another --out, or add --force to replace it.")
    header = read_header(data, csv_dialect(sep, ".", encoding, False))
    if len(header.names) == 1 and (
        others := [word for mark, word in SEPARATORS.items() if mark in header.names[0]]
    ):
        raise WrongValue(
            f"The header of {data} is one name with separators in it, so that the table would have one "
            f"column: add --sep {others[0]}."
        )
    if target is not None and target not in header.names:
        raise WrongValue(f"The table's header lacks the target {target!r}; {HEADER_HINT}")
    types, labels = header.types, header.labels
    schema = TableSchema.from_header(header.names, types, target=target, labels=labels)
    notes = {name: propose_column(name, types.get(name), labels.get(name, ())).note for name in header.names}
    kind = "types and value labels" if labels else "types"
    text = HEADING.format(more=MORE.format(kind=kind) if types else "") + schema.to_toml(notes=notes)
    write(out, lambda path: path.write_text(text, encoding="utf-8"))
    source = f"the names and {kind} of columns" if types else "the first line, the names of columns"
    form = "".join(
        f" {option} {shlex.quote(value)}"
        for option, value, usual in (("--sep", sep, ","), ("--encoding", encoding, "utf-8"))
        if value != usual
    )
    typer.echo(
        f"Wrote {out}. Nothing was read of {data} but {source}.\n"
        "Fill in each question mark, check the rest, and delete the line  confirmed = false;  then:"
        f"  dpcvx fit {data} --bounds {out}{form} ..."
    )
