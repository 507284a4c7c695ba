"""A set of your own: the part of a Euclidean ball where no coefficient is negative."""

import math
from dataclasses import dataclass

import numpy as np

import dpcvx as dp
from dpcvx.arrays import Shape, Vector


@dataclass(frozen=True)
class PositiveBall:
    """Part of the Euclidean ball where no coefficient is negative.

    C = {theta : theta >= 0, ||theta||_2 <= radius}
    """

    radius: float

    def contains(self, theta: Vector, tol: float = 1e-9) -> bool:
        return self.minkowski(np.where(abs(theta) <= tol, 0.0, theta)) <= 1 + tol

    def start(self, d: Shape) -> Vector:
        return np.zeros(d)

    def norm(self, ord: float, d: Shape) -> float:
        return self.radius * math.pow(float(np.prod(d)), max(1 / ord - 0.5, 0.0))

    def diameter(self, ord: float, d: Shape) -> float:
        # u and v are non-negative, so |u - v| lies below max(u, v), whose l2 norm is at most sqrt(2) radius.
        return math.sqrt(2) * self.norm(ord, d)

    def gaussian_width(self, d: Shape) -> float:
        return self.radius * math.sqrt(float(np.prod(d)) / 2)  # half of the coordinates of g are negative

    def minkowski(self, theta: Vector) -> float:
        return math.inf if (theta < 0).any() else float(np.linalg.norm(np.ravel(theta))) / self.radius

    def project(self, v: Vector) -> Vector:
        positive = np.maximum(v, 0.0)
        return positive / max(1.0, self.minkowski(positive))


rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, size=(20_000, 3))
y = np.where(X @ [2.0, 1.0, -1.0] + rng.logistic(size=20_000) > 0, 1.0, -1.0)

problem = dp.Problem(dp.Logistic(), PositiveBall(5.0), bounds=dp.Bounds(x_inf=1.0), d=3)
plan = dp.plan(problem, n=len(X), budget=dp.Budget(epsilon=1.0, delta=1e-8))
release = dp.execute(plan, dp.source(X, y, bounds=problem.bounds))
assert (release.theta >= 0).all()
print(release.theta.round(2))
