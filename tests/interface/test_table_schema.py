"""One declaration of a table, in Python, in files, on the command line, in shards and on a cluster."""

import dataclasses
import json
import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

import dpcvx as dp
from dpcvx.estimators import progress
from dpcvx.service import start
from dpcvx.service.start import ServiceSettings

TOML = """\
default = [0, 1]
[bounds]
age = [17, 90]
[categories]
sex = ["F", "M"]
[columns.visit]
kind = "date"
bounds = [2010-01-01, 2020-12-31]
parts = ["month"]
[columns."home town"]
kind = "hashed"
buckets = 16
[target]
column = "wage"
bounds = [0, 100]
[groups]
person = ["age", "sex"]
"""
SCHEMA = dp.TableSchema(
    {
        "age": dp.NumberColumn((17, 90), bins=4),
        "sex": dp.LevelColumn(["F", "M"]),
        "visit": dp.DateColumn(("2010-01-01", "2020-12-31"), parts=("month",)),
        "town": dp.HashedColumn(6),
        "smoker": dp.BooleanColumn(),
        "height": dp.NumberColumn((1, 2.5)),  # no table here has it
        "number": dp.IgnoredColumn(),
        "wage": dp.NumberColumn((0, 100)),
    },
    target="wage",
)
N = 400
LACKS = "The table lacks columns that the schema declares"
pytestmark = pytest.mark.filterwarnings(f"ignore:{LACKS}")


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(3)
    days = pd.to_timedelta(rng.integers(0, 3000, N), unit="D")
    frame = pd.DataFrame(
        {
            "number": np.arange(N),
            "town": [f"t{k}" for k in rng.integers(0, 50, N)],
            "age": rng.integers(17, 90, N).astype(float),
            "sex": rng.choice(["F", "M"], N),
            "smoker": rng.choice([True, False], N),
            "visit": (pd.Timestamp("2010-01-01") + days).strftime("%Y-%m-%d"),
        }
    )
    frame["wage"] = 20 + 0.5 * frame.age + 10 * (frame.sex == "M")
    return frame


@pytest.fixture(autouse=True)
def without_progress(monkeypatch):
    monkeypatch.setattr(progress, "FIRST", 1000.0)


def model(schema=SCHEMA, **settings):
    return dp.PrivateLinearRegression(epsilon=50.0, schema=schema, random_state=0, **settings)


def test_a_file_is_read_and_written(tmp_path):
    (tmp_path / "old.toml").write_text(TOML)
    schema = dp.TableSchema.from_toml(tmp_path / "old.toml")
    assert schema.columns["home town"] == dp.HashedColumn(16)
    assert schema.target_parameters() == {"y_bounds": (0, 100)}
    assert schema.groups == {"person": ("age", "sex")}
    for each in (schema, SCHEMA):
        text = each.to_toml(tmp_path / "new.toml")
        assert dp.TableSchema.from_toml(tmp_path / "new.toml") == each
        assert (tmp_path / "new.toml").read_text() == text
        assert dp.TableSchema.from_dict(json.loads(json.dumps(each.to_dict()))) == each


def test_strange_names_survive_a_file(tmp_path):
    names = ['a"b', "c\\d", "e\nf", "g.h", "", "\x7f", "ü"]
    schema = dp.TableSchema({name: dp.LevelColumn(names) for name in names})
    schema.to_toml(tmp_path / "s.toml")
    assert dp.TableSchema.from_toml(tmp_path / "s.toml") == schema


def test_a_table_is_fitted_and_predicted_by_names(people):
    fitted = model().fit(people)
    assert fitted.feature_names_in_.tolist() == ["town", "age", "sex", "smoker", "visit.month"]
    apart = model().fit(people.drop(columns="wage"), people["wage"])
    assert_array_equal(fitted.coef_, apart.coef_)
    predicted = fitted.predict(people)
    assert_array_equal(
        fitted.predict(people[people.columns[::-1]].drop(columns=["wage", "number"])), predicted
    )
    assert_array_equal(fitted.to_sklearn().predict(people), predicted)
    with pytest.raises(ValueError, match="lacks column"):
        fitted.predict(people.drop(columns="town"))
    assert "Derive town, smoker, visit.month" in str(fitted.formula_)


def test_declared_columns_that_a_table_lacks_are_said_before_a_charge(people):
    fitted = model()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=LACKS)
        warnings.filterwarnings("ignore", message="The released standard deviation of height")
        with pytest.raises(dp.UnrecognisedDataWarning, match="without them: 'height'"):
            fitted.fit(people)
        assert not hasattr(fitted, "coef_")
        model().fit(people.assign(height=1.7))  # neither ignored columns nor the target are missed


def test_the_same_plan_without_data_and_the_same_numbers_as_bounds_and_categories(people):
    plain = people[["age", "sex"]]
    schema = dp.TableSchema({"age": dp.NumberColumn((17, 90)), "sex": dp.LevelColumn(["F", "M"])})
    one = model(schema, y_bounds=(0, 100)).fit(plain, people["wage"])
    other = dp.PrivateLinearRegression(
        epsilon=50.0,
        bounds={"age": (17, 90)},
        categories={"sex": ["F", "M"]},
        y_bounds=(0, 100),
        random_state=0,
    ).fit(plain, people["wage"])
    assert_array_equal(one.coef_, other.coef_)
    names = list(people.columns)
    assert model().plan(N, names).price == model().fit(people).plan_.price


def test_a_model_file_holds_the_schema(people, tmp_path):
    fitted = model().fit(people)
    fitted.save(tmp_path / "model.json")
    again = dp.load(tmp_path / "model.json")
    assert_array_equal(again.predict(people), fitted.predict(people))
    assert again.schema.columns["visit"] == SCHEMA.columns["visit"]
    content = json.loads((tmp_path / "model.json").read_text())
    content["formula"]["schema"]["columns"]["town"]["buckets"] = 7
    (tmp_path / "model.json").write_text(json.dumps(content))
    again = dp.load(tmp_path / "model.json")  # a bucket without a coefficient
    content["formula"]["schema"]["columns"]["town"] = {"kind": "script"}
    (tmp_path / "model.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match="kind"):
        dp.load(tmp_path / "model.json")


def test_shards_have_the_numbers_of_memory(people, tmp_path):
    fitted = model(maps=None).fit(people)  # shards have no raw cells, from which a rule could choose maps
    people.to_csv(tmp_path / "people.csv", index=False)
    people.to_parquet(tmp_path / "people.parquet")
    shared = dp.TableSchema(SCHEMA.columns)
    for kind, read in (("csv", dp.from_csv), ("parquet", dp.from_parquet)):
        path = tmp_path / f"people.{kind}"
        shards = read(path, target="wage", schema=shared, verbose=0)
        shards = dp.open_shards(shards.folder)
        stored = dp.PrivateLinearRegression(epsilon=50.0, random_state=0).fit(shards)
        assert_array_equal(stored.coef_, fitted.coef_)
        assert_array_equal(stored.predict(people), fitted.predict(people))
        with pytest.raises(dp.Incompatible, match="own declarations"):
            model().fit(shards)
    batches = [(people.drop(columns="wage")[k : k + 150], people["wage"][k : k + 150]) for k in (0, 150, 300)]
    shards = dp.from_batches(batches, schema=SCHEMA, store=tmp_path / "b", verbose=0)
    stored = dp.PrivateLinearRegression(epsilon=50.0, random_state=0).fit(shards)
    assert_array_equal(stored.coef_, fitted.coef_)


@pytest.mark.long
def test_a_cluster_has_the_numbers_of_memory(people):
    dask = pytest.importorskip("dask.dataframe")
    from distributed import Client

    with Client(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as client:
        frame = dask.from_pandas(people, npartitions=3)
        fitted = dp.PrivateLinearRegression(epsilon=50.0, random_state=0).fit(
            dp.from_dask(frame, schema=SCHEMA, client=client)
        )
    assert_array_equal(fitted.coef_, model().fit(people).coef_)
    assert_array_equal(fitted.predict(people), model().fit(people).predict(people))


def test_queries_read_the_same_declaration(people):
    with pytest.raises(ValueError, match=r"cannot use 'height' \(a number .* no_queries = \[\"height\""):
        dp.Schema.of(dp.TableSchema(SCHEMA.columns))
    schema = dp.Schema.of(dp.TableSchema(SCHEMA.columns, no_queries=["height", "wage"]))
    assert schema.names == ("age", "sex", "visit.month", "town", "smoker")
    one = dp.TableSchema({"one": dp.LevelColumn(["a"])})
    with pytest.raises(ValueError, match=r"cannot use 'one' \(it has one level"):
        dp.Schema.of(one)
    with pytest.raises(ValueError, match="no column that queries can use: no_queries names all of them"):
        dp.Schema.of(dataclasses.replace(one, no_queries=("one",)))
    small = dp.TableSchema({name: SCHEMA.columns[name] for name in ("age", "sex", "smoker")})
    engine = dp.QueryEngine(dp.Schema.of(small), dp.read_variables(people, small), dp.Budget(50.0, 1e-6))
    truth = np.mean(people.sex == "M")
    assert engine.ask(dp.Count({"sex": ["M"]})).estimates[0] == pytest.approx(truth * N, abs=20)


def test_columns_without_queries_are_part_of_the_file(tmp_path):
    schema = dp.TableSchema(SCHEMA.columns, no_queries=["height"])
    assert dp.TableSchema.from_toml(_write(tmp_path / "a.toml", schema.to_toml())) == schema
    assert schema.for_table(["age", "sex"]).no_queries == ()
    content = {"columns": {"age": {"kind": "boolean"}}}
    with pytest.raises(ValueError, match=r"no_queries in The schema names 'agee'.* not declared"):
        dp.TableSchema.from_dict({**content, "no_queries": ["agee"]})
    with pytest.raises(ValueError, match="no_queries must be a list of columns, got 'age'"):
        dp.TableSchema.from_dict({**content, "no_queries": "age"})


def test_a_column_of_persons_is_never_overlooked(people, tmp_path):
    schema = dp.TableSchema({**SCHEMA.columns, "number": dp.PersonColumn()}, target="wage")
    assert schema.person == "number"
    with pytest.raises(ValueError, match="person='number'"):
        model(schema).fit(people)
    people.to_csv(tmp_path / "people.csv", index=False)
    with pytest.raises(ValueError, match="person='number'"):
        dp.from_csv(tmp_path / "people.csv", target="wage", schema=schema, verbose=0)
    with pytest.raises(ValueError, match="person='number'"):
        dp.from_batches([(people, people["wage"])], schema=schema, store=tmp_path / "b", verbose=0)
    fitted = model(schema, person="number").fit(people)
    assert "number" not in fitted.feature_names_in_
    assert fitted.plan_.price.budget.neighbours.unit == "person"
    assert len(fitted.predict(people)) == N


def test_what_is_open_is_refused(people):
    guess = dp.TableSchema({"age": dp.NumberColumn("?"), "sex": dp.LevelColumn("?")})
    with pytest.raises(ValueError, match=r'"\?" stands for bounds of \'age\', levels of \'sex\''):
        model(guess, y_bounds=(0, 100)).fit(people[["age", "sex"]], people["wage"])
    guess = dp.TableSchema({"age": dp.NumberColumn((0, 120))}, confirmed=False)
    with pytest.raises(ValueError, match="not confirmed"):
        model(guess, y_bounds=(0, 100)).fit(people[["age"]], people["wage"])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: dp.NumberColumn((3, 1)), "lowest first"),
        (lambda: dp.NumberColumn((0, 1), bins=1), "two or more"),
        (lambda: dp.LevelColumn([]), "at least one"),
        (lambda: dp.LevelColumn(["a"], missing="b"), "one of the levels"),
        (lambda: dp.DateColumn(("2020-01-01", "2010-01-01")), "first before the last"),
        (lambda: dp.DateColumn(("soon", "later")), "two dates"),
        (lambda: dp.DateColumn(("2010-01-01", "2020-01-01"), parts=("hour",)), "year, month, weekday"),
        (lambda: dp.HashedColumn(1), "from 2"),
        (lambda: dp.TableSchema({"a": (0, 1)}), "NumberColumn"),
        (lambda: dp.TableSchema({"a": dp.PersonColumn(), "b": dp.PersonColumn()}), "Only one column"),
        (lambda: dp.TableSchema.from_dict({"columns": {"a": {"kind": "number"}}}), "lacks an entry"),
        (
            lambda: dp.TableSchema.from_dict({"columns": {"a": {"kind": "number", "low": 1}}}),
            "unknown entries",
        ),
    ],
)
def test_wrong_declarations_are_refused_in_words(make, words):
    with pytest.raises((ValueError, TypeError), match=words):
        make()


def test_what_does_not_fit_a_schema_is_refused(people):
    for settings, X, words in (
        ({"bounds": (0, 1)}, people, "give one of them"),
        ({}, people.to_numpy(), "names columns"),
        ({}, people[["number", "wage"]], "declares no feature"),
    ):
        with pytest.raises((ValueError, TypeError), match=words):
            model(**settings).fit(X, people["wage"])
    with pytest.raises(TypeError, match="must be a TableSchema"):
        model("people.toml").fit(people)


NAMES = ["id", "age", "hoursPerWeek", "sex", "visit_date", "town", "is_smoker", "income", "region"]


def test_a_header_gives_a_proposal_that_must_be_confirmed(people):
    schema = dp.TableSchema.from_header(NAMES, target="income")
    kinds = {name: column.kind for name, column in schema.columns.items()}
    assert list(kinds.values()) == [
        *("ignored", "number", "number", "levels", "date", "hashed", "boolean", "number", "levels")
    ]
    assert schema.columns["age"].bounds == (0, 110)
    assert schema.columns["hoursPerWeek"].bounds == (0, 100)
    with pytest.raises(ValueError, match="levels of 'sex', bounds of 'visit_date', bounds of 'income'"):
        schema.variables()
    typed = dp.TableSchema.from_header(["age", "sex"], {"age": "text", "sex": "number"})
    assert [column.kind for column in typed.columns.values()] == ["levels", "number"]
    kilos = dp.TableSchema.from_header(["wt", "wt.1", "age"], target="wt").columns  # mother and child
    assert {name: column.kind for name, column in kilos.items()} == dict.fromkeys(kilos, "number")
    assert dp.TableSchema.from_header(["wt"], target="wt").columns["wt"].kind == "number"
    sure = dp.TableSchema.from_header(["age"])
    with pytest.raises(ValueError, match="not confirmed"):
        sure.variables()
    assert dataclasses.replace(sure, confirmed=True).variables()


def declared(people, folder, run, name="people.csv"):
    code, out, err = run(f"declare {name} --target wage")
    assert (code, err) == (0, "")
    assert "Nothing was read" in out
    return (folder / "people.toml").read_text()


def test_declare_edit_fit_and_predict(people, tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    people.to_csv("people.csv", index=False)
    people.rename(columns={"number": "id"}).to_parquet("people.parquet")
    text = declared(people, tmp_path, run)
    fit = "fit people.csv --target wage --model linear --epsilon 20 --bounds people.toml --out model.json"
    code, _, err = run(fit)
    assert code == 2
    assert "not complete" in err
    unknown = (
        '# bounds: lowest and highest value, as [0, 100]; if it is no number: kind = "boolean", "date", '
        '"ignored", or "levels" and levels = ["a", "b"]\nkind = "number"\nbounds = "?"'
    )
    for old, new in (
        ('levels = "?"', 'levels = ["F", "M"]'),  # of sex
        (f"[columns.smoker]\n{unknown}", '[columns.smoker]\nkind = "boolean"'),
        (f"[columns.visit]\n{unknown}", '[columns.visit]\nkind = "date"\nbounds = [2010-01-01, 2020-12-31]'),
        (f"[columns.number]\n{unknown}", '[columns.number]\nkind = "ignored"'),
        ('bounds = "?"', "bounds = [0, 100]"),  # of wage
    ):
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "people.toml").write_text(text)
    code, _, err = run(fit)
    assert code == 2
    assert "not confirmed" in err
    (tmp_path / "people.toml").write_text(text.replace("confirmed = false\n", ""))
    assert run(f"{fit} --seed 1")[0] == 0
    code, out, _ = run("predict model.json people.csv --json")
    assert code == 0
    predicted = np.array(json.loads(out)["predictions"])
    assert np.corrcoef(predicted, people["wage"])[0, 1] > 0.9
    assert_array_equal(dp.load("model.json").predict(people), predicted)
    code, _, err = run("declare people.csv")
    assert code == 2
    assert "exists already" in err


def test_declare_says_where_no_bounds_were_found(tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    rows = "\n".join(f"{k % 50},5;{k}" for k in range(2000))
    (tmp_path / "wages.csv").write_text(f"wage;hours\n{rows}")
    (tmp_path / "wages.toml").write_text('[columns.wage]\nkind = "number"\nbounds = "?"\n')
    code, out, err = run("declare wages.csv --sep ; --epsilon 1 --seed 0")
    assert code == 0
    assert out.startswith("No bounds were filled in.")
    assert "no numbers are visible in wage" in err
    assert "--decimal ','" in err
    code, out, err = run("declare wages.csv --sep ; --decimal , --epsilon 1 --seed 0")
    assert (code, err) == (0, "")
    assert out.startswith("Filled in bounds of wage in wages.toml.")


def test_declare_shows_no_value(people, tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    text = "age,sex,wage\n" + "\n".join(f"SECRET{k},SECRET,{k}" for k in range(9))
    (tmp_path / "people.csv").write_text(text)
    first = declared(people, tmp_path, run)
    assert "SECRET" not in first
    (tmp_path / "people.csv").write_bytes(b"age,sex,wage\n\xff\x00\r\r")
    assert run("declare people.csv --target wage --force")[0] == 0
    assert (tmp_path / "people.toml").read_text() == first  # no cell has a part in it
    frame = pd.DataFrame({"age": [1.0], "sex": pd.Categorical(["SECRET"]), "wage": [2]})
    frame.to_parquet("people.parquet")
    assert run("declare people.parquet --target wage --force")[0] == 0
    assert "SECRET" not in (tmp_path / "people.toml").read_text()
    assert 'kind = "levels"' in (tmp_path / "people.toml").read_text()
    for first_line in ("17,SECRET,3", "age,,SECRET", "age,2001-02-03"):
        (tmp_path / "people.csv").write_text(first_line + "\n1,2,3\n")
        code, out, err = run("declare people.csv --force")
        assert (code, out) == (3, "")
        assert "no header" in err
        assert "SECRET" not in err


def test_a_header_that_is_one_column_names_the_separator(tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    for sep, word in ((";", '--sep ";"'), ("\t", "--sep tab"), ("|", '--sep "|"')):
        (tmp_path / "people.csv").write_text(f"age{sep}wage\n1{sep}2\n")
        code, _, err = run("declare people.csv")
        assert code == 2
        assert word in err
        assert not (tmp_path / "people.toml").exists()
    code, out, _ = run("declare people.csv --sep |")
    assert code == 0
    assert 'sep = "|"' in (tmp_path / "people.toml").read_text()
    assert "--sep" not in out  # the schema file has it


def test_a_header_with_more_of_another_separator_names_it(tmp_path, monkeypatch, run):
    """One comma in a name made two columns of a German file, without a word."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "people.csv").write_text('age;"wage, gross";town\n1;2;3\n')
    code, _, err = run("declare people.csv")
    assert code == 2
    assert 'would have 2 columns, with 2 times ";" in the names: add --sep ";", or --sep "," if' in err
    assert run("declare people.csv --sep ,")[0] == 0
    (tmp_path / "questions.csv").write_text('"Do you work, or study?","Since when; where?",age\n1,2,3\n')
    assert run("declare questions.csv")[0] == 0


def test_variables_of_a_table_with_persons_are_read_for_an_engine():
    """The documented call was refused, with the advice to fit instead."""
    visits = pd.DataFrame({"patient": ["a", "a", "b"], "day": ["2024-01-01", "2024-02-01", "2024-03-03"]})
    day = dp.DateColumn(("2024-01-01", "2024-12-31"), parts=("month",))
    schema = dp.TableSchema({"patient": dp.PersonColumn(), "day": day})
    with pytest.raises(ValueError, match="read a table with person='patient'"):
        dp.read_variables(visits, schema)
    found = dp.read_variables(visits, schema, person="patient")
    assert found.to_pydict() == {"day.month": ["1", "2", "3"]}
    engine = dp.QueryEngine(
        dp.Schema.of(schema), found, dp.Budget(50.0, 1e-6), groups=visits["patient"], check=0
    )
    assert (engine.n, engine.budget.unit) == (2, "person")


def test_booleans_are_yes_and_no_in_many_spellings():
    cells = np.array(
        ["yes", "No", " Y ", "n", "T", "f", "TRUE", 0, True, 1.0, "2", "maybe", None, "NA"], dtype=object
    )
    found = dp.BooleanColumn().read(cells)
    assert_array_equal(found, [1, 0, 1, 0, 1, 0, 1, 0, 1, 1, np.nan, np.nan, np.nan, np.nan])


def test_names_of_groups_and_persons_are_recognised():
    names = ["ageGroup", "nativeBorn", "patient", "patience", "pweight", "weight", "kids"]
    found = dp.TableSchema.from_header(names).columns
    assert [found[name].kind for name in names] == [
        *("levels", "number", "ignored", "number", "weight", "number", "number")
    ]
    assert found["kids"] == dp.NumberColumn((0, 12))


def test_weights_are_a_column_of_the_schema(people, tmp_path, monkeypatch, run):
    weighted = people.assign(wt=np.arange(N) % 4)[["age", "wage", "wt"]]
    weighted.to_csv(tmp_path / "people.csv", index=False)
    monkeypatch.chdir(tmp_path)
    columns = {"age": dp.NumberColumn((0, 100)), "wage": dp.NumberColumn((0, 100))}
    schema = dp.TableSchema({**columns, "wt": dp.WeightColumn((0, 3))}, target="wage")
    schema.to_toml("people.toml")
    assert dp.TableSchema.from_toml("people.toml") == schema
    assert (
        run("fit people.csv --model linear --epsilon 1 --bounds people.toml --seed 0 --out model.json")[0]
        == 0
    )
    fitted = dp.PrivateLinearRegression(epsilon=1.0, schema=schema, weight_bounds=(0, 3), random_state=0)
    fitted.fit(weighted, sample_weight="wt")
    assert_array_equal(fitted.coef_, dp.load("model.json").coef_)
    assert fitted.coef_names_.tolist() == ["age"]
    with pytest.raises(ValueError, match="sample_weight='wt'"):
        fitted.fit(weighted)
    with pytest.raises(ValueError, match="names a column of a data frame"):
        fitted.fit(weighted, sample_weight="weights")
    with pytest.raises(ValueError, match="begin at 0"):
        dp.WeightColumn((1, 3))


def test_a_baseline_is_compared_with_and_kept(people, tmp_path):
    people = people[["age", "sex", "wage"]]
    columns = {**SCHEMA.columns, "sex": dp.LevelColumn(["F", "M"], baseline="F")}
    schema = dp.TableSchema(columns, target="wage")
    fitted = model(schema, check=0.02).fit(people)
    assert fitted.coef_names_.tolist() == ["age", "sex=M"]
    assert fitted.coef_[1] == pytest.approx(10, abs=2)
    assert fitted.levels_ == {"sex": ("F", "M")}
    assert len(fitted.check_.columns[1].counts) == 2
    ends = fitted.predict(pd.DataFrame({"age": 40.0, "sex": ["F", "M", "x", None]}))
    share = fitted._row_map.fill[1]  # of M, released
    assert share == pytest.approx(np.mean(people["sex"] == "M"), abs=0.05)
    assert ends[2] == ends[3] == pytest.approx(ends[0] + share * (ends[1] - ends[0]), rel=1e-12)
    fitted.save(tmp_path / "model.json")
    assert_array_equal(dp.load(tmp_path / "model.json").predict(people), fitted.predict(people))
    assert_array_equal(fitted.to_sklearn().predict(people), fitted.predict(people))
    assert "The baseline of a column has no feature: sex=F." in str(fitted.formula_)
    assert fitted.privacy_statement_.to_dict()["bounds"]["baselines"] == {"sex": "F"}
    with pytest.raises(ValueError, match="baseline must be one of the levels"):
        dp.LevelColumn(["a", "b"], baseline="c")


def test_shards_hold_shares_of_levels(people, tmp_path):
    only = dp.TableSchema({"sex": dp.LevelColumn(["F", "M"], baseline="F")})  # 1/2 does not fit into a byte
    odd = people.assign(sex=[None, *people["sex"][1:]])[["sex"]]
    batches = [(odd, people["wage"])]
    held = dp.from_batches(batches, schema=only, y_bounds=(0, 100), store=tmp_path / "c", verbose=0)
    one = dp.PrivateLinearRegression(epsilon=50.0, random_state=0).fit(held)
    other = model(only, y_bounds=(0, 100)).fit(odd, people["wage"])
    assert_array_equal(one.coef_, other.coef_)


def test_a_service_reads_the_same_file(people, tmp_path):
    people.to_csv(tmp_path / "people.csv", index=False)
    dp.TableSchema(SCHEMA.columns, target="wage").to_toml(tmp_path / "people.toml")
    settings = ServiceSettings(
        tmp_path / "people.csv",
        tmp_path / "people.toml",
        1.0,
        delta=None,
        ledger=None,
        witness=None,
        account="a",
        host="127.0.0.1",
        port=0,
        slot=0.1,
    )
    assert start._declares_table(settings.schema)
    served = start._open_declared(settings)
    assert served.schema.names == ("town", "age", "sex", "smoker", "visit.month")
    assert (served.person, [each.split()[0] for each in served.left_out]) == (None, ["'wage'"])
    assert served.absent == tuple(name for name in SCHEMA.columns if name not in people)
    assert served.warnings[-1].startswith("Queries cannot use 'wage'")
    table = served.read()
    assert table["visit.month"].to_pylist() == [str(int(day[5:7])) for day in people["visit"]]
    assert table["sex"].to_pylist() == people["sex"].tolist()


# -- codes that stand for missing cells

CODED = dp.TableSchema(
    {
        "age": dp.NumberColumn((17, 90), bins=4, missing=40, missing_codes=[99, -9]),
        "sex": dp.LevelColumn(["F", "M"], other="X", missing_codes=["refused", 9]),
        "visit": dp.DateColumn(("2010-01-01", "2020-12-31"), parts=("month",), missing_codes=["1900-01-01"]),
        "town": dp.HashedColumn(6, missing_codes=["unknown"]),
        "wage": dp.NumberColumn((0, 100), missing_codes=[99.5]),
    },
    target="wage",
)
CODES = {"age": 99.0, "sex": "refused", "visit": "1900-01-01", "town": "unknown", "wage": 99.5}


@pytest.fixture(scope="module")
def coded(people):
    """A table whose missing cells are codes, and the same table with missing cells."""
    frame, rng = people[[*CODES]].astype(object), np.random.default_rng(8)
    blank = frame.copy()
    for name, code in CODES.items():
        places = rng.random(N) < 0.2
        frame.loc[places, name], blank.loc[places, name] = code, None
    return frame, blank


def test_declared_codes_are_missing_cells(coded, tmp_path):
    frame, blank = coded
    ours, theirs = (model(CODED, maps=None, check=0).fit(each) for each in coded)
    assert_array_equal(ours.coef_, theirs.coef_)
    assert_array_equal(ours.predict(frame), theirs.predict(blank))
    assert dp.private_score(ours, frame, frame["wage"].astype(float), epsilon=5, random_state=0).value == (
        dp.private_score(ours, blank, blank["wage"].astype(float), epsilon=5, random_state=0).value
    )
    assert CODED.from_toml(_write(tmp_path / "a.toml", CODED.to_toml())) == CODED
    ours.save(tmp_path / "model.json")
    assert_array_equal(dp.load(tmp_path / "model.json").predict(frame), theirs.predict(blank))
    frame.to_csv(tmp_path / "people.csv", index=False)
    frame.astype({"age": float, "wage": float}).to_parquet(tmp_path / "people.parquet")
    for kind, read in (("csv", dp.from_csv), ("parquet", dp.from_parquet)):
        shards = read(tmp_path / f"people.{kind}", target="wage", schema=CODED, verbose=0)
        assert_array_equal(
            dp.PrivateLinearRegression(epsilon=50.0, random_state=0, check=0).fit(shards).coef_, theirs.coef_
        )


def test_declared_codes_are_missing_cells_of_queries(coded):
    frame, blank = coded
    schema = dp.Schema.of(dp.TableSchema(CODED.columns, no_queries=["wage"]))
    found, expected = dp.read_variables(frame, CODED), dp.read_variables(blank, CODED)
    assert repr(found.to_pydict()) == repr(expected.to_pydict())
    assert schema["sex"].labels == ("F", "M", "X", "missing")


@pytest.mark.long
def test_declared_codes_are_missing_cells_on_a_cluster(coded):
    dask = pytest.importorskip("dask.dataframe")
    from distributed import Client

    frame = coded[0].astype({"age": float, "wage": float})
    with Client(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as client:
        parts = dask.from_pandas(frame, npartitions=3)
        fitted = dp.PrivateLinearRegression(epsilon=50.0, random_state=0, check=0).fit(
            dp.from_dask(parts, schema=CODED, client=client)
        )
    assert_array_equal(fitted.coef_, model(CODED, check=0).fit(coded[1]).coef_)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: dp.NumberColumn((0, 1), missing_codes=99), "list of different labels"),
        (lambda: dp.NumberColumn((0, 1), missing_codes=[9, "9"]), "count as one value"),
        (lambda: dp.LevelColumn(["a", "b"], missing_codes=["b"]), "one or the other"),
    ],
)
def test_wrong_codes_are_refused_in_words(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_booleans_are_false_and_true_in_queries(people):
    small = dp.TableSchema({"smoker": dp.BooleanColumn()})
    schema = dp.Schema.of(small)
    assert schema["smoker"].labels == ("false", "true", "missing")
    engine = dp.QueryEngine(schema, dp.read_variables(people, small), dp.Budget(50.0, 1e-6))
    truth = people["smoker"].sum()
    assert engine.ask(dp.Count({"smoker": ["true"]})).estimates[0] == pytest.approx(truth, abs=20)


def _write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "cells",
    [
        ["yes", "no"] * 300,
        ["Y", "N"] * 300,
        ["TRUE", "false"] * 300,
        [1, 0] * 300,
        [True, False] * 300,
        ["yEs", "f"] * 300,
    ],
    ids=lambda cells: str(cells[0]),
)
def test_a_target_of_booleans_is_read_like_a_column_of_booleans(cells):
    import pandas as pd
    import pyarrow as pa

    from dpcvx.data.target import Labels

    labels = Labels.declare((False, True))
    for y in (cells, np.array(cells, dtype=object), pd.Series(cells), pa.chunked_array([cells])):
        assert labels.codes(y).tolist() == [1, 0] * 300
    assert Labels.declare((True, False)).codes(cells).tolist() == [0, 1] * 300
    assert labels.codes(["maybe", None, "yes", 2]).tolist() == [-1, -1, 1, -1]
    assert (
        labels.codes(["yes"] * 3).tolist() != Labels.declare((0, 1)).codes(["yes"] * 3).tolist()
    )  # numbers have no words


@pytest.mark.parametrize(
    "kind", [dp.PrivateLinearRegression, dp.PrivateAdditiveRegressor, dp.PrivateHuberRegressor]
)
def test_a_regression_refuses_a_target_that_is_declared_with_levels(people, kind):
    columns = {"age": dp.NumberColumn((0, 100)), "sex": dp.LevelColumn(["F", "M"])}
    schema = dp.TableSchema(columns, target="sex")
    model = kind(epsilon=1.0, schema=schema)
    with pytest.raises(ValueError, match=r"'sex' is declared with 2 levels, 'F', 'M'.* use PrivateLogistic"):
        model.fit(people)
    with pytest.raises(ValueError, match="use PrivateLogisticRegression"):
        model.plan(1000, ["age"])
    bounded = dataclasses.replace(schema, target_values=dp.NumberColumn((0, 1)))
    with pytest.raises(ValueError, match="use PrivateLogisticRegression"):
        kind(epsilon=1.0, schema=bounded).fit(people)
    model.set_params(y_bounds=(0, 1))
    with pytest.raises(ValueError, match="use PrivateLogisticRegression"):
        model.fit(people)
    model.fit(people, (people["sex"] == "F").astype(float))  # coded anew


@pytest.mark.parametrize("target", ["given", "named", "left out"])
def test_a_schema_without_a_target_says_how_to_name_it(people, target):
    """The message asked for y_bounds, although the schema declares the column of y."""
    schema = dataclasses.replace(SCHEMA, target=None)
    y = {"given": people["wage"], "named": "wage", "left out": None}[target]
    name = "NAME" if target == "left out" else "wage"
    with pytest.raises(ValueError, match=rf'TableSchema\(\.\.\., target="{name}"\).* takes y_bounds'):
        dp.PrivateLinearRegression(epsilon=1.0, schema=schema).fit(people, y)
    with pytest.raises(ValueError, match="takes classes"):
        dp.PrivateLogisticRegression(epsilon=1.0, schema=schema).fit(people, y)


def test_levels_that_are_numbers_may_have_bounds(people):
    answers = people.assign(answer=np.arange(len(people)) % 5 + 1)
    columns = {"age": dp.NumberColumn((0, 100)), "answer": dp.LevelColumn([1, 2, 3, 4, 5])}
    schema = dp.TableSchema(columns, target="answer", target_values=dp.NumberColumn((1, 5)))
    assert dp.PrivateLinearRegression(epsilon=1.0, schema=schema).fit(answers).n_iter_
    with pytest.raises(ValueError, match="or PrivateOrdinalClassifier"):
        dp.PrivateLinearRegression(epsilon=1.0, schema=dataclasses.replace(schema, target_values=None)).fit(
            answers
        )


def test_a_declared_boolean_can_be_predicted():
    import pandas as pd

    rng = np.random.default_rng(0)
    age = rng.uniform(18, 90, 4000)
    table = pd.DataFrame({"age": age, "works": np.where(age < 60, "yes", "no")})
    schema = dp.TableSchema({"age": dp.NumberColumn((18, 90)), "works": dp.BooleanColumn()}, target="works")
    model = dp.PrivateLogisticRegression(epsilon=4.0, schema=schema).fit(table)
    assert model.classes_.tolist() == [False, True]
    assert (model.predict(table[["age"]]) == (age < 60)).mean() > 0.9
    assert dp.private_score(model, table, table["works"], epsilon=4.0).value > 0.9
