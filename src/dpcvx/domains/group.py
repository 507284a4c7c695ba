"""The grouped l1 ball."""

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self, cast

import numpy as np

from dpcvx.arrays import IntVector, Shape, Vector
from dpcvx.domains.balls import Ball, check_radius, normal_moment, project_to_simplex, size_of
from dpcvx.domains.mirror import Euclidean, MirrorMap, smallest_bound
from dpcvx.domains.p_norm_map import PNorm, conjugate_order
from dpcvx.domains.projection_form import ProjectionForm
from dpcvx.errors import WrongValue
from dpcvx.vouched import vouched


@vouched("minimisers", "queries")
@dataclass(frozen=True)
class GroupBall(Ball):
    """Ball of the group LASSO: few groups of coefficients are non-zero.

    C = {theta : sum_j ||theta^(j)||_2 <= radius}, theta^(j) the entries of group j

    Parameters
    ----------
    groups : int, sequence of int, or sequence of sequences of int
        One size: runs of that many entries, the last run perhaps shorter. Several sizes: consecutive runs of
        these sizes. Lists of indices: the groups themselves, every index from 0 on in exactly one of them.
        See `of_labels` for one label per coefficient.
    radius : float
        Positive and finite.

    Notes
    -----
    Several sizes, and indices, speak of the rows of a matrix parameter (d, K): a group holds its rows'
    entries for all outputs. One size speaks of entries in row order; ``groups=K`` makes each row a group.
    """

    groups: int | Sequence[int] | Sequence[Sequence[int]]
    radius: float

    def __post_init__(self) -> None:
        check_radius("GroupBall", self.radius)
        if isinstance(self.groups, int | np.integer):
            if self.groups < 1:
                raise WrongValue(f"GroupBall needs groups of at least one entry; got groups={self.groups}.")
            object.__setattr__(self, "groups", int(self.groups))
            return
        given: list[list[int]] = []
        for group in self.groups:
            if isinstance(group, int | np.integer):  # a size: the next run of indices
                first = sum(map(len, given))
                given.append(list(range(first, first + int(group))))
            else:
                given.append([int(i) for i in group])
        if not given or not all(given):
            raise WrongValue(f"GroupBall needs groups of at least one entry; got groups={self.groups}.")
        if sorted(i for group in given for i in group) != list(range(sum(map(len, given)))):
            raise WrongValue(
                "GroupBall needs every index from 0 on in exactly one group: no overlap, no gap. "
                f"Got groups={self.groups}."
            )
        # Tuples of indices, so that equal groups compare and hash alike however they were given.
        object.__setattr__(self, "groups", tuple(tuple(sorted(group)) for group in given))

    @classmethod
    def of_labels(cls, labels: Iterable[Hashable], radius: float) -> Self:
        """Return the ball whose groups are the coefficients with equal labels, in order of appearance."""
        indices: dict[Hashable, list[int]] = {}
        for i, label in enumerate(labels):
            indices.setdefault(label, []).append(i)
        return cls(list(indices.values()), radius)

    def norm(self, ord: float, d: Shape) -> float:
        """Return radius for ord >= 2, and radius k^(1/ord - 1/2) below, k the size of the largest group."""
        return self.radius * math.pow(int(self._sizes(d).max()), max(1 / ord - 0.5, 0.0))

    def gaussian_width(self, d: Shape) -> float:
        """Return radius (sqrt(k) + sqrt(2 log m)) for m groups of at most k entries.

        Each ||g^(j)||_2 has a mean of at most sqrt(k) and, being 1-Lipschitz, is sub-Gaussian around it.
        """
        sizes = self._sizes(d)
        return self.radius * (math.sqrt(int(sizes.max())) + math.sqrt(2 * math.log(sizes.size)))

    def minkowski(self, theta: Vector) -> float:
        """Return sum_j ||theta^(j)||_2 / radius."""
        return float(self.magnitudes(theta)[0].sum()) / self.radius

    def project(self, v: Vector) -> Vector:
        """Return v with the norms of its groups shrunk by one common amount."""
        if self.minkowski(v) <= 1:
            return v.copy()
        sizes, rebuild = self.magnitudes(v)
        return rebuild(project_to_simplex(sizes, self.radius))

    def projection_form(self, d: int) -> ProjectionForm:
        """Return the ball with the group of each entry."""
        return ProjectionForm.of_ball(self.radius, self.labels(d))

    def lmo(self, g: Vector) -> Vector:
        """Return the point against the group of g with the largest norm."""
        sizes, rebuild = self.magnitudes(g)
        return rebuild(np.where(np.arange(sizes.size) == sizes.argmax(), -self.radius, 0.0))

    def magnitudes(self, v: Vector) -> tuple[Vector, Callable[[Vector], Vector]]:
        """Return the norms of the groups, and the map from new ones to an array with the directions of v."""
        labels = self.labels(v.shape)
        largest = float(np.abs(v).max(initial=0.0))
        scaled = v.ravel() / (largest or 1.0)  # so that squares neither overflow nor vanish
        # A group whose entries are all tiny beside another's is scaled on its own.
        peaks = np.zeros(labels.max() + 1)
        np.maximum.at(peaks, labels, np.abs(scaled))
        scaled = scaled / np.where(peaks > 0, peaks, 1.0)[labels]
        lengths = np.sqrt(np.bincount(labels, weights=scaled**2))
        directions = scaled / np.where(lengths > 0, lengths, 1.0)[labels]
        return lengths * peaks * largest, lambda sizes: (directions * sizes[labels]).reshape(v.shape)

    def n_magnitudes(self, d: Shape) -> int:
        """Return the number of groups."""
        return self._sizes(d).size

    def noise_norm(self, order: float, d: Shape) -> float:
        """Return (sum_j E||g^(j)||_2^order)^(2/order), an upper bound by Jensen's inequality."""
        return math.pow(sum(normal_moment(order, int(k)) for k in self._sizes(d)), 2 / order)

    def mirror_map(self, d: Shape) -> MirrorMap:
        """Return the p-norm map of the groups' norms, or the Euclidean one where that is better."""
        return smallest_bound([Euclidean(self), PNorm(self, conjugate_order(self.n_magnitudes(d)))], d)

    def labels(self, d: Shape) -> IntVector:
        """Return the group of every entry of a parameter of shape d."""
        size = size_of(d)
        if isinstance(self.groups, int):
            return np.arange(size) // self.groups
        labels = self._listed
        if size % labels.size:
            raise WrongValue(
                f"GroupBall has groups of {labels.size} coefficients in all; the parameter has {size} "
                "entries. "
                "Give every coefficient a group, the intercept included."
            )
        return labels.repeat(size // labels.size)

    @cached_property
    def _listed(self) -> IntVector:
        """The group of every entry that the groups list."""
        groups = cast(tuple[tuple[int, ...], ...], self.groups)
        labels = np.empty(sum(map(len, groups)), dtype=np.int64)
        for j, group in enumerate(groups):
            labels[list(group)] = j
        return labels

    def _sizes(self, d: Shape) -> IntVector:
        return np.bincount(self.labels(d))
