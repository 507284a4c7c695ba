"""Universes without a histogram: records by codes, local distributions, wide regressions, drawn tables."""

import itertools
import math
import warnings

import numpy as np
import pytest

from dpcvx.accounting import REPLACE_ONE, Budget, Tight
from dpcvx.errors import Incompatible
from dpcvx.ledger import Ledger
from dpcvx.noise import SeededGenerator
from dpcvx.queries import (
    Attribute,
    Binned,
    Count,
    Counts,
    Marginal,
    Mean,
    Measurement,
    NoisyMarginals,
    QueryEngine,
    Regression,
    Schema,
    Universe,
)
from dpcvx.queries import marginals as module
from dpcvx.queries.budget_split import split_budget
from dpcvx.queries.joint_shrinkage import shrink_together
from dpcvx.queries.local_models import LocalModels
from dpcvx.queries.wide_regression import WideRegression

N, D = 6000, 30


def table(n=N, d=D, seed=0):
    """Attributes with three levels that share a factor, and a number."""
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=n)
    found = {}
    for j in range(d):
        value = factor * (0.9 if j % 3 else 0.2) + rng.normal(size=n)
        found[f"a{j}"] = np.array(["low", "mid", "high"], dtype=object)[np.digitize(value, [-0.6, 0.7])]
    found["v"] = np.clip(40 + 10 * factor + 8 * rng.normal(size=n), 0, 99.9)
    found["y"] = np.where(factor + rng.normal(size=n) > 0, "yes", "no").astype(object)
    return found


def schema(d=D):
    levels = tuple(Attribute(f"a{j}", ("low", "mid", "high"), "low") for j in range(d))
    number = Binned("v", (0, 25, 35, 45, 55, 100), 50.0)
    return Schema((*levels, number, Attribute("y", ("no", "yes"), "no")))


def start(table, schema, epsilon=1.0, **options):
    options = {"rng": SeededGenerator(0), **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return QueryEngine(schema, table, Budget(epsilon, 1e-9), **options)


@pytest.fixture(scope="module")
def engine():
    return start(table(), schema(), epsilon=40.0)


def test_records_are_counted_by_codes_in_a_universe_that_is_not_listed():
    records, declared = table(200), schema()
    universe = Universe(declared)
    assert not universe.listed
    assert universe.n_cells == 3**30 * 5 * 2
    counts = Counts.of(universe, records)
    found = counts.marginal((3, 31, 0))
    for i, j, k in itertools.product(range(3), range(2), range(3)):
        level = ("low", "mid", "high")
        same = (records["a3"] == level[i]) & (records["a0"] == level[k])
        assert found[i, j, k] == (same & (records["y"] == ("no", "yes")[j])).sum()
    with pytest.raises(Incompatible, match="have no numbers"):
        universe.encode(records)
    with pytest.raises(Incompatible, match="persons with several rows"):
        start(records, declared, groups=np.arange(200) // 2)
    with pytest.raises(Incompatible, match="method 'histogram'"):
        start(records, declared, method="histogram")


SIZES = [(2, 3, 4, 5), (2, 2, 2, 7, 9), (3,) * 6 + (41, 2), (2,) * 12]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_the_bound_for_very_many_sizes_is_above_the_enumerated_sensitivity_and_close(sizes, monkeypatch):
    exact = NoisyMarginals(sizes, 100, 1.0, 2).sensitivity
    for cached in (module._squared_sensitivity, module._weights):
        cached.cache_clear()
    monkeypatch.setattr(module, "MOST_CHANGES", 0)
    grouped, bits = NoisyMarginals(sizes, 100, 1.0, 2)._grouped, 15
    try:
        for weights in ((8, 8), (3, 8), (40, 8)):
            bound = module._squared_sensitivity(grouped, weights, bits, REPLACE_ONE)
            squares = [factor**2 for factor in module._factors(weights, bits)]
            top, *pairs = (
                sum(square * value for square, value in zip(squares, values, strict=True))
                for values in module._kernel_bounds(grouped, 2, bits)
            )
            enumerated = 2 * (top - min(pairs))
            # The enumeration bounds e_1 and e_2 apart, and is not exact for contrasts that were rounded.
            assert (1 - 1e-5) * enumerated <= bound <= 1.6 * enumerated
        assert NoisyMarginals(sizes, 100, 1.0, 2).sensitivity <= 1.25 * exact
    finally:
        for cached in (module._squared_sensitivity, module._weights):
            cached.cache_clear()


@pytest.mark.long
def test_no_two_records_are_further_apart_than_the_bound(monkeypatch):
    sizes = (2, 3, 4)
    universe = Universe(Schema(tuple(Attribute(f"a{k}", tuple(range(k)), 0) for k in sizes)))
    for cached in (module._squared_sensitivity, module._weights):
        cached.cache_clear()
    monkeypatch.setattr(module, "MOST_CHANGES", 0)
    mechanism = NoisyMarginals(sizes, 1, 1e-9, 2)
    cells = [
        np.concatenate([m.values for m in mechanism(Counts(universe, np.array([c])), SeededGenerator(0))])
        for c in range(universe.n_cells)
    ]
    weights = np.concatenate(
        [
            np.full(math.prod(sizes[a] - 1 for a in A), mechanism.weights[len(A) - 1])
            for A in mechanism.subsets
        ]
    )
    largest = max(np.linalg.norm((a - b) * weights) for a, b in itertools.combinations(cells, 2))
    assert 0.7 * mechanism.sensitivity < largest <= mechanism.sensitivity * (1 + 1e-6)
    for cached in (module._squared_sensitivity, module._weights):
        cached.cache_clear()


@pytest.mark.long
def test_counts_means_and_tables_are_answered(engine):
    records = table()
    truth = ((records["a1"] == "high") & (records["y"] == "yes")).sum()
    answer = engine.ask(Count({"a1": ["high"], "y": ["yes"]}))
    assert answer.estimates[0] == pytest.approx(truth, abs=60)
    assert answer.covered_by == "noise"
    shares = engine.ask(Marginal(("a1", "a2", "a4"))).coded
    assert sum(shares) == pytest.approx(1)
    assert engine.ask(Mean("v")).estimates[0] == pytest.approx(records["v"].mean(), abs=0.5)
    inside = records["a5"] == "high"
    over = engine.ask(Mean("v", {"a5": ["high"]})).estimates[0]
    assert over == pytest.approx(records["v"][inside].mean(), abs=1.5)


@pytest.mark.long
def test_a_wide_squared_regression_is_that_of_the_records(engine):
    query = Regression("v", [f"a{j}" for j in range(12)], loss="squared", radius=10, l2=1e-3)
    compiled = query.compile(engine.schema, engine.n)
    assert isinstance(compiled, WideRegression)
    answer = engine.ask(query)
    assert answer.checked
    records = table()
    codes = Universe(engine.schema).read(records).cells
    X = [np.ones(N)]
    for j in range(12):
        X += [(codes[j] == k).astype(float) for k in range(3)]
    X = np.stack(X, axis=1)
    y = engine.schema["v"].scaled[codes[D]]
    best = np.linalg.solve(X.T @ X / N + 1e-3 * np.eye(37), X.T @ y / N)

    def value(theta):
        return ((X @ theta - y) ** 2).mean() / 2 + 5e-4 * theta @ theta

    assert value(np.array(answer.coded)) - value(best) < 2e-3
    assert value(np.zeros(37)) - value(best) > 0.01


@pytest.mark.long
def test_wide_regressions_of_other_losses_are_close_to_the_best(engine):
    from dpcvx.losses import Huber, Logistic

    records = table()
    codes = Universe(engine.schema).read(records).cells
    X = np.stack([np.ones(N), *((codes[j] == k) * 1.0 for j in range(9) for k in range(3))], axis=1)
    sign = np.where(records["y"] == "yes", 1.0, -1.0)
    number = engine.schema["v"].scaled[codes[D]]
    for name, loss, y, target in (("logistic", Logistic(), sign, "y"), ("huber", Huber(0.5), number, "v")):
        query = Regression(target, [f"a{j}" for j in range(9)], loss=name, radius=5)
        theta = np.zeros(28)
        for _ in range(3000):
            step = theta - 0.3 * X.T @ loss.grad(X @ theta, y) / N
            theta = step * min(1.0, 5 / np.linalg.norm(step))
        excess = [loss.value(X @ point, y).mean() for point in (np.array(engine.ask(query).coded), theta)]
        assert excess[0] - excess[1] < 5e-3


@pytest.mark.long
def test_wide_answers_do_not_depend_on_chance_and_are_compared(engine):
    query = Regression("y", [f"a{j}" for j in range(10)])
    first, again = engine.ask(query), engine.ask(query)
    assert first.estimates == again.estimates
    assert first.checked
    assert again.checked
    assert "own attributes" in first.note
    with pytest.raises(Incompatible, match="too many to list"):
        query.compile(engine.schema, engine.n).range(np.zeros(1))


def small_wide(loss, target, n=40):
    """A wide regression on few attributes, so that all of its cells can be listed."""
    from dataclasses import replace

    few = Schema(
        (
            Attribute("a", ("x", "y", "z"), "x"),
            Attribute("b", ("x", "y"), "x"),
            Binned("v", (0, 1, 2, 3), "none"),
            Attribute("y", ("no", "yes"), "missing"),
        )
    )
    names = [name for name in few.names if name != target]
    query = Regression(target, names, loss=loss, radius=4, l2=0.01)
    from dpcvx.queries.attribute_codes import code_columns

    attributes = tuple(few.names.index(name) for name in (target, *names))
    wide = query._compile_wide(few, n, attributes, [code_columns(few[name]) for name in names])
    return few, wide, replace(query).compile(few, n)


@pytest.mark.parametrize(
    ("loss", "target"),
    [("logistic", "y"), ("smooth_hinge", "y"), ("squared", "v"), ("huber", "v"), ("quantile", "v")],
)
@pytest.mark.long
def test_the_score_of_a_wide_answer_bounds_its_error_and_moves_by_no_more_than_one(loss, target):
    from dpcvx.queries.wide_check import WideAnswer

    n = 40
    few, wide, compiled = small_wide(loss, target, n)
    universe = Universe(few)
    rng = np.random.default_rng(0)
    largest = 0.0
    for _ in range(30):
        theta = rng.normal(size=wide.problem.d)
        theta *= 4 * rng.random() / np.linalg.norm(theta)
        reach = float(rng.choice([0.1, 0.4, 1.0]))
        checked = WideAnswer(wide, theta, reach)
        cells = rng.integers(0, universe.n_cells, n)
        if rng.random() < 0.5:  # all records at the cell of the largest or least score
            cells[:] = rng.integers(0, universe.n_cells)
        before = Counts(universe, cells)
        score = checked.score(before)
        weights = before.shares(compiled.attributes).ravel()
        excess = compiled.near(theta, reach).error(weights, theta)
        slack = 2**-6 * compiled.near(theta, reach).range(theta) / n + (2**-7 if loss == "quantile" else 0)
        assert score * checked.range / n >= excess - slack
        if loss == "squared":
            assert score * checked.range / n <= excess + slack
        for other in range(universe.n_cells):
            moved = checked.score(Counts(universe, np.append(cells[1:], other)))
            largest = max(largest, abs(moved - score))
            assert abs(moved - score) <= 1 + 1e-6
    assert largest > 0.1


@pytest.mark.long
def test_codes_are_those_of_the_records_wherever_they_are_kept():
    few, _, _ = small_wide("logistic", "y")
    universe = Universe(few)
    for n in (5, 500):  # kept as cells, and as counts
        cells = np.random.default_rng(n).integers(0, universe.n_cells, n)
        codes = Counts(universe, cells).codes((2, 0))
        whole = np.sort(codes[0] * 3 + codes[1])
        digits = np.unravel_index(cells, universe.shape)
        assert np.array_equal(whole, np.sort(digits[2] * 3 + digits[0]))


@pytest.mark.long
def test_a_wide_answer_that_is_wrong_is_measured_and_remembered(monkeypatch):
    """A parity of attributes that no pair shows beyond the model, made visible by a wrong public answer."""
    records, n = table(20_000), 20_000
    engine = start(records, schema(), epsilon=8.0)
    query = Regression("y", [f"a{j}" for j in range(10)])
    good = engine.ask(query)
    assert good.checked
    assert good.branch == "histogram"
    assert good.error_bound is not None
    assert good.covered_by == "comparison"

    def wrong(self, models):
        theta, noise = original(self, models)
        return -theta * (2.9 / np.linalg.norm(theta)), noise

    original = WideRegression.fit
    monkeypatch.setattr(WideRegression, "fit", wrong)
    left = engine.comparisons[0]
    answer = engine.ask(query)
    assert answer.branch == "oracle"
    assert engine.comparisons[0] == left - 1
    again = engine.ask(query)
    assert again.coded == answer.coded
    assert again.branch == "oracle"
    assert engine.comparisons[0] == left - 1
    assert engine.n == n


@pytest.mark.long
def test_drawn_tables_have_the_dependences_of_the_tree(engine):
    drawn = engine.synthetic(4000, SeededGenerator(1))
    records = table()
    assert set(drawn) == set(records)
    for name in ("a1", "a5", "y"):
        levels = engine.schema[name].levels
        shares = [np.mean(drawn[name] == level) for level in levels]
        assert shares == pytest.approx([np.mean(records[name] == level) for level in levels], abs=0.04)
    found = np.corrcoef(drawn["v"], drawn["y"] == "yes")[0, 1]
    assert found > 0.15


@pytest.mark.long
def test_a_restarted_engine_answers_the_same(tmp_path):
    from dpcvx import Ledger

    path = str(tmp_path / "l.db")
    Ledger(path).create("people", epsilon=4.0, delta=1e-9)
    records, declared = table(3000, 16), schema(16)
    wide = Regression("y", [f"a{j}" for j in range(10)])
    first = start(records, declared, 4.0, ledger=path, account="people", rng=None)
    answer = first.ask(wide).estimates
    again = start(records, declared, 4.0, ledger=path, account="people", rng=None)
    assert again.ask(wide).estimates == answer


def local(corrections=()):
    universe = Universe(Schema(tuple(Attribute(f"b{j}", (0, 1), 0) for j in range(30))))
    rng = np.random.default_rng(2)
    codes = (rng.random((30, 4000)) < 0.5).astype(np.int16)
    codes[2] = codes[0] ^ codes[1]  # a parity, which no pair shows
    counts = Counts(universe, codes)
    released = NoisyMarginals(universe.shape, 4000, 1.0, 2)(counts, SeededGenerator(0))
    return LocalModels(universe, released, corrections), counts


@pytest.mark.long
def test_a_correction_counts_in_every_distribution_with_two_of_its_attributes():
    plain, counts = local()
    truth = counts.shares((0, 1, 2))
    assert abs(plain.marginal((0, 1, 2)) - truth).max() > 0.1
    group = (Measurement((0, 1, 2), (np.eye(8),), truth.ravel(), 1e-3),)
    corrected = plain.corrected([group])
    assert abs(corrected.marginal((0, 1, 2)) - truth).max() < 0.01
    assert abs(corrected.marginal((2, 7, 1)) - counts.shares((2, 7, 1))).max() < 0.03
    joint = corrected.marginal((0, 1, 2, 7)).sum(axis=3)
    assert abs(joint - truth).max() < 0.02


@pytest.mark.long
def test_a_parity_is_found_measured_and_known_from_then_on():
    rng = np.random.default_rng(0)
    records = {f"b{j}": rng.integers(0, 2, 20_000) for j in range(26)}
    records["b3"] = records["b0"] ^ records["b1"] ^ records["b2"]  # which no triple shows
    declared = Schema(tuple(Attribute(f"b{j}", (0, 1), 0) for j in range(26)))
    engine = start(records, declared, 8.0)
    assert not engine.universe.listed
    query = Marginal(("b0", "b1", "b2", "b3"))
    parity = [0.125 * (sum(bits) % 2 == 0) for bits in itertools.product((0, 1), repeat=4)]
    assert engine.ask(query).branch == "oracle"
    again = engine.ask(query)
    assert (again.branch, engine.n_updates) == ("histogram", 1)
    assert again.coded == pytest.approx(parity, abs=0.02)
    wider = np.reshape(engine.ask(Marginal(("b0", "b1", "b2", "b3", "b5"))).coded, (16, 2)).sum(axis=1)
    assert wider == pytest.approx(parity, abs=0.02)


def test_local_distributions_keep_the_order_of_attributes():
    models, _ = local()
    assert models.marginal((5, 3, 9)) == pytest.approx(models.marginal((3, 5, 9)).transpose(1, 0, 2))
    assert models.marginal((5,)).shape == (2,)
    assert [m.attributes for m in models.inside((4, 2))] == [(2,), (4,), (2, 4)]


@pytest.mark.long
def test_noise_does_not_pass_for_dependence_where_dependences_are_weak():
    """Independent attributes and much noise: fitted pairs are nearer to independence than their noise."""
    d, n = 40, 1000
    universe = Universe(Schema(tuple(Attribute(f"a{j}", (0, 1), 0) for j in range(d))))
    rng = np.random.default_rng(0)
    counts = Counts(universe, rng.integers(0, 2, (d, n)))
    mechanism = NoisyMarginals(universe.shape, n, 5.0, 2)
    models = LocalModels(universe, mechanism(counts, SeededGenerator(0)))
    found = [models.ratio(a, b)[1, 1] for a, b in itertools.combinations(range(12), 2)]
    assert mechanism.deviations[1] > 0.15
    assert np.sqrt(np.mean(np.square(found))) < 0.05


def test_rare_levels_in_noise_do_not_lead_a_fit_astray():
    """Newton's method once ended with all weight in one cell, where its curvature is 0."""
    universe = Universe(Schema(tuple(Attribute(f"b{j}", (0, 1, 2, 3), 0) for j in range(14))))
    codes = (np.random.default_rng(0).random((14, 2000)) < 0.01).astype(np.int16)
    released = NoisyMarginals(universe.shape, 2000, 4.0, 2)(Counts(universe, codes), SeededGenerator(0))
    models = LocalModels(universe, released)
    for places in ((2, 6, 7, 9), *itertools.combinations(range(5), 4)):  # the first one went astray
        table = models.marginal(places)
        for axis, a in enumerate(places):
            others = tuple(k for k in range(4) if k != axis)
            assert table.sum(axis=others) == pytest.approx(models.marginal((a,)), abs=1e-4)


def test_released_triples_are_fitted():
    """A parity of three attributes, which no pair shows, beside an attribute of three levels."""
    universe = Universe(
        Schema((Attribute("c", (0, 1, 2), 0), *(Attribute(f"b{j}", (0, 1), 0) for j in range(26))))
    )
    rng = np.random.default_rng(2)
    codes = (rng.random((27, 4000)) < 0.4).astype(np.int16)
    codes[3] = codes[1] ^ codes[2]
    codes[0] = codes[4] * codes[5] + (rng.random(4000) < 0.3)  # levels that depend on a product
    counts = Counts(universe, codes)
    errors = {}
    for order in (2, 3):
        released = NoisyMarginals(universe.shape, 4000, 0.2, order)(counts, SeededGenerator(0))
        models = LocalModels(universe, released)
        for places in ((1, 2, 3), (0, 4, 5), (0, 1, 2, 3, 4, 5)):
            found = np.abs(models.marginal(places) - counts.shares(places)).max()
            errors[order, places] = found
            table = models.marginal(places)
            assert table.sum(axis=tuple(range(1, len(places)))) == pytest.approx(
                models.marginal(places[:1]), abs=1e-4
            )
    assert errors[2, (1, 2, 3)] > 0.08
    assert max(error for (order, _), error in errors.items() if order == 3) < 0.02


def test_a_release_from_before_triples_is_read():
    from dpcvx.queries.engine_plan import EnginePlan
    from dpcvx.queries.public_side import PublicSide
    from dpcvx.queries.transcript import pack

    declared = Schema(tuple(Attribute(f"b{j}", (0, 1), 0) for j in range(26)))
    universe, n, budget = Universe(declared), 10**6, Budget(1.0, 1e-12)
    split = split_budget("warm", universe, n, 100, budget)
    plan = EnginePlan(universe, n, 100, budget, split, Tight(), None)
    assert plan.start.order == 3
    means = np.linspace(-0.1, 0.1, 26 + 325)
    side = PublicSide(plan, None, pack(means=means))
    assert side.histogram.inside((0, 1))[-1].values == pytest.approx(means[26:27])
    assert side.histogram.inside((0, 1, 2))[-1].attributes == (1, 2)


@pytest.mark.parametrize("d", [8, 26], ids=["listed", "not listed"])
def test_an_account_that_paid_for_triples_goes_on_with_them(d, tmp_path, monkeypatch):
    """The rule for triples may change between versions; what was released stays in use."""
    rng, n = np.random.default_rng(0), 20_000
    table = {f"x{j}": rng.integers(0, 2, n) for j in range(d)}
    schema = Schema(tuple(Attribute(name, (0, 1), 0) for name in table))
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.create("people", epsilon=1.0, delta=1e-9)
    options = {"method": "warm", "check": 0, "ledger": ledger, "account": "people"}
    answers = []
    for limit, order in ((100.0, 3), (0.0, 2)):
        monkeypatch.setattr(module, "TRIPLE_NOISE", limit)
        engine = QueryEngine(schema, table, Budget(1.0, 1e-9), **options)
        assert engine.plan.start.order == order
        assert max(len(m.attributes) for m in engine._public_side._warm) == 3
        answers.append(engine.histogram.marginal((0, 1, 2)).tolist())
    assert answers[0] == answers[1]
    assert len(ledger.account("people").history()) == 1


@pytest.mark.parametrize("method", ["warm", "chosen_pairs"])
def test_errors_of_covariances_include_what_shrinkage_took(method):
    """Groups of eight numbers with correlations of 0.56, which noise hides; intervals rest on these."""
    rng, n, d = np.random.default_rng(4), 1500, 48
    values = 0.75 * np.repeat(rng.normal(size=(d // 8, n)), 8, axis=0) + 0.66 * rng.normal(size=(d, n))
    schema = Schema(tuple(Binned(f"x{j}", (-6.0, -0.7, 0.0, 0.7, 6.0), 0.0) for j in range(d)))
    table = {f"x{j}": np.clip(column, -5.9, 5.9) for j, column in enumerate(values)}
    options = {"method": method, "check": 0, "bin_means": 0, "rng": SeededGenerator(0)}
    engine = QueryEngine(schema, table, Budget(1.0, 1e-6), **options)
    note = engine.ask(Regression("x0", [f"x{j}" for j in range(1, 12)], loss="squared")).note
    assert ("noise hides many dependences" in note) == (method == "warm")
    models, counts = engine.histogram, Counts.of(Universe(schema), table)
    bins = schema.attributes[0]
    number = np.where(np.arange(bins.size) < bins.known, bins.scaled, 0.0)[:, None]
    far = []
    for a, b in itertools.combinations(range(d), 2):
        shares = counts.shares((a, b))
        off = (number.T @ shares @ number) - (shares.sum(axis=1) @ number) * (shares.sum(axis=0) @ number)
        off -= models.products(a, number, b, number)
        off += (models.shares(a) @ number) * (models.shares(b) @ number)
        far.append(float(off[0, 0]) / math.sqrt(models.product_variances(a, number, b, number)[0, 0]))
    assert np.mean(np.abs(far) < 1.96) > 0.8
    assert 0.3 < math.sqrt(np.mean(np.square(far))) < 2.0


def test_errors_of_covariances_are_known_whatever_noise_says_about_all_pairs_together():
    """Groups of ten attributes with dependences that noise hides; a release may seem to have none at all."""
    rng, n, d = np.random.default_rng(4), 1500, 30
    causes = np.repeat(rng.normal(size=(d // 10, n)), 10, axis=0)
    codes = np.digitize(causes + rng.normal(size=(d, n)), [-1.2, 0.0, 1.2])
    schema = Schema(tuple(Attribute(f"a{j}", tuple("abcd"), "a") for j in range(d)))
    counts = Counts.of(
        Universe(schema), {f"a{j}": np.array(list("abcd"))[column] for j, column in enumerate(codes)}
    )
    high = (np.arange(4) > 1).astype(float)[:, None]
    mechanism = NoisyMarginals((4,) * d, n, 9.0, 2)
    sizes, seen = [], []
    for seed in range(4):
        released = mechanism(counts, SeededGenerator(seed))
        models = LocalModels(counts.universe, shrink_together(released, mechanism.sizes), released=released)
        seen.append(models._pooled_variance)
        far = []
        for a, b in itertools.combinations(range(d), 2):
            shares = counts.shares((a, b)).reshape(4, 4)
            off = (high.T @ shares @ high) - (shares.sum(axis=1) @ high) * (shares.sum(axis=0) @ high)
            off -= models.products(a, high, b, high)
            off += (models.shares(a) @ high) * (models.shares(b) @ high)
            far.append(float(off[0, 0]) / math.sqrt(models.product_variances(a, high, b, high)[0, 0]))
        sizes.append(math.sqrt(np.mean(np.square(far))))
    assert min(seen) == 1e-3  # such a release seems to show no dependence
    assert max(sizes) < 3.0
