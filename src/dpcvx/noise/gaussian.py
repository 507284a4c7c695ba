"""Gaussian noise on a lattice: integers, and how far their law is from the ideal one."""

from __future__ import annotations

import functools
from decimal import Decimal, localcontext
from typing import NamedTuple

import numpy as np

from dpcvx.arrays import IntVector
from dpcvx.errors import WrongValue
from dpcvx.noise.generators import CHUNK_WORDS, Generator, Words

__all__ = ["MAX_SCALE", "gaussian_failure", "lattice_gaussian"]

MAX_SCALE = 2**58  # sixteen standard deviations stay below 2^62, as the exact sum they are added to does
_COLUMNS = 2**10  # cells of |Z|, each a 32nd of a standard deviation wide
_COLUMN_BITS = 246  # binary digits of a threshold: 256 less those that choose a column


def lattice_gaussian(scale: int, size: int, rng: Generator) -> IntVector:
    """Draw K = round(scale * Z), Z standard normal: the Gaussian of deviation scale * step, on the lattice.

    Added to an integer S it gives round(S + scale * Z), which is post-processing of the real Gaussian
    mechanism, so Gaussian accounting holds as it stands; `gaussian_failure` says how far the draws are from
    that law.

    Parameters
    ----------
    scale : int
        Standard deviation in lattice steps, 1 <= scale < 2^58.
    size : int
        Number of draws.
    rng : Generator
        Where the words come from.

    Returns
    -------
    IntVector
        Shape (size,), each entry below 19 * scale < 2^63 in absolute value, and beyond 16 * scale < 2^62 with
        a chance of 2^-188.

    Notes
    -----
    [Karney16] algorithm N with narrower cells: |Z| = (k + x) / 32, k with P(k) proportional to
    exp(-k^2 / 2048) and x uniform, kept with probability exp(-x (2k + x) / 2048), 99 times in 100. Cells come
    from an alias table of exact integers, which knows no scale, so that one table serves all. The compiled
    loop decides with 64 digits wherever they decide beyond doubt; a tie or a borderline is settled in exact
    arithmetic, with as many digits as it takes.
    """
    if not 1 <= scale < MAX_SCALE:
        raise WrongValue(
            f"The scale of lattice noise is {scale}; it must be an integer from 1 to 2^58 - 1, the standard "
            "deviation in lattice steps. Choose a finer lattice below 1, a coarser one above."
        )
    if size < 0:
        raise WrongValue(f"The number of draws is {size}; it must not be negative.")
    from dpcvx.noise.gaussian_kernels import WORDS_PER_DRAW, fill_gaussian

    cells = _cells()
    out = np.empty(size, dtype=np.int64)
    filled = 0
    while filled < size:
        missing = size - filled
        wanted = min(missing + missing // 64 + 8, CHUNK_WORDS // WORDS_PER_DRAW)
        words = rng.words(WORDS_PER_DRAW * wanted)
        while filled < size and words.size:
            count, used = fill_gaussian(np.uint64(scale), words, cells.first, cells.alias, out[filled:])
            filled, words = filled + count, words[used:]
            if filled < size and words.size:
                settled = _settle(scale, words[:WORDS_PER_DRAW].tolist(), rng)
                words = words[WORDS_PER_DRAW:]
                if settled is not None:
                    out[filled] = settled
                    filled += 1
    return out


class _Cells(NamedTuple):
    """Alias table of the cells: a column keeps its own cell for draws below its threshold."""

    thresholds: tuple[int, ...]  # in units of 2^-_COLUMN_BITS of a column
    alias: IntVector
    first: Words  # the first 53 binary digits of the thresholds


@functools.cache
def _cells() -> _Cells:
    """Return the table of P(k) = floor(2^256 p_k) / 2^256, p_k proportional to exp(-k^2 / 2048), k < 1024.

    The rest left by rounding belongs to cell 0. All numbers are integers, so that the table has exactly
    these chances.
    """
    with localcontext() as context:
        context.prec = 100
        weights = [(Decimal(-k * k) / 2048).exp() for k in range(_COLUMNS)]
        total = sum(weights)
        chances = [int(2**256 * (weight / total)) for weight in weights]
    chances[0] += 2**256 - sum(chances)
    full = 2**_COLUMN_BITS
    thresholds, alias = [full] * _COLUMNS, np.arange(_COLUMNS)
    poor = [k for k in range(_COLUMNS) if chances[k] < full]
    rich = [k for k in range(_COLUMNS) if chances[k] > full]
    while poor:
        column, giver = poor.pop(), rich[-1]
        thresholds[column], alias[column] = chances[column], giver
        chances[giver] -= full - chances[column]
        if chances[giver] <= full:
            rich.pop()
        if chances[giver] < full:
            poor.append(giver)
    first = [threshold >> (_COLUMN_BITS - 53) for threshold in thresholds]
    return _Cells(tuple(thresholds), alias, np.array(first, dtype=np.uint64))


class _Uniform:
    """A uniform number between digits 2^-bits and (digits + 1) 2^-bits."""

    def __init__(self, digits: int, bits: int, rng: Generator) -> None:
        self.digits, self.bits, self._rng = digits, bits, rng

    def refine(self) -> None:
        """Read 64 more digits."""
        self.digits = (self.digits << 64) | int(self._rng.words(1)[0])
        self.bits += 64


def _settle(scale: int, words: list[int], rng: Generator) -> int | None:
    """Return the draw that the kernel would have made with more digits; None if it is not kept."""
    first, x_digits, u_digits = words
    sign, column = first & 1, first >> 1 & _COLUMNS - 1
    cells, fraction = _cells(), _Uniform(first >> 11, 53, rng)
    if fraction.digits == int(cells.first[column]):
        while fraction.bits < _COLUMN_BITS:
            fraction.refine()
    below = fraction.digits << _COLUMN_BITS < cells.thresholds[column] << fraction.bits
    k = column if below else int(cells.alias[column])
    x, u = _Uniform(x_digits, 64, rng), _Uniform(u_digits, 64, rng)
    if not _survives(k, x, u):
        return None
    while True:
        # floor(scale (k + x) / 32 + 1/2) at both ends of what is known of x, the upper end left out
        one = 1 << x.bits
        lowest = scale * (k * one + x.digits) + 16 * one
        if lowest // (32 * one) == (lowest + scale - 1) // (32 * one):
            magnitude = lowest // (32 * one)
            return -magnitude if sign else magnitude
        x.refine()


def _survives(k: int, x: _Uniform, u: _Uniform) -> bool:
    """Decide u < exp(-x (2k + x) / 2048), with more digits until they decide it."""
    while True:
        with localcontext() as context:
            context.prec = x.bits // 3 + 20  # a decimal digit has more than three binary ones
            one = Decimal(2) ** x.bits
            t = x.digits / one
            highest = (-t * (2 * k + t) / 2048).exp()
            error = Decimal(10) ** (5 - context.prec)
            # The chance falls by at most (2k + 2) / 2048 <= 1 for each unit of x, of which one digit is open.
            if (u.digits + 1) / one <= highest - 1 / one - error:
                return True
            if u.digits / one >= highest + error:
                return False
        x.refine()
        u.refine()


def gaussian_failure() -> float:
    """Bound the total variation between one draw of `lattice_gaussian` and round(scale * Z): 2^-245.

    Given the cells, every comparison and the rounding have as many digits as they need, so a draw differs
    from the law only where a cell does. The chances of 1024 cells are cut at 2^-256, the first one gets what
    is left, and those from 1024 on, beyond 32 standard deviations, weigh less than 2^-700: the total
    variation of a cell is below 1025 2^-256, and a draw uses 1.013 of them on average.
    """
    return 2.0**-245
