"""bounds="private" in every estimator and for every kind of dense table."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone

import dpcvx
from zoo import CLASSIFIERS, REGRESSORS

RNG = np.random.default_rng(1)
N = 6000
X = np.column_stack([RNG.normal(40, 10, N), RNG.lognormal(8, 0.5, N), (RNG.random(N) < 0.3).astype(float)])
T = 0.05 * (X[:, 0] - 40) + X[:, 2] + RNG.normal(0, 0.3, N)
Y = (T.mean() < T).astype(int)
COMMON = {"epsilon": 8.0, "bounds": "private", "n_iter": 3, "random_state": 5}
OTHER_TARGETS = (dpcvx.PrivateLowRankRegression, dpcvx.PrivateFractionalRegressor)
ONE_TARGET = [kind for kind in REGRESSORS if kind not in OTHER_TARGETS]


def ranges(model):
    bounds = model.privacy_statement_.bounds["bounds"]
    return np.array([bounds["low"], bounds["high"]])


@pytest.mark.parametrize("kind", ONE_TARGET, ids=lambda kind: kind.__name__)
def test_every_regressor_takes_them_for_features_and_target(kind):
    model = kind(**COMMON, y_bounds="private").fit(X, T)
    (low, high), facts = ranges(model), model.privacy_statement_.bounds
    assert (low <= np.quantile(X, 0.1, axis=0)).all()
    assert (high >= np.quantile(X, 0.9, axis=0)).all()
    assert (high - low < 6 * (X.max(axis=0) - X.min(axis=0))).all()
    assert facts["y_bounds"][0] < np.quantile(T, 0.1) < np.quantile(T, 0.9) < facts["y_bounds"][1]
    assert "noisy quantiles" in facts["bounds_are"]
    assert "noisy quantiles" in facts["y_bounds_are"]
    assert np.isfinite(model.predict(X)).all()
    assert float(dpcvx.private_score(model, X, T, epsilon=1.0)) <= 1


@pytest.mark.parametrize("kind", CLASSIFIERS, ids=lambda kind: kind.__name__)
def test_every_classifier_takes_them(kind):
    model = kind(**{**COMMON, "n_iter": None}, classes=(0, 1)).fit(X, Y)
    assert np.mean(model.predict(X) == Y) > 0.7
    assert "NoisyQuantile, 3 times" in str(model.privacy_statement_)
    assert "3 x NoisyQuantile" in str(model.plan_)


def test_several_targets_have_bounds_of_their_own():
    targets = np.column_stack([T, 100 * T + 5])
    model = dpcvx.PrivateLowRankRegression(**COMMON, y_bounds="private").fit(X, targets)
    low, high = (np.array(part) for part in model.privacy_statement_.bounds["y_bounds"])
    assert 20 < (high - low)[1] / (high - low)[0] < 500


@pytest.mark.filterwarnings("ignore:The released mean of x0, x1 is within its noise of the upper bound")
def test_declared_bounds_ask_nothing():
    model = dpcvx.PrivateLasso(**{**COMMON, "bounds": (0, 1)}, y_bounds=(0, 1), check=0).fit(X, T)
    assert model.plan_.before == ()
    assert "bounds_are" not in model.privacy_statement_.bounds


NAMES = ["age", "income", "member"]
TABLES = {
    "pandas": pd.DataFrame(X, columns=NAMES),
    "polars": pl.DataFrame(X, schema=NAMES),
    "arrow": pa.table({name: X[:, j] for j, name in enumerate(NAMES)}),
    "lists": X.tolist(),
}


@pytest.mark.parametrize("kind", TABLES)
def test_tables_of_every_kind_give_the_same_bounds(kind):
    settings = {**COMMON, "classes": (0, 1)}
    table, plain = (dpcvx.PrivateLogisticRegression(**settings).fit(rows, Y) for rows in (TABLES[kind], X))
    assert np.array_equal(ranges(table), ranges(plain))


def test_columns_of_levels_need_none():
    frame = pd.DataFrame({"age": X[:, 0], "city": np.where(X[:, 2] > 0, "A", "B")})
    settings = {**COMMON, "classes": (0, 1), "categories": {"city": ["A", "B"]}}
    model = dpcvx.PrivateLogisticRegression(**settings).fit(frame, Y)
    assert model.plan_.before[0].n_calls == 1
    assert ranges(model)[:, 1:].tolist() == [[0.0], [1.0]]


def test_with_a_norm_cells_are_clipped_to_them():
    model = dpcvx.PrivateLogisticRegression(**COMMON, classes=(0, 1), data_norm=1e4).fit(X, Y)
    assert model.privacy_statement_.bounds["data_norm"] == 1e4


def test_models_are_cloned_and_saved_with_what_was_released(tmp_path):
    model = dpcvx.PrivateLinearRegression(**COMMON, y_bounds="private").fit(X, T)
    assert clone(model).bounds == "private"
    model.save(tmp_path / "model.json")
    again = dpcvx.load(tmp_path / "model.json")
    assert np.array_equal(again.predict(X), model.predict(X))
    assert again.privacy_statement_ == model.privacy_statement_
    score = dpcvx.private_score(again, X, T, epsilon=1e3, scoring="neg_mean_absolute_error")
    assert 0 < -score.value < 2


def test_a_search_pays_for_the_bounds_of_every_trial():
    base = dpcvx.PrivateLogisticRegression(**COMMON, classes=(0, 1))
    search = dpcvx.PrivateSearchCV(base, {"radius": [3.0, 30.0]}, n_trials=2.0).fit(X, Y)
    assert "NoisyQuantile" in str(search.privacy_statement_)
    assert 7.9 < search.privacy_statement_.certified_epsilon <= 8
    lasso = dpcvx.PrivateLasso(**COMMON, y_bounds="private")
    with pytest.raises(ValueError, match="bounds of one target"):
        dpcvx.PrivateSearchCV(lasso, {"radius": [3.0]}).fit(X, T)


def test_new_rows_are_clipped_to_what_the_fit_saw():
    plain = {**COMMON, "standardize": False}  # a standardised fit has a region of its own
    model = dpcvx.PrivateLinearRegression(**plain, y_bounds="private").fit(X, T)
    low, high = ranges(model)
    far = np.array([high + 1e6, low - 1e6])
    assert np.array_equal(model.predict(far), model.predict(np.array([high, low])))
    inside = X[((low <= X) & (high >= X)).all(axis=1)]
    assert model.predict(inside) == pytest.approx(inside @ model.coef_ + model.intercept_)
    declared = dpcvx.PrivateLinearRegression(**{**plain, "bounds": (low, high)}, y_bounds=(-3, 3)).fit(X, T)
    assert declared.predict(far) == pytest.approx(far @ declared.coef_ + declared.intercept_)
    with pytest.raises(TypeError, match="released bounds"):
        model.predict(csr_array(X[:2]))


def test_other_words_are_refused():
    with pytest.raises(ValueError, match="bounds must be a pair"):
        dpcvx.PrivateLasso(epsilon=1.0, bounds="from_X", y_bounds=(0, 1)).fit(X, T)
    with pytest.raises(ValueError, match="y_bounds must be a pair"):
        dpcvx.PrivateLasso(epsilon=1.0, bounds=(0, 1), y_bounds="from_y").fit(X, T)
    schema = dpcvx.TableSchema({"a": dpcvx.NumberColumn((0, 1))})
    with pytest.raises(ValueError, match="Give a schema as schema="):
        dpcvx.PrivateLasso(epsilon=1.0, bounds=schema, y_bounds=(0, 1)).fit(X, T)
