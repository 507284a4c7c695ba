"""What a solver may ask of an oracle, whoever answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from dpcvx.arrays import IntVector, Vector
from dpcvx.mechanisms import SecondMoments, Vertex

if TYPE_CHECKING:
    from dpcvx.data import Quantiser, Region
    from dpcvx.plans.uncertainty import Uncertainty

__all__ = ["Asking"]


class Asking(Protocol):
    """The side of an oracle that a solver sees: questions go in, noised answers come out."""

    @property
    def uncertainty(self) -> Uncertainty | None:
        """The uncertainty published so far."""
        ...

    def gradient(self, theta: Vector, support: IntVector | None = None) -> Vector:
        """Noisy gradient of the objective at a public theta, on the features of a support if one is given."""
        ...

    def difference(self, theta: Vector, anchor: Vector) -> Vector:
        """Noisy gradient at theta minus gradient at an anchor, both public, over a sample of the records."""
        ...

    def minimiser(self, linear: Vector | None = None) -> Vector:
        """Private minimiser of the objective, plus a public linear term where the question takes one."""
        ...

    def second_moments(self, theta: Vector) -> SecondMoments:
        """Noisy Hessian of the mean loss at a public theta, and what else was planned with it."""
        ...

    def moments(self, centers: Vector | None = None) -> Vector:
        """Noisy means, or mean squares about public centres, of the features and of targets with a scale."""
        ...

    def length(self) -> Vector:
        """Noisy mean squared norm of the rows, then mean squares of targets with a scale."""
        ...

    def remap(self, door: Quantiser, center: float = 0.0, scale: float = 1.0) -> None:
        """Send every record through a second door: a public map of its row, and of its target."""
        ...

    def announce(self, trim: Region, caution: str | None = None) -> None:
        """Release, with the parameter, the region of the rows, and a caution: functions of answers."""
        ...

    def publish(self, uncertainty: Uncertainty) -> None:
        """Release, with the parameter, how uncertain it is: a function of answers and public numbers."""
        ...

    def vertex(self) -> Vertex:
        """Noisy best vertex at the current point."""
        ...

    def move(self, step: float, vertex: Vertex) -> None:
        """Announce theta <- (1 - step) theta + step * vertex."""
        ...
