"""Events of any declared size are priced in little time and memory, or refused."""

import resource
import time
from pathlib import Path

import pytest

from dpcvx import Ledger
from dpcvx.accounting import PLD, RDP, AdaptiveSelection, PureComposition, Tight
from dpcvx.errors import NotAccountable, WrongValue
from dpcvx.events import (
    LARGEST_COUNT,
    ApproxDP,
    Compose,
    Exponential,
    Gaussian,
    PerturbedObjective,
    Poisson,
    PureDP,
    Repeat,
    RepeatAndSelect,
    Worst,
    count_leaves,
    from_plain,
    to_plain,
)

MANY = 10**15
LEAVES = [
    Gaussian(1e9),
    Exponential(1e-20),
    PureDP(1e-20),
    ApproxDP(1e-20, 1e-30),
    Poisson(1e-9, 1e3),
    Poisson(0.5, 50.0),
    PerturbedObjective(1e-9, 1e-20),
    Worst((Gaussian(1e9), PureDP(1e-20))),
    RepeatAndSelect(Gaussian(1e9), 5.0, 1.0),
]


@pytest.fixture(autouse=True)
def little_memory():
    """Fail where a price needs gigabytes, instead of taking the machine with it."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2 * 2**30, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, limits)


@pytest.mark.parametrize("leaf", LEAVES, ids=str)
def test_a_huge_count_is_priced_at_once(leaf):
    """A PureDP release 10^15 times asked for petabytes, one entry for each possible loss."""
    event = Repeat(leaf, MANY)
    started = time.perf_counter()
    for accountant in (Tight(), RDP(), PureComposition(), AdaptiveSelection(), PLD()):
        if accountant.supports(event):
            few = accountant.epsilon(Repeat(leaf, 10), 1e-6)
            assert accountant.epsilon(event, 1e-6) >= few * (1 - 1e-9)
            assert 0 <= accountant.delta(event, 0.5) <= 1
    assert time.perf_counter() - started < 20


def test_the_price_of_many_pure_releases_is_at_most_their_sum():
    assert 0 < Tight().epsilon(Repeat(PureDP(1e-20), MANY), 1e-12) <= 1e-5 * (1 + 1e-12)
    assert Tight().epsilon(Repeat(PureDP(1e-3), 10**7), 1e-6) < 30  # far below the sum, 10^4
    assert PureComposition().delta(Repeat(PureDP(1e-3), 10**7), 1.0) == 1.0


@pytest.mark.parametrize("count", [pytest.param(10**5, marks=pytest.mark.long), 10**6, 10**8, 10**10])
def test_hopeless_samples_are_called_so_without_their_distribution(count):
    started = time.perf_counter()
    assert PLD().epsilon(Repeat(Poisson(0.01, 0.5), count), 1e-4) > 5
    assert time.perf_counter() - started < 20


def test_huge_charges_are_granted_or_refused(tmp_path):
    account = Ledger(tmp_path / "ledger.db").create("people", epsilon=1.0, delta=1e-6)
    account.charge(Repeat(PureDP(1e-20), MANY), purpose="tiny")
    assert 0 < account.used < 1e-4
    assert account.ledger.verify().entries == 2


def nested(make, depth):
    event = Gaussian(1.0)
    for _ in range(depth):
        event = make(event)
    return event


@pytest.mark.parametrize(
    ("make", "depth"),
    [
        (lambda event: Compose((event,)), 100_000),
        (lambda event: Repeat(event, 1), 100_000),
        (lambda event: Worst((event,)), 100_000),
        (lambda event: RepeatAndSelect(event, 2.0), 100_000),
        (lambda event: Compose((event, event)), 50),
        (lambda event: Worst((event, event)), 50),
        (lambda event: Repeat(event, 10**9), 3),
    ],
    ids=["compose", "repeat", "worst", "select", "doubling", "doubling worst", "product of counts"],
)
@pytest.mark.long
def test_deep_and_exploding_events_are_refused(make, depth, tmp_path):
    event = nested(make, depth)
    started = time.perf_counter()
    with pytest.raises(NotAccountable, match="at most"):
        count_leaves(event)
    with pytest.raises(NotAccountable, match="at most"):
        to_plain(event)
    with pytest.raises(NotAccountable, match="at most"):
        Tight().epsilon(event, 1e-6)
    account = Ledger(tmp_path / "ledger.db").create("people", epsilon=1.0, delta=1e-6)
    with pytest.raises(NotAccountable, match="at most"):
        account.charge(event, purpose="x")
    assert account.history() == ()
    assert time.perf_counter() - started < 20
    while not isinstance(event, Gaussian):  # taken apart, because freeing it at once would recurse
        event = getattr(event, "event", None) or event.events[0]


def test_descriptions_of_huge_events_are_refused():
    with pytest.raises(WrongValue, match="count"):
        Repeat(Gaussian(1.0), LARGEST_COUNT + 1)
    with pytest.raises(WrongValue, match="count"):
        from_plain({"event": "Repeat", "count": 10**4000, "of": {"event": "PureDP", "epsilon": 1.0}})
    content = {"event": "PureDP", "epsilon": 1.0}
    for _ in range(5000):
        content = {"event": "Compose", "events": [content]}
    with pytest.raises(WrongValue, match="deeply"):
        from_plain(content)
