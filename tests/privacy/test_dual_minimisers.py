"""Minimisers under public linear terms, the questions of Frank-Wolfe on the dual."""

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

import dpcvx.noise.gaussian
from adversary import neighbour, records, stored
from dpcvx.accounting import Budget, Tight, gaussian_mu
from dpcvx.audit import discrepancies, record, replay
from dpcvx.domains import L2Ball, SubmodularBall, SubmodularPolyhedron
from dpcvx.domains.regularizers import SubmodularNorm
from dpcvx.domains.set_functions import Cardinality, ConcaveOfCardinality, GroupCover
from dpcvx.events import Gaussian, Repeat
from dpcvx.losses import Huber, Logistic, SmoothHinge, Softmax, Squared
from dpcvx.mechanisms import NoisyMinimiser
from dpcvx.noise import SeededGenerator
from dpcvx.plans import Oracle, execute
from dpcvx.problem import Bounds, Problem
from dpcvx.solvers import NoisyDualFrankWolfe

D, N = 3, 12
BOUNDS = Bounds(1.0, 1.0)
NORM = SubmodularNorm(GroupCover([[0, 1], [1, 2]]), 0.2)
PROBLEMS = [
    *(Problem(loss, bounds=BOUNDS, d=D, l2=0.1, regularizer=NORM) for loss in (Logistic(), Huber(0.5))),
    Problem(SmoothHinge(), bounds=BOUNDS, d=D, l2=0.3, regularizer=SubmodularNorm(Cardinality(), 0.5)),
    Problem(Squared(), L2Ball(2.0), bounds=BOUNDS, d=D, l2=0.1, regularizer=NORM),
    Problem(Logistic(), SubmodularBall(ConcaveOfCardinality(np.sqrt), 2.0), bounds=BOUNDS, d=D, l2=0.1),
]
over_problems = pytest.mark.parametrize(
    "problem", PROBLEMS, ids=lambda p: f"{p.loss.name}-{type(p.domain).__name__}"
)
over_relations = pytest.mark.parametrize("relation", ["replace", "add_remove"])


def solver_for(problem, T):
    """Without the last prox, which would take so much noise to 0."""
    return NoisyDualFrankWolfe(T, None if problem.regularizer else 0.2, 0.0)


def terms(problem, rng, count):
    """Public linear terms: 0, corners of the largest set they may come from, and points between."""
    norm = problem.regularizer or SubmodularNorm(problem.domain.function, 0.2)
    K = SubmodularPolyhedron(norm.function, norm.weight)
    corners = [K.lmo(rng.normal(size=D)) for _ in range(count)]
    return [np.zeros(D), *corners, *(rng.uniform() * corner for corner in corners)]


@over_relations
@over_problems
def test_a_minimiser_moves_by_at_most_its_sensitivity_whatever_the_term(problem, relation, monkeypatch):
    """PRIVACY_MATH §10: the linear term cancels, so neighbours differ by 2 L/(n mu) at every term."""
    monkeypatch.setattr(
        dpcvx.noise.gaussian, "lattice_gaussian", lambda scale, size, rng: np.zeros(size, dtype=np.int64)
    )
    budget, rng = Budget(1.0, 1e-6, relation), np.random.default_rng(2)
    mechanism = solver_for(problem, 3).plan(problem, N, budget, Tight()).stages[0].mechanism
    assert mechanism.problem.regularizer is None
    widest = 0.0
    for trial in range(12):
        X, y = records(problem.loss, (N, D), 1, rng)
        if trial < 4:  # one record against the others, all at the same place
            X, y = np.tile(np.eye(D)[0], (N, 1)), np.full(N, 1.0)
            other = (X[1:], y[1:]) if relation == "add_remove" else (X, np.r_[-1.0, y[1:]])
        else:
            other = neighbour(X, y, problem.loss, 1, relation, rng)
        pair = [stored(*both, BOUNDS, ["dense", "csr"][trial % 2]) for both in ((X, y), other)]
        for term in terms(problem, rng, 2):
            one, two = (mechanism(term, data=data, rng=None) for data in pair)
            distance = np.linalg.norm(one - two)
            assert distance <= mechanism.sensitivity + 1e-9 * mechanism.noise
            widest = max(widest, distance / mechanism.sensitivity)
    assert widest > 0.05


@pytest.mark.parametrize(("relation", "changed"), [("replace", 2), ("add_remove", 1)])
@pytest.mark.parametrize("T", [1, 9, 50])
def test_the_noise_is_that_of_the_formula(T, relation, changed):
    """PRIVACY_MATH §10: sigma = 2 L sqrt(T)/(n mu mu_G), up to what inexactness and lattices add."""
    n, budget = 1000, Budget(1.0, 1e-6, relation)
    problem = PROBLEMS[0]
    plan = NoisyDualFrankWolfe(T).plan(problem, n, budget, Tight())
    exact = changed * 1.0 * math.sqrt(T) / (n * 0.1 * 0.236704381)  # slope 1, mu(1, 1e-6) of §13.1
    assert gaussian_mu(1.0, 1e-6) == pytest.approx(0.236704381, rel=1e-8)
    assert 1 < plan.stages[0].mechanism.noise / exact < 1.002
    assert Tight().epsilon(plan.event, 1e-6) <= 1.0
    (stage,) = plan.stages
    assert plan.event.events == (Repeat(Gaussian(stage.mechanism.noise_multiplier), T),)


@over_relations
@over_problems
def test_replay_on_a_neighbour_shows_no_difference(problem, relation):
    rng = np.random.default_rng(5)
    for T in (1, 4):
        plan = solver_for(problem, T).plan(problem, 40, Budget(1.0, 1e-6, relation), Tight())
        X, y = records(problem.loss, (40, D), 1, rng)
        first = record(plan, stored(X, y, BOUNDS, "dense"), SeededGenerator(0))
        other = stored(*neighbour(X, y, problem.loss, 1, relation, rng), BOUNDS, "csr")
        second = replay(plan, other, SeededGenerator(1), first)
        assert [question.kind for question in first.questions] == ["linear", "objective"] * T
        assert discrepancies(plan, first, second) == []


@dataclasses.dataclass(frozen=True)
class Peeking:
    """A solver that looks past the oracle at the first target, and lets it into the linear terms."""

    honest: NoisyDualFrankWolfe

    def run(self, plan, ask):
        peek = float(ask._source._source._y[0, 0])

        class Nudged:
            def minimiser(self, linear):
                return ask.minimiser(linear + 1e-9 * peek)

        return self.honest.run(plan, Nudged())


def test_a_record_in_a_linear_term_is_found():
    """With frozen answers such a solver returns the same theta: only the terms themselves tell."""
    plan = solver_for(PROBLEMS[0], 3).plan(PROBLEMS[0], N, Budget(1.0, 1e-6), Tight())
    plan = dataclasses.replace(plan, solver=Peeking(plan.solver))
    X, y = np.eye(D)[np.arange(N) % D], np.ones(N)
    pair = [stored(X, labels, BOUNDS, "dense") for labels in (y, np.r_[-1.0, y[1:]])]
    first = record(plan, pair[0], SeededGenerator(0))
    second = replay(plan, pair[1], SeededGenerator(1), first)
    assert np.array_equal(first.theta, second.theta)
    assert len(discrepancies(plan, first, second)) == 3


@pytest.mark.long
def test_the_released_points_have_their_declared_variance():
    """With no features there is nothing to learn: the minimiser is -s/l2, and the rest is noise."""
    d, T = 400, 6
    problem = Problem(Logistic(), bounds=BOUNDS, d=d, l2=0.5, regularizer=SubmodularNorm(Cardinality(), 1e-3))
    plan = NoisyDualFrankWolfe(T).plan(problem, 50, Budget(1.0, 1e-6), Tight())
    data, points = stored(np.zeros((50, d)), np.ones(50), BOUNDS, "dense"), []

    class Watching(Oracle):
        def minimiser(self, linear):
            points.append(super().minimiser(linear) + linear / 0.5)
            return points[-1] - linear / 0.5

    for seed in range(3):
        plan.solver.run(plan, Watching(plan, data, SeededGenerator(seed)))
    assert len(points) == 3 * T
    statistic = (np.array(points) ** 2).sum() / plan.stages[0].mechanism.noise ** 2
    assert 1e-4 < stats.chi2.cdf(statistic, 3 * T * d) < 1 - 1e-4
    assert not 1e-4 < stats.chi2.cdf(statistic / 1.1**2, 3 * T * d) < 1 - 1e-4


@over_relations
@over_problems
def test_plans_keep_their_budget_and_absurd_records_come_through(problem, relation):
    budget, rng = Budget(1.0, 1e-6, relation), np.random.default_rng(6)
    plan = solver_for(problem, 5).plan(problem, 30, budget, Tight())
    assert 0.99 < plan.price.epsilon <= 1.0
    assert plan.price.sampler_delta <= 1e-3 * budget.delta
    again = plan.solver.plan(problem, 30, budget, Tight())
    assert (again.stages, again.solver) == (plan.stages, plan.solver)
    seen, data = [], stored(*records(problem.loss, (30, D), 1, rng), BOUNDS, "dense")
    release = execute(
        plan, data, rng=SeededGenerator(0), progress=lambda done, planned: seen.append((done, planned))
    )
    one, two = (execute(plan, data, rng=SeededGenerator(seed)).theta for seed in (0, 1))
    assert np.array_equal(one, release.theta)
    assert not np.array_equal(one, two)
    assert np.isfinite(one).all()
    assert seen == [(i + 1, 5) for i in range(5)]
    assert release.n_iter == 5
    assert problem.domain is None or problem.domain.contains(one)
    assert execute(plan, data).private
    assert plan.explain()
    assert "NoisyMinimiser" in str(plan)


def test_several_outputs_are_one_parameter():
    """The norm speaks of the entries in row order: here a group is one feature's row."""
    rows = SubmodularNorm(GroupCover([[0, 1, 2], [3, 4, 5], [6, 7, 8]]), 0.02)
    problem = Problem(Softmax(), bounds=BOUNDS, d=D, outputs=3, l2=0.1, regularizer=rows)
    rng, n = np.random.default_rng(7), 1500
    X = rng.uniform(-0.5, 0.5, (n, D))
    y = (X[:, 0] > 0) + (X[:, 0] > 0.25).astype(float)
    plan = NoisyDualFrankWolfe(8).plan(problem, n, Budget(30.0, 1e-6), Tight())
    theta = execute(plan, stored(X, y, BOUNDS, "dense"), rng=SeededGenerator(0)).theta
    assert theta.shape == (D, 3)
    assert theta[0, 0] < -0.2 < 0.2 < theta[0, 2]
    assert np.abs(theta[1:]).max() < 0.02  # features that say nothing are as good as out


def test_a_term_beyond_the_declared_bound_never_reaches_the_records():
    problem = PROBLEMS[0]
    plan = NoisyDualFrankWolfe(2).plan(problem, 20, Budget(1.0, 1e-6), Tight())
    mechanism = plan.stages[0].mechanism
    assert isinstance(mechanism, NoisyMinimiser)
    assert mechanism.linear == pytest.approx(0.2 * 2)  # F(V) = 2, all of it on coordinate 1
    ask = Oracle(plan, SimpleNamespace(d=problem.d), SeededGenerator(0))
    with pytest.raises(ValueError, match=r"norm 0\.5, above 0\.4"):
        ask.minimiser(np.array([0.5, 0.0, 0.0]))
