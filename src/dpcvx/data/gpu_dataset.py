"""Data sets that a fit puts on a GPU where there is one; torch is imported when records are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from dpcvx.data.dataset import Dataset, InMemory
from dpcvx.errors import Incompatible

if TYPE_CHECKING:
    import torch

    from dpcvx.arrays import IntVector
    from dpcvx.data.bins import CellsInBins
    from dpcvx.data.columns import Columns
    from dpcvx.data.memory import Arrays
    from dpcvx.data.public_rows import RowCount
    from dpcvx.data.quantise import Quantiser
    from dpcvx.data.recognised import RecognisedCells
    from dpcvx.data.shards.dataset import Shards
    from dpcvx.data.source import DataSource
    from dpcvx.data.table import Table
    from dpcvx.data.table_schema import TableSchema
    from dpcvx.data.target import Target
    from dpcvx.data.units import PersonColumnRule

__all__ = ["ForDevice", "ShardsForDevice", "for_gpu"]


def for_gpu(
    X: Any, y: Any, schema: TableSchema | None = None, people: PersonColumnRule | None = None
) -> Dataset:
    """Return a data set that a fit puts on the GPU, or with a warning one in memory where there is none.

    `X`: array-like, SciPy sparse matrix, or pandas / polars / Arrow table, shape (n, d); or shards; `y`:
    array-like, shape (n,) or (n, K); None with shards; `schema`: declaration of a table's columns; `people`:
    the column of persons.
    """
    from dpcvx.gpu import find_device

    device = find_device()
    if device is None:
        return X if isinstance(X, Dataset) else InMemory(X, y, schema, people)
    from dpcvx.data.shards.dataset import Shards

    if isinstance(X, Shards):
        return ShardsForDevice(X, device)
    if isinstance(X, Dataset):
        raise Incompatible(
            f'backend="torch" takes arrays, tables and shards, and {type(X).__name__} keeps its records '
            'elsewhere: use backend="auto".'
        )
    return ForDevice(X, y, device, schema, people)


class ForDevice(InMemory):
    """Arrays and tables in this process, whose quantised records are put on a device.

    `X`, `y`, `schema`, `people`: as for `InMemory`.
    """

    def __init__(
        self,
        X: Any,
        y: Any,
        device: torch.device,
        schema: TableSchema | None = None,
        people: PersonColumnRule | None = None,
    ) -> None:
        super().__init__(X, y, schema, people)
        self._device = device

    def source(self, columns: Columns, quantiser: Quantiser, target: Target, layout: str) -> DataSource:
        """Clip and quantise every record, and put it on the device if that has room."""
        host = super().source(columns, quantiser, target, layout if self.table.sparse else "rows")
        from dpcvx.data.on_gpu import put

        return put(cast("Arrays", host), self._device, layout)


class ShardsForDevice:
    """Records on disk, to be put on a device."""

    def __init__(self, shards: Shards, device: torch.device) -> None:
        self._shards, self._device = shards, device
        self.n, self.target, self.declarations = shards.n, shards.target, shards.declarations
        self.countable, self.facts, self.neighbours = shards.countable, shards.facts, shards.neighbours
        self.encoding, self.marks_missing = shards.encoding, shards.marks_missing

    @property
    def table(self) -> Table:
        """One made-up record with the right columns; the files are seen to be there still."""
        return self._shards.table

    def labels(self) -> Any:
        """Return the labels that occur."""
        return self._shards.labels()

    def count(self, question: RecognisedCells | CellsInBins | RowCount) -> IntVector:
        """Return the exact counts of recognised cells, stored with the shards."""
        return self._shards.count(question)

    def source(self, columns: Columns, quantiser: Quantiser, target: Target, layout: str) -> DataSource:
        """Return the quantised records, on the device if it has room."""
        from dpcvx.data.on_gpu import put

        return put(self._shards.source(columns, quantiser, target, layout), self._device, layout)
