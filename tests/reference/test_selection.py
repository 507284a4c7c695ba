"""The exact draw: its law, and that the compiled and the exact decisions are the same."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dpcvx.noise import SecureGenerator, SeededGenerator
from dpcvx.noise import exponential as selection
from dpcvx.noise.exponential import Levels, log_weight_error, select, select_signed, settle
from dpcvx.noise.exponential_kernels import (
    KEPT,
    NO_WORDS,
    UNSURE,
    arrange,
    decide,
    draw,
    item_of,
    level_of,
    total_weight,
)

LOG_WEIGHTS = np.array([0.0, 1.3, -2.0, 3.1, 2.9, -4.0, 0.01, 0.0])


def p_value(counts, log_weights):
    weights = np.exp(log_weights)
    return stats.chisquare(counts, sum(counts) * weights / weights.sum()).pvalue


def exactly(log_weights, signed, rng):
    """The draw with every decision made in exact arithmetic."""
    powers = log_weights * math.log2(math.e)
    levels, order = np.empty(powers.size, dtype=np.int32), np.empty(powers.size, dtype=np.int32)
    start, lowest = arrange(powers, signed, levels, order)

    def unsure(words, position):
        return (UNSURE, position, 0, 1) if len(words) else (NO_WORDS, 0, 0, 1)

    return settle(unsure, lambda item: float(powers[item]), Levels(order, start, signed, lowest), rng)


@pytest.mark.parametrize("how", ["compiled", "exact"])
def test_draws_have_exponential_weights(how):
    rng, draws = SeededGenerator(1), 30_000 if how == "compiled" else 6_000
    counts = np.zeros(len(LOG_WEIGHTS))
    for _ in range(draws):
        counts[select(LOG_WEIGHTS, rng) if how == "compiled" else exactly(LOG_WEIGHTS, False, rng)[0]] += 1
    assert p_value(counts, LOG_WEIGHTS) > 1e-4
    assert p_value(counts, 0.9 * LOG_WEIGHTS) < 1e-4


@pytest.mark.parametrize("how", ["compiled", "exact"])
@pytest.mark.long
def test_signed_draws_have_the_weights_of_both_signs(how):
    rng, draws = SeededGenerator(2), 30_000 if how == "compiled" else 6_000
    counts = np.zeros((2, len(LOG_WEIGHTS)))
    for _ in range(draws):
        item, sign = select_signed(LOG_WEIGHTS, rng) if how == "compiled" else exactly(LOG_WEIGHTS, True, rng)
        counts[(1 - sign) // 2, item] += 1
    assert p_value(counts.ravel(), np.r_[LOG_WEIGHTS, -LOG_WEIGHTS]) > 1e-4
    assert p_value(counts.ravel(), 0.9 * np.r_[LOG_WEIGHTS, -LOG_WEIGHTS]) < 1e-4


@pytest.mark.parametrize("signed", [False, True])
def test_compiled_and_exact_decisions_are_the_same_for_the_same_words(signed):
    rng = np.random.default_rng(3)
    for seed in range(40):
        log_weights = rng.normal(scale=4.0, size=int(rng.integers(1, 30)))
        powers = log_weights * math.log2(math.e)
        levels, order = np.empty(powers.size, dtype=np.int32), np.empty(powers.size, dtype=np.int32)
        start, lowest = arrange(powers, signed, levels, order)
        words = SeededGenerator(seed).words(300)
        state, behind, item, sign = draw(powers, signed, order, start, lowest, words, 0)
        assert state == KEPT
        feed, found = selection._feed(words, SeededGenerator(0)), None
        while found is None:
            found = selection._proposal(
                feed, lambda j, p=powers: float(p[j]), Levels(order, start, signed, lowest)
            )
        assert found == (item, sign)
        assert next(feed) == words[behind]


def test_words_run_out_without_changing_what_is_drawn():
    powers, order, start = np.zeros(3), np.arange(3, dtype=np.int32), np.array([0, 3])
    words = SeededGenerator(4).words(60)
    whole = draw(powers, False, order, start, 0, words, 0)
    state, position, _, _ = draw(powers, False, order, start, 0, words[:2], 0)
    assert (state, position) == (NO_WORDS, 0)
    assert draw(powers, False, order, start, 0, words[position:], 0) == whole


def test_items_of_a_level_are_equally_likely_to_the_last_word():
    """With 3 items a word whose upper half is 0 belongs to no equal part, and the next word is read."""
    zero, other = np.uint64(1), np.uint64(5 << 32)
    assert item_of(np.array([zero, other]), 0, 3) == (2, 0, 1)
    assert item_of(np.array([zero, other]), 0, 4) == (1, 0, -1)
    counts = [item_of(np.array([np.uint64(w << 32)]), 0, 5)[1] for w in range(1, 2**32, 2**20 + 7)]
    assert stats.chisquare(np.bincount(counts, minlength=5)).pvalue > 0.99


@pytest.mark.parametrize("count", [3, 5, 1000, 10**6])
def test_exact_draws_give_each_item_of_a_level_the_same_number_of_words(count):
    # Of 2^32 words floor(2^32/count) belong to each item; where there is one more, the first is read again.
    levels = Levels(np.zeros(0, dtype=np.int32), np.zeros(2, dtype=np.int64), False, 0, (0, count))
    for item in {0, 1, 2, count // 3, count // 2, count - 2, count - 1}:
        first, after = (-(-edge * 2**32 // count) for edge in (item, item + 1))
        for word in {first, min(first + 1, after - 1), after - 1}:
            feed = iter([0, word << 32, (count - 1) * 2**32 // count + 5 << 32, 0, 0])
            found, _ = selection._proposal(feed, lambda item: 0.0, levels)
            assert (found == item) == (word > first or after - first == 2**32 // count), (item, word)


def test_a_level_has_its_listed_items_and_then_the_loose_ones():
    order, start = np.array([4, 2, 7, 5], dtype=np.int32), np.array([0, 1, 3, 4])
    for loose in ((-1, 0), (0, 2), (1, 3), (2, 1)):
        levels = Levels(order, start, False, 0, loose)
        counts = [n + loose[1] * (at == loose[0]) for at, n in enumerate([1, 2, 1])]
        assert levels.counts() == counts
        listed = [[4], [2, 7], [5]]
        for at, n in enumerate(counts):
            items = [*listed[at], *range(4, 4 + loose[1])][:n]
            assert [levels.item(at, offset) for offset in range(n)] == items


def test_close_decisions_are_left_to_exact_arithmetic():
    for exponent in (0.3, 1.0, 7.77):
        threshold = int(Fraction(2**64) * Fraction(2.0**-exponent))
        for near in (
            0,
            threshold >> 42,
            -(threshold >> 42),
        ):  # what float64 and exp2 may be wrong by, and more
            assert decide(exponent, np.uint64(threshold + near)) == -1
        assert decide(exponent, np.uint64(threshold - 2**28)) == 1
        assert decide(exponent, np.uint64(threshold + 2**28)) == 0
    assert decide(0.0, np.uint64(2**64 - 1)) == -1  # settled as kept by exact arithmetic
    assert decide(2000.0, np.uint64(0)) == -1
    assert decide(2000.0, np.uint64(2**20)) == 0
    start = np.array([0, 1, 2])
    total = total_weight(start, (-1, 0))
    assert total == 1.5
    edge = 2**64 * 2 // 3  # the upper level has two thirds
    assert level_of(start, (-1, 0), total, np.uint64(edge - 2**20)) == 1
    assert level_of(start, (-1, 0), total, np.uint64(edge + 2**20)) == 0
    assert level_of(start, (-1, 0), total, np.uint64(edge)) == -1


def test_exact_arithmetic_decides_ties_by_further_digits():
    def below(exponent, *words):
        return selection._below_power(iter(words), Fraction(exponent))

    assert below(0, 2**64 - 1)
    assert not below(1, 2**63)
    assert below(1, 2**63 - 1)
    half = math.isqrt(2**127)  # floor(2^64 / sqrt 2): the first 64 digits of 2^-1/2
    following = math.isqrt(2**255) - (half << 64)
    assert below(0.5, half, following - 1)
    assert not below(0.5, half, following + 1)
    assert not below(200, 0, 0, 1)
    assert below(200, 0, 0, 0, 2**55)
    assert not below(200, 0, 0, 0, 2**56)
    counts = [5, 1, 2]  # weights 5, 2, 8 of 15, the highest level first
    edge = 2**64 * 8 // 15
    assert selection._level(iter([edge - 1]), counts) == 2
    assert selection._level(iter([edge, 0]), counts) == 2
    assert selection._level(iter([edge, 2**64 - 1]), counts) == 1
    assert selection._level(iter([edge + 1]), counts) == 1


def test_extreme_weights_need_no_care():
    rng = SeededGenerator(5)
    assert {select(np.array([0.0, 1e4, -1e5]), rng) for _ in range(50)} == {1}
    assert {select_signed(np.array([0.0, 1e4, -1e5]), rng) for _ in range(50)} == {(2, -1)}
    tiny = {select_signed(np.array([5e-324]), rng) for _ in range(50)}
    assert tiny == {(0, 1), (0, -1)}
    assert select(np.zeros(1), SecureGenerator()) == 0


def test_what_is_no_list_of_finite_numbers_is_refused():
    rng = SeededGenerator(6)
    for wrong in (np.zeros((2, 2)), np.zeros(0), np.array([0.0, math.nan]), np.array([math.inf])):
        with pytest.raises(ValueError, match="Log-weights"):
            select(wrong, rng)
        with pytest.raises(ValueError, match="Log-weights"):
            select_signed(wrong, rng)


def test_rounding_is_stated_for_log_weights_made_of_eight_operations():
    rng, worst = np.random.default_rng(7), 0.0
    for _ in range(300):
        total, n, temperature, sensitivity = int(rng.integers(-(2**61), 2**61)), 23_750, 0.31, 0.0017
        computed = total * (2.0**-34 / n) * (20.0 * (-temperature / (2 * sensitivity))) * math.log2(math.e)
        factor = Fraction(20) * -Fraction(temperature) / (2 * Fraction(sensitivity)) * Fraction(2) ** -34 / n
        # log2(e) itself is a float: a common factor of all weights, a change of eta by 2^-53 of it
        exact = total * factor * Fraction(math.log2(math.e))
        worst = max(worst, float(abs(Fraction(computed) - exact) / abs(exact)))
    assert 4 * worst <= log_weight_error(1.0)
    assert worst > 2.0**-54


def test_the_same_words_give_the_same_choices_everywhere():
    """A test vector: decisions are exact, so that no machine may choose otherwise."""
    rng = SeededGenerator(11)
    signed = [select_signed(LOG_WEIGHTS, rng) for _ in range(8)]
    assert signed == [(5, -1), (5, -1), (5, -1), (3, 1), (4, 1), (3, 1), (4, 1), (2, -1)]
    assert [select(LOG_WEIGHTS, rng) for _ in range(8)] == [0, 3, 3, 6, 1, 3, 4, 3]


def test_levels_show_nothing():
    assert repr(Levels(np.arange(3, dtype=np.int32), np.array([0, 3]), True)) == "Levels()"


@pytest.mark.parametrize("gap", [1e3, 1e5, 3e9, 1e15])
def test_scores_far_apart_take_no_more_memory_than_scores_close_together(gap, monkeypatch):
    """A level for each factor of two between best and worst score is memory that records decide on."""
    made = []
    monkeypatch.setattr(
        "dpcvx.noise.exponential.Levels", lambda *given: made.append(Levels(*given)) or made[-1], raising=True
    )
    rng = SeededGenerator(1)
    log_weights = np.array([-gap, 0.0, 0.5, -1.0])
    drawn = np.bincount([select(log_weights, rng) for _ in range(4000)], minlength=4) / 4000
    weights = np.exp(log_weights)
    np.testing.assert_allclose(drawn, weights / weights.sum(), atol=0.03)
    pairs = np.array([select_signed(np.array([gap, gap - 1.0, 3.0]), rng) for _ in range(2000)])
    assert (pairs[:, 1] == 1).all()
    np.testing.assert_allclose(np.mean(pairs[:, 0] == 0), 1 / (1 + np.exp(-1.0)), atol=0.04)
    assert max(levels.start.size for levels in made) < 5000
