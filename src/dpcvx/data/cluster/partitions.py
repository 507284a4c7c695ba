"""Dask collections as partitions of rows, with their public facts: columns, types and numbers of rows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from dpcvx.data.cluster.worker_side import (
    Failure,
    PartitionSplit,
    PersonsOfPart,
    Prepare,
    count_ids,
    rank_part,
)
from dpcvx.data.units import Persons, choose_rows
from dpcvx.errors import ClusterFailed, Incompatible, WrongValue
from dpcvx.words import quantity

__all__ = ["Partitions", "open_partitions"]


@dataclass(frozen=True, eq=False)
class Partitions:
    """Partitions of rows, none of them empty."""

    # records, targets: raw rows and targets of each partition; targets are empty where a
    # column of the rows holds them
    records: list[Any]
    targets: list[Any]
    # rows of each. Their sum is public, as n is under replace-one; the graph decides where they are cut.
    lengths: tuple[int, ...]
    header: Any  # header, target_header: made-up rows of the same columns and types, and their targets
    target_header: Any
    splits: tuple[PartitionSplit, ...] = ()  # how the raw rows of each are taken apart

    @property
    def raw(self) -> list[tuple[Any, ...]]:
        """Raw rows of each partition, with its targets where they are a collection of their own."""
        return list(zip(self.records, *([self.targets] if self.targets else []), strict=True))

    @property
    def target(self) -> Any:
        """Column(s) that hold the targets: str, list of str, or None."""
        return self.splits[0].target

    @property
    def n(self) -> int:
        """Number of records."""
        return sum(self.lengths)

    def groups(self, most: int) -> Iterator[slice]:
        """Cut the partitions into at most so many runs of about as many records each."""
        count = min(most, len(self.lengths))
        ends = np.cumsum(self.lengths)
        edges = [0]
        for k in range(1, count):
            nearest = 1 + int(np.argmin(abs(ends - self.n * k / count)))
            edges.append(min(max(nearest, edges[-1] + 1), len(ends) - (count - k)))
        for start, stop in zip(edges, [*edges[1:], len(ends)], strict=True):
            yield slice(start, stop)


def open_partitions(X: Any, y: Any, target: Any, client: Any, person: str | None = None) -> Partitions:
    """Open dask collections.

    `X`: dask.array.Array, shape (n, d), or dask.dataframe.DataFrame; `target`: column(s) of X that hold the
    targets; `client`: counts rows where their number is not known; `person`: column of X that holds ids of
    persons; the number of rows is then private.
    """
    if (y is None) == (target is None):
        raise Incompatible("Give y, or target, the column of X that holds it: one of the two.")
    X = _rows(X, "X")
    lengths, header = _lengths(X, client), _header(X)
    if person is not None:
        header, _ = _split(header, person, "person")
    if target is None:
        y = _matched(_rows(y, "y"), lengths, client, shown=person is None)
        targets, heading = _delayed(y), _header(y)
    else:
        header, heading = _split(header, target, "target")
        targets = []
    kept = [place for place, length in enumerate(lengths) if length]
    records = _delayed(X)
    return Partitions(
        [records[place] for place in kept],
        [targets[place] for place in kept if targets],
        tuple(lengths[place] for place in kept),
        header,
        heading,
        (PartitionSplit(target, person),) * len(kept),
    )


def number_persons(partitions: Partitions, client: Any) -> tuple[Partitions, int]:
    """Return partitions that know the persons of their rows, and the number of persons.

    Every worker tells the ids in its partitions with their numbers of rows; only this process has all.
    """
    from dask import delayed

    tasks = [
        delayed(partial(count_ids, split), pure=False)(X)
        for split, X in zip(partitions.splits, partitions.records, strict=True)
    ]
    found = compute_all(tasks, client)
    for counts in found:
        if isinstance(counts, Failure):
            raise ClusterFailed(f"The ids of persons in a partition could not be read ({counts.words}).")
    met, total = Persons(), Counter[Any]()
    for counts in found:
        met.add(counts)
        total.update(counts)
    splits = tuple(
        replace(
            split, people=PersonsOfPart({each: (int(met.add([each])[0]), total[each]) for each in counts})
        )
        for split, counts in zip(partitions.splits, found, strict=True)
    )
    return replace(partitions, splits=splits), len(met)


def keep_rows(partitions: Partitions, prepare: Prepare, most: int, client: Any) -> Partitions:
    """Return partitions that know which rows are kept: of each person those of the lowest ranks by content.

    Workers return the ranks (hashes of quantised rows) of the rows that may be kept; this process compares
    all of them. `prepare`: from raw to stored rows and targets; `most`: rows that are kept of a person.
    """
    from dask import delayed

    tasks = [
        delayed(partial(rank_part, prepare, split, most), pure=False)(*raw)
        for split, raw in zip(partitions.splits, partitions.raw, strict=True)
    ]
    found = compute_all(tasks, client)
    for ranks in found:
        if isinstance(ranks, Failure):
            raise ClusterFailed(f"The rows of persons in a partition could not be compared ({ranks.words}).")
    owners, ranks, places = (np.concatenate(each) for each in zip(*found, strict=True))
    part = np.repeat(np.arange(len(found)), [len(each.places) for each in found])
    kept = choose_rows(owners, ranks, most)
    splits = tuple(
        replace(split, people=replace(split.people, kept=places[kept][part[kept] == index]))
        for index, split in enumerate(partitions.splits)
        if split.people is not None
    )
    return replace(partitions, splits=splits)


def _matched(y: Any, lengths: tuple[int, ...], client: Any, *, shown: bool) -> Any:
    """Targets in partitions of as many rows as those of X; whose number may be shown if it is public."""
    others = _lengths(y, client)
    if sum(lengths) != sum(others) and not shown:
        raise WrongValue("X and y must have the same number of rows.")
    if sum(lengths) != sum(others):
        raise WrongValue(f"X has {quantity(sum(lengths), 'row')} but y has {sum(others)}; they must agree.")
    if lengths == others:
        return y
    if hasattr(y, "rechunk") and not any(map(math.isnan, y.chunks[0])):
        return y.rechunk({0: lengths})
    raise Incompatible(
        "The partitions of X and y have different numbers of rows, so rows cannot be matched with their "
        "targets: make both from one data frame and give target=, or repartition one like the other."
    )


def _split(header: Any, names: Any, what: str) -> tuple[Any, Any]:
    """The other columns, and the column(s) that an argument names."""
    if not hasattr(header, "columns"):
        raise Incompatible(f"{what} names a column of a dask.dataframe, not of a dask.array.")
    for name in names if isinstance(names, list) else [names]:
        if name not in header.columns:
            known = ", ".join(map(str, header.columns))
            raise WrongValue(f"{what} names {name!r}, which X does not have. Columns of X: {known}.")
    return header.drop(columns=names), header[names]


def _rows(collection: Any, name: str) -> Any:
    """A collection whose partitions hold whole rows."""
    from dask.base import is_dask_collection

    if not is_dask_collection(collection) or not hasattr(collection, "to_delayed"):
        raise Incompatible(
            f'{name} is a {type(collection).__name__}; backend="dask" takes a dask.array or a '
            "dask.dataframe: for instance dask.array.from_array(...), or leave backend out."
        )
    if not hasattr(collection, "rechunk"):
        return collection
    if collection.ndim not in (1, 2):
        raise WrongValue(f"{name} must have one or two dimensions, got {collection.ndim}.")
    if collection.ndim == 2 and collection.numblocks[1] > 1:
        return collection.rechunk({1: -1})
    return collection


def _header(collection: Any) -> Any:
    """Made-up rows of the declared type; none of the collection's own is read."""
    if not hasattr(collection, "rechunk"):
        from dask.dataframe.utils import meta_nonempty

        return meta_nonempty(collection._meta)
    shape = (1, *collection.shape[1:])
    if hasattr(collection._meta, "tocsr"):
        from scipy.sparse import csr_array

        return csr_array(shape, dtype=collection.dtype)
    return np.zeros(shape, dtype=collection.dtype)


def _delayed(collection: Any) -> list[Any]:
    return list(np.ravel(np.array(collection.to_delayed(), dtype=object)))


def _lengths(collection: Any, client: Any) -> tuple[int, ...]:
    """Rows of each partition, counted by the workers where Dask does not know them."""
    if hasattr(collection, "rechunk"):
        if not any(map(math.isnan, collection.chunks[0])):
            return tuple(map(int, collection.chunks[0]))
    elif hasattr(collection, "columns") and len(collection.columns) > 1:
        collection = collection[list(collection.columns[:1])]  # one column is enough to count rows
    from dask import delayed

    count = delayed(_count, pure=False)
    return tuple(compute_all([count(part) for part in _delayed(collection)], client))


def _count(part: Any) -> int:
    return int(part.shape[0])


def compute_all(tasks: list[Any], client: Any) -> list[Any]:
    """Return the results of tasks; report only the kind of an exception: its text may quote a cell."""
    futures = client.compute(tasks)
    try:
        results: list[Any] = client.gather(futures)
    except Exception as error:
        raise ClusterFailed(
            f"A partition could not be computed: the Dask graph that makes it raised {type(error).__name__}. "
            "Its words may quote records and are in the worker's log alone."
        ) from None
    return results
