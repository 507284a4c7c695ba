"""Missing cells of numbers: a standardised fit and its model fill them with the released mean of others."""

import math
import warnings

import numpy as np
import pandas as pd
import pytest

import dpcvx as dp

N = 6000


def people(share=0.3, seed=0):
    """Rows far from the middle of their bounds (0, 100), some cells missing, and a target."""
    rng = np.random.default_rng(seed)
    whole = rng.normal([20.0, 30.0], 4.0, (N, 2))
    y = whole @ [1.0, -0.5] + rng.normal(0, 2, N)
    return np.where(rng.uniform(size=whole.shape) < share, np.nan, whole), y


def fitted(X, y, **settings):
    given = {"epsilon": 4.0, "bounds": (0, 100), "y_bounds": (-60, 60), "random_state": 0} | settings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return dp.PrivateLinearRegression(**given).fit(X, y)


@pytest.mark.parametrize("maps", ["auto", None], ids=str)
def test_a_missing_cell_counts_as_the_mean_of_the_others(maps):
    X, y = people()
    model = fitted(X, y, maps=maps)
    means = np.nanmean(X, axis=0)
    np.testing.assert_allclose(model._row_map.fill, means, atol=1.5)  # 50 before
    missing = model.predict([[math.nan, math.nan]])
    assert missing == pytest.approx(model.predict([model._row_map.fill]))
    assert missing == pytest.approx(y.mean(), abs=1.5)
    assert "released mean" in model.privacy_statement_.bounds["enforced"]


def test_a_declared_number_is_kept():
    X, y = people()
    table = pd.DataFrame(X, columns=["a", "b"])
    columns = {"a": dp.NumberColumn((0, 100), missing=25.0), "b": dp.NumberColumn((0, 100))}
    model = fitted(table, y, schema=dp.TableSchema(columns), bounds=None, maps=None)
    assert model._row_map.fill[0] == 25.0
    assert model._row_map.fill[1] == pytest.approx(np.nanmean(X[:, 1]), abs=1.5)


def test_files_and_exports_fill_alike(tmp_path):
    X, y = people()
    model = fitted(X, y)
    model.save(tmp_path / "model.json")
    rows = X[:200]
    expected = model.predict(rows)
    np.testing.assert_array_equal(dp.load(tmp_path / "model.json").predict(rows), expected)
    np.testing.assert_array_equal(model.to_sklearn().predict(rows), expected)


@pytest.mark.parametrize("estimator", [dp.PrivateAdditiveRegressor, dp.PrivateLinearRegression])
def test_shards_and_memory_give_the_same_model(tmp_path, estimator):
    X, y = people()
    declared = {"bounds": (0, 100), "y_bounds": (-60, 60)}
    store = dp.from_batches(iter([(X, y)]), store=tmp_path / "shards", **declared)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        memory = estimator(epsilon=4.0, random_state=0, maps=None, **declared).fit(X, y)
        disk = estimator(epsilon=4.0, random_state=0, maps=None).fit(store)
    np.testing.assert_array_equal(memory._row_map.fill, disk._row_map.fill)
    np.testing.assert_array_equal(memory.predict(X), disk.predict(X))


def test_an_indicator_says_which_cells_are_missing():
    """Cells that are missing for a reason: without the indicator nothing explains the target."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": np.where(rng.uniform(size=N) < 0.4, np.nan, rng.uniform(0, 10, N))})
    y = 3.0 * table["a"].isna() + rng.normal(0, 0.5, N)
    schema = dp.TableSchema({"a": dp.NumberColumn((0, 10), missing="indicator")})
    assert dp.TableSchema.from_dict(schema.to_dict()) == schema
    model = fitted(table, y, schema=schema, bounds=None, y_bounds=(-5, 10))
    assert model.coef_names_.tolist() == ["a", "a.missing"]
    assert model.coef_[1] == pytest.approx(3.0, abs=0.3)
    with pytest.raises(ValueError, match="indicator"):
        dp.NumberColumn((0, 10), missing="mean")


@pytest.mark.parametrize("given", [{"age": "log"}, {"age": "identity"}], ids=str)
def test_the_rule_for_long_tails_holds_beside_declared_maps(given):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.uniform(20, 60, N), "income": np.exp(rng.normal(5, 2, N))})
    bounds = {"age": (0, 1e4), "income": (0, 1e6)}
    model = fitted(table, np.log(table["income"]), bounds=bounds, y_bounds=(-5, 15), maps=given)
    stated = model.privacy_statement_.bounds
    assert set(stated["maps"]) == {"income", *(name for name in given if given[name] != "identity")}
    assert stated["bounds_before_maps"]["income"] == [0, 1e6]


@pytest.mark.parametrize("epsilon", [0.5, 1.0])
def test_a_column_without_numbers_is_named_where_no_check_is_made(epsilon, tmp_path):
    """Cells such as "40 h" are no numbers: the released share of cells says so, at no price."""
    X, y = people(0.2)
    table = pd.DataFrame(X, columns=["a", "b"])[:1500]
    wrong = table.assign(b=[f"{each:.0f} h" for each in table["b"]])
    given = {"epsilon": epsilon, "bounds": (0, 100), "y_bounds": (-60, 60), "check": 0, "random_state": 0}
    with pytest.warns(dp.errors.UnrecognisedDataWarning, match="Perhaps no cell of b was recognised"):
        model = dp.PrivateLinearRegression(**given).fit(wrong, y[:1500])
    assert model.privacy_statement_.bounds["empty"] == ["b"]
    model.save(tmp_path / "model.json")
    assert "Perhaps no cell of b" in str(dp.load(tmp_path / "model.json").summary())
    assert "empty" not in fitted(table, y[:1500], epsilon=epsilon, check=0).privacy_statement_.bounds
