"""The samplers against slow, independent ones in exact arithmetic, on the same words."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

import dpcvx
from dpcvx.data.lattice import LARGEST_DRAW
from dpcvx.errors import Incompatible
from dpcvx.noise import SeededGenerator, gaussian_failure, lattice_gaussian
from dpcvx.noise import gaussian as noise
from dpcvx.noise.gaussian_kernels import fill_gaussian, full_product
from dpcvx.solvers import NoisyGradientDescent

WORD = 2**64


class Replay:
    """Hand out given words in order."""

    private = False

    def __init__(self, words):
        self._words = iter(words)

    def words(self, n):
        return np.array([next(self._words) for _ in range(n)], dtype=np.uint64)


SCALES = [1, 7, 2**34 + 12345, 2**58 - 1]


def chances_of_the_table():
    """What the columns give each cell, in units of 2^-256."""
    cells = noise._cells()
    chances = [0] * 1024
    for column, (threshold, alias) in enumerate(zip(cells.thresholds, cells.alias.tolist(), strict=True)):
        assert 0 <= threshold <= 2**246
        chances[column] += threshold
        chances[alias] += 2**246 - threshold
    return chances


def exact_weights():
    """exp(-k^2/2048) for k < 1024, in units of 2^-400, from the series of exp(-1/2048)."""
    unit = 2**400
    root, term = 0, unit
    for n in range(1, 80):
        root += term
        term = -term // (2048 * n)
    weights, power, factor = [unit], unit, root
    for _ in range(1023):  # the exponents are the squares, sums of odd numbers
        power = power * factor // unit
        factor = factor * root // unit * root // unit
        weights.append(power)
    return weights


def exact_draw(scale, words, digits=(), place_digits=()):
    """The draw of three words with more digits after x's and u's, all at 150 decimals; None if not kept."""
    first, x, u = words
    column, place = (first >> 1) % 1024, (first >> 11) << 193
    for shift, word in zip((129, 65, 1, -63), place_digits, strict=False):
        place += word << shift if shift >= 0 else word >> -shift
    k = column if place < noise._cells().thresholds[column] else int(noise._cells().alias[column])
    uniforms = [Fraction(word, WORD) for word in (x, u)]
    for i, word in enumerate(digits):
        uniforms[i % 2] += Fraction(word, WORD ** (2 + i // 2))
    x, u = uniforms
    exponent = x * (2 * k + x) / 2048
    with localcontext() as context:
        context.prec = 150
        chance = (-Decimal(exponent.numerator) / Decimal(exponent.denominator)).exp()
        if Decimal(u.numerator) / Decimal(u.denominator) >= chance:
            return None
    magnitude = math.floor(scale * (k + x) / 32 + Fraction(1, 2))
    return -magnitude if first % 2 else magnitude


def kernel_draw(kernel, scale, words):
    """The kernel's answer to three words: a draw, None if not kept, "doubt" if it does not decide."""
    out = np.zeros(1, dtype=np.int64)
    cells = noise._cells()
    filled, used = kernel(np.uint64(scale), np.array(words, dtype=np.uint64), cells.first, cells.alias, out)
    return "doubt" if used == 0 else int(out[0]) if filled else None


def triple(column, x, u, place=None, sign=0):
    """Words that choose a column's own cell, or the given place in the column."""
    place = int(noise._cells().first[column]) - 1 if place is None else place
    return [(place << 11) + (column << 1) + sign, x, u]


def survival(k, x):
    """2^64 exp(-x (2k + x)/2048), cut."""
    with localcontext() as context:
        context.prec = 60
        t = Decimal(x) / WORD
        return int(WORD * (-t * (2 * k + t) / 2048).exp())


@pytest.mark.parametrize("scale", SCALES)
def test_kernel_compiled_and_not_equals_exact_sampler(scale):
    words = SeededGenerator(scale).words(3 * 1000).tolist()
    kept = 0
    for i in range(0, len(words), 3):
        expected = exact_draw(scale, words[i : i + 3])
        answers = [
            kernel_draw(kernel, scale, words[i : i + 3]) for kernel in (fill_gaussian, fill_gaussian.py_func)
        ]
        if "doubt" in answers:
            assert scale > 2**50  # digits beyond the 64th decide the rounding of every 2000th draw there
            continue
        assert answers == [expected, expected]
        assert noise._settle(scale, words[i : i + 3], SeededGenerator(1)) == expected
        kept += expected is not None
    assert 950 < kept < 1000


@pytest.mark.parametrize("distance", [-(2**26), -(2**20), -1, 0, 1, 2**20, 2**26])
def test_a_close_decision_is_left_to_exact_arithmetic(distance):
    rng = np.random.default_rng(3)
    kept = set()
    for k in (0, 1, 5, 40, 90, 150):
        x = int(rng.integers(2**60, WORD, dtype=np.uint64))
        words = triple(k, x, survival(k, x) + distance)
        answers = {kernel_draw(kernel, 10, words) for kernel in (fill_gaussian, fill_gaussian.py_func)}
        digits = [int(word) for word in rng.integers(0, WORD, 8, dtype=np.uint64)]
        expected = exact_draw(10, words, digits)
        assert answers == ({"doubt"} if abs(distance) < 2**24 else {expected})
        assert noise._settle(10, words, Replay(digits)) == expected
        kept.add(expected is not None)
    assert kept == ({True, False} if distance == 0 else {distance < 0})


def test_digits_decide_a_decision_that_is_equal_so_far():
    # x = 0 and u all ones: the chance is 1 - something below 2^-64, and the next digits of both decide
    words = triple(90, 0, WORD - 1)
    assert kernel_draw(fill_gaussian, 10, words) == "doubt"
    outcomes = set()
    for x_digit, u_digit in [(0, 0), (WORD - 1, WORD - 1), (2**63, 2**62), (2**40, WORD - 1)]:
        digits = [x_digit, u_digit, 5, 7, 11, 13]
        outcome = noise._settle(10, words, Replay(digits))
        assert outcome == exact_draw(10, words, digits)
        outcomes.add(outcome)
    assert None in outcomes
    assert len(outcomes) == 2


@pytest.mark.parametrize("scale", SCALES[1:])
def test_a_rounding_that_more_digits_can_change_is_left_to_exact_arithmetic(scale):
    found = set()
    for step in range(1, 6):
        # a point half way between two integers, and the 64 digits of x just below it
        half = Fraction(2 * (scale * step // 3) + 1, 2)
        k, x = divmod(math.floor(half * 32 / scale * WORD), WORD)
        words = triple(k, x, 0)
        assert kernel_draw(fill_gaussian, scale, words) == "doubt"
        assert kernel_draw(fill_gaussian.py_func, scale, words) == "doubt"
        for digit in (0, WORD // 2, WORD - 1):
            outcome = noise._settle(scale, words, Replay([digit] + [3] * 8))
            assert outcome == exact_draw(scale, words, [digit, 0] + [3] * 8)
            found.add(outcome - math.floor(half))
        for beside in (x - 2, x + 2):
            words = triple(k, beside, 0)
            assert kernel_draw(fill_gaussian, scale, words) == exact_draw(scale, words)
    assert found == {0, 1}


def test_a_tie_in_the_table_is_left_to_exact_arithmetic():
    cells, outcomes = noise._cells(), set()
    for column in (0, 3, 50, 130, 700):
        threshold, first = cells.thresholds[column], int(cells.first[column])
        if threshold == 2**246:
            continue
        words = triple(column, 2**63, 0, place=first, sign=1)
        assert kernel_draw(fill_gaussian, 1000, words) == "doubt"
        rest = threshold - (first << 193)
        for low in (rest - 1, rest, 0, 2**193 - 1):
            if low < 0:
                continue
            digits = [low >> 129, (low >> 65) % WORD, (low >> 1) % WORD, (low % 2) << 63]
            outcome = noise._settle(1000, words, Replay(digits))
            assert outcome == exact_draw(1000, words, place_digits=digits)
            own = low < rest
            k = column if own else int(cells.alias[column])
            assert outcome == -math.floor(1000 * (k + Fraction(1, 2)) / 32 + Fraction(1, 2))
            outcomes.add(own)
    assert outcomes == {True, False}


def test_draws_do_not_depend_on_the_size_of_the_buffer(monkeypatch):
    whole = lattice_gaussian(2**34, 500, SeededGenerator(9))
    monkeypatch.setattr(noise, "CHUNK_WORDS", 3)
    assert np.array_equal(lattice_gaussian(2**34, 500, SeededGenerator(9)), whole)


def test_doubtful_draws_take_their_place():
    doubtful = triple(90, 0, WORD - 1)
    sure = triple(40, 2**63, 0)
    words = sure + doubtful + sure + doubtful + sure
    spare = triple(1, 5, 5) * 8 + [0] * 3  # what is asked for beyond five draws
    kept, dropped = [0, 0] + [9] * 4, [WORD - 1, WORD - 1] + [9] * 4
    asked = words + spare[: 3 * (3 + 8) - len(words)]
    draws = lattice_gaussian(1000, 3, Replay(asked + kept)).tolist()
    assert draws == [exact_draw(1000, w) for w in (sure, doubtful, sure)]
    draws = lattice_gaussian(1000, 3, Replay(asked + dropped + kept)).tolist()
    assert draws == [exact_draw(1000, sure), exact_draw(1000, sure), exact_draw(1000, doubtful)]


def test_full_product_is_exact():
    rng = np.random.default_rng(2)
    edges = [0, 1, 2**32 - 1, 2**32, 2**63 - 1, 2**63, WORD - 1]
    words = edges + [int(w) for w in rng.integers(0, WORD - 1, 20, dtype=np.uint64)]
    scales = [1, 2, 3, 2**32 - 1, 2**32, 2**45 + 7, 2**58 - 1] + [int(s) for s in rng.integers(1, 2**58, 5)]
    for scale in scales:
        for word in words:
            with np.errstate(over="ignore"):
                high, low = full_product(np.uint64(scale), np.uint64(word))
            assert (int(high) << 64) + int(low) == scale * word


def test_the_table_has_the_chances_of_the_cells():
    weights = exact_weights()
    total = sum(weights)
    chances = chances_of_the_table()
    assert sum(chances) == 2**256
    assert chances[1:] == [2**256 * weight // total for weight in weights[1:]]
    assert 0 <= chances[0] - 2**256 * weights[0] // total < 1024
    largest = max(k for k in range(1024) if chances[k])
    assert largest + 1 <= LARGEST_DRAW * 32  # what objective perturbation relies on
    assert (largest + 1) * (2**58 - 1) < 32 * 2**63


def test_gaussian_failure_holds_and_leaves_the_budget_alone():
    weights, chances = exact_weights(), chances_of_the_table()
    total = sum(weights)  # what is beyond 32 standard deviations is below 2^-700
    distance = (
        sum(abs(Fraction(c, 2**256) - Fraction(w, total)) for c, w in zip(chances, weights, strict=True)) / 2
    )
    cell = (
        Fraction(sum(weights), weights[0]) / 32
    )  # proposals for a draw: their mass over the half Gaussian's
    proposals = float(cell) / math.sqrt(math.pi / 2)
    assert 1.01 < proposals < 1.02
    assert float(distance) * proposals < gaussian_failure()
    # a thousand million draws at eps = 100, delta = 1e-12 cost less than a thousandth of delta
    assert (1 + math.exp(100)) * 1e9 * gaussian_failure() < 1e-15


def test_a_plan_of_gaussian_questions_carries_an_epsilon_of_100_and_refuses_one_of_150():
    problem = dpcvx.Problem(dpcvx.Logistic(), dpcvx.L2Ball(5.0), bounds=dpcvx.Bounds(1.0, 1.0), d=20)
    solver = (NoisyGradientDescent(n_iter=50),)
    plan = dpcvx.plan(problem, 5000, dpcvx.Budget(100.0, 1e-6), solver)
    assert 0 < plan.price.sampler_delta < 1e-25
    with pytest.raises(Incompatible, match="Noise of finite precision cannot carry epsilon=150"):
        dpcvx.plan(problem, 5000, dpcvx.Budget(150.0, 1e-6), solver)
