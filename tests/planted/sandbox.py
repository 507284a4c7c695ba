"""Run tests in a copy of the tree that has one change, fast: a process that has imported the libraries forks.

`Sandbox.run` applies a change to the copy, forks, and lets the child import dpcvx from the copy and run
pytest; the parent puts the file back. Importing NumPy, SciPy, numba and scikit-learn takes longer than most
tests, so the parent does it once. A changed file gets a new time stamp, so that no compiled form of it is
used, and changed kernels are compiled in a cache of their own.
"""

from __future__ import annotations

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
KERNELS = ("numba", "exponential_kernels", "gaussian_kernels", "kernels")  # words of files that are compiled
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
        cache = tempfile.mkdtemp(prefix="numba_") if any(w in text for w in KERNELS[:1]) else None
        try:
            if text != before:
                place.write_text(text)
                self._stamp += 10
                os.utime(place, (self._stamp, self._stamp))
            return self._fork(tests, timeout, cache if text != before else None)
        finally:
            place.write_text(before)
            os.utime(place, ns=(times.st_atime_ns, times.st_mtime_ns))
            if cache is not None:
                shutil.rmtree(cache, ignore_errors=True)

    def _fork(self, tests: list[str], timeout: float, cache: str | None) -> Outcome:
        began = time.monotonic()
        note = self.root / "note"
        note.unlink(missing_ok=True)
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            status = 1
            try:
                status = _run_tests(self.root, tests, note, cache)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(int(status))
        status = self._wait(child, began + timeout)
        by = note.read_text() if note.exists() else ""
        if status is None:
            return Outcome(True, by or "timeout", time.monotonic() - began)
        code = os.waitstatus_to_exitcode(status)
        if code == 0:
            return Outcome(False, "", time.monotonic() - began)
        if code == 5:
            raise RuntimeError(f"No test was collected from {tests}.")
        return Outcome(True, by or f"pytest ended with {code}", time.monotonic() - began)

    def _wait(self, child: int, deadline: float) -> int | None:
        while time.monotonic() < deadline:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return status
            time.sleep(0.02)
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return None


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


def _run_tests(root: Path, tests: list[str], note: Path, cache: str | None) -> int:
    import pytest

    log = os.open(root / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.path[:] = [str(root / "src"), *(p for p in sys.path if not p.endswith(("/src", "/planted")))]
    os.environ["PYTHONPATH"] = str(root / "src")
    if cache is not None:
        import numba

        numba.config.CACHE_DIR = cache
        os.environ["NUMBA_CACHE_DIR"] = cache
    sys.dont_write_bytecode = (root / "warm").exists()
    os.chdir(root)
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-m", "not slow and not long"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # libraries are imported already
    base = ["--basetemp", str(root / "base"), "--timeout", "120"]
    return int(pytest.main([*options, *base, *tests], plugins=[_FirstFailure(note)]))
