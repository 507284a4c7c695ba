"""The worker's side: partitions become integers where they are, and a shard answers with sums over them.

Nothing here raises: Dask writes exceptions, and the arguments of what raised them, into logs. What goes wrong
comes back as a `Failure`, which says no more than the kind of the exception.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.data.memory import Arrays
from dpcvx.data.rows import Dense, Sparse
from dpcvx.data.source import Margins
from dpcvx.errors import DpcvxError, Incompatible
from dpcvx.losses import Loss
from dpcvx.problem import Bounds

__all__ = [
    "BEHIND",
    "UNMAPPED",
    "Facts",
    "Failure",
    "Part",
    "Pickled",
    "Prepare",
    "Shard",
    "Step",
    "Update",
    "guarded",
    "load_part",
]

BEHIND = "behind"  # answer of a shard whose margins are older than an update
UNMAPPED = "unmapped"  # answer of a shard whose records did not yet go through a map

Part = tuple[Dense | Sparse, Vector | None]
Prepare = Callable[[Any, Any], Part]


@dataclass(frozen=True)
class Failure:
    """Why a worker has no answer: the kind of an exception, and its words only where dpcvx wrote them."""

    words: str


@dataclass(frozen=True)
class Facts:
    """What the driver keeps of a shard, to know it again after it was loaded anew. Private: never shown."""

    n: int
    d: int
    digest: bytes


@dataclass(frozen=True)
class Pickled:
    """A loss on its way. It is the same object whenever it arrives, so that kernels are compiled once."""

    content: bytes

    @classmethod
    def of(cls, loss: Loss) -> Pickled:
        """Pickle a loss, by value where a worker could not import it."""
        from distributed.protocol.pickle import dumps

        return cls(dumps(loss))

    def open(self) -> Loss:
        """Return the loss."""
        return _unpickled(self.content)


@dataclass(frozen=True, eq=False)
class Step:
    """A public map that records go through after the door: a method of `Arrays` and its arguments.

    Its key names the records that come out.
    """

    key: str
    name: str
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class Update:
    """Public moves of margins, from one version to the next; from None it starts at w = 0."""

    key: str
    before: int | None
    after: int
    moves: tuple[tuple[int, int], ...]


def guarded(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function; return a `Failure` where it raises."""
    try:
        return function(*arguments)
    except DpcvxError as error:  # its words speak of public configuration alone
        return Failure(f"{type(error).__name__}: {error}")
    except Exception as error:
        return Failure(type(error).__name__)


def load_part(prepare: Prepare, target: Any, X: Any, y: Any = None) -> Part | Failure:
    """Take one partition through the door.

    Parameters
    ----------
    prepare : callable
        From raw rows and targets to stored rows and targets in scaled units.
    target : str, list of str, or None
        Column(s) of X that hold the targets; None where y does.
    X, y
        Raw partition.
    """

    def load() -> Part:
        part = prepare(X, y) if target is None else prepare(X.drop(columns=target), X[target])
        if part[1] is not None and len(part[1]) != part[0].shape[0]:
            raise Incompatible("a partition of X has another number of rows than the one of y")
        return part

    result: Part | Failure = guarded(load)
    return result


class Shard:
    """Records that one worker keeps: an actor, asked through `ask` alone.

    Parameters
    ----------
    parts : list of Part or Failure
        Partitions that passed the door, on this worker.
    bounds : Bounds
        Bounds that the door enforced.
    layout : {"rows", "columns"}
    threads : int
        Threads of a pass: the worker's own.
    """

    def __init__(self, parts: list[Any], bounds: Bounds, layout: str, threads: int) -> None:
        failures = [part for part in parts if isinstance(part, Failure)]
        self._state: _Records | Failure = (
            failures[0] if failures else guarded(_Records, parts, bounds, layout, threads)
        )

    def ask(self, key: str, name: str, *arguments: Any) -> Any:
        """Return the answer to a question of `_Records`, or a `Failure`.

        Parameters
        ----------
        key : str
            Which records are asked: those that came out of the step of this key, or "" for the door's.
        name : str
            The question.
        *arguments
            Of the question.
        """
        state = self._state
        if isinstance(state, Failure):
            return state
        if key not in state.records:
            return UNMAPPED
        return guarded(lambda: getattr(state, name)(key, *arguments))


class _Records:
    """The questions of a shard. Losses come pickled once, so that each is compiled once."""

    def __init__(self, parts: list[Any], bounds: Bounds, layout: str, threads: int) -> None:
        rows, targets = _stacked(parts)
        self._digest = _digest(rows, targets)
        self._steps: list[str] = []
        self._margins: tuple[str, int, Margins] | None = None
        self._objective: tuple[Any, Any] = (None, None)
        self.records = {"": Arrays(rows, targets, bounds=bounds, layout=layout, threads=threads)}

    def describe(self, key: str) -> Facts:
        """Return size and digest."""
        records = self.records[key]
        return Facts(records.n, records.d, self._digest)

    def become(self, key: str, steps: tuple[Step, ...]) -> Facts:
        """Take the door's records through steps; those that were made already are not made again."""
        done = len(self._steps) if self._steps == [step.key for step in steps[: len(self._steps)]] else 0
        records = self.records[self._steps[-1] if done else key]
        for step in steps[done:]:
            records = getattr(records, step.name)(*step.arguments)
        self._steps = [step.key for step in steps]
        self.records = {"": self.records[""], self._steps[-1]: records}
        return self.describe(self._steps[-1])

    def sums(self, key: str, name: str, *arguments: Any) -> Any:
        """Return what a question of the data source, all of whose answers are sums, gives for this shard."""
        return getattr(self.records[key], name)(*_owned(arguments))

    def objective(self, key: str, setting: tuple[Pickled, int, float], name: str, theta: Vector) -> Any:
        """Return value, gradient or Hessian of the sum of the losses in float64."""
        if self._objective[0] != (key, setting):
            loss, outputs, z_max = setting
            self._objective = (key, setting), self.records[key].objective(loss.open(), outputs, z_max)
        return getattr(self._objective[1], name)(np.array(theta))

    def scores(self, key: str, setting: tuple[Pickled, int], update: Update, *arguments: Any) -> Any:
        """Bring the margins up to date and return their scores, or `BEHIND` if moves are missing here."""
        name, version, margins = self._margins or (None, None, None)
        if update.before is None:
            loss, outputs = setting
            margins = self.records[key].follow(loss.open(), outputs)
            name, version = update.key, None
        if margins is None or name != update.key or version not in (update.before, update.after):
            return BEHIND
        if version != update.after:  # otherwise the answer was lost on its way, not the question
            for index, amount in update.moves:
                margins.add(index, amount)
        self._margins = update.key, update.after, margins
        return margins.scores(*arguments)


@cache
def _unpickled(content: bytes) -> Loss:
    from distributed.protocol.pickle import loads

    loss: Loss = loads(content)
    return loss


def _owned(arguments: Sequence[Any]) -> list[Any]:
    """Arguments as a question wants them; arrays out of a message are read-only and at odd addresses."""
    return [
        np.array(value)
        if isinstance(value, np.ndarray)
        else value.open()
        if isinstance(value, Pickled)
        else value
        for value in arguments
    ]


def _stacked(parts: list[Part]) -> tuple[Dense | Sparse, Vector | None]:
    """One shard of all parts, in memory of its own: aligned, and in one piece."""
    rows, targets = zip(*parts, strict=True)
    y = None if any(part is None for part in targets) else np.concatenate(targets)
    if all(isinstance(part, Dense) for part in rows):
        return Dense(np.concatenate([part.values for part in rows])), y
    if not all(isinstance(part, Sparse) for part in rows):
        raise Incompatible("some partitions hold compressed rows and some dense ones: make them alike")
    starts = np.cumsum([0, *(part.size for part in rows)])
    indptr = [part.indptr[1:] + start for part, start in zip(rows, starts, strict=False)]
    return Sparse(
        np.concatenate([[0], *indptr]),
        np.concatenate([part.indices for part in rows]),
        np.concatenate([part.values for part in rows]),
        rows[0].shape[1],
    ), y


def _digest(rows: Dense | Sparse, targets: Vector | None) -> bytes:
    """Of the stored integers and targets: a shard that is loaded again must be the same."""
    names = ["values"] if isinstance(rows, Dense) else ["indptr", "indices", "values"]
    digest = hashlib.blake2b(digest_size=16)
    for array in [*(getattr(rows, name) for name in names), targets]:
        if array is not None:
            digest.update(np.ascontiguousarray(array).reshape(-1).data)
    return digest.digest()
