"""The samplers against slow, independent ones in exact arithmetic, on the same words."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

from dpcvx import noise
from dpcvx.noise import (
    SeededGenerator,
    gaussian_failure,
    lattice_gaussian,
    select,
    selection_error,
    selection_failure,
)
from dpcvx.noise_kernels import fill_gaussian, rounded_product

WORD = 2**64


class Replay:
    """Hand out given words in order."""

    private = False

    def __init__(self, words):
        self._words = iter(words)

    def words(self, n):
        return np.array([next(self._words) for _ in range(n)], dtype=np.uint64)


class Deviate:
    """A uniform number whose second digit is read when it is needed."""

    def __init__(self, digits, *known):
        self.digits = digits
        self.known = list(known) or [next(digits)]

    def low(self):
        if len(self.known) == 1:
            self.known.append(next(self.digits))
        return self.known[1]

    def __lt__(self, other):
        if self.known[0] != other.known[0]:
            return self.known[0] < other.known[0]
        bound = other.low()
        return self.low() < bound


def exact_draws(scale, words):
    """Karney's algorithm N with Python integers and the cells as fractions; stops when the words run out."""
    table = zip(*noise._integer_part_cells(), strict=True)
    cells = [Fraction((int(high) << 64) + int(low), WORD**2) for high, low in table]
    digits = iter([int(word) for word in words])

    def bernoulli(x, half):
        last, length = x, 0
        while True:
            if half is not None and not Deviate(digits) < half:
                return length % 2 == 0
            following = Deviate(digits)
            if not following < last:
                return length % 2 == 0
            last, length = following, length + 1

    while True:
        try:
            first = next(digits)
            lowest, highest = Fraction(first, WORD), Fraction(first + 1, WORD)
            if any(lowest <= cell < highest for cell in cells):
                lowest = highest = lowest + Fraction(next(digits), WORD**2)
            k = sum(lowest >= cell for cell in cells)
            high, last_digit = next(digits), next(digits)
            sign, low = last_digit % 2, last_digit - last_digit % 2
            x = Deviate(digits, high, low)
            half = divmod(((high << 64) + low) // 2, WORD)
            kept, run = bernoulli(x, Deviate(digits, *half)), 0
            while kept and run < k:
                kept, run = bernoulli(x, None), run + 1
            if kept:
                fraction = Fraction((high << 64) + low, WORD**2)
                yield (1 - 2 * sign) * (scale * k + math.floor(scale * fraction + Fraction(1, 2)))
        except StopIteration:
            return


def tie_prone_words(seed, size):
    """Words that often agree with each other, with their halves and with the cells of the integer part."""
    rng = np.random.default_rng(seed)
    cells = [int(word) for part in noise._integer_part_cells() for word in part]
    base = rng.choice(np.array([0, 1, 2, 2**62, 2**63 - 1, 2**63, WORD - 2, WORD - 1], dtype=np.uint64), 3)
    base = np.concatenate((base, rng.choice(np.array(cells, dtype=np.uint64), 2)))
    halves = base >> np.uint64(1)
    few = np.concatenate((base, halves, halves | np.uint64(2**63)))
    fresh = rng.integers(0, WORD - 1, size, dtype=np.uint64, endpoint=True)
    return np.where(rng.random(size) < 0.9, rng.choice(few, size), fresh)


@pytest.mark.parametrize("scale", [1, 7, 2**34 + 12345, 2**58 - 1])
@pytest.mark.parametrize(
    "make_words", [lambda seed, size: SeededGenerator(seed).words(size), tie_prone_words]
)
def test_kernel_compiled_and_not_equals_exact_sampler(scale, make_words):
    for seed in range(6):
        words = make_words(seed, 3000)
        results = []
        for kernel in (fill_gaussian, fill_gaussian.py_func):
            out = np.zeros(3000, dtype=np.int64)
            filled, used = kernel(np.uint64(scale), words, *noise._integer_part_cells(), out)
            assert filled > 100
            assert used > 2900
            results.append(out[:filled].tolist())
        expected = list(exact_draws(scale, words))
        assert results[0] == results[1] == expected[: len(results[0])]
        assert len(expected) - len(results[0]) <= 3  # the kernel stops a few words before the end


def test_draws_do_not_depend_on_the_size_of_the_buffer(monkeypatch):
    whole = lattice_gaussian(2**34, 500, SeededGenerator(9))
    monkeypatch.setattr(noise, "_CHUNK_WORDS", 3)
    assert np.array_equal(lattice_gaussian(2**34, 500, SeededGenerator(9)), whole)


def nearest(scale, high, low):
    return (scale * (high * WORD + low) + 2**127) >> 128


def test_rounded_product_is_exact():
    rng = np.random.default_rng(2)
    edges = [0, 1, 2**32 - 1, 2**32, 2**63 - 1, 2**63, WORD - 1]
    words = edges + [int(w) for w in rng.integers(0, WORD - 1, 20, dtype=np.uint64)]
    scales = [1, 2, 3, 2**32 - 1, 2**32, 2**45 + 7, 2**58 - 1] + [int(s) for s in rng.integers(1, 2**58, 5)]
    for scale in scales:
        for high in words:
            for low in words:
                assert rounded_product(*map(np.uint64, (scale, high, low))) == nearest(scale, high, low)


def test_rounded_product_is_exact_at_half_way():
    for scale in (3, 2**32 - 1, 2**45 + 7, 2**58 - 1):
        for carried in (1, 2, scale // 2, scale // 2 + 1, scale - 1):
            for shift in (-1, 0, 1):
                # the product ends in 1/2 + shift 2^-64: the first digit and what the second carries to it
                high = (2**63 + shift - carried) * pow(scale, -1, WORD) % WORD
                low = -(-carried * WORD // scale)
                assert rounded_product(*map(np.uint64, (scale, high, low))) == nearest(scale, high, low)


def test_cells_are_the_distribution_function_of_the_integer_part():
    unit = 2**300
    root, term = 0, unit  # exp(-1/2) by its series, in units of 2^-300
    for n in range(1, 90):
        root += term
        term = -term // (2 * n)
    weights = [unit]
    for k in range(1, 25):
        power = unit
        for _ in range(k * k):
            power = power * root // unit
        weights.append(power)
    for j, (high, low) in enumerate(zip(*noise._integer_part_cells(), strict=True)):
        assert (int(high) << 64) + int(low) == 2**128 * sum(weights[: j + 1]) // sum(weights)
    assert j == 12
    assert sum(weights[14:]) * 2**140 < sum(weights)


def test_gaussian_failure_leaves_the_budget_alone():
    # ten million draws at eps = 1, delta = 1e-12 may cost a thousandth of delta
    for scale in (2**34, 2**40, 2**45):
        assert (1 + math.e) * 1e7 * gaussian_failure(scale) < 1e-15
    # the proof counts fewer than 12 comparisons for one draw; each takes a word, and so do k and x
    words = SeededGenerator(0).words(10**6)
    out = np.zeros(10**6, dtype=np.int64)
    filled, used = fill_gaussian(np.uint64(2**34), words, *noise._integer_part_cells(), out)
    assert used / filled < 12
    assert gaussian_failure(1) >= 33 * 2.0**-127
    assert gaussian_failure(2**45) >= 2.0**-82


EXTREME = [0, 1, 2**20, 2**32 - 1, 2**32, 2**40, 2**62, 2**63 - 1, 2**63]
EXTREME = EXTREME + [WORD - 1 - word for word in EXTREME]


def test_gumbel_values_are_within_the_stated_error():
    cases = [(high, low, third) for high in EXTREME for low in EXTREME for third in (0, 1, 2**60, WORD - 1)]
    stated = (selection_error(0.0) - 8 * 2.0**-53 * 134) / 8  # without the addition to a log-weight
    checked = 0
    for high, low, third in cases:
        value = noise._gumbel(1, Replay([high, low, third]))[0]
        refined = min(high, WORD - 1 - high) < 2**32
        cell = Fraction(1, WORD**3) if refined else Fraction(1, WORD**2)
        lowest = Fraction(high * WORD + low, WORD**2)
        if refined:  # the third word counts from the nearer end
            lowest += Fraction(third if high < 2**63 else WORD - 1 - third, WORD**3)
        if min(lowest, 1 - lowest - cell) < Fraction(1, 2**132):
            continue  # the event of selection_failure
        for uniform in (lowest, lowest + cell):
            with localcontext() as context:
                context.prec = 120
                exact = -(-(Decimal(uniform.numerator) / Decimal(uniform.denominator)).ln()).ln()
                assert abs(Decimal(float(value)) - exact) < Decimal(stated), (high, low, third)
        checked += 1
    assert checked > 1000
    assert selection_failure() == 2 * 2.0**-132


def test_gumbel_values_are_finite_at_the_very_ends():
    for word in (0, WORD - 1):
        for third in (0, WORD - 1):
            assert abs(noise._gumbel(1, Replay([word, word, third]))[0]) < 134


def test_selection_error_grows_with_the_weights():
    assert selection_error(0.0) < 1e-11
    # four roundings of a log-weight and the last addition: 4 * 4 * 2^-53 and 8 * 2^-53 for each unit at least
    assert selection_error(1e6) - selection_error(0.0) >= 24 * 2.0**-53 * 1e6


def test_selection_is_the_largest_weight_plus_gumbel():
    log_weights = np.random.default_rng(4).normal(size=1000)
    for seed in range(20):
        gumbel = noise._gumbel(1000, SeededGenerator(seed))
        assert select(log_weights, SeededGenerator(seed)) == int(np.argmax(log_weights + gumbel))
