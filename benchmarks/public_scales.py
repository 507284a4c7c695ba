"""Scales of columns from public rows, and a private test of them: is it worth building?

python benchmarks/public_scales.py            # 2 splits, into docs/figures/public_scales.json

A prototype in terms of the estimators that exist. The first 100 records of a development table are public,
without targets; the private ones are standardised by the means and standard deviations of the public numbers,
clipped at three of them, before a default fit with bounds (-1, 1). "squeezed" rows mislead: each of their
numbers is moved nine tenths of the way to the lower end of its bounds. Fits that standardise by released
numbers anyway are left out. The test releases the mean square of
all clipped cells of the private numbers, for a share of mu^2: where it is not within a factor of two of that
of the public rows, the fit is the default one, with what is left of the budget. Scores are AUC or R^2, as
differences from the default without public rows.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from typing import Any

import numpy as np

import tables
from figures import FOLDER

PUBLIC = 100
SHARE = 0.05  # of mu^2 for the test
EPSILONS = (0.1, 0.3)


def _kind(task: Any) -> Any:
    from dpcvx import PrivateLinearRegression, PrivateLogisticRegression

    return PrivateLogisticRegression if task.classifies else PrivateLinearRegression


def fit(task: Any, X: Any, y: Any, test: Any, settings: dict[str, Any]) -> float:
    """Return the score of a fit to some columns, with declarations changed by settings."""
    model = _kind(task)(**{**task.declared, **settings}).fit(X, y)
    return task.scored(getattr(model, "decision_function", model.predict)(test))


def scores(task: Any, epsilon: float, seed: int, *, squeezed: bool) -> dict[str, float]:
    """Return scores of the default, of public scales, and of public scales that are tested first."""
    from dpcvx.accounting import gaussian_epsilon, gaussian_mu

    names = list(task.declared["bounds"])
    X, y = task.X.iloc[PUBLIC:].reset_index(drop=True), task.y[PUBLIC:]
    rows, n = task.X.iloc[:PUBLIC].copy(), len(y)
    low = np.array([task.declared["bounds"][name][0] for name in names])
    if squeezed:
        rows[names] = low + 0.1 * (rows[names] - low)
    mean, deviation = (
        rows[names].mean(),
        rows[names].std().clip(lower=1e-3 * (rows[names].abs().max() + 1e-9)),
    )

    def scaled(table: Any) -> Any:
        again = table.copy()
        again[names] = ((table[names] - mean) / (3 * deviation)).clip(-1, 1)
        return again

    delta = 1 / n**2
    facts = {"epsilon": epsilon, "delta": delta, "random_state": seed}
    public = {"bounds": dict.fromkeys(names, (-1, 1))}
    default = _kind(task)(**task.declared, **facts)
    if default.plan(n, list(X)).solver.standardises:
        return {}
    found = {"default": fit(task, X, y, task.X_test, facts)}
    found["public"] = fit(task, scaled(X), y, scaled(task.X_test), {**facts, **public})
    mu = gaussian_mu(epsilon, delta)
    left = {**facts, "epsilon": gaussian_epsilon(mu * math.sqrt(1 - SHARE), delta)}
    own, expected = ((scaled(each)[names] ** 2).to_numpy().mean() for each in (X, rows))
    answer = own + np.random.default_rng(seed).normal() / (n * mu * math.sqrt(SHARE))
    if expected / 2 < answer < 2 * expected:
        found["tested"] = fit(task, scaled(X), y, scaled(task.X_test), {**left, **public})
    else:
        found["tested"] = fit(task, X, y, task.X_test, left)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after so many")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    end = time.monotonic() + 60 * options.minutes
    gains: dict[str, list[float]] = {}
    for question in tables.questions(tables.DEVELOPMENT):
        for seed in range(options.seeds):
            if time.monotonic() > end:
                break
            task = tables.load(question, seed)
            if not 3 * PUBLIC <= len(task.y) <= 8000 or not task.declared["bounds"]:
                continue
            for epsilon, squeezed in ((e, s) for e in EPSILONS for s in (False, True)):
                found = scores(task, epsilon, seed, squeezed=squeezed)
                for name in ("public", "tested") if found else ():
                    gain = max(found[name], -1.0) - max(found["default"], -1.0)
                    key = f"{'labels' if task.classifies else 'numbers'} eps{epsilon:g} {name}"
                    gains.setdefault(f"{key}{' squeezed' if squeezed else ''}", []).append(gain)
    figures = {}
    for key, each in sorted(gains.items()):
        mean, error = np.mean(each), np.std(each, ddof=1) / math.sqrt(len(each))
        print(f"{key}: {mean:+.4f} ± {error:.4f} ({len(each)} fits)", flush=True)
        figures[key] = [round(float(mean), 4), round(float(error), 4), len(each)]
    (FOLDER / "public_scales.json").write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
