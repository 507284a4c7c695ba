"""Leaderboard of private convex optimisation: tasks in datasets/, methods in solvers/, one file each.

`objective.py` says what a problem is and how answers are scored, `runner.py` runs methods in environments of
their own, `worker.py` is the process in which a method runs, `page.py` writes docs/leaderboard.md.
"""

import sys
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parents[1]
if str(BENCHMARKS) not in sys.path:  # loaders and peers of the other benchmarks are modules of that folder
    sys.path.insert(0, str(BENCHMARKS))
