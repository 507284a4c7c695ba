"""A record's share of a sum is its own: it sees no other record and changes no other's share."""

import itertools

import numpy as np
import pytest

from adversary import records, stored
from dpcvx.accounting import Budget, Tight
from dpcvx.audit import record
from dpcvx.data import GradientSum
from dpcvx.data.lattice import RESIDUAL_BITS, ResidualBound, integer_bounds
from dpcvx.domains import L1Ball
from dpcvx.losses import Logistic, Squared
from dpcvx.noise import SeededGenerator
from dpcvx.problem import Bounds, Problem
from dpcvx.solvers import NoisyFrankWolfe
from zoo import ALL_LOSSES

N, D = 23, 5
BOUNDS = [Bounds(1.0, 1.0), Bounds(1.5), Bounds(0.25, 0.3)]
over_losses = pytest.mark.parametrize("loss", ALL_LOSSES, ids=repr)
over_storage = pytest.mark.parametrize("storage", ["dense", "csr"])


def bound(slope):
    return ResidualBound(int(slope * 2**RESIDUAL_BITS), int(0.8 * slope * 2**RESIDUAL_BITS))


@over_losses
@over_storage
def test_a_gradient_sum_is_the_sum_of_what_each_record_gives_alone(loss, storage):
    rng = np.random.default_rng(0)
    for bounds, outputs in itertools.product(BOUNDS, [3] if loss.joint else [1, 2]):
        X, y = records(loss, (N, D), outputs, rng)
        theta = rng.normal(size=(D, outputs) if outputs > 1 else D) * 10.0 ** rng.integers(-3, 3)
        together = stored(X, y, bounds, storage).sum(GradientSum(loss, theta, bound(0.7)))
        alone = [
            stored(X[i : i + 1], y[i : i + 1], bounds, storage).sum(GradientSum(loss, theta, bound(0.7)))
            for i in range(N)
        ]
        assert np.array_equal(together, sum(alone))
        assert together.any()
        _, k2 = integer_bounds(bounds, D)
        assert all(int((share.astype(object) ** 2).sum()) <= bound(0.7).l2 ** 2 * k2 for share in alone)


@over_losses
@over_storage
def test_scores_are_the_sum_of_what_each_record_gives_alone(loss, storage):
    rng = np.random.default_rng(1)
    for bounds, outputs in itertools.product(BOUNDS, [3] if loss.joint else [1, 2]):
        X, y = records(loss, (N, D), outputs, rng)
        followed = [stored(X, y, bounds, storage).follow(loss, outputs)]
        followed += [
            stored(X[i : i + 1], y[i : i + 1], bounds, storage).follow(loss, outputs) for i in range(N)
        ]
        k_inf, _ = integer_bounds(bounds, D)
        for _ in range(4):
            index, amount = int(rng.integers(D * outputs)), int(rng.integers(-(2**30), 2**30))
            for margins in followed:
                margins.add(index, amount)
            together, *alone = (margins.scores(2.0**-40, bound(0.7)) for margins in followed)
            assert np.array_equal(together, sum(alone))
            assert max(abs(share).max() for share in alone) <= bound(0.7).linf * k_inf


@pytest.mark.parametrize("loss", [Logistic(), Squared()], ids=repr)
def test_every_pair_of_neighbours_in_a_small_universe_is_within_the_sensitivity(loss):
    """All records with features in {-1, 0, 1} and labels in {-1, 1}, at a grid of public points."""
    universe = [(np.array(x), y) for x in itertools.product([-1.0, 0.0, 1.0], repeat=2) for y in (-1.0, 1.0)]
    bounds = Bounds(1.0, 1.2)
    problem = Problem(loss, L1Ball(1.0), bounds=bounds, d=2)
    _, k2 = integer_bounds(bounds, 2)
    reached = 0.0
    for theta in itertools.product([-1.0, -0.3, 0.0, 0.5], repeat=2):
        theta = np.array(theta)
        limit = int(2**RESIDUAL_BITS * problem.slope(2, problem.margin_bound(theta)))
        sums = [
            stored(x[None], np.array([y]), bounds, "dense").sum(
                GradientSum(loss, theta, ResidualBound(limit, limit))
            )
            for x, y in universe
        ]
        for one, other in itertools.combinations(sums, 2):
            distance = int(((one - other).astype(object) ** 2).sum())
            assert distance <= 4 * limit**2 * k2
            reached = max(reached, distance / (4 * limit**2 * k2))
    assert reached > 0.99


def test_the_order_of_records_reaches_nothing():
    problem = Problem(Logistic(), L1Ball(1.0), bounds=Bounds(1.0), d=D)
    plan = NoisyFrankWolfe(6).plan(problem, N, Budget(1.0, 1e-6), Tight())
    rng = np.random.default_rng(2)
    X, y = records(problem.loss, (N, D), 1, rng)
    first = record(plan, stored(X, y, problem.bounds, "dense"), SeededGenerator(0))
    order = rng.permutation(N)
    second = record(plan, stored(X[order], y[order], problem.bounds, "csr"), SeededGenerator(0))
    assert np.array_equal(first.theta, second.theta)
    for one, other in zip(first.questions, second.questions, strict=True):
        assert one.total is None or np.array_equal(one.total, other.total)
