"""Private regressors of means: counts and amounts by their logarithm, fractions by their log-odds."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpcvx.arrays import Vector
from dpcvx.data.canonical import read_numbers
from dpcvx.data.cells import native_array, without_column
from dpcvx.data.dataset import Dataset, InMemory
from dpcvx.data.declarations import Declarations
from dpcvx.data.exposure import check_exposure, read_exposure
from dpcvx.data.target import Amounts, Numbers, Target
from dpcvx.data.units import take_column
from dpcvx.errors import Incompatible, WrongType, WrongValue
from dpcvx.estimators.documentation import document
from dpcvx.estimators.links import mean_of_scores
from dpcvx.estimators.opening import require_table
from dpcvx.estimators.planning import parameters
from dpcvx.estimators.refusals import needs_bounds_of_target
from dpcvx.estimators.regressors import LinearRegressor
from dpcvx.losses import DevianceLoss, FractionalLogit, LogGamma, LogPoisson, Loss
from dpcvx.plans import Release
from dpcvx.words import quantity, show

__all__ = [
    "LogLinkRegressor",
    "MeanRegressor",
    "PrivateFractionalRegressor",
    "PrivateGammaRegressor",
    "PrivatePoissonRegressor",
]


class MeanRegressor(LinearRegressor):
    """A linear model of a mean through a link; the subclass says of which law."""

    law: ClassVar[DevianceLoss]  # that has the model's deviance

    _geometry: ClassVar[str] = "l2"

    def predict(self, X: Any) -> Vector:
        """Predict the mean of the target of new rows; ``formula_`` says how, step by step.

        Parameters
        ----------
        X : array-like, SciPy sparse matrix, or pandas / polars / Arrow table, shape (n, d)
            New rows. Cells that are not finite numbers count as they did in the fit; ``extrapolation`` says
            which others are clipped.

        Returns
        -------
        ndarray of shape (n,)
        """
        return mean_of_scores(self._scores(X), self._link)

    def predict_interval(self, X: Any, level: float = 0.95, of: str = "mean") -> Vector:
        """Return an interval for the mean of each new row; the fit needs ``uncertainty``.

        Parameters
        ----------
        X : array-like, SciPy sparse matrix, or pandas / polars / Arrow table, shape (n, d)
            New rows.
        level : float
            Probability with which an interval covers.
        of : {"mean"}
            Quantity to cover. The law of one person's target is no part of the model, so there is no
            interval for it.

        Returns
        -------
        ndarray of shape (n, 2)
            Lower and upper ends, in y's units.
        """
        if of != "mean":
            raise WrongValue(
                f'of must be "mean", got {of!r}: {type(self).__name__} is a model of means, and does not '
                "know how the targets of single persons are spread about them."
            )
        return mean_of_scores(self._score_interval(X, level), self._link)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return D^2, the share of the deviance that is explained, on the rows whose targets are possible.

        It is 0 for the mean of the targets given, and NaN if there are none. It warns once: on private rows
        it is not covered.
        """
        self._warn_of_leak()
        predicted, truth = self.predict(X), self._row_map.target_numbers(self._read_target(y))
        if len(truth) != len(predicted):
            raise WrongValue(
                f"X has {quantity(len(predicted), 'row')} but y has {len(truth)}; they must agree."
            )
        known = np.isfinite(truth) & np.isfinite(predicted) & self._possible(truth)
        if not known.any():
            return math.nan
        weights = np.ones(len(truth)) if sample_weight is None else np.asarray(sample_weight, dtype=float)
        truth, predicted, weights = truth[known], predicted[known], weights[known]
        exposures = np.broadcast_to(self.exposures(X), known.shape)[known]
        constant = exposures * float(weights @ truth) / float(weights @ exposures)
        left, whole = (float(weights @ self.law.deviance(truth, mean)) for mean in (predicted, constant))
        return 1.0 - left / whole if whole > 0 else math.nan

    def exposures(self, X: Any) -> Vector:
        """Return the exposures of new rows, shape (n,), or (1,) for one that all have.

        Parameters
        ----------
        X : array-like, SciPy sparse matrix, or pandas / polars / Arrow table
            New rows.
        """
        return np.ones(1)

    def _possible(self, y: Vector) -> NDArray[np.bool_]:
        """Whether targets are such that the law of the loss allows."""
        raise NotImplementedError

    def _dispersion_facts(self) -> list[tuple[str, str]]:
        if self._uncertainty is None:
            return []
        return [("dispersion", f"{self._uncertainty.dispersion:.4g}, {self._dispersion_words}")]

    _dispersion_words: ClassVar[str]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # scikit-learn's checks have targets below 0
        return tags


class LogLinkRegressor(MeanRegressor):
    """A linear model of the logarithm of the mean of an amount >= 0."""

    def _declare_target(self, stated: Declarations, y: NDArray[Any]) -> Numbers:
        if stated.y_bounds is None:
            raise needs_bounds_of_target(self, stated, "(0, high)")
        return Amounts.declare(stated.y_bounds, y.shape[1:], stated.target_transform)

    def _units(self, release: Release, target: Target) -> tuple[Any, Any, dict[str, Any]]:
        return np.log(target.scale), 1.0, target.facts

    def _variance_unit(self, release: Release, target: Target, spread: Any) -> float:
        return float(target.scale ** (2 - release.plan.problem.loss.variance_power))


@document
@parameters
class PrivatePoissonRegressor(LogLinkRegressor):
    """Regression of a count, or another amount that may be 0, by the logarithm of its mean.

    minimise (1/n) sum_i exp(z_i) - y_i z_i + (l2/2) ||theta||_2^2 over an l2 ball, z_i = <x_i, theta>, all in
    scaled units; slopes exp(z_i) - y_i are clipped, at 2.5 or more standard deviations of y

    The loss is Poisson's, and the coefficients are right if the model of the mean is, whatever the law of the
    counts: they may be overdispersed, as with a negative binomial law. ``uncertainty`` releases robust
    standard errors, which hold for all of them, and the dispersion, variance over mean. ``exp(coef_)`` are
    ratios of rates.

    With ``exposure`` the mean of a count is the exposure times exp(z_i): years, areas or numbers of people in
    which it was counted. Coefficients are then of the rate, the mean for an exposure of 1.
    """

    exposure: str | None = None
    max_exposure: float | None = None

    law: ClassVar[DevianceLoss] = LogPoisson()
    _dispersion_words: ClassVar[str] = "variance over mean; 1 for a Poisson law"

    def predict(self, X: Any) -> Vector:
        """Predict the mean count of new rows; ``formula_`` says how, step by step.

        Parameters
        ----------
        X : array-like, SciPy sparse matrix, or pandas / polars / Arrow table, shape (n, d)
            New rows. Cells that are not finite numbers count as they did in the fit; ``extrapolation`` says
            which others are clipped. Where the table has the column ``exposure``, means are those of these
            exposures, and NaN for one that is not positive; otherwise they are rates, for an exposure of 1.

        Returns
        -------
        ndarray of shape (n,)
        """
        return super().predict(X) * self.exposures(X)

    def predict_interval(self, X: Any, level: float = 0.95, of: str = "mean") -> Vector:
        """Return an interval for the mean of each new row; the fit needs ``uncertainty``.

        Parameters
        ----------
        X : array-like, SciPy sparse matrix, or pandas / polars / Arrow table, shape (n, d)
            New rows; as for `predict`.
        level : float
            Probability with which an interval covers.
        of : {"mean"}
            Quantity to cover; counts of single persons are not.

        Returns
        -------
        ndarray of shape (n, 2)
            Lower and upper ends.
        """
        return super().predict_interval(X, level, of) * np.reshape(self.exposures(X), (-1, 1))

    def exposures(self, X: Any) -> Vector:
        """Return the exposures of new rows, shape (n,); 1, shape (1,), where the rows have none.

        Parameters
        ----------
        X : array-like, SciPy sparse matrix, or pandas / polars / Arrow table
            New rows. One whose exposure is not positive has NaN.
        """
        if self.exposure is None or without_column(X, self.exposure) is X:
            return np.ones(1)
        exposures = read_numbers(native_array(take_column(X, self.exposure, "exposure")[1]))
        return np.where(exposures > 0, exposures, np.nan)

    def _open_data(self, X: Any, y: Any, groups: Any, sample_weight: Any) -> Dataset:
        if self.exposure is None:
            if self.max_exposure is not None:
                raise Incompatible("max_exposure needs exposure, the column with the exposures.")
            return super()._open_data(X, y, groups, sample_weight)
        if not isinstance(self.exposure, str):
            raise WrongType(f"exposure must be the name of a column, got {type(self.exposure).__name__}.")
        largest = check_exposure(self.max_exposure)
        reason = "rows in shards, in batches, on a cluster or on a GPU are stored without exposures"
        require_table(X, self.backend, "exposure", reason)
        X, cells = take_column(X, self.exposure, "exposure")
        dataset = super()._open_data(X, y, groups, sample_weight)
        if isinstance(dataset, InMemory):
            dataset.exposure = read_exposure(cells, largest)
        return dataset

    def _loss(self, target: Target) -> Loss:
        return LogPoisson(offset=self.exposure is not None)

    def _units(self, release: Release, target: Target) -> tuple[Any, Any, dict[str, Any]]:
        center, scale, facts = super()._units(release, target)
        if self.exposure is None:
            return center, scale, facts
        high = check_exposure(self.max_exposure)
        words = (
            f"column {self.exposure!r}, in (0, {high:g}]: a larger one counts as {high:g}, and a record "
            "whose exposure is missing or not positive is left out"
        )
        return center - math.log(high), scale, {**facts, "exposure": words}

    def _possible(self, y: Vector) -> NDArray[np.bool_]:
        return y >= 0

    def _family(self) -> str:
        return "Poisson (quasi-likelihood: counts may be overdispersed), log link"


@document
@parameters
class PrivateGammaRegressor(LogLinkRegressor):
    """Regression of an amount, such as money, by the logarithm of its mean; errors are relative to the mean.

    minimise (1/n) sum_i z_i + y_i exp(-z_i) + (l2/2) ||theta||_2^2 over an l2 ball, z_i = <x_i, theta>, all
    in scaled units; slopes 1 - y_i exp(-z_i) are clipped

    The loss is that of the gamma law, and the coefficients are right if the model of the mean is, whatever
    the law of the amounts. ``exp(coef_)`` are ratios of means.
    """

    law: ClassVar[DevianceLoss] = LogGamma()
    _dispersion_words: ClassVar[str] = "variance over squared mean"

    def _loss(self, target: Target) -> Loss:
        return LogGamma()

    def _possible(self, y: Vector) -> NDArray[np.bool_]:
        return y > 0

    def _family(self) -> str:
        return "gamma (quasi-likelihood of amounts), log link"


@document
@parameters
class PrivateFractionalRegressor(MeanRegressor):
    """Regression of a share between 0 and 1, both included, by the log-odds of its mean.

    minimise (1/n) sum_i log(1 + exp(z_i)) - y_i z_i + (l2/2) ||theta||_2^2 over an l2 ball, in scaled units,
    z_i = <x_i, theta>

    The loss is that of logistic regression, and the coefficients are right if the model of the mean is,
    whatever the law of the shares (fractional logit).
    """

    y_bounds: Any = (0, 1)

    law: ClassVar[DevianceLoss] = FractionalLogit()
    _dispersion_words: ClassVar[str] = "variance over mean (1 - mean)"

    def _declare_target(self, stated: Declarations, y: NDArray[Any]) -> Numbers:
        if stated.y_bounds is None or np.shape(stated.y_bounds) != (2,) or tuple(stated.y_bounds) != (0, 1):
            raise WrongValue(
                f"PrivateFractionalRegressor takes shares: y_bounds are (0, 1), got {show(stated.y_bounds)}. "
                "Divide y by its largest possible value, 100 for percentages."
            )
        return super()._declare_target(stated, y)

    def _loss(self, target: Target) -> Loss:
        return FractionalLogit()

    def _units(self, release: Release, target: Target) -> tuple[Any, Any, dict[str, Any]]:
        return 0.0, 1.0, target.facts

    def _possible(self, y: Vector) -> NDArray[np.bool_]:
        return (y >= 0) & (y <= 1)

    def _family(self) -> str:
        return "Bernoulli (quasi-likelihood of shares), logit link"
