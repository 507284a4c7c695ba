"""Passes over ranges of records in threads: compiled kernels release Python's lock."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import pairwise
from threading import Thread
from typing import Any

__all__ = ["SLOPE_WORK", "cores", "in_threads"]

WORK_PER_THREAD = 2**19  # below this many products a thread costs more than it saves
SLOPE_WORK = 32  # a slope costs about so many products


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_threads(
    part: Callable[[int, int], Any],
    count: int,
    work: int,
    *,
    threads: int | None = None,
    largest: int | None = None,
) -> list[Any]:
    """Apply a function to ranges that cover 0..count, and return its answers in order.

    `part`: takes the two ends of a range.
    `count`: end of the last range.
    `work`: products in all; few are not worth a thread.
    `threads`: number of threads; by default one per core where the work is worth it.
    `largest`: length that no range exceeds.
    """
    threads = threads or max(1, min(cores(), work // WORK_PER_THREAD))
    threads = max(threads, 1 if largest is None else -(-count // largest))
    edges = [count * t // threads for t in range(threads + 1)]
    ranges = [(a, b) for a, b in pairwise(edges) if a < b]
    # Threads of its own for each pass, beside this one: nothing is left behind that a fork could lose.
    answers: list[Any] = [None] * len(ranges)
    failures: list[BaseException] = []

    def work_on(place: int) -> None:
        try:
            answers[place] = part(*ranges[place])
        except BaseException as failure:
            failures.append(failure)

    others = [Thread(target=work_on, args=(place,)) for place in range(1, len(ranges))]
    for other in others:
        other.start()
    if ranges:
        work_on(0)
    for other in others:
        other.join()
    if failures:
        raise failures[0]
    return answers
