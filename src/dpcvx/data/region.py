"""The region that a model was fitted on: new rows are clipped to it before they are scored."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.data.additive_basis import AdditiveBasis

__all__ = ["Region", "ordered_sum"]

FEW_ROWS = 32  # up to here NumPy's running sums are quicker than a loop over features


def ordered_sum(terms: Vector) -> Vector:
    """Return ((0 + t_1) + t_2) + ... of every row, added in this order.

    A product of matrices adds in an order that depends on the library, the machine and the number of rows.
    Sums in one order are the same bits everywhere, so that a model's formula has one value.

    `terms`: shape (n, d).
    """
    total: Vector
    if len(terms) <= FEW_ROWS:
        total = np.add.accumulate(terms, axis=1)[:, -1] + 0.0
        return total
    total = np.zeros(len(terms))
    for column in terms.T:
        total += column
    return total


@dataclass(frozen=True, eq=False)
class Region:
    """Region that standardised rows are clipped to, in the fit and in predictions; it was released privately.

    A standardised fit clips rows, so that outside the region a linear model would extrapolate without data.
    Rows inside the region do not change. Of an additive model they become the features of its basis, which
    its coefficients multiply.
    """

    center: Vector  # center, scale: centre and standard deviation of every feature
    scale: Vector
    reach: float  # largest distance of a cell from its centre, in standard deviations
    length: float  # largest l2 norm of a standardised row, or of its features
    basis: AdditiveBasis | None = None
    # standard deviation of the noise on the share of a level, a centre; 0 for a region from a file
    share_noise: float = 0.0
    # places of numbers whose released share of cells cannot be told from 0, and the noise on such a share
    empty: tuple[int, ...] = ()
    cell_noise: float = 0.0
    # places of numbers that hardly vary within their bounds, and of those whose mean is at the upper end
    flat: tuple[int, ...] = ()
    at_end: tuple[int, ...] = ()

    def __call__(self, X: Vector) -> Vector:
        """Return rows clipped to the region, in their own units; or their features."""
        rows = np.clip((X - self.center) / self.scale, -self.reach, self.reach)
        if self.basis is not None:
            rows = self.basis(rows)
        if math.isfinite(self.length):
            norms = np.sqrt(ordered_sum(rows * rows))[:, None]
            rows *= self.length / np.maximum(norms, self.length)
        if self.basis is not None:
            return rows
        clipped: Vector = self.center + self.scale * rows
        return clipped

    def without_clipping(self) -> Region | None:
        """Return the map of rows that are not clipped; there is none without a basis."""
        if self.basis is None:
            return None
        return replace(self, reach=math.inf, length=math.inf, basis=replace(self.basis, reach=math.inf))

    def with_whole_levels(self, places: slice) -> Region:
        """Return a region that does not clip 0/1 features cell by cell, and treats rows of them as before.

        Clipped to [low, high], such a feature x is low + (high - low) x: clip the centre and the scale alike.

        `places`: of features of levels.
        """
        low, size = self.clipped_levels(places)
        center, scale = self.center.copy(), self.scale.copy()
        center[places], scale[places] = (center[places] - low) / size, scale[places] / size
        return replace(self, center=center, scale=scale)

    def clipped_levels(self, places: slice) -> tuple[Vector, Vector]:
        """Return the value of 0 in features of levels once it is clipped, and its distance from that of 1."""
        room = self.reach * self.scale[places]
        low = np.maximum(0.0, self.center[places] - room)
        return low, np.minimum(1.0, self.center[places] + room) - low

    def in_units(self, center: Vector, scale: Vector) -> Region:
        """Return the same region for features center + scale * x."""
        return replace(self, center=center + scale * self.center, scale=scale * self.scale)
