"""The region that a model was fitted on: new rows are clipped to it before they are scored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpcvx.arrays import Vector

__all__ = ["Region"]


@dataclass(frozen=True, eq=False)
class Region:
    """Region that standardised rows are clipped to, in the fit and in predictions; it was released privately.

    A standardised fit clips rows, so that outside the region a linear model would extrapolate without data.
    Rows inside the region do not change.
    """

    center: Vector  # center, scale: centre and standard deviation of every feature
    scale: Vector
    reach: float  # largest distance of a cell from its centre, in standard deviations
    length: float  # largest l2 norm of a standardised row

    def __call__(self, X: Vector) -> Vector:
        """Return rows clipped to the region, in their own units."""
        rows = np.clip((X - self.center) / self.scale, -self.reach, self.reach)
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        rows *= self.length / np.maximum(norms, self.length)
        clipped: Vector = self.center + self.scale * rows
        return clipped

    def in_units(self, center: Vector, scale: Vector) -> Region:
        """Return the same region for features center + scale * x."""
        return Region(center + scale * self.center, scale * self.scale, self.reach, self.length)

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers, for files and statements."""
        return {
            "center": self.center.tolist(),
            "scale": self.scale.tolist(),
            "reach": self.reach,
            "length": self.length,
        }
