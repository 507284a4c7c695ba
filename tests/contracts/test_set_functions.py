"""Every set function keeps its promises; norms, dual norms, proxes and sets built on it pass enumeration."""

import itertools
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dpcvx.domains.minimum_norm import shrink_by_minimum_norm
from dpcvx.domains.set_functions import (
    Cardinality,
    ConcaveOfCardinality,
    FromCallable,
    GroupCover,
    HasShrink,
    Interval,
    SetFunction,
    check_set_function,
    densest_subset,
    dual_norm,
    greedy,
    lovasz_extension,
    norm,
    prox,
    tree_cover,
)
from dpcvx.domains.submodular_ball import SubmodularBall, SubmodularPolyhedron
from zoo import ALL_SET_FUNCTIONS

over = pytest.mark.parametrize(("F", "d"), ALL_SET_FUNCTIONS, ids=lambda x: type(x).__name__)


def subsets(d):
    return [np.array(A) for k in range(1, d + 1) for A in itertools.combinations(range(d), k)]


def enumerated_dual(F, s, table):
    return max(np.abs(s)[A].sum() / value for A, value in table)


def table_of(F, d):
    return [(A, F(A)) for A in subsets(d)]


def vectors(d, count, seed=0):
    """Gaussian vectors of several sizes, some with equal entries and zeros."""
    rng = np.random.default_rng(seed)
    for i in range(count):
        v = rng.normal(size=d) * rng.exponential(3.0)
        yield np.round(v) if i % 4 == 3 else v


@over
def test_is_a_normalised_nondecreasing_submodular_function(F, d):
    assert isinstance(F, SetFunction)
    assert F.size in (None, d)
    assert F([]) == 0
    values = {frozenset(A.tolist()): F(A) for A in subsets(d)} | {frozenset(): 0.0}
    for (A, a), (B, b) in itertools.combinations(values.items(), 2):
        assert a + b >= values[A | B] + values[A & B] - 1e-12
        assert (a <= b + 1e-12) if A <= B else True
    assert min(values[frozenset({j})] for j in range(d)) > 0
    check_set_function(F, d, trials=50)


@over
def test_gains_are_differences_along_any_order_and_part_of_one(F, d):
    rng = np.random.default_rng(1)
    for length in (d, d, d // 2, 1, 0):
        order = rng.permutation(d)[:length]
        values = [F(order[:k]) for k in range(length + 1)]
        assert_allclose(F.marginal_gains(order), np.diff(values), atol=1e-12)


@over
def test_a_set_is_a_mask_or_indices_in_any_order(F, d):
    mask = np.arange(d) % 2 == 0
    assert F(mask) == pytest.approx(F(np.flatnonzero(mask)[::-1]), rel=1e-15)
    with pytest.raises(ValueError, match="distinct indices"):
        F([0, 0])
    with pytest.raises(ValueError, match="distinct indices"):
        F([-1])


@over
def test_extension_is_linear_in_each_order_and_equals_the_function_on_sets(F, d):
    for A, value in table_of(F, d):
        indicator = np.zeros(d)
        indicator[A] = 1.0
        assert lovasz_extension(F, indicator) == pytest.approx(value)
        assert lovasz_extension(F, 3.0 * indicator - 1.0) == pytest.approx(3 * value - F(range(d)))


@over
def test_greedy_point_is_in_the_base_polytope_and_gives_the_extension(F, d):
    table = table_of(F, d)
    for w in vectors(d, 12):
        s = greedy(F, w)
        assert s.sum() == pytest.approx(F(range(d)))
        assert all(s[A].sum() <= value + 1e-12 for A, value in table)
        assert w @ s == pytest.approx(lovasz_extension(F, w))


@over
def test_dual_norm_is_the_largest_density(F, d):
    table = table_of(F, d)
    for s in vectors(d, 30):
        assert dual_norm(F, s) == pytest.approx(enumerated_dual(F, s, table), rel=1e-12)
    assert dual_norm(F, np.zeros(d)) == 0
    best = densest_subset(F, np.ones(d))
    assert best.size / F(best) == pytest.approx(max(A.size / value for A, value in table), rel=1e-12)


@pytest.mark.timeout(10)
def test_dual_norm_of_what_is_not_a_number_ends():
    assert math.isnan(dual_norm(Cardinality(), np.array([1.0, math.nan])))


@over
@pytest.mark.parametrize("step", [1e-3, 0.3, 2.0])
def test_prox_is_optimal(F, d, step):
    """theta = v - s is the prox exactly if s is in step |P|(F) and <s, theta> = step Omega(theta)."""
    table = table_of(F, d)
    shrunk = 0
    for v in vectors(d, 20):
        theta = prox(F, v, step)
        s = v - theta
        assert enumerated_dual(F, s, table) <= step * (1 + 1e-10) + 1e-13
        assert s @ theta == pytest.approx(step * norm(F, theta), rel=1e-10, abs=1e-12)
        shrunk += np.abs(theta).sum() < np.abs(v).sum()
    assert shrunk
    assert_array_equal(prox(F, np.zeros(d), step), np.zeros(d))


@over
def test_short_ways_to_the_prox_agree_with_the_minimum_norm_point(F, d):
    if not isinstance(F, HasShrink):
        assert isinstance(F, FromCallable)
    for v in vectors(d, 20, seed=2):
        for step in (0.05, 0.4):
            assert_allclose(
                np.abs(prox(F, v, step)),
                shrink_by_minimum_norm(F.marginal_gains, np.abs(v), step),
                atol=1e-11,
            )


@over
def test_norm_ignores_signs_and_shapes(F, d):
    v = next(vectors(d, 1))
    assert norm(F, v) == norm(F, -np.abs(v))
    column = v.reshape(d, 1)
    assert norm(F, column) == norm(F, v)
    assert dual_norm(F, column) == dual_norm(F, v)
    assert_array_equal(prox(F, column, 0.2), prox(F, v, 0.2).reshape(d, 1))
    assert_array_equal(prox(F, -v, 0.2), -prox(F, v, 0.2))


LARGE = [
    Interval(120, 119.0),
    Interval(120, 400.0),
    GroupCover([range(i, min(i + 6, 120)) for i in range(0, 120, 4)]),
    FromCallable(lambda mask: math.sqrt(float(mask @ np.linspace(0.2, 3.0, 40))), 40),
]


@pytest.mark.parametrize("F", LARGE, ids=lambda F: type(F).__name__)
@pytest.mark.parametrize("share", [0.05, 0.5])
@pytest.mark.long
def test_prox_of_many_coordinates_is_optimal(F, share):
    """Too many sets to list: Omega* is that of another prox, and Hölder's inequality holds with equality."""
    v = np.random.default_rng(3).normal(size=F.size)
    step = share * dual_norm(F, v)
    theta = prox(F, v, step)
    assert norm(F, theta) > 0
    assert dual_norm(F, v - theta) == pytest.approx(step, rel=1e-9)
    assert (v - theta) @ theta == pytest.approx(step * norm(F, theta), rel=1e-9)
    assert_array_equal(prox(F, v, 1.0000001 * dual_norm(F, v)), np.zeros(F.size))


SETS = [(C(F, 1.5), d) for C in (SubmodularBall, SubmodularPolyhedron) for F, d in ALL_SET_FUNCTIONS]
over_sets = pytest.mark.parametrize(("C", "d"), SETS, ids=lambda x: type(x).__name__)


def gauge_and_support(C, d):
    """The gauge of C, and its support function, by listing sets or by sorting."""
    F = C.function
    table = table_of(F, d)
    by_sets, by_order = (lambda s: enumerated_dual(F, s, table)), (lambda s: norm(F, s))
    return (by_order, by_sets) if isinstance(C, SubmodularBall) else (by_sets, by_order)


@over_sets
def test_sets_have_the_gauge_the_corners_and_the_projection_of_their_norm(C, d):
    """The zoo holds sets of a few functions to the whole contract; here are all functions, by enumeration."""
    gauge, support = gauge_and_support(C, d)
    for v in vectors(d, 15, seed=4):
        assert C.minkowski(v) == pytest.approx(gauge(v) / 1.5, rel=1e-12)
        corner = C.lmo(v)
        assert gauge(corner) <= 1.5 * (1 + 1e-12)
        assert -(v * corner).sum() == pytest.approx(1.5 * support(v), rel=1e-12)
        p = C.project(v)
        assert gauge(p) <= 1.5 * (1 + 1e-12)
        # p is nearest exactly if v - p is in the cone of directions in which no point of C is beyond p.
        assert (v - p) @ p == pytest.approx(1.5 * support(v - p), rel=1e-9, abs=1e-10)
        assert gauge(v) > 1.5 or np.array_equal(p, v)


@pytest.mark.parametrize("F", [Cardinality(), LARGE[0], LARGE[2]], ids=lambda F: type(F).__name__)
def test_projection_onto_the_ball_takes_few_proxes(F, monkeypatch):
    calls = []
    monkeypatch.setattr("dpcvx.domains.submodular_ball.prox", lambda *args: calls.append(args) or prox(*args))
    v = np.random.default_rng(7).normal(size=120)
    C = SubmodularBall(F, 0.2 * norm(F, v))
    assert norm(F, C.project(v)) == pytest.approx(C.radius, rel=1e-12)
    assert len(calls) <= 10


@pytest.mark.long
@over_sets
def test_sets_know_bounds_on_their_norms_and_width(C, d):
    corners = [C.lmo(w) for w in np.random.default_rng(5).normal(size=(300, d))]
    corners += [
        C.lmo(np.array(w)) for w in itertools.product([-1.0, 0.01, 1.0], repeat=min(d, 4)) if len(w) == d
    ]
    for ord in (1, 1.5, 2, 3, math.inf):
        longest = max(np.linalg.norm(corner, ord) for corner in corners)
        assert longest * (1 - 1e-12) <= C.norm(ord, d) <= 1.6 * longest
        assert C.diameter(ord, d) == 2 * C.norm(ord, d)
    if isinstance(C, SubmodularBall):
        table = table_of(C.function, d)
        assert C.norm(1, d) == pytest.approx(1.5 * max(A.size / value for A, value in table))
        assert C.norm(math.inf, d) == pytest.approx(1.5 / min(value for _, value in table))
    else:
        assert C.norm(1, d) == pytest.approx(1.5 * C.function(range(d)))
        assert C.norm(math.inf, d) == pytest.approx(1.5 * max(C.function([j]) for j in range(d)))
    draws = [-(w @ C.lmo(w)) for w in np.random.default_rng(6).normal(size=(400, d))]
    mean, error = np.mean(draws), np.std(draws) / 20
    assert mean - 4 * error <= C.gaussian_width(d) <= 2 * mean


@pytest.mark.parametrize("C", [SubmodularBall, SubmodularPolyhedron])
def test_sets_refuse_bad_radii_and_other_sizes(C):
    with pytest.raises(ValueError, match=f"{C.__name__} needs a finite radius > 0"):
        C(Cardinality(), 0.0)
    for ask in ("lmo", "project", "minkowski"):
        with pytest.raises(ValueError, match="function of 5 coordinates; the parameter has 4"):
            getattr(C(Interval(5, 4.0), 1.0), ask)(np.ones(4))
    for F in (Interval(5, 4.0), ConcaveOfCardinality([1.0, 1.5])):
        with pytest.raises(ValueError, match="coordinates; the parameter has 4"):
            C(F, 1.0).norm(2, 4)
    with pytest.raises(ValueError, match="function of 5 coordinates; the parameter has 4"):
        C(Interval(5, 4.0), 1.0).gaussian_width(4)


def test_named_functions_are_what_they_say():
    assert Cardinality()([0, 4, 9]) == 3
    assert ConcaveOfCardinality(np.sqrt)([1, 2, 3, 8]) == pytest.approx(2.0)
    assert ConcaveOfCardinality([2.0, 3.0, 3.0])([0, 2]) == pytest.approx(3.0)
    assert GroupCover([[0, 1], [1, 2], [3]], [1.0, 10.0, 100.0])([1]) == 11.0
    assert Interval(8, 6.0)([5, 2]) == 4 + 6
    tree = tree_cover([-1, 0, 0, 1])  # 3 under 1 under 0, and 2 under 0
    assert tree([3]) == 3
    assert tree([2, 3]) == 4
    assert tree([0]) == 1
    assert tree_cover([-1, 0, 0, 1], [1.0, 2.0, 4.0, 8.0])([3]) == 11.0


def test_supports_follow_the_structure():
    v = np.array([0.1, 3.0, 0.2, 2.9, 0.1, 0.0, 0.0, 1.0])
    assert_array_equal(np.flatnonzero(prox(Interval(8, 7.0), v, 0.4)), [1, 2, 3])
    tree = tree_cover([-1, 0, 0, 1, 1, 2, 2, 3])
    support = set(np.flatnonzero(prox(tree, v, 0.3)).tolist())
    assert {0, 1, 3} <= support  # a node never comes without its ancestors
    assert not support & {4, 5, 6}


def test_equal_functions_compare_and_hash_alike():
    alike = [
        (GroupCover([[1, 0], [2]]), GroupCover([(0, 1), np.array([2])], [1, 1])),
        (ConcaveOfCardinality([1, 1.5]), ConcaveOfCardinality(np.array([1.0, 1.5]))),
        (Interval(4, 3), Interval(4, 3.0)),
        (Cardinality(), Cardinality()),
    ]
    for F, G in alike:
        assert F == G
        assert hash(F) == hash(G)
    assert GroupCover([[0], [1]]) != GroupCover([[0], [1]], [1.0, 2.0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ConcaveOfCardinality([1.0, 3.0]), "concave and non-decreasing"),
        (lambda: ConcaveOfCardinality([1.0, 0.5]), "concave and non-decreasing"),
        (lambda: ConcaveOfCardinality([0.0, 0.0]), r"g\(1\) > 0"),
        (lambda: ConcaveOfCardinality([1.0, math.nan]), "finite value"),
        (lambda: ConcaveOfCardinality(np.square)([0, 1]), "concave and non-decreasing"),
        (lambda: GroupCover([]), "at least one group"),
        (lambda: GroupCover([[0], []]), "none empty"),
        (lambda: GroupCover([[0, 2]]), r"\[1\] are in none"),
        (lambda: GroupCover([[0], [1]], [1.0]), "weight for each of 2 groups"),
        (lambda: GroupCover([[0]], [0.0]), "positive finite weight"),
        (lambda: GroupCover([[0, 0]]), "distinct indices"),
        (lambda: tree_cover([1, 0]), "no cycles"),
        (lambda: tree_cover([-1, 5]), r"parents in 0\.\.1"),
        (lambda: Interval(5, 2.0), "offset >= 3"),
        (lambda: Interval(0, 1.0), "size >= 1"),
        (lambda: FromCallable(lambda mask: 1.0, 3), "0 on the empty set.*boolean mask of the 3 coordinates"),
        (lambda: norm(Interval(5, 4.0), np.ones(6)), "function of 5 coordinates; the parameter has 6"),
        (lambda: prox(Interval(5, 4.0), np.ones(6), 1.0), "function of 5 coordinates; the parameter has 6"),
    ],
)
def test_bad_functions_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GroupCover([["age"], ["sex"]]), r"counted from 0.*\['age'\].*position of each column"),
        (lambda: GroupCover([[0], [1]])(["age"]), "position of each column"),
        (lambda: FromCallable(lambda s: len(s.members), 3), "members.*boolean mask of the 3 coordinates"),
        (lambda: FromCallable(lambda s: None, 3), r"boolean mask of the 3 coordinates.*mask\.sum"),
    ],
    ids=["cover", "call", "attribute", "nothing"],
)
def test_what_is_given_for_a_set_is_said(make, message):
    with pytest.raises(TypeError, match=message):
        make()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda mask: float(mask.sum()) ** 2, "Not submodular"),
        (lambda mask: float(mask.sum() * (6 - mask.sum())), "Not non-decreasing"),
        (lambda mask: float(mask[1:].any()), "positive value on every single coordinate"),
    ],
)
def test_check_finds_counterexamples(function, message):
    with pytest.raises(ValueError, match=message):
        check_set_function(FromCallable(function, 5), 5)
