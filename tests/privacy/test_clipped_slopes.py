"""Clipped slopes: neighbours by brute force, exact output laws, noise."""

import itertools
import math

import numpy as np
import pytest
from scipy import sparse, stats

import dpcvx as dp
from dpcvx.accounting import REPLACE_ONE, Neighbours, Tight
from dpcvx.audit.replay import discrepancies, record, replay, share
from dpcvx.data import DifferenceSum, GradientSum
from dpcvx.data.lattice import FEATURE_BITS, RESIDUAL_BITS
from dpcvx.losses import ClippedLogistic, Logistic, Softmax
from dpcvx.mechanisms import NoisyDifference, NoisyGradient, NoisyVertex
from dpcvx.mechanisms.mechanism import residual_bound
from dpcvx.noise import SeededGenerator
from dpcvx.solvers import (
    NoisyCorrectiveFrankWolfe,
    NoisyFrankWolfe,
    NoisyGeneralFrankWolfe,
    NoisyGradientDescent,
    NoisyMirrorDescent,
    NoisySVRG,
    ObjectivePerturbation,
    Standardised,
)

BOUNDS = dp.Bounds(1.0, 1.2)
BUDGET = dp.Budget(1.0, 1e-6)
SOFTMAX_CLIP = 1.2 * math.sqrt(2 / 3)
CASES = [(Logistic(), 1, 0.6), (Softmax(), 3, SOFTMAX_CLIP), (Softmax(), 3, 0.3), (Logistic(), 3, 0.7)]


def problem(loss, outputs=1, d=2, domain=None, l2=0.0):
    return dp.Problem(loss, domain or dp.L2Ball(30.0), bounds=BOUNDS, d=d, outputs=outputs, l2=l2)


def labels(loss, outputs):
    if loss.joint:
        return [[float(code)] for code in range(-1, outputs)]
    return [list(signs) for signs in itertools.product([-1.0, 0.0, 1.0], repeat=outputs)]


def points(shape, count=3):
    rng = np.random.default_rng(5)
    directions = rng.standard_normal((count, *shape))
    sizes = np.linalg.norm(directions.reshape(count, -1), axis=1).reshape(-1, *[1] * len(shape))
    return [np.zeros(shape), *(30 * directions / sizes), *(directions / sizes)]


def sources(row, label):
    X, y = np.atleast_2d(row), np.atleast_2d(label)
    yield dp.source(X, y, bounds=BOUNDS)
    yield dp.source(sparse.csr_array(X), y, bounds=BOUNDS)


@pytest.mark.parametrize(("loss", "outputs", "clip"), CASES, ids=str)
@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_no_two_clipped_records_move_a_gradient_further_than_its_noise_covers(loss, outputs, clip, relation):
    asked = problem(loss, outputs)
    mechanism = NoisyGradient(asked, 10, 1.0, Neighbours(relation), clip)
    rows = [(-1.0, -1.0), (-1.0, 1.0), (0.3, 1.0), (1.0, 1.0)]
    reached = 0.0
    for theta in points(asked.shape):
        bound = residual_bound(asked, asked.margin_bound(theta), clip)
        allowed = mechanism._gaussian(bound, asked.d).sensitivity
        sums = [
            [int(v) for v in source.sum(GradientSum(loss, theta, bound)).flat]
            for row, label in itertools.product(rows, labels(loss, outputs))
            for source in sources(row, label)
        ]
        others = sums if relation == "replace" else [[0] * asked.size]
        for one, other in itertools.product(sums, others):
            moved = sum((a - b) ** 2 for a, b in zip(one, other, strict=True))
            assert moved <= allowed**2
            reached = max(reached, math.sqrt(moved) / allowed)
    assert reached > (0.8 if loss.joint else 0.99)
    assert mechanism.sensitivity == pytest.approx(
        (2 if relation == "replace" else 1) * clip * 1.2 / 10, rel=1e-3
    )


@pytest.mark.parametrize(("loss", "outputs", "clip"), CASES, ids=str)
def test_slopes_of_one_record_are_within_both_norms_of_the_clip_wherever_they_are_read(loss, outputs, clip):
    """A row of one stored unit shows the integers themselves: gradients, followed margins, differences."""
    asked = problem(loss, outputs, d=1)
    bound, cell = residual_bound(asked, None, clip), 1 << FEATURE_BITS
    difference = NoisyDifference(asked, 10, 1.0, 1.0, REPLACE_ONE, clip)
    longest = 0
    for label, theta in itertools.product(labels(loss, outputs), points(asked.shape)):
        for source in sources([1.0], label):
            rho = source.sum(GradientSum(loss, theta, bound)).ravel() // cell
            followed = source.follow(loss, outputs)
            for k in range(outputs):
                followed.add(k, round(2**20 * float(np.ravel(theta)[k])))
            again = followed.scores(2.0 ** -(20 + FEATURE_BITS), bound).ravel() // cell
            np.testing.assert_allclose(again, rho, atol=4)
            for slopes in (rho, again):
                assert sum(int(v) ** 2 for v in slopes) <= bound.l2**2 <= (clip * 2**RESIDUAL_BITS) ** 2
                assert max(abs(slopes)) <= bound.linf
                longest = max(longest, math.isqrt(sum(int(v) ** 2 for v in slopes)))
            limit = difference.bound(theta, -theta)
            moved = (
                source.sum(DifferenceSum(loss, (theta, -theta), np.array([0]), bound, limit)).ravel() // cell
            )
            assert sum(int(v) ** 2 for v in moved) <= limit.l2**2 <= (2 * bound.l2) ** 2
    assert longest > 0.999 * clip * 2**RESIDUAL_BITS


@pytest.mark.parametrize(("loss", "outputs", "clip"), CASES, ids=str)
def test_no_two_clipped_records_move_a_vertex_score_further_than_its_sensitivity(loss, outputs, clip):
    asked = problem(loss, outputs, domain=dp.L1Ball(20.0))
    mechanism = NoisyVertex(asked, 10, 0.5, 20, REPLACE_ONE, clip)
    bound = residual_bound(asked, None, clip)
    unit = 20.0 * 2.0 ** -(FEATURE_BITS + RESIDUAL_BITS) / 10
    reached = 0.0
    for index in range(asked.size):
        scores = []
        for row, label in itertools.product([[1.0, -1.0], [-1.0, 0.0], [1.0, 1.0]], labels(loss, outputs)):
            for source in sources(row, label):
                followed = source.follow(loss, outputs)
                followed.add(index, 2**20)
                scores.append(followed.scores(20.0 * 2.0 ** -(20 + FEATURE_BITS), bound).ravel() * unit)
        spread = np.max(scores, axis=0) - np.min(scores, axis=0)
        assert (spread <= mechanism.sensitivity * (1 + 1e-12)).all()
        reached = max(reached, float(spread.max()) / mechanism.sensitivity)
    assert reached > 0.6  # a row within norm 1.2 has two entries of 0.85, and one of 1 alone


SOLVERS = [
    NoisyGradientDescent(n_iter=5, clip=0.6),
    NoisyMirrorDescent(n_iter=5, clip=0.6),
    NoisyGeneralFrankWolfe(n_iter=5, clip=0.6),
    Standardised(NoisyGradientDescent(n_iter=5, clip=0.6)),
    NoisyFrankWolfe(n_iter=8, clip=0.6),
    NoisyCorrectiveFrankWolfe(n_iter=6, clip=0.6),
]


@pytest.mark.parametrize(
    ("solver", "outputs"),
    [
        *itertools.product(SOLVERS, (1, 3)),
        # Its price takes seconds; tests/privacy/test_difference.py has its quick neighbours.
        pytest.param(NoisySVRG(n_epochs=1, n_steps=2, batch=10, clip=0.6), 3, marks=pytest.mark.long),
    ],
    ids=lambda value: repr(value).partition("(n_")[0],
)
def test_neighbours_of_a_clipped_fit_change_its_sums_within_their_sensitivity(solver, outputs):
    loss = Logistic() if outputs == 1 else Softmax()
    domain = dp.L1Ball(20.0) if "Frank" in type(solver).__name__ else dp.L2Ball(30.0)
    asked = problem(loss, outputs, domain=domain, l2=0.1 if isinstance(solver, NoisySVRG) else 0.0)
    planned = solver.plan(asked, 30, dp.Budget(3.0, 1e-4), Tight())
    rng = np.random.default_rng(3)
    X, y = (
        rng.uniform(-1, 1, (30, 2)),
        rng.choice([-1.0, 1.0], 30) if outputs == 1 else rng.integers(0, 3, 30),
    )
    first = record(planned, dp.source(X, y, bounds=BOUNDS), SeededGenerator(0))
    for row, label in (([1e30, -1e30], -y[0]), ([np.nan, -1.0], 1.0), ([1.0, 1.0], -7.0)):
        other_X, other_y = X.copy(), y.astype(float)
        other_X[0], other_y[0] = row, label
        second = replay(planned, dp.source(other_X, other_y, bounds=BOUNDS), SeededGenerator(5), first)
        assert discrepancies(planned, first, second) == []
        asks = zip(first.questions, second.questions, strict=True)
        sums = [
            share(planned, one, other) for one, other in asks if one.sum is not None or one.bound is not None
        ]
        assert max(sums) > 0.01  # the record is felt


@pytest.mark.parametrize("standardised", [False, True])
def test_a_clipped_minimiser_has_one_score_per_record(standardised):
    """No sum shows what a record does inside a minimiser; its law is compared below, for one score."""
    solver = ObjectivePerturbation(clip=0.6)
    with pytest.raises(dp.Incompatible, match="one score per record"):
        (Standardised(solver) if standardised else solver).plan(problem(Softmax(), 3), 30, BUDGET, Tight())


@pytest.mark.long
def test_lazy_scores_of_clipped_slopes_stay_within_their_sensitivity():
    """Lines between two clipped residuals, carried on over many scales; the fit is wholly wrong about one."""
    d, n, bounds = 1200, 40, dp.Bounds(1.0)
    cells = np.zeros((n, d))
    cells[:, 0] = 1.0
    cells[np.arange(n), 1 + np.arange(n)] = 1.0
    y = np.ones(n)
    y[3] = -1.0
    asked = dp.Problem(Logistic(), dp.L1Ball(50.0), bounds=bounds, d=d)
    planned = NoisyFrankWolfe(n_iter=60, clip=0.6).plan(asked, n, dp.Budget(200.0, 1e-4), Tight())
    first = record(planned, dp.source(sparse.csr_array(cells), y, bounds=bounds), SeededGenerator(0))
    assert any("lazy" in question.kind or question.kind == "draw" for question in first.questions)
    cells[3, 4] = -1.0
    second = replay(planned, dp.source(sparse.csr_array(cells), y, bounds=bounds), SeededGenerator(1), first)
    assert discrepancies(planned, first, second) == []
    largest = max(share(planned, *pair) for pair in zip(first.questions, second.questions, strict=True))
    assert 0.99 < largest <= 1


GRID = np.linspace(-40.0, 40.0, 40_001)


def masses(loss, data, mechanism, radius):
    """Exact law of the perturbed minimiser of one feature over [-radius, radius]: atoms at the ends.

    ``data`` holds (x, y, how many records are so).
    """
    slope, bend, h = mechanism.ridge * GRID, np.full(GRID.size, mechanism.ridge), 1e-6
    for x, y, count in data:
        z, label = GRID * x, np.full(GRID.size, y)
        slope = slope + count * x * loss.grad(z, label)
        bend = bend + count * x * x * (loss.grad(z + h, label) - loss.grad(z - h, label)) / (2 * h)
    density = stats.norm.pdf(slope, scale=mechanism.n * mechanism.noise) * bend * (GRID[1] - GRID[0])
    left, right = np.searchsorted(GRID, [-radius, radius])
    return np.concatenate([[density[:left].sum()], density[left:right], [density[right:].sum()]])


def largest_delta(loss, mechanism, epsilon, radius):
    """Largest delta at epsilon that a pair of neighbours shows."""
    found = 0.0
    # Many records of the other label pull theta to where a slope of logistic loss is near 1.
    for x, others in itertools.product(
        (1.0, 0.4), ((), ((1.0, 1.0, 1), (1.0, -1.0, 1)), ((1.0, -1.0, 400),))
    ):
        one = [*others, (x, 1.0, 1)]
        two = [*others, (x, -1.0, 1)] if mechanism.neighbours.replaces else list(others)
        p, q = (masses(loss, data, mechanism, radius) for data in (one, two))
        assert p.sum() == pytest.approx(1.0, abs=1e-3)
        for first, second in ((p, q), (q, p)):
            found = max(found, float(np.maximum(first - math.exp(epsilon) * second, 0.0).sum()))
    return found


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_the_exact_law_of_a_clipped_minimiser_keeps_the_budget(relation):
    """Under add/remove the slopes of logistic loss itself, up to 1, are seen to be too large for it."""
    budget = dp.Budget(1.0, 1e-5, relation)
    asked = dp.Problem(Logistic(), dp.L2Ball(15.0), bounds=dp.Bounds(1.0), d=1)
    mechanism = ObjectivePerturbation(clip=0.5).plan(asked, 5, budget, Tight()).stages[0].mechanism
    assert mechanism.problem.loss == ClippedLogistic(0.5)
    kept = largest_delta(ClippedLogistic(0.5), mechanism, budget.epsilon, 15.0)
    assert kept <= budget.delta
    if relation == "add_remove":
        assert kept > 0.1 * budget.delta
        assert largest_delta(Logistic(), mechanism, budget.epsilon, 15.0) > budget.delta


@pytest.mark.parametrize(("loss", "outputs", "clip"), CASES[:2], ids=str)
def test_the_noise_of_a_clipped_gradient_is_what_it_says(loss, outputs, clip):
    asked = problem(loss, outputs)
    mechanism = NoisyGradient(asked, 50, 2.0, REPLACE_ONE, clip)
    rng, theta = np.random.default_rng(0), points(asked.shape)[1]
    y = rng.choice([-1.0, 1.0], 50) if outputs == 1 else rng.integers(0, 3, 50)
    data, generator = dp.source(rng.uniform(-1, 1, (50, 2)), y, bounds=BOUNDS), SeededGenerator(3)
    answers = np.array([mechanism(theta, data=data, rng=generator) for _ in range(2000)]).reshape(2000, -1)
    np.testing.assert_allclose(answers.std(axis=0), 2 * 2 * clip * 1.2 / 50, rtol=0.08)
