"""Estimators and plans that charge an account: before a record is read, exactly once, wherever they run."""

import json
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import dpcvx
from dpcvx import (
    Budget,
    BudgetExceeded,
    Incompatible,
    Ledger,
    PrivateLinearRegression,
    PrivateLogisticRegression,
)
from dpcvx.data.columns import Columns
from dpcvx.data.target import Numbers
from dpcvx.events import from_plain
from dpcvx.noise import SeededGenerator
from dpcvx.plans import execution

RNG = np.random.default_rng(0)
X = RNG.uniform(size=(120, 3))
Y = X @ [1.0, 2.0, 0.0]


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "ledger.db")


@pytest.fixture
def account(ledger):
    return ledger.create("people", epsilon=1.0, delta=1e-6)


def regression(ledger, **changes):
    settings = {"epsilon": 0.1, "delta": 1e-7, "bounds": (0, 1), "y_bounds": (0, 3)}
    return PrivateLinearRegression(**{**settings, "ledger": ledger, "account": "people", **changes})


def test_a_fit_is_charged_once_with_its_own_event(ledger, account):
    model = regression(ledger).fit(X, Y)
    (entry,) = account.history()
    assert from_plain(entry.event) == model.plan_.event
    assert entry.failure == model.plan_.price.failure > 0
    assert entry.purpose == "fit of PrivateLinearRegression to 120 records"
    assert model.release_.receipt.hash == entry.hash
    assert model.release_.receipt.budget == account.budget


def test_the_statement_names_the_account_and_its_cap(ledger, account):
    model = regression(ledger).fit(X, Y)
    said = model.privacy_statement_.to_dict()
    (entry,) = account.history()
    assert said["ledger"].startswith(
        "charged to account 'people' before anything was computed from the records, entry 2"
    )
    assert entry.hash in said["ledger"]
    assert "epsilon 1 and delta 1e-06" in said["ledger"]
    assert not any("second fit" in item for item in said["not_covered"])
    assert any("not charged to the same account" in item for item in said["not_covered"])
    free = regression(None, account=None).fit(X, Y).privacy_statement_.to_dict()
    assert "nothing was charged" in free["ledger"]
    assert any("second fit" in item for item in free["not_covered"])


@pytest.mark.parametrize("step", ["rows", "target"])
def test_the_charge_comes_before_the_first_record_is_read(ledger, account, monkeypatch, step):
    owner, name = {"rows": (Columns, "rows"), "target": (Numbers, "encode")}[step]
    seen = []

    def reads(self, *arguments):
        seen.append(len(account.history()))
        raise RuntimeError("the power fails while records are read")

    monkeypatch.setattr(owner, name, reads)
    with pytest.raises(RuntimeError):
        regression(ledger).fit(X, Y)
    assert seen == [1]
    assert len(account.history()) == 1  # never refunded


def test_a_refused_fit_reads_nothing_and_leaves_no_model(ledger, account, monkeypatch):
    regression(ledger, epsilon=1.0, delta=1e-6).fit(X, Y)
    assert account.used == 1.0

    def reads(self, *arguments):
        raise AssertionError("a record was read")

    monkeypatch.setattr(Columns, "rows", reads)
    model = regression(ledger)
    with pytest.raises(BudgetExceeded, match="One release has taken the whole"):
        model.fit(X, Y)
    assert not hasattr(model, "coef_")
    assert len(account.history()) == 1


def test_clones_copies_and_pickles_charge_the_same_account(ledger, account):
    model = regression(ledger)
    for other in (model, clone(model), pickle.loads(pickle.dumps(model)), regression(ledger.url)):
        other.fit(X, Y)
    assert len(account.history()) == 4


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:A cross-validation or search")
def test_every_fit_of_a_parallel_search_is_charged(ledger, account):
    search = GridSearchCV(
        regression(ledger, epsilon=0.05), {"radius": [1.0, 2.0]}, cv=2, n_jobs=2, error_score="raise"
    )
    search.fit(X, Y)
    assert len(account.history()) == 5  # two settings, two folds, and the final fit
    assert ledger.verify().entries == 6


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"account": None}, "ledger was given without account"),
        ({"ledger": None}, "account was given without ledger"),
        ({"random_state": 0}, "A seeded run is not private"),
        ({"account": "nobody"}, "no account 'nobody'"),
    ],
)
def test_half_an_address_and_seeds_are_refused(ledger, account, changes, words):
    with pytest.raises(Incompatible, match=words):
        regression(**{"ledger": ledger, **changes}).fit(X, Y)
    assert account.history() == ()


def test_accounts_of_another_relation_are_refused(ledger):
    ledger.create("people", epsilon=1.0, delta=1e-6, relation="add_remove")
    with pytest.raises(Incompatible, match="kept under 'add_remove'"):
        regression(ledger).fit(X, Y)


def test_a_model_file_holds_no_address_and_refuses_to_fit_uncharged(ledger, account, tmp_path):
    model = regression(ledger).fit(X, Y)
    model.save(tmp_path / "model.json")
    text = (tmp_path / "model.json").read_text()
    assert "ledger.db" not in text
    again = dpcvx.load(tmp_path / "model.json")
    assert np.array_equal(again.predict(X), model.predict(X))
    assert again.privacy_statement_.ledger == model.privacy_statement_.ledger
    with pytest.raises(Incompatible, match="account was given without ledger"):
        again.fit(X, Y)


def test_classifiers_charge_too(ledger, account):
    settings = {"epsilon": 0.1, "delta": 1e-7, "bounds": (0, 1), "classes": (0, 1, 2)}
    PrivateLogisticRegression(**settings, ledger=ledger, account="people").fit(X, np.arange(120) % 3)
    assert len(account.history()) == 1


def test_a_plan_is_charged_before_its_first_question(ledger, account):
    problem = dpcvx.Problem(dpcvx.Logistic(), dpcvx.L2Ball(2.0), bounds=dpcvx.Bounds(1.0), d=3)
    plan = dpcvx.plan(problem, 120, Budget(0.2, 1e-7))
    source = dpcvx.source(X, np.sign(Y - 1.5), bounds=problem.bounds)
    release = dpcvx.execute(plan, source, ledger=ledger, account="people")
    assert release.receipt.sequence == 2
    assert dpcvx.execute(plan, source).receipt is None
    seeded = SeededGenerator(0)
    with pytest.raises(Incompatible, match="A seeded run is not private"):
        dpcvx.execute(plan, source, rng=seeded, ledger=ledger, account="people")
    whole = dpcvx.plan(problem, 120, Budget(1.0, 1e-6))
    with pytest.raises(BudgetExceeded):
        dpcvx.execute(whole, source, ledger=ledger, account="people")
    (entry,) = account.history()
    assert json.dumps(entry.event)
    assert entry.purpose == type(plan.solver).__name__


def test_records_are_opened_after_the_charge_and_closed_after_the_run(ledger, account):
    problem = dpcvx.Problem(dpcvx.Logistic(), dpcvx.L2Ball(2.0), bounds=dpcvx.Bounds(1.0), d=3)
    plan = dpcvx.plan(problem, 120, Budget(0.2, 1e-7))
    charged, closed = [], []

    def opened(rows):
        charged.append(len(account.history()))
        source = dpcvx.source(X[:rows], np.sign(Y - 1.5)[:rows], bounds=problem.bounds)
        source.close = lambda: closed.append(1)
        return source

    paid = {"ledger": ledger, "account": "people", "purpose": "a study"}
    assert dpcvx.execute(plan, lambda rng: opened(120), **paid).receipt.sequence == 2
    with pytest.raises(Incompatible, match="the source has 90"):
        dpcvx.execute(plan, lambda rng: opened(90), **paid)
    assert (charged, len(closed)) == ([1, 2], 2)
    assert [entry.purpose for entry in account.history()] == ["a study"] * 2  # never refunded


@pytest.mark.parametrize("bounds", [(0, 1), "private"])
def test_a_fit_is_charged_once_by_execute(ledger, account, monkeypatch, bounds):
    made, charge = [], execution.charge
    monkeypatch.setattr(execution, "charge", lambda *a, **k: made.append(charge(*a, **k)) or made[-1])
    rng = np.random.default_rng(3)
    X, Y = rng.uniform(0, 1, (3000, 3)), rng.uniform(0, 3, 3000)
    model = regression(ledger, bounds=bounds, epsilon=0.9, delta=1e-6).fit(X, Y)
    assert made == [model.release_.receipt]
    assert len(account.history()) == 1


def test_ten_fits_at_a_tenth_of_the_epsilon_leave_room(ledger, account):
    for _ in range(10):
        regression(ledger).fit(X, Y)
    assert account.used < 0.2  # plain addition would have used it up
    assert account.remaining() > 0.8
