"""A quantile of one column, by the exponential mechanism on a public grid."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise
from typing import ClassVar

import numpy as np

from dpcvx.accounting import REPLACE_ONE, WEIGHT, Neighbours
from dpcvx.arrays import IntVector, Vector
from dpcvx.data import LARGEST_SUM
from dpcvx.errors import Incompatible
from dpcvx.events import Event, Exponential
from dpcvx.mechanisms.mechanism import Mechanism, Traits
from dpcvx.noise import Generator, exponential

__all__ = ["NoisyQuantile", "as_quantile", "quantile_grid"]

# Magnitudes 2^-40 to 2^64 (about 1e-12 to 2e19), eight to an octave, both signs, and 0.
STEPS_PER_OCTAVE = 8
LEAST_EXPONENT, LARGEST_EXPONENT = -40, 64


@cache
def quantile_grid() -> Vector:
    """Return the public grid, ascending, the same for every column.

    A declared type does not narrow it: one missing cell makes a column of integers one of floats, so that a
    grid that follows the type would tell of it.
    """
    exponents = np.arange(STEPS_PER_OCTAVE * LEAST_EXPONENT, STEPS_PER_OCTAVE * LARGEST_EXPONENT + 1)
    magnitudes = 2.0 ** (exponents / STEPS_PER_OCTAVE)
    return np.concatenate([-magnitudes[::-1], [0.0], magnitudes])


@dataclass(frozen=True)
class NoisyQuantile:
    """The part (a, b] of a public grid in which the number of cells at or below a point passes ``rank``.

    Question: with c(g) = #{i : x_i <= g} the scores u(D) = -distance of rank from [c(a), c(b)], for every
    part between neighbours of `quantile_grid`, and those beyond its ends; the answer is drawn with
    probability proportional to exp(eta u / 2), exactly (`noise.exponential`). A cell that is no
    finite number counts as 0. The part with the quantile has score 0, however coarse the grid and however
    many cells are equal.
    Sensitivity (replace-one, each score): 1, as every count changes by one at most; scores are integers.
    Of weighted records c(g) is the sum of their weights over 2^14, and the rank is taken of the sum of all
    weights, which is private: a score is a maximum of sums of w (1[x <= g] - rank/n), so that a person whose
    weights add up to at most 2^14 changes it by at most 1 (PRIVACY_MATH §16).
    Event: Exponential(eta), eta-bounded-range (PRIVACY_MATH §15). Rounding of log-weights is paid out of
    eta (PRIVACY_MATH §11).
    """

    n: int  # number of records, public
    rank: int  # number of cells at or below the quantile
    eta: float  # bounded range of one selection
    neighbours: Neighbours = REPLACE_ONE  # the data sets that must look alike

    traits: ClassVar[Traits] = Traits("quantile", measures=True)

    def __post_init__(self) -> None:
        if not self.neighbours.replaces or self.neighbours.rows > 1:
            raise Incompatible(
                "Private quantiles need relation='replace', and one row of each person: leave max_rows out."
            )
        if self._temperature <= 0:
            raise Incompatible(
                f"The rounding of scores of n={self.n} records takes all of eta={self.eta:g}; use fewer."
            )

    @property
    def event(self) -> Event:
        """Exponential(eta)."""
        return Exponential(self.eta)

    @property
    def sensitivity(self) -> float:
        """Largest change of one score."""
        return 1.0

    @property
    def noise(self) -> float:
        """Scale of an equivalent Gumbel noise on a score: ranks."""
        return 2 / self.eta

    @property
    def capacity(self) -> int:
        """Counts are exact."""
        return LARGEST_SUM

    @property
    def n_draws(self) -> int:
        """One value per part."""
        return quantile_grid().size + 1

    @property
    def failure(self) -> float:
        """Total variation of one call's noise: none, decisions are made in exact arithmetic."""
        return 0.0

    @property
    def evaluations(self) -> float:
        """No gradient is computed."""
        return 0.0

    @property
    def _temperature(self) -> float:
        """Eta left for the selection once rounding is paid; a log-weight is at most eta n / 2.

        A score of weighted records is a quotient, which is rounded once more.
        """
        roundings = 1 if self.neighbours.weight == 1 else 2
        return self.eta - exponential.log_weight_error(roundings * self.eta * self.n / 2)

    def scores(self, cells: Vector, weights: IntVector | None = None) -> Vector:
        """Return minus the distance of the rank from the counts at both ends of each part.

        They are exact integers, or for weighted records quotients of exact integers.
        """
        if (weights is None) != (self.neighbours.weight == 1):
            raise Incompatible("The plan and the records disagree on whether records have weights.")
        grid = quantile_grid()
        # The first point that is not below a cell is the first that counts it.
        first = np.searchsorted(grid, np.where(np.isfinite(cells), cells, 0.0), side="left")
        if weights is not None:
            return self._weighted(first, weights)
        counts = np.cumsum(np.bincount(first, minlength=grid.size + 1))
        below, above = np.concatenate([[0], counts[:-1]]), counts
        scores: Vector = -np.maximum(0.0, np.maximum(below - self.rank, self.rank - above))
        return scores

    def _weighted(self, first: IntVector, weights: IntVector) -> Vector:
        """Scores of weighted records, ``first`` being the first point of the grid that counts each."""
        # Sums of integers are exact in float64 up to 2^53.
        sums = np.bincount(first, weights, minlength=quantile_grid().size + 1)
        counts = [0, *accumulate(map(int, sums))]
        wanted = self.rank * counts[-1]  # in Python's integers, times n
        far = [max(0, self.n * a - wanted, wanted - self.n * b) for a, b in pairwise(counts)]
        return np.array([-each / (self.n * WEIGHT) for each in far])

    def __call__(
        self, cells: Vector, rng: Generator, weights: IntVector | None = None
    ) -> tuple[float, float]:
        """Return the ends of the part with a noisy quantile of a column; beyond the grid both are its end."""
        grid = quantile_grid()
        part = exponential.select(self.scores(cells, weights) * (self._temperature / 2), rng)
        return float(grid[max(part - 1, 0)]), float(grid[min(part, grid.size - 1)])


def as_quantile(mechanism: Mechanism) -> NoisyQuantile:
    """Return a mechanism that releases a quantile; refuse any other."""
    if not isinstance(mechanism, NoisyQuantile):
        raise Incompatible(f"A quantile was expected; the stage asks {type(mechanism).__name__}.")
    return mechanism
