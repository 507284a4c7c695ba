"""What an engine promises about all of its answers together."""

from __future__ import annotations

import math

from dpcvx.accounting import Accountant, Budget, spendable
from dpcvx.plans.statement import (
    CRYPTOGRAPHIC,
    NO_LEDGER,
    SEEDED,
    UNIT,
    PrivacyStatement,
)
from dpcvx.queries.budget_split import BudgetSplit
from dpcvx.queries.universe import Universe

__all__ = ["engine_statement"]


def engine_statement(
    split: BudgetSplit,
    budget: Budget,
    accountant: Accountant,
    universe: Universe,
    n: int,
    *,
    first: str,
    failure: float,
    account: str | None,
    private: bool,
) -> PrivacyStatement:
    """Return the statement of an engine, from public facts alone.

    Parameters
    ----------
    split : BudgetSplit
        Everything that may ever be asked.
    budget : Budget
        The guarantee.
    accountant : Accountant
        Who certifies it.
    universe : Universe
    n : int
        Number of records.
    first : str
        Name of the first release.
    failure : float
        Total variation of all samplers.
    account : str, optional
        Name of the account that was charged.
    private : bool
        Whether the randomness was cryptographic.
    """
    from dpcvx import __version__

    where = NO_LEDGER if account is None else f"charged to account {account!r} before a record was read"
    return PrivacyStatement(
        model=f"QueryEngine, method {split.method}",
        version=__version__,
        private=private,
        unit=UNIT,
        relation=budget.relation,
        epsilon=budget.epsilon,
        delta=budget.delta,
        certified_epsilon=accountant.epsilon(split.event, spendable(budget).delta),
        accountant=type(accountant).__name__,
        sampler_delta=failure * (1 + math.exp(min(budget.epsilon, 700.0))),
        mechanisms=split.parts(first),
        bounds={"cells": "every record is mapped to a declared cell of the schema; none is refused"},
        public={"n": n, "attributes": list(universe.schema.names), "cells": universe.n_cells},
        randomness=CRYPTOGRAPHIC if private else SEEDED,
        ledger=where,
        not_covered=("running time and memory", "a person who is in several rows"),
    )
