"""A pair of features along whose product the loss falls most, by the exponential mechanism."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dpcvx.accounting import REPLACE_ONE, Neighbours
from dpcvx.arrays import Vector
from dpcvx.data import LARGEST_PRODUCT, SUM_UNIT, PairSum, ResidualBound
from dpcvx.errors import Incompatible, WrongValue
from dpcvx.events import Event, Exponential
from dpcvx.mechanisms.mechanism import Traits, check_capacity, residual_bound, room
from dpcvx.problem import Problem

if TYPE_CHECKING:
    from dpcvx.data import DataSource
    from dpcvx.noise import Generator

__all__ = ["NoisyPair"]


class Slopes:
    """Slopes of the loss along the products at one public point, computed once; never shown."""

    def __init__(self) -> None:
        self._at: tuple[Vector, Vector, float] | None = None

    def __repr__(self) -> str:
        return "Slopes()"

    def at(self, theta: Vector, compute: Callable[[Vector], tuple[Vector, float]]) -> tuple[Vector, float]:
        """Return the slopes at a point and their sensitivity."""
        if self._at is None or not np.array_equal(self._at[0], theta):
            self._at = (theta.copy(), *compute(theta))
        return self._at[1:]


@dataclass(frozen=True)
class NoisyPair:
    """A pair with a large slope of the loss along its product at a public theta, none of those drawn before.

    Question: let p_ij = clip(stretch x_ia x_ib, -1, 1) for the pair j = (a, b) of features, on the grid 2^-14
    (`PairSum`). The scores are u_js(D) = -s/n sum_i rho_i p_ij for every pair j that is left and s = 1, -1,
    rho_i the slope of record i at theta; with K outputs a pair has K such entries. (j, s) is drawn with
    probability proportional to exp(eta u_js/(2 Delta)), exactly (`noise.exponential`), and j is the answer.
    Sensitivity (replace-one, each score): Delta = 2 2^-34 R_inf 2^14/n, half of it under add/remove; R_inf is
    taken at the public theta.
    Event: Exponential(eta). The pairs that are left are public, as earlier draws are released, so a draw is
    eta-bounded-range (PRIVACY_MATH §2.1). Rounding of log-weights is paid out of eta (PRIVACY_MATH §11).
    """

    problem: Problem
    n: int  # public normaliser: the number of records
    eta: float  # bounded range of one draw
    pairs: tuple[tuple[int, int], ...]  # places of the features; see `PairSum`
    stretch: float  # factor of products
    neighbours: Neighbours = REPLACE_ONE  # the data sets that must look alike

    traits: ClassVar[Traits] = Traits("pair", measures=True)

    def __post_init__(self) -> None:
        if not self.pairs or not all(0 <= place < self.problem.d for pair in self.pairs for place in pair):
            raise WrongValue(f"Pairs must be places of {self.problem.d} features, and at least one pair.")
        if self.problem.l2:
            raise Incompatible("Pairs are selected without a ridge.")
        check_capacity(self, self.n)
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
        """Largest change of one score, over all theta in C."""
        return self._sensitivity(residual_bound(self.problem, None, None))

    @property
    def noise(self) -> float:
        """Largest scale of an equivalent Gumbel noise on a score."""
        return 2 * self.sensitivity / self.eta

    @property
    def capacity(self) -> int:
        """Most records that exact scores have room for."""
        return room(self.problem, None, 0, self.n)

    @property
    def evaluations(self) -> float:
        """One gradient for each record."""
        return self.n

    @property
    def n_draws(self) -> int:
        """One value for each pair."""
        return len(self.pairs) * self.problem.outputs

    @property
    def failure(self) -> float:
        """Total variation of one call's noise: none, decisions are made in exact arithmetic."""
        return 0.0

    def _sensitivity(self, bound: ResidualBound) -> float:
        return self.neighbours.ball * SUM_UNIT * bound.linf * LARGEST_PRODUCT / self.n

    @property
    def _temperature(self) -> float:
        """Eta left for a draw once rounding is paid: a log-weight is at most eta times half the records."""
        from dpcvx.noise.exponential import log_weight_error

        records = self.n if self.neighbours.replaces else self.capacity
        return self.eta - log_weight_error(self.eta * records)

    def scores(self, theta: Vector, data: DataSource) -> tuple[Vector, float]:
        """Return the slopes along the products, shape (pairs, K), and the sensitivity of each."""
        bound = residual_bound(self.problem, self.problem.margin_bound(theta), None)
        total = data.sum(PairSum(self.problem.loss, theta, bound, self.pairs, self.stretch))
        return total.astype(np.float64) * (SUM_UNIT / self.n), self._sensitivity(bound)

    def start(self, data: DataSource) -> tuple[Slopes]:
        """Return the slopes, which are computed when the first draw needs them."""
        return (Slopes(),)

    def __call__(
        self, slopes: Slopes, theta: Vector, drawn: tuple[int, ...], data: DataSource, rng: Generator
    ) -> int:
        """Return the place of a pair that is none of those drawn before."""
        from dpcvx.noise.exponential import select_signed

        scores, sensitivity = slopes.at(theta, lambda theta: self.scores(theta, data))
        left = np.setdiff1d(np.arange(len(scores)), drawn)
        weights = scores[left] * (self._temperature / (2 * sensitivity))
        place, _ = select_signed(weights.reshape(-1), rng)
        return int(left[place // weights.shape[1]])
