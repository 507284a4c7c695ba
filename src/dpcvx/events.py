"""Events: public descriptions of releases, from which accountants compute the privacy cost.

An event says how much a release may depend on one record and nothing else. Every number is relative to the
neighbouring relation of the plan that holds the event, so an accountant needs no data and no sensitivity.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dpcvx.errors import NotAccountable, WrongType, WrongValue

RELATIONS = ("replace", "add_remove")
# Prices are computed in time and memory that do not depend on counts. These limits keep everything else about
# an event small, whoever wrote it.
LARGEST_COUNT = 10**18  # of one event in all, nested repetitions multiplied
DEEPEST = 64  # levels of events inside events
LARGEST_SIZE = 10**5  # events in all, each counted as often as it is reached


def _require_positive(name: str, value: float) -> None:
    if not (value > 0 and math.isfinite(value)):
        raise WrongValue(f"{name} is {value!r}; it must be a positive finite number.")


@dataclass(frozen=True)
class Gaussian:
    """One release with Gaussian noise of standard deviation ``noise_multiplier`` times the sensitivity.

    Exactly (1 / noise_multiplier)-GDP.
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        _require_positive("noise_multiplier", self.noise_multiplier)


@dataclass(frozen=True)
class Exponential:
    """One selection whose log-probability ratios between neighbours lie in an interval of length ``eta``.

    The exponential mechanism P(s) ~ exp(-eta u_s / (2 Delta)) is the example. Permute-and-flip and
    report-noisy-max with Laplace noise are not: they are only `PureDP`.
    """

    eta: float

    def __post_init__(self) -> None:
        _require_positive("eta", self.eta)


@dataclass(frozen=True)
class PureDP:
    """Any (epsilon, 0)-differentially private release."""

    epsilon: float

    def __post_init__(self) -> None:
        _require_positive("epsilon", self.epsilon)


@dataclass(frozen=True)
class ApproxDP:
    """A release of which nothing is known but (epsilon, delta)-differential privacy."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        if not (self.epsilon >= 0 and math.isfinite(self.epsilon)):
            raise WrongValue(f"epsilon is {self.epsilon!r}; it must be a finite number, zero or more.")
        if not 0 <= self.delta < 1:
            raise WrongValue(f"delta is {self.delta!r}; it must be at least 0 and less than 1.")


@dataclass(frozen=True)
class Poisson:
    """A Gaussian release of a sum over a Poisson sample of the records."""

    probability: float  # chance of each record to be in the sample, independently of the others
    # standard deviation of the noise over the clip norm of one record. The relation is accounted for by the
    # accountant: this number is not halved under "replace".
    noise_multiplier: float
    relation: str = "replace"  # {"replace", "add_remove"}: neighbouring relation of the plan

    def __post_init__(self) -> None:
        if not 0 < self.probability <= 1:
            raise WrongValue(f"probability is {self.probability!r}; it must be more than 0 and at most 1.")
        _require_positive("noise_multiplier", self.noise_multiplier)
        if self.relation not in RELATIONS:
            raise WrongValue(f"relation is {self.relation!r}; use one of {', '.join(RELATIONS)}.")


@dataclass(frozen=True)
class PerturbedObjective:
    """The exact minimiser of a convex GLM objective with a Gaussian linear term (objective perturbation).

    argmin sum_i phi(<x_i, theta>, y_i) + (Lam/2) ||theta||^2 + r(theta) + <b, theta>, b ~ N(0, sigma^2 I)
    """

    # L B_2 / sigma: the largest gradient of one record over the standard deviation of b. The relation is
    # accounted for by the accountant: this number is not doubled under "replace".
    shift: float
    # log(1 + beta B_2^2 / Lam), what one record changes in the density of the map from b to theta; d
    # log(1 + beta B_2^2 / (d Lam)) for a unit of several rows
    jacobian: float
    relation: str = "replace"  # {"replace", "add_remove"}: neighbouring relation of the plan
    unit: str = dataclasses.field(default="row", repr=False)  # or "person": a weighted mean of rows

    def __post_init__(self) -> None:
        _require_positive("shift", self.shift)
        if self.unit not in ("row", "person"):
            raise WrongValue(f"unit is {self.unit!r}; use row or person.")
        if not (self.jacobian >= 0 and math.isfinite(self.jacobian)):
            raise WrongValue(f"jacobian is {self.jacobian!r}; it must be a finite number, zero or more.")
        if self.relation not in RELATIONS:
            raise WrongValue(f"relation is {self.relation!r}; use one of {', '.join(RELATIONS)}.")


@dataclass(frozen=True)
class Repeat:
    """The same event, ``count`` times, each possibly chosen in the light of the earlier answers."""

    event: Event
    count: int

    def __post_init__(self) -> None:
        if isinstance(self.count, bool) or not isinstance(self.count, int):
            raise WrongType(f"count is {self.count!r}; it must be an int.")
        if self.count < 1:
            raise WrongValue(f"count is {self.count}; it must be at least 1; leave out other events.")
        if self.count > LARGEST_COUNT:
            raise WrongValue(f"count is too large; it may be at most {LARGEST_COUNT:.0e}.")


@dataclass(frozen=True)
class Compose:
    """Several events, one after the other, each possibly chosen in the light of the earlier answers."""

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.events, tuple):
            raise WrongType(f"events is a {type(self.events).__name__}; it must be a tuple of events.")
        if not self.events:
            raise WrongValue("events is empty; Compose needs at least one event.")


@dataclass(frozen=True)
class Worst:
    """One of several events, chosen by public chance or by the part of the data of a record.

    A random candidate's fit is an example, and so are questions about disjoint parts of the records, of which
    a record is in one. The price is that of the worst of them, at every order.
    """

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.events, tuple):
            raise WrongType(f"events is a {type(self.events).__name__}; it must be a tuple of events.")
        if not self.events:
            raise WrongValue("events is empty; Worst needs at least one event.")


@dataclass(frozen=True)
class RepeatAndSelect:
    """The best of a random number K of runs of an event, chosen by the released outputs of the runs.

    Nothing else of the runs is released, nor is K, which is drawn beforehand and is at least 1.
    """

    event: Event  # one run
    mean: float  # expected number of runs, more than 1
    # None for Poisson's law, else that of the truncated negative binomial law, more than -1: 0 is the
    # logarithmic and 1 the geometric law. All are conditioned on K >= 1.
    shape: float | None = None

    def __post_init__(self) -> None:
        if not (self.mean > 1 and math.isfinite(self.mean)):
            raise WrongValue(f"mean is {self.mean!r}; it must be a finite number above 1.")
        if self.shape is not None and not (self.shape > -1 and math.isfinite(self.shape)):
            raise WrongValue(f"shape is {self.shape!r}; it must be a finite number above -1, or None.")


Leaf = Gaussian | Exponential | PureDP | ApproxDP | Poisson | PerturbedObjective | Worst | RepeatAndSelect
Event = Leaf | Repeat | Compose


def count_leaves(event: Event) -> Counter[Leaf]:
    """Return how often each single event happens in all.

    This is the only place where repetition and composition are read; accounting rules see the counts alone.

    Raises NotAccountable: if something that is not an event is found, or the event is too large.
    """
    _require_small(event)
    return _count_leaves(event)


def _require_small(event: Event) -> None:
    """Refuse an event that is nested too deeply, or too large to be read."""
    waiting, size = [(event, 1, 0)], 0
    while waiting:
        part, count, depth = waiting.pop()
        size += 1
        if count > LARGEST_COUNT:
            raise NotAccountable(f"An event may happen at most {LARGEST_COUNT:.0e} times.")
        if depth > DEEPEST:
            raise NotAccountable(f"Events may be nested at most {DEEPEST} levels deep; use one Compose.")
        match part:
            case Repeat():
                waiting.append((part.event, count * part.count, depth + 1))
            case Compose():
                waiting.extend((each, count, depth + 1) for each in part.events)
            case Worst() | RepeatAndSelect():
                waiting.extend((each, 1, depth + 1) for each in _inside(part))
        if size + len(waiting) > LARGEST_SIZE:
            raise NotAccountable(f"An event may have at most {LARGEST_SIZE:.0e} parts: use Repeat.")


def _count_leaves(event: Event) -> Counter[Leaf]:
    match event:
        case Repeat():
            return Counter({leaf: event.count * count for leaf, count in _count_leaves(event.event).items()})
        case Compose():
            total: Counter[Leaf] = Counter()
            for part in event.events:
                total.update(_count_leaves(part))
            return total
        case Worst() | RepeatAndSelect():
            for part in _inside(event):
                _count_leaves(part)  # refuses what is no event
            return Counter({event: 1})
        case Gaussian() | Exponential() | PureDP() | ApproxDP() | Poisson() | PerturbedObjective():
            return Counter({event: 1})
    raise NotAccountable(
        f"{type(event).__name__} is not an event that can be accounted for. Describe the release by "
        "Gaussian, Exponential, PureDP, ApproxDP, Poisson or PerturbedObjective."
    )


def _inside(leaf: Leaf) -> tuple[Event, ...]:
    """Return the events inside a single event that is not a composition, such as `Worst`."""
    match leaf:
        case Worst():
            return leaf.events
        case RepeatAndSelect():
            return (leaf.event,)
    return ()


def walk(event: Event) -> Iterator[Leaf]:
    """Yield the single events, and the events inside them."""
    for leaf in count_leaves(event):
        yield leaf
        for part in _inside(leaf):
            yield from walk(part)


_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        *(Gaussian, Exponential, PureDP, ApproxDP, Poisson, PerturbedObjective),
        *(Repeat, Compose, Worst, RepeatAndSelect),
    )
}


def to_plain(event: Event) -> dict[str, Any]:
    """Return the event, and the events inside it, in plain types that JSON can hold.

    Raises NotAccountable: if something that is not an event is found.
    """
    count_leaves(event)  # refuses what is no event
    match event:
        case Repeat():
            return {"event": "Repeat", "count": event.count, "of": to_plain(event.event)}
        case Compose() | Worst():
            return {"event": type(event).__name__, "events": [to_plain(part) for part in event.events]}
        case RepeatAndSelect():
            law = {"mean": event.mean, "shape": event.shape}
            return {"event": "RepeatAndSelect", **law, "of": to_plain(event.event)}
    values = {field.name: getattr(event, field.name) for field in dataclasses.fields(event)}
    if values.get("unit") == "row":  # as earlier versions write it
        del values["unit"]
    numbers = {name: value if isinstance(value, str) else float(value) for name, value in values.items()}
    return {"event": type(event).__name__, **numbers}


def from_plain(content: Mapping[str, Any]) -> Event:
    """Read back what `to_plain` wrote; anything else is a ValueError."""
    try:
        fields = dict(content)
        kind = _KINDS[fields.pop("event")]
        if kind in (Repeat, RepeatAndSelect):
            fields = {"event": from_plain(fields.pop("of")), **fields}
        elif kind in (Compose, Worst):
            fields = {"events": tuple(from_plain(part) for part in fields.pop("events")), **fields}
        event: Event = kind(**fields)
    except RecursionError:
        raise WrongValue("This event is nested too deeply.") from None
    except (KeyError, TypeError) as problem:
        raise WrongValue(f"This describes no event: {sorted(map(str, content))}.") from problem
    return event
