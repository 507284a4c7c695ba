"""Labels of columns, units and names of codes: declared in public, shown beside codes, part of no payment."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import dpcvx
from dpcvx.errors import WrongValue
from dpcvx.noise import SeededGenerator
from dpcvx.queries import (
    Answer,
    Attribute,
    Binned,
    Count,
    Marginal,
    Mean,
    QueryEngine,
    Regression,
    Schema,
    write_synthetic,
)
from dpcvx.queries.engine_plan import engine_facts
from dpcvx.queries.legend import with_words
from dpcvx.queries.synthetic import _rounded
from dpcvx.queries.universe import Universe

TOML = """
[columns.ideo]
kind = "levels"
levels = [1, 2, 3]
label = "Political ideology"
value_labels = {1 = "Liberal", 3 = "Conservative"}
[columns.famincr]
kind = "number"
bounds = [0.5, 4.5]
bins = [0.5, 1.5, 2.5, 4.5]
label = "Family income"
unit = "USD"
[columns.famincr.value_labels]
1 = "below 10,000"
3 = "20,000 to 30,000"
4 = "above 30,000"
[columns.votes]
kind = "boolean"
value_labels = {1 = "votes", 0 = "does not"}
[columns.born]
kind = "date"
bounds = ["1990-01-01", "1991-12-31"]
parts = ["year"]
label = "Born"
"""


@pytest.fixture(scope="module")
def declared(tmp_path_factory):
    path: Path = tmp_path_factory.mktemp("labels") / "schema.toml"
    path.write_text(TOML)
    return dpcvx.TableSchema.from_toml(path)


def test_a_schema_file_names_columns_and_codes(declared, tmp_path):
    ideo, income, votes, born = Schema.of(declared).attributes
    assert ideo.words == {
        "label": "Political ideology",
        "value_labels": {"1": "Liberal", "3": "Conservative"},
    }
    assert income.words["value_labels"] == {
        "[0.5, 1.5)": "below 10,000",
        "[2.5, 4.5]": "20,000 to 30,000 / above 30,000",
    }
    assert income.words["unit"] == "USD"
    assert votes.words == {"value_labels": {"true": "votes", "false": "does not"}}
    assert (born.name, born.words) == ("born.year", {"label": "Born, year"})
    again = tmp_path / "again.toml"
    declared.to_toml(again)
    assert dpcvx.TableSchema.from_toml(again) == declared


def test_labels_are_in_the_json_of_a_schema_and_not_in_what_an_account_pays_for(declared):
    schema = Schema.of(declared)
    assert [each.words for each in Schema.from_json(schema.to_json()).attributes] == [
        each.words for each in schema.attributes
    ]
    plain = Schema.from_dict(schema.identity())
    assert plain == schema
    assert "label" not in plain.to_json()

    def facts(one):
        budget = dpcvx.Budget(1.0, 1e-6)
        given = {"method": "warm", "accountant": "Tight", "check": 0.01, "bin_means": 0.01}
        return json.dumps(engine_facts(Universe(one), 100, 50, budget, **given))

    assert facts(plain) == facts(schema)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"value_labels": {"9": "none"}}, "'9', which is no value"),
        ({"value_labels": ["a"]}, "value_labels must name values"),
        ({"label": 3}, "label must be a text"),
        ({"label": "two\nlines"}, "label must be a text"),
        ({"value_labels": {"1": 2}}, "a name in value_labels must be a text"),
    ],
)
def test_wrong_labels_are_explained(entry, words):
    content = {"kind": "levels", "levels": [1, 2], **entry}
    with pytest.raises(WrongValue, match=words):
        dpcvx.TableSchema.from_dict({"columns": {"ideo": content}})
    plain = {"name": "ideo", "levels": [1, 2], "other": 2, **entry}
    with pytest.raises(WrongValue, match=words):
        Schema.from_dict({"attributes": [plain]})


SCHEMA = Schema(
    (
        Attribute("ideo", (1, 2), label="Ideology", value_labels={1: "Left (a)", "missing": "no answer"}),
        Binned("income", (0.5, 1.5, 2.5), label="Income", unit="USD", value_labels={1: "low", 2: "high"}),
        Attribute("vote", ("no", "yes")),
    )
)


@pytest.fixture(scope="module")
def engine():
    generator = np.random.default_rng(0)
    people = {
        "ideo": generator.integers(1, 3, 2000),
        "income": generator.integers(1, 3, 2000).astype(float),
        "vote": np.where(generator.random(2000) < 0.4, "yes", "no"),
    }
    return QueryEngine(SCHEMA, people, dpcvx.Budget(2.0, 1e-6), rng=SeededGenerator(0))


def test_an_answer_shows_words_beside_codes_and_keeps_the_codes_in_json(engine):
    answer = engine.ask(Regression("vote", ("ideo", "income"), interactions=(("ideo", "income"),)))
    text = str(answer)
    assert "ideo=1 (Left (a)) (baseline)" in text
    assert "Income, in USD" in text
    content = json.loads(answer.body)
    assert not any("Left" in one["name"] for one in content["coefficients"])
    assert content["legend"]["ideo"] == {
        "label": "Ideology",
        "values": {"1": "Left (a)", "missing": "no answer"},
    }
    assert Answer.from_json(content) == answer
    rows = answer.rows().to_dict()["rows"]
    assert [row["label"] for row in rows if row[""] == "ideo=1 (baseline)"] == [
        "ideo=1 (Left (a)) (baseline)"
    ]


def test_tables_and_conditions_show_words_and_files_have_columns_of_them(engine):
    answer = engine.ask(Marginal(("ideo", "income")))
    table = answer.summary().table()
    assert [row[0] for row in table.rows] == ["1 (Left (a))", "2", "missing (no answer)", "total"]
    assert [column.name for column in table.columns][1] == "income=[0.5, 1.5) (low)"
    row = answer.rows().to_dict()["rows"][0]
    assert (row["ideo"], row["ideo label"], row["income label"]) == ("1", "Left (a)", "low")
    count = engine.ask(Count({"ideo": ["1"]}))
    assert count.summary().table().title == "Number of people with ideo = 1 (Left (a))"
    assert "mean income, USD" in str(engine.ask(Mean("income")))


def test_answers_without_labels_have_no_further_field():
    schema = Schema((Attribute("a", ("x", "y")), Attribute("b", ("x", "y"))))
    people = {"a": ["x", "y"] * 500, "b": ["y", "x"] * 500}
    answer = QueryEngine(schema, people, dpcvx.Budget(2.0, 1e-6), rng=SeededGenerator(0)).ask(
        Marginal(("a",))
    )
    assert "legend" not in answer.to_json()
    assert Answer.from_json(answer.to_json()) == answer


def test_synthetic_files_leave_missing_cells_empty_and_have_no_needless_digits(engine, tmp_path):
    columns = engine.synthetic(2000)
    income = columns["income"]
    present = income[~np.isnan(income)]
    assert np.isnan(income).any()
    assert {len(repr(float(value)).partition(".")[2]) for value in present} <= {1, 2}
    assert set(np.searchsorted([1.5], present, side="right")) == {0, 1}
    write_synthetic(tmp_path / "people.csv", columns, engine.statement())
    text = (tmp_path / "people.csv").read_text()
    assert "nan" not in text.lower()


@pytest.mark.parametrize("edges", [(0.0, 0.01, 1.0), (0.0, 2.0, 12000.0), (-5.0, 0.999, 1.0, 1.001)])
def test_rounded_numbers_stay_in_their_bin(edges):
    column = Binned("x", edges)
    numbers = np.random.default_rng(0).uniform(edges[0], edges[-1], 5000)
    numbers = np.append(numbers, [np.nextafter(edge, edges[0]) for edge in edges[1:]])
    found = _rounded(numbers, column)
    assert np.array_equal(column.encode(found)[0], column.encode(numbers)[0])
    assert found.min() >= edges[0]
    assert found.max() <= edges[-1]


def test_words_stand_at_the_levels_that_they_name():
    legend = {"a": {"values": {"1": "one \\1", "10": "ten"}}, "b": {"values": {"[0, 5)": "few"}}}
    assert with_words("a=10", legend) == "a=10 (ten)"
    assert with_words("a=1:b=[0, 5)", legend) == "a=1 (one \\1):b=[0, 5) (few)"
    assert with_words("a=1, b=[0, 5)", legend) == "a=1 (one \\1), b=[0, 5) (few)"
    assert with_words("aa=1", legend) == "aa=1"
    assert with_words("a=1 (baseline)", legend) == "a=1 (one \\1) (baseline)"
