"""The default accountant: the best known bound for each event."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from dpcvx.accounting.accountant import Accountant, require_delta, require_epsilon, require_one_relation
from dpcvx.accounting.bounded_range import AdaptiveSelection
from dpcvx.accounting.gaussian import GDP
from dpcvx.accounting.loss_distribution import PLD
from dpcvx.accounting.objective import ObjectiveProfile
from dpcvx.accounting.pure import PureComposition
from dpcvx.accounting.renyi import RDP
from dpcvx.events import (
    ApproxDP,
    Compose,
    Event,
    Exponential,
    Leaf,
    PerturbedObjective,
    Poisson,
    Repeat,
    RepeatAndSelect,
    Worst,
    count_leaves,
)

_CURVES_ALONE = (PerturbedObjective, RepeatAndSelect, Worst)


def _split(event: Event) -> tuple[float, float, Compose | None]:
    """Return the summed epsilon and delta of the `ApproxDP` parts, and everything else."""
    leaves = count_leaves(event)
    require_one_relation(leaves)
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
    also = (PureComposition(), ObjectiveProfile())
    return (*(accountant for accountant in also if accountant.supports(event)), RDP())


def _separate(event: Compose) -> tuple[Compose, ...]:
    """Return the parts that no single accountant covers together: events of `RDP` alone, and samples."""
    leaves = count_leaves(event)
    curves = tuple(Repeat(leaf, n) for leaf, n in leaves.items() if isinstance(leaf, _CURVES_ALONE))
    if not (curves and any(isinstance(leaf, Poisson) for leaf in leaves)):
        return (event,)
    others = tuple(Repeat(leaf, n) for leaf, n in leaves.items() if not isinstance(leaf, _CURVES_ALONE))
    return Compose(curves), Compose(others)


@dataclass(frozen=True)
class Tight:
    """The smallest bound over the accountants that cover the event; covers every event.

    `ApproxDP` parts are added by basic composition, and so is what only `RDP` covers beside Poisson samples,
    with half of delta (or epsilon) for either. `PLD` answers only where a Poisson sample leaves no other
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
        parts = _separate(rest)
        left = (delta - known_delta) / len(parts)
        return known_epsilon + math.fsum(
            min(accountant.epsilon(part, left) for accountant in _candidates(part)) for part in parts
        )

    def delta(self, event: Event, epsilon: float) -> float:
        """Return the smallest known delta at epsilon."""
        require_epsilon(epsilon)
        known_epsilon, known_delta, rest = _split(event)
        if known_epsilon > epsilon:
            return 1.0
        if rest is None:
            return min(1.0, known_delta)
        parts = _separate(rest)
        left = (epsilon - known_epsilon) / len(parts)
        return min(
            1.0,
            known_delta
            + math.fsum(
                min(accountant.delta(part, left) for accountant in _candidates(part)) for part in parts
            ),
        )

    def supports(self, event: Event) -> bool:
        """Return True; anything but an event raises `NotAccountable`."""
        return bool(count_leaves(event))
