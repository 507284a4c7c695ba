"""The mirror map of polytopes given by their vertices."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np

from dpcvx.arrays import Shape, Vector
from dpcvx.domains.balls import normal_moment
from dpcvx.domains.p_norm_map import conjugate_order, dual_gradient, power_norm

MOST_NEWTON_STEPS = 500


class Hull(Protocol):
    """The convex hull of given vertices."""

    @property
    def vertices(self) -> Vector:
        """The vertices, one in each row."""
        ...

    def contains(self, theta: Vector, tol: float = 1e-9) -> bool:
        """Return whether theta lies in the hull."""
        ...

    def project(self, v: Vector) -> Vector:
        """Return the nearest point of the hull."""
        ...


@dataclass(frozen=True)
class VertexNorm:
    """Mirror map of a polytope, from the smallest coefficients of a point in its vertices.

    psi(theta) = ||theta - c||_{Q,q}^2 / (2 (q - 1)), ||v||_{Q,q} = min{||a||_q : sum_i a_i (v_i - c) = v}

    Algorithm: [TTZ14] Fact 3.4 and Claim 3.5, with q = log k / (log k - 1) for k vertices, q = 2 where
    log k <= 2; it serves few vertices in many dimensions and many vertices in few.

    Utility: the conjugate of psi is ||V g||_p^2 / (2 (p - 1)), the rows of V being v_i - c; it is 1-smooth in
    ||V g||_p, the dual norm, so psi is 1-strongly convex in ||.||_{Q,q}. A point of C has coefficients that
    sum to 1, so psi <= (log k - 1) / 2 on C.

    Deviations: the vertices are taken from their mean c, where descent starts, so that psi is least there and
    Q is no larger than it must be; the paper's 4 is a 2 (see `PNorm`). The potential itself is used, not one
    on coefficients as the state: coefficients are not a function of theta, and a step from other coefficients
    would break the telescoping sum of divergences in the proof.

    Notes
    -----
    All sums are done in the r dimensions of the hull. With E = V in an orthonormal basis of them, grad psi is
    the u with E^T grad f(E u) = theta - c, f = ||.||_p^2 / (2 (p - 1)): Newton's method. A step solves the
    dual program max t - f(E u) subject to E (u - y) >= t, whose multipliers are the weights of the vertices:
    a primal-dual interior-point method in r + 1 variables. If q = 2, psi is quadratic and a step is the
    projection of L^T y onto the hull of the rows of E L^-T, with E^T E = L L^T.
    """

    domain: Hull  # the set C that steps stay in

    strong_convexity: ClassVar[float] = 1.0

    @cached_property
    def _centre(self) -> Vector:
        centre: Vector = self.domain.vertices.mean(axis=0)
        return centre

    @cached_property
    def _basis(self) -> Vector:
        """Orthonormal rows that span the hull, moved to 0."""
        centred = self.domain.vertices - self._centre
        _, sizes, rows = np.linalg.svd(centred, full_matrices=False)
        return rows[sizes > 1e-12 * max(float(sizes.max(initial=0.0)), 1e-300)]

    @cached_property
    def _rows(self) -> Vector:
        """E, the vertices in the basis."""
        return (self.domain.vertices - self._centre) @ self._basis.T

    @cached_property
    def _whitened(self) -> tuple[Hull, Vector]:
        """The hull of the rows of E L^-T, and L; if q = 2, psi is half the squared length of L^-1 u."""
        L: Vector = np.asarray(np.linalg.cholesky(self._rows.T @ self._rows), dtype=np.float64)
        hull_of: Any = type(self.domain)
        return hull_of(np.asarray(np.linalg.solve(L, self._rows.T).T, dtype=np.float64)), L

    @cached_property
    def _order(self) -> float:
        return conjugate_order(len(self.domain.vertices))

    def norm(self, v: Vector) -> float:
        """Return ||v||_{Q,q} of a direction v in the span of the hull."""
        x = self._rows @ self._dual(self._basis @ np.ravel(v))
        return power_norm(x, self._order) / (self._order - 1)

    def bregman(self, u: Vector, v: Vector) -> float:
        """Return the divergence, from psi and its gradient."""
        p = self._order
        a, b = self._coordinates(u), self._coordinates(v)
        duals = [self._dual(point) for point in (a, b)]
        psi = [power_norm(self._rows @ dual, p) ** 2 / (2 * (p - 1)) for dual in duals]
        return max(psi[0] - psi[1] - float(duals[1] @ (a - b)), 0.0)

    def step(self, theta: Vector, g: Vector, eta: float) -> Vector:
        """Return the free minimiser if it lies in C, else the vertices weighted by the dual program."""
        y = self._dual(self._coordinates(theta)) - eta * (self._basis @ np.ravel(g))
        coefficients = dual_gradient(self._rows @ y, self._order)
        free: Vector = self._centre + coefficients @ (self.domain.vertices - self._centre)
        if self.domain.contains(free.reshape(theta.shape), 1e-13):
            return free.reshape(theta.shape)
        best: Vector
        if self._order == 2:  # the step is a projection
            hull, L = self._whitened
            best = self._centre + L @ hull.project(L.T @ y) @ self._basis
        else:
            best = self._weights(y) @ self.domain.vertices
        return best.reshape(theta.shape)

    def divergence_bound(self, d: Shape) -> float:
        """Return 1 / (2 (q - 1))."""
        return (self._order - 1) / 2

    def noise_norm(self, d: Shape) -> float:
        """Return (sum_i s_i^p E|g|^p)^(2/p), s_i = ||v_i - c||_2, no less than E||V g||_p^2 (Jensen)."""
        p = self._order
        lengths = np.linalg.norm(self._rows, axis=1)
        return power_norm(lengths, p) ** 2 * math.pow(normal_moment(p), 2 / p)

    def radius(self, ord: float, d: Shape) -> float:
        """Return k^(1 - 1/q) max_i ||v_i - c||_ord, since ||a||_1 <= k^(1 - 1/q) ||a||_q (Claim 3.5)."""
        lengths = np.linalg.norm(self.domain.vertices - self._centre, ord, axis=1)
        return float(len(lengths) ** (1 / self._order) * lengths.max())

    def _coordinates(self, theta: Vector) -> Vector:
        return self._basis @ (np.ravel(theta) - self._centre)

    def _hessian(self, x: Vector) -> Vector:
        """Return E^T (Hessian of f at x) E; f is homogeneous, so only the direction of x counts."""
        p, E = self._order, self._rows
        shares = np.abs(x) / power_norm(x, p)
        slope = E.T @ (np.sign(x) * shares ** (p - 1))
        hessian: Vector = (E.T * shares ** (p - 2)) @ E - (p - 2) / (p - 1) * np.outer(slope, slope)
        # f is flat where an entry of x vanishes; a trace of curvature keeps the equations solvable.
        hessian[np.diag_indices_from(hessian)] += 1e-15 * np.trace(hessian)
        return hessian

    def _dual(self, point: Vector) -> Vector:
        """Return u with E^T grad f(E u) = point, by damped Newton steps on f(E u) - <u, point>."""
        p, E = self._order, self._rows
        size = float(np.linalg.norm(point))
        if size == 0:
            return np.zeros_like(point)
        target = point / size  # the answer is homogeneous in the point

        def value(u: Vector) -> float:
            return power_norm(E @ u, p) ** 2 / (2 * (p - 1)) - float(u @ target)

        u: Vector = (p - 1) * np.asarray(np.linalg.solve(E.T @ E, target))
        last = math.inf
        for _ in range(MOST_NEWTON_STEPS):
            slope = E.T @ dual_gradient(E @ u, p) - target
            move = -np.linalg.solve(self._hessian(E @ u), slope)
            fall, before, length = -float(slope @ move), value(u), 1.0
            if fall < 1e-20 * abs(before) and fall >= 0.5 * last:
                break  # only rounding is left
            while fall > 1e-14 * abs(before) and value(u + length * move) > before - 1e-4 * length * fall:
                length /= 2
            u, last = u + length * move, fall
        return size * u

    def _weights(self, y: Vector) -> Vector:
        """Return the weights w of the vertices at argmin_C psi - <y, .>, by an interior-point method."""
        p, E = self._order, self._rows
        k = len(E)
        size = power_norm(E @ y, p)
        u = y * min(1.0, (p - 1) / size)
        s = E @ (u - y)
        s += max(1.0, float(s.max() - s.min())) - s.min()
        w = np.full(k, 1.0 / k)
        last = math.inf
        for _ in range(MOST_NEWTON_STEPS):
            gap = float(w @ s) / k
            slope = E.T @ (dual_gradient(E @ u, p) - w)
            left = float(np.linalg.norm(slope))
            if gap * k < 1e-15 and (left < 1e-13 * np.abs(E).max() or left >= last):
                break  # solved, or only rounding is left
            last = left
            mu = max(0.1 * gap, 1e-17 / k)  # where f is flat the slope takes longer than the gap
            bend = w / s
            # Centring E eliminates the move of t; a single active vertex then leaves no huge term.
            mean, rest = bend @ E / bend.sum(), 1 - (mu / s).sum()
            centred = E - mean
            system = self._hessian(E @ u) + (centred.T * bend) @ centred
            # Near a vertex rounding may take the system's rank; its shortest solution is a step still.
            du = np.linalg.lstsq(system, E.T @ (mu / s - w) - slope + rest * mean, rcond=None)[0]
            ds = centred @ du - rest / bend.sum()  # s = E (u - y) - t, by its moves, to keep its digits
            dw = mu / s - w - bend * ds
            longest = min((-v[m < 0] / m[m < 0]).min(initial=np.inf) for v, m in ((s, ds), (w, dw)))
            length = min(1.0, 0.99 * longest)
            u, s, w = u + length * du, s + length * ds, w + length * dw
        weights: Vector = w / w.sum()
        return weights
