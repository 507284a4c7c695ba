"""Entries whose chain is whole, but which no ledger would have written: hashes can be computed by anybody."""

from types import SimpleNamespace

import pytest

from dpcvx.accounting import Budget
from dpcvx.events import Gaussian, to_plain
from dpcvx.ledger.chain import canonical, digest, genesis
from dpcvx.ledger.filters import FRESH, Spending, admit
from dpcvx.ledger.verification import _check_entry

CAP = Budget(1.0, 1e-6)
EVENT = Gaussian(20.0)
PAID = admit(CAP, FRESH, EVENT, failure=1e-30)
MADE = ("create", "people", None, {"epsilon": 1.0, "delta": 1e-6, "relation": "replace"})


def charge(key="first", spending=PAID, event=EVENT, failure=1e-30):
    told = {"event": to_plain(event), "failure": failure, "planned_delta": None}
    return "charge", "people", key, {**told, "spending": spending.to_plain()}


def note(kind="note", key="first", account="people", answer=b"some"):
    return kind, account, key, {"answer": digest(answer)}, answer


def state(word):
    return "state", "people", None, {"state": word, "reason": "because"}


def check(*entries):
    """Check entries one after the other, as a chain."""
    hashes, replayed = [genesis("an identity")], {}
    for sequence, (kind, account, key, details, *answer) in enumerate(entries, 1):
        told = {"sequence": sequence, "account": account, "kind": kind, "key": key, "previous": hashes[-1]}
        content = canonical({**details, **told})
        stored = answer[0] if answer else None
        row = SimpleNamespace(**told, content=content, hash=digest(content), answer=stored)
        _check_entry(row, hashes, replayed)
        hashes.append(row.hash)
    return replayed


def test_what_a_ledger_writes_is_accepted():
    replayed = check(MADE, charge(), note("answer"), note(), state("frozen"), state("open"), state("closed"))
    assert replayed["people"].spending == PAID
    assert replayed["people"].closed


def less(spending, part):
    totals = tuple((name, tuple(int(t * part) for t in total)) for name, total in spending.totals)
    return Spending(spending.mode, totals, spending.failure)


FORGED = {
    "an account is made twice": (MADE, MADE),
    "an account was never made": (note(),),
    "a charge to an account that was never made": (charge(),),
    "an answer that was never charged": (MADE, charge("other"), note("answer")),
    "a closed account is opened": (MADE, state("closed"), state("open")),
    "a state that there is none of": (MADE, state("half open")),
    "a kind that there is none of": (MADE, note("gift")),
    "an answer that was replaced": (MADE, charge(), (*note("answer")[:4], b"another")),
    "a price below its event's": (MADE, charge(spending=less(PAID, 0.999))),
    "a charge that lowers the total": (MADE, charge(), charge("second", spending=less(PAID, 0.5))),
    "a second charge for nothing": (MADE, charge(), charge("second")),
    "a failure that is not counted": (MADE, charge(failure=1e-20)),
    "a total above the cap": (MADE, charge(event=Gaussian(0.1), spending=less(PAID, 40_000))),
    "the mode of other releases": (MADE, charge(spending=Spending("basic", PAID.totals, PAID.failure))),
    "no filter at all": (MADE, charge(spending=Spending(PAID.mode, (), PAID.failure))),
    "all of an account for a release that is larger": (
        MADE,
        charge(event=Gaussian(0.1), spending=Spending("whole", (), PAID.failure)),
    ),
    "all of an account, after another release": (
        MADE,
        charge(),
        charge("second", spending=Spending("whole", (), 2 * PAID.failure)),
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_what_no_ledger_writes_is_refused(name):
    with pytest.raises((KeyError, ValueError)):
        check(*FORGED[name])
    check(*FORGED[name][:-1])  # it is the last entry that is wrong


def test_a_release_may_take_the_whole_of_a_fresh_account():
    whole = Spending("whole", (), PAID.failure)
    check(MADE, charge(spending=whole))
