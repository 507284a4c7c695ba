"""The graphical models of the benchmark against sums over all cells."""

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from aim import aim, mst
from graphical_model import Measured, Model, Tree, count_cells, fit

SIZES = [3, 4, 2, 5, 3, 2]
TABLES = [(0, 1), (1, 2), (2, 3), (0, 3), (3, 4)]  # a cycle, a branch, and an attribute by itself


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    potentials = {table: rng.normal(size=[SIZES[j] for j in table]) for table in TABLES}
    return Model(Tree(SIZES, TABLES), potentials)


@pytest.fixture(scope="module")
def joint(model):
    found = np.zeros(SIZES)
    for table, potential in model.potentials.items():
        found = found + potential.reshape([SIZES[j] if j in table else 1 for j in range(len(SIZES))])
    found = np.exp(found)
    return found / found.sum()


def summed(joint, places):
    return joint.sum(axis=tuple(j for j in range(joint.ndim) if j not in places))


def test_tables_are_sums_over_all_cells(model, joint):
    for order in (1, 2, 3, 4):
        for places in itertools.combinations(range(len(SIZES)), order):
            np.testing.assert_allclose(model.table(places), summed(joint, places), atol=1e-12)
    np.testing.assert_allclose(model.table((4, 1)), summed(joint, (1, 4)).T, atol=1e-12)
    for places, shares in model.pairs().items():
        np.testing.assert_allclose(shares, summed(joint, places), atol=1e-12)


def test_records_follow_the_model(model, joint):
    codes = model.draw(100_000, np.random.default_rng(1))
    for places in itertools.combinations(range(len(SIZES)), 2):
        shape = [SIZES[j] for j in places]
        counts = np.bincount(np.ravel_multi_index(codes[:, places].T, shape), minlength=np.prod(shape))
        assert np.abs(counts / len(codes) - summed(joint, places).ravel()).max() < 0.007


def test_a_fit_finds_the_tables_that_were_measured(model):
    measured = Measured()
    for table in TABLES:
        measured.add(table, 999 * model.table(table), 2.0)
        measured.add(table, 1002 * model.table(table), 1.0)
    assert measured.total() == pytest.approx((999 / 4 + 1002) / 1.25)
    found = fit(SIZES, measured, iterations=2000)
    for table in TABLES:
        assert np.abs(found.table(table) - model.table(table)).max() < 1e-3


def test_aim_finds_dependences_with_almost_no_noise(model):
    codes = model.draw(20_000, np.random.default_rng(2)).astype(int)
    found = aim(
        codes,
        SIZES,
        100.0,
        np.random.default_rng(3),
        order=2,
        cells=2000,
        iterations=30,
        last=300,
        report=lambda _: None,
    )
    for places in itertools.combinations(range(len(SIZES)), 2):
        shape = [SIZES[j] for j in places]
        exact = np.bincount(np.ravel_multi_index(codes[:, places].T, shape), minlength=np.prod(shape))
        assert np.abs(found.table(places).ravel() - exact / len(codes)).max() < 0.01
    assert count_cells(SIZES, [*found.potentials]) <= 2000


def test_mst_measures_a_spanning_tree(model):
    codes = model.draw(20_000, np.random.default_rng(2)).astype(int)
    found = mst(codes, SIZES, 100.0, np.random.default_rng(3), iterations=300)
    pairs = [table for table in found.potentials if len(table) == 2]
    assert len(pairs) == len(SIZES) - 1
    assert {j for pair in pairs for j in pair} == set(range(len(SIZES)))
    for places in (*pairs, *((j,) for j in range(len(SIZES)))):
        shape = [SIZES[j] for j in places]
        exact = np.bincount(np.ravel_multi_index(codes[:, places].T, shape), minlength=np.prod(shape))
        assert np.abs(found.table(places).ravel() - exact / len(codes)).max() < 0.01
