"""The worker's side: partitions become integers where they are, and a shard answers with sums over them.

Nothing here raises: Dask writes exceptions, and the arguments of what raised them, into logs. An error
comes back as a `Failure`, which says no more than the kind of the exception.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dpcvx.accounting import WEIGHT
from dpcvx.arrays import IntVector, Vector
from dpcvx.data.lattice import ResidualBound
from dpcvx.data.memory import Arrays
from dpcvx.data.objective import Objective
from dpcvx.data.rows import Dense, Sparse
from dpcvx.data.source import Margins
from dpcvx.data.units import canonical_ids, choose_rows, content_ranks, equal_weights
from dpcvx.errors import DpcvxError, Incompatible, WrongType, WrongValue
from dpcvx.losses import Loss
from dpcvx.problem import Bounds

BEHIND = "behind"  # answer of a shard whose margins are older than an update
UNMAPPED = "unmapped"  # answer of a shard whose records did not yet go through a map


class Part(NamedTuple):
    """Stored rows and targets of a partition."""

    rows: Dense | Sparse
    y: Vector | None
    weights: IntVector | None = None  # of the rows, where they have persons
    owners: IntVector | None = None  # number of each row's person, -1 for none


Prepare = Callable[[Any, Any], Part]


@dataclass(frozen=True, eq=False, repr=False)
class PersonsOfPart:
    """The persons with rows in one partition: their numbers, and how many rows they have in all; private."""

    known: Mapping[Any, tuple[int, int]]  # by canonical id
    # places of the rows that are kept, each with the weight of one row; None: all rows share it
    kept: IntVector | None = None

    def owners(self, ids: Any) -> IntVector:
        """Return the number of each row's person, -1 for none."""
        numbers = [-1 if each is None else self.known[each][0] for each in canonical_ids(ids)]
        return np.array(numbers, dtype=np.int64)

    def weigh(self, ids: Any) -> IntVector:
        """Return integer weights of the rows: those of a person share 2^14, over all partitions."""
        owners = self.owners(ids)
        counts = np.ones(1 + max((number for number, _ in self.known.values()), default=0), dtype=np.int64)
        for number, rows in self.known.values():
            counts[number] = rows
        return equal_weights(owners, counts)

    def weigh_in_fit(self, ids: Any) -> IntVector:
        """Return integer weights of the rows in a fit."""
        if self.kept is None:
            return self.weigh(ids)
        weights = np.zeros(len(ids), dtype=np.int64)
        weights[self.kept] = WEIGHT
        return weights


@dataclass(frozen=True, eq=False, repr=False)
class PartitionSplit:
    """How the raw rows of a partition are taken apart."""

    target: Any = None  # column(s) that hold the targets; None where they are a collection of their own
    person: str | None = None  # column that holds the ids of persons
    people: PersonsOfPart | None = None  # the persons, once they are numbered

    def __call__(self, X: Any, y: Any) -> tuple[Any, Any, Any]:
        """Return features, targets and ids."""
        ids = None
        if self.person is not None:
            X, ids = X.drop(columns=self.person), X[self.person]
        return (X, y, ids) if self.target is None else (X.drop(columns=self.target), X[self.target], ids)


def count_ids(split: PartitionSplit, X: Any) -> dict[Any, int] | Failure:
    """Return the canonical ids in a partition, with their numbers of rows."""
    found: dict[Any, int] | Failure = guard(
        lambda: dict(Counter(each for each in canonical_ids(X[split.person]) if each is not None))
    )
    return found


@dataclass(frozen=True)
class Failure:
    """Why a worker has no answer: the kind of an exception, and its words only where dpcvx wrote them."""

    words: str


@dataclass(frozen=True)
class ShardFacts:
    """Size and digest of a shard, which identify it when it is loaded again. Private: never shown."""

    n: int
    d: int
    digest: bytes


@dataclass(frozen=True)
class PickledLoss:
    """A pickled loss. A process unpickles it once, so that its kernels are compiled once."""

    content: bytes

    @classmethod
    def of(cls, loss: Loss) -> PickledLoss:
        """Pickle a loss, by value where a worker could not import it."""
        from distributed.protocol.pickle import dumps

        return cls(dumps(loss))

    def open(self) -> Loss:
        """Return the loss."""
        return _unpickled(self.content)


@dataclass(frozen=True, eq=False)
class Step:
    """A public map of quantised records; its key names the result."""

    key: str
    change: Callable[[Arrays], Arrays]


@dataclass(frozen=True)
class Update:
    """Public moves of margins, from one version to the next; from None it starts at w = 0."""

    key: str
    before: int | None
    after: int
    moves: tuple[tuple[int, int], ...]


class Request(Protocol):
    """A question to the records of a worker, as it travels."""

    def of(self, state: State, key: str) -> Any:
        """Return the answer of the records with this key."""


@dataclass(frozen=True)
class Describe:
    """Size and digest of the records."""

    def of(self, state: State, key: str) -> ShardFacts:
        """Return them."""
        records = state.records[key]
        return ShardFacts(records.n, records.d, state.digest)


@dataclass(frozen=True, eq=False)
class Become:
    """Apply public maps to the first records, except where the result is there already."""

    steps: tuple[Step, ...]

    def of(self, state: State, key: str) -> ShardFacts:
        """Return size and digest of the records after the last step."""
        keys = [step.key for step in self.steps]
        done = len(state.steps) if state.steps == keys[: len(state.steps)] else 0
        records = state.records[state.steps[-1] if done else key]
        for step in self.steps[done:]:
            records = step.change(records)
        state.steps = keys
        state.records = {"": state.records[""], keys[-1]: records}
        return Describe().of(state, keys[-1])


@dataclass(frozen=True, eq=False)
class SumOf:
    """An exact sum over the records of a worker."""

    question: Any  # without its loss, if it has one
    loss: PickledLoss | None  # the loss, pickled once for all questions about it

    def of(self, state: State, key: str) -> Any:
        """Return the sum. Arrays out of a message are read-only and at odd addresses, so they are copied."""
        values = {field.name: getattr(self.question, field.name) for field in fields(self.question)}
        owned = {name: np.array(value) for name, value in values.items() if isinstance(value, np.ndarray)}
        loss = {} if self.loss is None else {"loss": self.loss.open()}
        return state.records[key].sum(replace(self.question, **owned, **loss))


@dataclass(frozen=True, eq=False)
class ObjectiveOf:
    """Value, gradient or Hessian of the sum of the losses in float64."""

    setting: tuple[PickledLoss, int, float]  # loss, number of outputs and largest score
    part: Callable[[Objective, Vector], Any]  # `Objective.value`, `Objective.gradient` or `Objective.hessian`
    theta: Vector

    def of(self, state: State, key: str) -> Any:
        """Return it at theta."""
        if state.objective[0] != (key, self.setting):
            loss, outputs, z_max = self.setting
            objective = state.records[key].objective(loss.open(), outputs, z_max)
            state.objective = (key, self.setting), objective
        return self.part(state.objective[1], np.array(self.theta))


@dataclass(frozen=True, eq=False)
class ScoresOf:
    """Scores of followed margins, brought up to date first; `BEHIND` if moves are missing on the worker."""

    setting: tuple[PickledLoss, int]
    update: Update
    scale: float
    bound: ResidualBound

    def of(self, state: State, key: str) -> Any:
        """Return the scores."""
        update = self.update
        name, version, margins = state.margins or (None, None, None)
        if update.before is None:
            loss, outputs = self.setting
            margins = state.records[key].follow(loss.open(), outputs)
            name, version = update.key, None
        if margins is None or name != update.key or version not in (update.before, update.after):
            return BEHIND
        if version != update.after:  # otherwise the answer was lost, not the request
            for index, amount in update.moves:
                margins.add(index, amount)
        state.margins = update.key, update.after, margins
        return margins.scores(self.scale, self.bound)


def guard(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function; return a `Failure` where it raises."""
    try:
        return function(*arguments)
    except (WrongValue, WrongType) as error:  # its words may tell the shape or type of a partition
        return Failure(type(error).__name__)
    except DpcvxError as error:  # its words speak of public configuration alone
        return Failure(f"{type(error).__name__}: {error}")
    except Exception as error:
        return Failure(type(error).__name__)


def load_part(prepare: Prepare, split: PartitionSplit, X: Any, y: Any = None) -> Part | Failure:
    """Clip and quantise one partition.

    `prepare`: from raw rows and targets to stored rows and targets in scaled units; `split`: takes the raw
    partition `X`, `y` apart.
    """

    def load() -> Part:
        features, labels, ids = split(X, y)
        part = prepare(features, labels)
        if part.y is not None and len(part.y) != part.rows.shape[0]:
            raise Incompatible("a partition of X has another number of rows than the one of y")
        if split.people is None:
            return part
        return part._replace(weights=split.people.weigh_in_fit(ids), owners=split.people.owners(ids))

    result: Part | Failure = guard(load)
    return result


class RowRanks(NamedTuple):
    """Rows of a partition that may be kept: numbers of persons, ranks by content, and places; private."""

    owners: IntVector
    ranks: NDArray[np.uint64]
    places: IntVector


def rank_part(
    prepare: Prepare, split: PartitionSplit, most: int, X: Any, y: Any = None
) -> RowRanks | Failure:
    """Return, of each person in a partition, the rows of the lowest ranks: no other of them can be kept.

    `most`: rows that are kept of a person, in all partitions.
    """

    def rank() -> RowRanks:
        features, labels, ids = split(X, y)
        part = prepare(features, labels)
        if split.people is None or part.y is None:
            raise Incompatible("rows are chosen only where persons have several")
        owners, ranks = split.people.owners(ids), content_ranks(part.rows, part.y)
        best = choose_rows(owners, ranks, most)
        return RowRanks(owners[best], ranks[best], best)

    result: RowRanks | Failure = guard(rank)
    return result


class Shard:
    """Records that one worker keeps: an actor, asked through `ask` alone.

    `parts`: quantised partitions on this worker; `bounds`: bounds of a quantised row; `layout`: {"rows",
    "columns"}; `units`: number of persons in all shards, where records have persons; `threads`: threads of a
    pass: the worker's own.
    """

    def __init__(
        self, parts: list[Any], bounds: Bounds, layout: str, units: int | None, threads: int
    ) -> None:
        failures = [part for part in parts if isinstance(part, Failure)]
        self._state: State | Failure = (
            failures[0] if failures else guard(State, parts, bounds, layout, units, threads)
        )

    def ask(self, key: str, request: Request) -> Any:
        """Return the answer to a request, or a `Failure`.

        `key`: which records are asked: those that came out of the step of this key, or "" for the first.
        """
        state = self._state
        if isinstance(state, Failure):
            return state
        return guard(lambda: request.of(state, key)) if key in state.records else UNMAPPED


class State:
    """Records of one worker and what it keeps about them between requests."""

    def __init__(
        self, parts: list[Any], bounds: Bounds, layout: str, units: int | None, threads: int
    ) -> None:
        rows, targets, weights, owners = _stacked(parts)
        self.digest = _digest(rows, [targets, weights, owners])
        self.steps: list[str] = []
        self.margins: tuple[str, int, Margins] | None = None
        self.objective: tuple[Any, Any] = (None, None)
        self.records = {
            "": Arrays(
                rows,
                targets,
                bounds=bounds,
                layout=layout,
                threads=threads,
                weights=weights,
                units=units,
                owners=owners,
            )
        }


@cache
def _unpickled(content: bytes) -> Loss:
    from distributed.protocol.pickle import loads

    loss: Loss = loads(content)
    return loss


def _stacked(parts: list[Part]) -> Part:
    """One shard of all parts, in memory of its own: aligned, and in one piece."""
    rows, *others = zip(*parts, strict=True)
    joined = [None if any(part is None for part in each) else np.concatenate(each) for each in others]
    if all(isinstance(part, Dense) for part in rows):
        return Part(Dense(np.concatenate([part.values for part in rows])), *joined)
    if not all(isinstance(part, Sparse) for part in rows):
        raise Incompatible("some partitions hold compressed rows and some dense ones: make them alike")
    starts = np.cumsum([0, *(part.size for part in rows)])
    indptr = [part.indptr[1:] + start for part, start in zip(rows, starts, strict=False)]
    stacked = Sparse(
        np.concatenate([[0], *indptr]),
        np.concatenate([part.indices for part in rows]),
        np.concatenate([part.values for part in rows]),
        rows[0].shape[1],
    )
    return Part(stacked, *joined)


def _digest(rows: Dense | Sparse, others: list[Vector | IntVector | None]) -> bytes:
    """Of the stored integers and targets: a shard that is loaded again must be the same."""
    names = ["values"] if isinstance(rows, Dense) else ["indptr", "indices", "values"]
    digest = hashlib.blake2b(digest_size=16)
    for array in [*(getattr(rows, name) for name in names), *others]:
        if array is not None:
            digest.update(np.ascontiguousarray(array).reshape(-1).data)
    return digest.digest()
