"""The samplers have the laws they declare: each check accepts the truth and rejects a known fault."""

import math

import numpy as np
import pytest
from scipy import stats

from dpcvx.noise import SeededGenerator, lattice_gaussian

SCALES = [1, 7, 2**20 + 3, 2**34 + 12345, 2**45]
DRAWS = 10**6
ACCEPT = 1e-5  # the seeds are fixed, so this is checked once; a wrong law gives far less
REJECT = 1e-12


@pytest.fixture(scope="module")
def draws():
    return {scale: lattice_gaussian(scale, DRAWS, SeededGenerator(scale)) for scale in SCALES}


def variance_pvalue(sample, scale):
    """Two-sided test of E K^2, with Sheppard's moments of a rounded Gaussian."""
    second = scale**2 + 1 / 12
    fourth = 3 * scale**4 + scale**2 / 2 + 1 / 80
    deviation = np.mean(sample.astype(float) ** 2) - second
    return 2 * stats.norm.sf(abs(deviation) / math.sqrt((fourth - second**2) / sample.size))


def fit_pvalue(sample, scale):
    """Chi-square over 176 cells, or one for each integer, against differences of the normal distribution."""
    edges = np.unique(np.rint(scale * np.linspace(-3.5, 3.5, 175)))
    distribution = stats.norm.cdf((edges - 0.5) / scale)
    expected = sample.size * np.diff(distribution, prepend=0.0, append=1.0)
    observed = np.bincount(np.searchsorted(edges, sample, side="right"), minlength=edges.size + 1)
    return stats.chisquare(observed, expected).pvalue


def tail_pvalue(sample, scale, multiple):
    bound = math.floor(multiple * scale)
    chance = 2 * stats.norm.sf((bound + 0.5) / scale)
    return stats.binomtest(int(np.sum(np.abs(sample) > bound)), sample.size, chance).pvalue


def uniform_pvalue(residues, modulus):
    return stats.chisquare(np.bincount(residues, minlength=modulus)).pvalue


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("pvalue", [variance_pvalue, fit_pvalue])
def test_scale_is_accepted_and_two_percent_off_is_rejected(draws, scale, pvalue):
    assert pvalue(draws[scale], scale) > ACCEPT
    assert pvalue(draws[scale], 0.98 * scale) < REJECT
    assert pvalue(draws[scale], 1.02 * scale) < REJECT


@pytest.mark.parametrize("scale", SCALES)
def test_mean_is_zero_and_signs_are_fair(draws, scale):
    sample = draws[scale]
    deviation = math.sqrt((scale**2 + 1 / 12) / DRAWS)
    assert abs(np.mean(sample)) < 4.5 * deviation
    assert abs(np.mean(sample + 0.01 * scale)) > 4.5 * deviation
    positive, negative = int(np.sum(sample > 0)), int(np.sum(sample < 0))
    assert stats.binomtest(positive, positive + negative).pvalue > ACCEPT


@pytest.mark.parametrize("scale", [1, 3])
def test_small_scale_has_the_exact_probabilities(scale):
    sample = lattice_gaussian(scale, DRAWS, SeededGenerator(scale + 100))
    values = np.arange(-4 * scale, 4 * scale + 1)
    chances = stats.norm.cdf((values + 0.5) / scale) - stats.norm.cdf((values - 0.5) / scale)
    for value, chance in zip(values, chances, strict=True):
        count = int(np.sum(sample == value))
        assert stats.binomtest(count, DRAWS, chance).pvalue > ACCEPT, value
    # the discrete Gaussian exp(-k^2 / (2 scale^2)) is another law: at scale 1 its chance of 0 is 4 % higher
    if scale == 1:
        assert stats.binomtest(int(np.sum(sample == 0)), DRAWS, 0.39894).pvalue < REJECT


@pytest.mark.parametrize("multiple", [2.0, 3.0, 4.0, 4.5])
@pytest.mark.parametrize("scale", SCALES[1:])
def test_tails_are_gaussian(draws, scale, multiple):
    assert tail_pvalue(draws[scale], scale, multiple) > ACCEPT


def test_tail_check_rejects_a_sum_of_uniforms():
    light = np.random.default_rng(0).random((10**6, 12)).sum(axis=1) - 6
    assert tail_pvalue(light * 2**20, 2**20, 3.0) < REJECT


@pytest.mark.parametrize("scale", SCALES[2:])
@pytest.mark.parametrize("modulus", [2, 3, 256, 1000])
def test_low_digits_are_uniform(draws, scale, modulus):
    assert uniform_pvalue(draws[scale] % modulus, modulus) > ACCEPT
    assert uniform_pvalue((draws[scale] >> 9) % modulus, modulus) > ACCEPT


def test_neighbouring_sums_have_the_same_support(draws):
    for scale in SCALES[2:]:
        residues = [(total + draws[scale]) % 256 for total in (0, 1)]
        counts = np.array([np.bincount(r, minlength=256) for r in residues])
        assert (counts > 0).all()
        assert all(uniform_pvalue(r, 256) > ACCEPT for r in residues)
        coarse = (1 + 2 * draws[scale]) % 256  # noise on a coarser lattice than the sum betrays its parity
        assert uniform_pvalue(coarse, 256) < REJECT
    small = draws[7]
    reached = [set((total + small).tolist()) for total in (0, 1)]
    assert set(range(-25, 27)) <= reached[0] & reached[1]


def test_draws_are_independent_within_and_across_calls(draws):
    sample = draws[2**34 + 12345]
    for lag in (1, 2, 7):
        assert abs(np.corrcoef(sample[:-lag], sample[lag:])[0, 1]) < 4.5 / math.sqrt(DRAWS)
        # magnitudes share words with the length of a draw, so look at them on their own
        size = np.abs(sample)
        assert abs(np.corrcoef(size[:-lag], size[lag:])[0, 1]) < 4.5 / math.sqrt(DRAWS)
    rng = SeededGenerator(5)
    calls = np.array([lattice_gaussian(2**30, 2, rng) for _ in range(20_000)])
    assert np.unique(calls).size == calls.size
    assert abs(np.corrcoef(calls[:-1, 1], calls[1:, 0])[0, 1]) < 4.5 / math.sqrt(len(calls))
    assert fit_pvalue(calls.ravel(), 2**30) > ACCEPT


@pytest.mark.parametrize("scale", [0, -3, 2**58, 2**62])
def test_scale_out_of_range_is_refused(scale):
    with pytest.raises(ValueError, match="standard deviation in lattice steps"):
        lattice_gaussian(scale, 4, SeededGenerator(0))


def test_negative_size_is_refused_and_zero_is_empty():
    with pytest.raises(ValueError, match="must not be negative"):
        lattice_gaussian(8, -1, SeededGenerator(0))
    assert lattice_gaussian(8, 0, SeededGenerator(0)).shape == (0,)


def test_largest_scale_does_not_wrap():
    sample = lattice_gaussian(2**58 - 1, 10**5, SeededGenerator(3))
    assert np.max(np.abs(sample / 2.0**58)) < 6
    assert variance_pvalue(sample, 2.0**58) > ACCEPT
