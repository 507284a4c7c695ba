"""Every constraint set keeps the promises of the Domain protocol and of the abilities it has."""

import itertools
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dpcvx.domains import (
    Box,
    Domain,
    HasLMO,
    HasMirrorMap,
    HasProjection,
    HasVertices,
    L1Ball,
    L2Ball,
    LinfBall,
    Simplex,
    VertexHull,
)
from zoo import ALL_DOMAINS, AROUND_ZERO, OFF_ZERO

WITH_LMO = [(C, d) for C, d in ALL_DOMAINS if isinstance(C, HasLMO)]
WITH_PROJECTION = [(C, d) for C, d in ALL_DOMAINS if isinstance(C, HasProjection)]
WITH_VERTICES = [(C, d) for C, d in ALL_DOMAINS if isinstance(C, HasVertices)]
ORDERS = [1, 1.5, 2, 3, math.inf]


def over(pairs):
    return pytest.mark.parametrize(("C", "d"), pairs, ids=[f"{type(C).__name__}-{d}" for C, d in pairs])


def points(C, d, count=60, spread=4.0):
    """Points of C, inside and on its boundary."""
    rng = np.random.default_rng(1)
    return [C.project(rng.normal(size=d) * rng.exponential(spread)) for _ in range(count)]


def directions(d, count):
    """Axes, then signs, then Gaussian directions."""
    size = int(np.prod(d))
    axes = np.vstack([np.eye(size), -np.eye(size)])
    signs = np.array(list(itertools.product([-1.0, 1.0], repeat=size)))
    normal = np.random.default_rng(2).normal(size=(count, size))
    return [w.reshape(d) for w in np.vstack([axes, signs, normal])]


def norm(v, ord):
    return float(np.linalg.norm(np.ravel(v), ord))


def steepest(v, ord):
    """Return a subgradient of the norm at v: the linear function to climb for a larger norm."""
    if ord == math.inf:
        w = np.zeros_like(v)
        i = np.abs(v).argmax()
        w.flat[i] = np.sign(v.flat[i])
        return w
    return np.sign(v) * np.abs(v) ** (ord - 1)


@over(ALL_DOMAINS)
def test_is_a_domain(C, d):
    assert isinstance(C, Domain)
    assert isinstance(C, HasMirrorMap)


def test_only_polytopes_with_few_vertices_list_them():
    assert {type(C) for C, _ in WITH_VERTICES} == {L1Ball, Simplex, VertexHull}


@over(ALL_DOMAINS)
def test_start_is_a_point_of_the_set(C, d):
    start = C.start(d)
    assert start.shape == np.zeros(d).shape
    assert start.dtype == np.float64
    assert C.contains(start)


@over(WITH_LMO)
def test_lmo_is_feasible_and_minimal(C, d):
    candidates = points(C, d)
    for g in directions(d, 20):
        s = C.lmo(g)
        assert s.shape == g.shape
        assert C.contains(s)
        assert (g * s).sum() <= min((g * c).sum() for c in candidates) + 1e-9
    assert C.contains(C.lmo(np.zeros(d)))


@over(WITH_PROJECTION)
def test_projection_is_feasible_idempotent_and_optimal(C, d):
    rng = np.random.default_rng(3)
    for scale in (0.1, 1.0, 10.0, 100.0):
        for _ in range(10):
            v = rng.normal(size=d) * scale
            p = C.project(v)
            assert p.shape == v.shape
            assert C.contains(p)
            assert_allclose(C.project(p), p, atol=1e-9)
            # p is nearest exactly if no direction of C leads closer to v: a Frank-Wolfe gap of zero.
            assert ((v - p) * (C.lmo(p - v) - p)).sum() <= 1e-9 * max(1.0, scale)


@over(WITH_PROJECTION)
def test_projection_leaves_points_of_the_set_alone_and_does_not_share_memory(C, d):
    weights = np.random.default_rng(4).dirichlet(np.ones(8), size=10)
    corners = np.array([C.lmo(g) for g in directions(d, 8)[-8:]])
    for w in weights:
        s = np.tensordot(w, corners, 1)
        p = C.project(s)
        assert_allclose(p, s, atol=1e-9)
        assert not np.shares_memory(p, s)


@over(WITH_PROJECTION)
def test_contains_nothing_outside(C, d):
    rng = np.random.default_rng(5)
    for _ in range(20):
        v = rng.normal(size=d) * 5
        distance = norm(v - C.project(v), 2)
        if distance > 1e-6:
            assert not C.contains(v)
    assert not C.contains(np.full(d, 1e3))
    assert not C.contains(np.full(d, -1e3))


@over(WITH_VERTICES)
def test_vertices(C, d):
    vertices = [C.vertex(i, d) for i in range(C.n_vertices(d))]
    assert all(C.contains(v) and v.shape == np.zeros(d).shape for v in vertices)
    for g in directions(d, 5)[-5:]:
        assert_allclose(C.vertex_scores(g), [(g * v).sum() for v in vertices], rtol=1e-12, atol=1e-12)
        assert_array_equal(C.lmo(g), vertices[int(C.vertex_scores(g).argmin())])


def test_order_of_the_cross_polytope_vertices():
    C = L1Ball(2.0)
    assert_array_equal(C.vertex(1, 3), [0, 2, 0])
    assert_array_equal(C.vertex(4, 3), [0, -2, 0])
    assert_array_equal(C.vertex(3, (2, 3)), [[0, 0, 0], [2, 0, 0]])


@over([*WITH_LMO, (L1Ball(2.0), 500), (L2Ball(1.0), 500), (LinfBall(1.0), 500), (Simplex(), 500)])
def test_gaussian_width_bounds_monte_carlo_and_is_of_its_size(C, d):
    rng = np.random.default_rng(6)
    draws = []
    for _ in range(2000):
        g = rng.normal(size=d)
        draws.append(-(g * C.lmo(g)).sum())
    mean, error = np.mean(draws), np.std(draws) / math.sqrt(len(draws))
    assert mean - 4 * error <= C.gaussian_width(d) <= 3 * mean


def test_width_of_a_point_is_zero():
    assert VertexHull([[1.0, 2.0]]).gaussian_width(2) == 0
    assert Simplex().gaussian_width(1) == 0


def test_width_of_many_points_near_one_another_is_that_of_the_spread():
    rng = np.random.default_rng(7)
    crowd = VertexHull(np.vstack([1e-3 * rng.normal(size=(3000, 3)), [[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]]]))
    assert math.sqrt(2 / math.pi) <= crowd.gaussian_width(3) <= 2.5 * math.sqrt(2 / math.pi)


@over(WITH_LMO)
@pytest.mark.parametrize("ord", ORDERS)
def test_norm_and_diameter_hold_and_are_attained(C, d, ord):
    longest = widest = 0.0
    for w in directions(d, 100):
        u, a, b = C.lmo(-w), C.lmo(-w), C.lmo(w)
        for _ in range(5):  # each step can only lengthen u, and a - b
            u = C.lmo(-steepest(u, ord))
            climb = steepest(a - b, ord)
            a, b = C.lmo(-climb), C.lmo(climb)
        longest, widest = max(longest, norm(u, ord)), max(widest, norm(a - b, ord))
    assert longest == pytest.approx(C.norm(ord, d), rel=1e-9)
    assert widest == pytest.approx(C.diameter(ord, d), rel=1e-9)


def test_diameter_of_a_point_is_zero():
    assert Simplex().diameter(2, 1) == 0
    assert VertexHull([[1.0, 2.0]]).diameter(2, 2) == 0


@over(ALL_DOMAINS)
def test_gauge_is_homogeneous_and_at_most_one_on_the_set(C, d):
    for theta in points(C, d, count=20):
        gauge = C.minkowski(theta)
        assert gauge <= 1 + 1e-9
        for t in (0.3, 1.0, 7.0, 1e4):
            assert C.minkowski(t * theta) == pytest.approx(t * gauge, rel=1e-9)
    assert C.minkowski(np.zeros(d)) == 0


@over(AROUND_ZERO)
def test_gauge_is_one_on_the_boundary(C, d):
    for g in directions(d, 20):
        assert C.minkowski(C.lmo(g)) == pytest.approx(1.0, abs=1e-9)
        edge = g / C.minkowski(g)
        assert C.contains(edge)
        assert not C.contains(1.0001 * edge)


@over(OFF_ZERO)
def test_gauge_finds_the_least_multiple_or_says_there_is_none(C, d):
    reached = 0
    for theta in [*points(C, d, count=10), *directions(d, 40)]:
        gauge = C.minkowski(theta)
        if gauge == math.inf:
            assert not any(C.contains(theta / t) for t in np.geomspace(0.1, 10, 25))
        elif gauge > 0:
            reached += 1
            assert C.contains(theta / gauge)
            assert not C.contains(theta / (0.999 * gauge))
    assert reached
    assert C.minkowski(np.full(d, -1.0)) == math.inf


@pytest.mark.parametrize(("C", "d"), [(L1Ball(2.0), 5), (L1Ball(2.0), (3, 2)), (Simplex(3.0), 4)])
def test_hull_of_a_polytopes_vertices_is_that_polytope(C, d):
    hull = VertexHull([C.vertex(i, d).ravel() for i in range(C.n_vertices(d))])
    rng = np.random.default_rng(8)
    for _ in range(20):
        v = rng.normal(size=d) * 3
        assert_allclose(hull.project(v), C.project(v), atol=1e-9)
        assert hull.minkowski(v) == pytest.approx(C.minkowski(v), rel=1e-9)
        assert_allclose(hull.minkowski(np.abs(v)), C.minkowski(np.abs(v)), rtol=1e-9)
    for ord in ORDERS:
        assert hull.norm(ord, d) == pytest.approx(C.norm(ord, d))
        assert hull.diameter(ord, d) == pytest.approx(C.diameter(ord, d))


@pytest.mark.parametrize(
    "C", [L2Ball(1.5), L1Ball(1.5), LinfBall(0.4), Box(-1.0, 0.5), Simplex(2.0)], ids=repr
)
def test_a_matrix_is_its_entries(C):
    rng = np.random.default_rng(9)
    for _ in range(5):
        matrix = rng.normal(size=(4, 3))
        assert_array_equal(C.project(matrix).ravel(), C.project(matrix.ravel()))
        assert_array_equal(C.lmo(matrix).ravel(), C.lmo(matrix.ravel()))
        assert C.minkowski(matrix) == C.minkowski(matrix.ravel())
    assert C.norm(1.5, (4, 3)) == C.norm(1.5, 12)
    assert C.gaussian_width((4, 3)) == C.gaussian_width(12)


@pytest.mark.parametrize("C", [L1Ball(1.0), Simplex(1.0)], ids=repr)
def test_projection_of_huge_entries(C):
    assert_array_equal(C.project(np.array([1e20, 3.0, 1e19])), [1.0, 0.0, 0.0])


def test_equal_sets_compare_and_hash_alike():
    corners = [[0.0, 1.0], [1.0, 0.0], [-1.0, -1.0]]
    alike = [
        (VertexHull(corners), VertexHull(np.array(corners))),
        (VertexHull([[0.0, 1.0]]), VertexHull([[-0.0, 1.0]])),
        (Box([0, 1], 2), Box(np.array([0.0, 1.0]), 2.0)),
        *((ball(2), ball(2.0)) for ball in (L2Ball, L1Ball, LinfBall, Simplex)),
    ]
    for a, b in alike:
        assert a == b
        assert hash(a) == hash(b)
    assert VertexHull(corners) != VertexHull(corners[:2])
    assert VertexHull(corners) != L1Ball(1.0)
    assert Box(0, 1) != Box(0, 2)


def test_a_hull_keeps_its_own_vertices():
    given = np.eye(3)
    hull = VertexHull(given)
    given[0, 0] = 9.0
    hull.vertex(0, 3)[0] = 9.0
    assert hull == VertexHull(np.eye(3))
    with pytest.raises(ValueError, match="read-only"):
        hull.vertices[0, 0] = 9.0


@pytest.mark.parametrize("ball", [L2Ball, L1Ball, LinfBall, Simplex])
@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan])
def test_radius_must_be_positive_and_finite(ball, bad):
    with pytest.raises(ValueError, match=rf"{ball.__name__} needs a finite radius > 0; got radius="):
        ball(bad)


@pytest.mark.parametrize(
    ("low", "high", "message"),
    [
        (1.0, 1.0, "low < high in every entry"),
        ([0.0, 3.0], [1.0, 2.0], "low < high in every entry"),
        ([], [], "low < high in every entry"),
        (math.nan, 1.0, "low finite"),
        (0.0, math.inf, "high finite"),
        ([[0.0]], 1.0, "flat sequence"),
        ([0.0, 0.0], [1.0, 1.0, 1.0], "as many low as high bounds; got 2 and 3"),
    ],
)
def test_box_needs_ordered_finite_bounds(low, high, message):
    with pytest.raises(ValueError, match=message):
        Box(low, high)


@pytest.mark.parametrize("bad", [[], [[]], [1.0, 2.0], np.zeros((0, 3))])
def test_hull_needs_a_table_of_vertices(bad):
    with pytest.raises(ValueError, match=r"non-empty array of shape \(k, d\); got shape"):
        VertexHull(bad)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_hull_needs_finite_vertices(bad):
    with pytest.raises(ValueError, match="finite vertices"):
        VertexHull([[0.0, bad]])


def test_sets_that_list_entries_refuse_another_number_of_them():
    with pytest.raises(ValueError, match="Box has 2 bounds low; the parameter has 3 entries"):
        Box([0.0, 0.0], 1.0).project(np.zeros(3))
    with pytest.raises(ValueError, match="vertices with 2 entries; the parameter has 3"):
        VertexHull([[0.0, 1.0]]).lmo(np.zeros(3))
