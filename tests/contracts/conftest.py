"""Ledgers on every store."""

import pytest

import postgres
from dpcvx.ledger import Ledger
from dpcvx.ledger.database import address, engine


@pytest.fixture(scope="session")
def databases():
    if not postgres.can_start():
        pytest.skip("PostgreSQL is not installed here; its half of these tests needs initdb and pg_ctl")
    with postgres.server() as make:
        yield make


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    if request.param == "sqlite":
        yield str(tmp_path / "ledger.db")
    else:
        place = request.getfixturevalue("databases")()
        yield place
        engine(address(place)).dispose()


@pytest.fixture
def ledger(url):
    return Ledger(url)


@pytest.fixture
def account(ledger):
    return ledger.create("people", epsilon=0.1, delta=1e-6)
