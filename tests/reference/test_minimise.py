"""The inner minimiser against independent solvers, and its public promises on records made to break them."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq, lsq_linear
from sklearn.linear_model import ElasticNet as SklearnElasticNet
from sklearn.linear_model import LogisticRegression

import dpcvx.mechanisms.minimise
from adversary import records, stored
from dpcvx.data.objective import Objective
from dpcvx.domains import Box, L1Ball, L2Ball, Simplex
from dpcvx.domains.regularizers import L1, ElasticNet, GroupL2
from dpcvx.errors import Incompatible
from dpcvx.losses import Huber, Logistic, Quantile, Sigmoid, SmoothHinge, Softmax, Squared
from dpcvx.mechanisms.minimise import RidgeFacts, minimise
from dpcvx.problem import Bounds, Problem

N, D = 400, 5
SMOOTH = [Logistic(), Huber(0.5), SmoothHinge(0.5), Squared()]


def data(seed=0, n=N, d=D):
    """Rows that are stored exactly, and labels that follow them."""
    rng = np.random.default_rng(seed)
    X = np.trunc(rng.uniform(-1, 1, (n, d)) / math.sqrt(d) * 2**14) / 2**14
    score = X @ np.array([3.0, -2.0, 1.0, 0.0, 0.5][:d]) + 0.3 * rng.normal(size=n)
    return X, np.clip(score, -1, 1), np.where(score > 0, 1.0, -1.0)


def solve(problem, X, y, ridge, linear=None, storage="dense"):
    facts = RidgeFacts(problem, len(y), len(y), ridge, 100.0)
    objective = stored(X, y, problem.bounds, storage).objective(problem.loss, problem.outputs, problem.z_max)
    term = np.zeros(problem.shape) if linear is None else linear
    return minimise(facts, objective, term, 2 * facts.rounding)


def problem_of(loss, domain=None, **more):
    return Problem(loss, domain, bounds=Bounds(1.0, 1.0), d=D, l2=0.01, **more)


@pytest.mark.parametrize("storage", ["dense", "csr"])
def test_logistic_regression_is_that_of_scikit_learn(storage):
    X, _, labels = data()
    theta = solve(problem_of(Logistic()), X, labels, 2.0, storage=storage)
    peer = LogisticRegression(C=0.5, fit_intercept=False, tol=1e-12, solver="newton-cholesky", max_iter=100)
    np.testing.assert_allclose(theta, peer.fit(X, labels).coef_[0], atol=1e-8)


def test_ridge_regression_with_a_linear_term_is_the_closed_form():
    X, y, _ = data()
    b = np.random.default_rng(1).normal(size=D)
    theta = solve(problem_of(Squared(), L2Ball(50.0)), X, y, 2.0, b)
    np.testing.assert_allclose(theta, np.linalg.solve(X.T @ X + 2 * np.eye(D), X.T @ y - b), atol=1e-8)


def test_elastic_net_is_that_of_scikit_learn():
    X, y, _ = data()
    l1, ridge = 0.02, 4.0
    theta = solve(problem_of(Huber(100.0), regularizer=L1(l1)), X, y, ridge)
    both = l1 + ridge / N
    peer = SklearnElasticNet(alpha=both, l1_ratio=l1 / both, fit_intercept=False, tol=1e-14, max_iter=10**6)
    np.testing.assert_allclose(theta, peer.fit(X, y).coef_, atol=1e-8)
    assert (theta == 0).any()
    split = solve(problem_of(Huber(100.0), regularizer=ElasticNet(l1, 3.0 / N)), X, y, 1.0)
    np.testing.assert_allclose(split, theta, atol=1e-8)


def test_a_box_is_that_of_scipy():
    X, y, _ = data()
    theta = solve(problem_of(Squared(), Box(-0.3, 0.4)), X, y, 2.0)
    wide, long = np.vstack([X, math.sqrt(2.0) * np.eye(D)]), np.concatenate([y, np.zeros(D)])
    np.testing.assert_allclose(theta, lsq_linear(wide, long, (-0.3, 0.4), tol=1e-14).x, atol=1e-8)


def test_a_ball_is_the_root_of_its_secular_equation():
    X, y, _ = data()
    H, c = X.T @ X + 2 * np.eye(D), X.T @ y

    def outside(multiplier):
        return np.linalg.norm(np.linalg.solve(H + multiplier * np.eye(D), c)) - 0.7

    multiplier = brentq(outside, 0.0, 1e4, xtol=1e-13)
    theta = solve(problem_of(Squared(), L2Ball(0.7)), X, y, 2.0)
    np.testing.assert_allclose(theta, np.linalg.solve(H + multiplier * np.eye(D), c), atol=1e-8)


@pytest.mark.parametrize("loss", SMOOTH, ids=lambda loss: loss.name)
@pytest.mark.parametrize(
    "where",
    [{"domain": L1Ball(0.8)}, {"domain": Simplex(0.8)}, {"regularizer": GroupL2(((0, 1), (2, 3, 4)), 0.05)}],
    ids=["l1 ball", "simplex", "groups"],
)
def test_no_feasible_point_is_better(loss, where):
    if "regularizer" in where and loss.name == "squared":
        loss = Huber(1000.0)  # squared slopes are bounded on a set only
    X, y, labels = data()
    y = y if loss.name in ("squared", "huber") else labels
    problem = problem_of(loss, **where)
    b = np.array([1.0, -2.0, 0.5, 0.0, 1.0])
    theta = solve(problem, X, y, 2.0, b)

    def J(s):
        extra = 0.0 if problem.regularizer is None else N * problem.regularizer.value(s)
        return loss.value(X @ s, y).sum() + s @ s + b @ s + extra

    rng = np.random.default_rng(2)
    for size in (1e-4, 1e-2, 1.0):
        for _ in range(50):
            other = theta + size * rng.normal(size=D)
            other = other if problem.domain is None else problem.domain.project(other)
            # Strong convexity: more than the ridge's part of the distance.
            assert J(other) - J(theta) >= np.sum((other - theta) ** 2) * (1 - 1e-6) - 1e-11


def test_several_outputs():
    rng = np.random.default_rng(3)
    X, _, _ = data()
    classes = rng.integers(0, 3, N).astype(float)
    problem = problem_of(Softmax(), L2Ball(5.0), outputs=3)
    theta = solve(problem, X, classes, 2.0)
    slopes = problem.loss.grad(X @ theta, classes)
    np.testing.assert_allclose(X.T @ slopes + 2.0 * theta, 0.0, atol=1e-7)
    both = rng.uniform(-1, 1, (N, 2))
    theta = solve(problem_of(Huber(0.5), outputs=2), X, both, 2.0)
    for k in range(2):
        np.testing.assert_allclose(theta[:, k], solve(problem_of(Huber(0.5)), X, both[:, k], 2.0), atol=1e-8)


@pytest.mark.parametrize("loss", SMOOTH, ids=lambda loss: loss.name)
def test_beyond_the_margin_bound_a_loss_is_its_tangent(loss):
    rows = stored(np.eye(3), np.array([1.0, -1.0, 0.3]), Bounds(1.0), "dense")
    objective = rows.objective(loss, 1, 0.8)
    theta, h = np.array([2.0, -3.0, 0.5]), 1e-6
    for j in range(3):
        step = h * np.eye(3)[j]
        slope = (objective.value(theta + step) - objective.value(theta - step)) / (2 * h)
        assert objective.gradient(theta)[j] == pytest.approx(slope, abs=1e-6)
    far = objective.gradient(np.array([1e6, -1e6, 1e6]))
    assert (np.abs(far) <= loss.lipschitz(0.8)).all()
    if loss.name == "squared":
        assert abs(objective.gradient(np.array([-5.0, 0.0, 0.0]))[0]) == pytest.approx(1.8)
        bend = np.diag(objective.hessian(theta))
        np.testing.assert_allclose(bend, [0.0, 0.0, 1.0], atol=1e-6)


@pytest.mark.parametrize("loss", [*SMOOTH, Softmax()], ids=lambda loss: loss.name)
def test_a_record_never_pulls_harder_than_its_bound(loss):
    """Absurd labels and features: the gradient of one record stays within L B."""
    rng = np.random.default_rng(5)
    outputs = 3 if loss.joint else 1
    problem = Problem(loss, L2Ball(2.0), bounds=Bounds(1.0, 1.0), d=D, outputs=outputs)
    facts, widest = RidgeFacts(problem, 1, 1, 1.0), 0.0
    X, y = records(loss, (60, D), outputs, rng)
    for i in range(60):
        objective = stored(X[i : i + 1], y[i : i + 1], problem.bounds, "dense").objective(
            loss, outputs, problem.z_max
        )
        for _ in range(3):
            theta = problem.domain.project(rng.normal(size=problem.shape))
            widest = max(widest, float(np.linalg.norm(objective.gradient(theta))))
    assert 0.3 < widest / (facts.slope * facts.row) <= 1 + 1e-12


def hard_records(kind, n, rng):
    """Records that make J as ill-conditioned as its bounds allow, or as rough."""
    X = np.zeros((n, D))
    if kind == "one direction":
        X[:, 0] = 1.0
    elif kind == "two scales":
        X[:, 0], X[0, 0], X[0, 1] = 1.0, 0.0, 2.0**-14
    else:
        X, _ = records(Huber(0.5), (n, D), 1, rng)
    return X, rng.choice([-1.0, 1.0], n)


@pytest.mark.parametrize("kind", ["one direction", "two scales", "absurd"])
@pytest.mark.parametrize("loss", SMOOTH, ids=lambda loss: loss.name)
@pytest.mark.parametrize("domain", [L2Ball(3.0), L1Ball(0.5), None], ids=["l2", "l1", "free"])
def test_the_public_number_of_steps_is_enough(kind, loss, domain, monkeypatch):
    """Without Newton steps, accelerated descent meets the certificate within its public count."""
    if domain is None and loss.name == "squared":
        loss = Huber(5.0)
    monkeypatch.setattr(dpcvx.mechanisms.minimise, "NEWTON_SIZE", 0)
    rng, n, ridge = np.random.default_rng(6), 200, 0.05
    problem = Problem(loss, domain, bounds=Bounds(1.0, 1.0), d=D, l2=1e-6)
    X, y = hard_records(kind, n, rng)
    objective = stored(X, y, problem.bounds, "dense").objective(loss, 1, problem.z_max)
    facts = RidgeFacts(problem, n, n, ridge, 20.0)
    linear = rng.normal(size=D)
    linear *= 20.0 / np.linalg.norm(linear)
    tolerance = 4 * facts.rounding
    passes, gradient = [0], objective.gradient

    def counted(theta):
        passes[0] += 1
        return gradient(theta)

    objective.gradient = counted
    minimise(facts, objective, linear, tolerance)
    # Each step is one pass; each certificate, one in CHECK_EVERY steps, two; the first and last, four.
    assert passes[0] <= facts.steps(tolerance) * (1 + 2 / dpcvx.mechanisms.minimise.CHECK_EVERY) + 6


def test_newton_steps_alone_end_at_the_minimiser(monkeypatch):
    """Otherwise every fit would take the accelerated steps, which are many more."""
    X, y, labels = data()

    def refuse(*given):
        raise AssertionError("Newton steps did not reach the minimiser.")

    monkeypatch.setattr(dpcvx.mechanisms.minimise._Search, "accelerate", refuse)
    solve(problem_of(Squared(), L2Ball(50.0)), X, y, 2.0)
    solve(problem_of(Logistic()), X, labels, 2.0)


def test_newton_steps_are_only_a_help(monkeypatch):
    """A useless Hessian, and a public count planted too small, change nothing that matters."""
    X, _, labels = data()
    right = solve(problem_of(Logistic(), L1Ball(1.0)), X, labels, 2.0)
    monkeypatch.setattr(Objective, "hessian", lambda self, theta: 1e9 * np.eye(D))
    monkeypatch.setattr(RidgeFacts, "steps", lambda self, tolerance: 1)
    monkeypatch.setattr(dpcvx.mechanisms.minimise, "CHECK_EVERY", 1)
    np.testing.assert_allclose(solve(problem_of(Logistic(), L1Ball(1.0)), X, labels, 2.0), right, atol=1e-8)


def test_a_tolerance_below_rounding_is_refused():
    problem = problem_of(Logistic())
    facts = RidgeFacts(problem, N, N, 2.0)
    X, _, labels = data()
    objective = stored(X, labels, problem.bounds, "dense").objective(problem.loss, 1, problem.z_max)
    with pytest.raises(ValueError, match="it must be at least"):
        minimise(facts, objective, np.zeros(D), 1.9 * facts.rounding)
    many = 10**6  # PRIVACY_MATH §4: never below n^2 u, though blocks of rows make smaller errors
    assert RidgeFacts(problem, many, many, 2.0).rounding >= many**2 * 2.0**-53


@pytest.mark.parametrize("n", [100, 5000])
def test_gradients_are_within_the_rounding_allowance(n):
    """Against exact sums of the same float64 slopes, and far inside: the allowance is a worst case."""
    rng = np.random.default_rng(8)
    X = np.trunc(rng.uniform(0.5, 1, (n, 3)) / math.sqrt(3) * 2**14) / 2**14
    y = rng.uniform(-1, 1, n)
    problem = Problem(Huber(0.5), L2Ball(5.0), bounds=Bounds(1.0, 1.0), d=3)
    objective = stored(X, y, problem.bounds, "dense").objective(problem.loss, 1, problem.z_max)
    theta = np.array([1.0, -2.0, 0.3])
    slopes = problem.loss.grad(np.array([math.fsum(row * theta) for row in X]), y)
    exact = np.array([math.fsum(slopes * X[:, j]) for j in range(3)])
    error = np.linalg.norm(objective.gradient(theta) - exact)
    assert error <= 0.05 * RidgeFacts(problem, n, n, 1.0).rounding


class Boastful(Huber):
    """A loss of the user's own, whose constants may be wrong."""


class Shifted(L1):
    """A regularizer that is not 0 at 0."""

    def value(self, theta):
        return super().value(theta - 1.0)


@pytest.mark.parametrize(
    ("problem", "match"),
    [
        (problem_of(Quantile(0.5)), "smooth convex"),
        (problem_of(Sigmoid()), "smooth convex"),
        (problem_of(Squared()), "unbounded slopes"),
        (problem_of(Boastful(0.5)), "which nothing enforces"),
        (problem_of(Logistic(), regularizer=Shifted(0.1)), "which nothing enforces"),
        (problem_of(Logistic(), L2Ball(1.0), regularizer=L1(0.1)), "not both"),
    ],
    ids=["corner", "not convex", "unbounded", "unknown", "off zero", "two"],
)
def test_what_cannot_be_bounded_is_refused_from_public_facts(problem, match):
    with pytest.raises(Incompatible, match=match):
        RidgeFacts(problem, N, N, 1.0)
    with pytest.raises(ValueError, match="ridge is"):
        RidgeFacts(problem_of(Logistic()), N, N, 0.0)
