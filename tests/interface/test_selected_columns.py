"""Additive models that select columns: they find the useful ones, and the others have no effect anywhere."""

import json

import numpy as np
import pandas as pd
import pytest

import dpcvx as dp

NUMBERS = [f"x{j}" for j in range(30)]
KNOWN = {
    "epsilon": 2.5,
    "delta": 1e-7,
    "bounds": dict.fromkeys(NUMBERS, (-1, 1)),
    "categories": {"place": ["a", "b", "c"]},
    "y_bounds": (-8, 8),
    "random_state": 0,
}


def rows(n, seed):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(rng.uniform(-1, 1, (n, 30)), columns=NUMBERS)
    table.insert(3, "place", rng.choice(["a", "b", "c"], n))
    y = 3 * table["x1"].abs() + 2 * table["x7"] + (table["place"] == "b") + rng.normal(0, 0.5, n)
    return table, y.to_numpy()


TABLE, TARGET = rows(6000, 0)
NEW, TRUTH = rows(1000, 1)


@pytest.fixture(scope="module")
def model():
    return dp.PrivateAdditiveRegressor(**KNOWN, selected_columns=4).fit(TABLE, TARGET)


def r2(model):
    return 1 - np.mean((model.predict(NEW) - TRUTH) ** 2) / np.var(TRUTH)


@pytest.mark.long
def test_useful_columns_are_selected_and_shapes_are_found_that_all_columns_hide(model):
    assert len(model.shapes_.dropped) == 26
    assert not {"x1", "x7"} & {*model.shapes_.dropped}
    assert r2(model) > 0.75
    assert r2(dp.PrivateAdditiveRegressor(**KNOWN).fit(TABLE, TARGET)) < r2(model) - 0.1


@pytest.mark.long
def test_columns_that_were_not_selected_have_no_effect(model):
    other = NEW.copy()
    other[list(model.shapes_.dropped)] = 0.9
    assert np.array_equal(model.predict(other), model.predict(NEW))
    assert all(not model.shapes_[name].values.any() for name in model.shapes_.dropped)
    assert "26 columns of numbers were not selected" in str(model.shapes_)
    linear = dp.PrivateAdditiveRegressor(**KNOWN, selected_columns=4, extrapolation="linear")
    linear.fit(TABLE, TARGET)
    assert np.array_equal(linear.predict(other), linear.predict(NEW))
    parts = sum(
        np.interp(NEW[name], linear.shapes_[name].at, linear.shapes_[name].values) for name in NUMBERS
    )
    levels = dict(zip(linear.shapes_["place"].at, linear.shapes_["place"].values, strict=True))
    inside = linear.shapes_.intercept + parts + NEW["place"].map(levels)
    assert np.allclose(inside, linear.predict(NEW), atol=1e-6)


def test_statement_and_formula_say_what_was_selected(model):
    assert "4 of 30 columns of numbers, selected privately" in str(model.privacy_statement_)
    assert "which were not selected" in str(model.formula_)


def test_files_predict_the_same_bits(model, tmp_path):
    model.save(tmp_path / "model.json")
    loaded = dp.load(tmp_path / "model.json")
    assert np.array_equal(loaded.predict(NEW), model.predict(NEW))
    content = json.loads((tmp_path / "model.json").read_text())
    text = json.dumps(content).replace('"dropped": [', '"dropped": [99, ')
    (tmp_path / "wrong.json").write_text(text)
    with pytest.raises(ValueError, match="name features by their places"):
        dp.load(tmp_path / "wrong.json")


def test_onnx_predicts_the_same(model):
    pytest.importorskip("onnx", reason="onnx is an optional extra")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is an optional extra")
    session = runtime.InferenceSession(model.to_onnx().SerializeToString())
    cells = {name: NEW[[name]].to_numpy() for name in NUMBERS}
    (found,) = session.run(None, {**cells, "place": NEW[["place"]].to_numpy(dtype=object)})
    np.testing.assert_allclose(found, model.predict(NEW), rtol=1e-12, atol=1e-12)


def test_so_many_columns_that_all_are_kept_need_no_selection():
    made = dp.PrivateAdditiveRegressor(**KNOWN, selected_columns=30).plan(6000, list(TABLE))
    assert (
        made.event == dp.PrivateAdditiveRegressor(**KNOWN, interactions="none").plan(6000, list(TABLE)).event
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"selected_columns": 0}, "positive integer"),
        ({"selected_columns": 2.5}, "positive integer"),
        ({"selected_columns": 4, "uncertainty": 0.2}, "not known before the fit"),
        ({"selected_columns": 4, "monotone": {"x1": 1}}, "not known before the fit"),
        ({"selected_columns": 4, "interactions": 5}, "not known before the fit"),
        ({"selected_columns": 4, "standardize": False}, "need standardised columns"),
    ],
)
def test_wrong_demands_are_refused_before_the_fit(changes, message):
    with pytest.raises(ValueError, match=message):
        dp.PrivateAdditiveRegressor(**{**KNOWN, **changes}).fit(TABLE, TARGET)
