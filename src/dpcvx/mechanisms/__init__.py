"""Mechanisms: private queries of the records, each with its sensitivity, its noise and its event.

These classes are the only callers of a `DataSource`. Fields are public; records and generators are arguments.
Every sensitivity holds on the stored integers, without slack (PRIVACY_MATH §11b).
"""

from dpcvx.mechanisms.counts import NoisyBinCounts, NoisyCounts, NoisyPooledCounts, NoisyRowCount, as_counts
from dpcvx.mechanisms.difference import NoisyDifference
from dpcvx.mechanisms.goodness import NoisyGoodness
from dpcvx.mechanisms.gradient import NoisyGradient
from dpcvx.mechanisms.group import NoisyGroup
from dpcvx.mechanisms.lattice_gaussian import GaussianMechanism, LatticeGaussian
from dpcvx.mechanisms.mechanism import Mechanism, Traits, check_capacity
from dpcvx.mechanisms.minimiser import NoisyMinimiser, PerturbedMinimiser, hessian_rank
from dpcvx.mechanisms.moments import NoisyLength, NoisyMoments
from dpcvx.mechanisms.pair import NoisyPair
from dpcvx.mechanisms.quantile import NoisyQuantile, as_quantile, quantile_grid
from dpcvx.mechanisms.second_moments import NoisySecondMoments, SecondMoments
from dpcvx.mechanisms.target import NoisyTarget
from dpcvx.mechanisms.vertex import Combination, NoisyVertex, Vertex, weight_bits

__all__ = [
    "Combination",
    "GaussianMechanism",
    "LatticeGaussian",
    "Mechanism",
    "NoisyBinCounts",
    "NoisyCounts",
    "NoisyDifference",
    "NoisyGoodness",
    "NoisyGradient",
    "NoisyGroup",
    "NoisyLength",
    "NoisyMinimiser",
    "NoisyMoments",
    "NoisyPair",
    "NoisyPooledCounts",
    "NoisyQuantile",
    "NoisyRowCount",
    "NoisySecondMoments",
    "NoisyTarget",
    "NoisyVertex",
    "PerturbedMinimiser",
    "SecondMoments",
    "Traits",
    "Vertex",
    "as_counts",
    "as_quantile",
    "check_capacity",
    "hessian_rank",
    "quantile_grid",
    "weight_bits",
]
