"""No record leaves the declared bounds on the stored integers, raises, warns, or touches another record."""

import datetime
import decimal
import io
import math
import warnings
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from dpcvx.data import GradientSum
from dpcvx.data.kernels import quantise_dense
from dpcvx.data.lattice import ResidualBound, integer_bounds
from dpcvx.data.memory import source
from dpcvx.data.quantise import Quantiser, targets
from dpcvx.data.rows import Dense
from dpcvx.losses import Softmax
from dpcvx.problem import Bounds

ONE = 2**14
TINY = math.ulp(0.0)
HARD = [
    0.0,
    -0.0,
    TINY,
    -TINY,
    1e-310,
    1e-5,
    0.5,
    1.0,
    -1.0,
    math.nextafter(1.0, 0),
    math.nextafter(1.0, 2),
    1e16,
]
HARD += [1e308, -1e308, 1.7e308, math.inf, -math.inf, math.nan]
cells = st.one_of(st.sampled_from(HARD), st.floats(), st.floats(-2, 2))
ALL_BOUNDS = [
    Bounds(1.0),
    Bounds(1.0, x_2=1.0),
    Bounds(0.3, x_2=0.31),
    Bounds(1.9999, x_2=math.sqrt(3)),
    Bounds(math.nextafter(2.0, 0), x_2=1e-3),
    Bounds(2.0**-14, x_2=2.0**-14),
    Bounds(1.0, x_2=1e9),
]


def matrix(stored):
    """Stored integers as a dense int64 matrix."""
    if isinstance(stored, Dense):
        return stored.values.astype(np.int64)
    parts = (stored.values.astype(np.int64), stored.indices, stored.indptr)
    return sp.csr_array(parts, shape=stored.shape).toarray()


def check_bounds(stored, bounds, d):
    k = matrix(stored)
    assert k.shape[1] == d
    assert np.abs(k).max() <= Fraction(bounds.x_inf) * 2**14
    largest = int((k**2).sum(axis=1).max())
    assert largest <= d * Fraction(bounds.x_inf) ** 2 * 2**28
    if bounds.x_2 is not None:
        assert largest <= Fraction(bounds.x_2) ** 2 * 2**28
    k_inf, k2 = integer_bounds(bounds, d)
    assert np.abs(k).max() <= k_inf
    assert largest <= k2


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(cells, min_size=4, max_size=4), min_size=1, max_size=5), st.sampled_from(ALL_BOUNDS))
def test_stored_integers_obey_the_bounds_exactly(rows, bounds):
    X = np.array(rows)
    check_bounds(Quantiser(bounds).quantise(X), bounds, 4)
    check_bounds(Quantiser(bounds).quantise(sp.csr_array(X)), bounds, 4)
    check_bounds(Quantiser(bounds, center=1e308, scale=TINY).quantise(X), bounds, 4)
    for intercept in (1.0, 0.3, 2.0**-14):
        if bounds.x_inf >= intercept and (bounds.x_2 is None or bounds.x_2 > intercept):
            for raw in (X, sp.csr_array(X)):
                stored = Quantiser(bounds, intercept=intercept).quantise(raw)
                check_bounds(stored, bounds, 5)
                assert (matrix(stored)[:, 4] == math.floor(intercept * ONE)).all()


@settings(max_examples=100, deadline=None)
@given(st.lists(cells, min_size=3, max_size=3), st.integers(0, 4))
def test_a_bad_row_changes_no_other_row(row, place):
    good = np.random.default_rng(0).uniform(-1.2, 1.2, size=(5, 3))
    bad = good.copy()
    bad[place] = row
    quantiser = Quantiser(Bounds(1.0, x_2=1.1))
    others = np.arange(5) != place
    for wrap in (np.array, sp.csr_array, lambda X: X.astype(object)):
        assert_array_equal(
            matrix(quantiser.quantise(wrap(bad)))[others], matrix(quantiser.quantise(wrap(good)))[others]
        )


@pytest.mark.parametrize("d", [1, 2, 3, 7, 49, 1000])
@pytest.mark.parametrize("x_inf", [1.0, 0.7, 1.999])
def test_the_longest_row_is_kept_whole_without_a_row_norm(d, x_inf):
    """sqrt(d) x_inf squared may fall below d x_inf^2 in floating point; no row may shrink because of that."""
    stored = Quantiser(Bounds(x_inf)).quantise(np.full((1, d), 5.0))
    assert (matrix(stored) == math.floor(Fraction(x_inf) * ONE)).all()
    assert integer_bounds(Bounds(x_inf), d)[1] == d * math.floor(Fraction(x_inf) * ONE) ** 2


@pytest.mark.parametrize("d", [1, 2, 3, 50, 3000])
def test_shrunk_rows_lose_little(d):
    rng = np.random.default_rng(d)
    X = rng.normal(size=(200, d)) * 10.0 ** rng.integers(-3, 300, size=(200, 1))
    X[0], X[1, :] = 1.0, 1 / math.sqrt(d)
    stored = matrix(Quantiser(Bounds(1.0, x_2=1.0)).quantise(X)) / ONE
    clipped = np.clip(X, -1, 1)
    expected = clipped / np.maximum(1, np.linalg.norm(clipped, axis=1, keepdims=True))
    assert np.abs(stored - expected).max() <= 1.01 / ONE  # shrunk once, then rounded toward zero once
    check_bounds(Quantiser(Bounds(1.0, x_2=1.0)).quantise(X), Bounds(1.0, x_2=1.0), d)


@pytest.mark.parametrize("k2", [0, 1, 9, ONE**2 // 2, ONE**2])
def test_integers_that_are_still_too_long_are_shrunk_again(k2):
    """Whatever the limit on the float64 row is, that on its integers holds."""
    X = np.random.default_rng(0).uniform(-1, 1, (50, 3))
    out = np.zeros((50, 3), dtype=np.int16)
    quantise_dense(X, np.zeros(3), np.ones(3), 1.0, math.inf, ONE, k2, out)
    squares = (out.astype(np.int64) ** 2).sum(axis=1)
    assert squares.max() <= k2
    assert squares.max() >= 0.99 * k2 or k2 < ONE


def test_rounding_is_toward_zero():
    units = np.array([[0.999, -0.999, 1.0, -1.0, 1.5, -1.5, 2.999, -2.999]])
    assert_array_equal(matrix(Quantiser(Bounds(1.0)).quantise(units / ONE)), [[0, 0, 1, -1, 1, -1, 2, -2]])


def test_cells_that_are_no_finite_numbers_count_as_the_centre():
    class Awkward:
        def __float__(self):
            raise RuntimeError("no")

    strange = [
        math.nan,
        math.inf,
        -math.inf,
        None,
        "many",
        "",
        b"x",
        10**400,
        1j,
        np.complex128(2 + 1j),
        Awkward(),
        pd.NA,
    ]
    strange += [[1.0], datetime.date(2020, 1, 1)]
    X = np.empty((len(strange), 1), dtype=object)
    X[:, 0] = strange
    y = np.empty(len(strange), dtype=object)
    y[:] = strange
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        assert not matrix(Quantiser(Bounds(1.0), center=0.5, scale=0.25).quantise(X)).any()
        assert np.isnan(targets(y, 1.0)).all()
    assert heard == []


def test_huge_finite_cells_are_clipped_and_not_zeroed():
    X = np.array([[1.7e308, -1.7e308, 1e-320]])
    assert_array_equal(matrix(Quantiser(Bounds(1.0), center=-1.7e308).quantise(X)), [[ONE, 0, ONE]])
    assert_array_equal(matrix(Quantiser(Bounds(1.0), scale=1e-300).quantise(X)), [[ONE, -ONE, 0]])


def test_center_and_scale_are_per_column():
    X = np.array([[10.0, 3.0], [30.0, 5.0], [20.0, 4.5]])
    quantiser = Quantiser(Bounds(1.0), center=np.array([20.0, 4.0]), scale=np.array([10.0, 1.0]))
    assert_array_equal(matrix(quantiser.quantise(X)), [[-ONE, -ONE], [ONE, ONE], [0, ONE // 2]])
    scaled = Quantiser(Bounds(1.0), scale=np.array([8.0, 4.0])).quantise(
        sp.csc_array([[2.0, 0.0], [0.0, 2.0]])
    )
    assert_array_equal(matrix(scaled), [[ONE // 4, 0], [0, ONE // 2]])


def test_targets_are_finite_and_clipped():
    assert_array_equal(targets([1, -3.0, math.nan, math.inf], 2.0)[:, 0], [1.0, -2.0, math.nan, math.nan])
    assert_array_equal(targets(pl.Series([1, None, 7]), 2.0)[:, 0], [1.0, math.nan, 2.0])
    assert_array_equal(targets(pd.Series([True, False]))[:, 0], [1.0, 0.0])
    assert_array_equal(
        targets(pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, math.nan]})), [[1.0, 3.0], [2.0, math.nan]]
    )
    for shape in ((), (0,), (2, 2, 2)):
        with pytest.raises(ValueError, match="y must have shape"):
            targets(np.zeros(shape))


def test_a_missing_class_code_is_no_class():
    """As 0 it would be the first class; a joint loss gives a code that is none of its own the slope 0."""
    X, theta, bound = np.ones((3, 2)), np.ones((2, 3)), ResidualBound(2**30, 2**30)
    for odd in (math.nan, math.inf, None, "x"):
        y = np.array([2, odd, 1], dtype=object)
        others = source(X[[0, 2]], [2, 1], bounds=Bounds(1.0))
        for code in (-1, math.nan):
            records = source(X, y, bounds=Bounds(1.0), missing=code)
            assert_array_equal(
                records.sum(GradientSum(Softmax(), theta, bound)),
                others.sum(GradientSum(Softmax(), theta, bound)),
            )
    with pytest.raises(ValueError, match="missing must be a finite number or NaN"):
        targets([1.0], missing=math.inf)


COLUMNS = {
    "real": [0.25, None, -0.75, 9.0],
    "whole": [1, 0, -1, 5],
    "flag": [True, False, True, True],
    "text": ["0.5", "x", None, "-0.125"],
}
TABLE = np.array(
    [[0.25, 1, 1, 0.5], [math.nan, 0, 0, math.nan], [-0.75, -1, 1, math.nan], [9.0, 5, 1, -0.125]]
)


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame(COLUMNS),
        pd.DataFrame(COLUMNS).convert_dtypes(),
        pl.DataFrame(COLUMNS),
        pl.DataFrame(COLUMNS).with_columns(
            pl.col("real").cast(pl.Float32), pl.col("text").cast(pl.Categorical)
        ),
        pa.table(COLUMNS),
        np.array(list(zip(*COLUMNS.values(), strict=True)), dtype=object),
        TABLE.astype(np.float32),
        TABLE.astype(np.longdouble),
        np.asfortranarray(TABLE),
        TABLE.tolist(),
        np.array(list(zip(*COLUMNS.values(), strict=True))).astype(str),
        sp.csr_matrix(TABLE),
        sp.coo_array(TABLE),
        sp.lil_array(TABLE),
    ],
    ids=lambda table: f"{type(table).__module__}.{type(table).__name__}",
)
def test_every_kind_of_input_gives_the_same_integers(table):
    for quantiser in (
        Quantiser(Bounds(1.0)),
        Quantiser(Bounds(1.5, x_2=1.25), scale=np.array([1.0, 2.0, 1.0, 0.5]), intercept=True),
    ):
        expected = matrix(quantiser.quantise(TABLE))
        assert_array_equal(matrix(quantiser.quantise(table)), expected)


def test_blocks_of_a_large_input_are_joined(monkeypatch):
    X = np.random.default_rng(0).uniform(-1, 1, size=(23, 3))
    whole = matrix(Quantiser(Bounds(1.0)).quantise(X))
    monkeypatch.setattr("dpcvx.data.quantise.CELLS_AT_ONCE", 12)
    for raw in (X, pd.DataFrame(X, columns=list("abc")), X.astype(object)):
        assert_array_equal(matrix(Quantiser(Bounds(1.0)).quantise(raw)), whole)


def test_integer_types_and_decimals():
    for dtype in (np.int8, np.uint64, bool):
        X = np.array([[0, 1], [1, 0]], dtype=dtype)
        assert_array_equal(matrix(Quantiser(Bounds(1.0)).quantise(X)), X.astype(int) * ONE)
    X = np.array([[decimal.Decimal("0.5")]], dtype=object)
    assert matrix(Quantiser(Bounds(1.0)).quantise(X)).item() == ONE // 2


def test_duplicates_are_summed_then_clipped_and_the_users_matrix_is_left_alone():
    data, rows, columns = [0.75, 0.75, 0.5, -0.25, 0.0], [0, 0, 1, 1, 1], [1, 1, 2, 2, 0]
    doubled = sp.csr_array((3, 3))
    doubled.indptr, doubled.indices = np.array([0, 2, 5, 5]), np.array(columns)
    doubled.data = np.array(data)
    doubled.has_canonical_format = True  # a claim that is not true
    small = sp.coo_array((np.array([100, 100], dtype=np.int8), ([0, 0], [0, 0])), shape=(1, 1))
    for raw in (doubled, sp.coo_array((data, (rows, columns)), shape=(3, 3))):
        stored = Quantiser(Bounds(1.0)).quantise(raw)
        assert_array_equal(matrix(stored), [[0, ONE, 0], [0, 0, ONE // 4], [0, 0, 0]])
        assert raw.data.tolist() == data
    assert matrix(Quantiser(Bounds(1.0), scale=400.0).quantise(small)).item() == ONE // 2
    infinite = sp.coo_array(([math.inf, -math.inf], ([0, 0], [0, 0])), shape=(1, 1))
    assert matrix(Quantiser(Bounds(1.0)).quantise(infinite)).item() == 0


def test_sparse_and_dense_rows_give_the_same_integers():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(50, 30)) * (rng.random((50, 30)) < 0.3)
    for quantiser in (
        Quantiser(Bounds(1.0)),
        Quantiser(Bounds(1.0, x_2=0.9), scale=3.0),
        Quantiser(Bounds(1.0, x_2=2.0), intercept=True),
    ):
        assert_array_equal(matrix(quantiser.quantise(sp.csr_array(X))), matrix(quantiser.quantise(X)))


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        (np.zeros(3), ValueError, "2-d array, got 1"),
        (np.zeros((2, 2, 2)), ValueError, "2-d array, got 3"),
        (np.zeros((0, 3)), ValueError, "at least one row and one column"),
        (np.zeros((3, 0)), ValueError, "at least one row and one column"),
        (sp.csr_array((0, 3)), ValueError, "at least one row and one column"),
        (sp.coo_array(np.zeros(3)), ValueError, "2-d matrix"),
    ],
)
def test_shapes_are_checked(wrong, error, words):
    with pytest.raises(error, match=words):
        Quantiser(Bounds(1.0)).quantise(wrong)


@pytest.mark.parametrize(
    "column",
    [
        pl.Series([datetime.date(2020, 1, 1)]),
        pd.Series(pd.to_datetime(["2020-01-01"], utc=True)),
        pa.array([[1, 2]]),
        pa.array([1], pa.time32("s")),
    ],
    ids=["date", "instant", "list", "time"],
)
def test_targets_of_other_types_are_no_numbers(column):
    assert_array_equal(targets(column, missing=0.5), [[0.5]])


@pytest.mark.parametrize(
    "rows",
    [
        np.full((2, 2), 1j),
        sp.csr_array(np.full((2, 2), 1j)),
        np.zeros((2, 2), dtype="M8[s]"),
        np.zeros((2, 2), dtype=[("a", int)]),
        pl.DataFrame({"a": [datetime.date(2020, 1, 1)] * 2, "b": [{"c": 1}] * 2}),
        pa.table({"a": [[1, 2]] * 2, "b": [datetime.time(1)] * 2}),
    ],
    ids=lambda rows: f"{type(rows).__name__} {getattr(rows, 'dtype', '')}",
)
def test_no_type_is_refused(rows):
    """One complex cell makes a list of numbers complex, and one date a column of objects."""
    assert_array_equal(matrix(Quantiser(Bounds(1.0)).quantise(rows)), np.zeros((2, 2)))


def test_cells_of_sparse_objects_are_read_one_by_one():
    X = sp.coo_array(np.eye(2))
    X.data = np.array(["1.0", "x"], dtype=object)
    assert_array_equal(matrix(Quantiser(Bounds(1.0)).quantise(X)), [[ONE, 0], [0, 0]])


def test_quantisers_are_checked():
    for center, scale in ((math.nan, 1.0), (0.0, 0.0), (0.0, np.array([1.0, -1.0])), (0.0, math.inf)):
        with pytest.raises(ValueError, match="finite centers and finite scales > 0"):
            Quantiser(Bounds(1.0), center=center, scale=scale)
    with pytest.raises(ValueError, match="one entry for each of the 2 columns"):
        Quantiser(Bounds(1.0), scale=np.ones(3)).quantise(np.zeros((2, 2)))
    with pytest.raises(ValueError, match="cannot be centred"):
        Quantiser(Bounds(1.0), center=0.5).quantise(sp.csr_array(np.eye(2)))
    for bounds in (Bounds(0.5), Bounds(1.0, x_2=1.0)):
        with pytest.raises(ValueError, match="needs x_inf >= 1 and x_2 > 1"):
            Quantiser(bounds, intercept=True)


def parquet(table):
    """The table after a round trip through a file."""
    file = io.BytesIO()
    pq.write_table(table, file)
    return pq.read_table(io.BytesIO(file.getvalue()))


def texts(cells):
    return [None if cell is None else str(cell) for cell in cells]


DICTIONARIES = {
    "arrow": lambda cells: pa.table({"c": pa.array(cells).dictionary_encode()}),
    "chunks": lambda cells: pa.table(
        {"c": pa.chunked_array([pa.array(part).dictionary_encode() for part in (cells[:2], cells[2:])])}
    ),
    "batch": lambda cells: pa.record_batch({"c": pa.array(cells).dictionary_encode()}),
    "from pandas": lambda cells: pa.Table.from_pandas(pd.DataFrame({"c": pd.Categorical(cells)})),
    "parquet": lambda cells: parquet(pa.table({"c": pa.array(texts(cells)).dictionary_encode()})),
    "from polars": lambda cells: pa.table({"c": pl.Series(texts(cells), dtype=pl.Categorical).to_arrow()}),
    "polars": lambda cells: pl.DataFrame({"c": pl.Series(texts(cells), dtype=pl.Categorical)}),
    "pandas": lambda cells: pd.DataFrame({"c": pd.Categorical(cells)}),
    "pandas on arrow": lambda cells: pd.DataFrame(
        {"c": pd.arrays.ArrowExtensionArray(pa.array(cells).dictionary_encode())}
    ),
}


@pytest.mark.parametrize("last", [0.25, -0.5])
@pytest.mark.parametrize("kind", DICTIONARIES)
def test_a_missing_cell_of_a_dictionary_is_missing(kind, last):
    """A library gave it the dictionary's last entry, which other records decide."""
    table = DICTIONARIES[kind]([0.5, None, None, None, last])
    expected = [0.5, 0.0, 0.0, 0.0, last]
    assert_array_equal(matrix(Quantiser(Bounds(1.0)).quantise(table))[:, 0] / ONE, expected)
    assert_array_equal(targets(table, missing=0.0)[:, 0], expected)
    assert_array_equal(targets(table["c"], missing=0.0)[:, 0], expected)


def invalid_text():
    """An Arrow column whose second cell is not UTF-8."""
    cells = pa.array([b"0.5", b"\xff\xfes3cret", None, b"0.25"])
    return pa.Array.from_buffers(pa.string(), 4, cells.buffers(), cells.null_count)


INVALID = {
    "arrow": lambda column: pa.table({"c": column}),
    "dictionary": lambda column: pa.table({"c": column.dictionary_encode()}),
    "parquet": lambda column: parquet(pa.table({"c": column})),
    "pandas": lambda column: pd.DataFrame({"c": pd.array(column, dtype="str")}),
    "pandas on arrow": lambda column: pd.DataFrame({"c": pd.arrays.ArrowExtensionArray(column)}),
    "batch": lambda column: pa.record_batch({"c": column}),
}


@pytest.mark.parametrize("kind", INVALID)
def test_text_that_is_not_utf8_is_no_reason_to_stop(kind):
    table = INVALID[kind](invalid_text())
    assert_array_equal(matrix(Quantiser(Bounds(1.0)).quantise(table))[:, 0] / ONE, [0.5, 0.0, 0.0, 0.25])
    assert_array_equal(targets(table["c"], missing=0.0)[:, 0], [0.5, 0.0, 0.0, 0.25])


class Refusing:
    """A cell that raises when NumPy looks into it."""

    def __array__(self, *_, **__):
        raise RuntimeError("s3cret")

    def __len__(self):
        raise RuntimeError("s3cret")

    def __getitem__(self, place):
        raise RuntimeError("s3cret")

    __float__ = __array__


@pytest.mark.parametrize(
    "cell",
    ["x", "0.5", None, b"1", [1, 2], (), np.ones(2), 10**400, 1j, math.nan, {}, Refusing()],
    ids=lambda cell: type(cell).__name__,
)
def test_one_odd_cell_of_a_list_changes_no_other(cell):
    """NumPy takes the type of a list from all of its cells: beside "x" even True is text, and no number."""
    rows = [[0.5, True, "0.25"], [1e-3, 0.75, 0], [1, 2, 3]]
    quantiser = Quantiser(Bounds(1.0))
    expected = [[8192, ONE, 4096], [16, 12288, 0]]
    for place in range(3):
        odd = [cell if j == place else value for j, value in enumerate(rows[2])]
        for table in ([*rows[:2], odd], (*rows[:2], tuple(odd))):
            assert_array_equal(matrix(quantiser.quantise(table))[:2], expected)
    assert_array_equal(targets([0.5, True, "0.25", cell], 2.0)[:3, 0], [0.5, 1.0, 0.25])
    assert_array_equal(targets([cell, 0.5, True, "0.25"], 2.0)[1:, 0], [0.5, 1.0, 0.25])


def test_lists_of_another_shape_are_refused_without_a_cell():
    quantiser = Quantiser(Bounds(1.0))
    for rows, words in (
        ([[1.0, 987.5], [2.0]], "same number of cells"),
        ([[[987.5], [1.0]]], "nested deeper"),
        ([987.5, 1.0], "2-d array, got 1"),
        ([], "2-d array, got 1"),
        ([[], []], "at least one row and one column"),
        ("987.5", "2-d array, got 0"),
    ):
        with pytest.raises(ValueError, match=words) as caught:
            quantiser.quantise(rows)
        assert "987" not in str(caught.value)
    with pytest.raises(ValueError, match="nested deeper"):
        targets([[987.5], [1.0]])
    assert_array_equal(targets([np.array(0.5), np.array(0.25)])[:, 0], [0.5, 0.25])


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, bool, object, "U4"])
def test_masked_cells_are_missing(dtype):
    """What lies beneath a mask is somebody's value, or rubbish."""
    cells = np.ma.masked_array(np.ones((3, 2), dtype=dtype), mask=[[0, 1], [0, 0], [1, 0]])
    expected = np.array([[1, 0], [1, 1], [0, 1]])
    if dtype == "U4":
        cells.data[:] = "1"
    assert_array_equal(matrix(Quantiser(Bounds(1.0)).quantise(cells)), expected * ONE)
    assert_array_equal(targets(cells, missing=0.0), expected)
    assert_array_equal(targets(cells[:, 0], missing=0.0)[:, 0], expected[:, 0])


def test_masked_cells_of_other_types_are_no_numbers():
    for dtype in ("M8[s]", "m8[s]", [("a", int)]):
        cells = np.ma.masked_array(np.zeros((2, 2), dtype=dtype))
        assert_array_equal(matrix(Quantiser(Bounds(1.0)).quantise(cells)), np.zeros((2, 2)))
    assert_array_equal(targets(np.ma.masked_array(np.ones(2, dtype=complex), mask=[0, 1])), [[1.0], [np.nan]])


def malformed(kind):
    """A sparse matrix with one part changed after it was made."""
    X = sp.csr_array(np.eye(4))
    if kind == "beyond":
        X.indices[2] = 987
    elif kind == "negative":
        X.indices[2] = -987
    elif kind == "descending":
        X.indptr[2] = 1
        X.indptr[1] = 987
    elif kind == "hidden rows":
        X.indptr[:] = [0, 4, 4, 4, 0]
    elif kind == "too long":
        X.indptr[-1] = 987
    elif kind == "columns":
        X = X.tocsc()
        X.indices[2] = 987
    elif kind == "coordinates":
        X = X.tocoo()
        X.coords[0][2] = 987
    elif kind == "lists":
        X = X.tolil()
        X.rows[2][0] = 987
    return X


MALFORMED = ["beyond", "negative", "descending", "hidden rows", "too long", "columns", "coordinates", "lists"]


@pytest.mark.parametrize("kind", MALFORMED)
def test_a_malformed_sparse_matrix_is_refused_in_the_same_words(kind):
    """Compiled code must not follow such an index, nor an error name it."""
    with pytest.raises(ValueError, match="The sparse matrix is malformed: its indices") as caught:
        Quantiser(Bounds(1.0)).quantise(malformed(kind))
    assert "987" not in str(caught.value)
    assert caught.value.__suppress_context__
