"""A run of comparisons survives stops and crashes, and an ended one is never continued."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import shutil
import signal
import time
from dataclasses import replace

import numpy as np
import pytest

from dpcvx.accounting import Budget
from dpcvx.errors import AccountNotOpen, Incompatible, LedgerDamaged, LedgerUnavailable
from dpcvx.ledger import Account, Ledger
from dpcvx.noise import SeededGenerator
from dpcvx.queries import Asker, Attribute, Count, Marginal, QueryEngine, Schema
from dpcvx.queries.comparison_runs import RunState
from dpcvx.queries.sparse_vector import AboveThreshold

N = 8000
NAMES = ("a", "b", "c", "parity")
SCHEMA = Schema(tuple(Attribute(name, ("0", "1"), "1") for name in NAMES))
GOOD, BAD = Count({"a": ["1"]}), Marginal(NAMES)


def table():
    """Three attributes decide a fourth, which no three of them show."""
    a, b, c = np.random.default_rng(0).integers(0, 2, (3, N))
    columns = (a, b, c, a ^ b ^ c)
    return {name: column.astype(str) for name, column in zip(NAMES, columns, strict=True)}


TABLE = table()


@pytest.fixture(autouse=True)
def unchecked(monkeypatch):
    """Engines without self-checks, which take most of the time of a start."""
    monkeypatch.setattr("dpcvx.queries.budget_split.CHECKS", ())


@pytest.fixture(autouse=True)
def certain(monkeypatch):
    """Comparisons that noise cannot change; before, noise put one of 200 good answers above the level."""

    def above(side, run, checked, level):
        return run.above(1000 * (checked.score(side._counts) - level), side._rng)

    monkeypatch.setattr("dpcvx.queries.private_side.PrivateSide.above", above)


@pytest.fixture
def ledger(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", witness=tmp_path / "witness")
    ledger.create("people", epsilon=4.0, delta=1e-6)
    return ledger


def start(ledger):
    return QueryEngine(
        SCHEMA,
        TABLE,
        Budget(4.0, 1e-6),
        method="warm",
        n_queries=50,
        check=0,
        ledger=ledger,
        account="people",
    )


def found(engine):
    """Let the next comparison be above, whatever the records say."""
    engine._private_side.above = lambda run, checked, level: True


def kept(ledger):
    """The stored state of the open run, or None."""
    account = ledger.account("people")
    (note, *_) = (key for key, _ in account.notes("") if " start " in key)
    return account.read_secret(f"{note.split(' ')[0]} run ")


@pytest.mark.long
def test_restarts_use_up_nothing(ledger):
    """Each restart after a question used up one of four runs."""
    made = start(ledger)
    whole = made.remaining
    for _ in range(20):
        assert made.ask(GOOD).checked
        assert made.remaining == whole
        threshold = made._runs._state.threshold
        made = start(ledger)
        assert made.comparisons == (4, 4)
        assert made.remaining == whole
        assert made._runs._state.threshold == threshold
    ledger.verify()


def test_a_continued_run_is_the_run_that_was_interrupted():
    mechanism = AboveThreshold(1.0)
    scores = np.random.default_rng(0).normal(size=30) - 20
    first, rng = mechanism.start(SeededGenerator(1)), SeededGenerator(2)
    whole = [first.above(score, rng) for score in scores]
    second, rng = mechanism.start(SeededGenerator(1)), SeededGenerator(2)
    parts = []
    for score in scores:
        second = mechanism.resume(second.threshold)
        parts.append(second.above(score, rng))
    assert parts == whole


def test_what_remains_falls_with_a_measurement_and_not_before(ledger):
    made = start(ledger)
    whole = made.remaining
    made.ask(GOOD)
    assert made.remaining == whole
    found(made)
    assert made.ask(BAD).branch == "oracle"
    assert made.remaining < whole
    assert made.comparisons == (3, 4)
    assert start(ledger).remaining == made.remaining


def test_without_a_witness_a_restart_ends_the_run(tmp_path):
    """A copy of the ledger could not be told from the newest, and would use the threshold again."""
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.create("people", epsilon=4.0, delta=1e-6)
    start(ledger).ask(GOOD)
    assert kept(ledger) is None
    assert start(ledger).comparisons == (3, 4)


def test_an_old_copy_continues_no_run(ledger, tmp_path):
    made = start(ledger)
    made.ask(GOOD)
    shutil.copy(tmp_path / "ledger.db", tmp_path / "old.db")
    found(made)
    made.ask(BAD)
    shutil.copy(tmp_path / "old.db", tmp_path / "ledger.db")
    with pytest.raises(LedgerDamaged, match="old"):
        start(ledger)
    with pytest.raises(LedgerDamaged, match="old"):
        made.ask(GOOD)  # put in place below a running engine
    assert kept(Ledger(ledger.url)) is not None
    unwitnessed = start(Ledger(ledger.url))  # nobody can tell, so the run is over
    assert unwitnessed.comparisons == (3, 4)
    assert kept(Ledger(ledger.url)) is None


def test_a_new_witness_ends_open_runs(ledger, tmp_path):
    start(ledger).ask(GOOD)
    other = Ledger(ledger.url, witness=tmp_path / "new witness")
    other.start_witness(reason="The old one was lost.")
    assert start(other).comparisons == (3, 4)


@pytest.mark.parametrize("moment", ["before the end is noted", "before the measurement", "before its note"])
def test_a_crash_after_an_error_was_found_loses_nothing_and_continues_no_run(ledger, moment, monkeypatch):
    made = start(ledger)
    made.ask(GOOD)
    threshold = made._runs._state.threshold
    found(made)

    def crash(*arguments, **named):
        raise KeyboardInterrupt

    if moment == "before the end is noted":
        monkeypatch.setattr(made._runs, "_end", crash)
    elif moment == "before the measurement":
        monkeypatch.setattr(made._private_side, "ask", crash)
    else:
        monkeypatch.setattr(made, "_note_update", crash)
    with pytest.raises(KeyboardInterrupt):
        made.ask(BAD, key="k")
    again = start(ledger)
    assert again.n_updates == 1
    assert again.comparisons == (3, 4)
    assert kept(ledger) is None
    again.ask(BAD, key="k")
    assert again.histogram.marginal((0, 1, 2, 3)).max() == pytest.approx(1 / 8, abs=0.03)
    assert again.comparisons == (3, 4)
    assert again._runs._state.threshold != threshold
    ledger.verify()


def test_a_query_that_cannot_be_measured_stops_no_start(ledger, monkeypatch):
    made = start(ledger)
    found(made)

    def refuse(*arguments):
        raise Incompatible("It cannot be measured.")

    monkeypatch.setattr("dpcvx.queries.measuring.Measurer.measure", refuse)
    with pytest.raises(Incompatible):
        made.ask(BAD)
    again = start(ledger)
    assert (again.n_updates, again.comparisons) == (1, (3, 4))
    assert again.ask(GOOD).checked


@pytest.mark.parametrize("stored", [False, True], ids=["passing", "stored"])
@pytest.mark.parametrize("above", [False, True])
def test_a_result_that_could_not_be_kept_was_never_found(ledger, above, stored, monkeypatch):
    """On a full disk an answer above failed and one below did not; each failure told one comparison."""
    made = start(ledger)
    made.ask(GOOD)
    threshold = made._runs._state.threshold
    compare = made._private_side.above
    made._private_side.above = lambda run, checked, level: above

    def full(*arguments):
        raise LedgerUnavailable("The disk is full.")

    monkeypatch.setattr(Account, "keep", full)
    if stored:
        monkeypatch.setattr(Account, "note", full)
    with pytest.raises(LedgerUnavailable):
        made.ask(BAD, key="k" if stored else None)
    monkeypatch.undo()
    made._private_side.above = compare
    assert made.ask(GOOD).checked
    assert made._runs._state.threshold == threshold
    assert made.comparisons == (4, 4)


def test_both_results_are_kept_by_the_same_write():
    states = [RunState(0, -(10**12), 17, above, GOOD.to_json(), "ann") for above in (0, 1)]
    below, above = (state.to_bytes() for state in states)
    assert len(below) == len(above)
    assert all("10000" not in repr(state) and "above" not in repr(state) for state in states)


def test_a_result_below_is_written_with_its_answer(ledger, monkeypatch):
    """Two writes for each answer, each with its wait for the disk, instead of one."""
    made = start(ledger)
    made.ask(GOOD, key="first")
    monkeypatch.setattr(Account, "keep", lambda *arguments: 1 / 0)
    assert made.ask(GOOD, key="second").checked
    monkeypatch.undo()
    assert json.loads(kept(ledger))["count"] == 2


def test_two_processes_do_not_share_a_run(ledger):
    first = start(ledger)
    first.ask(GOOD)
    second = start(ledger)
    second.ask(GOOD)
    with pytest.raises(Incompatible, match="Another process"):
        first.ask(GOOD)


def test_a_threshold_is_in_the_store_alone_and_only_while_it_is_used(ledger, tmp_path):
    made = start(ledger)
    made.ask(GOOD)
    threshold = str(made._runs._state.threshold).encode()
    account = ledger.account("people")
    assert threshold in (tmp_path / "ledger.db").read_bytes()
    told = b"".join(content for _, content in account.notes(""))
    told += account.statement().to_json().encode() + made.statement().to_json().encode()
    told += (tmp_path / "witness").read_bytes() + repr(made._runs._state).encode()
    assert threshold not in told
    found(made)
    made.ask(BAD)
    assert threshold not in (tmp_path / "ledger.db").read_bytes()


class TestShares:
    """Nobody uses up the comparisons of all."""

    def ask(self, made, name, most=1):
        compiled = BAD.compile(SCHEMA, N)
        return made.answer(compiled, asker=Asker(name, most))

    def test_an_asker_causes_no_more_measurements_than_allowed(self, ledger):
        made = start(ledger)
        found(made)
        assert self.ask(made, "ann").branch == "oracle"
        again = self.ask(made, "ann")
        assert (again.branch, again.checked) == ("histogram", False)
        assert "this asker has no share of the comparisons left" in again.comparison_words
        assert "the comparisons are used up" in replace(again, remaining=0.0).comparison_words
        assert self.ask(made, "bob").branch == "oracle"
        assert (made.measurements_by("ann"), made.measurements_by("bob")) == (1, 1)

    @pytest.mark.long
    def test_a_restart_remembers_who_used_them(self, ledger):
        made = start(ledger)
        found(made)
        self.ask(made, "ann")
        again = start(ledger)
        found(again)
        assert not self.ask(again, "ann").checked
        assert self.ask(again, "ann", most=2).branch == "oracle"


def ask_until_killed(place, witness, seed, answered):
    made = start(Ledger(place, witness=witness))
    rng = random.Random(seed)
    while True:
        made.ask(rng.choice((GOOD, BAD)), key=f"{seed} {answered.value}")
        answered.value += 1


@pytest.mark.long
def test_twenty_kills_lose_and_burn_nothing(ledger, tmp_path):
    """Processes that are killed at any moment, by the system, between any two instructions."""
    start(ledger)
    context, rng, told = multiprocessing.get_context("fork"), random.Random(0), 0
    for seed in range(20):
        answered, wanted = context.Value("i", 0, lock=False), rng.randrange(3)
        place = (tmp_path / "ledger.db", tmp_path / "witness", seed, answered)
        child = context.Process(target=ask_until_killed, args=place)
        child.start()
        while answered.value < wanted:
            time.sleep(0.001)
        time.sleep(0.05 * rng.random())
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        told += answered.value
    made = start(ledger)
    ledger.verify()
    entries = made._transcript.entries()
    kinds = [entry.kind for entry in entries]
    ends = [json.loads(entry.content) for entry in entries if entry.kind == "end"]
    assert 1 <= kinds.count("update") == kinds.count("end") < 4
    assert [end["update"] for end in ends] == list(range(len(ends)))
    assert made.comparisons == (4 - kinds.count("update"), 4)
    answers = [name for name, _ in ledger.account("people").notes("") if " answer " in name]
    assert told <= len(answers) <= told + 20  # what was answered is kept
    assert len(ledger.account("people").history()) == 1


@pytest.mark.long
@pytest.mark.parametrize("above", [False, True])
def test_a_frozen_account_answers_nothing_with_or_without_a_key(tmp_path, above):
    """Without a witness, answers that were not stored went on."""
    ledger = Ledger(tmp_path / "ledger.db")
    account = ledger.create("people", epsilon=4.0, delta=1e-6)
    made = start(ledger)
    made.ask(GOOD)
    account.freeze(reason="A complaint.")
    made._private_side.above = lambda run, checked, level: above
    for key in (None, "k"):
        with pytest.raises(AccountNotOpen):
            made.ask(GOOD, key=key)
    with pytest.raises(AccountNotOpen):
        made.synthetic(10)
    account.thaw(reason="It was settled.")
    assert made.n_updates == 0
    assert made.comparisons == (4, 4)


class TestBackup:
    """A drill: back up while an engine runs, restore the newest copy, then an old one."""

    def test_a_restored_copy_ends_the_run_and_an_old_one_is_refused(self, ledger, tmp_path):
        made = start(ledger)
        made._private_side.above = lambda run, checked, level: False  # noise ends a run in one of many tests
        answer = made.ask(GOOD, key="k")
        threshold = str(made._runs._state.threshold).encode()
        found = ledger.backup(tmp_path / "copy.db")
        assert str(found.entries) in str(ledger.verify())
        assert threshold not in (tmp_path / "copy.db").read_bytes()
        shutil.copy(tmp_path / "copy.db", tmp_path / "ledger.db")
        again = start(ledger)  # nothing was added since: the copy is the newest
        assert again.comparisons == (3, 4)
        assert again.ask(GOOD, key="k") == answer
        again.ask(GOOD)
        shutil.copy(tmp_path / "copy.db", tmp_path / "ledger.db")
        with pytest.raises(LedgerDamaged, match="old"):
            start(ledger)

    def test_a_copy_replaces_nothing(self, ledger, tmp_path):
        (tmp_path / "copy.db").write_text("other")
        with pytest.raises(Incompatible, match="exists already"):
            ledger.backup(tmp_path / "copy.db")
        assert (tmp_path / "copy.db").read_text() == "other"
        assert not (tmp_path / "copy.db.part").exists()


@pytest.mark.long
@pytest.mark.parametrize("kind", ["run", "end"])
def test_a_run_that_could_not_be_noted_is_never_used(tmp_path, monkeypatch, kind):
    """Without a witness a run whose start could not be written went on all the same: one run was free."""
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.create("people", epsilon=4.0, delta=1e-6)
    made, note = start(ledger), Account.note

    def full(account, key, *rest):
        if f" {kind} " in key:
            raise LedgerUnavailable("The disk is full.")
        note(account, key, *rest)

    compare = made._private_side.above
    found(made)
    monkeypatch.setattr(Account, "note", full)
    with pytest.raises(LedgerUnavailable):
        made.ask(BAD)
    monkeypatch.undo()
    made._private_side.above = compare
    made.ask(GOOD)
    noted = sum(entry.kind == "run" for entry in made._transcript.entries())
    assert made._runs._state.run < noted == made._runs.begun
    assert made.comparisons == ((4, 4) if kind == "run" else (3, 4))


@pytest.mark.long
@pytest.mark.parametrize("kind", ["run", "end", "update"])
def test_an_entry_that_the_witness_could_not_be_told_counts(ledger, monkeypatch, kind):
    """After such an update every question measured anew and failed, until a restart."""
    made, tell = start(ledger), Ledger._tell
    found(made)

    def full(place, head):
        if kind in made._transcript._account.notes("")[-1][0].split(" "):
            raise LedgerUnavailable("The disk is full.")
        tell(place, head)

    monkeypatch.setattr(Ledger, "_tell", full)
    with pytest.raises(LedgerUnavailable):
        made.ask(BAD)
    with pytest.raises(LedgerUnavailable):
        made.ask(BAD)
    monkeypatch.undo()
    made.ask(BAD)
    kinds = [entry.kind for entry in made._transcript.entries()]
    assert kinds.count("update") == kinds.count("end") == made.n_updates <= kinds.count("run")
    assert "witnessed" in str(ledger.verify())


@pytest.mark.long
def test_a_crash_before_the_witness_knew_lets_no_old_copy_in(ledger, tmp_path, monkeypatch):
    """The end of a run was in the ledger and not in its witness; a new start told only the ledger's story."""
    made = start(ledger)
    made.ask(GOOD)
    shutil.copy(tmp_path / "ledger.db", tmp_path / "old.db")
    found(made)

    def crash(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(Ledger, "_tell", crash)
    with pytest.raises(KeyboardInterrupt):
        made.ask(BAD)  # the end is noted
    with pytest.raises(KeyboardInterrupt):
        start(ledger)  # the measurement is noted
    monkeypatch.undo()
    assert start(ledger).n_updates == 1  # and known from here on
    shutil.copy(tmp_path / "old.db", tmp_path / "ledger.db")
    with pytest.raises(LedgerDamaged, match="old"):
        start(ledger)
