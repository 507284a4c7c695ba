"""Shrunk singular values of several targets: the formula, the level of the noise, and what it gains."""

import math

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.accounting import Tight
from dpcvx.plans import Asking
from dpcvx.solvers import NoisyGradientDescent, SpectralShrinkage
from dpcvx.solvers.spectral import shrink_singular_values

BUDGET = dp.Budget(1.0, 1e-6)


def test_shrunk_values_are_those_of_the_formula_and_noise_alone_is_removed():
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((200, 50))
    assert np.linalg.norm(shrink_singular_values(noise, 1.1)) == 0
    u, v = rng.standard_normal(200), rng.standard_normal(50)
    signal = 60 * np.outer(u, v) / (np.linalg.norm(u) * np.linalg.norm(v))
    shrunk = shrink_singular_values(signal + noise, 1.0)
    values = np.linalg.svd(shrunk, compute_uv=False)
    z, b = np.linalg.svd(signal + noise, compute_uv=False)[0] / math.sqrt(200), 0.25
    assert values[0] == pytest.approx(math.sqrt(200) * math.sqrt((z**2 - b - 1) ** 2 - 4 * b) / z)
    assert np.linalg.norm(shrunk - signal) < 0.3 * np.linalg.norm(noise)
    np.testing.assert_array_equal(shrink_singular_values(signal, 0.0), signal)


class Records(Asking):
    """Gradients of independent columns and a rank-one truth, with the noise of a plan."""

    def __init__(self, plan, curvature, truth, rng):
        self.noises = (stage.mechanism.noise for stage in plan.stages for _ in range(stage.n_calls))
        self.curvature, self.truth, self.rng = curvature, truth, rng

    def ask(self, *public, question=None):
        noise = next(self.noises) * self.rng.standard_normal(public[0].shape)
        return self.curvature * (public[0] - self.truth) + noise


def test_the_noise_of_the_loop_is_found_without_records():
    problem = dp.Problem(dp.Huber(1.0), dp.NuclearBall(20.0), bounds=dp.Bounds(1.0, 1.0), d=31, outputs=8)
    solver = SpectralShrinkage(NoisyGradientDescent(n_iter=60, clip=1.0))
    plan = solver.plan(problem, 20_000, BUDGET, Tight())
    assert (
        plan.event == NoisyGradientDescent(n_iter=60, clip=1.0).plan(problem, 20_000, BUDGET, Tight()).event
    )
    rng, curvature = np.random.default_rng(3), (1 / (1 + 1 / math.sqrt(31))) ** 2 / 31
    nothing = plan.solver.run(plan, Records(plan, curvature, np.zeros((31, 8)), rng))
    plain = plan.solver.solver.run(plan, Records(plan, curvature, np.zeros((31, 8)), rng))
    assert np.linalg.norm(nothing[:-1]) < 0.3 * np.linalg.norm(plain[:-1])
    assert np.linalg.norm(nothing[-1]) > 0  # the constant feature is left as it is


def test_few_combinations_are_found_with_less_noise():
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (7000, 20))
    truth = np.outer(rng.standard_normal(20), rng.standard_normal(6)) / 4
    Y = X @ truth + 0.7 * rng.standard_normal((7000, 6))
    declared = {"bounds": (-1, 1), "y_bounds": (-6, 6), "delta": 1e-8, "random_state": 0}
    model = dp.PrivateLowRankRegression(epsilon=0.5, **declared).fit(X[:5000], Y[:5000])
    assert isinstance(model.plan_.solver.solver, SpectralShrinkage)
    assert np.linalg.matrix_rank(model.coef_, tol=1e-6) < 6
    named = dp.PrivateLowRankRegression(epsilon=0.5, solver="gradient_descent", **declared)
    plain = named.fit(X[:5000], Y[:5000])
    left, before = (np.mean((Y[5000:] - each.predict(X[5000:])) ** 2) for each in (model, plain))
    assert left < before - 0.02


def test_one_target_and_exact_answers_are_not_shrunk():
    X, y = np.random.default_rng(0).uniform(-1, 1, (2000, 3)), np.zeros(2000)
    model = dp.PrivateLowRankRegression(epsilon=1.0, bounds=(-1, 1), y_bounds=(-1, 1), random_state=0)
    assert not isinstance(model.fit(X, y).plan_.solver.solver, SpectralShrinkage)
