"""Fuzz every door, or those that are named: python tests/fuzz/run.py [targets] --seconds 600.

Writes inputs that did harm into tests/fuzz/corpus, where they stay as examples once the fault is mended.
"""

import argparse
import hashlib
import resource
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from fuzzing import fuzz
from targets import CORPUS, TARGETS

MEMORY = 6 * 2**30  # bytes: an input that takes all of the memory would end the run without a word


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", help="; all by default")
    parser.add_argument("--inputs", type=int, default=1_000_000, help="for each target, at most")
    parser.add_argument("--seconds", type=float, default=120.0, help="for each target, at most")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    total, harmed = 0, 0
    for target in TARGETS:
        if options.targets and target.name not in options.targets:
            continue
        target.read(target.examples()[0])  # compiles what no cache holds, which would be a slow input
        run = fuzz(target, inputs=options.inputs, seconds=options.seconds, seed=options.seed)
        rate = run.inputs / max(run.seconds, 1e-9)
        print(
            f"{target.name:14} {run.inputs:9,} inputs, {rate:7,.0f} a second, {len(run.outcomes)} outcomes, "
            f"{len(run.findings)} findings",
            flush=True,
        )
        total, harmed = total + run.inputs, harmed + len(run.findings)
        for problem, content in run.findings[:20]:
            path = CORPUS / target.name / hashlib.sha256(content).hexdigest()[:16]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            print(
                f"  {problem}  ({path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path})"
            )
    print(f"{total:,} inputs, {harmed} findings")
    return 1 if harmed else 0


if __name__ == "__main__":
    sys.exit(main())
