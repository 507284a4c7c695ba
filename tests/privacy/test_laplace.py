"""Lattice Laplace noise has the law it declares: each check accepts the truth and rejects a known fault."""

import math

import numpy as np
import pytest
from scipy import stats

from dpcvx.noise import SecureGenerator, SeededGenerator, laplace_failure, lattice_laplace
from dpcvx.noise import laplace as noise

SCALES = [1, 7, 2**36 + 11]
DRAWS = 20_000
ACCEPT, REJECT = 1e-5, 1e-12


@pytest.fixture(scope="module")
def draws():
    return {scale: lattice_laplace(scale, DRAWS, SeededGenerator(scale)) for scale in SCALES}


def below(k, scale):
    """P(K <= k) for P(K = k) proportional to exp(-|k| / scale)."""
    decay = math.exp(-1 / scale)
    k = np.floor(k)
    tail = np.exp(-np.abs(np.where(k < 0, k, k + 1)) / scale) / (1 + decay)
    return np.where(k < 0, tail, 1 - tail)


def fit_pvalue(sample, scale):
    edges = np.unique(np.rint(scale * np.linspace(-4, 4, 60)))
    expected = sample.size * np.diff(below(edges, scale), prepend=0.0, append=1.0)
    observed = np.bincount(np.searchsorted(edges, sample, side="left"), minlength=edges.size + 1)
    return stats.chisquare(observed, expected).pvalue


@pytest.mark.parametrize("scale", SCALES)
def test_law_is_accepted_and_another_scale_rejected(draws, scale):
    assert fit_pvalue(draws[scale], scale) > ACCEPT
    assert fit_pvalue(draws[scale], 1.1 * scale) < REJECT
    assert fit_pvalue(draws[scale], 0.9 * scale) < REJECT


@pytest.mark.parametrize("scale", [1, 3])
def test_small_scales_have_the_exact_probabilities(scale):
    sample = lattice_laplace(scale, DRAWS, SeededGenerator(scale + 50))
    for k in range(-3 * scale, 3 * scale + 1):
        chance = math.exp(-abs(k) / scale) * math.tanh(1 / (2 * scale))
        assert stats.binomtest(int((sample == k).sum()), DRAWS, chance).pvalue > ACCEPT, k
    # Zero must not be drawn twice as often, once for each sign.
    decay = math.exp(-1 / scale)
    assert stats.binomtest(int((sample == 0).sum()), DRAWS, 1 - decay).pvalue < REJECT


def test_neighbouring_sums_are_told_apart_by_no_more_than_their_distance_over_the_scale(draws):
    scale = 7
    counts = [np.bincount(np.clip(total + draws[scale], -30, 30) + 30, minlength=61) for total in (0, scale)]
    likely = (counts[0] > 150) & (counts[1] > 150)
    ratios = np.log(counts[0][likely] / counts[1][likely])
    assert np.abs(ratios).max() < 1.35  # 1, and the sampling error of counts above 150
    assert np.abs(ratios).max() > 0.7


@pytest.mark.parametrize("modulus", [2, 3, 256])
def test_low_digits_are_uniform(draws, modulus):
    residues = np.bincount(draws[SCALES[-1]] % modulus, minlength=modulus)
    assert stats.chisquare(residues).pvalue > ACCEPT
    assert stats.chisquare(np.bincount(2 * draws[SCALES[-1]] % 256, minlength=256)).pvalue < REJECT


def test_draws_are_independent(draws):
    sample = np.sign(draws[SCALES[-1]]) * np.sqrt(np.abs(draws[SCALES[-1]]))
    for lag in (1, 2, 5):
        assert abs(np.corrcoef(sample[:-lag], sample[lag:])[0, 1]) < 4.5 / math.sqrt(DRAWS)


def test_uniform_integers_below_any_bound_are_uniform():
    rng = SeededGenerator(4)
    for bound in (1, 2, 3, 5, 64, 1000):
        sample = [noise._uniform_below(bound, rng) for _ in range(6000)]
        assert 0 <= min(sample) <= max(sample) < bound
        if bound > 1:
            assert stats.chisquare(np.bincount(np.array(sample) * min(bound, 64) // bound)).pvalue > ACCEPT
    # Beyond 64 bits, where two words are joined.
    sample = [noise._uniform_below(3 << 70, rng) >> 70 for _ in range(6000)]
    assert stats.chisquare(np.bincount(sample, minlength=3)).pvalue > ACCEPT


def test_chances_decay_exponentially():
    rng = SeededGenerator(5)
    for numerator, denominator in ((0, 1), (1, 1), (1, 2), (999, 1000)):
        kept = sum(noise._decays(numerator, denominator, rng) for _ in range(8000))
        chance = math.exp(-numerator / denominator)
        assert stats.binomtest(kept, 8000, chance).pvalue > ACCEPT
        if numerator:
            assert stats.binomtest(kept, 8000, 1 - numerator / denominator).pvalue < REJECT


def test_failure_is_the_mass_beyond_the_cut():
    assert laplace_failure(2**55) < math.exp(-127.9)
    assert laplace_failure(2**36) == 0.0
    assert laplace_failure(2**57) == pytest.approx(math.exp(-32), rel=1e-9)


def test_scales_outside_the_lattice_are_refused():
    for scale in (0, -1, 2**55 + 1):
        with pytest.raises(ValueError, match="scale"):
            lattice_laplace(scale, 1, SeededGenerator(0))
    with pytest.raises(ValueError, match="draws"):
        lattice_laplace(1, -1, SeededGenerator(0))
    assert lattice_laplace(5, 0, SeededGenerator(0)).shape == (0,)
    for scale in (1, 2**55):
        assert abs(lattice_laplace(scale, 20, SeededGenerator(0))).max() < 2**62


def test_the_secure_generator_serves_too():
    sample = lattice_laplace(2**30, 500, SecureGenerator())
    assert 0.8 < np.abs(sample).mean() / 2**30 < 1.25
