"""Passes over rows: sums of gradients, and of differences of gradients between two iterates."""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import numpy as np

from dpcvx.data.kernels.jit import compiled
from dpcvx.data.kernels.products import (
    accumulate_columns,
    accumulate_dense,
    accumulate_sparse,
    multiply_columns,
    multiply_dense,
    multiply_sparse,
)
from dpcvx.data.kernels.residuals import WHOLE_WEIGHT, shrink_all


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

    Sums of stored features are in units of their step; see `whole_margins`.
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
def gradient_columns(columns, y, theta, function, unit, parameter, l2, linf, start, stop, block, sums):
    """The same for whole rows that are stored feature-major, columns of shape (d, n)."""
    margins = np.empty((theta.shape[0], block), dtype=np.int64)
    rho = np.empty((theta.shape[0], block), dtype=np.int32)
    for first in range(start, stop, block):
        last = min(stop, first + block)
        multiply_columns(columns, theta, first, last, margins)
        function(margins, y, first, 0, last - first, unit, parameter, l2, linf, rho)
        accumulate_columns(columns, rho, first, last, sums)


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


@compiled
def subtract(rho, before, count, l2, linf):
    """rho - before of each record, clipped on the integers to the bounds of a difference."""
    for k in range(rho.shape[0]):
        for i in range(count):
            change = np.int64(rho[k, i]) - np.int64(before[k, i])
            rho[k, i] = -linf if change < -linf else linf if change > linf else change
    shrink_all(rho, 0, count, l2, linf)


@compiled
def weigh_sample(rho, weights, batch, first, count):
    """Multiply the residuals of records batch[first + i] by their weights, where there are any."""
    if weights.shape[0] == 0:
        return
    for k in range(rho.shape[0]):
        for i in range(count):
            rho[k, i] = int(rho[k, i] * weights[batch[first + i]] / WHOLE_WEIGHT)


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
        weigh_sample(rho, bound[2], batch, first, count)
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
        weigh_sample(rho, bound[2], batch, first, count)
        for i in range(count):
            row = batch[first + i]
            accumulate_sparse(indptr, indices, values, rho[:, i : i + 1], row, row + 1, sums)
        accumulate_constant(rho, count, extra, sums)
