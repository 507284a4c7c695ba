"""Run the quick tests that have randomness of their own again and again: without a fault all must pass.

    python tests/planted/clean_runs.py MAP [tests ...] [--runs 50] [--seconds 540]

`MAP`: folder that tests/mutation/record.py wrote; it knows which tests draw from the cryptographic generator.
Tests of Hypothesis get another seed in each run. All other quick tests are seeded, and do the same each time.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

os.environ["DPCVX_HYPOTHESIS"] = "varied"  # before the tests are imported

import pytest
from _pytest.runner import runtestprotocol
from _pytest.warnings import catch_warnings_for_item

sys.path.insert(0, str(Path(__file__).parent))
from live import IDLE, use_this_tree
from run import QUICK
from sandbox import ROOT, wait

DRAWN = "noise/generators.py"
TAKE = "    def take(self, n: int)"


def random_tests(folder: Path) -> set[str]:
    """Return the tests that draw from the cryptographic generator."""
    lines = (ROOT / "src/dpcvx" / DRAWN).read_text().splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(TAKE)) + 2
    found: set[str] = set()
    for part in folder.glob("*.json"):
        found |= set(json.loads(part.read_text())["lines"].get(DRAWN, {}).get(str(first), ()))
    return found


class Repeated:
    """A plugin of pytest that runs the chosen tests many times, each time in a child."""

    def __init__(self, drawn: set[str], runs: range, seconds: float) -> None:
        self._drawn, self._runs, self._until = drawn, runs, time.monotonic() + seconds
        self.failed: Counter[str] = Counter()
        self.stuck: set[str] = set()
        self.done = self.tests = 0

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        chosen = [item for item in session.items if item.nodeid in self._drawn or _is_property(item)]
        for seed in self._runs:
            if time.monotonic() > self._until:
                break
            left = chosen
            while left:
                left = self._run([item for item in left if item.nodeid not in self.stuck], seed)
            self.done += 1
            print(f"run {seed}: {sum(self.failed.values())} failures", file=sys.__stderr__, flush=True)
        self.tests = len(chosen) - len(self.stuck)
        return True

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
            status = wait(child, time.monotonic() + 600, IDLE)
            lines = [json.loads(line) for line in note.read().splitlines()]
        self.failed.update(line["failed"] for line in lines if "failed" in line)
        begun = [line["begun"] for line in lines if "begun" in line]
        if status is not None:
            return []
        self.stuck.add(begun[-1])
        return items[len(begun) :]


def _is_property(item: pytest.Item) -> bool:
    return getattr(getattr(item, "obj", None), "is_hypothesis_test", False)


def _run_all(items: list[pytest.Item], seed: int, note: Path) -> None:
    import hypothesis.core

    hypothesis.core.global_force_seed = seed
    with note.open("w") as out:
        for item, following in zip(items, [*items[1:], None], strict=True):
            print(json.dumps({"begun": item.nodeid}), file=out, flush=True)
            with catch_warnings_for_item(item.config, item.ihook, when="runtest", item=item):
                reports = runtestprotocol(item, log=False, nextitem=following)
            if any(report.failed for report in reports):
                print(json.dumps({"failed": item.nodeid}), file=out, flush=True)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("map", type=Path)
    options.add_argument("tests", nargs="*", default=["tests"])
    options.add_argument("--runs", type=int, default=50)
    options.add_argument("--first", type=int, default=0)
    options.add_argument("--seconds", type=float, default=1e9)
    given = options.parse_args()
    use_this_tree()
    repeated = Repeated(random_tests(given.map), range(given.first, given.first + given.runs), given.seconds)
    pytest.main([*QUICK, *given.tests], plugins=[repeated])
    print(f"{repeated.done} runs of {repeated.tests} tests; {len(repeated.stuck)} tests were left out.")
    for name, count in repeated.failed.most_common():
        print(f"failed {count} times: {name}")
    return bool(repeated.failed)


if __name__ == "__main__":
    sys.exit(main())
