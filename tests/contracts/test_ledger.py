"""Ledger: what an account promises, on every store."""

import copy
import json
import math
import os
import pickle
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import sqlalchemy as sa

from dpcvx import Budget, Ledger, accounting
from dpcvx.errors import (
    BudgetExceeded,
    DeadKey,
    Incompatible,
    LedgerDamaged,
    LedgerUnavailable,
    NotAccountable,
)
from dpcvx.events import (
    ApproxDP,
    Compose,
    Exponential,
    Gaussian,
    PerturbedObjective,
    Poisson,
    PureDP,
    Repeat,
    from_plain,
    to_plain,
)
from dpcvx.ledger import Account
from dpcvx.ledger.database import account_table, address, engine

STEP = ApproxDP(0.001, 0.0)  # a cap of epsilon 0.1 has room for exactly a hundred


# Accounts and charges


def test_accounts_are_made_once_and_found_by_name(ledger):
    made = ledger.create("people", epsilon=2.0, delta=1e-6)
    other = ledger.create("patients", epsilon=1, delta=0, relation="add_remove")
    assert ledger.accounts() == ("patients", "people")
    assert ledger.account("people") == made
    assert made.budget == Budget(2.0, 1e-6, "replace")
    assert other.budget == Budget(1.0, 0.0, "add_remove")
    with pytest.raises(Incompatible, match="has an account 'people' already"):
        ledger.create("people", epsilon=9.0, delta=1e-6)
    with pytest.raises(Incompatible, match="no account 'nobody'; it has 'patients', 'people'"):
        ledger.account("nobody")
    with pytest.raises(Incompatible, match="no account 'nobody'"):
        Account(ledger, "nobody").charge(STEP, purpose="x")
    assert made.budget.epsilon == 2.0
    assert ledger.verify().accounts == 2


def test_a_charge_leaves_a_receipt_and_an_entry(ledger, account):
    event = Compose((Repeat(Gaussian(2000.0), 3), PureDP(0.001)))
    receipt = account.charge(event, purpose="fit of a model", failure=1e-30, key="first")
    (entry,) = account.history()
    assert (receipt.account, receipt.budget, receipt.key, receipt.answer) == (
        "people",
        account.budget,
        "first",
        None,
    )
    assert (entry.sequence, entry.time, entry.hash) == (receipt.sequence, receipt.time, receipt.hash)
    assert (entry.purpose, entry.failure, entry.key) == ("fit of a model", 1e-30, "first")
    assert from_plain(entry.event) == event
    assert 0 < entry.used == account.used < 1
    assert entry.time.endswith("+00:00")


@pytest.mark.parametrize(
    "event",
    [
        Gaussian(np.float32(50.0)),
        PureDP(np.float64(0.01)),
        Exponential(1),
        ApproxDP(0, np.float32(0.0)),
        Poisson(np.float64(1.0), 100, "replace"),
        PerturbedObjective(0.001, 0),
        Repeat(Compose((Gaussian(50.0), Repeat(PureDP(0.25), 2))), 3),
    ],
    ids=lambda event: type(event).__name__,
)
def test_every_event_is_written_and_read_back(event):
    plain = json.loads(json.dumps(to_plain(event)))
    assert from_plain(plain) == event
    for wrong in ({}, {**plain, "event": "Noise"}, {**plain, "more": 1}):
        with pytest.raises(ValueError, match="describes no event"):
            from_plain(wrong)


def test_tiny_deltas_are_caps_too(ledger):
    account = ledger.create("pure", epsilon=1.0, delta=0)
    account.charge(PureDP(0.5), purpose="half")
    account.charge(Exponential(0.5), purpose="half")
    with pytest.raises(BudgetExceeded):
        account.charge(PureDP(1e-6), purpose="more")
    tiny = ledger.create("tiny", epsilon=1.0, delta=5e-324)
    tiny.charge(PureDP(0.5), purpose="half")
    assert tiny.used == 0.5
    assert tiny.remaining() == 0.0


def test_nothing_is_written_when_the_budget_is_exceeded(ledger, account):
    account.charge(ApproxDP(0.07, 0.0), purpose="most of it")
    before = (ledger.verify(), account.history(), account.used)
    with pytest.raises(BudgetExceeded) as refused:
        account.charge(ApproxDP(0.031, 0.0), purpose="too much")
    assert refused.value.requested == 0.031
    assert 0 < refused.value.remaining < 0.1
    needs = f"This release needs epsilon 0.031 at the account's delta, {account.budget.delta:g}, but only "
    assert str(refused.value).startswith(needs)
    assert "A release of another delta is converted to that one" in str(refused.value)
    assert (ledger.verify(), account.history(), account.used) == before
    account.charge(ApproxDP(0.03, 0.0), purpose="what is left, to the last digit")
    assert account.used == 1.0
    assert account.remaining() == 0.0


def test_a_refused_score_is_not_said_to_need_less_than_is_left(ledger):
    """The message was: needs epsilon 0.2, but only 1.04 is left."""
    account = ledger.create("mixed", epsilon=2.0, delta=1e-6)
    for _ in range(3):
        account.charge(Gaussian(4.6), purpose="a fit")
    left = account.remaining()
    with pytest.raises(BudgetExceeded) as refused:
        account.charge(PureDP(0.2), purpose="a score")
    assert refused.value.requested < left
    assert "but only" not in str(refused.value)
    assert f"One more Gaussian release could have {left:g}." in str(refused.value)
    assert "of this kind, such as a score, costs more than a Gaussian one" in str(refused.value)


def test_the_same_decimal_fraction_fits_as_often_as_it_should(ledger):
    for name, parts in (("tenths", 10), ("thirds", 3), ("sevenths", 7)):
        account = ledger.create(name, epsilon=1.0, delta=1e-6)
        for _ in range(parts):
            account.charge(ApproxDP(1 / parts, 1e-6 / parts), purpose="a part")
        with pytest.raises(BudgetExceeded):
            account.charge(ApproxDP(1e-9, 0.0), purpose="one too many")


@pytest.mark.parametrize("event", [ApproxDP(0.1, 1e-7), PureDP(0.1), Exponential(0.1)], ids=str)
def test_three_times_a_tenth_is_three_tenths(ledger, event):
    account = ledger.create("people", epsilon=0.3, delta=3e-7 if isinstance(event, ApproxDP) else 0.0)
    account.charge(Repeat(event, 3), purpose="three at once")
    assert account.used == 1.0


def test_one_release_may_take_the_whole_account(account):
    noise = 1 / accounting.gaussian_mu(0.1, 1e-6 * (1 - accounting.SAMPLER_SHARE))
    assert account.remaining() == pytest.approx(0.1, rel=1e-6)
    account.charge(Gaussian(noise), purpose="everything")
    assert (account.used, account.remaining()) == (1.0, 0.0)
    with pytest.raises(BudgetExceeded, match="One release has taken the whole of account 'people'"):
        account.charge(Gaussian(1e6), purpose="anything")


def test_a_second_release_cannot_take_the_whole(account):
    account.charge(Gaussian(1e4), purpose="a little")
    noise = 1 / accounting.gaussian_mu(0.1, 1e-6 * (1 - accounting.SAMPLER_SHARE))
    with pytest.raises(BudgetExceeded):
        account.charge(Gaussian(noise), purpose="everything, adaptively")


def test_what_remains_is_granted_and_not_much_more(ledger):
    for first in (Gaussian(10.0), Exponential(0.2), ApproxDP(0.3, 1e-7)):
        account = ledger.create(type(first).__name__, epsilon=1.0, delta=1e-6)
        account.charge(first, purpose="first")
        left = account.remaining()
        assert 0.1 < left < 1
        planned = accounting.spendable(Budget(left, 1e-6))
        more = accounting.gaussian_mu(left * 1.001, planned.delta)
        with pytest.raises(BudgetExceeded):
            account.charge(Gaussian(1 / more), purpose="a little more", budget=planned)
        noise = 1 / accounting.gaussian_mu(left * 0.99999, planned.delta)
        account.charge(Gaussian(noise), purpose="the rest", budget=planned)
        assert account.remaining() < 0.05


def test_relations_must_agree(ledger, account):
    objective = PerturbedObjective(0.001, 0.001, "add_remove")
    for event in (Poisson(0.1, 50.0, "add_remove"), Repeat(objective, 2)):
        with pytest.raises(Incompatible, match=r"kept under 'replace'.*'add_remove'"):
            account.charge(event, purpose="x")
    with pytest.raises(Incompatible, match="kept under 'replace'"):
        account.charge(STEP, purpose="x", budget=Budget(0.001, 0.0, "add_remove"))
    assert account.history() == ()


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"event": "Gaussian"}, NotAccountable, "str is not an event"),
        ({"purpose": ""}, ValueError, "purpose must be printable"),
        ({"purpose": "line\nbreak"}, ValueError, "purpose must be printable"),
        ({"purpose": 3}, TypeError, "purpose is a int"),
        ({"key": ""}, ValueError, "key must be printable"),
        ({"key": "k" * 2000}, ValueError, "key must be printable"),
        ({"failure": -1e-9}, ValueError, "failure is -1e-09"),
        ({"failure": math.nan}, ValueError, "failure is nan"),
        ({"failure": "0"}, ValueError, "failure is '0'"),
    ],
)
def test_wrong_charges_are_refused(tmp_path, changes, error, words):
    account = Ledger(tmp_path / "a.db").create("people", epsilon=1.0, delta=1e-6)
    arguments = {"event": STEP, "purpose": "x", **changes}
    with pytest.raises(error, match=words):
        account.charge(arguments.pop("event"), **arguments)
    assert account.history() == ()


# Keys and stored answers


def test_a_key_is_charged_once_and_answers_for_ever(account):
    first = account.charge(STEP, purpose="count", key="k")
    account.store("k", b"\x00answer")
    used = account.used
    again = account.charge(STEP, purpose="count", key="k")
    assert again.answer == account.answer("k") == b"\x00answer"
    assert (again.sequence, again.hash, again.time) == (first.sequence, first.hash, first.time)
    assert account.used == used
    assert len(account.history()) == 1


def test_a_key_without_an_answer_is_dead(account):
    account.charge(STEP, purpose="count", key="k")
    with pytest.raises(DeadKey, match="its answer was never stored"):
        account.charge(STEP, purpose="count", key="k")
    assert account.answer("k") is None
    account.charge(STEP, purpose="count", key="new")
    assert len(account.history()) == 2


@pytest.mark.parametrize(
    "changes", [{"event": ApproxDP(0.002, 0.0)}, {"purpose": "other"}, {"failure": 1e-20}], ids=str
)
def test_a_key_is_for_one_question(account, changes):
    account.charge(STEP, purpose="count", key="k")
    account.store("k", b"secret")
    arguments = {"event": STEP, "purpose": "count", **changes}
    with pytest.raises(Incompatible, match="was charged for something else"):
        account.charge(arguments.pop("event"), key="k", **arguments)


def test_a_note_is_never_replaced(account):
    account.note("a run", b"first")
    with pytest.raises(Incompatible, match="never replaced"):
        account.note("a run", b"second")
    assert account.notes("a run") == (("a run", b"first"),)


def test_an_answer_is_stored_once_and_only_for_a_charged_key(ledger, account):
    account.charge(STEP, purpose="count", key="k")
    account.charge(STEP, purpose="count")
    with pytest.raises(Incompatible, match="never charged"):
        account.store("other", b"x")
    with pytest.raises(TypeError, match="must be bytes"):
        account.store("k", "x")
    account.store("k", b"")
    with pytest.raises(Incompatible, match="never replaced"):
        account.store("k", b"y")
    assert account.answer("k") == b""
    assert ledger.create("others", epsilon=1.0, delta=1e-6).answer("k") is None


def test_an_answered_key_works_when_nothing_is_left(account):
    account.charge(ApproxDP(0.1, 0.0), purpose="all", key="k")
    account.store("k", b"x")
    assert account.charge(ApproxDP(0.1, 0.0), purpose="all", key="k").answer == b"x"
    with pytest.raises(BudgetExceeded):
        account.charge(STEP, purpose="more", key="k2")


# Statements


def test_the_statement_claims_the_cap_however_little_was_used(account):
    empty = account.statement().to_dict()
    account.charge(Repeat(Gaussian(1000.0), 2), purpose="small fit")
    statement = account.statement()
    said = json.loads(statement.to_json())
    for claim in (empty, said):
        assert (claim["epsilon"], claim["delta"], claim["relation"]) == (0.1, 1e-6, "replace")
        assert "e^0.1 times" in claim["meaning"]
        assert "1e-06" in claim["meaning"]
    assert said["history"][0]["purpose"] == "small fit"
    assert said["history"][0]["event"] == to_plain(Repeat(Gaussian(1000.0), 2))
    assert 0 == empty["used"] < said["used"] < 0.01
    assert "2 x Gaussian(1000)" in str(statement)
    assert "epsilon = 0.1, delta = 1e-06" in str(statement)


# Addresses


def test_addresses(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(sys, "platform", "linux")
    assert Ledger().url == f"sqlite:///{tmp_path}/data/dpcvx/dpcvx.db"
    assert Ledger().create("people", epsilon=1.0, delta=1e-6).budget.epsilon == 1.0
    monkeypatch.chdir(tmp_path)
    assert Ledger("a.db") == Ledger(tmp_path / "a.db") == Ledger(f"sqlite:///{tmp_path}/a.db")
    for wrong in ("sqlite://", "sqlite:///:memory:", "mysql://host/name", "://"):
        with pytest.raises(ValueError, match=r"sqlite:///file.db"):
            Ledger(wrong)
    hidden = Ledger("postgresql://me:secret@host/name", witness="postgresql://me:secret@other/name")
    assert "secret" not in repr(hidden)
    assert "secret" in hidden.url


def test_a_missing_ledger_is_not_made_by_looking(tmp_path):
    place = tmp_path / "none.db"
    for look in (Ledger(place).accounts, Ledger(place).verify, lambda: Ledger(place).account("a")):
        with pytest.raises(LedgerUnavailable, match="There is no ledger at"):
            look()
    assert not place.exists()
    place.write_bytes(b"")
    with pytest.raises(LedgerUnavailable, match="There is no ledger at"):
        Ledger(place).accounts()
    (tmp_path / "text.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(LedgerDamaged, match="no ledger, or it is damaged"):
        Ledger(tmp_path / "text.db").accounts()


def test_a_server_that_is_away_is_named_without_its_password():
    with pytest.raises(LedgerUnavailable, match="does not answer") as refused:
        Ledger("postgresql://me:secret@127.0.0.1:1/name").accounts()
    assert "secret" not in str(refused.value)


# Durability


def test_sqlite_waits_for_the_disk(tmp_path):
    ledger = Ledger(tmp_path / "a.db")
    ledger.create("people", epsilon=1.0, delta=1e-6)
    with engine(ledger.url).connect() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 3  # EXTRA
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "delete"
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1


def test_a_database_that_is_not_there_is_named(databases):
    place = Ledger(databases().replace("/test", "/nowhere"))
    with pytest.raises(LedgerUnavailable, match="There is no ledger at"):
        place.accounts()
    with pytest.raises(LedgerUnavailable, match="does not answer"):
        place.create("people", epsilon=1.0, delta=1e-6)


def test_postgresql_waits_for_the_disk(databases):
    opened = engine(address(databases()))
    with opened.connect() as connection:
        assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"
    opened.dispose()


def test_the_store_itself_refuses_to_overspend(ledger, account):
    for column in ("used", "failed"):
        with (
            pytest.raises(sa.exc.IntegrityError, match=r"(?i)check"),
            engine(ledger.url).begin() as connection,
        ):
            connection.execute(account_table.update(), {column: 2**53 + 1})


# One account, whoever holds it


def test_copies_clones_and_pickles_are_the_same_account(account):
    for other in (copy.deepcopy(account), pickle.loads(pickle.dumps(account)), copy.copy(account)):
        other.charge(STEP, purpose="copy")
    assert len(account.history()) == 3


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_charges_the_same_account(account):
    account.charge(STEP, purpose="parent")  # the parent's connection is open when the child is made
    child = os.fork()
    if child == 0:
        try:
            account.charge(STEP, purpose="child")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    account.charge(STEP, purpose="parent")
    assert [entry.purpose for entry in account.history()] == ["parent", "child", "parent"]


def test_a_forked_process_has_connections_of_its_own(tmp_path, monkeypatch):
    url = Ledger(tmp_path / "a.db").url
    mine = engine(url)
    assert engine(url) is mine
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert engine(url) is not mine


def test_threads_share_one_account(account):
    def attempt(_):
        try:
            account.charge(ApproxDP(0.01, 0.0), purpose="thread")
        except BudgetExceeded:
            return 0
        return 1

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(attempt, range(40))) == 10
    assert account.used == 1.0


def test_the_same_key_from_many_threads_is_charged_once(account):
    outcomes = []

    def attempt():
        try:
            account.charge(STEP, purpose="count", key="k")
            outcomes.append("charged")
        except DeadKey:
            outcomes.append("dead")

    threads = [threading.Thread(target=attempt) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["charged"] + 5 * ["dead"]
    assert len(account.history()) == 1
