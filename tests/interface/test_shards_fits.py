"""Files and streams become shards once, and a fit of shards is the fit of their records."""

import math
import os
import pickle
import shutil
import subprocess
import sys

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal

import dpcvx
from dpcvx.data.files import open_table
from dpcvx.data.shards import folder as store
from dpcvx.data.shards import recipe, writing
from dpcvx.solvers import NoisySVRG, ObjectivePerturbation

pytestmark = pytest.mark.long

N = 500
SECRET = 77.125  # a cell that no message may hold
NUMBERS = {"bounds": {"age": (17, 90), "income": (0, 100)}, "categories": {"sex": ["f", "m"]}}
LABELS = {"target": "ill", "classes": ("no", "yes"), "features": ["age", "sex", "income"]}


@pytest.fixture
def people():
    rng = np.random.default_rng(0)
    age = rng.uniform(0, 120, N)
    age[3], age[4], age[5] = math.nan, math.inf, SECRET
    ill = np.where(age + rng.normal(0, 20, N) > 60, "yes", "no").astype(object)
    ill[7:9] = "perhaps", None
    return pa.table(
        {
            "age": age,
            "sex": rng.choice(["f", "m", "x"], N).tolist(),
            "ill": ill.tolist(),
            "income": pa.array(rng.integers(-20, 130, N), mask=rng.random(N) < 0.1),
            "height": rng.normal(170, 10, N),
        }
    )


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    monkeypatch.setattr(recipe, "SHARD_BYTES", 2**9)  # more than ten shards


@pytest.fixture
def parquet(people, tmp_path):
    path = tmp_path / "people.parquet"
    pq.write_table(people, path, row_group_size=64)
    return path


def files(folder):
    """Bytes of every file of a folder but the lock and, for shards of one source, its own facts."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.npy"))}


def same_fit(kind, shards, X, y, declared, **settings):
    """Fit shards, and the records in memory, and compare what is published."""
    settings.setdefault("maps", None)  # shards have no histograms of raw cells
    mine = kind(epsilon=1.0, random_state=5, **settings).fit(shards)
    theirs = kind(epsilon=1.0, random_state=5, **settings, **declared).fit(X, y)
    assert_array_equal(mine.coef_, theirs.coef_)
    assert_array_equal(mine.intercept_, theirs.intercept_)
    assert mine.privacy_statement_.to_dict() == theirs.privacy_statement_.to_dict()
    assert list(mine.feature_names_in_) == X.column_names
    return mine


# -- fits


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (dpcvx.PrivateLogisticRegression, {}),
        (dpcvx.PrivateLogisticRegression, {"domain": "l1", "solver": "frank_wolfe", "n_iter": 5}),
        pytest.param(
            dpcvx.PrivateLogisticRegression,
            {"solver": NoisySVRG(), "l2": 0.1},
            marks=pytest.mark.long,  # its price takes seconds
        ),
        (dpcvx.PrivateLinearSVC, {}),
    ],
    ids=["descent", "frank-wolfe", "svrg", "svc"],
)
def test_a_classifier_of_shards_is_the_one_of_the_records(parquet, people, kind, settings):
    shards = dpcvx.from_parquet(parquet, **LABELS, **NUMBERS)
    assert shards.n == N
    declared = {**NUMBERS, "classes": ("no", "yes")}
    model = same_fit(kind, shards, people.select(LABELS["features"]), people["ill"], declared, **settings)
    assert list(model.classes_) == ["no", "yes"]
    assert model.predict(people.select(LABELS["features"])).shape == (N,)
    assert model.bounds is None  # parameters are the user's own


def test_a_model_without_an_intercept_has_a_coefficient_for_every_level_of_shards(parquet, people):
    numbers = {**NUMBERS, "categories": {"sex": ["f", "m", "other"]}}  # cells "x" are no level
    shards = dpcvx.from_parquet(parquet, **LABELS, **numbers)
    records = people.select(LABELS["features"]), people["ill"], {**numbers, "classes": ("no", "yes")}
    model = same_fit(dpcvx.PrivateLinearSVC, shards, *records, fit_intercept=False)
    assert list(model.coef_names_) == ["age", "sex=f", "sex=m", "sex=other", "income"]


@pytest.mark.parametrize(
    "kind",
    [
        dpcvx.PrivateLinearRegression,
        dpcvx.PrivateLasso,
        dpcvx.PrivateElasticNet,
        dpcvx.PrivateHuberRegressor,
        dpcvx.PrivateQuantileRegressor,
    ],
    ids=lambda kind: kind.__name__,
)
@pytest.mark.parametrize("data_norm", [None, pytest.param(110.0, marks=pytest.mark.long)])
@pytest.mark.filterwarnings("ignore:The released mean of height is within its noise of the upper bound")
def test_a_regressor_of_shards_is_the_one_of_the_records(parquet, people, kind, data_norm):
    declared = {"bounds": (0, 100), "y_bounds": (0, 90), "data_norm": data_norm}
    shards = dpcvx.from_parquet(parquet, target="income", features=["age", "height"], **declared)
    same_fit(kind, shards, people.select(["age", "height"]), people["income"], declared)


def test_a_minimiser_of_shards_is_near_the_one_of_the_records(parquet, people):
    declared = {"bounds": (0, 200), "y_bounds": (0, 90)}
    shards = dpcvx.from_parquet(parquet, target="income", features=["age", "height"], **declared)
    models = [
        dpcvx.PrivateHuberRegressor(
            epsilon=1.0, l2=0.1, random_state=5, solver=ObjectivePerturbation(), **given
        )
        for given in ({}, declared)
    ]
    models[0].fit(shards)
    models[1].fit(people.select(["age", "height"]), people["income"])
    np.testing.assert_allclose(models[0].coef_, models[1].coef_, rtol=1e-6)


def test_several_targets_and_several_classes(parquet, people):
    declared = {"bounds": (0, 120), "y_bounds": (np.array([0, 150]), np.array([100, 190]))}
    shards = dpcvx.from_parquet(parquet, target=["income", "height"], features=["age"], **declared)
    y = people.select(["income", "height"])
    same_fit(dpcvx.PrivateLowRankRegression, shards, people.select(["age"]), y, declared)
    with pytest.raises(ValueError, match="1d array"):
        dpcvx.PrivateLasso(epsilon=1.0).fit(shards)
    declared = {"bounds": (0, 120), "classes": ("f", "m", "x")}
    shards = dpcvx.from_parquet(
        parquet, target="sex", features=["age"], store=parquet.parent / "s", **declared
    )
    for kind in (dpcvx.PrivateLogisticRegression, dpcvx.PrivateLinearSVC):
        same_fit(kind, shards, people.select(["age"]), people["sex"], declared)


@pytest.mark.parametrize("labels", [("no", "yes"), ("no", "yes", "both")])
def test_rows_that_are_shrunk_keep_their_constant_feature_in_shards_too(tmp_path, labels):
    """With few records, rows at the corners of their bounds are too long for a fit of classes."""
    rng = np.random.default_rng(3)
    X = pa.table({f"x{j}": np.sign(rng.normal(size=N)) for j in range(40)})
    y = pa.array(rng.choice(labels, N).tolist())
    table, declared = X.append_column("y", y), {"bounds": (-1, 1), "classes": labels}
    shards = dpcvx.from_arrow(table, target="y", store=tmp_path / "shards", **declared)
    model = same_fit(dpcvx.PrivateLogisticRegression, shards, X, y, declared, delta=1e-5)
    assert "shrunk to l2 norm" in model.privacy_statement_.bounds["enforced"]


def test_predictions_and_scores_of_shards_are_refused_with_what_to_give(parquet, people, tmp_path):
    shards = dpcvx.from_parquet(parquet, **LABELS, **NUMBERS)
    model = dpcvx.PrivateLogisticRegression(epsilon=1.0, random_state=5).fit(shards)
    ledger = dpcvx.Ledger(tmp_path / "ledger.db")
    account = ledger.create("people", epsilon=1.0, delta=1e-6)
    pays = {"epsilon": 0.5, "ledger": ledger, "account": "people"}
    for ask in (
        lambda X: model.predict(X),
        lambda X: model.predict_proba(X),
        lambda X: dpcvx.private_score(model, X, **pays),
        lambda X: dpcvx.private_score(model, X, people["ill"], **pays),
    ):
        with pytest.raises(TypeError, match=r"Shards is for fit alone.*rows in your own units, such as an"):
            ask(shards)
    assert len(account.history()) == 0
    with pytest.raises(ValueError, match="requires y to be passed"):
        dpcvx.private_score(model, people.select(LABELS["features"]), epsilon=0.5)
    assert len(model.predict(people.select(LABELS["features"]))) == N


@pytest.mark.long
def test_sparse_batches_are_fitted_as_sparse_records(tmp_path):
    rng = np.random.default_rng(1)
    X = sp.random_array((N, 60), density=0.1, rng=rng).tocsr()
    y = rng.choice([0, 1], N)
    shards = dpcvx.from_batches(
        [(X[:200], y[:200]), (X[200:], y[200:])], bounds=(0, 1), classes=(0, 1), store=tmp_path / "s"
    )
    settings = {"epsilon": 1.0, "domain": "l1", "random_state": 1}
    mine = dpcvx.PrivateLogisticRegression(**settings).fit(shards)
    theirs = dpcvx.PrivateLogisticRegression(bounds=(0, 1), classes=(0, 1), **settings).fit(X, y)
    assert_array_equal(mine.coef_, theirs.coef_)
    assert mine.n_features_in_ == 60


def test_any_stream_of_the_same_records_gives_the_same_shards(people, parquet, tmp_path):
    chosen = people.select(["age", "sex", "income", "ill"])
    halves = [chosen.slice(0, 123), chosen.slice(123)]
    columns = people.select(LABELS["features"])
    streams = {
        "table": chosen,
        "reader": chosen.to_reader(max_chunksize=77),
        "batches": (batch for half in halves for batch in half.to_batches()),
        "polars": pl.from_arrow(chosen),
    }
    reference = files(dpcvx.from_parquet(parquet, **LABELS, **NUMBERS).folder)
    assert len(reference) > 10
    for name, stream in streams.items():
        assert files(dpcvx.from_arrow(stream, **LABELS, **NUMBERS, store=tmp_path / name).folder) == reference
    pairs = [(columns.slice(0, 9), people["ill"][:9]), (columns.slice(9), people["ill"][9:])]
    shards = dpcvx.from_batches(pairs, **NUMBERS, classes=("no", "yes"), store=tmp_path / "pairs")
    assert files(shards.folder) == reference
    frames = ((part.to_pandas(), np.asarray(y.to_pylist(), dtype=object)) for part, y in pairs)
    shards = dpcvx.from_batches(frames, **NUMBERS, classes=("no", "yes"), store=tmp_path / "frames")
    assert files(shards.folder) == reference
    for i, half in enumerate(halves):
        pq.write_table(half, tmp_path / f"part-{i}.parquet")
    (tmp_path / "folder").mkdir()
    for i in range(2):
        shutil.copy(tmp_path / f"part-{i}.parquet", tmp_path / "folder")
    several = [tmp_path / "part-0.parquet", tmp_path / "part-1.parquet"]
    assert files(dpcvx.from_parquet(several, **LABELS, **NUMBERS).folder) == reference
    assert files(dpcvx.from_parquet(tmp_path / "folder", **LABELS, **NUMBERS).folder) == reference


def test_a_csv_file_is_read_line_by_line_as_the_command_line_reads_it(people, tmp_path, monkeypatch):
    path = tmp_path / "people.csv"
    pa.csv.write_csv(people.select(["age", "sex", "ill", "income"]), path)
    with path.open("ab") as file:
        file.write(b'50,f\n\n1_0, m ,yes,4e1\r\n"12","f",no,"7"\nfifty,f,no,inf\n30,m,yes,\xff\n20,f,no,1')
    table = open_table(path)
    X, y = table.read(LABELS["features"], NUMBERS["categories"], "ill", ["no", "yes"])
    assert len(y) == N + 7
    expected = dpcvx.from_batches([(X, y)], **NUMBERS, classes=("no", "yes"), store=tmp_path / "expected")
    for size in (2**22, 17):
        monkeypatch.setattr("dpcvx.data.shards.readers.BYTES_AT_ONCE", size)
        shards = dpcvx.from_csv(path, **LABELS, **NUMBERS, store=tmp_path / f"csv {size}")
        assert shards.n == N + 7
        assert files(shards.folder) == files(expected.folder)


# -- once, and again after an interruption


def test_shards_that_are_there_are_opened_and_not_made_again(parquet, monkeypatch):
    first = dpcvx.from_parquet(parquet, **LABELS, **NUMBERS)
    assert first.folder == parquet.with_name("people.parquet.shards")
    monkeypatch.setattr(recipe.Recipe, "quantised", lambda *_: pytest.fail("made again"))
    again = dpcvx.from_parquet(parquet, **LABELS, **NUMBERS)
    assert again.n == N
    assert dpcvx.open_shards(first.folder).declarations.keys() == first.declarations.keys()
    assert repr(first) == f"<Shards: {N:,} records of {first.table.d} columns in {first.folder}>"
    travelled = pickle.dumps(first)
    assert len(travelled) < 500
    assert pickle.loads(travelled).n == N


@pytest.mark.parametrize("kind", ["parquet", "csv", "arrow", "batches"])
@pytest.mark.parametrize("when", ["between", "within", "before the end"])
def test_an_interrupted_run_goes_on_where_it_was(people, tmp_path, monkeypatch, kind, when):
    pq.write_table(people, tmp_path / "p.parquet", row_group_size=64)
    pa.csv.write_csv(people, tmp_path / "p.csv")
    monkeypatch.setattr(writing, "ROWS_AT_ONCE", 50)

    def run(folder):
        if kind == "parquet":
            return dpcvx.from_parquet(tmp_path / "p.parquet", **LABELS, **NUMBERS, store=folder)
        if kind == "csv":
            return dpcvx.from_csv(tmp_path / "p.csv", **LABELS, **NUMBERS, store=folder)
        if kind == "arrow":
            return dpcvx.from_arrow(people.to_reader(30), **LABELS, **NUMBERS, store=folder)
        columns = people.select(LABELS["features"])
        pairs = ((columns.slice(i, 90), people["ill"][i : i + 90]) for i in range(0, N, 90))
        return dpcvx.from_batches(pairs, **NUMBERS, classes=("no", "yes"), store=folder)

    reference = files(run(tmp_path / "whole").folder)
    count, made = 0, []
    append, write, finish = store.Store.append, np.lib.format.write_array, store.Store.finish

    def counted(self, rows, arrays):
        nonlocal count
        count += 1
        if when == "between" and count == 4:
            raise KeyboardInterrupt
        append(self, rows, arrays)

    def torn(file, array, **rest):
        if when == "within" and count == 4:
            file.write(b"half of it")
            raise KeyboardInterrupt
        write(file, array, **rest)

    def unfinished(self):
        if when == "before the end":
            raise KeyboardInterrupt
        finish(self)

    with monkeypatch.context() as broken:
        broken.setattr(store.Store, "append", counted)
        broken.setattr(np.lib.format, "write_array", torn)
        broken.setattr(store.Store, "finish", unfinished)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "torn")
    (tmp_path / "torn" / "000003.values.npy.part").write_bytes(b"left behind by a lost process")
    with pytest.raises(dpcvx.ShardsDamaged, match="half-written"):
        dpcvx.open_shards(tmp_path / "torn")
    kept = len(list((tmp_path / "torn").glob("*.targets.npy")))
    assert kept == (len(reference) // 3 if when == "before the end" else 3)
    quantised = recipe.Recipe.quantised
    monkeypatch.setattr(
        recipe.Recipe, "quantised", lambda self, X, y: made.append(X.shape[0]) or quantised(self, X, y)
    )
    shards = run(tmp_path / "torn")
    assert files(shards.folder) == reference
    assert not list(shards.folder.glob("*.part"))
    assert sum(made) < N  # whole shards were not made again


@pytest.mark.long
def test_a_run_may_be_killed_at_any_time(parquet, tmp_path):
    code = f"""
import os
import numpy as np
import dpcvx
from dpcvx.data.shards import recipe
recipe.SHARD_BYTES = 2**9
write = np.lib.format.write_array
def torn(file, array, **rest):
    if len(list({str(tmp_path / "s")!r} and os.listdir({str(tmp_path / "s")!r}))) > 8:
        file.write(b"half of it")
        os._exit(9)
    write(file, array, **rest)
np.lib.format.write_array = torn
dpcvx.from_parquet({str(parquet)!r}, store={str(tmp_path / "s")!r}, **{LABELS!r}, **{NUMBERS!r})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 9, done.stderr
    assert list((tmp_path / "s").glob("*.part"))
    shards = dpcvx.from_parquet(parquet, **LABELS, **NUMBERS, store=tmp_path / "s")
    reference = dpcvx.from_parquet(parquet, **LABELS, **NUMBERS, store=tmp_path / "whole")
    assert files(shards.folder) == files(reference.folder)
    assert not list((tmp_path / "s").glob("*.part"))


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"bounds": {"age": (17, 91), "income": (0, 100)}}, "bounds"),
        ({"categories": {"sex": ["f", "m", "x"]}}, "categories"),
        ({"classes": ("yes", "no")}, "classes"),
        ({"data_norm": 100.0}, "data_norm"),
        ({"classes": None, "y_bounds": (0, 1), "target": "height"}, "classes, y_bounds"),
    ],
    ids=["bounds", "categories", "classes", "data_norm", "y_bounds"],
)
def test_other_declarations_are_refused_by_name(parquet, changed, named):
    dpcvx.from_parquet(parquet, **LABELS, **NUMBERS)
    with pytest.raises(dpcvx.StoreUnavailable, match=rf"other declarations \({named}\)"):
        dpcvx.from_parquet(parquet, **{**LABELS, **NUMBERS, **changed})


def test_other_files_columns_and_streams_are_refused(parquet, people, tmp_path):
    folder = dpcvx.from_parquet(parquet, **LABELS, **NUMBERS).folder
    os.utime(parquet, ns=(1, 1))
    with pytest.raises(dpcvx.StoreUnavailable, match=r"other source \(files\).*delete this folder"):
        dpcvx.from_parquet(parquet, **LABELS, **NUMBERS)
    with pytest.raises(dpcvx.StoreUnavailable, match="other columns"):
        dpcvx.from_parquet(parquet, **{**LABELS, "features": ["sex", "age", "income"]}, **NUMBERS)
    with pytest.raises(dpcvx.StoreUnavailable, match="other source"):
        dpcvx.from_arrow(people, **LABELS, **NUMBERS, store=folder)
    dpcvx.from_arrow(people, **LABELS, **NUMBERS, store=tmp_path / "stream")
    with pytest.raises(dpcvx.StoreUnavailable, match=r"dpcvx\.open_shards"):
        dpcvx.from_arrow(people, **LABELS, **NUMBERS, store=tmp_path / "stream")


def test_another_stream_is_not_appended(people, tmp_path, monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr(store.Store, "finish", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            dpcvx.from_arrow(people, **LABELS, **NUMBERS, store=tmp_path / "s")
    other = people.slice(1)
    before = files(tmp_path / "s")
    with pytest.raises(dpcvx.StoreUnavailable, match="another stream"):
        dpcvx.from_arrow(other, **LABELS, **NUMBERS, store=tmp_path / "s")
    assert files(tmp_path / "s") == before
    assert dpcvx.from_arrow(people, **LABELS, **NUMBERS, store=tmp_path / "s").n == N


@pytest.mark.parametrize("written_before", [False, True])
def test_a_statement_says_how_missing_targets_were_stored(tmp_path, monkeypatch, written_before):
    X = np.random.default_rng(0).uniform(size=(300, 2))
    declared = {"bounds": (0, 1), "y_bounds": (0, 2), "store": tmp_path / "s"}
    shards = dpcvx.from_batches([(X, X.sum(axis=1))], **declared)
    if written_before:
        monkeypatch.setattr(type(shards), "countable", False)
    model = dpcvx.PrivateLinearRegression(epsilon=1.0, random_state=0).fit(shards)
    said = model.privacy_statement_.bounds["y_enforced"]
    assert ("stored as the middle" in said) == written_before
    assert ("is left out of the fit" in said) != written_before
