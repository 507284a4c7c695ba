"""Words are never used twice: not by threads, forks, copies, workers or a later reader of memory."""

import copy
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import joblib
import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy import stats

import dpcvx
from dpcvx.noise import SecureGenerator, SeededGenerator, lattice_gaussian
from dpcvx.noise import generators as noise


def test_seeded_words_repeat_and_are_marked_not_private():
    first, again, other = SeededGenerator(7), SeededGenerator(7), SeededGenerator(8)
    words = first.words(100)
    assert words.dtype == np.uint64
    assert np.array_equal(words, np.concatenate((again.words(30), again.words(70))))
    assert not np.any(words == other.words(100))
    assert not np.any(words == first.words(100))
    assert first.private is False
    assert SecureGenerator().private is True


def test_seeded_noise_repeats():
    draws = [lattice_gaussian(2**34, 50, SeededGenerator(seed)) for seed in (1, 1, 2)]
    assert np.array_equal(draws[0], draws[1])
    assert not np.any(draws[0] == draws[2])


def test_secure_generators_differ():
    first, second = SecureGenerator(), SecureGenerator()
    assert np.intersect1d(first.words(1000), second.words(1000)).size == 0


def test_secure_words_are_uniform():
    words = SecureGenerator().words(10**6)
    for shift in (0, 8, 28, 56):
        counts = np.bincount((words >> np.uint64(shift)).astype(np.uint8), minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-9  # not seeded: wrong once in a thousand million runs


def test_secure_words_are_the_key_stream_with_a_new_key_for_every_refill(monkeypatch):
    monkeypatch.setattr(noise, "CHUNK_WORDS", 10)
    seed = bytes(range(48))
    monkeypatch.setattr(noise.os, "urandom", lambda n: seed[:n])
    words = SecureGenerator().words(25)
    expected = b""
    for _ in range(3):
        encryptor = Cipher(algorithms.AES256(seed[:32]), modes.CTR(seed[32:])).encryptor()
        stream = encryptor.update(bytes(48 + 80))
        seed, expected = stream[:48], expected + stream[48:]
    assert words.tobytes() == expected[: 8 * 25]


def test_handed_out_words_and_used_keys_are_wiped(monkeypatch):
    monkeypatch.setattr(noise, "CHUNK_WORDS", 100)
    rng = SecureGenerator()
    first_key = rng._stream._buffer[:6].copy()
    handed_out = rng.words(60)
    held = rng._stream._buffer
    assert np.intersect1d(held, np.concatenate((handed_out, first_key))).size == 0
    assert np.count_nonzero(held) == 6 + 40


def test_threads_never_share_words():
    rng = SecureGenerator()
    with ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(rng.words, [997] * 800))
    words = np.concatenate(parts)
    assert np.unique(words).size == words.size
    assert not np.any(words == 0)


@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.copy, copy.deepcopy])
def test_secure_generator_refuses_to_be_duplicated(duplicate):
    with pytest.raises(TypeError, match="same noise"):
        duplicate(SecureGenerator())


FORK = """
import os
from dpcvx.noise import SecureGenerator
rng = SecureGenerator()
rng.words(5)
{before}
reader, writer = os.pipe()
for depth in range(3):  # the parent, its child and its grandchild each write what they draw
    child = os.fork()
    if child:
        break
os.write(writer, rng.words(50).tobytes())
if child:
    os.waitpid(child, 0)
    if depth == 0:
        import sys
        sys.stdout.buffer.write(os.read(reader, 8 * 50 * 4))
"""


BEFORE = {
    "plain": "",
    "another thread was drawing at that moment": """
rng._stream._lock.acquire()
os.register_at_fork(after_in_parent=lambda: rng._stream._lock.locked() and rng._stream._lock.release())
""",
    "a process number is used again": """
os.getpid = lambda: 1
rng = SecureGenerator()
rng.words(5)
""",
    "the fork is unseen by Python": """
from dpcvx.noise import generators as noise
noise._count_fork.__code__ = (lambda: None).__code__
""",
}


@pytest.mark.parametrize("case", BEFORE)
def test_forked_processes_draw_different_words(case):
    environment = {**os.environ, "PYTHONPATH": str(Path(dpcvx.__file__).parents[1])}
    script = FORK.format(before=BEFORE[case])
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60, env=environment)
    assert done.returncode == 0, done.stderr
    words = np.frombuffer(done.stdout, dtype=np.uint64)
    assert words.size == 200
    assert np.unique(words).size == 200


@pytest.mark.parametrize("backend", ["loky", "threading"])
@pytest.mark.long
def test_parallel_workers_draw_different_noise(backend):
    def draw(_):
        return lattice_gaussian(2**40, 20, SecureGenerator())

    draws = joblib.Parallel(n_jobs=2, backend=backend)(joblib.delayed(draw)(i) for i in range(4))
    assert np.unique(np.concatenate(draws)).size == 80


@pytest.mark.long
def test_a_shared_generator_serves_threads_and_never_reaches_another_process():
    rng = SecureGenerator()
    tasks = [joblib.delayed(lattice_gaussian)(2**40, 20, rng) for _ in range(4)]
    draws = joblib.Parallel(n_jobs=2, backend="threading")(tasks)
    assert np.unique(np.concatenate(draws)).size == 80
    with pytest.raises(pickle.PicklingError) as refusal:
        joblib.Parallel(n_jobs=2, backend="loky")(tasks)
    assert "same noise" in str(refusal.value.__cause__)
