"""Clocks that jump: charges keep the order of the ledger, and nothing is lost, refused or spent twice."""

import datetime
import time
from types import SimpleNamespace

import numpy as np
import pytest

from dpcvx import Ledger, PrivateLogisticRegression
from dpcvx.errors import BudgetExceeded
from dpcvx.events import ApproxDP
from dpcvx.ledger import chain
from dpcvx.service.database import ServiceDatabase
from dpcvx.service.history import DAY, MINUTE, QueryHistory
from dpcvx.service.keys import Keys
from dpcvx.service.refusal import Refusal

YEAR = 365 * DAY
JUMPS = (0, 10 * YEAR, -20 * YEAR, 1, -1, 0)


@pytest.fixture
def clock(monkeypatch):
    """A clock that tests set, for all parts that read the time of day."""
    began, offset = time.time(), SimpleNamespace(seconds=0.0)

    class Moved(datetime.datetime):
        @classmethod
        def now(cls, zone=None):
            return cls.fromtimestamp(began + offset.seconds, zone)

    monkeypatch.setattr(time, "time", lambda: began + offset.seconds)
    monkeypatch.setattr(chain, "datetime", Moved)
    return offset


def test_charges_follow_each_other_whatever_the_clock_says(tmp_path, clock):
    ledger = Ledger(tmp_path / "ledger.db", witness=tmp_path / "witness")
    account = ledger.create("people", epsilon=0.06, delta=1e-6)
    for k, jump in enumerate(JUMPS):
        clock.seconds = jump
        account.charge(ApproxDP(0.01, 0.0), purpose=f"charge {k}", key=f"k{k}")
        account.store(f"k{k}", b"answer")
    assert [entry.purpose for entry in account.history()] == [f"charge {k}" for k in range(len(JUMPS))]
    times = [entry.time for entry in account.history()]
    assert times != sorted(times)  # the clock did jump
    for jump in JUMPS:
        clock.seconds = jump
        ledger.verify()
        assert account.charge(ApproxDP(0.01, 0.0), purpose="charge 0", key="k0").answer == b"answer"
        with pytest.raises(BudgetExceeded):
            account.charge(ApproxDP(0.01, 0.0), purpose="more")
    assert account.used == 1.0


def test_a_fit_and_its_continuation_are_one_charge_whatever_the_clock_says(tmp_path, clock):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (100, 2))
    account = Ledger(tmp_path / "ledger.db").create("people", epsilon=2.0, delta=1e-5)
    settings = {"epsilon": 1.0, "delta": 1e-6, "bounds": (-1, 1), "classes": (0, 1), "n_iter": 3}
    settings |= {"ledger": tmp_path / "ledger.db", "account": "people", "standardize": False}
    settings["solver"] = "gradient_descent"
    coefficients = []
    for jump in (0, -20 * YEAR, 10 * YEAR):
        clock.seconds = jump
        model = PrivateLogisticRegression(**settings)
        model.fit(X, X[:, 0] > 0, checkpoint=tmp_path / "fit.checkpoint")
        coefficients.append(model.coef_)
    assert len(account.history()) == 1
    assert all(np.array_equal(each, coefficients[0]) for each in coefficients)


def test_a_clock_that_was_set_back_does_not_lock_a_key(tmp_path, clock):
    """Queries of a wrong future counted as recent ones until that future came."""
    Ledger(tmp_path / "ledger.db").create("people", epsilon=1.0, delta=1e-6)
    database = ServiceDatabase(tmp_path / "ledger.db", "people")
    key, _ = Keys(database).create("ann", per_minute=2, per_day=3)
    history = QueryHistory(database)
    clock.seconds = 10 * YEAR
    for k in range(3):
        history.add(key, f"future {k}", "q", b"{}")
    with pytest.raises(Refusal) as refused:
        history.find(key, "next", "q")
    assert 0 < refused.value.retry_after <= DAY + 1
    clock.seconds = 0
    assert history.find(key, "next", "q") is None
    assert history.asked_today(key) == 0
    assert history.find(key, "future 0", "q") == b"{}"  # and their answers are known
    for k in range(2):
        history.add(key, f"now {k}", "q", b"{}")
    clock.seconds = -MINUTE / 2  # a small step back: the limit holds
    with pytest.raises(Refusal) as refused:
        history.find(key, "next", "q")
    assert 0 < refused.value.retry_after <= 2 * MINUTE + 1
