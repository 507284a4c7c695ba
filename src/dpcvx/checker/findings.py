"""Findings about a privacy statement: claims that do not follow from its events, or contradict them."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from dpcvx.checker.effort import begin
from dpcvx.checker.profiles import NUMBERS, Counts, SingleEvent, delta_bound, flatten
from dpcvx.errors import DpcvxError, NotAccountable

__all__ = ["find"]

SAMPLER_SHARE = 1e-3  # of delta, for noise of finite precision (PRIVACY_MATH §11)
ROUNDED = 1e-4  # relative difference of two numbers of a statement that say the same
CERTIFIED = 2e-3  # the same for epsilons of two accountants, one of which keeps losses on a coarser grid
RANDOMNESS = "cryptographic: AES-256-CTR keyed by the operating system"
UNITS = {"one row is one person": "row", "one person with all of their rows": "person"}
PAIRS = {  # of neighbouring data sets, by relation and unit
    ("replace", "row"): "two data sets of the same size that differ in one row",
    ("add_remove", "row"): "two data sets of which one has one row more",
    ("replace", "person"): "two data sets that differ in the rows of one person",
    ("add_remove", "person"): "two data sets of which one has the rows of one person more",
}
MEANING = (
    r"Take {pair}(| and have the same set of labels)\. Any conclusion that somebody could draw from "
    r"(the published model|the answers|the score) is at most {times} times as likely with one as with the "
    r"other, apart from an extra probability of at most {delta}\. This holds whatever else that person "
    r"knows, has, or computes later\.(| An epsilon above 10 promises little by itself: e\^10 is 22,000\.)"
    r"(|{large_delta})"
)
LARGE_DELTA = (
    " A delta of {delta:.3g} is not below 1/n ({least:.2g} for {units}) and promises little: publishing each "
    "{noun} in full with probability {delta:.3g} would satisfy it, about {published} in all."
)
MOST_UNITS = 10**15  # n is read from an untrusted file: an integer of many digits is too large for a float
ABOUT_QUESTION = ("question", "count", "sensitivity", "noise", "answers")


def find(content: Mapping[str, Any]) -> tuple[float, list[str]]:
    """Return the delta that the events of a statement need at its epsilon, and the findings."""
    begin()
    epsilon, delta = float(content["epsilon"]), float(content["delta"])
    findings, needed = list(_contradictions(content, epsilon, delta)), math.inf
    try:
        counts = _events(content)
        needed = delta_bound(counts, epsilon) + content["sampler_delta"]
        findings += _events_against_promise(content, counts, needed)
    except (NotAccountable, OverflowError) as error:
        findings.append(f"The cost of its events cannot be computed: {error}")
    return needed, findings


def _events(content: Mapping[str, Any]) -> Counts:
    """Everything that was released: the composition if one is stated, else the mechanisms one by one."""
    if content.get("composition"):
        return flatten(content["composition"])
    total: Counter[SingleEvent] = Counter()
    for part in _parts(content):
        total.update(dict(_repeated(part)))
    return tuple(total.items())


def _repeated(part: Mapping[str, Any]) -> Counts:
    """Events of one mechanism, as often as it was asked."""
    return flatten({"event": "Repeat", "count": part.get("count"), "of": _event(part)})


def _parts(content: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    parts = list(content["mechanisms"])
    if not parts or not all(isinstance(part, Mapping) for part in parts):
        raise NotAccountable("no mechanism is named.")
    return parts


def _event(part: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in part.items() if name not in ABOUT_QUESTION}


def _contradictions(content: Mapping[str, Any], epsilon: float, delta: float) -> Iterator[str]:
    """Findings that need no accounting."""
    if not content["private"]:
        yield "It says that there is no guarantee: the noise came from a seed."
    elif content["randomness"] != RANDOMNESS:
        yield f"It says that it is private, but its randomness is {content['randomness'][:60]!r}."
    if not (0 < epsilon < math.inf and 0 <= delta < 1):
        yield "epsilon must be a positive number, and delta at least 0 and less than 1."
    if not 0 <= content["sampler_delta"] <= max(SAMPLER_SHARE * delta, 0.0) * (1 + ROUNDED):
        yield "sampler_delta, for noise of finite precision, is negative or more than a thousandth of delta."
    pair = PAIRS.get((content["relation"], UNITS.get(content["unit"], "")))
    if pair is None:
        yield "Its unit is neither a row nor a person, or its relation neither replace nor add_remove."
    else:
        numbers = {"times": re.escape(f"e^{epsilon:g}"), "delta": re.escape(f"{delta:.3g}")}
        numbers["large_delta"] = re.escape(_on_large_delta(content["public"], delta))
        if content["private"] and not re.fullmatch(MEANING.format(pair=pair, **numbers), content["meaning"]):
            yield f"Its explanation is not that of epsilon {epsilon:g}, delta {delta:.3g} and {pair}."
    for name in ("n", "persons"):
        units, rule = content["public"].get(name), f"min(1/{name}^2, 1e-5)"
        ruled = content["public"].get("delta_rule") == rule and isinstance(units, int) and units > 0
        if ruled and not math.isclose(delta, min(1 / units**2, 1e-5), rel_tol=ROUNDED):
            yield f"delta differs from the rule that it names, {rule}."


def _on_large_delta(public: Mapping[str, Any], delta: float) -> str:
    """Return the sentence about a delta of 1/n or more; empty for a smaller one, or without a public n.

    Statements of version 0.1 do not have it.
    """
    for name, noun in (("n", "record"), ("persons", "person")):
        n = public.get(name)
        if type(n) is int and 0 < n < MOST_UNITS and 1 <= delta * n < n:
            units, published = (f"{k:,} {noun}{'s' * (k != 1)}" for k in (n, round(delta * n)))
            return LARGE_DELTA.format(delta=delta, least=1 / n, units=units, noun=noun, published=published)
    return ""


def _events_against_promise(content: Mapping[str, Any], counts: Counts, needed_delta: float) -> Iterator[str]:
    epsilon, delta, certified = (content[name] for name in ("epsilon", "delta", "certified_epsilon"))
    if not needed_delta <= delta:
        yield (
            f"At epsilon {epsilon:g} its events need delta {needed_delta:.4g}, more than the {delta:.4g} "
            "that it promises."
        )
    if not certified <= epsilon * (1 + 1e-9):
        yield f"Its accountant certifies epsilon {certified:.6g}, more than the {epsilon:g} that it promises."
    spendable = (1 - SAMPLER_SHARE) * delta
    if delta_bound(counts, certified * (1 + CERTIFIED)) > spendable:
        yield f"Its accountant certifies epsilon {certified:.6g}; its events need more."
    if certified > 0 and delta_bound(counts, certified * (1 - CERTIFIED)) <= spendable:
        yield f"Its accountant certifies epsilon {certified:.6g}; its events need less."
    # Beside a composition only single questions can be priced: those of a search may be about other records.
    if content.get("composition") and not all(
        delta_bound(_repeated(part), epsilon) <= delta for part in _parts(content)
    ):
        yield "A mechanism that it lists costs more than its composition."
    parts = list(_walk(counts))
    if {each for part in parts for each in _values(part, "relation")} - {content["relation"]}:
        yield "Its events are about another neighbouring relation."
    if {each for part in parts for each in _values(part, "unit")} - {UNITS.get(content["unit"])}:
        yield "Its events are about another unit."
    for listed in _parts(content):
        yield from _part_findings(listed)


def _values(part: SingleEvent, name: str) -> list[Any]:
    """Value of a parameter of an event, none if it has no such parameter."""
    names = NUMBERS.get(part.kind, ())
    return [part.values[names.index(name)]] if name in names else []


def _walk(counts: Counts) -> Iterator[SingleEvent]:
    for part, _ in counts:
        yield part
        for inside in part.inside:
            yield from _walk(inside)


def _part_findings(part: Mapping[str, Any]) -> Iterator[str]:
    """Findings about one query: its noise over its sensitivity must be that of its event."""
    name = part["question"][:60] if isinstance(part.get("question"), str) else "A question without a name"
    try:
        events = flatten(_event(part))
    except DpcvxError as error:
        yield f"{name}: {error}"
        return
    first, _ = events[0]  # the release that the sensitivity is of, where there are several
    expected = _over_noise(first)
    if expected is None:
        expected = _ratio(part)
    if not _agree(_ratio(part), expected):
        yield f"{name}: its noise over its sensitivity is not that of its event, {first.kind}."
    if "answers" in part and not _has_answers(part["answers"], events):
        yield f"{name}: its answers are not those of its event."


def _ratio(part: Mapping[str, Any]) -> float | None:
    """Sensitivity over noise as stated, None unless both are positive numbers."""
    sensitivity, noise = part.get("sensitivity"), part.get("noise")
    if not isinstance(sensitivity, int | float) or not isinstance(noise, int | float):
        return None
    return float(sensitivity) / float(noise) if sensitivity > 0 and noise > 0 else None


def _agree(stated: float | None, expected: float | None) -> bool:
    return stated is not None and expected is not None and math.isclose(stated, expected, rel_tol=ROUNDED)


def _has_answers(answers: Any, events: Counts) -> bool:
    """Say whether answers have the noise of Gaussian events, each of one of them."""
    if not isinstance(answers, list | tuple) or not all(isinstance(each, Mapping) for each in answers):
        return False
    multipliers = [each.get("noise_multiplier") for each in answers]
    if not all(isinstance(each, int | float) and 0 < each < math.inf for each in multipliers):
        return False
    listed = Counter(SingleEvent("Gaussian", (each,)) for each in multipliers)
    return listed == dict(events) and all(
        _agree(_ratio(each), 1 / each["noise_multiplier"]) for each in answers
    )


def _over_noise(part: SingleEvent) -> float | None:
    """Sensitivity over noise that an event implies; None for events that do not say it."""
    value = part.values[0] if part.values else 0.0
    match part.kind:
        case "Gaussian":
            return float(1 / value)
        case "Exponential":
            return float(value / 2)
        case "PerturbedObjective":
            return float((2 if part.values[2] == "replace" else 1) * value)
    return None
