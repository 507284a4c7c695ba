"""Objective perturbation for persons: several rows that share the weight of one (PRIVACY_MATH §16)."""

import math
import warnings

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.accounting import Neighbours, Tight
from dpcvx.accounting.neighbours import WEIGHT
from dpcvx.accounting.objective import objective_delta, objective_epsilon
from dpcvx.events import PerturbedObjective, from_plain, to_plain
from dpcvx.mechanisms import PerturbedMinimiser
from dpcvx.solvers import ObjectivePerturbation

PERSONS = Neighbours("replace", "person", 1, WEIGHT)


@pytest.mark.parametrize(
    ("epsilon", "shift", "jacobian", "delta"),
    [(1.0, 0.1, 0.1, 4.509112385e-07), (1.0, 0.2, 0.2, 1.142046712e-02), (8.0, 1.0, 1.0, 8.016548717e-03)],
)
def test_the_vectors_of_privacy_math(epsilon, shift, jacobian, delta):
    event = PerturbedObjective(shift, jacobian, "replace", "person")
    assert objective_delta(epsilon, event) == pytest.approx(delta, rel=1e-6)
    assert objective_epsilon(event, delta) == pytest.approx(epsilon, rel=1e-6)
    row = PerturbedObjective(shift, jacobian)
    assert objective_delta(epsilon, row) < delta  # a mean of rows is not worse by much
    assert from_plain(to_plain(event)) == event
    assert "unit" not in to_plain(row)
    assert objective_delta(0.9 * (jacobian + 2 * shift), event) == 1.0


@pytest.mark.parametrize("seed", range(12))
def test_no_two_persons_are_told_apart_better_than_the_profile_says(seed):
    """Exact densities of two parameters, by quadrature: persons of one to four rows in any directions."""
    rng = np.random.default_rng(seed)
    ridge, sigma = rng.uniform(0.5, 3.0), rng.uniform(2.0, 6.0)
    common = unit_rows(rng, rng.integers(0, 3))
    people = [unit_rows(rng, rng.integers(1, 5)), unit_rows(rng, rng.integers(1, 5))]
    if seed % 3 == 0:  # the second one says the opposite of the first
        people[1] = -people[0]
    side = np.linspace(-1, 1, 501) * (8 * sigma + 4) / ridge
    theta = np.stack(np.meshgrid(side, side), axis=-1)
    p, q = (density(theta, [(common, 1.0), (rows, 1 / len(rows))], ridge, sigma) for rows in people)
    area = (side[1] - side[0]) ** 2
    assert p.sum() * area == pytest.approx(1, abs=1e-3)
    event = PerturbedObjective(1 / sigma, 2 * math.log1p(0.125 / ridge), "replace", "person")
    compared = 0
    for epsilon in (0.4, 0.7, 1.0, 1.5, 2.0, 3.0):
        bound = objective_delta(epsilon, event)
        for one, other in ((p, q), (q, p)):
            assert np.maximum(one - math.exp(epsilon) * other, 0).sum() * area <= bound + 1e-12
        compared += bound < 1
    assert compared >= 2


def unit_rows(rng, count):
    angles = rng.uniform(0, 2 * np.pi, count)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).reshape(-1, 2)


def density(theta, parts, ridge, sigma):
    """Density of the minimiser of logistic losses of label 1: that of b(theta), times the Jacobian."""
    b, hessian = -ridge * theta, ridge * np.eye(2)
    for rows, weight in parts:
        for x in rows:
            chance = 1 / (1 + np.exp(theta @ x))
            b = b + weight * chance[..., None] * x
            hessian = hessian + weight * (chance * (1 - chance))[..., None, None] * np.outer(x, x)
    normal = np.exp(-(b**2).sum(axis=-1) / (2 * sigma**2)) / (2 * np.pi * sigma**2)
    return normal * np.linalg.det(hessian)


def test_a_plan_of_persons_pays_for_a_hessian_of_any_rank():
    problem = dp.Problem(dp.Logistic(), dp.L2Ball(2.0), bounds=dp.Bounds(1.0), d=3)
    budget = dp.Budget(1.0, 1e-6, "replace", "person", 1, WEIGHT)
    rows, persons = (
        ObjectivePerturbation(0.1).plan(problem, 500, each, Tight())
        for each in (dp.Budget(1.0, 1e-6), budget)
    )
    one, other = (plan.stages[0].mechanism for plan in (rows, persons))
    assert other.event.events[0].jacobian == pytest.approx(0.1, rel=1e-9)
    assert other.ridge / one.ridge == pytest.approx(math.expm1(0.1) / (3 * math.expm1(0.1 / 3)))
    assert 1 <= other.noise_multiplier / one.noise_multiplier < 1.01
    assert 0.97 <= persons.price.epsilon <= 1.0
    with pytest.raises(dp.Incompatible, match="max_rows"):
        PerturbedMinimiser(problem, 500, 5.0, 10.0, 100.0, Neighbours("replace", "person", 2, WEIGHT))


def test_repeated_rows_are_fitted_like_single_ones():
    rng = np.random.default_rng(0)
    X, owner = rng.uniform(-1, 1, (400, 2)), np.repeat(np.arange(400), rng.integers(1, 9, 400))
    y = (X[:, 0] > 0).astype(int)
    settings = {"epsilon": 2.0, "bounds": (-1, 1), "classes": (0, 1), "standardize": False, "check": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = dp.PrivateLogisticRegression(solver="objective_perturbation", random_state=0, **settings)
        several = model.fit(X[owner], y[owner], groups=owner)
    assert np.mean(several.predict(X) == y) > 0.9
    assert "person" in str(several.privacy_statement_)
