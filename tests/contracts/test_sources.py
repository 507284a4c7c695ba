"""Sums of a DataSource equal a row-by-row sum in Python integers, however the records are stored and read."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal

import dpcvx
from dpcvx.data import DifferenceSum, GradientSum
from dpcvx.data.lattice import FEATURE_BITS, RESIDUAL_BITS, ResidualBound, fixed_point
from dpcvx.data.memory import Arrays, source
from dpcvx.data.quantise import Quantiser, targets
from dpcvx.data.rows import Dense, Sparse
from dpcvx.losses import Huber, Logistic, Softmax, Squared
from dpcvx.problem import Bounds
from zoo import ALL_LOSSES, BINARY_LOSSES

WIDE = ResidualBound(2**30, 2**30)
N, D = 29, 6


def records(loss, outputs, n=N, d=D):
    """Stored rows with many zeros, targets that fit the loss (one of them missing), and an iterate."""
    rng = np.random.default_rng([n, d, outputs])
    X = rng.uniform(-1, 1, size=(n, d)) * (rng.random((n, d)) < 0.6)
    if loss.joint:
        y = rng.integers(-1, outputs, size=(n, 1)).astype(float)
    elif loss in BINARY_LOSSES:
        y = rng.integers(-1, 2, size=(n, outputs)).astype(float)
    else:
        y = rng.uniform(-1, 1, size=(n, outputs))
    theta = 2 * rng.normal(size=(d, outputs))
    return X, y, theta[:, 0] if outputs == 1 else theta


def residual(loss, margins, unit, y, bound):
    """rho of one record in Python integers; the bound's l2 part must not bind."""
    z = [min(max(m * unit, -(2.0**30)), 2.0**30) for m in margins]
    if loss.joint:
        slopes = np.empty(len(z))
        loss.slope(np.array(z), y[0], loss.parameter, slopes)
    else:
        slopes = [loss.slope(score, target, loss.parameter) for score, target in zip(z, y, strict=True)]
    return [max(-bound.linf, min(bound.linf, round(float(s) * 2**RESIDUAL_BITS))) for s in slopes]


def plain_sum(loss, stored, y, weights, unit, bound):
    """sum_i rho_i k_i in Python integers; weights (K, d) are the iterate's."""
    total = [[0] * len(weights) for _ in range(stored.shape[1])]
    for row, target in zip(stored.tolist(), y.tolist(), strict=True):
        margins = [sum(k * w for k, w in zip(row, column, strict=True)) for column in weights]
        rho = residual(loss, margins, unit, target, bound)
        for j, k in enumerate(row):
            for output, r in enumerate(rho):
                total[j][output] += k * r
    return np.array(total)


def storages(X):
    """The same integers, dense and compressed."""
    quantiser = Quantiser(Bounds(1.0))
    return {"dense": quantiser.quantise(X), "sparse": quantiser.quantise(sp.csr_array(X))}


@pytest.mark.parametrize("storage", ["dense", "sparse"])
@pytest.mark.parametrize("loss", ALL_LOSSES, ids=repr)
def test_gradient_and_scores_equal_python_integers(loss, storage):
    outputs = 3 if loss.joint else 1
    X, y, theta = records(loss, outputs)
    stored = storages(X)[storage]
    weights, unit = fixed_point(theta)
    expected = plain_sum(loss, storages(X)["dense"].values, y, weights.tolist(), unit, WIDE).reshape(
        theta.shape
    )
    arrays = Arrays(stored, y)
    assert_array_equal(arrays.sum(GradientSum(loss, theta, WIDE)), expected)

    margins = arrays.follow(loss, outputs)
    margins.add(0, 12345)
    margins.reset()
    for j in range(D):
        for k in range(outputs):
            margins.add(j * outputs + k, int(weights[k, j]))
    assert_array_equal(margins.scores(unit, WIDE), expected)


@pytest.mark.parametrize("storage", ["dense", "sparse"])
@pytest.mark.parametrize("loss", ALL_LOSSES, ids=repr)
def test_differences_over_a_batch_equal_python_integers(loss, storage):
    outputs = 3 if loss.joint else 1
    X, y, theta = records(loss, outputs)
    rows = storages(X)["dense"].values
    anchor, batch = 0.3 * theta[::-1], np.array([0, 3, 4, 11, 20, 28])
    limit = 2**RESIDUAL_BITS // 5
    expected = np.zeros((D, outputs), dtype=np.int64)
    for i in batch:
        rho = []
        for point in (theta, anchor):
            weights, unit = fixed_point(point)
            margins = [sum(k * w for k, w in zip(rows[i].tolist(), w, strict=True)) for w in weights.tolist()]
            rho.append(residual(loss, margins, unit, y[i], WIDE))
        for k, (after, before) in enumerate(zip(*rho, strict=True)):
            expected[:, k] += max(-limit, min(limit, after - before)) * rows[i].astype(np.int64)
    arrays = Arrays(storages(X)[storage], y)
    answer = arrays.sum(DifferenceSum(loss, (theta, anchor), batch, WIDE, ResidualBound(2**30, limit)))
    assert_array_equal(answer, expected.reshape(theta.shape))
    assert answer.any()


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("storage", ["dense", "sparse"])
def test_no_difference_depends_on_blocks_threads_or_layout(storage, outputs):
    loss = Huber(0.4)
    X, y, theta = records(loss, outputs, n=61)
    batch, bound = np.flatnonzero(np.random.default_rng(1).random(61) < 0.6), ResidualBound(2**18, 2**17)
    question = (loss, (theta, 0.1 * theta), batch, ResidualBound(2**19, 2**19), bound)
    reference = Arrays(storages(X)["dense"], y, threads=1, block_rows=61).sum(DifferenceSum(*question))
    assert reference.any()
    for threads in (1, 2, 7, 100):
        for block_rows in (1, 7, 9, 1000):
            for layout in ("rows", "columns"):
                arrays = Arrays(
                    storages(X)[storage], y, layout=layout, threads=threads, block_rows=block_rows
                )
                assert_array_equal(arrays.sum(DifferenceSum(*question)), reference)


def test_points_of_a_difference_must_have_one_shape():
    arrays = Arrays(storages(records(Squared(), 1)[0])["dense"], records(Squared(), 1)[1])
    with pytest.raises(ValueError, match="shapes"):
        arrays.sum(DifferenceSum(Squared(), (np.zeros(D), np.zeros((D, 2))), np.arange(3), WIDE, WIDE))
    with pytest.raises(ValueError, match="7 rows"):
        arrays.sum(DifferenceSum(Squared(), (np.zeros(7), np.zeros(D)), np.arange(3), WIDE, WIDE))


@pytest.mark.parametrize("outputs", [1, 2, 4])
@pytest.mark.parametrize("storage", ["dense", "sparse"])
def test_no_answer_depends_on_blocks_threads_layout_or_order(storage, outputs):
    loss = Huber(0.4)
    X, y, theta = records(loss, outputs, n=61)
    bound = ResidualBound(2**RESIDUAL_BITS // 4, 2**RESIDUAL_BITS // 5)
    reference = Arrays(storages(X)["dense"], y, threads=1, block_rows=61).sum(GradientSum(loss, theta, bound))
    assert reference.any()
    for threads in (1, 2, 7, 100):
        for block_rows in (1, 7, 9, 61, 1000):
            for layout in ("rows", "columns"):
                arrays = Arrays(
                    storages(X)[storage], y, layout=layout, threads=threads, block_rows=block_rows
                )
                assert_array_equal(arrays.sum(GradientSum(loss, theta, bound)), reference)
    order = np.random.default_rng(0).permutation(len(X))
    shuffled = Arrays(storages(X[order])[storage], y[order], threads=2, block_rows=8)
    assert_array_equal(shuffled.sum(GradientSum(loss, theta, bound)), reference)


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("storage", ["dense", "sparse"])
def test_scores_do_not_depend_on_threads_and_equal_the_gradient(storage, outputs):
    X, y, theta = records(Squared(), outputs, n=40)
    weights, unit = fixed_point(theta)
    bound = ResidualBound(2**20, 2**19)
    answers = []
    for threads in (1, 2, 5):
        arrays = Arrays(storages(X)[storage], y, threads=threads, layout="columns")
        margins = arrays.follow(Squared(), outputs)
        for index, weight in enumerate(weights.T.reshape(-1).tolist()):
            margins.add(index, weight)
        answers += [margins.scores(unit, bound), arrays.sum(GradientSum(Squared(), theta, bound))]
    assert answers[0].shape == theta.shape
    for answer in answers[1:]:
        assert_array_equal(answer, answers[0])


def test_long_rows_of_extreme_integers_are_exact():
    """Rows longer than a tile, taken four at a time and in a rest, at the largest magnitudes there are."""
    rng = np.random.default_rng(3)
    d = 2**16 + 5
    stored = rng.choice(np.array([-32767, 32767], dtype=np.int16), size=(6, d))
    theta = rng.choice([-1.0, 1.0], size=d) * 0.99
    y = rng.uniform(-1, 1, size=(6, 1))
    weights, unit = fixed_point(theta)
    expected = [0] * d
    for row, target in zip(stored.tolist(), y.tolist(), strict=True):
        margin = sum(k * w for k, w in zip(row, weights[0].tolist(), strict=True))
        (rho,) = residual(Squared(), [margin], unit, target, ResidualBound(2**31 - 1, 2**31 - 1))
        expected = [e + k * rho for e, k in zip(expected, row, strict=True)]
    answer = Arrays(Dense(stored), y).sum(GradientSum(Squared(), theta, ResidualBound(2**31 - 1, 2**31 - 1)))
    assert answer.tolist() == expected


def test_large_passes_use_threads_and_agree():
    rng = np.random.default_rng(4)
    stored = rng.integers(-(2**14), 2**14, size=(3000, 1500), dtype=np.int16)
    y = np.where(rng.random((3000, 1)) < 0.5, -1.0, 1.0)
    theta, bound = rng.normal(size=1500) / 40, ResidualBound(2**20, 2**20)
    one = Arrays(Dense(stored), y, threads=1)
    default = Arrays(Dense(stored), y)
    assert_array_equal(
        default.sum(GradientSum(Logistic(), theta, bound)), one.sum(GradientSum(Logistic(), theta, bound))
    )
    assert_array_equal(
        default.follow(Logistic(), 1).scores(1.0, bound), one.follow(Logistic(), 1).scores(1.0, bound)
    )


def test_gradient_is_close_to_the_real_one():
    X, y, theta = records(Logistic(), 1, n=200, d=9)
    answer = dpcvx.source(X, y, bounds=Bounds(1.0)).sum(GradientSum(Logistic(), theta, WIDE)) * 2.0**-34
    expected = X.T @ Logistic().grad(X @ theta, y[:, 0])
    np.testing.assert_allclose(answer, expected, atol=200 * 9 * 2.0**-FEATURE_BITS)


def test_public_mistakes_are_errors():
    X, y, theta = records(Logistic(), 1)
    arrays = source(X, y, bounds=Bounds(1.0))
    assert (arrays.n, arrays.d) == (N, D)
    for wrong in (theta[:-1], np.full(D, np.nan), np.zeros((D, 1, 1)), np.zeros(0)):
        with pytest.raises(ValueError, match=r"theta has|iterate must be finite"):
            arrays.sum(GradientSum(Logistic(), wrong, WIDE))
    with pytest.raises(ValueError, match="29 rows but y has 28"):
        source(X, y[:-1], bounds=Bounds(1.0))
    with pytest.raises(ValueError, match="no targets"):
        source(X, bounds=Bounds(1.0)).sum(GradientSum(Logistic(), theta, WIDE))
    with pytest.raises(ValueError, match="needs y with 2 column"):
        arrays.follow(Logistic(), 2)
    with pytest.raises(ValueError, match="layout must be"):
        source(X, y, bounds=Bounds(1.0), layout="diagonal")
    with pytest.raises(ValueError, match="threads must be at least 1"):
        Arrays(Quantiser(Bounds(1.0)).quantise(X), threads=0)
    for index in (-1, D):
        with pytest.raises(IndexError, match=r"0\.\.5"):
            arrays.follow(Logistic(), 1).add(index, 1)
    for bound in ((2**31, 1), (1, -1)):
        with pytest.raises(ValueError, match="ResidualBound needs"):
            ResidualBound(*bound)


def test_class_codes_and_missing_labels():
    X, y, theta = records(Softmax(), 3)
    y[:] = -1
    assert not source(X, y, bounds=Bounds(1.0)).sum(GradientSum(Softmax(), theta, WIDE)).any()
    assert_array_equal(targets(np.array([2, 0, -1])), [[2.0], [0.0], [-1.0]])


@pytest.mark.parametrize("scale", [0.0, 1e-300, 1e-9, 1.0, 3.7, 1e9, 1e300])
def test_iterates_in_fixed_point(scale):
    theta = scale * np.random.default_rng(0).normal(size=(50, 3))
    integers, unit = fixed_point(theta)
    assert integers.dtype == np.int32
    assert integers.shape == (3, 50)
    assert np.abs(integers.astype(np.int64)).sum(axis=1).max() * 2**15 < 2**62
    step = unit * 2.0**FEATURE_BITS
    assert step == 2.0**-30 or np.abs(theta).max() >= 2.0**29 * step / 2
    assert np.abs(integers.T * step - theta).max() <= step / 2


def test_iterates_with_a_heavy_sum_keep_margins_in_range():
    integers, unit = fixed_point(np.full(2**20, 0.99))
    assert int(np.abs(integers.astype(np.int64)).sum()) * 2**15 < 2**62
    assert unit > 2.0**-44


def test_transposes_hold_the_same_integers():
    X = records(Squared(), 1, n=600, d=300)[0]
    dense, sparse = storages(X).values()
    assert isinstance(sparse, Sparse)
    assert (dense.shape, sparse.shape) == (X.shape, X.shape)
    assert_array_equal(dense.transpose().values, dense.values.T)
    flipped = sparse.transpose()
    again = sp.csr_array((flipped.values, flipped.indices, flipped.indptr), shape=flipped.shape)
    assert_array_equal(again.toarray(), dense.values.T)
