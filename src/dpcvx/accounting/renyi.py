"""Rényi differential privacy: curves that add, converted once.

    epsilon = min_{a>1} R(a) + log((a-1)/a) - (log delta + log a) / (a-1)

(Canonne, Kamath, Steinke 2020; Balle et al. 2020). Any order gives a valid bound.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpcvx.accounting.accountant import accepted_leaves, accepts, require_delta, require_epsilon
from dpcvx.accounting.bounded_range import selection_renyi
from dpcvx.accounting.gaussian import GDP
from dpcvx.accounting.objective import objective_renyi
from dpcvx.accounting.repetition import poisson_rate, success_probability
from dpcvx.arrays import Vector
from dpcvx.errors import WrongType, WrongValue
from dpcvx.events import (
    Event,
    Exponential,
    Gaussian,
    Leaf,
    PerturbedObjective,
    PureDP,
    RepeatAndSelect,
    Worst,
    count_leaves,
)

_KINDS = (Gaussian, Exponential, PureDP, PerturbedObjective, Worst, RepeatAndSelect)
_WIDEST = np.linspace(math.log(1e-5), math.log(1e10), 120)  # log(a - 1)
_EPSILONS = np.concatenate([[0.0], np.exp(np.linspace(math.log(1e-6), math.log(30), 400))])
_FINE = np.linspace(math.log(1e-2), math.log(1e4), 400)  # log(a - 1): any order gives a valid bound


def _pure_renyi(orders: Vector, epsilon: float) -> Vector:
    """Return the curve of randomised response, the worst epsilon-DP pair.

    R_a = log(cosh((a - 1/2) epsilon) / cosh(epsilon / 2)) / (a - 1).
    """
    # cosh A - cosh B = 2 sinh((A+B)/2) sinh((A-B)/2) keeps the small logarithm exact.
    low = np.minimum(orders * epsilon, 1.0) / orders
    small = np.log1p(2 * np.sinh(orders * low / 2) * np.sinh((orders - 1) * low / 2) / np.cosh(low / 2))
    # Where cosh would overflow, the logarithms of both are subtracted.
    large = (orders - 1) * epsilon + np.log1p(np.exp((1 - 2 * orders) * epsilon)) - np.log1p(np.exp(-epsilon))
    return np.where(orders * epsilon < 1.0, small, large) / (orders - 1)


def _single(leaf: Leaf, orders: Vector) -> Vector:
    match leaf:
        case Gaussian():
            return orders / (2 * leaf.noise_multiplier**2)
        case Exponential():
            return selection_renyi(orders, leaf.eta)
        case PureDP():
            return _pure_renyi(orders, leaf.epsilon)
        case PerturbedObjective():
            return objective_renyi(orders, leaf)
        case Worst():
            return _largest([RDP().curve(part, orders) for part in leaf.events])
        case RepeatAndSelect():
            return _selected_renyi(leaf, orders)
    raise WrongType(f"{type(leaf).__name__} has no Rényi curve.")


def _selected_renyi(leaf: RepeatAndSelect, orders: Vector) -> Vector:
    """Return the curve of the best of K runs, each with the curve R and the profile delta.

    [PS22] Lemma 7: R(a) + sup log(f'(q)^a f'(q')^(1-a)) / (a-1), f the generating function of K, over the
    chances q, q' of one event under two neighbours. With p = 1-q and p' = 1-q' only p' <= e^e p + delta(e) is
    used, which holds for every e (PRIVACY_MATH §15). For Poisson's law e = log(a/(a-1)) is best, and the
    supremum is Theorem 6's; for the others any e gives a bound and the smallest counts.
    """
    once = RDP().curve(leaf.event, orders) + math.log(leaf.mean) / (orders - 1)
    if leaf.shape is None:
        return once + poisson_rate(leaf.mean) * _profile(leaf.event, np.log1p(1 / (orders - 1)))
    success = success_probability(leaf.mean, leaf.shape)
    # f'(q) = f'(1) (success / P)^(1+shape) with P = success + (1-success) p, and P' <= slope P + offset.
    slope = np.exp(_EPSILONS)
    offset = (1 - success) * _profile(leaf.event, _EPSILONS) - success * np.expm1(_EPSILONS)
    share = (orders / (orders - 1))[:, None]
    # -share log P + log(slope P + offset) falls where offset >= 0, and else has one maximum.
    at = np.clip(-offset * orders[:, None] / slope, success, 1.0)
    worst = np.log(slope * at + offset) - share * np.log(at)
    extra: Vector = worst.min(axis=1) + math.log(success) / (orders - 1)
    return once + (1 + leaf.shape) * extra


def _profile(event: Event, epsilons: Vector) -> Vector:
    """Return a delta for each epsilon: exact for Gaussian releases, else by conversion at many orders."""
    match tuple(count_leaves(event).items()):
        case ((Worst(events=parts), 1),):
            return _largest([_profile(part, epsilons) for part in parts])
    if GDP().supports(event):
        return np.array([GDP().delta(event, epsilon) for epsilon in epsilons.tolist()])
    less = np.exp(_FINE)
    orders = 1 + less
    logs = (RDP().curve(event, orders) + np.log(less / orders) - epsilons[:, None]) * less - np.log(orders)
    deltas: Vector = np.exp(np.minimum(0.0, logs.min(axis=1)))
    return deltas


def _largest(rows: list[Vector]) -> Vector:
    largest: Vector = np.max(rows, axis=0)
    return largest


def _largest_loss(leaves: Counter[Leaf]) -> float:
    """Return the Rényi divergence of infinite order, which is pure differential privacy."""
    total = 0.0
    for leaf, count in leaves.items():
        match leaf:
            case PureDP():
                total += count * leaf.epsilon
            case Exponential():
                total += count * leaf.eta
            case _:
                return math.inf
    return total


@dataclass(frozen=True)
class RDP:
    """Rényi accounting of Gaussian and pure releases, selections and perturbed objectives in any mixture.

    Also of the worst of several such events, and of the best of a random number of runs of one.

    Parameters
    ----------
    orders : tuple of float, optional
        Orders to convert from, each more than 1. By default the best real order is searched for.
    """

    orders: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.orders is not None and not (self.orders and all(1 < a < math.inf for a in self.orders)):
            raise WrongValue(f"orders is {self.orders!r}; give finite numbers above 1, or None.")

    def curve(self, event: Event, orders: Vector) -> Vector:
        """Return R(a) of the event at each order a."""
        leaves = accepted_leaves(event, _KINDS, self)
        total = np.zeros_like(orders)
        for leaf, count in leaves.items():
            total += count * _single(leaf, orders)
        return total

    def _smallest(self, bound: Callable[[Vector], Vector]) -> float:
        """Return the least value of a bound that holds at every order."""
        if self.orders is not None:
            return float(bound(np.asarray(self.orders)).min())
        points, best = _WIDEST, math.inf
        for _ in range(4):  # each round narrows log(a-1) by more than ten; the minimum is flat
            values = bound(1 + np.exp(points))
            i = int(values.argmin())
            best = min(best, float(values[i]))
            points = np.linspace(points[max(i - 1, 0)], points[min(i + 1, points.size - 1)], 24)
        return best

    def epsilon(self, event: Event, delta: float) -> float:
        """Return the smallest epsilon that the conversion gives at delta."""
        require_delta(delta)
        pure = _largest_loss(accepted_leaves(event, _KINDS, self))
        if delta == 0:
            return pure
        log_delta = math.log(delta)

        def bound(orders: Vector) -> Vector:
            less = orders - 1
            return self.curve(event, orders) + np.log(less / orders) - (log_delta + np.log(orders)) / less

        return max(0.0, min(pure, self._smallest(bound)))

    def delta(self, event: Event, epsilon: float) -> float:
        """Return the smallest delta that the conversion gives at epsilon."""
        require_epsilon(epsilon)
        if epsilon >= _largest_loss(accepted_leaves(event, _KINDS, self)):
            return 0.0

        def bound(orders: Vector) -> Vector:
            less = orders - 1
            return less * (self.curve(event, orders) - epsilon + np.log(less / orders)) - np.log(orders)

        return math.exp(min(0.0, self._smallest(bound)))

    def supports(self, event: Event) -> bool:
        """Say whether every part is pure, Gaussian, a selection, a perturbed objective, or made of these."""
        return accepts(event, _KINDS)
