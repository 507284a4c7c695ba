"""Codes of labels and levels: a typed column gives the same as a look at every cell, whatever it holds."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.testing import assert_array_equal

from dpcvx.data.cells import cell_codes, column_cells, column_codes, native_array, open_typed
from dpcvx.data.levels import DeclaredLevels
from dpcvx.data.table import Table
from dpcvx.data.target import Numbers

TEXTS = ["f", "m", "", " f", "F", "1", "1.0", "nan", "None", "\x00", "é", "e\u0301", "�", "f" * 10_000, None]
INTEGERS = [0, 1, 2, -1, 2**62, -(2**63), 2**53 + 1, None]
LEVELS = [
    ("f", "m"),
    ("m", "é", "�", ""),
    (1, 0),
    (True, False),
    (1.0, 2),
    ("1", 1),
    (2**53 + 1, 2.0**53),
    ("x",),
]


def invalid_text():
    """Text columns whose bytes are not valid UTF-8: two of the cells become the same text."""
    raw = pa.array([b"f", b"\xff", b"\xfe", None, b"m", b"\xff\xfe"])
    return pa.Array.from_buffers(pa.string(), len(raw), raw.buffers(), raw.null_count)


def columns():
    rng = np.random.default_rng(0)
    text = rng.permutation(np.array(TEXTS * 3, dtype=object)).tolist()
    whole = rng.permutation(np.array(INTEGERS * 3, dtype=object)).tolist()
    flags = [True, False, None, True]
    yield "string", pa.chunked_array([pa.array(text[:7]), pa.array(text[7:])])
    yield "large string", pa.chunked_array([pa.array(text, pa.large_string())])
    yield "string view", pa.chunked_array([pa.array(text, pa.string_view())])
    yield "dictionary", pa.chunked_array([pa.array(text).dictionary_encode()])
    yield "invalid", pa.chunked_array([invalid_text()])
    yield "no rows", pa.chunked_array([], pa.string())
    yield "all missing", pa.chunked_array([pa.nulls(3, pa.string())])
    yield "int64", pa.chunked_array([pa.array(whole)])
    yield "uint64", pa.chunked_array([pa.array([2**64 - 1, 1, None], pa.uint64())])
    yield "bool", pa.chunked_array([pa.array(flags)])
    yield "float", pa.chunked_array([pa.array([0.0, -0.0, np.nan, 1.0, None, np.inf])])
    yield "pandas object", pd.Series(text, dtype=object)
    yield "pandas hostile", pd.Series(["f", [1], {}, float("nan"), 1, b"f"], dtype=object)
    yield "pandas string", pd.Series(text, dtype="string")
    yield "pandas arrow", pd.Series(text, dtype=pd.ArrowDtype(pa.string()))
    yield "pandas nullable", pd.Series([1, None, 2, 0], dtype="Int64")
    yield "pandas category", pd.Series(text, dtype="category")
    yield "polars", pl.Series(text)
    yield "polars category", pl.Series(text, dtype=pl.Categorical)
    yield "polars integers", pl.Series([1, 0, None, 2])


@pytest.mark.parametrize("name", dict(columns()))
def test_typed_columns_are_coded_as_their_cells_are(name):
    column = dict(columns())[name]
    series = open_typed(column)
    for levels in map(DeclaredLevels, LEVELS):
        expected = levels.codes(column_cells(series).astype(object))
        found = column_codes(series, levels)
        assert_array_equal(found, expected)
        assert found.dtype == expected.dtype == np.int64
        assert_array_equal(cell_codes(column, levels, native_array), expected)


def test_a_table_codes_any_part_of_a_column():
    cells = ["f", "m", None, "x", "m"]
    for X in (pa.table({"sex": cells}), pd.DataFrame({"sex": cells}), np.array([cells], dtype=object).T):
        assert Table(X).codes(0, 1, 4, DeclaredLevels(("f", "m"))).tolist() == [1, -1, -1]


@pytest.mark.parametrize("numbers", [pa.int8(), pa.float32(), pa.float64(), pa.decimal128(30, 2), pa.bool_()])
def test_columns_of_a_file_become_the_numbers_that_they_are(tmp_path, numbers):
    import pyarrow.parquet as pq

    from dpcvx.data.files import open_table

    column = pa.array([1, 0, None, 1]).cast(numbers)
    pq.write_table(pa.table({"a": column, "y": column, "s": [" f", "m ", None, "f"]}), tmp_path / "t.parquet")
    X, y = open_table(tmp_path / "t.parquet").read(["a", "s"], {"s": ("f", "m")}, "y")
    table = Table(X)
    assert_array_equal(table.column_numbers(0, 0, 4), [1, 0, np.nan, 1])
    assert_array_equal(Numbers.declare((0, 1), ()).numbers(y), [1, 0, np.nan, 1])
    assert table.codes(1, 0, 4, DeclaredLevels(("f", "m"))).tolist() == [0, 1, -1, 0]
