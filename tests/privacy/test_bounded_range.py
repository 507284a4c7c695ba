"""Selections and pure releases on concrete neighbours: the accounting bounds what an observer can learn."""

import functools
import math

import numpy as np
import pytest

from dpcvx.accounting import (
    RDP,
    AdaptiveSelection,
    PureComposition,
    bounded_range,
    selection_delta,
    selection_renyi,
)
from dpcvx.events import Exponential, PureDP, Repeat

ORDERS = np.array([1.1, 2.0, 8.0, 40.0])


def _exponential_mechanism(scores, eta):
    """Return the selection probabilities for scores of sensitivity 1, to be minimised."""
    weights = -eta * scores / 2
    weights = np.exp(weights - weights.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def _score_pairs(n_pairs, rng):
    """Yield scores on neighbours: random, and with every coordinate moved as far as allowed."""
    for n_candidates in (2, 3, 5):
        scores = rng.normal(scale=rng.exponential(5.0, size=(n_pairs, 1)), size=(n_pairs, n_candidates))
        yield scores, scores + rng.uniform(-1, 1, size=scores.shape)
        yield scores, scores + rng.choice([-1.0, 1.0], size=scores.shape)


@pytest.mark.parametrize("eta", [0.05, 0.7, 3.0])
class TestExponentialMechanism:
    def test_profile_bounds_every_pair(self, eta):
        worst = -math.inf
        for scores, moved in _score_pairs(4000, np.random.default_rng(0)):
            p, q = _exponential_mechanism(scores, eta), _exponential_mechanism(moved, eta)
            for epsilon in np.linspace(-0.9, 0.9, 7) * eta:
                delta = np.maximum(p - math.exp(epsilon) * q, 0).sum(axis=1).max()
                worst = max(worst, delta / float(selection_delta(epsilon, eta)))
        assert 0.98 < worst <= 1 + 1e-9  # a bound, and not a loose one

    def test_renyi_curve_bounds_every_pair(self, eta):
        worst = np.full(ORDERS.size, -math.inf)
        bound = selection_renyi(ORDERS, eta)
        for scores, moved in _score_pairs(4000, np.random.default_rng(1)):
            p, q = _exponential_mechanism(scores, eta), _exponential_mechanism(moved, eta)
            for i, order in enumerate(ORDERS):
                log_moment = np.log((p * (p / q) ** (order - 1)).sum(axis=1)) / (order - 1)
                worst[i] = max(worst[i], log_moment.max() / bound[i])
        assert np.all(worst <= 1 + 1e-9)
        assert np.all(worst > 0.98)

    def test_range_is_at_most_eta(self, eta):
        worst = 0.0
        for scores, moved in _score_pairs(4000, np.random.default_rng(2)):
            ratio = np.log(_exponential_mechanism(scores, eta) / _exponential_mechanism(moved, eta))
            worst = max(worst, np.ptp(ratio, axis=1).max())
        assert 0.999 * eta < worst <= eta * (1 + 1e-9)


def _adversary(eta, count, epsilon, grid):
    """Return the delta that one concrete adaptive adversary reaches: a lower bound on the truth.

    Ratios are exactly eta apart and on a grid; beyond the grid the adversary stops and takes what is left.
    """
    h = eta / grid
    reach = count * grid
    losses = h * np.arange(-reach - grid, reach + grid + 1)
    reached = -np.expm1(np.minimum(losses, 0.0))
    for _ in range(count):
        best = reached.copy()
        for j in range(1, grid):
            t = j * h
            first = math.expm1(t - eta) / math.expm1(-eta)
            best[grid:-grid] = np.maximum(
                best[grid:-grid],
                first * reached[grid - j : -grid - j]
                + (1 - first) * reached[2 * grid - j : reached.size - j],
            )
        reached = best
    return reached[round(epsilon / h) + reach + grid]


@pytest.mark.parametrize(
    ("count", "eta", "epsilon", "published"),
    [
        (2, 0.5, 0.5, 0.0),
        (10, 0.15, 1.0, 5.771945e-07),
        pytest.param(100, 0.05, 1.0, 2.911310e-06, marks=pytest.mark.slow),
        pytest.param(100, 0.3, 8.0, 4.685098e-07, marks=pytest.mark.slow),
    ],
)
def test_composed_selections_bound_an_adaptive_adversary(count, eta, epsilon, published):
    reached = _adversary(eta, count, epsilon, grid=240)
    assert reached >= published  # the lower end of the reference bracket; this adversary is a better one
    event = Repeat(Exponential(eta), count)
    adaptive = AdaptiveSelection(grid=240).delta(event, epsilon)
    assert reached <= adaptive <= 1.2 * reached
    assert AdaptiveSelection(grid=16).delta(event, epsilon) > adaptive
    assert RDP().delta(event, epsilon) >= reached
    # What the accountants promise as epsilon must hold against the adversary too.
    for accountant in (RDP(), AdaptiveSelection()):
        promised = accountant.epsilon(event, reached)
        assert promised >= epsilon


class TestPermuteAndFlip:
    """Permute-and-flip is epsilon-DP and not epsilon-bounded-range: it may only be accounted for as pure."""

    @staticmethod
    def _probabilities(gap, epsilon0):
        """Return the law over two candidates whose scores differ by ``gap`` sensitivities."""
        worse = math.exp(-epsilon0 * abs(gap) / 2) / 2
        return np.array([1 - worse, worse] if gap >= 0 else [worse, 1 - worse])

    @pytest.mark.parametrize("epsilon0", [0.1, 1.0, 3.0])
    def test_range_exceeds_epsilon(self, epsilon0):
        p, q = self._probabilities(1.0, epsilon0), self._probabilities(-1.0, epsilon0)
        spread = np.ptp(np.log(p / q))
        assert spread == pytest.approx(2 * math.log(2 * math.exp(epsilon0 / 2) - 1))
        assert epsilon0 < spread < 2 * epsilon0

    @pytest.mark.parametrize("epsilon0", [0.1, 1.0, 3.0])
    def test_selection_rule_would_be_false_and_pure_rule_holds(self, epsilon0):
        p, q = self._probabilities(1.0, epsilon0), self._probabilities(-1.0, epsilon0)
        divergence = math.log(float((p**2 / q).sum()))
        assert divergence > selection_renyi(np.array([2.0]), epsilon0)[0]
        assert divergence <= RDP().curve(PureDP(epsilon0), np.array([2.0]))[0]
        for epsilon in np.linspace(0, epsilon0, 5):
            delta = float(np.maximum(p - math.exp(epsilon) * q, 0).sum())
            assert delta <= PureComposition().delta(PureDP(epsilon0), epsilon) + 1e-12

    def test_known_number(self):
        p, q = self._probabilities(1.0, 1.0), self._probabilities(-1.0, 1.0)
        assert np.ptp(np.log(p / q)) == pytest.approx(1.6636, abs=5e-5)


def _random_pure_pair(epsilon0, rng):
    """Return two laws on a few outcomes with all log-ratios within +-epsilon0, some of them extreme."""
    size = rng.integers(2, 5)
    q = rng.dirichlet(np.ones(size))
    p = q * np.exp(rng.choice([-1.0, 1.0], size=size) * epsilon0 * rng.choice([1.0, rng.uniform()]))
    p /= p.sum()
    if np.abs(np.log(p / q)).max() > epsilon0:  # normalising may leave the class; mix back into it
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            inside = np.abs(np.log((middle * p + (1 - middle) * q) / q)).max() <= epsilon0
            low, high = (middle, high) if inside else (low, middle)
        p = low * p + (1 - low) * q
    return p, q


@pytest.mark.parametrize("epsilon0", [0.2, 1.5])
def test_pure_composition_bounds_adaptive_releases(epsilon0):
    """Three releases, each of a mechanism chosen by the answers before it."""
    rng = np.random.default_rng(3)

    def joint(depth):
        p, q = _random_pure_pair(epsilon0, rng)
        if depth == 1:
            return p, q
        below = [joint(depth - 1) for _ in p]
        return (
            np.concatenate([a * first for a, (first, _) in zip(p, below, strict=True)]),
            np.concatenate([b * second for b, (_, second) in zip(q, below, strict=True)]),
        )

    trees = [joint(3) for _ in range(60)]
    event = Repeat(PureDP(epsilon0), 3)
    for epsilon in np.linspace(0, 2.8, 6) * epsilon0:
        bound = PureComposition().delta(event, epsilon)
        worst = max(float(np.maximum(p - math.exp(epsilon) * q, 0).sum()) for p, q in trees)
        assert 0 <= worst <= bound + 1e-12
    worst_at_zero = max(float(np.maximum(p - q, 0).sum()) for p, q in trees)
    assert worst_at_zero > 0.3 * PureComposition().delta(event, 0.0)


def test_pure_composition_is_reached_by_randomised_response():
    for epsilon0, count, epsilon in ((0.4, 3, 0.2), (0.4, 8, 1.0), (2.0, 4, 3.0)):
        truth = 1 / (1 + math.exp(-epsilon0))
        p, q = np.array([truth, 1 - truth]), np.array([1 - truth, truth])
        joint_p, joint_q = p, q
        for _ in range(count - 1):
            joint_p, joint_q = np.outer(joint_p, p).ravel(), np.outer(joint_q, q).ravel()
        delta = float(np.maximum(joint_p - math.exp(epsilon) * joint_q, 0).sum())
        assert PureComposition().delta(Repeat(PureDP(epsilon0), count), epsilon) == pytest.approx(
            delta, rel=1e-10
        )


@pytest.mark.parametrize(("eta", "count", "grid"), [(0.7, 2, 5), (1.5, 4, 4), (0.1, 5, 3)])
def test_the_composed_profile_is_nowhere_below_the_best_adversary(eta, count, grid):
    """The same recursion on all of the grid, from pairs of two outcomes with losses t and t - eta - h."""
    h = eta / grid
    wide = eta + h

    @functools.cache
    def best(i, k):
        if k == 0:
            return max(0.0, -math.expm1(i * h))
        found = best(i, k - 1)
        for j in range(1, grid + 1):
            likely, rare = math.exp(j * h), math.exp(j * h - wide)
            first = likely * (1 - rare) / (likely - rare)  # so that the other's chances add up to 1
            found = max(found, first * best(i - j, k - 1) + (1 - first) * best(i - j + grid + 1, k - 1))
        return found

    epsilons, deltas = bounded_range._composed_profile(eta, count, grid)
    exact = np.array([best(i, count) for i in np.rint(epsilons / h).astype(int).tolist()])
    assert (deltas >= exact * (1 - 1e-9)).all()
    assert deltas.max() <= 1
    np.testing.assert_allclose(deltas[epsilons >= 0], exact[epsilons >= 0], rtol=1e-9, atol=1e-15)
