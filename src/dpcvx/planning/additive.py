"""Knots and interactions of additive models, chosen from public numbers."""

from __future__ import annotations

import math

from dpcvx.accounting import Budget, gaussian_mu, spendable
from dpcvx.solvers.defaults import default

__all__ = [
    "KNOTS",
    "KNOTS_OF_LABELS_BESIDE_ERRORS",
    "KNOTS_OF_NUMBERS",
    "KNOTS_OF_NUMBERS_BESIDE_ERRORS",
    "MOST_CANDIDATES",
    "PAIRS_OF_LABELS",
    "PAIRS_OF_NUMBERS",
    "SELECTED_PAIRS",
    "KnotRule",
    "default_knots",
    "default_pairs",
    "needs_short_tail",
    "pair_weight",
    "ramp_weight",
    "selects_pairs",
    "spaced_knots",
]

KnotRule = tuple[tuple[float, int], ...]  # least n mu/d, and the number of knots from there on
KNOTS: KnotRule = default("planning.additive.KNOTS")
KNOTS_OF_NUMBERS: KnotRule = default("planning.additive.KNOTS_OF_NUMBERS")
WHATEVER_TAIL: float = default("planning.additive.WHATEVER_TAIL")
KNOTS_OF_LABELS_BESIDE_ERRORS: KnotRule = default("planning.additive.KNOTS_OF_LABELS_BESIDE_ERRORS")
KNOTS_OF_NUMBERS_BESIDE_ERRORS: KnotRule = default("planning.additive.KNOTS_OF_NUMBERS_BESIDE_ERRORS")
KNOT_REACH: float = default("planning.additive.KNOT_REACH")
RAMP_SQUARE: float = default("planning.additive.RAMP_SQUARE")
PAIR_SQUARE: float = default("planning.additive.PAIR_SQUARE")
PAIRS_OF_LABELS: float = default("planning.additive.PAIRS_OF_LABELS")
PAIRS_OF_NUMBERS: float = default("planning.additive.PAIRS_OF_NUMBERS")
MOST_PAIRS: int = default("planning.additive.MOST_PAIRS")
RECORDS_OF_A_PAIR: int = default("planning.additive.RECORDS_OF_A_PAIR")
SELECTED_PAIRS: int = default("planning.additive.SELECTED_PAIRS")
MOST_CANDIDATES: int = default("planning.additive.MOST_CANDIDATES")


def precision(n: int, budget: Budget, columns: int) -> float:
    """Return n mu / d: how much a budget tells of each of d columns."""
    if budget.delta == 0:
        return 0.0
    paid = spendable(budget)
    return n // budget.rows * gaussian_mu(paid.epsilon, paid.delta) / max(columns, 1)


def default_knots(n: int, budget: Budget, columns: int, rule: KnotRule) -> int:
    """Return the number of knots of each shape, 0 for straight lines."""
    known = precision(n, budget, columns)
    return max((knots for least, knots in rule if known >= least), default=0)


def needs_short_tail(n: int, budget: Budget, columns: int) -> bool:
    """Whether shapes of a regression are worth their noise only if the target's tail is short."""
    return precision(n, budget, columns) < WHATEVER_TAIL


def default_pairs(n: int, budget: Budget, columns: int, pairs: int, least: float) -> bool:
    """Whether products of all pairs of columns are features: where n mu/d is `least` or more."""
    return pairs <= most_pairs(n, budget) and precision(n, budget, columns) >= least


def selects_pairs(n: int, budget: Budget, columns: int, pairs: int, least: float) -> bool:
    """Whether some of the pairs of columns are selected, where all would be too many features."""
    return most_pairs(n, budget) < pairs <= MOST_CANDIDATES and precision(n, budget, columns) >= least


def most_pairs(n: int, budget: Budget) -> int:
    """Return the largest number of pairs for which all products become features."""
    return max(SELECTED_PAIRS, min(MOST_PAIRS, n // budget.rows // RECORDS_OF_A_PAIR))


def spaced_knots(knots: int) -> tuple[float, ...]:
    """Return so many knots, evenly spaced about the mean, in standard deviations."""
    half = knots // 2
    return tuple(KNOT_REACH * k / half for k in range(-half, half + 1)) if knots else ()


def ramp_weight(knots: int) -> float:
    """Return the weight of a ramp: those on one side of the mean have RAMP_SQUARE as sum of their squares."""
    return math.sqrt(RAMP_SQUARE / (knots // 2)) if knots else 0.0


def pair_weight(features: int, pairs: int | None = None) -> float:
    """Return the weight of a product: all of them have the squares of PAIR_SQUARE d of the d features.

    `pairs`: how many there are; None for those of all features.
    """
    count = features * (features - 1) / 2 if pairs is None else pairs
    return min(1.0, math.sqrt(PAIR_SQUARE * features / max(count, features / 2)))
