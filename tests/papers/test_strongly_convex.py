"""[TTZ14] Appendix A: mirror descent on strongly convex objectives."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from dpcvx.accounting import Budget, Tight, gaussian_mu
from dpcvx.data.memory import source
from dpcvx.domains import L2Ball
from dpcvx.errors import Incompatible
from dpcvx.losses import Logistic, Quantile, Sigmoid
from dpcvx.noise import SeededGenerator
from dpcvx.plans import execute
from dpcvx.problem import Bounds, Problem
from dpcvx.solvers import NoisyStronglyConvexMirrorDescent, run_with_oracle
from exact import ExactOracle

pytestmark = pytest.mark.long

D, LAM = 10, 0.2
BUDGET = Budget(1.0, 1e-6)


def problem(loss=None, l2=LAM):
    return Problem(loss or Logistic(), L2Ball(2.0), bounds=Bounds(1.0, 1.0), d=D, l2=l2)


def records(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D))
    X = np.trunc(X / np.linalg.norm(X, axis=1, keepdims=True) * 0.999 * 2**14) / 2**14
    return X, np.where(X[:, 0] + 0.2 * rng.normal(size=n) > 0, 1.0, -1.0)


def excess(n, seed):
    """Excess risk of T = (n mu)^2/(4 d) steps: as many as the noise makes worthwhile."""
    X, y = records(n, seed)
    T = round((n * gaussian_mu(1.0, 1e-6)) ** 2 / (4 * D))
    plan = NoisyStronglyConvexMirrorDescent(T).plan(problem(), n, BUDGET, Tight())
    oracle = ExactOracle(plan, X, y)
    best = minimize(oracle.objective, np.zeros(D), jac=oracle.gradient, tol=1e-12)
    assert problem().domain.contains(best.x)
    theta = execute(plan, source(X, y, bounds=Bounds(1.0, 1.0)), rng=SeededGenerator(seed)).theta
    return oracle.objective(theta) - best.fun


@pytest.mark.long
def test_excess_risk_falls_like_one_over_n_squared():
    """[TTZ14] Theorem A.1."""
    sizes = [400, 800, 1600]
    risks = [np.mean([excess(n, seed) for seed in range(4)]) for n in sizes]
    assert np.polyfit(np.log(sizes), np.log(risks), 1)[0] < -1.7


@pytest.mark.parametrize("loss", [Logistic(), Quantile(0.7)], ids=repr)
@pytest.mark.parametrize("T", [30, 300])
def test_the_weighted_average_is_within_its_bound(loss, T):
    """E excess <= 2 (L^2 + d sigma^2)/(lambda (T + 1)), smooth or not."""
    X, y = records(1000, 5)
    plan = NoisyStronglyConvexMirrorDescent(T).plan(problem(loss), 1000, BUDGET, Tight())
    oracle = ExactOracle(plan, X, y)
    sigma = plan.stages[0].mechanism.noise
    G2 = (plan.problem.lipschitz(2) + LAM * 2.0) ** 2 + D * sigma**2
    exact = run_with_oracle(NoisyStronglyConvexMirrorDescent(), problem(loss), oracle, n_iter=10_000)
    best = oracle.objective(exact)
    data = source(X, y, bounds=Bounds(1.0, 1.0))
    risks = [
        oracle.objective(execute(plan, data, rng=SeededGenerator(seed)).theta) - best for seed in range(10)
    ]
    assert -1e-3 < np.mean(risks) <= 2 * G2 / (LAM * (T + 1))
    quiet = oracle.objective(plan.solver.run(plan, ExactOracle(plan, X, y))) - best
    assert -1e-3 < quiet <= 2 * (plan.problem.lipschitz(2) + LAM * 2.0) ** 2 / (LAM * (T + 1))


def test_the_result_is_the_average_with_weights_proportional_to_t():
    X, y = records(100, 1)
    oracle = ExactOracle(NoisyStronglyConvexMirrorDescent(5).plan(problem(), 100, BUDGET, Tight()), X, y)
    theta = run_with_oracle(NoisyStronglyConvexMirrorDescent(), problem(), oracle, n_iter=5)
    points = np.array(oracle.points)
    np.testing.assert_allclose(theta, np.array([1, 2, 3, 4, 5]) @ points / 15, rtol=1e-12)
    steps = 2 / (LAM * np.array([2, 3, 4, 5]))
    moves = [points[t] - steps[t] * oracle.gradient(points[t]) for t in range(4)]
    np.testing.assert_allclose(points[1:], [problem().domain.project(v) for v in moves], rtol=1e-12)


def test_the_prediction_is_the_bound_and_its_privacy_part_falls_like_one_over_n_squared():
    solver = NoisyStronglyConvexMirrorDescent(400)
    optimisation, privacy = solver.predict(problem(), 1000, BUDGET)
    assert optimisation == pytest.approx(2 * (problem().lipschitz(2) + LAM * 2.0) ** 2 / (LAM * 401))
    sigma = 2 * problem().lipschitz(2) * math.sqrt(400) / (1000 * gaussian_mu(1.0, 1e-6))
    assert privacy == pytest.approx(2 * D * sigma**2 / (LAM * 401))
    assert privacy / solver.predict(problem(), 3000, BUDGET)[1] == pytest.approx(9.0)


def test_an_objective_that_is_not_known_to_be_strongly_convex_is_refused():
    for loss, l2 in ((Logistic(), 0.0), (Sigmoid(), 0.5)):
        with pytest.raises(Incompatible, match="strongly convex"):
            NoisyStronglyConvexMirrorDescent(5).plan(problem(loss, l2), 100, BUDGET, Tight())
