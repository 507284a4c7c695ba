"""A Euclidean ball in which linear functions of some entries are bounded."""

import math
from dataclasses import dataclass

import numpy as np

from dpcvx.arrays import Shape, Vector
from dpcvx.domains.balls import Ball, check_radius, size_of
from dpcvx.errors import WrongValue

__all__ = ["LimitedBall", "ShapeLimit"]

HALVINGS = 60  # bisections that find the multiplier of the ball to the last bits


@dataclass(frozen=True)
class ShapeLimit:
    """Bound on a shape: |<p, theta_B>| <= limit at each point p, entries B perhaps of one sign.

    `places`: the entries B, the features of one column; `points`: values of these features, one row for each
    point of the shape; `limit`: positive, infinite for no bound; `sign`: 1 or -1 if no entry may have another
    one, 0 if all may.
    """

    places: tuple[int, ...]
    points: tuple[tuple[float, ...], ...]
    limit: float
    sign: int = 0

    def __post_init__(self) -> None:
        if not self.limit > 0 or any(len(point) != len(self.places) for point in self.points):
            raise WrongValue(f"A shape needs a positive limit and points of its own entries; got {self}.")

    def gauge(self, entries: Vector) -> float:
        """Return the largest |<p, theta_B>| / limit, infinite where a sign is wrong."""
        if not np.array_equal(self._signed(entries), entries):
            return math.inf
        return float(np.abs(np.array(self.points) @ entries).max(initial=0.0)) / self.limit

    def nearest(self, entries: Vector) -> Vector:
        """Return the nearest entries within the bound: least distance programming by non-negative squares.

        Lawson and Hanson (1974), chapter 23: the shortest shift z with G z >= h is read from the residual
        of the non-negative least squares problem with matrix (G, h)^T and right-hand side (0, ..., 0, 1).
        """
        from scipy.optimize import nnls

        signed = self._signed(entries)
        if self.gauge(signed) <= 1:
            return signed
        points = np.array(self.points) / self.limit
        size = max(1.0, float(np.abs(points @ entries).max()))  # in units of which shifts are neither
        signs = self.sign * np.eye(len(entries)) if self.sign else np.empty((0, len(entries)))
        lower = np.concatenate([-points, points, signs])
        needed = np.concatenate([points @ entries - 1, -points @ entries - 1, -signs @ entries]) / size
        target = np.append(np.zeros(len(entries)), 1.0)
        matrix = np.vstack([lower.T, needed])
        residual = matrix @ nnls(matrix, target)[0] - target
        found = self._signed(entries - size * residual[:-1] / residual[-1])
        return found / max(1.0, self.gauge(found))  # rounding leaves it a few units outside

    def _signed(self, entries: Vector) -> Vector:
        return entries if self.sign == 0 else self.sign * np.maximum(self.sign * entries, 0.0)


@dataclass(frozen=True)
class LimitedBall(Ball):
    """Part of a Euclidean ball where the shapes of some columns are bounded, and perhaps monotone.

    C = {theta : ||theta||_2 <= radius, |<p, theta_B>| <= limit for each point p of each limit}

    Parameters
    ----------
    radius : float
        Positive and finite.
    limits : tuple of ShapeLimit
        No entry is in two of them. For a matrix parameter their places are its rows, and each column of it
        is bounded alike.
    """

    radius: float
    limits: tuple[ShapeLimit, ...] = ()

    def __post_init__(self) -> None:
        check_radius("LimitedBall", self.radius)
        places = [place for limit in self.limits for place in limit.places]
        if len({*places}) < len(places):
            raise WrongValue("LimitedBall needs limits of different entries.")

    def norm(self, ord: float, d: Shape) -> float:
        """Return the norm of the whole ball, a bound."""
        return self.radius * math.pow(size_of(d), max(1 / ord - 0.5, 0.0))

    def gaussian_width(self, d: Shape) -> float:
        """Return radius sqrt(d), a bound: that of the whole ball."""
        return self.radius * math.sqrt(size_of(d))

    def minkowski(self, theta: Vector) -> float:
        """Return the largest of ||theta||_2 / radius and the gauges of the limits."""
        parts = theta.reshape(len(theta), -1).T
        gauges = [limit.gauge(part[list(limit.places)]) for limit in self.limits for part in parts]
        return max(float(np.linalg.norm(np.ravel(theta))) / self.radius, *gauges, 0.0)

    def project(self, v: Vector) -> Vector:
        """Return the nearest point: that of the limits for v/(1 + a), the least a >= 0 that the ball allows.

        The multiplier of the ball's constraint scales v, and the norm falls as it grows.
        """
        found = self._limited(v)
        if float(np.linalg.norm(np.ravel(found))) <= self.radius:
            return found
        low, high = 0.0, 1.0  # of 1/(1 + a)
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            inside = float(np.linalg.norm(np.ravel(self._limited(middle * v)))) <= self.radius
            low, high = (middle, high) if inside else (low, middle)
        return self._limited(low * v)

    def _limited(self, v: Vector) -> Vector:
        found = np.array(v, dtype=np.float64)
        parts = found.reshape(len(found), -1)
        for limit in self.limits:
            for k in range(parts.shape[1]):
                parts[list(limit.places), k] = limit.nearest(parts[list(limit.places), k])
        return found
