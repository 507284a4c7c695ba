"""The privacy statement of an engine, about all of its answers together."""

from __future__ import annotations

from dataclasses import replace

from dpcvx.plans import Bill
from dpcvx.plans.statement import NO_LEDGER, PrivacyStatement
from dpcvx.queries.budget_split import BudgetSplit
from dpcvx.queries.universe import Universe

__all__ = ["engine_statement"]


def engine_statement(
    bill: Bill,
    split: BudgetSplit,
    universe: Universe,
    n: int,
    *,
    first: str,
    account: str | None,
    private: bool,
) -> PrivacyStatement:
    """Return the statement of an engine, from public facts alone.

    It differs from that of a plan in its mechanisms, which are the parts of a budget split instead of stages,
    and in its account: a restarted engine has no receipt.

    Parameters
    ----------
    bill : Bill
        Everything that the engine may ever release.
    split : BudgetSplit
        Its parts.
    universe : Universe
    n : int
        Number of records.
    first : str
        Name of the first release.
    account : str, optional
        Name of the account that was charged.
    private : bool
        Whether the randomness was cryptographic.
    """
    statement = PrivacyStatement.of(
        bill,
        model=f"QueryEngine, method {split.method}",
        private=private,
        bounds={"cells": "every record is mapped to a declared cell of the schema; none is refused"},
        public={"n": n, "attributes": list(universe.schema.names), "cells": universe.n_cells},
    )
    where = NO_LEDGER if account is None else f"charged to account {account!r} before a record was read"
    uncovered = ("running time and memory", "a person who is in several rows")
    return replace(statement, mechanisms=split.parts(first), ledger=where, not_covered=uncovered)
