"""Bounds for those who have none: two noisy quantiles of each column, released before the fit.

Everything but the quantiles follows from public numbers: how much they may cost, which quantiles are asked
for, and how far beyond them the bounds are drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from dpcvx.accounting import Budget, gaussian_mu, spendable
from dpcvx.arrays import Vector
from dpcvx.errors import Incompatible
from dpcvx.mechanisms import NoisyQuantile, quantile_grid
from dpcvx.mechanisms.quantile import LEAST_EXPONENT
from dpcvx.noise.samplers import Generator
from dpcvx.plans.execution import Stage

__all__ = ["PRIVATE", "SHARE", "quantile_stages", "release_bounds"]

PRIVATE = "private"  # what the user writes in the place of bounds
SHARE = 0.15  # of mu^2; a selection of bounded range eta counts as mu = eta / 2
# The rank asked for is log(parts of the grid times questions) + 7 scales of the noise from the end: an answer
# beyond all records, whose score is that much lower, comes with a chance of e^-7 = 0.001 in the whole fit.
SAFETY = 7.0
LARGEST_SHARE = 0.25  # of the records beyond a quantile; nearer the middle it says little of the ends
DEVIATIONS = 3.0  # what the bounds would cover of a normal column


def quantile_stages(n: int, columns: int, budget: Budget) -> tuple[Stage, ...]:
    """Return the questions about the low and the high quantile of each of some columns.

    Parameters
    ----------
    n : int
        Number of records, public.
    columns : int
        Number of columns without bounds.
    budget : Budget
        Of the whole fit.
    """
    if not columns:
        return ()
    if budget.relation != "replace":
        raise Incompatible(
            "Private bounds count ranks among a public number of records: use relation='replace'."
        )
    if budget.delta == 0:
        raise Incompatible("Private bounds need delta > 0.")
    paid = spendable(budget)
    eta = 2 * gaussian_mu(paid.epsilon, paid.delta) * math.sqrt(SHARE / (2 * columns))
    rank = math.ceil(2 / eta * (math.log(2 * columns * (quantile_grid().size + 1)) + SAFETY))
    if rank > LARGEST_SHARE * n:
        needed = math.ceil(rank / LARGEST_SHARE)
        raise Incompatible(
            f"Private bounds of {columns} column(s) at epsilon={budget.epsilon:g} need {needed} records, "
            f"these are {n}: declare bounds, use a larger epsilon, or fewer columns. The number is for "
            f"delta={budget.delta:.3g}; where delta falls as records are added, as by default, it grows."
        )
    return tuple(Stage(NoisyQuantile(n, at, eta), columns) for at in (rank, n - rank))


def release_bounds(
    stages: tuple[Stage, ...], columns: Iterator[Vector], rng: Generator
) -> tuple[Vector, Vector]:
    """Ask for both quantiles of every column, and draw bounds around them.

    The low quantile is the lower end of its part of the grid, the high one the upper end of its own. Bounds
    are their middle, plus and minus half their distance times as much as takes the same quantiles of a normal
    law to three deviations. Where the quantiles g are equal, to the grid, half of their distance counts as
    the larger of |g| and 1.

    Parameters
    ----------
    stages : tuple of Stage
        Of `quantile_stages`.
    columns : iterator of Vector
        Cells of each column; private.
    rng : Generator

    Returns
    -------
    tuple of Vector
        Lows and highs, one for each column.
    """
    from scipy.special import ndtri

    low, high = (stage.mechanism for stage in stages)
    if not (isinstance(low, NoisyQuantile) and isinstance(high, NoisyQuantile)):
        raise Incompatible("These stages ask for no quantiles.")
    asked = np.array([(low(cells, rng)[0], high(cells, rng)[1]) for cells in columns]).reshape(-1, 2)
    if len(asked) != stages[0].n_calls:
        raise Incompatible(f"{stages[0].n_calls} column(s) were planned for, got {len(asked)}.")
    middle, half = asked.mean(axis=1), abs(asked[:, 1] - asked[:, 0]) / 2
    size = np.maximum(1.0, abs(middle))
    half = np.where(half > 2.0**LEAST_EXPONENT * size, half, size)
    half *= DEVIATIONS / -float(ndtri(low.rank / low.n))
    return middle - half, middle + half
