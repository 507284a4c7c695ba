"""The table of every solver that fits: what is listed, at which cost, and what it is predicted to give."""

import math
import re

import numpy as np
import pytest

import dpcvx as dp
import dpcvx.solvers
from dpcvx.accounting import Tight
from dpcvx.noise import SeededGenerator
from dpcvx.planning.candidates import GaussianLimit, list_all, list_others, memory, rehearse_once
from dpcvx.planning.outlook import doubt, is_useful, predicted_risk
from dpcvx.planning.planner import default_clip, plan, residual_clip
from dpcvx.planning.rehearsal import Scene, rehearse, risk_at_zero, scenes
from dpcvx.plans import execute
from dpcvx.solvers import (
    NAMED_SOLVERS,
    SOLVERS,
    NoisyCorrectiveFrankWolfe,
    NoisyFrankWolfe,
    NoisyGradientDescent,
    NoisyMirrorDescent,
    NoisySVRG,
    ObjectivePerturbation,
    OneStep,
    Standardised,
)
from dpcvx.solvers.memo import forget

BUDGET = dp.Budget(1.0, 1e-8)
ROUND = dp.Problem(dp.Squared(), dp.L2Ball(3.0), bounds=dp.Bounds(1.0, 1.0), d=6)
RIDGED = dp.Problem(dp.Logistic(), dp.L1Ball(5.0), bounds=dp.Bounds(1.0), d=6, l2=0.01)


def feasible(problem, n):
    """Names of the solvers that make a plan, found by trying each."""
    names = set()
    for kind in SOLVERS:
        settings = {"clip": residual_clip(problem)} if "clip" in kind.__dataclass_fields__ else {}
        try:
            kind(**settings).plan(problem, n, BUDGET, GaussianLimit() if "SVRG" in kind.__name__ else Tight())
        except dp.Incompatible:
            continue
        names.add(kind.__name__)
    return names


@pytest.mark.parametrize("problem", [ROUND, RIDGED], ids=["round", "polytope with a ridge"])
@pytest.mark.long
def test_every_solver_that_fits_is_listed_once_in_order(problem):
    candidates = plan(problem, 3000, BUDGET).candidates
    names = [type(each.solver).__name__ for each in candidates]
    assert set(names) == feasible(problem, 3000)
    assert len(set(names)) == len(names) >= 7
    weighed = [each for each in candidates if each.weighed]
    assert list(candidates[: len(weighed)]) == weighed  # the others are listed after them, without prediction
    assert weighed == sorted(weighed, key=lambda each: each.handicap * each.predicted)
    assert weighed[0].solver == plan(problem, 3000, BUDGET).solver
    assert all(math.isnan(each.predicted) for each in candidates[len(weighed) :])


@pytest.mark.long
def test_the_number_in_the_table_is_the_number_that_decides():
    """One basis for all candidates; the smallest product of prediction and handicap runs."""
    for problem in (ROUND, RIDGED, dp.Problem(dp.Logistic(), dp.L2Ball(9.0), bounds=dp.Bounds(1.0), d=5)):
        for n in (300, 3000, 30_000):
            made = plan(problem, n, BUDGET)
            weighed = [each for each in made.candidates if each.weighed]
            assert len({each.basis for each in weighed}) == 1
            best = min(weighed, key=lambda each: each.handicap * each.predicted)
            assert made.chosen is best
            assert f"{best.predicted:.3g}" in next(
                line for line in str(made).splitlines() if "(chosen)" in line
            )
            assert (best.optimisation, best.privacy) == predicted_risk(made)


def test_every_solver_of_the_package_may_be_listed():
    from dpcvx import solvers

    kinds = {name for name in solvers.__all__ if hasattr(getattr(solvers, name), "predict")}
    assert {kind.__name__ for kind in SOLVERS} == kinds - {
        "ConstantModel",
        "OneStep",
        "ScaledTarget",
        "SpectralShrinkage",
        "Standardised",
    }


def test_one_list_of_solvers_serves_estimators_command_line_and_package():
    model = dp.PrivateLinearRegression(epsilon=1.0, bounds=(0, 1), y_bounds=(0, 1), solver="unknown")
    with pytest.raises(ValueError) as refused:  # the command line refers to this message
        model.plan(1000, 3)
    assert set(re.findall(r"'(\w+)'", str(refused.value))) == {"unknown", "auto", *NAMED_SOLVERS}
    assert set(NAMED_SOLVERS.values()) <= set(SOLVERS)
    assert all(kind.__name__ in dpcvx.solvers.__all__ for kind in SOLVERS)


def test_the_plan_of_a_standardised_fit_without_promise_says_what_would_be_enough():
    problem = dp.Problem(dp.Logistic(), dp.L2Ball(5.0), bounds=dp.Bounds(1.0), d=30)
    made = Standardised(NoisyGradientDescent(clip=0.6)).plan(problem, 150, dp.Budget(0.1, 1e-6), Tight())
    assert not is_useful(made)
    assert doubt(made).records > 150


@pytest.mark.long
def test_costs_are_those_of_the_plan():
    made = plan(RIDGED, 3000, BUDGET)
    by_kind = {type(each.solver): each for each in made.candidates}
    for kind in (NoisyGradientDescent, NoisyCorrectiveFrankWolfe, ObjectivePerturbation):
        each = by_kind[kind]
        alone = each.solver.plan(RIDGED, 3000, BUDGET, Tight())
        assert each.answers == alone.n_calls
        assert each.gradient_evaluations == alone.gradient_evaluations
        assert each.noise == tuple(stage.mechanism.noise for stage in alone.stages)


@pytest.mark.slow
def test_samples_are_listed_at_a_price_close_to_the_exact_one():
    listed = {type(each.solver): each for each in plan(RIDGED, 3000, BUDGET).candidates}[NoisySVRG]
    exact = NoisySVRG(clip=default_clip(RIDGED, 3000, BUDGET)).plan(RIDGED, 3000, BUDGET, Tight())
    assert listed.answers == exact.n_calls
    assert max(listed.noise) == pytest.approx(max(s.mechanism.noise for s in exact.stages), rel=0.15)


def test_memory_follows_from_public_sizes():
    n, d = 3000, RIDGED.d
    descent = NoisyGradientDescent(n_iter=3).plan(RIDGED, n, BUDGET, Tight())
    assert memory(descent) == 4 * n * d + 8 * n + 64 * d  # short rows are kept feature-major too
    wide = dp.Problem(dp.Logistic(), dp.L1Ball(5.0), bounds=dp.Bounds(1.0), d=64)
    long = NoisyGradientDescent(n_iter=3).plan(wide, n, BUDGET, Tight())
    assert memory(long) == 2 * n * 64 + 8 * n + 64 * 64
    assert memory(descent, density=0.1) == pytest.approx(0.6 * n * d + 8 * n + 64 * d)
    vertices = NoisyFrankWolfe(n_iter=3).plan(RIDGED, n, BUDGET, Tight())
    both = NoisyCorrectiveFrankWolfe(n_iter=4, selections=2).plan(RIDGED, n, BUDGET, Tight())
    assert memory(vertices) - memory(descent) == 12 * n - 2 * n * d
    assert memory(both) - memory(vertices) == 2 * n * d  # rows and columns
    minimiser = ObjectivePerturbation().plan(RIDGED, n, BUDGET, Tight())
    assert memory(minimiser) - memory(descent) == 6 * n * d + 24 * n
    for density in (0.0, 1.5):
        with pytest.raises(ValueError, match="density"):
            plan(RIDGED, n, BUDGET, density=density)


def test_a_named_solver_can_be_shown_beside_all_others():
    alone = plan(ROUND, 3000, BUDGET, (NoisyMirrorDescent(clip=1.0),))
    shown = list_all(alone)
    assert len(alone.candidates) == 1
    assert {type(each.solver).__name__ for each in shown.candidates} == feasible(ROUND, 3000)
    assert [type(each.solver) for each in shown.candidates if each.weighed] == [NoisyMirrorDescent]
    assert shown.stages == alone.stages


def test_standardised_fits_are_compared_with_standardised_ones_and_rehearsed_in_their_coordinates():
    solver = Standardised(NoisyGradientDescent(clip=1.0))
    made = solver.plan(
        dp.Problem(dp.Squared(), dp.L2Ball(3.0), bounds=dp.Bounds(1.0), d=5), 3000, BUDGET, Tight()
    )
    inside = made.solver.innermost(made)
    assert type(inside.solver) is NoisyGradientDescent
    assert inside.problem == solver.inner(made.problem)
    assert inside.n_calls == made.n_calls - made.stages[0].n_calls - 3
    floor = 2 * float(made.stages[2].mechanism.deviations[:5].max())
    assert rehearse_once(made) == rehearse(inside, (min(1.0, 0.1 / floor), min(1.0, 0.01 / floor)))
    assert {type(each.solver) for each in list_others(made, (made,), clip=1.0)} == {Standardised}


def test_a_rehearsal_of_descent_is_descent_on_a_quadratic():
    """Without noise theta_t - theta* = (1 - step h)^t (theta_0 - theta*); two of five are averaged."""
    problem = dp.Problem(dp.Squared(), dp.L2Ball(50.0), bounds=dp.Bounds(1.0, 1.0), d=3)
    solver = NoisyGradientDescent(n_iter=5, step=0.5, momentum=0.0, clip=1.0)
    made = solver.plan(problem, 10**9, BUDGET, Tight())
    left = [
        float((s.curvatures * (s.target * left**4 * (1 + left) / 2) ** 2).sum()) / 2
        for s in scenes(problem, 1.0)
        for left in [1 - 0.5 * s.curvatures]
    ]
    optimisation, privacy = rehearse(made)
    assert optimisation == pytest.approx(max(left), rel=1e-9)
    assert privacy < 1e-9


def test_the_noise_of_a_rehearsal_is_the_planned_one():
    """One step of length 1 from 0 adds h sigma^2/2 in every direction."""
    problem = dp.Problem(dp.Squared(), dp.L2Ball(1e4), bounds=dp.Bounds(1.0, 1.0), d=400)
    made = NoisyGradientDescent(n_iter=1, step=1.0, momentum=0.0, clip=1.0).plan(problem, 30, BUDGET, Tight())
    sigma = made.stages[0].mechanism.noise
    _, privacy = rehearse(made)
    heavy = max(float(s.curvatures.sum()) for s in scenes(problem, 1.0))
    assert privacy == pytest.approx(heavy * sigma**2 / 2, rel=0.35)


def test_scenes_leave_the_same_to_learn_and_get_harder_where_only_columns_are_bounded():
    by_norm, by_columns = (
        dp.Problem(dp.Logistic(), dp.L2Ball(30.0), bounds=bounds, d=9)
        for bounds in (dp.Bounds(1.0, 1.0), dp.Bounds(1.0))
    )
    for problem in (by_norm, by_columns):
        costs = [scene.excess(np.zeros(9)) for scene in scenes(problem)]
        assert costs == pytest.approx([math.log(2)] * len(costs))
        assert risk_at_zero(problem) == pytest.approx(math.log(2))
    assert len(scenes(by_columns)) == len(scenes(by_norm)) + 2
    budget = dp.Budget(1.0, 1e-8)
    risks = [
        plan(each, 20_000, budget, (NoisyGradientDescent(),)).candidates[0].predicted
        for each in (by_norm, by_columns)
    ]
    assert risks[1] > risks[0]


def test_losses_without_a_model_keep_their_bounds():
    problem = dp.Problem(dp.Quantile(0.5), dp.L2Ball(3.0), bounds=dp.Bounds(1.0), d=4)
    made = plan(problem, 3000, BUDGET)
    assert {each.basis for each in made.candidates} == {"bound"}
    assert {each.basis for each in plan(ROUND, 3000, BUDGET).candidates} == {"typical", "none"}


@pytest.mark.long
def test_predictions_rank_solvers_as_measured_risks_do():
    """Data that no prediction knows: the order of the solvers is right, and few predictions are too low."""
    rng = np.random.default_rng(0)
    n, d = 4000, 8
    problem = dp.Problem(dp.Squared(), dp.L2Ball(3.0), bounds=dp.Bounds(1.0), d=d)
    rows = rng.uniform(-1, 1, (n, d)) * rng.uniform(0.3, 1, d)
    truth = rng.normal(size=d) / 3
    y = np.clip(rows @ truth + 0.1 * rng.normal(size=n), -1, 1)
    best = np.linalg.lstsq(rows, y, rcond=None)[0]
    source = dp.source(rows, y, bounds=problem.bounds)
    predicted, measured = [], []
    for each in plan(problem, n, BUDGET).candidates:
        if "SVRG" in type(each.solver).__name__:
            continue  # its exact price takes seconds
        made = each.solver.plan(problem, n, BUDGET, Tight())
        thetas = [execute(made, source, rng=SeededGenerator(seed)).theta for seed in range(2)]
        measured.append(np.mean([np.mean((rows @ (theta - best)) ** 2) / 2 for theta in thetas]))
        predicted.append(sum(predicted_risk(made)))
    from scipy.stats import spearmanr

    assert spearmanr(predicted, measured).statistic > 0.7
    assert np.mean(np.array(predicted) >= measured) >= 0.8


def test_a_scene_costs_nothing_at_its_minimiser():
    scene = Scene(np.array([1.0, 2.0]), np.array([3.0, -1.0]))
    assert scene.excess(scene.target) == 0
    assert scene.excess(np.zeros(2)) == (9 + 2) / 2
    assert scene.gradient(np.zeros(2)).tolist() == [-3.0, 2.0]


def test_a_prediction_does_not_depend_on_the_plans_that_were_made_before_it():
    def fit(share):
        return NoisyGradientDescent() if share == 0 else OneStep(NoisyGradientDescent(), share)

    def predicted(share):
        problem = dp.Problem(dp.Logistic(), dp.L2Ball(30.0), bounds=dp.Bounds(1.0, 1.0), d=8)
        made = plan(problem, 3000, dp.Budget(1.0, 1e-6), (fit(share),))
        return made.candidates[0].optimisation, made.candidates[0].privacy

    def in_order(shares):
        forget()
        return {share: predicted(share) for share in shares}

    # With 0.8 of the budget on the Hessian the loop, which is that of share 0, has noise of its own.
    assert in_order((0, 0.8)) == in_order((0.8, 0))
    assert in_order((0, 0.8))[0] != in_order((0, 0.8))[0.8]


def test_a_plan_of_records_is_refused_with_the_right_call():
    X = np.zeros((5, 2))
    model = dp.PrivateLogisticRegression(epsilon=1.0, bounds=(-1, 1), classes=(0, 1))
    with pytest.raises(dp.errors.WrongType, match="reads no records"):
        model.plan(X, np.zeros(5))
