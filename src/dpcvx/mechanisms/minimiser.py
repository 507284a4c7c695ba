"""Minimisers of the objective: with a random linear term inside, or with noise on the outcome."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from dpcvx.accounting import REPLACE_ONE, Neighbours
from dpcvx.arrays import Vector
from dpcvx.data import LARGEST_DRAW, LARGEST_SUM
from dpcvx.errors import Incompatible
from dpcvx.events import (
    Compose,
    Event,
    Gaussian,
    PerturbedObjective,
)
from dpcvx.mechanisms.minimise import Ridged, minimise
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


@dataclass(frozen=True)
class _OnLattice:
    """Gaussian noise that hides everything within ``radius`` of a centre, on a lattice (PRIVACY_MATH §11).

    Two points of the ball are 2 radius + step sqrt(p) apart once they are rounded to the lattice.
    """

    sensitivity: float
    noise_multiplier: float
    size: int

    @property
    def step(self) -> float:
        """Lattice step, a power of two."""
        noise = self.noise_multiplier * self.sensitivity
        return 2.0 ** math.floor(math.log2(noise / math.sqrt(self.size)) - OUTPUT_BITS)

    @property
    def scale(self) -> int:
        """Standard deviation in lattice steps."""
        rounded = Fraction(self.sensitivity) / Fraction(self.step) + math.isqrt(self.size) + 1
        return math.ceil(Fraction(self.noise_multiplier) * rounded)

    def check(self, reach: float) -> None:
        """Refuse, from public numbers, a lattice too fine for 62-bit integers."""
        if reach / self.step + LARGEST_DRAW * self.scale >= LARGEST_SUM:
            raise Incompatible(
                f"Noise of {self.scale * self.step:g} is too small beside parameters of norm {reach:g}: "
                "use a smaller set, a larger ridge, or a smaller epsilon."
            )

    def add(self, theta: Vector, rng: Generator) -> Vector:
        """Round to the lattice and add noise."""
        from dpcvx.noise.gaussian import lattice_gaussian

        integers = np.rint(theta / self.step).astype(np.int64)
        noise = lattice_gaussian(self.scale, self.size, rng).reshape(theta.shape)
        released: Vector = np.ldexp(integers + noise, round(math.log2(self.step)))
        return released


def _records(n: int, neighbours: Neighbours) -> int:
    return n if neighbours.replaces else NORMALISER_SLACK * n


@dataclass(frozen=True)
class PerturbedMinimiser:
    """Minimiser of the objective with a Gaussian linear term, and a little noise on the outcome.

    Question: argmin sum_i phi(<x_i, theta>, y_i) + (ridge/2) ||theta||^2 + n r(theta) + <b, theta> over C,
    b ~ N(0, sigma^2 I) on a lattice, sigma = noise_multiplier L B_2.
    Event: PerturbedObjective(1/noise_multiplier, log(1 + beta B_2^2/ridge)) of the exact minimiser for a
    continuous b, composed with Gaussian(output_multiplier) (PRIVACY_MATH §4). The second covers what the
    minimiser, float64 and the lattice of b leave open: together they move the outcome by at most tau/ridge,
    so two outcomes differ from their ideals by 2 tau/ridge. tau is public and holds for all records.

    Parameters
    ----------
    problem : Problem
        A scalar convex smooth loss, with a domain or a regulariser. Its ridge is part of ``ridge``.
    n : int
        Public normaliser: the number of records.
    noise_multiplier : float
        sigma over the largest gradient L B_2 of one record.
    ridge : float
        Modulus of the quadratic term on the scale of the sum, at least n l2; it acts on every coordinate.
    output_multiplier : float
        Standard deviation of the noise on the outcome over 2 tau/ridge.
    neighbours : Neighbours
        The data sets that must look alike.
    """

    problem: Problem
    n: int
    noise_multiplier: float
    ridge: float
    output_multiplier: float
    neighbours: Neighbours = REPLACE_ONE

    def __post_init__(self) -> None:
        self.neighbours.require_rows("Objective perturbation")
        if self.problem.loss.joint or self.problem.outputs > 1:
            raise Incompatible(
                "Objective perturbation covers one score per record, whose curvature has rank one; "
                f"{type(self.problem.loss).__name__} with {self.problem.outputs} outputs has not. "
                "Use OutputPerturbation."
            )
        if self.ridge < self.n * self.problem.l2 * (1 - 1e-12):
            raise ValueError(f"ridge is {self.ridge!r}; it must hold the problem's own, n * l2.")
        self._output.check(self._facts.reach)

    @property
    def _facts(self) -> Ridged:
        largest = LARGEST_DRAW * self._linear_scale * self._linear_step * math.sqrt(self.problem.size)
        return Ridged(self.problem, self.n, _records(self.n, self.neighbours), self.ridge, largest)

    @property
    def _record_gradient(self) -> float:
        """L B_2."""
        facts = Ridged(self.problem, self.n, self.n, self.ridge)
        return facts.slope * facts.row

    @property
    def _linear_step(self) -> float:
        return 2.0 ** (math.floor(math.log2(self.noise_multiplier * self._record_gradient)) - LINEAR_BITS)

    @property
    def _linear_scale(self) -> int:
        return math.ceil(
            Fraction(self.noise_multiplier) * Fraction(self._record_gradient) / Fraction(self._linear_step)
        )

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
        return self._linear_step * math.sqrt(self.problem.size) / 2

    @property
    def _tolerance(self) -> float:
        return self.deviation - self._facts.rounding - self._lattice_error

    @property
    def _output(self) -> _OnLattice:
        return _OnLattice(2 * self.deviation / self.ridge, self.output_multiplier, self.problem.size)

    @property
    def event(self) -> Event:
        """The exact minimiser, and the noise on the outcome."""
        beta, row = self._facts.bend, self._facts.row
        jacobian = math.log1p(beta * row**2 / self.ridge)
        return Compose(
            (
                PerturbedObjective(1 / self.noise_multiplier, jacobian, self.neighbours.relation),
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
        return self._linear_scale * self._linear_step / self.n

    @property
    def output_noise(self) -> float:
        """Standard deviation of the noise on a coordinate of the outcome."""
        return self._output.scale * self._output.step

    @property
    def capacity(self) -> int:
        """Most records that rounding is covered for."""
        return _records(self.n, self.neighbours)

    @property
    def evaluations(self) -> float:
        """Public number of accelerated steps, times the records."""
        return float(self._facts.steps(self._tolerance) * self.n)

    @property
    def n_draws(self) -> int:
        """Two values per coordinate."""
        return 2 * self.problem.size

    @property
    def failure(self) -> float:
        """Total variation of one call's noise."""
        from dpcvx.noise.gaussian import gaussian_failure

        return self.n_draws * gaussian_failure()

    def __call__(self, data: DataSource, rng: Generator) -> Vector:
        """Return the private minimiser; it may lie a little outside C."""
        from dpcvx.noise.gaussian import lattice_gaussian

        problem = self.problem
        draws = lattice_gaussian(self._linear_scale, problem.size, rng).reshape(problem.shape)
        b: Vector = draws * np.float64(self._linear_step)
        objective = data.objective(problem.loss, problem.outputs, problem.z_max)
        theta = minimise(self._facts, objective, b, self._tolerance)
        return self._output.add(theta, rng)


@dataclass(frozen=True)
class NoisyMinimiser:
    """Minimiser of the objective with lattice Gaussian noise on it (output perturbation).

    Question: argmin sum_i phi(<x_i, theta>, y_i) + (ridge/2) ||theta||^2 + n r(theta) + n <linear, theta>
    over C.
    Sensitivity (l2, replace-one): (2 L B_2 + 2 tau)/ridge, half of the first term under add/remove; tau, the
    subgradient left at the outcome, is public and holds for all records (PRIVACY_MATH §5).
    Event: Gaussian(noise_multiplier).

    Parameters
    ----------
    problem : Problem
        A convex smooth loss, with a domain or a regulariser. Its ridge is part of ``ridge``.
    n : int
        Public normaliser: the number of records.
    noise_multiplier : float
        Standard deviation of the noise over the sensitivity.
    ridge : float
        Modulus of the quadratic term on the scale of the sum, at least n l2.
    neighbours : Neighbours
        The data sets that must look alike.
    linear : float
        Bound on the l2 norm of the public linear term that a call may bring, on the scale of the mean.
    """

    problem: Problem
    n: int
    noise_multiplier: float
    ridge: float
    neighbours: Neighbours = REPLACE_ONE
    linear: float = 0.0

    def __post_init__(self) -> None:
        if self.ridge < self.n * self.problem.l2 * (1 - 1e-12):
            raise ValueError(f"ridge is {self.ridge!r}; it must hold the problem's own, n * l2.")
        if not (self.linear >= 0 and math.isfinite(self.linear)):
            raise ValueError(f"linear is {self.linear!r}; it must be a finite number, zero or more.")
        self._output.check(self._facts.reach)

    @property
    def _facts(self) -> Ridged:
        records = _records(self.n, self.neighbours)
        return Ridged(self.problem, self.n, records, self.ridge, self.n * self.linear)

    @property
    def _tolerance(self) -> float:
        facts = self._facts
        return max(2 * facts.rounding, LOOSE * facts.slope * facts.row)

    @property
    def _output(self) -> _OnLattice:
        return _OnLattice(self.sensitivity, self.noise_multiplier, self.problem.size)

    @property
    def event(self) -> Event:
        """Gaussian(noise_multiplier)."""
        return Gaussian(self.noise_multiplier)

    @property
    def sensitivity(self) -> float:
        """Largest l2 change of the outcome before its noise."""
        facts = self._facts
        exact = self.neighbours.ball * facts.slope * facts.row
        return (exact + 2 * (self._tolerance + facts.rounding)) / self.ridge

    @property
    def noise(self) -> float:
        """Standard deviation of one coordinate."""
        return self._output.scale * self._output.step

    @property
    def capacity(self) -> int:
        """Most records that rounding is covered for."""
        return _records(self.n, self.neighbours)

    @property
    def evaluations(self) -> float:
        """Public number of accelerated steps, times the records."""
        return float(self._facts.steps(self._tolerance) * self.n)

    @property
    def n_draws(self) -> int:
        """One value per coordinate."""
        return self.problem.size

    @property
    def failure(self) -> float:
        """Total variation of one call's noise."""
        from dpcvx.noise.gaussian import gaussian_failure

        return self.n_draws * gaussian_failure()

    def __call__(self, linear: Vector | None = None, *, data: DataSource, rng: Generator) -> Vector:
        """Return the noisy minimiser; it may lie outside C."""
        problem = self.problem
        term = np.zeros(problem.shape) if linear is None else self.n * linear
        if np.shape(term) != problem.shape:  # broadcast, it would be longer than it looks
            raise ValueError(f"The linear term has shape {np.shape(term)}; theta has shape {problem.shape}.")
        if linear is not None and not np.linalg.norm(linear) <= self.linear:
            raise ValueError(f"The linear term has norm {np.linalg.norm(linear):g}, above {self.linear:g}.")
        objective = data.objective(problem.loss, problem.outputs, problem.z_max)
        return self._output.add(minimise(self._facts, objective, term, self._tolerance), rng)
