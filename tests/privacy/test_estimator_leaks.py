"""Nothing but noised values depends on a record: not an error, a warning, a shape, a count or a word."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import dpcvx
from dpcvx import (
    PrivateHuberRegressor,
    PrivateLasso,
    PrivateLinearRegression,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateQuantileRegressor,
)

REGRESSORS = [PrivateLinearRegression, PrivateLasso, PrivateHuberRegressor, PrivateQuantileRegressor]
CLASSIFIERS = [PrivateLogisticRegression, PrivateLinearSVC]
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
        yield kind(**PUBLIC, y_bounds=(-10, 10)), Y
    for kind in CLASSIFIERS:
        yield kind(**PUBLIC, classes=(0, 1)), (Y > 0).astype(int)
        yield kind(**PUBLIC, classes=("a", "b", "c")), np.array(["a", "b", "c"])[np.digitize(Y, [-2, 2])]
    yield PrivateLogisticRegression(**PUBLIC, classes=(0, 1), data_norm=9.0), (Y > 0).astype(int)
    yield PrivateLasso(**PUBLIC, y_bounds=(-10, 10), solver="frank_wolfe"), Y


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
        lambda rows, y: PrivateLasso(**PUBLIC, y_bounds=(-10, 10)).fit(pd.DataFrame(rows), y),
        lambda rows, y: PrivateLasso(**PUBLIC, y_bounds=(-10, 10)).fit([*rows.tolist(), [1]], y),
        lambda rows, y: PrivateLasso(**PUBLIC, y_bounds=(-10, 10)).fit(rows, y, sample_weight=rows[:, 0]),
        lambda rows, y: PrivateLogisticRegression(**PUBLIC).fit(rows, y),
        lambda rows, y: PrivateLogisticRegression(**PUBLIC, classes="from_y").fit(rows, y),
        lambda rows, y: PrivateLinearSVC(**PUBLIC, classes=(0, 1)).fit(sp.csr_array(X + 1j), y),
        lambda rows, y: PrivateLinearSVC(**PUBLIC, classes=(0, 1)).fit(X, Y).predict(rows[:, :2]),
        lambda rows, y: PrivateLinearSVC(**PUBLIC, classes=(0, 1)).fit(X, Y).predict(rows[0]),
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
    assert not any(isinstance(value, dpcvx.data.Arrays) for value in vars(model).values())
