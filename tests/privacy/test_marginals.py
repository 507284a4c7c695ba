"""Noisy marginals: every pair of neighbours, the exact sensitivity, and the law of the noise."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

import dpcvx.noise.gaussian
from dpcvx.accounting import Neighbours, gaussian_mu
from dpcvx.errors import Incompatible
from dpcvx.events import Gaussian
from dpcvx.noise import SeededGenerator
from dpcvx.queries import Attribute, Counts, NoisyMarginals, Schema, Universe, marginals
from dpcvx.queries.marginals import count_statistics, marginal_order

# Small enough to compare every pair of records.
SHAPES = [(2,), (5,), (2, 2), (2, 2, 2, 2, 2), (3, 3), (2, 3, 4), (7, 2, 2), (2, 2, 3, 2)]
CASES = [
    (sizes, order, relation)
    for sizes in SHAPES
    for order in range(1, min(3, len(sizes)) + 1)
    for relation in ("replace", "add_remove")
]


def universe_of(sizes):
    return Universe(Schema(tuple(Attribute(f"a{i}", tuple(range(k)), k - 1) for i, k in enumerate(sizes))))


@pytest.fixture
def silent(monkeypatch):
    scales = []

    def nothing(scale, size, rng):
        scales.append(scale)
        return np.zeros(size, dtype=np.int64)

    monkeypatch.setattr(dpcvx.noise.gaussian, "lattice_gaussian", nothing)
    return scales


def weighted(mechanism, data, rng=None):
    """The numbers that noise is added to, in units of the sensitivity."""
    measured = mechanism(data, rng or SeededGenerator(0))
    return np.concatenate([mechanism.weights[len(m.attributes) - 1] * m.values for m in measured])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_pair_of_records_is_within_the_sensitivity_and_one_reaches_it(case, silent):
    sizes, order, relation = case
    universe = universe_of(sizes)
    mechanism = NoisyMarginals(sizes, 1, 1.0, order, Neighbours(relation))
    each = np.array([weighted(mechanism, Counts(universe, np.array([x]))) for x in range(universe.n_cells)])
    if relation == "replace":
        widest = max(np.linalg.norm(a - b) for a, b in itertools.combinations(each, 2))
    else:
        widest = np.linalg.norm(each, axis=1).max()
    assert widest <= mechanism.sensitivity * (1 + 1e-12)
    # Rounded contrasts are covered by intervals, which costs a little; for two levels one lattice step.
    assert widest >= mechanism.sensitivity * (1 - (1e-6 if set(sizes) == {2} else 2e-3))
    assert len(set(silent)) == 1  # the noise does not look at the record


def test_neighbours_of_many_records_differ_by_one_record_alone(silent):
    sizes = (2, 3, 4, 2)
    universe, rng = universe_of(sizes), np.random.default_rng(0)
    mechanism = NoisyMarginals(sizes, 50, 1.0, 2)
    for _ in range(100):
        cells = rng.integers(universe.n_cells, size=50)
        other = cells.copy()
        other[rng.integers(50)] = rng.integers(universe.n_cells)
        moved = weighted(mechanism, Counts(universe, cells)) - weighted(mechanism, Counts(universe, other))
        assert np.linalg.norm(moved) <= mechanism.sensitivity * (1 + 1e-12)


@pytest.mark.parametrize("d", [2, 3, 6, 16, 24])
def test_binary_means_and_products_have_the_sensitivity_of_the_formula(d):
    squared = marginals._squared_sensitivity(((2, d),), (8, 8), 15, Neighbours())
    assert squared == 4 * ((d + 1) ** 2 // 4) * 2**60
    assert (
        marginals._squared_sensitivity(((2, d),), (8, 8), 15, Neighbours("add_remove"))
        == (d * (d + 1) // 2) * 2**60
    )


@pytest.mark.parametrize("bits", marginals.CONTRAST_BITS)
def test_products_of_contrasts_are_found_without_rounding(bits):
    for size in (3, 40, 1024):
        q = marginals.contrasts(size, bits)
        assert int((q.astype(object) ** 2).sum(axis=1).max()) == marginals._products(size, bits)[0][1] < 2**53
        assert int(q[0] @ q[size // 2]) in range(*np.add(marginals._products(size, bits)[1], (0, 1)))


def test_products_alone_are_less_than_the_generic_bound_by_about_the_root_of_two():
    mechanism = NoisyMarginals((2,) * 16, 1, 1.0, 2)
    w = mechanism.weights[0]
    assert mechanism.sensitivity == pytest.approx(max(2 * math.sqrt(k * (w**2 + 16 - k)) for k in range(17)))
    assert mechanism.sensitivity < 2 * math.sqrt(16 * w**2 + 120) / 1.3


@pytest.mark.parametrize("sizes", [(2,) * 16, (2,) * 5 + (10,) * 3, (4,) * 6, (3, 5, 7, 9)], ids=str)
def test_cells_of_pairs_are_less_noisy_than_with_whole_tables(sizes):
    """M whole tables have sensitivity sqrt(2M)/n, and that much noise on every cell."""
    mechanism = NoisyMarginals(sizes, 1, 1.0, 2)
    one, two = mechanism.deviations
    variances = []
    for k, m in itertools.combinations(sizes, 2):
        means = one**2 * ((k - 1) ** 2 + (m - 1) ** 2)
        variances.append((means + two**2 * ((k - 1) * (m - 1)) ** 2) / (k * m) ** 2)
    assert np.mean(variances) < 2 * len(variances)


def test_noise_has_the_declared_law():
    sizes = (2, 3, 4, 5)
    mechanism = NoisyMarginals(sizes, 100, 1.7, 2)
    data, rng = Counts(universe_of(sizes), np.zeros(100, dtype=np.int64)), SeededGenerator(3)
    runs = np.array([weighted(mechanism, data, rng) for _ in range(300)])
    noise = (runs - runs.mean(axis=0)).ravel() / mechanism.noise
    freedom = runs.size - runs.shape[1]
    assert mechanism.n_draws == runs.shape[1]
    assert stats.chi2.cdf((noise**2).sum(), freedom) == pytest.approx(0.5, abs=0.499)
    assert stats.kstest(noise * math.sqrt(300 / 299), "norm").pvalue > 1e-3
    assert mechanism.noise == pytest.approx(1.7 * mechanism.sensitivity)
    assert mechanism.event == Gaussian(1.7)


@pytest.mark.long
def test_the_declared_deviation_is_that_of_the_released_means():
    sizes = (2,) * 6
    mechanism = NoisyMarginals(sizes, 40, 1.0, 2)
    assert mechanism.weights[0] > 1.2  # means and products have noise of their own
    cells = np.arange(40)
    data, rng = Counts(universe_of(sizes), cells), SeededGenerator(4)
    runs = [mechanism(data, rng) for _ in range(400)]
    for place, measured in enumerate(runs[0]):
        spread = np.std([run[place].values[0] for run in runs])
        assert spread == pytest.approx(measured.deviation, rel=0.15)


def test_known_answers(silent):
    """Six records of two binary attributes, by hand: three of them (-1, 1) or (-1, -1), three (1, 1)."""
    cells = np.array([0, 1, 1, 3, 3, 3])
    first, second, both = NoisyMarginals((2, 2), 6, 1.0, 2)(
        Counts(universe_of((2, 2)), cells), SeededGenerator(0)
    )
    assert first.values == pytest.approx([0.0], abs=1e-15)
    assert second.values == pytest.approx([2 / 3], abs=1e-15)
    assert both.values == pytest.approx([1 / 3], abs=1e-15)
    assert np.array_equal(both.features[0], [[-1.0], [1.0]])


def test_vector_of_seeded_noise():
    """The numbers of a seed, so that no change of lattice, order or scale goes unnoticed."""
    mechanism = NoisyMarginals((2, 3), 10, 2.0, 2)
    measured = mechanism(Counts(universe_of((2, 3)), np.arange(10) % 6), SeededGenerator(7))
    assert [m.attributes for m in measured] == [(0,), (1,), (0, 1)]
    values = np.concatenate([m.values for m in measured])
    expected = [0.815162029583, -0.031117167417, -0.0325706723146, 0.581654930394, 0.0920814310201]
    assert values == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_released_means_determine_every_table_of_the_order(order, silent):
    sizes = (2, 3, 4)
    universe, rng = universe_of(sizes), np.random.default_rng(5)
    data = Counts(universe, rng.integers(24, size=30))
    measured = {m.attributes: m for m in NoisyMarginals(sizes, 30, 1.0, order)(data, SeededGenerator(0))}
    for A in itertools.combinations(range(3), order):
        subsets = [T for r in range(1, order + 1) for T in itertools.combinations(A, r)]
        rows = [np.ones(math.prod(sizes[a] for a in A))]
        values = [1.0]
        for T in subsets:
            m = measured[T]
            for j in itertools.product(*(range(f.shape[1]) for f in m.features)):
                function = np.ones(())
                for a in A:
                    part = m.features[T.index(a)][:, j[T.index(a)]] if a in T else np.ones(sizes[a])
                    function = np.multiply.outer(function, part)
                rows.append(function.ravel())
            values += list(m.values)
        table = np.linalg.solve(np.array(rows), np.array(values))
        assert table == pytest.approx(data.marginal(A).ravel() / 30, abs=1e-9)


def test_what_is_refused_and_why():
    with pytest.raises(ValueError, match="order is 4; it must be from 1 to 3"):
        NoisyMarginals((2,) * 5, 10, 1.0, 4)
    with pytest.raises(ValueError, match="order is 2; it must be from 1 to 1"):
        NoisyMarginals((2,), 10, 1.0, 2)
    with pytest.raises(AttributeError, match="weight"):
        NoisyMarginals((2, 2), 10, 1.0, 2, "replace")
    with pytest.raises(Incompatible, match="do not fit exact 62-bit sums"):
        NoisyMarginals((2, 2), 2**33, 1.0, 2)
    with pytest.raises(Incompatible, match="has 1025 cells; marginals"):
        NoisyMarginals((2, 1025), 10, 1.0, 2)


def test_records_that_the_plan_does_not_fit_are_refused():
    data = Counts(universe_of((2, 2)), np.zeros(5, dtype=np.int64))
    with pytest.raises(Incompatible, match="planned for n=6 records, there are 5"):
        NoisyMarginals((2, 2), 6, 1.0, 2)(data, SeededGenerator(0))
    with pytest.raises(Incompatible, match="of sizes"):
        NoisyMarginals((2, 3), 5, 1.0, 2)(data, SeededGenerator(0))
    crowded = NoisyMarginals((2, 2), 6, 1.0, 2, Neighbours("add_remove"))
    assert (
        len(crowded(data, SeededGenerator(0))) == 3
    )  # their number is private: five or six are served alike
    data.n = crowded.capacity + 1
    with pytest.raises(Incompatible, match="more records than"):
        crowded(data, SeededGenerator(0))


def test_sums_of_the_largest_number_of_records_have_room():
    mechanism = NoisyMarginals((2,) * 16, 10, 50.0, 2)
    largest = max(mechanism._factor(1) * 2**15, 2**30)
    assert mechanism.capacity * largest + 16 * mechanism.gaussians[0].scale < 2**62
    assert mechanism.failure < 1e-20


def test_the_order_follows_from_public_sizes():
    quiet, loud = 1 / gaussian_mu(4, 1e-10), 1 / gaussian_mu(0.01, 1e-10)
    assert marginal_order((2,) * 16, 50_000, quiet) == 3
    assert marginal_order((2,) * 16, 50_000, loud) == 2
    assert marginal_order((2,) * 16, 1_000, loud) == 1
    assert marginal_order((2, 2), 10**6, quiet) == 2
    # Twelve sizes, five attributes each: the bound for triples would enumerate 6^12 = 2.2e9 combinations of
    # changes, so the number of statistics decides before it is computed.
    mixed = tuple(2 + k % 12 for k in range(60))
    assert marginal_order(mixed, 100_000, 5.0, most_pairs=2**22) == 2
    assert marginal_order((2,), 10**6, quiet) == 1
    assert marginal_order((300, 300), 10**6, quiet) == 1  # 90,000 statistics of pairs are too many


@pytest.mark.slow
def test_two_neighbours_cannot_be_told_apart_better_than_promised():
    """The best test of two neighbours looks along their difference: its power is that of the Gaussian."""
    sizes, runs = (2, 2, 3), 10_000
    universe = universe_of(sizes)
    mechanism = NoisyMarginals(sizes, 5, 1.0, 2)
    one = Counts(universe, np.array([0, 1, 2, 3, 4]))
    other = Counts(universe, np.array([0, 1, 2, 3, 11]))
    rng = SeededGenerator(11)

    a, b = (np.array([weighted(mechanism, data, rng) for _ in range(runs)]) for data in (one, other))
    direction = b.mean(axis=0) - a.mean(axis=0)
    direction /= np.linalg.norm(direction)
    scores_a, scores_b = a @ direction, b @ direction
    cut = (scores_a.mean() + scores_b.mean()) / 2
    success = ((scores_a < cut).mean() + (scores_b >= cut).mean()) / 2
    assert success <= stats.norm.cdf(0.5) + 4 * math.sqrt(0.25 / (2 * runs))  # 1-GDP: the best is Phi(mu/2)
    assert success > 0.6  # and the pair is not a harmless one


def test_statistics_are_counted_without_listing_them():
    for sizes, order in (((2, 3, 4), 2), ((2, 3, 4), 3), ((5, 2, 2, 7), 3)):
        assert count_statistics(sizes, order) == NoisyMarginals(sizes, 1000, 1.0, order).n_draws
