"""Cells without a value: they have a cell of their own, and no mean or regression takes them for a value."""

import numpy as np
import pandas as pd
import pytest

import dpcvx as dp
from dpcvx.domains import Simplex
from dpcvx.errors import UnrecognisedDataWarning, WrongValue
from dpcvx.noise import SeededGenerator
from dpcvx.queries import Counts, Histogram, Universe
from dpcvx.queries.error_bars import mean_bound, released_table
from dpcvx.queries.mechanisms import NoisyHistogram
from dpcvx.queries.synthetic import synthetic_table, write_synthetic

SCHEMA = dp.Schema(
    (
        dp.Attribute("works", ("no", "yes"), "unknown"),
        dp.Attribute("town", ("a", "b", "c"), "elsewhere"),
        dp.Binned("wage", (0.0, 10.0, 20.0, 40.0), "none"),
    )
)
N = 20_000


@pytest.fixture(scope="module")
def people():
    generator = np.random.default_rng(0)
    works = generator.choice(["yes", "no", None, "?"], N, p=[0.5, 0.2, 0.2, 0.1])
    wage = np.where(works == "yes", generator.choice([5.0, 15.0, 30.0], N, p=[0.2, 0.3, 0.5]), np.nan)
    return pd.DataFrame({"works": works, "town": generator.choice(["a", "b", "x"], N), "wage": wage})


@pytest.fixture(scope="module")
def engine(people):
    given = {"method": "warm", "n_queries": 20, "rng": SeededGenerator(0), "check": 0}
    return dp.QueryEngine(SCHEMA, people, dp.Budget(2.0, 1e-9), **given)


def test_a_cell_of_its_own_has_a_label_and_no_value():
    works, town, wage = SCHEMA.attributes
    assert (works.size, works.known, works.labels[-1], works.missing_code) == (3, 2, "unknown", 2)
    assert works.scaled.tolist() == [-1.0, 1.0, 0.0]
    assert works.units.tolist() == ["no", "yes", None]
    assert (town.size, wage.size, wage.known, wage.labels[-1]) == (4, 4, 3, "none")
    assert np.isnan(wage.units[-1])
    assert wage.scaled[-1] == 0
    assert dp.Schema.from_json(SCHEMA.to_json()) == SCHEMA
    codes, found = wage.encode(np.array([-5.0, np.nan, 99.0, np.inf]))
    assert (codes.tolist(), found.tolist()) == ([0, 3, 2, 2], [True, False, True, False])


@pytest.mark.parametrize(
    "make",
    [
        lambda: dp.Attribute("a", ("x", "y"), 3),
        lambda: dp.Attribute("a", (1, 2), "1"),
        lambda: dp.Attribute("a", ("x", "y"), ""),
        lambda: dp.Binned("a", (0, 1, 2), "[0, 1)"),
        lambda: dp.Binned("a", (0, 1, 2), ""),
    ],
)
def test_a_name_that_is_taken_is_refused(make):
    with pytest.raises(WrongValue, match="a text"):
        make()


@pytest.mark.long
def test_means_are_over_those_who_have_a_value(engine, people):
    answer = engine.ask(dp.Mean("wage"))
    truth = people["wage"].mean()
    (number,) = answer.coefficients
    assert number.estimate == pytest.approx(truth, abs=0.3)  # with missing wages in the middle bin: 18
    assert number.low <= truth <= number.high
    assert answer.covered_by == "noise"
    assert "among those with a value of wage" in answer.note
    share = engine.ask(dp.Mean("works", {"town": ["a"]})).coefficients[0]
    among = people[people.works.isin(["no", "yes"]) & (people.town == "a")]
    assert share.estimate == pytest.approx(np.mean(among.works == "yes"), abs=0.02)
    assert share.low <= np.mean(among.works == "yes") <= share.high
    assert engine.ask(dp.Count({"works": ["unknown"]})).estimates[0] == pytest.approx(0.3 * N, abs=200)


def test_regressions_leave_those_without_a_target_out(people):
    compiled = dp.Regression("works", ("town",), loss="logistic").compile(SCHEMA, N)
    cells = Universe(SCHEMA).encode(people)
    weights = np.bincount(cells // 4, minlength=12) / N  # wage is the last attribute
    theta = compiled.answer(weights)
    known = weights.reshape(3, 4) * np.array([[1], [1], [0]])
    np.testing.assert_allclose(compiled.answer((known / known.sum()).ravel()), theta, atol=1e-2)
    assert compiled.names == ("intercept", "town=a", "town=b", "town=c", "town=elsewhere")
    assert (compiled.X.reshape(3, 4, -1)[2] == 0).all()
    assert compiled.error(weights, theta) <= 1e-4
    squared = dp.Regression("wage", ("works",), loss="squared").compile(SCHEMA, N)
    assert (squared.X.reshape(4, 3, -1)[3] == 0).all()


def test_synthetic_tables_have_missing_cells(engine, tmp_path):
    columns = synthetic_table(engine.histogram, 2000, SeededGenerator(1), numbers="uniform")
    assert 0.2 < np.mean([cell is None for cell in columns["works"]]) < 0.4
    assert 0.4 < np.isnan(columns["wage"]).mean() < 0.6
    write_synthetic(tmp_path / "made.csv", columns, engine.statement())
    again = Universe(SCHEMA).encode(pd.read_csv(tmp_path / "made.csv"))
    assert (again == Universe(SCHEMA).encode(columns)).all()


def test_the_declaration_of_a_table_has_cells_of_their_own(people):
    declared = dp.TableSchema(
        {
            "works": dp.LevelColumn(["no", "yes"]),
            "town": dp.LevelColumn(["a", "missing"], other="c"),
            "wage": dp.NumberColumn((0, 40), bins=4),
            "age": dp.NumberColumn((0, 99)),
            "hours": dp.NumberColumn((0, 99), bins=3, missing=0.0),
        },
        no_queries=["age"],
    )
    schema = dp.Schema.of(declared)
    assert [each.labels[-1] for each in schema.attributes] == ["missing", "(missing)", "missing", "[66, 99]"]


def test_bounds_of_means_cover_the_mean_of_those_with_a_value(people):
    """Bounds hold with 97.5 % confidence for all queries on a release at once."""
    universe, noise = Universe(SCHEMA), NoisyHistogram(Universe(SCHEMA), N, 20.0)
    counts = Counts.of(universe, people)
    query = dp.Mean("wage", {"town": ["a", "b"]}).compile(SCHEMA, N)
    truth = query.answer(counts.shares(query.attributes).ravel())
    bounds, missed = [], 0
    for seed in range(300):
        shares = noise(counts, SeededGenerator(seed))
        estimate = released_table(query, shares, universe.shape, noise.noise)
        weights = Histogram(universe, np.maximum(Simplex().project(shares), 0)).marginal(query.attributes)
        theta = query.answer(weights.ravel())
        bounds.append(mean_bound(query, estimate, weights.ravel(), theta))
        missed += abs(theta - truth)[0] > bounds[-1]
    assert missed <= 7
    assert 0 < np.median(bounds) < 0.5
    none = dp.Mean("wage", {"town": ["c"]}).compile(SCHEMA, N)  # nobody: the share may be 0
    estimate = released_table(none, shares, universe.shape, noise.noise)
    assert mean_bound(none, estimate, np.full(16, 1 / 16) * 0, np.zeros(1)) == np.inf


def test_other_and_missing_cells_have_a_cell_of_their_own_by_default():
    sex, age = dp.Attribute("sex", ("f", "m")), dp.Binned("age", (18, 40, 90))
    assert (sex.labels, age.labels) == (("f", "m", "missing"), ("[18, 40)", "[40, 90]", "missing"))
    assert sex.encode(np.array(["m", "x", None], dtype=object))[0].tolist() == [1, 2, 2]
    assert age.encode(np.array([20.0, np.nan]))[0].tolist() == [0, 2]
    assert dp.Attribute("state", ("present", "missing")).labels[-1] == "(missing)"


def test_a_schema_file_that_says_nothing_keeps_the_meaning_of_version_0_1_and_warns(tmp_path):
    file = tmp_path / "schema.toml"
    file.write_text('[attributes.sex]\nlevels = ["f", "m"]\n[attributes.age]\nedges = [18, 40, 90]\n')
    with pytest.warns(UnrecognisedDataWarning, match="cells of 'sex', 'age' count"):
        schema = dp.Schema.from_toml(file)
    assert schema.attributes == (dp.Attribute("sex", ("f", "m"), "m"), dp.Binned("age", (18, 40, 90), 29.0))
    file.write_text('[attributes.sex]\nlevels = ["f", "m"]\nother = "missing"\n')
    assert dp.Schema.from_toml(file)["sex"].size == 3
