"""The gate between public plans and private records refuses what its guarantee does not cover."""

import dataclasses
import math

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.grid import ResidualBound, integer_bounds
from dpcvx.mechanisms import NoisyGradient, NoisyVertex

PROBLEM = dp.Problem(dp.Logistic(), dp.L1Ball(2.0), bounds=dp.Bounds(1.0), d=3)


def small_source(n=8):
    rng = np.random.default_rng(0)
    return dp.source(rng.uniform(-1, 1, (n, 3)), np.sign(rng.normal(size=n)), bounds=PROBLEM.bounds)


@pytest.mark.parametrize("relation", ["replace-one", "REPLACE", "add-remove", ""])
def test_a_misspelt_relation_is_refused_and_does_not_halve_the_sensitivity(relation):
    with pytest.raises(ValueError, match="relation must be one of"):
        NoisyGradient(PROBLEM, 100, 1.0, relation)
    with pytest.raises(ValueError, match="relation must be one of"):
        NoisyVertex(PROBLEM, 100, 0.1, 20, relation)


def test_a_plan_whose_stages_have_another_relation_is_refused():
    plan = dp.plan(PROBLEM, 100, dp.Budget(1.0, 1e-6))
    with pytest.raises(dp.Incompatible, match="add_remove"):
        dataclasses.replace(plan, budget=dp.Budget(1.0, 1e-6, "add_remove"))


def test_a_plan_that_costs_more_than_its_budget_does_not_run():
    plan = dp.plan(PROBLEM, 8, dp.Budget(1.0, 1e-6))
    richer = dataclasses.replace(plan, budget=dp.Budget(0.5, 1e-6))
    dp.execute(plan, small_source(), rng=dp.SeededGenerator(0))
    with pytest.raises(dp.Incompatible, match="more than its budget"):
        dp.execute(richer, small_source(), rng=dp.SeededGenerator(0))


def test_under_replace_one_the_number_of_records_must_be_the_planned_one():
    plan = dp.plan(PROBLEM, 9, dp.Budget(1.0, 1e-6))
    with pytest.raises(dp.Incompatible, match="n=9"):
        dp.execute(plan, small_source(8))


def test_under_add_remove_sums_cannot_wrap():
    wide = dp.Problem(dp.Squared(), dp.L1Ball(1020.0), bounds=dp.Bounds(1.999), d=2)
    selection = NoisyVertex(wide, 1000, 0.1, 20, "add_remove")
    k_inf, _ = integer_bounds(wide.bounds, wide.d)
    slope = math.floor(2**20 * wide.slope(math.inf))
    assert selection.capacity * slope * k_inf < 2**62 <= (selection.capacity + 1) * slope * k_inf

    class TooMany:
        n, d = selection.capacity + 1, 2

    plan = dp.plan(wide, 1000, dp.Budget(1.0, 1e-6, "add_remove"), (dp.NoisyFrankWolfe(n_iter=2),))
    with pytest.raises(dp.Incompatible, match="more records"):
        dp.execute(plan, TooMany())


def test_rounding_never_turns_a_selection_around():
    """A ridge that dwarfs the slopes at theta = 0: the selection becomes uniform there, not inverted."""
    problem = dp.Problem(dp.Squared(), dp.L1Ball(128.0), bounds=dp.Bounds(1.0, None, 1e-6), d=3, l2=30.0)
    selection = NoisyVertex(problem, 2**20, 0.1, 20)
    assert selection._temperature(ResidualBound(1, 1)) == 0.0


def test_features_below_the_grid_are_refused():
    with pytest.raises(ValueError, match="x_inf"):
        dp.Bounds(2**-15)
