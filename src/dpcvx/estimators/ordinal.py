"""The model of ordered levels: proportional odds, by a row for each level but the last."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from dpcvx.arrays import Vector
from dpcvx.data.cells import cell_codes
from dpcvx.data.expanded_rows import ExpandedRows, level_rows
from dpcvx.data.levels import DeclaredLevels
from dpcvx.data.target import read_one
from dpcvx.errors import WrongValue
from dpcvx.estimators.documentation import document
from dpcvx.estimators.planning import parameters
from dpcvx.estimators.row_models import RowModel
from dpcvx.words import show

__all__ = ["PrivateOrdinalClassifier"]


@document
@parameters
class PrivateOrdinalClassifier(ClassifierMixin, RowModel):  # type: ignore[misc]
    """Regression of ordered levels, such as self-rated health: the model of proportional odds.

    ``log-odds of P(y > level k) = <x, coef_> - thresholds_[k]``

    ``classes`` are the levels in their order, the lowest first, three or more. The fit is one of
    `PrivateLogisticRegression` to a row for each level but the last, "is the answer above it?", with the
    record as the protected person. Standard errors are cluster-robust. ``exp(coef_)`` are ratios of the odds
    of a higher level.
    """

    classes: Any = None

    _column: ClassVar[str] = "above"
    _sign: ClassVar[float] = -1.0
    _family: ClassVar[str] = "ordered levels, proportional odds (cumulative logit)"

    @property
    def classes_(self) -> NDArray[Any]:
        """Levels in their order."""
        check_is_fitted(self)
        return np.array(self._declared().values)

    @property
    def thresholds_(self) -> Vector:
        """Thresholds between the levels in their order; they increase."""
        return np.sort(self._log_odds())

    def predict_proba(self, X: Any) -> Vector:
        """Predict the probability of each level.

        Parameters
        ----------
        X : pandas, polars or Arrow table
            New rows.

        Returns
        -------
        ndarray of shape (n, K)
            Columns in the order of ``classes_``. They are differences of the probabilities to be above a
            level, which are sorted where noise has put them in another order.
        """
        above = np.sort(self._chances(X), axis=1)[:, ::-1]
        found: Vector = -np.diff(above, axis=1, prepend=1.0, append=0.0)
        return found

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the most probable level of new rows.

        Parameters
        ----------
        X : pandas, polars or Arrow table
            New rows.

        Returns
        -------
        ndarray of shape (n,)
        """
        labels: NDArray[Any] = self.classes_[self.predict_proba(X).argmax(axis=1)]
        return labels

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy on the rows given, and warn once: on private rows it is not covered."""
        check_is_fitted(self)
        self.model_._warn_of_leak()
        right = cell_codes(y, self._declared(), read_one) == self.predict_proba(X).argmax(axis=1)
        return float(np.average(right, weights=sample_weight))

    def file_parameters(self) -> dict[str, Any]:
        """Return the parameters for a model file, with the levels, which a schema may have declared."""
        return super().file_parameters() | {"classes": list(self._declared().values)}

    def _declared(self) -> DeclaredLevels:
        classes = self.classes
        if classes is None and self.schema is not None:
            classes = self.schema.target_parameters().get("classes")
        if classes is None or isinstance(classes, str):
            raise WrongValue(
                "PrivateOrdinalClassifier needs classes, the levels in their order, for instance "
                f'classes=("poor", "fair", "good"). Got {show(classes)}.'
            )
        declared = DeclaredLevels.declare(classes, "classes")
        if len(declared.values) < 3:
            raise WrongValue(
                f"Ordered levels are three or more, got {show(classes)}: use PrivateLogisticRegression for "
                "two."
            )
        return declared

    def _levels(self) -> tuple[str, ...]:
        return tuple(map(str, self._declared().values[:-1]))

    def _level_names(self) -> list[str]:
        values = self._declared().values
        return [f"{low} | {high}" for low, high in pairwise(values)]

    def _rows(self, X: Any, y: Any) -> ExpandedRows:
        return level_rows(X, y, levels=self._declared().values)

    def _new_rows(self, X: Any) -> Any:
        return level_rows(X, levels=self._declared().values).table
