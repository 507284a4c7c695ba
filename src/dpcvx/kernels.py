"""Compiled integer kernels behind the data plane; imported only when records are read.

Every function treats one row at a time or adds exact integers, so blocks, threads and order cannot change an
answer. Matrices of margins, residuals and sums hold one row per output: (K, n) and (K, d).
"""

# Numba gives the kernels their types when it compiles them; `slope` is bound by name.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators, disable-error-code="name-defined"

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
from numba import cfunc, njit, types

from dpcvx import losses
from dpcvx.grid import FEATURE_BITS, RESIDUAL_BITS

FEATURE_ONE = float(2**FEATURE_BITS)
RESIDUAL_ONE = float(2**RESIDUAL_BITS)
LARGEST_MARGIN = 2.0**30  # scores are clamped here before a slope sees them
LARGEST_ROUNDED = 2.0**31
ROUNDING = 1.5 * 2.0**52  # adding and subtracting it rounds to the nearest integer, ties to even, below 2^51
SHRINK_SLACK = 1.0 - 2.0**-40  # below 1, so that each pass of a shrink loop makes every entry smaller
TILE = 2**15  # entries of the vector that a product keeps in cache

compiled = njit(cache=True, nogil=True)


# -- the door


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
            # A finite cell may overflow on its way and is clipped; one that is not finite counts as 0.
            x[j] = (v - center[j]) / scale[j] if np.isfinite(v) else 0.0
        quantise_row(x, x_inf, x_2, k_inf, k2, out[i, :d])


@compiled
def quantise_sparse(indptr, indices, data, scale, x_inf, x_2, k_inf, k2, intercept, d, columns, out):
    """Quantise compressed rows of float64, each followed by its intercept's entry where there is one."""
    for i in range(indptr.shape[0] - 1):
        start, stop = indptr[i], indptr[i + 1]
        to = start + i if intercept else start
        x = np.empty(stop - start)
        for e in range(stop - start):
            v = data[start + e]
            x[e] = v / scale[indices[start + e]] if np.isfinite(v) else 0.0
            columns[to + e] = indices[start + e]
        end = to + stop - start
        quantise_row(x, x_inf, x_2, k_inf, k2, out[to:end])
        if intercept:
            columns[end] = d
            out[end] = 1 << FEATURE_BITS


# -- products of stored integers


@compiled
def multiply_dense(matrix, vectors, start, stop, at, out):
    """out[k, at + i] = <matrix[start + i], vectors[k]> for rows start to stop."""
    width = matrix.shape[1]
    for k in range(vectors.shape[0]):
        for i in range(stop - start):
            out[k, at + i] = 0
    for left in range(0, width, TILE):
        right = min(width, left + TILE)
        for i in range(stop - start):
            row = matrix[start + i, left:right]
            for k in range(vectors.shape[0]):
                vector = vectors[k, left:right]
                total = np.int64(0)
                for j in range(right - left):
                    total += np.int64(row[j]) * np.int64(vector[j])
                out[k, at + i] += total


@compiled
def multiply_sparse(indptr, indices, values, vectors, start, stop, at, out):
    """out[k, at + i] = <row start + i, vectors[k]> for compressed rows start to stop."""
    for i in range(stop - start):
        for k in range(vectors.shape[0]):
            total = np.int64(0)
            for e in range(indptr[start + i], indptr[start + i + 1]):
                total += np.int64(values[e]) * np.int64(vectors[k, indices[e]])
            out[k, at + i] = total


@compiled
def accumulate_dense(matrix, weights, start, stop, sums):
    """sums[k] += sum_i weights[k, i] matrix[start + i], eight rows at a time."""
    d = matrix.shape[1]
    for k in range(weights.shape[0]):
        total = sums[k]
        i = start
        while i + 8 <= stop:
            a, b, c, e = matrix[i], matrix[i + 1], matrix[i + 2], matrix[i + 3]
            f, g, h, p = matrix[i + 4], matrix[i + 5], matrix[i + 6], matrix[i + 7]
            at = i - start
            ra, rb = np.int64(weights[k, at]), np.int64(weights[k, at + 1])
            rc, re = np.int64(weights[k, at + 2]), np.int64(weights[k, at + 3])
            rf, rg = np.int64(weights[k, at + 4]), np.int64(weights[k, at + 5])
            rh, rp = np.int64(weights[k, at + 6]), np.int64(weights[k, at + 7])
            for j in range(d):
                first = (a[j] * ra + b[j] * rb) + (c[j] * rc + e[j] * re)
                total[j] += first + (f[j] * rf + g[j] * rg) + (h[j] * rh + p[j] * rp)
            i += 8
        while i < stop:
            a, ra = matrix[i], np.int64(weights[k, i - start])
            for j in range(d):
                total[j] += a[j] * ra
            i += 1


@compiled
def accumulate_sparse(indptr, indices, values, weights, start, stop, sums):
    """sums[k] += sum_i weights[k, i] times compressed row start + i."""
    for i in range(stop - start):
        for k in range(weights.shape[0]):
            weight = np.int64(weights[k, i])
            for e in range(indptr[start + i], indptr[start + i + 1]):
                sums[k, indices[e]] += np.int64(values[e]) * weight


@compiled
def add_dense(column, amount, out):
    """out += amount * column."""
    for i in range(column.shape[0]):
        out[i] += np.int64(column[i]) * amount


@compiled
def add_sparse(rows, values, amount, out):
    """out += amount * column, the column given by its stored entries."""
    for e in range(rows.shape[0]):
        out[rows[e]] += np.int64(values[e]) * amount


# -- residuals: the only step in floating point, a function of one record and public numbers


@compiled
def rounded(slope, limit):
    """clip(rint(2^20 slope), -limit, limit): the clip comes after the rounding. NaN counts as 0."""
    v = slope * RESIDUAL_ONE
    if not v <= LARGEST_ROUNDED:
        v = LARGEST_ROUNDED if v > 0.0 else 0.0
    if v < -LARGEST_ROUNDED:
        v = -LARGEST_ROUNDED
    k = np.int64((v + ROUNDING) - ROUNDING)
    return min(max(k, -limit), limit)


@compiled
def shrink(rho, i, l2):
    """Scale one record's residuals toward zero until their integer norm is at most l2."""
    outputs = rho.shape[0]
    while True:
        squares = np.int64(0)
        for k in range(outputs):
            if squares <= l2 * l2:  # stop adding once it is too much: no overflow
                squares += np.int64(rho[k, i]) * np.int64(rho[k, i])
        if squares <= l2 * l2:
            return
        total = 0.0
        for k in range(outputs):
            total += float(rho[k, i]) * float(rho[k, i])
        factor = min(l2 / np.sqrt(total), 1.0) * SHRINK_SLACK
        for k in range(outputs):
            rho[k, i] = int(rho[k, i] * factor)


def scalar_residuals(margins, y, first, at, count, unit, parameter, l2, linf, rho):
    """rho of `count` records whose targets start at row `first` of y and whose margins start at `at`."""
    outputs = margins.shape[0]
    for k in range(outputs):
        for i in range(count):
            z = min(max(margins[k, at + i] * unit, -LARGEST_MARGIN), LARGEST_MARGIN)
            rho[k, at + i] = rounded(slope(z, y[first + i, k], parameter), linf)  # noqa: F821
    for i in range(count):
        shrink(rho, at + i, l2)


def vector_residuals(margins, y, first, at, count, unit, parameter, l2, linf, rho):
    """The same for a slope that sees the scores of all outputs together."""
    outputs = margins.shape[0]
    z, out = np.empty(outputs), np.empty(outputs)
    for i in range(count):
        for k in range(outputs):
            z[k] = min(max(margins[k, at + i] * unit, -LARGEST_MARGIN), LARGEST_MARGIN)
        slope(z, y[first + i, 0], parameter, out)  # noqa: F821
        for k in range(outputs):
            rho[k, at + i] = rounded(out[k], linf)
        shrink(rho, at + i, l2)


RESIDUALS = types.void(
    types.int64[:, ::1],
    types.float64[:, ::1],
    types.int64,
    types.int64,
    types.int64,
    types.float64,
    types.float64,
    types.int64,
    types.int64,
    types.int32[:, ::1],
)
LOSSES_DIGEST = hashlib.sha256(Path(losses.__file__).read_bytes()).hexdigest()[:16]


def bind(function: Callable[..., Any], **names: Any) -> Callable[..., Any]:
    """Return a copy of a Python function that sees other values under some global names."""
    seen = {**function.__globals__, **names}
    return FunctionType(
        function.__code__, seen, function.__name__, function.__defaults__, function.__closure__
    )


def compile_slope(slope: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a plain Python function together with the plain functions that it calls."""
    if not isinstance(slope, FunctionType):
        return slope  # compiled already
    called = {name: slope.__globals__.get(name) for name in slope.__code__.co_names}
    plain = {name: compile_slope(value) for name, value in called.items() if isinstance(value, FunctionType)}
    return njit(bind(slope, **plain))  # type: ignore[no-any-return]


def is_joint(slope: Callable[..., Any]) -> bool:
    """Whether a slope sees the scores of all outputs together: slope(z, y, a, out)."""
    return getattr(slope, "py_func", slope).__code__.co_argcount == 4


@cache
def residuals_of(slope: Callable[..., Any]) -> Any:
    """Return the compiled residual function of a slope, to be handed to the kernels below.

    It is passed by address and so is no part of a kernel's type: the kernels are compiled once for all losses
    and found again on disk. The package's own losses are cached under a name that holds the digest of their
    source; a loss of the user is compiled in each process.
    """
    function = bind(vector_residuals if is_joint(slope) else scalar_residuals, slope=compile_slope(slope))
    own = slope.__module__ == losses.__name__
    if own:
        function.__qualname__ = f"residuals_{slope.__name__}_{LOSSES_DIGEST}"
    return cfunc(RESIDUALS, cache=own)(function)


@compiled
def residuals(function, margins, y, start, stop, unit, parameter, l2, linf, rho):
    """rho of records start to stop, margins and residuals kept for all records."""
    function(margins, y, start, start, stop - start, unit, parameter, l2, linf, rho)


@compiled
def gradient_dense(matrix, y, theta, function, unit, parameter, l2, linf, start, stop, block, sums):
    """sums += sum_i rho_i k_i over rows start to stop; a block of rows is read twice while it is in cache."""
    margins = np.empty((theta.shape[0], block), dtype=np.int64)
    rho = np.empty((theta.shape[0], block), dtype=np.int32)
    for first in range(start, stop, block):
        last = min(stop, first + block)
        multiply_dense(matrix, theta, first, last, 0, margins)
        function(margins, y, first, 0, last - first, unit, parameter, l2, linf, rho)
        accumulate_dense(matrix, rho, first, last, sums)


@compiled
def gradient_sparse(
    indptr, indices, values, y, theta, function, unit, parameter, l2, linf, start, stop, block, sums
):
    """The same for compressed rows."""
    margins = np.empty((theta.shape[0], block), dtype=np.int64)
    rho = np.empty((theta.shape[0], block), dtype=np.int32)
    for first in range(start, stop, block):
        last = min(stop, first + block)
        multiply_sparse(indptr, indices, values, theta, first, last, 0, margins)
        function(margins, y, first, 0, last - first, unit, parameter, l2, linf, rho)
        accumulate_sparse(indptr, indices, values, rho, first, last, sums)
