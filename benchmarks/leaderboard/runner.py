"""Run methods on tasks, each method in an environment of its own, and keep results as JSON lines.

A result is a task, a method, a setting and an epsilon, with the scores of all seeds and the median costs.
Those that are in results.jsonl are not measured again.
"""

from __future__ import annotations

import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from leaderboard import BENCHMARKS
from leaderboard.objective import EPSILONS, METRICS, SEEDS, score
from leaderboard.worker import load_part

HERE = Path(__file__).resolve().parent
ROOT = BENCHMARKS.parent
RESULTS = HERE / "results.jsonl"
ENVIRONMENTS = BENCHMARKS / "output"
LONGEST = 120.0  # seconds of one fit
ENDED = "the process ended"  # says nothing about the method: measured again by the next run
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


def parts(folder: str) -> dict[str, Any]:
    """Return the tasks of datasets/ or the methods of solvers/ by the name of their file."""
    return {path.stem: load_part(path) for path in sorted((HERE / folder).glob("*.py"))}


def stored(path: Path = RESULTS) -> list[dict[str, Any]]:
    """Return all results."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def key(result: dict[str, Any]) -> tuple[Any, ...]:
    """Return the fields by which a result is found again."""
    names = ("task", "method", "setting", "epsilon", "n", "p")
    return tuple(json.dumps(result[name], sort_keys=True) for name in names if name in result)


def interpreter(name: str, requirements: tuple[str, ...]) -> str | None:
    """Python of a method's environment, which is made when it is missing; None where pip fails."""
    if not requirements:
        return sys.executable
    folder = ENVIRONMENTS / f"venv-{name}"
    python = folder / "bin" / "python"
    if not python.exists():
        print(f"making an environment for {name} (once): {' '.join(requirements)}", flush=True)
        venv.create(folder, with_pip=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        if subprocess.run([*command, *requirements], check=False).returncode:
            print(f"skipped: {name} could not be installed here.", flush=True)
            return None
    return str(python)


class Process:
    """A method's process; started again after a fit that took too long."""

    def __init__(self, name: str, solver: Any) -> None:
        self.file, self.python = HERE / "solvers" / f"{name}.py", interpreter(name, solver.requirements)
        self.process: Any = None

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request and wait for its answer."""
        if self.process is None:
            paths = [str(BENCHMARKS), os.environ.get("PYTHONPATH", "")]
            self.process = subprocess.Popen(
                [self.python, "-m", "leaderboard.worker", str(self.file)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(paths)},
            )
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], LONGEST)
        line = self.process.stdout.readline() if ready else ""
        if line:
            return json.loads(line)
        self.close(kill=True)
        return {"failed": ENDED if ready else f"longer than {LONGEST:g} s"}

    def close(self, *, kill: bool = False) -> None:
        """End the process."""
        if self.process is not None:
            self.process.stdin.close()
            if kill:
                self.process.kill()
            self.process.stdout.close()
            self.process.wait()
            self.process = None


class Processes(dict[str, Process]):
    """Processes of methods by name, which serve all tasks and end together."""

    def __init__(self, solvers: dict[str, Any]) -> None:
        super().__init__()
        self.solvers = solvers

    def __missing__(self, name: str) -> Process:
        self[name] = Process(name, self.solvers[name])
        return self[name]

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self.values():
            process.close(kill=True)


def cells(task: Any, solver: Any) -> Iterator[tuple[dict[str, Any], float | None]]:
    """Yield settings and epsilons; methods without privacy have one epsilon, None."""
    for epsilon in getattr(task, "epsilons", EPSILONS) if solver.private else (None,):
        for setting in solver.settings(epsilon, task.kind):
            yield setting, epsilon


def measure(
    name: str, task: Any, processes: Processes, end: float, results: Path = RESULTS
) -> Iterator[dict[str, Any]]:
    """Run the methods on a task; yield and keep each result that is not known yet."""
    for variant in getattr(task, "variants", (None,)):
        yield from _measure_variant(name, task, processes, end, results, variant)


def _measure_variant(
    name: str, task: Any, processes: Processes, end: float, results: Path, variant: tuple[int, int] | None
) -> Iterator[dict[str, Any]]:
    known = {key(each)[: 6 if variant else 4] for each in stored(results)}
    size = dict(zip(("n", "p"), variant or (), strict=False))
    wanted = {
        method: [
            (setting, epsilon)
            for setting, epsilon in cells(task, solver)
            if key(_cell(name, method, setting, epsilon) | size) not in known
        ]
        for method, solver in processes.solvers.items()
        if task.kind in solver.kinds and method in getattr(task, "solvers", processes.solvers)
    }
    if not any(wanted.values()) or time.monotonic() > end:
        return
    problems = [task.get_data(seed, **size) for seed in range(SEEDS)]
    if problems[0] is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        files = [str(Path(folder) / f"{seed}.npz") for seed in range(SEEDS)]
        for problem, file in zip(problems, files, strict=True):
            problem.save(file)
        for method, pairs in wanted.items():
            for setting, epsilon in pairs if pairs and processes[method].python else ():
                if time.monotonic() > end:
                    break
                result = {
                    **_cell(name, method, setting, epsilon),
                    "n": problems[0].n,
                    "p": problems[0].X.shape[1],
                    **_all_seeds(processes[method], problems, files, setting, epsilon),
                }
                if result.get("failed") != ENDED:
                    with results.open("a") as file:
                        file.write(json.dumps(result) + "\n")
                yield result


def _cell(task: str, method: str, setting: dict[str, Any], epsilon: float | None) -> dict[str, Any]:
    return {"task": task, "method": method, "setting": setting, "epsilon": epsilon}


def _all_seeds(
    process: Process, problems: list[Any], files: list[str], setting: dict[str, Any], epsilon: float | None
) -> dict[str, Any]:
    answers, scores = [], []
    out = str(Path(files[0]).with_name("predictions.npy"))
    for seed, (problem, file) in enumerate(zip(problems, files, strict=True)):
        request = {"problem": file, "epsilon": epsilon, "seed": seed, "setting": setting, "out": out}
        answers.append(process.ask(request))
        if "failed" in answers[-1]:
            return {"failed": answers[-1]["failed"]}
        scores.append(float(f"{max(score(problem, np.load(out)), -99.0):.5g}"))
    costs = {
        name: float(f"{statistics.median(answer[name] for answer in answers):.3g}")
        for name in ("seconds", "processor", "memory")
    }
    lines = {
        name: round(float(np.mean([problem.lines[name][epsilon] for problem in problems])), 5)
        for name in (problems[0].lines if epsilon is not None else ())
    }
    return {"scores": scores, **costs, **({"lines": lines} if lines else {})}


def metric(task: Any) -> str:
    """Name of a task's score."""
    return getattr(task, "metric", METRICS[task.kind])
