"""Records that are shrunk as a whole: bounded like rows, weighted in the loss, and without bias."""

import itertools
import math

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.accounting import Tight
from dpcvx.audit.replay import discrepancies, record, replay
from dpcvx.data import Quantiser, integer_bounds
from dpcvx.data.quantise import remap
from dpcvx.data.rows import Records
from dpcvx.errors import WrongValue
from dpcvx.losses import Logistic, WeightedLogistic
from dpcvx.noise import SeededGenerator
from dpcvx.solvers import NoisyGradientDescent, Standardised
from dpcvx.solvers.one_step import with_uncertainty

RNG = np.random.default_rng(0)
ROWS = Quantiser(dp.Bounds(1.0)).quantise(RNG.uniform(-1, 1, (200, 3)))
SHRUNK = dp.Bounds(1.0, 1.0)


def mapped(shrink, y):
    return remap(Records(ROWS, y), Quantiser(SHRUNK, 0.0, 1.0, 0.4, shrink=shrink), 0.0, 1.0)


@pytest.mark.parametrize("shrink", ["numbers", "labels"])
def test_row_intercept_and_target_have_one_factor_and_rows_keep_their_bounds(shrink):
    y = RNG.choice([-1.0, 1.0], (1, 200)) if shrink == "labels" else RNG.uniform(-1, 1, (1, 200))
    found = mapped(shrink, y)
    whole = ROWS.values * 2.0**-14
    factors = np.minimum(1.0, math.sqrt(1 - 0.4**2) / np.sqrt((whole**2).sum(axis=1)))
    assert 0.2 < np.mean(factors < 1) < 0.95
    stored = found.rows.values * 2.0**-14
    np.testing.assert_allclose(stored[:, :3], whole * factors[:, None], atol=2e-4)
    np.testing.assert_allclose(stored[:, 3], 0.4 * factors, atol=2e-4)
    power = 1 if shrink == "numbers" else -1
    np.testing.assert_allclose(found.y[0], y[0] * factors**power, rtol=1e-3)
    k_inf, k2 = integer_bounds(SHRUNK, 4)
    squares = (found.rows.values.astype(np.int64) ** 2).sum(axis=1)
    assert squares.max() <= k2
    assert abs(found.rows.values).max() <= k_inf


@pytest.mark.parametrize("shrink", ["numbers", "labels"])
def test_no_row_is_longer_than_its_bound_by_a_step_of_its_intercept(shrink):
    # A row of one feature comes nearer to its bound than twice an intercept of 0.6 2^14 steps.
    rows = Quantiser(dp.Bounds(1.0)).quantise(np.linspace(-1, 1, 4001)[:, None])
    quantiser = Quantiser(SHRUNK, 0.0, 1.0, 0.6, shrink=shrink)
    found = remap(Records(rows, np.ones((1, 4001))), quantiser, 0.0, 1.0)
    squares = (found.rows.values.astype(np.int64) ** 2).sum(axis=1)
    assert integer_bounds(SHRUNK, 2)[1] - 13_500 < squares.max() <= integer_bounds(SHRUNK, 2)[1]


def test_weights_and_missing_targets_stay_and_wrong_names_are_refused():
    y = np.vstack([np.full(200, np.nan), np.full(200, 7.0)])
    quantiser = Quantiser(SHRUNK, 0.0, 1.0, 0.4, shrink="numbers")
    found = remap(Records(ROWS, y, weighted=True), quantiser, 0.0, 1.0)
    assert np.isnan(found.y[0]).all()
    assert (found.y[1] == 7.0).all()
    for bounds, shrink in ((SHRUNK, "record"), (dp.Bounds(1.0), "numbers"), (dp.Bounds(0.5, 1.0), "labels")):
        with pytest.raises(WrongValue, match="shrink must be one of"):
            Quantiser(bounds, shrink=shrink)


def test_the_weighted_loss_is_the_square_of_the_factor_times_logistic_loss():
    z, y, f = RNG.normal(size=500), RNG.choice([-1.0, 1.0], 500), RNG.uniform(0.05, 1, 500)
    loss, plain = WeightedLogistic(), Logistic()
    np.testing.assert_allclose(loss.value(f * z, y / f), f**2 * plain.value(z, y), rtol=1e-12)
    np.testing.assert_allclose(loss.grad(f * z, y / f), f * plain.grad(z, y), rtol=1e-12)
    slopes = [loss.slope(a * b, c / b, 0.0) for a, b, c in zip(z, f, y, strict=True)]
    np.testing.assert_allclose(slopes, loss.grad(f * z, y / f), rtol=1e-9)
    for label in (0.0, 0.5, -0.99):
        assert loss.slope(3.0, label, 0.0) == loss.grad(np.array([3.0]), np.array([label]))[0] == 0
    # Slope and curvature have the bounds of single labels whatever the factor is.
    for label, limit in itertools.product([1, -1, 1.5, -4, 30.0], [0.1, 1.0, 8.0]):
        points = np.linspace(-limit, limit, 2001)
        found = loss.grad(points, np.full(2001, float(label)))
        assert abs(found).max() <= loss.lipschitz(limit) + 1e-12
        assert abs(np.diff(found) / np.diff(points)).max() <= loss.smoothness(limit) + 1e-9


@pytest.mark.long
@pytest.mark.parametrize("loss", [dp.Squared(), dp.Logistic()], ids=repr)
def test_a_neighbour_reaches_nothing_but_the_sums(loss):
    p = dp.Problem(loss, dp.L2Ball(3.0), bounds=dp.Bounds(1.0), d=3)
    solver = with_uncertainty(Standardised(NoisyGradientDescent(n_iter=4)), 0.3, loss)
    assert solver.shrink == ("numbers" if loss.affine else "labels")
    plan = solver.plan(p, 80, dp.Budget(2.0, 1e-6), Tight())
    X, y = RNG.uniform(-1, 1, (80, 3)) ** 3, RNG.choice([-1.0, 1.0], 80)
    first = record(plan, dp.source(X, y, bounds=p.bounds), SeededGenerator(0))
    hostile = [([1e30, -1e30, np.nan], 0.0), ([-1, -1, -1], -y[0]), ([0, 0, 0], np.nan), ([1, 1, 1], 1e9)]
    for row, target in hostile:
        other_X, other_y = X.copy(), y.copy()
        other_X[0], other_y[0] = row, target
        second = replay(plan, dp.source(other_X, other_y, bounds=p.bounds), SeededGenerator(1), first)
        assert discrepancies(plan, first, second) == []


@pytest.mark.long
@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_far_records_do_not_bias_coefficients_of_skewed_features(kind):
    """Rows that were shrunk alone moved these coefficients by ten standard errors and more."""
    n = 40_000
    X = np.random.default_rng(1).gamma(0.5, size=(n, 2)) * 2
    z = X @ [0.5, -0.4]
    settings = {"epsilon": 100.0, "bounds": (0, 40), "uncertainty": 0.2, "random_state": 0}
    noise = np.random.default_rng(2)
    if kind == "linear":
        model = dp.PrivateLinearRegression(y_bounds=(-20, 20), **settings).fit(X, z + noise.normal(size=n))
    else:
        labels = (noise.uniform(size=n) < 1 / (1 + np.exp(-z))).astype(int)
        model = dp.PrivateLogisticRegression(classes=(0, 1), **settings).fit(X, labels)
    assert (abs(model.coef_debiased_ - [0.5, -0.4]) < 3.5 * model.coef_std_).all()
