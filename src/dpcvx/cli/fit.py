"""``dpcvx fit``: a private model of a table, written to a file with its privacy statement."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpcvx.cli.options import (
    AsJson,
    DataFile,
    Decimal,
    Encoding,
    FormOptions,
    LedgerUrl,
    LineBreaks,
    Sep,
    Sheet,
    Witness,
    make_estimator,
    needs_bounds,
    needs_classes,
    show_plan,
)
from dpcvx.cli.output import Stopped, check_new, check_writable, print_json, write
from dpcvx.errors import Interrupted, Unreadable, UnrecognisedDataWarning, WrongValue
from dpcvx.estimators.registry import COMMANDS
from dpcvx.words import nearest, quantity

if TYPE_CHECKING:
    from dpcvx.data.table_schema import TableSchema

__all__ = [
    "BOUNDS_EXAMPLE",
    "choose_columns",
    "choose_target",
    "fit",
    "open_ledger",
    "target_parameters",
    "with_labels",
]

PRIVATE = "private"  # in the place of a schema file
MINUTE = 60.0  # seconds: a fit that is expected to take longer has a checkpoint

BOUNDS_EXAMPLE = """A schema file looks like this (in your own units; from what you know, not from the data):

\b
  data_norm = 3.0              # optional: largest l2 norm of a row
  default = [0, 1]             # optional: bounds of columns not named below; or "private"
  [bounds]
  age = [17, 90]
  [categories]
  sex = ["Female", "Male"]
  [target]
  bounds = [0, 100000]         # for classification: classes = ["no", "yes"]
"""


def fit(
    data: DataFile,
    model: str,
    bounds: Annotated[
        Path,
        typer.Option(
            help="Schema file, TOML; see below. Or the word private: every column is a number, and the fit "
            "spends a part of the budget on bounds of columns and target."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Model file to write, JSON.")],
    given: dict[str, Any],
    target: Annotated[
        str | None, typer.Option(help="Column to predict. Default: the one that the schema file names.")
    ] = None,
    features: Annotated[
        str, typer.Option(help="Columns to use, separated by commas. Default: all declared.")
    ] = "",
    formula: Annotated[
        str | None,
        typer.Option(
            help='Model formula, in place of --target and --features: "log(wage) ~ age + C(region, '
            "ref='north') + age:sex\"."
        ),
    ] = None,
    classes: Annotated[
        str, typer.Option(help="Labels of the target, separated by commas. Default: the schema file's.")
    ] = "",
    column_map: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            help="Map of a column of numbers, such as income=log, income=log:100, age=ramps:20,40,60 or "
            "income=private_quantiles:5; may be repeated.",
        ),
    ] = None,
    public: Annotated[
        Path | None,
        typer.Option(
            help="Table of rows that may be published, with the columns of the data; they weight the columns "
            "of a fit with --data-norm, narrow the ranges of numbers of a regression with few records, and "
            "with the target's column give a standardised fit a score as one more feature. Never rows of "
            "people who are in the data: nothing protects them."
        ),
    ] = None,
    ledger: LedgerUrl = None,
    witness: Witness = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a model file that exists.")] = False,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="File for the private answers so far, so that a fit that is stopped can go on. Default: the "
            "model file's name and .checkpoint, for a fit that is expected to take more than a minute."
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a fit that was stopped, without a second charge.")
    ] = False,
    sep: Sep = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    sheet: Sheet = None,
    line_breaks: LineBreaks = False,
    as_json: AsJson = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Print nothing but errors, and findings of the check of the data.")
    ] = False,
) -> None:
    """Fit a private model and write it to a file, with its privacy statement."""
    from dpcvx.estimators.progress import ProgressReport

    check_writable(out, *([data] if str(bounds) == PRIVATE else [data, bounds]))
    check_new(out, force=force)
    options = FormOptions(sep, decimal, encoding, line_breaks, sheet)
    kept = checkpoint or out.with_name(f"{out.name}.checkpoint")
    _check_checkpoint(kept, resume=resume)
    with ProgressReport("dpcvx fit", shown=not quiet) as progress:
        progress.step("starting")
        from dpcvx.data.files import open_table
        from dpcvx.data.table_file import HEADER_HINT
        from dpcvx.data.table_schema import TableSchema
        from dpcvx.plans import Checkpoint

        declared = _private() if str(bounds) == PRIVATE else TableSchema.from_toml(bounds)
        declared.require_confirmed()
        if formula is not None:
            if target is not None or features:
                raise WrongValue("--formula says what --target and --features say: give it alone.")
            declared = declared.with_formula(formula)
        if not declared.intercept:
            given = given | {"fit_intercept": False}
        target = choose_target(declared, target)
        declared = with_labels(
            declared, [label.strip() for label in classes.split(",") if label.strip()], model
        )
        declared = replace(declared, columns={**declared.columns, **_mapped(declared, column_map or [])})
        parameters = given | {"verbose": int(not quiet)}
        if declared.data_norm is not None:
            parameters.setdefault("data_norm", declared.data_norm)
        if (payer := open_ledger(ledger, given.get("account"), witness)) is not None:
            parameters["ledger"] = payer
        progress.step(f"reading {data}")
        table = open_table(data, options.form(data, declared))
        if target not in table.columns:  # before its bounds are missed: the name may be misspelt
            meant = nearest(target, declared.columns)
            raise WrongValue(f"The table's header lacks the target {target!r}{meant}; {HEADER_HINT}")
        parameters |= target_parameters(model, declared, target, bounds)
        wanted = [name.strip() for name in features.split(",") if name.strip()]
        if declared.person in table.columns:
            parameters.setdefault("person", declared.person)
        person = parameters.get("person")
        if person is not None and (person not in table.columns or person == target):
            raise WrongValue("--person must name a column of the table's header other than the target.")
        weight = declared.weight if declared.weight in table.columns else None
        if weight is not None:
            if weight == target:
                raise WrongValue(f"The target {target!r} is declared as weight: choose another --target.")
            parameters["weight_bounds"] = declared.columns[weight].bounds
        exposure, event = parameters.get("exposure"), parameters.get("event")
        for option, name in (("--exposure", exposure), ("--event", event)):
            if name is not None and (name not in table.columns or name in (target, person, weight)):
                raise WrongValue(
                    f"{option} must name a column of the table's header other than the target, the persons "
                    "and the weights."
                )
        others = [name for name in table.columns if name not in (person, weight, exposure, event)]
        schema = choose_columns(declared, others, target, wanted)
        if model == "group-lasso" and schema.groups:
            parameters["groups"] = schema.groups
        estimator = make_estimator(model, parameters | {"schema": schema})
        ids, roles = (
            [name for name in names if name is not None] for names in ((person,), (weight, exposure, event))
        )
        texts = [*schema.text_columns(), *ids]
        X, y = table.read([*schema.columns, *ids, *roles], texts, target, parameters.get("classes"))
        if public is not None:
            open_rows = open_table(public, options.form(public, declared))
            if absent := [name for name in schema.columns if name not in open_rows.columns]:
                raise WrongValue(f"{public} lacks columns of the data: {', '.join(absent)}; {HEADER_HINT}")
            labelled = target if target in open_rows.columns else None
            rows, found = open_rows.read(
                [*schema.columns], schema.text_columns(), labelled, parameters.get("classes")
            )
            estimator.set_params(public=rows if labelled is None else (rows, found))
        unused = [name for name in declared.columns if name not in table.columns]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning if quiet else UnrecognisedDataWarning)  # shown below
        try:
            checkpoints = Checkpoint(kept, shortest=0.0 if checkpoint else MINUTE)
            estimator.fit(X, y, checkpoint=checkpoints, sample_weight=weight)
        except Interrupted as stopped:
            raise Stopped(_explain_stop(stopped)) from None
        except KeyboardInterrupt:
            if hasattr(estimator, "release_"):
                done = f"Interrupted after the fit. The budget is spent, and the model is in {out}."
                raise Stopped(done) from None
            if not resume:
                kept.unlink(missing_ok=True)  # it has no answer yet, and nothing was paid
            raise Stopped("Interrupted before the fit began: nothing was charged or written.") from None
        finally:  # a warning that is an error may come when the budget is spent
            if hasattr(estimator, "release_"):
                write(out, estimator.save)
                kept.unlink(missing_ok=True)
    statement, check = estimator.privacy_statement_, estimator.check_
    if as_json:
        planned, counts = estimator.plan_.to_plain(), None if check is None else check.to_plain()
        content = {"model": str(out), "plan": planned, "check": counts, "statement": statement.to_dict()}
        print_json(content | {"summary": estimator.summary().to_dict()})
    elif not quiet:
        typer.echo(
            f"{show_plan(estimator.plan_)}\n\n{statement}\n\n{estimator.summary()}\n\nModel written to {out}"
        )
    if unused:  # a misspelt name, as a rule
        typer.echo(f"dpcvx: not used, since the table has no such column: {', '.join(unused)}.", err=True)
    if check is not None and check.findings:  # paid for, and a sign that the model is wrong
        typer.echo(f"dpcvx: {check.warning}" + ("" if quiet else f"\n{check}"), err=True)
    from dpcvx.plans.statement import doubts_about_data

    for doubt in doubts_about_data(statement.bounds):
        typer.echo(f"dpcvx: {doubt}", err=True)


def _check_checkpoint(path: Path, *, resume: bool) -> None:
    """Refuse to go on with a fit, or to begin another one beside it, unless that is what was asked for."""
    if resume and not path.is_file():
        raise Unreadable(f"There is nothing to resume: {path} does not exist. Leave --resume out.")
    if not resume and path.exists():
        raise WrongValue(
            f"{path} holds the private answers of a fit that was stopped: add --resume to go on with it, "
            "without a second charge; or delete it to begin again."
        )


def _explain_stop(stopped: Interrupted) -> str:
    """Say in the words of the command line what was charged and what was kept."""
    done, receipt = quantity(stopped.answers, "private answer"), stopped.receipt
    charged = "Nothing was charged."
    if stopped.account is not None:
        charged = f"A charge to account {stopped.account} had begun: see dpcvx ledger history."
    if receipt is not None:
        charged = f"Entry {receipt.sequence} of account {receipt.account} is charged and stays so."
    if stopped.checkpoint is None:
        cost = "" if receipt is None else ", which is a new charge"
        return f"Interrupted after {done}. {charged} Nothing was kept: run the command again{cost}."
    return (
        f"Interrupted after {done}. {charged} The answers are kept in {stopped.checkpoint}: run the command "
        "again with --resume to go on, without a second charge."
    )


def open_ledger(url: str | None, account: str | None, witness: Path | None) -> Any:
    """The ledger that pays: the user's own file where only an account is named."""
    if account is None:
        if url is not None or witness is not None:
            option = "--witness" if url is None else "--ledger"
            raise WrongValue(f"{option} needs --account, the name of the account that pays.")
        return None
    from dpcvx.ledger import Ledger

    return Ledger(url, witness=witness)


def _mapped(declared: TableSchema, given: list[str]) -> dict[str, Any]:
    """Columns with the maps of --map."""
    from dpcvx.data.column_maps import parse_map

    found: dict[str, Any] = {}
    for each in given:
        name, _, text = each.rpartition("=")
        column = declared.columns.get(name)
        if column is None or not hasattr(column, "map"):
            raise WrongValue(f"--map {each}: {name!r} is no column of numbers of the schema file.")
        found[name] = replace(column, map=parse_map(text, f"--map {name}"))
    return found


def _private() -> TableSchema:
    """Declare that every column is a number, and that the fit releases bounds of columns and target."""
    from dpcvx.data.schema_columns import NumberColumn
    from dpcvx.data.table_schema import TableSchema

    return TableSchema({}, default=PRIVATE, target_values=NumberColumn(PRIVATE))


def choose_columns(
    schema: TableSchema, columns: Sequence[str], target: str, chosen: Sequence[str]
) -> TableSchema:
    """Return the schema of one table, with the features that were chosen.

    `columns`: of the table; `target`: the column to predict; `chosen`: columns to use; all declared ones if
    there are none. Of the table's own columns no message says anything: the first line of a file without a
    header is somebody's record.
    """
    from dpcvx.data.table_file import HEADER_HINT

    grouped = [name for group in schema.groups.values() for name in group if name not in schema.columns]
    for names, complaint in (
        (grouped, "The schema file groups columns that the table's header lacks:"),
        (chosen, "--features names columns that the table's header lacks:"),
    ):
        if absent := [name for name in names if name not in columns]:
            raise WrongValue(f"{complaint} {', '.join(map(repr, absent))}; {HEADER_HINT}")
    if target in chosen:
        raise WrongValue(f"{target!r} is the target and a feature at once; leave it out of --features.")
    found = schema.for_table([name for name in columns if not chosen or name in chosen], target)
    if undeclared := [name for name in chosen if name not in found.columns]:
        raise WrongValue(
            f"Nothing is declared for {', '.join(map(repr, undeclared))}, or it is no feature: add a section "
            "[columns.NAME] for each, or give a default."
        )
    return found


def choose_target(schema: TableSchema, named: str | None) -> str:
    """Return the column to predict: the one that is named, or the schema file's."""
    chosen = schema.target if named is None else named
    if chosen is None:
        raise WrongValue(
            'Which column is to be predicted? Give --target NAME, or add  [target] column = "NAME"  to the '
            "schema file."
        )
    return chosen


def with_labels(declared: TableSchema, labels: list[str], model: str) -> TableSchema:
    """Return the schema with the labels of --classes for its target, if there are any.

    `model`: name on the command line.
    """
    from dpcvx.data.schema_columns import LevelColumn

    if not labels:
        return declared
    if not needs_classes(model):
        raise WrongValue(f"--classes names labels, and --model {model} predicts a number: leave it out.")
    return replace(declared, target_values=LevelColumn(labels))


def target_parameters(model: str, declared: TableSchema, target: str, path: Path) -> dict[str, Any]:
    """Return the parameters of an estimator that declare its target, from a schema file.

    `model`: name on the command line; `target`: column to predict; `path`: of the schema file, for messages.
    """
    from dpcvx.estimators.refusals import refuse_levels

    known = replace(declared, target=target).target_parameters()
    if needs_classes(model):
        if "classes" not in known:
            add = "" if str(path) == PRIVATE else f', or add  [target] classes = ["no", "yes"]  to {path}'
            raise WrongValue(f"--model {model} needs the labels of {target!r}: give --classes no,yes{add}.")
        return {"classes": known["classes"]}
    refuse_levels(COMMANDS[model], replace(declared, target=target))
    if not needs_bounds(model):
        return {}
    if "y_bounds" not in known:
        raise WrongValue(
            f"--model {model} needs bounds of the target {target!r}: add  [target] bounds = [low, high]  to "
            f"{path}."
        )
    return {"y_bounds": known["y_bounds"]}
