"""``dpcvx verify``: recompute the guarantee of a privacy statement, independently of the accountant."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from dpcvx.cli.output import print_json
from dpcvx.errors import Unreadable, WrongValue

__all__ = ["verify"]

DOES_NOT_FOLLOW = 4  # exit code


def verify(
    files: Annotated[
        list[Path],
        typer.Argument(help="Model files, or JSON of a statement (fit --json, score --json, /statement)."),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check that the guarantee of a statement follows from the noise that it names.

    Exit code 4 if one does not.
    """
    from dataclasses import asdict

    from dpcvx.checker import verify_statement

    verdicts = {str(path): verify_statement(_statement(path)) for path in files}
    if as_json:
        print_json({name: {"holds": found.holds, **asdict(found)} for name, found in verdicts.items()})
    else:
        typer.echo("\n".join(f"{name}: {found}" for name, found in verdicts.items()))
    if not all(found.holds for found in verdicts.values()):
        raise typer.Exit(DOES_NOT_FOLLOW)


def _statement(path: Path) -> Mapping[str, Any]:
    """The statement of a file: the file itself, or its entry of that name."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError):
        raise WrongValue(f"{path} is not JSON: give a model file, or a statement as JSON.") from None
    for name in ("privacy_statement", "statement"):
        if isinstance(content, dict) and isinstance(content.get(name), dict):
            content = content[name]
    if not isinstance(content, dict):
        raise WrongValue(f"{path} has no privacy statement: give a model file, or a statement as JSON.")
    return content
