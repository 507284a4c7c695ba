"""The compiled part of the lattice Gaussian: integers only, importing numba.

Each kernel is plain Python as well (`fill_gaussian.py_func`), and gives the same integers in that form.
All constants are typed: numba turns `uint64 + int` into floating point.
"""

from __future__ import annotations

import numba
import numpy as np
from numba.extending import register_jitable
from numpy.typing import NDArray

Words = NDArray[np.uint64]

ZERO = np.uint64(0)
ONE = np.uint64(1)
HALF_WORD = np.uint64(32)
LOW_HALF = np.uint64(2**32 - 1)
TOP_BIT = np.uint64(63)
QUARTER = np.uint64(2**62)


def even_run(words: Words, position: int, high: np.uint64, low: np.uint64, squared: bool) -> tuple[int, bool]:
    """Draw Bernoulli(exp(-x)), or Bernoulli(exp(-x^2/2)) if `squared`, for x = high 2^-64 + low 2^-128.

    The length N of the run x > z_1 > z_2 > ... of uniform deviates has P(N >= n) = x^n / n!, times (x/2)^n if
    each step must also pass r < x/2; P(N even) is the wanted number ([Karney16] algorithms H and B).
    A deviate is one word; its second word is drawn when the first words tie.

    Returns
    -------
    tuple
        The next position and the outcome; position -1 if the words ran out.
    """
    half = high >> ONE
    half_low = (high << TOP_BIT) | (low >> ONE)
    even = True
    low_known = True
    while True:
        if position + 5 > words.size:
            return -1, False
        if squared:
            trial = words[position]
            position += 1
            if trial > half:
                return position, even
            if trial == half:
                trial_low = words[position]
                position += 1
                if trial_low >= half_low:
                    return position, even
        deviate = words[position]
        position += 1
        if deviate > high:
            return position, even
        if deviate == high:
            if not low_known:
                low = words[position]
                position += 1
            deviate_low = words[position]
            position += 1
            if deviate_low >= low:
                return position, even
            low = deviate_low
            low_known = True
        else:
            low_known = False
        high = deviate
        even = not even


def rounded_product(scale: np.uint64, high: np.uint64, low: np.uint64) -> np.uint64:
    """Return floor(scale (high 2^-64 + low 2^-128) + 1/2) for scale < 2^62, without overflow."""
    s1, s0 = scale >> HALF_WORD, scale & LOW_HALF
    a1, a0 = high >> HALF_WORD, high & LOW_HALF
    b1, b0 = low >> HALF_WORD, low & LOW_HALF
    # scale * high = upper 2^64 + lower
    middle = s1 * a0 + ((s0 * a0) >> HALF_WORD)
    cross = s0 * a1 + (middle & LOW_HALF)
    upper = s1 * a1 + (middle >> HALF_WORD) + (cross >> HALF_WORD)
    lower = (cross << HALF_WORD) | ((s0 * a0) & LOW_HALF)
    # carried = floor(scale * low / 2^64); what lies below it cannot reach the rounding bit
    middle = s1 * b0 + ((s0 * b0) >> HALF_WORD)
    cross = s0 * b1 + (middle & LOW_HALF)
    carried = s1 * b1 + (middle >> HALF_WORD) + (cross >> HALF_WORD)
    half_sum = (lower >> ONE) + (carried >> ONE) + (lower & carried & ONE)
    return upper + ((half_sum + QUARTER) >> TOP_BIT)


register_jitable(even_run)
register_jitable(rounded_product)


def _fill_gaussian(
    scale: np.uint64, words: Words, cell_high: Words, cell_low: Words, out: NDArray[np.int64]
) -> tuple[int, int]:
    """Write independent draws of round(scale * Z) to `out` until it is full or the words run out.

    [Karney16] algorithm N: the integer part k has P(k) proportional to exp(-k^2/2) (one look in the table of
    its distribution function), the fraction x is uniform and kept with probability exp(-x(2k+x)/2), and the
    sign is fair.

    Returns
    -------
    tuple
        The number of draws written, and the number of words they used. The words after those belong to a draw
        that is not finished: they must come first in the next call, else long draws would be too rare.
    """
    filled = 0
    start = 0
    last = cell_high.size
    while filled < out.size:
        position = start
        if position + 4 > words.size:
            return filled, start
        word = words[position]
        position += 1
        k = 0
        while k < last and word > cell_high[k]:
            k += 1
        if k < last and word == cell_high[k]:
            word_low = words[position]
            position += 1
            while k < last and word == cell_high[k] and word_low >= cell_low[k]:
                k += 1
        high = words[position]
        sign = words[position + 1] & ONE
        low = words[position + 1] ^ sign
        position += 2
        position, kept = even_run(words, position, high, low, True)
        run = 0
        while kept and run < k:
            position, kept = even_run(words, position, high, low, False)
            run += 1
        if position < 0:
            return filled, start
        start = position
        if kept:
            magnitude = np.int64(scale) * np.int64(k) + np.int64(rounded_product(scale, high, low))
            out[filled] = magnitude - np.int64(2) * np.int64(sign) * magnitude
            filled += 1
    return filled, start


fill_gaussian = numba.njit(cache=True, nogil=True)(_fill_gaussian)
