"""The last step of a classifier's intercept: it follows released slopes, and noise does not move it."""

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.accounting import Tight
from dpcvx.plans import Asking
from dpcvx.solvers import NoisyGradientDescent

PROBLEM = dp.Problem(dp.Logistic(), dp.L2Ball(30.0), bounds=dp.Bounds(1.0, 1.02), d=4)
VALUE = 0.2


class ConstantSlopes(Asking):
    """Answers that all slopes are the same, without features."""

    def __init__(self, slope):
        self.slope = slope

    def ask(self, *public, question=None):
        """Return the gradient of a constant slope."""
        return self.slope * np.array([0.0, 0.0, 0.0, VALUE])


def run(slope, intercept=VALUE):
    solver = NoisyGradientDescent(n_iter=9, step=1.0, momentum=0.0, intercept=intercept)
    plan = solver.plan(PROBLEM, 2000, dp.Budget(1.0, 1e-6), Tight())
    noise = plan.stages[0].mechanism.noise / (VALUE * np.sqrt(3))  # of the mean of three answers
    return plan.solver.run(plan, ConstantSlopes(slope)), noise


def test_a_slope_beyond_its_noise_moves_the_intercept_by_a_newton_step():
    noise = run(0.0)[1]
    slope = 5 * noise
    settled, plain = run(slope)[0], run(slope, intercept=0.0)[0]
    np.testing.assert_array_equal(settled[:-1], plain[:-1])
    # A score moves by VALUE times the coefficient; the curvature of logistic loss is at most 1/4.
    assert VALUE * (plain[-1] - settled[-1]) == pytest.approx(3 * noise / 0.25)


@pytest.mark.parametrize("share", [-2.0, -0.5, 1.9])
def test_noise_does_not_move_the_intercept(share):
    slope = share * run(0.0)[1]
    np.testing.assert_array_equal(run(slope)[0], run(slope, intercept=0.0)[0])


def test_the_step_asks_nothing():
    plans = [
        NoisyGradientDescent(n_iter=9, intercept=value).plan(PROBLEM, 2000, dp.Budget(1.0, 1e-6), Tight())
        for value in (0.0, VALUE)
    ]
    assert plans[0].event == plans[1].event
    assert plans[0].stages == plans[1].stages


def test_svc_of_three_classes_is_standardised():
    model = dp.PrivateLinearSVC(epsilon=1.0, delta=1e-6, bounds=(0, 1), classes=(0, 1, 2))
    assert model.plan(5000, 6).solver.standardises
