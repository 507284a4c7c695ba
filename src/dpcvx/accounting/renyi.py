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
from dpcvx.accounting.objective import objective_renyi
from dpcvx.accounting.selection import selection_renyi
from dpcvx.arrays import Vector
from dpcvx.events import Event, Exponential, Gaussian, Leaf, PerturbedObjective, PureDP

_KINDS = (Gaussian, Exponential, PureDP, PerturbedObjective)
_WIDEST = np.linspace(math.log(1e-5), math.log(1e10), 120)  # log(a - 1)


def _pure_renyi(orders: Vector, epsilon: float) -> Vector:
    """Return the curve of randomised response, the worst epsilon-DP pair.

    R_a = log(cosh((a - 1/2) epsilon) / cosh(epsilon / 2)) / (a - 1).
    """
    # cosh A - cosh B = 2 sinh((A+B)/2) sinh((A-B)/2) keeps the small logarithm exact ...
    low = np.minimum(orders * epsilon, 1.0) / orders
    small = np.log1p(2 * np.sinh(orders * low / 2) * np.sinh((orders - 1) * low / 2) / np.cosh(low / 2))
    # ... and the logarithms of both are taken apart where cosh would overflow.
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
    raise TypeError(f"{type(leaf).__name__} has no Rényi curve.")


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

    Parameters
    ----------
    orders : tuple of float, optional
        Orders to convert from, each more than 1. By default the best real order is searched for.
    """

    orders: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.orders is not None and not (self.orders and all(1 < a < math.inf for a in self.orders)):
            raise ValueError(f"orders is {self.orders!r}; give finite numbers above 1, or None.")

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
        """Say whether every part is `Gaussian`, `Exponential`, `PureDP` or `PerturbedObjective`."""
        return accepts(event, _KINDS)
