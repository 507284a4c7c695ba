"""``dpcvx plan``: what a fit would do, cost and give, without data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpcvx.cli.options import AsJson, make_estimator, needs_classes
from dpcvx.cli.output import check_writable, print_json, write
from dpcvx.errors import WrongValue

if TYPE_CHECKING:
    from dpcvx.plans import Plan

__all__ = ["plan"]


def plan(
    n: Annotated[int, typer.Option("--n", help="Number of records.")],
    features: Annotated[int, typer.Option(help="Number of features, without the intercept.")],
    model: str,
    given: dict[str, Any],
    classes: Annotated[int, typer.Option(help="Number of classes, for logistic and svc.")] = 2,
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
    from dpcvx.planning.candidates import list_all

    if n < 1 or features < 1 or classes < 2:
        raise WrongValue(
            f"--n and --features must be at least 1, --classes at least 2; got {n}, {features}, {classes}."
        )
    if not 0 < density <= 1:
        raise WrongValue(f"--density must be above 0 and at most 1, got {density}.")
    if plot is not None:
        check_writable(plot)
    # A declared norm bounds each cell too; what the columns' own bounds add is not known here.
    bound = given.get("data_norm", 1.0)
    target: dict[str, Any] = {"y_bounds": (-1.0, 1.0)}
    if needs_classes(model):
        target = {"classes": list(range(classes))}

    def again(n: int, epsilon: float) -> Plan:
        parameters = given | target | {"bounds": (-bound, bound), "epsilon": epsilon}
        planned: Plan = make_estimator(model, parameters).plan(n, features)
        return planned

    chosen = list_all(again(n, given["epsilon"]), density)
    if plot is not None:
        from dpcvx.report.plots import prediction_plot

        picture = prediction_plot(chosen, again)
        write(plot, lambda path: path.write_bytes(picture))
    if as_json:
        print_json({"plan": chosen.to_plain(), "explanation": chosen.explain()})
    else:
        from textwrap import fill

        typer.echo(f"{chosen}\n\n{fill(chosen.explain(), 100)}")
