"""Run tests in a copy of the tree that has one change, fast: a process that has imported the libraries forks.

`Sandbox.run` applies a change to the copy, forks, and lets the child import dpcvx from the copy and run
pytest; the parent puts the file back. Importing NumPy, SciPy, numba and scikit-learn takes longer than most
tests, so the parent does it once. A changed file gets a new time stamp, so that no compiled form of it is
used; compiled forms of kernels that call it are put aside, and all of them put back at the end.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ("import njit", "import compiled", "\nimport numba\n")  # words of files that are compiled
WITH_LIBRARIES = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # they are imported already
LIBRARIES = [
    "numpy",
    "scipy.special",
    "scipy.optimize",
    "scipy.stats",
    "scipy.sparse",
    "scipy.linalg",
    "numba",
    "pandas",
    "polars",
    "pyarrow",
    "narwhals",
    "sklearn.base",
    "sklearn.linear_model",
    "sklearn.model_selection",
    "sklearn.pipeline",
    "sklearn.utils.estimator_checks",
    "hypothesis",
    "dp_accounting.pld.privacy_loss_distribution",
    "cryptography.hazmat.primitives.ciphers",
    "sqlite3",
    "sqlalchemy",
    "fastapi",
    "starlette.testclient",
    "httpx",
    "argon2",
    "typer.testing",
    "joblib",
    "mpmath",
]


@dataclass(frozen=True)
class Outcome:
    """What the tests said: the first failing test, an error of collection, a timeout, or nothing."""

    caught: bool
    by: str  # identifier of the first test that failed; "" if none did
    seconds: float


class Sandbox:
    """A copy of the tree, in a temporary folder, in which one file at a time is changed."""

    def __init__(self) -> None:
        for name in LIBRARIES:
            try:
                __import__(name)
            except ImportError:
                continue
        import numba

        numba.njit(lambda x: x + 1)(1)  # what the compiler reads at its first use
        self.root = Path(tempfile.mkdtemp(prefix="planted_"))
        for part in ("src", "tests", "pyproject.toml", "docs", "README.md", "CONTRIBUTING.md", "examples"):
            place = ROOT / part
            if place.is_dir():
                shutil.copytree(place, self.root / part, ignore=shutil.ignore_patterns("_build", "*.png"))
            else:
                shutil.copy2(place, self.root / part)
        self._stamp = time.time() + 1000

    def close(self) -> None:
        """Delete the copy."""
        shutil.rmtree(self.root, ignore_errors=True)

    def run(self, file: str, text: str, tests: list[str], timeout: float) -> Outcome:
        """Run tests with ``text`` in place of a file's text, until one fails."""
        place = self.root / file
        before, times = place.read_text(), place.stat()
        aside = self._put_aside(place) if any(word in text for word in KERNELS) else {}
        try:
            if text != before:
                place.write_text(text)
                self._stamp += 10
                os.utime(place, (self._stamp, self._stamp))
            return self._fork(tests, timeout)
        finally:
            place.write_text(before)
            os.utime(place, ns=(times.st_atime_ns, times.st_mtime_ns))
            for folder, kept in aside.items():
                shutil.rmtree(folder)
                kept.rename(folder)

    def _put_aside(self, place: Path) -> dict[Path, Path]:
        """Keep the compiled forms of kernels, and delete those of the file and of kernels that name it."""
        kernels = [f for f in (self.root / "src").rglob("*.py") if any(w in f.read_text() for w in KERNELS)]
        aside = {}
        for folder in {kernel.parent / "__pycache__" for kernel in kernels}:
            if folder.exists():
                aside[folder] = folder.with_name("kept")
                shutil.copytree(folder, aside[folder])
        named = {place.stem}
        for _ in kernels:
            named |= {f.stem for f in kernels if any(f".{name} import" in f.read_text() for name in named)}
        for kernel in kernels:
            if kernel.stem in named:
                for compiled in (kernel.parent / "__pycache__").glob(f"{kernel.stem}.*.nb?"):
                    compiled.unlink()
        return aside

    def _fork(self, tests: list[str], timeout: float) -> Outcome:
        began = time.monotonic()
        note = self.root / "note"
        note.unlink(missing_ok=True)
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            status = 1
            try:
                status = _run_tests(self.root, tests, note)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(int(status))
        status = wait(child, began + timeout)
        by = note.read_text() if note.exists() else ""
        if status is None:
            return Outcome(True, by or "timeout", time.monotonic() - began)
        code = os.waitstatus_to_exitcode(status)
        if code == 0:
            return Outcome(False, "", time.monotonic() - began)
        if code == 5:
            raise RuntimeError(f"No test was collected from {tests}.")
        return Outcome(True, by or f"pytest ended with {code}", time.monotonic() - began)


def wait(child: int, deadline: float, idle: float = math.inf) -> int | None:
    """Wait for a child process; end its group, and return nothing, at the deadline.

    `idle`: seconds of sleep without any work after which it is ended too.
    """
    worked, since = "", time.monotonic()
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        if idle < math.inf and (now := _work(child)) != worked:
            worked, since = now, time.monotonic()
        if time.monotonic() - since > idle:
            break
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _work(process: int) -> str:
    """Processor time of a process, in words; something new each time if it waits for a processor."""
    state, *rest = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return " ".join(rest[10:12]) if state == "S" else str(time.monotonic())


class _FirstFailure:
    """A plugin of pytest that writes down the first test that fails."""

    def __init__(self, note: Path) -> None:
        self._note = note

    def _write(self, name: str) -> None:
        if not self._note.exists():
            self._note.write_text(name)

    def pytest_runtest_logreport(self, report) -> None:
        if report.failed:
            self._write(report.nodeid)

    def pytest_collectreport(self, report) -> None:
        if report.failed:
            self._write(f"{report.nodeid} (import)")


def _run_tests(root: Path, tests: list[str], note: Path) -> int:
    import pytest

    log = os.open(root / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.path[:] = [str(root / "src"), *(p for p in sys.path if not p.endswith(("/src", "/planted")))]
    os.environ["PYTHONPATH"] = str(root / "src")
    os.chdir(root)
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-m", "not slow and not long"]
    options += WITH_LIBRARIES
    base = ["--basetemp", str(root / "base"), "--timeout", "120"]
    return int(pytest.main([*options, *base, *tests], plugins=[_FirstFailure(note)]))
