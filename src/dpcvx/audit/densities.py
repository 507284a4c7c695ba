"""Exact densities of perturbed minimisers in one and two dimensions, against the claimed profile.

With b ~ N(0, sigma^2 I) the minimiser of sum_i l_i(theta) + (ridge/2) ||theta||^2 + <b, theta> has the
density of b(theta) = -grad, times the determinant of the Hessian. Summed over a grid, the positive part of
p - e^epsilon q is the exact delta of a pair of data sets: no runs and no statistics.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpcvx.accounting.objective import objective_delta
from dpcvx.arrays import Vector
from dpcvx.events import PerturbedObjective

__all__ = ["DensityTest", "density_tests"]

POINTS = {1: 20_001, 2: 401}  # of each axis
EPSILONS = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0)
LEAST = 1e-8  # smaller deltas are below the error of the sums
CURVATURES = {"logistic": 0.25, "linear": 0.0}
CONTROL = {"logistic": 4.0, "linear": 2.0}  # divisor of the noise; logistic slopes stay below their bound


@dataclass(frozen=True)
class DensityTest:
    """Largest exact delta over the claimed one, over pairs of data sets and epsilons."""

    name: str
    pairs: int
    share: float
    control: float  # the same with too little noise, which must exceed 1

    @property
    def holds(self) -> bool:
        """Whether no pair exceeds the claim, and the control does."""
        return self.share <= 1 < self.control


def density_tests() -> tuple[DensityTest, ...]:
    """Compare exact densities of minimisers with the profile of objective perturbation.

    Losses are logistic, and linear, which is the worst for a given slope: the limit of wide Huber losses.
    """
    return tuple(_compare(d, loss) for d in (1, 2) for loss in ("logistic", "linear"))


def _compare(d: int, loss: str) -> DensityTest:
    shares, controls, pairs = [0.0], [0.0], 0
    for ridge, sigma in ((0.5, 2.0), (1.0, 3.0), (3.0, 1.5)):
        for angle in (0.0, 0.5, 1.0) if d == 2 else (0.0,):
            one = np.array([math.cos(angle * math.pi), math.sin(angle * math.pi)])[:d]
            other = -np.eye(2)[0][:d]
            pairs += 1
            shares.append(_largest((one, other), loss, ridge, sigma, sigma))
            controls.append(_largest((one, other), loss, ridge, sigma / CONTROL[loss], sigma))
    return DensityTest(f"minimiser of {loss} loss, d = {d}", pairs, max(shares), max(controls))


def _largest(rows: tuple[Vector, Vector], loss: str, ridge: float, sigma: float, claimed: float) -> float:
    """Return the largest delta of the pair over the claimed one, where anything is claimed."""
    d, curvature = len(rows[0]), CURVATURES[loss]
    side = np.linspace(-1, 1, POINTS[d]) * (8 * sigma + 2) / ridge
    theta = np.stack(np.meshgrid(*[side] * d), axis=-1)
    p, q = (_density(theta, row, loss, ridge, sigma) for row in rows)
    volume = (side[1] - side[0]) ** d
    event = PerturbedObjective(1 / claimed, max(math.log1p(curvature / ridge), 1e-9))
    found = 0.0
    for epsilon in EPSILONS:
        bound = objective_delta(epsilon, event)
        if LEAST < bound < 1:
            for a, b in ((p, q), (q, p)):
                exact = float(np.maximum(a - math.exp(epsilon) * b, 0.0).sum()) * volume
                found = max(found, exact / bound)
    return found


def _density(theta: Vector, row: Vector, loss: str, ridge: float, sigma: float) -> Vector:
    """Density of the minimiser of one loss of a unit row, with label 1."""
    chance = 1 / (1 + np.exp(theta @ row)) if loss == "logistic" else np.ones(theta.shape[:-1])
    b = -ridge * theta + chance[..., None] * row
    d = len(row)
    # det(ridge I + c x x^T) = ridge^(d-1) (ridge + c) for a unit vector x
    determinant = ridge ** (d - 1) * (ridge + chance * (1 - chance))
    normal = np.exp(-(b**2).sum(axis=-1) / (2 * sigma**2)) / (2 * math.pi * sigma**2) ** (d / 2)
    found: Vector = normal * determinant
    return found
