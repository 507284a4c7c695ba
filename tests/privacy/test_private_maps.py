"""Private column maps: histograms on public bins, their range between neighbours, and maps that follow."""

import itertools
import math
import warnings

import numpy as np
import pandas
import pytest

import dpcvx
import dpcvx.noise.gaussian
from dpcvx.accounting import WEIGHT, Budget, Neighbours, gaussian_mu, spendable
from dpcvx.data.bins import COARSE, FINE, POOLED, CellsInBins, PooledCells, quantiles_of
from dpcvx.data.column_maps import IDENTITY, Clip, PrivateQuantiles, PrivateRamps, QuantileMap, Ramps
from dpcvx.data.dataset import InMemory
from dpcvx.data.target import Labels, Numbers
from dpcvx.data.units import persons
from dpcvx.errors import Incompatible
from dpcvx.estimators.private_maps import TailRule, _tail_reach, histogram_stages, pooled_stages
from dpcvx.events import Gaussian
from dpcvx.mechanisms import NoisyBinCounts, NoisyPooledCounts
from dpcvx.noise import SeededGenerator

HOSTILE = [math.nan, math.inf, -math.inf, "abc", None, 10**400, 1e308, -1e308]
CELLS = [0.0, 0.5, 1.0, 3.0, 7.9, 8.0, *HOSTILE]


@pytest.fixture
def silent(monkeypatch):
    monkeypatch.setattr(
        dpcvx.noise.gaussian, "lattice_gaussian", lambda scale, size, rng: np.zeros(size, dtype=np.int64)
    )


def dataset(rows):
    cells = np.empty((len(rows), len(rows[0])), dtype=object)
    for place in np.ndindex(cells.shape):
        cells[place] = rows[place[0]][place[1]]
    return InMemory(cells, np.zeros(len(rows)))


def question(n):
    return CellsInBins(n, (0, 1), (np.array([0.0, 1.0, 4.0]), np.array([0.0, 0.5])))


def test_bins_follow_from_bounds_alone_and_are_as_many_for_all():
    for binning, bounds in itertools.product(
        (COARSE, FINE), [(0, 1), (-200, 4e4), (5, 6), (-9, -3), (0, 1e9)]
    ):
        edges = binning.between(*map(float, bounds))
        assert len(edges) == binning.edges
        assert (np.diff(edges) >= 0).all()
        assert edges[0] == bounds[0]
        assert edges[-1] < bounds[1]


def test_a_replaced_row_moves_the_counts_by_the_sensitivity_at_most_and_some_row_does(silent):
    mechanism = NoisyBinCounts(1, 0, question(1).levels, 1.0)
    answers = {
        tuple(mechanism(question(1), dataset([row]), SeededGenerator(0)))
        for row in itertools.product(CELLS, CELLS)
    }
    assert all(sum(answer) == 2 for answer in answers)  # every cell is in one bin
    apart = max(math.dist(*pair) for pair in itertools.combinations(answers, 2))
    assert apart == pytest.approx(2.0)  # sqrt(2 columns)
    assert apart <= mechanism.sensitivity <= 2.0001
    assert mechanism.event == Gaussian(1.0)


def test_the_target_counts_like_a_column(silent):
    target = Numbers.declare((0.0, 8.0), ())
    asked = CellsInBins(1, (0,), (np.array([0.0, 1.0, 4.0]), np.array([0.0, 0.5])), target)
    mechanism = NoisyBinCounts(1, 0, asked.levels, 1.0)
    answers = set()
    for cell, y in itertools.product(CELLS, CELLS):
        rows = np.empty((1, 1), dtype=object)
        rows[0, 0] = cell
        targets = np.array([y], dtype=object)
        answers.add(tuple(mechanism(asked, InMemory(rows, targets), SeededGenerator(0))))
    widest = max(np.linalg.norm(np.subtract(*pair)) for pair in itertools.combinations(answers, 2))
    assert widest == pytest.approx(2.0)  # sqrt(2 (columns + 1))
    assert widest <= mechanism.sensitivity <= widest * (1 + 1e-5)


@pytest.mark.filterwarnings("ignore:The released standard deviation of x0")
def test_columns_are_not_bent_where_the_target_has_a_long_tail():
    rng = np.random.default_rng(0)
    tail = np.exp(2 * rng.normal(size=20_000)).clip(0, 1000)
    plain = rng.uniform(0, 100, 20_000)
    bent = []
    for y in (tail, plain):
        model = dpcvx.PrivateLinearRegression(
            epsilon=1.0, bounds=(0, 1000), y_bounds=(0, 1000), random_state=0
        )
        if y is plain:
            model.set_params(y_bounds=(0, 100))
        model.fit(tail[:, None], y)
        bent.append(model.privacy_statement_.bounds)
    assert [each["maps"]["x0"].startswith("clip(") for each in bent] == [True, False]


def test_columns_with_the_tail_of_a_target_within_tight_bounds_are_only_clipped_far_out():
    """A price grows with weight and not with its rank; the tail of its negative is on the other side."""
    rng = np.random.default_rng(0)
    weight = np.exp(0.8 * rng.normal(size=20_000)).clip(0, 12)
    price = 1000 * weight**1.5 + 500 * rng.uniform(size=len(weight))
    for y, bounds, clipped in ((price, (0, 15_000), True), (-price, (-15_000, 0), False)):
        model = dpcvx.PrivateLinearRegression(epsilon=4.0, bounds=(0, 100), y_bounds=bounds, random_state=0)
        model.fit(weight[:, None], y.clip(*bounds))
        rule = model.privacy_statement_.bounds["maps"]["x0"]
        assert rule.startswith("clip(") == clipped
        if clipped:  # three normal scores on its longer side would be about 6
            assert 30 < float(rule.strip(")").split(", ")[2]) <= 60


@pytest.mark.parametrize(("n", "scores"), [(100, 6), (2000, 6), (4000, 12), (10**6, 16)])
def test_the_more_records_there_are_the_further_out_tails_are_clipped(n, scores):
    assert _tail_reach(NoisyBinCounts(n, 0, (66,), 10.0)) == pytest.approx(scores)


def test_a_replaced_person_moves_the_counts_by_the_sensitivity_at_most(silent):
    """Ids 1 and 2; the rows of person 2 are replaced by any number of others."""
    person = Neighbours("replace", "person", weight=WEIGHT)
    mechanism = NoisyBinCounts(2, 0, question(2).levels, 1.0, person)
    others = [[(0.5, 0.5)], [(8.0, 8.0)], [(math.nan, "abc")], [(0.5, 0.5), (8.0, 8.0), (3.0, 0.0)]]
    others += [[(8.0, 0.2)] * 7, [(0.5, 0.5), (0.5, 8.0)]]
    answers = []
    for rows in others:
        data = dataset([(1.0, 1.0), *rows])
        data.weigh_by(persons(np.array([1] + [2] * len(rows)), declared=2))
        answers.append(mechanism(question(2), data, SeededGenerator(0)))
    apart = max(math.dist(*pair) for pair in itertools.combinations(answers, 2))
    assert apart <= mechanism.sensitivity
    assert apart > 0.99 * 2
    assert answers[0].sum() == pytest.approx(4)


def test_survey_weights_and_other_relations():
    weighted = Neighbours(weight=WEIGHT)
    data = dataset([(0.5, 0.5), (3.0, 0.0)])
    from dpcvx.data.units import survey_weights

    data.weigh_by(survey_weights(np.array([2.0, 1.0]), (0, 4)))
    exact = data.count(question(2)) / WEIGHT
    assert exact[:5].tolist() == [0, 0.5, 0.25, 0, 1.25]
    NoisyBinCounts(2, 0, (5, 4), 1.0, weighted)
    for wrong in (Neighbours("add_remove"), Neighbours("replace", "person", 3, WEIGHT)):
        with pytest.raises(Incompatible, match="one row of each person"):
            NoisyBinCounts(2, 0, (5, 4), 1.0, wrong)


def pooled_question(n):
    edges = np.array([0.0, 1.0, 4.0]), np.array([0.0, 0.5, 2.0])
    return PooledCells(n, (0, 1), edges)


def test_a_replaced_row_moves_pooled_counts_by_the_sensitivity_at_most_and_some_row_does(silent):
    mechanism = NoisyPooledCounts(1, 0, (5,), 1.0, cells=2)
    answers = {
        tuple(mechanism(pooled_question(1), dataset([row]), SeededGenerator(0)))
        for row in itertools.product(CELLS, CELLS)
    }
    assert all(sum(answer) == 2 for answer in answers)  # every cell is in one bin
    apart = max(math.dist(*pair) for pair in itertools.combinations(answers, 2))
    assert apart == pytest.approx(2.828427, rel=1e-6)  # sqrt(2) for each of two columns
    assert apart <= mechanism.sensitivity <= 2.82843
    assert mechanism.event == Gaussian(1.0)


def test_sensitivities_and_noise_of_pooled_counts_have_these_values():
    assert NoisyPooledCounts(10, 0, (5,), 1.0, cells=3).sensitivity == pytest.approx(4.242641, rel=1e-6)
    thousand = NoisyPooledCounts(10_000, 0, (66,), 50.0, cells=1000)
    assert thousand.sensitivity == pytest.approx(1414.214, rel=1e-6)
    # The noise on a share of all cells does not depend on the number of columns.
    one = NoisyPooledCounts(10_000, 0, (66,), 50.0, cells=1)
    assert thousand.noise / 1000 == pytest.approx(one.noise, rel=1e-6) == pytest.approx(70.71068, rel=1e-6)


def test_a_replaced_person_moves_pooled_counts_by_the_sensitivity_at_most(silent):
    person = Neighbours("replace", "person", weight=WEIGHT)
    mechanism = NoisyPooledCounts(2, 0, (5,), 1.0, person, cells=2)
    others = [[(0.5, 0.2)], [(8.0, 8.0)], [(math.nan, "abc")], [(0.5, 0.5), (8.0, 8.0), (3.0, 0.0)]]
    others += [[(8.0, 0.2)] * 7, [(0.5, 0.5), (0.5, 8.0)], [(math.nan, 0.2)] * 3]
    answers = []
    for rows in others:
        data = dataset([(1.0, 1.0), *rows])
        data.weigh_by(persons(np.array([1] + [2] * len(rows)), declared=2))
        answers.append(mechanism(pooled_question(2), data, SeededGenerator(0)))
    apart = max(math.dist(*pair) for pair in itertools.combinations(answers, 2))
    assert 0.99 * math.sqrt(8) < apart <= mechanism.sensitivity
    assert answers[0].sum() == pytest.approx(4)


def test_pooled_counts_are_of_as_many_columns_as_planned():
    mechanism = NoisyPooledCounts(1, 0, (5,), 1.0, cells=1)
    for wrong in (pooled_question(1), CellsInBins(1, (0,), (np.array([0.0, 1.0, 4.0]),))):
        with pytest.raises(Incompatible, match="not those that were planned"):
            mechanism(wrong, dataset([(0.0, 0.0)]), SeededGenerator(0))


def test_pooled_counts_are_asked_of_many_columns_and_records_for_two_per_cent():
    rule, budget = {j: TailRule() for j in range(60)}, Budget(1.0, 1e-8)
    data = dataset([(0.0,) * 60])
    (stage,) = pooled_stages(10_000, rule, data, budget)
    paid = spendable(budget)
    mu = gaussian_mu(paid.epsilon, paid.delta)
    assert stage.mechanism.noise_multiplier == pytest.approx(1 / (mu * math.sqrt(0.02)))
    assert (stage.n_calls, stage.mechanism.cells) == (1, 60)
    assert pooled_stages(1000, rule, data, budget) == ()
    assert pooled_stages(10_000, dict(list(rule.items())[:49]), data, budget) == ()
    assert pooled_stages(10_000, rule, data, Budget(1.0, 1e-8, "add_remove")) == ()


def test_a_lasso_clips_all_columns_to_one_range_of_their_cells():
    rng = np.random.default_rng(0)
    n, d = 4000, 60
    high = np.geomspace(2, 1000, d)  # columns have units of their own, and fill a tenth of their bounds
    X = high * (0.3 + 0.05 * rng.standard_normal((n, d)))
    y = X[:, 3] / high[3] + 0.02 * rng.standard_normal(n)
    model = dpcvx.PrivateLasso(epsilon=4, bounds=(0 * high, high), y_bounds=(0, 1), random_state=0)
    model.fit(X, y)
    assert "NoisyPooledCounts" in str(model.plan_)
    assert "NoisyPooledCounts" in str(model.privacy_statement_)
    ends = np.array([[each.low, each.high] for each in model._row_map.maps]) / high[:, None]
    np.testing.assert_allclose(ends - ends[0], 0, atol=1e-12)
    np.testing.assert_allclose(ends[0], [0.218, 0.382], atol=0.03)
    assert np.mean((model.predict(X) - y) ** 2) < 0.3 * np.var(y)


def test_pooled_edges_are_fine_near_the_middle_and_the_ends():
    assert (np.diff(POOLED) >= 0).all()
    assert POOLED[0] == -1
    assert POOLED[-1] < 1
    for point in (-1.0, 0.0, 1.0):
        assert 0 < np.abs(POOLED[point != POOLED] - point).min() <= 2.0**-12


def test_quantiles_of_exact_counts_are_those_of_the_column():
    rng = np.random.default_rng(0)
    cells = np.exp(rng.normal(size=20_000))
    edges = FINE.between(0.0, 100.0)
    counts = CellsInBins(20_000, (0,), (edges,)).of(dataset(cells[:, None]).table, None)
    found = quantiles_of(counts.astype(float), edges, 100.0, (0.05, 0.5, 0.95))
    assert found == pytest.approx(np.quantile(cells, [0.05, 0.5, 0.95]), rel=0.2)
    for odd in (np.zeros(FINE.edges + 2), -np.ones(FINE.edges + 2), np.eye(FINE.edges + 2)[-1]):
        assert (np.diff(quantiles_of(odd, edges, 100.0, (0.1, 0.5, 0.9))) >= 0).all()


@pytest.mark.parametrize(
    ("quantiles", "expected"),
    [
        ([-1.6, -0.7, 0.0, 0.7, 1.6], IDENTITY),  # a normal column, whose bounds fit
        ([0.01, 0.02, 0.03, 0.04, 0.05], Clip),  # bounds that are far too wide
        ([-0.8, -0.1, 0.0, 0.1, 0.8], QuantileMap),  # long tails
        ([0.0, 0.0, 0.0, 0.0, 0.5], QuantileMap),
        ([0.0] * 5, IDENTITY),  # nothing is known of a column that is constant but for a few
    ],
)
def test_the_rule_for_tails(quantiles, expected):
    found = TailRule().released(np.array(quantiles), -4.0, 4.0)
    assert found == expected if expected is IDENTITY else isinstance(found, expected)
    ends = found(np.array([-4.0, 4.0]))
    assert np.isfinite(ends).all()


BUDGET = Budget(1.0, 1e-7)
LABELS = Labels.declare((0, 1))


def test_the_stage_costs_its_share_and_is_left_out_where_it_would_be_noise():
    data = dataset([[0.0]])
    rule = {j: TailRule() for j in range(5)}
    (stage,) = histogram_stages(5000, rule, data, BUDGET, LABELS)
    paid = spendable(BUDGET)
    share = stage.mechanism.noise_multiplier**-2 / gaussian_mu(paid.epsilon, paid.delta) ** 2
    assert share == pytest.approx(0.05)
    assert histogram_stages(300, rule, data, BUDGET, LABELS) == ()
    assert histogram_stages(5000, rule, data, Budget(1.0, 0.0), LABELS) == ()
    assert histogram_stages(5000, {}, data, BUDGET, LABELS) == ()
    with pytest.raises(Incompatible, match=r"standard deviation.*of 300 records"):
        histogram_stages(300, rule | {0: PrivateRamps()}, data, BUDGET, LABELS)
    with pytest.raises(Incompatible, match="raw records"):
        histogram_stages(5000, {0: PrivateRamps()}, object(), BUDGET, LABELS)


def records(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n, 2))
    return np.exp(2 * scores), scores @ [1.0, -1.0] + 0.3 * rng.normal(size=n)


GIVEN = {"epsilon": 4.0, "bounds": (0, 1000), "y_bounds": (-5, 5), "random_state": 0, "check": 0}


def test_a_rule_finds_tails_and_predictions_carry_the_map(tmp_path):
    X, y = records()
    model = dpcvx.PrivateLinearRegression(**GIVEN, maps="auto").fit(X, y)
    assert list(model.coef_names_) == ["x0[quantiles]", "x1[quantiles]"]
    assert 1 - ((model.predict(X) - y) ** 2).mean() / y.var() > 0.8
    assert "NoisyBinCounts" in str(model.plan_)
    assert "NoisyBinCounts" in str(model.privacy_statement_)
    rows = np.array([[math.nan, 1e300], [-3.0, math.inf], [0.5, 5.0]])
    assert np.array_equal(model.to_sklearn().predict(rows), model.predict(rows))
    model.save(tmp_path / "model.json")
    assert np.array_equal(dpcvx.load(tmp_path / "model.json").predict(rows), model.predict(rows))


def test_requested_maps_have_released_knots():
    X, y = records()
    model = dpcvx.PrivateLinearRegression(**GIVEN, maps={0: PrivateRamps(3), 1: PrivateQuantiles(4)}).fit(
        X, y
    )
    ramps, ranks = model._row_map.maps
    assert isinstance(ramps, Ramps)
    assert len(ramps.knots) == 4
    assert isinstance(ranks, QuantileMap)
    assert 0.05 < np.searchsorted(np.sort(X[:, 0]), ramps.knots[1]) / len(X) < 0.6
    assert len(model.coef_) == 4
    planned = dpcvx.PrivateLinearRegression(**GIVEN, maps=PrivateRamps(3)).plan(3000, 2)
    assert planned.problem.d == 6


@pytest.mark.filterwarnings("ignore:Perhaps no cell of")  # none is; noise decides which are named
@pytest.mark.filterwarnings("ignore:The released")  # zeros hardly vary; 1e308 is at the upper bound
def test_the_plan_is_the_same_for_any_records_and_wrong_cells_raise_nothing():
    X, y = records()
    kind = dpcvx.PrivateLinearRegression
    model = kind(**GIVEN, maps="auto").fit(X, y)
    for other in (np.full_like(X, math.nan), np.zeros_like(X), np.full_like(X, 1e308)):
        again = kind(**GIVEN, maps="auto").fit(other, y)
        assert again.plan_.event == model.plan_.event
        assert again.plan_.before == model.plan_.before
        assert np.isfinite(again.coef_).all()


def test_private_bounds_come_before_private_maps():
    X, y = records(6000)
    model = dpcvx.PrivateLinearRegression(**{**GIVEN, "bounds": "private"}, maps=PrivateQuantiles()).fit(X, y)
    questions = [part["question"] for part in model.privacy_statement_.mechanisms]
    assert questions[:3] == ["NoisyQuantile", "NoisyQuantile", "NoisyBinCounts"]


def test_persons_have_private_maps():
    X, y = records()
    ids = np.arange(3000) // 2
    model = dpcvx.PrivateLinearRegression(**GIVEN, maps="auto").fit(X, y, groups=ids)
    assert list(model.coef_names_) == ["x0[quantiles]", "x1[quantiles]"]


def test_columns_that_vary_less_than_the_noise_are_said_to():
    X, y = records()
    settings = {**GIVEN, "epsilon": 1.0, "bounds": (-1e6, 1e6)}
    with pytest.warns(dpcvx.UselessModelWarning, match="standard deviations of all columns"):
        dpcvx.PrivateLinearRegression(**settings, maps=None).fit(X, y)
    found = dpcvx.PrivateLinearRegression(**settings).fit(X, y)
    assert 1 - ((found.predict(X) - y) ** 2).mean() / y.var() > 0.5


def test_hidden_numbers_beside_levels_are_said_of_classifiers_alone():
    """Regressions with levels were useful in most cases: levels are not hidden."""
    rng = np.random.default_rng(0)
    n = 3000
    table = {"x": rng.uniform(-1, 1, n), "g": rng.choice(["a", "b", "c"], n)}
    y = (table["g"] == "a") + 0.1 * rng.normal(size=n)
    declared = {
        "epsilon": 1.0,
        "bounds": {"x": (-1e6, 1e6)},
        "categories": {"g": ["a", "b", "c"]},
        "maps": None,
    }
    frame = pandas.DataFrame(table)
    with warnings.catch_warnings():
        warnings.simplefilter("error", dpcvx.UselessModelWarning)
        dpcvx.PrivateLinearRegression(**declared, y_bounds=(-1, 2), random_state=0).fit(frame, y)
    with pytest.warns(dpcvx.UselessModelWarning, match="standard deviations of all columns"):
        dpcvx.PrivateLogisticRegression(**declared, classes=(0, 1), random_state=0).fit(frame, (y > 0.5) * 1)


@pytest.mark.long
def test_a_replayed_fit_on_mapped_columns_differs_by_the_sensitivity_alone():
    """The maps are the mechanism's own answers: with them fixed, neighbours differ in one stored row."""
    from dpcvx.audit import discrepancies, record, replay
    from dpcvx.data import Quantiser
    from dpcvx.estimators import declare_fit
    from dpcvx.estimators.private_maps import release_maps
    from dpcvx.plans import Answers

    X, y = records(400)
    model = dpcvx.PrivateLinearRegression(**GIVEN, maps={0: PrivateRamps(3), 1: PrivateQuantiles(4)})
    declared = declare_fit(model, InMemory(X, y), len(X))
    maps = release_maps(
        declared.plan.before,
        declared.maps,
        InMemory(X, y),
        declared.plain,
        declared.target,
        Answers(SeededGenerator(1)),
    )
    from dpcvx.data.columns import Columns

    columns = Columns.declare(InMemory(X, y).table, (0, 1000), None, None, None, maps)
    stored = 0.0 if declared.plan.solver.standardises else declared.intercept
    quantiser = Quantiser(declared.plan.problem.bounds, columns.center, columns.scale, stored)

    def source(rows, targets):
        return InMemory(rows, targets).source(columns, quantiser, declared.target, declared.plan.layout)

    first = record(declared.plan, source(X, y), SeededGenerator(2))
    for row, target in (([math.nan, 1e308], 5.0), ([1000.0, 0.0], -5.0), ([0.0, 1000.0], math.nan)):
        other, targets = X.copy(), y.copy()
        other[7], targets[7] = row, target
        again = replay(declared.plan, source(other, targets), SeededGenerator(2), first)
        assert discrepancies(declared.plan, first, again) == []
