"""How long a fit takes is said before it starts: from public sizes, roughly, in words."""

import json
import warnings

import numpy as np
import pytest
from scipy.sparse import csr_array

import dpcvx as dp
from dpcvx.planning.candidates import with_all
from dpcvx.planning.words import plan_record
from dpcvx.plans.running_time import (
    ANSWER,
    CELL,
    DAY,
    NONZERO,
    SLOPE,
    in_words,
    running_time,
)
from dpcvx.solvers import SufficientStatistics

BUDGET = dp.Budget(1.0, 1e-8)
N, D = 3000, 40
PROBLEM = dp.Problem(dp.Logistic(), dp.L2Ball(10.0), bounds=dp.Bounds(1.0), d=D)


def planned(solver, n=N, problem=PROBLEM):
    return dp.plan(problem, n, BUDGET, (solver,))


def test_the_estimate_counts_answers_slopes_and_the_cells_that_are_stored():
    descent = planned(dp.NoisyGradientDescent(n_iter=7))
    assert running_time(descent) == pytest.approx(7 * (ANSWER + N * (SLOPE + D * CELL)))
    assert running_time(descent, 0.1) == pytest.approx(7 * (ANSWER + N * (SLOPE + D * NONZERO / 10)))
    three = dp.Problem(dp.Softmax(), dp.L2Ball(10.0), bounds=dp.Bounds(1.0), d=D, outputs=3)
    softmax = planned(dp.NoisyGradientDescent(n_iter=7), problem=three)
    assert running_time(softmax) == pytest.approx(7 * (ANSWER + 3 * N * (SLOPE + D * CELL)))


def test_second_moments_take_every_pair_of_features():
    squared = dp.Problem(dp.Squared(), dp.L2Ball(3.0), bounds=dp.Bounds(1.0, 1.0), d=1000)
    moments = planned(SufficientStatistics(), problem=squared)
    assert running_time(moments) > N * 1000 * 1001 / 2 * CELL


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.7, "under a second"),
        (1.2, "about 1 second"),
        (24, "about 20 seconds"),
        (170, "about 3 minutes"),
        (7000, "about 2 hours"),
        (1.2 * DAY, "about 1 day"),
        (3e11, "about 10,000 years"),
    ],
)
def test_seconds_in_words(seconds, words):
    assert in_words(planned(dp.NoisyGradientDescent(n_iter=7)), seconds) == words
    at_most = words if seconds < 1 else f"at most {words}"
    assert in_words(planned(dp.ObjectivePerturbation()), seconds) == at_most


def test_table_words_and_record_say_it_and_know_the_density():
    wide = dp.Problem(dp.Logistic(), dp.L2Ball(10.0), bounds=dp.Bounds(1.0, 1.0), d=400)
    dense = planned(dp.NoisyGradientDescent(n_iter=2000), 10**6, wide)
    sparse = with_all(dense, density=0.001)
    for plan, time in ((dense, "about 4 minutes"), (sparse, "about 2 minutes")):
        assert f"  time       {time} on one core of an ordinary machine\n" in str(plan)
        assert f"this takes {time} on one core" in plan.explain()
    (row,) = (each for each in plan_record(sparse)["candidates"] if each["chosen"])
    assert row["seconds"] == running_time(dense, 0.001) != running_time(dense)
    alone = dp.NoisyGradientDescent(n_iter=2000).plan(wide, 10**6, BUDGET, dp.Tight())
    assert "about 4 minutes on one core" in str(alone)


def records(n, d=3):
    X = np.random.default_rng(0).uniform(-1, 1, (n, d))
    return X, (X[:, 0] > 0).astype(int)


def model(**settings):
    return dp.PrivateLogisticRegression(epsilon=1.0, bounds=(-1, 1), classes=(0, 1), **settings)


@pytest.mark.parametrize("kind", [np.asarray, csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("where", ["n_iter", "solver"])
def test_an_absurd_number_of_iterations_warns_before_anything_is_charged(tmp_path, monkeypatch, kind, where):
    monkeypatch.delattr("dpcvx.estimators.linear_model.execute")  # rather than days of waiting
    ledger = dp.Ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    account = ledger.create("people", epsilon=2.0, delta=1e-4)
    settings = {"n_iter": 10**9} if where == "n_iter" else {"solver": dp.NoisyGradientDescent(n_iter=10**9)}
    X, y = records(100)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", dp.UselessModelWarning)
        with pytest.raises(UserWarning, match=r"With n_iter=1,000,000,000 the fit takes about 2 days"):
            model(ledger=ledger, account="people", **settings).fit(kind(X), y)
    assert not account.history()


def test_the_warning_names_the_line_that_asked_and_others_are_not_warned(monkeypatch):
    monkeypatch.setattr("dpcvx.plans.running_time.DAY", 0.0)  # any fit takes longer
    X, y = records(20_000)
    with pytest.warns(UserWarning, match="n_iter=3 the fit") as caught:
        model(n_iter=3).fit(X, y)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model().fit(X, y)  # chosen from public numbers: whoever has many records knows
        monkeypatch.undo()
        model(n_iter=3).fit(X, y)


def test_the_command_line_shows_it_and_keeps_quiet_when_asked(tmp_path, monkeypatch, capsys):
    from dpcvx.cli import main

    def run(line):
        monkeypatch.setattr("sys.argv", ["dpcvx", *line.split()])
        with pytest.raises(SystemExit) as stop:
            main()
        assert stop.value.code == 0
        return capsys.readouterr()

    plan = (
        "plan --n 100 --features 3 --model logistic --epsilon 1 --solver gradient_descent --n-iter 1000000000"
    )
    assert "about 2 days on one core" in run(plan).out
    assert json.loads(run(f"{plan} --json").out)["plan"]["candidates"][0]["seconds"] > DAY
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dpcvx.plans.running_time.DAY", 0.0)
    (tmp_path / "t.csv").write_text("\n".join(["x,y", *(f"{i % 7},{i % 2}" for i in range(5000))]))
    (tmp_path / "b.toml").write_text("[bounds]\nx = [0, 6]\n[target]\nclasses = [0, 1]\n")
    fit = "fit t.csv --target y --model logistic --epsilon 1 --bounds b.toml --out m.json --n-iter 3"
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        assert run(fit).err.startswith("dpcvx: With n_iter=3 the fit takes")
        assert run(f"{fit} --quiet").err == ""
