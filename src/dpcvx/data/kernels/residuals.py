"""Residuals of records: slopes in floating point, rounded to integers and clipped.

This is the only step in floating point, a function of one record and public numbers.
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
from numba.core.errors import NumbaError

from dpcvx import losses
from dpcvx.accounting import WEIGHT
from dpcvx.data.kernels.jit import compiled
from dpcvx.data.kernels.quantise import SHRINK_SLACK
from dpcvx.data.lattice import RESIDUAL_BITS
from dpcvx.errors import WrongType

__all__ = ["bind", "block_residuals", "compile_slope", "residuals_of", "shrink_all"]

RESIDUAL_ONE = float(2**RESIDUAL_BITS)
WHOLE_WEIGHT = float(WEIGHT)  # products with 32-bit residuals are exact in float64
LARGEST_MARGIN = 2.0**30  # scores are clamped here before a slope sees them
LARGEST_ROUNDED = 2.0**31
ROUNDING = 1.5 * 2.0**52  # adding and subtracting it rounds to the nearest integer, ties to even, below 2^51


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


@compiled
def shrink_all(rho, at, count, l2, linf):
    """Apply `shrink` to `count` records from the place `at`, whose entries are at most linf."""
    if rho.shape[0] == 1 and linf <= l2:
        return  # the norm of a single entry is its absolute value
    for i in range(count):
        shrink(rho, at + i, l2)


@compiled
def weigh(rho, weights, first, at, count):
    """Replace rho by trunc(w rho / 2^14), w the integer weight of its record: PRIVACY_MATH §16.

    |rho| <= R before, so that the residuals of rows whose weights add up to 2^14 add up to at most R.
    """
    for k in range(rho.shape[0]):
        for i in range(count):
            rho[k, at + i] = int(rho[k, at + i] * weights[first + i] / WHOLE_WEIGHT)


def scalar_residuals(margins, y, first, at, count, unit, parameter, l2, linf, rho):
    """rho of `count` records whose targets start at `first` and whose margins and residuals start at `at`.

    A row of y after the targets holds the records' weights.
    """
    outputs = margins.shape[0]
    for k in range(outputs):
        m, target, r = margins[k][at : at + count], y[k][first : first + count], rho[k][at : at + count]
        for i in range(count):
            # A record with a missing target adds 0, whatever the slope would make of NaN.
            known = target[i] == target[i]
            r[i] = rounded(slope(clamped(m[i] * unit), target[i], parameter), linf) if known else 0  # noqa: F821
    shrink_all(rho, at, count, l2, linf)
    if y.shape[0] > outputs:
        weigh(rho, y[outputs], first, at, count)


def offset_residuals(margins, y, first, at, count, unit, parameter, l2, linf, rho):
    """The same for one score of a record whose offset is the row of y after its target, before weights."""
    for i in range(count):
        z, target = margins[0, at + i] * unit + y[1, first + i], y[0, first + i]
        known = target == target
        rho[0, at + i] = rounded(slope(clamped(z), target, parameter), linf) if known else 0  # noqa: F821
    shrink_all(rho, at, count, l2, linf)
    if y.shape[0] > 2:
        weigh(rho, y[2], first, at, count)


def vector_residuals(margins, y, first, at, count, unit, parameter, l2, linf, rho):
    """The same for a slope that sees the scores of all outputs together."""
    outputs = margins.shape[0]
    z, out = np.empty(outputs), np.empty(outputs)
    for i in range(count):
        for k in range(outputs):
            z[k] = clamped(margins[k, at + i] * unit)
        out[:] = 0.0  # what a slope leaves alone is zero, never another record's
        if y[0, first + i] == y[0, first + i]:
            slope(z, y[0, first + i], parameter, out)  # noqa: F821
        for k in range(outputs):
            rho[k, at + i] = rounded(out[k], linf)
        shrink(rho, at + i, l2)
    if y.shape[0] > 1:
        weigh(rho, y[1], first, at, count)


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
_SOURCES = sorted(Path(losses.__file__).parent.glob("*.py"))
LOSSES_DIGEST = hashlib.sha256(b"".join(path.read_bytes() for path in _SOURCES)).hexdigest()[:16]


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
        raise WrongType(
            f"A loss's slope must be a plain function (a static method), got {type(slope).__name__}."
        )
    if any(step.opname == "RAISE_VARARGS" for step in dis.get_instructions(plain_slope)):
        raise WrongType("A loss's slope must not raise or assert: one record would end the others' run.")
    if plain_slope is not slope:
        return slope  # compiled already
    called = {name: slope.__globals__.get(name) for name in slope.__code__.co_names}
    plain = {name: compile_slope(value) for name, value in called.items() if isinstance(value, FunctionType)}
    return njit(error_model="numpy")(bind(slope, **plain))


@cache
def residuals_of(slope: Callable[..., Any], joint: bool, offset: bool = False) -> Any:
    """Return the compiled residual function of a slope, to be handed to the kernels below.

    A joint slope sees the scores of all outputs: slope(z, y, a, out). With an offset of each record, a row of
    y, it is added to the score.

    It is passed by address and so is no part of a kernel's type: the kernels are compiled once for all losses
    and found again on disk. The package's own losses are cached under a name that holds the digest of their
    source; a loss of the user is compiled in each process.
    """
    plain = offset_residuals if offset else vector_residuals if joint else scalar_residuals
    function = bind(plain, slope=compile_slope(slope))
    own = slope.__module__.startswith(f"{losses.__name__}.")
    if own:
        function.__qualname__ = f"{plain.__name__}_{slope.__name__}_{LOSSES_DIGEST}"
    try:
        return cfunc(RESIDUALS, cache=own, error_model="numpy")(function)
    except NumbaError as problem:
        raise WrongType(
            f"The slope {slope.__name__} does not compile. Use +, -, *, /, comparisons, and functions "
            "that are imported by name; the cause above names the first line that does something else."
        ) from problem


@compiled
def block_residuals(function, margins, y, first, start, stop, unit, parameter, l2, linf, rho):
    """rho of places start to stop of a block of records that begins with record `first`."""
    function(margins, y, first + start, start, stop - start, unit, parameter, l2, linf, rho)
