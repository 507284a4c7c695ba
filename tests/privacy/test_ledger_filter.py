"""Privacy filters: the best adaptive adversary gains no more than the cap, and little of the cap is lost."""

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import norm

from dpcvx import Bounds, Huber, L1Ball, L2Ball, Logistic, Problem, accounting, plan
from dpcvx.accounting import SAMPLER_SHARE, Budget, gaussian_mu, spendable
from dpcvx.errors import NotAccountable
from dpcvx.events import ApproxDP, Compose, Exponential, Gaussian, PerturbedObjective, Poisson, PureDP, Repeat
from dpcvx.ledger import chain, filters
from dpcvx.ledger.filters import FRESH, SHARES, WHOLE, Spending, admit, covers
from dpcvx.solvers import (
    NoisyAcceleratedMirrorDescent,
    NoisyCorrectiveFrankWolfe,
    NoisyFrankWolfe,
    NoisyGradientDescent,
    NoisyMirrorDescent,
    NoisySVRG,
    ObjectivePerturbation,
    OutputPerturbation,
)

CAP = Budget(1.0, 1e-6)


def charged(cap, *events, **settings):
    """Spending after the events, or None as soon as one is refused."""
    spending = FRESH
    for event in events:
        spending = admit(cap, spending, event, **settings)
        if spending is None:
            return None
    return spending


def count(cap, event, **settings):
    """How often an event fits."""
    spending, times = FRESH, 0
    while (spending := admit(cap, spending, event, **settings)) is not None:
        times += 1
    return times


# The best adversary there is, by brute force


def outcomes(event):
    """Pairs of (probability, privacy loss) of a worst pair for the event, or of a coarse view of it."""
    match event:
        case PureDP():
            p = 1 / (1 + math.exp(-event.epsilon))
            return [(p, event.epsilon), (1 - p, -event.epsilon)]
        case ApproxDP():
            p = (1 - event.delta) / (1 + math.exp(-event.epsilon))
            return [(event.delta, math.inf), (p, event.epsilon), (1 - event.delta - p, -event.epsilon)]
        case Exponential():
            p = 1 / (1 + math.exp(-event.eta / 2))  # the two-point pair in the middle, t = eta/2
            return [(p, event.eta / 2), (1 - p, -event.eta / 2)]
        case Gaussian():
            mu = 1 / event.noise_multiplier
            edges = np.concatenate([[-np.inf], np.linspace(-1.5, 2.5 + mu, 6), [np.inf]])
            p, q = np.diff(norm.cdf(edges - mu)), np.diff(norm.cdf(edges))
            return [(float(a), math.log(a / b)) for a, b in zip(p, q, strict=True)]
    raise TypeError(event)


def largest_gain(cap, events, admitted=admit, depth=5):
    """H at e^epsilon of an adversary who chooses each event in the light of all answers, or stops.

    For any strategy this is E_P (1 - e^{epsilon - loss})_+ at its end; the best strategy is found by trying
    them all.
    """

    def gain(spending, loss, left):
        best = max(0.0, 1 - math.exp(cap.epsilon - loss))
        for event in events if left else ():
            after = admitted(cap, spending, event)
            if after is not None:
                steps = ((p, x) for p, x in outcomes(event) if p > 0)
                best = max(best, sum(p * gain(after, loss + x, left - 1) for p, x in steps))
        return best

    return gain(FRESH, 0.0, depth)


# Caps, events, and a gain that the adversary reaches at least: the bounds are not idle.
GAMES = {
    "pure": (Budget(1.0, 0.02), [PureDP(0.5), PureDP(0.3), PureDP(0.8)], 0.0),
    "gaussian": (Budget(1.0, 0.05), [Gaussian(2.2), Gaussian(3.5)], 0.03),
    "mixed": (Budget(2.0, 0.2), [Gaussian(2.0), PureDP(0.5), Exponential(0.8)], 0.015),
    "approximate": (Budget(1.0, 0.1), [ApproxDP(0.4, 0.03), ApproxDP(0.1, 0.05), PureDP(0.3)], 0.09),
    "no delta": (Budget(1.0, 0.0), [PureDP(0.4), Exponential(0.3), PureDP(0.2)], 0.0),
    "everything": (Budget(2.0, 0.2), [Gaussian(2.0), ApproxDP(0.5, 0.002), Exponential(0.9)], 0.015),
}


@pytest.mark.parametrize("game", GAMES)
def test_no_adversary_gains_more_than_delta(game):
    cap, events, reached = GAMES[game]
    depth = 4 if any(isinstance(event, Gaussian) for event in events) else 6
    assert reached <= largest_gain(cap, events, depth=depth) <= cap.delta + 1e-12
    assert charged(cap, events[0], events[1]) is not None  # the filter granted something to play with


def forgetful(cap, spending, event):
    """A wrong filter, which looks at each charge alone."""
    return spending if admit(cap, FRESH, event) is not None else None


def late(cap, spending, event):
    """A wrong filter, which lets the last charge cross the cap: it looks at what was spent before."""
    if spending.mode == "fresh":
        return admit(cap, spending, event)
    wide = replace(cap, epsilon=2 * cap.epsilon)
    return admit(wide, spending, event) if spending.used(cap) < WHOLE else None


def always_whole(cap, spending, event):
    """A wrong filter, which takes any event that would have fitted as the first one."""
    first = admit(cap, FRESH, event)
    return None if first is None or spending.mode == "whole" else replace(first, totals=spending.totals)


@pytest.mark.parametrize("wrong", [forgetful, late, always_whole], ids=lambda rule: rule.__name__)
def test_wrong_filters_are_caught_by_the_same_adversary(wrong):
    cap, events = Budget(1.0, 0.02), [PureDP(0.5), PureDP(0.8)]
    assert largest_gain(cap, events, wrong) > cap.delta


# What each filter rests on


@pytest.mark.parametrize("mode", sorted(SHARES))
@pytest.mark.parametrize("cap", [CAP, Budget(0.1, 1e-9), Budget(8.0, 1e-5), Budget(50.0, 1e-12)], ids=str)
def test_shares_and_reserve_are_no_more_than_delta(mode, cap):
    made = filters._filters(cap, mode)
    shares = sum(rule.delta for rule, _ in made.values())
    reserve = 0.0 if mode == "basic" else SAMPLER_SHARE * cap.delta
    assert shares + reserve <= cap.delta * (1 + 1e-12)
    assert (1 + math.exp(cap.epsilon)) * filters._failure_limit(
        cap
    ) / filters.SCALE <= SAMPLER_SHARE * cap.delta
    for rule, limits in made.values():
        value = [limit / filters.SCALE for limit in limits]
        if isinstance(rule, filters.GaussianFilter):
            assert accounting.gaussian_delta(cap.epsilon, math.sqrt(value[0])) <= rule.delta
        elif isinstance(rule, filters.RenyiFilter):
            a = rule.order
            # PRIVACY_MATH §0: delta of R(a) at one order
            log_delta = (a - 1) * (value[0] - cap.epsilon) + (a - 1) * math.log1p(-1 / a) - math.log(a)
            assert log_delta <= math.log(rule.delta)
            assert log_delta == pytest.approx(math.log(rule.delta), rel=1e-6)
        else:
            assert value[0] <= cap.epsilon
            assert value[1] <= rule.delta


def test_what_stored_totals_mean_is_part_of_the_format():
    """A ledger of format 1 is read with these shares, orders and limits for ever."""
    assert chain.FORMAT == 1
    assert SHARES == {
        "gaussian": {"gaussian": 0.8, "renyi": 0.12, "renyi_twice": 0.04, "basic": 0.04},
        "renyi": {"renyi": 0.8, "renyi_twice": 0.16, "basic": 0.04},
        "basic": {"basic": 1.0},
    }
    expected = {
        "gaussian": {"gaussian": 0.0548333756, "renyi": 0.5276831746, "renyi_twice": 0.7554626386},
        "renyi": {"renyi": 0.5322405149, "renyi_twice": 0.7443308874},
    }
    for mode, limits in expected.items():
        made = filters._filters(CAP, mode)
        for name, limit in limits.items():
            assert made[name][1][0] / filters.SCALE == pytest.approx(limit, rel=1e-9)


def test_a_sequence_is_accepted_in_any_order_and_with_any_of_its_prefixes():
    events = [Gaussian(12.0), Exponential(0.1), PureDP(0.05), Gaussian(20.0)]
    for first in (Gaussian(30.0), Exponential(0.05)):
        spent = {charged(CAP, first, *order) for order in itertools.permutations(events)}
        assert len(spent) == 1
        assert spent != {None}
    grown = [charged(CAP, *events[:i]).used(CAP) for i in range(1, 5)]
    assert grown == sorted(grown)


@pytest.mark.parametrize("noise", [0.3, 1.7, 22.263, 1e3, 123456.789])
@pytest.mark.parametrize("count", [1, 7, 1000])
def test_stored_costs_are_below_the_exact_ones_by_less_than_the_limit_allows_for(noise, count):
    """The limit is lower by the share ROUNDING, for sums in floating point."""
    ((cost,),) = filters.GaussianFilter(1.0, 1e-6).costs(Repeat(Gaussian(noise), count), 0.0, None)
    exact = filters.SCALE * Fraction(count) / Fraction(noise) ** 2
    assert abs(cost - exact) <= exact * Fraction(filters.ROUNDING) / 100 + 1


def test_repeats_cost_what_they_cost_one_by_one():
    for event in (Gaussian(40.0), Exponential(0.02), PureDP(0.01)):
        one_by_one = dict(charged(CAP, event, event, event).totals)
        at_once = dict(charged(CAP, Compose((Repeat(event, 2), event))).totals)
        for name in set(one_by_one) - {"basic"}:  # which prices the composition by its own profile
            assert at_once[name][0] == pytest.approx(one_by_one[name][0], rel=1e-12)


def test_a_filter_that_stopped_does_not_come_back():
    spending = charged(CAP, Gaussian(30.0), PureDP(0.01), Gaussian(1000.0))
    assert {name for name, _ in spending.totals} == {"renyi", "renyi_twice", "basic"}
    spending = charged(CAP, Gaussian(30.0), ApproxDP(0.01, 0.0), Gaussian(1000.0))
    assert {name for name, _ in spending.totals} == {"basic"}


def test_what_no_curve_covers_goes_by_basic_composition():
    event = Poisson(0.01, 4.0)
    epsilon = accounting.Tight().epsilon(event, 2.5e-7)
    cap = Budget(4.000001 * epsilon, 1e-6)
    assert count(cap, event, delta=2.5e-7) == 4
    spending = charged(cap, event, delta=2.5e-7)
    assert spending.mode == "basic"
    assert charged(cap, Gaussian(100.0), event) is not None


# How much is lost


@pytest.mark.parametrize(
    ("fits", "least"), [(10, 9), (100, 97), (1000, 978)], ids=["ten", "hundred", "thousand"]
)
def test_equal_gaussian_fits_lose_two_per_cent(fits, least):
    """PRIVACY_MATH §9.4: the ideal is as many as fits, all of mu(1, 1e-6)^2."""
    assert count(CAP, Gaussian(math.sqrt(fits) / gaussian_mu(1.0, 1e-6))) == least


@pytest.mark.parametrize(
    ("event", "granted"),
    [
        (Exponential(0.2 * gaussian_mu(1.0, 1e-6)), 86),
        (PureDP(0.1 * gaussian_mu(1.0, 1e-6)), 88),
        (Compose((Gaussian(10 / gaussian_mu(1.0, 1e-6)), Exponential(0.2 * gaussian_mu(1.0, 1e-6)))), 42),
    ],
    ids=["selections", "pure", "by turns"],
)
def test_other_releases_of_a_hundredth_of_the_cap(event, granted):
    """The table of docs/ledger.md."""
    assert count(CAP, event) == granted


def test_a_mixture_after_a_gaussian_charge_may_have_three_quarters():
    """PRIVACY_MATH §9.4: 73 % of the exact rule's sum of mu^2."""
    rule, (limit,) = filters._filters(CAP, "gaussian")["renyi"]
    part = 2 * limit / filters.SCALE / rule.order / gaussian_mu(1.0, 1e-6) ** 2
    assert part == pytest.approx(0.73, abs=0.005)


def test_mixed_fits_lose_a_twentieth_of_what_fits_if_their_number_is_fixed():
    event = Compose((Gaussian(60.0), Exponential(2 / 60.0)))
    ideal = 1
    while accounting.RDP().epsilon(Repeat(event, ideal + 1), 1e-6) <= 1.0:
        ideal += 1
    assert 0.95 * ideal < count(CAP, event) < ideal


def test_plain_sums_are_always_possible():
    """Whatever was promised as (epsilon, delta) parts of the cap, from the first charge on, fits."""
    for parts in (2, 3, 5, 10):
        for event in (ApproxDP(1 / parts, 1e-6 / parts), PureDP(1 / parts), Exponential(1 / parts)):
            assert count(CAP, event) >= parts


BOUNDED = Bounds(1.0)
PLANS = {
    "gradient descent": (NoisyGradientDescent(), Logistic(), L2Ball(3.0)),
    "mirror descent": (NoisyMirrorDescent(), Logistic(), L1Ball(3.0)),
    "accelerated": (NoisyAcceleratedMirrorDescent(), Logistic(), L2Ball(3.0)),
    "frank-wolfe": (NoisyFrankWolfe(), Huber(1.0), L1Ball(3.0)),
    "corrective": (NoisyCorrectiveFrankWolfe(), Huber(1.0), L1Ball(3.0)),
    "svrg": (NoisySVRG(n_epochs=1, n_steps=4), Logistic(), L2Ball(3.0)),
    "objective": (ObjectivePerturbation(), Logistic(), L2Ball(3.0)),
    "output": (OutputPerturbation(), Logistic(), L2Ball(3.0)),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name == "svrg" else name for name in PLANS]
)
def test_a_single_fit_at_the_cap_always_fits(name):
    solver, loss, domain = PLANS[name]
    problem = Problem(loss, domain, bounds=BOUNDED, d=5, l2=0.1)
    made = plan(problem, 2000, CAP, (solver,))
    spending = admit(CAP, FRESH, made.event, failure=made.price.failure, delta=spendable(CAP).delta)
    assert spending is not None
    assert spending.used(CAP) > 0.9 * WHOLE
    assert spending.used(CAP) <= WHOLE
    halves = Budget(0.5, 5e-7)
    made = plan(problem, 2000, halves, (solver,))
    again = {"failure": made.price.failure, "delta": spendable(halves).delta}
    assert (
        charged(CAP, made.event, made.event, **again) is not None
    )  # two of half the epsilon and half the delta


# Samplers


def test_sampling_failures_have_a_reserve_of_their_own():
    limit = SAMPLER_SHARE * CAP.delta / (1 + math.e)
    for event in (Gaussian(1000.0), Exponential(0.001)):
        spending = charged(CAP, event, failure=0.4 * limit)
        spending = admit(CAP, spending, event, failure=0.4 * limit)
        assert spending.failed(CAP) == pytest.approx(0.8 * WHOLE)
        assert admit(CAP, spending, event, failure=0.4 * limit) is None
        assert admit(CAP, spending, event, failure=0.1 * limit) is not None


def test_basic_composition_pays_for_failures_out_of_delta():
    failure = 1e-7 / (1 + math.e)
    assert count(CAP, ApproxDP(0.01, 1e-7), failure=failure) == 5
    assert count(CAP, ApproxDP(0.01, 1e-7)) == 10
    assert count(CAP, Repeat(ApproxDP(0.01, 1e-7), 5)) == 2


def test_the_whole_account_includes_the_failures():
    event = Gaussian(1 / gaussian_mu(1.0, 1e-6 * (1 - SAMPLER_SHARE)))
    assert charged(CAP, event, failure=0.99 * SAMPLER_SHARE * 1e-6 / (1 + math.e)).mode == "whole"
    assert charged(CAP, event, failure=1.01 * SAMPLER_SHARE * 1e-6 / (1 + math.e)) is None


# What is written down


def test_written_totals_are_checked_against_the_price():
    event, settings = Gaussian(30.0), {"failure": 1e-20, "delta": None}
    before = charged(CAP, Gaussian(50.0))
    after = admit(CAP, before, event, failure=1e-20)
    assert Spending.from_plain(after.to_plain()) == after
    assert covers(CAP, before, after, event, **settings)
    less = tuple((name, tuple(part - part // 10**6 for part in total)) for name, total in after.totals)
    for forged in (
        replace(after, totals=less),
        replace(after, failure=0),
        replace(after, mode="basic"),
        replace(after, mode="whole", totals=()),
        replace(after, totals=()),
        before,
    ):
        assert not covers(CAP, before, forged, event, **settings)
    assert not covers(CAP, FRESH, Spending("whole"), Gaussian(0.1), failure=0.0, delta=None)
    beyond = tuple((name, tuple(100 * part for part in total)) for name, total in after.totals)
    assert not covers(CAP, before, replace(after, totals=beyond), event, **settings)  # above the cap


def test_what_is_no_event_is_refused():
    with pytest.raises(NotAccountable):
        admit(CAP, FRESH, "Gaussian")


def test_perturbed_objectives_compose_by_renyi():
    assert charged(CAP, PerturbedObjective(0.02, 0.02)).mode == "renyi"
    assert count(CAP, PerturbedObjective(0.02, 0.02)) >= 8


def test_nothing_is_left_for_a_gaussian_release_without_delta():
    assert filters.remaining(CAP, FRESH, 0.0) == 0.0
    assert filters.remaining(Budget(1.0, 0.0), FRESH, 1e-6) == 0.0
    assert filters.remaining(CAP, FRESH, 1e-6) > 0.9
