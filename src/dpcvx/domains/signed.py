"""A Euclidean ball in which some entries have a given sign."""

import math
from dataclasses import dataclass

import numpy as np

from dpcvx.arrays import Shape, Vector
from dpcvx.domains.balls import Ball, check_radius, size_of
from dpcvx.errors import WrongValue


@dataclass(frozen=True)
class SignedBall(Ball):
    """Part of a Euclidean ball where entries that are named are not negative, or not positive.

    C = {theta : ||theta||_2 <= radius, theta_j >= 0 for j in up, theta_j <= 0 for j in down}

    Coefficients of ramps that are not negative make a shape that never falls.

    Parameters
    ----------
    radius : float
        Positive and finite.
    up, down : tuple of int
        Places of entries; for a matrix parameter its rows. A place beyond the parameter constrains nothing.
    """

    radius: float
    up: tuple[int, ...] = ()
    down: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_radius("SignedBall", self.radius)
        if {*self.up} & {*self.down} or min((*self.up, *self.down), default=0) < 0:
            raise WrongValue("SignedBall needs places from 0 on, each either in up or in down.")

    def norm(self, ord: float, d: Shape) -> float:
        """Return the norm of the whole ball, as reflections change no norm; a diameter is a bound."""
        return self.radius * math.pow(size_of(d), max(1 / ord - 0.5, 0.0))

    def gaussian_width(self, d: Shape) -> float:
        """Return radius sqrt(d), a bound: that of the whole ball."""
        return self.radius * math.sqrt(size_of(d))

    def minkowski(self, theta: Vector) -> float:
        """Return ||theta||_2 / radius, infinite where a sign is wrong."""
        if not np.array_equal(self._signed(theta), theta):
            return math.inf
        return float(np.linalg.norm(np.ravel(theta))) / self.radius

    def project(self, v: Vector) -> Vector:
        """Return v with wrong signs set to 0, then scaled back to the sphere if it is outside.

        The projection onto a cone followed by that onto a ball about its apex is the one onto both.
        """
        signed = self._signed(v)
        return signed / max(1.0, float(np.linalg.norm(np.ravel(signed))) / self.radius)

    def lmo(self, g: Vector) -> Vector:
        """Return the point against the part of g that the signs allow."""
        allowed = self._signed(-g)
        size = float(np.linalg.norm(np.ravel(allowed)))
        return np.zeros(g.shape) if size == 0 else allowed / size * self.radius

    def _signed(self, v: Vector) -> Vector:
        signed = np.array(v, dtype=np.float64)
        up, down = ([j for j in places if j < len(signed)] for places in (self.up, self.down))
        signed[up] = np.maximum(signed[up], 0.0)
        signed[down] = np.minimum(signed[down], 0.0)
        return signed
