"""An oracle without noise: with it, a private solver is the ordinary algorithm."""

import numpy as np
from scipy.optimize import minimize

from dpcvx.mechanisms import NoisyVertex, SecondMoments

# Quick where the price is not under test; the exact price of Poisson samples takes seconds.
from dpcvx.planning.candidates import GaussianLimit as LimitAccountant

__all__ = ["ExactOracle", "LimitAccountant", "solve_exactly"]


class ExactOracle:
    """Answers with exact gradients, Hessians, minimisers and best vertices; the data are plain arrays."""

    def __init__(self, plan, X, y):
        self._plan, self._X, self._y = plan, X, y
        self.points = []
        mechanism = plan.stages[0].mechanism
        self._point = mechanism.origin() if isinstance(mechanism, NoisyVertex) else None

    def objective(self, theta):
        problem = self._plan.problem
        return problem.loss.value(self._X @ theta, self._y).mean() + problem.l2 / 2 * (theta**2).sum()

    def gradient(self, theta, support=None):
        self.points.append(theta)
        problem = self._plan.problem
        slopes = problem.loss.grad(self._X @ theta, self._y)
        gradient = self._X.T @ slopes / len(self._y) + problem.l2 * theta
        return gradient if support is None else gradient[support]

    def difference(self, theta, anchor):
        return self.gradient(theta) - self.gradient(anchor)

    def second_moments(self, theta):
        z, h = self._X @ theta, 1e-5
        loss = self._plan.problem.loss
        bends = (loss.grad(z + h, self._y) - loss.grad(z - h, self._y)) / (2 * h)
        return SecondMoments(self._X.T @ (bends[:, None] * self._X) / len(self._y))

    def minimiser(self, linear):
        problem = self._plan.stages[0].mechanism.problem

        def value_and_slope(theta):
            z = self._X @ theta
            value = problem.loss.value(z, self._y).mean() + problem.l2 / 2 * (theta**2).sum() + linear @ theta
            slope = self._X.T @ problem.loss.grad(z, self._y) / len(self._y) + problem.l2 * theta + linear
            return value, slope

        options = {"gtol": 1e-11, "ftol": 1e-16, "maxiter": 5000}
        start = self.points[-1] if self.points else np.zeros(problem.d)
        self.points.append(minimize(value_and_slope, start, jac=True, method="L-BFGS-B", options=options).x)
        return self.points[-1]

    def vertex(self):
        problem = self._plan.problem
        scores = problem.domain.vertex_scores(self.gradient(self._point.dense()).ravel())
        return self._plan.stages[0].mechanism._vertex(int(np.argmin(scores)))

    def group(self, theta, drawn=()):
        gradient, groups = self.gradient(theta), self._plan.stages[0].mechanism.groups
        norms = [np.linalg.norm(gradient[list(group)]) / np.sqrt(len(group)) for group in groups]
        return max((g for g in range(len(groups)) if g not in drawn), key=lambda g: norms[g])

    def move(self, step, vertex):
        self._point.move(step, vertex)

    def withdraw(self, theta, start, caution):
        return theta


def solve_exactly(solver, problem, X, y, budget, accountant):
    """(theta, oracle) of a solver's run without noise."""
    plan = solver.plan(problem, len(y), budget, accountant)
    oracle = ExactOracle(plan, X, y)
    return plan.solver.run(plan, oracle), oracle
