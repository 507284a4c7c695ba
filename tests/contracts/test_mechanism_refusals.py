"""Mechanisms refuse, from public numbers, inputs without a proved sensitivity, and declare their traits."""

import math
from dataclasses import replace

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.accounting import WEIGHT, Budget, Neighbours
from dpcvx.errors import Incompatible, WrongValue
from dpcvx.events import Gaussian
from dpcvx.mechanisms import (
    NoisyGradient,
    NoisyGroup,
    NoisyMinimiser,
    NoisyMoments,
    NoisyPair,
    NoisyQuantile,
    NoisySecondMoments,
    NoisyTarget,
    NoisyVertex,
)
from dpcvx.mechanisms.counts import as_counts
from dpcvx.mechanisms.quantile import as_quantile
from dpcvx.noise import SeededGenerator
from dpcvx.plans.price import Price
from zoo import ALL_MECHANISMS

BALL = dp.Problem(dp.Logistic(), dp.L2Ball(1.0), bounds=dp.Bounds(1.0, 1.0), d=3)
FREE = dp.Problem(dp.Squared(), bounds=dp.Bounds(1.0, 1.0), d=3, l2=1.0)
RIDGE = dp.Problem(dp.Logistic(), dp.L2Ball(1.0), bounds=dp.Bounds(1.0, 1.0), d=3, l2=0.1)
PERSONS = Neighbours("replace", "person", 2, WEIGHT)

REFUSED = {
    "slopes without a bound": (lambda: NoisyGradient(FREE, 100, 1.0), "unbounded slopes"),
    "no features": (lambda: NoisyGradient(BALL, 100, 1.0, support=0), "support"),
    "too many features": (lambda: NoisyGradient(BALL, 100, 1.0, support=4), "support"),
    "a third moment": (lambda: NoisyMoments(BALL, 100, 3, 1.0), "order"),
    "means about a centre": (lambda: NoisyMoments(BALL, 100, 1, 1.0)(np.zeros(3), None, None), "about 0"),
    "pairs with a ridge": (lambda: NoisyPair(RIDGE, 100, 0.5, ((0, 1),), 3.0), "ridge"),
    "no groups": (lambda: NoisyGroup(BALL, 100, 0.5, ()), "at least one each"),
    "groups of slopes without a bound": (lambda: NoisyGroup(FREE, 100, 0.5, ((0,),)), "unbounded slopes"),
    "no pairs": (lambda: NoisyPair(BALL, 100, 0.5, (), 3.0), "at least one pair"),
    "quantiles of added records": (
        lambda: NoisyQuantile(100, 50, 0.1, Neighbours("add_remove")),
        "relation='replace'",
    ),
    "quantiles of several rows": (lambda: NoisyQuantile(100, 50, 0.1, PERSONS), "one row of each person"),
    "quantiles of too many": (lambda: NoisyQuantile(2**50, 50, 0.1), "rounding"),
    "vertices of a ball": (lambda: NoisyVertex(BALL, 100, 0.1, 20), "polytope"),
    "a negative linear term": (lambda: NoisyMinimiser(BALL, 100, 1.0, 2.0, linear=-1.0), "linear"),
    "an endless linear term": (lambda: NoisyMinimiser(BALL, 100, 1.0, 2.0, linear=np.inf), "linear"),
    "a target without reach": (lambda: NoisyTarget(100, 1.0)(0.0, 0.0, data=None, rng=None), "reach"),
    "counts that are none": (lambda: as_counts(NoisyGradient(BALL, 100, 1.0)), "Counts were expected"),
    "a quantile that is none": (lambda: as_quantile(NoisyGradient(BALL, 100, 1.0)), "quantile was expected"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_proved_is_refused(name):
    make, words = REFUSED[name]
    with pytest.raises((Incompatible, WrongValue), match=words):
        make()


def test_second_moments_of_rows_are_not_given_to_persons():
    rows = dp.source(np.ones((10, 3)) / 2, np.ones(10), bounds=BALL.bounds)
    planned = NoisySecondMoments(BALL, 10, 1.0, 1.0, Neighbours("replace", "person", weight=WEIGHT))
    with pytest.raises(Incompatible, match="whose rows"):
        planned(np.zeros(3), rows, SeededGenerator(0))


def test_mechanisms_say_what_they_are_for():
    """Plans, statements and estimates of time follow from these words."""
    made = {name: make(Neighbours()) for name, make in ALL_MECHANISMS.items()}
    measuring = {name for name, mechanism in made.items() if mechanism.traits.measures}
    assert measuring == {
        "means",
        "mean squares",
        "length",
        "target",
        "quantile",
        "counts",
        "histogram",
        "row count",
        "pooled histogram",
        "pair",
    }
    assert {name for name, mechanism in made.items() if mechanism.traits.noise_inside} == {
        "perturbed minimiser"
    }
    minimisers = {"minimiser", "perturbed minimiser"}
    assert {name for name, mechanism in made.items() if mechanism.traits.copies} == minimisers
    assert {name for name, mechanism in made.items() if mechanism.traits.pairs} == {"second moments"}
    sooner = {name for name, mechanism in made.items() if mechanism.traits.stops_sooner}
    assert sooner == {"vertex", *minimisers}
    for name, mechanism in made.items():
        assert mechanism.evaluations >= 0
        if name in {"quantile", "counts", "histogram", "row count", "pooled histogram", "target", "means"}:
            assert mechanism.evaluations == 0  # no slope is computed
        assert mechanism.n_draws >= 1
        assert 0 <= mechanism.failure < 1e-60
    assert made["quantile"].failure == made["vertex"].failure == made["pair"].failure == 0


def test_samplers_may_cost_a_thousandth_of_delta_and_no_more():
    """So much of delta is set aside for them: with more, events and samplers together would exceed it."""
    limit = 1e-9 / (1 + math.e)  # of total variation, at epsilon 1 and delta 1e-6
    price = Price(Gaussian(50.0), (), 0.999 * limit, Budget(1.0, 1e-6))
    price.check_samplers()
    with pytest.raises(Incompatible, match="more than a thousandth of delta"):
        replace(price, failure=1.001 * limit).check_samplers()
