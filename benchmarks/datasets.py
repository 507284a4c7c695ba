"""Real data for the benchmarks, found outside the repository; prints where they are looked for when run."""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

FOLDER = Path(os.environ.get("DPCVX_DATA", Path(__file__).resolve().parents[1] / ".." / "shared" / "data"))
OUTPUT = Path(__file__).resolve().parent / "output"
DECLARED = Path(__file__).resolve().parent / "declared_bounds.json"

Split = tuple[Any, np.ndarray, Any, np.ndarray]


@dataclass(frozen=True)
class Task:
    """Records to fit, records to test on, and the declarations that a user would have to give.

    Parameters
    ----------
    name : str
    X, y, X_test, y_test : array or CSR matrix
    declared : dict
        ``bounds``, and where they apply ``data_norm``, ``classes``, ``y_bounds``: nothing else is set for a
        single task.
    """

    name: str
    X: Any
    y: np.ndarray
    X_test: Any
    y_test: np.ndarray
    declared: dict[str, Any]

    @property
    def classifies(self) -> bool:
        """Whether the target is a label."""
        return "classes" in self.declared

    def estimator(self, **settings: Any) -> Any:
        """Return the task's estimator, not fitted; delta is 1/n^2."""
        from dpcvx import PrivateLinearRegression, PrivateLogisticRegression

        kind = PrivateLogisticRegression if self.classifies else PrivateLinearRegression
        return kind(**{"delta": 1 / len(self.y) ** 2, **self.declared, **settings})

    def measured(self, model: Any) -> tuple[float, float]:
        """Return (score, risk) on the records to test on.

        The score is accuracy or R^2. The risk is the mean of the loss that is minimised, in its own units: a
        logarithm of odds, or half a square with y mapped to [-1, 1].
        """
        if self.classifies:
            logs = model.predict_log_proba(self.X_test)
            codes = np.searchsorted(model.classes_, self.y_test)
            return float(np.mean(logs.argmax(axis=1) == codes)), float(
                -np.mean(logs[np.arange(len(codes)), codes])
            )
        low, high = self.declared["y_bounds"]
        errors = self.y_test - model.predict(self.X_test)
        return 1 - float(np.mean(errors**2) / np.var(self.y_test)), float(
            np.mean((errors / ((high - low) / 2)) ** 2) / 2
        )


def sparse(name: str) -> tuple[sp.csr_matrix, np.ndarray]:
    """(X, y) of a compressed set; ends the script with a message where the file is absent."""
    path = _found(name)
    with np.load(path) as stored:
        y = stored["y"].astype(np.float64)
    return sp.csr_matrix(sp.load_npz(path).astype(np.float64)), y


def dense(name: str) -> dict[str, np.ndarray]:
    """Arrays of a stored set, by name; ends the script with a message where the file is absent."""
    with np.load(_found(name)) as stored:
        return {key: stored[key] for key in stored.files}


def rcv1() -> Split:
    """(X, y, X_test, y_test): 16,000 documents to train on, the rest to test on."""
    X, y = sparse("rcv1_binary_subset")
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[:16_000], order[16_000:]
    return X[train], y[train], X[test], y[test]


def _found(name: str) -> Path:
    path = FOLDER / f"{name}.npz"
    if not path.exists():
        print(f"skipped: {path.name} is not in {FOLDER.name}/. Set DPCVX_DATA to a folder that holds it.")
        sys.exit(0)
    return path


def divided(X: np.ndarray, y: np.ndarray) -> Split:
    """Four fifths to train on, a fifth to test on."""
    order = np.random.default_rng(0).permutation(len(y))
    cut = len(y) * 4 // 5
    return X[order[:cut]], y[order[:cut]], X[order[cut:]], y[order[cut:]]


def _split(name: str) -> Split:
    stored = dense(name)
    return divided(stored["X"].astype(np.float64), stored["y"].astype(np.float64))


def _covtype() -> Split:
    stored = dense("covtype")
    return divided(stored["X"].astype(np.float64), (stored["y"] == 2).astype(np.float64))


def _mnist() -> Split:
    stored = dense("mnist")
    X, X_test = (stored[key] / np.float32(255) for key in ("X", "X_test"))
    return X, stored["y"].astype(np.float64), X_test, stored["y_test"].astype(np.float64)


def _blogfeedback() -> Split:
    stored = dense("blogfeedback")
    X, y, X_test, y_test = (stored[key].astype(np.float64) for key in ("X", "y", "X_test", "y_test"))
    return X, y, X_test, y_test


SPLITS: dict[str, Callable[[], Split]] = {
    "a9a": lambda: (*sparse("a9a"), *sparse("a9a_test")),
    "adult_complete104": lambda: _split("adult_complete104"),
    "covtype": _covtype,
    "rcv1": rcv1,
    "mnist": _mnist,
    "california_housing": lambda: _split("california_housing"),
    "blogfeedback": _blogfeedback,
    "communities_crime": lambda: _split("communities_crime"),
}


def load(name: str) -> Task:
    """Load a task with what is declared for it in declared_bounds.json."""
    declared = json.loads(DECLARED.read_text())[name]
    return Task(name, *SPLITS[name](), {key: _pairs(value) for key, value in declared.items()})


def _pairs(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


if __name__ == "__main__":
    found = sorted(path.name for path in FOLDER.glob("*.npz")) if FOLDER.exists() else []
    print(f"data folder: {FOLDER.name}/, sets found: {', '.join(found) or 'none'}")
