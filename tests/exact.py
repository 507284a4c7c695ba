"""An oracle without noise: with it, a private solver is the ordinary algorithm."""

import numpy as np

from dpcvx.mechanisms import NoisyVertex


class ExactOracle:
    """Answers with exact float64 gradients and the best vertex; the data are plain arrays."""

    def __init__(self, plan, X, y):
        self._plan, self._X, self._y = plan, X, y
        self.points = []
        mechanism = plan.stages[0].mechanism
        self._point = mechanism.origin() if isinstance(mechanism, NoisyVertex) else None

    def objective(self, theta):
        problem = self._plan.problem
        return problem.loss.value(self._X @ theta, self._y).mean() + problem.l2 / 2 * (theta**2).sum()

    def gradient(self, theta):
        self.points.append(theta)
        problem = self._plan.problem
        slopes = problem.loss.grad(self._X @ theta, self._y)
        return self._X.T @ slopes / len(self._y) + problem.l2 * theta

    def vertex(self):
        problem = self._plan.problem
        scores = problem.domain.vertex_scores(self.gradient(self._point.dense()).ravel())
        return self._plan.stages[0].mechanism._vertex(int(np.argmin(scores)))

    def move(self, step, vertex):
        self._point.move(step, vertex)


def solve_exactly(solver, problem, X, y, budget, accountant):
    """(theta, oracle) of a solver's run without noise."""
    plan = solver.plan(problem, len(y), budget, accountant)
    oracle = ExactOracle(plan, X, y)
    return plan.solver.run(plan, oracle), oracle
