"""Methods of fitted linear models: scores of new rows, the formula, exports and files."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sklearn.utils.validation import check_is_fitted

from dpcvx.arrays import Vector
from dpcvx.data.row_map import RowMap
from dpcvx.data.table import Table
from dpcvx.errors import PrivacyLeakWarning
from dpcvx.estimators.new_rows import open_new_rows
from dpcvx.estimators.refusals import check_extrapolation

if TYPE_CHECKING:
    from dpcvx.estimators.formula import Formula

__all__ = ["FittedModel"]

LEAK_WARNING = (
    "score is the plain metric of the rows it is given. On private rows its value is a release that the "
    "privacy statement does not cover; use rows that may be published."
)


class FittedModel:
    """The part of a linear model that uses what was released."""

    coef_: Vector
    intercept_: Any
    n_features_in_: int
    extrapolation: str
    _row_map: RowMap

    @property
    def levels_(self) -> dict[Any, tuple[Any, ...]]:
        """Declared levels of the columns that hold no numbers, by column name or position."""
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", range(self.n_features_in_))
        levels = zip(names, self._row_map.levels, strict=True)
        return {name: declared.values for name, declared in levels if declared is not None}

    @property
    def formula_(self) -> Formula:
        """The computation of ``predict``, as text and as JSON: ``print`` it, or ``to_json()``."""
        from dpcvx.estimators.formula import Formula

        check_is_fitted(self)
        return Formula.of(self)

    def to_sklearn(self) -> Any:
        """Return a scikit-learn pipeline that predicts the same bits, without plan, ledger and fit.

        Its first step, "features", maps rows as the fit did and has ``transform``; its last step, "model",
        has ``coef_``, ``intercept_`` and the methods of this estimator. It can be pickled; whoever opens it
        needs dpcvx, which reads the cells.

        Returns
        -------
        sklearn.pipeline.Pipeline
        """
        from dpcvx.estimators.export import pipeline_of

        check_is_fitted(self)
        return pipeline_of(self)

    def to_onnx(self) -> Any:
        """Return the formula as an ONNX model in double precision; needs ``dpcvx[onnx]``.

        Without categories it has one input "X" of shape (n, d). With categories every column is an input of
        shape (n, 1) under its own name: numbers, and text for levels of text. NaN is a missing number, "" a
        missing level. Outputs are "prediction" of a regressor; "label", "scores" and, of a logistic model,
        "probabilities" of a classifier.

        Returns
        -------
        onnx.ModelProto
            The runtime adds terms in an order of its own: scores differ from those of this model by up to
            d 2^-49 times the sum of the absolute values of their d terms.
        """
        from dpcvx.estimators.onnx_graph import onnx_model

        check_is_fitted(self)
        return onnx_model(self.formula_)

    def save(self, path: str | Path) -> None:
        """Write the fitted model and its privacy statement as JSON; `dpcvx.load` reads it back.

        Parameters
        ----------
        path : str or Path
            File to write.
        """
        from dpcvx.estimators.model_file import save

        check_is_fitted(self)
        save(self, path)

    def _scores(self, X: Any) -> Vector:
        """Linear scores of new rows, shape (n,) or (n, K): the score of ``formula_``."""
        check_is_fitted(self)
        return self._linear(self._new_rows(X), self.coef_.T, self.intercept_)

    def _linear(self, table: Table, coef: Vector, intercept: Any) -> Vector:
        return self._prediction_map().scores(table, coef, intercept)

    def _prediction_map(self) -> RowMap:
        """The map from new rows to features, without clipping where the user extrapolates."""
        check_extrapolation(self.extrapolation)
        clips = self.extrapolation == "clip"
        return self._row_map if clips else self._row_map.without_clipping()

    def _new_rows(self, X: Any) -> Table:
        return open_new_rows(self, X, self._row_map.schema)

    def _warn_of_leak(self) -> None:
        """Warn once per fitted model, at the line that asked for a score."""
        if not getattr(self, "_leak_warned", False):
            self._leak_warned = True
            warnings.warn(LEAK_WARNING, PrivacyLeakWarning, stacklevel=3)
