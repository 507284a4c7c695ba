"""Additive fits: rows are mapped alone and stay within their bounds, and a replay on neighbours agrees."""

import dataclasses

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.accounting import Tight
from dpcvx.audit import discrepancies, record, replay
from dpcvx.data import AdditiveBasis, Quantiser, kernels
from dpcvx.data.lattice import FEATURE_BITS, integer_bounds
from dpcvx.noise import SeededGenerator
from dpcvx.solvers import NoisyGradientDescent, Standardised

BASIS = AdditiveBasis(3, (0, 1), (-2.0, -1.0, 0.0, 1.0, 2.0), 0.7, ((0, 1), (1, 2)), 0.5, 3.0)
BOUNDS = dp.Bounds(1.0)


def hostile(n=40, d=3, seed=0):
    """Cells at the ends of their bounds, in the middle and beyond."""
    rng = np.random.default_rng(seed)
    return rng.choice([-1e9, -1.0, -0.3, 0.0, 1e-9, 0.4, 1.0, np.inf, np.nan], (n, d))


def plan_of(n, basis=BASIS, loss=None):
    problem = dp.Problem(loss or dp.Logistic(), dp.L2Ball(10.0), bounds=BOUNDS, d=basis.d)
    solver = Standardised(NoisyGradientDescent(n_iter=3), basis=basis)
    return solver.plan(problem, n, dp.Budget(4.0, 1e-5), Tight())


def test_the_norm_of_features_is_bounded_and_the_bound_is_met():
    u = np.array(np.meshgrid(*[[-9.0, -3.0, -2.0, -0.4, 0.0, 1.3, 3.0, 9.0]] * 3)).reshape(3, -1).T
    norms = np.linalg.norm(BASIS(u), axis=1)
    assert norms.max() <= BASIS.largest_norm(BASIS.d) * (1 + 1e-12)
    assert norms.max() > 0.99 * BASIS.largest_norm(BASIS.d)
    assert abs(BASIS(u)).max() <= BASIS.largest


def test_a_row_is_mapped_alone_and_stored_within_its_bounds():
    rows = dp.source(hostile(), bounds=BOUNDS)
    bounds = dp.Bounds(1.0, BASIS.largest_norm(BASIS.d) / BASIS.largest)
    quantiser = Quantiser(bounds, np.array([0.2, -0.1, 0.0]), np.array([0.01, 0.5, 0.3]), basis=BASIS)
    whole = rows.mapped(quantiser, 0.0, 1.0).records().whole_rows().values
    k_inf, k2 = integer_bounds(bounds, BASIS.width)
    assert whole.shape == (40, BASIS.width)
    assert abs(whole.astype(int)).max() <= k_inf
    assert (whole.astype(np.int64) ** 2).sum(axis=1).max() <= k2
    for i in (0, 7, 39):
        alone = dp.source(hostile()[i : i + 1], bounds=BOUNDS).mapped(quantiser, 0.0, 1.0)
        np.testing.assert_array_equal(alone.records().whole_rows().values[0], whole[i])


@pytest.mark.parametrize("loss", [dp.Logistic(), dp.Squared()])
def test_sums_of_neighbours_differ_by_the_sensitivity_at_most(loss):
    for seed in range(12):
        X, plan = hostile(seed=seed), plan_of(40, loss=loss)
        y = np.random.default_rng(seed).choice([-1.0, 1.0], 40)
        other, again = X.copy(), y.copy()
        other[seed], again[seed] = hostile(seed=seed + 99)[0], -y[seed]
        first = record(plan, dp.source(X, y, bounds=BOUNDS), SeededGenerator(seed))
        second = replay(plan, dp.source(other, again, bounds=BOUNDS), SeededGenerator(seed + 1), first)
        assert not discrepancies(plan, first, second)


@pytest.mark.parametrize("long", [False, True])
def test_ramps_that_follow_the_tail_of_the_target_follow_released_answers_alone(long):
    """A neighbour whose target is at the other end: same maps, and sums within their sensitivity."""
    rng, n = np.random.default_rng(0), 3000
    X = rng.uniform(-1, 1, (n, 3))
    y = 0.01 * rng.exponential(size=n) ** 3 if long else 0.25 * rng.normal(size=n)
    problem = dp.Problem(dp.Squared(), dp.L2Ball(10.0), bounds=BOUNDS, d=3)
    solver = Standardised(NoisyGradientDescent(n_iter=3), basis=BASIS, residual=1.0, straight=2.0)
    plan = solver.plan(problem, n, dp.Budget(4.0, 1e-6), Tight())
    other, again = X.copy(), y.copy()
    other[0], again[0] = np.inf, -1.0
    first = record(plan, dp.source(X, y, bounds=BOUNDS), SeededGenerator(1))
    second = replay(plan, dp.source(other, again, bounds=BOUNDS), SeededGenerator(2), first)
    assert not discrepancies(plan, first, second)
    released = dp.execute(plan, dp.source(X, y, bounds=BOUNDS), rng=SeededGenerator(1))
    assert released.region.basis.flat == ((0, 1) if long else ())


@pytest.mark.parametrize("share", [0, 8192])
def test_levels_beside_ramps_keep_the_sensitivity(share):
    """Two features of levels, a number with ramps, and products; rows whose level is unknown among them."""
    basis = dataclasses.replace(BASIS, numbers=(2,))
    problem = dp.Problem(dp.Logistic(), dp.L2Ball(10.0), bounds=BOUNDS, d=3)
    solver = Standardised(NoisyGradientDescent(n_iter=3), basis=basis, levels=((0, 2, share),))
    plan = solver.plan(problem, 40, dp.Budget(4.0, 1e-5), Tight())
    for seed in range(12):
        X = hostile(seed=seed)
        unknown = share * 2.0**-FEATURE_BITS
        X[:, :2] = np.random.default_rng(seed).choice([0.0, 1.0, unknown], (40, 2))
        y = np.random.default_rng(seed).choice([-1.0, 1.0], 40)
        other, again = X.copy(), y.copy()
        other[seed], again[seed] = [unknown, 1.0, hostile(seed=seed + 99)[0, 2]], -y[seed]
        first = record(plan, dp.source(X, y, bounds=BOUNDS), SeededGenerator(seed))
        second = replay(plan, dp.source(other, again, bounds=BOUNDS), SeededGenerator(seed + 1), first)
        assert not discrepancies(plan, first, second)


@pytest.mark.parametrize(("x_2", "intercept"), [(None, 0.0), (1.5, 0.0), (2.0, 0.25)])
def test_the_kernel_computes_the_features_of_the_basis(x_2, intercept):
    rng = np.random.default_rng(0)
    basis = dataclasses.replace(BASIS, numbers=(0, 1, 2), flat=(1,))
    X, center, scale = hostile(), rng.normal(size=3), rng.uniform(0.2, 2.0, 3)
    bounds = dp.Bounds(1.0, x_2)
    found = Quantiser(bounds, center, scale, intercept, basis=basis).quantise(X)
    features = basis((np.where(np.isfinite(X), X, np.nan) - center) / scale)
    expected = Quantiser(bounds, 0.0, basis.largest, intercept).quantise(features)
    assert (found.values == expected.values).all()
    assert abs(found.values).max() > 2000


def test_a_basis_that_looks_at_other_rows_is_caught(monkeypatch):
    honest = kernels.quantise_additive

    def leaning(block, *rest):
        honest(block if block[3, 0] > 0 else -block, *rest)

    monkeypatch.setattr(kernels, "quantise_additive", leaning)
    X, plan = hostile(), plan_of(40)
    y = np.where(np.arange(40) % 2, 1.0, -1.0)
    other = X.copy()
    X[3], other[3] = [-1.0, 0.0, 0.0], [1.0, 0.0, 0.0]
    first = record(plan, dp.source(X, y, bounds=BOUNDS), SeededGenerator(0))
    second = replay(plan, dp.source(other, y, bounds=BOUNDS), SeededGenerator(1), first)
    assert discrepancies(plan, first, second)


@pytest.mark.long
def test_the_plan_is_the_same_for_any_records_and_charges_no_more_than_a_linear_one():
    rng = np.random.default_rng(0)
    facts = {
        "epsilon": 4.0,
        "delta": 1e-6,
        "bounds": (-1, 1),
        "classes": (0, 1),
        "random_state": 0,
        "check": 0,
    }
    model = dp.PrivateAdditiveClassifier(**facts, knots=5)
    plans = [
        model.fit(X, rng.integers(0, 2, 300)).plan_ for X in (hostile(300), rng.uniform(-1, 1, (300, 3)))
    ]
    assert plans[0] == plans[1]
    linear = dp.PrivateLogisticRegression(**facts, standardize=True).plan(300, 3)
    measures = [stage.mechanism.event for stage in plans[0].stages[:3]]
    assert measures == [stage.mechanism.event for stage in linear.stages[:3]]


def test_knots_cannot_come_from_the_records():
    with pytest.raises(ValueError, match="0 must be one"):
        dataclasses.replace(BASIS, knots=(-1.0, 1.0))
