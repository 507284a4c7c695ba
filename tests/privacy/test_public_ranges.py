"""Ranges of numbers from public rows: of the records, only a noisy count decides whether they are used."""

import itertools
import json
import math

import numpy as np
import pandas as pd
import pytest

import dpcvx
from dpcvx.accounting import WEIGHT, Neighbours, gaussian_mu
from dpcvx.data.columns import Columns
from dpcvx.data.dataset import InMemory
from dpcvx.data.public_rows import NearRows, column_ranges, narrowed_columns
from dpcvx.data.quantise import Quantiser
from dpcvx.data.table import Table
from dpcvx.data.units import persons, survey_weights
from dpcvx.events import Gaussian
from dpcvx.mechanisms import NoisyRowCount
from dpcvx.noise import SeededGenerator

HOSTILE = [math.nan, math.inf, -math.inf, "abc", None, 10**400, 1e308, -1e308]
CELLS = [0.0, 2.0, 2.5, 10.0, *HOSTILE]
D = 12
GIVEN = {"epsilon": 0.3, "delta": 1e-6, "bounds": (0, 1000), "y_bounds": (-20, 20), "random_state": 0}


def columns_of(d=2):
    return Columns.declare(Table(np.zeros((1, d))), (0.0, 10.0), None, None)


def near(d=2):
    return NearRows(columns_of(d), np.full(d, -1.0), np.full(d, 2.0))


def dataset(rows):
    cells = np.empty((len(rows), len(rows[0])), dtype=object)
    for place in np.ndindex(cells.shape):
        cells[place] = rows[place[0]][place[1]]
    return InMemory(cells, np.zeros(len(rows)))


def records(n=1000, seed=0):
    """Numbers between 0 and 20 or so, in bounds that are fifty times as wide."""
    rng = np.random.default_rng(seed)
    X = rng.normal(10, 3, (n, D))
    return X, (X[:, :3] - 10) @ np.array([1.0, -1.0, 0.5]) + rng.normal(size=n)


def model(**given):
    return dpcvx.PrivateLinearRegression(**GIVEN | given)


def said_of(fitted):
    return fitted.privacy_statement_.bounds["public_rows"]


@pytest.fixture(scope="module")
def fitted():
    return model(public=records(100, 1)[0]).fit(*records())


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_a_row_moves_the_count_by_its_sensitivity_at_most_and_some_row_does(relation):
    counts = {
        int(dataset([row]).count(near())[0]): row for row in itertools.product(CELLS, CELLS)
    }  # of one record; under add/remove of none
    assert set(counts) == {0, 1}
    mechanism = NoisyRowCount(6, 1, (), 2.0, Neighbours(relation))
    assert 1 <= mechanism.sensitivity <= 1 + 1e-5
    assert mechanism.noise == pytest.approx(2.0, rel=1e-5)  # test vector
    assert mechanism.event == Gaussian(2.0)
    together = dataset([*itertools.product(CELLS, CELLS)]).count(near())
    alone = sum(dataset([row]).count(near())[0] for row in itertools.product(CELLS, CELLS))
    assert together == alone  # a row is judged alone


def test_a_person_moves_the_count_by_the_sensitivity_at_most():
    """Ids 1 and 2; the rows of person 2 are replaced by any number of others."""
    mechanism = NoisyRowCount(2, 1, (), 1.0, Neighbours("replace", "person", weight=WEIGHT))
    others = [[(0.0, 0.0)], [(10.0, 10.0)], [(0.0, 0.0), (10.0, 0.0), (2.0, 2.0)], [(0.0, 1.0)] * 7]
    answers = []
    for rows in others:
        data = dataset([(0.0, 0.0), *rows])
        data.weigh_by(persons(np.array([1] + [2] * len(rows)), declared=2))
        answers.append(data.count(near()) / WEIGHT)
    apart = max(math.dist(*pair) for pair in itertools.combinations(answers, 2))
    assert 0.99 < apart <= mechanism.sensitivity
    assert answers[2][0] == pytest.approx(1 + 2 / 3, abs=1e-3)


def test_survey_weights_count():
    data = dataset([(0.0, 0.0), (0.0, 10.0)])
    data.weigh_by(survey_weights(np.array([2.0, 1.0]), (0, 4)))
    assert (data.count(near()) / WEIGHT).tolist() == [0.5, 0.75]


@pytest.mark.parametrize("size", [0.0, 1e-12, 1.0, 1e300])
def test_stored_rows_keep_their_bounds_whatever_the_public_rows(size):
    """Sensitivity is that of cells between -1 and 1."""
    rng = np.random.default_rng(0)
    columns = columns_of(3)
    mean, deviation, farthest = column_ranges(Table(size * rng.normal(size=(50, 3))), columns)
    narrowed = narrowed_columns(columns, mean, 2 * deviation)
    assert (narrowed.low >= columns.low).all()
    assert (narrowed.high <= columns.high).all()
    assert np.isfinite([mean, deviation, farthest]).all()
    hostile = dataset([*itertools.product(CELLS, CELLS, CELLS)]).table
    stored = narrowed.rows(hostile, Quantiser(dpcvx.Bounds(1.0), narrowed.center, narrowed.scale))
    assert abs(stored.values.astype(int)).max() <= 2**14
    assert np.isfinite(narrowed.fill).all()


def test_the_plan_pays_for_the_count_and_is_the_same_for_all_public_rows_and_records(fitted):
    (count,) = (
        stage.mechanism for stage in fitted.plan_.before if isinstance(stage.mechanism, NoisyRowCount)
    )
    n, mu = 1000, gaussian_mu(0.3, 1e-6)
    # 5 % of mu^2, or less if noise of a tenth of the records costs less
    assert count.noise_multiplier == pytest.approx(max(0.1 * n, 1 / (math.sqrt(0.05) * mu)), rel=1e-2)
    assert fitted.plan_.price.epsilon <= 0.3
    other = model(public=records(20, 3)[0] / 100).fit(records()[0] + 900, -records()[1])
    assert repr(other.plan_.stages) == repr(fitted.plan_.stages)
    assert other.plan_.price == fitted.plan_.price


def test_the_statement_names_the_ranges_in_force_and_the_declared_ones(fitted):
    stated = fitted.privacy_statement_.bounds
    assert stated["public_rows"].startswith(
        "100 public rows were given, which nothing here protects; numbers"
    )
    assert "NoisyRowCount" in {part["question"] for part in fitted.privacy_statement_.mechanisms}
    assert "those of numbers are narrowed by public rows" in stated["bounds_are"]
    assert stated["declared_bounds"] == {"low": [0.0] * D, "high": [1000.0] * D}
    assert max(stated["bounds"]["high"]) < 30
    assert "counts as the mean of the public rows" in stated["enforced"]


@pytest.mark.parametrize("weights", ["largest", "uneven"])
def test_survey_weights_do_not_make_public_rows_misleading(weights):
    """Near rows are counted over the released sum of weights, which is below the number of records."""
    X, y = records(2000)
    rng, public = np.random.default_rng(5), records(100, 1)[0]
    given = np.full(2000, 3.0) if weights == "largest" else rng.uniform(0.5, 3, 2000)
    near, far = (
        model(public=rows, weight_bounds=(0, 3), epsilon=0.2).fit(X, y, sample_weight=given)
        for rows in (public, public + 500)
    )
    assert "numbers that vary among them are clipped" in said_of(near)
    assert "unlike the private rows" in said_of(far)


def test_a_small_sum_of_weights_hides_the_share_and_is_named():
    X, y = records()
    fit = model(public=records(100, 1)[0], weight_bounds=(0, 300)).fit(X, y, sample_weight=np.full(1000, 3.0))
    assert "noise hides how many of the private rows are like them" in said_of(fit)
    assert fit.privacy_statement_.bounds["bounds"]["high"] == [1000.0] * D


@pytest.mark.parametrize(
    "rows", [np.full((50, D), 10.0), np.full((50, D), np.nan)], ids=["constant", "missing"]
)
def test_nothing_is_paid_for_public_rows_that_do_not_vary(rows):
    with pytest.warns(UserWarning, match="Public rows are not used"):
        fit = model(public=rows).fit(*records())
    assert said_of(fit) == "public rows are not used: no number varies among them"
    assert not any(isinstance(stage.mechanism, NoisyRowCount) for stage in fit.plan_.before)


def test_a_missing_number_that_is_the_middle_of_the_bounds_counts_as_declared():
    X, y = records()
    names = [f"x{j}" for j in range(D)]
    table, public = (pd.DataFrame(rows, columns=names) for rows in (X, records(100, 1)[0]))
    given = {key: value for key, value in GIVEN.items() if key != "bounds"}
    for value in (500.0, 501.0):
        schema = dpcvx.TableSchema({name: dpcvx.NumberColumn((0, 1000), missing=value) for name in names})
        fit = dpcvx.PrivateLinearRegression(schema=schema, public=public, **given).fit(table, y)
        assert "numbers that vary" in said_of(fit)
        absent, present = table[:1].copy(), table[:1].copy()
        absent["x0"], present["x0"] = np.nan, value  # is clipped to the end of the range
        np.testing.assert_array_equal(fit.predict(absent), fit.predict(present))


def test_predictions_clip_as_the_fit_does_and_so_does_the_model_file(fitted, tmp_path):
    low, high = (np.array(fitted.privacy_statement_.bounds["bounds"][end]) for end in ("low", "high"))
    far = np.vstack([np.full(D, 1e6), np.full(D, -1e6), np.full(D, math.nan)])
    middle = records(100, 1)[0].clip(0, 1000).mean(axis=0)
    expected = np.vstack([high, low, middle]) @ fitted.coef_ + fitted.intercept_
    np.testing.assert_allclose(fitted.predict(far), expected, rtol=1e-9)
    fitted.save(tmp_path / "model.json")
    back = dpcvx.load(tmp_path / "model.json")
    X = np.vstack([far, records(50, 2)[0]])
    np.testing.assert_array_equal(back.predict(X), fitted.predict(X))
    assert back.public is None  # the file holds no rows
    assert (
        "declared_bounds" in json.loads((tmp_path / "model.json").read_text())["privacy_statement"]["bounds"]
    )


def r_squared(public, seeds=6, **given):
    X, y = records(2000, 9)
    found = []
    for seed in range(seeds):
        predicted = model(public=public, random_state=seed, **given).fit(*records(seed=seed)).predict(X)
        found.append(1 - ((predicted - y) ** 2).mean() / y.var())
    return float(np.mean(found))


@pytest.mark.long
def test_ranges_help_and_misleading_rows_cost_little():
    honest = records(100, 1)[0]
    without, far = r_squared(None), honest + 500
    one = honest.copy()
    one[:, 0] = 10 + 0.05 * (one[:, 0] - 10)
    assert r_squared(honest) > without + 0.1
    assert r_squared(records(100, 1)) > without + 0.1  # with targets
    for misleading in (far, 0.05 * honest, 10 + 0.05 * (honest - 10), one):
        assert r_squared(misleading) > without - 0.03


@pytest.mark.parametrize("kind", ["far", "squeezed", "one column"])
def test_rows_that_mislead_are_named_and_the_declared_bounds_stay(kind):
    public = records(100, 1)[0]
    if kind == "far":
        public += 500
    elif kind == "squeezed":
        public *= 0.05
    else:
        public[:, 3] = 10 + 0.01 * (public[:, 3] - 10)
    found = model(public=public).fit(*records())
    assert "not used" in said_of(found)
    assert "bounds_are" not in found.privacy_statement_.bounds
    assert found.privacy_statement_.bounds["bounds"]["high"] == [1000.0] * D


def test_persons_have_ranges_too():
    ids = np.arange(1000) // 2
    found = model(public=records(100, 1)[0], epsilon=0.6).fit(*records(), groups=ids)
    assert "near them" in said_of(found)
    assert found.privacy_statement_.public["persons"] == 500


@pytest.mark.parametrize(
    "given",
    [
        {"maps": {0: dpcvx.PrivateQuantiles(3)}},
        {"standardize": False},
        {"y_bounds": "private", "epsilon": 0.5},
    ],
    ids=str,
)
def test_fits_without_ranges_say_that_public_rows_are_not_used(given):
    with pytest.warns(UserWarning, match="Public rows are not used"):
        found = model(public=records(100, 1)[0], **{"standardize": "auto"} | given).fit(*records())
    assert "are clipped" not in said_of(found)


def test_shards_say_that_their_cells_cannot_be_changed(tmp_path):
    declared = {name: GIVEN[name] for name in ("bounds", "y_bounds")}
    shards = dpcvx.from_batches([records()], store=tmp_path, verbose=0, **declared)
    given = {name: value for name, value in GIVEN.items() if name not in declared}
    with pytest.warns(UserWarning, match="Public rows are not used: these records are stored quantised"):
        found = dpcvx.PrivateLinearRegression(**given, public=records(100, 1)[0]).fit(shards)
    assert "not used" in said_of(found)


def test_additive_models_are_straight_lines_within_the_ranges():
    found = dpcvx.PrivateAdditiveRegressor(**GIVEN, public=records(100, 1)[0]).fit(*records())
    assert not found.plan_.solver.standardises
    assert "near them" in said_of(found)
    low, high = (np.array(found.privacy_statement_.bounds["bounds"][end]) for end in ("low", "high"))
    far = found.predict(np.vstack([np.full(D, -1e6), np.full(D, 1e6)]))
    np.testing.assert_allclose(far, found.predict(np.vstack([low, high])), rtol=1e-9)


def test_the_command_line_narrows_ranges(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from dpcvx.cli import app

    monkeypatch.chdir(tmp_path)
    names = [f"x{j}" for j in range(D)]
    for name, (X, y) in (("private", records()), ("open", records(100, 1))):
        text = ",".join([*names, "y"])
        np.savetxt(f"{name}.csv", np.column_stack([X, y]), delimiter=",", header=text, comments="")
    lines = ["[bounds]", *(f"{name} = [0, 1000]" for name in names), "[target]", 'column = "y"']
    (tmp_path / "b.toml").write_text("\n".join([*lines, "bounds = [-20, 20]"]))
    given = "fit private.csv --bounds b.toml --model linear --epsilon 0.3 --delta 1e-6 --seed 0 --quiet"
    done = CliRunner().invoke(app, f"{given} --public open.csv --out m.json".split())
    assert done.exit_code == 0, done.output
    assert "numbers that vary" in said_of(dpcvx.load("m.json"))


def test_a_replayed_fit_differs_by_the_sensitivity_alone(fitted):
    """With the released count fixed, neighbours differ in one stored row."""
    from dpcvx.audit import discrepancies, record, replay
    from dpcvx.estimators import declare_fit
    from dpcvx.estimators.public_rows import release_columns
    from dpcvx.plans import Answers

    X, y = records()
    data = InMemory(X, y)
    declared = declare_fit(model(public=records(100, 1)[0]), data, len(X))
    plan = declared.plan
    public, columns = release_columns(
        plan.before, declared.public, data, declared.columns, Answers(SeededGenerator(1))
    )
    assert public.narrows
    quantiser = Quantiser(plan.problem.bounds, columns.center, columns.scale, declared.intercept)

    def source(rows, targets):
        return InMemory(rows, targets).source(columns, quantiser, declared.target, plan.layout)

    first = record(plan, source(X, y), SeededGenerator(2))
    for row, target in ((np.full(D, math.nan), 20.0), (np.full(D, 1e308), -20.0), (-X[7], math.nan)):
        other, targets = X.copy(), y.copy()
        other[7], targets[7] = row, target
        again = replay(plan, source(other, targets), SeededGenerator(2), first)
        assert discrepancies(plan, first, again) == []


@pytest.mark.parametrize(
    "name", ["PrivateLasso", "PrivateElasticNet", "PrivateHuberRegressor", "PrivateQuantileRegressor"]
)
def test_other_regressions_use_ranges(name):
    found = getattr(dpcvx, name)(**GIVEN, public=records(100, 1)[0])
    found = found.fit(*records())
    assert "near them" in said_of(found)
