"""Private models with scikit-learn's interface."""

from dpcvx.estimators.classifiers import PrivateLinearSVC, PrivateLogisticRegression
from dpcvx.estimators.persistence import load
from dpcvx.estimators.regressors import (
    PrivateHuberRegressor,
    PrivateLasso,
    PrivateLinearRegression,
    PrivateQuantileRegressor,
)

__all__ = [
    "PrivateHuberRegressor",
    "PrivateLasso",
    "PrivateLinearRegression",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateQuantileRegressor",
    "load",
]
