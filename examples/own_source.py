"""A data source of your own: Arrow record batches that are read again for every sum, never held together."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

import dpcvx as dp
from dpcvx.data import Quantiser, Records, Sum, targets
from dpcvx.solvers import NoisyGradientDescent


class ArrowStream:
    """Records in scaled units that are read batch by batch, as often as they are queried.

    Parameters
    ----------
    batches : callable
        Returns a fresh iterator over Arrow record batches, the target in column "y".
    bounds : Bounds
        Public bounds of one record, enforced on every row.
    """

    def __init__(self, batches: Callable[[], Iterator[pa.RecordBatch]], bounds: dp.Bounds) -> None:
        self._batches, self._bounds = batches, bounds
        lengths = [len(batch) for batch in batches()]
        self.n, self.d = sum(lengths), next(batches()).num_columns - 1
        self._ends = [0, *np.cumsum(lengths).tolist()]

    def within(self, bounds: dp.Bounds) -> "ArrowStream":
        """Return the same records with every row inside other bounds."""
        return ArrowStream(self._batches, bounds)

    def sum(self, question: Sum[Any]) -> Any:
        """Return an exact sum: compute it for each batch, and add the parts."""
        places = zip(self._batches(), pairwise(self._ends), strict=True)  # as many batches as were counted
        parts = (question.among(*place).of(self._stored(batch)) for batch, place in places)
        return question.add(parts, self.n)

    def _stored(self, batch: pa.RecordBatch) -> Records:
        table = pa.Table.from_batches([batch])
        rows = Quantiser(self._bounds).quantise(table.drop_columns("y"))  # clipped, rounded to integers
        return Records(rows, np.ascontiguousarray(targets(table["y"].to_numpy(), self._bounds.y).T))


def people() -> Iterator[pa.RecordBatch]:
    """Twenty batches of synthetic people; a file or a database cursor would do as well."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        X = rng.uniform(-1, 1, (1_000, 3))
        y = np.where(X @ [2.0, -1.0, 0.0] + rng.logistic(size=1_000) > 0, 1.0, -1.0)
        yield pa.RecordBatch.from_arrays([pa.array(column) for column in (*X.T, y)], names=[*"abc", "y"])


problem = dp.Problem(dp.Logistic(), dp.L2Ball(10.0), bounds=dp.Bounds(x_inf=1.0), d=3)
source = ArrowStream(people, problem.bounds)
plan = dp.plan(problem, source.n, dp.Budget(epsilon=1.0, delta=1e-8), (NoisyGradientDescent(),))
print(f"{source.n} records, coefficients {dp.execute(plan, source).theta.round(1)}")
