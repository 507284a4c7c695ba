"""Persons in the query engine: what a whole person can change in every answer, and what nobody learns."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import dpcvx as dp
from dpcvx.accounting import WEIGHT, Budget, Neighbours, Tight
from dpcvx.audit.replay import discrepancies, record, replay
from dpcvx.data import GradientSum, ResidualBound, RowBounds, integer_bounds
from dpcvx.data.units import persons
from dpcvx.errors import Incompatible, WrongValue
from dpcvx.noise import SeededGenerator
from dpcvx.queries import Counts, NoisyMarginals, Universe, histogram
from dpcvx.queries.measuring import Measurer
from dpcvx.queries.mechanisms import NoisyErrors, NoisyHistogram, NoisyMeans, PublicAnswer
from dpcvx.queries.private_side import PersonCells, PrivateSide
from dpcvx.queries.table_check import counts_of
from dpcvx.solvers import NoisyFrankWolfe
from zoo import CountingGenerator

PERSON = Neighbours("replace", "person", weight=WEIGHT)
SCHEMA = dp.Schema(
    (
        dp.Attribute("a", ("0", "1"), "1"),
        dp.Attribute("b", ("0", "1", "2"), "2"),
        dp.Binned("c", (0.0, 1.0, 3.0, 9.0), 2),
    )
)
UNIVERSE = Universe(SCHEMA)
U = 6
QUERIES = [
    dp.Regression("a", ("b", "c")),
    dp.Regression("c", ("a",), loss="squared", l2=0.1),
    dp.Count({"a": ["1"], "b": ["0", "2"]}),
    dp.Mean("c"),
    dp.Mean("c", {"a": ["1"]}),
    dp.Marginal(("a", "b")),
]
SIZES = (0, 1, 1, 1, 2, 3, 7, 100, 20_000)


def rows_of(generator, m):
    """Rows of one person: all in one cell, or spread over extreme and missing cells."""
    cells = {
        "a": generator.choice(["0", "1", None], m),
        "b": generator.choice(["0", "2", "?"], m),
        "c": generator.choice([-5.0, 0.5, 99.0, np.nan], m),
    }
    if m and generator.random() < 0.6:
        cells = {name: np.repeat(column[:1], m) for name, column in cells.items()}
    return pd.DataFrame(cells)


def counts_of_people(people, declared):
    """Counts of persons, each a table of rows."""
    table = pd.concat(people, ignore_index=True)
    ids = np.repeat(np.arange(len(people)), [len(rows) for rows in people]).astype(str)
    return Counts.of(UNIVERSE, table, units=persons(ids, declared=declared))


def neighbours(count, seed=0):
    """Pairs of data sets in which all rows of one person are replaced by any number of others."""
    generator = np.random.default_rng(seed)
    for _ in range(count):
        people = [rows_of(generator, int(m)) for m in generator.integers(1, 5, U)]
        # Sometimes more persons have rows than were declared.
        people += [rows_of(generator, 2)] * int(generator.integers(0, 3))
        if generator.random() < 0.3:
            people = [people[0]] * len(people)
        place = int(generator.integers(len(people)))
        pair = []
        for _ in range(2):
            others = list(people)
            others[place] = rows_of(generator, int(generator.choice(SIZES)))
            pair.append(counts_of_people(others, U))
        yield tuple(pair)


@pytest.fixture
def silent(monkeypatch):
    monkeypatch.setattr(
        "dpcvx.noise.gaussian.lattice_gaussian", lambda scale, size, rng: np.zeros(size, dtype=np.int64)
    )


def means(index):
    mechanism = NoisyMeans(QUERIES[index].compile(SCHEMA, U), U, 1.0, PERSON)
    return mechanism, lambda data: mechanism(data, None)


def marginals(order):
    mechanism = NoisyMarginals(UNIVERSE.shape, U, 1.0, order, PERSON)

    def ask(data):
        released = mechanism(data, None)
        return np.concatenate([mechanism.weights[len(m.attributes) - 1] * m.values for m in released])

    return mechanism, ask


def cells():
    mechanism = NoisyHistogram(UNIVERSE, U, 1.0, PERSON)
    return mechanism, lambda data: mechanism(data, None)


def check():
    mechanism = counts_of(UNIVERSE, U, 1.0, PERSON)
    return mechanism, lambda data: mechanism.add_noise(data.recognised, None)


MECHANISMS = {
    "count": (means, 2),
    "mean": (means, 3),
    "table": (means, 5),
    "marginals 1": (marginals, 1),
    "marginals 2": (marginals, 2),
    "marginals 3": (marginals, 3),
    "histogram": (cells,),
    "check": (check,),
}


@pytest.fixture(scope="module")
def pairs():
    return list(neighbours(80))


@pytest.mark.parametrize("name", MECHANISMS)
def test_no_two_persons_are_further_apart_than_the_sensitivity_and_some_are_as_far(name, pairs, silent):
    make, *arguments = MECHANISMS[name]
    mechanism, ask = make(*arguments)
    changes = [float(np.linalg.norm(ask(one) - ask(other))) for one, other in pairs]
    assert 0.75 * mechanism.sensitivity < max(changes) <= mechanism.sensitivity * (1 + 1e-9)


def public_answers():
    generator, made = np.random.default_rng(3), []
    for query in QUERIES:
        compiled = query.compile(SCHEMA, U)
        weights = generator.dirichlet(np.ones(math.prod(compiled.sizes)))
        made.append(PublicAnswer(compiled, compiled.answer(weights)))
    return tuple(made)


@pytest.mark.long
def test_no_person_moves_a_score_or_an_order_statistic_by_more_than_one(silent):
    family = public_answers()
    errors = [NoisyErrors(family, rank, 1.0, PERSON) for rank in (1, 4, 6)]
    largest = 0.0
    for one, other in neighbours(40, seed=1):
        scores = [abs(each.score(one) - each.score(other)) for each in family]
        assert max(scores) <= errors[0].sensitivity
        largest = max(largest, *scores)
        for mechanism in errors:
            assert abs(mechanism(one, None) - mechanism(other, None)) <= mechanism.sensitivity
    assert largest > 0.5


GRADIENTS = [QUERIES[0], QUERIES[1], dp.Regression("c", ("a", "b"), loss="huber", intercept=False)]


@pytest.mark.long
@pytest.mark.parametrize("query", GRADIENTS, ids=repr)
def test_no_two_persons_are_further_apart_in_a_sum_of_gradients(query):
    compiled = query.compile(SCHEMA, U)
    problem, generator = compiled.problem, np.random.default_rng(2)
    row = RowBounds(problem.d, *integer_bounds(problem.bounds, problem.d))
    reached = 0.0
    for one, other in neighbours(60, seed=2):
        theta = generator.normal(size=problem.d) * generator.choice([0.0, 1.0, 50.0])
        asked = GradientSum(problem.loss, theta, ResidualBound(2**18, 2**18))
        sums = [PersonCells(compiled, counts).sum(asked) for counts in (one, other)]
        for distance, allowed in asked.distances(*sums, row, PERSON):
            assert distance <= allowed
            reached = max(reached, distance / allowed)
    assert reached > 0.4


@pytest.mark.parametrize("size", [1, 2**20, 2**31 - 1])
def test_sums_of_gradients_are_those_of_python_integers(size):
    compiled = QUERIES[0].compile(SCHEMA, U)
    counts = next(neighbours(1, seed=4))[0]
    counts._table[:] = np.random.default_rng(0).integers(0, 2**40 // size, UNIVERSE.n_cells)
    source, theta = PersonCells(compiled, counts), np.array([0.3, -2.0, 1.0, 0.1, 7.0])
    asked = GradientSum(compiled.problem.loss, theta, ResidualBound(size, size))
    found = source.sum(asked)
    from dpcvx.queries.private_side import _residuals

    rho = _residuals(replace(asked, bound=ResidualBound(size - 1, size - 1)), source._rows, source._targets)
    exact = (source._weights.astype(object) * rho[0].astype(object)) @ source._rows.astype(object)
    assert found.tolist() == [int(total) // WEIGHT for total in exact]


# -- counts


def test_counts_of_persons_add_up_to_their_number_and_the_rest_is_missing():
    generator = np.random.default_rng(0)
    people = [rows_of(generator, m) for m in (1, 3, 7, 20_000)]
    for declared in (2, 4, 10):
        counts = counts_of_people(people, declared)
        assert (counts.n, counts.weight) == (declared, WEIGHT)
        table = counts.marginal((0, 1, 2))
        assert table.sum() == declared * WEIGHT
        assert table.min() >= 0
    # Nobody but the first two persons counts where two are declared, whatever the others' rows are.
    two = counts_of_people(people[:2], 2).marginal((0, 1, 2))
    assert (counts_of_people(people, 2).marginal((0, 1, 2)) == two).all()
    nobody = counts_of_people([rows_of(generator, 20_000)], 1).marginal((0, 1, 2)).ravel()
    assert nobody[UNIVERSE.missing_cell] == WEIGHT


def test_one_row_for_each_person_gives_the_counts_of_rows():
    generator = np.random.default_rng(0)
    people = [rows_of(generator, 1) for _ in range(40)]
    plain = Counts.of(UNIVERSE, pd.concat(people, ignore_index=True))
    weighed = counts_of_people(people, None)
    assert (weighed.marginal((0, 2)) == WEIGHT * plain.marginal((0, 2))).all()
    assert weighed.recognised.tolist() == [WEIGHT * count for count in (*plain.recognised, 40)]
    np.testing.assert_array_equal(weighed.shares((1,)), plain.shares((1,)))


# -- faults that must be found


def double(units):
    """A fault: the weights of a person's rows add up to that of two."""
    weights = units.shares
    return np.minimum(WEIGHT, 2 * weights)


@pytest.mark.long
@pytest.mark.parametrize("name", ["table", "marginals 2", "histogram", "check"])
def test_weights_of_half_of_the_rows_are_found_out(name, silent, monkeypatch):
    monkeypatch.setattr(histogram, "unit_weights", double)
    make, *arguments = MECHANISMS[name]
    mechanism, ask = make(*arguments)
    changes = [float(np.linalg.norm(ask(one) - ask(other))) for one, other in neighbours(50)]
    assert max(changes) > mechanism.sensitivity * (1 + 1e-9)


# -- whole engines


def people_table(repeats, n=3000, seed=0):
    """Records of persons, each repeated under its id."""
    generator = np.random.default_rng(seed)
    a, b = generator.integers(0, 2, n), generator.integers(0, 3, n)
    c = np.where(generator.random(n) < 0.7, a * 5.0, 0.5) + 0.2
    owner = np.repeat(np.arange(n), repeats)
    table = pd.DataFrame({"who": owner, "a": a[owner].astype(str), "b": b[owner].astype(str), "c": c[owner]})
    return table.sample(frac=1, random_state=seed, ignore_index=True)


def engine(table, **settings):
    given = {"person": "who", "method": "warm", "n_queries": 50, "rng": SeededGenerator(0), **settings}
    return dp.QueryEngine(SCHEMA, table, Budget(2.0, 1e-7), **given)


@pytest.mark.long
@pytest.mark.parametrize("method", ["warm", "histogram", "composition"])
def test_rows_repeated_under_a_persons_id_change_no_answer(method):
    """With the same noise, in units of the sensitivity, answers are those of single rows."""
    single = people_table(1)
    asked = [
        [made.ask(query).estimates for query in QUERIES]
        for made in (
            engine(single, method=method, person=None, check=0),
            engine(people_table(np.arange(3000) % 9 + 1), method=method, check=0),
        )
    ]
    for rows, whole in zip(*asked, strict=True):
        np.testing.assert_allclose(rows, whole, rtol=2e-2, atol=2e-2)


@pytest.mark.long
def test_the_number_of_rows_is_shown_nowhere():
    told = []
    for repeats in (1, 2, np.arange(3000) % 7 + 1):
        made = engine(people_table(repeats))
        statement = made.statement()
        assert statement.unit == "one person with all of their rows"
        assert statement.public["persons"] == 3000
        assert "a person who is in several rows" not in statement.not_covered
        answer = made.ask(QUERIES[2])
        shape = [statement.to_json().replace(made.check_summary, ""), made.budget_split, made.n]
        told.append((*shape, made.price.failure, answer.note, answer.covered_by, made.remaining))
    assert told[0] == told[1] == told[2]
    assert "each person counts once" in told[0][4]


@pytest.mark.parametrize("settings", [{"groups": np.zeros(7)}, {"groups": ["x"] * 2999}])
def test_messages_about_ids_name_no_number_of_rows(settings):
    with pytest.raises(WrongValue, match="one id for each row") as refused:
        engine(people_table(1), person=None, **settings)
    assert not any(letter.isdigit() for letter in str(refused.value))


@pytest.mark.long
def test_a_neighbour_with_many_rows_is_asked_the_same_questions():
    """All that the engine decides beside noised answers is public: words are drawn in the same order."""
    spent = []
    for m in (1, 5000):
        data = people_table(1, n=500)
        more = pd.DataFrame({"who": 7, "a": ["1"] * m, "b": "2", "c": 8.0})
        rng = CountingGenerator(5)
        made = engine(pd.concat([data[data["who"] != 7], more]), rng=rng)
        for query in QUERIES:
            made.ask(query)
        spent.append((rng.drawn, made.n_updates, made.budget_split, made.n))
    assert spent[0] == spent[1]


@pytest.mark.long
def test_a_measured_regression_is_replayed_on_neighbours_without_a_violation(monkeypatch):
    """The measurement of a regression is a plan like any other: whole persons are replaced in its replay."""

    def audit(rounds=8):
        compiled = QUERIES[0].compile(SCHEMA, U)
        plan = Measurer(U, 0.5, 1e-3, None, PERSON).plan(compiled)
        assert plan.budget.unit == "person"
        found = []
        for one, other in neighbours(rounds, seed=5):
            first = record(plan, PersonCells(compiled, one), SeededGenerator(0))
            second = replay(plan, PersonCells(compiled, other), SeededGenerator(1), first)
            found += discrepancies(plan, first, second)
        return found

    assert not audit()
    monkeypatch.setattr(histogram, "unit_weights", double)
    assert audit(40)


def test_solvers_that_ask_for_more_than_gradients_are_refused_before_a_record_is_read():
    compiled = dp.Regression("a", ("b",), domain="l1").compile(SCHEMA, 3000)
    with pytest.raises(Incompatible, match="gradients"):
        Measurer(3000, 0.5, 1e-3, NoisyFrankWolfe(n_iter=5), PERSON).plan(compiled)


def test_noise_for_rows_is_refused_where_records_have_persons():
    counts = counts_of_people([rows_of(np.random.default_rng(0), 3)] * 3, None)
    side = PrivateSide(counts, SeededGenerator(0))
    with pytest.raises(Incompatible, match="another unit"):
        side.ask(NoisyHistogram(UNIVERSE, 3, 1.0))


@pytest.mark.long
def test_the_guarantee_of_persons_is_within_the_budget():
    made = engine(people_table(2))
    assert made.budget.unit == "person"
    assert Tight().epsilon(made.price.event, 1e-7) <= 2.0
    more = engine(people_table(2), persons=5000)
    assert more.n == 5000
    assert abs(more.data_check.weight - 3000) < 6 * more.data_check.noise
    assert not more.data_check.findings  # persons without rows have no cells
    assert "persons" in str(more.data_check)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"person": None, "persons": 10}, "ids of persons"),
        ({"groups": np.arange(3000)}, "one of them"),
        ({"person": "a"}, "leave it out there"),
        ({"person": "nobody"}, "nobody"),
        ({"persons": 0}, "positive integer"),
    ],
)
def test_what_is_missing_or_given_twice_is_said(settings, words):
    with pytest.raises((Incompatible, WrongValue), match=words):
        engine(people_table(1), **settings)


def test_a_budget_of_persons_needs_their_ids():
    with pytest.raises(Incompatible, match="ids of persons"):
        dp.QueryEngine(SCHEMA, people_table(1), Budget(1.0, 1e-7, unit="person"), rng=SeededGenerator(0))


@pytest.mark.long
def test_an_account_has_a_unit_and_refuses_another(tmp_path):
    ledger = dp.Ledger(tmp_path / "ledger.db")
    ledger.create("rows", epsilon=1.0, delta=1e-7)
    ledger.create("persons", epsilon=1.0, delta=1e-7, unit="person")
    table, budget = people_table(2, n=400), Budget(1.0, 1e-7)
    given = {"method": "histogram", "ledger": ledger, "n_queries": 5}
    with pytest.raises(Incompatible, match="protects a row"):
        dp.QueryEngine(SCHEMA, table, budget, person="who", account="rows", **given)
    with pytest.raises(Incompatible, match="protects a person"):
        dp.QueryEngine(SCHEMA, table, budget, account="persons", **given)
    first = dp.QueryEngine(SCHEMA, table, budget, person="who", account="persons", **given)
    again = dp.QueryEngine(SCHEMA, people_table(5, n=400), budget, person="who", account="persons", **given)
    assert again.ask(QUERIES[2]).estimates == first.ask(QUERIES[2]).estimates  # continues, and pays nothing
    with pytest.raises(dp.BudgetExceeded, match="another way of counting persons"):
        dp.QueryEngine(SCHEMA, table, budget, person="who", persons=400, account="persons", **given)


def test_a_universe_that_persons_are_not_served_in_is_refused_before_it_is_paid_for(tmp_path):
    names = [f"x{k}" for k in range(25)]
    schema = dp.Schema(tuple(dp.Attribute(name, ("0", "1"), "1") for name in names))
    table = {name: ["0", "1"] * 500 for name in names}
    account = dp.Ledger(tmp_path / "ledger.db").create("people", epsilon=1.0, delta=1e-7, unit="person")
    given = {"ledger": account.ledger, "account": "people"}
    with pytest.raises(Incompatible, match="persons with several rows"):
        dp.QueryEngine(schema, table, Budget(1.0, 1e-7), groups=np.arange(1000), **given)
    assert account.used == 0
