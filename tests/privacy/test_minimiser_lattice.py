"""What a minimiser leaves open is in its sensitivity: its tolerance, and both lattices."""

import itertools
import math

import numpy as np
import pytest

import dpcvx.mechanisms.minimiser
import dpcvx.noise.gaussian
from adversary import stored
from dpcvx.accounting import Neighbours
from dpcvx.data.sums import present_squared
from dpcvx.domains import L2Ball
from dpcvx.losses import Huber, Logistic
from dpcvx.mechanisms import NoisyMinimiser, PerturbedMinimiser
from dpcvx.noise import SeededGenerator
from dpcvx.problem import Bounds, Problem


@pytest.mark.parametrize("size", [1, 2, 9, 100])
@pytest.mark.parametrize(("moved", "multiplier"), [(1.0, 1.0), (1e-3, 0.37), (17.0, 1e-6), (0.5, 1e3)])
def test_points_on_the_lattice_are_no_further_apart_than_the_noise_is_for(size, moved, multiplier):
    gaussian = dpcvx.mechanisms.minimiser._on_lattice(moved, multiplier, size)
    assert gaussian.unit <= 2.0**-19 * multiplier * moved / math.sqrt(size)
    # The same step in every coordinate, from just below to just above a half: each is rounded up by almost 1.
    step = moved / math.sqrt(size) / gaussian.unit
    start = math.ceil(step) - 0.499 - step
    ends = (np.rint(at) for at in (start, start + step))
    widest = math.sqrt(size) * abs(-np.subtract(*ends))
    assert widest <= gaussian.sensitivity
    if step % 1 > 0.01:
        assert widest > moved / gaussian.unit  # without rounding there would be too little noise


def test_an_outcome_may_be_off_by_its_tolerance_in_either_direction(monkeypatch):
    """Records with constant slopes, which attain the sensitivity, and the worst minimiser that is allowed."""
    problem = Problem(Huber(0.01), bounds=Bounds(1.0, 1.0), d=1, l2=1.0)
    mechanism = NoisyMinimiser(problem, 2, 1.0, 2.0)
    monkeypatch.setattr(
        dpcvx.noise.gaussian, "lattice_gaussian", lambda scale, size, rng: np.zeros(size, dtype=np.int64)
    )
    minimise, signs = dpcvx.mechanisms.minimiser.minimise, iter([1.0, -1.0])

    def careless(facts, objective, linear, tolerance):
        exact = minimise(facts, objective, linear, 2 * facts.rounding)
        return exact + next(signs) * tolerance / facts.ridge

    monkeypatch.setattr(dpcvx.mechanisms.minimiser, "minimise", careless)
    pair = [stored(np.ones((2, 1)), np.array([1.0, y]), problem.bounds, "dense") for y in (1.0, -1.0)]
    one, two = (mechanism(data=data, rng=None) for data in pair)
    assert 0.9999 < np.linalg.norm(one - two) / mechanism.sensitivity <= 1


@pytest.mark.parametrize("size", [1, 3, 400])
def test_the_deviation_covers_tolerance_rounding_and_the_lattice_of_the_linear_term(size, monkeypatch):
    problem = Problem(Logistic(), L2Ball(2.0), bounds=Bounds(1.0, 1.0), d=size)
    mechanism = PerturbedMinimiser(problem, 10, 50.0, 5.0, 100.0)
    asked = []

    def note(facts, objective, linear, tolerance):
        asked.append((tolerance, facts.rounding, linear))
        return np.zeros(size)

    monkeypatch.setattr(dpcvx.mechanisms.minimiser, "minimise", note)
    mechanism(stored(np.ones((10, size)), np.ones(10), problem.bounds, "dense"), SeededGenerator(0))
    ((tolerance, rounding, b),) = asked
    step = 2.0 ** math.floor(math.log2(50 * mechanism.sensitivity * 10 / 2) - 44)
    assert (b / step == np.rint(b / step)).all()
    # b is within half a step of a continuous one in each coordinate.
    together = tolerance + rounding + step / 2 * math.sqrt(size)
    assert together == pytest.approx(mechanism.deviation, rel=1e-15)
    assert together <= mechanism.deviation * (1 + 1e-15)


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_a_part_that_may_be_missing_is_as_far_as_its_worst_pair(relation):
    for largest, counted in itertools.product([1, 4, 9], [0, 2, 12, 100]):
        points = np.array([[s * math.sqrt(largest), math.sqrt(counted)] for s in (1, -1)] + [[0.0, 0.0]])
        others = points if relation == "replace" else points[2:]
        widest = max(((one - other) ** 2).sum() for one in points for other in others)
        assert present_squared(Neighbours(relation), largest, counted) == pytest.approx(widest)
