"""Phases of a descent with noise of their own: steps are charged with it, and answers have less noise."""

import numpy as np
import pytest

import dpcvx as dp
from adversary import neighbour, records, stored
from dpcvx.accounting import Tight, gaussian_mu, spendable
from dpcvx.audit import discrepancies, record, replay, share
from dpcvx.checker import verify_statement
from dpcvx.estimators.planning import PHASES
from dpcvx.events import Gaussian
from dpcvx.noise import SeededGenerator
from dpcvx.plans import Asking
from dpcvx.solvers import NoisyGradientDescent
from dpcvx.solvers.typical_data import Typical

BUDGET = dp.Budget(1.0, 1e-6)


def planned(phases, n_iter=None, d=20, n=5000, budget=BUDGET):
    problem = dp.Problem(dp.Logistic(), dp.L2Ball(30.0), bounds=dp.Bounds(1.0, 1.0), d=d)
    return NoisyGradientDescent(n_iter, clip=0.5, phases=phases).plan(problem, n, budget, Tight())


@pytest.mark.parametrize("n_iter", [None, 1, 2, 5, 9, 40])
def test_the_phases_have_all_steps_and_use_the_budget_exactly(n_iter):
    plan, plain = planned(PHASES, n_iter), planned((), n_iter)
    assert plan.n_calls == plain.n_calls == plan.solver.n_iter
    assert (len(plan.stages) > 1) == (plan.n_calls > 1)
    spent = sum(stage.n_calls / stage.mechanism.noise_multiplier**2 for stage in plan.stages)
    paid = spendable(BUDGET)
    assert spent == pytest.approx(gaussian_mu(paid.epsilon, paid.delta) ** 2, rel=1e-6)
    assert Tight().epsilon(plan.event, BUDGET.delta) <= BUDGET.epsilon
    for stage in plan.stages:  # the noise that is drawn is the one that is charged
        assert stage.mechanism.event == Gaussian(stage.mechanism.noise_multiplier)
        assert stage.mechanism.noise >= stage.mechanism.noise_multiplier * stage.mechanism.sensitivity


@pytest.mark.parametrize(("curvature", "length"), [(1e-6, 5.0), (0.3, 5.0), (2.0, 5.0)])
def test_what_noise_costs_is_that_of_a_descent(curvature, length):
    typical, T = Typical(np.array([curvature]), np.array([1.0]), 1.0), 900
    step, late, theta = 6 / 5 * length / T, np.zeros(T), np.zeros(T)
    for t in range(T):  # a unit of noise in one step of each descent
        theta = theta * (1 - step * curvature)
        theta[t] -= step
        late += theta / 300 if t >= 600 else 0
    measured = (curvature / 2 * late**2).reshape(9, 100).mean(axis=1) / step**2
    ends = tuple((k + 1) / 9 for k in range(9))
    tolerance = 0.02 * measured.max()
    np.testing.assert_allclose(typical.noise_weights(length, ends), measured, rtol=0.03, atol=tolerance)


@pytest.mark.parametrize(("d", "n"), [(20, 5000), (120, 30_000), (50_000, 16_000)])
def test_the_noise_of_phases_costs_less_than_equal_noise(d, n):
    plan, plain = planned(PHASES, d=d, n=n), planned((), d=d, n=n)
    solver = plan.solver
    length = solver._reached(plan.problem, n, BUDGET)
    costs = Typical.of(plan.problem, 0.5).noise_weights(length, PHASES)
    variances = [stage.mechanism.noise**2 for stage in plan.stages]
    steps = [stage.n_calls for stage in plan.stages]
    cost = np.dot(steps, costs * variances)
    equal = np.dot(steps, costs) * plain.stages[0].mechanism.noise ** 2
    assert 0.8 * equal < cost < 0.94 * equal


def test_no_phase_has_more_than_twice_the_noise_of_another():
    plan = planned(PHASES, d=2, n=10**6)  # a long path, on which noise of early steps fades wholly
    noises = [stage.mechanism.noise for stage in plan.stages]
    assert 1.9 < max(noises) / min(noises) <= 2 * (1 + 1e-6)


class Slopes(Asking):
    """Answers the intercept's slope with the errors that are given, no features."""

    def __init__(self, errors):
        self.errors = iter(errors)

    def ask(self, *public, question=None):
        """Return the next gradient."""
        return np.array([0.0, next(self.errors)])


def test_the_last_step_of_an_intercept_weighs_answers_by_their_noise():
    problem = dp.Problem(dp.Logistic(), dp.L2Ball(30.0), bounds=dp.Bounds(1.0, 1.0), d=2)
    solver = NoisyGradientDescent(9, 1.0, 0.0, intercept=0.2, phases=(2 / 3, 8 / 9, 1.0))
    plan = solver.plan(problem, 1000, BUDGET, Tight())
    noise = np.array([stage.mechanism.noise for stage in plan.stages])
    assert noise[2] > noise[1]
    slopes = np.array([0.0] * 6 + [5.0, 5.0, 6.0])
    with_step, without = (
        run(plan, Slopes(slopes)) for run in (plan.solver.run, NoisyGradientDescent(9, 1.0, 0.0).run)
    )
    precision = np.array([2, 1]) / noise[1:] ** 2
    mean = np.dot(precision, [5.0, 6.0]) / precision.sum()
    moved = (mean - 2 / np.sqrt(precision.sum())) / 0.2 / (0.2 * 0.25)
    expected = max(without[1] - moved, -30.0)
    assert with_step[1] == pytest.approx(expected)


@pytest.mark.long
def test_neighbours_are_asked_the_same_and_differ_by_the_sensitivity():
    rng, loss = np.random.default_rng(5), dp.Logistic()
    for seed in range(10):
        problem = dp.Problem(loss, dp.L2Ball(3.0), bounds=dp.Bounds(1.0, 1.0), d=3)
        plan = NoisyGradientDescent(9, 0.8, 0.5, 0.3, phases=PHASES).plan(
            problem, 7, dp.Budget(4.0, 1e-6), Tight()
        )
        assert len(plan.stages) == 6
        X, y = records(loss, (7, 3), 1, rng)
        one = stored(X, y, problem.bounds, "dense")
        other = stored(*neighbour(X, y, loss, 1, "replace", rng), problem.bounds, "dense")
        first = record(plan, one, SeededGenerator(seed))
        second = replay(plan, other, SeededGenerator(seed + 1), first)
        assert discrepancies(plan, first, second) == []
        assert max(share(plan, a, b) for a, b in zip(first.questions, second.questions, strict=True)) <= 1


@pytest.mark.long
def test_statements_name_the_noise_of_each_phase_and_are_verified():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (400, 2))
    y = (X[:, 0] > 0).astype(float)
    settings = {"epsilon": 2.0, "delta": 1e-6, "bounds": (-1, 1), "classes": (0, 1)}
    model = dp.PrivateLogisticRegression(data_norm=1.0, **settings).fit(X, y)
    statement = model.privacy_statement_.to_dict()
    noises = {
        each["noise_multiplier"] for each in statement["mechanisms"] if each["question"] == "NoisyGradient"
    }
    assert len(noises) == 6
    assert verify_statement(statement).holds
    regression = dp.PrivateLinearRegression(epsilon=1.0, delta=1e-6, bounds=(-1, 1), y_bounds=(-1, 1))
    assert gradient_stages(regression) == 6
    for other in (model, regression):  # standard errors are computed for equal noise
        assert gradient_stages(other.set_params(uncertainty=0.2)) == 1


def gradient_stages(model):
    """The number of stages that release gradients."""
    questions = [stage.mechanism.traits.question for stage in model.plan(5000, 2).stages]
    return questions.count("gradient")


@pytest.mark.parametrize("kind", ["PrivateLinearRegression", "PrivateLogisticRegression"])
def test_default_fits_have_phases_and_those_with_standard_errors_do_not(kind):
    def phases(**settings):
        y = {"classes": (0, 1)} if "Logistic" in kind else {"y_bounds": (0, 1)}
        model = getattr(dp, kind)(epsilon=1.0, bounds=(0, 1), **y, **settings)
        solver = model.plan(5_000, 10).solver
        while not hasattr(solver, "phases"):
            solver = solver.solver
        return solver.phases

    assert phases() == PHASES
    assert not phases(standardize=False, uncertainty=0.2)
