"""What rows of the same person cost: excess of fits to rows repeated 1 to 50 times under their person's id.

Every row of a table is repeated a random number of times and fitted with ids of persons; the excess is
compared with that of the same estimator on the table itself, one row for each person. Persons with equal
weights should lose nothing. Both fits have the same standard normal draws, each multiplied by its own noise
scale, so that the ratio of two fits with the same plan is precise with few seeds; the check of the data,
which few persons cannot pay for, is off in both.

    python benchmarks/persons.py [seeds] [case ...]
"""

from __future__ import annotations

import sys
import warnings

import numpy as np

import dpcvx as dp
import dpcvx.noise.gaussian

N, D = 2000, 3
WEIGHTS = np.array([1.0, -0.6, 0.3])


def table(kind, generator):
    """Rows, targets, and the scores that generated them."""
    X = generator.uniform(-1, 1, (N, D))
    z = X @ WEIGHTS
    if kind is dp.PrivateLinearRegression:
        return X, z + 0.3 * generator.standard_normal(N), z
    return X, (generator.random(N) < 1 / (1 + np.exp(-3 * z))).astype(int), 3 * z


def excess(model, X, z):
    """Mean squared error beyond the noise, or Kullback-Leibler divergence from the true probabilities."""
    if isinstance(model, dp.PrivateLinearRegression):
        return np.mean((model.predict(X) - z) ** 2)
    best, chance = 1 / (1 + np.exp(-z)), model.predict_proba(X)[:, 1]
    return np.mean(best * np.log(best / chance) + (1 - best) * np.log((1 - best) / (1 - chance)))


class CommonDraws:
    """Gaussian noise of seeded fits in which the k-th question has the same standard normal draws."""

    def __init__(self):
        self.seed, self.question = 0, 0
        dpcvx.noise.gaussian.lattice_gaussian = self.draw

    def restart(self, seed):
        self.seed, self.question = seed, 0

    def draw(self, scale, size, rng):
        generator = np.random.default_rng([self.seed, self.question])
        self.question += 1
        return np.rint(scale * generator.standard_normal(size)).astype(np.int64)


def compare(kind, seeds, *, rows=None, persons=None):
    """Mean excess for rows and for persons, the ratio, and its standard error.

    `rows`, `persons`: further parameters of either fit.
    """
    declared = {"y_bounds": (-3, 3)} if kind is dp.PrivateLinearRegression else {"classes": (0, 1)}
    found, draws = [], CommonDraws()
    for seed in range(seeds):
        generator = np.random.default_rng(seed)
        X, y, z = table(kind, generator)
        owner = np.repeat(np.arange(N), generator.integers(1, 51, N))
        settings = {"epsilon": 1.0, "bounds": (-1, 1), "check": 0, "random_state": seed, **declared}
        draws.restart(seed)
        alone = kind(**settings, **(rows or {})).fit(X, y)
        draws.restart(seed)
        several = kind(**settings, **(persons or {})).fit(X[owner], y[owner], groups=owner)
        found.append((excess(alone, X, z), excess(several, X, z)))
    one, other = np.array(found).T
    ratio = other.mean() / one.mean()
    error = np.std(other - ratio * one, ddof=1) / np.sqrt(seeds) / one.mean()
    return one.mean(), other.mean(), ratio, error


CASES = {
    "linear, default": (dp.PrivateLinearRegression, {}, {}),
    "linear, not standardised": (dp.PrivateLinearRegression, {"standardize": False}, {"standardize": False}),
    "logistic, default": (dp.PrivateLogisticRegression, {}, {}),
    "logistic, not standardised": (
        dp.PrivateLogisticRegression,
        {"standardize": False},
        {"standardize": False},
    ),
    "logistic, gradient descent for both": (
        dp.PrivateLogisticRegression,
        {"standardize": False, "solver": "gradient_descent"},
        {"standardize": False, "solver": "gradient_descent"},
    ),
    "logistic, persons standardised": (
        dp.PrivateLogisticRegression,
        {"standardize": False},
        {"standardize": True},
    ),
    "logistic, persons by output perturbation, l2 = 0.01": (
        dp.PrivateLogisticRegression,
        {"standardize": False},
        {"standardize": False, "solver": dp.solvers.OutputPerturbation(), "l2": 0.01},
    ),
}


def main(seeds=20, *cases):
    """Print a row for each case."""
    warnings.simplefilter("ignore")
    for name in cases or CASES:
        kind, rows, persons = CASES[name]
        one, other, ratio, error = compare(kind, int(seeds), rows=rows, persons=persons)
        print(f"{name:52s} rows {one:.5f}  persons {other:.5f}  ratio {ratio:.3f} +- {error:.3f}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
