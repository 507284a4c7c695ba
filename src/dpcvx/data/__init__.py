"""Records: reading, clipping and quantising them, and the data sources that compute exact sums over them."""

from dpcvx.data.additive_basis import AdditiveBasis
from dpcvx.data.curvature import CurvatureBound, CurvatureSum, meat_squared, person_squared, squared_bound
from dpcvx.data.dataset import Dataset
from dpcvx.data.goodness import (
    GOODNESS_BITS,
    Deviances,
    FitMeasure,
    GoodnessSum,
    LogLosses,
    MeanTotals,
    SquaredErrors,
    goodness_squared,
)
from dpcvx.data.gram_scores import HasGramScores, Linear
from dpcvx.data.lattice import (
    FEATURE_BITS,
    LARGEST_DRAW,
    LARGEST_RESIDUAL,
    LARGEST_SUM,
    RESIDUAL_BITS,
    SUM_UNIT,
    ResidualBound,
    exact_sum,
    fixed_point,
    integer_bounds,
    records_at_once,
    room,
)
from dpcvx.data.lazy_scores import HasLazyScores, Lazy, Terms
from dpcvx.data.memory import Arrays
from dpcvx.data.objective import BLOCK_ROWS, Objective, SumOfLosses
from dpcvx.data.pair_sums import LARGEST_PRODUCT, PairSum
from dpcvx.data.public_score import PublicScore
from dpcvx.data.quantise import Quantiser, targets
from dpcvx.data.recognised import RecognisedCells, cells_to_count
from dpcvx.data.region import Region
from dpcvx.data.rows import Dense, Records, Sparse
from dpcvx.data.source import CanStandardise, DataSource, Margins
from dpcvx.data.sums import (
    PRESENT,
    DifferenceSum,
    GradientSum,
    LengthSum,
    MomentSum,
    RowBounds,
    Sum,
    TargetSum,
    present_squared,
    target_squared,
)

__all__ = [
    "BLOCK_ROWS",
    "FEATURE_BITS",
    "GOODNESS_BITS",
    "LARGEST_DRAW",
    "LARGEST_PRODUCT",
    "LARGEST_RESIDUAL",
    "LARGEST_SUM",
    "PRESENT",
    "RESIDUAL_BITS",
    "SUM_UNIT",
    "AdditiveBasis",
    "Arrays",
    "CanStandardise",
    "CurvatureBound",
    "CurvatureSum",
    "DataSource",
    "Dataset",
    "Dense",
    "Deviances",
    "DifferenceSum",
    "FitMeasure",
    "GoodnessSum",
    "GradientSum",
    "HasGramScores",
    "HasLazyScores",
    "Lazy",
    "LengthSum",
    "Linear",
    "LogLosses",
    "Margins",
    "MeanTotals",
    "MomentSum",
    "Objective",
    "PairSum",
    "PublicScore",
    "Quantiser",
    "RecognisedCells",
    "Records",
    "Region",
    "ResidualBound",
    "RowBounds",
    "Sparse",
    "SquaredErrors",
    "Sum",
    "SumOfLosses",
    "TargetSum",
    "Terms",
    "cells_to_count",
    "exact_sum",
    "fixed_point",
    "goodness_squared",
    "integer_bounds",
    "meat_squared",
    "person_squared",
    "present_squared",
    "records_at_once",
    "room",
    "squared_bound",
    "target_squared",
    "targets",
]
