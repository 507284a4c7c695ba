"""The model of times until an event: hazards of public periods, by a row for each period."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dpcvx.arrays import Vector
from dpcvx.data.cells import without_column
from dpcvx.data.expanded_rows import ExpandedRows, period_rows
from dpcvx.data.units import take_column
from dpcvx.errors import WrongValue
from dpcvx.estimators.documentation import document
from dpcvx.estimators.planning import parameters
from dpcvx.estimators.row_models import RowModel
from dpcvx.words import show

__all__ = ["PrivateHazardRegressor"]


@document
@parameters
class PrivateHazardRegressor(RowModel):
    """Regression of the time until an event, some of which are not observed: hazards of public periods.

    ``log-odds of an event in period k, if none came before = <x, coef_> + baseline_[k]``

    y is the time of the event, or of the last observation, and the column ``event`` of X says which. The fit
    is one of `PrivateLogisticRegression` to a row for each period, with the record as the protected person;
    periods after the event, or in which a record was lost, have no label. Standard errors are cluster-robust.
    ``exp(coef_)`` are ratios of the odds of an event.
    """

    periods: Any = None
    event: str | None = None
    check: float = 0  # it would find that rows after the event have no label

    _column: ClassVar[str] = "period"
    _sign: ClassVar[float] = 1.0
    _family: ClassVar[str] = "discrete-time hazards, logit link"

    @property
    def baseline_(self) -> Vector:
        """Log-odds of an event in each period where all features are 0, shape (periods,)."""
        return self._log_odds()

    @property
    def periods_(self) -> Vector:
        """Edges of the periods, as `predict_survival` has them."""
        return np.array(self._edges())

    def predict_survival(self, X: Any) -> Vector:
        """Predict the probability that the event has not come, at each edge of ``periods``.

        Parameters
        ----------
        X : pandas, polars or Arrow table
            New rows; the column ``event`` is not needed.

        Returns
        -------
        ndarray of shape (n, edges)
            1 at the first edge.
        """
        left = np.cumprod(1 - self._chances(X), axis=1)
        return np.column_stack([np.ones(len(left)), left])

    def predict(self, X: Any) -> Vector:
        """Predict the mean time without the event from the first edge of ``periods`` to the last.

        It is the restricted mean: the area under the curve of `predict_survival`, which is taken to be
        straight between edges.

        Parameters
        ----------
        X : pandas, polars or Arrow table
            New rows; the column ``event`` is not needed.

        Returns
        -------
        ndarray of shape (n,)
        """
        survival = self.predict_survival(X)
        found: Vector = ((survival[:, 1:] + survival[:, :-1]) / 2) @ np.diff(self._edges())
        return found

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return D² of the periods, and warn once: on private rows it is not covered.

        It is the share of the log loss of events in observed periods that is saved, beside a model with the
        same hazard for all in each period.

        Parameters
        ----------
        X : pandas, polars or Arrow table
            Rows, with the column ``event``.
        y : array-like, shape (n,)
            Times.
        sample_weight : array-like, shape (n,), optional
            Weights of the rows.
        """
        check_is_fitted(self)
        self.model_._warn_of_leak()
        chances = self._chances(X)
        labels = self._rows(X, y).labels.reshape(chances.shape)
        weights = np.ones(len(chances)) if sample_weight is None else np.asarray(sample_weight, dtype=float)
        weights = np.where(np.isnan(labels), 0.0, weights[:, None])
        labels = np.nan_to_num(labels)
        with np.errstate(all="ignore"):
            constant = np.nan_to_num((weights * labels).sum(axis=0) / weights.sum(axis=0))
        left, whole = (_log_loss(labels, each, weights) for each in (chances, constant))
        return 1 - left / whole if whole > 0 else float("nan")

    def file_parameters(self) -> dict[str, Any]:
        """Return the parameters for a model file, with the edges as numbers."""
        return super().file_parameters() | {"periods": self._edges()}

    def _edges(self) -> list[float]:
        given = self.periods
        try:
            edges = [float(each) for each in (given.split(",") if isinstance(given, str) else given)]
        except (TypeError, ValueError):
            edges = []
        if len(edges) < 3 or not (np.isfinite(edges).all() and (np.diff(edges) > 0).all()):
            raise WrongValue(
                "PrivateHazardRegressor needs periods, three or more edges that increase, for instance "
                f"periods=(0, 12, 24, 36). Got {show(given)}."
            )
        return edges

    def _levels(self) -> tuple[str, ...]:
        edges = self._edges()
        return tuple(f"({low:g}, {high:g}]" for low, high in pairwise(edges))

    def _level_names(self) -> list[str]:
        return [f"period {level}" for level in self._levels()]

    def _roles(self) -> tuple[str | None, ...]:
        return (*super()._roles(), self.event)

    def _rows(self, X: Any, y: Any) -> ExpandedRows:
        if not isinstance(self.event, str):
            raise WrongValue(
                "PrivateHazardRegressor needs event, the column of X that says whether the event came: a "
                f"number above 0, or True. Got {show(self.event)}."
            )
        X, came = take_column(X, self.event, "event")
        return period_rows(X, y, came, periods=self._edges())

    def _new_rows(self, X: Any) -> Any:
        return period_rows(without_column(X, self.event), periods=self._edges()).table


def _log_loss(labels: Vector, chances: Vector, weights: Vector) -> float:
    """Return the weighted sum of log losses of labels 0 and 1."""
    from scipy.special import xlog1py, xlogy

    return -float((weights * (xlogy(labels, chances) + xlog1py(1 - labels, -chances))).sum())
