"""The nuclear-norm ball."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from dpcvx.arrays import Shape, Vector
from dpcvx.domains.balls import Ball, check_radius, project_to_simplex, size_of
from dpcvx.domains.mirror import Euclidean, MirrorMap, smallest_bound
from dpcvx.domains.p_norm_map import PNorm, conjugate_order
from dpcvx.errors import WrongValue
from dpcvx.gpu import BACKENDS, find_device
from dpcvx.vouched import ITERATIVE_ERROR, vouched


def sides(d: Shape) -> tuple[int, int]:
    """Return the numbers of rows and columns of a parameter of shape d; a vector is one column."""
    shape = (d,) if isinstance(d, int) else d
    if len(shape) > 2:
        raise WrongValue(f"NuclearBall needs a vector or a matrix; got shape {shape}.")
    return (shape[0], 1) if len(shape) == 1 else (shape[0], shape[1])


def _singular_moments(m: int, n: int) -> tuple[float, float, float, float]:
    """Return E sum_j sigma_j^p for p = 2, 4, 6, 8 of m by n standard normal entries (Wishart moments)."""
    s, q = float(m + n), float(m * n)
    return (
        q,
        q * (s + 1),
        q * (s**2 + q + 3 * s + 4),
        q * (s**3 + 3 * q * s + 6 * s**2 + 5 * q + 21 * s + 20),
    )


@vouched("minimisers", prox_error=ITERATIVE_ERROR)
@dataclass(frozen=True)
class NuclearBall(Ball):
    """Ball of low-rank matrices, of any shape (d, K).

    C = {theta : sum_j sigma_j(theta) <= radius}, sigma_j the singular values

    Parameters
    ----------
    radius : float
        Positive and finite.
    backend : {"auto", "torch"}
        Where linear functions are minimised: "torch" is a GPU, if there is one. It is no part of the set, and
        the minimisers agree up to 1e-8 of the least value.

    Notes
    -----
    A vector is a matrix of one column, for which this is the Euclidean ball.
    """

    radius: float
    backend: str = field(default="auto", repr=False, compare=False)

    def __post_init__(self) -> None:
        check_radius("NuclearBall", self.radius)
        if self.backend not in BACKENDS:
            raise WrongValue(
                f"backend must be one of {', '.join(map(repr, BACKENDS))}, got {self.backend!r}."
            )
        if self.backend == "torch":
            find_device()  # say now if there is none

    def norm(self, ord: float, d: Shape) -> float:
        """Return the maximum over rank-one matrices: radius (d K)^(1/ord - 1/2), and radius for ord >= 2."""
        return self.radius * math.pow(size_of(d), max(1 / ord - 0.5, 0.0))

    def gaussian_width(self, d: Shape) -> float:
        """Return radius (sqrt(d) + sqrt(K)) >= radius E sigma_1(g) (Gordon), and radius sqrt(d) if K = 1."""
        m, n = sorted(sides(d))
        return self.radius * (math.sqrt(n) + (math.sqrt(m) if m > 1 else 0.0))

    def minkowski(self, theta: Vector) -> float:
        """Return the nuclear norm over radius."""
        return float(self.magnitudes(theta)[0].sum()) / self.radius

    def project(self, v: Vector) -> Vector:
        """Return v with its singular values shrunk by one common amount."""
        sizes, rebuild = self.magnitudes(v)
        return v.copy() if sizes.sum() <= self.radius else rebuild(project_to_simplex(sizes, self.radius))

    def lmo(self, g: Vector) -> Vector:
        """Return -radius times the outer product of the leading singular vectors."""
        device = find_device() if self.backend == "torch" else None
        if device is not None:
            from dpcvx.gpu.spectrum import leading_pair

            left, right = leading_pair(g.reshape(sides(g.shape)), device)
            return np.multiply.outer(-self.radius * left, right).reshape(g.shape)
        sizes, rebuild = self.magnitudes(g)
        return rebuild(np.where(np.arange(sizes.size) == 0, -self.radius, 0.0))

    def magnitudes(self, v: Vector) -> tuple[Vector, Callable[[Vector], Vector]]:
        """Return the singular values, and the map from new ones to a matrix with v's singular vectors."""
        left, sizes, right = np.linalg.svd(v.reshape(sides(v.shape)), full_matrices=False)
        return sizes, lambda new: ((left * new) @ right).reshape(v.shape)

    def n_magnitudes(self, d: Shape) -> int:
        """Return min(d, K)."""
        return min(sides(d))

    def noise_norm(self, order: float, d: Shape) -> float:
        """Return the smaller of M(order)^(2/order), M(p) = E sum_j sigma_j(g)^p, and a bound by sigma_1.

        By Jensen the first is E||g||^2 or more. M is exact for p = 2, 4, 6, 8, log-convex in between, and the
        norm only falls beyond. The second, min(d, K)^(2/order) (w^2 + 1) with w = sqrt(d) + sqrt(K), bounds
        every singular value by the largest: its mean is at most w, its variance at most 1 (Poincare).
        """
        moments, p = _singular_moments(*sides(d)), min(order, 8.0)
        k = min(int(p / 2), 3)
        t = p / 2 - k
        spread = math.pow(moments[k - 1], (1 - t) * 2 / p) * math.pow(moments[k], t * 2 / p)
        width = NuclearBall(1.0).gaussian_width(d)
        return min(spread, math.pow(self.n_magnitudes(d), 2 / order) * (width**2 + 1))

    def mirror_map(self, d: Shape) -> MirrorMap:
        """Return the p-norm map of the singular values, or the Euclidean one where that is better."""
        return smallest_bound([Euclidean(self), PNorm(self, conjugate_order(self.n_magnitudes(d)))], d)
