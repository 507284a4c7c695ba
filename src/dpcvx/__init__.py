"""Differentially private convex optimisation.

These are the names that users need; what an extender needs comes from the packages below. Names are imported
when first used, so that ``import dpcvx`` stays quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dpcvx.estimators.registry import ESTIMATORS, ROW_ESTIMATORS

if TYPE_CHECKING:
    from dpcvx.accounting import Budget
    from dpcvx.audit.pipeline import check_pipeline
    from dpcvx.checker import verify_statement
    from dpcvx.data.cluster import from_dask
    from dpcvx.data.column_maps import PrivateQuantiles, PrivateRamps, QuantileMap, Ramps, SignedLog
    from dpcvx.data.expanded_rows import ExpandedRows, level_rows, period_rows
    from dpcvx.data.files import CsvDialect, FileForm
    from dpcvx.data.memory import source
    from dpcvx.data.schema_columns import (
        BooleanColumn,
        DateColumn,
        HashedColumn,
        IgnoredColumn,
        LevelColumn,
        NumberColumn,
        PersonColumn,
        WeightColumn,
    )
    from dpcvx.data.shards import (
        Shards,
        from_arrow,
        from_batches,
        from_csv,
        from_files,
        from_parquet,
        open_shards,
    )
    from dpcvx.data.table import read_variables
    from dpcvx.data.table_schema import TableSchema
    from dpcvx.domains import (
        Box,
        GroupBall,
        InterpolationBall,
        L1Ball,
        L2Ball,
        LinfBall,
        NuclearBall,
        Simplex,
        SubmodularBall,
        VertexHull,
    )
    from dpcvx.errors import (
        BudgetExceeded,
        ClusterFailed,
        DeadKey,
        Incompatible,
        KeyReused,
        LedgerDamaged,
        LedgerUnavailable,
        NotAccountable,
        PrivacyLeakWarning,
        ShardsDamaged,
        StoreUnavailable,
        UnrecognisedDataWarning,
        UselessModelWarning,
    )
    from dpcvx.estimators import *  # noqa: F403
    from dpcvx.estimators import PrivatePreprocessor, load
    from dpcvx.ledger import Ledger
    from dpcvx.losses import Huber, Logistic, Quantile, Sigmoid, SmoothHinge, Softmax, Squared, Welsch
    from dpcvx.planning import plan
    from dpcvx.plans import Plan, Release, Stage, execute
    from dpcvx.problem import Bounds, Problem
    from dpcvx.queries import (
        Answer,
        Attribute,
        Binned,
        Count,
        Marginal,
        Mean,
        QueryEngine,
        Regression,
        Schema,
    )
    from dpcvx.service.client import Client, ServiceError
    from dpcvx.tuning import PrivateSearchCV, private_curves, private_score, private_tune

__version__ = "0.2.0"

_NAMES = {
    "accounting": "Budget",
    "audit.pipeline": "check_pipeline",
    "checker": "verify_statement",
    "data.expanded_rows": "ExpandedRows level_rows period_rows",
    "data.files": "CsvDialect FileForm",
    "data.memory": "source",
    "data.cluster": "from_dask",
    "data.column_maps": "PrivateQuantiles PrivateRamps QuantileMap Ramps SignedLog",
    "data.schema_columns": "BooleanColumn DateColumn HashedColumn IgnoredColumn LevelColumn NumberColumn "
    "PersonColumn WeightColumn",
    "data.shards": "Shards from_arrow from_batches from_csv from_files from_parquet open_shards",
    "data.table": "read_variables",
    "data.table_schema": "TableSchema",
    "domains": "Box GroupBall InterpolationBall L1Ball L2Ball LinfBall NuclearBall Simplex SubmodularBall "
    "VertexHull",
    "errors": "BudgetExceeded ClusterFailed DeadKey Incompatible KeyReused LedgerDamaged LedgerUnavailable "
    "NotAccountable PrivacyLeakWarning ShardsDamaged StoreUnavailable UnrecognisedDataWarning "
    "UselessModelWarning",
    "estimators": "PrivatePreprocessor load",
    "ledger": "Ledger",
    "losses": "Huber Logistic Quantile Sigmoid SmoothHinge Softmax Squared Welsch",
    "planning": "plan",
    "plans": "Plan Release Stage execute",
    "problem": "Bounds Problem",
    "queries": "Answer Attribute Binned Count Marginal Mean QueryEngine Regression Schema",
    "service.client": "Client ServiceError",
    "tuning": "PrivateSearchCV private_curves private_score private_tune",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}
_HOME |= dict.fromkeys([*ESTIMATORS, *ROW_ESTIMATORS], "estimators")

__all__ = sorted([*_HOME, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'dpcvx' has no attribute {name!r}")
    return getattr(import_module(f"dpcvx.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
