"""``dpcvx score``: a noisy metric of a model file on private rows."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from dpcvx.cli.fit import open_ledger
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
)
from dpcvx.cli.output import print_json
from dpcvx.cli.predict import open_model, read_rows
from dpcvx.errors import WrongValue

__all__ = ["score"]


def score(
    model: Annotated[Path, typer.Argument(help="Model file written by dpcvx fit.")],
    data: DataFile,
    epsilon: Annotated[float, typer.Option(help="Privacy loss that one person may suffer; delta is 0.")],
    target: Annotated[
        str | None,
        typer.Option(help="Column that the model predicts. Default: the one that it was fitted to."),
    ] = None,
    scoring: Annotated[
        str | None,
        typer.Option(
            help="scikit-learn's name of a metric; by default accuracy, r2, or d2 for counts, amounts and "
            "shares. roc_auc also shows log loss and calibration, at the same price."
        ),
    ] = None,
    ledger: LedgerUrl = None,
    witness: Witness = None,
    account: Annotated[str | None, typer.Option(help="Account of the ledger that pays.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the noise, for tests: NOT PRIVATE.")] = None,
    sep: Sep = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    sheet: Sheet = None,
    line_breaks: LineBreaks = False,
    as_json: AsJson = False,
) -> None:
    """Score a model on private rows: a noisy metric, charged like a fit."""
    from dpcvx.estimators.row_models import RowModel
    from dpcvx.tuning import private_curves, private_score

    estimator = open_model(model, None)
    if isinstance(estimator, RowModel):
        raise WrongValue(
            f"{type(estimator).__name__} has no private score: models of ordered levels and of times have "
            "none. In Python score(X, y) is the plain score, for rows that may be published."
        )
    target = target or getattr(estimator.schema, "target", None)
    if target is None:
        raise WrongValue(f"{model} does not name the column that it predicts: give --target NAME.")
    payer = open_ledger(ledger, account, witness)
    options = FormOptions(sep, decimal, encoding, line_breaks, sheet)
    X, y = read_rows(estimator, model, data, options, target)
    if payer is not None:
        _announce_share(payer, str(account), epsilon)
    settings = {"epsilon": epsilon, "ledger": payer, "account": account, "random_state": seed}
    if scoring == "roc_auc":
        curves = private_curves(estimator, X, y, **settings)
        found, text = curves.roc_auc, str(curves)
    else:
        found = private_score(estimator, X, y, scoring=scoring, **settings)
        text = str(found)
    if as_json:
        content = {
            "metric": found.name,
            "value": found.value,
            "standard_error": _finite(found.standard_error),
            "interval": [_finite(end) for end in found.interval],
            "hidden": found.hidden,
        }
        if scoring == "roc_auc" and curves.link == "logit":
            content["neg_log_loss"] = curves.log_loss().value
            content["calibration"] = [group._asdict() for group in curves.calibration()]
        print_json({**content, "statement": found.statement.to_dict()})
    else:
        typer.echo(f"{text}\n\n{found.statement}")


def _announce_share(payer: Any, name: str, epsilon: float) -> None:
    """Say what part of an account a score will use; nothing if it does not fit, which the charge refuses."""
    from dpcvx.accounting import Budget
    from dpcvx.events import PureDP

    Budget(epsilon, 0.0)  # refuses an epsilon that is no budget
    account = payer.account(name)
    if (share := account.share(PureDP(epsilon), delta=0.0)) is not None:
        used = f"{share:.1%} of account {name}, of which {account.used:.1%} is used so far"
        reason = " At the same epsilon it costs more than a fit, because its delta is 0."
        typer.echo(f"dpcvx: This score uses {used}.{reason if account.budget.delta else ''}", err=True)


def _finite(value: float) -> float | None:
    """Return a number as JSON has it: None for one that is infinite."""
    return value if math.isfinite(value) else None
