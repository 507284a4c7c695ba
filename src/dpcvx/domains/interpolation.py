"""The ball between the l1 and the l2 ball."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import ndtr

from dpcvx.arrays import Shape, Vector
from dpcvx.domains.balls import Ball, L1Ball, check_radius, normal_moment, size_of, unit_vector
from dpcvx.domains.mirror import Euclidean, MirrorMap, smallest_bound
from dpcvx.domains.p_norm_map import conjugate_order, power_norm
from dpcvx.errors import WrongValue
from dpcvx.vouched import ITERATIVE_ERROR, vouched


def soft(v: Vector, amount: float) -> Vector:
    """Return v with its entries shrunk towards 0 by the amount."""
    shrunk: Vector = np.copysign(np.maximum(np.abs(v) - amount, 0.0), v)
    return shrunk


def excess_square(tau: float) -> float:
    """Return E (|g| - tau)_+^2 for standard normal g."""
    density = math.exp(-0.5 * tau**2) / math.sqrt(2 * math.pi)
    return max(2 * float((1 + tau**2) * ndtr(-tau) - tau * density), 0.0)


@vouched("minimisers", prox_error=ITERATIVE_ERROR)
@dataclass(frozen=True)
class InterpolationBall(Ball):
    """Ball of a weighted sum of the l1 and the l2 norm.

    C = {theta : (1 - alpha) ||theta||_1 + alpha ||theta||_2 <= radius}

    Parameters
    ----------
    alpha : float
        Share of the l2 norm, from 0 (l1 ball) to 1 (l2 ball).
    radius : float
        Positive and finite.
    """

    alpha: float
    radius: float

    def __post_init__(self) -> None:
        check_radius("InterpolationBall", self.radius)
        if not 0 <= self.alpha <= 1:
            raise WrongValue(f"InterpolationBall needs alpha in [0, 1]; got alpha={self.alpha}.")

    def norm(self, ord: float, d: Shape) -> float:
        """Return radius max_j j^(1/ord) / ((1 - alpha) j + alpha sqrt(j)): j equal entries, the others 0."""
        j = np.arange(1.0, size_of(d) + 1)
        return self.radius * float((j ** (1 / ord) / ((1 - self.alpha) * j + self.alpha * np.sqrt(j))).max())

    def gaussian_width(self, d: Shape) -> float:
        """Return radius min_tau sqrt(tau^2 / (1 - alpha)^2 + d E(|g| - tau)_+^2 / alpha^2).

        The dual norm of g = u + v is at most the larger of ||u||_inf / (1 - alpha) and ||v||_2 / alpha; u is
        g clipped at tau. Where it is smaller, the width of the l1 ball of radius / (1 - alpha) is returned.
        """
        a, size = 1 - self.alpha, size_of(d)
        corners = L1Ball(1.0).gaussian_width(size) / a if a > 0 else math.inf
        return self.radius * math.sqrt(min(corners**2, self.split_noise(size, 1.0, math.inf)))

    def split_noise(self, size: int, factor: float, ceiling: float) -> float:
        """Return min over tau of factor tau^2 / (1 - alpha)^2 + size E(|g| - tau)_+^2 / alpha^2.

        That is a bound on E||g||^2 in a norm which is at most sqrt(factor) ||u||_inf / (1 - alpha) and
        ||v||_2 / alpha, in root sum of squares, for g = u + v. With v = 0 it is ceiling / (1 - alpha)^2.
        """
        a, b = 1 - self.alpha, self.alpha
        if a == 0:
            return float(size)
        if b == 0:
            return ceiling
        # Convex in tau; and every tau gives a valid bound, so the search need not be exact.
        best = minimize_scalar(
            lambda tau: factor * (tau / a) ** 2 + size * excess_square(tau) / b**2,
            bounds=(0.0, 10.0 + math.sqrt(2 * math.log(size + 1))),
            method="bounded",
        )
        return min(float(best.fun), ceiling / a**2, size / b**2)

    def minkowski(self, theta: Vector) -> float:
        """Return ((1 - alpha) ||theta||_1 + alpha ||theta||_2) / radius."""
        l1, l2 = float(np.abs(theta).sum()), float(np.linalg.norm(np.ravel(theta)))
        return ((1 - self.alpha) * l1 + self.alpha * l2) / self.radius

    def dual_norm(self, g: Vector) -> float:
        """Return t = max <g, s> over the ball of radius 1: ||soft(g, (1 - alpha) t)||_2 = alpha t."""
        a, b = 1 - self.alpha, self.alpha
        largest, length = float(np.abs(g).max()), float(np.linalg.norm(np.ravel(g)))
        if largest == 0 or b == 0:
            return largest
        if a == 0:
            return length
        v = g / largest
        most = min(1 / a, length / largest / b)

        def surplus(t: float) -> float:
            return float(np.linalg.norm(np.ravel(soft(v, a * t)))) - b * t

        return (
            largest * most if surplus(most) >= 0 else largest * float(brentq(surplus, 0.0, most, xtol=1e-300))
        )

    def project(self, v: Vector) -> Vector:
        """Return v shrunk entry by entry, then as a whole, in the proportion of the two shares."""
        a, b = 1 - self.alpha, self.alpha
        if self.minkowski(v) <= 1:
            return v.copy()

        def at(lam: float) -> Vector:
            shrunk = soft(v, lam * a)
            length = float(np.linalg.norm(np.ravel(shrunk)))
            return shrunk * max(1 - lam * b / length, 0.0) if length > 0 else shrunk

        lam = brentq(lambda lam: self.minkowski(at(lam)) - 1, 0.0, self.dual_norm(v), xtol=1e-300, rtol=1e-15)
        s = at(float(lam))
        return s / self.minkowski(s)

    def lmo(self, g: Vector) -> Vector:
        """Return the multiple of -soft(g, (1 - alpha) t) on the boundary, t the dual norm of g."""
        if self.alpha == 0 or not g.any():
            i = int(np.abs(g).argmax())
            return unit_vector(i, -self.radius if g.flat[i] > 0 else self.radius, g.shape)
        s = -soft(g, (1 - self.alpha) * self.dual_norm(g))
        return s / self.minkowski(s)

    def mirror_map(self, d: Shape) -> MirrorMap:
        """Return the map of the sum of both norms' potentials, or the Euclidean one where that is better."""
        if self.alpha == 0:
            return L1Ball(self.radius).mirror_map(d)
        if self.alpha == 1:
            return Euclidean(self)
        return smallest_bound([Euclidean(self), Interpolation(self, size_of(d))], d)


@dataclass(frozen=True)
class Interpolation:
    """Mirror map for balls between l1 and l2.

    psi(theta) = (1 - alpha)^2 R^(2-q) sum_j |theta_j|^q / (q (q - 1)) + alpha^2 ||theta||_2^2 / 2

    Algorithm: [TTZ14] section 3.2 says that a potential exists; this is one, with q = log d / (log d - 1) and
    R = max_C ||theta||_q.

    Utility: by Hoelder's inequality the first term is (1 - alpha)^2-strongly convex in the q-norm where
    ||theta||_q <= R, so psi is 1-strongly convex in ((1 - alpha)^2 ||.||_q^2 + alpha^2 ||.||_2^2)^(1/2),
    which is between the norm of the ball, over sqrt(2) e, and that norm. On C, psi is of order radius^2 log
    d.

    Deviations: the maximum is of order log d, not O(1) as the paper says.
    """

    domain: InterpolationBall  # the ball C that steps stay in, 0 < alpha < 1
    size: int  # number of entries d of a parameter

    strong_convexity: ClassVar[float] = 1.0

    @cached_property
    def _order(self) -> float:
        return conjugate_order(self.size)

    @cached_property
    def _q(self) -> float:
        return self._order / (self._order - 1)

    @cached_property
    def _slope(self) -> float:
        """The derivative of the first term is this times theta_j^(q-1)."""
        a, q = 1 - self.domain.alpha, self._q
        return a**2 * math.pow(self.domain.norm(q, self.size), 2 - q) / (q - 1)

    def norm(self, v: Vector) -> float:
        """Return the root of the sum of squares of both norms, each with its share."""
        a, b = 1 - self.domain.alpha, self.domain.alpha
        return math.hypot(a * power_norm(v, self._q), b * float(np.linalg.norm(np.ravel(v))))

    def bregman(self, u: Vector, v: Vector) -> float:
        """Return the divergence, from psi and its gradient."""
        b, q = self.domain.alpha, self._q
        powers = float((np.abs(u) ** q - np.abs(v) ** q).sum()) * self._slope / q
        steep = np.copysign(self._slope * np.abs(v) ** (q - 1), v)
        return max(powers - float((steep * (u - v)).sum()), 0.0) + 0.5 * b**2 * float(((u - v) ** 2).sum())

    def step(self, theta: Vector, g: Vector, eta: float) -> Vector:
        """Return s with the signs of y = grad psi(theta) - eta g and sizes from one equation per entry.

        slope s^(q-1) + (alpha^2 + kap) s = (|y| - lam (1 - alpha))_+ with kap = lam alpha / ||s||_2, and the
        least lam >= 0 that brings s into C. kap ||s||_2 grows with kap, the norm of s falls with lam.
        """
        C, a, b = self.domain, 1 - self.domain.alpha, self.domain.alpha
        y = np.copysign(self._slope * np.abs(theta) ** (self._q - 1), theta) + b**2 * theta - eta * g
        sizes = np.abs(y)
        s = self._sizes(sizes, b**2)
        if C.minkowski(s) > 1:

            def at(lam: float) -> Vector:
                z = np.maximum(sizes - lam * a, 0.0)
                if np.linalg.norm(z) <= lam * b:
                    return np.zeros_like(z)

                def surplus(kap: float) -> float:
                    return kap * float(np.linalg.norm(self._sizes(z, b**2 + kap))) - lam * b

                most = 1.0
                while surplus(most) < 0 and most < 1e18:
                    most *= 16
                kap = brentq(surplus, 0.0, most, xtol=1e-300, rtol=1e-15) if surplus(most) > 0 else most
                return self._sizes(z, b**2 + float(kap))

            lam = brentq(lambda t: C.minkowski(at(t)) - 1, 0.0, C.dual_norm(sizes), xtol=1e-300, rtol=1e-15)
            s = at(float(lam))
            s = s / C.minkowski(s)
        return np.copysign(s, y)

    def divergence_bound(self, d: Shape) -> float:
        """Return the sum of the maxima of both terms over C."""
        a, b, q = 1 - self.domain.alpha, self.domain.alpha, self._q
        first = (a * self.domain.norm(q, self.size)) ** 2 / (q * (q - 1))
        return first + 0.5 * (b * self.domain.radius) ** 2

    def noise_norm(self, d: Shape) -> float:
        """Return the least bound over splits of g at a threshold: one part in the p-norm, one in l2."""
        p = self._order
        ceiling = math.pow(self.size * normal_moment(p), 2 / p)
        return self.domain.split_noise(self.size, math.pow(self.size, 2 / p), ceiling)

    def radius(self, ord: float, d: Shape) -> float:
        """Return 1 / (a^2 + b^2)^(1/2) for ord >= 2; below, sqrt(2) d^(1/p) max_C ||s||_ord / radius.

        The first since ||s||_q >= ||s||_2, with a = 1 - alpha and b = alpha; the second since the norm of C
        is at most sqrt(2) d^(1/p) times this norm (Hoelder).
        """
        a, b = 1 - self.domain.alpha, self.domain.alpha
        if ord >= 2:
            return 1 / math.hypot(a, b)
        hoelder = math.sqrt(2) * math.pow(self.size, 1 / self._order)
        return hoelder * self.domain.norm(ord, self.size) / self.domain.radius

    def _sizes(self, z: Vector, linear: float) -> Vector:
        """Return t >= 0 with slope t^(q-1) + linear t = z, entry by entry.

        In x = t^(q-1) the left side is convex, and Newton's method falls to the root from any point above it.
        """
        power = self._order - 1  # 1 / (q - 1)
        x = np.minimum(z / self._slope, (z / linear) ** (1 / power))
        for _ in range(100):
            new = x - (self._slope * x + linear * x**power - z) / (
                self._slope + linear * power * x ** (power - 1)
            )
            if (new >= x * (1 - 1e-15)).all():
                break
            x = np.maximum(new, 0.0)
        result: Vector = x**power
        return result
