"""Every constraint set keeps the promises of the Domain protocol and of the abilities it has."""

import itertools
import math
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dpcvx.domains import (
    Box,
    Domain,
    GroupBall,
    HasCoordinateVertices,
    HasEuclideanRadius,
    HasL1Radius,
    HasLMO,
    HasMirrorMap,
    HasProjection,
    HasSupport,
    HasVertices,
    InterpolationBall,
    L1Ball,
    L2Ball,
    LinfBall,
    NuclearBall,
    Simplex,
    Transformed,
    VertexHull,
    gaussian_width,
)
from zoo import ALL_DOMAINS, AROUND_ZERO, OFF_ZERO, one_of_each

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
    """Axes, then equal entries, then signs, then Gaussian directions."""
    size = int(np.prod(d))
    axes = np.vstack([np.eye(size), -np.eye(size), np.tri(size)])
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
    kinds = {type(getattr(C, "domain", C)) for C, _ in WITH_VERTICES}
    assert kinds == {L1Ball, Simplex, VertexHull}


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
        if isinstance(C, HasCoordinateVertices):
            j, value = C.coordinate(1, d)
            assert np.flatnonzero(vertices[1]).tolist() == [j]
            assert vertices[1].flat[j] == value


def test_order_of_the_cross_polytope_vertices():
    C = L1Ball(2.0)
    assert_array_equal(C.vertex(1, 3), [0, 2, 0])
    assert_array_equal(C.vertex(4, 3), [0, -2, 0])
    assert_array_equal(C.vertex(3, (2, 3)), [[0, 0, 0], [2, 0, 0]])


@over(
    [
        *WITH_LMO,
        *((C, 500) for C in (L1Ball(2.0), L2Ball(1.0), LinfBall(1.0), Simplex(), GroupBall(20, 1.0))),
        *((InterpolationBall(alpha, 1.0), 500) for alpha in (0.02, 0.5, 0.9, 0.99)),
        (NuclearBall(1.0), (20, 10)),
    ]
)
def test_gaussian_width_bounds_monte_carlo_and_is_of_its_size(C, d):
    rng = np.random.default_rng(6)
    draws = []
    for _ in range(1000):
        g = rng.normal(size=d)
        draws.append(-(g * (C.lmo(g) - C.start(d))).sum())
    mean, error = np.mean(draws), np.std(draws) / math.sqrt(len(draws))
    assert mean - 4 * error <= C.gaussian_width(d) <= 3 * mean


def test_width_of_a_point_is_zero():
    assert VertexHull([[1.0, 2.0]]).gaussian_width(2) == 0
    assert Simplex().gaussian_width(1) == 0


def test_width_of_many_points_near_one_another_is_that_of_the_spread():
    rng = np.random.default_rng(7)
    crowd = VertexHull(np.vstack([1e-3 * rng.normal(size=(3000, 3)), [[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]]]))
    assert math.sqrt(2 / math.pi) <= crowd.gaussian_width(3) <= 2.5 * math.sqrt(2 / math.pi)


@pytest.mark.parametrize(("C", "d"), one_of_each(WITH_LMO), ids=lambda part: type(part).__name__)
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
    if isinstance(C, Transformed):  # whose norm is a bound
        assert longest * (1 - 1e-9) <= C.norm(ord, d) <= 2 * longest
    else:
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
    "C",
    [
        *(L2Ball(1.5), L1Ball(1.5), LinfBall(0.4), Box(-1.0, 0.5), Simplex(2.0)),
        *(GroupBall(3, 1.5), InterpolationBall(0.4, 1.5), Transformed(L1Ball(1.0), 2.0, 0.3)),
    ],
    ids=repr,
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


@pytest.mark.parametrize("ball", [L2Ball, L1Ball, LinfBall, Simplex, NuclearBall])
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


def test_groups_may_be_sizes_indices_or_labels():
    alike = [
        GroupBall([2, 1, 2], 1.0),
        GroupBall([[1, 0], [2], [4, 3]], 1.0),
        GroupBall.of_labels("aabcc", 1.0),
        GroupBall(np.array([2, 1, 2]), 1.0),
    ]
    v = np.array([3.0, 4.0, -2.0, 0.0, 5.0])
    for C in alike:
        assert alike[0] == C
        assert hash(C) == hash(alike[0])
        assert C.minkowski(v) == pytest.approx(5 + 2 + 5)
    assert GroupBall(2, 1.0).minkowski(v) == pytest.approx(5 + 2 + 5)


def test_groups_of_rows_hold_all_outputs():
    C, v = GroupBall.of_labels([0, 1, 0], 2.0), np.arange(1.0, 7).reshape(3, 2)
    assert C.minkowski(v) == pytest.approx((math.sqrt(1 + 4 + 25 + 36) + 5) / 2)
    assert C.norm(1, (3, 2)) == C.norm(1, 6) == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (0, "at least one entry"),
        ([], "at least one entry"),
        ([2, 0], "at least one entry"),
        ([[0, 1], []], "at least one entry"),
        ([[0, 1], [1, 2]], "no overlap, no gap"),
        ([[0], [2]], "no overlap, no gap"),
    ],
)
def test_groups_must_share_out_the_coefficients(groups, message):
    with pytest.raises(ValueError, match=message):
        GroupBall(groups, 1.0)


def test_groups_must_fit_the_parameter():
    with pytest.raises(ValueError, match="groups of 3 coefficients in all; the parameter has 4 entries"):
        GroupBall([2, 1], 1.0).project(np.zeros(4))


@pytest.mark.parametrize("bad", [-0.1, 1.1, math.nan])
def test_alpha_is_a_share(bad):
    with pytest.raises(ValueError, match=r"alpha in \[0, 1\]; got alpha="):
        InterpolationBall(bad, 1.0)


@pytest.mark.parametrize(("alpha", "ball"), [(0.0, L1Ball(1.5)), (1.0, L2Ball(1.5))])
def test_interpolation_ends_at_the_l1_and_the_l2_ball(alpha, ball):
    C, rng = InterpolationBall(alpha, 1.5), np.random.default_rng(10)
    for _ in range(10):
        v = 2 * rng.normal(size=6)
        assert_allclose(C.project(v), ball.project(v), atol=1e-9)
        assert_allclose(C.lmo(v), ball.lmo(v), atol=1e-9)
        assert C.minkowski(v) == pytest.approx(ball.minkowski(v))
    assert C.norm(1.5, 6) == pytest.approx(ball.norm(1.5, 6))
    assert C.gaussian_width(50) == pytest.approx(ball.gaussian_width(50))


def test_interpolation_norm_is_that_of_equal_entries():
    """No vector with two levels is longer: checked where the number of entries that is best changes."""
    for alpha in (0.05, 0.5, 0.9, 0.97):
        C = InterpolationBall(alpha, 1.0)
        for ord in (1.0, 1.2, 1.5, 1.8):
            for j in range(8):
                for x in np.linspace(0.0, 1.0, 30):
                    v = np.array([1.0] * j + [x] * (8 - j))
                    if v.any():
                        assert norm(v, ord) / C.minkowski(v) <= C.norm(ord, 8) * (1 + 1e-12)


def test_nuclear_ball_of_a_vector_is_the_l2_ball_and_of_a_diagonal_the_l1_ball():
    C, rng = NuclearBall(1.5), np.random.default_rng(11)
    for _ in range(10):
        v = rng.normal(size=4)
        assert_allclose(C.project(v), L2Ball(1.5).project(v), atol=1e-12)
        assert_allclose(C.project(np.diag(v)), np.diag(L1Ball(1.5).project(v)), atol=1e-12)
        assert_allclose(C.lmo(np.diag(v)), np.diag(L1Ball(1.5).lmo(v)), atol=1e-12)
    assert C.gaussian_width(4) == L2Ball(1.5).gaussian_width(4)
    with pytest.raises(ValueError, match="a vector or a matrix; got shape"):
        C.project(np.zeros((2, 2, 2)))


class Bare:
    """A set that can do nothing beyond the Domain protocol."""

    def __init__(self, ball=L2Ball(1.0)):  # noqa: B008
        self._ball = ball

    def __getattr__(self, name):
        if name in ("project", "lmo", "mirror_map"):
            raise AttributeError(name)
        return getattr(self._ball, name)


def test_a_transformed_set_has_the_abilities_of_the_other_and_no_more():
    abilities = (HasProjection, HasLMO, HasVertices, HasCoordinateVertices, HasMirrorMap)

    def of(C):
        return [isinstance(C, ability) for ability in abilities]

    assert of(Transformed(L1Ball(1.0), 2.0)) == [True, True, True, True, True]
    assert of(Transformed(L1Ball(1.0), 2.0, 1.0)) == [True, True, True, False, True]
    assert of(Transformed(L2Ball(1.0))) == [True, True, False, False, True]
    bare = Transformed(Bare(), 2.0, [0.5, 0.0])
    assert of(bare) == [False] * 5
    assert isinstance(bare, Domain)
    assert bare.minkowski(np.array([2.5, 0.0])) == pytest.approx(1.0)
    assert bare.contains(np.array([2.5, 0.0]))
    with pytest.raises(TypeError, match="contains 0 or has HasProjection; Bare does not"):
        Transformed(Bare(Simplex()), 1.0, 1.0).minkowski(np.ones(2))


def test_a_transformed_set_is_a_value():
    C = Transformed(L1Ball(1.0), 2.0, np.array([1.0, 0.0]))
    for copy in (pickle.loads(pickle.dumps(C)), Transformed(L1Ball(1.0), 2.0, [1.0, 0.0])):
        assert copy == C
        assert hash(copy) == hash(C)
        assert_array_equal(copy.lmo(np.array([1.0, -3.0])), [1.0, 2.0])
    assert Transformed(L1Ball(1.0), 2.0) != C


def test_a_scaled_ball_is_the_larger_ball():
    C, same, rng = Transformed(L1Ball(1.0), 3.0), L1Ball(3.0), np.random.default_rng(12)
    v = 4 * rng.normal(size=5)
    assert_allclose(C.project(v), same.project(v), atol=1e-12)
    assert C.minkowski(v) == pytest.approx(same.minkowski(v))
    assert C.norm(1.5, 5) == same.norm(1.5, 5)
    assert C.gaussian_width(5) == pytest.approx(same.gaussian_width(5))


@pytest.mark.parametrize(
    ("scale", "shift", "message"),
    [
        (0.0, 0.0, "finite scale > 0"),
        (math.inf, 0.0, "finite scale > 0"),
        (1.0, math.nan, "finite shift"),
        (1.0, [[1.0]], "flat sequence"),
    ],
)
def test_a_transformation_needs_finite_numbers(scale, shift, message):
    with pytest.raises(ValueError, match=message):
        Transformed(L2Ball(1.0), scale, shift)


def test_a_shift_must_fit_the_parameter():
    with pytest.raises(ValueError, match="a shift of 2 entries; the parameter has 3"):
        Transformed(L2Ball(1.0), 1.0, [0.0, 1.0]).start(3)


@pytest.mark.parametrize(
    ("C", "d", "truth"),
    [
        (L2Ball(2.0), 9, 2 * math.sqrt(2) * math.gamma(5) / math.gamma(4.5)),
        (Box([-1.0, 0.0], [1.0, 3.0]), 2, 5 / math.sqrt(2 * math.pi)),
        (Simplex(3.0), 2, 3 / math.sqrt(math.pi)),
        (Transformed(LinfBall(1.0), 2.0, 7.0), (2, 2), 8 * math.sqrt(2 / math.pi)),
    ],
    ids=repr,
)
def test_simulated_width_holds_the_truth_in_its_interval(C, d, truth):
    for confidence in (0.5, 0.95):
        width = gaussian_width(C, d, samples=2000, rng=np.random.default_rng(13), confidence=confidence)
        assert width.low < truth < width.high
        assert width.mean == pytest.approx(truth, rel=0.05)
    # A mean of r-Lipschitz functions, r between half the diameter and the diameter; r sqrt(2 log(40) / 2000).
    assert 0.0607 < (width.high - width.low) / C.diameter(2, d) < 0.1215


def test_simulated_width_refuses_what_it_cannot_do():
    rng = np.random.default_rng(14)
    with pytest.raises(ValueError, match="samples must be at least 1"):
        gaussian_width(L2Ball(1.0), 2, samples=0, rng=rng)
    with pytest.raises(ValueError, match=r"confidence must be in \(0, 1\)"):
        gaussian_width(L2Ball(1.0), 2, samples=10, rng=rng, confidence=1.0)
    with pytest.raises(TypeError, match="needs a domain with HasLMO; Bare has none"):
        gaussian_width(Bare(), 2, samples=10, rng=rng)


def corners(d):
    return np.array(list(itertools.product([-1.0, 1.0], repeat=d)))


@pytest.mark.parametrize(
    "v", [[0.5, 2.0, 0.5, 0.0], [0.0, -1000.0, -1.0, -0.5], [-2.0, 0.0, -1.0, 0.0, -1e-9]], ids=str
)
def test_the_nearest_point_of_a_cube_given_by_its_corners_is_the_clipped_one(v):
    """Many corners tie here; a solver of least squares that trips over them is off by the size of the set."""
    v = np.array(v)
    found = VertexHull(corners(v.size)).project(v)
    np.testing.assert_allclose(found, np.clip(v, -1, 1), atol=1e-9)


def test_nearest_points_of_hulls_with_ties_are_as_accurate_as_minimisers_assume():
    rng, worst = np.random.default_rng(0), 0.0
    for trial in range(400):
        d = 3 + trial % 4
        scale = 10.0 ** rng.integers(-3, 3)
        points = scale * np.repeat(corners(d), 1 + trial % 2, axis=0)
        v = scale * rng.choice([0.0, 0.25, 0.5, 1.0, 1.0 + 1e-6, 1.1, 2.0, 100.0], d) * rng.choice([-1, 1], d)
        off = np.linalg.norm(VertexHull(points).project(v) - np.clip(v, -scale, scale))
        worst = max(worst, off / (np.linalg.norm(v) + scale * math.sqrt(d)))
    assert worst <= 1e-12


@over([(C, d) for C, d in ALL_DOMAINS if isinstance(C, HasSupport)])
def test_support_functions_are_the_largest_products(C, d):
    X = np.random.default_rng(4).normal(size=(5, int(np.prod(d))))
    largest = [-float((g * C.lmo(g)).sum()) for g in (-x.reshape(C.start(d).shape) for x in X)]
    assert_allclose(C.support(X), np.array(largest), rtol=1e-12)


def test_only_euclidean_balls_are_round():
    assert {type(C) for C, _ in ALL_DOMAINS if isinstance(C, HasEuclideanRadius)} == {L2Ball}
    assert {type(C) for C, _ in ALL_DOMAINS if isinstance(C, HasL1Radius)} == {L1Ball}
    assert L2Ball(2.0).with_euclidean_radius(3.0) == L2Ball(3.0)
