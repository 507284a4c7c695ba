"""Run the leaderboard and write its page.

python -m benchmarks.leaderboard                          # all that is not in results.jsonl, then the page
python -m benchmarks.leaderboard --tasks lasso --methods adassp dp_gd
python -m benchmarks.leaderboard --page                   # the page alone
"""

import argparse
import time

from leaderboard.page import write_page
from leaderboard.runner import Processes, measure, parts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    tasks, solvers = parts("datasets"), parts("solvers")
    parser.add_argument("--tasks", nargs="+", choices=list(tasks), default=list(tasks))
    parser.add_argument("--methods", nargs="+", choices=list(solvers), default=list(solvers))
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after so many; a later run goes on")
    parser.add_argument("--page", action="store_true", help="write docs/leaderboard.md from the results")
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes
    with Processes({method: solvers[method] for method in options.methods}) as processes:
        for name in () if options.page else options.tasks:
            for result in measure(name, tasks[name], processes, end):
                scores = result.get("failed") or f"{result['scores']}  {result['processor']:.3g} s"
                setting = " ".join(f"{key}={value}" for key, value in result["setting"].items())
                print(
                    f"{name} {result['method']} {setting} epsilon {result['epsilon']}: {scores}", flush=True
                )
    write_page()


if __name__ == "__main__":
    main()
