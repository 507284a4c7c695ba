"""The privacy statement of an engine, about all of its answers together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dpcvx.plans import Price
from dpcvx.plans.statement import BEFORE, NO_LEDGER, PrivacyStatement, charged_first
from dpcvx.queries.universe import Universe

__all__ = ["engine_statement"]

UNCOVERED = ("caches and memory of the machine that answers",)
SEVERAL_ROWS = "a person who is in several rows"


def engine_statement(
    price: Price,
    method: str,
    universe: Universe,
    n: int,
    *,
    facts: Mapping[str, Any],
    check: str,
    account: str | None,
    private: bool,
) -> PrivacyStatement:
    """Return the statement of an engine, from public facts alone.

    It differs from that of a plan in its account: a restarted engine has no receipt.

    `price`: everything that the engine may ever release.
    `method`: how it answers.
    `n`: number of records, or of persons.
    `facts`: whose rows are whose, where units are persons.
    `check`: findings of the check of the data, or why there is none.
    `account`: name of the account that was charged.
    `private`: whether the randomness was cryptographic.
    """
    rows = price.budget.unit == "row"
    statement = PrivacyStatement.of(
        price,
        model=f"QueryEngine, method {method}",
        private=private,
        bounds={
            "cells": "every record is mapped to a declared cell of the schema; none is refused",
            "check": check,
            **facts,
        },
        public={
            "n" if rows else "persons": n,
            "attributes": list(universe.schema.names),
            "cells": universe.n_cells,
        },
    )
    where = NO_LEDGER if account is None else charged_first(account)
    uncovered = (BEFORE, *UNCOVERED, *([SEVERAL_ROWS] if rows else []))
    return replace(statement, ledger=where, not_covered=uncovered)
