"""Exposure of counts: the time, area or number of people in which each record's events were counted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcvx.arrays import Vector
from dpcvx.data.canonical import read_numbers
from dpcvx.data.cells import native_array
from dpcvx.errors import WrongValue
from dpcvx.words import is_number, show

__all__ = ["Exposure", "check_exposure", "read_exposure"]

SMALLEST = 1e-6  # of the largest exposure; less counts as this


@dataclass(frozen=True, eq=False, repr=False)
class Exposure:
    """Exposures of records over the largest one; private."""

    shares: Vector  # shape (n,), in [1e-6, 1]
    known: NDArray[np.bool_]  # whether an exposure is a positive number; other records are left out

    @property
    def offsets(self) -> Vector:
        """Offsets of scores that are logarithms of means at the largest exposure, shape (n,); at most 0."""
        found: Vector = np.log(self.shares)
        return found


def check_exposure(largest: Any) -> float:
    """Return the declared largest exposure."""
    if not is_number(largest, 0, math.inf):
        raise WrongValue(
            "exposure needs max_exposure, the largest exposure that is possible, from public knowledge: a "
            f"positive finite number; got {show(largest)}."
        )
    return float(largest)


def read_exposure(cells: Any, largest: float) -> Exposure:
    """Return the exposures of records; one above the largest counts as that.

    A record whose exposure is missing, 0, negative or no number is left out.
    """
    values = native_array(cells)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise WrongValue(f"Exposures must form a 1d array, got {values.ndim} dimension(s).")
    numbers = read_numbers(values)
    with np.errstate(all="ignore"):
        known = numbers > 0
        shares = np.clip(np.where(known, numbers / largest, 1.0), SMALLEST, 1.0)
    return Exposure(shares, known)
