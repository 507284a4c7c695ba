"""Files that earlier versions wrote still open, and say the same."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import dpcvx as dp
from dpcvx.ledger import SecretChange
from dpcvx.service.analysts import Analysts
from dpcvx.service.database import ServiceDatabase
from dpcvx.service.keys import open_keys
from golden.cases import PEOPLE, SPARSE, TABLE, TWO, A

WRITTEN = Path(__file__).parents[1] / "fixtures" / "version_0_1"
SAID = json.loads((WRITTEN / "said.json").read_text())
MODELS = sorted(path.stem for path in (WRITTEN / "models").glob("*.json"))
ROWS = {"table": TABLE.slice(0, 3), "sparse_l1": SPARSE[:3]}


@pytest.fixture
def ledger(tmp_path):
    for name in ("ledger.db", "witness"):
        shutil.copy(WRITTEN / name, tmp_path / name)
    return dp.Ledger(tmp_path / "ledger.db", witness=tmp_path / "witness")


@pytest.mark.parametrize("name", MODELS)
def test_a_model_file_predicts_and_states_as_before(name):
    model, said = dp.load(WRITTEN / "models" / f"{name}.json"), SAID[name]
    assert_array_equal(model.coef_, said["coef"])
    found = model.predict(ROWS.get(name, A[:3]))
    if hasattr(model, "classes_"):
        assert_array_equal(found, said["predictions"])
    else:  # terms were added in the order of a matrix product then, which depends on the machine
        assert_allclose(found, said["predictions"], rtol=1e-14)
    assert str(model.privacy_statement_) == said["statement"]


def test_a_ledger_is_intact_and_its_account_can_be_charged(ledger):
    ledger.verify()
    account = ledger.account("people")
    assert [entry.purpose for entry in account.history()] == SAID["ledger"]["purposes"]
    assert account.used == SAID["ledger"]["used"]
    assert account.remaining() == pytest.approx(SAID["ledger"]["remaining"])
    settings = {"epsilon": 0.1, "bounds": (-1, 1), "classes": (0, 1), "ledger": ledger, "account": "people"}
    dp.PrivateLogisticRegression(**settings).fit(A, np.arange(len(A)) % 2)
    assert account.used > SAID["ledger"]["used"]
    ledger.verify()


def test_an_engine_returns_the_answers_that_its_account_keeps(ledger):
    ill, sex = dp.Attribute("ill", ("no", "yes"), "yes"), dp.Attribute("sex", ("f", "m"), "m")
    schema = dp.Schema((ill, sex, dp.Binned("age", (0, 30, 60, 90), 45.0)))
    engine = dp.QueryEngine(schema, PEOPLE, dp.Budget(4.0, 1e-4), ledger=ledger, account="office")
    assert (engine.data_check, engine.budget_split.counts) == (None, 0)  # not paid for
    queries = {"first": dp.Regression("ill", ("sex", "age")), "second": dp.Count({"sex": ["f"]})}
    for (key, query), said in zip(queries.items(), SAID["answers"], strict=True):
        answer = engine.ask(query, key=key)
        assert answer.estimates == tuple(each["estimate"] for each in said["coefficients"])
        same = ("query", "branch", "error", "confidence", "checked", "remaining", "private", "note")
        assert [answer.to_json()[name] for name in same] == [said[name] for name in same]
        # What that version said of errors outside its self-check had no proof.
        assert (answer.error_bound, answer.covered_by) == (None, "none")


def test_shards_are_read_and_fitted_like_those_of_today(tmp_path):
    """With hardly any noise; that version shrank rows less, so that its coefficients for epsilon 2 differ."""
    shutil.copytree(WRITTEN / "shards", tmp_path / "shards")
    batches = [(A[:400], TWO[:400]), (A[400:], TWO[400:])]
    today = dp.from_batches(batches, bounds=(-1, 1), classes=(0, 1), store=tmp_path / "today", verbose=0)
    earlier, model = (
        dp.PrivateLogisticRegression(epsilon=100.0, delta=1e-5, random_state=7).fit(shards)
        for shards in (dp.open_shards(tmp_path / "shards"), today)
    )
    assert_allclose(earlier.coef_, model.coef_, rtol=0.05, atol=0.1)
    assert np.corrcoef(earlier.coef_, SAID["shards"]["coef"])[0, 1] > 0.99


def test_a_service_sends_the_answers_that_its_database_keeps(tmp_path):
    shutil.copy(WRITTEN / "service.db", tmp_path / "service.db")
    schema = dp.Schema(
        (
            dp.Attribute("ill", ("no", "yes"), "yes"),
            dp.Attribute("sex", ("f", "m"), "m"),
            dp.Binned("age", (0, 30, 60, 90), 45.0),
        )
    )
    ledger = dp.Ledger(tmp_path / "service.db")
    engine = dp.QueryEngine(schema, PEOPLE, dp.Budget(4.0, 1e-4), ledger=ledger, account="office")
    analysts = Analysts(engine, ServiceDatabase(ledger.url, "office"))
    key = analysts.keys.verify(SAID["service"]["key"])
    queries = {"first": dp.Regression("ill", ("sex", "age")), "second": dp.Count({"sex": ["f"]})}
    for (idempotency, query), answer in zip(
        queries.items(), SAID["service"]["answers"].values(), strict=True
    ):
        # the same JSON, with as many blanks behind it as today's answers have
        assert analysts.ask(key, idempotency, query).rstrip() == answer.encode().rstrip()
    third = analysts.ask(key, "third", dp.Mean("age"))
    past = analysts.history.latest(key, 10)
    assert [one.idempotency for one in past] == ["third", "second", "first"]
    assert past[0].answer == third.strip()
    assert analysts.ask(key, "third", dp.Mean("age")) == third
    ledger.verify()


def test_the_service_of_an_earlier_version_gets_its_new_columns(tmp_path):
    shutil.copy(WRITTEN / "service.db", tmp_path / "service.db")
    keys = open_keys(tmp_path / "service.db", "office")
    (old, *_) = keys.list()
    assert (old.measurements, old.purpose) == (None, "")
    new, text = keys.create("bob", measurements=3, purpose="wages")
    assert open_keys(tmp_path / "service.db", "office").verify(text) == new


def test_a_ledger_of_an_earlier_version_keeps_secrets(ledger):
    account = ledger.account("people")
    assert account.read_secret("run") is None
    account.keep(SecretChange("run", None, b"x"))
    assert account.read_secret("run") == b"x"
    ledger.verify()
