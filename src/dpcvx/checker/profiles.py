"""Privacy profiles of events in ball arithmetic: every number comes with a proved bound on its error.

Nothing here is shared with `dpcvx.accounting`, whose answers it checks: events are read from plain JSON, and
every formula of PRIVACY_MATH is written anew, without regard for cancellation, since balls show the digits
that are lost and the precision is high enough to lose many.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from flint import arb, ctx

from dpcvx.checker.effort import spend
from dpcvx.checker.sampled import sampled_delta
from dpcvx.errors import NotAccountable

__all__ = ["SingleEvent", "delta_bound", "flatten"]

BITS = 320  # of every number; a difference of equal magnitudes loses at most about 200 here
LARGEST_SUM = 2**14  # releases of which the optimal composition of pure ones is summed term by term
LARGEST_SIZE = 10**5  # events of one statement
DEEPEST = 64
NUMBERS = {  # parameters of every kind of single event
    "Gaussian": ("noise_multiplier",),
    "Exponential": ("eta",),
    "PureDP": ("epsilon",),
    "ApproxDP": ("epsilon", "delta"),
    "Poisson": ("probability", "noise_multiplier", "relation"),
    "PerturbedObjective": ("shift", "jacobian", "relation", "unit"),
}
SAMPLED = {"Poisson", "Gaussian", "Exponential", "PureDP"}  # kinds that have a privacy-loss distribution
DEFAULTS = {"relation": "replace", "unit": "row"}


@dataclass(frozen=True)
class SingleEvent:
    """A single event: its kind, its parameters in the order of `NUMBERS`, and the events inside it."""

    kind: str
    values: tuple[Any, ...]
    inside: tuple[tuple[tuple[SingleEvent, int], ...], ...] = ()


Counts = tuple[tuple[SingleEvent, int], ...]  # single events, and how often each happens


def flatten(event: Any, depth: int = 0) -> Counts:
    """Return the single events of a plain description, and how often each happens."""
    spend(100)
    if depth > DEEPEST or not isinstance(event, Mapping):
        raise NotAccountable("This is no description of an event, or one that is nested too deeply.")
    kind, fields = event.get("event"), dict(event)
    if kind == "Repeat":
        times: Any = fields.get("count")
        if not _is_count(times):
            raise NotAccountable("The count of a repeated event must be a positive whole number.")
        return tuple((part, n * times) for part, n in flatten(fields.get("of"), depth + 1))
    if kind == "Compose":
        total: Counter[SingleEvent] = Counter()
        for each in _list(fields.get("events")):
            total.update(dict(flatten(each, depth + 1)))
        return tuple(total.items())
    if kind == "Worst":
        inside = tuple(flatten(each, depth + 1) for each in _list(fields.get("events")))
        return ((SingleEvent("Worst", (), inside), 1),)
    if kind == "RepeatAndSelect":
        mean: Any = fields.get("mean")
        shape: Any = fields.get("shape")
        if not _is_number(mean) or mean <= 1 or not (shape is None or (_is_number(shape) and shape > -1)):
            raise NotAccountable("A best of several runs needs a mean above 1, and a shape above -1 or none.")
        return ((SingleEvent("RepeatAndSelect", (mean, shape), (flatten(fields.get("of"), depth + 1),)), 1),)
    if not isinstance(kind, str) or kind not in NUMBERS:
        raise NotAccountable(f"There is no rule for an event of the kind {str(kind)[:40]!r}.")
    values = tuple(fields.get(name, DEFAULTS.get(name)) for name in NUMBERS[kind])
    for name, value in zip(NUMBERS[kind], values, strict=True):
        _require(kind, name, value)
    return ((SingleEvent(kind, values), 1),)


def _list(events: Any) -> list[Any]:
    if not isinstance(events, list) or not 0 < len(events) <= LARGEST_SIZE:
        raise NotAccountable(f"A composition must be a list of 1 to {LARGEST_SIZE} events.")
    return events


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 10**18


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _require(kind: str, name: str, value: Any) -> None:
    words = {"relation": ("replace", "add_remove"), "unit": ("row", "person")}
    if name in words:
        good = value in words[name]
    elif name in ("jacobian", "delta") or (kind, name) == ("ApproxDP", "epsilon"):
        good = _is_number(value) and value >= 0
    else:
        good = _is_number(value) and value > 0 and (name != "probability" or value <= 1)
    if not good:
        raise NotAccountable(f"{name} of an event of the kind {kind} is out of range.")


def upper(value: arb) -> float:
    """Return a float that is not below any number of a ball."""
    return 0.0 if value == 0 else math.nextafter(float((value.mid() + value.rad()).mid()), math.inf)


def precise(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compute with `BITS` bits, whatever the caller's precision is."""

    def wrapped(*values: Any) -> Any:
        before, ctx.prec = ctx.prec, BITS
        try:
            return function(*values)
        finally:
            ctx.prec = before

    return wrapped


@precise
def delta_bound(counts: Counts, epsilon: float) -> float:
    """Return a delta for which the events together are (epsilon, delta)-differentially private.

    The smallest of the bounds that apply. Events that are known by epsilon and delta alone are added.
    """
    known = [(part, n) for part, n in counts if part.kind == "ApproxDP"]
    left = arb(epsilon) - sum((n * arb(part.values[0]) for part, n in known), arb(0))
    paid = sum((n * arb(part.values[1]) for part, n in known), arb(0))
    rest = tuple((part, n) for part, n in counts if part.kind != "ApproxDP")
    if not left >= 0:
        return 1.0
    if not rest:
        return min(1.0, upper(paid))
    bounds = [bound for rule in RULES if (bound := rule(rest, left)) is not None]
    return min(1.0, min((upper(bound + paid) for bound in bounds), default=1.0))


def kinds(counts: Counts) -> set[str]:
    return {part.kind for part, _ in counts}


def normal_tail(x: arb) -> arb:
    """Return the chance that a standard normal variable is above x."""
    spend(20)
    return (x / arb(2).sqrt()).erfc() / 2


def gaussian_profile(epsilon: arb, mu: arb) -> arb:
    """Return delta of a mu-GDP release: Phi(mu/2 - e/mu) - e^e Phi(-mu/2 - e/mu)."""
    at = epsilon / mu
    return normal_tail(at - mu / 2) - epsilon.exp() * normal_tail(at + mu / 2)


def squared_mu(counts: Counts) -> arb:
    return sum((n / arb(part.values[0]) ** 2 for part, n in counts), arb(0))


def by_gaussians(counts: Counts, epsilon: arb) -> arb | None:
    """Gaussian releases are exactly those of one with the summed squares of 1/multiplier."""
    return gaussian_profile(epsilon, squared_mu(counts).sqrt()) if kinds(counts) == {"Gaussian"} else None


def by_one_selection(counts: Counts, epsilon: arb) -> arb | None:
    """One selection of range eta: (1 - e^((e-eta)/2))^2 / (1 - e^-eta) below eta, and 0 from there on."""
    if len(counts) != 1 or counts[0][1] != 1 or counts[0][0].kind != "Exponential":
        return None
    eta = arb(counts[0][0].values[0])
    return arb(0) if epsilon >= eta else (1 - ((epsilon - eta) / 2).exp()) ** 2 / (1 - (-eta).exp())


def by_pure_sum(counts: Counts, epsilon: arb) -> arb | None:
    """Pure releases cost no delta from the sum of their epsilons on."""
    if not kinds(counts) <= {"PureDP", "Exponential"}:
        return None
    return arb(0) if epsilon >= sum((n * arb(part.values[0]) for part, n in counts), arb(0)) else arb(1)


def by_randomised_responses(counts: Counts, epsilon: arb) -> arb | None:
    """T pure releases are dominated by T randomised responses with the largest epsilon of one."""
    total = sum(n for _, n in counts)
    if not kinds(counts) <= {"PureDP", "Exponential"} or total > LARGEST_SUM:
        return None
    each = arb(max(part.values[0] for part, _ in counts))
    # C(T, i) e^((T-i) e0) / (1 + e^e0)^T, from i = 0 on
    chance, found, shrink = (total * (each - (1 + each.exp()).log())).exp(), arb(0), (-each).exp()
    spend(10 * total)
    for i in range((total + 1) // 2):
        loss = (total - 2 * i) * each
        if loss <= epsilon:
            break
        found += chance * arb.max(1 - (epsilon - loss).exp(), arb(0))
        chance = chance * (total - i) / (i + 1) * shrink
    return found


def objective_profile(part: SingleEvent, epsilon: arb) -> arb:
    """Return delta of one perturbed objective (PRIVACY_MATH §4 and §16); 1 where nothing is proved."""
    shift, left = arb(part.values[0]), epsilon - arb(part.values[1])
    replaces, person = part.values[2] == "replace", part.values[3] == "person"
    least = 2 * shift * (1 + shift**2).sqrt() if replaces else shift**2 / 2
    if not left >= least:
        if replaces or person:
            return arb(1)
        return 1 - 2 * left.exp() * normal_tail(shift)
    moved = 2 * shift if replaces else shift
    if person:
        z = left / moved - moved / 2
        density = (-(z**2) / 2).exp() / (2 * arb.pi()).sqrt()
        return 2 * moved * (density - z * normal_tail(z))
    if replaces:
        return 2 * gaussian_profile(left, moved)
    return arb.max(2 * gaussian_profile(epsilon, shift), gaussian_profile(left, shift))


def by_objectives(counts: Counts, epsilon: arb) -> arb | None:
    """Perturbed objectives and small Gaussian noise beside them, by basic composition: equal parts each."""
    if "PerturbedObjective" not in kinds(counts) or not kinds(counts) <= {"PerturbedObjective", "Gaussian"}:
        return None
    objectives = [(part, n) for part, n in counts if part.kind == "PerturbedObjective"]
    beside = tuple((part, n) for part, n in counts if part.kind == "Gaussian")
    times = sum(n for _, n in objectives)

    def total(share: arb) -> arb:
        each = epsilon * (1 - share) / times
        found = sum((n * objective_profile(part, each) for part, n in objectives), arb(0))
        return found + (gaussian_profile(epsilon * share, squared_mu(beside).sqrt()) if beside else 0)

    return best_share(total) if beside else total(arb(0))


def best_share(total: Callable[[arb], arb]) -> arb:
    """Return the least total over divisions of epsilon into two shares: every division is a valid bound."""
    return _least(lambda logit: total(1 / (1 + (-arb(logit)).exp())), -14.0, 6.0, 41)


def by_renyi(counts: Counts, epsilon: arb) -> arb | None:
    """delta = exp((a-1) (R(a) - e + log(1 - 1/a))) / a at any order a above 1; the best is searched for."""
    if kinds(counts) & {"Poisson", "ApproxDP"} or kinds(counts) == {"Gaussian"}:
        return None  # of Gaussian releases the profile itself is known

    def log_delta(log_less: float) -> arb:
        less = arb(log_less).exp()
        order = 1 + less
        return less * (curve(counts, order) - epsilon + (less / order).log()) - order.log()

    return _least(log_delta, math.log(1e-4), math.log(1e9), 90).exp()


def _least(bound: Callable[[float], arb], low: float, high: float, count: int) -> arb:
    """Return the least of a bound at many points, which lie closer around the best of them."""
    values = {at: bound(at) for at in _between(low, high, count)}
    for _ in range(4):
        points = sorted(values)
        best = min(points, key=lambda at: upper(values[at]))
        i = points.index(best)
        ends = points[max(i - 1, 0)], points[min(i + 1, len(points) - 1)]
        values |= {at: bound(at) for at in _between(*ends, 12)}
    return min(values.values(), key=upper)


def _between(low: float, high: float, count: int) -> list[float]:
    return [low + (high - low) * k / (count - 1) for k in range(count)]


def curve(counts: Counts, order: arb) -> arb:
    """Return the Rényi divergence of an order that bounds the events together."""
    return sum((n * _single_curve(part, order) for part, n in counts), arb(0))


def _single_curve(part: SingleEvent, order: arb) -> arb:
    spend(1 if part.kind == "Gaussian" else 10)
    less = order - 1
    match part.kind:
        case "Gaussian":
            return order / (2 * arb(part.values[0]) ** 2)
        case "PureDP":
            each = arb(part.values[0])
            return (((order - arb("0.5")) * each).cosh() / (each / 2).cosh()).log() / less
        case "Exponential":
            eta = arb(part.values[0])
            gone = 1 - (-order * eta).exp()
            best = less * gone / (order * ((-eta).exp() - (-order * eta).exp()))
            return best.log() + (gone / (order * (1 - (-eta).exp()))).log() / less
        case "PerturbedObjective":
            shift, jacobian = arb(part.values[0]), arb(part.values[1])
            if part.values[2] == "replace":
                return jacobian + (2 * (1 + (2 * order * less * shift**2).exp())).log() / less
            return jacobian + order * shift**2 / 2 + (2 * normal_tail(-less * shift)).log() / less
        case "Worst":
            return max((curve(each, order) for each in part.inside), key=upper)
        case "RepeatAndSelect":
            return _selected_curve(part, order)
    raise NotAccountable(f"There is no Rényi curve of {part.kind}.")


def _selected_curve(part: SingleEvent, order: arb) -> arb:
    """The best of a random number of runs: [PS22] Lemma 7 with p' <= e^e p + delta(e) (PRIVACY_MATH §15)."""
    mean, shape = part.values
    (once,) = part.inside
    less = order - 1
    start = curve(once, order) + arb(mean).log() / less
    if shape is None:
        return start + _rate(mean) * inside_profile(once, (1 + 1 / less).log())
    success = _success(mean, shape)
    found = []
    for epsilon, delta in _inside_profiles(once):
        spend(10)
        slope, offset = epsilon.exp(), (1 - success) * delta - success * (epsilon.exp() - 1)
        at = -offset * order / slope
        at = arb.max(success, arb.min(at, arb(1)))
        found.append((slope * at + offset).log() - order / less * at.log())
    return start + (1 + arb(shape)) * (min(found, key=upper) + success.log() / less)


def inside_profile(counts: Counts, epsilon: arb) -> arb:
    """Return delta of one run at epsilon."""
    if len(counts) == 1 and counts[0][0].kind == "Worst" and counts[0][1] == 1:
        return max((inside_profile(each, epsilon) for each in counts[0][0].inside), key=upper)
    bounds = [bound for rule in (by_gaussians, by_renyi) if (bound := rule(counts, epsilon)) is not None]
    return arb.min(min(bounds, key=upper), arb(1))


@lru_cache(maxsize=8)
def _inside_profiles(counts: Counts) -> list[tuple[arb, arb]]:
    points = [arb(0), *(arb(at).exp() for at in _between(math.log(1e-6), math.log(30.0), 400))]
    return [(point, inside_profile(counts, point)) for point in points]


def _root(value: Callable[[arb], arb], target: float, low: float, high: float) -> arb:
    """Return a ball that holds the point where a rising function has a value."""
    below, above = arb(low), arb(high)
    for _ in range(200):
        middle = ((below + above) / 2).mid()
        if value(middle) < target:
            below = middle
        else:
            above = middle
    return below.union(above)


@lru_cache(maxsize=64)
def _rate(mean: float) -> arb:
    """Rate of Poisson's law that has a mean once it is conditioned on K >= 1."""
    return _root(lambda rate: rate / (1 - (-rate).exp()), mean, 1e-17, mean)


@lru_cache(maxsize=64)
def _success(mean: float, shape: float) -> arb:
    """Parameter of the truncated negative binomial law with a mean and a shape."""

    def of(log_inverse: arb) -> arb:
        success = (-log_inverse).exp()
        width = log_inverse if shape == 0 else (1 - (-log_inverse * shape).exp()) / shape
        return (1 - success) / (success * width)

    return (-_root(of, mean, 1e-12, 700.0)).exp()


def by_samples(counts: Counts, epsilon: arb) -> arb | None:
    """Poisson samples beside other releases, by their privacy-loss distributions."""
    if "Poisson" not in kinds(counts):
        return None
    if kinds(counts) <= SAMPLED:
        return sampled_delta(tuple((part.kind, part.values, n) for part, n in counts), epsilon)
    sampled = tuple((part, n) for part, n in counts if part.kind in SAMPLED)
    others = tuple((part, n) for part, n in counts if part.kind not in SAMPLED)

    def total(share: arb) -> arb:
        beside, own = by_renyi(others, epsilon * share), by_samples(sampled, epsilon * (1 - share))
        return arb(1) if beside is None or own is None else beside + own

    return best_share(total)


RULES = (
    by_gaussians,
    by_one_selection,
    by_pure_sum,
    by_randomised_responses,
    by_objectives,
    by_renyi,
    by_samples,
)
