"""Witnesses of a ledger that are lost, cut short, old, ahead of it, or begun anew."""

import os
import shutil
from pathlib import Path

import pytest
import sqlalchemy as sa

from dpcvx import Ledger
from dpcvx.errors import Incompatible, LedgerDamaged, WrongValue
from dpcvx.events import ApproxDP
from dpcvx.ledger import SecretChange
from dpcvx.ledger.database import engine, entry_table, head_table
from dpcvx.ledger.witness import FileWitness, Head, StoreWitness, witness_at

STEP = ApproxDP(0.1, 0.0)
CAP = {"epsilon": 1.0, "delta": 1e-6}


@pytest.fixture(params=["file", "store"])
def place(request, tmp_path):
    return str(tmp_path / "witness") if request.param == "file" else f"sqlite:///{tmp_path}/witness.db"


def lose(place):
    """Delete a witness, as somebody does who tidies up a disk."""
    os.unlink(place.removeprefix("sqlite:///"))


def identity(ledger):
    with engine(ledger.url).connect() as connection:
        return connection.execute(sa.select(head_table.c.identity)).scalar()


def empty(place):
    """Leave a witness that holds nothing."""
    if "://" not in place:
        open(place, "w").close()
        return
    with engine(witness_at(place).url).begin() as connection:
        connection.execute(sa.text("DELETE FROM witness"))


@pytest.mark.parametrize("harm", [lose, empty])
def test_an_old_ledger_spends_nothing_where_its_witness_was_lost(tmp_path, place, harm):
    """The old copy was continued in silence, and most of the cap was spent a second time."""
    path = tmp_path / "ledger.db"
    ledger = Ledger(path, witness=place)
    account = ledger.create("people", **CAP)
    shutil.copy(path, tmp_path / "old.db")
    for i in range(7):
        account.charge(STEP, purpose=f"release {i}", key=str(i))
    shutil.copy(tmp_path / "old.db", path)
    harm(place)
    for write in (
        lambda: account.charge(STEP, purpose="again"),
        lambda: account.note("a", b"x"),
        lambda: ledger.create("new", **CAP),
    ):
        with pytest.raises(LedgerDamaged, match=r"witness.*missing or empty.*ledger witness"):
            write()
    with pytest.raises(LedgerDamaged, match="never seen"):
        ledger.verify()
    assert account.used == 0.0  # reading needs no witness
    assert account.history() == ()
    assert Ledger(path).verify().entries == 1


def test_an_old_copy_gives_no_secret(tmp_path, place):
    """What was kept secret in it may have been used up since."""
    path = tmp_path / "ledger.db"
    account = Ledger(path, witness=place).create("people", **CAP)
    account.keep(SecretChange("run", None, b"threshold"))
    shutil.copy(path, tmp_path / "old.db")
    account.charge(STEP, purpose="release")
    assert account.read_secret("run") == b"threshold"
    shutil.copy(tmp_path / "old.db", path)
    with pytest.raises(LedgerDamaged, match="old"):
        account.read_secret("run")


@pytest.mark.parametrize(
    "write",
    [
        lambda account: account.store("paid", b"answer"),
        lambda account: account.note("used", b"part of it"),
        lambda account: account.freeze(reason="a doubt"),
        lambda account: account.close(reason="the study has ended"),
    ],
    ids=["answer", "note", "freeze", "close"],
)
def test_a_copy_that_lacks_only_the_newest_entry_is_noticed(tmp_path, place, write):
    """Whatever it is: an answer, how much of a charge was used, or that the account takes no charges."""
    path = tmp_path / "ledger.db"
    account = Ledger(path, witness=place).create("people", **CAP)
    account.charge(STEP, purpose="release", key="paid")
    shutil.copy(path, tmp_path / "old.db")
    write(account)
    shutil.copy(tmp_path / "old.db", path)
    with pytest.raises(LedgerDamaged, match="old or edited copy"):
        account.charge(STEP, purpose="again")


@pytest.mark.parametrize("harm", [lose, empty])
def test_a_lost_witness_is_noticed_beside_the_newest_ledger_too(ledger, tmp_path, place, harm):
    account = Ledger(ledger.url, witness=place).create("people", **CAP)
    account.charge(STEP, purpose="first")
    harm(place)
    with pytest.raises(LedgerDamaged, match="missing or empty"):
        account.charge(STEP, purpose="second")
    assert len(account.history()) == 1


def test_a_witness_is_not_begun_in_passing(ledger, place):
    """A ledger that had no witness gets one by a recorded decision, not by a charge."""
    account = ledger.create("people", **CAP)
    account.charge(STEP, purpose="without a witness")
    watched = Ledger(ledger.url, witness=place).account("people")
    with pytest.raises(LedgerDamaged, match="missing or empty"):
        watched.charge(STEP, purpose="with one")
    if "://" in place:
        assert not os.path.exists(place.removeprefix("sqlite:///"))  # looking for a witness makes none


def test_an_owner_begins_a_new_witness_and_the_chain_says_so(ledger, place):
    watched = Ledger(ledger.url, witness=place)
    account = watched.create("people", **CAP)
    watched.create("others", **CAP)
    account.charge(STEP, purpose="first")
    lose(place)
    with pytest.raises(WrongValue, match="reason"):
        watched.start_witness(reason=" ")
    with pytest.raises(Incompatible, match="witness="):
        ledger.start_witness(reason="no place was given")
    watched.start_witness(reason="The disk of the witness failed.")
    account.charge(STEP, purpose="second")
    assert account.used == pytest.approx(0.2)
    found = watched.verify()
    assert (found.entries, found.witnessed) == (6, 2)
    for each in ("people", "others"):
        statement = watched.account(each).statement()
        (start,) = statement.witness_starts
        assert start.reason == "The disk of the witness failed."
        assert start.reason in str(statement)
        assert statement.to_dict()["witness_starts"][0]["sequence"] == start.sequence
    with pytest.raises(Incompatible, match="holds entries"):
        watched.start_witness(reason="again")
    other = Ledger(ledger.url, witness=f"{place}2")
    other.start_witness(reason="A second witness, on another disk.")
    assert other.verify().witnessed == 1


def test_an_edited_reason_is_noticed(ledger, place):
    watched = Ledger(ledger.url, witness=place)
    ledger.create("people", **CAP)
    watched.start_witness(reason="lost")
    with engine(ledger.url).begin() as connection:
        text = connection.execute(
            sa.select(entry_table.c.content).where(entry_table.c.sequence == 2)
        ).scalar()
        changed = {"content": text.replace("lost", "moved")}
        connection.execute(entry_table.update().where(entry_table.c.sequence == 2), changed)
    with pytest.raises(LedgerDamaged, match="Entry 2"):
        watched.verify()


def test_a_new_witness_for_an_edited_ledger_is_refused(ledger, place):
    ledger.create("people", **CAP).charge(STEP, purpose="first")
    with engine(ledger.url).begin() as connection:
        connection.execute(head_table.update(), {"hash": "0" * 64})
    with pytest.raises(LedgerDamaged):
        Ledger(ledger.url, witness=place).start_witness(reason="x")


class PowerCut(BaseException):
    """The process ends here."""


def cut(*_):
    raise PowerCut


@pytest.mark.parametrize("when", ["before the ledger", "after the ledger"])
def test_a_ledger_whose_first_account_was_cut_off_opens(ledger, place, when, monkeypatch):
    watched = Ledger(ledger.url, witness=place)
    tell = Ledger._tell
    with monkeypatch.context() as power:
        if when == "before the ledger":  # the witness was told of a ledger that was never written
            power.setattr("dpcvx.ledger.accounts.append", cut)
        else:
            power.setattr(Ledger, "_tell", lambda self, head: cut() if head.sequence else tell(self, head))
        with pytest.raises(PowerCut):
            watched.create("people", **CAP)
    if when == "before the ledger":
        watched.create("people", **CAP)
    account = watched.account("people")
    account.charge(STEP, purpose="first")
    account.charge(STEP, purpose="second")
    assert watched.verify().entries == 3
    # What was told of the ledger that was never written does not hide the loss of the rest.
    latest = witness_at(watched.witness).latest(identity(watched))
    assert latest.sequence == 3


def test_a_charge_cut_off_between_ledger_and_witness_is_spent_and_the_ledger_opens(
    ledger, place, monkeypatch
):
    watched = Ledger(ledger.url, witness=place)
    account = watched.create("people", **CAP)
    with monkeypatch.context() as power:
        power.setattr(Ledger, "_tell", cut)
        with pytest.raises(PowerCut):
            account.charge(STEP, purpose="lost")
    account.charge(STEP, purpose="next")
    assert account.used == pytest.approx(0.2)
    assert watched.verify().witnessed == 2


def test_a_witness_that_is_ahead_of_the_ledger_is_refused(ledger, place):
    """The ledger is written first, so that no crash leaves a witness ahead of it."""
    watched = Ledger(ledger.url, witness=place)
    account = watched.create("people", **CAP)
    witness_at(watched.witness).append(Head(identity(watched), 2, "0" * 64))
    with pytest.raises(LedgerDamaged, match="old or edited copy"):
        account.charge(STEP, purpose="x")


def test_a_witness_cut_short_or_restored_with_the_ledger(tmp_path):
    path, place = tmp_path / "ledger.db", tmp_path / "witness"
    ledger = Ledger(path, witness=place)
    account = ledger.create("people", **CAP)
    account.charge(STEP, purpose="first")
    shutil.copy(path, tmp_path / "old.db")
    shutil.copy(place, tmp_path / "old witness")
    account.charge(STEP, purpose="second")
    shutil.copy(tmp_path / "old witness", place)  # an older witness only lags behind
    account.charge(STEP, purpose="third")
    place.write_bytes(place.read_bytes()[:-30])  # half of the last line
    account.charge(STEP, purpose="fourth")
    assert len(account.history()) == 4
    # Both restored together: nobody can see it, and the documentation says so.
    shutil.copy(tmp_path / "old.db", path)
    shutil.copy(tmp_path / "old witness", place)
    account.charge(STEP, purpose="unseen")
    assert len(account.history()) == 2


def test_a_ledger_is_no_witness_of_itself(tmp_path):
    path = tmp_path / "ledger.db"
    for place in (path, f"sqlite:///{path}"):
        with pytest.raises(WrongValue, match="apart"):
            Ledger(path, witness=place)


def test_a_ledger_may_be_moved(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", witness=tmp_path / "witness")
    ledger.create("people", **CAP).charge(STEP, purpose="first")
    (tmp_path / "new").mkdir()
    shutil.move(tmp_path / "ledger.db", tmp_path / "new" / "book.db")
    shutil.move(tmp_path / "witness", tmp_path / "new" / "seen")
    moved = Ledger(tmp_path / "new" / "book.db", witness=tmp_path / "new" / "seen")
    moved.account("people").charge(STEP, purpose="second")
    assert moved.verify().witnessed == 3


def test_a_witness_in_a_server_is_missed_too(databases):
    from dpcvx.ledger.database import address

    ledger = Ledger(databases(), witness=databases())
    account = ledger.create("people", **CAP)
    account.charge(STEP, purpose="first")
    assert isinstance(witness_at(ledger.witness), StoreWitness)
    with engine(address(ledger.witness)).begin() as connection:
        connection.execute(sa.text("DROP TABLE witness"))
    with pytest.raises(LedgerDamaged, match="missing or empty"):
        account.charge(STEP, purpose="second")
    ledger.start_witness(reason="dropped")
    account.charge(STEP, purpose="second")
    assert ledger.verify().witnessed == 2


def test_a_new_witness_is_on_the_disk_with_its_name_and_is_told_once(tmp_path, monkeypatch):
    place, synced, sync = tmp_path / "seen" / "witness", [], os.fsync
    place.parent.mkdir()

    def note(file):
        synced.append(Path(os.readlink(f"/proc/self/fd/{file}")))
        sync(file)

    monkeypatch.setattr(os, "fsync", note)
    witness = FileWitness(place)
    witness.append(Head("identity", 1, "a" * 64))
    assert [each for each in synced if each in (place, place.parent)] == [place, place.parent]
    synced.clear()
    witness.append(Head("identity", 2, "b" * 64))
    assert place in synced
    assert place.parent not in synced
    ledger = Ledger(tmp_path / "ledger.db", witness=tmp_path / "own")
    ledger.create("people", epsilon=1.0, delta=1e-6)
    before = (tmp_path / "own").read_bytes()
    for _ in range(3):
        ledger.check()
    assert (tmp_path / "own").read_bytes() == before  # it knows the newest entry
