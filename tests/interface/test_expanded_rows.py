"""Records as several rows: labels of periods and of ordered levels, and models that are fitted to them."""

import math

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dpcvx as dp

EDGES = (0, 1, 2.5, 4)


@pytest.mark.parametrize(
    ("duration", "event", "wanted"),
    [
        (0.5, 1, [1, None, None]),
        (1.0, 1, [1, None, None]),  # a period includes its end
        (1.0, 0, [0, None, None]),
        (2.0, True, [0, 1, None]),
        (2.0, 0, [0, None, None]),  # lost within the second period
        (2.5, 0, [0, 0, None]),
        (4.0, 1, [0, 0, 1]),
        (9.0, 1, [0, 0, 0]),
        (9.0, 0, [0, 0, 0]),
        (0.0, 1, [None, None, None]),
        (-1.0, 0, [None, None, None]),
        (math.nan, 1, [None, None, None]),
        (math.inf, 1, [None, None, None]),
        (2.0, math.nan, [0, None, None]),
        ("x", 1, [None, None, None]),
    ],
)
def test_labels_of_periods(duration, event, wanted):
    rows = dp.period_rows(
        pd.DataFrame({"a": [7.0]}),
        np.array([duration], dtype=object),
        np.array([event], dtype=object),
        periods=EDGES,
    )
    assert [None if math.isnan(each) else int(each) for each in rows.labels] == wanted
    assert rows.table["a"].tolist() == [7.0] * 3
    assert rows.table["period"].tolist() == list(rows.levels) == ["(0, 1]", "(1, 2.5]", "(2.5, 4]"]
    assert rows.ids.tolist() == [0, 0, 0]


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_labels_of_levels_and_kinds_of_tables(make):
    rows = dp.level_rows(make({"a": [1.0, 2.0]}), ["low", "?"], levels=("low", "mid", "high"))
    assert isinstance(rows.table, type(make({"a": [1.0]})))
    np.testing.assert_array_equal(rows.labels, [0, 0, np.nan, np.nan])
    assert [str(each) for each in rows.table["above"]] == ["low", "mid"] * 2
    np.testing.assert_array_equal(
        dp.level_rows(make({"a": [1.0]}), ["high"], levels=range(3)).labels, [np.nan] * 2
    )
    np.testing.assert_array_equal(dp.level_rows(make({"a": [1.0]}), [2], levels=range(3)).labels, [1, 1])


def test_a_record_changes_its_own_rows_alone():
    table = pd.DataFrame({"a": np.arange(6.0)}, index=[9, 9, 1, 2, 3, 4])
    duration, event = np.array([0.5, 1, 2, 3, 9, 1], dtype=object), np.ones(6, dtype=object)
    whole = dp.period_rows(table, duration, event, periods=EDGES)
    for cell in ("x", None, math.inf, -1, 1e300, [1]):
        other_duration, other_event = duration.copy(), event.copy()
        other_duration[2], other_event[2] = cell, cell
        other = dp.period_rows(table, other_duration, other_event, periods=EDGES)
        rest = whole.ids != 2
        np.testing.assert_array_equal(whole.labels[rest], other.labels[rest])
        assert other.table["period"].equals(whole.table["period"])
        assert (other.ids == whole.ids).all()


def test_new_records_have_no_labels():
    rows = dp.period_rows(pd.DataFrame({"a": [1.0, 2.0]}), periods=EDGES)
    assert np.isnan(rows.labels).all()
    assert len(rows.table) == 6


@pytest.mark.parametrize(
    ("act", "match"),
    [
        (lambda t: dp.period_rows(t, [1], [1], periods=(1, 1)), "edges that increase"),
        (lambda t: dp.period_rows(t, [1], [1], periods=(1, math.inf)), "edges that increase"),
        (lambda t: dp.period_rows(t, [1], periods=EDGES), "duration and event, or neither"),
        (lambda t: dp.period_rows(t, [1, 2], [1], periods=EDGES), "same length"),
        (lambda t: dp.period_rows(t, [1, 2], [1, 1], periods=EDGES), "same number of rows"),
        (lambda t: dp.period_rows(t.to_numpy(), [1], [1], periods=EDGES), "pandas, polars or Arrow"),
        (lambda t: dp.level_rows(t.assign(above=1), [1], levels=range(3)), "has a column 'above' already"),
        (lambda t: dp.level_rows(t, [1], levels=(0, 1)), "three or more"),
    ],
)
def test_wrong_arguments_are_refused(act, match):
    with pytest.raises((ValueError, TypeError), match=match):
        act(pd.DataFrame({"a": [1.0]}))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_coefficients_are_those_of_ordered_levels_and_of_hazards():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.uniform(-1, 1, 8_000)})
    y = np.digitize(table["a"] + rng.logistic(size=8_000), (-1, 1.5))
    model = dp.PrivateLogisticRegression(
        epsilon=4.0, bounds=(-1, 1), classes=(0, 1), random_state=0, uncertainty=0.3
    )
    rows = dp.level_rows(table, y, levels=range(3))
    model.set_params(categories={"above": rows.levels}).fit(rows.table, rows.labels, groups=rows.ids)
    assert abs(model.coef_debiased_[0] - 1) < 3 * model.coef_std_[0] < 0.5
    assert "8,000" in str(model.summary())
    hazard = 1 / (1 + np.exp(1 - table["a"]))
    time = 1 + (rng.uniform(size=(8_000, 3)) > hazard.to_numpy()[:, None]).cumprod(axis=1).sum(axis=1)
    rows = dp.period_rows(table, time - 0.5, time < 4, periods=range(4))
    model.set_params(categories={"period": rows.levels}).fit(rows.table, rows.labels, groups=rows.ids)
    assert abs(model.coef_debiased_[0] - 1) < 3 * model.coef_std_[0] < 0.7
