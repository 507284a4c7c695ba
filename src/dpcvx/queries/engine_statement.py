"""The privacy statement of an engine, about all of its answers together."""

from __future__ import annotations

from dataclasses import replace

from dpcvx.plans import Price
from dpcvx.plans.statement import BEFORE, NO_LEDGER, PrivacyStatement, charged_first
from dpcvx.queries.universe import Universe

__all__ = ["engine_statement"]

UNCOVERED = ("caches and memory of the machine that answers", "a person who is in several rows")


def engine_statement(
    price: Price, method: str, universe: Universe, n: int, *, check: str, account: str | None, private: bool
) -> PrivacyStatement:
    """Return the statement of an engine, from public facts alone.

    It differs from that of a plan in its account: a restarted engine has no receipt.

    `price`: everything that the engine may ever release.
    `method`: how it answers.
    `n`: number of records.
    `check`: findings of the check of the data, or why there is none.
    `account`: name of the account that was charged.
    `private`: whether the randomness was cryptographic.
    """
    statement = PrivacyStatement.of(
        price,
        model=f"QueryEngine, method {method}",
        private=private,
        bounds={
            "cells": "every record is mapped to a declared cell of the schema; none is refused",
            "check": check,
        },
        public={"n": n, "attributes": list(universe.schema.names), "cells": universe.n_cells},
    )
    where = NO_LEDGER if account is None else charged_first(account)
    uncovered = (BEFORE, *UNCOVERED)
    return replace(statement, ledger=where, not_covered=uncovered)
