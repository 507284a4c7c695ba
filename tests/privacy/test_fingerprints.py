"""Accounts recognise their people, and only the data owner learns of it."""

from __future__ import annotations

import hashlib
import json
import sqlite3

import numpy as np
import pytest

from dpcvx.ledger import Declared, Ledger
from dpcvx.ledger.fingerprints import PeopleSketch
from dpcvx.service import start
from dpcvx.service.analysts import Analysts
from dpcvx.service.database import ServiceDatabase
from serving import Teller, visitor

ROWS = Declared("row", "a schema")


def people(first, last):
    return [f"person {k}" for k in range(first, last)]


@pytest.fixture
def ledger(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", witness=tmp_path / "witness")
    for name in ("people", "others"):
        ledger.create(name, epsilon=1.0, delta=1e-6)
    return ledger


def say(ledger, account, listed, declared=ROWS):
    return " ".join(ledger.recognise_people(account, listed, declared))


def test_the_same_table_in_another_order_is_not_reported(ledger):
    assert say(ledger, "people", people(0, 5000)) == ""
    assert say(ledger, "people", reversed(people(0, 5000))) == ""


@pytest.mark.parametrize(
    ("listed", "words"),
    [
        (people(0, 5400), "more rows: the 5,000 rows of the last start are in this table, and 400 more"),
        (people(500, 5500), "changed file: about"),
        (people(1, 5001), "changed file: about"),
        (people(9000, 14_000), "other people: about 0%"),
        (["a", "b"] * 2500, "too much alike"),
    ],
    ids=["more", "changed", "one", "other", "alike"],
)
def test_a_changed_table_is_explained(ledger, listed, words):
    say(ledger, "people", people(0, 5000))
    assert words in say(ledger, "people", listed)


def test_the_same_people_in_another_account_are_recognised(ledger):
    say(ledger, "people", people(0, 5000))
    found = say(ledger, "others", people(2500, 7500))
    assert "are in the other, account 'people', too" in found
    assert "add up" in found
    share = float(found.split("about ")[1].split("%")[0])
    assert share == pytest.approx(50, abs=8)
    assert say(ledger, "others", people(90_000, 95_000)).startswith("other people")


def test_declared_batches_have_other_people(ledger):
    batch = Declared("row", "a schema", "panel")
    say(ledger, "people", people(0, 3000), batch)
    assert "hardly anybody is in both" in say(ledger, "others", people(3000, 6000), batch)
    assert "declared as batches of 'panel'" in say(ledger, "others", people(1000, 4000), batch)


def test_fingerprints_are_keyed_and_in_no_backup(ledger, tmp_path):
    say(ledger, "people", people(0, 100))
    one, other = (PeopleSketch.of(people(0, 100), key * 32) for key in (b"a", b"b"))
    assert one.share_in(one) == 1
    assert one.share_in(other) == 0
    stored = (tmp_path / "ledger.db").read_bytes()
    assert b"smallest" in stored
    assert b"person 17" not in stored
    ledger.backup(tmp_path / "copy.db")
    assert b"smallest" not in (tmp_path / "copy.db").read_bytes()
    told = ledger.account("people").statement().to_json() + str(ledger.account("people").notes(""))
    assert "smallest" not in told
    ledger.verify()


def test_a_backup_that_is_killed_leaves_nothing_private_behind(ledger, tmp_path, monkeypatch):
    """The part that is written before the copy has its name had fingerprints and secrets in it."""
    say(ledger, "people", people(0, 100))
    connect, left = sqlite3.connect, []

    def watched(place, **given):
        left.append(place)
        return connect(place, **given)

    def killed(_):
        left.append((tmp_path / "copy.db.part").read_bytes())
        raise KeyboardInterrupt

    monkeypatch.setattr("sqlite3.connect", watched)
    monkeypatch.setattr("os.fsync", killed)
    with pytest.raises(KeyboardInterrupt):
        ledger.backup(tmp_path / "copy.db")
    assert left[1] == ""  # private tables are deleted where no file has a name
    assert b"people" in left[-1]
    assert b"smallest" not in left[-1]


def test_cells_of_any_kind_stop_nothing(ledger):
    columns = {"a": np.array([1, None, "\ud800", b"\xff"], dtype=object)}
    table = start.ServedTable(Teller().schema, None, lambda: columns)
    settings = start.ServiceSettings(
        *("x", "x"), 1.0, delta=None, ledger=None, witness=None, account="people", host="", port=0, slot=0.1
    )
    for person in (None, "a"):
        served = start.ServedTable(type("S", (), {"names": ("a",), "identity": dict})(), person, table.read)
        start._recognise(ledger.account("people"), served, columns, settings)


def test_nothing_that_an_analyst_sees_depends_on_them(ledger):
    """Every response of a server is the same before and after the same people were found elsewhere."""
    seen = []
    for listed in (people(0, 2000), people(1000, 3000)):
        say(ledger, "others", people(0, 2000))
        say(ledger, "people", listed)
        analysts = Analysts(Teller(), ServiceDatabase(ledger.url, "people"), ledger)
        with visitor(analysts) as ann:
            paths = ("budget", "schema", "statement", "history")
            texts = [ann.get(f"/api/v1/{path}").text for path in paths]
            texts += [ann.get(path).text for path in ("/readyz", "/healthz")]
            texts.append(ann.post("/api/v1/queries", json={"kind": "count", "where": {"sex": ["f"]}}).text)
        seen.append(json.dumps(texts))
    assert seen[0] == seen[1]


def test_fingerprints_are_those_that_earlier_versions_stored():
    """Sums of keyed hashes of each text with its number; stored ones are compared with those of today."""

    def value(text):
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16, key=b"key").digest())

    found = PeopleSketch.of(["a", "b", "a", "a"], b"key")
    parts = [value(text) for text in ("1\x1ea", "1\x1eb", "2\x1ea", "3\x1ea")]
    assert (found.n, found.distinct, found.total) == (4, 2, sum(parts) % 2**128)
    assert found.smallest == tuple(sorted(parts))
