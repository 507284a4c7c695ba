"""Shapes of regressions with few records: the default beside straight lines and five knots for every target.

python benchmarks/additive_knots.py            # 3 splits, into docs/figures/additive_knots.json

Tables of the development list at the epsilons for which n mu/d is between 100 and 400, where the default has
shapes if the released tail of the target is short. Scores are gains of R^2 over the linear default on a fifth
of the rows. A cell is counted by what most of its default fits have: shapes, or straight lines because the
tail is long or hidden.
"""

from __future__ import annotations

import argparse
import json
import warnings
from typing import Any

import numpy as np

import tables
from figures import FOLDER

EPSILONS = (0.1, 0.3, 1.0, 4.0)
RANGE = (100, 400)  # of n mu/d
MODELS: dict[str, dict[str, Any]] = {"default": {}, "5 knots": {"knots": 5, "interactions": "none"}}


def scores(task: tables.TableTask, epsilon: float, seed: int) -> tuple[dict[str, float], bool]:
    """Return R^2 of each model, and whether the shapes of the default one bend."""
    from dpcvx import PrivateAdditiveRegressor, PrivateLinearRegression

    facts = {"epsilon": epsilon, "delta": task.delta, "random_state": seed, **task.declared}
    linear = PrivateLinearRegression(**facts).fit(task.X, task.y)
    found, bends = {"linear": task.scored(linear.predict(task.X_test))}, False
    for name, settings in MODELS.items():
        model = PrivateAdditiveRegressor(**facts, **settings).fit(task.X, task.y)
        found[name] = task.scored(model.predict(task.X_test))
        if name == "default":
            bends = any(shape.is_number and len(shape.at) > 2 for shape in model.shapes_.shapes.values())
    return found, bends


def main() -> None:
    from dpcvx import Budget
    from dpcvx.planning.additive import precision

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    cells: dict[str, dict[str, float | bool]] = {}
    for question in tables.questions(tables.DEVELOPMENT):
        if question.positive is not None:
            continue
        task = tables.load(question, 0)
        known = {
            epsilon: precision(len(task.y), Budget(epsilon, task.delta), task.X.shape[1])
            for epsilon in EPSILONS
        }
        asked = [epsilon for epsilon, value in known.items() if RANGE[0] <= value < RANGE[1]]
        if not asked:
            continue
        tasks = [tables.load(question, seed) for seed in range(options.seeds)]
        for epsilon in asked:
            each = [scores(task, epsilon, seed) for seed, task in enumerate(tasks)]
            gains = {
                name: round(float(np.mean([found[name] - found["linear"] for found, _ in each])), 4)
                for name in MODELS
            }
            bends = sum(bent for _, bent in each) > len(each) / 2
            cells[f"{question.name} {question.target} {epsilon:g}"] = {**gains, "shapes": bends}
            print(
                f"{task.name}, epsilon {epsilon:g}, n mu/d {known[epsilon]:.0f}: {gains} {bends}", flush=True
            )
    for bends in (True, False):
        chosen = [cell for cell in cells.values() if cell["shapes"] is bends]
        for name in MODELS:
            gains_of = np.array([cell[name] for cell in chosen])
            print(
                f"default has {'shapes' if bends else 'lines'}, {len(chosen)} cells, {name}: mean "
                f"{gains_of.mean():+.4f}, from {gains_of.min():+.4f} to {gains_of.max():+.4f}"
            )
    (FOLDER / "additive_knots.json").write_text(json.dumps(cells, indent=1) + "\n")


if __name__ == "__main__":
    main()
