"""Private linear regressors: squared loss, of one target or several, Huber and quantile loss."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score

from dpcvx.arrays import Vector
from dpcvx.data.columns import Columns
from dpcvx.data.declarations import Declarations
from dpcvx.data.target import Numbers, Target, read_several
from dpcvx.domains import Domain, NuclearBall
from dpcvx.errors import WrongValue
from dpcvx.estimators.documentation import document
from dpcvx.estimators.linear_model import LinearModel
from dpcvx.estimators.planning import parameters
from dpcvx.estimators.refusals import check_number, needs_bounds_of_target
from dpcvx.losses import Huber, Loss, Quantile, Squared
from dpcvx.planning.planner import default_ridge
from dpcvx.plans import Solver
from dpcvx.problem import Problem
from dpcvx.solvers import SpectralShrinkage
from dpcvx.solvers.defaults import default
from dpcvx.words import quantity

__all__ = [
    "LinearRegressor",
    "PrivateElasticNet",
    "PrivateHuberRegressor",
    "PrivateLasso",
    "PrivateLinearRegression",
    "PrivateLowRankRegression",
    "PrivateQuantileRegressor",
    "SquaredRegressor",
]

HUBER_SHARE: float = default("estimators.regressors.HUBER_SHARE")
HUBER_DEVIATIONS: float = default("estimators.regressors.HUBER_DEVIATIONS")


@parameters
class LinearRegressor(RegressorMixin, LinearModel):  # type: ignore[misc]
    """A linear model of a number within declared bounds."""

    y_bounds: Any = None

    def predict(self, X: Any) -> Vector:
        """Predict the target of new rows; ``formula_`` says how, step by step.

        Parameters
        ----------
        X : array-like, SciPy sparse matrix, or pandas / polars / Arrow table, shape (n, d)
            New rows. Cells that are not finite numbers count as they did in the fit; ``extrapolation`` says
            which others are clipped. Predictions are not.

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
            Quantity to cover: the mean of the target at the row's features, or the target of a new person,
            whose own error is taken to be normal and as large everywhere.

        Returns
        -------
        ndarray of shape (n, 2)
            Lower and upper ends, in y's units.
        """
        if of not in ("mean", "observation"):
            raise WrongValue(f'of must be "mean" or "observation", got {of!r}.')
        return self._score_interval(X, level, self._known().dispersion if of == "observation" else 0.0)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R^2 on the rows given whose targets are finite numbers; NaN if there are none.

        It warns once: on private rows it is not covered.
        """
        self._warn_of_leak()
        predicted, truth = self._scores(X), self._row_map.target_numbers(self._read_target(y))
        if len(truth) != len(predicted):
            raise WrongValue(
                f"X has {quantity(len(predicted), 'row')} but y has {len(truth)}; they must agree."
            )
        known = np.isfinite(truth).reshape(len(truth), -1).all(axis=1)
        if not known.any():
            return math.nan
        weights = None if sample_weight is None else np.asarray(sample_weight)[known]
        return float(r2_score(truth[known], predicted[known], sample_weight=weights))

    def _declare_target(self, stated: Declarations, y: NDArray[Any]) -> Numbers:
        if stated.y_bounds is None:
            raise needs_bounds_of_target(self, stated, "(low, high)")
        return Numbers.declare(stated.y_bounds, y.shape[1:], stated.target_transform)


class SquaredRegressor(LinearRegressor):
    """Least squares over a set; the subclass says which."""

    def _family(self) -> str:
        return "Gaussian (least squares), identity link"

    def _loss(self, target: Target) -> Loss:
        return Squared()


@document
@parameters
class PrivateLinearRegression(SquaredRegressor):
    """Least squares over an l2 ball.

    minimise (1/n) sum_i (<x_i, theta> - y_i)^2 / 2 + (l2/2) ||theta||_2^2 over ||theta||_2 <= radius, all in
    scaled units
    """

    _geometry: ClassVar[str] = "l2"


@document
@parameters
class PrivateLasso(SquaredRegressor):
    """Least squares over an l1 ball: few features matter, and their number costs only a logarithm.

    minimise (1/n) sum_i (<x_i, theta> - y_i)^2 / 2 + (l2/2) ||theta||_2^2 over ||theta||_1 <= radius, all in
    scaled units
    """

    _geometry: ClassVar[str] = "l1"


@document
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


@document
@parameters
class PrivateLowRankRegression(SquaredRegressor):
    """Least squares of K targets over a nuclear ball: few combinations of the features explain all targets.

    minimise (1/n) sum_i ||theta^T x_i - y_i||_2^2 / 2 + (l2/2) ||theta||_F^2 over matrices (d, K) whose
    singular values sum to at most radius, all in scaled units

    Each target is clipped to its own pair of ``y_bounds``, two numbers or two arrays of K. By default the fit
    releases a mean and a standard deviation of each target and of each column first, and works in these
    units, so all targets count alike, however wide their bounds are. With a radius, a solver or
    ``standardize=False`` targets are mapped to [-1, 1] by their bounds instead. One person's K targets are
    covered together: what is clipped, and priced, is the Euclidean norm of the K residuals. The intercepts
    are a row of the matrix, in scaled units; the ball counts that row like every other.

    Singular values of the coefficients that noise alone could make are removed, and the others are shrunk
    (`SpectralShrinkage`), unless there is a radius, a solver or ``standardize=False``: the noise is known,
    and few combinations of the features are expected to matter. If as many matter as there are targets, this
    can cost R^2 where epsilon is small.

    ``radius=None`` is 3 sqrt(2 K): two combinations of features can then explain every target as well as the
    default of a single target can. y may have shape (n,) too, and counts as one target.
    """

    def _read_target(self, y: Any) -> NDArray[Any]:
        return read_several(y)

    def _domain_of(self, loss: Loss, outputs: int, columns: Columns) -> Domain:
        radius = self._radius(loss)
        if self.radius is None and outputs > 1:
            radius *= math.sqrt(2 * outputs)
        return NuclearBall(radius, backend="torch" if self.backend == "torch" else "auto")

    def _wrap_solvers(self, solvers: tuple[Solver, ...], problem: Problem) -> tuple[Solver, ...]:
        if problem.outputs == 1 or self.solver != "auto" or self.uncertainty:
            return solvers
        return tuple(SpectralShrinkage(each, bool(self.fit_intercept)) for each in solvers)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


@document
@parameters
class PrivateHuberRegressor(LinearRegressor):
    """Robust regression: squared loss for small residuals, absolute loss beyond a threshold.

    minimise (1/n) sum_i huber(<x_i, theta> - y_i) + (l2/2) ||theta||_2^2 over the set, all in scaled units
    """

    domain: Any = "l2"
    threshold: float | None = None

    def _loss(self, target: Target) -> Loss:
        check_number("threshold", self.threshold)
        if self.threshold is None:
            return Huber(2 * HUBER_SHARE, threshold_deviations=HUBER_DEVIATIONS)
        return Huber(float(self.threshold / target.scale))

    def _family(self) -> str:
        return "Huber's loss, identity link"


@document
@parameters
class PrivateQuantileRegressor(LinearRegressor):
    """Regression of a quantile of the target, by default its median.

    minimise (1/n) sum_i pinball(y_i - <x_i, theta>) + (l2/2) ||theta||_2^2 over the set, all in scaled units
    """

    domain: Any = "l2"
    quantile: float = 0.5

    def _loss(self, target: Target) -> Loss:
        check_number("quantile", self.quantile)
        return Quantile(float(self.quantile))

    def _family(self) -> str:
        return f"quantile {self.quantile:g}, identity link"

    def _interval_objection(self) -> str:
        return (
            "Standard errors are not available for quantile regression: its loss has no curvature, so the "
            "density of the errors would have to be released too. PrivateHuberRegressor(uncertainty=0.2) has "
            "standard errors, and is robust to outliers too."
        )
