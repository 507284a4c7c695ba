"""Interface of a mechanism, and the bounds on stored integers that sensitivities follow from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from dpcvx.accounting import Neighbours
from dpcvx.data import RESIDUAL_BITS, ResidualBound, integer_bounds
from dpcvx.data import room as room_in_bits
from dpcvx.errors import Incompatible
from dpcvx.events import Event
from dpcvx.problem import Problem

__all__ = ["Mechanism", "Traits", "check_capacity", "residual_bound", "room"]

SPARE_RECORDS = 2  # beyond 62 bits there is room for this many times the planned number


@dataclass(frozen=True)
class Traits:
    """Public facts about a kind of mechanism, besides its price, for plans, predictions and oracles."""

    question: str  # what a solver asks for, as in "not a gradient"
    layout: str = "rows"  # {"rows", "columns"}: storage order that serves it best
    stops_sooner: bool = False  # whether it may read fewer cells than its number of evaluations says
    pairs: bool = False  # whether it works on every pair of features, not on every feature once
    measures: bool = False  # whether it measures features for a later map and is no part of the fit itself
    # whether the noise is a random term of the objective, not an error of the answer
    noise_inside: bool = False
    copies: bool = False  # whether it works on a copy of the records in float64
    score_bytes: int = 0  # bytes that it keeps for each score of each record

    def cells(self, d: int) -> float:
        """Return the stored cells of a record that one evaluation reads."""
        # A matrix of second moments: every pair once per record, which counts as three evaluations.
        return d * (d + 1) / 6 if self.pairs else d


class Mechanism(Protocol):
    """One private query, with its sensitivity, its noise and its price.

    It is called as ``mechanism(*public, data=source, rng=generator)``. One that has a method ``start`` keeps
    a public state between calls: what ``start(source)`` returns comes before the public arguments. If a
    call also changes the state, ``skip(*state)`` makes the same change and releases nothing; a run that is
    continued from a checkpoint uses it for the answers that it has already.
    """

    @property
    def traits(self) -> Traits:
        """Public facts about this kind of mechanism."""
        ...

    @property
    def event(self) -> Event:
        """Privacy event of one call."""
        ...

    @property
    def sensitivity(self) -> float:
        """Largest change of the un-noised answer between neighbours, over all public inputs."""
        ...

    @property
    def noise(self) -> float:
        """Largest scale of the noise on one number: Gaussian standard deviation or Gumbel scale."""
        ...

    @property
    def neighbours(self) -> Neighbours:
        """Data sets that the sensitivity is for."""
        ...

    @property
    def capacity(self) -> int:
        """Most records that the exact sums have room for."""
        ...

    @property
    def n_draws(self) -> int:
        """Noise values drawn in one call."""
        ...

    @property
    def failure(self) -> float:
        """Total-variation distance of one call's noise from its ideal law."""
        ...

    @property
    def evaluations(self) -> float:
        """Gradients of single records in one call; for a sample their expected, public number."""
        ...


def residual_bound(problem: Problem, z_max: float | None, clip: float | None) -> ResidualBound:
    """Integer bounds of a slope for |z| <= z_max: at least one unit, so that noise never vanishes."""
    l2, linf = (
        max(1, math.floor(2**RESIDUAL_BITS * problem.slope(ord, z_max, clip))) for ord in (2, math.inf)
    )
    return ResidualBound(l2, linf)


def room(problem: Problem, clip: float | None, noise: int, n: int) -> int:
    """Number of records that there may be: those that 62 bits hold with their noise, or twice n.

    More than 62 bits hold are added in Python's integers (`data.lattice.exact_sum`), so that n may be
    anything (PRIVACY_MATH §11b (ii)). The noise does not grow with n and must fit by itself: otherwise there
    is no room at all.
    """
    if room_in_bits(1, noise) == 0:
        return 0
    k_inf, _ = integer_bounds(problem.bounds, problem.d)
    narrow = room_in_bits(residual_bound(problem, None, clip).linf * k_inf, noise)
    return max(narrow, SPARE_RECORDS * n)


def check_capacity(mechanism: Mechanism, n: int) -> None:
    """Refuse, from public numbers, a plan whose sums would not fit."""
    if n > mechanism.capacity:
        raise Incompatible(
            f"n={n} records do not fit exact 62-bit sums here, {mechanism.capacity} do: "
            "use a smaller radius, a residual clip, a larger epsilon, or fewer records."
        )
