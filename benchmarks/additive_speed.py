"""Time of additive fits beside linear ones and DP-EBM: 100,000 rows, 30 columns, epsilon 1.

python benchmarks/additive_speed.py             # 5 repetitions, into docs/figures/additive_speed.json
python benchmarks/additive_speed.py --repeat 2

Columns are uniform on [-1, 1]; the score is sin(3 x_1) + x_2 - x_3^2 + x_4 x_5. All models have their
defaults, DP-EBM (`interpret-core`) also with one job, and fit in turn, so that other work on the machine
slows all of them alike. The first round, which compiles, is not counted. Processor time is that of all
threads.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from figures import FOLDER

N, D, EPSILON, DELTA, BOUNDS = 100_000, 30, 1.0, 1e-10, (-1.0, 1.0)


def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows, labels and numbers."""
    rng = np.random.default_rng(0)
    X = rng.uniform(*BOUNDS, (N, D))
    score = np.sin(3 * X[:, 0]) + X[:, 1] - X[:, 2] ** 2 + X[:, 3] * X[:, 4]
    labels = (score + rng.logistic(0, 0.5, N) > 0).astype(int)
    return X, labels, np.clip(score + rng.normal(0, 0.5, N), -4, 4)


def fits() -> dict[str, Callable[[], Any]]:
    """Return a function for each model that fits it."""
    import dpcvx

    X, labels, numbers = data()
    ours = {"epsilon": EPSILON, "delta": DELTA, "bounds": BOUNDS}
    label, number = {**ours, "classes": (0, 1)}, {**ours, "y_bounds": (-4, 4)}
    found: dict[str, Callable[[], Any]] = {
        "linear, labels": lambda: dpcvx.PrivateLogisticRegression(**label).fit(X, labels),
        "additive, labels": lambda: dpcvx.PrivateAdditiveClassifier(**label).fit(X, labels),
        "linear, numbers": lambda: dpcvx.PrivateLinearRegression(**number).fit(X, numbers),
        "additive, numbers": lambda: dpcvx.PrivateAdditiveRegressor(**number).fit(X, numbers),
    }
    try:
        from interpret.privacy import DPExplainableBoostingClassifier, DPExplainableBoostingRegressor
    except ImportError:
        print("DP-EBM is left out: pip install interpret-core")
        return found
    ebm = {
        "epsilon": EPSILON,
        "delta": DELTA,
        "feature_types": ["continuous"] * D,
        "privacy_bounds": dict.fromkeys(range(D), BOUNDS),
    }
    target = {"privacy_target_min": -4, "privacy_target_max": 4}
    for jobs, name in ((-2, "DP-EBM"), (1, "DP-EBM, one job")):
        found[f"{name}, labels"] = lambda jobs=jobs: DPExplainableBoostingClassifier(n_jobs=jobs, **ebm).fit(
            X, labels
        )
        found[f"{name}, numbers"] = lambda jobs=jobs: DPExplainableBoostingRegressor(
            n_jobs=jobs, **ebm, **target
        ).fit(X, numbers)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    models = fits()
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in models}
    for repetition in range(options.repeat + 1):
        for name, fit in models.items():
            wall, processor = time.perf_counter(), time.process_time()
            fit()
            if repetition:
                times[name].append((time.perf_counter() - wall, time.process_time() - processor))
    medians = {name: np.median(each, axis=0).round(2).tolist() for name, each in times.items()}
    least = {name: np.min(each, axis=0).round(2).tolist() for name, each in times.items()}
    for name in models:
        print(f"{name:26s} seconds {medians[name][0]:6.2f}  of processor {medians[name][1]:6.2f}")
    for kind in ("labels", "numbers"):
        ours = np.array(medians[f"additive, {kind}"])
        print(kind, "additive over linear", (ours / medians[f"linear, {kind}"]).round(2))
        if f"DP-EBM, {kind}" in medians:
            print(kind, "DP-EBM over additive", (np.array(medians[f"DP-EBM, {kind}"]) / ours).round(2))
    figures = {"n": N, "columns": D, "epsilon": EPSILON, "seconds and processor seconds": medians}
    figures |= {"repetitions": options.repeat, "least": least}
    (FOLDER / "additive_speed.json").write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
