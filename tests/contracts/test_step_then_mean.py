"""One gradient step and the mean of the residuals: its price, its sensitivities, and when it is chosen."""

import warnings

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.accounting import Tight
from dpcvx.solvers import ScaledTarget, StepThenMean
from dpcvx.solvers.step_then_mean import step_pays

N, D = 1595, 101
PROBLEM = dp.Problem(dp.Squared(), dp.L2Ball(3.0), bounds=dp.Bounds(1.0), d=D)
BUDGET = dp.Budget(0.1, 1 / N**2)


def test_sensitivities_are_those_of_a_row_and_of_one_feature():
    plan = ScaledTarget(StepThenMean(), residual=0.8).plan(PROBLEM, N, BUDGET, Tight())
    _, step, mean = plan.stages
    assert step.mechanism.sensitivity == pytest.approx(2 * 0.32 * D**0.5 / N, rel=1e-4)
    assert step.mechanism.sensitivity == pytest.approx(4.0326e-3, rel=1e-4)
    assert mean.mechanism.sensitivity == pytest.approx(4.0125e-4, rel=1e-4)
    assert (step.n_calls, mean.n_calls) == (1, 2)
    assert 0.099 <= plan.price.epsilon <= 0.1


def test_several_targets_and_unknown_scales_are_refused():
    with pytest.raises(dp.Incompatible, match="one target"):
        StepThenMean().plan(PROBLEM, N, BUDGET, Tight())


def test_the_prediction_improves_with_records():
    fits = [ScaledTarget(StepThenMean(), residual=0.8).predict(PROBLEM, n, BUDGET) for n in (N, 4 * N)]
    assert sum(fits[1]) < sum(fits[0])


def test_one_step_is_for_few_records_and_more_than_a_few_columns():
    few = dp.Problem(dp.Squared(), dp.L2Ball(3.0), bounds=dp.Bounds(1.0), d=4)
    assert step_pays(PROBLEM, N, BUDGET)
    assert not step_pays(few, N, BUDGET)
    assert not step_pays(PROBLEM, N, dp.Budget(1.0, 1 / N**2))
    assert not step_pays(PROBLEM, 100, BUDGET)
    assert not step_pays(PROBLEM, N, dp.Budget(0.1, 0.0))


@pytest.mark.long
def test_one_step_keeps_a_strong_common_direction():
    rng = np.random.default_rng(0)
    n, d = 1600, 100
    common = rng.normal(size=(n, 1))
    X = np.clip(0.35 + 0.12 * common + 0.12 * rng.normal(size=(n, d)), 0, 1)
    y = np.clip(0.25 + 0.16 * common[:, 0] + 0.12 * rng.normal(size=n), 0, 1)
    scores = []
    for seed in range(4):
        model = dp.PrivateLinearRegression(epsilon=0.1, bounds=(0, 1), y_bounds=(0, 1), random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dp.UselessModelWarning)
            residuals = y - model.fit(X, y).predict(X)
        scores.append(1 - np.mean(residuals**2) / y.var())
    assert isinstance(model.plan_.solver.solver, StepThenMean)
    assert np.mean(scores) > 0.1
