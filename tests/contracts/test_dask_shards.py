"""A shard without a cluster around it: it answers as records in memory do, never raises, knows its moves."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from dpcvx import PrivateLinearRegression
from dpcvx.data import CurvatureBound, CurvatureSum, DifferenceSum, GradientSum
from dpcvx.data.cluster.partitions import Partitions
from dpcvx.data.cluster.worker_side import (
    BEHIND,
    UNMAPPED,
    Become,
    Describe,
    Failure,
    Part,
    PartitionSplit,
    PersonsOfPart,
    PickledLoss,
    ScoresOf,
    Shard,
    Step,
    SumOf,
    Update,
    count_ids,
    guard,
    load_part,
)
from dpcvx.data.lattice import ResidualBound
from dpcvx.data.memory import Arrays, source
from dpcvx.data.quantise import Quantiser
from dpcvx.data.rows import Dense
from dpcvx.data.units import persons
from dpcvx.errors import Incompatible, WrongType, WrongValue
from dpcvx.losses import Logistic
from dpcvx.problem import Bounds

distributed = pytest.importorskip("distributed", reason="the cluster's tests need dpcvx[dask]")

BOUNDS = Bounds(1.0)
WIDE = ResidualBound(2**30, 2**30)
LOSS = PickledLoss.of(Logistic())
SETTING = (LOSS, 1)


def gradient(theta, loss=LOSS):
    return SumOf(GradientSum(None, theta, WIDE), loss)


RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, size=(60, 5)) * (RNG.random((60, 5)) < 0.7)
Y = RNG.choice([-1.0, 1.0], size=60)
THETA = RNG.normal(size=5)


def shard(kind=np.asarray, cuts=(0, 13, 14, 60), bounds=BOUNDS):
    parts = [(Quantiser(bounds).quantise(kind(X[a:b])), Y[a:b, None]) for a, b in pairwise(cuts)]
    return Shard(parts, bounds, "rows", None, 1)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_a_shard_of_many_parts_answers_as_one_array(kind):
    records = source(kind(X), Y, bounds=BOUNDS)
    expected = records.sum(GradientSum(Logistic(), THETA, WIDE))
    assert expected.any()
    assert_array_equal(shard(kind).ask("", gradient(THETA)), expected)


def test_a_shard_goes_through_steps_once_and_says_when_it_did_not():
    records = source(X, Y, bounds=BOUNDS)
    tight, quantiser = Bounds(0.5, 0.6), Quantiser(Bounds(1.0), 0.1, 2.0, 0.5)
    first, second = (
        Step("a", lambda held: held.within(tight)),
        Step("b", lambda held: held.mapped(quantiser, 0.0, 1.0)),
    )
    within = records.within(tight)
    mapped = within.mapped(quantiser, 0.0, 1.0)
    theta = np.append(THETA, 0.3)  # the second quantiser adds a constant feature
    held = shard()
    question = gradient(theta)
    assert held.ask("b", question) == UNMAPPED
    assert held.ask("", Become((first,))).d == 5
    assert_array_equal(held.ask("a", gradient(THETA)), within.sum(GradientSum(Logistic(), THETA, WIDE)))
    held._state.records[""].within = None  # would be called if the first step were made again
    assert held.ask("", Become((first, second))).d == 6
    expected = mapped.sum(GradientSum(Logistic(), theta, WIDE))
    assert expected.any()
    assert_array_equal(held.ask("b", question), expected)
    assert held.ask("a", question) == UNMAPPED  # one copy beside the quantised one is enough
    afresh = shard()
    assert afresh.ask("", Become((first, second))).n == 60
    assert_array_equal(afresh.ask("b", question), expected)


def test_margins_follow_updates_and_say_when_they_are_behind():
    margins = source(X, Y, bounds=BOUNDS).follow(Logistic(), 1)
    margins.add(1, 5000)
    first = margins.scores(1e-6, WIDE)
    margins.add(3, -70000)
    second = margins.scores(1e-6, WIDE)
    assert (first != second).any()

    held = shard()

    def scores(before, after, *moves, key="k"):
        return held.ask("", ScoresOf(SETTING, Update(key, before, after, moves), 1e-6, WIDE))

    assert scores(1, 2, (3, -70000)) == BEHIND  # it has no margins yet
    assert_array_equal(scores(None, 1, (1, 5000)), first)
    assert_array_equal(scores(1, 2, (3, -70000)), second)
    # The answer was lost and the question comes again: the move is not made twice.
    assert_array_equal(scores(1, 2, (3, -70000)), second)
    assert scores(1, 3, (0, 1)) == BEHIND
    assert scores(2, 3, (0, 1), key="another") == BEHIND
    assert_array_equal(scores(None, 4, (1, 5000), (3, -70000)), second)


def test_nothing_raises_and_only_words_of_dpcvx_are_passed_on():
    def fail(kind):
        raise kind("cell 'Jane Doe'")

    assert guard(fail, ValueError) == Failure("ValueError")
    assert guard(fail, Incompatible) == Failure("Incompatible: cell 'Jane Doe'")
    assert guard(fail, WrongValue) == Failure("WrongValue")
    assert guard(fail, WrongType) == Failure("WrongType")
    assert guard(len, "abc") == 3
    assert load_part(lambda X, y: fail(KeyError), PartitionSplit(), X, Y) == Failure("KeyError")
    part = (Quantiser(BOUNDS).quantise(X), Y[1:, None])
    assert "number of rows" in load_part(lambda X, y: Part(*part), PartitionSplit(), X, Y).words
    # A part that failed is what the shard says, whatever it is asked.
    part = (Quantiser(BOUNDS).quantise(X), Y[:, None])
    assert Shard([part, Failure("MemoryError")], BOUNDS, "rows", None, 1).ask("", Describe()) == Failure(
        "MemoryError"
    )
    assert shard().ask("", gradient(np.zeros(7))) == Failure("WrongValue")
    broken = PickledLoss(b"no pickle")
    assert shard().ask("", gradient(THETA, broken)) == Failure("UnpicklingError")
    assert shard().ask("", "anything") == Failure("AttributeError")
    mixed = [part, (Quantiser(BOUNDS).quantise(sp.csr_array(X)), Y[:, None])]
    assert "some dense ones" in Shard(mixed, BOUNDS, "rows", None, 1).ask("", Describe()).words


def unaligned(array):
    """The same numbers at an odd address and read-only, as they come out of a message."""
    buffer = np.zeros(array.nbytes + 1, dtype=np.uint8)
    view = buffer[1:].view(array.dtype).reshape(array.shape)
    view[:] = array
    view.flags.writeable = False
    assert not view.flags.aligned
    return view


def test_unaligned_parts_and_questions_are_copied(monkeypatch):
    plain = Quantiser(BOUNDS).quantise(X).values
    held = Shard([(Dense(unaligned(plain)), unaligned(Y[:, None]))], BOUNDS, "rows", None, 1)
    stored = held._state.records[""].records().rows.values
    assert stored.flags.aligned
    assert stored.flags.writeable
    expected = source(X, Y, bounds=BOUNDS).sum(GradientSum(Logistic(), THETA, WIDE))
    assert_array_equal(held.ask("", gradient(unaligned(THETA))), expected)
    # Kernels would be compiled once more for such arrays, in every process.
    batch = np.arange(0, 60, 7)
    points = (THETA, 0.5 * THETA)
    expected = source(X, Y, bounds=BOUNDS).sum(DifferenceSum(Logistic(), points, batch, WIDE, WIDE))
    seen, answer = [], DifferenceSum.of
    monkeypatch.setattr(DifferenceSum, "of", lambda self, records: seen.append(self) or answer(self, records))
    question = SumOf(DifferenceSum(None, points, unaligned(batch), WIDE, WIDE), LOSS)
    assert_array_equal(held.ask("", question), expected)
    assert seen[0].batch.flags.aligned
    assert seen[0].batch.flags.writeable


def test_a_shard_is_known_again_by_its_records_alone():
    facts = shard().ask("", Describe())
    assert (facts.n, facts.d) == (60, 5)
    assert shard(cuts=(0, 60)).ask("", Describe()) == facts  # the same rows, cut elsewhere
    Y[7] *= -1
    try:
        assert shard().ask("", Describe()) != facts
    finally:
        Y[7] *= -1
    assert shard(sp.csr_array).ask("", Describe()) != facts


def test_a_loss_is_opened_once():
    assert PickledLoss(bytes(LOSS.content)).open() is LOSS.open()
    assert LOSS.open() == Logistic()


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=30), st.integers(1, 12))
def test_groups_cover_the_partitions_in_order(lengths, most):
    partitions = Partitions([], [], tuple(lengths), None, None)
    groups = list(partitions.groups(most))
    assert len(groups) == min(most, len(lengths))
    places = [place for group in groups for place in range(len(lengths))[group]]
    assert places == list(range(len(lengths)))
    assert all(group.start < group.stop for group in groups)


def test_groups_are_of_about_equal_size():
    partitions = Partitions([], [], (10, 10, 10, 300, 10, 10, 150, 150), None, None)
    sizes = [sum(partitions.lengths[group]) for group in partitions.groups(2)]
    assert sizes == [330, 320]


def test_persons_of_several_shards_weigh_as_much_as_one_row_and_sums_are_those_of_memory():
    """Rows of a person are on two workers; ids of other types, and rows without one, are among them."""
    frame = pd.DataFrame(X, columns=list("abcde")).assign(id=np.arange(60) % 7, y=Y)
    odd = frame[20:40].assign(id=[f" {each}.0" for each in frame["id"][20:39]] + [None])
    pieces = [frame[:20], odd, frame[40:]]
    split = PartitionSplit("y", "id")
    counts = [count_ids(split, each) for each in pieces]
    assert counts[0] == {float(each): 3 if each < 6 else 2 for each in range(7)}
    total = sum((Counter(each) for each in counts), Counter())
    known = {each: (int(each), total[each]) for each in total}
    splits = [replace(split, people=PersonsOfPart({each: known[each] for each in found})) for found in counts]
    parts = [
        load_part(lambda X, y: Part(Quantiser(BOUNDS).quantise(X), np.array(y)[:, None]), each, piece)
        for each, piece in zip(splits, pieces, strict=True)
    ]
    ids = np.r_[frame["id"][:39], [None], frame["id"][40:]]
    units = persons(ids)
    whole = Arrays(
        Quantiser(BOUNDS).quantise(X),
        Y[:, None],
        bounds=BOUNDS,
        weights=units.shares,
        units=7,
        owners=units.owners,
    )
    shards = [Shard(parts[:1], BOUNDS, "rows", 7, 1), Shard(parts[1:], BOUNDS, "rows", 7, 1)]
    bound = ResidualBound(2**21, 2**21)
    for question in (
        GradientSum(Logistic(), THETA, bound),
        DifferenceSum(Logistic(), (THETA, 0 * THETA), np.array([1, 4]), bound, bound),
        CurvatureSum(Logistic(), THETA, bound, CurvatureBound(2**12, 12), CurvatureBound(2**12, 12)),
    ):
        sent = SumOf(replace(question, loss=None), LOSS)
        found = question.add([each.ask("", sent) for each in shards], 60)
        expected = whole.sum(question)
        if isinstance(question, CurvatureSum):
            assert_array_equal(found.moments, expected.moments)
            assert_array_equal(found.meat, expected.meat)
            assert expected.meat.any()
        else:
            assert expected.any()
            assert_array_equal(found, expected)


@pytest.mark.long  # imports Dask frames
def test_a_lazy_table_is_refused_by_name_and_does_not_lose_the_names_of_its_columns():
    """As an array a Dask frame has no names: fits named columns 0..2, predictions took them in order."""
    import polars as pl

    dd = pytest.importorskip("dask.dataframe")
    frame = pd.DataFrame({"age": [20.0, 60.0] * 50, "sex": ["f", "m"] * 50})
    target = frame["age"] / 100
    model = PrivateLinearRegression(
        epsilon=1.0, bounds={"age": (0, 100)}, categories={"sex": ["f", "m"]}, y_bounds=(0, 1)
    )
    lazy = (dd.from_pandas(frame, npartitions=2), pl.from_pandas(frame).lazy())
    for each in lazy:
        with pytest.raises(WrongType, match=r'lazy table.*backend="dask".*from_dask'):
            model.fit(each, target)
    expected = model.fit(frame, target).predict(frame)
    for each in lazy:
        with pytest.raises(WrongType, match="map_partitions"):
            model.predict(each)
    parts = lazy[0].map_partitions(model.predict, meta=np.empty(0))
    assert_array_equal(parts.compute(scheduler="synchronous"), expected)
