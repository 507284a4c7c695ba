"""The unit ball of a submodular norm, and of its dual, at any size."""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import ndtri

from dpcvx.arrays import Shape, Vector
from dpcvx.domains.balls import Ball, check_radius, size_of
from dpcvx.domains.mirror import Euclidean, MirrorMap
from dpcvx.domains.regularizers import SubmodularNorm
from dpcvx.domains.set_functions import (
    ConcaveOfCardinality,
    SetFunction,
    check_size,
    densest_subset,
    dual_norm,
    greedy,
    norm,
    prox,
)
from dpcvx.vouched import ITERATIVE_ERROR, vouched


@lru_cache(maxsize=64)
def single_values(F: SetFunction, size: int) -> tuple[float, ...]:
    """Return F({j}) for every j."""
    check_size(F, size)
    return tuple(F([j]) for j in range(size))


@lru_cache(maxsize=64)
def largest_density(F: SetFunction, size: int) -> float:
    """Return max_A |A| / F(A)."""
    return dual_norm(F, np.ones(size))


def width_between(peak: float, total: float) -> float:
    """Return a bound on the width of {s : |s_j| <= c_j, ||s||_1 <= peak}, with sum_j c_j = total >= peak.

    For every t, <g, s> <= peak t + sum_j c_j (|g_j| - t)_+. The bound is the expectation of the right side at
    its best t, where total P(|g| > t) = peak.
    """
    t = float(ndtri(min(peak / total, 1.0) / 2))
    return 2 * total * math.exp(-t * t / 2) / math.sqrt(2 * math.pi)


@vouched("minimisers", prox_error=ITERATIVE_ERROR, parts=lambda ball: (ball.function,))
@dataclass(frozen=True)
class SubmodularBall(Ball):
    """Ball of the norm that a set function gives, the set of the structured LASSO.

    C = {theta : Omega(theta) <= radius}, Omega(theta) = f(|theta|), f the Lovász extension of F; [KD19] §2

    Parameters
    ----------
    function : SetFunction
        F, for as many coordinates as the parameter has entries.
    radius : float
        Positive and finite.

    Notes
    -----
    The corners are radius / F(A) times the sign vectors of some sets A.
    """

    function: SetFunction
    radius: float

    def __post_init__(self) -> None:
        check_radius("SubmodularBall", self.radius)

    def penalty(self, weight: float) -> SubmodularNorm:
        """Return the norm whose ball this is, as a regularizer."""
        return SubmodularNorm(self.function, weight)

    def norm(self, ord: float, d: Shape) -> float:
        """Return a bound on radius max_A |A|^(1/ord) / F(A), the maximum itself for ord = 1 and infinity.

        In between, the bound knows only that F(A) >= min_j F({j}) and F(A) >= |A| min_B F(B) / |B|; it is the
        maximum for functions of the cardinality and for groups of equal size and weight.
        """
        size = size_of(d)
        k = np.arange(1, size + 1)
        if isinstance(self.function, ConcaveOfCardinality):
            check_size(self.function, size)
            least = np.cumsum(self.function.marginal_gains(np.arange(size)))
        else:
            single = min(single_values(self.function, size))
            least = np.maximum(single, k / largest_density(self.function, size))
        return self.radius * float((k ** (1 / ord) / least).max())

    def gaussian_width(self, d: Shape) -> float:
        """Return the width of {||theta||_1 <= norm(1), ||theta||_inf <= norm(inf)}, which holds C."""
        size = size_of(d)
        single = min(single_values(self.function, size))
        return self.radius * width_between(largest_density(self.function, size), size / single)

    def minkowski(self, theta: Vector) -> float:
        """Return Omega(theta) / radius."""
        return norm(self.function, theta) / self.radius

    def project(self, v: Vector) -> Vector:
        """Return prox of t Omega, with the t at which the ball is reached.

        Omega(prox) falls piecewise linearly in t: where u = |prox| is constant on blocks b, its slope is
        -sum_b (gain of F on b)^2 / |b|. Newton's steps, kept inside a bracket, end on the right piece.
        """
        if self.minkowski(v) <= 1:
            return v.copy()
        low, t, high = 0.0, 0.0, math.inf
        theta = v
        while True:
            excess = norm(self.function, theta) - self.radius
            low, high = (t, high) if excess > 0 else (low, t)
            slope = self._slope(np.abs(theta).ravel())
            newton = t + excess / slope if slope > 0 else high
            step = newton if low < newton < high else 0.5 * (low + high)
            if abs(excess) <= 1e-13 * self.radius or not low < step < high:
                return theta / max(1.0, self.minkowski(theta))
            t = step
            theta = prox(self.function, v, t)

    def lmo(self, g: Vector) -> Vector:
        """Return the corner -radius sign(g) / F(A) on the set A with the largest |g|(A) / F(A)."""
        magnitudes = np.abs(np.ravel(g))
        A = densest_subset(self.function, magnitudes)
        s = np.zeros(g.size)
        s[A] = np.where(np.ravel(g)[A] > 0, -self.radius, self.radius) / self.function(A)
        return s.reshape(g.shape)

    def mirror_map(self, d: Shape) -> MirrorMap:
        """Return the Euclidean map."""
        return Euclidean(self)

    def _slope(self, u: Vector) -> float:
        """Return minus the derivative of Omega(prox) in t, at the prox with magnitudes u."""
        order = np.argsort(-u, kind="stable")
        order = order[: np.count_nonzero(u > 0)]
        if not order.size:
            return 0.0
        falls = np.diff(u[order]) < -1e-12 * u[order[0]]
        starts = np.append(0, np.flatnonzero(falls) + 1)
        gains = np.add.reduceat(self.function.marginal_gains(order), starts)
        return float((gains**2 / np.diff(np.append(starts, order.size))).sum())


@vouched("minimisers", prox_error=ITERATIVE_ERROR, parts=lambda ball: (ball.function,))
@dataclass(frozen=True)
class SubmodularPolyhedron(Ball):
    """Symmetric submodular polyhedron, the ball of the dual norm.

    C = radius |P|(F) = {s : |s|(A) <= radius F(A) for every set A}; [KD19] §2

    Parameters
    ----------
    function : SetFunction
        F, for as many coordinates as the parameter has entries.
    radius : float
        Positive and finite.
    """

    function: SetFunction
    radius: float

    def __post_init__(self) -> None:
        check_radius("SubmodularPolyhedron", self.radius)

    def norm(self, ord: float, d: Shape) -> float:
        """Return a bound on the norm of the longest corner, exact for ord = 1 and infinity.

        In between, the bound knows only that entries are at most radius max_j F({j}) and sum to radius F(V);
        it is exact for functions of the cardinality and for disjoint groups of equal weight.
        """
        size = size_of(d)
        if isinstance(self.function, ConcaveOfCardinality):
            check_size(self.function, size)
            corner = self.function.marginal_gains(np.arange(size))
        else:
            highest, left = max(single_values(self.function, size)), self.function(range(size))
            full = int(left / highest)
            corner = np.append(np.full(full, highest), max(left - full * highest, 0.0))
        return self.radius * float(np.linalg.norm(corner, ord))

    def gaussian_width(self, d: Shape) -> float:
        """Return the width of {|s_j| <= radius F({j}), ||s||_1 <= radius F(V)}, which holds C."""
        size = size_of(d)
        total = math.fsum(single_values(self.function, size))
        return self.radius * width_between(self.function(range(size)), total)

    def minkowski(self, theta: Vector) -> float:
        """Return the dual norm Omega*(theta) / radius."""
        return dual_norm(self.function, theta) / self.radius

    def project(self, v: Vector) -> Vector:
        """Return v - prox of radius Omega, by Moreau's identity."""
        return v - prox(self.function, v, self.radius)

    def lmo(self, g: Vector) -> Vector:
        """Return -radius sign(g) times the marginal gains of F, given to the largest |g_j| first."""
        return np.where(g > 0, -self.radius, self.radius) * greedy(self.function, np.abs(g))

    def mirror_map(self, d: Shape) -> MirrorMap:
        """Return the Euclidean map."""
        return Euclidean(self)
