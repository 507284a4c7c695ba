"""Bounds on the error of an answer hold on records that the first measurements say nothing about."""

import numpy as np
import pytest

from dpcvx.accounting import Budget
from dpcvx.noise import SeededGenerator
from dpcvx.queries import Attribute, Count, Counts, Marginal, Mean, QueryEngine, Regression, Schema, Universe
from dpcvx.queries.error_bars import CONFIDENCE, released_table, table_estimate
from dpcvx.queries.marginals import NoisyMarginals

N, D = 20_000, 9
NAMES = tuple(f"a{k}" for k in range(D))
SCHEMA = Schema(tuple(Attribute(name, ("0", "1"), "1") for name in NAMES))
ONES = {name: ["1"] for name in NAMES[:4]}
OUTSIDE = [
    Marginal(NAMES[:4]),
    Count(ONES),
    Mean("a3", {name: ["1"] for name in NAMES[:3]}),
    Marginal(NAMES[:5]),
    Regression("a3", NAMES[:3]),
    Marginal(NAMES[:2]),
    Count({"a5": ["1"]}),
    Mean("a6"),
]


def parity_records(share):
    """Fair coins, except that the first four sum to an even number in this share of the records."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2, (N, D))
    fixed = rng.random(N) < share
    bits[fixed, 3] = bits[fixed, :3].sum(axis=1) % 2
    return {name: np.array(["0", "1"])[bits[:, k]] for k, name in enumerate(NAMES)}


def largest_error(query, answer, counts):
    question = query.compile(SCHEMA, N)
    weights = counts.marginal(question.attributes).ravel() / N
    if isinstance(query, Regression):
        return question.error(weights, np.array(answer.coded))
    exact = query.reading(SCHEMA, N).numbers(question.answer(weights))
    cells = [k for k, name in enumerate(answer.names) if "total" not in name]
    return float(np.abs(np.array(answer.estimates) - exact)[cells].max())


@pytest.mark.long
@pytest.mark.parametrize("method", ["warm", "histogram"])
@pytest.mark.parametrize("share", [1.0, 0.8, 0.5, 0.2])
def test_no_stated_bound_is_exceeded_by_parities(method, share):
    table = parity_records(share)
    counts = Counts.of(Universe(SCHEMA), table)
    engine = QueryEngine(SCHEMA, table, Budget(1.0, 1e-6), method=method, rng=SeededGenerator(1))
    for query in OUTSIDE:
        answer = engine.ask(query)
        if answer.error_bound is not None:
            assert largest_error(query, answer, counts) <= answer.error_bound, query


@pytest.mark.long
def test_each_bound_names_its_argument():
    engine = QueryEngine(
        SCHEMA, parity_records(0.1), Budget(1.0, 1e-6), method="warm", rng=SeededGenerator(1)
    )
    said = {type(query).__name__ + str(k): engine.ask(query) for k, query in enumerate(OUTSIDE)}
    arguments = {name: answer.covered_by for name, answer in said.items()}
    assert arguments["Marginal0"] == arguments["Count1"] == "comparison"
    assert arguments["Mean2"] == "none"  # the share of its condition among the records is not known
    assert arguments["Marginal5"] == arguments["Count6"] == arguments["Mean7"] == "noise"
    for answer in said.values():
        assert (answer.error_bound is None) == (answer.covered_by == "none")
        told = answer.interval_by in ("prediction", "measurement")
        assert told == (answer.branch == "histogram" or answer.query["kind"] != "regression")
        for each in answer.coefficients:
            known = "baseline" in each.name or each.name.count("=total") == each.name.count("=") > 0
            assert (each.std_err is None) == (each.low is None) == (each.high is None) == (known or not told)


SMALL = Schema(
    (Attribute("a", ("0", "1"), "1"), Attribute("b", ("0", "1", "2"), "2"), Attribute("c", ("0", "1"), "1"))
)


@pytest.mark.parametrize("kind", ["marginals", "histogram"])
def test_bounds_by_noise_hold_for_the_worst_query_that_an_analyst_can_find(kind):
    """The analyst knows the records and asks about the cell that is farthest off in each engine."""
    rng = np.random.default_rng(0)
    universe, n, runs, wrong = Universe(SMALL), 500, 300, 0
    counts = Counts.of(universe, {name: rng.choice(["0", "1"], n) for name in "abc"})
    pairs = [("a", "b"), ("b", "c"), ("c", "a"), ("b",)]
    questions = [Marginal(names).compile(SMALL, n) for names in pairs]
    questions += [Count({"a": ["1"], "b": ["0", "2"]}).compile(SMALL, n)]
    exact = [counts.marginal(each.attributes).ravel() / n for each in questions]
    mechanism = NoisyMarginals(universe.shape, n, 5.0)
    for seed in range(runs):
        if kind == "marginals":
            released = mechanism(counts, SeededGenerator(seed))
            tables = [table_estimate(each, released) for each in questions]
        else:
            every = counts.marginal((0, 1, 2)).ravel() / n + 0.01 * rng.standard_normal(universe.n_cells)
            tables = [released_table(each, every, universe.shape, 0.01) for each in questions]
        wrong += any(
            (
                np.abs(weights @ each.values - each.answer(table.shares))
                > table.bound(each, each.answer(table.shares))
            ).any()
            for each, table, weights in zip(questions, tables, exact, strict=True)
        )
    assert wrong / runs <= 1 - CONFIDENCE


@pytest.mark.long
def test_the_noise_of_a_correction_is_in_the_error_stated_afterwards():
    engine = QueryEngine(
        SCHEMA, parity_records(1.0), Budget(1.0, 1e-6), method="warm", rng=SeededGenerator(2)
    )
    before = engine.ask(Marginal(NAMES[:4]))
    assert before.branch == "oracle"
    after = engine.ask(Marginal(NAMES[:4]))
    assert after.branch == "histogram"
    own = before.coefficients[0].std_err
    assert own == before.error
    assert after.error > 0.8 * own  # the histogram now follows the new measurement, noise included
    part = engine.ask(Marginal((*NAMES[1:4], "a5")))
    assert part.branch == "histogram"
    assert part.error > 0.3 * own  # it shares three attributes with the correction
