"""Public description of a deployment as JSON: its attributes, and the queries about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpcvx.domains import NAMED_BALLS
from dpcvx.queries import LARGEST_RADIUS, LONGEST_FORMULA, QUERY_LOSSES, Schema

__all__ = ["attributes", "query_schema"]


def attributes(
    schema: Schema, account: str, n: int, unit: str, often_missing: Mapping[str, float]
) -> dict[str, Any]:
    """Return the schema with labels of levels and bins, whose data they are, and the losses and sets.

    `account`: of the data; `n`: number of records or persons, which is public; `unit`: "record" or "person";
    `often_missing`: noisy shares of people who lack an attribute, where regressions then have no intervals.
    """
    listed = [
        {
            **one.to_dict(),
            "labels": list(one.labels),
            "known": one.known,
            **({"often_missing": round(often_missing[one.name], 2)} if one.name in often_missing else {}),
        }
        for one in schema.attributes
    ]
    return {
        "data": account,
        "units": n,
        "unit": unit,
        "attributes": listed,
        "losses": list(QUERY_LOSSES),
        "label_losses": [name for name, loss in QUERY_LOSSES.items() if loss.target == "labels"],
        "sets": list(NAMED_BALLS),
        "largest_radius": LARGEST_RADIUS,
    }


def query_schema(schema: Schema) -> dict[str, Any]:
    """Return the JSON schema of a query about these attributes."""
    name = {"type": "string", "enum": list(schema.names)}
    some = {"type": "array", "items": name, "uniqueItems": True}
    where = {
        "type": "object",
        "properties": {
            one.name: {"type": "array", "items": {"enum": list(one.labels)}, "minItems": 1}
            for one in schema.attributes
        },
        "additionalProperties": False,
    }
    number = {"type": "number", "maximum": LARGEST_RADIUS}
    pair = {**some, "minItems": 2, "maxItems": 2}
    options = {
        "loss": {"type": "string", "enum": list(QUERY_LOSSES), "default": "logistic"},
        "set": {"type": "string", "enum": list(NAMED_BALLS), "default": "l2"},
        "radius": {**number, "exclusiveMinimum": 0, "default": 3.0},
        "intercept": {"const": True, "default": True},
        "l2": {**number, "minimum": 0, "default": 0.0},
        "where": where,
    }
    return {
        "oneOf": [
            _query(
                "regression",
                ("target", "features"),
                target=name,
                features={**some, "minItems": 1},
                interactions={"type": "array", "items": pair},
                **options,
            ),
            _query(
                "regression",
                ("formula",),
                formula={
                    "type": "string",
                    "maxLength": LONGEST_FORMULA,
                    "examples": ["worked ~ age + group", "worked ~ age + group + age:group"],
                },
                **options,
            ),
            _query("count", ("where",), where={**where, "minProperties": 1}),
            _query("mean", ("of",), of=name, where=where),
            _query("marginal", ("attributes",), attributes={**some, "minItems": 1}),
        ]
    }


def _query(kind: str, needed: tuple[str, ...], **fields: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "title": kind.capitalize(),
        "properties": {"kind": {"type": "string", "enum": [kind]}, **fields},
        "required": ["kind", *needed],
        "additionalProperties": False,
    }
