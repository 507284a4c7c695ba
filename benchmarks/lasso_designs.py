"""R^2 of private models with few coefficients among many correlated features, with every default.

Rows are a stationary Gaussian process with correlation 0.7 between neighbouring features ("normal", "wide"),
or its exponential ("log-normal"); ten coefficients of +-1 at random places; noise so that the truth has an
R^2 of 0.65. Bounds are the minima and maxima of the columns, three times as wide for "wide". n = 10,000
records, 1,000 features, delta = 1/n^2; R^2 on 10,000 other rows.

    python benchmarks/lasso_designs.py [--seeds 5] [--epsilons 1 4] [--models lasso elastic_net]

Each cell is written to docs/figures/lasso_designs.json as soon as it is measured.
"""

import argparse
import math
import time
import warnings

import numpy as np

import dpcvx
from figures import update

TRUTH = 0.65
NEIGHBOURS = 0.7  # correlation of neighbouring features
COEFFICIENTS = 10
MODELS = {
    "lasso": dpcvx.PrivateLasso,
    "elastic_net": dpcvx.PrivateElasticNet,
    "huber": lambda **settings: dpcvx.PrivateHuberRegressor(domain="l1", **settings),
    "median": lambda **settings: dpcvx.PrivateQuantileRegressor(domain="l1", **settings),
    "linear": dpcvx.PrivateLinearRegression,
}
DESIGNS = ("normal", "wide", "log-normal")


def draw(design, n, p, seed):
    """Rows and targets for a fit, rows and targets for its score, and the columns' bounds."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((2 * n, p))
    for j in range(1, p):
        X[:, j] = NEIGHBOURS * X[:, j - 1] + math.sqrt(1 - NEIGHBOURS**2) * X[:, j]
    if design == "log-normal":
        X = np.exp(X)
    places = rng.choice(p, COEFFICIENTS, replace=False)
    signal = X[:, places] @ rng.choice([-1.0, 1.0], COEFFICIENTS)
    y = signal + rng.standard_normal(2 * n) * signal.std() * math.sqrt(1 / TRUTH - 1)
    half = 1.5 if design == "wide" else 0.5  # of the width between the extremes

    def bounds(values):
        low, high = values.min(axis=0), values.max(axis=0)
        return (low + high) / 2 - half * (high - low), (low + high) / 2 + half * (high - low)

    return X[:n], y[:n], X[n:], y[n:], bounds(X[:n]), tuple(map(float, bounds(y[:n])))


def score(model, design, epsilon, *, n, p, seed):
    """R^2 of a default fit, its solver, whether it warned that it may be useless, and its seconds."""
    X, y, X_new, y_new, bounds, y_bounds = draw(design, n, p, seed)
    fit = MODELS[model](epsilon=epsilon, delta=1 / n**2, bounds=bounds, y_bounds=y_bounds, random_state=seed)
    started = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit.fit(X, y)
    seconds = time.perf_counter() - started
    useless = any(issubclass(each.category, dpcvx.UselessModelWarning) for each in caught)
    residual = y_new - fit.predict(X_new)
    return 1 - np.mean(residual**2) / np.var(y_new), fit.plan_.solver, useless, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=100, help="defaults were chosen on seeds below 100")
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 4.0])
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=["lasso", "elastic_net"])
    parser.add_argument("--designs", nargs="+", choices=DESIGNS, default=list(DESIGNS))
    parser.add_argument("--n", type=int, default=10_000)
    parser.add_argument("--p", type=int, default=1_000)
    options = parser.parse_args()
    for model in options.models:
        for design in options.designs:
            for epsilon in options.epsilons:
                cells = [
                    score(model, design, epsilon, n=options.n, p=options.p, seed=seed)
                    for seed in range(options.first_seed, options.first_seed + options.seeds)
                ]
                scores = [each[0] for each in cells]
                error = np.std(scores, ddof=1) / math.sqrt(len(scores)) if len(scores) > 1 else math.nan
                warned, seconds = sum(each[2] for each in cells), np.median([each[3] for each in cells])
                print(
                    f"{model:<12} {design:<10} eps {epsilon:<4g} R2 {np.mean(scores):6.3f} +- {error:.3f}  "
                    f"{warned} warned  {seconds:5.1f} s  {cells[0][1]!r}",
                    flush=True,
                )
                cell = f"{model}_{design}_{epsilon:g}"
                figures = {"": float(np.mean(scores)), "_error": float(error), "_seeds": len(scores)}
                update("lasso_designs", {f"{cell}{kind}": value for kind, value in figures.items()})


if __name__ == "__main__":
    main()
