"""R^2 of `PrivateLowRankRegression` on generated designs, none of which is that of the leaderboard.

Run `python benchmarks/low_rank_designs.py`: some minutes. Targets are scaled by released numbers, or by
their bounds (``standardize=False``).
"""

import warnings

import numpy as np

from dpcvx import PrivateLowRankRegression

EPSILONS = (0.1, 0.3, 1.0, 4.0)
SEEDS = (0, 1)
# records, columns, targets, rank, R^2 of the truth, half of the width of y_bounds, skewed or not
DESIGNS = (
    (12_000, 20, 6, 2, 0.6, 6.0, False),
    (8_000, 10, 4, 1, 0.5, 4.0, False),
    (30_000, 40, 12, 3, 0.7, 8.0, False),
    (10_000, 15, 5, 2, 0.5, 10.0, True),
    (40_000, 25, 10, 3, 0.5, 6.0, True),
)


def draw(seed, n, p, K, rank, r2, skewed, new=4000):
    """Return rows and targets, the last ones to test on; skewed errors grow with the first column."""
    rng, total = np.random.default_rng([seed, 77]), n + new
    X = np.clip(rng.gamma(2, 0.6, (total, p)), 0, 5) if skewed else rng.uniform(0, 5, (total, p))
    signal = (X - X.mean(axis=0)) @ rng.standard_normal((p, rank)) @ rng.standard_normal((rank, K))
    errors = rng.standard_normal((total, K))
    if skewed:
        errors = (rng.exponential(1, (total, K)) - 1) * np.exp(0.3 * (X[:, :1] - 1))
    return X, signal / signal.std() + errors * np.sqrt(1 / r2 - 1)


def score(seed, epsilon, design, **settings):
    """Return R^2 on new records, the mean over the targets."""
    n, p, K, rank, r2, width, skewed = design
    X, Y = draw(seed, n, p, K, rank, r2, skewed)
    declared = {"bounds": (0, 5), "y_bounds": (-width, width), "delta": 1 / n**2}
    model = PrivateLowRankRegression(epsilon=epsilon, random_state=seed, **declared, **settings)
    errors = Y[n:] - model.fit(X[:n], Y[:n]).predict(X[n:])
    return float(np.mean(1 - (errors**2).mean(axis=0) / Y[n:].var(axis=0)))


def main():
    """Print a line for each design and kind of scale."""
    warnings.simplefilter("ignore")
    print("epsilon", *EPSILONS)
    for design in DESIGNS:
        for scale, settings in (("released", {}), ("bounds", {"standardize": False})):
            scores = [
                np.mean([score(seed, epsilon, design, **settings) for seed in SEEDS]) for epsilon in EPSILONS
            ]
            print(design, scale, *(f"{each:.3f}" for each in scores), flush=True)


if __name__ == "__main__":
    main()
