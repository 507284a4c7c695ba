"""[U15] section 4: numbers of records, and the risks that solvers predict for them."""

import math

import pytest

from dpcvx.accounting import Budget
from dpcvx.domains import L2Ball
from dpcvx.errors import WrongValue
from dpcvx.losses import Logistic
from dpcvx.papers import SampleSize
from dpcvx.problem import Bounds, Problem
from dpcvx.solvers import NoisyMirrorDescent, NoisyStronglyConvexMirrorDescent

BASE = {"alpha": 0.01, "epsilon": 1.0, "d": 64}


def test_many_queries_are_the_combination_of_theorem_3_8_and_one_query():
    """Theorems 4.2, 4.4 and 4.6 as printed, from 4.1, 4.3 and 4.5."""
    alpha, eps, d, k, cells = 0.01, 0.5, 400, 5000, 2.0**16
    root, net = math.sqrt(math.log(cells)), math.log(k)
    lipschitz = SampleSize(alpha, eps, d)
    assert lipschitz.many(k, cells) == pytest.approx(root / (alpha**2 * eps) * max(math.sqrt(d), net))
    linear = SampleSize(alpha, eps, d, linear_model=True)
    assert linear.many(k, cells) == pytest.approx(root / (alpha**2 * eps) * max(1 / alpha, net))
    strong = SampleSize(alpha, eps, d, strong_convexity=0.1)
    printed = max(math.sqrt(d / 0.1) / alpha**1.5, net / alpha**2)
    assert strong.many(k, cells) == pytest.approx(root / eps * printed)


def test_one_budget_wins_over_composition_where_queries_are_many():
    """Section 4.1: where sqrt(k) is larger than sqrt(log |X|) max(1, log k/sqrt(d))/alpha."""
    size, cells = SampleSize(**BASE), 2.0**16
    crossing = math.log(cells) / size.alpha**2
    assert size.many(int(crossing / 4), cells) > size.composed(int(crossing / 4))
    assert size.many(int(crossing * 16), cells) < size.composed(int(crossing * 16))


def records_needed(solver, alpha, epsilon, d, l2=0.0):
    """Smallest n for which the solver's bound on the excess risk by noise is at most alpha."""
    problem = Problem(Logistic(), L2Ball(1.0), bounds=Bounds(1.0, 1.0), d=d, l2=l2)
    low, high = 10, 10**12
    while high > low * 1.001:
        middle = int(math.sqrt(low * high)) + 1
        good = solver.predict(problem, middle, Budget(epsilon, 1e-9))[1] <= alpha
        low, high = (low, middle) if good else (middle, high)
    assert 10 < high < 10**12
    return high


@pytest.mark.parametrize(
    ("change", "factor"), [({"d": 256}, 2), ({"alpha": 0.005}, 2), ({"epsilon": 0.5}, 2)]
)
def test_mirror_descent_needs_the_records_of_theorem_4_1(change, factor):
    """Four times the coefficients, half of the excess or half of epsilon: twice the records."""
    grown = records_needed(NoisyMirrorDescent(), **{**BASE, **change})
    assert grown / records_needed(NoisyMirrorDescent(), **BASE) == pytest.approx(factor, rel=0.15)
    assert SampleSize(**{**BASE, **change}).one / SampleSize(**BASE).one == pytest.approx(factor)


@pytest.mark.parametrize(
    ("change", "factor"), [({"d": 256}, 2), ({"alpha": 0.0025}, 2), ({"epsilon": 0.5}, 2)]
)
def test_strong_convexity_needs_the_records_of_theorem_4_5(change, factor):
    """A quarter of the excess needs twice the records: alpha is under the root, unlike in print."""
    solver = NoisyStronglyConvexMirrorDescent()
    grown = records_needed(solver, l2=0.2, **{**BASE, **change})
    assert grown / records_needed(solver, l2=0.2, **BASE) == pytest.approx(factor, rel=0.15)
    strong = {**BASE, "strong_convexity": 0.2}
    assert SampleSize(**{**strong, **change}).one / SampleSize(**strong).one == pytest.approx(factor)


def test_sizes_that_mean_nothing_are_refused():
    with pytest.raises(WrongValue, match="alpha"):
        SampleSize(0.0, 1.0, 5)
    with pytest.raises(WrongValue, match="strong_convexity"):
        SampleSize(0.1, 1.0, 5, strong_convexity=0.5, linear_model=True)
