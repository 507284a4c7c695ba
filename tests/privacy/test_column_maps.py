"""Column maps: functions of one cell, bounded, that carry the same bits into predictions, files, exports."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import dpcvx
from dpcvx.data import Quantiser
from dpcvx.data.column_maps import (
    COLUMN_MAPS,
    Clip,
    ColumnMap,
    Identity,
    PrivateQuantiles,
    PrivateRamps,
    QuantileMap,
    Ramps,
    SignedLog,
    map_fields,
    parse_map,
    read_map,
)
from dpcvx.data.columns import Columns
from dpcvx.data.table import Table
from dpcvx.errors import Incompatible, WrongValue

MAPS = (
    Identity(),
    SignedLog(),
    SignedLog(1e-300),
    Ramps([0, 1, 1, 5]),
    Ramps([2, 2]),
    QuantileMap([-1, 0, 0, 4]),
    QuantileMap([0, 10], [-1, 1]),
)
HOSTILE = np.array([np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, -0.0, 0.0, 1.0, 1 + 2**-52, 3.7])


@pytest.mark.parametrize("column_map", MAPS, ids=repr)
def test_features_are_finite_and_never_fall_and_only_missing_cells_have_none(column_map):
    features = column_map(HOSTILE)
    assert features.shape == (len(HOSTILE), len(column_map.suffixes))
    assert (np.isnan(features).all(axis=1) == ~np.isfinite(HOSTILE)).all()
    assert not np.isinf(features).any()
    ascending = np.sort(HOSTILE[np.isfinite(HOSTILE)])
    assert (np.diff(column_map(ascending), axis=0) >= 0).all()


@pytest.mark.parametrize("column_map", MAPS, ids=repr)
def test_a_feature_is_a_function_of_its_own_cell(column_map):
    rng = np.random.default_rng(0)
    cells = np.concatenate([HOSTILE, rng.normal(size=1000)])
    whole = column_map(cells)
    for place in (*range(len(HOSTILE)), 500):
        alone = column_map(cells[place : place + 1])
        assert np.array_equal(alone[0], whole[place], equal_nan=True)
        assert np.array_equal(column_map(np.repeat(cells[place], 9))[7], whole[place], equal_nan=True)


@pytest.mark.parametrize("column_map", [*MAPS, PrivateRamps(3), PrivateQuantiles(5)], ids=repr)
def test_maps_are_read_back_from_plain_fields(column_map):
    assert read_map(map_fields(column_map), "map") == column_map
    assert read_map(column_map, "map") is column_map
    assert column_map.kind in COLUMN_MAPS


@pytest.mark.parametrize(
    "wrong", ["logarithm", 3, {"kind": "ramps", "knots": [3, 1]}, {"kind": "log", "scale": 0}, Ramps, [1, 2]]
)
def test_other_maps_are_refused(wrong):
    with pytest.raises(WrongValue, match=r"map|knots|scale"):
        read_map(wrong, "map")


@pytest.mark.parametrize("request_", [PrivateRamps(3), PrivateQuantiles(4)], ids=repr)
def test_a_released_map_is_as_wide_as_its_placeholder_whatever_is_released(request_):
    placeholder = request_.placeholder(-1.0, 7.0)
    for quantiles in ([-1.0] * 4, [0.0, 0.0, 1.0, 7.0]):
        released = request_.released(np.array(quantiles), -1.0, 7.0)
        assert isinstance(released, ColumnMap)
        assert released.suffixes == placeholder.suffixes


@pytest.mark.parametrize("column_map", MAPS, ids=repr)
def test_stored_rows_keep_their_bounds(column_map):
    """Brute force: the cells of any row are in [-1, 1] and the row within its declared norm."""
    table = Table(np.column_stack([HOSTILE, HOSTILE[::-1]]))
    columns = Columns.declare(table, (-2, 3), None, None, maps={0: column_map, 1: Ramps([-1, 0, 1])})
    bounds = columns.row_bounds(None, 0.0)
    quantiser = Quantiser(bounds, columns.center, columns.scale)
    stored = columns.rows(table, quantiser).values / 2**14
    assert abs(stored).max() <= 1
    assert np.linalg.norm(stored, axis=1).max() <= columns.row_norm()


def test_clipping_a_cell_and_clipping_its_features_agree():
    cells = np.linspace(-50, 50, 101)
    table, clipped = Table(cells[:, None]), Table(cells.clip(-2, 30)[:, None])
    for column_map in MAPS[1:]:
        columns = Columns.declare(table, (-2, 30), None, None, maps={0: column_map})
        quantiser = Quantiser(columns.row_bounds(None, 0.0), columns.center, columns.scale)
        stored = [columns.rows(each, quantiser).values for each in (table, clipped)]
        if (columns.low < columns.high).all():
            assert np.array_equal(*stored)


def test_missing_cells_have_the_features_of_the_declared_number_or_of_the_middle():
    table = Table(np.array([[np.nan]]))
    declared = Columns.declare(table, (0, 8), None, None, {0: 4.0}, {0: Ramps([0, 2, 4, 8])})
    assert declared.fill.tolist() == [1, 1, 0]
    middle = Columns.declare(table, (0, 8), None, None, maps={0: Ramps([0, 2, 8])})
    assert middle.fill.tolist() == [1, 0]
    assert middle.labels() == ["x0"]
    assert middle.names == ("x0[0]", "x0[1]")


def test_maps_of_sparse_records_and_beside_data_norm_are_refused():
    from scipy.sparse import csr_array

    from dpcvx.errors import WrongType

    with pytest.raises(WrongType, match="dense"):
        Columns.declare(Table(csr_array(np.eye(2))), (0, 1), None, None, maps={0: SignedLog()})
    with pytest.raises(WrongValue, match="data_norm"):
        Columns.declare(Table(np.eye(2)), (0, 1), None, 1.0, maps={0: SignedLog()})
    with pytest.raises(WrongValue, match="levels"):
        Columns.declare(Table(np.eye(2)), (0, 1), {0: [0, 1]}, None, maps={0: SignedLog()})


@pytest.fixture(scope="module")
def mapped():
    """A model with every kind of map, and hostile rows for it."""
    rng = np.random.default_rng(1)
    X = np.exp(rng.normal(size=(400, 4)))
    model = dpcvx.PrivateLinearRegression(
        epsilon=4, bounds=(0, 50), y_bounds=(-5, 5), random_state=0, check=0,
        maps={0: "log", 1: Ramps([0.5, 1, 1, 3]), 2: {"kind": "quantiles", "knots": [0.3, 1, 3]}},
    )  # fmt: skip
    model.fit(X, np.log(X[:, 0]) + X[:, 1].clip(1, 3))
    rows = np.random.default_rng(2).choice(HOSTILE, (60, 4))
    return model, rows


def test_exports_and_files_predict_the_same_bits(mapped, tmp_path):
    model, rows = mapped
    expected = model.predict(rows)
    assert np.array_equal(model.to_sklearn().predict(rows), expected)
    model.save(tmp_path / "model.json")
    again = dpcvx.load(tmp_path / "model.json")
    assert np.array_equal(again.predict(rows), expected)
    assert again.formula_.to_json() == model.formula_.to_json()
    assert list(model.coef_names_[:4]) == ["x0[log]", "x1[0]", "x1[1]", "x1[2]"]
    assert "sign(x) log(1 + |x| / 1.0)" in str(model.formula_)
    assert "x1" in model.privacy_statement_.bounds["maps"]


def test_a_file_whose_maps_lack_numbers_is_refused(mapped, tmp_path):
    path = tmp_path / "model.json"
    mapped[0].save(path)
    text = path.read_text()
    for old, new in (
        ('"maps": {"0": "log"', '"maps": {"0": "private_ramps"'),
        ('{"0": "log"', '{"9": "log"'),
    ):
        assert old in text
        path.write_text(text.replace(old, new))
        with pytest.raises((WrongValue, Incompatible)):
            dpcvx.load(path)


def test_a_schema_declares_maps():
    schema = dpcvx.TableSchema(
        {"a": dpcvx.NumberColumn((0, 100), map="log"), "b": dpcvx.NumberColumn((0, 9), map=Ramps([0, 3, 9]))}
    )
    text = schema.to_toml()
    assert 'map = "log"' in text
    import tomllib

    assert dpcvx.TableSchema.from_dict(tomllib.loads(text)) == schema
    plan = dpcvx.PrivateLinearRegression(epsilon=1, y_bounds=(0, 1), schema=schema).plan(1000, ["a", "b"])
    assert plan.problem.d == 3
    doubled = dataclasses.replace(schema.columns["a"], map=SignedLog(10))
    assert doubled.map.scale == 10


def test_shards_store_mapped_features(tmp_path):
    import pandas as pd

    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"a": np.exp(rng.normal(size=200)), "y": rng.random(200)})
    schema = dpcvx.TableSchema({"a": dpcvx.NumberColumn((0, 50), map="log")}, target="y")
    frame.to_csv(tmp_path / "rows.csv", index=False)
    stored = dpcvx.from_csv(tmp_path / "rows.csv", target="y", schema=schema, y_bounds=(0, 1), verbose=0)
    given = {"epsilon": 3, "random_state": 0, "check": 0}
    there = dpcvx.PrivateLinearRegression(**given).fit(stored)
    here = dpcvx.PrivateLinearRegression(**given, schema=schema, y_bounds=(0, 1)).fit(frame)
    assert np.array_equal(there.coef_, here.coef_)
    assert list(there.coef_names_) == ["a[log]"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("log", SignedLog()),
        ("log:100", SignedLog(100)),
        ("ramps:20,40.5,60", Ramps([20, 40.5, 60])),
        ("private_ramps:5", PrivateRamps(5)),
        ("clip:0,9", Clip(0, 9)),
    ],
)
def test_maps_of_the_command_line(text, expected):
    assert parse_map(text, "--map") == expected
    for wrong in ("", "logs", "log:1,2", "ramps:a", "ramps:3,1", "private_ramps:2.5", "log:nan,1,2"):
        with pytest.raises(WrongValue, match="--map"):
            parse_map(wrong, "--map")
