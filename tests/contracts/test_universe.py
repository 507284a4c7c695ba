"""Schema, universe, histogram and counts: every cell has a place, and every pass over them is exact."""

import itertools
import json
import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpcvx.data.files import open_table
from dpcvx.errors import Incompatible
from dpcvx.losses import Logistic, Softmax
from dpcvx.noise import SecureGenerator, SeededGenerator
from dpcvx.queries import Attribute, Binned, Counts, Histogram, Schema, Universe
from dpcvx.queries.synthetic import STATEMENT_KEY, statement_path, synthetic_table, write_synthetic
from zoo import ALL_LOSSES

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
SCHEMA = Schema(
    (
        Attribute("sex", ("f", "m"), other="f"),
        Binned("age", (0.0, 30.0, 60.0, 100.0), 45),
        Attribute("children", (0, 1, 2), 2),
        Binned("income", (-1e4, 0.0, 2e4, 5e4, 1e6), missing=10.0),
    )
)
UNIVERSE = Universe(SCHEMA)
PEOPLE = {
    "sex": ["f", "m", "m", "f"],
    "age": [29.9, 30.0, 60.0, 99.0],
    "children": [0, 1, 2, 2],
    "income": [-5.0, 0.0, 3e4, 6e4],
}
CELLS = [
    np.ravel_multi_index(place, (2, 3, 3, 4))
    for place in [(0, 0, 0, 0), (1, 1, 1, 1), (1, 2, 2, 2), (0, 2, 2, 3)]
]
SHAPES = [(2,), (5,), (2, 2, 2), (3, 1 + 1, 5, 4), (2,) * 13, (9, 7, 5, 11, 3), (5000,), (3, 4000)]


class Awkward:
    """A cell whose every use raises."""

    def __eq__(self, other):
        raise RuntimeError("seen")

    def __hash__(self):
        raise RuntimeError("seen")

    def __float__(self):
        raise RuntimeError("seen")


def universe_of(sizes):
    return Universe(Schema(tuple(Attribute(f"a{i}", tuple(range(k)), k - 1) for i, k in enumerate(sizes))))


def subsets(sizes):
    """Some sets of attributes, in orders of their own."""
    d = len(sizes)
    chosen = {(0,), (d - 1,), tuple(range(d))[::-1], tuple(range(0, d, 2)), (d - 1, 0) if d > 1 else (0,)}
    return sorted(A for A in chosen if math.prod(sizes[a] for a in A) <= 2**16)


# -- schema


def test_a_schema_survives_json_and_toml(tmp_path):
    assert Schema.from_json(SCHEMA.to_json()) == SCHEMA
    assert json.loads(SCHEMA.to_json())["attributes"][0] == {
        "name": "sex",
        "levels": ["f", "m"],
        "other": "f",
    }
    file = tmp_path / "schema.toml"
    file.write_text(
        '[attributes.sex]\nlevels = ["f", "m"]\nother = "f"\n'
        "[attributes.age]\nedges = [0, 30, 60, 100]\nmissing = 45\n"
        "[attributes.children]\nlevels = [0, 1, 2]\nother = 2\n"
        "[attributes.income]\nedges = [-1e4, 0, 2e4, 5e4, 1e6]\nmissing = 10\n"
    )
    assert Schema.from_toml(file) == SCHEMA


def test_attributes_know_sizes_labels_and_values():
    sex, age = SCHEMA["sex"], SCHEMA["age"]
    assert (sex.size, sex.labels) == (2, ("f", "m"))
    assert sex.scaled.tolist() == [-1.0, 1.0]
    assert age.labels == ("[0, 30)", "[30, 60)", "[60, 100]")
    assert age.scaled == pytest.approx([-0.7, -0.1, 0.6])
    assert age.midpoints.tolist() == [15.0, 45.0, 80.0]
    assert SCHEMA["children"].scaled.tolist() == [-1.0, 0.0, 1.0]
    assert SCHEMA["children"].other == 2
    assert SCHEMA.position("income") == 3
    with pytest.raises(KeyError, match="no column 'height'; it has sex, age"):
        SCHEMA["height"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Attribute("a", ("x",)), "two or more"),
        (lambda: Attribute("a", ("x", "x"), "x"), "different labels"),
        (lambda: Attribute("a", (0.0, math.inf)), "finite"),
        (lambda: Attribute("a", ("x", "y"), other=3), "must be one of"),
        (lambda: Attribute("", ("x", "y"), "y"), "name of a column"),
        (lambda: Binned("a", (0.0, 1.0)), "three or more finite numbers"),
        (lambda: Binned("a", (0.0, 2.0, 1.0), 1), "increase"),
        (lambda: Binned("a", (0.0, 1.0, math.inf)), "finite"),
        (lambda: Binned("a", ("x", "y", "z")), "finite"),
        (lambda: Binned("a", (0.0, 1.0, 2.0), missing=3.0), "from 0 to 2"),
        (lambda: Schema(()), "one or more"),
        (lambda: Schema((Attribute("a", (0, 1), 1), Binned("a", (0, 1, 2), 0.5))), "more than once"),
        (lambda: Schema.from_json("{"), "not valid JSON"),
        (lambda: Schema.from_json('{"attributes": 3}'), "nothing else"),
        (lambda: Schema.from_json('{"attributes": [{"name": "a"}]}'), "either levels"),
        (lambda: Schema.from_json('{"attributes": [{"name": "a", "levels": "xy"}]}'), "must be a list"),
        (
            lambda: Schema.from_json('{"attributes": [{"name": "a", "levels": [1, 2], "bins": 2}]}'),
            "either levels",
        ),
    ],
)
def test_a_wrong_declaration_is_refused_with_the_reason(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_the_example_of_the_documentation_is_what_the_page_says():
    universe = Universe(Schema.from_toml(ROOT / "examples" / "schema.toml"))
    assert (universe.shape, universe.n_cells) == ((3, 4, 7, 5, 3), 1260)
    assert universe.schema["education"].other == "unknown"
    assert "# (3, 4, 7, 5, 3), 1260\n" in (ROOT / "docs" / "universe.md").read_text()


@pytest.mark.parametrize("text", ["[attributes", "x = 1", "[attributes]\nage = 3"])
def test_a_wrong_schema_file_is_refused(text, tmp_path):
    file = tmp_path / "schema.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=r"schema\.toml"):
        Schema.from_toml(file)


# -- universe


def as_structured(columns):
    kinds = [("sex", "U4"), ("age", "f8"), ("children", "i8"), ("income", "f8")]
    return np.array(list(zip(*(columns[name] for name, _ in kinds), strict=True)), dtype=kinds)


@pytest.mark.parametrize(
    "table",
    [
        PEOPLE,
        {name: np.array(column) for name, column in PEOPLE.items()},
        pd.DataFrame(PEOPLE),
        pd.DataFrame(PEOPLE).astype({"sex": "category", "children": "Int64"}),
        pl.DataFrame(PEOPLE),
        pa.table(PEOPLE),
        as_structured(PEOPLE),
        {**PEOPLE, "income": pa.array(PEOPLE["income"]), "sex": pl.Series(PEOPLE["sex"])},
        pd.DataFrame({"unused": [object()] * 4, **PEOPLE}),
    ],
    ids=["lists", "arrays", "pandas", "categories", "polars", "arrow", "structured", "mixed", "extra"],
)
def test_every_kind_of_table_has_the_same_cells(table):
    assert UNIVERSE.encode(table).tolist() == CELLS


def test_decoding_gives_what_is_encoded_to_the_same_cells():
    everything = np.arange(UNIVERSE.n_cells)
    columns = UNIVERSE.decode(everything)
    assert np.array_equal(UNIVERSE.encode(columns), everything)
    assert columns["sex"][0] == "f"
    assert columns["children"].dtype.kind == "i"
    assert set(columns["age"]) == {15.0, 45.0, 80.0}


@pytest.mark.parametrize(
    "odd",
    [None, math.nan, "", "zz", b"\xff", [1], (), {}, object(), Awkward(), 2 + 1j, pd.NA, "nan"],
    ids=lambda odd: type(odd).__name__,
)
def test_no_cell_raises_and_none_changes_another(odd):
    for name in PEOPLE:
        column = [*PEOPLE[name]]
        column[2] = odd
        cells = UNIVERSE.encode({**PEOPLE, name: column})
        assert [*cells[:2], cells[3]] == [*CELLS[:2], CELLS[3]]
        digits = np.unravel_index(cells[2], UNIVERSE.shape)
        axis = SCHEMA.position(name)
        assert digits[axis] == {"sex": 0, "age": 1, "children": 2, "income": 1}[name]


def test_numbers_out_of_range_count_in_the_nearest_bin():
    ages = [-(10**400), -math.inf, 0.0, 30.0, 59.999, 100.0, 10**400, math.inf]
    n = len(ages)
    cells = UNIVERSE.encode({"sex": ["m"] * n, "age": ages, "children": [0] * n, "income": [0.0] * n})
    assert np.unravel_index(cells, UNIVERSE.shape)[1].tolist() == [0, 0, 0, 1, 1, 2, 2, 2]


def test_what_is_wrong_with_a_table_is_said_from_names_and_shapes_alone():
    with pytest.raises(ValueError, match="lacks: 'age', 'income'"):
        UNIVERSE.encode({"sex": ["f"], "children": [0]})
    with pytest.raises(TypeError, match="mapping from name to column; got list"):
        UNIVERSE.encode([PEOPLE])
    with pytest.raises(ValueError, match="same number of rows"):
        UNIVERSE.encode({**PEOPLE, "sex": ["f"]})
    with pytest.raises(ValueError, match="2 dimensions"):
        UNIVERSE.encode({**PEOPLE, "age": np.zeros((4, 2))})


def test_a_histogram_has_a_largest_universe():
    assert universe_of((2,) * 24).listed
    large = universe_of((2,) * 25)
    assert not large.listed
    with pytest.raises(Incompatible, match=r"33,554,432 cells; .* at most 16,777,216"):
        Histogram(large)
    assert UNIVERSE.shape == (2, 3, 3, 4)
    for wrong in [(0, 0), (4,), (-1,)]:
        with pytest.raises(ValueError, match="different numbers from 0 to 3"):
            UNIVERSE.axes(wrong)


# -- histogram


@pytest.mark.parametrize("sizes", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["float64", "float32"])
def test_marginals_are_sums_over_the_other_axes(sizes, dtype):
    universe = universe_of(sizes)
    weights = np.random.default_rng(0).gamma(0.3, size=universe.n_cells).astype(dtype)
    histogram = Histogram(universe, weights)
    assert histogram.weights.dtype == dtype
    p = weights.astype(np.float64).reshape(sizes) / weights.sum(dtype=np.float64)
    for A in subsets(sizes):
        others = tuple(a for a in range(len(sizes)) if a not in A)
        expected = p.sum(axis=others).transpose([sorted(A).index(a) for a in A])
        assert histogram.marginal(A) == pytest.approx(expected, rel=1e-12 if dtype == np.float64 else 1e-6)
        assert histogram.marginal(A).sum() == pytest.approx(1.0, abs=1e-14)


@pytest.mark.parametrize("sizes", SHAPES, ids=str)
def test_reweighting_multiplies_by_the_factor_of_the_attributes(sizes):
    universe, rng = universe_of(sizes), np.random.default_rng(1)
    histogram = Histogram(universe, rng.gamma(0.3, size=universe.n_cells))
    for A in subsets(sizes):
        factor = rng.normal(size=[sizes[a] for a in A]) * 5
        changed = histogram.reweight(A, factor)
        digits = np.unravel_index(np.arange(universe.n_cells), sizes)
        expected = histogram.weights * np.exp(factor[tuple(digits[a] for a in A)])
        assert changed.weights == pytest.approx(expected / expected.sum(), rel=1e-11)
    with pytest.raises(ValueError, match="log_factor has shape"):
        histogram.reweight((0,), np.zeros(sizes[0] + 1))


def test_log_weights_may_be_any_size_and_nothing_at_all_is_uniform():
    universe = universe_of((2, 2))
    assert Histogram(universe).weights.tolist() == [0.25] * 4
    shifted = Histogram(universe, log_weights=np.log([1.0, 2.0, 3.0, 4.0]) + 5000.0)
    assert shifted.weights == pytest.approx([0.1, 0.2, 0.3, 0.4], rel=1e-9)
    with pytest.raises(ValueError, match="read-only"):
        shifted.weights[0] = 1.0


@pytest.mark.parametrize(
    "weights", [np.ones(3), np.array([1.0, -1.0, 1.0, 1.0]), np.zeros(4), np.full(4, np.nan), np.ones((2, 2))]
)
def test_what_is_no_distribution_is_refused(weights):
    with pytest.raises(ValueError, match="4 weights, one for each cell"):
        Histogram(universe_of((2, 2)), weights)


def test_samples_follow_the_histogram():
    universe = universe_of((3, 4))
    weights = np.array([0.0, 1, 2, 3, 4, 0, 6, 7, 8, 9, 10, 0])
    histogram = Histogram(universe, weights)
    counts = np.bincount(histogram.sample(60_000, SeededGenerator(2)), minlength=12)
    expected = 60_000 * histogram.weights
    assert not counts[weights == 0].any()
    assert (((counts - expected) ** 2)[weights > 0] / expected[weights > 0]).sum() < 30  # chi2 with 8 degrees
    assert np.array_equal(histogram.sample(5, SeededGenerator(2)), histogram.sample(5, SeededGenerator(2)))


LOSSES = [loss for loss in ALL_LOSSES if not loss.joint]


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("target", [0, 2, 4])
def test_the_gradient_over_all_cells_is_that_of_their_matrix(loss, target):
    sizes, rng = (2, 3, 2, 4, 5), np.random.default_rng(8)
    dtype = np.float32 if isinstance(loss, Logistic) and target == 2 else np.float64
    universe = universe_of(sizes)
    histogram = Histogram(universe, rng.gamma(0.5, size=universe.n_cells).astype(dtype))
    scores = {a: rng.normal(size=sizes[a]) for a in range(5) if a not in (target, 1)}  # 1 has no score
    digits = np.unravel_index(np.arange(universe.n_cells), sizes)
    matrix = np.concatenate([np.eye(sizes[a])[digits[a]] for a in scores], axis=1)
    y = universe.schema.attributes[target].scaled[digits[target]]
    slopes = loss.grad(matrix @ np.concatenate(list(scores.values())), y)
    expected = matrix.T @ (histogram.weights * slopes)
    found = histogram.gradient(loss, scores, target)
    assert list(found) == list(scores)
    assert np.concatenate(list(found.values())) == pytest.approx(expected, abs=1e-12)


def test_a_gradient_of_wrong_tables_is_refused():
    histogram = Histogram(universe_of((2, 3)))
    for scores, target, loss in [
        ({0: np.zeros(2)}, 0, Logistic()),
        ({1: np.zeros(2)}, 0, Logistic()),
        ({1: np.zeros(3)}, 0, Softmax()),
    ]:
        with pytest.raises(ValueError, match="one table of the attribute's size"):
            histogram.gradient(loss, scores, target)


# -- counts


@pytest.mark.parametrize("n", [0, 7, 5000], ids=["none", "few", "more than cells"])
def test_counts_of_records_are_exact_however_they_are_stored(n):
    sizes = (3, 2, 5, 4)
    universe = universe_of(sizes)
    cells = np.random.default_rng(3).integers(universe.n_cells, size=n)
    counts = Counts(universe, cells)
    digits = np.array(np.unravel_index(cells, sizes)).reshape(4, n)
    for A in [(0,), (3,), (1, 0), (2, 0, 3), (0, 1, 2, 3)]:
        expected = np.zeros([sizes[a] for a in A], dtype=np.int64)
        for record in range(n):
            expected[tuple(digits[a, record] for a in A)] += 1
        found = counts.marginal(A)
        assert found.dtype == np.int64
        assert np.array_equal(found, expected)


def test_counts_print_no_record_and_follow_a_table():
    counts = Counts.of(UNIVERSE, PEOPLE)
    assert counts.n == 4
    assert re.fullmatch(r"<dpcvx\.queries\.histogram\.Counts object at 0x\w+>", repr(counts))
    assert counts.marginal((0,)).tolist() == [2, 2]


# -- synthetic tables


class Promise:
    def to_json(self):
        return '{"epsilon": 1.0}'


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_synthetic_tables_are_read_back_into_the_same_cells(kind, tmp_path):
    histogram = Histogram(UNIVERSE, np.random.default_rng(4).gamma(0.5, size=UNIVERSE.n_cells))
    columns = synthetic_table(histogram, 200, SeededGenerator(5))
    path = tmp_path / f"people.{kind}"
    write_synthetic(path, columns, Promise())
    table, _ = open_table(path).read(SCHEMA.names, SCHEMA.levels)
    assert np.array_equal(UNIVERSE.encode(table), histogram.sample(200, SeededGenerator(5)))
    assert statement_path(path).read_text() == '{"epsilon": 1.0}'
    if kind == "parquet":
        assert pq.read_schema(path).metadata[STATEMENT_KEY] == b'{"epsilon": 1.0}'


def test_numbers_are_spread_over_their_bins_if_asked_for():
    histogram = Histogram(UNIVERSE)
    spread = synthetic_table(histogram, 3000, SeededGenerator(6), numbers="uniform")
    middle = synthetic_table(histogram, 3000, SeededGenerator(6))
    assert len(set(middle["age"])) == 3
    assert len(set(spread["age"])) > 500  # a hundred or more in each bin
    assert np.array_equal(UNIVERSE.encode(spread), UNIVERSE.encode(middle))
    first = spread["age"][spread["age"] < 30]
    assert first.mean() == pytest.approx(15.0, abs=1.0)
    assert synthetic_table(histogram, 0, SecureGenerator())["sex"].shape == (0,)


def test_levels_of_several_types_become_text_in_a_file(tmp_path):
    universe = Universe(Schema((Attribute("mixed", (1, "one", 2.5), 2.5),)))
    write_synthetic(
        tmp_path / "t.parquet", synthetic_table(Histogram(universe), 50, SeededGenerator(0)), Promise()
    )
    assert set(pq.read_table(tmp_path / "t.parquet")["mixed"].to_pylist()) == {"1", "one", "2.5"}


def test_wrong_requests_for_synthetic_tables_are_refused(tmp_path):
    histogram = Histogram(UNIVERSE)
    with pytest.raises(ValueError, match="must not be negative"):
        synthetic_table(histogram, -1, SeededGenerator(0))
    with pytest.raises(ValueError, match="value, uniform"):
        synthetic_table(histogram, 1, SeededGenerator(0), numbers="mean")
    with pytest.raises(ValueError, match=r"\.csv or \.parquet"):
        write_synthetic(tmp_path / "people.xlsx", {}, Promise())
    assert list(tmp_path.iterdir()) == []


def test_orders_of_attributes_are_orders_of_axes():
    histogram = Histogram(UNIVERSE, np.random.default_rng(7).random(UNIVERSE.n_cells))
    whole = histogram.marginal((0, 1, 2, 3))
    for order in itertools.permutations(range(4)):
        assert np.array_equal(histogram.marginal(order), whole.transpose(order))
