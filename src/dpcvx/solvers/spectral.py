"""A fit of several targets whose singular values are shrunk: those of noise alone are removed."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpcvx.accounting import Accountant, Budget
from dpcvx.arrays import Vector
from dpcvx.plans import Asking, Plan, Solver
from dpcvx.problem import Problem
from dpcvx.solvers.typical_data import usual_norm

__all__ = ["SpectralShrinkage", "shrink_singular_values"]


@dataclass(frozen=True)
class SpectralShrinkage(Solver):
    """Fit K targets with another solver, and shrink the singular values of the coefficients by their noise.

    theta = U diag(y) V^T becomes U diag(eta(y)) V^T

    Algorithm: the fit is the other solver's. Its noise on a coefficient has the standard deviation s of a run
    of the same loop without signal, on simulated noise and rows whose columns are independent. For m by K
    coefficients (m >= K), z = y/(s sqrt(m)) and b = K/m, eta(y)/(s sqrt(m)) is
    sqrt((z^2 - b - 1)^2 - 4 b)/z above z = 1 + sqrt(b), where the singular values of noise alone end, and 0
    below: [GD17], optimal shrinker for the Frobenius loss in the limit of large matrices.

    Privacy: the questions and the event are those of the other solver. s follows from the plan, and eta is a
    function of the answers: post-processing.

    Utility: of the m K directions of the noise about r (m + K - r) are left where r combinations of the
    features explain all targets. Combinations whose effect is smaller than the noise are lost.

    Deviations: [GD17] is for independent noise of equal variance. Here the noise is larger along combinations
    of columns that vary little, so that some of it stays.

    Parameters
    ----------
    solver : Solver
        Fits the model; asks for gradients alone.
    intercept : bool
        Whether the last row of the coefficients is that of a constant feature, which is left as it is.
    """

    solver: Solver
    intercept: bool = True

    @property
    def clip(self) -> float | None:
        """Clip of the inner fit."""
        return self.solver.clip

    def innermost(self, plan: Plan) -> Plan:
        """Return the fit, without the shrinkage."""
        return self.solver.innermost(self._fit(plan))

    def _fit(self, plan: Plan) -> Plan:
        return replace(plan, solver=self.solver, candidates=())

    def with_records(self, plan: Plan, n: int) -> SpectralShrinkage:
        """Return the fit with the step sizes of n records."""
        return replace(self, solver=self.solver.with_records(self._fit(plan), n))

    def with_redundant(self, directions: Vector) -> SpectralShrinkage:
        """Return the fit of a parameter with redundant directions."""
        return replace(self, solver=self.solver.with_redundant(directions))

    def plan(self, problem: Problem, n: int, budget: Budget, accountant: Accountant) -> Plan:
        """Plan the fit."""
        fit = self.solver.plan(problem, n, budget, accountant)
        return replace(fit, solver=replace(self, solver=fit.solver))

    def run(self, plan: Plan, ask: Asking) -> Vector:
        """Fit, and shrink the singular values."""
        theta = self.solver.run(self._fit(plan), ask)
        rows = len(theta) - self.intercept
        noise = self._noise(plan)[:rows]
        shrunk = theta.copy()
        shrunk[:rows] = shrink_singular_values(theta[:rows], math.sqrt(float(np.mean(noise**2))))
        return shrunk

    def _noise(self, plan: Plan) -> Vector:
        """Return coefficients of a run of the loop in which all signal is absent."""
        curvature = usual_norm(plan.problem) ** 2 / plan.problem.d
        return self.solver.run(self._fit(plan), _NoiseAlone(plan, curvature))

    def predict(self, problem: Problem, n: int, budget: Budget) -> tuple[float, float]:
        """The other solver's prediction, without the noise that is removed."""
        return self.solver.predict(problem, n, budget)


class _NoiseAlone(Asking):
    """Answers with the gradient of (curvature/2) ||theta||^2 and noise as planned, from a public seed."""

    def __init__(self, plan: Plan, curvature: float) -> None:
        self._noises = (float(stage.mechanism.noise) for stage in plan.stages for _ in range(stage.n_calls))
        self._curvature, self._rng = curvature, np.random.default_rng(0)

    def ask(self, *public: Any, question: str | None = None) -> Any:
        theta: Vector = public[0]
        return self._curvature * theta + next(self._noises) * self._rng.standard_normal(theta.shape)


def shrink_singular_values(matrix: Vector, noise: float) -> Vector:
    """Return the matrix with singular values as [GD17] shrinks them for the Frobenius loss.

    `noise`: standard deviation of independent noise on each entry.
    """
    if noise == 0:
        return matrix
    large, small = max(matrix.shape), min(matrix.shape)
    unit, b = noise * math.sqrt(large), small / large
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    z = np.maximum(values / unit, 1 + math.sqrt(b))
    shrunk: Vector = (left * (unit * np.sqrt(np.maximum((z**2 - b - 1) ** 2 - 4 * b, 0.0)) / z)) @ right
    return shrunk
