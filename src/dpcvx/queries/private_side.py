"""The private side of the engine: it holds the records and releases noised answers only."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

import numpy as np

from dpcvx.accounting import WEIGHT, WEIGHT_BITS
from dpcvx.arrays import IntVector, Vector
from dpcvx.data import (
    Arrays,
    Dense,
    GradientSum,
    Quantiser,
    ResidualBound,
    Sum,
    fixed_point,
    integer_bounds,
    targets,
)
from dpcvx.errors import Incompatible, WrongType
from dpcvx.plans import Plan, execute
from dpcvx.queries.compiled import CompiledRegression
from dpcvx.queries.histogram import Counts
from dpcvx.queries.marginals import Measurement
from dpcvx.queries.mechanisms import PublicAnswer
from dpcvx.queries.sparse_vector import ComparisonRun
from dpcvx.queries.wide_regression import WideRegression

if TYPE_CHECKING:
    from dpcvx.losses import Loss
    from dpcvx.mechanisms import NoisyCounts
    from dpcvx.noise import Generator
    from dpcvx.problem import Bounds
    from dpcvx.queries.bin_means import NoisyBinSums

__all__ = ["CellRows", "PersonCells", "PrivateSide"]

Answer = TypeVar("Answer")


class PrivateSide:
    """Holds the records and the generator; every method releases a noised answer or one bit of a paid run.

    `counts`: the records; `rng`: where noise comes from.
    """

    def __init__(self, counts: Counts, rng: Generator) -> None:
        self._records, self._rng, self._process = counts, rng, os.getpid()

    @property
    def _counts(self) -> Counts:
        """The records, in the process that paid: a forked one would use the same run and plan once more."""
        if os.getpid() != self._process:
            raise Incompatible(
                "This engine was started in another process, which alone may ask the records: start one "
                "engine and send the queries there, for instance with dpcvx serve."
            )
        return self._records

    def ask(self, mechanism: Any) -> Any:
        """Return the answer of a mechanism on counts."""
        self._require_unit(mechanism)
        return mechanism(self._counts, self._rng)

    def count(self, mechanism: NoisyCounts) -> Vector:
        """Return noisy counts of the recognised cells of each attribute."""
        self._require_unit(mechanism)
        if self._counts.recognised is None:
            raise Incompatible("Recognised cells are counted in the raw table, which these counts have not.")
        return mechanism.add_noise(self._counts.recognised, self._rng)

    def sum_bins(self, mechanism: NoisyBinSums) -> Vector:
        """Return noisy counts and offsets of the bins of numbers."""
        self._require_unit(mechanism)
        if self._counts.bins is None:
            raise Incompatible(
                "Offsets inside bins are summed in the raw table, which these counts have not."
            )
        return mechanism.add_noise(self._counts.bins, self._rng)

    def start(self, mechanism: Any) -> ComparisonRun:
        """Start a run of sparse vector."""
        self._require_unit(mechanism)
        run: ComparisonRun = mechanism.start(self._rng)
        return run

    def _require_unit(self, mechanism: Any) -> None:
        """Refuse noise that was made for another unit."""
        if mechanism.neighbours.weight != self._counts.weight:
            raise Incompatible(
                f"{type(mechanism).__name__} is made for another unit, row or person, than the records have."
            )

    def above(self, run: ComparisonRun, checked: PublicAnswer, level: float) -> bool:
        """Say whether the error of a public answer is above a level, in units of its sensitivity."""
        return run.above(checked.score(self._counts) - level, self._rng)

    def wide_minimiser(self, plan: Plan, query: WideRegression) -> Vector:
        """Return a private minimiser of a regression on very many cells; paid for as in `minimiser`."""
        bounds = query.problem.bounds
        X, y = query.rows(self._counts.codes(query.attributes))
        rows = Arrays(Quantiser(bounds).quantise(X), targets(y, bounds.y), bounds=bounds)
        return execute(plan, rows, rng=self._rng).theta

    def minimiser(self, plan: Plan, query: CompiledRegression) -> tuple[Vector, tuple[Measurement, ...]]:
        """Return a private minimiser by any solver, and its noisy gradients as measurements.

        The plan is executed like any other, but not charged: the engine paid for all of its measurements at
        its start, so that a restart never pays twice.
        """
        gradients: list[Measurement] = []

        def observe(mechanism: Any, public: tuple[Any, ...], answer: Any) -> None:
            if mechanism.traits.question == "gradient":
                (theta,) = public
                functions = query.gradients(theta, mechanism.clip)
                mean = answer - plan.problem.l2 * theta
                gradients.append(Measurement(query.attributes, (functions,), mean, mechanism.noise))

        rows = CellRows if self._counts.weight == 1 else PersonCells
        release = execute(plan, rows(query, self._counts), rng=self._rng, observe=observe)
        return release.theta, tuple(gradients)


class CellRows(Arrays):
    """The records of one query: a cell's row as often as there are records in it.

    Sums of gradients are taken cell by cell, count times what one record gives: the same integers as row by
    row, and one record still moves one count. Samples are drawn row by row.
    """

    def __init__(self, query: CompiledRegression, counts: Counts) -> None:
        bounds = query.problem.bounds
        cells = Quantiser(bounds).quantise(query.X)
        if not isinstance(cells, Dense):
            raise WrongType("The rows of cells must be dense.")
        self._times = counts.marginal(query.attributes).ravel()
        self._cell_rows, self._cell_targets = cells.values, targets(query.y, bounds.y)
        super().__init__(
            Dense(np.repeat(cells.values, self._times, axis=0)),
            np.repeat(self._cell_targets, self._times, axis=0),
            bounds=bounds,
        )

    def sum(self, question: Sum[Answer]) -> Answer:
        """Return an exact sum over all records: of gradients cell by cell, others row by row."""
        if isinstance(question, GradientSum):
            return cast(Answer, self._gradients(question))
        return super().sum(question)

    def _gradients(self, question: GradientSum) -> IntVector:
        rows = self._cell_rows.astype(np.int64)
        total: IntVector = (_residuals(question, rows, self._cell_targets) * self._times) @ rows
        return total.T.copy().reshape(np.shape(question.theta))


class PersonCells:
    """The persons of one query: weights in cells, for sums of gradients.

    Question: S = floor(2^-14 sum_x W(x) rho(x) k(x)), W(x) the integer weights of all persons in cell x, rho
    and k the residual and the row of the cell; in units of 2^-34, as sums over rows are. The work is a
    function of the cells alone.
    Sensitivity (l2, replace-one-person): a person's part of the sum is in 2^14 K, K the ball of radius
    R' sqrt(K2) with |rho| <= R' = R - 1; rounding moves each of d entries by less than 1. So
    ||S - S'|| <= 2 (R - 1) sqrt(K2) + sqrt(d) <= 2 R sqrt(K2), since d <= 4 K2 (PRIVACY_MATH §11b, §16).

    `query`: whose attributes are read; `counts`: of persons.
    """

    def __init__(self, query: CompiledRegression, counts: Counts) -> None:
        bounds = query.problem.bounds
        cells = Quantiser(bounds).quantise(query.X)
        if not isinstance(cells, Dense):
            raise WrongType("The rows of cells must be dense.")
        self.n, self.d, self.weight = counts.n, query.problem.d, counts.weight
        self._bounds, self._rows = bounds, cells.values.astype(np.int64)
        self._targets = targets(query.y, bounds.y)
        self._weights = counts.marginal(query.attributes).ravel()
        if self._rows.any() and self.d > 4 * integer_bounds(bounds, self.d)[1]:
            raise Incompatible("The features of this query are too small to be summed exactly.")

    def within(self, bounds: Bounds) -> PersonCells:
        """Return these cells, which were quantised within the bounds of their query."""
        if bounds != self._bounds:
            raise Incompatible("The plan has other bounds than the cells of its query.")
        return self

    def sum(self, question: Sum[Answer]) -> Answer:
        """Return the exact sum of gradients over all persons."""
        if not isinstance(question, GradientSum):
            raise _gradients_only()
        bound = question.bound
        less = ResidualBound(max(0, bound.l2 - 1), max(0, bound.linf - 1))
        rho = _residuals(replace(question, bound=less), self._rows, self._targets)
        whole, rest = self._weights >> WEIGHT_BITS, self._weights & (WEIGHT - 1)
        # rest * rho = 2^20 high + low: each of the products below has room in 62 bits.
        high, low = np.divmod(rest * rho, 2**20)
        total = (whole * rho) @ self._rows
        total += (high @ self._rows << (20 - WEIGHT_BITS)) + (low @ self._rows >> WEIGHT_BITS)
        return cast(Answer, total.T.copy().reshape(np.shape(question.theta)))

    def objective(self, loss: Loss, outputs: int, z_max: float) -> NoReturn:
        """Refuse: a minimiser beside the records is not offered for persons."""
        raise _gradients_only()

    def follow(self, loss: Loss, outputs: int) -> NoReturn:
        """Refuse: scores of vertices are not offered for persons."""
        raise _gradients_only()


def _gradients_only() -> Incompatible:
    return Incompatible(
        "Queries about persons are measured by gradients alone: use NoisyGradientDescent or "
        "NoisyMirrorDescent as the oracle, or none."
    )


def _residuals(question: GradientSum, rows: IntVector, y: Vector) -> IntVector:
    """Clipped integer residuals of every cell at the point of a question, shape (K, cells)."""
    from dpcvx.data import kernels

    loss, bound = question.loss, question.bound
    integers, unit = fixed_point(question.theta)
    margins = integers.astype(np.int64) @ rows.T
    rho = np.empty(margins.shape, dtype=np.int32)
    function = kernels.residuals_of(loss.slope, loss.joint, loss.offset)
    rest = (unit, float(loss.parameter), bound.l2, bound.linf)
    kernels.block_residuals(function, margins, np.ascontiguousarray(y.T), 0, 0, len(rows), *rest, rho)
    return rho.astype(np.int64)
