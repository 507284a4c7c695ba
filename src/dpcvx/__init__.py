"""Differentially private convex optimisation.

Names are imported when first used, so that ``import dpcvx`` stays quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpcvx.accounting import (
        GDP,
        PLD,
        RDP,
        AdaptiveSelection,
        Budget,
        ObjectiveProfile,
        PureComposition,
        Tight,
        calibrate,
    )
    from dpcvx.data.cluster import from_dask
    from dpcvx.data.memory import source
    from dpcvx.data.shards import Shards, from_arrow, from_batches, from_csv, from_parquet, open_shards
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
        SubmodularPolyhedron,
        Transformed,
        VertexHull,
        gaussian_width,
    )
    from dpcvx.domains.regularizers import L1, ElasticNet, GroupL2, Ridge, SubmodularNorm
    from dpcvx.domains.set_functions import (
        Cardinality,
        ConcaveOfCardinality,
        DirectSum,
        FromCallable,
        GroupCover,
        Interval,
        check_set_function,
        tree_cover,
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
        UselessModelWarning,
    )
    from dpcvx.estimators import (
        PrivateElasticNet,
        PrivateGroupLasso,
        PrivateHuberRegressor,
        PrivateLasso,
        PrivateLinearRegression,
        PrivateLinearSVC,
        PrivateLogisticRegression,
        PrivateLowRankRegression,
        PrivateQuantileRegressor,
        PrivateStructuredLasso,
        load,
    )
    from dpcvx.ledger import Account, Ledger, Receipt
    from dpcvx.losses import (
        ClippedLogistic,
        Huber,
        Logistic,
        Quantile,
        Sigmoid,
        SmoothHinge,
        Softmax,
        Squared,
        Welsch,
    )
    from dpcvx.noise import SecureGenerator, SeededGenerator
    from dpcvx.papers.hard_instances import PaddedTardos
    from dpcvx.planning.planner import plan
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
    from dpcvx.solvers import (
        GradientOracle,
        NoisyAcceleratedMirrorDescent,
        NoisyCorrectiveFrankWolfe,
        NoisyDualFrankWolfe,
        NoisyFrankWolfe,
        NoisyGeneralFrankWolfe,
        NoisyGradientDescent,
        NoisyMirrorDescent,
        NoisyStronglyConvexMirrorDescent,
        NoisySVRG,
        NoisySVRGPlusPlus,
        ObjectivePerturbation,
        OneStep,
        OutputPerturbation,
        Standardised,
        SufficientStatistics,
        run_with_oracle,
    )
    from dpcvx.tuning import PrivateSearchCV, private_tune
    from dpcvx.tuning.score import private_score

__version__ = "0.1.0"

_MODULES = {
    "accounting": "GDP PLD RDP AdaptiveSelection Budget ObjectiveProfile PureComposition Tight calibrate",
    "service.client": "Client ServiceError",
    "data.cluster": "from_dask",
    "data.memory": "source",
    "domains": "Box GroupBall InterpolationBall L1Ball L2Ball LinfBall NuclearBall Simplex SubmodularBall "
    "SubmodularPolyhedron Transformed VertexHull gaussian_width",
    "errors": "BudgetExceeded ClusterFailed DeadKey Incompatible KeyReused LedgerDamaged LedgerUnavailable "
    "NotAccountable PrivacyLeakWarning ShardsDamaged StoreUnavailable UselessModelWarning",
    "estimators": "PrivateElasticNet PrivateGroupLasso PrivateHuberRegressor PrivateLasso "
    "PrivateLinearRegression PrivateLinearSVC PrivateLogisticRegression PrivateLowRankRegression "
    "PrivateQuantileRegressor PrivateStructuredLasso load",
    "plans": "Plan Release Stage execute",
    "papers.hard_instances": "PaddedTardos",
    "ledger": "Account Ledger Receipt",
    "losses": "ClippedLogistic Huber Logistic Quantile Sigmoid SmoothHinge Softmax Squared Welsch",
    "noise": "SecureGenerator SeededGenerator",
    "planning.planner": "plan",
    "problem": "Bounds Problem",
    "queries": "Answer Attribute Binned Count Marginal Mean QueryEngine Regression Schema",
    "domains.regularizers": "ElasticNet GroupL2 L1 Ridge SubmodularNorm",
    "data.shards": "Shards from_arrow from_batches from_csv from_parquet open_shards",
    "tuning.score": "private_score",
    "solvers": "GradientOracle NoisyAcceleratedMirrorDescent NoisyCorrectiveFrankWolfe NoisyDualFrankWolfe "
    "NoisyFrankWolfe NoisyGeneralFrankWolfe NoisyGradientDescent NoisyMirrorDescent NoisySVRG "
    "NoisySVRGPlusPlus NoisyStronglyConvexMirrorDescent ObjectivePerturbation OneStep OutputPerturbation "
    "Standardised SufficientStatistics run_with_oracle",
    "domains.set_functions": "Cardinality ConcaveOfCardinality DirectSum FromCallable GroupCover Interval "
    "check_set_function tree_cover",
    "tuning": "PrivateSearchCV private_tune",
}
_HOME = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = sorted([*_HOME, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'dpcvx' has no attribute {name!r}")
    return getattr(import_module(f"dpcvx.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
