"""Optimal composition of pure differential privacy.

T adaptive epsilon0-DP releases are dominated by T randomised responses (Kairouz, Oh, Viswanath 2015):

    delta(epsilon) = sum_{i : (T-2i) eps0 > epsilon}
                         C(T,i) e^{(T-i) eps0} / (1+e^eps0)^T (1 - e^{epsilon - (T-2i) eps0}).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from dpcvx.accounting.accountant import accepted_leaves, accepts, require_delta, require_epsilon
from dpcvx.accounting.inversion import first_passing
from dpcvx.arrays import Vector
from dpcvx.events import Event, Exponential, PureDP

LARGEST_OPTIMAL = 2**20  # releases, each of which has a loss in the sum; beyond, only the plain sum is known


def _losses(epsilon0: float, count: int) -> tuple[Vector, Vector]:
    """Return the positive privacy losses of ``count`` randomised responses and their log-probabilities."""
    i: Vector = np.arange((count + 1) // 2, dtype=np.float64)
    losses = (count - 2 * i) * epsilon0
    log_choose = gammaln(count + 1) - gammaln(i + 1) - gammaln(count - i + 1)
    return losses, log_choose - i * epsilon0 - count * np.log1p(np.exp(-epsilon0))


def _log_delta(epsilon: float, losses: Vector, log_weights: Vector) -> float:
    above = losses > epsilon
    if not above.any():
        return -math.inf
    terms = log_weights[above] + np.log(-np.expm1(epsilon - losses[above]))
    largest = float(terms.max())
    return largest + math.log(float(np.exp(terms - largest).sum()))


@dataclass(frozen=True)
class PureComposition:
    """Optimal composition of `PureDP` releases, and of selections, which are pure too.

    Optimal when all have the same epsilon. Otherwise each is counted with the largest one, unless the plain
    sum is smaller. More than `LARGEST_OPTIMAL` releases are counted by the plain sum alone; `RDP`, whose cost
    does not depend on their number, is close to optimal there.
    """

    def _parts(self, event: Event) -> tuple[float, float, int]:
        leaves = accepted_leaves(event, (PureDP, Exponential), self)
        costs = [
            (leaf.epsilon if isinstance(leaf, PureDP) else leaf.eta, n)
            for leaf, n in leaves.items()
            if isinstance(leaf, PureDP | Exponential)
        ]
        total = math.fsum(cost * n for cost, n in costs)
        return total, max(cost for cost, _ in costs), leaves.total()

    def epsilon(self, event: Event, delta: float) -> float:
        """Return the smallest epsilon at delta; at delta = 0 this is the sum."""
        require_delta(delta)
        total, epsilon0, count = self._parts(event)
        if delta == 0 or count > LARGEST_OPTIMAL:
            return total
        losses, log_weights = _losses(epsilon0, count)
        log_delta = math.log(delta)

        def excess(epsilon: float) -> float:
            return _log_delta(epsilon, losses, log_weights) - log_delta

        if excess(0.0) <= 0:
            return 0.0
        if excess(total) > 0:
            return total
        return first_passing(excess, 0.0, total, tolerance=1e-14 * total)

    def delta(self, event: Event, epsilon: float) -> float:
        """Return the smallest delta at epsilon."""
        require_epsilon(epsilon)
        total, epsilon0, count = self._parts(event)
        if epsilon >= total or count > LARGEST_OPTIMAL:
            return 0.0 if epsilon >= total else 1.0
        return math.exp(_log_delta(epsilon, *_losses(epsilon0, count)))

    def supports(self, event: Event) -> bool:
        """Say whether every part is `PureDP` or `Exponential`."""
        return accepts(event, (PureDP, Exponential))
