"""``dpcvx declare``: a schema file to fill in, written from the names of a table's columns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from dpcvx.cli.fit import open_ledger
from dpcvx.cli.options import (
    DataFile,
    Decimal,
    Encoding,
    FormOptions,
    LedgerUrl,
    LineBreaks,
    Sep,
    Sheet,
    Witness,
)
from dpcvx.cli.output import check_writable, write
from dpcvx.errors import Unreadable, WrongValue
from dpcvx.words import quantity

__all__ = ["declare"]

HEADING = """\
# Declaration of the columns of a table, proposed from their names{more}. No cell was read.
# Check every entry and fill in each "?", from what is publicly known and never from the table: nothing here
# is protected. Delete sections of columns that no model should read. A missing number counts as the mean of
# its column; where cells are missing for a reason, add  missing = "indicator". For an amount with a
# long tail, such as an income, add  map = "log". Queries of  dpcvx serve  are about levels and about numbers
# in bins: add  bins = 10  or a list of edges to each number, or leave it out by  no_queries = ["name"].
# Analysts see codes as they are: say what they mean by  label = "Political ideology", unit = "years"  and
# value_labels = {{1 = "Very liberal", 5 = "Very conservative"}}.
# Then delete the next line.
"""
MORE = """ and from the {kind} that the file declares.
# If a program made these from the cells, one cell may have decided an entry below: correct it, and do not
# share this file before"""
MODEL = (
    "Choose the model by the target: linear for numbers, logistic for 0 and 1, yes and no, or other levels "
    '(kind = "boolean" or "levels"), ordinal for three or more levels in an order, poisson for counts, gamma '
    "for amounts of money, fractional for shares."
)
NAMED_MODEL = (
    "The model, {model}, was guessed from the name of the target or its declared type: check it, above all "
    "if you change the declaration of the target."
)
SEPARATORS = {";": '";"', "\t": "tab", "|": '"|"', ",": '","'}  # of CSV files, as they are typed


def declare(
    data: DataFile,
    out: Annotated[
        Path | None, typer.Option(help="Schema file to write. Default: the table's name with .toml.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="Column that models will predict.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="Fill in open bounds of numbers in the schema file, by noisy quantiles of the table, for "
            "this privacy loss. First run the command without it, and say what each column is."
        ),
    ] = None,
    delta: Annotated[float | None, typer.Option(help="Default: min(1/n^2, 1e-5).")] = None,
    ledger: LedgerUrl = None,
    witness: Witness = None,
    account: Annotated[str | None, typer.Option(help="Account of the ledger that pays.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the noise, for tests: NOT PRIVATE.")] = None,
    sep: Sep = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    sheet: Sheet = None,
    line_breaks: LineBreaks = False,
) -> None:
    """Write a schema file to fill in, from the names of a table's columns; only --epsilon reads cells."""
    out = data.with_suffix(".toml") if out is None else out
    check_writable(out, data)
    options = FormOptions(sep, decimal, encoding, line_breaks, sheet)
    if epsilon is not None:
        if not out.is_file():
            raise Unreadable(
                f"{out} does not exist: first run the command without --epsilon, and say in the file what "
                "each column is. Bounds of numbers may stay open."
            )
        payer = open_ledger(ledger, account, witness)
        payment = {"epsilon": epsilon, "delta": delta, "ledger": payer, "account": account}
        _fill(out, data, options, {**payment, "random_state": seed})
        return
    if out.exists() and not force:
        raise WrongValue(
            f"{out} exists already: choose another --out, add --force to replace it, or --epsilon to fill in "
            "open bounds."
        )
    model = _propose(out, data, options.form(data), target, sep is not None)
    chosen = "" if target is not None else "--target NAME "
    typer.echo(
        "Fill in each question mark, check the rest, and delete the line  confirmed = false;  then:"
        f"  dpcvx fit {data} --bounds {out} {chosen}--model {model or 'MODEL'} --epsilon 1 --uncertainty "
        f"auto --out model.json\n{MODEL if model is None else NAMED_MODEL.format(model=model)}\n"
        "That prints a table with standard errors and intervals; without --uncertainty the whole budget goes "
        "to the model.\n"
        f"Or answer queries about it on a web page:  dpcvx serve {data} --schema {out} --epsilon 1\n"
        f"Open bounds of numbers can be filled in privately:  dpcvx declare {data} --epsilon 0.5"
    )


def _propose(out: Path, data: Path, form: Any, target: str | None, sep_given: bool) -> str | None:
    """Write a schema file from the header of a table, and return the model that suits the target's name.

    `sep_given`: whether the user has named the separator of columns.
    """
    from dpcvx.data.files import read_header
    from dpcvx.data.proposals import propose_columns, propose_model
    from dpcvx.data.table_file import HEADER_HINT
    from dpcvx.data.table_schema import TableSchema

    header = read_header(data, form)
    names, types, labels = header.names, header.types, header.labels
    used = form.dialect.sep
    marks = {mark: sum(name.count(mark) for name in names) for mark in SEPARATORS if mark != used}
    mark = max(marks, key=lambda each: marks[each])
    doubtful = len(names) == 1 or not sep_given
    if data.suffix == ".csv" and doubtful and marks[mark] >= len(names):  # more often than the separator
        word = SEPARATORS[mark]
        right = "" if len(names) == 1 else f", or --sep {SEPARATORS[used]} if that is right"
        raise WrongValue(
            f"The header of {data} would have {quantity(len(names), 'column')}, with {marks[mark]} times "
            f"{word} in the names: add --sep {word}{right}."
        )
    if target is not None and target not in names:
        raise WrongValue(f"The table's header lacks the target {target!r}; {HEADER_HINT}")
    schema = replace(TableSchema.from_header(names, types, target=target, labels=labels), file=form)
    proposed = propose_columns(names, types, labels, target)
    notes = {name: each.note for name, each in proposed.items()}
    kind = "types and value labels" if labels else "types"
    text = HEADING.format(more=MORE.format(kind=kind) if types else "") + schema.to_toml(notes=notes)
    write(out, lambda path: path.write_text(text, encoding="utf-8"))
    source = f"the names and {kind} of columns" if types else "the first line, the names of columns"
    typer.echo(f"Wrote {out}. Nothing was read of {data} but {source}.")
    return None if target is None else propose_model(target, proposed[target].column, types.get(target))


def _fill(out: Path, data: Path, options: FormOptions, payment: dict[str, Any]) -> None:
    """Fill in open bounds of numbers in a schema file, by private quantiles."""
    from dpcvx.data.files import open_table
    from dpcvx.data.schema_columns import NumberColumn
    from dpcvx.data.table import Table
    from dpcvx.data.table_schema import TableSchema, fill_in_bounds
    from dpcvx.data.variables import ASK
    from dpcvx.estimators.proposed_bounds import propose_bounds

    schema, content = TableSchema.from_toml(out), out.read_text(encoding="utf-8")
    numbers = [
        name
        for name, column in schema.columns.items()
        if column.kind == NumberColumn.kind and column.bounds == ASK
    ]
    if not numbers:
        raise WrongValue(f'No number in {out} has open bounds, bounds = "?": there is nothing to pay for.')
    form = options.form(data, schema)
    table = open_table(data, form)
    ids = [] if schema.person is None else [schema.person]
    if absent := [name for name in (*numbers, *ids) if name not in table.columns]:
        raise WrongValue(f"{out} declares columns that the table lacks: {', '.join(absent)}.")
    for name in numbers:
        fill_in_bounds(content, name, "")  # refused before anything is paid for
    X, _ = table.read([*numbers, *ids], ids)
    column = X[ids[0]] if ids else None
    found = propose_bounds(Table(X.select(numbers)), numbers, ids=column, **payment)
    note = (
        f"# noisy bounds, for epsilon {payment['epsilon']:g} of its own: round them by what is publicly known"
    )
    for name, bounds in found.bounds.items():
        if bounds is not None:
            content = fill_in_bounds(content, name, f"{note}\nbounds = [{bounds[0]:g}, {bounds[1]:g}]")
    write(out, lambda path: path.write_text(content, encoding="utf-8"))
    open_ones = [name for name, bounds in found.bounds.items() if bounds is None]
    filled = [name for name in numbers if name not in open_ones]
    done = f"Filled in bounds of {', '.join(filled)} in {out}" if filled else "No bounds were filled in"
    typer.echo(f"{done}.\n\n{found.statement}")
    if open_ones:
        csv = data.suffix == ".csv" and form.dialect.decimal == "."
        comma = " If the file has decimal commas, add --decimal ','." if csv else ""
        typer.echo(
            f"dpcvx: no numbers are visible in {', '.join(open_ones)}: what kind are they?{comma}", err=True
        )
