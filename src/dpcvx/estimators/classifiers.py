"""Private linear classifiers: logistic regression (binary and joint multinomial) and the smoothed hinge."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.multiclass import check_classification_targets

from dpcvx.arrays import Vector
from dpcvx.data.declarations import Declarations
from dpcvx.data.target import Labels, Target, distinct_labels
from dpcvx.errors import WrongType, WrongValue
from dpcvx.estimators.documentation import document
from dpcvx.estimators.linear_model import LinearModel
from dpcvx.estimators.links import label_scores, log_probabilities
from dpcvx.estimators.planning import FitDeclaration, parameters
from dpcvx.losses import Logistic, Loss, SmoothHinge, Softmax
from dpcvx.plans import Release
from dpcvx.plans.statement import FROM_Y
from dpcvx.solvers.typical_data import inflation
from dpcvx.words import is_number, quantity, show

__all__ = ["LinearClassifier", "PrivateLinearSVC", "PrivateLogisticRegression"]


@parameters
class LinearClassifier(ClassifierMixin, LinearModel):  # type: ignore[misc]
    """A linear model of a label among declared classes."""

    classes: Any = None
    domain: Any = "l2"

    def decision_function(self, X: Any) -> Vector:
        """Score new rows.

        Parameters
        ----------
        X : array-like, SciPy sparse matrix, or pandas / polars / Arrow table, shape (n, d)
            New rows. Cells that are not finite numbers count as they did in the fit; ``extrapolation``
            says which others are clipped.

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
        return label_scores(self.decision_function(X), self.classes_)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy on the rows given, and warn once: on private rows it is not covered.

        A label that is none of the classes is never predicted, and counts as an error.
        """
        self._warn_of_leak()
        scores = self.decision_function(X)
        codes = label_scores(scores, np.arange(len(self.classes_)))
        return float(accuracy_score(Labels(self.classes_).codes(y), codes, sample_weight=sample_weight))

    def _declare_target(self, stated: Declarations, y: NDArray[Any]) -> Labels:
        name, classes = type(self).__name__, stated.classes
        if classes is None or (isinstance(classes, str) and classes != "from_y"):
            raise WrongValue(
                f"{name} needs classes, the labels that may occur, for instance classes=(0, 1); "
                'classes="from_y" takes them from y and states that the set of labels is public. '
                f"Got {classes!r}."
            )
        target = _labels_of(y) if isinstance(classes, str) else Labels.declare(classes)
        if len(target.classes) < 2:
            raise WrongValue(
                f"{name} needs at least two classes, got {quantity(len(target.classes), 'class', 'classes')}."
            )
        return replace(target, form="codes") if self._loss(target).joint else target

    def _publish(self, release: Release, made: FitDeclaration) -> None:
        if isinstance(made.target, Labels):
            self.classes_ = made.target.classes
        super()._publish(release, made)


@document
@parameters
class PrivateLogisticRegression(LinearClassifier):
    """Logistic regression over an l2 ball or another set; more than two classes are fitted jointly.

    minimise (1/n) sum_i log(1 + exp(-y_i <x_i, theta>)) + (l2/2) ||theta||_2^2 over the set, all in scaled
    units; with K > 2 classes the softmax loss of K scores over matrices of shape (d, K)

    Where public numbers say that it pays, slopes of the loss are clipped at their size at theta = 0, which
    halves the noise (with more than two classes at 0.6 to 1.2 times that size). Clipping makes scores too
    large by a known factor; with two classes they are divided by it. A solver object clips only if its
    ``clip`` says so. A fit with ``uncertainty`` clips the gradients of records instead, at a larger norm.
    """

    class_weight: Any = None

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

    def predict_interval(self, X: Any, level: float = 0.95) -> Vector:
        """Return an interval for the probability of the second of two classes; the fit needs ``uncertainty``.

        Parameters
        ----------
        X : array-like, SciPy sparse matrix, or pandas / polars / Arrow table, shape (n, d)
            New rows.
        level : float
            Probability with which an interval covers.

        Returns
        -------
        ndarray of shape (n, 2)
            Lower and upper ends.
        """
        return np.exp(-np.logaddexp(0, -self._score_interval(X, level)))

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
        return log_probabilities(self.decision_function(X))

    def _loss(self, target: Target) -> Loss:
        return Logistic() if target.outputs == 1 else Softmax()

    def _family(self) -> str:
        if self.coef_.ndim == 1:
            return f"binomial, logit link, of {self.classes_[1]!s} against {self.classes_[0]!s}"
        return "multinomial, softmax of one score per class"

    def _declare_target(self, stated: Declarations, y: NDArray[Any]) -> Labels:
        target = super()._declare_target(stated, y)
        self._log_weights(target)  # refused before a charge
        return target

    def _log_weights(self, target: Labels) -> Vector:
        """Logarithm of each class's weight, in the order of the classes."""
        given, classes = self.class_weight, target.classes.tolist()
        if given is None:
            return np.zeros(len(classes))
        if isinstance(given, str):
            raise WrongValue(
                f"class_weight must be a mapping from label to weight, got {show(given)}: the shares of the "
                "classes in y are private. Use shares that you know: class_weight={label: 1/share, ...}."
            )
        if not isinstance(given, Mapping) or {*given} != {*classes}:
            raise WrongValue(
                "class_weight must be a mapping from every class to its weight, for instance "
                f"{{{show(classes[0])}: 1.0, {show(classes[1])}: 4.0}}, got {show(given)}."
            )
        if not all(is_number(weight, 0, math.inf) for weight in given.values()):
            raise WrongValue(f"class_weight needs positive finite weights, got {show(given)}.")
        return np.log([float(given[label]) for label in classes])

    def _units(self, release: Release, target: Target) -> tuple[Any, Any, dict[str, Any]]:
        center, scale, facts = self._weighted_units(*super()._units(release, target), target)
        fit = release.plan.solver.innermost(release.plan)
        clip, origin = fit.solver.clip, np.zeros(fit.problem.shape)
        # Towards 0 the coefficients stay in a set that holds it.
        if clip is None or target.outputs > 1 or not fit.problem.C.contains(origin):
            return center, scale, facts
        factor = inflation(clip)
        slopes = f"clipped at {clip:g}; scores, {factor:.3g} times too large by that, are divided by it"
        return center, 1 / factor, {**facts, "slopes": slopes}

    def _weighted_units(
        self, center: Any, scale: Any, facts: dict[str, Any], target: Target
    ) -> tuple[Any, Any, dict[str, Any]]:
        """Shift the scores by the logarithms of the class weights; done after the fit, at no cost."""
        if self.class_weight is None or not isinstance(target, Labels):
            return center, scale, facts
        moves = self._log_weights(target)
        words = "declared; they move scores by their logarithms after the fit"
        return (
            center + (float(moves[1] - moves[0]) if target.outputs == 1 else moves),
            scale,
            {
                **facts,
                "class_weights": [float(weight) for weight in np.exp(moves)],
                "class_weights_are": words,
            },
        )


@document
@parameters
class PrivateLinearSVC(LinearClassifier):
    """Linear support vector classifier with a smoothed hinge.

    minimise (1/n) sum_i hinge(y_i <x_i, theta>) + (l2/2) ||theta||_2^2 over the set, all in scaled units

    More than two classes are one mechanism, not several: K scores share a matrix parameter, the target of
    score k is +1 for class k and -1 for every other, and the price of a record covers all K slopes together.
    """

    def _loss(self, target: Target) -> Loss:
        return SmoothHinge()

    def _family(self) -> str:
        return "smoothed hinge, label by the sign of the score"


def _labels_of(y: NDArray[Any]) -> Labels:
    """The different labels of a target whose label set is public."""
    labels = distinct_labels(y)
    if len({type(label) for label in labels}) > 1:
        raise WrongType(
            'classes="from_y" needs labels of one kind, text or numbers; declare classes=(...) instead.'
        )
    array = np.array(sorted(labels))
    if array.dtype.kind == "f" and (array == np.rint(array)).all() and (abs(array) < 2**53).all():
        array = array.astype(np.int64)  # a missing cell makes a column of integers one of floats
    check_classification_targets(array)
    return Labels(array, origin=FROM_Y)
