"""Laplace noise on a lattice: integers, and how far their law is from the ideal one."""

from __future__ import annotations

import math

import numpy as np

from dpcvx.arrays import IntVector
from dpcvx.errors import WrongValue
from dpcvx.noise.generators import Generator

__all__ = ["MAX_LAPLACE_SCALE", "laplace_failure", "lattice_laplace"]

MAX_LAPLACE_SCALE = 2**55  # the chance that a draw leaves 62 bits is then below e^-128


def lattice_laplace(scale: int, size: int, rng: Generator) -> IntVector:
    """Draw K with P(K = k) proportional to exp(-|k| / scale): Laplace noise on the integers.

    Added to an integer score whose neighbours differ by at most D it is (D / scale)-differentially private.

    Parameters
    ----------
    scale : int
        Scale in lattice steps, 1 <= scale <= 2^55.
    size : int
        Number of draws.
    rng : Generator
        Where the words come from.

    Returns
    -------
    IntVector
        Shape (size,), each entry below 2^62 in absolute value.

    Notes
    -----
    |K| = u + scale v with u uniform below the scale, kept with probability exp(-u / scale), and v the number
    of successes of chance 1/e before the first failure; minus zero is drawn again (Canonne, Kamath, Steinke
    2020). Every chance is a comparison of exact integers; `laplace_failure` says what the cut at 2^62 costs.
    """
    if not 1 <= scale <= MAX_LAPLACE_SCALE:
        raise WrongValue(
            f"The scale of lattice Laplace noise is {scale}; it must be an integer from 1 to 2^55. "
            "Choose a finer lattice below 1, a coarser one above."
        )
    if size < 0:
        raise WrongValue(f"The number of draws is {size}; it must not be negative.")
    out = np.empty(size, dtype=np.int64)
    filled = 0
    while filled < size:
        u = _uniform_below(scale, rng)
        if not _decays(u, scale, rng):
            continue
        magnitude = u
        while _decays(1, 1, rng):
            magnitude += scale
        negative = _uniform_below(2, rng) == 1
        if magnitude < 2**62 and not (negative and magnitude == 0):
            out[filled] = -magnitude if negative else magnitude
            filled += 1
    return out


def _uniform_below(bound: int, rng: Generator) -> int:
    """Draw an integer from 0 to bound - 1, each as likely as the other."""
    bits = (bound - 1).bit_length()
    count = -(-bits // 64)
    while True:
        value = 0
        for word in rng.words(count).tolist():
            value = (value << 64) | word
        value >>= 64 * count - bits
        if value < bound:
            return value


def _decays(numerator: int, denominator: int, rng: Generator) -> bool:
    """Draw Bernoulli(exp(-x)) for x = numerator / denominator in [0, 1]: is the end of a run odd?

    The run goes on past step k with probability x / k, so that P(it ends at step k) = x^(k-1)/(k-1)! - x^k/k!
    and P(odd) = 1 - x + x^2/2 - ... = exp(-x).
    """
    step = 1
    while _uniform_below(denominator * step, rng) < numerator:
        step += 1
    return step % 2 == 1


def laplace_failure(scale: int) -> float:
    """Bound the total variation between one draw of `lattice_laplace` and the law without the cut at 2^62.

    The law is conditioned on |K| < 2^62, so the distance is P(|K| >= 2^62) <= exp(-2^62 / scale + 1 / scale).
    """
    return math.exp(-(2.0**62 - 1) / scale)
