"""Minimisers refuse sets and regularisers that nothing vouches for, and allow for inexact searches."""

import itertools
import math

import numpy as np
import pytest

import dpcvx.noise.gaussian
from adversary import records, stored
from dpcvx.domains import Box, L2Ball, NuclearBall, SubmodularBall, Transformed, VertexHull
from dpcvx.domains.regularizers import L1, SubmodularNorm
from dpcvx.domains.set_functions import (
    Cardinality,
    ConcaveOfCardinality,
    DirectSum,
    FromCallable,
    GroupCover,
    Interval,
    prox,
    tree_cover,
)
from dpcvx.errors import Incompatible
from dpcvx.losses import Huber, Logistic
from dpcvx.mechanisms import NoisyMinimiser, PerturbedMinimiser
from dpcvx.mechanisms.minimise import RidgeFacts
from dpcvx.noise import SeededGenerator
from dpcvx.problem import Bounds, Problem
from dpcvx.vouched import VOUCHED

D, N = 5, 20
BOUNDS = Bounds(1.0, 1.0)


@pytest.fixture
def silent(monkeypatch):
    monkeypatch.setattr(
        dpcvx.noise.gaussian, "lattice_gaussian", lambda scale, size, rng: np.zeros(size, dtype=np.int64)
    )


# -- a linear term is as long as it looks


@pytest.mark.parametrize("term", [np.float64(0.5), np.full(1, 0.5), np.full((D, 1), 0.1)], ids=np.shape)
def test_a_linear_term_of_another_shape_is_refused(term):
    """Broadcast, 0.5 would be a term of norm 0.5 sqrt(d), above the bound that reach and rounding rest on."""
    problem = Problem(Logistic(), L2Ball(2.0), bounds=BOUNDS, d=D)
    question = NoisyMinimiser(problem, N, 1.0, 2.0, linear=0.5)
    data = stored(np.ones((N, D)), np.ones(N), BOUNDS, "dense")
    with pytest.raises(ValueError, match="has shape"):
        question(term, data=data, rng=SeededGenerator(0))


# -- sets and regularizers whose convexity or prox nobody vouches for


class HardThreshold(L1):
    """Not convex: the price of a coordinate, whatever its size."""

    def value(self, theta):
        return self.weight * np.count_nonzero(theta)

    def prox(self, v, step):
        return np.where(v * v > 2 * step * self.weight, v, 0.0)


class Understated(L2Ball):
    """Says it is smaller than it is."""

    def norm(self, ord, d):
        return super().norm(ord, d) / 10


class Sloppy(L2Ball):
    """Stops short of the nearest point."""

    def project(self, v):
        return 0.99 * super().project(v)


def widest_jump(problem, ridge):
    """Largest move of the minimiser over its sensitivity, as one label after the other is turned."""
    n, X = 1001, np.ones((1001, 1))
    question = NoisyMinimiser(problem, n, 3.0, ridge)
    found = [
        question(data=stored(X, np.where(np.arange(n) < k, 1.0, -1.0), problem.bounds, "dense"), rng=None)
        for k in range(568, 578)
    ]
    return max(np.linalg.norm(b - a) for a, b in itertools.pairwise(found)) / question.sensitivity


def test_a_regularizer_that_is_not_convex_would_let_the_minimiser_jump(silent, monkeypatch):
    problems = [
        Problem(Logistic(), bounds=Bounds(1.0), d=1, l2=0.01, regularizer=kind(0.01))
        for kind in (L1, HardThreshold)
    ]
    assert widest_jump(problems[0], 10.01) <= 1
    with pytest.raises(Incompatible, match="nothing enforces"):
        widest_jump(problems[1], 10.01)
    monkeypatch.setitem(VOUCHED, HardThreshold, VOUCHED[L1])
    assert widest_jump(problems[1], 10.01) > 1  # what the refusal is for


def square(mask):
    return float(mask.sum()) ** 2


CHAIN = [[0, 1], [1, 2], [2, 3], [3, 4]]
OVERLAP, UNEVEN = GroupCover(CHAIN), GroupCover(CHAIN, [1.0, 1.0, 1.0, 1e6])
UNKNOWN = [
    {"domain": Understated(2.0)},
    {"domain": Sloppy(2.0)},
    {"domain": Transformed(Sloppy(2.0), 2.0)},
    {"domain": SubmodularBall(UNEVEN, 1.0)},
    {"regularizer": HardThreshold(0.1)},
    {"regularizer": SubmodularNorm(FromCallable(square, D), 0.1)},
    {"regularizer": SubmodularNorm(UNEVEN, 0.1)},
    {"regularizer": SubmodularNorm(DirectSum([Cardinality(), FromCallable(square, 3)], [2, 3]), 0.1)},
]
KNOWN = [
    {"domain": SubmodularBall(OVERLAP, 1.0)},
    {"regularizer": SubmodularNorm(OVERLAP, 0.1)},
    {"domain": Transformed(NuclearBall(1.0), 2.0)},
    {"domain": VertexHull(np.vstack([np.eye(D), -np.eye(D)]))},
    {"regularizer": SubmodularNorm(tree_cover([-1, 0, 0, 1, 1]), 0.1)},
    {
        "regularizer": SubmodularNorm(
            DirectSum([Interval(3, 2.0), ConcaveOfCardinality(np.sqrt)], [3, 2]), 0.1
        )
    },
]


@pytest.mark.parametrize("where", UNKNOWN, ids=lambda where: type(*where.values()).__name__)
def test_minimisers_refuse_what_nothing_enforces(where):
    problem = Problem(Logistic(), bounds=BOUNDS, d=D, l2=0.1, **where)
    for make in (
        lambda: NoisyMinimiser(problem, N, 1.0, 2.0),
        lambda: PerturbedMinimiser(problem, N, 1.0, 2.0, 100.0),
    ):
        with pytest.raises(Incompatible, match="nothing enforces"):
            make()


@pytest.mark.parametrize("where", KNOWN, ids=lambda where: type(*where.values()).__name__)
def test_minimisers_serve_what_is_known(where):
    problem = Problem(Logistic(), bounds=BOUNDS, d=D, l2=0.1, **where)
    data = stored(*records(problem.loss, (N, D), 1, np.random.default_rng(0)), BOUNDS, "dense")
    assert NoisyMinimiser(problem, N, 1.0, 2.0)(data=data, rng=SeededGenerator(0)).shape == (D,)


def test_a_search_for_the_prox_that_ends_too_early_is_refused_or_allowed_for():
    """The same search on nested groups, whose prox is known, is off by 4e-7 with weights this uneven."""
    nested = GroupCover([[2], [0, 1, 3], [0], [1], [2], [3], [4]], [1, 1, 1e9, 1e9, 1, 1, 1])
    found = prox(FromCallable(nested, 5), np.ones(5), 1.2e-6)
    assert np.linalg.norm(found - prox(nested, np.ones(5), 1.2e-6)) > 1e-7
    plain = Problem(Huber(0.5), bounds=BOUNDS, d=D, l2=0.1, regularizer=L1(0.1))
    overlapping = Problem(Huber(0.5), bounds=BOUNDS, d=D, l2=0.1, regularizer=SubmodularNorm(OVERLAP, 0.1))
    M, reach = N + 2.0, RidgeFacts(plain, N, N, 2.0).reach
    assert RidgeFacts(plain, N, N, 2.0).rounding < 1e-10
    assert RidgeFacts(overlapping, N, N, 2.0).rounding >= 4 * M * 1e-6 * 2 * reach


# -- searches that may end early


def corners(d):
    return np.array(list(itertools.product([-1.0, 1.0], repeat=d)))


def test_a_hull_is_allowed_what_its_search_may_be_off_by():
    box = Problem(Huber(0.5), Box(-1.0, 1.0), bounds=BOUNDS, d=3)
    hull = Problem(Huber(0.5), VertexHull(corners(3)), bounds=BOUNDS, d=3)
    moved = Problem(Huber(0.5), Transformed(VertexHull(corners(3)), 1.0), bounds=BOUNDS, d=3)
    M, reach = N + 1.0, math.sqrt(3)
    assert RidgeFacts(box, N, N, 1.0).rounding < 1e-10
    for problem in (hull, moved):
        assert RidgeFacts(problem, N, N, 1.0).rounding >= 4 * M * 1e-7 * 2 * reach
