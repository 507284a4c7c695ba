"""Losses of means: constants, neighbours with other rows, targets and exposures, and what an exposure is."""

import itertools
import math

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.accounting import Tight
from dpcvx.audit.replay import discrepancies, record, replay
from dpcvx.data import CurvatureSum, GradientSum
from dpcvx.data.curvature import CurvatureBound
from dpcvx.data.exposure import read_exposure
from dpcvx.data.lattice import RESIDUAL_BITS
from dpcvx.data.memory import Arrays
from dpcvx.data.quantise import Quantiser, targets
from dpcvx.losses import FractionalLogit, LogGamma, LogPoisson
from dpcvx.mechanisms import NoisyGradient, NoisySecondMoments
from dpcvx.mechanisms.mechanism import residual_bound
from dpcvx.noise import SeededGenerator
from dpcvx.solvers import NoisyGradientDescent, Standardised
from dpcvx.solvers.one_step import OneStep
from dpcvx.solvers.scaled_target import scaled_loss

D = 2
BOUNDS = dp.Bounds(1.0, 1.0)
POISSON = scaled_loss(LogPoisson(), 2.5)
LOSSES = [
    POISSON,
    scaled_loss(LogPoisson(offset=True), 2.5),
    scaled_loss(LogGamma(), 2.5),
    LogGamma(),
    FractionalLogit(),
]
named = pytest.mark.parametrize("loss", LOSSES, ids=repr)


def problem(loss, d=D, bounds=BOUNDS):
    return dp.Problem(loss, dp.L2Ball(15.0), bounds=bounds, d=d)


def arrays(X, y, offsets=None, bounds=BOUNDS):
    return Arrays(Quantiser(bounds).quantise(np.array(X)), targets(y), bounds=bounds, offsets=offsets)


def test_the_vectors_of_privacy_math():
    vectors = [
        (POISSON, 15.0, 5 / 3, 1747626, 57266208769),
        (POISSON, 0.0, 5 / 3, 1747626, 57266208769),
        (LogGamma(), 0.0, 1.0, 1048576, 34359738369),
        (FractionalLogit(), 0.0, 0.5, 524288, 17179869185),
    ]
    for loss, z_max, lipschitz, slope, sensitivity in vectors:
        assert loss.lipschitz(z_max) == pytest.approx(lipschitz, rel=1e-15)
        bound = residual_bound(problem(loss), z_max, None)
        assert bound.l2 == slope
        mechanism = NoisyGradient(problem(loss), 10, 1.0)
        assert int(mechanism._gaussian(bound, D).sensitivity) == sensitivity


@named
def test_no_two_records_are_further_apart_than_the_sensitivity_and_some_are_as_far(loss):
    """Records with hostile targets and offsets, at hostile points: slopes, curvatures and squared slopes."""
    rows = [[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.6, 0.8], [1e300, math.nan]]
    outcomes = [-1e300, -1.0, 0.0, 0.4, 1.0, 1e300, math.nan, math.inf]
    offsets = [0.0, -1.0, -13.8] if loss.offset else [None]
    reached = {"gradient": 0.0, "Hessian": 0.0, "meat": 0.0}
    for theta in ([0.0, 0.0], [15.0, 0.0], [-15.0, 3.0], [1e6, 1.0], [0.5, -0.5]):
        point = np.array(theta)
        gradient, moments = (
            NoisyGradient(problem(loss), 10, 1.0),
            NoisySecondMoments(problem(loss), 10, 1.0, 1.0),
        )
        z_max = problem(loss).margin_bound(point)
        slope = residual_bound(problem(loss), z_max, None)
        bend, square = CurvatureBound(moments._largest, moments._bits), moments._square(z_max)
        answers = []
        for row, y, offset in itertools.product(rows, outcomes, offsets):
            one = arrays([row], [y], None if offset is None else np.array([offset]))
            second = one.sum(CurvatureSum(loss, point, slope, bend, square))
            answers.append((one.sum(GradientSum(loss, point, slope)), second.moments, second.meat))
        limits = (
            int(gradient._gaussian(slope, D).sensitivity),
            *(int(each.sensitivity) for each in moments._gaussians(z_max)),
        )
        for name, limit, sums in zip(reached, limits, zip(*answers, strict=True), strict=True):
            furthest = max(
                sum((int(a) - int(b)) ** 2 for a, b in zip(one.flat, other.flat, strict=True))
                for one, other in itertools.combinations(sums, 2)
            )
            assert furthest <= limit**2, name
            reached[name] = max(reached[name], math.sqrt(furthest) / limit)
    assert min(reached.values()) > 0.5, reached


def test_an_offset_is_added_to_the_score():
    rng = np.random.default_rng(0)
    X, y, offsets = rng.uniform(-0.7, 0.7, (50, D)), rng.poisson(0.5, 50) * 1.0, -rng.exponential(size=50)
    loss, theta = LogPoisson(offset=True, limit=1.5), np.array([0.5, -2.0])
    bound = residual_bound(problem(loss), None, None)
    found = arrays(X, y, offsets).sum(GradientSum(loss, theta, bound))
    stored = np.trunc(X * 2**14)
    slopes = loss.grad(stored @ theta / 2**14 + offsets, y)
    rho = np.clip(np.rint(slopes * 2**RESIDUAL_BITS), -bound.l2, bound.l2)
    np.testing.assert_allclose(found, rho @ stored, atol=2 * 50 * 2**14)  # theta is rounded to fixed point


def test_records_with_and_without_offsets_are_told_apart():
    loss = LogPoisson(offset=True)
    question = GradientSum(loss, np.zeros(D), residual_bound(problem(loss), None, None))
    with pytest.raises(ValueError, match="disagree on whether scores have offsets"):
        arrays([[0.1, 0.2]], [1.0]).sum(question)
    with pytest.raises(ValueError, match="disagree on whether scores have offsets"):
        arrays([[0.1, 0.2]], [1.0], np.zeros(1)).sum(
            GradientSum(LogPoisson(), np.zeros(D), residual_bound(problem(LogPoisson()), None, None))
        )


@pytest.mark.parametrize("loss", [LogPoisson(offset=True), LogGamma(), FractionalLogit()], ids=repr)
def test_a_neighbour_changes_the_answers_only_within_their_sensitivity(loss):
    rng = np.random.default_rng(3)
    n = 40
    X, y, offsets = rng.uniform(-1, 1, (n, 3)), rng.uniform(0, 1, n), -rng.exponential(size=n)
    bounds = dp.Bounds(1.0)
    solver = Standardised(OneStep(NoisyGradientDescent(n_iter=4), 0.3))
    plan = solver.plan(problem(loss, 3, bounds), n, dp.Budget(2.0, 1e-4), Tight())

    def source(X, y, offsets):
        return arrays(X, y, offsets if loss.offset else None, bounds)

    first = record(plan, source(X, y, offsets), SeededGenerator(0))
    for row, target, offset in (
        ([1e30, -1e30, 1e30], 1.0, 0.0),
        ([math.nan, 0, -1], math.nan, -13.0),
        ([-1, -1, -1], 0.0, 0.0),
    ):
        other = X.copy(), y.copy(), offsets.copy()
        for part, value in zip(other, (row, target, offset), strict=True):
            part[0] = value
        second = replay(plan, source(*other), SeededGenerator(5), first)
        assert discrepancies(plan, first, second) == []


def test_hostile_exposures_are_clipped_or_leave_their_record_out():
    found = read_exposure(
        np.array([1, 10, 1e300, math.inf, 1e-300, 0, -1, math.nan, "x", None], dtype=object), 10.0
    )
    assert found.known.tolist() == [True] * 5 + [False] * 5
    np.testing.assert_array_equal(found.shares, [0.1, 1, 1, 1, 1e-6, 1, 1, 1, 1, 1])
    assert np.isfinite(found.offsets).all()
    assert (found.offsets <= 0).all()
