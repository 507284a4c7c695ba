"""Description of a set by plain numbers, for compiled projections whose time does not depend on the point."""

from typing import NamedTuple, Self

import numpy as np

from dpcvx.arrays import IntVector, Vector

BALL, BOX, SIMPLEX = 0, 1, 2  # kinds of sets; BALL: the sum of the l2 norms of groups of entries is bounded


class ProjectionForm(NamedTuple):
    """A set of vectors of d entries whose projection has a closed form."""

    kind: int  # `BALL`, `BOX` or `SIMPLEX`
    radius: float  # of a ball or simplex
    groups: IntVector  # of a ball: group of each entry
    n_groups: int
    low: Vector  # low, high: of a box, the smallest and largest entries
    high: Vector

    @classmethod
    def of_ball(cls, radius: float, groups: IntVector) -> Self:
        """Return the ball of the sum of the l2 norms of groups; `groups`: the group of each entry, from 0."""
        nothing = np.zeros(groups.size)
        return cls(BALL, float(radius), groups, int(groups.max()) + 1, nothing, nothing)

    @classmethod
    def of_box(cls, low: Vector, high: Vector) -> Self:
        """Return the box between two vectors."""
        return cls(BOX, 1.0, np.zeros(low.size, dtype=np.int64), 1, low, high)

    @classmethod
    def of_simplex(cls, radius: float, d: int) -> Self:
        """Return the simplex of d entries that add up to the radius."""
        nothing = np.zeros(d)
        return cls(SIMPLEX, float(radius), np.zeros(d, dtype=np.int64), 1, nothing, nothing)
