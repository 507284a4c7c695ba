"""Every mirror map keeps the promises of the MirrorMap protocol."""

import math
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dpcvx.domains import (
    Box,
    GroupBall,
    HasMirrorMap,
    HasProjection,
    InterpolationBall,
    L1Ball,
    L2Ball,
    NuclearBall,
    Simplex,
    VertexHull,
)
from dpcvx.domains.interpolation import Interpolation
from dpcvx.domains.mirror import Entropy, Euclidean
from dpcvx.domains.p_norm_map import PNorm
from dpcvx.domains.vertex_norm_map import VertexNorm
from zoo import ALL_DOMAINS, ALL_MIRROR_MAPS

CASES = [(C, d) for C, d in ALL_DOMAINS if isinstance(C, HasMirrorMap)]


def over(pairs):
    return pytest.mark.parametrize(("C", "d"), pairs, ids=[f"{type(C).__name__}-{d}" for C, d in pairs])


over_maps = pytest.mark.parametrize(
    ("psi", "C", "d"),
    ALL_MIRROR_MAPS,
    ids=[f"{type(psi).__name__}-{type(C).__name__}-{d}" for psi, C, d in ALL_MIRROR_MAPS],
)


def corners(C, d):
    rng = np.random.default_rng(1)
    return np.array([C.lmo(rng.normal(size=d)) for _ in range(10)])


def points(C, d, count=12):
    """Points inside C: mixtures of points that are smallest in random directions, and of its start."""
    rng = np.random.default_rng(1)
    outer = np.concatenate([corners(C, d), C.start(d)[None]])
    return [np.tensordot(rng.dirichlet(np.full(11, 0.3)), outer, 1) for _ in range(count)]


def inside(psi, C, d, count=12):
    """Points where the gradient of psi exists: for the entropy, away from the faces."""
    samples = points(C, d, count)
    return [0.9 * s + 0.1 * C.start(d) for s in samples] if infinite_slopes(psi) else samples


def infinite_slopes(psi):
    return isinstance(getattr(psi, "base", psi), Entropy)


def size(C, d):
    return max(1.0, C.norm(2, d) ** 2)


@over_maps
def test_divergence_is_zero_at_home_and_strongly_convex(psi, C, d):
    for u, v in pairwise(inside(psi, C, d)):
        assert psi.bregman(u, u) == pytest.approx(0.0, abs=1e-9 * size(C, d))
        gap = 0.5 * psi.strong_convexity * psi.norm(u - v) ** 2
        assert psi.bregman(u, v) >= gap - 1e-9 * size(C, d)
        near = v + 1e-3 * (u - v)
        assert psi.bregman(near, v) >= 0.5 * psi.strong_convexity * psi.norm(near - v) ** 2 - 1e-12 * size(
            C, d
        )


@over_maps
def test_norm_is_a_norm(psi, C, d):
    u, v, w = inside(psi, C, d, 3)
    a, b = u - v, v - w
    assert psi.norm(a) > 0
    assert psi.norm(-2.5 * a) == pytest.approx(2.5 * psi.norm(a), rel=1e-6)
    assert psi.norm(a + b) <= psi.norm(a) + psi.norm(b) + 1e-9


@over_maps
def test_divergence_is_a_divergence(psi, C, d):
    """Three points: B(u, v) - B(u, w) - B(w, v) = <grad psi(w) - grad psi(v), u - w> is linear in u."""
    u, w, v, x = inside(psi, C, d, 4)

    def at(s):
        return psi.bregman(s, v) - psi.bregman(s, w) - psi.bregman(w, v)

    assert at(w) == pytest.approx(0.0, abs=1e-9 * size(C, d))
    assert at(0.3 * u + 0.7 * x) == pytest.approx(0.3 * at(u) + 0.7 * at(x), abs=1e-7 * size(C, d))


@over_maps
@pytest.mark.parametrize("eta", [0.01, 0.3, 50.0])
def test_step_stays_in_the_set_and_satisfies_the_variational_inequality(psi, C, d, eta):
    """eta <g, u - s> + B(u, theta) - B(u, s) - B(s, theta) >= 0 for every u in C: s is the minimiser."""
    rng = np.random.default_rng(2)
    theta, *others = inside(psi, C, d, 8)
    others = [*others, *corners(C, d)]
    for _ in range(2):
        g = rng.normal(size=d)
        s = psi.step(theta, g, eta)
        assert s.shape == theta.shape
        assert C.contains(s)
        moved = psi.bregman(s, theta)
        assert eta * (g * (s - theta)).sum() + moved <= 0
        for u in others:
            gain = eta * (g * (u - s)).sum() + psi.bregman(u, theta) - psi.bregman(u, s) - moved
            assert gain >= -1e-9 * size(C, d) * max(1.0, eta)
        theta = 0.9 * s + 0.1 * C.start(d) if infinite_slopes(psi) else s


@over_maps
def test_divergence_from_the_start_is_bounded_and_of_the_bounds_size(psi, C, d):
    start, bound = C.start(d), psi.divergence_bound(d)
    found = [psi.bregman(s, start) for s in [*points(C, d), *corners(C, d)]]
    assert max(found) <= bound * (1 + 1e-9)
    assert bound <= 8 * max(found)


def dual_norm(psi, C, d, g):
    """The larger <g, s> / ||s|| of two s: where a short step leads, and from the least to the largest <g, .>.

    The first gives the dual norm where psi is a squared norm, the second where the norm is that of C.
    """
    middle = points(C, d, 1)[0] if isinstance(C, Box) else C.start(d)  # a box may start in a corner
    step = psi.step(middle, -g, 1e-3 * size(C, d) ** 0.5) - middle
    return max((g * s).sum() / psi.norm(s) for s in (step, C.lmo(-g) - C.lmo(g)))


@over_maps
def test_noise_norm_bounds_the_dual_norm_of_noise_and_is_of_its_size(psi, C, d):
    rng = np.random.default_rng(3)
    draws = [dual_norm(psi, C, d, rng.normal(size=d)) ** 2 for _ in range(60)]
    error = np.std(draws) / math.sqrt(len(draws))
    assert np.mean(draws) - 4 * error <= psi.noise_norm(d) <= 10 * np.mean(draws)


@over_maps
def test_radius_bounds_the_dual_norm_of_gradients(psi, C, d):
    rng = np.random.default_rng(4)
    for g in [rng.normal(size=d), np.sign(rng.normal(size=d)), *points(C, d, 3)]:
        norm = dual_norm(psi, C, d, g)
        assert norm <= psi.radius(2, d) * np.linalg.norm(g.ravel()) * (1 + 1e-9)
        assert norm <= psi.radius(1, d) * np.abs(g).max() * (1 + 1e-9)
    u, v = inside(psi, C, d, 2)
    for ord in (1, 2):
        assert np.linalg.norm((u - v).ravel(), ord) <= psi.radius(ord, d) * psi.norm(u - v) * (1 + 1e-9)


@over([(C, d) for C, d in CASES if isinstance(C, HasProjection)])
def test_euclidean_step_is_projected_gradient(C, d):
    rng = np.random.default_rng(3)
    theta, g = points(C, d)[0], rng.normal(size=d)
    assert_array_equal(Euclidean(C).step(theta, g, 0.3), C.project(theta - 0.3 * g))


def test_euclidean_divergence_is_half_the_squared_distance():
    assert_allclose(Euclidean(L2Ball(9.0)).bregman(np.arange(5.0), np.ones(5)), (1 + 0 + 1 + 4 + 9) / 2)


@pytest.mark.parametrize(
    ("C", "d"), [(L1Ball(2.0), 7), (GroupBall(2, 2.0), 7), (NuclearBall(2.0), (4, 3))], ids=repr
)
def test_the_two_norm_of_magnitudes_is_euclidean(C, d):
    rng = np.random.default_rng(5)
    for eta in (0.1, 1.0, 30.0):
        theta, g = points(C, d)[0], rng.normal(size=d)
        assert_allclose(PNorm(C, 2.0).step(theta, g, eta), C.project(theta - eta * g), atol=1e-9)
        assert PNorm(C, 2.0).bregman(theta, g) == pytest.approx(0.5 * ((theta - g) ** 2).sum())


def test_maps_of_one_set_written_two_ways_agree():
    """Groups of one entry are entries; a diagonal matrix is its singular values."""
    rng = np.random.default_rng(6)
    for eta in (0.1, 2.0, 40.0):
        theta, g = L1Ball(1.5).project(rng.normal(size=5)), rng.normal(size=5)
        s = PNorm(L1Ball(1.5), 3.0).step(theta, g, eta)
        assert_allclose(PNorm(GroupBall(1, 1.5), 3.0).step(theta, g, eta), s, atol=1e-9)
        spectral = PNorm(NuclearBall(1.5), 3.0)
        assert_allclose(spectral.step(np.diag(theta), np.diag(g), eta), np.diag(s), atol=1e-9)


def test_vertex_norm_of_a_box_of_vertices_is_the_p_norm():
    """Both v and -v share their coefficient, which halves each: ||.||_{Q,q} = 2^(1/q - 1) ||.||_q."""
    C = VertexHull(np.vstack([np.eye(9), -np.eye(9)]))
    psi, p = VertexNorm(C), math.log(18)
    v = np.random.default_rng(7).normal(size=9)
    assert psi.norm(v) == pytest.approx(2 ** (-1 / p) * PNorm(L1Ball(1.0), p).norm(v), rel=1e-9)
    theta, g = L1Ball(1.0).project(v), np.random.default_rng(8).normal(size=9)
    same = PNorm(L1Ball(1.0), p).step(theta, g, 0.7 * 2 ** (2 / p))  # psi is 2^(-2/p) times the other
    assert_allclose(psi.step(theta, g, 0.7), same, atol=1e-9)


@pytest.mark.parametrize(
    "C", [C for C, _ in ALL_DOMAINS if isinstance(C, VertexHull)], ids=lambda C: str(len(C.vertices))
)
@pytest.mark.long
def test_vertex_norm_steps_are_soon_solved(C, monkeypatch):
    # Once 3 % of the steps went on until the limit because rounding kept their slope above a tolerance.
    solve, solved = np.linalg.lstsq, []
    monkeypatch.setattr(np.linalg, "lstsq", lambda *args, **more: solved.append(1) or solve(*args, **more))
    psi, rng = VertexNorm(C), np.random.default_rng(0)
    theta = C.start(C.vertices.shape[1])
    for size in rng.choice([0.1, 1.0, 10.0], 300):
        solved.clear()
        theta = psi.step(theta, size * rng.normal(size=theta.shape), 0.3)
        assert len(solved) < 50


def test_the_limits_of_the_interpolation_are_l1_and_l2():
    rng = np.random.default_rng(9)
    theta, g = 0.1 * rng.normal(size=6), rng.normal(size=6)
    near = Interpolation(InterpolationBall(1 - 1e-9, 2.0), 6)
    assert_allclose(near.step(theta, g, 3.0), L2Ball(2.0).project(theta - 3.0 * g), atol=1e-6)
    for d in (6, 400):
        assert InterpolationBall(0.0, 2.0).mirror_map(d) == L1Ball(2.0).mirror_map(d)
    assert isinstance(InterpolationBall(1.0, 2.0).mirror_map(400), Euclidean)


def test_entropy_step_is_the_exponentiated_gradient():
    theta, g = np.array([0.2, 0.3, 1.5]), np.array([1.0, -1.0, 0.5])
    new = theta * np.exp(-0.7 * g / 2.0)
    assert_allclose(Entropy(2.0).step(theta, g, 0.7), 2.0 * new / new.sum(), rtol=1e-14)


def test_entropy_survives_huge_gradients_and_finds_its_way_back():
    psi, theta = Entropy(1.0), np.full(3, 1 / 3)
    theta = psi.step(theta, np.array([0.0, 1e6, 1e9]), 1.0)
    assert_allclose(theta, [1.0, 0.0, 0.0], atol=1e-290)
    assert (theta > 0).all()
    assert_allclose(psi.step(theta, np.array([0.0, 0.0, -1e6]), 1.0), [0.0, 0.0, 1.0], atol=1e-290)
    for lost in (0.0, -1e-17):  # by rounding
        assert_allclose(psi.step(np.array([1.0, lost]), np.array([0.0, -1e3]), 1.0), [0.0, 1.0], atol=1e-100)
        assert psi.bregman(np.array([1.0, lost]), np.array([0.5, 0.5])) == pytest.approx(math.log(2))


@pytest.mark.parametrize("C", [L1Ball(1.0), GroupBall(2, 1.0)], ids=repr)
def test_a_huge_gradient_leads_to_the_corner_it_points_to(C):
    g = np.array([3e12, -1.0, 2e12, 0.5])
    assert_allclose(PNorm(C, 4.0).step(np.zeros(4), g, 1.0), C.lmo(g), atol=1e-9)
    close = np.array([1e9 + 0.5, 0.0, 1e9, 0.0])  # a gap that only exact differences see
    s = PNorm(L1Ball(1.0), 4.0).step(np.zeros(4), close, 1.0)
    t = PNorm(L1Ball(1.0), 4.0).step(np.zeros(4), close - [1e9 - 50, 0, 1e9 - 50, 0], 1.0)
    assert_allclose(s, t, atol=1e-9)


@pytest.mark.parametrize(
    ("C", "few", "many", "kind"),
    [
        (L1Ball(1.0), 4, 1000, PNorm),
        (Simplex(), 4, 1000, Entropy),
        (GroupBall(3, 1.0), 6, 3000, PNorm),
        (NuclearBall(1.0), (5, 5), (400, 400), PNorm),
        (InterpolationBall(0.1, 1.0), 4, 3000, Interpolation),
    ],
    ids=repr,
)
def test_a_set_chooses_the_map_with_the_smaller_bound(C, few, many, kind):
    small = C.mirror_map(few)
    assert isinstance(small, Euclidean) or small.q == 2
    assert isinstance(C.mirror_map(many), kind)
    for d in (few, many):
        psi = C.mirror_map(d)
        assert psi.divergence_bound(d) * psi.noise_norm(d) <= 0.5 * C.diameter(2, d) ** 2 * np.prod(d)


def test_a_hull_chooses_by_vertices_and_dimensions():
    rng = np.random.default_rng(10)
    assert isinstance(VertexHull(rng.normal(size=(10, 400))).mirror_map(400), VertexNorm)
    assert isinstance(VertexHull(rng.normal(size=(400, 3))).mirror_map(3), Euclidean)
