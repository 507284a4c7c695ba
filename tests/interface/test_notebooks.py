"""HTML representations in notebooks: complete, escaped, and well formed."""

from html.parser import HTMLParser

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.errors import DpcvxError
from dpcvx.noise import SeededGenerator
from dpcvx.words import html_table

HOSTILE = "<script>alert('&')</script>"


class Reader(HTMLParser):
    """Texts and tags of a page; an end tag that closes nothing is an error."""

    def __init__(self):
        super().__init__()
        self.texts, self.tags, self.open = [], set(), []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def read(thing):
    page = thing if isinstance(thing, str) else thing._repr_html_()
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert not reader.open
    assert reader.tags <= {"style", "div", "table", "caption", "thead", "tbody", "tr", "th", "td", "p"}
    return " ".join(reader.texts)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (400, 2))
    return X, X[:, 0] + rng.normal(0, 0.1, 400)


@pytest.fixture(scope="module")
def ledger(tmp_path_factory, table):
    ledger = dp.Ledger(tmp_path_factory.mktemp("ledger") / "people.db")
    account = ledger.create(HOSTILE, epsilon=2.0, delta=1e-6)
    account.charge(dp.events.Gaussian(noise_multiplier=20.0), purpose=HOSTILE)
    return ledger


@pytest.fixture(scope="module")
def model(table):
    return dp.PrivateLinearRegression(epsilon=1.0, bounds=(0, 1), y_bounds=(-1, 2)).fit(*table)


def test_a_statement_has_all_lines_of_its_text(model):
    shown = read(model.privacy_statement_)
    assert model.privacy_statement_.meaning in shown
    for line in ("guarantee", "epsilon = 1", "accounting", "not covered"):
        assert line in shown
        assert line in str(model.privacy_statement_)


def test_a_plan_has_its_facts_and_its_candidates(model):
    shown = read(model.plan_)
    for word in ("Plan, fixed from public facts alone", "certified", "sensitivity", "candidate", "predicted"):
        assert word in shown
        assert word in str(model.plan_)


@pytest.mark.parametrize("private", [True, False])
def test_a_release_says_whether_it_is_private(table, private):
    problem = dp.Problem(dp.Squared(), dp.L2Ball(1.0), bounds=dp.Bounds(1.0, y=1.0), d=2)
    plan = dp.plan(problem, 400, dp.Budget(1.0, 1e-6))
    source = dp.source(*table, bounds=problem.bounds)
    release = dp.execute(plan, source, **({} if private else {"rng": SeededGenerator(0)}))
    shown = read(release)
    assert ("NOT PRIVATE" in shown) is (not private)
    assert ("epsilon = 1, delta = 1e-06" in shown.split("Plan,")[0]) is private
    assert "nothing was charged" in shown
    assert "Plan, fixed from public facts alone" in shown


def test_ledgers_accounts_and_their_statements_are_escaped(ledger):
    account = ledger.account(HOSTILE)
    for thing in (ledger, account, account.statement()):
        assert HOSTILE in read(thing)
        assert "<script" not in thing._repr_html_()
    assert f"{account.used:.1%}" in read(ledger)
    assert "1 charge(s)" in read(account)


def test_a_password_of_a_ledger_is_not_shown(ledger, monkeypatch):
    secret = dp.Ledger("postgresql://ann:hunter2@host/name")
    monkeypatch.setattr(dp.Ledger, "accounts", lambda self: ())
    assert "hunter2" not in secret._repr_html_()


def test_a_ledger_that_is_not_there_is_a_plain_error(tmp_path):
    with pytest.raises(DpcvxError):
        dp.Ledger(tmp_path / "none.db")._repr_html_()


def test_summaries_and_answers_are_escaped(table):
    import pandas as pd

    X = pd.DataFrame(table[0], columns=[HOSTILE, "b"])
    fitted = dp.PrivateLinearRegression(
        epsilon=1.0, bounds={HOSTILE: (0, 1), "b": (0, 1)}, y_bounds=(-1, 2)
    ).fit(X, table[1])
    assert HOSTILE in read(fitted.summary())
    assert "<script" not in fitted.summary()._repr_html_()


def test_every_text_is_escaped():
    page = html_table(HOSTILE, [(HOSTILE, HOSTILE)], [[HOSTILE], [HOSTILE]], [HOSTILE])
    assert "<script" not in page
    assert read(page).count(HOSTILE) == 6
