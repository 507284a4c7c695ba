"""The public model of typical data: closed forms against simulation, predictions that tell sizes apart."""

from itertools import pairwise

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.accounting import gaussian_mu
from dpcvx.solvers import NoisyGradientDescent
from dpcvx.solvers.typical_data import Typical, mean_curvature


def problem(d=20, loss=None, radius=30.0, **settings):
    return dp.Problem(loss or dp.Logistic(), dp.L2Ball(radius), bounds=dp.Bounds(1.0, 1.0), d=d, **settings)


def test_one_direction_in_closed_form():
    typical = Typical(np.array([0.5]), np.array([1.0]), 4.0)
    assert typical.at_zero == pytest.approx(1.0)
    bias, _ = typical.descent(np.array([2.0]), 0.1)  # a path of 2.4, averaged from 1.6 on
    assert bias[0] == pytest.approx((np.exp(-0.8) - np.exp(-1.2)) ** 2 / 0.4**2)
    bias, noise = typical.perturbed(np.array([0.5]), np.array([0.2]))
    assert bias[0] == pytest.approx(0.5 * 0.5 * 4 / 4)
    assert noise[0] == pytest.approx(0.5 * 0.5 * 0.04)


@pytest.mark.parametrize("h", [1e-3, 0.3, 5.0])
def test_descent_on_a_quadratic_is_what_the_model_says(h):
    rng = np.random.default_rng(0)
    H, T, shift = 6.0, 600, 0.05
    theta, late = np.zeros(20000), np.zeros(20000)
    step, sigma = 6 / 5 * H / T, shift * np.sqrt(T)
    for t in range(T):
        theta -= step * (h * (theta - 1.0) + sigma * rng.standard_normal(theta.size))
        late += (theta if t >= 400 else 0.0) / 200
    bias, noise = Typical(np.array([h]), np.array([1.0]), 1.0).descent(np.array([H]), shift)
    assert h / 2 * (late.mean() - 1) ** 2 == pytest.approx(bias[0], rel=0.05, abs=1e-4)
    assert h / 2 * late.var() == pytest.approx(noise[0], rel=0.05)


def test_noise_without_curvature_is_that_of_a_mean_of_late_points():
    _, noise = Typical(np.array([1e-9]), np.array([1.0]), 1.0).descent(np.array([1.0]), 0.1)
    # Of a path of length 6/5 the mean of the last third has the variance 2/3 + 1/9 of its end.
    assert noise[0] == pytest.approx(1e-9 / 2 * 0.01 * (6 / 5) ** 2 * 7 / 9, rel=1e-3)


@pytest.mark.parametrize("loss", [dp.Logistic(), dp.Squared(), dp.Huber(0.3), dp.SmoothHinge(0.5)], ids=type)
@pytest.mark.parametrize("d", [1, 2, 20, 50_000])
def test_rows_are_as_long_as_their_bound_and_every_direction_counts_once(d, loss):
    typical = Typical.of(problem(d, loss), clip=1.0)
    assert typical.counts.sum() == pytest.approx(d)
    largest = loss.smoothness(30.0)
    assert 0 < typical.counts @ typical.curvatures <= largest * (1 + 1e-9)
    assert (typical.curvatures > 0).all()


@pytest.mark.parametrize("loss", [dp.Logistic(), dp.Huber(0.3)], ids=type)
def test_scores_vary_as_those_of_useful_models_and_flat_directions_have_larger_coefficients(loss):
    typical = Typical.of(problem(20, loss), clip=0.3)
    variance = typical.counts @ (typical.curvatures * typical.signal) / mean_curvature(problem(20, loss), 0.3)
    assert variance == pytest.approx(4.0 if isinstance(loss, dp.Logistic) else 0.5 * (0.4 * 0.3) ** 2)
    for h, signal in zip(*(np.split(part, 2) for part in (typical.curvatures, typical.signal)), strict=True):
        np.testing.assert_allclose(signal[1:] / signal[:-1], (h[:-1] / h[1:]) ** 0.125)


def test_rows_are_usually_shorter_than_the_longest_of_few_features():
    for d in (1, 4, 100):
        lengths = (
            Typical.of(problem(d)).counts @ Typical.of(problem(d)).curvatures / mean_curvature(problem(d))
        )
        assert lengths == pytest.approx(1 / (1 + d**-0.5) ** 2)


def test_descent_goes_as_far_as_suits_typical_data_where_rows_have_a_length():
    budget, clip = dp.Budget(1.0, 1e-8), 0.6
    declared = problem(20)
    shift = 2 * clip / (5000 * gaussian_mu(1.0, 1e-8))
    solver = NoisyGradientDescent(clip=clip)
    reached = solver._reached(declared, 5000, budget)
    risks = sum(Typical.of(declared, clip).descent(reached * np.array([0.8, 1.0, 1.25]), shift))
    assert risks[1] < min(risks[0], risks[2])
    # With bounds of columns alone rows may have any length: the bound decides, which goes less far.
    by_columns = dp.Problem(dp.Logistic(), dp.L2Ball(30.0), bounds=dp.Bounds(0.5), d=4)
    rows = dp.Problem(dp.Logistic(), dp.L2Ball(30.0), bounds=dp.Bounds(0.5, 1.0), d=4)
    assert solver._reached(by_columns, 5000, budget) < solver._reached(rows, 5000, budget) / 1.2


def test_the_ridge_bends_every_direction():
    plain, ridged = Typical.of(problem()), Typical.of(problem(l2=0.3))
    np.testing.assert_allclose(ridged.curvatures - plain.curvatures, 0.3)


def test_predictions_fall_with_records_and_with_epsilon():
    solver = NoisyGradientDescent()
    predicted = [
        sum(solver.predict(problem(), n, dp.Budget(epsilon, 1e-8)))
        for n, epsilon in ((500, 0.1), (500, 1.0), (5000, 1.0), (50_000, 1.0), (50_000, 4.0))
    ]
    assert all(later < earlier / 1.5 for earlier, later in pairwise(predicted))
    assert predicted[0] > 0.5 * Typical.of(problem()).at_zero


def test_a_small_set_keeps_its_bound():
    budget, solver = dp.Budget(1.0, 1e-8), NoisyGradientDescent()
    assert sum(solver.predict(problem(radius=0.01), 50_000, budget)) < 1e-3


def test_words_say_what_the_prediction_is_for():
    round_set = dp.plan(problem(), 5000, dp.Budget(1.0, 1e-8))
    assert "public synthetic problems" in round_set.explain()
    assert "the same answer" not in round_set.explain()
    assert "the same answer" in dp.plan(problem(), 50, dp.Budget(0.1, 1e-6)).explain()
    other = dp.Problem(dp.Quantile(0.5), dp.L1Ball(3.0), bounds=dp.Bounds(1.0), d=20)
    assert not other.is_round
    assert "worst data" in dp.plan(other, 5000, dp.Budget(1.0, 1e-8)).explain()
