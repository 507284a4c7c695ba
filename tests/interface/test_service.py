"""The query service: who may ask, what is refused and how, and that nothing but answers leaves."""

import json
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcvx.accounting import Neighbours
from dpcvx.errors import BudgetExceeded, DeadKey
from dpcvx.queries import Asker, Attribute, Regression, Schema
from dpcvx.queries.answer import BINDING, BRANCHES, reading_note
from dpcvx.service import application as application_module
from dpcvx.service import keys as keys_module
from dpcvx.service.analysts import NAMED, NOTE_ROOM, pad
from dpcvx.service.application import application
from dpcvx.service.boundary import BODY_LIMIT
from dpcvx.service.refusal import CODES
from serving import REGRESSION, Teller, make_analysts, serving, visitor

POST, API = "POST", "/api/v1"
ROUTES = [
    ("GET", "/schema"),
    ("POST", "/queries"),
    ("GET", "/history"),
    ("GET", "/budget"),
    ("GET", "/synthetic"),
    ("GET", "/statement"),
    ("GET", "/keys"),
    ("POST", "/keys"),
    ("DELETE", "/keys/0123456789ab"),
    ("GET", "/openapi.json"),
]


@pytest.fixture
def engine():
    return Teller()


@pytest.fixture
def analysts(tmp_path, engine):
    return make_analysts(tmp_path, engine)


@pytest.fixture
def ann(analysts):
    with visitor(analysts) as client:
        yield client


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A server and a client for tests after which nothing has been asked."""
    engine = Teller()
    with visitor(make_analysts(tmp_path_factory.mktemp("shared"), engine)) as client:
        yield client
    assert not engine.asked


@pytest.fixture(scope="module")
def owner(tmp_path_factory):
    with visitor(make_analysts(tmp_path_factory.mktemp("owner")), scopes=("admin",)) as client:
        yield client


def ask(client, question=REGRESSION, key=None):
    return client.post(f"{API}/queries", json=question, headers={"Idempotency-Key": key} if key else {})


def code(response):
    content = response.json()
    assert set(content) == {"code", "message"}
    assert CODES[content["code"]] == response.status_code
    return content["code"]


@pytest.mark.long
def test_a_question_is_answered_and_kept_in_the_history_of_its_key(ann, engine):
    response = ask(ann, key="first")
    assert response.status_code == 200
    names = [one["name"] for one in response.json()["coefficients"]]
    assert names == ["intercept", "age", "sex=f (baseline)", "sex=m"]
    (past,) = ann.get(f"{API}/history").json()["queries"]
    assert past["idempotency_key"] == "first"
    assert past["answer"] == response.json()
    assert past["query"] == engine.asked[0][0].to_json()


@pytest.mark.long
@pytest.mark.parametrize(("method", "path"), ROUTES, ids=[f"{m} {p}" for m, p in ROUTES])
def test_every_route_needs_a_valid_key(ann, analysts, engine, method, path):
    revoked, text = analysts.keys.create("gone", scopes=("ask", "admin"))
    analysts.keys.revoke(revoked.id)
    id, secret = ann.headers["Authorization"].removeprefix("Bearer ").split("-", 2)[1:]
    wrong = [
        "",
        "Bearer",
        "Bearer x",
        f"Bearer {text}",
        f"Bearer dpcvx-{id}-{secret[:-1]}",
        f"Basic {secret}",
    ]
    wrong += [f"Bearer other-{id}-{secret}", f"Bearer dpcvx-{id}-", f"Bearer dpcvx-0123456789ab-{secret}"]
    bodies = set()
    for header in wrong:
        response = ann.request(method, API + path, headers={"Authorization": header})
        assert code(response) == "unauthorised"
        bodies.add(response.content)
    assert len(bodies) == 1
    assert not engine.asked


@pytest.mark.parametrize("case", ["unknown id", "wrong secret", "revoked", "no key at all"])
def test_every_wrong_key_costs_one_verification(analysts, monkeypatch, case):
    key, text = analysts.keys.create("ann")
    tried = {
        "unknown id": "dpcvx-0123456789ab-x",
        "wrong secret": text + "x",
        "revoked": text,
        "no key at all": "",
    }
    if case == "revoked":
        assert analysts.keys.verify(text) == key
        analysts.keys.revoke(key.id)
    calls = []
    hasher = keys_module.HASHER

    class Counting:
        def verify(self, *given):
            calls.append(given)
            return hasher.verify(*given)

    monkeypatch.setattr(keys_module, "HASHER", Counting())
    assert analysts.keys.verify(tried[case]) is None
    assert len(calls) == 1


@pytest.mark.long
def test_a_key_is_kept_as_a_hash_only(analysts, tmp_path):
    _, text = analysts.keys.create("ann")
    secret = text.split("-", 2)[2]
    content = (tmp_path / "ledger.db").read_bytes()
    assert b"$argon2id$" in content
    assert secret.encode() not in content


def test_scopes_part_analysts_from_administrators(analysts, engine):
    with visitor(analysts, scopes=("ask",)) as analyst:
        assert code(analyst.get(f"{API}/keys")) == "forbidden"
        assert code(analyst.post(f"{API}/keys", json={"name": "me", "scopes": ["admin"]})) == "forbidden"
        assert code(analyst.delete(f"{API}/keys/0123456789ab")) == "forbidden"
    with visitor(analysts, scopes=("admin",)) as owner:
        for path in ("queries", "history", "synthetic"):
            response = ask(owner) if path == "queries" else owner.get(f"{API}/{path}")
            assert code(response) == "forbidden"
        assert owner.get(f"{API}/budget").status_code == 200
    assert not engine.asked


@pytest.mark.long
def test_an_administrator_makes_and_revokes_keys(analysts):
    with visitor(analysts, scopes=("admin",)) as owner:
        made = owner.post(f"{API}/keys", json={"name": "bob", "per_minute": 3})
        assert made.status_code == 201
        headers = {"Authorization": f"Bearer {made.json()['text']}"}
        assert owner.get(f"{API}/budget", headers=headers).json()["queries_per_minute"] == 3
        id = made.json()["key"]["id"]
        assert owner.delete(f"{API}/keys/{id}").json()["revoked"] is True
        assert code(owner.get(f"{API}/budget", headers=headers)) == "unauthorised"
        listed = {key["id"]: key for key in owner.get(f"{API}/keys").json()["keys"]}
        assert listed[id]["revoked"] is True
        assert "text" not in listed[id]
        assert code(owner.delete(f"{API}/keys/{'0' * 12}")) == "not_found"


@pytest.mark.long
@pytest.mark.parametrize(
    "body",
    [
        {"name": ""},
        {"name": "a\u0000b"},
        {"name": "a\u200bb"},
        {"name": "a", "scopes": []},
        {"name": "a", "scopes": ["root"]},
        {"name": "a", "per_day": 0},
        {"name": "a", "per_day": 10**12},
        {"name": "a", "extra": 1},
        {},
        [],
        None,
    ],
    ids=lambda body: json.dumps(body),
)
def test_keys_that_make_no_sense_are_refused(owner, body):
    before = owner.get(f"{API}/keys").json()
    assert code(owner.post(f"{API}/keys", json=body)) == "malformed"
    assert owner.get(f"{API}/keys").json() == before


MALFORMED = {
    "nothing": b"",
    "no JSON": b"{",
    "no object": b"[]",
    "bytes": b"\xff\xfe\x00",
    "deep": b"[" * 60_000,
    "not a number": b'{"kind": "regression", "target": "smokes", "features": ["age"], "radius": NaN}',
    "infinite": b'{"kind": "regression", "target": "smokes", "features": ["age"], "radius": 1e999}',
    "half a pair": b'{"kind": "count", "where": {"\\ud800": ["f"]}}',
    "many digits": b'{"kind": "count", "where": ' + b"9" * 5000 + b"}",
    "unknown kind": b'{"kind": "rows"}',
    "unknown field": b'{"kind": "count", "where": {"sex": ["f"]}, "limit": 3}',
    "unknown attribute": b'{"kind": "mean", "of": "income"}',
    "unknown level": b'{"kind": "count", "where": {"sex": ["x"]}}',
    "attribute twice": b'{"kind": "count", "where": {"sex": ["f"], "sex": ["m"]}}',
    "no condition": b'{"kind": "count", "where": {}}',
    "level that is no text": b'{"kind": "count", "where": {"sex": [1]}}',
    "target too wide": b'{"kind": "regression", "target": "region", "features": ["age"], "loss": "logistic"}',
    "target as feature": b'{"kind": "regression", "target": "smokes", "features": ["smokes"]}',
    "radius": b'{"kind": "regression", "target": "smokes", "features": ["age"], "radius": -1}',
    "mean of words": b'{"kind": "mean", "of": "region"}',
    "null character": b'{"kind": "mean", "of": "\\u0000"}',
}


@pytest.mark.long
@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_questions_are_refused_before_the_engine_and_cost_nothing(shared, name):
    response = shared.post(f"{API}/queries", content=MALFORMED[name], headers={"Idempotency-Key": "k"})
    assert code(response) == "malformed"
    assert shared.get(f"{API}/budget").json()["queries_today"] == 0


@pytest.mark.long
@pytest.mark.parametrize("key", ["a b", "x" * 65, "é", "a/b", "'"])
def test_idempotency_keys_are_plain_words(shared, key):
    headers = {"Idempotency-Key": key.encode()}
    assert code(shared.post(f"{API}/queries", json=REGRESSION, headers=headers)) == "malformed"


@pytest.mark.parametrize("declared", [True, False], ids=["declared length", "streamed"])
@pytest.mark.parametrize("path", ["/queries", "/keys"])
def test_oversized_requests_are_refused(analysts, engine, path, declared):
    body = json.dumps(REGRESSION).encode().ljust(BODY_LIMIT + 1)
    pieces = (body[k : k + 5000] for k in range(0, len(body), 5000))
    with visitor(analysts, scopes=("ask", "admin")) as client:
        assert code(client.post(API + path, content=body if declared else pieces)) == "too_large"
        assert ask(client, json.loads(body)).status_code == 200
    assert len(engine.asked) == 1


@pytest.mark.long
def test_a_replay_gets_the_same_bytes_and_the_engine_is_asked_once(ann, analysts, engine):
    first = ask(ann, key="again")
    engine.number = 0.75
    assert ask(ann, key="again").content == first.content
    assert len(engine.asked) == 1
    assert ann.get(f"{API}/budget").json()["queries_today"] == 1
    assert ask(ann, key="other").content != first.content


@pytest.mark.long
def test_a_replay_after_a_restart_gets_the_same_bytes(tmp_path, analysts, ann):
    first = ask(ann, key="again")
    later = make_analysts(tmp_path, Teller(number=0.75))
    with serving(application(later, slot=0.01)) as address:
        again = httpx.post(
            f"{address}{API}/queries",
            json=REGRESSION,
            headers={"Authorization": ann.headers["Authorization"], "Idempotency-Key": "again"},
        )
    assert again.content == first.content
    assert not later.engine.asked


@pytest.mark.long
def test_a_key_that_was_used_for_another_question_is_refused(ann, engine):
    ask(ann, key="once")
    assert code(ask(ann, {**REGRESSION, "radius": 2.0}, key="once")) == "key_reused"
    assert len(engine.asked) == 1


def test_analysts_do_not_share_keys_or_histories(analysts, engine):
    with visitor(analysts) as ann:
        ask(ann, key="same")
        _, text = analysts.keys.create("bob")
        bob = {"Authorization": f"Bearer {text}"}
        question = {"kind": "mean", "of": "age"}
        response = ann.post(f"{API}/queries", json=question, headers={**bob, "Idempotency-Key": "same"})
        assert response.status_code == 200
        (past,) = ann.get(f"{API}/history", headers=bob).json()["queries"]
        assert past["query"]["kind"] == "mean"
    keys = [key for _, key in engine.asked]
    assert len(set(keys)) == 2
    assert all(key.endswith(".same") for key in keys)


@pytest.mark.long
def test_history_is_newest_first_and_can_be_cut(ann):
    for key in ("one", "two", "three"):
        ask(ann, key=key)
    listed = [past["idempotency_key"] for past in ann.get(f"{API}/history?limit=2").json()["queries"]]
    assert listed == ["three", "two"]


@pytest.mark.long
def test_history_has_pages_and_a_search(ann):
    for k in range(5):
        ask(ann, key=f"k{k}")
    ann.post(f"{API}/queries", json={"kind": "mean", "of": "age"}, headers={"Idempotency-Key": "mean"})

    def listed(query):
        found = ann.get(f"{API}/history?{query}").json()
        return [past["idempotency_key"] for past in found["queries"]], found["more"]

    assert listed("limit=4") == (["mean", "k4", "k3", "k2"], True)
    assert listed("limit=4&older_than=k2") == (["k1", "k0"], False)
    assert listed("search=MEAN%20age") == (["mean"], False)
    assert listed("search=%25") == ([], False)  # a per cent sign is no wildcard
    assert listed("older_than=nobody") == ([], False)


@pytest.mark.long
@pytest.mark.parametrize(
    ("problem", "expected"),
    [(BudgetExceeded(0.5, 0.1), "budget_spent"), (DeadKey("people"), "key_dead")],
    ids=["budget", "dead key"],
)
def test_refusals_of_the_ledger_have_codes(ann, engine, problem, expected):
    engine.problem = problem
    assert code(ask(ann)) == expected
    assert ann.get(f"{API}/history").json()["queries"] == []


@pytest.mark.parametrize("kind", [ValueError, TypeError, KeyError, MemoryError, RuntimeError])
def test_an_unforeseen_error_is_opaque_everywhere(ann, engine, caplog, capfd, kind):
    engine.problem = kind("Mrs Miller, 45, north")
    with caplog.at_level(logging.DEBUG):
        response = ask(ann)
    assert code(response) == "internal"
    written = response.text + caplog.text + "".join(capfd.readouterr())
    assert "Miller" not in written
    assert f"unexpected {kind.__name__} in serving.py" in caplog.text
    engine.problem = None
    assert ask(ann).status_code == 200


@pytest.mark.long
def test_unforeseen_errors_of_different_kinds_look_the_same(ann, engine):
    bodies = set()
    for problem in (ValueError("a"), ZeroDivisionError("much longer than that"), OSError(2, "no")):
        engine.problem = problem
        bodies.add(ask(ann).content)
    assert len(bodies) == 1


@pytest.mark.parametrize(("limit", "span"), [("per_minute", 60), ("per_day", 86_400)])
def test_limits_hold_per_key_and_survive_a_restart(tmp_path, analysts, engine, limit, span):
    with visitor(analysts, **{limit: 2}) as ann:
        ask(ann, key="a"), ask(ann, key="b")
        refused = ask(ann, key="c")
        assert code(refused) == "too_many_queries"
        assert span - 30 < int(refused.headers["Retry-After"]) <= span + 1
        assert ask(ann, key="a").status_code == 200  # a replay is no new question
        _, text = analysts.keys.create("bob")
        assert ann.post(
            f"{API}/queries", json=REGRESSION, headers={"Authorization": f"Bearer {text}"}
        ).is_success
        header = ann.headers["Authorization"]
    with serving(application(make_analysts(tmp_path), slot=0.01)) as address:
        again = httpx.post(f"{address}{API}/queries", json=REGRESSION, headers={"Authorization": header})
    assert code(again) == "too_many_queries"
    assert len(engine.asked) == 3


@pytest.mark.parametrize(("limit", "allowed"), [(None, 2), (1, 1), (9, 4)], ids=["half", "one", "all"])
def test_a_key_has_a_share_of_the_measurements(analysts, engine, limit, allowed):
    engine.branch = "oracle"
    with visitor(analysts, measurements=limit, purpose="wages by age") as ann:
        told = ann.get(f"{API}/budget").json()
        assert (told["measurements"], told["measurements_left"]) == (allowed, min(3, allowed))
        ask(ann, key="a")
        assert ann.get(f"{API}/budget").json()["measurements_left"] == max(0, min(3, allowed - 1))
    assert engine.askers == [Asker(analysts.keys.list()[0].id, 2 if limit is None else limit)]
    assert analysts.keys.list()[0].purpose == "wages by age"


@pytest.mark.long
def test_old_questions_do_not_count(analysts, monkeypatch):
    key, _ = analysts.keys.create("ann", per_minute=1)
    query = analysts.read(json.dumps(REGRESSION).encode())
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now - 61)
    analysts.ask(key, "old", query)
    monkeypatch.undo()
    analysts.ask(key, "new", query)
    assert len(analysts.history.latest(key, 10)) == 2


@pytest.mark.long
def test_one_key_cannot_fill_the_queue_and_the_loop_stays_awake(analysts, engine):
    engine.gate = threading.Event()
    with visitor(analysts) as ann, ThreadPoolExecutor(application_module.WAITING + 1) as pool:
        waiting = [pool.submit(ask, ann, key=f"k{k}") for k in range(application_module.WAITING + 1)]
        done = next(one for one in _completed(waiting))
        assert code(done.result()) == "too_many_queries"
        assert ann.get("/healthz").status_code == 200  # while the engine is busy
        assert code(ann.get(f"{API}/synthetic")) == "too_many_queries"
        engine.gate.set()
        assert sum(one.result().status_code == 200 for one in waiting) == application_module.WAITING
    assert engine.most_inside == 1


def _completed(futures):
    from concurrent.futures import as_completed

    return as_completed(futures, timeout=30)


numbers = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0.0, -1.2345678901234567e-308])


@pytest.mark.long
@given(
    st.integers(1, 40),
    st.lists(numbers, min_size=40, max_size=40),
    st.sampled_from(["histogram", "oracle"]),
    st.none() | st.booleans(),
)
def test_length_depends_on_the_shape_alone(size, values, branch, flag):
    def answer(values, word, bit):
        listed = [{"name": "age", "estimate": value} for value in values[:size]]
        return json.dumps({"coefficients": listed, "branch": word, "bound": bit}).encode()

    body = pad(answer(values, branch, flag))
    assert len(body) == len(pad(answer([0.0] * 40, "oracle", None)))
    assert json.loads(body) == json.loads(answer(values, branch, flag))


def test_length_is_the_same_whatever_a_note_says():
    query = {"kind": "regression", "target": "s" * 300, "features": ["age", "sex"]}
    numbers = [{"name": name, "estimate": 0.5} for name in ("intercept", "age", "sex=f", "sex=x")]
    notes = ["", "too few people are visible at sex=f, sex=x: " + "words " * 400, BINDING * 3]
    bodies = [json.dumps({"query": query, "coefficients": numbers, "note": note}).encode() for note in notes]
    assert len({len(pad(body)) for body in bodies}) == 1
    assert [json.loads(pad(body))["note"] for body in bodies] == notes


def test_notes_have_room():
    """All sentences at once, with all names, are no longer than the room that answers are padded to."""
    schema = Schema((*(Attribute(f"column{j}", ("yes", "no", "none"), "none") for j in range(6)),))
    names = [f"column{j}" for j in range(6)]
    query = Regression(names[0], tuple(names[1:]), interactions=((names[1], names[2]),))
    levels = [f"{name}={level}" for name in names[1:] for level in ("no", "none")]
    note = reading_note(
        query,
        schema,
        Neighbours(unit="person", rows=3),
        True,
        ["column1:column2"],
        levels,
        0.25,
        True,
        True,
        True,
        True,
        levels,
        independent=True,
        pairs=(1500, 500, 500),
        blurred=True,
    )
    listed = json.dumps([query.to_json(), ["intercept", *levels, "column1=no:column2=no"]])
    assert len(note) < NOTE_ROOM + NAMED * len(listed)


def test_length_is_the_same_for_both_branches_at_every_size():
    for size in range(1, 400):
        listed = [{"name": "age", "estimate": 0.5}] * size
        bodies = [json.dumps({"coefficients": listed, "branch": word}).encode() for word in BRANCHES]
        assert len({len(pad(body)) for body in bodies}) == 1


def test_both_branches_answer_with_equal_status_headers_and_length(analysts, engine):
    seen = []
    with visitor(analysts) as ann:
        for engine.branch, engine.number in (("histogram", 1.0), ("oracle", -1.2345678901234567e-300)):
            response = ask(ann)
            headers = {k: v for k, v in response.headers.items() if k not in ("date", "x-request-id")}
            seen.append((response.status_code, headers, len(response.content), _shape(response.json())))
    assert seen[0] == seen[1]
    assert seen[0][2] % 1024 == 0


def _shape(content):
    if isinstance(content, dict):
        return {name: _shape(value) for name, value in content.items()}
    return [_shape(value) for value in content] if isinstance(content, list) else "value"


@pytest.mark.long
@pytest.mark.parametrize(("seconds", "slots"), [(0.0, 1), (0.25, 2)])
def test_answers_leave_after_a_whole_number_of_slots(analysts, engine, seconds, slots):
    engine.seconds = seconds
    with visitor(analysts, slot=0.2) as ann:
        ann.get(f"{API}/schema")  # the key is known from here on
        started = time.monotonic()
        ask(ann)
        assert time.monotonic() - started >= 0.2 * slots


def test_refusals_of_the_engine_wait_for_a_slot_too(analysts, engine):
    engine.problem = BudgetExceeded(1.0, 0.0)
    with visitor(analysts, slot=0.2) as ann:
        ann.get(f"{API}/schema")
        started = time.monotonic()
        assert code(ask(ann)) == "budget_spent"
        assert time.monotonic() - started >= 0.2


@pytest.mark.long
def test_metrics_say_nothing_about_answers_or_analysts(analysts, engine):
    texts = []
    for branch in ("histogram", "oracle"):
        engine.branch = branch
        with visitor(analysts) as ann:
            ask(ann), ann.get("/nothing/here"), ann.get("/nor/there")
            texts.append(ann.get("/metrics").text)
    counts = [[line for line in text.splitlines() if "_seconds" not in line] for text in texts]
    assert counts[0] == counts[1]  # times are those of the machine
    assert 'dpcvx_requests_total{route="/api/v1/queries",status="200"} 1' in texts[0]
    assert 'dpcvx_requests_total{route="other",status="404"} 2' in texts[0]
    values = "".join(line for line in texts[0].splitlines() if not line.startswith("#"))
    assert not [word for word in ("ann", "smokes", "histogram", "oracle", "nothing") if word in values]


@pytest.mark.long
@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/page.js",
        "/style.css",
        "/interface",
        "/interface.js",
        "/healthz",
        "/readyz",
        "/metrics",
        "/nowhere",
        f"{API}/schema",
    ],
)
def test_every_response_has_the_protective_headers(shared, path):
    headers = shared.get(path).headers
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"
    assert headers.get("server", "uvicorn") == "uvicorn"  # no version


@pytest.mark.long
@pytest.mark.parametrize("path", ["/nowhere", f"{API}/nowhere", "/docs", "/redoc", "/openapi.json"])
def test_what_is_not_there_has_a_code(shared, path):
    assert code(shared.get(path)) == "not_found"


@pytest.mark.long
def test_a_wrong_method_has_a_code(shared):
    response = shared.put(f"{API}/queries", json=REGRESSION)
    assert code(response) == "method_not_allowed"
    assert response.headers["Allow"] == "POST"


@pytest.mark.long
def test_the_description_lists_every_code_and_the_questions_of_this_schema(shared):
    description = shared.get(f"{API}/openapi.json").json()
    assert set(description["components"]["schemas"]["RefusalBody"]["properties"]["code"]["enum"]) == set(
        CODES
    )
    body = description["paths"][f"{API}/queries"]["post"]["requestBody"]["content"]["application/json"][
        "schema"
    ]
    listed, by_formula, count = (kind["properties"] for kind in body["oneOf"][:3])
    assert listed["target"]["enum"] == ["sex", "age", "region", "smokes"]
    assert by_formula["formula"]["type"] == "string"
    assert not {"target", "features"} & set(by_formula)
    assert count["where"]["properties"]["sex"]["items"]["enum"] == ["f", "m"]


@pytest.mark.long
def test_the_schema_has_what_a_form_needs(shared):
    content = shared.get(f"{API}/schema").json()
    age = content["attributes"][1]
    assert age == {
        "name": "age",
        "edges": [20, 40, 60, 80],
        "known": 3,
        "missing": 50,
        "labels": ["[20, 40)", "[40, 60)", "[60, 80]"],
    }
    assert content["losses"][0] == "logistic"
    assert set(content["label_losses"]) == {"logistic", "smooth_hinge"} < set(content["losses"])
