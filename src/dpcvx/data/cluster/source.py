"""Sums over the shards of a cluster: a data source whose records are on workers.

Each question goes to every shard at once, and the answers are added: integers, so that it does not matter how
many shards there are, which of them answered first, or whether one was loaded again on another worker.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, TypeVar
from uuid import uuid4

import numpy as np

from dpcvx.accounting import WEIGHT
from dpcvx.arrays import IntVector, Vector
from dpcvx.data.cluster.partitions import Partitions, open_partitions
from dpcvx.data.cluster.worker_side import (
    BEHIND,
    UNMAPPED,
    Become,
    ObjectiveOf,
    Part,
    PickledLoss,
    Prepare,
    Request,
    ScoresOf,
    Step,
    SumOf,
    Update,
    load_part,
)
from dpcvx.data.cluster.workers import Call, RemoteShard, Workers, connect
from dpcvx.data.lattice import ResidualBound, exact_sum
from dpcvx.data.memory import Arrays
from dpcvx.data.objective import Objective
from dpcvx.data.quantise import Quantiser, targets
from dpcvx.data.sums import Sum
from dpcvx.losses import Loss
from dpcvx.problem import Bounds

__all__ = ["Distributed", "dask_source", "distribute"]

Answer = TypeVar("Answer")
Evaluation = Callable[[Objective, Vector], Any]


def dask_source(
    X: Any, y: Any, *, bounds: Bounds, layout: str = "rows", missing: float = math.nan, client: Any = None
) -> Distributed:
    """Clip and quantise records in scaled units on the workers: `dpcvx.source` for Dask collections.

    Parameters
    ----------
    X : dask.array.Array, shape (n, d), or dask.dataframe.DataFrame
        Records; they are clipped to the bounds, and cells that are not finite numbers count as 0.
    y : dask.array.Array or dask.dataframe.Series, shape (n,) or (n, K)
        Targets, labels -1 and 1, or class codes 0, 1, ... for a joint loss.
    bounds : Bounds
        Public bounds of one record.
    layout : {"rows", "columns"}
        "rows" serves gradients, "columns" Frank-Wolfe; the other is made when first needed.
    missing : float
        Value of a target that is not a finite number; by default NaN: the record is left out of the loss.
    client : distributed.Client or str, optional
        Client of the cluster, or its scheduler's address; by default the client that this process uses.

    Returns
    -------
    Distributed
        The data source; ``close`` lets the workers forget it.
    """
    connection = connect(client)
    prepare = partial(_scaled, bounds, missing)
    partitions = open_partitions(X, y, None, connection)
    return distribute(partitions, prepare, bounds=bounds, layout=layout, client=connection)


def _scaled(bounds: Bounds, missing: float, X: Any, y: Any) -> Part:
    return Part(Quantiser(bounds).quantise(X), targets(y, bounds.y, missing))


def distribute(
    partitions: Partitions,
    prepare: Prepare,
    *,
    bounds: Bounds,
    layout: str,
    client: Any,
    units: int | None = None,
) -> Distributed:
    """Load partitions into shards, one for each worker, and return the source that asks them.

    `prepare`: from raw rows and targets of a partition to stored rows and targets in scaled units; it is
    pickled; `bounds`: what it enforces on stored rows; `layout`: {"rows", "columns"}; `units`: number of
    persons, where the partitions know the persons of their rows.
    """
    workers = Workers(client)
    threads = workers.wait_for_any()
    shards = [
        RemoteShard(
            workers, number, partial(_load, partitions, group, prepare, client), (bounds, layout, units)
        )
        for number, group in enumerate(partitions.groups(len(threads)))
    ]
    source = Distributed(shards, units=units)
    try:
        for shard, address in zip(shards, sorted(threads), strict=False):
            shard.begin(address, threads[address])
        for shard in shards:
            shard.finish()
    except BaseException:
        source.close()
        raise
    return source


def _load(partitions: Partitions, group: slice, prepare: Prepare, client: Any, address: str) -> list[Any]:
    """Futures of the stored rows and targets of some partitions, on one worker while it is there."""
    from dask import delayed

    # Bound beforehand: as an argument Dask would look for collections inside of it.
    tasks = [
        delayed(partial(load_part, prepare, split), pure=False)(*raw)
        for split, raw in zip(partitions.splits[group], partitions.raw[group], strict=True)
    ]
    # Dask keeps the wish for tasks that shards share, so for a worker that is lost it must not be an order.
    futures: list[Any] = client.compute(tasks, workers=[address], allow_other_workers=True)
    return futures


class Distributed:
    """Records in shards on the workers of a cluster.

    `shards`: in the order of the records; `steps`: public maps applied to the quantised records; `d`: number
    of features after them; `units`: number of persons, where records have persons; that of records is then
    private.
    """

    def __init__(
        self,
        shards: Sequence[RemoteShard],
        steps: tuple[Step, ...] = (),
        d: int | None = None,
        units: int | None = None,
    ) -> None:
        self._shards, self._steps, self._d, self._units = shards, steps, d, units
        self._pickles: dict[Loss, PickledLoss] = {}

    @property
    def n(self) -> int:
        """Number of records, or of persons."""
        return sum(shard.facts.n for shard in self._shards) if self._units is None else self._units

    @property
    def weight(self) -> int:
        """Largest sum of the weights of a person: 1 where rows have none."""
        return 1 if self._units is None else WEIGHT

    @property
    def d(self) -> int:
        """Number of stored features."""
        return self._shards[0].facts.d if self._d is None else self._d

    def close(self) -> None:
        """Have the cluster forget the shards."""
        for shard in self._shards:
            shard.release()

    def within(self, bounds: Bounds) -> Distributed:
        """Return these records with every stored row inside the bounds: a longer one is shrunk."""
        return self._through(partial(_within, bounds))

    def mapped(
        self, quantiser: Quantiser | None, center: float | Vector, scale: float | Vector
    ) -> Distributed:
        """Return these records with rows quantised again and targets (y - center)/scale, a public map."""
        return self._through(partial(_mapped, quantiser, center, scale))

    def sum(self, question: Sum[Answer]) -> Answer:
        """Return an exact sum over all records, each worker's part where its records are."""
        question.check(self.d)
        loss = getattr(question, "loss", None)
        pickled = None if loss is None else self._pickled(loss)
        if self._units is None:
            ends = pairwise([0, *accumulate(shard.facts.n for shard in self._shards)])
            asked = [question.among(*each) for each in ends]
        else:  # a sample names persons, who may have rows in every shard
            asked = [question] * len(self._shards)
        parts = self._ask_all([SumOf(_without_loss(each), pickled) for each in asked])
        return question.add(parts, self.n)

    def objective(self, loss: Loss, outputs: int, z_max: float) -> DistributedObjective:
        """Return the sum of the losses in float64, for minimisers that run on the driver."""
        return DistributedObjective(self, (self._pickled(loss), outputs, z_max))

    def follow(self, loss: Loss, outputs: int) -> MarginsOnCluster:
        """Return margins that start at w = 0."""
        return MarginsOnCluster(self, (self._pickled(loss), outputs))

    def each(self, request: Request) -> list[Any]:
        """Ask every shard the same."""
        return self._ask_all([request] * len(self._shards))

    def ask_one(self, place: int, request: Request) -> Any:
        """Ask one shard; one that was loaded again goes through the steps first."""
        shard, key = self._shards[place], self._key
        while _is(answer := Call(shard, (key, request)).answer(), UNMAPPED):
            Call(shard, ("", Become(self._steps))).answer()
        return answer

    @property
    def _key(self) -> str:
        return self._steps[-1].key if self._steps else ""

    def _ask_all(self, requests: list[Request]) -> list[Any]:
        calls = [
            Call(shard, (self._key, request)) for shard, request in zip(self._shards, requests, strict=True)
        ]
        answers = [call.answer() for call in calls]
        return [
            self.ask_one(place, requests[place]) if _is(answer, UNMAPPED) else answer
            for place, answer in enumerate(answers)
        ]

    def _through(self, change: Callable[[Arrays], Arrays]) -> Distributed:
        """Take the records through one more step, on all workers at once."""
        steps = (*self._steps, Step(uuid4().hex, change))
        calls = [Call(shard, ("", Become(steps))) for shard in self._shards]
        facts = [call.answer() for call in calls]
        return Distributed(self._shards, steps, facts[0].d, self._units)

    def _pickled(self, loss: Loss) -> PickledLoss:
        if loss not in self._pickles:
            self._pickles[loss] = PickledLoss.of(loss)
        return self._pickles[loss]


def _within(bounds: Bounds, records: Arrays) -> Arrays:
    return records.within(bounds)


def _mapped(
    quantiser: Quantiser | None, center: float | Vector, scale: float | Vector, records: Arrays
) -> Arrays:
    return records.mapped(quantiser, center, scale)


def _without_loss(question: Any) -> Any:
    """The question as it travels: its loss goes beside it, pickled once."""
    return replace(question, loss=None) if hasattr(question, "loss") else question


def _is(answer: Any, word: str) -> bool:
    """Say whether an answer is this word and no sum."""
    return isinstance(answer, str) and answer == word


class DistributedObjective:
    """sum_i phi(<x_i, theta>, y_i) over shards, in float64; see `dpcvx.data.Objective`.

    A shard's part is a pairwise sum over its blocks of rows, and the parts are added pairwise too, so that
    the whole is as close to the exact sum as `dpcvx.mechanisms.minimise.RidgeFacts.rounding` says.
    """

    def __init__(self, records: Distributed, setting: tuple[PickledLoss, int, float]) -> None:
        self.n, self.d = records.n, records.d
        self._records, self._setting = records, setting

    def value(self, theta: Vector) -> float:
        """Return the sum at theta."""
        return float(np.sum(self._parts(Objective.value, theta)))

    def gradient(self, theta: Vector) -> Vector:
        """Return the gradient at theta, in its shape."""
        return self._total(Objective.gradient, theta)

    def hessian(self, theta: Vector) -> Vector:
        """Return X^T diag(phi'') X for one output."""
        return self._total(Objective.hessian, theta)

    def _parts(self, part: Evaluation, theta: Vector) -> list[Any]:
        return self._records.each(ObjectiveOf(self._setting, part, theta))

    def _total(self, part: Evaluation, theta: Vector) -> Vector:
        # NumPy sums pairwise along the fast axis.
        total: Vector = np.ascontiguousarray(np.stack(self._parts(part, theta), axis=-1)).sum(axis=-1)
        return total


class MarginsOnCluster:
    """Margins of every shard's records, for public integer weights that the driver keeps too.

    Moves wait until the next scores and travel with the question. A shard that missed some, because it was
    loaded again meanwhile, says so and is sent all weights.
    """

    def __init__(self, records: Distributed, setting: tuple[PickledLoss, int]) -> None:
        self._records, self._setting = records, setting
        self._key = uuid4().hex
        self._version: int | None = None
        self._weights: dict[int, int] = {}
        self._moves: list[tuple[int, int]] = []
        self._count = 0

    def reset(self) -> None:
        """Set w = 0."""
        self._weights, self._moves, self._version = {}, [], None

    def add(self, index: int, amount: int) -> None:
        """w[index] += amount, with index = j * outputs + k."""
        size = self._records.d * self._setting[1]
        if not 0 <= index < size:
            raise IndexError(f"index must be in 0..{size - 1}, got {index}.")
        self._weights[index] = self._weights.get(index, 0) + amount
        self._moves.append((index, amount))

    def scores(self, scale: float, bound: ResidualBound) -> IntVector:
        """Return sum_i rho_i k_ij, (d,) or (d, K), with rho_i the residual at z_i = m_i * scale."""
        self._count += 1
        whole = Update(self._key, None, self._count, tuple(self._weights.items()))
        update = whole
        if self._version is not None:
            update = Update(self._key, self._version, self._count, tuple(self._moves))
        parts = self._records.each(ScoresOf(self._setting, update, scale, bound))
        again = ScoresOf(self._setting, whole, scale, bound)
        parts = [
            self._records.ask_one(place, again) if _is(part, BEHIND) else part
            for place, part in enumerate(parts)
        ]
        self._version, self._moves = self._count, []
        return exact_sum(parts, self._records.n, bound)
