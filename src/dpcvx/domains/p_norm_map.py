"""Squared p-norms of magnitudes: of entries, of groups of entries, of singular values."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from scipy.optimize import brentq

from dpcvx.arrays import Shape, Vector


class HasMagnitudes(Protocol):
    """A ball {theta : sum of the magnitudes of theta <= radius}, each magnitude a length in a direction."""

    @property
    def radius(self) -> float:
        """Radius of the ball."""

    def magnitudes(self, v: Vector) -> tuple[Vector, Callable[[Vector], Vector]]:
        """Return the magnitudes of v, and the map from new magnitudes to an array in v's directions."""

    def n_magnitudes(self, d: Shape) -> int:
        """Return the number of magnitudes of a parameter of shape d."""

    def noise_norm(self, order: float, d: Shape) -> float:
        """Return an upper bound on E||g||^2, the order-norm of the magnitudes of a standard normal g."""

    def norm(self, ord: float, d: Shape) -> float:
        """Return the maximum of ||theta||_ord over the ball."""


def conjugate_order(count: int) -> float:
    """Return p = log(count), at least 2, so that q = p / (p - 1) = log(count) / (log(count) - 1)."""
    return max(2.0, math.log(count))  # [TTZ14] Claim 3.5


def power_norm(x: Vector, order: float) -> float:
    """Return the order-norm of x, without overflow or underflow."""
    largest = float(np.abs(x).max(initial=0.0))
    return largest * float(((np.abs(x) / largest) ** order).sum()) ** (1 / order) if largest > 0 else 0.0


def dual_gradient(x: Vector, order: float) -> Vector:
    """Return the gradient of ||x||_p^2 / (2 (p - 1)), the conjugate of ||.||_q^2 / (2 (q - 1))."""
    size = power_norm(x, order)
    if size == 0:
        return np.zeros_like(x)
    gradient: Vector = np.sign(x) * (np.abs(x) / size) ** (order - 1) * (size / (order - 1))
    return gradient


def shrink(y: Vector, order: float, radius: float) -> Vector:
    """Return argmin ||n||_q^2 / (2 (q - 1)) - <y, n> over n >= 0, sum n <= radius, for y >= 0.

    It is the gradient of the conjugate at (y - lam)_+, with the least lam >= 0 that makes the sum at most the
    radius. The sum grows with tau = max y - lam; working with tau keeps the radius visible beside huge y.
    """
    free = dual_gradient(y, order)
    if free.sum() <= radius:
        return free
    gaps = y.max() - y

    def at(tau: float) -> Vector:
        return dual_gradient(np.maximum(tau - gaps, 0.0), order)

    # ||n||_q = ||z||_p / (p - 1), and norms of m numbers differ by at most the factor m^(1/p).
    most = radius * (order - 1)
    least = most * y.size ** (-2 / order)
    # At the upper end the sum is at least the radius, but for rounding.
    tau = brentq(
        lambda t: float(at(t).sum()) - radius, 0.99 * least, 1.01 * most, xtol=1e-300, rtol=1e-15, maxiter=200
    )
    n = at(float(tau))
    scaled: Vector = n * (radius / n.sum())  # by rounding alone
    return scaled


@dataclass(frozen=True)
class PNorm:
    """Mirror map for balls of summed magnitudes: l1, group and nuclear norms.

    psi(theta) = ||theta||_q^2 / (2 (q - 1)), the q-norm of the magnitudes of theta

    Algorithm: [TTZ14] section 3.2 with q = log k / (log k - 1) for k magnitudes, and q = 2 where log k <= 2.

    Utility: psi is 1-strongly convex in its own q-norm, for entries, groups and singular values alike (Ball,
    Carlen and Lieb, 1994), and at most radius^2 (log k - 1) / 2 on the ball.

    Deviations: [TTZ14] Fact 3.4 states modulus 1 for ||.||_q^2 / (4 (q - 1)); it is 1/2 (take the points
    (1, 1) and (1 + t, 1 - t)), hence the 2 here. For groups and singular values the paper gives sums of
    powers instead. These have modulus 1 in the norm of the unit ball, where their maxima are of order e log k
    and 4 sqrt(e) log(2 k), against (log k - 1) / 2 here in the weaker q-norm: the bound D N / m is smaller
    here. The group one loses its modulus where p / k is not the number of groups. The proof of Theorem 3.2
    needs modulus and maximum alone.
    """

    domain: HasMagnitudes  # the ball C that steps stay in
    order: float  # p = q / (q - 1), at least 2

    strong_convexity: ClassVar[float] = 1.0

    @property
    def q(self) -> float:
        """Order of the norm."""
        return self.order / (self.order - 1)

    def norm(self, v: Vector) -> float:
        """Return the q-norm of the magnitudes of v."""
        return power_norm(self.domain.magnitudes(v)[0], self.q)

    def bregman(self, u: Vector, v: Vector) -> float:
        """Return the divergence, from psi and its gradient."""
        slope = (self.order - 1) / 2  # 1 / (2 (q - 1))
        gap = slope * (self.norm(u) ** 2 - self.norm(v) ** 2) - float((self._gradient(v) * (u - v)).sum())
        return max(gap, 0.0)

    def step(self, theta: Vector, g: Vector, eta: float) -> Vector:
        """Return the point with the directions of grad psi(theta) - eta g and `shrink` of its magnitudes."""
        sizes, rebuild = self.domain.magnitudes(self._gradient(theta) - eta * g)
        return rebuild(shrink(sizes, self.order, self.domain.radius))

    def divergence_bound(self, d: Shape) -> float:
        """Return radius^2 / (2 (q - 1)), attained with a single magnitude."""
        return self.domain.radius**2 * (self.order - 1) / 2

    def noise_norm(self, d: Shape) -> float:
        """Return the domain's bound on the p-norm of the magnitudes of noise."""
        return self.domain.noise_norm(self.order, d)

    def radius(self, ord: float, d: Shape) -> float:
        """Return 1 for ord >= 2, and k^(1 - 1/q) times that of the unit ball of C below.

        The first since q <= 2 and ||s||_2 is the 2-norm of the magnitudes; the second by Hoelder.
        """
        if ord >= 2:
            return 1.0
        hoelder = math.pow(self.domain.n_magnitudes(d), 1 / self.order)
        return hoelder * self.domain.norm(ord, d) / self.domain.radius

    def _gradient(self, theta: Vector) -> Vector:
        sizes, rebuild = self.domain.magnitudes(theta)
        size = power_norm(sizes, self.q)
        if size == 0:
            return np.zeros_like(theta)
        return rebuild((sizes / size) ** (self.q - 1) * (size * (self.order - 1)))
