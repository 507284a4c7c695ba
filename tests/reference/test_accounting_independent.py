"""The accounting against integration, enumeration and dp-accounting, none of which shares its formulas."""

import itertools
import math

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from scipy.integrate import quad
from scipy.optimize import brentq, minimize_scalar
from scipy.special import ndtr
from scipy.stats import norm

from dpcvx.accounting import (
    GDP,
    PLD,
    RDP,
    AdaptiveSelection,
    PureComposition,
    Tight,
    explain_size,
    gaussian,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    selection_delta,
    selection_renyi,
)
from dpcvx.accounting.objective import objective_delta, objective_epsilon
from dpcvx.events import ApproxDP, Compose, Exponential, Gaussian, PerturbedObjective, Poisson, PureDP, Repeat


def _hockey_stick(epsilon, first, second, edges):
    """Integrate (p - e^epsilon q)_+ piece by piece."""
    pieces = (
        quad(lambda x: max(0.0, first(x) - math.exp(epsilon) * second(x)), a, b, epsabs=1e-14, limit=200)[0]
        for a, b in itertools.pairwise(edges)
    )
    return sum(pieces)


class TestGaussian:
    @pytest.mark.parametrize(("epsilon", "mu"), [(0.0, 0.3), (0.1, 0.2), (1.0, 0.5), (1.0, 3.0), (5.0, 1.5)])
    def test_delta_by_integration(self, epsilon, mu):
        threshold = epsilon / mu + mu / 2  # where the likelihood ratio passes e^epsilon
        delta = _hockey_stick(
            epsilon, norm(mu).pdf, norm(0).pdf, [threshold, threshold + 1, threshold + 3, threshold + 12]
        )
        assert gaussian_delta(epsilon, mu) == pytest.approx(delta, rel=1e-8)

    @pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 8.0, 50.0])
    @pytest.mark.parametrize("delta", [1e-12, 1e-6, 1e-2])
    def test_noise_against_dp_accounting(self, epsilon, delta):
        assert 1 / gaussian_mu(epsilon, delta) == pytest.approx(
            dp_accounting.get_sigma_gaussian(epsilon, delta), rel=1e-7
        )

    def test_small_mu_joins_on_continuously(self):
        for ratio in (0.0, 0.5, 3.0, 20.0):
            below, above = (
                gaussian_delta(ratio * mu, mu) / mu for mu in (1e-5 * (1 - 1e-9), 1e-5 * (1 + 1e-9))
            )
            assert below == pytest.approx(above, rel=1e-8)

    def test_renyi_against_dp_accounting(self):
        orders = (1.5, 2.0, 5.0, 10.0, 30.0, 100.0)
        accountant = RdpAccountant(orders).compose(dp_event.GaussianDpEvent(4.0), 3)
        event = Repeat(Gaussian(4.0), 3)
        assert RDP(orders).epsilon(event, 1e-6) == pytest.approx(accountant.get_epsilon(1e-6), rel=1e-9)
        assert RDP(orders).delta(event, 1.0) == pytest.approx(accountant.get_delta(1.0), rel=1e-9)

    @pytest.mark.parametrize("mu", [1e-4, 0.01, 0.5, 3.0, 30.0])
    def test_the_best_order_is_found(self, mu):
        def bound(log_less):
            a = 1 + math.exp(log_less)
            return a * mu**2 / 2 + math.log((a - 1) / a) - (math.log(1e-7) + math.log(a)) / (a - 1)

        centre = math.log(math.sqrt(2 * math.log(1e7)) / mu)
        best = minimize_scalar(
            bound, bounds=(centre - 2, centre + 2), method="bounded", options={"xatol": 1e-9}
        )
        found = RDP().epsilon(Gaussian(1 / mu), 1e-7)
        assert found == pytest.approx(best.fun, rel=1e-6)
        assert found >= gaussian_epsilon(mu, 1e-7)


class TestSelection:
    @pytest.mark.parametrize("eta", [1e-5, 0.01, 0.3, 1.0, 5.0, 30.0])
    @pytest.mark.parametrize("order", [1.001, 1.5, 2.0, 10.0, 300.0])
    def test_renyi_is_the_worst_two_point_pair(self, eta, order):
        def divergence(t):
            p = math.expm1(t - eta) / math.expm1(-eta)
            # E_Q of ratio^order with the two ratios e^t and e^{t - eta}, in logarithms
            terms = math.log(p) + (order - 1) * t, math.log1p(-p) + (order - 1) * (t - eta)
            return np.logaddexp(*terms) / (order - 1)

        worst = minimize_scalar(
            lambda t: -divergence(t),
            bounds=(1e-9 * eta, (1 - 1e-9) * eta),
            method="bounded",
            options={"xatol": 1e-12 * eta},
        )
        tolerance = 1e-6 if eta >= 0.01 else 1e-3  # the pair's own logarithms cancel for small eta
        assert float(selection_renyi(np.array([order]), eta)[0]) == pytest.approx(-worst.fun, rel=tolerance)

    @pytest.mark.parametrize("eta", [1e-7, 1e-3, 0.02, 1.0])
    def test_renyi_is_below_the_concentrated_bound(self, eta):
        orders = np.geomspace(1.0001, 1e9, 400)
        curve = selection_renyi(orders, eta)
        assert np.all(curve <= np.minimum(orders * eta**2 / 8, eta) * (1 + 1e-9))
        assert np.all(np.diff(curve) >= -1e-15)
        near = orders * eta < 0.02
        if near.any():
            assert curve[near] == pytest.approx(orders[near] * eta**2 / 8, rel=1e-4)

    @pytest.mark.parametrize("eta", [0.05, 1.0, 4.0])
    def test_profile_is_the_worst_two_point_pair(self, eta):
        for epsilon in np.linspace(-eta, eta, 9):
            t = np.linspace(0, eta, 20001)
            first = np.expm1(t - eta) / np.expm1(-eta)
            gain = np.maximum(first * -np.expm1(epsilon - t), 0)
            gain += np.maximum((1 - first) * -np.expm1(epsilon - t + eta), 0)
            assert float(selection_delta(epsilon, eta)) == pytest.approx(gain.max(), rel=1e-6, abs=1e-12)

    @pytest.mark.parametrize("epsilon", [-2.0, -1.0, 0.0, 0.7])
    def test_profile_belongs_to_its_loss_density(self, epsilon):
        eta = 1.3

        def gain(loss):
            return math.exp(loss / 2) / (4 * math.sinh(eta / 2)) * -math.expm1(epsilon - loss)

        delta = quad(gain, max(epsilon, -eta), eta)[0]
        assert float(selection_delta(epsilon, eta)) == pytest.approx(delta, rel=1e-9)


class TestPure:
    @pytest.mark.parametrize(("epsilon0", "count"), [(0.3, 1), (0.3, 6), (1.2, 5), (0.05, 12)])
    def test_enumeration_of_randomised_responses(self, epsilon0, count):
        truth = 1 / (1 + math.exp(-epsilon0))
        event = Repeat(PureDP(epsilon0), count)
        for epsilon in np.linspace(0, 0.9 * count * epsilon0, 4):
            delta = 0.0
            for answers in itertools.product((True, False), repeat=count):
                p = math.prod(truth if a else 1 - truth for a in answers)
                q = math.prod(1 - truth if a else truth for a in answers)
                delta += max(0.0, p - math.exp(epsilon) * q)
            assert PureComposition().delta(event, epsilon) == pytest.approx(delta, rel=1e-9)

    @pytest.mark.parametrize("epsilon0", [1e-6, 0.01, 0.5, 3.0, 40.0])
    def test_renyi_curve_of_randomised_response(self, epsilon0):
        orders = np.array([1.01, 1.5, 2.0, 7.0, 15.0])
        p = 1 / (1 + math.exp(-epsilon0))
        q = math.exp(-epsilon0) * p
        if epsilon0 >= 0.01:
            moment = p**orders * q ** (1 - orders) + q**orders * p ** (1 - orders)
            expected = np.log(moment) / (orders - 1)
        else:
            expected = orders * epsilon0**2 / 2
        assert RDP().curve(PureDP(epsilon0), orders) == pytest.approx(expected, rel=1e-6)

    def test_many_releases_stay_stable(self):
        for count in (10_000, 100_000):
            epsilon0 = 0.3 / math.sqrt(count)
            epsilon = PureComposition().epsilon(Repeat(PureDP(epsilon0), count), 1e-6)
            # In the limit the releases are Gaussian with mu = epsilon0 sqrt(count).
            assert epsilon == pytest.approx(gaussian_epsilon(0.3, 1e-6), rel=1e-3)


class TestLossDistribution:
    @pytest.mark.parametrize(("count", "noise_multiplier"), [(1, 1.0), (10, 3.0), (1000, 50.0)])
    def test_plain_gaussian_is_exact(self, count, noise_multiplier):
        event = Repeat(Gaussian(noise_multiplier), count)
        exact = GDP().epsilon(event, 1e-6)
        assert exact <= PLD().epsilon(event, 1e-6) <= exact * (1 + 1e-5)

    @pytest.mark.parametrize(("count", "noise_multiplier"), [(1000, 50.0), (3000, 100.0)])
    def test_small_deltas_are_not_optimistic(self, count, noise_multiplier):
        """Rounding inside the Fourier transform alone makes these deltas too small."""
        event = Repeat(Gaussian(noise_multiplier), count)
        for delta in (1e-10, 1e-11, 1e-12):
            assert PLD().epsilon(event, delta) >= GDP().epsilon(event, delta)
            assert PLD().delta(event, GDP().epsilon(event, delta)) >= delta

    @pytest.mark.long
    @pytest.mark.parametrize("relation", ["replace", "add_remove"])
    @pytest.mark.parametrize(("probability", "noise_multiplier"), [(0.05, 1.0), (0.3, 2.0)])
    def test_one_poisson_release_by_integration(self, relation, probability, noise_multiplier):
        far = -1 if relation == "replace" else 0
        q, s = probability, noise_multiplier

        def with_record(x):
            return (1 - q) * norm.pdf(x, 0, s) + q * norm.pdf(x, 1, s)

        def with_other(x):
            return (1 - q) * norm.pdf(x, 0, s) + q * norm.pdf(x, far, s)

        edges = np.linspace(-8 * s, 8 * s + 1, 60)
        for epsilon in (0.0, 0.05, 0.2):
            delta = max(
                _hockey_stick(epsilon, with_record, with_other, edges),
                _hockey_stick(epsilon, with_other, with_record, edges),
            )
            found = PLD().delta(Poisson(q, s, relation), epsilon)
            assert delta * (1 - 1e-7) <= found <= delta * (1 + 1e-4) + 1e-9

    @pytest.mark.parametrize("relation", ["replace", "add_remove"])
    def test_poisson_releases_against_dp_accounting(self, relation):
        neighbours = {
            "replace": dp_accounting.NeighboringRelation.REPLACE_ONE,
            "add_remove": dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE,
        }
        accountant = PLDAccountant(neighbours[relation])
        accountant.compose(dp_event.PoissonSampledDpEvent(0.1, dp_event.GaussianDpEvent(3.0)), 40)
        event = Repeat(Poisson(0.1, 3.0, relation), 40)
        assert PLD().epsilon(event, 1e-5) == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-6)

    def test_a_gaussian_beside_a_poisson_sample_is_not_doubled(self):
        """dp-accounting doubles a plain Gaussian under replace-one; the event is already relative to it."""
        accountant = PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_ONE)
        accountant.compose(dp_event.PoissonSampledDpEvent(0.1, dp_event.GaussianDpEvent(3.0)), 10)
        accountant.compose(dp_event.GaussianDpEvent(8.0))
        event = Compose((Repeat(Poisson(0.1, 3.0), 10), Gaussian(4.0)))
        assert PLD().epsilon(event, 1e-5) == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-6)

    def test_pure_releases_meet_the_optimal_composition(self):
        event = Repeat(PureDP(0.1), 20)
        exact = PureComposition().epsilon(event, 1e-6)
        assert exact * (1 - 1e-9) <= PLD().epsilon(event, 1e-6) <= exact * (1 + 1e-4)

    def test_selections_beside_poisson_samples(self):
        alone, few = Repeat(Poisson(0.1, 3.0), 10), Repeat(Exponential(0.2), 2)
        both = PLD().epsilon(Compose((alone, few)), 1e-6)
        assert PLD().epsilon(alone, 1e-6) < both < PLD().epsilon(alone, 1e-6) + 0.4
        assert PLD().delta(Exponential(0.2), 0.1) == pytest.approx(float(selection_delta(0.1, 0.2)), rel=1e-6)

    def test_hopeless_noise_is_said_to_be_so(self):
        for event in (Poisson(0.1, 1e-6), PureDP(1e6), Compose((Gaussian(1e-6), Exponential(1e6)))):
            assert PLD().epsilon(event, 1e-6) == math.inf
            assert PLD().delta(event, 1.0) == 1.0

    def test_protection_is_computed_where_it_is_and_not_where_losses_would_fill_the_memory(self):
        many = Repeat(Exponential(0.01), 100_000)  # a mean loss of 100,000 times 0.01^2/8
        assert PLD(1e-3).epsilon(many, 1e-6) == pytest.approx(RDP().epsilon(many, 1e-6), rel=0.2)
        # A shift of mu = 2/noise has losses around mu^2/2 with a standard deviation of mu: 550 and 1200 at
        # ten of them.
        assert PLD(1e-2).epsilon(Poisson(1e-3, 0.08), 1e-6) < math.inf
        assert PLD(1e-2).epsilon(Poisson(1e-3, 0.05), 1e-6) == math.inf


@pytest.mark.parametrize("mu", [1e-6, 1e-5, 1e-4, 1e-3, 0.1, 3.0])
@pytest.mark.parametrize("far", [0.0, 0.5, 3.0, 20.0, 35.0])
def test_gaussian_deltas_have_nine_digits_also_in_the_tail(mu, far):
    epsilon = far * mu
    with mpmath.workdps(60):
        shift, size = mpmath.mpf(mu), mpmath.mpf(epsilon)
        first, second = (mpmath.ncdf(sign * shift / 2 - size / shift) for sign in (1, -1))
        exact = float(mpmath.log(first - mpmath.exp(size) * second))
    # delta to nine digits is its logarithm to 1e-9
    assert gaussian._log_delta(epsilon, mu) == pytest.approx(exact, rel=1e-15, abs=1e-9)


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
@pytest.mark.parametrize("unit", ["row", "person"])
def test_nothing_is_claimed_below_the_jacobian_and_no_negative_epsilon_is_priced(relation, unit):
    event = PerturbedObjective(0.3, 0.5, relation, unit)
    if relation == "replace" or unit == "person":
        assert objective_delta(0.4, event) == 1.0
    assert 0 < objective_delta(4.0, event) < 1e-6 < objective_delta(1.2, event) < 1
    for epsilon in (-0.1, math.nan):
        with pytest.raises(ValueError, match="epsilon is"):
            objective_delta(epsilon, event)

    large = PerturbedObjective(3.0, 0.1, relation, unit)
    assert max(objective_delta(epsilon, large) for epsilon in np.linspace(0, 40, 81)) <= 1


def test_deltas_of_parts_add_up_to_no_more_than_one():
    assert Tight().delta(Compose((ApproxDP(0.1, 0.6), Gaussian(0.05))), 0.2) == 1.0


def test_squares_of_mu_add_up():
    event = Compose((Gaussian(2.0), Repeat(Gaussian(3.0), 4), Gaussian(7.0)))
    alone = Gaussian(1 / math.sqrt(1 / 4 + 4 / 9 + 1 / 49))
    for accountant in (GDP(), Tight()):
        assert accountant.epsilon(event, 1e-6) == pytest.approx(accountant.epsilon(alone, 1e-6), rel=1e-12)
        assert accountant.delta(event, 1.0) == pytest.approx(accountant.delta(alone, 1.0), rel=1e-12)


@pytest.mark.parametrize("eta", [0.05, 1.0, 4.0])
def test_epsilon_and_delta_of_one_selection_are_inverse(eta):
    for delta in (1e-12, 1e-6, 0.01):
        epsilon = AdaptiveSelection().epsilon(Exponential(eta), delta)
        if epsilon > 0:
            assert float(selection_delta(epsilon, eta)) == pytest.approx(delta, rel=1e-6)
        else:
            assert float(selection_delta(0.0, eta)) <= delta


@pytest.mark.parametrize("shift", [0.01, 0.3, 2.0])
@pytest.mark.parametrize("relation", ["replace", "add_remove"])
@pytest.mark.parametrize("unit", ["row", "person"])
def test_the_epsilon_of_a_perturbed_objective_has_its_delta(shift, relation, unit):
    # Also for large deltas, where the profile begins with an epsilon below which nothing is proved.
    event = PerturbedObjective(shift, 0.2, relation, unit)
    for delta in (1e-9, 1e-3, 0.3, 0.9):
        assert objective_delta(objective_epsilon(event, delta) * (1 + 1e-9), event) <= delta * (1 + 1e-6)


def test_a_large_epsilon_is_explained():
    assert explain_size(10.0) == explain_size(0.1) == ""
    assert "promises little" in explain_size(10.1)


def one_sample(probability, noise, epsilon):
    """Exact delta of one Poisson sample under replace: shifts of 1 and -1, each with the probability."""

    def likelihood(x, shift):
        return 1 - probability + probability * math.exp((2 * shift * x - 1) / (2 * noise**2))

    cut = brentq(lambda x: math.log(likelihood(x, 1) / likelihood(x, -1)) - epsilon, 0.0, 40 * noise)
    gain = ndtr(-(cut - 1) / noise) - math.exp(epsilon) * ndtr(-(cut + 1) / noise)
    return (1 - probability) * (1 - math.exp(epsilon)) * ndtr(-cut / noise) + probability * gain


@pytest.mark.parametrize(
    ("levels", "noise", "count", "interval", "epsilon"),
    [
        (2, 0.7184742481046682, 426, 1e-4, 2.0),
        (6, 0.5750563520232557, 3069, 0.0024405162796889684, 16.0),
        (1, 0.5916021701271859, 5393, 0.0205524884373119, 2.0),
        (9, 0.5150719307526502, 39, 0.004629868451150243, 8.0),
    ],
)
def test_rounding_of_a_composition_never_takes_delta_below_the_truth(levels, noise, count, interval, epsilon):
    """Many releases are no more private than one, whose delta is known in closed form.

    Here the library alone has been seen to answer with negative numbers, below -2^-52 per release.
    """
    event = Poisson(levels * 2.0**-16, noise)
    accountant = PLD(interval)
    composed, allowance = accountant._composed(Repeat(event, count))
    least = one_sample(event.probability, noise, epsilon)
    assert accountant.delta(Repeat(event, count), epsilon) >= max(least, allowance)
    assert composed.get_delta_for_epsilon(epsilon) + allowance > least
