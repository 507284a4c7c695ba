"""The private side of the engine: it holds the records and releases noised answers only."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from dpcvx.arrays import IntVector, Vector
from dpcvx.data import Arrays, Dense, GradientSum, Quantiser, Sum, fixed_point, targets
from dpcvx.errors import Incompatible, WrongType
from dpcvx.plans import Plan, execute
from dpcvx.queries.compiled import CompiledRegression
from dpcvx.queries.histogram import Counts
from dpcvx.queries.marginals import Measurement
from dpcvx.queries.mechanisms import PublicAnswer
from dpcvx.queries.sparse_vector import ComparisonRun

if TYPE_CHECKING:
    from dpcvx.mechanisms import NoisyCounts
    from dpcvx.noise import Generator

__all__ = ["CellRows", "PrivateSide", "number_of_rows"]

Answer = TypeVar("Answer")


def number_of_rows(table: Any) -> int:
    """Return how many records a table has, without reading them."""
    if isinstance(table, Mapping):
        return max((len(column) for column in table.values()), default=0)
    shape = getattr(table, "shape", None)
    return int(shape[0]) if shape else len(table)


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
        return mechanism(self._counts, self._rng)

    def count(self, mechanism: NoisyCounts) -> Vector:
        """Return noisy counts of the recognised cells of each attribute."""
        return mechanism.add_noise(self._counts.recognised, self._rng)

    def start(self, mechanism: Any) -> ComparisonRun:
        """Start a run of sparse vector."""
        run: ComparisonRun = mechanism.start(self._rng)
        return run

    def above(self, run: ComparisonRun, checked: PublicAnswer, level: float) -> bool:
        """Say whether the error of a public answer is above a level, in units of its sensitivity."""
        return run.above(checked.score(self._counts) - level, self._rng)

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

        release = execute(plan, CellRows(query, self._counts), rng=self._rng, observe=observe)
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
        from dpcvx.data import kernels

        loss, theta, bound = question.loss, question.theta, question.bound
        integers, unit = fixed_point(theta)
        rows = self._cell_rows.astype(np.int64)
        margins = integers.astype(np.int64) @ rows.T
        rho = np.empty(margins.shape, dtype=np.int32)
        function = kernels.residuals_of(loss.slope, loss.joint)
        y = np.ascontiguousarray(self._cell_targets.T)
        rest = (unit, float(loss.parameter), bound.l2, bound.linf)
        kernels.block_residuals(function, margins, y, 0, 0, len(rows), *rest, rho)
        total: IntVector = (rho.astype(np.int64) * self._times) @ rows
        return total.T.copy().reshape(np.shape(theta))
