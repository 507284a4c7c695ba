"""Baselines: coefficients of levels are differences from the first one in a model with an intercept."""

import json

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

import dpcvx as dp
from dpcvx.data import Region
from dpcvx.data.columns import Columns
from dpcvx.data.levels import DeclaredLevels
from dpcvx.data.shards import writing
from dpcvx.data.shards.recipe import normalise
from dpcvx.data.table import Table
from dpcvx.estimators.comparison import compare_levels

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
    # A cell that is no level is a mixture of all levels here too, and the statement says so.
    assert without.privacy_statement_.bounds["shared"] == ["job"]
    same_age = pd.DataFrame({"age": 30.0, "job": [*JOBS, "pilot"]})
    scores = without.set_params(extrapolation="linear").predict(same_age)
    assert scores[3] == pytest.approx(scores[:3].mean())
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


def test_shards_have_the_same_baselines_and_those_of_earlier_versions_open(tmp_path, monkeypatch):
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
    without = dp.PrivateLinearRegression(**settings, fit_intercept=False).fit(shards)
    assert without.coef_names_.tolist() == ["age", "job=nurse", "job=baker", "job=smith"]

    def earlier(*given):
        found = normalise(*given)
        del found["encoding"]
        return {**found, "first_is_baseline": True}

    monkeypatch.setattr(writing, "normalise", earlier)
    older = dp.from_batches([(people, Y)], **declared, store=tmp_path / "older", verbose=0)
    monkeypatch.undo()
    for opened in (older, dp.open_shards(tmp_path / "older")):
        fitted = dp.PrivateLinearRegression(**settings).fit(opened)
        assert fitted.coef_names_.tolist() == ["age", "job=baker", "job=smith"]
        assert fitted.coef_[1] == pytest.approx(5, abs=1.5)
        assert fitted.plan_.problem.d == 4
        # Features were made when the records were written, so a model without an intercept has these too.
        assert dp.PrivateLinearRegression(**settings, fit_intercept=False).fit(opened).coef_.shape == (3,)
    fitted.save(tmp_path / "model.json")
    assert_array_equal(dp.load(tmp_path / "model.json").predict(people), fitted.predict(people))


@pytest.mark.parametrize("schema", [2, 3])
def test_models_saved_without_features_of_baselines_predict_as_before(schema, tmp_path):
    """Until schema 3 baselines had no feature, and until schema 2 missing cells took equal shares."""
    fitted = regression(schema=SCHEMA, standardize=False).fit(PEOPLE, Y)
    fitted.save(tmp_path / "model.json")
    content = json.loads((tmp_path / "model.json").read_text())
    assert content["formula"]["fill"] == [41.5, 1 / 3, 1 / 3, 1 / 3]
    del content["formula"]["omitted"]
    content["privacy_statement"]["public"]["features"] = ["age", "job=baker", "job=smith"]
    bounds = content["privacy_statement"]["bounds"]["bounds"]
    content["privacy_statement"]["bounds"]["bounds"] = {side: ends[:3] for side, ends in bounds.items()}
    content["schema"] = schema
    content["formula"]["fill"] = [41.5, 0.0, 0.0] if schema == 2 else [41.5, 1 / 3, 1 / 3]
    (tmp_path / "old.json").write_text(json.dumps(content))
    strange = PEOPLE.assign(job=[None, "pilot", "smith"] * 200)
    old = dp.load(tmp_path / "old.json")
    assert_array_equal(old.predict(strange), fitted.predict(strange))
    assert old.coef_names_.tolist() == fitted.coef_names_.tolist()
    assert "job=nurse (baseline)" in str(old.summary())
    old.save(tmp_path / "again.json")
    assert_array_equal(dp.load(tmp_path / "again.json").predict(strange), fitted.predict(strange))


RARE = pd.DataFrame({"age": PEOPLE["age"], "job": RNG.choice(JOBS, N, p=[0.02, 0.49, 0.49])})


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (dp.PrivateLinearRegression, {"standardize": True}),
        (dp.PrivateLinearRegression, {"standardize": False}),
        (dp.PrivateAdditiveRegressor, {"knots": 3, "interactions": "all"}),
    ],
)
def test_a_baseline_does_not_change_predictions(kind, settings):
    """The fit has a feature for each level; a baseline only moves a coefficient to the intercept."""
    found = {}
    for baseline in JOBS:
        schema = dp.TableSchema({**SCHEMA.columns, "job": dp.LevelColumn(JOBS, baseline=baseline)})
        model = kind(**SETTINGS, schema=schema, check=0, **settings).fit(RARE, Y)
        assert f"job={baseline}" not in model.coef_names_
        found[baseline] = model.set_params(extrapolation="linear").predict(RARE)
    for scores in found.values():
        np.testing.assert_allclose(scores, found["nurse"], rtol=1e-9)
    if kind is dp.PrivateAdditiveRegressor:
        shapes = model.shapes_
        with_pairs = model.to_sklearn().predict(RARE)
        assert_array_equal(with_pairs, model.predict(RARE))
        assert len(shapes["job"].values) == 3
    else:
        names = model.coef_names_.tolist()
        ends = model.predict(pd.DataFrame({"age": 40.0, "job": ["smith", "nurse"]}))
        assert model.coef_[names.index("job=nurse")] == pytest.approx(np.diff(ends)[0])


@pytest.mark.parametrize("reach", [0.5, 3.0])
def test_rows_of_known_levels_keep_the_score_of_the_fit(reach):
    """Re-expressed coefficients and region against the clipping that the fit used, cell by cell."""
    columns = Columns.declare(Table(RARE), {"age": (18, 65)}, {"job": DeclaredLevels(tuple(JOBS), 0)}, None)
    region = Region(np.array([0.1, 0.03, 0.4, 0.5]), np.array([0.3, 0.17, 0.5, 0.5]), reach, np.inf)
    compared = compare_levels(columns, region, np.array([], dtype=int), intercept=True)
    weights = RNG.normal(size=4)
    features = next(Table(RARE).feature_blocks(columns.levels))[1]
    own = region.in_units(columns.center, columns.scale)
    coef, offset = compared.published(weights.copy(), 1.5)
    scores = compared.row_map.scores(Table(RARE), coef, offset)
    np.testing.assert_allclose(scores, own(features) @ weights + 1.5, rtol=1e-12)
    shares = compared.row_map.fill[1:]
    assert shares.sum() == pytest.approx(1)
    np.testing.assert_allclose(shares, np.array([3, 40, 50]) / 93)


def test_a_baseline_without_visible_people_is_the_mean_of_the_others():
    """Its coefficient is noise, which would be part of all differences."""
    columns = Columns.declare(Table(RARE), {"age": (18, 65)}, {"job": DeclaredLevels(tuple(JOBS), 0)}, None)
    compared = compare_levels(columns, None, np.array([1]), intercept=True)
    coef, offset = compared.published(np.array([0.0, 99.0, 1.0, 3.0]), 0.0)
    assert (coef.tolist(), float(offset)) == ([0.0, -1.0, 1.0], 2.0)
