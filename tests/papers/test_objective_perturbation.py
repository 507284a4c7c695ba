"""[TTZ14] Algorithm 2 and Theorem 4.1, and what its constants are worth."""

import math

import numpy as np
import pytest

from adversary import stored
from dpcvx.accounting import Budget, Tight, gaussian_delta, gaussian_epsilon
from dpcvx.domains import GroupBall, L1Ball, L2Ball
from dpcvx.losses import Huber, Logistic
from dpcvx.mechanisms.minimise import RidgeFacts, minimise
from dpcvx.noise import SeededGenerator
from dpcvx.plans import execute
from dpcvx.problem import Bounds, Problem
from dpcvx.solvers import ObjectivePerturbation


@pytest.mark.parametrize(
    ("epsilon", "delta_of_it", "epsilon_of_it"),
    [(1.0, 8.263e-4, 1.67), (8.0, 8.5e-2, 18.5), (0.1, None, 0.141)],
)
def test_the_constants_of_algorithm_2_are_not_private(epsilon, delta_of_it, epsilon_of_it):
    """PRIVACY_MATH §4 and §13.9: a linear loss makes it a Gaussian mechanism with sensitivity 2 L."""
    delta = 1e-6
    sigma = math.sqrt(2 * math.log(1 / delta)) / epsilon  # the paper's, in units of L
    if delta_of_it is not None:
        assert gaussian_delta(epsilon, 2 / sigma) == pytest.approx(delta_of_it, rel=6e-3)
    assert gaussian_delta(epsilon, 2 / sigma) > 5 * delta
    assert gaussian_epsilon(2 / sigma, delta) == pytest.approx(epsilon_of_it, rel=5e-3)
    problem = Problem(Huber(1.0), L2Ball(1.0), bounds=Bounds(1.0, 1.0), d=2)
    ours = ObjectivePerturbation(0.1).plan(problem, 1000, Budget(epsilon, delta), Tight()).stages[0].mechanism
    assert ours.noise_multiplier > 1.5 * sigma
    assert gaussian_delta(epsilon, 2 / ours.noise_multiplier) < delta


@pytest.mark.parametrize(
    ("epsilon", "share", "ridge", "noise"),
    [
        (1.0, 0.1, 9.508331945, 9.631565804),
        (1.0, 0.25, 3.520811664, 11.419991215),
        (8.0, 0.1, 0.815966221, 1.462665092),
    ],
)
def test_ridge_and_noise_are_those_of_the_reference_table(epsilon, share, ridge, noise):
    """PRIVACY_MATH §13.6; above the table by the share of the noise on the outcome, never below."""
    problem = Problem(Huber(1.0), L2Ball(1.0), bounds=Bounds(1.0, 1.0), d=2)
    plan = ObjectivePerturbation(share).plan(problem, 1000, Budget(epsilon, 1e-6), Tight())
    mechanism = plan.stages[0].mechanism
    assert mechanism.ridge == pytest.approx(ridge, rel=1e-6)
    assert 1 < mechanism.noise_multiplier / noise < 1.03


def test_a_ridge_of_the_problem_that_is_enough_is_used_as_it_is():
    budget, n = Budget(1.0, 1e-6), 1000
    plain = Problem(Logistic(), L2Ball(1.0), bounds=Bounds(1.0, 1.0), d=2)
    needed = ObjectivePerturbation(0.1).plan(plain, n, budget, Tight()).stages[0].mechanism
    own = Problem(Logistic(), L2Ball(1.0), bounds=Bounds(1.0, 1.0), d=2, l2=3 * needed.ridge / n)
    enough = ObjectivePerturbation(0.1).plan(own, n, budget, Tight()).stages[0].mechanism
    assert enough.ridge == n * own.l2
    assert enough.event.events[0].jacobian < 0.4 * needed.event.events[0].jacobian
    assert enough.noise < needed.noise
    assert ObjectivePerturbation(0.1).predict(own, n, budget)[0] == 0.0


def test_the_share_of_the_jacobian_minimises_the_bound():
    for domain, n in ((L2Ball(5.0), 1000), (L1Ball(5.0), 1000), (L2Ball(0.1), 10**6)):
        problem, budget = Problem(Logistic(), domain, bounds=Bounds(1.0, 1.0), d=50), Budget(1.0, 1e-6)
        chosen = ObjectivePerturbation().plan(problem, n, budget, Tight()).solver
        best = sum(chosen.predict(problem, n, budget))
        for share in (0.01, 0.05, 0.1, 0.25, 0.5):
            assert best <= sum(ObjectivePerturbation(share).predict(problem, n, budget)) * (1 + 1e-9)


def records(n, d, seed=0):
    """Unit rows; half of them say what the other half denies, so the loss is nearly flat at its minimum."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    X /= 1.001 * np.linalg.norm(X, axis=1, keepdims=True)
    return X, rng.choice([-1.0, 1.0], n)


def excess_risk(problem, n, budget, solver, seeds):
    X, y = records(n, problem.d)
    data = stored(X, y, problem.bounds, "dense")
    objective = data.objective(problem.loss, 1, problem.z_max)
    facts = RidgeFacts(problem, n, n, 1e-3)
    best = objective.value(minimise(facts, objective, np.zeros(problem.d), 1e-6 + 2 * facts.rounding))
    plan = solver.plan(problem, n, budget, Tight())
    risks = [objective.value(execute(plan, data, rng=SeededGenerator(seed)).theta) for seed in range(seeds)]
    return (np.mean(risks) - best) / n


@pytest.mark.long
def test_excess_risk_follows_the_gaussian_width_of_the_set():
    """[TTZ14] Theorem 4.1: of sets with the same radius, the one with the smaller width is better.

    The widths of the balls are r sqrt(d) and r sqrt(2 log 2d), and between them that of groups of 5. Where
    the noise decides, the risk is about sigma times the width over n: the ratio of two risks follows the
    ratio of the widths within a factor 2. At d = 20 the l1 ball and groups of 5 are too much alike to be told
    apart by a few runs; at d = 150 their risks differ by several standard errors.
    """
    n, budget = 400, Budget(0.5, 1e-6)
    ratios = []
    for d in (20, 150):
        risks, widths = [], []
        for C in (L2Ball(0.5), L1Ball(0.5), GroupBall(5, 0.5)):
            problem = Problem(Huber(0.5), C, bounds=Bounds(1.0, 1.0), d=d)
            risks.append(excess_risk(problem, n, budget, ObjectivePerturbation(0.3), 20))
            widths.append(C.gaussian_width(d))
            _, privacy = ObjectivePerturbation(0.3).predict(problem, n, budget)
            assert risks[-1] <= sum(ObjectivePerturbation(0.3).predict(problem, n, budget))
            assert privacy > 0
        assert max(risks[1:]) < risks[0]
        assert widths[1] < widths[2] < widths[0]
        ratios.append((risks[0] / risks[1], widths[0] / widths[1]))
        ratios.append((risks[0] / risks[2], widths[0] / widths[2]))
    (small, small_width), _, (large, large_width), _ = ratios
    assert large_width > 2 * small_width
    assert large > 1.5 * small
    assert risks[1] < risks[2]  # at d = 150
    for measured, width in ratios:
        assert width / 2 < measured < 2 * width


def test_excess_risk_falls_with_n_and_stays_below_the_bound():
    problem, budget = Problem(Logistic(), L2Ball(3.0), bounds=Bounds(1.0, 1.0), d=10), Budget(1.0, 1e-6)
    risks = []
    for n in (300, 3000):
        risks.append(excess_risk(problem, n, budget, ObjectivePerturbation(), 8))
        assert 0 < risks[-1] <= sum(ObjectivePerturbation().predict(problem, n, budget))
    assert risks[1] < risks[0] / 4
