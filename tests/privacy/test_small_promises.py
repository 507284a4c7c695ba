"""Promises that faults were planted against and that no other quick test held."""

import asyncio
import math
import time
import warnings
from decimal import Decimal

import numpy as np
import pytest

import dpcvx as dp
import dpcvx.noise.gaussian
from dpcvx.accounting import Budget, Tight
from dpcvx.data.canonical import UNKNOWN, canonical, read_numbers
from dpcvx.data.exposure import read_exposure
from dpcvx.data.levels import DeclaredLevels
from dpcvx.data.units import choose_rows, content_ranks
from dpcvx.errors import AccountNotOpen, Incompatible
from dpcvx.events import Gaussian
from dpcvx.mechanisms import NoisyGradient
from dpcvx.noise import SeededGenerator, laplace_failure
from dpcvx.noise.laplace import MAX_LAPLACE_SCALE
from dpcvx.plans import Oracle, Plan, Price, Stage
from dpcvx.problem import Bounds, Problem
from dpcvx.queries.comparison_runs import ComparisonRuns, RunState
from dpcvx.service.application import ServiceState
from dpcvx.solvers import NoisyGradientDescent
from dpcvx.tuning import tune
from dpcvx.tuning.metrics import Accuracy


@pytest.mark.parametrize("scale", [2**50, MAX_LAPLACE_SCALE])
def test_the_failure_of_laplace_noise_is_at_least_the_chance_beyond_the_cut(scale):
    """P(|K| >= 2^62) of P(k) proportional to exp(-|k|/scale), in logarithms."""
    exact = math.log(2) - 2.0**62 / scale - math.log1p(math.exp(-1 / scale))
    allowed = laplace_failure(scale)
    assert (math.log(allowed) if allowed else -math.inf) >= exact * (1 + 1e-12) or exact < -700


@pytest.mark.parametrize(("cost", "fits"), [(0.999, True), (1.001, False), (1.5, False)])
def test_a_release_that_costs_more_than_its_budget_is_refused(cost, fits):
    budget = Budget(1.0, 1e-6)
    noise = dp.accounting.calibrate(Gaussian, Budget(cost, 0.999e-6), Tight())
    price = Price(Gaussian(noise), (), 0.0, budget)
    if fits:
        price.check_budget()
    else:
        with pytest.raises(Incompatible, match="more than its budget"):
            price.check_budget()


def test_rows_keep_the_bounds_of_the_question_that_is_asked(monkeypatch):
    """A second stage for shorter rows: its sums are those of rows within its own bounds."""
    silent = lambda scale, size, rng: np.zeros(size, dtype=np.int64)  # noqa: E731
    monkeypatch.setattr(dpcvx.noise.gaussian, "lattice_gaussian", silent)
    wide, narrow = (Problem(dp.Huber(1.0), dp.L2Ball(1.0), bounds=Bounds(b, b), d=2) for b in (1.0, 0.25))
    n, theta = 4, np.zeros(2)
    stages = tuple(Stage(NoisyGradient(problem, n, 1.0), 1) for problem in (wide, narrow))
    plan = Plan(stages, wide, n, NoisyGradientDescent(2), Budget(9.0, 1e-6), Tight())
    data = dp.source([[1.0, 0.0]] * n, np.ones(n), bounds=wide.bounds)
    oracle = Oracle(plan, data, SeededGenerator(0))
    lengths = [float(np.linalg.norm(oracle.gradient(theta))) for _ in stages]
    assert lengths == pytest.approx([1.0, 0.25], rel=1e-3)


def test_the_rows_that_are_kept_of_a_person_do_not_depend_on_the_order_of_rows():
    rng = np.random.default_rng(0)
    rows, y = rng.integers(-100, 100, (12, 2)).astype(np.int16), rng.normal(size=(12, 1))
    owners = np.repeat([0, 1, 2], 4)

    def kept(order):
        ranks = content_ranks(dp.data.Dense(np.ascontiguousarray(rows[order])), y[order])
        places = choose_rows(owners[order], ranks, 2)
        return sorted(rows[order][places].tolist())

    first = kept(np.arange(12))
    assert all(kept(rng.permutation(12)) == first for _ in range(5))


class Side:
    """A private side whose comparison has a known result."""

    def __init__(self, above):
        self._above = above

    def above(self, run, checked, level):
        return self._above


class Kept:
    """A transcript that remembers the states that it is given."""

    def __init__(self):
        self.states = []

    def keep_run(self, before, after):
        self.states.append(after)

    def append(self, *entry, run=None, record=None):
        pass


class Checked:
    class query:  # noqa: N801
        class description:  # noqa: N801
            @staticmethod
            def to_json():
                return {"kind": "count"}


class EnginePlan:
    level = 0.0


def test_a_kept_comparison_is_as_long_above_as_below():
    lengths = []
    for above in (True, False):
        kept = Kept()
        runs = ComparisonRuns(EnginePlan(), Side(above), kept)
        runs._open, runs._state = object(), RunState(0, 123)
        runs.above(Checked(), 0, None)
        state = kept.states[0] if above else runs.unkept[1]
        lengths.append(len(state))
    assert lengths[0] == lengths[1]


def test_answers_and_refusals_leave_at_whole_slots():
    state = ServiceState(None, 0.02)

    async def waited(work, least):
        started = asyncio.get_running_loop().time()
        time.sleep(work)
        await state.next_slot(started, least)
        return asyncio.get_running_loop().time() - started

    try:
        assert asyncio.run(waited(0.0, 1)) >= 0.0199
        assert asyncio.run(waited(0.025, 1)) >= 0.0399
        assert asyncio.run(waited(0.0, 4)) >= 0.0799
    finally:
        state.close()


class Stubborn(Decimal):
    """A number whose conversion raises what it likes."""

    error: Exception

    def __float__(self):
        raise self.error


@pytest.mark.parametrize("error", [ValueError("a"), RuntimeError("b"), KeyError("c")])
def test_no_cell_raises_what_its_methods_raise(error):
    cell = Stubborn(1)
    cell.error = error
    assert canonical(cell) is UNKNOWN
    assert canonical(Decimal("sNaN")) is UNKNOWN
    cells = np.array([cell, 1.0], dtype=object)
    assert np.isnan(read_numbers(cells)).tolist() == [True, False]


class Chatty(Decimal):
    """A number that warns when it is read."""

    def __float__(self):
        warnings.warn("a cell", UserWarning, stacklevel=1)
        return 2.0


def test_no_cell_warns():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        read_numbers(np.array([Chatty(2), 1.0], dtype=object))
        DeclaredLevels(("1", "2")).codes(np.array([Chatty(2), "1"], dtype=object))
    assert not caught


def test_no_exposure_causes_a_floating_point_error():
    with np.errstate(all="raise"):
        found = read_exposure(np.array([5e-324, 1e308, np.inf, np.nan, -1e308, 0.0, 1.0]), 1e300)
    assert found.known.tolist() == [True, True, True, False, False, False, True]


TINY = dp.Schema((dp.Attribute("a", ("0", "1"), "1"), dp.Binned("v", (0, 2, 6, 10), "none")))


def test_a_restart_releases_no_means_again_and_a_frozen_account_gives_no_synthetic_records(tmp_path):
    rng, path = np.random.default_rng(0), str(tmp_path / "l.db")
    table = {"a": rng.choice(["0", "1"], 4000), "v": rng.uniform(0, 10, 4000)}
    account = dp.Ledger(path).create("people", epsilon=2.0, delta=1e-6)

    def start():
        budget = dp.Budget(2.0, 1e-6)
        return dp.QueryEngine(TINY, table, budget, ledger=path, account="people", method="warm", check=0)

    first, again = start(), start()
    assert first.schema["v"].values is not None
    assert again.schema == first.schema
    assert len(again.synthetic(5)["a"]) == 5
    account.freeze(reason="an audit")
    with pytest.raises(AccountNotOpen, match="frozen"):
        again.synthetic(5)


ROWS = np.random.default_rng(1).uniform(-1, 1, (200, 2))
LABELS = (ROWS[:, 0] > 0).astype(int)


def search(**settings):
    model = dp.PrivateLogisticRegression(epsilon=1.0, bounds=(-1, 1), classes=(0, 1), n_iter=2, check=0)
    return dp.private_tune(model, {"l2": [0.0, 0.1]}, ROWS, LABELS, n_trials=3.0, random_state=2, **settings)


def test_a_fit_of_a_search_that_is_not_the_paid_one_is_not_released(monkeypatch):
    fit = tune.fit_silently
    monkeypatch.setattr(tune, "fit_silently", lambda model, *train: fit(model.set_params(n_iter=3), *train))
    with pytest.raises(RuntimeError, match="nothing is released"):
        search()


def test_warnings_do_not_tell_how_many_fits_a_search_made(monkeypatch):
    fit = tune.fit_silently

    def warn_and_fit(model, *train):
        warnings.warn("one of many", UserWarning, stacklevel=1)
        fit(model, *train)

    monkeypatch.setattr(tune, "fit_silently", warn_and_fit)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        search()
    assert not [each for each in caught if "one of many" in str(each.message)]


def test_a_noisy_score_is_published_within_its_range(monkeypatch):
    monkeypatch.setattr(Accuracy, "value", lambda self, totals, n: 1.7)
    monkeypatch.setattr(Accuracy, "hides", lambda self, interval: False)  # a score of few rows
    assert search().score == 1.0
