"""Files and text that commands write."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from dpcvx.errors import Unreadable, WrongValue

__all__ = ["check_writable", "print_json", "write"]


def check_writable(path: Path, *inputs: Path) -> None:
    """Refuse an output that cannot be written or would replace an input, before privacy is spent on it."""
    if path.resolve() in [source.resolve() for source in inputs]:
        raise WrongValue(f"--out {path} would overwrite an input: choose another file.")
    folder = path.absolute().parent
    if path.is_dir() or not folder.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
        raise Unreadable(f"{path} cannot be written: choose a file in a folder where you may write.")


def write(path: Path, write_to: Callable[[Path], Any]) -> None:
    """Write a file or folder, and say in one sentence where that fails."""
    try:
        write_to(path)
    except OSError as error:
        raise Unreadable(f"{path} cannot be written: {error.strerror}.") from None


def print_json(content: dict[str, Any]) -> None:
    """Print one JSON object on standard output."""
    typer.echo(json.dumps(content, indent=2, ensure_ascii=False))
