"""A condition on a feature drops the levels that it excludes; levels of few people have no intervals."""

import warnings

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.noise import SeededGenerator
from dpcvx.queries import Answer, Attribute, Binned, QueryEngine, Regression, Schema

SCHEMA = Schema(
    (
        Attribute("race", ("White", "Black", "Asian", "Mixed")),
        Attribute("college", (0, 1)),
        Attribute("sex", ("f", "m")),
        Binned("age", (18, 30, 45, 60, 90), None, (24, 38, 52, 72)),
    )
)
N = 20_000


@pytest.fixture(scope="module")
def engine():
    rng = np.random.default_rng(0)
    race = rng.choice(["White", "Black", "Asian", "Mixed"], N, p=[0.6, 0.2, 0.199, 0.001])
    odds = np.where(race == "Asian", 1.0, -0.5)
    table = {
        "race": race,
        "college": (rng.random(N) < 1 / (1 + np.exp(-odds))).astype(int),
        "sex": rng.choice(["f", "m"], N),
        "age": rng.choice(SCHEMA["age"].values, N),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return QueryEngine(
            SCHEMA, table, dp.Budget(2.0, 1e-9), method="warm", check=0, rng=SeededGenerator(1)
        )


def test_excluded_levels_have_no_coefficients(engine):
    """They had 0 with the interval [0, 0], and an excluded level was the baseline."""
    answer = engine.ask(Regression("college", ("race",), where={"race": ["Asian", "Black"]}))
    assert answer.names == ("intercept", "race=Black (baseline)", "race=Asian")
    shown = answer.coefficients[2]
    assert shown.low <= 1.5 <= shown.high
    assert 0.1 < shown.population_high - shown.population_low < 0.6
    products = Regression(
        "college", ("race", "sex"), interactions=[("race", "sex")], where={"race": ["Asian", "Black"]}
    )
    assert engine.ask(products).names[-2:] == ("race=Asian:sex=m", "race=Asian:sex=missing")


def test_three_levels_of_four_are_coded_as_three(engine):
    query = Regression("college", ("race",), where={"race": ["White", "Asian", "Black"]}, radius=10.0)
    answer = engine.ask(query)
    assert answer.names == ("intercept", "race=White (baseline)", "race=Black", "race=Asian")
    assert answer.estimates[3] == pytest.approx(1.5, abs=0.2)


def test_a_number_of_one_bin_is_a_baseline():
    query = Regression("college", ("age",), where={"age": ["[18, 30)", "missing"]})
    names = query.reading(SCHEMA, N).names
    assert names == ("intercept", "age=[18, 30) (baseline)", "age=missing")
    assert query.compile(SCHEMA, N).names == ("intercept", "age=missing")
    bins = Regression("college", ("age",), where={"age": ["[18, 30)", "[45, 60)"]})
    assert bins.reading(SCHEMA, N).names == ("intercept", "age")


def test_a_feature_or_target_of_one_level_is_refused():
    with pytest.raises(ValueError, match="leaves the feature 'race' one level, 'Asian'"):
        Regression("college", ("race", "sex"), where={"race": ["Asian"]}).compile(SCHEMA, N)
    with pytest.raises(ValueError, match="leaves the target 'college' one level, '1'"):
        Regression("college", ("race",), where={"college": ["1", "missing"]}).compile(SCHEMA, N)
    with pytest.raises(ValueError, match="leaves the target 'age' no level with a value"):
        Regression("age", ("race",), loss="squared", where={"age": ["missing"]}).compile(SCHEMA, N)
    with pytest.raises(ValueError, match="no level 'Green'"):
        Regression("college", ("race",), where={"race": ["Green"]}).compile(SCHEMA, N)


def test_levels_of_few_people_have_no_intervals(engine):
    """One of 43 people had a P of 0.000 and a noise share of 8 %, beside a note that it was noise."""
    answer = engine.ask(Regression("college", ("race", "sex")))
    by_name = {each.name: each for each in answer.coefficients}
    hidden = by_name["race=Mixed"]
    assert "too few people are visible at race=Mixed" in answer.note
    assert (hidden.std_err, hidden.low, hidden.population_high, hidden.sampling) == (None,) * 4
    assert by_name["race=Asian"].low is not None
    (line,) = (line for line in str(answer).splitlines() if line.startswith("race=Mixed"))
    assert line.split()[1:] == [f"({hidden.estimate:.4f})"] or line.split()[1].startswith("(")
    assert len(line.split()) == 2
    assert "Coefficients in brackets are mostly noise" in str(answer)
    assert "(" not in answer.rows().to_csv().split("race=Mixed")[1].splitlines()[0]
    assert Answer.from_json(answer.to_json()) == answer


def test_a_baseline_of_few_people_hides_all_differences_from_it(engine):
    answer = engine.ask(Regression("college", ("race", "sex"), where={"race": ["Mixed", "Asian"]}))
    by_name = {each.name: each for each in answer.coefficients}
    assert by_name["race=Mixed"].low is None
    swapped = Schema((Attribute("race", ("Mixed", "White", "Black", "Asian")), *SCHEMA.attributes[1:]))
    rng = np.random.default_rng(0)
    table = {
        "race": rng.choice(["White", "Black"], N),
        "college": rng.choice([0, 1], N),
        "sex": rng.choice(["f", "m"], N),
        "age": rng.choice(SCHEMA["age"].values, N),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = QueryEngine(
            swapped, table, dp.Budget(2.0, 1e-9), method="warm", check=0, rng=SeededGenerator(1)
        )
    answer = made.ask(Regression("college", ("race", "sex")))
    by_name = {each.name: each for each in answer.coefficients}
    assert "race=Mixed" in answer.note
    assert by_name["intercept"].low is by_name["race=White"].low is None
    assert by_name["sex=m"].low is not None


def test_levels_of_few_people_inside_a_condition_have_no_intervals(engine):
    where = {"sex": ["m"], "age": ["[18, 30)"], "race": ["Mixed", "White"]}
    answer = engine.ask(Regression("college", ("race",), where=where))
    assert "visible at race=Mixed" in answer.note
    assert answer.coefficients[-1].low is None
