"""Private linear classifiers: logistic regression (binary and joint multinomial) and the smoothed hinge."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from dpcvx.arrays import Vector
from dpcvx.errors import PrivacyLeakWarning
from dpcvx.estimators.columns import level_codes
from dpcvx.estimators.model import LinearModel, Target
from dpcvx.estimators.regressors import SCORE_WARNING
from dpcvx.losses import Logistic, Loss, SmoothHinge, Softmax

__all__ = ["PrivateLinearSVC", "PrivateLogisticRegression"]


class LinearClassifier(ClassifierMixin, LinearModel):  # type: ignore[misc]
    """A linear model of a label among declared classes."""

    classes_: NDArray[Any]

    def __init__(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        bounds: Any = None,
        data_norm: float | None = None,
        classes: Any = None,
        categories: dict[Any, Any] | None = None,
        fit_intercept: bool = True,
        domain: Any = "l2",
        radius: float | None = None,
        l2: float = 0,
        standardize: Any = "auto",
        solver: Any = "auto",
        n_iter: int | None = None,
        ledger: Any = None,
        account: Any = None,
        random_state: Any = None,
        backend: str = "auto",
        verbose: int = 0,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.data_norm = data_norm
        self.classes = classes
        self.categories = categories
        self.fit_intercept = fit_intercept
        self.domain = domain
        self.radius = radius
        self.l2 = l2
        self.standardize = standardize
        self.solver = solver
        self.n_iter = n_iter
        self.ledger = ledger
        self.account = account
        self.random_state = random_state
        self.backend = backend
        self.verbose = verbose

    def _loss(self, n_classes: int) -> Loss:
        raise NotImplementedError

    def decision_function(self, X: Any) -> Vector:
        """Score new rows.

        Parameters
        ----------
        X : array-like, SciPy sparse matrix, or pandas / polars / Arrow table, shape (n, d)
            New rows. Cells that are no finite numbers count as they did in the fit; others are not clipped.

        Returns
        -------
        ndarray of shape (n,) or (n, K)
            With two classes a positive score stands for ``classes_[1]``.
        """
        return self._scores(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the label of new rows.

        Parameters
        ----------
        X : array-like, SciPy sparse matrix, or pandas / polars / Arrow table, shape (n, d)
            New rows.

        Returns
        -------
        ndarray of shape (n,)
        """
        scores = self.decision_function(X)
        codes = (scores > 0).astype(np.int64) if scores.ndim == 1 else scores.argmax(axis=1)
        labels: NDArray[Any] = self.classes_[codes]
        return labels

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy on the rows given, with a `PrivacyLeakWarning`: on private rows it is not covered."""
        warnings.warn(SCORE_WARNING, PrivacyLeakWarning, stacklevel=2)
        return float(super().score(X, y, sample_weight))

    def _declare_target(self, y: NDArray[Any]) -> Target:
        classes, facts = self._declared_classes(y)
        self.classes_ = classes
        facts["y_enforced"] = "a row with another label, or without one, contributes nothing"
        return Target(self._loss(len(classes)), 1 if len(classes) == 2 else len(classes), facts=facts)

    def _declared_classes(self, y: NDArray[Any]) -> tuple[NDArray[Any], dict[str, Any]]:
        name = type(self).__name__
        if self.classes is None or (isinstance(self.classes, str) and self.classes != "from_y"):
            raise ValueError(
                f'{name} needs classes, the labels that may occur, for instance classes=(0, 1); classes="from_y" takes '
                f"them from y and states that the set of labels is public. Got {self.classes!r}."
            )
        if isinstance(self.classes, str):
            labels = y[~np.isnan(y)] if y.dtype.kind == "f" else y
            labels = labels.astype(str) if labels.dtype.kind == "O" and _all_text(labels) else labels
            check_classification_targets(labels)
            classes, origin = np.unique(labels), "taken from y and declared public"
        else:
            classes, origin = _label_array(list(self.classes)), "declared"
            if len(set(classes.tolist())) != len(classes):
                raise ValueError(f"classes must be different labels, got {self.classes!r}.")
        if len(classes) < 2:
            raise ValueError(f"{name} needs at least two classes, got {len(classes)} class.")
        return classes, {"classes": classes.tolist(), "classes_origin": origin}

    def _codes(self, y: NDArray[Any]) -> NDArray[np.int64]:
        return level_codes(y, self.classes_.tolist())


class PrivateLogisticRegression(LinearClassifier):
    """Logistic regression over an l2 ball (or another set); more than two classes are fitted jointly (softmax).

    """

    def predict_proba(self, X: Any) -> Vector:
        """Predict the probability of each class.

        Parameters
        ----------
        X : array-like, SciPy sparse matrix, or pandas / polars / Arrow table, shape (n, d)
            New rows.

        Returns
        -------
        ndarray of shape (n, K)
            Columns in the order of ``classes_``.
        """
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: Any) -> Vector:
        """Predict the logarithm of the probability of each class.

        Parameters
        ----------
        X : array-like, SciPy sparse matrix, or pandas / polars / Arrow table, shape (n, d)
            New rows.

        Returns
        -------
        ndarray of shape (n, K)
            Columns in the order of ``classes_``.
        """
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return np.column_stack([-np.logaddexp(0, scores), -np.logaddexp(0, -scores)])
        log_probabilities: Vector = scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)
        return log_probabilities

    def _loss(self, n_classes: int) -> Loss:
        return Logistic() if n_classes == 2 else Softmax()

    def _encode_target(self, y: NDArray[Any], target: Target) -> Vector:
        codes = self._codes(y)
        if target.outputs > 1:
            return codes[:, None].astype(np.float64)
        return _signs(codes, [1])


class PrivateLinearSVC(LinearClassifier):
    """Linear support vector classifier with a smoothed hinge.

        More than two classes are one mechanism, not several: K scores share a matrix parameter, the target of score k
        is +1 for class k and -1 for every other, and the price of a record covers all K slopes together.

    """

    def _loss(self, n_classes: int) -> Loss:
        return SmoothHinge()

    def _encode_target(self, y: NDArray[Any], target: Target) -> Vector:
        return _signs(self._codes(y), [1] if target.outputs == 1 else list(range(target.outputs)))


def _signs(codes: NDArray[np.int64], positives: list[int]) -> Vector:
    """Column k: +1 for the class positives[k], -1 for other classes, 0 for a label that is none of them."""
    signs = np.where(codes[:, None] == np.array(positives), 1.0, -1.0)
    return np.where(codes[:, None] < 0, 0.0, signs)


def _label_array(labels: list[Any]) -> NDArray[Any]:
    """Labels as an array that keeps them apart: 1 and "1" are different."""
    array = np.asarray(labels)
    if array.ndim != 1 or (array.dtype.kind in "US" and not _all_text(labels)):
        array = np.empty(len(labels), dtype=object)
        array[:] = labels
    return array


def _all_text(labels: Any) -> bool:
    return all(isinstance(label, str) for label in labels)
