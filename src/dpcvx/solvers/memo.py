"""Memoise functions of public facts, which planning asks for many times."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar

__all__ = ["forget", "memoised"]

Given = ParamSpec("Given")
Answer = TypeVar("Answer")
_MEMOS: list[Callable[[], None]] = []


def memoised(function: Callable[Given, Answer]) -> Callable[Given, Answer]:
    """Keep the last 256 answers of a function of frozen facts; facts without a hash are computed anew."""
    kept = lru_cache(maxsize=256)(function)
    _MEMOS.append(kept.cache_clear)

    @wraps(function)
    def answer(*args: Given.args, **kwargs: Given.kwargs) -> Answer:
        try:
            return kept(*args, **kwargs)  # type: ignore[arg-type]
        except TypeError:  # a set that holds arrays has no hash
            return function(*args, **kwargs)

    return answer


def forget() -> None:
    """Empty all memos: for tests that change a constant."""
    for clear in _MEMOS:
        clear()
