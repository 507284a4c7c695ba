"""Test accuracy of private logistic regression with every default, against the non-private optimum.

Given are epsilon, delta = 1/n^2, the bounds of a feature, the norm of a row and the classes.
"""

import argparse
import warnings

import numpy as np
from sklearn.linear_model import LogisticRegression

from datasets import rcv1, sparse
from dpcvx import PrivateLogisticRegression


def measure(name, train, test, data_norm, epsilons, seeds):
    X, y = train
    print(f"\n{name}: n = {len(y)}, d = {X.shape[1]}, {len(test[1])} to test on")
    plain = max(LogisticRegression(C=C, max_iter=2000).fit(X, y).score(*test) for C in (0.1, 1.0, 10.0))
    print(f"  non-private (best of three penalties)   {plain:.4f}")
    for epsilon in epsilons:
        scores = []
        for seed in range(seeds):
            model = PrivateLogisticRegression(
                epsilon=epsilon,
                delta=1 / len(y) ** 2,
                bounds=(0, 1),
                data_norm=data_norm,
                classes=(-1, 1),
                random_state=seed,
            ).fit(X, y)
            scores.append(np.mean(model.predict(test[0]) == test[1]))
        error = np.std(scores, ddof=1) / np.sqrt(seeds)
        print(
            f"  epsilon {epsilon:<4g}  {np.mean(scores):.4f} +- {error:.4f} (standard error, {seeds} seeds)",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.1, 1.0, 4.0])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    a9a, a9a_test = sparse("a9a"), sparse("a9a_test")
    measure("a9a", a9a, a9a_test, np.sqrt(14), options.epsilons, options.seeds)
    X, y, X_test, y_test = rcv1()
    measure("rcv1", (X, y), (X_test, y_test), 1.0, options.epsilons, options.seeds)


if __name__ == "__main__":
    main()
