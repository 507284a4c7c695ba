"""Rates of the theorems in quick form; benchmarks/rates.py has the curves."""

import math
from dataclasses import dataclass

import numpy as np
import pytest

from dpcvx.accounting import Budget, Tight
from dpcvx.data.memory import source
from dpcvx.domains import L1Ball, L2Ball, NuclearBall, Simplex
from dpcvx.domains.mirror import Euclidean
from dpcvx.losses import Logistic, Squared
from dpcvx.noise import SeededGenerator
from dpcvx.plans import execute
from dpcvx.problem import Bounds, Problem
from dpcvx.solvers import NoisyGeneralFrankWolfe, NoisyGradientDescent, NoisyMirrorDescent

BUDGET = Budget(1.0, 1e-6)
UNIT = Bounds(1.0, 1.0)


@dataclass(frozen=True)
class EuclideanL1Ball(L1Ball):
    def mirror_map(self, d):
        return Euclidean(self)


@dataclass(frozen=True)
class EuclideanSimplex(Simplex):
    def mirror_map(self, d):
        return Euclidean(self)


@dataclass(frozen=True)
class EuclideanNuclearBall(NuclearBall):
    def mirror_map(self, d):
        return Euclidean(self)


def stored(X):
    return np.trunc(0.999 * X * 2**14) / 2**14


def excess(problem, solver, X, y, seed):
    """Of one private run, over the optimum by accelerated descent with a duality gap of 1e-5."""
    n, C = len(y), problem.domain

    def gradient(theta):
        return X.T @ problem.loss.grad(X @ theta, y) / n + problem.l2 * theta

    def value(theta):
        return problem.loss.value(X @ theta, y).sum() / n + problem.l2 / 2 * (theta**2).sum()

    best, t = C.start(problem.shape), 1.0
    point, g = best, gradient(best)
    while ((best - C.lmo(g)) * g).sum() > 1e-5:
        new = C.project(point - gradient(point) / problem.smoothness)
        after = (1 + math.sqrt(1 + 4 * t * t)) / 2
        best, point, t = new, new + (t - 1) / after * (new - best), after
        g = gradient(best)
    plan = solver.plan(problem, n, BUDGET, Tight())
    theta = execute(plan, source(X, y, bounds=problem.bounds), rng=SeededGenerator(seed)).theta
    assert C.contains(theta)
    return value(theta) - value(best)


def one_sign(n, p):
    """Rows of norm 1: a sign that tells nine of ten labels, and noise in all other features."""
    rng = np.random.default_rng(0)
    X, signs = rng.normal(size=(n, p)), rng.choice([-1.0, 1.0], n)
    X[:, 0] = 0
    X *= 0.6 / np.linalg.norm(X, axis=1, keepdims=True)
    X[:, 0] = 0.8 * signs
    return stored(X), signs * rng.choice([-1.0, 1.0], n, p=[0.1, 0.9])


@pytest.mark.long
@pytest.mark.parametrize(
    ("domain", "euclidean"),
    [(L1Ball(1.0), EuclideanL1Ball(1.0)), (Simplex(1.0), EuclideanSimplex(1.0))],
    ids=["l1", "simplex"],
)
def test_mirror_descent_in_the_geometry_of_its_set_hardly_feels_the_dimension(domain, euclidean):
    """[TTZ14] Theorem 3.2: at most 2.5 times the excess at a hundred times the features, gradients below 1.

    The bounds grow about two times. The Euclidean map's grows ten times; it is beyond 2.5 although the risk
    of the start caps it.
    """

    risks = {}
    for C in (domain, euclidean):
        for p in (100, 10_000):
            problem = Problem(Logistic(), C, bounds=UNIT, d=p)
            risks[C, p] = excess(problem, NoisyMirrorDescent(), *one_sign(500, p), 0)
    own, plain = (risks[C, 10_000] / risks[C, 100] for C in (domain, euclidean))
    assert 1 < own <= 2.5 < plain
    assert risks[euclidean, 10_000] > 1.5 * risks[domain, 10_000]


def worst_excess(solver, domain, m, n=1000):
    """Largest over signals of several strengths: strong ones are easy and weak ones cost little."""
    rng = np.random.default_rng(0)
    X, signs = rng.normal(size=(n, m)), rng.choice([-1.0, 1.0], n)
    X[:, 0] = 0
    X *= 0.6 / np.linalg.norm(X, axis=1, keepdims=True)
    X[:, 0] = 0.8 * signs
    problem = Problem(Squared(), domain, bounds=UNIT, d=m, outputs=m)
    risks = []
    for strength in (0.2, 0.4, 0.8):
        y = np.zeros((n, m))
        y[:, 0] = strength * signs
        risks.append(excess(problem, solver, stored(X), y, 0))
    return max(risks)


@pytest.mark.long
def test_excess_over_the_nuclear_ball_follows_the_square_root_of_the_side():
    """[TTZ14] section 3.2 and Theorem B.2: the width of m by m matrices is 2 sqrt(m), not m."""
    sides = 12, 96
    frank_wolfe = [worst_excess(NoisyGeneralFrankWolfe(clip=1.0), NuclearBall(0.3), m) for m in sides]
    assert 1.5 < frank_wolfe[1] / frank_wolfe[0] < 1.25 * math.sqrt(8)
    spectral = worst_excess(NoisyMirrorDescent(clip=1.0), NuclearBall(0.3), 96)
    euclidean = worst_excess(NoisyMirrorDescent(clip=1.0), EuclideanNuclearBall(0.3), 96)
    assert spectral < 0.8 * euclidean


def test_default_descent_with_a_ridge_falls_like_one_over_n_squared():
    """[WYX17] Theorem 6.2: momentum beyond what the condition number allows would overshoot."""
    problem = Problem(Logistic(), L2Ball(2.0), bounds=UNIT, d=10, l2=0.2)
    sizes, risks = (500, 2000, 8000), []
    for n in sizes:
        runs = []
        for seed in range(4):
            rng = np.random.default_rng(seed)
            X = rng.normal(size=(n, 10))
            X = stored(X / np.linalg.norm(X, axis=1, keepdims=True))
            y = np.where(X[:, 0] + 0.2 * rng.normal(size=n) > 0, 1.0, -1.0)
            runs.append(excess(problem, NoisyGradientDescent(), X, y, seed))
        risks.append(np.mean(runs))
        assert risks[-1] < sum(NoisyGradientDescent().predict(problem, n, BUDGET))
    assert np.polyfit(np.log(sizes), np.log(risks), 1)[0] < -1.7


def test_momentum_is_what_the_way_needs_and_no_more_than_a_ridge_allows():
    def planned(n, l2=0.0, **given):
        problem = Problem(Logistic(), L2Ball(30.0), bounds=UNIT, d=4, l2=l2)
        return NoisyGradientDescent(**given).plan(problem, n, BUDGET, Tight()).solver

    near, far = planned(100), planned(1_000_000)
    assert near.momentum == 0.0
    assert 0.8 < far.momentum < 0.99
    for solver in (near, far):  # nothing of it is felt at the end
        assert (1 - solver.momentum) * solver.n_iter >= 19 or solver.momentum == 0
    assert planned(1_000_000, n_iter=10).momentum == pytest.approx(0.9)  # in haste
    assert planned(1_000_000, l2=0.25 / 8).momentum <= 0.5 + 1e-9  # condition number 9
    assert planned(1_000_000, n_iter=400, step=0.1).momentum == pytest.approx(0.95)


def test_steps_grow_like_the_root_of_the_way():
    problem = Problem(Logistic(), L2Ball(30.0), bounds=UNIT, d=4)
    solvers = [NoisyGradientDescent().plan(problem, n, BUDGET, Tight()).solver for n in (10**4, 10**6)]
    ways = [NoisyGradientDescent()._travel(problem, n, BUDGET) for n in (10**4, 10**6)]
    assert solvers[1].n_iter / solvers[0].n_iter == pytest.approx(math.sqrt(ways[1] / ways[0]), rel=0.2)
