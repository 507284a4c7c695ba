"""``dpcvx ledger`` and ``dpcvx fit --account``: what they print, how they fail."""

import json
import re
import sqlite3
import sys

import numpy as np
import pytest

import dpcvx
from dpcvx.events import Gaussian, PureDP

CREATE = "ledger create people --epsilon 2 --delta 1e-6 --ledger book.db"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(sys, "platform", "linux")
    return tmp_path


@pytest.mark.long
def test_create_show_history_and_verify(run, folder):
    code, out, err = run(CREATE + " --witness told.txt")
    assert (code, err) == (0, "")
    assert "people: epsilon 2, delta 1e-06 (replace)" in out
    assert f"[{'.' * 30}] 0.0% used in 0 charge(s)" in out
    account = dpcvx.Ledger("book.db", witness="told.txt").account("people")
    account.charge(Gaussian(4.0), purpose="fit of a model")
    account.charge(PureDP(0.01), purpose="a count")
    code, out, err = run("ledger show --ledger book.db")
    assert (code, err) == (0, "")
    assert f"{account.used:.1%} used in 2 charge(s)" in out
    assert out.count("#") == int(30 * account.used) > 5
    assert f"epsilon {account.remaining():.4g}" in out
    code, out, err = run("ledger history people --ledger book.db --plot spending.png")
    assert (code, err) == (0, "Plot written to spending.png\n")
    assert "fit of a model: Gaussian(4)" in out
    assert "a count: PureDP(0.01)" in out
    assert "at most e^2 times as likely" in " ".join(out.split())
    assert (folder / "spending.png").read_bytes().startswith(b"\x89PNG")
    code, out, err = run("ledger verify --ledger book.db --witness told.txt")
    assert (code, err) == (0, "")
    assert "3 entries of 1 account(s) are sound; all 3 witnessed heads are there" in out
    assert "an old copy would not be noticed" in run("ledger verify --ledger book.db")[1]


def test_a_lost_witness_is_shown_and_begun_anew(run, folder):
    run(CREATE + " --witness told.txt")
    account = dpcvx.Ledger("book.db", witness="told.txt").account("people")
    account.charge(PureDP(0.01), purpose="a count")
    (folder / "told.txt").unlink()
    code, out, err = run("ledger show --ledger book.db --witness told.txt")
    assert (code, err) == (0, "")
    assert "1 charge(s)" in out
    assert "it was lost" in out
    assert run("ledger history people --ledger book.db")[0] == 0
    code, out, err = run("ledger verify --ledger book.db --witness told.txt")
    assert (code, out) == (2, "")
    assert "it was lost" in err
    code, out, err = run("ledger witness --ledger book.db --witness told.txt --reason moved")
    assert (code, err) == (0, "")
    assert "all 1 witnessed heads are there" in out
    account.charge(PureDP(0.01), purpose="a count")
    code, out, err = run("ledger freeze people --reason why --ledger book.db --witness never.txt")
    assert code == 2
    assert "dpcvx ledger witness --ledger FILE --witness FILE" in err
    assert "book.db" in err
    assert "Ledger(" not in err
    assert "new witness: moved" in run("ledger history people --ledger book.db")[1]
    assert "sound" in json.loads(run("ledger show --ledger book.db --witness told.txt --json")[1])["check"]


def test_json(run):
    code, out, _ = run(CREATE + " --json")
    assert code == 0
    assert json.loads(out)["remaining"] == pytest.approx(2.0)
    assert json.loads(out)["unit"] == "row"
    persons = CREATE.replace("people", "visits") + " --unit person"
    assert json.loads(run(persons + " --json")[1])["unit"] == "person"
    account = dpcvx.Ledger("book.db").account("people")
    account.charge(PureDP(0.01), purpose="a count")
    shown = json.loads(run("ledger show people --ledger book.db --json")[1])
    assert shown["accounts"][0]["used"] == account.used
    assert shown["accounts"][0]["charges"] == 1
    assert (
        json.loads(run("ledger history people --ledger book.db --json")[1]) == account.statement().to_dict()
    )
    assert json.loads(run("ledger verify --ledger book.db --json")[1])["entries"] == 3


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ("ledger show --ledger none.db", 3, "There is no ledger at"),
        ("ledger show nobody --ledger book.db", 2, "no account 'nobody'; it has 'people'"),
        (CREATE, 2, "has an account 'people' already"),
        (CREATE.replace("people", "x").replace("epsilon 2", "epsilon -1"), 2, "epsilon is -1.0"),
        (CREATE.replace("people", "x") + " --relation swap", 2, "relation is 'swap'"),
        ("ledger history people --ledger book.db --plot none/p.png", 3, "cannot be written"),
        ("ledger verify --ledger mysql://host/name", 2, "A ledger cannot be kept at"),
        ("ledger show --ledger postgresql://me:secret@127.0.0.1:1/name", 3, "does not answer"),
    ],
)
def test_what_is_wrong_is_one_sentence(run, command, code, words):
    run(CREATE)
    found, out, err = run(command)
    assert (found, out) == (code, "")
    assert words in err
    assert len(err.splitlines()) == 1
    assert "secret" not in err


def test_an_edited_ledger_is_reported(run):
    run(CREATE)
    with sqlite3.connect("book.db") as file:
        file.execute("UPDATE accounts SET epsilon = 200")
    code, out, err = run("ledger verify --ledger book.db")
    assert (code, out) == (2, "")
    assert "Account 'people' was edited" in err


FIT = "fit p.csv --target y --model linear --bounds bounds.toml --out m.json --epsilon 1 --delta 1e-7"


@pytest.fixture
def table(folder):
    rng = np.random.default_rng(0)
    rows = "\n".join(f"{x:.3f},{2 * x:.3f}" for x in rng.uniform(size=200))
    (folder / "p.csv").write_text(f"x,y\n{rows}\n")
    (folder / "bounds.toml").write_text("[bounds]\nx = [0, 1]\n[target]\nbounds = [0, 2]\n")


def test_a_fit_with_a_witness_refuses_an_old_copy_of_the_ledger(run, folder, table):
    where = " --account people --ledger book.db --witness told.txt"
    assert run("ledger create people --epsilon 4 --delta 1e-6 --ledger book.db --witness told.txt")[0] == 0
    old = (folder / "book.db").read_bytes()
    assert run(FIT + where)[0] == 0
    (folder / "book.db").write_bytes(old)
    for command in (FIT + " --force", "score m.json p.csv --target y --epsilon 0.1"):
        code, out, err = run(command + where)
        assert (code, out) == (2, "")
        assert "witness" in err
    assert "--witness needs --account" in run(FIT + " --force --witness told.txt")[2]


def test_a_score_says_what_part_of_the_account_it_uses_before_the_charge(run, folder, table):
    """A score at 0.2 takes as much of an account as a fit at a several times larger epsilon."""
    assert run("ledger create people --epsilon 2 --delta 1e-6 --ledger book.db")[0] == 0
    where = " --account people --ledger book.db"
    assert run(FIT.replace("--epsilon 1", "--epsilon 0.5") + where)[0] == 0
    account = dpcvx.Ledger("book.db").account("people")
    fit, share = account.used, account.share(dpcvx.events.PureDP(0.2), delta=0.0)
    assert account.share(dpcvx.events.PureDP(3.0)) is None
    code, _, err = run("score m.json p.csv --target y --epsilon 0.2" + where)
    assert code == 0
    assert f"This score uses {share:.1%} of account people, of which {fit:.1%} is used so far." in err
    assert account.used == pytest.approx(fit + share)
    assert share > 2 * fit
    code, _, err = run("score m.json p.csv --target y --epsilon 3" + where)
    assert (code, "This score uses" in err) == (2, False)


def test_a_fit_at_the_cap_with_a_larger_delta_is_told_to_use_the_delta_of_the_account(run, folder, table):
    assert run("ledger create people --epsilon 1 --delta 1e-7 --ledger book.db")[0] == 0
    fit = FIT.replace(" --delta 1e-7", "") + " --account people --ledger book.db"
    code, _, err = run(fit)
    assert code == 2
    assert "--delta 1e-07), at which 1 is enough" in err
    assert run(fit + " --delta 1e-7")[0] == 0


def test_the_history_fits_the_terminal(run, folder, table, monkeypatch):
    """The ruler was as long as the longest list of events."""
    assert run("ledger create people --epsilon 2 --delta 1e-6 --ledger book.db")[0] == 0
    assert run(FIT + " --account people --ledger book.db")[0] == 0
    for columns, most in (("", 110), ("80", 80)):
        monkeypatch.setenv("COLUMNS", columns)
        text = run("ledger history people --ledger book.db")[1]
        entries = text.split("\n\n")[1]
        assert max(map(len, entries.splitlines())) <= most
        words = " ".join(entries.split())
        assert "fit of PrivateLinearRegression to 200 records: " in words


def test_a_missing_ledger_or_account_names_the_option(run, folder, table):
    fit = FIT + " --account people"
    assert "--ledger FILE" in run(fit)[2]
    assert run("ledger create others --epsilon 1 --delta 1e-7")[0] == 0
    code, _, err = run(fit)
    assert (code, "no account 'people'" in err, "--ledger FILE" in err) == (2, True, True)


def test_fit_charges_an_account(run, folder, table):
    assert run("ledger create people --epsilon 1.1 --delta 1e-6")[0] == 0  # in the user's own file
    code, out, err = run(FIT + " --account people")
    assert (code, err) == (0, "")
    assert "charged to account 'people'" in " ".join(out.split())
    assert len(dpcvx.Ledger().account("people").history()) == 1
    (folder / "m.json").unlink()
    code, out, err = run(FIT + " --account people")
    assert (code, out) == (2, "")
    # not the epsilon of the option, which holds at the smaller delta of the fit
    assert re.search(
        r"This release needs epsilon 0\.\d+ at the account's delta, 1e-06, but only 0\.\d+ is", err
    )
    assert not (folder / "m.json").exists()
    assert "--ledger needs --account" in run(FIT + " --ledger book.db")[2]
    assert run(FIT)[0] == 0  # without an account nothing is charged
    assert len(dpcvx.Ledger().account("people").history()) == 1


@pytest.mark.long
def test_freeze_thaw_close_export_and_backup(run, folder):
    run(CREATE)
    where = "--ledger book.db"
    assert run(f"ledger freeze people --reason audit {where}")[1] == "Account people is frozen.\n"
    assert "  frozen: audit" in run("ledger show --ledger book.db")[1]
    with pytest.raises(dpcvx.errors.AccountNotOpen):
        dpcvx.Ledger("book.db").account("people").charge(PureDP(0.01), purpose="a count")
    assert run(f"ledger thaw people --reason over {where}")[0] == 0
    code, out, err = run(f"ledger close people --reason done {where}")  # nobody answers the question
    assert (code, out.strip()) == (1, "")
    assert "can never be opened again" in err
    assert dpcvx.Ledger("book.db").account("people").states[-1].word != "closed"
    assert run(f"ledger close people --reason done --yes {where}")[1] == "Account people is closed.\n"
    assert run(f"ledger close people --reason done {where}")[0] == 2
    (folder / "key").write_text("0123456789abcdef\n")
    assert run(f"ledger export people --out a.csv {where}")[0] == 0
    assert (folder / "a.csv").read_text().count("\n") == 4
    assert run(f"ledger export people --out a.json {where}")[0] == 2
    assert run(f"ledger export people --out a.json --key-file key {where}")[0] == 0
    assert "signed; account people" in run("ledger check-export a.json --key-file key")[1]
    (folder / "a.json").write_text((folder / "a.json").read_text().replace("audit", "Audit"))
    assert run("ledger check-export a.json --key-file key")[0] == 2
    code, out, _ = run(f"ledger backup copy.db {where}")
    assert (code, "4 entries" in out) == (0, True)
    assert "4 entries" in run("ledger verify --ledger copy.db")[1]
