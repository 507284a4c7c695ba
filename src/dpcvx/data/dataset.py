"""Where records are kept and summed: data sets that a fit may open, and the names that ``backend`` takes.

The plan, the charge and the noise are in this process whatever is behind a data set, and the integer sums are
the same behind each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from dpcvx.accounting import REPLACE_ONE
from dpcvx.data.cells import native_array
from dpcvx.data.declarations import check_schema
from dpcvx.data.units import persons, take_column
from dpcvx.errors import Incompatible, WrongValue

if TYPE_CHECKING:
    from dpcvx.accounting import Neighbours
    from dpcvx.arrays import IntVector
    from dpcvx.data.bins import CellsInBins
    from dpcvx.data.columns import Columns
    from dpcvx.data.exposure import Exposure
    from dpcvx.data.public_rows import RowCount
    from dpcvx.data.quantise import Quantiser
    from dpcvx.data.recognised import RecognisedCells
    from dpcvx.data.source import DataSource
    from dpcvx.data.table import Table
    from dpcvx.data.table_schema import TableSchema
    from dpcvx.data.target import Target
    from dpcvx.data.units import PersonColumnRule, Units

__all__ = ["BACKENDS", "Dataset", "DeclaredRows", "InMemory", "closing", "open_dataset"]

# Name of a backend: the function (X, y, schema, people) -> Dataset that opens what the user gave, imported
# when it is used.
BACKENDS = {
    "auto": "dpcvx.data.dataset:InMemory",
    "dask": "dpcvx.data.cluster:open_dask",
    "torch": "dpcvx.data.gpu_dataset:for_gpu",
}


@runtime_checkable
class Dataset(Protocol):
    """Records that a fit can open, with their public facts."""

    @property
    def n(self) -> int:
        """Number of records, which is public."""
        ...

    @property
    def declarations(self) -> Mapping[str, Any]:
        """Parameters of the estimator that were declared with the data: bounds, categories, classes, ..."""
        ...

    @property
    def table(self) -> Table:
        """The columns. Its rows may be made up: a fit reads none of them."""
        ...

    @property
    def target(self) -> Any:
        """As many targets as the table has rows; they may be made up too."""
        ...

    def labels(self) -> Any:
        """Return the labels that occur, some perhaps more than once.

        It is asked only where the user states that their set is public.
        """
        ...

    @property
    def countable(self) -> bool:
        """Whether `count` can answer: not where records were quantised without counts of their cells."""
        ...

    def count(self, question: RecognisedCells | CellsInBins | RowCount) -> IntVector:
        """Return the exact counts of recognised cells, or of cells in bins, over all records.

        Mechanisms ask. Records that are stored quantised can answer the first alone.
        """
        ...

    def source(self, columns: Columns, quantiser: Quantiser, target: Target, layout: str) -> DataSource:
        """Return the data source of all records, clipped and quantised.

        Parameters
        ----------
        columns : Columns
            From raw columns to features.
        quantiser : Quantiser
        target : Labels or Numbers
            Encodes raw targets; it can be pickled.
        layout : {"rows", "columns"}
            Storage order that serves the plan best.
        """
        ...


class InMemory:
    """Arrays and tables in this process.

    `X`: array-like, SciPy sparse matrix, or pandas / polars / Arrow table, shape (n, d); `y`: array-like,
    shape (n,) or (n, K); None where the schema names the target; `schema`: declares the table's columns;
    `people`: names the column of persons.
    """

    table: Table
    target: Any
    n: int
    neighbours: Neighbours

    def __init__(
        self, X: Any, y: Any, schema: TableSchema | None = None, people: PersonColumnRule | None = None
    ) -> None:
        from dpcvx.data.table import Table, open_declared

        ids = None
        if people is not None:
            X, ids = take_column(X, people.column)
        self.table, self.target = Table(X) if schema is None else open_declared(X, schema), y
        if y is None and schema is not None and schema.target is not None:
            self.target = self.table.raw(schema.target)
        if self.table.schema is not None:
            self.target = self.table.schema.read_target(self.target)
        self.n = self.table.n
        self.declarations: Mapping[str, Any] = {}
        self.has_raw_cells = True
        self.units: Units | None = None
        self.exposure: Exposure | None = None
        self.neighbours = REPLACE_ONE
        if people is not None:
            self.weigh_by(persons(ids, declared=people.rule.declared, max_rows=people.rule.max_rows))

    def weigh_by(self, units: Units) -> None:
        """Weight rows by their units, such as persons."""
        targets = self.table.n if self.target is None else len(native_array(self.target, ndim=2))
        # The number of rows is private where persons have several, so the message does not name it.
        if not units.count == self.table.n == targets:
            raise WrongValue("X, y and groups or sample_weight must have the same number of rows.")
        self.units, self.n, self.neighbours = units, units.n, units.neighbours

    @property
    def countable(self) -> bool:
        """True: raw cells are available."""
        return True

    def labels(self) -> Any:
        """Return every label."""
        return self.target

    def count(self, question: RecognisedCells | CellsInBins | RowCount) -> IntVector:
        """Return the exact counts of recognised cells, or of cells in bins; rows have their weights."""
        weights = None if self.units is None else self.units.shares
        return question.of(self.table, self.target, weights)

    def source(self, columns: Columns, quantiser: Quantiser, target: Target, layout: str) -> DataSource:
        """Return the data source of all records, clipped and quantised."""
        from dpcvx.data.memory import Arrays

        rows, y = columns.rows(self.table, quantiser), target.encode(self.target)
        offsets = None
        if self.exposure is not None:
            offsets, y = self.exposure.offsets, np.where(self.exposure.known[:, None], y, np.nan)
        if self.units is None:
            return Arrays(rows, y, bounds=quantiser.bounds, layout=layout, offsets=offsets)
        weights = self.units.weigh(rows, y)
        return Arrays(
            rows,
            y,
            bounds=quantiser.bounds,
            layout=layout,
            weights=weights,
            units=self.n,
            owners=self.units.owners,
            offsets=offsets,
        )


@dataclass(frozen=True, eq=False)
class DeclaredRows:
    """Rows with what is declared of their columns, on their way to the private estimator of a pipeline."""

    rows: Any  # private
    declarations: Mapping[str, Any]  # parameters of the estimator: bounds, categories, schema, maps

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise Incompatible(
            "A PrivatePreprocessor without epsilon must be directly before a private estimator of dpcvx, "
            "which fits both. Give it an epsilon of its own to use it before other steps."
        )


def open_dataset(
    X: Any, y: Any, backend: str, schema: TableSchema | None = None, people: PersonColumnRule | None = None
) -> Dataset:
    """Return the data set given to a fit; a backend opens arrays and tables.

    `backend`: a name of `BACKENDS`; `schema`: the estimator's; `people`: the column of persons, where the
    estimator names one.
    """
    check_schema(schema)
    if not isinstance(backend, str) or backend not in BACKENDS:
        known = ", ".join(map(repr, BACKENDS))
        raise Incompatible(f"backend must be one of {known}, got {backend!r}.")
    if isinstance(X, DeclaredRows):
        if backend != "auto" or schema is not None:
            raise Incompatible(
                "The columns are declared by the PrivatePreprocessor before this estimator: leave schema and "
                "backend out here."
            )
        found = InMemory(X.rows, y, X.declarations.get("schema"), people)
        found.declarations = X.declarations
        return found
    if isinstance(X, Dataset):
        if y is not None:
            raise Incompatible(f"{type(X).__name__} has its own target: leave y out.")
        if schema is not None:
            raise Incompatible(
                f"{type(X).__name__} has its own declarations: give the schema to the function that opens "
                "the data, and leave it out here."
            )
        if people is not None:
            raise Incompatible(
                f"Persons are declared with the records of {type(X).__name__}: give person, persons and "
                "max_rows to the function that opens the data, such as from_parquet, and leave them out here."
            )
        if backend != "torch":
            return X
    module, name = BACKENDS[backend].split(":")
    dataset: Dataset = getattr(import_module(module), name)(X, y, schema, people)
    return dataset


@contextmanager
def closing(source: DataSource) -> Iterator[DataSource]:
    """Let a source go after use, where it holds something elsewhere."""
    try:
        yield source
    finally:
        close = getattr(source, "close", None)
        if close is not None:
            close()
