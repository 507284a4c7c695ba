"""Dask collections as a data set that estimators can fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from dpcvx.arrays import IntVector
from dpcvx.data.cells import native_array
from dpcvx.data.cluster.partitions import Partitions, compute_all, open_partitions
from dpcvx.data.cluster.source import Distributed, distribute
from dpcvx.data.cluster.worker_side import Failure, Part, guard
from dpcvx.data.cluster.workers import Workers, connect
from dpcvx.data.declarations import Declarations
from dpcvx.data.quantise import Quantiser
from dpcvx.data.recognised import RecognisedCells
from dpcvx.errors import ClusterFailed, Incompatible, WrongValue

if TYPE_CHECKING:
    from dpcvx.data.bins import CellsInBins
    from dpcvx.data.columns import Columns
    from dpcvx.data.table import Table
    from dpcvx.data.table_schema import TableSchema
    from dpcvx.data.target import Target

__all__ = ["DaskDataset", "from_dask"]


def from_dask(
    X: Any,
    y: Any = None,
    *,
    target: str | Sequence[str] | None = None,
    bounds: Any = None,
    classes: Sequence[Any] | str | None = None,
    y_bounds: Any = None,
    categories: Mapping[Any, Sequence[Any]] | None = None,
    data_norm: float | None = None,
    schema: TableSchema | None = None,
    client: Any = None,
) -> DaskDataset:
    """Open Dask collections for a fit on their cluster.

    Every worker clips and quantises its partitions and keeps the integers; from then on only exact sums
    travel. Plan, charge and noise stay in this process. Where Dask does not know how many rows a partition
    has, the workers count them: their number is public.

    Parameters
    ----------
    X : dask.array.Array, shape (n, d), or dask.dataframe.DataFrame
        One row per person. The graph must give the same rows each time it is computed.
    y : dask.array.Array or dask.dataframe.Series, optional
        Targets, in the same order.
    target : str or list of str, optional
        Column(s) of X that hold the targets, in place of y.
    bounds, classes, y_bounds, categories, data_norm, schema : optional
        The estimator's parameters of these names, where they are declared with the data: an estimator that
        declares one of them again is refused.
    client : distributed.Client or str, optional
        Client of the cluster, or its scheduler's address; by default the client that this process uses.

    Returns
    -------
    DaskDataset
        To be given to ``fit``.
    """
    if classes is not None and y_bounds is not None:
        raise WrongValue(
            "classes and y_bounds are both given: declare classes for classifiers or y_bounds for regressors."
        )
    connection = connect(client)
    Workers(connection).wait_for_any()
    names = target if target is None or isinstance(target, str) else list(target)
    declared = Declarations(bounds, categories, data_norm, classes, y_bounds, schema)
    if names is None and y is None and schema is not None:
        names = schema.target
    return DaskDataset(open_partitions(X, y, names, connection), connection, declared.by_name())


class DaskDataset:
    """Partitions of Dask collections, with their public facts.

    Parameters
    ----------
    partitions : Partitions
    client : distributed.Client
    declarations : dict
        Parameters of an estimator that were declared with the data.
    """

    def __init__(self, partitions: Partitions, client: Any, declarations: Mapping[str, Any]) -> None:
        from dpcvx.data.table import Table, open_declared

        self._partitions, self._client = partitions, client
        self.n, self.declarations = partitions.n, declarations
        raw, schema = Table(partitions.header), declarations.get("schema")
        self.table: Table = raw if schema is None else open_declared(partitions.header, schema)
        self.target = partitions.target_header
        self._kind = _Kind(raw.names, raw.d, raw.sparse, self.table.schema)

    def labels(self) -> list[Any]:
        """Return the labels that occur in each partition; the user states that their set is public."""
        from dask import delayed

        parts, name = self._partitions, self._partitions.target
        find = delayed(partial(_labels, name), pure=False)
        found = compute_all([find(part) for part in parts.targets or parts.records], self._client)
        for labels in found:
            if isinstance(labels, Failure):
                raise ClusterFailed(f"The labels of a partition could not be read ({labels.words}).")
        return list(dict.fromkeys(label for labels in found for label in labels))

    @property
    def has_raw_cells(self) -> bool:
        """The graph gives them again."""
        return True

    @property
    def countable(self) -> bool:
        """The graph gives the raw cells again."""
        return True

    def count(self, question: RecognisedCells | CellsInBins) -> IntVector:
        """Return the exact counts of recognised cells: each worker counts in its partitions."""
        from dask import delayed

        parts = self._partitions
        task = delayed(partial(_counts, question, self._kind, parts.target), pure=False)
        targets = parts.targets or [None] * len(parts.records)
        tasks = [task(X, y) for X, y in zip(parts.records, targets, strict=True)]
        found = compute_all(tasks, self._client)
        for counts in found:
            if isinstance(counts, Failure):
                raise ClusterFailed(f"The cells of a partition could not be counted ({counts.words}).")
        total: IntVector = sum(found[1:], found[0])
        return total

    def source(self, columns: Columns, quantiser: Quantiser, target: Target, layout: str) -> Distributed:
        """Clip and quantise every record, on the workers."""
        prepare = _Prepare(columns, quantiser, target, self._kind)
        return distribute(
            self._partitions, prepare, bounds=quantiser.bounds, layout=layout, client=self._client
        )


@dataclass(frozen=True)
class _Kind:
    """Declared columns of a collection, which every partition must have."""

    names: tuple[Any, ...] | None
    d: int
    sparse: bool
    schema: TableSchema | None

    def open(self, X: Any) -> Table:
        """Return a raw partition as a table."""
        from dpcvx.data.table import Table

        table = Table(X)
        if (table.names, table.d, table.sparse) != (self.names, self.d, self.sparse):
            raise Incompatible(
                "a partition has other columns, or another kind of rows, than its collection declares: "
                "give Dask the right meta"
            )
        return table if self.schema is None else Table(X, self.schema)


@dataclass(frozen=True, eq=False)
class _Prepare:
    """Stored rows and targets of a raw partition."""

    columns: Columns
    quantiser: Quantiser
    target: Target
    kind: _Kind

    def __call__(self, X: Any, y: Any) -> Part:
        return self.columns.rows(self.kind.open(X), self.quantiser), self.target.encode(y)


def _counts(
    question: RecognisedCells | CellsInBins, kind: _Kind, target: Any, X: Any, y: Any
) -> IntVector | Failure:
    """Exact counts in one partition."""

    def read() -> IntVector:
        raw, labels = (X, y) if target is None else (X.drop(columns=target), X[target])
        return question.of(kind.open(raw), labels)

    counts: IntVector | Failure = guard(read)
    return counts


def _labels(target: Any, part: Any) -> list[Any] | Failure:
    def read() -> list[Any]:
        from dpcvx.data.target import distinct_labels

        return distinct_labels(native_array(part if target is None else part[target]))

    labels: list[Any] | Failure = guard(read)
    return labels
