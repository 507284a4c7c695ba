"""What predicts is what is exported: pipelines and JSON to the bit, ONNX within rounding."""

import json
import pickle
import re
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.pipeline import Pipeline

import dpcvx as dp
from dpcvx.data.region import ordered_sum

PAGE = Path(__file__).parents[2] / "docs" / "prediction.md"
RNG = np.random.default_rng(5)
N = 400
NUMBERS = RNG.normal(5, 1.5, (N, 3))
TARGET = NUMBERS[:, 0] - NUMBERS[:, 1] + 0.1 * RNG.normal(size=N)
FRAME = pd.DataFrame(
    {"age": NUMBERS[:, 0], "sex": RNG.choice(["f", "m", "x"], N), "code": RNG.choice([1, 2], N)}
)
PUBLIC = {"epsilon": 50.0, "bounds": (0, 10), "random_state": 1}
RANGE = {"y_bounds": (-10, 10)}
NAMED = {**PUBLIC, "bounds": {"age": (0, 10)}, "categories": {"sex": ["f", "m", "x"], "code": [1, 2]}}
SPARSE = sp.random_array((N, 40), density=0.1, rng=np.random.default_rng(2), format="csr")


def fitted(name):
    if name not in MODELS:
        estimator, X, y = CASES[name]
        MODELS[name] = clone(estimator).fit(X, y)
    return MODELS[name]


MODELS: dict[str, dp.estimators.LinearModel] = {}
CASES = {
    "region": (dp.PrivateLinearRegression(**PUBLIC, **RANGE, standardize=True), NUMBERS, TARGET),
    "plain": (dp.PrivateLinearRegression(**PUBLIC, **RANGE, standardize=False), NUMBERS, TARGET),
    "private bounds": (
        dp.PrivateHuberRegressor(**{**PUBLIC, "bounds": "private"}, **RANGE, standardize=True),
        NUMBERS,
        TARGET,
    ),
    "frame": (dp.PrivateLinearRegression(**NAMED, **RANGE, standardize=True), FRAME, TARGET),
    "labels": (
        dp.PrivateLogisticRegression(**NAMED, classes=("no", "yes"), standardize=True),
        FRAME,
        np.where(TARGET > 0, "yes", "no"),
    ),
    "three": (
        dp.PrivateLogisticRegression(**PUBLIC, classes=(0, 1, 2)),
        NUMBERS,
        np.digitize(TARGET, [-1, 1]),
    ),
    "svc": (dp.PrivateLinearSVC(**PUBLIC, classes=(False, True)), NUMBERS, TARGET > 0),
    "matrix": (
        dp.PrivateLowRankRegression(**PUBLIC, y_bounds=([-10, 0], [10, 9])),
        NUMBERS,
        np.stack([TARGET, NUMBERS[:, 2]], 1),
    ),
    "sparse": (dp.PrivateLasso(**PUBLIC, **RANGE, radius=1.0), SPARSE, np.asarray(SPARSE.sum(axis=1))),
}
ODD = [np.nan, np.inf, -np.inf, 1e308, -1e308, 1e9, -0.0, 0.0, 5e-324, 11.0]


def hostile_array(n, d):
    """Rows of which many cells are missing, infinite or far beyond the bounds."""
    rng = np.random.default_rng(n)
    rows = rng.normal(5, 4, (n, d))
    odd = rng.random((n, d)) < 0.2
    rows[odd] = rng.choice(ODD, odd.sum())
    return rows


def hostile_frames():
    rng = np.random.default_rng(8)
    ages = hostile_array(90, 1)[:, 0]
    sexes = rng.choice(np.array(["f", "m", "F", " m", "", "other", None], dtype=object), 90)
    codes = rng.choice([1.0, 2.0, 3.0, np.nan, np.inf], 90)
    columns = {"age": ages, "sex": sexes, "code": codes}
    yield pd.DataFrame(columns)
    yield pl.DataFrame({**columns, "sex": list(sexes)})
    yield pa.table({**columns, "sex": pa.array(list(sexes))})
    yield pd.DataFrame({**columns, "sex": pd.Categorical(sexes)})


def hostile_rows(name):
    model = fitted(name)
    if hasattr(model, "feature_names_in_"):
        return list(hostile_frames())
    d = model.n_features_in_
    text = hostile_array(20, d).astype(object)
    text[3, 0], text[4, 1], text[5, 2] = "7.5", "no number", None
    rows = [hostile_array(n, d) for n in (1, 2, 31, 32, 33, 500)] + [text, hostile_array(9, d).tolist()]
    rows.append(np.asfortranarray(hostile_array(70, d)))
    if model._row_map.bounds is None:
        rows.append(
            sp.csr_array(np.where(np.random.default_rng(1).random((50, d)) < 0.6, 0, hostile_array(50, d)))
        )
    return rows


def same_bits(one, other):
    assert one.dtype == other.dtype
    assert one.shape == other.shape
    assert one.dtype == object or one.tobytes() == other.tobytes()
    assert_array_equal(one, other)


@pytest.mark.parametrize("extrapolation", ["clip", "linear"])
@pytest.mark.parametrize("name", CASES)
def test_the_pipeline_predicts_the_same_bits_on_hostile_rows(name, extrapolation):
    model = fitted(name).set_params(extrapolation=extrapolation)
    pipeline = pickle.loads(pickle.dumps(model.to_sklearn()))
    assert type(pipeline) is Pipeline
    for rows in hostile_rows(name):
        for method in ("predict", "decision_function", "predict_proba", "predict_log_proba"):
            assert hasattr(pipeline, method) == hasattr(model, method)
            if hasattr(model, method):
                with np.errstate(all="ignore"):
                    same_bits(getattr(pipeline, method)(rows), getattr(model, method)(rows))


@pytest.mark.parametrize("name", ["region", "three", "sparse"])
def test_a_row_is_predicted_alone_as_among_others(name):
    model = fitted(name).set_params(extrapolation="clip")
    rows = hostile_array(70, model.n_features_in_)
    together = model.predict(rows)
    same_bits(np.concatenate([model.predict(row[None]) for row in rows]), together)
    same_bits(model.predict(np.repeat(rows, 9, axis=0))[::9], together)


def test_sums_are_added_in_the_order_of_the_features():
    for n in (1, 40):
        terms = np.tile([1.0, 1e16, -1e16, 3.0], (n, 1))
        assert_array_equal(ordered_sum(terms), ((1.0 + 1e16) - 1e16) + 3.0)
        assert not np.signbit(ordered_sum(np.full((n, 2), -0.0))).any()


def documented_evaluation():
    """The function that the page shows, in a namespace without dpcvx."""
    code = re.search(r"<!-- evaluate:.*?-->\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[1]
    assert "dpcvx" not in code
    space = {}
    exec(code, space)
    return space["evaluate"]


def cells_of(rows):
    """Rows as lists of plain cells, as somebody without dpcvx would read them."""
    listed = rows.itertuples(index=False) if hasattr(rows, "itertuples") else rows
    return [[cell.strip() if isinstance(cell, str) else cell for cell in row] for row in listed]


@pytest.mark.parametrize("extrapolation", ["clip", "linear"])
@pytest.mark.parametrize("name", CASES)
def test_the_saved_formula_has_the_same_bits_with_numpy_alone(tmp_path, name, extrapolation):
    model = fitted(name).set_params(extrapolation=extrapolation)
    model.save(tmp_path / "model.json")
    formula = json.loads((tmp_path / "model.json").read_text())["formula"]
    assert formula == json.loads(model.formula_.to_json())
    named = hasattr(model, "feature_names_in_")
    rows = next(iter(hostile_frames())) if named else hostile_array(60, model.n_features_in_)
    with np.errstate(all="ignore"):
        found = documented_evaluation()(formula, cells_of(rows))
        same_bits(found, model.decision_function(rows) if hasattr(model, "classes_") else model.predict(rows))


@pytest.mark.parametrize("name", CASES)
def test_linear_extrapolation_is_the_coefficients_alone(name):
    model = fitted(name).set_params(extrapolation="linear")
    X = CASES[name][1]
    if name in ("frame", "labels"):
        X = np.column_stack(
            [
                X["age"],
                X["sex"] == "m",
                X["sex"] == "x",
                X["code"] == 2,
            ]  # the first level of a column is its baseline
        ).astype(float)
    scores = model.decision_function if hasattr(model, "classes_") else model.predict
    np.testing.assert_allclose(
        scores(CASES[name][1]), X @ model.coef_.T + model.intercept_, rtol=1e-12, atol=1e-12
    )


def test_clipping_matters_and_is_the_default():
    model = clone(CASES["region"][0]).fit(NUMBERS, TARGET)
    linear = NUMBERS @ model.coef_ + model.intercept_
    assert (abs(model.predict(NUMBERS) - linear) > 1e-9).mean() > 0.02
    far = np.array([[1e6, 5.0, 5.0]])
    assert abs(model.predict(far)) < 100 < abs(model.set_params(extrapolation="linear").predict(far))


def test_intervals_follow_the_extrapolation():
    model = dp.PrivateLinearRegression(**PUBLIC, **RANGE, standardize=True, uncertainty=0.3).fit(
        NUMBERS, TARGET
    )
    far = np.array([[1e3, 5.0, 5.0]])
    near = model.predict_interval(far)
    wide = model.set_params(extrapolation="linear").predict_interval(far)
    assert np.ptp(wide) > 10 * np.ptp(near)


def test_another_extrapolation_is_refused_with_the_choices():
    model = clone(CASES["plain"][0]).fit(NUMBERS, TARGET).set_params(extrapolation="constant")
    with pytest.raises(ValueError, match=r'"clip" or "linear", got \'constant\''):
        model.predict(NUMBERS)
    with pytest.raises(ValueError, match="extrapolation"):
        dp.PrivateLasso(**PUBLIC, **RANGE, extrapolation=True).fit(NUMBERS, TARGET)


@pytest.mark.parametrize("name", CASES)
def test_the_text_says_every_step_and_every_digit(name):
    model = fitted(name).set_params(extrapolation="clip")
    text = str(model.formula_)
    assert text.startswith(f"Prediction of {type(model).__name__} for one row:\n1. ")
    assert ("Clip to the region" in text) == (model._row_map.region is not None)
    assert ("Clip to the private bounds" in text) == (model._row_map.bounds is not None)
    assert ("probability" in text) == hasattr(model, "predict_proba")
    for value in np.ravel(model.coef_)[:20]:
        assert repr(float(value)) in text
    assert "region" not in str(model.set_params(extrapolation="linear").formula_).lower()


def test_an_exported_model_is_never_fitted():
    pipeline = fitted("plain").to_sklearn()
    with pytest.raises(dp.Incompatible, match=r"would not be private.*to_sklearn\(\)"):
        pipeline.fit(NUMBERS, TARGET)
    again = clone(pipeline)  # an export has no state besides its parameters
    same_bits(again.predict(NUMBERS), pipeline.predict(NUMBERS))


def test_the_pipeline_refuses_other_columns_as_the_model_does():
    model = fitted("frame")
    for rows in (FRAME[["age", "sex"]], FRAME.rename(columns={"age": "years"})):
        with pytest.raises(ValueError, match="feature names") as one:
            model.predict(rows)
        with pytest.raises(ValueError, match="feature names") as other:
            model.to_sklearn().predict(rows)
        assert str(other.value).replace("FeatureMap", type(model).__name__) == str(one.value)


def test_the_first_step_shows_what_coefficients_multiply():
    model = fitted("frame").set_params(extrapolation="clip")
    pipeline = model.to_sklearn()
    features = pipeline["features"].transform(FRAME)
    assert pipeline["features"].get_feature_names_out().tolist() == model.coef_names_.tolist()
    np.testing.assert_allclose(
        features @ pipeline["model"].coef_ + pipeline["model"].intercept_, model.predict(FRAME)
    )


def test_a_missing_cell_of_a_sparse_row_counts_as_in_a_dense_one():
    model = fitted("plain").set_params(extrapolation="clip")
    rows = np.array([[np.nan, 1.0, 0.0]])
    same_bits(model.predict(sp.csr_array(rows)), model.predict(rows))


# -- ONNX


def onnx_inputs(model, rows):
    if not hasattr(model, "feature_names_in_"):
        return {"X": np.asarray(rows, dtype=np.float64)}
    stripped = rows["sex"].map(lambda cell: cell.strip() if isinstance(cell, str) else "")
    sexes = stripped.to_numpy(dtype=object)
    return {"age": rows[["age"]].to_numpy(), "sex": sexes[:, None], "code": rows[["code"]].to_numpy()}


@pytest.mark.parametrize("extrapolation", ["clip", "linear"])
@pytest.mark.parametrize("name", CASES)
def test_onnx_predicts_within_rounding(name, extrapolation):
    pytest.importorskip("onnx", reason="onnx is an optional extra")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime runs the ONNX models of this test")
    model = fitted(name).set_params(extrapolation=extrapolation)
    session = runtime.InferenceSession(model.to_onnx().SerializeToString())
    rows = (
        next(iter(hostile_frames()))
        if name in ("frame", "labels")
        else hostile_array(60, model.n_features_in_)
    )
    if name not in ("frame", "labels"):
        rows = np.where(abs(rows) > 1e300, 1.0, rows)  # sums that overflow have no rounding error
    else:
        rows = rows[~(abs(rows["age"]) > 1e300) | np.isinf(rows["age"])]
    found = dict(
        zip(
            [output.name for output in session.get_outputs()],
            session.run(None, onnx_inputs(model, rows)),
            strict=True,
        )
    )
    features = model.to_sklearn()["features"].transform(rows)
    limit = model.n_features_in_ * 8 * 2.0**-52 * (abs(features) @ abs(model.coef_.T) + abs(model.intercept_))
    if not hasattr(model, "classes_"):
        assert (abs(found["prediction"] - model.predict(rows)) <= limit).all()
        return
    assert (abs(found["scores"] - model.decision_function(rows)) <= limit).all()
    assert_array_equal(found["label"], model.predict(rows))
    if hasattr(model, "predict_proba"):
        np.testing.assert_allclose(found["probabilities"], model.predict_proba(rows), atol=1e-12)


def test_a_missing_cell_is_the_level_that_is_written_like_one_in_onnx_too():
    pytest.importorskip("onnx", reason="onnx is an optional extra")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime runs the ONNX models of this test")
    rows = pd.DataFrame({"land": ["NA", "DE", None, ""] * 50})
    settings = {"epsilon": 50.0, "bounds": {}, "categories": {"land": ["DE", "NA"]}, "random_state": 0}
    model = dp.PrivateLasso(**settings, y_bounds=(0, 1)).fit(rows, np.arange(200) % 2)
    session = runtime.InferenceSession(model.to_onnx().SerializeToString())
    cells = np.array([["NA"], ["DE"], [""], ["FR"]], dtype=object)
    (found,) = session.run(None, {"land": cells})
    np.testing.assert_allclose(found, model.predict(pd.DataFrame({"land": cells[:, 0]})), rtol=1e-12)
    assert found[0] == found[2] != found[3]


DERIVED = dp.TableSchema(
    {
        "age": dp.NumberColumn((0, 10), missing_codes=[99]),
        "sex": dp.LevelColumn(["f", "m"], other="else", missing="m", missing_codes=["refused"]),
        "code": dp.LevelColumn([1, 2], other=3, missing_codes=[-9]),
        "smoker": dp.BooleanColumn(),
        "born": dp.DateColumn(("1950-01-01", "2010-12-31"), since="1970-01-01", missing_codes=["1900-01-01"]),
        "visit": dp.DateColumn(("2019-03-01", "2022-12-31"), parts=("year", "month", "weekday")),
        "town": dp.HashedColumn(5, missing_codes=["unknown"]),
    }
)


def derived_rows(n=400):
    rng = np.random.default_rng(4)
    days = rng.integers(-40_000, 40_000, n).astype("datetime64[D]").astype(str)  # 1860 to 2079, leap days too
    days[:6] = ["2000-02-29", "1900-02-28", "1900-03-01", "1970-01-01", "1969-12-31", "2020-12-31"]
    return pd.DataFrame(
        {
            "age": rng.choice([1.0, 5.5, 99.0, np.nan, 12.0], n),
            "sex": rng.choice(["f", "m", "", "x", "refused", "NA"], n),
            "code": rng.choice([1.0, 2.0, 7.0, -9.0, np.nan], n),
            "smoker": rng.choice([1.0, 0.0, 0.5, np.nan], n),
            "born": np.where(rng.random(n) < 0.2, rng.choice(["1900-01-01", ""], n), days),
            "visit": np.where(rng.random(n) < 0.1, "", rng.permutation(days)),
            "town": rng.choice(["York", "Bath", "unknown", "Rye", ""], n),
        }
    )


@pytest.mark.parametrize("maps", [None, "auto"])
def test_onnx_reads_dates_buckets_booleans_and_other_levels(maps):
    pytest.importorskip("onnx", reason="onnx is an optional extra")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime runs the ONNX models of this test")
    rows, y = derived_rows(), np.random.default_rng(0).normal(size=400)
    model = dp.PrivateLinearRegression(
        epsilon=50.0, schema=DERIVED, y_bounds=(-3, 3), check=0, maps=maps, random_state=0
    ).fit(rows, y)
    session = runtime.InferenceSession(model.to_onnx().SerializeToString())

    def days(name):
        dates = pd.to_datetime(rows[name].replace("", None)).to_numpy("datetime64[D]")
        return np.where(np.isnat(dates), np.nan, dates.astype(float))[:, None]

    inputs = {name: rows[[name]].to_numpy(float) for name in ("age", "code", "smoker")}
    inputs |= {"sex": rows[["sex"]].to_numpy(object)}
    inputs |= {f"{name}.days_since_1970": days(name) for name in ("born", "visit")}
    inputs["town.bucket"] = (
        DERIVED.columns["town"].variables("town")[0].read(rows["town"].to_numpy(object))[:, None]
    )
    assert {each.name for each in session.get_inputs()} == set(inputs)
    (found,) = session.run(None, inputs)
    np.testing.assert_allclose(found, model.predict(rows), rtol=1e-10, atol=1e-12)


def test_without_onnx_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(ImportError, match=r'pip install "dpcvx\[onnx\]"'):
        fitted("plain").to_onnx()
