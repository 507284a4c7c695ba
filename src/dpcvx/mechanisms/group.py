"""A group of features with a large gradient, drawn by the exponential mechanism."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dpcvx.accounting import REPLACE_ONE, Neighbours
from dpcvx.arrays import Vector
from dpcvx.data import SUM_UNIT, GradientSum, ResidualBound, integer_bounds
from dpcvx.errors import Incompatible, WrongValue
from dpcvx.events import Event, Exponential
from dpcvx.mechanisms.mechanism import Traits, check_capacity, residual_bound, room
from dpcvx.mechanisms.pair import Slopes
from dpcvx.problem import Problem

if TYPE_CHECKING:
    from dpcvx.data import DataSource
    from dpcvx.noise import Generator

__all__ = ["NoisyGroup"]


@dataclass(frozen=True)
class NoisyGroup:
    """A group of features with a large gradient at a public theta, except the groups drawn before.

    Question: let S(D) = sum_i rho_i k_i be the exact sum of `NoisyGradient` at theta, and S_g its entries for
    the features of group g. The scores are u_g(D) = ||S_g||_2/Delta_g for every group that is left; g is
    drawn with probability proportional to exp(eta u_g/2), exactly (`noise.exponential`).
    Sensitivity (replace-one, each score): 1, since S_g moves by at most
    Delta_g = 2 R sqrt(min(K2, s K_inf^2)) for s = |g| features, and ||S_g||_2 by at most as much. Under
    add/remove Delta_g is half of that. R is taken at the public theta.
    Event: Exponential(eta). The groups that are left are public, as earlier draws are released, so a draw is
    eta-bounded-range (PRIVACY_MATH §15). Rounding of log-weights is paid out of eta (PRIVACY_MATH §11).
    """

    problem: Problem
    n: int  # number of records
    eta: float  # bounded range of one draw
    groups: tuple[tuple[int, ...], ...]  # features of each group
    neighbours: Neighbours = REPLACE_ONE  # the data sets that must look alike
    clip: float | None = None  # residuals phi' are clipped to this size; None keeps the loss's own bound

    traits: ClassVar[Traits] = Traits("group")

    def __post_init__(self) -> None:
        known = all(0 <= j < self.problem.d for group in self.groups for j in group)
        # A feature that is listed twice could move the norm by more than Delta_g.
        once = all(len(set(group)) == len(group) for group in self.groups)
        if not (self.groups and all(self.groups) and known and once):
            raise WrongValue(
                f"Groups must hold places of {self.problem.d} features, at least one each and none twice."
            )
        if not math.isfinite(self.problem.slope(2, clip=self.clip)):
            raise Incompatible(
                f"{type(self.problem.loss).__name__} has unbounded slopes here: "
                "give a bounded domain or a residual clip."
            )
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
        """Largest change of the norm of a group's mean gradient, over all theta in C and all groups."""
        steps = self._steps(residual_bound(self.problem, None, self.clip), (max(map(len, self.groups)),))
        return float(steps[0]) * SUM_UNIT / self.n

    @property
    def noise(self) -> float:
        """Largest scale of an equivalent Gumbel noise on such a norm."""
        return 2 * self.sensitivity / self.eta

    @property
    def capacity(self) -> int:
        """Most records that exact sums have room for."""
        return room(self.problem, self.clip, 0, self.n)

    @property
    def evaluations(self) -> float:
        """One gradient for each record."""
        return self.n

    @property
    def n_draws(self) -> int:
        """One value for each group."""
        return len(self.groups)

    @property
    def failure(self) -> float:
        """Total variation of one call's noise: none, decisions are made in exact arithmetic."""
        return 0.0

    def _steps(self, bound: ResidualBound, sizes: Sequence[int]) -> Vector:
        """Delta_g for groups of these sizes, rounded up."""
        squares = (integer_bounds(self.problem.bounds, size)[1] for size in sizes)
        ball = self.neighbours.ball * bound.l2
        return np.array([float(math.isqrt(ball**2 * square) + 1) for square in squares])

    @property
    def _temperature(self) -> float:
        """Eta left for a draw once rounding is paid.

        A log-weight is at most eta times half the number of records. The norm of a group sums one square for
        each entry; eight such roundings count as much as all the others together.
        """
        from dpcvx.noise.exponential import log_weight_error

        records = self.n if self.neighbours.replaces else self.capacity
        terms = 1 + max(map(len, self.groups)) * self.problem.outputs / 8
        return self.eta - log_weight_error(self.eta * records * terms)

    def scores(self, theta: Vector, data: DataSource) -> tuple[Vector, float]:
        """Return the norms over their sensitivities, shape (groups,), and the sensitivity of each score."""
        bound = residual_bound(self.problem, self.problem.margin_bound(theta), self.clip)
        total = data.sum(GradientSum(self.problem.loss, theta, bound)).astype(np.float64)
        steps = self._steps(bound, [len(group) for group in self.groups])
        norms = [math.sqrt(float((total[list(group)] ** 2).sum())) for group in self.groups]
        return np.array(norms) / steps, 1.0

    def start(self, data: DataSource) -> tuple[Slopes]:
        """Return the scores at the last theta, which are computed when a draw needs them."""
        return (Slopes(),)

    def __call__(
        self, slopes: Slopes, theta: Vector, drawn: tuple[int, ...], data: DataSource, rng: Generator
    ) -> int:
        """Return the index of a group that has not been drawn before."""
        from dpcvx.noise.exponential import select

        scores, sensitivity = slopes.at(theta, lambda theta: self.scores(theta, data))
        left = np.setdiff1d(np.arange(len(scores)), drawn)
        return int(left[select(scores[left] * (self._temperature / (2 * sensitivity)), rng)])
