"""[TTZ14] Appendix B: Frank-Wolfe on noisy gradients over any convex set."""

from dataclasses import dataclass

import numpy as np
import pytest

from dpcvx.accounting import Budget, Tight, gaussian_mu
from dpcvx.data.memory import source
from dpcvx.domains import Box, L1Ball, L2Ball, LinfBall, Simplex
from dpcvx.errors import Incompatible
from dpcvx.losses import Huber, Logistic, Quantile, Squared
from dpcvx.noise import SeededGenerator
from dpcvx.plans import execute
from dpcvx.problem import Bounds, Problem
from dpcvx.solvers import NoisyGeneralFrankWolfe, NoisyGradientDescent
from exact import ExactOracle, solve_exactly

N, D = 800, 5
BUDGET = Budget(1.0, 1e-6)
SETS = [L2Ball(1.0), Box(-0.4, 0.6), LinfBall(0.5), L1Ball(0.8), Simplex(0.7)]


def records():
    rng = np.random.default_rng(1)
    X = np.trunc(rng.uniform(-1, 1, (N, D)) * 2**14) / 2**14
    return X, np.where(X @ [0.9, -0.6, 0.3, 0, 0] + 0.2 * rng.normal(size=N) > 0, 1.0, -1.0)


def lowest(problem):
    X, y = records()
    theta, oracle = solve_exactly(
        NoisyGradientDescent(1500, 1 / problem.smoothness), problem, X, y, BUDGET, Tight()
    )
    return oracle.objective(theta)


@pytest.mark.parametrize("loss", [Squared(), Logistic(), Huber(0.4)], ids=repr)
@pytest.mark.parametrize("domain", SETS, ids=repr)
@pytest.mark.parametrize("T", [4, 40])
def test_without_noise_decaying_steps_are_within_the_bound(loss, domain, T):
    problem = Problem(loss, domain, bounds=Bounds(1.0), d=D)
    theta, oracle = solve_exactly(NoisyGeneralFrankWolfe(T), problem, *records(), BUDGET, Tight())
    excess = oracle.objective(theta) - lowest(problem)
    assert -1e-6 < excess <= 2 * problem.curvature / (T + 2)
    assert domain.contains(theta)


def mean_excess(problem, plan, seeds=8):
    X, y = records()
    oracle, data = ExactOracle(plan, X, y), source(X, y, bounds=problem.bounds)
    thetas = [execute(plan, data, rng=SeededGenerator(seed)).theta for seed in range(seeds)]
    return np.mean([oracle.objective(theta) for theta in thetas]) - lowest(problem)


@pytest.mark.parametrize("domain", SETS, ids=repr)
def test_with_noise_the_excess_risk_is_within_the_width_of_the_set(domain):
    """[TTZ14] Theorem B.2: 2 curvature/(T + 2) + sigma G_C."""
    problem = Problem(Logistic(), domain, bounds=Bounds(1.0), d=D)
    plan = NoisyGeneralFrankWolfe(20).plan(problem, N, BUDGET, Tight())
    bound = 2 * problem.curvature / 22 + plan.stages[0].mechanism.noise * domain.gaussian_width(D)
    assert -1e-3 < mean_excess(problem, plan) <= bound


def test_the_default_balances_both_parts():
    problem = Problem(Logistic(), L2Ball(1.0), bounds=Bounds(1.0), d=D)
    plan = NoisyGeneralFrankWolfe().plan(problem, N, BUDGET, Tight())
    predicted = [sum(NoisyGeneralFrankWolfe(T).predict(problem, N, BUDGET)) for T in range(1, 120)]
    assert predicted[plan.n_calls - 1] <= 1.005 * min(predicted)
    # One gradient for each move (PRIVACY_MATH §3), at the exact noise for as many.
    sigma = 2 * problem.lipschitz(2) * np.sqrt(plan.n_calls) / (N * gaussian_mu(1.0, 1e-6 * 0.999))
    assert plan.stages[0].mechanism.noise == pytest.approx(sigma, rel=1e-3)


@dataclass(frozen=True)
class Careless(L2Ball):
    """A ball whose linear minimisation is off by a tenth of what there is to gain."""

    def lmo(self, g):
        return 0.9 * super().lmo(g)


def test_an_inexact_minimisation_costs_accuracy_and_no_privacy():
    problems = [Problem(Logistic(), ball, bounds=Bounds(1.0), d=D) for ball in (L2Ball(1.0), Careless(1.0))]
    plans = [NoisyGeneralFrankWolfe(20).plan(problem, N, BUDGET, Tight()) for problem in problems]
    assert plans[0].event == plans[1].event
    assert plans[0].stages[0].mechanism.noise == plans[1].stages[0].mechanism.noise
    X, y = records()
    thetas = [plan.solver.run(plan, ExactOracle(plan, X, y)) for plan in plans]
    oracle = ExactOracle(plans[0], X, y)
    # <g, s_t> misses the minimum by at most 0.1 max ||g||_2, which adds up to no more than one such error.
    error = 0.1 * problems[0].lipschitz(2)
    gap = oracle.objective(thetas[1]) - lowest(problems[0])
    assert 0 < gap <= 2 * problems[0].curvature / 22 + error
    assert oracle.objective(thetas[1]) > oracle.objective(thetas[0])


def test_both_step_rules_move_as_they_say():
    """T constant moves of log(T + 1)/(T + 1) towards one corner leave (1 - mu)^T < 1/T of the way."""
    problem = Problem(Logistic(), L1Ball(1.0), bounds=Bounds(1.0), d=D)
    X = np.zeros((N, D))
    X[:, 0] = 1.0
    y = np.ones(N)
    theta, _ = solve_exactly(NoisyGeneralFrankWolfe(8, "constant"), problem, X, y, BUDGET, Tight())
    assert theta[0] == pytest.approx(1 - (1 - np.log(9) / 9) ** 8)
    assert theta[0] > 1 - 1 / 8
    theta, oracle = solve_exactly(NoisyGeneralFrankWolfe(3), problem, -X, y, BUDGET, Tight())
    assert [point[0] for point in oracle.points] == [0.0, -1.0, -1.0]  # decaying steps start with 1
    with pytest.raises(ValueError, match="steps"):
        NoisyGeneralFrankWolfe(8, "growing")


def test_without_curvature_the_number_of_steps_must_be_given():
    problem = Problem(Quantile(0.5), L2Ball(1.0), bounds=Bounds(1.0), d=D)
    with pytest.raises(Incompatible, match="smooth"):
        NoisyGeneralFrankWolfe().plan(problem, N, BUDGET, Tight())
    assert NoisyGeneralFrankWolfe(3).plan(problem, N, BUDGET, Tight()).n_calls == 3
