"""Mirror maps psi: the geometry in which a mirror-descent step is short."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from dpcvx.arrays import Vector

if TYPE_CHECKING:
    from dpcvx.domains import HasProjection  # domains build their own mirror maps, so they import this module


class MirrorMap(Protocol):
    """A differentiable strongly convex psi on a set C, known through its Bregman divergence B_psi."""

    @property
    def ord(self) -> float:
        """Order of the norm in which psi is strongly convex."""

    @property
    def strong_convexity(self) -> float:
        """Modulus m with B_psi(u, v) >= (m / 2) ||u - v||_ord^2 on C."""

    def bregman(self, u: Vector, v: Vector) -> float:
        """Return B_psi(u, v) = psi(u) - psi(v) - <grad psi(v), u - v>."""

    def step(self, theta: Vector, g: Vector, eta: float) -> Vector:
        """Return argmin_{s in C} <g, s> + B_psi(s, theta) / eta."""


@dataclass(frozen=True)
class Euclidean:
    """The map whose step is projected gradient descent.

    psi(theta) = ||theta||_2^2 / 2, of all entries of a matrix

    Parameters
    ----------
    domain : HasProjection
        The set C that steps stay in.
    """

    domain: "HasProjection"

    ord: ClassVar[float] = 2.0
    strong_convexity: ClassVar[float] = 1.0

    def bregman(self, u: Vector, v: Vector) -> float:
        """Return ||u - v||_2^2 / 2."""
        return 0.5 * float(((u - v) ** 2).sum())

    def step(self, theta: Vector, g: Vector, eta: float) -> Vector:
        """Return the projection of theta - eta g."""
        return self.domain.project(theta - eta * g)
