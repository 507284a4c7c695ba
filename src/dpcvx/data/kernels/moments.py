"""Sums of powers of stored cells, and counts of cells that are not missing."""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

from dpcvx.data.kernels.jit import compiled
from dpcvx.data.kernels.quantise import bounded

__all__ = ["add_moments"]


@compiled
def add_moments(block, centers, limits, order, marked, room, weights, shift, total, cells):
    """total[j] += sum_i (weights[i] clip(k_ij - centers[j])^order) >> shift; see `MomentSum`.

    A 0 of a marked column is a missing cell: its square is not added. cells[j] += the weights of the others.
    With ``room`` >= 0 rows whose squares in the columns without a mark add up to more than it add nothing.
    """
    n, d = block.shape
    some = marked.any()
    for i in range(n):
        if room >= 0:
            squares = 0
            for j in range(d):
                k = int(block[i, j])
                squares += 0 if marked[j] else k * k
            if squares > room:
                continue
        weight = weights[i]
        for j in range(d):
            k = bounded(int(block[i, j]) - centers[j], -limits[j], limits[j])
            total[j] += weight * (k if order == 1 else k * k) >> shift
        if some:
            for j in range(d):
                if marked[j] and block[i, j] != 0:
                    cells[j] += weight
                elif marked[j] and order == 2:
                    k = bounded(-centers[j], -limits[j], limits[j])
                    total[j] -= weight * k * k >> shift
