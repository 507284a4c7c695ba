"""Dask collections as a data set that estimators can fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from dpcvx.accounting import REPLACE_ONE
from dpcvx.arrays import IntVector
from dpcvx.data.cells import native_array
from dpcvx.data.cluster.partitions import Partitions, compute_all, keep_rows, number_persons, open_partitions
from dpcvx.data.cluster.source import Distributed, distribute
from dpcvx.data.cluster.worker_side import Failure, Part, PartitionSplit, guard
from dpcvx.data.cluster.workers import Workers, connect
from dpcvx.data.declarations import Declarations
from dpcvx.data.quantise import Quantiser
from dpcvx.data.recognised import RecognisedCells
from dpcvx.data.units import PersonColumnRule, person_column
from dpcvx.errors import ClusterFailed, Incompatible, WrongValue

if TYPE_CHECKING:
    from dpcvx.data.bins import CellsInBins
    from dpcvx.data.columns import Columns
    from dpcvx.data.public_rows import RowCount
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
    person: str | None = None,
    persons: int | None = None,
    max_rows: int | None = None,
    client: Any = None,
) -> DaskDataset:
    """Open Dask collections for a fit on their cluster.

    Every worker clips and quantises its partitions and keeps the integers; from then on only exact sums
    travel. Plan, charge and noise stay in this process. Where Dask does not know how many rows a partition
    has, the workers count them: their number is public.

    Parameters
    ----------
    X : dask.array.Array, shape (n, d), or dask.dataframe.DataFrame
        One row per person, unless ``person`` is given. The graph must give the same rows each time it is
        computed.
    y : dask.array.Array or dask.dataframe.Series, optional
        Targets, in the same order.
    target : str or list of str, optional
        Column(s) of X that hold the targets, in place of y.
    bounds, classes, y_bounds, categories, data_norm, schema : optional
        The estimator's parameters of these names, where they are declared with the data: an estimator that
        declares one of them again is refused.
    person : str, optional
        Column of a data frame with the id of each row's person. All rows of a person, in whatever partitions,
        are protected together, and the number of rows is private. The ids travel to this process, which
        counts the rows of each person.
    persons, max_rows : int, optional
        As for an estimator. With ``max_rows`` hashes of rows travel to this process too, which chooses among
        all rows of a person; workers compute their partitions once more.
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
    people = person_column(person, persons, max_rows)
    connection = connect(client)
    Workers(connection).wait_for_any()
    names = target if target is None or isinstance(target, str) else list(target)
    declared = Declarations(bounds, categories, data_norm, classes, y_bounds, schema)
    if names is None and y is None and schema is not None:
        names = schema.target
    partitions = open_partitions(X, y, names, connection, person)
    return DaskDataset(partitions, connection, declared.by_name(), people)


def open_dask(
    X: Any, y: Any, schema: TableSchema | None = None, people: PersonColumnRule | None = None
) -> DaskDataset:
    """Open the collections that an estimator with ``backend="dask"`` is given; see `from_dask`.

    `people`: the column of persons, where the estimator names one.
    """
    if people is None:
        return from_dask(X, y, schema=schema)
    rule = people.rule
    return from_dask(X, y, schema=schema, person=people.column, persons=rule.declared, max_rows=rule.max_rows)


class DaskDataset:
    """Partitions of Dask collections, with their public facts.

    Parameters
    ----------
    partitions : Partitions
    client : distributed.Client
    declarations : dict
        Parameters of an estimator that were declared with the data.
    people : PersonColumnRule, optional
        The column of persons.
    """

    def __init__(
        self,
        partitions: Partitions,
        client: Any,
        declarations: Mapping[str, Any],
        people: PersonColumnRule | None = None,
    ) -> None:
        from dpcvx.data.table import Table, open_declared

        self.n, self.neighbours, self.facts = partitions.n, REPLACE_ONE, {}
        if people is not None:
            partitions, found = number_persons(partitions, client)
            self.n, self.neighbours = people.rule.units(found), people.rule.neighbours
            self.facts = people.rule.facts
        self._partitions, self._client = partitions, client
        self._units = None if people is None else self.n
        self._max_rows = None if people is None else people.rule.max_rows
        self.declarations = declarations
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
        """Whether histograms can be counted; not of persons: partitions would add their missing weight."""
        return self._units is None

    @property
    def countable(self) -> bool:
        """The graph gives the raw cells again."""
        return True

    def count(self, question: RecognisedCells | CellsInBins | RowCount) -> IntVector:
        """Return the exact counts of recognised cells: each worker counts in its partitions."""
        from dask import delayed

        parts = self._partitions
        tasks = [
            delayed(partial(_counts, question, self._kind, split), pure=False)(*raw)
            for split, raw in zip(parts.splits, parts.raw, strict=True)
        ]
        found = compute_all(tasks, self._client)
        for counts in found:
            if isinstance(counts, Failure):
                raise ClusterFailed(f"The cells of a partition could not be counted ({counts.words}).")
        total: IntVector = sum(found[1:], found[0])
        return total

    def source(self, columns: Columns, quantiser: Quantiser, target: Target, layout: str) -> Distributed:
        """Clip and quantise every record, on the workers."""
        prepare, partitions = _Prepare(columns, quantiser, target, self._kind), self._partitions
        if self._max_rows is not None:
            partitions = keep_rows(partitions, prepare, self._max_rows, self._client)
        return distribute(
            partitions,
            prepare,
            bounds=quantiser.bounds,
            layout=layout,
            client=self._client,
            units=self._units,
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

    def targets(self, y: Any) -> Any:
        """Return raw targets of a partition."""
        return y if self.schema is None else self.schema.read_target(y)


@dataclass(frozen=True, eq=False)
class _Prepare:
    """Stored rows and targets of a raw partition."""

    columns: Columns
    quantiser: Quantiser
    target: Target
    kind: _Kind

    def __call__(self, X: Any, y: Any) -> Part:
        return Part(
            self.columns.rows(self.kind.open(X), self.quantiser), self.target.encode(self.kind.targets(y))
        )


def _counts(
    question: RecognisedCells | CellsInBins | RowCount,
    kind: _Kind,
    split: PartitionSplit,
    X: Any,
    y: Any = None,
) -> IntVector | Failure:
    """Exact counts in one partition."""

    def read() -> IntVector:
        raw, labels, ids = split(X, y)
        return question.of(
            kind.open(raw), kind.targets(labels), None if split.people is None else split.people.weigh(ids)
        )

    counts: IntVector | Failure = guard(read)
    return counts


def _labels(target: Any, part: Any) -> list[Any] | Failure:
    def read() -> list[Any]:
        from dpcvx.data.target import distinct_labels

        return distinct_labels(native_array(part if target is None else part[target]))

    labels: list[Any] | Failure = guard(read)
    return labels
