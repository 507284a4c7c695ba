"""Persons whose rows are spread over files: protected together, and nobody learns the number of rows."""

import io
import re
from contextlib import redirect_stderr, redirect_stdout
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_array_equal

import dpcvx as dp
from dpcvx.accounting import WEIGHT, Budget, Neighbours, Tight
from dpcvx.audit.replay import discrepancies, record, replay
from dpcvx.data import DifferenceSum, ResidualBound
from dpcvx.data.quantise import Quantiser
from dpcvx.data.shards import row_weights
from dpcvx.data.shards import writing as writing_module
from dpcvx.data.shards.source import ShardSource
from dpcvx.data.target import Numbers
from dpcvx.errors import Incompatible, ShardsDamaged, StoreUnavailable, WrongType, WrongValue
from dpcvx.noise import SeededGenerator
from dpcvx.solvers import (
    NoisyFrankWolfe,
    NoisyGradientDescent,
    NoisySVRG,
    OneStep,
    OutputPerturbation,
    Standardised,
)

D = 3
NAMES = list("abc")
DECLARED = {"target": "y", "bounds": (-1, 1), "y_bounds": (-1, 1), "person": "id", "verbose": 0}


def people(seed=0, n=300, most=7):
    """Rows of persons in no order, with ids."""
    generator = np.random.default_rng(seed)
    X = generator.uniform(-1, 1, (n, D))
    y = np.clip(X @ [0.5, -0.3, 0.1] + 0.1 * generator.standard_normal(n), -1, 1)
    owner = np.repeat(np.arange(n), generator.integers(1, most + 1, n))
    generator.shuffle(owner)
    frame = pd.DataFrame(X[owner], columns=NAMES)
    frame["id"], frame["y"] = owner, y[owner]
    return frame


def write(frame, folder, files=25, kind="parquet"):
    """The rows in several files; some files have text in the place of numbers."""
    folder.mkdir(parents=True)
    for place, part in enumerate(np.array_split(np.arange(len(frame)), files)):
        table = frame.iloc[part]
        if place % 3 == 1:
            table = table.assign(id=[f" {each:.0f}" if each == each else "NA" for each in table["id"]])
        path = folder / f"{place:02d}.{kind}"
        if kind == "csv":
            table.to_csv(path, index=False)
        else:
            pq.write_table(pa.Table.from_pandas(table, preserve_index=False), path)
    return folder


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_files_become_one_set_of_persons(tmp_path, kind, monkeypatch):
    """The sums, and so the fit, are those of the same rows in memory, however files and shards are cut."""
    monkeypatch.setattr(writing_module.Recipe, "rows", 100)
    frame = people()
    folder = write(frame, tmp_path / "files", kind=kind)
    make = dp.from_csv if kind == "csv" else dp.from_parquet
    shards = make(folder, store=tmp_path / "shards", **DECLARED)
    assert shards.n == 300
    assert shards.neighbours == Neighbours("replace", "person", weight=WEIGHT)
    assert shards.neighbours == dp.open_shards(tmp_path / "shards").neighbours
    settings = {"epsilon": 2.0, "random_state": 0, "uncertainty": 0.2}
    ours = dp.PrivateLinearRegression(**settings).fit(shards)
    theirs = dp.PrivateLinearRegression(**settings, bounds=(-1, 1), y_bounds=(-1, 1), person="id").fit(
        frame.drop(columns="y"), frame["y"]
    )
    assert_array_equal(ours.coef_, theirs.coef_)
    assert_array_equal(ours.coef_std_, theirs.coef_std_)
    assert ours.check_ == theirs.check_
    assert ours.privacy_statement_.to_json() == theirs.privacy_statement_.to_json()


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (dp.PrivateLasso, {}),
        (dp.PrivateLinearRegression, {"solver": NoisySVRG(n_epochs=1, n_steps=3, batch=20), "l2": 0.1}),
        (dp.PrivateHuberRegressor, {"l2": 0.1, "solver": OutputPerturbation()}),
    ],
    ids=lambda part: getattr(part, "__name__", ""),
)
def test_solvers_see_the_same_sums_as_in_memory(tmp_path, monkeypatch, kind, settings):
    monkeypatch.setattr(writing_module.Recipe, "rows", 100)
    frame = people(1)
    shards = dp.from_parquet(write(frame, tmp_path / "files", 4), store=tmp_path / "shards", **DECLARED)
    common = {"epsilon": 2.0, "random_state": 0, "standardize": False, **settings}
    ours = kind(**common).fit(shards)
    theirs = kind(**common, bounds=(-1, 1), y_bounds=(-1, 1), person="id").fit(
        frame.drop(columns="y"), frame["y"]
    )
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-9)


def test_the_number_of_rows_is_shown_nowhere(tmp_path, monkeypatch):
    """Two sets of the same persons with different numbers of rows look alike, in all that is shown."""
    monkeypatch.setattr(writing_module.Recipe, "rows", 100)
    told = []
    for most in (1, 9):
        shown = io.StringIO()
        with redirect_stdout(shown), redirect_stderr(shown):
            folder = write(people(most=most), tmp_path / f"files{most}", 3)
            declared = {**DECLARED, "verbose": 1}
            shards = dp.from_parquet(folder, store=tmp_path / f"shards{most}", **declared)
            model = dp.PrivateLinearRegression(epsilon=2.0, random_state=0, n_iter=5, verbose=1).fit(shards)
        words = [repr(shards), str(model.plan_), model.plan_.explain(), str(model.plan_.to_plain())]
        words += [model.privacy_statement_.to_json(), str(shards.table.n), str(shards.n)]
        words.append(re.sub(r"[\d.]+ s\b", "", shown.getvalue()))
        told.append([text.replace(f"shards{most}", "shards") for text in words])
    assert told[0] == told[1]
    assert "300 persons" in told[0][0]


def test_messages_about_unfinished_shards_name_no_number(tmp_path, monkeypatch):
    monkeypatch.setattr(writing_module.Recipe, "rows", 100)
    folder, store = write(people(), tmp_path / "files", 3), tmp_path / "shards"
    appended = writing_module.Store.append

    def stop(self, rows, arrays):
        if self.manifest.shards:
            raise KeyboardInterrupt
        appended(self, rows, arrays)

    monkeypatch.setattr(writing_module.Store, "append", stop)
    with pytest.raises(KeyboardInterrupt):
        dp.from_parquet(folder, store=store, **DECLARED)
    with pytest.raises(ShardsDamaged, match="half-written") as refused:
        dp.open_shards(store)
    assert not re.search(r"\d", str(refused.value).replace(str(store), ""))
    monkeypatch.setattr(writing_module.Store, "append", appended)
    again = dp.from_parquet(folder, store=store, **DECLARED)  # goes on where it was
    whole = dp.from_parquet(folder, store=tmp_path / "other", **DECLARED)
    for one, other in zip(again._shards, whole._shards, strict=True):
        assert_array_equal(one.y, other.y)
        assert_array_equal(one.owners, other.owners)
    with pytest.raises(dp.errors.StoreUnavailable, match=r"other declarations \(person\)"):
        dp.from_parquet(folder, store=store, **{**DECLARED, "max_rows": 2})


def test_room_on_the_disk_is_told_without_the_size_of_the_shards(tmp_path, monkeypatch):
    folder = write(people(), tmp_path / "files", 3)
    monkeypatch.setattr(writing_module.Recipe, "row_bytes", 2**50)
    with pytest.raises(dp.errors.StoreUnavailable, match="need more room than there is"):
        dp.from_parquet(folder, store=tmp_path / "shards", **DECLARED)


def test_rows_of_nobody_are_left_out(tmp_path):
    """A missing id, and a number of 2^53 or more in any type, in some of the files."""
    frame = people(2)
    odd = frame.sample(20, random_state=0).assign(y=1.0)
    strange = pd.concat([frame, odd.assign(id=np.nan), odd.assign(id=2.0**53)])
    settings = {"epsilon": 2.0, "random_state": 0, "check": 0}
    fits = [
        dp.PrivateLinearRegression(**settings).fit(
            dp.from_parquet(write(each, tmp_path / name, 5), store=tmp_path / f"{name}.shards", **DECLARED)
        )
        for name, each in (("plain", frame), ("strange", strange))
    ]
    assert_array_equal(fits[0].coef_, fits[1].coef_)


def test_declarations_of_persons_are_refused_where_they_mean_nothing(tmp_path):
    folder = write(people(), tmp_path / "files", 2)
    with pytest.raises(Incompatible, match="need person"):
        dp.from_parquet(folder, store=tmp_path / "s", **{**DECLARED, "person": None, "max_rows": 2})
    with pytest.raises(WrongValue, match="neither a feature nor a target"):
        dp.from_parquet(folder, store=tmp_path / "s", **DECLARED, features=["a", "id"])
    with pytest.raises(WrongValue, match="There is no column 'nobody'"):
        dp.from_parquet(folder, store=tmp_path / "s", **{**DECLARED, "person": "nobody"})
    shards = dp.from_parquet(folder, store=tmp_path / "shards", **DECLARED)
    for settings, words in (
        ({"person": "id"}, "declared with the records"),
        ({"max_rows": 2}, "need the ids of persons"),
    ):
        with pytest.raises(Incompatible, match=words):
            dp.PrivateLinearRegression(epsilon=1.0, **settings).fit(shards)
    with pytest.raises(Incompatible, match="in memory only"):
        dp.PrivateLinearRegression(epsilon=1.0).fit(shards, groups=[1, 2])


def test_a_schema_and_declared_persons_serve_files_too(tmp_path):
    frame = people().assign(town=lambda rows: np.where(rows["a"] > 0, "York", "Bath"))
    schema = dp.TableSchema.from_dict(
        {
            "columns": {
                **{name: {"kind": "number", "bounds": [-1, 1]} for name in NAMES},
                "town": {"kind": "levels", "levels": ["York", "Bath"]},
            },
            "target": {"column": "y", "bounds": [-1, 1]},
        }
    )
    for kind, make in (("parquet", dp.from_parquet), ("csv", dp.from_csv)):
        folder = write(frame, tmp_path / kind, 3, kind)
        shards = make(
            folder, target="y", schema=schema, person="id", persons=310, store=tmp_path / f"{kind}.s"
        )
        model = dp.PrivateLinearRegression(epsilon=2.0, random_state=0).fit(shards)
        assert model.privacy_statement_.public["persons"] == 310
        assert "a person may have no rows" in model.privacy_statement_.bounds["persons_are"]
        assert "id" not in model.coef_names_


# -- replay of whole persons, from files


def source_of(frame, folder, max_rows=None):
    declared = {**DECLARED, "max_rows": max_rows, "persons": 8}
    shards = dp.from_parquet(write(frame, folder / "files", 3), store=folder / "shards", **declared)
    quantiser = Quantiser(shards._recipe.quantiser.bounds, np.zeros(D), np.ones(D))
    return shards.source(shards._recipe.columns, quantiser, Numbers.declare((-1, 1), ()), "rows")


PLANS = {
    "descent": NoisyGradientDescent(n_iter=3),
    "frank-wolfe": NoisyFrankWolfe(n_iter=3),
    "standardised": Standardised(NoisyGradientDescent(n_iter=3)),
    "one step": OneStep(NoisyGradientDescent(n_iter=3)),
    "svrg": NoisySVRG(n_epochs=1, n_steps=3, batch=3),
}


def audit(name, folder, monkeypatch, max_rows=None, rounds=3):
    """Violations over replays in which one person's rows, in several files, are replaced by others."""
    monkeypatch.setattr(writing_module.Recipe, "rows", 5)
    generator, k = np.random.default_rng(3), max_rows or 1
    domain = dp.L1Ball(2.0) if name == "frank-wolfe" else dp.L2Ball(2.0)
    l2 = 0.1 if name == "svrg" else 0.0
    task = dp.Problem(dp.Squared(), domain, bounds=dp.Bounds(1.0), d=D, l2=l2)
    budget = Budget(2.0, 1e-4, unit="person", rows=k, weight=WEIGHT)
    plan = PLANS[name].plan(task, 8 * k, budget, Tight())

    def rows(m, who):
        values = generator.choice([-9.0, -1.0, 0.0, 1.0, 9.0], (m, D + 1))
        if generator.random() < 0.5:
            values[:] = values[:1]
        return pd.DataFrame(values, columns=[*NAMES, "y"]).assign(id=who)

    parts = [rows(m, who) for who, m in enumerate(generator.integers(1, 6, 8))]

    def source(parts, place):
        frame = pd.concat(parts)
        mixed = frame.iloc[np.random.default_rng(0).permutation(len(frame))]
        return source_of(mixed, folder / str(place), max_rows)

    first, found = record(plan, source(parts, 0), SeededGenerator(0)), []
    for place, m in enumerate(generator.integers(0, 30, rounds), 1):
        who = int(generator.integers(8))
        others = [*parts[:who], rows(m, who), *parts[who + 1 :]]
        found += discrepancies(plan, first, replay(plan, source(others, place), SeededGenerator(1), first))
    return found


@pytest.mark.long
@pytest.mark.parametrize("max_rows", [None, 2])
@pytest.mark.parametrize("name", PLANS)
def test_a_whole_person_of_many_files_is_replaced_without_a_violation(name, max_rows, tmp_path, monkeypatch):
    assert not audit(name, tmp_path, monkeypatch, max_rows)


def test_a_person_of_many_files_is_replaced_without_a_violation(tmp_path, monkeypatch):
    assert not audit("one step", tmp_path, monkeypatch)


@pytest.mark.parametrize("name", ["descent", "one step"])
@pytest.mark.long
def test_persons_counted_file_by_file_are_found_out(name, tmp_path, monkeypatch):
    """A fault: the rows of a person share a weight within a batch only, so that they weigh too much."""

    def by_batch(owners, counts=None):
        owned = owners >= 0
        weights = np.zeros(len(owners), dtype=np.int64)
        weights[owned] = WEIGHT // np.bincount(owners[owned])[owners[owned]]
        return weights

    monkeypatch.setattr(row_weights, "equal_weights", by_batch)
    assert audit(name, tmp_path, monkeypatch, rounds=6)


def test_samples_of_persons_reach_all_of_their_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(writing_module.Recipe, "rows", 7)
    frame = pd.DataFrame(np.ones((40, D)), columns=NAMES).assign(y=-1.0, id=np.arange(40) % 4)
    source = source_of(frame, tmp_path)
    bound = ResidualBound(2**22, 2**22)
    points = np.full(D, 0.1), np.zeros(D)

    def total(persons):
        return source.sum(DifferenceSum(dp.Squared(), points, np.array(persons), bound, bound))

    assert isinstance(source, ShardSource)
    assert total([0]).any()
    assert_array_equal(total([0, 1, 2, 3]), total([0]) + total([1]) + total([2]) + total([3]))


# -- streams, which are read twice


def batches_of(frame, size=90):
    return [
        pa.RecordBatch.from_pandas(frame.iloc[k : k + size], preserve_index=False)
        for k in range(0, len(frame), size)
    ]


@pytest.mark.parametrize("max_rows", [None, 2])
@pytest.mark.long
def test_persons_of_a_stream_are_those_of_files(tmp_path, monkeypatch, max_rows):
    monkeypatch.setattr(writing_module.Recipe, "rows", 100)
    frame, declared = people(), {**DECLARED, "max_rows": max_rows}
    files = dp.from_parquet(write(frame, tmp_path / "files", 3), store=tmp_path / "p", **declared)
    streams = {
        "table": dp.from_arrow(
            pa.Table.from_pandas(frame, preserve_index=False), store=tmp_path / "t", **declared
        ),
        "list": dp.from_arrow(batches_of(frame), store=tmp_path / "l", **declared),
        "function": dp.from_arrow(lambda: iter(batches_of(frame)), store=tmp_path / "f", **declared),
    }
    pairs = [(part.drop(columns="y"), part["y"]) for part in (frame[:400], frame[400:])]
    del declared["target"]
    streams["pairs"] = dp.from_batches(lambda: iter(pairs), store=tmp_path / "b", **declared)
    settings = {"epsilon": 2.0, "random_state": 0, "standardize": False}
    wanted = dp.PrivateLinearRegression(**settings).fit(files)
    for shards in streams.values():
        assert (shards.n, shards.neighbours) == (files.n, files.neighbours)
        found = dp.PrivateLinearRegression(**settings).fit(shards)
        assert_array_equal(found.coef_, wanted.coef_)
        assert found.check_ == wanted.check_


@pytest.mark.parametrize("cuts", [(0,), (400, 400)])
def test_a_batch_that_one_person_leaves_empty_stops_nothing(tmp_path, cuts):
    frame, declared = people(), {name: value for name, value in DECLARED.items() if name != "target"}
    parts = [frame[a:b] for a, b in zip((0, *cuts), (*cuts, len(frame)), strict=True)]
    pairs = [(part.drop(columns="y"), part["y"]) for part in parts]
    assert any(part.empty for part in parts)
    found = dp.from_batches(lambda: iter(pairs), store=tmp_path / "b", **declared)
    assert found.n == frame["id"].nunique()


def test_a_stream_that_changes_or_can_be_read_once_is_refused_without_a_number(tmp_path, monkeypatch):
    monkeypatch.setattr(writing_module.Recipe, "rows", 100)
    frame = people()
    with pytest.raises(WrongType, match="can be read only once"):
        dp.from_arrow(iter(batches_of(frame)), store=tmp_path / "a", **DECLARED)
    for place, other in enumerate(
        (
            frame.iloc[::-1],  # in another order
            frame.assign(id=frame["id"] + 1000),  # other persons
            frame.assign(id=0),  # all rows have the weight of their former person's
            frame.iloc[:-1],
            pd.concat([frame, frame[:1]]),
        )
    ):
        streams = [batches_of(each) for each in (frame, frame, other)]  # for the names, the ids, the records
        with pytest.raises(StoreUnavailable, match="read a second time") as refused:
            dp.from_arrow(partial(streams.pop, 0), store=tmp_path / str(place), **DECLARED)
        assert not any(character.isdigit() for character in str(refused.value))
        with pytest.raises(ShardsDamaged, match="half-written"):
            dp.open_shards(tmp_path / str(place))
