"""Programs that write files, run on a disk that fails at each of their calls.

scenarios.py SCENARIO MODE FOLDER MOST      full, half or kill: at up to MOST calls, evenly spread
scenarios.py SCENARIO cut FOLDER MOST [SYNCHRONOUS]  power cuts after up to MOST calls, three states of each

Prints as JSON: number of calls, of faults, how the runs ended, and everything that was lost, spent twice or
released without a charge. SYNCHRONOUS weakens SQLite, for controls.
"""

import contextlib
import json
import os
import random
import re
import shutil
import sys
import traceback
import types
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from faulty_disk import Disk
from power_cuts import DiskModel, read_log, restore

import dpcvx as dp
from dpcvx import cli
from dpcvx.data.shards import recipe
from dpcvx.errors import DeadKey, DpcvxError, Incompatible
from dpcvx.events import ApproxDP
from dpcvx.ledger import Account, Ledger, database
from dpcvx.plans import execution
from dpcvx.queries import Attribute, Count, Mean, QueryEngine, Schema, write_synthetic
from dpcvx.report.model_report import ReportedModel, write_report
from dpcvx.service.analysts import Analysts
from dpcvx.service.database import ServiceDatabase
from dpcvx.service.refusal import Refusal

STEP = ApproxDP(0.001, 0.0)
RNG = np.random.default_rng(0)
PEOPLE = pd.DataFrame(RNG.uniform(0, 1, (200, 3)).round(4), columns=["a", "b", "y"])
TABLE = {name: RNG.choice(["0", "1"], 300) for name in ("u", "v")}
SCHEMA = Schema(tuple(Attribute(name, ("0", "1"), "1") for name in TABLE))
BOUNDS = "[bounds]\na = [0, 1]\nb = [0, 1]\n[target]\nbounds = [0, 1]\n"
REFUSED, FAILED = 3, 1  # exit codes of children: a sentence of dpcvx or of the system, or a defect


@dataclass
class Outside:
    """The world that releases go to: a file that no fault touches."""

    path: Path

    def release(self, what):
        with self.path.open("a") as file:
            os.write(file.fileno(), f"{what}\n".encode())

    def released(self):
        return self.path.read_text().split() if self.path.exists() else []


# Scenarios: `prepare` makes a folder, `act` runs on the failing disk, `check` runs afterwards and raises
# AssertionError where something was lost, spent twice, or released without a charge.


class Charges:
    """Charges of a ledger with a witness; each is released when it is granted, then its answer is stored."""

    many = 3

    def prepare(self, folder):
        self._ledger(folder).create("people", epsilon=1.0, delta=1e-6)

    def _ledger(self, folder):
        return Ledger(folder / "ledger.db", witness=folder / "witness")

    def act(self, folder, outside):
        account = Account(self._ledger(folder), "people")
        for k in range(self.many):
            receipt = account.charge(STEP, purpose="release", key=f"k{k}")
            outside.release(f"charge:{receipt.hash}")
            account.store(f"k{k}", b"answer")
            outside.release(f"answer:k{k}")

    def check(self, folder, outside):
        ledger = self._ledger(folder)
        ledger.verify()
        account, told = Account(ledger, "people"), outside.released()
        charged = [entry.hash for entry in account.history()]
        released = [word.removeprefix("charge:") for word in told if word.startswith("charge:")]
        assert set(released) <= set(charged), "released without a charge"
        assert len(charged) <= len(released) + 1, "charged more often than asked"
        for word in told:
            if word.startswith("answer:"):
                assert account.answer(word.removeprefix("answer:")) == b"answer", "an answer is lost"
        for k in range(self.many):  # goes on where it stopped
            try:
                if account.charge(STEP, purpose="release", key=f"k{k}").answer is None:
                    account.store(f"k{k}", b"answer")
            except DeadKey:
                assert f"charge:{k}" not in told
        assert len(account.history()) == self.many, "spent twice"
        ledger.verify()


class WrongOrder(Charges):
    """A control: releases before it charges."""

    def act(self, folder, outside):
        account = Account(self._ledger(folder), "people")
        for k in range(self.many):
            outside.release(f"charge:{k}")
            account.charge(STEP, purpose="release", key=f"k{k}")

    def check(self, folder, outside):
        charged = len(Account(self._ledger(folder), "people").history())
        assert len(outside.released()) <= charged, "released without a charge"


class NewLedger:
    """The first account and the first charge of a ledger that did not exist."""

    def prepare(self, folder):
        pass

    def act(self, folder, outside):
        account = Ledger(folder / "ledger.db").create("people", epsilon=1.0, delta=1e-6)
        outside.release("created")
        outside.release(f"charge:{account.charge(STEP, purpose='release').hash}")

    def check(self, folder, outside):
        told, ledger = outside.released(), Ledger(folder / "ledger.db")
        if "created" not in told:
            with contextlib.suppress(Incompatible):  # it exists already
                ledger.create("people", epsilon=1.0, delta=1e-6)
        history = {entry.hash for entry in ledger.account("people").history()}
        assert {word.removeprefix("charge:") for word in told if word.startswith("charge:")} <= history
        ledger.account("people").charge(STEP, purpose="again")
        assert len(ledger.account("people").history()) == len(history) + 1
        ledger.verify()


def run_command(folder, words):
    """Run the command line in a folder; return its exit code."""
    os.environ["XDG_DATA_HOME"] = str(folder / "data")
    os.chdir(folder)
    sys.argv = ["dpcvx", *words.split()]
    try:
        cli.main()
    except SystemExit as end:
        return end.code
    return 0


class Fit:
    """`dpcvx fit` with a ledger and a checkpoint, which replaces an older model."""

    words = (
        "fit people.csv --target y --model linear --epsilon 1 --bounds bounds.toml --out model.json --force "
        "--quiet --solver gradient_descent --standardize false --n-iter 4 --account people "
        "--checkpoint fit.checkpoint"
    )

    def prepare(self, folder):
        execution.PAUSE = 0.0  # each answer is a part of the checkpoint
        PEOPLE.to_csv(folder / "people.csv", index=False)
        (folder / "bounds.toml").write_text(BOUNDS)
        Ledger(folder / "data" / "dpcvx" / "dpcvx.db").create("people", epsilon=3.0, delta=1e-4)
        assert run_command(folder, self.words) == 0

    def act(self, folder, outside):
        if code := run_command(folder, self.words):
            sys.exit(code)
        outside.release("model")

    def check(self, folder, outside):
        ledger = Ledger(folder / "data" / "dpcvx" / "dpcvx.db")
        ledger.verify()
        entries = [entry.hash for entry in ledger.account("people").history()]
        assert 1 <= len(entries) <= 2, "spent twice"
        model, kept = dp.load(folder / "model.json"), folder / "fit.checkpoint"
        paid = re.search("hash ([0-9a-f]{64})", (folder / "model.json").read_text())[1]
        assert paid in entries, "released without a charge"
        done = paid != entries[0]  # else the model is the older one
        assert done >= ("model" in outside.released()), "a model is lost"
        if len(entries) == 2 and not done:
            assert kept.exists(), "a fit is charged, and its answers are lost"
        if done and kept.exists():  # killed between the two
            kept.unlink()
        if not done:
            assert run_command(folder, self.words + (" --resume" if kept.exists() else "")) == 0
        assert dp.load(folder / "model.json").coef_.shape == model.coef_.shape
        assert len(ledger.account("people").history()) == 2, "spent twice"


class Save:
    """A model, its report and a synthetic table take the place of older files."""

    names = ("model.json", "report.html", "rows.csv", "rows.parquet")

    def _write(self, folder, seed):
        model = dp.load(folder / f"fitted{seed}.json")
        model.save(folder / "model.json")
        write_report([ReportedModel("model", model, "0" * 64)], folder / "report.html", title=f"No {seed}")
        columns = {"a": RNG.integers(0, 9, 100 + seed), "b": RNG.integers(0, 9, 100 + seed)}
        for name in self.names[2:]:
            write_synthetic(folder / name, columns, model.privacy_statement_)

    def prepare(self, folder):
        for seed in (1, 2):
            model = dp.PrivateLinearRegression(epsilon=1.0, bounds=(0, 1), y_bounds=(0, 1), random_state=seed)
            model.fit(PEOPLE[["a", "b"]], PEOPLE["y"]).save(folder / f"fitted{seed}.json")
        self._write(folder, 1)
        for name in self.names:
            shutil.copy(folder / name, folder / f"{name}.old")

    def act(self, folder, outside):
        self._write(folder, 2)

    def check(self, folder, outside):
        old = [(folder / name).read_bytes() == (folder / f"{name}.old").read_bytes() for name in self.names]
        assert old[0] or dp.load(folder / "model.json").random_state == 2, "a model is lost"
        assert old[1] or (folder / "report.html").read_text().rstrip().endswith("</html>"), "half a report"
        for name, same in zip(self.names[2:], old[2:], strict=True):
            read = pd.read_csv if name.endswith("csv") else pd.read_parquet
            assert same or len(read(folder / name)) == 102, "half a table"
            json.loads((folder / f"{name}.privacy.json").read_text())


class Shards:
    """Shards of a CSV file: a stopped run goes on, and ends with the same records."""

    def _make(self, folder):
        recipe.SHARD_BYTES = 2**10
        source = folder.parent / "people.csv"
        return dp.from_csv(source, target="y", store=folder / "shards", bounds=(0, 1), y_bounds=(0, 1))

    def prepare(self, folder):
        PEOPLE.to_csv(folder.parent / "people.csv", index=False)

    def act(self, folder, outside):
        self._make(folder)
        outside.release("shards")

    def check(self, folder, outside):
        made = self._make(folder)
        assert made.n == len(PEOPLE), "records are lost"
        fits = [dp.PrivateLinearRegression(epsilon=1.0, random_state=0).fit(made)]
        plain = dp.PrivateLinearRegression(epsilon=1.0, bounds=(0, 1), y_bounds=(0, 1), random_state=0)
        fits.append(plain.fit(PEOPLE[["a", "b"]], PEOPLE["y"]))
        assert np.array_equal(fits[0].coef_, fits[1].coef_), "records differ"


class Service:
    """An engine with its charge, and answers to analysts, of which each is sent once it is stored."""

    def prepare(self, folder):
        Ledger(folder / "ledger.db").create("people", epsilon=1.0, delta=1e-6)
        store = ServiceDatabase(folder / "ledger.db", "people")
        Analysts(_Nothing(), store).keys.create("ann")

    def _analysts(self, folder):
        ledger = Ledger(folder / "ledger.db")
        engine = QueryEngine(
            SCHEMA, TABLE, dp.Budget(1.0, 1e-6), method="composition", n_queries=3, ledger=ledger,
            account="people",
        )  # fmt: skip
        return Analysts(engine, ServiceDatabase(folder / "ledger.db", "people"), ledger)

    def _ask(self, analysts, k):
        (key,) = analysts.keys.list()
        return analysts.ask(key, f"q{k}", (Mean("u"), Count({"v": ["1"]}), Mean("v"))[k]).strip().hex()

    def act(self, folder, outside):
        analysts = self._analysts(folder)
        for k in range(3):
            outside.release(f"{k}:{self._ask(analysts, k)}")

    def check(self, folder, outside):
        told = dict(word.split(":") for word in outside.released())
        ledger = Ledger(folder / "ledger.db")
        ledger.verify()
        before = len(ledger.account("people").history())
        assert before <= 1, "spent twice"
        assert before or not told, "released without a charge"
        analysts = self._analysts(folder)
        for k in range(3):
            found = None
            with contextlib.suppress(DpcvxError, Refusal):  # measured, and its answer went with the process
                found = self._ask(analysts, k)
            assert found is not None or str(k) not in told, "an answer is lost"
            assert told.get(str(k), found) == found, "answered twice"
        assert len(ledger.account("people").history()) == 1, "spent twice"
        updates = [name for name, _ in ledger.account("people").notes("") if "update" in name]
        assert len(updates) <= 3, "measured more often than paid for"
        ledger.verify()


class _Nothing:
    """An engine that is never asked, to make keys before there is one."""

    schema, n, budget = SCHEMA, 300, dp.Budget(1.0, 1e-6)
    noun, often_missing = "record", types.MappingProxyType({})


class Backup:
    """A copy of a ledger."""

    def prepare(self, folder):
        account = Ledger(folder / "ledger.db").create("people", epsilon=1.0, delta=1e-6)
        account.charge(STEP, purpose="first")

    def act(self, folder, outside):
        Ledger(folder / "ledger.db").backup(folder / "copy.db")
        outside.release("copy")

    def check(self, folder, outside):
        copy = folder / "copy.db"
        assert copy.exists() >= ("copy" in outside.released()), "a copy is lost"
        if copy.exists():
            assert len(Ledger(copy).account("people").history()) == 1, "half a copy"
            Ledger(copy).verify()
        Ledger(folder / "ledger.db").verify()


SCENARIOS = {
    "charges": Charges(),
    "wrong order": WrongOrder(),
    "new ledger": NewLedger(),
    "fit": Fit(),
    "save": Save(),
    "shards": Shards(),
    "service": Service(),
    "backup": Backup(),
}


def in_child(work, errors):
    """Run something in a child; return "done", "killed", "refused", or "failed" with its last words."""
    child = os.fork()
    if child == 0:
        code = 0
        with errors.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            try:
                work()
            except (DpcvxError, OSError):
                traceback.print_exc()
                code = REFUSED
            except SystemExit as end:
                code = end.code if end.code in (0, REFUSED) else FAILED
            except BaseException:
                traceback.print_exc()
                code = FAILED
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return "killed"
    return {0: "done", REFUSED: "refused"}.get(os.WEXITSTATUS(status), "failed")


def last_words(errors):
    return " | ".join(errors.read_text().strip().splitlines()[-3:])


class Trial:
    """One scenario in a folder of its own, again and again."""

    def __init__(self, scenario, place):
        self.scenario, self.place, self.disk = scenario, place, Disk()
        self.template, self.errors = place / "template", place / "errors"
        self.folder, self.outside = place / "run", Outside(place / "released")
        self.ends, self.problems = Counter(), []

    def prepare(self):
        """Make the folder that every run begins with, where the runs will be."""
        self.folder.mkdir()
        assert in_child(lambda: self.scenario.prepare(self.folder), self.errors) == "done", last_words(
            self.errors
        )
        shutil.move(self.folder, self.template)

    def begin(self, *, files=True):
        shutil.rmtree(self.folder, ignore_errors=True)
        self.outside.path.unlink(missing_ok=True)
        if files:
            shutil.copytree(self.template, self.folder)

    def act(self, mode, at, log=-1):
        def work():
            self.disk.set(self.folder, mode, at, log)
            try:
                self.scenario.act(self.folder, self.outside)
            finally:
                count = self.disk.count
                self.disk.set(self.folder, "off")
                (self.place / "count").write_text(str(count))

        return in_child(work, self.errors)

    def check(self, name):
        if in_child(lambda: self.scenario.check(self.folder, self.outside), self.errors) != "done":
            self.problems.append(f"{name}: {last_words(self.errors)}")

    def count(self):
        self.begin()
        assert self.act("count", 0) == "done", last_words(self.errors)
        return int((self.place / "count").read_text())

    def faults(self, mode, most):
        """Fail at calls that are spread over the run."""
        calls = self.count()
        places = sorted({round(each) for each in np.linspace(0, calls - 1, min(most, calls))})
        for at in places:
            self.begin()
            end = self.act(mode, at)
            self.ends[end] += 1
            if end == "failed":
                self.problems.append(f"call {at}: {last_words(self.errors)}")
            self.check(f"call {at}, {end}")
        return calls, len(places)

    def cuts(self, most):
        """Cut the power after calls that are spread over the run, and restore what may be on the disk."""
        self.begin()
        model, states, told = DiskModel(self.folder), 0, b""
        self.outside.path = self.folder / "released"  # in the log, in its order
        log = self.place / "log"
        with log.open("wb") as file:
            assert self.act("count", 0, file.fileno()) == "done", last_words(self.errors)
        calls = read_log(log)
        self.outside.path = self.place / "released"
        written = [k for k, call in enumerate(calls) if not call.path.endswith("/released")]
        places = {written[round(each)] for each in np.linspace(0, len(written) - 1, min(most, len(written)))}
        places.add(len(calls) - 1)  # everything is told, and nothing may be lost
        for k, call in enumerate(calls):
            if call.path.endswith("/released"):
                told += call.data
            else:
                model.apply(call)
            for kept in (0, 0.5, 1) if k in places else ():
                rng = random.Random(f"{k} {kept}")
                self.begin(files=False)
                self.folder.mkdir()
                restore(model.after_cut(rng, kept), self.folder, self.folder)
                self.outside.path.write_bytes(told)
                self.check(f"cut after call {k}, {kept} of it kept")
                states += 1
        return len(calls), states


def main(name, mode, place, most, synchronous="EXTRA"):
    if synchronous != "EXTRA":
        prepare = database._prepare_sqlite

        def weakly(connection, record):
            prepare(connection, record)
            connection.execute(f"PRAGMA synchronous={synchronous}")

        database._prepare_sqlite = weakly
    trial = Trial(SCENARIOS[name], Path(place))
    trial.prepare()
    calls, faults = trial.cuts(int(most)) if mode == "cut" else trial.faults(mode, int(most))
    found = {"calls": calls, "faults": faults, "ends": trial.ends, "problems": trial.problems}
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
