"""``dpcvx audit``: attack this installation, or the fit of a model to a user's records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpcvx.cli.options import AsJson, Decimal, Encoding, FormOptions, LineBreaks, Sep, Sheet
from dpcvx.cli.output import check_writable, print_json, write
from dpcvx.errors import WrongValue

__all__ = ["audit"]

DOES_NOT_HOLD = 4  # exit code, as of `dpcvx verify`


def audit(
    model: Annotated[
        Path | None,
        typer.Argument(help="Model file written by dpcvx fit: its fit is replayed on neighbours of --data."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Table of records, with MODEL. They are read, and the result is then private: keep it."
        ),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Column that the model predicts. Default: the one it was fitted to.")
    ] = None,
    only: Annotated[
        str, typer.Option(help="Mechanisms to audit, separated by commas. Default: everything.")
    ] = "",
    runs: Annotated[
        int, typer.Option(help="Runs of each mechanism on each of two neighbours; more prove more.")
    ] = 400,
    seed: Annotated[int, typer.Option(help="Seed of the audit: another one is another audit.")] = 0,
    out: Annotated[Path | None, typer.Option(help="HTML page to write.")] = None,
    sep: Sep = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    sheet: Sheet = None,
    line_breaks: LineBreaks = False,
    as_json: AsJson = False,
) -> None:
    """Attack mechanisms, samplers and fits, and compare the claimed epsilon with what an attacker proves.

    Without MODEL all data are generated. Exit code 4 if a check fails.
    """
    from dpcvx.audit import audit as run_audit

    if (model is None) != (data is None):
        raise WrongValue("Give MODEL and --data together, or neither to audit this installation.")
    if out is not None:
        check_writable(out, *(path for path in (model, data) if path is not None))
    if model is not None and data is not None:
        from dpcvx.audit.audit_report import AuditReport, audit_model
        from dpcvx.cli.predict import open_model, read_rows

        estimator = open_model(model, None)
        column = target or getattr(estimator.schema, "target", None)
        if column is None:
            raise WrongValue(f"{model} does not name the column that it predicts: give --target NAME.")
        X, y = read_rows(
            estimator, model, data, FormOptions(sep, decimal, encoding, line_breaks, sheet), column
        )
        report = AuditReport(fits=(audit_model(estimator, X, y, seed=seed),), private=True)
    else:
        names = [name.strip() for name in only.split(",") if name.strip()]

        def tell(name: str) -> None:
            typer.echo(f"dpcvx: {name}", err=True)

        report = run_audit(runs=runs, only=names, seed=seed, progress=None if as_json else tell)
    if out is not None:
        write(out, report.write)
    if as_json:
        print_json(report.to_dict())
    else:
        typer.echo(str(report) + ("" if out is None else f"\n\nPage written to {out}"))
    if not report.holds:
        raise typer.Exit(DOES_NOT_HOLD)
