"""The worker's side: partitions become integers where they are, and a shard answers with sums over them.

Nothing here raises: Dask writes exceptions, and the arguments of what raised them, into logs. An error
comes back as a `Failure`, which says no more than the kind of the exception.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, Protocol

import numpy as np

from dpcvx.arrays import Vector
from dpcvx.data.lattice import ResidualBound
from dpcvx.data.memory import Arrays
from dpcvx.data.objective import Objective
from dpcvx.data.rows import Dense, Sparse
from dpcvx.data.source import Margins
from dpcvx.errors import DpcvxError, Incompatible, WrongType, WrongValue
from dpcvx.losses import Loss
from dpcvx.problem import Bounds

BEHIND = "behind"  # answer of a shard whose margins are older than an update
UNMAPPED = "unmapped"  # answer of a shard whose records did not yet go through a map

Part = tuple[Dense | Sparse, Vector | None]
Prepare = Callable[[Any, Any], Part]


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


def load_part(prepare: Prepare, target: Any, X: Any, y: Any = None) -> Part | Failure:
    """Clip and quantise one partition.

    `prepare`: from raw rows and targets to stored rows and targets in scaled units; `target`: column(s) of X
    that hold the targets; None where y does; `X`, `y`: raw partition.
    """

    def load() -> Part:
        part = prepare(X, y) if target is None else prepare(X.drop(columns=target), X[target])
        if part[1] is not None and len(part[1]) != part[0].shape[0]:
            raise Incompatible("a partition of X has another number of rows than the one of y")
        return part

    result: Part | Failure = guard(load)
    return result


class Shard:
    """Records that one worker keeps: an actor, asked through `ask` alone.

    `parts`: quantised partitions on this worker; `bounds`: bounds of a quantised row; `layout`: {"rows",
    "columns"}; `threads`: threads of a pass: the worker's own.
    """

    def __init__(self, parts: list[Any], bounds: Bounds, layout: str, threads: int) -> None:
        failures = [part for part in parts if isinstance(part, Failure)]
        self._state: State | Failure = (
            failures[0] if failures else guard(State, parts, bounds, layout, threads)
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

    def __init__(self, parts: list[Any], bounds: Bounds, layout: str, threads: int) -> None:
        rows, targets = _stacked(parts)
        self.digest = _digest(rows, targets)
        self.steps: list[str] = []
        self.margins: tuple[str, int, Margins] | None = None
        self.objective: tuple[Any, Any] = (None, None)
        self.records = {"": Arrays(rows, targets, bounds=bounds, layout=layout, threads=threads)}


@cache
def _unpickled(content: bytes) -> Loss:
    from distributed.protocol.pickle import loads

    loss: Loss = loads(content)
    return loss


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
