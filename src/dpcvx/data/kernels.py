"""Compiled integer kernels behind the data plane; imported only when records are read.

Every function treats one row at a time or adds exact integers, so blocks, threads and order cannot change an
answer. Matrices of margins, residuals and sums hold one row per output: (K, n) and (K, d).
"""

# Numba gives the kernels their types when it compiles them; `slope` is bound by name.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators, disable-error-code="name-defined"

from __future__ import annotations

import dis
import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
from numba import cfunc, njit, types

from dpcvx import losses
from dpcvx.data.quantise import FEATURE_BITS, RESIDUAL_BITS

FEATURE_ONE = float(2**FEATURE_BITS)
RESIDUAL_ONE = float(2**RESIDUAL_BITS)
LARGEST_MARGIN = 2.0**30  # scores are clamped here before a slope sees them
LARGEST_ROUNDED = 2.0**31
ROUNDING = 1.5 * 2.0**52  # adding and subtracting it rounds to the nearest integer, ties to even, below 2^51
SHRINK_SLACK = 1.0 - 2.0**-40  # below 1, so that each pass of a shrink loop makes every entry smaller
TILE = 2**16  # entries of the vector that a product keeps in cache
SHORT_ROW = 2**12  # up to here one stream of rows is read faster than four side by side; measured

compiled = njit(cache=True, nogil=True, error_model="numpy")


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


# -- products of stored integers


@compiled
def dot(row, vector):
    """<row, vector> of 16-bit and 32-bit integers, in 64 bits."""
    total = np.int64(0)
    for j in range(vector.shape[0]):
        total += np.int64(row[j]) * np.int64(vector[j])
    return total


@compiled
def four_dots(a, b, c, e, vector):
    """The same for four rows: the vector is loaded and widened once for all."""
    ta, tb, tc, te = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    for j in range(vector.shape[0]):
        v = np.int64(vector[j])
        ta += a[j] * v
        tb += b[j] * v
        tc += c[j] * v
        te += e[j] * v
    return ta, tb, tc, te


@compiled
def multiply_dense(matrix, vectors, start, stop, at, out):
    """out[k, at + i] = <matrix[start + i], vectors[k]> for rows start to stop."""
    width = matrix.shape[1]
    for k in range(vectors.shape[0]):
        for i in range(stop - start):
            out[k, at + i] = 0
    for left in range(0, width, TILE):
        right = min(width, left + TILE)
        i = start
        # Slices of a row are known to be contiguous; a slice of the matrix would not be.
        while width > SHORT_ROW and i + 4 <= stop:
            a, b = matrix[i][left:right], matrix[i + 1][left:right]
            c, e = matrix[i + 2][left:right], matrix[i + 3][left:right]
            to = at + i - start
            for k in range(vectors.shape[0]):
                ta, tb, tc, te = four_dots(a, b, c, e, vectors[k][left:right])
                out[k, to] += ta
                out[k, to + 1] += tb
                out[k, to + 2] += tc
                out[k, to + 3] += te
            i += 4
        while i < stop:
            for k in range(vectors.shape[0]):
                out[k, at + i - start] += dot(matrix[i][left:right], vectors[k][left:right])
            i += 1


@compiled
def multiply_sparse(indptr, indices, values, vectors, start, stop, at, out):
    """out[k, at + i] = <row start + i, vectors[k]> for compressed rows start to stop."""
    for k in range(vectors.shape[0]):
        vector, scores = vectors[k], out[k]
        for i in range(stop - start):
            total = np.int64(0)
            for e in range(indptr[start + i], indptr[start + i + 1]):
                # Unsigned: a column is never counted from the end, and the compiler need not ask.
                total += np.int64(values[e]) * np.int64(vector[np.uint64(indices[e])])
            scores[at + i] = total


@compiled
def accumulate_dense(matrix, weights, start, stop, sums):
    """sums[k] += sum_i weights[k, i] matrix[start + i], eight rows at a time."""
    for k in range(weights.shape[0]):
        total = sums[k]
        i = start
        while i + 8 <= stop:
            add_eight(matrix[i : i + 8], weights[k][i - start : i - start + 8], total)
            i += 8
        while i < stop:
            add_dense(matrix[i], np.int64(weights[k, i - start]), total)
            i += 1


@compiled
def add_eight(rows, weights, total):
    """total += sum of eight weighted rows."""
    a, b, c, e = np.int64(weights[0]), np.int64(weights[1]), np.int64(weights[2]), np.int64(weights[3])
    f, g, h, p = np.int64(weights[4]), np.int64(weights[5]), np.int64(weights[6]), np.int64(weights[7])
    for j in range(rows.shape[1]):
        first = (rows[0, j] * a + rows[1, j] * b) + (rows[2, j] * c + rows[3, j] * e)
        total[j] += first + ((rows[4, j] * f + rows[5, j] * g) + (rows[6, j] * h + rows[7, j] * p))


@compiled
def accumulate_sparse(indptr, indices, values, weights, start, stop, sums):
    """sums[k] += sum_i weights[k, i] times compressed row start + i."""
    for k in range(weights.shape[0]):
        total = sums[k]
        for i in range(stop - start):
            weight = np.int64(weights[k, i])
            for e in range(indptr[start + i], indptr[start + i + 1]):
                total[np.uint64(indices[e])] += np.int64(values[e]) * weight


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
def clamped(z):
    """A score inside the public interval that slopes are prepared for."""
    return -LARGEST_MARGIN if z < -LARGEST_MARGIN else LARGEST_MARGIN if z > LARGEST_MARGIN else z


@compiled
def rounded(slope, limit):
    """clip(rint(2^20 slope), -limit, limit): the clip comes after the rounding. NaN counts as 0."""
    v = slope * RESIDUAL_ONE
    v = 0.0 if v != v else v
    v = -LARGEST_ROUNDED if v < -LARGEST_ROUNDED else LARGEST_ROUNDED if v > LARGEST_ROUNDED else v
    k = int((v + ROUNDING) - ROUNDING)
    return -limit if k < -limit else limit if k > limit else k


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
    """rho of `count` records whose targets start at `first` and whose margins and residuals start at `at`."""
    outputs = margins.shape[0]
    for k in range(outputs):
        m, target, r = margins[k][at : at + count], y[k][first : first + count], rho[k][at : at + count]
        for i in range(count):
            r[i] = rounded(slope(clamped(m[i] * unit), target[i], parameter), linf)  # noqa: F821
    for i in range(count):
        shrink(rho, at + i, l2)


def vector_residuals(margins, y, first, at, count, unit, parameter, l2, linf, rho):
    """The same for a slope that sees the scores of all outputs together."""
    outputs = margins.shape[0]
    z, out = np.empty(outputs), np.empty(outputs)
    for i in range(count):
        for k in range(outputs):
            z[k] = clamped(margins[k, at + i] * unit)
        out[:] = 0.0  # what a slope leaves alone is zero, never another record's
        slope(z, y[0, first + i], parameter, out)  # noqa: F821
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
    plain_slope = getattr(slope, "py_func", slope)
    if not isinstance(plain_slope, FunctionType):
        raise TypeError(
            f"A loss's slope must be a plain function (a static method), got {type(slope).__name__}."
        )
    if any(step.opname == "RAISE_VARARGS" for step in dis.get_instructions(plain_slope)):
        raise TypeError("A loss's slope must not raise or assert: one record would end the others' run.")
    if plain_slope is not slope:
        return slope  # compiled already
    called = {name: slope.__globals__.get(name) for name in slope.__code__.co_names}
    plain = {name: compile_slope(value) for name, value in called.items() if isinstance(value, FunctionType)}
    return njit(error_model="numpy")(bind(slope, **plain))


@cache
def residuals_of(slope: Callable[..., Any], joint: bool) -> Any:
    """Return the compiled residual function of a slope, to be handed to the kernels below.

    A joint slope sees the scores of all outputs: slope(z, y, a, out).

    It is passed by address and so is no part of a kernel's type: the kernels are compiled once for all losses
    and found again on disk. The package's own losses are cached under a name that holds the digest of their
    source; a loss of the user is compiled in each process.
    """
    function = bind(vector_residuals if joint else scalar_residuals, slope=compile_slope(slope))
    own = slope.__module__ == losses.__name__
    if own:
        function.__qualname__ = f"residuals_{slope.__name__}_{LOSSES_DIGEST}"
    return cfunc(RESIDUALS, cache=own, error_model="numpy")(function)


@compiled
def residuals(function, margins, y, start, stop, unit, parameter, l2, linf, rho):
    """rho of records start to stop, margins and residuals kept for all records."""
    function(margins, y, start, start, stop - start, unit, parameter, l2, linf, rho)


@compiled
def block_residuals(function, margins, y, first, start, stop, unit, parameter, l2, linf, rho):
    """The same, margins and residuals kept for a block of records that begins with record `first`."""
    function(margins, y, first + start, start, stop - start, unit, parameter, l2, linf, rho)


@compiled
def whole_margins(margins, theta, count, extra):
    """Make margins of whole rows out of those of what is stored: extra = (step, constant).

    The stored integers are in units of `step`, and a `constant` other than 0 is the value of a last feature
    that is the same in every row and is not stored.
    """
    step, constant = extra
    if step == 1 and constant == 0:
        return
    for k in range(theta.shape[0]):
        offset = np.int64(theta[k, theta.shape[1] - 1]) * constant
        for i in range(count):
            margins[k, i] = margins[k, i] * step + offset


@compiled
def accumulate_constant(rho, count, extra, sums):
    """sums[k, -1] += constant * sum_i rho[k, i]."""
    constant = extra[1]
    if constant == 0:
        return
    for k in range(rho.shape[0]):
        total = np.int64(0)
        for i in range(count):
            total += rho[k, i]
        sums[k, sums.shape[1] - 1] += total * constant


@compiled
def gradient_dense(matrix, y, theta, function, unit, parameter, l2, linf, start, stop, block, extra, sums):
    """sums += sum_i rho_i k_i over rows start to stop; a block of rows is read twice while it is in cache.

    What is added for stored features is in units of their step; see `whole_margins`.
    """
    margins = np.empty((theta.shape[0], block), dtype=np.int64)
    rho = np.empty((theta.shape[0], block), dtype=np.int32)
    for first in range(start, stop, block):
        last = min(stop, first + block)
        multiply_dense(matrix, theta, first, last, 0, margins)
        whole_margins(margins, theta, last - first, extra)
        function(margins, y, first, 0, last - first, unit, parameter, l2, linf, rho)
        accumulate_dense(matrix, rho, first, last, sums)
        accumulate_constant(rho, last - first, extra, sums)


@compiled
def gradient_sparse(
    indptr, indices, values, y, theta, function, unit, parameter, l2, linf, start, stop, block, extra, sums
):
    """The same for compressed rows."""
    margins = np.empty((theta.shape[0], block), dtype=np.int64)
    rho = np.empty((theta.shape[0], block), dtype=np.int32)
    for first in range(start, stop, block):
        last = min(stop, first + block)
        multiply_sparse(indptr, indices, values, theta, first, last, 0, margins)
        whole_margins(margins, theta, last - first, extra)
        function(margins, y, first, 0, last - first, unit, parameter, l2, linf, rho)
        accumulate_sparse(indptr, indices, values, rho, first, last, sums)
        accumulate_constant(rho, last - first, extra, sums)


# -- differences of residuals between two iterates, over a batch of rows


@compiled
def subtract(rho, before, count, l2, linf):
    """rho - before of each record, clipped on the integers to the bounds of a difference."""
    for k in range(rho.shape[0]):
        for i in range(count):
            change = np.int64(rho[k, i]) - np.int64(before[k, i])
            rho[k, i] = -linf if change < -linf else linf if change > linf else change
    for i in range(count):
        shrink(rho, i, l2)


@compiled
def difference_dense(matrix, y, batch, points, units, function, rest, bound, start, stop, block, extra, sums):
    """sums += sum_i (rho_i(points[0]) - rho_i(points[1])) k_i over rows batch[start] to batch[stop - 1].

    Only these rows are read, a block of them at a time into a copy that stays in cache.
    """
    outputs = sums.shape[0]
    parameter, l2, linf = rest
    rows = np.empty((block, matrix.shape[1]), dtype=matrix.dtype)
    targets = np.empty((y.shape[0], block))
    margins = np.empty((outputs, block), dtype=np.int64)
    rho = np.empty((outputs, block), dtype=np.int32)
    before = np.empty((outputs, block), dtype=np.int32)
    for first in range(start, stop, block):
        count = min(stop - first, block)
        for i in range(count):
            rows[i] = matrix[batch[first + i]]
            targets[:, i] = y[:, batch[first + i]]
        multiply_dense(rows, points[0], 0, count, 0, margins)
        whole_margins(margins, points[0], count, extra)
        function(margins, targets, 0, 0, count, units[0], parameter, l2, linf, rho)
        multiply_dense(rows, points[1], 0, count, 0, margins)
        whole_margins(margins, points[1], count, extra)
        function(margins, targets, 0, 0, count, units[1], parameter, l2, linf, before)
        subtract(rho, before, count, bound[0], bound[1])
        accumulate_dense(rows, rho, 0, count, sums)
        accumulate_constant(rho, count, extra, sums)


@compiled
def difference_sparse(
    indptr, indices, values, y, batch, points, units, function, rest, bound, start, stop, block, extra, sums
):
    """The same for compressed rows, read where they are."""
    outputs = sums.shape[0]
    parameter, l2, linf = rest
    targets = np.empty((y.shape[0], block))
    margins = np.empty((outputs, block), dtype=np.int64)
    rho = np.empty((outputs, block), dtype=np.int32)
    before = np.empty((outputs, block), dtype=np.int32)
    for first in range(start, stop, block):
        count = min(stop - first, block)
        for i in range(count):
            row = batch[first + i]
            targets[:, i] = y[:, row]
            multiply_sparse(indptr, indices, values, points[0], row, row + 1, i, margins)
        whole_margins(margins, points[0], count, extra)
        function(margins, targets, 0, 0, count, units[0], parameter, l2, linf, rho)
        for i in range(count):
            row = batch[first + i]
            multiply_sparse(indptr, indices, values, points[1], row, row + 1, i, margins)
        whole_margins(margins, points[1], count, extra)
        function(margins, targets, 0, 0, count, units[1], parameter, l2, linf, before)
        subtract(rho, before, count, bound[0], bound[1])
        for i in range(count):
            row = batch[first + i]
            accumulate_sparse(indptr, indices, values, rho[:, i : i + 1], row, row + 1, sums)
        accumulate_constant(rho, count, extra, sums)
