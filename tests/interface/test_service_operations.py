"""Operation of the service: readiness, metrics, request ids, log, limits, the page of the interface."""

import csv
import io
import json
import logging
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import httpx
import pytest

from dpcvx import cli
from dpcvx.errors import AccountNotOpen
from dpcvx.ledger import Ledger
from dpcvx.service import application as application_module
from dpcvx.service.analysts import Analysts
from dpcvx.service.application import application
from dpcvx.service.database import ServiceDatabase
from dpcvx.service.logs import JsonLines
from serving import REGRESSION, Teller, serving, visitor

API = "/api/v1"


@pytest.fixture
def engine():
    return Teller()


@pytest.fixture
def analysts(tmp_path, engine):
    ledger = Ledger(tmp_path / "ledger.db", witness=tmp_path / "witness")
    ledger.create("people", epsilon=1.0, delta=1e-6)
    return Analysts(engine, ServiceDatabase(ledger.url, "people"), ledger)


class TestReadiness:
    def ready(self, analysts):
        with serving(application(analysts, slot=0.01)) as address:
            response = httpx.get(f"{address}/readyz")
        return response.status_code, response.json()

    def test_a_sound_ledger_is_ready(self, analysts):
        words = {"status": "ready", "disk": "ok", "ledger": "ok", "chain": "ok"}
        assert self.ready(analysts) == (200, words)

    def test_a_full_disk_is_not(self, analysts, monkeypatch):
        monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=1000))
        status, words = self.ready(analysts)
        assert (status, words["status"], words["ledger"]) == (503, "not ready", "ok")
        assert "free" in words["disk"]

    def test_an_old_copy_of_the_ledger_is_not(self, analysts, tmp_path):
        shutil.copy(tmp_path / "ledger.db", tmp_path / "old.db")
        analysts._ledger.create("others", epsilon=1.0, delta=1e-6)
        shutil.copy(tmp_path / "old.db", tmp_path / "ledger.db")
        status, words = self.ready(analysts)
        assert (status, words["disk"]) == (503, "ok")
        assert "old copy" in words["chain"]

    def test_a_missing_ledger_is_not(self, analysts, tmp_path):
        (tmp_path / "ledger.db").unlink()
        status, words = self.ready(analysts)
        assert (status, words["ledger"]) == (503, "it does not answer")

    def test_the_ledger_is_not_read_for_every_request(self, analysts, monkeypatch):
        calls, check = [], analysts.check
        monkeypatch.setattr(analysts, "check", lambda: (calls.append(1), check())[1])
        with serving(application(analysts, slot=0.01)) as address:
            for _ in range(5):
                assert httpx.get(f"{address}/readyz").status_code == 200
        assert len(calls) == 1


def test_metrics_have_times_refusals_queues_and_the_budget(analysts, engine):
    with visitor(analysts) as ann:
        ann.post(f"{API}/queries", json=REGRESSION)
        ann.post(f"{API}/queries", json={"kind": "nothing"})
        text = ann.get("/metrics").text
    assert 'dpcvx_request_seconds_count{route="/api/v1/queries"} 2' in text
    assert 'dpcvx_request_seconds_bucket{route="/api/v1/queries",le="+Inf"} 2' in text
    assert 'dpcvx_refusals_total{code="malformed"} 1' in text
    assert "dpcvx_waiting_requests 0" in text
    assert f"dpcvx_budget_remaining_epsilon {engine.remaining:g}" in text
    assert "dpcvx_comparison_runs_left 3" in text


def test_requests_have_ids(analysts):
    with visitor(analysts) as ann:
        first, second = (ann.get("/healthz").headers["X-Request-Id"] for _ in range(2))
        assert first != second
        assert ann.get("/healthz", headers={"X-Request-Id": "from.proxy-1"}).headers["X-Request-Id"] == (
            "from.proxy-1"
        )
        forged = ann.get("/healthz", headers={"X-Request-Id": 'a"} b' * 30}).headers["X-Request-Id"]
        assert len(forged) == 16


def test_the_log_has_requests_and_causes_and_no_data(analysts, engine):
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    log = logging.getLogger("dpcvx.service")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        with visitor(analysts) as ann:
            ann.post(f"{API}/queries", json=REGRESSION)
            engine.problem = ZeroDivisionError("income of Ann is 17")
            failed = ann.post(f"{API}/queries", json=REGRESSION)
            id = analysts.keys.list()[0].id
            secret = ann.headers["Authorization"].split("-", 2)[2]
    finally:
        log.removeHandler(handler)
        log.setLevel(logging.NOTSET)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    asked, problem, refused = lines
    assert (asked["route"], asked["status"], asked["key"]) == ("/api/v1/queries", 200, id)
    assert asked["milliseconds"] >= 10
    assert (problem["level"], problem["request"]) == ("error", failed.headers["X-Request-Id"])
    assert "ZeroDivisionError" in problem["message"]
    assert (refused["code"], refused["request"]) == ("internal", problem["request"])
    assert not [word for word in ("income", "smokes", secret, "estimate") if word in stream.getvalue()]


def test_the_queue_of_all_keys_is_limited(analysts, engine, monkeypatch):
    monkeypatch.setattr(application_module, "WAITING_OF_ALL", 2)
    engine.gate = threading.Event()
    app = application(analysts, slot=0.01)
    with visitor_of(app, analysts) as (ann, bob), ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(ann.post, f"{API}/queries", json=REGRESSION) for _ in range(2)]
        while app.state.service._waiting.total() < 2:
            time.sleep(0.01)
        refused = bob.post(f"{API}/queries", json=REGRESSION)
        assert (refused.status_code, refused.json()["code"]) == (503, "busy")
        engine.gate.set()
        assert {each.result().status_code for each in waiting} == {200}
        assert bob.post(f"{API}/queries", json=REGRESSION).status_code == 200


def visitor_of(app, analysts):
    """Two clients with keys of their own at one server."""
    from contextlib import ExitStack, contextmanager

    @contextmanager
    def open_clients():
        with ExitStack() as stack:
            address = stack.enter_context(serving(app))
            headers = [
                {"Authorization": f"Bearer {analysts.keys.create(name)[1]}"} for name in ("ann", "bob")
            ]
            yield tuple(
                stack.enter_context(httpx.Client(base_url=address, headers=each, timeout=60))
                for each in headers
            )

    return open_clients()


def test_the_page_of_the_interface_needs_nothing_from_elsewhere(analysts):
    with visitor(analysts) as ann:
        page, script = ann.get("/interface"), ann.get("/interface.js")
        described = ann.get(f"{API}/openapi.json").json()
    assert page.headers["Content-Type"].startswith("text/html")
    assert "http://" not in page.text + script.text
    assert "https://" not in page.text + script.text
    assert "innerHTML" not in script.text
    assert {"/api/v1/queries", "/api/v1/budget"} <= set(described["paths"])


def test_a_frozen_account_refuses_queries_and_synthetic_records(analysts, engine):
    engine.problem = AccountNotOpen("frozen")
    with visitor(analysts) as ann:
        for refused in (ann.post(f"{API}/queries", json=REGRESSION), ann.get(f"{API}/synthetic?rows=2")):
            assert (refused.status_code, refused.json()["code"]) == (409, "account_not_open")


def test_browsers_find_an_icon_and_programs_the_interface(analysts):
    with visitor(analysts) as ann:
        assert ann.get("/favicon.ico").headers["Content-Type"] == "image/svg+xml"
        assert 'href="/interface"' in ann.get("/").text


def test_the_owner_sees_who_asked_what_for_which_purpose(analysts, tmp_path, monkeypatch, capsys):
    with visitor(analysts, purpose="=wages") as ann:
        ann.post(f"{API}/queries", json=REGRESSION)
    words = ["dpcvx", "keys", "queries", "--account", "people", "--ledger", str(tmp_path / "ledger.db")]
    for more in ([], ["--json"]):
        monkeypatch.setattr("sys.argv", [*words, *more])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        assert stop.value.code == 0
        shown = capsys.readouterr().out
        if more:
            (asked,) = json.loads(shown)["queries"]
            assert (asked["name"], asked["purpose"], asked["branch"]) == ("ann", "=wages", "histogram")
            assert asked["query"]["target"] == "smokes"
        else:
            (row,) = csv.DictReader(io.StringIO(shown))
            assert (row["purpose"], row["name"]) == ("'=wages", "ann")
