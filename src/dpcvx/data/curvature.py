"""Exact second moments of stored rows, weighted by how fast each record's slope changes with its score.

A record's curvature phi'' is read off two of its residuals, at scores a public distance to either side, so it
is a function of that record and public numbers alone (PRIVACY_MATH §11b); it is rounded and clipped, and what
follows are sums of integers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpcvx.arrays import Vector
from dpcvx.data.lattice import FEATURE_BITS, RESIDUAL_BITS, ResidualBound, fixed_point
from dpcvx.data.rows import Dense, Sparse
from dpcvx.losses import Loss

__all__ = ["SHIFT", "SLOPE_BITS", "SPREAD_UNIT", "CurvatureBound", "Sums", "curvature_sum", "largest_spread"]

SHIFT = 2.0**-6  # half the distance of the two scores; phi'' changes little over it
SLOPE_BITS = 8  # slopes are squared on the grid 2^-8, and multiplied by ||x||^2 on the grid 2^-14
SPREAD_UNIT = 2.0 ** -(2 * SLOPE_BITS + FEATURE_BITS)
LARGEST_EXACT = 2**53  # integers up to here are exact in float64, whatever the order of a sum
CELLS_AT_ONCE = 2**19

Sums = tuple[NDArray[np.int64], int]


@dataclass(frozen=True)
class CurvatureBound:
    """Bound of one record's curvature phi'', an integer in units of 2^-bits.

    Parameters
    ----------
    largest : int
        Every curvature lies in 0..largest.
    bits : int
    """

    largest: int
    bits: int


def largest_spread(slope: ResidualBound, k2: int) -> int:
    """Return the largest term s^2 q of a record whose slope is within the bound and whose ||k||^2 <= k2."""
    steps = -(-slope.linf // (1 << RESIDUAL_BITS - SLOPE_BITS))
    return steps * steps * (k2 >> FEATURE_BITS)


def curvature_sum(
    rows: Dense | Sparse,
    y: Vector,
    loss: Loss,
    theta: Vector,
    bounds: tuple[ResidualBound, CurvatureBound],
) -> Sums:
    """Return sum_i omega_i k_i k_i^T, shape (d, d), and sum_i s_i^2 q_i, over rows of integers.

    omega_i is the curvature of record i at the score <x_i, theta>, s_i its slope on the grid 2^-8, and
    q_i = floor(||k_i||^2/2^14).

    Parameters
    ----------
    rows : Dense or Sparse
        Stored integers, row-major.
    y : ndarray, shape (1, n)
        Targets.
    loss : Loss
        Of one score.
    theta : Vector
        Public point, shape (d,).
    bounds : pair of ResidualBound and CurvatureBound
        Enforced after rounding.
    """
    from dpcvx.data import kernels

    slope, bend = bounds
    integers, unit = fixed_point(theta)
    shift = max(1, round(SHIFT / unit))
    # In the shift's own distance, so that a clipped slope is clipped at the same residual on average.
    wide = slope.linf + round(SHIFT * 2**RESIDUAL_BITS)
    factor = 2.0 ** (bend.bits - RESIDUAL_BITS) / (2 * shift * unit)
    function = kernels.residuals_of(loss.slope, loss.joint)
    n, d = rows.shape
    k_largest = 2 ** (FEATURE_BITS + 1)
    step = max(1, min(n, CELLS_AT_ONCE // d, LARGEST_EXACT // (max(1, bend.largest) * k_largest**2)))
    moments, spread = np.zeros((d, d), dtype=np.int64), 0

    def residuals(margins: NDArray[np.int64], targets: Vector, limit: int) -> NDArray[np.int64]:
        rho = np.empty(margins.shape, dtype=np.int32)
        kernels.block_residuals(
            function, margins, targets, 0, 0, margins.shape[1], unit, loss.parameter, limit, limit, rho
        )
        found: NDArray[np.int64] = rho[0].astype(np.int64)
        return found

    for start in range(0, n, step):
        stop = min(n, start + step)
        block, targets = _dense(rows, start, stop), np.ascontiguousarray(y[:, start:stop])
        margins = np.empty((1, stop - start), dtype=np.int64)
        kernels.multiply_dense(block, integers, 0, stop - start, 0, margins)
        rise = residuals(margins + shift, targets, wide) - residuals(margins - shift, targets, wide)
        omega = np.clip(np.rint(rise * factor), 0, bend.largest)
        exact = block.astype(np.float64)
        moments += (exact.T @ (exact * omega[:, None])).astype(np.int64)
        slopes = np.rint(residuals(margins, targets, slope.linf) * 2.0 ** (SLOPE_BITS - RESIDUAL_BITS))
        squares = (exact**2).sum(axis=1) // 2**FEATURE_BITS
        spread += int((slopes.astype(np.int64) ** 2 * squares.astype(np.int64)).sum())
    return moments, spread


def _dense(rows: Dense | Sparse, start: int, stop: int) -> NDArray[np.int16]:
    """A block of rows in full."""
    if isinstance(rows, Dense):
        return rows.values[start:stop]
    from scipy.sparse import csr_array

    part = slice(rows.indptr[start], rows.indptr[stop])
    block = csr_array(
        (rows.values[part], rows.indices[part], rows.indptr[start : stop + 1] - rows.indptr[start]),
        shape=(stop - start, rows.shape[1]),
    )
    full: NDArray[np.int16] = block.toarray()
    return full
