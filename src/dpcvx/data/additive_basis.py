"""Features of additive models: ramps between knots of standardised cells, and products of pairs of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.errors import WrongValue

__all__ = ["AdditiveBasis"]


@dataclass(frozen=True)
class AdditiveBasis:
    """Public map from a standardised row u of d cells to the features of an additive model.

    phi(u) = (u_1, ..., u_d, w r_jk(u_j), v clip(u_i u_j, -reach, reach)), u_j clipped to [-reach, reach]

    The ramp r_jk of column j rises from 0 to 1 between neighbouring knots k and k + 1, less its value at the
    mean u_j = 0. Each row is mapped alone, with public numbers. Ramps and products are scaled by weights
    below 1: a fit that stops early, as descent does, learns the linear part first, and shapes where they are
    pronounced. The ramps of `flat` columns are all 0: between two values there is no shape.
    """

    d: int  # standardised features of a row
    numbers: tuple[int, ...]  # places of those that have ramps: numbers, not levels
    knots: tuple[float, ...]  # in standard deviations from the mean, increasing, 0 among them; or none
    ramp_weight: float  # w
    pairs: tuple[tuple[int, int], ...]  # places of the features whose product is one
    pair_weight: float  # v
    reach: float
    flat: tuple[int, ...] = ()  # numbers without a shape: those at the ends of their bounds, such as 0 and 1
    dropped: tuple[int, ...] = ()  # numbers that were not selected: all their features are 0

    def __post_init__(self) -> None:
        increasing = all(low < high for low, high in zip(self.knots, self.knots[1:], strict=False))
        if self.knots and (len(self.knots) < 2 or not increasing or 0 not in self.knots):
            raise WrongValue(f"knots must increase, and 0 must be one of them, got {self.knots}.")

    @property
    def ramps(self) -> int:
        """Number of ramps of a column."""
        return max(0, len(self.knots) - 1)

    @property
    def width(self) -> int:
        """Number of features."""
        return self.d + len(self.numbers) * self.ramps + len(self.pairs)

    def ramp_places(self, j: int) -> range:
        """Places of the ramps of the number at place j."""
        first = self.d + self.numbers.index(j) * self.ramps
        return range(first, first + self.ramps)

    def keep(
        self, drawn: tuple[int, ...], among: tuple[int, ...]
    ) -> tuple[AdditiveBasis, list[int], list[int]]:
        """Return the basis without those numbers of `among` that were not selected.

        Also return the indices of its cells in a row, and of its features in this basis.
        """
        cells = [j for j in range(self.d) if j in drawn or j not in among]
        numbers = [j for j in self.numbers if j in cells]
        basis = replace(
            self,
            d=len(cells),
            numbers=tuple(cells.index(j) for j in numbers),
            flat=tuple(cells.index(j) for j in self.flat if j in cells),
        )
        return basis, cells, cells + [place for j in numbers for place in self.ramp_places(j)]

    @property
    def largest(self) -> float:
        """Largest absolute value of a feature."""
        return max(self.reach, self.ramp_weight, self.pair_weight * self.reach)

    def largest_norm(self, columns: int) -> float:
        """Bound on the l2 norm of phi(u): u_j and its ramps are largest at an end of the knots.

        `columns`: how many there are, the features of one together having at most the norm `reach`.
        """
        sides = [sum(knot < 0 for knot in self.knots), sum(knot > 0 for knot in self.knots)]
        ramps = len(self.numbers) * self.ramp_weight**2 * max(sides)
        pairs = len(self.pairs) * (self.pair_weight * self.reach) ** 2
        return math.sqrt(columns * self.reach**2 + ramps + pairs)

    @property
    def arrays(self) -> tuple[Any, Any, tuple[float, float, float], int]:
        """The basis as the kernel `quantise_additive` takes it."""
        shaped = [j for j in self.numbers if j not in self.flat] if self.ramps else []
        bent = np.array([(j, self.ramp_places(j)[0]) for j in shaped], dtype=np.int64).reshape(-1, 2)
        pairs = np.array(self.pairs, dtype=np.int64).reshape(-1, 2)
        weights = (self.ramp_weight, self.pair_weight, self.largest)
        return (bent, pairs), (np.array(self.knots), self.reach), weights, self.width

    def __call__(self, rows: Vector) -> Vector:
        """Return the features of standardised rows, shape (n, d), as an array of shape (n, width)."""
        u = np.clip(rows, -self.reach, self.reach)
        u[:, list(self.dropped)] = 0.0
        features = np.empty((len(u), self.width))
        features[:, : self.d] = u
        last = self.d + len(self.numbers) * self.ramps
        if self.ramps:
            low, high = np.array(self.knots[:-1]), np.array(self.knots[1:])
            ramps = (u[:, list(self.numbers), None] - low) / (high - low)
            np.clip(ramps, 0.0, 1.0, out=ramps)
            # A ramp below the mean is 0 at it and -1 below; one above rises from 0 to 1.
            ramps *= self.ramp_weight
            ramps -= np.where(high <= 0, self.ramp_weight, 0.0)
            ramps[:, [j in self.flat for j in self.numbers]] = 0.0
            features[:, self.d : last] = ramps.reshape(len(u), -1)
        if self.pairs:
            first, second = np.array(self.pairs).T
            products = u[:, first] * u[:, second]
            np.clip(products, -self.reach, self.reach, out=products)
            features[:, last:] = self.pair_weight * products
        return features

    def names(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return a name for each feature: "age", "age[1]" for its first ramp, "age*income" for a product."""
        ramps = [f"{names[j]}[{k}]" for j in self.numbers for k in range(1, self.ramps + 1)]
        return (*names, *ramps, *(f"{names[i]}*{names[j]}" for i, j in self.pairs))
