"""Privacy-loss distributions of Poisson samples, composed by products of polynomials with ball coefficients.

A distribution has masses at the losses i `STEP`, and a mass at infinity. It is the one whose profile joins
the true profile at these losses by chords in e^epsilon ("connect the dots"), and is therefore never below it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from flint import arb, arb_poly, ctx

from dpcvx.checker.effort import spend
from dpcvx.errors import NotAccountable

__all__ = ["sampled_delta"]

BITS = 160
STEP = 2.0**-14  # between losses
SMALL = 1e-30  # mass of a tail that may be moved to where it is counted as worse
LARGEST = 2**18  # losses of one distribution; products of longer polynomials take minutes

Profile = Callable[[arb], arb]


@dataclass(frozen=True)
class Losses:
    """Masses at the losses (first + i) `STEP`, and at infinity."""

    first: int
    masses: arb_poly
    infinite: arb

    def __mul__(self, other: Losses) -> Losses:
        """Return the distribution of both losses together."""
        infinite = 1 - (1 - self.infinite) * (1 - other.infinite)
        return _cut(self.first + other.first, self.masses * other.masses, infinite)

    def delta(self, epsilon: arb) -> arb:
        """Return the profile at epsilon."""
        start = max(0, math.floor(float(epsilon.mid()) / STEP) - self.first)
        coefficients = self.masses.coeffs()
        spend(2 * max(0, len(coefficients) - start))
        found, step = self.infinite, arb(STEP)
        for i in range(start, len(coefficients)):
            found += coefficients[i] * arb.max(1 - (epsilon - (self.first + i) * step).exp(), arb(0))
        return found


def _cut(first: int, masses: arb_poly, infinite: arb) -> Losses:
    """Move the upper tail to infinity, and the lower one to the least loss that is kept."""
    coefficients = masses.coeffs()
    spend(4 * len(coefficients))
    top, above = len(coefficients), 0.0
    while top > 1 and above + (mass := _above(coefficients[top - 1])) <= SMALL:
        top, above = top - 1, above + mass
    bottom, below = 0, 0.0
    while bottom < top - 1 and below + (mass := _above(coefficients[bottom])) <= SMALL:
        bottom, below = bottom + 1, below + mass
    kept = coefficients[bottom:top]
    kept[0] += arb(below)
    if len(kept) > LARGEST:
        raise NotAccountable("The losses of these samples are too many to be composed here.")
    return Losses(first + bottom, arb_poly(kept), infinite + arb(above))


def _above(mass: arb) -> float:
    return max(0.0, math.nextafter(float((mass.mid() + mass.rad()).mid()), math.inf))


def _connect(profile: Profile) -> Losses:
    """Return the distribution of a pair of laws, from the profile of the pair."""
    step = arb(STEP)
    high = _first(lambda i: profile(i * step) <= SMALL, 1)
    # Below -low nearly all mass has been seen: 1 - e^epsilon is reached up to a tail.
    low = -_first(lambda i: profile(-i * step) - (1 - (-i * step).exp()) <= SMALL, 1)
    if high - low > LARGEST:
        raise NotAccountable("A release of these samples has hardly any protection.")
    factor = step.exp()
    points = [(i * step).exp() for i in (low,)]
    for _ in range(high - low):
        points.append(points[-1] * factor)
    deltas = [profile(i * step) for i in range(low, high + 1)]
    slopes = [(deltas[i + 1] - deltas[i]) / (points[i + 1] - points[i]) for i in range(high - low)]
    masses = [arb(0)] + [
        (after - before) * point
        for before, after, point in zip(slopes, [*slopes[1:], arb(0)], points[1:], strict=True)
    ]
    masses[0] = 1 - deltas[-1] - sum(masses, arb(0))
    return _cut(low, arb_poly(masses), deltas[-1])


def _first(passes: Callable[[int], Any], start: int) -> int:
    """Return the first of the numbers start, 2 start, 4 start, ..., narrowed down, that passes."""
    high = start
    while not passes(high):
        high *= 2
        if high > 64 * LARGEST:
            raise NotAccountable("A release of these samples has hardly any protection.")
    low = high // 2
    while high - low > max(1, high // 256):
        middle = (low + high) // 2
        low, high = (low, middle) if passes(middle) else (middle, high)
    return high


def _tail(x: arb) -> arb:
    spend(10)
    return (x / arb(2).sqrt()).erfc() / 2


def _gaussian(mu: arb) -> Profile:
    return lambda epsilon: _tail(epsilon / mu - mu / 2) - epsilon.exp() * _tail(epsilon / mu + mu / 2)


def _sampled(probability: float, multiplier: float, relation: str) -> list[Profile]:
    """Profiles of (1-q) N(0, s^2) + q N(1, s^2) against its neighbour, in every direction that differs.

    Replaced: (1-q) N(0) + q N(-1), the antipodal record, the same in either direction. Added or removed:
    N(0), in two directions.
    """
    q, s = arb(probability), arb(multiplier)
    c = (-1 / (2 * s**2)).exp()

    def replaced(epsilon: arb) -> arb:
        # 1-q + q c t = e^epsilon (1-q + q c / t) at t = e^(x / s^2), beyond which the ratio is larger
        ratio = epsilon.exp()
        half = (1 - q) * (1 - ratio) / 2
        x = s**2 * (((half**2 + q**2 * c**2 * ratio).sqrt() - half) / (q * c)).log()
        middle = (1 - q) * _tail(x / s)
        return middle + q * _tail((x - 1) / s) - ratio * (middle + q * _tail((x + 1) / s))

    def removed(epsilon: arb) -> arb:
        ratio = epsilon.exp()
        inner = (ratio - 1 + q) / (q * c)
        if not inner > 0:
            return 1 - ratio  # the ratio of the laws is above e^epsilon everywhere
        x = s**2 * inner.log()
        return (1 - q) * _tail(x / s) + q * _tail((x - 1) / s) - ratio * _tail(x / s)

    def added(epsilon: arb) -> arb:
        # delta of the reversed pair: H_e(Q, P) = 1 - e^e + e^e H_-e(P, Q)
        return 1 - epsilon.exp() + epsilon.exp() * removed(-epsilon)

    return [replaced] if relation == "replace" else [removed, added]


def _profiles(kind: str, values: tuple[Any, ...]) -> list[Profile]:
    """One profile for each direction of a pair that is not symmetric."""
    if kind == "Poisson":
        return _sampled(*values)
    if kind == "Gaussian":
        return [_gaussian(1 / arb(values[0]))]
    most = arb(values[0])

    def selection(epsilon: arb) -> arb:
        if epsilon >= most:
            return arb(0)
        if epsilon <= -most:
            return 1 - epsilon.exp()
        return (1 - ((epsilon - most) / 2).exp()) ** 2 / (1 - (-most).exp())

    def response(epsilon: arb) -> arb:
        if epsilon >= most:
            return arb(0)
        if epsilon <= -most:
            return 1 - epsilon.exp()
        return (1 - (epsilon - most).exp()) / (1 + (-most).exp())

    return [selection if kind == "Exponential" else response]


def _power(losses: Losses, count: int) -> Losses:
    found = None
    while count:
        if count & 1:
            found = losses if found is None else found * losses
        count >>= 1
        if count:
            losses = losses * losses
    assert found is not None
    return found


@lru_cache(maxsize=4)
def _composed(parts: tuple[tuple[str, tuple[Any, ...], int], ...]) -> list[Losses]:
    """The distribution of all parts, in each direction."""
    # Gaussian releases together are one, exactly.
    squares = sum((n / arb(values[0]) ** 2 for kind, values, n in parts if kind == "Gaussian"), arb(0))
    others = [(kind, values, n) for kind, values, n in parts if kind != "Gaussian"]
    totals = []
    for direction in range(max(len(_profiles(kind, values)) for kind, values, _ in others)):
        total = None
        if squares > 0:
            total = _connect(_gaussian(squares.sqrt()))
        for kind, values, n in others:
            choices = _profiles(kind, values)
            part = _power(_connect(choices[direction % len(choices)]), n)
            total = part if total is None else total * part
        assert total is not None
        totals.append(total)
    return totals


def sampled_delta(parts: tuple[tuple[str, tuple[Any, ...], int], ...], epsilon: arb) -> arb:
    """Return a delta of Poisson samples and other releases together at epsilon."""
    before, ctx.prec = ctx.prec, BITS
    try:
        deltas = [losses.delta(epsilon) for losses in _composed(parts)]
        return max(deltas, key=_above)
    finally:
        ctx.prec = before
