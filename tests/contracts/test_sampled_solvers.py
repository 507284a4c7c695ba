"""Solvers that sample records keep the contract of all solvers, as far as samples allow.

The order of records decides which of them a seed draws, so it is the one thing that may change an answer.
"""

import dataclasses
import math

import numpy as np
import pytest
from scipy.sparse import csr_array

import dpcvx.noise.gaussian
from dpcvx.accounting import PLD, Budget, Tight
from dpcvx.data.memory import Arrays, source
from dpcvx.data.quantise import Quantiser, targets
from dpcvx.data.rows import Sparse
from dpcvx.domains import Box, L1Ball, L2Ball
from dpcvx.domains.regularizers import L1
from dpcvx.errors import Incompatible
from dpcvx.losses import Huber, Logistic, Softmax, Squared
from dpcvx.mechanisms import NoisyDifference, NoisyGradient
from dpcvx.noise import SecureGenerator, SeededGenerator
from dpcvx.plans import Oracle, Plan, Stage, execute
from dpcvx.problem import Bounds, Problem
from dpcvx.solvers import NoisySVRG, NoisySVRGPlusPlus
from exact import ExactOracle
from zoo import one_of_each

N, D = 60, 4
BUDGET = Budget(2.0, 1e-6)
COARSE = PLD(interval=5e-3)  # quick; a coarser grid asks for a little more noise
CASES = [
    (NoisySVRG(2, 4, 20), Problem(Logistic(), L2Ball(2.0), bounds=Bounds(1.0), d=D, l2=0.1)),
    (NoisySVRG(2, 3, 30, clip=0.3), Problem(Squared(), Box(-1.0, 2.0), bounds=Bounds(1.0), d=D, l2=0.5)),
    (NoisySVRG(), Problem(Huber(0.5), bounds=Bounds(1.0, 1.0), d=D, l2=0.2, regularizer=L1(0.05))),
    (NoisySVRGPlusPlus(2, 1, 20), Problem(Softmax(), L2Ball(1.0), bounds=Bounds(1.0), d=D, outputs=3)),
    (NoisySVRGPlusPlus(), Problem(Logistic(), L1Ball(1.5), bounds=Bounds(1.0, 1.0), d=D)),
]
over_cases = pytest.mark.parametrize(
    ("solver", "problem"),
    one_of_each(CASES),
    ids=[f"{type(s).__name__}-{p.loss.name}-{type(p.domain).__name__}" for s, p in CASES],
)


def records(problem, seed=0, n=N):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, problem.d))
    y = rng.integers(0, 3, n).astype(float) if problem.loss.joint else np.where(X[:, 0] > 0, 1.0, -1.0)
    return X, y


def planned(solver, problem, budget=BUDGET, accountant=COARSE):
    return solver.plan(problem, N, budget, accountant)


@over_cases
@pytest.mark.long
def test_the_plan_keeps_the_budget_and_the_run_keeps_the_plan(solver, problem):
    plan, again = planned(solver, problem), planned(solver, problem)
    assert (plan.stages, plan.solver, plan.event) == (again.stages, again.solver, again.event)
    assert 0.97 * BUDGET.epsilon < plan.price.epsilon <= BUDGET.epsilon
    assert plan.price.sampler_delta <= 1e-3 * BUDGET.delta
    assert planned(plan.solver, problem).stages == plan.stages
    kinds = [type(stage.mechanism) for stage in plan.stages]
    assert kinds == [NoisyGradient, NoisyDifference] * plan.solver.n_epochs
    seen, data = [], source(*records(problem), bounds=problem.bounds)
    release = execute(
        plan, data, rng=SeededGenerator(1), progress=lambda done, planned: seen.append((done, planned))
    )
    assert seen == [(i + 1, plan.n_calls) for i in range(plan.n_calls)]
    assert release.theta.shape == problem.shape
    assert np.isfinite(release.theta).all()
    assert problem.domain is None or problem.domain.contains(release.theta)
    sampled = plan.stages[1].mechanism
    steps = plan.n_calls - plan.solver.n_epochs
    expected = N * plan.solver.n_epochs + 2 * sampled.probability * N * steps
    assert release.gradient_evaluations == plan.gradient_evaluations == pytest.approx(expected)
    assert "Poisson" in str(plan)


@over_cases
def test_the_same_seed_gives_the_same_bits_and_another_seed_others(solver, problem):
    plan = planned(solver, problem)
    data = source(*records(problem), bounds=problem.bounds)
    runs = [execute(plan, data, rng=SeededGenerator(seed)) for seed in (3, 3, 4, 5)]
    assert np.array_equal(runs[0].theta, runs[1].theta)
    assert len({run.theta.tobytes() for run in runs}) > 1
    assert not any(run.private for run in runs)
    assert execute(plan, data, rng=SecureGenerator()).private


@over_cases
@pytest.mark.long
def test_storage_blocks_and_threads_change_no_bit(solver, problem):
    plan = planned(solver, problem)
    X, y = records(problem)
    X[np.abs(X) < 0.3] = 0.0

    def theta(storage, blocks, threads):
        rows = Quantiser(problem.bounds).quantise(X)
        if storage == "csr":
            sparse = csr_array(rows.values)
            rows = Sparse(sparse.indptr.astype(np.int64), sparse.indices, sparse.data, problem.d)
        data = Arrays(rows, targets(y), threads=threads, block_rows=math.ceil(N / blocks))
        return execute(plan, data, rng=SeededGenerator(2)).theta.tobytes()

    first = theta("dense", 1, 1)
    assert all(
        theta(storage, blocks, threads) == first
        for storage in ("dense", "csr")
        for blocks in (1, 2, 7)
        for threads in (1, 2)
    )


@over_cases
def test_with_all_records_in_the_sample_and_no_noise_it_is_the_plain_algorithm(solver, problem, monkeypatch):
    monkeypatch.setattr(
        dpcvx.noise.gaussian, "lattice_gaussian", lambda scale, size, rng: np.zeros(size, dtype=np.int64)
    )
    X, y = records(problem)
    stored = Quantiser(problem.bounds).quantise(X).values / 2**14  # so that both see the same records
    plan = planned(dataclasses.replace(solver, n_epochs=3, n_steps=4, batch=N, clip=None), problem)
    private = execute(plan, source(X, y, bounds=problem.bounds), rng=SeededGenerator(0)).theta
    np.testing.assert_allclose(private, plan.solver.run(plan, ExactOracle(plan, stored, y)), atol=1e-5)
    assert abs(private).max() > 1e-3


@pytest.mark.long
@over_cases
def test_less_budget_is_more_noise_for_both_questions(solver, problem):
    fixed = planned(solver, problem).solver
    plans = [planned(fixed, problem, budget=Budget(epsilon, 1e-6)) for epsilon in (0.5, 1.0, 4.0)]
    for place in (0, 1):
        noises = [plan.stages[place].mechanism.noise for plan in plans]
        assert noises[0] > 1.2 * noises[1] > 1.4 * noises[2]


@pytest.mark.long
def test_the_default_accountant_certifies_the_plan():
    solver, problem = CASES[0]
    plan = planned(solver, problem, accountant=Tight())
    assert 0.999 * BUDGET.epsilon < plan.price.epsilon <= BUDGET.epsilon
    coarse = planned(solver, problem)
    for place in (0, 1):
        exact, rough = (p.stages[place].mechanism.noise for p in (plan, coarse))
        assert 1 <= rough / exact < 1.05


@pytest.mark.long
def test_add_remove_needs_less_noise_and_takes_any_number_of_records():
    solver, problem = CASES[0]
    plans = {r: planned(solver, problem, budget=Budget(2.0, 1e-6, r)) for r in ("replace", "add_remove")}
    for place in (0, 1):
        replaced, added = (plans[r].stages[place].mechanism.noise for r in ("replace", "add_remove"))
        assert added < 0.75 * replaced
    X, y = records(problem)
    data = source(X[1:], y[1:], bounds=problem.bounds)
    assert np.isfinite(execute(plans["add_remove"], data, rng=SeededGenerator(0)).theta).all()
    with pytest.raises(Incompatible, match="the source has 59"):
        execute(plans["replace"], data)


def test_the_oracle_answers_differences_in_their_stage_only():
    problem = CASES[0][1]
    gradient, difference = NoisyGradient(problem, N, 9.0), NoisyDifference(problem, N, 0.25, 9.0)
    plan = Plan((Stage(gradient, 1), Stage(difference, 2)), problem, N, NoisySVRG(1, 3), BUDGET, COARSE)
    ask = Oracle(plan, source(*records(problem), bounds=problem.bounds), SeededGenerator(0))
    theta = np.zeros(D)
    with pytest.raises(Incompatible, match="stage 1 answers NoisyGradient, not a difference"):
        ask.difference(theta, theta)
    ask.gradient(theta)
    with pytest.raises(Incompatible, match="stage 2 answers NoisyDifference"):
        ask.gradient(theta)
    ask.difference(theta, theta)
    ask.difference(theta, theta)
    with pytest.raises(Incompatible, match="all of them are used"):
        ask.difference(theta, theta)
