"""Long fits on the command line: what is kept, what Ctrl-C says, and that a paid model is not replaced."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from dpcvx import Ledger, load
from dpcvx.estimators import progress
from dpcvx.estimators.progress import ProgressReport
from dpcvx.plans import Answers

FIT = "fit people.csv --target y --model linear --epsilon 1 --bounds bounds.toml --out model.json"
STEPS = f"{FIT} --solver gradient_descent --standardize false --n-iter"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    rng = np.random.default_rng(0)
    rows = rng.uniform(0, 1, (300, 3)).round(4)
    lines = ["a,b,y", *(",".join(map(str, row)) for row in rows)]
    (tmp_path / "people.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "bounds.toml").write_text("[bounds]\na = [0, 1]\nb = [0, 1]\n[target]\nbounds = [0, 1]\n")
    return tmp_path


def stop_after(monkeypatch, count):
    give = Answers.give

    def limited(self, question, draw):
        if self.count == count:
            os.kill(os.getpid(), signal.SIGINT)
        return give(self, question, draw)

    monkeypatch.setattr(Answers, "give", limited)


def test_a_model_is_replaced_only_if_that_is_asked_for(folder, run):
    assert run(f"{FIT} --quiet")[0] == 0
    before = (folder / "model.json").read_bytes()
    code, _, err = run(FIT)
    assert (code, (folder / "model.json").read_bytes()) == (2, before)
    assert "model.json exists already" in err
    assert "--force" in err
    assert run(f"{FIT} --quiet --force")[0] == 0
    assert (folder / "model.json").read_bytes() != before
    assert sorted(path.name for path in folder.iterdir()) == ["bounds.toml", "model.json", "people.csv"]


def test_ctrl_c_keeps_the_answers_and_resume_goes_on_with_one_charge(folder, run, monkeypatch):
    Ledger().create("people", epsilon=3, delta=1e-4)
    paid = f"{STEPS} 8 --account people --checkpoint fit.checkpoint"
    with monkeypatch.context() as patch:
        stop_after(patch, 5)
        code, _, err = run(paid)
    assert code == 130
    assert "Interrupted after 5 private answers. Entry 2 of account people is charged and stays so." in err
    assert "kept in fit.checkpoint: run the command again with --resume" in err
    assert not (folder / "model.json").exists()
    code, _, err = run(paid)
    assert code == 2
    assert "fit.checkpoint holds the private answers of a fit that was stopped: add --resume" in err
    code, out, _ = run(f"{paid} --resume")
    assert code == 0
    assert "Model written to model.json" in out
    assert len(Ledger().account("people").history()) == 1
    assert not (folder / "fit.checkpoint").exists()
    assert load("model.json").n_iter_ == 8
    code, _, err = run(f"{paid} --resume --force")
    assert code == 3
    assert "There is nothing to resume: fit.checkpoint does not exist." in err


def test_ctrl_c_without_a_checkpoint_says_that_nothing_was_kept(folder, run, monkeypatch):
    Ledger().create("people", epsilon=3, delta=1e-4)
    with monkeypatch.context() as patch:
        stop_after(patch, 3)
        code, _, err = run(f"{STEPS} 8 --account people")
        assert code == 130
        assert "Entry 2 of account people is charged and stays so. Nothing was kept" in err
        assert "run the command again, which is a new charge" in err
        code, out, _ = run(f"{STEPS} 8 --json")
    assert code == 130
    assert json.loads(out)["error"]["exit_code"] == 130
    assert "Nothing was charged. Nothing was kept: run the command again." in out


def test_ctrl_c_before_the_fit_says_that_nothing_was_charged(folder, run, monkeypatch):
    from dpcvx.estimators.regressors import PrivateLinearRegression

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(PrivateLinearRegression, "_declare", interrupted)
    code, _, err = run(FIT)
    assert code == 130
    assert "Interrupted before the fit began: nothing was charged or written." in err


def test_ctrl_c_while_a_checkpoint_is_made_leaves_none_behind(folder, run, monkeypatch):
    """No answer is in it yet, and a second run would be told to resume."""
    from dpcvx.plans import Checkpoint

    make = Checkpoint.open

    def interrupted(*given, **named):
        make(*given, **named).close()
        raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoint, "open", interrupted)
    code, _, err = run(f"{FIT} --checkpoint kept")
    assert code == 130
    assert "nothing was charged or written" in err
    assert not (folder / "kept").exists()
    monkeypatch.setattr(Checkpoint, "open", make)
    assert run(f"{FIT} --checkpoint kept")[0] == 0


def test_ctrl_c_after_the_fit_says_that_the_model_is_written(folder, run, monkeypatch):
    from dpcvx.estimators.regressors import PrivateLinearRegression

    fit = PrivateLinearRegression.fit

    def interrupted(self, *given, **named):
        fit(self, *given, **named)
        raise KeyboardInterrupt

    monkeypatch.setattr(PrivateLinearRegression, "fit", interrupted)
    code, _, err = run(FIT)
    assert code == 130
    assert "Interrupted after the fit. The budget is spent, and the model is in model.json." in err
    assert load(folder / "model.json").coef_.size


def test_short_fits_leave_no_checkpoint_and_long_ones_have_one_beside_the_model(folder, run, monkeypatch):
    from dpcvx.plans import Plan

    stop_after(monkeypatch, 2)
    assert run(f"{STEPS} 5")[0] == 130
    assert not (folder / "model.json.checkpoint").exists()
    monkeypatch.setattr(Plan, "seconds", 100.0)
    code, _, err = run(f"{STEPS} 5")
    assert code == 130
    assert "kept in model.json.checkpoint" in err


class Stream(io.StringIO):
    def __init__(self, terminal):
        super().__init__()
        self.terminal = terminal

    def isatty(self):
        return self.terminal


@pytest.mark.parametrize("terminal", [True, False])
def test_work_that_takes_longer_says_what_it_does(monkeypatch, terminal):
    stream = Stream(terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    for name in ("FIRST", "ON_TERMINAL", "IN_LOG"):
        monkeypatch.setattr(progress, name, 0.02)
    with ProgressReport("fit") as report:
        report.step("reading people.csv")
        time.sleep(0.1)
        for done in range(1, 4):
            report.count(done, 10)
            time.sleep(0.05)
    said = stream.getvalue()
    assert "fit: reading people.csv (0 s)" in said
    assert re.search(r"fit: [23] of 10 private answers, under a second left \(0 s\)", said)
    assert said.endswith(progress.CLEAR) if terminal else (progress.CLEAR not in said)
    with ProgressReport("fit", shown=False) as silent:
        silent.step("nothing")
        time.sleep(0.05)
    assert stream.getvalue() == said


def test_the_first_word_comes_within_two_seconds():
    assert progress.FIRST <= 2.0


@pytest.mark.long
def test_a_real_ctrl_c_and_a_second_one(folder):
    Ledger().create("people", epsilon=3, delta=1e-4)
    start = [sys.executable, "-c", "from dpcvx.cli import main; main()"]
    command = [*start, *f"{STEPS} 200000 --account people --checkpoint fit.checkpoint".split()]

    def begin(*more):
        started = subprocess.Popen(
            [*command, *more], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for line in started.stderr:
            if re.search(r": [1-9][0-9,]* of 200,000 private answers", line):
                return started
        raise AssertionError("no progress was said")

    first = begin()
    first.send_signal(signal.SIGINT)
    _, err = first.communicate(timeout=60)
    assert first.returncode == 130
    assert "stays so. The answers are kept in fit.checkpoint" in err
    second = begin("--resume")
    second.send_signal(signal.SIGINT)
    second.send_signal(signal.SIGINT)
    second.communicate(timeout=60)
    assert second.returncode in (130, -signal.SIGINT)
    assert len(Ledger().account("people").history()) == 1
