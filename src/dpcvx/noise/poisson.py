"""Poisson samples of the records: each is drawn on its own, with a public probability.

Probabilities are multiples of 2^-16, so that a draw compares sixteen random bits and has exactly the law that
is accounted for. The sample itself is private: only a mechanism draws one, and it never leaves the call.
"""

from __future__ import annotations

import math

import numpy as np

from dpcvx.arrays import IntVector
from dpcvx.errors import WrongValue
from dpcvx.noise.generators import Generator

__all__ = ["poisson_sample", "probability_above"]

LEVELS = 2**16  # probabilities are multiples of 1 / LEVELS
_LANES = 4  # records that a word of 64 bits serves
_WORDS_AT_ONCE = 2**17


def probability_above(probability: float) -> float:
    """Return the smallest multiple of 2^-16 that is not below a probability.

    `probability`: more than 0; 1 and above give 1.
    """
    if not probability > 0:
        raise WrongValue(f"probability is {probability!r}; it must be more than 0.")
    return math.ceil(min(probability, 1.0) * LEVELS) / LEVELS


def poisson_sample(probability: float, n: int, rng: Generator) -> IntVector:
    """Draw each of n records with a probability, independently of the others.

    `probability`: a multiple of 2^-16 in (0, 1]; `n`: number of records; `rng`: where the words come from.
    Returns ascending indices of the records drawn.
    """
    cut = probability * LEVELS
    if not (1 <= cut <= LEVELS and cut == int(cut)):
        raise WrongValue(f"probability is {probability!r}; it must be a multiple of 2^-16 in (0, 1].")
    found = []
    for start in range(0, n, _LANES * _WORDS_AT_ONCE):
        count = min(n - start, _LANES * _WORDS_AT_ONCE)
        words = rng.words(-(-count // _LANES)).astype("<u8", copy=False)
        digits = words.view("<u2")[:count]
        found.append(start + np.flatnonzero(digits < int(cut)))
    return np.concatenate(found).astype(np.int64, copy=False)
