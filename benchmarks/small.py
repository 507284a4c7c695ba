"""Regression with few records: R^2 of default fits on the development tables, and whether they warn.

Tables are those of `tables.py`, cut to a few sizes; the bounds of the target may be made wider by a factor,
off centre, as a careless declaration would be. A fit is bad where it is worse than the mean of its records by
more than 0.05 of the variance. Printed: means of R^2 by n mu for each coefficient, bad fits without a
warning, and warnings of fits that explain more than 0.05.
"""

import argparse
import json
import warnings
from itertools import pairwise, product

import numpy as np

from dpcvx import PrivateLinearRegression, UselessModelWarning
from dpcvx.accounting import gaussian_mu
from figures import update
from tables import DEVELOPMENT, load, questions

SIZES = (300, 1000, 4000, 15_000)
EDGES = (0, 1, 4, 16, 40, 100, np.inf)  # of n mu for each coefficient
BAD = -0.05


def widened(bounds: tuple[float, float], factor: float, rng: np.random.Generator) -> tuple[float, float]:
    """Bounds that are wider by a factor, the old ones anywhere in their middle half."""
    middle, half = sum(bounds) / 2, (bounds[1] - bounds[0]) / 2
    shift = rng.uniform(-0.5, 0.5) if factor > 1 else 0.0
    return middle - half * factor * (1 + shift), middle + half * factor * (1 - shift)


def fits(epsilon: float, n: int, wide: float, seeds: int) -> list[tuple[float, float, bool]]:
    """(n mu/d, R^2 against the mean of the fitted records, whether it warned) of each fit to n records."""
    found = []
    for question in questions(DEVELOPMENT):
        if question.positive is not None:
            continue
        for seed in range(seeds):
            task = load(question, seed)
            if len(task.y) < n:
                break
            X, y = task.X.iloc[:n], task.y[:n]
            declared = dict(task.declared)
            declared["y_bounds"] = widened(declared["y_bounds"], wide, np.random.default_rng(seed))
            model = PrivateLinearRegression(epsilon=epsilon, delta=1 / n**2, random_state=seed, **declared)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                model.fit(X, y)
            warned = any(each.category is UselessModelWarning for each in caught)
            errors = task.y_test - model.predict(task.X_test)
            score = 1 - np.mean(errors**2) / np.mean((task.y_test - y.mean()) ** 2)
            found.append((n * gaussian_mu(epsilon, 1 / n**2) / len(model.coef_), float(score), warned))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.1, 0.3, 1.0, 4.0])
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--wide", type=float, default=1.0, help="factor of the width of y_bounds")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--dry", action="store_true", help="write no figures")
    options = parser.parse_args()
    found = np.array(
        [
            each
            for n, epsilon in product(options.sizes, options.epsilons)
            for each in fits(epsilon, n, options.wide, options.seeds)
        ]
    )
    signal, scores, warned = found.T
    figures: dict[str, float] = {"fits": len(found)}
    for low, high in pairwise(EDGES):
        chosen = (signal >= low) & (signal < high)
        if chosen.any():
            figures[f"r2_{low:g}"] = float(np.mean(scores[chosen]))
    figures["bad_unwarned"] = int(np.sum((scores < BAD) & (warned == 0)))
    figures["worst_unwarned"] = float(np.min(scores[warned == 0], initial=np.inf))
    figures["warned"] = int(np.sum(warned))
    figures["useful_warned"] = int(np.sum((scores > -BAD) & (warned == 1)))
    print(json.dumps(figures, indent=2))
    if not options.dry:
        update("small", {f"wide{options.wide:g}_{name}": value for name, value in figures.items()})


if __name__ == "__main__":
    main()
