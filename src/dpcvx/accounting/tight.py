"""The default accountant: the best known bound for each event."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from dpcvx.accounting.accountant import Accountant, require_delta, require_epsilon
from dpcvx.accounting.gaussian import GDP
from dpcvx.accounting.loss_distribution import PLD
from dpcvx.accounting.pure import PureComposition
from dpcvx.accounting.renyi import RDP
from dpcvx.accounting.selection import AdaptiveSelection
from dpcvx.events import ApproxDP, Compose, Event, Exponential, Leaf, Repeat, count_leaves


def _split(event: Event) -> tuple[float, float, Compose | None]:
    """Return the summed epsilon and delta of the `ApproxDP` parts, and everything else."""
    leaves = count_leaves(event)
    known: Counter[ApproxDP] = Counter({leaf: n for leaf, n in leaves.items() if isinstance(leaf, ApproxDP)})
    rest = tuple(Repeat(leaf, n) for leaf, n in leaves.items() if not isinstance(leaf, ApproxDP))
    return (
        math.fsum(n * leaf.epsilon for leaf, n in known.items()),
        math.fsum(n * leaf.delta for leaf, n in known.items()),
        Compose(rest) if rest else None,
    )


def _candidates(event: Event) -> tuple[Accountant, ...]:
    """Return the accountants worth asking: an exact one alone, all cheap ones, or the numerical one."""
    leaves: Counter[Leaf] = count_leaves(event)
    if GDP().supports(event):
        return (GDP(),)
    if leaves.total() == 1 and all(isinstance(leaf, Exponential) for leaf in leaves):
        return (AdaptiveSelection(),)
    if not RDP().supports(event):
        return (PLD(),)
    return (PureComposition(), RDP()) if PureComposition().supports(event) else (RDP(),)


@dataclass(frozen=True)
class Tight:
    """The smallest bound over the accountants that cover the event; covers every event.

    `ApproxDP` parts are added by basic composition. `PLD` answers only where a Poisson sample leaves no other
    choice, and `AdaptiveSelection` only for one selection: both are slow beyond that.
    """

    def epsilon(self, event: Event, delta: float) -> float:
        """Return the smallest known epsilon at delta."""
        require_delta(delta)
        known_epsilon, known_delta, rest = _split(event)
        if known_delta > delta:
            return math.inf
        if rest is None:
            return known_epsilon
        left = delta - known_delta
        return known_epsilon + min(accountant.epsilon(rest, left) for accountant in _candidates(rest))

    def delta(self, event: Event, epsilon: float) -> float:
        """Return the smallest known delta at epsilon."""
        require_epsilon(epsilon)
        known_epsilon, known_delta, rest = _split(event)
        if known_epsilon > epsilon:
            return 1.0
        if rest is None:
            return min(1.0, known_delta)
        left = epsilon - known_epsilon
        return min(1.0, known_delta + min(accountant.delta(rest, left) for accountant in _candidates(rest)))

    def supports(self, event: Event) -> bool:
        """Say yes; what is not an event raises `NotAccountable`."""
        return bool(count_leaves(event))
