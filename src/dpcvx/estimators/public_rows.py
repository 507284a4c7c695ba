"""Public rows in a fit: whether they are used, what that costs, and what the statement says of them.

Weights of columns follow from public rows (`dpcvx.data.public_rows`). Rows from elsewhere may be misleading,
so the fit first counts, with noise, the private rows that are long enough once their columns are weighted,
and does without the weights if fewer than half are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from dpcvx.accounting import Budget, gaussian_mu, spendable
from dpcvx.arrays import Vector
from dpcvx.data import Dataset
from dpcvx.data.columns import Columns
from dpcvx.data.public_rows import (
    LongRows,
    column_weights,
    fit_score,
    read_public,
    split_public,
    weighted_columns,
)
from dpcvx.data.target import Target
from dpcvx.domains import Domain, HasEuclideanRadius
from dpcvx.errors import WrongValue
from dpcvx.mechanisms import NoisyRowCount, as_counts
from dpcvx.plans import Answers, Stage
from dpcvx.solvers.defaults import default
from dpcvx.words import quantity

__all__ = [
    "UNUSED",
    "USED",
    "PublicWeights",
    "public_score",
    "public_stages",
    "public_weights",
    "release_weights",
]

FLOOR: float = default("estimators.public_rows.FLOOR")
LONG: float = default("estimators.public_rows.LONG")
SHARE: float = default("estimators.public_rows.SHARE")
LEAST: float = default("estimators.public_rows.LEAST")
LARGEST_NOISE: float = default("estimators.public_rows.LARGEST_NOISE")
UNUSED = "public rows are not used: "
USED = "public rows are used: "
QUESTION = NoisyRowCount.traits.question


@dataclass(frozen=True, eq=False)
class PublicWeights:
    """Weights of the features from public rows, and the released count by which they are used or not."""

    rows: int  # number of public rows
    weights: Vector
    count: float | None = None  # noisy number of private rows that are long enough with the weights
    share: float = 0.0  # the same over the number of records

    @property
    def used(self) -> bool:
        """Whether enough private rows are long with the weights."""
        return self.count is not None and self.share >= LEAST

    @property
    def fact(self) -> str:
        """Entry of the statement."""
        given = f"{quantity(self.rows, 'public row')} were given, which nothing here protects"
        seen = f"a noisy count finds {self.share:.0%} of the private rows at their full length with them"
        if self.used:
            use = "features are multiplied by weights that follow from them, before rows are shrunk"
            return f"{given}; {use}: {seen}"
        return f"{given}, and not used: {seen}, so that they are unlike the private rows"


def public_stages(
    n: int, public: Any, data_norm: float | None, domain: Domain, dataset: Dataset, budget: Budget
) -> tuple[tuple[Stage, ...], str]:
    """Return the stage that counts long rows: one, or none with the reason.

    `n`: number of records; `public`: as the user gives it, or None; `data_norm`: as declared; `dataset`: only
    its kind is used, no record; `budget`: of the whole fit. Whether records are standardised is decided
    before.
    """
    if public is None:
        return (), ""
    if data_norm is None or not isinstance(domain, HasEuclideanRadius):
        return (), UNUSED + "they weight the columns of fits with data_norm in an l2 ball"
    if not getattr(dataset, "has_raw_cells", False):
        return (), UNUSED + "these records are stored quantised, and cannot be weighted any more"
    neighbours = budget.neighbours
    if budget.delta == 0 or not neighbours.replaces or neighbours.rows > 1:
        return (), UNUSED + "they need delta > 0, relation='replace' and no max_rows"
    paid = spendable(budget)
    mu = math.sqrt(SHARE) * gaussian_mu(paid.epsilon, paid.delta)
    count = NoisyRowCount(n, 1, (), 1 / mu, neighbours)
    if count.noise > LARGEST_NOISE * n:
        return (), UNUSED + "with so few records and this epsilon nobody could see whether they mislead"
    return (Stage(count, 1),), ""


def public_score(
    public: Any, dataset: Dataset, columns: Columns, target: Target
) -> tuple[tuple[float, ...], str]:
    """Return the score that public rows with targets give, one more feature of a standardised fit; a note.

    `public`: as the user gives it, or None; `dataset`: its columns are used, and no record; `columns`,
    `target`: as declared. There is no score, and no note, without public targets or if they say nothing.
    """
    rows, y = split_public(public)
    if y is None or target.outputs > 1:
        return (), ""
    table = read_public(rows, dataset.table)
    encoded = target.encode(y)
    if len(encoded) != table.n:
        raise WrongValue(f"public has {table.n} rows and {len(encoded)} targets: both need the same number.")
    score = fit_score(table, encoded[:, 0], columns)
    if not score:
        return (), ""
    given = f"{quantity(table.n, 'public row')} with targets were given, which nothing here protects"
    return score, f"{USED}{given}; a score fitted to them is one more feature, whose weight the fit finds"


def public_weights(
    stages: tuple[Stage, ...], public: Any, dataset: Dataset, columns: Columns
) -> PublicWeights | None:
    """Return the weights of a planned fit; None where the plan does without public rows.

    `dataset`: its columns are used, and no record; `columns`: as declared.
    """
    if not any(stage.mechanism.traits.question == QUESTION for stage in stages):
        return None
    table = read_public(split_public(public)[0], dataset.table)
    return PublicWeights(table.n, column_weights(table, columns, floor=FLOOR, long=LONG))


def release_weights(
    stages: tuple[Stage, ...], public: PublicWeights, dataset: Dataset, columns: Columns, answers: Answers
) -> tuple[PublicWeights, Columns]:
    """Release the count that was paid for; return it, and the columns, weighted if enough rows are long."""
    asked = (stage.mechanism for stage in stages if stage.mechanism.traits.question == QUESTION)
    mechanism = as_counts(next(asked))
    question = LongRows(columns, public.weights)
    count = float(answers.give(("public",), lambda rng: mechanism(question, dataset, rng))[0])
    seen = replace(public, count=count, share=min(max(count / mechanism.n, 0.0), 1.0))
    return seen, weighted_columns(columns, public.weights) if seen.used else columns
