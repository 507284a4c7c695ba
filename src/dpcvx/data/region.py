"""The region that a model was fitted on: new rows are brought into it before they are scored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpcvx.arrays import Vector

__all__ = ["Region"]


@dataclass(frozen=True, eq=False)
class Region:
    """Cells within a number of deviations of their centre, rows within a length; all of it released.

    A fit that clips the rows of people it does not know has no opinion on what lies beyond: there a linear
    model would extrapolate from nothing. Inside the region nothing changes.
    """

    center: Vector  # center, scale: centre and deviation of every feature
    scale: Vector
    reach: float  # largest distance of a cell from its centre, in deviations
    length: float  # largest l2 norm of a row of deviations

    def __call__(self, X: Vector) -> Vector:
        """Rows brought into the region, in the units they came in."""
        rows = np.clip((X - self.center) / self.scale, -self.reach, self.reach)
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        rows *= self.length / np.maximum(norms, self.length)
        trimmed: Vector = self.center + self.scale * rows
        return trimmed

    def in_units(self, center: Vector, scale: Vector) -> Region:
        """The same region for features center + scale * x."""
        return Region(center + scale * self.center, scale * self.scale, self.reach, self.length)

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers, for files and statements."""
        return {
            "center": self.center.tolist(),
            "scale": self.scale.tolist(),
            "reach": self.reach,
            "length": self.length,
        }
