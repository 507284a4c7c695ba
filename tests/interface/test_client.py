"""The Python client and ``dpcvx ask``: answers, retries that are charged once, refusals in plain words."""

import json
import pickle
from types import SimpleNamespace

import httpx
import pytest

import dpcvx
from dpcvx import cli
from dpcvx.errors import BudgetExceeded
from dpcvx.queries.query import Regression
from dpcvx.service import client
from dpcvx.service.application import application
from serving import REGRESSION, SCHEMA, Teller, make_analysts, serving


@pytest.fixture
def engine():
    return Teller()


@pytest.fixture
def service(tmp_path, engine):
    """Address and key of a service."""
    analysts = make_analysts(tmp_path, engine)
    with serving(application(analysts, slot=0.01)) as address:
        yield address, analysts.keys.create("ann")[1]


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    """Pauses between tries are noted and not waited for."""
    pauses = []
    monkeypatch.setattr(client, "time", SimpleNamespace(sleep=pauses.append, monotonic=lambda: 0.0))
    return pauses


def test_a_client_asks_and_reads_everything(service, engine, tmp_path):
    with dpcvx.Client(*service) as ann:
        answer = ann.ask(Regression("smokes", ("age", "sex"), radius=2.0))
        assert answer.names == ("intercept", "age", "sex=f (baseline)", "sex=m")
        assert engine.asked[0][0] == Regression("smokes", ("age", "sex"), radius=2.0)
        assert ann.ask(REGRESSION).query["radius"] == 3.0
        assert ann.schema() == SCHEMA
        assert ann.budget()["remaining"] == engine.remaining
        assert [past["answer"] for past in ann.history(1)] == [engine.ask(engine.asked[1][0]).to_json()]
        assert ann.statement()["private"] is False
        for kind in ("csv", "parquet"):
            ann.synthetic(5, tmp_path / f"people.{kind}")
            beside = (tmp_path / f"people.{kind}.privacy.json").read_text()
            assert json.loads(beside) == ann.statement()
        with pytest.raises(ValueError, match="must end in"):
            ann.synthetic(5, tmp_path / "people.txt")
    import pyarrow.csv
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(tmp_path / "people.parquet")
    assert table.num_rows == 5
    assert json.loads(table.schema.metadata[b"dpcvx.privacy_statement"])["private"] is False
    assert pyarrow.csv.read_csv(tmp_path / "people.csv").to_pydict() == table.to_pydict()


def test_a_past_answer_is_fetched_in_every_format_by_its_own_key_alone(service, engine):
    with dpcvx.Client(*service) as ann:
        answer = ann.ask(Regression("smokes", ("age", "sex")), key="first")
        assert ann.answer("first") == answer
        assert len(engine.asked) == 1
        get = ann._http.get
        assert get("/answers/first?format=csv&population=false").text.startswith("term,coef,std err,[0.025,")
        import pyarrow as pa
        import pyarrow.parquet

        table = pyarrow.parquet.read_table(pa.BufferReader(get("/answers/first?format=parquet").content))
        assert table["term"].to_pylist() == list(answer.names)
        assert table["coef"].to_pylist() == list(answer.estimates)
        shown = get("/answers/first/table").json()
        assert [shown["columns"], *shown["rows"]] == answer.summary().table().cells()
        beside = get("/answers/first/table?beside=first").json()
        assert beside["title"] == "Comparison of two answers"
        with pytest.raises(dpcvx.ServiceError, match="not_found"):
            ann.answer("second")
        assert get("/answers/first?format=xlsx").status_code == 422


def test_a_lost_response_is_fetched_again_with_the_same_key(service, engine, hurry, monkeypatch):
    ann = dpcvx.Client(*service)
    send, lost = ann._http.request, []

    def losing(method, path, **content):
        response = send(method, path, **content)
        if len(lost) < 2:
            lost.append(response)
            raise httpx.ReadError("the line is cut")
        return response

    monkeypatch.setattr(ann._http, "request", losing)
    answer = ann.ask(REGRESSION)
    assert len(engine.asked) == 1
    assert answer.to_json() == lost[0].json() == lost[1].json()
    assert hurry == [0.5, 1.0]
    ann.close()


def replying(monkeypatch, *responses):
    """A client whose server gives the responses one after the other, and the requests that it saw."""
    seen, left = [], list(responses)

    def handle(request):
        seen.append(request)
        return left.pop(0)

    ann = dpcvx.Client("http://statistics.example", " key\n")
    monkeypatch.setattr(
        ann,
        "_http",
        httpx.Client(
            base_url=ann._http.base_url, headers=ann._http.headers, transport=httpx.MockTransport(handle)
        ),
    )
    return ann, seen


def test_busy_servers_are_asked_again_when_they_say(monkeypatch, hurry):
    busy = httpx.Response(
        429, headers={"Retry-After": "7"}, json={"code": "too_many_queries", "message": "w"}
    )
    ann, seen = replying(monkeypatch, busy, httpx.Response(503), httpx.Response(200, json={"epsilon": 1.0}))
    assert ann.budget() == {"epsilon": 1.0}
    assert hurry == [7.0, 1.0]
    assert {request.headers["Authorization"] for request in seen} == {"Bearer key"}


def test_a_wait_of_hours_is_reported_instead(monkeypatch, hurry):
    busy = httpx.Response(
        429, headers={"Retry-After": "7200"}, json={"code": "too_many_queries", "message": "w"}
    )
    ann, seen = replying(monkeypatch, busy)
    with pytest.raises(dpcvx.ServiceError, match="too_many_queries"):
        ann.budget()
    assert len(seen) == 1
    assert hurry == []


def test_what_is_no_refusal_of_the_service_is_reported_plainly(monkeypatch):
    ann, _ = replying(monkeypatch, httpx.Response(404, text="<html>"))
    with pytest.raises(dpcvx.ServiceError, match="status 404"):
        ann.budget()


def test_an_unreachable_server_is_reported_within_seconds(hurry):
    with dpcvx.Client("http://127.0.0.1:9", "key") as ann, pytest.raises(dpcvx.ServiceError) as raised:
        ann.budget()
    assert raised.value.code == "unreachable"
    assert "127.0.0.1 port 9" in str(raised.value)
    assert 1 < sum(hurry) <= client.NOBODY


def test_a_response_that_is_lost_is_tried_for_longer(hurry, monkeypatch):
    def lost(*arguments, **options):
        raise httpx.ReadError("gone")

    monkeypatch.setattr(httpx.Client, "request", lost)
    with dpcvx.Client("http://127.0.0.1:9", "key") as ann, pytest.raises(dpcvx.ServiceError):
        ann.budget()
    assert len(hurry) == len(client.PAUSES)


def test_a_wrong_key_is_explained_without_headers(service):
    wrong = dpcvx.Client(service[0], "dpcvx-000000000000-wrong")
    with wrong, pytest.raises(dpcvx.ServiceError, match="does not know this API key") as raised:
        wrong.budget()
    assert raised.value.code == "unauthorised"
    assert "Bearer" not in str(raised.value)


@pytest.mark.parametrize("query", ["worked ~ age", 3], ids=["text", "number"])
def test_what_is_no_question_is_refused_by_name(query):
    ann = dpcvx.Client("http://127.0.0.1:9", "key")
    with ann, pytest.raises(TypeError, match=r"Regression, Count, Mean or Marginal.*query_from_json"):
        ann.ask(query)


def test_refusals_have_codes_and_survive_pickling(service, engine):
    engine.problem = BudgetExceeded(1.0, 0.0)
    with dpcvx.Client(*service) as ann, pytest.raises(dpcvx.ServiceError) as raised:
        ann.ask(REGRESSION)
    again = pickle.loads(pickle.dumps(raised.value))
    assert again.code == raised.value.code == "budget_spent"
    assert str(again) == str(raised.value)


@pytest.mark.parametrize("url", ["statistics.example", "ftp://x", ""])
def test_an_address_must_be_one(url):
    with pytest.raises(ValueError, match="http"):
        dpcvx.Client(url, "key")


TYPED = {
    "smokes ~ age + sex": (
        ["--loss", "smooth_hinge", "--set", "l1", "--radius", "2"],
        {
            "kind": "regression",
            "target": "smokes",
            "features": ["age", "sex"],
            "loss": "smooth_hinge",
            "set": "l1",
        }
        | {"radius": 2.0, "intercept": True, "l2": 0.0},
    ),
    "smokes ~ sex": (
        ["--where", "age=[20, 40)"],
        {"kind": "regression", "target": "smokes", "features": ["sex"], "loss": "logistic", "set": "l2"}
        | {"radius": 3.0, "intercept": True, "l2": 0.0, "where": {"age": ["[20, 40)"]}},
    ),
    "`smokes` ~ sex": (
        [],
        {"kind": "regression", "target": "smokes", "features": ["sex"], "loss": "logistic", "set": "l2"}
        | {"radius": 3.0, "intercept": True, "l2": 0.0},
    ),
    "age ~ sex": (
        [],
        {"kind": "regression", "target": "age", "features": ["sex"], "loss": "squared", "set": "l2"}
        | {"radius": 3.0, "intercept": True, "l2": 0.0},
    ),
    "count": (
        ["--where", "sex=f", "--where", "age=[20, 40)|[40, 60)"],
        {"kind": "count", "where": {"sex": ["f"], "age": ["[20, 40)", "[40, 60)"]}},
    ),
    "mean age": (["--where", "sex=f"], {"kind": "mean", "of": "age", "where": {"sex": ["f"]}}),
    "mean `age`": ([], {"kind": "mean", "of": "age", "where": {}}),
    "marginal `sex` region": ([], {"kind": "marginal", "attributes": ["sex", "region"]}),
    "marginal sex region": ([], {"kind": "marginal", "attributes": ["sex", "region"]}),
    '{"kind": "mean", "of": "age"}': ([], {"kind": "mean", "of": "age", "where": {}}),
}


def run(monkeypatch, capsys, *words):
    monkeypatch.setattr("sys.argv", ["dpcvx", "ask", *words])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return stop.value.code, capsys.readouterr()


@pytest.mark.parametrize("typed", TYPED)
def test_questions_are_typed_as_people_write_them(service, engine, tmp_path, monkeypatch, capsys, typed):
    (tmp_path / "key").write_text(service[1] + "\n")
    options, expected = TYPED[typed]
    where = ["--url", service[0], "--key-file", str(tmp_path / "key")]
    code, shown = run(monkeypatch, capsys, typed, *options, *where)
    assert code == 0
    assert engine.asked[-1][0].to_json() == expected
    assert "95% intervals for" in shown.out
    assert ("people with age = [20, 40)" in shown.out) == (typed == "smokes ~ sex")
    code, shown = run(monkeypatch, capsys, typed, *options, *where, "--json")
    assert json.loads(shown.out)["query"] == expected


WRONG = {
    "counts": ([], "is no question"),
    "mean hours a week": ([], "in backquotes"),
    "mean `hours a week`": ([], "no attribute 'hours a week'"),
    " ": ([], "is no question"),
    "count": (["--where", "age>40"], "numbers are given by their bins"),
    "{": ([], "not valid JSON"),
    "count ": (["--where", "age=missing", "--where", "age=[20, 40)"], "names 'age' twice"),
    '{"kind": "count", "where": {"age": ["[20, 40)"], "age": ["[40, 60)"]}}': ([], "names 'age' twice"),
    '{"kind": "mean", "of": "age"}': (["--where", "sex=f"], "leave --where out"),
    " count": (["--where", "region=x"], "it has 'north', 'south', 'west'"),
    "smokes ~ age +": ([], "the operator + needs a name on both sides"),
    " count ": ([], "A count needs a condition"),
    "income ~ age": ([], "no attribute 'income'"),
    "smoke ~ age": ([], "no attribute 'smoke' (the schema declares 'smokes'); it has "),
}


@pytest.mark.parametrize("typed", WRONG)
def test_wrong_questions_are_explained(service, engine, monkeypatch, capsys, typed):
    monkeypatch.setenv("DPCVX_KEY", service[1])
    options, part = WRONG[typed]
    code, shown = run(monkeypatch, capsys, typed, *options, "--url", service[0])
    assert code == 2
    assert part in shown.err
    assert len(shown.err.splitlines()) == 1
    assert not engine.asked


def test_the_key_comes_from_a_file_or_a_variable_never_from_the_line(monkeypatch, capsys, tmp_path):
    monkeypatch.delenv("DPCVX_KEY", raising=False)
    code, shown = run(monkeypatch, capsys, "mean age")
    assert code == 2
    assert "--key-file" in shown.err
    code, shown = run(monkeypatch, capsys, "mean age", "--key-file", str(tmp_path / "none"))
    assert code == 3
    code, shown = run(monkeypatch, capsys, "--help")
    assert "--key " not in shown.out
