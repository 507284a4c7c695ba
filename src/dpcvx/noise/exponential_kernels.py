"""The compiled part of exact selection, importing numba.

Items lie in `order`, sorted by level: those of level l at start[l] to start[l + 1]. Others, as many as
`loose` says, belong to one level without being listed; they come behind the listed ones. A proposal reads one
word for the level, one or more for the item and its sign, one for the decision to keep it. A proposal
that float64 cannot decide is handed back with its words, for `dpcvx.noise.exponential` to decide exactly.
"""

# Numba gives the kernels their types when it compiles them.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import numpy as np
from numba import njit

WORD = 2.0**64
HALF = np.uint64(32)
LOW_HALF = np.uint64(2**32 - 1)
ONE = np.uint64(1)
DOUBT = 2.0**-40  # relative; exp2 to 2^-45, two roundings and a word read as float64 are far inside it
ROUNDING = 2.0**-50

KEPT, NO_WORDS, UNSURE = 0, 1, 2

compiled = njit(cache=True, nogil=True, error_model="numpy")


@compiled
def arrange(log_weights, signed, levels, order):
    """Sort items by level = ceil(log2-weight), or of its size if signed; return (start, lowest level)."""
    count = log_weights.shape[0]
    lowest = highest = 0
    for j in range(count):
        level = int(np.ceil(abs(log_weights[j]) if signed else log_weights[j]))
        levels[j] = level
        if j == 0 or level < lowest:
            lowest = level
        if j == 0 or level > highest:
            highest = level
    start = np.zeros(highest - lowest + 2, dtype=np.int64)
    for j in range(count):
        start[levels[j] - lowest + 1] += 1
    for at in range(1, start.shape[0]):
        start[at] += start[at - 1]
    free = start.copy()
    for j in range(count):
        at = levels[j] - lowest
        order[free[at]] = j
        free[at] += 1
    return start, lowest


@compiled
def items_on(start, loose, at):
    """Number of items on a level, with loose = (level, number) of those that are not listed."""
    return start[at + 1] - start[at] + (loose[1] if at == loose[0] else 0)


@compiled
def total_weight(start, loose):
    """Sum of (items of level l) 2^(l - top), within (levels + 8) 2^-50 of it."""
    total = 0.0
    for at in range(start.shape[0] - 1):
        total = 0.5 * total + items_on(start, loose, at)
    return total


@compiled
def level_of(start, loose, total, word):
    """Level whose share of the total, from the top down, holds the word's place; -1 if float64 cannot say."""
    place = float(word) / WORD * total
    doubt = (start.shape[0] + 8) * ROUNDING * total
    reached, unit = 0.0, 1.0
    for at in range(start.shape[0] - 2, -1, -1):
        reached += unit * items_on(start, loose, at)
        unit *= 0.5
        if place < reached - doubt:
            return at
        if place < reached + doubt:
            return -1
    return -1


@compiled
def item_of(words, position, count):
    """(position, offset below count, sign): equal parts of a word's upper half, again where it fits none."""
    size = np.uint64(count)
    while position < words.shape[0]:
        word = words[position]
        position += 1
        product = (word >> HALF) * size
        rest = product & LOW_HALF
        if rest >= size or rest >= ((LOW_HALF - size + ONE) % size):
            return position, np.int64(product >> HALF), 1 - 2 * np.int64(word & ONE)
    return position, np.int64(-1), 1


@compiled
def decide(exponent, word):
    """Whether the word's place in [0, 1) is below 2^-exponent: 1, 0, or -1 if float64 cannot tell."""
    threshold = WORD * np.exp2(-exponent)
    place, doubt = float(word), DOUBT * threshold + 4.0
    if place < threshold - doubt:
        return 1
    if place > threshold + doubt:
        return 0
    return -1


@compiled
def draw(log_weights, signed, order, start, lowest, words, position):
    """Propose until an item is kept; return (state, position, item, sign).

    The position is behind the last word used, or, where words ran out or a decision is unsure, at the first
    word of that proposal.
    """
    loose = (-1, 0)
    total = total_weight(start, loose)
    while position < words.shape[0]:
        first = position
        at = level_of(start, loose, total, words[position])
        if at < 0:
            return UNSURE, first, 0, 1
        position, offset, sign = item_of(words, position + 1, start[at + 1] - start[at])
        if offset < 0 or position == words.shape[0]:
            return NO_WORDS, first, 0, 1
        item = order[start[at] + offset]
        sign = sign if signed else 1
        kept = decide(lowest + at - sign * log_weights[item], words[position])
        position += 1
        if kept == 1:
            return KEPT, position, item, sign
        if kept < 0:
            return UNSURE, first, 0, 1
    return NO_WORDS, position, 0, 1
