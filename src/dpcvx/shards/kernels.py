"""Compiled passes over row-major shards for followed margins; see `dpcvx.kernels` for the rest."""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import numpy as np

from dpcvx.kernels import accumulate_constant, accumulate_dense, accumulate_sparse, compiled


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

    moves = (features, outputs, amounts); row i has margins[:, at + i]. What is added for stored features is
    in units of their step, extra = (step, constant) as in `dpcvx.kernels.whole_margins`.
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
