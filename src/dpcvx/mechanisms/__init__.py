"""Mechanisms: private queries of the records, each with its sensitivity, its noise and its event.

These classes are the only callers of a `DataSource`. Fields are public; records and generators are arguments.
Every sensitivity holds on the stored integers, without slack (PRIVACY_MATH §11b).
"""

from dpcvx.mechanisms.difference import NoisyDifference
from dpcvx.mechanisms.gradient import NoisyGradient
from dpcvx.mechanisms.mechanism import Mechanism
from dpcvx.mechanisms.minimiser import NoisyMinimiser, PerturbedMinimiser
from dpcvx.mechanisms.moments import NoisyLength, NoisyMoments
from dpcvx.mechanisms.quantile import NoisyQuantile, quantile_grid
from dpcvx.mechanisms.restricted import RestrictedGradient
from dpcvx.mechanisms.second_moments import NoisySecondMoments, SecondMoments
from dpcvx.mechanisms.vertex import (
    Combination,
    NoisyVertex,
    Vertex,
    weight_bits,
)

__all__ = [
    "Combination",
    "Mechanism",
    "NoisyDifference",
    "NoisyGradient",
    "NoisyLength",
    "NoisyMinimiser",
    "NoisyMoments",
    "NoisyQuantile",
    "NoisySecondMoments",
    "NoisyVertex",
    "PerturbedMinimiser",
    "RestrictedGradient",
    "SecondMoments",
    "Vertex",
    "quantile_grid",
    "weight_bits",
]
