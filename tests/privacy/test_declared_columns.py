"""Variables of a schema: a function of one record and of the declaration, whatever others hold."""

import datetime
import hashlib

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.testing import assert_array_equal

import dpcvx as dp
from dpcvx.data import Quantiser
from dpcvx.data.columns import Columns
from dpcvx.data.declarations import Declarations
from dpcvx.data.levels import COMPARED, OMITTED, DeclaredLevels
from dpcvx.data.table import open_declared

SCHEMA = dp.TableSchema(
    {
        "age": dp.NumberColumn((0, 100), missing=40),
        "sex": dp.LevelColumn(["f", "m"]),
        "job": dp.LevelColumn(["nurse", "baker"], missing="nurse", other="other"),
        "born": dp.DateColumn(("1950-01-01", "2000-12-31")),
        "visit": dp.DateColumn(("2010-01-01", "2020-12-31"), parts=("year", "month", "weekday")),
        "city": dp.HashedColumn(8, key="k"),
        "smoker": dp.BooleanColumn(),
        "id": dp.IgnoredColumn(),
    }
)
ROW = {
    "age": "30",
    "sex": "m",
    "job": "baker",
    "born": "1970-05-01",
    "visit": "2015-02-28",
    "city": "Graz",
    "smoker": "true",
    "id": "7",
}
HOSTILE = [
    None,
    float("nan"),
    float("inf"),
    -1e308,
    10**400,
    "",
    "NA",
    "abc",
    "\ud800",
    b"\xff",
    "2020-02-30",
    "20200101T100000+0200",
    "0000-01-01",
    "9999-12-31T23:59:59.999999+14:00",
    "2015-02-28 24:00+02:00",
    datetime.datetime(2015, 2, 28, tzinfo=datetime.UTC),
    datetime.timedelta(1),
    object(),
    [1, 2],
    True,
    1 + 2j,
]


def features(frame):
    """Features of every row, and the stored integers."""
    table = open_declared(frame, SCHEMA)
    stated = Declarations().resolved(table.schema, COMPARED)
    columns = Columns.declare(table, stated.bounds, stated.categories, None, stated.missing)
    quantiser = Quantiser(columns.row_bounds(None, 0.0), columns.center, columns.scale)
    raw = np.concatenate([block for _, block in table.feature_blocks(columns.levels)])
    return columns, raw, columns.rows(table, quantiser).values


@pytest.mark.parametrize("column", ROW)
def test_no_cell_raises_or_changes_anybody_elses_features(column):
    own = features(pd.DataFrame([ROW], dtype=object))[2]
    for cell in HOSTILE:
        cells = np.empty(2, dtype=object)
        cells[0] = cell
        cells[1] = ROW[column]
        frame = pd.DataFrame({name: [value] * 2 for name, value in ROW.items()}, dtype=object)
        frame[column] = pd.Series(cells, dtype=object)
        columns, _, stored = features(frame)
        assert_array_equal(stored[1], own[0])
        # The bound on the norm of a row holds whatever the cell is; integers are in units of 2^-14.
        assert np.sqrt((stored[0].astype(float) ** 2).sum()) / 2**14 <= columns.row_norm() * (1 + 1e-3)
        assert abs(stored).max() <= 2**14


def test_variables_are_the_same_whatever_type_a_reader_gave():
    text = pd.DataFrame([ROW, {**ROW, "visit": "2016-12-31", "city": "12", "age": ""}], dtype=object)
    typed = pa.table(
        {
            "age": pa.array([30, None], pa.int16()),
            "sex": pa.array(["m", "m"]).dictionary_encode(),
            "job": ["baker", "baker"],
            "born": pa.array([datetime.date(1970, 5, 1)] * 2, pa.date32()),
            "visit": pa.array([datetime.datetime(2015, 2, 28), datetime.datetime(2016, 12, 31)]),
            "city": ["Graz", " 12.0"],
            "smoker": pa.array([True, True]),
            "id": [7, 7],
        }
    )
    expected = features(text)
    for frame in (typed, typed.to_pandas(), pl.from_arrow(typed), pl.from_pandas(text)):
        for one, other in zip(features(frame)[1:], expected[1:], strict=True):
            assert_array_equal(one, other)


def test_rows_do_not_depend_on_their_neighbours_or_on_blocks():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            name: [HOSTILE[k] if k < len(HOSTILE) else value for k in rng.integers(0, 60, 200)]
            for name, value in ROW.items()
        },
        dtype=object,
    )
    whole = features(frame)[2]
    for start in (0, 57, 199):
        assert_array_equal(features(frame.iloc[start : start + 1])[2][0], whole[start])


def test_values_are_those_of_the_declaration():
    frame = pd.DataFrame(
        [ROW, {**ROW, "age": "x", "job": "pilot", "born": "1950-01-01", "visit": "2030-03-04", "smoker": 3}]
    )
    columns, raw, _ = features(frame)
    found = [dict(zip(columns.names, row, strict=True)) for row in raw.tolist()]
    days = (datetime.date(1970, 5, 1) - datetime.date(1950, 1, 1)).days
    assert found[0]["born"] == days / 365.25
    assert found[1]["born"] == 0
    assert found[0]["visit.month=2"] == found[0]["visit.weekday=Saturday"] == found[0]["visit.year=2015"] == 1
    assert found[1]["visit.year=2020"] == 1  # clipped
    assert [row["job=other"] for row in found] == [0, 1]
    assert found[0]["smoker"] == 1
    assert np.isnan(found[1]["smoker"])
    assert columns.fill[columns.names.index("age")] == 40
    assert sum(found[0][f"city={k}"] for k in range(8)) == 1
    assert "id" not in columns.names


def test_hashes_are_fixed_and_depend_on_the_key():
    cells = np.array([f"street {k}" for k in range(4000)], dtype=object)
    one, other = (dp.HashedColumn(8, key=key).read(cells) for key in ("k", "l"))
    for text, cell in (("tstreet 0", "street 0"), (f"n{(12.0).hex()}", "12"), ("tstreet 7", " street 7")):
        digest = hashlib.blake2b(text.encode(), digest_size=8, key=b"k").digest()
        assert dp.HashedColumn(8, key="k").read(np.array([cell], dtype=object))[0] == digest[-1] % 8
    assert 0.05 < np.mean(one == other) < 0.2
    assert np.bincount(one.astype(int), minlength=8).min() > 400


@pytest.mark.parametrize("size", [2, 3, 40])
def test_an_omitted_baseline_has_no_feature_and_unknown_cells_have_shares(size):
    levels = [f"l{k}" for k in range(size)]
    schema = dp.TableSchema({"a": dp.LevelColumn(levels, baseline="l1"), "b": dp.NumberColumn((0, 1))})
    frame = pd.DataFrame({"a": [*levels, "other", None], "b": 0.5}, dtype=object)
    table = open_declared(frame, schema)
    stated = Declarations().resolved(table.schema, OMITTED)
    columns = Columns.declare(table, stated.bounds, stated.categories, None, stated.missing)
    assert columns.names == (*(f"a={level}" for level in levels if level != "l1"), "b")
    assert columns.labels() == ["a", "b"]
    assert [len(span) for span in columns.spans()] == [size - 1, 1]
    (found,) = (block for _, block in table.feature_blocks(columns.levels))
    assert_array_equal(found[:size, :-1], np.delete(np.eye(size), 1, axis=1))
    # Equal shares are the mean over the levels, and not the place of the baseline, which is 0.
    assert np.isnan(found[size:, :-1]).all()
    assert_array_equal(columns.fill[:-1], np.full(size - 1, 1 / size))
    quantiser = Quantiser(columns.row_bounds(None, 0.0), columns.center, columns.scale)
    stored = columns.rows(table, quantiser).values.astype(float) / 2**14
    norms = np.sqrt((stored**2).sum(axis=1))
    assert norms.max() <= columns.row_norm() == np.sqrt(2)
    (seen,) = columns.recognised(table)
    assert_array_equal(seen[:, :-1], np.vstack([np.eye(size), np.zeros((2, size))]))


@pytest.mark.parametrize("size", [3, 40])
def test_compared_levels_all_have_features_and_rows_of_norm_1(size):
    levels = [f"l{k}" for k in range(size)]
    schema = dp.TableSchema({"a": dp.LevelColumn(levels, baseline="l1")})
    table = open_declared(pd.DataFrame({"a": [*levels, "other", None]}, dtype=object), schema)
    stated = Declarations().resolved(table.schema, COMPARED)
    columns = Columns.declare(table, stated.bounds, stated.categories, None, stated.missing)
    assert columns.names == tuple(f"a={level}" for level in levels)
    quantiser = Quantiser(columns.row_bounds(None, 0.0), columns.center, columns.scale)
    stored = columns.rows(table, quantiser).values.astype(float) / 2**14
    assert_array_equal(stored[:size], np.eye(size))
    assert (abs(stored[size:] - 1 / size) < 2**-14).all()
    assert np.linalg.norm(stored, axis=1).max() <= columns.row_norm() == 1


def test_the_bucket_of_a_number_does_not_follow_another_persons_minus_zero():
    """0 and -0 are equal but had two hashes: one "-0" above them moved every 0 to another bucket."""
    for key in map(str, range(8)):
        column = dp.HashedColumn(64, key)
        buckets = [column.read(np.array([first, "0", 0.0], dtype=object)) for first in ("-0", -0.0, "0", "1")]
        assert len({tuple(found[1:]) for found in buckets}) == 1


@pytest.mark.parametrize("kind", ["datetime64[ns]", "datetime64[us]", "datetime64[D]"])
def test_codes_of_missing_labels_leave_dates_as_they_are(kind):
    """One label that is no date makes a column of objects: the other labels must be the same."""
    schema = dp.TableSchema(
        {
            "x": dp.NumberColumn((0, 1)),
            "due": dp.LevelColumn(["2020-01-01", "2020-02-01"], missing_codes=[9]),
        },
        target="due",
    )
    days = np.array(["2020-01-01", "2020-02-01", "2020-02-01"], dtype=kind)
    mixed = np.array([datetime.datetime(2020, 1, 1), datetime.datetime(2020, 2, 1), "?"], dtype=object)
    labels = DeclaredLevels(("2020-01-01", "2020-02-01"))
    assert labels.codes(schema.read_target(days)).tolist() == [0, 1, 1]
    assert labels.codes(schema.read_target(mixed)).tolist() == [0, 1, -1]
