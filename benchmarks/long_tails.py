"""Clip of residuals for targets with long tails: R^2 of default fits with 2.5, 4 and 6 standard deviations.

python benchmarks/long_tails.py            # 3 splits, into docs/figures/long_tails.json

Regressions of the development list at epsilon 1 and 4 for which the clip makes a difference: columns are
standardised, n mu is 100 or more for each coefficient, and the released tail of the target is long. With
blogfeedback in the folder of data sets (see `datasets.py`) it is fitted too, on three seeds.
"""

from __future__ import annotations

import argparse
import json
import warnings
from typing import Any

import numpy as np

import tables
from datasets import load
from figures import FOLDER

CLIPS = (2.5, 4.0, 6.0)
EPSILONS = (1.0, 4.0)


def differing(fit: Any) -> dict[str, float] | None:
    """Return R^2 by clip; None if the first two clips give the same model."""
    from dpcvx.solvers import standardised

    default, found = standardised.LONG_RESIDUAL, {}
    try:
        for clip in CLIPS:
            standardised.LONG_RESIDUAL = clip
            found[f"{clip:g}"] = fit()
            if len(found) == 2 and found["2.5"] == found["4"]:
                return None
    finally:
        standardised.LONG_RESIDUAL = default
    return found


def main() -> None:
    from dpcvx import PrivateAdditiveRegressor, PrivateLinearRegression

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    cells: dict[str, list[dict[str, float]]] = {}
    kinds = {"linear": PrivateLinearRegression, "additive": PrivateAdditiveRegressor}

    def add(name: str, fit: Any) -> None:
        if (found := differing(fit)) is not None:
            cells.setdefault(name, []).append(found)

    for question in tables.questions(tables.DEVELOPMENT):
        if question.positive is not None:
            continue
        for seed in range(options.seeds):
            task = tables.load(question, seed)
            for kind, epsilon in ((kind, epsilon) for kind in kinds for epsilon in EPSILONS):

                def fit(
                    task: Any = task, kind: str = kind, epsilon: float = epsilon, seed: int = seed
                ) -> float:
                    facts = {"epsilon": epsilon, "delta": task.delta, "random_state": seed}
                    model = kinds[kind](**facts, **task.declared).fit(task.X, task.y)
                    return float(task.scored(model.predict(task.X_test)))

                add(f"{task.name} {kind} {epsilon:g}", fit)
    try:
        blogs = load("blogfeedback")
    except SystemExit:
        blogs = None
    for seed, epsilon in ((s, e) for s in range(options.seeds * (blogs is not None)) for e in EPSILONS):

        def fit_blogs(epsilon: float = epsilon, seed: int = seed) -> float:
            model = blogs.estimator(epsilon=epsilon, random_state=seed).fit(blogs.X, blogs.y)
            return 1 - float(
                np.mean((model.predict(blogs.X_test) - blogs.y_test) ** 2) / np.var(blogs.y_test)
            )

        add(f"blogfeedback linear {epsilon:g}", fit_blogs)
    means = {
        name: {clip: round(float(np.mean([each[clip] for each in found])), 4) for clip in found[0]}
        | {"fits": len(found)}
        for name, found in cells.items()
    }
    for name, line in means.items():
        print(name, line)
    (FOLDER / "long_tails.json").write_text(json.dumps(means, indent=1) + "\n")


if __name__ == "__main__":
    main()
