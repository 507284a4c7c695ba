"""Findings about a privacy statement: claims that do not follow from its events, or contradict them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from dpcvx.checker.profiles import NUMBERS, Counts, SingleEvent, delta_bound, flatten
from dpcvx.errors import DpcvxError, NotAccountable

__all__ = ["find"]

SAMPLER_SHARE = 1e-3  # of delta, for noise of finite precision (PRIVACY_MATH §11)
ROUNDED = 1e-4  # relative difference of two numbers of a statement that say the same
CERTIFIED = 2e-3  # the same for epsilons of two accountants, one of which keeps losses on a coarser grid
ABOUT_QUESTION = ("question", "count", "sensitivity", "noise", "answers")


def find(content: Mapping[str, Any]) -> tuple[float, list[str]]:
    """Return the delta that the events of a statement need at its epsilon, and the findings."""
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
    parts = [{"event": "Repeat", "count": part.get("count"), "of": _event(part)} for part in _parts(content)]
    return flatten({"event": "Compose", "events": parts})


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
    elif not content["randomness"].startswith("cryptographic"):
        yield f"It says that it is private, but its randomness is {content['randomness'][:60]!r}."
    if not (0 < epsilon < math.inf and 0 <= delta < 1):
        yield "epsilon must be a positive number, and delta at least 0 and less than 1."
    if not 0 <= content["sampler_delta"] <= max(SAMPLER_SHARE * delta, 0.0) * (1 + ROUNDED):
        yield "sampler_delta, for noise of finite precision, is negative or more than a thousandth of delta."
    words = content["meaning"]
    for number in (f"e^{epsilon:g} times", f"at most {delta:.3g}."):
        if content["private"] and number not in words:
            yield f"Its explanation does not say {number!r}."
    replaced, person = content["relation"] == "replace", "person with all" in content["unit"]
    pair = {
        (True, False): "that differ in one row",
        (False, False): "of which one has one row more",
        (True, True): "that differ in the rows of one person",
        (False, True): "of which one has the rows of one person more",
    }[replaced, person]
    if content["relation"] not in ("replace", "add_remove"):
        yield "Its relation is neither replace nor add_remove."
    if content["private"] and pair not in words:
        yield f"Its explanation does not name the neighbours of its unit and relation: data sets {pair}."
    rows = content["public"].get("n")
    ruled = content["public"].get("delta_rule") == "min(1/n^2, 1e-5)" and isinstance(rows, int) and rows > 0
    if ruled and not math.isclose(delta, min(1 / rows**2, 1e-5), rel_tol=ROUNDED):
        yield "delta differs from the rule that it names, min(1/n^2, 1e-5)."


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
    relations = {part.values[-1 if part.kind == "Poisson" else 2] for part in _walk(counts) if _related(part)}
    if relations - {content["relation"]}:
        yield "Its events are about another neighbouring relation."
    for part in _parts(content):
        yield from _part_findings(part)


def _related(part: SingleEvent) -> bool:
    return "relation" in NUMBERS.get(part.kind, ())


def _walk(counts: Counts) -> Iterator[SingleEvent]:
    for part, _ in counts:
        yield part
        for inside in part.inside:
            yield from _walk(inside)


def _part_findings(part: Mapping[str, Any]) -> Iterator[str]:
    """Findings about one query: its noise over its sensitivity must be that of its event."""
    name = str(part.get("question"))[:60]
    sensitivity, noise = (part.get(each) for each in ("sensitivity", "noise"))
    try:
        first, *_ = flatten(_event(part))  # the release that the sensitivity is of, where there are several
    except DpcvxError as error:
        yield f"{name}: {error}"
        return
    expected = _over_noise(first[0])
    if expected is None or not isinstance(sensitivity, int | float) or not isinstance(noise, int | float):
        return
    if not noise > 0 or not math.isclose(sensitivity / noise, expected, rel_tol=ROUNDED):
        yield f"{name}: its noise over its sensitivity is not that of its event, {first[0].kind}."


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
