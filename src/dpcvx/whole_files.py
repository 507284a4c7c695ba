"""Atomic replacement of files: a full disk, a kill or a power cut leaves either the old or the new file."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

__all__ = ["replace_file", "sync_folder"]

ALONE = 0o600  # readable and writable by the owner alone


def replace_file(path: str | Path, write: Callable[[Path], object]) -> None:
    """Write a temporary file in the same folder, and move it to the path once it is on the disk.

    The temporary file is readable by its owner alone. The finished one has the mode of the file that it
    replaces, or that of any new file of this process.

    `write`: called with the path to write to, which ends in the same suffix.
    """
    path = Path(os.path.realpath(path))  # a link stays, and its file is replaced
    if path.exists() and not (path.is_file() and os.access(path.parent, os.W_OK)):
        write(path)  # a device such as /dev/stdout, or a folder in which no file can be created
        return
    part = path.with_name(f"{path.stem}.part{path.suffix}")
    try:
        part.unlink(missing_ok=True)  # of a process that was killed
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, ALONE))
        write(part)
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        part.chmod(stat.S_IMODE(path.stat().st_mode) if path.exists() else _mode_of_new_files())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def _mode_of_new_files() -> int:
    """Return 0666 without the bits of the process's mask, which can only be read by setting it."""
    mask = os.umask(0o777 & ~ALONE)  # a file that another thread creates in between is private
    os.umask(mask)
    return 0o666 & ~mask


def sync_folder(folder: Path) -> None:
    """Flush a folder's list of file names to the disk."""
    if os.name != "posix":
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
