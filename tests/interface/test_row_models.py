"""Estimators of ordered levels and of hazards: a logistic model of several rows of each record."""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone, is_classifier

import dpcvx as dp
from dpcvx.estimators import linear_model
from dpcvx.estimators.documentation import PARAMETERS
from dpcvx.estimators.registry import ROW_ESTIMATORS, estimator_class

pytestmark = pytest.mark.filterwarnings("ignore")
LEVELS = ("poor", "fair", "good")
N = 1_000
SCHEMA = """[columns.age]
kind = "number"
bounds = [18, 90]
[columns.sex]
kind = "levels"
levels = ["f", "m"]
[columns.health]
kind = "levels"
levels = ["poor", "fair", "good"]
"""


def people(n=N, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"age": rng.uniform(20, 80, n).round(2), "sex": rng.choice(["f", "m"], n)})
    score = 0.04 * (frame["age"] - 50) + 0.8 * (frame["sex"] == "m")
    frame["health"] = np.array(LEVELS)[np.digitize(score + rng.logistic(size=n), (-1, 1.2))]
    hazard = 1 / (1 + np.exp(1.5 - score))
    period = (rng.uniform(size=(n, 3)) > hazard.to_numpy()[:, None]).cumprod(axis=1).sum(axis=1)
    frame["years"], frame["left"] = np.minimum(period + 0.5, 3.0), (period < 3).astype(int)
    return frame


def ordinal(**changed):
    declared = {"bounds": {"age": (18, 90)}, "categories": {"sex": ("f", "m")}, "classes": LEVELS}
    return dp.PrivateOrdinalClassifier(**{"epsilon": 8.0, "random_state": 0, **declared, **changed})


def hazard(**changed):
    declared = {"bounds": {"age": (18, 90)}, "categories": {"sex": ("f", "m")}, "periods": (0, 1, 2, 3)}
    declared |= {"event": "left", "epsilon": 8.0, "random_state": 0}
    return dp.PrivateHazardRegressor(**{**declared, **changed})


@pytest.fixture(scope="module")
def frame():
    return people()


@pytest.fixture(scope="module")
def levels(frame):
    return ordinal(uncertainty=0.3).fit(frame[["age", "sex"]], frame["health"])


@pytest.fixture(scope="module")
def hazards(frame):
    return hazard(uncertainty=0.3).fit(frame[["age", "sex", "left"]], frame["years"])


def test_a_fit_is_that_of_the_rows_with_records_as_persons(frame, levels, hazards):
    X = frame[["age", "sex"]]
    own = {"bounds": {"age": (18, 90)}, "epsilon": 8.0, "random_state": 0, "uncertainty": 0.3}
    for model, rows, column, check in (
        (levels, dp.level_rows(X, frame["health"], levels=LEVELS), "above", {}),
        (hazards, dp.period_rows(X, frame["years"], frame["left"], periods=range(4)), "period", {"check": 0}),
    ):
        same = dp.PrivateLogisticRegression(
            categories={"sex": ("f", "m"), column: rows.levels}, classes=(0, 1), **own, **check
        ).fit(rows.table, rows.labels, groups=rows.ids)
        np.testing.assert_array_equal(model.model_.coef_, same.coef_)
        statement, other = model.privacy_statement_, same.privacy_statement_
        assert statement.model == type(model).__name__
        assert statement.public["persons"] == N
        assert (statement.unit, statement.mechanisms) == (other.unit, other.mechanisms)
        assert column in statement.bounds["records"]


def test_probabilities_of_levels(frame, levels):
    shares = levels.predict_proba(frame[["age", "sex"]])
    assert shares.shape == (N, 3)
    assert (shares >= 0).all()
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    row = pd.DataFrame({"age": [45.0], "sex": ["f"]})
    score = levels.coef_[0] * 45 - levels.thresholds_
    np.testing.assert_allclose(
        np.cumsum(levels.predict_proba(row)[0])[:2], 1 / (1 + np.exp(score)), rtol=1e-9
    )
    assert list(levels.predict(frame[["age", "sex"]])[:3]) == [LEVELS[j] for j in shares[:3].argmax(axis=1)]
    assert levels.classes_.tolist() == list(LEVELS)
    assert 0.4 < levels.score(frame[["age", "sex"]], frame["health"]) <= 1
    assert levels.score(frame[["age", "sex"]], ["?"] * N) == 0


def test_probabilities_are_sorted_where_noise_swaps_thresholds(levels, frame):
    before = levels.model_.coef_.copy()
    try:
        levels.model_.coef_[-1] = 3.0
        assert (np.diff(levels.thresholds_) > 0).all()
        assert (levels.predict_proba(frame[["age", "sex"]]) >= 0).all()
    finally:
        levels.model_.coef_[:] = before


def test_survival_falls_from_one(frame, hazards):
    curve = hazards.predict_survival(frame[["age", "sex"]])
    assert curve.shape == (N, 4) == (N, len(hazards.periods_))
    assert (curve[:, 0] == 1).all()
    assert (np.diff(curve) < 0).all()
    row = pd.DataFrame({"age": [45.0], "sex": ["f"]})
    first = 1 / (1 + math.exp(-(hazards.coef_[0] * 45 + hazards.baseline_[0])))
    assert hazards.predict_survival(row)[0, 1] == pytest.approx(1 - first)
    edges = hazards.predict_survival(row)[0]
    assert hazards.predict(row)[0] == pytest.approx(0.5 + edges[1] + edges[2] + edges[3] / 2)
    assert 0 < hazards.score(frame[["age", "sex", "left"]], frame["years"]) < 1


def test_formulas_name_the_estimator(levels, hazards):
    assert levels.formula_.model == "PrivateOrdinalClassifier"
    assert hazards.formula_.model == "PrivateHazardRegressor"


def test_tables_of_coefficients(levels, hazards):
    table = levels.summary().to_frame()
    assert list(table.index) == ["poor | fair", "fair | good", "age", "sex=f (baseline)", "sex=m"]
    assert table.loc["age", "exp(coef)"] == pytest.approx(math.exp(table.loc["age", "coef"]))
    assert table.loc["age", "coef"] == levels.coef_debiased_[0]
    assert table.loc["age", "std err"] == pytest.approx(levels.coef_std_[0])
    contrast = levels.t_test("Intercept + `above=fair` = 0")
    assert table.loc["fair | good", "coef"] == pytest.approx(-contrast.effect[0])
    assert table.loc["fair | good", "std err"] == pytest.approx(contrast.std_err[0])
    assert abs(table.loc["age", "coef"] - 0.04) < 4 * table.loc["age", "std err"] < 0.04
    assert "proportional odds" in str(levels.summary())
    assert "R²" not in str(levels.summary()), "that of rows is mostly the share that thresholds explain"
    table = hazards.summary().to_frame()
    assert list(table.index)[:3] == ["period (0, 1]", "period (1, 2]", "period (2, 3]"]
    assert hazards.coef_names_.tolist() == ["age", "sex=m"]
    assert hazards.coef_interval().shape == (2, 2)
    assert hazards.wald_test("sex").tests[0].df == 1


def test_a_table_without_standard_errors(frame):
    model = ordinal().fit(frame[["age", "sex"]], frame["health"])
    text = str(model.summary())
    assert 'uncertainty="auto"' in text
    assert "private_score" not in text
    table = model.summary().to_frame()
    np.testing.assert_allclose(np.sort(table["coef"].iloc[:2]), model.thresholds_)


@pytest.mark.parametrize("kind", ["levels", "hazards"])
def test_files_give_the_same_model(kind, request, tmp_path, frame):
    model = request.getfixturevalue(kind)
    model.save(tmp_path / "m.json")
    again = dp.load(tmp_path / "m.json")
    assert type(again) is type(model)
    np.testing.assert_array_equal(again.predict(frame[["age", "sex"]]), model.predict(frame[["age", "sex"]]))
    assert str(again.summary()) == str(model.summary())
    assert again.privacy_statement_ == model.privacy_statement_
    assert again.feature_names_in_.tolist() == ["age", "sex"]
    content = json.loads((tmp_path / "m.json").read_text())
    for name, value in (("classes", ["a", "b", "c"]), ("periods", [0, 1, 2])):
        if name in content["parameters"]:
            content["parameters"][name] = value
    (tmp_path / "m.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match="levels of its parameters"):
        dp.load(tmp_path / "m.json")


@pytest.mark.parametrize("make", [pl.DataFrame, pa.table])
def test_other_kinds_of_tables(make, frame, levels):
    columns = {"age": frame["age"].tolist(), "sex": frame["sex"].tolist()}
    model = ordinal(uncertainty=0.3).fit(make(columns), make({"y": frame["health"].tolist()})["y"])
    np.testing.assert_array_equal(model.coef_, levels.coef_)


def test_records_without_an_answer_count_but_teach_nothing(frame):
    y = frame["health"].to_numpy(dtype=object).copy()
    y[:300] = [None, math.nan, "?", 1e300, [1], True] * 50
    model = ordinal().fit(frame[["age", "sex"]], y)
    assert model.privacy_statement_.public["persons"] == N
    assert model.predict(frame[["age", "sex"]]).shape == (N,)


@pytest.mark.long
def test_persons_and_weights(frame):
    X, ids = frame[["age", "sex"]], np.arange(N) // 4
    model = ordinal(epsilon=20.0).fit(X, frame["health"], groups=ids)
    named = ordinal(epsilon=20.0, person="id").fit(X.assign(id=ids), frame["health"])
    np.testing.assert_array_equal(model.coef_, named.coef_)
    assert model.privacy_statement_.public["persons"] == N // 4
    assert named.predict(X.assign(id=ids)).shape == (N,)
    weights = np.where(frame["sex"] == "m", 2.0, 1.0)
    one = ordinal(weight_bounds=(0, 2)).fit(X, frame["health"], sample_weight=weights)
    two = ordinal(weight_bounds=(0, 2)).fit(X.assign(w=weights), frame["health"], sample_weight="w")
    np.testing.assert_array_equal(one.coef_, two.coef_)


def test_a_schema_declares_columns_and_levels(frame, levels):
    schema = dp.TableSchema(
        {
            "age": dp.NumberColumn((18, 90)),
            "sex": dp.LevelColumn(["f", "m"]),
            "health": dp.LevelColumn(list(LEVELS)),
        },
        target="health",
    )
    model = dp.PrivateOrdinalClassifier(epsilon=8.0, random_state=0, uncertainty=0.3, schema=schema)
    model.fit(frame[["health", "age", "sex"]])
    np.testing.assert_array_equal(model.coef_, levels.coef_)


def test_plans_are_those_of_fits(levels, hazards):
    for model in (levels, hazards):
        assert model.plan(N, ["age", "sex"]).to_plain() == model.plan_.to_plain()
    assert ordinal(bounds=(-1, 1), categories=None).plan(500, 3).budget.unit == "person"


@pytest.mark.parametrize(
    ("act", "match"),
    [
        (lambda X, y: ordinal(classes=None).fit(X, y), "needs classes, the levels in their order"),
        (lambda X, y: ordinal(classes="from_y").fit(X, y), "needs classes, the levels in their order"),
        (lambda X, y: ordinal(classes=("no", "yes")).fit(X, y), "three or more"),
        (lambda X, y: ordinal().fit(X), "requires y"),
        (lambda X, y: ordinal(epsilon=None).fit(X, y), "PrivateOrdinalClassifier needs epsilon"),
        (lambda X, y: hazard(bounds=None).fit(X, y), "PrivateHazardRegressor needs bounds"),
        (lambda X, y: ordinal().fit(X, y[:5]), "same number of rows"),
        (lambda X, y: ordinal().fit(X, y, groups=[1, 2]), "X and groups must have the same"),
        (lambda X, y: ordinal().fit(X.to_numpy(), y), "pandas, polars or Arrow table"),
        (lambda X, y: ordinal(max_rows=2).fit(X, y), "no max_rows"),
        (lambda X, y: ordinal(public=X).fit(X, y), "no public rows"),
        (lambda X, y: ordinal(persons=5).fit(X, y), "needs the ids of persons"),
        (lambda X, y: ordinal(person="sex").fit(X, y, groups=X["age"]), "give one of them"),
        (lambda X, y: ordinal(fit_intercept=False).fit(X, y), "needs an intercept"),
        (lambda X, y: ordinal().fit(X.assign(above=1), y), "'above' already"),
        (lambda X, y: hazard(event=None).fit(X, y), "needs event"),
        (lambda X, y: hazard().fit(X, y), "names a column of a data frame"),
        (lambda X, y: hazard(periods=None).fit(X, y), "three or more edges"),
        (lambda X, y: hazard(periods="0,x,2").fit(X, y), "three or more edges"),
        (lambda X, y: dp.private_score(ordinal(), X, y, epsilon=1.0), "Private scores need"),
    ],
)
def test_wrong_arguments_are_refused(act, match, frame):
    with pytest.raises((ValueError, TypeError), match=match):
        act(frame[["age", "sex"]], frame["health"])


def test_parameters_are_documented_and_cloned():
    for name in ROW_ESTIMATORS:
        kind = estimator_class(name)
        assert set(kind().get_params()) <= set(PARAMETERS)
        assert clone(kind(epsilon=2.0)).epsilon == 2.0
    assert is_classifier(ordinal())


def test_no_cell_of_times_or_events_raises(frame):
    table = frame[["age", "sex", "left"]].astype(object)
    years = frame["years"].to_numpy(dtype=object).copy()
    odd = [None, math.nan, "x", -1, 1e300, [1]]
    years[: len(odd)] = odd
    for j, cell in enumerate(odd):
        table.at[10 + j, "left"] = cell
    assert hazard().fit(table, years).privacy_statement_.public["persons"] == N


@pytest.mark.long
def test_from_a_file_to_predictions_on_the_command_line(tmp_path, monkeypatch, run, frame):
    monkeypatch.chdir(tmp_path)
    frame.to_csv("people.csv", index=False)
    Path("people.toml").write_text(SCHEMA)

    def show(command):
        code, out, err = run(command)
        assert code == 0, err
        return out

    fit = "fit people.csv --bounds people.toml --features age,sex --epsilon 8 --uncertainty 0.2 --quiet"
    show(f"{fit} --model ordinal --target health --out levels.json")
    assert "fair | good" in show("show levels.json")
    head, first, *_ = show("predict levels.json people.csv --proba").splitlines()
    assert head == "prediction,probability_poor,probability_fair,probability_good"
    assert first.split(",")[0] in LEVELS
    show(f"{fit} --model hazard --target years --event left --periods 0,1,2,3 --out hazards.json")
    assert "period (2, 3]" in show("show hazards.json")
    head, *lines = show("predict hazards.json people.csv --proba").splitlines()
    assert head == "prediction,survival_0,survival_1,survival_2,survival_3"
    assert len(lines) == N
    assert "follows from the noise" in show("verify levels.json hazards.json")
    show("report levels.json hazards.json --out report.html")
    assert "fair | good" in Path("report.html").read_text()
    planned = "--features 2 --epsilon 1 --n 1000"
    assert "persons" in show(f"plan {planned} --model ordinal --classes 4 --uncertainty 0.2")
    assert "persons" in show(f"plan {planned} --model hazard --periods 0,1,2")


@pytest.mark.long
@pytest.mark.parametrize("name", ["ordinal", "hazard"])
def test_intervals_hold_the_slopes_that_made_the_records(name):
    frame = people(20_000, seed=1)
    model, columns, y = {
        "ordinal": (ordinal, ["age", "sex"], "health"),
        "hazard": (hazard, ["age", "sex", "left"], "years"),
    }[name]
    fitted = model(uncertainty=0.3, epsilon=4.0).fit(frame[columns], frame[y])
    away = (fitted.coef_debiased_ - (0.04, 0.8)) / fitted.coef_std_
    assert (abs(away) < 4).all()
    assert (fitted.coef_std_ < (0.01, 0.3)).all()


def test_statements_say_whether_a_record_was_taken_for_a_person(frame, levels, hazards):
    """Without ids nobody knows who is in several records, and the unit, a person, would promise too much."""
    ids = np.repeat(np.arange(N // 2), 2)
    known = ordinal().fit(frame[["age", "sex"]], frame["health"], groups=ids)
    named = ordinal(person="id").fit(frame[["age", "sex"]].assign(id=ids), frame["health"])
    for model, single in ((levels, True), (hazards, True), (known, False), (named, False)):
        assert ("a person who is in several records" in str(model.privacy_statement_)) == single


def test_progress_names_this_estimator(monkeypatch, frame):
    names, report = [], linear_model.ProgressReport
    monkeypatch.setattr(
        linear_model, "ProgressReport", lambda name, **given: names.append(name) or report(name, **given)
    )
    ordinal().fit(frame[["age", "sex"]], frame["health"])
    assert names == ["PrivateOrdinalClassifier"]


def test_the_ledger_and_warnings_before_a_fit_are_those_of_this_estimator(tmp_path, frame):
    ledger = dp.Ledger(tmp_path / "ledger.db")
    account = ledger.create("a", epsilon=2.0, delta=1e-4, unit="person")
    given = ordinal(uncertainty=0.2, epsilon=1.0, random_state=None, ledger=ledger, account="a")
    with pytest.warns(dp.UselessModelWarning, match="standard errors will probably say nothing"):
        given.fit(frame[["age", "sex"]], frame["health"])
    (entry,) = account.history()
    assert entry.purpose == "fit of PrivateOrdinalClassifier to 1000 persons"


def test_rows_beyond_memory_are_refused_with_the_reason(frame):
    with pytest.raises(dp.Incompatible, match="each record becomes several rows"):
        ordinal().fit(pl.from_pandas(frame).lazy(), np.repeat(["poor"], len(frame)))
