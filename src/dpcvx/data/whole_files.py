"""Atomic replacement of files: a full disk, a kill or a power cut leaves either the old or the new file."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

__all__ = ["replace_file", "sync_folder"]


def replace_file(path: str | Path, write: Callable[[Path], object]) -> None:
    """Write a temporary file in the same folder, and move it to the path once it is on the disk.

    `write`: called with the path to write to, which ends in the same suffix.
    """
    path = Path(os.path.realpath(path))  # a link stays, and its file is replaced
    if path.exists() and not (path.is_file() and os.access(path.parent, os.W_OK)):
        write(path)  # a device such as /dev/stdout, or a folder in which no file can be created
        return
    part = path.with_name(f"{path.stem}.part{path.suffix}")
    try:
        write(part)
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        if path.exists():
            shutil.copymode(path, part)
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Flush a folder's list of file names to the disk."""
    if os.name != "posix":
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
