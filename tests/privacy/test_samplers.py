"""The samplers have the laws they declare: each check accepts the truth and rejects a known fault."""

import math

import numpy as np
import pytest
from scipy import stats

from dpcvx.noise import SeededGenerator, gumbel, lattice_gaussian
from dpcvx.noise.gumbel import select

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


SELECTIONS = 20_000


def selection_pvalue(chosen, log_weights):
    chances = np.exp(log_weights - np.max(log_weights))
    chances /= chances.sum()
    counts = np.bincount(chosen, minlength=chances.size)
    order = np.argsort(-chances)
    rare = (
        np.cumsum(chances[order][::-1])[::-1] * len(chosen) < 30
    )  # one cell for all that is rarely selected
    observed = np.append(counts[order][~rare], counts[order][rare].sum())
    expected = len(chosen) * np.append(chances[order][~rare], chances[order][rare].sum())
    keep = expected > 0
    return stats.chisquare(observed[keep], expected[keep]).pvalue if observed[~keep].sum() == 0 else 0.0


WEIGHTS = {
    "moderate": np.random.default_rng(1).normal(size=20),
    "peaked": -2.0 * np.arange(8.0),
    "huge": np.array([1e6, -1e6, 1e6 + math.log(2), 0.0, 1e6 - 1.0]),
    "very negative": -1e6 + np.array([0.0, 1.0, -1.0, 0.5]),
    "forbidden": np.array([-np.inf, 0.0, 1.0, -np.inf, -1.0]),
}


@pytest.mark.parametrize("chunk", [3, 2**17])
@pytest.mark.parametrize("kind", WEIGHTS)
def test_selection_has_exponential_weights(kind, chunk, monkeypatch):
    monkeypatch.setattr(gumbel, "CHUNK_WORDS", chunk)
    log_weights, rng = WEIGHTS[kind], SeededGenerator(chunk)
    count = SELECTIONS if chunk > 3 else SELECTIONS // 4
    chosen = [select(log_weights, rng) for _ in range(count)]
    assert selection_pvalue(chosen, log_weights) > ACCEPT
    assert selection_pvalue(chosen, 2 * log_weights) < REJECT
    assert selection_pvalue(chosen, log_weights / 2) < REJECT


def test_selection_tie_goes_to_the_lowest_index(monkeypatch):
    class Constant:
        private = False

        def words(self, n):
            return np.full(n, 2**62 + 1, dtype=np.uint64)

    assert select(np.array([-1.0, 2.0, 2.0, 0.0, 2.0]), Constant()) == 1
    monkeypatch.setattr(gumbel, "CHUNK_WORDS", 2)
    assert select(np.array([-1.0, 2.0, 2.0, 0.0, 2.0]), Constant()) == 1


@pytest.mark.parametrize("log_weights", [[], [[0.0, 1.0]], [0.0, np.nan], [0.0, np.inf], [-np.inf, -np.inf]])
def test_selection_refuses_what_has_no_law(log_weights):
    with pytest.raises(ValueError, match="Log-weights"):
        select(np.array(log_weights), SeededGenerator(0))
