"""Groups that select columns, beside additive models that keep all: many columns of which five matter.

python benchmarks/additive_groups.py            # 3 seeds, into docs/figures/additive_groups.json
python benchmarks/additive_groups.py --seeds 1 --columns 50
python benchmarks/additive_groups.py --tables   # tables of the development list with ten numbers or more

Columns are uniform on [-1, 1]. The target is the sum of sin(3 x_1), 2 |x_2|, 2 x_3^2, the sign of x_4 and
x_5, with normal errors of standard deviation 1. Scores are R^2 on 20,000 new rows. The group LASSO and the
LASSO get a column and its four ramps between knots at -1, -1/2, 0, 1/2 and 1 as features; the group LASSO
selects these five together. On tables, additive models that select eight columns are beside those that keep
all; scores are AUC and R^2.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from figures import FOLDER, stored

KNOTS = np.linspace(-1.0, 1.0, 5)
Y_BOUNDS = (-8.0, 8.0)
FEWEST_ROWS, FEWEST_NUMBERS = 3_000, 10


def data(n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and targets."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, d))
    mean = np.sin(3 * X[:, 0]) + 2 * np.abs(X[:, 1]) + 2 * X[:, 2] ** 2 + np.sign(X[:, 3]) + X[:, 4]
    return X, np.clip(mean + rng.normal(0, 1, n), *Y_BOUNDS)


def expanded(X: np.ndarray) -> np.ndarray:
    """Return each column followed by its ramps, all between -1 and 1."""
    ramps = [2 * np.clip((X - a) / (b - a), 0, 1) - 1 for a, b in pairwise(KNOTS)]
    return np.stack([X, *ramps], axis=2).reshape(len(X), -1)


def models(n: int, d: int, epsilon: float, seed: int) -> dict[str, tuple[Callable[..., np.ndarray], Any]]:
    """Return the map of the columns and the estimator of each model."""
    import dpcvx

    given = {
        "epsilon": epsilon,
        "delta": 1 / n**2,
        "bounds": (-1.0, 1.0),
        "y_bounds": Y_BOUNDS,
        "random_state": seed,
    }
    groups = [list(range(5 * j, 5 * j + 5)) for j in range(d)]
    return {
        "linear": (np.asarray, dpcvx.PrivateLinearRegression(**given)),
        "additive": (np.asarray, dpcvx.PrivateAdditiveRegressor(**given)),
        "additive, 5 knots": (
            np.asarray,
            dpcvx.PrivateAdditiveRegressor(knots=5, interactions="none", **given),
        ),
        "additive, 8 selected columns": (
            np.asarray,
            dpcvx.PrivateAdditiveRegressor(selected_columns=8, **given),
        ),
        "LASSO on ramps": (expanded, dpcvx.PrivateLasso(**given)),
        "group LASSO on ramps": (expanded, dpcvx.PrivateGroupLasso(groups=groups, **given)),
    }


def tables_too(seeds: int, epsilons: list[float]) -> dict[str, dict[str, float]]:
    """Return mean scores with all columns and with eight, on tables of 3,000 rows or more."""
    import dpcvx
    import tables

    found: dict[str, dict[str, float]] = {}
    for question in tables.questions(tables.DEVELOPMENT):
        if question.rows < FEWEST_ROWS:
            continue
        tasks = [tables.load(question, seed) for seed in range(seeds)]
        if len(tasks[0].declared["bounds"]) < FEWEST_NUMBERS:
            continue
        kind = dpcvx.PrivateAdditiveClassifier if tasks[0].classifies else dpcvx.PrivateAdditiveRegressor
        for epsilon in epsilons:
            cell = found.setdefault(f"{question.name} {question.target}, epsilon {epsilon:g}", {})
            for name, count in (("all columns", None), ("eight selected", 8)):
                scores = []
                for seed, task in enumerate(tasks):
                    model = kind(
                        epsilon=epsilon,
                        delta=task.delta,
                        random_state=seed,
                        selected_columns=count,
                        **task.declared,
                    ).fit(task.X, task.y)
                    score = model.decision_function if task.classifies else model.predict
                    scores.append(task.scored(score(task.X_test)))
                cell[name] = round(float(np.mean(scores)), 4)
            print(f"{question.name:30s} {question.target:14s} epsilon {epsilon:<4g}", cell, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--tables", action="store_true", help="tables of the development list")
    parser.add_argument("--columns", type=int, nargs="+", default=[20, 100])
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 4.0])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    stored_before = stored("additive_groups")
    if options.tables:
        figures = {**stored_before, "tables": tables_too(options.seeds, options.epsilons)}
        (FOLDER / "additive_groups.json").write_text(json.dumps(figures, indent=1) + "\n")
        return
    found: dict[str, dict[str, list[float]]] = {}
    for d in options.columns:
        X_test, y_test = data(20_000, d, 10_000)
        for epsilon in options.epsilons:
            cell = found.setdefault(f"{d} columns, epsilon {epsilon:g}", {})
            for seed in range(options.seeds):
                X, y = data(options.records, d, seed)
                for name, (map_rows, model) in models(len(y), d, epsilon, seed).items():
                    started = time.process_time()
                    model.fit(map_rows(X), y)
                    error = np.mean((model.predict(map_rows(X_test)) - y_test) ** 2) / y_test.var()
                    cell.setdefault(name, []).append(round(float(1 - error), 4))
                    cell.setdefault(f"{name}, processor seconds", []).append(
                        round(time.process_time() - started, 2)
                    )
            for name, scores in cell.items():
                print(
                    f"{d:4d} columns, epsilon {epsilon:g}, {name:42s} {np.mean(scores):.3f} ± "
                    f"{np.std(scores, ddof=1) / len(scores) ** 0.5 if len(scores) > 1 else 0:.3f}",
                    flush=True,
                )
    figures = {**stored_before, "records": options.records, "R2": found}
    (FOLDER / "additive_groups.json").write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
