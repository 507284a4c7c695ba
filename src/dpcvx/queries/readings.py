"""Numbers of an answer as people read them: in the table's units, against baseline levels, with margins."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpcvx.arrays import Vector

__all__ = ["INTERCEPT", "TOTAL", "Coefficient", "Reading", "table_with_margins"]

INTERCEPT = "intercept"
TOTAL = "total"  # name of a margin


@dataclass(frozen=True)
class Coefficient:
    """One number of an answer.

    Parameters
    ----------
    name : str
    estimate : float
    std_err : float or None
        Standard error as an estimate of the number that these records give; None if not known, or if the
        number itself is known, as a baseline is.
    low, high : float or None
        Interval for the number that these records give; None if nothing is known about the error.
    sampling : float or None
        Standard deviation of the number over samples of as many records from a population.
    population_low, population_high : float or None
        Interval for the population that the records are a random sample of.
    """

    name: str
    estimate: float
    std_err: float | None = None
    low: float | None = None
    high: float | None = None
    sampling: float | None = None
    population_low: float | None = None
    population_high: float | None = None

    def interval(self, population: bool) -> tuple[float | None, float | None]:
        """Return the interval for these records, or for the population that they are a sample of."""
        return (self.population_low, self.population_high) if population else (self.low, self.high)

    def error(self, population: bool) -> float | None:
        """Return the standard error for these records, or for the population."""
        if not population or self.std_err is None or self.sampling is None:
            return None if population else self.std_err
        return float((self.std_err**2 + self.sampling**2) ** 0.5)


@dataclass(frozen=True, eq=False)
class Reading:
    """Affine map from a coded answer to the numbers that are shown: offset + matrix @ theta.

    Parameters
    ----------
    names : tuple of str
        Names of the numbers.
    matrix : Vector
        Shape (r, k). A row of zeros is a number that is known: a baseline, or the number of all people.
    offset : Vector
        Shape (r,).
    low, high : float
        Range of the numbers.
    """

    names: tuple[str, ...]
    matrix: Vector
    offset: Vector
    low: float = -math.inf
    high: float = math.inf

    @property
    def known(self) -> list[bool]:
        """Whether each number is known without looking at a record."""
        return [not row.any() for row in self.matrix]

    @property
    def single(self) -> NDArray[np.bool_]:
        """Whether each number shows a single coded one, as margins do not."""
        single: NDArray[np.bool_] = (self.matrix != 0).sum(axis=1) == 1
        return single

    def numbers(self, theta: Vector) -> Vector:
        """Return the numbers of an answer, inside their range."""
        numbers: Vector = np.clip(self.offset + self.matrix @ theta, self.low, self.high)
        return numbers

    def inside(self, low: float, high: float) -> tuple[float, float]:
        """Return the part of an interval that is in the range of the numbers."""
        return max(low, self.low), min(high, self.high)

    def deviations(self, covariance: Vector) -> Vector:
        """Return the standard deviation of each number, from the covariance of the coded answer."""
        variances = ((self.matrix @ covariance) * self.matrix).sum(axis=1)
        deviations: Vector = np.sqrt(np.maximum(variances, 0.0))
        return deviations

    def widths(self, bounds: Vector) -> Vector:
        """Return how far off each number can be if each coded one is off by at most its bound."""
        widths: Vector = np.abs(self.matrix) @ bounds
        return widths

    def largest(self, bounds: Vector) -> float:
        """Return how far off a number can be that shows a single coded one."""
        return float(self.widths(bounds)[self.single].max())


def table_with_margins(names: tuple[str, ...], labels: tuple[tuple[str, ...], ...], n: int) -> Reading:
    """Return the number of people in every cell of a table of shares, and its margins.

    The table is read with its last attribute across: there is a total for every row, for every level of the
    last attribute, and of all people, which is known. One attribute has the total of all people alone.

    `names`, `labels`: of the attributes and of their cells; `n`: number of people.
    """
    sizes = tuple(map(len, labels))
    m, last = math.prod(sizes), sizes[-1]
    parts: list[Vector] = [np.eye(m)]
    named = [_cell_names(names, labels)]
    if len(sizes) > 1:
        cells = np.arange(m)
        parts += [
            np.equal.outer(np.arange(m // last), cells // last).astype(np.float64),
            np.equal.outer(np.arange(last), cells % last).astype(np.float64),
        ]
        ends = ((TOTAL,),)
        named += [
            _cell_names(names, (*labels[:-1], *ends)),
            _cell_names(names, (*(ends * (len(sizes) - 1)), labels[-1])),
        ]
    parts.append(np.zeros((1, m)))
    named.append([", ".join(f"{name}={TOTAL}" for name in names)])
    matrix = n * np.concatenate(parts)
    offset = np.append(np.zeros(len(matrix) - 1), float(n))
    return Reading(tuple(name for part in named for name in part), matrix, offset, 0.0, float(n))


def _cell_names(names: tuple[str, ...], labels: tuple[tuple[str, ...], ...]) -> list[str]:
    cells = [""]
    for name, each in zip(names, labels, strict=True):
        cells = [f"{cell}{', ' if cell else ''}{name}={label}" for cell in cells for label in each]
    return cells
