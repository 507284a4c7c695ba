"""Baselines: the first level of a column has no feature in a model with an intercept."""

import json

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

import dpcvx as dp

RNG = np.random.default_rng(4)
N = 600
PEOPLE = pd.DataFrame(
    {
        "age": RNG.uniform(20, 60, N),
        "job": RNG.choice(["nurse", "baker", "smith", "other"], N, p=[0.4, 0.3, 0.2, 0.1]),
        "day": RNG.choice(["2020-01-06", "2020-02-04", "2021-03-03"], N),
    }
)
Y = 0.2 * PEOPLE["age"] + 5 * (PEOPLE["job"] == "baker") + RNG.normal(size=N)
JOBS = ["nurse", "baker", "smith"]
SCHEMA = dp.TableSchema({"age": dp.NumberColumn((18, 65)), "job": dp.LevelColumn(JOBS)})
SETTINGS = {"epsilon": 50.0, "delta": 1e-5, "y_bounds": (0, 20), "random_state": 0}


def regression(**settings):
    return dp.PrivateLinearRegression(**SETTINGS, **settings)


@pytest.mark.parametrize("standardize", [True, False])
def test_the_first_level_is_the_baseline_where_there_is_an_intercept(standardize, tmp_path):
    declared = {"bounds": {"age": (18, 65)}, "categories": {"job": JOBS}, "standardize": standardize}
    people = PEOPLE[["age", "job"]]
    fitted = regression(**declared).fit(people, Y)
    assert fitted.coef_names_.tolist() == ["age", "job=baker", "job=smith"]
    assert fitted.coef_[1] == pytest.approx(5, abs=1.5)
    other = regression(schema=SCHEMA, standardize=standardize).fit(people, Y)
    assert_array_equal(fitted.coef_, other.coef_)
    named = dp.TableSchema({**SCHEMA.columns, "job": dp.LevelColumn(JOBS, baseline="smith")})
    other = regression(schema=named, standardize=standardize).fit(people, Y)
    assert other.coef_names_.tolist() == ["age", "job=nurse", "job=baker"]
    without = regression(**declared, fit_intercept=False).fit(people, Y)
    assert without.coef_names_.tolist() == ["age", "job=nurse", "job=baker", "job=smith"]
    assert without.formula_.to_dict()["baselines"] == {}
    fitted.save(tmp_path / "model.json")
    strange = people.assign(job=["pilot", None, "baker"] * 200)
    expected = fitted.predict(strange)
    assert_array_equal(dp.load(tmp_path / "model.json").predict(strange), expected)
    assert_array_equal(fitted.to_sklearn().predict(strange), expected)


def test_parts_of_dates_have_a_baseline_and_buckets_have_none():
    schema = dp.TableSchema(
        {
            "day": dp.DateColumn(("2020-01-01", "2021-12-31"), parts=("year", "weekday")),
            "job": dp.HashedColumn(4),
        }
    )
    names = regression(schema=schema, check=0).fit(PEOPLE, Y).coef_names_.tolist()
    assert names[:6] == ["job=0", "job=1", "job=2", "job=3", "day.year=2021", "day.weekday=Tuesday"]


def test_shards_have_the_same_baselines_and_older_ones_have_none(tmp_path):
    people = PEOPLE[["age", "job"]]
    declared = {"bounds": {"age": (18, 65)}, "categories": {"job": JOBS}, "y_bounds": (0, 20)}
    shards = dp.from_batches([(people, Y)], **declared, store=tmp_path / "s", verbose=0)
    # In memory a standardised fit also asks for histograms of its numbers.
    settings = {"epsilon": 50.0, "delta": 1e-5, "random_state": 0, "standardize": False}
    fitted = dp.PrivateLinearRegression(**settings).fit(shards)
    in_memory = regression(
        bounds=declared["bounds"], categories=declared["categories"], standardize=False
    ).fit(people, Y)
    assert_array_equal(fitted.coef_, in_memory.coef_)
    # The features were made when the records were written, so a model without an intercept has these too.
    assert dp.PrivateLinearRegression(**settings, fit_intercept=False).fit(shards).coef_.shape == (3,)
    manifest = tmp_path / "s" / "manifest.json"
    content = json.loads(manifest.read_text())
    assert content["declarations"]["first_is_baseline"] is True


def test_models_saved_with_equal_shares_predict_as_before(tmp_path):
    """Files of schema 2 name baselines, and their missing cells take equal shares of all levels."""
    fitted = regression(schema=SCHEMA, standardize=False).fit(PEOPLE, Y)
    fitted.save(tmp_path / "model.json")
    content = json.loads((tmp_path / "model.json").read_text())
    fill = content["formula"]["fill"]
    assert fill == [41.5, 1 / 3, 1 / 3]
    content["schema"], content["formula"]["fill"] = 2, [41.5, 0.0, 0.0]
    (tmp_path / "old.json").write_text(json.dumps(content))
    strange = PEOPLE.assign(job=[None, "pilot", "smith"] * 200)
    assert_array_equal(dp.load(tmp_path / "old.json").predict(strange), fitted.predict(strange))
