"""``dpcvx show``: the table of a model file's coefficients."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpcvx.cli.output import check_writable, write
from dpcvx.cli.predict import open_model
from dpcvx.errors import WrongValue

if TYPE_CHECKING:
    from dpcvx.estimators.tables import Printable

__all__ = ["show"]


class ShowFormat(StrEnum):
    """Formats of ``--format``."""

    text = "text"
    html = "html"
    markdown = "markdown"
    latex = "latex"
    json = "json"
    csv = "csv"


class Adjustment(StrEnum):
    """Adjustments for several tests."""

    holm = "holm"


def show(
    model: Annotated[Path, typer.Argument(help="Model file written by dpcvx fit.")],
    form: Annotated[ShowFormat, typer.Option("--format", help="Format to write.")] = ShowFormat.text,
    out: Annotated[Path | None, typer.Option(help="File to write; standard output by default.")] = None,
    level: Annotated[
        float, typer.Option(help="Probability with which an interval covers its coefficient.")
    ] = 0.95,
    adjust: Annotated[
        Adjustment | None, typer.Option(help="Add p-values adjusted for the number of coefficients.")
    ] = None,
    t_test: Annotated[
        str | None,
        typer.Option(help="Test linear combinations one by one, such as 'age = 0, age - hours = 0.5'."),
    ] = None,
    wald_test: Annotated[
        str | None,
        typer.Option(help="Test hypotheses together, or a column with all of its levels, such as region."),
    ] = None,
    shapes: Annotated[
        Path | None,
        typer.Option(help="CSV or JSON file to write: knots or levels of an additive model, and values."),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(help="PNG, SVG or PDF file to write: a panel for each shape of an additive model."),
    ] = None,
) -> None:
    """Show the coefficients of a model, with standard errors and tests where they were released."""
    for path in (out, shapes, plot):
        if path is not None:
            check_writable(path, model)
    if t_test is not None and wald_test is not None:
        raise WrongValue("Give --t-test or --wald-test, not both.")
    estimator = open_model(model, None)
    if (shapes or plot) and not hasattr(estimator, "shapes_"):
        raise WrongValue(
            "--shapes and --plot are for additive models; this one has coefficients: --format csv."
        )
    chosen = None if adjust is None else str(adjust)
    result: Printable
    if t_test is not None:
        result = estimator.t_test(t_test, level=level, adjust=chosen)
    elif wald_test is not None:
        result = estimator.wald_test(wald_test)
    else:
        result = estimator.summary(level, adjust=chosen)
    text = _page(result) if form == "html" else result.render(str(form))
    if out is None:
        typer.echo(text, nl=False)
    else:
        write(out, lambda path: path.write_text(text, encoding="utf-8"))
    if shapes is not None:
        write(shapes, estimator.shapes_.save)
    if plot is not None:
        write(plot, estimator.plot)
    for path in (shapes, plot):
        if path is not None:
            typer.echo(f"Written: {path}", err=True)


def _page(result: Printable) -> str:
    """Return a self-contained HTML page."""
    from dpcvx.report.html import Section, html_report

    table = result.table()
    cells, notes = table.short_cells()
    facts = [Section("Model", rows=[("", ""), *table.facts])] if table.facts else []
    sections = [*facts, Section("Coefficients", rows=cells), Section("Notes", "\n\n".join(notes))]
    return html_report(table.title, "Computed from released numbers alone.", sections)
