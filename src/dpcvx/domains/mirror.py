"""Mirror maps psi: the geometry in which a mirror-descent step is short.

Let m be the modulus of psi, D = `divergence_bound`, N = `noise_norm` and g_t gradients with ||g_t||_* <= L,
to which N(0, sigma^2) noise is added. T steps of length eta from the start of C have, [TTZ14] Theorem 3.2,

    mean excess <= D / (eta T) + (eta / (2 m)) (L + sigma sqrt(N))^2

so that of two maps the one with the smaller D N / m is better where the noise decides.

A step recalls the dual point grad psi(theta) from theta. Where psi is steep, theta holds it to few digits
only: the point 0 + 1e-17 and the point 0 differ in grad psi. A loop of many small steps loses nothing if it
adds up its gradients and always steps from the start: ``step(start, sum of gradients, eta)``. That is lazy
mirror descent, for which the bound above holds as well.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from dpcvx.arrays import Shape, Vector

SMALLEST = 1e-300  # share of the simplex that every entry keeps


class MirrorMap(Protocol):
    """A differentiable strongly convex psi on a set C, known through its Bregman divergence B_psi."""

    @property
    def strong_convexity(self) -> float:
        """Modulus m with B_psi(u, v) >= (m / 2) ||u - v||^2 on C."""

    def norm(self, v: Vector) -> float:
        """Return ||v||, the norm in which psi is strongly convex, of a difference of points of C."""

    def bregman(self, u: Vector, v: Vector) -> float:
        """Return B_psi(u, v) = psi(u) - psi(v) - <grad psi(v), u - v>."""

    def step(self, theta: Vector, g: Vector, eta: float) -> Vector:
        """Return argmin_{s in C} <g, s> + B_psi(s, theta) / eta."""

    def divergence_bound(self, d: Shape) -> float:
        """Return D, an upper bound on B_psi(theta, start of C) over theta in C."""

    def noise_norm(self, d: Shape) -> float:
        """Return N, an upper bound on E||g||_*^2 for standard normal g: the unit ball's width, squared."""

    def radius(self, ord: float, d: Shape) -> float:
        """Return an upper bound on ||s||_ord over the unit ball of the norm.

        Hence ||g||_* <= radius(2) ||g||_2, and ||g||_* <= radius(1) max_j |g_j|.
        """


class Projectable(Protocol):
    """Methods of `Domain` that the Euclidean map needs of its set."""

    def project(self, v: Vector) -> Vector: ...  # noqa: D102

    def start(self, d: Shape) -> Vector: ...  # noqa: D102

    def norm(self, ord: float, d: Shape) -> float: ...  # noqa: D102

    def diameter(self, ord: float, d: Shape) -> float: ...  # noqa: D102


def smallest_bound(maps: Iterable[MirrorMap], d: Shape) -> MirrorMap:
    """Return the map with the smallest D N / m: the best one where privacy noise decides."""
    return min(maps, key=lambda psi: psi.divergence_bound(d) * psi.noise_norm(d) / psi.strong_convexity)


@dataclass(frozen=True)
class Euclidean:
    """Mirror map whose step is projected gradient descent.

    psi(theta) = ||theta||_2^2 / 2, of all entries of a matrix
    """

    domain: Projectable  # the set C that steps stay in

    strong_convexity: ClassVar[float] = 1.0

    def norm(self, v: Vector) -> float:
        """Return ||v||_2."""
        return float(np.linalg.norm(np.ravel(v)))

    def bregman(self, u: Vector, v: Vector) -> float:
        """Return ||u - v||_2^2 / 2."""
        return 0.5 * float(((u - v) ** 2).sum())

    def step(self, theta: Vector, g: Vector, eta: float) -> Vector:
        """Return the projection of theta - eta g."""
        return self.domain.project(theta - eta * g)

    def divergence_bound(self, d: Shape) -> float:
        """Return r^2 / 2; r, the distance from the start, is below ||C||_2 + ||start||_2 and the diameter."""
        C = self.domain
        return 0.5 * min(C.norm(2, d) + self.norm(C.start(d)), C.diameter(2, d)) ** 2

    def noise_norm(self, d: Shape) -> float:
        """Return the number of entries, which is exact."""
        return float(np.prod(d))

    def radius(self, ord: float, d: Shape) -> float:
        """Return 1 for ord >= 2, and d^(1/ord - 1/2) below."""
        return math.pow(np.prod(d), max(1 / ord - 0.5, 0.0))


@dataclass(frozen=True)
class Entropy:
    """Exponentiated gradient on the simplex {theta >= 0, sum_j theta_j = total}.

    psi(theta) = total sum_j theta_j log theta_j

    Notes
    -----
    With this scale psi is 1-strongly convex in the l1 norm (Pinsker's inequality). Differences of points of
    the simplex sum to 0, so the dual norm is half the range of g, not its largest entry.
    An entry below 1e-300 total counts as that much: one that underflows, or that rounding makes negative,
    would otherwise be lost for good.
    """

    total: float  # sum of the entries

    strong_convexity: ClassVar[float] = 1.0

    def norm(self, v: Vector) -> float:
        """Return ||v||_1."""
        return float(np.abs(v).sum())

    def bregman(self, u: Vector, v: Vector) -> float:
        """Return total sum_j u_j log(u_j / v_j)."""
        p, q = self._shares(u), self._shares(v)
        return self.total**2 * float((p * np.log(p / q) - p + q).sum())  # terms >= 0: no cancellation

    def step(self, theta: Vector, g: Vector, eta: float) -> Vector:
        """Return theta exp(-eta g / total), normalised."""
        logs = np.log(self._shares(theta)) - (eta / self.total) * g
        shares = self._shares(self.total * np.exp(logs - logs.max()))
        new: Vector = shares * (self.total / shares.sum())
        return new

    def divergence_bound(self, d: Shape) -> float:
        """Return total^2 log d, attained from the centre to a vertex."""
        return self.total**2 * math.log(np.prod(d))

    def noise_norm(self, d: Shape) -> float:
        """Return 2 log d + 1/2.

        Half the range of g has mean E max_j g_j <= sqrt(2 log d), and variance at most 1/2: it is
        2^(-1/2)-Lipschitz (Poincare's inequality).
        """
        return 2 * math.log(np.prod(d)) + 0.5

    def radius(self, ord: float, d: Shape) -> float:
        """Return 2^(1/ord - 1), the norm of half the difference of two vertices of the unit simplex."""
        return math.pow(2.0, 1 / ord - 1)

    def _shares(self, theta: Vector) -> Vector:
        return np.maximum(theta / self.total, SMALLEST)
