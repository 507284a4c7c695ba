"""Answers of a run: one for each query, read from the checkpoint or drawn with fresh noise."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from dpcvx.errors import Incompatible, WrongValue
from dpcvx.noise import SeededGenerator
from dpcvx.plans.checkpoint import decode, digest, encode

if TYPE_CHECKING:
    from dpcvx.noise import Generator
    from dpcvx.plans.checkpoint import CheckpointFile

__all__ = ["Answers"]

PAUSE = 1.0  # seconds between two parts of a checkpoint; a ledger's note takes about a hundredth of one
SHARE = 0.01  # smallest pause between two parts as a share of the time so far: long runs write less often
LARGEST_PART = 2**26  # characters


class Answers:
    """Answers each query of a run once, and stores the answer before anybody sees it.

    Parameters
    ----------
    rng : Generator
        Source of the noise. A seeded one, for tests, starts a new part of its sequence for each query, so
        that a continued run draws the same noise as an uninterrupted one.
    file : CheckpointFile, optional
        Where answers are stored; None stores nothing.
    pause : float
        Seconds for which answers may wait in memory for the next part of the file.
    """

    rng: Generator
    file: CheckpointFile | None

    def __init__(self, rng: Generator, file: CheckpointFile | None = None, *, pause: float = 0.0) -> None:
        self.rng, self.file, self._pause = rng, file, pause
        self._stored: list[tuple[str, Any]] = []
        self._waiting: list[str] = []
        self._size, self._next = 0, 0
        self._began = self._written = time.monotonic()

    @property
    def waiting(self) -> int:
        """Number of answers that are not stored yet; 0 without a file."""
        return len(self._waiting)

    @property
    def count(self) -> int:
        """Number of questions that were answered."""
        return self._next

    def recall(self) -> None:
        """Read the stored answers; call this after the run is charged."""
        if self.file is None:
            return
        for part in self.file.parts():
            try:
                self._stored += [(asked, answer) for asked, answer in json.loads(part)]
            except (TypeError, ValueError):
                raise WrongValue(f"{self.file.path} is no checkpoint, or it is damaged.") from None

    @property
    def replays(self) -> bool:
        """Whether the next question has a stored answer."""
        return self._next < len(self._stored)

    def give(self, question: tuple[Any, ...], draw: Callable[[Generator], Any]) -> Any:
        """Return the answer to a question.

        Parameters
        ----------
        question : tuple
            Place in the plan, and the public arguments.
        draw : callable
            Draws a fresh answer with a generator; it is not called if a stored one is returned.
        """
        number = self._next
        self._next += 1
        if self.file is None:
            return draw(self.rng)
        asked = digest(encode(question))
        if number < len(self._stored):
            before, answer = self._stored[number]
            if before != asked:
                raise Incompatible(
                    f"Query {number + 1} differs from that of the checkpoint {self.file.path}: another "
                    "version of dpcvx, or a machine with different arithmetic, began it. Continue it there."
                )
            return decode(answer)
        if isinstance(self.rng, SeededGenerator):
            self.rng.jump(number)
        answer = encode(draw(self.rng))
        self._waiting.append(json.dumps([asked, answer]))
        self._size += len(self._waiting[-1])
        now = time.monotonic()
        due = self._written + (self._pause and max(self._pause, SHARE * (now - self._began)))
        if now >= due or self._size > LARGEST_PART:
            self.store()
        return decode(answer)  # the same bits and type that a continued run will read

    def store(self) -> None:
        """Store the answers that are waiting; they are durable when it returns."""
        waiting, self._waiting, self._size = self._waiting, [], 0  # a part is written once, or lost
        if self.file is not None and waiting:
            self.file.append(f"[{','.join(waiting)}]".encode())
        self._written = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Store what is waiting, whatever ended the run, and close the file."""
        if self.file is None:
            return
        try:
            self.store()
        finally:
            self.file.close()
