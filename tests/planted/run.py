"""Plant each fault of `faults.py` in a copy of the tree, and say which quick test catches it.

    python tests/planted/run.py [pattern ...] [--quick-suite] [--write] [--clean]

`pattern`: part of a fault's name, kind or file. `--quick-suite`: run all quick tests, not only those that are
named. Results are kept in docs/figures/planted_faults.json; `--write`: write the table of the page too.
`--clean`: run the named tests without a fault first: they must all pass.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from faults import FAULTS, Fault
from live import Change, Live, use_this_tree
from sandbox import ROOT, WITH_LIBRARIES, Outcome, Sandbox

FOUND = ROOT / "docs/figures/planted_faults.json"
PAGE = ROOT / "docs/planted_faults.md"
QUICK = ["-q", "-p", "no:cacheprovider", "-m", "not slow and not long", *WITH_LIBRARIES]
TIMEOUT = 240.0  # seconds of one fault; a test that never ends has caught it too
MARK = "<!-- table: written by tests/planted/run.py --write -->\n"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("pattern", nargs="*")
    options.add_argument("--quick-suite", action="store_true")
    options.add_argument("--write", action="store_true")
    options.add_argument("--clean", action="store_true")
    options.add_argument("--again", action="store_true", help="also those that are known to be caught")
    options.add_argument("--imports", action="store_true", help="import dpcvx anew for each fault")
    options.add_argument("--timeout", type=float, default=TIMEOUT)
    options.add_argument("--seconds", type=float, default=1e9, help="stop after so long")
    options.add_argument("--results", type=Path, default=FOUND)
    given = options.parse_args()
    use_this_tree()
    patterns = given.pattern or [""]
    chosen = [
        fault
        for pattern in patterns
        for fault in FAULTS
        if pattern in f"{fault.name} {fault.kind} {fault.file}"
    ]
    known = json.loads(given.results.read_text()) if given.results.exists() else {}
    chosen = list(dict.fromkeys(chosen))
    if not given.again:
        chosen = [fault for fault in chosen if not known.get(fault.name, {}).get("caught")]
    if given.clean:
        _require_clean(chosen)
    missed = []
    end = time.monotonic() + given.seconds

    def keep(fault: Fault, found: Outcome) -> bool:
        known[fault.name] = {"kind": fault.kind, "caught": found.caught, "by": found.by}
        line = f"{'caught' if found.caught else 'MISSED'} {found.seconds:5.1f} s  {fault.name}"
        print(f"{line}  [{found.by.removeprefix('tests/')}]", file=sys.__stderr__, flush=True)
        missed.extend([] if found.caught else [fault])
        given.results.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n")
        return time.monotonic() < end

    changes = {_change(fault, given.quick_suite): fault for fault in chosen}
    live = [change for change in changes if change.code is not None and not given.imports]
    # First: later this process has imported dpcvx.
    _run_fresh({change: changes[change] for change in changes if change not in live}, keep, given)
    if live and time.monotonic() < end:
        files = sorted({test.split("::")[0] for change in live for test in change.tests})
        loop = Live(live, lambda change, found, _: keep(changes[change], found))
        pytest.main([*QUICK, *files], plugins=[loop])
        if unseen := [change.name for change in live if changes[change] in missed]:
            # Functions may run when their module is imported: once more, in a process that has not done so.
            again = [sys.executable, __file__, *unseen, "--imports", "--results", given.results]
            subprocess.run(again, check=False)
            known = json.loads(given.results.read_text())
            missed = [fault for fault in missed if not known[fault.name]["caught"]]
    print(f"{len(missed)} faults were missed.")
    for fault in missed:
        print("missed:", json.dumps(asdict(fault), indent=1))
    if given.write and not given.pattern:
        write_page(known)
    return len(missed) > 0


def _change(fault: Fault, quick_suite: bool) -> Change:
    place = ROOT / "src/dpcvx" / fault.file
    tests = ["tests"] if quick_suite else [f"tests/{name}" for name in fault.tests.split()]
    return Change(fault.name, place, place.read_text().replace(fault.old, fault.new), tuple(tests))


def _run_fresh(
    changes: dict[Change, Fault], keep: Callable[[Fault, Outcome], bool], given: argparse.Namespace
) -> None:
    """Run faults that take an import of their own."""
    if not changes:
        return
    box = Sandbox()
    timeout = 3600.0 if given.quick_suite else given.timeout
    try:
        for change, fault in changes.items():
            found = box.run(f"src/dpcvx/{fault.file}", change.text, list(change.tests), timeout)
            if not keep(fault, found):
                break
    finally:
        box.close()


def _require_clean(chosen: list[Fault]) -> None:
    """Run the named tests without a fault, file by file: what fails here would catch everything."""
    box = Sandbox()
    names = sorted({name for fault in chosen for name in fault.tests.split()})
    file = f"src/dpcvx/{chosen[0].file}"
    text = (ROOT / file).read_text()
    for name in names:
        found = box.run(file, text, [f"tests/{name}"], 1200.0)
        print(f"clean  {found.seconds:5.1f} s  {name}", flush=True)
        if found.caught:
            print((box.root / "log").read_text()[-3000:])
            raise SystemExit(f"{found.by} fails without a fault.")
    box.close()


def write_page(known: dict[str, dict[str, object]]) -> None:
    """Write the table of faults to the page, for those that are still listed."""
    caught = sum(bool(known.get(fault.name, {}).get("caught")) for fault in FAULTS)
    missed = sum(not known[fault.name]["caught"] for fault in FAULTS if fault.name in known)
    others = len(FAULTS) - caught - missed
    rest = f"; the other {others} were not run" if others else ""
    rows = [f"Of {len(FAULTS)} faults {caught} were caught and {missed} missed{rest}.", ""]
    rows += ["| fault | file | caught by |", "|---|---|---|"]
    for kind in dict.fromkeys(fault.kind for fault in FAULTS):
        rows.append(f"| **{kind}** | | |")
        for fault in (fault for fault in FAULTS if fault.kind == kind):
            by = str(known.get(fault.name, {}).get("by", "")).removeprefix("tests/").split("[")[0]
            rows.append(f"| {fault.name} | `{fault.file}` | {f'`{by}`' if by else 'not run'} |")
    head = PAGE.read_text().split(MARK)[0]
    PAGE.write_text(head + MARK + "\n".join(["", *rows, ""]))


if __name__ == "__main__":
    sys.exit(main())
