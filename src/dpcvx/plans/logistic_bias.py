"""How gradient and Hessian of a logistic loss change with the parameter, from released numbers."""

from __future__ import annotations

import math

import numpy as np

from dpcvx.arrays import Vector

__all__ = ["LEAST_CURVATURE", "after_step", "third_derivative"]

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(31)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
MOST_SCORE = 60.0  # beyond it curvatures are 0
EDGE = 1e-300  # stands for 0 in a quotient
LEAST_CURVATURE = 1e-6  # mean phi'' of the records that is told from 0


def third_derivative(hessian: Vector, constant: Vector, theta: Vector, spread: Vector) -> Vector:
    """Return mean(phi''' x <x, spread x>), the third derivative of a mean logistic loss times a matrix.

    phi''' = -phi'' tanh(z/2), z = <x, theta>. The Hessian shows the mean of phi'', and mean and covariance
    of x under the weights phi''. With these x is taken to be normal, so that one integral over z is left.

    `hessian`: mean of phi'' x x^T, with noise; `constant`: a vector with <x, constant> = 1 for every record;
    `spread`: symmetric. Shapes (d, d) and (d,).
    """
    curvature, mean, covariance = _weighted(hessian, constant)
    along = covariance @ theta
    variance = max(float(theta @ along), 1e-12)
    along = along / variance
    rest = covariance - variance * np.outer(along, along)
    total = np.zeros_like(theta)
    for away, weight in zip(math.sqrt(variance) * NODES, WEIGHTS, strict=True):
        x = mean + away * along  # mean of x at this score
        slope = weight * math.tanh((float(mean @ theta) + away) / 2)
        total += slope * (float(x @ spread @ x + np.sum(spread * rest)) * x + 2 * rest @ spread @ x)
    found: Vector = -curvature * total
    return found


def after_step(hessian: Vector, constant: Vector, theta: Vector, step: Vector) -> tuple[Vector, Vector]:
    """Return the Hessian of a mean logistic loss after a step, and the change of its gradient.

    Records whose phi'' was w count as w phi''(z + u)/phi''(z) afterwards, z = <x, theta> and u = <x, step>,
    and their slope has changed by phi'(z + u) - phi'(z). As in `third_derivative` x is taken to be normal
    under the weights w, so that an integral over z and u is left. A short step changes the gradient by
    hessian @ step.
    """
    curvature, mean, covariance = _weighted(hessian, constant)
    both = np.array([theta, step])
    values, axes = np.linalg.eigh(both @ covariance @ both.T)
    kept = values > 1e-12 * max(values[-1], 1e-12)
    # x = mean + spread @ (two standard normal numbers) + a rest that changes neither z nor u
    spread = covariance @ both.T @ axes[:, kept] / np.sqrt(values[kept])
    rest = covariance - spread @ spread.T
    grid = np.meshgrid(*[NODES] * int(kept.sum()), indexing="ij")
    weights = np.ones(1)
    for _ in range(int(kept.sum())):
        weights = np.outer(weights, WEIGHTS).ravel()
    points = np.stack([each.ravel() for each in grid], axis=1) if kept.any() else np.zeros((1, 0))
    x = mean + points @ spread.T
    z, u = x @ theta, x @ step
    bend = np.maximum(1 / (2 * np.cosh(np.clip(z, -MOST_SCORE, MOST_SCORE) / 2)) ** 2, EDGE)
    after = 1 / (2 * np.cosh(np.clip(z + u, -MOST_SCORE, MOST_SCORE) / 2)) ** 2
    ratio = weights * after / bend
    moved = weights * (np.tanh((z + u) / 2) - np.tanh(z / 2)) / 2 / bend
    later: Vector = curvature * ((x * ratio[:, None]).T @ x + ratio.sum() * rest)
    change: Vector = curvature * (moved @ x)
    return later, change


def _weighted(hessian: Vector, constant: Vector) -> tuple[float, Vector, Vector]:
    """Return the mean of phi'', and the mean and the covariance of x under the weights phi''."""
    curvature = max(float(constant @ hessian @ constant), LEAST_CURVATURE)
    mean = hessian @ constant / curvature
    values, axes = np.linalg.eigh(hessian / curvature - np.outer(mean, mean))
    return curvature, mean, axes * np.maximum(values, 0.0) @ axes.T
