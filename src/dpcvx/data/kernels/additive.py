"""Features of additive models: rows expanded and quantised in one pass, and sums over products of pairs."""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import numpy as np

from dpcvx.data.kernels.jit import compiled
from dpcvx.data.kernels.quantise import bounded, round_row

__all__ = ["accumulate_products", "quantise_additive"]


@compiled
def quantise_additive(block, center, scale, places, numbers, weights, width, x_inf, x_2, k_inf, k2, out):
    """Quantise the features of an additive basis, as `AdditiveBasis` defines them, into columns of `out`.

    places: (bent, pairs), the numbers that have ramps with the place of the first, and the pairs
    numbers: (knots, reach); weights: (of ramps, of pairs, largest feature)
    """
    bent, pairs = places
    knots, reach = numbers
    ramp, pair, largest = weights
    n, d = block.shape
    ramps = max(0, knots.shape[0] - 1)
    u, x = np.empty(d), np.zeros(width)
    count = ramps * bent.shape[0]
    # one entry for each ramp, so that one loop without branches makes all of them
    cells, low, rise, base = np.empty(count), np.empty(count), np.empty(count), np.empty(count)
    for f in range(count):
        k = f % ramps
        low[f], rise[f] = knots[k], knots[k + 1] - knots[k]
        base[f] = ramp if knots[k + 1] <= 0 else 0.0
    for i in range(n):
        for j in range(d):
            v = block[i, j]
            u[j] = bounded((v - center[j]) / scale[j], -reach, reach) if np.isfinite(v) else 0.0
            x[j] = u[j] / largest
        for e in range(bent.shape[0]):
            for k in range(ramps):
                cells[e * ramps + k] = u[bent[e, 0]]
        for f in range(count):
            cells[f] = (ramp * bounded((cells[f] - low[f]) / rise[f], 0.0, 1.0) - base[f]) / largest
        for e in range(bent.shape[0]):
            for k in range(ramps):
                x[bent[e, 1] + k] = cells[e * ramps + k]
        first = width - pairs.shape[0]
        for e in range(pairs.shape[0]):
            product = bounded(u[pairs[e, 0]] * u[pairs[e, 1]], -reach, reach)
            x[first + e] = pair * product / largest
        for f in range(width):
            x[f] = bounded(x[f], -x_inf, x_inf)
        round_row(x, x_2, k_inf, k2, out[i, :width])


@compiled
def accumulate_products(block, pairs, factor, limit, rho, sums):
    """sums[k, e] += sum_i rho[k, i] p_i, p_i = trunc(factor a b) clipped, a and b the cells of pair e."""
    for i in range(block.shape[0]):
        for e in range(pairs.shape[0]):
            a, b = np.float64(block[i, pairs[e, 0]]), np.float64(block[i, pairs[e, 1]])
            product = np.int64(bounded(factor * (a * b), -limit, limit))
            for k in range(rho.shape[0]):
                sums[k, e] += rho[k, i] * product
