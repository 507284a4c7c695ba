"""Corrective Frank-Wolfe (PRIVACY_MATH §15): select vertices, refit on their features."""

import itertools
import math

import numpy as np
import pytest

import dpcvx.noise.gaussian
from adversary import records, stored
from dpcvx.accounting import Budget, Neighbours, Tight
from dpcvx.audit import discrepancies, record, replay
from dpcvx.data.lattice import FEATURE_BITS
from dpcvx.data.memory import Arrays, source
from dpcvx.data.rows import Dense
from dpcvx.domains import L1Ball, L2Ball, Simplex
from dpcvx.errors import Incompatible
from dpcvx.events import Exponential, Gaussian
from dpcvx.losses import Huber, Logistic, Quantile, Softmax, Squared
from dpcvx.mechanisms import NoisyGradient, NoisyVertex
from dpcvx.noise import SeededGenerator
from dpcvx.planning.planner import plan as choose
from dpcvx.plans import execute
from dpcvx.problem import Bounds, Problem
from dpcvx.solvers import NoisyCorrectiveFrankWolfe, NoisyFrankWolfe, NoisyGradientDescent
from exact import ExactOracle, solve_exactly

BUDGET = Budget(1.0, 1e-6)


def signs(n, p, support, seed):
    """(source, risk, X) of sign features with equal coefficients of total 1 on a support."""
    rng = np.random.default_rng(seed)
    X = 2 * rng.integers(0, 2, size=(n, p), dtype=np.int16) - 1
    theta = np.zeros(p)
    theta[rng.permutation(p)[:support]] = rng.choice([-1.0, 1.0], support) / support
    floats = X.astype(np.float32)
    y = np.clip(floats @ theta.astype(np.float32) + rng.uniform(-0.2, 0.2, n), -1, 1).astype(float)

    def excess(other):
        return 0.5 * np.mean((floats @ other - y) ** 2) - 0.5 * np.mean((floats @ theta - y) ** 2)

    return Arrays(Dense(X * np.int16(2**FEATURE_BITS)), y[:, None]), excess


@pytest.mark.parametrize(("support", "better"), [(4, 20), (8, 10)])
@pytest.mark.long
def test_the_excess_risk_is_many_times_below_plain_frank_wolfe(support, better):
    """benchmarks/corrective.py measures more; the excess is over the truth, which is almost the optimum."""
    n, p = 8000, 300
    problem = Problem(Squared(), L1Ball(1.0), bounds=Bounds(1.0), d=p)
    plans = [
        solver.plan(problem, n, Budget(1.0, 1 / n**2), Tight())
        for solver in (NoisyFrankWolfe(), NoisyCorrectiveFrankWolfe())
    ]
    risks = np.zeros(2)
    for seed in range(2):
        data, excess = signs(n, p, support, seed)
        risks += [excess(execute(plan, data, rng=SeededGenerator(seed)).theta) for plan in plans]
    assert risks[1] < risks[0] / better


@pytest.mark.long
def test_the_planner_takes_it_for_the_lasso_and_not_where_rows_are_short():
    lasso = Problem(Squared(), L1Ball(1.0), bounds=Bounds(1.0), d=300)
    assert isinstance(choose(lasso, 8000, BUDGET).solver, NoisyCorrectiveFrankWolfe)
    short = Problem(Logistic(), L1Ball(10.0), bounds=Bounds(1.0, 1.0), d=40_000)
    assert isinstance(choose(short, 20_000, BUDGET).solver, NoisyGradientDescent)
    ball = Problem(Squared(), L2Ball(1.0), bounds=Bounds(1.0), d=300)
    assert isinstance(choose(ball, 8000, BUDGET).solver, NoisyGradientDescent)


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_the_price_is_the_sum_of_both_curves_converted_once(relation):
    """T1 R_a(eta) + a mu_2^2/2, minimised over a grid of orders a by formulas of its own."""
    problem = Problem(Squared(), L1Ball(1.0), bounds=Bounds(1.0), d=50)
    budget = Budget(0.8, 1e-7, relation)
    plan = NoisyCorrectiveFrankWolfe(40, 15).plan(problem, 5000, budget, Tight())
    select, refit = plan.stages
    assert (select.n_calls, refit.n_calls) == (15, 25)
    assert select.mechanism.event == Exponential(select.mechanism.eta)
    assert refit.mechanism.event == Gaussian(refit.mechanism.noise_multiplier)
    a = 1 + np.geomspace(0.1, 1e4, 20_000)
    eta, mu_2 = select.mechanism.eta, math.sqrt(25) / refit.mechanism.noise_multiplier
    best = (a - 1) * -np.expm1(-a * eta) / (a * (np.exp(-eta) - np.exp(-a * eta)))
    selection = np.log(best) + np.log(np.expm1(-a * eta) / (a * np.expm1(-eta))) / (a - 1)
    curve = 15 * selection + a * mu_2**2 / 2
    epsilon = (curve + np.log((a - 1) / a) - (math.log(0.999e-7) + np.log(a)) / (a - 1)).min()
    assert plan.price.epsilon == pytest.approx(epsilon, rel=1e-6)
    assert 0.999 * 0.8 < plan.price.epsilon <= 0.8
    # Both halves weigh alike: eta^2 T1/4 and mu_2^2 are equal shares of mu^2.
    assert eta**2 * 15 / 4 == pytest.approx(mu_2**2)


D = 6
CASES = list(
    itertools.product([Squared(), Huber(0.5), Logistic(), Quantile(0.8), Softmax()], [None, 1.0], [None, 0.2])
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(repr, case)))
@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_a_restricted_gradient_changes_by_at_most_its_sensitivity(case, relation, monkeypatch):
    """Single records, good and absurd, against each other; the noise's scale is the sensitivity here."""
    loss, x_2, clip = case
    scales = []

    def silent(scale, size, rng):
        scales.append((scale, size))
        return np.zeros(size, dtype=np.int64)

    monkeypatch.setattr(dpcvx.noise.gaussian, "lattice_gaussian", silent)
    outputs = 3 if loss.joint else 1
    problem = Problem(loss, L1Ball(1.0), bounds=Bounds(1.0, x_2), d=D, outputs=outputs, l2=0.1)
    mechanism = NoisyGradient(problem, 1, 1.0, Neighbours(relation), clip, support=4)
    assert mechanism.event == Gaussian(1.0)
    rng = np.random.default_rng(3)
    X, y = records(loss, (20, D), outputs, rng)
    X[0] = 0.0
    X[1], X[2], y[1:3] = 1.0, -1.0, [1.0, 1.0]
    X[3], X[4], y[3:5] = np.eye(D)[5], -np.eye(D)[5], [1.0, 1.0]
    sources = [stored(X[i : i + 1], y[i : i + 1], problem.bounds, "dense") for i in range(20)]
    widest, whole = 0.0, NoisyGradient(problem, 1, 1.0, Neighbours(relation), clip)
    for support in (np.array([5]), np.array([1, 5]), np.array([0, 2, 3, 5])):
        theta = np.zeros(problem.shape)
        theta[support] = rng.uniform(-0.1, 0.1, (len(support), *problem.shape[1:]))
        answers = np.array(
            [mechanism(theta, support, data=data, rng=SeededGenerator(0)).ravel() for data in sources]
        )
        assert answers.shape[1] == len(support) * outputs
        assert len(set(scales)) == 1  # public: the same for every record
        (scale, size), *_ = scales
        assert size == len(support) * outputs  # no noise, and no answer, off the support
        pairs = answers[:, None] - answers[None] if relation == "replace" else answers - answers[0]
        distance = np.linalg.norm(pairs, axis=-1).max()
        assert distance <= scale * 2.0**-34 * (1 + 1e-12)
        row = min(problem.row_norm, math.sqrt(len(support)))
        expected = problem.slope(2, problem.margin_bound(theta), clip) * row
        changed = 2 if relation == "replace" else 1
        assert scale * 2.0**-34 == pytest.approx(changed * expected, rel=1e-4)
        assert mechanism.noise_on(len(support)) <= whole.noise
        assert scale * 2.0**-34 <= mechanism.noise_on(len(support)) * (1 + 1e-9)
        widest = max(widest, distance / (scale * 2.0**-34))
        scales.clear()
    assert widest > 0.5
    assert mechanism.noise == mechanism.noise_on(4) == mechanism.sensitivity


@pytest.mark.parametrize("loss", [Huber(0.32), Logistic()], ids=repr)
@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_a_support_bounds_the_change_at_a_dense_theta_too(loss, relation, monkeypatch):
    """Slopes depend on the whole row and are bounded at the public theta; one entry is released."""
    scales = []

    def silent(scale, size, rng):
        scales.append(scale * 2.0**-34)
        return np.zeros(size, dtype=np.int64)

    monkeypatch.setattr(dpcvx.noise.gaussian, "lattice_gaussian", silent)
    problem = Problem(loss, L2Ball(3.0), bounds=Bounds(1.0), d=D)
    mechanism = NoisyGradient(problem, 1, 1.0, Neighbours(relation), support=1)
    rng, last = np.random.default_rng(4), np.array([D - 1])
    X, y = records(loss, (60, D), 1, rng)
    X[0], X[1], X[2], y[1:3] = 0.0, 1.0, -1.0, [1.0, 1.0]
    sources = [stored(X[i : i + 1], y[i : i + 1], problem.bounds, "dense") for i in range(60)]
    widest = 0.0
    for _ in range(5):
        theta = rng.uniform(-1, 1, D)
        answers = np.array([mechanism(theta, last, data=data, rng=SeededGenerator(0)) for data in sources])
        pairs = answers[:, None] - answers[None] if relation == "replace" else answers - answers[0]
        assert np.abs(pairs).max() <= min(scales) * (1 + 1e-12)
        assert len(set(scales)) == 1
        widest = max(widest, np.abs(pairs).max() / scales[0])
        scales.clear()
    assert widest > 0.8


@pytest.mark.parametrize("support", [[], [0, 0], [-1], [6], [0, 1, 2], [0.5]])
def test_a_support_is_few_distinct_known_features(support):
    problem = Problem(Squared(), L1Ball(1.0), bounds=Bounds(1.0), d=D)
    data = stored(np.zeros((3, D)), np.zeros(3), problem.bounds, "dense")
    with pytest.raises(Incompatible, match="distinct features"):
        NoisyGradient(problem, 3, 1.0, support=2)(
            np.zeros(D), np.array(support), data=data, rng=SeededGenerator(0)
        )


def test_a_support_is_named_if_and_only_if_it_is_planned():
    problem = Problem(Squared(), L1Ball(1.0), bounds=Bounds(1.0), d=D)
    data = stored(np.zeros((3, D)), np.zeros(3), problem.bounds, "dense")
    for planned, named in ((2, None), (None, np.array([0, 1]))):
        with pytest.raises(Incompatible, match="this question is for the other kind"):
            NoisyGradient(problem, 3, 1.0, support=planned)(
                np.zeros(D), named, data=data, rng=SeededGenerator(0)
            )


def test_limits_of_a_restricted_gradient():
    problem = Problem(Squared(), L1Ball(1.0), bounds=Bounds(1.0), d=D)
    for largest in (0, D + 1):
        with pytest.raises(ValueError, match="support must be"):
            NoisyGradient(problem, 10, 1.0, support=largest)
    mechanism = NoisyGradient(problem, 10, 3.0, support=4)
    assert (mechanism.n_draws, mechanism.evaluations) == (4, 10)
    assert 0 < mechanism.failure < NoisyGradient(problem, 10, 3.0).failure
    with pytest.raises(Incompatible, match="62-bit"):
        NoisyGradient(problem, 10, 2.0**25, support=4)
    assert NoisyGradient(problem, mechanism.capacity + 1, 3.0, support=4).capacity > mechanism.capacity


@pytest.mark.parametrize("domain", [L1Ball(1.0), Simplex(1.0)], ids=repr)
def test_only_selected_features_are_in_the_model_and_a_neighbour_is_asked_the_same(domain):
    problem = Problem(Squared(), domain, bounds=Bounds(1.0), d=30)
    rng = np.random.default_rng(0)
    X = rng.choice([-1.0, 1.0], (400, 30))
    y = np.clip(0.5 * X[:, 3] + 0.5 * X[:, 17], -1, 1)
    plan = NoisyCorrectiveFrankWolfe(12, 5).plan(problem, 400, Budget(5.0, 1e-6), Tight())
    first = record(plan, source(X, y, bounds=problem.bounds), SeededGenerator(1))
    chosen = {answer.index for answer in first.answers[:5]}
    assert set(np.flatnonzero(first.theta)) <= chosen
    assert domain.contains(first.theta)
    assert all(len(answer) == len(chosen) for answer in first.answers[5:])
    X[9], y[9] = -X[9], -1.0
    second = replay(plan, source(X, y, bounds=problem.bounds), SeededGenerator(2), first)
    assert discrepancies(plan, first, second) == []


def test_without_noise_the_refit_reaches_the_optimum_on_the_support():
    rng = np.random.default_rng(4)
    X = rng.uniform(-1, 1, (500, 8))
    y = np.clip(X @ [0.5, -0.4, 0, 0, 0, 0, 0, 0], -1, 1)
    problem = Problem(Squared(), L1Ball(1.0), bounds=Bounds(1.0), d=8)
    # Planned for so many records that the refit's steps are as long as its smoothness allows.
    plan = NoisyCorrectiveFrankWolfe(2006, 6).plan(problem, 10**6, Budget(10.0, 1e-3), Tight())
    oracle = ExactOracle(plan, X, y)
    theta = plan.solver.run(plan, oracle)
    reference, _ = solve_exactly(
        NoisyGradientDescent(3000, 1 / problem.smoothness), problem, X, y, BUDGET, Tight()
    )
    assert oracle.objective(theta) - oracle.objective(reference) < 1e-6
    plain, _ = solve_exactly(NoisyFrankWolfe(2006), problem, X, y, BUDGET, Tight())
    assert oracle.objective(theta) < oracle.objective(plain)


def test_counts_are_the_models_or_the_users():
    problem = Problem(Squared(), L1Ball(1.0), bounds=Bounds(1.0), d=1000)
    default = NoisyCorrectiveFrankWolfe().plan(problem, 10_000, BUDGET, Tight())
    T1, T2 = (stage.n_calls for stage in default.stages)
    risks = [
        sum(NoisyCorrectiveFrankWolfe(selections=count).predict(problem, 10_000, BUDGET))
        for count in range(16, 100)  # at least sixteen are selected
    ]
    assert T1 == 16
    assert sum(NoisyCorrectiveFrankWolfe().predict(problem, 10_000, BUDGET)) <= 1.01 * min(risks)
    assert default.solver == NoisyCorrectiveFrankWolfe(T1 + T2, T1)
    assert default.stages[1].mechanism.support == T1
    assert [type(stage.mechanism) for stage in default.stages] == [NoisyVertex, NoisyGradient]
    few = Problem(Squared(), L1Ball(1.0), bounds=Bounds(1.0), d=9)  # half of the features at most
    assert NoisyCorrectiveFrankWolfe().plan(few, 10**6, BUDGET, Tight()).stages[0].n_calls == 4
    short = NoisyCorrectiveFrankWolfe(10).plan(problem, 10_000, BUDGET, Tight())
    assert [stage.n_calls for stage in short.stages] == [5, 5]
    with pytest.raises(Incompatible, match="leaves no step"):
        NoisyCorrectiveFrankWolfe(1).plan(problem, 10_000, BUDGET, Tight())
    corner = Problem(Quantile(0.5), L1Ball(1.0), bounds=Bounds(1.0), d=10)
    with pytest.raises(Incompatible, match="smooth"):
        NoisyCorrectiveFrankWolfe().plan(corner, 100, BUDGET, Tight())
    for wrong in ({"n_iter": 0}, {"selections": 0}):
        with pytest.raises(ValueError, match="positive integer"):
            NoisyCorrectiveFrankWolfe(**wrong)
