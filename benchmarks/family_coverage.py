"""Coverage of the intervals of models of means, on simulated records.

    python benchmarks/family_coverage.py poisson 8000 2 300     # model, records, epsilon, fits

Five slopes and an intercept; features are normal, binary and exponential. Counts have the variance of a
negative binomial law, amounts are gamma and shares beta. Fits in which noise hides a direction are counted
apart.
"""

from __future__ import annotations

import sys
import warnings

import numpy as np

import dpcvx as dp

SLOPES = np.array([0.5, -0.3, 0.2, 0.0, 0.0])


def main() -> None:
    """Print the share of intervals that cover, for each coefficient."""
    name, n, epsilon, fits = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
    warnings.simplefilter("ignore")
    truth, hidden, found = np.append(SLOPES, -0.5 if name == "fractional" else 1.0), 0, []
    for seed in range(1000, 1000 + fits):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(n, 5))
        X[:, 1], X[:, 2] = (X[:, 1] > 0) - 0.5, rng.exponential(size=n) - 1
        z = X @ SLOPES + truth[-1]
        given = {"epsilon": epsilon, "bounds": (-6, 6), "random_state": seed - 1000, "uncertainty": 0.2}
        if name == "poisson":
            y = rng.poisson(np.exp(z) * rng.gamma(2, 0.5, n))
            model = dp.PrivatePoissonRegressor(y_bounds=(0, 60), **given)
        elif name == "gamma":
            y, model = rng.gamma(2, np.exp(z) / 2), dp.PrivateGammaRegressor(y_bounds=(0, 100), **given)
        else:
            mean = 1 / (1 + np.exp(-z))
            y, model = rng.beta(3 * mean, 3 * (1 - mean)), dp.PrivateFractionalRegressor(**given)
        model.fit(X, y)
        if model._uncertainty.weak:
            hidden += 1
            continue
        low, high = np.vstack([model.coef_interval(), model.intercept_interval()]).T
        found.append((low <= truth) & (truth <= high))
    share = np.mean(found, axis=0)
    print(f"{name}, n={n}, epsilon={epsilon:g}: {hidden} of {fits} fits hidden; coverage of slopes", end=" ")
    print(f"{share[:-1].mean():.3f}, of each coefficient {share.round(3)}")


if __name__ == "__main__":
    main()
