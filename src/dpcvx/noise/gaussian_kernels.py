"""The compiled part of the lattice Gaussian, importing numba.

The kernel is plain Python as well (`fill_gaussian.py_func`), and gives the same integers in that form.
All constants are typed: numba turns `uint64 + int` into floating point.
"""

from __future__ import annotations

import math

import numba
import numpy as np
from numba.extending import register_jitable
from numpy.typing import NDArray

Words = NDArray[np.uint64]

WORDS_PER_DRAW = 3  # one for sign, column and place in the column, one for x, one for the decision to keep it

ONE = np.uint64(1)
HALF_WORD = np.uint64(32)
LOW_HALF = np.uint64(2**32 - 1)
LAST_WORD = np.uint64(2**64 - 1)
COLUMN = np.uint64(2**10 - 1)
PLACE_SHIFT = np.uint64(11)
CELL_SHIFT = np.uint64(5)
CELL = np.uint64(31)
HALF_CELL = np.uint64(16)
WORD_UNIT = 2.0**-64
# Both sides of the decision to keep x are known up to their digits beyond the 64th, five roundings and an
# exponential that is right to 2^-45: what lies closer than this is settled elsewhere.
DOUBT = 2.0**-40


def full_product(scale: np.uint64, word: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Return the high and the low word of scale * word."""
    s1, s0 = scale >> HALF_WORD, scale & LOW_HALF
    w1, w0 = word >> HALF_WORD, word & LOW_HALF
    middle = s1 * w0 + ((s0 * w0) >> HALF_WORD)
    cross = s0 * w1 + (middle & LOW_HALF)
    high = s1 * w1 + (middle >> HALF_WORD) + (cross >> HALF_WORD)
    return high, (cross << HALF_WORD) | ((s0 * w0) & LOW_HALF)


register_jitable(full_product)


def _fill_gaussian(
    scale: np.uint64, words: Words, first: Words, alias: NDArray[np.int64], out: NDArray[np.int64]
) -> tuple[int, int]:
    """Write independent draws of round(scale * Z) to `out` until it is full, words run out or doubt arises.

    |Z| = (k + x) / 32 with the cell k from the alias table; x is kept with probability
    exp(-x (2k + x) / 2048), and the sign is fair. Doubt is a tie in the table, a decision too close for
    float64, or a rounding that digits of x beyond the 64th can change.

    Returns the number of draws written, and the number of words used. If draws and words are left, the next
    draw is the doubtful one.
    """
    whole, rest = scale >> CELL_SHIFT, scale & CELL
    filled = 0
    position = 0
    while filled < out.size and position + WORDS_PER_DRAW <= words.size:
        word, x, u = words[position], words[position + 1], words[position + 2]
        column = word >> ONE & COLUMN
        place = word >> PLACE_SHIFT
        threshold = first[column]
        if place == threshold:
            break
        k = column if place < threshold else np.uint64(alias[column])
        t = np.float64(x) * WORD_UNIT
        exponent = t * (np.float64(2) * np.float64(k) + t) / 2048
        level = np.float64(u) * WORD_UNIT
        if level > 1 - exponent - DOUBT:  # e^-t is never below 1 - t, so that most draws need no exponential
            chance = math.exp(-exponent)
            if level > chance + DOUBT:
                position += WORDS_PER_DRAW
                continue
            if level > chance - DOUBT:
                break
        # scale (k + x) / 32 + 1/2 = whole k + (rest k + scale x + 16) / 32
        high, low = full_product(scale, x)
        above = rest * k + high + HALF_CELL
        if above & CELL == CELL and low > LAST_WORD - scale:
            break
        magnitude = np.int64(whole * k + (above >> CELL_SHIFT))
        out[filled] = -magnitude if word & ONE else magnitude
        filled += 1
        position += WORDS_PER_DRAW
    return filled, position


fill_gaussian = numba.njit(cache=True, nogil=True)(_fill_gaussian)
