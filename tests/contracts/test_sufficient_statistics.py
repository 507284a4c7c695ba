"""Least squares from noisy second moments: exact without noise, within its bound with it, AdaSSP's ridge."""

import math

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.accounting import Tight, gaussian_mu
from dpcvx.errors import Incompatible
from dpcvx.mechanisms import NoisyGradient, NoisySecondMoments, SecondMoments
from dpcvx.noise import SeededGenerator
from dpcvx.solvers import SufficientStatistics

N, D = 2000, 4
BUDGET = dp.Budget(1.0, 1e-6)


def problem(radius=3.0, l2=0.0, bounds=None):
    return dp.Problem(dp.Squared(), dp.L2Ball(radius), bounds=bounds or dp.Bounds(1.0), d=D, l2=l2)


def sample(n=N, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, D))
    return X, np.clip(X @ [0.4, -0.3, 0.1, 0.2] + 0.1 * rng.normal(size=n), -1, 1)


class Exact:
    """An oracle without noise that counts its answers."""

    def __init__(self, X, y, l2):
        self.X, self.y, self.l2, self.asked = X, y, l2, []

    def second_moments(self, theta):
        self.asked.append("second moments")
        return SecondMoments(self.X.T @ self.X / len(self.y))

    def gradient(self, theta):
        self.asked.append("gradient")
        return self.X.T @ (self.X @ theta - self.y) / len(self.y) + self.l2 * theta


def risk(X, y, theta, l2=0.0):
    return float(np.mean((X @ theta - y) ** 2) / 2 + l2 / 2 * theta @ theta)


@pytest.mark.parametrize("l2", [0.0, 0.5])
def test_without_noise_it_is_the_ridge_solution(l2):
    X, y = sample()
    plan = SufficientStatistics().plan(problem(l2=l2), 10**9, BUDGET, Tight())
    ask = Exact(X, y, l2)
    theta = plan.solver.run(plan, ask)
    truth = np.linalg.solve(X.T @ X / N + l2 * np.eye(D), X.T @ y / N)
    np.testing.assert_allclose(theta, truth, atol=1e-9)
    assert ask.asked == ["second moments", "gradient"]


def test_outside_its_set_it_is_the_minimiser_over_the_set():
    X, y = sample()
    plan = SufficientStatistics().plan(problem(radius=0.2), 10**9, BUDGET, Tight())
    theta = plan.solver.run(plan, Exact(X, y, 0.0))
    assert np.linalg.norm(theta) == pytest.approx(0.2)
    rng = np.random.default_rng(1)
    others = rng.normal(size=(500, D))
    others *= 0.2 / np.linalg.norm(others, axis=1, keepdims=True)
    near = theta + 0.01 * others
    near *= 0.2 / np.linalg.norm(near, axis=1, keepdims=True)
    assert risk(X, y, theta) <= min(risk(X, y, other) for other in [*others, *near]) + 1e-9


def test_both_answers_share_the_budget_evenly_and_use_it_up():
    plan = SufficientStatistics().plan(problem(), N, BUDGET, Tight())
    moments, slope = (stage.mechanism for stage in plan.stages)
    assert isinstance(moments, NoisySecondMoments)
    assert isinstance(slope, NoisyGradient)
    mu = gaussian_mu(1.0, 1e-6 * (1 - 1e-3))
    assert moments.noise_multiplier == pytest.approx(math.sqrt(2) / mu, rel=1e-6)
    assert slope.noise_multiplier == pytest.approx(math.sqrt(2) / mu, rel=1e-6)
    assert 0.9999 < plan.price.epsilon <= 1.0
    # sqrt(2) B^2/n and 2 B_y B/n with B^2 = 4, B_y = 1 (PRIVACY_MATH §15).
    assert moments.sensitivity == pytest.approx(math.sqrt(2) * 4 / N, rel=1e-6)
    assert slope.sensitivity == pytest.approx(2 * 2 / N, rel=1e-4)


def test_the_ridge_covers_the_noise_and_vanishes_where_it_is_small(monkeypatch):
    seen = []
    monkeypatch.setattr(
        "dpcvx.solvers.sufficient_statistics._minimiser", lambda A, b, ridge, problem: seen.append(ridge) or b
    )
    X, y = sample()
    for n in (200, 10**9):
        plan = SufficientStatistics().plan(problem(), n, BUDGET, Tight())
        plan.solver.run(plan, Exact(X, y, 0.0))
    # A third of the cube's second moments is on the diagonal: with 200 people the noise hides all of it.
    mu = gaussian_mu(1.0, 1e-6)
    largest = 4 * math.sqrt(2) / (200 * mu) * math.sqrt(D * math.log(2 * D**2 / 0.05))
    assert seen[0] == pytest.approx(largest, rel=1e-2)
    assert seen[1] == 0.0


def test_excess_risk_is_below_its_bound_and_falls_with_the_records():
    means = []
    for n in (2000, 20_000):
        X, y = sample(n)
        best = risk(X, y, np.linalg.solve(X.T @ X, X.T @ y))
        p = problem(radius=1.0)
        plan = dp.plan(p, n, BUDGET, candidates=(SufficientStatistics(),))
        data = dp.source(X, y, bounds=p.bounds)
        thetas = [dp.execute(plan, data, rng=SeededGenerator(seed)).theta for seed in range(20)]
        excess = [risk(X, y, theta) - best for theta in thetas]
        assert max(excess) <= plan.candidates[0].predicted
        means.append(np.mean(excess))
    assert means[1] < means[0] / 10


@pytest.mark.parametrize("loss", [dp.Logistic(), dp.Huber(0.5)], ids=repr)
def test_other_losses_are_refused(loss):
    with pytest.raises(Incompatible, match="squared loss of one target"):
        SufficientStatistics().plan(
            dp.Problem(loss, dp.L2Ball(1.0), bounds=dp.Bounds(1.0), d=D), N, BUDGET, Tight()
        )


def test_estimators_know_it_by_name():
    X, y = sample(20_000)
    settings = {"epsilon": 2.0, "bounds": (-1, 1), "y_bounds": (-1, 1), "random_state": 0}
    model = dp.PrivateLinearRegression(solver="sufficient_statistics", **settings).fit(X, y)
    assert isinstance(model.plan_.solver, SufficientStatistics)
    np.testing.assert_allclose(model.coef_, [0.4, -0.3, 0.1, 0.2], atol=0.1)
    questions = [part["question"] for part in model.privacy_statement_.mechanisms]
    assert questions == ["NoisyCounts", "NoisySecondMoments", "NoisyGradient"]
    with pytest.raises(ValueError, match="no iterations"):
        dp.PrivateLinearRegression(solver="sufficient_statistics", n_iter=3, **settings).fit(X, y)
