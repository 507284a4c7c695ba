"""Constraint sets C, their mirror maps and Gaussian widths, and regularizers.

Parameters are vectors (d,) or matrices (d, K). Every set here but the nuclear ball takes a matrix as its d K
entries in row order: the l2 norm is Frobenius, the l1 and linf norms are entrywise, and arrays come back in
the shape they came in.
Further abilities of a set are separate protocols; a solver lists those that it needs.
"""

from typing import Any

from dpcvx.domains.balls import Box, L1Ball, L2Ball, LinfBall
from dpcvx.domains.domain import (
    Domain,
    HasCoordinateVertices,
    HasEuclideanRadius,
    HasGroups,
    HasL1Radius,
    HasLMO,
    HasMirrorMap,
    HasPenalty,
    HasProjection,
    HasProjectionForm,
    HasSupport,
    HasVertices,
)
from dpcvx.domains.group import GroupBall
from dpcvx.domains.interpolation import InterpolationBall
from dpcvx.domains.nuclear import NuclearBall
from dpcvx.domains.polytopes import Simplex, VertexHull
from dpcvx.domains.projection_form import BALL, BOX, SIMPLEX, ProjectionForm
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
from dpcvx.domains.submodular_ball import SubmodularBall, SubmodularPolyhedron
from dpcvx.domains.transformed import Transformed
from dpcvx.domains.width import gaussian_width

# Every set of the package. Sets in `NAMED_BALLS` also have a short name.
SETS: tuple[type[Any], ...] = (
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
)
NAMED_BALLS: dict[str, type[Any]] = {"l2": L2Ball, "l1": L1Ball}

__all__ = [
    "BALL",
    "BOX",
    "L1",
    "NAMED_BALLS",
    "SETS",
    "SIMPLEX",
    "Box",
    "Cardinality",
    "ConcaveOfCardinality",
    "DirectSum",
    "Domain",
    "ElasticNet",
    "FromCallable",
    "GroupBall",
    "GroupCover",
    "GroupL2",
    "HasCoordinateVertices",
    "HasEuclideanRadius",
    "HasGroups",
    "HasL1Radius",
    "HasLMO",
    "HasMirrorMap",
    "HasPenalty",
    "HasProjection",
    "HasProjectionForm",
    "HasSupport",
    "HasVertices",
    "InterpolationBall",
    "Interval",
    "L1Ball",
    "L2Ball",
    "LinfBall",
    "NuclearBall",
    "ProjectionForm",
    "Ridge",
    "Simplex",
    "SubmodularBall",
    "SubmodularNorm",
    "SubmodularPolyhedron",
    "Transformed",
    "VertexHull",
    "check_set_function",
    "gaussian_width",
    "tree_cover",
]
