"""Records that each count several times: a small simulated sample that stands for a large population."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.errors import Incompatible

if TYPE_CHECKING:
    from dpcvx.data.objective import SumOfLosses
    from dpcvx.data.sums import Sum
    from dpcvx.losses import Loss
    from dpcvx.problem import Bounds

__all__ = ["Magnified"]


@dataclass(frozen=True, eq=False)
class Magnified:
    """A source whose sums are those of another one, times a whole number; for simulations alone."""

    source: Any  # a DataSource
    factor: int
    n: int  # number of records that it stands for

    @property
    def d(self) -> int:
        """Number of stored features."""
        return int(self.source.d)

    @property
    def weight(self) -> int:
        """Largest sum of the weights of one unit's records."""
        return int(self.source.weight)

    def within(self, bounds: Bounds) -> Magnified:
        """Return these records inside the bounds."""
        return Magnified(self.source.within(bounds), self.factor, self.n)

    def mapped(self, *public: Any) -> Magnified:
        """Return these records after a public map."""
        return Magnified(self.source.mapped(*public), self.factor, self.n)

    def sum(self, question: Sum[Any]) -> Any:
        """Return the sum over the records, times the factor."""
        answer: Any = self.source.sum(question)
        if not isinstance(answer, tuple):
            return answer * self.factor
        named: Any = type(answer)  # several sums, each under its name
        return named(*(part * self.factor if isinstance(part, int | np.ndarray) else part for part in answer))

    def objective(self, loss: Loss, outputs: int, z_max: float) -> SumOfLosses:
        """Return the sum of the losses, times the factor."""
        return _MagnifiedLosses(self.source.objective(loss, outputs, z_max), self.factor, self.n)

    def follow(self, loss: Loss, outputs: int) -> Any:
        """Refuse: no simulation asks for vertices."""
        raise Incompatible("A magnified sample answers no queries about vertices.")


@dataclass(frozen=True, eq=False)
class _MagnifiedLosses:
    """A sum of losses, times a number."""

    losses: SumOfLosses
    factor: int
    n: int

    def value(self, theta: Vector) -> float:
        return self.factor * self.losses.value(theta)

    def gradient(self, theta: Vector) -> Vector:
        return self.factor * self.losses.gradient(theta)

    def hessian(self, theta: Vector) -> Vector:
        return self.factor * self.losses.hessian(theta)
