"""Promises of the query engine that faults were planted against and that no other quick test held."""

import numpy as np
import pytest

from dpcvx.accounting import Budget
from dpcvx.errors import Incompatible
from dpcvx.events import Gaussian
from dpcvx.ledger import Ledger
from dpcvx.noise import SeededGenerator
from dpcvx.plans import Price
from dpcvx.queries import Attribute, Counts, Schema, Universe, private_side
from dpcvx.queries.answer_intervals import SHRINKAGE, standard_errors
from dpcvx.queries.budget_split import BudgetSplit
from dpcvx.queries.error_bars import PropagatedNoise
from dpcvx.queries.mechanisms import NoisyHistogram
from dpcvx.queries.payment import Payment
from dpcvx.queries.private_side import PrivateSide

FACTS = {"schema": {"a": ["x", "y"]}, "n": 100, "n_queries": 10, "method": "histogram"}
SPLIT = BudgetSplit("histogram", 8.0)
PRICE = Price(Gaussian(8.0), (), 0.0, Budget(1.0, 1e-6))


@pytest.fixture
def account(tmp_path):
    return Ledger(tmp_path / "ledger.db").create("people", epsilon=3.0, delta=1e-5)


def test_a_restarted_engine_pays_once_and_one_with_other_facts_pays_again(account):
    for _ in range(3):
        Payment(account, FACTS).pay(SPLIT, PRICE)
    assert len(account.history()) == 1
    used = account.used
    for name, value in (("n", 101), ("n_queries", 11), ("method", "warm")):
        Payment(account, FACTS | {name: value}).pay(SPLIT, PRICE)
    assert len(account.history()) == 4
    assert account.used > 2 * used


def test_a_forked_process_may_not_ask_the_records(monkeypatch):
    universe = Universe(Schema((Attribute("a", ("x", "y"), "y"),)))
    side = PrivateSide(Counts(universe, np.zeros(10, dtype=np.int64)), SeededGenerator(0))
    question = NoisyHistogram(universe, 10, 1.0)
    assert len(side.ask(question)) == 2
    monkeypatch.setattr(private_side.os, "getpid", lambda: -1)
    with pytest.raises(Incompatible, match="another process"):
        side.ask(question)


class Reading:
    """Numbers that are the coded ones."""

    matrix = np.eye(2)

    def deviations(self, covariance):
        return np.sqrt(np.diag(covariance))


def test_standard_errors_hold_the_part_of_shrinkage_that_noise_does_not_explain():
    covariance, seen, expected = np.diag([1.0, 4.0]), np.array([3.0, 1.0]), np.diag([1.0, 4.0])
    noise = PropagatedNoise(1.0, covariance, np.eye(2), shrinkage=seen, shrinkage_noise=expected)
    found = standard_errors(Reading(), noise)
    assert found**2 == pytest.approx([1 + SHRINKAGE * (9 - 1), 4.0])
