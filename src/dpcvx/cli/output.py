"""Files and text that commands write."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from dpcvx.errors import DpcvxError, Unreadable, WrongValue
from dpcvx.whole_files import replace_file

__all__ = ["Stopped", "check_new", "check_writable", "print_json", "write", "write_folder"]


class Stopped(DpcvxError):  # noqa: N818
    """The user stopped a command; the message says what was charged and what was kept."""


def check_writable(path: Path, *inputs: Path) -> None:
    """Refuse an output that cannot be written or would replace an input, before privacy is spent on it."""
    if path.resolve() in [source.resolve() for source in inputs]:
        raise WrongValue(f"--out {path} would overwrite an input: choose another file.")
    folder = path.absolute().parent
    if path.is_dir() or not folder.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
        raise Unreadable(f"{path} cannot be written: choose a file in a folder where you may write.")


def check_new(path: Path, *, force: bool) -> None:
    """Refuse to replace a model, which is paid for once, unless that is asked for."""
    if path.is_file() and not force:
        raise WrongValue(
            f"{path} exists already, and a model is paid for once: choose another --out, or add --force to "
            "replace it."
        )


def write(path: Path, write_to: Callable[[Path], Any]) -> None:
    """Write a file completely or not at all; report a failure in one sentence."""
    write_folder(path, lambda path: replace_file(path, write_to))


def write_folder(path: Path, write_to: Callable[[Path], Any]) -> None:
    """Write the files of a folder; report a failure in one sentence."""
    try:
        write_to(path)
    except OSError as error:
        raise Unreadable(f"{path} cannot be written: {error.strerror or type(error).__name__}.") from None


def print_json(content: dict[str, Any]) -> None:
    """Print one JSON object on standard output."""
    typer.echo(json.dumps(content, indent=2, ensure_ascii=False))
