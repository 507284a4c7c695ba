"""The estimators' contract: parameters, units, schema, attributes."""

from __future__ import annotations

import inspect
import math
import re
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression

import dpcvx
from dpcvx import (
    Incompatible,
    L1Ball,
    L2Ball,
    PrivacyLeakWarning,
    PrivateAdditiveClassifier,
    PrivateAdditiveRegressor,
    PrivateElasticNet,
    PrivateGroupLasso,
    PrivateHuberRegressor,
    PrivateLasso,
    PrivateLinearRegression,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateLowRankRegression,
    PrivateQuantileRegressor,
    PrivateStructuredLasso,
)
from dpcvx.data.target import Amounts
from dpcvx.estimators import LinearRegressor
from dpcvx.solvers import NoisyGradientDescent
from dpcvx.solvers.typical_data import inflation
from zoo import CLASSIFIERS, REGRESSORS

COMMON = {
    "epsilon": None,
    "delta": None,
    "bounds": None,
    "data_norm": None,
    "categories": None,
    "maps": "auto",
    "schema": None,
    "fit_intercept": True,
    "radius": None,
    "l2": 0,
    "standardize": "auto",
    "extrapolation": "clip",
    "uncertainty": 0,
    "check": 0.01,
    "person": None,
    "persons": None,
    "max_rows": None,
    "weight_bounds": None,
    "public": None,
    "solver": "auto",
    "n_iter": None,
    "ledger": None,
    "account": None,
    "random_state": None,
    "backend": "auto",
    "verbose": 0,
}
SHAPES = {
    "knots": "auto",
    "interactions": "auto",
    "monotone": None,
    "bounded": None,
    "selected_columns": None,
}
OWN = {
    PrivateLinearRegression: {"y_bounds": None},
    PrivateLasso: {"y_bounds": None},
    PrivateElasticNet: {"y_bounds": None, "l2": None},
    PrivateGroupLasso: {"y_bounds": None, "groups": None},
    PrivateStructuredLasso: {"y_bounds": None, "set_function": None},
    PrivateLowRankRegression: {"y_bounds": None},
    PrivateHuberRegressor: {"y_bounds": None, "domain": "l2", "threshold": None},
    PrivateQuantileRegressor: {"y_bounds": None, "domain": "l2", "quantile": 0.5},
    PrivateLogisticRegression: {"classes": None, "domain": "l2", "class_weight": None},
    PrivateLinearSVC: {"classes": None, "domain": "l2"},
    PrivateAdditiveClassifier: {"classes": None, "domain": "l2", "class_weight": None, **SHAPES},
    PrivateAdditiveRegressor: {"y_bounds": None, **SHAPES},
}


def people(n=300, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 10, (n, d))
    y = 2 * X[:, 0] - X[:, 1] + 5
    return X, y


def regression(kind=PrivateLinearRegression, **changes):
    settings = {"epsilon": 20.0, "delta": 1e-5, "bounds": (0, 10), "y_bounds": (-5, 25), "random_state": 0}
    return kind(**{**settings, **changes})


def classification(kind=PrivateLogisticRegression, **changes):
    settings = {"epsilon": 20.0, "delta": 1e-5, "bounds": (0, 10), "classes": (0, 1), "random_state": 0}
    return kind(**{**settings, **changes})


@pytest.mark.parametrize("kind", OWN, ids=lambda kind: kind.__name__)
def test_parameters_are_keyword_only_with_the_documented_defaults(kind):
    parameters = inspect.signature(kind).parameters
    assert {name: entry.default for name, entry in parameters.items()} == {**COMMON, **OWN[kind]}
    assert all(entry.kind is entry.KEYWORD_ONLY for entry in parameters.values())
    for name in parameters:
        assert f"\n{name} : " in kind.__doc__


# -- units


def test_coefficients_come_back_in_the_users_units():
    X, y = people(4000)
    model = regression(radius=3.0).fit(X, y)
    np.testing.assert_allclose(model.coef_, [2, -1, 0, 0], atol=0.15)
    assert abs(model.intercept_ - 5) < 1.5
    assert model.coef_.dtype == np.float64
    assert isinstance(model.intercept_, float)
    np.testing.assert_allclose(model.predict(X), X @ model.coef_ + model.intercept_, rtol=1e-12)


@pytest.mark.parametrize("kind", [kind for kind in REGRESSORS if kind.predict is LinearRegressor.predict])
@pytest.mark.long
def test_the_map_back_is_the_one_of_the_door(kind):
    X, y = people()
    low, high = np.array([0, -5, 0, 2.0]), np.array([10, 10, 12, 11.0])
    model = regression(kind, bounds=(low, high), standardize=False).fit(X, y)
    theta = model.release_.theta
    scaled = (X - (low + high) / 2) / ((high - low) / 2)
    by_hand = 10 + 15 * (scaled @ theta[:-1] + theta[-1])
    np.testing.assert_allclose(model.predict(X), by_hand, rtol=1e-9)


def test_with_data_norm_columns_share_one_scale_and_the_intercept_is_cheap():
    X, y = people()
    labels = (y > 10).astype(int)
    model = classification(data_norm=20.0, standardize=False).fit(X, labels)
    theta = model.release_.theta
    by_hand = (X / 20 @ theta[:-1] + 0.2 * theta[-1]) / inflation(0.5)
    np.testing.assert_allclose(model.decision_function(X), by_hand, rtol=1e-9)
    assert model.plan_.problem.bounds == dpcvx.Bounds(1.0, math.sqrt(1 + 0.2**2))
    in_l1 = classification(data_norm=20.0, domain="l1").fit(X, labels)
    assert in_l1.plan_.problem.bounds == dpcvx.Bounds(1.0, math.sqrt(2))


def test_units_of_data_norm_do_not_matter():
    # A peer multiplied by the norm where its square belongs: rescaled data then had another guarantee.
    X, y = people()
    labels = (y > 10).astype(int)
    one = classification(bounds=(0, 10), data_norm=16.0).fit(X, labels)
    other = classification(bounds=(0, 500), data_norm=800.0).fit(50 * X, labels)
    np.testing.assert_array_equal(one.release_.theta, other.release_.theta)
    assert one.plan_.stages == other.plan_.stages
    np.testing.assert_allclose(one.coef_, 50 * other.coef_, rtol=1e-12)


def test_bounds_clip_before_data_norm_shrinks():
    X, y = people(50)
    labels = (y > 10).astype(int)
    beyond = X.copy()
    beyond[:, 0] = 10.0
    far = beyond.copy()
    far[:, 0] = 1e6
    models = [classification(data_norm=16.0, standardize=False).fit(rows, labels) for rows in (beyond, far)]
    models += [
        classification(data_norm=16.0, standardize=False).fit(sp.csr_array(rows), labels)
        for rows in (beyond, far)
    ]
    for model in models[1:]:
        np.testing.assert_array_equal(models[0].release_.theta, model.release_.theta)


def test_sparse_rows_are_scaled_without_centring():
    X, y = people()
    labels = (y > 10).astype(int)
    model = classification().fit(sp.csr_matrix(X), labels)
    theta = model.release_.theta
    by_hand = (X / 10 @ theta[:-1] + theta[-1]) / inflation(0.5)
    np.testing.assert_allclose(model.decision_function(sp.coo_array(X)), by_hand, rtol=1e-9)
    np.testing.assert_allclose(model.decision_function(X), by_hand, rtol=1e-9)
    with pytest.raises(ValueError, match="bounds must contain 0"):
        classification(bounds=(1, 10)).fit(sp.csr_matrix(X), labels)


def test_duplicate_entries_are_summed_then_clipped():
    X, y = people(60, 2)
    labels = (y > 10).astype(int)
    cells = np.stack([X.ravel() + 12, np.full(X.size, -12.0)], axis=1).ravel()
    columns, starts = np.tile([0, 0, 1, 1], 60), np.arange(0, 241, 4)
    doubled = sp.csr_array((cells, columns, starts), shape=X.shape)
    one = classification().fit(sp.csr_array(X + 12 - 12), labels)
    np.testing.assert_array_equal(one.release_.theta, classification().fit(doubled, labels).release_.theta)


@pytest.mark.parametrize(
    ("store", "data_norm"),
    [(np.asarray, None), (np.asarray, 16.0), (sp.csr_array, None), (sp.csr_array, 16.0)],
)
@pytest.mark.filterwarnings("ignore:Perhaps no cell of x1 was recognised")  # none is
def test_an_infinite_cell_is_missing_and_not_clipped(store, data_norm):
    X, y = people(60)
    labels = (y > 10).astype(int)

    def fit(cell, maps):
        rows = X.copy()
        rows[:, 1] = cell
        return classification(data_norm=data_norm, maps=maps).fit(store(rows), labels).release_.theta

    # Cells of dense records that are missing can be told from those in the middle of their bounds.
    counted = data_norm is None and store is np.asarray
    for maps, cells in ((None, (np.inf, -np.inf, *[0.0] * (not counted))), ("auto", (np.inf, -np.inf))):
        missing = fit(np.nan, maps)
        for cell in cells:
            np.testing.assert_array_equal(fit(cell, maps), missing)


def test_intercept_is_inside_the_set_and_the_norm():
    # A peer left it out of both, and the proof with it.
    X, y = people()
    model = regression(radius=0.25).fit(X, y)
    assert model.release_.theta.shape == (5,)
    assert np.linalg.norm(model.release_.theta) <= 0.25 * (1 + 1e-9)
    assert model.plan_.problem.row_norm == pytest.approx(math.sqrt(5))
    without = regression(radius=0.25, fit_intercept=False).fit(X, y)
    assert without.release_.theta.shape == (4,)
    assert without.plan_.problem.row_norm == pytest.approx(2.0)


def test_pairs_by_column_taken_for_lows_and_highs_are_refused_with_the_way_out():
    X, y = people()
    with pytest.raises(ValueError, match=r"column x0 has \(0, 0\).*mapping from column to pair"):
        regression(bounds=[(0, 1), (0, 100)]).fit(X[:, :2], y)


def test_huber_threshold_is_in_units_of_y():
    X, y = people(50)
    assert regression(PrivateHuberRegressor, threshold=3.0).fit(X, y).plan_.problem.loss.threshold == 0.2
    assert regression(PrivateHuberRegressor).fit(X, y).plan_.problem.loss.threshold == 0.2


def test_quantiles_are_ordered():
    rng = np.random.default_rng(0)
    X, y = rng.uniform(0, 10, (3000, 1)), rng.uniform(0, 20, 3000)
    low, high = (regression(PrivateQuantileRegressor, quantile=q).fit(X, y) for q in (0.1, 0.9))
    assert low.predict([[5.0]])[0] < 6
    assert high.predict([[5.0]])[0] > 14


# -- classes


@pytest.mark.parametrize("kind", CLASSIFIERS)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_shapes_of_two_and_three_classes(kind, n_classes):
    X, y = people(1500)
    names = np.array(["low", "middle", "high"])[3 - n_classes :]
    labels = names[np.digitize(y, np.quantile(y, np.arange(1, n_classes) / n_classes))]
    straight = {"knots": 0, "interactions": "none"} if hasattr(kind, "knots") else {}
    model = classification(kind, classes=list(names), **straight).fit(X, labels)
    assert model.coef_.shape == ((4,) if n_classes == 2 else (3, 4))
    assert np.shape(model.intercept_) == (() if n_classes == 2 else (3,))
    assert model.classes_.tolist() == list(names)
    assert model.decision_function(X).shape == ((1500,) if n_classes == 2 else (1500, 3))
    assert (model.predict(X) == labels).mean() > (0.9 if n_classes == 2 else 0.6)
    assert model.plan_.problem.outputs == (1 if n_classes == 2 else 3)


@pytest.mark.parametrize("classes", [(0, 1), (0, 1, 2)])
def test_class_weights_move_scores_by_their_logarithms_and_nothing_else(classes):
    X, y = people()
    labels = np.digitize(y, [8, 14]).clip(max=max(classes))
    plain = classification(classes=classes).fit(X, labels)
    weights = {label: 2.0 + label**2 for label in classes}
    model = classification(classes=classes, class_weight=weights).fit(X, labels)
    np.testing.assert_array_equal(model.coef_, plain.coef_)
    moves = np.log([weights[label] for label in classes])
    moves = moves[1] - moves[0] if len(classes) == 2 else moves
    np.testing.assert_allclose(model.intercept_ - plain.intercept_, moves, rtol=1e-9)
    odds = model.predict_proba(X) / plain.predict_proba(X)
    np.testing.assert_allclose(odds[:, 1] / odds[:, 0], weights[1] / weights[0], rtol=1e-9)
    assert model.plan_.price.event == plain.plan_.price.event
    assert model.privacy_statement_.bounds["class_weights"] == pytest.approx(list(weights.values()))


def test_weights_do_what_a_weighted_loss_does_to_a_model_that_is_right():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10, (20_000, 2))
    y = (rng.random(20_000) < 1 / (1 + np.exp(4 - 0.5 * X[:, 0]))).astype(int)
    weights = {0: 1.0, 1: 5.0}
    model = classification(class_weight=weights, epsilon=50.0).fit(X, y)
    reference = LogisticRegression(class_weight=weights, C=1e6).fit(X, y)
    assert abs(model.predict_proba(X) - reference.predict_proba(X)).max() < 0.05


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ("balanced", "shares of the classes in y are private. Use shares that you know"),
        ({0: 1.0}, "every class"),
        ({0: 1.0, "1": 2.0}, "every class"),
        ({0: 1.0, 1: 0.0}, "positive finite"),
        ({0: 1.0, 1: np.inf}, "positive finite"),
        ([1, 2], "mapping"),
    ],
)
def test_other_class_weights_are_refused_in_words_before_a_charge(weights, words, tmp_path):
    X, y = people()
    account = dpcvx.Ledger(tmp_path / "l.db").create("people", epsilon=100.0, delta=0.1)
    paid = {"ledger": account.ledger, "account": "people", "random_state": None}
    with pytest.raises(ValueError, match=re.escape(words)):
        classification(class_weight=weights, **paid).fit(X, (y > 10).astype(int))
    assert not account.history()


@pytest.mark.parametrize("classes", [(0, 1), (0, 1, 2)])
def test_probabilities_add_up_and_agree_with_the_scores(classes):
    X, y = people(500)
    model = classification(classes=classes).fit(X, np.digitize(y, [8, 14])[: len(X)].clip(max=max(classes)))
    probability = model.predict_proba(X)
    np.testing.assert_allclose(probability.sum(axis=1), 1)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), probability)
    np.testing.assert_array_equal(model.classes_[probability.argmax(axis=1)], model.predict(X))
    if len(classes) == 2:
        np.testing.assert_allclose(probability[:, 1], 1 / (1 + np.exp(-model.decision_function(X))))


@pytest.mark.parametrize("kind", CLASSIFIERS)
@pytest.mark.parametrize("classes", [(0, 1), (0, 1, 2)])
def test_undeclared_and_missing_labels_contribute_nothing(kind, classes):
    X, y = people(200)
    labels = (y > 10).astype(object)
    labels[:20] = [7, None, math.nan, "x", 3.5] * 4
    other = X.copy()
    other[:20] = 10 - other[:20]
    # Means and deviations of features are of everybody; it is the fit that such a row has no part in.
    given = {"classes": classes, "n_iter": 5, "standardize": False}
    models = [classification(kind, **given).fit(rows, labels) for rows in (X, other)]
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)
    labels[:20] = 1
    counted = [classification(kind, **given).fit(rows, labels) for rows in (X, other)]
    assert not np.array_equal(counted[0].coef_, counted[1].coef_)


def test_labels_are_predicted_as_they_were_declared():
    X, y = people(100)
    labels = np.where(y > 10, "1", "0").astype(object)
    for classes in ((0, 1), ("0", "1"), (False, True), (" 0", "1.0")):
        model = classification(classes=classes, n_iter=5).fit(X, labels)
        assert set(model.predict(X).tolist()) <= set(classes)
    mixed = classification(classes=("no", 1), n_iter=5).fit(X, np.where(y > 10, 1, 0).astype(object))
    assert mixed.classes_.tolist() == ["no", 1]


def test_classes_from_y_are_declared_public():
    X, y = people(100)
    model = classification(classes="from_y").fit(X, np.where(y > 10, "yes", "no"))
    assert model.classes_.tolist() == ["no", "yes"]
    assert "public" in model.privacy_statement_.bounds["classes_are"]
    with pytest.raises(TypeError, match="labels of one kind"):
        classification(classes="from_y").fit(X, np.array([1, "a"] * 50, dtype=object))


TYPED = {
    "unicode": np.array,
    "bytes": lambda cells: np.array(cells, dtype="S"),
    "StringDType": lambda cells: np.array(cells, dtype=np.dtypes.StringDType()),
    "masked": np.ma.masked_array,
    "pandas str": lambda cells: pd.Series(cells, dtype="str"),
    "pandas string": lambda cells: pd.Series(cells, dtype="string"),
    "pandas on arrow": lambda cells: pd.Series(cells, dtype=pd.ArrowDtype(pa.string())),
    "pandas category": lambda cells: pd.Series(cells, dtype="str").astype("category"),
    "pandas index": lambda cells: pd.Index(cells, dtype="string"),
    "polars": pl.Series,
    "polars category": lambda cells: pl.Series(cells, dtype=pl.Categorical),
    "polars enum": lambda cells: pl.Series(cells, dtype=pl.Enum(["0", "1"])),
    "arrow": pa.array,
    "arrow binary": lambda cells: pa.array(cells, pa.binary()),
    "arrow dictionary": lambda cells: pa.array(cells).dictionary_encode(),
}
NUMERIC = {
    "integers": np.array,
    "booleans": lambda cells: np.array(cells, dtype=bool),
    "pandas nullable": lambda cells: pd.Series(cells, dtype="Int64"),
    "pandas category": lambda cells: pd.Series(cells).astype("category"),
    "pandas on arrow": lambda cells: pd.Series(cells, dtype=pd.ArrowDtype(pa.int64())),
    "polars": pl.Series,
    "arrow": pa.array,
    "arrow dictionary": lambda cells: pa.array(cells).dictionary_encode(),
}


@pytest.mark.parametrize("kind", {**TYPED, **NUMERIC})
def test_targets_are_read_cell_by_cell_in_every_type(kind):
    X, _ = people(20)
    given = TYPED[kind](["0", "1"] * 10) if kind in TYPED else NUMERIC[kind]([0, 1] * 10)
    for model in (
        regression(n_iter=2),
        classification(n_iter=2),
        classification(PrivateLinearSVC, classes=("0", "1"), n_iter=2),
        classification(classes=("no", True), n_iter=2),
    ):
        plain = model.fit(X, [0, 1] * 10).coef_
        np.testing.assert_array_equal(model.fit(X, given).coef_, plain)
    assert classification(classes=("0", "1"), n_iter=2).fit(X, given).classes_.tolist() == ["0", "1"]
    assert classification(classes="from_y", n_iter=2).fit(X, given).classes_.tolist() == [0, 1]


def test_one_target_of_text_among_several_is_read_cell_by_cell():
    X, y = people(20)
    model = regression(PrivateLowRankRegression, n_iter=2)
    plain = model.fit(X, np.column_stack([y, np.ones(20)])).coef_
    np.testing.assert_array_equal(model.fit(X, pl.DataFrame({"a": y, "b": ["1"] * 20})).coef_, plain)


@pytest.mark.parametrize(
    "convert", [list, lambda cells: np.array(cells, dtype=object)], ids=["list", "array"]
)
@pytest.mark.parametrize("odd", [["a"] * 20, [*range(19), "a"]], ids=["all", "one"])
def test_no_cell_of_an_object_array_decides_whether_a_fit_is_refused(convert, odd):
    X, _ = people(20)
    for model in (
        regression(n_iter=2),
        classification(n_iter=2),
        classification(classes=("a", "b"), n_iter=2),
    ):
        for y in (odd, list(range(20))):
            assert model.fit(X, convert(y)).n_iter_ == 2
    column = pd.Series(odd, dtype=object)
    assert regression(n_iter=2).fit(X, column).n_iter_ == 2


# -- tables


def frame():
    rng = np.random.default_rng(1)
    n = 400
    table = pd.DataFrame(
        {
            "age": rng.integers(17, 90, n),
            "sex": rng.choice(["Female", "Male"], n),
            "hours": rng.uniform(0, 99, n),
        }
    )
    return table, (table["sex"] == "Male").to_numpy() * 10 + table["hours"].to_numpy() / 10


DECLARED = {"bounds": {"age": (17, 90), "hours": (0, 99)}, "categories": {"sex": ["Female", "Male"]}}


@pytest.mark.parametrize(
    "convert",
    [
        lambda table: table,
        lambda table: table.astype({"sex": "category"}),
        pl.from_pandas,
        pa.Table.from_pandas,
    ],
    ids=["pandas", "category", "polars", "arrow"],
)
def test_every_kind_of_table_gives_the_same_model(convert):
    table, y = frame()
    model = regression(**DECLARED, y_bounds=(0, 20)).fit(convert(table), y)
    reference = regression(**DECLARED, y_bounds=(0, 20)).fit(table, y)
    assert model.coef_names_.tolist() == ["age", "sex=Male", "hours"]
    assert model.feature_names_in_.tolist() == ["age", "sex", "hours"]
    assert model.n_features_in_ == 3
    np.testing.assert_array_equal(model.coef_, reference.coef_)
    np.testing.assert_allclose(model.predict(convert(table)), reference.predict(table), rtol=1e-12)
    assert model.coef_[1] > 5


def test_levels_of_array_columns_are_declared_by_position():
    table, y = frame()
    cells = table.to_numpy(dtype=object)
    model = regression(bounds=(0, 99), categories={1: ["Female", "Male"]}, y_bounds=(0, 20)).fit(cells, y)
    assert model.coef_names_.tolist() == ["x0", "x1=Male", "x2"]
    np.testing.assert_allclose(
        model.predict(cells),
        regression(bounds=(0, 99), categories={"sex": ["Female", "Male"]}, y_bounds=(0, 20))
        .fit(table, y)
        .predict(table),
    )


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_unknown_levels_take_shares_of_the_levels(fit_intercept):
    table, y = frame()
    model = regression(**DECLARED, y_bounds=(0, 20), fit_intercept=fit_intercept, standardize=False).fit(
        table, y
    )
    new = pd.DataFrame({"age": [40] * 4, "sex": ["Female", "Male", "other", None], "hours": [50.0] * 4})
    female, male, *unknown = model.predict(new)
    np.testing.assert_allclose(unknown, (female + male) / 2)


def test_levels_shorten_the_row():
    table, y = frame()
    bounds = regression(**DECLARED, y_bounds=(0, 20), standardize=False).fit(table, y).plan_.problem
    assert bounds.row_norm == pytest.approx(2.0)  # age, one of sex, hours, the intercept


@pytest.mark.parametrize("standardize", [True, False])
def test_missing_cells_predict_as_the_released_mean_or_the_middle_of_their_bounds(standardize):
    X, y = people()
    model = regression(standardize=standardize).fit(X, y)
    middle = model.release_.region.in_units(5.0, 5.0).center if standardize else np.full(4, 5.0)
    odd = np.array([[np.nan, 1, np.inf, 2], [middle[0], 1, middle[2], 2.0]])
    assert model.predict(odd)[0] == pytest.approx(model.predict(odd)[1])


@pytest.mark.parametrize("convert", [lambda table: table, pl.from_pandas, pa.Table.from_pandas])
def test_text_without_levels_is_a_column_without_numbers(convert):
    table, y = frame()
    model = regression(bounds=(0, 99), n_iter=2, check=0)
    missing = table.assign(sex=np.nan)
    with pytest.warns(dpcvx.errors.UnrecognisedDataWarning, match="no cell of sex was recognised"):
        np.testing.assert_array_equal(model.fit(convert(table), y).coef_, model.fit(missing, y).coef_)


def test_text_cells_of_arrays_are_read_one_by_one():
    X, y = people(100)
    cells = X.astype(object)
    cells[:, 0] = [str(cell) for cell in X[:, 0]]
    cells[3, 1] = "secret"
    missing = X.copy()
    missing[3, 1] = np.nan
    np.testing.assert_array_equal(regression().fit(cells, y).coef_, regression().fit(missing, y).coef_)
    np.testing.assert_array_equal(
        regression().fit(cells.tolist(), y).coef_, regression().fit(missing, y).coef_
    )


@pytest.mark.parametrize(("standardize", "share"), [(False, 0.75), (True, 1.25)])
@pytest.mark.long
@pytest.mark.filterwarnings("ignore::dpcvx.UnrecognisedDataWarning")
def test_no_float_copy_of_the_records(standardize, share):
    """16-bit rows, a quarter of float64; standardisation holds three versions of them for a while."""
    import tracemalloc

    X = np.zeros((400_000, 20), dtype=np.float32)
    model = regression(n_iter=2, standardize=standardize, delta=1e-7)
    model.fit(X[:100], np.zeros(100))  # compiles
    tracemalloc.start()
    model.fit(X, np.zeros(len(X)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < share * X.size * 8


# -- parameters


@pytest.mark.parametrize("kind", OWN, ids=lambda kind: kind.__name__)
def test_an_unknown_parameter_is_refused_in_the_name_of_the_estimator(kind):
    with pytest.raises(TypeError, match=rf"^{kind.__name__}\.__init__\(\) got an unexpected .*'alpha'"):
        kind(alpha=1.0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epsilon": None}, "needs epsilon"),
        ({"epsilon": 0}, "epsilon must be a positive"),
        ({"epsilon": "1"}, "epsilon must be a positive"),
        ({"delta": 1.0}, "delta must be below 1"),
        ({"bounds": None}, "needs bounds"),
        ({"bounds": (3, 1)}, "low < high"),
        ({"bounds": (0, math.inf)}, "finite"),
        ({"bounds": 5}, "pair"),
        ({"bounds": ([0, 0], [1, 1])}, "each of the 4 columns"),
        ({"bounds": {0: (0, 1)}}, "missing for column"),
        ({"bounds": {"age": (0, 1)}}, "does not have"),
        ({"categories": {9: [1]}}, "does not have"),
        ({"categories": {0: []}}, "at least one level"),
        ({"categories": {0: [1, 1]}}, "different labels"),
        ({"data_norm": -1}, "data_norm must be a positive"),
        ({"y_bounds": None}, "needs y_bounds"),
        ({"y_bounds": (1, 1)}, "low < high"),
        ({"y_bounds": 3}, "pair"),
        ({"radius": 0}, "radius must be a positive"),
        ({"l2": -1}, "l2 must be 0 or a positive finite number, got -1"),
        ({"solver": "newton"}, "solver must be one of"),
        ({"solver": "frank_wolfe"}, "HasVertices"),
        ({"n_iter": 0}, "n_iter must be a positive integer"),
        ({"random_state": -1}, "random_state"),
        ({"ledger": "people"}, "ledger"),
        ({"account": "a"}, "account"),
        ({"backend": "spark"}, "backend"),
        ({"standardize": "yes"}, "standardize"),
    ],
)
def test_wrong_parameters_are_named(changes, words):
    X, y = people(20)
    with pytest.raises(ValueError, match=words):
        regression(**changes).fit(X, y)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"classes": None}, "needs classes"),
        ({"classes": "auto"}, "needs classes"),
        ({"classes": (1,)}, "at least two classes"),
        ({"classes": (1, 1)}, "different labels"),
        ({"classes": 3}, "different labels"),
        ({"domain": "l3"}, "domain must be"),
        ({"domain": L1Ball(2.0), "radius": 3.0}, "both fix the size"),
    ],
)
def test_wrong_parameters_of_classifiers_are_named(changes, words):
    X, _ = people(20)
    with pytest.raises(ValueError, match=words):
        classification(**changes).fit(X, np.arange(20) % 2)


def test_refused_values_leave_no_model_behind():
    X, y = people(20)
    model = classification(backend="spark")
    with pytest.raises(Incompatible):
        model.fit(X, y > 10)
    assert not [name for name in vars(model) if name.endswith("_")]


def test_class_weights_are_refused_with_a_reason():
    X, y = people(20)
    with pytest.raises(TypeError, match=r"does not take class_weight: .*(person)"):
        regression().fit(X, y, class_weight=np.ones(20))
    with pytest.raises(TypeError, match="unexpected keyword"):
        regression().fit(X, y, weight=np.ones(20))


def test_delta_defaults_to_a_public_rule():
    X, y = people(20)
    assert regression(delta=None).fit(X, y).plan_.budget.delta == 1e-5
    X, y = people(1000)
    assert regression(delta=None, epsilon=1.0).fit(X, y).plan_.budget.delta == 1e-6


@pytest.mark.long
def test_solvers_and_domains_by_name_or_object():
    X, y = people(50)
    labels = (y > 10).astype(int)
    assert classification(domain=L2Ball(2.5)).fit(X, labels).plan_.problem.domain == L2Ball(2.5)
    assert classification(domain="l1", radius=4).fit(X, labels).plan_.problem.domain == L1Ball(4.0)
    assert classification(l2=0.1).fit(X, labels).plan_.problem.l2 == 0.1
    model = classification(solver=NoisyGradientDescent(n_iter=9), n_iter=7).fit(X, labels)
    assert model.n_iter_ == 7
    assert model.plan_.solver.n_iter == 7
    lasso = regression(PrivateLasso, solver="frank_wolfe", n_iter=5).fit(X, y)
    fit = lasso.plan_.solver.innermost(lasso.plan_)  # without the questions that scale the target
    assert type(fit.solver).__name__ == "NoisyFrankWolfe"
    assert lasso.plan_.problem.domain == L1Ball(3.0)


@pytest.mark.parametrize("state", [7, np.int64(7), np.random.RandomState(7), np.random.default_rng(7)])
def test_seeded_runs_are_stamped(state):
    X, y = people(50)
    statement = regression(random_state=state).fit(X, y).privacy_statement_
    assert not statement.private
    assert str(statement).startswith("NOT PRIVATE")


def test_unseeded_runs_are_private_and_differ():
    X, y = people(50)
    models = [regression(random_state=None).fit(X, y) for _ in range(2)]
    assert models[0].privacy_statement_.private
    assert not np.array_equal(models[0].coef_, models[1].coef_)


@pytest.mark.parametrize("fitted", [regression, classification])
def test_score_warns_at_the_callers_line(fitted):
    X, y = people(50)
    model = fitted().fit(X, y if fitted is regression else y > 10)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            model.score(X, y > 10)
    assert [(entry.category, entry.filename) for entry in caught] == [(PrivacyLeakWarning, __file__)]


def test_progress_is_said_on_the_error_stream(capsys, monkeypatch):
    X, y = people(50)
    monkeypatch.setattr("dpcvx.estimators.progress.FIRST", 0.0)
    regression(n_iter=6).fit(X, y)
    assert capsys.readouterr() == ("", "")
    regression(verbose=1, n_iter=6).fit(X, y)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("PrivateLinearRegression: ")


def test_one_odd_label_in_a_list_does_not_change_the_others():
    X, y = people(100)
    labels = (y > 10).astype(int).tolist()
    for odd in ("x", None, 1j):
        poisoned = [odd, *labels[1:]]
        blank = [7, *labels[1:]]
        models = [classification(n_iter=5).fit(X, some) for some in (poisoned, blank)]
        np.testing.assert_array_equal(models[0].coef_, models[1].coef_)


@pytest.mark.parametrize("value", [0.5, 1.0, 0.3])
@pytest.mark.parametrize("store", [np.asarray, sp.csr_array])
def test_the_intercepts_feature_fits_into_the_norm(store, value):
    from dpcvx.data.lattice import integer_bounds
    from dpcvx.data.quantise import Quantiser

    bounds = dpcvx.Bounds(1.0, math.sqrt(1 + value**2))
    rows = np.random.default_rng(0).normal(size=(200, 5)) * 10
    stored = Quantiser(bounds, intercept=value).quantise(store(rows))
    integers = stored.values.reshape(200, 6).astype(np.int64)
    assert (integers[:, 5] == math.floor(2**14 * value)).all()
    largest = (integers**2).sum(axis=1).max()
    assert 0.999 * integer_bounds(bounds, 6)[1] < largest <= integer_bounds(bounds, 6)[1]


def test_numbered_columns_of_a_data_frame_have_no_names():
    X, y = people(50)
    model = regression(bounds={0: (0, 10), 1: (0, 10), 2: (0, 10), 3: (0, 10)}).fit(pd.DataFrame(X), y)
    assert not hasattr(model, "feature_names_in_")
    np.testing.assert_array_equal(model.coef_, regression().fit(X, y).coef_)


def test_amounts_are_scaled_and_not_centred():
    target = Amounts.declare((-1, 20), ())
    cells = [5, 0, 40, -3, math.nan, math.inf]
    np.testing.assert_array_equal(target.encode(cells)[:, 0], [0.25, 0, 1, 0, math.nan, math.nan])
    np.testing.assert_array_equal(Amounts.declare((10, 20), ()).encode([0, 15])[:, 0], [0.5, 0.75])
    with pytest.raises(ValueError, match="high > 0"):
        Amounts.declare((-2, 0), ())


def test_shards_refuse_a_target_that_they_do_not_hold(tmp_path):
    class OfAmounts(LinearRegressor):
        def _loss(self, target):
            return dpcvx.Huber(1.0)

        def _declare_target(self, stated, y):
            return Amounts.declare(stated.y_bounds, y.shape[1:])

    path = tmp_path / "people.csv"
    path.write_text("age,visits\n" + "30,1\n" * 200)
    shards = dpcvx.from_csv(
        path, target="visits", bounds=(0, 99), y_bounds=(-1, 9), store=tmp_path / "shards", verbose=0
    )
    with pytest.raises(Incompatible, match="encodes targets"):
        OfAmounts(epsilon=1.0, standardize=False).fit(shards)
