"""Sparse vector keeps its promise exactly, and the harness that says so catches the known wrong variants."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from dpcvx.noise import SeededGenerator
from dpcvx.queries.sparse_vector import LATTICE_BITS, AboveThreshold

QUERIES = 4
PROFILES = [
    np.array(profile, dtype=float)
    for profile in (
        (0, 0, 0, 0),
        (1, 1, 1, 1),
        (-2, -2, -2, 2),
        (3, -3, 3, -3),
        (-1, -1, 0, 4),
        (2, 2, 2, -2),
    )
]
SHIFTS = [np.array(shift, dtype=float) for shift in itertools.product((-1, 0, 1), repeat=QUERIES)]


def thresholds(scores, scale):
    """Points and weights of a quadrature over the noisy threshold, fine between kinks of the integrand."""
    kinks = np.unique(np.concatenate([[0.0], scores]))
    reach = 40 * scale
    ends = np.concatenate([[kinks[0] - reach], kinks, [kinks[-1] + reach]])
    ends = np.concatenate([np.linspace(a, b, 25)[:-1] for a, b in itertools.pairwise(ends)] + [ends[-1:]])
    nodes, node_weights = np.polynomial.legendre.leggauss(12)
    half = np.diff(ends) / 2
    grid = ((ends[:-1] + half)[:, None] + half[:, None] * nodes).ravel()
    weights = (half[:, None] * node_weights).ravel() * np.exp(-np.abs(grid) / scale) / (2 * scale)
    return grid, weights


def outcomes(scores, threshold_scale, score_scale):
    """P(the run says "below" k times and then "above"), k = 0, 1, ..., and P(never), by quadrature.

    Given the threshold r, comparisons are independent: P(score + noise >= r) is a Laplace tail.
    """
    grid, weights = (np.zeros(1), np.ones(1)) if threshold_scale == 0 else thresholds(scores, threshold_scale)
    above = stats.laplace.sf(grid[:, None] - scores, scale=score_scale)
    below = np.cumprod(1 - above, axis=1)
    reached = np.concatenate([np.ones((grid.size, 1)), below[:, :-1]], axis=1)
    return np.append(weights @ (reached * above), weights @ below[:, -1])


def worst_log_ratio(threshold_scale, score_scale):
    """Largest |log ratio| of an outcome's probability over score profiles and shifts of at most 1."""
    worst = 0.0
    for scores in PROFILES:
        base = np.log(outcomes(scores, threshold_scale, score_scale))
        for shift in SHIFTS:
            moved = np.log(outcomes(scores + shift, threshold_scale, score_scale))
            worst = max(worst, float(np.abs(base - moved).max()))
    return worst


def scales(mechanism):
    """Scales of the threshold's and of a score's noise, in units of the sensitivity."""
    return [scale * 2.0**-LATTICE_BITS / mechanism.sensitivity for scale in mechanism.scales]


# PRIVACY_MATH §9.2 finds 0.422, 0.872, 1.816 on some profiles and 0.489, 0.994, 1.999 by search.
@pytest.mark.parametrize(("epsilon", "stated"), [(0.5, 0.422), (1.0, 0.872), (2.0, 1.816)])
def test_every_outcome_is_within_epsilon_and_comes_near_it(epsilon, stated):
    worst = worst_log_ratio(*scales(AboveThreshold(epsilon)))
    assert 0.97 * stated <= worst <= epsilon


# PRIVACY_MATH §9.2 finds 0.737, 1.506, 3.082 on some profiles.
@pytest.mark.parametrize(("epsilon", "stated"), [(0.5, 0.737), (1.0, 1.506), (2.0, 3.082)])
def test_half_the_noise_on_scores_is_caught(epsilon, stated):
    threshold_scale, score_scale = scales(AboveThreshold(epsilon))
    worst = worst_log_ratio(threshold_scale, score_scale / 2)
    assert worst > max(epsilon, 0.97 * stated)


def test_a_threshold_without_noise_is_caught():
    mechanism = AboveThreshold(1.0)
    _, score_scale = scales(mechanism)
    assert worst_log_ratio(0.0, score_scale) > 1.0


def test_a_sum_of_noise_is_split_so_that_a_comparison_is_least_noisy():
    def variance(first):
        return 2 / first**2 + 8 / (1 - first) ** 2

    threshold_scale, score_scale = scales(AboveThreshold(1.0))
    used = 2 * threshold_scale**2 + 2 * score_scale**2
    assert used <= min(variance(first) for first in np.linspace(0.01, 0.99, 99)) * (1 + 1e-6)
    assert 1 / threshold_scale + 2 / score_scale <= 1.0


def log_chance_of_pattern(variant, scores, pattern, mechanism):
    """Log-probability that a variant releases a pattern of "above" and "below" answers for all scores."""
    threshold_scale, score_scale = scales(mechanism)
    grid, weights = thresholds(scores, threshold_scale)
    above = stats.laplace.sf(grid[:, None] - scores, scale=score_scale)
    chances = np.where(pattern, above, 1 - above)
    if variant == "keeps the threshold":
        return math.log(weights @ chances.prod(axis=1))
    if variant == "starts anew without paying":
        runs = np.split(np.arange(len(scores)), np.flatnonzero(pattern[:-1]) + 1)
        return sum(math.log(weights @ chances[:, run].prod(axis=1)) for run in runs)
    raise ValueError(variant)


ALTERNATING = np.array([0.5, -0.5] * 20)


@pytest.mark.parametrize("variant", ["keeps the threshold", "starts anew without paying"])
def test_answers_after_the_first_above_are_not_free(variant):
    mechanism = AboveThreshold(1.0)
    pattern = ALTERNATING > 0
    ratio = log_chance_of_pattern(variant, ALTERNATING, pattern, mechanism)
    ratio -= log_chance_of_pattern(variant, -ALTERNATING, pattern, mechanism)
    assert ratio > 1.5
    # Up to the first answer above, what is released is the real mechanism's.
    first = log_chance_of_pattern(variant, ALTERNATING[:1], pattern[:1], mechanism)
    first -= log_chance_of_pattern(variant, -ALTERNATING[:1], pattern[:1], mechanism)
    assert 0 < first <= 1.0


def test_a_released_noisy_score_is_not_free():
    _, score_scale = scales(AboveThreshold(1.0))
    scores = np.full(12, 0.5)
    ratio = stats.laplace.logpdf(scores, scores, score_scale) - stats.laplace.logpdf(
        scores, scores - 1, score_scale
    )
    assert ratio.sum() > 1.0


def test_sampled_runs_tell_neighbours_apart_by_no_more_than_epsilon():
    mechanism, rng, trials = AboveThreshold(2.0), SeededGenerator(7), 4000
    # The first answer is "below" and the second "above": both move against each other.
    counts = []
    for scores in ((-0.5, 0.5), (0.5, -0.5)):
        runs = (mechanism.start(rng) for _ in range(trials))
        counts.append(sum(not run.above(scores[0], rng) and run.above(scores[1], rng) for run in runs))
    low = stats.beta.ppf(0.0005, counts[0], trials - counts[0] + 1)
    high = stats.beta.ppf(0.9995, counts[1] + 1, trials - counts[1])
    assert 0.1 < math.log(low / high) <= 2.0


def test_a_run_that_is_over_answers_no_more():
    rng = SeededGenerator(0)
    run = AboveThreshold(1.0).start(rng)
    assert run.above(1e6, rng)
    with pytest.raises(ValueError, match="over"):
        run.above(0.0, rng)


def test_runs_have_the_law_of_the_quadrature():
    mechanism, rng = AboveThreshold(1.0), SeededGenerator(3)
    scores = np.array([0.0, 1.0, -2.0, 3.0])
    chances = outcomes(scores, *scales(mechanism))
    places = []
    for _ in range(5000):
        run = mechanism.start(rng)
        answers = []
        while not any(answers) and len(answers) < QUERIES:
            answers.append(run.above(float(scores[len(answers)]), rng))
        places.append(len(answers) - 1 if any(answers) else QUERIES)
    observed = np.bincount(places, minlength=QUERIES + 1)
    assert stats.chisquare(observed, 5000 * chances).pvalue > 1e-4
    assert stats.chisquare(observed, 5000 * outcomes(scores + 1, *scales(mechanism))).pvalue < 1e-6


def test_distances_bound_what_a_comparison_is_off_by():
    mechanism = AboveThreshold(0.7)
    rng = np.random.default_rng(1)
    b, a = (scale * 2.0**-LATTICE_BITS for scale in mechanism.scales)
    difference = rng.laplace(scale=a, size=200_000) - rng.laplace(scale=b, size=200_000)
    for probability in (0.3, 0.05, 0.001):
        beyond = int((difference > mechanism.distance(probability)).sum())
        assert stats.binomtest(beyond, difference.size, probability).pvalue > 1e-4
    assert mechanism.tail(0.0) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="probability"):
        mechanism.distance(0.6)


def test_a_run_is_one_pure_event_and_shows_nothing():
    mechanism = AboveThreshold(0.3)
    assert mechanism.event.epsilon == 0.3
    run = mechanism.start(SeededGenerator(0))
    assert str(run.threshold) not in repr(run)
    assert mechanism.failure < 1e-50
    for epsilon in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="epsilon"):
            AboveThreshold(epsilon)
