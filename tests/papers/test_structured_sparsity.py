"""[KD19] §2: what submodular functions make of sparsity, in numbers and special cases."""

import itertools
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dpcvx.domains import L1Ball, LinfBall
from dpcvx.domains.set_functions import (
    Cardinality,
    ConcaveOfCardinality,
    FromCallable,
    GroupCover,
    dual_norm,
    greedy,
    lovasz_extension,
    norm,
    prox,
)
from dpcvx.domains.submodular_ball import SubmodularBall, SubmodularPolyhedron
from zoo import ALL_SET_FUNCTIONS

over = pytest.mark.parametrize(("F", "d"), ALL_SET_FUNCTIONS, ids=lambda x: type(x).__name__)
CAPPED = ConcaveOfCardinality(lambda k: np.minimum(k, 1.0))  # F(A) = min(|A|, 1)


def samples(d, count, seed):
    return np.random.default_rng(seed).normal(size=(count, d))


def test_cardinality_gives_the_l1_norm_and_its_polyhedron_is_the_cube():
    for v in samples(7, 20, 1):
        assert norm(Cardinality(), v) == pytest.approx(np.abs(v).sum())
        assert dual_norm(Cardinality(), v) == pytest.approx(np.abs(v).max())
        ball, cube = SubmodularBall(Cardinality(), 2.0), SubmodularPolyhedron(Cardinality(), 0.5)
        assert_allclose(ball.project(v), L1Ball(2.0).project(v), atol=1e-12)
        assert_allclose(ball.lmo(v), L1Ball(2.0).lmo(v))
        assert_allclose(cube.project(v), LinfBall(0.5).project(v), atol=1e-12)
        assert_allclose(cube.lmo(v), LinfBall(0.5).lmo(v))


def test_capped_cardinality_gives_the_linf_norm_and_its_polyhedron_is_the_cross_polytope():
    for v in samples(7, 20, 2):
        assert norm(CAPPED, v) == pytest.approx(np.abs(v).max())
        assert dual_norm(CAPPED, v) == pytest.approx(np.abs(v).sum())
        ball, cross = SubmodularBall(CAPPED, 0.5), SubmodularPolyhedron(CAPPED, 2.0)
        assert_allclose(ball.project(v), LinfBall(0.5).project(v), atol=1e-12)
        assert_allclose(cross.project(v), L1Ball(2.0).project(v), atol=1e-12)
        assert_allclose(cross.lmo(v), L1Ball(2.0).lmo(v))


def test_disjoint_groups_give_the_sum_of_their_linf_norms():
    F = GroupCover([[0, 3], [1, 2, 4]], [2.0, 0.5])
    for v in samples(5, 20, 3):
        a, b = np.abs(v[[0, 3]]), np.abs(v[[1, 2, 4]])
        assert norm(F, v) == pytest.approx(2 * a.max() + 0.5 * b.max())
        assert dual_norm(F, v) == pytest.approx(max(a.sum() / 2, b.sum() / 0.5))
        # Moreau: the prox of a group's linf norm leaves out the projection onto an l1 ball.
        theta = prox(F, v, 0.4)
        for group, weight in (([0, 3], 2.0), ([1, 2, 4], 0.5)):
            assert_allclose(theta[group], v[group] - L1Ball(0.4 * weight).project(v[group]), atol=1e-12)


def convexity_gap(f, points):
    """The largest f(midpoint) - mean of f over pairs: at most 0 if f is convex."""
    return max(f((u + v) / 2) - (f(u) + f(v)) / 2 for u, v in itertools.combinations(points, 2))


@over
def test_extension_of_a_submodular_function_is_convex(F, d):
    assert convexity_gap(lambda w: lovasz_extension(F, w), samples(d, 25, 4)) <= 1e-12


@pytest.mark.parametrize(
    "function",
    [lambda mask: float(mask.sum()) ** 2, lambda mask: float(mask.sum() + (mask[0] and mask[1]))],
    ids=["square", "reward for a pair"],
)
def test_extension_of_another_function_is_not_convex(function):
    """The converse: piecewise-linear interpolation exists for any F, but it is not convex."""
    F = FromCallable(function, 4)
    assert convexity_gap(lambda w: lovasz_extension(F, w), samples(4, 25, 4)) > 0.01


@over
def test_greedy_is_optimal_over_the_polyhedron(F, d):
    """Equation (5): Omega is the support function of |P|(F), whose corners come from orders and signs."""
    rng = np.random.default_rng(5)
    orders = list(itertools.permutations(range(d))) if d <= 5 else [rng.permutation(d) for _ in range(300)]
    corners = np.zeros((len(orders), d))
    for corner, order in zip(corners, orders, strict=True):
        corner[list(order)] = F.marginal_gains(np.array(order))
    for theta in samples(d, 10, 6):
        best = np.sign(theta) * greedy(F, np.abs(theta))
        assert theta @ best == pytest.approx(norm(F, theta))
        assert (corners @ np.abs(theta)).max() <= norm(F, theta) + 1e-12
        if d <= 5:
            assert (corners @ np.abs(theta)).max() == pytest.approx(norm(F, theta))
        assert_allclose(SubmodularPolyhedron(F, 1.0).lmo(theta), -best)


@over
def test_dual_norm_is_dual(F, d):
    """Hölder's inequality holds, and is attained from both sides."""
    for theta, s in zip(samples(d, 15, 7), samples(d, 15, 8), strict=True):
        assert theta @ s <= norm(F, theta) * dual_norm(F, s) * (1 + 1e-12)
        partner = -SubmodularBall(F, 1.0).lmo(s)
        assert norm(F, partner) == pytest.approx(1.0, rel=1e-12)
        assert partner @ s == pytest.approx(dual_norm(F, s), rel=1e-12)
        partner = -SubmodularPolyhedron(F, 1.0).lmo(theta)
        assert dual_norm(F, partner) == pytest.approx(1.0, rel=1e-12)
        assert partner @ theta == pytest.approx(norm(F, theta), rel=1e-12)


@over
def test_norm_is_the_tightest_convex_bound_of_the_price_of_the_support(F, d):
    """On the cube [-1, 1]^d Omega is below F(support), and equal to it on sign vectors."""
    rng = np.random.default_rng(9)
    for _ in range(30):
        theta = rng.uniform(-1, 1, size=d) * (rng.random(d) < 0.6)
        price = F(theta != 0)
        assert norm(F, theta) <= price + 1e-12
        assert norm(F, np.sign(theta)) == pytest.approx(price)


@pytest.mark.parametrize("p", [1, 10, 1000])
def test_widths_of_the_cube_and_the_cross_polytope(p):
    """The cube's width is p sqrt(2 / pi), so output perturbation with the l1 norm pays p, not sqrt(log p)."""
    cube = p * math.sqrt(2 / math.pi)
    assert SubmodularPolyhedron(Cardinality(), 1.0).gaussian_width(p) == pytest.approx(cube)
    assert SubmodularBall(CAPPED, 1.0).gaussian_width(p) == pytest.approx(cube)
    for cross in (SubmodularPolyhedron(CAPPED, 1.0), SubmodularBall(Cardinality(), 1.0)):
        assert cross.gaussian_width(p) <= L1Ball(1.0).gaussian_width(p)
        assert cross.gaussian_width(p) >= np.abs(samples(p, 400, 10)).max(axis=1).mean() * 0.95
