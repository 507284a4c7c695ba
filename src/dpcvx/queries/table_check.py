"""Check of the data: noisy counts of recognised cells, released when a query engine starts.

No cell is ever refused: one that is not recognised counts as `other`, or in the bin of `missing`. The counts
are one Gaussian release, stored in the transcript; every finding is computed from them alone.
"""

from __future__ import annotations

import math

from dpcvx.accounting import Budget, gaussian_mu, spendable
from dpcvx.arrays import Vector
from dpcvx.estimators import CheckedColumn, DataCheck, objection_to_noise
from dpcvx.mechanisms import NoisyCounts
from dpcvx.queries.schema import Schema
from dpcvx.queries.universe import Universe

__all__ = ["NOT_PAID", "counts_of", "objection_to_check", "read_counts"]

NOT_PAID = "no check of the data: the engine was paid for without one"


def counts_of(universe: Universe, n: int, noise_multiplier: float) -> NoisyCounts:
    """Return the mechanism that counts the recognised cells of each attribute.

    An attribute counts like a number whether it has levels or bins: a record adds 1 or 0 to its count, so
    that the sensitivity is sqrt(attributes) under replace-one (PRIVACY_MATH §18).
    """
    return NoisyCounts(n, len(universe.shape), (), noise_multiplier)


def objection_to_check(universe: Universe, n: int, budget: Budget, share: float) -> str:
    """Say why an engine makes no check, from public facts; empty if it makes one.

    `share`: of mu^2, twice the rho of zCDP, that the check may cost.
    """
    if not share:
        return "no check of the data: check=0"
    whole = spendable(budget)
    mu = math.sqrt(share) * gaussian_mu(whole.epsilon, whole.delta)
    return objection_to_noise(counts_of(universe, n, 1 / mu), share)


def read_counts(schema: Schema, mechanism: NoisyCounts, released: Vector) -> DataCheck:
    """Return released counts with their findings."""
    pairs = zip(schema.names, released.tolist(), strict=True)
    columns = tuple(CheckedColumn(name, None, (count,)) for name, count in pairs)
    return DataCheck(mechanism.n, mechanism.noise, columns)
