"""Clip, shrink and round rows of float64 to stored integers."""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import numpy as np

from dpcvx.data.kernels.jit import compiled
from dpcvx.data.lattice import FEATURE_BITS

__all__ = ["quantise_dense", "quantise_sparse"]

FEATURE_ONE = float(2**FEATURE_BITS)
SHRINK_SLACK = 1.0 - 2.0**-40  # below 1, so that each pass of a shrink loop makes every entry smaller


@compiled
def quantise_row(x, x_inf, x_2, k_inf, k2, out):
    """Clip, shrink and round one scaled row into `out`; `x` is overwritten."""
    total = 0.0
    for j in range(x.shape[0]):
        v = x[j]
        if v > x_inf:
            v = x_inf
        if v < -x_inf:
            v = -x_inf
        x[j] = v
        total += v * v
    factor = FEATURE_ONE
    norm = np.sqrt(total)
    if norm > x_2:
        factor *= x_2 / norm
    squares = 0
    for j in range(x.shape[0]):
        k = min(max(int(x[j] * factor), -k_inf), k_inf)
        out[j] = k
        squares += k * k
    while squares > k2:
        factor = np.sqrt(k2 / squares) * SHRINK_SLACK
        squares = 0
        for j in range(x.shape[0]):
            k = int(out[j] * factor)
            out[j] = k
            squares += k * k


@compiled
def quantise_dense(block, center, scale, x_inf, x_2, k_inf, k2, out):
    """Quantise rows of float64 into the first columns of `out`."""
    n, d = block.shape
    x = np.empty(d)
    for i in range(n):
        for j in range(d):
            v = block[i, j]
            # A finite cell may overflow here and is clipped; one that is not finite counts as 0.
            x[j] = (v - center[j]) / scale[j] if np.isfinite(v) else 0.0
        quantise_row(x, x_inf, x_2, k_inf, k2, out[i, :d])


@compiled
def quantise_sparse(indptr, indices, data, scale, x_inf, x_2, k_inf, k2, constant, d, columns, out):
    """Quantise compressed rows of float64, each followed by its intercept's entry where there is one."""
    for i in range(indptr.shape[0] - 1):
        start, stop = indptr[i], indptr[i + 1]
        to = start + i if constant else start
        x = np.empty(stop - start)
        for e in range(stop - start):
            v = data[start + e]
            x[e] = v / scale[indices[start + e]] if np.isfinite(v) else 0.0
            columns[to + e] = indices[start + e]
        end = to + stop - start
        quantise_row(x, x_inf, x_2, k_inf, k2, out[to:end])
        if constant:
            columns[end] = d
            out[end] = constant
