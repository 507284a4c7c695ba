"""Sums over mapped shards are, to the last bit, those over the same records in memory."""

import math
import weakref
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

import dpcvx
from dpcvx.data import (
    CurvatureSum,
    DifferenceSum,
    GoodnessSum,
    GradientSum,
    LengthSum,
    MomentSum,
    SquaredErrors,
    TargetSum,
    lattice,
)
from dpcvx.data.columns import Columns
from dpcvx.data.curvature import CurvatureBound
from dpcvx.data.declarations import Declarations
from dpcvx.data.lattice import FEATURE_BITS, RESIDUAL_BITS, ResidualBound, exact_sum, records_at_once
from dpcvx.data.levels import COMPARED
from dpcvx.data.memory import Arrays
from dpcvx.data.quantise import Quantiser
from dpcvx.data.rows import Dense, Sparse, whole_rows
from dpcvx.data.shards import open_source, recipe
from dpcvx.data.shards import source as source_module
from dpcvx.data.table import Table
from dpcvx.data.target import Labels
from dpcvx.losses import Huber, Logistic, SmoothHinge, Softmax
from dpcvx.mechanisms import NoisyGradient, NoisyVertex
from dpcvx.noise import SeededGenerator
from dpcvx.problem import Bounds

ONE = 2**RESIDUAL_BITS
TIGHT = ResidualBound(ONE // 3, ONE // 4)
N = 301
ODD = [math.nan, math.inf, -math.inf, 1e300, -1e300, 5e-324, None]


def numbers(rng, d):
    X = rng.uniform(-3, 12, size=(N, d))
    X[rng.integers(0, N, 20), rng.integers(0, d, 20)] = rng.choice(np.array(ODD[:-1], dtype=float), 20)
    return X


def levels(rng, count):
    return rng.choice([*(f"level {i}" for i in range(count)), "unknown", None], N).tolist()


def records(kind, rng):
    """Records of a kind as an Arrow table or a sparse matrix, and their declarations."""
    if kind == "sparse":
        X = sp.random_array((N, 40), density=0.1, rng=rng, data_sampler=lambda size: rng.normal(size=size))
        X = X.tocsr()
        X.data[:7] = [*ODD[:6], math.nan]
        return X, {"bounds": (-1, 2)}
    if kind == "binary":
        columns = {f"b{j}": pa.array(rng.random(N) < 0.5, mask=rng.random(N) < 0.1) for j in range(4)}
        columns |= {f"i{j}": pa.array(rng.integers(-5, 6, N)) for j in range(3)}
        declared = {name: [1] for name in columns} | {"sex": ["level 1"]}  # a single level has no baseline
        return pa.table(columns | {"sex": levels(rng, 2)}), {"bounds": (0, 1), "categories": declared}
    columns = {f"x{j}": column for j, column in enumerate(numbers(rng, 5).T)}
    if kind == "norm":
        return pa.table(columns), {"bounds": (-2, 10), "data_norm": 6.0}
    if kind == "numbers":
        return pa.table(columns), {"bounds": (np.arange(-5.0, 0), np.arange(5.0, 10))}
    count = 3 if kind == "levels" else 300
    names = [f"level {i}" for i in range(count)]
    return pa.table(columns | {"town": levels(rng, count)}), {
        "bounds": {f"x{j}": (-2, 10) for j in range(5)},
        "categories": {"town": names},
    }


KINDS = {
    "numbers": ("values", "int16"),
    "norm": ("values", "int16"),
    "levels": ("values", "int16"),
    "binary": ("values", "int8"),
    "many levels": ("indptr", "int64"),
    "sparse": ("indptr", "int64"),
}


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Shards of one kind of records, and the same records in memory as a fit quantises them."""
    monkeypatch.setattr(source_module, "LONG_COLUMN", 1)  # Frank-Wolfe reads columns of any length

    def build(kind, intercept=1.0, classes=("no", "yes"), form="signs"):
        monkeypatch.setattr(recipe, "SHARD_BYTES", 2**13 if kind == "sparse" else 2**10)  # several shards
        rng = np.random.default_rng(7)
        X, declared = records(kind, rng)
        y = rng.choice([*classes, "other", None], N, p=[*[0.9 / len(classes)] * len(classes), 0.05, 0.05])
        folder = tmp_path / f"{kind} {intercept}"
        if kind == "sparse":
            y = y.astype(object)
            shards = dpcvx.from_batches([(X, y)], **declared, classes=classes, store=folder)
        else:
            table = X.append_column("label", pa.array(y.tolist()))
            shards = dpcvx.from_arrow(table, target="label", **declared, classes=classes, store=folder)
        table = Table(X)
        norm = declared.get("data_norm")
        stated = Declarations(declared["bounds"], declared.get("categories"))
        stated = stated.resolved(None, COMPARED)
        columns = Columns.declare(table, stated.bounds, stated.categories, norm)
        target = replace(Labels.declare(classes), form=form)
        bounds = columns.row_bounds(norm, intercept)
        quantiser = Quantiser(bounds, columns.center, columns.scale, intercept)
        memory = Arrays(columns.rows(table, quantiser), target.encode(y), bounds=bounds)
        return shards.source(columns, quantiser, target, "rows"), memory, folder

    return build


@pytest.mark.parametrize("kind", KINDS)
def test_storage_follows_from_declarations(make, kind):
    source, _, folder = make(kind)
    part, dtype = KINDS[kind]
    assert np.load(folder / f"000000.{part}.npy").dtype == dtype
    assert len(list(folder.glob("*.values.npy"))) > 2
    assert source.n == N


def follow_the_same_moves(mine, theirs, rng):
    """Margins of the same records, kept in two ways: every score is the same."""
    size = mine._records.d * len(mine._margins)
    for step in range(6):
        if step == 3:
            mine.reset(), theirs.reset()
        for j in (step % size, size - 1, size - 1):
            amount = int(rng.integers(-(2**30), 2**30))
            mine.add(j, amount), theirs.add(j, amount)
        scores = mine.scores(0.7 * 2.0**-44, TIGHT)
        assert_array_equal(scores, theirs.scores(0.7 * 2.0**-44, TIGHT))
        assert scores.any()
    with pytest.raises(IndexError, match="index must be in"):
        mine.add(size, 1)


@pytest.mark.parametrize("intercept", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("kind", KINDS)
def test_every_sum_is_the_one_in_memory(make, kind, intercept):
    source, memory, _ = make(kind, intercept)
    assert (source.n, source.d) == (memory.n, memory.d)
    assert source.within(memory._bounds) is source
    rng = np.random.default_rng(1)
    theta = rng.normal(size=source.d)
    loss = Logistic()
    expected = memory.sum(GradientSum(loss, theta, TIGHT))
    assert np.count_nonzero(expected) >= 5
    assert_array_equal(source.sum(GradientSum(loss, theta, TIGHT)), expected)
    for batch in (np.arange(0), np.arange(3), np.flatnonzero(rng.random(N) < 0.3), np.arange(N)):
        asked = (loss, (theta, 0.2 * theta), batch, TIGHT, ResidualBound(ONE // 8, ONE // 9))
        assert_array_equal(source.sum(DifferenceSum(*asked)), memory.sum(DifferenceSum(*asked)))
    follow_the_same_moves(source.follow(loss, 1), memory.follow(loss, 1), rng)
    bend = (ResidualBound(ONE, ONE), CurvatureBound(2**10, 12), CurvatureBound(2**12, 12))
    moments, meat, _ = source.sum(CurvatureSum(loss, theta, *bend))
    assert_array_equal(moments, memory.sum(CurvatureSum(loss, theta, *bend))[0])
    assert_array_equal(meat, memory.sum(CurvatureSum(loss, theta, *bend))[1])


@pytest.mark.parametrize("room", [True, False], ids=["room", "full disk"])
@pytest.mark.parametrize("kind", ["numbers", "binary", "sparse"])
def test_followed_margins_read_columns_where_there_is_room_for_them(make, kind, room, monkeypatch):
    monkeypatch.setattr(source_module, "BLOCK_MARGINS", 32)  # several blocks in a shard
    if not room:
        monkeypatch.setattr(
            source_module, "TemporaryFile", lambda dir: (_ for _ in ()).throw(OSError("full"))
        )
    source, memory, folder = make(kind)
    files = sorted(folder.iterdir())
    tighter = Bounds(0.6, 0.7)  # rows are shrunk on their way into the columns
    for mine, theirs in ((source, memory), (source.within(tighter), memory.within(tighter))):
        followed = mine.follow(Logistic(), 1)
        assert (mine.columns is not None) == (room and kind != "sparse")
        assert mine.columns is mine.columns  # made once for all who follow
        follow_the_same_moves(followed, theirs.follow(Logistic(), 1), np.random.default_rng(10))
    assert sorted(folder.iterdir()) == files
    monkeypatch.setattr(source_module, "LONG_COLUMN", source.starts[1] + 1)
    assert make(kind, 0.5)[0].columns is None  # short columns are no gain
    if kind == "binary" and room:
        assert source.columns[0].rows.values.dtype == np.int8


def test_a_disk_that_is_too_small_is_not_written_to(make, monkeypatch):
    made, scratch_file = [], source_module.TemporaryFile
    monkeypatch.setattr(source_module, "TemporaryFile", lambda dir: made.append(dir) or scratch_file(dir=dir))
    source, _, folder = make("numbers")
    need = source.n * (5 * 2 + 8)  # 16-bit features and a target
    monkeypatch.setattr(source_module, "disk_usage", lambda folder: SimpleNamespace(free=need - 1))
    assert source.columns is None
    assert source.mapped(Quantiser(Bounds(1.0), np.zeros(6), np.ones(6)), 0.0, 1.0)._changes
    assert made == []
    del source.columns
    monkeypatch.setattr(source_module, "disk_usage", lambda folder: SimpleNamespace(free=need))
    assert len(source.columns) == len(made) > 2  # targets are mapped already
    assert set(made) == {folder}


def dense(arrays):
    """The same records in memory, dense: those that are stored compressed have no centre otherwise."""
    rows = arrays.records().whole_rows()
    if isinstance(rows, Sparse):
        rows = Dense(sp.csr_array((rows.values, rows.indices, rows.indptr), rows.shape).toarray())
    return Arrays(rows, arrays._y.T)


@pytest.mark.parametrize("room", [True, False], ids=["room", "full disk"])
@pytest.mark.parametrize("kind", KINDS)
def test_moments_and_a_second_door_are_those_in_memory(make, kind, room, monkeypatch):
    monkeypatch.setattr(source_module, "DENSE_CELLS", 200)
    if not room:
        monkeypatch.setattr(
            source_module, "TemporaryFile", lambda dir: (_ for _ in ()).throw(OSError("full"))
        )
    source, memory, folder = make(kind, 0.0)
    memory, rng = dense(memory), np.random.default_rng(9)
    d = source.d
    for order in (1, 2):
        asked = (order, rng.integers(-5000, 5000, d + 1), np.full(d + 1, 2**14))
        assert_array_equal(source.sum(MomentSum(*asked)), memory.sum(MomentSum(*asked)))
    for there, here in ((source, memory), (source.mapped(None, 0.1, 0.5), memory.mapped(None, 0.1, 0.5))):
        assert_array_equal(there.sum(TargetSum(0.2, 0.5)), here.sum(TargetSum(0.2, 0.5)))
        fit = GoodnessSum(np.linspace(-1, 1, d), SquaredErrors(0.7, 0.5))
        assert_array_equal(there.sum(fit), here.sum(fit))
    assert_array_equal(source.sum(LengthSum()), memory.sum(LengthSum()))
    quantiser = Quantiser(Bounds(1.0, 1.0), rng.uniform(-0.2, 0.2, d), rng.uniform(0.3, 2.0, d), 0.25)
    mine, theirs = (each.mapped(quantiser, 0.1, 1.5) for each in (source, memory))
    assert (mine.n, mine.d) == (theirs.n, theirs.d) == (N, d + 1)
    assert mine.within(quantiser.bounds) is mine
    assert (mine._changes == ()) == room
    theta = rng.normal(size=d + 1)
    for bounds in (quantiser.bounds, Bounds(0.5, 0.6)):
        held, other = mine.within(bounds), theirs.within(bounds)
        total = held.sum(GradientSum(Huber(0.5), theta, TIGHT))
        assert_array_equal(total, other.sum(GradientSum(Huber(0.5), theta, TIGHT)))
        assert total.any()
    assert not [
        path for path in folder.iterdir() if path.suffix not in (".npy", ".json") and path.name != "lock"
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_the_sum_of_losses_is_the_one_in_memory_but_for_rounding(make, kind, monkeypatch):
    monkeypatch.setattr(source_module, "CELLS_AT_ONCE", 128)
    source, memory, _ = make(kind)
    theta = np.random.default_rng(2).normal(size=source.d)
    mine, theirs = (each.objective(Logistic(), 1, 3.0) for each in (source, memory))
    assert mine.n == theirs.n == N
    assert mine.value(theta) == pytest.approx(theirs.value(theta), rel=1e-13)
    assert_allclose(mine.gradient(theta), theirs.gradient(theta), rtol=1e-11, atol=1e-11)
    assert_allclose(mine.hessian(theta), theirs.hessian(theta), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_tighter_bounds_shrink_rows_as_in_memory(make, kind):
    source, memory, _ = make(kind)
    bounds = Bounds(0.6, 0.7)
    mine, theirs = source.within(bounds), memory.within(bounds)
    theta = np.random.default_rng(3).normal(size=source.d)
    assert_array_equal(
        mine.sum(GradientSum(Logistic(), theta, TIGHT)), theirs.sum(GradientSum(Logistic(), theta, TIGHT))
    )
    margins, others = mine.follow(Logistic(), 1), theirs.follow(Logistic(), 1)
    for each in (margins, others):
        each.add(source.d - 1, 2**28)
    assert_array_equal(margins.scores(2.0**-44, TIGHT), others.scores(2.0**-44, TIGHT))


def test_several_classes_are_codes_or_signs_as_the_loss_takes_them(make):
    classes = ("a", "b", "c")
    theta = np.random.default_rng(4).normal(size=(6, 3))
    for loss, form in ((Softmax(), "codes"), (SmoothHinge(), "signs")):
        source, memory, folder = make("numbers", classes=classes, form=form)
        question = GradientSum(loss, theta, TIGHT)
        assert_array_equal(source.sum(question), memory.sum(question))
        mine, theirs = source.follow(loss, 3), memory.follow(loss, 3)
        for index in (0, 7, 17):
            mine.add(index, 2**29), theirs.add(index, 2**29)
        assert_array_equal(mine.scores(2.0**-44, TIGHT), theirs.scores(2.0**-44, TIGHT))
        with pytest.raises(ValueError, match="column"):
            source.follow(Huber(1.0), 2)
        for path in folder.iterdir():
            path.unlink()


def test_ranges_of_shards_add_up(make):
    source, memory, folder = make("binary")
    theta = np.random.default_rng(5).normal(size=source.d)
    count = len(list(folder.glob("*.values.npy")))
    constant = 2**FEATURE_BITS
    parts = [open_source(folder, i, i + 1, constant=constant) for i in range(count)]
    assert sum(part.n for part in parts) == N
    total = sum(part.sum(GradientSum(Logistic(), theta, TIGHT)) for part in parts)
    assert_array_equal(total, memory.sum(GradientSum(Logistic(), theta, TIGHT)))
    for first, last in ((0, 0), (-1, 1), (0, count + 1)):
        with pytest.raises(ValueError, match="has shards 0"):
            open_source(folder, first, last)


# -- rows in units of a step, beside a constant, in memory


@pytest.mark.parametrize("layout", ["rows", "columns"])
@pytest.mark.parametrize("compressed", [False, True], ids=["dense", "compressed"])
@pytest.mark.parametrize(("step", "constant"), [(1, 0), (2**14, 0), (1, 2**13), (2**14, 2**14)])
def test_a_step_and_a_constant_stand_for_whole_rows(compressed, step, constant, layout):
    rng = np.random.default_rng(6)
    largest = 1 if step > 1 else 2**14
    values = rng.integers(-largest, largest + 1, size=(50, 6)).astype(np.int8 if step > 1 else np.int16)
    values[rng.random((50, 6)) < 0.5] = 0
    whole = np.full((50, 6 + (constant > 0)), constant, dtype=np.int16)
    whole[:, :6] = values * np.int16(step)
    stored = Dense(values)
    if compressed:
        found = sp.csr_array(values)
        stored = Sparse(found.indptr.astype(np.int64), found.indices, found.data, 6)
    made = whole_rows(stored, step, constant)
    if isinstance(made, Sparse):
        assert_array_equal(
            sp.csr_array((made.values, made.indices, made.indptr), made.shape).toarray(), whole
        )
    else:
        assert_array_equal(made.values, whole)
    y = rng.uniform(-1, 1, size=(50, 2))
    theta = rng.normal(size=(whole.shape[1], 2))
    mine = Arrays(stored, y, step=step, constant=constant, layout=layout, threads=2, block_rows=7)
    theirs = Arrays(Dense(whole), y)
    loss = Huber(0.3)
    assert_array_equal(mine.sum(GradientSum(loss, theta, TIGHT)), theirs.sum(GradientSum(loss, theta, TIGHT)))
    asked = (loss, (theta, theta / 3), np.arange(0, 50, 3), TIGHT, TIGHT)
    assert_array_equal(mine.sum(DifferenceSum(*asked)), theirs.sum(DifferenceSum(*asked)))


# -- more records than 62 bits hold


def python_sum(memory, loss, theta, bound):
    """The gradient's sum in Python integers, one record at a time."""
    rows = memory._whole_rows()
    total = 0
    for i in range(memory.n):
        one = Arrays(Dense(rows.values[i : i + 1]), memory._y.T[i : i + 1])
        total = total + one.sum(GradientSum(loss, theta, bound)).astype(object)
    return total


@pytest.mark.long
def test_sums_of_any_number_of_records_are_exact(make, monkeypatch):
    source, memory, _ = make("numbers")
    theta = np.random.default_rng(8).normal(size=source.d)
    expected = python_sum(memory, Logistic(), theta, TIGHT)
    batch = np.arange(0, N, 2)
    asked = (Logistic(), (theta, -theta), batch, TIGHT, ResidualBound(2**30, 2**30))
    narrow = memory.sum(DifferenceSum(*asked))
    followed = []
    for limit in (2**62, 40 * 2**15 * TIGHT.linf, 2**15 * TIGHT.linf + 1):
        monkeypatch.setattr(lattice, "LARGEST_SUM", limit)
        for records in (memory, source):
            total = records.sum(GradientSum(Logistic(), theta, TIGHT))
            assert total.dtype == (np.int64 if limit == 2**62 else object)
            assert total.tolist() == expected.tolist()
            margins = records.follow(Logistic(), 1)
            margins.add(2, 2**30)
            followed.append(margins.scores(2.0**-44, TIGHT).tolist())
            assert followed[-1] == followed[0]
    monkeypatch.setattr(lattice, "LARGEST_SUM", 2**15 * 2**30 + 1)
    for records in (memory, source):
        assert records.sum(DifferenceSum(*asked)).dtype == object
        assert records.sum(DifferenceSum(*asked)).tolist() == narrow.tolist()


def test_partial_sums_beyond_64_bits_do_not_wrap_around():
    bound = ResidualBound(2**31 - 1, 2**31 - 1)
    count = records_at_once(bound)
    assert count >= 2**16
    assert count * bound.linf * 2**15 < 2**62
    parts = [np.array([2**62 - 1, -(2**62) + 1])] * 9
    total = exact_sum(parts, 9 * count, bound)
    assert total.tolist() == [9 * (2**62 - 1), -9 * (2**62 - 1)]
    assert exact_sum(parts[:1], count, bound).dtype == np.int64


def test_partial_sums_are_added_one_at_a_time():
    seen = []

    def parts():
        for _ in range(20):
            part = np.ones(3, dtype=np.int64)
            seen.append(weakref.ref(part))
            yield part
            del part
            assert sum(part() is not None for part in seen) <= 1

    assert exact_sum(parts(), 20, TIGHT).tolist() == [20, 20, 20]


@pytest.mark.parametrize("kind", ["gradient", "vertex"])
def test_an_answer_is_the_same_whether_its_sum_is_wide_or_not(make, monkeypatch, kind):
    source, _, _ = make("numbers")
    problem = dpcvx.Problem(Logistic(), dpcvx.L1Ball(2.0), bounds=Bounds(1.0), d=source.d)
    gradient, vertex = NoisyGradient(problem, N, 1.0), NoisyVertex(problem, N, 5.0, 20)
    answers = []
    for limit in (2**62, 2**36):
        monkeypatch.setattr(lattice, "LARGEST_SUM", limit)
        rng = SeededGenerator(3)
        if kind == "gradient":
            answers.append(gradient(np.full(source.d, 0.1), data=source, rng=rng))
        else:
            answers.append(vertex(*vertex.start(source), source, rng))
    if kind == "gradient":
        assert answers[0].dtype == answers[1].dtype == np.float64
        assert_array_equal(*answers)
    assert str(answers[0]) == str(answers[1])
