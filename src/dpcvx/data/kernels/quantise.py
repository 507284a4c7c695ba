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
def bounded(value, low, high):
    """Clip a number."""
    value = high if value > high else value
    return low if value < low else value


@compiled
def round_row(x, x_2, k_inf, k2, out):
    """Shrink and round one scaled and clipped row into `out`."""
    d = x.shape[0]  # a local number: the compiler would read the shape again after every store
    total = 0.0
    for j in range(d):
        total += x[j] * x[j]
    factor = FEATURE_ONE
    norm = np.sqrt(total)
    if norm > x_2:
        factor *= x_2 / norm
    squares = 0
    for j in range(d):
        k = min(max(int(x[j] * factor), -k_inf), k_inf)
        out[j] = k
        squares += k * k
    while squares > k2:
        factor = np.sqrt(k2 / squares) * SHRINK_SLACK
        squares = 0
        for j in range(d):
            k = int(out[j] * factor)
            out[j] = k
            squares += k * k


@compiled
def quantise_dense(block, center, scale, x_inf, x_2, k_inf, k2, out):
    """Quantise rows of numbers into the first columns of `out`."""
    n, d = block.shape
    x = np.empty(d)
    for i in range(n):
        for j in range(d):  # without branches, so that the compiler vectorises it
            v = np.float64(block[i, j])
            # A finite cell may overflow here and is clipped; one that is not finite counts as 0.
            scaled = (v - center[j]) / scale[j]
            x[j] = bounded(scaled if np.isfinite(v) else 0.0, -x_inf, x_inf)
        round_row(x, x_2, k_inf, k2, out[i, :d])


@compiled
def quantise_sparse(indptr, indices, data, scale, x_inf, x_2, k_inf, k2, constant, d, columns, out):
    """Quantise compressed rows of float64, each followed by its intercept's entry where there is one."""
    for i in range(indptr.shape[0] - 1):
        start, stop = indptr[i], indptr[i + 1]
        to = start + i if constant else start
        x = np.empty(stop - start)
        for e in range(stop - start):
            v = data[start + e]
            x[e] = bounded(v / scale[indices[start + e]] if np.isfinite(v) else 0.0, -x_inf, x_inf)
            columns[to + e] = indices[start + e]
        end = to + stop - start
        round_row(x, x_2, k_inf, k2, out[to:end])
        if constant:
            columns[end] = d
            out[end] = constant
