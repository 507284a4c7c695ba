"""The engine's check of its table: noisy counts of recognised cells, their price, and what they show."""

import itertools
import math
import re
import warnings

import numpy as np
import pyarrow as pa
import pytest

import dpcvx as dp
from dpcvx.accounting import Tight, spendable
from dpcvx.errors import BudgetExceeded, Incompatible, UnrecognisedDataWarning, WrongValue
from dpcvx.events import Gaussian, count_leaves
from dpcvx.noise import SeededGenerator
from dpcvx.queries import Universe
from dpcvx.queries.budget_split import BIN_MEANS, METHODS, BudgetSplit, split_budget
from dpcvx.queries.table_check import counts_of
from dpcvx.service.start import _check, _engine

SCHEMA = dp.Schema(
    (
        dp.Attribute("sex", ("f", "m"), "m"),
        dp.Attribute("town", ("a", "b", "c"), "c"),
        dp.Binned("age", (0, 30, 60, 90), 45),
    )
)
UNIVERSE = Universe(SCHEMA)
N = 5000
BUDGET = dp.Budget(1.0, 1e-6)
HOSTILE = [math.nan, math.inf, "abc", None, b"\xff", "", 10**400, object()]
# Splits of BUDGET for 100 queries before there was a check.
WITHOUT = {
    "composition": BudgetSplit("composition", oracle=42.24884197297771, updates=100),
    "histogram": BudgetSplit("histogram", 4.22488419729777),
    "multiplicative_weights": BudgetSplit(
        "multiplicative_weights", run=0.01567849648270628, oracle=63.781626070013886, updates=100
    ),
    "warm": BudgetSplit("warm", 4.22488419729777),
    "offline": BudgetSplit(
        "offline", 5.0620222079621975, selection=0.04938737716455846, oracle=40.49617766369758, updates=8
    ),
}


def people(n=N, **changed):
    rng = np.random.default_rng(0)
    table = {
        "sex": rng.choice(["f", "m"], n),
        "town": rng.choice(["a", "b", "c"], n),
        "age": rng.uniform(0, 90, n),
    }
    return {**table, **changed}


def start(table, **settings):
    given = {"method": "composition", "n_queries": 20, "rng": SeededGenerator(1), **settings}
    return dp.QueryEngine(SCHEMA, table, BUDGET, **given)


def test_no_two_records_are_further_apart_than_the_sensitivity_and_some_are_as_far():
    seen = []
    for row in itertools.product(
        ["f", "m", "x", *HOSTILE], ["a", "c", "F", *HOSTILE], [17, "17", -1e9, *HOSTILE]
    ):
        columns = {}
        for name, cell in zip(SCHEMA.names, row, strict=True):
            columns[name] = np.empty(1, dtype=object)
            columns[name][0] = cell
        seen.append(tuple(UNIVERSE.read(columns).recognised.tolist()))
    seen = np.array(sorted(set(seen)))
    assert set(seen.ravel()) == {0, 1}
    furthest = max(np.linalg.norm(a - b) for a in seen for b in seen)
    sensitivity = counts_of(UNIVERSE, N, 1.0).sensitivity
    assert furthest == pytest.approx(math.sqrt(5))  # one number, two columns of levels
    assert furthest <= sensitivity <= furthest * (1 + 1e-5)


def totals(recognised):
    """Recognised cells of age, sex and town."""
    return [int(part.sum()) for part in np.split(recognised, [1, 3])]


def test_neighbouring_tables_have_counts_within_the_sensitivity_for_every_reader():
    table = {name: list(column[:50]) for name, column in people().items()}
    other = {name: [bad, *column[1:]] for (name, column), bad in zip(table.items(), "xyz", strict=True)}
    readers = (dict, pa.table, lambda cells: {name: np.array(column) for name, column in cells.items()})
    wholes = [UNIVERSE.read(reader(table)).recognised for reader in readers]
    moved = [
        UNIVERSE.read(reader({**other, "age": [math.nan, *table["age"][1:]]})).recognised
        for reader in readers
    ]
    for whole, fewer in zip(wholes, moved, strict=True):
        assert totals(whole) == [50, 50, 50]
        assert totals(fewer) == [49, 49, 49]
    assert totals(UNIVERSE.read(other).recognised) == [49, 49, 49]


def test_a_count_is_of_declared_levels_and_finite_numbers():
    cells = {"sex": ["f", "F", "m ", None], "town": ["a", "b", "d", "c"], "age": ["31", 500, math.inf, "old"]}
    assert UNIVERSE.read(cells).recognised.tolist() == [2, 1, 1, 1, 1, 1]  # age; f, m; a, b, c


def test_the_released_counts_are_a_test_vector():
    """sqrt(5), rounded up on the grid of 2^-20, times the noise multiplier; noise of a seeded generator."""
    mechanism = counts_of(UNIVERSE, N, 40.0)
    assert mechanism.noise == pytest.approx(40 * math.sqrt(5), rel=1e-6)
    assert mechanism.event == Gaussian(40.0)
    released = mechanism.add_noise(np.array([5000, 4000, 0, 9, 9, 9]), SeededGenerator(0))
    assert released[:3].tolist() == [4842.754707336426, 3955.3369464874268, -73.20344734191895]
    with pytest.raises(Incompatible, match="not those that were planned"):
        mechanism.add_noise(np.array([5000, 4000]), SeededGenerator(0))


@pytest.mark.parametrize("method", WITHOUT)
def test_without_a_check_the_split_is_as_before(method):
    split = split_budget(method, UNIVERSE, N, 100, BUDGET)
    assert split == WITHOUT[method]
    assert split == split_budget(method, UNIVERSE, N, 100, BUDGET, check=0)


@pytest.mark.parametrize("method", WITHOUT)
def test_the_check_is_paid_by_all_other_parts_within_the_budget(method):
    split = split_budget(method, UNIVERSE, N, 100, BUDGET, check=0.01)
    assert count_leaves(split.event)[Gaussian(split.counts)] >= 1
    assert Tight().epsilon(split.event, spendable(BUDGET).delta) <= BUDGET.epsilon
    before = WITHOUT[method]
    for name in ("start", "oracle"):
        if getattr(before, name):
            assert 1.004 < getattr(split, name) / getattr(before, name) < 1.007
    questions = [part["question"] for part in split.parts("start")]
    assert questions.count("NoisyCounts") == 1


@pytest.mark.parametrize(
    "method",
    [
        "composition",
        *(pytest.param(name, marks=pytest.mark.long) for name in WITHOUT if name != "composition"),
    ],
)
def test_an_engine_of_every_method_releases_the_counts_it_paid_for(method):
    engine = start(people(), method=method)
    assert engine.data_check.noise == counts_of(UNIVERSE, N, engine.budget_split.counts).noise
    assert not engine.data_check.findings
    assert engine.price.epsilon <= BUDGET.epsilon
    stated = engine.statement().to_dict()
    assert [part["question"] for part in stated["mechanisms"]].count("NoisyCounts") == 1
    assert "no column, level or class looks wrong" in stated["bounds"]["check"]


def test_every_method_is_here_but_the_one_for_very_many_cells():
    assert {*WITHOUT, "chosen_pairs"} == set(METHODS)


def test_a_misspelt_level_and_a_wrong_column_are_found():
    table = people()
    table["sex"] = np.where(table["sex"] == "f", "F", "m")
    with pytest.warns(
        UnrecognisedDataWarning, match=r"sex: only \d+ % \+- \d+ % of the cells are recog"
    ) as caught:
        engine = start(table)
    assert caught[0].filename == __file__
    assert "town" not in str(caught[0].message)
    assert "sex: only" in engine.statement().to_dict()["bounds"]["check"]
    wrong = people(age=table["town"])
    with pytest.warns(UnrecognisedDataWarning, match="age: almost none of the cells is recognised"):
        start(wrong)


def test_a_misspelt_level_of_few_people_is_named():
    table = people(20_000)
    town = np.where(np.random.default_rng(1).random(20_000) < 0.1, "c", np.array(table["town"]))
    small = {**table, "town": np.where(town == "c", "b", "a")}
    small["town"][:1500] = "C"
    with pytest.warns(UnrecognisedDataWarning, match="town: no people are visible at 'c'"):
        engine = start(small)
    assert engine.data_check.columns[1].levels == ("a", "b", "c")


def test_a_clean_table_is_not_warned_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [column.name for column in start(people()).data_check.columns] == list(SCHEMA.names)


def test_few_records_have_no_check_and_that_is_said():
    engine = start(people(300))
    assert engine.data_check is None
    assert engine.budget_split.counts == 0
    assert "not below 0.05 of 300 records" in engine.check_summary
    assert engine.statement().to_dict()["bounds"]["check"] == engine.check_summary


def test_no_check_is_asked_for():
    engine = start(people(sex=["?"] * N), check=0)
    assert (engine.data_check, engine.check_summary) == (None, "no check of the data: check=0")
    assert engine.budget_split == split_budget("composition", UNIVERSE, N, 20, BUDGET, bin_means=BIN_MEANS)


@pytest.mark.parametrize("check", [-0.1, 1, math.nan, "0.01", True, None])
def test_other_shares_are_refused(check):
    with pytest.raises(WrongValue, match="check must be 0, or a share"):
        start(people(10), check=check)


class TestLedger:
    @pytest.fixture
    def ledger(self, tmp_path):
        ledger = dp.Ledger(tmp_path / "ledger.db")
        ledger.create("people", epsilon=1.0, delta=1e-6)
        return ledger

    @staticmethod
    def start(ledger, table, **settings):
        given = {"method": "composition", "n_queries": 20, "ledger": ledger, "account": "people", **settings}
        return dp.QueryEngine(SCHEMA, table, BUDGET, **given)

    def test_a_new_start_has_the_same_findings_without_a_second_release(self, ledger, monkeypatch):
        table = people(town=["?"] * N)
        with pytest.warns(UnrecognisedDataWarning, match="town: almost none"):
            first = self.start(ledger, table)
        monkeypatch.setattr("dpcvx.queries.private_side.PrivateSide.count", lambda *_: pytest.fail("again"))
        with pytest.warns(UnrecognisedDataWarning, match="town: almost none"):
            second = self.start(ledger, table)
        assert first.data_check == second.data_check
        assert len(ledger.account("people").history()) == 1
        ledger.verify()

    def test_counts_are_released_once_if_a_start_was_interrupted_before_them(self, ledger, monkeypatch):
        monkeypatch.setattr("dpcvx.queries.private_side.PrivateSide.count", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            self.start(ledger, people())
        monkeypatch.undo()
        kept = self.start(ledger, people()).data_check
        assert kept is not None
        assert self.start(ledger, people()).data_check == kept

    def test_an_engine_that_was_paid_for_without_a_check_stays_without(self, ledger, monkeypatch):
        """As one of version 0.1: its split has no counts, and its facts no share."""
        monkeypatch.setattr("dpcvx.queries.budget_split.objection_to_check", lambda *_: "none")
        first = self.start(ledger, people())
        monkeypatch.undo()
        second = self.start(ledger, people())
        assert second.budget_split == first.budget_split
        assert (second.data_check, second.budget_split.counts) == (None, 0)
        assert second.check_summary == "no check of the data: the engine was paid for without one"
        assert np.array_equal(second.histogram.weights, first.histogram.weights)

    def test_another_share_is_another_engine(self, ledger):
        self.start(ledger, people())
        with pytest.raises(BudgetExceeded, match=r"share of the check of the data \(the usual, now 0\.05\)"):
            self.start(ledger, people(), check=0.05)

    def test_the_console_of_the_service_shows_the_findings(self, ledger):
        table = pa.table(people(town=["?"] * N))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            engine = _engine(SCHEMA, table, ledger.account("people"), BUDGET, 0.01)
        said = _check(engine)
        assert said.startswith("warning: The check of the data found: town: almost none")
        assert "  ! town: almost none of the cells is recognised" in said

    def test_the_console_of_the_service_says_that_nothing_looks_wrong(self, ledger):
        engine = _engine(SCHEMA, pa.table(people()), ledger.account("people"), BUDGET, 0.01)
        assert _check(engine).endswith("no column, level or class looks wrong")

    def test_the_console_of_the_service_says_why_nothing_is_checked(self, ledger):
        engine = _engine(SCHEMA, pa.table(people(300)), ledger.account("people"), BUDGET, 0.01)
        assert re.search(r"; (--check 0\.0?\d|more records or a larger epsilon) would do$", _check(engine))
