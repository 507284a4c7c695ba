"""The driver's side: which workers there are, where each shard is, and what happens when one is lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from dpcvx import __version__
from dpcvx.data.cluster.worker_side import Describe, Failure, Shard, ShardFacts
from dpcvx.errors import ClusterFailed, Incompatible, WrongType

__all__ = ["Call", "RemoteShard", "Workers", "connect"]

LOOK_AGAIN = 1.0  # seconds between two looks at whether a silent worker is still there
SPARE_WAIT = 15.0  # seconds to wait for a worker of its own for a lost shard, before it goes to another's
WORKER_WAIT = 120.0  # seconds to wait for any worker at all
LOADS = 3  # a shard that took its worker along so many times in a row is given up

REMAINS = "Nothing was released; what was charged stays charged."


class _WorkerLost(Exception):  # noqa: N818
    """A worker was lost during a request."""


def connect(client: Any) -> Any:
    """Return a client of a Dask cluster.

    `client`: a client, a scheduler's address, or None for the client that this process uses.
    """
    try:
        from distributed import Client, default_client
    except ImportError:
        raise Incompatible("A cluster needs Dask: pip install 'dpcvx[dask]'.") from None
    if client is None:
        try:
            client = default_client()
        except ValueError:
            raise Incompatible(
                "There is no Dask client: connect first, client = dask.distributed.Client(address), or give "
                "from_dask(..., client=address)."
            ) from None
    elif isinstance(client, str):
        try:
            client = Client(client, set_as_default=False)
        except (OSError, ValueError) as error:
            raise Incompatible(f"No Dask scheduler answers at {client!r} ({type(error).__name__}).") from None
    if not isinstance(client, Client):
        raise WrongType(f"client must be a Dask client, an address or None, got {type(client).__name__}.")
    if client.asynchronous:
        raise Incompatible("An asynchronous Dask client cannot be waited for here: give a plain one.")
    return client


class Workers:
    """Workers of a Dask cluster that have this version of the package, and the shards that each has."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.homes: dict[int, str] = {}
        self._checked: set[str] = set()

    def present(self) -> dict[str, int]:
        """Number of threads of each worker that the scheduler knows now, by address."""
        try:
            threads: dict[str, int] = self.client.nthreads()
        except (OSError, RuntimeError, ValueError) as error:
            raise ClusterFailed(
                f"The Dask scheduler does not answer ({type(error).__name__}). {REMAINS}"
            ) from None
        return threads

    def wait_for_any(self) -> dict[str, int]:
        """Return the threads of each worker as soon as there is one."""
        deadline = time.monotonic() + WORKER_WAIT
        while not (threads := self.present()):
            if time.monotonic() > deadline:
                raise ClusterFailed(f"The Dask cluster has had no worker for {WORKER_WAIT:g} s. {REMAINS}")
            time.sleep(LOOK_AGAIN / 4)
        self._check(sorted(set(threads) - self._checked))
        return threads

    def choose(self) -> tuple[str, int]:
        """Return address and threads of a worker for a shard: one without any, or else with the fewest."""
        deadline = time.monotonic() + SPARE_WAIT
        taken = list(self.homes.values())  # a lost worker too: the scheduler may not have noticed yet
        while True:
            threads = self.wait_for_any()
            address = min(threads, key=lambda each: (taken.count(each), each))
            if address not in taken or time.monotonic() > deadline:
                return address, threads[address]
            time.sleep(LOOK_AGAIN / 4)

    def _check(self, addresses: list[str]) -> None:
        """Refuse workers that could not answer, or not alike."""
        if not addresses:
            return

        def version() -> str:  # local, so that it travels by value: a worker may have no dpcvx to find it in
            import dpcvx

            return dpcvx.__version__

        found = self.client.run(version, workers=addresses, on_error="return")
        for address, answer in found.items():
            if isinstance(answer, ImportError):
                raise Incompatible(
                    f"The Dask worker {address} cannot import dpcvx ({type(answer).__name__}): install "
                    f"dpcvx=={__version__} where the workers run."
                )
            if isinstance(answer, str) and answer != __version__:
                raise Incompatible(
                    f"The Dask worker {address} has dpcvx {answer}, this process has {__version__}: install "
                    f"dpcvx=={__version__} where the workers run."
                )
            if isinstance(answer, str):  # anything else: it left meanwhile
                self._checked.add(address)


class Call:
    """A request sent to a shard; `answer` waits for it, and repeats it on another worker if one is lost."""

    def __init__(self, shard: RemoteShard, question: tuple[Any, ...]) -> None:
        self._shard, self._question = shard, question
        self._pending = shard.send(question)

    def answer(self) -> Any:
        """Return the shard's answer."""
        for _ in range(LOADS):
            try:
                return self._shard.receive(self._pending)
            except _WorkerLost:
                self._shard.reload()
                self._pending = self._shard.send(self._question)
        raise ClusterFailed(
            f"A shard was lost with its worker {LOADS} times while it answered one question. {REMAINS}"
        )


class RemoteShard:
    """A shard, wherever it is; loaded again from the graph of its partitions when its worker is lost.

    `number`: its own number among the shards; `load`: from a worker's address to futures of the parts there;
    `settings`: further arguments of `Shard`, its threads excepted.
    """

    def __init__(
        self, workers: Workers, number: int, load: Callable[[str], list[Any]], settings: tuple[Any, ...]
    ) -> None:
        self._workers, self._number, self._load, self._settings = workers, number, load, settings
        self._loading: Any = None  # future of the actor
        self._parts: list[Any] = []  # futures of what it is made of
        self._actor: Any = None
        self._facts: ShardFacts | None = None

    @property
    def facts(self) -> ShardFacts:
        """Size and digest; private."""
        if self._facts is None:
            raise ClusterFailed(f"A shard was asked before it was loaded. {REMAINS}")
        return self._facts

    def begin(self, address: str, threads: int) -> None:
        """Have a worker load the shard."""
        self._workers.homes[self._number] = address
        self._parts = self._load(address)
        self._loading = self._workers.client.submit(
            Shard, self._parts, *self._settings, threads, actor=True, workers=[address], pure=False
        )

    def finish(self) -> None:
        """Wait until the shard is loaded; load it elsewhere where its worker is lost meanwhile."""
        for attempt in range(LOADS):
            try:
                return self._finish()
            except _WorkerLost:
                self.release()
                if attempt < LOADS - 1:
                    self.begin(*self._workers.choose())
        raise ClusterFailed(
            f"A shard was lost with its worker {LOADS} times while it was loaded: give the workers more "
            f"memory, or use more of them. {REMAINS}"
        )

    def reload(self) -> None:
        """Load the shard on another worker."""
        self.release()
        self.begin(*self._workers.choose())
        self.finish()

    def release(self) -> None:
        """Have the cluster forget the shard; what Dask still refers to by itself does not keep it."""
        if self._loading is not None:
            with suppress(OSError, RuntimeError, ValueError):  # a scheduler that is gone has forgotten it too
                self._workers.client.cancel([self._loading, *self._parts])
        self._loading, self._parts, self._actor = None, [], None

    def send(self, question: tuple[Any, ...]) -> Any:
        """Start a question; None where the worker is known to be lost already."""
        try:
            return self._actor.ask(*question)
        except RuntimeError:  # Dask's word for an actor whose worker left
            return None

    def receive(self, pending: Any) -> Any:
        """Return the answer to a question that was started."""
        while pending is not None:
            try:
                answer = pending.result(timeout=LOOK_AGAIN)
            except Exception:  # a shard raises nothing, so this is a silent worker or a broken connection
                # Dask may wait for ever for the answer of a worker that is gone.
                if pending.done() or not self._present():
                    break
                continue
            if isinstance(answer, Failure):
                raise ClusterFailed(f"A Dask worker could not answer ({answer.words}). {REMAINS}")
            return answer
        raise _WorkerLost

    def _present(self) -> bool:
        """Say whether the scheduler still knows the worker of this shard."""
        return self._workers.homes[self._number] in self._workers.present()

    def _finish(self) -> None:
        from distributed import wait

        loading = self._loading
        while not loading.done():
            try:
                wait([loading], timeout=LOOK_AGAIN)
            except TimeoutError:
                if not self._present():
                    raise _WorkerLost from None
        if loading.status == "error":
            # An exception of the user's own graph may quote a cell, so it is not shown.
            kind = type(loading.exception()).__name__
            if kind == "KilledWorker":
                raise _WorkerLost
            raise ClusterFailed(
                f"A partition could not be loaded: the Dask graph that makes it raised {kind}. Its words "
                f"may quote records and are in the worker's log alone. {REMAINS}"
            )
        if loading.status != "finished":
            raise _WorkerLost
        self._actor = loading.result()
        facts = self.receive(self.send(("", Describe())))
        if self._facts is not None and facts != self._facts:
            raise ClusterFailed(
                "A shard that was loaded again is not what it was: the Dask graph of the data must give the "
                f"same rows each time, and its files must not change during a fit. {REMAINS}"
            )
        self._facts = facts
        while self._parts:  # the actor has its own copy
            self._parts.pop().release()
