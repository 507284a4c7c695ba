"""Run the tests that have randomness of their own again and again: without a fault all must pass.

    python tests/planted/clean_runs.py RANDOM [tests ...] [--long] [--runs 50] [--seconds 540]

The first run is of all quick tests, or with `--long` of all long ones. It writes to the file `RANDOM` which
of them draw from the cryptographic generator in their own process, and those of the same file that may use
what one of them has drawn; if the file exists, there is no such run. Here, unlike elsewhere, the generator
gets its keys from the operating system, and tests of Hypothesis get another seed in each run. All other tests
are seeded, and do the same each time.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

os.environ["DPCVX_RANDOMNESS"] = "varied"  # before the tests are imported

import pytest
from _pytest.runner import runtestprotocol
from _pytest.warnings import catch_warnings_for_item

sys.path.insert(0, str(Path(__file__).parent))
from live import use_this_tree
from run import QUICK
from sandbox import ROOT, wait

LONG = [*QUICK, "-m", "long and not slow"]  # the last -m counts
WAITING = 15.0  # seconds without work after which a test waits for a thread that the child does not have
KEPT = re.compile(r"\bcache\b|lru_cache|scope=")  # words of a file whose tests share what one of them drew


class Repeated:
    """A plugin of pytest that runs the chosen tests many times, each time in a child."""

    def __init__(self, place: Path, runs: range, seconds: float) -> None:
        self._place, self._runs, self._until = place, runs, time.monotonic() + seconds
        self.failed: Counter[str] = Counter()
        self.stuck: set[str] = set()  # functions with a test that waits for a thread
        self.drew: set[str] = set()
        self.done = self.tests = 0

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        for seed in self._runs:
            if time.monotonic() > self._until:
                break
            chosen = self._chosen(session.items)
            began, left = time.monotonic(), chosen
            while left:
                left = self._run([item for item in left if _function(item.nodeid) not in self.stuck], seed)
            if not self._place.exists():
                random = _with_their_files(self.drew, session.items)
                self._place.write_text(json.dumps(sorted(random), indent=1))
            self.done += 1
            self.tests = sum(_function(item.nodeid) not in self.stuck for item in chosen)
            words = f"run {seed}: {self.tests} tests, {time.monotonic() - began:.0f} s"
            print(f"{words}, {sum(self.failed.values())} failures so far", file=sys.__stderr__, flush=True)
        return True

    def _chosen(self, items: list[pytest.Item]) -> list[pytest.Item]:
        if not self._place.exists():
            return items
        random = set(json.loads(self._place.read_text()))
        return [item for item in items if item.nodeid in random or _is_property(item)]

    def _run(self, items: list[pytest.Item], seed: int) -> list[pytest.Item]:
        """Run tests in a child; return those that are left behind one that waits for a thread."""
        with tempfile.NamedTemporaryFile("r") as note:
            child = os.fork()
            if child == 0:
                try:
                    os.setpgid(0, 0)
                    _run_all(items, seed, Path(note.name))
                finally:
                    os._exit(0)
            status = wait(child, time.monotonic() + 3600, WAITING)
            lines = [json.loads(line) for line in note.read().splitlines()]
        self.failed.update(line["failed"] for line in lines if "failed" in line)
        self.drew |= {line["drew"] for line in lines if "drew" in line}
        begun = [line["begun"] for line in lines if "begun" in line]
        if status == 0 and len(begun) == len(items):
            return []
        if status is not None:
            self.failed[f"{begun[-1]} (the process ended)"] += 1
        self.stuck.add(_function(begun[-1]))
        return items[len(begun) :]


def _function(test: str) -> str:
    return test.split("[")[0]


def _is_property(item: pytest.Item) -> bool:
    return getattr(getattr(item, "obj", None), "is_hypothesis_test", False)


def _with_their_files(drew: set[str], items: list[pytest.Item]) -> set[str]:
    """Add the tests whose fixtures and memoised results another test of their file may have drawn."""
    files = {test.split("::")[0] for test in drew}
    shared = {file for file in files if KEPT.search((ROOT / file).read_text())}
    return drew | {item.nodeid for item in items if item.nodeid.split("::")[0] in shared}


def _count_draws() -> Iterator[int]:
    """Yield the number of draws from the cryptographic generator so far."""
    from dpcvx.noise import generators

    take, draws = generators._Stream.take, []

    def counted(self, n):
        draws.append(n)
        return take(self, n)

    generators._Stream.take = counted
    while True:
        yield len(draws)


def _run_all(items: list[pytest.Item], seed: int, note: Path) -> None:
    import hypothesis.core

    hypothesis.core.global_force_seed = seed
    draws = _count_draws()
    with note.open("w") as out:
        for item, following in zip(items, [*items[1:], None], strict=True):
            print(json.dumps({"begun": item.nodeid}), file=out, flush=True)
            before = next(draws)
            with catch_warnings_for_item(item.config, item.ihook, when="runtest", item=item):
                reports = runtestprotocol(item, log=False, nextitem=following)
            if next(draws) > before:
                print(json.dumps({"drew": item.nodeid}), file=out, flush=True)
            for report in reports:
                if report.failed:
                    words = str(report.longrepr)[-1000:]
                    print(json.dumps({"failed": item.nodeid}), file=out, flush=True)
                    print(f"failed: {item.nodeid}\n{words}", file=sys.__stderr__, flush=True)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("random", type=Path)
    options.add_argument("tests", nargs="*", default=["tests"])
    options.add_argument("--long", action="store_true")
    options.add_argument("--runs", type=int, default=50)
    options.add_argument("--first", type=int, default=0)
    options.add_argument("--seconds", type=float, default=1e9)
    given = options.parse_args()
    use_this_tree()
    repeated = Repeated(given.random, range(given.first, given.first + given.runs), given.seconds)
    chosen = LONG if given.long else QUICK
    pytest.main([*chosen, *given.tests], plugins=[repeated])
    left_out = ", ".join(sorted(repeated.stuck)) or "none"
    print(f"{repeated.done} runs of {repeated.tests} tests. Left out: {left_out}")
    for name, count in repeated.failed.most_common():
        print(f"failed {count} times: {name}")
    return bool(repeated.failed)


if __name__ == "__main__":
    sys.exit(main())
