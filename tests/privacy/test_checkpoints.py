"""Checkpoints: a run that was stopped goes on, and every question is answered and paid for once."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import random_array

import dpcvx
from dpcvx import (
    Budget,
    Incompatible,
    Ledger,
    PrivateLasso,
    PrivateLinearRegression,
    PrivateLogisticRegression,
)
from dpcvx.accounting import Tight
from dpcvx.errors import BudgetExceeded, Interrupted, Unreadable, WrongType, WrongValue
from dpcvx.ledger import Account
from dpcvx.plans import Answers, Checkpoint
from dpcvx.plans.checkpoint import decode, encode
from dpcvx.solvers import NoisyGradientDescent, NoisySVRG

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (1500, 4))
Y = X @ [1.0, -1.0, 0.5, 0.0]
SPARSE = random_array((400, 1200), density=0.02, rng=np.random.default_rng(1), format="csr")
SPARSE_Y = np.sign(SPARSE @ np.random.default_rng(2).normal(size=1200))
WORKERS = Path(__file__).parents[1] / "checkpoint_workers.py"
COMMON = {"epsilon": 2.0, "delta": 1e-6, "bounds": (-1, 1)}
SQUARED = {**COMMON, "y_bounds": (-3, 3)}
LABELS = {**COMMON, "classes": (-1, 1)}

FITS = {
    "gradients": (PrivateLogisticRegression, {**LABELS, "solver": "gradient_descent", "n_iter": 9}),
    "standardised": (PrivateLinearRegression, {**SQUARED, "standardize": True, "uncertainty": 0.2}),
    "private bounds": (PrivateLinearRegression, {**SQUARED, "bounds": "private", "y_bounds": "private"}),
    "vertices": (PrivateLasso, {**SQUARED, "solver": "frank_wolfe", "n_iter": 9}),
    "margins": (PrivateLogisticRegression, {**LABELS, "domain": "l1", "solver": "frank_wolfe", "n_iter": 9}),
    "correction": (PrivateLasso, {**SQUARED, "solver": "corrective_frank_wolfe"}),
    "samples": (PrivateLogisticRegression, {**LABELS, "solver": NoisySVRG(2, 3), "l2": 0.1}),
    "minimiser": (PrivateLogisticRegression, {**LABELS, "solver": "objective_perturbation"}),
    "statistics": (PrivateLinearRegression, {**SQUARED, "solver": "sufficient_statistics"}),
    "sparse": (
        PrivateLogisticRegression,
        {**LABELS, "data_norm": 1.0, "domain": "l1", "solver": "frank_wolfe", "n_iter": 40},
    ),
}


def records(name, kind):
    if name == "sparse":
        return SPARSE, SPARSE_Y
    return X, np.sign(Y) if kind is PrivateLogisticRegression else Y


def stop_after(monkeypatch, count):
    """Let Ctrl-C come when this many fresh answers were given."""
    give, left = Answers.give, [count]

    def limited(self, question, draw):
        if not self.replays:
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
        return give(self, question, draw)

    monkeypatch.setattr(Answers, "give", limited)


@pytest.fixture
def ledger(tmp_path):
    made = Ledger(tmp_path / "ledger.db", witness=tmp_path / "witness")
    made.create("people", epsilon=5.0, delta=1e-5)
    return made


@pytest.fixture
def paid(ledger):
    return {**LABELS, "solver": "gradient_descent", "n_iter": 6, "ledger": ledger, "account": "people"}


def stored(path):
    """Parts of a checkpoint as they lie in the file."""
    with sqlite3.connect(path) as file:
        return [bytes(content) for (content,) in file.execute("SELECT content FROM parts ORDER BY number")]


def fit(settings, path, monkeypatch=None, stop=None):
    model = PrivateLogisticRegression(**settings)
    if stop is None:
        return model.fit(X, np.sign(Y), checkpoint=path)
    with monkeypatch.context() as patch:
        stop_after(patch, stop)
        with pytest.raises(Interrupted):
            model.fit(X, np.sign(Y), checkpoint=path)
    return model


SLOW = {"samples"}  # the exact price of sampled plans takes half a minute


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in FITS]
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_seeded_fit_that_is_stopped_anywhere_gives_the_bits_of_an_unbroken_one(name, tmp_path, monkeypatch):
    kind, settings = FITS[name]
    rows = records(name, kind)
    settings = {**settings, "random_state": 5}
    unbroken = kind(**settings).fit(*rows, checkpoint=tmp_path / "unbroken")
    total = sum(stage.n_calls for stage in unbroken.plan_.questions)
    for stop in sorted({0, 1, total // 2, total - 1}):
        path = tmp_path / f"stopped {stop}"
        with monkeypatch.context() as patch:
            stop_after(patch, stop)
            with pytest.raises(Interrupted, match=f"after {stop} private answer"):
                kind(**settings).fit(*rows, checkpoint=path)
        model = kind(**settings).fit(*rows, checkpoint=path)
        assert model.coef_.tobytes() == unbroken.coef_.tobytes()
        assert np.array_equal(model.predict(rows[0]), unbroken.predict(rows[0]))


def test_a_fit_that_is_continued_is_charged_once_and_draws_the_rest_afresh(
    ledger, paid, tmp_path, monkeypatch
):
    path = tmp_path / "fit.checkpoint"
    fit(paid, path, monkeypatch, stop=3)
    kept = stored(path)
    model = fit(paid, path)
    (entry,) = ledger.account("people").history()
    assert model.release_.receipt.hash == entry.hash
    assert stored(path)[: len(kept)] == kept
    assert fit(paid, path).coef_.tobytes() == model.coef_.tobytes()  # nothing is left to ask
    assert len(ledger.account("people").history()) == 1
    assert ledger.verify().witnessed


def test_without_a_seed_two_continuations_differ_so_no_state_of_a_generator_is_stored(tmp_path, monkeypatch):
    settings = {**LABELS, "solver": "gradient_descent", "n_iter": 6}
    path, copy = tmp_path / "one", tmp_path / "two"
    fit(settings, path, monkeypatch, stop=3)
    (before,) = [json.loads(part) for part in stored(path)]
    assert [len(entry) for entry in before] == [2, 2, 2]  # a hash and an answer each
    shutil.copy(path, copy)  # without a ledger nobody can tell: docs/sharp_edges.md says so
    first, second = fit(settings, path), fit(settings, copy)
    assert not np.array_equal(first.coef_, second.coef_)
    assert json.loads(stored(path)[0]) == json.loads(stored(copy)[0]) == before


def test_an_old_copy_is_refused(ledger, paid, tmp_path, monkeypatch):
    path, copy = tmp_path / "fit.checkpoint", tmp_path / "copy"
    fit(paid, path, monkeypatch, stop=2)
    shutil.copy(path, copy)
    fit(paid, path, monkeypatch, stop=1)
    for _ in range(2):
        with pytest.raises(Incompatible, match=r"is an old copy: the ledger knows [23] parts"):
            fit(paid, copy)
        fit(paid, path)


def test_of_two_processes_that_continue_copies_one_is_refused_and_nobody_can_read_its_answers(
    ledger, paid, tmp_path, monkeypatch
):
    path, copy = tmp_path / "fit.checkpoint", tmp_path / "copy"
    fit(paid, path, monkeypatch, stop=2)
    shutil.copy(path, copy)
    seen, give = [], Answers.give

    def overtaken(self, question, draw):
        if not self.replays and not seen:
            seen.append(None)
            fit(paid, copy)  # finishes first
            answer = give(self, question, draw)
            seen[0] = encode(answer)["content"].encode()
            return answer
        return give(self, question, draw)

    monkeypatch.setattr(Answers, "give", overtaken)
    with pytest.raises(Incompatible, match=r"has a note .* already"):
        fit(paid, path)
    assert len(stored(path)) == 2
    assert seen[0] not in b"".join(stored(path))
    with pytest.raises(Incompatible, match=r"not the one that the ledger knows"):
        fit(paid, path)
    assert len(ledger.account("people").history()) == 1


def test_every_answer_is_stored_before_an_observer_sees_it(tmp_path):
    problem = dpcvx.Problem(dpcvx.Logistic(), dpcvx.L2Ball(2.0), bounds=dpcvx.Bounds(1.0), d=4)
    plan = dpcvx.plan(problem, len(X), Budget(1.0, 1e-6))
    source, path, seen = dpcvx.source(X, np.sign(Y), bounds=problem.bounds), tmp_path / "file", []

    def observe(mechanism, public, answer):
        shutil.copy(path, tmp_path / "copy")
        seen.append(answer)
        answers = [decode(each) for part in stored(tmp_path / "copy") for _, each in json.loads(part)]
        assert len(answers) == len(seen)
        assert np.array_equal(answers[-1], answer)

    dpcvx.execute(plan, source, observe=observe, checkpoint=Checkpoint(path))
    assert len(seen) == plan.n_calls


def test_a_checkpoint_is_readable_by_its_owner_alone(tmp_path):
    problem = dpcvx.Problem(dpcvx.Logistic(), dpcvx.L2Ball(2.0), bounds=dpcvx.Bounds(1.0), d=4)
    plan = dpcvx.plan(problem, len(X), Budget(1.0, 1e-6))
    source, path = dpcvx.source(X, np.sign(Y), bounds=problem.bounds), tmp_path / "file"
    dpcvx.execute(plan, source, checkpoint=Checkpoint(path))
    assert path.stat().st_mode & 0o777 == 0o600


def test_progress_counts_stored_answers_and_the_step_of_a_foreign_solver_waits_for_the_disk(tmp_path):
    problem = dpcvx.Problem(dpcvx.Logistic(), dpcvx.L2Ball(2.0), bounds=dpcvx.Bounds(1.0), d=4)
    source, shown = dpcvx.source(X, np.sign(Y), bounds=problem.bounds), []

    class Printing(NoisyGradientDescent):
        """Somebody's own solver, which may show what it sees."""

    for kind, expected in ((NoisyGradientDescent, [0, 0, 0, 0, 4]), (Printing, [1, 2, 3, 4])):
        plan = NoisyGradientDescent(4).plan(problem, len(X), Budget(1.0, 1e-6), Tight())
        plan = replace(plan, solver=kind(**vars(plan.solver)))
        shown.clear()
        path = tmp_path / kind.__name__
        dpcvx.execute(
            plan, source, progress=lambda done, total: shown.append(done), checkpoint=Checkpoint(path)
        )
        assert shown == expected
        assert sum(len(json.loads(part)) for part in stored(path)) == 4


@pytest.mark.parametrize("moment", ["before the charge", "after the charge"])
def test_a_kill_around_the_charge_leaves_one_charge(ledger, paid, tmp_path, monkeypatch, moment):
    from dpcvx.plans import execution

    path, charge = tmp_path / "file", execution.charge

    def killed(*given, **named):
        if moment == "after the charge":
            charge(*given, **named)
        raise MemoryError  # no handler of dpcvx sees it, as none sees a kill

    monkeypatch.setattr(execution, "charge", killed)
    with pytest.raises(MemoryError):
        fit(paid, path)
    monkeypatch.setattr(execution, "charge", charge)
    fit(paid, path)
    assert len(ledger.account("people").history()) == 1


def test_a_part_whose_key_never_reached_the_ledger_is_drawn_again(ledger, paid, tmp_path, monkeypatch):
    path, note = tmp_path / "file", Account.note

    def killed(*given):
        raise MemoryError

    monkeypatch.setattr(Account, "note", killed)
    with pytest.raises(MemoryError):
        fit(paid, path)
    monkeypatch.setattr(Account, "note", note)
    (lost,) = stored(path)
    fit(paid, path)
    assert lost not in stored(path)
    assert len(ledger.account("people").history()) == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epsilon": 1.5}, "belongs to another fit"),
        ({"bounds": (-2, 1)}, "belongs to another fit"),
        ({"classes": (1, -1)}, "belongs to another fit"),
        ({"ledger": None, "account": None}, "begun with account 'people' and this fit has no account"),
        ({"account": "others"}, "this fit has account 'others'"),
        ({"ledger": None, "account": None, "random_state": 3}, "begun with account 'people'"),
        ({"ledger": "other.db"}, "The ledger has no charge of the fit"),
    ],
)
def test_another_fit_is_refused_before_it_is_charged(ledger, paid, tmp_path, monkeypatch, changes, words):
    monkeypatch.chdir(tmp_path)
    ledger.create("others", epsilon=5.0, delta=1e-5)
    Ledger("other.db").create("people", epsilon=5.0, delta=1e-5)
    fit(paid, "file", monkeypatch, stop=2)
    with pytest.raises(Incompatible, match=words):
        fit({**paid, **changes}, "file")
    assert len(ledger.account("people").history()) == 1
    assert Ledger("other.db").account("people").history() == ()
    fit(paid, "file")


def test_seeded_and_cryptographic_noise_do_not_mix(tmp_path, monkeypatch):
    settings = {**LABELS, "solver": "gradient_descent", "n_iter": 6}
    fit({**settings, "random_state": 1}, tmp_path / "file", monkeypatch, stop=2)
    with pytest.raises(Incompatible, match="begun with seeded noise"):
        fit(settings, tmp_path / "file")


def test_one_process_at_a_time(tmp_path):
    settings = {**LABELS, "solver": "gradient_descent", "n_iter": 6}
    model = PrivateLogisticRegression(**settings).fit(X, np.sign(Y), checkpoint=tmp_path / "file")
    about = Checkpoint(tmp_path / "open")
    first = about.open(model.plan_, None, private=False)
    with pytest.raises(Incompatible, match="Another process uses the checkpoint"):
        about.open(model.plan_, None, private=False)
    first.close()
    about.open(model.plan_, None, private=False).close()


def test_files_that_are_none_or_were_edited_are_refused(ledger, paid, tmp_path, monkeypatch):
    (tmp_path / "text").write_text("no checkpoint, but a letter to somebody who may read it some day")
    with pytest.raises(WrongValue, match="is no checkpoint"):
        fit(paid, tmp_path / "text")
    with pytest.raises(Unreadable, match="cannot be opened"):
        fit(paid, tmp_path / "missing" / "file")
    assert ledger.account("people").history() == ()
    path = tmp_path / "file"
    fit(paid, path, monkeypatch, stop=2)
    with sqlite3.connect(path) as file:
        (content,) = stored(path)
        file.execute("UPDATE parts SET content = ?", (bytes([content[0] ^ 1]) + content[1:],))
    with pytest.raises(Incompatible, match="not the one that the ledger knows"):
        fit(paid, path)
    settings = {**LABELS, "solver": "gradient_descent", "n_iter": 6}
    fit(settings, tmp_path / "open", monkeypatch, stop=2)
    with sqlite3.connect(tmp_path / "open") as file:
        file.execute("UPDATE parts SET content = ?", (b"\xff{",))
    with pytest.raises(WrongValue, match="is no checkpoint"):
        fit(settings, tmp_path / "open")


def test_a_fit_that_the_account_refuses_leaves_no_file(ledger, paid, tmp_path):
    with pytest.raises(BudgetExceeded):
        fit({**paid, "epsilon": 50.0}, tmp_path / "file")
    assert not (tmp_path / "file").exists()


def test_ctrl_c_says_what_was_charged_and_what_was_kept(ledger, paid, tmp_path, monkeypatch):
    stop_after(monkeypatch, 3)
    model = PrivateLogisticRegression(**paid)
    with pytest.raises(KeyboardInterrupt, match="a new charge") as plain:
        model.fit(X, np.sign(Y))
    assert "Nothing was kept. Entry 2 of account 'people' stays charged" in str(plain.value)
    with pytest.raises(Interrupted, match=r"after 0 private answers\. The answers are kept in") as kept:
        model.fit(X, np.sign(Y), checkpoint=tmp_path / "file")
    assert "Entry 3 of account 'people' stays charged; another try is no second charge." in str(kept.value)


def test_a_short_plan_starts_no_checkpoint_but_continues_one(tmp_path):
    settings = {**LABELS, "solver": "gradient_descent", "n_iter": 6}
    path = tmp_path / "file"
    long = PrivateLogisticRegression(**settings).fit(
        X, np.sign(Y), checkpoint=Checkpoint(path, shortest=60.0)
    )
    assert not path.exists()
    fit(settings, path)
    again = PrivateLogisticRegression(**settings).fit(
        X, np.sign(Y), checkpoint=Checkpoint(path, shortest=60.0)
    )
    assert not np.array_equal(again.coef_, long.coef_)
    assert again.coef_.tobytes() == fit(settings, path).coef_.tobytes()


def test_what_is_stored_comes_back_to_the_last_bit():
    values = (np.array([0.1, -0.0, np.inf, np.nan]), np.arange(3), None, 0.1, 2, (1.5, 2.5), np.float64(0.3))
    back = decode(json.loads(json.dumps(encode(values))))
    for value, other in zip(values, back, strict=True):
        assert type(value) is type(other)
        assert np.asarray(value).tobytes() == np.asarray(other).tobytes()
    assert decode(encode(dpcvx.mechanisms.Vertex(3, -1))) == dpcvx.mechanisms.Vertex(3, -1)
    with pytest.raises(WrongType, match="cannot hold a list"):
        encode([1.0])


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("paying", ["seeded", "charged"])
@pytest.mark.parametrize("fits", [6, pytest.param(100, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_killed_fits_are_continued_with_one_charge_and_the_same_bits(tmp_path, paying, fits):
    ledger = Ledger(tmp_path / "ledger.db", witness=tmp_path / "witness")
    for number in range(fits):
        ledger.create(f"people {number}", epsilon=5.0, delta=1e-5)
    place = "seeded" if paying == "seeded" else str(tmp_path / "ledger.db")
    done = subprocess.run(
        [sys.executable, str(WORKERS), place, str(tmp_path), str(fits), "11"],
        capture_output=True,
        text=True,
        check=True,
    )
    results = json.loads(done.stdout)
    assert len(results) == fits
    assert sum(kills for kills, _, _ in results) >= fits
    for _, coefficients, again in results:
        assert coefficients == again
    if paying == "charged":
        for number in range(fits):
            assert len(ledger.account(f"people {number}").history()) == 1
        ledger.verify()
