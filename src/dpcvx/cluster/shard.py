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
from dpcvx.data import Arrays, Margins
from dpcvx.errors import DpcvxError, Incompatible
from dpcvx.grid import Dense, Sparse
from dpcvx.losses import Loss
from dpcvx.problem import Bounds

__all__ = ["BEHIND", "Facts", "Failure", "Part", "Prepare", "Shard", "Update", "guarded", "load_part"]

BEHIND = "behind"  # answer of a shard whose margins are older than an update

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
        return prepare(X, y) if target is None else prepare(X.drop(columns=target), X[target])

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

    def ask(self, name: str, *arguments: Any) -> Any:
        """Return the answer to a question of `_Records`, or a `Failure`."""
        state = self._state
        return state if isinstance(state, Failure) else guarded(lambda: getattr(state, name)(*arguments))


class _Records:
    """The questions of a shard. Losses come pickled once, so that each is compiled once."""

    def __init__(self, parts: list[Any], bounds: Bounds, layout: str, threads: int) -> None:
        rows, targets = _stacked(parts)
        self.facts = Facts(*rows.shape, _digest(rows, targets))
        self._arrays = Arrays(rows, targets, bounds=bounds, layout=layout, threads=threads)
        self._held: tuple[Bounds | None, Arrays] = (None, self._arrays)
        self._margins: tuple[str, int, Margins] | None = None
        self._objective: tuple[Any, Any] = (None, None)

    def describe(self) -> Facts:
        """Return size and digest."""
        return self.facts

    def sums(self, bounds: Bounds | None, name: str, loss: bytes, *arguments: Any) -> Any:
        """Return what a question of the data source, all of whose answers are sums, gives for this shard."""
        return getattr(self._within(bounds), name)(unpickled(loss), *_owned(arguments))

    def objective(
        self, bounds: Bounds | None, setting: tuple[bytes, int, float], name: str, theta: Vector
    ) -> Any:
        """Return value, gradient or Hessian of the sum of the losses in float64."""
        key = (bounds, setting)
        if self._objective[0] != key:
            loss, outputs, z_max = setting
            self._objective = key, self._within(bounds).objective(unpickled(loss), outputs, z_max)
        return getattr(self._objective[1], name)(np.array(theta))

    def scores(
        self, bounds: Bounds | None, setting: tuple[bytes, int], update: Update, *arguments: Any
    ) -> Any:
        """Bring the margins up to date and return their scores, or `BEHIND` if moves are missing here."""
        key, version, margins = self._margins or (None, None, None)
        if update.before is None:
            loss, outputs = setting
            margins = self._within(bounds).follow(unpickled(loss), outputs)
            key, version = update.key, None
        if margins is None or key != update.key or version not in (update.before, update.after):
            return BEHIND
        if version != update.after:  # otherwise the answer was lost on its way, not the question
            for index, amount in update.moves:
                margins.add(index, amount)
        self._margins = update.key, update.after, margins
        return margins.scores(*arguments)

    def _within(self, bounds: Bounds | None) -> Arrays:
        """The records inside bounds that may be tighter than the door's."""
        if self._held[0] != bounds:
            self._held = bounds, self._arrays if bounds is None else self._arrays.within(bounds)
        return self._held[1]


@cache
def unpickled(loss: bytes) -> Loss:
    """A loss from its pickle: the same object each time, so that kernels find what they compiled for it."""
    from distributed.protocol.pickle import loads

    opened: Loss = loads(loss)
    return opened


def _owned(arguments: Sequence[Any]) -> list[Any]:
    """Arrays out of a message are read-only and at odd addresses; kernels want their own."""
    return [np.array(value) if isinstance(value, np.ndarray) else value for value in arguments]


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
