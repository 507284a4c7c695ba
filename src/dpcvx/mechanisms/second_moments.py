"""Second moments of the records: the Hessian of the objective and the spread of its gradients, with noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dpcvx.accounting import REPLACE_ONE, Neighbours
from dpcvx.arrays import Vector
from dpcvx.data import (
    FEATURE_BITS,
    LARGEST_SUM,
    SPREAD_UNIT,
    CurvatureBound,
    CurvatureSum,
    ResidualBound,
    integer_bounds,
    largest_spread,
    room,
)
from dpcvx.errors import Incompatible
from dpcvx.mechanisms.lattice_gaussian import GaussianMechanism, LatticeGaussian
from dpcvx.mechanisms.mechanism import Traits, check_capacity, residual_bound
from dpcvx.noise import Generator, gaussian
from dpcvx.problem import Problem

if TYPE_CHECKING:
    from dpcvx.data import DataSource

__all__ = ["NoisySecondMoments", "SecondMoments"]

MOST_BITS = 12  # of a curvature; fewer where that many records would not fit exact sums
WEIGHTED_BITS = 20  # of one that is multiplied by a weight: what is cut off then must not count
LARGEST_WIDTH = 4096  # features whose (d, d) sums are worth holding


@dataclass(frozen=True, eq=False)
class SecondMoments:
    """Released second moments at a public point."""

    # shape (d, d): Hessian of the mean loss, without the ridge; symmetric, not always positive
    hessian: Vector
    spread: float | None = None  # mean of ||phi' x||^2 over the records, where it was asked for


@dataclass(frozen=True)
class NoisySecondMoments(GaussianMechanism):
    """Hessian of the mean loss at a public theta, and the mean square of its gradients, with Gaussian noise.

    Question: W(D) = sum_i omega_i k_i k_i^T, omega_i the record's curvature phi'' in 0..Omega (for squared
    loss Omega itself: the second moments of the rows), and where it is asked for V(D) = sum_i s_i^2 q_i, s_i
    the record's slope and q_i = floor(||k_i||^2/2^14).
    Sensitivity (replace-one): sqrt(2) Omega K2 in the Frobenius norm for W, since both of the matrices that
    differ are positive semidefinite; Omega K2 under add/remove. S^2 Q for V under either relation, every term
    lying in an interval of that length (PRIVACY_MATH §15).
    Noise: the Frobenius norm counts an entry off the diagonal twice, so its noise has 1/sqrt(2) of the
    deviation of one on the diagonal, and mirrored entries share theirs.
    Of weighted rows omega_i is multiplied by w/2^14 and the terms of V by its square; of persons with several
    rows a term of V is the squared length of the person's mean gradient, rounded once: from 0 to the larger
    of S^2 Q and R^2 K2. Where r rows of a person count it is that of the sum of their gradients, r^2 times as
    much (PRIVACY_MATH §16).
    Event: Gaussian(noise_multiplier), and Gaussian(spread_multiplier) beside it.
    """

    problem: Problem  # a smooth convex loss of one score
    n: int  # public normaliser: the number of records
    noise_multiplier: float  # deviation of the noise on the diagonal of W over its sensitivity
    spread_multiplier: float | None = None  # the same for V; None leaves it out
    neighbours: Neighbours = REPLACE_ONE  # the data sets that must look alike
    clip: float | None = None  # residuals phi' are clipped to this size; beyond it a record has no curvature

    traits: ClassVar[Traits] = Traits("Hessian", pairs=True)

    def __post_init__(self) -> None:
        loss, d = self.problem.loss, self.problem.d
        if self.problem.outputs > 1 or not (
            loss.convex and math.isfinite(loss.smoothness(self.problem.z_max))
        ):
            raise Incompatible(
                "Second moments, which uncertainty and sufficient statistics ask for, are those of smooth "
                f"convex losses of one score per record; got {type(loss).__name__} with "
                f"{self.problem.outputs} output(s). Leave uncertainty at 0, or fit one target or two classes."
            )
        if d > LARGEST_WIDTH:
            raise Incompatible(
                f"Second moments of {d} features are {d}^2 numbers; at most {LARGEST_WIDTH} features "
                "are taken."
            )
        check_capacity(self, self.n)

    @property
    def _bits(self) -> int:
        """Bits of a curvature: as many as exact sums of n records have room for."""
        k_inf, _ = integer_bounds(self.problem.bounds, self.problem.d)
        beta = max(1.0, self.problem.loss.smoothness(self.problem.z_max))
        left = math.floor(math.log2(LARGEST_SUM / (4 * self.n * k_inf**2 * beta)))
        most = MOST_BITS if self.neighbours.weight == 1 else WEIGHTED_BITS
        return max(1, min(most, left))

    @property
    def _largest(self) -> int:
        return max(1, math.floor(2.0**self._bits * self.problem.loss.smoothness(self.problem.z_max)))

    def _slope(self, z_max: float | None) -> ResidualBound:
        return residual_bound(self.problem, z_max, self.clip)

    def _gaussians(self, z_max: float | None) -> tuple[LatticeGaussian, ...]:
        d, (_, k2) = self.problem.d, integer_bounds(self.problem.bounds, self.problem.d)
        matrix = math.isqrt(self.neighbours.cone_squared * (self._largest * k2) ** 2) + 1
        moments = LatticeGaussian(matrix, self.noise_multiplier, d * (d + 1) // 2, self._unit)
        if self.spread_multiplier is None:
            return (moments,)
        spread = max(1, largest_spread(self._slope(z_max), k2, self.neighbours))
        return moments, LatticeGaussian(spread, self.spread_multiplier, 1, SPREAD_UNIT / self.n)

    @property
    def gaussians(self) -> tuple[LatticeGaussian, ...]:
        """Noise on the diagonal of the Hessian, and on the spread where it is asked for."""
        return self._gaussians(None)

    @property
    def _unit(self) -> float:
        return 2.0 ** -(2 * FEATURE_BITS + self._bits) / self.n

    @property
    def capacity(self) -> int:
        """Most records whose exact sums, with their noise, stay inside 62 bits."""
        k_inf, _ = integer_bounds(self.problem.bounds, self.problem.d)
        # The spread is one of Python's integers: only its noise has to fit.
        noise = max(each.scale for each in self.gaussians)
        return room(self._largest * k_inf**2, noise)

    @property
    def evaluations(self) -> float:
        """Three slopes for each record."""
        return 3 * self.n

    def __call__(self, theta: Vector, data: DataSource, rng: Generator) -> SecondMoments:
        """Return the noisy second moments at theta."""
        d, z_max = self.problem.d, self.problem.margin_bound(theta)
        bends = CurvatureBound(self._largest, self._bits)
        exact = data.sum(CurvatureSum(self.problem.loss, theta, self._slope(z_max), bends))
        moments, *others = self._gaussians(z_max)
        off = math.isqrt(moments.scale**2 // 2) + 1
        noise = np.zeros((d, d), dtype=np.int64)
        noise[np.triu_indices(d, 1)] = gaussian.lattice_gaussian(off, d * (d - 1) // 2, rng)
        noise += noise.T
        noise[np.diag_indices(d)] = gaussian.lattice_gaussian(moments.scale, d, rng)
        hessian: Vector = (exact.moments + noise) * np.float64(self._unit)
        if not others:
            return SecondMoments(hessian)
        noised = exact.spread + int(others[0].draw(rng)[0])
        return SecondMoments(hessian, noised * others[0].unit)
