"""Check of the data: noisy counts of recognised cells, released when a query engine starts.

No cell is ever refused: one that is not recognised counts as `other`, or in the bin of `missing`. The counts
are one Gaussian release, stored in the transcript; every finding is computed from them alone.
"""

from __future__ import annotations

import math
from itertools import islice

from dpcvx.accounting import REPLACE_ONE, Budget, Neighbours, gaussian_mu, spendable
from dpcvx.arrays import Vector
from dpcvx.estimators import CheckedColumn, DataCheck, objection_to_noise
from dpcvx.mechanisms import NoisyCounts
from dpcvx.queries.schema import Attribute, Schema
from dpcvx.queries.universe import Universe

__all__ = ["NOT_PAID", "counts_of", "objection_to_check", "read_counts"]

NOT_PAID = "no check of the data: the engine was paid for without one"


def counts_of(
    universe: Universe, n: int, noise_multiplier: float, neighbours: Neighbours = REPLACE_ONE
) -> NoisyCounts:
    """Return the mechanism that counts the recognised cells of each attribute.

    A binned column counts as a number, one with levels by its levels (PRIVACY_MATH §18).
    """
    levels = tuple(len(a.levels) for a in universe.schema.attributes if isinstance(a, Attribute))
    return NoisyCounts(n, len(universe.shape) - len(levels), levels, noise_multiplier, neighbours)


def objection_to_check(universe: Universe, n: int, budget: Budget, share: float) -> str:
    """Say why an engine makes no check, from public facts; empty if it makes one.

    `share`: of mu^2, twice the rho of zCDP, that the check may cost.
    """
    if not share:
        return "no check of the data: check=0"
    whole = spendable(budget)
    mu = math.sqrt(share) * gaussian_mu(whole.epsilon, whole.delta)
    return objection_to_noise(counts_of(universe, n, 1 / mu, budget.neighbours), share)


def read_counts(schema: Schema, mechanism: NoisyCounts, released: Vector) -> DataCheck:
    """Return released counts with their findings."""
    numbers = iter(released[: mechanism.numbers].tolist())
    levels = iter(released[mechanism.numbers :].tolist())
    columns = tuple(
        CheckedColumn(a.name, a.levels, tuple(islice(levels, len(a.levels))))
        if isinstance(a, Attribute)
        else CheckedColumn(a.name, None, (next(numbers),))
        for a in schema.attributes
    )
    weight = next(levels, None)  # of all rows, where units are persons
    return DataCheck(mechanism.n, mechanism.noise, columns, weight, mechanism.neighbours.noun)
