"""Classes whose privacy-relevant properties are trusted, declared beside the class itself.

Privacy of minimisers that run beside the records, and of queries, rests on slopes, convexity and proxes that
nothing enforces. ``@vouched("minimisers")`` above a class says that these were proved for it. A subclass may
override anything, so it does not inherit the trust.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

__all__ = ["ITERATIVE_ERROR", "VOUCHED", "Trust", "Use", "is_vouched", "prox_error", "vouched"]

# minimisers: `mechanisms.minimise`, and products of columns in the place of residuals (`mechanisms.vertex`).
# queries: `queries.compiled`.
Use = Literal["minimisers", "queries"]
Kind = TypeVar("Kind", bound=type)

ITERATIVE_ERROR = 1e-9  # of a prox that is not a closed form, relative to the size of the set


@dataclass(frozen=True)
class Trust:
    """Uses that a class was vouched for, and the accuracy of its prox."""

    uses: frozenset[str]
    # relative error of the projection or prox, or a function of the instance; 0 for a
    # closed form, inf for none that is known
    prox_error: float | Callable[[Any], float]
    # sets and functions that an instance consists of, which need trust of their own
    parts: Callable[[Any], Sequence[object]]


VOUCHED: dict[type, Trust] = {}


def vouched(
    *uses: Use,
    prox_error: float | Callable[[Any], float] = 0.0,
    parts: Callable[[Any], Sequence[object]] = lambda whole: (),
) -> Callable[[Kind], Kind]:
    """Declare that the constants and the prox of a class are true and accurate enough for some uses."""

    def declare(kind: Kind) -> Kind:
        VOUCHED[kind] = Trust(frozenset(uses), prox_error, parts)
        return kind

    return declare


def is_vouched(kind: type, use: Use) -> bool:
    """Whether exactly this class was vouched for."""
    return kind in VOUCHED and use in VOUCHED[kind].uses


def prox_error(part: object, use: Use = "minimisers") -> float:
    """Relative error of the prox of a set or regularizer and of its parts; inf if one was not vouched for."""
    if not is_vouched(type(part), use):
        return math.inf
    trust = VOUCHED[type(part)]
    own = trust.prox_error(part) if callable(trust.prox_error) else trust.prox_error
    return max([own, *(prox_error(each, use) for each in trust.parts(part))])
