"""A loss of your own: the logarithm of the hyperbolic cosine, smooth and robust."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

import dpcvx as dp
from dpcvx.arrays import Vector
from dpcvx.losses import Link, Loss, TargetKind, exp_basic


def log_cosh_slope(z: float, y: float, a: float) -> float:
    """Return a tanh((z - y) / a), from basic operations and exp_basic alone."""
    e = exp_basic(2.0 * (z - y) / a)
    return a * (e - 1.0) / (e + 1.0)


@dataclass(frozen=True)
class LogCosh(Loss):
    """Squared near the target, absolute far from it.

    phi(z, y) = width^2 log cosh((z - y) / width)
    """

    width: float
    y_range: tuple[float, float] = (-1.0, 1.0)

    name: ClassVar[str] = "log_cosh"
    target: ClassVar[TargetKind] = "numbers"
    link: ClassVar[Link] = "identity"
    convex: ClassVar[bool] = True
    slope = staticmethod(log_cosh_slope)

    @property
    def parameter(self) -> float:
        return self.width

    def value(self, z: Vector, y: Vector) -> Vector:
        r = abs(z - y) / self.width
        return self.width**2 * (r + np.log1p(np.exp(-2 * r)) - math.log(2))

    def grad(self, z: Vector, y: Vector) -> Vector:
        return self.width * np.tanh((z - y) / self.width)

    def lipschitz(self, z_max: float, ord: float = 2) -> float:
        return self.width * math.tanh((z_max + max(abs(y) for y in self.y_range)) / self.width)

    def smoothness(self, z_max: float) -> float:
        return 1.0


rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, size=(20_000, 4))
y = np.clip(X @ [0.5, -0.4, 0.0, 0.1] + 0.05 * rng.standard_t(2, 20_000), -1, 1)

problem = dp.Problem(LogCosh(0.2), dp.L2Ball(1.0), bounds=dp.Bounds(x_inf=1.0), d=4)
plan = dp.plan(problem, n=len(X), budget=dp.Budget(epsilon=1.0, delta=1e-8))
release = dp.execute(plan, dp.source(X, y, bounds=problem.bounds))
print(release.theta.round(2))
