"""Noisy pairs of very many attributes, estimated together."""

import itertools
import math

import numpy as np
import pytest

from dpcvx.accounting import Budget, gaussian_mu
from dpcvx.noise import SeededGenerator
from dpcvx.queries import Attribute, Counts, NoisyMarginals, QueryEngine, Schema, Universe
from dpcvx.queries import joint_shrinkage as module
from dpcvx.queries.joint_shrinkage import shrink_together, worth_shrinking

D, N = 60, 4000
# about the sizes of Adult in benchmarks/natural.py; its noise is a third of the threshold
NATURAL = (12, 9, 7, 17, 15, 8, 16, 7, 6, 3, 8, 7, 10, 43, 2)


def mechanism(sizes, n, epsilon=1.0, order=2):
    return NoisyMarginals(sizes, n, 1 / gaussian_mu(epsilon, 1 / n**2), order)


def released(codes, epsilon=1.0, seed=0):
    """Estimates, the release that they are made of, and what is true, by attributes."""
    sizes = tuple(int(each.max()) + 1 for each in codes)
    schema = Schema(tuple(Attribute(f"a{j}", tuple(range(k)), 0) for j, k in enumerate(sizes)))
    counts = Counts(Universe(schema), codes.astype(np.int16))
    made = mechanism(sizes, codes.shape[1], epsilon)
    noisy = made(counts, SeededGenerator(seed))
    truth = {m.attributes: m.means(counts.shares(m.attributes)) for m in noisy}
    return {m.attributes: m for m in shrink_together(noisy, sizes)}, {m.attributes: m for m in noisy}, truth


def error(found, truth, order):
    """Root of the mean square error of the means of so many attributes."""
    parts = [m.values - truth[key] for key, m in found.items() if len(key) == order]
    return math.sqrt(np.mean(np.concatenate(parts) ** 2))


def dependence(found, a, b):
    """Covariance of two binary attributes."""
    return float(found[a, b].values[0] - found[(a,)].values[0] * found[(b,)].values[0])


def independent(seed=1, d=D):
    rng = np.random.default_rng(seed)
    return (rng.random((d, N)) < rng.beta(2, 2, size=(d, 1))).astype(int)


def test_the_rule_has_a_threshold_in_public_numbers():
    assert worth_shrinking(mechanism((2,) * 120, 5000))
    assert worth_shrinking(mechanism((4,) * 85, 5822))
    assert not worth_shrinking(mechanism((2,) * 30, 10**6))
    for n in (10_000, 30_000, 100_000):
        made = mechanism((2,) * 40, n)
        assert worth_shrinking(made) == (made.deviations[1] >= module.LARGE_NOISE / math.sqrt(n))
    assert not worth_shrinking(mechanism((2,) * 30, 5000, order=3))
    assert not worth_shrinking(mechanism((2,) * 30, 5000, order=1))
    assert not worth_shrinking(mechanism((module.LARGEST_MATRIX // 2 + 2,) * 2, 100))


def test_narrow_tables_are_left_as_they_are():
    assert not worth_shrinking(mechanism((2,) * 16, 48_842))
    assert not worth_shrinking(mechanism(NATURAL, 45_222))


@pytest.mark.parametrize(("n", "shrunk"), [(500, True), (60_000, False)])
def test_an_engine_fits_its_models_to_the_estimates_where_the_rule_says_so(n, shrunk):
    rng = np.random.default_rng(0)
    table = {f"b{j}": rng.integers(0, 2, n) for j in range(26)}
    schema = Schema(tuple(Attribute(f"b{j}", (0, 1), 0) for j in range(26)))
    options = {"method": "warm", "check": 0, "n_queries": 10}
    engine = QueryEngine(schema, table, Budget(1.0, 1 / n**2), rng=SeededGenerator(0), **options)
    side = engine._public_side
    assert side._plan.start.order == 2
    models, raw = side.histogram, {m.attributes: m for m in side._warm}
    for m in models.inside((0, 1, 2)):  # intervals rest on these
        estimate, noise = models._released[m.attributes], raw[m.attributes].deviation
        assert m.values is estimate.values
        assert m.deviation == (max(1.2 * estimate.deviation, 0.8 * noise) if shrunk else noise)
    same = [np.array_equal(m.values, raw[key].values) for key, m in models._released.items()]
    assert all(same) != shrunk


def test_pairs_of_noise_alone_become_independent():
    found, noisy, truth = released(independent())
    deviation = noisy[0, 1].deviation
    left = [dependence(found, a, b) for a, b in itertools.combinations(range(D), 2)]
    before = [dependence(noisy, a, b) for a, b in itertools.combinations(range(D), 2)]
    assert math.sqrt(np.mean(np.square(before))) > 0.9 * deviation
    # One pair in thirteen stands out by chance, and keeps what it has beyond that.
    assert math.sqrt(np.mean(np.square(left))) < 0.5 * deviation
    assert np.median(np.abs(left)) < 0.05 * deviation
    assert error(found, truth, 1) < 0.8 * error(noisy, truth, 1)


def test_a_strong_pair_stays():
    codes = independent()
    rng = np.random.default_rng(2)
    codes[3] = rng.integers(0, 2, N)
    codes[7] = codes[3] ^ (rng.random(N) < 0.05)
    codes[20] = codes[3] ^ codes[7]  # and one that is nearly constant
    found, noisy, truth = released(codes)
    true = float(truth[3, 7][0] - truth[(3,)][0] * truth[(7,)][0])
    assert true > 0.7
    assert dependence(found, 3, 7) == pytest.approx(true, abs=3 * noisy[3, 7].deviation)
    assert dependence(found, 3, 7) > 0.7 * true


def test_common_causes_are_found_by_all_pairs_together():
    rng = np.random.default_rng(3)
    score = rng.normal(size=(D, 2)) @ rng.normal(size=(2, N)) + 1.5 * rng.normal(size=(D, N))
    codes = np.stack([np.digitize(each, [-0.5, 1.5] if j % 2 else [0.5]) for j, each in enumerate(score)])
    found, noisy, truth = released(codes)
    assert error(found, truth, 2) < 0.55 * error(noisy, truth, 2)
    assert error(found, truth, 1) < 0.9 * error(noisy, truth, 1)
    # and the deviations say about how large errors are
    stated = math.sqrt(np.mean([m.deviation**2 for key, m in found.items() if len(key) == 1]))
    assert 0.7 < error(found, truth, 1) / stated < 1.4


def test_means_of_zero_say_nothing_about_each_other():
    """Pairs show means only through other means; without any, single attributes stay as released."""
    codes = np.random.default_rng(4).integers(0, 2, (D, N))
    found, noisy, truth = released(codes)
    assert error(found, truth, 1) < 1.05 * error(noisy, truth, 1)
    assert np.isfinite([m.deviation for m in found.values()]).all()
