"""Protocols of constraint sets: methods that every set has, and optional abilities."""

from typing import Protocol, Self, runtime_checkable

from dpcvx.arrays import IntVector, Shape, Vector
from dpcvx.domains.mirror import MirrorMap
from dpcvx.domains.projection_form import ProjectionForm
from dpcvx.domains.regularizers import Regularizer


@runtime_checkable
class Domain(Protocol):
    """A convex compact set C of parameters; `d` is the parameter's shape, an integer or a tuple."""

    def contains(self, theta: Vector, tol: float = 1e-9) -> bool:
        """Return whether theta lies in C up to `tol`, relative to the size of C."""

    def start(self, d: Shape) -> Vector:
        """Return a public point of C."""

    def norm(self, ord: float, d: Shape) -> float:
        """Return the maximum of ||theta||_ord over C, ord >= 1 (for moved and submodular sets a bound)."""

    def diameter(self, ord: float, d: Shape) -> float:
        """Return the maximum of ||u - v||_ord over u, v in C, for ord >= 1."""

    def gaussian_width(self, d: Shape) -> float:
        """Return an upper bound on E sup_{s in C} <g, s>, g standard normal."""

    def minkowski(self, theta: Vector) -> float:
        """Return the gauge inf{t >= 0 : theta in t C}, infinite where no multiple of C reaches theta."""


@runtime_checkable
class HasProjection(Protocol):
    """A set with a Euclidean projection."""

    def project(self, v: Vector) -> Vector:
        """Return argmin_{s in C} ||s - v||_2."""


@runtime_checkable
class HasProjectionForm(Protocol):
    """A set of vectors whose projection can be compiled."""

    def projection_form(self, d: int) -> ProjectionForm:
        """Return the set of vectors of d entries as numbers that determine its projection."""


@runtime_checkable
class HasLMO(Protocol):
    """A set with a linear minimisation oracle."""

    def lmo(self, g: Vector) -> Vector:
        """Return argmin_{s in C} <g, s>."""


@runtime_checkable
class HasVertices(Protocol):
    """A polytope with few enough vertices to score them all."""

    def n_vertices(self, d: Shape) -> int:
        """Return the number of vertices."""

    def vertex(self, i: int, d: Shape) -> Vector:
        """Return the i-th vertex, in shape d."""

    def vertex_scores(self, g: Vector) -> Vector:
        """Return <g, vertex(i)> for every i."""


@runtime_checkable
class HasCoordinateVertices(HasVertices, Protocol):
    """A polytope whose vertices are multiples of unit vectors, all of the same length."""

    def coordinate(self, i: int, d: Shape) -> tuple[int, float]:
        """Return (j, value) such that vertex(i) = value e_j, in flat indices."""


@runtime_checkable
class HasGroups(Protocol):
    """A set that knows which coefficients belong together."""

    def labels(self, d: Shape) -> IntVector:
        """Return the number of the group of every entry of a parameter of shape d."""


@runtime_checkable
class HasMirrorMap(Protocol):
    """A set that knows the geometry to descend in."""

    def mirror_map(self, d: Shape) -> MirrorMap:
        """Return a mirror map on C."""


@runtime_checkable
class HasEuclideanRadius(Protocol):
    """A Euclidean ball about 0, which favours no direction."""

    @property
    def radius(self) -> float:
        """Radius of the ball."""

    def with_euclidean_radius(self, radius: float) -> Self:
        """Return the ball of another radius."""


@runtime_checkable
class HasL1Radius(Protocol):
    """An l1 ball about 0."""

    @property
    def radius(self) -> float:
        """Radius of the ball."""

    def with_l1_radius(self, radius: float) -> Self:
        """Return the ball of another radius."""


@runtime_checkable
class HasSupport(Protocol):
    """A set symmetric about 0 whose support function is a closed form for many directions at once."""

    def support(self, X: Vector) -> Vector:
        """Return max_{s in C} <x, s> for every row x of X."""


@runtime_checkable
class HasPenalty(Protocol):
    """A ball of a norm that can also be a regularizer."""

    def penalty(self, weight: float) -> Regularizer:
        """Return the norm, with a weight."""
