"""What the best of a random number of runs costs: against exact laws, an independent formula and a peer."""

import math

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant
from scipy.special import logsumexp
from scipy.stats import norm

from dpcvx.accounting import RDP, Budget, Tight, calibrate
from dpcvx.accounting.repetition import poisson_rate, success_probability
from dpcvx.errors import NotAccountable
from dpcvx.events import (
    ApproxDP,
    Compose,
    Exponential,
    Gaussian,
    PerturbedObjective,
    Poisson,
    PureDP,
    Repeat,
    RepeatAndSelect,
    Worst,
    from_plain,
    to_plain,
)
from dpcvx.noise import SeededGenerator
from dpcvx.tuning.repetitions import repetitions
from tuning_theory import lemma_7, log_slope

LAWS = {"poisson": None, "geometric": 1.0, "logarithmic": 0.0, "negative binomial": 2.5}
law = pytest.mark.parametrize("shape", LAWS.values(), ids=LAWS)


def generating(x, mean, shape):
    """E x^K, written down once more from the definitions."""
    if shape is None:
        rate = poisson_rate(mean)
        return np.expm1(rate * x) / np.expm1(rate)
    g = success_probability(mean, shape)
    if shape == 0:
        return np.log1p(-(1 - g) * x) / np.log(g)
    return ((1 - (1 - g) * x) ** -shape - 1) / (g**-shape - 1)


def renyi(p, q, order):
    return float(logsumexp(order * np.log(p) + (1 - order) * np.log(q))) / (order - 1)


@law
@pytest.mark.parametrize("mean", [1.5, 10.0, 80.0])
def test_laws_have_their_mean(mean, shape):
    step = 1e-6
    slope = (generating(1.0, mean, shape) - generating(1 - step, mean, shape)) / step
    assert slope == pytest.approx(mean, rel=1e-3)
    assert generating(1.0, mean, shape) == pytest.approx(1)
    assert generating(0.0, mean, shape) == pytest.approx(0, abs=1e-12)
    assert log_slope(1.0, mean, shape) == pytest.approx(math.log(mean), rel=1e-6)


@law
@pytest.mark.parametrize("mean", [3.0, 20.0])
def test_the_exact_divergence_of_the_best_run_is_within_the_curve(mean, shape):
    """Gaussian runs whose score is their output: the best one's density is f'(P(below y)) times one run's."""
    mu = 0.3
    y, step = np.linspace(-12, 24, 20001, retstep=True)
    logs = [log_slope(norm.cdf(y, shift), mean, shape) + norm.logpdf(y, shift) for shift in (0.0, mu)]
    first, second = (np.exp(log) * step for log in logs)
    assert first.sum() == pytest.approx(1, rel=1e-6)
    for order in (2.0, 8.0, 30.0):
        bound = float(RDP().curve(RepeatAndSelect(Gaussian(1 / mu), mean, shape), np.array([order]))[0])
        exact = max(renyi(first, second, order), renyi(second, first, order))
        single = order * mu**2 / 2
        assert exact <= bound
        assert exact > single / 2  # the comparison is not an empty one


@law
@pytest.mark.parametrize(("mu", "mean"), [(0.1, 4.0), (0.15, 20.0), (1.0, 10.0)])
@pytest.mark.long
def test_the_total_is_that_of_lemma_7_computed_apart(mu, mean, shape):
    total = Tight().epsilon(RepeatAndSelect(Gaussian(1 / mu), mean, shape), 1e-6)
    apart = lemma_7(mu, mean, shape, 1e-6)
    assert apart * (1 - 1e-6) <= total <= apart * 1.002


def test_poisson_is_theorem_6_with_an_exact_profile():
    mu, mean, order = 0.2, 6.0, 9.0
    e = math.log(order / (order - 1))
    delta = norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu)
    rate = poisson_rate(mean)
    expected = order * mu**2 / 2 + rate * delta + math.log(rate / -math.expm1(-rate)) / (order - 1)
    curve = RDP().curve(RepeatAndSelect(Gaussian(1 / mu), mean), np.array([order]))
    assert curve[0] == pytest.approx(expected, rel=1e-9)


ORDERS = list(1 + np.exp(np.linspace(-2, 6, 300)))


@law
@pytest.mark.parametrize("mean", [3.0, 10.0, 30.0])
def test_never_above_the_published_theorems(mean, shape):
    """dp_accounting evaluates Theorems 2 and 6, and takes the multiplier as it is (PRIVACY_MATH §8)."""
    peer = RdpAccountant(ORDERS)
    other = math.inf if shape is None else shape
    peer.compose(dp_event.RepeatAndSelectDpEvent(dp_event.GaussianDpEvent(8.0), mean, other))
    theirs, ours = peer.get_epsilon(1e-6), Tight().epsilon(RepeatAndSelect(Gaussian(8.0), mean, shape), 1e-6)
    assert 0.5 * theirs < ours < theirs


@pytest.mark.parametrize(
    "base",
    [
        Repeat(Exponential(0.05), 20),
        Compose((PerturbedObjective(0.05, 0.1), Gaussian(50.0))),
        PureDP(0.2),
        Worst((Gaussian(8.0), Repeat(Exponential(0.05), 20))),
    ],
    ids=["selections", "objective", "pure", "worst"],
)
@pytest.mark.parametrize("shape", [0.0, 1.0], ids=["logarithmic", "geometric"])
def test_other_runs_cost_at_most_what_theorem_2_says(base, shape):
    mean, delta = 12.0, 1e-6
    orders = np.array(ORDERS)
    curve = RDP().curve(base, orders)
    success = success_probability(mean, shape)
    fixed = (1 + shape) * ((1 - 1 / orders) * curve - math.log(success) / orders).min()
    selected = curve + fixed + math.log(mean) / (orders - 1)
    converted = selected + np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)
    total = Tight().epsilon(RepeatAndSelect(base, mean, shape), delta)
    assert Tight().epsilon(base, delta) < total < converted.min()


@law
def test_randomised_response_is_within_its_curve(shape):
    epsilon, mean = 0.7, 5.0
    chance = math.exp(epsilon) / (1 + math.exp(epsilon))
    laws = [np.diff(generating(np.array([0.0, 1 - p, 1.0]), mean, shape)) for p in (chance, 1 - chance)]
    for order in (1.5, 4.0, 20.0):
        bound = RDP().curve(RepeatAndSelect(PureDP(epsilon), mean, shape), np.array([order]))[0]
        assert max(renyi(*laws, order), renyi(*laws[::-1], order)) <= bound


class TestWorst:
    parts = (Gaussian(5.0), Exponential(0.5))

    def test_is_the_larger_curve_at_every_order(self):
        orders = np.array([1.5, 4.0, 50.0])
        curves = [RDP().curve(part, orders) for part in self.parts]
        assert np.array_equal(RDP().curve(Worst(self.parts), orders), np.maximum(*curves))
        assert curves[0][0] < curves[1][0]
        assert curves[0][2] > curves[1][2]

    def test_a_public_draw_between_two_releases_costs_no_more(self):
        """Half the time a coin with ratio e^0.5 is tossed, half the time one with e^0.1: exact law."""
        p, q = (
            np.concatenate([0.5 * np.array([b, 1 - b]), 0.5 * np.array([c, 1 - c])])
            for b, c in ((0.6225, 0.525), (0.3775, 0.475))
        )
        bound = RDP().curve(Worst((PureDP(0.5), PureDP(0.1))), np.array([3.0]))[0]
        assert 0.5 * bound < renyi(p, q, 3.0) <= bound

    def test_same_parts_cost_what_one_costs(self):
        once, twice = (
            RepeatAndSelect(event, 7.0, 1.0) for event in (Gaussian(4.0), Worst((Gaussian(4.0),) * 2))
        )
        assert Tight().epsilon(once, 1e-6) == pytest.approx(Tight().epsilon(twice, 1e-6), rel=1e-12)


def test_calibration_reaches_the_budget():
    budget = Budget(1.0, 1e-6)
    noise = calibrate(lambda t: RepeatAndSelect(Gaussian(t), 20.0, 1.0), budget, Tight())
    assert Tight().epsilon(RepeatAndSelect(Gaussian(noise), 20.0, 1.0), 1e-6) == pytest.approx(1.0, rel=1e-6)


def test_samples_and_bare_guarantees_have_no_rule_inside():
    for base in (Poisson(0.1, 5.0), ApproxDP(0.1, 1e-9)):
        assert not RDP().supports(RepeatAndSelect(base, 5.0))
        with pytest.raises(NotAccountable, match=type(base).__name__):
            RDP().epsilon(RepeatAndSelect(base, 5.0), 1e-6)


def test_relations_are_read_inside():
    mixed = Compose(
        (RepeatAndSelect(PerturbedObjective(0.1, 0.1), 3.0), PerturbedObjective(0.1, 0.1, "add_remove"))
    )
    with pytest.raises(NotAccountable, match="relation"):
        Tight().epsilon(mixed, 1e-6)


def test_beside_a_poisson_sample_it_is_added_by_basic_composition():
    selected, sample = RepeatAndSelect(Gaussian(20.0), 4.0, 1.0), Poisson(0.1, 10.0)
    both = Tight().epsilon(Compose((selected, sample)), 1e-6)
    assert both == pytest.approx(Tight().epsilon(selected, 5e-7) + Tight().epsilon(sample, 5e-7))


def test_plain_form_reads_back():
    event = RepeatAndSelect(Worst((Gaussian(2.0), Repeat(Exponential(0.1), 3))), 4.0)
    assert from_plain(to_plain(event)) == event
    assert from_plain(to_plain(RepeatAndSelect(Gaussian(2.0), 4.0, 1.0))).shape == 1.0
    with pytest.raises(NotAccountable):
        to_plain(Worst(("fit",)))


@pytest.mark.parametrize("mean", [5.0, 140.0, 160.0, 400.0, 3000.0])
def test_a_law_whose_first_chances_are_tiny_is_drawn_all_the_same(mean):
    """From a mean of 144 on P(1) is below 10^-60, where the tail was taken to have ended."""
    rng = SeededGenerator(3)
    drawn = np.array([repetitions(mean, None, rng) for _ in range(200)])
    deviation = np.sqrt(poisson_rate(mean))
    assert abs(drawn.mean() - mean) < 5 * deviation / np.sqrt(200)
    assert 0.7 * deviation < drawn.std() < 1.3 * deviation
