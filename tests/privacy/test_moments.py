"""Moments and the standardisation that is made of them: sensitivities by brute force, noise, neighbours."""

import itertools
import math
import warnings
from dataclasses import replace

import numpy as np
import pytest

import dpcvx
import dpcvx as dp
import dpcvx.noise.gaussian
from adversary import stored
from dpcvx.accounting import WEIGHT, Budget, Following, Neighbours, Tight, gaussian_mu
from dpcvx.audit.replay import discrepancies, record, replay
from dpcvx.data import LengthSum, MomentSum, Records, TargetSum
from dpcvx.data.lattice import FEATURE_BITS
from dpcvx.data.quantise import Quantiser
from dpcvx.data.rows import Dense
from dpcvx.domains import L2Ball
from dpcvx.events import Compose, Gaussian, Repeat
from dpcvx.losses import Logistic, Squared
from dpcvx.mechanisms import NoisyLength, NoisyMoments, NoisyTarget
from dpcvx.noise import SeededGenerator
from dpcvx.plans import Oracle, execute
from dpcvx.problem import Bounds, Problem
from dpcvx.solvers import NoisyGradientDescent, NoisyMirrorDescent, ObjectivePerturbation, Standardised

UNIT = 2**FEATURE_BITS


def problem(d, bounds=None, loss=None):
    return dp.Problem(loss or dp.Squared(), dp.L2Ball(3.0), bounds=bounds or dp.Bounds(1.0), d=d)


def sums(X, y, bounds, order, centers, limits, presence=0):
    question = MomentSum(order, centers, limits, presence)
    return dp.source(np.atleast_2d(X), np.atleast_1d(y), bounds=bounds).sum(question)


@pytest.mark.parametrize(
    ("order", "levels"), [(1, ()), (2, ()), (1, ((1, 3),)), (2, ((1, 3),)), (2, ((0, 3),))]
)
@pytest.mark.parametrize("bounds", [dp.Bounds(1.0), dp.Bounds(1.0, 1.2), dp.Bounds(0.3)], ids=str)
def test_no_two_records_are_further_apart_than_the_sensitivity_and_some_are_as_far(order, levels, bounds):
    d = 3
    mechanism = NoisyMoments(problem(d, bounds), 10, order, 1.0, levels=levels)
    (sensitivity,) = (each.sensitivity for each in mechanism.gaussians)
    edge = bounds.x_inf
    rows = [np.array(row) for row in itertools.product([-edge, 0.0, edge], repeat=d)]
    reached = 0.0
    for center in ([0] * 3, [round(edge * UNIT)] * 3, [-round(edge * UNIT), 0, 0]):
        answers = [
            sums(row, 0.0, bounds, order, np.array(center), mechanism.limits).astype(object) for row in rows
        ]
        for one, other in itertools.combinations(answers, 2):
            moved = sum((one - other) ** 2)
            assert moved <= sensitivity**2
            reached = max(reached, math.sqrt(moved) / sensitivity)
    if bounds.x_2 is None and not (order == 2 and levels == ((0, 3),)):  # nothing is asked then
        assert reached > 0.999


@pytest.mark.parametrize(
    ("bounds", "marked"),
    [
        (dp.Bounds(1.0), (0, 1, 2)),
        (dp.Bounds(0.3), (1,)),
        (dp.Bounds(1.0, math.nextafter(math.sqrt(2), 2)), (0,)),  # a number and a column of two coded levels
    ],
    ids=str,
)
@pytest.mark.parametrize("neighbours", [Neighbours(), Neighbours(weight=WEIGHT)], ids=["rows", "weighted"])
def test_numbers_of_cells_are_released_at_the_sensitivity_of_their_sums(bounds, marked, neighbours):
    """A 0 of a marked feature is a missing cell; rows need not keep to the structure of declared columns."""
    mechanism = NoisyMoments(problem(3, bounds), 10, 1, 1.0, neighbours, marked=marked)
    plain = NoisyMoments(problem(3, bounds), 10, 1, 1.0, neighbours)
    (sensitivity,) = (each.sensitivity for each in mechanism.gaussians)
    assert sensitivity == plain.gaussians[0].sensitivity
    edge = bounds.x_inf
    cells = [-edge, -2 / UNIT, 0.0, 1 / UNIT, edge]
    question, weight = asked(mechanism), neighbours.weight
    answers = [
        weight * dp.source([row], [0.0], bounds=bounds).sum(question).astype(object)
        for row in itertools.product(cells, repeat=3)
    ]
    if weight > 1:
        answers.append(0 * answers[0])  # a person without rows
    furthest = max(sum((one - other) ** 2) for one, other in itertools.combinations(answers, 2))
    assert furthest <= sensitivity**2
    assert furthest > 0.99 * sensitivity**2 or bounds.x_2 is not None


@pytest.mark.parametrize("marked", [(), (0, 3), (0, 1, 2, 3)], ids=str)
@pytest.mark.parametrize("weighted", [False, True], ids=["rows", "weighted"])
@pytest.mark.parametrize("order", [1, 2])
def test_sums_are_those_of_python_integers_record_by_record(order, weighted, marked):
    rng = np.random.default_rng(order)
    rows = (rng.integers(-UNIT, UNIT, (40, 4)) * (rng.random((40, 4)) < 0.7)).astype(np.int16)
    weights = rng.integers(0, WEIGHT + 1, 40)
    centers, limits = rng.integers(-3000, 3000, 4), rng.integers(9000, UNIT, 4)
    y = np.stack([np.where(rng.random(40) < 0.2, np.nan, rng.normal(size=40))] + [weights] * weighted)
    records = Records(Dense(rows), y, weighted=weighted, block_rows=7)
    question = MomentSum(order, np.append(centers, 5), np.append(limits, UNIT), 0, 3, marked, 11, 2**28)
    total, whole, cells, target = [0] * 4, 0, [0] * len(marked), 0
    for i in range(40):
        weight = int(weights[i]) if weighted else 1
        row, shift = rows[i].tolist(), 14 if weighted and order == 2 else 0
        whole += 3 * weight
        if not np.isnan(y[0, i]):
            value = min(max(min(max(round(y[0, i] * UNIT), -UNIT), UNIT) - 5, -UNIT), UNIT)
            target += weight * value**order >> shift
        others = sum(v * v for j, v in enumerate(row) if j not in marked)
        if order == 1 and 0 < len(marked) < 4 and others > 2**28:
            continue
        for j, v in enumerate(row):
            if order == 1 or v != 0 or j not in marked:
                power = min(max(v - int(centers[j]), -int(limits[j])), int(limits[j])) ** order
                total[j] += weight * power >> shift
        for place, j in enumerate(marked):
            cells[place] += weight * (row[j] != 0)
    counted = [11 * count for count in cells] if order == 1 else []
    assert question.of(records).tolist() == [*total, whole, *counted, target]


def asked(mechanism):
    """The sum that a mechanism asks for."""
    data = dp.source([[0.0] * mechanism.problem.d], [0.0], bounds=mechanism.problem.bounds)
    questions = []
    data.sum = lambda question: questions.append(question) or type(data).sum(data, question)
    mechanism(None, data, SeededGenerator(0))
    return questions[0]


def test_the_vector_of_privacy_math_for_missing_cells():
    """Three marked features: P = floor(sqrt(3) 2^14), sensitivity floor(2 sqrt(3) 2^14) + 1."""
    rows = NoisyMoments(problem(3), 10, 1, 1.0, marked=(0, 1, 2))
    weighted = NoisyMoments(problem(3), 10, 1, 1.0, Neighbours(weight=WEIGHT), marked=(0, 1, 2))
    assert (rows.cell, rows.gaussians[0].sensitivity) == (28377, 56756)
    assert (weighted.cell, weighted.whole, weighted.gaussians[0].size) == (2**14, 40132, 7)
    data = dp.source([[0.5, 0.0, -0.25], [0.0, 0.0, 1.0]], [0.0, 0.0], bounds=dp.Bounds(1.0))
    total = data.sum(asked(rows))
    assert total.tolist() == [2**13, 0, 3 * 2**12, 28377, 0, 2 * 28377]
    squares = MomentSum(2, np.full(3, 2**12), np.full(3, UNIT), marked=(0, 1, 2))
    assert data.sum(squares).tolist() == [2**24, 0, 2**26 + 9 * 2**24]
    with pytest.raises(ValueError, match="no bound on their norm"):
        NoisyMoments(problem(3, dp.Bounds(1.0, 1.0)), 10, 1, 1.0, marked=(0, 1, 2))


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_no_two_targets_are_further_apart_than_the_sensitivity_and_some_are_as_far(relation):
    """Share, mean and mean square together: (sqrt 2, u, u^2) for |u| <= 1, or nothing (PRIVACY_MATH §17)."""
    mechanism = NoisyTarget(10, 1.0, Neighbours(relation))
    (sensitivity,) = (each.sensitivity for each in mechanism.gaussians)
    assert mechanism.sensitivity == pytest.approx(2 / 10, rel=1e-4)
    targets = [*np.linspace(-1, 1, 41), 1e300, -1e300, math.nan]
    furthest = 0.0
    for center, reach in ((0.0, 1.0), (0.7, 0.01), (-1.0, 2.0), (0.3, 1e-9)):
        question = TargetSum(center, reach)
        answers = [
            dp.source([[0.0]], [y], bounds=dp.Bounds(1.0)).sum(question).astype(object) for y in targets
        ]
        others = answers if relation == "replace" else [np.zeros(3, dtype=object)]
        for one, other in itertools.product(answers, others):
            moved = sum((one - other) ** 2)
            assert moved <= sensitivity**2
            furthest = max(furthest, math.sqrt(moved) / sensitivity)
    assert furthest > 0.999


def test_one_of_several_targets_is_measured_as_if_it_were_alone():
    rng = np.random.default_rng(0)
    X, y = np.zeros((30, 1)), rng.uniform(-1, 1, (30, 3))
    y[4, 1] = math.nan
    data = dp.source(X, y, bounds=dp.Bounds(1.0))
    for place in range(3):
        alone = dp.source(X, y[:, place], bounds=dp.Bounds(1.0)).sum(TargetSum(0.2, 0.5))
        np.testing.assert_array_equal(data.sum(TargetSum(0.2, 0.5, place)), alone)
    for place in (None, 3, -1):
        with pytest.raises(ValueError, match="these records have 3"):
            data.sum(TargetSum(0.2, 0.5, place))


def test_target_answers_are_the_records_with_noise_of_the_stated_deviation():
    y = np.random.default_rng(0).uniform(-1, 1, 50)
    y[:20] = math.nan
    mechanism, data = NoisyTarget(50, 3.0), dp.source(np.zeros((50, 1)), y, bounds=dp.Bounds(1.0))
    generator = SeededGenerator(1)
    answers = np.array([mechanism(0.2, 0.5, data=data, rng=generator) for _ in range(3000)])
    u = np.clip((y[20:] - 0.2) / 0.5, -1, 1)
    exact = np.array([30.0, u.sum(), (u**2).sum()]) / 50
    deviations = np.array([mechanism.share_noise, mechanism.noise, mechanism.noise])
    np.testing.assert_allclose(answers.mean(axis=0), exact, atol=5 * deviations.max() / 50)
    np.testing.assert_allclose(answers.var(axis=0) / deviations**2, 1.0, atol=0.13)
    assert mechanism.noise == pytest.approx(3.0 * 2 / 50, rel=1e-3)
    assert mechanism.event == Gaussian(3.0)
    for center, reach in ((math.nan, 1.0), (0.0, 0.0), (0.0, math.inf)):
        with pytest.raises(ValueError, match="reach"):
            mechanism(center, reach, data=data, rng=generator)


def test_sensitivities_are_those_of_the_formula():
    first = NoisyMoments(problem(4, dp.Bounds(1.0, 1.5)), 10, 1, 1.0)
    second = NoisyMoments(problem(4, dp.Bounds(1.0, 1.5)), 10, 2, 1.0)
    assert first.sensitivity == pytest.approx(2 * 1.5 / 10, rel=1e-4)
    assert second.sensitivity == pytest.approx(math.sqrt(4) / 10, rel=1e-4)
    alone = NoisyMoments(problem(4, dp.Bounds(1.0, 1.5)), 10, 1, 1.0, Neighbours("add_remove"))
    assert alone.sensitivity == pytest.approx(1.5 / 10, rel=1e-4)


@pytest.mark.parametrize("order", [1, 2])
def test_moments_are_the_records_with_noise_of_the_stated_deviation(order):
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.8, 0.8, (50, 3))
    mechanism = NoisyMoments(problem(3), 50, order, 2.0)
    centers = None if order == 1 else np.array([0.1, -0.2, 0.0])
    generator, data = SeededGenerator(1), dp.source(X, np.zeros(50), bounds=dp.Bounds(1.0))
    answers = np.array([mechanism(centers, data=data, rng=generator) for _ in range(3000)])
    exact = X if order == 1 else (X - centers) ** 2
    deviation = mechanism.deviations
    np.testing.assert_allclose(answers.mean(axis=0), exact.mean(axis=0), atol=5 * deviation.max() / 50)
    # 3000 draws: a ratio of variances is within 0.13 of 1, but for 1 in 10^6.
    np.testing.assert_allclose(answers.var(axis=0) / deviation**2, 1.0, atol=0.13)
    assert deviation[0] == pytest.approx(2.0 * mechanism.sensitivity)


@pytest.mark.parametrize("bounds", [dp.Bounds(1.0), dp.Bounds(1.0, 1.2), dp.Bounds(0.3)], ids=str)
def test_no_two_records_differ_in_squared_length_by_more_than_the_sensitivity(bounds):
    mechanism = NoisyLength(problem(3, bounds), 10, 1.0)
    edge = bounds.x_inf
    rows = itertools.product([-edge, 0.0, edge], repeat=3)
    lengths = [int(dp.source([row], [0.0], bounds=bounds).sum(LengthSum())[0]) for row in rows]
    most = max(lengths) - min(lengths)
    assert 0.999 * mechanism._longest <= most <= mechanism._longest
    assert mechanism.sensitivity == pytest.approx(min(3 * edge**2, (bounds.x_2 or 9) ** 2) / 10, rel=1e-3)
    assert mechanism.event == Gaussian(1.0)


def test_the_length_is_the_records_with_noise_of_the_stated_deviation():
    X = np.random.default_rng(0).uniform(-0.8, 0.8, (50, 3))
    mechanism, data = NoisyLength(problem(3), 50, 2.0), dp.source(X, np.zeros(50), bounds=dp.Bounds(1.0))
    generator = SeededGenerator(1)
    answers = np.array([mechanism(data, generator) for _ in range(3000)])
    assert answers.mean() == pytest.approx((X**2).sum(axis=1).mean(), abs=5 * mechanism.noise / 50)
    assert answers.var() / mechanism.noise**2 == pytest.approx(1.0, abs=0.13)
    assert mechanism.noise == pytest.approx(2.0 * 3 / 50, rel=1e-3)
    assert mechanism.event == Gaussian(2.0)


def test_sparse_records_are_refused_before_they_are_centred():
    from scipy.sparse import csr_array

    from dpcvx.data import Quantiser

    X = np.eye(3) - 0.3 * np.eye(3)[::-1]
    data, dense = (dp.source(kind(X), np.ones(3), bounds=dp.Bounds(1.0)) for kind in (csr_array, np.asarray))
    question = MomentSum(2, np.arange(4), np.full(4, UNIT))
    assert data.sum(question).tolist() == dense.sum(question).tolist()
    with pytest.raises(ValueError, match="Sparse records"):
        data.mapped(Quantiser(dp.Bounds(1.0)), 0.0, 1.0)


@pytest.mark.parametrize("inner", [NoisyGradientDescent(n_iter=5), ObjectivePerturbation()], ids=type)
@pytest.mark.parametrize("loss", [dp.Squared(), dp.Logistic()], ids=type)
def test_moments_and_fit_together_keep_the_budget(inner, loss):
    budget = dp.Budget(1.0, 1e-6)
    plan = Standardised(inner).plan(problem(3, loss=loss), 500, budget, Tight())
    assert 0.97 <= plan.price.epsilon <= 1.0
    measures = [stage for stage in plan.stages if stage.mechanism.traits.measures]
    moments = sum(count / leaf.noise_multiplier**2 for leaf, count in gaussians(measures))
    mu = gaussian_mu(budget.epsilon, budget.delta)
    # n mu = 106: the target has 20/106 of mu^2
    share = 0.13 + (20 / (500 * mu) if isinstance(loss, dp.Squared) else 0.0)
    assert moments == pytest.approx(share * mu**2, rel=1e-3)


def gaussians(stages):
    from dpcvx.events import count_leaves

    events = tuple(Repeat(stage.mechanism.event, stage.n_calls) for stage in stages)
    return count_leaves(Compose(events)).items()


def test_following_adds_what_came_before():
    before, event = Repeat(Gaussian(4.0), 3), Gaussian(5.0)
    both = Tight().epsilon(Compose((before, event)), 1e-6)
    assert Following(before, Tight()).epsilon(event, 1e-6) == both > Tight().epsilon(event, 1e-6)
    assert Following(before, Tight()).delta(event, 1.0) == Tight().delta(Compose((before, event)), 1.0)
    assert Following(before, Tight()).supports(event)


@pytest.mark.parametrize("loss", [dp.Squared(), dp.Logistic()], ids=type)
def test_a_neighbour_changes_the_answers_only_within_their_sensitivity(loss):
    rng = np.random.default_rng(3)
    X, y = rng.uniform(-1, 1, (40, 3)), rng.choice([-1.0, 1.0], 40)
    bounds = dp.Bounds(1.0)
    plan = Standardised(NoisyGradientDescent(n_iter=4), marked=(0, 2)).plan(
        problem(3, loss=loss), 40, dp.Budget(2.0, 1e-4), Tight()
    )
    first = record(plan, dp.source(X, y, bounds=bounds), SeededGenerator(0))
    for row, target in (([1e30, -1e30, 1e30], -y[0]), ([np.nan, 0, -1], y[0]), ([-1, -1, -1], 0.0)):
        other_X, other_y = X.copy(), y.copy()
        other_X[0], other_y[0] = row, target
        second = replay(plan, dp.source(other_X, other_y, bounds=bounds), SeededGenerator(5), first)
        assert discrepancies(plan, first, second) == []
        kinds = [question.kind for question in second.questions]
        looks = ["TargetSum"] * plan.stages[0].n_calls if isinstance(loss, dp.Squared) else []
        assert kinds[: 5 + len(looks)] == [*looks, "MomentSum", "MomentSum", "mapped", "LengthSum", "mapped"]


def test_mapped_rows_are_held_to_the_bounds_of_the_fit():
    """A second quantiser that lets rows of norm 2 through does not reach a question made for norm 1."""
    rng = np.random.default_rng(3)
    X, y = rng.uniform(-1, 1, (40, 3)), rng.choice([-1.0, 1.0], 40)
    solver = Standardised(NoisyGradientDescent(n_iter=2), intercept=False)
    plan = solver.plan(problem(3, loss=dp.Logistic()), 40, dp.Budget(2.0, 1e-4), Tight())

    class Wide(Standardised):
        def run(self, plan, ask):
            from dpcvx.data.quantise import Quantiser

            ask.moments()
            ask.moments()
            ask.length()
            ask.remap(Quantiser(dp.Bounds(1.9), 0.0, 0.5))
            inner = self.inner(plan.problem)
            ask.gradient(np.zeros(inner.shape))
            return ask.gradient(np.zeros(inner.shape))

    plan = replace(plan, solver=Wide(plan.solver.solver, intercept=False))
    first = record(plan, dp.source(X, y, bounds=dp.Bounds(1.0)), SeededGenerator(0))
    X[0], y[0] = -X[0], -y[0]
    X[0] = 1.0
    second = replay(plan, dp.source(X, y, bounds=dp.Bounds(1.0)), SeededGenerator(0), first)
    assert discrepancies(plan, first, second) == []


def test_one_more_record_never_meets_the_end_of_the_room():
    """Under add/remove the number of records is private, so twice the planned number must fit."""
    small = NoisyMoments(problem(3), 100, 2, 1.0)
    most = small.capacity
    assert NoisyMoments(problem(3), most, 2, 1.0).capacity == most
    with pytest.raises(dp.Incompatible, match="62-bit"):
        NoisyMoments(problem(3), most, 2, 1.0, Neighbours("add_remove"))
    assert NoisyMoments(problem(3), most // 2, 2, 1.0, Neighbours("add_remove")).capacity > most // 2 + 1
    most = NoisyLength(problem(3), 100, 1.0).capacity
    with pytest.raises(dp.Incompatible, match="62-bit"):
        NoisyLength(problem(3), most, 1.0, Neighbours("add_remove"))


def test_the_statement_counts_the_answers_of_the_fit_like_the_model():
    X, y = np.random.default_rng(0).uniform(-1, 1, (3000, 3)), np.zeros(3000)
    model = dp.PrivateLogisticRegression(epsilon=1.0, bounds=(-1, 1), classes=(0, 1), n_iter=4).fit(X, y)
    assert model.privacy_statement_.public["n_iter"] == model.n_iter_ == 4
    assert model.plan_.n_calls == 8  # share of a class, two moments, length, and the gradients


def test_a_standardised_quantile_keeps_the_budget():
    plan = Standardised(NoisyMirrorDescent()).plan(
        problem(3, loss=dp.Quantile(0.3)), 2000, dp.Budget(1.0, 1e-6), Tight()
    )
    assert plan.price.epsilon <= 1.0 * (1 + 1e-9)
    target = plan.stages[0]
    spent = target.n_calls / target.mechanism.noise_multiplier**2
    assert spent == pytest.approx(0.05 * gaussian_mu(1.0, 1e-6) ** 2, rel=1e-3)


@pytest.fixture
def silent(monkeypatch):
    monkeypatch.setattr(
        dpcvx.noise.gaussian, "lattice_gaussian", lambda scale, size, rng: np.zeros(size, dtype=np.int64)
    )


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_means_are_about_zero(relation, silent):
    """About -1 a row of zeros adds sqrt(d) to the sum, which a row of norm 1 never does about 0."""
    d, n = 64, 10
    problem = Problem(Logistic(), L2Ball(1.0), bounds=Bounds(1.0, 1.0), d=d)
    question = NoisyMoments(problem, n, 1, 1.0, Neighbours(relation))
    more, fewer = (stored(np.zeros((m, d)), np.ones(m), problem.bounds, "dense") for m in (n, n - 1))
    with pytest.raises(ValueError, match="about 0"):
        question(np.full(d, -1.0), more, SeededGenerator(0))
    change = question(None, more, SeededGenerator(0)) - question(None, fewer, SeededGenerator(0))
    assert np.linalg.norm(change) <= question.sensitivity


@pytest.mark.parametrize("target", ["all zero", "different"])
def test_targets_below_the_grid_have_a_scale(target):
    """A range below 2^-14 was a scale of 0: 0/0 of one target said another thing than y/0 of the next."""
    n, tiny = 400, 5e-5
    problem = Problem(Squared((-tiny, tiny)), L2Ball(1.0), bounds=Bounds(1.0, 1.0, tiny), d=3)
    plan = Standardised(NoisyGradientDescent(n_iter=3)).plan(problem, n, Budget(1.0, 1e-6), Tight())
    y = np.zeros(n) if target == "all zero" else np.linspace(-tiny, tiny, n)
    data = stored(np.full((n, 3), 0.25), y, problem.bounds, "dense")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        release = execute(plan, data, rng=SeededGenerator(0))
    assert np.isfinite(release.theta).all()


@pytest.mark.parametrize(("center", "scale"), [(0.0, 0.0), (0.0, -1.0), (np.nan, 1.0), (0.0, np.inf)])
def test_targets_are_not_sent_through_a_map_that_depends_on_them(center, scale):
    problem = Problem(Squared(), L2Ball(1.0), bounds=Bounds(1.0, 1.0, 1.0), d=3)
    plan = NoisyGradientDescent(n_iter=3).plan(problem, 8, Budget(1.0, 1e-6), Tight())
    data = stored(np.zeros((8, 3)), np.zeros(8), problem.bounds, "dense")
    oracle = Oracle(plan, data, SeededGenerator(0))
    with pytest.raises(ValueError, match="finite centre and a positive scale"):
        oracle.remap(Quantiser(problem.bounds), center, scale)


def test_a_norm_far_beyond_all_cells_is_a_norm():
    """Cells that are small beside the declared norm are stored on the grid like all others."""
    X = np.full((500, 3), 0.5)
    model = dpcvx.PrivateLinearRegression(
        epsilon=1.0, bounds=(0.0, 1.0), y_bounds=(0.0, 1.0), data_norm=1e5, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, X[:, 0])
    assert np.isfinite(model.coef_).all()
