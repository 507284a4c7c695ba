"""Command line: ``dpcvx fit``, ``predict``, ``plan``, ``demo``, ``serve``, ``ask``, ``keys``, ``ledger``.

Only typer and the standard library are imported here, so that ``dpcvx --help`` answers at once.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
import warnings
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpcvx.cli.ledger import LedgerUrl, ledger_app
from dpcvx.cli.service import ask, keys_app, serve

if TYPE_CHECKING:
    from dpcvx.data.files import Schema
    from dpcvx.planning.outlook import Planning
    from dpcvx.plans import Plan

__all__ = ["main"]

# Exit codes; 2 is also the one of a wrong command line, and typer turns an interrupt into 130.
UNEXPECTED, REFUSED, FILE_PROBLEM = 1, 2, 3

HELP = """Fit models on data about people with a proved differential privacy guarantee.

Exit codes: 0 done; 1 unexpected error; 2 wrong option, bounds file or column; 3 a file is missing, empty,
unreadable or not writable, or a package is not installed; 130 interrupted.
"""

BOUNDS_EXAMPLE = """A bounds file looks like this (in your own units; from what you know, not from the data):

\b
  data_norm = 3.0              # optional: largest l2 norm of a row
  default = [0, 1]             # optional: bounds of columns not named below
  [bounds]
  age = [17, 90]
  [categories]
  sex = ["Female", "Male"]
  [target]
  bounds = [0, 100000]         # for classification: classes = ["no", "yes"]
"""

app = typer.Typer(
    name="dpcvx",
    help=HELP,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


class Model(StrEnum):
    """Models by their names on the command line."""

    LINEAR = "linear"
    LASSO = "lasso"
    ELASTIC_NET = "elastic-net"
    GROUP_LASSO = "group-lasso"
    LOGISTIC = "logistic"
    SVC = "svc"
    HUBER = "huber"
    QUANTILE = "quantile"


ESTIMATORS = {
    Model.LINEAR: "PrivateLinearRegression",
    Model.LASSO: "PrivateLasso",
    Model.ELASTIC_NET: "PrivateElasticNet",
    Model.GROUP_LASSO: "PrivateGroupLasso",
    Model.LOGISTIC: "PrivateLogisticRegression",
    Model.SVC: "PrivateLinearSVC",
    Model.HUBER: "PrivateHuberRegressor",
    Model.QUANTILE: "PrivateQuantileRegressor",
}
CLASSIFIERS = (Model.LOGISTIC, Model.SVC)

DataFile = Annotated[Path, typer.Argument(help="Table, .csv or .parquet; one row is one person.")]
ModelName = Annotated[Model, typer.Option("--model", help="What to fit.")]
Epsilon = Annotated[float, typer.Option(help="Privacy budget; smaller is more private.")]
Delta = Annotated[float | None, typer.Option(help="Default: min(1/n^2, 1e-5).")]
Radius = Annotated[float | None, typer.Option(help="Size of the set of models, in scaled units.")]
Solver = Annotated[
    str,
    typer.Option(
        help="auto, gradient_descent, mirror_descent, frank_wolfe, corrective_frank_wolfe, "
        "general_frank_wolfe, accelerated_mirror_descent, strongly_convex_mirror_descent, "
        "objective_perturbation or sufficient_statistics."
    ),
]
Iterations = Annotated[int | None, typer.Option("--n-iter", help="Number of private answers.")]
DataNorm = Annotated[float | None, typer.Option(help="Largest l2 norm of a row; rows are clipped to it.")]
QuantileLevel = Annotated[float | None, typer.Option("--quantile", help="For --model quantile.")]
Threshold = Annotated[float | None, typer.Option(help="For --model huber, in the target's units.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on standard output, errors too.")]


@app.callback(invoke_without_command=True)
def version(
    show: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)
    ] = False,
) -> None:
    """Show the version."""
    if show:
        from dpcvx import __version__

        typer.echo(f"dpcvx {__version__}")
        raise typer.Exit


@app.command(epilog=BOUNDS_EXAMPLE)
def fit(
    data: DataFile,
    target: Annotated[str, typer.Option(help="Column to predict.")],
    model: ModelName,
    epsilon: Epsilon,
    bounds: Annotated[Path, typer.Option(help="Bounds file, TOML; see below.")],
    out: Annotated[Path, typer.Option(help="Model file to write, JSON.")],
    features: Annotated[
        str, typer.Option(help="Columns to use, separated by commas. Default: all declared.")
    ] = "",
    delta: Delta = None,
    radius: Radius = None,
    solver: Solver = "auto",
    n_iter: Iterations = None,
    data_norm: DataNorm = None,
    quantile: QuantileLevel = None,
    threshold: Threshold = None,
    account: Annotated[
        str | None, typer.Option(help="Account that pays; see dpcvx ledger. Default: none.")
    ] = None,
    ledger: LedgerUrl = None,
    seed: Annotated[int | None, typer.Option(help="For tests: the model is stamped NOT PRIVATE.")] = None,
    as_json: AsJson = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
) -> None:
    """Fit a private model and write it to a file, with its privacy statement."""
    from dpcvx.data.files import open_table, read_schema

    schema = read_schema(bounds)
    settings = _settings(
        model,
        epsilon=epsilon,
        delta=delta,
        radius=radius,
        solver=solver,
        n_iter=n_iter,
        data_norm=schema.data_norm if data_norm is None else data_norm,
        quantile=quantile,
        threshold=threshold,
        random_state=seed,
        account=account,
        ledger=_ledger(ledger, account),
        verbose=int(sys.stderr.isatty() and not quiet),
    )
    settings |= _target_settings(model, schema, bounds)
    _check_writable(out, data, bounds)
    table = open_table(data)
    names = schema.features(
        table.columns, target, [name.strip() for name in features.split(",") if name.strip()]
    )
    categories = {name: list(schema.categories[name]) for name in names if name in schema.categories}
    if model is Model.GROUP_LASSO:
        settings["groups"] = schema.column_groups(names)
    estimator = _estimator(
        model, bounds=schema.column_bounds(names), categories=categories or None, **settings
    )
    X, y = table.read(names, schema.categories, target, settings.get("classes"))
    with warnings.catch_warnings():
        if quiet:
            warnings.simplefilter("ignore", UserWarning)
        try:
            estimator.fit(X, y)
        finally:  # a warning that is an error may come when the budget is spent
            if hasattr(estimator, "release_"):
                _write(out, estimator.save)
    statement = estimator.privacy_statement_
    if as_json:
        _print_json({"model": str(out), "plan": estimator.plan_.to_plain(), "statement": statement.to_dict()})
    elif not quiet:
        typer.echo(f"{estimator.plan_}\n\n{statement}\n\nModel written to {out}")


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="Model file written by dpcvx fit.")],
    data: Annotated[Path, typer.Argument(help="Table with the model's feature columns, .csv or .parquet.")],
    out: Annotated[Path | None, typer.Option(help="CSV file to write; standard output by default.")] = None,
    as_json: AsJson = False,
) -> None:
    """Predict for the rows of a table."""
    import csv
    import io

    from dpcvx.data.files import Unreadable, open_table

    if not model.is_file():
        raise Unreadable(f"{model} does not exist.")
    if out is not None:
        _check_writable(out, data, model)
    estimator = _load(model)
    if not hasattr(estimator, "feature_names_in_"):
        raise ValueError(
            f"{model} was fitted to an array, whose columns have no names to find in {data}: fit it to a "
            "table, or use dpcvx.load(...).predict(...) in Python."
        )
    table = open_table(data)
    names = [str(name) for name in estimator.feature_names_in_]
    if missing := [name for name in names if name not in table.columns]:
        raise ValueError(f"{data} lacks columns that the model needs: {', '.join(missing)}.")
    # Levels may have been declared with shards rather than with the estimator; the fitted columns know them.
    levels = zip(names, estimator._columns.levels, strict=True)
    X, _ = table.read(names, {name: declared for name, declared in levels if declared is not None})
    predictions = estimator.predict(X).tolist()
    if as_json:
        _print_json({"predictions": predictions})
    if out is not None or not as_json:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([["prediction"], *([value] for value in predictions)])
        if out is None:
            typer.echo(text.getvalue(), nl=False)
        else:
            _write(out, lambda path: path.write_text(text.getvalue(), encoding="utf-8"))


@app.command()
def plan(
    n: Annotated[int, typer.Option("--n", help="Number of records.")],
    features: Annotated[int, typer.Option(help="Number of features, without the intercept.")],
    model: ModelName,
    epsilon: Epsilon,
    delta: Delta = None,
    classes: Annotated[int, typer.Option(help="Number of classes, for logistic and svc.")] = 2,
    radius: Radius = None,
    solver: Solver = "auto",
    n_iter: Iterations = None,
    data_norm: DataNorm = None,
    quantile: QuantileLevel = None,
    threshold: Threshold = None,
    density: Annotated[
        float, typer.Option(help="Share of cells that are not 0, if public and records are compressed.")
    ] = 1.0,
    plot: Annotated[
        Path | None,
        typer.Option(help="PNG file to draw predictions in, by epsilon and by number of records."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a fit would do, cost and give, beside every other solver. No data are needed."""
    from dpcvx.planning.candidates import with_all

    settings = _settings(
        model,
        epsilon=epsilon,
        delta=delta,
        radius=radius,
        solver=solver,
        n_iter=n_iter,
        data_norm=data_norm,
        quantile=quantile,
        threshold=threshold,
    )
    if not 0 < density <= 1:
        raise ValueError(f"--density must be above 0 and at most 1, got {density}.")
    if plot is not None:
        _check_writable(plot)
    again = _planning(model, features, classes, settings)
    chosen = with_all(again(n, epsilon), density)
    if plot is not None:
        from dpcvx.report.plots import prediction_plot

        picture = prediction_plot(chosen, again)
        _write(plot, lambda path: path.write_bytes(picture))
    if as_json:
        _print_json({"plan": chosen.to_plain(), "explanation": chosen.explain()})
    else:
        from textwrap import fill

        typer.echo(f"{chosen}\n\n{fill(chosen.explain(), 100)}")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the plot and the report.")] = Path("demo_output"),
) -> None:
    """Fit private models on real data about people, at several budgets; write a plot and a report."""
    from dpcvx.demo import run

    _write(out, run)


app.command()(serve)
app.command()(ask)
app.add_typer(keys_app, name="keys")


app.add_typer(ledger_app, name="ledger")


def main() -> None:
    """Run the command line; every error a person can mend is one sentence and an exit code."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _say
            code = app(prog_name="dpcvx", standalone_mode=False)
    except Exception as error:
        message, code = _explained(error)
        if "--json" in sys.argv:
            _print_json({"error": {"message": message, "exit_code": code}})
        else:
            typer.echo(message if message.startswith("Usage:") else f"dpcvx: {message}", err=True)
    sys.exit(code if isinstance(code, int) else 0)


def _say(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning as one sentence, without the line of code that gave it."""
    typer.echo(f"dpcvx: {message}", err=True)


def _explained(error: Exception) -> tuple[str, int]:
    """Message and exit code of an error; text that could hold data is withheld."""
    from dpcvx.data.files import Unreadable
    from dpcvx.errors import DpcvxError, LedgerUnavailable

    if hasattr(error, "format_message"):  # of typer: the command line itself is wrong
        return str(error.format_message()), REFUSED
    if isinstance(error, Unreadable | LedgerUnavailable):
        return str(error), FILE_PROBLEM
    last = traceback.extract_tb(error.__traceback__)[-1]
    ours = Path(last.filename).is_relative_to(Path(__file__).parents[1])
    if ours and isinstance(error, ImportError):
        return str(error), FILE_PROBLEM
    if ours and isinstance(error, DpcvxError | ValueError | TypeError):
        return str(error), REFUSED
    where = f"{Path(last.filename).name}, line {last.lineno}"
    return (
        f"unexpected {type(error).__name__} in {where}; its text is withheld, as it could hold data.",
        UNEXPECTED,
    )


def _settings(model: Model, **given: Any) -> dict[str, Any]:
    """Parameters of the estimator: those that were given, after the checks that need no data."""
    from dpcvx.accounting import Budget

    delta = given["delta"]
    Budget(
        given["epsilon"], 0.0 if delta is None else delta
    )  # refuses what is no budget, before a file is read
    for name, owner in (("quantile", Model.QUANTILE), ("threshold", Model.HUBER)):
        if given[name] is not None and model is not owner:
            raise ValueError(f"--{name} belongs to --model {owner}, not to --model {model}.")
    return {name: value for name, value in given.items() if value is not None}


def _ledger(url: str | None, account: str | None) -> Any:
    """The ledger that pays: the user's own file where only an account is named."""
    if account is None:
        if url is not None:
            raise ValueError("--ledger needs --account, the name of the account that pays.")
        return None
    from dpcvx.ledger import Ledger

    return Ledger(url)


def _target_settings(model: Model, schema: Schema, path: Path) -> dict[str, Any]:
    if model in CLASSIFIERS:
        if schema.classes is None:
            raise ValueError(
                f'--model {model} needs the labels: add  [target] classes = ["no", "yes"]  to {path}.'
            )
        return {"classes": list(schema.classes)}
    if schema.target_bounds is None:
        raise ValueError(
            f"--model {model} needs the target's bounds: add  [target] bounds = [low, high]  to {path}."
        )
    return {"y_bounds": schema.target_bounds}


def _estimator(model: Model, **settings: Any) -> Any:
    import dpcvx

    return getattr(dpcvx, ESTIMATORS[model])(**settings)


def _planning(model: Model, features: int, classes: int, settings: dict[str, Any]) -> Planning:
    """Plans of a fit by the estimator's own rules; columns are taken as bounded numbers."""
    labels = {"classes": list(range(classes))} if model in CLASSIFIERS else {"y_bounds": (-1.0, 1.0)}

    def again(n: int, epsilon: float) -> Plan:
        if n < 1 or features < 1 or classes < 2:
            raise ValueError(
                "--n and --features must be at least 1, --classes at least 2; "
                f"got {n}, {features}, {classes}."
            )
        # A declared norm bounds each cell too; what the columns' own bounds add is not known here.
        bound = settings.get("data_norm", 1.0)
        estimator = _estimator(model, bounds=(-bound, bound), **labels, **{**settings, "epsilon": epsilon})
        planned: Plan = estimator.plan(n, features)
        return planned

    return again


def _load(path: Path) -> Any:
    from dpcvx.estimators import load

    return load(path)


def _check_writable(path: Path, *inputs: Path) -> None:
    """Refuse an output that cannot be written or would replace an input, before privacy is spent on it."""
    from dpcvx.data.files import Unreadable

    if path.resolve() in [source.resolve() for source in inputs]:
        raise ValueError(f"--out {path} would overwrite an input: choose another file.")
    folder = path.absolute().parent
    if path.is_dir() or not folder.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
        raise Unreadable(f"{path} cannot be written: choose a file in a folder where you may write.")


def _write(path: Path, write: Any) -> None:
    from dpcvx.data.files import Unreadable

    try:
        write(path)
    except OSError as error:
        raise Unreadable(f"{path} cannot be written: {error.strerror}.") from None


def _print_json(content: dict[str, Any]) -> None:
    typer.echo(json.dumps(content, indent=2, ensure_ascii=False))
