"""Minimisers of the objective: with a random linear term inside, or with noise on the outcome."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dpcvx.accounting import REPLACE_ONE, Neighbours
from dpcvx.arrays import Vector
from dpcvx.data import LARGEST_DRAW, LARGEST_SUM
from dpcvx.errors import Incompatible, WrongValue
from dpcvx.events import Compose, Event, Gaussian, PerturbedObjective
from dpcvx.mechanisms.lattice_gaussian import GaussianMechanism, LatticeGaussian
from dpcvx.mechanisms.mechanism import Traits
from dpcvx.mechanisms.minimise import RidgeFacts, minimise
from dpcvx.problem import Problem

if TYPE_CHECKING:
    from dpcvx.data import DataSource
    from dpcvx.noise import Generator

__all__ = ["NoisyMinimiser", "PerturbedMinimiser"]

NORMALISER_SLACK = 2  # under add/remove n is a public guess; up to this many times as many records are served
# The linear term has at least 2^44 lattice steps in its standard deviation, and LARGEST_DRAW of these are
# exact in float64.
LINEAR_BITS = 44
OUTPUT_BITS = 20  # the lattice of an outcome is 2^-20 of its noise, over sqrt(p)
LOOSE = 1e-4  # inexactness that output perturbation may add to its sensitivity, relative


def _on_lattice(sensitivity: float, multiplier: float, size: int) -> LatticeGaussian:
    """Return the noise for a point that neighbours move by a real length (PRIVACY_MATH §11).

    The lattice step is a power of two, 2^-20 of the noise over sqrt(p). Two points are rounded to the
    lattice, which adds sqrt(p) steps to their distance.
    """
    step = 2.0 ** math.floor(math.log2(multiplier * sensitivity / math.sqrt(size)) - OUTPUT_BITS)
    rounded = Fraction(sensitivity) / Fraction(step) + math.isqrt(size) + 1
    return LatticeGaussian(rounded, multiplier, size, step)


def _check_lattice(gaussian: LatticeGaussian, reach: float) -> None:
    """Refuse, from public numbers, a lattice too fine for 62-bit integers."""
    if reach / gaussian.unit + LARGEST_DRAW * gaussian.scale >= LARGEST_SUM:
        raise Incompatible(
            f"Noise of {gaussian.noise:g} is too small beside parameters of norm {reach:g}: "
            "use a smaller set, a larger ridge, or a smaller epsilon."
        )


def _released(theta: Vector, gaussian: LatticeGaussian, rng: Generator) -> Vector:
    """Round a point to the lattice and add noise."""
    integers = np.rint(theta / gaussian.unit).astype(np.int64)
    noise = gaussian.draw(rng).reshape(theta.shape)
    released: Vector = np.ldexp(integers + noise, round(math.log2(gaussian.unit)))
    return released


def _records(n: int, neighbours: Neighbours) -> int:
    return n if neighbours.replaces else NORMALISER_SLACK * n


def hessian_rank(problem: Problem, neighbours: Neighbours) -> int:
    """Return the largest rank of the Hessian of one unit's loss: 1 of a row, and any of a person."""
    return 1 if neighbours.unit == "row" else problem.d


@dataclass(frozen=True)
class PerturbedMinimiser(GaussianMechanism):
    """Minimiser of the objective with a Gaussian linear term, and a little noise on the outcome.

    Question: argmin sum_i phi(<x_i, theta>, y_i) + (ridge/2) ||theta||^2 + n r(theta) + <b, theta> over C,
    b ~ N(0, sigma^2 I) on a lattice, sigma = noise_multiplier L B_2.
    Event: PerturbedObjective(1/noise_multiplier, r log(1 + beta B_2^2/(r ridge))) of the exact minimiser for
    a continuous b, r = 1 for single rows and d for persons whose rows share the weight of one, composed with
    Gaussian(output_multiplier) (PRIVACY_MATH §4, §16). The second covers what the minimiser, float64 and the
    lattice of b leave open: together they move the outcome by at most tau/ridge, so two outcomes differ from
    their ideals by 2 tau/ridge. tau is public and holds for all records.
    """

    # a scalar convex smooth loss, with a domain or a regulariser. Its ridge is part of ``ridge``.
    problem: Problem
    n: int  # public normaliser: the number of records
    noise_multiplier: float  # sigma over the largest gradient L B_2 of one record
    # modulus of the quadratic term on the scale of the sum, at least n l2; it acts on every coordinate
    ridge: float
    output_multiplier: float  # standard deviation of the noise on the outcome over 2 tau/ridge
    neighbours: Neighbours = REPLACE_ONE  # the data sets that must look alike

    traits: ClassVar[Traits] = Traits(
        "minimiser", stops_sooner=True, noise_inside=True, copies=True, score_bytes=24
    )

    def __post_init__(self) -> None:
        if self.neighbours.rows > 1:
            raise Incompatible(
                "Objective perturbation is proved private for one row per person, and for persons whose rows "
                "share the weight of one, not for several whole rows of each person: leave max_rows out, or "
                "use another solver."
            )
        if self.problem.loss.joint or self.problem.outputs > 1:
            raise Incompatible(
                "Objective perturbation covers one score per record, whose curvature has rank one; "
                f"{type(self.problem.loss).__name__} with {self.problem.outputs} outputs has not. "
                "Use OutputPerturbation."
            )
        if self.ridge < self.n * self.problem.l2 * (1 - 1e-12):
            raise WrongValue(f"ridge is {self.ridge!r}; it must hold the problem's own, n * l2.")
        _check_lattice(self._output, self._facts.reach)

    @property
    def _facts(self) -> RidgeFacts:
        largest = LARGEST_DRAW * self._linear.scale * self._linear.unit * math.sqrt(self.problem.size)
        return RidgeFacts(self.problem, self.n, _records(self.n, self.neighbours), self.ridge, largest)

    @property
    def _record_gradient(self) -> float:
        """L B_2."""
        facts = RidgeFacts(self.problem, self.n, self.n, self.ridge)
        return facts.slope * facts.row

    @property
    def _linear(self) -> LatticeGaussian:
        """Noise of the linear term, on the scale of the sum."""
        sigma = self.noise_multiplier * self._record_gradient
        step = 2.0 ** (math.floor(math.log2(sigma)) - LINEAR_BITS)
        gradient = Fraction(self._record_gradient) / Fraction(step)
        return LatticeGaussian(gradient, self.noise_multiplier, self.problem.size, step)

    @property
    def gaussians(self) -> tuple[LatticeGaussian, ...]:
        """Noise of the linear term, and of the outcome."""
        return self._linear, self._output

    @property
    def deviation(self) -> float:
        """Bound tau on the subgradient at the outcome before its noise, the lattice of b included.

        A hundredth of sigma/smoothness may be added as noise; where rounding needs more, so be it.
        """
        facts = self._facts
        sigma = self.noise_multiplier * self._record_gradient
        affordable = 0.01 * sigma / facts.smoothness * self.ridge / (2 * self.output_multiplier)
        return max(affordable, 4 * facts.rounding + self._lattice_error)

    @property
    def _lattice_error(self) -> float:
        return self._linear.unit * math.sqrt(self.problem.size) / 2

    @property
    def _tolerance(self) -> float:
        return self.deviation - self._facts.rounding - self._lattice_error

    @property
    def _output(self) -> LatticeGaussian:
        return _on_lattice(2 * self.deviation / self.ridge, self.output_multiplier, self.problem.size)

    @property
    def event(self) -> Event:
        """The exact minimiser, and the noise on the outcome."""
        beta, row = self._facts.bend, self._facts.row
        neighbours, rank = self.neighbours, hessian_rank(self.problem, self.neighbours)
        jacobian = rank * math.log1p(beta * row**2 / (rank * self.ridge))
        return Compose(
            (
                PerturbedObjective(1 / self.noise_multiplier, jacobian, neighbours.relation, neighbours.unit),
                Gaussian(self.output_multiplier),
            )
        )

    @property
    def sensitivity(self) -> float:
        """Largest change of the mean objective's gradient, on which the linear term acts."""
        return self.neighbours.ball * self._record_gradient / self.n

    @property
    def noise(self) -> float:
        """Standard deviation of the linear term of the mean objective."""
        return self._linear.noise / self.n

    @property
    def output_noise(self) -> float:
        """Standard deviation of the noise on a coordinate of the outcome."""
        return self._output.noise

    @property
    def capacity(self) -> int:
        """Most records that rounding is covered for."""
        return _records(self.n, self.neighbours)

    @property
    def evaluations(self) -> float:
        """Public number of accelerated steps, times the records."""
        return float(self._facts.steps(self._tolerance) * self.n)

    def __call__(self, data: DataSource, rng: Generator) -> Vector:
        """Return the private minimiser; it may lie a little outside C."""
        problem = self.problem
        b: Vector = self._linear.draw(rng).reshape(problem.shape) * np.float64(self._linear.unit)
        objective = data.objective(problem.loss, problem.outputs, problem.z_max)
        theta = minimise(self._facts, objective, b, self._tolerance)
        return _released(theta, self._output, rng)


@dataclass(frozen=True)
class NoisyMinimiser(GaussianMechanism):
    """Minimiser of the objective with lattice Gaussian noise on it (output perturbation).

    Question: argmin sum_i phi(<x_i, theta>, y_i) + (ridge/2) ||theta||^2 + n r(theta) + n <linear, theta>
    over C.
    Sensitivity (l2, replace-one): (2 L B_2 + 2 tau)/ridge, half of the first term under add/remove; tau, the
    subgradient left at the outcome, is public and holds for all records (PRIVACY_MATH §5).
    Event: Gaussian(noise_multiplier).
    """

    problem: Problem  # a convex smooth loss, with a domain or a regulariser. Its ridge is part of ``ridge``.
    n: int  # public normaliser: the number of records
    noise_multiplier: float  # standard deviation of the noise over the sensitivity
    ridge: float  # modulus of the quadratic term on the scale of the sum, at least n l2
    neighbours: Neighbours = REPLACE_ONE  # the data sets that must look alike
    # bound on the l2 norm of the public linear term that a call may bring, on the scale of the mean
    linear: float = 0.0

    traits: ClassVar[Traits] = Traits("minimiser", stops_sooner=True, copies=True, score_bytes=24)

    def __post_init__(self) -> None:
        if self.ridge < self.n * self.problem.l2 * (1 - 1e-12):
            raise WrongValue(f"ridge is {self.ridge!r}; it must hold the problem's own, n * l2.")
        if not (self.linear >= 0 and math.isfinite(self.linear)):
            raise WrongValue(f"linear is {self.linear!r}; it must be a finite number, zero or more.")
        _check_lattice(self._output, self._facts.reach)

    @property
    def _facts(self) -> RidgeFacts:
        records = _records(self.n, self.neighbours)
        return RidgeFacts(self.problem, self.n, records, self.ridge, self.n * self.linear)

    @property
    def _tolerance(self) -> float:
        facts = self._facts
        return max(2 * facts.rounding, LOOSE * facts.slope * facts.row)

    @property
    def _output(self) -> LatticeGaussian:
        return _on_lattice(self.sensitivity, self.noise_multiplier, self.problem.size)

    @property
    def gaussians(self) -> tuple[LatticeGaussian, ...]:
        """Noise of the outcome."""
        return (self._output,)

    @property
    def sensitivity(self) -> float:
        """Largest l2 change of the outcome before its noise."""
        facts = self._facts
        exact = self.neighbours.ball * facts.slope * facts.row
        return (exact + 2 * (self._tolerance + facts.rounding)) / self.ridge

    @property
    def capacity(self) -> int:
        """Most records that rounding is covered for."""
        return _records(self.n, self.neighbours)

    @property
    def evaluations(self) -> float:
        """Public number of accelerated steps, times the records."""
        return float(self._facts.steps(self._tolerance) * self.n)

    def __call__(self, linear: Vector | None = None, *, data: DataSource, rng: Generator) -> Vector:
        """Return the noisy minimiser; it may lie outside C."""
        problem = self.problem
        term = np.zeros(problem.shape) if linear is None else self.n * linear
        if np.shape(term) != problem.shape:  # broadcast, it would be longer than it looks
            raise WrongValue(f"The linear term has shape {np.shape(term)}; theta has shape {problem.shape}.")
        if linear is not None and not np.linalg.norm(linear) <= self.linear:
            raise WrongValue(f"The linear term has norm {np.linalg.norm(linear):g}, above {self.linear:g}.")
        objective = data.objective(problem.loss, problem.outputs, problem.z_max)
        theta = minimise(self._facts, objective, term, self._tolerance)
        return _released(theta, self._output, rng)
