"""A fitted model as a scikit-learn pipeline: the map of its rows, then its coefficients."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin
from sklearn.pipeline import Pipeline
from sklearn.utils.metaestimators import available_if

from dpcvx.arrays import Vector
from dpcvx.data.row_map import RowMap, linear_scores
from dpcvx.errors import Incompatible
from dpcvx.estimators.links import label_scores, log_probabilities, mean_of_scores
from dpcvx.estimators.new_rows import open_new_rows

__all__ = ["ExportedClassifier", "ExportedRegressor", "FeatureMap", "pipeline_of"]


class FeatureMap(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Transformer from new rows to the features that the coefficients multiply; there is nothing to fit.

    `row_map`: the model's; `columns`: names of the columns, or their number where they have none; `person`:
    name of a column that is left out where rows have it.
    """

    def __init__(self, row_map: RowMap, columns: tuple[str, ...] | int, person: str | None = None) -> None:
        self.row_map = row_map
        self.columns = columns
        self.person = person

    @property
    def n_features_in_(self) -> int:
        """Number of columns of X."""
        return self.columns if isinstance(self.columns, int) else len(self.columns)

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """Column names of X, where it had any."""
        if isinstance(self.columns, int):
            raise AttributeError("The model was fitted to columns without names.")
        return np.array(self.columns, dtype=object)

    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Return the map, which is fixed."""
        return self

    def transform(self, X: Any) -> Any:
        """Return the features of new rows, shape (n, d)."""
        return self.row_map.features(open_new_rows(self, X, self.row_map.schema))

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the features: a column's, or "column=level"."""
        return np.array(self.row_map.feature_names, dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.allow_nan = tags.input_tags.string = True
        tags.requires_fit = False
        return tags


class LinearExport(BaseEstimator):  # type: ignore[misc]
    """Coefficients of a released model, for features of its `FeatureMap`.

    `coef`, `intercept`: as the model's ``coef_`` and ``intercept_``; `link`: meaning of a score.
    """

    def __init__(self, coef: Vector, intercept: Any, link: str) -> None:
        self.coef = coef
        self.intercept = intercept
        self.link = link

    @property
    def coef_(self) -> Vector:
        """Coefficients of the features."""
        return self.coef

    @property
    def intercept_(self) -> Any:
        """Intercept."""
        return self.intercept

    @property
    def n_features_in_(self) -> int:
        """Number of features."""
        return int(self.coef.shape[-1])

    def fit(self, X: Any, y: Any = None) -> Self:
        """Refuse: a fit here would not be private."""
        raise Incompatible(
            "An exported model cannot be fitted: the fit would not be private. Fit the private estimator, "
            "and export it again with to_sklearn()."
        )

    def _scores(self, X: Any) -> Vector:
        return linear_scores(X, self.coef.T, self.intercept)

    def __sklearn_is_fitted__(self) -> bool:
        return True


class ExportedRegressor(RegressorMixin, LinearExport):  # type: ignore[misc]
    """Predictions of a released regression, with terms added in the order of the features."""

    def predict(self, X: Any) -> Vector:
        """Predict the target of rows of features."""
        return mean_of_scores(self._scores(X), self.link)


def _has_probabilities(model: ExportedClassifier) -> bool:
    return model.link == "logit"


class ExportedClassifier(ClassifierMixin, LinearExport):  # type: ignore[misc]
    """Labels of a released classification, with terms added in the order of the features."""

    def __init__(self, coef: Vector, intercept: Any, link: str, classes: NDArray[Any]) -> None:
        super().__init__(coef, intercept, link)
        self.classes = classes

    @property
    def classes_(self) -> NDArray[Any]:
        """Labels; with two, a positive score stands for the second."""
        return self.classes

    def decision_function(self, X: Any) -> Vector:
        """Score rows of features."""
        return self._scores(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the label of rows of features."""
        return label_scores(self._scores(X), self.classes)

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> Vector:
        """Predict the logarithm of the probability of each class."""
        return log_probabilities(self._scores(X))

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Vector:
        """Predict the probability of each class."""
        return np.exp(log_probabilities(self._scores(X)))


def pipeline_of(model: Any) -> Pipeline:
    """Return a fitted model as a pipeline; see `LinearModel.to_sklearn`."""
    names = getattr(model, "feature_names_in_", None)
    columns = int(model.n_features_in_) if names is None else tuple(names)
    parts = model.coef_.copy(), np.copy(model.intercept_)[()], model._link
    last = (
        ExportedClassifier(*parts, model.classes_)
        if hasattr(model, "classes_")
        else ExportedRegressor(*parts)
    )
    return Pipeline(
        [("features", FeatureMap(model._prediction_map(), columns, model.person)), ("model", last)]
    )
