"""Every regularizer keeps the promises of its protocol: convex, with an exact prox."""

import math
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dpcvx.domains.regularizers import L1, ElasticNet, GroupL2, Regularizer, Ridge, SubmodularNorm
from dpcvx.domains.set_functions import Cardinality, GroupCover
from zoo import ALL_REGULARIZERS, ALL_SET_FUNCTIONS

over = pytest.mark.parametrize(("r", "d"), ALL_REGULARIZERS, ids=lambda x: type(x).__name__)


def points(d, count=15, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=d) * rng.exponential(2.0) for _ in range(count)]


@over
def test_prox_satisfies_the_subgradient_inequality(r, d):
    """p is the prox exactly if (v - p) / step is a subgradient of r at p."""
    assert isinstance(r, Regularizer)
    others = [*points(d, 40, seed=1), np.zeros(d)]
    for v in points(d):
        for step in (0.01, 0.5, 3.0):
            p = r.prox(v, step)
            assert p.shape == v.shape
            s = (v - p) / step
            near = [p + 1e-3 * (x - p) for x in others]
            assert all(r.value(x) >= r.value(p) + (s * (x - p)).sum() - 1e-9 for x in others + near)


@over
def test_prox_is_nonexpansive_and_changes_nothing_at_weight_zero(r, d):
    samples = points(d, seed=2)
    for u, v in pairwise(samples):
        for step in (0.05, 1.0):
            moved = np.linalg.norm(r.prox(u, step) - r.prox(v, step))
            assert moved <= np.linalg.norm(u - v) * (1 + 1e-12)
        assert_allclose(r.prox(v, 0.0), v, rtol=1e-15)
        p = r.prox(v, 0.1)
        assert not np.shares_memory(p, v)


@over
def test_value_is_convex_and_homogeneous_if_a_norm(r, d):
    samples = points(d, seed=3)
    for u, v in pairwise(samples):
        for t in (0.2, 0.5):
            chord = (1 - t) * r.value(u) + t * r.value(v)
            assert r.value((1 - t) * u + t * v) <= chord * (1 + 1e-12)
        if not isinstance(r, Ridge | ElasticNet):
            assert r.value(-3.0 * u) == pytest.approx(3 * r.value(u))
    assert r.value(np.zeros(d)) == 0


def test_closed_forms():
    theta = np.array([[3.0, -4.0], [0.5, 0.0]])
    assert L1(2.0).value(theta) == 15.0
    assert Ridge(2.0).value(theta) == 25.25
    assert ElasticNet(2.0, 2.0).value(theta) == 40.25
    assert GroupL2([[0, 1], [2]], 2.0).value(theta) == 11.0
    assert SubmodularNorm(GroupCover([[0, 1], [1, 2, 3]]), 2.0).value(theta) == 16.0
    assert_allclose(L1(2.0).prox(theta, 0.5), [[2.0, -3.0], [0.0, 0.0]])
    assert_allclose(Ridge(2.0).prox(theta, 0.5), theta / 2)
    assert_allclose(ElasticNet(2.0, 2.0).prox(theta, 0.5), [[1.0, -1.5], [0.0, 0.0]])
    assert_allclose(GroupL2([[0, 1], [2]], 2.0).prox(theta, 0.5), [[2.4, -3.2], [0.0, 0.0]])
    assert_allclose(
        SubmodularNorm(GroupCover([[0, 1], [2, 3]]), 2.0).prox(theta, 1.0), [[2.5, -2.5], [0.0, 0.0]]
    )


def test_special_cases_agree():
    for v in points(6):
        assert_allclose(SubmodularNorm(Cardinality(), 0.3).prox(v, 2.0), L1(0.3).prox(v, 2.0))
        assert_allclose(GroupL2([[j] for j in range(6)], 0.3).prox(v, 2.0), L1(0.3).prox(v, 2.0))
        assert_allclose(ElasticNet(0.3, 0.0).prox(v, 2.0), L1(0.3).prox(v, 2.0))
        assert_array_equal(ElasticNet(0.0, 0.3).prox(v, 2.0), Ridge(0.3).prox(v, 2.0))
        free = GroupL2([[0, 1]], 100.0).prox(v, 1.0)  # coordinates in no group are left alone
        assert_array_equal(free, [0.0, 0.0, *v[2:]])


def test_every_set_function_gives_a_regularizer():
    assert {type(r.function) for r, _ in ALL_REGULARIZERS if isinstance(r, SubmodularNorm)} == {
        type(F) for F, _ in ALL_SET_FUNCTIONS
    }


@pytest.mark.parametrize("bad", [-1.0, math.inf, math.nan])
def test_weights_must_be_finite_and_not_negative(bad):
    for make in (L1, Ridge, lambda w: GroupL2([[0]], w), lambda w: SubmodularNorm(Cardinality(), w)):
        with pytest.raises(ValueError, match="needs a finite weight >= 0; got weight="):
            make(bad)
    with pytest.raises(ValueError, match="l1 >= 0"):
        ElasticNet(bad, 1.0)
    with pytest.raises(ValueError, match="l2 >= 0"):
        ElasticNet(1.0, bad)


@pytest.mark.parametrize("groups", [[[0, 1], [1]], [[0], []], [[0, 0]], [[-1]]])
def test_groups_of_the_l2_norm_must_be_disjoint(groups):
    with pytest.raises(ValueError, match="needs disjoint groups"):
        GroupL2(groups, 1.0)


def test_groups_must_fit_the_parameter():
    with pytest.raises(ValueError, match="index 4 in a group; the parameter has 3 entries"):
        GroupL2([[0], [4]], 1.0).value(np.zeros(3))
