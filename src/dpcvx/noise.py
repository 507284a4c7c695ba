"""Random words, the Gaussian and Laplace laws on a lattice, and selection by exponential weights.

Nothing here releases a floating-point number: noise is an integer multiple of the lattice step, a selection
is an index. Each sampler has a function that states its distance from the ideal law, from public numbers.

The number of words a draw uses depends on the draw, so its time does too: a service that must hide timing
draws its noise off the path of the request.
"""

from __future__ import annotations

import functools
import math
import os
import threading
from decimal import Decimal, localcontext
from typing import NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from dpcvx.arrays import IntVector, Vector

Words = NDArray[np.uint64]

MAX_SCALE = 2**58  # sixteen standard deviations stay below 2^62, as the exact sum they are added to does
MAX_LAPLACE_SCALE = 2**55  # the chance that a draw leaves 62 bits is then below e^-128
_CHUNK_WORDS = 2**17  # 1 MiB: small enough for the cache, large enough to hide the cost of a new key
_KEY_WORDS = 6  # 32 bytes of key and 16 of counter
_WORDS_PER_DRAW = 8  # a little more than a lattice draw uses on average; only a size to ask for


class Generator(Protocol):
    """A source of independent uniform 64-bit words."""

    @property
    def private(self) -> bool:
        """Whether the words are unpredictable; a release made without that is not private."""

    def words(self, n: int) -> Words:
        """Return `n` fresh words, shape (n,)."""


class SecureGenerator:
    """AES-256 in counter mode, keyed by the operating system.

    The first 48 bytes of every refill become the next key and counter and are never handed out, and words are
    wiped from the buffer as they leave: what is held now does not tell the words of the past. Threads may
    share a generator; a forked process gets a key of its own; copies and pickles are refused, because two
    holders of one key would add the same noise twice.
    """

    private = True

    def __init__(self) -> None:
        self._stream = _Stream()

    def words(self, n: int) -> Words:
        """Return `n` fresh words, shape (n,)."""
        stream = self._stream
        if stream.process != _process():
            # Two threads of a new child may both come here: each stream has its own key, so either may stay.
            stream.erase()
            stream = self._stream = _Stream()
        return stream.take(n)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "A SecureGenerator cannot be copied or pickled: both copies would give the same noise. "
            "Create a new SecureGenerator() where it is needed."
        )


_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


def _process() -> tuple[int, int]:
    """Identify the process: its number, and how many forks led to it, because numbers are used again."""
    return os.getpid(), _forks


class _Stream:
    """The key, counter and buffer of one SecureGenerator in one process."""

    def __init__(self) -> None:
        self.process = _process()
        self._lock = threading.Lock()
        self._buffer = np.zeros(_KEY_WORDS + _CHUNK_WORDS, dtype=np.uint64)
        self._buffer[:_KEY_WORDS] = np.frombuffer(os.urandom(8 * _KEY_WORDS), dtype=np.uint64)
        self._next = self._buffer.size

    def take(self, n: int) -> Words:
        out = np.empty(n, dtype=np.uint64)
        filled = 0
        with self._lock:
            while filled < n:
                if self._next == self._buffer.size:
                    self._refill()
                count = min(n - filled, self._buffer.size - self._next)
                held = self._buffer[self._next : self._next + count]
                out[filled : filled + count] = held
                held[:] = 0
                self._next += count
                filled += count
        return out

    def _refill(self) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        seed = self._buffer[:_KEY_WORDS].tobytes()
        self._buffer[:] = 0
        encryptor = Cipher(algorithms.AES256(seed[:32]), modes.CTR(seed[32:])).encryptor()
        zeros = self._buffer.data.cast("B")
        encryptor.update_into(zeros, zeros)  # in place: the key stream is what remains
        self._next = _KEY_WORDS

    def erase(self) -> None:
        self._buffer[:] = 0


class SeededGenerator:
    """Repeatable words (Philox) for tests and studies: whoever knows the seed can subtract the noise.

    Parameters
    ----------
    seed : int
        Non-negative.
    """

    private = False

    def __init__(self, seed: int) -> None:
        self._bits = np.random.Philox(seed)

    def words(self, n: int) -> Words:
        """Return the next `n` words of the sequence, shape (n,)."""
        return self._bits.random_raw(n)


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
        Shape (size,), each entry below 14.5 * scale < 2^62 in absolute value.

    Notes
    -----
    [Karney16] algorithm N on integers: |Z| = k + x with P(k) proportional to exp(-k^2/2) and x uniform, kept
    with probability exp(-x(2k+x)/2). No floating point takes part.
    """
    if not 1 <= scale < MAX_SCALE:
        raise ValueError(
            f"The scale of lattice noise is {scale}; it must be an integer from 1 to 2^58 - 1, the standard "
            "deviation in lattice steps. Choose a finer lattice below 1, a coarser one above."
        )
    if size < 0:
        raise ValueError(f"The number of draws is {size}; it must not be negative.")
    from dpcvx.noise_kernels import fill_gaussian

    cell_high, cell_low = _integer_part_cells()
    out = np.empty(size, dtype=np.int64)
    words = np.empty(0, dtype=np.uint64)
    filled = 0
    while filled < size:
        wanted = min(_WORDS_PER_DRAW * (size - filled) + 64, _CHUNK_WORDS)
        words = np.concatenate((words, rng.words(wanted)))
        count, used = fill_gaussian(np.uint64(scale), words, cell_high, cell_low, out[filled:])
        filled += count
        words = words[used:]
    return out


@functools.cache
def _integer_part_cells() -> tuple[Words, Words]:
    """Return floor(2^128 P(k <= j)) for j = 0..12 as high and low words, P(k) proportional to exp(-k^2/2)."""
    with localcontext() as context:
        context.prec = 80
        weights = [(Decimal(-k * k) / 2).exp() for k in range(30)]
        total = sum(weights)
        cells = [int(2**128 * sum(weights[: j + 1]) / total) for j in range(13)]
    high = np.array([cell >> 64 for cell in cells], dtype=np.uint64)
    low = np.array([cell & (2**64 - 1) for cell in cells], dtype=np.uint64)
    return high, low


def gaussian_failure(scale: int) -> float:
    """Bound the total variation between one draw of `lattice_gaussian` and round(scale * Z).

    h = (scale + 32) 2^-127. Couple the draw with one that reads infinitely many digits. They differ only if
    (a) two deviates agree in all the digits held: at most 2^-127 a comparison, and a draw makes fewer than 12
    on average (1.4 proposals of at most 2e comparisons for x^2/2, and e more for each of k, E k < 0.53);
    (b) k differs: 13 table entries are cut at 2^-128, and P(k > 13) < 2^-140;
    (c) a point (j + 1/2)/scale lies inside the 2^-127 cell of |Z|: the density of |Z| falls from 0.8, so the
    cells of all these points weigh less than (scale + 0.8) 2^-127.
    """
    return (scale + 32) * 2.0**-127


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
        raise ValueError(
            f"The scale of lattice Laplace noise is {scale}; it must be an integer from 1 to 2^55. "
            "Choose a finer lattice below 1, a coarser one above."
        )
    if size < 0:
        raise ValueError(f"The number of draws is {size}; it must not be negative.")
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
    for start in range(0, log_weights.size, _CHUNK_WORDS):
        chunk = log_weights[start : start + _CHUNK_WORDS]
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
