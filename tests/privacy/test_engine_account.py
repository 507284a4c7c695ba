"""The one charge of a query engine covers all it ever measures: restored copies, edits, forks, retries."""

from __future__ import annotations

import json
import os
import shutil

import numpy as np
import pytest
import sqlalchemy as sa

from dpcvx.accounting import SAMPLER_SHARE, Budget, Tight
from dpcvx.errors import BudgetExceeded, Incompatible, LedgerDamaged
from dpcvx.events import to_plain
from dpcvx.ledger import Ledger
from dpcvx.ledger.database import engine as store_engine
from dpcvx.queries import Attribute, Mean, Regression, Schema
from dpcvx.queries.engine import QueryEngine
from dpcvx.queries.mechanisms import NoisyErrors
from dpcvx.service.analysts import Analysts
from dpcvx.service.database import ServiceDatabase
from dpcvx.service.refusal import Refusal
from dpcvx.solvers import NoisyFrankWolfe


class TestRestoredCopy:
    """What an engine has used of its one charge is as safe from a restored copy as the charge itself."""

    @pytest.fixture
    def ledger(self, tmp_path):
        ledger = Ledger(tmp_path / "ledger.db", witness=tmp_path / "witness.txt")
        ledger.create("people", epsilon=1.0, delta=1e-6)
        return ledger

    def start(self, ledger):
        rng = np.random.default_rng(0)
        table = {name: rng.choice(["0", "1"], 300) for name in ("a", "b")}
        schema = Schema((Attribute("a", ("0", "1"), "1"), Attribute("b", ("0", "1"), "1")))
        budget = Budget(1.0, 1e-6)
        return QueryEngine(
            schema, table, budget, method="composition", n_queries=3, ledger=ledger, account="people"
        )

    def test_it_measures_nothing_again(self, ledger, tmp_path):
        """The three measurements of a plan for three were made six times."""
        engine = self.start(ledger)
        shutil.copy(tmp_path / "ledger.db", tmp_path / "old.db")
        for _ in range(3):
            engine.ask(Mean("a"))
        shutil.copy(tmp_path / "old.db", tmp_path / "ledger.db")
        with pytest.raises(LedgerDamaged, match="old"):
            ledger.verify()
        with pytest.raises(LedgerDamaged, match="old"):
            self.start(ledger).ask(Mean("a"))

    @pytest.mark.parametrize(
        "edit",
        [
            "DELETE FROM entries WHERE key LIKE '%update%'",
            "UPDATE entries SET key = 'x' WHERE key LIKE '%update%'",
            "UPDATE entries SET answer = x'00' WHERE key LIKE '%update%'",
        ],
        ids=["removed", "renamed", "changed"],
    )
    def test_an_edited_transcript_is_detected(self, ledger, edit):
        self.start(ledger).ask(Mean("a"))
        ledger.verify()
        store = sa.create_engine(ledger.url)
        with store.begin() as connection:
            assert connection.execute(sa.text(edit)).rowcount == 1
        store.dispose()
        with pytest.raises(LedgerDamaged):
            ledger.verify()


@pytest.mark.parametrize(("cap", "fits"), [(1.3, True), (1.0, False)])
@pytest.mark.filterwarnings("ignore:A delta of")  # of 1/n and more
def test_a_selecting_solver_is_not_charged_as_a_gaussian_release(tmp_path, cap, fits):
    """A selection of the same zCDP as a Gaussian release is worse than it at (1, 0.15): delta is 0.160."""
    ledger = Ledger(tmp_path / "ledger.db")
    account = ledger.create("people", epsilon=cap, delta=0.15)
    table = {name: np.random.default_rng(0).choice(["0", "1"], 300) for name in ("a", "b")}
    schema = Schema((Attribute("a", ("0", "1"), "1"), Attribute("b", ("0", "1"), "1")))
    given = {"method": "composition", "n_queries": 1, "oracle": NoisyFrankWolfe(n_iter=1), "check": 0}

    def start():
        return QueryEngine(schema, table, Budget(1.3, 0.15), **given, ledger=ledger, account="people")

    if not fits:
        with pytest.raises(BudgetExceeded):
            start()
        return
    engine = start()
    plan = engine._measurer.plan(Regression("a", ("b",), domain="l1").compile(schema, 300))
    assert Tight().delta(plan.event, 1.0) > 0.159 > 0.15 > Tight().delta(engine.budget_split.event, 1.0)
    assert engine.ask(Regression("a", ("b",), domain="l1")).branch == "oracle"
    assert len(account.history()) == 1


def test_a_forked_engine_asks_nothing():
    """Parent and child had one threshold and one plan, and each used them up."""
    table = {name: np.random.default_rng(0).choice(["0", "1"], 300) for name in ("a", "b")}
    schema = Schema((Attribute("a", ("0", "1"), "1"), Attribute("b", ("0", "1"), "1")))
    engine = QueryEngine(schema, table, Budget(1.0, 1e-6), method="composition", n_queries=2)
    hearing, telling = os.pipe()
    if (child := os.fork()) == 0:
        try:
            told = engine.ask(Mean("a")).branch
        except ValueError as error:
            told = str(error)
        os.write(telling, told.encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert "another process" in os.read(hearing, 1000).decode()
    os.close(hearing)
    os.close(telling)
    assert engine.ask(Mean("a")).branch == "oracle"


def test_measured_means_stay_within_the_samplers_share_of_delta():
    table = {name: np.random.default_rng(0).choice(["0", "1"], 300) for name in ("a", "b")}
    schema = Schema((Attribute("a", ("0", "1"), "1"), Attribute("b", ("0", "1"), "1")))
    engine = QueryEngine(schema, table, Budget(1.0, 1e-72), method="composition", n_queries=2)
    with pytest.raises(ValueError, match="delta"):
        engine.ask(Mean("a"))


@pytest.mark.parametrize("method", ["composition", "offline"])
def test_an_engine_is_charged_for_the_error_of_all_noise_that_it_may_draw(tmp_path, method):
    """First releases, checks, and every measurement at the largest error that is allowed to it."""
    ledger = Ledger(tmp_path / "ledger.db")
    account = ledger.create("people", epsilon=1.0, delta=1e-6)
    table = {name: np.random.default_rng(0).choice(["0", "1"], 300) for name in ("a", "b")}
    schema = Schema((Attribute("a", ("0", "1"), "1"), Attribute("b", ("0", "1"), "1")))
    given = {"method": method, "n_queries": 2, "ledger": ledger, "account": "people"}
    engine = QueryEngine(schema, table, Budget(1.0, 1e-6), **given)
    first = 0.0 if engine.plan.start is None else engine.plan.start.failure
    checks = sum(NoisyErrors((), 1, noise).failure for noise in engine.budget_split.checks)
    measured = engine.budget_split.updates * SAMPLER_SHARE * engine._measurer.delta / 2
    assert engine.price.failure >= (first + checks + measured) * (1 - 1e-12) > 0
    (entry,) = account.history()
    assert entry.failure == engine.price.failure
    assert entry.event == to_plain(engine.budget_split.event)


def test_a_query_compiled_for_another_number_of_records_is_refused():
    """Its errors would be found to a part of one over that number, and a record could move them by more."""
    table = {name: np.random.default_rng(0).choice(["0", "1"], 300) for name in ("a", "b")}
    schema = Schema((Attribute("a", ("0", "1"), "1"), Attribute("b", ("0", "1"), "1")))
    engine = QueryEngine(schema, table, Budget(1.0, 1e-6), method="composition", n_queries=2)
    query = Regression("a", ("b",))
    with pytest.raises(Incompatible, match="compiled for 3 records"):
        engine.answer(query.compile(schema, 3))
    assert engine.n_updates == 0
    assert engine.answer(query.compile(schema, 300)).branch == "oracle"


def test_a_key_that_only_the_engine_remembers_is_refused_by_the_service(tmp_path):
    """The server stopped between the engine's answer and its own note; another question was an error 500."""
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.create("people", epsilon=1.0, delta=1e-6)
    table = {name: np.random.default_rng(0).choice(["0", "1"], 300) for name in ("a", "b")}
    schema = Schema((Attribute("a", ("0", "1"), "1"), Attribute("b", ("0", "1"), "1")))
    engine = QueryEngine(schema, table, Budget(1.0, 1e-6), ledger=ledger, account="people")
    analysts = Analysts(engine, ServiceDatabase(tmp_path / "ledger.db", "people"))
    key, _ = analysts.keys.create("ann")
    engine.ask(Mean("a"), key=f"{key.id}.lost")
    with pytest.raises(Refusal) as refused:
        analysts.ask(key, "lost", Mean("b"))
    assert refused.value.code == "key_reused"
    assert json.loads(analysts.ask(key, "lost", Mean("a")))["query"] == Mean("a").to_json()


def test_an_answer_and_its_entry_in_the_history_are_one_transaction(tmp_path, monkeypatch):
    """Both are durable when the answer leaves, after one commit; if one cannot be written, neither is."""
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.create("people", epsilon=1.0, delta=1e-6)
    table = {name: np.random.default_rng(0).choice(["0", "1"], 300) for name in ("a", "b")}
    schema = Schema((Attribute("a", ("0", "1"), "1"), Attribute("b", ("0", "1"), "1")))
    engine = QueryEngine(schema, table, Budget(1.0, 1e-6), ledger=ledger, account="people")
    analysts = Analysts(engine, ServiceDatabase(ledger.url, "people"))
    key, _ = analysts.keys.create("ann")
    commits = []
    sa.event.listen(store_engine(ledger.url), "commit", commits.append)
    body = analysts.ask(key, "one", Mean("a"))
    assert len(commits) == 1
    assert analysts.history.answer(key, "one") == body.strip()

    def fail(*_):
        raise OSError("no room")

    monkeypatch.setattr(analysts.history, "insert", fail)
    with pytest.raises(OSError, match="no room"):
        analysts.ask(key, "two", Mean("b"))
    monkeypatch.undo()
    assert engine.place(f"{key.id}.two") not in dict(ledger.account("people").notes(""))
    assert json.loads(analysts.ask(key, "two", Mean("b")))["query"] == Mean("b").to_json()
    ledger.verify()
