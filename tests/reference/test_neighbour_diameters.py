"""Diameters of sets of summands against brute force over neighbouring data sets (PRIVACY_MATH §16)."""

import itertools
import math

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.accounting import Neighbours
from dpcvx.mechanisms import NoisyBinCounts, NoisyPooledCounts, PerturbedMinimiser
from zoo import ALL_MECHANISMS

RELATIONS = ("replace", "add_remove")
KINDS = [Neighbours(relation) for relation in RELATIONS] + [
    Neighbours(relation, "person", rows) for relation in RELATIONS for rows in (1, 2, 3)
]
CORNERS = np.array([[3, 0], [-3, 0], [0, 3], [0, -3]])  # a ball of radius 3
INTERVAL = np.array([[0], [2], [5]])  # an interval of length 5
SHIFTED = np.array([[4, 3], [4, -3], [5, 0]])  # 0 is not in its hull; 6 wide, 5 long
ANGLES = np.array([[5, 0], [4, 3], [3, 4], [0, 5]])
CONE = np.array([np.outer(x, x).ravel() for x in ANGLES])  # positive semidefinite, Frobenius norm 25


def totals(points, neighbours):
    """Everything that one unit can add to a sum; a person may use fewer rows than count."""
    if neighbours.unit == "row":
        return points
    with_none = np.vstack([points, np.zeros_like(points[:1])])
    return np.array([sum(rows) for rows in itertools.product(with_none, repeat=neighbours.rows)])


def brute_force(points, neighbours):
    """Largest squared distance between the sums of two neighbours, over all pairs."""
    sums = totals(points, neighbours)
    others = sums if neighbours.replaces else np.zeros_like(sums[:1])
    return max(int(((one - other) ** 2).sum()) for one in sums for other in others)


@pytest.mark.parametrize("neighbours", KINDS, ids=str)
def test_diameters_are_those_of_brute_force(neighbours):
    assert brute_force(CORNERS, neighbours) == (neighbours.ball * 3) ** 2
    assert brute_force(INTERVAL, neighbours) == (neighbours.interval * 5) ** 2
    assert brute_force(CONE, neighbours) == neighbours.cone_squared * 25**2
    assert brute_force(SHIFTED, neighbours) <= neighbours.squared_diameter(36, 25)
    assert neighbours.squared_diameter(4, 1) == neighbours.ball**2
    assert neighbours.squared_diameter(1, 1) == neighbours.interval**2


def test_where_0_is_not_among_the_summands_a_person_without_rows_is_farther_than_any_other():
    """PRIVACY_MATH §16: contrasts that leave out the constant."""
    close = np.array([[7, 1], [7, -1]])
    assert brute_force(close, Neighbours()) == Neighbours().squared_diameter(4, 50) == 4
    person = Neighbours("replace", "person")
    assert brute_force(close, person) == person.squared_diameter(4, 50) == 50


@pytest.mark.parametrize(
    ("neighbours", "ball", "interval", "cone"),
    [
        (Neighbours(), 2, 1, math.sqrt(2)),
        (Neighbours("add_remove"), 1, 1, 1),
        (Neighbours("replace", "person"), 2, 1, math.sqrt(2)),  # equal weights: the row formula, n -> U
        (Neighbours("replace", "person", 3), 6, 3, 3 * math.sqrt(2)),  # mu_person = k mu_row
        (Neighbours("add_remove", "person", 3), 3, 3, 3),
    ],
    ids=str,
)
def test_the_vectors_of_privacy_math(neighbours, ball, interval, cone):
    assert (neighbours.ball, neighbours.interval) == (ball, interval)
    assert math.sqrt(neighbours.cone_squared) == pytest.approx(cone, rel=1e-15)


def test_every_sensitivity_grows_with_the_rows_of_a_person():
    # proved for one row
    single = {"minimiser", "perturbed minimiser", "quantile", "histogram", "pooled histogram"}
    for relation in RELATIONS:
        one, three = Neighbours(relation, "person"), Neighbours(relation, "person", 3)
        for name in set(ALL_MECHANISMS) - single:
            make = ALL_MECHANISMS[name]
            assert make(three).sensitivity == pytest.approx(3 * make(one).sensitivity, rel=1e-6)
            # Noise of samples is in proportion to C, the weight of one unit (PRIVACY_MATH §8).
            ends = 2 if name == "difference" and one.replaces else 1
            assert name == "vertex" or make(three).noise >= make(three).sensitivity / ends * 0.999


def test_proofs_for_single_rows_refuse_persons():
    problem = dp.Problem(dp.Logistic(), dp.L2Ball(2.0), bounds=dp.Bounds(1.0, 1.0), d=3)
    person = Neighbours("replace", "person", 2)
    with pytest.raises(dp.Incompatible, match="Histograms of cells need"):
        NoisyBinCounts(100, 0, (4,), 1.0, person)
    with pytest.raises(dp.Incompatible, match="Histograms of cells need"):
        NoisyPooledCounts(100, 0, (4,), 1.0, person, cells=3)
    with pytest.raises(dp.Incompatible, match="Objective perturbation is proved private for one row"):
        PerturbedMinimiser(problem, 100, 1.0, 10.0, 100.0, person)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("swap",), "relation must be one of replace, add_remove, got 'swap'"),
        (("replace", "family"), "unit must be one of row, person, got 'family'"),
        (("replace", "row", 2), "A row is one row"),
        (("replace", "person", 0), "rows must be a positive integer"),
        (("replace", "person", True), "rows must be a positive integer"),
    ],
)
def test_unknown_neighbours_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        Neighbours(*given)


def test_a_budget_and_its_words():
    assert dp.Budget(1.0, 1e-6).neighbours == Neighbours()
    assert dp.Budget(1.0, 1e-6, "add_remove").neighbours == Neighbours("add_remove")
    assert len({each.words for each in KINDS}) == len({each.change for each in KINDS}) == 4
