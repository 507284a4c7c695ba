"""Fits of many cells take fewer and longer steps than those of few, and are as good."""

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.solvers import NoisyGradientDescent, few_steps

D = 20


def planned(n, **settings):
    model = dp.PrivateLogisticRegression(epsilon=0.3, bounds=(-1, 1), classes=(0, 1), **settings)
    return model.plan(n, D)


def descent(plan):
    assert isinstance(plan.solver.solver, NoisyGradientDescent)
    return plan.solver.solver


def test_descent_on_many_cells_has_fewer_and_longer_steps():
    """2,000,000 cells have them, one record less has not."""
    n = int(few_steps.MANY_CELLS) // D
    few, many = descent(planned(n - 1)), descent(planned(n))
    assert (few.settled, few.stride) == (20.0, 1.0)
    assert (many.settled, many.stride) == (12.0, 3.0)
    assert few.n_iter > 2 * many.n_iter
    assert many.step > few.step


@pytest.mark.parametrize("settings", [{"n_iter": 50}, {"solver": "gradient_descent"}, {"uncertainty": 0.2}])
def test_steps_that_a_user_chooses_and_those_of_standard_errors_stay(settings):
    plan = planned(int(few_steps.MANY_CELLS) // D, **settings)
    solver = plan.solver.solver
    solver = getattr(solver, "solver", solver)  # standard errors are made around the descent
    assert solver.stride == 1.0


@pytest.mark.long
def test_fits_with_fewer_steps_are_as_good(monkeypatch):
    """Columns share a factor, so that most directions bend little; log-loss differs by less than 0.0005."""
    rng = np.random.default_rng(1)
    n = 100_000
    X = np.clip(rng.normal(size=(n, D)) + rng.normal(size=(n, 1)), -6, 6)
    w = rng.normal(size=D) / np.sqrt(D)
    y = (rng.uniform(size=n) < 1 / (1 + np.exp(-X @ w))).astype(int)

    def loss(seed):
        model = dp.PrivateLogisticRegression(
            epsilon=1.0, bounds=(-6, 6), classes=(0, 1), random_state=seed
        ).fit(X, y)
        scores = model.decision_function(X)
        return np.mean(np.logaddexp(0, scores) - y * scores)

    with_few = np.mean([loss(seed) for seed in range(3)])
    monkeypatch.setattr(few_steps, "MANY_CELLS", np.inf)
    assert with_few < np.mean([loss(seed) for seed in range(3)]) + 5e-4
