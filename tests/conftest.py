"""Settings of every test."""

import hashlib
import os
from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations, count
from typing import Any

# Threads of OpenBLAS wait for each other by spinning: small products of two test processes on two cores took
# five times the CPU time. Set before NumPy is imported; processes that tests start inherit it.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
from hypothesis import settings

MANY = 12  # combinations of parameters, from which on the quick suite runs a part

# The same examples and the same noise in every run: a failure found once is a failure found always. "varied"
# is for tests/planted/clean_runs.py, which looks for tests that fail with other examples or other noise.
RANDOMNESS = os.environ.get("DPCVX_RANDOMNESS", "repeatable")
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("varied", derandomize=False, deadline=None, database=None)
settings.load_profile(RANDOMNESS)


class RepeatableKeys:
    """Stands for ``os`` where noise gets its keys: they follow from the test and from how many it has drawn.

    Keys of a forked process also follow from its number: it never has the noise of its parent.
    """

    def __init__(self) -> None:
        self.begin("collection")

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def begin(self, name: str) -> None:
        self._name, self._drawn, self._process = name, count(), os.getpid()

    def urandom(self, n: int) -> bytes:
        child = "" if os.getpid() == self._process else os.getpid()
        return hashlib.shake_256(f"{self._name} {next(self._drawn)} {child}".encode()).digest(n)


if RANDOMNESS == "repeatable":
    from dpcvx.noise import generators

    KEYS = generators.os = RepeatableKeys()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Iterator[None]:
        # Not the test that is the first to need it: with two processes this is not always the same.
        KEYS.begin(f"{request.node.nodeid}::{fixturedef.argname} {getattr(request, 'param_index', 0)}")
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
        KEYS.begin(item.nodeid)
        return (yield)


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
