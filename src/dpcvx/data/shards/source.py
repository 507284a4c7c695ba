"""Exact sums over records that stay on disk: mapped shards behind the same questions as arrays in memory.

Pages of a shard are read when a pass comes to them and belong to the system's cache, so what a process holds
itself does not grow with the number of records; only followed margins need 8 bytes for each, and score.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property, partial
from itertools import accumulate, pairwise
from pathlib import Path
from shutil import disk_usage
from tempfile import TemporaryFile
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpcvx.accounting import WEIGHT
from dpcvx.arrays import IntVector, Vector
from dpcvx.data.lattice import ResidualBound, exact_sum, integer_bounds, records_at_once
from dpcvx.data.objective import Objective
from dpcvx.data.quantise import Quantiser, enforce, remap
from dpcvx.data.rows import Dense, Records, Sparse
from dpcvx.data.shards.folder import AGAIN, Store
from dpcvx.data.sums import Sum
from dpcvx.data.threads import cores, in_threads
from dpcvx.errors import ShardsDamaged, WrongValue
from dpcvx.losses import Loss
from dpcvx.problem import Bounds

__all__ = ["ShardSource", "open_source"]

CELLS_AT_ONCE = 2**20  # stored integers that become float64 at a time
DENSE_CELLS = 2**24  # of stored integers that become dense at a time
BLOCK_BYTES = 2**18  # rows that a pass over followed margins keeps in cache
LONG_COLUMN = 2**13  # records of a shard from which on columns are read faster than rows; measured
OWNERS = "owners"  # array of a shard with the number of each record's person
BLOCK_MARGINS = 2**16  # margins that a pass over columns keeps in cache, its residuals beside them

Answer = TypeVar("Answer")
Range = tuple[int, int, int]


Change = Callable[[Records], Records]


def open_source(
    folder: str | Path,
    first: int = 0,
    last: int | None = None,
    *,
    constant: int = 0,
    levels: Vector | None = None,
) -> ShardSource:
    """Open shards first..last of a folder as a data source; their files are checked now.

    Parameters
    ----------
    folder : str or Path
        Where `dpcvx.from_parquet` and its like have put them.
    first, last : int, optional
        Range of shards, the last one excluded; by default all.
    constant : int
        Value of a last feature that is the same in every row, in units of 2^-14; 0 for none.
    levels : Vector, optional
        Targets of the classes, shape (classes + 1, K), those of a missing label last, where the stored
        codes are not what the loss takes.

    Returns
    -------
    ShardSource
    """
    store = Store.open(Path(folder))
    store.require_complete()
    last = len(store.manifest.shards) if last is None else last
    if not 0 <= first < last <= len(store.manifest.shards):
        raise WrongValue(
            f"{folder} has shards 0..{len(store.manifest.shards) - 1}; {first}..{last - 1} were asked for."
        )
    store.verify(first, last)
    return source_of(
        [map_shard(store, index) for index in range(first, last)], store, constant=constant, levels=levels
    )


def source_of(
    shards: Sequence[Records], store: Store, *, constant: int, levels: Vector | None
) -> ShardSource:
    """Mapped shards of a store as a data source; see `open_source`."""
    largest, squares = store.manifest.limits
    return ShardSource(
        [replace(shard, constant=constant) for shard in shards],
        bounds=(max(largest, constant), squares + constant**2),
        changes=() if levels is None else (partial(with_levels, levels),),
        scratch=store.folder,
        units=store.manifest.units,
    )


def map_shard(store: Store, index: int) -> Records:
    """Map one shard, and see that its arrays fit together."""
    manifest, arrays = store.manifest, store.arrays(index)
    n, y = manifest.shards[index].rows, arrays["targets"]
    rows: Dense | Sparse
    if "indptr" in arrays:
        indptr, indices, values = arrays["indptr"], arrays["indices"], arrays["values"]
        fits = indptr.shape == (n + 1,) and indices.shape == values.shape == (int(indptr[-1]),)
        rows = Sparse(indptr, indices, values, manifest.width)
    else:
        rows = Dense(arrays["values"])
        fits = arrays["values"].shape == (n, manifest.width)
    if not fits or y.ndim != 2 or y.shape[1] != n:
        raise ShardsDamaged(f"A shard of {store.folder} has arrays of wrong shapes: {AGAIN}.")
    if OWNERS not in manifest.parts:
        return Records(rows, y, manifest.step, weighted=manifest.units is not None)
    owners = arrays[OWNERS]
    if owners.shape != (n,):
        raise ShardsDamaged(f"A shard of {store.folder} has arrays of wrong shapes: {AGAIN}.")
    return Records(rows, y, manifest.step, weighted=True, owners=owners)


class ShardSource:
    """Records in mapped shards.

    `bounds`: largest integer, and largest sum of squares of a row, once the changes are made; `changes`: what
    records go through, in this order, each time they are read; a shard, or some of its rows, at a time;
    `scratch`: folder for files that have no name in it and vanish with the source; `units`: public number of
    persons, times the rows kept of each, where records have persons; the number of records is then private.
    """

    def __init__(
        self,
        shards: Sequence[Records],
        *,
        bounds: tuple[int, int],
        changes: Sequence[Change] = (),
        scratch: Path | None = None,
        units: int | None = None,
    ) -> None:
        self._shards, self._bounds, self._changes, self._scratch = shards, bounds, tuple(changes), scratch
        self._units = units
        self.starts = [0, *accumulate(shard.rows.shape[0] for shard in shards)]
        first = self.stored(0, 0, 1)
        self.count = self.starts[-1]  # number of records
        self.n, self.d = self.count if units is None else units, first.d
        self._row_bytes = first.rows.values.nbytes + first.y.nbytes

    @property
    def weight(self) -> int:
        """Largest sum of the weights of a person: 1 where rows have none."""
        return 1 if self._units is None else WEIGHT

    def within(self, bounds: Bounds) -> ShardSource:
        """Return these records with every row inside the bounds: a longer one is shrunk when it is read."""
        wanted = integer_bounds(bounds, self.d)
        if self._bounds[0] <= wanted[0] and self._bounds[1] <= wanted[1]:
            return self
        return self._changed(partial(_shrunk, bounds), wanted)

    def sum(self, question: Sum[Answer]) -> Answer:
        """Return an exact sum over all records, a shard at a time."""
        shards = (self.stored(index) for index in range(len(self._shards)))
        if self._units is not None:  # a sample names persons, who may have rows in every shard
            return question.add((question.of(shard) for shard in shards), self.count)
        ranges = pairwise(self.starts)
        parts = (question.among(*ends).of(shard) for shard, ends in zip(shards, ranges, strict=True))
        return question.add(parts, self.count)

    def mapped(
        self, quantiser: Quantiser | None, center: float | Vector, scale: float | Vector
    ) -> ShardSource:
        """Return these records with rows quantised again and targets (y - center)/scale, a public map.

        They are written once to scratch files. Where the disk has no room for them, they are quantised
        in each pass again, with the same sums. Targets alone are mapped in each pass.
        """
        if quantiser is None:
            return self._changed(partial(_remap_targets, center, scale), self._bounds)
        pieces = [self._shards[index].part(start, stop) for index, start, stop in self._ranges(DENSE_CELLS)]
        bounds = integer_bounds(quantiser.bounds, quantiser.width(self.d))
        source = ShardSource(
            pieces, bounds=self._bounds, changes=self._changes, scratch=self._scratch, units=self._units
        )
        again = source._changed(partial(_remap_stored, quantiser, center, scale), bounds)
        kept = again._in_scratch(lambda stored: stored)
        if kept is None:
            return again
        return ShardSource(kept, bounds=bounds, scratch=self._scratch, units=self._units)

    @cached_property
    def columns(self) -> list[Records] | None:
        """Shards with their rows feature-major, in scratch files; None where rows serve better.

        They do where they are compressed, and where a shard has few of them because each is long. There are
        none either without room on the disk.
        """
        dense = isinstance(self.stored(0, 0, 1).rows, Dense)
        return self._in_scratch(_transposed) if dense and self.starts[1] >= LONG_COLUMN else None

    def objective(self, loss: Loss, outputs: int, z_max: float) -> StreamedObjective:
        """Return the sum of the losses in float64, a few rows in memory at a time."""

        def part(where: Range) -> Objective:
            records = self.stored(*where)
            y, weights = records.targets(loss, outputs), records.weights
            if weights is None:
                return Objective(records.whole_rows(), y, loss, z_max)
            return Objective(records.whole_rows(), y[:-1], loss, z_max, weights / WEIGHT, self.n)

        return StreamedObjective(part, list(self._ranges(CELLS_AT_ONCE)), self.n, self.d)

    def follow(self, loss: Loss, outputs: int) -> MarginsOnDisk:
        """Return margins that start at w = 0."""
        return MarginsOnDisk(self, loss, outputs)

    def stored(self, index: int, start: int = 0, stop: int | None = None) -> Records:
        """Return a shard, or some of its rows, as it is summed; nothing is copied but what changes."""
        stored = self._shards[index].part(start, stop)
        for change in self._changes:
            stored = change(stored)
        return stored

    def _in_scratch(self, change: Change) -> list[Records] | None:
        """All shards after one more change, mapped from files without a name; None without room for them."""
        if self._scratch is None:
            return None
        try:
            if self.count * self._row_bytes > disk_usage(self._scratch).free:
                return None
            return [
                _store_in_scratch(change(self.stored(index)), shard.y, self._scratch)
                for index, shard in enumerate(self._shards)
            ]
        except OSError:
            return None

    def _changed(self, change: Change, bounds: tuple[int, int]) -> ShardSource:
        changes = (*self._changes, change)
        return ShardSource(
            self._shards, bounds=bounds, changes=changes, scratch=self._scratch, units=self._units
        )

    def _ranges(self, cells: int) -> Iterator[Range]:
        """Ranges of rows, each inside a shard, that would have at most so many cells if they were dense."""
        step = max(1, cells // self.d)
        for index, shard in enumerate(self._shards):
            for start in range(0, shard.rows.shape[0], step):
                yield index, start, min(shard.rows.shape[0], start + step)


def with_levels(levels: Vector, stored: Records) -> Records:
    """Targets (K, n) of class codes: a row of ``levels`` for each, the last one for a missing label."""
    y = levels[stored.y[0].astype(np.int64)].T
    if stored.weighted:
        y = np.vstack([y, stored.y[-1]])
    return replace(stored, y=np.ascontiguousarray(y))


def _shrunk(bounds: Bounds, stored: Records) -> Records:
    rows = enforce(stored.whole_rows(), bounds, stored.constant)
    return replace(stored, rows=rows, step=1, constant=0)


def _remap_stored(
    quantiser: Quantiser, center: float | Vector, scale: float | Vector, stored: Records
) -> Records:
    return remap(_dense(stored), quantiser, center, scale)


def _remap_targets(center: float | Vector, scale: float | Vector, stored: Records) -> Records:
    return remap(stored, None, center, scale)


def _transposed(stored: Records) -> Records:
    return replace(stored, rows=stored.rows.transpose())


def _dense(stored: Records) -> Records:
    """The same records with all cells."""
    rows = stored.rows
    if isinstance(rows, Dense):
        return stored
    from scipy.sparse import csr_array

    full = csr_array((rows.values, rows.indices, rows.indptr), shape=rows.shape).toarray()
    return replace(stored, rows=Dense(full))


def _store_in_scratch(stored: Records, y: Vector, folder: Path) -> Records:
    """The same records, mapped from files without a name; targets that are mapped already, y, stay there."""
    rows = Dense(_mapped_copy(stored.rows.values, folder))
    return replace(stored, rows=rows, y=y if stored.y is y else _mapped_copy(stored.y, folder))


def _mapped_copy(array: NDArray[Any], folder: Path) -> NDArray[Any]:
    with TemporaryFile(dir=folder) as file:
        np.ascontiguousarray(array).tofile(file)
        return np.asarray(np.memmap(file, dtype=array.dtype, mode="c", shape=array.shape))


class MarginsOnDisk:
    """Margins of the records of a `ShardSource`, in memory; moves wait until the records are read anyway."""

    def __init__(self, records: ShardSource, loss: Loss, outputs: int) -> None:
        records.stored(0, 0, 1).targets(loss, outputs)  # refuses targets of another kind
        self._records, self._loss, self._columns = records, loss, records.columns
        self._margins: NDArray[np.int64] = np.zeros((outputs, records.count), dtype=np.int64)
        self._moves: dict[int, int] = {}

    def reset(self) -> None:
        """Set w = 0."""
        self._margins[:] = 0
        self._moves = {}

    def add(self, index: int, amount: int) -> None:
        """w[index] += amount, with index = j * outputs + k."""
        size = self._records.d * len(self._margins)
        if not 0 <= index < size:
            raise IndexError(f"index must be in 0..{size - 1}, got {index}.")
        self._moves[index] = self._moves.get(index, 0) + amount

    def scores(self, scale: float, bound: ResidualBound) -> IntVector:
        """Return sum_i rho_i k_ij, (d,) or (d, K), with rho_i the residual at z_i = m_i * scale."""
        outputs = len(self._margins)
        places = np.array(list(self._moves), dtype=np.int64)
        moves = (places // outputs, places % outputs, np.array(list(self._moves.values()), dtype=np.int64))
        rest = (scale, float(self._loss.parameter), bound.l2, bound.linf)
        parts = (self._pass(index, moves, rest, bound) for index in range(len(self._records.starts) - 1))
        sums = exact_sum(parts, self._records.count, bound)
        self._moves = {}
        return sums[0] if outputs == 1 else sums.T.copy()

    def _pass(self, index: int, moves: Any, rest: Any, bound: ResidualBound) -> IntVector:
        """Move the margins of one shard and return its sums, (K, d)."""
        from dpcvx.data import kernels
        from dpcvx.data.shards.kernels import scores_columns, scores_dense, scores_sparse

        shard = self._records.stored(index) if self._columns is None else self._columns[index]
        at, n, outputs = self._records.starts[index], shard.y.shape[1], len(self._margins)
        rows, width = shard.rows, self._records.d - (shard.constant > 0)
        function = kernels.residuals_of(self._loss.slope, self._loss.joint, self._loss.offset)
        block_rows = max(8, BLOCK_BYTES * n // max(1, rows.values.nbytes))
        if self._columns is not None:
            block_rows = max(8, BLOCK_MARGINS // outputs)

        def part(start: int, stop: int) -> IntVector:
            sums = np.zeros((outputs, self._records.d), dtype=np.int64)
            where = (start, stop, min(block_rows, stop - start), (shard.step, shard.constant), sums)
            followed = (shard.y, self._margins, at, moves, function, rest)
            if self._columns is not None:
                scores_columns(rows.values, *followed, *where)
            elif isinstance(rows, Dense):
                scores_dense(rows.values, *followed, *where)
            else:
                scores_sparse(rows.indptr, rows.indices, rows.values, width, *followed, *where)
            sums[:, :width] *= shard.step
            return sums

        work = outputs * (rows.size * (1 if isinstance(rows, Dense) else 4) + 32 * n)
        return exact_sum(in_threads(part, n, work, largest=records_at_once(bound)), n, bound)


class StreamedObjective:
    """The sum of the losses in float64: an `Objective` of a few rows at a time, and pairwise sums of theirs.

    `part`: returns the objective of one range of records; `ranges`: all of them; `n`, `d`: records and
    features.
    """

    def __init__(self, part: Callable[[Any], Objective], ranges: Sequence[Any], n: int, d: int) -> None:
        self._part, self._ranges = part, ranges
        self.n, self.d = n, d

    def value(self, theta: Vector) -> float:
        """Return the sum at theta."""
        return math.fsum(self._map(lambda part: part.value(theta)))

    def gradient(self, theta: Vector) -> Vector:
        """Return the gradient at theta, in its shape: blocks of rows, then pairwise, as in memory."""
        return _pairwise_sum(self._map(lambda part: part.gradient(theta)))

    def hessian(self, theta: Vector) -> Vector:
        """Return X^T diag(phi'') X for one output, good for a Newton step."""
        return _pairwise_sum(self._map(lambda part: part.hessian(theta)))

    def _map(self, question: Callable[[Objective], Any]) -> Iterator[Any]:
        """Answers of all parts in their order, several asked at a time."""
        with ThreadPoolExecutor(max_workers=cores()) as pool:
            yield from pool.map(lambda where: question(self._part(where)), self._ranges)


def _pairwise_sum(parts: Iterable[Vector]) -> Vector:
    """Sum in the order of a tournament: each addend meets about log2(parts) others."""
    waiting: list[tuple[int, Vector]] = []
    for part in parts:
        level = 0
        while waiting and waiting[-1][0] == level:
            part = waiting.pop()[1] + part
            level += 1
        waiting.append((level, part))
    total = waiting.pop()[1]
    while waiting:
        total = waiting.pop()[1] + total
    return total
