"""Sums on a torch device are the CPU's, bit for bit; without a GPU the same code runs on torch's CPU device.

The Triton kernels then run in Triton's interpreter. Where torch is not installed these tests are skipped.
"""

# ruff: noqa: E402  (what is tested needs torch, which may be absent)

import os
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal

import dpcvx
from dpcvx import gpu as device
from dpcvx.data import CurvatureSum, DifferenceSum, GradientSum, LengthSum, MomentSum
from dpcvx.data import dataset as backends
from dpcvx.data.columns import Columns
from dpcvx.data.curvature import CurvatureBound
from dpcvx.data.lattice import ResidualBound
from dpcvx.data.memory import Arrays, source
from dpcvx.data.quantise import Quantiser
from dpcvx.data.rows import Dense, Sparse
from dpcvx.data.shards import recipe
from dpcvx.data.source import CanStandardise
from dpcvx.data.table import Table
from dpcvx.domains import NuclearBall
from dpcvx.errors import Incompatible
from dpcvx.losses import Logistic, Squared
from dpcvx.noise import SeededGenerator
from dpcvx.problem import Bounds
from dpcvx.queries import Attribute, Counts, Histogram, Marginal, QueryEngine, Regression, Schema, Universe
from dpcvx.queries.maximum_entropy import fit
from dpcvx.queries.passes import HostPasses, passes_over
from zoo import ALL_LOSSES, BINARY_LOSSES

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'dpcvx[torch]'")
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton", reason="triton is not installed; it comes with torch for a GPU")

from dpcvx.data import on_gpu as torch_source
from dpcvx.data.gpu_dataset import ForDevice, for_gpu
from dpcvx.data.on_gpu import OnDevice
from dpcvx.gpu import product_kernels, products
from dpcvx.gpu.products import DenseOnDevice, SparseOnDevice
from dpcvx.gpu.spectrum import leading_pair
from dpcvx.queries.passes_on_gpu import DevicePasses

HERE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
BOUND = ResidualBound(2**20, 2**19)
SHAPES = [(1, 1), (37, 530), (16, 256), (50, 17), (5, 1100)]
EXTREME = np.array([-(2**31) + 1, 2**31 - 1, -1, 0, 1, 2**30], dtype=np.int32)


def random_rows(shape, dtype, rng):
    """Rows of any size the storage has, the largest among them."""
    limit = np.iinfo(dtype).max
    rows = rng.integers(-limit, limit, shape, endpoint=True).astype(dtype)
    rows[:, 0] = limit
    return rows


def random_vectors(shape, rng):
    vectors = rng.integers(-(2**31) + 1, 2**31, shape).astype(np.int32)
    vectors[:, 0] = rng.choice(EXTREME, shape[0])
    return vectors


def exact(a, b):
    """Product of integer matrices in Python's integers."""
    return (a.astype(object) @ b.astype(object)).astype(np.int64)


@pytest.mark.parametrize("dtype", [np.int16, np.int8])
@pytest.mark.parametrize("shape", SHAPES)
def test_triton_kernels_are_exact(shape, dtype):
    rng = np.random.default_rng(shape)
    rows = random_rows(shape, dtype, rng)
    rows.flags.writeable = False  # as a mapped file is; torch would warn
    stored = DenseOnDevice(rows, HERE).rows
    weights, rho = (random_vectors((1, size), rng)[0] for size in (shape[1], shape[0]))
    margins = torch.full((shape[0],), -7, dtype=torch.int64, device=HERE)
    product_kernels.margins(stored, torch.from_numpy(weights).to(HERE), margins)
    assert_array_equal(margins.cpu(), exact(rows, weights))
    sums = torch.full((shape[1],), -7, dtype=torch.int64, device=HERE)
    product_kernels.add_sums(stored, torch.from_numpy(rho).to(HERE), sums, at_once=32)
    assert_array_equal(sums.cpu() + 7, exact(rho, rows))


@pytest.mark.parametrize("outputs", [1, 2, 5])
@pytest.mark.parametrize("kernels_serve", [True, False], ids=["kernels", "matrices"])
def test_dense_products_are_exact_in_parts_and_tiles(outputs, kernels_serve, monkeypatch):
    monkeypatch.setattr(products, "_kernels_serve", lambda *_: kernels_serve)
    monkeypatch.setattr(products, "ENTRIES", 60)
    monkeypatch.setattr(products, "LONGEST", 7)
    rng = np.random.default_rng(outputs)
    rows = random_rows((23, 19), np.int16, rng)
    stored = DenseOnDevice(rows, HERE)
    weights, rho = random_vectors((outputs, 19), rng), random_vectors((outputs, 11), rng)
    margins = stored.margins(torch.from_numpy(weights).to(HERE), 4, 15)
    assert_array_equal(margins.cpu(), exact(weights, rows[4:15].T))
    sums = torch.ones((outputs, 19), dtype=torch.int64, device=HERE)
    stored.add_sums(torch.from_numpy(rho).to(HERE), 4, 15, sums)
    assert_array_equal(sums.cpu() - 1, exact(rho, rows[4:15]))
    assert_array_equal(stored.column(3).cpu(), rows[:, 3])


def test_no_partial_sum_of_a_half_can_be_rounded():
    largest = 2**15 * 2**16  # a stored integer times the larger half of a 32-bit one
    assert largest * products.LONGEST <= 2**53
    assert (2**31 - 1) >> products.LOW_BITS <= 2**16
    length = 2**12
    rows = np.full((1, length), 2**15 - 1, dtype=np.int16)
    weights = np.full((5, length), 2**31 - 1, dtype=np.int32)
    weights[1:] = random_vectors((4, length), np.random.default_rng(0))
    margins = DenseOnDevice(rows, HERE).margins(torch.from_numpy(weights).to(HERE), 0, 1)
    assert_array_equal(margins.cpu(), exact(weights, rows.T))


@pytest.mark.parametrize("entries", [1, 7, 2**26])
@pytest.mark.parametrize("index_type", [np.int32, np.int64])
def test_sparse_products_are_exact(entries, index_type, monkeypatch):
    monkeypatch.setattr(products, "ENTRIES", entries)
    rng = np.random.default_rng(1)
    rows = random_rows((23, 19), np.int16, rng) * (rng.random((23, 19)) < 0.3)
    rows[[0, 5, 22]] = 0
    stored = sp.csr_array(rows)
    held = SparseOnDevice(
        stored.indptr.astype(np.int64), stored.indices.astype(index_type), stored.data.astype(np.int16), HERE
    )
    weights, rho = random_vectors((2, 19), rng), random_vectors((2, 18), rng)
    margins = held.margins(torch.from_numpy(weights).to(HERE), 4, 22)
    assert_array_equal(margins.cpu(), exact(weights, rows[4:22].T))
    sums = torch.ones((2, 19), dtype=torch.int64, device=HERE)
    held.add_sums(torch.from_numpy(rho).to(HERE), 4, 22, sums)
    assert_array_equal(sums.cpu() - 1, exact(rho, rows[4:22]))


def records(loss, outputs, storage):
    rng = np.random.default_rng([outputs, storage == "sparse"])
    X = rng.uniform(-1, 1, (41, 9)) * (rng.random((41, 9)) < 0.6)
    if loss.joint:
        y = rng.integers(-1, outputs, size=(41, 1)).astype(float)
    elif loss in BINARY_LOSSES:
        y = rng.integers(-1, 2, size=(41, outputs)).astype(float)
    else:
        y = rng.uniform(-1, 1, size=(41, outputs))
    theta = 2 * rng.normal(size=(9, outputs))
    host = source(sp.csr_array(X) if storage == "sparse" else X, y, bounds=Bounds(1.0))
    return host, theta[:, 0] if outputs == 1 else theta


@pytest.mark.parametrize("storage", ["dense", "sparse"])
@pytest.mark.parametrize("loss", ALL_LOSSES, ids=repr)
def test_gradients_and_scores_have_the_bits_of_the_cpu(loss, storage, monkeypatch):
    monkeypatch.setattr(torch_source, "MARGINS_AT_ONCE", 16)
    outputs = 3 if loss.joint else 1
    host, theta = records(loss, outputs, storage)
    there = OnDevice(host, HERE)
    assert (there.n, there.d) == (host.n, host.d)
    expected = host.sum(GradientSum(loss, theta, BOUND))
    got = there.sum(GradientSum(loss, theta, BOUND))
    assert got.dtype == expected.dtype == np.int64
    assert_array_equal(got, expected)
    assert np.count_nonzero(got)
    margins = [each.follow(loss, outputs) for each in (host, there)]
    rng = np.random.default_rng(5)
    for step in range(4):
        index, amount = int(rng.integers(9 * outputs)), int(rng.integers(-(2**40), 2**40))
        for each in margins:
            if step == 2:
                each.reset()
            each.add(index, amount)
        assert_array_equal(*(each.scores(2.0**-54, BOUND) for each in margins))


@pytest.mark.parametrize("outputs", [2, 7])
def test_several_outputs_have_the_bits_of_the_cpu(outputs):
    host, theta = records(Squared(), outputs, "dense")
    bound = ResidualBound(2**18, 2**18)  # most residuals are shrunk
    there = OnDevice(host, HERE)
    assert_array_equal(
        there.sum(GradientSum(Squared(), theta, bound)), host.sum(GradientSum(Squared(), theta, bound))
    )


def test_more_records_than_a_64_bit_sum_holds_are_summed_in_parts(monkeypatch):
    host, theta = records(Logistic(), 1, "dense")
    expected = host.sum(GradientSum(Logistic(), theta, BOUND))
    ranges = []

    def seven(bound):
        ranges.append(bound)
        return 7

    monkeypatch.setattr(torch_source, "records_at_once", seven)
    assert_array_equal(OnDevice(host, HERE).sum(GradientSum(Logistic(), theta, BOUND)), expected)
    assert ranges


def test_other_questions_are_answered_by_the_host():
    host, theta = records(Logistic(), 1, "dense")
    there = OnDevice(host, HERE)
    batch = np.array([1, 5, 30])
    points = (theta, theta / 2)
    assert_array_equal(
        there.sum(DifferenceSum(Logistic(), points, batch, BOUND, BOUND)),
        host.sum(DifferenceSum(Logistic(), points, batch, BOUND, BOUND)),
    )
    objectives = [each.objective(Logistic(), 1, 4.0).value(theta) for each in (there, host)]
    assert objectives[0] == objectives[1]
    curvatures = [
        each.sum(CurvatureSum(Logistic(), theta, BOUND, CurvatureBound(2**8, 10), CurvatureBound(2**10, 10)))
        for each in (there, host)
    ]
    assert_array_equal(curvatures[0][0], curvatures[1][0])
    assert_array_equal(curvatures[0][1], curvatures[1][1])


def test_records_are_standardised_on_the_host_and_summed_on_the_device():
    host, theta = records(Squared(), 1, "dense")
    there = OnDevice(host, HERE)
    assert isinstance(there, CanStandardise)
    centers, limits = np.arange(10), np.full(10, 2**14)
    assert_array_equal(there.sum(MomentSum(2, centers, limits)), host.sum(MomentSum(2, centers, limits)))
    assert_array_equal(there.sum(LengthSum()), host.sum(LengthSum()))
    quantiser = Quantiser(Bounds(1.0), np.full(9, 0.1), np.full(9, 0.5))
    again = [each.mapped(quantiser, 0.1, 2.0) for each in (there, host)]
    assert isinstance(again[0], OnDevice)
    assert_array_equal(*(each.sum(GradientSum(Squared(), theta, BOUND)) for each in again))
    assert not np.array_equal(
        again[1].sum(GradientSum(Squared(), theta, BOUND)), host.sum(GradientSum(Squared(), theta, BOUND))
    )


def test_shorter_bounds_shrink_the_rows_on_the_device_too():
    host, theta = records(Squared(), 1, "dense")
    there = OnDevice(host, HERE)
    assert there.within(Bounds(1.0)) is there
    short = Bounds(1.0, 0.5)
    expected = host.within(short).sum(GradientSum(Squared(), theta, BOUND))
    assert_array_equal(there.within(short).sum(GradientSum(Squared(), theta, BOUND)), expected)
    assert not np.array_equal(expected, host.sum(GradientSum(Squared(), theta, BOUND)))


def test_public_mistakes_are_errors():
    host, _ = records(Squared(), 1, "dense")
    there = OnDevice(host, HERE)
    with pytest.raises(ValueError, match="the records have 9 features"):
        there.sum(GradientSum(Squared(), np.ones(8), BOUND))
    with pytest.raises(IndexError, match=r"index must be in 0\.\.8"):
        there.follow(Squared(), 1).add(9, 1)
    with pytest.raises(ValueError, match="no targets"):
        OnDevice(Arrays(Dense(np.ones((2, 2), dtype=np.int16))), HERE).sum(
            GradientSum(Squared(), np.ones(2), BOUND)
        )


def on_this_device(monkeypatch):
    """Let backend="torch" find torch's CPU device."""
    device.find_device.cache_clear()
    monkeypatch.setattr(device, "find_device", lambda: HERE)
    for module in ("dpcvx.queries.passes", "dpcvx.domains.nuclear"):
        monkeypatch.setattr(f"{module}.find_device", lambda: HERE)


MODELS = {
    "logistic": lambda **rest: dpcvx.PrivateLogisticRegression(
        classes=(0, 1), solver="gradient_descent", **rest
    ),
    "lasso": lambda **rest: dpcvx.PrivateLasso(y_bounds=(0, 1), radius=2.0, **rest),
}


@pytest.mark.parametrize("storage", ["dense", "sparse"])
@pytest.mark.parametrize("name", MODELS)
def test_a_fit_on_the_device_has_the_coefficients_of_memory(name, storage, monkeypatch):
    rng = np.random.default_rng(3)
    X = rng.random((4000, 6)) * (rng.random((4000, 6)) < 0.5)
    y = (X[:, 0] > 0.4).astype(int)
    given = sp.csr_array(X) if storage == "sparse" else X
    settings = {"epsilon": 1.0, "bounds": (0, 1), "random_state": 1}
    expected = MODELS[name](**settings).fit(given, y).coef_
    on_this_device(monkeypatch)
    asked, answer = [], OnDevice.sum
    monkeypatch.setattr(OnDevice, "sum", lambda *rest: asked.append(rest) or answer(*rest))
    model = MODELS[name](backend="torch", **settings).fit(given, y)
    assert_array_equal(model.coef_, expected)
    assert name == "lasso" or asked


def test_selection_over_compressed_records_stays_on_the_host():
    table = Table(sp.csr_array(np.eye(4)))
    columns = Columns.declare(table, (0, 1), None, None)
    data = ForDevice(sp.csr_array(np.eye(4)), np.zeros(4), HERE)
    quantiser = Quantiser(Bounds(1.0), columns.center, columns.scale)
    target = SimpleNamespace(encode=lambda y: np.asarray(y, dtype=float).reshape(-1, 1))
    assert isinstance(data.source(columns, quantiser, target, "columns"), Arrays)
    there = data.source(columns, quantiser, target, "rows")
    assert isinstance(there, OnDevice)
    assert isinstance(there.stored[0], SparseOnDevice)


def test_records_that_do_not_fit_stay_on_the_host_with_a_warning(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (2**30 + 100, 2**34))
    cuda = torch.device("cuda")
    small, large = (Arrays(Dense(np.ones((n, 10), dtype=np.int16))) for n in (5, 6))
    assert torch_source._has_room([small.records()], cuda)
    with pytest.warns(RuntimeWarning, match=r"take 0\.0 GiB and the GPU has 1\.0 GiB free"):
        assert torch_source.put(large, cuda, "rows") is large
    with pytest.warns(RuntimeWarning, match="so the CPU does the work"):
        assert not torch_source._has_room([small.records()] * 2, cuda)
    indptr = np.array([0, 10, 20])
    sparse = Arrays(Sparse(indptr, np.arange(20, dtype=np.int32), np.ones(20, dtype=np.int16), 20))
    with warnings.catch_warnings():  # how many cells are filled is private
        warnings.simplefilter("error")
        assert torch_source.put(sparse, cuda, "rows") is sparse


@pytest.fixture
def shards(tmp_path, monkeypatch):
    """A few hundred records in several shards on disk."""
    monkeypatch.setattr(recipe, "SHARD_BYTES", 2**9)
    rng = np.random.default_rng(8)
    table = pd.DataFrame({"a": rng.random(500), "b": rng.random(500), "y": rng.integers(0, 2, 500)})
    table.to_parquet(tmp_path / "people.parquet", index=False)
    return dpcvx.from_parquet(
        tmp_path / "people.parquet",
        target="y",
        bounds=(0, 1),
        classes=(0, 1),
        store=tmp_path / "shards",
        verbose=0,
    )


def test_shards_go_to_the_device_and_have_the_same_bits(shards, monkeypatch):
    settings = {"epsilon": 2.0, "random_state": 1, "n_iter": 5, "solver": "gradient_descent"}
    expected = dpcvx.PrivateLogisticRegression(**settings).fit(shards).coef_
    on_this_device(monkeypatch)
    asked, answer = [], OnDevice.sum
    monkeypatch.setattr(OnDevice, "sum", lambda self, *rest: asked.append(self) or answer(self, *rest))
    model = dpcvx.PrivateLogisticRegression(backend="torch", **settings).fit(shards)
    assert_array_equal(model.coef_, expected)
    assert len(asked[0].stored) > 3
    there, host = asked[0], asked[0]._host
    margins = [each.follow(Logistic(), 1) for each in (there, host)]
    for each in margins:
        each.add(1, 12345)
        each.add(0, -777)
    assert_array_equal(*(each.scores(2.0**-30, BOUND) for each in margins))


def test_a_data_set_of_another_kind_is_refused_by_name(monkeypatch):
    data = backends.InMemory(np.ones((4, 2)), np.ones(4))
    on_this_device(monkeypatch)
    with pytest.raises(Incompatible, match="takes arrays, tables and shards, and InMemory keeps"):
        backends.open_dataset(data, None, "torch")
    assert backends.open_dataset(data, None, "auto") is data


def test_without_a_gpu_a_fit_says_so_and_has_the_same_coefficients(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    device.find_device.cache_clear()
    X, y = np.random.default_rng(0).random((3000, 3)), np.arange(3000) % 2
    settings = {"epsilon": 5.0, "bounds": (0, 1), "classes": (0, 1), "random_state": 1}
    with pytest.warns(RuntimeWarning, match='backend="torch" found no GPU, so the CPU does the work'):
        model = dpcvx.PrivateLogisticRegression(backend="torch", **settings).fit(X, y)
    assert_array_equal(model.coef_, dpcvx.PrivateLogisticRegression(**settings).fit(X, y).coef_)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # once in a process is enough
        assert isinstance(for_gpu(X, y), backends.InMemory)
        assert isinstance(passes_over((2, 2), "torch"), HostPasses)
        assert NuclearBall(1.0, backend="torch") == NuclearBall(1.0)
    device.find_device.cache_clear()


@pytest.mark.parametrize("shape", [(1, 1), (5, 1), (1, 5), (30, 50), (50, 30)])
@pytest.mark.parametrize("size", [1.0, 1e-150, 1e150])
def test_leading_pairs_are_those_of_the_svd(shape, size):
    g = size * np.random.default_rng(shape).normal(size=shape)
    left, right = leading_pair(g, HERE)
    largest = np.linalg.svd(g, compute_uv=False)[0]
    assert left @ g @ right == pytest.approx(largest, rel=1e-12, abs=0)
    assert np.linalg.norm(left) == pytest.approx(1)
    assert np.linalg.norm(right) == pytest.approx(1)


def test_leading_pairs_of_equal_and_nearly_equal_singular_values_reach_the_largest():
    rng = np.random.default_rng(2)
    left, right = (np.linalg.qr(rng.normal(size=(20, 20)))[0] for _ in range(2))
    for gap in (0.0, 1e-15, 1e-9, 1e-5):
        g = (left * np.append(1.0, np.full(19, 1 - gap))) @ right
        u, v = leading_pair(g, HERE)
        assert u @ g @ v >= 1 - 1e-8
    u, v = leading_pair(np.zeros((3, 2)), HERE)
    assert np.linalg.norm(u) == np.linalg.norm(v) == 1


def test_the_nuclear_ball_minimises_linear_functions_on_the_device(monkeypatch):
    on_this_device(monkeypatch)
    ball = NuclearBall(3.0, backend="torch")
    for shape in [(4, 6), (6, 4), (5,)]:
        g = np.random.default_rng(shape).normal(size=shape)
        assert ball.lmo(g).shape == shape
        assert ball.lmo(g) == pytest.approx(NuclearBall(3.0).lmo(g), abs=1e-9)
        assert ball.contains(ball.lmo(g))
    rng = np.random.default_rng(0)
    X, settings = (
        rng.random((500, 4)),
        {"epsilon": 3.0, "bounds": (0, 1), "y_bounds": (0, 1), "random_state": 0},
    )
    settings |= {"solver": "general_frank_wolfe", "n_iter": 5, "radius": 2.0}
    expected = dpcvx.PrivateLowRankRegression(**settings).fit(X, X[:, :3]).coef_
    got = dpcvx.PrivateLowRankRegression(backend="torch", **settings).fit(X, X[:, :3]).coef_
    assert got == pytest.approx(expected, abs=1e-7)
    with pytest.raises(ValueError, match="backend must be one of 'auto', 'torch'"):
        NuclearBall(1.0, backend="dask")


SHAPE = (3, 2, 4, 2)
CELLS = 48


@pytest.mark.parametrize("axes", [(), (0,), (1, 3), (0, 2, 3), (0, 1, 2, 3)])
def test_tables_of_cells_are_the_hosts_and_of_integers_exactly(axes):
    host, there = HostPasses(SHAPE), DevicePasses(SHAPE, HERE)
    rng = np.random.default_rng(len(axes))
    counts = rng.integers(0, 2**55, CELLS)
    table = there.table(there.keep(counts), axes)
    assert table.dtype == np.int64
    assert_array_equal(table, host.table(counts, axes))
    for dtype, error in ((np.float64, 1e-14), (np.float32, 1e-6)):
        weights = rng.random(CELLS).astype(dtype)
        factors = rng.random([SHAPE[a] for a in axes])
        assert there.table(there.keep(weights), axes) == pytest.approx(host.table(weights, axes), rel=error)
        scaled = there.host(there.scaled(there.keep(weights), axes, factors))
        assert scaled.dtype == dtype
        assert scaled == pytest.approx(host.scaled(weights, axes, factors), rel=error)


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_log_linear_weights_and_their_marginals_are_the_hosts(order, dtype):
    host, there = HostPasses(SHAPE), DevicePasses(SHAPE, HERE)
    rng = np.random.default_rng(order)
    keys = [(0,), (2,), (1, 3), (0, 2), (0, 2, 3)]
    tables = {key: rng.normal(size=[SHAPE[a] for a in key]) for key in keys}
    before = {key: table.copy() for key, table in tables.items()}
    error = 1e-12 if dtype == np.float64 else 1e-5
    here, away = (each.log_linear(tables, order, dtype) for each in (host, there))
    assert there.host(away).dtype == dtype
    assert there.host(away) == pytest.approx(here, abs=error)
    for key, table in tables.items():
        assert_array_equal(table, before[key])
    (top, total, weights), (top_there, total_there, away) = host.exponentials(here), there.exponentials(away)
    assert (top_there, total_there) == pytest.approx((top, total), rel=error)
    larger = [(0, 2, 3)] if order < 3 else []
    expected, got = host.marginals(weights, order, larger), there.marginals(away, order, larger)
    assert expected.keys() == got.keys()
    for key, table in expected.items():
        assert got[key] == pytest.approx(table, rel=10 * error)
    levels = np.linspace(0, total, 40)
    assert abs(host.quantiles(weights, levels) - there.quantiles(away, levels)).max() <= 1


def schema(sizes=SHAPE):
    return Schema(tuple(Attribute(f"a{i}", tuple(range(size)), size - 1) for i, size in enumerate(sizes)))


def test_histograms_on_the_device_answer_like_the_hosts():
    universe, rng = Universe(schema()), np.random.default_rng(0)
    there = DevicePasses(SHAPE, HERE)
    for given in ({"weights": rng.random(CELLS)}, {"log_weights": rng.normal(size=CELLS)}, {}):
        host, away = Histogram(universe, **given), Histogram(universe, **given, passes=there)
        assert away.weights == pytest.approx(host.weights, rel=1e-12)
        factor = rng.normal(size=(4, 3))
        host, away = (each.reweight((2, 0), factor) for each in (host, away))
        assert away.marginal((3, 2)) == pytest.approx(host.marginal((3, 2)), rel=1e-12)
        assert not away.weights.flags.writeable
        assert isinstance(away._weights, torch.Tensor)  # it stays there
    for wrong in (
        np.zeros(CELLS),
        np.append(-1.0, np.ones(CELLS - 1)),
        np.full(CELLS, np.nan),
        np.ones(CELLS - 1),
    ):
        with pytest.raises(ValueError, match="A histogram needs 48 weights"):
            Histogram(universe, wrong, passes=there)


def test_counts_on_the_device_are_the_same_integers():
    universe = Universe(schema())
    cells = np.random.default_rng(1).integers(0, CELLS, 500)
    host, away = Counts(universe, cells), Counts(universe, cells, DevicePasses(SHAPE, HERE))
    for attributes in [(0,), (3, 1), (2, 0, 1)]:
        assert_array_equal(away.marginal(attributes), host.marginal(attributes))
    few = Counts(universe, cells[:10], DevicePasses(SHAPE, HERE))
    assert_array_equal(few.marginal((2,)), Counts(universe, cells[:10]).marginal((2,)))


def test_an_engine_on_the_device_answers_like_the_hosts(monkeypatch):
    rng = np.random.default_rng(2)
    table = {f"a{i}": rng.integers(0, size, 4000) for i, size in enumerate(SHAPE)}
    table["a3"] = (table["a0"] > 0).astype(int)
    queries = [Marginal(("a0", "a3")), Regression("a3", ("a0", "a1"), loss="logistic")]

    def answers(**rest):
        engine = QueryEngine(
            schema(), table, dpcvx.Budget(1.0, 1e-6), method="warm", rng=SeededGenerator(1), **rest
        )
        return [[c.estimate for c in engine.ask(query).coefficients] for query in queries]

    expected = answers()
    on_this_device(monkeypatch)
    for got, wanted in zip(answers(backend="torch"), expected, strict=True):
        assert got == pytest.approx(wanted, abs=1e-6)


def test_fits_on_the_device_agree_with_the_hosts():
    from dpcvx.queries import NoisyMarginals

    universe = Universe(schema())
    cells = np.random.default_rng(1).integers(0, CELLS, 5000)
    measured = NoisyMarginals(SHAPE, 5000, 1.0, 2)(Counts(universe, cells), SeededGenerator(0))
    host, away = fit(universe, measured), fit(universe, measured, passes=DevicePasses(SHAPE, HERE))
    assert away.weights == pytest.approx(host.weights, abs=1e-7)


def test_a_backend_that_is_none_is_refused():
    with pytest.raises(ValueError, match="backend must be one of 'auto', 'torch', got 'dask'"):
        passes_over((2, 2), "dask")
    with pytest.raises(Incompatible, match="'torch'"):
        backends.open_dataset(np.ones((2, 2)), np.ones(2), "gpu")
