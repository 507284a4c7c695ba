"""Memoise functions of public facts, which planning asks for many times."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar

__all__ = ["memoised"]

Given = ParamSpec("Given")
Answer = TypeVar("Answer")


def memoised(function: Callable[Given, Answer]) -> Callable[Given, Answer]:
    """Keep the last 256 answers of a function of frozen facts; facts without a hash are computed anew."""
    kept = lru_cache(maxsize=256)(function)

    @wraps(function)
    def answer(*args: Given.args, **kwargs: Given.kwargs) -> Answer:
        try:
            return kept(*args, **kwargs)  # type: ignore[arg-type]
        except TypeError:  # a set that holds arrays has no hash
            return function(*args, **kwargs)

    return answer
