"""Tables of statsmodels beside private ones, on the same data; and a simulation of widths and coverage.

The simulation draws 1,000 records of two features --runs times, and compares root mean square error, width
and coverage of 95 % intervals of least squares with HC1 errors and of private fits at epsilon 1, 5 and 10.
Then come statsmodels' own table (OLS, cov_type="HC1") of the three regressions of benchmarks/textbook.py and
the private one at each --epsilon, both as they are printed. Needs the bench extra. Prints Markdown.
"""

import argparse
import warnings

import numpy as np
import statsmodels.api as sm

import dpcvx as dp
from textbook import demand, labour, schooling

EPSILONS = (1.0, 5.0, 10.0)
N, COEF, INTERCEPT = 1000, np.array([2.0, -1.0]), 1.0


def table(make, options):
    """Print both tables of one regression."""
    title, X, y, bounds, y_bounds = make()
    bounds = {name: bounds.get(name, (0, 1)) for name in X.columns}
    theirs = sm.OLS(y, sm.add_constant(X)).fit(cov_type="HC1")
    settings = {"bounds": bounds, "y_bounds": y_bounds, "uncertainty": options.share}
    print(f"\n## {title}, n = {len(X):,}\n\n```text\n{theirs.summary().tables[1]}")
    print(f"R-squared: {theirs.rsquared:.3f}\n```\n")
    for epsilon in options.epsilon:
        model = dp.PrivateLinearRegression(epsilon=epsilon, random_state=options.seed, **settings)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, y)
        print(f"```text\n{model.summary()}\n```\n")


def simulate(options):
    """Print the simulation."""
    found = {name: [] for name in ("statsmodels", *EPSILONS)}
    models = {
        epsilon: dp.PrivateLinearRegression(
            epsilon=epsilon, bounds=(-4, 4), y_bounds=(-10, 12), uncertainty=options.share
        )
        for epsilon in EPSILONS
    }
    hidden = dict.fromkeys(EPSILONS, 0)
    for seed in range(options.runs):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(N, 2))
        y = INTERCEPT + X @ COEF + rng.normal(size=N)
        theirs = sm.OLS(y, sm.add_constant(X)).fit(cov_type="HC1")
        found["statsmodels"].append((theirs.params[1:], *theirs.conf_int()[1:].T))
        for epsilon, model in models.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.set_params(random_state=seed).fit(X, y)
                found[epsilon].append((model.coef_debiased_, *model.coef_interval().T))
            hidden[epsilon] += model._uncertainty.weak > 0
    print(f"\n## n = {N:,}, two features, {options.runs} runs\n")
    print("| | RMSE | median width | covered | runs with a hidden direction |\n|---|---:|---:|---:|---:|")
    for name, runs in found.items():
        estimates, low, high = (np.array(part) for part in zip(*runs, strict=True))
        error = np.sqrt(np.mean((estimates - COEF) ** 2))
        inside = 100 * np.mean((low < COEF) & (high > COEF))
        label = name if isinstance(name, str) else f"dpcvx, epsilon {name:g}"
        warned = f"{100 * hidden[name] / options.runs:.0f} %" if name in hidden else ""
        print(f"| {label} | {error:.3f} | {np.median(high - low):.3f} | {inside:.1f} % | {warned} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 4.0])
    parser.add_argument("--share", type=float, default=0.2)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    simulate(options)
    for make in (schooling, demand, labour):
        table(make, options)


if __name__ == "__main__":
    main()
