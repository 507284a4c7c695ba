"""Private linear regressors: squared, Huber and quantile loss."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin

from dpcvx.arrays import Vector
from dpcvx.cells import read_numbers
from dpcvx.estimators.documentation import documented
from dpcvx.estimators.model import LinearModel, Target, parameters
from dpcvx.grid import targets
from dpcvx.losses import Huber, Loss, Quantile, Squared

__all__ = [
    "PrivateHuberRegressor",
    "PrivateLasso",
    "PrivateLinearRegression",
    "PrivateQuantileRegressor",
]

# Of the width of y_bounds: residuals of a tenth of the declared range count as outliers.
HUBER_SHARE = 0.1


@parameters
class LinearRegressor(RegressorMixin, LinearModel):  # type: ignore[misc]
    """A linear model of a number within declared bounds."""

    y_bounds: Any = None

    def _loss(self, half_width: float) -> Loss:
        raise NotImplementedError

    def predict(self, X: Any) -> Vector:
        """Predict the target of new rows, ``X @ coef_ + intercept_``.

        Parameters
        ----------
        X : array-like, SciPy sparse matrix, or pandas / polars / Arrow table, shape (n, d)
            New rows. Cells that are no finite numbers count as they did in the fit; others are not clipped,
            and neither are the predictions.

        Returns
        -------
        ndarray of shape (n,)
        """
        return self._scores(X)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R^2 on the rows given, and warn once: on private rows it is not covered."""
        self._warn_of_leak()
        return float(super().score(X, y, sample_weight))

    def _y_range(self) -> tuple[float, float]:
        if self.y_bounds is None:
            raise ValueError(
                f"{type(self).__name__} needs y_bounds=(low, high) of the target, from public knowledge "
                "and not from y."
            )
        try:
            low, high = (float(bound) for bound in self.y_bounds)
        except (TypeError, ValueError):
            raise ValueError(
                f"y_bounds must be a pair (low, high) of numbers, got {self.y_bounds!r}."
            ) from None
        if not (low < high and math.isfinite(high - low)):
            raise ValueError(f"y_bounds must be finite with low < high, got {self.y_bounds!r}.")
        return low, high

    def _declare_target(self, y: NDArray[Any]) -> Target:
        low, high = self._y_range()
        half_width = (high - low) / 2
        facts = {"y_bounds": [low, high], "y_enforced": "clipped; a missing target counts as the middle"}
        return Target(self._loss(half_width), (), low + half_width, half_width, facts)

    def _encode_target(self, y: NDArray[Any], target: Target) -> Vector:
        with np.errstate(all="ignore"):
            raw = read_numbers(y)
            return targets(np.where(np.isfinite(raw), (raw - target.center) / target.scale, 0.0), limit=1.0)


class SquaredRegressor(LinearRegressor):
    """Least squares over a set; the subclass says which."""

    def _loss(self, half_width: float) -> Loss:
        return Squared()


@documented
class PrivateLinearRegression(SquaredRegressor):
    """Least squares over an l2 ball.

    minimise (1/n) sum_i (<x_i, theta> - y_i)^2 / 2 + (l2/2) ||theta||_2^2 over ||theta||_2 <= radius, all in
    scaled units
    """

    _geometry: ClassVar[str] = "l2"


@documented
class PrivateLasso(SquaredRegressor):
    """Least squares over an l1 ball: few features matter, and their number costs only a logarithm.

    minimise (1/n) sum_i (<x_i, theta> - y_i)^2 / 2 + (l2/2) ||theta||_2^2 over ||theta||_1 <= radius, all in
    scaled units
    """

    _geometry: ClassVar[str] = "l1"


@documented
@parameters
class PrivateHuberRegressor(LinearRegressor):
    """Robust regression: squared loss for small residuals, absolute loss beyond a threshold.

    minimise (1/n) sum_i huber(<x_i, theta> - y_i) + (l2/2) ||theta||_2^2 over the set, all in scaled units
    """

    domain: Any = "l2"
    threshold: float | None = None

    def _loss(self, half_width: float) -> Loss:
        self._check_number("threshold", self.threshold)
        if self.threshold is None:
            return Huber(2 * HUBER_SHARE)
        return Huber(float(self.threshold) / half_width)


@documented
@parameters
class PrivateQuantileRegressor(LinearRegressor):
    """Regression of a quantile of the target, by default its median.

    minimise (1/n) sum_i pinball(y_i - <x_i, theta>) + (l2/2) ||theta||_2^2 over the set, all in scaled units
    """

    domain: Any = "l2"
    quantile: float = 0.5

    def _loss(self, half_width: float) -> Loss:
        self._check_number("quantile", self.quantile)
        return Quantile(float(self.quantile))
