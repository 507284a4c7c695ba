"""What is paid, and stated, for releases that are not the run of one plan."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from dpcvx.accounting import (
    SAMPLER_SHARE,
    Accountant,
    Budget,
    Tight,
    spendable,
)
from dpcvx.errors import Incompatible
from dpcvx.events import Event
from dpcvx.plans.stage import Stage

__all__ = ["Bill"]


@dataclass(frozen=True)
class Bill:
    """What is paid, and stated, for a release that is not the run of one plan: a score, or a search.

    Parameters
    ----------
    event : Event
        What is released.
    questions : tuple of Stage
        Those that the statement names.
    failure : float
        Sum of the total variations between the noise that is drawn and the noise that is accounted for.
    budget : Budget
    accountant : Accountant
    """

    event: Event
    questions: tuple[Stage, ...]
    failure: float
    budget: Budget
    accountant: Accountant = field(default_factory=Tight)

    def __post_init__(self) -> None:
        if self.sampler_delta > SAMPLER_SHARE * self.budget.delta:
            raise Incompatible(
                f"Noise of finite precision costs {self.sampler_delta:.2g}, more than a thousandth of delta="
                f"{self.budget.delta:g}: use a larger delta, fewer repetitions, or a smaller epsilon."
            )
        if self.epsilon > self.budget.epsilon * (1 + 1e-9):
            raise Incompatible(
                f"The release costs epsilon={self.epsilon:g} at delta={self.budget.delta:g}, more than its "
                f"budget of {self.budget.epsilon:g}."
            )

    @property
    def sampler_delta(self) -> float:
        """Delta paid for noise of finite precision: (1 + e^eps) * failure."""
        return (1 + math.exp(min(self.budget.epsilon, 700.0))) * self.failure

    @property
    def epsilon(self) -> float:
        """Epsilon certified at the budget's delta, samplers included; at most the budget's."""
        return self.accountant.epsilon(self.event, spendable(self.budget).delta)
