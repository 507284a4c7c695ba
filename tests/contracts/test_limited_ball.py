"""The part of a ball where shapes are bounded: projections are in it, nearest, and those of the quadratic."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from dpcvx.domains.limited import LimitedBall, ShapeLimit

POINTS = ((-3.0, -0.5, 0.0), (-1.0, -0.2, 0.0), (1.0, 0.0, 0.6), (3.0, 0.0, 0.6))
FREE = ShapeLimit((1, 3, 4), POINTS, 0.7)
RISING = ShapeLimit((0, 2, 5), POINTS, 0.4, 1)
SETS = [
    (LimitedBall(2.0, (FREE,)), 6),
    (LimitedBall(0.3, (FREE, RISING)), 6),
    (LimitedBall(1.0, (ShapeLimit((0, 2, 5), POINTS, math.inf, -1),)), (6, 2)),
]


@pytest.mark.parametrize(("C", "d"), SETS)
def test_projections_are_in_the_set_and_nearest(C, d):
    rng = np.random.default_rng(1)
    others = [C.project(rng.normal(0, 2, d)) for _ in range(50)]
    for size in (0.1, 3.0, 1e6):
        for _ in range(20):
            v = rng.normal(0, size, d)
            p = C.project(v)
            assert C.contains(p)
            np.testing.assert_allclose(C.project(p), p, atol=1e-12)
            assert all(((v - p) * (s - p)).sum() <= 1e-7 * max(1, size) for s in others)


def test_a_projection_is_the_minimiser_of_the_quadratic():
    rng = np.random.default_rng(0)
    points = np.array(POINTS)
    bounds = [{"type": "ineq", "fun": lambda x, s=s: 0.4 - s * points @ x} for s in (1, -1)]
    for _ in range(10):
        v = rng.normal(0, 1, 3)
        known = minimize(
            lambda x, v=v: ((x - v) ** 2).sum(),
            np.zeros(3),
            constraints=bounds,
            bounds=[(0, None)] * 3,
            tol=1e-13,
        ).x
        np.testing.assert_allclose(RISING.nearest(v), known, atol=1e-5)


def test_the_bound_is_tight_and_wrong_limits_are_refused():
    v = np.array([0.0, 5.0, 0.0, 1.0, -1.0, 0.0])
    assert LimitedBall(9.0, (FREE,)).minkowski(LimitedBall(9.0, (FREE,)).project(v)) == pytest.approx(1)
    assert LimitedBall(9.0, (RISING,)).minkowski(-np.ones(6)) == math.inf
    assert not LimitedBall(9.0, (FREE,)).contains(v)
    with pytest.raises(ValueError, match="different entries"):
        LimitedBall(1.0, (FREE, FREE))
    with pytest.raises(ValueError, match="positive limit"):
        ShapeLimit((0,), ((1.0,),), 0.0)
