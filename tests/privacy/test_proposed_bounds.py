"""Bounds proposed by private quantiles: their price, and nothing but released numbers in what is shown."""

import json
import math

import numpy as np
import pandas as pd
import pytest

import dpcvx as dp
from dpcvx.accounting import Tight
from dpcvx.data.table import Table
from dpcvx.data.table_schema import fill_in_bounds
from dpcvx.errors import Incompatible
from dpcvx.estimators.proposed_bounds import propose_bounds
from dpcvx.events import Exponential, Repeat, to_plain

N = 4000


def people(seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "wage": rng.lognormal(3, 0.5, N),
            "balance": rng.normal(0, 50, N),
            "word": ["x"] * N,
            "id": np.arange(N) // 4,
        }
    )


def ask(frame, columns=("wage", "balance", "word"), **settings):
    given = {"epsilon": 1.0, "delta": 1e-6, "random_state": 0} | settings
    return propose_bounds(Table(frame), columns, **given)


def test_bounds_hold_almost_everybody_and_are_round():
    found = ask(people()).bounds
    low, high = found["wage"]
    assert low == 0
    assert np.quantile(people()["wage"], 0.98) < high < 200
    low, high = found["balance"]
    assert -500 < low < -100 < 100 < high < 500
    assert found["word"] is None  # both quantiles of text are 0
    assert all(float(f"{value:.2g}") == value for name in ("wage", "balance") for value in found[name])


def best_known_attack(epsilon, eta, count):
    """Delta of the worst pair of a bounded-range mechanism, repeated: losses eta - t and -t."""
    found = []
    for t in np.linspace(0, eta, 2001)[1:-1]:
        q = (1 - math.exp(-t)) / (math.exp(eta - t) - math.exp(-t))
        p = q * math.exp(eta - t)
        parts = (
            math.comb(count, j)
            * (p**j * (1 - p) ** (count - j) - math.exp(epsilon) * q**j * (1 - q) ** (count - j))
            for j in range(count + 1)
        )
        found.append(sum(max(0.0, part) for part in parts))
    return max(found)


def test_the_price_is_the_budget_and_the_statement_is_public():
    found, other = ask(people()), ask(people(1).assign(wage="abc", balance=np.nan))
    assert found.statement.to_dict() == other.statement.to_dict()
    mechanisms = found.statement.to_dict()["mechanisms"]
    assert [(each["question"], each["count"]) for each in mechanisms] == [("NoisyQuantile", 3)] * 2
    (eta,) = {each["eta"] for each in mechanisms}
    assert eta == pytest.approx(0.205244, abs=1e-6)  # test vector: 6 selections at (1, 1e-6)
    assert 0.9e-6 < best_known_attack(1.0, eta, 6) <= 1e-6
    spent = Tight().epsilon(Repeat(Exponential(eta), 6), 1e-6 * (1 - 1e-3))
    assert 1 - 1e-6 < spent <= 1


def test_rows_of_a_person_are_protected_together():
    frame = people()
    found = ask(frame, ("wage",), ids=frame["id"], epsilon=2.0)
    stated = found.statement.to_dict()
    assert stated["public"]["persons"] == N // 4
    assert "n" not in stated["public"]
    assert stated["bounds"]["enforced"] == "a person changes each rank by one at most"
    doubled = pd.concat([frame, frame])
    assert ask(doubled, ("wage",), ids=doubled["id"], epsilon=2.0).statement.to_dict() == stated


def test_few_records_are_refused_before_they_are_read():
    with pytest.raises(Incompatible, match=r"need \d+ records, and there are 100"):
        ask(people()[:100])
    with pytest.raises(Incompatible, match=r"need \d+ persons, and there are 50"):
        ask(people()[:100], ids=np.arange(100) // 2)


def test_the_account_pays_once(tmp_path):
    ledger = dp.Ledger(tmp_path / "book.db")
    account = ledger.create("people", epsilon=2.0, delta=1e-4)
    ask(people(), ledger=ledger, account="people", random_state=None)
    (entry,) = account.history()
    assert entry.purpose == "bounds of 3 columns of 4000 records"
    (eta,) = {part["eta"] for part in ask(people()).statement.to_dict()["mechanisms"]}
    assert entry.event == to_plain(Repeat(Exponential(eta), 6))  # two quantiles of each column


def test_a_line_of_a_file_is_filled_in_and_all_else_stays():
    text = '# mine\n[columns."a b"]\nkind = "number"\nbounds = "?"  # open\n\n[columns.c]\nbounds = "?"\n'
    filled = fill_in_bounds(text, "a b", "bounds = [0, 1]")
    assert filled == text.replace('bounds = "?"  # open', "bounds = [0, 1]")
    with pytest.raises(ValueError, match="no section"):
        fill_in_bounds(filled, "a b", "bounds = [0, 1]")


def test_the_command_line_fills_in_open_bounds(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from dpcvx.cli import app

    monkeypatch.chdir(tmp_path)
    people().rename(columns={"word": "sex"}).to_csv("people.csv", index=False)

    def run(words):
        result = CliRunner().invoke(app, words.split())
        return result.exit_code, result.stdout, result.exception

    code, _, error = run("declare people.csv --epsilon 1")
    assert code == 1
    assert "first run the command without --epsilon" in str(error)
    assert run("declare people.csv --target wage")[0] == 0
    code, out, _ = run("declare people.csv --epsilon 1 --seed 1")
    assert code == 0
    assert "NOT PRIVATE" in out
    schema = dp.TableSchema.from_toml("people.toml")
    assert schema.columns["wage"].bounds[0] == 0
    assert schema.columns["balance"].bounds[1] > 50
    assert schema.columns["sex"].levels == "?"
    code, _, error = run("declare people.csv --epsilon 1")
    assert "nothing to pay for" in str(error)
    assert json.dumps(schema.to_dict())
