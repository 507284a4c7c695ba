"""Second moments of the records: the Hessian of the objective and the meat of its gradients, with noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpcvx.accounting import REPLACE_ONE, Neighbours
from dpcvx.arrays import Vector
from dpcvx.data import (
    FEATURE_BITS,
    LARGEST_SUM,
    RESIDUAL_BITS,
    CurvatureBound,
    CurvatureSum,
    ResidualBound,
    integer_bounds,
    meat_squared,
    person_squared,
    room,
    squared_bound,
)
from dpcvx.errors import Incompatible
from dpcvx.mechanisms.lattice_gaussian import GaussianMechanism, LatticeGaussian
from dpcvx.mechanisms.mechanism import Traits, check_capacity, residual_bound
from dpcvx.noise import Generator
from dpcvx.noise import gaussian as sampler
from dpcvx.problem import Problem

if TYPE_CHECKING:
    from dpcvx.data import DataSource

__all__ = ["NoisySecondMoments", "SecondMoments"]

MOST_BITS = 12  # of a curvature; fewer where that many records would not fit exact sums
MEAT_BITS = 14  # of the largest squared slope; fewer where that many records would not fit exact sums
WEIGHTED_BITS = 20  # of one that is multiplied by a weight: what is cut off then must not count
LARGEST_WIDTH = 4096  # features whose (d, d) sums are worth holding


@dataclass(frozen=True, eq=False)
class SecondMoments:
    """Released second moments at a public point."""

    # shape (d, d): Hessian of the mean loss, without the ridge; symmetric, not always positive
    hessian: Vector
    # shape (d, d): mean of g g^T, g the gradient of a record or person, where it was asked for; symmetric
    meat: Vector | None = None


@dataclass(frozen=True)
class NoisySecondMoments(GaussianMechanism):
    """Hessian of the mean loss at a public theta, and the meat of its gradients, with Gaussian noise.

    Question: W(D) = sum_i omega_i k_i k_i^T, omega_i the record's curvature phi'' in 0..Omega (for squared
    loss Omega itself: the second moments of the rows), and where it is asked for the meat of a sandwich,
    M(D) = sum_i s_i k_i k_i^T, s_i the square of the record's slope, in 0..S.
    Sensitivity (replace-one): sqrt(2) Omega K2 in the Frobenius norm for W and sqrt(2) S K2 for M, since both
    of the matrices that differ are positive semidefinite; Omega K2 and S K2 under add/remove (PRIVACY_MATH
    §15).
    Noise: the Frobenius norm counts an entry off the diagonal twice, so its noise has 1/sqrt(2) of the
    deviation of one on the diagonal, and mirrored entries share theirs.
    Of weighted rows omega_i is multiplied by w/2^14 and s_i by its square; of persons with several rows M is
    sum_u g_u g_u^T, g_u the sum of the weighted gradients of the person's rows, with ||g_u||^2 <= R^2 K2, so
    that two persons differ by sqrt(2) R^2 K2. Where r rows of a person count, R is r times as large
    (PRIVACY_MATH §16).
    Event: Gaussian(noise_multiplier), and Gaussian(meat_multiplier) beside it.
    """

    problem: Problem  # a smooth convex loss of one score
    n: int  # public normaliser: the number of records
    noise_multiplier: float  # deviation of the noise on the diagonal of W over its sensitivity
    meat_multiplier: float | None = None  # the same for M; None leaves it out
    neighbours: Neighbours = REPLACE_ONE  # the data sets that must look alike
    clip: float | None = None  # residuals phi' are clipped to this size; beyond it a record has no curvature

    traits: ClassVar[Traits] = Traits("Hessian", pairs=True)

    def __post_init__(self) -> None:
        loss, d = self.problem.loss, self.problem.d
        if self.problem.outputs > 1:
            raise Incompatible(
                "Uncertainty and sufficient statistics need the Hessian of one score per record; the "
                f"problem has {self.problem.outputs} scores. Several classes or targets have one "
                "Hessian together, for whose release no bound on the influence of a record has been "
                "derived. Fit one target at a time, or each class against all others, with a part of "
                "the epsilon for each fit; or leave uncertainty at 0."
            )
        if not (loss.convex and math.isfinite(loss.smoothness(self.problem.z_max))):
            raise Incompatible(
                "Uncertainty and sufficient statistics need a convex loss with bounded curvature; "
                f"{type(loss).__name__} is none. The standard error of a loss with a kink, such as that "
                "of a quantile, depends on the density of the target at the kink, which no released Hessian "
                "shows. Use Huber or squared loss for a regression and logistic loss for two classes, or "
                "leave uncertainty at 0."
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
        beta = max(1.0, self.problem.loss.largest_curvature(self.problem.z_max))
        left = math.floor(math.log2(LARGEST_SUM / (4 * self.n * k_inf**2 * beta)))
        most = MOST_BITS if self.neighbours.weight == 1 else WEIGHTED_BITS
        return max(1, min(most, left))

    @property
    def _largest(self) -> int:
        largest = self.problem.loss.largest_curvature(self.problem.z_max)
        return max(1, math.floor(2.0**self._bits * largest))

    def _slope(self, z_max: float | None) -> ResidualBound:
        return residual_bound(self.problem, z_max, self.clip)

    def _square(self, z_max: float | None) -> CurvatureBound:
        """Bound of squared slopes, on a grid that does not depend on the point."""
        k_inf, _ = integer_bounds(self.problem.bounds, self.problem.d)
        largest = 2 * math.log2(max(self._slope(None).linf, 1) * 2.0**-RESIDUAL_BITS)
        left = math.log2(LARGEST_SUM / (4 * self.n * k_inf**2)) - largest
        return squared_bound(self._slope(z_max), math.floor(min(MEAT_BITS - largest, left)))

    def _gaussians(self, z_max: float | None) -> tuple[LatticeGaussian, ...]:
        d, (_, k2) = self.problem.d, integer_bounds(self.problem.bounds, self.problem.d)
        matrix = math.isqrt(self.neighbours.cone_squared * (self._largest * k2) ** 2) + 1
        moments = LatticeGaussian(matrix, self.noise_multiplier, d * (d + 1) // 2, self._unit)
        if self.meat_multiplier is None:
            return (moments,)
        square = self._square(z_max)
        meat = math.isqrt(meat_squared(square, self._slope(z_max), k2, self.neighbours)) + 1
        bits = 2 * FEATURE_BITS + (square.bits if self.neighbours.unit == "row" else 0)
        return moments, LatticeGaussian(meat, self.meat_multiplier, d * (d + 1) // 2, 2.0**-bits / self.n)

    @property
    def gaussians(self) -> tuple[LatticeGaussian, ...]:
        """Noise on the diagonal of the Hessian, and of the meat where it is asked for."""
        return self._gaussians(None)

    @property
    def answers(self) -> list[dict[str, Any]]:
        """Noise of each of two matrices, for statements; empty where there is one."""
        names = ("Hessian", "meat (sum of squared gradients)")
        return [
            {
                "answer": name,
                "noise_multiplier": each.multiplier,
                "sensitivity": each.change,
                "noise": each.noise,
            }
            for name, each in zip(names, self.gaussians, strict=False)
            if self.meat_multiplier is not None
        ]

    def meat_noise(self, theta: Vector) -> float:
        """Return the standard deviation of the noise on the meat's diagonal at a public theta."""
        return self._gaussians(self.problem.margin_bound(theta))[1].noise

    @property
    def _unit(self) -> float:
        return 2.0 ** -(2 * FEATURE_BITS + self._bits) / self.n

    @property
    def capacity(self) -> int:
        """Most records whose exact sums, with their noise, stay inside 62 bits."""
        k_inf, k2 = integer_bounds(self.problem.bounds, self.problem.d)
        moments, *others = self.gaussians
        most = room(self._largest * k_inf**2, moments.scale)
        if not others:
            return most
        term = self._square(None).largest * k_inf**2
        if self.neighbours.unit != "row":
            term = person_squared(self._slope(None), k2, self.neighbours)
        return min(most, room(term, others[0].scale))

    @property
    def evaluations(self) -> float:
        """Three slopes for each record."""
        return 3 * self.n

    def __call__(self, theta: Vector, data: DataSource, rng: Generator) -> SecondMoments:
        """Return the noisy second moments at theta."""
        d, z_max = self.problem.d, self.problem.margin_bound(theta)
        bends = CurvatureBound(self._largest, self._bits)
        square = None if self.meat_multiplier is None else self._square(z_max)
        exact = data.sum(CurvatureSum(self.problem.loss, theta, self._slope(z_max), bends, square))
        # The two sums have other units and bounds.
        if square is not None and (exact.persons is None) != (self.neighbours.unit == "row"):
            raise Incompatible("The plan and the source disagree on whose rows the records are.")
        moments, *others = self._gaussians(z_max)
        hessian = _noised(exact.moments, moments, d, rng)
        meat = None if exact.meat is None else _noised(exact.meat, others[0], d, rng)
        return SecondMoments(hessian, meat)


def _noised(exact: NDArray[np.int64], gaussian: LatticeGaussian, d: int, rng: Generator) -> Vector:
    """Return a symmetric sum with noise, in the units of the answer."""
    off = math.isqrt(gaussian.scale**2 // 2) + 1
    noise = np.zeros((d, d), dtype=np.int64)
    noise[np.triu_indices(d, 1)] = sampler.lattice_gaussian(off, d * (d - 1) // 2, rng)
    noise += noise.T
    noise[np.diag_indices(d)] = sampler.lattice_gaussian(gaussian.scale, d, rng)
    answer: Vector = (exact + noise) * np.float64(gaussian.unit)
    return answer
