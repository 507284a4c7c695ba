"""Record which quick test runs which lines of the rooms that are mutated, and how long it takes.

    python tests/mutation/record.py MAP/part.json [tests ...]

Tests that fail are left out. Memoised results are
forgotten before each file of tests, so that every file is seen to run what it uses.
"""

from __future__ import annotations

import functools
import gc
import json
import sys
import time
from pathlib import Path

import coverage
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from mutants import ROOMS, SOURCE

QUICK = ["-q", "-p", "no:cacheprovider", "-m", "not slow and not long", "--timeout", "120"]


def forget_results() -> None:
    """Clear memoised results of dpcvx."""
    for thing in gc.get_objects():
        # `type`: some objects here are weak references that `isinstance` would follow
        if type(thing) is functools._lru_cache_wrapper and str(thing.__module__).startswith("dpcvx"):
            thing.cache_clear()


class Recorder:
    """A plugin of pytest."""

    def __init__(self) -> None:
        include = [str(SOURCE / pattern) for patterns in ROOMS.values() for pattern in patterns]
        self._coverage = coverage.Coverage(data_file=None, include=include, config_file=False)
        self._failed: set[str] = set()
        self._file = ""
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtestloop(self, session: pytest.Session):
        self._coverage.start()
        yield
        self._coverage.stop()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item):
        file = item.nodeid.split("::")[0]
        if file != self._file:
            forget_results()
            self._file = file
        self._coverage.switch_context(item.nodeid)
        began = time.perf_counter()
        yield
        self.seconds[item.nodeid] = round(time.perf_counter() - began, 3)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed or report.skipped:
            self._failed.add(report.nodeid)

    def lines(self) -> dict[str, dict[int, list[str]]]:
        """Return the tests of every line of every file."""
        data = self._coverage.get_data()
        found = {}
        for file in data.measured_files():
            name = Path(file).relative_to(SOURCE).as_posix()
            of_lines = data.contexts_by_lineno(file)
            found[name] = {
                line: [test for test in tests if test and test not in self._failed]
                for line, tests in sorted(of_lines.items())
            }
        return found


def main() -> int:
    place, *tests = sys.argv[1:]
    recorder = Recorder()
    pytest.main([*QUICK, *(tests or ["tests"])], plugins=[recorder])
    Path(place).parent.mkdir(parents=True, exist_ok=True)
    Path(place).write_text(json.dumps({"seconds": recorder.seconds, "lines": recorder.lines()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
