"""Lazy scores: stale residuals keep the declared sensitivity, and draws from them have the declared law."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from scipy.sparse import csr_array

import dpcvx as dp
import dpcvx.mechanisms.vertex
from adversary import neighbour, records, stored
from dpcvx.accounting import Neighbours, Tight
from dpcvx.audit import discrepancies, record, replay, share
from dpcvx.data.lattice import ResidualBound
from dpcvx.data.lazy_kernels import DUE, LEVEL, NEVER, PLACE
from dpcvx.data.lazy_scores import RARE_LEVEL, LazyScores, Terms
from dpcvx.data.memory import source
from dpcvx.mechanisms import NoisyVertex, Vertex
from dpcvx.noise import SeededGenerator
from dpcvx.solvers import NoisyCorrectiveFrankWolfe, NoisyFrankWolfe
from zoo import ALL_LOSSES

SMOOTH = [loss for loss in ALL_LOSSES if not loss.joint and math.isfinite(loss.smoothness(3.0))]
CASES = list(itertools.product(SMOOTH, ["replace", "add_remove"]))
N, D, T = 7, 4, 25
QUICK = SMOOTH[:2]  # the kernels of each further loss take seconds to compile
over_losses = pytest.mark.parametrize(
    "loss", [pytest.param(loss, marks=[] if loss in QUICK else pytest.mark.long) for loss in SMOOTH], ids=repr
)


@pytest.fixture(autouse=True)
def few_features_are_enough(monkeypatch):
    monkeypatch.setattr(dpcvx.mechanisms.vertex, "FEWEST_LAZY_FEATURES", 1)


def plan_of(loss, relation="replace", pair=0, n=N, d=D, epsilon=20.0):
    bounds = [dp.Bounds(1.0), dp.Bounds(1.0, 1.0), dp.Bounds(1.9, 2.5)][pair % 3]
    problem = dp.Problem(
        loss, dp.L1Ball([2.0, 9.0][pair % 2]), bounds=bounds, d=d, l2=[0.0, 0.01][pair // 3 % 2]
    )
    solver = NoisyFrankWolfe(T, ["decaying", "constant"][pair // 2 % 2], [None, 0.2][pair // 4 % 2])
    return solver.plan(problem, n, dp.Budget(epsilon, 1e-6, relation), Tight())


def lazy_run(plan, data, steps, seed=0):
    """(mechanism, point, scores) after some steps of decaying length towards drawn vertices."""
    mechanism, rng = plan.stages[0].mechanism, SeededGenerator(seed)
    point, scores = mechanism.start(data)
    assert isinstance(scores, LazyScores)
    for t in range(steps):
        vertex = mechanism(point, scores, data, rng)
        point.move(2 / (t + 2), vertex, scores)
    return mechanism, point, scores


def residual(scores, i, scale):
    """The residual that row i contributes at this scale, exactly."""
    a, b = scores._lines[i].tolist()
    return a + b * Fraction(scale) / Fraction(scores._base)


def added_up(scores, columns, scale):
    """The sums of all features, made anew from the lines of their rows."""
    ends = columns.indptr.tolist()
    return [
        sum(
            (int(columns.values[e]) * residual(scores, columns.indices[e], scale) for e in range(*part)),
            Fraction(0),
        )
        for part in itertools.pairwise(ends)
    ]


@pytest.mark.parametrize(
    ("loss", "relation"),
    [pytest.param(*case, marks=[] if case[0] in QUICK else pytest.mark.long) for case in CASES],
    ids=[f"{loss!r}-{relation}" for loss, relation in CASES],
)
def test_on_neighbours_the_stale_sums_differ_by_the_sensitivity_and_nothing_else_differs(loss, relation):
    rng = np.random.default_rng(CASES.index((loss, relation)))
    widest = 0.0
    for pair in range(12):
        plan = plan_of(loss, relation, pair)
        X, y = records(loss, (N, D), 1, rng)
        one = stored(X, y, plan.problem.bounds, "csr")
        other = stored(*neighbour(X, y, loss, 1, relation, rng), plan.problem.bounds, "csr")
        first = record(plan, one, SeededGenerator(pair))
        second = replay(plan, other, SeededGenerator(pair + 1), first)
        assert discrepancies(plan, first, second) == []
        draws = [(a, b) for a, b in zip(first.questions, second.questions, strict=True) if a.kind == "draw"]
        assert len(draws) == T
        widest = max(widest, *(share(plan, a, b) for a, b in draws))
    assert widest > 0.3  # the bound is that of all iterates, and none of these reaches it


@over_losses
def test_a_line_stays_within_the_bound_until_its_edge_and_depends_on_its_own_row_alone(loss):
    """The same public moves over all records and over each record alone: the same line at every step."""
    rng = np.random.default_rng(1)
    plan = plan_of(loss, pair=1)
    mechanism, public = plan.stages[0].mechanism, SeededGenerator(2)
    X, y = records(loss, (N, D), 1, rng)
    sets = [(X, y), *((X[i : i + 1], y[i : i + 1]) for i in range(N))]
    runs = [mechanism.start(stored(*rows, plan.problem.bounds, "csr")) for rows in sets]
    limit, stale = runs[0][1]._terms.bound.linf, 0
    for t in range(80):
        vertex = Vertex(int(public.words(1)[0] % D), 1 - 2 * (t % 2))
        for point, scores in runs:
            scores.scores(point.scale)
        (whole_point, whole), *alone = runs
        for i, (_, single) in enumerate(alone):
            assert single._lines[0].tolist() == whole._lines[i].tolist()
            due = whole._dues[i]
            end = 0.0 if due == NEVER else whole._edges[due]
            assert end < whole_point.scale
            assert max(abs(residual(whole, i, scale)) for scale in (whole_point.scale, end)) <= limit
            stale += due != NEVER
        for point, scores in runs:
            point.move(2 / (t + 3), vertex, scores)
    assert stale or isinstance(loss, dp.Squared) or loss.name in ("sigmoid", "welsch")


@over_losses
def test_sums_never_drift_and_levels_stay_bounds(loss):
    rng = np.random.default_rng(3)
    n, d = 60, 12
    plan = plan_of(loss, pair=1, n=n, d=d, epsilon=60.0)
    X, y = records(loss, (n, d), 1, rng)
    X[:, 4:][rng.random((n, d - 4)) > 0.05] = 0.0  # rare features among frequent ones
    data = stored(X, y, plan.problem.bounds, "csr")
    mechanism, random = plan.stages[0].mechanism, SeededGenerator(4)
    point, scores = mechanism.start(data)
    columns = data._column_major()
    assert 0 < scores._frequent < d
    for t in range(120):
        vertex = mechanism(point, scores, data, random)
        exact = scores.scores(point.scale)
        assert exact == added_up(scores, columns, point.scale)
        power, facts = scores._terms.power, scores._facts
        log_weights = np.array([abs(power * float(total)) for total in exact])[scores._names]
        kept = scores._frequent
        assert (log_weights[:kept] <= facts[:, LEVEL]).all()
        assert (log_weights[kept:] <= RARE_LEVEL).all()
        order, start = scores._order, scores._first
        assert sorted(order.tolist()) == list(range(kept))
        assert (facts[order, PLACE] == np.arange(kept)).all()
        for level in range(scores._top + 1):
            assert (facts[order[start[level] : start[level + 1]], LEVEL] == level).all()
        assert (start[scores._top + 1 :] == kept).all()
        assert (facts[facts[:, DUE] != NEVER, DUE] > scores._now).all()
        point.move(2 / (t + 2), vertex, scores)


def test_units_are_renewed_where_the_scale_has_fallen_far():
    """Few bits: the slants' unit follows the scale, and the residuals stay where they were."""
    rng = np.random.default_rng(5)
    X, y = records(dp.Squared(), (20, 3), 1, rng)
    data = stored(X, y, dp.Bounds(1.0), "csr")
    bound = ResidualBound(2**22, 2**22)
    terms = Terms(bound, 2**14, 2**22, 2.0**-34, -1e-9, math.inf, 2**22)
    assert terms.octaves == 3
    scores = LazyScores(
        data._row_major(), data._column_major(), data._targets(dp.Squared(), 1), dp.Squared(), terms
    )
    scores.add(0, 2**20)
    scores.add(2, -(2**19))
    before = None
    for step in range(40):
        scale = 0.8**step
        scores.advance(scale)
        assert scale <= scores._base <= 2 * scale or scale > scores._base * scores._lowest
        slopes = [
            residual(scores, i, scale) + Fraction(float(y_i)) * 2**20
            for i, y_i in enumerate(scores._targets)
            if not math.isnan(y_i)  # a row without a target has no part
        ]
        if before is not None:
            np.testing.assert_allclose(np.array(slopes, float), before, atol=4.0)
        before = 0.8 * np.array(slopes, float)
        assert scores._frequent == 3
        assert scores.scores(scale) == added_up(scores, data._column_major(), scale)
    assert scores._base < 2.0**-10


@pytest.mark.parametrize(
    "loss",
    [dp.Logistic(), *(pytest.param(loss, marks=pytest.mark.long) for loss in (dp.Squared(), dp.Huber(0.5)))],
    ids=repr,
)
@pytest.mark.parametrize("l2", [0.0, 0.3])
def test_lazy_scores_are_those_of_fresh_residuals(loss, l2):
    rng = np.random.default_rng(6)
    n, d, radius = 400, 30, 4.0
    X = rng.uniform(-1, 1, (n, d)) * (rng.random((n, d)) < 0.2)
    y = np.where(X[:, 0] + 0.3 * rng.normal(size=n) > 0, 1.0, -1.0)
    problem = dp.Problem(loss, dp.L1Ball(radius), bounds=dp.Bounds(1.0), d=d, l2=l2)
    data = source(csr_array(X), y, bounds=problem.bounds)
    plan = NoisyFrankWolfe(150).plan(problem, n, dp.Budget(50.0, 1e-6), Tight())
    mechanism, rng = plan.stages[0].mechanism, SeededGenerator(7)
    point, lazy = mechanism.start(data)
    fresh, bound = data.follow(loss, 1), lazy._terms.bound
    same, worst = mechanism.origin(fresh), 0.0
    for t in range(150):
        vertex = mechanism(point, lazy, data, rng)
        expected = fresh.scores(same.margin_unit, bound) + l2 * n * 2**34 * point.dense()
        worst = max(worst, abs(np.array(lazy.scores(point.scale), float) - expected).max())
        point.move(2 / (t + 2), vertex, lazy)
        same.move(2 / (t + 2), vertex, fresh)
    assert worst / (n * 2**34) < (1e-5 if loss == dp.Squared() else 1e-3)


@pytest.mark.parametrize("moves", [0, 3, 40])
def test_draws_have_the_declared_law_at_every_iteration(moves):
    """40,000 draws fit exp(-eta u / (2 Delta)) over signed vertices, and neither 10 % more nor less eta."""
    rng = np.random.default_rng(8)
    n, d, radius, draws = 30, 6, 2.0, 40_000
    X = rng.uniform(-1, 1, (n, d)) * np.array([1, 1, 1, 0.2, 0.05, 0.0])
    y = np.where(X[:, 0] > 0.2, 1.0, -1.0)
    problem = dp.Problem(dp.Logistic(), dp.L1Ball(radius), bounds=dp.Bounds(1.0), d=d)
    plan = NoisyFrankWolfe(60).plan(problem, n, dp.Budget(180.0, 1e-6), Tight())
    data = source(csr_array(X), y, bounds=problem.bounds)
    mechanism, point, scores = lazy_run(plan, data, moves)
    assert 0 < scores._frequent < d
    random = SeededGenerator(9)
    counts = dict.fromkeys([Vertex(j, sign) for sign in (1, -1) for j in range(d)], 0)
    for _ in range(draws):
        counts[mechanism(point, scores, data, random)] += 1
    gradient = np.array(scores.scores(point.scale), float) * 2.0**-34 / n
    u = radius * np.r_[gradient, -gradient]

    def p_value(factor):
        weights = np.exp(-factor * mechanism.eta * u / (2 * mechanism.sensitivity))
        return stats.chisquare(list(counts.values()), draws * weights / weights.sum()).pvalue

    assert p_value(1.0) > 1e-4
    assert p_value(0.9) < 1e-6
    assert p_value(1.1) < 1e-6


def test_the_sign_is_drawn_and_not_read_off():
    """Both signs of the best coordinate appear, in the ratio of their weights."""
    n, draws = 20, 20_000
    problem = dp.Problem(dp.Squared(), dp.L1Ball(1.0), bounds=dp.Bounds(1.0), d=2)
    data = source(csr_array(np.c_[np.ones(n), np.zeros(n)]), np.ones(n), bounds=problem.bounds)
    mechanism = NoisyVertex(problem, n, 0.3, 20)
    point, scores = mechanism.start(data)
    random, signs = SeededGenerator(10), []
    while len(signs) < draws:
        vertex = mechanism(point, scores, data, random)
        signs += [vertex.sign] if vertex.index == 0 else []
    # u = -1 for the vertex +e_0 and Delta = 2 * 2/20: the ratio of the two is exp(0.3/0.2).
    chance = 1 / (1 + math.exp(-1.5))
    plus = signs.count(1)
    assert stats.binomtest(plus, draws, chance).pvalue > 1e-4
    assert 0 < plus < draws


def test_any_epsilon_can_be_asked_for():
    problem = dp.Problem(dp.Logistic(), dp.L1Ball(20.0), bounds=dp.Bounds(1.0), d=10**6)
    for epsilon in (1.0, 100.0, 1000.0):
        plan = NoisyFrankWolfe(4000).plan(problem, 20_000, dp.Budget(epsilon, 1e-6), Tight())
        assert plan.price.sampler_delta == 0.0
        assert 0.95 * epsilon < plan.price.epsilon <= epsilon


def test_public_facts_alone_choose_between_lazy_and_fresh_scores(monkeypatch):
    monkeypatch.setattr(dpcvx.mechanisms.vertex, "FEWEST_LAZY_FEATURES", 5)
    rng = np.random.default_rng(11)

    def lazy(loss=None, d=5, domain=None, relation="replace", storage="csr", density=0.5, outputs=1, n=9):
        problem = dp.Problem(
            loss or dp.Logistic(), domain or dp.L1Ball(1.0), bounds=dp.Bounds(1.0), d=d, outputs=outputs
        )
        X = rng.random((n, d)) * (rng.random((n, d)) < density)
        data = stored(X, np.ones((n, outputs)) if outputs > 1 else np.ones(n), problem.bounds, storage)
        mechanism = NoisyVertex(problem, 9, 0.1, 20, Neighbours(relation))
        assert data.n <= mechanism.capacity
        return isinstance(mechanism.start(data)[1], LazyScores)

    assert lazy()
    assert lazy(relation="add_remove")
    assert lazy(relation="add_remove", n=8)
    assert lazy(density=0.0)
    assert lazy(density=1.0)
    assert not lazy(storage="dense")
    assert not lazy(d=4)
    assert not lazy(domain=dp.Simplex(1.0))
    assert not lazy(loss=dp.Quantile(0.5))
    assert not lazy(outputs=2)


def test_under_add_remove_lazy_sums_have_room_for_every_source_that_is_let_in():
    problem = dp.Problem(dp.Squared(), dp.L1Ball(100.0), bounds=dp.Bounds(1.0), d=5)
    mechanism = NoisyVertex(problem, 1000, 0.1, 20, Neighbours("add_remove"))
    assert mechanism._terms.most * 2 < 2**62
    assert mechanism.capacity == mechanism._records


def test_layouts_and_corrections_of_the_start_change_nothing():
    rng = np.random.default_rng(12)
    X = csr_array(rng.uniform(-1, 1, (50, 20)) * (rng.random((50, 20)) < 0.3))
    y = np.where(rng.random(50) < 0.5, 1.0, -1.0)
    problem = dp.Problem(dp.Logistic(), dp.L1Ball(5.0), bounds=dp.Bounds(1.0), d=20)
    plan = NoisyFrankWolfe(60).plan(problem, 50, dp.Budget(30.0, 1e-6), Tight())
    sources = [source(X, y, bounds=problem.bounds, layout=layout) for layout in ("rows", "columns")]
    one, other = (dp.execute(plan, data, rng=SeededGenerator(1)).theta for data in sources)
    assert np.array_equal(one, other)
    assert abs(one).sum() == pytest.approx(5.0, rel=0.5)

    mechanism, _, scores = lazy_run(plan, sources[0], 30)
    scores.reset()
    fresh = mechanism.start(sources[0])[1]
    assert scores.scores(1.0) == fresh.scores(1.0)
    assert np.array_equal(scores._facts[:, LEVEL], fresh._facts[:, LEVEL])


def test_the_selections_of_corrective_frank_wolfe_are_lazy_too():
    rng = np.random.default_rng(13)
    X = csr_array(rng.uniform(-1, 1, (80, 15)) * (rng.random((80, 15)) < 0.4))
    y = np.sign(X @ np.r_[2.0, -2.0, np.zeros(13)] + 0.01)
    problem = dp.Problem(dp.Logistic(), dp.L1Ball(3.0), bounds=dp.Bounds(1.0), d=15)
    plan = NoisyCorrectiveFrankWolfe(20, 10).plan(problem, 80, dp.Budget(100.0, 1e-6), Tight())
    run = record(plan, source(X, y, bounds=problem.bounds), SeededGenerator(0))
    assert [question.kind for question in run.questions].count("draw") == 10


def test_what_does_not_fit_is_refused():
    problem = dp.Problem(dp.Squared(), dp.L1Ball(1.0), bounds=dp.Bounds(1.0), d=3)
    mechanism = NoisyVertex(problem, 5, 0.1, 20)
    dense = stored(np.ones((5, 3)), np.ones(5), problem.bounds, "dense")
    with pytest.raises(ValueError, match="compressed"):
        dense.follow_lazily(problem.loss, mechanism._terms)
    _, scores = mechanism.start(stored(np.ones((5, 3)), np.ones(5), problem.bounds, "csr"))
    for index in (-1, 3):
        with pytest.raises(IndexError, match=r"0\.\.2"):
            scores.add(index, 1)
    scores.scores(0.5)
    with pytest.raises(ValueError, match="scale"):
        scores.scores(0.6)
