"""Second moments: the Hessian's sums by brute force, their sensitivity over neighbours, their noise."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import dpcvx as dp
from adversary import neighbour, records, stored
from dpcvx.accounting import REPLACE_ONE, WEIGHT, Neighbours, Tight
from dpcvx.audit.replay import discrepancies, record, replay, share
from dpcvx.data import CurvatureSum, Records
from dpcvx.data.curvature import CurvatureBound, meat_squared
from dpcvx.data.lattice import RESIDUAL_BITS, ResidualBound, integer_bounds
from dpcvx.data.quantise import Quantiser
from dpcvx.data.rows import Dense
from dpcvx.errors import Incompatible
from dpcvx.events import Compose, Gaussian
from dpcvx.mechanisms import NoisySecondMoments
from dpcvx.noise import SeededGenerator
from dpcvx.solvers import SufficientStatistics

D = 3
BOUNDS = [dp.Bounds(1.0), dp.Bounds(1.0, 1.2), dp.Bounds(0.3)]
LOSSES = [dp.Squared(), dp.Logistic(), dp.Huber(0.5), dp.SmoothHinge()]
named = pytest.mark.parametrize("loss", LOSSES, ids=repr)
SLOPE = ResidualBound(2**RESIDUAL_BITS, 2**RESIDUAL_BITS)


def problem(loss, bounds=BOUNDS[0], d=D):
    return dp.Problem(loss, dp.L2Ball(2.0), bounds=bounds, d=d)


def alone(X, y, loss, bounds, storage, theta, mechanism):
    """Sums of a source of these rows, as the mechanism would ask for them."""
    slope = mechanism._slope(mechanism.problem.margin_bound(theta))
    bend = CurvatureBound(mechanism._largest, mechanism._bits)
    square = mechanism._square(mechanism.problem.margin_bound(theta))
    return stored(X, y, bounds, storage).sum(CurvatureSum(loss, theta, slope, bend, square))[:2]


def squares(matrix):
    return sum(int(entry) ** 2 for entry in matrix.flat)


@named
@pytest.mark.parametrize("storage", ["dense", "csr"])
def test_sums_are_those_of_every_record_alone_and_none_is_longer_than_its_bound(loss, storage):
    rng = np.random.default_rng(0)
    for bounds in BOUNDS:
        mechanism = NoisySecondMoments(problem(loss, bounds), 23, 1.0, 1.0)
        X, y = records(loss, (23, D), 1, rng)
        theta = rng.normal(size=D)
        moments, meat = alone(X, y, loss, bounds, storage, theta, mechanism)
        parts = [
            alone(X[i : i + 1], y[i : i + 1], loss, bounds, storage, theta, mechanism) for i in range(23)
        ]
        assert np.array_equal(moments, sum(part for part, _ in parts))
        assert np.array_equal(meat, sum(part for _, part in parts))
        assert moments.any() or isinstance(loss, dp.SmoothHinge)  # curved between scores 0.5 and 1 only
        _, k2 = integer_bounds(bounds, D)
        slope = mechanism._slope(mechanism.problem.margin_bound(theta))
        square = mechanism._square(mechanism.problem.margin_bound(theta))
        for part, each in parts:
            assert squares(part) <= (mechanism._largest * k2) ** 2
            assert 2 * squares(each) <= meat_squared(square, slope, k2, REPLACE_ONE)


@named
@pytest.mark.parametrize("relation", ["replace", "add_remove"])
@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
def test_no_two_neighbours_are_further_apart_than_the_sensitivity_and_some_nearly_as_far(
    loss, relation, bounds
):
    """All records with features in {-b, 0, b} and extreme targets, against each other or against none."""
    mechanism = NoisySecondMoments(problem(loss, bounds), 10, 1.0, 1.0, Neighbours(relation))
    edge, reached, widest = bounds.x_inf, 0.0, 0.0
    for theta in (np.zeros(D), np.array([0.7, -0.4, 0.0])):
        z_max = mechanism.problem.margin_bound(theta)
        answers = [
            alone(np.array([row]), np.array([y]), loss, bounds, "dense", theta, mechanism)
            for row in itertools.product([-edge, 0.0, edge], repeat=D)
            for y in (-1.0, 1.0)
        ]
        none = (np.zeros((D, D), dtype=np.int64),) * 2
        pairs = itertools.combinations(answers, 2) if relation == "replace" else ((a, none) for a in answers)
        for (one, v), (other, w) in pairs:
            distance, meat = math.sqrt(squares(one - other)), math.sqrt(squares(v - w))
            assert distance <= mechanism.gaussians[0].sensitivity
            assert meat <= mechanism._gaussians(z_max)[1].sensitivity
            reached = max(reached, distance / mechanism.gaussians[0].sensitivity)
            widest = max(widest, meat / mechanism._gaussians(z_max)[1].sensitivity)
    if isinstance(loss, dp.Squared | dp.Logistic):  # curved everywhere, or at theta = 0
        # Corners of a cube are never orthogonal, which two rows need to reach the bound; see below.
        assert reached > (0.9 if bounds.x_2 is None or relation == "add_remove" else 0.65)
    assert widest > 0.2


def test_orthogonal_rows_reach_the_sensitivity():
    bounds = dp.Bounds(1.0, 1.0)
    mechanism = NoisySecondMoments(problem(dp.Squared(), bounds), 10, 1.0)
    one, other = (
        alone(np.eye(D)[j : j + 1], np.zeros(1), dp.Squared(), bounds, "dense", np.zeros(D), mechanism)[0]
        for j in (0, 1)
    )
    distance = math.sqrt(sum(int(entry) ** 2 for entry in (one - other).flat))
    assert 0 <= mechanism.gaussians[0].sensitivity - distance < 2


def test_vector_of_the_formula():
    """PRIVACY_MATH §15: sqrt(2) B^2 for rows of norm B = 1.5, squared loss; beta = 1/4 for logistic."""
    bounds = dp.Bounds(1.0, 1.5)
    squared = NoisySecondMoments(problem(dp.Squared(), bounds), 1000, 3.0, 2.0)
    assert squared.sensitivity == pytest.approx(math.sqrt(2) * 1.5**2 / 1000, rel=1e-6)
    assert squared.noise == pytest.approx(3.0 * squared.sensitivity, rel=1e-9)
    assert squared.event == Compose((Gaussian(3.0), Gaussian(2.0)))
    assert squared.n_draws == 12
    # Largest slope 1 + 2 * 1.5 for |y| <= 1 and radius 2: sqrt(2) L^2 B^2 for the meat.
    assert squared.gaussians[1].change == pytest.approx(math.sqrt(2) * 4.0**2 * 1.5**2 / 1000, rel=1e-3)
    person = replace(squared, neighbours=Neighbours("replace", "person", 1, WEIGHT))
    assert person.gaussians[1].change == pytest.approx(squared.gaussians[1].change, rel=1e-3)
    three = replace(squared, neighbours=Neighbours("replace", "person", 3))
    assert three.gaussians[1].change == pytest.approx(9 * squared.gaussians[1].change, rel=1e-3)
    logistic = NoisySecondMoments(problem(dp.Logistic(), bounds), 1000, 3.0)
    assert logistic.sensitivity == pytest.approx(math.sqrt(2) * 1.5**2 / 4000, rel=1e-6)
    assert logistic.event == Gaussian(3.0)
    half = NoisySecondMoments(problem(dp.Squared(), bounds), 1000, 3.0, None, Neighbours("add_remove"))
    assert half.sensitivity == pytest.approx(1.5**2 / 1000, rel=1e-6)


@named
def test_answers_are_the_hessian_and_the_meat(loss):
    rng = np.random.default_rng(1)
    X, theta = rng.uniform(-1, 1, (400, D)), np.array([0.9, -0.5, 0.2])
    y = rng.choice([-1.0, 1.0], 400) if isinstance(loss, dp.Logistic | dp.SmoothHinge) else X @ theta / 2
    mechanism = NoisySecondMoments(problem(loss), 400, 1e-6, 1e-6)
    answer = mechanism(theta, stored(X, y, BOUNDS[0], "dense"), SeededGenerator(0))
    z, h = X @ theta, 2.0**-6
    bends = (loss.grad(z + h, y) - loss.grad(z - h, y)) / (2 * h)
    np.testing.assert_allclose(answer.hessian, X.T @ (X * bends[:, None]) / 400, atol=3e-4)
    assert np.array_equal(answer.hessian, answer.hessian.T)
    slopes = loss.grad(z, y)
    np.testing.assert_allclose(answer.meat, X.T @ (X * slopes[:, None] ** 2) / 400, atol=3e-4)
    assert np.array_equal(answer.meat, answer.meat.T)


def test_residuals_at_their_bound_keep_their_curvature():
    """Targets at the ends of their range, theta = 0: the slope is as large as it can be, phi'' still 1."""
    X, y = np.eye(D), np.array([1.0, -1.0, 1.0])
    mechanism = NoisySecondMoments(problem(dp.Squared()), 3, 1e-6)
    answer = mechanism(np.zeros(D), stored(X, y, BOUNDS[0], "dense"), SeededGenerator(0))
    np.testing.assert_allclose(answer.hessian, np.eye(D) / 3, atol=1e-4)


def test_noise_has_the_declared_variance_on_and_off_the_diagonal():
    d, calls = 12, 250
    p = problem(dp.Squared(), dp.Bounds(1.0, 1.0), d)
    mechanism = NoisySecondMoments(p, 10, 1.7, 0.9)
    data, rng = stored(np.zeros((10, d)), np.zeros(10), p.bounds, "dense"), SeededGenerator(5)
    answers = [mechanism(np.zeros(d), data, rng) for _ in range(calls)]
    hessians, meats = (np.array([getattr(each, name) for each in answers]) for name in ("hessian", "meat"))
    off, off_meat = (each[:, *np.triu_indices(d, 1)].ravel() for each in (hessians, meats))
    on, on_meat = (each[:, *np.diag_indices(d)].ravel() for each in (hessians, meats))

    def accepted(sample, deviation):
        return 1e-4 < stats.chi2.cdf((sample**2).sum() / deviation**2, sample.size) < 1 - 1e-4

    assert accepted(on, mechanism.noise)
    assert accepted(off, mechanism.noise / math.sqrt(2))
    assert accepted(on_meat, mechanism.meat_noise(np.zeros(d)))
    assert accepted(off_meat, mechanism.meat_noise(np.zeros(d)) / math.sqrt(2))
    for factor in (0.9, 1.1):
        assert not accepted(on, factor * mechanism.noise)
        assert not accepted(off, factor * mechanism.noise / math.sqrt(2))
    assert abs(np.corrcoef(on[:-1], on[1:])[0, 1]) < 5 / math.sqrt(on.size)


@pytest.mark.parametrize("bits", [3, 12])
def test_blocks_do_not_change_the_sums(bits, monkeypatch):
    rng = np.random.default_rng(2)
    rows = Quantiser(BOUNDS[0]).quantise(rng.uniform(-1, 1, (501, 4)))
    y, theta = rng.choice([-1.0, 1.0], (1, 501)), rng.normal(size=4)
    bounds = SLOPE, CurvatureBound(2 ** (bits - 2), bits), CurvatureBound(2**bits, bits)
    whole = CurvatureSum(dp.Logistic(), theta, *bounds).of(Records(rows, y))
    monkeypatch.setattr("dpcvx.data.curvature.CELLS_AT_ONCE", 28)
    parts = CurvatureSum(dp.Logistic(), theta, *bounds).of(Records(rows, y))
    assert np.array_equal(whole[0], parts[0])
    assert np.array_equal(whole[1], parts[1])


def test_products_stay_exact_at_their_largest():
    """Rows at the largest stored integer, the largest curvature: sums equal Python's own."""
    largest = 2**15 - 1
    rows = Dense(np.full((9000, 2), largest, dtype=np.int16))
    bend = CurvatureBound(2**12 - 1, 12)
    moments, *_ = CurvatureSum(dp.Squared(), np.zeros(2), SLOPE, bend).of(Records(rows, np.zeros((1, 9000))))
    assert moments.tolist() == [[9000 * (2**12 - 1) * largest**2] * 2] * 2


def test_many_records_get_fewer_bits_and_always_fit():
    for n in (10, 10**6, 10**8, 10**9):
        mechanism = NoisySecondMoments(problem(dp.Squared()), n, 5.0, 5.0)
        assert mechanism.capacity >= n
        k_inf, _ = integer_bounds(BOUNDS[0], D)
        assert n * mechanism._largest * k_inf**2 + 16 * mechanism.gaussians[0].scale < 2**62
        assert mechanism.sensitivity * n == pytest.approx(math.sqrt(2) * D, rel=1e-3)


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_a_neighbour_changes_the_answers_only_within_their_sensitivity(relation):
    rng = np.random.default_rng(3)
    p = problem(dp.Squared(), dp.Bounds(1.0, 1.2))
    budget = dp.Budget(2.0, 1e-4, relation)
    plan = SufficientStatistics().plan(p, 40, budget, Tight())
    X, y = records(p.loss, (40, D), 1, rng)
    first = record(plan, stored(X, y, p.bounds, "dense"), SeededGenerator(0))
    assert [question.kind for question in first.questions] == ["CurvatureSum", "GradientSum"]
    for _ in range(20):
        other_X, other_y = neighbour(X, y, p.loss, 1, relation, rng)
        second = replay(plan, stored(other_X, other_y, p.bounds, "csr"), SeededGenerator(1), first)
        assert discrepancies(plan, first, second) == []


def test_replay_sees_a_sum_beyond_its_sensitivity():
    p = problem(dp.Squared(), dp.Bounds(1.0, 1.2))
    plan = SufficientStatistics().plan(p, 40, dp.Budget(2.0, 1e-4), Tight())
    y = np.zeros(40)
    first = record(plan, stored(np.zeros((40, D)), y, p.bounds, "dense"), SeededGenerator(0))
    one, two = np.zeros((40, D)), np.zeros((40, D))
    one[0, 0] = two[0, 0] = two[1, 0] = 1.0
    shares = [
        share(
            plan,
            first.questions[0],
            record(plan, stored(X, y, p.bounds, "dense"), SeededGenerator(0)).questions[0],
        )
        for X in (one, two)
    ]
    assert 0.4 < shares[0] < 1
    assert shares[1] == pytest.approx(2 * shares[0])


def test_what_has_no_hessian_of_one_score_is_refused_before_a_record_is_read():
    kink, joint = "density of the target at the kink.*Use Huber", "has 3 scores.*one target at a time"
    for loss, outputs, why in (
        (dp.Quantile(0.5), 1, kink),
        (dp.Sigmoid(), 1, kink),
        (dp.Softmax(), 3, joint),
    ):
        with pytest.raises(Incompatible, match=why):
            NoisySecondMoments(
                dp.Problem(loss, dp.L2Ball(1.0), bounds=BOUNDS[0], d=D, outputs=outputs), 10, 1.0
            )
    with pytest.raises(Incompatible, match="4096"):
        NoisySecondMoments(problem(dp.Squared(), d=5000), 10, 1.0)
