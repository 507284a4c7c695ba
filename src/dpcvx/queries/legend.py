"""Legend of an answer: what the codes in its names mean, as the schema declares in public."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

from dpcvx.errors import WrongValue
from dpcvx.queries.schema import Schema

__all__ = ["Legend", "attribute_facts", "legend_of", "level_words", "read_legend", "with_words"]

# By attribute: "label", "unit", and "values", the names of its levels and bins; each where there is one.
Legend: TypeAlias = Mapping[str, Mapping[str, Any]]


def legend_of(schema: Schema, query: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the legend of the attributes that a query names.

    `query`: its JSON form.
    """
    named = [*query.get("features", ()), *query.get("attributes", ()), *query.get("where", {})]
    named += [query[field] for field in ("target", "of") if field in query]
    found = {}
    for attribute in schema.attributes:
        words = attribute.words if attribute.name in named else {}
        if words:
            values = {"values": words["value_labels"]} if "value_labels" in words else {}
            found[attribute.name] = {k: v for k, v in words.items() if k != "value_labels"} | values
    return found


def read_legend(content: Any) -> dict[str, dict[str, Any]]:
    """Return the legend that JSON holds; anything else is a ValueError."""
    texts = isinstance(content, Mapping) and all(
        isinstance(entry, Mapping)
        and set(entry) <= {"label", "unit", "values"}
        and all(isinstance(entry.get(name, ""), str) for name in ("label", "unit"))
        and isinstance(entry.get("values", {}), Mapping)
        and all(isinstance(name, str) for name in entry.get("values", {}).values())
        for entry in content.values()
    )
    if not texts:
        raise WrongValue("The legend of an answer holds texts: label, unit and names of values.")
    return {name: dict(entry) for name, entry in content.items()}


def with_words(name: str, legend: Legend) -> str:
    """Return the name of a number with the words of its levels: "ideo=4" becomes "ideo=4 (Conservative)"."""
    for attribute, entry in legend.items():
        for level, words in entry.get("values", {}).items():
            code = re.escape(f"{attribute}={level}")
            name = re.sub(rf"(^|, |:)({code})(?=$|, |:| \()", rf"\g<1>\g<2> ({_literal(words)})", name)
        if name == f"mean {attribute}" and entry.get("unit"):
            return f"{name}, {entry['unit']}"
    return name


def _literal(words: str) -> str:
    """Return words as a replacement of `re.sub`."""
    return words.replace("\\", r"\\")


def level_words(attribute: str, level: str, legend: Legend) -> str:
    """Return the words of a level, or "" if it has none."""
    words: str = legend.get(attribute, {}).get("values", {}).get(level, "")
    return words


def attribute_facts(legend: Legend) -> tuple[tuple[str, str], ...]:
    """Return what attributes are: their names with label and unit, where declared."""
    found = []
    for name, entry in legend.items():
        parts = [entry.get("label", ""), f"in {entry['unit']}" if entry.get("unit") else ""]
        if text := ", ".join(filter(None, parts)):
            found.append((name, text))
    return tuple(found)
