"""[KD19] section 4.2: Frank-Wolfe on the dual of a problem with a structured norm."""

import math

import cvxpy
import numpy as np
import pytest

from adversary import stored
from dpcvx.accounting import Budget, Tight, gaussian_mu
from dpcvx.domains import L2Ball, SubmodularBall, SubmodularPolyhedron
from dpcvx.domains.regularizers import L1, SubmodularNorm
from dpcvx.domains.set_functions import Cardinality, ConcaveOfCardinality, GroupCover
from dpcvx.errors import Incompatible
from dpcvx.estimators import PrivateHuberRegressor
from dpcvx.losses import Huber, Logistic, Quantile, Squared
from dpcvx.noise import SeededGenerator
from dpcvx.plans import execute
from dpcvx.problem import Bounds, Problem
from dpcvx.solvers import NoisyDualFrankWolfe
from exact import ExactOracle, solve_exactly

pytestmark = pytest.mark.long

N, D = 300, 6
BUDGET = Budget(1.0, 1e-6)
OVERLAPPING = GroupCover([[0, 1, 2], [2, 3], [3, 4, 5], [0, 5]], [1.0, 0.5, 2.0, 0.7])
ROOT = ConcaveOfCardinality(np.sqrt(np.arange(1, D + 1)))
NORMS = [SubmodularNorm(Cardinality(), 0.05), SubmodularNorm(ROOT, 0.05), SubmodularNorm(OVERLAPPING, 0.03)]
ACCURATE = {"solver": cvxpy.CLARABEL, **dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-7)}
over_norms = pytest.mark.parametrize("norm", NORMS, ids=lambda norm: type(norm.function).__name__)


def make_problem(loss, norm, **extra):
    return Problem(loss, bounds=Bounds(1.0, 1.0), d=D, l2=0.05, regularizer=norm, **extra)


def make_records(loss, n=N, d=D, seed=0):
    rng = np.random.default_rng(seed)
    X = np.trunc(rng.uniform(-1, 1, (n, d)) / math.sqrt(d) * 2**14) / 2**14
    y = np.clip(3 * X[:, 0] - 2 * X[:, 1] + 0.1 * rng.normal(size=n), -1, 1)
    return X, y if loss.name == "huber" else np.where(y > 0, 1.0, -1.0)


def convex_norm(norm, theta):
    """The norm as cvxpy writes it, from the definition and not from the Lovász extension."""
    F = norm.function
    if isinstance(F, GroupCover):
        groups = zip(F.groups, F.weights, strict=True)
        return norm.weight * sum(w * cvxpy.norm_inf(theta[list(group)]) for group, w in groups)
    if isinstance(F, Cardinality):
        return norm.weight * cvxpy.norm1(theta)
    gains = np.append(F.marginal_gains(np.arange(D)), 0.0)
    largest = [cvxpy.sum_largest(cvxpy.abs(theta), k) for k in range(1, D + 1)]
    return norm.weight * sum((gains[k] - gains[k + 1]) * largest[k] for k in range(D))


def optimum(problem, X, y):
    """(theta, value) of the regularised primal problem, by an independent solver."""
    theta = cvxpy.Variable(problem.d)
    if problem.loss.name == "huber":
        loss = cvxpy.sum(cvxpy.huber(X @ theta - y, problem.loss.threshold)) / (2 * len(y))
    else:
        loss = cvxpy.sum(cvxpy.logistic(cvxpy.multiply(-y, X @ theta))) / len(y)
    penalty = convex_norm(problem.regularizer, theta) + problem.l2 / 2 * cvxpy.sum_squares(theta)
    primal = cvxpy.Problem(cvxpy.Minimize(loss + penalty))
    return primal.solve(**ACCURATE), theta.value


def regularised(oracle, problem, theta):
    return oracle.objective(theta) + problem.regularizer.value(theta)


@pytest.mark.long
@pytest.mark.parametrize("loss", [Huber(0.4), Logistic()], ids=lambda loss: loss.name)
@over_norms
def test_with_exact_answers_the_primal_excess_is_within_its_bound(loss, norm):
    """8 R^2/(l2 (T + 1)) for the weighted mean of the minimisers, which never sees the norm's prox."""
    problem = make_problem(loss, norm)
    X, y = make_records(loss)
    best, minimiser = optimum(problem, X, y)
    R, excess = SubmodularPolyhedron(norm.function, norm.weight).norm(2, D), []
    for T in (1, 10, 80, 250):
        theta, oracle = solve_exactly(NoisyDualFrankWolfe(T, shrink=0.0), problem, X, y, BUDGET, Tight())
        excess.append(regularised(oracle, problem, theta) - best)
        assert -1e-6 < excess[-1] <= 8 * R**2 / (problem.l2 * (T + 1))
    assert excess[3] < 0.4 * excess[2] < 0.1 * excess[1] < 0.03 * excess[0]  # it falls like 1/T ...
    np.testing.assert_allclose(theta, minimiser, atol=0.02)  # ... down to the optimum
    assert np.abs(minimiser).max() > 0.2


def test_the_result_is_the_weighted_mean_of_released_points_and_the_terms_follow_the_greedy_corners():
    class Scripted:
        def __init__(self):
            self.terms, self.points = [], np.random.default_rng(3).normal(size=(5, D))

        def minimiser(self, linear):
            self.terms.append(linear.copy())
            return self.points[len(self.terms) - 1]

    problem = make_problem(Logistic(), NORMS[2])
    ask = Scripted()
    plan = NoisyDualFrankWolfe(5, shrink=0.0).plan(problem, N, BUDGET, Tight())
    theta = plan.solver.run(plan, ask)
    np.testing.assert_allclose(theta, np.arange(1, 6) @ ask.points / 15, atol=1e-12)
    K = SubmodularPolyhedron(OVERLAPPING, 0.03)
    term = np.zeros(D)
    for t in range(5):
        np.testing.assert_allclose(ask.terms[t], term, atol=1e-12)
        assert K.contains(term)
        assert np.linalg.norm(term) <= plan.stages[0].mechanism.linear
        corner = -K.lmo(ask.points[t])
        assert corner @ ask.points[t] == pytest.approx(NORMS[2].value(ask.points[t]))  # the support function
        term = (1 - 2 / (t + 2)) * term + 2 / (t + 2) * corner


@over_norms
def test_its_minimisers_are_the_iterates_of_mirror_descent_with_the_objective_as_potential(norm):
    """[KD19] section 5: with psi = F, grad psi(theta') = grad psi(theta) - g (a subgradient of F + Omega)."""
    rng = np.random.default_rng(4)
    A, b = rng.normal(size=(40, D)), rng.normal(size=40)
    H, linear = A.T @ A / 40 + 0.05 * np.eye(D), A.T @ b / 40  # F(theta) = theta'H theta/2 - linear'theta

    class Exact:
        def __init__(self):
            self.points = []

        def minimiser(self, s):
            self.points.append(np.linalg.solve(H, linear - s))
            return self.points[-1]

    ask, problem = Exact(), make_problem(Huber(0.4), norm)
    plan = NoisyDualFrankWolfe(40, shrink=0.0).plan(problem, N, BUDGET, Tight())
    plan.solver.run(plan, ask)
    theta = np.linalg.solve(H, linear)  # mirror descent starts at the minimiser of its potential
    for t, point in enumerate(ask.points):
        np.testing.assert_allclose(point, theta, atol=1e-9)
        gradient = H @ theta - linear
        corner = -SubmodularPolyhedron(norm.function, norm.weight).lmo(theta)
        assert corner @ theta == pytest.approx(norm.value(theta))  # it is a subgradient of the norm
        moved = H @ theta - 2 / (t + 2) * (gradient + corner)
        theta = np.linalg.solve(H, moved)
    value = [p @ H @ p / 2 - linear @ p + norm.value(p) for p in ask.points]
    assert min(value) < value[0]


def test_the_default_number_of_minimisers_balances_both_parts():
    norm, n = NORMS[1], 5000
    problem = make_problem(Logistic(), norm)
    K = SubmodularPolyhedron(norm.function, norm.weight)
    T = NoisyDualFrankWolfe().plan(problem, n, BUDGET, Tight()).n_calls

    def balance(count):
        mechanism = NoisyDualFrankWolfe(count).plan(problem, n, BUDGET, Tight()).stages[0].mechanism
        return 8 * K.norm(2, D) ** 2 / (problem.l2 * count) + mechanism.noise * K.gaussian_width(D)

    assert 2 < T < 1000
    assert balance(T) <= min(balance(round(f * T)) for f in (0.5, 0.8, 1.25, 2)) * 1.001
    less, more = (
        NoisyDualFrankWolfe().plan(problem, count, BUDGET, Tight()).n_calls for count in (n // 8, 8 * n)
    )
    assert more / T == pytest.approx(4, rel=0.05)  # like n^(2/3)
    assert T / less == pytest.approx(4, rel=0.3)


@over_norms
def test_with_noise_the_excess_is_within_the_prediction(norm):
    loss, n = Logistic(), 4000
    problem = make_problem(loss, norm)
    X, y = make_records(loss, n)
    best, _ = optimum(problem, X, y)
    data = stored(X, y, problem.bounds, "dense")
    for solver in (NoisyDualFrankWolfe(12, shrink=0.0), NoisyDualFrankWolfe(12)):
        plan = solver.plan(problem, n, BUDGET, Tight())
        oracle = ExactOracle(plan, X, y)
        risks = [
            regularised(oracle, problem, execute(plan, data, rng=SeededGenerator(seed)).theta)
            for seed in range(6)
        ]
        optimisation, privacy = solver.predict(problem, n, BUDGET)
        assert 0 < np.mean(risks) - best <= optimisation + privacy
        R = SubmodularPolyhedron(norm.function, norm.weight).norm(2, D)
        assert optimisation == pytest.approx(8 * R**2 / (problem.l2 * 13))


def test_the_prediction_is_the_bound():
    """Term by term, for the cube of the l1 norm: R = 0.05 sqrt(d), G = 0.05 d sqrt(2/pi); L = B = 1."""
    problem, n, T, shrink = make_problem(Logistic(), NORMS[0]), 20_000, 30, 0.3
    sigma = 2 * math.sqrt(T) / (n * 0.05 * gaussian_mu(1.0, 1e-6))
    averaged = sigma * np.linalg.norm(np.arange(1, T + 1)) / np.arange(1, T + 1).sum()
    R, G = 0.05 * math.sqrt(D), 0.05 * D * math.sqrt(2 / math.pi)
    privacy = (sigma + averaged) * G + min(averaged, sigma**2 / 8) + 0.05 * D * sigma**2 / 2
    for step in (0.0, shrink):
        optimisation, rest = NoisyDualFrankWolfe(T, shrink=step).predict(problem, n, BUDGET)
        assert optimisation == pytest.approx(8 * R**2 / (0.05 * (T + 1)))
        assert rest == pytest.approx(privacy + step * R, rel=1e-3)  # L max_K |<s, x>| = R for rows of norm 1


@pytest.mark.long
def test_the_last_prox_recovers_the_groups_that_the_noise_hides():
    """Four groups of five, one of them active: the mean has no zeros, its prox has those of the optimum."""
    d, n = 20, 20_000
    groups = [list(range(i, i + 5)) for i in range(0, d, 5)]
    norm = SubmodularNorm(GroupCover(groups), 0.02)
    problem = Problem(Logistic(), bounds=Bounds(1.0, 1.0), d=d, l2=0.02, regularizer=norm)
    rng = np.random.default_rng(1)
    X = np.trunc(rng.uniform(-1, 1, (n, d)) / math.sqrt(d) * 2**14) / 2**14
    y = np.where(X[:, :5].sum(axis=1) + 0.2 * rng.normal(size=n) > 0, 1.0, -1.0)
    _, minimiser = optimum(problem, X, y)
    active = np.abs(minimiser) > 1e-4
    assert np.array_equal(np.flatnonzero(active), np.arange(5))
    data, excess = stored(X, y, problem.bounds, "dense"), {}
    for solver in (NoisyDualFrankWolfe(10), NoisyDualFrankWolfe(10, shrink=0.0)):
        plan = solver.plan(problem, n, BUDGET, Tight())
        oracle = ExactOracle(plan, X, y)
        thetas = [execute(plan, data, rng=SeededGenerator(seed)).theta for seed in range(6)]
        same = sum(np.array_equal(theta != 0, active) for theta in thetas)
        assert same >= 3 if solver.shrink is None else same == 0  # nine in ten, and none
        excess[solver.shrink] = np.mean([regularised(oracle, problem, theta) for theta in thetas])
    assert excess[None] < excess[0.0]


def test_the_last_prox_takes_noise_alone_to_zero_on_average():
    """For the l1 norm it is the soft threshold at sigma ||w||_2 times the width of the cross polytope."""
    problem = make_problem(Logistic(), NORMS[0])
    plan = NoisyDualFrankWolfe(9).plan(problem, N, BUDGET, Tight())
    weights = np.arange(1, 10) / 45
    sigma = plan.stages[0].mechanism.noise * np.linalg.norm(weights)
    threshold = plan.solver.shrink * 0.05
    assert threshold == pytest.approx(sigma * SubmodularBall(Cardinality(), 1.0).gaussian_width(D))
    noise = sigma * np.random.default_rng(2).normal(size=(2000, D))
    assert threshold >= np.abs(noise).max(axis=1).mean()  # the width in closed form is an upper bound ...
    assert threshold <= 1.2 * np.abs(noise).max(axis=1).mean()  # ... and near it


def test_beside_a_set_it_minimises_over_the_set():
    """The inner minimisers keep to the ball, and so does the result; a SubmodularBall may lend its norm."""
    X, y = make_records(Huber(0.4), 2000)
    radius, norm = 0.3, SubmodularNorm(OVERLAPPING, 0.03)
    for problem, weight in (
        (make_problem(Squared(), norm, domain=L2Ball(radius)), None),
        (
            Problem(Squared(), SubmodularBall(OVERLAPPING, radius), bounds=Bounds(1.0, 1.0), d=D, l2=0.05),
            0.03,
        ),
    ):
        plan = NoisyDualFrankWolfe(15, weight).plan(problem, 2000, Budget(40.0, 1e-6), Tight())
        theta = execute(plan, stored(X, y, problem.bounds, "dense"), rng=SeededGenerator(0)).theta
        assert problem.domain.contains(theta)
        free = cvxpy.Variable(D)
        value = cvxpy.sum_squares(X @ free - y) / (2 * len(y)) + 0.025 * cvxpy.sum_squares(free)
        value += convex_norm(norm, free)
        gauge = convex_norm(SubmodularNorm(OVERLAPPING, 1.0), free) if weight else cvxpy.norm(free)
        cvxpy.Problem(cvxpy.Minimize(value), [gauge <= radius]).solve(**ACCURATE)
        np.testing.assert_allclose(theta, free.value, atol=0.05)
        assert np.abs(free.value).max() > 0.1


def test_an_estimator_takes_it_as_a_solver():
    rng = np.random.default_rng(4)
    X = rng.uniform(0, 1, (4000, D))
    y = np.clip(2 * X[:, 0] - 1 + 0.1 * rng.normal(size=4000), -1, 1)
    solver = NoisyDualFrankWolfe(weight=0.01)
    model = PrivateHuberRegressor(
        epsilon=4.0, bounds=(0, 1), y_bounds=(-1, 1), l2=0.05, solver=solver, random_state=0,
        fit_intercept=False, domain=SubmodularBall(OVERLAPPING, 3.0), n_iter=8,
    ).fit(X, y)  # fmt: skip
    assert model.n_iter_ == 8
    assert np.argmax(np.abs(model.coef_)) == 0
    assert "NoisyDualFrankWolfe(n_iter=8, weight=0.01" in model.privacy_statement_.public["solver"]


@pytest.mark.parametrize(
    ("change", "solver", "match"),
    [
        ({"regularizer": None}, NoisyDualFrankWolfe(3), "needs a regularizer SubmodularNorm"),
        ({"regularizer": L1(0.1)}, NoisyDualFrankWolfe(3), "The l1 norm is that of Cardinality"),
        ({"regularizer": SubmodularNorm(ROOT, 0.0)}, NoisyDualFrankWolfe(3), "with weight > 0"),
        ({}, NoisyDualFrankWolfe(3, weight=0.1), "leave weight None"),
        ({"domain": L2Ball(1.0), "l2": 0.0}, NoisyDualFrankWolfe(3), "needs l2 > 0"),
        ({"loss": Squared()}, NoisyDualFrankWolfe(3), "unbounded slopes"),
        ({"loss": Quantile(0.5)}, NoisyDualFrankWolfe(3), "smooth convex loss"),
    ],
)
def test_what_it_cannot_use_is_refused_with_a_reason(change, solver, match):
    settings = {"loss": Logistic(), "regularizer": NORMS[1], "l2": 0.05, **change}
    problem = Problem(bounds=Bounds(1.0, 1.0), d=D, **settings)
    with pytest.raises(Incompatible, match=match):
        solver.plan(problem, N, BUDGET, Tight())


def test_settings_are_checked():
    for settings, match in (
        ({"n_iter": 0}, "n_iter"),
        ({"weight": 0.0}, "weight"),
        ({"weight": math.nan}, "weight"),
        ({"shrink": -1.0}, "shrink"),
        ({"shrink": math.inf}, "shrink"),
    ):
        with pytest.raises(ValueError, match=match):
            NoisyDualFrankWolfe(**settings)
    problem = make_problem(Logistic(), NORMS[1])
    for ask in (NoisyDualFrankWolfe().plan, lambda *rest: NoisyDualFrankWolfe(3).predict(*rest[:3])):
        with pytest.raises(Incompatible, match="delta > 0"):
            ask(problem, N, Budget(1.0, 0.0), Tight())
