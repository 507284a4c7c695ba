"""The part of a ball where entries have given signs: projections are nearest, linear minimisers are best."""

import math

import numpy as np
import pytest

from dpcvx.domains.signed import SignedBall

SETS = [(SignedBall(2.0, (0, 2), (3,)), 5), (SignedBall(0.5, (1,)), (3, 2)), (SignedBall(1.0, (0, 9)), 3)]


def points(C, d, count=300):
    rng = np.random.default_rng(0)
    return [C.project(rng.normal(0, 2, d)) for _ in range(count)]


@pytest.mark.parametrize(("C", "d"), SETS)
def test_projections_are_in_the_set_and_nearest(C, d):
    rng = np.random.default_rng(1)
    for _ in range(50):
        v = rng.normal(0, 3, d)
        p = C.project(v)
        assert C.contains(p)
        np.testing.assert_allclose(C.project(p), p, atol=1e-15)
        assert all(((v - p) * (s - p)).sum() <= 1e-9 for s in points(C, d, 50))


@pytest.mark.parametrize(("C", "d"), SETS)
def test_linear_minimisers_and_norms_hold_for_all_points(C, d):
    found, rng = points(C, d), np.random.default_rng(2)
    for _ in range(20):
        g = rng.normal(0, 1, d)
        assert (g * C.lmo(g)).sum() <= min((g * s).sum() for s in found) + 1e-12
    for order in (1, 2, math.inf):
        assert max(np.linalg.norm(np.ravel(s), order) for s in found) <= C.norm(order, d) * (1 + 1e-12)


def test_wrong_signs_are_outside_and_wrong_places_refused():
    assert not SignedBall(1.0, (0,)).contains(np.array([-0.1, 0.0]))
    assert SignedBall(1.0, (0,)).minkowski(np.array([-0.1, 0.0])) == math.inf
    with pytest.raises(ValueError, match="either in up"):
        SignedBall(1.0, (0,), (0,))
