"""Ledgers under races, kills, edits, old copies and random histories."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from dpcvx import Budget, Ledger
from dpcvx.errors import BudgetExceeded, DeadKey, Incompatible, LedgerDamaged, LedgerUnavailable
from dpcvx.events import ApproxDP, Gaussian, PureDP
from dpcvx.ledger import Account
from dpcvx.ledger.database import account_table, engine, entry_table, head_table

WORKERS = Path(__file__).parents[1] / "ledger_workers.py"
STEP = ApproxDP(0.001, 0.0)


def workers(*arguments):
    done = subprocess.run(
        [sys.executable, str(WORKERS), *map(str, arguments)], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


@pytest.mark.long
@pytest.mark.parametrize(
    ("processes", "tries", "room"),
    [(6, 20, 60), pytest.param(64, 100, 2000, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])],
)
def test_processes_are_granted_the_cap_and_not_one_more(ledger, processes, tries, room):
    account = ledger.create("race", epsilon=room / 1000, delta=1e-6)
    assert workers("race", ledger.url, "race", processes, tries) == {"granted": room}
    assert len(account.history()) == room
    assert account.used == 1.0
    assert ledger.verify().entries == room + 1


@pytest.mark.long
@pytest.mark.parametrize(
    "rounds", [8, pytest.param(1000, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])]
)
def test_what_was_released_was_charged_whenever_workers_are_killed(ledger, rounds):
    account = ledger.create("killed", epsilon=1000.0, delta=1e-6)
    told = workers("kill", ledger.url, "killed", rounds, 7)
    charged = [entry.hash for entry in account.history()]
    released = told["released"]
    assert len(released) == len(set(released)) > 0
    assert set(released) <= set(charged)
    assert len(charged) - len(released) <= told["killed"]  # at most one charge of each is lost
    assert account.used == pytest.approx(len(charged) * 1e-6)
    assert ledger.verify().entries == len(charged) + 1
    if ledger.url.startswith("sqlite"):
        with sqlite3.connect(ledger.url.removeprefix("sqlite:///")) as file:
            assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


# Edits and old copies


def filled(ledger):
    people = ledger.create("people", epsilon=1.0, delta=1e-6)
    people.charge(Gaussian(50.0), purpose="fit", failure=1e-20, key="a")
    people.store("a", b"answer")
    people.charge(PureDP(0.01), purpose="count", budget=Budget(0.01, 0.0))
    ledger.create("others", epsilon=2.0, delta=1e-6).charge(ApproxDP(0.5, 1e-7), purpose="fit")
    return people


def changed(value):
    match value:
        case None:
            return "x"
        case bytes():
            return value + b"x"
        case str():
            return value[:-1] + ("0" if value[-1:] != "0" else "1") if value else "x"
        case int():
            return value + 1
    return 2 * value + 1


def cells(ledger):
    with engine(ledger.url).connect() as connection:
        for table in (head_table, account_table, entry_table):
            (primary,) = table.primary_key.columns
            for row in connection.execute(sa.select(table)).mappings():
                for column in table.columns:
                    yield table, primary == row[primary.name], column, row[column.name]


def test_an_edited_cell_is_always_detected(ledger):
    filled(ledger)
    sound = ledger.verify()
    found = list(cells(ledger))
    assert len(found) == 5 + 2 * 7 + 6 * 7
    refused = set()
    for table, where, column, value in found:
        edited = b"x" if column is entry_table.c.answer and value is None else changed(value)
        with engine(ledger.url).connect() as connection:
            transaction = connection.begin()
            if ledger.url.startswith("sqlite"):
                connection.exec_driver_sql("PRAGMA defer_foreign_keys=ON")
            try:
                connection.execute(table.update().where(where), {column.name: edited})
                transaction.commit()
            except sa.exc.IntegrityError:
                transaction.rollback()
                refused.add(str(column))
                continue
        with pytest.raises(LedgerDamaged):
            ledger.verify()
        with engine(ledger.url).begin() as connection:
            if column.primary_key:
                where = column == edited
            connection.execute(table.update().where(where), {column.name: value})
    assert ledger.verify() == sound
    assert refused <= {"ledger.id", "accounts.name", "entries.account", "entries.sequence"}  # by the store


def test_an_edited_value_inside_an_entry_is_always_detected(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    filled(ledger)
    with engine(ledger.url).connect() as connection:
        rows = connection.execute(sa.select(entry_table)).all()
    edits = 0
    for row in rows:
        for name, value in json.loads(row.content).items():
            other = changed(value) if not isinstance(value, dict) else {**value, "more": 1}
            text = json.dumps({**json.loads(row.content), name: other}, sort_keys=True, separators=(",", ":"))
            where = entry_table.c.sequence == row.sequence
            with engine(ledger.url).begin() as connection:
                connection.execute(entry_table.update().where(where), {"content": text})
            with pytest.raises(LedgerDamaged):
                ledger.verify()
            with engine(ledger.url).begin() as connection:
                connection.execute(entry_table.update().where(where), {"content": row.content})
            edits += 1
    assert edits > 40
    assert ledger.verify().entries == 6


@pytest.mark.parametrize("table", ["ledger", "accounts", "entries"])
def test_a_missing_row_is_always_detected(tmp_path, table):
    path = tmp_path / "ledger.db"
    filled(Ledger(path))
    with sqlite3.connect(path) as file:
        rows = file.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    for row in range(rows):
        shutil.copy(path, tmp_path / f"{row}.db")
        with sqlite3.connect(tmp_path / f"{row}.db") as file:
            file.execute(
                f"DELETE FROM {table} WHERE rowid = (SELECT rowid FROM {table} LIMIT 1 OFFSET {row})"
            )
        with pytest.raises(LedgerDamaged):
            Ledger(tmp_path / f"{row}.db").verify()


def test_a_lowered_price_is_detected_even_if_all_hashes_are_made_anew(tmp_path):
    from dpcvx.ledger import chain

    ledger = Ledger(tmp_path / "a.db")
    account = ledger.create("people", epsilon=1.0, delta=1e-6)
    account.charge(Gaussian(50.0), purpose="fit")
    with engine(ledger.url).begin() as connection:
        row = connection.execute(sa.select(entry_table).where(entry_table.c.sequence == 2)).one()
        content = json.loads(row.content)
        totals = content["spending"]["totals"]
        content["spending"]["totals"] = {name: [str(int(n) // 2) for n in totals[name]] for name in totals}
        text = chain.canonical(content)
        where = entry_table.c.sequence == 2
        connection.execute(entry_table.update().where(where), {"content": text, "hash": chain.digest(text)})
        connection.execute(head_table.update(), {"hash": chain.digest(text)})
        connection.execute(account_table.update(), {"spending": chain.canonical(content["spending"])})
    with pytest.raises(LedgerDamaged, match="Entry 2"):
        ledger.verify()


@pytest.mark.parametrize("kind", ["file", "store"])
def test_an_old_copy_is_refused_where_there_is_a_witness(tmp_path, kind):
    path = tmp_path / "ledger.db"
    place = tmp_path / "witness" if kind == "file" else f"sqlite:///{tmp_path}/witness.db"
    ledger = Ledger(path, witness=place)
    account = ledger.create("people", epsilon=1.0, delta=1e-6)
    account.charge(STEP, purpose="first", key="k")
    shutil.copy(path, tmp_path / "old.db")
    account.store("k", b"x")
    account.charge(STEP, purpose="second")
    assert ledger.verify().witnessed == 4
    assert ledger.verify(witness=place) == ledger.verify()
    shutil.copy(tmp_path / "old.db", path)
    with pytest.raises(LedgerDamaged, match=r"The witness saw entry [34]"):
        ledger.verify()
    for write in (
        lambda: account.charge(STEP, purpose="again"),
        lambda: account.store("k", b"y"),
        lambda: ledger.create("new", epsilon=1.0, delta=1e-6),
    ):
        with pytest.raises(LedgerDamaged, match="old or edited copy"):
            write()
    assert Ledger(path).verify().witnessed is None  # without a witness it is not noticed
    # Somebody goes on with the old copy, and it becomes as long as the one that was lost.
    Account(Ledger(path), "people").charge(STEP, purpose="unseen")
    Account(Ledger(path), "people").charge(STEP, purpose="unseen")
    with pytest.raises(LedgerDamaged, match="The witness saw"):
        ledger.verify()
    with pytest.raises(LedgerDamaged, match="old or edited copy"):
        account.charge(STEP, purpose="again")


def test_a_witness_may_lag_behind_but_must_know_the_ledger(tmp_path):
    ledger = Ledger(tmp_path / "a.db", witness=tmp_path / "witness")
    account = ledger.create("people", epsilon=1.0, delta=1e-6)
    Account(Ledger(tmp_path / "a.db"), "people").charge(STEP, purpose="unseen")
    account.charge(STEP, purpose="seen")
    assert ledger.verify().witnessed == 2
    other = Ledger(tmp_path / "b.db")
    other.create("people", epsilon=1.0, delta=1e-6)
    with pytest.raises(LedgerDamaged, match="knows another ledger"):
        other.verify(witness=tmp_path / "witness")
    with pytest.raises(LedgerDamaged, match="never seen"):
        other.verify(witness=tmp_path / "nothing")


@pytest.mark.parametrize("kind", ["file", "store"])
def test_a_new_ledger_in_the_place_of_the_old_is_refused(tmp_path, kind):
    path = tmp_path / "ledger.db"
    place = tmp_path / "witness" if kind == "file" else f"sqlite:///{tmp_path}/witness.db"
    ledger = Ledger(path, witness=place)
    account = ledger.create("people", epsilon=1.0, delta=1e-6)
    account.charge(STEP, purpose="seen")
    path.unlink()
    with pytest.raises(LedgerDamaged, match="knows another ledger"):
        ledger.create("people", epsilon=1.0, delta=1e-6)
    Ledger(path).create("people", epsilon=1.0, delta=1e-6)
    with pytest.raises(LedgerDamaged, match="knows another ledger"):
        account.charge(STEP, purpose="again")
    with pytest.raises(LedgerDamaged, match="knows another ledger"):
        ledger.verify()


def test_a_file_that_was_put_in_the_place_of_the_ledger_is_the_ledger(tmp_path):
    path = tmp_path / "ledger.db"
    account = Ledger(path).create("people", epsilon=1.0, delta=1e-6)
    account.charge(STEP, purpose="first")
    shutil.copy(path, tmp_path / "copy.db")
    account.charge(STEP, purpose="lost")
    os.replace(tmp_path / "copy.db", path)  # while this process has the old file open
    account.charge(STEP, purpose="second")
    assert [entry.purpose for entry in account.history()] == ["first", "second"]
    program = f"import dpcvx; print(len(dpcvx.Ledger({str(path)!r}).account('people').history()))"
    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "2"
    path.unlink()
    with pytest.raises(LedgerUnavailable, match="There is no ledger"):
        account.charge(STEP, purpose="into nothing")
    assert not path.exists()


def test_a_charge_is_lost_rather_than_released_where_the_witness_cannot_be_told(tmp_path):
    ledger = Ledger(tmp_path / "a.db", witness=tmp_path / "witness")
    account = ledger.create("people", epsilon=1.0, delta=1e-6)
    (tmp_path / "witness").unlink()
    (tmp_path / "witness").mkdir()
    with pytest.raises(OSError):
        account.charge(STEP, purpose="x")


# Random histories against a plain model


class Histories(RuleBasedStateMachine):
    """Charges, answers, refusals and reopenings, beside a model that adds up exact decimals."""

    folder: Path
    count = steps = 0

    @initialize(cap=st.sampled_from([5, 20, 60]))
    def start(self, cap):
        type(self).count += 1
        self.path = self.folder / f"{self.count}.db"
        self.cap, self.spent, self.keys, self.answers, self.charges = cap, 0, {}, {}, 0
        self.account = Ledger(self.path).create("people", epsilon=cap / 100, delta=1e-6)

    @rule(cost=st.integers(1, 9), key=st.sampled_from([None, "a", "b", "c", "d"]))
    def charge(self, cost, key):
        event, fits = ApproxDP(cost / 100, 0.0), self.spent + cost <= self.cap
        if key in self.keys and key is not None:
            if self.keys[key] != cost:
                with pytest.raises(Incompatible):
                    self.account.charge(event, purpose="x", key=key)
            elif key not in self.answers:
                with pytest.raises(DeadKey):
                    self.account.charge(event, purpose="x", key=key)
            else:
                assert self.account.charge(event, purpose="x", key=key).answer == self.answers[key]
        elif fits:
            assert self.account.charge(event, purpose="x", key=key).answer is None
            self.spent, self.charges, self.keys[key] = self.spent + cost, self.charges + 1, cost
        else:
            with pytest.raises(BudgetExceeded):
                self.account.charge(event, purpose="x", key=key)

    @rule(key=st.sampled_from(["a", "b", "c", "d"]), answer=st.binary(max_size=4))
    def store(self, key, answer):
        if key in self.keys and key not in self.answers:
            self.account.store(key, answer)
            self.answers[key] = answer
        else:
            with pytest.raises(Incompatible):
                self.account.store(key, answer)

    @rule()
    def reopen(self):
        self.account = Ledger(self.path).account("people")

    @rule()
    def verify(self):
        assert Ledger(self.path).verify().entries == 1 + self.charges + len(self.answers)

    @invariant()
    def agrees(self):
        type(self).steps += 1
        if hasattr(self, "account"):
            assert self.account.used == pytest.approx(self.spent / self.cap, rel=1e-12)
            assert all(self.account.answer(key) == self.answers.get(key) for key in "abcd")


@pytest.mark.parametrize(
    ("runs", "steps", "at_least"),
    [(6, 20, 60), pytest.param(260, 50, 10_000, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])],
)
def test_random_histories_agree_with_a_plain_model(tmp_path, runs, steps, at_least):
    Histories.folder, Histories.count, Histories.steps = tmp_path, 0, 0
    chosen = settings(max_examples=runs, stateful_step_count=steps, deadline=None)
    run_state_machine_as_test(Histories, settings=chosen)
    assert Histories.count >= runs
    assert Histories.steps >= at_least


def test_a_witness_that_was_not_told_lets_nothing_be_released(tmp_path, monkeypatch):
    """A full disk took half of a line; the charge was granted, and an old copy was not noticed later."""
    ledger = Ledger(tmp_path / "ledger.db", witness=tmp_path / "witness.txt")
    account = ledger.create("people", epsilon=1.0, delta=1e-6)
    write = os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda file, line: write(file, line[:40]))
        with pytest.raises(LedgerUnavailable, match="room"):
            account.charge(Gaussian(100.0), purpose="lost")
    shutil.copy(tmp_path / "ledger.db", tmp_path / "old.db")
    account.charge(Gaussian(100.0), purpose="first after it")
    shutil.copy(tmp_path / "old.db", tmp_path / "ledger.db")
    with pytest.raises(LedgerDamaged, match="old"):
        account.charge(Gaussian(100.0), purpose="on an old copy")
