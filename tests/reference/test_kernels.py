"""Compiled kernels equal their pure-Python forms bit for bit, and keep residuals inside their bound."""

import math
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from dpcvx.data import GradientSum, kernels
from dpcvx.data.kernels import products, quantise, residuals
from dpcvx.data.lattice import RESIDUAL_BITS, ResidualBound
from dpcvx.data.memory import Arrays
from dpcvx.data.rows import Dense
from dpcvx.losses import Logistic
from zoo import ALL_LOSSES

ONE = 2**RESIDUAL_BITS


def python(kernel):
    """The pure-Python form of a kernel, of the kernels it calls included."""
    plain = getattr(kernel, "py_func", kernel)
    names = {name: plain.__globals__.get(name) for name in plain.__code__.co_names}
    return kernels.bind(
        plain, **{name: python(used) for name, used in names.items() if hasattr(used, "py_func")}
    )


def plain_residuals(loss):
    template = residuals.vector_residuals if loss.joint else residuals.scalar_residuals
    return kernels.bind(python(template), slope=loss.slope)


def compiled_residuals(slope, margins, y, unit, bound, parameter=0.0, joint=False):
    rho = np.zeros(margins.shape, dtype=np.int32)
    function = kernels.residuals_of(slope, joint)
    kernels.block_residuals(
        function, margins, y, 0, 0, margins.shape[1], unit, parameter, bound.l2, bound.linf, rho
    )
    return rho


@pytest.mark.parametrize("loss", ALL_LOSSES, ids=repr)
def test_compiled_residuals_equal_the_plain_slopes_bit_for_bit(loss):
    rng = np.random.default_rng(0)
    outputs, n = 3 if loss.joint else 1, 400
    margins = rng.integers(-(2**44), 2**44, size=(outputs, n))
    margins[:, :20] = rng.integers(-(2**62), 2**62, size=(outputs, 20))
    margins[:, 20:25] = 0
    y = rng.integers(-1, 4, size=(1, n)).astype(float) if loss.joint else rng.uniform(-1, 1, size=(1, n))
    y[0, ::3] = np.sign(y[0, ::3])
    for unit in (2.0**-44, 2.0**-38):
        expected = np.zeros((outputs, n), dtype=np.int32)
        bound = ResidualBound(2**31 - 1, 2**31 - 1)
        plain_residuals(loss)(margins, y, 0, 0, n, unit, loss.parameter, bound.l2, bound.linf, expected)
        got = compiled_residuals(loss.slope, margins, y, unit, bound, loss.parameter, loss.joint)
        assert_array_equal(got, expected)
        assert len(set(got.ravel().tolist())) >= 2
    if not loss.joint:
        slope = kernels.compile_slope(loss.slope)
        for z, target in zip((margins[0] * 2.0**-42).tolist(), y[0].tolist(), strict=True):
            assert slope(z, target, loss.parameter) == loss.slope(z, target, loss.parameter)


def test_rounding_is_to_nearest_even_and_the_clip_comes_after_it():
    halves = np.array([0.5, 1.5, -0.5, -1.5, 2.5, 0.49999, 7.6, -7.6, 7.4]) / ONE
    for rounded in (residuals.rounded, python(residuals.rounded)):
        assert [int(rounded(v, 7)) for v in halves] == [0, 2, 0, -2, 2, 0, 7, -7, 7]
        assert [int(rounded(v, 5)) for v in (math.nan, math.inf, -math.inf, 1e300, -1e300)] == [
            0,
            5,
            -5,
            5,
            -5,
        ]
        assert int(rounded(1e300, 2**31 - 1)) == 2**31 - 1


entries = st.one_of(st.sampled_from([0, 1, -1, 2**31 - 1, 1 - 2**31]), st.integers(1 - 2**31, 2**31 - 1))


@settings(max_examples=300, deadline=None)
@given(st.lists(entries, min_size=1, max_size=6), st.one_of(st.integers(0, 5), st.integers(0, 2**31 - 1)))
def test_shrinking_stays_inside_the_norm_and_loses_little(values, l2):
    before = np.array(values, dtype=np.int32)[:, None]
    norm = math.sqrt(sum(v * v for v in values))
    for shrink in (residuals.shrink, python(residuals.shrink)):
        rho = before.copy()
        shrink(rho, 0, l2)
        after = rho[:, 0].tolist()
        assert sum(v * v for v in after) <= l2 * l2
        if sum(v * v for v in values) <= l2 * l2:
            assert after == values
        else:
            assert np.abs(np.array(after) - np.array(values) * (l2 / norm)).max() <= 2


def wild_slope(z, y, a):
    """Slopes of any size, infinite and undefined ones among them."""
    if y > 4.0:
        return 1.0 / (z - z)
    if y > 3.0:
        return (z - z) / (z - z)
    return y * z * z * z * 1e250 if y > 2.0 else y * z


def wild_joint_slope(z, y, a, out):
    for k in range(z.shape[0]):
        out[k] = wild(z[k], y, a) * (k + 1.0)


def wild(z, y, a):
    return y * z * 1e4


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize(
    "bound", [ResidualBound(ONE, ONE), ResidualBound(5, 3), ResidualBound(0, 9), ResidualBound(2, 9)]
)
def test_residuals_of_adversarial_slopes_stay_inside_their_bound(bound, joint):
    rng = np.random.default_rng(1)
    outputs, n = 4, 500
    margins = rng.integers(-(2**62), 2**62, size=(outputs, n)) >> rng.integers(0, 62, size=(outputs, n))
    y = rng.uniform(-5, 5, size=(1 if joint else outputs, n))
    slope = wild_joint_slope if joint else wild_slope
    rho = compiled_residuals(slope, margins, y, 2.0**-40, bound, joint=joint).astype(np.int64)
    assert np.abs(rho).max() <= bound.linf
    assert (rho**2).sum(axis=0).max() <= bound.l2**2
    assert rho.any() == (bound.l2 > 0)
    single = compiled_residuals(wild_slope, margins[:1], np.ones((1, n)), 2.0**-40, bound)
    assert np.abs(single).max() <= min(bound.l2, bound.linf)


def test_a_record_in_company_has_the_residual_it_has_alone():
    rng = np.random.default_rng(2)
    margins, y = rng.integers(-(2**40), 2**40, size=(1, 37)), rng.uniform(-5, 5, size=(1, 37))
    bound = ResidualBound(2**31 - 1, 2**31 - 1)
    together = compiled_residuals(wild_slope, margins, y, 2.0**-38, bound)
    for i in range(37):
        alone = compiled_residuals(
            wild_slope, margins[:, i : i + 1].copy(), y[:, i : i + 1].copy(), 2.0**-38, bound
        )
        assert alone[0, 0] == together[0, i]


@dataclass(frozen=True)
class Cube:
    """A loss from outside the package: phi = (z - y)^4 / 8, its slope calling a function of its own."""

    joint: ClassVar[bool] = False
    offset: ClassVar[bool] = False
    parameter: float = 2.0

    @staticmethod
    def slope(z, y, a):
        return cubed(z - y) / a


def cubed(x):
    return x * x * x


@pytest.mark.long
def test_a_loss_of_the_user_is_compiled_with_what_it_calls():
    rng = np.random.default_rng(3)
    stored = rng.integers(-(2**14), 2**14, size=(11, 3), dtype=np.int16)
    y = rng.uniform(-1, 1, size=(11, 1))
    theta = np.array([0.5, -0.25, 0.125])  # exact in fixed point
    scores = (stored / 2**14 @ theta).tolist()
    slopes = [Cube.slope(z, target, 2.0) for z, target in zip(scores, y[:, 0].tolist(), strict=True)]
    rho = np.array([max(-ONE, min(ONE, round(s * ONE))) for s in slopes])
    got = Arrays(Dense(stored), y).sum(GradientSum(Cube(), theta, ResidualBound(ONE, ONE)))
    assert_array_equal(got, stored.T.astype(np.int64) @ rho)

    class Compiled(Cube):
        slope = staticmethod(kernels.compile_slope(Cube.slope))

    assert_array_equal(
        Arrays(Dense(stored), y).sum(GradientSum(Compiled(), theta, ResidualBound(ONE, ONE))), got
    )

    class Method(Cube):
        def slope(self, z, y, a):
            return z - y

    with pytest.raises(TypeError, match="plain function"):
        Arrays(Dense(stored), y).sum(GradientSum(Method(), theta, ResidualBound(ONE, ONE)))


def test_products_in_python_equal_the_compiled_ones():
    rng = np.random.default_rng(4)
    for n, d, outputs in ((21, 5, 1), (10, 4, 3), (5, products.SHORT_ROW + 1, 2)):
        matrix = rng.integers(-(2**15), 2**15, size=(n, d), dtype=np.int16)
        vectors = rng.integers(-(2**31), 2**31, size=(outputs, d)).astype(np.int32)
        weights = rng.integers(-(2**31), 2**31, size=(outputs, n)).astype(np.int32)
        exact = vectors.astype(object) @ matrix.T.astype(object)
        sums = weights.astype(object) @ matrix.astype(object)
        filled = np.nonzero(matrix)
        parts = (np.searchsorted(filled[0], np.arange(n + 1)), filled[1], matrix[filled])
        for form in (python, lambda kernel: kernel):
            out, total = np.full((3, outputs, n), 7), np.ones((3, outputs, d), dtype=np.int64)
            form(kernels.multiply_dense)(matrix, vectors, 0, n, 0, out[0])
            form(kernels.multiply_sparse)(*parts, vectors, 0, n, 0, out[1])
            form(kernels.accumulate_dense)(matrix, weights, 0, n, total[0])
            form(kernels.accumulate_sparse)(*parts, weights, 0, n, total[1])
            form(kernels.multiply_columns)(matrix.T.copy(), vectors, 0, n, out[2])
            form(kernels.accumulate_columns)(matrix.T.copy(), weights, 0, n, total[2])
            for side in range(3):
                assert_array_equal(out[side], exact)
                assert_array_equal(total[side], sums + 1)


def test_gradients_in_python_equal_the_compiled_ones():
    rng = np.random.default_rng(5)
    stored = rng.integers(-(2**14), 2**14, size=(19, 4), dtype=np.int16)
    theta = rng.integers(-(2**30), 2**30, size=(1, 4)).astype(np.int32)
    y = np.where(rng.random((1, 19)) < 0.5, -1.0, 1.0)
    filled = np.nonzero(stored)
    parts = (np.searchsorted(filled[0], np.arange(20)), filled[1], stored[filled])
    totals = []
    for form, function in (
        (python, plain_residuals(Logistic())),
        (lambda kernel: kernel, kernels.residuals_of(Logistic.slope, False)),
    ):
        rest = (y, theta, function, 2.0**-44, 0.0, ONE, ONE, 0, 19, 8, (1, 0))
        totals += [np.zeros((1, 4), dtype=np.int64) for _ in range(3)]
        form(kernels.gradient_columns)(stored.T.copy(), *rest[:-1], totals[-3])
        form(kernels.gradient_dense)(stored, *rest, totals[-2])
        form(kernels.gradient_sparse)(*parts, *rest, totals[-1])
        margins, rho = rng.integers(-(2**40), 2**40, size=(1, 19)), np.zeros((1, 19), dtype=np.int32)
        form(kernels.add_dense)(stored[:, 0].copy(), 5, margins[0])
        form(kernels.add_sparse)(np.arange(19), stored[:, 0].copy(), -5, margins[0])
        form(kernels.block_residuals)(function, margins, y, 0, 0, 19, 2.0**-44, 0.0, ONE, ONE, rho)
        assert rho.all()
    assert totals[0].any()
    for total in totals[1:]:
        assert_array_equal(total, totals[0])


def test_the_door_in_python_equals_the_compiled_one():
    rng = np.random.default_rng(6)
    block = rng.normal(size=(30, 5))
    block[0, 0], block[1, 1] = math.nan, math.inf
    block[2:6] = 0.45  # norms near the limit, where the integers decide
    center, scale = np.full(5, 0.1), np.full(5, 0.7)
    k2 = 2**28 - 1
    filled = np.nonzero(block)
    indptr = np.searchsorted(filled[0], np.arange(31))
    stored = []
    for form in (python, lambda kernel: kernel):
        dense = np.zeros((30, 6), dtype=np.int16)
        form(kernels.quantise_dense)(block, center, scale, 1.0, 1.001, 2**14, k2, dense)
        columns, values = np.zeros(180, dtype=np.int64), np.zeros(180, dtype=np.int16)
        limits = (1.0, 1.001, 2**14, k2)
        form(kernels.quantise_sparse)(
            indptr, filled[1], block[filled], scale, *limits, True, 5, columns, values
        )
        stored.append((dense, columns, values))
        assert (dense.astype(np.int64) ** 2).sum(axis=1).max() <= k2
    for plain, compiled in zip(*stored, strict=True):
        assert_array_equal(plain, compiled)


@pytest.mark.parametrize(("k2", "kept"), [(25, True), (24, False), (1, False), (0, False)])
def test_a_row_one_unit_too_long_is_shrunk(k2, kept):
    for round_row in (quantise.round_row, python(quantise.round_row)):
        stored = np.zeros(2, dtype=np.int16)
        round_row(np.array([3.0, -4.0]) / 2**14, math.inf, 2**14, k2, stored)
        assert (stored.tolist() == [3, -4]) == kept
        assert int((stored.astype(np.int64) ** 2).sum()) <= k2


FRESH = """
import numpy as np
from dpcvx.data import kernels
from dpcvx.data.memory import Arrays
from dpcvx.data import Dense, GradientSum, ResidualBound
from dpcvx.losses import Logistic
one = Arrays(Dense(np.ones((2, 2), dtype=np.int16)), np.ones((2, 1)))
one.sum(GradientSum(Logistic(), np.ones(2), ResidualBound(9, 9)))
misses = sum(kernels.gradient_columns.stats.cache_misses.values())
print(misses, kernels.residuals_of(Logistic.slope, False, False).cache_hits)
"""


@pytest.mark.long
def test_a_second_process_finds_the_compiled_kernels_on_disk(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    answers = [
        subprocess.run(
            [sys.executable, "-c", FRESH], env=environment, capture_output=True, text=True, check=True
        )
        for _ in range(2)
    ]
    assert [answer.stdout.split() for answer in answers] == [["1", "0"], ["0", "1"]]
