"""What public facts can show to fail is refused before it is charged."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest

import dpcvx as dp
from dpcvx.accounting import Tight
from dpcvx.domains import L2Ball
from dpcvx.losses import Squared
from dpcvx.plans import execute
from dpcvx.problem import Bounds, Problem
from dpcvx.solvers import NoisyGradientDescent, Standardised

BUDGET = dp.Budget(1.0, 1e-6)


@pytest.fixture
def account(tmp_path):
    return dp.Ledger(tmp_path / "ledger.db").create("people", epsilon=2.0, delta=1e-5)


def unspeakable(z, y, a):
    return open(str(z), "w").write(str(y))


@dataclass(frozen=True)
class Unspeakable(Squared):
    """A loss whose slope is no arithmetic."""

    slope = staticmethod(unspeakable)


def planned(loss, solver):
    problem = Problem(loss, L2Ball(1.0), bounds=Bounds(1.0, 1.0), d=2)
    return solver.plan(problem, 100, BUDGET, Tight())


def test_a_slope_that_does_not_compile_is_refused_before_the_charge(account):
    plan = planned(Unspeakable(), NoisyGradientDescent(n_iter=3))
    source = dp.source(np.zeros((100, 2)), np.zeros(100), bounds=plan.problem.bounds)
    with pytest.raises(dp.errors.WrongType, match="slope unspeakable does not compile"):
        execute(plan, source, ledger=account.ledger, account="people")
    assert account.history() == ()


def test_a_source_that_cannot_be_mapped_is_refused_before_the_charge(account):
    plan = planned(Squared(), Standardised(NoisyGradientDescent(n_iter=3)))
    whole = dp.source(np.zeros((100, 2)), np.zeros(100), bounds=plan.problem.bounds)

    class Fixed:
        """A source with the methods of every source and no others."""

        n, d = whole.n, whole.d

        def within(self, bounds):
            return self

        def sum(self, question):
            return whole.sum(question)

        def objective(self, loss, outputs, z_max):
            return whole.objective(loss, outputs, z_max)

        def follow(self, loss, outputs):
            return whole.follow(loss, outputs)

    with pytest.raises(ValueError, match="cannot be standardised"):
        execute(plan, Fixed(), ledger=account.ledger, account="people")
    assert account.history() == ()


@pytest.mark.parametrize(("width", "high"), [(1.0, 1e160), (1.0, 1e-160), (1e160, 1.0), (1e-160, 1.0)])
def test_units_whose_squares_are_no_numbers_are_refused_before_the_charge(account, width, high):
    """In small units standard errors and p-values were 0; large ones ended in an unexpected error."""
    X = np.linspace(-width, width, 60).reshape(30, 2)
    model = dp.PrivateLinearRegression(
        epsilon=1.0,
        bounds=(-width, width),
        y_bounds=(0, high),
        uncertainty=0.3,
        ledger=account.ledger,
        account="people",
    )
    with pytest.raises(dp.errors.WrongValue, match="too large or too small for a number in these units"):
        model.fit(X, np.full(30, high / 2))
    assert account.history() == ()


@pytest.mark.parametrize("target", [None, "income"])
def test_a_name_in_place_of_the_target_is_refused_with_the_ways_to_name_it(target, tmp_path):
    """The message was that of an array of no dimensions: "got one with shape n"."""
    table = pd.DataFrame({"age": [30.0, 40.0], "income": [1.0, 2.0]})
    columns = {"age": dp.NumberColumn((18, 90)), "income": dp.NumberColumn((0, 9))}
    given = (
        {"schema": dp.TableSchema(columns, target=target)}
        if target
        else {"bounds": (0, 90), "y_bounds": (0, 9)}
    )
    ledger = dp.Ledger(tmp_path / "people.db")
    account = ledger.create("people", epsilon=1, delta=1e-5)
    model = dp.PrivateLinearRegression(epsilon=1.0, delta=1e-5, ledger=ledger, account="people", **given)
    with pytest.raises(ValueError, match="y must be the target of each row, not a name"):
        model.fit(table, "income")
    assert not account.history()
