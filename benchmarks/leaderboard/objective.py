"""What a problem of the leaderboard is, and how predictions for it are scored.

A problem holds arrays only, so that it can be stored and read in the environment of any method. Everyone gets
the same records, declarations, epsilon and delta = 1/n^2, under replace-one with n public.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

EPSILONS = (0.1, 0.3, 1.0, 4.0)
SEEDS = 3
REGRESSIONS = ("regression", "sparse", "additive", "grouped")  # one target, scored by R^2
LABELS = ("binary", "multiclass", "text")  # text: two classes, sparse rows of a declared norm
KINDS = (*REGRESSIONS, *LABELS, "several targets", "quantile", "queries")
METRICS = {
    "binary": "AUC",
    "text": "AUC",
    "multiclass": "accuracy",
    "quantile": "D² (pinball)",
    "queries": "gain (1 - excess loss over that of zero)",
} | dict.fromkeys((*REGRESSIONS, "several targets"), "R²")


def _none() -> np.ndarray:
    return np.zeros(0)


@dataclass(frozen=True)
class Problem:
    """Records to fit, records to predict, and what a user declares.

    Parameters
    ----------
    kind : str
        One of `KINDS`.
    X, X_test : (n, p) and (m, p) arrays, or CSR
        Numbers; a column with levels holds their places 0, 1, ... For queries, signs and the (target, six
        features) of each query.
    y, y_test : arrays
        Targets; classes are 0, 1, ... For queries, y_test has the least loss of each.
    bounds : (2, p) array
        Declared bounds of the columns.
    levels : (p,) array
        Number of levels of a column, 0 for numbers.
    y_bounds : (2,) array
        Declared bounds of a target that is a number.
    data_norm : float
        Declared norm of rows; 0 for none.
    groups : (p,) array
        Group of each column; empty for none.
    radius : float
        Size of the l1 ball where the task fixes one, which then has no intercept; 0 for none.
    least : float
        Least mean square on X_test where the task fixes the ball.
    table : bool
        Whether it is a table of people, of which nothing but bounds and levels is known.
    lines : dict
        Scores that a theorem excludes or allows, by name and then by epsilon.
    """

    kind: str
    X: Any
    y: np.ndarray
    X_test: Any
    y_test: np.ndarray
    bounds: np.ndarray = field(default_factory=_none)
    levels: np.ndarray = field(default_factory=_none)
    y_bounds: np.ndarray = field(default_factory=_none)
    groups: np.ndarray = field(default_factory=_none)
    data_norm: float = 0.0
    quantile: float = 0.0
    radius: float = 0.0
    least: float = 0.0
    table: bool = False
    lines: dict[str, dict[float, float]] = field(default_factory=dict)

    @property
    def n(self) -> int:
        """Number of records to fit."""
        return self.X.shape[0]

    @property
    def delta(self) -> float:
        """1/n^2."""
        return 1 / self.n**2

    @property
    def n_classes(self) -> int:
        """Number of classes, which is public."""
        return int(max(self.y.max(), self.y_test.max())) + 1

    def rows(self) -> tuple[Any, Any]:
        """Rows to fit and to predict, for methods that want numbers in [-1, 1], with a constant at the end.

        Bounds are mapped to [-1, 1], levels but the first are columns of -1 and 1. Sparse rows are divided by
        their declared norm and have no constant.
        """
        if sp.issparse(self.X):
            return self.X / self.data_norm, self.X_test / self.data_norm
        return self._map(self.X), self._map(self.X_test)

    def _map(self, X: np.ndarray) -> np.ndarray:
        low, high = self.bounds
        columns = []
        for j in range(X.shape[1]):
            if self.levels.size and self.levels[j]:
                columns += [2.0 * (X[:, j] == level) - 1 for level in range(1, int(self.levels[j]))]
            else:
                columns.append(np.clip((2 * X[:, j] - low[j] - high[j]) / (high[j] - low[j]), -1, 1))
        return np.column_stack(columns if self.radius else [*columns, np.ones(len(X))])

    def scaled_target(self) -> np.ndarray:
        """Target to fit, its bounds mapped to [-1, 1]."""
        low, high = self.y_bounds
        return np.clip((2 * self.y - low - high) / (high - low), -1, 1)

    def in_units(self, predictions: np.ndarray) -> np.ndarray:
        """Undo `scaled_target`."""
        low, high = self.y_bounds
        return (low + high) / 2 + predictions * (high - low) / 2

    def save(self, path: Path) -> None:
        """Write everything that a method may see: y_test and lines are left out."""
        stored: dict[str, Any] = {}
        for each in dataclasses.fields(self):
            value = getattr(self, each.name)
            if sp.issparse(value):
                for part in ("data", "indices", "indptr", "shape"):
                    stored[f"{each.name}.{part}"] = np.asarray(getattr(value, part))
            elif each.name not in ("y_test", "lines", "least"):
                stored[each.name] = value
        np.savez(path, n_classes=self.n_classes if self.kind in LABELS else 0, **stored)


def read_problem(path: str) -> Problem:
    """Read a stored problem; y_test has nothing but the largest class."""
    with np.load(path) as stored:
        values = {name: stored[name] for name in stored.files}
    for name in ("X", "X_test"):
        if f"{name}.data" in values:
            data, indices, indptr, shape = (
                values.pop(f"{name}.{part}") for part in ("data", "indices", "indptr", "shape")
            )
            values[name] = sp.csr_matrix((data, indices, indptr), shape=tuple(shape))
    classes = int(values.pop("n_classes"))
    plain = {name: value.item() if value.ndim == 0 else value for name, value in values.items() if
             not sp.issparse(value)}  # fmt: skip
    return Problem(**{**values, **plain, "y_test": np.array([classes - 1])})


def score(problem: Problem, predictions: np.ndarray) -> float:
    """Score of predictions, by `METRICS`: larger is better, 1 is best.

    Predictions are scores of class 1 (binary), scores of all classes, numbers, or the coefficients of each
    query. A model that is not finite has the score of a constant, or 0 where that is better.
    """
    predictions = np.nan_to_num(np.asarray(predictions, dtype=np.float64), posinf=1e300, neginf=-1e300)
    y = problem.y_test
    if problem.kind in ("binary", "text"):
        from sklearn.metrics import roc_auc_score

        return float(roc_auc_score(y, predictions))
    if problem.kind == "multiclass":
        return float(np.mean(predictions.argmax(axis=1) == y))
    if problem.kind == "quantile":
        return 1 - _pinball(y - predictions, problem.quantile) / _pinball(
            y - np.quantile(y, problem.quantile), problem.quantile
        )
    if problem.kind == "queries":
        losses = [query_loss(problem.X, query, theta) for query, theta in
                  zip(problem.X_test, predictions, strict=True)]  # fmt: skip
        return 1 - float(np.mean(losses - y) / np.mean(np.log(2) - y))
    if problem.radius:
        return 1 - (float(np.mean((y - predictions) ** 2)) - problem.least) / (
            float(np.mean(y**2)) - problem.least
        )
    with np.errstate(over="ignore"):
        return 1 - float(np.sum((y - predictions) ** 2) / np.sum((y - y.mean(axis=0)) ** 2))


def _pinball(errors: np.ndarray, quantile: float) -> float:
    return float(np.mean(np.maximum(quantile * errors, (quantile - 1) * errors)))


def query_loss(signs: np.ndarray, query: np.ndarray, theta: np.ndarray) -> float:
    """Mean logistic loss of the regression of a sign on a constant and six others."""
    margins = signs[:, query[0]] * (theta[0] + signs[:, query[1:]] @ theta[1:])
    return float(np.mean(np.logaddexp(0, -margins)))
