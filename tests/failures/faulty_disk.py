"""Compile and steer the failing disk of `disk.c`."""

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).with_name("disk.c")
MODES = {"off": 0, "count": 1, "full": 2, "half": 3, "kill": 4}


def can_build():
    return sys.platform == "linux" and shutil.which("cc") is not None


def build(folder):
    """Compile the library into a folder; return its path."""
    library = Path(folder) / "disk.so"
    flags = ["-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run(["cc", *flags], check=True)
    return library


def environment(library):
    """Variables of a process whose calls go through the library; compiled code has one thread, for forks."""
    return {**os.environ, "LD_PRELOAD": str(library), "NUMBA_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class Disk:
    """The library inside a process that was started with it."""

    def __init__(self):
        self._library = ctypes.CDLL(None)
        self._library.disk_count.restype = ctypes.c_long

    def set(self, folder, mode, at=0, log=-1):
        """Fail below a folder in a mode at the call of a number; `log`: open file for a log of all calls."""
        self._library.disk_set(f"{folder}/".encode(), MODES[mode], ctypes.c_long(at), log)

    @property
    def count(self):
        """Number of calls that changed a file since `set`."""
        return self._library.disk_count()
