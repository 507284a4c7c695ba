"""Compiled passes over the cells of a universe; imported only when a histogram is used.

A pass reads the cells in order and accumulates in float64 or in exact integers.
"""

# Numba gives the kernels their types when it compiles them; `slope` is bound by name.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators, disable-error-code="name-defined"

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from numba import njit

from dpcvx.data.kernels import bind, compile_slope, compiled


@compiled
def fold(weights, rows, sums):
    """Add row o of `weights`, shape (outer, inner), to row rows[o] of `sums`."""
    outer, inner = weights.shape
    for o in range(outer):
        row = rows[o]
        for i in range(inner):
            sums[row, i] += weights[o, i]


@compiled
def gather(columns, sums, table):
    """Add column i of `sums` to column columns[i] of `table`."""
    for row in range(sums.shape[0]):
        for i in range(columns.shape[0]):
            table[row, columns[i]] += sums[row, i]


@compiled
def scale(weights, rows, columns, factors, out):
    """out[o, i] = weights[o, i] * factors[rows[o], columns[i]]."""
    outer, inner = weights.shape
    for o in range(outer):
        row = rows[o]
        for i in range(inner):
            out[o, i] = weights[o, i] * factors[row, columns[i]]


@compiled
def shift(log_weights, rows, columns, table):
    """log_weights[o, i] += table[rows[o], columns[i]]."""
    outer, inner = log_weights.shape
    for o in range(outer):
        row = rows[o]
        for i in range(inner):
            log_weights[o, i] += table[row, columns[i]]


@compiled
def count(cells, strides, sizes, table):
    """Count the records in each cell of the marginal of some attributes, exactly."""
    for record in range(cells.shape[0]):
        place = 0
        for a in range(strides.shape[0]):
            place = place * sizes[a] + cells[record] // strides[a] % sizes[a]
        table[place] += 1


@compiled
def count_codes(codes, axes, sizes, table):
    """Count the records in each cell of the marginal of some attributes, from their codes, exactly."""
    for record in range(codes.shape[1]):
        place = 0
        for a in range(axes.shape[0]):
            place = place * sizes[a] + codes[axes[a], record]
        table[place] += 1


@cache
def slopes_of(slope: Callable[..., Any]) -> Any:
    """Return `weighted_slopes` compiled for one loss."""
    return njit(nogil=True, error_model="numpy")(bind(weighted_slopes, slope=compile_slope(slope)))


def weighted_slopes(scores, weights, y, parameter, out):
    """out[o, i] = sum_l weights[o, l, i] phi'(scores[o, i], y[l]), l the levels of the target."""
    outer, levels, inner = weights.shape
    for o in range(outer):
        for i in range(inner):
            out[o, i] = weights[o, 0, i] * slope(scores[o, i], y[0], parameter)  # noqa: F821
        for level in range(1, levels):
            for i in range(inner):
                out[o, i] += weights[o, level, i] * slope(scores[o, i], y[level], parameter)  # noqa: F821
