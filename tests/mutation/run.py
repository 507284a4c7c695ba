"""Change the source at one place at a time, and see whether quick tests that run this place fail.

    python tests/mutation/run.py MAP [--each 95] [--seed 1] [--part 0/2] [--seconds 540] [--again]

`MAP`: folder that `record.py` wrote. Results are appended to a file in tests/mutation/results after each
change, so that a run can go on; `--again` runs those that survived once more, but for those that
survivors.json calls equivalent. Functions are changed in a child of a process that has collected all tests.
Constants of modules and compiled kernels need an import of their own, in the copy of the tree that planted
faults use too.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "planted"))
sys.path.insert(0, str(Path(__file__).parent))
from live import Change, Live, use_this_tree
from mutants import ROOMS, SOURCE, Mutant, sample
from record import QUICK
from report import EQUIVALENT, name
from sandbox import WITH_LIBRARIES, Outcome, Sandbox

RESULTS = Path(__file__).parent / "results"
FIRST = 12  # tests of one file that run before tests of others do
LIMIT = 40.0  # seconds of tests for one change
CALLERS = {  # compiled kernels, whose lines are not seen, by the file that calls them
    "noise/exponential_kernels.py": ("noise/exponential.py",),
    "noise/gaussian_kernels.py": ("noise/gaussian.py",),
    "data/kernels/quantise.py": ("data/quantise.py",),
    "data/kernels/additive.py": ("data/quantise.py", "data/additive_basis.py"),
}


class Map:
    """Tests of lines, and what they cost."""

    def __init__(self, folder: Path) -> None:
        self.seconds: dict[str, float] = {}
        self.lines: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        width: dict[str, int] = defaultdict(int)
        for part in folder.glob("*.json"):
            found = json.loads(part.read_text())
            self.seconds |= found["seconds"]
            for file, lines in found["lines"].items():
                for line, tests in lines.items():
                    self.lines[file][int(line)] |= set(tests)
        for lines in self.lines.values():
            for tests in lines.values():
                for test in tests:
                    width[test] += 1
        self._width = width
        self.of_file: dict[str, list[str]] = defaultdict(list)
        for test in width:
            self.of_file[test.split("::")[0]].append(test)

    def tests(self, mutant: Mutant, limit: float) -> list[str]:
        """Return tests of a change, in the order in which they run."""
        places = CALLERS.get(mutant.file, (mutant.file,))
        reaching = set().union(*(tests for file in places for tests in self._near(mutant, file)))
        if not reaching:
            return []
        # A fixture of a file, and what it memoises, run in one test and serve others.
        files = {test.split("::")[0] for test in reaching}
        others = {test for file in files for test in self.of_file[file]} - reaching
        chosen, total = [], 0.0
        own = Counter(test for file in places for tests in self.lines[file].values() for test in tests)
        for test in (*self._order(reaching, own), *self._order(others, own)):
            total += self.seconds[test]
            if total > limit and chosen:
                break
            chosen.append(test)
        return chosen

    def _near(self, mutant: Mutant, file: str) -> Iterator[set[str]]:
        lines = self.lines[file]
        if file != mutant.file or not mutant.function or not lines.get(mutant.line):
            # Tests that run the function, or for constants anything of the file.
            at = [line for line in lines if line >= mutant.line] if mutant.function else list(lines)
            at = at[:3] if mutant.function and file == mutant.file else at
            return (lines[line] for line in at)
        return iter([lines[mutant.line]])

    def _order(self, tests: set[str], own: Counter[str]) -> list[str]:
        """Tests of little time first that run little else than the file, of whose lines they run `own`."""
        of_file: dict[str, list[str]] = defaultdict(list)
        rank = {
            test: self._width[test] / max(1, own[test]) ** 1.5 * (0.05 + self.seconds[test]) for test in tests
        }
        for test in sorted(tests, key=lambda test: (rank[test], test)):
            of_file[test.split("::")[0]].append(test)
        first = [test for tests in of_file.values() for test in tests[:FIRST]]
        return first + [test for tests in of_file.values() for test in tests[FIRST:]]


class Kept:
    """Results of one part, one line of JSON for each run of a change; the last line of a change counts."""

    def __init__(self, place: Path, allowed: float) -> None:
        self._place = place
        self._until = time.monotonic() + allowed
        place.parent.mkdir(exist_ok=True)
        lines = place.read_text().splitlines() if place.exists() else []
        self.found = {found["key"]: found for found in map(json.loads, lines)}

    def is_late(self) -> bool:
        """Whether the allowed time is over."""
        return time.monotonic() > self._until

    def keep(self, mutant: Mutant, outcome: Outcome, tests: int) -> None:
        """Store an outcome."""
        word = "killed" if outcome.caught else "survived" if tests else "no test"
        source = (SOURCE / mutant.file).read_text().splitlines()[mutant.line - 1].strip()
        first = self.found.get(key(mutant), {}).get("first", word)
        found = {"key": key(mutant), **asdict(mutant), "source": source}
        found |= {"outcome": word, "first": first, "by": outcome.by, "tests": tests}
        self.found[key(mutant)] = found
        with self._place.open("a") as file:
            print(json.dumps(found, ensure_ascii=False), file=file)
        line = f"{word:8} {outcome.seconds:5.1f} s  {mutant.line} {mutant.name}  [{outcome.by}]"
        print(line, file=sys.__stderr__, flush=True)


def key(mutant: Mutant) -> str:
    """Name of a change in the results."""
    return f"{mutant.file} {mutant.start} {mutant.kind} {mutant.new}"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("map", type=Path)
    options.add_argument("--each", type=int, default=95)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--part", default="0/1")
    options.add_argument("--seconds", type=float, default=1e9)
    options.add_argument("--again", action="store_true")
    options.add_argument("--rooms", nargs="*", default=list(ROOMS))
    options.add_argument("--limit", type=float, default=LIMIT, help="seconds of tests for one change")
    options.add_argument("--fresh", action="store_true", help="only those that need an import of their own")
    options.add_argument("--live", action="store_true", help="only the others")
    options.add_argument("--results", type=Path, help="file of results")
    given = options.parse_args()
    use_this_tree()
    part, parts = map(int, given.part.split("/"))
    tests_of = Map(given.map)
    kept = Kept(given.results or RESULTS / f"{given.seed}_{part}.jsonl", given.seconds)
    live, fresh = {}, {}
    for mutant in sample(given.each, given.seed)[part::parts]:
        before = kept.found.get(key(mutant), {})
        done = before and (before["outcome"] == "killed" or not given.again or name(before) in EQUIVALENT)
        if mutant.room not in given.rooms or done:
            continue
        place = SOURCE / mutant.file
        change = Change(
            key(mutant), place, mutant.apply(place.read_text()), tuple(tests_of.tests(mutant, given.limit))
        )
        (fresh if change.code is None else live)[change] = mutant
    if not given.live:
        run_fresh(fresh, kept)  # first: later this process has imported dpcvx
    if not given.fresh and live and not kept.is_late():
        run_live(live, kept, tests_of.seconds, f"{given.seed}_{part}")
    return 0


def run_live(live: dict[Change, Mutant], kept: Kept, seconds: dict[str, float], name: str) -> None:
    """Run changes of single functions."""

    def keep(change: Change, outcome: Outcome, tests: int) -> bool:
        kept.keep(live[change], outcome, tests)
        return not kept.is_late()

    base = ["--basetemp", f"{tempfile.gettempdir()}/mutation_{name}"]
    files = sorted({test.split("::")[0] for change in live for test in change.tests})
    pytest.main([*QUICK, *WITH_LIBRARIES, *base, *files], plugins=[Live(list(live), keep, seconds)])


def run_fresh(fresh: dict[Change, Mutant], kept: Kept) -> None:
    """Run changes that take an import of their own."""
    if not fresh:
        return
    box = Sandbox()
    try:
        for change, mutant in fresh.items():
            if kept.is_late():
                return
            file = f"src/dpcvx/{mutant.file}"
            outcome = Outcome(False, "", 0.0)
            if change.tests:
                outcome = box.run(file, change.text, list(change.tests), 60 + 8 * LIMIT)
            kept.keep(mutant, outcome, len(change.tests))
    finally:
        box.close()


if __name__ == "__main__":
    sys.exit(main())
