"""Standard errors and intervals of a fitted model, from what was released with it."""

from __future__ import annotations

import warnings
from statistics import NormalDist
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dpcvx.arrays import Vector
from dpcvx.data.table import Table
from dpcvx.errors import NotReleased, WrongValue
from dpcvx.plans.uncertainty import Uncertainty

__all__ = ["Intervals"]


class Intervals:
    """Standard errors and intervals of a linear model, fitted with a share of the budget for `uncertainty`.

    Intervals cover privacy noise and sampling error together. They are centred at ``coef_debiased_``, which
    has no bias from stopping early; ``coef_`` is the fit, which predicts better where noise is large.
    """

    categories: Any
    _uncertainty: Uncertainty | None  # in the user's units, the intercept last

    @property
    def coef_debiased_(self) -> Vector:
        """Estimate of the coefficients without the bias of the fit, shape (d,)."""
        return self._known().estimate[:-1]

    @property
    def intercept_debiased_(self) -> float:
        """Estimate of the intercept without the bias of the fit."""
        return float(self._known().estimate[-1])

    @property
    def coef_std_(self) -> Vector:
        """Standard errors of ``coef_debiased_``, privacy noise included, shape (d,)."""
        deviations: Vector = np.sqrt(np.diag(self._known().covariance))[:-1]
        return deviations

    @property
    def intercept_std_(self) -> float:
        """Standard error of ``intercept_debiased_``, privacy noise included."""
        return float(np.sqrt(self._known().covariance[-1, -1]))

    def coef_interval(self, level: float = 0.95) -> Vector:
        """Return an interval for each coefficient.

        Parameters
        ----------
        level : float
            Probability with which an interval covers its coefficient.

        Returns
        -------
        ndarray of shape (d, 2)
            Lower and upper ends, in your units.
        """
        self._warn_of_weak_directions()
        return _interval(self.coef_debiased_, self.coef_std_, level)

    def intercept_interval(self, level: float = 0.95) -> Vector:
        """Return an interval for the intercept.

        Parameters
        ----------
        level : float
            Probability with which the interval covers the intercept.

        Returns
        -------
        ndarray of shape (2,)
        """
        self._warn_of_weak_directions()
        return _interval(np.array(self.intercept_debiased_), np.array(self.intercept_std_), level)

    def _score_interval(self, X: Any, level: float, extra: float = 0.0) -> Vector:
        """Interval for the linear score of each new row, the variance of a new target added where given."""
        known = self._known()
        self._warn_of_weak_directions()
        values, axes = np.linalg.eigh(known.covariance)
        factor = axes * np.sqrt(np.maximum(values, 0.0))
        table = self._new_rows(X)
        center = self._linear(table, known.estimate[:-1], known.estimate[-1])
        moves = self._linear(table, factor[:-1], factor[-1])
        return _interval(center, np.sqrt((moves**2).sum(axis=1) + extra), level)

    def _new_rows(self, X: Any) -> Table:
        raise NotImplementedError

    def _linear(self, table: Table, coef: Vector, intercept: Any) -> Vector:
        raise NotImplementedError

    def _known(self) -> Uncertainty:
        check_is_fitted(self)
        if self._uncertainty is None:
            raise NotReleased(
                "This model was fitted without a share of the budget for its uncertainty: fit it with "
                "uncertainty=0.2, which spends a fifth of the budget on the Hessian that intervals need."
            )
        return self._uncertainty

    def _warn_of_weak_directions(self) -> None:
        weak = self._known().weak
        if weak:
            # Levels of a column add up to the intercept: no number of records tells them apart.
            levels = " So does declaring all levels of a category but one." if self.categories else ""
            warnings.warn(
                f"In {weak} direction(s) of {len(self._known().estimate)} the noise hides how the records "
                "vary: intervals are as wide there as the set allows. More records, a larger epsilon or a "
                f"larger uncertainty share narrow them.{levels}",
                UserWarning,
                stacklevel=3,
            )


def _interval(center: Vector, deviation: Vector, level: float) -> Vector:
    if not 0 < level < 1:
        raise WrongValue(f"level must be between 0 and 1, got {level!r}.")
    half = NormalDist().inv_cdf((1 + level) / 2) * deviation
    return np.stack([center - half, center + half], axis=-1)
