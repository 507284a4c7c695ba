"""Every estimator by name: its module, and its name on the command line.

The table is written down so that help and tests can list estimators without importing scikit-learn. A new
estimator is its class, a line here, and a line for type checkers in the package's ``__init__``.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

__all__ = ["COMMANDS", "ESTIMATORS", "Entry", "estimator_class"]


class Entry(NamedTuple):
    """Module of an estimator within this package, and its name on the command line, if it has one."""

    module: str
    command: str | None = None


ESTIMATORS = {
    "PrivateLinearRegression": Entry("regressors", "linear"),
    "PrivateLasso": Entry("regressors", "lasso"),
    "PrivateElasticNet": Entry("regressors", "elastic-net"),
    "PrivateGroupLasso": Entry("structured", "group-lasso"),
    "PrivateStructuredLasso": Entry("structured"),
    "PrivateLowRankRegression": Entry("regressors"),
    "PrivateLogisticRegression": Entry("classifiers", "logistic"),
    "PrivateLinearSVC": Entry("classifiers", "svc"),
    "PrivateHuberRegressor": Entry("regressors", "huber"),
    "PrivateQuantileRegressor": Entry("regressors", "quantile"),
}
COMMANDS = {entry.command: name for name, entry in ESTIMATORS.items() if entry.command is not None}


def estimator_class(name: str) -> Any:
    """Return the class of an estimator."""
    return getattr(import_module(f"dpcvx.estimators.{ESTIMATORS[name].module}"), name)
