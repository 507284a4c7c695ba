"""Join the results of `run.py`, and write the score and the survivors to docs/mutation.md.

python tests/mutation/report.py [--seed 1]
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from mutants import ROOMS, ROOT

RESULTS = Path(__file__).parent / "results"
# Reasons by file, line of source and change. "equivalent": the program does the same for every input, or
# something that is as right; "left": something else, which no quick test sees.
REASONS = json.loads((Path(__file__).parent / "survivors.json").read_text())
EQUIVALENT, LEFT = REASONS["equivalent"], REASONS["left"]
FIGURES = ROOT / "docs/figures/mutation.json"
PAGE = ROOT / "docs/mutation.md"
MARK = "<!-- written by tests/mutation/report.py -->\n"
NORMAL_97_5 = 1.959964


def wilson(k: int, n: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share."""
    z2 = NORMAL_97_5**2
    middle = (k + z2 / 2) / (n + z2)
    half = NORMAL_97_5 * math.sqrt(k * (n - k) / n + z2 / 4) / (n + z2)
    return middle - half, middle + half


def name(found: dict) -> str:
    """Name of a change: file, line of source, change."""
    return f"{found['file']} | {found['source']} | {found['old']} -> {found['new']}"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--seeds", type=int, nargs="*", default=[1])
    given = options.parse_args()
    known = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    for seed in given.seeds:
        found: dict[str, dict] = {}
        for place in sorted(RESULTS.glob(f"{seed}_*.jsonl")):
            lines = map(json.loads, place.read_text().splitlines())
            found |= {line["key"]: line for line in lines}  # the last run of a change counts
        if found:
            kept = (
                "room",
                "file",
                "function",
                "line",
                "kind",
                "old",
                "new",
                "source",
                "outcome",
                "first",
                "by",
            )
            known[str(seed)] = [{key: one[key] for key in kept} for one in found.values()]
    FIGURES.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n")
    parts = [MARK]
    for seed, found in known.items():
        parts.append(f"\n## Sample {seed}\n\n" + table(found))
    listed = {name(one): one for found in known.values() for one in found if one["outcome"] != "killed"}
    parts.append("\n## Survivors\n\n" + survivors(listed))
    PAGE.write_text(PAGE.read_text().split(MARK)[0] + "".join(parts))
    for each in listed.keys() - EQUIVALENT.keys():
        print("left:     " if each in LEFT else "no reason:", each)
    return 0


def table(found: list[dict]) -> str:
    """Return the scores of one sample."""
    rows = ["| room | changes | killed | equivalent | score | 95 % |", "|---|---:|---:|---:|---:|---|"]
    for room in (*ROOMS, "all"):
        of = [one for one in found if room in (one["room"], "all")]
        counts = Counter(one["outcome"] for one in of)
        same = sum(one["outcome"] != "killed" and name(one) in EQUIVALENT for one in of)
        n = len(of) - same
        low, high = wilson(counts["killed"], n)
        score = f"{100 * counts['killed'] / n:.1f} % | {100 * low:.1f} to {100 * high:.1f}"
        rows.append(f"| {room} | {len(of)} | {counts['killed']} | {same} | {score} |")
    rows.append("\n" + first_run(found))
    return "\n".join(rows) + "\n"


def first_run(found: list[dict]) -> str:
    """Return the score of changes at their first run, before tests were written for survivors."""
    of = [one for one in found if one["first"] in ("killed", "survived", "no test")]
    of = [one for one in of if one["first"] == "killed" or name(one) not in EQUIVALENT]
    killed = sum(one["first"] == "killed" for one in of)
    low, high = wilson(killed, len(of))
    return (
        f"First run: {killed} of {len(of)} changes that are not equivalent were noticed, "
        f"{100 * killed / len(of):.1f} % ({100 * low:.1f} to {100 * high:.1f})."
    )


def survivors(listed: dict[str, dict]) -> str:
    """Return the changes that no quick test notices, each with its reason."""
    rows = ["| file and line | change | reason |", "|---|---|---|"]
    for key, one in sorted(listed.items()):
        reason = f"equivalent: {EQUIVALENT[key]}" if key in EQUIVALENT else LEFT.get(key, "")
        cells = (f"`{one['file']}`: `{one['source']}`", f"`{one['old']}` → `{one['new']}`", reason)
        rows.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    sys.exit(main())
