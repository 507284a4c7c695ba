"""Generators of uniform random words: a cryptographic one, and a repeatable one for tests."""

from __future__ import annotations

import numbers
import os
import threading
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from dpcvx.errors import WrongType, WrongValue
from dpcvx.words import show

__all__ = ["CHUNK_WORDS", "Generator", "SecureGenerator", "SeededGenerator", "Words", "generator_of"]

Words = NDArray[np.uint64]

CHUNK_WORDS = 2**17  # 1 MiB: small enough for the cache, large enough to hide the cost of a new key
_KEY_WORDS = 6  # 32 bytes of key and 16 of counter


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
        raise WrongType(
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
        self._buffer = np.zeros(_KEY_WORDS + CHUNK_WORDS, dtype=np.uint64)
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
        self._seed, self._bits = seed, np.random.Philox(seed)

    def jump(self, place: int) -> None:
        """Move to the start of one of 2^64 parts of the sequence that do not overlap."""
        self._bits = np.random.Philox(self._seed)
        self._bits.advance((place + 1) << 64)

    def words(self, n: int) -> Words:
        """Return the next `n` words of the sequence, shape (n,)."""
        return self._bits.random_raw(n)


def generator_of(random_state: Any) -> Generator:
    """Return the generator that an estimator's ``random_state`` stands for.

    `random_state`: None is cryptographic; anything else is a seed, and what it draws is not private.
    """
    state = random_state
    if state is None:
        return SecureGenerator()
    if isinstance(state, np.random.RandomState):
        state = state.randint(2**31)
    elif isinstance(state, np.random.Generator):
        state = state.integers(2**31)
    if isinstance(state, bool) or not isinstance(state, numbers.Integral) or state < 0:
        raise WrongValue(f"random_state must be None or a non-negative integer, got {show(random_state)}.")
    return SeededGenerator(int(state))
