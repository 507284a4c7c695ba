"""Lower bounds on epsilon from many runs on two neighbours: the best event on half, confidence on the rest.

The bounds convert error rates through the curve of the mechanism: mu for Gaussian releases, the bounded range
eta for selections, and the plain ratio of probabilities for anything else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpcvx.accounting import gaussian_epsilon
from dpcvx.arrays import IntVector, Vector

__all__ = ["CONFIDENCE", "ErrorRates", "best_rates", "lower_epsilon", "lower_mu", "lower_range"]

CONFIDENCE = 0.95  # of all bounds of a report together


@dataclass(frozen=True)
class ErrorRates:
    """Upper confidence bounds of both error rates of one test of D against D'."""

    false_alarm: float  # P(says D' | D)
    miss: float  # P(says D | D')


def best_rates(
    one: Vector, other: Vector, failure: float, measure: Callable[[ErrorRates], float] | None = None
) -> ErrorRates:
    """Return error rates of the best threshold: chosen on the first half of the runs, bounded on the second.

    `one`, `other`: a statistic of runs on D and on D', larger on D; `failure`: chance that a bound is wrong;
    `measure`: what the threshold makes largest, by default `lower_mu`.
    """
    measure = measure or lower_mu
    half = len(one) // 2
    cuts = np.unique(np.quantile(np.concatenate([one[:half], other[:half]]), np.linspace(0.02, 0.98, 97)))
    counts = (one[:half, None] < cuts).sum(axis=0), (other[:half, None] >= cuts).sum(axis=0)
    # By its confidence bounds, so that a rare event is chosen only if it was seen often enough.
    bounded = [_upper(each, half, failure) for each in counts]
    known = [ErrorRates(float(a), float(b)) for a, b in zip(*bounded, strict=True)]
    cut = cuts[max(range(len(cuts)), key=lambda place: measure(known[place]))]
    runs = len(one) - half
    last = np.array([(one[half:] < cut).sum(), (other[half:] >= cut).sum()])
    return ErrorRates(*map(float, _upper(last, runs, failure)))


def _upper(counts: IntVector, runs: int, failure: float) -> Vector:
    """Return Clopper-Pearson upper bounds of chances, each wrong with half of the failure probability."""
    from scipy import stats

    bounds = stats.beta.ppf(1 - failure / 2, counts + 1, np.maximum(runs - counts, 1e-9))
    return np.where(counts >= runs, 1.0, np.asarray(bounds))


def lower_mu(rates: ErrorRates) -> float:
    """Return the smallest mu of a Gaussian pair that allows these error rates; 0 if none is needed."""
    from scipy.special import ndtri

    if rates.false_alarm >= 1 or rates.miss >= 1:
        return 0.0
    return max(0.0, -float(ndtri(rates.false_alarm)) - float(ndtri(rates.miss)))


def lower_range(rates: ErrorRates) -> float:
    """Return the smallest bounded range eta that allows these error rates: a log-odds ratio.

    For an event E both P(E)/Q(E) and Q(not E)/P(not E) are among ratios that span at most e^eta.
    """
    a, b = rates.false_alarm, rates.miss
    return max(0.0, math.log((1 - a) / b) + math.log((1 - b) / a)) if 0 < a < 1 and 0 < b < 1 else 0.0


def lower_epsilon(rates: ErrorRates, delta: float) -> float:
    """Return the smallest epsilon of (epsilon, delta)-privacy that allows these error rates."""
    a, b = rates.false_alarm, rates.miss
    found = [0.0]
    for often, seldom in ((1 - b, a), (1 - a, b)):
        if often > delta and seldom > 0:
            found.append(math.log((often - delta) / seldom))
    return max(found)


def epsilon_of_mu(mu: float, delta: float) -> float:
    """Return epsilon of a Gaussian pair at delta; 0 for equal laws."""
    return gaussian_epsilon(mu, delta) if mu > 0 else 0.0
