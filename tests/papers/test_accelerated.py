"""[WYX17] section 5: accelerated mirror descent, with one noisy gradient for each step."""

import numpy as np
import pytest

from dpcvx.accounting import Budget, Tight
from dpcvx.data.memory import source
from dpcvx.domains import Box, L1Ball, L2Ball, Simplex
from dpcvx.errors import Incompatible
from dpcvx.losses import Huber, Logistic, Quantile, Squared
from dpcvx.mechanisms import NoisyGradient
from dpcvx.noise import SeededGenerator
from dpcvx.plans import execute
from dpcvx.problem import Bounds, Problem
from dpcvx.solvers import NoisyAcceleratedMirrorDescent, NoisyGradientDescent, NoisyMirrorDescent
from exact import ExactOracle, solve_exactly

N, D = 600, 8
BUDGET = Budget(1.0, 1e-6)
SETS = [L2Ball(1.0), L1Ball(0.8), Simplex(0.7), Box(-0.4, 0.6)]


def records(d=D):
    rng = np.random.default_rng(2)
    X = rng.uniform(-1, 1, (N, d)) * np.linspace(0.05, 1, d)  # badly scaled: slow without acceleration
    X = np.trunc(X * 2**14) / 2**14
    return X, np.clip(X @ rng.normal(size=d) + 0.1 * rng.normal(size=N), -1, 1)


def lowest(problem, X, y):
    solver = NoisyGradientDescent(4000, 1 / problem.smoothness, 0.9)
    theta, oracle = solve_exactly(solver, problem, X, y, BUDGET, Tight())
    return oracle.objective(theta)


def bound(problem, T):
    psi = problem.domain.mirror_map(problem.shape)
    beta, D = problem.smoothness_in(psi), psi.divergence_bound(problem.shape)
    return 8 * beta * D / (psi.strong_convexity * (T + 1) ** 2)


@pytest.mark.parametrize("loss", [Squared(), Logistic(), Huber(0.4)], ids=repr)
@pytest.mark.parametrize("domain", SETS, ids=repr)
def test_without_noise_the_excess_falls_like_one_over_t_squared(loss, domain):
    """[WYX17] Theorem 5.4 without noise: 8 beta D/(m (T + 1)^2)."""
    problem = Problem(loss, domain, bounds=Bounds(1.0), d=D)
    X, y = records()
    best = lowest(problem, X, y)
    for T in (5, 20, 80, 320):
        theta, oracle = solve_exactly(NoisyAcceleratedMirrorDescent(T), problem, X, y, BUDGET, Tight())
        assert domain.contains(theta)
        assert -1e-6 < oracle.objective(theta) - best <= bound(problem, T)


def test_it_needs_fewer_steps_than_mirror_descent():
    problem = Problem(Squared(), L2Ball(1.0), bounds=Bounds(1.0), d=D)
    X, y = records()
    best = lowest(problem, X, y)
    theta, oracle = solve_exactly(NoisyAcceleratedMirrorDescent(100), problem, X, y, BUDGET, Tight())
    slow, _ = solve_exactly(NoisyMirrorDescent(1000), problem, X, y, BUDGET, Tight())
    assert oracle.objective(theta) - best < 0.1 * (oracle.objective(slow) - best)


@pytest.mark.parametrize("domain", SETS, ids=repr)
@pytest.mark.parametrize("T", [5, 40])
def test_with_noise_the_excess_is_within_the_prediction(domain, T):
    problem = Problem(Logistic(), domain, bounds=Bounds(1.0), d=D)
    X, y = records()
    solver = NoisyAcceleratedMirrorDescent(T)
    plan = solver.plan(problem, N, BUDGET, Tight())
    oracle, data = ExactOracle(plan, X, np.sign(y)), source(X, np.sign(y), bounds=problem.bounds)
    risks = [oracle.objective(execute(plan, data, rng=SeededGenerator(seed)).theta) for seed in range(8)]
    assert np.mean(risks) - lowest(problem, X, np.sign(y)) <= 1.001 * sum(solver.predict(problem, N, BUDGET))


def test_the_default_number_of_steps_minimises_the_prediction():
    for domain in SETS:
        problem = Problem(Logistic(), domain, bounds=Bounds(1.0), d=D)
        count = NoisyAcceleratedMirrorDescent().plan(problem, 20_000, BUDGET, Tight()).n_calls
        predicted = [
            sum(NoisyAcceleratedMirrorDescent(T).predict(problem, 20_000, BUDGET)) for T in range(1, 200)
        ]
        assert min(predicted) <= predicted[count - 1] <= 1.05 * min(predicted)


def paper_accelerated(problem, X, y, T, rng, sigma):
    """[WYX17] Algorithm 3 to the letter, Euclidean: the y-step uses the gradient without its noise."""
    oracle = ExactOracle(NoisyGradientDescent(1).plan(problem, len(y), BUDGET, Tight()), X, y)
    C, L = problem.domain, problem.smoothness
    y_point = z = C.start(problem.shape)
    for k in range(T):
        alpha, r = (k + 2) / (4 * L), 2 / (k + 2)
        x = r * z + (1 - r) * y_point
        g = oracle.gradient(x)
        y_point = C.project(x - g / L)
        z = C.project(z - alpha * (g + sigma * rng.normal(size=g.shape)))
    return y_point


def test_the_paper_returns_a_point_without_noise_and_this_does_not():
    """PRIVACY_MATH §7: after one step of the paper's algorithm every run returns the same point."""
    problem = Problem(Logistic(), L2Ball(1.0), bounds=Bounds(1.0), d=D)
    X, y = records()
    y = np.where(y > 0, 1.0, -1.0)
    plan = NoisyAcceleratedMirrorDescent(1).plan(problem, N, BUDGET, Tight())
    sigma = plan.stages[0].mechanism.noise
    paper = [paper_accelerated(problem, X, y, 1, np.random.default_rng(seed), sigma) for seed in (1, 2)]
    assert np.array_equal(*paper)
    data = source(X, y, bounds=problem.bounds)
    ours = [execute(plan, data, rng=SeededGenerator(seed)).theta for seed in range(200)]
    assert not np.array_equal(ours[0], ours[1])
    # All that the records do to theta passes through one gradient: its noise is in full in the result.
    # (The noise is that of the slopes at the start, 1/2, as the start is public.)
    psi = problem.domain.mirror_map(problem.shape)
    expected = sigma * problem.slope(2, 0.0) / problem.slope(2) * 2 / (4 * problem.smoothness_in(psi))
    np.testing.assert_allclose(np.std(ours, axis=0), expected, rtol=0.2)


def test_every_step_asks_for_one_gradient():
    problem = Problem(Logistic(), L2Ball(1.0), bounds=Bounds(1.0), d=D)
    plan = NoisyAcceleratedMirrorDescent(7).plan(problem, N, BUDGET, Tight())
    (stage,) = plan.stages
    assert isinstance(stage.mechanism, NoisyGradient)
    oracle = ExactOracle(plan, *records())
    plan.solver.run(plan, oracle)
    assert len(oracle.points) == stage.n_calls == 7


def test_a_loss_with_corners_is_refused():
    with pytest.raises(Incompatible, match="smooth"):
        NoisyAcceleratedMirrorDescent(5).plan(
            Problem(Quantile(0.5), L2Ball(1.0), bounds=Bounds(1.0), d=D), N, BUDGET, Tight()
        )
