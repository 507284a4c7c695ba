"""Intervals: exact without noise, right on average with it, priced once, only where they were asked for."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest

import dpcvx as dp
from dpcvx.accounting import Tight, gaussian_mu
from dpcvx.audit.replay import discrepancies, record, replay
from dpcvx.errors import Incompatible, NotReleased
from dpcvx.events import count_leaves, from_plain
from dpcvx.mechanisms import NoisyGradient, NoisySecondMoments, PerturbedMinimiser
from dpcvx.noise import SeededGenerator
from dpcvx.plans.logistic_bias import after_step, third_derivative
from dpcvx.plans.uncertainty import Curvature, Steepness, Uncertainty, average, one_step, one_step_across
from dpcvx.solvers import (
    NoisyFrankWolfe,
    NoisyGradientDescent,
    NoisySVRG,
    ObjectivePerturbation,
    OneStep,
    Standardised,
    SufficientStatistics,
)
from dpcvx.solvers.one_step import with_uncertainty

pytestmark = pytest.mark.long

BUDGET = dp.Budget(2.0, 1e-6)
TRUTH = {"linear": np.array([0.3, -0.2, 0.1, 0.05]), "logistic": np.array([2.0, -1.0, 0.5, 0.3])}


def problem(kind, d=4, radius=None):
    loss, size = (dp.Squared(), 3.0) if kind == "linear" else (dp.Logistic(), 30.0)
    return dp.Problem(loss, dp.L2Ball(radius or size), bounds=dp.Bounds(1.0), d=d)


def sample(kind, n, seed):
    """Correlated features and a constant one, with the model that `TRUTH` says."""
    rng = np.random.default_rng(seed)
    common = rng.uniform(-0.5, 0.5, (n, 1))
    X = np.column_stack([common + rng.uniform(-0.5, 0.5, (n, 3)), np.ones(n)])
    z = X @ TRUTH[kind]
    if kind == "linear":
        return X, z + rng.uniform(-0.2, 0.2, n)
    return X, np.where(rng.uniform(size=n) < 1 / (1 + np.exp(-z)), 1.0, -1.0)


def released(kind, plan, seed):
    X, y = sample(kind, plan.n, seed)
    return dp.execute(plan, dp.source(X, y, bounds=plan.problem.bounds), rng=SeededGenerator(seed))


def errors(kind, plan, seeds, truth=None):
    """Errors of the estimate in units of its standard error, (seeds, d)."""
    known = [released(kind, plan, seed).uncertainty for seed in range(seeds)]
    assert not any(each.weak for each in known)
    return np.array(
        [(each.estimate - TRUTH[kind]) / np.sqrt(np.diag(each.covariance)) for each in known]
    ), known


# -- arithmetic


def test_a_quadratic_is_solved_from_any_point_and_without_noise_nothing_is_uncertain():
    rng = np.random.default_rng(0)
    half = rng.normal(size=(5, 5))
    H, best, start = half @ half.T + np.eye(5), rng.normal(size=5), rng.normal(size=5)
    steepness = Steepness(start, H @ (start - best), 0.0)
    found = one_step(start, steepness, Curvature(H, 0.0, 0.0), n=10, reach=1.0)
    np.testing.assert_allclose(found.estimate, best, atol=1e-9)
    np.testing.assert_allclose(found.covariance, 0.0, atol=1e-12)
    assert found.weak == 0


def test_each_part_of_the_covariance_has_its_formula():
    H, point, g = np.diag([1.0, 2.0, 4.0]), np.zeros(3), np.array([1.0, 2.0, 4.0])
    inverse = np.linalg.inv(H)
    sampling = one_step(point, Steepness(point, g, 0.0), Curvature(H, 0.0, 0.3), n=50, reach=1.0)
    np.testing.assert_allclose(sampling.covariance, 0.3 / 50 * inverse, atol=1e-12)
    privacy = one_step(point, Steepness(point, g, 0.2), Curvature(H, 0.0, 0.0), n=50, reach=1.0)
    np.testing.assert_allclose(privacy.covariance, 0.04 * inverse @ inverse, atol=1e-12)
    # step = H^-1 g = (1, 1, 1); noise of a symmetric matrix along it has covariance v^2 (3 I + 1 1^T). The
    # way to the minimiser is the step and its error, which has this covariance.
    hessian = one_step(point, Steepness(point, g, 0.0), Curvature(H, 0.1, 0.0), n=50, reach=1.0)
    first = inverse @ (0.01 * (3 * np.eye(3) + np.ones((3, 3)))) @ inverse
    more = inverse @ (0.01 * (np.trace(first) * np.eye(3) + first)) @ inverse
    np.testing.assert_allclose(hessian.covariance, first + more, atol=1e-12)
    # A ridge is known: it bends the objective, and no record's gradient varies with it.
    ridged = one_step(point, Steepness(point, g, 0.0), Curvature(H, 0.0, 0.3, 1.0), n=50, reach=1.0)
    np.testing.assert_allclose(np.diag(ridged.covariance), 0.006 * np.diag(H) / (np.diag(H) + 1) ** 2)


def test_the_law_of_symmetric_noise_is_the_one_assumed():
    rng, v, step = np.random.default_rng(1), 0.3, np.array([1.0, -2.0, 0.5])
    noise = rng.normal(0, v, (200_000, 3, 3))
    noise = np.triu(noise, 1) + np.triu(noise, 1).transpose(0, 2, 1) + np.sqrt(2) * noise * np.eye(3)
    measured = np.cov((noise @ step).T)
    np.testing.assert_allclose(measured, v**2 * (step @ step * np.eye(3) + np.outer(step, step)), atol=0.01)


@pytest.mark.long
@pytest.mark.parametrize("meat_noise", [0.3, 0.6])
def test_a_noisy_estimate_of_the_sampling_error_makes_intervals_wider(meat_noise):
    """Normal quantiles would cover 93.8 % and 90.9 %, with a standard error of 0.4 points."""
    d, n, deviation, rng = 2, 100, 0.05, np.random.default_rng(7)
    H, covered = np.eye(d), []
    true = (deviation**2 + 1 / n) * np.eye(d)  # covariance of the gradient
    for _ in range(3000):
        noise = np.triu(rng.normal(scale=meat_noise, size=(d, d)))
        meat = H + (noise + noise.T) / np.where(np.eye(d), math.sqrt(2), 1.0)
        dispersion, unsure = max(meat.trace(), 0.0) / d, math.sqrt(2 * d) * meat_noise / d
        curvature = Curvature(H, 0.0, dispersion, 0.0, meat, meat_noise, unsure)
        steepness = Steepness(np.zeros(d), rng.multivariate_normal(np.zeros(d), true), deviation)
        known = one_step(np.zeros(d), steepness, curvature, n=n, reach=1.0)
        covered.append(np.mean(known.estimate**2 < 1.96**2 * np.diag(known.covariance)))
    assert 0.942 < np.mean(covered) < 0.965


def test_a_sampling_error_that_is_known_well_changes_no_interval():
    H, point = np.diag([1.0, 2.0]), np.zeros(2)
    found = [
        one_step(point, Steepness(point, point, 0.1), Curvature(H, 0.0, 1.0, 0.0, H, noise), n=50, reach=1.0)
        for noise in (0.0, 1e-3, 0.1)
    ]
    exact, good, noisy = (each.covariance for each in found)
    np.testing.assert_allclose(good, exact, rtol=1e-5)
    assert (np.linalg.eigvalsh(noisy - exact) > 0).all()


def test_hidden_directions_keep_the_fit_and_get_the_whole_reach():
    H, point, fit = np.diag([4.0, 0.1]), np.zeros(2), np.array([0.5, 0.7])
    found = one_step(fit, Steepness(point, np.array([4.0, 4.0]), 0.1), Curvature(H, 0.2, 0.0), n=9, reach=3.0)
    assert found.weak == 1
    np.testing.assert_allclose(found.estimate, [-1.0, 0.7])
    assert found.covariance[1, 1] == pytest.approx(9.0)
    assert found.covariance[0, 0] < 0.1


def test_a_step_across_a_redundant_direction_is_that_of_one_coordinate_fewer():
    """Features of all levels, less the coefficient of the first, against features of all but the first."""
    rng = np.random.default_rng(0)
    whole = np.column_stack([np.eye(3)[rng.integers(3, size=200)], np.ones(200)])
    y = whole @ [1.0, 2.0, 5.0, 0.5] + rng.normal(size=200)
    compare = np.array([[-1.0, 1, 0, 0], [-1, 0, 1, 0], [1, 0, 0, 1]])
    found = []
    for X, start in ((whole, rng.normal(size=4)), (whole[:, 1:], np.zeros(3))):
        H, g = X.T @ X / 200, X.T @ (X @ start - y) / 200
        steepness, curvature = Steepness(start, g, 1e-9), Curvature(H, 1e-9, 1.3)
        if len(start) == 4:
            redundant = np.array([[1.0, 1.0, 1.0, -1.0]])
            known = one_step_across(redundant, start, steepness, curvature, n=200, reach=9.0)
            known = known.mapped(lambda theta: compare @ theta)
        else:
            known = one_step(start, steepness, curvature, n=200, reach=9.0)
        assert known.weak == 0
        found.append(known)
    np.testing.assert_allclose(found[0].estimate, found[1].estimate, rtol=1e-6)
    np.testing.assert_allclose(found[0].covariance, found[1].covariance, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("standardize", [True, False])
def test_differences_between_levels_are_as_uncertain_as_stated(standardize):
    """The baseline is rare, and in the fit every level has a feature."""
    n, errors = 4000, []
    for seed in range(24):
        rng = np.random.default_rng(seed)
        group = rng.choice(["a", "b", "c", "d"], n, p=[0.05, 0.45, 0.3, 0.2])
        frame = pd.DataFrame({"x": rng.uniform(-1, 1, n), "group": group})
        y = frame["x"] + (group == "b") - 0.5 * (group == "c") + rng.normal(0, 0.5, n)
        model = dp.PrivateLinearRegression(
            epsilon=8.0,
            bounds={"x": (-1, 1)},
            categories={"group": ["a", "b", "c", "d"]},
            y_bounds=(-4, 4),
            standardize=standardize,
            uncertainty=0.3,
            check=0,
            random_state=seed,
        ).fit(frame, y)
        known = model._uncertainty
        assert known.weak == 0
        away = known.estimate - np.array([1.0, 1.0, -0.5, 0.0, 0.0])
        errors.append(away / np.sqrt(np.diag(known.covariance)))
    assert 0.75 < np.sqrt(np.mean(np.square(errors))) < 1.3


# -- logistic loss: the second order


def logistic_records(n=4000):
    """Rows with a constant feature of 1/2, labels' mean and weights at a theta."""
    rng = np.random.default_rng(3)
    X = np.column_stack([rng.multivariate_normal([0, 0], [[1, 0.4], [0.4, 1]], n), np.full(n, 0.5)])
    theta = np.array([1.2, -0.6, 1.0])
    return X, theta, 1 / (1 + np.exp(-X @ theta))


def test_the_third_derivative_of_normal_records_follows_from_their_hessian():
    X, theta, p = logistic_records()
    curvature, half = p * (1 - p), np.random.default_rng(0).normal(size=(3, 3))
    spread = half @ half.T
    hessian = X.T @ (X * curvature[:, None]) / len(X)
    true = X.T @ (curvature * (1 - 2 * p) * np.sum(X @ spread * X, axis=1)) / len(X)
    found = third_derivative(hessian, np.array([0, 0, 2.0]), theta, spread)
    assert np.linalg.norm(found - true) < 0.1 * np.linalg.norm(true)


def hessian_of(X, theta):
    p = 1 / (1 + np.exp(-X @ theta))
    return X.T @ (X * (p * (1 - p))[:, None]) / len(X)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.9])
def test_the_hessian_after_a_step_follows_from_the_one_before_if_records_are_normal(share):
    X, theta, p = logistic_records()
    start = share * theta
    hessian = hessian_of(X, start)
    later, change = after_step(hessian, np.array([0, 0, 2.0]), start, theta - start)
    true = X.T @ (p - 1 / (1 + np.exp(-X @ start))) / len(X)
    np.testing.assert_allclose(later, hessian_of(X, theta), atol=0.02 * np.trace(hessian))
    assert np.linalg.norm(change - true) < 0.05 * np.linalg.norm(true)
    assert np.linalg.norm(hessian @ (theta - start) - true) > (1 - share) * 0.05 * np.linalg.norm(true)


def steep_records(n=40000):
    """A rare class, 3 %, with a strong predictor; the constant feature is 1/4."""
    rng = np.random.default_rng(5)
    X = np.column_stack([rng.normal(size=(n, 2)), np.full(n, 0.25)])
    theta = np.array([2.5, 0.3, -24.0])
    return X, theta, 1 / (1 + np.exp(-X @ theta))


@pytest.mark.parametrize("log_odds", [0.0, -3.3])
def test_a_step_ends_where_the_loss_is_least_with_the_errors_of_that_place(log_odds):
    """A Newton step from a point half way stops before it, and states too small an error."""
    X, theta, p = steep_records()
    constant = np.array([0, 0, 4.0])
    start = np.array([2.0, 0.2, -19.5])
    slope = X.T @ (1 / (1 + np.exp(-X @ start)) - p) / len(X)
    H = hessian_of(X, start)
    found = [
        one_step(
            start - log_odds * constant,
            Steepness(start - log_odds * constant, slope, 1e-7),
            Curvature(H, 1e-9, 1.0, constant=known, log_odds=log_odds),
            n=len(X),
            reach=99.0,
        )
        for known in (None, constant)
    ]
    short, whole = (abs(each.estimate + log_odds * constant - theta)[0] for each in found)
    assert short > 0.1
    assert whole < 0.2 * short
    true = np.sqrt(np.linalg.inv(hessian_of(X, theta))[0, 0] / len(X))
    sampling = [np.sqrt(each.sampling[0, 0]) for each in found]
    assert sampling[0] < 0.85 * true
    assert sampling[1] == pytest.approx(true, rel=0.1)
    # half of the difference between both steps is part of the stated error
    assert np.sqrt(found[1].covariance[0, 0]) > 0.45 * abs(found[0].estimate - found[1].estimate)[0]


def test_a_step_that_leads_to_other_curvatures_altogether_is_not_taken():
    H = hessian_of(*steep_records()[:2])
    zero, slope = np.zeros(3), -40 * H @ np.array([1.0, 0, 0])
    known = one_step(
        zero,
        Steepness(zero, slope, 1e-4),
        Curvature(H, 1e-9, 1.0, constant=np.array([0, 0, 4.0])),
        n=9,
        reach=7.0,
    )
    assert known.weak >= 1
    assert np.linalg.norm(known.estimate) < 40
    assert known.covariance.trace() > 48


def test_the_meat_counts_by_direction_for_labels():
    """Where a direction's curvature is small beside the meat's noise, the likelihood takes its place."""
    H = np.diag([1.0, 1e-3, 0.5])
    noisy = Curvature(H, 0.0, 1.0, meat=np.diag([2.0, -3e-3, 1.0]), meat_deviation=3e-3)
    labels = dataclasses.replace(noisy, constant=np.array([0, 0, 1.0]))
    assert noisy.covariance_of_gradient(H)[1, 1] < 0
    found = labels.covariance_of_gradient(H)
    assert found[1, 1] == pytest.approx(1e-3, rel=0.15)
    assert found[0, 0] == pytest.approx(2.0, rel=1e-3)
    assert labels.noise_of_covariance(H)[1, 1] < 0.2 * noisy.noise_of_covariance(H)[1, 1]


def test_noise_on_a_curvature_widens_the_interval_of_a_classifier():
    """With a relative noise r of a curvature, as of a variance whose relative noise is 2 r (Student)."""
    zero, noise = np.zeros(3), 0.02
    H, constant = np.diag([0.2, 0.2, 0.2]), np.array([0, 0, 2.0])
    plain, wide = (
        one_step(
            zero, Steepness(zero, zero, 1e-3), Curvature(H, noise, 1.0, constant=each), n=100, reach=9.0
        ).covariance[0, 0]
        for each in (None, constant)
    )
    assert wide / plain == pytest.approx(1 + (1.96**2 + 1) * 2 * (noise / 0.2) ** 2, rel=1e-6)


def test_the_outward_bias_of_noisy_minimisers_is_taken_away():
    """Minimisers of a logistic objective with a random linear term, in pairs of opposite terms."""
    X, theta, p = logistic_records()
    rng, noise, n = np.random.default_rng(1), 0.015, len(X)
    left, biased = [], []
    for _ in range(60):
        draw = rng.normal(0, noise, 3)
        for term in (draw, -draw):
            found = theta
            for _ in range(6):
                q = 1 / (1 + np.exp(-X @ found))
                hessian = X.T @ (X * (q * (1 - q))[:, None]) / n
                found = found - np.linalg.solve(hessian, X.T @ (q - p) / n + term)
            curvature = Curvature(hessian, 0.0, 0.0, constant=np.array([0, 0, 2.0]))
            known = one_step(found, Steepness(found, np.zeros(3), noise), curvature, n=n, reach=9.0)
            biased.append(found - theta)
            left.append(known.estimate - theta)
    size = np.linalg.norm(np.mean(biased, axis=0))
    assert size > 0.01
    assert np.linalg.norm(np.mean(left, axis=0)) < 0.5 * size


def test_single_points_of_a_fit_bias_the_mean_of_their_gradients_and_this_is_taken_away():
    X, theta, p = logistic_records()
    points = theta + np.random.default_rng(2).normal(0, 0.3, (400, 3))
    slopes = [X.T @ (1 / (1 + np.exp(-X @ each)) - p) / len(X) for each in points]
    steepness = average([Steepness(*each, 1e-6) for each in zip(points, slopes, strict=True)])
    q = 1 / (1 + np.exp(-X @ steepness.point))
    hessian = X.T @ (X * (q * (1 - q))[:, None]) / len(X)
    errors = [
        np.linalg.norm(
            one_step(
                theta, steepness, Curvature(hessian, 0.0, 1.0, constant=known), n=400, reach=9.0
            ).estimate
            - theta
        )
        for known in (None, np.array([0, 0, 2.0]))
    ]
    assert errors[0] > 0.03
    assert errors[1] < 0.35 * errors[0]


def test_lucky_noise_hides_no_direction_from_the_warning():
    """Where the mean curvature is near the noise, one direction that stands out is no evidence."""
    H, zero = np.diag([0.9, 0.8, 0.75]), np.zeros(3)
    known = [
        one_step(zero, Steepness(zero, zero, 0.1), Curvature(H, 0.2, 1.0, constant=each), n=90, reach=3.0)
        for each in (None, np.array([0, 0, 2.0]))
    ]
    assert [each.weak for each in known] == [0, 3]


def test_no_fit_says_that_it_has_no_sampling_error():
    """The noisy trace of the meat was negative in a fifth of these fits, and replaced by 0."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 2))
    y = X.sum(axis=1) + rng.normal(size=500)
    model = dp.PrivateLinearRegression(epsilon=8.0, bounds=(-9, 9), y_bounds=(-30, 30), uncertainty=0.2)
    shares = []
    for seed in range(12):
        known = model.set_params(random_state=seed).fit(X, y)._uncertainty
        shares.append(np.diag(known.sampling) / np.diag(known.covariance))
    assert np.min(shares) > 0.003
    # Least squares has standard errors of 0.045.
    assert np.median(np.sqrt(np.diag(known.sampling)[:2])) == pytest.approx(0.045, rel=0.5)


def test_a_clipped_hessian_is_scaled_back():
    """With D its square root of what is missing, the step is that of the whole Hessian."""
    rng = np.random.default_rng(3)
    d = 4
    root = rng.normal(size=(d, d))
    whole, meat = root @ root.T + np.eye(d), 0.1 * (root @ root.T + np.eye(d))
    D = np.diag([1.5, 1.0, 2.0, 1.0])
    short = np.linalg.inv(D) @ whole @ np.linalg.inv(D)
    fit, slope = rng.normal(size=d), Steepness(rng.normal(size=d), rng.normal(size=d), 0.01)
    plain = Curvature(whole, 1e-9, 0.1, meat=meat)
    scaled = Curvature(short, 1e-9, 0.1, meat=meat, scale=D)
    expected = one_step(fit, slope, plain, n=1000, reach=10.0)
    found = one_step(fit, slope, scaled, n=1000, reach=10.0)
    np.testing.assert_allclose(found.estimate, expected.estimate, rtol=1e-9)
    np.testing.assert_allclose(found.covariance, expected.covariance, rtol=1e-9)
    assert not np.allclose(
        one_step(fit, slope, Curvature(short, 1e-9, 0.1), n=1000, reach=10.0).estimate, found.estimate
    )


def test_scales_follow_released_mean_squares_where_noise_allows_it():
    step = OneStep(NoisyGradientDescent(), 0.2).with_squares(np.array([0.4, 0.1, 0.0]))
    hessian = np.diag([0.1, 0.1, 0.05])
    low = 0.1 + 2 * np.sqrt(2) * 1e-3
    np.testing.assert_allclose(step._scale(hessian, 1e-3), [np.sqrt(0.4 / low), 1.0, 1.0])
    # Noise hides a direction: nothing is scaled.
    assert (step._scale(hessian, 0.02) == 1).all()
    assert (OneStep(NoisyGradientDescent(), 0.2)._scale(hessian, 1e-3) == 1).all()


def test_gradients_are_averaged_by_their_precision():
    one = Steepness(np.array([0.0]), np.array([1.0]), 1.0)
    two = Steepness(np.array([5.0]), np.array([6.0]), 0.5)
    mean = average([one, two])
    assert (mean.point[0], mean.gradient[0]) == (pytest.approx(4.0), pytest.approx(5.0))
    assert mean.deviation == pytest.approx(1 / math.sqrt(5))


def test_an_affine_map_maps_estimate_and_covariance():
    known = Uncertainty(np.array([1.0, 2.0]), np.array([[1.0, 0.5], [0.5, 2.0]]), 1.0)
    linear = np.array([[2.0, 0.0], [1.0, 1.0], [0.0, 3.0]])
    mapped = known.mapped(lambda theta: linear @ theta + 5.0)
    np.testing.assert_allclose(mapped.estimate, [7.0, 8.0, 11.0])
    np.testing.assert_allclose(mapped.covariance, linear @ known.covariance @ linear.T)


# -- plan and privacy


@pytest.mark.parametrize("kind", ["linear", "logistic"])
@pytest.mark.parametrize("inner", [NoisyGradientDescent(n_iter=7), ObjectivePerturbation()], ids=type)
def test_fit_and_hessian_together_keep_the_budget(kind, inner):
    plan = OneStep(inner, 0.3).plan(problem(kind), 5000, BUDGET, Tight())
    *fit, (moments) = plan.stages
    assert {type(stage.mechanism) for stage in fit} <= {NoisyGradient, PerturbedMinimiser}
    assert isinstance(moments.mechanism, NoisySecondMoments)
    assert 0.97 * BUDGET.epsilon <= plan.price.epsilon <= BUDGET.epsilon
    spent = sum(
        count / leaf.noise_multiplier**2 for leaf, count in count_leaves(moments.mechanism.event).items()
    )
    assert spent == pytest.approx(0.3 * gaussian_mu(BUDGET.epsilon, BUDGET.delta) ** 2, rel=1e-3)


@pytest.mark.parametrize("inner", [NoisyGradientDescent(n_iter=6), ObjectivePerturbation()], ids=type)
def test_a_neighbour_reaches_nothing_but_the_sums(inner):
    rng = np.random.default_rng(3)
    p = problem("logistic", d=3)
    plan = OneStep(inner, 0.3).plan(p, 60, BUDGET, Tight())
    X, y = rng.uniform(-1, 1, (60, 3)), rng.choice([-1.0, 1.0], 60)
    first = record(plan, dp.source(X, y, bounds=p.bounds), SeededGenerator(0))
    assert first.questions[-1].kind == "CurvatureSum"
    for row, label in (([1e30, -1e30, np.nan], 0.0), ([-1, -1, -1], -y[0]), ([0, 0, 0], y[0])):
        other_X, other_y = X.copy(), y.copy()
        other_X[0], other_y[0] = row, label
        second = replay(plan, dp.source(other_X, other_y, bounds=p.bounds), SeededGenerator(1), first)
        assert discrepancies(plan, first, second) == []


@pytest.mark.parametrize(
    "solver",
    [
        NoisyFrankWolfe(),
        pytest.param(NoisySVRG(), marks=pytest.mark.long),  # its price takes seconds
        SufficientStatistics(),
    ],
    ids=type,
)
def test_solvers_without_a_known_law_are_refused_before_a_record_is_read(solver):
    domain = dp.L1Ball(1.0) if isinstance(solver, NoisyFrankWolfe) else dp.L2Ball(1.0)
    p = dp.Problem(dp.Squared(), domain, bounds=dp.Bounds(1.0), d=3, l2=0.1)
    with pytest.raises(Incompatible, match="no known law"):
        OneStep(solver).plan(p, 5000, BUDGET, Tight())


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, math.nan])
def test_a_share_is_a_share(share):
    with pytest.raises(ValueError, match="share"):
        OneStep(NoisyGradientDescent(), share)


# -- coverage


@pytest.mark.long
@pytest.mark.parametrize("kind", ["linear", "logistic"])
@pytest.mark.parametrize("inner", [NoisyGradientDescent(clip=1.0), ObjectivePerturbation()], ids=type)
def test_errors_are_as_large_as_stated_and_larger_than_either_part_alone(kind, inner):
    """80 runs of 4 coefficients: a deviation of 1 is measured within 0.04, coverage within 1.2 points."""
    plan = OneStep(inner, 0.3).plan(problem(kind), 20_000, dp.Budget(1.0, 1e-6), Tight())
    z, known = errors(kind, plan, 80)
    assert 0.85 < np.sqrt(np.mean(z**2)) < 1.15
    assert 0.90 < np.mean(abs(z) < 1.96) < 0.99
    # Without the privacy noise the same errors would be far too large.
    X, _ = sample(kind, 20_000, 0)
    bend, dispersion = (1.0, 0.4**2 / 12) if kind == "linear" else (0.2, 1.0)
    sampling = np.linalg.inv(bend * X.T @ X / 20_000) * dispersion / 20_000
    shown = np.array([each.estimate - TRUTH[kind] for each in known]) / np.sqrt(np.diag(sampling))
    assert np.mean(abs(shown) < 1.96) < 0.85


@pytest.mark.parametrize(
    "inner",
    [NoisyGradientDescent(n_iter=4, step=0.2, clip=1.0), ObjectivePerturbation(jacobian_share=0.001)],
    ids=type,
)
def test_the_step_removes_the_bias_of_few_iterations_and_of_a_ridge(inner):
    plan = OneStep(inner, 0.3).plan(problem("linear"), 20_000, dp.Budget(4.0, 1e-6), Tight())
    runs = [released("linear", plan, seed) for seed in range(30)]
    fit = np.mean([run.theta for run in runs], axis=0) - TRUTH["linear"]
    step = np.mean([run.uncertainty.estimate for run in runs], axis=0) - TRUTH["linear"]
    error = np.mean([np.sqrt(np.diag(run.uncertainty.covariance)) for run in runs], axis=0) / math.sqrt(30)
    assert (abs(step) < 3.5 * error).all()
    assert abs(fit[0]) > 10 * error[0]


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_a_minimiser_at_the_border_of_its_set_has_the_same_intervals(kind):
    """The truth has length 0.38 or 2.3; in a ball of half of that the released fit is at the border."""
    radius = 0.5 * np.linalg.norm(TRUTH[kind])
    inner = ObjectivePerturbation(clip=1.0 if kind == "linear" else None)
    plan = OneStep(inner, 0.3).plan(problem(kind, radius=radius), 20_000, dp.Budget(1.0, 1e-6), Tight())
    z, _ = errors(kind, plan, 30)
    assert 0.8 < np.sqrt(np.mean(z**2)) < 1.2
    run = released(kind, plan, 0)
    assert np.linalg.norm(run.theta) == pytest.approx(radius)
    assert np.linalg.norm(run.uncertainty.estimate) > 1.5 * radius


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["linear", "logistic"])
@pytest.mark.parametrize(("n", "epsilon"), [(5000, 4.0), (20_000, 0.5), (50_000, 1.0)])
def test_coverage_is_within_two_points_of_nominal(kind, n, epsilon):
    """500 runs of 4 coefficients: coverage is measured with a standard error of 0.6 points at most."""
    budget = dp.Budget(epsilon, 1 / n**2)
    plan = OneStep(NoisyGradientDescent(clip=1.0), 0.3).plan(problem(kind), n, budget, Tight())
    z, _ = errors(kind, plan, 500)
    assert abs(np.mean(abs(z) < 1.96) - 0.95) < 0.02
    assert abs(np.mean(abs(z) < 1.2816) - 0.80) < 0.03


# -- estimators


def regression(**changes):
    settings = {
        "epsilon": 4.0,
        "bounds": (0, 10),
        "y_bounds": (-10, 20),
        "uncertainty": 0.3,
        "random_state": 0,
    }
    return dp.PrivateLinearRegression(**{**settings, **changes})


RNG = np.random.default_rng(5)
X = RNG.uniform(0, 10, (8000, 2))
Y = X @ [1.0, -0.5] + 2.0 + RNG.normal(size=8000)


@pytest.fixture(scope="module")
def model():
    return regression().fit(X, Y)


@pytest.mark.parametrize(("copies", "most"), [(1, 1.0), (25, 0.98)])
def test_intervals_for_new_people_are_not_too_narrow_and_with_many_records_not_too_wide(copies, most):
    """The variance of errors has noise of about 1.5 times itself for 8,000 people, and 0.1 for 200,000."""
    rng = np.random.default_rng(6)
    rows = np.tile(X, (copies, 1))
    for seed in range(6):
        y = rows @ [1.0, -0.5] + 2.0 + rng.normal(size=len(rows))
        fitted = regression(random_state=seed, maps=None).fit(rows, y)
        low, high = fitted.predict_interval(rows[:4000], of="observation").T
        assert 0.93 < np.mean((low < y[:4000]) & (y[:4000] < high)) <= most


def test_intervals_are_in_the_users_units(model):
    assert model.coef_interval().shape == (2, 2)
    low, high = model.coef_interval(level=0.9999).T
    assert (low < [1.0, -0.5]).all()
    assert (high > [1.0, -0.5]).all()
    low, high = model.coef_interval().T
    assert (high - low < 0.5).all()
    np.testing.assert_allclose((low + high) / 2, model.coef_debiased_)
    np.testing.assert_allclose((high - low) / 2, 1.959964 * model.coef_std_, rtol=1e-6)
    bottom, top = model.intercept_interval(level=0.9999)
    assert bottom < 2.0 < top
    bottom, top = model.intercept_interval()
    assert (top - bottom) / 2 == pytest.approx(1.959964 * model.intercept_std_)
    assert (bottom + top) / 2 == pytest.approx(model.intercept_debiased_)


def test_a_higher_level_is_wider_and_levels_are_probabilities(model):
    narrow, wide = (np.ptp(model.coef_interval(level), axis=1) for level in (0.5, 0.99))
    assert (wide > 3 * narrow).all()
    for level in (0.0, 1.0, 95):
        with pytest.raises(ValueError, match="level must be between 0 and 1"):
            model.coef_interval(level)


def test_predictions_have_intervals_for_means_and_for_new_people(model):
    mean, person = model.predict_interval(X[:500], 0.9999), model.predict_interval(X[:500], of="observation")
    assert mean.shape == person.shape == (500, 2)
    assert np.mean((mean[:, 0] < X[:500] @ [1.0, -0.5] + 2) & (X[:500] @ [1.0, -0.5] + 2 < mean[:, 1])) > 0.9
    assert np.mean((person[:, 0] < Y[:500]) & (Y[:500] < person[:, 1])) > 0.9
    # The variance of a mean is quadratic in the features, and smallest where they are usual.
    spread = np.ptp(model.predict_interval([[5.0, 5.0], [0.0, 10.0]]), axis=1)
    assert spread[0] < spread[1]
    one = np.ptp(model.predict_interval([[0.0, 0.0]]), axis=1)[0]
    assert one == pytest.approx(2 * 1.959964 * model.intercept_std_, rel=1e-6)
    with pytest.raises(ValueError, match='"mean" or "observation"'):
        model.predict_interval(X[:2], of="median")


def test_probabilities_have_intervals_inside_zero_and_one():
    z = X @ [0.4, -0.4]
    labels = np.where(RNG.uniform(size=len(z)) < 1 / (1 + np.exp(-z)), "yes", "no")
    model = dp.PrivateLogisticRegression(
        epsilon=4.0, bounds=(0, 10), classes=("no", "yes"), uncertainty=0.3, random_state=0
    ).fit(X, labels)
    low, high = model.predict_interval(X[:200]).T
    assert ((low > 0) & (low < high) & (high < 1)).all()
    assert np.mean((low < 1 / (1 + np.exp(-z[:200]))) & (1 / (1 + np.exp(-z[:200])) < high)) > 0.6
    assert (abs(model.coef_debiased_ - [0.4, -0.4]) < 4 * model.coef_std_).all()


def test_the_statement_shows_the_question_and_the_plan_the_share(model):
    said = model.privacy_statement_
    last = said.mechanisms[-1]
    assert last["question"] == "NoisySecondMoments"
    assert [each["answer"].split()[0] for each in last["answers"]] == ["Hessian", "meat"]
    for each in last["answers"]:
        assert f"sensitivity {each['sensitivity']:.6g}" in " ".join(str(said).split())
    assert "Compose" not in str(said)
    assert "share=0.3" in said.public["solver"]
    assert said.certified_epsilon <= 4.0


def test_a_fit_with_intervals_is_charged_once(tmp_path):
    ledger = dp.Ledger(tmp_path / "ledger.db")
    account = ledger.create("people", epsilon=4.0, delta=1e-6)
    model = regression(delta=1e-6, ledger=ledger, account="people", random_state=None).fit(X, Y)
    (entry,) = account.history()
    assert from_plain(entry.event) == model.plan_.event


def test_intervals_that_were_not_paid_for_are_refused_with_the_way_to_get_them():
    model = regression(uncertainty=0).fit(X[:500], Y[:500])
    for ask in (
        model.coef_interval,
        model.intercept_interval,
        lambda: model.coef_std_,
        lambda: model.predict_interval(X[:2]),
    ):
        with pytest.raises(NotReleased, match=r"fit it with uncertainty=0\.2"):
            ask()
    assert not hasattr(model, "coef_std_")


@pytest.mark.parametrize("share", [-0.1, 1.0, 2, "half", math.inf])
def test_shares_that_are_none_are_refused(share):
    with pytest.raises(ValueError, match="uncertainty"):
        regression(uncertainty=share).fit(X[:100], Y[:100])


def test_none_is_off():
    assert regression(uncertainty=None).fit(X[:100], Y[:100]).release_.uncertainty is None


def test_several_classes_are_refused_before_a_record_is_read():
    model = dp.PrivateLogisticRegression(epsilon=1.0, bounds=(0, 10), classes=(0, 1, 2), uncertainty=0.2)
    with pytest.raises(Incompatible, match=r"has 3 scores.*each class against all others"):
        model.fit(X[:100], np.arange(100) % 3)


def test_hidden_directions_are_said_and_covered():
    model = regression(epsilon=0.1).fit(X[:300], Y[:300])
    assert model.release_.uncertainty.weak > 0
    with pytest.warns(UserWarning, match="noise hides how the records vary"):
        low, high = model.coef_interval().T
    assert (low < [1.0, -0.5]).all()
    assert (high > [1.0, -0.5]).all()


def test_levels_beside_an_intercept_hide_no_direction():
    """With a coefficient for each level no number of records would tell them from the intercept."""
    place = np.array(["north", "south", "east"])[np.digitize(X[:, 1], [3, 6])]
    people = pd.DataFrame({"age": X[:, 0], "place": place})
    declared = {"epsilon": 20.0, "bounds": {"age": (0, 10)}}
    for levels in (["north", "south", "east"], ["north", "south"]):
        fitted = regression(**declared, categories={"place": levels}, check=0).fit(people, Y)
        assert fitted._uncertainty.weak == 0
        assert (np.diff(fitted.coef_interval()) < 2).all()


def test_a_saved_model_knows_its_uncertainty(model, tmp_path):
    model.save(tmp_path / "model.json")
    again = dp.load(tmp_path / "model.json")
    assert np.array_equal(again.coef_interval(), model.coef_interval())
    assert np.array_equal(
        again.predict_interval(X[:5], of="observation"), model.predict_interval(X[:5], of="observation")
    )
    plain = regression(uncertainty=0).fit(X[:200], Y[:200])
    plain.save(tmp_path / "plain.json")
    with pytest.raises(Incompatible, match="uncertainty"):
        dp.load(tmp_path / "plain.json").coef_interval()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("covariance", [[1.0]]),
        ("covariance", [[1, 2, 3], [4, 5, 6], [7, 8, 9]]),
        ("covariance", [[-1, 0, 0], [0, 1, 0], [0, 0, 1]]),
        ("weak", -1),
        ("weak", True),
        ("estimate", [1.0, 2.0]),
        ("dispersion", "large"),
        ("more", 1),
    ],
    ids=str,
)
def test_a_file_with_another_uncertainty_is_no_model(model, tmp_path, field, value):
    import json

    path = tmp_path / "model.json"
    model.save(path)
    content = json.loads(path.read_text())
    content["uncertainty"][field] = value
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"uncertainty|covariance|estimate|dispersion"):
        dp.load(path)


# -- standardised coordinates


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_intervals_made_in_standardised_coordinates_come_back_in_those_of_the_records(kind):
    """Columns of deviations that differ a hundredfold, one far from 0."""
    loss = dp.Squared() if kind == "linear" else dp.Logistic()
    p = dp.Problem(loss, dp.L2Ball(30.0), bounds=dp.Bounds(1.0), d=3)
    solver = with_uncertainty(Standardised(NoisyGradientDescent()), 0.3, p.loss)
    plan = solver.plan(p, 10_000, dp.Budget(4.0, 1e-8), Tight())
    assert plan.price.epsilon <= 4.0
    assert [type(stage.mechanism).__name__ for stage in plan.stages][-3:] == [
        "NoisyGradient",
        "NoisyGoodness",
        "NoisySecondMoments",
    ]
    coef, scores = np.array([0.3, -3.0, 0.2, 0.1]), []
    coef = coef if kind == "linear" else 5 * coef
    for seed in range(15):
        rng = np.random.default_rng(seed)
        rows = rng.normal(size=(10_000, 3)) * [0.2, 0.02, 0.2] + [0.0, 0.5, 0.0]
        z = rows @ coef[:3] + coef[3] - 0.5 * coef[1]
        if kind == "linear":
            y = z + rng.normal(0, 0.1, 10_000)
        else:
            y = np.where(rng.uniform(size=10_000) < 1 / (1 + np.exp(-z)), 1.0, -1.0)
        known = dp.execute(plan, dp.source(rows, y, bounds=p.bounds), rng=SeededGenerator(seed)).uncertainty
        truth = [*coef[:3], coef[3] - 0.5 * coef[1]]
        scores.append((known.estimate - truth) / np.sqrt(np.diag(known.covariance)))
    assert 0.75 < np.sqrt(np.mean(np.square(scores))) < 1.3
    if kind == "linear":
        assert known.dispersion == pytest.approx(0.01, rel=0.5)


def test_standardised_fits_with_intervals_shorten_few_rows():
    plain = Standardised(NoisyGradientDescent())
    linear, logistic, hinge = (
        with_uncertainty(plain, 0.3, loss) for loss in (dp.Squared(), dp.Logistic(), dp.SmoothHinge())
    )
    assert (linear.reach, linear.stretch, linear.shrink) == (6.0, 1.0, "gradient")
    assert (logistic.reach, logistic.stretch, logistic.shrink) == (6.0, 1.0, "labels")
    assert (hinge.reach, hinge.stretch, hinge.shrink) == (3.0, 2.0, "row")
    minimised = with_uncertainty(Standardised(ObjectivePerturbation()), 0.3, dp.Logistic())
    assert minimised.shrink == "row"  # the objective takes single labels
    assert (plain.stretch, plain.reach) == (1.0, 3.0)
