"""Descent beyond convexity ([WYX17] section 6), and on oracles that are not private ([TTZ14] section 3.3)."""

import math

import numpy as np
import pytest

from dpcvx.accounting import Budget, Tight, gaussian_mu
from dpcvx.audit import discrepancies, record, replay
from dpcvx.data.memory import source
from dpcvx.domains import L1Ball, L2Ball, Simplex
from dpcvx.losses import Huber, Logistic, Quantile, Sigmoid, Squared, Welsch
from dpcvx.noise import SeededGenerator
from dpcvx.plans import execute
from dpcvx.problem import Bounds, Problem
from dpcvx.solvers import (
    NoisyAcceleratedMirrorDescent,
    NoisyGeneralFrankWolfe,
    NoisyGradientDescent,
    NoisyMirrorDescent,
    NoisyStronglyConvexMirrorDescent,
    run_with_oracle,
)
from exact import ExactOracle

BUDGET = Budget(1.0, 1e-6)
D = 6


def records(n, seed=0, d=D):
    """Rows of norm below 1 whose last features repeat the first ones, so that the Hessian is singular."""
    rng = np.random.default_rng(seed)
    half = rng.normal(size=(n, d // 2))
    half /= np.linalg.norm(half, axis=1, keepdims=True)
    X = np.trunc(np.hstack([half, half]) / math.sqrt(2) * 0.999 * 2**14) / 2**14
    return X, np.clip(X[:, 0] - X[:, 1] + 0.2 * rng.normal(size=n), -1, 1)


def descent(problem, T):
    """[WYX17] Algorithm 4: steps 1/L, no momentum."""
    return NoisyGradientDescent(T, 1 / problem.smoothness, momentum=0.0)


def least_squares(n, T, seed):
    """(excess of a private run, bound of it) on least squares with a singular Hessian."""
    problem = Problem(Squared(), L2Ball(3.0), bounds=Bounds(1.0, 1.0), d=D)
    X, y = records(n, seed)
    curvatures = np.linalg.eigvalsh(X.T @ X / n)
    assert curvatures[0] < 1e-12  # not strongly convex, and no ridge: only the Polyak-Lojasiewicz condition
    pl = curvatures[curvatures > 1e-6].min()
    plan = descent(problem, T).plan(problem, n, BUDGET, Tight())
    oracle = ExactOracle(plan, X, y)
    best = oracle.objective(np.linalg.lstsq(X, y)[0])
    theta = execute(plan, source(X, y, bounds=problem.bounds), rng=SeededGenerator(seed)).theta
    noise = D * plan.stages[0].mechanism.noise ** 2 / (2 * pl)
    start = oracle.objective(np.zeros(D)) - best
    return oracle.objective(theta) - best, (1 - pl / problem.smoothness) ** T * start + noise


@pytest.mark.parametrize("T", [3, 12, 48])
def test_polyak_lojasiewicz_descent_is_within_its_bound(T):
    """[WYX17] Theorem 6.2: (1 - mu/L)^T of the first excess, plus d sigma^2/(2 mu)."""
    runs = [least_squares(3000, T, seed) for seed in range(8)]
    excess, bound = np.mean(runs, axis=0)
    assert -1e-9 < excess <= bound


@pytest.mark.long
def test_polyak_lojasiewicz_excess_falls_like_one_over_n_squared():
    """With T of order log n; measured over a factor of 16 in n."""
    sizes = [1000, 4000, 16_000]
    risks = [np.mean([least_squares(n, round(6 * math.log(n)), s)[0] for s in range(6)]) for n in sizes]
    assert np.polyfit(np.log(sizes), np.log(risks), 1)[0] < -1.6


def nonconvex(loss, n, T, seeds=4):
    """(mean squared gradient over the iterates of private runs, bound of it)."""
    problem = Problem(loss, L2Ball(50.0), bounds=Bounds(1.0, 1.0), d=D)
    X, y = records(n)
    y = np.where(y > 0, 1.0, -1.0) if isinstance(loss, Sigmoid) else y
    plan = descent(problem, T).plan(problem, n, BUDGET, Tight())
    oracle, data = ExactOracle(plan, X, y), source(X, y, bounds=problem.bounds)
    squares = []
    for seed in range(seeds):
        points = iterates(plan, data, seed)
        assert max(np.linalg.norm(point) for point in points) < 49  # the set is nowhere felt
        squares += [(oracle.gradient(point) ** 2).sum() for point in points]
    L, sigma = problem.smoothness, plan.stages[0].mechanism.noise
    return np.mean(squares), 2 * L * oracle.objective(np.zeros(D)) / T + D * sigma**2


def iterates(plan, data, seed):
    """The points at which a run asked: public, since each follows from earlier answers."""
    transcript = record(plan, data, SeededGenerator(seed))
    return [np.frombuffer(question.asked[1]).reshape(plan.problem.shape) for question in transcript.questions]


@pytest.mark.parametrize("loss", [Sigmoid(), Welsch(0.7)], ids=repr)
@pytest.mark.long
def test_a_random_iterate_of_a_non_convex_loss_is_nearly_stationary(loss):
    """[WYX17] Theorem 6.3: E||grad F(x_m)||^2 <= 2 L F(x_0)/T + d sigma^2 for m uniform."""
    for T in (10, 60):
        square, bound = nonconvex(loss, 2000, T)
        assert square <= bound
    # With T of order n both parts, and what is measured, fall like 1/n.
    counts = {n: round(0.05 * n * gaussian_mu(1.0, 1e-6)) for n in (2000, 16_000)}
    (small, _), (large, bound) = (nonconvex(loss, n, T, 2) for n, T in counts.items())
    assert large <= bound
    assert large < small / 4


@pytest.mark.parametrize("loss", [Sigmoid(), Welsch(0.7)], ids=repr)
def test_every_iterate_is_post_processing(loss):
    """With the answers frozen, a run on a neighbour asks at the same points: any of them may be returned."""
    problem = Problem(loss, L2Ball(50.0), bounds=Bounds(1.0, 1.0), d=D)
    X, y = records(300)
    y = np.where(y > 0, 1.0, -1.0)
    plan = descent(problem, 9).plan(problem, 300, BUDGET, Tight())
    first = record(plan, source(X, y, bounds=problem.bounds), SeededGenerator(1))
    X[7], y[7] = -X[7], -y[7]
    second = replay(plan, source(X, y, bounds=problem.bounds), SeededGenerator(2), first)
    assert len(first.questions) == 9
    assert [q.asked for q in first.questions] == [q.asked for q in second.questions]
    assert discrepancies(plan, first, second) == []


class Anisotropic:
    """Exact gradients plus bounded, hence sub-Gaussian, noise of a given covariance."""

    def __init__(self, problem, X, y, deviations, seed):
        self._problem, self._X, self._y = problem, X, y
        self._deviations, self._rng = deviations, np.random.default_rng(seed)

    def gradient(self, theta):
        slopes = self._problem.loss.grad(self._X @ theta, self._y)
        signs = self._rng.choice([-1.0, 1.0], size=theta.shape)
        return self._X.T @ slopes / len(self._y) + signs * self._deviations


@pytest.mark.parametrize("loss", [Logistic(), Quantile(0.3)], ids=repr)
@pytest.mark.parametrize("domain", [L2Ball(1.0), L1Ball(1.0), Simplex(1.0)], ids=repr)
@pytest.mark.parametrize("T", [30, 300])
def test_mirror_descent_on_sub_gaussian_gradients(loss, domain, T):
    """[TTZ14] Corollary 3.6: 2.2 sqrt(D (L^2 + lambda_max(Sigma) N)/(m T)), for any covariance Sigma."""
    rng = np.random.default_rng(3)
    d = 40
    X = rng.uniform(-1, 1, (400, d)) / math.sqrt(d)
    y = np.where(X[:, 0] + 0.1 * rng.normal(size=400) > 0, 1.0, -1.0)
    problem = Problem(loss, domain, bounds=Bounds(1.0, 1.0), d=d)
    deviations = np.geomspace(0.02, 2.0, d)
    psi = domain.mirror_map(d)
    G2 = problem.lipschitz_in(psi) ** 2 + deviations.max() ** 2 * psi.noise_norm(d)
    bound = 2.2 * math.sqrt(psi.divergence_bound(d) * G2 / (psi.strong_convexity * T))

    def objective(theta):
        return loss.value(X @ theta, y).mean()

    exact = Anisotropic(problem, X, y, 0.0, 0)
    best = objective(run_with_oracle(NoisyMirrorDescent(), problem, exact, n_iter=2000))
    thetas = [
        run_with_oracle(
            NoisyMirrorDescent(),
            problem,
            Anisotropic(problem, X, y, deviations, seed),
            n_iter=T,
            noise=float(deviations.max()),
        )
        for seed in range(4)
    ]
    assert all(domain.contains(theta) for theta in thetas)
    assert np.mean([objective(theta) for theta in thetas]) - best <= bound
    # Exact answers, and steps as long as they allow: the part of the noise is gone from the bound.
    quiet = run_with_oracle(NoisyMirrorDescent(), problem, exact, n_iter=T)
    r = math.sqrt(2 * psi.divergence_bound(d) / psi.strong_convexity)
    assert objective(quiet) - best <= 1.05 * r * problem.lipschitz_in(psi) / math.sqrt(T)


def test_the_step_of_mirror_descent_is_the_theorems():
    """With the Euclidean map r/sqrt((T + 1) (L2^2 + d sigma^2))."""
    problem = Problem(Logistic(), L2Ball(3.0), bounds=Bounds(1.0, 1.0), d=D)

    class Constant:
        def gradient(self, theta):
            return np.full(D, 1e-3)

    theta = run_with_oracle(NoisyMirrorDescent(), problem, Constant(), n_iter=1, noise=0.7)
    eta = 3.0 / math.sqrt(2 * (problem.lipschitz(2) ** 2 + D * 0.7**2))
    np.testing.assert_allclose(theta, -eta * 1e-3 / 2)  # the mean of the start, 0, and one step


@pytest.mark.parametrize(
    "solver",
    [
        NoisyGradientDescent(),
        NoisyMirrorDescent(),
        NoisyAcceleratedMirrorDescent(),
        NoisyGeneralFrankWolfe(),
        NoisyStronglyConvexMirrorDescent(),
    ],
    ids=lambda solver: type(solver).__name__,
)
def test_every_gradient_solver_runs_on_an_oracle_of_ones_own(solver):
    problem = Problem(Huber(0.5), L2Ball(1.0), bounds=Bounds(1.0, 1.0), d=D, l2=0.3)
    X, y = records(500)
    oracle = ExactOracle(NoisyGradientDescent(1).plan(problem, 500, BUDGET, Tight()), X, y)
    theta = run_with_oracle(solver, problem, oracle, n_iter=3000)
    assert len(oracle.points) == 3000
    reference = run_with_oracle(NoisyGradientDescent(momentum=0.0), problem, oracle, n_iter=500)
    assert oracle.objective(theta) - oracle.objective(reference) < 2e-3


def test_a_run_on_an_own_oracle_checks_its_arguments():
    problem = Problem(Huber(0.5), L2Ball(1.0), bounds=Bounds(1.0, 1.0), d=D)
    for wrong in ({"n_iter": 0}, {"n_iter": 5, "noise": -1.0}, {"n_iter": 5, "noise": math.inf}):
        with pytest.raises(ValueError, match="must be"):
            run_with_oracle(NoisyMirrorDescent(), problem, None, **wrong)


@pytest.mark.parametrize(
    ("loss", "radius", "d", "n", "epsilon"),
    [
        (Logistic(), 10.0, 50_000, 16_000, 1.0),  # the noise would fill the set
        (Squared(), 3.0, 3, 300, 0.1),  # by the bound, the noise would cost more than the constant model
        (Logistic(), 10.0, 10, 50_000, 1.0),  # neither: the bound's own minimiser
    ],
)
def test_the_noise_fills_neither_the_set_nor_the_loss(loss, radius, d, n, epsilon):
    declared = Bounds(1.0, 1.0 if d > 100 else None)  # without a length of rows the bound decides
    problem = Problem(loss, L2Ball(radius), bounds=declared, d=d)
    budget = Budget(epsilon, 1e-6)
    plan = NoisyGradientDescent(clip=1.0).plan(problem, n, budget, Tight())
    solver, noise = plan.solver, plan.stages[0].mechanism.noise
    lengths = (1 - solver.momentum ** np.arange(1, plan.n_calls + 1)) / (1 - solver.momentum)
    travel = solver.step * np.cumsum(lengths)[-math.ceil(plan.n_calls / 3) :].mean()
    moved = noise / math.sqrt(plan.n_calls) * travel  # standard deviation of a coordinate, by the rule
    assert moved * math.sqrt(d) <= radius * 1.01
    assert problem.smoothness / 2 * moved**2 <= 0.1 * problem.loss_at_zero * 1.01
