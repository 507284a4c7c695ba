"""[TTZ14] section 3: noisy mirror descent with a constant step, averaged."""

import math

import numpy as np
import pytest

from dpcvx.accounting import Budget, Tight
from dpcvx.data.memory import source
from dpcvx.domains import L2Ball
from dpcvx.losses import Logistic, Quantile
from dpcvx.noise import SeededGenerator
from dpcvx.plans import execute
from dpcvx.problem import Bounds, Problem
from dpcvx.solvers import NoisyMirrorDescent
from exact import ExactOracle, solve_exactly

pytestmark = pytest.mark.long

N, D = 2000, 5


def records():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (N, D))
    return X, np.where(X[:, 0] + 0.3 * rng.normal(size=N) > 0, 1.0, -1.0)


def lowest(problem, oracle):
    """Value after a long run of projected subgradient descent."""
    theta, value = problem.domain.start(problem.shape), math.inf
    for t in range(1, 3000):
        theta = problem.domain.project(theta - oracle.gradient(theta) / (problem.lipschitz(2) * math.sqrt(t)))
        value = min(value, oracle.objective(theta))
    return value


@pytest.mark.parametrize("loss", [Logistic(), Quantile(0.7)], ids=repr)
@pytest.mark.parametrize("T", [20, 200])
def test_the_average_is_within_the_bound_of_theorem_3_2(loss, T):
    """E excess <= r sqrt((L2^2 + d sigma^2) / T), with noise and, for the same step, without."""
    problem = Problem(loss, L2Ball(1.0), bounds=Bounds(1.0), d=D)
    X, y = records()
    budget = Budget(1.0, 1e-6)
    plan = NoisyMirrorDescent(T).plan(problem, N, budget, Tight())
    sigma = plan.stages[0].mechanism.noise
    bound = math.sqrt((problem.lipschitz(2) ** 2 + D * sigma**2) / T)
    oracle = ExactOracle(plan, X, y)
    best = lowest(problem, oracle)
    data = source(X, y, bounds=problem.bounds)
    noisy = [
        oracle.objective(execute(plan, data, rng=SeededGenerator(seed)).theta) - best for seed in range(20)
    ]
    assert -1e-3 < np.mean(noisy) <= bound
    theta, _ = solve_exactly(NoisyMirrorDescent(T), problem, X, y, budget, Tight())
    assert -1e-3 < oracle.objective(theta) - best <= bound


def test_the_noise_is_nine_to_sixteen_times_below_the_papers():
    """[TTZ14] Algorithm 1: sigma^2 = 32 L^2 T log^2(T / delta) / (eps n)^2; PRIVACY_MATH §1 has the table."""
    problem = Problem(Quantile(0.5), L2Ball(1.0), bounds=Bounds(1.0, 1.0), d=D)
    for T, epsilon, ratio in [(10, 0.1, 12.6), (100, 1.0, 12.3), (1000, 8.0, 11.2)]:
        plan = NoisyMirrorDescent(T).plan(problem, N, Budget(epsilon, 1e-6), Tight())
        paper = math.sqrt(32 * T) * problem.lipschitz(2) * math.log(T / 1e-6) / (epsilon * N)
        assert paper / plan.stages[0].mechanism.noise == pytest.approx(ratio, rel=0.01)
