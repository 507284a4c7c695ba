"""Progress of longer work on the error stream: an updated line on a terminal, otherwise log lines."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Self

from dpcvx.words import duration

__all__ = ["CLEAR", "ProgressReport"]

FIRST = 1.5  # seconds before the first report
ON_TERMINAL, IN_LOG = 0.5, 5.0  # seconds between two reports
CLEAR = "\r\x1b[K"  # go to the start of the terminal's line and clear it


class ProgressReport:
    """Reports progress from public facts alone: the current step and the number of private answers.

    A thread writes the reports, because a single call, such as planning or reading a file, can take seconds.

    Parameters
    ----------
    name : str
        Name of the work.
    shown : bool
        Whether anything is shown.
    """

    def __init__(self, name: str, *, shown: bool = True) -> None:
        self._name, self._shown, self._text = name, shown, ""
        self._began = time.monotonic()
        self._begun: tuple[int, float] | None = None  # first count, and its time
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._speak, daemon=True)

    def step(self, text: str) -> None:
        """Set the current step."""
        self._text = text

    def count(self, done: int, total: int) -> None:
        """Set the number of private answers so far."""
        now = time.monotonic()
        if self._begun is None:
            self._begun = done, now
        first, since = self._begun
        left = ""
        if first < done < total:
            left = f", {duration((now - since) / (done - first) * (total - done))} left"
        self._text = f"{done:,} of {total:,} private answers{left}"

    def _speak(self) -> None:
        terminal, spoken = sys.stderr.isatty(), False
        pause = FIRST
        while not self._ended.wait(pause):
            pause, spoken = ON_TERMINAL if terminal else IN_LOG, True
            said = f"{self._name}: {self._text} ({time.monotonic() - self._began:.0f} s)"
            sys.stderr.write(f"{CLEAR}{said}" if terminal else f"{said}\n")
            sys.stderr.flush()
        if terminal and spoken:
            sys.stderr.write(CLEAR)
            sys.stderr.flush()

    def __enter__(self) -> Self:
        if self._shown:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop reporting, and leave a clean line."""
        self._ended.set()
        if self._shown:
            self._thread.join()
