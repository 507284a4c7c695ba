"""Every accountant keeps the promises of the protocol, for every event it covers."""

import math
import pickle
import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcvx.accounting import (
    GDP,
    PLD,
    RDP,
    AdaptiveSelection,
    Budget,
    ObjectiveProfile,
    PureComposition,
    Tight,
    calibrate,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    objective_delta,
    spendable,
)
from dpcvx.errors import BudgetExceeded, NotAccountable
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
    count_leaves,
)
from zoo import ALL_ACCOUNTANTS

DELTA = 1e-6
# Each kind of event as a function of its noise: more noise, more privacy.
KINDS = {
    "gaussian": lambda noise: Gaussian(noise),
    "exponential": lambda noise: Exponential(0.5 / noise),
    "pure": lambda noise: PureDP(0.5 / noise),
    "approximate": lambda noise: ApproxDP(0.5 / noise, 1e-9),
    "poisson": lambda noise: Poisson(0.2, 5 * noise),
    "poisson, add or remove": lambda noise: Poisson(0.2, 5 * noise, "add_remove"),
    "objective": lambda noise: PerturbedObjective(0.1 / noise, 0.02 / noise),
    "objective, add or remove": lambda noise: PerturbedObjective(0.1 / noise, 0.02 / noise, "add_remove"),
    "worst": lambda noise: Worst((Gaussian(2 * noise), Exponential(0.5 / noise))),
    "best of a geometric number": lambda noise: RepeatAndSelect(Gaussian(2 * noise), 5.0, 1.0),
    "best of a Poisson number": lambda noise: RepeatAndSelect(Gaussian(4 * noise), 3.0),
}
COVERED = [
    pytest.param(
        accountant,
        make,
        id=f"{accountant}-{kind}",
        # Composed numerically, in seconds; PLD, which Tight asks for them, stays in the quick suite.
        marks=[pytest.mark.long] if type(accountant) is Tight and "poisson" in kind else [],
    )
    for accountant in ALL_ACCOUNTANTS
    for kind, make in KINDS.items()
    if accountant.supports(make(2.0))
]


def test_the_table_of_rules_is_the_intended_one():
    covered = {
        type(a).__name__: {k for k, make in KINDS.items() if a.supports(make(2.0))} for a in ALL_ACCOUNTANTS
    }
    objectives = {"objective", "objective, add or remove"}
    made_of_others = {"worst", "best of a geometric number", "best of a Poisson number"}
    assert covered == {
        "GDP": {"gaussian"},
        "RDP": {"gaussian", "exponential", "pure"} | objectives | made_of_others,
        "PureComposition": {"exponential", "pure"},
        "AdaptiveSelection": {"exponential"},
        "PLD": set(KINDS) - {"approximate"} - objectives - made_of_others,
        "ObjectiveProfile": {"gaussian"} | objectives,
        "Tight": set(KINDS),
    }


@pytest.mark.parametrize(("accountant", "make"), COVERED)
class TestPromises:
    def test_repeat_is_compose(self, accountant, make):
        repeated, composed = Repeat(make(2.0), 4), Compose((make(2.0),) * 4)
        assert accountant.epsilon(repeated, DELTA) == accountant.epsilon(composed, DELTA) > 0
        assert accountant.delta(repeated, 0.3) == accountant.delta(composed, 0.3) > 0

    def test_nesting_multiplies(self, accountant, make):
        nested = Repeat(Compose((Repeat(make(2.0), 2), make(2.0))), 3)
        assert accountant.epsilon(nested, DELTA) == accountant.epsilon(Repeat(make(2.0), 9), DELTA)

    def test_the_count_is_not_forgotten(self, accountant, make):
        """A known accountant drops the count in one branch and reports 0.5 for what costs 15."""
        once, often = accountant.epsilon(make(2.0), DELTA), accountant.epsilon(Repeat(make(2.0), 64), DELTA)
        assert often > 5 * once

    def test_more_releases_cost_more(self, accountant, make):
        costs = [accountant.epsilon(Repeat(make(2.0), count), DELTA) for count in (1, 2, 3, 10)]
        assert all(a < b for a, b in pairwise(costs))
        deltas = [accountant.delta(Repeat(make(2.0), count), 0.1) for count in (1, 2, 3, 10)]
        assert all(a < b or a == b == 1 for a, b in pairwise(deltas))

    def test_parts_of_different_noise_all_count(self, accountant, make):
        both = accountant.epsilon(Compose((make(2.0), make(2.2))), DELTA)
        assert both > 1.02 * accountant.epsilon(make(2.0), DELTA)
        assert accountant.epsilon(Repeat(make(2.2), 2), DELTA) <= both * (1 + 1e-9)

    def test_more_noise_costs_less(self, accountant, make):
        costs = [accountant.epsilon(Repeat(make(noise), 3), DELTA) for noise in (1.0, 1.01, 2.0, 10.0)]
        assert all(a > b for a, b in pairwise(costs))

    def test_epsilon_falls_with_delta(self, accountant, make):
        costs = [accountant.epsilon(Repeat(make(2.0), 3), delta) for delta in (1e-8, 1e-5, 1e-2)]
        assert all(a >= b for a, b in pairwise(costs))

    def test_delta_and_epsilon_agree(self, accountant, make):
        event = Repeat(make(2.0), 3)
        epsilon = accountant.epsilon(event, DELTA)
        assert accountant.delta(event, epsilon * (1 + 1e-9)) <= DELTA
        assert accountant.delta(event, epsilon * (1 - 1e-3)) > DELTA

    def test_deltas_are_probabilities(self, accountant, make):
        for event in (make(2.0), Repeat(make(1.0), 3)):
            assert all(0 <= accountant.delta(event, epsilon) <= 1 for epsilon in (0.0, 5.0))

    def test_arguments_are_checked(self, accountant, make):
        for delta in (-0.1, 1.0, math.nan):
            with pytest.raises(ValueError, match="delta is"):
                accountant.epsilon(make(2.0), delta)
        for epsilon in (-0.1, math.nan):
            with pytest.raises(ValueError, match="epsilon is"):
                accountant.delta(make(2.0), epsilon)

    def test_calibration_is_private_and_tight(self, accountant, make):
        budget = Budget(0.7, 1e-5)
        noise = calibrate(lambda t: Repeat(make(t), 3), budget, accountant)
        assert accountant.epsilon(Repeat(make(noise), 3), budget.delta) <= budget.epsilon
        assert accountant.epsilon(Repeat(make(noise * (1 - 1e-6)), 3), budget.delta) > budget.epsilon


@pytest.mark.parametrize("accountant", [RDP(), PLD(interval=1e-3), Tight()], ids=str)
def test_order_does_not_matter(accountant):
    parts = (Gaussian(5.0), Repeat(Exponential(0.1), 4), PureDP(0.05))
    costs = [
        accountant.epsilon(Compose(order), DELTA) for order in (parts, parts[::-1], parts[1:] + parts[:1])
    ]
    assert costs == pytest.approx([costs[0]] * 3, rel=1e-9)
    assert costs[0] > accountant.epsilon(Compose(parts[:2]), DELTA)


@pytest.mark.parametrize("accountant", ALL_ACCOUNTANTS, ids=str)
def test_what_has_no_rule_raises(accountant):
    class Mystery:
        pass

    for unknown in (Mystery(), Repeat(Mystery(), 2), Compose((Gaussian(1.0), Mystery()))):
        for ask in (accountant.epsilon, accountant.delta):
            with pytest.raises(NotAccountable, match="Mystery"):
                ask(unknown, 0.1)
    for make in KINDS.values():
        mixed = Compose((make(2.0), Poisson(0.1, 1.0), ApproxDP(0.1, 1e-9), PureDP(1.0)))
        if not accountant.supports(mixed):
            with pytest.raises(NotAccountable, match=type(accountant).__name__):
                accountant.epsilon(mixed, DELTA)


def test_mixed_relations_are_refused():
    with pytest.raises(NotAccountable, match="one relation"):
        Tight().epsilon(Compose((Poisson(0.1, 1.0), Poisson(0.1, 1.0, "add_remove"))), DELTA)


class TestDeltaZero:
    def test_pure_events_add(self):
        event = Compose((Repeat(PureDP(0.25), 3), Exponential(0.5)))
        for accountant in (PureComposition(), RDP(), Tight()):
            assert accountant.epsilon(event, 0.0) == 1.25
            assert accountant.delta(event, 1.25) == 0.0
        assert AdaptiveSelection().epsilon(Repeat(Exponential(0.5), 3), 0.0) == 1.5
        assert AdaptiveSelection().delta(Repeat(Exponential(0.5), 3), 1.5) == 0.0
        assert AdaptiveSelection(grid=2).delta(Repeat(Exponential(0.01), 1000), 10.0) == 0.0

    @pytest.mark.parametrize("accountant", [GDP(), RDP(), PLD(), Tight()], ids=str)
    def test_gaussian_noise_cannot(self, accountant):
        assert accountant.epsilon(Gaussian(10.0), 0.0) == math.inf
        with pytest.raises(NotAccountable, match="out of reach"):
            calibrate(Gaussian, Budget(1.0, 0.0), accountant)

    def test_pure_noise_can(self):
        noise = calibrate(lambda t: Repeat(PureDP(1 / t), 10), Budget(1.0, 0.0), Tight())
        assert noise == pytest.approx(10.0, rel=1e-9)
        assert noise >= 10.0


def test_a_thousandth_of_delta_is_left_to_samplers():
    left = spendable(Budget(1.0, 1e-6))
    assert left.epsilon == 1.0
    assert left.delta == pytest.approx(0.999e-6, rel=1e-12)


class TestTight:
    @pytest.mark.parametrize("count", [1, 2, 10, 300])
    @pytest.mark.parametrize("make", [KINDS["gaussian"], KINDS["exponential"], KINDS["pure"]])
    def test_is_never_above_a_cheap_accountant(self, make, count):
        event = Repeat(make(5.0), count)
        cheap = [a for a in (GDP(), RDP(), PureComposition()) if a.supports(event)]
        for delta in (1e-9, 1e-3):
            best = min(a.epsilon(event, delta) for a in cheap)
            assert Tight().epsilon(event, delta) <= best * (1 + 1e-12)
            assert Tight().epsilon(event, delta) == pytest.approx(best, rel=1e-3)

    def test_known_pairs_are_added(self):
        event = Compose((Repeat(ApproxDP(0.25, 1e-7), 2), Repeat(Gaussian(8.0), 4)))
        assert Tight().epsilon(event, 1e-6) == 0.5 + gaussian_epsilon(0.25, 1e-6 - 2e-7)
        assert Tight().delta(event, 1.0) == 2e-7 + gaussian_delta(0.5, 0.25)
        assert Tight().epsilon(event, 1e-8) == math.inf
        assert Tight().delta(event, 0.4) == 1.0
        assert Tight().epsilon(ApproxDP(0.25, 1e-7), 1e-7) == 0.25

    @pytest.mark.parametrize("kind", ["objective", "objective, add or remove"])
    def test_one_objective_beside_its_output_noise_is_cheaper_by_its_profile(self, kind):
        objective, output = KINDS[kind](2.0), Gaussian(1000.0)
        event = Compose((objective, output))
        alone = ObjectiveProfile().epsilon(objective, DELTA)
        assert alone < ObjectiveProfile().epsilon(event, DELTA) < 1.05 * alone
        assert Tight().epsilon(event, DELTA) == ObjectiveProfile().epsilon(event, DELTA)
        assert Tight().epsilon(event, DELTA) < RDP().epsilon(event, DELTA)
        many = Repeat(event, 200)
        assert (
            Tight().epsilon(many, DELTA)
            == RDP().epsilon(many, DELTA)
            < ObjectiveProfile().epsilon(many, DELTA)
        )

    def test_an_objective_beside_samples_is_added(self):
        objective, sample = Repeat(KINDS["objective"](2.0), 3), KINDS["poisson"](2.0)
        event = Compose((objective, sample))
        sums = [Tight().epsilon(part, DELTA / 2) for part in (objective, sample)]
        assert Tight().epsilon(event, DELTA) == pytest.approx(sum(sums), rel=1e-12)
        assert Tight().delta(event, 2 * max(sums)) <= 1.001 * DELTA

    def test_nothing_is_claimed_of_a_replaced_record_below_the_condition(self):
        event = PerturbedObjective(0.5, 0.1)
        least = 0.1 + 2 * 0.5 * math.sqrt(1 + 0.5**2)
        assert objective_delta(least - 1e-9, event) == 1.0
        assert objective_delta(least + 1e-9, event) < 0.5
        assert ObjectiveProfile().epsilon(event, 0.9) == pytest.approx(least)
        assert ObjectiveProfile().delta(event, least - 1e-9) == 1.0

    def test_unequal_pure_events_cost_at_most_their_sum(self):
        event = Compose((PureDP(3.0), Repeat(PureDP(0.001), 100)))
        assert PureComposition().epsilon(event, 1e-6) <= 3.1
        assert 3.0 < Tight().epsilon(event, 1e-6) < 3.1


class TestCalibrate:
    @settings(max_examples=40, deadline=None)
    @given(
        st.floats(1e-3, 50.0),
        st.floats(-40.0, -3.0).map(math.exp),
        st.integers(1, 5000),
        st.sampled_from(
            [(GDP(), "gaussian"), (RDP(), "gaussian"), (RDP(), "exponential"), (Tight(), "pure")]
        ),
    )
    def test_any_budget_is_met(self, epsilon, delta, count, rule):
        accountant, kind = rule
        noise = calibrate(lambda t: Repeat(KINDS[kind](t), count), Budget(epsilon, delta), accountant)
        assert accountant.epsilon(Repeat(KINDS[kind](noise), count), delta) <= epsilon
        assert accountant.epsilon(Repeat(KINDS[kind](noise * (1 - 1e-6)), count), delta) > epsilon

    def test_agrees_with_the_closed_form(self):
        noise = calibrate(lambda t: Repeat(Gaussian(t), 100), Budget(1.0, 1e-6), Tight())
        assert noise == pytest.approx(10 / gaussian_mu(1.0, 1e-6), rel=1e-9)

    def test_an_event_that_ignores_the_noise_is_refused(self):
        with pytest.raises(NotAccountable, match="no noise at all"):
            calibrate(lambda t: PureDP(0.5), Budget(1.0, 1e-6), Tight())
        with pytest.raises(NotAccountable, match="out of reach"):
            calibrate(lambda t: PureDP(2.0), Budget(1.0, 1e-6), Tight())

    @pytest.mark.parametrize(
        ("accountant", "kind", "limit"),
        [(GDP(), "gaussian", 0.05), (RDP(), "exponential", 0.5), (PureComposition(), "pure", 0.5)],
    )
    def test_is_quick(self, accountant, kind, limit):
        # Ten times the time wanted, so that only a wrong algorithm fails on a busy machine.
        start = time.perf_counter()
        calibrate(lambda t: Repeat(KINDS[kind](t), 1000), Budget(1.0, 1e-6), accountant)
        assert time.perf_counter() - start < limit


class TestGaussianInverse:
    @settings(max_examples=200, deadline=None)
    @given(st.floats(1e-4, 1e3), st.floats(-690.0, -0.1).map(math.exp))
    def test_mu_is_private_and_tight(self, epsilon, delta):
        mu = gaussian_mu(epsilon, delta)
        assert gaussian_delta(epsilon, mu) <= delta * (1 + 1e-12)
        assert gaussian_delta(epsilon, mu * (1 + 1e-9)) > delta
        assert gaussian_epsilon(mu, delta) == pytest.approx(epsilon, rel=1e-8)

    def test_extremes_stay_finite(self):
        assert gaussian_delta(1e3, 1e-3) == 0.0
        assert gaussian_delta(0.0, 1e3) == 1.0
        assert gaussian_epsilon(1e-9, 1e-6) == 0.0
        assert gaussian_delta(1e-12, 1e-10) == pytest.approx(1e-10 * 0.39394, rel=1e-3)
        for bad in (0.0, -1.0, math.inf, math.nan):
            with pytest.raises(ValueError, match="mu is"):
                gaussian_delta(1.0, bad)
        with pytest.raises(ValueError, match="delta > 0"):
            gaussian_mu(1.0, 0.0)

    def test_zero_epsilon(self):
        assert gaussian_delta(0.0, gaussian_mu(0.0, 1e-3)) == pytest.approx(1e-3, rel=1e-9)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Gaussian(0.0),
        lambda: Gaussian(math.inf),
        lambda: Gaussian(math.nan),
        lambda: Exponential(-1.0),
        lambda: PureDP(0.0),
        lambda: ApproxDP(-0.1, 0.0),
        lambda: ApproxDP(0.1, 1.0),
        lambda: Poisson(0.0, 1.0),
        lambda: Poisson(1.1, 1.0),
        lambda: Poisson(0.5, -1.0),
        lambda: Poisson(0.5, 1.0, "swap"),
        lambda: PerturbedObjective(0.0, 0.1),
        lambda: PerturbedObjective(0.1, -0.1),
        lambda: PerturbedObjective(0.1, 0.1, "swap"),
        lambda: Repeat(Gaussian(1.0), 0),
        lambda: Repeat(Gaussian(1.0), -3),
        lambda: Compose(()),
        lambda: Worst(()),
        lambda: RepeatAndSelect(Gaussian(1.0), 1.0),
        lambda: RepeatAndSelect(Gaussian(1.0), 2.0, -1.0),
        lambda: Budget(0.0, 1e-6),
        lambda: Budget(math.inf, 1e-6),
        lambda: Budget(1.0, 1.0),
        lambda: Budget(1.0, -1e-9),
        lambda: Budget(1.0, 1e-6, "swap"),
        lambda: RDP(orders=()),
        lambda: RDP(orders=(1.0, 2.0)),
        lambda: PLD(interval=0.0),
        lambda: AdaptiveSelection(grid=0),
    ],
)
def test_impossible_values_are_refused(make):
    with pytest.raises(ValueError, match=r"it must be|use one of|is empty|above 1"):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Repeat(Gaussian(1.0), 2.0),
        lambda: Repeat(Gaussian(1.0), True),
        lambda: Compose([Gaussian(1.0)]),
    ],
)
def test_wrong_types_are_refused(make):
    with pytest.raises(TypeError, match="must be"):
        make()


def test_leaves_are_counted():
    event = Compose((Repeat(Compose((Gaussian(1.0), Repeat(PureDP(0.5), 5))), 7), Gaussian(1.0)))
    assert count_leaves(event) == {Gaussian(1.0): 8, PureDP(0.5): 35}
    with pytest.raises(NotAccountable, match="str is not an event"):
        count_leaves(Compose((Gaussian(1.0), "noise")))


def test_budget_exceeded_says_what_is_left():
    error = pickle.loads(pickle.dumps(BudgetExceeded(2.0, 0.5)))
    assert (error.requested, error.remaining) == (2.0, 0.5)
    assert "epsilon 2 was requested but only 0.5 is left" in str(error)


@pytest.mark.parametrize("ask", ["epsilon", "delta"])
@pytest.mark.parametrize("accountant", [Tight(), RDP(), ObjectiveProfile()], ids=lambda a: type(a).__name__)
def test_a_perturbed_objective_of_another_relation_has_no_common_price(accountant, ask):
    """A statement about replaced records and one about added records do not add up to either."""
    others = [PerturbedObjective(0.1, 0.1, "add_remove")]
    others += [Poisson(0.1, 1.0, "add_remove")] if isinstance(accountant, Tight) else []
    for other in others:
        with pytest.raises(NotAccountable, match="one relation"):
            getattr(accountant, ask)(Compose((PerturbedObjective(0.1, 0.1), other)), 1e-6)
