"""Coverage of the intervals of private scores, by simulation of their noise.

    python benchmarks/private_scores.py [--draws 2000] [--write]

For each situation a model is fitted with a large epsilon, the totals of each metric are computed once, and
noise is drawn again and again as a private score draws it. An interval covers if it holds the metric of the
exact totals. Beside it: the rule of versions before 0.2, the noisy value plus and minus 1.96 standard errors
by finite differences, hidden from a standard error of 0.5 on; and searches, in which the best of a random
number of noisy scores of equal models is released. With --write figures go into docs/figures/
private_scores.json and the table into docs/tuning.md.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

import dpcvx as dp
from dpcvx.events import Gaussian, PureDP
from dpcvx.noise import SeededGenerator, lattice_gaussian, lattice_laplace
from dpcvx.tuning.metrics import CLASSIFICATION, MEANS, REGRESSION, metric_of
from dpcvx.tuning.repetitions import LAWS, repetitions
from dpcvx.tuning.score import NoisyScore
from figures import read_cell, replace_cell, stored, write_part

TRIALS = 10.0  # expected number of trials of a simulated search
Rows = tuple[np.ndarray, np.ndarray, dict[str, Any]]


def classes(n: int, share: float, slope: float = 1.5, k: int = 2) -> Callable[[Any], Rows]:
    """Return how rows of two classes are drawn, or of k equally large ones."""

    def draw(rng: Any) -> Rows:
        X = rng.normal(size=(n, 3))
        if k > 2:
            y = (X[:, :1] * slope + 2 * np.arange(k) / k + rng.gumbel(size=(n, k))).argmax(axis=1)
        else:
            score = slope * X[:, 0] - X[:, 1] / 2 + rng.logistic(size=n)
            y = (score > np.quantile(score, 1 - share)).astype(int)
        return X, y, {"bounds": (-4, 4), "classes": list(range(k))}

    return draw


def numbers(
    n: int, signal: float, bounds: tuple[float, float], tail: float = 0.0, missing: float = 0.0
) -> Callable[[Any], Rows]:
    """Return how rows of a number are drawn; `tail`: standard deviation of logarithms, of log-normal ones."""

    def draw(rng: Any) -> Rows:
        X = rng.normal(size=(n, 3))
        y = signal * X[:, 0] + math.sqrt(1 - signal**2) * rng.normal(size=n)
        y = np.exp(tail * y) if tail else y
        y = np.clip(y, *bounds)
        y[rng.uniform(size=n) < missing] = np.nan
        return X, y, {"bounds": (-4, 4), "y_bounds": bounds}

    return draw


def counts(n: int, mean: float, largest: float, spread: float = 0.0) -> Callable[[Any], Rows]:
    """Return how rows of a count are drawn; `spread`: standard deviation of log rates, X given."""

    def draw(rng: Any) -> Rows:
        X = rng.normal(size=(n, 3))
        rate = mean * np.exp(0.5 * X[:, 0] + spread * rng.normal(size=n) - spread**2 / 2)
        return X, np.minimum(rng.poisson(rate), largest), {"bounds": (-4, 4), "y_bounds": (0, largest)}

    return draw


LOGISTIC, LINEAR, POISSON = (
    dp.PrivateLogisticRegression,
    dp.PrivateLinearRegression,
    dp.PrivatePoissonRegressor,
)
# model, how rows are drawn, epsilon of a score
SITUATIONS: dict[str, tuple[Any, Callable[[Any], Rows], float]] = {
    "20,000 rows, 30 %": (LOGISTIC, classes(20_000, 0.3), 1.0),
    "300 rows, half": (LOGISTIC, classes(300, 0.5), 0.5),
    "5,000 rows, 2 %": (LOGISTIC, classes(5_000, 0.02), 1.0),
    "2,000 rows, 1 %": (LOGISTIC, classes(2_000, 0.01), 0.3),
    "40,000 rows, .2 %": (LOGISTIC, classes(40_000, 0.002), 2.0),
    "1,000 rows, six classes": (LOGISTIC, classes(1_000, 0.0, k=6), 0.5),
    "20,000 rows, R² .36": (LINEAR, numbers(20_000, 0.6, (-5, 5)), 1.0),
    "400 rows, R² .36": (LINEAR, numbers(400, 0.6, (-5, 5)), 0.5),
    "5,000 rows, R² .01, wide bounds": (LINEAR, numbers(5_000, 0.1, (-60, 60)), 1.0),
    "2,000 rows, R² .8, wide bounds": (LINEAR, numbers(2_000, 0.9, (-20, 20)), 1.0),
    "5,600 rows, R² .01, long tail": (LINEAR, numbers(5_600, 0.2, (0, 300), 1.4), 1.0),
    "50,000 rows, R² .1, long tail": (LINEAR, numbers(50_000, 0.5, (0, 100), 1.4), 1.0),
    "3,000 rows, R² .36, 90 % missing": (LINEAR, numbers(3_000, 0.6, (-5, 5), missing=0.9), 1.0),
    "20,000 counts, mean 2": (POISSON, counts(20_000, 2, 30), 1.0),
    "500 counts, mean 2": (POISSON, counts(500, 2, 30), 0.5),
    "10,000 counts, mean .05": (POISSON, counts(10_000, 0.05, 10), 1.0),
    "5,000 counts, long tail": (POISSON, counts(5_000, 1, 100, 1.5), 1.0),
    "30,000 counts, long tail": (POISSON, counts(30_000, 1, 100, 1.5), 2.0),
}


def old_rule(asked: NoisyScore, totals: np.ndarray) -> tuple[float, float]:
    """Return the value and standard error as they were stated before intervals."""
    moves = asked.deviation * np.eye(asked.n_draws)
    value = asked.metric.value
    halves = [(value(totals + move, asked.n) - value(totals - move, asked.n)) / 2 for move in moves]
    return asked.value(totals), math.hypot(*halves)


def measure(situation: str, draws: int) -> dict[str, dict[str, float]]:
    """Return figures of each metric in one situation."""
    kind, draw, epsilon = SITUATIONS[situation]
    X, y, declared = draw(np.random.default_rng(3))
    model = kind(epsilon=50.0, random_state=1, **declared).fit(X, y)
    k = len(declared.get("classes", ()))
    names = {LOGISTIC: CLASSIFICATION, LINEAR: REGRESSION, POISSON: MEANS}[kind]
    rng, found = SeededGenerator(7), {}
    for name in names:
        if name == "roc_auc" and k != 2:
            continue
        metric = metric_of(model, name, n_classes=k)
        asked = NoisyScore(metric, len(y), PureDP(epsilon))
        exact = metric.totals(model, X, y) / asked._unit
        truth = asked.value(exact)
        plain = roc_auc_score(y, model.decision_function(X)) if name == "roc_auc" else truth
        rows = []
        for _ in range(draws):
            totals = exact + lattice_laplace(asked._scale, asked.n_draws, rng) / asked._unit
            one, (value, error) = asked.measured(totals), old_rule(asked, totals)
            low, high = one.interval
            before = abs(value - truth) <= 1.96 * error
            rows.append((one.hidden, low <= truth <= high, low <= plain <= high, error >= 0.5, before))
        hidden, covered, real, unsaid, before = np.array(rows).T.astype(bool)
        # Gaussian noise of a search in which a run has about the same epsilon.
        search = NoisyScore(metric, len(y), Gaussian(4.0 / epsilon))
        best = []
        for _ in range(draws):
            trials = [
                exact + lattice_gaussian(search._scale, search.n_draws, rng) / search._unit
                for _ in range(repetitions(TRIALS, LAWS["geometric"], rng))
            ]
            one = search.measured(max(trials, key=search.value), 0.05 / TRIALS)
            best.append((one.hidden, one.interval[0] <= truth <= one.interval[1]))
        gone, chosen = np.array(best).T.astype(bool)
        found[name] = {
            "truth": truth,
            "hidden": float(hidden.mean()),
            "covered": float(covered.mean()),
            "covered_unbinned": float(real.mean()),
            "wrong": float((~covered & ~hidden).mean()),
            "hidden_before": float(unsaid.mean()),
            "covered_before": float(before.mean()),
            "wrong_before": float((~before & ~unsaid).mean()),
            "search_hidden": float(gone.mean()),
            "search_covered": float(chosen.mean()),
        }
    return found


def lines(figures: dict[str, float]) -> list[str]:
    """Return the table, with the two metrics of each situation that were covered worst before."""
    head = ["rows", "score", "true value", "covered", "hidden", "before: covered", "before: hidden"]
    table = ["| " + " | ".join([*head, "search: covered"]) + " |", "|---|---|---:|---:|---:|---:|---:|---:|"]
    cells = {key.partition(":")[0]: read_cell(figures, key.partition(":")[0]) for key in figures}
    for situation in SITUATIONS:
        found = [(*name.split("/"), cell) for name, cell in cells.items() if name.startswith(f"{situation}/")]
        for _, name, cell in sorted(found, key=lambda each: each[2]["covered_before"])[:2]:
            shown = [f"{cell['truth']:.3g}", f"{cell['covered']:.1%}", f"{cell['hidden']:.0%}"]
            shown += [f"{cell['covered_before']:.1%}", f"{cell['hidden_before']:.0%}"]
            row = [situation, name, *shown, f"{cell['search_covered']:.1%}"]
            table.append(f"| {' | '.join(row)} |")

    def least(key: str) -> float:
        return min(cell[key] for cell in cells.values())

    wrong, before = (max(cell[key] for cell in cells.values()) for key in ("wrong", "wrong_before"))
    return [
        *table,
        "",
        f"In all {len(cells)} cells coverage is at least {least('covered'):.1%} (before: "
        f"{least('covered_before'):.1%}), and at least {least('search_covered'):.1%} for the best score of a "
        "search. A value was shown and missed by its interval in at most "
        f"{wrong:.1%} of the draws of a cell (before: {before:.1%}). Intervals of the area hold the area "
        f"without bins in at least {least('covered_unbinned'):.1%}.",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--only", nargs="+", choices=[*SITUATIONS], default=[*SITUATIONS])
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for situation in options.only:
        for name, found in measure(situation, options.draws).items():
            print(situation, name, {key: round(value, 3) for key, value in found.items()}, flush=True)
            if options.write:
                replace_cell("private_scores", f"{situation}/{name}", found)
    if options.write:
        table = lines(stored("private_scores"))
        print("\n".join(table))
        write_part("tuning.md", "private_scores", table)


if __name__ == "__main__":
    main()
