"""The process in which one method runs: reads a request per line, fits, writes predictions and costs.

    python -m leaderboard.worker SOLVER_FILE

A request is JSON with "problem" (a file), "epsilon", "seed", "setting" and "out" (a file for predictions).
The answer is JSON with seconds, processor seconds, MiB of memory at the peak, or "failed".
"""

import contextlib
import importlib.util
import json
import resource
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from leaderboard.objective import Problem, read_problem


def load_part(path: Path) -> Any:
    """Import a file of datasets/ or solvers/ and return an instance of its class."""
    spec = importlib.util.spec_from_file_location(f"leaderboard_{path.parent.name}_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Solver() if hasattr(module, "Solver") else module.Dataset()


def main() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr  # methods may print
    warnings.simplefilter("ignore")
    solver = load_part(Path(sys.argv[1]))
    path, problem = "", None
    for line in sys.stdin:
        request = json.loads(line)
        if request["problem"] != path:
            path = request["problem"]
            problem = read_problem(path)
        answer = fit(solver, problem, request)
        print(json.dumps(answer), file=answers, flush=True)


def fit(solver: Any, problem: Problem, request: dict[str, Any]) -> dict[str, Any]:
    """Fit once; the error of a method is an answer, too."""
    _reset_peak()
    seconds, processor = time.perf_counter(), time.process_time()
    try:
        found = solver.fit(problem, request["epsilon"], request["seed"], **request["setting"])
    except Exception as error:  # of any peer
        return {"failed": f"{type(error).__name__}: {error}"[:200]}
    answer = {
        "seconds": time.perf_counter() - seconds,
        "processor": time.process_time() - processor,
        "memory": _peak(),
    }
    np.save(request["out"], np.asarray(found, dtype=np.float64))
    return answer


def _reset_peak() -> None:
    """Forget the peak of earlier fits, where the system can (Linux)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak() -> float:
    """MiB of memory at the peak, libraries and data included."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
