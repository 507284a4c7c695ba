"""``dpcvx plan``: what a fit would do, cost and give, without data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpcvx.cli.fit import choose_target, target_parameters, with_labels
from dpcvx.cli.options import (
    AsJson,
    has_own_bounds,
    make_estimator,
    needs_bounds,
    needs_classes,
    read_numbers,
    show_plan,
)
from dpcvx.cli.output import check_writable, print_json, write
from dpcvx.errors import WrongValue
from dpcvx.words import quantity

if TYPE_CHECKING:
    from dpcvx.estimators.power import PowerForecast
    from dpcvx.plans import Plan

__all__ = ["plan"]

OTHER_BOUND = 2.0  # of columns in their own units


def plan(
    n: Annotated[int, typer.Option("--n", help="Number of records, or of persons where ids are declared.")],
    model: str,
    given: dict[str, Any],
    features: Annotated[
        int | None,
        typer.Option(
            help="Number of features, without the intercept, all of them numbers in units of their own (for "
            "columns of 0 and 1 add --maps none); or give --bounds."
        ),
    ] = None,
    bounds: Annotated[
        Path | None, typer.Option(help="Schema file, TOML: columns, units and target as in dpcvx fit.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Column to predict. Default: the one that the schema file names.")
    ] = None,
    formula: Annotated[
        str | None, typer.Option(help="Model formula, in place of --target; as in dpcvx fit.")
    ] = None,
    deviations: Annotated[
        str,
        typer.Option(
            help="With --uncertainty: standard deviations that are assumed, such as age=12,hours=8."
        ),
    ] = "",
    shares: Annotated[
        str,
        typer.Option(
            help="With --uncertainty: shares that are assumed, of ones in columns of 0 and 1, or of levels, "
            "such as urban=0.4,region:west=0.1."
        ),
    ] = "",
    correlation: Annotated[
        float | None, typer.Option(help="With --uncertainty: assumed correlation of neighbouring columns.")
    ] = None,
    class_share: Annotated[
        float | None,
        typer.Option(
            help="With --uncertainty: assumed share of the second class, of events in a period, or of "
            "answers above the middle level."
        ),
    ] = None,
    target_deviation: Annotated[
        float | None, typer.Option(help="With --uncertainty: assumed standard deviation of the target.")
    ] = None,
    mean_weight: Annotated[
        float | None,
        typer.Option(
            help="With --uncertainty: assumed mean of survey weights, in the units of their bounds."
        ),
    ] = None,
    width: Annotated[
        str,
        typer.Option(
            help="With --uncertainty: wanted width of an interval, such as age=0.5; shows the number of "
            "records, or the epsilon, that it needs."
        ),
    ] = "",
    classes: Annotated[
        str,
        typer.Option(
            help="Labels of the target, separated by commas, or their number. Default: the schema file's "
            "labels; without one 2, or 3 ordered levels."
        ),
    ] = "",
    density: Annotated[
        float, typer.Option(help="Share of cells that are not 0, if public and records are compressed.")
    ] = 1.0,
    plot: Annotated[
        Path | None,
        typer.Option(
            help="PNG file to draw predictions in, by epsilon and by number of records; with --uncertainty "
            "expected standard errors."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a fit would do, cost and give, beside every other solver. No data are needed."""
    from dpcvx.planning.candidates import list_all

    labels = _labels(classes)
    if n < 1 or (features is not None and features < 1):
        raise WrongValue(f"--n and --features must be at least 1; got {n}, {features}.")
    if (features is None) == (bounds is None):
        raise WrongValue("Give --features, the number of features, or --bounds, the file that declares them.")
    if not 0 < density <= 1:
        raise WrongValue(f"--density must be above 0 and at most 1, got {density}.")
    assumed: dict[str, Any] = {
        "deviations": read_numbers(deviations, "--deviations") if deviations else None,
        "shares": _shares(shares) if shares else None,
        "correlation": correlation,
        "share": class_share,
        "target_deviation": target_deviation,
        "mean_weight": mean_weight,
    }
    assumed = {name: value for name, value in assumed.items() if value is not None}
    if (assumed or width) and not given.get("uncertainty"):
        raise WrongValue(
            "--deviations, --shares, --correlation, --class-share, --target-deviation, --mean-weight and "
            "--width are about standard errors: give --uncertainty 0.2 too."
        )
    if plot is not None:
        check_writable(plot)
    if formula is not None and (bounds is None or target is not None):
        raise WrongValue("--formula needs --bounds, the file that declares its columns, and no --target.")
    facts, columns = _read_declarations(model, given, features, bounds, target, labels, formula)

    def again(n: int, epsilon: float, known: dict[str, Any] | None = None) -> Plan:
        estimator = make_estimator(model, given | facts | {"epsilon": epsilon})
        planned: Plan = estimator.plan(n, columns, assumed=known)
        return planned

    chosen = list_all(again(n, given["epsilon"], assumed), density)
    forecast = None
    if given.get("uncertainty"):
        forecast = make_estimator(model, given | facts).power(n, columns, **assumed)
    needed = [] if forecast is None or not width else _needed(forecast, read_numbers(width, "--width"))
    if plot is not None:
        from dpcvx.report.plots import precision_plot, prediction_plot

        picture = prediction_plot(chosen, again) if forecast is None else precision_plot(forecast)
        write(plot, lambda path: path.write_bytes(picture))
    if as_json:
        content = {"plan": chosen.to_plain(), "explanation": chosen.explain()}
        if forecast is not None:
            content["precision"] = forecast.to_dict() | {"needed": needed}
        print_json(content)
    else:
        from textwrap import fill

        from dpcvx.planning.outlook import lost_share

        explanation = filter(None, [*chosen.paragraphs, lost_share(chosen)])
        typer.echo("\n\n".join([show_plan(chosen), *(fill(show_plan(each), 100) for each in explanation)]))
        if forecast is not None:
            typer.echo("\n".join(["", str(forecast), *map(_needed_words, needed)]))


def _read_declarations(
    model: str,
    given: dict[str, Any],
    features: int | None,
    bounds: Path | None,
    target: str | None,
    labels: list[str],
    formula: str | None,
) -> tuple[dict[str, Any], Any]:
    """Return the parameters of an estimator that say what the data are, and the columns of its plan."""
    if bounds is None:
        # A declared norm bounds each cell too; what the columns' own bounds add is not known here. A plan
        # does not depend on bounds, except that a fit asks for histograms of columns with other bounds than
        # (-1, 1) and (0, 1), as most have, and that standard errors are in units of the bounds.
        bound = given.get("data_norm", 1.0 if given.get("uncertainty") else OTHER_BOUND)
        declared: dict[str, Any] = {"bounds": (-bound, bound), "y_bounds": (-1.0, 1.0)}
        if has_own_bounds(model) or not needs_bounds(model):
            declared = {"bounds": (-bound, bound)}
        if needs_classes(model):
            default = range(3 if model == "ordinal" else 2)
            declared = {"bounds": (-bound, bound), "classes": labels or list(default)}
        return declared, features
    from dpcvx.data.table_schema import TableSchema

    schema = TableSchema.from_toml(bounds)
    schema.require_confirmed()
    schema = schema if formula is None else schema.with_formula(formula)
    target = choose_target(schema, target)
    schema = with_labels(schema, labels, model)
    person = given.get("person", schema.person)
    roles = (person, schema.weight, given.get("exposure"), given.get("event"))
    others = [name for name in schema.columns if name not in roles]
    if schema.default is not None:
        named = [name for name in others if name != target and schema.columns[name].variables(name)]
        typer.echo(
            f"dpcvx: {bounds} has a default, so that every column of the table that it does not name is a "
            f"feature of the fit. A plan does not see the table, and counts {quantity(len(named), 'column')} "
            "that the file names. Name all columns in the file to get the plan of the fit.",
            err=True,
        )
    found = schema.for_table(others, target)
    facts = target_parameters(model, schema, target, bounds) | {"schema": found}
    if person is not None:
        facts["person"] = person
    if schema.weight is not None:
        facts["weight_bounds"] = schema.columns[schema.weight].bounds
    if not schema.intercept:
        facts["fit_intercept"] = False
    if schema.data_norm is not None:
        facts["data_norm"] = schema.data_norm
    return facts, list(found.columns)


def _labels(text: str) -> list[str]:
    """Read the labels of a target, or their number; empty if none are given."""
    labels = [label.strip() for label in text.split(",") if label.strip()]
    if len(labels) == 1 and labels[0].isdecimal():
        labels = [str(place) for place in range(int(labels[0]))]
    if text and len(labels) < 2:
        raise WrongValue(
            f"--classes needs two labels or more, such as no,yes, or their number; got {text!r}."
        )
    return labels


def _shares(text: str) -> dict[str, Any]:
    """Read pairs such as urban=0.4,region:west=0.1."""
    found: dict[str, Any] = {}
    for name, value in read_numbers(text, "--shares").items():
        column, colon, level = name.partition(":")
        if not colon:
            found[column] = value
        elif isinstance(found.setdefault(column, {}), dict):
            found[column][level] = value
        else:
            raise WrongValue(
                f"--shares has a share of {column} and shares of its levels, got {text!r}. Give one of them."
            )
    return found


def _needed(forecast: PowerForecast, widths: dict[str, float]) -> list[dict[str, Any]]:
    """Return what each wanted width needs."""
    found = []
    for name, width in widths.items():
        records, epsilon = forecast.needed(width, name)
        found.append({"coefficient": name, "width": width, "n": records, "epsilon": epsilon})
    return found


def _needed_words(each: dict[str, Any]) -> str:
    """Say what a wanted width needs."""
    ways = []
    if each["n"] is not None:
        ways.append(f"about {each['n']:,} records at this epsilon")
    if each["epsilon"] is not None:
        ways.append(f"about epsilon {each['epsilon']:g} with these records")
    enough = " or ".join(ways) or "more than any reasonable number of records or epsilon"
    return f"An interval of {each['coefficient']} that is {each['width']:g} wide needs {enough}."
