"""Number and size of the steps of a descent where one step takes long."""

from __future__ import annotations

from dataclasses import replace

from dpcvx.plans import Solver
from dpcvx.solvers.defaults import default
from dpcvx.solvers.gradient_descent import NoisyGradientDescent
from dpcvx.solvers.standardised import Standardised

__all__ = ["with_fewer_steps"]

SETTLED: tuple[float, float] = default("solvers.few_steps.SETTLED")
STRIDE: float = default("solvers.few_steps.STRIDE")
MANY_CELLS: float = default("solvers.few_steps.MANY_CELLS")
MANY_BASIS_CELLS: float = default("solvers.few_steps.MANY_BASIS_CELLS")


def with_fewer_steps(solver: Solver, n: int, d: int) -> Solver | None:
    """Return a solver for n records of d columns: descent with fewer steps where a step takes long.

    Solvers other than descent are dropped (None) on the features of a basis, where every step takes long. A
    basis of straight lines alone has the steps of the linear model. A path that is already planned is not
    changed.
    """
    if not isinstance(solver, Standardised):
        return solver
    descent = solver.solver
    if not isinstance(descent, NoisyGradientDescent):
        return solver if solver.basis is None else None
    if descent.step is not None or descent.n_iter is not None:
        return solver
    if solver.basis is None:
        many = n * d >= MANY_CELLS
        settled = SETTLED[0] if many else descent.settled
    else:
        many = n * solver.fitted_basis(solver.basis).width >= MANY_BASIS_CELLS
        settled = SETTLED[many]
    stride = STRIDE if many else descent.stride
    return replace(solver, solver=replace(descent, settled=settled, stride=stride))
