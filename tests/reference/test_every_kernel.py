"""Every compiled kernel equals its pure-Python form, bit for bit, wherever it is called."""

import copy
import importlib
import pkgutil
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from numba.core.registry import CPUDispatcher

import dpcvx
from dpcvx.data import (
    AdditiveBasis,
    DifferenceSum,
    GradientSum,
    MomentSum,
    PairSum,
    Quantiser,
    Records,
    ResidualBound,
    kernels,
    lattice,
    lazy_scores,
)
from dpcvx.data.kernels import residuals
from dpcvx.data.memory import Arrays
from dpcvx.data.shards import source as shards
from dpcvx.mechanisms import vertex
from dpcvx.noise import SeededGenerator, exponential, lattice_gaussian
from dpcvx.queries import cell_kernels, descent_kernels
from dpcvx.solvers import NoisyFrankWolfe

pytestmark = pytest.mark.long

# Modules of kernels, by their names: a new one is compared without being listed.
MODULES = [
    importlib.import_module(found.name)
    for found in pkgutil.walk_packages(dpcvx.__path__, "dpcvx.")
    if "kernels" in found.name and "product_kernels" not in found.name
]
KERNELS = {
    f"{value.py_func.__module__}.{value.py_func.__name__}": value
    for module in MODULES
    for value in vars(module).values()
    if isinstance(value, CPUDispatcher) and "kernels" in value.py_func.__module__
}
RNG = np.random.default_rng(6)
BOUNDS = dpcvx.Bounds(1.0, 2.0)
WIDE = ResidualBound(2**20, 2**20)
NARROW = ResidualBound(2**18, 2**18)
X = RNG.uniform(-1, 1, (37, 11)) * (RNG.random((37, 11)) < 0.6)
LABELS, CODES = RNG.choice([-1.0, 1.0], 37), RNG.integers(0, 3, 37).astype(float)


def same(one, other):
    """Whether two arguments or answers are equal to the last bit."""
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return np.array_equal(one, other, equal_nan=np.asarray(one).dtype.kind == "f")


def plain(value):
    """An argument for the pure-Python form: arrays are copied, compiled functions are their Python forms."""
    if isinstance(value, tuple):
        return type(value)(*map(plain, value)) if hasattr(value, "_fields") else tuple(map(plain, value))
    return getattr(value, "__wrapped__", None) or copy.deepcopy(value)


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    """How often each kernel was compared, in runs that call all of them.

    Every call of a kernel from Python is intercepted, so those are compared too that a Python form calls.
    """
    counted, compiled_call = {}, CPUDispatcher.__call__

    def compared(kernel, *arguments):
        function = kernel.py_func
        if "kernels" not in function.__module__:  # the slope of a loss: test_kernels has those
            return compiled_call(kernel, *arguments)
        name = f"{function.__module__}.{function.__name__}"
        copies = tuple(plain(value) for value in arguments)
        expected = function(*copies)
        answer = compiled_call(kernel, *arguments)
        assert expected is answer is None or same(answer, expected), name
        for given, copied in zip(arguments, copies, strict=True):
            assert callable(given) or same(given, copied), name
        counted[name] = counted.get(name, 0) + 1
        return answer

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        patch.setattr(CPUDispatcher, "__call__", compared, raising=False)
        patch.setattr(vertex, "FEWEST_LAZY_FEATURES", 2)
        patch.setattr(shards, "LONG_COLUMN", 2)
        read_records()
        read_additive_records()
        measure_moments()
        follow_on_disk(tmp_path_factory.mktemp("scratch"))
        select_lazily(40, 60, [0.02, 0.5])
        select_lazily(120, 600, [0.01], 5000.0)  # a step touches few of the features
        with patch.context() as narrow:
            narrow.setattr(lazy_scores, "LARGEST_SUM", 2**46)  # new units while the scale falls
            select_lazily(40, 60, [0.02, 0.5])
        draw_noise()
        count_cells()
        minimise()
        follow_in_memory()
        patch.setattr(lattice, "LARGEST_SUM", 2**40)  # sums that need more than 64 bits
        follow_in_memory()
    return counted


def sources():
    for kind in (np.asarray, sp.csr_array):
        yield kind, dpcvx.source(kind(X), LABELS, bounds=BOUNDS)


def read_records():
    theta, batch = RNG.normal(size=12), np.arange(0, 37, 3)
    for kind, _ in sources():
        stored = Quantiser(BOUNDS, intercept=0.5).quantise(kind(X * 3))
        records = Records(stored, LABELS[None])
        GradientSum(dpcvx.Logistic(), theta, WIDE).of(records)
        Arrays(stored, LABELS[:, None]).sum(GradientSum(dpcvx.Logistic(), theta, WIDE))
        DifferenceSum(dpcvx.Logistic(), (theta, -theta), batch, WIDE, NARROW).of(records)
        codes = Records(stored, CODES[None], block_rows=5)
        GradientSum(dpcvx.Softmax(), RNG.normal(size=(12, 3)), NARROW).of(codes)
        narrow = Records(Quantiser(BOUNDS).quantise(kind(np.sign(X))), LABELS[None], 1, 2**14)
        GradientSum(dpcvx.Logistic(), theta, NARROW).of(narrow)
    long = RNG.integers(-5, 5, (9, 2**12 + 3)).astype(np.int16)
    out = np.zeros((1, 9), dtype=np.int64)
    kernels.multiply_dense(long, RNG.integers(-9, 9, (1, 2**12 + 3)).astype(np.int32), 0, 9, 0, out)


def read_additive_records():
    basis = AdditiveBasis(11, (0, 4), (-2.0, 0.0, 2.0), 0.7, ((0, 1), (4, 9)), 0.5, 3.0)
    Quantiser(BOUNDS, 0.1, 0.3, intercept=0.25, basis=basis).quantise(X)
    records = Records(Quantiser(BOUNDS).quantise(X), LABELS[None])
    PairSum(dpcvx.Logistic(), RNG.normal(size=11), NARROW, ((0, 1), (3, 7)), 3.0).of(records)


def measure_moments():
    rows, weights = Quantiser(BOUNDS).quantise(X), RNG.integers(0, 2**14 + 1, 37).astype(float)
    centers, limits = RNG.integers(-900, 900, 12), np.full(12, 9000)
    for order, marked in ((1, ()), (1, (0, 4)), (1, tuple(range(11))), (2, ()), (2, (0, 4))):
        question = MomentSum(order, centers, limits, marked=marked, cell=3, room=2**28)
        question.of(Records(rows, LABELS[None]))
        question.of(Records(rows, np.stack([LABELS, weights]), weighted=True))


def follow_in_memory():
    for _, source in sources():
        margins = source.follow(dpcvx.Logistic(), 1)
        margins.add(2, 5000)
        margins.scores(1e-7, WIDE)


def follow_on_disk(folder):
    for kind, _ in sources():
        parts = [slice(0, 20), slice(20, 37)]
        stored = [Records(Quantiser(BOUNDS).quantise(kind(X[p])), LABELS[None, p], 1, 100) for p in parts]
        for scratch in (None, folder):
            records = shards.ShardSource(stored, bounds=(2**14, 2**30), scratch=scratch)
            margins = records.follow(dpcvx.Logistic(), 1)
            for index in (3, 11):
                margins.add(index, 4000)
            margins.scores(1e-7, WIDE)


def select_lazily(n, d, shares, epsilon=50.0):
    problem = dpcvx.Problem(dpcvx.Logistic(), dpcvx.L1Ball(8.0), bounds=dpcvx.Bounds(1.0), d=d)
    cells = RNG.uniform(-1, 1, (n, d)) * (RNG.random((n, d)) < RNG.choice(shares, d))
    source = dpcvx.source(sp.csr_array(cells), RNG.choice([-1.0, 1.0], n), bounds=problem.bounds)
    plan = dpcvx.plan(problem, n, dpcvx.Budget(epsilon, 1e-3), (NoisyFrankWolfe(n_iter=12),))
    dpcvx.execute(plan, source, rng=SeededGenerator(d))


def draw_noise():
    rng = SeededGenerator(2)
    lattice_gaussian(1000, 300, rng)
    for size in (1, 50):
        exponential.select(RNG.normal(size=size) * 5, rng)
        exponential.select_signed(RNG.normal(size=size) * 5, rng)


def count_cells():
    weights, rows, columns = RNG.random((3, 4)), np.array([1, 0, 1]), np.array([2, 0, 1, 1])
    table = np.zeros((2, 3))
    cell_kernels.fold(weights, rows, np.zeros((2, 4)))
    cell_kernels.gather(columns, RNG.random((2, 4)), table)
    cell_kernels.scale(weights, rows, columns, RNG.random((2, 3)), np.zeros((3, 4)))
    cell_kernels.shift(weights.copy(), rows, columns, RNG.random((2, 3)))
    cell_kernels.count(np.arange(12) % 6, np.array([3, 1]), np.array([2, 3]), np.zeros(6, dtype=np.int64))
    codes = RNG.integers(0, 2, (3, 9)).astype(np.int32)
    cell_kernels.count_codes(codes, np.array([2, 0]), np.array([2, 3]), np.zeros(6, dtype=np.int64))


def minimise():
    rho = RNG.integers(-(2**20), 2**20, (2, 5)).astype(np.int32)
    residuals.weigh(rho, RNG.integers(0, 2**14 + 1, 5).astype(np.float64), 0, 0, 5)
    d, m = 3, 4
    pieces = [RNG.normal(size=(2, m)) for _ in range(2)]
    objective = (np.eye(d), RNG.normal(size=d), RNG.normal(size=(d, m)), RNG.normal(size=m))
    objective += (RNG.random((2, m)), RNG.choice([-1.0, 1.0], (2, m)), -np.abs(pieces[0]), np.abs(pieces[1]))
    for domain in (dpcvx.L2Ball(0.5), dpcvx.L1Ball(0.5), dpcvx.Box(-0.1, 0.2), dpcvx.Simplex(1.0)):
        form = tuple(domain.projection_form(d))
        for v in (RNG.normal(size=d), 0.01 * RNG.normal(size=d)):
            descent_kernels.project(v, form)
        for kind in (descent_kernels.QUADRATIC, descent_kernels.PIECES, descent_kernels.LOGISTIC):
            descent_kernels.descend((kind, 1.0), objective, form, domain.start(d), 0.1, 20)
    descent_kernels.shift(RNG.normal(size=d), 1.0)


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_equals_its_python_form(calls, name):
    assert calls.get(name, 0) > 0, f"no run above calls {name}"


def test_kernels_are_found():
    assert len(KERNELS) > 50
