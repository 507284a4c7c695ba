"""Bounds of columns, proposed from private quantiles at a price of their own, to declare a table."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpcvx.accounting import REPLACE_ONE, Budget, Tight, calibrate, default_delta, spendable, warn_of_delta
from dpcvx.data.table import Table
from dpcvx.data.units import persons
from dpcvx.errors import Incompatible
from dpcvx.estimators.private_bounds import DEVIATIONS, LARGEST_SHARE, noise_scales
from dpcvx.events import Exponential, Repeat
from dpcvx.mechanisms import NoisyQuantile
from dpcvx.mechanisms.quantile import LEAST_EXPONENT
from dpcvx.noise import generator_of
from dpcvx.plans import Price, Stage, charge
from dpcvx.plans.statement import PrivacyStatement

if TYPE_CHECKING:
    from dpcvx.ledger import Ledger

__all__ = ["ProposedBounds", "propose_bounds"]

DIGITS = 2  # of a proposed bound, which is rounded outward


@dataclass(frozen=True)
class ProposedBounds:
    """Released bounds of columns, with the statement of their price."""

    bounds: Mapping[str, tuple[float, float] | None]  # by column; None where no numbers are visible
    statement: PrivacyStatement


def propose_bounds(
    table: Table,
    columns: Sequence[str],
    *,
    epsilon: float,
    delta: float | None = None,
    ids: Any = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    account: str | None = None,
    random_state: Any = None,
) -> ProposedBounds:
    """Release two noisy quantiles of each of some columns, and propose bounds around them.

    Everything but the quantiles follows from public numbers. The exponential mechanism (`NoisyQuantile`) is
    asked twice for each column, 2k selections in all, which are calibrated to the whole budget.

    Parameters
    ----------
    table : Table
        Private records.
    columns : sequence of str
        Columns of numbers. A cell that is not a number counts as 0.
    epsilon, delta : float
        Price; delta is min(1/n^2, 1e-5) by default.
    ids : array-like, optional
        Id of each row's person; rows of a person are then protected together.
    ledger, account, random_state
        As of an estimator.
    """
    units = None if ids is None else persons(ids)
    n, neighbours = (table.n, REPLACE_ONE) if units is None else (units.n, units.neighbours)
    budget = Budget(
        epsilon, default_delta(n) if delta is None else delta, unit=neighbours.unit, weight=neighbours.weight
    )
    asked = 2 * len(columns)
    eta = 1 / calibrate(lambda noise: Repeat(Exponential(1 / noise), asked), spendable(budget), Tight())
    rank = math.ceil(2 / eta * noise_scales(len(columns)))
    if rank > LARGEST_SHARE * n:
        raise Incompatible(
            f"Private bounds of {len(columns)} column(s) at epsilon={epsilon:g} need "
            f"{math.ceil(rank / LARGEST_SHARE)} {neighbours.noun}s, and there are {n}: declare bounds, use a "
            "larger epsilon, or leave fewer columns open."
        )
    low, high = (NoisyQuantile(n, at, eta, neighbours) for at in (rank, n - rank))
    parts = tuple(Stage(quantile, len(columns)).description for quantile in (low, high))
    price = Price(Repeat(Exponential(eta), asked), parts, 0.0, budget)
    price.check_budget()
    warn_of_delta(budget.delta, n, neighbours.noun, stacklevel=2)
    rng = generator_of(random_state)
    purpose = f"bounds of {len(columns)} columns of {n} {neighbours.noun}s"
    receipt = charge(price, ledger, account, private=rng.private, purpose=purpose)
    weights = None if units is None else units.shares
    found: dict[str, tuple[float, float] | None] = {}
    for name in columns:
        cells = table.column_numbers(table.position(name, "columns"), 0, table.n)
        found[name] = _around(low(cells, rng, weights)[0], high(cells, rng, weights)[1], rank / n)
    statement = PrivacyStatement.of(
        price,
        model="proposed bounds of columns",
        private=rng.private,
        bounds={
            "enforced": f"a {neighbours.unit} changes each rank by one at most",
            **({} if units is None else units.facts),
        },
        public={"n" if units is None else "persons": n, "columns": list(columns)},
        receipt=receipt,
    )
    return ProposedBounds(found, statement)


def _around(low: float, high: float, share: float) -> tuple[float, float] | None:
    """Bounds around two quantiles, rounded outward; not below 0 where the lower quantile is not.

    They reach as far as three standard deviations of a normal law with these quantiles, see `release_bounds`.
    None where both quantiles are 0, as those of text are.
    """
    from scipy.special import ndtri

    if not low < high or max(abs(low), abs(high)) <= 2.0**LEAST_EXPONENT:
        return None
    middle, half = (low + high) / 2, (high - low) / 2 * DEVIATIONS / -float(ndtri(share))
    first = middle - half if low < 0 else max(0.0, middle - half)
    return _round(first, math.floor), _round(middle + half, math.ceil)


def _round(value: float, towards: Any) -> float:
    if value == 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - DIGITS + 1)
    return float(f"{towards(value / unit) * unit:.12g}")
