"""All products of pairs, or a dozen that the fit selects: regressions with few records for each pair.

python benchmarks/additive_pairs.py            # 2 splits, into docs/figures/additive_pairs.json

Tables of the development list with 2,000 rows or more, up to 300 pairs and fewer than 200 records for each.
Most are small, so that epsilon is 4 to 32: cells are kept where n mu/d is 400 to 1,700. Scores are gains of
R^2 over straight lines on a fifth of the rows.
"""

from __future__ import annotations

import argparse
import json
import warnings

import numpy as np

import tables
from figures import FOLDER

EPSILONS = (4.0, 8.0, 16.0, 32.0)
MODELS = {"lines": (0, "none"), "shapes": (5, "none"), "all products": (5, "all"), "a dozen": (5, 12)}


def main() -> None:
    from dpcvx import Budget, PrivateAdditiveRegressor
    from dpcvx.planning.additive import MOST_PAIRS, RECORDS_OF_A_PAIR, precision

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    gains: dict[str, dict[str, dict[str, float]]] = {}
    for question in tables.questions(tables.DEVELOPMENT):
        if question.rows < 2_000 or question.positive is not None:
            continue
        tasks = [tables.load(question, seed) for seed in range(options.seeds)]
        numbers = len(tasks[0].declared["bounds"])
        levels = [len(each) for each in (tasks[0].declared["categories"] or {}).values()]
        flags = sum(size if size > 2 else 1 for size in levels)
        pairs, n = numbers * (numbers - 1) // 2 + numbers * flags, len(tasks[0].y)
        if not n // RECORDS_OF_A_PAIR < pairs <= MOST_PAIRS:
            continue
        for epsilon in EPSILONS:
            if not 390 <= precision(n, Budget(epsilon, tasks[0].delta), numbers + len(levels)) < 1_700:
                continue
            scores: dict[str, list[float]] = {}
            for seed, task in enumerate(tasks):
                for name, (knots, interactions) in MODELS.items():
                    model = PrivateAdditiveRegressor(
                        epsilon=epsilon,
                        delta=task.delta,
                        random_state=seed,
                        knots=knots,
                        interactions=interactions,
                        **task.declared,
                    ).fit(task.X, task.y)
                    scores.setdefault(name, []).append(task.scored(model.predict(task.X_test)))
            lines = np.array(scores.pop("lines"))
            cell = {name: round(float(np.mean(each - lines)), 4) for name, each in scores.items()}
            gains.setdefault(f"{question.name} {question.target}", {})[f"{epsilon:g}"] = cell
            print(
                f"{question.name} {question.target}, {pairs} pairs, n {n}, epsilon {epsilon:g}: {cell}",
                flush=True,
            )
    for name in list(MODELS)[1:]:
        means = np.array([np.mean([cell[name] for cell in cells.values()]) for cells in gains.values()])
        print(
            f"{name}: mean {means.mean():+.4f}; more than 0.003 below lines: {(means < -0.003).sum()} of "
            f"{len(means)} tables"
        )
    (FOLDER / "additive_pairs.json").write_text(json.dumps(gains, indent=1) + "\n")


if __name__ == "__main__":
    main()
