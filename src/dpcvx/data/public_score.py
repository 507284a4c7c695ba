"""A score fitted to public rows, as one more feature of standardised rows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpcvx.arrays import Vector

__all__ = ["PublicScore"]


@dataclass(frozen=True, eq=False)
class PublicScore:
    """Public map from a standardised row u of d cells to d + 1 features.

    phi(u) = (u_1, ..., u_d, clip(<u, direction>, -limit, limit)), u_j clipped to [-reach, reach]

    Each row is mapped alone, with public numbers; a cell that is missing counts as 0, the mean of its column.
    """

    direction: Vector  # shape (d,)
    limit: float
    reach: float

    @property
    def width(self) -> int:
        """Number of features."""
        return len(self.direction) + 1

    @property
    def largest(self) -> float:
        """Largest absolute value of a feature."""
        return max(self.reach, self.limit)

    def largest_norm(self, columns: int) -> float:
        """Bound on the l2 norm of phi(u).

        `columns`: how many there are, the cells of one together having at most the norm `reach`.
        """
        return math.hypot(math.sqrt(columns) * self.reach, self.limit)

    def __call__(self, rows: Vector) -> Vector:
        """Return the features of standardised rows, shape (n, d), as an array of shape (n, d + 1)."""
        u = np.nan_to_num(np.clip(rows, -self.reach, self.reach))
        # A product of each row by itself: no answer depends on the rows beside it.
        score = (u * self.direction).sum(axis=1)
        return np.column_stack([u, np.clip(score, -self.limit, self.limit)])

    def fold(self, weights: Vector) -> Vector:
        """Return the d coefficients of the cells that give the same scores, where none is clipped."""
        folded: Vector = weights[:-1] + weights[-1] * self.direction
        return folded
