"""Private questions: what each computes on the records and what it costs, inseparable.

These classes are the only callers of a `DataSource`. Fields are public; records and generators are arguments.
Every sensitivity holds on the stored integers, without slack (PRIVACY_MATH §11b).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.domains import HasCoordinateVertices, HasVertices
from dpcvx.errors import Incompatible
from dpcvx.events import RELATIONS, Event, Exponential, Gaussian
from dpcvx.grid import FEATURE_BITS, RESIDUAL_BITS, SUM_UNIT, ResidualBound, integer_bounds
from dpcvx.problem import Problem

if TYPE_CHECKING:
    from dpcvx.data import DataSource, Margins
    from dpcvx.noise import Generator

__all__ = [
    "Combination",
    "Mechanism",
    "NoisyGradient",
    "NoisyVertex",
    "Vertex",
    "records_changed",
    "weight_bits",
]

LARGEST_SUM = 2**62  # PRIVACY_MATH §11b (ii): exact sums and their noise stay inside 62 bits


class Mechanism(Protocol):
    """One private question: what it costs is a property of what it computes."""

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
    def relation(self) -> str:
        """Neighbouring relation that the sensitivity is for."""
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


def records_changed(relation: str) -> int:
    """Terms of a sum that differ between neighbours: two under replace-one, one under add/remove."""
    if relation not in RELATIONS:
        raise ValueError(f"relation must be one of {', '.join(RELATIONS)}, got {relation!r}.")
    return 2 if relation == "replace" else 1


def _residual_bound(problem: Problem, z_max: float | None, clip: float | None) -> ResidualBound:
    """Integer bounds of a slope for |z| <= z_max: at least one unit, so that noise never vanishes."""
    l2, linf = (
        max(1, math.floor(2**RESIDUAL_BITS * problem.slope(ord, z_max, clip))) for ord in (2, math.inf)
    )
    return ResidualBound(l2, linf)


def _capacity(problem: Problem, clip: float | None, noise: int) -> int:
    """Number of records whose exact sum, with its noise, stays inside 62 bits (PRIVACY_MATH §11b)."""
    k_inf, _ = integer_bounds(problem.bounds, problem.d)
    return max(0, LARGEST_SUM - 1 - 16 * noise) // (_residual_bound(problem, None, clip).linf * k_inf)


def _check_capacity(mechanism: NoisyGradient | NoisyVertex) -> None:
    if mechanism.n > mechanism.capacity:
        raise Incompatible(
            f"n={mechanism.n} records do not fit exact 62-bit sums here, {mechanism.capacity} do: "
            "use a smaller radius, a residual clip, a larger epsilon, or fewer records."
        )


@dataclass(frozen=True)
class NoisyGradient:
    """Gradient of the objective at a public theta, with lattice Gaussian noise.

    Question: S(D) = sum_i rho_i k_i in Z^d, rho_i the clipped integer slope at <x_i, theta>, k_i the stored
    row; the answer is 2^-34 (S + K)/n + l2 theta with K = round(scale Z), Z standard normal.
    Sensitivity (l2, replace-one): 2 R sqrt(K2) on the integers, 2 L2/n on the mean; half of it under
    add/remove.
    With several outputs the summand is the outer product k_i rho_i^T (Frobenius norm).
    Event: Gaussian(noise_multiplier), exactly (1/noise_multiplier)-GDP, since S + K = round(S + scale Z).
    R is taken at the public theta, so the noise shrinks with the slope's range while the ratio, and the
    event, stay fixed.

    Parameters
    ----------
    problem : Problem
    n : int
        Public normaliser: the number of records.
    noise_multiplier : float
        Standard deviation of the noise over the sensitivity.
    relation : str
        "replace" or "add_remove".
    clip : float, optional
        Residuals phi' are clipped to this size; None keeps the loss's own bound.
    """

    problem: Problem
    n: int
    noise_multiplier: float
    relation: str = "replace"
    clip: float | None = None

    def __post_init__(self) -> None:
        if not math.isfinite(self.problem.slope(2, clip=self.clip)):
            raise Incompatible(
                f"{type(self.problem.loss).__name__} has unbounded slopes here: "
                "give a bounded domain or a residual clip."
            )
        _check_capacity(self)

    @property
    def capacity(self) -> int:
        """Most records whose exact sum, with its noise, stays inside 62 bits."""
        noise = self._scale(_residual_bound(self.problem, None, self.clip))
        return _capacity(self.problem, self.clip, noise)

    @property
    def event(self) -> Event:
        """Gaussian(noise_multiplier)."""
        return Gaussian(self.noise_multiplier)

    @property
    def sensitivity(self) -> float:
        """Largest l2 change of the mean gradient, over all theta in C."""
        return self._integer_sensitivity(_residual_bound(self.problem, None, self.clip)) * SUM_UNIT / self.n

    @property
    def noise(self) -> float:
        """Largest standard deviation of one coordinate of the answer."""
        return self.noise_multiplier * self.sensitivity

    @property
    def n_draws(self) -> int:
        """One value per coordinate."""
        return self.problem.size

    @property
    def failure(self) -> float:
        """Total variation of one call's noise."""
        from dpcvx.noise import gaussian_failure

        return self.n_draws * gaussian_failure(self._scale(_residual_bound(self.problem, None, self.clip)))

    def _integer_sensitivity(self, bound: ResidualBound) -> int:
        _, k2 = integer_bounds(self.problem.bounds, self.problem.d)
        return math.isqrt(records_changed(self.relation) ** 2 * bound.l2**2 * k2) + 1

    def _scale(self, bound: ResidualBound) -> int:
        return math.ceil(Fraction(self.noise_multiplier) * self._integer_sensitivity(bound))

    def __call__(self, theta: Vector, data: DataSource, rng: Generator) -> Vector:
        """Return the noisy gradient at theta."""
        from dpcvx.noise import lattice_gaussian

        bound = _residual_bound(self.problem, self.problem.margin_bound(theta), self.clip)
        total = data.gradient_sum(self.problem.loss, theta, bound)
        noise = lattice_gaussian(self._scale(bound), total.size, rng).reshape(total.shape)
        return (total + noise) * (SUM_UNIT / self.n) + self.problem.l2 * theta


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
        _check_capacity(self)
        if self._temperature(_residual_bound(self.problem, None, self.clip)) <= 0:
            raise Incompatible(
                f"eta={self.eta:g} is below the rounding error of selection; "
                "use a larger epsilon or fewer steps."
            )

    @property
    def capacity(self) -> int:
        """Most records whose exact scores stay inside 62 bits."""
        return _capacity(self.problem, self.clip, 0)

    @property
    def event(self) -> Event:
        """Exponential(eta)."""
        return Exponential(self.eta)

    @property
    def sensitivity(self) -> float:
        """Largest change of one score, over all theta in C."""
        return self._sensitivity(_residual_bound(self.problem, None, self.clip))

    @property
    def noise(self) -> float:
        """Largest scale of the Gumbel noise on a score."""
        return 2 * self.sensitivity / self.eta

    @property
    def n_draws(self) -> int:
        """One value per vertex."""
        return int(self.problem.C.n_vertices(self.problem.size))

    @property
    def failure(self) -> float:
        """Total variation of one call's noise."""
        from dpcvx.noise import selection_failure

        return self.n_draws * selection_failure()

    def _sensitivity(self, bound: ResidualBound) -> float:
        k_inf, _ = integer_bounds(self.problem.bounds, self.problem.d)
        c: float = self.problem.C.norm(1, self.problem.size)
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
        bound = _residual_bound(self.problem, self.problem.margin_bound(theta), self.clip)
        if margins is None:
            total = data.gradient_sum(self.problem.loss, theta, bound)
        else:
            total = margins.scores(point.margin_unit, bound)
        gradient = total * (SUM_UNIT / self.n) + self.problem.l2 * theta
        scores = self.problem.C.vertex_scores(gradient.reshape(-1))
        log_weights = scores * (-self._temperature(bound) / (2 * self._sensitivity(bound)))
        return self._vertex(select(log_weights, rng))
