"""The engine asks no more than it paid for, and nothing leaves it that depends on a record without noise."""

import json
import math
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy import stats

from dpcvx.accounting import Budget, Tight, spendable
from dpcvx.data import GradientSum
from dpcvx.data.lattice import ResidualBound
from dpcvx.data.memory import Arrays
from dpcvx.data.quantise import Quantiser, targets
from dpcvx.data.rows import Dense
from dpcvx.errors import BudgetExceeded, Incompatible, WrongValue
from dpcvx.events import Exponential, Gaussian, PureDP, count_leaves
from dpcvx.ledger import Ledger
from dpcvx.noise import SeededGenerator, exponential
from dpcvx.plans import Solver
from dpcvx.queries import (
    Answer,
    Attribute,
    Binned,
    Count,
    Counts,
    Marginal,
    Mean,
    QueryEngine,
    Regression,
    Schema,
    Universe,
)
from dpcvx.queries.budget_split import METHODS, BudgetSplit, choose_method, split_budget
from dpcvx.queries.compiled import TOLERANCE
from dpcvx.queries.measuring import Measurer
from dpcvx.queries.mechanisms import NoisyErrors, NoisyHistogram, NoisyMeans, PublicAnswer, WorstQuery
from dpcvx.queries.private_side import CellRows, PrivateSide
from dpcvx.solvers import NoisyFrankWolfe, NoisyGradientDescent, NoisySVRG, OutputPerturbation
from zoo import CountingGenerator

SCHEMA = Schema(
    (
        Attribute("a", ("0", "1"), "1"),
        Attribute("b", ("0", "1"), "1"),
        Attribute("c", ("0", "1", "2"), "2"),
        Binned("d", (0.0, 1.0, 3.0, 9.0), 2),
    )
)
UNIVERSE = Universe(SCHEMA)
N = 30
QUERIES = [
    Regression("a", ("b", "c", "d")),
    Regression("d", ("a",), loss="huber"),
    Count({"a": ["1"], "c": ["0", "2"]}),
    Mean("d"),
    Mean("d", {"a": ["1"]}),
    Marginal(("a", "c")),
]
LINEAR = [QUERIES[2], QUERIES[3], QUERIES[5]]


def table(n, seed, interaction=0.0):
    """Records whose third attribute often follows from the three others, which no three of them show."""
    rng = np.random.default_rng(seed)
    a, b, high = rng.integers(0, 2, (3, n))
    c = np.where(rng.random(n) < interaction, 2 * (a ^ b ^ high), rng.integers(0, 3, n))
    return {"a": a.astype(str), "b": b.astype(str), "c": c.astype(str), "d": np.where(high, 5.0, 0.5)}


WHOLE = Marginal(("a", "b", "c", "d"))


def neighbours(count, rng):
    """Pairs of data sets that differ in one record."""
    for _ in range(count):
        cells = rng.integers(0, UNIVERSE.n_cells, N) if rng.random() < 0.5 else np.full(N, rng.integers(36))
        other = cells.copy()
        other[rng.integers(N)] = rng.integers(UNIVERSE.n_cells)
        yield Counts(UNIVERSE, cells), Counts(UNIVERSE, other)


@pytest.fixture
def without_noise(monkeypatch):
    monkeypatch.setattr(
        "dpcvx.noise.gaussian.lattice_gaussian", lambda scale, size, rng: np.zeros(size, dtype=np.int64)
    )


@pytest.mark.parametrize("query", LINEAR, ids=repr)
def test_means_move_by_no_more_than_their_sensitivity(query, without_noise):
    mechanism = NoisyMeans(query.compile(SCHEMA, N), N, 2.0)
    changes = [
        float(np.linalg.norm(mechanism(one, None) - mechanism(other, None)))
        for one, other in neighbours(150, np.random.default_rng(0))
    ]
    assert 0.5 * mechanism.sensitivity < max(changes) <= mechanism.sensitivity * (1 + 1e-9)


def test_means_are_the_exact_ones_and_a_marginal_has_the_known_sensitivity(without_noise):
    question = Marginal(("a", "c")).compile(SCHEMA, N)
    mechanism = NoisyMeans(question, N, 2.0)
    assert mechanism.sensitivity == pytest.approx(math.sqrt(2) / N, rel=1e-6)
    counts = Counts.of(UNIVERSE, table(N, 0))
    exact = counts.marginal(question.attributes).ravel() / N
    assert mechanism(counts, None) == pytest.approx(exact, abs=1e-8)
    assert NoisyMeans(Mean("d").compile(SCHEMA, N), N, 2.0).sensitivity == pytest.approx(5.5 / N, rel=1e-6)


def test_histograms_move_by_two_counts(without_noise):
    mechanism = NoisyHistogram(UNIVERSE, N, 3.0)
    changes = [
        float(np.linalg.norm(mechanism(one, None) - mechanism(other, None)))
        for one, other in neighbours(40, np.random.default_rng(1))
    ]
    assert max(changes) == pytest.approx(mechanism.sensitivity)


def answers(queries, counts):
    rng = np.random.default_rng(3)
    made = []
    for query in queries:
        question = query.compile(SCHEMA, N)
        weights = rng.dirichlet(np.ones(math.prod(question.sizes)))
        made.append(PublicAnswer(question, question.answer(weights)))
    return tuple(made)


def test_scores_and_their_order_statistics_move_by_no_more_than_one(without_noise):
    family = answers(QUERIES, N)
    checks = [NoisyErrors(family, rank, 1.0) for rank in (1, 3, 6)]
    largest = 0.0
    for one, other in neighbours(60, np.random.default_rng(2)):
        for checked in family:
            change = abs(checked.score(one) - checked.score(other))
            assert change <= WorstQuery(family, N, 0.1).sensitivity
            largest = max(largest, change)
        for mechanism in checks:
            assert abs(mechanism(one, None) - mechanism(other, None)) <= mechanism.sensitivity
    assert largest > 0.5
    assert checks[0].sensitivity == pytest.approx(1 + 2 * TOLERANCE, abs=1e-6)


def test_an_order_statistic_is_the_one_that_was_asked_for(without_noise):
    family = answers(QUERIES, N)
    counts = Counts.of(UNIVERSE, table(N, 4))
    scores = sorted(checked.score(counts) for checked in family)
    assert [NoisyErrors(family, rank, 1.0)(counts, None) for rank in range(1, 7)] == pytest.approx(scores)


@pytest.mark.parametrize(
    "make",
    [
        lambda noise: NoisyMeans(Marginal(("a",)).compile(SCHEMA, N), N, noise),
        lambda noise: NoisyHistogram(UNIVERSE, N, noise),
        lambda noise: NoisyErrors(answers(QUERIES[2:3], N), 1, noise),
    ],
    ids=["means", "histogram", "errors"],
)
def test_noise_has_the_declared_deviation(make):
    mechanism, rng, counts = make(3.0), SeededGenerator(6), Counts.of(UNIVERSE, table(N, 5))
    assert mechanism.event == Gaussian(3.0)
    assert mechanism.noise == pytest.approx(3.0 * mechanism.sensitivity, rel=1e-6)
    sample = np.concatenate([np.atleast_1d(mechanism(counts, rng)) for _ in range(600)]).reshape(600, -1)
    spread = (sample - sample.mean(axis=0)).std() * math.sqrt(600 / 599)
    assert spread == pytest.approx(mechanism.noise, rel=4 / math.sqrt(2 * sample.size))


def test_selection_follows_the_exponential_mechanism():
    family = answers(QUERIES, N)
    counts = Counts.of(UNIVERSE, table(N, 7))
    scores = np.array([checked.score(counts) for checked in family])
    mechanism, rng = WorstQuery(family, N, 0.8), SeededGenerator(8)
    chances = np.exp(scores * 0.8 / (2 * mechanism.sensitivity))
    observed = np.bincount([mechanism(counts, rng) for _ in range(500)], minlength=6)
    assert stats.chisquare(observed, 500 * chances / chances.sum()).pvalue > 1e-4
    assert stats.chisquare(observed).pvalue < 1e-4  # not uniform


def test_rounding_of_a_selection_is_paid_out_of_its_range(monkeypatch):
    """Log-weights up to eta n / 2 are off by 2^-50 of that each: beyond 2^49 records nothing is left."""
    drawn = []
    monkeypatch.setattr(exponential, "select", lambda log_weights, rng: drawn.append(log_weights) or 0)
    family, counts = answers(QUERIES, N), Counts.of(UNIVERSE, table(N, 7))
    for n in (1, 2**45, 2**50):
        WorstQuery(family, n, 0.8)(counts, SeededGenerator(8))
    wide = 1 + 2 * TOLERANCE
    scores = np.array([checked.score(counts) for checked in family])
    left = 0.8 - 4 * 2.0**-50 * 0.8 * 2**45 / (2 * wide)
    for log_weights, eta in zip(drawn, (0.8, left, 0.0), strict=True):
        np.testing.assert_allclose(log_weights, scores * eta / (2 * wide), rtol=1e-12)


@pytest.mark.parametrize("loss", ["logistic", "squared", "huber", "smooth_hinge", "quantile"])
def test_sums_by_cells_are_the_sums_by_rows_to_the_last_bit(loss):
    question = Regression("a", ("b", "c", "d"), loss=loss).compile(SCHEMA, 500)
    counts = Counts.of(UNIVERSE, table(500, 9))
    cells = CellRows(question, counts)
    times = counts.marginal(question.attributes).ravel()
    bounds = question.problem.bounds
    stored = Quantiser(bounds).quantise(np.repeat(question.X, times, axis=0))
    rows = Arrays(Dense(stored.values), targets(np.repeat(question.y, times), bounds.y), bounds=bounds)
    rng = np.random.default_rng(10)
    assert cells.n == rows.n == 500
    for _ in range(5):
        theta = rng.normal(size=question.problem.d)
        bound = ResidualBound(2**20, 2**19)
        one, other = (
            source.sum(GradientSum(question.problem.loss, theta, bound)) for source in (cells, rows)
        )
        assert np.array_equal(one, other)
        assert one.any()


@pytest.mark.parametrize("method", [each for each in METHODS if each != "chosen_pairs"])
@pytest.mark.parametrize(("epsilon", "n"), [(0.1, 5000), (1.0, 50_000), (4.0, 250_000)])
def test_everything_that_may_be_asked_is_within_the_budget(method, epsilon, n):
    budget = Budget(epsilon, 1 / n**2)
    split = split_budget(method, UNIVERSE, n, 200, budget)
    spent = Tight().epsilon(split.event, spendable(budget).delta)
    assert 0.999 * epsilon < spent <= epsilon * (1 + 1e-9)


def test_the_automatic_choice_follows_public_sizes():
    small = Universe(Schema(SCHEMA.attributes[:2]))
    wide = Universe(Schema(tuple(Attribute(f"x{i}", (0, 1), 1) for i in range(16))))
    assert choose_method(small, 5000) == "histogram"
    assert choose_method(wide, 5000) == "warm"
    assert choose_method(wide, 10) == "composition"


def engine(n=8000, seed=0, epsilon=2.0, interaction=0.0, **rest):
    rest = {"method": "warm", "rng": SeededGenerator(seed), "n_queries": 100, **rest}
    return QueryEngine(SCHEMA, table(n, seed, interaction), Budget(epsilon, 1 / n**2), **rest)


@pytest.fixture(scope="module")
def plain():
    """An engine that nothing has been asked of."""
    return engine()


@pytest.fixture(scope="module")
def surprised():
    """An engine that has met a query which its first release says nothing about."""
    made = engine(n=60_000, epsilon=4.0, interaction=0.9)
    thresholds, start = [], made._private_side.start

    def listening(mechanism):
        run = start(mechanism)
        thresholds.append(run.threshold)
        return run

    made._private_side.start = listening
    replies = [made.ask(query) for query in (WHOLE, *QUERIES, WHOLE)]
    return made, replies, thresholds


def test_a_large_error_is_measured_anew_and_learned_from(surprised):
    made, replies, _ = surprised
    assert replies[0].branch == "oracle"
    assert replies[-1].branch == "histogram"
    assert made.n_updates == 1
    question = WHOLE.compile(SCHEMA, made.n)
    exact = Counts.of(UNIVERSE, table(60_000, 0, 0.9)).marginal(question.attributes).ravel()
    cells = slice(len(exact))  # margins follow
    assert np.abs(np.array(replies[0].estimates)[cells] - exact).max() <= replies[0].error_bound
    assert np.abs(np.array(replies[-1].estimates)[cells] - exact).max() < 0.01 * made.n


def test_each_run_has_a_threshold_of_its_own(surprised):
    _, _, thresholds = surprised
    assert thresholds[0] != thresholds[1]


def test_both_branches_answer_in_the_same_shape(surprised):
    _, replies, _ = surprised

    def shape(value):
        if isinstance(value, dict):
            return {name: shape(part) for name, part in value.items()}
        if value is None or isinstance(value, float):
            return "number if known"
        return [shape(part) for part in value] if isinstance(value, list) else type(value).__name__

    first, last = (json.loads(json.dumps(reply.to_json())) for reply in (replies[0], replies[-1]))
    assert first["branch"] != last["branch"]
    assert shape(first) == shape(last)
    for reply in replies:
        assert Answer.from_json(json.loads(json.dumps(reply.to_json()))) == reply


@pytest.mark.long
def test_updates_stop_at_the_plan_and_answers_go_on():
    made = engine(n=60_000, epsilon=4.0)
    made._private_side.above = lambda run, checked, level: True
    most = made.budget_split.updates
    replies = [made.ask(Count({"a": ["1"]})) for _ in range(most + 3)]
    assert [reply.branch for reply in replies[:most]] == ["oracle"] * most
    assert all(reply.branch == "histogram" and not reply.checked for reply in replies[most:])
    assert made.n_updates == made.budget_split.updates
    assert made.remaining == replies[-1].remaining == 0.0
    assert replies[0].remaining > replies[1].remaining > 0


@pytest.mark.long
def test_a_run_that_outlives_the_measurements_measures_nothing():
    made = engine()
    made._private_side.above = lambda run, checked, level: True
    made._public_side.updates = made.budget_split.updates
    reply = made.ask(Count({"a": ["1"]}))
    assert (reply.branch, reply.checked) == ("histogram", False)
    assert made.n_updates == made.budget_split.updates


def test_composition_refuses_when_its_queries_are_used_up():
    made = engine(method="composition", n_queries=2)
    for _ in range(2):
        assert made.ask(Count({"a": ["1"]})).branch == "oracle"
    with pytest.raises(BudgetExceeded):
        made.ask(Count({"a": ["1"]}))


def test_public_errors_come_before_anything_is_asked(plain, monkeypatch):
    made = plain
    monkeypatch.setattr(made, "_private_side", None)  # whoever looks at the records fails
    for query in (Regression("c", ("a",)), Count({"z": ["1"]}), Mean("c")):
        with pytest.raises(ValueError, match=r"schema|level"):
            made.ask(query)
    with pytest.raises(Incompatible, match="replace"):
        QueryEngine(SCHEMA, table(N, 0), Budget(1.0, 1e-6, "add_remove"))
    with pytest.raises(Incompatible, match="delta"):
        QueryEngine(SCHEMA, table(N, 0), Budget(1.0, 0.0))
    with pytest.raises(ValueError, match="method"):
        engine(method="best")
    with pytest.raises(ValueError, match="n_queries"):
        engine(n_queries=0)


def test_the_same_noise_on_a_neighbour_asks_the_same_questions():
    """All that the engine decides beside noised answers is public: words are drawn in the same order."""
    spent = []
    for cell in ("0", "1"):
        data = table(500, 3)
        data["a"][7], data["c"][7], data["d"][7] = (
            cell,
            "2" if cell == "1" else "0",
            8.5 if cell == "1" else 0.5,
        )
        rng = CountingGenerator(5)
        made = QueryEngine(SCHEMA, data, Budget(1.0, 1e-7), method="warm", n_queries=100, rng=rng)
        for query in QUERIES:
            made.ask(query)
        spent.append((rng.drawn, made.n_updates, made.budget_split))
    assert spent[0] == spent[1]


def test_a_seeded_engine_says_so_and_no_ledger_vouches_for_it(plain, tmp_path):
    made = plain
    assert not made.statement().private
    assert "NOT PRIVATE" in str(made.statement())
    assert not made.ask(Mean("d")).private
    Ledger(tmp_path / "l.db").create("people", epsilon=2.0, delta=1e-6)
    with pytest.raises(Incompatible, match="seed"):
        engine(ledger=tmp_path / "l.db", account="people")
    with pytest.raises(Incompatible, match="without"):
        engine(account="people")


class TestLedger:
    @pytest.fixture
    def place(self, tmp_path):
        path = tmp_path / "ledger.db"
        Ledger(path).create("people", epsilon=4.0, delta=1e-6)
        return path

    @staticmethod
    def start(path, data=None):
        data = table(8000, 0) if data is None else data
        return QueryEngine(
            SCHEMA, data, Budget(4.0, 1e-6), method="warm", n_queries=50, ledger=path, account="people"
        )

    def test_the_whole_plan_is_charged_before_a_record_is_read(self, place):
        class Unread(dict):
            def __getitem__(self, name):
                seen.append(len(Ledger(place).account("people").history()))
                return super().__getitem__(name)

        seen = []
        made = self.start(place, Unread(table(8000, 0)))
        assert seen
        assert set(seen) == {1}
        entry = Ledger(place).account("people").history()[0]
        assert "query engine" in entry.purpose
        assert Ledger(place).account("people").budget == made.budget

    def test_a_new_start_continues_without_paying_again(self, place):
        first = self.start(place)
        kept = first.ask(QUERIES[0], key="k1")
        second = self.start(place)
        assert len(Ledger(place).account("people").history()) == 1
        assert np.array_equal(first.histogram.weights, second.histogram.weights)
        assert second.ask(QUERIES[0], key="k1") == kept
        assert second._runs.begun == first._runs.begun == 1  # a kept answer is not compared again
        second.ask(QUERIES[0])
        assert second._runs.begun == 2  # an interrupted run counts; the new one is another
        with pytest.raises(Incompatible, match="another query"):
            second.ask(QUERIES[1], key="k1")

    @pytest.mark.long
    def test_a_new_start_keeps_the_plan_that_was_charged(self, place, monkeypatch):
        first = self.start(place)
        monkeypatch.setattr("dpcvx.queries.budget_split.NET", 0.4)  # as another version might
        assert self.start(place).budget_split == first.budget_split

    @pytest.mark.long
    def test_a_charge_without_a_note_is_continued(self, place, monkeypatch):
        monkeypatch.setattr("dpcvx.ledger.Account.store", lambda *arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            self.start(place)
        monkeypatch.undo()
        assert self.start(place).n_updates == 0
        assert len(Ledger(place).account("people").history()) == 1

    @pytest.mark.long
    def test_updates_are_replayed(self, place):
        first = self.start(place)
        first._private_side.above = lambda run, checked, level: True
        first.ask(QUERIES[0])
        first.ask(QUERIES[2])
        second = self.start(place)
        assert second.n_updates == 2
        assert np.array_equal(first.histogram.weights, second.histogram.weights)
        assert not np.array_equal(first.histogram.weights, first._public_side._base.weights)

    def test_a_start_without_a_question_uses_up_nothing(self, place):
        whole = self.start(place).remaining
        for _ in range(5):
            made = self.start(place)
            assert made.remaining == whole
            assert made.comparisons == (4, 4)
        assert made.ask(QUERIES[0]).checked
        assert made.comparisons == (4, 4)  # the open run goes on
        assert self.start(place).comparisons == (3, 4)  # and without a witness it is lost with the process

    def test_restarts_after_a_question_use_up_the_runs_and_no_more(self, place):
        left = []
        for _ in range(4):
            made = self.start(place)
            assert made.ask(QUERIES[0]).checked
            left.append(made.remaining)
        assert left == sorted(left, reverse=True)
        assert left[-1] > 0  # the open run may still find something to measure
        made = self.start(place)
        assert made.comparisons == (0, 4)
        assert made.remaining == 0.0  # measurements are paid for, but nothing leads to one
        assert not made.ask(QUERIES[0]).checked
        assert made._runs.begun == made.budget_split.updates

    def test_a_table_without_a_column_of_the_schema_is_refused_before_the_charge(self, place):
        there = table(8000, 0)
        there["A"] = there.pop("a")
        with pytest.raises(WrongValue, match=r"table lacks: 'a' \(the table has 'A'\)\. Correct the names"):
            QueryEngine(SCHEMA, there, Budget(4.0, 1e-6), n_queries=50, ledger=place, account="people")
        assert not Ledger(place).account("people").history()

    @pytest.mark.long
    def test_another_plan_is_another_charge(self, place):
        self.start(place)
        with pytest.raises(
            BudgetExceeded, match=r"another number of people \(8,000, now 8,001\)\. "
        ) as refused:
            QueryEngine(
                SCHEMA, table(8001, 0), Budget(4.0, 1e-6), n_queries=50, ledger=place, account="people"
            )
        assert "schema" not in refused.value.reason
        renamed = Schema((Attribute("a", ("0", "one"), "one"), *SCHEMA.attributes[1:]))
        with pytest.raises(
            BudgetExceeded,
            match=r"another schema \('a' declared otherwise\) and another method \(warm, now offline\)",
        ):
            QueryEngine(
                renamed,
                table(8000, 0),
                Budget(4.0, 1e-6),
                n_queries=50,
                method="offline",
                ledger=place,
                account="people",
            )


def test_the_statement_of_an_engine_speaks_of_answers(plain):
    meaning = replace(plain.statement(), private=True).meaning
    assert "draw from the answers is at most" in meaning
    assert "model" not in meaning


def test_the_error_of_a_measured_regression_is_for_all_records_on_average_and_has_no_bound():
    n, question = 200_000, Regression("a", ("b", "c", "d")).compile(SCHEMA, 200_000)
    oracle = Measurer(n, 5.0, 1e-8)
    plan = oracle.plan(question)
    worst = sum(plan.solver.bound(question.problem, n, oracle.budget))
    assert sum(plan.solver.predict(question.problem, n, oracle.budget)) < worst / 2
    gate = PrivateSide(Counts.of(UNIVERSE, table(n, 0)), SeededGenerator(0))
    measured = oracle.measure(question, gate)
    assert measured.error == pytest.approx(worst)
    assert measured.bound is None


def test_solvers_of_the_library_serve_as_oracle():
    made = engine(method="composition", n_queries=3, oracle=NoisyFrankWolfe(n_iter=5))
    assert made.statement().accountant == "RDP"  # selections are no Gaussian releases
    reply = made.ask(Regression("a", ("b",), domain="l1"))
    assert reply.branch == "oracle"
    with pytest.raises(ValueError, match="Gaussian releases or selections"):
        engine(method="composition", n_queries=3, oracle=NoisySVRG()).ask(Regression("a", ("b",), l2=0.1))
    with pytest.raises(Incompatible, match="running time of OutputPerturbation depends on the records"):
        engine(method="composition", n_queries=3, oracle=OutputPerturbation()).ask(
            Regression("a", ("b",), l2=0.1)
        )


@pytest.mark.parametrize("method", ["warm", "histogram", "offline"])
def test_what_is_asked_is_what_was_planned(method, monkeypatch):
    asked = []

    def listening(gate, mechanism):
        asked.append(mechanism.event)
        return mechanism(gate._counts, gate._rng)

    monkeypatch.setattr("dpcvx.queries.private_side.PrivateSide.ask", listening)
    made = engine(method=method)
    planned = count_leaves(made.budget_split.event)
    made.ask_many([Count({"a": ["1"]}), Mean("d")])
    asked += [PureDP(made.budget_split.run)] * made._runs.begun if made.budget_split.run else []
    assert asked
    assert all(count <= planned[event] for event, count in Counter(asked).items())
    listed = Counter()
    for part in made.statement().mechanisms:
        kind = {"Gaussian": Gaussian, "PureDP": PureDP, "Exponential": Exponential}[part["event"]]
        names = [name for name in ("noise_multiplier", "epsilon", "eta") if name in part]
        listed[kind(part[names[0]])] += part["count"]
    assert listed == planned


@dataclass(frozen=True)
class Greedy(Solver):
    """A solver that plans for more than it was given."""

    def plan(self, problem, n, budget, accountant):
        return NoisyGradientDescent(n_iter=3).plan(
            problem, n, Budget(2 * budget.epsilon, budget.delta), accountant
        )

    def predict(self, problem, n, budget):
        return 0.0, 0.0


def test_a_solver_that_takes_more_than_its_part_is_refused():
    with pytest.raises(Incompatible, match="more than the part"):
        engine(method="composition", n_queries=3, oracle=Greedy()).ask(Regression("a", ("b",)))


def test_the_statement_lists_every_part(plain):
    made = plain
    statement = made.statement()
    assert statement.epsilon == 2.0
    assert statement.certified_epsilon <= 2.0 * (1 + 1e-9)
    listed = {part["question"]: part for part in statement.to_dict()["mechanisms"]}
    assert listed["AboveThreshold"]["epsilon"] == made.budget_split.run
    assert listed["AboveThreshold"]["count"] == made.budget_split.updates
    assert PureDP(made.budget_split.run).epsilon == made.budget_split.run
    assert listed["NoisyMarginals"]["noise_multiplier"] == made.budget_split.start


@pytest.mark.long
def test_offline_selects_measures_and_answers_all():
    made = engine(n=30_000, epsilon=4.0, interaction=0.9, method="offline")
    family = [WHOLE, *QUERIES]
    replies = made.ask_many(family)
    assert len(replies) == len(family)
    assert made.n_updates == made.budget_split.updates
    question = family[0].compile(SCHEMA, made.n)
    exact = Counts.of(UNIVERSE, table(30_000, 0, 0.9)).marginal(question.attributes).ravel()
    cells = slice(len(exact))  # margins follow
    assert np.abs(np.array(replies[0].estimates)[cells] - exact).max() < 0.02 * made.n
    assert made.remaining == 0.0
    assert made.ask_many(family)[0].branch == "histogram"


@pytest.mark.long
def test_offline_learns_nothing_from_means_that_noise_explains():
    """Few records: measurements have more noise than the warm start has error."""
    made = engine(n=2_000, epsilon=1.0, interaction=0.0, method="offline")
    before = made.histogram.marginal(tuple(range(len(SCHEMA.names)))).copy()
    replies = made.ask_many(QUERIES)
    after = made.histogram.marginal(tuple(range(len(SCHEMA.names))))
    assert made.n_updates == made.budget_split.updates
    assert np.abs(after - before).sum() < 0.02
    # What changes nothing takes no interval away.
    assert any(each.interval_by == "prediction" for each in replies)


def test_a_plan_survives_to_the_last_bit():
    split = split_budget("warm", UNIVERSE, 8000, 50, Budget(4.0, 1e-6))
    assert BudgetSplit.from_json(split.to_json()) == split


def test_composition_has_no_histogram_to_draw_from(plain):
    with pytest.raises(Incompatible, match="histogram"):
        engine(method="composition").synthetic(3)
    assert len(plain.synthetic(3, SeededGenerator(0))["d"]) == 3
