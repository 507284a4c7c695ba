"""Interface of a data source: exact sums over records come out, rows never do.

Mechanisms are its only callers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

from dpcvx.arrays import IntVector, Vector
from dpcvx.data.lattice import ResidualBound
from dpcvx.data.quantise import Quantiser
from dpcvx.data.sums import Sum
from dpcvx.losses import Loss
from dpcvx.problem import Bounds

if TYPE_CHECKING:
    from dpcvx.data.objective import SumOfLosses

__all__ = ["CanStandardise", "DataSource", "Margins"]

Answer = TypeVar("Answer")


class DataSource(Protocol):
    """The only access to records: exact sums come out, rows never do.

    Sums are 64-bit integers, or Python's own where public numbers say that 62 bits might not hold them: see
    `exact_sum`.
    """

    @property
    def n(self) -> int:
        """Number of records, which is public; of persons, where records have persons."""

    @property
    def d(self) -> int:
        """Number of stored features."""

    @property
    def weight(self) -> int:
        """Largest sum of the weights of one unit's records; 1 where records have none."""
        return 1

    def within(self, bounds: Bounds) -> DataSource:
        """Return these records with every stored row inside the bounds: a longer one is shrunk."""

    def sum(self, question: Sum[Answer]) -> Answer:
        """Return an exact sum over all records."""

    def objective(self, loss: Loss, outputs: int, z_max: float) -> SumOfLosses:
        """Return the sum of the losses in float64, for minimisers that run beside the records."""

    def follow(self, loss: Loss, outputs: int) -> Margins:
        """Return margins that are kept up to date while an iterate moves along coordinates."""


@runtime_checkable
class CanStandardise(Protocol):
    """A source that can quantise its records again after a public map."""

    def mapped(
        self, quantiser: Quantiser | None, center: float | Vector, scale: float | Vector
    ) -> DataSource:
        """Return these records with rows quantised again and targets (y - center)/scale, a public map.

        Without a quantiser rows stay as they are.
        """


class Margins(Protocol):
    """Integer margins m_i = sum_j k_ij w_j of every record, for public integer weights w.

    One weight changes at a time. The caller keeps 2^15 ||w||_1 below 2^62.
    """

    def reset(self) -> None:
        """Set w = 0."""

    def add(self, index: int, amount: int) -> None:
        """w[index] += amount, with index = j * outputs + k."""

    def scores(self, scale: float, bound: ResidualBound) -> IntVector:
        """Return sum_i rho_i k_ij, (d,) or (d, K), with rho_i the residual at z_i = m_i * scale."""
