"""R^2 of `PrivateGroupLasso` on generated designs, by its default and by other solvers.

    python benchmarks/group_designs.py            # some minutes; writes docs/figures/group_designs.json

None of the designs is that of the leaderboard, except for "two", which has other seeds here. The truth has an
R^2 of 0.65, and declared bounds are four standard deviations of normal columns.
"""

import argparse
import warnings

import numpy as np

from dpcvx import PrivateGroupLasso
from figures import save, write_part

EPSILONS = (0.1, 0.3, 1.0, 4.0)
SOLVERS = {
    "default": "auto",
    "gradient descent": "gradient_descent",
    "mirror descent": "mirror_descent",
    "accelerated": "accelerated_mirror_descent",
}
# sizes of the groups, number of useful ones (0: all, with norms 1, 1/2, 1/3, ...), correlation of neighbours
DESIGNS = {
    "two": ([10] * 20, 2, 0.0),
    "eight": ([10] * 20, 8, 0.0),
    "falling": ([10] * 20, 0, 0.0),
    "correlated": ([10] * 20, 3, 0.7),
    "sizes": ([1] * 10 + [5] * 10 + [20] * 5 + [40], 4, 0.0),
    "forty": ([5] * 40, 3, 0.0),
}


def draw(name, seed, n=10_000, new=2_500):
    """Return rows, targets and the group of each column; the last records are to test on."""
    sizes, useful, correlation = DESIGNS[name]
    rng = np.random.default_rng([seed, 7])
    labels = np.repeat(np.arange(len(sizes)), sizes)
    X = rng.standard_normal((n + new, len(labels)))
    for j in range(1, X.shape[1]):
        X[:, j] = correlation * X[:, j - 1] + np.sqrt(1 - correlation**2) * X[:, j]
    X = np.clip(X, -4, 4)
    norms = 1 / np.arange(1, len(sizes) + 1) if useful == 0 else np.arange(len(sizes)) < useful
    norms = rng.permutation(norms.astype(float))
    theta = rng.standard_normal(len(labels))
    lengths = np.sqrt(np.bincount(labels, theta**2))
    signal = X @ (theta * (norms / lengths)[labels])
    return X, signal / signal.std() + rng.standard_normal(len(X)) * np.sqrt(1 / 0.65 - 1), labels


def score(name, seed, epsilon, solver, n=10_000):
    """Return R^2 on new records."""
    X, y, labels = draw(name, seed, n)
    declared = {"bounds": (-4, 4), "y_bounds": (-6, 6), "groups": labels.tolist(), "delta": 1 / n**2}
    model = PrivateGroupLasso(epsilon=epsilon, random_state=seed, solver=solver, **declared)
    errors = y[n:] - model.fit(X[:n], y[:n]).predict(X[n:])
    return 1 - float((errors**2).mean() / y[n:].var())


def key(name, title, epsilon):
    """Return the name of a figure."""
    return f"{name}_{title.replace(' ', '_')}_{epsilon:g}"


def main():
    """Print and store the means over the seeds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found = {}
    for name in DESIGNS:
        for title, solver in SOLVERS.items():
            means = []
            for epsilon in EPSILONS:
                scores = [score(name, 100 + seed, epsilon, solver) for seed in range(options.seeds)]
                error = np.std(scores, ddof=1) / np.sqrt(len(scores)) if len(scores) > 1 else 0.0
                cell = key(name, title, epsilon)
                found |= {cell: float(np.mean(scores)), f"{cell}_error": float(error)}
                means.append(f"{np.mean(scores):.3f} ± {error:.3f}")
            print(f"{name:12} {title:18}", *means, flush=True)
    save("group_designs", found)
    head = [
        "| design | solver | " + " | ".join(f"ε = {epsilon:g}" for epsilon in EPSILONS) + " |",
        "|---" * 6 + "|",
    ]
    lines = [
        f"| {name} | {title} | "
        + " | ".join(f"{found[key(name, title, epsilon)]:.2f}" for epsilon in EPSILONS)
        + " |"
        for name in DESIGNS
        for title in SOLVERS
    ]
    write_part("how_to_choose.md", "group designs", head + lines)


if __name__ == "__main__":
    main()
