"""bounds="private": two noisy quantiles of each column, released before the fit, give its bounds.

Everything but the quantiles follows from public numbers: how much they may cost, which quantiles are asked
for, and how far beyond them the bounds are drawn. A plan is in scaled units, so it does not depend on the
bounds: it is made with placeholders, and columns and target are declared again with the released bounds.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcvx.accounting import Budget, gaussian_mu, spendable
from dpcvx.arrays import IntVector, Vector
from dpcvx.data.canonical import read_numbers
from dpcvx.data.columns import Columns
from dpcvx.data.dataset import Dataset, InMemory
from dpcvx.data.declarations import Declarations
from dpcvx.data.table import Table
from dpcvx.data.target import Target
from dpcvx.errors import Incompatible
from dpcvx.mechanisms import NoisyQuantile, as_quantile, quantile_grid
from dpcvx.mechanisms.quantile import LEAST_EXPONENT
from dpcvx.plans import Answers, Plan, Stage
from dpcvx.solvers.defaults import default

QUESTION = NoisyQuantile.traits.question
PRIVATE = "private"  # what the user writes in the place of bounds
RELEASED = "drawn around two noisy quantiles, which this fit released first"
PLACEHOLDER = (-1.0, 1.0)
SHARE: float = default("estimators.private_bounds.SHARE")
# The rank asked for is log(parts of the grid times questions) + 7 scales of the noise from the end: an answer
# beyond all records, whose score is that much lower, comes with a chance of e^-7 = 0.001 in the whole fit.
SAFETY = 7.0
MOST_SHARE: float = default("estimators.private_bounds.MOST_SHARE")
LARGEST_SHARE: float = default("estimators.private_bounds.LARGEST_SHARE")
DEVIATIONS: float = default("estimators.private_bounds.DEVIATIONS")


def is_private(bounds: Any) -> bool:
    """Say whether bounds are to be released by the fit."""
    return isinstance(bounds, str) and bounds == PRIVATE


def with_placeholders(stated: Declarations, dataset: Dataset, threshold: float | None) -> Declarations:
    """Return declarations with (-1, 1) in the place of bounds that the fit will release.

    `threshold`: parameter of a robust regressor, in the units of y.
    """
    names = _private_names(stated)
    if not names:
        return stated
    if not isinstance(dataset, InMemory) or dataset.table.sparse:
        raise Incompatible(f'{names[0]}="private" needs dense records in memory; declare bounds of others.')
    if "y_bounds" in names and threshold is not None:
        raise Incompatible(
            'threshold is in the units of y, which y_bounds="private" leaves open: give bounds.'
        )
    placed: dict[str, Any] = dict.fromkeys(names, PLACEHOLDER)
    return dataclasses.replace(stated, **placed)


def private_columns(stated: Declarations, columns: Columns, target: Target) -> int:
    """Return the number of columns and targets whose bounds the fit is to release."""
    wanted = 0
    if is_private(stated.bounds):
        wanted += sum(levels is None for levels in columns.levels)
    if is_private(stated.y_bounds):
        wanted += target.outputs
    return wanted


def noise_scales(columns: int) -> float:
    """Return how many scales of the noise a rank is from the end, for two quantiles of each column."""
    return math.log(2 * columns * (quantile_grid().size + 1)) + SAFETY


def quantile_stages(n: int, columns: int, budget: Budget) -> tuple[Stage, ...]:
    """Return the questions about the low and the high quantile of each of some columns.

    `n`: number of records, public; `columns`: number of columns without bounds; `budget`: of the whole fit.
    """
    if not columns:
        return ()
    if not budget.neighbours.replaces:
        raise Incompatible(
            "Private bounds count ranks among a public number of records: use relation='replace'."
        )
    if budget.delta == 0:
        raise Incompatible("Private bounds need delta > 0.")
    # Rows of a person share the weight of one row here, however many of them the fit uses.
    neighbours, n = dataclasses.replace(budget.neighbours, rows=1), n // budget.neighbours.rows
    paid = spendable(budget)
    mu = gaussian_mu(paid.epsilon, paid.delta)
    scales = noise_scales(columns)

    def selection(share: float) -> tuple[float, int]:
        """Bounded range of one selection for a share of the budget, and the rank that it can ask for."""
        eta = 2 * mu * math.sqrt(share / (2 * columns))
        return eta, math.ceil(2 / eta * scales)

    # With few records: the smallest share of the budget whose rank is small enough, with a rounding margin.
    wanted = math.floor(LARGEST_SHARE * n)
    needed_share = 1.001 * 2 * columns * (scales / (mu * max(wanted, 1))) ** 2
    eta, rank = selection(min(max(SHARE, needed_share), MOST_SHARE))
    if rank > wanted:
        needed = math.ceil(rank / LARGEST_SHARE)
        raise Incompatible(
            f"Private bounds of {columns} column(s) at epsilon={budget.epsilon:g} need {needed} "
            f"{neighbours.noun}s, and there are {n}: declare bounds, use a larger epsilon, or fewer columns. "
            f"The number is for delta={budget.delta:.3g} and half of the budget; where delta falls as the "
            "number grows, as by default, it grows."
        )
    return tuple(Stage(NoisyQuantile(n, at, eta, neighbours), columns) for at in (rank, n - rank))


def release_bounds(
    stages: tuple[Stage, ...], columns: Iterator[Vector], answers: Answers, weights: IntVector | None = None
) -> tuple[Vector, Vector]:
    """Ask for both quantiles of every column, and draw bounds around them.

    The low quantile is the lower end of its part of the grid, the high one the upper end of its own. Bounds
    are their middle, plus and minus half their distance, multiplied by the factor that takes the same
    quantiles of a normal law to three standard deviations. If both quantiles are equal to g, on the grid,
    half of their distance counts as the larger of |g| and 1.

    `stages`: of `quantile_stages`; `columns`: cells of each column; private; `answers`: of the run;
    `weights`: of the records, where they have any; private. Returns lows and highs, one for each column.
    """
    from scipy.special import ndtri

    low, high = (as_quantile(stage.mechanism) for stage in stages)

    def ask(quantile: NoisyQuantile, cells: Vector, j: int, end: int) -> float:
        found: tuple[float, float] = answers.give(
            ("bounds", j, end), lambda rng: quantile(cells, rng, weights)
        )
        return found[end]

    asked = np.array(
        [(ask(low, cells, j, 0), ask(high, cells, j, 1)) for j, cells in enumerate(columns)]
    ).reshape(-1, 2)
    if len(asked) != stages[0].n_calls:
        raise Incompatible(f"{stages[0].n_calls} column(s) were planned for, got {len(asked)}.")
    middle, half = asked.mean(axis=1), abs(asked[:, 1] - asked[:, 0]) / 2
    size = np.maximum(1.0, abs(middle))
    half = np.where(half > 2.0**LEAST_EXPONENT * size, half, size)
    half *= DEVIATIONS / -float(ndtri(low.rank / low.n))
    return middle - half, middle + half


def release_declarations(
    stated: Declarations,
    table: Table,
    y: NDArray[Any],
    columns: Columns,
    plan: Plan,
    answers: Answers,
    weights: IntVector | None = None,
) -> Declarations:
    """Ask for the quantiles of a plan; return the declarations with the bounds that were released.

    `stated`: some of them "private"; `table`: records; private; `y`: raw targets; private; `columns`:
    declared with placeholders; `weights`: of the records, where they have any; private.
    """
    names = _private_names(stated)
    places = [j for j, levels in enumerate(columns.levels) if levels is None] if "bounds" in names else []
    targets = y.reshape(table.n, -1) if "y_bounds" in names else np.empty((table.n, 0))
    asked = tuple(stage for stage in plan.before if stage.mechanism.traits.question == QUESTION)
    low, high = release_bounds(asked, _cells(table, places, targets), answers, weights)
    found: dict[str, Any] = {}
    if "bounds" in names:
        lows, highs = np.zeros(table.d), np.ones(table.d)
        lows[places], highs[places] = low[: len(places)], high[: len(places)]
        found["bounds"] = (lows, highs)
    if "y_bounds" in names:
        found["y_bounds"] = tuple(part[len(places) :].reshape(y.shape[1:]) for part in (low, high))
    return dataclasses.replace(stated, **found)


def _private_names(stated: Declarations) -> list[str]:
    return [name for name in ("bounds", "y_bounds") if is_private(getattr(stated, name))]


def _cells(table: Table, places: list[int], targets: Any) -> Iterator[Vector]:
    for j in places:
        yield table.column_numbers(j, 0, table.n)
    for column in targets.T:
        yield read_numbers(column)
