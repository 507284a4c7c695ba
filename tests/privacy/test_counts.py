"""Counts of recognised cells: sensitivity by brute force, noise, and the same counts for every storage."""

import itertools
import math

import numpy as np
import pyarrow as pa
import pytest
from scipy.sparse import csr_array

import dpcvx as dp
import dpcvx.noise.gaussian
from dpcvx.accounting import WEIGHT, Neighbours
from dpcvx.data import RecognisedCells, room
from dpcvx.data.columns import Columns
from dpcvx.data.dataset import InMemory
from dpcvx.data.target import Labels, Numbers
from dpcvx.data.units import Units, persons
from dpcvx.errors import Incompatible
from dpcvx.events import Gaussian
from dpcvx.mechanisms import NoisyCounts
from dpcvx.noise import SeededGenerator

HOSTILE = [math.nan, math.inf, "abc", None, b"\xff", "", 10**400, object()]
NUMBERS = [0.0, -7.5, True, *HOSTILE]
LEVELS = ["f", "m", "x", *HOSTILE]
LABELS = Labels.declare((0, 1, 2))
NUMBER = Numbers.declare((0, 1), ())


def dataset(rows, y):
    cells = np.empty((len(rows), len(rows[0])), dtype=object)
    for place in np.ndindex(cells.shape):
        cells[place] = rows[place[0]][place[1]]
    targets = np.empty(len(y), dtype=object)
    targets[:] = y
    return InMemory(cells, targets)


def question(data, target):
    columns = Columns.declare(data.table, (0, 1), {1: ("f", "m")}, None)
    return RecognisedCells(columns, target)


@pytest.fixture
def silent(monkeypatch):
    monkeypatch.setattr(
        dpcvx.noise.gaussian, "lattice_gaussian", lambda scale, size, rng: np.zeros(size, dtype=np.int64)
    )


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
@pytest.mark.parametrize(("target", "labels"), [(LABELS, [0, 1, 2, 3]), (NUMBER, [0.5, 7])], ids=str)
@pytest.mark.long
def test_no_two_records_are_further_apart_than_the_sensitivity_and_some_are_as_far(
    target, labels, relation, silent
):
    """One number, one category, the target: sqrt(1 + 2 + 2) for labels, sqrt(1 + 2 + 1) for a number."""
    answers = []
    for x, level, y in itertools.product(NUMBERS, LEVELS, [*labels, *HOSTILE]):
        data = dataset([[x, level]], [y])
        asked = question(data, target)
        mechanism = NoisyCounts(1, asked.numbers, asked.levels, 1.0, Neighbours(relation))
        answers.append(tuple(mechanism(asked, data, SeededGenerator(0))))
    different = np.array(sorted(set(answers)))
    if relation == "replace":
        distance = max(np.linalg.norm(one - other) for one, other in itertools.combinations(different, 2))
        squared = 5 if target is LABELS else 4
    else:
        distance, squared = np.linalg.norm(different, axis=1).max(), 3
    assert distance <= mechanism.sensitivity
    assert distance == pytest.approx(math.sqrt(squared))
    assert mechanism.sensitivity == pytest.approx(math.sqrt(squared), rel=1e-5)
    assert mechanism.event == Gaussian(1.0)


@pytest.mark.parametrize(
    ("numbers", "levels", "squared"), [(5, (), 5), (0, (2,), 2), (4, (3, 7, 2), 10), (1001, (), 1001)]
)
def test_sensitivities_are_those_of_the_formula(numbers, levels, squared):
    assert NoisyCounts(10, numbers, levels, 1.0).sensitivity == pytest.approx(math.sqrt(squared), rel=1e-5)
    person = Neighbours(unit="person")
    assert NoisyCounts(10, numbers, levels, 1.0, person).sensitivity >= math.sqrt(squared)
    k_rows = Neighbours(unit="person", rows=3)
    assert NoisyCounts(10, numbers, levels, 1.0, k_rows).sensitivity == pytest.approx(
        3 * math.sqrt(squared), rel=1e-5
    )


PERSON, WEIGHTED = Neighbours("replace", "person", weight=WEIGHT), Neighbours(weight=WEIGHT)


@pytest.mark.parametrize("neighbours", [PERSON, WEIGHTED], ids=lambda each: each.unit)
@pytest.mark.parametrize("target", [LABELS, NUMBER], ids=["labels", "number"])
@pytest.mark.parametrize("level", [True, False])
def test_no_two_persons_are_further_apart_in_counts_than_the_sensitivity(target, level, neighbours, silent):
    """Any number of rows with any weights, or no rows at all: K is the hull of a row's summands and 0."""
    generator, answers = np.random.default_rng(0), []
    cells = ([0.5, math.nan], ["f", "m", "x"], [0, 1, 2, "x"])
    extreme = [[[*x, y]] for *x, y in itertools.product(*cells)]
    several = [
        [[generator.choice(np.array(column, dtype=object)) for column in cells] for _ in range(m)]
        for m in generator.integers(2, 9, 60)
    ]
    for rows in [*extreme, *several] if neighbours.unit == "person" else extreme:
        m = len(rows)
        for share in (0, WEIGHT // m // 3, WEIGHT // m):
            data = dataset([row[: 1 + level] for row in rows], [row[-1] for row in rows])
            columns = Columns.declare(data.table, (0, 1), {1: ("f", "m")} if level else None, None)
            asked = RecognisedCells(columns, target)
            data.units = Units(m, neighbours, {}, np.full(m, share))
            mechanism = NoisyCounts(1, asked.numbers, asked.levels, 1.0, neighbours)
            answers.append(tuple(mechanism(asked, data, SeededGenerator(0))))
    answers = np.array(sorted(set(answers)))
    distance = max(np.linalg.norm(one - other) for one, other in itertools.combinations(answers, 2))
    numbers, levels = asked.numbers, len(asked.levels)
    assert distance <= mechanism.sensitivity
    assert distance == pytest.approx(math.sqrt(max(numbers + 2 * levels, numbers + levels + 1)))
    assert mechanism.sensitivity == pytest.approx(distance, rel=1e-5)


def test_vector_of_weighted_counts():
    """Three rows of one person and one of another: whole persons are counted, and their whole weight last."""
    data = dataset([[1.0, "f"], [math.nan, "f"], [2.0, "m"], [3.0, "?"]], [0, 1, 1, 2])
    data.units = persons([7, 7, 7, 8])
    asked = question(data, LABELS)
    third = WEIGHT // 3
    wanted = [2 * third + WEIGHT, 2 * third, third, third, 2 * third, WEIGHT, 3 * third + WEIGHT]
    assert data.count(asked).tolist() == wanted
    mechanism = NoisyCounts(2, asked.numbers, asked.levels, 2.0, PERSON)
    assert mechanism.size == 7
    assert mechanism.gaussians[0].sensitivity == math.isqrt(5 * 2**40) + 1


def test_test_vector():
    """Five records by hand: the counts, and the stored integers of the noise."""
    rows = [[1.0, "f"], [math.nan, "m"], [3, "F"], ["x", "f"], [math.inf, None]]
    data = dataset(rows, [0, 1, 1, "1x", None])
    asked = question(data, LABELS)
    assert data.count(asked).tolist() == [2, 2, 1, 1, 2, 0]
    assert asked.rows(data.table, data.target).sum(axis=0).tolist() == [2, 2, 1, 1, 2, 0]
    mechanism = NoisyCounts(5, 1, (2, 3), 2.0)
    (noise,) = mechanism.gaussians
    assert noise.sensitivity == math.isqrt(5 * 2**40) + 1 == 2344688
    assert (noise.scale, noise.size, mechanism.n_draws) == (4689376, 6, 6)
    assert mechanism.capacity == room(2**20, noise.scale) > 4e12


@pytest.mark.long
def test_counts_have_noise_of_the_stated_deviation():
    data = dataset([[1.0, "f"]] * 50, [1] * 50)
    asked, rng = question(data, LABELS), SeededGenerator(1)
    mechanism = NoisyCounts(50, asked.numbers, asked.levels, 3.0)
    answers = np.array([mechanism(asked, data, rng) for _ in range(3000)])
    np.testing.assert_allclose(answers.mean(axis=0), [50, 50, 0, 0, 50, 0], atol=5 * mechanism.noise / 50)
    # 3000 draws: a ratio of variances is within 0.13 of 1, but for 1 in 10^6.
    np.testing.assert_allclose(answers.var(axis=0) / mechanism.noise**2, 1.0, atol=0.13)
    assert mechanism.noise == pytest.approx(3 * math.sqrt(5), rel=1e-5)


def test_other_counts_than_planned_are_refused():
    data = dataset([[1.0, "f"]], [1])
    asked = question(data, LABELS)
    with pytest.raises(Incompatible, match="planned"):
        NoisyCounts(1, 2, (2, 3), 1.0)(asked, data, SeededGenerator(0))
    with pytest.raises(Incompatible, match="62-bit"):
        NoisyCounts(2**43, 1, (), 1.0)


RNG = np.random.default_rng(5)
TABLE = pa.table(
    {
        "age": pa.array(np.where(RNG.random(500) < 0.3, np.nan, RNG.uniform(0, 90, 500))),
        "sex": pa.array(RNG.choice(["f", "m", "x"], 500).tolist()),
    }
)
Y = RNG.integers(0, 4, 500)
DECLARED = {"bounds": {"age": (0, 90)}, "categories": {"sex": ["f", "m"]}, "classes": (0, 1, 2)}


def memory_counts():
    data = InMemory(TABLE, Y)
    columns = Columns.declare(data.table, DECLARED["bounds"], DECLARED["categories"], None)
    asked = RecognisedCells(columns, LABELS)
    return asked, data.count(asked)


def test_shards_count_what_records_in_memory_do(tmp_path):
    """Also where batches are cut at other places than shards, and after an interruption."""
    asked, expected = memory_counts()
    batches = [(TABLE.slice(i, 130), Y[i : i + 130]) for i in range(0, 500, 130)]
    shards = dp.from_batches(batches, **DECLARED, store=tmp_path / "s", verbose=0)
    assert shards.countable
    assert shards.count(asked).tolist() == expected.tolist()
    assert dp.open_shards(tmp_path / "s").count(asked).tolist() == expected.tolist()


def test_small_shards_have_counts_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr("dpcvx.data.shards.recipe.SHARD_BYTES", 400)
    asked, expected = memory_counts()

    def batches(stop):
        for i in range(0, 500, 130):
            if i >= stop:
                raise KeyboardInterrupt
            yield TABLE.slice(i, 130), Y[i : i + 130]

    store = tmp_path / "s"
    with pytest.raises(KeyboardInterrupt):
        dp.from_batches(batches(300), **DECLARED, store=store, verbose=0)
    shards = dp.from_batches(batches(500), **DECLARED, store=store, verbose=0)
    assert len(list(store.glob("*.recognised.npy"))) > 10
    assert shards.count(asked).tolist() == expected.tolist()


def test_sparse_records_count_their_target_alone():
    data = InMemory(csr_array(np.eye(4)), np.array([0, 1, 1, 9]))
    assert data.count(RecognisedCells(None, LABELS)).tolist() == [1, 2, 0]


@pytest.mark.long
def test_a_cluster_counts_what_records_in_memory_do():
    """An error of a partition is told by its kind alone."""
    dd = pytest.importorskip("dask.dataframe")
    from distributed import Client, LocalCluster

    asked, expected = memory_counts()
    frame = TABLE.to_pandas().assign(label=Y)
    sizes = {"n_workers": 1, "threads_per_worker": 2, "processes": False}
    with LocalCluster(**sizes, dashboard_address=None, silence_logs=50) as cluster, Client(cluster):
        data = dp.from_dask(dd.from_pandas(frame, npartitions=3), target="label")
        assert data.countable
        assert data.count(asked).tolist() == expected.tolist()
        with pytest.raises(dp.ClusterFailed, match=r"could not be counted \(AttributeError\)"):
            data.count(RecognisedCells(None, "no target"))
