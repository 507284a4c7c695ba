"""Records that are shrunk as a whole: bounded like rows, weighted in the loss, and without bias."""

import itertools
import math

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.accounting import Tight, gaussian_epsilon, spendable
from dpcvx.audit.replay import discrepancies, record, replay
from dpcvx.data import CurvatureBound, CurvatureSum, GradientSum, Quantiser, ResidualBound, integer_bounds
from dpcvx.data.goodness import GoodnessSum, LogLosses
from dpcvx.data.quantise import remap
from dpcvx.data.rows import Dense, Records
from dpcvx.errors import WrongValue
from dpcvx.losses import BoundedInfluence, BoundedLogistic, Huber, Logistic
from dpcvx.mechanisms import NoisyGradient
from dpcvx.noise import SeededGenerator
from dpcvx.solvers import NoisyGradientDescent, Standardised
from dpcvx.solvers.one_step import largest_pull, with_uncertainty

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


def test_the_gradient_of_a_divided_row_is_that_of_the_whole_row_clipped():
    """A row of norm 1 with the label f y has the gradient of logistic loss of the row times f, clipped."""
    z, y, f = 3 * RNG.normal(size=500), RNG.choice([-1.0, 1.0], 500), RNG.uniform(1, 20, 500)
    loss, plain = BoundedLogistic(1.5), Logistic()
    found, whole = loss.grad(z / f, f * y), f * plain.grad(z, y)
    assert 0.1 < np.mean(abs(whole) > 1.5) < 0.9
    np.testing.assert_allclose(found, np.clip(whole, -1.5, 1.5), rtol=1e-12)
    slopes = [loss.slope(a / b, b * c, 1.5) for a, b, c in zip(z, f, y, strict=True)]
    np.testing.assert_allclose(slopes, found, rtol=1e-9)
    # Where nothing is clipped the loss is that of the whole row.
    np.testing.assert_allclose(BoundedLogistic(50.0).value(z / f, f * y), plain.value(z, y), rtol=1e-12)
    for label in (0.0, 0.5, -0.99):
        assert loss.slope(3.0, label, 1.5) == loss.grad(np.array([3.0]), np.array([label]))[0] == 0


@pytest.mark.parametrize("label", [1.0, -1.0, 1.5, -4.0, 64.0])
def test_clipped_logistic_gradients_are_those_of_a_convex_loss(label):
    loss, z = BoundedLogistic(1.5, curvature_limit=2.0), np.linspace(-4, 4, 80_001)
    y = np.full(len(z), label)
    slopes = loss.grad(z, y)
    assert (np.diff(slopes) >= 0).all()
    assert abs(slopes).max() <= loss.lipschitz(4.0) == 1.5
    assert np.diff(slopes).max() / (z[1] - z[0]) <= loss.smoothness(4.0)
    middle = (slopes[1:] + slopes[:-1]) / 2
    np.testing.assert_allclose(np.diff(loss.value(z, y)), middle * (z[1] - z[0]), atol=1e-6)
    assert loss.largest_curvature(4.0) == 2.0
    assert loss.clipped(0.3).threshold == 0.3


def test_the_limit_of_gradients_of_labels_follows_from_public_numbers():
    """The test vector of docs/privacy_math.md: n mu = 3600 gives c = 1.5, and the sensitivity on integers."""
    delta = 1e-6
    epsilon = gaussian_epsilon(0.1, spendable(dp.Budget(1.0, delta)).delta)
    budget = dp.Budget(epsilon, delta)
    assert largest_pull(36_000, budget) == pytest.approx(1.5, rel=1e-9)
    # Of persons with three rows that count, mu of a row is a third.
    assert largest_pull(108_000, dp.Budget(epsilon, delta, unit="person", rows=3)) == pytest.approx(1.5)
    assert [largest_pull(n, budget) for n in (1, 16_000, 64_000, 10**9)] == pytest.approx([1, 1, 2, 2])
    assert largest_pull(10**9, dp.Budget(1.0, 0.0)) == 1
    problem = dp.Problem(BoundedLogistic(1.5), dp.L2Ball(30.0), bounds=SHRUNK, d=4)
    (noise,) = NoisyGradient(problem, 36_000, 1.0).gaussians
    assert noise.sensitivity == 51_539_607_553


def test_lengths_are_packed_with_targets_without_loss():
    norms = np.concatenate([[0.0, 1e-9, 0.25, 1.0, 64.0, 1e9], RNG.uniform(0, 70, 500)])
    f = BoundedInfluence.lengths(norms)
    assert f.min() == 0.25
    assert f.max() == 64
    within = (norms >= 0.25) & (norms <= 64)
    assert ((f >= norms) & (f < norms + 1 / 16))[within].all()
    targets = RNG.normal(size=506) * 100
    found = BoundedInfluence.unpack(BoundedInfluence.pack(targets, f))
    np.testing.assert_allclose(found[0], targets, atol=2.0**-30)
    assert (found[1] == f).all()
    # A target that is too far is clipped, and does not reach the code.
    far = BoundedInfluence.unpack(BoundedInfluence.pack(np.array([1e12, -1e12]), np.array([2.0, 0.25])))
    assert (far[0] == [1024, -1024]).all()
    assert (far[1] == [2.0, 0.25]).all()
    assert np.isnan(BoundedInfluence.pack(np.array([np.nan]), np.array([1.0]))).all()


def test_gradients_are_those_of_least_squares_clipped_to_a_norm():
    """The stored row has norm 1, so that the clipped slope is the norm of the clipped gradient."""
    y = RNG.normal(size=(1, 200)) * 2
    scale = 0.9  # rows of 0.25 to 2 lengths
    found = remap(Records(ROWS, y), Quantiser(SHRUNK, 0.0, scale, 0.25, shrink="gradient"), 0.0, 1.0)
    whole = np.column_stack([ROWS.values * 2.0**-14 / scale, np.full(200, 0.25)])
    norms = np.sqrt((whole**2).sum(axis=1))
    assert 0.2 < np.mean(norms > 1) < 0.9
    theta, loss = np.array([0.3, -0.5, 0.2, 1.0]), BoundedInfluence(1.5)
    rows = found.rows.values * 2.0**-14
    gradients = rows * loss.grad(rows @ theta, found.y[0])[:, None]
    plain = whole * (whole @ theta - y[0])[:, None]
    lengths = np.sqrt((plain**2).sum(axis=1))
    assert 0.1 < np.mean(lengths > 1.5) < 0.9
    expected = plain * np.minimum(1.0, 1.5 / lengths)[:, None]
    # The grid of lengths leaves rows up to a sixteenth of a unit short of norm 1.
    short = 1 / 16 / np.maximum(norms, 0.25)
    assert (abs(gradients - expected).max(axis=1) <= 2e-3 + 1.5 * short * (lengths > 1.4)).all()
    _, k2 = integer_bounds(SHRUNK, 4)
    squares = (found.rows.values.astype(np.int64) ** 2).sum(axis=1)
    assert 0.5 * k2 < squares.max() <= k2
    slopes = [loss.slope(z, t, 1.5) for z, t in zip(rows @ theta, found.y[0], strict=True)]
    np.testing.assert_allclose(slopes, loss.grad(rows @ theta, found.y[0]), atol=1e-9)


def test_the_loss_is_convex_bounded_and_that_of_huber_without_a_code():
    loss, z = BoundedInfluence(0.8, curvature_limit=3.0), np.linspace(-4, 4, 4001)
    for f, t in itertools.product([0.25, 1.0, 2.5, 64.0], [-1.0, 0.0, 3.0]):
        y = np.full(4001, BoundedInfluence.pack(np.array(t), np.array(f)))
        slopes = loss.grad(z, y)
        assert (np.diff(slopes) >= 0).all()
        assert abs(slopes).max() <= loss.lipschitz(4.0) == 0.8
        assert np.diff(slopes).max() / (z[1] - z[0]) <= loss.smoothness(4.0) + 1e-6
        middle = (slopes[1:] + slopes[:-1]) / 2
        risen = np.diff(loss.value(z, y))
        np.testing.assert_allclose(risen, middle * (z[1] - z[0]), atol=2e-3)
    y = RNG.normal(size=4001)
    np.testing.assert_allclose(loss.value(z, y), Huber(0.8).value(z, y), atol=1e-12)
    assert loss.largest_curvature(4.0) == 3.0
    assert loss.clipped(0.3).threshold == 0.3


@pytest.mark.parametrize("limit", [1.0, 2.5, 9.0])
@pytest.mark.parametrize("shrink", ["gradient", "labels"])
def test_no_record_moves_a_sum_by_more_than_its_bound(limit, shrink):
    """Brute force over hostile rows and targets: gradient R sqrt(K2), Hessian Omega K2, meat S K2."""
    values = [-(2**14), -5, 0, 1, 2**14]
    rows = np.array(list(itertools.product(values, repeat=3)), dtype=np.int16)
    hostile = [1e300, -1e300, 0.0, 0.7, -3.0, np.nan, 4096.0 * 40]
    targets = np.resize(hostile if shrink == "gradient" else [1.0, -1.0, 0.0], len(rows))[None]
    quantiser = Quantiser(SHRUNK, 0.0, 0.05, 0.25, shrink=shrink)
    found = remap(Records(Dense(rows), targets), quantiser, 0.0, 1.0)
    _, k2 = integer_bounds(SHRUNK, 4)
    kind = BoundedInfluence if shrink == "gradient" else BoundedLogistic
    loss, theta = kind(1.5, curvature_limit=limit), np.array([0.2, -0.1, 0.3, 0.5])
    slope = ResidualBound(math.floor(1.5 * 2**20), math.floor(1.5 * 2**20))
    bend, square = CurvatureBound(math.floor(limit * 2**12), 12), CurvatureBound(math.floor(2.25 * 2**12), 12)
    largest = [0.0, 0.0, 0.0]
    for i in range(len(rows)):
        one = found.part(i, i + 1)
        gradient = GradientSum(loss, theta, slope).of(one)
        totals = CurvatureSum(loss, theta, slope, bend, square).of(one)
        norms = [
            math.sqrt(sum(int(v) ** 2 for v in np.ravel(each)))
            for each in (gradient, totals.moments, totals.meat)
        ]
        bounds = (slope.l2 * math.sqrt(k2), bend.largest * k2, square.largest * k2)
        for k, (norm, bound) in enumerate(zip(norms, bounds, strict=True)):
            assert norm <= bound
            largest[k] = max(largest[k], norm / bound)
    assert min(largest) > 0.5


@pytest.mark.parametrize("shrink", ["row", "numbers", "labels", "gradient"])
def test_a_target_near_the_end_of_floating_point_warns_of_nothing(shrink):
    """Warnings are errors here: one record would end the fit of the others."""
    y = np.resize([1.7e308, -1.7e308, 1.0, np.nan], 200)[None]
    quantiser = Quantiser(SHRUNK, 0.0, 0.05, 0.25, shrink=shrink)
    found = remap(Records(ROWS, y), quantiser, 0.0, 1e-3)
    assert (np.isnan(found.y[0]) == np.isnan(y[0])).all()


@pytest.mark.parametrize("label", [math.inf, -math.inf, 1.7e308, math.nan])
def test_a_label_near_the_end_of_floating_point_stays_within_its_terms(label):
    """An infinite label at the score 0 has no log-loss, and counted as -2^63."""
    records = Records(Dense(np.full((1, 4), 2**14, dtype=np.int16)), np.array([[label]]))
    for theta in (np.zeros(4), np.array([3.0, -2.0, 1.0, 5.0])):
        terms = GoodnessSum(theta, LogLosses(3.0)).of(records)
        assert (terms >= 0).all()
        assert sum(int(each) ** 2 for each in terms) <= LogLosses.longest * 2**36


@pytest.mark.long
@pytest.mark.parametrize("loss", [dp.Squared(), dp.Logistic()], ids=repr)
def test_a_neighbour_reaches_nothing_but_the_sums(loss):
    p = dp.Problem(loss, dp.L2Ball(3.0), bounds=dp.Bounds(1.0), d=3)
    solver = with_uncertainty(Standardised(NoisyGradientDescent(n_iter=4)), 0.3, loss)
    assert solver.shrink == ("gradient" if loss.affine else "labels")
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


@pytest.mark.parametrize(
    "quantiser", [None, Quantiser(SHRUNK, 0.1, 2.0)], ids=["rows as they are", "rows too"]
)
def test_targets_are_centred_and_scaled(quantiser):
    y = np.linspace(-1, 1, 200)[None]
    found = remap(Records(ROWS, y), quantiser, 0.3, 2.0)
    np.testing.assert_allclose(found.y, (y - 0.3) / 2, rtol=1e-15, atol=1e-15)
