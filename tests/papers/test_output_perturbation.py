"""[KD19] Section 4.1: noise on a minimiser, without a quadratic term and with one."""

import math

import numpy as np
import pytest
from sklearn.linear_model import ElasticNet

from adversary import stored
from dpcvx.accounting import Budget, Tight, gaussian_mu
from dpcvx.domains import L2Ball
from dpcvx.domains.regularizers import L1, GroupL2, Ridge, SubmodularNorm
from dpcvx.domains.regularizers import ElasticNet as L1AndRidge
from dpcvx.domains.set_functions import Cardinality, GroupCover
from dpcvx.losses import Huber, Logistic
from dpcvx.mechanisms.minimise import RidgeFacts, minimise
from dpcvx.noise import SeededGenerator
from dpcvx.plans import execute
from dpcvx.problem import Bounds, Problem
from dpcvx.solvers import OutputPerturbation


@pytest.mark.parametrize("B", [1.0, 10.0, 1000.0])
def test_a_norm_lets_the_minimiser_jump(B):
    """PRIVACY_MATH §5 and §13.9: l1-regularised median of 11 records in {0, B}; one record moves it by B."""
    n, weight, candidates = 11, 0.5, np.linspace(0.0, 1.0, 101) * B

    def minimiser(k):
        mean = (k * abs(candidates - B) + (n - k) * abs(candidates)) / n + weight / n * abs(candidates)
        return candidates[np.argmin(mean)]

    assert (minimiser(5), minimiser(6)) == (0.0, B)


def minimiser_of(problem, ridge, y):
    n = len(y)
    facts = RidgeFacts(problem, n, n, ridge)
    objective = stored(np.ones((n, 1)), y, problem.bounds, "dense").objective(problem.loss, 1, problem.z_max)
    return minimise(facts, objective, np.zeros(1), max(2 * facts.rounding, 1e-13))[0]


def test_a_quadratic_term_bounds_the_jump():
    """A smooth median with the same norm jumps without a ridge, and moves by 2L/(n mu) with a public one."""
    n, threshold = 11, 0.01
    problem = Problem(
        Huber(threshold), bounds=Bounds(1.0, 1.0), d=1, l2=1e-9, regularizer=L1(threshold * 0.5 / n)
    )
    data = [np.r_[np.ones(k), np.zeros(n - k)] for k in (5, 6)]
    jump = abs(minimiser_of(problem, 1e-7, data[1]) - minimiser_of(problem, 1e-7, data[0]))
    assert jump > 0.9
    for mu in (0.02, 0.2, 2.0):
        moved = abs(minimiser_of(problem, n * mu, data[1]) - minimiser_of(problem, n * mu, data[0]))
        assert moved <= 2 * threshold / (n * mu)
    assert moved > 0.1 * 2 * threshold / (n * mu)


@pytest.mark.parametrize(("relation", "changed"), [("replace", 2), ("add_remove", 1)])
def test_the_noise_is_that_of_the_formula(relation, changed):
    """PRIVACY_MATH §5: sigma = 2 L/(n mu mu_G), up to what inexactness and lattices add."""
    n, ridge, budget = 1000, 0.05, Budget(1.0, 1e-6, relation)
    problem = Problem(Logistic(), L2Ball(3.0), bounds=Bounds(1.0, 1.0), d=5)
    plan = OutputPerturbation(ridge).plan(problem, n, budget, Tight())
    slope = 1 / (1 + math.exp(-3.0))
    exact = changed * slope / (n * ridge * gaussian_mu(1.0, 1e-6))
    assert 1 < plan.stages[0].mechanism.noise / exact < 1.002


def test_the_ridge_minimises_the_bound_and_holds_the_problems_own():
    budget = Budget(1.0, 1e-6)
    for l2 in (0.0, 1e-4, 0.3):
        problem = Problem(Logistic(), L2Ball(5.0), bounds=Bounds(1.0, 1.0), d=20, l2=l2)
        chosen = OutputPerturbation().plan(problem, 2000, budget, Tight()).solver
        assert chosen.ridge >= l2
        best = sum(chosen.predict(problem, 2000, budget))
        for ridge in (1e-3, 1e-2, 0.3, 1.0):
            if ridge >= l2:
                assert best <= 1.02 * sum(OutputPerturbation(ridge).predict(problem, 2000, budget))
    assert chosen.ridge == pytest.approx(0.3, rel=0.5)


def test_with_a_sparse_regularizer_and_little_noise_it_is_the_elastic_net():
    rng = np.random.default_rng(0)
    n, d, l1, ridge = 4000, 8, 0.01, 0.02
    X = np.trunc(rng.uniform(-1, 1, (n, d)) / math.sqrt(d) * 2**14) / 2**14
    y = np.clip(X[:, 0] - 0.5 * X[:, 1] + 0.1 * rng.normal(size=n), -1, 1)
    problem = Problem(Huber(2.0), bounds=Bounds(1.0, 1.0), d=d, l2=ridge, regularizer=L1(l1))
    plan = OutputPerturbation(ridge).plan(problem, n, Budget(40.0, 1e-6), Tight())
    theta = execute(plan, stored(X, y, problem.bounds, "dense"), rng=SeededGenerator(0)).theta
    peer = ElasticNet(alpha=l1 + ridge, l1_ratio=l1 / (l1 + ridge), fit_intercept=False, tol=1e-12).fit(X, y)
    noise = plan.stages[0].mechanism.noise
    assert noise < 0.05
    np.testing.assert_allclose(theta, peer.coef_, atol=5 * noise)


def test_excess_risk_falls_with_n_and_stays_below_the_bound():
    rng, budget = np.random.default_rng(1), Budget(1.0, 1e-6)
    problem = Problem(Logistic(), L2Ball(3.0), bounds=Bounds(1.0, 1.0), d=5)
    excess = []
    for n in (500, 5000):
        X = rng.uniform(-1, 1, (n, 5)) / math.sqrt(5)
        y = np.where(X[:, 0] + 0.3 * rng.normal(size=n) > 0, 1.0, -1.0)
        data = stored(X, y, problem.bounds, "dense")
        objective = data.objective(problem.loss, 1, problem.z_max)
        facts = RidgeFacts(problem, n, n, 1e-3)
        best = objective.value(minimise(facts, objective, np.zeros(5), 1e-6 + 2 * facts.rounding))
        plan = OutputPerturbation().plan(problem, n, budget, Tight())
        risks = [objective.value(execute(plan, data, rng=SeededGenerator(s)).theta) for s in range(10)]
        excess.append((np.mean(risks) - best) / n)
        assert 0 < excess[-1] <= sum(OutputPerturbation().predict(problem, n, budget))
    assert excess[1] < excess[0] / 2


REGULARIZERS = {
    "l1": (L1(0.05), 1.05),
    "ridge": (Ridge(0.05), 1.05),
    "both": (L1AndRidge(0.05, 0.02), 1.05),
    "groups": (GroupL2([range(0, 10), range(10, 20)], 0.05), 1.1),
    "cardinality": (SubmodularNorm(Cardinality(), 0.05), 1.05),
    "cover": (SubmodularNorm(GroupCover([range(0, 12), range(8, 20)]), 0.05), 2.0),
}


@pytest.mark.parametrize("name", REGULARIZERS)
def test_the_bound_holds_what_noise_adds_to_the_regularizer(name):
    """With losses that hardly bend, nearly all of the excess risk is r(theta + sigma Z) - r(theta)."""
    regularizer, loose = REGULARIZERS[name]
    n, d, ridge, budget = 2000, 20, 1e-3, Budget(1.0, 1e-6)
    problem = Problem(Huber(1e-3), bounds=Bounds(1e-3, 1e-3), d=d, l2=ridge, regularizer=regularizer)
    plan = OutputPerturbation(ridge).plan(problem, n, budget, Tight())
    sigma = plan.stages[0].mechanism.noise
    draws = sigma * np.random.default_rng(0).standard_normal((4000, d))
    rises = [regularizer.value(z) + ridge / 2 * z @ z for z in draws]  # at theta = 0
    predicted = OutputPerturbation(ridge).predict(problem, n, budget)[1]
    assert 0.98 * np.mean(rises) <= predicted <= loose * np.mean(rises)


def test_excess_risk_with_a_regularizer_stays_below_the_bound():
    rng, budget, n, d = np.random.default_rng(2), Budget(1.0, 1e-6), 5000, 5
    problem = Problem(Huber(0.5), bounds=Bounds(1.0, 1.0), d=d, l2=0.05, regularizer=L1(0.05))
    X = rng.uniform(-1, 1, (n, d)) / math.sqrt(d)
    y = np.clip(X[:, 0], -1, 1)
    data = stored(X, y, problem.bounds, "dense")
    objective = data.objective(problem.loss, 1, problem.z_max)

    def risk(theta):
        return objective.value(theta) / n + problem.regularizer.value(theta) + 0.025 * theta @ theta

    facts = RidgeFacts(problem, n, n, n * 0.05)
    best = risk(minimise(facts, objective, np.zeros(d), 1e-6 + 2 * facts.rounding))
    plan = OutputPerturbation(0.05).plan(problem, n, budget, Tight())
    risks = [risk(execute(plan, data, rng=SeededGenerator(s)).theta) for s in range(20)]
    ridge, noise = OutputPerturbation(0.05).predict(problem, n, budget)
    assert ridge == 0
    assert noise / 4 < np.mean(risks) - best <= noise
