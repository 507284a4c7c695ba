"""Settings of every test."""

import os
from collections import defaultdict
from itertools import combinations
from typing import Any

# Threads of OpenBLAS wait for each other by spinning: small products of two test processes on two cores took
# five times the CPU time. Set before NumPy is imported; processes that tests start inherit it.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
from hypothesis import settings

MANY = 12  # combinations of parameters, from which on the quick suite runs a part

# The same examples in every run: a failure found once is a failure found always. "varied" takes a seed, for
# tests/planted/clean_runs.py.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("varied", derandomize=False, deadline=None, database=None)
settings.load_profile(os.environ.get("DPCVX_HYPOTHESIS", "repeatable"))


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave to the long suite most combinations of tests with several parameters.

    Of `MANY` combinations or more the quick suite runs enough that every pair of values appears
    that some combination has.
    """
    families: dict[str, list[pytest.Function]] = defaultdict(list)
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec") and not _is_apart(item):
            families[item.nodeid.split("[", 1)[0]].append(item)
    for family in families.values():
        if len(family) >= MANY:
            # The parts of an id name values, also where one parameter holds a tuple of them.
            named = [list(enumerate(item.callspec.id.split("-"))) for item in family]
            kept = _covering([{*values, *combinations(values, 2)} for values in named])
            for place in set(range(len(family))) - kept:
                family[place].add_marker("long")


def _is_apart(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) for name in ("long", "slow"))


def _covering(cases: list[set[Any]]) -> set[int]:
    """Return places of cases that together contain what all contain, those with most that is new first."""
    missing, kept = set().union(*cases), set()
    while missing:
        best = max(range(len(cases)), key=lambda place: len(cases[place] & missing))
        kept.add(best)
        missing -= cases[best]
    return kept
