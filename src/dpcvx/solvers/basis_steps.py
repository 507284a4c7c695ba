"""Number and size of the steps of a descent on the many features of a basis."""

from __future__ import annotations

from dataclasses import replace

from dpcvx.plans import Solver
from dpcvx.solvers.defaults import default
from dpcvx.solvers.gradient_descent import NoisyGradientDescent
from dpcvx.solvers.standardised import Standardised

__all__ = ["with_fewer_steps"]

SETTLED: tuple[float, float] = default("solvers.basis_steps.SETTLED")
STRIDE: float = default("solvers.basis_steps.STRIDE")
MANY_CELLS: float = default("solvers.basis_steps.MANY_CELLS")


def with_fewer_steps(solver: Solver, n: int) -> Solver | None:
    """Return a solver for n records; on the features of a basis, descent with fewer steps, or None.

    A basis of straight lines alone has the steps of the linear model. A path that is already planned is not
    changed.
    """
    if not isinstance(solver, Standardised) or solver.basis is None:
        return solver
    descent = solver.solver
    if not isinstance(descent, NoisyGradientDescent):
        return None
    if descent.step is not None:
        return solver
    many = n * solver.fitted_basis(solver.basis).width >= MANY_CELLS
    return replace(
        solver, solver=replace(descent, settled=SETTLED[many], stride=STRIDE if many else descent.stride)
    )
