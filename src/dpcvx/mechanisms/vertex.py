"""A good vertex of a polytope, by the exponential mechanism."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.domains import HasCoordinateVertices, HasVertices
from dpcvx.errors import Incompatible
from dpcvx.events import Event, Exponential
from dpcvx.grid import FEATURE_BITS, SUM_UNIT, ResidualBound, integer_bounds
from dpcvx.mechanisms.question import check_capacity, records_changed, residual_bound, room
from dpcvx.problem import Problem

if TYPE_CHECKING:
    from dpcvx.data import DataSource, Margins
    from dpcvx.noise import Generator

__all__ = ["Combination", "NoisyVertex", "Vertex", "weight_bits"]


@dataclass(frozen=True)
class Vertex:
    """A vertex: the coordinate and sign of a signed unit vector, or the index in a list of vertices."""

    index: int
    sign: int = 1


class Combination:
    """Point of Frank-Wolfe, public: theta = scale * sum_v weight_v v with integer weights.

    A move (1 - step) theta + step * v multiplies the scale by (1 - step) and adds the integer
    round(2^bits step / scale) to one weight; the records' margins follow by adding that multiple of one
    column, exactly.

    Parameters
    ----------
    problem : Problem
        Its domain is a polytope.
    bits : int
        Resolution of the weights; see `weight_bits`.
    """

    def __init__(self, problem: Problem, bits: int) -> None:
        self._problem, self._bits = problem, bits
        self._scale = 1.0
        self._weights: dict[Vertex, int] = {}

    def move(self, step: float, vertex: Vertex, margins: Margins | None = None) -> None:
        """theta <- (1 - step) theta + step * vertex, and the margins with it."""
        if step >= 1:
            self._scale, self._weights = 1.0, {}
            if margins is not None:
                margins.reset()
        else:
            self._scale *= 1 - step
        amount = round(2**self._bits * step / self._scale)
        self._weights[vertex] = self._weights.get(vertex, 0) + amount
        if margins is not None:
            margins.add(vertex.index, vertex.sign * amount)

    @property
    def margin_unit(self) -> float:
        """Score <x, theta> of a record for a followed margin of 1."""
        return self._scale * _radius(self._problem) * 2.0 ** -(self._bits + FEATURE_BITS)

    def dense(self) -> Vector:
        """theta as an array."""
        theta = np.zeros(self._problem.size)
        for vertex, weight in self._weights.items():
            share = self._scale * (weight / 2**self._bits)
            if isinstance(self._problem.domain, HasCoordinateVertices):
                theta[vertex.index] += vertex.sign * _radius(self._problem) * share
            else:
                theta += share * self._problem.C.vertex(vertex.index, self._problem.size)
        return theta.reshape(self._problem.shape)


def weight_bits(steps: list[float]) -> int:
    """Resolution of a `Combination` that keeps margins inside 62 bits for this schedule.

    A margin is at most 2^15 times the sum of weights, which is 2^bits / scale.
    """
    smallest = scale = 1.0
    for step in steps:
        scale = 1.0 if step >= 1 else scale * (1 - step)
        smallest = min(smallest, scale)
    bits = min(30, 46 - math.ceil(-math.log2(smallest)))
    if bits < 8:
        raise Incompatible(
            f"{len(steps)} Frank-Wolfe steps of this schedule are too many for exact margins; use fewer."
        )
    return bits


def _radius(problem: Problem) -> float:
    return float(abs(problem.C.coordinate(0, problem.size)[1]))


@dataclass(frozen=True)
class NoisyVertex:
    """Vertex of a polytope with a small inner product with the gradient, by the exponential mechanism.

    Question: scores u_s(D) = <s, grad F(theta; D)> for every vertex s; the answer is drawn with probability
    proportional to exp(-eta u_s / (2 Delta)) (Gumbel-max).
    Sensitivity (replace-one, each score): Delta = 2 c L1/n = 2 c 2^-34 R_inf K_inf/n with c = max ||s||_1;
    half of it under add/remove. R_inf is taken at the public theta; slopes are clipped to it.
    Event: Exponential(eta), eta-bounded-range. Rounding of log-weights and Gumbel values is paid out of eta
    (PRIVACY_MATH §11), so the mechanism is drawn at a temperature slightly above 1/eta.

    Parameters
    ----------
    problem : Problem
        Its domain has vertices.
    n : int
        Public normaliser: the number of records.
    eta : float
        Bounded range of one selection.
    bits : int
        Resolution of the point's weights.
    relation : str
        "replace" or "add_remove".
    clip : float, optional
        Residuals phi' are clipped to this size; None keeps the loss's own bound.
    """

    problem: Problem
    n: int
    eta: float
    bits: int
    relation: str = "replace"
    clip: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.problem.domain, HasVertices):
            raise Incompatible(f"Vertex selection needs a polytope, not {self.problem.domain!r}.")
        check_capacity(self, self.n)
        if self._temperature(residual_bound(self.problem, None, self.clip)) <= 0:
            raise Incompatible(
                f"eta={self.eta:g} is below the rounding error of selection; "
                "use a larger epsilon or fewer steps."
            )

    @property
    def capacity(self) -> int:
        """Most records that exact scores have room for."""
        return room(self.problem, self.clip, 0, self.n)

    @property
    def event(self) -> Event:
        """Exponential(eta)."""
        return Exponential(self.eta)

    @property
    def sensitivity(self) -> float:
        """Largest change of one score, over all theta in C."""
        return self._sensitivity(residual_bound(self.problem, None, self.clip))

    @property
    def noise(self) -> float:
        """Largest scale of the Gumbel noise on a score."""
        return 2 * self.sensitivity / self.eta

    @property
    def evaluations(self) -> float:
        """One gradient for each record."""
        return self.n

    @property
    def n_draws(self) -> int:
        """One value per vertex."""
        return int(self.problem.C.n_vertices(self.problem.size))

    @property
    def failure(self) -> float:
        """Total variation of one call's noise."""
        from dpcvx.noise import selection_failure

        return self.n_draws * selection_failure()

    @cached_property
    def _length(self) -> float:
        """c = max ||s||_1, measured on the vertices that are scored."""
        if isinstance(self.problem.domain, HasCoordinateVertices):
            return _radius(self.problem)
        size = self.problem.size
        return max(float(abs(self.problem.C.vertex(i, size)).sum()) for i in range(self.n_draws))

    def _sensitivity(self, bound: ResidualBound) -> float:
        k_inf, _ = integer_bounds(self.problem.bounds, self.problem.d)
        c = self._length
        return records_changed(self.relation) * c * SUM_UNIT * bound.linf * k_inf / self.n

    def _temperature(self, bound: ResidualBound) -> float:
        """Eta left for the selection itself once rounding of log-weights and Gumbel values is paid.

        |u_s| <= c L1 + l2 max |<s, theta>|, and a score of a general polytope is a sum of d products. The
        number of records is n under replace-one and at most the capacity under add/remove. Where rounding
        takes all of eta the selection is uniform.
        """
        from dpcvx.noise import selection_error

        sensitivity = self._sensitivity(bound)
        ridge = self.problem.l2 * self.problem.C.norm(2, self.problem.size) ** 2
        records = self.n if self.relation == "replace" else self.capacity
        largest = self.eta * (records * sensitivity + ridge) / (2 * sensitivity)
        terms = 2 if isinstance(self.problem.domain, HasCoordinateVertices) else self.problem.size + 2
        return max(0.0, self.eta - selection_error(largest * terms))

    def origin(self, margins: Margins | None = None) -> Combination:
        """Point at the start of the run: 0 where the set has it, else its first vertex."""
        point = Combination(self.problem, self.bits)
        if not self.problem.C.contains(np.zeros(self.problem.shape)):
            point.move(1.0, self._vertex(0), margins)
        return point

    def start(self, data: DataSource) -> tuple[Combination, Margins | None]:
        """Point at the start of the run, and the records' margins there."""
        margins = None
        if isinstance(self.problem.domain, HasCoordinateVertices):
            margins = data.follow(self.problem.loss, self.problem.outputs)
        return self.origin(margins), margins

    def _vertex(self, i: int) -> Vertex:
        if isinstance(self.problem.domain, HasCoordinateVertices):
            index, value = self.problem.domain.coordinate(i, self.problem.size)
            return Vertex(index, 1 if value > 0 else -1)
        return Vertex(i)

    def __call__(
        self, point: Combination, margins: Margins | None, data: DataSource, rng: Generator
    ) -> Vertex:
        """Return a noisy best vertex at the point."""
        from dpcvx.noise import select

        theta = point.dense()
        bound = residual_bound(self.problem, self.problem.margin_bound(theta), self.clip)
        if margins is None:
            total = data.gradient_sum(self.problem.loss, theta, bound)
        else:
            total = margins.scores(point.margin_unit, bound)
        gradient = total.astype(np.float64) * (SUM_UNIT / self.n) + self.problem.l2 * theta
        scores = self.problem.C.vertex_scores(gradient.reshape(-1))
        log_weights = scores * (-self._temperature(bound) / (2 * self._sensitivity(bound)))
        return self._vertex(select(log_weights, rng))
