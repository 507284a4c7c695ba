"""Keys, questions and the right to serve, on every store of a ledger."""

import pytest

from dpcvx.service.database import ServiceDatabase
from dpcvx.service.history import QueryHistory
from dpcvx.service.keys import Keys, open_keys
from dpcvx.service.refusal import Refusal


@pytest.fixture
def store(account):
    return ServiceDatabase(account.ledger.url, account.name)


def test_a_key_is_verified_until_it_is_revoked(store):
    keys = Keys(store)
    key, text = keys.create("Zoë", scopes=("admin", "ask"), per_minute=7)
    assert keys.verify(text) == key
    assert keys.verify(text + "x") is None
    assert keys.verify("dpcvx-\u0000-x") is None
    assert key.scopes == ("ask", "admin")
    assert Keys(store).verify(text) == key  # another process
    assert keys.list() == (key,)
    Keys(store).revoke(key.id)
    assert keys.verify(text) is None  # although this one had accepted it
    assert keys.list()[0].revoked


def test_keys_belong_to_one_account(store, ledger):
    ledger.create("others", epsilon=1.0, delta=1e-6)
    _, text = Keys(store).create("ann")
    others = open_keys(ledger.url, "others")
    assert others.verify(text) is None
    assert others.list() == ()
    with pytest.raises(ValueError, match="no account 'nobody'"):
        open_keys(ledger.url, "nobody")


@pytest.mark.parametrize(
    "wrong", [{"scopes": ()}, {"scopes": ("root",)}, {"per_minute": 0}, {"per_day": -1}], ids=str
)
def test_keys_that_make_no_sense_are_refused(store, wrong):
    keys = Keys(store)
    with pytest.raises(ValueError, match="must be"):
        keys.create("ann", **wrong)
    with pytest.raises(ValueError, match="printable"):
        keys.create("a\nb")
    assert keys.list() == ()


def test_answers_are_kept_as_they_are_and_a_key_is_for_one_query(store):
    key, _ = Keys(store).create("ann", per_minute=2)
    history = QueryHistory(store)
    assert history.find(key, "one", "q") is None
    history.add(key, "one", "q", b'{"x": "\xff answer"}')
    assert QueryHistory(store).find(key, "one", "q") == b'{"x": "\xff answer"}'
    with pytest.raises(Refusal, match="another query") as refused:
        history.find(key, "one", "other")
    assert refused.value.code == "key_reused"
    history.add(key, "two", "q", b"{}")
    with pytest.raises(Refusal, match=r"2 queries a minute: the next one is .* UTC\.") as refused:
        history.find(key, "three", "q")
    assert 0 < refused.value.retry_after <= 61
    assert [past.idempotency for past in history.latest(key, 10)] == ["two", "one"]
    assert history.asked_today(key) == 2


def test_an_answer_may_be_a_note_of_the_ledger(store, account):
    key, _ = Keys(store).create("ann")
    history = QueryHistory(store)
    account.note("engine answer one", b'{"x": 1}')
    history.add(key, "one", "q", b"engine answer one")
    history.add(key, "two", "q", b'{"x": 2}')
    assert history.find(key, "one", "q") == b'{"x": 1}'
    assert [past.answer for past in history.latest(key, 10)] == [b'{"x": 2}', b'{"x": 1}']


def test_an_account_has_one_server_at_a_time(store, ledger):
    ledger.create("others", epsilon=1.0, delta=1e-6)
    again = ServiceDatabase(ledger.url, store.account)
    with store.alone():
        with pytest.raises(ValueError, match="served by another process"), again.alone():
            pass
        with ServiceDatabase(ledger.url, "others").alone():
            pass
    with again.alone():
        pass
