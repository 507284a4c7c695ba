"""[WYX17] section 4: variance-reduced descent, Algorithms 1 and 2 in their private form."""

import dataclasses
import math
from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import minimize

import dpcvx.noise.gaussian
from dpcvx.accounting import Budget
from dpcvx.data.memory import source
from dpcvx.domains import Box, L1Ball, L2Ball, Simplex
from dpcvx.domains.regularizers import L1, ElasticNet, GroupL2, SubmodularNorm
from dpcvx.domains.set_functions import GroupCover
from dpcvx.errors import Incompatible
from dpcvx.losses import Huber, Logistic, Quantile, Softmax, Squared
from dpcvx.noise import SeededGenerator
from dpcvx.plans import Oracle
from dpcvx.problem import Bounds, Problem
from dpcvx.solvers import NoisyGradientDescent, NoisySVRG, NoisySVRGPlusPlus
from exact import ExactOracle, LimitAccountant

pytestmark = pytest.mark.long

N, D = 4000, 6
BUDGET = Budget(1.0, 1e-6)
CONDITION = 100  # smoothness over strong convexity


def records(loss, n=N, seed=0):
    """Rows of norm 1 whose features differ in scale, so that directions differ in curvature."""
    rng = np.random.default_rng(seed)
    scales = 1 / np.sqrt(np.arange(1, D + 1))
    X = rng.choice([-1.0, 1.0], (n, D)) * scales / np.linalg.norm(scales)
    X = np.trunc(X * 2**14) / 2**14  # what is stored
    z = X @ (3 * rng.normal(size=D)) + 0.3 * rng.normal(size=n)
    if loss.joint:
        return X, np.digitize(z, [-0.5, 0.5]).astype(float)
    return X, np.where(z > 0, 1.0, -1.0) if isinstance(loss, Logistic) else np.clip(z, -1, 1)


def ill_conditioned(loss, domain, regularizer=None):
    smooth = loss.smoothness(1.0)
    return Problem(
        loss,
        domain,
        bounds=Bounds(1.0, 1.0),
        d=D,
        outputs=3 if loss.joint else 1,
        l2=smooth / (CONDITION - 1),
        regularizer=regularizer,
    )


def planned(solver, problem, n=N, budget=BUDGET):
    return solver.plan(problem, n, budget, LimitAccountant())


def best(problem, oracle):
    """Optimum of the smooth part by SciPy, over the whole space: the set must contain it."""
    shape = problem.shape
    found = minimize(
        lambda v: oracle.objective(v.reshape(shape)),
        np.zeros(problem.size),
        jac=lambda v: oracle.gradient(v.reshape(shape)).ravel(),
        tol=1e-13,
        options={"maxiter": 5000},
    )
    assert problem.domain is None or problem.domain.contains(found.x.reshape(shape))
    return found.fun


def silence(monkeypatch):
    monkeypatch.setattr(
        dpcvx.noise.gaussian, "lattice_gaussian", lambda scale, size, rng: np.zeros(size, dtype=np.int64)
    )


# -- without noise


@pytest.mark.parametrize("loss", [Logistic(), Squared(), Huber(0.5), Softmax()], ids=repr)
def test_with_exact_answers_the_excess_falls_linearly_to_the_optimum(loss):
    """Theorem 4.2 without noise: each epoch of kappa steps takes a constant factor off, down to 1e-6."""
    problem = ill_conditioned(loss, L2Ball(20.0))
    X, y = records(loss, n=400)
    excess = []
    for S in range(1, 9):
        plan = planned(NoisySVRG(S, CONDITION, 20), problem, n=400)
        oracle = ExactOracle(plan, X, y)
        excess.append(oracle.objective(plan.solver.run(plan, oracle)) - best(problem, oracle))
    assert -1e-10 < excess[-1] <= 1e-6
    ratios = [after / before for before, after in pairwise(excess) if before > 1e-7]
    assert len(ratios) >= 2
    assert max(ratios) < 0.5  # inequality (4) of the paper asks for a half


@pytest.mark.parametrize("loss", [Logistic(), Squared()], ids=repr)
@pytest.mark.parametrize("storage", [20, 200])
def test_with_samples_but_without_noise_it_still_reaches_the_optimum(loss, storage, monkeypatch):
    """The variance of the samples vanishes at the optimum: no decreasing step is needed."""
    silence(monkeypatch)
    problem = ill_conditioned(loss, L2Ball(20.0))
    X, y = records(loss)
    data = source(X, y, bounds=problem.bounds)
    plan = planned(NoisySVRG(8, CONDITION, storage), problem)
    oracle = ExactOracle(plan, X, y)
    theta = execute_quietly(plan, data)
    assert -1e-9 < oracle.objective(theta) - best(problem, oracle) <= 1e-6


def execute_quietly(plan, data, seed=0):
    """Run a plan of the stand-in accountant; only its noise is not under test."""
    return plan.solver.run(plan, Oracle(plan, data, SeededGenerator(seed)))


def test_plain_sampled_steps_of_the_same_cost_stall_where_variance_reduction_does_not(monkeypatch):
    """Without the anchor's gradient the same samples leave a variance that no number of steps removes."""
    silence(monkeypatch)
    problem = ill_conditioned(Logistic(), L2Ball(20.0))
    X, y = records(Logistic())
    data = source(X, y, bounds=problem.bounds)
    plan = planned(NoisySVRG(8, CONDITION, 20), problem)
    oracle = ExactOracle(plan, X, y)
    optimum = best(problem, oracle)
    rng, theta, mean = np.random.default_rng(0), np.zeros(D), np.zeros(D)
    for t in range(8 * CONDITION):
        drawn = rng.random(N) < 20 / N
        slopes = problem.loss.grad(X[drawn] @ theta, y[drawn])
        theta = theta - plan.solver.step * (X[drawn].T @ slopes / 20 + problem.l2 * theta)
        mean = theta if t < 7 * CONDITION else mean + (theta - mean) / (t - 7 * CONDITION + 1)
    reduced = oracle.objective(execute_quietly(plan, data)) - optimum
    assert oracle.objective(mean) - optimum > 100 * max(reduced, 1e-9)


@pytest.mark.parametrize("loss", [Logistic(), Squared(), Softmax()], ids=repr)
def test_doubling_epochs_reach_the_bound_of_a_problem_without_strong_convexity(loss):
    """Theorem 4.4 without noise: the excess halves, or better, with each epoch."""
    problem = Problem(loss, L2Ball(3.0), bounds=Bounds(1.0, 1.0), d=D, outputs=3 if loss.joint else 1)
    X, y = records(loss, n=400)
    excess = []
    for S in range(1, 7):
        plan = planned(NoisySVRGPlusPlus(S, 10, 20), problem, n=400)
        assert [stage.n_calls for stage in plan.stages] == [
            k for s in range(1, S + 1) for k in (1, 10 * 2**s)
        ]
        oracle = ExactOracle(plan, X, y)
        excess.append(oracle.objective(plan.solver.run(plan, oracle)))
    long = planned(NoisyGradientDescent(6000, 1 / problem.smoothness), problem, n=400)
    optimum = oracle.objective(long.solver.run(long, ExactOracle(long, X, y)))
    excess = np.array(excess) - optimum
    assert (excess > -1e-9).all()
    assert (excess[1:] <= excess[:-1] / 2 + 1e-7).all()
    steps = 10 * (2**7 - 2)
    assert excess[-1] <= 9 / (2 * steps / problem.smoothness)


REGULARIZERS = [
    L1(0.02),
    ElasticNet(0.02, 0.05),
    GroupL2(((0, 1), (2, 3), (4, 5)), 0.03),
    SubmodularNorm(GroupCover(((0, 1, 2), (2, 3), (4, 5)), (1.0, 1.0, 1.0)), 0.02),
]


@pytest.mark.parametrize("regularizer", REGULARIZERS, ids=lambda r: type(r).__name__)
@pytest.mark.parametrize("domain", [None, L2Ball(0.8)], ids=repr)
def test_prox_regularizers_reach_the_fixed_point_of_proximal_descent(regularizer, domain):
    """Optimal for F + r over the ball: theta = prox(theta - step gradient), and better than points around."""
    problem = ill_conditioned(Logistic(), domain, regularizer)
    X, y = records(Logistic(), n=400)
    plan = planned(NoisySVRG(12, CONDITION, 20), problem, n=400)
    oracle = ExactOracle(plan, X, y)
    theta = plan.solver.run(plan, oracle)

    def objective(point):
        return oracle.objective(point) + regularizer.value(point)

    assert np.linalg.norm(theta) > 0.3
    assert np.linalg.norm(theta) <= 0.8 + 1e-9 or domain is None
    reached = objective(theta)
    rng = np.random.default_rng(0)
    for size in (1e-3, 1e-2, 0.1, 1.0):
        for _ in range(50):
            other = theta + size * rng.normal(size=D)
            other = other if domain is None else domain.project(other)
            assert objective(other) >= reached - 1e-7
    assert objective(np.zeros(D)) > reached + 1e-3


def test_sparse_models_have_exact_zeros():
    problem = ill_conditioned(Logistic(), None, L1(0.08))
    X, y = records(Logistic(), n=400)
    plan = planned(NoisySVRGPlusPlus(4, 10, 20), problem, n=400)
    theta = plan.solver.run(plan, ExactOracle(plan, X, y))
    assert 0 < np.count_nonzero(np.abs(theta) > 1e-3) < D


# -- with noise


def test_it_reaches_the_risk_of_descent_with_at_most_half_of_the_gradient_evaluations():
    """Condition 100, epsilon 1: the excess of plain descent with twice the evaluations is larger."""
    n = 40_000
    problem = ill_conditioned(Logistic(), L2Ball(10.0))
    X, y = records(Logistic(), n=n)
    data = source(X, y, bounds=problem.bounds)
    plan = planned(NoisySVRG(4, CONDITION), problem, n=n)
    oracle = ExactOracle(plan, X, y)
    optimum = best(problem, oracle)
    passes = plan.gradient_evaluations / n
    assert passes < 9
    reduced = np.mean([oracle.objective(execute_quietly(plan, data, s)) - optimum for s in range(3)])
    for T in (math.ceil(2 * passes), math.ceil(4 * passes)):
        descent = planned(NoisyGradientDescent(T, 1 / problem.smoothness, 0.0), problem, n=n)
        full = np.mean([oracle.objective(execute_quietly(descent, data, s)) - optimum for s in range(3)])
        assert reduced < full / 2


@pytest.mark.parametrize("solver", [NoisySVRG(), NoisySVRGPlusPlus()], ids=repr)
def test_defaults_come_from_public_numbers_and_improve_with_n(solver):
    problem = ill_conditioned(Logistic(), L2Ball(10.0))
    excess = []
    for n in (2000, 40_000):
        X, y = records(Logistic(), n=n)
        data = source(X, y, bounds=problem.bounds)
        plan = planned(solver, problem, n=n)
        chosen = plan.solver
        assert None not in (chosen.n_epochs, chosen.n_steps, chosen.batch, chosen.step, chosen.share)
        # Anchors and steps cost about the same.
        assert 1.5 <= plan.gradient_evaluations / (n * chosen.n_epochs) <= 2.6
        oracle = ExactOracle(plan, X, y)
        optimum = best(problem, oracle)
        runs = [oracle.objective(execute_quietly(plan, data, seed)) - optimum for seed in range(3)]
        assert np.mean(runs) < (oracle.objective(np.zeros(D)) - optimum) / 3
        excess.append(np.mean(runs))
        assert all(part > 0 for part in solver.predict(problem, n, BUDGET))
    assert excess[1] < excess[0] / 10
    assert sum(solver.predict(problem, 40_000, BUDGET)) < sum(solver.predict(problem, 2000, BUDGET))


def test_the_default_share_of_the_budget_predicts_the_least_noise():
    problem = ill_conditioned(Logistic(), L2Ball(10.0))
    plan = planned(NoisySVRG(), problem, n=40_000)
    G = problem.lipschitz(2)

    def noise(share):
        again = planned(dataclasses.replace(plan.solver, share=share), problem, n=40_000)
        full, sampled = (stage.mechanism for stage in again.stages[:2])
        anchor = full.noise_multiplier * 2 * G / 40_000
        return anchor**2 + (sampled.noise_multiplier * 0.1 * G / (sampled.probability * 40_000)) ** 2

    assert noise(plan.solver.share) <= min(noise(share) for share in (0.5, 0.75, 0.9)) * (1 + 1e-6)


def test_few_records_get_shorter_epochs():
    """Noise must not carry a point further than it is from its anchor: sqrt(m d) z <= batch."""
    problem = ill_conditioned(Logistic(), L2Ball(10.0))
    plans = [planned(NoisySVRG(), problem, n=n) for n in (1000, 10_000, 1_000_000)]
    lengths = [plan.solver.n_steps for plan in plans]
    assert lengths[0] < lengths[1] <= lengths[2] == CONDITION
    for plan in plans:
        sampled = plan.stages[1].mechanism
        moved = math.sqrt(plan.stages[1].n_calls * D) * sampled.noise_multiplier
        assert moved <= 1.2 * sampled.probability * plan.n


# -- what the paper claims


def test_the_papers_noise_lets_the_sampled_record_stand_in_the_clear():
    """Theorem 4.1's sigma (c = 1), one record a step: one epoch shows the odd record far too often.

    All records are (1, 1) but one, which is (0, 0) in the neighbour: its gradient is always 0. Whoever sees
    the points knows the anchor's gradient up to 1/n, and sees a step that lacks the difference.
    """
    n, m, epsilon, delta, runs = 10_000, 200, 1.0, 1e-6, 3000
    G = 1.0  # |theta - y| on [0, 1]
    sigma = G * math.sqrt(m * math.log(1 / delta)) / (n * epsilon)
    rng = np.random.default_rng(0)
    eta = 1 / 12

    def detected(odd):
        theta, seen = np.zeros(runs), np.zeros(runs, dtype=bool)
        full = -(n - odd) / n
        for _ in range(m):
            drawn = (rng.random(runs) < 1 / n) & (odd == 1)
            released = np.where(drawn, 0.0, theta) + full + sigma * rng.normal(size=runs)
            seen |= (released - (theta - 1) < -0.5 * theta) & (theta > 0.2)
            theta = np.clip(theta - eta * released, 0.0, 1.0)
        return seen.mean()

    with_odd, without = detected(1), detected(0)
    assert sigma < 0.01
    assert with_odd - math.exp(epsilon) * without > 0.01 > 1000 * delta
    assert with_odd == pytest.approx(1 - (1 - 1 / n) ** m, rel=0.3)


def test_the_private_noise_of_the_same_steps_is_hundreds_of_times_the_papers():
    """b = 1 never pays: a sampled record needs noise of its own size."""
    n, m = 10_000, 200
    problem = Problem(Huber(1.0), L2Ball(1.0), bounds=Bounds(1.0, 1.0), d=1, l2=0.01)
    plan = planned(NoisySVRG(1, m, 1, share=0.5), problem, n=n)
    paper = math.sqrt(m * math.log(1e6)) / n
    assert plan.stages[1].mechanism.noise > 100 * paper


# -- what is refused


def test_what_it_cannot_use_is_refused_with_a_reason():
    plain = Problem(Logistic(), L2Ball(1.0), bounds=Bounds(1.0), d=D)
    with pytest.raises(Incompatible, match="l2 > 0, or use NoisySVRGPlusPlus"):
        planned(NoisySVRG(), plain)
    corner = Problem(Quantile(0.5), L2Ball(1.0), bounds=Bounds(1.0), d=D, l2=0.1)
    both = Problem(Logistic(), Box(-1.0, 1.0), bounds=Bounds(1.0), d=D, l2=0.1, regularizer=L1(0.1))
    free = Problem(Squared(), bounds=Bounds(1.0), d=D, l2=0.1)
    for solver in (NoisySVRG(), NoisySVRGPlusPlus()):
        with pytest.raises(Incompatible, match="smooth"):
            planned(solver, corner)
        with pytest.raises(Incompatible, match="the prox of their sum"):
            planned(solver, both)
        with pytest.raises(Incompatible, match="unbounded slopes"):
            planned(solver, free)
        assert planned(dataclasses.replace(solver, clip=1.0), free).n_calls > 2
    for domain in (L1Ball(1.0), Simplex(1.0), Box(-1.0, 1.0)):
        problem = Problem(Logistic(), domain, bounds=Bounds(1.0), d=D, l2=0.1)
        plan = planned(NoisySVRG(2, 3), problem)
        X, y = records(Logistic())
        assert domain.contains(execute_quietly(plan, source(X, y, bounds=problem.bounds)))


@pytest.mark.parametrize("kind", [NoisySVRG, NoisySVRGPlusPlus])
def test_settings_are_checked(kind):
    for name in ("n_epochs", "n_steps", "batch"):
        for wrong in (0, -1, 2.0, True):
            with pytest.raises(ValueError, match="positive integer"):
                kind(**{name: wrong})
    with pytest.raises(ValueError, match="step must be positive"):
        kind(step=-1.0)
    for wrong in (0.0, 1.0, 2.0):
        with pytest.raises(ValueError, match="share"):
            kind(share=wrong)
    with pytest.raises(ValueError, match="at least 2"):
        NoisySVRG(n_steps=1)
