"""A mechanism of your own: the share of records in which each feature is positive."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

import dpcvx as dp
from dpcvx.accounting import REPLACE_ONE, Neighbours, Tight, calibrate, spendable
from dpcvx.arrays import IntVector, Vector
from dpcvx.data import DataSource, Dense, Records, RowBounds
from dpcvx.events import Gaussian
from dpcvx.mechanisms import GaussianMechanism, LatticeGaussian, Traits, check_capacity
from dpcvx.noise import Generator, SecureGenerator


@dataclass(frozen=True)
class PositiveCount:
    """The exact sum: in how many records each feature is positive."""

    def check(self, d: int) -> None:
        """Accept any number of features: there is no public argument that could have another length."""

    def among(self, start: int, stop: int) -> "PositiveCount":
        """Return the same sum for a part of the records."""
        return self

    def of(self, records: Records) -> IntVector:
        """Return the sum over records in memory, dense or compressed."""
        rows = records.whole_rows()
        if isinstance(rows, Dense):
            return np.count_nonzero(rows.values > 0, axis=0)
        return np.bincount(rows.indices[rows.values > 0], minlength=records.d)

    def add(self, parts: Iterable[IntVector], n: int) -> IntVector:
        """Add the sums over disjoint parts of n records."""
        return np.sum(list(parts), axis=0)

    def distances(
        self, one: IntVector, other: IntVector, row: RowBounds, neighbours: Neighbours
    ) -> list[tuple[int, int]]:
        """Return the squared distance of two answers, and the largest that neighbours may have."""
        return [(int(((one - other) ** 2).sum()), neighbours.interval**2 * row.d)]


@dataclass(frozen=True)
class NoisyPositiveShare(GaussianMechanism):
    """Share of records in which each feature is positive, with Gaussian noise.

    Query: `PositiveCount`. Sensitivity: every count gets 0 or 1 from a record, an interval of length 1, so
    one record moves d counts by at most sqrt(d) in l2 norm, replaced or added. Event: Gaussian.
    """

    d: int
    n: int
    noise_multiplier: float
    neighbours: Neighbours = REPLACE_ONE

    traits: ClassVar[Traits] = Traits("share of positive cells")

    def __post_init__(self) -> None:
        check_capacity(self, self.n)

    @property
    def gaussians(self) -> tuple[LatticeGaussian, ...]:
        """The noise: one integer for each feature, a step of 1/n in the units of the answer."""
        sensitivity = math.isqrt(self.neighbours.interval**2 * self.d) + 1  # rounded up
        return (LatticeGaussian(sensitivity, self.noise_multiplier, self.d, 1 / self.n),)

    @property
    def capacity(self) -> int:
        """Most records whose exact counts fit 62 bits with the noise."""
        return self.gaussians[0].room(1)

    @property
    def evaluations(self) -> float:
        """No gradient is evaluated."""
        return 0.0

    def __call__(self, data: DataSource, rng: Generator) -> Vector:
        """Return the noisy shares."""
        counts = data.sum(PositiveCount()) + self.gaussians[0].draw(rng)
        return counts / self.n  # divided by the public n


rng = np.random.default_rng(0)
records = dp.source(rng.normal([-1, 0, 1], 1, (20_000, 3)), bounds=dp.Bounds(x_inf=1.0))
budget = spendable(dp.Budget(epsilon=1.0, delta=1e-8))  # sets a part of delta aside for the sampler
multiplier = calibrate(Gaussian, budget, Tight())
mechanism = NoisyPositiveShare(d=3, n=records.n, noise_multiplier=multiplier)
# With a ledger, charge before you ask: account.charge(mechanism.event, purpose="shares")
print("shares", mechanism(records, SecureGenerator()).round(3), f"noise {mechanism.noise:.4f}")
