"""The prox of any submodular norm: the point of a base polytope that is nearest to given magnitudes."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.optimize import isotonic_regression

from dpcvx.arrays import IntVector, Vector

__all__ = ["pooled", "shrink_by_minimum_norm"]


def shrink_by_minimum_norm(
    marginal_gains: Callable[[IntVector], Vector], magnitudes: Vector, step: float
) -> Vector:
    """Return argmin_{u >= 0} ||u - magnitudes||_2^2 / 2 + step f(u), for any F, by its marginal gains.

    The dual is the point of the base polytope, times step, that is nearest to the magnitudes: Wolfe's
    minimum-norm point, with greedy as its linear oracle. Each point found gives an order of the coordinates;
    the best u in that order is an isotonic regression, which is exact to rounding as soon as the order is
    right. The gap between the two bounds the error.

    Notes
    -----
    Meant for up to a few hundred non-zero magnitudes. Since F is non-decreasing, the answer over u >= 0 is
    the positive part of that over all u, and coordinates of magnitude 0 stay 0.
    """
    support = np.flatnonzero(magnitudes)
    c = magnitudes[support]
    answer, least = np.zeros(magnitudes.size), math.inf
    x, corral = -c, _Corral(np.empty((0, c.size)), np.empty((0, 0)), np.empty(0))
    for _ in range(20 * c.size + 100):  # many times what is needed; the best point so far is then the answer
        order = np.argsort(x, kind="stable")
        s = np.empty(c.size)
        s[order] = step * marginal_gains(support[order])
        u = pooled(c, s[order], order)
        value = 0.5 * float(u @ u) - float(u @ (c - s))
        if value < least:
            answer[support], least = u, value
        if corral.weights.size:
            y = np.maximum(-x, 0.0)  # the primal value of u less the dual value of x, without cancellation:
            gap = 0.5 * float((u - y) @ (u - y)) + float(u @ (y - c + s))
            if gap <= 1e-16 * float(c @ c):
                break
        larger = corral.with_point(s - c)
        if larger is None:
            break
        corral, x = larger, larger.weights @ larger.points
    return answer


class _Corral(NamedTuple):
    """Affinely independent points whose mixture has the least norm in their affine hull (Wolfe 1976)."""

    points: Vector
    gram: Vector
    weights: Vector  # positive, of sum 1

    def with_point(self, point: Vector) -> "_Corral | None":
        """Return a corral of smaller norm, or None if the point does not help beyond rounding."""
        points, across = np.vstack([self.points, point]), self.points @ point
        gram = np.block([[self.gram, across[:, None]], [across[None, :], np.array([[point @ point]])]])
        weights = np.append(self.weights, 0.0 if self.weights.size else 1.0)
        size = float(gram.diagonal().max()) or 1.0
        while True:
            try:
                affine = cho_solve(cho_factor(gram + size), np.ones(weights.size))
            except LinAlgError:
                return None
            affine /= affine.sum()
            if affine[-1] <= 0:
                return None
            if (affine > 0).all():
                return _Corral(points, gram, affine)
            # Go towards the affine minimiser until a weight is 0, and drop that point.
            falling = np.flatnonzero(affine <= 0)
            ratio = weights[falling] / (weights[falling] - affine[falling])
            weights = weights + float(ratio.min()) * (affine - weights)
            weights[falling[ratio.argmin()]] = 0.0
            kept = weights > 0
            points, weights, gram = points[kept], weights[kept], gram[np.ix_(kept, kept)]


def pooled(magnitudes: Vector, gains: Vector, order: IntVector) -> Vector:
    """Return the u >= 0 that falls along the order and is nearest to magnitudes less gains."""
    u = np.empty(magnitudes.size)
    u[order] = isotonic_regression(magnitudes[order] - gains, increasing=False).x
    positive: Vector = np.maximum(u, 0.0)
    return positive
