"""Compiled passes over shards for followed margins; see `dpcvx.data.kernels` for the rest."""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import numpy as np

from dpcvx.data.kernels import accumulate_constant, accumulate_dense, accumulate_sparse, add_dense, compiled
from dpcvx.data.kernels.products import dot, four_dots


@compiled
def move_dense(matrix, first, last, j, weight, margins):
    """margins[i] += weight * matrix[first + i, j]."""
    for i in range(last - first):
        margins[i] += np.int64(matrix[first + i, j]) * weight


@compiled
def move_sparse(indptr, indices, values, first, last, j, weight, margins):
    """The same for compressed rows, whose columns ascend."""
    for i in range(last - first):
        low, high = indptr[first + i], indptr[first + i + 1]
        end = high
        while low < high:
            middle = (low + high) // 2
            if indices[middle] < j:
                low = middle + 1
            else:
                high = middle
        if low < end and indices[low] == j:
            margins[i] += np.int64(values[low]) * weight


@compiled
def scores_dense(matrix, y, margins, at, moves, function, rest, start, stop, block, extra, sums):
    """Move the margins of rows start to stop, then sums += sum_i rho_i k_i, in one pass over the rows.

    moves = (features, outputs, amounts); row i has margins[:, at + i]. Sums of stored features are
    in units of their step, extra = (step, constant) as in `dpcvx.data.kernels.whole_margins`.
    """
    features, outputs, amounts = moves
    unit, parameter, l2, linf = rest
    step, constant = extra
    kept = np.empty((margins.shape[0], block), dtype=np.int64)
    rho = np.empty((margins.shape[0], block), dtype=np.int32)
    for first in range(start, stop, block):
        last = min(stop, first + block)
        for m in range(features.shape[0]):
            moved = margins[outputs[m]][at + first : at + last]
            if features[m] == matrix.shape[1]:
                moved += constant * amounts[m]
            else:
                move_dense(matrix, first, last, features[m], step * amounts[m], moved)
        for k in range(margins.shape[0]):
            kept[k][: last - first] = margins[k][at + first : at + last]
        function(kept, y, first, 0, last - first, unit, parameter, l2, linf, rho)
        accumulate_dense(matrix, rho, first, last, sums)
        accumulate_constant(rho, last - first, extra, sums)


@compiled
def scores_sparse(
    indptr, indices, values, width, y, margins, at, moves, function, rest, start, stop, block, extra, sums
):
    """The same for compressed rows of a width."""
    features, outputs, amounts = moves
    unit, parameter, l2, linf = rest
    step, constant = extra
    kept = np.empty((margins.shape[0], block), dtype=np.int64)
    rho = np.empty((margins.shape[0], block), dtype=np.int32)
    for first in range(start, stop, block):
        last = min(stop, first + block)
        for m in range(features.shape[0]):
            moved = margins[outputs[m]][at + first : at + last]
            if features[m] == width:
                moved += constant * amounts[m]
            else:
                move_sparse(indptr, indices, values, first, last, features[m], step * amounts[m], moved)
        for k in range(margins.shape[0]):
            kept[k][: last - first] = margins[k][at + first : at + last]
        function(kept, y, first, 0, last - first, unit, parameter, l2, linf, rho)
        accumulate_sparse(indptr, indices, values, rho, first, last, sums)
        accumulate_constant(rho, last - first, extra, sums)


@compiled
def scores_columns(matrix, y, margins, at, moves, function, rest, start, stop, block, extra, sums):
    """The same for a feature-major matrix: row i is its column i."""
    features, outputs, amounts = moves
    unit, parameter, l2, linf = rest
    step, constant = extra
    kept = np.empty((margins.shape[0], block), dtype=np.int64)
    rho = np.empty((margins.shape[0], block), dtype=np.int32)
    for first in range(start, stop, block):
        last = min(stop, first + block)
        for m in range(features.shape[0]):
            moved = margins[outputs[m]][at + first : at + last]
            if features[m] == matrix.shape[0]:
                moved += constant * amounts[m]
            else:
                add_dense(matrix[features[m]][first:last], step * amounts[m], moved)
        for k in range(margins.shape[0]):
            kept[k][: last - first] = margins[k][at + first : at + last]
        function(kept, y, first, 0, last - first, unit, parameter, l2, linf, rho)
        for k in range(margins.shape[0]):
            add_products(matrix, first, last, rho[k][: last - first], sums[k])
        accumulate_constant(rho, last - first, extra, sums)


@compiled
def add_products(matrix, first, last, vector, sums):
    """sums[j] += <matrix[j, first:last], vector>, four rows at a time."""
    j = 0
    while j + 4 <= matrix.shape[0]:
        a, b = matrix[j][first:last], matrix[j + 1][first:last]
        c, e = matrix[j + 2][first:last], matrix[j + 3][first:last]
        ta, tb, tc, te = four_dots(a, b, c, e, vector)
        sums[j] += ta
        sums[j + 1] += tb
        sums[j + 2] += tc
        sums[j + 3] += te
        j += 4
    while j < matrix.shape[0]:
        sums[j] += dot(matrix[j][first:last], vector)
        j += 1
