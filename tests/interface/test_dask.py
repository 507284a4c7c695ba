"""A cluster of processes: the same bits as in memory, the same bits when a worker is killed, one charge."""

import os
import signal
import time
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

import dpcvx
from dpcvx import (
    Bounds,
    ClusterFailed,
    Incompatible,
    Ledger,
    PrivateAdditiveClassifier,
    PrivateHuberRegressor,
    PrivateLinearRegression,
    PrivateLogisticRegression,
    PrivateLowRankRegression,
    from_dask,
)
from dpcvx.data import CurvatureSum, DifferenceSum, GradientSum, LengthSum, MomentSum
from dpcvx.data.cluster import workers
from dpcvx.data.cluster.worker_side import SumOf
from dpcvx.data.curvature import CurvatureBound
from dpcvx.data.lattice import ResidualBound
from dpcvx.data.quantise import Quantiser
from dpcvx.errors import WrongValue
from dpcvx.estimators import linear_model
from dpcvx.losses import Logistic, Softmax, Squared
from dpcvx.noise import SeededGenerator
from dpcvx.solvers import ObjectivePerturbation

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed", reason="the cluster's tests need dpcvx[dask]")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")

pytestmark = pytest.mark.long  # a cluster of processes; contracts/test_dask_shards.py has the quick tests

WIDE = ResidualBound(2**30, 2**30)
RNG = np.random.default_rng(5)
N, D = 700, 6
X = RNG.uniform(-1, 1, size=(N, D)) * (RNG.random((N, D)) < 0.7)
LABELS = (X @ RNG.normal(size=D) > 0).astype(np.int64)
SIGNS = 2.0 * LABELS - 1
TARGETS = np.clip(X @ RNG.normal(size=(D, 2)) / 3, -1, 1)
THETA = RNG.normal(size=D)
CHUNKS = ((100, 0, 250, 1, 349), D)  # of different sizes, one of them empty


@pytest.fixture(scope="module")
def client():
    cluster = distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        dashboard_address=":0",  # any free port: other tests may have a cluster too
        silence_logs=50,
    )
    with cluster, distributed.Client(cluster) as client:
        yield client


def arrays(y=LABELS, kind=np.asarray, chunks=CHUNKS):
    rows = da.from_array(X, chunks=chunks)
    if kind is not np.asarray:
        rows = rows.map_blocks(kind, dtype=X.dtype, meta=kind((0, 0)))
    return rows, da.from_array(y, chunks=(300, *y.shape[1:]))


def frame():
    people = pd.DataFrame(X[:, :3], columns=["age", "hours", "wage"])
    people["sex"] = np.where(X[:, 3] > 0, "f", "m")
    people["married"] = np.where(LABELS == 1, "yes", "no")
    return people


def kill(client, address):
    """Kill the process of a worker, as a machine that loses its power would."""
    pid = client.run(os.getpid, workers=[address])[address]
    os.kill(pid, signal.SIGKILL)


@contextmanager
def distributed_source(y=SIGNS, kind=np.asarray):
    source = dpcvx.data.cluster.dask_source(*arrays(y, kind), bounds=Bounds(1.0))
    try:
        yield source
    finally:
        source.close()


def settle(client):
    """Names of what the cluster still keeps of shards, once it had time to forget them."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        kept = [key for key in client.who_has() if str(key).startswith(("Shard", "load_part"))]
        if not kept:
            return []
        time.sleep(0.1)
    return kept


# -- the questions of a source


def sums(source, loss, outputs, kind):
    """The integer answers of a source to every kind of question, and the numbers in float64."""
    theta = np.linspace(-1, 1, D * outputs).reshape((D, outputs) if outputs > 1 else D)
    batch = np.flatnonzero(np.random.default_rng(1).random(N) < 0.3)
    tight, narrow = Bounds(0.9, 0.7), ResidualBound(2**18, 2**17)
    integers = [
        source.sum(GradientSum(loss, theta, WIDE)),
        source.within(tight).sum(GradientSum(loss, theta, WIDE)),
    ]
    integers.append(source.sum(DifferenceSum(loss, (theta, 0.5 * theta), batch, WIDE, narrow)))
    margins = source.follow(loss, outputs)
    for moves in ([(1, 9000), (4, -500)], [(1, -20)], []):
        for move in moves:
            margins.add(*move)
        integers.append(margins.scores(1e-6, WIDE))
    margins.reset()
    margins.add(2, 77)
    integers.append(margins.scores(1e-5, WIDE))
    if kind is np.asarray:  # compressed records are not standardised
        shift = (0.0, 1.0) if loss.joint else (0.1, 1.5)  # class codes stay what they are
        mapped = source.mapped(Quantiser(Bounds(1.0, 1.0), 0.1, 2.0, 0.5), *shift).mapped(
            Quantiser(tight), 0.0, 1.0
        )
        centers = np.full(D + 2, 100)
        integers += [mapped.sum(LengthSum()), mapped.sum(MomentSum(2, centers, np.full(D + 2, 9000)))]
        wider = np.concatenate([theta, theta[:1]])
        integers.append(mapped.sum(GradientSum(loss, wider, WIDE)))
    objective = source.objective(loss, outputs, 3.0)
    numbers = [objective.value(theta), objective.gradient(theta)]
    if outputs == 1:
        bounds = CurvatureBound(2**9, 10), CurvatureBound(2**10, 10)
        integers += source.sum(CurvatureSum(loss, theta, narrow, *bounds))[:2]
        numbers.append(objective.hessian(theta))
    return integers, numbers


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize(
    ("loss", "y"),
    [(Logistic(), SIGNS), (Squared(), TARGETS), (Softmax(), LABELS[:, None])],
    ids=["logistic", "squared", "softmax"],
)
def test_every_sum_equals_the_sum_in_memory(client, loss, y, kind):
    outputs = 3 if loss.joint else y.ndim
    expected = sums(dpcvx.source(kind(X), y, bounds=Bounds(1.0)), loss, outputs, kind)
    with distributed_source(y, kind) as source:
        assert (source.n, source.d) == (N, D)
        integers, numbers = sums(source, loss, outputs, kind)
        with pytest.raises(ValueError, match="theta has 7 rows, but the records have 6"):
            source.sum(GradientSum(loss, np.zeros(7), WIDE))
        with pytest.raises(IndexError, match="index must be in"):
            source.follow(loss, outputs).add(D * outputs, 1)
    for answer, wanted in zip(integers, expected[0], strict=True):
        assert np.any(wanted)
        assert_array_equal(answer, wanted)
    for answer, wanted in zip(numbers, expected[1], strict=True):
        assert_allclose(answer, wanted, rtol=1e-12, atol=1e-9)
    assert settle(client) == []


# -- estimators


def same_model(model, reference):
    assert_array_equal(model.coef_, reference.coef_)
    assert_array_equal(model.intercept_, reference.intercept_)
    assert np.abs(model.coef_).max() > 0
    assert model.privacy_statement_.to_dict() == reference.privacy_statement_.to_dict()


def test_arrays_give_the_coefficients_of_memory_to_the_last_bit(client):
    settings = {"epsilon": 1.0, "bounds": (-1, 1), "random_state": 3, "n_iter": 5}
    classifier = PrivateLogisticRegression(classes=(0, 1), solver="gradient_descent", **settings)
    # Squared loss would do too, but has a short cut in memory that draws other bits of the same law.
    sparse = PrivateHuberRegressor(y_bounds=(-1, 1), domain="l1", solver="frank_wolfe", **settings)
    low_rank = PrivateLowRankRegression(y_bounds=(-1, 1), **settings)
    for model, y, kind in (
        (classifier, LABELS, np.asarray),
        (clone(classifier).set_params(standardize=True), LABELS, np.asarray),
        (PrivateAdditiveClassifier(classes=(0, 1), knots=5, **settings), LABELS, np.asarray),
        (sparse, TARGETS[:, 0], np.asarray),
        (clone(classifier), LABELS, sp.csr_array),
        (low_rank, TARGETS, np.asarray),
    ):
        reference = clone(model).fit(kind(X), y)
        same_model(model.set_params(backend="dask").fit(*arrays(y, kind)), reference)
    assert settle(client) == []


def test_a_frame_with_its_target_and_declarations(client):
    people = frame()
    bounds = dict.fromkeys(("age", "hours", "wage"), (-1, 1))
    categories = {"sex": ["f", "m"]}
    settings = {"epsilon": 1.0, "random_state": 1, "classes": ("no", "yes"), "solver": "gradient_descent"}
    # Filtered, so that Dask knows neither the lengths nor that one partition is empty.
    table = dd.concat(
        [dd.from_pandas(people, npartitions=3), dd.from_pandas(people.assign(age=9), npartitions=1)]
    )
    table = table[table["age"] < 9]
    address = client.scheduler.address
    data = from_dask(table, target="married", bounds=bounds, categories=categories, client=address)
    assert data.n == N
    reference = PrivateLogisticRegression(bounds=bounds, categories=categories, **settings)
    reference.fit(people.drop(columns="married"), people["married"])
    model = PrivateLogisticRegression(**settings).fit(data)
    same_model(model, reference)
    assert list(model.feature_names_in_) == ["age", "hours", "wage", "sex"]
    assert model.bounds is None
    # The labels that occur, where the user states that their set is public; X and y apart.
    same = PrivateLogisticRegression(
        **{**settings, "classes": "from_y"}, bounds=bounds, categories=categories
    )
    y = table["married"]
    assert_array_equal(same.fit(from_dask(table.drop(columns="married"), y)).coef_, model.coef_)
    with pytest.raises(Incompatible, match="bounds is declared with the data and with the estimator"):
        reference.fit(data)
    with pytest.raises(Incompatible, match="has its own target"):
        PrivateLogisticRegression(**settings).fit(data, y)


@pytest.mark.parametrize(
    "settings", [{"uncertainty": 0.2}, {"standardize": False}, {"max_rows": 2, "standardize": False}], ids=str
)
def test_persons_with_rows_in_several_partitions(client, settings):
    """The fit is that of memory, and partitions that hold other numbers of rows look alike."""
    owner = RNG.integers(0, 150, N)
    frame = pd.DataFrame(X, columns=list("abcdef")).assign(id=owner, y=TARGETS[:, 0])
    common = {"epsilon": 2.0, "random_state": 0, "bounds": (-1, 1), "y_bounds": (-1, 1), "person": "id"}
    found = len(set(owner))
    theirs = PrivateLinearRegression(**common, **settings).fit(frame.drop(columns="y"), frame["y"])
    given = dd.from_pandas(frame, npartitions=4)
    ours = PrivateLinearRegression(**common, **settings, backend="dask").fit(
        given.drop(columns="y"), given["y"]
    )
    assert_array_equal(ours.coef_, theirs.coef_)
    assert ours.check_ == theirs.check_
    assert ours.privacy_statement_.to_json() == theirs.privacy_statement_.to_json()
    opened = from_dask(
        given,
        target="y",
        bounds=(-1, 1),
        y_bounds=(-1, 1),
        person="id",
        persons=found,
        max_rows=settings.get("max_rows"),
    )
    assert opened.n == found * settings.get("max_rows", 1)
    own = {name: value for name, value in settings.items() if name != "max_rows"}
    again = PrivateLinearRegression(epsilon=2.0, random_state=0, **own).fit(opened)
    assert_array_equal(again.coef_, theirs.coef_)
    assert "declared; a person may have no rows" in again.privacy_statement_.to_json()


def test_what_persons_cannot_do_on_a_cluster_is_refused_without_a_number(client):
    frame = dd.from_pandas(pd.DataFrame(X, columns=list("abcdef")).assign(id=1, y=0.0), npartitions=2)
    model = PrivateLinearRegression(
        epsilon=1.0, bounds=(-1, 1), y_bounds=(-1, 1), person="id", backend="dask"
    )
    with pytest.raises(WrongValue, match="person names 'nobody'"):
        clone(model).set_params(person="nobody").fit(frame.drop(columns="y"), frame["y"])
    with pytest.raises(WrongValue) as refused:
        model.fit(frame.drop(columns="y"), dd.from_pandas(pd.Series(np.zeros(N + 1)), npartitions=2))
    assert not any(character.isdigit() for character in str(refused.value))


def test_targets_and_norms_are_declared_with_the_data_or_with_the_estimator(client):
    settings = {"epsilon": 1.0, "random_state": 2, "n_iter": 4}
    for kind, y, target in (
        (PrivateLogisticRegression, LABELS, {"classes": (0, 1)}),
        (PrivateLogisticRegression, LABELS, {"classes": "from_y"}),
        (PrivateHuberRegressor, TARGETS[:, 0], {"y_bounds": (-1, 1)}),
    ):
        declared = {"bounds": (-1, 1), "data_norm": 2.0, **target}
        data, reference = from_dask(*arrays(y), **declared), kind(**settings, **declared).fit(X, y)
        model = kind(**settings).fit(data)
        same_model(model, reference)
        (name,) = target
        assert getattr(model, name) is None  # declared with the data alone
        for again in (name, "data_norm"):
            twice = f"{again} is declared with the data and with the estimator"
            with pytest.raises(Incompatible, match=twice):
                kind(**settings, **{again: declared[again]}).fit(data)
    other = from_dask(*arrays(), bounds=(-1, 1), y_bounds=(0, 1))
    with pytest.raises(Incompatible, match="data declare y_bounds, which PrivateLogisticRegression does not"):
        PrivateLogisticRegression(**settings).fit(other)
    with pytest.raises(ValueError, match="classes and y_bounds are both given"):
        from_dask(*arrays(), bounds=(-1, 1), classes=(0, 1), y_bounds=(0, 1))


def test_minimisers_run_on_the_driver(client):
    settings = {"epsilon": 1.0, "bounds": (-1, 1), "random_state": 3, "classes": (0, 1), "l2": 0.01}
    solver = ObjectivePerturbation()
    reference = PrivateLogisticRegression(solver=solver, **settings).fit(X, LABELS)
    model = PrivateLogisticRegression(backend="dask", solver=solver, **settings).fit(*arrays())
    assert_allclose(model.coef_, reference.coef_, atol=1e-6)


# -- lost workers


class Vouched(SeededGenerator):
    """Noise that can be drawn again, for a ledger that would not vouch for it."""

    private = True


def test_a_worker_killed_in_mid_fit_changes_no_bit_and_is_charged_once(client, tmp_path, monkeypatch):
    ledger = Ledger(tmp_path / "ledger.db")
    account = ledger.create("people", epsilon=1.0, delta=1e-5)
    settings = {"epsilon": 1.0, "delta": 1e-6, "bounds": (-1, 1), "classes": (0, 1)}
    settings |= {"domain": "l1", "solver": "frank_wolfe", "n_iter": 12}
    monkeypatch.setattr(linear_model, "generator_of", lambda state: Vouched(3))
    reference = PrivateLogisticRegression(**settings).fit(X, LABELS)
    killed = []

    def killer(report, done, total):
        if done == 4:
            killed.append(min(client.nthreads()))
            kill(client, killed[0])

    monkeypatch.setattr("dpcvx.estimators.progress.ProgressReport.count", killer)
    model = PrivateLogisticRegression(backend="dask", ledger=ledger, account="people", **settings)
    model.fit(*arrays())
    assert killed
    assert killed[0] not in client.nthreads()
    assert_array_equal(model.coef_, reference.coef_)
    assert len(account.history()) == 1
    assert settle(client) == []


def test_a_worker_killed_while_it_is_asked(client):
    reference, quantiser = dpcvx.source(X, SIGNS, bounds=Bounds(1.0)), Quantiser(Bounds(0.8), 0.1, 2.0)
    expected = reference.sum(GradientSum(Logistic(), THETA, WIDE))
    client.wait_for_workers(2, timeout=60)
    with distributed_source() as source:
        mapped = source.mapped(quantiser, 0.0, 1.0)
        question = ("", SumOf(GradientSum(None, THETA, WIDE), source._pickled(Logistic())))
        calls = [workers.Call(shard, question) for shard in source._shards]
        kill(client, source._shards[1]._workers.homes[1])
        assert_array_equal(sum(call.answer() for call in calls), expected)
        # The shard that was loaded again goes through the second map again too.
        assert_array_equal(
            mapped.sum(GradientSum(Logistic(), THETA, WIDE)),
            reference.mapped(quantiser, 0.0, 1.0).sum(GradientSum(Logistic(), THETA, WIDE)),
        )


def test_a_shard_that_changed_on_disk_is_not_taken_for_the_same(client, tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "SPARE_WAIT", 0.0)
    path = tmp_path / "rows.npy"
    np.save(path, X)
    rows = da.from_delayed(dask.delayed(np.load)(str(path)), shape=X.shape, dtype=X.dtype)
    source = dpcvx.data.cluster.dask_source(rows, da.from_array(SIGNS, chunks=N), bounds=Bounds(1.0))
    (shard,) = source._shards
    first = source.sum(GradientSum(Logistic(), THETA, WIDE))
    shard.reload()
    assert_array_equal(source.sum(GradientSum(Logistic(), THETA, WIDE)), first)
    changed = X.copy()
    changed[3, 2] += 0.25
    np.save(path, changed)
    with pytest.raises(ClusterFailed, match=r"not what it was.*what was charged stays charged"):
        shard.reload()
    source.close()


def test_a_scheduler_that_is_gone_ends_the_fit(client, monkeypatch):
    def gone(*arguments):
        raise OSError("Timed out trying to connect")

    with distributed_source() as source:
        monkeypatch.setattr(workers.RemoteShard, "send", lambda self, question: None)
        monkeypatch.setattr(client, "nthreads", gone)
        with pytest.raises(
            ClusterFailed, match=r"scheduler does not answer \(OSError\). Nothing was released"
        ):
            source.sum(GradientSum(Logistic(), THETA, WIDE))


def test_a_cluster_without_workers_is_given_up(client, monkeypatch):
    monkeypatch.setattr(workers, "WORKER_WAIT", 0.1)
    monkeypatch.setattr(client, "nthreads", dict)
    with pytest.raises(ClusterFailed, match=r"no worker for 0.1 s. Nothing was released"):
        from_dask(*arrays())


# -- workers that cannot answer


def test_a_worker_without_the_package_or_with_another_version_is_named(client):
    def hide():
        import sys

        sys.modules["hidden"] = sys.modules.pop("dpcvx", None)
        sys.modules["dpcvx"] = None  # as Python says that there is no such package

    def show(version=None):
        import sys

        sys.modules["dpcvx"] = sys.modules.pop("hidden", None) or sys.modules.get("dpcvx")
        if sys.modules["dpcvx"] is None:
            del sys.modules["dpcvx"]
        import dpcvx

        if version is not None:
            dpcvx.__version__ = version

    client.wait_for_workers(2, timeout=60)
    address = sorted(client.nthreads())[1]
    try:
        client.run(hide, workers=[address])
        with pytest.raises(Incompatible, match=f"{address} cannot import dpcvx .*install dpcvx=="):
            from_dask(*arrays())
        client.run(show, "0.0.7", workers=[address])
        with pytest.raises(
            Incompatible, match=f"{address} has dpcvx 0.0.7, this process has {dpcvx.__version__}"
        ):
            PrivateLogisticRegression(epsilon=1.0, bounds=(-1, 1), classes=(0, 1), backend="dask").fit(
                *arrays()
            )
    finally:
        client.run(show, dpcvx.__version__, workers=[address])
    from_dask(*arrays())


def test_errors_of_the_graph_say_no_more_than_their_kind(client):
    def broken(block):
        raise ValueError("could not convert 'Jane Doe'")

    rows = da.from_array(X, chunks=(350, D)).map_blocks(broken, dtype=float, meta=np.empty((0, 0)))
    y = da.from_array(SIGNS, chunks=350)
    with pytest.raises(ClusterFailed, match=r"raised ValueError.*charged stays charged") as caught:
        dpcvx.data.cluster.dask_source(rows, y, bounds=Bounds(1.0))
    unknown = rows.map_blocks(lambda block: block, chunks=((np.nan, np.nan), (D,)), dtype=float)
    with pytest.raises(ClusterFailed, match="raised ValueError") as counted:
        from_dask(unknown, y)
    for error in (caught.value, counted.value):
        while error is not None:
            assert "Jane" not in str(error)
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    assert settle(client) == []


@pytest.mark.filterwarnings("ignore::dpcvx.UnrecognisedDataWarning")
def test_what_fails_in_dpcvx_is_in_no_log(client):
    def text(block):
        return np.array([["John Smith"] * D] * len(block), dtype=object)

    # Declared as numbers, and compressed rows where dense ones were declared: the collection lies.
    rows = da.from_array(X, chunks=(350, D))
    compressed = rows.map_blocks(sp.csr_array, dtype=float, meta=np.empty((0, 0)))
    settings = {"epsilon": 1.0, "bounds": (-1, 1), "classes": (0, 1), "n_iter": 3}
    model = PrivateLogisticRegression(backend="dask", solver="gradient_descent", **settings)
    with pytest.raises(ClusterFailed, match="another kind of rows, than its collection declares"):
        model.fit(compressed, da.from_array(LABELS, chunks=350))
    # Cells that are no numbers are no error at all; released shares say that there are none.
    named = rows.map_blocks(text, dtype=float, meta=np.empty((0, 0)))
    with pytest.warns(dpcvx.errors.UnrecognisedDataWarning, match="no cell of"):
        model.fit(named, da.from_array(LABELS, chunks=350))
    logs = client.get_worker_logs()
    assert logs
    assert "John" not in str(logs)
    assert "load_part" not in str(logs)


# -- what is refused


def test_what_cannot_be_opened_is_refused_with_a_reason(client):
    rows, y = arrays()
    model = PrivateLinearRegression(epsilon=1.0, bounds=(-1, 1), y_bounds=(0, 1), backend="dask")
    with pytest.raises(Incompatible, match=r"X is a ndarray; .*dask.array.from_array"):
        model.fit(X, LABELS)
    with pytest.raises(Incompatible, match="y is a ndarray"):
        model.fit(rows, LABELS)
    with pytest.raises(Incompatible, match="Give y, or target"):
        model.fit(rows)
    with pytest.raises(Incompatible, match="Give y, or target"):
        from_dask(rows, y, target="age")
    with pytest.raises(Incompatible, match=r"not of a dask.array"):
        from_dask(rows, target="age")
    table = dd.from_pandas(frame(), npartitions=2)
    with pytest.raises(ValueError, match=r"'income', which X does not have. Columns of X: age, hours"):
        from_dask(table, target="income")
    with pytest.raises(ValueError, match="X has 700 rows but y has 699"):
        model.fit(rows, y[1:])
    with pytest.raises(Incompatible, match="partitions of X and y have different numbers of rows"):
        model.fit(rows, dd.from_pandas(frame(), npartitions=2)["age"])
    with pytest.raises(ValueError, match="one or two dimensions"):
        model.fit(rows.reshape((N, 2, 3)), y)
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "0.5s"}),
        pytest.raises(Incompatible, match=r"No Dask scheduler answers at '127.0.0.1:1'"),
    ):
        from_dask(rows, y, client="127.0.0.1:1")
    with pytest.raises(TypeError, match="client must be a Dask client"):
        from_dask(rows, y, client=3)


def test_without_a_client_nothing_starts(monkeypatch):
    def no_client():
        raise ValueError("No clients found")

    monkeypatch.setattr(distributed, "default_client", no_client)
    with pytest.raises(Incompatible, match=r"There is no Dask client: connect first"):
        from_dask(*arrays())
