"""Every mirror map keeps the promises of the MirrorMap protocol."""

from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dpcvx.domains import HasMirrorMap, HasProjection
from dpcvx.mirror import Euclidean
from zoo import ALL_DOMAINS

CASES = [(C, d) for C, d in ALL_DOMAINS if isinstance(C, HasMirrorMap)]


def over(pairs):
    return pytest.mark.parametrize(("C", "d"), pairs, ids=[f"{type(C).__name__}-{d}" for C, d in pairs])


def points(C, d, count=30):
    """Points of C: mixtures of points that are smallest in random directions."""
    rng = np.random.default_rng(1)
    corners = np.array([C.lmo(rng.normal(size=d)) for _ in range(10)])
    return [np.tensordot(rng.dirichlet(np.full(10, 0.3)), corners, 1) for _ in range(count)]


@over(CASES)
def test_divergence_is_zero_at_home_and_strongly_convex(C, d):
    psi = C.mirror_map(d)
    samples = points(C, d)
    for u, v in pairwise(samples):
        assert psi.bregman(u, u) == pytest.approx(0.0, abs=1e-12)
        gap = np.linalg.norm((u - v).ravel(), psi.ord)
        assert psi.bregman(u, v) >= 0.5 * psi.strong_convexity * gap**2 - 1e-12


@over(CASES)
def test_step_stays_in_the_set_and_minimises_its_objective(C, d):
    psi = C.mirror_map(d)
    rng = np.random.default_rng(2)
    samples = points(C, d)
    for eta in (0.01, 1.0, 50.0):
        theta, g = samples[0], rng.normal(size=d)
        new = psi.step(theta, g, eta)
        assert new.shape == theta.shape
        assert C.contains(new)

        def objective(s, theta=theta, g=g, eta=eta):
            return (g * s).sum() + psi.bregman(s, theta) / eta

        best = objective(new)
        for s in samples:
            for t in (1.0, 1e-2):  # far from the step's end, and near to it
                assert best <= objective(new + t * (s - new)) + 1e-9
        assert best < objective(theta)


@over([(C, d) for C, d in CASES if isinstance(C, HasProjection)])
def test_euclidean_step_is_projected_gradient(C, d):
    rng = np.random.default_rng(3)
    theta, g = points(C, d)[0], rng.normal(size=d)
    assert_array_equal(Euclidean(C).step(theta, g, 0.3), C.project(theta - 0.3 * g))


def test_euclidean_divergence_is_half_the_squared_distance():
    (C, d), u = CASES[0], np.arange(5.0)
    assert_allclose(Euclidean(C).bregman(u, np.ones(d)), (1 + 0 + 1 + 4 + 9) / 2)
