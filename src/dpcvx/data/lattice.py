"""Units and sizes of the exact integers: features, residuals, iterates, sums and the noise added to sums.

Features are 16-bit integers k on the grid 2^-14, residuals integers rho on the grid 2^-20, and the sums
sum_i rho_i k_i are exact 64-bit integers in units of 2^-34 (PRIVACY_MATH §11b).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np
from numpy.typing import NDArray

from dpcvx.arrays import IntVector, Vector
from dpcvx.errors import WrongValue
from dpcvx.problem import Bounds

FEATURE_BITS = 14
RESIDUAL_BITS = 20
SUM_UNIT = 2.0 ** -(FEATURE_BITS + RESIDUAL_BITS)
LARGEST_RESIDUAL = 2**31 - 1  # residuals are multiplied as 32-bit integers
ITERATE_BITS = 30  # entries of an iterate stay below 2^30
ITERATE_SUM_BITS = 46  # and their sum below 2^46 before rounding, so that margins stay inside 62 bits
LARGEST_SUM = 2**62  # PRIVACY_MATH §11b (ii): a sum of 64-bit integers, and noise as large, do not overflow
LARGEST_INTEGER = 2**15  # of a stored row
LARGEST_DRAW = 18.75  # no draw of `lattice_gaussian` is larger, in standard deviations


@dataclass(frozen=True)
class ResidualBound:
    """Bounds of one record's residual rho in Z^K, in units of 2^-20, enforced after rounding.

    ||rho||_2 <= l2 and max_k |rho_k| <= linf
    """

    l2: int  # largest Euclidean norm
    linf: int  # largest absolute entry

    def __post_init__(self) -> None:
        for name in ("l2", "linf"):
            value = getattr(self, name)
            if not 0 <= value <= LARGEST_RESIDUAL:
                raise WrongValue(
                    f"ResidualBound needs 0 <= {name} <= 2^31 - 1, got {value}: slopes must stay below 2048, "
                    "so use a smaller radius or a residual clip."
                )


@cache
def integer_bounds(bounds: Bounds, d: int) -> tuple[int, int]:
    """Bounds (K_inf, K2) of a stored row of d features: max_j |k_j| <= K_inf and sum_j k_j^2 <= K2.

    K_inf = floor(2^14 x_inf), K2 = min(d K_inf^2, floor(2^28 x_2^2)), in exact arithmetic.
    """
    k_inf = math.floor(2**FEATURE_BITS * Fraction(float(bounds.x_inf)))
    k2 = d * k_inf**2
    if bounds.x_2 is not None:
        k2 = min(k2, math.floor(4**FEATURE_BITS * Fraction(float(bounds.x_2)) ** 2))
    return k_inf, k2


def fixed_point(theta: Vector) -> tuple[NDArray[np.int32], float]:
    """Send a public iterate in fixed point, as finely as exact 62-bit margins allow.

    `theta`: shape (d,) or (d, K). Returns `integers`: rint(2^q theta), one row per output, with q <= 30 a
    function of theta alone; `unit`: 2^-(14 + q): the score <x, theta> of a record for an integer margin of 1.
    """
    theta = np.asarray(theta, dtype=np.float64)
    if theta.ndim not in (1, 2) or theta.size == 0 or not np.isfinite(theta).all():
        raise WrongValue(f"An iterate must be finite, of shape (d,) or (d, K); got shape {theta.shape}.")
    outputs = theta.reshape(theta.shape[0], -1).T
    _, entry = math.frexp(abs(outputs).max())
    _, weight = math.frexp(abs(np.ldexp(outputs, -entry)).sum(axis=1).max())
    bits = min(ITERATE_BITS, ITERATE_BITS - entry, ITERATE_SUM_BITS - entry - weight)
    return np.rint(np.ldexp(outputs, bits)).astype(np.int32, order="C"), 2.0 ** -(FEATURE_BITS + bits)


def records_at_once(bound: ResidualBound) -> int:
    """Return how many records a sum in 64-bit integers may have; at least 2^16."""
    return (LARGEST_SUM - 1) // (max(1, bound.linf) * LARGEST_INTEGER)


def exact_sum(parts: Iterable[IntVector], count: int, bound: ResidualBound) -> IntVector:
    """Add partial sums of at most `records_at_once` records each, exactly.

    Where public numbers say that 62 bits hold the whole, it is an array of 64-bit integers. Otherwise its
    entries are Python integers, which have no limit (PRIVACY_MATH §11b (ii)); the lattice is the same.

    `parts`: at least one, all of one shape; `count`: records in all of them; `bound`: of each of their
    residuals.
    """
    others = iter(parts)  # one at a time: there may be as many as shards, each as long as a row
    total: IntVector = next(others).astype(np.int64 if count <= records_at_once(bound) else object)
    for other in others:
        total += other
    return total


def room(term: int, noise: int = 0) -> int:
    """Return the largest number of records whose exact sum, with its noise, stays inside 62 bits.

    `term`: largest absolute value that one record adds; `noise`: standard deviation of the noise, in units of
    the sum.
    """
    return max(0, LARGEST_SUM - 1 - math.ceil(Fraction(LARGEST_DRAW) * noise)) // term
