"""From scores to predictions: numbers, labels and probabilities, for private models and their exports."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcvx.arrays import Vector

__all__ = ["label_scores", "log_probabilities", "mean_of_scores"]


def mean_of_scores(scores: Vector, link: str) -> Vector:
    """Return the predicted mean: the score, its exponential, or the share of which it is the log-odds."""
    if link == "logit":
        share: Vector = np.exp(-np.logaddexp(0.0, -scores))
        return share
    return np.exp(scores) if link == "log" else scores


def label_scores(scores: Vector, classes: NDArray[Any]) -> NDArray[Any]:
    """Return the label of each row: the second class for a score above 0, or the class with the largest.

    `scores`: shape (n,) for two classes, (n, K) for more.
    """
    codes = (scores > 0).astype(np.int64) if scores.ndim == 1 else scores.argmax(axis=1)
    labels: NDArray[Any] = classes[codes]
    return labels


def log_probabilities(scores: Vector) -> Vector:
    """Return the logarithm of each class's probability, shape (n, K): logistic of one score, or softmax."""
    if scores.ndim == 1:
        return np.column_stack([-np.logaddexp(0, scores), -np.logaddexp(0, -scores)])
    found: Vector = scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)
    return found
