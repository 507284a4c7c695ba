"""Intervals of answers cover as often as they say, for the records and for a population, and are not wide."""

from itertools import combinations

import numpy as np
import pytest

from dpcvx.accounting import Budget
from dpcvx.noise import SeededGenerator
from dpcvx.queries import Attribute, Binned, Counts, Marginal, QueryEngine, Regression, Schema, Universe

SCHEMA = Schema(
    (
        Attribute("sex", ("f", "m"), "m"),
        Attribute("region", ("north", "south", "west"), other="missing"),
        Attribute("income", ("low", "high"), "high"),
        Binned("age", (18, 30, 45, 60, 90), 37.5, values=(24, 38, 52, 72)),
    )
)
N, SEEDS = 10_000, 4
TRUTH = {"sex=m": 0.5, "region=south": -0.4, "region=west": 0.0, "region=missing": 0.2, "age": 0.03}


def people(seed):
    """Records of a population whose logistic regression of income is known."""
    rng = np.random.default_rng(seed)
    age = rng.choice(SCHEMA["age"].values, N, p=[0.2, 0.3, 0.3, 0.2])
    sex = np.where(rng.random(N) < 0.4 + 0.002 * (age - 50), "m", "f")
    region = rng.choice(["north", "south", "west", ""], N, p=[0.3, 0.3, 0.3, 0.1])
    odds = 0.03 * (age - 50) + 0.5 * (sex == "m") - 0.4 * (region == "south") + 0.2 * (region == "")
    income = np.where(rng.random(N) < 1 / (1 + np.exp(-odds)), "high", "low")
    return {"sex": sex, "region": region, "income": income, "age": age}


@pytest.mark.long
def test_intervals_cover_95_per_cent_and_their_width_fits_the_errors():
    inside = {"tables": [], "coefficients": [], "population": []}
    errors, widths = [], []
    query = Regression("income", ("sex", "region", "age"))
    for seed in range(SEEDS):
        table = people(seed)
        counts = Counts.of(Universe(SCHEMA), table)
        engine = QueryEngine(
            SCHEMA, table, Budget(1.0, 1e-8), method="warm", check=0, rng=SeededGenerator(seed)
        )
        for names in combinations(SCHEMA.names, 2):
            marginal = Marginal(names)
            compiled = marginal.compile(SCHEMA, N)
            exact = marginal.reading(SCHEMA, N).numbers(counts.marginal(compiled.attributes).ravel() / N)
            for each, right in zip(engine.ask(marginal).coefficients, exact, strict=True):
                if each.low is not None:
                    inside["tables"].append(each.low <= right <= each.high)
                    errors.append(each.estimate - right)
                    widths.append((each.high - each.low) / 2)
        compiled = query.compile(SCHEMA, N)
        best = compiled.answer(counts.marginal(compiled.attributes).ravel() / N)
        exact = query.reading(SCHEMA, N).numbers(best)
        for each, right in zip(engine.ask(query).coefficients, exact, strict=True):
            if each.name in TRUTH:
                inside["coefficients"].append(each.low <= right <= each.high)
                inside["population"].append(each.population_low <= TRUTH[each.name] <= each.population_high)
    covered = {name: np.mean(found) for name, found in inside.items()}
    assert 0.9 < covered["tables"] < 0.995, covered
    assert covered["coefficients"] >= 0.85, covered  # of 20 numbers
    assert covered["population"] >= 0.85, covered
    assert np.median(widths) < 2 * 1.96 * np.sqrt(np.mean(np.square(errors)))


def test_an_interval_of_a_table_is_1_96_standard_errors_on_each_side():
    engine = QueryEngine(SCHEMA, people(0), Budget(1.0, 1e-8), method="warm", check=0, rng=SeededGenerator(0))
    told = [each for each in engine.ask(Marginal(("sex", "income"))).coefficients if each.std_err]
    assert len(told) >= 4
    for each in told:
        assert each.high - each.estimate == pytest.approx(1.959964 * each.std_err, rel=1e-5)


def test_small_cells_of_tables_of_persons_are_covered():
    """Of small cells 75 % were covered: their predicted errors were proportional to the cells."""
    levels = tuple("pqrstu")
    schema = Schema(tuple(Attribute(name, levels, "u") for name in ("a", "b", "c", "d")))
    inside, floors = [], []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        rare = np.array([0.5, 0.25, 0.13, 0.07, 0.035, 0.015])
        a = rng.choice(6, 12_000, p=rare)
        near = np.where(rng.random(12_000) < 0.5, a, rng.choice(6, 12_000, p=rare))
        codes = {"a": a, "b": near, "c": rng.choice(6, 12_000, p=rare), "d": rng.choice(6, 12_000, p=rare)}
        codes["c"] = np.where((a == near) & (rng.random(12_000) < 0.4), a, codes["c"])
        persons = np.repeat(np.arange(3_000), 4)
        table = {name: np.array(levels)[code] for name, code in codes.items()}
        engine = QueryEngine(
            schema,
            table,
            Budget(1.0, 1e-8),
            groups=persons,
            method="warm",
            check=0,
            rng=SeededGenerator(seed),
        )
        truth = np.zeros((6, 6, 6))
        np.add.at(truth, (codes["a"], codes["b"], codes["c"]), 0.25)
        answer = engine.ask(Marginal(("a", "b", "c")))
        small = truth.ravel() < 20
        for each, right in zip(np.array(answer.coefficients[:216])[small], truth.ravel()[small], strict=True):
            inside.append(each.low <= right <= each.high)
            floors.append(each.std_err)
    assert len(inside) > 300
    assert np.mean(inside) > 0.93, np.mean(inside)
    assert min(floors) > 1
