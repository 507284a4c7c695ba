"""Private models with scikit-learn's interface.

Names are imported when first used, so that the command line can show its help without scikit-learn.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dpcvx.estimators.registry import ESTIMATORS, ROW_ESTIMATORS

if TYPE_CHECKING:
    from dpcvx.estimators.classifiers import *  # noqa: F403
    from dpcvx.estimators.data_check import *  # noqa: F403
    from dpcvx.estimators.export import *  # noqa: F403
    from dpcvx.estimators.formula import Formula as Formula
    from dpcvx.estimators.hazard import *  # noqa: F403
    from dpcvx.estimators.linear_model import *  # noqa: F403
    from dpcvx.estimators.model_file import load as load
    from dpcvx.estimators.ordinal import *  # noqa: F403
    from dpcvx.estimators.planning import FitDeclaration as FitDeclaration
    from dpcvx.estimators.planning import parameters as parameters
    from dpcvx.estimators.preprocessor import PrivatePreprocessor as PrivatePreprocessor
    from dpcvx.estimators.refusals import refuse_metadata as refuse_metadata
    from dpcvx.estimators.regressors import *  # noqa: F403
    from dpcvx.estimators.row_models import *  # noqa: F403
    from dpcvx.estimators.structured import *  # noqa: F403

_HOME = {name: entry.module for name, entry in {**ESTIMATORS, **ROW_ESTIMATORS}.items()}
for _module, _names in {
    "classifiers": "LinearClassifier",
    "data_check": "CheckedColumn DataCheck check_stages objection_to_noise release_check",
    "export": "ExportedClassifier ExportedRegressor FeatureMap",
    "formula": "Formula",
    "linear_model": "LinearModel check_records declare_fit fit_silently",
    "model_file": "load",
    "planning": "FitDeclaration parameters",
    "preprocessor": "PrivatePreprocessor",
    "refusals": "refuse_metadata",
    "regressors": "LinearRegressor",
    "row_models": "RowModel",
}.items():
    _HOME |= dict.fromkeys(_names.split(), _module)

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'dpcvx.estimators' has no attribute {name!r}")
    return getattr(import_module(f"dpcvx.estimators.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
