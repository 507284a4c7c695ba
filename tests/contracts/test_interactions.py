"""Interactions of a regression: exact units, formulas, and no interval where the model cannot show them."""

import itertools

import numpy as np
import pytest

from dpcvx.accounting import Budget
from dpcvx.noise import SeededGenerator
from dpcvx.queries import Attribute, Binned, QueryEngine, Regression, Schema, query_from_json
from dpcvx.queries.answer_summary import title_of

MISSING = Schema(
    (
        Attribute("sex", ("f", "m"), other="none"),
        Attribute("work", ("none", "part", "full"), other="unknown"),
        Binned("age", (18, 30, 50, 90), missing="none"),
        Binned("wage", (0, 10, 30, 100), 20),
    )
)
PAIRS = (("age", "sex"), ("sex", "work"))


def terms_of(name, code):
    """Names and factors by which an analyst computes the part of one attribute."""
    attribute = MISSING[name]
    if name != "age":
        label = f"{name}={attribute.labels[code]}"
        return [(label, 1.0)] if code else []
    if code < attribute.known:
        return [("age", attribute.midpoints[code])]
    return [("age", 54.0), ("age=none (against 54)", 1.0)]


@pytest.mark.parametrize("intercept", [True, False])
def test_coefficients_in_the_tables_units_predict_what_the_coded_ones_do(intercept):
    """For every kind of person, from the names and numbers that an analyst reads alone."""
    features = ("sex", "work", "age")
    query = Regression("wage", features, loss="squared", intercept=intercept, interactions=PAIRS)
    question = query.compile(MISSING, 40)
    theta = np.random.default_rng(1).normal(size=len(question.names))
    reading = query.reading(MISSING, 40)
    shown = dict(zip(reading.names, reading.numbers(theta), strict=True))
    assert len(shown) == len(reading.names)
    scores = (question.X @ theta).reshape(question.sizes)
    for cell in itertools.product(range(1), *(range(size) for size in question.sizes[1:])):
        parts = {name: terms_of(name, code) for name, code in zip(features, cell[1:], strict=True)}
        predicted = shown["intercept"] + sum(shown[t] * u for part in parts.values() for t, u in part)
        for a, b in PAIRS:
            predicted += sum(shown[f"{t}:{s}"] * u * v for t, u in parts[a] for s, v in parts[b])
        assert predicted == pytest.approx(50 * (scores[cell] + 1))


def test_formulas_and_json_have_interactions():
    query = Regression("sex", ("age", "work"), interactions=(("age", "work"),))
    assert query_from_json(query.to_json()) == query
    assert title_of(query.to_json()) == "sex ~ age + work + age:work (logistic)"
    for text in ("sex ~ age + work + age:work", "sex ~ age*work", "sex ~ age:work + work + age"):
        read = query_from_json({"kind": "regression", "formula": text})
        assert set(read.interactions[0]) == {"age", "work"}
        assert set(read.features) == {"age", "work"}
    assert "interactions" not in Regression("sex", ("age",)).to_json()
    assert "age:work=part" in query.compile(MISSING, 40).names


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ((("age", "wage"),), "needs both attributes among the features"),
        ((("age", "age"),), "twice"),
        ((("age", "work", "sex"),), "pairs"),
        ((("age", "work"), ("work", "age")), "names a pair twice"),
        ("age", "list of pairs"),
        ((3,), "list of names"),
    ],
)
def test_other_interactions_are_refused(pairs, words):
    with pytest.raises(ValueError, match=words):
        Regression("sex", ("age", "work"), interactions=pairs)


@pytest.mark.parametrize("formula", ["sex ~ age:work", "sex ~ age*work*wage", "sex ~ age:log(wage)"])
def test_formulas_without_features_or_of_three_are_refused(formula):
    with pytest.raises(ValueError, match=r"needs both attributes|products of two"):
        query_from_json({"kind": "regression", "formula": formula})


def test_regressions_on_very_many_cells_have_no_interactions():
    wide = Schema(tuple(Attribute(f"a{i}", tuple(range(8)), 0) for i in range(7)))
    names = [f"a{i}" for i in range(1, 7)]
    with pytest.raises(ValueError, match="with interactions"):
        Regression("a0", names, loss="squared", interactions=(("a1", "a2"),)).compile(wide, 100)


def records(n, extra):
    """y depends on the product of a and b alone."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 2, n), rng.integers(0, 2, n)
    y = (rng.random(n) < np.where(a == b, 0.7, 0.3)).astype(int)
    table = {"y": y, "a": a, "b": b} | {f"c{j}": rng.integers(0, 2, n) for j in range(extra)}
    return Schema(tuple(Attribute(name, (0, 1), 0) for name in table)), table


QUERY = Regression("y", ("a", "b"), interactions=(("a", "b"),), radius=10.0)


def test_measured_interactions_have_intervals_that_hold_them():
    schema, table = records(20_000, 3)
    engine = QueryEngine(schema, table, Budget(2.0, 1e-9), rng=SeededGenerator(0), method="warm")
    answer = engine.ask(QUERY)
    found = dict(zip(answer.names, answer.coefficients, strict=True))["a=1:b=1"]
    assert answer.interval_by == "prediction"
    assert found.estimate == pytest.approx(4 * np.log(7 / 3), abs=0.4)
    assert found.population_low < 4 * np.log(7 / 3) < found.population_high
    assert "near 0 does not mean" not in answer.note


def test_interactions_of_which_no_table_was_measured_have_no_interval():
    schema, table = records(3_000, 27)  # 2^30 cells: pairs alone
    engine = QueryEngine(schema, table, Budget(1.0, 1e-9), rng=SeededGenerator(0))
    answer = engine.ask(QUERY)
    assert answer.branch == "histogram"
    assert answer.interval_by == "none"
    assert all(each.population_low is None for each in answer.coefficients)
    assert "a:b" in answer.note
    assert "near 0 does not mean" in answer.note
    assert "std err" not in str(answer)  # columns without a number are left out
    assert "std_err" in answer.to_json()["coefficients"][0]
    plain = engine.ask(Regression("y", ("a", "b")))
    assert "near 0 does not mean" not in plain.note
    assert "std err" in str(plain)


@pytest.mark.long
def test_triples_without_a_histogram_show_interactions():
    schema, table = records(400_000, 22)  # 2^25 cells
    engine = QueryEngine(schema, table, Budget(1.0, 1e-12), rng=SeededGenerator(0), check=0)
    assert engine.plan.start.order == 3
    answer = engine.ask(QUERY)
    found = dict(zip(answer.names, answer.coefficients, strict=True))["a=1:b=1"]
    assert (answer.branch, answer.interval_by) == ("histogram", "prediction")
    assert found.estimate == pytest.approx(4 * np.log(7 / 3), abs=0.1)
    assert found.population_low < 4 * np.log(7 / 3) < found.population_high


def test_a_note_about_interactions_is_true_where_single_attributes_alone_were_measured():
    """With so few records the first release has no tables of two attributes."""
    schema = Schema(tuple(Attribute(name, ("x", "y")) for name in "abc"))
    people = {name: ["x", "y"] * 30 for name in "abc"}
    engine = QueryEngine(schema, people, Budget(0.05, 1e-6), method="warm", rng=SeededGenerator(1))
    assert engine.plan.start.order == 1
    note = engine.ask(Regression("a", ("b", "c"), interactions=(("b", "c"),))).note
    assert "no table of the target with both attributes of b:c was measured" in note
    assert "two attributes were measured" not in note
