"""Solvers: one published algorithm per file, which sees the answers of an oracle and never the data."""

import dataclasses

from dpcvx.plans import Solver
from dpcvx.solvers.accelerated_mirror_descent import NoisyAcceleratedMirrorDescent
from dpcvx.solvers.corrective_frank_wolfe import NoisyCorrectiveFrankWolfe
from dpcvx.solvers.dual_frank_wolfe import NoisyDualFrankWolfe
from dpcvx.solvers.few_steps import with_fewer_steps
from dpcvx.solvers.frank_wolfe import NoisyFrankWolfe
from dpcvx.solvers.general_frank_wolfe import NoisyGeneralFrankWolfe
from dpcvx.solvers.gradient_descent import NoisyGradientDescent
from dpcvx.solvers.group_selection import NoisyGroupSelection
from dpcvx.solvers.mirror_descent import NoisyMirrorDescent
from dpcvx.solvers.objective_perturbation import ObjectivePerturbation
from dpcvx.solvers.one_step import OneStep
from dpcvx.solvers.output_perturbation import OutputPerturbation
from dpcvx.solvers.own_oracle import GradientOracle, run_with_oracle
from dpcvx.solvers.scaled_target import ConstantModel, ScaledTarget
from dpcvx.solvers.spectral import SpectralShrinkage
from dpcvx.solvers.standardised import Standardised
from dpcvx.solvers.strongly_convex_mirror_descent import NoisyStronglyConvexMirrorDescent
from dpcvx.solvers.sufficient_statistics import SufficientStatistics
from dpcvx.solvers.svrg import NoisySVRG, NoisySVRGPlusPlus

# Every solver, in the order in which plans try them. Estimators and the command line take those with a name.
SOLVERS: tuple[type[Solver], ...] = (
    NoisyGradientDescent,
    NoisyMirrorDescent,
    NoisyStronglyConvexMirrorDescent,
    NoisyAcceleratedMirrorDescent,
    NoisyCorrectiveFrankWolfe,
    NoisyGroupSelection,
    NoisyFrankWolfe,
    NoisyGeneralFrankWolfe,
    NoisyDualFrankWolfe,
    NoisySVRG,
    NoisySVRGPlusPlus,
    ObjectivePerturbation,
    OutputPerturbation,
    SufficientStatistics,
)
NAMED_SOLVERS: dict[str, type[Solver]] = {kind.name: kind for kind in SOLVERS if kind.name}


def configured(
    kind: type[Solver],
    *,
    clip: float | None = None,
    n_iter: int | None = None,
    intercept: float = 0.0,
    noise_share: float | None = None,
    phases: tuple[float, ...] = (),
    kept: tuple[int, ...] = (),
    path: float = 1.0,
) -> Solver:
    """Return a solver with the settings that it has a field for."""
    known = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    given = {
        "clip": clip,
        "n_iter": n_iter,
        "intercept": intercept,
        "noise_share": noise_share,
        "phases": phases,
        "kept": kept,
        "path": path,
    }
    return kind(**{name: value for name, value in given.items() if name in known})


__all__ = [
    "NAMED_SOLVERS",
    "SOLVERS",
    "ConstantModel",
    "GradientOracle",
    "NoisyAcceleratedMirrorDescent",
    "NoisyCorrectiveFrankWolfe",
    "NoisyDualFrankWolfe",
    "NoisyFrankWolfe",
    "NoisyGeneralFrankWolfe",
    "NoisyGradientDescent",
    "NoisyGroupSelection",
    "NoisyMirrorDescent",
    "NoisySVRG",
    "NoisySVRGPlusPlus",
    "NoisyStronglyConvexMirrorDescent",
    "ObjectivePerturbation",
    "OneStep",
    "OutputPerturbation",
    "ScaledTarget",
    "SpectralShrinkage",
    "Standardised",
    "SufficientStatistics",
    "configured",
    "run_with_oracle",
    "with_fewer_steps",
]
