"""Privacy-loss distributions, computed by dp-accounting, for subsampled events.

Every discretisation is pessimistic. The library doubles the sensitivity of a plain Gaussian under its own
replace-one relation; a `Gaussian` event is already relative to the plan's relation and is therefore built
with add-or-remove, which shifts by exactly 1 / noise_multiplier.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpcvx.accounting.accountant import accepted_leaves, accepts, require_delta, require_epsilon
from dpcvx.accounting.bounded_range import selection_delta
from dpcvx.arrays import Vector
from dpcvx.errors import WrongType, WrongValue
from dpcvx.events import Event, Exponential, Gaussian, Leaf, Poisson, PureDP

_KINDS = (Gaussian, Poisson, Exponential, PureDP)
# Composition raises a Fourier transform to a power, which multiplies its rounding errors. Losses that gather
# in few places, as those of small samples do, are hit hardest: where delta is next to 0 it came out negative,
# by up to 3.5e-16 per release (2500 events of 1 to 2e4 releases); this is five times it.
_ROUNDING_PER_RELEASE = 2.0**-49
_LARGEST_LOSS = 750.0  # beyond this one release is hopeless and its distribution would fill the memory
_LARGEST_MEAN = 100.0  # beyond this mean loss all releases together are


def _response_delta(epsilon: Vector, epsilon0: float) -> Vector:
    """Return the privacy profile of randomised response, the worst epsilon0-DP pair."""
    inside = np.minimum(epsilon, epsilon0)
    profile = -np.expm1(inside - epsilon0) / (1 + math.exp(-epsilon0))
    return np.where(epsilon < -epsilon0, -np.expm1(np.minimum(epsilon, 0.0)), profile)


def _from_profile(profile: Callable[[Vector, float], Vector], largest: float, interval: float) -> Any:
    """Return the pessimistic distribution of a symmetric pair whose losses lie within +-largest."""
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    ends = math.ceil(largest / interval)
    deltas = profile(interval * np.arange(-ends, ends + 1, dtype=np.float64), largest)
    return PrivacyLossDistribution(
        pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, -ends, ends, deltas)
    )


def _single(leaf: Leaf, interval: float) -> Any:
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    match leaf:
        case Gaussian():
            return from_gaussian_mechanism(leaf.noise_multiplier, value_discretization_interval=interval)
        case Poisson():
            relation = {
                "replace": NeighboringRelation.REPLACE_ONE,
                "add_remove": NeighboringRelation.ADD_OR_REMOVE_ONE,
            }
            return from_gaussian_mechanism(
                leaf.noise_multiplier,
                value_discretization_interval=interval,
                sampling_prob=leaf.probability,
                neighboring_relation=relation[leaf.relation],
            )
        case Exponential():
            return _from_profile(selection_delta, leaf.eta, interval)
        case PureDP():
            return _from_profile(_response_delta, leaf.epsilon, interval)
    raise WrongType(f"{type(leaf).__name__} has no privacy-loss distribution.")


def _hopeless(leaf: Leaf) -> bool:
    match leaf:
        case Gaussian() | Poisson():
            mu = 2 / leaf.noise_multiplier
            return mu * mu / 2 + 10 * mu > _LARGEST_LOSS
        case Exponential():
            return leaf.eta > _LARGEST_LOSS
        case PureDP():
            return leaf.epsilon > _LARGEST_LOSS
    return True


def _mean_loss(leaf: Leaf) -> float:
    """Return the mean privacy loss of a release to first order, never more than a few times too large."""
    match leaf:
        case Gaussian():
            return 0.5 / leaf.noise_multiplier**2
        case Poisson():
            moved = (2 if leaf.relation == "replace" else 1) * leaf.probability / leaf.noise_multiplier
            return moved**2 / 2
        case Exponential():
            return min(leaf.eta**2 / 8, leaf.eta)
        case PureDP():
            return leaf.epsilon * math.tanh(leaf.epsilon / 2)
    return math.inf


@dataclass(frozen=True)
class PLD:
    """Numerical composition of privacy-loss distributions: Poisson samples with anything but `ApproxDP`.

    Parameters
    ----------
    interval : float
        Distance between the losses kept; smaller is tighter and slower.
    """

    interval: float = 1e-4

    def __post_init__(self) -> None:
        if not 0 < self.interval <= 1:
            raise WrongValue(f"interval is {self.interval!r}; it must be more than 0 and at most 1.")

    def _composed(self, event: Event) -> tuple[Any | None, float]:
        """Return the distribution of the whole event, or None for no protection, and its error in delta.

        Events with hardly any protection are not composed: the distribution grows with the privacy loss.
        """
        leaves = accepted_leaves(event, _KINDS, self)
        rounding = leaves.total() * _ROUNDING_PER_RELEASE
        mean = math.fsum(count * _mean_loss(leaf) for leaf, count in leaves.items())
        if any(_hopeless(leaf) for leaf in leaves) or mean > _LARGEST_MEAN or rounding >= 1:
            return None, 0.0
        total = None
        for leaf, count in leaves.items():
            part = _single(leaf, self.interval).self_compose(count)
            total = part if total is None else total.compose(part)
        return total, rounding

    def epsilon(self, event: Event, delta: float) -> float:
        """Return a pessimistic epsilon at delta; infinite if there is hardly any protection."""
        require_delta(delta)
        composed, rounding = self._composed(event)
        if composed is None or delta <= rounding:
            return math.inf
        return float(composed.get_epsilon_for_delta(delta - rounding))

    def delta(self, event: Event, epsilon: float) -> float:
        """Return a pessimistic delta at epsilon."""
        require_epsilon(epsilon)
        composed, rounding = self._composed(event)
        if composed is None:
            return 1.0
        return min(1.0, max(0.0, float(composed.get_delta_for_epsilon(epsilon))) + rounding)

    def supports(self, event: Event) -> bool:
        """Say whether no part is `ApproxDP` or `PerturbedObjective`."""
        return accepts(event, _KINDS)
