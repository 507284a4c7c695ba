"""Norm balls and boxes."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dpcvx.arrays import Shape, Vector
from dpcvx.domains.domain import Domain
from dpcvx.domains.mirror import Euclidean, MirrorMap, smallest_bound
from dpcvx.domains.p_norm_map import PNorm, conjugate_order
from dpcvx.domains.projection_form import ProjectionForm
from dpcvx.errors import WrongValue
from dpcvx.vouched import vouched


def size_of(d: Shape) -> int:
    """Return the number of entries of a parameter of shape d."""
    return int(np.prod(d))


def check_radius(domain: str, radius: float) -> None:
    """Raise ValueError unless the radius is a positive finite number."""
    if not 0 < radius < math.inf:
        raise WrongValue(f"{domain} needs a finite radius > 0; got radius={radius}.")


def unit_vector(i: int, value: float, d: Shape) -> Vector:
    """Return the array of shape d that is `value` at flat index i and 0 elsewhere."""
    e = np.zeros(d)
    e.flat[i] = value
    return e


def normal_moment(order: float, k: int = 1) -> float:
    """Return E||g||_2^order for k standard normal entries: 2^(order/2) Gamma((k + order)/2) / Gamma(k/2)."""
    return math.exp(order / 2 * math.log(2) + math.lgamma((k + order) / 2) - math.lgamma(k / 2))


def project_to_simplex(v: Vector, radius: float) -> Vector:
    """Return the projection of a flat v onto {s >= 0, sum s = radius}: max(v - tau, 0), tau by sorting."""
    v = v - v.max()  # moves tau alone, and keeps the radius visible beside huge entries
    u = np.sort(v)[::-1]
    excess = np.cumsum(u) - radius
    kept = int(np.flatnonzero(u * np.arange(1, u.size + 1) > excess)[-1])
    projected: Vector = np.maximum(v - excess[kept] / (kept + 1), 0.0)
    return projected


class Ball(Domain, Protocol):
    """A ball about 0 of a norm, which its gauge `minkowski` and its largest norms describe."""

    def contains(self, theta: Vector, tol: float = 1e-9) -> bool:
        """Return whether the norm of theta is at most radius (1 + tol)."""
        return self.minkowski(theta) <= 1 + tol

    def start(self, d: Shape) -> Vector:
        """Return 0."""
        return np.zeros(d)

    def diameter(self, ord: float, d: Shape) -> float:
        """Return twice the norm, between opposite points."""
        return 2 * self.norm(ord, d)


@vouched("minimisers", "queries")
@dataclass(frozen=True)
class L2Ball(Ball):
    """Euclidean ball.

    C = {theta : ||theta||_2 <= radius}

    Parameters
    ----------
    radius : float
        Positive and finite.
    """

    radius: float

    def __post_init__(self) -> None:
        check_radius("L2Ball", self.radius)

    def with_euclidean_radius(self, radius: float) -> "L2Ball":
        """Return the ball of another radius."""
        return L2Ball(radius)

    def support(self, X: Vector) -> Vector:
        """Return radius ||x||_2 of every row x."""
        lengths: Vector = self.radius * np.linalg.norm(X, axis=1)
        return lengths

    def norm(self, ord: float, d: Shape) -> float:
        """Return radius for ord >= 2, and radius d^(1/ord - 1/2) below, attained on the diagonal."""
        return self.radius * math.pow(size_of(d), max(1 / ord - 0.5, 0.0))

    def gaussian_width(self, d: Shape) -> float:
        """Return radius sqrt(d) >= radius E||g||_2."""
        return self.radius * math.sqrt(size_of(d))

    def minkowski(self, theta: Vector) -> float:
        """Return ||theta||_2 / radius."""
        return float(np.linalg.norm(np.ravel(theta))) / self.radius

    def project(self, v: Vector) -> Vector:
        """Return v, scaled back to the sphere if it is outside."""
        return v / max(1.0, self.minkowski(v))

    def projection_form(self, d: int) -> ProjectionForm:
        """Return the ball, all entries being one group."""
        return ProjectionForm.of_ball(self.radius, np.zeros(d, dtype=np.int64))

    def lmo(self, g: Vector) -> Vector:
        """Return -radius g / ||g||_2, and 0 for g = 0."""
        size = float(np.linalg.norm(np.ravel(g)))
        return np.zeros(g.shape) if size == 0 else -(g / size) * self.radius

    def mirror_map(self, d: Shape) -> MirrorMap:
        """Return the Euclidean map."""
        return Euclidean(self)


@vouched("minimisers", "queries")
@dataclass(frozen=True)
class L1Ball(Ball):
    """Cross-polytope, the set of the LASSO.

    C = {theta : ||theta||_1 <= radius}; vertex i is radius e_i for i < d, and -radius e_(i-d) beyond

    Parameters
    ----------
    radius : float
        Positive and finite.
    """

    radius: float

    def __post_init__(self) -> None:
        check_radius("L1Ball", self.radius)

    def with_l1_radius(self, radius: float) -> "L1Ball":
        """Return the ball of another radius."""
        return L1Ball(radius)

    def support(self, X: Vector) -> Vector:
        """Return radius ||x||_inf of every row x."""
        lengths: Vector = self.radius * np.abs(X).max(axis=1)
        return lengths

    def norm(self, ord: float, d: Shape) -> float:
        """Return radius, attained at a vertex."""
        return float(self.radius)

    def gaussian_width(self, d: Shape) -> float:
        """Return radius sqrt(2 log(2 d)) >= radius E max |g_j|."""
        return self.radius * math.sqrt(2 * math.log(2 * size_of(d)))

    def minkowski(self, theta: Vector) -> float:
        """Return ||theta||_1 / radius."""
        return float(np.abs(theta).sum()) / self.radius

    def project(self, v: Vector) -> Vector:
        """Return v with its entries shrunk towards 0 by one common amount."""
        if self.minkowski(v) <= 1:
            return v.copy()
        shrunk = project_to_simplex(np.abs(v).ravel(), self.radius)
        return np.copysign(shrunk.reshape(v.shape), v)

    def projection_form(self, d: int) -> ProjectionForm:
        """Return the ball, each entry being a group of its own."""
        return ProjectionForm.of_ball(self.radius, np.arange(d))

    def lmo(self, g: Vector) -> Vector:
        """Return the vertex against the largest entry of g."""
        i = int(np.abs(g).argmax())
        return unit_vector(i, -self.radius if g.flat[i] > 0 else self.radius, g.shape)

    def n_vertices(self, d: Shape) -> int:
        """Return 2 d."""
        return 2 * size_of(d)

    def vertex(self, i: int, d: Shape) -> Vector:
        """Return radius e_i, or -radius e_(i-d)."""
        size = size_of(d)
        return unit_vector(i, self.radius, d) if i < size else unit_vector(i - size, -self.radius, d)

    def coordinate(self, i: int, d: Shape) -> tuple[int, float]:
        """Return (i, radius), or (i - d, -radius)."""
        size = size_of(d)
        return (i, self.radius) if i < size else (i - size, -self.radius)

    def vertex_scores(self, g: Vector) -> Vector:
        """Return radius g, then -radius g."""
        scores = self.radius * np.ravel(g)
        return np.concatenate([scores, -scores])

    def magnitudes(self, v: Vector) -> tuple[Vector, Callable[[Vector], Vector]]:
        """Return the absolute values, and the map from new ones to an array with the signs of v."""
        return np.abs(v).ravel(), lambda sizes: np.copysign(sizes.reshape(v.shape), v)

    def n_magnitudes(self, d: Shape) -> int:
        """Return d."""
        return size_of(d)

    def noise_norm(self, order: float, d: Shape) -> float:
        """Return (d E|g|^order)^(2/order), which is E||g||_order^2 or more (Jensen)."""
        return math.pow(size_of(d) * normal_moment(order), 2 / order)

    def mirror_map(self, d: Shape) -> MirrorMap:
        """Return the p-norm map, or the Euclidean one in the few dimensions where that is better."""
        return smallest_bound([Euclidean(self), PNorm(self, conjugate_order(size_of(d)))], d)


@vouched("minimisers", "queries")
@dataclass(frozen=True)
class LinfBall(Ball):
    """Cube centred at 0.

    C = {theta : max_j |theta_j| <= radius}

    Parameters
    ----------
    radius : float
        Positive and finite.
    """

    radius: float

    def __post_init__(self) -> None:
        check_radius("LinfBall", self.radius)

    def support(self, X: Vector) -> Vector:
        """Return radius ||x||_1 of every row x."""
        lengths: Vector = self.radius * np.abs(X).sum(axis=1)
        return lengths

    def norm(self, ord: float, d: Shape) -> float:
        """Return radius d^(1/ord), attained at a corner."""
        return self.radius * math.pow(size_of(d), 1 / ord)

    def gaussian_width(self, d: Shape) -> float:
        """Return radius d sqrt(2/pi) = radius E||g||_1."""
        return self.radius * size_of(d) * math.sqrt(2 / math.pi)

    def minkowski(self, theta: Vector) -> float:
        """Return max_j |theta_j| / radius."""
        return float(np.abs(theta).max()) / self.radius

    def project(self, v: Vector) -> Vector:
        """Return v with its entries clipped."""
        return np.clip(v, -self.radius, self.radius)

    def projection_form(self, d: int) -> ProjectionForm:
        """Return the box of all entries up to the radius."""
        return ProjectionForm.of_box(np.full(d, -self.radius), np.full(d, self.radius))

    def lmo(self, g: Vector) -> Vector:
        """Return the corner with the signs of -g."""
        return np.where(g > 0, -self.radius, self.radius)

    def mirror_map(self, d: Shape) -> MirrorMap:
        """Return the Euclidean map."""
        return Euclidean(self)


@vouched("minimisers", "queries")
@dataclass(frozen=True)
class Box:
    """Box with sides along the axes, anywhere.

    C = {theta : low_j <= theta_j <= high_j}

    Parameters
    ----------
    low, high : float or sequence of float
        Bounds common to all entries, or one per entry (row order for a matrix); low < high, all finite.

    Notes
    -----
    The box need not contain 0. Its gauge is then infinite outside the cone over it.
    """

    low: float | Sequence[float]
    high: float | Sequence[float]

    def __post_init__(self) -> None:
        # Tuples rather than arrays, so that equal boxes compare and hash alike.
        for field in ("low", "high"):
            bound = np.asarray(getattr(self, field), dtype=np.float64)
            if bound.ndim > 1 or not np.isfinite(bound).all():
                raise WrongValue(
                    f"Box needs {field} finite, a number or flat sequence; got {bound.tolist()}."
                )
            object.__setattr__(self, field, tuple(bound.tolist()) if bound.ndim else float(bound))
        low, high = np.asarray(self.low), np.asarray(self.high)
        if low.ndim and high.ndim and low.size != high.size:
            raise WrongValue(f"Box needs as many low as high bounds; got {low.size} and {high.size}.")
        if max(low.size, high.size) == 0 or not (low < high).all():
            raise WrongValue(f"Box needs low < high in every entry; got low={self.low}, high={self.high}.")

    def contains(self, theta: Vector, tol: float = 1e-9) -> bool:
        """Return whether every entry is within tol (high_j - low_j) of its interval."""
        low, high = self._sides(theta.shape)
        slack = tol * (high - low)
        return bool(((theta >= low - slack) & (theta <= high + slack)).all())

    def start(self, d: Shape) -> Vector:
        """Return the point of the box that is closest to 0."""
        return self.project(np.zeros(d))

    def norm(self, ord: float, d: Shape) -> float:
        """Return the norm of the corner that is farthest from 0."""
        low, high = self._sides(d)
        return float(np.linalg.norm(np.maximum(np.abs(low), np.abs(high)).ravel(), ord))

    def diameter(self, ord: float, d: Shape) -> float:
        """Return the norm of the diagonal."""
        low, high = self._sides(d)
        return float(np.linalg.norm((high - low).ravel(), ord))

    def gaussian_width(self, d: Shape) -> float:
        """Return sum_j (high_j - low_j) / sqrt(2 pi), which is exact."""
        low, high = self._sides(d)
        return float((high - low).sum()) / math.sqrt(2 * math.pi)

    def minkowski(self, theta: Vector) -> float:
        """Return the smallest t >= 0 with t low <= theta <= t high, or infinity."""
        low, high = self._sides(theta.shape)
        # Each side is a t <= b: a lower limit b / a on t where a < 0, an upper one where a > 0.
        a = np.concatenate([low.ravel(), -high.ravel()])
        b = np.concatenate([theta.ravel(), -theta.ravel()])
        smallest = max(0.0, float(np.max(b[a < 0] / a[a < 0], initial=0.0)))
        largest = float(np.min(b[a > 0] / a[a > 0], initial=math.inf))
        return smallest if smallest <= largest and bool((b[a == 0] >= 0).all()) else math.inf

    def project(self, v: Vector) -> Vector:
        """Return v with its entries clipped."""
        low, high = self._sides(v.shape)
        return np.clip(v, low, high)

    def projection_form(self, d: int) -> ProjectionForm:
        """Return the box itself."""
        far = np.full(d, np.inf)
        return ProjectionForm.of_box(self.project(-far), self.project(far))

    def lmo(self, g: Vector) -> Vector:
        """Return the corner that is low where g > 0 and high elsewhere."""
        low, high = self._sides(g.shape)
        return np.where(g > 0, low, high)

    def mirror_map(self, d: Shape) -> MirrorMap:
        """Return the Euclidean map."""
        return Euclidean(self)

    def _sides(self, d: Shape) -> tuple[Vector, Vector]:
        """Return low and high as arrays of shape d."""
        sides = []
        for field, bound in (("low", np.asarray(self.low)), ("high", np.asarray(self.high))):
            if bound.ndim and bound.size != size_of(d):
                raise WrongValue(
                    f"Box has {bound.size} bounds {field}; the parameter has {size_of(d)} entries."
                )
            sides.append(bound.reshape(d) if bound.ndim else np.full(d, bound))
        return sides[0], sides[1]
