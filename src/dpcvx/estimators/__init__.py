"""Private models with scikit-learn's interface."""

from dpcvx.estimators.classifiers import PrivateLinearSVC, PrivateLogisticRegression
from dpcvx.estimators.model_file import load
from dpcvx.estimators.regressors import (
    PrivateElasticNet,
    PrivateHuberRegressor,
    PrivateLasso,
    PrivateLinearRegression,
    PrivateLowRankRegression,
    PrivateQuantileRegressor,
)
from dpcvx.estimators.structured import PrivateGroupLasso, PrivateStructuredLasso

__all__ = [
    "PrivateElasticNet",
    "PrivateGroupLasso",
    "PrivateHuberRegressor",
    "PrivateLasso",
    "PrivateLinearRegression",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateLowRankRegression",
    "PrivateQuantileRegressor",
    "PrivateStructuredLasso",
    "load",
]
