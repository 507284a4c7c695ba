"""``dpcvx fit``: a private model of a table, written to a file with its privacy statement."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from dpcvx.cli.options import AsJson, DataFile, LedgerUrl, make_estimator, needs_classes
from dpcvx.cli.output import check_writable, print_json, write
from dpcvx.errors import UnrecognisedDataWarning, WrongValue

__all__ = ["BOUNDS_EXAMPLE", "fit", "open_ledger"]

BOUNDS_EXAMPLE = """A bounds file looks like this (in your own units; from what you know, not from the data):

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
    target: Annotated[str, typer.Option(help="Column to predict.")],
    model: str,
    bounds: Annotated[Path, typer.Option(help="Bounds file, TOML; see below.")],
    out: Annotated[Path, typer.Option(help="Model file to write, JSON.")],
    given: dict[str, Any],
    features: Annotated[
        str, typer.Option(help="Columns to use, separated by commas. Default: all declared.")
    ] = "",
    ledger: LedgerUrl = None,
    as_json: AsJson = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
) -> None:
    """Fit a private model and write it to a file, with its privacy statement."""
    from dpcvx.cli.bounds_file import BoundsFile
    from dpcvx.data.files import open_table

    declared = BoundsFile.read(bounds)
    parameters = given | {"verbose": int(sys.stderr.isatty() and not quiet)}
    if declared.data_norm is not None:
        parameters.setdefault("data_norm", declared.data_norm)
    if (payer := open_ledger(ledger, given.get("account"))) is not None:
        parameters["ledger"] = payer
    parameters |= _target(model, declared, bounds)
    check_writable(out, data, bounds)
    table = open_table(data)
    wanted = [name.strip() for name in features.split(",") if name.strip()]
    names = declared.features(table.columns, target, wanted)
    levels = {name: list(declared.categories[name]) for name in names if name in declared.categories}
    if groups := declared.column_groups(names) if model == "group-lasso" else None:
        parameters["groups"] = groups
    parameters |= {"bounds": declared.column_bounds(names), "categories": levels or None}
    estimator = make_estimator(model, parameters)
    X, y = table.read(names, declared.categories, target, parameters.get("classes"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning if quiet else UnrecognisedDataWarning)  # shown below
        try:
            estimator.fit(X, y)
        finally:  # a warning that is an error may come when the budget is spent
            if hasattr(estimator, "release_"):
                write(out, estimator.save)
    statement, check = estimator.privacy_statement_, estimator.check_
    if as_json:
        planned, counts = estimator.plan_.to_plain(), None if check is None else check.to_plain()
        print_json({"model": str(out), "plan": planned, "check": counts, "statement": statement.to_dict()})
    elif not quiet:
        typer.echo(f"{estimator.plan_}\n\n{statement}\n\nModel written to {out}")
    if check is not None and check.findings and not quiet:
        typer.echo(f"dpcvx: {check.warning}\n{check}", err=True)


def open_ledger(url: str | None, account: str | None) -> Any:
    """Open the ledger that pays: the user's own file where only an account is named."""
    if account is None:
        if url is not None:
            raise WrongValue("--ledger needs --account, the name of the account that pays.")
        return None
    from dpcvx.ledger import Ledger

    return Ledger(url)


def _target(model: str, declared: Any, path: Path) -> dict[str, Any]:
    if needs_classes(model):
        if declared.classes is None:
            raise WrongValue(
                f'--model {model} needs the labels: add  [target] classes = ["no", "yes"]  to {path}.'
            )
        return {"classes": list(declared.classes)}
    if declared.target_bounds is None:
        raise WrongValue(
            f"--model {model} needs the target's bounds: add  [target] bounds = [low, high]  to {path}."
        )
    return {"y_bounds": declared.target_bounds}
