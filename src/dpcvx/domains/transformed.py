"""Scaled and translated sets."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq

from dpcvx.arrays import Shape, Vector
from dpcvx.domains.balls import size_of
from dpcvx.domains.domain import Domain
from dpcvx.domains.mirror import MirrorMap
from dpcvx.errors import WrongType, WrongValue
from dpcvx.vouched import ITERATIVE_ERROR, vouched

ABILITIES = ("project", "lmo", "n_vertices", "vertex", "vertex_scores", "mirror_map")


@vouched("minimisers", prox_error=ITERATIVE_ERROR, parts=lambda moved: (moved.domain,))
@dataclass(frozen=True)
class Transformed:
    """Another set, scaled and then moved.

    C = {shift + scale s : s in the other set}

    Parameters
    ----------
    domain : Domain
        The other set.
    scale : float
        Positive and finite.
    shift : float or sequence of float
        Common to all entries, or one per entry (row order for a matrix), finite.

    Notes
    -----
    The set has the abilities of the other one and no more. Each is an attribute of the instance, made when
    the other set has it, so that a check for an ability tells the truth. Its vertices are multiples of unit
    vectors only where it is not moved.
    """

    domain: Domain
    scale: float = 1.0
    shift: float | Sequence[float] = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.scale < math.inf:
            raise WrongValue(f"Transformed needs a finite scale > 0; got scale={self.scale}.")
        shift = np.asarray(self.shift, dtype=np.float64)
        if shift.ndim > 1 or not np.isfinite(shift).all():
            raise WrongValue(
                f"Transformed needs a finite shift, a number or flat sequence; got {shift.tolist()}."
            )
        object.__setattr__(self, "shift", tuple(shift.tolist()) if shift.ndim else float(shift))
        abilities = ABILITIES if shift.any() else (*ABILITIES, "coordinate")
        for name in abilities:
            if hasattr(self.domain, name):
                object.__setattr__(self, name, getattr(self, f"_{name}"))

    def __reduce__(self) -> tuple[Any, ...]:
        return Transformed, (self.domain, self.scale, self.shift)  # the abilities are made anew

    def contains(self, theta: Vector, tol: float = 1e-9) -> bool:
        """Return whether the other set contains the point that theta comes from."""
        return self.domain.contains(self._back(theta), tol)

    def start(self, d: Shape) -> Vector:
        """Return the image of the other set's start."""
        return self._there(self.domain.start(d))

    def norm(self, ord: float, d: Shape) -> float:
        """Return an upper bound by the triangle inequality, from 0 or from the start if that is smaller."""
        shift, start = self._offset(d), self.start(d)
        return min(
            self.scale * self.domain.norm(ord, d) + float(np.linalg.norm(shift.ravel(), ord)),
            self.diameter(ord, d) + float(np.linalg.norm(start.ravel(), ord)),
        )

    def diameter(self, ord: float, d: Shape) -> float:
        """Return scale times the other set's."""
        return self.scale * self.domain.diameter(ord, d)

    def gaussian_width(self, d: Shape) -> float:
        """Return scale times the other set's: E<g, shift> = 0."""
        return self.scale * self.domain.gaussian_width(d)

    def minkowski(self, theta: Vector) -> float:
        """Return the least t >= 0 with theta in t C, or infinity.

        With x(a) = (a theta - shift) / scale it is 1 / a for the largest a with x(a) in the other set. How
        far x(a) is outside is convex in a: its least value, then its last zero, are found by search.
        """
        shift = self._offset(theta.shape)
        if not theta.any():
            return 0.0
        if not shift.any():
            return self.domain.minkowski(theta) / self.scale
        size = float(np.linalg.norm(theta.ravel()))
        unit = theta / size
        reach = self.norm(2, theta.shape)  # beyond it a unit is outside for certain
        around_zero = self.domain.contains(np.zeros_like(theta))
        if not around_zero and not hasattr(self.domain, "project"):
            raise WrongType(
                "The gauge of a moved set needs a domain that contains 0 or has HasProjection; "
                f"{type(self.domain).__name__} does not."
            )

        def outside(a: float) -> float:
            x = (a * unit - shift) / self.scale
            if around_zero:
                return self.domain.minkowski(x) - 1
            distance = float(np.linalg.norm((x - self._other.project(x)).ravel()))
            return distance * self.scale / reach - 1e-12

        low, high, least = 0.0, reach, outside(0.0)
        while least > 0 and high - low > 1e-15 * reach:  # thirds, until low is inside
            left, right = (2 * low + high) / 3, (low + 2 * high) / 3
            value = outside(left)
            if value > 0 and value <= outside(right):
                high = right
            else:
                low, least = left, value
        if least > 1e-9:
            return math.inf
        if least > 0:  # the ray only touches the set
            return size / low
        return size / float(brentq(outside, low, 1.01 * reach, xtol=1e-300, rtol=1e-15))

    def _project(self, v: Vector) -> Vector:
        """Return the image of the other set's projection."""
        return self._there(self._other.project(self._back(v)))

    def _lmo(self, g: Vector) -> Vector:
        """Return the image of the other set's minimiser."""
        return self._there(self._other.lmo(g))

    def _n_vertices(self, d: Shape) -> int:
        """Return the other set's number."""
        return int(self._other.n_vertices(d))

    def _vertex(self, i: int, d: Shape) -> Vector:
        """Return the image of the other set's vertex."""
        return self._there(self._other.vertex(i, d))

    def _vertex_scores(self, g: Vector) -> Vector:
        """Return scale times the other set's scores, plus <g, shift>."""
        scores: Vector = self.scale * self._other.vertex_scores(g) + float((g * self._offset(g.shape)).sum())
        return scores

    def _coordinate(self, i: int, d: Shape) -> tuple[int, float]:
        """Return the other set's coordinate, scaled."""
        j, value = self._other.coordinate(i, d)
        return j, self.scale * value

    def _mirror_map(self, d: Shape) -> MirrorMap:
        """Return the image of the other set's map."""
        return TransformedMap(self._other.mirror_map(d), self)

    @property
    def _other(self) -> Any:
        """The other set, of which an ability has been checked."""
        return self.domain

    def _offset(self, d: Shape) -> Vector:
        shift = np.asarray(self.shift)
        if shift.ndim and shift.size != size_of(d):
            raise WrongValue(
                f"Transformed has a shift of {shift.size} entries; the parameter has {size_of(d)}."
            )
        return shift.reshape(d) if shift.ndim else np.full(d, shift)

    def _there(self, s: Vector) -> Vector:
        return self._offset(s.shape) + self.scale * s

    def _back(self, theta: Vector) -> Vector:
        return (theta - self._offset(theta.shape)) / self.scale


@dataclass(frozen=True)
class TransformedMap:
    """Mirror map of a transformed set.

    psi(theta) = scale^2 psi_0((theta - shift) / scale), strongly convex with the modulus and norm of psi_0

    Notes
    -----
    A moved point holds small entries of the one it comes from to few digits. Where psi_0 is steep there, as
    the entropy is, only steps from the start are exact (see `dpcvx.domains.mirror`).
    """

    base: MirrorMap  # the other set's map psi_0
    domain: Transformed  # the set C that steps stay in

    @property
    def strong_convexity(self) -> float:
        """The modulus of psi_0."""
        return self.base.strong_convexity

    def norm(self, v: Vector) -> float:
        """Return psi_0's norm of v."""
        return self.base.norm(v)

    def bregman(self, u: Vector, v: Vector) -> float:
        """Return scale^2 times the divergence of the points that u and v come from."""
        return self.domain.scale**2 * self.base.bregman(self.domain._back(u), self.domain._back(v))

    def step(self, theta: Vector, g: Vector, eta: float) -> Vector:
        """Return the image of psi_0's step of length eta / scale."""
        return self.domain._there(self.base.step(self.domain._back(theta), g, eta / self.domain.scale))

    def divergence_bound(self, d: Shape) -> float:
        """Return scale^2 times psi_0's."""
        return self.domain.scale**2 * self.base.divergence_bound(d)

    def noise_norm(self, d: Shape) -> float:
        """Return psi_0's."""
        return self.base.noise_norm(d)

    def radius(self, ord: float, d: Shape) -> float:
        """Return psi_0's."""
        return self.base.radius(ord, d)
