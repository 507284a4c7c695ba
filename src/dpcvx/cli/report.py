"""``dpcvx report``: a page about released models, for a publication or a lawyer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpcvx.cli.options import LedgerUrl
from dpcvx.cli.output import check_writable, write
from dpcvx.cli.predict import open_model
from dpcvx.errors import WrongValue

__all__ = ["report"]


def report(
    models: Annotated[list[Path], typer.Argument(help="Model files written by dpcvx fit.")],
    out: Annotated[Path, typer.Option(help="File to write: .html, or .pdf with dpcvx[report].")],
    title: Annotated[str, typer.Option(help="Title of the report.")] = "Report of a private analysis",
    question: Annotated[str, typer.Option(help="Question of the analysis, in your words.")] = "",
    account: Annotated[
        str | None, typer.Option(help="Account that paid: its charges and its cap are listed.")
    ] = None,
    ledger: LedgerUrl = None,
) -> None:
    """Write a report: question, declared data, coefficients, guarantee, provenance and glossary."""
    from dpcvx.report.model_report import ReportedModel, write_report

    check_writable(out, *models)
    if ledger is not None and account is None:
        raise WrongValue("--ledger needs --account, the name of the account that paid.")
    payer = None
    if account is not None:
        from dpcvx.ledger import Ledger

        payer = Ledger(ledger).account(account)
    for path in models:
        open_model(path, None)  # explains what is wrong with a file
    opened = [ReportedModel.open(path) for path in models]
    write(out, lambda path: write_report(opened, path, title=title, question=question, account=payer))
    typer.echo(f"Report written to {out}")
