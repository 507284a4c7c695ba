"""Private linear regressors: squared, Huber and quantile loss."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin

from dpcvx.arrays import Vector
from dpcvx.data import targets
from dpcvx.data.cells import read_numbers
from dpcvx.data.columns import bound_pair
from dpcvx.domains import Domain
from dpcvx.errors import shown
from dpcvx.estimators.documentation import documented
from dpcvx.estimators.linear_model import LinearModel
from dpcvx.estimators.planning import Target, parameters
from dpcvx.losses import (
    Huber,
    Loss,
    Quantile,
    Squared,
)
from dpcvx.planning.planner import default_ridge

__all__ = [
    "PrivateElasticNet",
    "PrivateHuberRegressor",
    "PrivateLasso",
    "PrivateLinearRegression",
    "PrivateQuantileRegressor",
    "SquaredRegressor",
]

# Of the width of y_bounds: residuals of a tenth of the declared range count as outliers.
HUBER_SHARE = 0.1


@parameters
class LinearRegressor(RegressorMixin, LinearModel):  # type: ignore[misc]
    """A linear model of a number within declared bounds."""

    y_bounds: Any = None

    def _loss(self, half_width: Any) -> Loss:
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
        ndarray of shape (n,), or (n, K) for several targets
        """
        return self._scores(X)

    def predict_interval(self, X: Any, level: float = 0.95, of: str = "mean") -> Vector:
        """Return an interval for each new row; the fit needs ``uncertainty``.

        Parameters
        ----------
        X : array-like, SciPy sparse matrix, or pandas / polars / Arrow table, shape (n, d)
            New rows.
        level : float
            Probability with which an interval covers.
        of : {"mean", "observation"}
            What is covered: the mean of the target at the row's features, or the target of a new person,
            whose own error is taken to be normal and as large everywhere.

        Returns
        -------
        ndarray of shape (n, 2)
            Lower and upper ends, in y's units.
        """
        if of not in ("mean", "observation"):
            raise ValueError(f'of must be "mean" or "observation", got {of!r}.')
        return self._score_interval(X, level, self._known().dispersion if of == "observation" else 0.0)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R^2 on the rows given, and warn once: on private rows it is not covered."""
        self._warn_of_leak()
        return float(super().score(X, y, sample_weight))

    def _check_target_kinds(self, kinds: frozenset[str]) -> None:
        if wrong := kinds - {"numbers"}:
            raise TypeError(
                f"y holds {' and '.join(sorted(wrong))} by its declared type; {type(self).__name__} needs "
                "numbers: convert y, for instance by y.astype(float), or use a classifier such as "
                "PrivateLogisticRegression if it holds labels."
            )

    def _y_range(self, shape: tuple[int, ...]) -> tuple[Vector, Vector]:
        """Declared bounds of a target, or of each of K: shape () or (K,)."""
        if self.y_bounds is None:
            raise ValueError(
                f"{type(self).__name__} needs y_bounds=(low, high) of the target, from public knowledge "
                "and not from y."
            )
        low, high = bound_pair(self.y_bounds, "y_bounds")
        if not {low.shape, high.shape} <= {(), shape}:
            wanted = " or of arrays with one entry for each target" if shape else ""
            raise ValueError(
                f"y_bounds must be a pair (low, high) of numbers{wanted}, got {shown(self.y_bounds)}."
            )
        if not ((low < high) & np.isfinite(high - low)).all():
            hint = " A pair of arrays holds all lows, then all highs." if shape else ""
            raise ValueError(f"y_bounds must be finite with low < high, got {shown(self.y_bounds)}.{hint}")
        return np.broadcast_to(low, shape), np.broadcast_to(high, shape)

    def _declare_target(self, y: NDArray[Any]) -> Target:
        low, high = self._y_range(y.shape[1:])
        half_width = (high - low) / 2
        facts = {
            "y_bounds": [low.tolist(), high.tolist()],
            "y_enforced": "clipped; a missing target counts as the middle",
        }
        return Target(self._loss(half_width), y.shape[1:], low + half_width, half_width, facts)

    def _encode_target(self, y: NDArray[Any], target: Target) -> Vector:
        with np.errstate(all="ignore"):
            raw = read_numbers(y)
            return targets(np.where(np.isfinite(raw), (raw - target.center) / target.scale, 0.0), limit=1.0)


class SquaredRegressor(LinearRegressor):
    """Least squares over a set; the subclass says which."""

    def _loss(self, half_width: Any) -> Loss:
        return Squared()


@documented
@parameters
class PrivateLinearRegression(SquaredRegressor):
    """Least squares over an l2 ball.

    minimise (1/n) sum_i (<x_i, theta> - y_i)^2 / 2 + (l2/2) ||theta||_2^2 over ||theta||_2 <= radius, all in
    scaled units
    """

    _geometry: ClassVar[str] = "l2"


@documented
@parameters
class PrivateLasso(SquaredRegressor):
    """Least squares over an l1 ball: few features matter, and their number costs only a logarithm.

    minimise (1/n) sum_i (<x_i, theta> - y_i)^2 / 2 + (l2/2) ||theta||_2^2 over ||theta||_1 <= radius, all in
    scaled units
    """

    _geometry: ClassVar[str] = "l1"


@documented
@parameters
class PrivateElasticNet(SquaredRegressor):
    """Least squares over an l1 ball with a ridge: few features matter, and those that vary together share.

    minimise (1/n) sum_i (<x_i, theta> - y_i)^2 / 2 + (l2/2) ||theta||_2^2 over ||theta||_1 <= radius, all in
    scaled units

    ``l2=None`` is 0.1/radius^2: the most that the ridge can cost is then a tenth of the most that the
    constant in the middle of ``y_bounds`` can cost.
    """

    _geometry: ClassVar[str] = "l1"

    l2: float | None = None

    def _ridge(self, domain: Domain) -> float:
        return default_ridge(domain.norm(2, 1)) if self.l2 is None else float(self.l2)


@documented
@parameters
class PrivateHuberRegressor(LinearRegressor):
    """Robust regression: squared loss for small residuals, absolute loss beyond a threshold.

    minimise (1/n) sum_i huber(<x_i, theta> - y_i) + (l2/2) ||theta||_2^2 over the set, all in scaled units
    """

    domain: Any = "l2"
    threshold: float | None = None

    def _loss(self, half_width: Any) -> Loss:
        self._check_number("threshold", self.threshold)
        if self.threshold is None:
            return Huber(2 * HUBER_SHARE)
        return Huber(float(self.threshold / half_width))


@documented
@parameters
class PrivateQuantileRegressor(LinearRegressor):
    """Regression of a quantile of the target, by default its median.

    minimise (1/n) sum_i pinball(y_i - <x_i, theta>) + (l2/2) ||theta||_2^2 over the set, all in scaled units
    """

    domain: Any = "l2"
    quantile: float = 0.5

    def _loss(self, half_width: Any) -> Loss:
        self._check_number("quantile", self.quantile)
        return Quantile(float(self.quantile))
