"""The price of a release: its event, the questions it names, the error of its samplers, its budget."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from dpcvx.accounting import SAMPLER_SHARE, Accountant, Budget, Tight, sampler_delta, spendable
from dpcvx.errors import Incompatible
from dpcvx.events import Event

__all__ = ["Price"]


@dataclass(frozen=True)
class Price:
    """Price of a release: of the run of a plan, a score, a search, or a query engine."""

    event: Event  # what is released
    # tuple of dict: public descriptions of the questions that the statement names (`Stage.description`)
    parts: tuple[dict[str, Any], ...]
    # sum of the total variations between the noise that is drawn and the noise that is accounted for
    failure: float
    budget: Budget
    accountant: Accountant = field(default_factory=Tight)

    @property
    def sampler_delta(self) -> float:
        """Delta paid for noise of finite precision."""
        return sampler_delta(self.budget.epsilon, self.failure)

    @property
    def epsilon(self) -> float:
        """Epsilon certified at the budget's delta, samplers included."""
        return self.accountant.epsilon(self.event, spendable(self.budget).delta)

    def check_samplers(self) -> None:
        """Refuse samplers that cost more than a thousandth of delta (PRIVACY_MATH §11b)."""
        epsilon, delta = self.budget.epsilon, self.budget.delta
        if self.sampler_delta <= SAMPLER_SHARE * delta:
            return
        smaller = math.floor(math.log(max(SAMPLER_SHARE * delta / self.failure - 1, 1.0)))
        larger = self.sampler_delta / SAMPLER_SHARE
        remedies = [f"epsilon at most {smaller}"] if smaller > 0 else []
        remedies += [f"delta at least {larger:.2g}"] if larger < 1 else []
        raise Incompatible(
            f"Noise of finite precision cannot carry epsilon={epsilon:g} at delta={delta:g}: it costs "
            f"{self.sampler_delta:.2g}, more than a thousandth of delta. "
            f"Use {' or '.join(remedies) or 'fewer iterations or repetitions'}."
        )

    def check_budget(self) -> None:
        """Refuse what costs more than its budget."""
        if self.epsilon > self.budget.epsilon * (1 + 1e-9):
            raise Incompatible(
                f"The release costs epsilon={self.epsilon:g} at delta={self.budget.delta:g}, more than its "
                f"budget of {self.budget.epsilon:g}: make plans with dpcvx.plan."
            )
