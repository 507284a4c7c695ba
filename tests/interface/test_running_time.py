"""How long a fit takes is said before it starts: from public sizes, roughly, in words."""

import json

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.accounting import Tight
from dpcvx.data.dataset import InMemory
from dpcvx.estimators.linear_model import declare_fit
from dpcvx.planning.candidates import list_all
from dpcvx.plans.stage import ANSWER, CELL, LAZY, NONZERO, SLOPE, running_time, time_in_words
from dpcvx.solvers import NoisyGradientDescent, ObjectivePerturbation, SufficientStatistics
from dpcvx.words import DAY

BUDGET = dp.Budget(1.0, 1e-8)
N, D = 3000, 40
PROBLEM = dp.Problem(dp.Logistic(), dp.L2Ball(10.0), bounds=dp.Bounds(1.0), d=D)


def planned(solver, n=N, problem=PROBLEM):
    return dp.plan(problem, n, BUDGET, (solver,))


def test_the_estimate_counts_answers_slopes_and_the_cells_that_are_stored():
    descent = planned(NoisyGradientDescent(n_iter=7))
    assert running_time(descent.stages, descent.problem) == pytest.approx(
        7 * (ANSWER + N * (SLOPE + D * CELL))
    )
    assert running_time(descent.stages, descent.problem, 0.1) == pytest.approx(
        7 * (ANSWER + N * (SLOPE + D * NONZERO / 10))
    )
    three = dp.Problem(dp.Softmax(), dp.L2Ball(10.0), bounds=dp.Bounds(1.0), d=D, outputs=3)
    softmax = planned(NoisyGradientDescent(n_iter=7), problem=three)
    assert running_time(softmax.stages, softmax.problem) == pytest.approx(
        7 * (ANSWER + 3 * N * (SLOPE + D * CELL))
    )


def test_second_moments_take_every_pair_of_features():
    squared = dp.Problem(dp.Squared(), dp.L2Ball(3.0), bounds=dp.Bounds(1.0, 1.0), d=1000)
    moments = planned(SufficientStatistics(), problem=squared)
    assert running_time(moments.stages, moments.problem) > N * 1000 * 1001 / 2 * CELL


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
    assert time_in_words(planned(NoisyGradientDescent(n_iter=7)).stages, seconds) == words
    at_most = words if seconds < 1 else f"at most {words}"
    assert time_in_words(planned(ObjectivePerturbation()).stages, seconds) == at_most


def test_table_words_and_record_say_it_and_know_the_density():
    wide = dp.Problem(dp.Logistic(), dp.L2Ball(10.0), bounds=dp.Bounds(1.0, 1.0), d=400)
    dense = planned(NoisyGradientDescent(n_iter=2000), 10**6, wide)
    sparse = list_all(dense, density=0.001)
    for plan, time in ((dense, "about 4 minutes"), (sparse, "about 2 minutes")):
        assert f"  time       {time} on one core of an ordinary machine\n" in str(plan)
        assert f"this takes {time} on one core" in plan.explain()
    (row,) = (each for each in sparse.to_plain()["candidates"] if each["chosen"])
    assert row["seconds"] == running_time(dense.stages, dense.problem, 0.001) != dense.seconds
    alone = NoisyGradientDescent(n_iter=2000).plan(wide, 10**6, BUDGET, Tight())
    assert "about 4 minutes on one core" in str(alone)


def test_the_command_line_shows_it(monkeypatch, capsys):
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


def test_fits_of_compressed_records_are_told_for_usual_rows_and_not_for_full_ones():
    from scipy.sparse import random_array

    X = random_array((500, 5000), density=0.01, rng=np.random.default_rng(0), format="csr")
    y = np.where(np.arange(500) % 2, 1, -1)
    settings = {"epsilon": 1.0, "bounds": (0, 1), "data_norm": 1.0, "classes": (-1, 1), "check": 0}
    told = {}
    for solver, domain in (("frank_wolfe", "l1"), ("gradient_descent", "l2")):
        model = dp.PrivateLogisticRegression(**settings, solver=solver, domain=domain, n_iter=100)
        for kind, rows in (("sparse", X), ("dense", X.toarray())):
            told[solver, kind] = declare_fit(model, InMemory(rows, y), 500).plan.seconds
    assert told["frank_wolfe", "sparse"] == pytest.approx(100 * LAZY)  # measured: 0.07 to 0.18 ms a step
    assert told["gradient_descent", "sparse"] < told["gradient_descent", "dense"]
