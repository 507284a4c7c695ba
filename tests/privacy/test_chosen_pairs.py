"""Pairs of attributes that are chosen by the exponential mechanism and measured one by one."""

import itertools
import json
import math
import re
from collections import Counter

import numpy as np
import pytest

from dpcvx.accounting import Budget, Tight, spendable
from dpcvx.errors import Incompatible
from dpcvx.events import Exponential, Gaussian, count_leaves
from dpcvx.ledger import Ledger
from dpcvx.noise import SeededGenerator
from dpcvx.queries import (
    Attribute,
    Count,
    Counts,
    Marginal,
    NoisyMarginals,
    QueryEngine,
    Regression,
    Schema,
    Universe,
    chosen_pairs,
    objection_to_sizes,
)
from dpcvx.queries.budget_split import BudgetSplit, pairs_to_choose, split_budget
from dpcvx.queries.chosen_pairs import EACH, ChosenPairs, FarthestPair, estimate_pairs
from dpcvx.queries.measuring import MeasuredAnswer, zcdp
from dpcvx.queries.private_side import PrivateSide

D, N = 36, 1200
BUDGET = Budget(1.0, 1e-6)


def schema_of(sizes):
    return Schema(tuple(Attribute(f"a{j}", tuple(range(k)), 0) for j, k in enumerate(sizes)))


def records(n=N, d=D, seed=0):
    """Columns of which each odd one mostly repeats the one before."""
    rng = np.random.default_rng(seed)
    codes = (rng.random((d, n)) < rng.beta(3, 3, size=(d, 1))).astype(np.int16)
    codes[1::2] = codes[::2] ^ (rng.random((d // 2, n)) < 0.05)
    return codes


def table_of(codes):
    return {f"a{j}": column for j, column in enumerate(codes)}


def engine(codes=None, **options):
    codes = records() if codes is None else codes
    options = {"method": "chosen_pairs", "check": 0, "rng": SeededGenerator(3)} | options
    return QueryEngine(schema_of((2,) * len(codes)), table_of(codes), BUDGET, **options)


@pytest.fixture
def silent(monkeypatch):
    """Gaussian noise is 0; choices are as random as before."""
    monkeypatch.setattr(
        "dpcvx.noise.gaussian.lattice_gaussian", lambda scale, size, rng: np.zeros(size, dtype=np.int64)
    )


def counted(codes, sizes):
    return Counts(Universe(schema_of(sizes)), np.ravel_multi_index(codes, sizes))


def farthest(n, eta, estimates, costs=None, allowed=None):
    """The selection for estimates of all pairs, in their order."""
    k = len(estimates)
    costs = np.zeros(k) if costs is None else np.array(costs, dtype=float)
    allowed = np.ones(k, dtype=bool) if allowed is None else np.array(allowed)
    return FarthestPair(n, eta, np.concatenate([np.ravel(each) for each in estimates]), costs, allowed)


class TestSelection:
    def test_no_neighbour_moves_a_score_by_more_than_one_and_some_do(self):
        """All data sets of four records on 2 x 3 cells, and all that differ in one record."""
        sizes, n, rng = (2, 3), 4, np.random.default_rng(0)
        estimates = [rng.dirichlet(np.ones(6)).reshape(sizes) for _ in range(20)]
        estimates += [np.full(sizes, 1 / 6), np.eye(6)[0].reshape(sizes)]
        universe, largest = Universe(schema_of(sizes)), 0.0
        drawn = list(itertools.combinations_with_replacement(range(6), n))
        data = {each: Counts(universe, np.array(each)) for each in drawn}
        for estimate in estimates:
            mechanism = farthest(n, 1.0, [estimate])
            found = {each: float(mechanism.scores(counts)[0]) for each, counts in data.items()}
            for each, score in found.items():
                for other in range(6):
                    neighbour = tuple(sorted((*each[1:], other)))
                    largest = max(largest, abs(found[neighbour] - score))
                assert 0 <= score <= n + 6 * 2.0**-17
        assert largest == FarthestPair.sensitivity == 1.0

    def test_no_neighbour_moves_any_score_of_several_pairs_by_more_than_one(self):
        sizes, n, rng = (2, 3, 2, 4), 30, np.random.default_rng(1)
        codes = np.stack([rng.integers(k, size=n) for k in sizes])
        tables = [rng.dirichlet(np.ones(a * b)) for a, b in itertools.combinations(sizes, 2)]
        mechanism = farthest(n, 1.0, tables)
        before, changes = mechanism.scores(counted(codes, sizes)), []
        for record in itertools.product(*map(range, sizes)):
            other = codes.copy()
            other[:, 3] = record
            changes.append(np.abs(mechanism.scores(counted(other, sizes)) - before).max())
        assert 0.9 < max(changes) <= 1.0

    def test_scores_are_exact_multiples_of_a_lattice_step(self):
        counts = Counts(Universe(schema_of((2, 2))), np.repeat(range(4), (400, 100, 250, 250)))
        score = float(farthest(1000, 1.0, [[0.3, 0.2, 0.25, 0.25]]).scores(counts)[0])
        assert score * 2**17 == round(score * 2**17)
        assert score == pytest.approx(100.0, abs=1e-4)

    def test_known_answer(self):
        """(3, 1, 0, 4) against 2 in each cell: (1 + 1 + 2 + 2)/2."""
        counts = Counts(Universe(schema_of((2, 2))), np.repeat(range(4), (3, 1, 0, 4)))
        assert farthest(8, 1.0, [np.full(4, 0.25)]).scores(counts).tolist() == [3.0]

    def test_the_law_is_that_of_the_exponential_mechanism(self):
        """eta/2 times the score beyond the cost, over the pairs that are allowed; 4,000 draws."""
        rng, n, eta = np.random.default_rng(2), 60, 0.4
        codes = rng.integers(2, size=(4, n))
        codes[1] = codes[0]
        data, costs = counted(codes, (2,) * 4), np.array([20.0, 1.0, 0.0, 0.0, 2.0, 0.0])
        allowed = np.array([True, True, False, True, True, True])
        mechanism = farthest(n, eta, [np.full(4, 0.25)] * 6, costs, allowed)
        source = SeededGenerator(5)
        drawn = np.bincount([mechanism(data, source) for _ in range(4000)], minlength=6) / 4000
        weights = np.where(allowed, np.exp(eta / 2 * (mechanism.scores(data) - costs)), 0.0)
        assert drawn == pytest.approx(weights / weights.sum(), abs=4 * math.sqrt(0.25 / 4000))
        assert drawn[2] == 0

    def test_the_worst_neighbours_reach_the_range_that_is_paid_for(self):
        """Exact probabilities of both: one record breaks the rule of one pair, or that of another one."""
        sizes, n, eta = (2, 2, 2), 400, 0.5
        codes = np.zeros((3, n), dtype=np.int64)
        codes[:, : n // 2] = 1
        codes[:, 0] = (1, 1, 0)
        other = codes.copy()
        other[:, 0] = (1, 0, 0)
        mechanism, logs = farthest(n, eta, [np.full(4, 0.25)] * 3), []
        for each in (codes, other):
            u = mechanism.scores(counted(each, sizes)) * eta / 2
            logs.append(u - np.log(np.exp(u - u.max()).sum()) - u.max())
        assert np.ptp(logs[0] - logs[1]) == pytest.approx(eta, rel=1e-9)

    def test_rounding_is_paid_for_at_the_largest_log_weight(self, monkeypatch):
        heard = []
        monkeypatch.setattr(
            "dpcvx.noise.exponential.log_weight_error", lambda largest: heard.append(largest) or 0.0
        )
        data = Counts(Universe(schema_of((2, 2))), np.zeros(50, dtype=np.int64))
        mechanism = farthest(50, 0.5, [[0.0, 0.0, 0.0, 1.0]], costs=[7.0])
        mechanism(data, SeededGenerator(0))
        assert heard[0] >= 0.25 * (float(mechanism.scores(data)[0]) + 7.0) == 0.25 * 57.0

    def test_another_number_of_records_is_refused(self):
        data = Counts(Universe(schema_of((2, 2))), np.zeros(50, dtype=np.int64))
        with pytest.raises(Incompatible, match="planned for n=49 records, there are 50"):
            farthest(49, 0.5, [np.full(4, 0.25)])(data, SeededGenerator(0))


class TestMechanism:
    sizes = (2, 3, 2, 4, 2, 2)

    def made(self, rounds=6, eta=2.0, noise=1.0, n=300):
        return ChosenPairs(self.sizes, n, rounds, eta, noise)

    def released(self, rounds=6, **options):
        rng = np.random.default_rng(1)
        codes = np.stack([rng.integers(k, size=300) for k in self.sizes])
        codes[4] = codes[0]
        side = PrivateSide(counted(codes, self.sizes), SeededGenerator(2))
        singles = side.ask(NoisyMarginals(self.sizes, 300, 0.5, 1))
        universe = Universe(schema_of(self.sizes))
        stages = self.made(rounds, **options).release(side.ask, universe, singles)
        return counted(codes, self.sizes), tuple(itertools.chain(*stages))

    def test_every_choice_is_measured_once_with_its_two_attributes(self):
        _, chosen = self.released()
        pairs = [m.attributes for m in chosen if len(m.attributes) == 2]
        assert len(pairs) == len(set(pairs)) == 6
        for i, (a, b) in enumerate(pairs):
            assert [m.attributes for m in chosen[EACH * i : EACH * (i + 1)]] == [(a,), (b,), (a, b)]

    def test_the_noise_of_a_pair_is_that_of_its_own_marginals(self):
        _, chosen = self.released(noise=3.0)
        for m in chosen:
            if len(m.attributes) == 2:
                alone = NoisyMarginals(tuple(self.sizes[a] for a in m.attributes), 300, 3.0, 2)
                assert m.deviation == alone.deviations[1]

    def test_pairs_of_a_stage_share_no_attribute_and_the_strongest_is_found(self):
        _, chosen = self.released(rounds=8, eta=5.0)
        pairs = [m.attributes for m in chosen if len(m.attributes) == 2]
        assert (0, 4) in pairs[:2]
        at = 0
        for choices in self.made(rounds=8).stages:
            stage = [a for pair in pairs[at : at + choices] for a in pair]
            assert len(stage) == len(set(stage))
            at += choices
        assert at == 8

    def test_more_rounds_than_pairs_end_early(self):
        side = PrivateSide(counted(np.zeros((3, 50), dtype=int), (2, 2, 2)), SeededGenerator(0))
        singles = side.ask(NoisyMarginals((2, 2, 2), 50, 1.0, 1))
        made = ChosenPairs((2, 2, 2), 50, 9, 1.0, 1.0)
        stages = made.release(side.ask, Universe(schema_of((2, 2, 2))), singles)
        assert sum(map(len, stages)) == 3 * EACH

    def test_every_question_is_asked_by_a_mechanism_with_the_event_that_is_paid_for(self):
        asked = []
        side = PrivateSide(counted(np.zeros((6, 300), dtype=int), self.sizes), SeededGenerator(0))

        def ask(mechanism):
            asked.append(mechanism.event)
            return side.ask(mechanism)

        singles = side.ask(NoisyMarginals(self.sizes, 300, 0.5, 1))
        list(self.made(rounds=5).release(ask, Universe(schema_of(self.sizes)), singles))
        assert asked == [Exponential(2.0), Gaussian(1.0)] * 5

    def test_the_sampler_fails_no_more_often_than_stated(self):
        made = self.made(rounds=7)
        pairs = itertools.combinations(range(6), 2)
        assert made.failure == 7 * max(made.measurement(pair).failure for pair in pairs) > 0

    def test_measurements_are_of_the_records(self, silent):
        data, chosen = self.released()
        for m in chosen:
            assert m.values == pytest.approx(m.means(data.shares(m.attributes).ravel()), abs=1e-9)

    def test_vector_of_seeded_choices(self):
        """The choices and a number of a seed, so that no change of order, scale or cost goes unnoticed."""
        _, chosen = self.released()
        assert [m.attributes for m in chosen[2::3]] == VECTOR_PAIRS
        assert [float(m.values[0]) for m in chosen[2::3]] == pytest.approx(VECTOR_VALUES, rel=1e-9)


VECTOR_PAIRS = [(0, 4), (1, 3), (0, 3), (0, 5), (1, 5), (1, 2)]
VECTOR_VALUES = [
    0.996312653469,
    0.0263367837947,
    0.0163176611656,
    0.0262968077511,
    0.0203244006975,
    -0.0402975318208,
]


class TestPlan:
    def test_the_parts_are_within_the_budget_and_use_it(self):
        universe = Universe(schema_of((2,) * D))
        split = split_budget("chosen_pairs", universe, N, 5000, BUDGET, check=0.01, bin_means=0.0)
        assert split.choices == round(1.5 * D)
        leaves = count_leaves(split.event)
        assert leaves[Exponential(split.choice)] == leaves[Gaussian(split.chosen)] == split.choices
        spent = Tight().epsilon(split.event, spendable(BUDGET).delta)
        assert 0.999 < spent <= BUDGET.epsilon

    def test_the_shares_are_those_that_are_declared(self):
        """In zCDP: 30 % for single attributes, and 30 % of each choice and its measurement."""
        split = split_budget("chosen_pairs", Universe(schema_of((2,) * D)), N, 5000, BUDGET)
        first, chosen = 0.5 / split.start**2, 0.5 / split.chosen**2
        assert zcdp(Exponential(split.choice)) == split.choice**2 / 8
        each = zcdp(Exponential(split.choice)) + chosen
        assert zcdp(Exponential(split.choice)) / each == pytest.approx(0.3)
        assert first / (first + split.choices * each) == pytest.approx(0.3)

    def test_the_number_of_choices_is_public(self):
        assert [pairs_to_choose(Universe(schema_of((3,) * d))) for d in (2, 3, 40)] == [1, 3, 60]

    def test_pairs_are_chosen_only_where_that_is_asked_for(self):
        assert engine(method="auto").budget_split.choices == 0
        assert engine(method="warm").budget_split.choices == 0
        assert engine().budget_split.choices == round(1.5 * D)

    def test_few_cells_are_refused_with_the_other_method(self):
        with pytest.raises(
            Incompatible, match=r"4,096 cells.*more than 16,777,216.*Leave out method='chosen"
        ):
            engine(records(d=12))

    def test_cells_that_no_memory_holds_are_refused_before_a_charge(self, tmp_path):
        """All pairs of 32 attributes of 300 levels have 44.6 million cells."""
        ledger = Ledger(tmp_path / "ledger.db")
        ledger.create("survey", epsilon=1.0, delta=1e-6)
        with pytest.raises(Incompatible, match=r"All pairs of attributes have 44,640,000 cells together"):
            QueryEngine(
                schema_of((300,) * 32),
                table_of(np.zeros((32, 9), dtype=int)),
                BUDGET,
                method="chosen_pairs",
                ledger=ledger,
                account="survey",
            )
        assert not ledger.account("survey").history()

    @pytest.mark.parametrize(
        ("sizes", "n", "said"),
        [((2,) * 20, 40, False), ((2,) * 40, 300, True), ((2,) * 40, 40, False), ((300,) * 32, 300, False)],
    )
    def test_choosing_is_offered_only_where_it_measures_pairs(self, sizes, n, said):
        words = objection_to_sizes(schema_of(sizes), n, BUDGET)
        assert "so each column is measured by itself" in words
        assert ("--choose-pairs" in words) == said

    def test_the_least_noise_of_a_pair_is_that_of_any(self):
        made = ChosenPairs((2, 2, 300, 2, 300), 1000, 4, 0.1, 5.0)
        pairs = itertools.combinations(range(5), 2)
        assert made.least_noise == min(made.measurement(pair).deviations[1] for pair in pairs)
        assert made.least_noise < 0.6 * made.measurement((0, 1)).deviations[1]

    def test_persons_are_refused_whatever_the_number_of_cells(self):
        for d in (12, D):
            codes = records(d=d)
            with pytest.raises(Incompatible, match=r"cannot be chosen for persons.*Leave out method="):
                engine(codes, groups=np.arange(N) // 2)

    def test_splits_of_earlier_versions_are_read(self):
        split = BudgetSplit("warm", 3.0, (1.0,), run=0.1, oracle=2.0, updates=4)
        fields = json.loads(split.to_json())
        for name in ("choices", "choice", "chosen"):
            del fields[name]
        assert BudgetSplit.from_json(json.dumps(fields)) == split

    def test_the_statement_lists_choices_and_measurements(self):
        made = engine()
        listed = [
            (part["question"], part["event"], part["count"])
            for part in made.statement().to_dict()["mechanisms"]
        ]
        choices = made.budget_split.choices
        assert choices > 1
        assert listed == [
            ("NoisyMarginals", "Gaussian", 1),
            ("FarthestPair", "Exponential", choices),
            ("NoisyMarginals", "Gaussian", choices),
        ]


class TestEngine:
    def test_strong_pairs_are_found_and_answers_are_close(self):
        """Mean largest error of the eighteen strong tables, of chosen pairs and of all pairs."""
        codes, off = records(), {}
        for method in ("chosen_pairs", "warm"):
            made, errors = engine(codes, method=method), []
            for j in range(0, D, 2):
                truth = np.bincount(2 * codes[j] + codes[j + 1], minlength=4) / N
                shares = made.histogram.marginal((j, j + 1)).ravel()
                errors.append(np.abs(shares - truth).max())
            off[method] = float(np.mean(errors))
        assert off["chosen_pairs"] < 0.8 * off["warm"]

    def test_answers_say_how_many_of_their_pairs_were_measured(self):
        rng = np.random.default_rng(1)
        codes = (rng.random((D, N)) < 0.5).astype(np.int16)
        codes[: D // 2] = codes[0] ^ (rng.random((D // 2, N)) < 0.2)  # the rest is independent
        table, budget = table_of(codes), Budget(20.0, 1e-6)
        options = {"method": "chosen_pairs", "check": 0, "rng": SeededGenerator(3)}
        made = QueryEngine(schema_of((2,) * D), table, budget, **options)
        measured = {m.attributes for m in made._public_side._warm if len(m.attributes) == 2}
        joined = list(range(D))  # by pointers to an attribute that a chain of measured pairs reaches
        for _ in range(D):
            for a, b in measured:
                joined[a] = joined[b] = min(joined[a], joined[b])
        apart = {pair for pair in itertools.combinations(range(D), 2) if joined[pair[0]] != joined[pair[1]]}
        near = set(itertools.combinations(range(D), 2)) - measured - apart
        assert apart
        assert near

        def note(*places):
            return made.ask(Marginal([f"a{j}" for j in places])).note

        assert "pairs of its columns" not in note(*min(measured))
        assert "measured together" not in note(*min(measured))
        assert "no two of these attributes were measured together" in note(*min(apart))
        said = "0 of the 1 pairs of its columns were measured and 1 follows from other measured pairs"
        assert said in note(*min(near))
        for places in itertools.islice(itertools.combinations(range(0, D, 5), 4), 12):
            pairs = set(itertools.combinations(places, 2))
            said = note(*places)
            if pairs <= apart:
                assert "no two of these attributes were measured together" in said
                continue
            assert f"{len(pairs & measured)} of the 6 pairs" in said
            assert (f"{len(pairs & near)} follow" in said) == bool(pairs & near)
            assert ("taken as independent" in said) == bool(pairs & apart)
            if pairs & apart:
                assert re.search(rf"\b{len(pairs & apart)} (is|are) taken as independent", said)

    def test_a_new_measurement_says_nothing_of_pairs(self):
        """It is of the query itself, and follows from no other column."""
        made = engine()
        compiled = Regression("a0", [f"a{j}" for j in range(1, 15)], loss="squared").compile(made.schema, N)
        assert "pairs of its columns" in made.answer(compiled).note
        measured = MeasuredAnswer(np.zeros(len(compiled.names)), (), 0.1, None, None)
        assert "measured" not in made._finished_measurement(compiled, measured).note

    def test_all_kinds_of_queries_have_answers_with_intervals(self):
        made = engine()
        for query in (
            Count({"a0": ["1"], "a7": ["0"]}),
            Marginal(["a2", "a9", "a11"]),
            Regression("a0", ["a1", "a5", "a9"]),
            Regression("a0", [f"a{j}" for j in range(1, 15)], loss="squared"),
        ):
            answer = made.ask(query)
            assert any(each.low is not None for each in answer.coefficients)
            assert np.isfinite([each.estimate for each in answer.coefficients]).all()
        assert len(made.synthetic(10)["a0"]) == 10

    def test_a_restart_continues_and_pays_once(self, tmp_path):
        ledger = Ledger(tmp_path / "ledger.db")
        account = ledger.create("survey", epsilon=1.0, delta=1e-6)
        answers, spent = [], []
        for _ in range(2):
            made = engine(ledger=ledger, account="survey", rng=None)
            answers.append([made.ask(Marginal([f"a{j}", f"a{j + 1}"])).coded for j in range(4)])
            spent.append(account.remaining())
        assert answers[0] == answers[1]
        assert spent[0] == spent[1] < 1.0

    def test_a_stop_between_the_two_releases_is_made_up_for(self, tmp_path, monkeypatch):
        ledger = Ledger(tmp_path / "ledger.db")
        ledger.create("survey", epsilon=1.0, delta=1e-6)

        def stop(*arguments):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(ChosenPairs, "release", stop)
            with pytest.raises(KeyboardInterrupt):
                engine(ledger=ledger, account="survey", rng=None)
        made = engine(ledger=ledger, account="survey", rng=None)
        kinds = [entry.kind for entry in made._transcript.entries()]
        assert kinds.count("start") == 1
        assert kinds.count("choice") == len(made.plan.choice.stages)

    @pytest.mark.parametrize("stopped", [1, 3])
    def test_no_choice_that_a_fit_has_shown_is_made_again_after_a_stop(self, tmp_path, monkeypatch, stopped):
        """The work of a fit shows the choices before it: a second set of them would not be paid for."""
        ledger, asked, fits = Ledger(tmp_path / "ledger.db"), [], []
        ledger.create("survey", epsilon=1.0, delta=1e-6)
        ask, fit = PrivateSide.ask, chosen_pairs._fit

        def count(side, mechanism):
            asked.append(mechanism.event)
            return ask(side, mechanism)

        def stop(*arguments):
            fits.append(None)
            if len(fits) == stopped + 1:
                raise KeyboardInterrupt
            return fit(*arguments)

        monkeypatch.setattr(PrivateSide, "ask", count)
        monkeypatch.setattr(chosen_pairs, "_fit", stop)
        with pytest.raises(KeyboardInterrupt):
            engine(ledger=ledger, account="survey", rng=None)
        made = engine(ledger=ledger, account="survey", rng=None)
        assert Counter(asked) == count_leaves(made.budget_split.event)
        again = engine(ledger=ledger, account="survey", rng=None)
        for one, other in zip(made._public_side._warm, again._public_side._warm, strict=True):
            assert (one.attributes, one.deviation) == (other.attributes, other.deviation)
            assert (one.values == other.values).all()


def test_estimates_have_every_pair_and_deviations_of_their_kind():
    made = engine()
    split, universe = made.budget_split, made.universe
    warm = made._public_side._warm
    singles, chosen = warm[:D], warm[D:]
    found = {m.attributes: m for m in estimate_pairs(universe, N, singles, chosen)}
    assert set(found) == {A for r in (1, 2) for A in itertools.combinations(range(D), r)}
    measured = {m.attributes: m for m in chosen if len(m.attributes) == 2}
    assert len(measured) == split.choices
    assert all(found[pair].deviation == m.deviation for pair, m in measured.items())
    assert all(m.deviation > 1 / math.sqrt(N) for m in found.values() if len(m.attributes) == 2)


def test_intervals_hold_where_nobody_has_a_level():
    """A fit keeps some people at every level; what it takes from a measured 0 is part of the error."""
    made = engine(np.zeros((D, 5000), dtype=int))
    held = [made.ask(Marginal([f"a{j}"])).coefficients[1].low <= 0 for j in range(D)]
    assert sum(held) >= 0.8 * D
