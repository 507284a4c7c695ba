"""Polytopes given by their vertices."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog, minimize_scalar, nnls
from scipy.special import logsumexp

from dpcvx.arrays import Shape, Vector
from dpcvx.domains.balls import check_radius, project_to_simplex, size_of, unit_vector
from dpcvx.domains.mirror import Entropy, Euclidean, MirrorMap, smallest_bound
from dpcvx.domains.projection_form import ProjectionForm
from dpcvx.domains.vertex_norm_map import VertexNorm
from dpcvx.errors import WrongValue
from dpcvx.vouched import vouched

HULL_ERROR = 1e-7  # of projections: where no slope is above 1e-14 the nearest point is within its root


@vouched("minimisers", "queries")
@dataclass(frozen=True)
class Simplex:
    """Scaled probability simplex.

    C = {theta : theta >= 0, sum_j theta_j = radius}; vertex i is radius e_i

    Parameters
    ----------
    radius : float
        Positive and finite.

    Notes
    -----
    The set is flat: its gauge is infinite for every theta with a negative entry.
    """

    radius: float = 1.0

    def __post_init__(self) -> None:
        check_radius("Simplex", self.radius)

    def contains(self, theta: Vector, tol: float = 1e-9) -> bool:
        """Return whether no entry is below -tol radius and the sum is radius (1 +- tol)."""
        slack = tol * self.radius
        return bool((theta >= -slack).all() and abs(theta.sum() - self.radius) <= slack)

    def start(self, d: Shape) -> Vector:
        """Return the centre."""
        return np.full(d, self.radius / size_of(d))

    def norm(self, ord: float, d: Shape) -> float:
        """Return radius, attained at a vertex."""
        return float(self.radius)

    def diameter(self, ord: float, d: Shape) -> float:
        """Return radius 2^(1/ord), between two vertices; 0 if there is only one."""
        return 0.0 if size_of(d) == 1 else self.radius * math.pow(2.0, 1 / ord)

    def gaussian_width(self, d: Shape) -> float:
        """Return radius sqrt(2 log d) >= radius E max g_j."""
        return self.radius * math.sqrt(2 * math.log(size_of(d)))

    def minkowski(self, theta: Vector) -> float:
        """Return sum_j theta_j / radius for theta >= 0, else infinity."""
        return float(theta.sum()) / self.radius if (theta >= 0).all() else math.inf

    def project(self, v: Vector) -> Vector:
        """Return v with a common amount taken off its entries and the negative ones set to 0."""
        return project_to_simplex(v.ravel(), self.radius).reshape(v.shape)

    def projection_form(self, d: int) -> ProjectionForm:
        """Return the simplex itself."""
        return ProjectionForm.of_simplex(self.radius, d)

    def lmo(self, g: Vector) -> Vector:
        """Return the vertex of the smallest entry of g."""
        return unit_vector(int(g.argmin()), self.radius, g.shape)

    def n_vertices(self, d: Shape) -> int:
        """Return d."""
        return size_of(d)

    def vertex(self, i: int, d: Shape) -> Vector:
        """Return radius e_i."""
        return unit_vector(i, self.radius, d)

    def coordinate(self, i: int, d: Shape) -> tuple[int, float]:
        """Return (i, radius)."""
        return i, self.radius

    def vertex_scores(self, g: Vector) -> Vector:
        """Return radius g."""
        return self.radius * np.ravel(g)

    def mirror_map(self, d: Shape) -> MirrorMap:
        """Return the entropy map, or the Euclidean one in the few dimensions where that is better."""
        return smallest_bound([Euclidean(self), Entropy(self.radius)], d)


@vouched("minimisers", prox_error=HULL_ERROR)
@dataclass(frozen=True, eq=False)
class VertexHull:
    """Convex hull of given points.

    C = {sum_i w_i v_i : w >= 0, sum_i w_i = 1}

    Parameters
    ----------
    vertices : array-like of shape (k, d)
        The points v_i, one per row; points that are no corner of the hull are allowed. For a matrix parameter
        each row lists its entries in row order.

    Notes
    -----
    The hull need not contain 0. Its gauge is then infinite outside the cone over it.
    """

    vertices: Vector

    def __post_init__(self) -> None:
        points = np.array(self.vertices, dtype=np.float64)
        if points.ndim != 2 or points.size == 0:
            raise WrongValue(f"VertexHull needs a non-empty array of shape (k, d); got shape {points.shape}.")
        if not np.isfinite(points).all():
            raise WrongValue("VertexHull needs finite vertices; some entries are infinite or not a number.")
        points += 0.0  # -0 becomes +0, so that equal points have equal bytes
        points.flags.writeable = False
        object.__setattr__(self, "vertices", points)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VertexHull) and np.array_equal(self.vertices, other.vertices)

    def __hash__(self) -> int:
        return hash((self.vertices.shape, self.vertices.tobytes()))

    def contains(self, theta: Vector, tol: float = 1e-9) -> bool:
        """Return whether the distance from theta to C is at most tol times the largest norm of a vertex."""
        distance = np.linalg.norm((theta - self.project(theta)).ravel())
        return bool(distance <= tol * self.norm(2, theta.shape))

    def start(self, d: Shape) -> Vector:
        """Return the mean of the vertices."""
        mean: Vector = self._rows(d).mean(axis=0)
        return mean.reshape(d)

    def norm(self, ord: float, d: Shape) -> float:
        """Return the largest norm of a vertex."""
        return float(np.linalg.norm(self._rows(d), ord, axis=1).max())

    def diameter(self, ord: float, d: Shape) -> float:
        """Return the largest distance between two vertices."""
        points = self._rows(d)
        return max(float(np.linalg.norm(points - point, ord, axis=1).max()) for point in points)

    def gaussian_width(self, d: Shape) -> float:
        """Return the smaller of two bounds on E max_i <g, v_i - c>, c the mean of the vertices.

        With s_i = ||v_i - c||_2 they are min_t log(sum_i e^(t^2 s_i^2 / 2)) / t, which is at most
        max_i s_i sqrt(2 log k), and max_i s_i sqrt(r), r the dimension of the hull.
        """
        points = self._rows(d)
        centred = points - points.mean(axis=0)
        s = np.linalg.norm(centred, axis=1)
        if not s.any():
            return 0.0
        s_max = float(s.max())
        rank = int(np.linalg.matrix_rank(centred))
        # Every t gives a valid bound, so the search over log t need not be exact.
        best = minimize_scalar(
            lambda u: float(logsumexp(0.5 * (math.exp(u) * s / s_max) ** 2)) * math.exp(-u),
            bounds=(-3.0, 3.0),
            method="bounded",
        )
        return s_max * min(float(best.fun), math.sqrt(rank))

    def minkowski(self, theta: Vector) -> float:
        """Return the least total weight w >= 0 with sum_i w_i v_i = theta (a linear program), or infinity."""
        points = self._rows(theta.shape)
        # Both sides are scaled to size 1, so that the solver's absolute tolerance is a relative one.
        size, reach = float(np.abs(points).max()) or 1.0, float(np.abs(theta).max()) or 1.0
        answer = linprog(
            np.ones(len(points)),
            A_eq=points.T / size,
            b_eq=np.ravel(theta) / reach,
            options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
        )
        return math.inf if answer.x is None else reach / size * float(answer.x.sum())

    def project(self, v: Vector) -> Vector:
        """Return the nearest point of the hull, by non-negative least squares.

        With p_i = (v_i - v) / size, minimise ||sum_i w_i p_i||^2 + (sum_i w_i - 1)^2 over w >= 0. For weights
        in fixed proportion, giving the point p of the hull of the p_i, the best sum leaves
        ||p||^2 / (1 + ||p||^2), which grows with ||p||; so the minimiser, normalised to sum 1, gives the
        nearest point exactly.
        """
        points = self._rows(v.shape)
        differences = points - np.ravel(v)
        size = float(np.abs(differences).max()) or 1.0
        system = np.vstack([differences.T / size, np.ones(len(points))])
        target = np.append(np.zeros(v.size), 1.0)
        weights = _least_squares(system, target)
        nearest: Vector = (weights / weights.sum()) @ points
        return nearest.reshape(v.shape)

    def lmo(self, g: Vector) -> Vector:
        """Return the vertex with the smallest score."""
        return self.vertex(int(self.vertex_scores(g).argmin()), g.shape)

    def n_vertices(self, d: Shape) -> int:
        """Return k."""
        return len(self._rows(d))

    def vertex(self, i: int, d: Shape) -> Vector:
        """Return v_i."""
        point: Vector = self._rows(d)[i].copy()
        return point.reshape(d)

    def vertex_scores(self, g: Vector) -> Vector:
        """Return <g, v_i> for every i."""
        return self._rows(g.shape) @ np.ravel(g)

    def mirror_map(self, d: Shape) -> MirrorMap:
        """Return the map of the smallest vertex coefficients, or the Euclidean one where that is better."""
        return smallest_bound([Euclidean(self), VertexNorm(self)], d)

    def _rows(self, d: Shape) -> Vector:
        """Return the vertices as rows, after checking that they fit a parameter of shape d."""
        points = self.vertices
        if points.shape[1] != size_of(d):
            raise WrongValue(
                f"VertexHull has vertices with {points.shape[1]} entries; the parameter has {size_of(d)}. "
                "Give one column per coefficient, the intercept included."
            )
        return points


def _least_squares(A: Vector, b: Vector) -> Vector:
    """Return argmin ||A w - b||_2 over w >= 0.

    Where columns tie, SciPy's solver sometimes ends far from the answer; the slopes there tell. Then the same
    method (Lawson and Hanson, 1974) runs with a fresh factorisation each time: it takes in the column that
    brings A w nearer fastest and goes towards the best weights of all columns held, dropping those whose
    weight reaches 0.
    """
    enough = 1e-15 * len(b)
    w, _ = nnls(A, b, maxiter=30 * A.shape[1])
    slopes = A.T @ (b - A @ w)
    if max(slopes.max(), np.abs(slopes[w > 0]).max(initial=0.0)) <= enough:
        return w
    w = best = np.zeros(A.shape[1])
    least = math.inf
    while np.linalg.norm(left := b - A @ w) < least:
        best, least, slopes = w, float(np.linalg.norm(left)), A.T @ left
        if slopes.max() <= enough:
            break
        held = w > 0
        held[slopes.argmax()] = True
        while True:
            goal = np.zeros_like(w)
            goal[held] = np.linalg.lstsq(A[:, held], b, rcond=None)[0]
            falling = np.flatnonzero(held & (goal <= 0))
            if not falling.size:
                break
            ratios = w[falling] / (w[falling] - goal[falling])
            w = w + float(ratios.min()) * (goal - w)
            w[falling[ratios.argmin()]] = 0.0
            held &= w > 0
            w = np.where(held, w, 0.0)
        w = goal
    return best
