"""``dpcvx export``: a model file as text, as the JSON of its formula, or as ONNX."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dpcvx.cli.options import Extrapolation
from dpcvx.cli.output import check_writable, write
from dpcvx.cli.predict import open_model
from dpcvx.errors import WrongValue

__all__ = ["export"]


class ExportFormat(StrEnum):
    """Formats of ``--to``."""

    text = "text"
    json = "json"
    onnx = "onnx"


def export(
    model: Annotated[Path, typer.Argument(help="Model file written by dpcvx fit.")],
    to: Annotated[ExportFormat, typer.Option(help="Format to write.")] = ExportFormat.text,
    out: Annotated[Path | None, typer.Option(help="File to write; standard output by default.")] = None,
    extrapolation: Extrapolation = None,
) -> None:
    """Write the formula of a model: what predict computes, step by step."""
    if out is not None:
        check_writable(out, model)
    elif to == "onnx":
        raise WrongValue("--to onnx writes bytes: name a file by --out.")
    estimator = open_model(model, extrapolation)
    if to == "onnx":
        content = estimator.to_onnx().SerializeToString()
    else:
        formula = estimator.formula_
        content = f"{formula if to == 'text' else formula.to_json()}\n".encode()
    if out is None:
        typer.echo(content.decode(), nl=False)
    else:
        write(out, lambda path: path.write_bytes(content))
