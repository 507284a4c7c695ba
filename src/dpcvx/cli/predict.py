"""``dpcvx predict``: predictions of a model file for the rows of a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dpcvx.cli.options import AsJson, Decimal, Encoding, Extrapolation, FormOptions, LineBreaks, Sep, Sheet
from dpcvx.cli.output import check_writable, print_json, write
from dpcvx.errors import Unreadable, WrongValue

__all__ = ["open_model", "predict", "read_rows"]


def open_model(path: Path, extrapolation: str | None) -> Any:
    """Read a model file, with another extrapolation where one is given."""
    from dpcvx.estimators import load

    if not path.is_file():
        raise Unreadable(f"{path} does not exist.")
    model = load(path)
    if extrapolation is None:
        return model
    if extrapolation not in ("clip", "linear"):
        raise WrongValue(f"--extrapolation must be clip or linear, got {extrapolation!r}.")
    return model.set_params(extrapolation=extrapolation)


def read_rows(
    estimator: Any, model: Path, data: Path, options: FormOptions, target: str | None = None
) -> tuple[Any, Any]:
    """Return the columns of a table that a model needs, and the target where one is named.

    `estimator`: read from the file `model`; `data`: the file of the table; `options`: its form, where
    it is not that of the model's schema.
    """
    from dpcvx.data.files import open_table
    from dpcvx.data.table_file import HEADER_HINT

    if not hasattr(estimator, "feature_names_in_"):
        raise WrongValue(
            f"{model} was fitted to an array, whose columns have no names to find in {data}: fit it to a "
            "table, or use dpcvx.load(...) in Python."
        )
    schema = estimator.schema
    table = open_table(data, options.form(data, schema))
    read = [*map(str, estimator.feature_names_in_)] if schema is None else [*schema.columns]
    # Whose rows are whose matters to a score alone.
    ids = [] if target is None or estimator.person is None else [estimator.person]
    exposure = getattr(estimator, "exposure", None)
    # Without exposures rates are predicted; a score needs them.
    exposures = [] if exposure is None or (target is None and exposure not in table.columns) else [exposure]
    names = [*read, *ids, *exposures]
    wanted = names if target is None else [*names, target]
    if missing := [name for name in wanted if name not in table.columns]:
        raise WrongValue(f"{data} lacks columns that the model needs: {', '.join(missing)}; {HEADER_HINT}")
    classes = getattr(estimator, "classes_", None)
    words = [*(estimator.levels_ if schema is None else schema.text_columns()), *ids]
    return table.read(names, words, target, None if classes is None else classes.tolist())


def predict(
    model: Annotated[Path, typer.Argument(help="Model file written by dpcvx fit.")],
    data: Annotated[Path, typer.Argument(help="Table with the model's feature columns, as for dpcvx fit.")],
    out: Annotated[Path | None, typer.Option(help="CSV file to write; standard output by default.")] = None,
    proba: Annotated[
        bool,
        typer.Option(
            "--proba",
            help="Write the probability of each class too, for logistic, ordinal and additive-classifier; of "
            "no event at each edge of the periods, for hazard.",
        ),
    ] = False,
    extrapolation: Extrapolation = None,
    sep: Sep = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    sheet: Sheet = None,
    line_breaks: LineBreaks = False,
    as_json: AsJson = False,
) -> None:
    """Predict for the rows of a table."""
    from dpcvx.estimators.progress import ProgressReport

    if out is not None:
        check_writable(out, data, model)
    options = FormOptions(sep, decimal, encoding, line_breaks, sheet)
    estimator = open_model(model, extrapolation)
    survives = hasattr(estimator, "predict_survival")
    if proba and not (survives or hasattr(estimator, "predict_proba")):
        raise WrongValue(
            f"{model} has no probabilities: --proba is for logistic, ordinal, hazard and additive-classifier."
        )
    with ProgressReport("dpcvx predict") as progress:
        progress.step(f"reading {data}")
        X, _ = read_rows(estimator, model, data, options)
        progress.step("predicting")
        predictions = estimator.predict(X).tolist()
        shares: dict[str, list[float]] = {}
        if proba and survives:
            names = [f"survival_{edge:g}" for edge in estimator.periods_]
            shares = dict(zip(names, estimator.predict_survival(X).T.tolist(), strict=True))
        elif proba:
            names = [f"probability_{label}" for label in estimator.classes_.tolist()]
            shares = dict(zip(names, estimator.predict_proba(X).T.tolist(), strict=True))
    if as_json:
        print_json({"predictions": predictions, **shares})
    if out is not None or not as_json:
        text = _as_csv({"prediction": predictions, **shares})
        if out is None:
            typer.echo(text, nl=False)
        else:
            write(out, lambda path: path.write_text(text, encoding="utf-8"))
            typer.echo(f"Predictions written to {out}", err=True)


def _as_csv(columns: dict[str, list[Any]]) -> str:
    import csv
    import io

    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([list(columns), *zip(*columns.values(), strict=True)])
    return text.getvalue()
