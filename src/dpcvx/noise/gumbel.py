"""Selection by exponential weights, as the largest log-weight plus Gumbel noise in float64."""

from __future__ import annotations

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.noise.generators import CHUNK_WORDS, Generator

__all__ = ["select", "selection_error", "selection_failure"]


def select(log_weights: Vector, rng: Generator) -> int:
    """Draw an index by the exponential mechanism.

    P(i) = exp(log_weights[i]) / sum_j exp(log_weights[j]), as the place of the largest log-weight plus an
    independent Gumbel variable; a tie goes to the lowest index.
    `selection_error` and `selection_failure` say what float64 costs.

    Parameters
    ----------
    log_weights : Vector
        Shape (p,); finite, or -inf for what must not be selected.
    rng : Generator
        Where the words come from.
    """
    if log_weights.ndim != 1:
        raise ValueError(f"Log-weights have shape {log_weights.shape}; they must have one dimension.")
    if not np.all(log_weights < np.inf) or np.all(log_weights == -np.inf):
        raise ValueError("Log-weights must be finite or -inf, and at least one finite.")
    best, best_value = -1, -np.inf
    for start in range(0, log_weights.size, CHUNK_WORDS):
        chunk = log_weights[start : start + CHUNK_WORDS]
        noisy = chunk + _gumbel(chunk.size, rng)
        index = int(np.argmax(noisy))
        if noisy[index] > best_value:
            best, best_value = start + index, float(noisy[index])
    return best


def _gumbel(size: int, rng: Generator) -> Vector:
    """Draw -log(-log(U)), with U known to 128 bits, and to 192 within 2^-32 of either end."""
    high, low = rng.words(2 * size).reshape(2, size)
    near_one = high >= np.uint64(2**63)
    # From here on u is U or 1 - U, whichever is below one half: the complement is exact on the integers.
    flip = np.where(near_one, np.uint64(2**64 - 1), np.uint64(0))
    high ^= flip
    u = high * 2.0**-64 + (low ^ flip) * 2.0**-128
    end = np.flatnonzero(high < np.uint64(2**32))
    if end.size:
        u[end] += (rng.words(end.size) + 0.5) * 2.0**-192
    exponential = np.where(near_one, -np.log1p(-u), -np.log(u))
    return -np.log(exponential)


def selection_error(max_abs_log_weight: float) -> float:
    """Return what float64 adds to the bounded range eta of one selection: 4 e_w + 8 e_n.

    e_w: a log-weight made from an exact integer score by at most four roundings is off by 2^-50 of its size.
    e_n: u is off by three roundings, and by its cell: 2^-60 of u outside the event of `selection_failure`.
    With log and log1p accurate to 4 ulp, E = -log U is off by 1.45 (3 2^-53 + 2^-60) + 2^-50 < 2^-49 of E
    and, as |log E| < 134, the Gumbel value by less than 2^-49 + 134 2^-50 < 2^-42; adding it to the
    log-weight rounds by 2^-53 (max_abs_log_weight + 134). An error e_n moves each log-probability by at most
    2 e_n.
    """
    weight_error = 2.0**-50 * max_abs_log_weight
    gumbel_error = 2.0**-42 + 2.0**-53 * (max_abs_log_weight + 134)
    return 4 * weight_error + 8 * gumbel_error


def selection_failure() -> float:
    """Bound the total-variation part of one Gumbel value: P(U within 2^-132 of 0 or 1) = 2^-131.

    There the 192-bit cell is wider than 2^-60 of the distance to the end, and `selection_error` says nothing.
    A selection among p weights fails with at most p times this.
    """
    return 2.0**-131
