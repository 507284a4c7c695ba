"""Frozen and closed accounts, and their exports, on every store of a ledger."""

import csv
import io
import json

import pytest

from dpcvx.errors import AccountNotOpen, LedgerDamaged, WrongValue
from dpcvx.events import Gaussian
from dpcvx.ledger import SecretChange
from dpcvx.ledger.export import read_signed, to_csv, to_signed_json

KEY = b"a secret of the data owner"


def test_a_frozen_account_gives_nothing_until_it_is_thawed(account):
    account.freeze(reason="an audit")
    attempts = (
        lambda: account.charge(Gaussian(40.0), purpose="a fit"),
        lambda: account.note("a run", b""),
        lambda: account.keep(SecretChange("run", None, b"x")),
        lambda: account.freeze(reason="again"),
    )
    for attempt in attempts:
        with pytest.raises(AccountNotOpen, match="frozen"):
            attempt()
    assert account.history() == ()
    account.thaw(reason="the audit is over")
    account.charge(Gaussian(40.0), purpose="a fit")
    assert [state.word for state in account.states] == ["frozen", "open"]
    assert "an audit" in str(account.statement())
    account.ledger.verify()


def test_a_closed_account_stays_closed(account):
    account.charge(Gaussian(40.0), purpose="a fit", key="k")
    account.close(reason="the study is over")
    for change in (account.thaw, account.freeze, account.close):
        with pytest.raises(AccountNotOpen, match="closed already"):
            change(reason="again")
    with pytest.raises(AccountNotOpen, match="the study is over"):
        account.charge(Gaussian(40.0), purpose="a fit")
    assert len(account.history()) == 1
    account.store("k", b"what was paid for is kept")
    account.ledger.verify()


def test_exports_have_every_entry_and_a_signature(account):
    account.charge(Gaussian(40.0), purpose='=HYPERLINK("a")')
    account.freeze(reason="an audit")
    rows = list(csv.DictReader(io.StringIO(to_csv(account.statement()))))
    assert [row["kind"] for row in rows] == ["charge", "frozen"]
    assert rows[0]["purpose or reason"].startswith("'=")
    assert float(rows[0]["used"]) == account.used
    text = to_signed_json(account.statement(), account.ledger.verify().head, KEY)
    content = read_signed(text, KEY)
    assert content["statement"]["history"][0]["purpose"] == '=HYPERLINK("a")'
    assert content["head"] == account.ledger.verify().head
    edited = json.loads(text)
    edited["statement"]["used"] = 0.0
    for damaged, key in ((json.dumps(edited), KEY), (text, KEY + b"x")):
        with pytest.raises(LedgerDamaged, match="edited"):
            read_signed(damaged, key)
    with pytest.raises(WrongValue, match="16 bytes"):
        read_signed(text, b"short")
    with pytest.raises(WrongValue, match="no signed export"):
        read_signed("[]", KEY)
