"""Plant each fault of `faults.py` in a copy of the tree, and say which quick test catches it.

    python tests/planted/run.py [pattern ...] [--quick-suite] [--write] [--clean]

`pattern`: part of a fault's name, kind or file. `--quick-suite`: run all quick tests, not only those that are
named. `--write`: write docs/figures/planted_faults.json and the table of docs/planted_faults.md.
`--clean`: run the named tests without a fault first: they must all pass.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from faults import FAULTS, Fault
from sandbox import ROOT, Sandbox

FOUND = ROOT / "docs/figures/planted_faults.json"
PAGE = ROOT / "docs/planted_faults.md"
TIMEOUT = 240.0  # seconds of one fault; a test that never ends has caught it too
MARK = "<!-- table: written by tests/planted/run.py --write -->\n"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("pattern", nargs="*")
    options.add_argument("--quick-suite", action="store_true")
    options.add_argument("--write", action="store_true")
    options.add_argument("--clean", action="store_true")
    options.add_argument("--again", action="store_true", help="also those that are known to be caught")
    options.add_argument("--timeout", type=float, default=TIMEOUT)
    options.add_argument("--results", type=Path, default=FOUND)
    given = options.parse_args()
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
    box = Sandbox()
    missed = []
    try:
        if given.clean:
            _require_clean(box, chosen)
        for fault in chosen:
            file = f"src/dpcvx/{fault.file}"
            text = (box.root / file).read_text()
            tests = ["tests"] if given.quick_suite else [f"tests/{name}" for name in fault.tests.split()]
            timeout = 3600.0 if given.quick_suite else given.timeout
            found = box.run(file, text.replace(fault.old, fault.new), tests, timeout)
            known[fault.name] = {"kind": fault.kind, "caught": found.caught, "by": found.by}
            print(f"{'caught' if found.caught else 'MISSED'} {found.seconds:5.1f} s  {fault.name}", end="")
            print(f"  [{found.by.removeprefix('tests/')}]", flush=True)
            missed += [] if found.caught else [fault]
            if given.write:
                given.results.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n")
    finally:
        box.close()
    print(f"{len(chosen) - len(missed)} of {len(chosen)} faults were caught.")
    for fault in missed:
        print("missed:", json.dumps(asdict(fault), indent=1))
    if given.write and not given.pattern:
        write_page(known)
    return len(missed) > 0


def _require_clean(box: Sandbox, chosen: list[Fault]) -> None:
    """Run the named tests without a fault, file by file: what fails here would catch everything."""
    names = sorted({name for fault in chosen for name in fault.tests.split()})
    file = f"src/dpcvx/{chosen[0].file}"
    text = (ROOT / file).read_text()
    for name in names:
        found = box.run(file, text, [f"tests/{name}"], 1200.0)
        print(f"clean  {found.seconds:5.1f} s  {name}", flush=True)
        if found.caught:
            print((box.root / "log").read_text()[-3000:])
            raise SystemExit(f"{found.by} fails without a fault.")


def write_page(known: dict[str, dict[str, object]]) -> None:
    """Write the table of faults to the page, for those that are still listed."""
    rows = ["| fault | file | caught by |", "|---|---|---|"]
    kind = ""
    for fault in FAULTS:
        if fault.kind != kind:
            kind = fault.kind
            rows.append(f"| **{kind}** | | |")
        by = str(known.get(fault.name, {}).get("by", "")).removeprefix("tests/").split("[")[0]
        rows.append(f"| {fault.name} | `{fault.file}` | `{by}` |")
    head = PAGE.read_text().split(MARK)[0]
    PAGE.write_text(head + MARK + "\n".join(["", *rows, ""]))


if __name__ == "__main__":
    sys.exit(main())
