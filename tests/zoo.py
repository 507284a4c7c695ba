"""One of everything: contract tests run over these lists, so a new thing is tested by being listed."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from sklearn.base import is_classifier

from dpcvx.accounting import (
    GDP,
    PLD,
    RDP,
    Accountant,
    AdaptiveSelection,
    Neighbours,
    ObjectiveProfile,
    PureComposition,
    Tight,
)
from dpcvx.arrays import Shape
from dpcvx.data import Deviances, LogLosses, MeanTotals, SquaredErrors
from dpcvx.domains import (
    Box,
    Domain,
    GroupBall,
    InterpolationBall,
    L1Ball,
    L2Ball,
    LinfBall,
    NuclearBall,
    Simplex,
    Transformed,
    VertexHull,
)
from dpcvx.domains.interpolation import Interpolation
from dpcvx.domains.mirror import Entropy, MirrorMap
from dpcvx.domains.p_norm_map import PNorm
from dpcvx.domains.regularizers import L1, ElasticNet, GroupL2, Regularizer, Ridge, SubmodularNorm
from dpcvx.domains.set_functions import (
    Cardinality,
    ConcaveOfCardinality,
    DirectSum,
    FromCallable,
    GroupCover,
    Interval,
    SetFunction,
    tree_cover,
)
from dpcvx.domains.submodular_ball import SubmodularBall, SubmodularPolyhedron
from dpcvx.domains.vertex_norm_map import VertexNorm
from dpcvx.estimators.registry import ESTIMATORS, estimator_class
from dpcvx.losses import (
    BoundedInfluence,
    BoundedLogistic,
    ClippedLogistic,
    FractionalLogit,
    Huber,
    LogGamma,
    Logistic,
    LogPoisson,
    Loss,
    Quantile,
    Sigmoid,
    SmoothHinge,
    Softmax,
    Squared,
    Welsch,
)
from dpcvx.mechanisms import (
    Mechanism,
    NoisyBinCounts,
    NoisyCounts,
    NoisyDifference,
    NoisyGoodness,
    NoisyGradient,
    NoisyGroup,
    NoisyLength,
    NoisyMinimiser,
    NoisyMoments,
    NoisyPair,
    NoisyPooledCounts,
    NoisyQuantile,
    NoisyRowCount,
    NoisySecondMoments,
    NoisyTarget,
    NoisyVertex,
    PerturbedMinimiser,
)
from dpcvx.noise import SeededGenerator
from dpcvx.problem import Bounds, Problem

BINARY_LOSSES: list[Loss] = [
    Logistic(),
    ClippedLogistic(0.6),
    BoundedLogistic(threshold=0.5),
    SmoothHinge(),
    SmoothHinge(width=3.0),
    Sigmoid(),
]
REGRESSION_LOSSES: list[Loss] = [
    Squared(),
    Squared(y_range=(-0.5, 3.0)),
    Huber(threshold=0.5),
    Huber(threshold=100.0),
    BoundedInfluence(threshold=0.5),
    Quantile(quantile=0.5),
    Quantile(quantile=0.9),
    Welsch(scale=0.7),
    Welsch(scale=20.0),
    LogPoisson(),
    LogPoisson(limit=0.4, y_range=(0.0, 5.0)),
    LogGamma(),
    LogGamma(limit=4.0, y_range=(0.0, 5.0)),
    FractionalLogit(),
    FractionalLogit(limit=0.3, y_range=(-0.5, 0.8)),
]
SCALAR_LOSSES: list[Loss] = BINARY_LOSSES + REGRESSION_LOSSES
ALL_LOSSES: list[Loss] = [*SCALAR_LOSSES, Softmax()]

_angles = np.linspace(0.0, 2 * np.pi, 40, endpoint=False)
_random = np.random.default_rng(5)
_few = VertexHull(np.random.default_rng(6).normal(size=(12, 60)))  # few vertices in many dimensions
_many = VertexHull(np.random.default_rng(7).normal(size=(150, 3)))  # many vertices in few

# A function of d coordinates, and d; small enough to list all sets.
ALL_SET_FUNCTIONS: list[tuple[SetFunction, int]] = [
    (Cardinality(), 5),
    (ConcaveOfCardinality(np.sqrt), 6),
    (ConcaveOfCardinality([2.0, 3.0, 3.5, 3.5]), 4),
    (ConcaveOfCardinality(lambda k: np.minimum(k, 1.0)), 5),
    (GroupCover([[0, 1], [2, 3], [4, 5]]), 6),
    (GroupCover([[0, 3], [2], [1, 4]], [1.0, 0.5, 3.0]), 5),
    (GroupCover([[0, 1, 2], [2, 3], [3, 4, 5], [0, 5]], [1.0, 0.5, 2.0, 0.7]), 6),
    (tree_cover([-1, 0, 0, 1, 1, 2]), 6),
    (tree_cover([2, 2, -1, -1, 3], [0.5, 2.0, 1.0, 1.0, 0.1]), 5),
    (Interval(6, 4.0), 6),
    (Interval(5, 9.0), 5),
    (Interval(1, 0.0), 1),
    (FromCallable(lambda mask: float(np.log1p(mask @ np.arange(1.0, 7.0))), 6), 6),
]
ALL_SET_FUNCTIONS += [
    (DirectSum([Interval(3, 2.0), GroupCover([[0]], [2.5])], [3, 1]), 4),
    (DirectSum([ConcaveOfCardinality(np.sqrt), ALL_SET_FUNCTIONS[-1][0]], [2, 6]), 8),
]
ALL_REGULARIZERS: list[tuple[Regularizer, Shape]] = [
    (L1(0.7), (3, 2)),
    (L1(0.0), 2),
    (Ridge(2.0), 4),
    (ElasticNet(0.5, 1.5), 5),
    (GroupL2([[0, 4], [1, 2]], 0.8), 6),
    (GroupL2([[0, 4], [1, 2]], 0.8), (3, 2)),
    *((SubmodularNorm(F, 0.6), d) for F, d in ALL_SET_FUNCTIONS),
]

# A set stores no dimension, so each comes with the shape of a parameter.
AROUND_ZERO: list[tuple[Domain, Shape]] = [
    (L2Ball(2.0), 5),
    (L2Ball(0.5), (3, 2)),
    (L1Ball(3.0), 6),
    (L1Ball(0.25), (2, 3)),
    (L1Ball(1.0), 1),
    (LinfBall(0.5), 4),
    (LinfBall(2.0), (2, 2)),
    (Box(-1.0, 2.0), 4),
    (Box([-1.0, -2.0, -0.5, -3.0], 1.0), (2, 2)),
    (VertexHull(np.vstack([np.eye(4), -np.ones((1, 4))])), 4),
    (VertexHull(3.0 * np.column_stack([np.cos(_angles), np.sin(_angles)])), 2),
    (VertexHull(np.vstack([_random.normal(size=(12, 4)), np.eye(4), -np.eye(4)])), (2, 2)),
    (GroupBall(2, 1.5), 5),
    (GroupBall([3, 1], 0.5), 4),
    (GroupBall([[0, 2], [1]], 2.0), (3, 2)),
    (InterpolationBall(0.0, 2.0), 4),
    (InterpolationBall(0.3, 2.0), 5),
    (InterpolationBall(0.8, 0.5), (3, 2)),
    (InterpolationBall(1.0, 2.0), 4),
    (NuclearBall(2.0), (3, 2)),
    (NuclearBall(0.5), (2, 4)),
    (NuclearBall(1.0), 3),
    (Transformed(L1Ball(1.0), 2.5), 4),
    (Transformed(GroupBall(2, 1.0), 3.0, [0.1, -0.2, 0.3, 0.0]), (2, 2)),
    (SubmodularBall(ConcaveOfCardinality(np.sqrt), 2.0), 5),
    (SubmodularBall(GroupCover([[0, 1], [2, 3]]), 0.5), (2, 2)),
    (SubmodularBall(tree_cover([-1, 0, 0, 1]), 2.0), 4),
    (SubmodularPolyhedron(ConcaveOfCardinality(np.sqrt), 0.5), 5),
    (SubmodularPolyhedron(GroupCover([[0, 1], [2, 3]]), 2.0), (2, 2)),
    (SubmodularPolyhedron(Interval(4, 2.0), 2.0), 4),
]
OFF_ZERO: list[tuple[Domain, Shape]] = [
    (Box([1.0, -1.0, 2.0], [2.0, 1.0, 5.0]), 3),
    (Box(0.0, 1.0), 3),
    (Simplex(), 5),
    (Simplex(3.0), (2, 2)),
    (VertexHull([[1.0, 0.0, 2.0], [0.0, 3.0, 1.0]]), 3),
    (VertexHull(4.0 + _random.normal(size=(7, 3))), 3),
    (Transformed(L2Ball(1.0), 0.5, [2.0, 0.0, 1.0]), 3),
    (Transformed(NuclearBall(1.0), 2.0, 3.0), (2, 2)),
    (Transformed(Simplex(), 2.0, [0.0, 0.5, 1.0, 0.0]), 4),
]
ALL_DOMAINS: list[tuple[Domain, Shape]] = AROUND_ZERO + OFF_ZERO

# (psi, C, d): the map each set chooses, and those that it would choose in other dimensions only.
ALL_MIRROR_MAPS: list[tuple[MirrorMap, Domain, Shape]] = [
    *((C.mirror_map(d), C, d) for C, d in ALL_DOMAINS),  # type: ignore[attr-defined]
    (Entropy(1.0), Simplex(), 5),
    (Entropy(3.0), Simplex(3.0), (2, 2)),
    (Entropy(1.0), Simplex(), 200),
    *(
        (PNorm(C, p), C, d)
        for C, d, p in [
            (L1Ball(2.0), 6, 3.0),
            (L1Ball(0.5), (2, 3), 9.0),
            (GroupBall(2, 1.5), 7, 3.0),
            (GroupBall([[0, 2], [1], [3]], 2.0), (4, 2), 6.0),
            (NuclearBall(2.0), (3, 2), 2.5),
            (NuclearBall(0.5), (3, 5), 4.0),
        ]
    ),
    *((VertexNorm(C), C, d) for C, d in ALL_DOMAINS if isinstance(C, VertexHull)),
    (VertexNorm(_few), _few, 60),
    (VertexNorm(_many), _many, 3),
    (Interpolation(InterpolationBall(0.3, 2.0), 9), InterpolationBall(0.3, 2.0), 9),
    (Interpolation(InterpolationBall(0.8, 0.5), 30), InterpolationBall(0.8, 0.5), (10, 3)),
]

ALL_ACCOUNTANTS: list[Accountant] = [
    GDP(),
    RDP(),
    RDP(orders=(1.25, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)),
    PureComposition(),
    AdaptiveSelection(grid=12),
    PLD(interval=1e-3),
    ObjectiveProfile(),
    Tight(),
]
ALL_ESTIMATORS: list[type[Any]] = [estimator_class(name) for name in ESTIMATORS]
CLASSIFIERS = [kind for kind in ALL_ESTIMATORS if is_classifier(kind(epsilon=1.0))]
REGRESSORS = [kind for kind in ALL_ESTIMATORS if kind not in CLASSIFIERS]

_ball = Problem(Logistic(), L2Ball(2.0), bounds=Bounds(1.0, 1.0), d=3)
_polytope = Problem(Logistic(), L1Ball(2.0), bounds=Bounds(1.0), d=3)

# A mechanism of 100 records for the neighbours that it is to protect.
ALL_MECHANISMS: dict[str, Callable[[Neighbours], Mechanism]] = {
    "gradient": lambda who: NoisyGradient(_polytope, 100, 1.0, who),
    "clipped gradient": lambda who: NoisyGradient(_ball, 100, 1.0, who, 0.6),
    "difference": lambda who: NoisyDifference(_ball, 100, 0.5, 1.0, who),
    "vertex": lambda who: NoisyVertex(_polytope, 100, 0.1, 20, who),
    "group": lambda who: NoisyGroup(_polytope, 100, 0.1, ((0,), (1, 2)), who),
    "pair": lambda who: NoisyPair(_polytope, 100, 0.1, ((0, 1), (0, 2)), 3.0, who),
    "means": lambda who: NoisyMoments(_polytope, 100, 1, 1.0, who),
    "mean squares": lambda who: NoisyMoments(_polytope, 100, 2, 1.0, who),
    "length": lambda who: NoisyLength(_polytope, 100, 1.0, who),
    "target": lambda who: NoisyTarget(100, 1.0, who),
    "second moments": lambda who: NoisySecondMoments(_polytope, 100, 1.0, 1.0, who),
    "squared errors": lambda who: NoisyGoodness(_polytope, 100, SquaredErrors(1.5, 1.0), 1.0, who),
    "log-losses": lambda who: NoisyGoodness(_polytope, 100, LogLosses(4.0), 1.0, who),
    "deviances": lambda who: NoisyGoodness(_polytope, 100, Deviances(LogPoisson(), 4.0, 2.0), 1.0, who),
    "totals": lambda who: NoisyGoodness(_polytope, 100, MeanTotals(LogPoisson(), 4.0, 2.0), 1.0, who),
    "minimiser": lambda who: NoisyMinimiser(_ball, 100, 1.0, 2.0, who),
    "perturbed minimiser": lambda who: PerturbedMinimiser(_ball, 100, 1.0, 2.0, 100.0, who),
    "quantile": lambda who: NoisyQuantile(100, 50, 0.1),  # the same for both relations
    "counts": lambda who: NoisyCounts(100, 3, (2, 5), 1.0, who),
    "histogram": lambda who: NoisyBinCounts(100, 0, (2, 5), 1.0),  # of one relation
    "row count": lambda who: NoisyRowCount(100, 1, (), 1.0, who),
    "pooled histogram": lambda who: NoisyPooledCounts(100, 0, (5,), 1.0, cells=3),  # of one relation
}


def one_of_each(cases: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Parameters of a test in which all but the first case of each class are for the long suite."""
    seen: set[type] = set()
    marked = []
    for case in cases:
        marked.append(pytest.param(*case, marks=[pytest.mark.long] if type(case[0]) in seen else []))
        seen.add(type(case[0]))
    return marked


class CountingGenerator(SeededGenerator):
    """Counts the words that are drawn."""

    drawn = 0

    def words(self, n: int) -> Any:
        """Draw n words."""
        self.drawn += n
        return super().words(n)
