"""Every estimator by name: its module, and its name on the command line.

The table is written down so that help and tests can list estimators without importing scikit-learn. A new
estimator is its class and a line here.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

__all__ = ["COMMANDS", "ESTIMATORS", "ROW_ESTIMATORS", "EstimatorEntry", "estimator_class"]


class EstimatorEntry(NamedTuple):
    """Module of an estimator within this package, and its name on the command line, if it has one."""

    module: str
    command: str | None = None


ESTIMATORS = {
    "PrivateLinearRegression": EstimatorEntry("regressors", "linear"),
    "PrivateLasso": EstimatorEntry("regressors", "lasso"),
    "PrivateElasticNet": EstimatorEntry("regressors", "elastic-net"),
    "PrivateGroupLasso": EstimatorEntry("structured", "group-lasso"),
    "PrivateStructuredLasso": EstimatorEntry("structured"),
    "PrivateLowRankRegression": EstimatorEntry("regressors"),
    "PrivateLogisticRegression": EstimatorEntry("classifiers", "logistic"),
    "PrivateAdditiveClassifier": EstimatorEntry("additive", "additive-classifier"),
    "PrivateAdditiveRegressor": EstimatorEntry("additive", "additive"),
    "PrivateLinearSVC": EstimatorEntry("classifiers", "svc"),
    "PrivatePoissonRegressor": EstimatorEntry("means", "poisson"),
    "PrivateGammaRegressor": EstimatorEntry("means", "gamma"),
    "PrivateFractionalRegressor": EstimatorEntry("means", "fractional"),
    "PrivateHuberRegressor": EstimatorEntry("regressors", "huber"),
    "PrivateQuantileRegressor": EstimatorEntry("regressors", "quantile"),
}
# Of tables only: they fit a logistic model to several rows of each record.
ROW_ESTIMATORS = {
    "PrivateOrdinalClassifier": EstimatorEntry("ordinal", "ordinal"),
    "PrivateHazardRegressor": EstimatorEntry("hazard", "hazard"),
}
ALL = {**ESTIMATORS, **ROW_ESTIMATORS}
COMMANDS = {entry.command: name for name, entry in ALL.items() if entry.command is not None}


def estimator_class(name: str) -> Any:
    """Return the class of an estimator."""
    return getattr(import_module(f"dpcvx.estimators.{ALL[name].module}"), name)
