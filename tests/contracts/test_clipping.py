"""Clipped slopes of logistic losses: where they are the default, and what becomes of the scores."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import dpcvx as dp
from dpcvx.accounting import Tight, gaussian_mu
from dpcvx.losses import ClippedLogistic, Logistic
from dpcvx.planning.planner import classes_room, default_clip, plan, standardisation_pays
from dpcvx.queries.measuring import Measurer
from dpcvx.solvers import NoisyGradientDescent, ObjectivePerturbation
from dpcvx.solvers.typical_data import inflation

BUDGET = dp.Budget(1.0, 1e-6)


def problem(loss, outputs=1):
    return dp.Problem(loss, dp.L2Ball(30.0), bounds=dp.Bounds(1.0, 1.0), d=20, outputs=outputs)


@pytest.mark.parametrize(
    ("loss", "outputs", "clip"),
    [(Logistic(), 1, 0.5), (dp.SmoothHinge(), 1, None), (dp.Huber(1.0), 1, None), (dp.Squared(), 1, 1.0)],
    ids=repr,
)
def test_slopes_are_clipped_at_those_of_theta_0(loss, outputs, clip):
    assert default_clip(problem(loss, outputs), 5000, BUDGET) == pytest.approx(clip)


def test_slopes_of_several_classes_are_clipped_the_earlier_the_fewer_records_there_are():
    mu = gaussian_mu(BUDGET.epsilon, BUDGET.delta)
    sizes = [round(share * 60 / mu) for share in (0.1, 2.5, 2.5 * math.sqrt(10), 25, 250)]
    clips = [default_clip(problem(dp.Softmax(), 3), n, BUDGET) for n in sizes]
    rooms = [0.6, 0.6, math.sqrt(0.6 * 1.2), 1.2, 1.2]
    assert clips == pytest.approx([room * math.sqrt(2 / 3) for room in rooms], rel=1e-2)


def test_a_person_with_several_rows_counts_as_one_record_of_several_classes():
    alone, several = (
        classes_room(problem(dp.Softmax(), 3), rows * 1000, dp.Budget(1.0, 1e-6, unit="person", rows=rows))
        for rows in (1, 5)
    )
    assert several == pytest.approx(alone)


def test_nothing_is_clipped_where_there_is_hardly_any_noise_to_save():
    assert default_clip(problem(Logistic()), 10**8, BUDGET) is None


def test_clipped_slopes_have_less_noise_in_descent_and_in_the_perturbed_objective():
    for kind in (NoisyGradientDescent, ObjectivePerturbation):
        settings = {"n_iter": 10} if kind is NoisyGradientDescent else {"jacobian_share": 0.1}
        noise = [
            kind(clip=clip, **settings)
            .plan(problem(Logistic()), 5000, BUDGET, Tight())
            .stages[0]
            .mechanism.noise
            for clip in (None, 0.6)
        ]
        assert noise[1] / noise[0] == pytest.approx(0.6, rel=0.02)


def test_objective_perturbation_clips_what_has_a_convex_variant():
    planned = ObjectivePerturbation(clip=0.6).plan(problem(Logistic()), 5000, BUDGET, Tight())
    assert planned.stages[0].mechanism.problem.loss == ClippedLogistic(0.6)
    planned = ObjectivePerturbation(clip=0.5).plan(problem(dp.Squared()), 5000, BUDGET, Tight())
    assert planned.stages[0].mechanism.problem.loss == dp.Huber(0.5)
    with pytest.raises(dp.Incompatible, match="no convex variant"):
        ObjectivePerturbation(clip=0.6).plan(problem(dp.SmoothHinge()), 5000, BUDGET, Tight())


@pytest.mark.parametrize("limit", [0.5, 0.6, 0.8])
def test_scores_of_the_clipped_loss_are_too_large_by_the_factor_that_is_taken_back(limit):
    rng = np.random.default_rng(0)
    s = 2 * rng.standard_normal(200_000)
    y = np.where(rng.random(len(s)) < 1 / (1 + np.exp(-s)), 1.0, -1.0)
    best = minimize_scalar(
        lambda a: ClippedLogistic(limit).value(a * s, y).mean(), bounds=(0.5, 3), method="bounded"
    )
    assert inflation(limit) == pytest.approx(best.x, rel=0.02)


def test_without_a_limit_there_is_nothing_to_take_back():
    assert inflation(1 - 1e-9) == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize(
    "solver", [NoisyGradientDescent(clip=0.6), ObjectivePerturbation(clip=0.6)], ids=type
)
def test_coefficients_are_those_of_log_odds(solver):
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (40_000, 2))
    truth = np.array([2.0, -1.0])
    y = (rng.random(len(X)) < 1 / (1 + np.exp(-X @ truth))).astype(int)
    model = dp.PrivateLogisticRegression(
        epsilon=2, bounds=(-1, 1), classes=(0, 1), solver=solver, standardize=False, random_state=0
    ).fit(X, y)
    np.testing.assert_allclose(model.coef_, truth, rtol=0.1)
    assert "clipped at 0.6" in str(model.privacy_statement_)


def test_intervals_are_for_the_minimiser_of_logistic_loss_itself():
    X = np.random.default_rng(0).uniform(-1, 1, (2000, 2))
    model = dp.PrivateLogisticRegression(
        epsilon=1, bounds=(-1, 1), classes=(0, 1), uncertainty=0.2, random_state=0
    ).fit(X, (X[:, 0] > 0).astype(int))
    assert model.plan_.solver.innermost(model.plan_).solver.clip is None


@pytest.mark.parametrize("limit", [0.4, 1.0, math.nan])
def test_a_limit_that_is_none_is_refused(limit):
    with pytest.raises(ValueError, match=r"must be in \[0.5, 1\)"):
        ClippedLogistic(limit)


def test_planning_is_possible_without_a_set_and_with_several_scores():
    free = dp.Problem(Logistic(), None, bounds=dp.Bounds(1.0, 1.2), d=3, l2=0.1)
    assert default_clip(free, 1000, BUDGET) is None
    assert isinstance(plan(free, 1000, BUDGET, (ObjectivePerturbation(),)).solver, ObjectivePerturbation)
    assert plan(problem(Logistic(), 3), 1000, BUDGET).solver.clip == pytest.approx(0.5 * math.sqrt(3))


def test_so_many_cells_that_their_squares_have_no_room_are_not_standardised_unasked():
    asked = dp.Problem(Logistic(), dp.L2Ball(30.0), bounds=dp.Bounds(1.0), d=50)
    assert standardisation_pays(asked, 10**8, BUDGET)
    assert not standardisation_pays(asked, 10**9, BUDGET)


@pytest.mark.long
@pytest.mark.parametrize(
    "domain", [dp.Simplex(), dp.Box([0.5, -1.0, -1.0], [2.0, 1.0, 1.0])], ids=lambda C: type(C).__name__
)
@pytest.mark.parametrize("solver", ["auto", NoisyGradientDescent(clip=0.6)], ids=str)
def test_coefficients_never_leave_a_set_that_does_not_hold_0(domain, solver):
    X = np.random.default_rng(0).uniform(-1, 1, (2000, 3))
    settings = {"epsilon": 1, "bounds": (-1, 1), "classes": (0, 1), "fit_intercept": False, "random_state": 0}
    model = dp.PrivateLogisticRegression(domain=domain, solver=solver, **settings).fit(X, X[:, 0] > 0)
    assert domain.contains(model.coef_, 1e-9)
    np.testing.assert_allclose(model.coef_, model.release_.theta)


@pytest.mark.parametrize("settings", [{}, {"standardize": False}, {"bounds": "private"}], ids=str)
def test_a_loaded_classifier_scores_as_the_fitted_one(settings, tmp_path):
    X = np.random.default_rng(0).uniform(-1, 1, (2000, 3))
    settings = {"epsilon": 1, "bounds": (-1, 1), "classes": (0, 1), "random_state": 0, **settings}
    model = dp.PrivateLogisticRegression(**settings).fit(X, (X[:, 0] > 0).astype(int))
    assert model.plan_.solver.innermost(model.plan_).solver.clip == pytest.approx(0.5)
    if settings["bounds"] != "private":
        np.testing.assert_allclose(model.coef_ * inflation(0.5), model.release_.theta[:3])
    model.save(tmp_path / "model.json")
    loaded = dp.load(tmp_path / "model.json")
    np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize(
    "solver", [NoisyGradientDescent(n_iter=5, clip=0.6), ObjectivePerturbation(clip=0.6)], ids=type
)
def test_standard_errors_of_clipped_slopes_do_not_take_logistic_loss_at_its_word(solver):
    from dpcvx.solvers.one_step import with_uncertainty

    for fit in (solver, type(solver)()):
        planned = with_uncertainty(fit, 0.2, Logistic()).plan(problem(Logistic()), 2000, BUDGET, Tight())
        moments = planned.stages[-1].mechanism
        assert moments.clip == fit.clip
        assert moments.meat_multiplier is not None
        assert planned.solver._likelihood(problem(Logistic()), BUDGET) == (fit.clip is None)
        assert planned.price.epsilon <= BUDGET.epsilon


def test_the_engine_asks_for_the_minimiser_of_the_loss_itself():
    asked = problem(Logistic())
    assert default_clip(asked, 1000, BUDGET) == pytest.approx(0.5)
    assert Measurer(1000, 4.0, 1e-7)._plan(asked).solver.clip is None


def test_clips_for_standard_errors_grow_with_the_records_so_that_their_bias_stays_below_the_errors():
    """6 standard deviations at 20,000 records; at a million, clips of 8 left intervals that cover 80 %."""
    model = dp.PrivateLinearRegression(epsilon=1.0, bounds=(-1, 1), y_bounds=(-1, 1), uncertainty=0.2)
    clips = [model.plan(n, 5).solver.residual for n in (2_000, 20_000, 200_000, 1_000_000)]
    assert clips == sorted(clips)
    assert 4.5 < clips[1] < 6
    assert 13 < clips[3] < 16
