"""The real server on real data: many analysts at once, and a process that is killed while it answers."""

import io
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import numpy as np
import pytest

from dpcvx import cli
from dpcvx.data.files import open_table
from dpcvx.events import Gaussian
from dpcvx.ledger import Ledger
from dpcvx.queries.query import Count, Marginal, Mean, Regression
from dpcvx.queries.schema import Schema
from dpcvx.service import start
from dpcvx.service.client import Client
from dpcvx.service.connections import server_config
from dpcvx.service.keys import open_keys

API = "/api/v1"
N = 6000  # comparisons detect errors of about 0.04 of the records, and that of the parity is 0.0625
SCHEMA = """
[attributes.a]
levels = ["no", "yes"]
other = "yes"
[attributes.b]
levels = ["no", "yes"]
other = "yes"
[attributes.c]
levels = ["no", "yes"]
other = "yes"
[attributes.parity]
levels = ["even", "odd"]
other = "odd"
[attributes.age]
edges = [20, 30, 40, 50, 60, 70, 80]
missing = 45
"""


@pytest.fixture
def people(tmp_path):
    """A table in which three attributes decide a fourth, which no three of them show."""
    rng = np.random.default_rng(0)
    a, b, c, age = *rng.integers(0, 2, (3, N)), rng.integers(20, 80, N)
    words = [np.array(["no", "yes"])[column] for column in (a, b, c)]
    columns = [*words, np.array(["even", "odd"])[a ^ b ^ c], age]
    lines = [",".join(map(str, row)) for row in zip(*columns, strict=True)]
    (tmp_path / "people.csv").write_text("a,b,c,parity,age\n" + "\n".join(lines))
    (tmp_path / "schema.toml").write_text(SCHEMA)
    return tmp_path


def command(folder, port, *more):
    words = ["serve", "people.csv", "--schema", "schema.toml", "--epsilon", "4", "--delta", "1e-5"]
    words += ["--ledger", "ledger.db", "--port", str(port), "--slot", "0.01", *more]
    return [sys.executable, "-c", "from dpcvx.cli import main; main()", *words]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


@contextmanager
def server(folder, port, *more):
    """A server in a process of its own; killed, not stopped, at the end."""
    words = command(folder, port, *more)
    with subprocess.Popen(words, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        try:
            for _ in range(600):
                if process.poll() is not None:
                    raise AssertionError(process.stderr.read())
                try:
                    httpx.get(f"http://127.0.0.1:{port}/healthz")
                    break
                except httpx.TransportError:
                    time.sleep(0.1)
            yield process
        finally:
            process.kill()


def make_key(folder, account="people"):
    return open_keys(folder / "ledger.db", account).create("ann", per_minute=100_000)[1]


def question(k):
    """Many different questions, some of which the first histogram answers badly."""
    kinds = (
        Marginal(("a", "b", "c", "parity")),
        Count({"a": ["yes"], "b": ["yes"], "c": ["no"], "parity": ["even"]}),
        Mean("age", {"a": ["no"]}),
        Regression("parity", ("a", "age"), radius=1.0 + k / 100),
    )
    return kinds[k % len(kinds)].to_json()


def transcript(folder):
    """Number of notes of each kind in the ledger, and the branches of the kept answers."""
    notes = Ledger(folder / "ledger.db").account("people").notes("")
    kinds = [name.split(" ")[1] for name, _ in notes]
    answers = [
        json.loads(content) for kind, (_, content) in zip(kinds, notes, strict=True) if kind == "answer"
    ]
    return Counter(kinds), Counter(answer["branch"] for answer in answers)


def check_account(folder, account="people"):
    ledger = Ledger(folder / "ledger.db")
    ledger.verify()
    account = ledger.account(account)
    assert len(account.history()) == 1  # one charge, before the first record was read
    assert 0 < account.used <= 1


def send(address, text, k):
    """Response to question k under its own key, or None if there was none."""
    headers = {"Authorization": f"Bearer {text}", "Idempotency-Key": f"k{k}"}
    try:
        return httpx.post(f"{address}{API}/queries", json=question(k), headers=headers, timeout=60)
    except httpx.TransportError:
        return None


@pytest.mark.long
def test_a_killed_server_continues_with_the_same_answers(people):
    port, sent = free_port(), 40
    address = f"http://127.0.0.1:{port}"
    with server(people, port) as process:
        text = make_key(people)
        with ThreadPoolExecutor(4) as pool:
            futures = [pool.submit(send, address, text, k) for k in range(sent)]
            while sum(future.done() for future in futures) < sent // 3:
                time.sleep(0.01)
            os.kill(process.pid, signal.SIGKILL)
            before = [future.result() for future in futures]
    acknowledged = {k: r for k, r in enumerate(before) if r is not None}
    assert sent // 3 <= len(acknowledged) < sent
    assert {r.status_code for r in acknowledged.values()} == {200}
    check_account(people)
    with server(people, port):
        after = [send(address, text, k) for k in range(sent)]
        history = httpx.get(f"{address}{API}/history?limit=1000", headers={"Authorization": f"Bearer {text}"})
    assert {response.status_code for response in after} == {200}
    assert all(after[k].content == response.content for k, response in acknowledged.items())
    kept = {past["idempotency_key"]: past["answer"] for past in history.json()["queries"]}
    assert kept == {f"k{k}": response.json() for k, response in enumerate(after)}
    check_account(people)
    kinds, branches = transcript(people)
    assert kinds["answer"] == sent
    # A measurement whose answer was lost with the process is kept, and counted; no answer has two.
    assert 1 <= branches["oracle"] <= kinds["update"] <= branches["oracle"] + 1


@pytest.mark.long
def test_two_servers_on_one_ledger_keep_their_accounts_apart(people):
    """A second server of the same account is refused before it charges; one of another account is not."""
    ports, sent = (free_port(), free_port()), 8
    others = ("--account", "others")
    with server(people, ports[0]) as first, server(people, ports[1], *others):
        again = command(people, free_port())
        refused = subprocess.run(again, cwd=people, capture_output=True, text=True, timeout=120)
        assert refused.returncode == 2
        assert "is being served by another process" in refused.stderr
        texts = [make_key(people, account) for account in ("people", "others")]
        asked = [(f"http://127.0.0.1:{port}", text) for port, text in zip(ports, texts, strict=True)]
        with ThreadPoolExecutor(4) as pool:
            both = [[pool.submit(send, *each, k) for k in range(sent)] for each in asked]
            answers = [[future.result() for future in futures] for futures in both]
        assert {answer.status_code for each in answers for answer in each} == {200}
        assert answers[0][0].content != answers[1][0].content  # noise of their own
        assert send(asked[1][0], texts[0], 0).status_code == 401  # a key opens one account
        os.kill(first.pid, signal.SIGKILL)
        assert send(*asked[1], 0).content == answers[1][0].content
        with server(people, ports[0]):
            assert send(*asked[0], 0).content == answers[0][0].content
    for account in ("people", "others"):
        check_account(people, account)


@pytest.mark.long
def test_many_analysts_at_once_are_all_answered_and_charged_once(people):
    port, analysts, questions = free_port(), 8, 8
    address = f"http://127.0.0.1:{port}"
    with server(people, port):
        text = make_key(people)
        with httpx.Client(headers={"Authorization": f"Bearer {text}"}) as owner:
            assert owner.get(f"{address}{API}/budget").json()["epsilon"] == 4

        def analyst(number):
            answers = {}
            with Client(address, text) as client:
                for k in range(questions):
                    key = f"{number}-{k}"
                    answers[key] = client.ask(question(k), key=key)
                    assert client.ask(question(k), key=key) == answers[key]  # at once again
            return answers

        with ThreadPoolExecutor(analysts) as pool:
            answers = {
                key: answer for each in pool.map(analyst, range(analysts)) for key, answer in each.items()
            }
        with Client(address, text) as client:
            history = client.history(1000)
            remaining = client.budget()["remaining"]
    assert len(answers) == len(history) == analysts * questions
    assert {past["idempotency_key"]: past["answer"] for past in history} == {
        key: answer.to_json() for key, answer in answers.items()
    }
    check_account(people)
    kinds, branches = transcript(people)
    assert kinds["answer"] == analysts * questions
    assert kinds["update"] == branches["oracle"] >= 1
    assert branches["histogram"] >= 1
    assert remaining == min(answer.remaining for answer in answers.values())


@pytest.mark.long
def test_a_stopped_server_says_so_and_ends_well(people):
    port = free_port()
    with server(people, port) as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        said = process.stderr.read()
    assert f"warm start: 5 attributes of {N:,} people" in said
    assert "nobody has a key yet" in said
    assert "comparisons: 4 of 4 runs left" in said
    assert "the next start continues" in said


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        ((0, 0), "this engine makes no comparisons"),
        ((0, 4), "0 of 4 runs left: answers are no longer"),
        ((3, 4), "3 of 4 runs left; without --witness a stop loses the current one"),
    ],
    ids=["none", "used up", "left"],
)
def test_the_start_says_what_comparisons_are_left(runs, words):
    assert words in start._comparisons(*runs, witnessed=False)
    assert "a stop loses none" in start._comparisons(3, 4, witnessed=True)


@pytest.mark.long
def test_a_demonstration_says_that_it_is_thrown_away(people, monkeypatch, capsys):
    schema = Schema.from_toml(people / "schema.toml")
    columns, _ = open_table(people / "people.csv").read(list(schema.names), schema.levels)
    monkeypatch.setattr("dpcvx.service.demonstration.people", lambda: (schema, columns))
    monkeypatch.setattr("uvicorn.Server.run", lambda self, sockets: None)
    monkeypatch.setattr("signal.signal", lambda *arguments: None)
    start.demonstration(host="127.0.0.1", port=free_port(), slot=0.01)
    said = capsys.readouterr().err
    assert "the demonstration and its ledger are deleted" in said
    assert "the next start continues" not in said


def run(folder, monkeypatch, capsys, *words):
    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.argv", ["dpcvx", *words])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return stop.value.code, capsys.readouterr()


REFUSED = {
    "nothing to serve": (["serve"], 2, "needs a table, --schema and --epsilon"),
    "no such schema": (
        ["serve", "people.csv", "--schema", "no.toml", "--epsilon", "1"],
        3,
        "no.toml does not exist",
    ),
    "no such table": (
        ["serve", "no.csv", "--schema", "schema.toml", "--epsilon", "1"],
        3,
        "no.csv does not exist",
    ),
    "no cap": (
        ["serve", "people.csv", "--schema", "schema.toml"],
        2,
        "'people' does not exist yet: give --epsilon",
    ),
    "no budget": (["serve", "people.csv", "--schema", "schema.toml", "--epsilon", "0"], 2, "epsilon"),
    "no such column": (["serve", "people.csv", "--schema", "other.toml", "--epsilon", "1"], 2, "income"),
    "no such host": (
        ["serve", "people.csv", "--schema", "schema.toml", "--epsilon", "1", "--host", "192.0.2.1"],
        3,
        "Cannot listen",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_everything_public_is_checked_before_anything_is_charged(people, monkeypatch, capsys, case):
    (people / "other.toml").write_text(
        SCHEMA + '[attributes.income]\nlevels = ["low", "high"]\nother = "low"\n'
    )
    words, expected, part = REFUSED[case]
    code, shown = run(
        people, monkeypatch, capsys, *words, *(["--ledger", "ledger.db"] if len(words) > 1 else [])
    )
    assert code == expected
    assert part in shown.err
    assert len(shown.err.splitlines()) == 1
    assert not (people / "ledger.db").exists()


def test_a_port_in_use_is_refused_before_anything_is_charged(people, monkeypatch, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        words = ["serve", "people.csv", "--schema", "schema.toml", "--epsilon", "1", "--ledger", "ledger.db"]
        code, shown = run(people, monkeypatch, capsys, *words, "--port", str(taken.getsockname()[1]))
    assert code == 3
    assert "Try another --port" in shown.err
    assert not (people / "ledger.db").exists()


def test_an_account_keeps_its_cap_and_its_people(people, monkeypatch, capsys):
    Ledger(people / "ledger.db").create("people", epsilon=4.0, delta=1e-5)
    words = [
        "serve",
        "people.csv",
        "--schema",
        "schema.toml",
        "--ledger",
        "ledger.db",
        "--port",
        str(free_port()),
    ]
    code, shown = run(people, monkeypatch, capsys, *words, "--epsilon", "8")
    assert code == 2
    assert "has the cap epsilon 4" in shown.err
    code, shown = run(people, monkeypatch, capsys, *words, "--epsilon", "4", "--delta", "1e-4")
    assert code == 2
    assert "cannot be changed" in shown.err
    Ledger(people / "ledger.db").account("people").charge(Gaussian(2.0), purpose="a fit")
    code, shown = run(people, monkeypatch, capsys, *words)  # its epsilon is that of the account
    assert code == 2
    assert "has paid for something else" in shown.err


@pytest.mark.long
def test_a_server_takes_a_share_of_the_cap(people, monkeypatch, capsys):
    """The account was used up by the first start."""
    monkeypatch.setattr("uvicorn.Server.run", lambda self, sockets: None)
    monkeypatch.setattr("signal.signal", lambda *arguments: None)
    words = ["serve", "people.csv", "--schema", "schema.toml", "--ledger", "ledger.db", "--epsilon", "4"]
    words += ["--delta", "1e-5", "--spend", "0.5"]
    for _ in range(2):  # the second start pays nothing
        code, shown = run(people, monkeypatch, capsys, *words, "--port", str(free_port()))
        assert code == 0
        assert "epsilon 2, delta 7.54e-07 for all queries together, 0.5 of the account's" in shown.err
    account = Ledger(people / "ledger.db").account("people")
    assert len(account.history()) == 1
    assert account.remaining() > 1
    account.close(reason="The study is over.")
    code, shown = run(people, monkeypatch, capsys, *words, "--port", str(free_port()))
    assert (code, "is closed: The study is over." in shown.err) == (2, True)


def test_an_old_copy_of_the_ledger_is_not_continued_where_a_witness_knows(people, monkeypatch, capsys):
    place, copy = people / "ledger.db", people / "copy.db"
    ledger = Ledger(place, witness=people / "witness")
    ledger.create("people", epsilon=4.0, delta=1e-5)
    shutil.copy(place, copy)
    ledger.create("others", epsilon=1.0, delta=1e-5)
    shutil.copy(copy, place)
    words = ["serve", "people.csv", "--schema", "schema.toml", "--ledger", "ledger.db", "--epsilon", "4"]
    code, shown = run(people, monkeypatch, capsys, *words, "--port", str(free_port()), "--witness", "witness")
    assert code == 2
    assert "witness" in shown.err
    assert len(Ledger(place).account("people").history()) == 0


def test_keys_from_the_command_line(people, monkeypatch, capsys):
    Ledger(people / "ledger.db").create("people", epsilon=4.0, delta=1e-5)
    where = ["--account", "people", "--ledger", "ledger.db"]
    code, shown = run(
        people, monkeypatch, capsys, "keys", "create", "ann", *where, "--scope", "admin", "--json"
    )
    made = json.loads(shown.out)
    assert code == 0
    assert made["key"]["scopes"] == ["admin"]
    assert made["text"].startswith(f"dpcvx-{made['key']['id']}-")
    assert run(people, monkeypatch, capsys, "keys", "revoke", made["key"]["id"], *where)[0] == 0
    code, shown = run(people, monkeypatch, capsys, "keys", "list", *where, "--json")
    assert json.loads(shown.out)["keys"][0]["revoked"] is True
    code, shown = run(people, monkeypatch, capsys, "keys", "list", *where)
    assert "revoked" in shown.out
    assert made["text"] not in shown.out
    code, shown = run(people, monkeypatch, capsys, "keys", "revoke", "nobody", *where)
    assert code == 2
    assert "no key 'nobody'" in shown.err
    code, shown = run(people, monkeypatch, capsys, "keys", "list", "--account", "x", "--ledger", "ledger.db")
    assert code == 2
    assert "no account 'x'" in shown.err


def test_a_server_leaves_the_logging_of_its_process_alone():
    """Handlers of other libraries close their stream, which may be somebody's standard error."""
    handler = logging.StreamHandler(io.StringIO())
    closed = []
    handler.close = lambda: closed.append(True)
    server_config(None)
    assert not closed
