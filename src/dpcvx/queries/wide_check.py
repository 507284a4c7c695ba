"""Comparison of a regression on very many cells with the records."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.queries.histogram import Counts
from dpcvx.queries.mechanisms import PublicAnswer
from dpcvx.queries.wide_regression import WideRegression

__all__ = ["WideAnswer"]

BLOCK = 2**12  # records that are summed at once
FLOAT = 2.0**-33  # 2^7 times a bound on the rounding of a score's sums, relative to the range of its terms
BISECTIONS = 64
SMALLEST = 2.0**-40  # multiplier of the ball, relative to the largest one


@dataclass(frozen=True, eq=False)
class WideAnswer(PublicAnswer):
    """A regression on very many cells with its public answer theta; private is an upper bound on its error.

    Let C_r = theta + r (B - theta), B the ball of the radius R that holds the set. For a record x and a step
    d = theta' - theta, theta' in C_r, the term

        t_x(d) = -phi'(z) <x, d> - (w/2) <x, d>^2,   z = <x, theta>,

    with w the least curvature of the loss over the margins of x in C_r, is at least
    l(theta; x) - l(theta'; x). So max_d (1/n) sum_i t_i(d), with the ridge, is at least the excess loss of
    theta over C_r, and equal for squared loss. It needs the mean gradient and one matrix, in one pass.
    """

    query: WideRegression
    reach: float  # r

    @property
    def range(self) -> float:
        """Length of an interval that holds all terms, 0 included: n times the sensitivity of the maximum.

        |<x, d>| <= U = r (R |x| + max |z|). A term is at most max |phi'(z)| U, and at least
        l(theta; x) - l(theta'; x) >= -max |phi'| U over the margins of C_r. Rounding adds to it.
        """
        query, r = self.query, self.reach
        low, high = query.margins(self.theta)
        far = r * query.radius * query.problem.row_norm
        step = far + r * max(high, -low)
        here = self._steepest(low, high)
        there = self._steepest((1 - r) * low - far, (1 - r) * high + far)
        return (here + there) * step * (1 + FLOAT * query.records)

    def _steepest(self, low: float, high: float) -> float:
        """Largest slope over margins and targets; slopes of convex losses are monotone in both."""
        grad, ends = self.query.problem.loss.grad, self.query.target_ends
        slopes = (grad(np.full(2, end), ends) for end in (low, high))
        return max(float(np.abs(each).max()) for each in slopes)

    def score(self, data: Counts) -> float:
        """Return the maximum over its sensitivity; private. One unit moves it by at most 1 + 2 TOLERANCE.

        The work is a function of public sizes.
        """
        query, loss, r = self.query, self.query.problem.loss, self.reach
        l2, d = query.problem.l2, query.problem.d
        gradient, A = np.zeros(d), np.zeros((d, d))
        codes = data.codes(query.attributes)
        for start in range(0, data.n, BLOCK):
            X, y = query.rows(codes[:, start : start + BLOCK])
            z = X @ self.theta
            far = np.abs((1 - r) * z) + r * query.radius * np.linalg.norm(X, axis=1)
            gradient += loss.grad(z, y) @ X
            A += (X * loss.least_curvature(far)[:, None]).T @ X
        gradient, A = gradient / data.n + l2 * self.theta, A / data.n + l2 * np.eye(d)
        bend = r * r * A
        b = bend @ self.theta - r * gradient
        fixed = r * float(gradient @ self.theta) - float(self.theta @ bend @ self.theta) / 2
        return max(fixed + _largest(bend, b, query.radius), 0.0) * data.n / self.range


def _largest(M: Vector, b: Vector, radius: float) -> float:
    """Return max <b, v> - v^T M v / 2 over the ball, M positive semidefinite, in a public number of steps.

    v = (M + s)^-1 b with the multiplier s found by bisection, from the smallest one that counts. Any v of the
    ball gives a lower bound; s adds at most s radius^2/2 to what is lost.
    """
    length = float(np.linalg.norm(b)) / radius
    low = max(SMALLEST * (length + float(np.trace(M))), 1e-200)
    high = low + length
    one = np.eye(len(b))
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        outside = float(np.linalg.norm(np.linalg.solve(M + middle * one, b))) > radius
        low, high = (middle, high) if outside else (low, middle)
    v = np.linalg.solve(M + high * one, b)
    v *= min(1.0, radius / max(float(np.linalg.norm(v)), 1e-300))
    return float(b @ v - v @ M @ v / 2)
