"""Formulas: their variables are those of formulaic, of each record alone, within bounds that are declared."""

import dataclasses
import json
import time

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from typer.testing import CliRunner

import dpcvx as dp
from dpcvx.cli import app
from dpcvx.data.expressions import Expression
from dpcvx.data.model_formula import ModelFormula
from dpcvx.data.table import Table
from dpcvx.errors import DpcvxError, Incompatible, WrongValue
from dpcvx.queries import Regression, query_from_json

formulaic = pytest.importorskip("formulaic", reason="formulas need dpcvx[formula]")

SCHEMA = dp.TableSchema(
    {
        "age": dp.NumberColumn((18, 70)),
        "hours": dp.NumberColumn((1, 60)),
        "sex": dp.LevelColumn(["f", "m"]),
        "region": dp.LevelColumn(["east", "north", "south"]),
        "my col": dp.NumberColumn((-1, 1)),
        "wage": dp.NumberColumn((1, 200)),
        "day": dp.DateColumn(("2010-01-01", "2012-12-31"), parts=["year"]),
    }
)
TERMS = [
    "age + hours",
    "sex + age:sex",
    "age:sex",
    "sex*region",
    "sex:region",
    "region:hours + hours",
    "log(hours) + I(age ** 2) + I((age - 40) / 10)",
    "age*hours*sex",
    "(age + hours + sex)**2",
    "np.sqrt(age) + exp(`my col`) + abs(`my col`)",
    "I(age > 40) + hours",
    "C(region, ref='south') + C(sex)",
    "I(hours * age) + log1p(hours) - age",
    "age + day.year",
]


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(3)
    n = 3000
    age, hours = rng.integers(18, 71, n), rng.uniform(1, 60, n)
    sex, region = rng.choice(["f", "m"], n), rng.choice(["east", "north", "south"], n)
    log_wage = 1.5 + 0.01 * age + 0.3 * (sex == "m") + 0.2 * (region == "south")
    return pd.DataFrame(
        {
            "age": age,
            "hours": hours,
            "sex": sex,
            "region": region,
            "my col": rng.uniform(-1, 1, n),
            "wage": np.exp(log_wage + 0.3 * rng.standard_normal(n)),
            "day": pd.to_datetime("2010-01-01") + pd.to_timedelta(rng.integers(0, 1000, n), unit="D"),
        }
    )


def features(table, formula):
    """Features of a formula's variables, each level but the baseline one, and their names."""
    opened = Table(table, SCHEMA.with_formula(formula).for_table(list(table.columns)))
    columns, names = [], []
    for j, each in enumerate(opened.variables):
        if each.levels is None:
            columns.append(opened.column_numbers(j, 0, opened.n))
            names.append(each.name)
            continue
        codes = opened.codes(j, 0, opened.n, dp.data.levels.DeclaredLevels(each.levels))
        baseline = each.baseline or 0
        for place in range(len(each.levels)):
            if place != baseline:
                columns.append(np.where(codes < 0, np.nan, codes == place))
                names.append(f"{each.name}={each.levels[place]}")
    return np.column_stack(columns), names


@pytest.mark.parametrize("terms", TERMS)
def test_features_are_those_of_formulaic(people, terms):
    ours, _ = features(people, f"wage ~ {terms}")
    spans = terms == "sex:region"  # formulaic writes it as sex:region + region
    known = people.assign(
        sex=pd.Categorical(people["sex"], ["f", "m"]),
        region=pd.Categorical(people["region"], ["east", "north", "south"]),
        year=people["day"].dt.year.astype("category"),
    )
    text = terms.replace("ref='south'", "contr.treatment('south')").replace("day.year", "year")
    theirs = formulaic.model_matrix(f"1 + {text}", known, context={"np": np, "log1p": np.log1p, "abs": abs})
    theirs = theirs.to_numpy(dtype=float)[:, 1:]
    assert ours.shape == theirs.shape
    if spans:
        both = np.column_stack([np.ones(len(ours)), ours, theirs])
        assert np.linalg.matrix_rank(both) == ours.shape[1] + 1 == np.linalg.matrix_rank(theirs) + 1
        return
    assert_allclose(ours[:, np.lexsort(ours[:50])], theirs[:, np.lexsort(theirs[:50])], rtol=1e-12)


@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.long
def test_values_are_within_bounds_and_depend_on_one_record_alone(people, terms):
    hostile = people.astype({"age": object, "hours": object}).copy()
    hostile.loc[0, "age"], hostile.loc[1, "age"], hostile.loc[2, "hours"] = "abc", None, 1e300
    hostile.loc[3, "hours"], hostile.loc[4, "sex"], hostile.loc[5, "region"] = -np.inf, "x", None
    opened = Table(hostile, SCHEMA.with_formula(f"wage ~ {terms}").for_table(list(hostile.columns)))
    for j, each in enumerate(opened.variables):
        if each.levels is None:
            values = opened.column_numbers(j, 0, opened.n)
            known = values[np.isfinite(values)]
            assert len(known) >= opened.n - 6
            if each.derived:
                assert known.min() >= each.bounds[0] - 1e-9
                assert known.max() <= each.bounds[1] + 1e-9
            assert_array_equal(values[6:], opened.column_numbers(j, 6, opened.n))
    ours, _ = features(hostile, f"wage ~ {terms}")
    clean, _ = features(people, f"wage ~ {terms}")
    assert_array_equal(ours[6:], clean[6:])


@pytest.mark.parametrize(
    ("text", "bounds", "wanted"),
    [
        ("log(x)", (1, np.e), (0, 1)),
        ("x ** 2", (-3, 2), (0, 9)),
        ("x ** 3", (-3, 2), (-27, 8)),
        ("abs(x)", (-3, 2), (0, 3)),
        ("abs(x)", (-3, -2), (2, 3)),
        ("1 / x", (2, 4), (0.25, 0.5)),
        ("-x", (2, 4), (-4, -2)),
        ("x * x", (-1, 2), (-2, 4)),
        ("3 - 2 * x", (0, 1), (1, 3)),
        ("x >= 3", (0, 9), (0, 1)),
    ],
)
def test_bounds_of_expressions(text, bounds, wanted):
    assert Expression(text).bounds({"x": bounds}) == pytest.approx(wanted)
    values = Expression(text).values({"x": np.linspace(*bounds, 101)})
    assert values.min() >= wanted[0] - 1e-12
    assert values.max() <= wanted[1] + 1e-12


@pytest.mark.parametrize(
    ("formula", "word"),
    [
        ("wage ~ scale(age)", "learns from all cells"),
        ("wage ~ poly(age, 2)", "learns from all cells"),
        ("wage ~ bs(age, df=4)", "learns from all cells"),
        ("wage ~ log(`my col`)", "not finite"),
        ("wage ~ I(1 / `my col`)", "divides by a number that may be 0"),
        ("wage ~ height", "height"),
        ("wage ~ age +", "cannot be read"),
        ("wage ~ __import__('os').system('x')", "cannot be read"),
        ("wage ~ I(__import__('os').system('x'))", "not supported"),
        ("wage ~ I(age.mean())", "not"),
        ("wage ~ age.mean()", "not"),
        ("wage ~ C(region, ref='west')", "none of the declared levels"),
        ("wage ~ C(age)", "declare 'age' with its levels"),
        ("wage ~ log(sex)", "levels"),
        ("wage + hours ~ age", "one target"),
        ("log(wage) + hours ~ age", "one target"),
        ("I(wage * hours) ~ age", "one column"),
        ("wage ~ 1", "no feature"),
        ("~ .", "name the columns"),
        ("wage ~ wage", "wage"),
        ("wage ~ I(age ** 0.5)", "not supported"),
        ("wage ~ I(age^2)", r"write \*\* for a power"),
        ("wage ~ age + age^2", r"is 'age' itself.*I\(age \*\* 2\)"),
        ("wage ~ age + age**2", "is 'age' itself"),
        ("wage ~ my col", "backquotes"),
        ("wage ~ agee", "the schema declares 'age'"),
        ("wage ~ I(age ** 999999)", "not finite"),
        (f"wage ~ I(age ** {'9' * 400})", "too large"),
        (f"wage ~ I({'9' * 400} + age)", "too large"),
        ("wage ~ age | region", "several parts"),
    ],
)
def test_refusals_say_why(people, formula, word):
    with pytest.raises(DpcvxError, match=word):
        dp.PrivateLinearRegression(epsilon=1.0, schema=SCHEMA.with_formula(formula)).fit(people)


def test_a_fit_is_the_one_of_columns_made_by_hand(people):
    formula = "log(wage) ~ age + C(region, ref='north') + I(age * hours)"
    settings = {"epsilon": 2.0, "random_state": 1}
    model = dp.PrivateLinearRegression(schema=SCHEMA.with_formula(formula), **settings).fit(people)
    hand = people[["age", "region"]].assign(product=people["age"] * people["hours"])
    by_hand = dp.TableSchema(
        {
            "age": SCHEMA.columns["age"],
            "region": dp.LevelColumn(["east", "north", "south"], baseline="north"),
            "product": dp.NumberColumn((18, 4200)),
        }
    )
    other = dp.PrivateLinearRegression(schema=by_hand, y_bounds=(0, np.log(200)), maps=None, **settings).fit(
        hand, np.log(people["wage"])
    )
    assert_array_equal(model.coef_, other.coef_)
    assert list(model.coef_names_) == ["age", "region=east", "region=south", "I(age * hours)"]
    assert_array_equal(model.predict(people), other.predict(hand))
    assert model.privacy_statement_.to_dict()["bounds"]["y"] == "log(wage)"
    with pytest.warns(dp.errors.PrivacyLeakWarning):
        assert model.score(people, people["wage"]) == other.score(hand, np.log(people["wage"])) > 0.2


def test_a_saved_model_reads_the_formula(people, tmp_path):
    schema = SCHEMA.with_formula("log(wage) ~ age*sex + sqrt(hours)")
    model = dp.PrivateLinearRegression(epsilon=2.0, schema=schema, random_state=1).fit(people)
    model.save(tmp_path / "model.json")
    assert_array_equal(dp.load(tmp_path / "model.json").predict(people), model.predict(people))
    assert_array_equal(model.to_sklearn().predict(people), model.predict(people))
    assert dp.TableSchema.from_dict(schema.to_dict()) == schema
    schema.to_toml(tmp_path / "people.toml")
    assert dp.TableSchema.from_toml(tmp_path / "people.toml") == schema


@pytest.mark.long
def test_scores_compare_with_the_left_side(people):
    schema = SCHEMA.with_formula("log(wage) ~ age + sex + region")
    model = dp.PrivateLinearRegression(epsilon=8.0, schema=schema, random_state=1).fit(people)
    found = dp.private_score(
        model, people, people["wage"], scoring="r2", epsilon=20.0, bounds=(0, np.log(200)), random_state=1
    )
    with pytest.warns(dp.errors.PrivacyLeakWarning):
        assert found.value == pytest.approx(model.score(people, people["wage"]), abs=0.1)
    settings = {"scoring": "r2", "epsilon": 20.0, "bounds": (0, np.log(200)), "random_state": 1}
    assert dp.private_score(model, people, **settings).value == found.value  # the table has the target
    with pytest.raises(DpcvxError, match="lacks column"):
        dp.private_score(model, people.drop(columns="wage"), **settings)


def test_no_intercept_is_asked_for_twice(people):
    schema = SCHEMA.with_formula("wage ~ 0 + age")
    with pytest.raises(Incompatible, match="fit_intercept=False"):
        dp.PrivateLinearRegression(epsilon=1.0, schema=schema).fit(people)
    model = dp.PrivateLinearRegression(epsilon=1.0, schema=schema, fit_intercept=False).fit(people)
    assert model.coef_.shape == (1,)


def test_classifiers_take_formulas(people):
    schema = dataclasses.replace(SCHEMA, formula="sex ~ log(wage) + hours:region")
    model = dp.PrivateLogisticRegression(epsilon=2.0, schema=schema, random_state=1).fit(people)
    assert list(model.classes_) == ["f", "m"]
    assert list(model.coef_names_) == [
        "log(wage)",
        *(f"hours:region={r}" for r in ("east", "north", "south")),
    ]


def test_shards_are_made_of_the_formula(people, tmp_path):
    people.to_parquet(tmp_path / "people.parquet")
    schema = SCHEMA.with_formula("log(wage) ~ age + sex:hours")
    shards = dp.from_parquet(tmp_path / "people.parquet", target="wage", schema=schema)
    settings = {"epsilon": 2.0, "random_state": 1}
    mine = dp.PrivateLinearRegression(**settings).fit(shards)
    theirs = dp.PrivateLinearRegression(schema=schema, **settings).fit(people)
    assert_array_equal(mine.coef_, theirs.coef_)
    assert_array_equal(mine.predict(people), theirs.predict(people))


def run(*words):
    found = CliRunner().invoke(app, list(words))
    assert found.exit_code == 0, found.output
    return found.stdout


@pytest.mark.long
def test_the_command_line_takes_a_formula(people, tmp_path):
    people.drop(columns="day").to_csv(tmp_path / "people.csv", index=False)
    columns = {name: column for name, column in SCHEMA.columns.items() if name != "day"}
    dp.TableSchema(columns).to_toml(tmp_path / "people.toml")
    formula = "log(wage) ~ age + C(region, ref='north') + age:sex"
    common = ["--model", "linear", "--epsilon", "2", "--bounds", str(tmp_path / "people.toml")]
    out = ["--out", str(tmp_path / "model.json")]
    run("fit", str(tmp_path / "people.csv"), "--formula", formula, *common, *out)
    model = dp.load(tmp_path / "model.json")
    assert list(model.coef_names_) == ["age", "region=east", "region=south", "age:sex=m"]
    planned = run("plan", "--n", "3000", "--formula", formula, *common, "--json")
    schema = dp.TableSchema(columns).with_formula(formula)
    same = dp.PrivateLinearRegression(epsilon=2.0, schema=schema).plan(3000, ["age", "sex", "region"])
    assert json.loads(planned)["plan"]["d"] == same.problem.d >= 4
    text = run("predict", str(tmp_path / "model.json"), str(tmp_path / "people.csv"))
    assert len(text.splitlines()) == len(people) + 1


def test_queries_take_formulas():
    query = query_from_json({"kind": "regression", "formula": "worked ~ age + C(group)"})
    assert query == Regression("worked", ["age", "group"])
    for without in ("worked ~ age - 1", "worked ~ 0 + age", "worked ~ age + 0"):
        with pytest.raises(WrongValue, match=r'has an intercept: leave "- 1" or "\+ 0" out of the formula'):
            query_from_json({"kind": "regression", "formula": without})
    for formula in ("worked ~ age:group:sex", "worked ~ log(age)", "~ age", "worked ~ C(group, ref='a')"):
        with pytest.raises(WrongValue, match="lists attributes"):
            query_from_json({"kind": "regression", "formula": formula})
    with pytest.raises(WrongValue, match="leave that out"):
        query_from_json({"kind": "regression", "formula": "worked ~ age", "target": "worked"})


def test_no_formula_of_a_query_takes_long_or_fails_without_words():
    """Products of sums have as many terms as there are choices of one addend each."""
    start = time.perf_counter()
    sums = ":".join(f"(a{i} + b{i})" for i in range(100))
    for formula in (
        False,
        None,
        3,
        "y ~ \ud800",
        f"y ~ {sums}",
        "y ~ a | b",
        f"y ~ I({'9' * 400} + a)",
        f"y ~ I(0x{'f' * 1500})",
    ):
        with pytest.raises(WrongValue):
            query_from_json({"kind": "regression", "formula": formula})
    assert time.perf_counter() - start < 1
    spaced = query_from_json({"kind": "regression", "formula": "y ~ C(`my group`)"})
    assert spaced == Regression("y", ["my group"])


@pytest.mark.parametrize(
    "formula",
    ["y ~ " + "*".join("abcdefghijklmnopqr"), "y ~ (a + b + c)**12", "y ~ a**999999999", "y ~ ((a + b)^9)^9"],
)
def test_a_formula_that_multiplies_out_to_millions_is_refused_before_it_does(formula):
    with pytest.raises(WrongValue, match=r"multiplies out|power of a sum"):
        ModelFormula(formula)
