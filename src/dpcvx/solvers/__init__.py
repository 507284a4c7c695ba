"""Solvers: one published algorithm per file, which sees the answers of an oracle and never the data."""

from dpcvx.solvers.accelerated_mirror_descent import NoisyAcceleratedMirrorDescent
from dpcvx.solvers.corrective_frank_wolfe import NoisyCorrectiveFrankWolfe
from dpcvx.solvers.dual_frank_wolfe import NoisyDualFrankWolfe
from dpcvx.solvers.frank_wolfe import NoisyFrankWolfe
from dpcvx.solvers.general_frank_wolfe import NoisyGeneralFrankWolfe
from dpcvx.solvers.gradient_descent import NoisyGradientDescent
from dpcvx.solvers.mirror_descent import NoisyMirrorDescent
from dpcvx.solvers.objective_perturbation import ObjectivePerturbation
from dpcvx.solvers.one_step import OneStep
from dpcvx.solvers.output_perturbation import OutputPerturbation
from dpcvx.solvers.own_oracle import GradientOracle, run_with_oracle
from dpcvx.solvers.standardised import Standardised
from dpcvx.solvers.strongly_convex_mirror_descent import NoisyStronglyConvexMirrorDescent
from dpcvx.solvers.sufficient_statistics import SufficientStatistics
from dpcvx.solvers.svrg import NoisySVRG, NoisySVRGPlusPlus

__all__ = [
    "GradientOracle",
    "NoisyAcceleratedMirrorDescent",
    "NoisyCorrectiveFrankWolfe",
    "NoisyDualFrankWolfe",
    "NoisyFrankWolfe",
    "NoisyGeneralFrankWolfe",
    "NoisyGradientDescent",
    "NoisyMirrorDescent",
    "NoisySVRG",
    "NoisySVRGPlusPlus",
    "NoisyStronglyConvexMirrorDescent",
    "ObjectivePerturbation",
    "OneStep",
    "OutputPerturbation",
    "Standardised",
    "SufficientStatistics",
    "run_with_oracle",
]
