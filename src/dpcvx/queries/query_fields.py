"""Fields of queries: losses and sets by name, their JSON forms, and checks of what a user gives."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from dpcvx.domains import NAMED_BALLS, SETS, Domain, GroupBall
from dpcvx.errors import WrongValue
from dpcvx.losses import LOSSES, Huber, Logistic, Loss, Quantile
from dpcvx.vouched import is_vouched

__all__ = [
    "JSON_SETS",
    "LARGEST_RADIUS",
    "MOST_LISTED",
    "QUERY_LOSSES",
    "check_condition",
    "check_name",
    "check_names",
    "check_number",
    "check_pairs",
    "describe",
    "find_loss",
    "list_levels",
    "loss_from_json",
    "loss_to_json",
    "set_from_json",
    "set_to_json",
]

LARGEST_RADIUS = 1000.0
MOST_LISTED = 40  # levels of an attribute in a message
# Losses by name with their parameters for targets scaled to [-1, 1]; the default one comes first.
_WITH_PARAMETERS: tuple[Loss, ...] = (Huber(0.5), Quantile(0.5))
_OTHERS = tuple(
    kind() for kind in LOSSES if is_vouched(kind, "queries") and kind not in (Huber, Logistic, Quantile)
)
QUERY_LOSSES: dict[str, Loss] = {loss.name: loss for loss in (Logistic(), *_OTHERS, *_WITH_PARAMETERS)}
# Sets with a JSON form; groups of coordinates have none.
JSON_SETS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in SETS if is_vouched(kind, "queries") and kind is not GroupBall
}


def find_loss(loss: str | Loss) -> Loss:
    """Return the loss of a query, which may be given by its name."""
    return QUERY_LOSSES[loss] if isinstance(loss, str) else loss


def loss_to_json(loss: str | Loss) -> Any:
    """Return a loss, or its name, as JSON; refuse one that has no JSON form."""
    if isinstance(loss, str):
        return loss
    if loss.name not in QUERY_LOSSES or type(loss) is not type(QUERY_LOSSES[loss.name]):
        raise WrongValue(f"{type(loss).__name__} has no JSON form; use one of {', '.join(QUERY_LOSSES)}.")
    parameters = {name: getattr(loss, name) for name in _parameters(loss)}
    fields = dataclasses.fields(loss)  # type: ignore[arg-type]
    others = [each.name for each in fields if each.name not in (*parameters, "y_range")]
    if any(getattr(loss, name) is not None for name in others):
        raise WrongValue(f"{', '.join(others)} of {loss.name} are for estimators: leave them out of a query.")
    return {"name": loss.name, **parameters}


def loss_from_json(content: Any) -> str | Loss:
    """Return a loss, or its name, from JSON."""
    if isinstance(content, str):
        return content
    name = content.get("name") if isinstance(content, Mapping) else None
    if not isinstance(name, str) or name not in QUERY_LOSSES:
        raise WrongValue(
            f'loss must be one of {", ".join(QUERY_LOSSES)}, or {{"name": ..., parameter: number}}.'
        )
    usual = QUERY_LOSSES[name]
    rest = {name: value for name, value in content.items() if name != "name"}
    if not set(rest) <= set(_parameters(usual)):
        raise WrongValue(f"{usual.name} has the parameters {list(_parameters(usual))}, got {sorted(rest)}.")
    for name, value in rest.items():
        check_number(name, value, low=1 / LARGEST_RADIUS**2, high=LARGEST_RADIUS)
    made: Loss = dataclasses.replace(usual, **rest)  # type: ignore[type-var]
    return made


def _parameters(loss: Loss) -> tuple[str, ...]:
    """Names of the numbers that a query may give; those that are None by default are for estimators."""
    fields = dataclasses.fields(loss)  # type: ignore[arg-type]
    return tuple(each.name for each in fields if each.name != "y_range" and each.default is not None)


def set_to_json(domain: str | Domain) -> Any:
    """Return a set of coefficients, or its name, as JSON; refuse one that has no JSON form."""
    if isinstance(domain, str):
        return domain
    name = type(domain).__name__
    if JSON_SETS.get(name) is not type(domain):
        raise WrongValue(f"{name} has no JSON form; use one of {', '.join((*NAMED_BALLS, *JSON_SETS))}.")
    fields: dict[str, Any] = dataclasses.asdict(domain)  # type: ignore[call-overload]
    return {"name": name, **{k: list(v) if isinstance(v, tuple) else v for k, v in fields.items()}}


def set_from_json(content: Any) -> str | Domain:
    """Return a set of coefficients, or its name, from JSON."""
    if isinstance(content, str):
        return content
    name = content.get("name") if isinstance(content, Mapping) else None
    if not isinstance(name, str) or name not in JSON_SETS:
        raise WrongValue(
            f'set must be one of {", ".join(NAMED_BALLS)}, or {{"name": {" | ".join(JSON_SETS)}, ...}}.'
        )
    rest = {field: value for field, value in content.items() if field != "name"}
    fields = [field.name for field in dataclasses.fields(JSON_SETS[name])]
    if set(rest) != set(fields):
        raise WrongValue(f"{name} has the fields {fields}, got {sorted(map(str, rest))}.")
    for field, value in rest.items():
        if isinstance(value, list) and name != "Box":
            raise WrongValue(f"{field} of {name} must be a number, got a list.")
        for number in value if isinstance(value, list) else [value]:
            check_number(field, number, low=-LARGEST_RADIUS, high=LARGEST_RADIUS)
    made: Domain = JSON_SETS[name](
        **{field: tuple(value) if isinstance(value, list) else value for field, value in rest.items()}
    )
    return made


def check_name(field: str, value: Any) -> None:
    """Refuse a value that is not the name of an attribute."""
    if not isinstance(value, str) or not value:
        raise WrongValue(f"{field} must be the name of an attribute, got {describe(value)}.")


def check_names(field: str, value: Any) -> tuple[str, ...]:
    """Return names of different attributes as a tuple; refuse anything else."""
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise WrongValue(f"{field} must be a list of names, got {describe(value)}.")
    for name in value:
        check_name(field, name)
    if len(set(value)) != len(value):
        raise WrongValue(f"{field} names an attribute twice.")
    return tuple(value)


def check_pairs(field: str, value: Any, known: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return pairs of known names as tuples; refuse anything else."""
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise WrongValue(f"{field} must be a list of pairs of features, got {describe(value)}.")
    pairs: list[tuple[str, str]] = []
    for each in value:
        names = check_names(field, each)
        if len(names) != 2:
            raise WrongValue(f"{field} must hold pairs of features, got {describe(each)}.")
        if absent := [name for name in names if name not in known]:
            raise WrongValue(
                f"The interaction {':'.join(names)} needs both attributes among the features: "
                f"add {', '.join(map(describe, absent))}."
            )
        pairs.append((names[0], names[1]))
    if len({frozenset(pair) for pair in pairs}) != len(pairs):
        raise WrongValue(f"{field} names a pair twice.")
    return tuple(pairs)


def check_condition(value: Any, *, needed: bool) -> dict[str, tuple[str, ...]]:
    """Return a condition, levels by attribute; refuse anything else."""
    if not isinstance(value, Mapping) or (needed and not value):
        raise WrongValue(f'where must be an object such as {{"sex": ["f"]}}, got {describe(value)}.')
    condition = {}
    for name, levels in value.items():
        check_name("where", name)
        if isinstance(levels, str) or not isinstance(levels, Sequence) or not levels:
            raise WrongValue(f"where[{describe(name)}] must be a list of levels with at least one.")
        if not all(isinstance(level, str) for level in levels):
            raise WrongValue(f"where[{describe(name)}] must hold labels of the schema, as text.")
        condition[name] = tuple(levels)
    return condition


def check_number(field: str, value: Any, *, low: float, high: float, open_low: bool = False) -> None:
    """Refuse a value that is not a number between two limits."""
    number = isinstance(value, int | float) and not isinstance(value, bool)  # NaN is within no limits
    if not number or not low <= value <= high or (open_low and value == low):
        raise WrongValue(
            f"{field} must be a number {'above' if open_low else 'of at least'} {low:g} and at most "
            f"{high:g}, got {describe(value)}."
        )


def describe(value: Any) -> str:
    """Return a value as a message may quote it, shortened."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def list_levels(labels: Sequence[str]) -> str:
    """Return the levels of an attribute as a message lists them: whole ones, and how many more there are."""
    more = len(labels) - MOST_LISTED
    shown = ", ".join(map(repr, labels[:MOST_LISTED]))
    return f"{shown} and {more} more" if more > 0 else shown
