"""[U15] section 1.3: an analyst who chooses each model from the answer to the previous one.

On records without any signal such an analyst believes in a signal: the model fits the records, not their
population. Differentially private answers bound the difference.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpcvx.arrays import IntVector, Vector

__all__ = ["analyse_adaptively", "overfitting"]

Fit = Callable[[Vector, IntVector], Vector]


def analyse_adaptively(fit: Fit, X: Vector, y: IntVector, rounds: int) -> Vector:
    """Return the final coefficients of an analyst who halves the features in every round.

    `fit` answers a regression of labels 0 and 1 on some columns by their coefficients. Each round fits
    the remaining columns and keeps the half with the largest coefficients; the last fit is returned.
    """
    kept = np.arange(X.shape[1])
    for left in range(rounds, 0, -1):
        coefficients = np.asarray(fit(X[:, kept], y), dtype=np.float64)
        if left > 1:
            kept = kept[np.argsort(-np.abs(coefficients), kind="stable")[: max(1, len(kept) // 2)]]
    result = np.zeros(X.shape[1])
    result[kept] = coefficients
    return result


def overfitting(
    coefficients: Vector, records: tuple[Vector, IntVector], population: tuple[Vector, IntVector]
) -> float:
    """Return the accuracy of a linear classifier on the records it was chosen on, minus that on others."""
    (X, y), (others, labels) = records, population
    return float(np.mean((X @ coefficients > 0) == y) - np.mean((others @ coefficients > 0) == labels))
