"""Distributions over a universe: the public histogram that answers queries, and the counts of the records.

`Histogram` is public. `Counts` holds records: it answers mechanisms only, and prints nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpcvx.arrays import IntVector, Vector
from dpcvx.errors import Incompatible, WrongValue
from dpcvx.queries.cell_sums import Tables, all_marginals, outer_sum
from dpcvx.queries.passes import HostPasses, Passes
from dpcvx.queries.universe import LARGEST_UNIVERSE, Universe

if TYPE_CHECKING:
    from dpcvx.data.units import Units
    from dpcvx.losses import Loss
    from dpcvx.noise import Generator

__all__ = ["Counts", "Histogram", "check_units"]

SHORT_RUN = 16  # contiguous cells below which a transposed copy is faster
LISTED = 5  # attributes that a message about too many cells names


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
    passes : Passes, optional
        Where the weights are kept; by default on the host. Weights may be given as arrays of its own kind.
    """

    def __init__(
        self,
        universe: Universe,
        weights: Any = None,
        *,
        log_weights: Any = None,
        passes: Passes | None = None,
    ) -> None:
        if weights is not None and log_weights is not None:
            raise WrongValue("Give weights or log_weights, not both.")
        if not universe.listed:
            raise Incompatible(
                f"The schema has {universe.n_cells:,} cells; a histogram has at most {LARGEST_UNIVERSE:,}."
            )
        self.universe = universe
        self._passes: Passes = HostPasses(universe.shape) if passes is None else passes
        given = weights if log_weights is None else log_weights
        if not self._passes.holds(given):
            numbers = np.ones(universe.n_cells) if given is None else np.asarray(given)
            given = numbers if numbers.dtype == np.float32 else numbers.astype(np.float64, copy=False)
            given = self._passes.keep(given)
        shares = None
        if tuple(given.shape) == (universe.n_cells,):
            if log_weights is not None:
                given = self._passes.exponentials(given + 0)[2]  # + 0 copies: the argument is not overwritten
            shares = self._passes.distribution(given)
        if shares is None:
            raise WrongValue(
                f"A histogram needs {universe.n_cells} weights, one for each cell, none negative and not all "
                f"zero; got shape {tuple(given.shape)}."
            )
        self._weights = shares

    @cached_property
    def weights(self) -> NDArray[Any]:
        """Shares of all cells on the host, shape (n_cells,), read-only."""
        weights = self._passes.host(self._weights)
        weights.flags.writeable = False
        return weights

    def marginal(self, attributes: tuple[int, ...]) -> Vector:
        """Return the distribution of some attributes, one axis for each, in the order they are given in."""
        ordered = sorted(self.universe.axes(attributes))
        table = self._passes.table(self._weights, tuple(ordered))
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
        axes = tuple(sorted(self.universe.axes(attributes)))
        sizes = tuple(self.universe.shape[a] for a in attributes)
        if np.shape(log_factor) != sizes:
            raise WrongValue(f"log_factor has shape {np.shape(log_factor)}; it must be {sizes}.")
        factors = np.exp(log_factor - np.max(log_factor)).transpose(np.argsort(attributes))
        scaled = self._passes.scaled(self._weights, axes, factors)
        return Histogram(self.universe, scaled, passes=self._passes)

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
        from dpcvx.queries import cell_kernels as kernels

        shape = self.universe.shape
        others = [a for a in range(len(shape)) if a != self.universe.axes((target,))[0]]
        if target in scores or loss.joint or any(np.shape(scores[a]) != (shape[a],) for a in scores):
            raise WrongValue(
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
        y = self.universe.schema.attributes[target].scaled
        kernels.slopes_of(loss.slope)(z.reshape(-1, inner), weights, y, loss.parameter, residuals)
        sums = all_marginals(residuals.ravel(), sizes, 1)
        return {a: sums[(others.index(a),)] for a in scores}

    def sample(self, n: int, rng: Generator) -> IntVector:
        """Return n cell numbers drawn independently, shape (n,)."""
        cumulative = np.cumsum(self.weights, dtype=np.float64)
        uniform = (rng.words(n) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        cells: IntVector = np.searchsorted(cumulative, uniform * cumulative[-1], side="right")
        cells[cells == self.universe.n_cells] -= 1  # the product may round up to the total
        return cells


class Counts:
    """The records as exact integer counts of cells, for the private side.

    A pass reads each record, or each cell if there are fewer cells than records, which is a public choice.
    Where units are persons it reads each cell, whatever the number of rows, which is private.

    Counts of persons are sums of the integer weights of their rows. At most the declared number of persons
    count, the first that the table names: replacing one of them then replaces one of those. The weight that
    is missing to a whole person, for a person without rows all of it, is that of a record without a value in
    any column, so that the counts add up to a public number.

    Parameters
    ----------
    universe : Universe
    cells : IntVector
        Cell number of every record, as `Universe.encode` returns them; in a universe that is not listed the
        code of each attribute, (attributes, n).
    passes : Passes, optional
        Where the counts of cells are kept; by default on the host. The sums are the same integers anywhere.
    recognised : IntVector, optional
        Numbers of recognised cells, counted in the raw table; see `universe.count_recognised`.
    units : Units, optional
        The persons, where a person may have several records.
    bins : IntVector, optional
        Counts and offsets of bins, summed over the raw table; see `bin_means.bin_sums`.
    """

    def __init__(
        self,
        universe: Universe,
        cells: IntVector,
        passes: Passes | None = None,
        recognised: IntVector | None = None,
        units: Units | None = None,
        bins: IntVector | None = None,
    ) -> None:
        self.universe = universe
        self.recognised, self.bins = recognised, bins
        self.n = cells.shape[-1] if units is None else units.n
        self.weight = 1 if units is None else units.neighbours.weight
        self._passes: Passes = HostPasses(universe.shape) if passes is None else passes
        check_units(universe, units is not None)
        self._cells = cells if units is None and self.n < universe.n_cells else None
        self._table = None
        if units is not None:
            self._table = self._passes.keep(self._weigh(cells, unit_weights(units)))
        elif self._cells is None:
            self._table = self._passes.keep(np.bincount(cells, minlength=universe.n_cells))

    @classmethod
    def of(
        cls, universe: Universe, table: Any, passes: Passes | None = None, units: Units | None = None
    ) -> Counts:
        """Encode the records of a table."""
        encoded = universe.read(table, None if units is None else unit_weights(units))
        return cls(universe, encoded.cells, passes, encoded.recognised, units, encoded.bins)

    def _weigh(self, cells: IntVector, weights: IntVector) -> IntVector:
        """Sums of weights in every cell; float64 holds them exactly, they are below 2^53."""
        sums: IntVector = np.bincount(cells, weights, self.universe.n_cells).astype(np.int64)
        sums[self.universe.missing_cell] += self.n * self.weight - int(weights.sum())
        return sums

    def codes(self, attributes: tuple[int, ...]) -> IntVector:
        """Return the code of each record on some attributes, (attributes, n); private; not for persons."""
        if self.weight != 1:
            raise Incompatible("The rows of persons are not read one by one: how many there are is private.")
        axes = self.universe.axes(attributes)
        if self._cells is not None and self._cells.ndim == 2:
            return self._cells[list(axes)]
        shape, cells = self.universe.shape, self._cells
        if cells is None:
            table = self._passes.table(self._table, tuple(range(len(shape))))
            cells = np.repeat(np.arange(self.universe.n_cells), table.ravel())
        return np.stack([cells // math.prod(shape[a + 1 :]) % shape[a] for a in axes])

    def shares(self, attributes: tuple[int, ...]) -> Vector:
        """Return the exact share of the units in each cell of some attributes; private."""
        return self.marginal(attributes) / (self.n * self.weight)

    @cached_property
    def pairs(self) -> tuple[IntVector, IntVector]:
        """Counts of the cells of all pairs of attributes, and where each pair begins; private."""
        tables = [self.marginal(pair).ravel() for pair in combinations(range(len(self.universe.shape)), 2)]
        starts: IntVector = np.cumsum([0, *(len(table) for table in tables[:-1])])
        return np.concatenate(tables), starts

    def marginal(self, attributes: tuple[int, ...]) -> IntVector:
        """Return the exact number of units in each cell of some attributes, times their weight."""
        from dpcvx.queries import cell_kernels as kernels

        axes = self.universe.axes(attributes)
        sizes = tuple(self.universe.shape[a] for a in axes)
        if self._table is not None:
            ordered = sorted(axes)
            table = self._passes.table(self._table, tuple(ordered))
            return np.ascontiguousarray(table.transpose([ordered.index(a) for a in axes]))
        if self._cells is not None and self._cells.ndim == 2:
            counted = np.zeros(math.prod(sizes), dtype=np.int64)
            kernels.count_codes(self._cells, np.array(axes), np.array(sizes), counted)
            return counted.reshape(sizes)
        strides = np.array([math.prod(self.universe.shape[a + 1 :]) for a in axes], dtype=np.int64)
        counted = np.zeros(math.prod(sizes), dtype=np.int64)
        kernels.count(self._cells, strides, np.array(sizes, dtype=np.int64), counted)
        return counted.reshape(sizes)


def check_units(universe: Universe, persons: bool) -> None:
    """Refuse persons in a universe without a histogram, from public facts.

    A pass would read every row, and the number of rows of persons is private.
    """
    if persons and not universe.listed:
        sizes = {each.name: each.size for each in universe.schema.attributes}
        largest = sorted(sizes, key=lambda name: -sizes[name])[:LISTED]
        raise Incompatible(
            f"The schema has {_short(universe.n_cells)} cells; persons with several rows are served up to "
            f"{LARGEST_UNIVERSE:,}. Beyond, every answer would read all rows, and its time would show how "
            "many there are, which is private. Leave columns out, join levels or widen bins: the number of "
            "cells is the product of the levels and bins of all attributes. The largest are "
            f"{', '.join(f'{name} ({sizes[name]})' for name in largest)}."
        )


def _short(number: int) -> str:
    """Return a number of cells for a message: if it has many digits, a power of ten."""
    return f"{number:,}" if number < 10**12 else f"about 10^{math.log10(number):.0f}"


def unit_weights(units: Units) -> IntVector:
    """Return the weight of each record; persons beyond the declared number have none."""
    weights = units.shares
    if units.owners is not None:
        weights = np.where(units.owners < units.n, weights, 0)
    return weights
