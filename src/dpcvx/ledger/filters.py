"""Privacy filters, which decide whether a charge still fits an account (PRIVACY_MATH §9.4).

Each filter keeps a running total and goes on while the total of the whole sequence is within its limit. A
charge is granted if at least one filter goes on. Filter i makes everything it accepts
(epsilon, delta_i)-private, and the delta_i add up to no more than the cap's delta.

Totals are integers in units of 1e-30; costs are rounded up and limits down, so that no sum drifts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from dpcvx.accounting import (
    GDP,
    RDP,
    SAMPLER_SHARE,
    Budget,
    Tight,
    gaussian_epsilon,
    gaussian_mu,
    sampler_delta,
    spendable,
)
from dpcvx.events import ApproxDP, Compose, Event, Exponential, Gaussian, Leaf, PureDP, Repeat, count_leaves

__all__ = ["FRESH", "WHOLE", "Spending", "admit", "covers", "remaining", "requested"]

SCALE = 10**30
WHOLE = 2**53  # of `Spending.used`: everything is spent
ROUNDING = 1e-9  # limits that formulas of floats give are lowered by this part of themselves

# Shares of delta by what the first charge is, which is known before anything is released. A filter that
# cannot accept the first charge gets none. A share enters limits through its logarithm, so that eight tenths
# cost the Gaussian filter two per cent; basic composition alone may keep everything. Totals that are stored
# mean nothing under other shares or orders: whoever changes them raises `dpcvx.ledger.chain.FORMAT`.
SHARES = {
    "gaussian": {"gaussian": 0.8, "renyi": 0.12, "renyi_twice": 0.04, "basic": 0.04},
    "renyi": {"renyi": 0.8, "renyi_twice": 0.16, "basic": 0.04},
    "basic": {"basic": 1.0},
}
SMALLEST_DELTA = 1e-200  # of a cap; shares of less, which nobody needs, would underflow in the formulas
SMALLEST_SHARE = 1e-3  # of delta, given to one event by basic composition

Cost = tuple[int, ...]


def _up(value: float) -> int:
    """Units of a float, read as the decimal number that it prints as."""
    return math.ceil(Fraction(repr(float(value))) * SCALE)


def _down(value: float) -> int:
    return math.floor(Fraction(repr(float(value))) * SCALE)


class Filter(Protocol):
    """A rule that accepts a sequence of events while its totals are within its limits."""

    @property
    def limits(self) -> Cost:
        """Largest totals."""
        ...

    def costs(self, event: Event, failure: float, delta: float | None) -> tuple[Cost, ...]:
        """Return what the event may add to the totals, best first; nothing if the rule does not cover it."""
        ...


@dataclass(frozen=True)
class GaussianFilter:
    """Gaussian releases alone: sum of mu^2 <= mu(epsilon, delta)^2."""

    epsilon: float
    delta: float

    @property
    def limits(self) -> Cost:
        """Largest sum of mu^2."""
        return (_down(gaussian_mu(self.epsilon, self.delta) ** 2 * (1 - ROUNDING)),)

    def costs(self, event: Event, failure: float, delta: float | None) -> tuple[Cost, ...]:
        """Return mu^2 of the event."""
        if not GDP().supports(event):
            return ()
        leaves = count_leaves(event).items()
        squares = (n / leaf.noise_multiplier**2 for leaf, n in leaves if isinstance(leaf, Gaussian))
        return ((_up(math.fsum(squares)),),)


@dataclass(frozen=True)
class RenyiFilter:
    """Events with a Rényi curve: sum of R(a) at one order a <= what converts to (epsilon, delta)."""

    epsilon: float
    delta: float
    order: float

    @property
    def limits(self) -> Cost:
        """Largest sum of R(a)."""
        return (_down(_renyi_limit(self.epsilon, self.delta, self.order) * (1 - ROUNDING)),)

    def costs(self, event: Event, failure: float, delta: float | None) -> tuple[Cost, ...]:
        """Return R(a) of the event."""
        if not RDP().supports(event):
            return ()
        divergence = float(RDP().curve(event, np.array([self.order]))[0])
        return ((_up(divergence),),) if math.isfinite(divergence) else ()


def _renyi_limit(epsilon: float, delta: float, order: float) -> float:
    """Largest R(a) that converts to (epsilon, delta) at the order a: PRIVACY_MATH §0 solved for R."""
    return epsilon - math.log1p(-1 / order) + (math.log(delta) + math.log(order)) / (order - 1)


def _best_order(epsilon: float, delta: float) -> float:
    """Order at which Gaussian releases, whose curve is a mu^2/2, may have the largest sum of mu^2."""
    orders = 1 + np.exp(np.linspace(math.log(1e-3), math.log(1e9), 2000))
    best = max(orders, key=lambda order: _renyi_limit(epsilon, delta, float(order)) / order)
    return float(f"{best:.6g}")  # the same on every machine that opens the account


@dataclass(frozen=True)
class BasicFilter:
    """Every event, by an (epsilon_i, delta_i) of its own: both are added up, and sampling failures to delta.

    The delta_i of an event that has a whole profile is a free choice: that of its plan, scaled to the share
    of this filter; or the part of delta that it takes of epsilon; or nothing, for what is purely private.
    """

    epsilon: float
    delta: float
    share: float

    @property
    def limits(self) -> Cost:
        """Largest sums of epsilon_i and delta_i."""
        return _down(self.epsilon), _down(self.delta)

    def costs(self, event: Event, failure: float, delta: float | None) -> tuple[Cost, ...]:
        """Return pairs (epsilon_i, delta_i), failures included."""
        leaves = count_leaves(event).items()
        # Plain sums are added in units, so that three times 0.1 is 0.3.
        known = sum(n * _up(leaf.epsilon) for leaf, n in leaves if isinstance(leaf, ApproxDP))
        lost = sum(n * _up(leaf.delta) for leaf, n in leaves if isinstance(leaf, ApproxDP))
        lost += _up(sampler_delta(self.epsilon, failure))
        others = {leaf: n for leaf, n in leaves if not isinstance(leaf, ApproxDP)}
        if not others:
            return ((known, lost),)
        rest = Compose(tuple(Repeat(leaf, n) for leaf, n in others.items()))
        pairs = []
        if self.delta > 0:
            pairs += self._pair(rest, self.delta * self._part(rest))
        if all(math.isfinite(_pure_epsilon(leaf)) for leaf in others):
            pairs.append((sum(n * _up(_pure_epsilon(leaf)) for leaf, n in others.items()), 0))
        pairs.sort(key=self._size)
        if delta is not None:
            pairs[:0] = self._pair(rest, self.share * delta)
        return tuple((known + own, lost + also) for own, also in pairs)

    def _pair(self, event: Event, delta: float) -> list[tuple[int, int]]:
        epsilon = Tight().epsilon(event, delta)
        return [(_up(epsilon), _up(delta))] if math.isfinite(epsilon) else []

    def _size(self, pair: tuple[int, int]) -> float:
        """Return what a pair takes of epsilon and of delta, together."""
        return pair[0] / self.epsilon + (pair[1] / self.delta if pair[1] else 0.0)

    def _part(self, event: Event) -> float:
        return min(1.0, max(SMALLEST_SHARE, Tight().epsilon(event, self.delta) / self.epsilon))


def _pure_epsilon(leaf: Leaf) -> float:
    """Return the epsilon of what is purely private, infinite for all else."""
    match leaf:
        case PureDP():
            return leaf.epsilon
        case Exponential():
            return leaf.eta
    return math.inf


@lru_cache(maxsize=256)
def _filters(cap: Budget, mode: str) -> dict[str, tuple[Filter, Cost]]:
    """Filters of an account by name, each with its limits, in the order of the proof's labels."""
    shares = SHARES[mode]
    # One filter alone takes the samplers' failures out of its own delta; several leave them a reserve.
    delta = cap.delta if mode == "basic" else spendable(cap).delta
    made: dict[str, Filter] = {}
    for name, share in shares.items():
        if name == "basic":
            made[name] = BasicFilter(cap.epsilon, share * delta, share)
        elif name == "gaussian":
            made[name] = GaussianFilter(cap.epsilon, share * delta)
        else:
            order = _best_order(cap.epsilon, shares["renyi"] * delta)
            made[name] = RenyiFilter(
                cap.epsilon, share * delta, order if name == "renyi" else 1 + 2 * (order - 1)
            )
    return {name: (rule, rule.limits) for name, rule in made.items()}


@lru_cache(maxsize=4096)
def _costs(
    cap: Budget, mode: str, event: Event, failure: float, delta: float | None
) -> dict[str, tuple[Cost, ...]]:
    return {name: rule.costs(event, failure, delta) for name, (rule, _) in _filters(cap, mode).items()}


def _failure_limit(cap: Budget) -> int:
    """Largest sum of sampling failures: (1 + e^epsilon) times it is the samplers' share of delta."""
    return _down(SAMPLER_SHARE * cap.delta / sampler_delta(cap.epsilon, 1.0))


@dataclass(frozen=True)
class Spending:
    """Totals that an account has spent."""

    # {"fresh", "gaussian", "renyi", "basic", "whole"}: set by the first charge; "whole" is an account that
    # one release has taken
    mode: str = "fresh"
    # totals of the filters that still accept everything charged so far
    totals: tuple[tuple[str, Cost], ...] = ()
    failure: int = 0  # sum of the sampling failures

    def to_plain(self) -> dict[str, Any]:
        """Return the fields in plain types; integers as text, because most readers of JSON round them."""
        totals = {name: [str(part) for part in total] for name, total in self.totals}
        return {"mode": self.mode, "totals": totals, "failure": str(self.failure)}

    @classmethod
    def from_plain(cls, content: Mapping[str, Any]) -> Spending:
        """Read back what `to_plain` wrote."""
        totals = ((name, tuple(int(part) for part in total)) for name, total in content["totals"].items())
        return cls(content["mode"], tuple(sorted(totals)), int(content["failure"]))

    def used(self, cap: Budget) -> int:
        """Part of the cap that is spent, in units of 1/WHOLE, rounded up: the least over the filters."""
        if self.mode == "fresh":
            return 0
        if self.mode == "whole":
            return WHOLE
        filters = _filters(cap, self.mode)
        return min(_used(total, filters[name][1]) for name, total in self.totals)

    def failed(self, cap: Budget) -> int:
        """Part of the samplers' reserve that is spent, in units of 1/WHOLE, rounded up."""
        if self.mode not in ("gaussian", "renyi"):
            return 0
        return _used((self.failure,), (_failure_limit(cap),))


def _used(total: Cost, limits: Cost) -> int:
    parts = (-(-spent * WHOLE // limit) for spent, limit in zip(total, limits, strict=True) if spent)
    return max(parts, default=0)


FRESH = Spending()


def admit(
    cap: Budget, spending: Spending, event: Event, *, failure: float = 0.0, delta: float | None = None
) -> Spending | None:
    """Return what is spent once the event is charged, or None if it does not fit.

    `spending`: so far; `failure`: total-variation distance of the samplers from the event's noise, summed;
    `delta`: delta for which the event's noise was planned.
    """
    if spending.mode == "whole":
        return None
    mode = _mode(cap, event) if spending.mode == "fresh" else spending.mode
    filters = _filters(cap, mode)
    before = dict(spending.totals)
    if spending.mode == "fresh":
        before = {name: (0,) * len(limits) for name, (_, limits) in filters.items()}
    totals = []
    costs = _costs(cap, mode, event, failure, delta)
    for name, start in before.items():
        sums = (tuple(map(sum, zip(start, cost, strict=True))) for cost in costs[name])
        limits = filters[name][1]
        fitting = (t for t in sums if all(spent <= limit for spent, limit in zip(t, limits, strict=True)))
        if (total := next(fitting, None)) is not None:
            totals.append((name, total))
    failures = spending.failure + _up(failure)
    if totals and (mode == "basic" or failures <= _failure_limit(cap)):
        return Spending(mode, tuple(sorted(totals)), failures)
    if spending.mode == "fresh" and _fits_whole(cap, event, failure):
        return Spending("whole", (), failures)
    return None


def covers(
    cap: Budget, before: Spending, after: Spending, event: Event, *, failure: float, delta: float | None
) -> bool:
    """Say whether totals that were written down for a charge are valid and not below its price.

    A price may differ in its last digits from machine to machine, so `ROUNDING` is allowed.
    """
    tolerance = Fraction(repr(ROUNDING))
    first = before.mode == "fresh"
    if after.failure < before.failure + _up(failure) * (1 - tolerance):
        return False
    if after.mode == "whole":
        return first and _fits_whole(replace(cap, epsilon=cap.epsilon * (1 + ROUNDING)), event, failure)
    if after.mode != (_mode(cap, event) if first else before.mode) or not after.totals:
        return False
    costs, earlier = _costs(cap, after.mode, event, failure, delta), dict(before.totals)
    for name, total in after.totals:
        start = earlier.get(name, (0,) * len(total) if first else ())
        steps = tuple(t - s for t, s in zip(total, start, strict=True))
        if not any(
            all(step >= c * (1 - tolerance) for step, c in zip(steps, cost, strict=True))
            for cost in costs.get(name, ())
        ):
            return False
    return after.used(cap) <= WHOLE and after.failed(cap) <= WHOLE


def _mode(cap: Budget, event: Event) -> str:
    if cap.delta < SMALLEST_DELTA or not RDP().supports(event):
        return "basic"
    return "gaussian" if GDP().supports(event) else "renyi"


def _fits_whole(cap: Budget, event: Event, failure: float) -> bool:
    """Say whether the event alone is within the cap. No answer exists before it, so it is not adaptive."""
    left = cap.delta - sampler_delta(cap.epsilon, failure)
    return left >= 0 and Tight().epsilon(event, left) <= cap.epsilon


def requested(cap: Budget, event: Event) -> float:
    """Epsilon of the event alone at the cap's delta."""
    return Tight().epsilon(event, cap.delta)


@lru_cache(maxsize=256)
def remaining(cap: Budget, spending: Spending, delta: float) -> float:
    """Return the epsilon, at delta, of the largest Gaussian release that would be granted."""
    if min(cap.delta, delta) < SMALLEST_DELTA or spending.mode == "whole":
        return 0.0
    priced = spendable(Budget(cap.epsilon, delta)).delta
    # Nothing larger than the whole cap fits; a release of a millionth of it is no release.
    high = math.log(gaussian_mu(cap.epsilon, cap.delta))
    low = high - math.log(1e6)

    def fits(log_mu: float) -> bool:
        return admit(cap, spending, Gaussian(math.exp(-log_mu)), delta=priced) is not None

    if not fits(low):
        return 0.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return min(cap.epsilon, gaussian_epsilon(math.exp(low), priced))
