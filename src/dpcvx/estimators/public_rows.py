"""Public rows in a fit: whether they are used, what that costs, and what the statement says of them.

Weights or ranges of columns follow from public rows (`dpcvx.data.public_rows`). Rows from elsewhere may be
misleading, so the fit first counts, with noise, the private rows that are like them: rows that are long
enough once their columns are weighted, or that lie near the public ones. If there are too few such rows, the
fit uses neither weights nor ranges.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpcvx.accounting import Budget, gaussian_mu, spendable
from dpcvx.data import Dataset
from dpcvx.data.columns import Columns
from dpcvx.data.public_rows import (
    LongRows,
    NearRows,
    RowCount,
    column_ranges,
    column_weights,
    fit_score,
    narrowed_columns,
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
    "PUBLIC",
    "UNUSED",
    "USED",
    "PublicColumns",
    "public_columns",
    "public_score",
    "public_stages",
    "release_columns",
]

FLOOR: float = default("estimators.public_rows.FLOOR")
LONG: float = default("estimators.public_rows.LONG")
SHARE: float = default("estimators.public_rows.SHARE")
LEAST: float = default("estimators.public_rows.LEAST")
LARGEST_NOISE: float = default("estimators.public_rows.LARGEST_NOISE")
RANGE: float = default("estimators.public_rows.RANGE")
NEAR: float = default("estimators.public_rows.NEAR")
LEAST_NEAR: float = default("estimators.public_rows.LEAST_NEAR")
RANGE_SHARE: float = default("estimators.public_rows.RANGE_SHARE")
RANGE_NOISE: float = default("estimators.public_rows.RANGE_NOISE")
LARGEST_RANGE_NOISE: float = default("estimators.public_rows.LARGEST_RANGE_NOISE")
UNUSED = "public rows are not used: "
USED = "public rows are used: "
PUBLIC = (
    "declared; those of numbers are narrowed by public rows, which a noisy count of private rows confirmed"
)
QUESTION = NoisyRowCount.traits.question


@dataclass(frozen=True, eq=False)
class PublicColumns:
    """Columns with weights or ranges from public rows, and the released count by which they are used."""

    rows: int  # number of public rows
    question: RowCount  # private rows that are like the public ones
    columns: Columns  # with the weights or the ranges
    least: float  # share of the private rows that must be like the public ones
    count: float | None = None  # noisy number of them, or sum of their weights
    share: float = 0.0  # the same over the number of records, or over the noisy sum of all weights
    hidden: bool = False  # whether noise hides the share: the sum of all weights is small

    @property
    def used(self) -> bool:
        """Whether enough private rows are like the public ones."""
        return self.count is not None and not self.hidden and self.share >= self.least

    @property
    def narrows(self) -> bool:
        """Whether numbers are clipped to ranges from public rows."""
        return self.used and isinstance(self.question, NearRows)

    @property
    def fact(self) -> str:
        """Entry of the statement."""
        given = f"{quantity(self.rows, 'public row')} were given, which nothing here protects"
        seen = f"a noisy count finds {self.share:.0%} of the private rows "
        if isinstance(self.question, NearRows):
            seen += "near them"
            use = (
                f"numbers that vary among them are clipped to {RANGE:g} of their standard deviations around "
                "their means"
            )
        else:
            seen += "at their full length with them"
            use = "features are multiplied by weights that follow from them, before rows are shrunk"
        if self.used:
            return f"{given}; {use}: {seen}"
        if self.hidden:
            return (
                f"{given}, and not used: the released sum of weights is so small that noise hides how many "
                "of the private rows are like them"
            )
        return f"{given}, and not used: {seen}, so that they are unlike the private rows"


def public_stages(
    n: int,
    public: Any,
    data_norm: float | None,
    domain: Domain,
    dataset: Dataset,
    budget: Budget,
    *,
    columns: Columns,
    ranges: bool,
) -> tuple[tuple[Stage, ...], str]:
    """Return the stage that counts the rows that are like public ones: one, or none with the reason.

    `n`: number of records; `public`: as the user gives it, or None; `data_norm`: as declared; `dataset`: only
    its kind and its columns are used, no record; `budget`: of the whole fit; `columns`: as declared;
    `ranges`: whether the fit can use ranges of numbers. Whether records are standardised is decided before.
    """
    if public is None:
        return (), ""
    if not ranges and (data_norm is None or not isinstance(domain, HasEuclideanRadius)):
        return (), UNUSED + (
            "beside standardised fits, they weight the columns of fits with data_norm in an l2 ball, and "
            "give regressions ranges of numbers in place of declared bounds"
        )
    if not getattr(dataset, "has_raw_cells", False):
        return (), UNUSED + "these records are stored quantised, and their columns cannot be changed any more"
    neighbours = budget.neighbours
    if budget.delta == 0 or not neighbours.replaces or neighbours.rows > 1:
        return (), UNUSED + "they need delta > 0, relation='replace' and no max_rows"
    if ranges:
        table = read_public(split_public(public)[0], dataset.table)
        if not (column_ranges(table, columns)[1] > 0).any():
            return (), UNUSED + "no number varies among them"
    paid = spendable(budget)
    mu = gaussian_mu(paid.epsilon, paid.delta)
    # Wrong ranges cost more accuracy than wrong weights, so more is paid to detect them, but only as needed.
    # How much is needed beside weights of records depends on their sum, which is private.
    multiplier = 1 / (math.sqrt(RANGE_SHARE if ranges else SHARE) * mu)
    if ranges and neighbours.weight == 1:
        multiplier = max(RANGE_NOISE * n, multiplier)
    count = NoisyRowCount(n, 1, (), multiplier, neighbours)
    if count.noise > (LARGEST_RANGE_NOISE if ranges else LARGEST_NOISE) * n:
        return (
            (),
            UNUSED + "with so few records and this epsilon noise would hide whether they are misleading",
        )
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


def public_columns(
    stages: tuple[Stage, ...], public: Any, data_norm: float | None, dataset: Dataset, columns: Columns
) -> PublicColumns | None:
    """Return the columns of a planned fit with weights or ranges; None if the plan has no count of rows.

    `data_norm`: as declared; `dataset`: its columns are used, and no record; `columns`: as declared.
    """
    if not any(stage.mechanism.traits.question == QUESTION for stage in stages):
        return None
    table = read_public(split_public(public)[0], dataset.table)
    if data_norm is not None:
        weights = column_weights(table, columns, floor=FLOOR, long=LONG)
        weighted = weighted_columns(columns, weights)
        return PublicColumns(table.n, LongRows(columns, weights), weighted, LEAST)
    mean, deviation, farthest = column_ranges(table, columns)
    limit = np.where(deviation > 0, NEAR * farthest, np.inf)
    question = NearRows(columns, mean - limit, mean + limit)
    return PublicColumns(table.n, question, narrowed_columns(columns, mean, RANGE * deviation), LEAST_NEAR)


def release_columns(
    stages: tuple[Stage, ...], public: PublicColumns, dataset: Dataset, columns: Columns, answers: Answers
) -> tuple[PublicColumns, Columns]:
    """Release the count that was paid for; return it, and the columns that are used because of it.

    `columns`: as declared.
    """
    asked = (stage.mechanism for stage in stages if stage.mechanism.traits.question == QUESTION)
    mechanism = as_counts(next(asked))
    count, *weights = answers.give(("public",), lambda rng: mechanism(public.question, dataset, rng))
    whole = max(float(weights[0]) if weights else float(mechanism.n), mechanism.noise)
    # The noise on the share is held to the same limit after the release as the plan holds it to.
    largest = LARGEST_RANGE_NOISE if isinstance(public.question, NearRows) else LARGEST_NOISE
    share = min(max(float(count) / whole, 0.0), 1.0)
    seen = replace(public, count=float(count), share=share, hidden=mechanism.noise > largest * whole)
    return seen, seen.columns if seen.used else columns
