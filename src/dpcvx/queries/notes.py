"""One public sentence to an answer: how its numbers are to be read."""

from __future__ import annotations

from dpcvx.queries.query import Mean, Query, Regression
from dpcvx.queries.schema import Binned, Column, Schema

__all__ = ["note"]


def note(query: Query, schema: Schema) -> str:
    """Return how attributes enter an answer, from the query and the schema alone; empty where they do not.

    Parameters
    ----------
    query : Query
    schema : Schema
    """
    if isinstance(query, Regression):
        return "coded as " + "; ".join(_coding(schema[name]) for name in (query.target, *query.features))
    if isinstance(query, Mean):
        attribute = schema[query.of]
        if isinstance(attribute, Binned):
            return "by bin midpoints; the interval does not cover what binning costs"
        return f"share of {attribute.labels[1]}"
    return ""


def _coding(attribute: Column) -> str:
    if isinstance(attribute, Binned):
        low, high = attribute.edges[0], attribute.edges[-1]
        return f"{attribute.name}: bin midpoints, [{low:g}, {high:g}] scaled to [-1, 1]"
    if attribute.size == 2:
        return f"{attribute.name}: {attribute.labels[0]} = -1, {attribute.labels[1]} = +1"
    return f"{attribute.name}: one 0/1 column for each of {attribute.size} levels"
