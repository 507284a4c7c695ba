"""Nothing but noised values depends on a record: not an error, a warning, a shape, a count or a word."""

from __future__ import annotations

import gc
import math
import warnings
import weakref

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp

import dpcvx
from dpcvx import (
    PrivateGroupLasso,
    PrivateLasso,
    PrivateLinearRegression,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateLowRankRegression,
)
from zoo import CLASSIFIERS, REGRESSORS

N, D = 40, 3
RNG = np.random.default_rng(0)
X = RNG.uniform(0, 10, (N, D))
Y = X[:, 0] - X[:, 1]


class Bomb:
    """A cell that raises whatever is done with it."""

    def __float__(self):
        raise RuntimeError("987654321")

    def __eq__(self, other):
        raise RuntimeError("987654321")

    __hash__ = None


CELLS = {
    "ordinary": 5.0,
    "nan": math.nan,
    "inf": math.inf,
    "minus_inf": -math.inf,
    "huge": 1e308,
    "minus_huge": -1e308,
    "subnormal": 5e-324,
    "text": "s3cret",
    "none": None,
    "big_integer": 10**400,
    "complex": 1j,
    "list": [1, 2],
    "bomb": Bomb(),
}
NUMBERS = ["ordinary", "nan", "inf", "minus_inf", "huge", "minus_huge", "subnormal"]
PUBLIC = {"epsilon": 1.0, "bounds": (0, 10), "n_iter": 3, "random_state": 0}
RELEASED = {"coef_", "intercept_", "release_"}


def models():
    for kind in REGRESSORS:
        bounds = (0, 1) if kind.__name__ == "PrivateFractionalRegressor" else (-10, 10)
        yield kind(**PUBLIC, y_bounds=bounds), Y
    for kind in CLASSIFIERS:
        yield kind(**PUBLIC, classes=(0, 1)), (Y > 0).astype(int)
        yield kind(**PUBLIC, classes=("a", "b", "c")), np.array(["a", "b", "c"])[np.digitize(Y, [-2, 2])]
    yield PrivateLogisticRegression(**PUBLIC, classes=(0, 1), data_norm=9.0), (Y > 0).astype(int)
    yield PrivateLasso(**PUBLIC, y_bounds=(-10, 10), solver="frank_wolfe"), Y
    yield PrivateGroupLasso(**PUBLIC, y_bounds=(-10, 10), groups=[[0, 2]], solver="mirror_descent"), Y
    yield PrivateLowRankRegression(**PUBLIC, y_bounds=([-10, 0], [10, 9])), np.stack([Y, X[:, 2]], axis=1)


MODELS = [pytest.param(model, y, id=f"{type(model).__name__}-{i}") for i, (model, y) in enumerate(models())]


def public_view(model):
    """Every fitted attribute that is not released, and the shapes of those that are."""
    facts = {
        name: value for name, value in vars(model).items() if name.endswith("_") and name not in RELEASED
    }
    facts["names"] = sorted(vars(model))
    facts["shapes"] = [np.shape(model.coef_), np.shape(model.intercept_), model.release_.theta.shape]
    for name in ("coef_names_", "classes_", "feature_names_in_"):
        if name in facts:
            facts[name] = facts[name].tolist()
    return facts


def with_last_row(rows, y, cell, label):
    rows, y = rows.astype(object), y.astype(object)
    rows[-1] = [cell] * D
    y[-1] = label
    return rows, y


@pytest.mark.parametrize(("model", "y"), MODELS)
@pytest.mark.parametrize("cell", CELLS)
def test_a_poisoned_row_changes_released_values_alone(model, y, cell, capfd):
    before = public_view(model.fit(X.astype(object), y.astype(object)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", dpcvx.errors.UselessModelWarning)  # it follows from n and epsilon
        model.fit(*with_last_row(X, y, CELLS[cell], CELLS[cell]))
    after = public_view(model)
    assert after == before
    assert np.isfinite(model.coef_).all()
    assert np.isfinite(model.intercept_).all()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("cell", NUMBERS)
@pytest.mark.parametrize("store", [np.asarray, sp.csr_array, lambda rows: sp.coo_array(rows).tolil()])
def test_a_poisoned_number_in_every_storage(store, cell):
    model, y = PrivateLinearSVC(**PUBLIC, classes=(0, 1)), (Y > 0).astype(float)
    before = public_view(model.fit(store(X), y))
    poisoned, labels = X.copy(), y.copy()
    poisoned[-1], labels[-1] = CELLS[cell], CELLS[cell]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", dpcvx.errors.UselessModelWarning)  # it follows from n and epsilon
        model.fit(store(poisoned), labels)
    assert public_view(model) == before
    assert np.isfinite(model.coef_).all()


@pytest.mark.parametrize("cell", ["s3cret", None, math.nan, "f"])
def test_a_poisoned_level_of_a_table(cell):
    table = pd.DataFrame({"age": X[:, 0], "sex": ["f", "m"] * (N // 2)})
    settings = {**PUBLIC, "bounds": {"age": (0, 10)}, "categories": {"sex": ["f", "m"]}}
    model = PrivateLasso(**settings, y_bounds=(-10, 10))
    before = public_view(model.fit(table, Y))
    poisoned = table.copy()
    poisoned.loc[N - 1, "sex"] = cell
    assert public_view(model.fit(poisoned, Y)) == before


@pytest.mark.parametrize("last", ["a", "b", "z"])
def test_a_missing_level_of_a_dictionary_is_missing(last):
    # A library gave it the dictionary's last entry, which other records decide.
    cells = ["a", "b", *[None] * 6, last]
    encoded = pa.array(cells).dictionary_encode()
    plain = np.array(cells, dtype=object)
    y = np.linspace(-10, 10, 9)
    model = PrivateLinearRegression(**PUBLIC, categories={"c": ["a", "b", "z"]}, y_bounds=(-10, 10))
    expected = model.fit(pd.DataFrame({"c": plain}), y).coef_
    for table in (pa.table({"c": encoded}), pa.record_batch({"c": encoded})):
        np.testing.assert_array_equal(model.fit(table, y).coef_, expected)
        missing = model.predict(pa.table({"c": [None]}))[0]
        np.testing.assert_array_equal(model.predict(table)[2:8], np.full(6, missing))
        assert missing not in model.predict(pa.table({"c": ["a", "b", "z"]}))
    labels = PrivateLogisticRegression(**PUBLIC, classes=("a", "b", "z"))
    expected = labels.fit(X[:9], plain).coef_
    for column in (encoded, pa.chunked_array([encoded]), pd.Categorical(cells), pl.Series(cells)):
        np.testing.assert_array_equal(labels.fit(X[:9], column).coef_, expected)


def test_text_that_is_not_utf8_is_an_unknown_level():
    cells = pa.array([b"f", b"\xff\xfes3cret", None] + [b"m"] * (N - 3))
    text = pa.Array.from_buffers(pa.string(), N, cells.buffers(), cells.null_count)
    plain = np.array(["f", "?", None] + ["m"] * (N - 3), dtype=object)
    model = PrivateLinearSVC(**PUBLIC, classes=("f", "m"), categories={"c": ["f", "m"]})
    expected = model.fit(pd.DataFrame({"c": plain}), plain).coef_
    on_arrow = pd.Series(pd.arrays.ArrowExtensionArray(text))
    for column in (text, text.dictionary_encode(), pd.Series(pd.array(text, dtype="str")), on_arrow):
        table = pd.DataFrame({"c": column}) if isinstance(column, pd.Series) else pa.table({"c": column})
        np.testing.assert_array_equal(model.fit(table, column).coef_, expected)
        assert len(model.predict(table)) == N


def category(cells):
    """A categorical series whose categories are plain integers."""
    levels = sorted({cell for cell in cells if cell is not None})
    codes = [-1 if cell is None else levels.index(cell) for cell in cells]
    return pd.Series(pd.Categorical.from_codes(codes, levels), name="c")


BIG = 2**53
WHOLE = {
    "polars": lambda cells: pl.Series("c", cells),
    "arrow": lambda cells: pa.chunked_array([pa.array(cells)]),
    "arrow array": pa.array,
    "dictionary": lambda cells: pa.array(cells).dictionary_encode(),
    "nullable": lambda cells: pd.Series(cells, name="c", dtype="Int64"),
    "nullable array": lambda cells: pd.array(cells, dtype="Int64"),
    "pandas on arrow": lambda cells: pd.Series(cells, name="c", dtype="int64[pyarrow]"),
    "category": lambda cells: category(cells),
    "list": list,
}


@pytest.mark.parametrize("kind", WHOLE)
def test_a_missing_cell_leaves_large_integers_as_they_are(kind):
    # Integers beside a missing cell may be floats, so they are compared as floats in every type.
    labels = [BIG, BIG + 3] * (N // 2)
    model = PrivateLogisticRegression(**PUBLIC, classes=(BIG, BIG + 3))
    others = model.fit(X, np.array([*labels[:-1], 7])).coef_
    np.testing.assert_array_equal(model.fit(X, WHOLE[kind]([*labels[:-1], None])).coef_, others)
    np.testing.assert_array_equal(model.fit(X, WHOLE[kind]([*labels[:-1], 7])).coef_, others)
    table = pd.DataFrame({"c": WHOLE[kind]([*labels[:-1], None])}) if kind != "polars" else None
    if table is not None:
        lasso = PrivateLasso(**PUBLIC, categories={"c": [BIG, BIG + 3]}, y_bounds=(-10, 10))
        others = lasso.fit(pd.DataFrame({"c": [*labels[:-1], 7]}), Y).coef_
        np.testing.assert_array_equal(lasso.fit(table, Y).coef_, others)


def test_integers_that_are_one_float_are_one_label():
    with pytest.raises(ValueError, match="9007199254740992 and 9007199254740993 count as one"):
        PrivateLogisticRegression(**PUBLIC, classes=(BIG, BIG + 1)).fit(X, Y)


@pytest.mark.parametrize("kind", WHOLE)
def test_a_missing_label_leaves_the_type_of_the_classes(kind):
    model = PrivateLogisticRegression(**PUBLIC, classes="from_y")
    views = []
    for last in (1, None):
        model.fit(X, WHOLE[kind]([0, 1] * (N // 2 - 1) + [0, last]))
        views.append((model.classes_.dtype, model.classes_.tolist(), model.predict(X).dtype))
    assert views[0] == views[1] == (np.dtype(np.int64), [0, 1], np.dtype(np.int64))


@pytest.mark.parametrize("dtype", [float, int, object])
def test_masked_cells_and_labels_are_missing(dtype):
    labels = (Y > 0).astype(int)
    hidden = np.arange(N) % 4 == 0
    blank, unlabelled = np.round(X), labels.astype(float)
    blank[hidden, 1], unlabelled[hidden] = np.nan, np.nan
    rows, y = np.ma.masked_array(np.round(X), dtype=dtype), np.ma.masked_array(labels, dtype=dtype)
    rows[hidden, 1], y[hidden] = np.ma.masked, np.ma.masked
    model = PrivateLogisticRegression(**PUBLIC, classes=(0, 1))
    expected = model.fit(blank, unlabelled).coef_
    np.testing.assert_array_equal(model.fit(rows, y).coef_, expected)


def test_a_masked_label_is_a_missing_one():
    # NumPy fills objects and text with marks of its own, which may be declared levels.
    marks = ("?", "x", "1")
    for dtype in (object, "U4"):
        y = np.ma.masked_array(["1"] * N, mask=np.arange(N) % 2, dtype=dtype)
        model = PrivateLogisticRegression(**PUBLIC, classes=marks)
        expected = model.fit(X, np.where(y.mask, None, "1")).coef_
        np.testing.assert_array_equal(model.fit(X, y).coef_, expected)


class Refusing(Bomb):
    """A cell that raises when NumPy looks into it, too."""

    def __array__(self, *_, **__):
        raise RuntimeError("987654321")

    __len__ = __getitem__ = __array__


@pytest.mark.parametrize("cell", [*CELLS.values(), Refusing()], ids=[*CELLS, "refusing"])
def test_a_poisoned_cell_of_a_list_changes_no_other(cell):
    labels = (Y > 0).astype(int).tolist()
    rows = X.tolist()
    blank = [*rows[:-1], [None] * D], [*labels[:-1], None]
    # The odd row has no label in the first fit, the odd label has a missing row in the second.
    for poisoned in (([*rows[:-1], [cell] * D], blank[1]), (blank[0], [*labels[:-1], cell])):
        for classes in ((0, 1), "from_y"):
            if classes == "from_y" and not (cell is None or isinstance(cell, Bomb) or cell != cell):
                continue  # a label, and the set of labels is public
            model = PrivateLogisticRegression(**PUBLIC, classes=classes, fit_intercept=False, l2=0)
            expected = model.fit(*blank).coef_
            np.testing.assert_array_equal(model.fit(*poisoned).coef_, expected)
            assert model.classes_.tolist() == [0, 1]


@pytest.mark.parametrize("place", [987, -987])
def test_a_malformed_sparse_matrix_names_no_index(place):
    rows = sp.csr_array(X)
    rows.indices[-1] = place
    model = PrivateLinearSVC(**PUBLIC, classes=(0, 1)).fit(sp.csr_array(X), Y > 0)
    for use in (lambda: model.fit(rows, Y > 0), lambda: model.predict(rows)):
        with pytest.raises(ValueError, match="The sparse matrix is malformed") as caught:
            use()
        assert "987" not in str(caught.value)


def test_a_poisoned_row_moves_the_sums_no_further_than_any_other():
    # The last row at the far corner of the bounds, and the same row a thousand times further away.
    corner = PrivateLinearRegression(**PUBLIC, y_bounds=(-10, 10))
    rows, y = X.copy(), Y.copy()
    rows[-1], y[-1] = 10.0, 10.0
    at_corner = corner.fit(rows, y).coef_
    rows[-1], y[-1] = 1e4, 1e4
    np.testing.assert_array_equal(corner.fit(rows, y).coef_, at_corner)


def test_classes_are_not_read_from_the_labels():
    # A peer raised when only one class was present, and named the classes it had seen.
    model = PrivateLogisticRegression(**PUBLIC, classes=(0, 1, 2))
    for y in (np.zeros(N), np.full(N, 9), np.arange(N)):
        assert model.fit(X, y).classes_.tolist() == [0, 1, 2]


def test_a_constant_target_is_simply_fitted():
    model = PrivateLinearRegression(
        **{**PUBLIC, "epsilon": 20.0, "delta": 1e-5, "n_iter": 50}, y_bounds=(-10, 10)
    )
    assert np.isfinite(model.fit(X, np.full(N, 3.0)).predict(X)).all()


SECRETS = ("987654321", "s3cret")


@pytest.mark.parametrize(
    "fails",
    [
        lambda rows, y: PrivateLasso(**PUBLIC).fit(rows, y),
        lambda rows, y: PrivateLasso(**PUBLIC, y_bounds=(-10, 10)).fit(rows, y[:-1]),
        lambda rows, y: PrivateLasso(**PUBLIC, y_bounds=(-10, 10)).fit(rows[0], y),
        lambda rows, y: PrivateLasso(**PUBLIC, y_bounds=(-10, 10)).fit(rows[None], y),
        lambda rows, y: PrivateLasso(**PUBLIC, y_bounds=(-10, 10)).fit(rows, np.stack([y, y], axis=1)),
        lambda rows, y: PrivateLasso(**PUBLIC, y_bounds=(-10, 10)).fit([*rows.tolist(), [1]], y),
        lambda rows, y: PrivateLasso(**PUBLIC, y_bounds=(-10, 10)).fit(rows, y, sample_weight=rows[:, 0]),
        lambda rows, y: PrivateLogisticRegression(**PUBLIC).fit(rows, y),
        lambda rows, y: PrivateLogisticRegression(**PUBLIC, classes="from_y").fit(rows, y),
        lambda rows, y: PrivateLinearSVC(**PUBLIC, classes=(0, 1)).fit(X, Y).predict(rows[:, :2]),
        lambda rows, y: PrivateLinearSVC(**PUBLIC, classes=(0, 1)).fit(X, Y).predict(rows[0]),
        lambda rows, y: PrivateLinearSVC(**PUBLIC, classes=np.append(y, y[0])).fit(rows, y),
        lambda rows, y: PrivateLinearSVC(**PUBLIC, classes=[*y, y[0]]).fit(rows, y),
        lambda rows, y: PrivateLasso(**{**PUBLIC, "bounds": rows}, y_bounds=(-10, 10)).fit(rows, y),
        lambda rows, y: PrivateLasso(**{**PUBLIC, "epsilon": y}, y_bounds=(-10, 10)).fit(rows, y),
        lambda rows, y: PrivateLasso(**{**PUBLIC, "n_iter": rows}, y_bounds=(-10, 10)).fit(rows, y),
        lambda rows, y: PrivateLasso(**PUBLIC, y_bounds=pd.Series(y)).fit(rows, y),
        lambda rows, y: PrivateLasso(**PUBLIC, y_bounds=(-10, 10), data_norm=[y]).fit(rows, y),
        lambda rows, y: dpcvx.private_tune(PrivateLasso(**PUBLIC, y_bounds=(-10, 10)), rows, y, {"l2": [0]}),
    ],
)
def test_no_error_shows_a_cell(fails):
    rows, y = X.astype(object), Y.astype(object)
    rows[:, 0], rows[:, 1], y[:2] = 987654321.25, "s3cret", [987654321.25, "s3cret"]
    with pytest.raises((TypeError, ValueError)) as caught:
        fails(rows, y)
    error = caught.value
    while error is not None:
        assert not any(secret in str(error) for secret in SECRETS)
        error = error.__cause__ or error.__context__


def test_no_record_is_kept():
    secret = X.copy()
    secret[:, 0] = 987.65432109375
    model = PrivateLinearRegression(epsilon=1.0, bounds=(0, 1000), y_bounds=(-10, 10)).fit(secret, Y)
    import pickle

    content = pickle.dumps(model)
    assert np.float64(987.65432109375).tobytes() not in content
    stored = int(2**14 * (987.65432109375 - 500) / 500)
    assert np.full(3, stored, dtype=np.int16).tobytes() not in content
    assert len(content) < 20_000
    assert not any(isinstance(value, dpcvx.data.memory.Arrays) for value in vars(model).values())


class Watched(np.ndarray):
    """An array that a weak reference can follow."""


@pytest.mark.parametrize(("uncertainty", "epsilon"), [(0.0, 0.0125), (0.3, 31.25), ("auto", 32.25)])
def test_what_is_memoised_of_a_plan_holds_no_record(uncertainty, epsilon):
    """Notes and warnings about a plan are kept for the next fit, once with a function that held the data."""
    labels = (Y > 0).astype(int).view(Watched)
    followed = weakref.ref(labels)
    model = PrivateLogisticRegression(
        epsilon=epsilon, bounds=(-1, 1), classes=(0, 1), radius=3.0, uncertainty=uncertainty
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpcvx.UselessModelWarning)
        model.fit(X, labels)
    del labels
    gc.collect()
    assert followed() is None
