"""Without noise every solver is an ordinary algorithm, and agrees with SciPy and scikit-learn."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import Lasso, LogisticRegression

from dpcvx.accounting import Budget, Tight
from dpcvx.domains import Box, L1Ball, L2Ball, Simplex, VertexHull
from dpcvx.losses import Huber, Logistic, Quantile, SmoothHinge, Softmax, Squared
from dpcvx.problem import Bounds, Problem
from dpcvx.solvers import (
    NoisyAcceleratedMirrorDescent,
    NoisyCorrectiveFrankWolfe,
    NoisyFrankWolfe,
    NoisyGradientDescent,
    NoisyMirrorDescent,
    run_with_oracle,
)
from exact import ExactOracle, solve_exactly

N, D = 200, 4
BUDGET = Budget(1.0, 1e-6)


def records(loss, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (N, D))
    z = X @ np.array([0.8, -0.5, 0.3, 0.0]) + 0.3 * rng.normal(size=N)
    if loss.joint:
        return X, np.digitize(z, [-0.3, 0.3]).astype(float)
    return X, np.where(z > 0, 1.0, -1.0) if isinstance(loss, Logistic | SmoothHinge) else np.clip(z, -1, 1)


def exactly(solver, problem, X, y):
    return solve_exactly(solver, problem, X, y, BUDGET, Tight())


def best(problem, X, y):
    """Optimal value by SciPy, over the whole space or over a ball or box given as constraints."""
    oracle = ExactOracle(NoisyGradientDescent(1).plan(problem, N, BUDGET, Tight()), X, y)
    shape, C = problem.shape, problem.domain
    options = {"x0": 0.01 * np.ones(problem.size), "jac": lambda v: oracle.gradient(v.reshape(shape)).ravel()}
    if isinstance(C, Box):
        bounds = [(C.low, C.high)] * problem.size
        return minimize(lambda v: oracle.objective(v.reshape(shape)), bounds=bounds, tol=1e-15, **options).fun
    inside = {"type": "ineq", "fun": lambda v: C.radius**2 - v @ v, "jac": lambda v: -2 * v}
    return minimize(
        lambda v: oracle.objective(v.reshape(shape)),
        constraints=[inside],
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 1000},
        **options,
    ).fun


@pytest.mark.parametrize("loss", [Squared(), Logistic(), Huber(0.4), SmoothHinge(0.5), Softmax()], ids=repr)
@pytest.mark.parametrize("domain", [L2Ball(0.5), L2Ball(20.0), Box(-0.3, 0.4)], ids=repr)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_gradient_descent_reaches_the_optimum_of_a_strongly_convex_problem(loss, domain, momentum):
    problem = Problem(loss, domain, bounds=Bounds(1.0), d=D, outputs=3 if loss.joint else 1, l2=0.1)
    X, y = records(loss)
    solver = NoisyGradientDescent(2000 if momentum == 0 else 600, 1 / problem.smoothness, momentum)
    theta, oracle = exactly(solver, problem, X, y)
    excess = oracle.objective(theta) - best(problem, X, y)
    assert -1e-9 < excess <= 1e-6
    assert domain.contains(theta)


@pytest.mark.parametrize("loss", [Squared(), Logistic(), Huber(0.4), Softmax()], ids=repr)
@pytest.mark.parametrize("domain", [L2Ball(0.5), Box(-0.3, 0.4)], ids=repr)
def test_accelerated_mirror_descent_reaches_the_optimum(loss, domain):
    """8 beta D / (T + 1)^2 is below 1e-6 after 4000 steps, strongly convex or not."""
    problem = Problem(loss, domain, bounds=Bounds(1.0), d=D, outputs=3 if loss.joint else 1)
    X, y = records(loss)
    theta, oracle = exactly(NoisyAcceleratedMirrorDescent(4000), problem, X, y)
    assert -1e-9 < oracle.objective(theta) - best(problem, X, y) <= 1e-6


def test_gradient_descent_agrees_with_logistic_regression_of_scikit_learn():
    X, y = records(Logistic())
    problem = Problem(Logistic(), L2Ball(50.0), bounds=Bounds(1.0), d=D, l2=0.05)
    theta, _ = exactly(NoisyGradientDescent(3000, 1 / problem.smoothness), problem, X, y)
    model = LogisticRegression(C=1 / (0.05 * N), fit_intercept=False, tol=1e-12).fit(X, y)
    np.testing.assert_allclose(theta, model.coef_[0], atol=1e-6)


@pytest.mark.parametrize("loss", [Quantile(0.5), Quantile(0.8), Logistic(), Squared()], ids=repr)
@pytest.mark.parametrize("T", [10, 100, 1000])
def test_mirror_descent_is_within_its_bound(loss, T):
    """[TTZ14] Theorem 3.2 without noise: excess of the average at most r L / sqrt(T)."""
    problem = Problem(loss, L2Ball(0.6), bounds=Bounds(1.0), d=D)
    X, y = records(loss)
    oracle = ExactOracle(NoisyMirrorDescent(T).plan(problem, N, BUDGET, Tight()), X, y)
    # A plan's step allows for the planned noise; without noise the theorem's step is r / (L sqrt(T)).
    theta = run_with_oracle(NoisyMirrorDescent(), problem, oracle, n_iter=T)
    lower = min(oracle.objective(v) for v in [theta, *polished(problem, oracle)])
    assert oracle.objective(theta) - lower <= 0.6 * problem.lipschitz(2) / math.sqrt(T)
    assert problem.domain.contains(theta)


def polished(problem, oracle, steps=4000):
    """Points of a long run of projected subgradient descent with steps r / (L sqrt(t))."""
    theta = problem.domain.start(problem.shape)
    for t in range(1, steps):
        theta = problem.domain.project(
            theta - oracle.gradient(theta) * 0.6 / (problem.lipschitz(2) * math.sqrt(t))
        )
        yield theta


HULL = VertexHull(np.vstack([np.eye(D), -np.eye(D), np.full((1, D), 0.6)]))


@pytest.mark.parametrize("loss", [Squared(), Logistic(), Huber(0.4), Softmax()], ids=repr)
@pytest.mark.parametrize("domain", [L1Ball(0.7), Simplex(0.5), HULL], ids=["l1", "simplex", "hull"])
@pytest.mark.parametrize("T", [3, 30, 300])
def test_frank_wolfe_with_decaying_steps_is_within_its_bound(loss, domain, T):
    """Excess after T selections at most 2 curvature / (T + 2), whatever the starting point."""
    if loss.joint and domain is HULL:
        domain = VertexHull(np.vstack([np.eye(3 * D), -np.eye(3 * D)]))
    problem = Problem(loss, domain, bounds=Bounds(1.0), d=D, outputs=3 if loss.joint else 1)
    X, y = records(loss)
    theta, oracle = exactly(NoisyFrankWolfe(T), problem, X, y)
    reference, _ = exactly(NoisyGradientDescent(1500, 1 / problem.smoothness), problem, X, y)
    excess = oracle.objective(theta) - oracle.objective(reference)
    assert -1e-9 <= excess <= 2 * problem.curvature / (T + 2)
    assert domain.contains(theta)


def test_frank_wolfe_agrees_with_the_lasso_of_scikit_learn():
    """The penalised solution is the constrained one whose radius is its own l1 norm."""
    X, y = records(Squared())
    penalised = Lasso(alpha=0.05, fit_intercept=False, tol=1e-12, max_iter=100_000).fit(X, y).coef_
    assert 0 < np.count_nonzero(penalised) < D
    problem = Problem(Squared(), L1Ball(float(abs(penalised).sum())), bounds=Bounds(1.0), d=D)
    theta, oracle = exactly(NoisyFrankWolfe(4000), problem, X, y)
    assert oracle.objective(theta) - oracle.objective(penalised) < 1e-4
    descended, _ = exactly(NoisyGradientDescent(2000, 1 / problem.smoothness), problem, X, y)
    np.testing.assert_allclose(descended, penalised, atol=1e-6)
    # Planned for many records, so that without noise the refit's steps are as long as they may be.
    plan = NoisyCorrectiveFrankWolfe(1000, 40).plan(problem, 10**6, Budget(10.0, 1e-3), Tight())
    corrected = plan.solver.run(plan, ExactOracle(plan, X, y))
    np.testing.assert_allclose(corrected, penalised, atol=1e-6)
