"""Distributions over a universe: the public one that questions are answered from, and the records' own.

`Histogram` is public. `Counts` holds records: it answers mechanisms only, and prints nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpcvx.arrays import IntVector, Vector
from dpcvx.queries.sums import Tables, all_marginals, outer_sum
from dpcvx.queries.universe import Universe

if TYPE_CHECKING:
    from dpcvx.losses import Loss
    from dpcvx.noise import Generator

__all__ = ["Counts", "Histogram", "Split"]

INNER_CELLS = 2**11  # cells that a pass folds at once: 16 KiB of sums stay in the first-level cache
SHORT_RUN = 16  # cells in a row below which a copy in another order is faster to go through


class Histogram:
    """A public distribution over all cells of a universe.

    Parameters
    ----------
    universe : Universe
    weights : array of float64 or float32, optional
        Shape (n_cells,), not negative; they are normalised. Sums are taken in float64 whatever the type.
        Without weights and log-weights all cells weigh the same.
    log_weights : array of float64 or float32, optional
        Their logarithms instead, up to a common constant; the largest one becomes 0 before exp.
    """

    def __init__(
        self,
        universe: Universe,
        weights: NDArray[Any] | None = None,
        *,
        log_weights: NDArray[Any] | None = None,
    ) -> None:
        if weights is not None and log_weights is not None:
            raise ValueError("Give weights or log_weights, not both.")
        if log_weights is not None:
            given = np.asarray(log_weights)
            weights = np.exp(given - given.max()) if given.size else given
        elif weights is None:
            weights = np.full(universe.n_cells, 1.0)
        weights = np.asarray(weights)
        if weights.dtype != np.float32:
            weights = weights.astype(np.float64, copy=False)
        total = weights.sum(dtype=np.float64) if weights.shape == (universe.n_cells,) else math.nan
        if not (total > 0 and math.isfinite(total) and weights.min() >= 0):
            raise ValueError(
                f"A histogram needs {universe.n_cells} weights, one for each cell, none negative and not all "
                f"zero; got shape {weights.shape}."
            )
        self.universe = universe
        self.weights: NDArray[Any] = weights / weights.dtype.type(total)
        self.weights.flags.writeable = False

    def marginal(self, attributes: tuple[int, ...]) -> Vector:
        """Return the distribution of some attributes, one axis for each, in the order they are given in."""
        ordered = sorted(self.universe.axes(attributes))
        table = Split(self.universe.shape, ordered).table(self.weights)
        table /= table.sum()
        return np.ascontiguousarray(table.transpose([ordered.index(a) for a in attributes]))

    def reweight(self, attributes: tuple[int, ...], log_factor: Vector) -> Histogram:
        """Return the distribution times exp(log_factor(x_A)), normalised.

        Parameters
        ----------
        attributes : tuple of int
            The attributes A.
        log_factor : Vector
            One number for each cell of A, in the shape of ``marginal(attributes)``.
        """
        from dpcvx.queries import kernels

        split = Split(self.universe.shape, sorted(self.universe.axes(attributes)))
        sizes = tuple(self.universe.shape[a] for a in attributes)
        if np.shape(log_factor) != sizes:
            raise ValueError(f"log_factor has shape {np.shape(log_factor)}; it must be {sizes}.")
        factors = np.exp(log_factor - np.max(log_factor)).transpose(np.argsort(attributes))
        out = np.empty_like(self.weights)
        kernels.scale(
            self.weights.reshape(-1, split.inner),
            split.rows,
            split.columns,
            factors.reshape(split.n_rows, split.n_columns).astype(out.dtype),
            out.reshape(-1, split.inner),
        )
        return Histogram(self.universe, out)

    def gradient(self, loss: Loss, scores: Mapping[int, Vector], target: int) -> dict[int, Vector]:
        """Return the gradient of a mean loss over all cells in every table of scores.

        F = sum_x p(x) phi(sum_a scores[a](x_a), y(x_target)), y the values of the target's cells. Scores are
        outer sums and the gradient is made of marginals: the matrix of all cells' features is never formed.

        Parameters
        ----------
        loss : Loss
            Of one score.
        scores : mapping from int to Vector
            For each attribute but the target its score at every level; attributes without one score zero. A
            linear model has scores[a] = features_a @ theta_a, and gradient features_a.T @ gradient[a].
        target : int
            The attribute that is predicted.
        """
        from dpcvx.queries import kernels

        shape = self.universe.shape
        others = [a for a in range(len(shape)) if a != self.universe.axes((target,))[0]]
        if target in scores or loss.joint or any(np.shape(scores[a]) != (shape[a],) for a in scores):
            raise ValueError(
                "scores need one table of the attribute's size for each attribute, none for the target, and "
                f"a loss of one score; got {type(loss).__name__} and attributes {sorted(scores)}."
            )
        sizes = tuple(shape[a] for a in others)
        tables: Tables = {(others.index(a),): np.asarray(scores[a]) for a in scores}
        z = outer_sum(tables, sizes, 1, np.dtype(np.float64))
        inner = math.prod(shape[target + 1 :])
        weights = self.weights.reshape(-1, shape[target], inner)
        if inner < SHORT_RUN:
            inner = z.size
            weights = np.ascontiguousarray(weights.transpose(1, 0, 2)).reshape(1, shape[target], inner)
        residuals = np.empty((z.size // inner, inner))
        y = self.universe.schema.attributes[target].values
        kernels.slopes_of(loss.slope)(z.reshape(-1, inner), weights, y, loss.parameter, residuals)
        sums = all_marginals(residuals.ravel(), sizes, 1)
        return {a: sums[(others.index(a),)] for a in scores}

    def sample(self, n: int, rng: Generator) -> IntVector:
        """Return n cell numbers drawn independently, shape (n,)."""
        cumulative = np.cumsum(self.weights, dtype=np.float64)
        uniform = (rng.words(n) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        cells: IntVector = np.searchsorted(cumulative, uniform * cumulative[-1], side="right")
        cells[cells == self.universe.n_cells] -= 1  # the product may round up to the whole
        return cells


class Counts:
    """The records as exact integer counts of cells, inside the gate.

    A pass takes one look at each record, or at each cell if there are fewer of those: a public choice.

    Parameters
    ----------
    universe : Universe
    cells : IntVector
        Cell number of every record, as `Universe.encode` returns them.
    """

    def __init__(self, universe: Universe, cells: IntVector) -> None:
        self.universe = universe
        self.n = len(cells)
        self._cells = cells if self.n < universe.n_cells else None
        self._table = np.bincount(cells, minlength=universe.n_cells) if self._cells is None else None

    @classmethod
    def of(cls, universe: Universe, table: Any) -> Counts:
        """Take the records of a table through the door."""
        return cls(universe, universe.encode(table))

    def marginal(self, attributes: tuple[int, ...]) -> IntVector:
        """Return the exact number of records in each cell of some attributes, one axis for each."""
        from dpcvx.queries import kernels

        axes = self.universe.axes(attributes)
        sizes = tuple(self.universe.shape[a] for a in axes)
        if self._table is not None:
            ordered = sorted(axes)
            table = Split(self.universe.shape, ordered).table(self._table)
            return np.ascontiguousarray(table.transpose([ordered.index(a) for a in axes]))
        strides = np.array([math.prod(self.universe.shape[a + 1 :]) for a in axes], dtype=np.int64)
        counted = np.zeros(math.prod(sizes), dtype=np.int64)
        kernels.count(self._cells, strides, np.array(sizes, dtype=np.int64), counted)
        return counted.reshape(sizes)


class Split:
    """A universe as outer times inner cells, and the place of each in the table of some attributes.

    Parameters
    ----------
    sizes : tuple of int
        Shape of the universe.
    axes : sequence of int
        The attributes, increasing.
    """

    def __init__(self, sizes: tuple[int, ...], axes: Sequence[int]) -> None:
        first = len(sizes) - 1
        while first > 0 and math.prod(sizes[first - 1 :]) <= INNER_CELLS:
            first -= 1
        self.inner = math.prod(sizes[first:])
        self._shape = [sizes[a] for a in axes]
        self.rows, self.n_rows = _places(sizes[:first], [a for a in axes if a < first])
        self.columns, self.n_columns = _places(sizes[first:], [a - first for a in axes if a >= first])

    def table(self, weights: NDArray[Any]) -> NDArray[Any]:
        """Sum the weights of all cells by the attributes: integers exactly, others in float64."""
        from dpcvx.queries import kernels

        kind = np.int64 if weights.dtype.kind == "i" else np.float64
        sums = np.zeros((self.n_rows, self.inner), dtype=kind)
        kernels.fold(weights.reshape(-1, self.inner), self.rows, sums)
        table = np.zeros((self.n_rows, self.n_columns), dtype=kind)
        kernels.gather(self.columns, sums, table)
        return table.reshape(self._shape)


def _places(sizes: tuple[int, ...], kept: list[int]) -> tuple[IntVector, int]:
    """For each cell of some axes its number among the cells of the kept ones, and how many those are."""
    places = np.zeros((1,) * len(sizes), dtype=np.int64)
    count = 1
    for axis in kept:
        shape = [1] * len(sizes)
        shape[axis] = sizes[axis]
        places = places * sizes[axis] + np.arange(sizes[axis]).reshape(shape)
        count *= sizes[axis]
    return np.ascontiguousarray(np.broadcast_to(places, sizes)).ravel(), count
