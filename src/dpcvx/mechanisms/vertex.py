"""A good vertex of a polytope, by the exponential mechanism."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dpcvx.accounting import REPLACE_ONE, Neighbours
from dpcvx.arrays import Vector
from dpcvx.data import (
    FEATURE_BITS,
    LARGEST_SUM,
    RESIDUAL_BITS,
    SUM_UNIT,
    GradientSum,
    HasGramScores,
    HasLazyScores,
    Lazy,
    Linear,
    ResidualBound,
    Terms,
    integer_bounds,
)
from dpcvx.domains import HasCoordinateVertices, HasVertices
from dpcvx.errors import Incompatible
from dpcvx.events import Event, Exponential
from dpcvx.mechanisms.mechanism import SPARE_RECORDS, Traits, check_capacity, residual_bound, room
from dpcvx.problem import Problem
from dpcvx.vouched import is_vouched

if TYPE_CHECKING:
    from dpcvx.data import DataSource, Margins
    from dpcvx.noise import Generator

__all__ = ["Combination", "NoisyVertex", "Vertex", "weight_bits"]

FEWEST_LAZY_FEATURES = 1000  # fewer: a pass over the records is short, and may use the bound at theta itself
MOST_LAZY_FEATURES = 2**31 - 1  # they are named by 32-bit integers


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

    `problem`: its domain is a polytope; `bits`: resolution of the weights; see `weight_bits`.
    """

    def __init__(self, problem: Problem, bits: int) -> None:
        self._problem, self._bits = problem, bits
        self._scale, self._moves = 1.0, 0
        self._weights: dict[Vertex, int] = {}

    def move(self, step: float, vertex: Vertex, margins: Margins | Lazy | Linear | None = None) -> None:
        """theta <- (1 - step) theta + step * vertex, and the margins with it."""
        self._moves += 1
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
    def scale(self) -> float:
        """Factor of the weighted sum of vertices: 1 at the start and after a step of 1, falling between."""
        return self._scale

    @property
    def moves(self) -> int:
        """Moves so far."""
        return self._moves

    @property
    def margin_unit(self) -> float:
        """Score <x, theta> of a record for a followed margin of 1."""
        return self._scale * _margin_unit(self._problem, self._bits)

    def dense(self) -> Vector:
        """theta as an array."""
        theta = np.zeros(self._problem.size)
        along_axes = isinstance(self._problem.domain, HasCoordinateVertices)
        radius = _radius(self._problem) if along_axes else 0.0
        for vertex, weight in self._weights.items():
            share = self._scale * (weight / 2**self._bits)
            if along_axes:
                theta[vertex.index] += vertex.sign * radius * share
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


def _margin_unit(problem: Problem, bits: int) -> float:
    """Score <x, theta> of a record for a margin of 1 at scale 1."""
    return _radius(problem) * 2.0 ** -(bits + FEATURE_BITS)


@dataclass(frozen=True)
class NoisyVertex:
    """Vertex of a polytope with a small inner product with the gradient, by the exponential mechanism.

    Question: scores u_s(D) = <s, grad F(theta; D)> for every vertex s; the answer is drawn with probability
    proportional to exp(-eta u_s / (2 Delta)), exactly (`noise.exponential`): no epsilon is too large for it.
    Sensitivity (replace-one, each score): Delta = 2 c L1/n = 2 c 2^-34 R_inf K_inf/n with c = max ||s||_1;
    half of it under add/remove. R_inf is taken at the public theta; slopes are clipped to it.
    Event: Exponential(eta), eta-bounded-range. Rounding of log-weights is paid out of eta (PRIVACY_MATH §11),
    so the mechanism is drawn at a temperature slightly above 1/eta.

    Over compressed records and the l1 ball scores are lazy (`data.lazy_scores`): a residual may be that of an
    earlier theta, carried on as a line in the public scale. Each is a function of its own record and the
    public transcript and is within R_inf taken over all of C, so the sensitivity is the same with that R_inf
    (PRIVACY_MATH §2.4). Whether scores are lazy depends on the kind of storage and public numbers alone.
    """

    problem: Problem  # its domain has vertices
    n: int  # public normaliser: the number of records
    eta: float  # bounded range of one selection
    bits: int  # resolution of the point's weights
    neighbours: Neighbours = REPLACE_ONE  # the data sets that must look alike
    clip: float | None = None  # residuals phi' are clipped to this size; None keeps the loss's own bound

    traits: ClassVar[Traits] = Traits("vertex", layout="columns", stops_sooner=True, score_bytes=12)

    def __post_init__(self) -> None:
        if not isinstance(self.problem.domain, HasVertices):
            raise Incompatible(f"Vertex selection needs a polytope, not {self.problem.domain!r}.")
        check_capacity(self, self.n)
        if self._temperature(residual_bound(self.problem, None, self.clip)) <= 0:
            raise Incompatible(
                f"The rounding of scores of n={self.n} records takes all of eta={self.eta:g}; "
                "use fewer records, or a smaller ridge."
            )

    @property
    def capacity(self) -> int:
        """Most records that exact scores have room for."""
        most = room(self.problem, self.clip, 0, self.n)
        if self.neighbours.replaces or not self.may_be_lazy:
            return most
        return min(most, SPARE_RECORDS * self.n)

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
        """Largest scale of an equivalent Gumbel noise on a score."""
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
        """Total variation of one call's noise: none, decisions are made in exact arithmetic."""
        return 0.0

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
        return self.neighbours.ball * c * SUM_UNIT * bound.linf * k_inf / self.n

    def _temperature(self, bound: ResidualBound, terms: float | None = None) -> float:
        """Eta left for the selection itself once rounding of log-weights is paid.

        |u_s| <= c L1 + l2 max |<s, theta>|, and a score of a general polytope is a sum of d products. The
        number of records is n under replace-one and at most the capacity under add/remove. Where rounding
        takes all of eta the selection is uniform.
        """
        from dpcvx.noise.exponential import log_weight_error

        sensitivity = self._sensitivity(bound)
        ridge = self.problem.l2 * self.problem.C.norm(2, self.problem.size) ** 2
        largest = self.eta * (self._records * sensitivity + ridge) / (2 * sensitivity)
        if terms is None:
            terms = 2 if isinstance(self.problem.domain, HasCoordinateVertices) else self.problem.size + 2
        return max(0.0, self.eta - log_weight_error(largest * terms))

    @property
    def _records(self) -> int:
        """Most records that there may be."""
        return self.n if self.neighbours.replaces else self.capacity

    @property
    def _signed(self) -> bool:
        """Whether the vertices are c e_j and -c e_j for every coordinate."""
        C, size = self.problem.C, self.problem.size
        return isinstance(C, HasCoordinateVertices) and C.n_vertices(size) == 2 * size

    @cached_property
    def may_be_lazy(self) -> bool:
        """Whether lazy scores serve this problem: public numbers decide."""
        problem = self.problem
        suited = self._signed and problem.outputs == 1 and not problem.loss.joint
        if not suited or not FEWEST_LAZY_FEATURES <= problem.d <= MOST_LAZY_FEATURES:
            return False
        most = self.n if self.neighbours.replaces else SPARE_RECORDS * self.n
        return math.isfinite(problem.smoothness) and self._terms_without_power(most).octaves >= 1

    @property
    def _terms(self) -> Terms:
        """Public numbers of lazy scores."""
        terms = self._terms_without_power(self._records)
        k_inf, _ = integer_bounds(self.problem.bounds, self.problem.d)
        parts = 2 + 2 * (1 + terms.steepness / terms.bound.linf)  # |A| and |share B| may exceed their sum
        scale = self.neighbours.ball * terms.bound.linf * k_inf
        power = -self._temperature(terms.bound, parts) * math.log2(math.e) / (2 * scale)
        return replace(terms, power=power)

    def _terms_without_power(self, records: int) -> Terms:
        """Public numbers of lazy scores that do not depend on eta.

        A chord over a drift of a margin by t is off by at most beta t/4 for phi'' <= beta, and for phi' with
        a bounded second derivative by its bound times t^2/8: with t = L/(16 beta) by L/64, and for the
        logistic loss by L/1300. Utility only: the sensitivity holds for any residual within the bound.
        """
        problem = self.problem
        bound = residual_bound(problem, None, self.clip)
        k_inf, _ = integer_bounds(problem.bounds, problem.d)
        beta = problem.loss.smoothness(problem.z_max)
        slope = problem.slope(math.inf, None, self.clip)
        affine = problem.loss.affine and self.clip is None
        steepness = min(math.ceil(2**RESIDUAL_BITS * beta * problem.z_max) + 2, 2**40)
        return Terms(
            bound=bound,
            largest=k_inf,
            records=records,
            unit=_margin_unit(problem, self.bits),
            power=0.0,
            drift=math.inf if affine else slope / (16 * beta),
            steepness=steepness,
            ridge=problem.l2 * self.n / SUM_UNIT * _radius(problem) * 2.0**-self.bits,
        )

    @property
    def _linear(self) -> bool:
        """Whether residuals are linear in theta and products of columns fit 62 bits, by public numbers."""
        problem = self.problem
        # Residuals are not clipped there: their bound is the one that the loss declares.
        trusted = problem.loss.affine and is_vouched(type(problem.loss), "minimisers")
        if not trusted or self.clip is not None or problem.outputs != 1:
            return False
        k_inf, _ = integer_bounds(problem.bounds, problem.d)
        largest = max(residual_bound(problem, None, None).linf, k_inf)
        return self._records * largest * k_inf < LARGEST_SUM

    def _unclipped(self, theta: Vector, moves: int) -> tuple[ResidualBound, float]:
        """Bound of unclipped residuals at theta, and the terms that their scores are made of.

        |z| <= min(x_inf ||theta||_1, x_2 ||theta||_2) and |y| is clipped; two units cover the rounding of
        theta and y. Each move rounds a running sum, of at most the largest score over C, twice.
        """
        problem = self.problem
        z = min(
            problem.bounds.x_inf * float(abs(theta).sum()), problem.row_norm * float(np.linalg.norm(theta))
        )
        limit = math.floor(2**RESIDUAL_BITS * problem.loss.lipschitz(z)) + 2
        largest = residual_bound(problem, None, None).linf
        return ResidualBound(limit, limit), 2 + (moves + 1) * max(1.0, largest / limit)

    def origin(self, margins: Margins | Lazy | Linear | None = None) -> Combination:
        """Point at the start of the run: 0 where the set has it, else its first vertex."""
        point = Combination(self.problem, self.bits)
        if not self.problem.C.contains(np.zeros(self.problem.shape)):
            point.move(1.0, self._vertex(0), margins)
        return point

    def start(self, data: DataSource) -> tuple[Combination, Margins | Lazy | Linear | None]:
        """Point at the start of the run, and the records' margins there."""
        if not isinstance(self.problem.domain, HasCoordinateVertices):
            return self.origin(), None
        # Lines of lazy scores are rounded row by row, and products of columns have no weights.
        plain = self.neighbours.weight == 1
        if plain and self.may_be_lazy and isinstance(data, HasLazyScores) and data.sparse:
            lazy = data.follow_lazily(self.problem.loss, self._terms)
            return self.origin(lazy), lazy
        if plain and self._linear and isinstance(data, HasGramScores) and not data.sparse:
            linear = data.follow_products(self.problem.loss)
            return self.origin(linear), linear
        margins = data.follow(self.problem.loss, self.problem.outputs)
        return self.origin(margins), margins

    def skip(self, point: Combination, margins: Margins | Lazy | Linear | None) -> None:
        """Bring lazy scores to where a draw at this point would have brought them."""
        if margins is not None and hasattr(margins, "advance"):
            margins.advance(point.scale)

    def _vertex(self, i: int) -> Vertex:
        if isinstance(self.problem.domain, HasCoordinateVertices):
            index, value = self.problem.domain.coordinate(i, self.problem.size)
            return Vertex(index, 1 if value > 0 else -1)
        return Vertex(i)

    def __call__(
        self, point: Combination, margins: Margins | Lazy | Linear | None, data: DataSource, rng: Generator
    ) -> Vertex:
        """Return a noisy best vertex at the point."""
        from dpcvx.noise import exponential as selection

        # Checks of a whole protocol would cost more than a step.
        if margins is not None and hasattr(margins, "draw"):
            return Vertex(*margins.draw(point.scale, rng))
        theta = point.dense()
        bound, terms = residual_bound(self.problem, self.problem.margin_bound(theta), self.clip), None
        if margins is None:
            total: Vector = data.sum(GradientSum(self.problem.loss, theta, bound)).astype(np.float64)
        elif hasattr(margins, "unclipped"):
            bound, terms = self._unclipped(theta, point.moves)
            total = margins.unclipped(point.margin_unit, bound)
        else:
            total = margins.scores(point.margin_unit, bound).astype(np.float64)
        gradient = total * (SUM_UNIT / self.n) + self.problem.l2 * theta.reshape(total.shape)
        factor = -self._temperature(bound, terms) / (2 * self._sensitivity(bound))
        if self._signed:
            return Vertex(*selection.select_signed(gradient.reshape(-1) * (self._length * factor), rng))
        scores = self.problem.C.vertex_scores(gradient.reshape(-1))
        return self._vertex(selection.select(scores * factor, rng))
