"""Interface of an accountant, and the check of its events."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Protocol

from dpcvx.errors import NotAccountable, WrongValue
from dpcvx.events import Compose, Event, Leaf, PerturbedObjective, Poisson, count_leaves, walk


class Accountant(Protocol):
    """Pure functions of an event: no state, no data. Every answer is an upper bound."""

    def epsilon(self, event: Event, delta: float) -> float:
        """Return an epsilon for which the event is (epsilon, delta)-differentially private."""
        ...

    def delta(self, event: Event, epsilon: float) -> float:
        """Return a delta for which the event is (epsilon, delta)-differentially private."""
        ...

    def supports(self, event: Event) -> bool:
        """Say whether the accountant has a rule for every part of the event."""
        ...


@dataclass(frozen=True)
class Following:
    """Account for an event that follows another one on the same records: the two are composed."""

    before: Event  # what was asked first; its cost is part of every answer
    accountant: Accountant  # accounts for both together

    def epsilon(self, event: Event, delta: float) -> float:
        """Return an epsilon of both events together."""
        return self.accountant.epsilon(Compose((self.before, event)), delta)

    def delta(self, event: Event, epsilon: float) -> float:
        """Return a delta of both events together."""
        return self.accountant.delta(Compose((self.before, event)), epsilon)

    def supports(self, event: Event) -> bool:
        """Say whether both events have a rule."""
        return self.accountant.supports(Compose((self.before, event)))


def accepts(event: Event, kinds: tuple[type[Leaf], ...]) -> bool:
    """Say whether every single event is one of the kinds."""
    return all(isinstance(leaf, kinds) for leaf in walk(event))


def accepted_leaves(event: Event, kinds: tuple[type[Leaf], ...], accountant: object) -> Counter[Leaf]:
    """Return the counts of the single events, or refuse those without a rule."""
    leaves = count_leaves(event)
    unknown = sorted({type(leaf).__name__ for leaf in walk(event) if not isinstance(leaf, kinds)})
    if unknown:
        raise NotAccountable(
            f"{type(accountant).__name__} has no rule for {', '.join(unknown)}; "
            f"it covers {', '.join(kind.__name__ for kind in kinds)}. Use Tight(), which covers every event."
        )
    require_one_relation(leaves)
    return leaves


def require_one_relation(leaves: Counter[Leaf]) -> None:
    """Refuse events of both relations together: their sum would be a statement about neither."""
    everything = (part for leaf in leaves for part in walk(leaf))
    if len({leaf.relation for leaf in everything if isinstance(leaf, PerturbedObjective | Poisson)}) > 1:
        raise NotAccountable("The event mixes releases for replace and for add_remove; use one relation.")


def require_delta(delta: float) -> None:
    """Refuse a delta outside [0, 1)."""
    if not 0 <= delta < 1:
        raise WrongValue(f"delta is {delta!r}; it must be at least 0 and less than 1.")


def require_epsilon(epsilon: float) -> None:
    """Refuse a negative epsilon."""
    if not epsilon >= 0:
        raise WrongValue(f"epsilon is {epsilon!r}; it must be zero or more.")
