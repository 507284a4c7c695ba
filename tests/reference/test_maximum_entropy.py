"""The maximum-entropy fit against a plain one that lists every cell, and against what it must reproduce."""

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import minimize

from dpcvx.noise import SeededGenerator
from dpcvx.queries import Attribute, Counts, Measurement, NoisyMarginals, Schema, Universe
from dpcvx.queries import maximum_entropy as me
from dpcvx.queries.cell_sums import all_marginals, outer_sum

SHAPES = [(4,), (2, 2), (2, 3, 4), (2,) * 6, (3, 2, 5, 2)]


def universe_of(sizes):
    return Universe(Schema(tuple(Attribute(f"a{i}", tuple(range(k)), k - 1) for i, k in enumerate(sizes))))


def listed(universe, measurements):
    """Every function at every cell, (cells, means)."""
    digits = np.unravel_index(np.arange(universe.n_cells), universe.shape)
    columns = []
    for m in measurements:
        parts = [f[digits[a]] for f, a in zip(m.features, m.attributes, strict=False)]
        if len(m.features) == 1 < len(m.attributes):
            sizes = [universe.shape[a] for a in m.attributes]
            parts = [m.features[0][np.ravel_multi_index([digits[a] for a in m.attributes], sizes)]]
        for j in itertools.product(*(range(part.shape[1]) for part in parts)):
            columns.append(math.prod(part[:, k] for part, k in zip(parts, j, strict=True)))
    return np.array(columns).T


def plain_fit(universe, measurements):
    F = listed(universe, measurements)
    values = np.concatenate([m.values for m in measurements])
    noise = np.concatenate([np.full(len(m.values), m.deviation) for m in measurements])
    ridge = np.maximum(noise * np.sqrt((F**2).mean(axis=0)), noise**2)

    def objective(c):
        z = F @ c
        p = np.exp(z - z.max())
        value = z.max() + math.log(p.sum()) - c @ values + 0.5 * ridge @ c**2
        return value, F.T @ p / p.sum() - values + ridge * c

    c = minimize(objective, np.zeros(F.shape[1]), jac=True, method="BFGS", options={"gtol": 1e-9}).x
    z = F @ c
    p = np.exp(z - z.max())
    return p / p.sum()


def records(universe, n, seed):
    rng = np.random.default_rng(seed)
    return Counts(
        universe, rng.choice(universe.n_cells, size=n, p=rng.dirichlet(np.full(universe.n_cells, 0.5)))
    )


@pytest.mark.parametrize(
    ("sizes", "order"), [(s, r) for s in SHAPES for r in (1, 2, 3) if r <= len(s)], ids=str
)
def test_the_fit_is_that_of_all_cells_listed(sizes, order, monkeypatch):
    monkeypatch.setattr(me, "AGREEMENT", 1e-4)
    universe = universe_of(sizes)
    mechanism = NoisyMarginals(sizes, 2000, 3.0, order)
    measured = mechanism(records(universe, 2000, 1), SeededGenerator(2))
    assert me.fit(universe, measured).weights == pytest.approx(plain_fit(universe, measured), abs=2e-6)


def test_any_functions_of_any_attributes_may_be_measured(monkeypatch):
    """Lists of functions, four attributes at once, attributes in another order, two about the same."""
    monkeypatch.setattr(me, "AGREEMENT", 1e-4)
    sizes = (2, 3, 2, 3, 2, 2)
    universe, rng = universe_of(sizes), np.random.default_rng(3)
    data = records(universe, 5000, 4)
    measured = list(NoisyMarginals(sizes, 5000, 1.0, 2)(data, SeededGenerator(5)))
    for A, m in [((4, 1, 5, 0), 3), ((3, 0), 2), ((0, 2), 1), ((5, 3, 1), 4)]:
        features = rng.normal(size=(math.prod(sizes[a] for a in A), m))
        values = features.T @ data.marginal(A).ravel() / 5000 + 0.01 * rng.normal(size=m)
        measured.append(Measurement(A, (features,), values, 0.01))
    fitted = me.fit(universe, measured).weights
    assert fitted == pytest.approx(plain_fit(universe, measured), abs=2e-6)
    assert abs(fitted - me.fit(universe, measured[:21]).weights).max() > 1e-3  # and they matter


def test_without_much_noise_the_measured_tables_are_reproduced():
    sizes = (2, 3, 2, 4)
    universe = universe_of(sizes)
    data = records(universe, 10**5, 6)
    measured = NoisyMarginals(sizes, 10**5, 1e-3, 2)(data, SeededGenerator(0))
    fitted = me.fit(universe, measured)
    for A in itertools.combinations(range(4), 2):
        assert fitted.marginal(A) == pytest.approx(data.marginal(A) / 10**5, abs=2e-5)


def test_of_all_distributions_with_these_pairs_it_has_the_largest_entropy():
    sizes = (2, 2, 2)
    universe = universe_of(sizes)
    measured = NoisyMarginals(sizes, 10**5, 1e-4, 2)(records(universe, 10**5, 7), SeededGenerator(0))
    p = me.fit(universe, measured).weights
    # The only change of three binary attributes that keeps every pair is the product of all signs.
    signs = np.array([(-1) ** bin(x).count("1") for x in range(8)])
    entropy = [-(q * np.log(q)).sum() for q in (p, p + 1e-3 * signs, p - 1e-3 * signs)]
    assert entropy[0] > max(entropy[1:])


def test_noise_beyond_any_signal_gives_nearly_the_uniform_distribution():
    sizes = (2,) * 6
    universe = universe_of(sizes)
    measured = NoisyMarginals(sizes, 100, 1e4, 2)(records(universe, 100, 8), SeededGenerator(1))
    assert measured[0].deviation > 100
    weights = me.fit(universe, measured).weights
    assert weights == pytest.approx(np.full(64, 1 / 64), rel=0.2)


def test_means_out_of_reach_do_not_break_the_fit():
    """Noise may carry means out of [-1, 1]; the fit stays a distribution, near the edge."""
    universe = universe_of((2, 2))
    sign = np.array([[-1.0], [1.0]])
    measured = [
        Measurement((0,), (sign,), np.array([1.7]), 0.05),
        Measurement((1,), (sign,), np.array([-1.2]), 0.05),
        Measurement((0, 1), (sign, sign), np.array([0.4]), 0.05),
    ]
    fitted = me.fit(universe, measured)
    assert fitted.weights == pytest.approx(plain_fit(universe, measured), abs=1e-3)
    assert fitted.weights[2] > 0.6


def test_the_fit_is_the_same_every_time_and_nearly_so_in_half_the_memory():
    sizes = (2,) * 10
    universe = universe_of(sizes)
    measured = NoisyMarginals(sizes, 3000, 2.0, 2)(records(universe, 3000, 9), SeededGenerator(2))
    one, again = me.fit(universe, measured), me.fit(universe, measured)
    small = me.fit(universe, measured, dtype=np.float32)
    assert np.array_equal(one.weights, again.weights)
    assert small.weights.dtype == np.float32
    for A in [(0, 1), (3, 7), (2, 8)]:
        assert small.marginal(A) == pytest.approx(one.marginal(A), abs=2e-4)


def test_curvature_saves_evaluations(monkeypatch):
    """Dependent attributes: a third of the evaluations."""
    sizes = (2,) * 9
    universe, rng = universe_of(sizes), np.random.default_rng(10)
    first = rng.integers(2, size=20_000)
    flips = rng.random((8, 20_000)) < 0.05
    table = {"a0": first} | {f"a{i + 1}": np.where(flip, 1 - first, first) for i, flip in enumerate(flips)}
    measured = NoisyMarginals(sizes, 20_000, 5.0, 2)(Counts.of(universe, table), SeededGenerator(3))
    calls = []
    means = me._Model.means
    monkeypatch.setattr(
        me._Model, "means", lambda self, weights: calls.append(weights.size) or means(self, weights)
    )
    me.fit(universe, measured)
    assert calls.count(512) < 40  # 21; without an estimate of the curvature 65


def test_nothing_measured_is_uniform():
    universe = universe_of((2, 3))
    assert me.fit(universe, []).weights == pytest.approx(np.full(6, 1 / 6))


@pytest.mark.parametrize("order", [1, 2, 3])
def test_tables_grow_into_cells_and_cells_are_swept_into_tables(order):
    shape, rng = (2, 3, 2, 4, 3), np.random.default_rng(11)
    keys = [A for r in range(1, order + 1) for A in itertools.combinations(range(5), r)]
    tables = {A: rng.normal(size=[shape[a] for a in A]) for A in keys}
    del tables[keys[-1]], tables[(1,)]  # a table that is not given counts as zero
    expected = np.zeros(shape)
    for A, table in tables.items():
        expected += table.reshape([shape[a] if a in A else 1 for a in range(5)])
    grown = outer_sum(tables, shape, order, np.dtype(np.float64))
    assert grown.reshape(shape) == pytest.approx(expected, abs=1e-12)
    swept = all_marginals(expected.ravel(), shape, order)
    assert set(swept) == set(keys)
    for A in keys:
        others = tuple(a for a in range(5) if a not in A)
        assert swept[A] == pytest.approx(expected.sum(axis=others), abs=1e-9)


def test_many_means_are_fitted_without_a_matrix_of_curvature(monkeypatch):
    monkeypatch.setattr(me, "LARGEST_MATRIX", 10)
    monkeypatch.setattr(me, "LISTED", 5)
    monkeypatch.setattr(me, "AGREEMENT", 1e-4)
    sizes = (3, 4, 3)
    universe = universe_of(sizes)
    measured = NoisyMarginals(sizes, 2000, 3.0, 2)(records(universe, 2000, 12), SeededGenerator(4))
    assert me.fit(universe, measured).weights == pytest.approx(plain_fit(universe, measured), abs=1e-5)
