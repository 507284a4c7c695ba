"""Accuracy and log-loss of `PrivateLogisticRegression` of several classes, on data of no other benchmark.

Images of mnist (where the data folder has them) with pixels pooled to 7 x 7 or 14 x 14, normal classes around
random centres with wide bounds, and classes drawn by a logistic model of skewed columns. Beside it stands
clipped gradient descent with 100 steps, as on the leaderboard.

    python benchmarks/classes.py [--designs mnist7 ...] [--seeds 3] [--epsilons 0.1 0.3 1 4]

About three minutes. Clips, norms of rows and standardisation of several classes were chosen on seeds 0 to 15.
"""

import argparse
import math
import warnings

import numpy as np

from datasets import FOLDER
from dpcvx import PrivateLogisticRegression
from dpcvx.accounting import gaussian_mu
from leaderboard.solvers.dp_gd import descend

NEW = 3000  # records to test on


def mnist(side, n, seed):
    """Pooled images of digits."""
    with np.load(FOLDER / "mnist.npz") as stored:
        X, y = stored["X"], stored["y"]
    chosen = np.random.default_rng(seed).permutation(len(y))[: n + NEW]
    k = 28 // side
    X = X[chosen].reshape(-1, side, k, side, k).astype(float).mean(axis=(2, 4))
    return X.reshape(len(chosen), -1), y[chosen].astype(int), (0.0, 255.0)


def centres(d, K, n, seed):
    """Normal classes around random centres; the bounds are five standard deviations wide on each side."""
    rng = np.random.default_rng(seed)
    means = 3 * rng.standard_normal((K, d)) / math.sqrt(d)
    y = rng.choice(K, n + NEW, p=np.arange(1, K + 1) / (K * (K + 1) / 2))
    return np.clip(means[y] + rng.standard_normal((n + NEW, d)), -5, 5), y, (-5.0, 5.0)


def logistic(d, K, n, scale, seed):
    """Skewed columns, classes drawn by a logistic model."""
    rng = np.random.default_rng([seed, 5])
    X = np.clip(rng.gamma(2, 1, (n + NEW, d)) - 2, -2, 6)
    z = X @ rng.standard_normal((d, K)) * scale / math.sqrt(2 * d) + rng.standard_normal(K)
    return X, (z + rng.gumbel(size=z.shape)).argmax(axis=1), (-2.0, 10.0)


DESIGNS = {
    "mnist7": lambda seed: mnist(7, 1500, seed),
    "mnist14": lambda seed: mnist(14, 4000, seed),
    "centres": lambda seed: centres(20, 5, 5000, seed),
    "logistic3": lambda seed: logistic(10, 3, 8000, 1.0, seed),
    "logistic6": lambda seed: logistic(25, 6, 20_000, 1.5, seed),
}


def score(X, y, bounds, epsilon, seed):
    """Accuracy and log-loss of the default, accuracy of clipped descent."""
    n, K = len(y) - NEW, int(y.max()) + 1
    model = PrivateLogisticRegression(
        epsilon=epsilon, delta=1 / n**2, bounds=bounds, classes=tuple(range(K)), random_state=seed
    ).fit(X[:n], y[:n])
    logs = model.predict_log_proba(X[n:])
    low, high = bounds
    rows = np.column_stack([(2 * X - low - high) / (high - low), np.ones(len(X))])
    rng, mu = np.random.default_rng(seed), gaussian_mu(epsilon, 1 / n**2)
    theta = descend(rows[:n], np.eye(K)[y[:n]], "multiclass", 0.0, mu, 100, rng)
    return (
        np.mean(logs.argmax(axis=1) == y[n:]),
        -np.mean(logs[np.arange(NEW), y[n:]]),
        np.mean((rows[n:] @ theta).argmax(axis=1) == y[n:]),
    )


def main():
    """Print a line for each design and epsilon."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--designs", nargs="+", choices=list(DESIGNS), default=list(DESIGNS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.1, 0.3, 1.0, 4.0])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for design in options.designs:
        if design.startswith("mnist") and not (FOLDER / "mnist.npz").exists():
            print("skipped: mnist.npz is not in the data folder. Set DPCVX_DATA to a folder that holds it.")
            continue
        for epsilon in options.epsilons:
            scores = [score(*DESIGNS[design](seed), epsilon, seed) for seed in range(options.seeds)]
            (right, loss, peer), error = np.mean(scores, axis=0), np.std(scores, axis=0)[0]
            print(
                f"{design:<10} epsilon {epsilon:<4g} accuracy {right:.3f} +- "
                f"{error / math.sqrt(options.seeds):.3f}  log-loss {loss:.3f}  clipped descent {peer:.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
