"""A cell's value is a function of its own text, whatever types a reader inferred from the other cells."""

import datetime
import decimal
import math

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.testing import assert_array_equal

import dpcvx
from dpcvx.data.canonical import UNKNOWN, canonical, canonical_cells, read_numbers
from dpcvx.data.cells import column_cells, native_array, open_typed
from dpcvx.data.levels import DeclaredLevels
from readers import CELLS, READERS, csv_bytes

CONTEXTS = {
    "integers": ("0", "1"),
    "floats": ("0.5", "1.25"),
    "flags": ("True", "false"),
    "flags and integers": ("true", "0"),
    "dates": ("2021-05-06", "2021-05-07"),
    "moments": ("2021-05-06 01:02:03", "2021-05-07 01:02:03.5"),
    "moments with zones": ("2021-05-06 01:02:03Z", "2021-05-07 01:02:03+02:00"),
    "times": ("01:02", "03:04:05"),
    "text": ("abc", "de"),
    "nothing": ("", ""),
    "integers and nothing": ("0", ""),
    "flags and nothing": ("true", ""),
    "integers and text": ("0", "abc"),
    "large integers": ("99999999999999999999", "1"),
    "hexadecimal": ("0x1", "2"),
    "infinities": ("inf", "1.5"),
}
QUICK = ("pandas", "pandas, Arrow engine", "polars", "Arrow")


def values(table):
    cells = column_cells(open_typed(table["cell"]))
    return [math.inf if value is UNKNOWN else value for value in canonical_cells(cells)]


def check(reader, texts):
    """Each text among every kind of neighbours: its own value and those of its neighbours stay the same."""
    for text in texts:
        own = {}
        for kind, (first, last) in CONTEXTS.items():
            content = csv_bytes(["cell", "other"], [[first, "9"], [text, "9"], [last, "9"]])
            try:
                table = READERS[reader](content)
            except OverflowError:  # pandas' own, of integers beyond 64 bits: no table enters
                assert reader == "pandas on Arrow"
                continue
            found = values(table)
            own[kind] = found[1]
            assert [found[0], found[2]] == [canonical(first), canonical(last)], (text, kind)
        assert len(set(own.values())) == 1, (text, own)


@pytest.mark.parametrize("reader", QUICK)
def test_no_cell_changes_the_value_of_another(reader):
    check(reader, CELLS[::7])


@pytest.mark.long
@pytest.mark.parametrize("reader", READERS)
def test_no_text_changes_the_value_of_another_with_any_reader(reader):
    check(reader, CELLS)


ONE = [
    1,
    1.0,
    True,
    "1",
    " 1",
    "1.0",
    "1e0",
    "+1",
    "01",
    "0x1",
    "true",
    "True",
    "TRUE",
    b"1",
    np.int8(1),
    np.True_,
]
ONE += [decimal.Decimal(1), np.float32(1), np.str_("1"), np.array(1), 1 + 0j, 10**0]
MISSING = [
    None,
    math.nan,
    pd.NA,
    pd.NaT,
    np.datetime64("NaT"),
    np.ma.masked,
    "",
    " ",
    "NA",
    "nan",
    "-NaN",
    "null",
]
MISSING += [
    "NULL",
    "<NA>",
    "#N/A",
    "N/A",
    "n/a",
    "None",
    "NaT",
    decimal.Decimal("NaN"),
    b"",
    np.float64("nan"),
]
DAY = ["2020-01-01", " 2020-01-01", "2020-01-01 00:00:00", "2020-01-01T00:00", datetime.date(2020, 1, 1)]
DAY += [datetime.datetime(2020, 1, 1), pd.Timestamp("2020-01-01"), np.datetime64("2020-01-01T00", "h")]
MOMENT = ["2020-01-01T00:30:00+01:00", "2019-12-31 23:30Z", "2019-12-31T23:30:00.000Z"]
MOMENT += [pd.Timestamp("2019-12-31 23:30", tz="UTC"), pd.Timestamp("2020-01-01 00:30", tz="Europe/Paris")]
CLOCK = ["12:34", "12:34:00", datetime.time(12, 34)]


@pytest.mark.parametrize(
    ("cells", "value"),
    [(ONE, 1.0), (MISSING, None), (DAY, "2020-01-01"), (MOMENT, "2019-12-31T23:30:00Z"), (CLOCK, "12:34:00")],
    ids=["one", "missing", "day", "moment", "clock"],
)
def test_all_forms_of_a_value_are_one(cells, value):
    for cell in cells:
        assert canonical(cell) == value, cell


class Awkward:
    """A cell that raises whatever is asked of it, or claims to equal every other."""

    def __eq__(self, other):
        return True

    def __hash__(self):
        return hash("a")

    def __float__(self):
        raise RuntimeError("no")

    __str__ = __repr__ = __len__ = __iter__ = __float__


def test_other_objects_are_unknown_and_change_no_other_cell():
    odd = [
        [1],
        {},
        (),
        set(),
        object(),
        Awkward(),
        1j,
        np.ones(2),
        datetime.timedelta(1),
        np.timedelta64(1, "s"),
    ]
    for cell in odd:
        assert canonical(cell) is UNKNOWN
        column = np.fromiter(["a", cell, "b", 1], dtype=object, count=4)
        assert DeclaredLevels(("a", "b", "1")).codes(column).tolist() == [0, -1, 1, 2]
        assert_array_equal(read_numbers(column), [np.nan, np.nan, np.nan, 1])


def test_moments_and_time_spans_are_no_numbers_in_any_container():
    days = np.array(["2020-01-01", "2020-01-02", "NaT"], dtype="M8[ns]")
    spans = np.array([1, 2, 3], dtype="m8[ns]")
    levels = DeclaredLevels(("2020-01-02", 1, 2))
    for cells in (
        days,
        pd.Series(days),
        pl.Series(days),
        pa.array(days),
        list(days),
        pd.Series(days).astype("category"),
    ):
        column = native_array(cells)
        assert levels.codes(column).tolist() == [-1, 0, -1]
        assert np.isnan(read_numbers(column)).all()
    for cells in (spans, pd.Series(spans), pl.Series(spans), pa.array(spans), list(spans)):
        assert levels.codes(native_array(cells)).tolist() == [-1, -1, -1]
        assert np.isnan(read_numbers(native_array(cells))).all()
    several = pd.DataFrame(
        {"a": [0.5, 1.0, 2.0], "b": days, "c": spans, "d": [True, False, True], "e": ["1", "x", ""]}
    )
    expected = [[0.5, np.nan, np.nan, 1, 1], [1, np.nan, np.nan, 0, np.nan], [2, np.nan, np.nan, 1, np.nan]]
    for table in (several, pl.from_pandas(several), pa.Table.from_pandas(several)):
        assert_array_equal(read_numbers(native_array(table)), expected)


@pytest.mark.parametrize("cell", [np.datetime64("2020"), np.datetime64("2020-02", "M")], ids=str)
def test_years_and_months_are_dates_in_a_column_of_their_own_and_among_others(cell):
    """A column of years was read as numbers, unless NumPy had made days of it for another cell."""
    levels = DeclaredLevels((2020, "2020-01-01", "2020-02-01"))
    own = levels.codes(np.fromiter(["a", cell], dtype=object, count=2))[1]
    columns = [[cell, cell], [cell, np.datetime64("NaT")], [cell, np.datetime64("2021-03-04")]]
    assert {int(levels.codes(np.array(column))[0]) for column in columns} == {own}
    assert levels[own] == f"{cell}-01-01"[:10]


def test_a_missing_time_span_is_missing_in_every_column():
    for column in (pd.Series([pd.NaT, pd.Timedelta(1)]), pd.Series([np.timedelta64("NaT"), "abc"])):
        cells = column_cells(open_typed(column))
        assert DeclaredLevels(("NA", 1)).codes(cells).tolist() == [0, -1]
    assert DeclaredLevels(("NA", 1)).codes(np.array(["NaT", 1], "m8[s]")).tolist() == [0, -1]


@pytest.mark.parametrize("zone", ["UTC", "Europe/Paris", "Nowhere/At all"])
def test_moments_with_zones_need_no_database_of_zones(zone):
    """Arrow finds a zone where all cells have one, and looked it up: an error where there is no database."""
    column = pa.array([0, None, 1_500_000_000], pa.timestamp("ns", zone))
    cells = canonical_cells(column_cells(open_typed(column)))
    assert cells == ["1970-01-01T00:00:00Z", None, "1970-01-01T00:00:01.5Z"]


def test_a_level_written_as_a_missing_mark_takes_every_missing_cell():
    levels = DeclaredLevels.declare(["DE", "NA"], "categories['country']")
    for cells in (["DE", "NA", None], ["DE", "", math.nan]):
        assert levels.codes(np.array(cells, dtype=object)).tolist() == [0, 1, 1]
    assert levels.codes(np.array([1.0, np.nan])).tolist() == [-1, 1]


@pytest.mark.parametrize(
    "pair", [(1, "1"), (1, True), ("a", " a"), ("NA", ""), ("true", 1.0), ("2020-01-01", "2020-01-01 00:00")]
)
def test_levels_of_one_value_are_refused_with_both_names(pair):
    for declare in (
        lambda: DeclaredLevels.declare(pair, "levels"),
        lambda: dpcvx.Attribute("x", pair, pair[-1]),
        lambda: dpcvx.PrivateLogisticRegression(epsilon=1.0, bounds=(0, 1), classes=pair).plan(10, 2),
    ):
        with pytest.raises(ValueError, match="count as one") as caught:
            declare()
        assert all(repr(label) in str(caught.value) for label in pair)


# -- the attacks


def people(last):
    """490 people with a flag of 0 or 1; the last one's is given."""
    return csv_bytes(["flag", "y"], [[str(i % 2), str(i % 2)] for i in range(489)] + [[last, "1"]])


@pytest.mark.parametrize("reader", ["pandas", "polars", "Arrow"])
def test_one_cell_does_not_empty_a_column_of_the_engine(reader):
    """Measured before: 245 people with flag 1, and none once one person's cell was "abc"."""
    universe = dpcvx.queries.Universe(
        dpcvx.Schema((dpcvx.Attribute("flag", (1, 0), 0), dpcvx.Attribute("y", (1, 0), 0)))
    )
    counts = []
    for last in ("1", "abc"):
        cells = universe.encode(READERS[reader](people(last)))
        counts.append(np.bincount(cells, minlength=4).tolist())
    assert counts == [[245, 0, 0, 245], [244, 0, 1, 245]]


@pytest.mark.parametrize("reader", ["pandas", "polars", "Arrow"])
@pytest.mark.parametrize("last", ["abc", "", "NA", "1.5", "2020-01-01"])
def test_one_cell_does_not_decide_whether_a_model_is_noise(reader, last):
    """Measured before: a logistic coefficient of 4.5 without the cell, noise with it."""
    for declared in ({"categories": {"flag": [0, 1]}}, {}):
        model = dpcvx.PrivateLogisticRegression(
            epsilon=50.0, bounds=(0, 1), classes=(0, 1), random_state=1, n_iter=40, **declared
        )
        coefficients = []
        for text in ("1", last):
            table = READERS[reader](people(text))
            coefficients.append(
                model.fit(table[["flag"]] if reader == "pandas" else table.select(["flag"]), table["y"]).coef_
            )
        assert abs(coefficients[0]).max() > 1
        np.testing.assert_allclose(coefficients[1], coefficients[0], rtol=0.2)


@pytest.mark.parametrize("target", ["abc", "", "true", "2020-01-01"])
@pytest.mark.parametrize("kind", [dpcvx.PrivateLinearRegression, dpcvx.PrivateLogisticRegression])
def test_one_target_does_not_decide_between_a_fit_and_an_error(kind, target):
    declared = {"y_bounds": (0, 1)} if kind is dpcvx.PrivateLinearRegression else {"classes": (0, 1)}
    content = csv_bytes(["x", "y"], [[str(i / 100), str(i % 2)] for i in range(99)] + [["0", target]])
    for name in READERS:
        table = READERS[name](content)
        X = np.linspace(0, 1, 100)[:, None]
        model = kind(epsilon=1.0, bounds=(0, 1), random_state=1, n_iter=2, **declared).fit(X, table["y"])
        assert model.coef_.shape == (1,)


def test_a_missing_cell_that_turns_flags_into_objects_changes_no_other():
    rows = [[["true", "false"][i % 2], str(i % 2)] for i in range(20)]
    whole = READERS["pandas"](csv_bytes(["flag", "y"], rows))
    rows[7][0] = ""
    holed = READERS["pandas"](csv_bytes(["flag", "y"], rows))
    assert whole["flag"].dtype == bool
    assert holed["flag"].dtype == object
    levels = DeclaredLevels((True, False))
    one, other = (levels.codes(column_cells(open_typed(table["flag"]))) for table in (whole, holed))
    assert_array_equal(np.delete(one, 7), np.delete(other, 7))
    assert other[7] == -1


def test_classes_from_y_do_not_follow_a_missing_cell():
    X = np.linspace(0, 1, 20)[:, None]
    views = set()
    for cells in (
        [0, 1] * 10,
        [0, 1] * 9 + [0, None],
        ["0", "1"] * 9 + ["0", "NA"],
        [False, True] * 9 + [0, None],
    ):
        for y in (cells, pd.Series(cells), pl.Series(cells, strict=False), pa.array(list(map(str, cells)))):
            model = dpcvx.PrivateLogisticRegression(epsilon=1.0, bounds=(0, 1), classes="from_y", n_iter=2)
            model.fit(X, y)
            views.add((model.classes_.dtype, tuple(model.classes_.tolist())))
    assert views == {(np.dtype(np.int64), (0, 1))}


def test_a_private_score_does_not_follow_the_type_of_a_target():
    X = np.linspace(0, 1, 200)[:, None]
    y = np.arange(200) % 2
    model = dpcvx.PrivateLogisticRegression(epsilon=1.0, bounds=(0, 1), classes=(0, 1), random_state=1).fit(
        X, y
    )
    scores = [
        float(dpcvx.private_score(model, X, given, epsilon=1.0, random_state=2))
        for given in (y, y.astype(str), pd.Series(y).astype("category"), [*y[:-1].tolist(), "1"], y == 1)
    ]
    assert len(set(scores)) == 1
    with pytest.warns(dpcvx.PrivacyLeakWarning):
        plain = model.score(X, y)
    assert model.score(X, y.astype(str)) == model.score(X, pl.Series(y == 1)) == plain


def test_columns_and_targets_say_which_cells_they_recognise():
    from dpcvx.data.columns import Columns
    from dpcvx.data.table import Table
    from dpcvx.data.target import Labels, Numbers

    table = Table(pa.table({"a": ["1", "x", "inf", None], "b": ["f", " m", "M", "NA"]}))
    columns = Columns.declare(table, {"a": (0, 1)}, {"b": ["f", "m"]}, None)
    (seen,) = columns.recognised(table)  # the number, and both levels
    assert seen.astype(int).tolist() == [[1, 1, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]]
    labels = Labels.declare((0, 1)).recognised(["1", 0.0, True, "yes", None])
    assert labels.astype(int).tolist() == [[0, 1], [1, 0], [0, 1], [0, 0], [0, 0]]
    numbers = Numbers.declare((0, 1), ()).recognised(["1", 0.5, "x", math.inf])
    assert numbers.astype(int).tolist() == [[1], [1], [0], [0]]
