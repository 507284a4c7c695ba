"""Random words, the Gaussian and Laplace laws on a lattice, and selection by exponential weights.

Nothing here releases a floating-point number: noise is an integer multiple of the lattice step, a selection
is an index. Each sampler has a function that states its distance from the ideal law, from public numbers.

The number of words a draw uses depends on the draw, so its time does too: a service that must hide timing
draws its noise off the path of the request.
"""

from __future__ import annotations

import functools
import math
import numbers
import os
import threading
from decimal import Decimal, localcontext
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from dpcvx.arrays import IntVector, Vector
from dpcvx.words import shown

Words = NDArray[np.uint64]

MAX_SCALE = 2**58  # sixteen standard deviations stay below 2^62, as the exact sum they are added to does
MAX_LAPLACE_SCALE = 2**55  # the chance that a draw leaves 62 bits is then below e^-128
_CHUNK_WORDS = 2**17  # 1 MiB: small enough for the cache, large enough to hide the cost of a new key
_KEY_WORDS = 6  # 32 bytes of key and 16 of counter
_COLUMNS = 2**10  # cells of |Z|, each a 32nd of a standard deviation wide
_COLUMN_BITS = 246  # binary digits of a threshold: 256 less those that choose a column


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


def generator_of(random_state: Any) -> Generator:
    """Return the generator that an estimator's ``random_state`` stands for.

    Parameters
    ----------
    random_state : None, int, RandomState or Generator
        None is cryptographic; anything else is a seed, and what it draws is not private.
    """
    state = random_state
    if state is None:
        return SecureGenerator()
    if isinstance(state, np.random.RandomState):
        state = state.randint(2**31)
    elif isinstance(state, np.random.Generator):
        state = state.integers(2**31)
    if isinstance(state, bool) or not isinstance(state, numbers.Integral) or state < 0:
        raise ValueError(f"random_state must be None or a non-negative integer, got {shown(random_state)}.")
    return SeededGenerator(int(state))


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
        raise ValueError(
            f"The scale of lattice noise is {scale}; it must be an integer from 1 to 2^58 - 1, the standard "
            "deviation in lattice steps. Choose a finer lattice below 1, a coarser one above."
        )
    if size < 0:
        raise ValueError(f"The number of draws is {size}; it must not be negative.")
    from dpcvx.noise.gaussian_kernels import WORDS_PER_DRAW, fill_gaussian

    cells = _cells()
    out = np.empty(size, dtype=np.int64)
    filled = 0
    while filled < size:
        missing = size - filled
        wanted = min(missing + missing // 64 + 8, _CHUNK_WORDS // WORDS_PER_DRAW)
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

    What the rounding leaves over belongs to cell 0. All numbers are integers, so that the table has exactly
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
