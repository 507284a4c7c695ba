"""Bias of a Newton step of logistic loss to second order, from released numbers."""

from __future__ import annotations

import math

import numpy as np

from dpcvx.arrays import Vector

__all__ = ["third_derivative"]

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(31)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
LEAST_CURVATURE = 1e-6  # mean phi'' of the records that is told from 0


def third_derivative(hessian: Vector, constant: Vector, theta: Vector, spread: Vector) -> Vector:
    """Return mean(phi''' x <x, spread x>), the third derivative of a mean logistic loss times a matrix.

    phi''' = -phi'' tanh(z/2), z = <x, theta>. The Hessian shows the mean of phi'', and mean and covariance
    of x under the weights phi''. With these x is taken to be normal, so that one integral over z is left.

    `hessian`: mean of phi'' x x^T, with noise; `constant`: a vector with <x, constant> = 1 for every record;
    `spread`: symmetric. Shapes (d, d) and (d,).
    """
    curvature = max(float(constant @ hessian @ constant), LEAST_CURVATURE)
    mean = hessian @ constant / curvature
    values, axes = np.linalg.eigh(hessian / curvature - np.outer(mean, mean))
    covariance = axes * np.maximum(values, 0.0) @ axes.T
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
