"""The exponential mechanism without error: a draw by rejection from levels that are powers of two.

Every item sits on a level l >= log2 of its weight. A proposal takes a level with probability proportional to
(items on it) 2^l, then one of its items, all alike, then, if items are signed, one of the two signs; it is
kept with probability 2^(log2-weight - l) and otherwise drawn again. A kept item has probability proportional
to its weight, whatever the levels are, as long as they are bounds.

All three choices are comparisons of a uniform number with a threshold. Where 64 binary digits and float64
cannot tell, about once in 10^12, the comparison is made in exact arithmetic with as many more digits as it
takes. So the law is the ideal one, with no total variation to pay for (PRIVACY_MATH §11).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpcvx.arrays import IntVector, Vector
from dpcvx.errors import WrongValue

if TYPE_CHECKING:
    from dpcvx.noise.generators import Generator, Words

__all__ = ["Levels", "log_weight_error", "select", "select_signed", "settle"]

DEPTH = 2.0**12  # levels below the highest; a proposal from the lowest has a chance of items * 2^-DEPTH
WORDS_AT_ONCE = 48  # a proposal takes three, a draw two to five proposals

Draw = Callable[["Words", int], tuple[int, int, int, int]]
LogWeight = Callable[[int], float]


def select(log_weights: Vector, rng: Generator) -> int:
    """Draw an index with P(i) = exp(log_weights[i]) / sum_j exp(log_weights[j]).

    Exact for the weights 2^lambda with lambda the float64 product of a log-weight and log2(e);
    `log_weight_error` says what that rounding costs.

    `log_weights`: shape (p,), finite; `rng`: where the words come from.
    """
    return _from_scratch(log_weights, signed=False, rng=rng)[0]


def select_signed(log_weights: Vector, rng: Generator) -> tuple[int, int]:
    """Draw an index and a sign with P(i, s) proportional to exp(s log_weights[i]), s = 1 or -1.

    The law of `select` over the 2p signed items, from p of them: a pair shares its level, and the sign is
    part of the proposal.
    """
    return _from_scratch(log_weights, signed=True, rng=rng)


def log_weight_error(largest: float) -> float:
    """Return what rounding adds to the bounded range eta of one selection: 4 e_w.

    e_w: a log-weight, in natural units, is made from exact integers by at most eight roundings of terms that
    are no larger than ``largest``, so it is off by less than 2^-50 of it. The draw itself adds nothing.
    """
    return 4 * 2.0**-50 * largest


def _from_scratch(log_weights: Vector, *, signed: bool, rng: Generator) -> tuple[int, int]:
    if log_weights.ndim != 1 or log_weights.size == 0:
        raise WrongValue(f"Log-weights have shape {log_weights.shape}; they must be a list of at least one.")
    if not np.isfinite(log_weights).all():
        raise WrongValue("Log-weights must be finite.")
    from dpcvx.noise import exponential_kernels as kernels

    powers = log_weights * math.log2(math.e)
    # Any bound is a level, so that scores, however far apart, take no more memory than DEPTH levels.
    bounds = np.ceil(np.abs(powers) if signed else powers)
    top = bounds.max()
    order, levels = np.empty(powers.size, dtype=np.int32), np.empty(powers.size, dtype=np.int32)
    start, lowest = kernels.arrange(np.maximum(bounds - top, -DEPTH), False, levels, order)
    lowest += int(top)

    def draw(words: Words, position: int) -> tuple[int, int, int, int]:
        found: tuple[int, int, int, int] = kernels.draw(powers, signed, order, start, lowest, words, position)
        return found

    def log_weight(item: int) -> float:
        return float(powers[item])

    return settle(draw, log_weight, Levels(order, start, signed, lowest), rng)


@dataclass(frozen=True, eq=False)
class Levels:
    """Items by level, as the compiled draws read them; made of records, so it is never shown."""

    order: NDArray[np.int32]  # items, sorted by level
    start: IntVector  # where each level starts in the order; one entry more than there are levels
    signed: bool  # whether an item has two signs
    lowest: int = 0  # the level at start[0]
    # (level, number) of items that are not listed; they are called len(order), len(order) + 1, ...
    loose: tuple[int, int] = (-1, 0)

    def __repr__(self) -> str:
        return "Levels()"

    def counts(self) -> list[int]:
        """Items on each level, from the lowest."""
        counts: list[int] = np.diff(self.start).tolist()
        if self.loose[1]:
            counts[self.loose[0]] += self.loose[1]
        return counts

    def item(self, at: int, offset: int) -> int:
        """The item in some place of a level."""
        listed = int(self.start[at + 1] - self.start[at])
        if offset < listed:
            return int(self.order[self.start[at] + offset])
        return len(self.order) + offset - listed


def settle(draw: Draw, log_weight: LogWeight, levels: Levels, rng: Generator) -> tuple[int, int]:
    """Run a compiled draw, fetch words for it, and make the decisions that it leaves open.

    `draw`: (words, position) -> (state, position, item, sign), as `selection_kernels.draw`; `log_weight`: the
    log2-weight of an item with sign 1, the same float64 that the compiled draw uses; `levels`: those that the
    compiled draw uses; `rng`: where the words come from. Returns the item and its sign.
    """
    from dpcvx.noise.exponential_kernels import KEPT, NO_WORDS

    words, position = rng.words(WORDS_AT_ONCE), 0
    while True:
        state, position, item, sign = draw(words, position)
        if state == KEPT:
            return item, sign
        if state == NO_WORDS:  # the unfinished proposal goes on with the words that it has read
            words, position = np.concatenate((words[position:], rng.words(WORDS_AT_ONCE))), 0
            continue
        found = _proposal(_feed(words[position:], rng), log_weight, levels)
        if found is not None:
            return found
        words, position = words[:0], 0


def _feed(words: Words, rng: Generator) -> Iterator[int]:
    """The words at hand, then fresh ones."""
    yield from words.tolist()
    while True:
        yield from rng.words(4).tolist()


def _proposal(feed: Iterator[int], log_weight: LogWeight, levels: Levels) -> tuple[int, int] | None:
    """One proposal in exact arithmetic, from the same words as the compiled one: what is kept, or None."""
    counts = levels.counts()
    at = _level(feed, counts)
    word = next(feed)
    while (word >> 32) * counts[at] % 2**32 < 2**32 % counts[at]:
        word = next(feed)
    item = levels.item(at, (word >> 32) * counts[at] >> 32)
    sign = 1 - 2 * (word & 1) if levels.signed else 1
    exponent = levels.lowest + at - sign * Fraction(log_weight(item))
    return (item, sign) if _below_power(feed, exponent) else None


def _level(feed: Iterator[int], counts: list[int]) -> int:
    """Level with probability proportional to count 2^level, from the top down."""
    filled = [(at, count << at) for at, count in enumerate(counts) if count][::-1]
    total = sum(weight for _, weight in filled)
    known, digits = next(feed), 64
    while True:
        reached = 0
        for at, weight in filled:
            reached += weight << digits
            if known * total < reached:  # the first level that may hold it
                if (known + 1) * total <= reached:
                    return at
                break
        known, digits = known << 64 | next(feed), digits + 64


def _below_power(feed: Iterator[int], exponent: Fraction) -> bool:
    """Whether a uniform number is below 2^-exponent, exponent >= 0: true with exactly that probability.

    The number is read 64 digits at a time. The power is 1/2^whole times 2^-part, 0 <= part < 1, the latter
    known to more digits than the number; it is irrational unless part = 0, so reading ends.
    """
    whole = math.floor(exponent)
    part = exponent - whole
    known, digits = next(feed), 64
    while True:
        if digits < whole:
            if known:
                return False
        else:
            with localcontext() as context:
                context.prec = digits // 3 + 30  # decimal places; 10 more than the binary digits need
                power = Decimal(1)
                if part:
                    power = (-Decimal(part.numerator) / Decimal(part.denominator) * Decimal(2).ln()).exp()
                threshold = Fraction(power) * 2 ** (digits - whole)
            # ln, exp and one quotient to prec places, of numbers up to 1: the power is off by far less.
            doubt = Fraction(2 ** (digits - whole), 10 ** (digits // 3 + 20)) if part else Fraction(0)
            if known + 1 <= threshold - doubt:
                return True
            if known >= threshold + doubt:
                return False
        known, digits = known << 64 | next(feed), digits + 64
