"""Published algorithms, one file each; every one asks an oracle and never sees data."""

from dpcvx.solvers.frank_wolfe import NoisyFrankWolfe
from dpcvx.solvers.gradient_descent import NoisyGradientDescent
from dpcvx.solvers.mirror_descent import NoisyMirrorDescent
from dpcvx.solvers.objective_perturbation import ObjectivePerturbation
from dpcvx.solvers.output_perturbation import OutputPerturbation

__all__ = [
    "NoisyFrankWolfe",
    "NoisyGradientDescent",
    "NoisyMirrorDescent",
    "ObjectivePerturbation",
    "OutputPerturbation",
]
