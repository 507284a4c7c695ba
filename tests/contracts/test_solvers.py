"""Every solver: asks as often as planned, stays in C, repeats with its seed, plans without data."""

import dataclasses
import math

import numpy as np
import pytest
from scipy.sparse import csr_array

import dpcvx.noise.exponential
import dpcvx.noise.gaussian
from dpcvx.accounting import Budget, Tight
from dpcvx.data.memory import Arrays, source
from dpcvx.data.quantise import Quantiser, targets
from dpcvx.data.rows import Sparse
from dpcvx.domains import Box, GroupBall, L1Ball, L2Ball, Simplex, VertexHull
from dpcvx.errors import Incompatible
from dpcvx.losses import Huber, Logistic, Quantile, Softmax, Squared
from dpcvx.mechanisms import NoisyGradient, NoisyVertex
from dpcvx.noise import SecureGenerator, SeededGenerator
from dpcvx.plans import Asking, Oracle, Plan, Release, Stage, execute
from dpcvx.problem import Bounds, Problem
from dpcvx.solvers import (
    NoisyAcceleratedMirrorDescent,
    NoisyCorrectiveFrankWolfe,
    NoisyFrankWolfe,
    NoisyGeneralFrankWolfe,
    NoisyGradientDescent,
    NoisyGroupSelection,
    NoisyMirrorDescent,
    NoisyStronglyConvexMirrorDescent,
    SufficientStatistics,
)
from exact import ExactOracle

N, D = 60, 4
BUDGET = Budget(2.0, 1e-6)
HULL = VertexHull(np.vstack([np.eye(D), -np.eye(D), np.full((1, D), 0.7)]))
CASES = [
    (NoisyGradientDescent(5), Problem(Logistic(), L2Ball(2.0), bounds=Bounds(1.0), d=D)),
    (NoisyGradientDescent(5, momentum=0.0), Problem(Squared(), L1Ball(2.0), bounds=Bounds(1.0), d=D, l2=0.1)),
    (NoisyGradientDescent(), Problem(Huber(0.5), Box(-1.0, 2.0), bounds=Bounds(1.0), d=D)),
    (NoisyGradientDescent(4, clip=0.3), Problem(Squared(), L2Ball(3.0), bounds=Bounds(1.0), d=D)),
    (NoisyGradientDescent(4), Problem(Softmax(), L2Ball(1.0), bounds=Bounds(1.0), d=D, outputs=3)),
    (NoisyMirrorDescent(6), Problem(Quantile(0.8), L2Ball(1.0), bounds=Bounds(1.0), d=D)),
    (NoisyMirrorDescent(), Problem(Logistic(), Simplex(1.5), bounds=Bounds(1.0), d=D)),
    (NoisyFrankWolfe(7), Problem(Squared(), L1Ball(1.5), bounds=Bounds(1.0), d=D)),
    (NoisyFrankWolfe(7, "constant"), Problem(Logistic(), L1Ball(1.5), bounds=Bounds(1.0), d=D, l2=0.1)),
    (NoisyFrankWolfe(), Problem(Squared(), Simplex(1.5), bounds=Bounds(1.0), d=D)),
    (NoisyFrankWolfe(6), Problem(Softmax(), L1Ball(1.5), bounds=Bounds(1.0), d=D, outputs=3)),
    (NoisyFrankWolfe(6), Problem(Huber(1.0), HULL, bounds=Bounds(1.0), d=D)),
    (
        NoisyStronglyConvexMirrorDescent(6),
        Problem(Quantile(0.8), L2Ball(1.0), bounds=Bounds(1.0), d=D, l2=0.2),
    ),
    (NoisyAcceleratedMirrorDescent(6), Problem(Logistic(), L1Ball(1.5), bounds=Bounds(1.0), d=D)),
    (NoisyAcceleratedMirrorDescent(), Problem(Softmax(), L2Ball(1.0), bounds=Bounds(1.0), d=D, outputs=3)),
    (NoisyGeneralFrankWolfe(6), Problem(Squared(), Box(-1.0, 0.5), bounds=Bounds(1.0), d=D)),
    (NoisyGeneralFrankWolfe(), Problem(Logistic(), L2Ball(1.0), bounds=Bounds(1.0), d=D, l2=0.1)),
    (NoisyCorrectiveFrankWolfe(8), Problem(Squared(), L1Ball(1.5), bounds=Bounds(1.0), d=D)),
    (NoisyCorrectiveFrankWolfe(), Problem(Logistic(), Simplex(1.5), bounds=Bounds(1.0), d=D, l2=0.1)),
    (NoisyCorrectiveFrankWolfe(9, 4), Problem(Softmax(), L1Ball(1.5), bounds=Bounds(1.0), d=D, outputs=3)),
    (NoisyGroupSelection(7, 1), Problem(Huber(0.5), GroupBall(2, 1.5), bounds=Bounds(1.0), d=D)),
    (
        NoisyGroupSelection(6, 1),
        Problem(Softmax(), GroupBall([[0], list(range(1, D))], 1.5), bounds=Bounds(1.0), d=D, outputs=3),
    ),
    (SufficientStatistics(), Problem(Squared(), L2Ball(1.0), bounds=Bounds(1.0), d=D)),
]
over_cases = pytest.mark.parametrize(
    ("solver", "problem"),
    CASES,
    ids=[f"{type(s).__name__}-{p.loss.name}-{type(p.C).__name__}" for s, p in CASES],
)


def records(problem, seed=0, n=N):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, problem.d))
    y = rng.integers(0, 3, n).astype(float) if problem.loss.joint else np.where(X[:, 0] > 0, 1.0, -1.0)
    return X, y


def best_signed(log_weights, rng):
    best = int(np.argmax(abs(log_weights)))
    return best, 1 if log_weights[best] >= 0 else -1


def planned(solver, problem, n=N, budget=BUDGET):
    return solver.plan(problem, n, budget, Tight())


class Counting:
    """A source that counts the passes over the records."""

    def __init__(self, inner):
        self._inner, self.n, self.d, self.passes = inner, inner.n, inner.d, 0

    def within(self, bounds):
        self._inner = self._inner.within(bounds)
        return self

    def sum(self, question):
        self.passes += 1
        return self._inner.sum(question)

    def follow(self, loss, outputs):
        margins, counting = self._inner.follow(loss, outputs), self

        class Counted:
            reset, add = margins.reset, margins.add

            def scores(self, *arguments):
                counting.passes += 1
                return margins.scores(*arguments)

        return Counted()


@pytest.fixture(autouse=True)
def keep_what_is_found(monkeypatch):
    """Few records show only noise, for which fits that select features return zeros; this compares paths."""
    monkeypatch.setattr(Asking, "withdraw", lambda self, theta, start, caution: theta)


@over_cases
def test_asks_exactly_as_often_as_planned_and_stays_in_the_set(solver, problem):
    plan = planned(solver, problem)
    seen, observed = [], []
    counting = Counting(source(*records(problem), bounds=problem.bounds))
    release = execute(
        plan,
        counting,
        rng=SeededGenerator(1),
        progress=lambda done, planned: seen.append((done, planned)),
        observe=lambda mechanism, public, answer: observed.append(mechanism),
    )
    assert observed == [stage.mechanism for stage in plan.stages for _ in range(stage.n_calls)]
    assert counting.passes == plan.n_calls == release.n_iter
    assert seen == [(i + 1, plan.n_calls) for i in range(plan.n_calls)]
    assert release.theta.shape == problem.shape
    assert problem.domain.contains(release.theta)
    assert np.isfinite(release.theta).all()
    if getattr(solver, "n_iter", None) is not None:
        assert plan.n_calls == solver.n_iter


@over_cases
def test_one_more_question_is_refused(solver, problem):
    plan = planned(solver, problem)
    ask = Oracle(plan, source(*records(problem), bounds=problem.bounds), SeededGenerator(1))
    plan.solver.run(plan, ask)
    with pytest.raises(Incompatible, match="all of them are used"):
        ask.vertex() if isinstance(plan.stages[0].mechanism, NoisyVertex) else ask.gradient(
            np.zeros(problem.shape)
        )


@over_cases
def test_the_same_seed_gives_the_same_bits_and_another_seed_others(solver, problem):
    plan = planned(solver, problem)
    data = source(*records(problem), bounds=problem.bounds)
    runs = [execute(plan, data, rng=SeededGenerator(seed)) for seed in (3, 3, 4, 5, 6)]
    assert np.array_equal(runs[0].theta, runs[1].theta)
    assert len({run.theta.tobytes() for run in runs}) > 1
    assert not any(run.private for run in runs)
    assert execute(plan, data, rng=SecureGenerator()).private
    assert execute(plan, data).private


@over_cases
def test_the_plan_keeps_the_budget_and_is_a_function_of_public_facts(solver, problem):
    plan, again = planned(solver, problem), planned(solver, problem)
    assert (plan.stages, plan.solver, plan.event) == (again.stages, again.solver, again.event)
    assert plan.price.epsilon <= BUDGET.epsilon
    assert plan.price.epsilon > 0.99 * BUDGET.epsilon  # and spends it
    assert plan.price.sampler_delta <= 1e-3 * BUDGET.delta
    for field in dataclasses.fields(Plan):
        assert "source" not in field.name
    # A plan holds all that a run needs beside records and randomness: a solver from it plans the same again.
    assert planned(plan.solver, problem).stages == plan.stages


@over_cases
def test_less_budget_is_more_noise(solver, problem):
    fixed = planned(solver, problem).solver
    noises = [
        planned(fixed, problem, budget=Budget(epsilon, 1e-6)).stages[0].mechanism.noise
        for epsilon in (0.5, 1.0, 4.0)
    ]
    assert noises[0] > 1.8 * noises[1] > 3 * noises[2]


@over_cases
def test_with_the_noise_taken_out_the_private_path_is_the_plain_algorithm(solver, problem, monkeypatch):
    monkeypatch.setattr(
        dpcvx.noise.gaussian, "lattice_gaussian", lambda scale, size, rng: np.zeros(size, dtype=np.int64)
    )
    monkeypatch.setattr(
        dpcvx.noise.exponential, "select", lambda log_weights, rng: int(np.argmax(log_weights))
    )
    monkeypatch.setattr(dpcvx.noise.exponential, "select_signed", best_signed)
    X, y = records(problem)
    X = np.trunc(X * 2**14) / 2**14  # what is stored, so that both see the same records
    plain = {"n_iter": 6, "clip": None}
    fields = {field.name for field in dataclasses.fields(solver)}
    solver = dataclasses.replace(solver, **{name: plain[name] for name in plain.keys() & fields})
    plan = planned(solver, problem)
    private = execute(plan, source(X, y, bounds=problem.bounds), rng=SeededGenerator(0)).theta
    np.testing.assert_allclose(private, plan.solver.run(plan, ExactOracle(plan, X, y)), atol=1e-5)


def arrays(problem, storage, blocks, threads, order=None):
    """The same stored integers, in another storage, blocking, number of threads or order of records."""
    X, y = records(problem)
    X[np.abs(X) < 0.3] = 0.0
    if order is not None:
        X, y = X[order], y[order]
    rows = Quantiser(problem.bounds).quantise(X)
    if storage == "csr":
        sparse = csr_array(rows.values)
        rows = Sparse(sparse.indptr.astype(np.int64), sparse.indices, sparse.data, problem.d)
    return Arrays(rows, targets(y), threads=threads, block_rows=math.ceil(len(y) / blocks))


@over_cases
def test_storage_blocks_threads_and_order_change_no_bit(solver, problem):
    plan = planned(solver, problem)

    def theta(*how):
        return execute(plan, arrays(problem, *how), rng=SeededGenerator(2)).theta.tobytes()

    first = theta("dense", 1, 1)
    shuffled = np.random.default_rng(5).permutation(N)
    assert all(
        theta(storage, blocks, threads) == first
        for storage in ("dense", "csr")
        for blocks in (1, 2, 7)
        for threads in (1, 2)
    )
    assert theta("dense", 7, 2, shuffled) == theta("csr", 2, 1, shuffled) == first


def test_columns_and_rows_give_the_same_bits():
    solver, problem = CASES[7]
    plan = planned(solver, problem)
    X, y = records(problem)
    thetas = [
        execute(plan, source(X, y, bounds=problem.bounds, layout=layout), rng=SeededGenerator(2)).theta
        for layout in ("rows", "columns")
    ]
    assert np.array_equal(*thetas)
    assert plan.layout == "columns"


def test_a_source_that_does_not_fit_the_plan_is_refused():
    solver, problem = CASES[0]
    plan = planned(solver, problem)
    X, y = records(problem)
    with pytest.raises(Incompatible, match="n=60 records, the source has 59"):
        execute(plan, source(X[1:], y[1:], bounds=problem.bounds))
    with pytest.raises(Incompatible, match="d=4 features, the source has 3"):
        execute(plan, source(X[:, 1:], y, bounds=problem.bounds))
    with pytest.raises(Incompatible, match="ledger"):
        execute(plan, source(X, y, bounds=problem.bounds), ledger="file.db")
    adding = planned(solver, problem, budget=Budget(2.0, 1e-6, "add_remove"))
    assert isinstance(execute(adding, source(X[1:], y[1:], bounds=problem.bounds)), Release)  # n is private


def test_a_solver_refuses_a_set_or_loss_it_cannot_use():
    box = Problem(Logistic(), Box(-1.0, 1.0), bounds=Bounds(1.0), d=D)
    with pytest.raises(Incompatible, match="NoisyFrankWolfe needs a domain with HasVertices; Box"):
        planned(NoisyFrankWolfe(3), box)
    free = Problem(Logistic(), bounds=Bounds(1.0), d=D, l2=1.0)
    with pytest.raises(Incompatible, match="no domain"):
        planned(NoisyMirrorDescent(3), free)
    corner = Problem(Quantile(0.5), L1Ball(1.0), bounds=Bounds(1.0), d=D)
    for solver in (NoisyGradientDescent(), NoisyFrankWolfe()):
        with pytest.raises(Incompatible, match="smooth"):
            planned(solver, corner)


@pytest.mark.parametrize("count", [0, -1, 2.0, True, "3"])
def test_an_iteration_count_is_a_positive_integer(count):
    for solver in {type(case[0]) for case in CASES if hasattr(case[0], "n_iter")}:
        with pytest.raises(ValueError, match="positive integer"):
            solver(n_iter=count)
        with pytest.raises(ValueError, match="at most 1,000,000,000"):
            solver(n_iter=10**400)


def test_the_oracle_answers_only_the_stage_it_is_in():
    problem = CASES[7][1]
    gradient = NoisyGradient(problem, N, 3.0)
    vertex = NoisyVertex(problem, N, 0.1, 20)
    plan = Plan((Stage(vertex, 2), Stage(gradient, 1)), problem, N, NoisyFrankWolfe(2), Budget(2.0, 1e-3))
    ask = Oracle(plan, source(*records(problem), bounds=problem.bounds), SeededGenerator(0))
    with pytest.raises(Incompatible, match="ask for a vertex first"):
        ask.move(0.5, vertex._vertex(0))
    with pytest.raises(Incompatible, match="stage 1 answers NoisyVertex"):
        ask.gradient(np.zeros(D))
    ask.move(1.0, ask.vertex())
    ask.vertex()
    with pytest.raises(Incompatible, match="stage 2 answers NoisyGradient"):
        ask.vertex()
    ask.gradient(np.zeros(D))
    with pytest.raises(Incompatible, match="all of them are used"):
        ask.gradient(np.zeros(D))


def test_too_small_a_delta_for_the_samplers_is_refused():
    solver, problem = CASES[0]
    with pytest.raises(Incompatible, match="Use delta at least"):
        planned(solver, problem, budget=Budget(1.0, 1e-72))
    with pytest.raises(Incompatible, match="Use epsilon at most"):
        planned(solver, problem, budget=Budget(1e3, 1e-6))
