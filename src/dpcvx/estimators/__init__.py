"""Private models with scikit-learn's interface.

Names are imported when first used, so that the command line can show its help without scikit-learn.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dpcvx.estimators.registry import ESTIMATORS

if TYPE_CHECKING:
    from dpcvx.estimators.classifiers import LinearClassifier, PrivateLinearSVC, PrivateLogisticRegression
    from dpcvx.estimators.linear_model import (
        LinearModel,
        check_records,
        declare_fit,
        fit_silently,
        refuse_metadata,
    )
    from dpcvx.estimators.model_file import load
    from dpcvx.estimators.planning import FitDeclaration, parameters
    from dpcvx.estimators.regressors import (
        LinearRegressor,
        PrivateElasticNet,
        PrivateHuberRegressor,
        PrivateLasso,
        PrivateLinearRegression,
        PrivateLowRankRegression,
        PrivateQuantileRegressor,
    )
    from dpcvx.estimators.structured import PrivateGroupLasso, PrivateStructuredLasso

_HOME = {name: entry.module for name, entry in ESTIMATORS.items()}
for _module, _names in {
    "classifiers": "LinearClassifier",
    "linear_model": "LinearModel check_records declare_fit fit_silently refuse_metadata",
    "model_file": "load",
    "planning": "FitDeclaration parameters",
    "regressors": "LinearRegressor",
}.items():
    _HOME |= dict.fromkeys(_names.split(), _module)

__all__ = [
    "FitDeclaration",
    "LinearClassifier",
    "LinearModel",
    "LinearRegressor",
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
    "check_records",
    "declare_fit",
    "fit_silently",
    "load",
    "parameters",
    "refuse_metadata",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'dpcvx.estimators' has no attribute {name!r}")
    return getattr(import_module(f"dpcvx.estimators.{_HOME[name]}"), name)
